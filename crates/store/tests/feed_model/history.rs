//! Random operations on a container.
//!
//! Writes and batches are compared with the model. Compaction, splits, merges, restarts, kills and a lost index
//! must not change any result.

use crate::World;
use crate::model::{Name, Version};
use crate::readers::{name_of, user_part};
use crate::support::{Reader, Scope, open_simulated};
use bytes::Bytes;
use headwater_store::{
    BatchError, Change, ChangeKind, Continuation, FeedError, FeedStart, ItemWrite, Lsn,
    PartitionId, PartitionKey, Patch, RangeInfo, WriteError, Written,
};
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(super) enum Step {
    Create(Value),
    Upsert(Value),
    Replace(Value),
    Delete,
    Patch(i64),
}

impl Step {
    pub(super) fn write(&self, key: &PartitionKey, id: &str) -> ItemWrite {
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

impl World {
    /// Records in the model that an operation first deletes the expired item it works on.
    pub(super) fn bury(&mut self, name: &Name, range: &mut RangeInfo) {
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

    /// Records one change of a transaction in the model.
    pub(super) fn note(
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

    /// The outcome of an operation in the model: the new item, or why it is rejected.
    pub(super) fn outcome(&self, step: &Step, name: &Name) -> Result<Option<Value>, &'static str> {
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

    pub(super) async fn write_one(&mut self) {
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

    pub(super) fn check_written(
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

    pub(super) async fn write_batch(&mut self) {
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
        // The effects are applied to the model and rolled back if an operation is rejected.
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

    pub(super) async fn delete_key(&mut self) {
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

    pub(super) fn random_step(&mut self, key: &PartitionKey, id: &str) -> Step {
        match self.random.below(10) {
            0..2 => Step::Create(self.random_item(key, id)),
            2..5 => Step::Upsert(self.random_item(key, id)),
            5..6 => Step::Replace(self.random_item(key, id)),
            6..8 => Step::Delete,
            _ => Step::Patch(1 + i64::try_from(self.random.below(9)).unwrap()),
        }
    }

    pub(super) async fn maintain(&mut self) {
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
                // Compaction follows at once and may have removed the delete.
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

    /// All versions of a range after a position, or after the first position from which they are complete.
    pub(super) async fn all_versions_of(
        &self,
        range: PartitionId,
        after: Lsn,
    ) -> (Vec<Change>, Lsn) {
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

    pub(super) async fn split(&mut self) {
        let ranges = self.container.ranges();
        if ranges.len() >= 5 {
            return;
        }
        let parent = self.random.pick(&ranges).clone();
        let children = self.container.split(parent.id, None).await.unwrap();
        for child in &children {
            assert_eq!(child.lsn, parent.lsn.next(), "children continue after the parent");
            assert!(child.ancestors.contains(&parent.id));
        }
        self.reshaped = true;
        self.check_gone(parent.id).await;
    }

    pub(super) async fn merge(&mut self) {
        let ranges = self.container.ranges();
        if ranges.len() < 2 {
            return;
        }
        let at = self.random.index(ranges.len() - 1);
        let parents = [&ranges[at], &ranges[at + 1]];
        let merged = self.container.merge(parents[1].id, parents[0].id).await.unwrap();
        let newest = parents.iter().map(|parent| parent.lsn.next()).max().unwrap();
        assert_eq!((merged.len(), merged[0].lsn), (1, newest), "behind both parents");
        self.reshaped = true;
        for parent in parents {
            self.check_gone(parent.id).await;
        }
    }

    pub(super) async fn check_gone(&self, id: PartitionId) {
        let reader = Reader::latest(Scope::Range(id), 10);
        let read = reader.drain(&self.container, FeedStart::Beginning).await;
        assert!(matches!(read, Err(FeedError::RangeGone(gone)) if gone == id), "{read:?}");
    }

    pub(super) async fn restart(&mut self) {
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
        self.account = open_simulated(&self.node, &self.disk, &self.index, &self.options).await;
        let database = self.account.database("db").await.unwrap();
        self.container = database.container("c").await.unwrap();
        let after = (self.account.state_hash().unwrap(), self.container.ranges());
        assert_eq!(before, after, "a restart changes nothing");
    }
}
