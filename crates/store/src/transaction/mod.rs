//! Optimistic transactions on one partition key: an overlay of uncommitted writes that a script reads and changes.
//!
//! ```text
//! script ─► overlay (its own writes) ─► index and log (stored items)       nothing is written
//! end    ─► checks on what was read + its writes ─► the partition's writer  one entry, or none
//! ```
//!
//! Nothing is locked while a script runs. The transaction records the versions it has read. The writer rejects the
//! whole transaction if any of them has changed, and the caller then runs the script again. A query depends on every
//! item of the key, including items that did not exist. So after a query, any write to the key since the transaction
//! began causes a conflict.
//!
//! The writer assigns the etags and resource ids of new versions. Until then they are provisional, and
//! [`CommittedTransaction::finalise`] puts the real ones into the script's response.
//!
//! Everything except the commit is synchronous, because a script occupies its thread anyway. A script never waits for
//! another task.

mod commit;
mod look;
mod provisional;
mod query;
mod unique;

pub(crate) use commit::CommittedTransaction;
pub(crate) use query::QueryTrouble;

use crate::body::{self, SystemProperties};
use crate::container::Container;
use crate::definition::Settings;
use crate::error::{ItemReadError, StorageError, WriteError};
use crate::item::{Item, ItemKey, ItemWrite, Precondition, WriteKind};
use crate::keys;
use crate::partition::{Look, Partition};
use crate::prepare::{self, Action, Operation, Prepared, TRANSACTION_BYTES_MAX};
use crate::query::QueryWatch;
use bytes::Bytes;
use headwater_log::Position;
use headwater_model::{Epk, Etag, ItemId, ItemRid, Lsn, PartitionKey};
use provisional::Provisional;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of writes in one transaction. A log entry can hold 65,536 records.
const OPERATIONS_MAX: usize = 5_000;
/// Maximum bytes in one transaction, since readers of the feed get it as one page.
const BYTES_MAX: usize = 4 << 20;
/// Maximum number of resource ids that are remembered; others are found by a search of all items.
const REMEMBERED_MAX: usize = 50_000;
/// Maximum number of retries to read an item that is written again and again.
const CHASES_MAX: u32 = 1_000;

/// Why an operation of a transaction failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The operation is rejected; the transaction can continue.
    Refused(WriteError),
    /// The transaction has reached its maximum size.
    Full,
    /// An item that was read has changed; the transaction must run again.
    Outdated,
    /// The deadline has passed.
    Late,
    /// The store failed.
    Failed(ItemReadError),
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Trouble {
        Trouble::Failed(error.into())
    }
}

impl From<WriteError> for Trouble {
    fn from(error: WriteError) -> Trouble {
        match error {
            WriteError::Storage(error) => error.into(),
            refused => Trouble::Refused(refused),
        }
    }
}

/// An item as the transaction sees it.
#[derive(Clone, Debug)]
pub(crate) struct ItemView {
    pub(crate) json: Bytes,
    pub(crate) etag: Etag,
    /// The number in its resource id.
    pub(crate) number: u64,
}

/// The newest version of an item that the transaction itself has written.
#[derive(Clone, Debug)]
enum OwnVersion {
    Put(ItemView),
    Deleted,
}

/// An uncommitted transaction.
pub(crate) struct Transaction {
    container: Container,
    settings: Arc<Settings>,
    partition: Arc<Partition>,
    /// The visible LSN when the transaction began.
    since: Lsn,
    key: PartitionKey,
    epk: Epk,
    encoded: Vec<u8>,
    /// Writes in the order they were made.
    operations: Vec<Operation>,
    bytes: usize,
    /// Total bytes of the versions that are replaced or deleted.
    replaced_bytes: usize,
    own: BTreeMap<String, OwnVersion>,
    /// Ids of items it has created, by their provisional numbers. Some may be deleted again.
    created: BTreeMap<u64, String>,
    /// Owners of the unique keys that the transaction changed; `None` if a key became free.
    unique: HashMap<Vec<u8>, Option<String>>,
    /// Positions of the items that the transaction read, by id; `None` if an item did not exist.
    seen: BTreeMap<String, Option<Position>>,
    /// Whether a query has read the whole key.
    scanned: bool,
    /// Ids of items by the resource ids that the script has read.
    by_rid: HashMap<String, String>,
    provisional: Provisional,
    /// The paused iteration of the last page.
    cursor: Option<look::ItemCursor>,
    /// Time limit of the transaction, on the runtime's clock.
    deadline: Duration,
    pub(crate) items_read: usize,
    pub(crate) bytes_read: usize,
}

