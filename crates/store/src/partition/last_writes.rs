//! The LSN of the last write of each partition key, for optimistic transactions.
//!
//! A transaction that has queried a partition key must not commit after another writer has written there: a
//! new item could have matched the query. Keys share a fixed number of slots by hash, because one slot per
//! key would grow without limit. A shared slot can only make a key look written later than it was; then a
//! transaction is repeated without need.

use headwater_model::Lsn;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots of a partition.
const PLACES: usize = 1024;

#[derive(Debug)]
pub(crate) struct LastWrites(Box<[AtomicU64]>);

impl LastWrites {
    /// Slots of a partition that was just opened: earlier writes are unknown, so every key counts as written
    /// at `tail`.
    pub(crate) fn since(tail: Lsn) -> LastWrites {
        LastWrites((0..PLACES).map(|_| AtomicU64::new(tail.get())).collect())
    }

    pub(crate) fn note(&self, epk: &[u8], lsn: Lsn) {
        self.place(epk).fetch_max(lsn.get(), Ordering::Release);
    }

    /// An LSN after which no item of this key was written.
    pub(crate) fn newest(&self, epk: &[u8]) -> Lsn {
        Lsn::new(self.place(epk).load(Ordering::Acquire))
    }

    fn place(&self, epk: &[u8]) -> &AtomicU64 {
        let hash = xxhash_rust::xxh3::xxh3_64(epk);
        &self.0[usize::try_from(hash % PLACES as u64).unwrap_or(0)]
    }
}
