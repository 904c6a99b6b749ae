//! A feed in memory with splits, merges, both modes and long polling, for tests and simulations.

use super::{Capabilities, Change, FeedSource, Page, ReadRequest, SourceError};
use crate::coverage::PhysicalRange;
use crate::lease::Start;
use crate::namespace::{FeedIdentity, Names};
use crate::position::Position;
use bytes::Bytes;
use headwater_model::{
    Epk, FeedMode, KeyRange, Lsn, PartitionId, PartitionKey, PartitionKeyDefinition,
};
use headwater_runtime::{Bell, BoxFuture, Runtime};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

const PAGE_ITEMS: usize = 100;

/// A feed in memory. Clones share the feed.
#[derive(Clone)]
pub struct MemoryFeed {
    state: Arc<Mutex<State>>,
    runtime: Runtime,
    bell: Bell,
}

struct State {
    rid: u32,
    next_id: u32,
    definition: Option<PartitionKeyDefinition>,
    partitions: Vec<Partition>,
}

impl State {
    fn container(&self) -> String {
        format!("c{}", self.rid)
    }
}

#[derive(Clone)]
struct Partition {
    range: PhysicalRange,
    lsn: u64,
    log: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    lsn: u64,
    key: Epk,
    id: String,
    body: Option<Bytes>,
    created: bool,
    seconds: u64,
}

/// Where a write was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// The range.
    pub partition: PartitionId,
    /// The LSN of the transaction.
    pub lsn: Lsn,
}

impl MemoryFeed {
    /// Creates an empty container, partitioned by `/key`, with this number of ranges.
    #[must_use]
    pub fn new(runtime: Runtime, ranges: u32) -> MemoryFeed {
        // The path is fixed and valid, so the definition always exists.
        let definition = PartitionKeyDefinition::hash("/key").ok();
        let ranges = definition.as_ref().map(|one| one.default_ranges(ranges.max(1)));
        let ranges = ranges.unwrap_or_else(|| vec![KeyRange::full()]);
        let partition = |(id, keys): (u32, KeyRange)| Partition {
            range: PhysicalRange { id: PartitionId::new(id), keys, parents: Vec::new() },
            lsn: 0,
            log: Vec::new(),
        };
        let partitions: Vec<Partition> = (0..).zip(ranges).map(partition).collect();
        let next_id = u32::try_from(partitions.len()).unwrap_or(u32::MAX);
        let state = State { rid: 1, next_id, definition, partitions };
        MemoryFeed { state: Arc::new(Mutex::new(state)), runtime, bell: Bell::default() }
    }

    /// Writes items of one key in one transaction.
    pub fn put(&self, key: &str, items: &[(&str, &str)]) -> Option<Put> {
        let entries = items.iter().map(|(id, text)| {
            let body = serde_json::json!({ "id": id, "key": key, "text": text });
            ((*id).to_owned(), Some(body))
        });
        self.append(key, entries.collect())
    }

    /// Deletes an item.
    pub fn delete(&self, key: &str, id: &str) -> Option<Put> {
        self.append(key, vec![(id.to_owned(), None)])
    }

    fn append(&self, key: &str, items: Vec<(String, Option<serde_json::Value>)>) -> Option<Put> {
        let seconds = self.runtime.unix_millis() / 1000;
        let mut state = self.state.lock();
        let parsed = PartitionKey::parse(&serde_json::json!([key]).to_string()).ok()?;
        let epk = state.definition.as_ref()?.epk(&parsed).ok()?;
        let find = |partition: &&mut Partition| partition.range.keys.contains(epk.as_bytes());
        let partition = state.partitions.iter_mut().find(find)?;
        partition.lsn += 1;
        let lsn = partition.lsn;
        for (id, body) in items {
            let known = partition.log.iter().rev().find(|entry| entry.key == epk && entry.id == id);
            let created = known.is_none_or(|entry| entry.body.is_none());
            let body = body.map(|mut body| {
                body["_lsn"] = lsn.into();
                body["_ts"] = seconds.into();
                Bytes::from(body.to_string())
            });
            partition.log.push(Entry { lsn, key: epk.clone(), id, body, created, seconds });
        }
        let put = Put { partition: partition.range.id, lsn: Lsn::new(lsn) };
        drop(state);
        self.bell.ring();
        Some(put)
    }

