//! Writers that record their writes and the answers.
//!
//! Most items belong to one writer, which knows their contents. If an outcome is unknown (the server was
//! killed before its answer), the writer never changes the item again, so only the last link of its chain is
//! open. A few items are shared: those are only changed with an etag condition.

use crate::judge::{Item, Kind, Print, Write};
use crate::world::{PARTITION_KEYS, World};
use hdrhistogram::Histogram;
use headwater_client::{Batch, ClientError, Container, Precondition, Reason, Stored};
use headwater_model::PartitionKey;
use headwater_runtime::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Number of items above which a writer deletes instead of creating.
const ITEMS_MAX: usize = 80;
const SHARED_ITEMS: u64 = 4;

/// The record of a writer.
pub(crate) struct Written {
    pub(crate) writes: Vec<Write>,
    pub(crate) micros: Histogram<u64>,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
}

/// A version that a writer knows to exist.
#[derive(Clone, Debug)]
struct Version {
    body: Value,
    etag: String,
}

impl Version {
    fn print(&self) -> Print {
        print(&self.body)
    }
}

#[derive(Clone, Debug)]
struct Owned {
    item: Item,
    there: Option<Version>,
}

struct Writer {
    world: Arc<World>,
    random: Random,
    number: u64,
    stamps: u64,
    batches: u64,
    items: Vec<Owned>,
    written: Written,
}

/// The outcome of a request.
enum Told<T> {
    Done(T),
    Refused(Reason),
    /// It may have taken effect, or not.
    Unknown,
    /// It was not sent.
    Nobody,
}

/// Returns the fingerprint of a version, without the properties that the server adds.
pub(crate) fn print(body: &Value) -> Print {
    let mut hasher = DefaultHasher::new();
    let own = body.as_object().into_iter().flatten().filter(|(name, _)| !name.starts_with('_'));
    let own: BTreeMap<&String, String> =
        own.map(|(name, value)| (name, value.to_string())).collect();
    own.hash(&mut hasher);
    hasher.finish()
}

pub(crate) fn bare(etag: &str) -> String {
    etag.trim_matches('"').to_owned()
}

pub(crate) fn partition_key(key: &str) -> PartitionKey {
    PartitionKey::parse(&json!([key]).to_string()).unwrap()
}

pub(crate) fn key_name(index: usize) -> String {
    format!("k{index}")
}

/// Writes until writing is over.
pub(crate) async fn write(world: Arc<World>, number: u64, seed: u64) -> Written {
    let written =
        Written { writes: Vec::new(), micros: Histogram::new(3).unwrap(), refused: 0, unknown: 0 };
    let random = Random::seeded(seed);
    let mut writer =
        Writer { world, random, number, stamps: 0, batches: 0, items: Vec::new(), written };
    while !writer.world.is_over() {
        writer.step().await;
        let pause = writer.random.below(8);
        writer.world.pause(pause).await;
    }
    writer.written
}

impl Writer {
    async fn step(&mut self) {
        match self.random.below(100) {
            0..15 => self.create().await,
            15..30 => self.upsert().await,
            30..48 => self.replace().await,
            48..60 => self.patch().await,
            60..70 => self.delete().await,
            70..85 => self.batch().await,
            85..95 => self.share().await,
            _ => self.ask_for_what_cannot_be().await,
        }
    }

    fn body(&mut self, item: &Item, more: &[(&str, Value)]) -> Value {
        self.stamps += 1;
        let size = match self.random.below(100) {
            0..80 => self.random.index(200),
            80..98 => self.random.index(4_000),
            _ => self.random.index(100_000),
        };
        let filling = *self.random.pick(&["x", "ü", "\"\\\n", "漢字", "\u{1}"]);
        let mut body = json!({
            "id": item.1,
            "pk": item.0,
            "stamp": format!("{}-{}", self.number, self.stamps),
            "n": self.random.below(1000),
            "filling": filling.repeat(size / filling.len()),
        });
        for (name, value) in more {
            body[*name] = value.clone();
        }
        body
    }

