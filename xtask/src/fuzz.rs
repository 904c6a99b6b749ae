//! Runs the fuzz targets of `fuzz/`, from the seeds that are checked in.
//!
//! It needs a nightly toolchain and `cargo-fuzz`. Nothing else needs them, so no test runs it. Its findings become
//! seeds, which ordinary tests read.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

/// Maximum length of an input; parser bugs show on shorter ones.
const INPUT_BYTES_MAX: u32 = 4096;
/// Memory limit of a target in megabytes; exceeding it is a finding.
const MEMORY_MB_MAX: u32 = 1024;
/// Time limit of one input in seconds; exceeding it is a finding.
const INPUT_SECONDS_MAX: u32 = 20;

/// The options: targets, seconds per target, and targets run in parallel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) seconds: u64,
    pub(crate) jobs: u64,
    /// The targets; empty for all.
    pub(crate) targets: Vec<String>,
}

impl Settings {
    /// Parses `--seconds N`, `--jobs N` and names of targets.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Settings> {
        let mut settings = Settings { seconds: 60, jobs: 1, targets: Vec::new() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                option @ ("--seconds" | "--jobs") => {
                    let value =
                        arguments.next().with_context(|| format!("{option} needs a number"))?;
                    let number =
                        value.parse().with_context(|| format!("{value} is not a number"))?;
                    ensure!(number > 0, "{option} is at least 1");
                    match option {
                        "--seconds" => settings.seconds = number,
                        _ => settings.jobs = number,
                    }
                }
                other if other.starts_with('-') => {
                    bail!("no such option: {other}; `cargo xtask help` lists them")
                }
                target => settings.targets.push(target.to_owned()),
            }
        }
        Ok(settings)
    }
}

/// Runs the targets. Returns `false` if one has a finding, after printing it.
pub(crate) fn run(root: &Path, settings: &Settings) -> Result<bool> {
    let known = targets(root)?;
    if let Some(unknown) = settings.targets.iter().find(|name| !known.contains(name)) {
        bail!("there is no target {unknown}; there are {}", known.join(", "));
    }
    let wanted = if settings.targets.is_empty() { &known } else { &settings.targets };
    unpack_corpus(root)?;
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<&str>> {
        let mut found = Vec::new();
        while let Some(target) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            println!("{target}, {} s", settings.seconds);
            if !fuzz(root, target, settings.seconds)? {
                found.push(target.as_str());
            }
        }
        Ok(found)
    };
    let found = thread::scope(|scope| {
        let workers: Vec<_> = (0..settings.jobs).map(|_| scope.spawn(work)).collect();
        let found = workers.into_iter().map(|worker| worker.join().expect("a worker never panics"));
        found.collect::<Result<Vec<_>>>()
    })?;
    let found = found.concat();
    if !found.is_empty() {
        println!("found something: {}; see fuzz/artifacts", found.join(", "));
    }
    Ok(found.is_empty())
}

/// Unpacks the corpus of the last long run, unless this checkout already has one.
fn unpack_corpus(root: &Path) -> Result<()> {
    let corpus = root.join("fuzz/corpus");
    if corpus.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(&corpus).context("cannot make fuzz/corpus")?;
    let archive = root.join("fuzz/corpus.tar.gz");
    let status = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&corpus).status();
    let status = status.context("tar cannot be started")?;
    ensure!(status.success(), "{} cannot be unpacked", archive.display());
    Ok(())
}

/// Lists the targets: one per file.
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
    // New inputs go to the first folder; the seeds stay unchanged.
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
    fn settings_are_seconds_jobs_and_names() {
        let parsed = Settings::parse(&["wire_request", "--seconds", "5", "--jobs", "2"]).ok();
        let targets = vec!["wire_request".to_owned()];
        assert_eq!(parsed, Some(Settings { seconds: 5, jobs: 2, targets }));
        for wrong in
            [&["--seconds"][..], &["--seconds", "0"], &["--jobs", "0"], &["--minutes", "1"]]
        {
            assert!(Settings::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