    /// Splits a range in its middle. Returns false if it does not exist or is too narrow.
    pub fn split(&self, id: PartitionId) -> bool {
        let mut state = self.state.lock();
        let Some(index) = state.partitions.iter().position(|one| one.range.id == id) else {
            return false;
        };
        let parent = state.partitions[index].clone();
        let halves = crate::coverage::parts(&parent.range.keys, 2);
        if halves.len() < 2 {
            return false;
        }
        let children: Vec<Partition> = halves
            .into_iter()
            .map(|keys| {
                let id = PartitionId::new(state.next_id);
                state.next_id += 1;
                let inside = |entry: &&Entry| keys.contains(entry.key.as_bytes());
                let log = parent.log.iter().filter(inside).cloned().collect();
                let range = PhysicalRange { id, keys, parents: ancestors(&parent.range) };
                Partition { range, lsn: parent.lsn + 1, log }
            })
            .collect();
        state.partitions.splice(index..=index, children);
        drop(state);
        self.bell.ring();
        true
    }

    /// Merges a range with the next higher one. Returns false if there is none.
    pub fn merge(&self, id: PartitionId) -> bool {
        let mut state = self.state.lock();
        let found = state.partitions.iter().position(|one| one.range.id == id);
        let Some(index) = found.filter(|index| index + 1 < state.partitions.len()) else {
            return false;
        };
        let (low, high) = (state.partitions[index].clone(), state.partitions[index + 1].clone());
        let Ok(keys) = low.range.keys.merge(&high.range.keys) else {
            return false;
        };
        let mut log = [low.log, high.log].concat();
        log.sort_by_key(|entry| entry.lsn);
        let id = PartitionId::new(state.next_id);
        state.next_id += 1;
        let parents = [ancestors(&low.range), ancestors(&high.range)].concat();
        let range = PhysicalRange { id, keys, parents };
        let merged = Partition { range, lsn: low.lsn.max(high.lsn) + 1, log };
        state.partitions.splice(index..=index + 1, [merged]);
        drop(state);
        self.bell.ring();
        true
    }

    /// Drops the container and creates an empty one with the same name.
    pub fn recreate(&self) {
        let mut state = self.state.lock();
        state.rid += 1;
        let full = KeyRange::full();
        let range = PhysicalRange { id: PartitionId::new(0), keys: full, parents: Vec::new() };
        state.partitions = vec![Partition { range, lsn: 0, log: Vec::new() }];
        drop(state);
        self.bell.ring();
    }

    /// Returns the newest version of every existing item: its hashed key, its id, its LSN.
    #[must_use]
    pub fn live(&self) -> Vec<(Epk, String, Lsn)> {
        let state = self.state.lock();
        let mut newest: BTreeMap<(Epk, String), (u64, bool)> = BTreeMap::new();
        for entry in state.partitions.iter().flat_map(|partition| &partition.log) {
            let item = (entry.key.clone(), entry.id.clone());
            newest.insert(item, (entry.lsn, entry.body.is_some()));
        }
        let live = newest.into_iter().filter(|(_, (_, alive))| *alive);
        live.map(|((key, id), (lsn, _))| (key, id, Lsn::new(lsn))).collect()
    }

