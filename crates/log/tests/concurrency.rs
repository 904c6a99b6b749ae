//! Readers, a writer and compaction on concurrent threads: the feed's invariants hold while segments are filled,
//! sealed and replaced.
//!
//! Not a simulation: the scheduling is real, so a failure cannot be replayed, but only real threads find it.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

use headwater_log::disk::{Disk, MemoryDisk, OsDisk};
use headwater_log::{
    Batch, CompactionPolicy, GroupBuilder, LocalLog, LogOptions, NewRecord, PartitionLog, Position,
    ReadError, ReadRequest, Record, RecordKind, Which, invariants,
};
use headwater_model::{Lsn, PartitionId, Timestamp};
use headwater_runtime::{Random, Runtime};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KEYS: u64 = 300;
const PARTITION: PartitionId = PartitionId::new(1);

/// The state shared by all threads.
struct Stage {
    log: Arc<LocalLog>,
    runtime: Runtime,
    time: Duration,
    /// The writer has written its last entry.
    finished: AtomicBool,
    /// The writer's clock, in milliseconds.
    now: AtomicU64,
    /// Each key's newest version, and whether it is a tombstone; complete when `finished`.
    newest: Mutex<BTreeMap<u64, (u64, RecordKind)>>,
    pages: AtomicU64,
    compactions: AtomicU64,
    /// How often compaction overtook the reader of all versions.
    overtaken: AtomicU64,
}

/// Encodes a body: key, version, number of records of its entry, filler.
fn body_of(key: u64, version: u64, records: u64) -> Vec<u8> {
    let mut body: Vec<u8> =
        [key, version, records].iter().flat_map(|number| number.to_le_bytes()).collect();
    let filler = (version % 200) as usize;
    body.resize(24 + filler, (version & 0xFF) as u8);
    body
}

fn told(record: &Record) -> (u64, u64, u64) {
    let body = match record.kind {
        RecordKind::Tombstone => record.meta(),
        _ => record.body(),
    };
    let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
    let (key, version, records) = (number(0), number(8), number(16));
    assert_eq!(body, body_of(key, version, records), "{:?}", record.position);
    (key, version, records)
}

impl Stage {
    /// Whether time is over and enough has happened; a busy machine gets up to 30 times as long.
    fn time_is_over(&self) -> bool {
        let enough = self.compactions.load(Ordering::SeqCst) > 3;
        let elapsed = self.runtime.elapsed();
        elapsed > self.time && enough || elapsed > 30 * self.time
    }

    async fn write(&self) {
        let mut random = Random::seeded(1);
        let mut positions: BTreeMap<u64, (Position, RecordKind)> = BTreeMap::new();
        let mut version = 0;
        while !self.time_is_over() {
            let now = self.now.fetch_add(random.below(40), Ordering::SeqCst);
            let mut newest = self.newest.lock().clone();
            let mut group = GroupBuilder::new(PARTITION, 0, self.log.local_tail());
            for _ in 0..1 + random.below(3) {
                group.begin(Timestamp::from_millis(now), u128::from(version));
                let records = 1 + random.below(3);
                for _ in 0..records {
                    version += 1;
                    let key = random.below(KEYS);
                    let before = positions.get(&key).copied();
                    let alive = before.is_some_and(|(_, kind)| kind == RecordKind::Put);
                    let kind = match alive && random.chance(10) {
                        true => RecordKind::Tombstone,
                        false => RecordKind::Put,
                    };
                    let body = body_of(key, version, records);
                    let (meta, body) = match kind {
                        RecordKind::Tombstone => (&body[..], &[][..]),
                        _ => (&[][..], &body[..]),
                    };
                    let position = group.record(&NewRecord {
                        kind,
                        supersedes: before.map(|(position, _)| position),
                        epk: &key.to_be_bytes(),
                        meta,
                        body,
                    });
                    positions.insert(key, (position, kind));
                    newest.insert(key, (version, kind));
                }
                group.finish();
            }
            self.log.append(group.build()).await.unwrap();
            *self.newest.lock() = newest;
        }
        self.finished.store(true, Ordering::SeqCst);
    }