impl Transaction {
    /// Begins a transaction on the items of one partition key.
    pub(crate) fn begin(
        container: &Container,
        key: PartitionKey,
        deadline: Duration,
    ) -> Result<Transaction, ItemReadError> {
        let settings = container.settings();
        let epk = settings.definition.partition_key().epk(&key)?;
        let topology = container.state().topology();
        let partition = topology.partition_of(epk.as_bytes()).cloned();
        let partition = partition.ok_or(ItemReadError::ContainerGone)?;
        partition.check_served()?;
        let mut encoded = Vec::new();
        key.encode_into(&mut encoded);
        let runtime = &container.state().shared.runtime;
        Ok(Transaction {
            since: partition.visible(),
            provisional: Provisional::new(runtime.random_u128()),
            container: container.clone(),
            settings,
            partition,
            key,
            epk,
            encoded,
            operations: Vec::new(),
            bytes: 0,
            replaced_bytes: 0,
            own: BTreeMap::new(),
            created: BTreeMap::new(),
            unique: HashMap::new(),
            seen: BTreeMap::new(),
            scanned: false,
            by_rid: HashMap::new(),
            cursor: None,
            deadline,
            items_read: 0,
            bytes_read: 0,
        })
    }

    /// The number of writes so far.
    pub(crate) fn write_count(&self) -> usize {
        self.operations.len()
    }

    pub(crate) fn partition_key(&self) -> PartitionKey {
        self.key.clone()
    }

    fn check_time(&self) -> Result<(), Trouble> {
        let now = self.container.state().shared.runtime.elapsed();
        if now > self.deadline { Err(Trouble::Late) } else { Ok(()) }
    }

    /// Creates a watch that ends a query of the script at the deadline of the script.
    pub(crate) fn watch(&self) -> Arc<QueryWatch> {
        let watch = QueryWatch::new(&self.container.state().shared.runtime, Duration::ZERO);
        watch.end_at(self.deadline);
        Arc::new(watch)
    }

    /// Reads an item.
    pub(crate) fn read(&mut self, id: &str) -> Result<Option<ItemView>, Trouble> {
        let found = self.current(id)?;
        if let Some(seen) = &found {
            self.items_read += 1;
            self.bytes_read += seen.json.len();
            self.remember(id, seen.number);
        }
        Ok(found)
    }

    fn rid(&self) -> headwater_model::ContainerRid {
        self.container.rid()
    }

    fn remember(&mut self, id: &str, number: u64) {
        if self.by_rid.len() < REMEMBERED_MAX {
            let rid = ItemRid::new(self.rid(), number).to_string();
            self.by_rid.insert(rid, id.to_owned());
        }
    }

