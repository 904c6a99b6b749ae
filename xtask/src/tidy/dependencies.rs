//! Checks which crates of the workspace depend on which.
//!
//! The table holds the diagram of `ARCHITECTURE.md` in a form that can be compared with cargo's metadata. It
//! also lists planned crates. A missing edge is missing on purpose: to add one, change the diagram first and
//! give the reason.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::finding::Finding;
use super::tree::Tree;

/// Each crate, and the workspace crates it may depend on. Lowest first.
const MAY_USE: &[(&str, &[&str])] = &[
    ("headwater-model", &[]),
    ("headwater-runtime", &[]),
    ("headwater-log", &["headwater-model", "headwater-runtime"]),
    // Pure: the time is a parameter; they read no clock.
    ("headwater-query", &["headwater-model"]),
    ("headwater-protocol", &["headwater-model"]),
    // Scripts have deadlines, so they need a clock.
    ("headwater-script", &["headwater-model", "headwater-runtime"]),
    (
        "headwater-store",
        &[
            "headwater-log",
            "headwater-model",
            "headwater-query",
            "headwater-runtime",
            "headwater-script",
        ],
    ),
    ("headwater-client", &["headwater-model", "headwater-protocol", "headwater-runtime"]),
    (
        "headwater-server",
        &["headwater-model", "headwater-protocol", "headwater-runtime", "headwater-store"],
    ),
    // The store is needed only to read an embedded database; against a server, the client is enough.
    (
        "headwater-processor",
        &["headwater-client", "headwater-model", "headwater-runtime", "headwater-store"],
    ),
    ("headwater-functions", &["headwater-model", "headwater-processor", "headwater-runtime"]),
    (
        "headwater-cluster",
        &["headwater-log", "headwater-model", "headwater-runtime", "headwater-store"],
    ),
    // Combines all parts except the simulation.
    (
        "headwater",
        &[
            "headwater-client",
            "headwater-cluster",
            "headwater-functions",
            "headwater-log",
            "headwater-model",
            "headwater-processor",
            "headwater-protocol",
            "headwater-runtime",
            "headwater-server",
            "headwater-store",
        ],
    ),
    (
        SIMULATION,
        &[
            "headwater-client",
            "headwater-cluster",
            "headwater-functions",
            "headwater-log",
            "headwater-model",
            "headwater-processor",
            "headwater-protocol",
            "headwater-query",
            "headwater-runtime",
            "headwater-script",
            "headwater-server",
            "headwater-store",
        ],
    ),
    ("xtask", &[]),
];

/// The crate that the tests of every other crate may use.
const SIMULATION: &str = "headwater-simulation";

/// Dependencies that only the tests of a crate may have: a client is tested against a server.
const TESTS_MAY_USE: &[(&str, &str)] = &[
    ("headwater-client", "headwater-server"),
    ("headwater-client", "headwater-store"),
    ("headwater-processor", "headwater-server"),
];

const TABLE: &str = "xtask/src/tidy/dependencies.rs";

/// The part of `cargo metadata` about workspace crates.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// Absent for ordinary dependencies, otherwise `dev` or `build`.
    kind: Option<String>,
}

pub(crate) fn metadata(root: &Path) -> Result<Metadata> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cargo cannot be started")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {}", complaint.trim());
    serde_json::from_slice(&output.stdout).context("cargo metadata is not the JSON we know")
}

pub(crate) fn check(metadata: &Metadata, tree: &Tree) -> Vec<Finding> {
    let is_ours = |name: &str| metadata.packages.iter().any(|package| package.name == name);
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let manifest = package.manifest(&metadata.workspace_root);
        let Some((_, may_use)) = MAY_USE.iter().find(|(name, _)| *name == package.name) else {
            findings.push(Finding::problem(
                (&manifest, 1),
                format!("the crate `{}` has no place in the dependency picture", package.name),
                format!("add it to ARCHITECTURE.md, then to the table in {TABLE}"),
            ));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|other| is_ours(&other.name)) {
            let is_dev = dependency.kind.as_deref() == Some("dev");
            let edge = (package.name.as_str(), dependency.name.as_str());
            let of_tests =
                is_dev && (dependency.name == SIMULATION || TESTS_MAY_USE.contains(&edge));
            if of_tests || may_use.contains(&dependency.name.as_str()) {
                continue;
            }
            findings.push(Finding::problem(
                (&manifest, line_of(tree, &manifest, &dependency.name)),
                format!("`{}` may not use `{}`", package.name, dependency.name),
                format!("move the code to the crate that may know both, or see {TABLE}"),
            ));
        }
    }
    findings
}