    fn read_now(&self, request: &ReadRequest) -> Result<Page, SourceError> {
        let state = self.state.lock();
        if request.container.as_ref().is_some_and(|rid| *rid != state.container()) {
            return Err(SourceError::Gone("it was recreated".to_owned()));
        }
        let overlapping = |one: &&Partition| one.range.keys.overlaps(&request.range);
        let mut found = state.partitions.iter().filter(overlapping);
        let (Some(partition), None) = (found.next(), found.next()) else {
            return Err(SourceError::RangeGone);
        };
        let after = match &request.from {
            Start::Beginning => 0,
            Start::Now => partition.lsn,
            Start::Time(time) => {
                let before = |entry: &&Entry| entry.seconds < time.as_seconds();
                partition.log.iter().take_while(before).map(|entry| entry.lsn).max().unwrap_or(0)
            }
            Start::Position(position) => {
                let lsn = position.lsn();
                lsn.ok_or_else(|| SourceError::PositionLost(position.to_string()))?.get()
            }
        };
        if after > partition.lsn {
            return Err(SourceError::PositionLost(format!("{after} of {}", partition.lsn)));
        }
        let wanted =
            |entry: &&Entry| entry.lsn > after && request.range.contains(entry.key.as_bytes());
        let entries: Vec<&Entry> = partition.log.iter().filter(wanted).collect();
        let visible: Vec<&Entry> = match request.mode {
            FeedMode::AllVersionsAndDeletes => entries,
            FeedMode::LatestVersion => {
                let mut newest: BTreeMap<(&Epk, &str), u64> = BTreeMap::new();
                for entry in &entries {
                    newest.insert((&entry.key, &entry.id), entry.lsn);
                }
                let is_newest = |entry: &&Entry| {
                    entry.body.is_some() && newest[&(&entry.key, entry.id.as_str())] == entry.lsn
                };
                entries.into_iter().filter(is_newest).collect()
            }
        };
        let limit =
            request.items_max.and_then(|max| usize::try_from(max).ok()).unwrap_or(PAGE_ITEMS);
        let mut count = visible.len().min(limit.max(1));
        // A page never ends inside a transaction.
        while count > 0 && count < visible.len() && visible[count].lsn == visible[count - 1].lsn {
            count += 1;
        }
        let reached = if count < visible.len() { visible[count - 1].lsn } else { partition.lsn };
        let changes = visible[..count].iter().map(|entry| change(entry, request.mode)).collect();
        Ok(Page {
            changes,
            position: Position::after(Lsn::new(reached)),
            newest: Some(Lsn::new(partition.lsn)),
            charge: 1.0,
            activity: None,
        })
    }
}

fn ancestors(range: &PhysicalRange) -> Vec<PartitionId> {
    let mut all = range.parents.clone();
    all.push(range.id);
    all
}

fn change(entry: &Entry, mode: FeedMode) -> Change {
    let key = xxh3_64(entry.key.as_bytes());
    let body = match (mode, &entry.body) {
        (FeedMode::LatestVersion, body) => body.clone().unwrap_or_default(),
        (FeedMode::AllVersionsAndDeletes, body) => {
            let current = body
                .as_ref()
                .and_then(|body| serde_json::from_slice::<serde_json::Value>(body).ok());
            let kind = match (&entry.body, entry.created) {
                (None, _) => "delete",
                (Some(_), true) => "create",
                (Some(_), false) => "replace",
            };
            let envelope = serde_json::json!({
                "current": current.unwrap_or_else(|| serde_json::json!({})),
                "metadata": { "operationType": kind, "lsn": entry.lsn, "crts": entry.seconds, "id": entry.id },
            });
            Bytes::from(envelope.to_string())
        }
    };
    Change::new(body, Lsn::new(entry.lsn), entry.seconds, key)
}

impl FeedSource for MemoryFeed {
    fn identity(&self) -> BoxFuture<Result<FeedIdentity, SourceError>> {
        let rid = self.state.lock().container();
        let database = Names { rid: "d1".to_owned(), id: "db".to_owned() };
        let container = Names { rid, id: "feed".to_owned() };
        let identity = FeedIdentity::new("memory", database, container, vec!["/key".to_owned()]);
        Box::pin(async move { Ok(identity) })
    }

    fn ranges(&self, _refresh: bool) -> BoxFuture<Result<Vec<PhysicalRange>, SourceError>> {
        let ranges = self.state.lock().partitions.iter().map(|one| one.range.clone()).collect();
        Box::pin(async move { Ok(ranges) })
    }

    fn read(&self, mut request: ReadRequest) -> BoxFuture<Result<Page, SourceError>> {
        let feed = self.clone();
        Box::pin(async move {
            let until = feed.runtime.elapsed() + request.wait;
            loop {
                let mut bell = feed.bell.listen();
                let page = feed.read_now(&request)?;
                let left = until.saturating_sub(feed.runtime.elapsed());
                if !page.changes.is_empty() || left.is_zero() {
                    return Ok(page);
                }
                request.from = Start::Position(page.position);
                let _ = feed.runtime.timeout(left, bell.rang()).await;
            }
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { parts: true, any_lsn: true, waits: true }
    }
}
