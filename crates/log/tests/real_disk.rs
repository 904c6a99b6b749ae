//! A log on a real file system: preallocation, hard links, renames and removed files behave as on the memory
//! disk, which all other tests use.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_log::disk::{Disk, OsDisk};
use headwater_log::{
    Ancestor, CompactionPolicy, Durability, LocalLog, LogOptions, OpenError, Opened, Tail,
};
use headwater_model::{Epk, KeyRange, PartitionId, Timestamp};
use headwater_runtime::Random;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use support::checks::{check_all, restore_liveness};
use support::history::{History, Sizes};

const SIZES: Sizes = Sizes { keys: 12, entries: 4, records: 3, body: 100 };

fn options(durability: Durability) -> LogOptions {
    LogOptions { segment_bytes: 8 << 10, ring_bytes: 0, durability, ..LogOptions::default() }
}

fn open(dir: &Path, number: u32, options: &LogOptions) -> Result<Opened, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let id = PartitionId::new(number);
    LocalLog::open(disk, dir, id, options.clone(), support::runtime())
}

fn write(log: &Arc<LocalLog>, history: &mut History, random: &mut Random, groups: usize) {
    for _ in 0..groups {
        let now = Timestamp::from_seconds(1_000 + history.tail.lsn.get());
        let sent = history.random_group(random, now, SIZES);
        support::append(log, &sent.group).unwrap();
        history.acknowledge(&sent, sent.group.tail());
    }
}

fn compact(log: &LocalLog) {
    let retain_from = Timestamp::from_seconds(9_000_000);
    let policy = CompactionPolicy { retain_from, history_bytes_max: u64::MAX, dead_percent: 20 };
    while log.compact(&policy).unwrap().is_some() {}
}

fn live_through(durability: Durability) {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, options) = (scratch.path().join("partitions/1"), options(durability));
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let id = PartitionId::new(1);
    let runtime = support::runtime();
    let log = LocalLog::create(disk.clone(), &dir, id, options.clone(), runtime).unwrap().log;
    let mut history = History::new(id, KeyRange::full(), log.local_tail());
    let mut random = Random::seeded(3);
    write(&log, &mut history, &mut random, 40);
    check_all(&log, &history);
    compact(&log);
    check_all(&log, &history);
    assert!(log.statistics().disk_bytes > 0);
    write(&log, &mut history, &mut random, 3);

    // Killed: first the active segment ends with preallocated zeros, if the file system supports that; then half
    // an entry is written before them.
    let active = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            let is_segment = path.extension().is_some_and(|kind| kind == "seg");
            is_segment && !path.with_extension("tab").exists()
        })
        .unwrap();
    let opened = open(&dir, 1, &options).unwrap();
    assert_eq!((opened.torn_bytes, opened.liveness_lost), (0, false));
    check_all(&opened.log, &history);
    let bytes = fs::read(&active).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut torn = bytes;
    torn.resize(torn.len().max(end + 64), 0);
    torn[end + 8..end + 24].copy_from_slice(b"half of an entry");
    fs::write(&active, torn).unwrap();
    let opened = open(&dir, 1, &options).unwrap();
    assert!(opened.torn_bytes > 0);
    check_all(&opened.log, &history);
    write(&opened.log, &mut history, &mut random, 10);

    // Copied during writes.
    let snapshot = opened.log.snapshot();
    let cut = history.clone();
    write(&opened.log, &mut history, &mut random, 10);
    compact(&opened.log);
    let copy = scratch.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in &snapshot.files {
        let mut bytes = vec![0; usize::try_from(file.len()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        fs::write(copy.join(&file.name), bytes).unwrap();
    }
    let restored = open(&copy, 1, &options).unwrap();
    restore_liveness(&restored);
    check_all(&restored.log, &cut);

    // Split: the children keep the parent's files after the parent is removed.
    let start = opened.log.seal().unwrap();
    let (lower, upper) = KeyRange::full().split_at(&Epk::from_bytes(&[0x50])).unwrap();
    for (number, range) in [(2, lower), (3, upper)] {
        let id = PartitionId::new(number);
        let child = scratch.path().join(format!("partitions/{number}"));
        let from = [Ancestor { log: opened.log.clone(), range: range.clone() }];
        let runtime = support::runtime();
        let made =
            LocalLog::inherit(disk.clone(), &child, id, &from, start, options.clone(), runtime);
        let tail = Tail { timestamp: history.tail.timestamp, ..Tail::start(start) };
        let mut inherited = History::inherited(id, range, tail, &[&history]);
        let log = made.unwrap().log;
        check_all(&log, &inherited);
        if number == 3 {
            fs::remove_dir_all(&dir).unwrap();
        }
        write(&log, &mut inherited, &mut random, 20);
        compact(&log);
        log.checkpoint().unwrap();
        let again = open(&child, number, &options).unwrap();
        assert!(!again.liveness_lost);
        check_all(&again.log, &inherited);
    }
}

#[test]
fn a_log_with_a_sync_per_group() {
    live_through(Durability::Fsync);
}

#[test]
fn a_log_that_leaves_syncing_to_the_system() {
    live_through(Durability::Os);
}
