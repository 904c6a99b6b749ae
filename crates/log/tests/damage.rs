//! Damage is reported, never skipped: a log with damaged files either reports the location, or returns correct
//! results because the damaged data could be rebuilt.
//!
//! ```text
//! source    MANIFEST, .seg          reported: file, offset, LSN
//! derived   .tab, LIVENESS          rebuilt, same answers
//! neither   bytes after the end     ignored, same answers
//! ```

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_log::disk::{Disk, MemoryDisk};
use headwater_log::{
    Ancestor, CompactionPolicy, Damage, LocalLog, LogOptions, OpenError, Position, ReadError,
    RecordKind, Tail, Which, entry,
};
use headwater_model::{Epk, KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::Random;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::checks::{self, whole};
use support::history::{History, Sizes};

/// Zeros after the last entry, as preallocation leaves them on a real disk.
const PREALLOCATED: usize = 200;
const SEGMENT_HEADER_BYTES: usize = 64;

/// A closed log with its expected answers and its active file.
struct Specimen {
    disk: MemoryDisk,
    dir: PathBuf,
    partition: u32,
    options: LogOptions,
    answers: Answers,
    active: PathBuf,
    /// End of the last entry of the active segment.
    active_end: usize,
}

/// Everything that can be read from a log.
#[derive(Clone, Debug, PartialEq)]
struct Answers {
    tail: Tail,
    complete_after: Lsn,
    live: Vec<Answer>,
    all_versions: Vec<Answer>,
    everything: Vec<Answer>,
}

#[derive(Clone, Debug, PartialEq)]
struct Answer {
    position: Position,
    kind: RecordKind,
    timestamp: Timestamp,
    supersedes: Option<Position>,
    content: [Vec<u8>; 3],
}

enum Outcome {
    Reported(Damage),
    Answered(Box<Answers>),
    /// The manifest is missing.
    Missing,
}

/// Opens the log and reads it in every way.
fn consult(disk: &MemoryDisk, specimen: &Specimen) -> Outcome {
    let opened = match support::open(disk, &specimen.dir, specimen.partition, &specimen.options) {
        Ok(opened) => opened,
        Err(OpenError::Damaged(damage)) => return Outcome::Reported(damage),
        Err(OpenError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Outcome::Missing;
        }
        Err(error) => panic!("not an answer to damage: {error}"),
    };
    let read = checks::try_restore_liveness(&opened).and_then(|()| answers(&opened.log));
    match read {
        Ok(answers) => Outcome::Answered(Box::new(answers)),
        Err(ReadError::Damaged(damage)) => Outcome::Reported(damage),
        Err(error) => panic!("not an answer to damage: {error}"),
    }
}

fn answers(log: &LocalLog) -> Result<Answers, ReadError> {
    let read = |which, after| -> Result<Vec<Answer>, ReadError> {
        let mut request = whole(which, 50);
        request.after = after;
        let records = checks::read_all(log, &request)?;
        let answers = records.iter().map(|record| Answer {
            position: record.position,
            kind: record.kind,
            timestamp: record.timestamp,
            supersedes: record.supersedes,
            content: [record.epk().to_vec(), record.meta().to_vec(), record.body().to_vec()],
        });
        Ok(answers.collect())
    };
    Ok(Answers {
        tail: log.local_tail(),
        complete_after: log.complete_after(),
        // Everything first, because that reads every byte.
        everything: read(Which::Everything, Lsn::ZERO)?,
        live: read(Which::Live, Lsn::ZERO)?,
        all_versions: read(Which::AllVersions, log.complete_after())?,
    })
}

fn options() -> LogOptions {
    LogOptions { segment_bytes: 1 << 10, ring_bytes: 0, ..LogOptions::default() }
}

const SIZES: Sizes = Sizes { keys: 8, entries: 3, records: 3, body: 30 };

fn write(log: &Arc<LocalLog>, history: &mut History, random: &mut Random, groups: u64) {
    for _ in 0..groups {
        let seconds = 1_000 + history.tail.lsn.get();
        let now = Timestamp::from_seconds(seconds);
        let sent = history.random_group(random, now, SIZES);
        support::append(log, &sent.group).unwrap();
        history.acknowledge(&sent, sent.group.tail());
    }
}

fn compact_half(log: &LocalLog, history: &History) {
    let policy = CompactionPolicy {
        retain_from: Timestamp::from_seconds(1_000 + history.tail.lsn.get() / 2),
        history_bytes_max: u64::MAX,
        dead_percent: 0,
    };
    while log.compact(&policy).unwrap().is_some() {}
}

/// Closes a log, cleanly or like a killed process.
fn close(disk: MemoryDisk, dir: &Path, log: &LocalLog, cleanly: bool) -> Specimen {
    if cleanly {
        log.checkpoint().unwrap();
    }
    let is_segment = |path: &Path| path.extension().is_some_and(|name| name == "seg");
    let here = disk.files().into_iter().filter(|(path, _)| path.starts_with(dir));
    let segments = here.filter(|(path, _)| is_segment(path));
    // Numbers increase, and the active segment has no table yet.
    let without_table = segments.filter(|(path, _)| !disk.exists(&path.with_extension("tab")));
    let (active, active_end) = without_table.max().unwrap();
    let file = disk.open(&active, false).unwrap();
    file.write_at(&[0; PREALLOCATED], active_end as u64).unwrap();
    Specimen {
        partition: log.partition().get(),
        dir: dir.to_owned(),
        options: options(),
        answers: answers(log).unwrap(),
        active,
        active_end,
        disk,
    }
}

trait Exists {
    fn exists(&self, path: &Path) -> bool;
}

impl Exists for MemoryDisk {
    fn exists(&self, path: &Path) -> bool {
        self.open(path, false).is_ok()
    }
}

/// A log with compacted, raw and active segments.
fn plain(cleanly: bool) -> Specimen {
    let disk = MemoryDisk::new();
    let dir = Path::new("log");
    let mut random = Random::seeded(11);
    let log = support::create(&disk, dir, 1, &options()).log;
    let mut history = History::new(PartitionId::new(1), KeyRange::full(), log.local_tail());
    write(&log, &mut history, &mut random, 26);
    compact_half(&log, &history);
    write(&log, &mut history, &mut random, 4);
    close(disk, dir, &log, cleanly)
}

/// A child that shares compacted and raw segments with its parent, and has some of its own.
fn child() -> Specimen {
    let disk = MemoryDisk::new();
    let mut random = Random::seeded(12);
    let parent = support::create(&disk, Path::new("parent"), 1, &options()).log;
    let mut history = History::new(PartitionId::new(1), KeyRange::full(), parent.local_tail());
    write(&parent, &mut history, &mut random, 14);
    compact_half(&parent, &history);
    let start = parent.seal().unwrap();
    let range = KeyRange::new(Epk::min(), Epk::from_bytes(&[0x60])).unwrap();
    let dir = Path::new("child");
    let from = [Ancestor { log: parent, range: range.clone() }];
    let (shared, id) = (Arc::new(disk.clone()), PartitionId::new(2));
    let runtime = support::runtime();
    let log = LocalLog::inherit(shared, dir, id, &from, start, options(), runtime).unwrap().log;
    let mut history = History::inherited(id, range, log.local_tail(), &[&history]);
    write(&log, &mut history, &mut random, 12);
    close(disk, dir, &log, true)
}

impl Specimen {
    fn files(&self) -> Vec<(PathBuf, usize)> {
        let mut files = self.disk.files();
        files.retain(|(path, _)| path.starts_with(&self.dir));
        files
    }

    /// A copy of the disk in which `change` was applied to one file.
    fn with(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> MemoryDisk {
        let disk = self.disk.fork();
        let mut bytes = self.bytes(path);
        change(&mut bytes);
        let file = disk.open(path, true).unwrap();
        file.write_at(&bytes, 0).unwrap();
        disk
    }

    fn bytes(&self, path: &Path) -> Vec<u8> {
        headwater_log::disk::read_file(&self.disk, path, 1 << 30).unwrap()
    }

    /// The LSN and the byte range of each entry of a segment.
    fn entries(&self, path: &Path) -> Vec<(Lsn, Range<usize>)> {
        let bytes = self.bytes(path);
        let mut entries = Vec::new();
        let mut at = SEGMENT_HEADER_BYTES;
        while let Ok(header) = entry::decode_header(bytes.get(at..).unwrap_or_default()) {
            let end = at + header.length as usize;
            entries.push((header.lsn, at..end));
            at = end;
        }
        entries
    }

    #[track_caller]
    fn assert_answers(&self, what: &str, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(answers) => {
                assert!(**answers == self.answers, "{what}: other answers")
            }
            Outcome::Reported(damage) => panic!("{what}: {damage}"),
            Outcome::Missing => panic!("{what}: missing"),
        }
    }

    #[track_caller]
    fn assert_reported<'a>(&self, what: &str, path: &Path, outcome: &'a Outcome) -> &'a Damage {
        match outcome {
            Outcome::Reported(damage) => {
                assert_eq!(Path::new(&damage.file), path, "{what}: {damage}");
                damage
            }
            Outcome::Answered(answers) if **answers == self.answers => {
                panic!("{what}: not noticed")
            }
            Outcome::Answered(_) => panic!("{what}: wrong answers"),
            Outcome::Missing => panic!("{what}: missing"),
        }
    }
}

