//! When the items of a partition key were last written, as far as transactions must know.
//!
//! A transaction that has queried a partition key must not be committed after somebody else has written
//! there: a new item could have been an answer too. One number per key would grow without end, so keys
//! share a fixed number of places by their hash. Sharing can only make a key look written later than it
//! was, and then a transaction is run once more for nothing.

use headwater_model::Lsn;
use std::sync::atomic::{AtomicU64, Ordering};

/// Places in the table of a partition.
const PLACES: usize = 1024;

#[derive(Debug)]
pub(crate) struct Touched(Box<[AtomicU64]>);

impl Touched {
    /// Of a partition that has just been opened: what was written before, nobody remembers.
    pub(crate) fn since(tail: Lsn) -> Touched {
        Touched((0..PLACES).map(|_| AtomicU64::new(tail.get())).collect())
    }

    pub(crate) fn note(&self, epk: &[u8], lsn: Lsn) {
        self.place(epk).fetch_max(lsn.get(), Ordering::Release);
    }

    /// Nothing of this key has been written after this.
    pub(crate) fn newest(&self, epk: &[u8]) -> Lsn {
        Lsn::new(self.place(epk).load(Ordering::Acquire))
    }

    fn place(&self, epk: &[u8]) -> &AtomicU64 {
        let hash = xxhash_rust::xxh3::xxh3_64(epk);
        &self.0[usize::try_from(hash % PLACES as u64).unwrap_or(0)]
    }
}
