//! Items that were read a moment ago: reading one again asks neither the index nor the log.
//!
//! ```text
//! reader   ticket ─► index ─► log ─► keep, unless a write came after the ticket
//! writer   log ─► index ─► forget ─► visible ─► answer
//! ```
//!
//! What is kept is never older than the newest answered write: a writer forgets what it wrote after the
//! index knows it and before anybody is told, and whoever has looked at the index before that finds its
//! ticket void. It never decides anything; writers look at the index alone.
//!
//! Room is bounded in bytes. An item stays at least while half of the room is filled once, and longer if
//! it is read meanwhile.

use crate::keys::{ItemRow, Key};
use headwater_log::Record;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Parts with a lock of their own.
const SHARDS: usize = 16;
/// What an item takes beside its bytes, about.
const ITEM_BYTES: usize = 320;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Recent {
    shards: [Mutex<Shard>; SHARDS],
    hash: RandomState,
    /// Bytes of half a shard.
    half: usize,
    /// Whether anybody has ever looked. While nobody has, a writer has nothing to forget.
    is_used: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    /// Moves with every write of one of its items.
    writes: u64,
    young: HashMap<Key, Kept>,
    /// What was young until the young filled half of the room.
    old: HashMap<Key, Kept>,
    young_bytes: usize,
}

/// An item as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) row: ItemRow,
    pub(crate) record: Record,
}

/// From when a reader has looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    shard: usize,
    writes: u64,
}

impl Recent {
    pub(crate) fn new(bytes: usize) -> Recent {
        Recent {
            shards: Default::default(),
            hash: RandomState::new(),
            half: bytes / SHARDS / 2,
            is_used: AtomicBool::new(false),
        }
    }

    /// The item of this key, or what is needed to keep it.
    pub(crate) fn look(&self, key: &Key) -> Result<Kept, Ticket> {
        let number = self.shard_of(key);
        let mut shard = self.shards[number].lock();
        if let Some(kept) = shard.young.get(key) {
            return Ok(kept.clone());
        }
        if let Some(kept) = shard.old.remove(key) {
            shard.keep(key.clone(), kept.clone(), self.half);
            return Ok(kept);
        }
        let ticket = Ticket { shard: number, writes: shard.writes };
        drop(shard);
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::SeqCst);
        }
        // Either the writer sees that somebody looks, or the reader sees what the writer wrote.
        fence(Ordering::SeqCst);
        Err(ticket)
    }

    /// Keeps what was read since the ticket was given out, unless it may be out of date already.
    pub(crate) fn keep(&self, ticket: Ticket, key: Key, row: ItemRow, record: &Record) {
        let kept = Kept { row, record: record.detached() };
        let mut shard = self.shards[ticket.shard].lock();
        if shard.writes == ticket.writes {
            shard.keep(key, kept, self.half);
        }
    }

    /// Forgets what was written. The index must know the new versions, and nobody else yet.
    pub(crate) fn forget(&self, keys: &[Key]) {
        fence(Ordering::SeqCst);
        if !self.is_used.load(Ordering::SeqCst) {
            return;
        }
        for key in keys {
            let mut shard = self.shards[self.shard_of(key)].lock();
            shard.writes += 1;
            shard.forget(key);
        }
    }

    fn shard_of(&self, key: &Key) -> usize {
        usize::try_from(self.hash.hash_one(key) % SHARDS as u64).unwrap_or(0)
    }
}

impl Shard {
    fn keep(&mut self, key: Key, kept: Kept, half: usize) {
        let bytes = weight(&key, &kept);
        if bytes > half {
            return;
        }
        if self.young_bytes + bytes > half {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        // Two readers may have read the same item.
        self.forget(&key);
        self.young_bytes += bytes;
        self.young.insert(key, kept);
    }

    fn forget(&mut self, key: &Key) {
        if let Some(kept) = self.young.remove(key) {
            self.young_bytes -= weight(key, &kept);
        }
        self.old.remove(key);
    }
}

fn weight(key: &Key, kept: &Kept) -> usize {
    ITEM_BYTES + key.len() + kept.record.content_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_log::{NewRecord, RecordKind, Tail, entry};
    use headwater_model::{Lsn, PartitionId, Timestamp};

    fn record(body: &[u8]) -> Record {
        let mut builder = entry::GroupBuilder::new(PartitionId::new(1), 1, Tail::start(Lsn::ZERO));
        builder.begin(Timestamp::from_millis(1), 1);
        let kind = RecordKind::Put;
        builder.record(&NewRecord { kind, supersedes: None, epk: b"e", meta: b"m", body });
        builder.finish();
        let group = builder.build();
        let header = entry::decode_header(group.bytes()).unwrap();
        let mut found = None;
        entry::for_each_record(group.bytes(), &header, |record| found = Some(record)).unwrap();
        found.unwrap()
    }

    fn row() -> ItemRow {
        ItemRow { position: record(b"").position, rid: 1, written: 1, ttl: 0 }
    }

    fn key(number: u32) -> Key {
        Key::from_slice(&number.to_be_bytes())
    }

    fn read(recent: &Recent, number: u32, body: &[u8]) -> bool {
        match recent.look(&key(number)) {
            Ok(kept) => {
                assert_eq!(kept.record.body(), body);
                true
            }
            Err(ticket) => {
                recent.keep(ticket, key(number), row(), &record(body));
                false
            }
        }
    }

    #[test]
    fn what_was_read_before_a_write_is_not_kept_after_it() {
        let recent = Recent::new(1 << 20);
        let ticket = recent.look(&key(1)).unwrap_err();
        recent.forget(&[key(1)]);
        recent.keep(ticket, key(1), row(), &record(b"old"));
        assert!(!read(&recent, 1, b"new"));
        assert!(read(&recent, 1, b"new"));
        recent.forget(&[key(1)]);
        assert!(!read(&recent, 1, b"newest"));
    }

    #[test]
    fn room_is_bounded_and_what_is_read_again_stays() {
        let recent = Recent::new(1 << 20);
        assert!(!read(&recent, 0, &[0; 1000]));
        for number in 1..10_000 {
            read(&recent, number, &[0; 1000]);
            if number % 20 == 0 {
                assert!(read(&recent, 0, &[0; 1000]), "after {number}");
            }
        }
        let kept = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let weights = shard.young.iter().map(|(key, kept)| weight(key, kept));
            assert_eq!(weights.sum::<usize>(), shard.young_bytes);
            shard.young.len() + shard.old.len()
        };
        let items: usize = recent.shards.iter().map(kept).sum();
        assert!((300..=(1 << 20) / 1300).contains(&items), "{items} items");
        // One that would fill the room alone is not kept.
        assert!(!read(&recent, 10_001, &[0; 100_000]));
        assert!(!read(&recent, 10_001, &[0; 100_000]));
    }
}