impl Package {
    /// Returns the path of the manifest from the root, with forward slashes.
    fn manifest(&self, workspace_root: &str) -> String {
        let path = Path::new(&self.manifest_path);
        let relative = path.strip_prefix(workspace_root).unwrap_or(path);
        relative.to_string_lossy().replace('\\', "/")
    }
}

/// Returns the line of the dependency in the manifest, or 1 if it cannot be found.
fn line_of(tree: &Tree, manifest: &str, dependency: &str) -> usize {
    let names_it = |line: &str| {
        let rest = line.trim_start().strip_prefix(dependency);
        rest.is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    let file = tree.file(manifest);
    let found = file.and_then(|file| file.lines().find(|(_, line)| names_it(line)));
    found.map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace in which `name` depends on `dependency`.
    fn workspace(name: &str, dependency: &str, kind: Option<&str>) -> Metadata {
        let package = |name: &str, dependencies: Vec<Dependency>| Package {
            name: name.to_owned(),
            manifest_path: format!("/repository/crates/{name}/Cargo.toml"),
            dependencies,
        };
        let edge = Dependency { name: dependency.to_owned(), kind: kind.map(str::to_owned) };
        let mut packages = vec![package(name, vec![edge])];
        if dependency.starts_with("headwater") {
            packages.push(package(dependency, vec![]));
        }
        Metadata { packages, workspace_root: "/repository".to_owned() }
    }

    #[track_caller]
    fn check_edge(name: &str, dependency: &str, kind: Option<&str>, fine: bool) {
        let findings = check(&workspace(name, dependency, kind), &Tree::of(&[]));
        assert_eq!(findings.is_empty(), fine, "{name} -> {dependency} {kind:?}: {findings:?}");
    }

    #[test]
    fn edges_point_downwards() {
        check_edge("headwater-store", "headwater-log", None, true);
        check_edge("headwater", "headwater-store", None, true);
        check_edge("headwater-log", "serde", None, true);
        check_edge("headwater-log", "headwater-store", None, false);
        check_edge("headwater-model", "headwater-runtime", None, false);
        check_edge("headwater-model", "headwater-runtime", Some("build"), false);
        check_edge("headwater-model", "headwater-runtime", Some("dev"), false);
        check_edge("xtask", "headwater-model", None, false);
    }

    #[test]
    fn only_tests_may_use_the_simulation() {
        check_edge("headwater-store", SIMULATION, Some("dev"), true);
        check_edge("headwater-client", "headwater-server", Some("dev"), true);
        check_edge("headwater-client", "headwater-server", None, false);
        check_edge("headwater-store", SIMULATION, None, false);
        check_edge("headwater", SIMULATION, None, false);
    }

    #[test]
    fn a_crate_without_a_place_is_reported() {
        check_edge("headwater-utils", "serde", None, false);
    }

    #[test]
    fn a_finding_points_at_the_line_of_the_manifest() {
        let manifest = "crates/headwater-log/Cargo.toml";
        let text =
            "[dependencies]\nheadwater-storefront = \"1\"\nheadwater-store.workspace = true\n";
        let metadata = workspace("headwater-log", "headwater-store", None);
        let findings = check(&metadata, &Tree::of(&[(manifest, text)]));
        let places: Vec<_> = findings.iter().map(|found| (&*found.file, found.line)).collect();
        assert_eq!(places, [(manifest, 3)]);
    }

    #[test]
    fn the_table_names_only_crates_it_places_and_has_no_cycle() {
        for (index, (name, may_use)) in MAY_USE.iter().enumerate() {
            let lower = |other: &&str| MAY_USE[..index].iter().any(|(placed, _)| placed == other);
            assert!(may_use.iter().all(lower), "{name} uses {may_use:?}");
        }
    }
}
