//! The change feed against a model: random histories, every scope, every page size, both modes.
//!
//! The model is a list of everything that ever happened. What a reader must see follows from it in a
//! few lines: the newest version of every item that is not gone, or every version; in a scope; after a
//! position. Histories write, patch, delete and batch, let items expire on a virtual clock, compact,
//! split, merge, restart, are killed and lose their index. Readers with old positions follow along.
//!
//! One seed is one history. `HEADWATER_SEEDS` says how many, `HEADWATER_SEED` runs one of them.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use bytes::Bytes;
use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Node, Random, Simulation};
use headwater_store::{
    Account, BatchError, Change, ChangeKind, Container, ContainerDefinition, Continuation,
    Environment, Epk, FeedError, FeedMode, FeedStart, Item, ItemWrite, KeyRange, Lsn, MemoryIndex,
    Options, PartitionId, PartitionKey, PartitionKeyDefinition, Patch, RangeInfo, Timestamp,
    WriteError, Written,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{Reader, Scope, Seed, rounds};

// ---- the model

/// Partition key as JSON, and id.
type Name = (String, String);

/// One thing that happened to one item.
#[derive(Clone, Debug)]
struct Version {
    key: PartitionKey,
    id: String,
    epk: Vec<u8>,
    /// Where the log has it. A delete that was compacted away before anyone looked is put where the log
    /// begins to be complete.
    at: (PartitionId, Lsn, u16),
    second: u64,
    expires: Option<u64>,
    /// What the user sent, and the stored bytes; nothing for a delete.
    item: Option<(Value, Bytes)>,
    previous: Option<usize>,
    expiry: bool,
}

impl Version {
    fn name(&self) -> Name {
        (self.key.to_json(), self.id.clone())
    }

    fn lsn(&self) -> Lsn {
        self.at.1
    }

    fn kind(&self) -> ChangeKind {
        match (&self.item, self.previous) {
            (None, _) => ChangeKind::Delete,
            (Some(_), None) => ChangeKind::Create,
            (Some(_), Some(_)) => ChangeKind::Replace,
        }
    }

    fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|second| second <= now)
    }
}

#[derive(Default)]
struct Model {
    versions: Vec<Version>,
    live: BTreeMap<Name, usize>,
}

impl Model {
    fn push(&mut self, version: Version) {
        let name = version.name();
        match version.item {
            Some(_) => self.live.insert(name, self.versions.len()),
            None => self.live.remove(&name),
        };
        self.versions.push(version);
    }

    fn live_versions(&self) -> impl Iterator<Item = &Version> {
        self.live.values().map(|index| &self.versions[*index])
    }

    fn live_value(&self, name: &Name) -> Option<&Value> {
        self.live.get(name).and_then(|index| Some(&self.versions[*index].item.as_ref()?.0))
    }
}

/// A position and where it was taken, as far as a reader can tell.
fn position_of(continuation: &Continuation, epk: &[u8]) -> Option<Lsn> {
    match continuation {
        Continuation::Single(lsn) => Some(*lsn),
        Continuation::Composite { positions, .. } => {
            positions.iter().find(|part| part.range.contains(epk)).map(|part| part.after)
        }
    }
}

// ---- the world

struct World {
    random: Random,
    simulation: Simulation,
    node: Node,
    disk: MemoryDisk,
    index: MemoryIndex,
    options: Options,
    account: Account,
    container: Container,
    levels: bool,
    ttl: Option<i32>,
    retention: Duration,
    model: Model,
    followers: Vec<Follower>,
    /// From here on a time is a place in each of several lanes.
    merged: bool,
    reshaped: bool,
    next_value: u64,
}

/// A reader that keeps its position and a copy of what it has seen.
struct Follower {
    mode: FeedMode,
    position: Continuation,
    copy: BTreeMap<Name, Bytes>,
    started_over: bool,
}

async fn open(node: &Node, disk: &MemoryDisk, index: &MemoryIndex, options: &Options) -> Account {
    let environment = Environment {
        runtime: node.runtime(),
        disk: Arc::new(disk.clone()),
        index: Some(index.clone()),
        wrap_log: None,
    };
    Account::open_in(environment, Path::new("store"), options.clone()).await.unwrap()
}

