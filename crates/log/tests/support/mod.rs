//! Shared by the tests of the log: a model of the written history, and its comparison with reads.

// Each test binary uses a different part of this.
#![allow(dead_code)]

pub(crate) mod checks;
pub(crate) mod history;

use headwater_log::disk::{Disk, MemoryDisk};
use headwater_log::{AppendError, Group, LocalLog, LogOptions, OpenError, Opened, PartitionLog};
use headwater_model::PartitionId;
use headwater_runtime::{Random, Runtime, Simulation};
use std::path::Path;
use std::sync::Arc;

/// A runtime for code that neither sleeps nor starts tasks.
pub(crate) fn runtime() -> Runtime {
    Simulation::new(0).node().runtime()
}

pub(crate) fn append(log: &Arc<LocalLog>, group: &Group) -> Result<(), AppendError> {
    Simulation::new(0).run(log.append(group.clone()))
}

pub(crate) fn create(
    disk: &MemoryDisk,
    dir: &Path,
    partition: u32,
    options: &LogOptions,
) -> Opened {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let partition = PartitionId::new(partition);
    LocalLog::create(disk, dir, partition, options.clone(), runtime()).unwrap()
}

pub(crate) fn open(
    disk: &MemoryDisk,
    dir: &Path,
    partition: u32,
    options: &LogOptions,
) -> Result<Opened, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let partition = PartitionId::new(partition);
    LocalLog::open(disk, dir, partition, options.clone(), runtime())
}

/// A random byte below a bound.
pub(crate) fn byte(random: &mut Random, bound: u64) -> u8 {
    u8::try_from(random.below(bound)).unwrap()
}
