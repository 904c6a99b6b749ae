//! Size limits: a log rejects what it could not read again.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_log::disk::MemoryDisk;
use headwater_log::invariants::exactly_these;
use headwater_log::{
    AppendError, GroupBuilder, LogOptions, NewRecord, ReadRequest, RecordKind, Which, entry,
};
use headwater_model::{KeyRange, Lsn, PartitionId, Timestamp};
use std::path::Path;
use support::checks::{read_all, whole};
use support::history::History;

const DIR: &str = "log";

fn record(body: &[u8]) -> NewRecord<'_> {
    NewRecord { kind: RecordKind::Put, supersedes: None, epk: &[1], meta: b"", body }
}

/// Regression: a longer entry was acknowledged, and then treated as a torn write when the log was opened.
#[test]
fn an_entry_that_could_not_be_read_again_is_refused() {
    let disk = MemoryDisk::new();
    let log = support::create(&disk, Path::new(DIR), 1, &LogOptions::default()).log;
    let overhead = entry::HEADER_BYTES + entry::RECORD_HEADER_BYTES + 1;
    let fits = entry::ENTRY_BYTES_MAX - overhead;
    let mut written = 0;
    for (length, accepted) in [(fits, true), (fits + 1, false)] {
        let mut group = GroupBuilder::new(PartitionId::new(1), 0, log.local_tail());
        group.begin(Timestamp::from_seconds(1), 1);
        group.record(&record(&vec![7; length]));
        group.finish();
        match support::append(&log, &group.build()) {
            Ok(()) if accepted => written += 1,
            Err(AppendError::TooLarge { limit, .. }) if !accepted => {
                assert_eq!(limit, entry::ENTRY_BYTES_MAX);
            }
            answer => panic!("{length} bytes: {answer:?}"),
        }
    }
    let log = support::open(&disk, Path::new(DIR), 1, &LogOptions::default()).unwrap().log;
    assert_eq!(log.local_tail().lsn, Lsn::new(written));
}

/// A segment has a million dead bits; further records could never be marked dead.
#[test]
fn a_segment_takes_no_more_records_than_it_has_dead_bits_for() {
    let disk = MemoryDisk::new();
    let log = support::create(&disk, Path::new(DIR), 1, &LogOptions::default()).log;
    let group_of = |entries: usize| {
        let mut group = GroupBuilder::new(PartitionId::new(1), 0, log.local_tail());
        for _ in 0..entries {
            group.begin(Timestamp::from_seconds(1), 1);
            for _ in 0..u16::MAX {
                group.record(&record(b""));
            }
            group.finish();
        }
        group.build()
    };
    let answer = support::append(&log, &group_of(17));
    assert!(matches!(answer, Err(AppendError::TooLarge { .. })), "{answer:?}");
    for _ in 0..3 {
        support::append(&log, &group_of(6)).unwrap();
    }
    assert!(log.statistics().segments > 1, "the third group has a segment of its own");

    // The last record can be superseded like any other.
    let mut request = whole(Which::Live, usize::MAX);
    request.after = log.local_tail().lsn.previous();
    let last = read_all(&log, &request).unwrap().pop().unwrap();
    assert!(log.mark_dead(last.position, last.epk()).unwrap());
    let left = read_all(&log, &request).unwrap();
    assert_eq!(left.len(), usize::from(u16::MAX) - 1);
}

/// A read beyond the end returns what exists, and the position that it reached.
#[test]
fn a_reader_never_gets_ahead_of_the_writer() {
    for ring_bytes in [0, 1 << 20] {
        let disk = MemoryDisk::new();
        let options = LogOptions { ring_bytes, ..LogOptions::default() };
        let log = support::create(&disk, Path::new(DIR), 1, &options).log;
        let write = || {
            let mut group = GroupBuilder::new(PartitionId::new(1), 0, log.local_tail());
            group.begin(Timestamp::from_seconds(1), 1);
            group.record(&record(b"body"));
            group.finish();
            support::append(&log, &group.build()).unwrap();
        };
        write();
        let mut request = whole(Which::Live, 100);
        let page = log.read(&request).unwrap();
        assert_eq!((page.records.len(), page.scanned), (1, Lsn::new(1)));
        for ahead in [1, 2, 100, u64::MAX] {
            request.after = Lsn::new(ahead);
            let page = log.read(&request).unwrap();
            assert_eq!((page.records.len(), page.scanned), (0, Lsn::new(ahead)));
        }
        write();
        request.after = Lsn::new(1);
        assert_eq!(log.read(&request).unwrap().scanned, Lsn::new(2));
    }
}

/// Regression: while an entry was written but not visible, a caught-up reader found neither it nor the version it
/// supersedes.
#[test]
fn what_is_superseded_behind_a_readers_end_is_still_there_for_it() {
    use RecordKind::{Put, Tombstone};
    for ring_bytes in [0, 1 << 20] {
        let disk = MemoryDisk::new();
        let options = LogOptions { ring_bytes, ..LogOptions::default() };
        let log = support::create(&disk, Path::new(DIR), 1, &options).log;
        let mut history = History::new(PartitionId::new(1), KeyRange::full(), log.local_tail());
        for records in [
            [(Put, 1, 10), (Put, 2, 10)],
            [(Put, 1, 20), (Tombstone, 2, 0)],
            [(Put, 1, 5), (Put, 2, 5)],
        ] {
            let sent = history.group(Timestamp::from_seconds(1), &records);
            support::append(&log, &sent.group).unwrap();
            history.acknowledge(&sent, sent.group.tail());
        }
        for (upto, records_max) in (0..=7).flat_map(|upto| [1, 2, 100].map(|max| (upto, max))) {
            let upto = Lsn::new(upto);
            let request = ReadRequest { upto, ..whole(Which::Live, records_max) };
            let records = read_all(&log, &request).unwrap();
            let expected = history.live_at(upto);
            assert_eq!(exactly_these(&expected, &records), Ok(()), "up to {upto}");
        }
    }
}
