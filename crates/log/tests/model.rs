//! Model test: random histories compared with a simple model, under faults of disk and process.
//!
//! One seed gives one history. Partitions are written, read, compacted, split, merged, copied and reopened, while
//! syncs fail, the disk fills up and power cuts occur. After each step that changes more than the end of the log,
//! everything is compared with the model. A failure names its seed:
//! `HEADWATER_SEED=<seed> cargo test -p headwater-log --test model` runs that seed alone, and
//! `HEADWATER_SEEDS=<from>..<to>` runs a range of seeds.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_log::disk::{Disk, MemoryDisk};
use headwater_log::{
    Ancestor, AppendError, CompactionPolicy, Durability, LocalLog, LogOptions, Opened, Tail,
    invariants,
};
use headwater_model::{Epk, KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::Random;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::checks::{self, check_all, check_position_before, check_read, check_record};
use support::history::{History, Sent, Sizes};

const STEPS: usize = 70;

fn seeds(count: u64) -> Vec<u64> {
    if let Ok(seed) = std::env::var("HEADWATER_SEED") {
        return vec![seed.parse().unwrap()];
    }
    if let Ok(range) = std::env::var("HEADWATER_SEEDS") {
        let (from, to) = range.split_once("..").unwrap();
        return (from.parse().unwrap()..to.parse().unwrap()).collect();
    }
    (0..count).collect()
}

#[test]
fn a_log_says_what_was_written_to_it() {
    for seed in seeds(120) {
        run(seed, Durability::Fsync);
    }
}

/// Without a sync per group a power cut may lose the newest entries, but never older ones, and never entries that
/// compaction or a checkpoint relied on.
#[test]
fn a_log_without_syncs_loses_only_its_end() {
    for seed in seeds(80) {
        run(seed, Durability::Os);
    }
}

fn run(seed: u64, durability: Durability) {
    let told = std::panic::catch_unwind(|| {
        let mut world = World::new(seed, durability);
        for _ in 0..STEPS {
            world.step();
        }
        world.check_everything();
    });
    if let Err(panic) = told {
        eprintln!("{durability:?}: failed with HEADWATER_SEED={seed}");
        std::panic::resume_unwind(panic);
    }
}

/// One partition: its log and the expected history.
struct Partition {
    dir: PathBuf,
    log: Arc<LocalLog>,
    history: History,
    /// A group that was sent, but neither acknowledged nor rejected.
    undecided: Option<Sent>,
    /// The log is known to be synced up to here; only used without a sync per group.
    synced: Lsn,
}

struct World {
    random: Random,
    disk: MemoryDisk,
    options: LogOptions,
    sizes: Sizes,
    partitions: Vec<Partition>,
    next_partition: u32,
    now_millis: u64,
    /// The newest retention time used: everything written from then on must be kept.
    retain_from: Timestamp,
}

impl World {
    fn new(seed: u64, durability: Durability) -> World {
        let mut random = Random::seeded(seed);
        let disk = MemoryDisk::with_faults();
        let options = LogOptions {
            durability,
            segment_bytes: *random.pick(&[2 << 10, 3 << 10, 4 << 10, 8 << 10]),
            ring_bytes: *random.pick(&[0, 500, 4 << 10, 1 << 20]),
            ..LogOptions::default()
        };
        let sizes = Sizes {
            keys: *random.pick(&[4, 30, 200]),
            entries: *random.pick(&[1, 4, 10]),
            records: *random.pick(&[1, 4]),
            body: *random.pick(&[20, 200]),
        };
        let dir = PathBuf::from("1");
        let log = support::create(&disk, &dir, 1, &options).log;
        let history = History::new(PartitionId::new(1), KeyRange::full(), log.local_tail());
        let first = Partition { dir, log, history, undecided: None, synced: Lsn::ZERO };
        World {
            random,
            disk,
            options,
            sizes,
            partitions: vec![first],
            next_partition: 2,
            now_millis: 1_000_000,
            retain_from: Timestamp::from_millis(0),
        }
    }

    fn step(&mut self) {
        let index = self.random.index(self.partitions.len());
        match self.random.below(100) {
            0..50 => self.append(index),
            50..62 => self.read(index),
            62..70 => self.compact(index),
            70..74 => self.checkpoint(index),
            74..78 => self.reopen(index),
            78..83 => self.power_cut(index),
            83..87 => self.failed_sync(index),
            87..91 => self.full_disk(index),
            91..94 => self.lose_derived_files(index),
            94..97 => self.restore_snapshot(index),
            97..99 => self.split(index),
            _ => self.merge(),
        }
    }

    fn now(&mut self) -> Timestamp {
        self.now_millis += self.random.below(3000);
        // The clock sometimes jumps back; the log's time must not.
        let back = if self.random.chance(10) { self.random.below(5000) } else { 0 };
        Timestamp::from_millis(self.now_millis - back)
    }

    fn check_everything(&mut self) {
        self.decide_all();
        for partition in &self.partitions {
            check_all(&partition.log, &partition.history);
        }
    }

    fn check(&self, index: usize) {
        let partition = &self.partitions[index];
        check_all(&partition.log, &partition.history);
    }

    // --- writing ---

    /// Sends a group. If its outcome is unknown, it stays in `undecided` until the log is reopened.
    fn send(&mut self, index: usize) -> Result<(), AppendError> {
        let now = self.now();
        let partition = &mut self.partitions[index];
        assert!(partition.undecided.is_none());
        let sent = partition.history.random_group(&mut self.random, now, self.sizes);
        let answer = support::append(&partition.log, &sent.group);
        match &answer {
            Ok(()) => partition.history.acknowledge(&sent, sent.group.tail()),
            Err(AppendError::Poisoned | AppendError::Io(_)) => partition.undecided = Some(sent),
            Err(_) => {}
        }
        answer
    }

    fn append(&mut self, index: usize) {
        for _ in 0..1 + self.random.below(6) {
            self.send(index).unwrap();
        }
        let partition = &self.partitions[index];
        assert_eq!(partition.log.local_tail(), partition.history.tail);
    }

    /// Checks that a group for a taken slot is rejected without effect.
    fn conflict(&mut self, index: usize) {
        let now = self.now();
        let partition = &self.partitions[index];
        let late = partition.history.random_group(&mut self.random, now, self.sizes);
        self.append(index);
        let partition = &self.partitions[index];
        if late.group.bytes().is_empty() || late.group.after() == partition.history.tail {
            return;
        }
        let answer = support::append(&partition.log, &late.group);
        assert!(matches!(answer, Err(AppendError::Conflict { .. })), "{answer:?}");
    }

    // --- reading ---

    fn read(&mut self, index: usize) {
        if self.random.chance(20) {
            self.conflict(index);
        }
        let partition = &self.partitions[index];
        for _ in 0..8 {
            let range = self.random.chance(40).then(|| checks::random_range(&mut self.random));
            let request =
                checks::random_request(&mut self.random, &partition.history, range.as_ref());
            check_read(&partition.log, &partition.history, &request);
        }
        let live = partition.history.live();
        for _ in 0..8.min(partition.history.facts.len()) {
            let fact = self.random.pick(&partition.history.facts);
            if !fact.epk().is_empty() {
                check_record(&partition.log, fact, live.contains(&fact.position));
            }
        }
        let times = self.now_millis - 990_000 + 10_000;
        let time = Timestamp::from_millis(990_000 + self.random.below(times));
        check_position_before(&partition.log, &partition.history, time);
    }

    // --- compaction and checkpoints ---

    fn policy(&mut self) -> CompactionPolicy {
        let age = *self.random.pick(&[0, 10_000, 60_000, u64::MAX]);
        let policy = CompactionPolicy {
            retain_from: Timestamp::from_millis(self.now_millis.saturating_sub(age) + 1),
            history_bytes_max: *self.random.pick(&[u64::MAX, u64::MAX, u64::MAX, 2_000, 0]),
            dead_percent: *self.random.pick(&[0, 10, 50, 90]),
        };
        let bounded = policy.history_bytes_max < u64::MAX;
        let from = if bounded { Timestamp::from_millis(u64::MAX) } else { policy.retain_from };
        self.retain_from = self.retain_from.max(from);
        policy
    }

    fn compact(&mut self, index: usize) {
        let policy = self.policy();
        let partition = &self.partitions[index];
        let before = partition.log.complete_after();
        let mut rounds = 0;
        while partition.log.compact(&policy).unwrap().is_some() {
            rounds += 1;
            assert!(rounds < 1000, "compaction does not terminate");
        }
        let complete_after = partition.log.complete_after();
        assert_eq!(invariants::position_moves_forward(before, complete_after), Ok(()));
        // Merged-in entries may be before the position; entries that this compaction passed must be old enough.
        for fact in partition.history.between(before, complete_after) {
            let time = fact.timestamp;
            assert!(time < self.retain_from, "{:?} was to be retained", fact.position);
        }
        self.check(index);
    }

    fn checkpoint(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        partition.log.checkpoint().unwrap();
        partition.synced = partition.history.tail.lsn;
    }

    // --- reopening ---

    fn open(&self, index: usize) -> Opened {
        let partition = &self.partitions[index];
        let number = partition.history.partition.get();
        let opened = support::open(&self.disk, &partition.dir, number, &self.options);
        let opened = opened.unwrap_or_else(|error| panic!("{}: {error}", partition.dir.display()));
        checks::restore_liveness(&opened);
        opened
    }

    fn reopen(&mut self, index: usize) {
        if self.random.chance(50) {
            self.checkpoint(index);
        }
        self.partitions[index].log = self.open(index).log;
        self.check(index);
    }

    /// Reopens the log and resolves the outcome of the undecided group.
    fn decide(&mut self, index: usize, crashed: bool) {
        let opened = self.open(index);
        let relaxed = self.options.durability == Durability::Os;
        let partition = &mut self.partitions[index];
        partition.log = opened.log;
        let found = partition.log.local_tail();
        let acknowledged = match crashed && relaxed {
            true => partition.synced,
            false => partition.history.tail.lsn,
        };
        let undecided = partition.undecided.take();
        let sent =
            undecided.as_ref().map_or(partition.history.tail.lsn, |sent| sent.group.tail().lsn);
        assert_eq!(invariants::tail_survives_crash(acknowledged, sent, found.lsn), Ok(()));
        if let Some(undecided) = undecided
            && found.lsn > partition.history.tail.lsn
        {
            partition.history.acknowledge(&undecided, found);
        } else if found.lsn < partition.history.tail.lsn {
            partition.history.cut_back(found);
        }
        // Recovery makes every entry durable before it is visible.
        partition.synced = found.lsn;
        self.check(index);
    }

    fn decide_all(&mut self) {
        for index in 0..self.partitions.len() {
            if self.partitions[index].undecided.is_some()
                || self.partitions[index].log.is_poisoned()
            {
                self.decide(index, false);
            }
        }
    }

    /// Cuts the power and reopens every partition.
    fn crash(&mut self) {
        self.disk.crash(&mut self.random);
        for index in 0..self.partitions.len() {
            self.decide(index, true);
        }
    }

    // --- faults ---

    /// Cuts the power in the middle of an operation.
    fn power_cut(&mut self, index: usize) {
        self.disk.cut_power_after(self.random.below(40));
        match self.random.below(10) {
            0..6 => while self.send(index).is_ok() && !self.disk.is_out_of_power() {},
            6..9 => {
                let policy = self.policy();
                let log = &self.partitions[index].log;
                while let Ok(Some(_)) = log.compact(&policy) {}
            }
            _ => {
                let partition = &mut self.partitions[index];
                if partition.log.checkpoint().is_ok() {
                    partition.synced = partition.history.tail.lsn;
                }
            }
        }
        self.crash();
    }

    fn failed_sync(&mut self, index: usize) {
        self.disk.fail_syncs(true);
        match self.random.below(4) {
            0 => drop(self.partitions[index].log.checkpoint()),
            1 => {
                let policy = self.policy();
                drop(self.partitions[index].log.compact(&policy));
            }
            _ => {
                let answer = self.send(index);
                let empty = answer.is_ok();
                let relaxed = self.options.durability == Durability::Os;
                assert!(empty || self.partitions[index].log.is_poisoned());
                if !empty && !relaxed {
                    let again = support::append(
                        &self.partitions[index].log,
                        &self.partitions[index].undecided.as_ref().unwrap().group,
                    );
                    assert!(matches!(again, Err(AppendError::Poisoned)), "{again:?}");
                }
            }
        }
        self.disk.fail_syncs(false);
        self.decide_all();
        // Sometimes writes continue before the power cut, as if the disk had not failed.
        if self.random.chance(50) {
            self.append(index);
        }
        if self.random.chance(70) {
            self.crash();
        }
    }

    fn full_disk(&mut self, index: usize) {
        self.disk.set_room(self.random.below(4000));
        for _ in 0..4 {
            let before = self.partitions[index].history.tail;
            if let Err(error) = self.send(index) {
                assert!(matches!(error, AppendError::DiskFull), "{error}");
                assert_eq!(self.partitions[index].log.local_tail(), before);
                assert!(!self.partitions[index].log.is_poisoned());
            }
        }
        let policy = self.policy();
        drop(self.partitions[index].log.compact(&policy));
        drop(self.partitions[index].log.checkpoint());
        self.check(index);
        if self.random.chance(30) {
            self.crash();
        }
        self.disk.set_room(u64::MAX);
        self.append(index);
        self.check(index);
    }

    /// Removes files that can be rebuilt.
    fn lose_derived_files(&mut self, index: usize) {
        let dir = self.partitions[index].dir.clone();
        for name in self.disk.list(&dir).unwrap() {
            let derived = name == "LIVENESS" || name.ends_with(".tab");
            if derived && self.random.chance(70) {
                self.disk.remove(&dir.join(name)).unwrap();
            }
        }
        self.disk.sync_dir(&dir).unwrap();
        self.partitions[index].log = self.open(index).log;
        self.check(index);
    }

    // --- snapshots, splits, merges ---

    fn restore_snapshot(&mut self, index: usize) {
        let snapshot = self.partitions[index].log.snapshot();
        let cut = self.partitions[index].history.clone();
        // The log changes while it is copied.
        self.append(index);
        if self.random.chance(50) {
            self.compact(index);
        }
        let dir = Path::new("restored");
        self.disk.remove_dir(dir).unwrap();
        for file in &snapshot.files {
            let mut bytes = vec![0; usize::try_from(file.len()).unwrap()];
            file.read_at(&mut bytes, 0).unwrap();
            let copy = self.disk.open(&dir.join(&file.name), true).unwrap();
            copy.write_at(&bytes, 0).unwrap();
            copy.sync().unwrap();
        }
        self.disk.sync_dir(dir).unwrap();
        assert_eq!(snapshot.lsn, cut.tail.lsn);
        let number = cut.partition.get();
        let opened = support::open(&self.disk, dir, number, &self.options).unwrap();
        checks::restore_liveness(&opened);
        check_all(&opened.log, &cut);

        // The copy can be compacted and written like any other log.
        let mut history = cut;
        let policy = self.policy();
        while opened.log.compact(&policy).unwrap().is_some() {}
        let now = self.now();
        let sent = history.random_group(&mut self.random, now, self.sizes);
        support::append(&opened.log, &sent.group).unwrap();
        history.acknowledge(&sent, sent.group.tail());
        check_all(&opened.log, &history);
        let opened = support::open(&self.disk, dir, number, &self.options).unwrap();
        checks::restore_liveness(&opened);
        check_all(&opened.log, &history);
    }

    /// Seals a log, and retries after each power cut.
    fn seal(&mut self, index: usize) -> Tail {
        if self.random.chance(20) {
            self.disk.cut_power_after(self.random.below(12));
            drop(self.partitions[index].log.seal());
            self.crash();
        }
        let partition = &self.partitions[index];
        let sealed = partition.log.seal().unwrap();
        assert_eq!(sealed, partition.history.tail.lsn);
        let now = Timestamp::from_millis(self.now_millis);
        let late = partition.history.random_group(&mut self.random, now, self.sizes);
        let refused = support::append(&partition.log, &late.group);
        assert!(matches!(refused, Err(AppendError::Sealed(_))), "{refused:?}");
        check_all(&partition.log, &partition.history);
        partition.history.tail
    }

    /// Creates a partition from others, and retries after each power cut.
    fn inherit(&mut self, ancestors: &[usize], range: &KeyRange) {
        let number = self.next_partition;
        self.next_partition += 1;
        let id = PartitionId::new(number);
        let dir = PathBuf::from(number.to_string());
        let tails = ancestors.iter().map(|index| self.partitions[*index].history.tail);
        let start = tails.clone().map(|tail| tail.lsn).max().unwrap();
        let newest = tails.map(|tail| tail.timestamp).max().unwrap();
        if self.random.chance(30) {
            self.disk.cut_power_after(self.random.below(60));
        }
        let log = loop {
            let from: Vec<Ancestor> = ancestors
                .iter()
                .map(|index| Ancestor {
                    log: self.partitions[*index].log.clone(),
                    range: range.intersect(&self.partitions[*index].history.range).unwrap(),
                })
                .collect();
            let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
            let options = self.options.clone();
            match LocalLog::inherit(disk, &dir, id, &from, start, options, support::runtime()) {
                Ok(opened) => {
                    assert!(!opened.liveness_lost);
                    break opened.log;
                }
                Err(_) => {
                    assert!(self.disk.is_out_of_power());
                    self.crash();
                }
            }
        };
        self.disk.cut_power_after(u64::MAX);
        let tail = Tail { timestamp: newest, ..Tail::start(start) };
        let parents: Vec<&History> =
            ancestors.iter().map(|index| &self.partitions[*index].history).collect();
        let history = History::inherited(id, range.clone(), tail, &parents);
        self.partitions.push(Partition { dir, log, history, undecided: None, synced: start });
        self.check(self.partitions.len() - 1);
    }

    /// Removes inherited partitions and their files.
    fn remove(&mut self, mut indexes: Vec<usize>) {
        indexes.sort_unstable();
        for index in indexes.into_iter().rev() {
            let gone = self.partitions.remove(index);
            self.disk.remove_dir(&gone.dir).unwrap();
            self.disk.sync_dir(&gone.dir).unwrap();
        }
        self.check_everything();
    }

    fn split(&mut self, index: usize) {
        let range = self.partitions[index].history.range.clone();
        let point = Epk::from_bytes(&[support::byte(&mut self.random, 0xF0)]);
        let Ok((lower, upper)) = range.split_at(&point) else {
            return;
        };
        // This test cannot write to a partition without keys.
        let has_keys = |range: &KeyRange| {
            let keys = 1..=u16::try_from(self.sizes.keys).unwrap();
            keys.into_iter().any(|key| range.contains(&support::history::epk(key)))
        };
        if !has_keys(&lower) || !has_keys(&upper) {
            return;
        }
        self.seal(index);
        self.inherit(&[index], &lower);
        self.inherit(&[index], &upper);
        self.remove(vec![index]);
    }

    fn merge(&mut self) {
        let count = self.partitions.len();
        let pairs = (0..count).flat_map(|one| (0..count).map(move |other| (one, other)));
        let joined = |(one, other): &(usize, usize)| {
            let other = &self.partitions[*other].history.range;
            self.partitions[*one].history.range.merge(other).ok()
        };
        let Some((pair, range)) = pairs.filter_map(|pair| Some((pair, joined(&pair)?))).next()
        else {
            return;
        };
        self.seal(pair.0);
        self.seal(pair.1);
        self.inherit(&[pair.0, pair.1], &range);
        self.remove(vec![pair.0, pair.1]);
    }
}