    fn new_item(&mut self) -> Item {
        self.stamps += 1;
        let key = key_name(self.random.index(PARTITION_KEYS));
        (key, format!("{}-{}", self.number, self.stamps))
    }

    /// Picks one of the existing items. Returns its index.
    fn existing(&mut self) -> Option<usize> {
        let there: Vec<usize> =
            (0..self.items.len()).filter(|at| self.items[*at].there.is_some()).collect();
        (!there.is_empty()).then(|| *self.random.pick(&there))
    }

    fn precondition(&mut self, etag: &str) -> Precondition {
        match self.random.chance(40) {
            true => Precondition::IfMatch(etag.to_owned()),
            false => Precondition::None,
        }
    }

    async fn create(&mut self) {
        if self.items.len() >= ITEMS_MAX {
            return self.delete().await;
        }
        let item = self.new_item();
        let body = self.body(&item, &[]);
        let told = self
            .ask(async |container| {
                container.create(&partition_key(&item.0), body.to_string()).await
            })
            .await;
        let owned = Owned { item, there: None };
        self.settle_body(owned, Kind::Create, body, told);
    }

    async fn upsert(&mut self) {
        // An item that was deleted may come back, or one that exists be replaced.
        let Some(at) = (!self.items.is_empty()).then(|| self.random.index(self.items.len())) else {
            return self.create().await;
        };
        let owned = self.items.swap_remove(at);
        let kind = if owned.there.is_some() { Kind::Replace } else { Kind::Create };
        let body = self.body(&owned.item, &[]);
        let condition = match owned.there.clone() {
            Some(there) => self.precondition(&there.etag),
            None => Precondition::None,
        };
        let key = partition_key(&owned.item.0);
        let told = self
            .ask(async |container| container.upsert(&key, body.to_string(), &condition).await)
            .await;
        self.settle_body(owned, kind, body, told);
    }

    async fn replace(&mut self) {
        let Some(at) = self.existing() else { return self.create().await };
        let owned = self.items.swap_remove(at);
        let body = self.body(&owned.item, &[]);
        let etag = owned.there.as_ref().map(|there| there.etag.clone()).unwrap_or_default();
        let condition = self.precondition(&etag);
        let (key, id) = (partition_key(&owned.item.0), owned.item.1.clone());
        let told = self
            .ask(async |container| container.replace(&key, &id, body.to_string(), &condition).await)
            .await;
        self.settle_body(owned, Kind::Replace, body, told);
    }

    async fn patch(&mut self) {
        let Some(at) = self.existing() else { return self.create().await };
        let owned = self.items.swap_remove(at);
        let Some(there) = owned.there.clone() else { return };
        let (patch, body) = self.patched(&there.body);
        let condition = self.precondition(&there.etag);
        let (key, id) = (partition_key(&owned.item.0), owned.item.1.clone());
        let told = self
            .ask(async |container| container.patch(&key, &id, patch.to_string(), &condition).await)
            .await;
        self.settle_body(owned, Kind::Replace, body, told);
    }

    /// Creates a patch, and its result on a body.
    fn patched(&mut self, body: &Value) -> (Value, Value) {
        self.stamps += 1;
        let stamp = format!("{}-{}", self.number, self.stamps);
        let by = self.random.below(50);
        let mut after = body.clone();
        after["stamp"] = json!(stamp);
        after["n"] = json!(body["n"].as_u64().unwrap_or(0) + by);
        let operations = json!([
            {"op": "set", "path": "/stamp", "value": stamp},
            {"op": "incr", "path": "/n", "value": by},
        ]);
        (json!({ "operations": operations }), after)
    }