    fn compact(&self) {
        let mut random = Random::seeded(2);
        while !self.finished.load(Ordering::SeqCst) {
            let behind = 50 + random.below(3_000);
            let now = self.now.load(Ordering::SeqCst);
            let policy = CompactionPolicy {
                retain_from: Timestamp::from_millis(now.saturating_sub(behind)),
                history_bytes_max: u64::MAX,
                dead_percent: 10 + random.below(60),
            };
            if self.log.compact(&policy).unwrap().is_some() {
                self.compactions.fetch_add(1, Ordering::SeqCst);
            }
            if random.chance(20) {
                self.log.checkpoint().unwrap();
            }
            if random.chance(20) {
                self.copy();
            }
        }
    }

    /// Checks that a snapshot ends exactly at its LSN while the log grows.
    fn copy(&self) {
        let snapshot = self.log.snapshot();
        let disk = MemoryDisk::new();
        let dir = Path::new("copy");
        for file in &snapshot.files {
            let mut bytes = vec![0; usize::try_from(file.len()).unwrap()];
            file.read_at(&mut bytes, 0).unwrap();
            let copy = disk.open(&dir.join(&file.name), true).unwrap();
            copy.write_at(&bytes, 0).unwrap();
        }
        let (options, runtime) = (LogOptions::default(), self.runtime.clone());
        let copy = LocalLog::open(Arc::new(disk), dir, PARTITION, options, runtime).unwrap().log;
        assert_eq!(copy.local_tail().lsn, snapshot.lsn);
        let page = copy.read(&ReadRequest {
            after: copy.complete_after(),
            upto: Lsn::new(u64::MAX),
            which: Which::AllVersions,
            range: None,
            records_max: usize::MAX,
            bytes_max: usize::MAX,
        });
        check_complete(copy.complete_after(), &page.unwrap());
    }

    /// Reads one page and checks the invariants of pages.
    fn page(
        &self,
        which: Which,
        before: &Option<Batch>,
        random: &mut Random,
    ) -> Result<Batch, ReadError> {
        let after = before.as_ref().map_or(Lsn::ZERO, |before| before.scanned);
        let page = self.log.read(&ReadRequest {
            after,
            upto: Lsn::new(u64::MAX),
            which,
            range: None,
            records_max: 1 + random.index(400),
            bytes_max: 1 << 20,
        })?;
        self.pages.fetch_add(1, Ordering::Relaxed);
        assert_eq!(invariants::records_are_in_order(after, &page.records), Ok(()));
        assert_eq!(invariants::position_moves_forward(after, page.scanned), Ok(()));
        if let Some(before) = before {
            assert_eq!(invariants::pages_join(before, &page), Ok(()));
        }
        Ok(page)
    }

    /// Reads the newest versions to the end, sometimes again from the beginning.
    ///
    /// Versions of a key are in order, and a caught-up reader has seen the newest version of each item.
    fn follow_latest(&self) {
        let mut random = Random::seeded(3);
        loop {
            let started_late = self.finished.load(Ordering::SeqCst);
            let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
            let mut records = 0;
            let mut before = None;
            let mut last_round = started_late;
            loop {
                let page = self.page(Which::Live, &before, &mut random).unwrap();
                records += page.records.len();
                for record in &page.records {
                    let (key, version, _) = told(record);
                    let older = seen.insert(key, version);
                    assert!(older.is_none_or(|older| older < version), "{key} goes back");
                }
                if let Some(record) = page.records.last()
                    && let Some(same) = self.log.record(record.position, record.epk()).unwrap()
                {
                    assert_eq!(told(&same), told(record));
                }
                let caught_up = page.scanned >= self.log.local_tail().lsn;
                before = Some(page);
                if caught_up && last_round {
                    break;
                }
                last_round = self.finished.load(Ordering::SeqCst);
                if caught_up && !last_round && random.chance(5) {
                    break;
                }
            }
            if last_round {
                let newest = self.newest.lock();
                let alive = newest.iter().filter(|(_, (_, kind))| *kind == RecordKind::Put);
                for (key, (version, _)) in alive.clone() {
                    assert_eq!(seen.get(key), Some(version), "the newest version of {key}");
                }
                // The writer has finished: every item once, and nothing else.
                if started_late {
                    assert_eq!(records, alive.count(), "an older version was returned as well");
                    return;
                }
            }
        }
    }

