//! Evaluates writes in order, against the index and the earlier decisions of the same group.
//!
//! The result is a group of log entries with post-images, ids, times and etags. Applying the group later
//! decides nothing. A refused request takes no LSN and has no effect. Writes neither log nor index.

use super::newest::Newest;
use super::{Answer, Partition, Refusal};
use crate::body::{self, SystemProperties};
use crate::definition::Settings;
use crate::error::{StorageError, WriteError};
use crate::item::{Item, Meta, Precondition, UNIQUE_BYTES, Written, etag, item_of};
use crate::keys::{self, ItemRow, Key};
use crate::prepare::{self, Action, Operation, Prepared, TRANSACTION_BYTES_MAX};
use bytes::Bytes;
use foldhash::fast::RandomState;
use headwater_log::{Group, GroupBuilder, NewRecord, Position, RecordKind, Tail};
use headwater_model::{ChangeKind, ItemRid, Lsn, Timestamp};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Reasons why a request has no effect in this group.
pub(crate) enum Postponed {
    /// An operation was refused, and with it its transaction.
    Refused(Refusal),
    /// The request needs the bytes of an item that this group writes; it is evaluated in the next group.
    NextGroup,
}

impl From<StorageError> for Postponed {
    fn from(error: StorageError) -> Postponed {
        Postponed::Refused(Refusal::Storage(error))
    }
}

impl From<headwater_log::ReadError> for Postponed {
    fn from(error: headwater_log::ReadError) -> Postponed {
        StorageError::from(error).into()
    }
}

/// The result of one operation, complete once its group is written.
pub(crate) struct Effect {
    change: Option<ChangeKind>,
    item: ItemSource,
    position: Position,
    timestamp: Timestamp,
}

enum ItemSource {
    None,
    /// Inside the bytes of the group.
    Group {
        bytes: Range<usize>,
        lsn_at: u32,
        rid: u64,
    },
    Read(Item),
}

/// The id of the item that claims a unique key.
type Owner = String;

/// Decisions of a group, by key.
type Decided<T> = HashMap<Key, T, RandomState>;

/// A group under construction.
pub(crate) struct Evaluation<'a> {
    partition: &'a Partition,
    settings: Arc<Settings>,
    now: Timestamp,
    builder: GroupBuilder,
    rows: Decided<Option<ItemRow>>,
    unique: Decided<Option<Owner>>,
    next_rid: u64,
    next_batch: u128,
    body: Vec<u8>,
    meta: Vec<u8>,
    texts: Texts,
}

/// System properties as text, in buffers reused for every item.
#[derive(Default)]
struct Texts {
    /// `dbs/…/colls/…/docs/`, the resource id and a slash.
    self_link: Vec<u8>,
    rid_at: usize,
    etag: Vec<u8>,
}

impl Texts {
    fn set(&mut self, self_prefix: &str, rid: ItemRid, position: Position) {
        self.self_link.clear();
        self.self_link.extend_from_slice(self_prefix.as_bytes());
        self.rid_at = self.self_link.len();
        rid.write_base64(&mut self.self_link);
        self.self_link.push(b'/');
        self.etag.clear();
        etag(position).write_into(&mut self.etag);
    }

    fn self_link(&self) -> &str {
        std::str::from_utf8(&self.self_link).unwrap_or_default()
    }

    fn rid(&self) -> &str {
        self.self_link().get(self.rid_at..self.self_link.len() - 1).unwrap_or_default()
    }

    fn etag(&self) -> &str {
        std::str::from_utf8(&self.etag).unwrap_or_default()
    }
}

/// Changes of the transaction so far; dropped if it fails.
#[derive(Default)]
struct Draft {
    rows: Newest<Option<ItemRow>>,
    unique: Newest<Option<Owner>>,
    /// Unique keys of each item written so far.
    held: Newest<Vec<u8>>,
    /// Bodies written so far, if a later operation of the transaction may read them.
    bodies: Option<Newest<Item>>,
    /// Versions that it replaces or deletes, except its own.
    superseded: Vec<Position>,
    records: u16,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(partition: &'a Partition, after: Tail, next_rid: u64) -> Evaluation<'a> {
        Evaluation::with_capacity(partition, after, next_rid, 0)
    }

    /// Creates an evaluation with room for a group of about `bytes` bytes.
    pub(crate) fn with_capacity(
        partition: &'a Partition,
        after: Tail,
        next_rid: u64,
        bytes: usize,
    ) -> Evaluation<'a> {
        let epoch = partition.epoch();
        Evaluation {
            settings: partition.current_settings(),
            now: partition.now(),
            builder: GroupBuilder::with_capacity(partition.id, epoch, after, bytes),
            rows: Decided::default(),
            unique: Decided::default(),
            next_rid,
            next_batch: partition.shared.runtime.random_u128(),
            body: Vec::new(),
            meta: Vec::new(),
            texts: Texts::default(),
            partition,
        }
    }

