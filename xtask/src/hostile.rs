//! `cargo xtask hostile`: the long form, in release, of every test that simulates an attacker or a disaster.
//!
//! This module only lists the tests and sets their length; `cargo xtask test` runs all of them in a short form. Two
//! variables select the long form: `HEADWATER_HOSTILE_SECONDS` and `HEADWATER_MATRIX`. A test that reads one of them
//! must be listed here.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The integration tests, grouped by target of attack.
const TESTS: &[&str] = &[
    // Principals, operations, disguises; connections; queries.
    "authorization",
    "tokens",
    "web_pages",
    "hostile_connections",
    "leaving_clients",
    "query_costs",
    // Scripts in the engine, in its workers and in a server.
    "hostile",
    "workers",
    "scripts",
    // Memory of a server process, and its neighbours.
    "attacks",
    "large_transactions",
    "memory",
    // Damaged files, power cuts under the rules of POSIX, kills during everything.
    "damage",
    "damage_matrix",
    "damaged_index",
    "power_cuts",
    "torn_writes",
    "kill",
    "stopping",
];

/// Unit tests with a long form, by package and by a part of their path.
const UNIT_TESTS: &[(&str, &str)] = &[("headwater-server", "certificate::damage_matrix")];

/// The variable that selects the long form of the damage matrices: every file instead of one of each kind.
const MATRIX: &str = "HEADWATER_MATRIX";
/// The variable that sets the seconds of each attack.
const SECONDS: &str = "HEADWATER_HOSTILE_SECONDS";

/// How long each attack takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) seconds: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { seconds: 5 }
    }
}

impl Settings {
    /// Parses `--seconds N`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Settings> {
        let seconds = match arguments {
            [] => return Ok(Settings::default()),
            ["--seconds", value] => {
                value.parse().with_context(|| format!("{value} is not a number"))?
            }
            other => bail!("no such option: {}; `cargo xtask help` lists them", other.join(" ")),
        };
        ensure!(seconds > 0, "an attack takes at least one second");
        Ok(Settings { seconds })
    }
}

/// Runs all tests, even after a failure. Returns `false` if an attack succeeded.
pub(crate) fn run(root: &Path, settings: &Settings) -> Result<bool> {
    let mut arguments = vec!["--workspace", "--no-fail-fast"];
    arguments.extend(TESTS.iter().flat_map(|test| ["--test", *test]));
    let mut passed = cargo_test(root, settings, &arguments, None)?;
    for (package, path) in UNIT_TESTS {
        passed &= cargo_test(root, settings, &["--package", package, "--lib"], Some(path))?;
    }
    Ok(passed)
}

fn cargo_test(
    root: &Path,
    settings: &Settings,
    arguments: &[&str],
    only: Option<&str>,
) -> Result<bool> {
    let mut command = Command::new("cargo");
    command.args(["test", "--release"]).args(arguments).args(["--", "--nocapture"]).args(only);
    command.env(SECONDS, settings.seconds.to_string()).env(MATRIX, "1");
    let status = command.current_dir(root).status().context("cargo cannot be started")?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The paths of all files below a folder of the repository, from its root.
    fn files(root: &Path, folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => files(root, &path, found),
                false => found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }

    #[test]
    fn every_test_with_a_long_form_is_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut paths = Vec::new();
        files(root, &root.join("crates"), &mut paths);
        let mut with_long_form = BTreeSet::new();
        for path in paths.iter().filter(|path| path.ends_with(".rs")) {
            let text = std::fs::read_to_string(root.join(path)).unwrap();
            if !text.contains(MATRIX) && !text.contains(SECONDS) {
                continue;
            }
            let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
            let (package, inside) = (format!("headwater-{}", parts[1]), &parts[3..]);
            let is_listed = match parts[2] {
                "tests" => TESTS.contains(&inside[0]),
                _ => UNIT_TESTS.contains(&(package.as_str(), inside.join("::").as_str())),
            };
            assert!(is_listed, "{path} has a long form and is missing in TESTS or UNIT_TESTS");
            with_long_form.insert(inside[0].to_owned());
        }
        let expected = ["attacks", "certificate", "damage_matrix"].map(str::to_owned);
        assert_eq!(with_long_form, BTreeSet::from(expected));
    }

    #[test]
    fn every_listed_test_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut paths = Vec::new();
        files(root, &root.join("crates"), &mut paths);
        for test in TESTS {
            let names = [format!("/tests/{test}.rs"), format!("/tests/{test}/main.rs")];
            let exists = |path: &String| names.iter().any(|name| path.ends_with(name));
            assert!(paths.iter().any(exists), "there is no test {test}");
        }
    }
}
