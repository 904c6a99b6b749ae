//! Converts a log record to index rows. Deterministic: no clock, no randomness, no input but the record.

use crate::index::Batch;
use crate::item::{Meta, UNIQUE_BYTES};
use crate::keys::{self, ItemRow, Value};
use headwater_log::{Record, RecordKind};
use headwater_model::ContainerRid;

/// Adds the rows of a record to a batch. False when the record's metadata cannot be decoded.
pub(crate) fn apply(container: ContainerRid, record: &Record, batch: &mut Batch) -> bool {
    if record.kind == RecordKind::Control {
        return true;
    }
    let Some(meta) = Meta::decode(record.meta()) else {
        return false;
    };
    let key = keys::item(container, record.epk(), meta.tail);
    for freed in meta.freed.chunks_exact(UNIQUE_BYTES) {
        batch.remove(keys::unique(container, record.epk(), meta.key(), freed));
    }
    if record.kind == RecordKind::Tombstone {
        batch.remove(key);
        return true;
    }
    for unique in meta.unique.chunks_exact(UNIQUE_BYTES) {
        let mut owner = Value::new();
        keys::encode_position(&mut owner, record.position);
        owner.extend_from_slice(meta.id().as_bytes());
        batch.put(keys::unique(container, record.epk(), meta.key(), unique), owner);
    }
    if meta.expires > 0 {
        // The expiry row of an earlier version is not removed; the sweeper finds it stale.
        let mut position = Value::new();
        keys::encode_position(&mut position, record.position);
        batch.put(keys::expiry(container, meta.expires, &key), position);
    }
    let row = ItemRow {
        position: record.position,
        rid: meta.rid,
        written: record.timestamp.as_seconds(),
        ttl: meta.ttl,
    };
    batch.put(key, row.encode());
    true
}