fn is_derived(path: &Path) -> bool {
    path.ends_with("LIVENESS") || path.extension().is_some_and(|name| name == "tab")
}

/// Flips one bit of every byte of every file, and checks each outcome. Returns the number of flips.
fn flip_every_byte(specimen: &Specimen, seed: u64) -> usize {
    let mut random = Random::seeded(seed);
    let mut flips = 0;
    for (path, length) in specimen.files() {
        let entries = match path.extension() {
            Some(name) if name == "seg" => specimen.entries(&path),
            _ => Vec::new(),
        };
        for offset in 0..length {
            let bit = support::byte(&mut random, 8);
            let what = format!("{} byte {offset} bit {bit}", path.display());
            let disk = specimen.disk.fork();
            assert!(disk.flip(&path, offset, bit));
            let outcome = consult(&disk, specimen);
            flips += 1;
            let behind_the_end = path == specimen.active && offset >= specimen.active_end;
            if is_derived(&path) || behind_the_end {
                specimen.assert_answers(&what, &outcome);
                continue;
            }
            let damage = specimen.assert_reported(&what, &path, &outcome);
            match entries.iter().find(|(_, bytes)| bytes.contains(&offset)) {
                Some((lsn, bytes)) => {
                    assert_eq!(damage.offset, bytes.start as u64, "{what}: {damage}");
                    assert_eq!(damage.lsn, Some(*lsn), "{what}: {damage}");
                }
                None => assert!(damage.offset <= length as u64, "{what}: {damage}"),
            }
        }
    }
    flips
}

