//! Torn writes: a crash in the middle of a write leaves any part of it.
//!
//! Recovery keeps acknowledged entries, cuts off the rest at an entry boundary, and the log can be written again.
//! A hole in durable entries is not a torn write, and is reported.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_log::disk::{Disk, DiskFile, MemoryDisk, read_file};
use headwater_log::{AppendError, Durability, LocalLog, LogOptions, OpenError, invariants};
use headwater_model::{KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::Random;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use support::checks::{check_all, restore_liveness};
use support::history::{History, Sent, Sizes};

const DIR: &str = "log";
const FILE: &str = "log/00000001.seg";
const SIZES: Sizes = Sizes { keys: 10, entries: 4, records: 3, body: 60 };

fn options() -> LogOptions {
    LogOptions { ring_bytes: 0, ..LogOptions::default() }
}

/// A log with some acknowledged groups, and one unacknowledged group of four entries.
struct Scene {
    /// Before the last group.
    disk: MemoryDisk,
    history: History,
    sent: Sent,
    /// The file offset of the last group.
    offset: usize,
}

fn scene(seed: u64) -> Scene {
    let disk = MemoryDisk::with_faults();
    let log = support::create(&disk, Path::new(DIR), 1, &options()).log;
    let mut history = History::new(PartitionId::new(1), KeyRange::full(), log.local_tail());
    let mut random = Random::seeded(seed);
    for _ in 0..6 {
        send(&log, &mut history, &mut random).unwrap();
    }
    let sent = loop {
        let sent = history.random_group(&mut random, Timestamp::from_seconds(50), SIZES);
        if sent.entries.len() == 4 {
            break sent;
        }
    };
    let offset = usize::try_from(file(&disk).length().unwrap()).unwrap();
    Scene { disk, history, sent, offset }
}

fn send(
    log: &Arc<LocalLog>,
    history: &mut History,
    random: &mut Random,
) -> Result<Sent, AppendError> {
    let sent = history.random_group(random, Timestamp::from_seconds(40), SIZES);
    support::append(log, &sent.group)?;
    history.acknowledge(&sent, sent.group.tail());
    Ok(sent)
}

fn file(disk: &MemoryDisk) -> Arc<dyn DiskFile> {
    disk.open(Path::new(FILE), false).unwrap()
}

fn open(disk: &MemoryDisk) -> Arc<LocalLog> {
    let opened = support::open(disk, Path::new(DIR), 1, &options()).unwrap();
    restore_liveness(&opened);
    opened.log
}

impl Scene {
    fn group(&self) -> &[u8] {
        self.sent.group.bytes()
    }

    /// Checks the recovery of a partly written group: it keeps the entries before the first damaged one.
    ///
    /// Then writes shorter and longer groups, and reopens the log.
    fn check(&self, what: &str, left: &[u8]) {
        let disk = self.disk.fork();
        file(&disk).write_at(left, self.offset as u64).unwrap();
        let is_whole =
            |bytes: &Range<usize>| left.get(bytes.clone()) == self.group().get(bytes.clone());
        let entries = self.sent.group.entries().iter();
        let whole = entries.take_while(|entry| is_whole(&entry.bytes)).count();

        let log = open(&disk);
        let found = log.local_tail();
        let expected = self.history.tail.lsn.get() + whole as u64;
        assert_eq!(found.lsn, Lsn::new(expected), "{what}");
        let (acknowledged, sent) = (self.history.tail.lsn, self.sent.group.tail().lsn);
        assert_eq!(
            invariants::tail_survives_crash(acknowledged, sent, found.lsn),
            Ok(()),
            "{what}"
        );
        let mut history = self.history.clone();
        history.acknowledge(&self.sent, found);
        check_all(&log, &history);
        for entry in &self.sent.entries[..whole] {
            let positions: Vec<_> = entry.facts.iter().map(|fact| fact.position).collect();
            let read = log.read(&headwater_log::ReadRequest {
                after: entry.lsn.previous(),
                upto: entry.lsn,
                ..support::checks::whole(headwater_log::Which::Everything, 1)
            });
            let kept = invariants::entry_is_whole(&positions, &read.unwrap().records);
            assert_eq!(kept, Ok(()), "{what}");
        }

        // No part of the torn write reappears after new groups overwrite it.
        let mut random = Random::seeded(left.len() as u64);
        let mut log = log;
        for _ in 0..2 {
            send(&log, &mut history, &mut random).unwrap();
            let opened = support::open(&disk, Path::new(DIR), 1, &options()).unwrap();
            assert_eq!(opened.torn_bytes, 0, "{what}");
            assert_eq!(opened.log.local_tail(), history.tail, "{what}");
            log = opened.log;
        }
        check_all(&log, &history);
    }
}

#[test]
fn a_group_torn_at_any_byte_is_cut_off() {
    let scene = scene(1);
    let group = scene.group();
    for length in 0..=group.len() {
        scene.check(&format!("{length} bytes"), &group[..length]);
        // In a preallocated file, zeros follow.
        if length % 7 == 0 {
            let mut zeros = group[..length].to_vec();
            zeros.resize(group.len() + 100, 0);
            scene.check(&format!("{length} bytes, then zeros"), &zeros);
        }
    }
}

#[test]
fn pages_of_a_group_that_arrive_in_any_order_are_cut_off() {
    let scene = scene(2);
    let group = scene.group();
    let page = group.len().div_ceil(8);
    for present in 0..1_u32 << 8 {
        let mut left = vec![0; group.len()];
        for number in (0..8).filter(|number| present & (1 << number) != 0) {
            let from = (number * page).min(group.len());
            let to = (from + page).min(group.len());
            left[from..to].copy_from_slice(&group[from..to]);
        }
        scene.check(&format!("pages {present:#010b}"), &left);
    }
}

#[test]
fn garbage_where_a_group_was_written_is_cut_off() {
    let scene = scene(3);
    let mut random = Random::seeded(3);
    for round in 0..300 {
        let mut left = scene.group().to_vec();
        let from = random.index(left.len());
        let to = from + random.index(left.len() - from);
        left[from..to].fill_with(|| (random.number() & 0xFF) as u8);
        scene.check(&format!("round {round}: {from}..{to}"), &left);
    }
}

#[test]
fn a_hole_in_what_had_been_durable_is_reported() {
    let scene = scene(4);
    let bytes = read_file(&scene.disk, Path::new(FILE), 1 << 20).unwrap();
    let mut at = 64;
    let mut entries = Vec::new();
    while at < bytes.len() {
        let header = headwater_log::entry::decode_header(&bytes[at..]).unwrap();
        entries.push((header.lsn, header.durable, at..at + header.length as usize));
        at += header.length as usize;
    }
    let last_durable = entries.last().unwrap().1;
    let mut holes = 0;
    for (lsn, _, range) in entries.iter().filter(|(lsn, _, _)| *lsn <= last_durable) {
        // The whole entry, its magic number, one byte in its middle.
        let middle = (range.start + range.end) / 2;
        for hole in [range.clone(), range.start..range.start + 4, middle..middle + 1] {
            let disk = scene.disk.fork();
            let mut zeroed = bytes[hole.clone()].to_vec();
            zeroed.iter_mut().for_each(|byte| *byte = !*byte);
            file(&disk).write_at(&zeroed, hole.start as u64).unwrap();
            match support::open(&disk, Path::new(DIR), 1, &options()) {
                Err(OpenError::Damaged(damage)) => {
                    assert_eq!(Path::new(&damage.file), Path::new(FILE));
                    assert_eq!((damage.offset, damage.lsn), (range.start as u64, Some(*lsn)));
                }
                other => panic!("LSN {lsn}, {hole:?}: {other:?}"),
            }
            let untouched = read_file(&disk, Path::new(FILE), 1 << 20).unwrap();
            assert_eq!(untouched.len(), bytes.len(), "damage must not be cut off");
            holes += 1;
        }
    }
    assert!(holes > 15, "{holes} holes");
}

/// After a failed sync the page cache marks the pages clean: they can be read, but no later sync writes them. A
/// reopened log must write them again before it shows them.
#[test]
fn what_a_failed_sync_left_readable_is_made_durable_before_it_is_shown() {
    for seed in 0..100 {
        let Scene { disk, mut history, sent, .. } = scene(seed);
        let log = open(&disk);
        disk.fail_syncs(true);
        let answer = support::append(&log, &sent.group);
        assert!(matches!(answer, Err(AppendError::Poisoned)), "{answer:?}");
        assert_eq!(log.local_tail(), history.tail, "an entry that is not durable is visible");
        disk.fail_syncs(false);

        let log = open(&disk);
        history.acknowledge(&sent, log.local_tail());
        let mut random = Random::seeded(seed);
        if seed % 2 == 0 {
            send(&log, &mut history, &mut random).unwrap();
        }
        disk.crash(&mut random);
        check_all(&open(&disk), &history);
    }
}

/// The process is killed between a write and its sync: the bytes are readable, but not durable.
#[test]
fn what_a_killed_process_left_in_the_cache_is_made_durable_before_it_is_shown() {
    for seed in 0..100 {
        let Scene { disk, mut history, sent, offset } = scene(seed);
        file(&disk).write_at(sent.group.bytes(), offset as u64).unwrap();
        let log = open(&disk);
        history.acknowledge(&sent, log.local_tail());
        assert_eq!(history.tail.lsn, sent.group.tail().lsn);
        disk.crash(&mut Random::seeded(seed));
        check_all(&open(&disk), &history);
    }
}

/// A group that failed with `DiskFull` must not reappear after a crash.
#[test]
fn a_group_refused_by_a_full_disk_does_not_come_back() {
    for seed in 0..300 {
        let Scene { disk, history, sent, .. } = scene(seed);
        let log = open(&disk);
        let mut random = Random::seeded(seed);
        disk.set_room(1 + random.below(sent.group.bytes().len() as u64 - 1));
        let answer = support::append(&log, &sent.group);
        assert!(matches!(answer, Err(AppendError::DiskFull)), "{answer:?}");
        check_all(&log, &history);
        disk.crash(&mut random);
        check_all(&open(&disk), &history);
    }
}

/// With a sync per group, only the last write can be torn. Without, any write may be missing, and the log is cut
/// back to the last entry before the first hole.
#[test]
fn a_log_without_syncs_goes_back_to_its_first_hole() {
    let relaxed = LogOptions { durability: Durability::Os, ..options() };
    let mut kept = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let disk = MemoryDisk::with_faults();
        let log = support::create(&disk, Path::new(DIR), 1, &relaxed).log;
        let mut history = History::new(PartitionId::new(1), KeyRange::full(), log.local_tail());
        let mut random = Random::seeded(seed);
        for _ in 0..3 {
            send(&log, &mut history, &mut random).unwrap();
        }
        log.checkpoint().unwrap();
        let synced = history.tail.lsn;
        for _ in 0..6 {
            send(&log, &mut history, &mut random).unwrap();
        }
        disk.crash(&mut random);
        let opened = support::open(&disk, Path::new(DIR), 1, &relaxed).unwrap();
        let found = opened.log.local_tail();
        let promise = invariants::tail_survives_crash(synced, history.tail.lsn, found.lsn);
        assert_eq!(promise, Ok(()), "seed {seed}");
        kept.insert(found.lsn.get() - synced.get());
        if found != history.tail {
            history.cut_back(found);
        }
        check_all(&opened.log, &history);
        send(&opened.log, &mut history, &mut random).unwrap();
        let opened = support::open(&disk, Path::new(DIR), 1, &relaxed).unwrap();
        check_all(&opened.log, &history);
    }
    assert!(kept.len() > 5, "crashes differ: {kept:?}");
}
