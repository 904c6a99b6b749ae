//! Items and writes as callers see them, and the metadata of log records. Stores nothing.

use crate::body::Patch;
use bytes::Bytes;
use headwater_log::{Position, Record};
use headwater_model::{ChangeKind, Etag, ItemId, Lsn, PartitionId, PartitionKey, Timestamp};
use std::fmt;
use std::sync::Arc;

/// One version of an item, as bytes.
///
/// The stored bytes end in `,"_lsn":7}`, which the change feed returns. All other reads leave it out.
/// [`Item::parts`] returns both pieces without copying.
#[derive(Clone)]
pub struct Item {
    stored: Bytes,
    lsn_at: u32,
    position: Position,
    timestamp: Timestamp,
    number: u64,
}

impl Item {
    pub(crate) fn new(
        stored: Bytes,
        lsn_at: u32,
        position: Position,
        timestamp: Timestamp,
        number: u64,
    ) -> Item {
        let lsn_at = lsn_at.min(u32::try_from(stored.len()).unwrap_or(u32::MAX));
        Item { stored, lsn_at, position, timestamp, number }
    }

    /// The item as JSON, in two consecutive pieces.
    #[must_use]
    pub fn parts(&self) -> (&[u8], &'static [u8]) {
        (&self.stored[..self.lsn_at as usize], b"}")
    }

    /// The item as JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let (body, end) = self.parts();
        let mut bytes = Vec::with_capacity(body.len() + end.len());
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(end);
        Bytes::from(bytes)
    }

    /// The item as JSON with its `_lsn`, as the change feed returns it.
    #[must_use]
    pub fn feed_bytes(&self) -> &Bytes {
        &self.stored
    }

    /// Deserialises the item.
    ///
    /// # Errors
    /// When the item does not have the shape of `T`.
    pub fn parse<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.stored)
    }

    /// The etag, which changes with every write of the item.
    #[must_use]
    pub fn etag(&self) -> Etag {
        etag(self.position)
    }

    /// The LSN of the transaction that wrote this version.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.position.lsn
    }

    /// The partition that wrote this version.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.position.origin
    }

    /// The item's number within its container. It is part of the resource id and increases with creation.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// When this version was written.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (body, end) = self.parts();
        write!(f, "{}{}", String::from_utf8_lossy(body), String::from_utf8_lossy(end))
    }
}

pub(crate) fn etag(position: Position) -> Etag {
    Etag::new(position.origin, position.lsn, position.ordinal)
}

/// Decides whether a patch is applied, given the item as JSON. The query engine compiles one from SQL; any
/// other function works too.
pub type Condition = Arc<dyn Fn(&[u8]) -> Result<bool, String> + Send + Sync>;

/// A precondition on the item of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// No precondition.
    #[default]
    None,
    /// The item has this etag (quoted or not); `*` matches any existing item.
    IfMatch(String),
    /// The item does not exist (`*`), or does not have this etag.
    IfNoneMatch(String),
}

/// One operation on one item.
///
/// ```
/// use headwater_store::ItemWrite;
///
/// let write = ItemWrite::upsert(r#"{"id":"1","customer":"ann","total":120}"#).if_match("\"…\"");
/// ```
#[derive(Clone)]
pub struct ItemWrite {
    pub(crate) kind: WriteKind,
    pub(crate) partition_key: Option<PartitionKey>,
    pub(crate) precondition: Precondition,
    pub(crate) keeps_id: bool,
}

#[derive(Clone)]
pub(crate) enum WriteKind {
    Create(Bytes),
    Upsert(Bytes),
    Replace(String, Bytes),
    Delete(String),
    Patch(String, Patch, Option<Condition>),
    Read(String),
}

impl ItemWrite {
    fn new(kind: WriteKind) -> ItemWrite {
        ItemWrite { kind, partition_key: None, precondition: Precondition::None, keeps_id: false }
    }

    /// Creates an item that must not exist yet. The body must have an `id`.
    pub fn create(body: impl Into<Bytes>) -> ItemWrite {
        ItemWrite::new(WriteKind::Create(body.into()))
    }

    /// Creates an item, or replaces it if it exists.
    pub fn upsert(body: impl Into<Bytes>) -> ItemWrite {
        ItemWrite::new(WriteKind::Upsert(body.into()))
    }

    /// Replaces an item that must exist.
    pub fn replace(id: &str, body: impl Into<Bytes>) -> ItemWrite {
        ItemWrite::new(WriteKind::Replace(id.to_owned(), body.into()))
    }