#[test]
fn damage_is_reported_never_skipped() {
    let specimen = plain(true);
    let count = |extension: &str| {
        let named = |path: &PathBuf| path.extension().is_some_and(|name| name == extension);
        specimen.files().iter().filter(|(path, _)| named(path)).count()
    };
    assert!(count("seg") >= 5 && count("tab") >= 4, "{:?}", specimen.files());
    assert!(specimen.answers.complete_after > Lsn::ZERO, "something was compacted");
    let flips = flip_every_byte(&specimen, 1);
    assert!(flips > 5_000, "{flips} flips");
}

#[test]
fn damage_to_what_was_inherited_is_reported_too() {
    let specimen = child();
    assert!(specimen.answers.complete_after > Lsn::ZERO, "something was compacted");
    let origins = |origin: u32| {
        let answers = specimen.answers.everything.iter();
        answers.filter(|answer| answer.position.origin.get() == origin).count()
    };
    assert!(origins(1) > 5 && origins(2) > 5);
    let flips = flip_every_byte(&specimen, 2);
    assert!(flips > 3_000, "{flips} flips");
}

/// After a kill it is unknown whether the last group was acknowledged: it may be lost, completely or from some
/// entry on. Everything before it may not.
#[test]
fn only_the_last_group_of_a_killed_process_can_pass_for_torn() {
    let specimen = plain(false);
    let entries = specimen.entries(&specimen.active);
    let bytes = specimen.bytes(&specimen.active);
    let header = |range: &Range<usize>| entry::decode_header(&bytes[range.start..]).unwrap();
    let acknowledged = header(&entries.last().unwrap().1).durable;
    assert!(entries[0].0 <= acknowledged, "the active segment has several groups");
    let (mut torn, mut reported) = (0, 0);
    for (lsn, range) in &entries {
        for offset in range.clone() {
            let what = format!("LSN {lsn} byte {offset}");
            let disk = specimen.disk.fork();
            assert!(disk.flip(&specimen.active, offset, u8::try_from(offset % 8).unwrap()));
            let outcome = consult(&disk, &specimen);
            if *lsn <= acknowledged {
                let damage = specimen.assert_reported(&what, &specimen.active, &outcome);
                assert_eq!((damage.offset, damage.lsn), (range.start as u64, Some(*lsn)), "{what}");
                reported += 1;
                continue;
            }
            let Outcome::Answered(answers) = outcome else {
                panic!("{what}: a torn write is cut off");
            };
            assert_eq!(answers.tail.lsn, lsn.previous(), "{what}");
            let kept = specimen.answers.everything.iter();
            let kept: Vec<Answer> =
                kept.filter(|answer| answer.position.lsn < *lsn).cloned().collect();
            assert!(answers.everything == kept, "{what}");
            torn += 1;
        }
    }
    assert!(torn > 80 && reported > 80, "{torn} torn, {reported} reported");
}