    /// Generates a random id in the form of a UUID.
    pub(crate) fn new_id(&self) -> String {
        let hex = format!("{:032x}", self.container.state().shared.runtime.random_u128());
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Turns a patch into the equivalent replace; returns other writes unchanged.
    pub(crate) fn patched(&mut self, write: ItemWrite) -> Result<ItemWrite, Trouble> {
        let WriteKind::Patch(id, patch, condition) = &write.kind else {
            return Ok(write);
        };
        let before = self.current(id)?.ok_or_else(|| WriteError::NotFound { id: id.clone() })?;
        if let Some(holds) = condition
            && !holds(&before.json).map_err(WriteError::Condition)?
        {
            return Err(WriteError::ConditionFalse { id: id.clone() }.into());
        }
        let body = body::patch(&before.json, patch, &self.settings.protected);
        let body = Bytes::from(body.map_err(WriteError::from)?);
        Ok(ItemWrite { kind: WriteKind::Replace(id.clone(), body), ..write })
    }

    /// Creates, upserts, replaces or deletes an item.
    pub(crate) fn write(&mut self, write: ItemWrite) -> Result<Option<ItemView>, Trouble> {
        if self.operations.len() >= OPERATIONS_MAX {
            return Err(Trouble::Full);
        }
        let write = write.partition_key(self.key.clone());
        let mut operation = prepare::prepare_step(&self.settings, write)?;
        if self.bytes + operation.byte_count() > BYTES_MAX && !self.operations.is_empty() {
            return Err(Trouble::Full);
        }
        let id = operation.key.id();
        let before = self.current(&id)?;
        check(&operation, &id, before.as_ref())?;
        let replaced_bytes = before.as_ref().map_or(0, |before| before.json.len());
        if self.replaced_bytes + replaced_bytes > TRANSACTION_BYTES_MAX
            && !self.operations.is_empty()
        {
            return Err(Trouble::Full);
        }
        // Checked above. It may name a provisional etag, and the writer checks that the item is unchanged.
        operation.precondition = Precondition::None;
        let (own, seen) = match &operation.action {
            Action::Create(body) | Action::Upsert(body) | Action::Replace(body) => {
                self.check_unique(&id, &body.unique)?;
                let seen = self.stamped(body, before.map(|seen| seen.number));
                self.take_unique(&id, &body.unique)?;
                self.remember(&id, seen.number);
                if self.provisional.owns(seen.number) {
                    self.created.insert(seen.number, id.clone());
                }
                (OwnVersion::Put(seen.clone()), Some(seen))
            }
            _ => {
                self.take_unique(&id, &[])?;
                (OwnVersion::Deleted, None)
            }
        };
        self.own.insert(id, own);
        self.bytes += operation.byte_count();
        self.replaced_bytes += replaced_bytes;
        self.operations.push(operation);
        Ok(seen)
    }

    /// The new item with a provisional etag and, if it is created, a provisional resource id.
    fn stamped(&mut self, body: &Prepared, number: Option<u64>) -> ItemView {
        let operation = self.operations.len();
        let number = number.unwrap_or_else(|| self.provisional.number(operation));
        let etag = self.provisional.etag(operation);
        let rid = ItemRid::new(self.rid(), number).to_string();
        let self_link = format!("dbs/{}/colls/{}/docs/{rid}/", self.rid().database(), self.rid());
        let mut etag_text = Vec::new();
        etag.write_into(&mut etag_text);
        let mut json = Vec::with_capacity(body.members.len() + 256);
        let composed = body::stamp(
            &body.members,
            &SystemProperties {
                rid: &rid,
                self_link: &self_link,
                etag: std::str::from_utf8(&etag_text).unwrap_or_default(),
                ts: self.partition.now().as_seconds(),
                lsn: 0,
            },
            &mut json,
        );
        // The LSN is cut off, since only the change feed returns it.
        json.truncate(composed.lsn_at);
        json.push(b'}');
        ItemView { json: Bytes::from(json), etag, number }
    }

    /// The current version of an item as the transaction sees it.
    fn current(&mut self, id: &str) -> Result<Option<ItemView>, Trouble> {
        match self.own.get(id) {
            Some(OwnVersion::Put(seen)) => Ok(Some(seen.clone())),
            Some(OwnVersion::Deleted) => Ok(None),
            None => Ok(self.stored(id)?.map(|item| seen_of(&item))),
        }
    }

    /// The stored version of an item. Records it, so that a later change causes a conflict.
    fn stored(&mut self, id: &str) -> Result<Option<Item>, Trouble> {
        let item_id = ItemId::new(id).map_err(WriteError::from)?;
        let key = ItemKey::new(self.epk.clone(), &self.key, &item_id);
        for _ in 0..CHASES_MAX {
            match self.partition.look(&key)? {
                Look::Found(item) => {
                    self.note(id, item.as_ref().map(Item::position))?;
                    return Ok(item);
                }
                Look::Moved => std::hint::spin_loop(),
            }
        }
        // The partition was split, or the index is behind. A new transaction will find the item.
        Err(Trouble::Outdated)
    }

    /// Records the version of an item that was read. Not needed after a query, when the whole key is checked.
    fn note(&mut self, id: &str, position: Option<Position>) -> Result<(), Trouble> {
        if self.scanned {
            return Ok(());
        }
        match self.seen.insert(id.to_owned(), position) {
            Some(before) if before != position => Err(Trouble::Outdated),
            _ => Ok(()),
        }
    }

    /// Reads up to `most` items after an id, including own writes, in the order of their ids.
    fn page(
        &mut self,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, ItemView)>, Trouble> {
        self.scanned = true;
        let mut after = after.map(str::to_owned);
        loop {
            self.check_time()?;
            let stored = self.stored_ids(after.as_deref(), most)?;
            // A full page may be followed by more stored ids, so own ids are included only up to its last id.
            let bound = if stored.len() == most { stored.last().cloned() } else { None };
            let mut ids = stored;
            ids.extend(self.own_ids(after.as_deref(), bound.as_deref()));
            ids.sort_unstable();
            ids.dedup();
            let mut page = Vec::new();
            for id in ids {
                if page.len() == most {
                    break;
                }
                if let Some(seen) = self.current(&id)? {
                    page.push((id, seen));
                }
            }
            // All items of this page may be deleted while more ids follow.
            match bound {
                Some(_) if page.is_empty() => after = bound,
                _ => return Ok(page),
            }
        }
    }

    /// Ids of own writes in a range: after `after`, up to and including `bound`.
    fn own_ids(&self, after: Option<&str>, bound: Option<&str>) -> Vec<String> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let end = bound.map_or(Bound::Unbounded, Bound::Included);
        self.own.range::<str, _>((start, end)).map(|(id, _)| id.clone()).collect()
    }