    pub(crate) fn byte_count(&self) -> usize {
        self.builder.byte_count()
    }

    /// The finished group, and the number of the next item.
    pub(crate) fn finish(self) -> (Group, u64) {
        (self.builder.build(), self.next_rid)
    }

    fn begin(&mut self) -> Timestamp {
        self.next_batch = self.next_batch.wrapping_add(1);
        self.builder.begin(self.now, self.next_batch)
    }

    /// Evaluates all operations of a transaction, or none.
    pub(crate) fn transaction(
        &mut self,
        operations: &[Operation],
    ) -> Result<Vec<Effect>, Postponed> {
        for operation in operations {
            self.bury_if_expired(operation)?;
        }
        let bytes_before = self.builder.byte_count();
        let timestamp = self.begin();
        let rid_before = self.next_rid;
        let reads =
            |operation: &Operation| matches!(operation.action, Action::Read | Action::Patch(..));
        let bodies = (operations.len() > 1 && operations.iter().any(reads)).then(Newest::default);
        let mut draft = Draft { bodies, ..Draft::default() };
        let mut effects = Vec::with_capacity(operations.len());
        for (index, operation) in operations.iter().enumerate() {
            let effect = self.operation(operation, timestamp, &mut draft).and_then(|effect| {
                if operations.len() > 1 {
                    let is_last = index + 1 == operations.len();
                    self.check_size(operation, bytes_before, is_last.then_some(&draft))?;
                }
                Ok(effect)
            });
            match effect {
                Ok(effect) => effects.push(effect),
                Err(refused) => {
                    self.builder.abandon();
                    self.next_rid = rid_before;
                    return Err(match refused {
                        Postponed::Refused(Refusal::Operation(_, error)) => {
                            Postponed::Refused(Refusal::Operation(index, error))
                        }
                        other => other,
                    });
                }
            }
        }
        if draft.records == 0 {
            self.builder.abandon();
        } else {
            self.builder.finish();
        }
        self.rows.extend(draft.rows.into_changes());
        self.unique.extend(draft.unique.into_changes());
        Ok(effects)
    }

    /// Refuses a transaction of several operations whose items, before or after it, are too large for one
    /// page of the feed. `whole` is the complete draft, given with the last operation.
    fn check_size(
        &self,
        operation: &Operation,
        bytes_before: usize,
        whole: Option<&Draft>,
    ) -> Result<(), Postponed> {
        let written = self.builder.byte_count() - bytes_before;
        let superseded = whole.map_or(&[][..], |draft| &draft.superseded);
        if written <= TRANSACTION_BYTES_MAX && superseded.is_empty() {
            return Ok(());
        }
        let epk = operation.key.epk.as_bytes();
        let is_too_large = written > TRANSACTION_BYTES_MAX
            || self.partition.do_items_exceed(superseded, epk, TRANSACTION_BYTES_MAX)?;
        match is_too_large {
            true => Err(refuse(WriteError::TransactionTooLarge { limit: TRANSACTION_BYTES_MAX })),
            false => Ok(()),
        }
    }

    /// Deletes an expired item before an operation writes it. The delete is an entry of its own, so that
    /// readers of all versions see it before the new version.
    fn bury_if_expired(&mut self, operation: &Operation) -> Result<(), Postponed> {
        let only_looks =
            matches!(operation.action, Action::Read | Action::Unchanged(_) | Action::Untouched(_));
        if only_looks || self.settings.definition.default_ttl().is_none() {
            return Ok(());
        }
        let key = self.row_key(operation);
        let Some(row) = self.row_of(operation, &key, &Draft::default())? else {
            return Ok(());
        };
        if !self.settings.is_expired(row.written, row.ttl, self.now) {
            return Ok(());
        }
        let freed = self.freed_by_removing(&row, operation, &Draft::default())?;
        self.begin();
        self.tombstone(operation, &row, &freed, true);
        self.builder.finish();
        self.rows.insert(key, None);
        for unique in freed.chunks_exact(UNIQUE_BYTES) {
            self.unique.insert(self.unique_key(operation, unique), None);
        }
        Ok(())
    }

