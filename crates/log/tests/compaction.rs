//! Scenarios of what compaction may drop and when, which random tests rarely find.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_log::disk::{Disk, MemoryDisk, read_file};
use headwater_log::{
    Ancestor, CompactionPolicy, Durability, LocalLog, LogOptions, Opened, ReadError, RecordKind,
    Tail, Which,
};
use headwater_model::{Epk, KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::Random;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::checks::{check_all, read_all, restore_liveness, whole};
use support::history::{History, Key, epk};

const PUT: RecordKind = RecordKind::Put;
const TOMBSTONE: RecordKind = RecordKind::Tombstone;

fn options() -> LogOptions {
    LogOptions { segment_bytes: 1 << 10, ring_bytes: 0, ..LogOptions::default() }
}

/// A log and its history, written segment by segment.
struct Story {
    disk: MemoryDisk,
    dir: PathBuf,
    options: LogOptions,
    log: Arc<LocalLog>,
    history: History,
    now: u64,
}

impl Story {
    fn new(options: LogOptions) -> Story {
        let disk = MemoryDisk::with_faults();
        let dir = PathBuf::from("log");
        let log = support::create(&disk, &dir, 1, &options).log;
        let history = History::new(PartitionId::new(1), KeyRange::full(), log.local_tail());
        Story { disk, dir, options, log, history, now: 1_000 }
    }

    fn write(&mut self, records: &[(RecordKind, Key, usize)]) {
        self.now += 1;
        let sent = self.history.group(Timestamp::from_seconds(self.now), records);
        support::append(&self.log, &sent.group).unwrap();
        self.history.acknowledge(&sent, sent.group.tail());
    }

    /// Fills the rest of the segment with a separate item, so that the next write starts a new segment.
    fn next_segment(&mut self, filler: Key) {
        self.write(&[(PUT, filler, 800)]);
    }

    fn compact(&self, dead_percent: u64) -> usize {
        let policy = CompactionPolicy {
            retain_from: Timestamp::from_seconds(9_000),
            history_bytes_max: u64::MAX,
            dead_percent,
        };
        let rounds = (0..50).take_while(|_| self.log.compact(&policy).unwrap().is_some()).count();
        assert!(rounds < 50, "compaction does not terminate");
        rounds
    }

    fn open(&self) -> Opened {
        let number = self.history.partition.get();
        support::open(&self.disk, &self.dir, number, &self.options).unwrap()
    }

    fn reopen(&mut self) {
        let opened = self.open();
        restore_liveness(&opened);
        self.log = opened.log;
    }

    fn check(&self) {
        check_all(&self.log, &self.history);
    }
}

/// Regression: a superseded tombstone made its segment worth compacting for ever.
#[test]
fn compaction_comes_to_an_end_when_a_deleted_item_is_written_again() {
    let mut story = Story::new(options());
    story.write(&[(PUT, 1, 10), (PUT, 2, 10), (PUT, 9, 500)]);
    story.next_segment(100);
    story.write(&[(TOMBSTONE, 1, 0), (TOMBSTONE, 2, 0)]);
    story.write(&[(PUT, 1, 450), (PUT, 2, 450)]);
    story.next_segment(101);
    story.next_segment(102);
    for dead_percent in [90, 50, 10, 0] {
        story.compact(dead_percent);
        story.check();
    }
}

/// A tombstone may be dropped only when no older segment has a dead record.
#[test]
fn a_tombstone_stays_as_long_as_an_older_segment_has_something_dead() {
    let mut story = Story::new(options());
    story.write(&[(PUT, 1, 10), (PUT, 3, 700)]);
    story.next_segment(100);
    story.write(&[(TOMBSTONE, 1, 0), (PUT, 5, 700), (PUT, 5, 10)]);
    story.next_segment(101);
    story.next_segment(102);
    let tombstones = |story: &Story| {
        let records = read_all(&story.log, &whole(Which::Everything, 100)).unwrap();
        records.iter().filter(|record| record.kind == TOMBSTONE).count()
    };
    // Only the second segment is dead enough.
    assert!(story.compact(30) > 0);
    assert_eq!(tombstones(&story), 1);
    story.check();
    assert!(story.compact(0) > 0);
    story.check();
    story.write(&[(TOMBSTONE, 5, 0)]);
    story.next_segment(103);
    story.next_segment(104);
    while story.compact(0) > 0 {}
    assert_eq!(tombstones(&story), 0);
    story.check();
}

/// Regression: compaction dropped a whole segment, and with it the only entries that superseded older records.
/// Without the checkpoint, replay restored an old version.
#[test]
fn what_a_vanished_segment_superseded_stays_dead() {
    let mut story = Story::new(options());
    story.write(&[(PUT, 1, 10), (PUT, 3, 600)]);
    story.next_segment(100);
    story.write(&[(PUT, 1, 900)]);
    story.write(&[(PUT, 1, 10), (PUT, 7, 700)]);
    story.next_segment(101);
    let before = story.log.statistics().segments;
    assert_eq!(story.compact(90), 1, "only the second segment is dead enough");
    assert_eq!(story.log.statistics().segments, before - 1);
    story.check();
    story.log.checkpoint().unwrap();
    story.disk.remove(&story.dir.join("LIVENESS")).unwrap();
    assert!(story.open().liveness_lost);
    story.reopen();
    story.check();
}

/// Regression: in a copy the newest segment is sealed. Compaction dropped it, and with it the end of the log, so
/// the copy could not be opened again.
#[test]
fn a_restored_copy_can_be_compacted_before_it_is_written() {
    let mut story = Story::new(options());
    story.write(&[(PUT, 1, 10), (PUT, 2, 10)]);
    story.next_segment(100);
    story.write(&[(TOMBSTONE, 1, 0), (TOMBSTONE, 2, 0)]);
    let snapshot = story.log.snapshot();
    story.dir = PathBuf::from("copy");
    for file in &snapshot.files {
        let mut bytes = vec![0; usize::try_from(file.len()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        let copy = story.disk.open(&story.dir.join(&file.name), true).unwrap();
        copy.write_at(&bytes, 0).unwrap();
    }
    story.reopen();
    story.compact(0);
    story.check();
    story.reopen();
    story.check();
    story.write(&[(PUT, 1, 10)]);
    story.reopen();
    story.check();
}

/// While dead bits are missing, compaction would make the loss permanent.
#[test]
fn nothing_is_compacted_or_written_down_before_lost_marks_are_found_again() {
    let mut story = Story::new(options());
    for _ in 0..4 {
        story.write(&[(PUT, 1, 300), (PUT, 2, 300)]);
    }
    story.next_segment(100);
    assert!(story.compact(90) > 0);
    story.write(&[(PUT, 1, 300)]);
    let liveness = story.dir.join("LIVENESS");
    story.disk.remove(&liveness).unwrap();
    let opened = story.open();
    assert!(opened.liveness_lost);
    story.log = opened.log.clone();
    assert_eq!(story.compact(0), 0);
    story.log.checkpoint().unwrap();
    for _ in 0..4 {
        story.write(&[(PUT, 2, 400)]);
    }
    assert!(story.disk.open(&liveness, false).is_err(), "missing dead bits were saved");

    let opened = story.open();
    assert!(opened.liveness_lost, "the dead bits are still missing");
    restore_liveness(&opened);
    story.log = opened.log;
    story.check();
    assert!(story.compact(0) > 0);
    story.log.checkpoint().unwrap();
    assert!(!story.open().liveness_lost);
    story.reopen();
    story.check();
}

fn halves() -> [KeyRange; 2] {
    let (lower, upper) = KeyRange::full().split_at(&Epk::from_bytes(&[0x70])).unwrap();
    [lower, upper]
}

fn inherit(story: &Story, number: u32, range: &KeyRange) -> Story {
    let dir = PathBuf::from(format!("child-{number}"));
    let id = PartitionId::new(number);
    let from = [Ancestor { log: story.log.clone(), range: range.clone() }];
    let start = story.history.tail.lsn;
    let disk: Arc<dyn Disk> = Arc::new(story.disk.clone());
    let options = story.options.clone();
    let opened =
        LocalLog::inherit(disk, &dir, id, &from, start, options, support::runtime()).unwrap();
    restore_liveness(&opened);
    let tail = Tail { timestamp: story.history.tail.timestamp, ..Tail::start(start) };
    Story {
        disk: story.disk.clone(),
        dir,
        options: story.options.clone(),
        history: History::inherited(id, range.clone(), tail, &[&story.history]),
        log: opened.log,
        now: story.now,
    }
}

/// A child of a log with missing dead bits must report them as missing too.
#[test]
fn a_child_of_a_log_with_lost_marks_finds_out_for_itself() {
    let mut story = Story::new(options());
    for round in 0..3 {
        story.write(&[(PUT, 1, 300), (PUT, 2, 300), (PUT, 10 + round, 100)]);
    }
    assert!(story.compact(30) > 0);
    story.write(&[(PUT, 1, 300), (TOMBSTONE, 2, 0)]);
    story.disk.remove(&story.dir.join("LIVENESS")).unwrap();
    let opened = story.open();
    assert!(opened.liveness_lost);
    story.log = opened.log;
    story.log.seal().unwrap();
    let child = inherit(&story, 2, &KeyRange::full());
    child.check();
}

/// Regression: each child kept the other's records for ever if the parent had compacted its segments.
#[test]
fn a_child_gets_files_of_its_own_although_its_parent_had_compacted() {
    let mut story = Story::new(options());
    let keys: Vec<Key> = (1..40).collect();
    for key in &keys {
        story.write(&[(PUT, *key, 60)]);
        story.write(&[(PUT, *key, 50)]);
    }
    assert!(story.compact(30) > 0);
    story.log.seal().unwrap();
    let shared = story.log.statistics().bytes;
    let mut bytes = 0;
    for (number, range) in [2, 3].into_iter().zip(halves()) {
        let child = inherit(&story, number, &range);
        assert_eq!(child.log.statistics().bytes, shared);
        assert!(child.compact(90) > 0);
        child.check();
        bytes += child.log.statistics().bytes;

        // The grandchildren get files of their own too.
        child.log.seal().unwrap();
        let point = Epk::from_bytes(&epk(keys[usize::try_from(number).unwrap()]));
        let Ok((lower, _)) = range.split_at(&point) else { continue };
        let grandchild = inherit(&child, number + 10, &lower);
        assert!(grandchild.compact(90) > 0);
        grandchild.check();
        assert!(grandchild.log.statistics().bytes < child.log.statistics().bytes);
    }
    assert!(bytes < shared * 12 / 10, "{bytes} bytes in two children, {shared} in their parent");
}

/// Merged lanes interleave by LSN, not by time: an old entry of one lane may have a higher LSN than a young one
/// of the other. Readers of all versions have only one position.
#[test]
fn retention_holds_for_every_lane_of_a_merged_partition() {
    let mut busy = Story::new(options());
    for _ in 0..6 {
        busy.write(&[(PUT, 1, 200), (PUT, 1, 200), (PUT, 1, 200)]);
    }
    busy.next_segment(3);
    busy.log.seal().unwrap();
    let [lower, upper] = halves();
    assert!(lower.contains(&epk(1)) && lower.contains(&epk(3)), "the busy one is the lower");

    let disk = busy.disk.clone();
    let dir = PathBuf::from("quiet");
    let log = support::create(&disk, &dir, 2, &options()).log;
    let history = History::new(PartitionId::new(2), upper.clone(), log.local_tail());
    let mut quiet = Story { disk, dir, options: options(), log, history, now: 2_000 };
    let key = (4..100).find(|key| upper.contains(&epk(*key))).unwrap();
    quiet.write(&[(PUT, key, 10), (PUT, key, 20)]);
    quiet.log.seal().unwrap();
    let young = quiet.history.tail.lsn;
    assert!(young < busy.history.tail.lsn);

    let start = busy.history.tail.lsn;
    let ancestor =
        |story: &Story, range: &KeyRange| Ancestor { log: story.log.clone(), range: range.clone() };
    let from = [ancestor(&busy, &lower), ancestor(&quiet, &upper)];
    let shared: Arc<dyn Disk> = Arc::new(busy.disk.clone());
    let (dir, id) = (Path::new("merged"), PartitionId::new(3));
    let runtime = support::runtime();
    let merged = LocalLog::inherit(shared, dir, id, &from, start, options(), runtime).unwrap().log;
    let policy = CompactionPolicy {
        retain_from: Timestamp::from_seconds(1_500),
        history_bytes_max: u64::MAX,
        dead_percent: 0,
    };
    while merged.compact(&policy).unwrap().is_some() {}
    assert!(merged.complete_after() < young, "everything after {young} was to be retained");
    let mut request = whole(Which::AllVersions, 100);
    request.after = merged.complete_after();
    let history = History::inherited(
        id,
        KeyRange::full(),
        merged.local_tail(),
        &[&busy.history, &quiet.history],
    );
    let expected = history.between(request.after, Lsn::new(u64::MAX)).count();
    assert_eq!(read_all(&merged, &request).unwrap().len(), expected);
    // The byte limit also drops young entries, but the keys of one lane keep their history.
    let policy = CompactionPolicy { history_bytes_max: 0, ..policy };
    let bounded = {
        let dir = Path::new("bounded");
        let shared: Arc<dyn Disk> = Arc::new(busy.disk.clone());
        let runtime = support::runtime();
        LocalLog::inherit(shared, dir, id, &from, start, options(), runtime).unwrap().log
    };
    while bounded.compact(&policy).unwrap().is_some() {}
    let floors: Vec<Lsn> =
        bounded.complete_by_key(&KeyRange::full()).into_iter().map(|(_, floor)| floor).collect();
    assert!(matches!(floors[..], [low, high] if low > high), "{floors:?}");
    request.range = Some(&upper);
    request.after = floors[1];
    let expected = history.between(request.after, Lsn::new(u64::MAX));
    let expected = expected.filter(|fact| fact.is_in(request.range)).count();
    assert_eq!(read_all(&bounded, &request).unwrap().len(), expected);
    request.range = None;
    // With a later retention time everything may be dropped.
    let policy = CompactionPolicy { retain_from: Timestamp::from_seconds(9_000), ..policy };
    while merged.compact(&policy).unwrap().is_some() {}
    request.after = Lsn::ZERO;
    let refused = read_all(&merged, &request);
    assert!(matches!(refused, Err(ReadError::BeforeRetention { .. })), "{refused:?}");
    check_all(&merged, &history);
}

/// Compaction drops a superseded record, and a power cut then loses the superseding entry: both versions are lost,
/// unless the entry was synced first.
#[test]
fn without_syncs_nothing_is_dropped_for_an_entry_that_may_be_lost() {
    for (steps, seed) in (0..40).flat_map(|steps| (0..4).map(move |seed| (steps, seed))) {
        let mut story = Story::new(LogOptions { durability: Durability::Os, ..options() });
        story.write(&[(PUT, 1, 300), (PUT, 2, 300)]);
        story.next_segment(100);
        story.next_segment(101);
        story.log.checkpoint().unwrap();
        story.write(&[(PUT, 1, 10), (TOMBSTONE, 2, 0)]);
        story.disk.cut_power_after(steps);
        let policy = CompactionPolicy {
            retain_from: Timestamp::from_seconds(9_000),
            history_bytes_max: u64::MAX,
            dead_percent: 0,
        };
        while let Ok(Some(_)) = story.log.compact(&policy) {}
        story.disk.crash(&mut Random::seeded(seed));
        story.reopen();
        let found = story.log.local_tail();
        if found.lsn < story.history.tail.lsn {
            story.history.cut_back(found);
        }
        story.check();
    }
}

/// Once an entry is dropped, only the dead bits record what it superseded. So they are saved before it is dropped,
/// also when an earlier save failed because the disk was full.
#[test]
fn dead_bits_are_on_disk_before_the_entries_that_tell_them_are_dropped() {
    let mut found_the_moment = 0;
    for room in (0..300).step_by(4) {
        let mut story = Story::new(options());
        let liveness = story.dir.join("LIVENESS");
        let bits = |story: &Story| read_file(&story.disk, &liveness, 1 << 20).unwrap();
        story.write(&[(PUT, 1, 10), (PUT, 3, 600)]);
        story.next_segment(100);
        story.write(&[(PUT, 1, 900)]);
        let before = bits(&story);
        // There is room to seal the segment and save its table, but not the dead bits.
        story.disk.set_room(room);
        let sent = story.history.group(Timestamp::from_seconds(2_000), &[(PUT, 1, 300)]);
        assert!(support::append(&story.log, &sent.group).is_err());
        story.disk.set_room(u64::MAX);
        story.write(&[(PUT, 1, 300)]);
        if bits(&story) != before {
            continue;
        }
        found_the_moment += 1;
        for steps in 0..30 {
            let disk = story.disk.fork();
            let log = support::open(&disk, &story.dir, 1, &story.options).unwrap().log;
            disk.cut_power_after(steps);
            let policy = CompactionPolicy {
                retain_from: Timestamp::from_seconds(9_000),
                history_bytes_max: u64::MAX,
                dead_percent: 90,
            };
            while let Ok(Some(_)) = log.compact(&policy) {}
            disk.crash(&mut Random::seeded(steps));
            let opened = support::open(&disk, &story.dir, 1, &story.options).unwrap();
            assert!(!opened.liveness_lost, "room {room}, {steps} steps");
            check_all(&opened.log, &story.history);
        }
        if found_the_moment == 2 {
            return;
        }
    }
    panic!("the dead bits could always be written");
}

/// A failed compaction removes its files, so that retries on a full disk do not use more space.
#[test]
fn compaction_on_a_full_disk_leaves_no_files_behind() {
    let mut story = Story::new(options());
    for round in 0..8 {
        story.write(&[(PUT, 1, 300), (PUT, 2, 300), (PUT, 10 + round, 300)]);
    }
    let policy = CompactionPolicy {
        retain_from: Timestamp::from_seconds(9_000),
        history_bytes_max: u64::MAX,
        dead_percent: 0,
    };
    let names = || -> Vec<PathBuf> {
        let files = story.disk.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.extension().is_some_and(|name| name != "tmp")).collect()
    };
    let before = names();
    for room in (0..2_000).step_by(20) {
        story.disk.set_room(room);
        if story.log.compact(&policy).is_ok() {
            assert!(room > 300, "there was no room for a new file");
            break;
        }
        assert_eq!(names(), before, "with room for {room} bytes");
        story.check();
    }
    story.disk.set_room(u64::MAX);
    while story.log.compact(&policy).unwrap().is_some() {}
    story.reopen();
    story.check();
}
