//! Runs the conformance checks on every log, also behind a simulated unreliable network.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

use headwater_log::disk::{Disk, MemoryDisk, OsDisk};
use headwater_log::{Faults, FaultyLog, LocalLog, LogOptions, PartitionLog, conformance};
use headwater_model::PartitionId;
use headwater_runtime::{Runtime, Simulation};
use std::path::Path;
use std::sync::Arc;

const PARTITION: PartitionId = PartitionId::new(7);

/// Small segments, so that the checks fill several of them.
fn options() -> LogOptions {
    LogOptions { segment_bytes: 1 << 10, ring_bytes: 1 << 10, ..LogOptions::default() }
}

fn local_log(disk: Arc<dyn Disk>, dir: &Path, runtime: Runtime) -> Arc<LocalLog> {
    LocalLog::create(disk, dir, PARTITION, options(), runtime).unwrap().log
}

/// Runs the checks under one seed and returns how many segments they filled.
fn check(disk: Arc<dyn Disk>, dir: &Path, faults: Option<Faults>, seed: u64) -> u64 {
    let simulation = Simulation::new(seed);
    let runtime = simulation.node().runtime();
    let random = simulation.random();
    let local = local_log(disk, dir, runtime.clone());
    let log: Arc<dyn PartitionLog> = match faults {
        None => Arc::new(local.clone()),
        Some(faults) => Arc::new(FaultyLog::new(Arc::new(local.clone()), faults, random)),
    };
    simulation.run(async move { conformance::check(&*log, PARTITION, &runtime).await });
    local.statistics().segments
}

#[test]
fn a_local_log_on_the_real_disk_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    let segments = check(Arc::new(OsDisk), &scratch.path().join("log"), None, 1);
    assert!(segments > 3, "{segments} segments");
}

#[test]
fn a_local_log_in_memory_conforms() {
    let segments = check(Arc::new(MemoryDisk::new()), Path::new("log"), None, 1);
    assert!(segments > 3, "{segments} segments");
}

#[test]
fn a_log_behind_a_bad_network_conforms() {
    for seed in 0..300 {
        let disk = Arc::new(MemoryDisk::new());
        check(disk, Path::new("log"), Some(Faults::many()), seed);
    }
}

/// Each fault alone, so frequent that several occur in a row.
#[test]
fn a_log_copes_with_each_fault_alone() {
    let cases: [(&str, Faults); 7] = [
        ("false conflict", Faults { false_conflict: 60, ..Faults::default() }),
        ("lost reply", Faults { lost_reply: 60, ..Faults::default() }),
        ("lost request", Faults { lost_request: 60, ..Faults::default() }),
        ("late request", Faults { late_request: 60, ..Faults::default() }),
        ("repeated request", Faults { repeated_request: 60, ..Faults::default() }),
        ("stale read", Faults { stale_read: 60, ..Faults::default() }),
        ("lost read", Faults { lost_read: 60, ..Faults::default() }),
    ];
    for (name, faults) in cases {
        for seed in 0..20 {
            let disk = Arc::new(MemoryDisk::new());
            let segments = check(disk, Path::new("log"), Some(faults), seed);
            assert!(segments > 3, "{name}, seed {seed}: {segments} segments");
        }
    }
}
