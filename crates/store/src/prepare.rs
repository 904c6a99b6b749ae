//! Validates writes and encodes them for the writer, in the caller's task.
//!
//! Checks everything that does not depend on other items: the JSON, the id, the partition key, the time to
//! live. The result is bytes and keys, so the writer parses nothing. Never reads the index.

use crate::body::{self, Patch, Scanned, Ttl, ValueKind, ValueSpan};
use crate::definition::Settings;
use crate::error::WriteError;
use crate::item::{Condition, ItemKey, ItemWrite, Precondition, UNIQUE_BYTES, WriteKind};
use crate::keys::ItemRow;
use bytes::Bytes;
use headwater_log::Position;
use headwater_model::{ItemId, Lsn, PartitionKey, PartitionKeyValue};
use smallvec::{SmallVec, smallvec};

/// An operation a writer can evaluate.
#[derive(Clone)]
pub(crate) struct Operation {
    pub(crate) key: ItemKey,
    pub(crate) action: Action,
    pub(crate) precondition: Precondition,
    pub(crate) prefetched: Option<PrefetchedRow>,
    pub(crate) condition_result: Option<Box<ConditionResult>>,
}

/// The result of a patch's condition on one version of its item, evaluated before the writer needs it.
#[derive(Clone, Debug)]
pub(crate) struct ConditionResult {
    pub(crate) version: Position,
    pub(crate) holds: Result<bool, String>,
}

/// An item's row, read by the caller so that the writer need not read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefetchedRow {
    /// The visible LSN before the row was read: the row is from this LSN or a later one.
    pub(crate) at: Lsn,
    pub(crate) row: Option<ItemRow>,
}

#[derive(Clone)]
pub(crate) enum Action {
    Create(Prepared),
    Upsert(Prepared),
    Replace(Prepared),
    Delete,
    Patch(Patch, Option<Condition>),
    Read,
    /// Delete the item if it has expired.
    Expire,
    /// Refuse the transaction unless the item is at this position, or absent if `None`.
    Unchanged(Option<Position>),
    /// Refuse the transaction if an item of the same partition key was written after this LSN.
    Untouched(Lsn),
}

/// A checked body.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// The user's members: the body without its braces and without system properties.
    pub(crate) members: Bytes,
    /// 0 for none, -1 for never.
    pub(crate) ttl: i32,
    /// Unique keys, [`UNIQUE_BYTES`] each.
    pub(crate) unique: Vec<u8>,
}

impl Operation {
    pub(crate) fn new(key: ItemKey, action: Action, precondition: Precondition) -> Operation {
        Operation { key, action, precondition, prefetched: None, condition_result: None }
    }

    /// Bytes of the operation's body.
    pub(crate) fn byte_count(&self) -> usize {
        match &self.action {
            Action::Create(body) | Action::Upsert(body) | Action::Replace(body) => {
                body.members.len()
            }
            _ => 0,
        }
    }
}

/// Limit for the bytes of the items that a transaction of several operations writes, and for those it
/// replaces or deletes. Readers of the feed get them on one page.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 16 << 20;

/// The steps of a write, executed in order as one transaction. The result of the last one is the result of
/// the write.
pub(crate) type Steps = SmallVec<[Operation; 1]>;

/// Checks a write and converts it to steps.
pub(crate) fn prepare(settings: &Settings, write: ItemWrite) -> Result<Steps, WriteError> {
    let ItemWrite { kind, partition_key, precondition, keeps_id } = write;
    let given = partition_key.as_ref();
    let (key, action) = match kind {
        WriteKind::Create(body) => {
            let (key, body) = prepare_body(settings, &body, given, None)?;
            (key, Action::Create(body))
        }
        WriteKind::Upsert(body) => {
            let (key, body) = prepare_body(settings, &body, given, None)?;
            (key, Action::Upsert(body))
        }
        WriteKind::Replace(id, body) => {
            let (key, body) = prepare_body(settings, &body, given, Some(&id))?;
            if !key.is_of(&id) {
                if keeps_id {
                    return Err(WriteError::Rename { given: id, in_body: key.id() });
                }
                return rename(key, body, &id, precondition);
            }
            (key, Action::Replace(body))
        }
        WriteKind::Delete(id) => (key_of(settings, given, &id)?, Action::Delete),
        WriteKind::Read(id) => (key_of(settings, given, &id)?, Action::Read),
        WriteKind::Patch(id, patch, condition) => {
            (key_of(settings, given, &id)?, Action::Patch(patch, condition))
        }
    };
    Ok(smallvec![Operation::new(key, action, precondition)])
}

/// Checks a write that must be a single step, as scripts require.
pub(crate) fn prepare_step(settings: &Settings, write: ItemWrite) -> Result<Operation, WriteError> {
    let mut steps = prepare(settings, write)?;
    let last = steps.pop().ok_or(WriteError::EmptyBatch)?;
    match steps.pop() {
        None => Ok(last),
        Some(first) => Err(WriteError::Rename { given: first.key.id(), in_body: last.key.id() }),
    }
}

/// A replacement under another id: deletes the item with the old id and creates one with the new id.
fn rename(
    key: ItemKey,
    body: Prepared,
    old_id: &str,
    precondition: Precondition,
) -> Result<Steps, WriteError> {
    let old = key.with_id(&ItemId::new(old_id)?);
    Ok(smallvec![
        Operation::new(old, Action::Delete, precondition),
        Operation::new(key, Action::Create(body), Precondition::None),
    ])
}

