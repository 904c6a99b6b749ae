//! Interleavings at every disk operation: a write, a checkpoint, a new segment or a snapshot runs while
//! compaction is in the middle of its file.
//!
//! The threads of `concurrency.rs` interleave by chance. Here one thread runs both operations, the second one
//! from inside the disk, so every interleaving occurs and can be repeated.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_log::disk::{Disk, DiskFile, MemoryDisk, read_file};
use headwater_log::{CompactionPolicy, LocalLog, LogOptions, Position, RecordKind, Which};
use headwater_model::{KeyRange, PartitionId, Timestamp};
use headwater_runtime::Random;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::checks::{check_all, whole};
use support::history::{History, Key, Sizes};

const DIR: &str = "log";
const SIZES: Sizes = Sizes { keys: 6, entries: 2, records: 2, body: 60 };

type Interruption = Box<dyn FnOnce() + Send>;

/// A disk that runs an interruption before its n-th change to a segment or a table.
///
/// The interruption must not need a lock that is held during disk operations.
#[derive(Clone)]
struct InterruptedDisk {
    disk: MemoryDisk,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    /// Changes left until the interruption.
    left: usize,
    /// Opening a file for reading counts as a change too.
    on_reading: bool,
    interruption: Option<Interruption>,
}

impl std::fmt::Debug for InterruptedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InterruptedDisk")
    }
}

impl InterruptedDisk {
    fn changes(&self, path: &Path) {
        // The log holds locks while it writes the manifest and the checkpoint, so nothing can interleave there.
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        if !matches!(kind, "seg" | "tab") {
            return;
        }
        let due = {
            let mut plan = self.plan.lock();
            match plan.left.checked_sub(1) {
                Some(left) => {
                    plan.left = left;
                    None
                }
                None => plan.interruption.take(),
            }
        };
        if let Some(interruption) = due {
            interruption();
        }
    }
}

impl Disk for InterruptedDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        if create || self.plan.lock().on_reading {
            self.changes(path);
        }
        let file = self.disk.open(path, create)?;
        Ok(Arc::new(InterruptedFile { file, path: path.to_owned(), disk: self.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.changes(to);
        self.disk.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.changes(path);
        self.disk.remove(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

#[derive(Debug)]
struct InterruptedFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    disk: InterruptedDisk,
}

impl DiskFile for InterruptedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.changes(&self.path);
        self.file.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.changes(&self.path);
        self.file.sync()
    }
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.file.allocate(length)
    }
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }
    fn allocated(&self) -> io::Result<u64> {
        self.file.allocated()
    }
}

fn options() -> LogOptions {
    LogOptions { segment_bytes: 1 << 10, ring_bytes: 0, ..LogOptions::default() }
}

fn policy() -> CompactionPolicy {
    CompactionPolicy {
        retain_from: Timestamp::from_seconds(9_000_000),
        history_bytes_max: u64::MAX,
        dead_percent: 0,
    }
}

/// A log and its history, shared with the interruption.
#[derive(Clone)]
struct Stage {
    log: Arc<LocalLog>,
    history: Arc<Mutex<History>>,
    random: Arc<Mutex<Random>>,
}

impl Stage {
    fn write(&self, groups: usize) {
        for _ in 0..groups {
            let mut history = self.history.lock();
            let now = Timestamp::from_seconds(1_000 + history.tail.lsn.get());
            let sent = history.random_group(&mut self.random.lock(), now, SIZES);
            support::append(&self.log, &sent.group).unwrap();
            history.acknowledge(&sent, sent.group.tail());
        }
    }

    fn put(&self, records: &[(Key, usize)]) {
        let mut history = self.history.lock();
        let now = Timestamp::from_seconds(1_000 + history.tail.lsn.get());
        let records: Vec<_> =
            records.iter().map(|(key, length)| (RecordKind::Put, *key, *length)).collect();
        let sent = history.group(now, &records);
        support::append(&self.log, &sent.group).unwrap();
        history.acknowledge(&sent, sent.group.tail());
    }

    fn check(&self) {
        check_all(&self.log, &self.history.lock());
    }

    fn compact(&self) -> bool {
        self.log.compact(&policy()).unwrap().is_some()
    }
}

/// An operation on a log.
type Deed = fn(&Stage);

