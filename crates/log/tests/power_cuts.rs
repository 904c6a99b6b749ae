//! A power cut at every single disk operation of a log: before the first write, between a rename and its sync,
//! and during recovery from an earlier cut.
//!
//! Exhaustive for these operations; `model.rs` tests random combinations.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_log::disk::{Disk, MemoryDisk};
use headwater_log::{Ancestor, CompactionPolicy, LocalLog, LogOptions, Tail, invariants};
use headwater_model::{Epk, KeyRange, PartitionId, Timestamp};
use headwater_runtime::Random;
use std::path::Path;
use std::sync::Arc;
use support::checks::{check_all, restore_liveness};
use support::history::{History, Sent, Sizes};

const DIR: &str = "parent";
const CHILD: &str = "child";
const SIZES: Sizes = Sizes { keys: 6, entries: 3, records: 2, body: 60 };
/// Crashes tested per step; they differ in which unsynced changes survive.
const CRASHES: u64 = 2;

fn options() -> LogOptions {
    LogOptions { segment_bytes: 1 << 10, ring_bytes: 0, ..LogOptions::default() }
}

fn now(history: &History) -> Timestamp {
    Timestamp::from_seconds(1_000 + history.tail.lsn.get())
}

/// The state after an interrupted run: the acknowledged history and a group with an unknown outcome.
struct Left {
    history: History,
    undecided: Option<Sent>,
}

/// A log of a few sealed segments, with something to compact.
fn base() -> (MemoryDisk, History) {
    let disk = MemoryDisk::with_faults();
    let log = support::create(&disk, Path::new(DIR), 1, &options()).log;
    let mut history = History::new(PartitionId::new(1), KeyRange::full(), log.local_tail());
    let mut random = Random::seeded(5);
    for _ in 0..20 {
        let sent = history.random_group(&mut random, now(&history), SIZES);
        support::append(&log, &sent.group).unwrap();
        history.acknowledge(&sent, sent.group.tail());
    }
    assert!(log.statistics().segments > 3 && log.statistics().dead_bytes > 500);
    (disk, history)
}

fn open(disk: &MemoryDisk) -> Arc<LocalLog> {
    let opened = support::open(disk, Path::new(DIR), 1, &options()).unwrap();
    restore_liveness(&opened);
    opened.log
}