/// The key of an item whose body is not given.
pub(crate) fn key_of(
    settings: &Settings,
    partition_key: Option<&PartitionKey>,
    id: &str,
) -> Result<ItemKey, WriteError> {
    let definition = settings.definition.partition_key();
    let empty = PartitionKey::empty();
    let key = partition_key.unwrap_or(&empty);
    Ok(ItemKey::new(definition.epk(key)?, key, &ItemId::new(id)?))
}

fn prepare_body(
    settings: &Settings,
    body: &Bytes,
    given_key: Option<&PartitionKey>,
    given_id: Option<&str>,
) -> Result<(ItemKey, Prepared), WriteError> {
    let scanned = body::scan(body, &settings.wanted)?;
    let key = partition_key_in(settings, &scanned);
    if let Some(given) = given_key.filter(|given| **given != key) {
        return Err(WriteError::PartitionKeyMismatch {
            given: given.to_json(),
            in_body: key.to_json(),
        });
    }
    let epk = settings.definition.partition_key().epk(&key)?;
    let (id, added) = match (scanned.id(), given_id) {
        (Some(in_body), _) => (ItemId::new(&in_body)?, None),
        (None, Some(given)) => (ItemId::new(given)?, Some(given)),
        (None, None) => return Err(WriteError::MissingId),
    };
    let prepared = prepared_from(settings, body, &scanned, added)?;
    Ok((ItemKey::new(epk, &key, &id), prepared))
}

/// Checks the body produced by a patch, which cannot change the id or the partition key.
pub(crate) fn prepare_patched(settings: &Settings, body: &Bytes) -> Result<Prepared, WriteError> {
    let scanned = body::scan(body, &settings.wanted)?;
    prepared_from(settings, body, &scanned, None)
}

fn prepared_from(
    settings: &Settings,
    body: &Bytes,
    scanned: &Scanned<'_>,
    added_id: Option<&str>,
) -> Result<Prepared, WriteError> {
    let ttl = match scanned.ttl() {
        Ttl::Absent => 0,
        Ttl::Integer(-1) => -1,
        Ttl::Integer(seconds) => {
            i32::try_from(seconds).ok().filter(|seconds| *seconds > 0).ok_or(WriteError::Ttl)?
        }
        Ttl::Null | Ttl::Other => return Err(WriteError::Ttl),
    };
    Ok(Prepared {
        members: body::members(body, scanned, added_id),
        ttl,
        unique: unique_keys_in(settings, scanned),
    })
}

fn partition_key_in(settings: &Settings, scanned: &Scanned<'_>) -> PartitionKey {
    let definition = settings.definition.partition_key();
    let count = definition.paths.len();
    let all_missing = scanned.values()[..count].iter().all(Option::is_none);
    if definition.system_key && all_missing {
        return PartitionKey::empty();
    }
    let values = scanned.values()[..count].iter().map(|span| key_value(scanned.body(), *span));
    PartitionKey::from_values(values)
}

fn key_value(body: &[u8], span: Option<ValueSpan>) -> PartitionKeyValue {
    let Some(span) = span else {
        return PartitionKeyValue::Undefined;
    };
    match span.kind {
        ValueKind::Null => PartitionKeyValue::Null,
        ValueKind::False => PartitionKeyValue::Bool(false),
        ValueKind::True => PartitionKeyValue::Bool(true),
        ValueKind::Number => {
            span.as_f64(body).map_or(PartitionKeyValue::Undefined, PartitionKeyValue::Number)
        }
        ValueKind::String => span.as_str(body).map_or(PartitionKeyValue::Undefined, |text| {
            PartitionKeyValue::String(text.into_owned())
        }),
        // Objects and arrays count as undefined for routing.
        ValueKind::Object | ValueKind::Array => PartitionKeyValue::Undefined,
    }
}

/// One hash per unique key, of the values at its paths.
fn unique_keys_in(settings: &Settings, scanned: &Scanned<'_>) -> Vec<u8> {
    let keys = settings.definition.unique_keys();
    let mut out = Vec::with_capacity(keys.len() * UNIQUE_BYTES);
    let mut path = settings.definition.partition_key().paths.len();
    let mut text = Vec::new();
    for (number, paths) in keys.iter().enumerate() {
        text.clear();
        for _ in paths {
            encode_value(scanned.body(), scanned.value(path), &mut text);
            path += 1;
        }
        out.push(u8::try_from(number).unwrap_or(u8::MAX));
        out.extend_from_slice(&xxhash_rust::xxh3::xxh3_128(&text).to_le_bytes());
    }
    out
}

/// Encodes a value such that equal values have equal bytes: `1` is `1.0`, and `"\u0061"` is `"a"`.
fn encode_value(body: &[u8], span: Option<ValueSpan>, out: &mut Vec<u8>) {
    let Some(span) = span else {
        out.push(0);
        return;
    };
    match span.kind {
        ValueKind::Null => out.push(1),
        ValueKind::False => out.push(2),
        ValueKind::True => out.push(3),
        ValueKind::Number => {
            out.push(5);
            out.extend_from_slice(&span.as_f64(body).unwrap_or_default().to_le_bytes());
        }
        ValueKind::String => {
            out.push(8);
            let text = span.as_str(body).unwrap_or_default();
            out.extend_from_slice(&(text.len() as u64).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        ValueKind::Object | ValueKind::Array => {
            out.push(9);
            let text = span.text(body);
            out.extend_from_slice(&(text.len() as u64).to_le_bytes());
            out.extend_from_slice(text);
        }
    }
}
