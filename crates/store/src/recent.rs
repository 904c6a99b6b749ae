//! A cache of items that were read recently, in front of index and log.
//!
//! ```text
//! reader   ticket ─► index ─► log ─► keep, unless a write came after the ticket
//! writer   log ─► index ─► forget ─► visible ─► answer
//! ```
//!
//! A cached item is never older than the newest acknowledged write. The writer removes written items after
//! the index has the new versions and before they are visible. A reader that looked at the index before that
//! has a stale ticket, and its item is not cached. Writers never read the cache.
//!
//! The size is limited in bytes. An item enters the cache at its second read within a while, so a full scan
//! does not evict others. Entries are in two generations: when the young one fills half of the space, it
//! becomes the old one, and the previous old one is dropped. A read moves an item back to the young
//! generation.

use crate::keys::{ItemRow, Key};
use headwater_log::Record;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Shards, each with a lock of its own.
const SHARDS: usize = 16;
/// Estimated overhead of an item, in bytes.
const ITEM_BYTES: usize = 320;
/// Slots in which a shard remembers keys that were read once.
const SEEN_PLACES: usize = 4096;

/// The cache of recently read items.
#[derive(Debug)]
pub(crate) struct ItemCache {
    shards: [Mutex<Shard>; SHARDS],
    hash: RandomState,
    /// Byte limit of one generation of a shard.
    half: usize,
    /// Whether any reader has used the cache. Until then, writers have nothing to remove.
    is_used: AtomicBool,
}

#[derive(Debug)]
struct Shard {
    /// Counts writes of items of this shard.
    writes: u64,
    /// Items by the hash of their keys. Of two keys with the same hash only one is cached.
    young: Items,
    /// The previous young generation.
    old: Items,
    young_bytes: usize,
    old_bytes: usize,
    /// Parts of the hashes of keys that were read but not cached.
    seen: Box<[u16]>,
}

type Items = HashMap<u64, (Key, CachedItem), BuildHasherDefault<Hashed>>;

/// A hasher for keys that are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A cached item.
#[derive(Clone, Debug)]
pub(crate) struct CachedItem {
    pub(crate) row: ItemRow,
    pub(crate) record: Record,
}

/// The state of the cache when a reader looked at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    hash: u64,
    writes: u64,
    /// Whether the key was read before, a while ago.
    again: bool,
}

impl ItemCache {
    pub(crate) fn new(bytes: usize) -> ItemCache {
        ItemCache {
            shards: std::array::from_fn(|_| Mutex::new(Shard::new())),
            hash: RandomState::new(),
            half: bytes / SHARDS / 2,
            is_used: AtomicBool::new(false),
        }
    }

    /// The cached item of this key, or a ticket to cache it.
    pub(crate) fn look(&self, key: &Key) -> Result<CachedItem, Ticket> {
        let hash = self.hash.hash_one(key);
        let mut shard = self.shard(hash).lock();
        if let Some(kept) = shard.find(hash, key, self.half) {
            return Ok(kept);
        }
        let again = shard.note(hash);
        let ticket = Ticket { hash, writes: shard.writes, again };
        drop(shard);
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::SeqCst);
        }
        // Either the writer sees that the cache is used, or the reader sees the writer's rows.
        fence(Ordering::SeqCst);
        Err(ticket)
    }

    /// Caches an item read after the ticket was issued, unless it may be stale.
    pub(crate) fn keep(&self, ticket: Ticket, key: Key, row: ItemRow, record: &Record) {
        if !ticket.again {
            return;
        }
        let kept = CachedItem { row, record: record.detached() };
        let mut shard = self.shard(ticket.hash).lock();
        if shard.writes == ticket.writes {
            shard.keep(ticket.hash, key, kept, self.half);
        }
    }

    /// Removes written items. Called when the index has the new versions and before they are visible.
    pub(crate) fn forget<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) {
        fence(Ordering::SeqCst);
        if !self.is_used.load(Ordering::SeqCst) {
            return;
        }
        for key in keys {
            let hash = self.hash.hash_one(key);
            let mut shard = self.shard(hash).lock();
            shard.writes += 1;
            shard.forget(hash);
        }
    }

    /// Estimated bytes of the cached items.
    pub(crate) fn byte_count(&self) -> usize {
        let bytes = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.young_bytes + shard.old_bytes
        };
        self.shards.iter().map(bytes).sum()
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // Hash tables use the highest and the lowest bits, so take others.
        &self.shards[usize::from(hash.to_le_bytes()[6]) % SHARDS]
    }
}