    async fn delete(&mut self) {
        let Some(at) = self.existing() else { return };
        let mut owned = self.items.swap_remove(at);
        let Some(there) = owned.there.take() else { return };
        let condition = self.precondition(&there.etag);
        let (key, id) = (partition_key(&owned.item.0), owned.item.1.clone());
        let told = self.ask(async |container| container.delete(&key, &id, &condition).await).await;
        let write = self.deletion(&owned.item, &there);
        match told {
            Told::Done(()) => {
                self.record(Write { acknowledged: true, ..write });
                // Sometimes the id is used again later.
                if self.random.chance(50) {
                    self.items.push(owned);
                }
            }
            Told::Unknown => self.record(write),
            Told::Refused(reason) => {
                self.complain("delete", &owned.item, reason);
            }
            Told::Nobody => self.items.push(Owned { there: Some(there), ..owned }),
        }
    }

    fn deletion(&self, item: &Item, there: &Version) -> Write {
        Write {
            item: item.clone(),
            kind: Kind::Delete,
            after: Some(there.print()),
            made: None,
            etag: None,
            batch: None,
            acknowledged: false,
        }
    }

    /// Records the outcome of a write with a body to an item of this writer.
    fn settle_body(&mut self, owned: Owned, kind: Kind, body: Value, told: Told<Stored>) {
        let write = Write {
            item: owned.item.clone(),
            kind,
            after: owned.there.as_ref().map(Version::print),
            made: Some(print(&body)),
            etag: None,
            batch: None,
            acknowledged: false,
        };
        match told {
            Told::Done(stored) => {
                self.record(Write { etag: Some(bare(&stored.etag)), acknowledged: true, ..write });
                self.items
                    .push(Owned { there: Some(Version { body, etag: stored.etag }), ..owned });
            }
            Told::Unknown => self.record(write),
            Told::Refused(reason) => self.complain("write", &owned.item, reason),
            Told::Nobody if kind == Kind::Create && owned.there.is_none() => {}
            Told::Nobody => self.items.push(owned),
        }
    }

    /// Performs a batch of writes of one key, sometimes with an operation that must fail.
    async fn batch(&mut self) {
        let key = key_name(self.random.index(PARTITION_KEYS));
        let count = 2 + self.random.index(4);
        let fails = self.random.chance(15);
        let mut batch = Batch::new(partition_key(&key));
        let mut writes = Vec::new();
        let mut after = Vec::new();
        self.batches += 1;
        let number = self.number * 1_000_000 + self.batches;
        for _ in 0..count {
            let mine = self.items.iter().position(|owned| owned.item.0 == key);
            let owned = match mine.filter(|_| self.random.chance(60)) {
                Some(at) => self.items.swap_remove(at),
                None => {
                    let id = self.new_item().1;
                    Owned { item: (key.clone(), id), there: None }
                }
            };
            let (next, write, there) = self.batch_operation(batch, &owned);
            batch = next;
            writes.push(Write { batch: Some(number), ..write });
            after.push((owned, there));
        }
        if fails {
            batch = batch.delete("there is no such item", None);
        }
        let told = self.ask(async |container| container.batch(batch.clone()).await).await;
        match told {
            Told::Done(outcome) if outcome.committed && !fails => {
                for (at, (write, (owned, body))) in writes.into_iter().zip(after).enumerate() {
                    let etag = outcome.operations.get(at).and_then(|one| one.etag.clone());
                    let told = etag.clone().filter(|_| write.made.is_some());
                    let told = told.map(|etag| bare(&etag));
                    self.record(Write { acknowledged: true, etag: told, ..write });
                    let there = body.map(|body| Version { body, etag: etag.unwrap_or_default() });
                    self.items.push(Owned { there, ..owned });
                }
            }
            Told::Done(outcome) if !outcome.committed && fails => {
                self.written.refused += 1;
                self.items.extend(after.into_iter().map(|(owned, _)| owned));
            }
            Told::Done(outcome) => {
                let committed = outcome.committed;
                self.world.complain(format!("batch {number}: {committed} instead of {}", !fails));
            }
            // With a failing operation, no part of the batch may take effect.
            Told::Unknown if fails => {}
            Told::Unknown => writes.into_iter().for_each(|write| self.record(write)),
            Told::Refused(reason) => {
                self.world.complain(format!("batch {number} was refused: {reason:?}"));
            }
            Told::Nobody => self.items.extend(after.into_iter().map(|(owned, _)| owned)),
        }
    }

