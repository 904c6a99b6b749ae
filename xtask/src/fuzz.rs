//! Runs the fuzz targets of `fuzz/` one after the other, from the seeds that are checked in.
//!
//! It needs a nightly toolchain and `cargo-fuzz`, which nothing else does, so no test runs it. What it finds
//! becomes a seed, and those are read by ordinary tests.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Bytes of an input; what parsers get wrong they get wrong in less.
const INPUT_BYTES_MAX: u32 = 4096;
/// Megabytes a target may take before that is a finding.
const MEMORY_MB_MAX: u32 = 1024;
/// Seconds one input may take before that is a finding.
const INPUT_SECONDS_MAX: u32 = 20;

/// Which targets, and for how long each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) seconds: u64,
    /// All of them, if none is named.
    pub(crate) targets: Vec<String>,
}

impl Settings {
    /// Understands `--seconds N` and names of targets.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Settings> {
        let mut settings = Settings { seconds: 60, targets: Vec::new() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--seconds" => {
                    let value = arguments.next().context("--seconds needs a number")?;
                    settings.seconds =
                        value.parse().with_context(|| format!("{value} is not a number"))?;
                }
                other if other.starts_with('-') => {
                    bail!("no such option: {other}; `cargo xtask help` lists them")
                }
                target => settings.targets.push(target.to_owned()),
            }
        }
        ensure!(settings.seconds > 0, "a target runs for at least one second");
        Ok(settings)
    }
}

/// `false` when a target found something; it has then said what.
pub(crate) fn run(root: &Path, settings: &Settings) -> Result<bool> {
    let known = targets(root)?;
    if let Some(unknown) = settings.targets.iter().find(|name| !known.contains(name)) {
        bail!("there is no target {unknown}; there are {}", known.join(", "));
    }
    let wanted = if settings.targets.is_empty() { &known } else { &settings.targets };
    let mut found = Vec::new();
    for target in wanted {
        println!("{target}, {} s", settings.seconds);
        if !fuzz(root, target, settings.seconds)? {
            found.push(target.as_str());
        }
    }
    if !found.is_empty() {
        println!("found something: {}; see fuzz/artifacts", found.join(", "));
    }
    Ok(found.is_empty())
}

/// The targets there are: one file each.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).context("fuzz/fuzz_targets cannot be read")?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let name = |path: std::path::PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = paths.filter_map(name).collect();
    names.sort();
    Ok(names)
}

fn fuzz(root: &Path, target: &str, seconds: u64) -> Result<bool> {
    // What is found on the way goes to the first folder; the seeds stay as they are.
    let folders = [format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}")];
    for folder in &folders {
        std::fs::create_dir_all(root.join(folder))
            .with_context(|| format!("cannot make {folder}"))?;
    }
    let status = Command::new("cargo")
        .args(["+nightly", "fuzz", "run", target])
        .args(&folders)
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .current_dir(root)
        .status()
        .context("cargo cannot be started; is there a nightly toolchain, and cargo-fuzz?")?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_seconds_and_names() {
        let parsed = Settings::parse(&["wire_request", "--seconds", "5"]).ok();
        let targets = vec!["wire_request".to_owned()];
        assert_eq!(parsed, Some(Settings { seconds: 5, targets }));
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--minutes", "1"]] {
            assert!(Settings::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
