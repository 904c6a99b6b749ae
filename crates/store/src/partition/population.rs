//! The number of items of a partition, without reading them.
//!
//! The writer keeps a tally: plus one for each new item, minus one for each deleted item. The tally alone is
//! not the count, because a partition that was opened or split off starts it at zero. The difference is
//! determined once, at the first request, by counting rows:
//!
//! ```text
//! rows in a view of the index − tally in the same view  = offset
//! tally now + offset                                    = items now
//! ```
//!
//! The tally is stored in the row with the applied LSN, so a view has rows and tally of the same moment while
//! writes continue. Only differences of tallies count, so the start value does not matter.
//!
//! An expired item counts until it is deleted.

use super::Partition;
use crate::error::StorageError;
use crate::keys::{self, PartitionRow};
use headwater_log::{Record, RecordKind};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The item counter of a partition.
#[derive(Debug, Default)]
pub(crate) struct Population {
    tally: AtomicI64,
    /// Items deleted since the partition was opened.
    gone: AtomicU64,
    /// The offset between tally and count. Locked while it is determined, so that only one caller counts.
    lacking: Mutex<Option<i64>>,
}

/// The effect of a group on the tally.
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
    /// The counter of a partition. `is_empty` means that the partition was never written to.
    pub(crate) fn new(is_empty: bool) -> Population {
        Population { lacking: Mutex::new(is_empty.then_some(0)), ..Population::default() }
    }

    /// The tally after a change, for the row written with it. Only the writer changes the tally.
    pub(crate) fn tally_after(&self, change: Change) -> i64 {
        self.tally.load(Ordering::Relaxed) + i64::from(change.came) - i64::from(change.gone)
    }

    /// The tally, as stored in the partition's row.
    pub(crate) fn tally(&self) -> i64 {
        self.tally.load(Ordering::Acquire)
    }

    /// Records a change that the index has applied.
    pub(crate) fn changed(&self, change: Change) {
        self.tally.store(self.tally_after(change), Ordering::Release);
        let gone = self.gone.load(Ordering::Relaxed) + u64::from(change.gone);
        self.gone.store(gone, Ordering::Release);
    }

    /// Items deleted since the partition was opened.
    pub(crate) fn gone(&self) -> u64 {
        self.gone.load(Ordering::Acquire)
    }

    /// The number of items, if the offset is known.
    pub(crate) fn known(&self) -> Option<u64> {
        let lacking = (*self.lacking.try_lock()?)?;
        Some(self.with(lacking))
    }

    fn with(&self, lacking: i64) -> u64 {
        u64::try_from(self.tally.load(Ordering::Acquire) + lacking).unwrap_or(0)
    }
}

impl Partition {
    /// The number of item rows, if they were counted already.
    pub(crate) fn known_item_count(&self) -> Option<u64> {
        self.population.known()
    }

    /// The number of item rows. The first call counts them, which takes time in proportion; later calls do not.
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