    fn operation(
        &mut self,
        operation: &Operation,
        timestamp: Timestamp,
        draft: &mut Draft,
    ) -> Result<Effect, Postponed> {
        let key = self.row_key(operation);
        let row = self.row_of(operation, &key, draft)?;
        let id = || operation.key.id();
        match &operation.action {
            Action::Create(body) => match row {
                Some(_) => Err(refuse(WriteError::AlreadyExists { id: id() })),
                None => self.put(operation, key, None, body, timestamp, draft),
            },
            Action::Upsert(body) => {
                if let Some(row) = &row {
                    check_precondition(operation, row)?;
                }
                self.put(operation, key, row, body, timestamp, draft)
            }
            Action::Replace(body) => {
                let row = row.ok_or_else(|| refuse(WriteError::NotFound { id: id() }))?;
                check_precondition(operation, &row)?;
                self.put(operation, key, Some(row), body, timestamp, draft)
            }
            Action::Patch(patch, condition) => {
                let row = row.ok_or_else(|| refuse(WriteError::NotFound { id: id() }))?;
                check_precondition(operation, &row)?;
                let item = self.current_item(&key, &row, operation, draft)?.to_bytes();
                if let Some(holds) = condition {
                    let evaluated = operation.condition_result.as_ref();
                    let holds = match evaluated.filter(|result| result.version == row.position) {
                        Some(result) => result.holds.clone(),
                        None => holds(&item),
                    };
                    if !holds.map_err(|what| refuse(WriteError::Condition(what)))? {
                        return Err(refuse(WriteError::ConditionFalse { id: id() }));
                    }
                }
                let patched = body::patch(&item, patch, &self.settings.protected)
                    .map_err(|error| refuse(error.into()))?;
                let body = prepare::prepare_patched(&self.settings, &Bytes::from(patched))
                    .map_err(refuse)?;
                self.put(operation, key, Some(row), &body, timestamp, draft)
            }
            Action::Delete => {
                let row = row.ok_or_else(|| refuse(WriteError::NotFound { id: id() }))?;
                check_precondition(operation, &row)?;
                self.delete(operation, key, &row, timestamp, draft)
            }
            // The expired item was deleted before the transaction began.
            Action::Expire => Ok(self.nothing(timestamp, draft)),
            Action::Unchanged(seen) => {
                let row =
                    row.filter(|row| !self.settings.is_expired(row.written, row.ttl, self.now));
                if row.map(|row| row.position) != *seen {
                    return Err(refuse(WriteError::Outdated));
                }
                Ok(self.nothing(timestamp, draft))
            }
            Action::Untouched(since) => {
                if self.is_touched(operation, *since) {
                    return Err(refuse(WriteError::Outdated));
                }
                Ok(self.nothing(timestamp, draft))
            }
            Action::Read => {
                let row =
                    row.filter(|row| !self.settings.is_expired(row.written, row.ttl, self.now));
                let row = row.ok_or_else(|| refuse(WriteError::NotFound { id: id() }))?;
                let item = self.current_item(&key, &row, operation, draft)?;
                Ok(Effect {
                    change: None,
                    position: row.position,
                    timestamp: item.timestamp(),
                    item: ItemSource::Read(item),
                })
            }
        }
    }

    fn nothing(&self, timestamp: Timestamp, draft: &Draft) -> Effect {
        let position = self.position(draft);
        Effect { change: None, item: ItemSource::None, position, timestamp }
    }

    /// Whether an item of a partition key may have been written after `since`, in this group or before.
    fn is_touched(&self, operation: &Operation, since: Lsn) -> bool {
        let (epk, encoded) = (operation.key.epk.as_bytes(), operation.key.encoded_key());
        let (from, to) = keys::items_of(self.partition.container, epk, encoded);
        self.partition.last_writes.newest(epk) > since
            || self.rows.keys().any(|key| *key >= from && *key < to)
    }