    /// Creates one operation on an item that may exist, with its result.
    fn batch_operation(&mut self, batch: Batch, owned: &Owned) -> (Batch, Write, Option<Value>) {
        let id = &owned.item.1;
        let write = |kind, after, made: Option<&Value>| Write {
            item: owned.item.clone(),
            kind,
            after,
            made: made.map(print),
            etag: None,
            batch: None,
            acknowledged: false,
        };
        let Some(there) = &owned.there else {
            let body = self.body(&owned.item, &[]);
            let bytes = body.to_string();
            let batch = match self.random.chance(50) {
                true => batch.create(bytes.as_bytes()),
                false => batch.upsert(bytes.as_bytes()),
            };
            return (batch, write(Kind::Create, None, Some(&body)), Some(body));
        };
        let after = Some(there.print());
        let etag = Some(there.etag.as_str()).filter(|_| self.random.chance(50));
        match self.random.below(3) {
            0 => (batch.delete(id, etag), write(Kind::Delete, after, None), None),
            1 => {
                let (patch, body) = self.patched(&there.body);
                let batch = batch.patch(id, patch.to_string().as_bytes(), etag);
                (batch, write(Kind::Replace, after, Some(&body)), Some(body))
            }
            _ => {
                let body = self.body(&owned.item, &[]);
                let batch = batch.replace(id, body.to_string().as_bytes(), etag);
                (batch, write(Kind::Replace, after, Some(&body)), Some(body))
            }
        }
    }

    /// Changes a shared item: reads it, then writes it with an etag condition.
    async fn share(&mut self) {
        let number = self.random.below(SHARED_ITEMS);
        let item = (key_name(usize::try_from(number).unwrap()), format!("shared-{number}"));
        let (key, id) = (partition_key(&item.0), item.1.clone());
        let read = self.ask(async |container| container.read(&key, &id).await).await;
        let Told::Done(read) = read else { return };
        let there = read.map(|stored| Version {
            body: serde_json::from_slice(&stored.body).unwrap(),
            etag: stored.etag,
        });
        let after = there.as_ref().map(Version::print);
        let condition = there.as_ref().map(|there| Precondition::IfMatch(there.etag.clone()));
        if let Some(there) = there.as_ref().filter(|_| self.random.chance(10)) {
            let condition = condition.unwrap_or_default();
            let told =
                self.ask(async |container| container.delete(&key, &id, &condition).await).await;
            let write = self.deletion(&item, there);
            return self.settle_shared(write, told.map(|()| None));
        }
        let body = self.body(&item, &[]);
        let text = body.to_string();
        let told = self
            .ask(async |container| match &condition {
                None => container.create(&key, text.clone()).await,
                Some(condition) => container.replace(&key, &id, text.clone(), condition).await,
            })
            .await;
        let kind = if after.is_some() { Kind::Replace } else { Kind::Create };
        let made = Some(print(&body));
        let write = Write { item, kind, after, made, etag: None, batch: None, acknowledged: false };
        self.settle_shared(write, told.map(|stored| Some(bare(&stored.etag))));
    }

    fn settle_shared(&mut self, write: Write, told: Told<Option<String>>) {
        let raced = [Reason::PreconditionFailed, Reason::NotFound, Reason::AlreadyExists];
        match told {
            Told::Done(etag) => self.record(Write { acknowledged: true, etag, ..write }),
            Told::Unknown => self.record(write),
            Told::Refused(reason) if raced.contains(&reason) => self.written.refused += 1,
            Told::Refused(reason) => self.complain("shared write", &write.item, reason),
            Told::Nobody => {}
        }
    }

