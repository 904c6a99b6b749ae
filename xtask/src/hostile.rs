//! The hostile day: every test that plays an attacker or a disaster, in release and for longer.
//!
//! What each does and how it is judged is in its own file; this only says which and for how long. `cargo xtask
//! test` runs all of them in a short form.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Tests by what they try.
const TESTS: &[&str] = &[
    // Principals, operations, disguises; connections; queries.
    "authorization",
    "tokens",
    "web_pages",
    "hostile_connections",
    "query_costs",
    // Scripts in the engine, in its workers and in a server.
    "hostile",
    "workers",
    "scripts",
    // Memory of a server process, and its neighbours.
    "attacks",
    // Damaged files, power cuts under the rules of POSIX, kills during everything.
    "damage",
    "power_cuts",
    "torn_writes",
    "kill",
];

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
    /// Understands `--seconds N`.
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

/// `false` when an attack succeeded.
pub(crate) fn run(root: &Path, settings: &Settings) -> Result<bool> {
    let mut command = Command::new("cargo");
    command.args(["test", "--release", "--workspace", "--no-fail-fast"]);
    for test in TESTS {
        command.args(["--test", test]);
    }
    command.args(["--", "--nocapture"]);
    command.env("HEADWATER_HOSTILE_SECONDS", settings.seconds.to_string());
    let status = command.current_dir(root).status().context("cargo cannot be started")?;
    Ok(status.success())
}