    /// Writes a new version of an item.
    fn put(
        &mut self,
        operation: &Operation,
        key: Key,
        row: Option<ItemRow>,
        prepared: &Prepared,
        timestamp: Timestamp,
        draft: &mut Draft,
    ) -> Result<Effect, Postponed> {
        let freed = self.check_unique(operation, row.as_ref(), prepared, draft)?;
        let rid = row.map_or(self.next_rid, |row| row.rid);
        let position = self.position(draft);
        let written = timestamp.as_seconds();
        let lsn_at = self.stamp(&prepared.members, rid, position, written);
        self.meta.clear();
        Meta {
            created: row.is_none(),
            expired: false,
            ttl: prepared.ttl,
            expires: self.settings.expires_at(written, prepared.ttl).unwrap_or(0),
            rid,
            lsn_at,
            tail: &operation.key.tail,
            key_bytes: operation.key.key_bytes,
            unique: &prepared.unique,
            freed: &freed,
        }
        .encode(&mut self.meta);
        let placed = self.builder.record(&NewRecord {
            kind: RecordKind::Put,
            supersedes: row.map(|row| row.position),
            epk: operation.key.epk.as_bytes(),
            meta: &self.meta,
            body: &self.body,
        });
        debug_assert_eq!(placed, position, "the etag in the body names the record it is in");
        draft.records += 1;
        draft.superseded.extend(row.map(|row| row.position).filter(|row| row.lsn < position.lsn));
        if row.is_none() {
            self.next_rid += 1;
        }
        let end = self.builder.byte_count();
        let bytes = end - self.body.len()..end;
        let new_row = ItemRow { position, rid, written, ttl: prepared.ttl };
        self.note_unique(operation, &prepared.unique, &freed, draft);
        draft.rows.push(key.clone(), Some(new_row));
        if let Some(bodies) = &mut draft.bodies {
            let body = Bytes::copy_from_slice(&self.body);
            bodies.push(key, Item::new(body, lsn_at, position, timestamp, rid));
        }
        Ok(Effect {
            change: Some(if row.is_none() { ChangeKind::Create } else { ChangeKind::Replace }),
            item: ItemSource::Group { bytes, lsn_at, rid },
            position,
            timestamp,
        })
    }

    fn delete(
        &mut self,
        operation: &Operation,
        key: Key,
        row: &ItemRow,
        timestamp: Timestamp,
        draft: &mut Draft,
    ) -> Result<Effect, Postponed> {
        let freed = self.freed_by_removing(row, operation, draft)?;
        let position = self.position(draft);
        self.tombstone(operation, row, &freed, false);
        draft.records += 1;
        draft.superseded.extend(Some(row.position).filter(|row| row.lsn < position.lsn));
        self.note_unique(operation, &[], &freed, draft);
        draft.rows.push(key, None);
        Ok(Effect { change: Some(ChangeKind::Delete), item: ItemSource::None, position, timestamp })
    }

    fn tombstone(&mut self, operation: &Operation, row: &ItemRow, freed: &[u8], expired: bool) {
        self.meta.clear();
        Meta {
            created: false,
            expired,
            ttl: row.ttl,
            expires: 0,
            rid: row.rid,
            lsn_at: 0,
            tail: &operation.key.tail,
            key_bytes: operation.key.key_bytes,
            unique: &[],
            freed,
        }
        .encode(&mut self.meta);
        self.builder.record(&NewRecord {
            kind: RecordKind::Tombstone,
            supersedes: Some(row.position),
            epk: operation.key.epk.as_bytes(),
            meta: &self.meta,
            body: &[],
        });
    }

    /// Composes the stored bytes of the item in `self.body`. Returns the offset of its `_lsn`.
    fn stamp(&mut self, members: &[u8], rid: u64, position: Position, written: u64) -> u32 {
        self.texts.set(
            &self.partition.self_prefix,
            ItemRid::new(self.partition.container, rid),
            position,
        );
        self.body.clear();
        let composed = body::stamp(
            members,
            &SystemProperties {
                rid: self.texts.rid(),
                self_link: self.texts.self_link(),
                etag: self.texts.etag(),
                ts: written,
                lsn: position.lsn.get(),
            },
            &mut self.body,
        );
        u32::try_from(composed.lsn_at).unwrap_or(u32::MAX)
    }

    fn position(&self, draft: &Draft) -> Position {
        Position { origin: self.partition.id, lsn: self.builder.next_lsn(), ordinal: draft.records }
    }

    fn row_key(&self, operation: &Operation) -> Key {
        keys::item(self.partition.container, operation.key.epk.as_bytes(), &operation.key.tail)
    }

    /// The row of an item after the decisions of this group, if they concern it.
    fn decided_row(&self, key: &Key, draft: &Draft) -> Option<Option<ItemRow>> {
        draft.rows.get(key).or_else(|| self.rows.get(key)).copied()
    }

