//! Backward compatibility: the files of every released format can be opened and read exactly.
//!
//! `old_formats/v<format>` holds two logs in that format and their content as text, written by
//! `examples/write_fixture.rs`.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

#[path = "support/fixture.rs"]
mod fixture;

use headwater_log::disk::{Disk, MemoryDisk};
use headwater_log::{CompactionPolicy, LocalLog, OpenError, Opened};
use headwater_model::{PartitionId, Timestamp};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LOGS: [(&str, PartitionId); 2] = [("parent", fixture::PARENT), ("child", fixture::CHILD)];

fn stored(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old_formats").join(format)
}

/// Copies the stored files to a disk in memory, since opening may change them.
fn load(format: &str) -> MemoryDisk {
    let disk = MemoryDisk::new();
    for (name, _) in LOGS {
        for entry in fs::read_dir(stored(format).join(name)).unwrap() {
            let entry = entry.unwrap();
            let copy = disk.open(&Path::new(name).join(entry.file_name()), true).unwrap();
            copy.write_at(&fs::read(entry.path()).unwrap(), 0).unwrap();
        }
    }
    disk
}

fn open(disk: &MemoryDisk, name: &str, partition: PartitionId) -> Result<Opened, OpenError> {
    let shared = Arc::new(disk.clone());
    LocalLog::open(shared, Path::new(name), partition, fixture::options(), fixture::runtime())
}

fn check_format(format: &str) {
    let disk = load(format);
    for (name, partition) in LOGS {
        let told = fs::read_to_string(stored(format).join(name).with_extension("txt")).unwrap();
        let opened = open(&disk, name, partition).unwrap();
        assert!(!opened.liveness_lost, "{format}: the dead bits of {name} are not understood");
        assert_eq!(opened.torn_bytes, 0, "{format}: entries of {name} are not understood");
        assert_eq!(fixture::tell(&opened.log), told, "{format}: {name} says something else");
        let stored = stored(format).join(name);
        for (path, bytes) in fixture::files(&disk) {
            let Ok(file) = path.strip_prefix(name) else { continue };
            let before = fs::read(stored.join(file)).unwrap();
            assert!(bytes == before, "{format}: reading changed {}", path.display());
        }
        // Offset tables and dead bits are read, not rebuilt; without them the answers are the same.
        for (path, _) in fixture::files(&disk) {
            if path.starts_with(name) && path.extension().is_some_and(|kind| kind == "tab") {
                disk.remove(&path).unwrap();
            }
        }
        assert_eq!(fixture::tell(&open(&disk, name, partition).unwrap().log), told);
    }
}

#[test]
fn version_1_is_read_exactly() {
    check_format("v1");
}

/// Old files can also be compacted and closed by the current code, and read again.
#[test]
fn version_1_can_be_worked_with() {
    let disk = load("v1");
    let opened = open(&disk, "child", fixture::CHILD).unwrap();
    let live = |log: &LocalLog| {
        let told = fixture::tell(log);
        let live = told.lines().skip_while(|line| !line.starts_with("Live"));
        live.take_while(|line| !line.starts_with("AllVersions")).map(str::to_owned).collect()
    };
    let before: Vec<String> = live(&opened.log);
    assert!(before.len() > 3, "{before:?}");
    let policy = CompactionPolicy {
        retain_from: Timestamp::from_millis(u64::MAX),
        history_bytes_max: u64::MAX,
        dead_percent: 0,
    };
    let mut rounds = 0;
    while opened.log.compact(&policy).unwrap().is_some() {
        rounds += 1;
    }
    assert!(rounds > 0);
    opened.log.checkpoint().unwrap();
    let again = open(&disk, "child", fixture::CHILD).unwrap();
    assert_eq!(live(&again.log), before);
}