    fn stored_ids(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, Trouble> {
        let container = self.rid();
        let (mut from, to) = keys::items_of(container, self.epk.as_bytes(), &self.encoded);
        let id_at = from.len();
        if let Some(after) = after {
            from.extend_from_slice(after.as_bytes());
            from.push(0);
        }
        let mut ids = Vec::new();
        self.container.state().shared.index.scan(&from, &to, &mut |key, _| {
            ids.push(String::from_utf8_lossy(&key[id_at..]).into_owned());
            ids.len() < most
        })?;
        Ok(ids)
    }
}

fn seen_of(item: &Item) -> ItemView {
    ItemView { json: item.to_bytes(), etag: item.etag(), number: item.number() }
}

/// Rejects what the writer would reject, so that the script gets the error at once.
fn check(operation: &Operation, id: &str, before: Option<&ItemView>) -> Result<(), WriteError> {
    let id = || id.to_owned();
    let Some(before) = before else {
        return match &operation.action {
            Action::Replace(_) | Action::Delete => Err(WriteError::NotFound { id: id() }),
            _ => Ok(()),
        };
    };
    if matches!(operation.action, Action::Create(_)) {
        return Err(WriteError::AlreadyExists { id: id() });
    }
    let met = match &operation.precondition {
        Precondition::None => true,
        Precondition::IfMatch(wanted) => before.etag.matches(wanted),
        Precondition::IfNoneMatch(unwanted) => !before.etag.matches(unwanted),
    };
    if met {
        return Ok(());
    }
    Err(WriteError::EtagMismatch { id: id(), current: before.etag })
}