impl Shard {
    fn new() -> Shard {
        Shard {
            writes: 0,
            young: Items::default(),
            old: Items::default(),
            young_bytes: 0,
            old_bytes: 0,
            seen: vec![0; SEEN_PLACES].into_boxed_slice(),
        }
    }

    fn find(&mut self, hash: u64, key: &Key, half: usize) -> Option<CachedItem> {
        if let Some((known, kept)) = self.young.get(&hash) {
            return (known == key).then(|| kept.clone());
        }
        let (known, kept) = self.take_old(hash)?;
        if known != *key {
            return None;
        }
        self.keep(hash, known, kept.clone(), half);
        Some(kept)
    }

    /// Records the read of a key. True if it was read before, a while ago.
    fn note(&mut self, hash: u64) -> bool {
        let bytes = hash.to_le_bytes();
        let place =
            &mut self.seen[usize::from(u16::from_le_bytes([bytes[0], bytes[1]])) % SEEN_PLACES];
        let part = u16::from_le_bytes([bytes[4], bytes[5]]);
        std::mem::replace(place, part) == part
    }

    fn keep(&mut self, hash: u64, key: Key, kept: CachedItem, half: usize) {
        let bytes = weight(&key, &kept);
        if bytes > half {
            return;
        }
        // Another reader may have cached the same item.
        self.forget(hash);
        if self.young_bytes + bytes > half {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
        self.young_bytes += bytes;
        self.young.insert(hash, (key, kept));
    }

    fn forget(&mut self, hash: u64) {
        if let Some((key, kept)) = self.young.remove(&hash) {
            self.young_bytes -= weight(&key, &kept);
        }
        self.take_old(hash);
    }

    fn take_old(&mut self, hash: u64) -> Option<(Key, CachedItem)> {
        let (key, kept) = self.old.remove(&hash)?;
        self.old_bytes -= weight(&key, &kept);
        Some((key, kept))
    }
}

fn weight(key: &Key, kept: &CachedItem) -> usize {
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

    fn read(recent: &ItemCache, number: u32, body: &[u8]) -> bool {
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
        let recent = ItemCache::new(1 << 20);
        assert!(!read(&recent, 1, b"old"));
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
        let recent = ItemCache::new(1 << 20);
        assert!(!read(&recent, 0, &[0; 1000]));
        assert!(!read(&recent, 0, &[0; 1000]), "what was read once is not kept");
        for number in 1..10_000 {
            read(&recent, number, &[0; 1000]);
            read(&recent, number, &[0; 1000]);
            if number % 20 == 0 {
                assert!(read(&recent, 0, &[0; 1000]), "after {number}");
            }
        }
        let kept = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let weights = shard.young.values().map(|(key, kept)| weight(key, kept));
            assert_eq!(weights.sum::<usize>(), shard.young_bytes);
            let weights = shard.old.values().map(|(key, kept)| weight(key, kept));
            assert_eq!(weights.sum::<usize>(), shard.old_bytes);
            shard.young.len() + shard.old.len()
        };
        let items: usize = recent.shards.iter().map(kept).sum();
        assert!((300..=(1 << 20) / 1300).contains(&items), "{items} items");
        // An item larger than a generation is not cached.
        for _ in 0..3 {
            assert!(!read(&recent, 10_001, &[0; 100_000]));
        }
    }
}
