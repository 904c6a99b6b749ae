//! `cargo xtask soak`: runs for minutes and in release the soak test that `cargo xtask test` runs for seconds.
//!
//! The workload and its checks are in `crates/cli/tests/soak`; this module only sets the duration and the seed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The options: the duration and the seed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) minutes: u64,
    /// The seed; the test has a default.
    pub(crate) seed: Option<u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { minutes: 10, seed: None }
    }
}

impl Settings {
    /// Parses `--minutes N` and `--seed N`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Settings> {
        let mut settings = Settings::default();
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { bail!("{} needs a number", pair.join(" ")) };
            let number =
                value.parse().with_context(|| format!("{name} {value} is not a number"))?;
            match *name {
                "--minutes" => settings.minutes = number,
                "--seed" => settings.seed = Some(number),
                other => bail!("no such option: {other}; `cargo xtask help` lists them"),
            }
        }
        ensure!(settings.minutes > 0, "a soak takes at least one minute");
        Ok(settings)
    }
}

/// Runs the soak test. Returns `false` if it failed.
pub(crate) fn run(root: &Path, settings: &Settings) -> Result<bool> {
    let mut command = Command::new("cargo");
    command.args(["test", "--release", "-p", "headwater", "--test", "soak", "--", "--nocapture"]);
    command.env("HEADWATER_SOAK_SECONDS", (settings.minutes * 60).to_string());
    if let Some(seed) = settings.seed {
        command.env("HEADWATER_SOAK_SEED", seed.to_string());
    }
    let status = command.current_dir(root).status().context("cargo cannot be started")?;
    Ok(status.success())
}