    /// Deletes an item that must exist.
    pub fn delete(partition_key: impl Into<PartitionKey>, id: &str) -> ItemWrite {
        ItemWrite::new(WriteKind::Delete(id.to_owned())).partition_key(partition_key)
    }

    /// Applies a patch to an item that must exist.
    pub fn patch(partition_key: impl Into<PartitionKey>, id: &str, patch: Patch) -> ItemWrite {
        ItemWrite::new(WriteKind::Patch(id.to_owned(), patch, None)).partition_key(partition_key)
    }

    /// Reads an item inside a batch, after the operations before it.
    pub fn read(id: &str) -> ItemWrite {
        ItemWrite::new(WriteKind::Read(id.to_owned()))
    }

    /// Sets the partition key of the item, which must equal the key in the body.
    #[must_use]
    pub fn partition_key(mut self, key: impl Into<PartitionKey>) -> ItemWrite {
        self.partition_key = Some(key.into());
        self
    }

    /// Requires that the item has this etag.
    #[must_use]
    pub fn if_match(mut self, etag: &str) -> ItemWrite {
        self.precondition = Precondition::IfMatch(etag.to_owned());
        self
    }

    /// Requires that the item does not exist (`*`), or does not have this etag.
    #[must_use]
    pub fn if_none_match(mut self, etag: &str) -> ItemWrite {
        self.precondition = Precondition::IfNoneMatch(etag.to_owned());
        self
    }

    /// Refuses a replacement whose body has another id, which would rename the item.
    #[must_use]
    pub fn keep_id(mut self) -> ItemWrite {
        self.keeps_id = true;
        self
    }

    /// Requires that a condition holds for the item (patch only).
    #[must_use]
    pub fn condition(mut self, holds: Condition) -> ItemWrite {
        if let WriteKind::Patch(_, _, condition) = &mut self.kind {
            *condition = Some(holds);
        }
        self
    }
}

impl fmt::Debug for ItemWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, id) = match &self.kind {
            WriteKind::Create(_) => ("Create", ""),
            WriteKind::Upsert(_) => ("Upsert", ""),
            WriteKind::Replace(id, _) => ("Replace", id.as_str()),
            WriteKind::Delete(id) => ("Delete", id.as_str()),
            WriteKind::Patch(id, ..) => ("Patch", id.as_str()),
            WriteKind::Read(id) => ("Read", id.as_str()),
        };
        f.debug_tuple(name).field(&id).finish()
    }
}

/// The result of an operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Written {
    /// The kind of change; `None` if the item was only read.
    pub change: Option<ChangeKind>,
    /// The item after the operation; `None` if it was deleted.
    pub item: Option<Item>,
    /// The partition of the item.
    pub partition: PartitionId,
    /// The visible LSN of the partition after the operation, for session consistency.
    pub lsn: Lsn,
}

impl Written {
    /// The item after the operation.
    ///
    /// # Panics
    /// After a delete.
    #[must_use]
    pub fn into_item(self) -> Item {
        self.item.expect("the operation was not a delete")
    }
}

/// Metadata of an item in a log record, stored next to the item's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta<'a> {
    pub(crate) created: bool,
    /// The delete was made by expiry.
    pub(crate) expired: bool,
    pub(crate) ttl: i32,
    /// The second at which the item expires; 0 for never.
    pub(crate) expires: u64,
    pub(crate) rid: u64,
    pub(crate) lsn_at: u32,
    /// Encoded partition key, then id.
    pub(crate) tail: &'a [u8],
    pub(crate) key_bytes: u16,
    /// Unique keys the item claims, 17 bytes each.
    pub(crate) unique: &'a [u8],
    /// Unique keys the item releases.
    pub(crate) freed: &'a [u8],
}

const META_FIXED: usize = 1 + 4 + 8 + 8 + 4 + 2 + 2 + 1 + 1;
/// Bytes of one unique key: the number of the constraint and a hash of the values.
pub(crate) const UNIQUE_BYTES: usize = 17;

