//! The machine a figure was measured on, in one line.

use super::harness::Harness;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// What a reader must know to compare figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    /// Processes that wanted to run in the last minute, before we did.
    pub(crate) load: f64,
    /// The device the data is on, and its file system.
    pub(crate) disk: String,
    pub(crate) durability: &'static str,
    pub(crate) items: u64,
    pub(crate) rounds: u32,
    /// Whether this was built with optimisations.
    pub(crate) optimised: bool,
}

impl Machine {
    /// Whether others wanted more than half of the cores.
    pub(crate) fn is_busy(&self) -> bool {
        self.load > self.cores as f64 / 2.0
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cores, processor, load, disk, durability, items, rounds, .. } = self;
        write!(
            f,
            "{cores} cores, {processor}, load {load:.1} before; {disk}; durability {durability}; \
             {items} items of 1 KiB, median of {rounds} rounds"
        )?;
        if !self.optimised {
            f.write_str("; NOT OPTIMISED, figures mean nothing")?;
        }
        Ok(())
    }
}

/// Looks at the machine and at the disk that is measured.
pub(crate) fn describe(harness: &Harness) -> Result<Machine> {
    let disk = disk_of(&harness.root().canonicalize()?, &read("/proc/mounts"));
    if disk.ends_with("tmpfs") {
        tracing::warn!(
            "the data is in memory, where a sync costs nothing; choose a disk with --dir"
        );
    }
    Ok(Machine {
        cores: harness.cores,
        processor: processor(&read("/proc/cpuinfo")),
        load: load(&read("/proc/loadavg")),
        disk,
        durability: "fsync",
        items: harness.plan.items,
        rounds: harness.plan.rounds,
        optimised: !cfg!(debug_assertions),
    })
}

/// A file the kernel makes up; nothing where there is none.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn processor(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model.map_or("unknown processor", |(_, model)| model.trim()).to_owned()
}

fn load(loadavg: &str) -> f64 {
    let first = loadavg.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn disk_of(dir: &Path, mounts: &str) -> String {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        dir.starts_with(place).then(|| (place.len(), format!("{device} {kind}")))
    });
    // The deepest one; of several at the same place the last one is in front.
    let deepest = mounts.max_by_key(|(depth, _)| *depth);
    deepest.map_or_else(|| "unknown disk".to_owned(), |(_, disk)| disk)
}

/// Resident memory of this process now, and the most it ever was, in bytes.
pub(crate) fn resident_bytes() -> (u64, u64) {
    let status = read("/proc/self/status");
    (field(&status, "VmRSS:"), field(&status, "VmHWM:"))
}

/// What this process has read from disks so far; what was in memory does not count.
pub(crate) fn bytes_from_disk() -> u64 {
    let io = read("/proc/self/io");
    let count = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Resident memory of a process we started, in bytes.
pub(crate) fn resident_bytes_of(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .with_context(|| format!("process {process} has ended"))?;
    let bytes = field(&status, "VmRSS:");
    ensure!(bytes > 0, "process {process} does not say how much memory it has");
    Ok(bytes as f64)
}

/// CPU time of the threads that a process we started has now.
pub(crate) fn cpu_of(process: u32) -> Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that has ended meanwhile no longer counts.
        let said = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let spent = said.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok());
        nanos += spent.unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    kibibytes.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        assert_eq!(processor("flags: x\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        assert_eq!(processor(""), "unknown processor");
        assert_eq!(load("1.25 1.00 0.50 1/100 7\n"), 1.25);
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n/dev/b /run/data xfs rw 0 0\n";
        assert_eq!(disk_of(Path::new("/srv/x"), mounts), "/dev/a ext4");
        assert_eq!(disk_of(Path::new("/run/x"), mounts), "tmpfs tmpfs");
        assert_eq!(disk_of(Path::new("/run/data/x"), mounts), "/dev/b xfs");
        assert_eq!(field("VmHWM:\t  20 kB\nVmRSS:\t    10 kB\n", "VmRSS:"), 10_240);
    }
}