impl World {
    async fn new(simulation: Simulation) -> World {
        let mut random = simulation.random();
        let mut options = Options::default();
        options.segment_bytes = *random.pick(&[1 << 10, 3 << 10, 20 << 10]);
        options.ring_bytes = *random.pick(&[0, 600, 5_000, 1 << 20]);
        options.maintenance_interval = Duration::ZERO;
        options.compaction_dead_percent = *random.pick(&[1, 25, 60]);
        let levels = random.chance(40);
        let key = if levels {
            PartitionKeyDefinition::multi_hash(&["/t", "/u"]).unwrap()
        } else {
            PartitionKeyDefinition::hash("/t").unwrap()
        };
        let mut definition = ContainerDefinition::with_partition_key("c", &key).unwrap();
        let ttl = *random.pick(&[None, Some(-1), Some(40)]);
        if let Some(seconds) = ttl {
            definition = definition.with_default_ttl(seconds);
        }
        let retention = Duration::from_secs(*random.pick(&[0, 300, 1_000_000]));
        if !retention.is_zero() {
            definition = definition.with_all_versions(retention);
        }
        let (disk, index) = (MemoryDisk::new(), MemoryIndex::default());
        let node = simulation.node();
        let account = open(&node, &disk, &index, &options).await;
        let database = account.create_database("db").await.unwrap();
        let partitions = u32::try_from(1 + random.below(3)).unwrap();
        let container = database.create_container_with(definition, partitions).await.unwrap();
        let mut followers = Vec::new();
        for mode in [FeedMode::LatestVersion, FeedMode::AllVersionsAndDeletes] {
            let position = Continuation::Single(Lsn::ZERO);
            let copy = BTreeMap::new();
            followers.push(Follower { mode, position, copy, started_over: false });
        }
        let model = Model::default();
        World {
            random,
            simulation,
            node,
            disk,
            index,
            options,
            account,
            container,
            levels,
            ttl,
            retention,
            model,
            followers,
            merged: false,
            reshaped: false,
            next_value: 0,
        }
    }

    fn now(&self) -> u64 {
        self.node.runtime().unix_millis() / 1000
    }

    fn key_definition(&self) -> PartitionKeyDefinition {
        self.container.definition().partition_key().clone()
    }

    fn random_key(&mut self) -> PartitionKey {
        let top = format!("t{}", self.random.below(4));
        if self.levels {
            let low = format!("u{}", self.random.below(3));
            [top.as_str(), low.as_str()].into()
        } else {
            top.as_str().into()
        }
    }

    fn random_id(&mut self) -> String {
        self.random.below(7).to_string()
    }

    fn epk(&self, key: &PartitionKey) -> Vec<u8> {
        self.key_definition().epk(key).unwrap().as_bytes().to_vec()
    }

    fn range_of(&self, epk: &[u8]) -> RangeInfo {
        self.container.ranges().into_iter().find(|range| range.range.contains(epk)).unwrap()
    }

    /// What a user might send.
    fn random_item(&mut self, key: &PartitionKey, id: &str) -> Value {
        self.next_value += 1;
        let parts: Value = serde_json::from_str(&key.to_json()).unwrap();
        let mut item = json!({ "id": id, "t": parts[0], "v": self.next_value });
        if self.levels {
            item["u"] = parts[1].clone();
        }
        item["p"] = json!("p".repeat(self.random.index(120)));
        if self.random.chance(30) {
            item["ttl"] = self.random.pick(&[json!(-1), json!(5), json!(60), json!(500)]).clone();
        }
        item
    }

    fn expires(&self, item: &Value, second: u64) -> Option<u64> {
        let default = i64::from(self.ttl?);
        let seconds = item.get("ttl").map_or(default, |ttl| ttl.as_i64().unwrap());
        u64::try_from(seconds).ok().map(|seconds| second + seconds)
    }

    // ---- writing

    /// Notes that an expired item was deleted in front of an operation on it.
    fn bury(&mut self, name: &Name, range: &mut RangeInfo) {
        let now = self.now();
        let Some(index) = self.model.live.get(name).copied() else {
            return;
        };
        let version = &self.model.versions[index];
        if !version.is_expired(now) {
            return;
        }
        range.lsn = range.lsn.next();
        let at = (range.id, range.lsn, 0);
        let buried = Version {
            at,
            second: now,
            expires: None,
            item: None,
            previous: Some(index),
            expiry: true,
            ..version.clone()
        };
        self.model.push(buried);
    }