    /// Sends requests that must be refused and must not appear in the feed.
    async fn ask_for_what_cannot_be(&mut self) {
        let Some(at) = self.existing() else { return };
        let item = self.items[at].item.clone();
        let body = self.body(&item, &[]).to_string();
        let (key, id) = (partition_key(&item.0), item.1.clone());
        let stale = Precondition::IfMatch("\"00000000-0000-0000-0000-000000000000\"".to_owned());
        let (told, expected) = match self.random.below(4) {
            0 => {
                let told =
                    self.ask(async |container| container.create(&key, body.clone()).await).await;
                (told.map(drop), Reason::AlreadyExists)
            }
            1 => {
                let told = self
                    .ask(async |container| container.replace(&key, &id, body.clone(), &stale).await)
                    .await;
                (told.map(drop), Reason::PreconditionFailed)
            }
            2 => {
                let told =
                    self.ask(async |container| container.delete(&key, &id, &stale).await).await;
                (told, Reason::PreconditionFailed)
            }
            _ => {
                let other = partition_key("a key of nobody");
                let told =
                    self.ask(async |container| container.create(&other, body.clone()).await).await;
                (told.map(drop), Reason::PartitionKeyMismatch)
            }
        };
        match told {
            Told::Refused(reason) if reason == expected => self.written.refused += 1,
            Told::Unknown | Told::Nobody => {}
            Told::Refused(reason) => self.complain("what cannot be", &item, reason),
            Told::Done(()) => self.world.complain(format!("{item:?}: not refused: {expected:?}")),
        }
    }

    async fn ask<T>(
        &mut self,
        request: impl AsyncFnOnce(&Container) -> Result<T, ClientError>,
    ) -> Told<T> {
        let before = self.world.runtime.elapsed();
        let container = self.world.items();
        let told = match request(&container).await {
            Ok(done) => Told::Done(done),
            Err(ClientError::Unreachable { .. }) => Told::Nobody,
            Err(ClientError::Refused(refusal)) => match refusal.reason {
                Reason::ServerFault => {
                    self.world.complain(format!("the server failed: {refusal}"));
                    Told::Unknown
                }
                Reason::Unavailable | Reason::ServerTimeout | Reason::Other(_) => Told::Unknown,
                reason => Told::Refused(reason),
            },
            Err(_) => Told::Unknown,
        };
        match &told {
            Told::Done(_) | Told::Refused(_) => {
                let took = self.world.runtime.elapsed().saturating_sub(before);
                // It grows as need be.
                let _ = self.written.micros.record(u64::try_from(took.as_micros()).unwrap());
            }
            Told::Unknown => self.written.unknown += 1,
            Told::Nobody => self.world.pause(20).await,
        }
        told
    }

    fn record(&mut self, write: Write) {
        self.written.writes.push(write);
    }

    fn complain(&self, what: &str, item: &Item, reason: Reason) {
        self.world.complain(format!("{what} of {item:?} was refused: {reason:?}"));
    }
}

impl<T> Told<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> Told<U> {
        match self {
            Told::Done(done) => Told::Done(change(done)),
            Told::Refused(reason) => Told::Refused(reason),
            Told::Unknown => Told::Unknown,
            Told::Nobody => Told::Nobody,
        }
    }
}

/// Writes one item per partition key after everything else, which tells readers that they are done.
pub(crate) async fn write_ends(world: &World) -> Vec<Write> {
    let mut writes = Vec::new();
    for index in 0..PARTITION_KEYS {
        let item = (key_name(index), END.to_owned());
        let body = json!({"id": END, "pk": item.0});
        let stored = world.items().create(&partition_key(&item.0), body.to_string()).await.unwrap();
        writes.push(Write {
            item,
            kind: Kind::Create,
            after: None,
            made: Some(print(&body)),
            etag: Some(bare(&stored.etag)),
            batch: None,
            acknowledged: true,
        });
    }
    writes
}

/// Returns the id of the last item of each key.
pub(crate) const END: &str = "the-end";