/// Compacts everything; false if an error stopped it.
fn compact(log: &LocalLog) -> bool {
    let retain_from = Timestamp::from_seconds(u64::MAX / 1000);
    let policy = CompactionPolicy { retain_from, history_bytes_max: u64::MAX, dead_percent: 0 };
    loop {
        match log.compact(&policy) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Opens the log after a crash, resolves the undecided group, and checks everything.
fn recover(disk: &MemoryDisk, mut left: Left) -> (Arc<LocalLog>, History) {
    let log = open(disk);
    let found = log.local_tail();
    let acknowledged = left.history.tail.lsn;
    let sent = left.undecided.as_ref().map_or(acknowledged, |sent| sent.group.tail().lsn);
    assert_eq!(invariants::tail_survives_crash(acknowledged, sent, found.lsn), Ok(()));
    if let Some(sent) = left.undecided.filter(|_| found.lsn > acknowledged) {
        left.history.acknowledge(&sent, found);
    }
    check_all(&log, &left.history);
    (log, left.history)
}

/// Runs `act` with a power cut after each number of steps until it completes, and checks each result.
fn at_every_step(act: impl Fn(&MemoryDisk, History) -> Left, check: impl Fn(&MemoryDisk, Left)) {
    let (disk, history) = base();
    for steps in 0.. {
        for seed in 0..CRASHES {
            let disk = disk.fork();
            disk.cut_power_after(steps);
            let left = act(&disk, history.clone());
            if !disk.is_out_of_power() {
                assert!(steps > 4, "nothing was done in {steps} steps");
                disk.cut_power_after(u64::MAX);
                check(&disk, left);
                return;
            }
            disk.crash(&mut Random::seeded(steps * CRASHES + seed));
            check(&disk, left);
        }
    }
}

/// Appends 16 groups, or until the power cut.
fn append_on(log: &Arc<LocalLog>, mut history: History) -> Left {
    let mut random = Random::seeded(6);
    for _ in 0..16 {
        let sent = history.random_group(&mut random, now(&history), SIZES);
        if support::append(log, &sent.group).is_err() {
            return Left { history, undecided: Some(sent) };
        }
        history.acknowledge(&sent, sent.group.tail());
    }
    Left { history, undecided: None }
}

/// Checks that a log works normally after recovery.
fn go_on(disk: &MemoryDisk, log: &Arc<LocalLog>, history: History) {
    let left = append_on(log, history);
    assert!(left.undecided.is_none());
    assert!(compact(log));
    check_all(log, &left.history);
    check_all(&open(disk), &left.history);
}

#[test]
fn while_appending_and_starting_new_segments() {
    at_every_step(
        |disk, history| match support::open(disk, Path::new(DIR), 1, &options()) {
            Ok(opened) => append_on(&opened.log, history),
            Err(_) => Left { history, undecided: None },
        },
        |disk, left| {
            let (log, history) = recover(disk, left);
            go_on(disk, &log, history);
        },
    );
}

#[test]
fn while_compacting() {
    at_every_step(
        |disk, history| {
            if let Ok(opened) = support::open(disk, Path::new(DIR), 1, &options()) {
                compact(&opened.log);
            }
            Left { history, undecided: None }
        },
        |disk, left| {
            let (log, history) = recover(disk, left);
            go_on(disk, &log, history);
        },
    );
}

/// Records superseded during or after an interrupted compaction must stay dead.
#[test]
fn while_compacting_and_writing_in_turns() {
    at_every_step(
        |disk, mut history| {
            let Ok(opened) = support::open(disk, Path::new(DIR), 1, &options()) else {
                return Left { history, undecided: None };
            };
            for _ in 0..2 {
                compact(&opened.log);
                let left = append_on(&opened.log, history);
                if left.undecided.is_some() {
                    return left;
                }
                history = left.history;
            }
            Left { history, undecided: None }
        },
        |disk, left| {
            let (log, history) = recover(disk, left);
            assert!(compact(&log));
            check_all(&log, &history);
        },
    );
}

#[test]
fn while_writing_a_checkpoint() {
    at_every_step(
        |disk, history| {
            if let Ok(opened) = support::open(disk, Path::new(DIR), 1, &options()) {
                drop(opened.log.checkpoint());
            }
            Left { history, undecided: None }
        },
        |disk, left| {
            let (log, history) = recover(disk, left);
            go_on(disk, &log, history);
        },
    );
}

#[test]
fn while_sealing() {
    at_every_step(
        |disk, history| {
            if let Ok(opened) = support::open(disk, Path::new(DIR), 1, &options()) {
                drop(opened.log.seal());
            }
            Left { history, undecided: None }
        },
        |disk, left| {
            let (log, history) = recover(disk, left);
            assert_eq!(log.seal().unwrap(), history.tail.lsn);
            let log = open(disk);
            assert!(log.is_sealed());
            check_all(&log, &history);
        },
    );
}

fn inherit(disk: &MemoryDisk, parent: &Arc<LocalLog>) -> Option<Arc<LocalLog>> {
    let range = child_range();
    let start = parent.local_tail().lsn;
    let from = [Ancestor { log: parent.clone(), range }];
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (dir, id) = (Path::new(CHILD), PartitionId::new(2));
    let made = LocalLog::inherit(shared, dir, id, &from, start, options(), support::runtime());
    made.ok().map(|opened| {
        assert!(!opened.liveness_lost);
        opened.log
    })
}

fn child_range() -> KeyRange {
    KeyRange::new(Epk::min(), Epk::from_bytes(&[0x40])).unwrap()
}

#[test]
fn while_inheriting() {
    at_every_step(
        |disk, history| {
            let opened = support::open(disk, Path::new(DIR), 1, &options());
            if let Ok(opened) = opened
                && opened.log.seal().is_ok()
            {
                inherit(disk, &opened.log);
            }
            Left { history, undecided: None }
        },
        |disk, left| {
            let (parent, history) = recover(disk, left);
            parent.seal().unwrap();
            let child = inherit(disk, &parent).unwrap();
            let tail = Tail { timestamp: history.tail.timestamp, ..Tail::start(history.tail.lsn) };
            let id = PartitionId::new(2);
            let inherited = History::inherited(id, child_range(), tail, &[&history]);
            check_all(&child, &inherited);
            check_all(&parent, &history);

            // The child works without its parent's directory.
            disk.remove_dir(Path::new(DIR)).unwrap();
            let left = append_on(&child, inherited);
            assert!(compact(&child));
            check_all(&child, &left.history);
            let again = support::open(disk, Path::new(CHILD), 2, &options()).unwrap();
            assert!(!again.liveness_lost);
            check_all(&again.log, &left.history);
        },
    );
}

/// Power cuts during recovery, which has to cut off a torn group.
#[test]
fn while_recovering() {
    at_every_step(
        |disk, history| {
            // A group that was written completely but not synced, and half of another.
            let torn = history.random_group(&mut Random::seeded(9), now(&history), SIZES);
            let (active, length) = disk
                .files()
                .into_iter()
                .rfind(|(path, _)| path.extension().is_some_and(|name| name == "seg"))
                .unwrap();
            let mut bytes = torn.group.bytes().to_vec();
            bytes.extend_from_slice(&torn.group.bytes()[..100]);
            let file = disk.open(&active, false).unwrap();
            drop(file.write_at(&bytes, length as u64));
            drop(support::open(disk, Path::new(DIR), 1, &options()));
            Left { history, undecided: Some(torn) }
        },
        |disk, left| {
            let (log, history) = recover(disk, left);
            go_on(disk, &log, history);
        },
    );
}