#[test]
fn a_file_that_is_cut_off_is_noticed() {
    for specimen in [plain(true), child()] {
        for (path, length) in specimen.files() {
            let end = if path == specimen.active { specimen.active_end } else { length };
            for kept in (0..end).step_by(5).chain([end - 1]) {
                let what = format!("{} cut at {kept}", path.display());
                let disk = specimen.with(&path, |bytes| bytes.truncate(kept));
                let outcome = consult(&disk, &specimen);
                if is_derived(&path) {
                    specimen.assert_answers(&what, &outcome);
                } else {
                    specimen.assert_reported(&what, &path, &outcome);
                }
            }
        }
    }
}

#[test]
fn bytes_behind_the_end_of_a_file_change_no_answer() {
    for specimen in [plain(true), child()] {
        for (path, _) in specimen.files() {
            let what = format!("{} with more behind it", path.display());
            let disk = specimen.with(&path, |bytes| bytes.extend_from_slice(&[0xA5; 300]));
            let outcome = consult(&disk, &specimen);
            if path.ends_with("MANIFEST") {
                specimen.assert_reported(&what, &path, &outcome);
            } else {
                specimen.assert_answers(&what, &outcome);
            }
        }
    }
}

#[test]
fn a_missing_file_is_noticed() {
    for specimen in [plain(true), child()] {
        for (path, _) in specimen.files() {
            let what = format!("{} missing", path.display());
            let disk = specimen.disk.fork();
            disk.remove(&path).unwrap();
            let outcome = consult(&disk, &specimen);
            if path.ends_with("MANIFEST") {
                assert!(matches!(outcome, Outcome::Missing), "{what}");
            } else if is_derived(&path) {
                specimen.assert_answers(&what, &outcome);
            } else {
                specimen.assert_reported(&what, &path, &outcome);
            }
        }
    }
}

/// A partition whose manifest was lost is not mistaken for a new one and wiped.
#[test]
fn a_log_without_its_manifest_is_not_created_anew() {
    let specimen = plain(true);
    let disk = specimen.disk.fork();
    let manifest = specimen.dir.join("MANIFEST");
    disk.remove(&manifest).unwrap();
    let before = disk.files();
    let (shared, id) = (Arc::new(disk.clone()), PartitionId::new(1));
    let created = LocalLog::create(shared, &specimen.dir, id, options(), support::runtime());
    match created {
        Err(OpenError::Damaged(damage)) => assert_eq!(Path::new(&damage.file), manifest),
        other => panic!("{other:?}"),
    }
    assert_eq!(disk.files(), before);
}

/// Dead bits saved before a compaction lack what its dropped entries superseded, and a replay cannot restore it.
#[test]
fn an_older_checkpoint_of_dead_bits_is_not_believed() {
    let disk = MemoryDisk::new();
    let dir = Path::new("log");
    let mut random = Random::seeded(11);
    let log = support::create(&disk, dir, 1, &options()).log;
    let mut history = History::new(PartitionId::new(1), KeyRange::full(), log.local_tail());
    write(&log, &mut history, &mut random, 6);
    log.checkpoint().unwrap();
    let path = dir.join("LIVENESS");
    let old = headwater_log::disk::read_file(&disk, &path, 1 << 20).unwrap();
    write(&log, &mut history, &mut random, 20);
    compact_half(&log, &history);
    let specimen = close(disk, dir, &log, true);
    let disk = specimen.with(&path, |bytes| *bytes = old);
    assert!(support::open(&disk, dir, 1, &options()).unwrap().liveness_lost);
    specimen.assert_answers("an older checkpoint", &consult(&disk, &specimen));
}

/// One file replaced by another of its kind: right checksums, wrong content.
#[test]
fn a_file_in_the_place_of_another_is_noticed() {
    let (one, other) = (plain(true), child());
    let named = |path: &Path, specimen: &Specimen| {
        let name = path.file_name().unwrap();
        specimen.dir.join(name)
    };
    for (path, _) in one.files() {
        let foreign = named(&path, &other);
        let neighbours = one.files().into_iter().map(|(path, _)| one.bytes(&path));
        let foreign = other.disk.exists(&foreign).then(|| other.bytes(&foreign));
        for bytes in neighbours.chain(foreign).filter(|bytes| *bytes != one.bytes(&path)) {
            let what = format!("{} replaced", path.display());
            let disk = one.with(&path, |content| *content = bytes);
            match support::open(&disk, &one.dir, one.partition, &one.options) {
                Err(OpenError::WrongPartition { .. }) => assert!(path.ends_with("MANIFEST")),
                _ => match consult(&disk, &one) {
                    answered @ Outcome::Answered(_) => one.assert_answers(&what, &answered),
                    reported => drop(one.assert_reported(&what, &path, &reported)),
                },
            }
        }
    }
}