    /// Reads all versions to the end: no LSN and no record of an entry is missing.
    fn follow_all_versions(&self) {
        let mut random = Random::seeded(4);
        let mut before: Option<Batch> = None;
        loop {
            let finished = self.finished.load(Ordering::SeqCst);
            match self.page(Which::AllVersions, &before, &mut random) {
                Ok(page) => {
                    let after = before.as_ref().map_or(Lsn::ZERO, |before| before.scanned);
                    check_complete(after, &page);
                    let caught_up = page.scanned >= self.log.local_tail().lsn;
                    before = Some(page);
                    if caught_up && finished {
                        return;
                    }
                }
                Err(ReadError::BeforeRetention { oldest, .. }) => {
                    self.overtaken.fetch_add(1, Ordering::SeqCst);
                    before = Some(Batch { records: Vec::new(), scanned: oldest });
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn check_complete(after: Lsn, page: &Batch) {
    let mut expected = after.next();
    for entry in page.records.chunk_by(|one, other| one.position.lsn == other.position.lsn) {
        assert_eq!(entry[0].position.lsn, expected, "an entry is missing");
        let (_, _, records) = told(&entry[0]);
        assert_eq!(entry.len() as u64, records, "a record of entry {expected} is missing");
        expected = expected.next();
    }
    assert_eq!(page.scanned.next(), expected, "an entry is missing at the end");
}

fn run(disk: Arc<dyn Disk>, dir: &Path, time: Duration) -> Arc<Stage> {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    threads.block_on(async {
        let runtime = Runtime::system();
        let options =
            LogOptions { segment_bytes: 32 << 10, ring_bytes: 8 << 10, ..LogOptions::default() };
        let log = LocalLog::create(disk, dir, PARTITION, options, runtime.clone()).unwrap().log;
        let stage = Arc::new(Stage {
            log,
            runtime: runtime.clone(),
            time,
            finished: AtomicBool::new(false),
            now: AtomicU64::new(1_000_000),
            newest: Mutex::default(),
            pages: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
        });
        let (ended, mut all_ended) = tokio::sync::mpsc::channel::<()>(1);
        let start = |act: Box<dyn FnOnce(&Stage) + Send>| {
            let (stage, ended) = (stage.clone(), ended.clone());
            runtime.spawn("actor", async move {
                act(&stage);
                ended.send(()).await.unwrap();
            });
        };
        start(Box::new(Stage::compact));
        start(Box::new(Stage::follow_latest));
        start(Box::new(Stage::follow_all_versions));
        stage.write().await;
        // A failed actor drops its sender without sending.
        drop(ended);
        for _ in 0..3 {
            all_ended.recv().await.expect("an actor failed; its message is above");
        }
        stage
    })
}

fn check(stage: &Stage) {
    let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let segments = stage.log.statistics().segments;
    assert!(count(&stage.compactions) > 3, "{} compactions", count(&stage.compactions));
    assert!(count(&stage.pages) > 50, "{} pages", count(&stage.pages));
    assert!(segments > 2, "{segments} segments");
    println!(
        "{} entries, {} pages, {} compactions, overtaken {} times",
        stage.log.local_tail().lsn,
        count(&stage.pages),
        count(&stage.compactions),
        count(&stage.overtaken)
    );
}

#[test]
fn the_feed_keeps_its_promises_while_everybody_works_in_memory() {
    let stage = run(Arc::new(MemoryDisk::new()), Path::new("log"), Duration::from_secs(2));
    check(&stage);
}

#[test]
fn the_feed_keeps_its_promises_while_everybody_works_on_the_real_disk() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("log");
    let stage = run(Arc::new(OsDisk), &dir, Duration::from_secs(2));
    check(&stage);
}