impl<'a> Meta<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let count = |bytes: &[u8]| u8::try_from(bytes.len() / UNIQUE_BYTES).unwrap_or(u8::MAX);
        out.reserve(META_FIXED + self.tail.len() + self.unique.len() + self.freed.len());
        out.push(u8::from(self.created) | (u8::from(self.expired) << 1));
        out.extend_from_slice(&self.ttl.to_le_bytes());
        out.extend_from_slice(&self.expires.to_le_bytes());
        out.extend_from_slice(&self.rid.to_le_bytes());
        out.extend_from_slice(&self.lsn_at.to_le_bytes());
        out.extend_from_slice(&self.key_bytes.to_le_bytes());
        let tail_bytes = u16::try_from(self.tail.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&tail_bytes.to_le_bytes());
        out.push(count(self.unique));
        out.push(count(self.freed));
        out.extend_from_slice(self.tail);
        out.extend_from_slice(self.unique);
        out.extend_from_slice(self.freed);
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Meta<'a>> {
        let (flags, rest) = bytes.split_first()?;
        let (ttl, rest) = rest.split_first_chunk()?;
        let (expires, rest) = rest.split_first_chunk()?;
        let (rid, rest) = rest.split_first_chunk()?;
        let (lsn_at, rest) = rest.split_first_chunk()?;
        let (key_bytes, rest) = rest.split_first_chunk()?;
        let (tail_bytes, rest) = rest.split_first_chunk()?;
        let ([unique, freed], rest) = rest.split_first_chunk()?;
        let (tail, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*tail_bytes)))?;
        let (unique, rest) = rest.split_at_checked(usize::from(*unique) * UNIQUE_BYTES)?;
        let (freed, rest) = rest.split_at_checked(usize::from(*freed) * UNIQUE_BYTES)?;
        let key_bytes = u16::from_le_bytes(*key_bytes);
        let whole = rest.is_empty() && usize::from(key_bytes) <= tail.len();
        whole.then_some(Meta {
            created: flags & 1 != 0,
            expired: flags & 2 != 0,
            ttl: i32::from_le_bytes(*ttl),
            expires: u64::from_le_bytes(*expires),
            rid: u64::from_le_bytes(*rid),
            lsn_at: u32::from_le_bytes(*lsn_at),
            tail,
            key_bytes,
            unique,
            freed,
        })
    }

    /// The encoded partition key.
    pub(crate) fn key(&self) -> &'a [u8] {
        &self.tail[..usize::from(self.key_bytes)]
    }

    pub(crate) fn id(&self) -> &'a str {
        std::str::from_utf8(&self.tail[usize::from(self.key_bytes)..]).unwrap_or_default()
    }
}

/// The item in a record, if the record holds one.
pub(crate) fn item_of(record: &Record) -> Option<Item> {
    Meta::decode(record.meta()).map(|meta| item_with(record, &meta))
}

/// The item in a record whose metadata is decoded already.
pub(crate) fn item_with(record: &Record, meta: &Meta<'_>) -> Item {
    Item::new(record.body_bytes(), meta.lsn_at, record.position, record.timestamp, meta.rid)
}

/// The address of an item: hashed key, partition key and id.
#[derive(Clone, Debug)]
pub(crate) struct ItemKey {
    pub(crate) epk: headwater_model::Epk,
    /// Encoded partition key, then id.
    pub(crate) tail: Vec<u8>,
    pub(crate) key_bytes: u16,
}

impl ItemKey {
    pub(crate) fn new(epk: headwater_model::Epk, key: &PartitionKey, id: &ItemId) -> ItemKey {
        let mut tail = Vec::with_capacity(32 + id.as_str().len());
        key.encode_into(&mut tail);
        let key_bytes = u16::try_from(tail.len()).unwrap_or(u16::MAX);
        tail.extend_from_slice(id.as_str().as_bytes());
        ItemKey { epk, tail, key_bytes }
    }

    pub(crate) fn id(&self) -> String {
        String::from_utf8_lossy(&self.tail[usize::from(self.key_bytes)..]).into_owned()
    }

    pub(crate) fn is_of(&self, id: &str) -> bool {
        &self.tail[usize::from(self.key_bytes)..] == id.as_bytes()
    }

    /// The key of another item of the same partition key.
    pub(crate) fn with_id(&self, id: &ItemId) -> ItemKey {
        let tail = [self.encoded_key(), id.as_str().as_bytes()].concat();
        ItemKey { epk: self.epk.clone(), tail, key_bytes: self.key_bytes }
    }

    pub(crate) fn encoded_key(&self) -> &[u8] {
        &self.tail[..usize::from(self.key_bytes)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_survives_its_bytes_and_no_cut_is_believed() {
        let unique = [1; UNIQUE_BYTES * 2];
        let freed = [2; UNIQUE_BYTES];
        let meta = Meta {
            created: true,
            expired: false,
            ttl: -1,
            expires: 9,
            rid: 7,
            lsn_at: 3,
            tail: b"keyid",
            key_bytes: 3,
            unique: &unique,
            freed: &freed,
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        assert_eq!(Meta::decode(&bytes), Some(meta.clone()));
        assert_eq!((meta.key(), meta.id()), (&b"key"[..], "id"));
        for length in 0..bytes.len() {
            assert_eq!(Meta::decode(&bytes[..length]), None, "length {length}");
        }
    }
}