    /// The row of an item after all decisions so far are applied.
    fn current_row(&self, key: &Key, draft: &Draft) -> Result<Option<ItemRow>, StorageError> {
        self.decided_row(key, draft).map_or_else(|| self.partition.row(key), Ok)
    }

    /// Like [`current_row`](Self::current_row), but uses the row that the caller has read if it is still current.
    fn row_of(
        &self,
        operation: &Operation,
        key: &Key,
        draft: &Draft,
    ) -> Result<Option<ItemRow>, StorageError> {
        if let Some(row) = self.decided_row(key, draft) {
            return Ok(row);
        }
        let last_write = || self.partition.last_writes.newest(operation.key.epk.as_bytes());
        match operation.prefetched {
            // The key was not written since the caller read the row.
            Some(prefetched) if last_write() <= prefetched.at => {
                debug_assert_eq!(
                    prefetched.row,
                    self.partition.row(key)?,
                    "a row that was looked up"
                );
                Ok(prefetched.row)
            }
            _ => self.partition.row(key),
        }
    }

    /// The item that a row points to.
    fn current_item(
        &self,
        key: &Key,
        row: &ItemRow,
        operation: &Operation,
        draft: &Draft,
    ) -> Result<Item, Postponed> {
        if let Some(item) = draft.bodies.as_ref().and_then(|bodies| bodies.get(key)) {
            return Ok(item.clone());
        }
        if self.rows.contains_key(key) {
            return Err(Postponed::NextGroup);
        }
        let record = self.partition.log()?.record(row.position, operation.key.epk.as_bytes())?;
        record.as_ref().and_then(item_of).ok_or_else(|| {
            let index = &self.partition.shared.index;
            index.doubt("a row points to a record that is not in the log").into()
        })
    }

    /// The unique keys that become free when this version is removed.
    fn freed_by_removing(
        &self,
        row: &ItemRow,
        operation: &Operation,
        draft: &Draft,
    ) -> Result<Vec<u8>, Postponed> {
        if !self.settings.has_unique_keys() {
            return Ok(Vec::new());
        }
        let key = self.row_key(operation);
        if draft.rows.get(&key).is_some() {
            return Ok(draft.held.get(&key).cloned().unwrap_or_default());
        }
        if self.rows.contains_key(&key) {
            return Err(Postponed::NextGroup);
        }
        // After the item expired, another item may have claimed one of its values, and keeps it.
        let id = operation.key.id();
        let mut freed = Vec::new();
        let held = self.partition.unique_keys_of(row, operation.key.epk.as_bytes())?;
        for unique in held.chunks_exact(UNIQUE_BYTES) {
            let named = self.named_owner(operation, unique, draft)?;
            if named.is_some_and(|(owner, _)| owner == id) {
                freed.extend_from_slice(unique);
            }
        }
        Ok(freed)
    }

    fn unique_key(&self, operation: &Operation, unique: &[u8]) -> Key {
        let (epk, encoded) = (operation.key.epk.as_bytes(), operation.key.encoded_key());
        keys::unique(self.partition.container, epk, encoded, unique)
    }

    /// Refuses values that another item has. Returns the keys the item releases.
    fn check_unique(
        &self,
        operation: &Operation,
        row: Option<&ItemRow>,
        prepared: &Prepared,
        draft: &Draft,
    ) -> Result<Vec<u8>, Postponed> {
        if !self.settings.has_unique_keys() {
            return Ok(Vec::new());
        }
        let id = operation.key.id();
        for unique in prepared.unique.chunks_exact(UNIQUE_BYTES) {
            let owner = self.owner_of(operation, unique, draft)?;
            if let Some(other) = owner.filter(|owner| *owner != id) {
                return Err(refuse(WriteError::UniqueKey { id, other }));
            }
        }
        let Some(row) = row else {
            return Ok(Vec::new());
        };
        let held = self.freed_by_removing(row, operation, draft)?;
        Ok(difference(&held, &prepared.unique))
    }

    /// The owner named by a unique key's row, and the version that claimed it: `None` for a version this
    /// group writes.
    fn named_owner(
        &self,
        operation: &Operation,
        unique: &[u8],
        draft: &Draft,
    ) -> Result<Option<(Owner, Option<Position>)>, Postponed> {
        let key = self.unique_key(operation, unique);
        if let Some(owner) = draft.unique.get(&key) {
            return Ok(owner.clone().map(|owner| (owner, None)));
        }
        if let Some(owner) = self.unique.get(&key) {
            return Ok(owner.clone().map(|owner| (owner, None)));
        }
        let value = self.partition.shared.index.get(&key)?;
        let named = value.as_ref().and_then(|value| keys::decode_position(value));
        Ok(named.map(|(position, id)| (String::from_utf8_lossy(id).into_owned(), Some(position))))
    }

