//! A small pair of logs that uses every part of the format, deterministic to the byte.
//!
//! ```text
//! parent   compacted segment, raw segments, control record, tombstones; sealed by a split
//! child    the lower half of the parent, shared files and one of its own, closed cleanly
//! ```

use headwater_log::disk::{Disk, MemoryDisk, read_file};
use headwater_log::{
    Ancestor, CompactionPolicy, GroupBuilder, LocalLog, LogOptions, NewRecord, PartitionLog,
    Position, ReadRequest, RecordKind, Which,
};
use headwater_model::{Epk, KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::{Runtime, Simulation};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const PARENT: PartitionId = PartitionId::new(7);
pub(crate) const CHILD: PartitionId = PartitionId::new(8);

pub(crate) fn options() -> LogOptions {
    LogOptions { segment_bytes: 700, ring_bytes: 0, ..LogOptions::default() }
}

pub(crate) fn runtime() -> Runtime {
    Simulation::new(0).node().runtime()
}

fn child_range() -> KeyRange {
    KeyRange::new(Epk::min(), Epk::from_bytes(&[0x80])).expect("min is below max")
}

/// Writes both logs to a new disk, into `parent` and `child`.
pub(crate) fn write() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let dir = Path::new("parent");
    let parent = LocalLog::create(shared.clone(), dir, PARENT, options(), runtime())
        .expect("memory takes everything")
        .log;
    let mut writer = Writer { log: parent.clone(), time: 1_700_000_000_000 };
    let apple = writer.put(0x10, "apple", None);
    let pear = writer.put(0x90, "pear", None);
    let apple = writer.put(0x10, "apple, riper", Some(apple));
    writer.both(0x11, "plum", 0x91, "cherry");
    writer.write(&[(RecordKind::Control, None, &[], "a fact about the partition")]);
    let pear = writer.put(0x90, "pear, riper", Some(pear));
    writer.write(&[(RecordKind::Tombstone, Some(pear), &[0x90], "")]);
    let apple = writer.put(0x10, "apple, ripest", Some(apple));
    let policy = CompactionPolicy {
        retain_from: Timestamp::from_millis(1_700_000_004_000),
        history_bytes_max: u64::MAX,
        dead_percent: 10,
    };
    while parent.compact(&policy).expect("nothing is damaged").is_some() {}
    writer.put(0x92, "quince", None);
    let start = parent.seal().expect("memory takes everything");

    let from = [Ancestor { log: parent, range: child_range() }];
    let dir = Path::new("child");
    let child = LocalLog::inherit(shared, dir, CHILD, &from, start, options(), runtime())
        .expect("memory takes everything")
        .log;
    let mut writer = Writer { log: child.clone(), time: 1_700_000_100_000 };
    writer.put(0x10, "apple, in the child", Some(apple));
    writer.both(0x12, "grape", 0x13, "melon");
    child.checkpoint().expect("memory takes everything");
    disk
}

struct Writer {
    log: Arc<LocalLog>,
    time: u64,
}

type NewFact<'a> = (RecordKind, Option<Position>, &'a [u8], &'a str);

impl Writer {
    /// Appends one entry in a separate group.
    fn write(&mut self, records: &[NewFact<'_>]) -> Position {
        self.time += 700;
        let mut group = GroupBuilder::new(self.log.partition(), 0, self.log.local_tail());
        group.begin(Timestamp::from_millis(self.time), u128::from(self.time) << 32);
        let mut first = None;
        for (kind, supersedes, epk, body) in records {
            let position = group.record(&NewRecord {
                kind: *kind,
                supersedes: *supersedes,
                epk,
                meta: &body.as_bytes()[..body.len().min(4)],
                body: body.as_bytes(),
            });
            first.get_or_insert(position);
        }
        group.finish();
        let appended = Simulation::new(0).run(self.log.append(group.build()));
        appended.expect("memory takes everything");
        first.expect("an entry has records")
    }

    fn put(&mut self, epk: u8, body: &str, supersedes: Option<Position>) -> Position {
        self.write(&[(RecordKind::Put, supersedes, &[epk], body)])
    }

    fn both(&mut self, one: u8, one_body: &str, other: u8, other_body: &str) {
        self.write(&[
            (RecordKind::Put, None, &[one], one_body),
            (RecordKind::Put, None, &[other], other_body),
        ]);
    }
}

/// The files of both logs, by path.
pub(crate) fn files(disk: &MemoryDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = disk.files().into_iter().map(|(path, _)| path);
    let read = |path: PathBuf| {
        let bytes = read_file(disk, &path, 1 << 20).expect("the file is listed");
        (path, bytes)
    };
    paths.map(read).collect()
}

/// Dumps everything that can be read from a log, one line per record.
pub(crate) fn tell(log: &LocalLog) -> String {
    let mut out = String::new();
    let tail = log.local_tail();
    let lines = [
        format!("partition {} epoch {} start {}", log.partition(), log.epoch(), log.start()),
        format!("tail {} hash {:016x} {}", tail.lsn, tail.hash, tail.timestamp),
        format!("sealed {} complete after {}", log.is_sealed(), log.complete_after()),
    ];
    out.push_str(&(lines.join("\n") + "\n"));
    for which in [Which::Live, Which::AllVersions, Which::Everything] {
        let after = match which {
            Which::AllVersions => log.complete_after(),
            _ => Lsn::ZERO,
        };
        let page = log.read(&ReadRequest {
            after,
            upto: tail.lsn,
            which,
            range: None,
            records_max: 1000,
            bytes_max: 1 << 20,
        });
        let page = page.expect("nothing is damaged");
        writeln!(out, "{which:?} after {after}, {} records", page.records.len()).expect("text");
        for record in page.records {
            let at = |position: Position| {
                format!("{}/{}.{}", position.origin, position.lsn, position.ordinal)
            };
            writeln!(
                out,
                "  {} {:?} supersedes {} at {} epk {:02x?} meta {:?} body {:?}",
                at(record.position),
                record.kind,
                record.supersedes.map_or("nothing".to_owned(), at),
                record.timestamp,
                record.epk(),
                String::from_utf8_lossy(record.meta()),
                String::from_utf8_lossy(record.body()),
            )
            .expect("text");
        }
    }
    out
}