    /// Notes one effect of a transaction.
    fn note(
        &mut self,
        (key, id): (&PartitionKey, &str),
        at: (PartitionId, Lsn, u16),
        item: Option<(Value, Bytes)>,
    ) {
        let second = self.now();
        let name = (key.to_json(), id.to_owned());
        let previous = self.model.live.get(&name).copied();
        let expires = item.as_ref().and_then(|(value, _)| self.expires(value, second));
        let epk = self.epk(key);
        let (key, id) = (key.clone(), id.to_owned());
        let expiry = false;
        self.model.push(Version { key, id, epk, at, second, expires, item, previous, expiry });
    }

    /// One operation as the model sees it: what the item becomes, or why it is refused.
    fn outcome(&self, step: &Step, name: &Name) -> Result<Option<Value>, &'static str> {
        let present = self.model.live_value(name);
        match (step, present) {
            (Step::Create(_), Some(_)) => Err("exists"),
            (Step::Create(item), None) | (Step::Upsert(item), _) => Ok(Some(item.clone())),
            (Step::Replace(_) | Step::Delete | Step::Patch(_), None) => Err("missing"),
            (Step::Replace(item), Some(_)) => Ok(Some(item.clone())),
            (Step::Delete, Some(_)) => Ok(None),
            (Step::Patch(by), Some(before)) => {
                let mut patched = before.clone();
                let hits = before.get("hits").map_or(0, |hits| hits.as_i64().unwrap());
                patched["hits"] = json!(hits + by);
                Ok(Some(patched))
            }
        }
    }

    async fn write_one(&mut self) {
        let (key, id) = (self.random_key(), self.random_id());
        let step = self.random_step(&key, &id);
        let name = (key.to_json(), id.clone());
        let mut range = self.range_of(&self.epk(&key));
        self.bury(&name, &mut range);
        let expected = self.outcome(&step, &name);
        let written = self.container.write(step.write(&key, &id)).await;
        match (expected, written) {
            (Ok(item), Ok(written)) => {
                range.lsn = range.lsn.next();
                assert_eq!((written.partition, written.lsn), (range.id, range.lsn));
                let item = self.check_written(item, &written, &name);
                self.note((&key, &id), (range.id, range.lsn, 0), item);
            }
            (Err("exists"), Err(WriteError::AlreadyExists { .. })) => {}
            (Err("missing"), Err(WriteError::NotFound { .. })) => {}
            (expected, written) => panic!("{step:?} {name:?}: {expected:?} but {written:?}"),
        }
        assert_eq!(self.range_of(&self.epk(&key)).lsn, range.lsn, "one entry, or none");
    }

    fn check_written(
        &self,
        item: Option<Value>,
        written: &Written,
        name: &Name,
    ) -> Option<(Value, Bytes)> {
        let Some(item) = item else {
            assert_eq!(written.change, Some(ChangeKind::Delete));
            assert!(written.item.is_none());
            return None;
        };
        let replaced = self.model.live.contains_key(name);
        let kind = if replaced { ChangeKind::Replace } else { ChangeKind::Create };
        assert_eq!(written.change, Some(kind));
        let stored = written.item.clone().unwrap();
        assert_eq!(user_part(&stored), item);
        Some((item, stored.feed_bytes().clone()))
    }

    async fn write_batch(&mut self) {
        let key = self.random_key();
        let count = 1 + self.random.index(5);
        let steps: Vec<(String, Step)> = (0..count)
            .map(|_| {
                let id = self.random_id();
                let step = self.random_step(&key, &id);
                (id, step)
            })
            .collect();
        let mut range = self.range_of(&self.epk(&key));
        let names: Vec<Name> = steps.iter().map(|(id, _)| (key.to_json(), id.clone())).collect();
        for name in &names {
            self.bury(name, &mut range);
        }
        let writes = steps.iter().map(|(id, step)| step.write(&key, id)).collect();
        let written = self.container.batch(key.clone(), writes).await;
        // All of it on a copy, which counts if nothing is refused.
        let kept = (self.model.versions.len(), self.model.live.clone());
        let lsn = range.lsn.next();
        let mut refused = None;
        for (ordinal, ((id, step), name)) in steps.iter().zip(&names).enumerate() {
            match self.outcome(step, name) {
                Ok(item) => {
                    let answer = written.as_ref().ok().map(|written| &written[ordinal]);
                    let item = match answer {
                        Some(answer) => self.check_written(item, answer, name),
                        None => item.map(|item| (item, Bytes::new())),
                    };
                    let at = (range.id, lsn, u16::try_from(ordinal).unwrap());
                    self.note((&key, id), at, item);
                }
                Err(why) => {
                    refused = Some((ordinal, why));
                    break;
                }
            }
        }
        match (refused, written) {
            (None, Ok(written)) => {
                range.lsn = lsn;
                assert!(written.iter().all(|one| one.lsn == lsn), "one LSN for all");
            }
            (Some((at, why)), Err(BatchError { index, error })) => {
                assert_eq!(at, index);
                let exists = matches!(error, WriteError::AlreadyExists { .. });
                assert_eq!(why == "exists", exists, "{error}");
                self.model.versions.truncate(kept.0);
                self.model.live = kept.1;
            }
            (refused, written) => panic!("{steps:?}: {refused:?} but {written:?}"),
        }
        assert_eq!(self.range_of(&self.epk(&key)).lsn, range.lsn, "one entry, or none");
    }

    async fn delete_key(&mut self) {
        let key = self.random_key();
        let range = self.range_of(&self.epk(&key));
        let of_key = (key.to_json(), String::new())..(key.to_json() + "~", String::new());
        let ids: Vec<String> =
            self.model.live.range(of_key).map(|((_, id), _)| id.clone()).collect();
        let deleted = self.container.delete_partition_key(key.clone()).await.unwrap();
        assert_eq!(deleted, ids.len());
        for (ordinal, id) in ids.iter().enumerate() {
            let at = (range.id, range.lsn.next(), u16::try_from(ordinal).unwrap());
            self.note((&key, id), at, None);
        }
    }

    fn random_step(&mut self, key: &PartitionKey, id: &str) -> Step {
        match self.random.below(10) {
            0..2 => Step::Create(self.random_item(key, id)),
            2..5 => Step::Upsert(self.random_item(key, id)),
            5..6 => Step::Replace(self.random_item(key, id)),
            6..8 => Step::Delete,
            _ => Step::Patch(1 + i64::try_from(self.random.below(9)).unwrap()),
        }
    }

    // ---- everything else that happens

    async fn maintain(&mut self) {
        let now = self.now();
        let before = self.container.ranges();
        self.account.maintain().await.unwrap();
        let due: Vec<usize> = self
            .model
            .live
            .values()
            .copied()
            .filter(|index| self.model.versions[*index].is_expired(now))
            .collect();
        for (before, after) in before.iter().zip(self.container.ranges()) {
            let due: Vec<usize> = due
                .iter()
                .copied()
                .filter(|index| before.range.contains(&self.model.versions[*index].epk))
                .collect();
            let entries = after.lsn.get() - before.lsn.get();
            assert_eq!(entries, due.len() as u64, "one delete for each expired item");
            let (seen, complete) = self.all_versions_of(after.id, before.lsn).await;
            for index in due {
                let version = self.model.versions[index].clone();
                let found = seen.iter().find(|change| name_of(change) == version.name());
                // Compaction follows at once, and may have taken the delete along.
                let at = match found {
                    Some(change) => (after.id, change.lsn(), 0),
                    None => (after.id, complete, 0),
                };
                assert!(found.is_some() || complete > before.lsn, "{version:?} is not deleted");
                let (item, expires, expiry) = (None, None, true);
                let previous = Some(index);
                let second = now;
                let buried = Version { at, second, expires, item, previous, expiry, ..version };
                self.model.push(buried);
            }
        }
    }

    /// All versions of a range after a position, or after the first one from which they are complete.
    async fn all_versions_of(&self, range: PartitionId, after: Lsn) -> (Vec<Change>, Lsn) {
        let reader = Reader::all_versions(Scope::Range(range), 100);
        let start = |lsn| FeedStart::After(Continuation::Single(lsn));
        match reader.drain(&self.container, start(after)).await {
            Ok((changes, _)) => (changes, after),
            Err(FeedError::BeforeRetention { oldest, .. }) => {
                let (changes, _) = reader.drain(&self.container, start(oldest)).await.unwrap();
                (changes, oldest)
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn split(&mut self) {
        let ranges = self.container.ranges();
        if ranges.len() >= 5 {
            return;
        }
        let parent = self.random.pick(&ranges).clone();
        let children = self.container.split(parent.id, None).await.unwrap();
        for child in &children {
            assert_eq!(child.lsn, parent.lsn.next(), "children go on behind the parent");
            assert!(child.ancestors.contains(&parent.id));
        }
        self.reshaped = true;
        self.check_gone(parent.id).await;
    }

    async fn merge(&mut self) {
        let ranges = self.container.ranges();
        if ranges.len() < 2 {
            return;
        }
        let at = self.random.index(ranges.len() - 1);
        let parents = [&ranges[at], &ranges[at + 1]];
        let merged = self.container.merge(parents[1].id, parents[0].id).await.unwrap();
        let newest = parents.iter().map(|parent| parent.lsn.next()).max().unwrap();
        assert_eq!((merged.len(), merged[0].lsn), (1, newest), "behind both parents");
        (self.merged, self.reshaped) = (true, true);
        for parent in parents {
            self.check_gone(parent.id).await;
        }
    }

    async fn check_gone(&self, id: PartitionId) {
        let reader = Reader::latest(Scope::Range(id), 10);
        let read = reader.drain(&self.container, FeedStart::Beginning).await;
        assert!(matches!(read, Err(FeedError::RangeGone(gone)) if gone == id), "{read:?}");
    }

    async fn restart(&mut self) {
        let before = (self.account.state_hash().unwrap(), self.container.ranges());
        if self.random.chance(60) {
            self.account.close().await.unwrap();
        } else {
            self.node.kill();
        }
        if self.random.chance(30) {
            self.index.clear();
        }
        self.node = self.simulation.node();
        self.account = open(&self.node, &self.disk, &self.index, &self.options).await;
        let database = self.account.database("db").await.unwrap();
        self.container = database.container("c").await.unwrap();
        let after = (self.account.state_hash().unwrap(), self.container.ranges());
        assert_eq!(before, after, "a restart changes nothing");
    }

    async fn step(&mut self) {
        match self.random.below(100) {
            0..50 => self.write_one().await,
            50..60 => self.write_batch().await,
            60..63 => self.delete_key().await,
            63..70 => {
                let seconds = *self.random.pick(&[0, 1, 3, 10, 30, 400]);
                let wait = Duration::from_millis(seconds * 1000 + self.random.below(999));
                self.node.runtime().sleep(wait).await;
            }
            70..76 => self.maintain().await,
            76..79 => self.split().await,
            79..82 => self.merge().await,
            82..85 => self.restart().await,
            85..90 => self.follow().await,
            90..93 => self.check_reads().await,
            93..95 => self.check_time().await,
            _ => self.check_scope().await,
        }
    }

    // ---- checking

    /// A part of the container, and the hashes in it.
    fn random_scope(&mut self) -> (Scope, KeyRange) {
        match self.random.below(5) {
            0 => (Scope::Container, KeyRange::full()),
            1 => {
                let ranges = self.container.ranges();
                let range = self.random.pick(&ranges);
                (Scope::Range(range.id), range.range.clone())
            }
            2 => {
                let key = self.random_key();
                let range = self.key_definition().prefix_range(&key).unwrap();
                (Scope::Key(key), range)
            }
            3 => {
                // Of a hierarchical key, everything below its first level.
                let key = PartitionKey::from(format!("t{}", self.random.below(4)));
                let range = self.key_definition().prefix_range(&key).unwrap();
                (Scope::Key(key), range)
            }
            _ => {
                let mut bound = || {
                    let mut bytes = [0; 16];
                    bytes[..8].copy_from_slice(&(self.random.number() >> 2).to_be_bytes());
                    Epk::from_bytes(&bytes)
                };
                let (one, two) = (bound(), bound());
                let range = KeyRange::new(one.clone().min(two.clone()), one.max(two)).unwrap();
                (Scope::Hashes(range.clone()), range)
            }
        }
    }

    /// What latest-version readers of a scope see behind their positions.
    fn expect_latest(
        &self,
        range: &KeyRange,
        after: impl Fn(&Version) -> bool,
    ) -> BTreeMap<Name, Bytes> {
        let now = self.now();
        let versions = self.model.live_versions();
        versions
            .filter(|version| range.contains(&version.epk) && !version.is_expired(now))
            .filter(|version| after(version))
            .map(|version| (version.name(), version.item.as_ref().unwrap().1.clone()))
            .collect()
    }

    /// Reads a scope in pages of two sizes, from the beginning or from some position.
    async fn check_scope(&mut self) {
        let (scope, range) = self.random_scope();
        let start = match self.random.below(4) {
            0 => FeedStart::Now,
            1 => FeedStart::After(Continuation::Single(self.lowest_lsn(&range))),
            _ => FeedStart::Beginning,
        };
        let small = *self.random.pick(&[1, 2, 3]);
        let mut sequences = Vec::new();
        for page_size in [small, 100] {
            let reader = Reader::latest(scope.clone(), page_size);
            let (changes, end) = reader.drain(&self.container, start.clone()).await.unwrap();
            self.check_latest_changes(&range, &start, &changes);
            self.check_end(&reader, &range, &end).await;
            let single = matches!(end, Continuation::Single(_));
            sequences.push((single, sequence(&changes), end));
        }
        let (small, large) = (&sequences[0], &sequences[1]);
        assert_eq!(small.2, large.2, "{scope:?}: the same end, whatever the page size");
        if small.0 {
            assert_eq!(small.1, large.1, "{scope:?}: the same sequence, whatever the page size");
        }
        self.check_all_versions(&scope, &range).await;
    }

    /// A position that every partition of the scope has passed.
    fn lowest_lsn(&mut self, range: &KeyRange) -> Lsn {
        let ranges = self.container.ranges();
        let overlapping = ranges.iter().filter(|info| info.range.overlaps(range));
        let lowest = overlapping.map(|info| info.lsn.get()).min().unwrap();
        Lsn::new(self.random.below(lowest + 1))
    }

    fn check_latest_changes(&self, range: &KeyRange, start: &FeedStart, changes: &[Change]) {
        let expected = self.expect_latest(range, |version| match start {
            FeedStart::Beginning => true,
            FeedStart::Now => false,
            FeedStart::After(position) => {
                version.lsn() > position_of(position, &version.epk).unwrap()
            }
            FeedStart::Time(time) => version.second >= time.as_seconds(),
        });
        let seen: BTreeMap<Name, Bytes> =
            changes.iter().map(|change| (name_of(change), change.body())).collect();
        assert_eq!(seen.len(), changes.len(), "every item once: {changes:?}");
        assert_eq!(seen, expected, "{start:?} in {range}");
        check_order(changes);
        for change in changes {
            let index = self.model.live[&name_of(change)];
            assert_eq!(change.kind(), self.model.versions[index].kind(), "{change:?}");
        }
    }

    /// At the end there is nothing newer, and asking again does not move the position.
    async fn check_end(&self, reader: &Reader, range: &KeyRange, end: &Continuation) {
        let again = reader.request(FeedStart::After(end.clone()));
        let page = self.container.read_feed(&again).await.unwrap();
        assert!(page.changes.is_empty());
        assert_eq!(&page.continuation, end);
        for info in self.container.ranges() {
            if let Some(part) = info.range.intersect(range) {
                let position = position_of(end, part.min().as_bytes());
                assert_eq!(position, Some(info.lsn), "{reader:?}: the end is the newest change");
            }
        }
    }

    /// Starting at a time shows everything written at or after it.
    async fn check_time(&mut self) {
        let (scope, range) = self.random_scope();
        let second = match self.model.versions.last() {
            Some(_) if self.random.chance(80) => {
                let version = self.random.index(self.model.versions.len());
                self.model.versions[version].second + self.random.below(2)
            }
            _ => self.now() + self.random.below(3),
        };
        let start = FeedStart::Time(Timestamp::from_seconds(second));
        let reader = Reader::latest(scope, *self.random.pick(&[1, 3, 100]));
        let (changes, end) = reader.drain(&self.container, start.clone()).await.unwrap();
        if !self.merged {
            self.check_latest_changes(&range, &start, &changes);
        } else {
            // Where lanes were merged, some earlier changes may come along; none may be missing.
            let seen: BTreeSet<Name> = changes.iter().map(name_of).collect();
            let expected = self.expect_latest(&range, |version| version.second >= second);
            assert!(expected.keys().all(|name| seen.contains(name)), "from {second} in {range}");
            let all = self.expect_latest(&range, |_| true);
            assert!(seen.iter().all(|name| all.contains_key(name)));
        }
        self.check_end(&reader, &range, &end).await;
    }

    /// Every version of a scope, with what was there before it, after a position.
    async fn check_all_versions(&mut self, scope: &Scope, range: &KeyRange) {
        let after = self.lowest_lsn(range);
        let reader = Reader::all_versions(scope.clone(), *self.random.pick(&[1, 2, 5, 100]));
        let start = |lsn| FeedStart::After(Continuation::Single(lsn));
        let (changes, complete) = match reader.drain(&self.container, start(after)).await {
            Ok((changes, end)) => {
                self.check_end(&reader, range, &end).await;
                (changes, after)
            }
            Err(FeedError::BeforeRetention { asked, oldest }) => {
                assert!(oldest > asked && asked == after);
                self.check_may_be_gone(after, oldest, range);
                return;
            }
            Err(error) => panic!("{reader:?}: {error}"),
        };
        let expected: BTreeMap<(PartitionId, Lsn, u16), &Version> = self
            .model
            .versions
            .iter()
            .filter(|version| range.contains(&version.epk) && version.lsn() > complete)
            .map(|version| (version.at, version))
            .collect();
        assert_eq!(changes.len(), expected.len(), "{changes:?} {:?}", expected.keys());
        let mut ordinals: BTreeMap<(PartitionId, Lsn), Vec<&Change>> = BTreeMap::new();
        for change in &changes {
            ordinals.entry((change.partition(), change.lsn())).or_default().push(change);
        }
        for ((origin, lsn), entry) in ordinals {
            let of_entry = (origin, lsn, 0)..=(origin, lsn, u16::MAX);
            let versions: Vec<&&Version> = expected.range(of_entry).map(|(_, one)| one).collect();
            assert_eq!(entry.len(), versions.len(), "{origin} {lsn}");
            for (change, version) in entry.iter().zip(versions) {
                self.check_change(change, version, complete);
            }
        }
        check_order(&changes);
    }

    fn check_change(&self, change: &Change, version: &Version, complete: Lsn) {
        assert_eq!(name_of(change), version.name());
        assert_eq!((change.kind(), change.is_expiry()), (version.kind(), version.expiry));
        assert_eq!(change.timestamp().as_seconds(), version.second, "{change:?}");
        assert_eq!(change.hashed_key(), version.epk);
        let (body, expected) = (change.body(), version.item.as_ref());
        assert_eq!(&body, expected.map_or(&Bytes::new(), |(_, bytes)| bytes));
        let Some(previous) = version.previous.map(|index| &self.model.versions[index]) else {
            assert!(change.previous().is_none() && change.previous_lsn().is_none());
            return;
        };
        assert_eq!(change.previous_lsn(), Some(previous.lsn()));
        let image = &previous.item.as_ref().unwrap().1;
        match change.previous() {
            Some(found) => assert_eq!(found.feed_bytes(), image, "the image before {change:?}"),
            None => assert!(previous.lsn() <= complete, "the image before {change:?} is kept"),
        }
    }

    /// A position is refused only when something behind it is older than what must be kept.
    fn check_may_be_gone(&self, after: Lsn, oldest: Lsn, range: &KeyRange) {
        let kept_from = self.now().saturating_sub(self.retention.as_secs());
        let dropped = |version: &Version| {
            let old = self.retention.is_zero() || version.second <= kept_from;
            let gone = version.item.is_none()
                || self
                    .model
                    .live
                    .get(&version.name())
                    .is_none_or(|index| self.model.versions[*index].at != version.at);
            old && gone && version.lsn() > after && version.lsn() <= oldest
        };
        // A partition has one position up to which it is complete, and so have relatives.
        let ranges = self.container.ranges();
        let in_partition = |version: &&Version| {
            let of_version = ranges.iter().find(|info| info.range.contains(&version.epk)).unwrap();
            self.reshaped || of_version.range.overlaps(range)
        };
        let any = self.model.versions.iter().filter(in_partition).any(dropped);
        assert!(any, "nothing between {after} and {oldest} in {range} had to go");
    }

    /// Readers that were here before go on from where they were.
    async fn follow(&mut self) {
        for number in 0..self.followers.len() {
            let page_size = *self.random.pick(&[1, 4, 100]);
            let (mode, position) =
                (self.followers[number].mode, self.followers[number].position.clone());
            let reader = Reader { scope: Scope::Container, mode, page_size };
            let read = reader.drain(&self.container, FeedStart::After(position.clone())).await;
            let mut copy = std::mem::take(&mut self.followers[number].copy);
            let end = match read {
                Ok((changes, end)) => {
                    if mode == FeedMode::LatestVersion {
                        self.check_latest_changes(
                            &KeyRange::full(),
                            &FeedStart::After(position),
                            &changes,
                        );
                    }
                    let started_over = self.followers[number].started_over;
                    for change in &changes {
                        take_over(&mut copy, change, started_over);
                    }
                    end
                }
                Err(FeedError::BeforeRetention { .. }) => {
                    // As the error says: start over from latest versions, and go on from there.
                    let latest = Reader::latest(Scope::Container, page_size);
                    let read = latest.drain(&self.container, FeedStart::Beginning).await;
                    let (changes, end) = read.unwrap();
                    copy = changes.iter().map(|one| (name_of(one), one.body())).collect();
                    self.followers[number].started_over = true;
                    end
                }
                Err(error) => panic!("{reader:?} after {position}: {error}"),
            };
            let expected = self.expect_latest(&KeyRange::full(), |_| true);
            for (name, bytes) in &expected {
                assert_eq!(copy.get(name), Some(bytes), "{mode:?}: a follower missed {name:?}");
            }
            if mode == FeedMode::AllVersionsAndDeletes {
                let kept = copy.keys().filter(|name| !self.model.live.contains_key(*name));
                assert_eq!(kept.count(), 0, "a follower of all versions knows every delete");
            }
            self.followers[number].copy = copy;
            self.followers[number].position = end;
        }
    }

    /// Point reads and scans say the same as the feed.
    async fn check_reads(&mut self) {
        for _ in 0..5 {
            let (key, id) = (self.random_key(), self.random_id());
            let found = self.container.read(key.clone(), &id).await.unwrap();
            let found = found.map(|item| item.feed_bytes().clone());
            let expected = self
                .expect_latest(&KeyRange::full(), |version| version.key == key && version.id == id);
            assert_eq!(found.as_ref(), expected.values().next());
        }
        let limit = headwater_store::PageLimit::items(10_000).unwrap();
        let scope = headwater_store::ScanScope::Container;
        let page = self.container.scan(&scope, None, limit).await.unwrap();
        let mut seen: Vec<Bytes> =
            page.items.iter().map(|item| item.feed_bytes().clone()).collect();
        let mut expected: Vec<Bytes> =
            self.expect_latest(&KeyRange::full(), |_| true).into_values().collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(Value),
    Upsert(Value),
    Replace(Value),
    Delete,
    Patch(i64),
}

impl Step {
    fn write(&self, key: &PartitionKey, id: &str) -> ItemWrite {
        match self {
            Step::Create(item) => ItemWrite::create(item.to_string()),
            Step::Upsert(item) => ItemWrite::upsert(item.to_string()),
            Step::Replace(item) => ItemWrite::replace(id, item.to_string()),
            Step::Delete => ItemWrite::delete(key.clone(), id),
            Step::Patch(by) => {
                let patch = Patch::new().increment("/hits", *by).unwrap();
                ItemWrite::patch(key.clone(), id, patch)
            }
        }
    }
}

fn name_of(change: &Change) -> Name {
    (change.partition_key().to_json(), change.id().to_owned())
}

fn sequence(changes: &[Change]) -> Vec<(PartitionId, Lsn, Name)> {
    changes.iter().map(|one| (one.partition(), one.lsn(), name_of(one))).collect()
}

/// The item without what the store adds to it.
fn user_part(item: &Item) -> Value {
    let mut value: Value = item.parse().unwrap();
    let members = value.as_object_mut().unwrap();
    for system in ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"] {
        assert!(members.remove(system).is_some(), "{system} is missing");
    }
    value
}

/// Changes of one partition key come in the order in which they happened.
fn check_order(changes: &[Change]) {
    let mut last: BTreeMap<&[u8], Lsn> = BTreeMap::new();
    for change in changes {
        let before = last.insert(change.hashed_key(), change.lsn());
        assert!(before.is_none_or(|before| before <= change.lsn()), "{changes:?}");
    }
}

/// Brings a copy up to date with one change. One that was started over from latest versions has missed
/// items that were expired then and not yet deleted.
fn take_over(copy: &mut BTreeMap<Name, Bytes>, change: &Change, started_over: bool) {
    match change.kind() {
        ChangeKind::Delete => {
            let known = copy.remove(&name_of(change)).is_some();
            assert!(known || started_over, "nobody knew of the item of {change:?}");
        }
        _ => {
            copy.insert(name_of(change), change.body());
        }
    }
}

async fn live_through(simulation: Simulation, steps: u64) -> usize {
    let mut world = World::new(simulation).await;
    for _ in 0..steps {
        world.step().await;
    }
    world.follow().await;
    for _ in 0..6 {
        world.check_scope().await;
        world.check_time().await;
    }
    world.check_reads().await;
    world.account.close().await.unwrap();
    world.model.versions.len()
}

#[test]
fn every_reader_of_every_history_sees_what_the_model_says() {
    let only = std::env::var("HEADWATER_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = rounds("HEADWATER_SEEDS", 60, 1500);
    let range: Vec<u64> = only.map_or_else(|| (0..seeds).collect(), |seed| vec![seed]);
    let mut versions = 0;
    for seed in range {
        let _seed = Seed(seed);
        let simulation = Simulation::new(seed);
        versions += simulation.run(live_through(simulation.clone(), 250));
    }
    assert!(versions > 30, "a history without changes proves nothing");
}
