//! How many items a partition has, known without reading one.
//!
//! The writer keeps a tally: one up for an item that came, one down for one that went. A tally says nothing by
//! itself, because a partition that was opened or split off does not know how many items it began with. That is
//! found out once, when it is first asked for, by counting rows:
//!
//! ```text
//! rows in a view of the index − tally in the same view  = what the tally lacks
//! tally now + what it lacks                             = items now
//! ```
//!
//! The tally is in the row that says how far the index is, so that a view has rows and tally of one moment while
//! writes go on. Nothing but differences of tallies counts, so it does not matter at what it begins.
//!
//! An item whose time is over counts until it is deleted.

use super::Partition;
use crate::error::StorageError;
use crate::keys::{self, PartitionRow};
use headwater_log::{Record, RecordKind};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Population {
    tally: AtomicI64,
    /// How many items have gone since the partition was opened.
    gone: AtomicU64,
    /// Held while it is found out, so that nobody else counts the same.
    lacking: Mutex<Option<i64>>,
}

/// What the records of a group do to a tally.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    came: u32,
    gone: u32,
}

impl Change {
    pub(crate) fn note(&mut self, record: &Record) {
        match record.kind {
            RecordKind::Put => self.came += u32::from(record.supersedes.is_none()),
            RecordKind::Tombstone => self.gone += 1,
            RecordKind::Control => {}
        }
    }
}

impl Population {
    /// Of a partition that has never been written to, if so.
    pub(crate) fn new(is_empty: bool) -> Population {
        Population { lacking: Mutex::new(is_empty.then_some(0)), ..Population::default() }
    }

    /// The tally after a change, for the row that is written with it. Only the writer changes it.
    pub(crate) fn tally_after(&self, change: Change) -> i64 {
        self.tally.load(Ordering::Relaxed) + i64::from(change.came) - i64::from(change.gone)
    }

    /// The tally as it is in the partition's row.
    pub(crate) fn tally(&self) -> i64 {
        self.tally.load(Ordering::Acquire)
    }

    /// The change is in the index.
    pub(crate) fn changed(&self, change: Change) {
        self.tally.store(self.tally_after(change), Ordering::Release);
        let gone = self.gone.load(Ordering::Relaxed) + u64::from(change.gone);
        self.gone.store(gone, Ordering::Release);
    }

    /// How many items have gone since the partition was opened.
    pub(crate) fn gone(&self) -> u64 {
        self.gone.load(Ordering::Acquire)
    }

    /// How many items there are, if that is known already.
    pub(crate) fn known(&self) -> Option<u64> {
        let lacking = (*self.lacking.try_lock()?)?;
        Some(self.with(lacking))
    }

    fn with(&self, lacking: i64) -> u64 {
        u64::try_from(self.tally.load(Ordering::Acquire) + lacking).unwrap_or(0)
    }
}

impl Partition {
    /// How many rows of items there are, if they were counted already.
    pub(crate) fn known_item_count(&self) -> Option<u64> {
        self.population.known()
    }

    /// How many rows of items there are. The first time they are counted, which takes as long as they are many;
    /// then they are known.
    pub(crate) fn item_count(&self) -> Result<u64, StorageError> {
        let mut lacking = self.population.lacking.lock();
        if let Some(lacking) = *lacking {
            return Ok(self.population.with(lacking));
        }
        let view = self.shared.index.view()?;
        let (from, to) = keys::items_in(self.container, &self.range);
        let mut rows: i64 = 0;
        view.scan(&from, &to, &mut |_, _| {
            rows += 1;
            true
        })?;
        let state = keys::partition(self.container, self.id);
        let mut tally = None;
        view.scan(&state, &crate::scan::successor(state.clone()), &mut |_, row| {
            tally = PartitionRow::decode(row).map(|row| row.tally);
            false
        })?;
        let tally = tally.ok_or_else(|| self.shared.index.doubt("a partition has no row"))?;
        *lacking = Some(rows - tally);
        Ok(self.population.with(rows - tally))
    }
}