/// The operations that interrupt, with their names.
const INTERRUPTIONS: [(&str, Deed); 5] = [
    ("a write", |stage| stage.write(1)),
    ("writes that fill segments", |stage| stage.write(12)),
    ("writes and a checkpoint", |stage| {
        stage.write(3);
        stage.log.checkpoint().unwrap();
        stage.write(1);
    }),
    ("reads", |stage| stage.check()),
    ("a seal", |stage| {
        stage.log.seal().unwrap();
    }),
];

/// A log that can be interrupted, with a few segments, some of them worth compacting.
struct Scene {
    disk: MemoryDisk,
    plan: Arc<Mutex<Plan>>,
    stage: Stage,
}

fn scene(seed: u64) -> Scene {
    scene_with(seed, |stage| stage.write(14))
}

fn scene_with(seed: u64, write: fn(&Stage)) -> Scene {
    let disk = MemoryDisk::with_faults();
    let plan = Arc::new(Mutex::new(Plan::default()));
    let id = PartitionId::new(1);
    let log = support::create(&disk, Path::new(DIR), 1, &options()).log;
    let history = History::new(id, KeyRange::full(), log.local_tail());
    let mut stage = Stage {
        log,
        history: Arc::new(Mutex::new(history)),
        random: Arc::new(Mutex::new(Random::seeded(seed))),
    };
    write(&stage);
    let shared: Arc<dyn Disk> =
        Arc::new(InterruptedDisk { disk: disk.clone(), plan: plan.clone() });
    let runtime = support::runtime();
    stage.log = LocalLog::open(shared, Path::new(DIR), id, options(), runtime).unwrap().log;
    Scene { disk, plan, stage }
}

impl Scene {
    fn interrupt_at(&self, point: usize, interruption: impl FnOnce(&Stage) + Send + 'static) {
        let stage = self.stage.clone();
        *self.plan.lock() = Plan {
            left: point,
            on_reading: false,
            interruption: Some(Box::new(move || interruption(&stage))),
        };
    }

    /// Whether the interruption has run. Cancels it otherwise.
    fn was_interrupted(&self) -> bool {
        self.plan.lock().interruption.take().is_none()
    }

    #[track_caller]
    fn check_after_crash(&self, what: &str) {
        let disk = self.disk.fork();
        check_disk(&disk, &self.stage, what);
    }
}

/// Compacts with each interruption at each point, then checks the log and its state after a crash, both
/// immediately and after more operations.
fn at_every_point(before: fn(&Stage), after: fn(&Stage)) {
    for (name, interruption) in INTERRUPTIONS {
        for point in 0.. {
            let scene = scene(8);
            before(&scene.stage);
            scene.interrupt_at(point, interruption);
            scene.stage.compact();
            let was_interrupted = scene.was_interrupted();
            let what = format!("{name} at point {point}");
            scene.stage.check();
            scene.check_after_crash(&what);
            if !scene.stage.log.is_sealed() {
                after(&scene.stage);
                scene.stage.check();
                scene.check_after_crash(&what);
            }
            if !was_interrupted {
                assert!(point > 3, "{name}: there were only {point} points");
                break;
            }
        }
    }
}

#[track_caller]
fn check_disk(disk: &MemoryDisk, stage: &Stage, what: &str) {
    disk.crash(&mut Random::seeded(1));
    let opened = support::open(disk, Path::new(DIR), 1, &options());
    let opened = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!opened.liveness_lost, "{what}");
    check_all(&opened.log, &stage.history.lock());
}

#[test]
fn in_the_middle_of_a_compaction() {
    at_every_point(|_| {}, |stage| while stage.compact() {});
}

#[test]
fn in_the_middle_of_a_second_compaction() {
    at_every_point(
        |stage| {
            stage.compact();
            stage.write(8);
        },
        |stage| stage.write(3),
    );
}

/// The dead bits are saved during a compaction, and a power cut follows before those of the new file are saved.
#[test]
fn a_checkpoint_in_the_middle_of_a_compaction_that_the_power_ends() {
    for (point, steps) in (0..12).flat_map(|point| (0..14).map(move |steps| (point, steps))) {
        let scene = scene(8);
        let disk = scene.disk.clone();
        scene.interrupt_at(point, move |stage| {
            stage.write(3);
            stage.log.checkpoint().unwrap();
            disk.cut_power_after(steps);
        });
        while let Ok(Some(_)) = scene.stage.log.compact(&policy()) {}
        check_disk(&scene.disk, &scene.stage, &format!("point {point}, {steps} steps"));
    }
}

