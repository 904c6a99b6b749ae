//! Files written by every released format are opened and read exactly, for ever.
//!
//! `old_formats/v<format>` holds two logs as that format wrote them, and as text what they say. They
//! are made by `examples/write_fixture.rs`.

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

/// The stored files on a disk of their own: opening may change them.
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
        // Offset tables and dead bits are read, not made again: without them the answers are the same.
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

/// Old files are not only read: they are compacted and closed by today's code and read again.
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
    let policy =
        CompactionPolicy { retain_from: Timestamp::from_millis(u64::MAX), dead_percent: 0 };
    let mut rounds = 0;
    while opened.log.compact(&policy).unwrap().is_some() {
        rounds += 1;
    }
    assert!(rounds > 0);
    opened.log.checkpoint().unwrap();
    let again = open(&disk, "child", fixture::CHILD).unwrap();
    assert_eq!(live(&again.log), before);
}

/// The guard against silent changes: today's code writes, byte for byte, what is stored. When this
/// fails on purpose, raise the format number and store a new directory beside the old ones.
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