    /// The item that currently holds a unique key.
    fn owner_of(
        &self,
        operation: &Operation,
        unique: &[u8],
        draft: &Draft,
    ) -> Result<Option<Owner>, Postponed> {
        let (id, position) = match self.named_owner(operation, unique, draft)? {
            Some((id, Some(position))) => (id, position),
            decided => return Ok(decided.map(|(id, _)| id)),
        };
        // A row is stale unless its owner is still the version that wrote it and has not expired.
        let mut tail = operation.key.encoded_key().to_vec();
        tail.extend_from_slice(id.as_bytes());
        let owner_key = keys::item(self.partition.container, operation.key.epk.as_bytes(), &tail);
        let row = self.current_row(&owner_key, draft)?;
        let holds = row.is_some_and(|row| {
            row.position == position && !self.settings.is_expired(row.written, row.ttl, self.now)
        });
        Ok(holds.then_some(id))
    }

    fn note_unique(&self, operation: &Operation, taken: &[u8], freed: &[u8], draft: &mut Draft) {
        if !self.settings.has_unique_keys() {
            return;
        }
        for unique in freed.chunks_exact(UNIQUE_BYTES) {
            draft.unique.push(self.unique_key(operation, unique), None);
        }
        for unique in taken.chunks_exact(UNIQUE_BYTES) {
            let owner = Some(operation.key.id());
            draft.unique.push(self.unique_key(operation, unique), owner);
        }
        draft.held.push(self.row_key(operation), taken.to_vec());
    }

    /// Deletes items given by their rows, in one entry. The group must be empty.
    pub(crate) fn delete_rows(&mut self, rows: &[(Operation, ItemRow)]) -> Result<(), Postponed> {
        let mut freed = Vec::with_capacity(rows.len());
        for (operation, row) in rows {
            freed.push(self.freed_by_removing(row, operation, &Draft::default())?);
        }
        self.begin();
        for ((operation, row), freed) in rows.iter().zip(&freed) {
            self.tombstone(operation, row, freed, false);
        }
        self.builder.finish();
        Ok(())
    }

    /// Writes the control entry that seals the partition.
    pub(crate) fn control(&mut self, meta: &[u8]) {
        self.begin();
        self.builder.record(&NewRecord {
            kind: RecordKind::Control,
            supersedes: None,
            epk: &[],
            meta,
            body: &[],
        });
        self.builder.finish();
    }
}

impl Effect {
    /// The result for the caller, once the group is written.
    pub(crate) fn into_written(self, group: &Group, partition: &Partition) -> Written {
        let item = match self.item {
            ItemSource::None => None,
            ItemSource::Read(item) => Some(item),
            ItemSource::Group { bytes, lsn_at, rid } => {
                let stored = group.bytes().slice(bytes);
                Some(Item::new(stored, lsn_at, self.position, self.timestamp, rid))
            }
        };
        Written { change: self.change, item, partition: partition.id, lsn: partition.visible() }
    }
}

/// The result of a transaction.
pub(crate) fn answer(effects: Vec<Effect>, group: &Group, partition: &Partition) -> Answer {
    Answer::Transaction(
        effects.into_iter().map(|effect| effect.into_written(group, partition)).collect(),
    )
}

fn refuse(error: WriteError) -> Postponed {
    Postponed::Refused(Refusal::Operation(0, error))
}

fn check_precondition(operation: &Operation, row: &ItemRow) -> Result<(), Postponed> {
    let current = etag(row.position);
    let met = match &operation.precondition {
        Precondition::None => true,
        Precondition::IfMatch(wanted) => current.matches(wanted),
        Precondition::IfNoneMatch(unwanted) => !current.matches(unwanted),
    };
    if met {
        return Ok(());
    }
    Err(refuse(WriteError::EtagMismatch { id: operation.key.id(), current }))
}

/// The unique keys in `held` that are not in `kept`.
fn difference(held: &[u8], kept: &[u8]) -> Vec<u8> {
    let gone = held
        .chunks_exact(UNIQUE_BYTES)
        .filter(|unique| !kept.chunks_exact(UNIQUE_BYTES).any(|other| other == *unique));
    gone.flatten().copied().collect()
}