/// A checkpoint during a compaction, then the disk is full when the dead bits of the new file are due. The power
/// cut comes in the next compaction, which drops the superseding entry.
#[test]
fn a_checkpoint_in_the_middle_of_a_compaction_whose_own_does_not_fit() {
    let bits = |disk: &MemoryDisk| read_file(disk, &Path::new(DIR).join("LIVENESS"), 1 << 20);
    let base = |stage: &Stage| {
        stage.put(&[(1, 10), (3, 400), (5, 10), (5, 100)]);
        stage.put(&[(101, 800)]);
        stage.put(&[(103, 800)]);
    };
    // Compacts, and returns whether the dead bits on disk are still those of the interruption. The interruption
    // writes key 1 twice, the first time into a segment without other records.
    let compact_without_bits = |scene: &Scene, point: usize, room: u64| {
        let (disk, written) = (scene.disk.clone(), Arc::new(Mutex::new(None)));
        let note = written.clone();
        scene.interrupt_at(point, move |stage| {
            stage.put(&[(1, 900)]);
            stage.put(&[(1, 10), (105, 600)]);
            stage.put(&[(107, 800)]);
            stage.log.checkpoint().unwrap();
            *note.lock() = bits(&disk).ok();
            disk.set_room(room);
        });
        let compacted = scene.stage.log.compact(&policy());
        scene.disk.set_room(u64::MAX);
        matches!(compacted, Ok(Some(_))) && *written.lock() == bits(&scene.disk).ok()
    };
    let mut moments = 0;
    for (point, room) in (1..8).flat_map(|point| (0..80).map(move |room| (point, 16 * room))) {
        if !compact_without_bits(&scene_with(1, base), point, room) {
            continue;
        }
        moments += 1;
        for steps in 0..30 {
            let scene = scene_with(1, base);
            assert!(compact_without_bits(&scene, point, room));
            scene.stage.check();
            scene.disk.cut_power_after(steps);
            // Only the segment with the first version is dead enough.
            let policy = CompactionPolicy { dead_percent: 80, ..policy() };
            while let Ok(Some(_)) = scene.stage.log.compact(&policy) {}
            let what = format!("point {point}, room {room}, {steps} steps");
            check_disk(&scene.disk, &scene.stage, &what);
        }
        if moments == 6 {
            return;
        }
    }
    panic!("the dead bits could nearly always be written: {moments}");
}

/// A group becomes visible atomically, together with the dead bits of what it supersedes, also to a reader that
/// starts while the bits are being set.
#[test]
fn a_reader_in_the_middle_of_a_publication_sees_nothing_of_it() {
    let mut meetings = 0;
    for seed in 0..20 {
        for point in 0..3 {
            let scene = scene(seed);
            // An offset table is loaded on first use, here when the first record in it is marked.
            let before = scene.stage.history.lock().clone();
            scene.interrupt_at(point, move |stage| check_all_but_end(&stage.log, &before));
            scene.plan.lock().on_reading = true;
            scene.stage.write(1);
            meetings += usize::from(scene.was_interrupted());
            scene.stage.check();
        }
    }
    assert!(meetings > 10, "{meetings} meetings");
}

/// Checks what a reader sees, without taking the writer's lock, which is held.
fn check_all_but_end(log: &LocalLog, history: &History) {
    for which in [Which::Live, Which::AllVersions] {
        let page = log.read(&whole(which, usize::MAX)).unwrap();
        assert_eq!(page.scanned, history.tail.lsn);
        let live = history.live();
        let facts = history.facts.iter().filter(|fact| fact.kind != RecordKind::Control);
        let expected = facts
            .map(|fact| fact.position)
            .filter(|position| which == Which::AllVersions || live.contains(position));
        // Includes records that are already superseded by an entry that is not visible yet.
        let seen: BTreeSet<Position> = page.records.iter().map(|record| record.position).collect();
        assert_eq!(seen, expected.collect(), "{which:?}");
    }
}