/// Checks the offsets in `FORMAT.md` with code that shares nothing with the crate's decoders.
#[test]
fn the_drawing_of_version_1_is_true() {
    let file = |name: &str| fs::read(stored("v1").join(name)).unwrap();
    let number = |bytes: &[u8], at: usize, count: usize| {
        let field = &bytes[at..at + count];
        field.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let ends_with_crc = |bytes: &[u8]| {
        let content = bytes.len() - 4;
        assert_eq!(number(bytes, content, 4), u64::from(crc32c::crc32c(&bytes[..content])));
    };

    let manifest = file("child/MANIFEST");
    assert_eq!(&manifest[..8], b"HWMAN\0\0\x01");
    let fields = [(8, 4), (12, 4), (16, 4), (20, 4), (24, 8), (32, 8), (40, 8), (48, 8), (56, 8)];
    let values = fields.map(|(at, count)| number(&manifest, at, count));
    assert_eq!(values, [1, 8, 0, 0, 9, 11, 3, 1_700_000_101_400, 4]);
    assert_eq!(number(&manifest, 64, 8), 3, "segments");
    // The first segment: inherited, compacted by the parent, sealed, with a filter.
    let (first, flags) = (72, number(&manifest, 72 + 36, 1));
    assert_eq!(flags, 1 | 2 | 4 | 8);
    let fields = [(0, 8), (8, 4), (12, 8), (28, 8), (37, 2), (39, 2), (41, 1)];
    let values = fields.map(|(at, count)| number(&manifest, first + at, count));
    assert_eq!(values, [1, 7, 1, 9, 0, 1, 0x80]);
    let sealed = first + 42;
    let fields = [(0, 8), (8, 4), (12, 4), (16, 4), (28, 8)];
    let values = fields.map(|(at, count)| number(&manifest, sealed + at, count));
    assert_eq!(values, [4, 220, 2, 0, 1_700_000_002_800]);
    // The last segment: the child's own, active, so it has neither filter nor end.
    let last = manifest.len() - 4 - 37;
    let fields = [(0, 8), (8, 4), (12, 8), (20, 8), (36, 1)];
    let values = fields.map(|(at, count)| number(&manifest, last + at, count));
    assert_eq!(values, [3, 8, 10, 0, 0]);
    ends_with_crc(&manifest);

    let liveness = file("child/LIVENESS");
    assert_eq!(&liveness[..8], b"HWLIV\0\0\x01");
    assert_eq!((number(&liveness, 8, 4), number(&liveness, 12, 8)), (8, 11));
    // The parent's raw segment: control, pear, its tombstone, apple; pear and apple are dead.
    let raw = 20 + 24;
    let fields = [(0, 8), (16, 8), (24, 8)];
    let values = fields.map(|(at, count)| number(&liveness, raw + at, count));
    assert_eq!(values, [2, 1, 0b1010]);
    ends_with_crc(&liveness);

    let table = file("child/00000002.tab");
    assert_eq!(&table[..8], b"HWTAB\0\0\x01");
    let fields = [(8, 8), (16, 4), (20, 8), (28, 8)];
    let values = fields.map(|(at, count)| number(&table, at, count));
    let segment = file("child/00000002.seg");
    assert_eq!(values, [5, segment.len() as u64, 5, 4]);
    let fields = [(0, 4), (4, 4), (8, 2), (10, 2)];
    let second_row = fields.map(|(at, count)| number(&table, 36 + 12 + at, count));
    let second_mark = 36 + 5 * 12 + 16;
    assert_eq!(
        (number(&table, second_mark, 8), number(&table, second_mark + 8, 8)),
        (1_700_000_004, 6)
    );
    ends_with_crc(&table);

    assert_eq!(&segment[..8], b"HWSEG\0\0\x01");
    assert_eq!((number(&segment, 8, 4), number(&segment, 12, 8)), (7, 5));
    ends_with_crc(&segment[..64]);
    let first_length = usize::try_from(number(&segment, 64 + 8, 4)).unwrap();
    let entry = &segment[64 + first_length..];
    assert_eq!(second_row, [1, 64 + first_length as u64, 0, 1]);
    assert_eq!(&entry[..4], b"HWE1");
    let fields = [(4, 1), (5, 1), (6, 2), (16, 4), (20, 4), (24, 8), (32, 8), (40, 8)];
    let values = fields.map(|(at, count)| number(entry, at, count));
    assert_eq!(values, [1, 0, 1, 7, 0, 6, 5, 1_700_000_004_200]);
    let length = usize::try_from(number(entry, 8, 4)).unwrap();
    let around = crc32c::crc32c_append(crc32c::crc32c(&entry[..12]), &entry[16..length]);
    assert_eq!(number(entry, 12, 4), u64::from(around));
    let batch = u128::from_le_bytes(entry[48..64].try_into().unwrap());
    assert_eq!(batch, 1_700_000_004_200 << 32);
    let before = &segment[64..64 + first_length];
    assert_eq!(number(entry, 64, 8), xxhash_rust::xxh3::xxh3_64(before));
    let record = &entry[80..length];
    let fields = [(0, 1), (1, 1), (2, 2), (4, 2), (6, 2), (8, 4), (12, 8), (20, 4), (24, 4)];
    let values = fields.map(|(at, count)| number(record, at, count));
    assert_eq!(values, [1, 1, 1, 0, 0, 7, 2, 4, 11]);
    assert_eq!(&record[28..], b"\x90pearpear, riper");
}

/// Guards against silent changes of the format: the current code writes the stored files byte for byte.
///
/// For an intended change, raise the format number and store a new directory next to the old ones.
#[test]
fn todays_code_writes_version_1() {
    let written = fixture::files(&fixture::write());
    assert!(written.len() > 8);
    let total: usize = written.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(total < 16 << 10, "{total} bytes are too many to store");
    let mut stored_files = 0;
    for (name, _) in LOGS {
        stored_files += fs::read_dir(stored("v1").join(name)).unwrap().count();
    }
    assert_eq!(written.len(), stored_files);
    for (path, bytes) in written {
        let before = fs::read(stored("v1").join(&path)).unwrap();
        assert!(bytes == before, "{} is written in another way", path.display());
    }
}
