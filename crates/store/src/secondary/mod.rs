//! Secondary indexes for queries: find items by the value at a path, or read items in a sort order.
//!
//! **An index is a reader of the change feed.** Like any other reader, it stores a position in each partition. It
//! catches up from the log when a query uses it and when the store maintains itself. Writing an item does no index
//! work. So a container without queries pays nothing, and a write costs the same however many paths are indexed.
//!
//! ```text
//! log     … 41:{a, n:5}   42:{b, n:7}   43:{a, n:6}        visible 43
//! index   n=5 → a    n=7 → b                  position 42   stale entries stay: they are candidates
//! query   n >= 5:  catch up to 43 (n=6 → a), look up {a, b}, read the current version of both, filter
//! ```
//!
//! An index returns candidates only. The query reads the current version of each candidate and applies the whole
//! filter, so a stale entry costs time but never changes a result. No candidate is missing, because the index
//! applies everything visible before a lookup. An entry also names the position of the version it was made from. If
//! that version is still live in the log, it is read from there; otherwise the row of the item gives the current
//! position. Candidates come in scan order, so a query can change between scan and lookup from page to page.
//!
//! An order index stores items in the order of an `ORDER BY`, after the values that a filter fixes. It too returns
//! candidates: the query sorts the items again, and stops when no other item can sort before the last one. The order
//! by no paths is creation order, for long listings.
//!
//! Indexes are created on demand for the paths that queries filter and sort by, if the container's indexing policy
//! allows them. The policy is a logged event; the entries are derived data and can be lost at any time. `policy`
//! decides which paths may be indexed, `indexed` defines the kinds of index, `follow` keeps them up to date with the
//! log, and `lookup` finds items.

mod follow;
mod indexed;
mod lookup;
pub(crate) mod policy;

use crate::container::ContainerState;
use crate::error::StorageError;
use crate::index::{Batch, Index, remove_range};
use crate::keys::{self, IndexNumber};
use headwater_model::{ContainerRid, PartitionId};
use headwater_query::{IndexPath, OrderPath, Restriction};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub(crate) use follow::Budget;
pub(crate) use indexed::Indexed;
pub(crate) use lookup::{OrderEntry, Proposed, gather};

/// Maximum number of indexes of one container. A new one replaces the least recently used.
const INDEXES_MAX: usize = 16;

/// The secondary indexes of a container.
#[derive(Debug, Default)]
pub(crate) struct Secondary {
    indexes: RwLock<Vec<Arc<PathIndex>>>,
    /// Counts uses, to know which index was used last.
    uses: AtomicU64,
    /// Never a number that was used since the store was opened: its entries may not be removed yet.
    next_number: AtomicU32,
    /// Number of listings that found no index of creation order.
    unlisted: AtomicU32,
}

/// One secondary index.
#[derive(Debug)]
pub(crate) struct PathIndex {
    pub(crate) number: IndexNumber,
    pub(crate) of: Indexed,
    used: AtomicU64,
    /// Held while the index catches up, so that only one task applies entries.
    progress: Mutex<HashMap<PartitionId, follow::Progress>>,
    /// The entries are being removed: no entry may be added, and lookups may be incomplete.
    dropped: AtomicBool,
    /// Intervals known to match too many entries for an index lookup.
    broad: lookup::BroadRanges,
}

impl Secondary {
    /// Loads the indexes of a container from their rows.
    pub(crate) fn load(
        index: &dyn Index,
        container: ContainerRid,
    ) -> Result<Secondary, StorageError> {
        let mut indexes = Vec::new();
        let (from, to) = keys::all_path_indexes(container);
        index.scan(&from, &to, &mut |key, value| {
            let number = keys::number_of_path_index(key);
            if let (Some(number), Some(of)) = (number, Indexed::decode(value)) {
                indexes.push(Arc::new(PathIndex::new(number, of)));
            }
            true
        })?;
        let next = indexes.iter().map(|index| index.number + 1).max().unwrap_or(0);
        // A crash may leave entries of an index that was being dropped. A new index must not reuse them.
        let (from, to) = keys::index_entries_from(container, next);
        remove_range(index, &from, &to)?;
        Ok(Secondary {
            indexes: RwLock::new(indexes),
            uses: AtomicU64::default(),
            next_number: AtomicU32::new(next),
            unlisted: AtomicU32::default(),
        })
    }

    /// The value index of a path, if one exists.
    pub(crate) fn find(&self, path: &IndexPath) -> Option<Arc<PathIndex>> {
        self.find_that(|of| matches!(of, Indexed::Values(known) if known == path))
    }

    /// The index of an order, if one exists.
    pub(crate) fn find_order(&self, order: &[OrderPath]) -> Option<Arc<PathIndex>> {
        self.find_that(|of| matches!(of, Indexed::Order(known) if known == order))
    }

    fn find_that(&self, is_wanted: impl Fn(&Indexed) -> bool) -> Option<Arc<PathIndex>> {
        let found = self.indexes.read().iter().find(|index| is_wanted(&index.of)).cloned()?;
        found.used.store(self.uses.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(found)
    }

    pub(crate) fn all(&self) -> Vec<Arc<PathIndex>> {
        self.indexes.read().clone()
    }

    /// Creates an index without entries; it adds them when it catches up. At the limit, drops the least recently
    /// used index.
    pub(crate) fn create(
        &self,
        container: &ContainerState,
        of: Indexed,
    ) -> Result<(), StorageError> {
        let mut dropped = None;
        {
            let mut indexes = self.indexes.write();
            if indexes.iter().any(|index| index.of == of) {
                return Ok(());
            }
            if indexes.len() >= INDEXES_MAX {
                let oldest = (0..indexes.len())
                    .min_by_key(|index| indexes[*index].used.load(Ordering::Relaxed));
                dropped = oldest.map(|oldest| indexes.swap_remove(oldest));
            }
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            let mut batch = Batch::default();
            batch.put(keys::path_index(container.rid, number), of.encode());
            container.shared.index.write(&batch)?;
            let used = self.uses.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(container = %container.rid, %of, "index created");
            let index = PathIndex::new(number, of);
            index.used.store(used, Ordering::Relaxed);
            indexes.push(Arc::new(index));
        }
        dropped.map_or(Ok(()), |index| index.remove(container))
    }

    /// Records that a listing found no index of its order. Creates that index on the second miss, because a client
    /// that copies a container once does not need it.
    pub(crate) fn miss_listing(
        &self,
        container: &ContainerState,
        of: Indexed,
    ) -> Result<(), StorageError> {
        match self.unlisted.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(()),
            _ => self.create(container, of),
        }
    }

    /// Discards all indexes and waits until their writers have stopped. No index can be created while the returned
    /// guard is held.
    pub(crate) fn forget_all(&self) -> impl Drop + '_ {
        let mut indexes = self.indexes.write();
        for index in indexes.drain(..) {
            index.dropped.store(true, Ordering::Release);
            drop(index.progress.lock());
        }
        indexes
    }

    /// Drops an index.
    pub(crate) fn drop_index(
        &self,
        container: &ContainerState,
        index: &PathIndex,
    ) -> Result<(), StorageError> {
        self.indexes.write().retain(|known| known.number != index.number);
        index.remove(container)
    }

    /// Drops indexes that the policy no longer allows or that are stale, and lets the others catch up.
    pub(crate) fn maintain(&self, container: &ContainerState) -> Result<(), StorageError> {
        let settings = container.settings.read().clone();
        for index in self.all() {
            if !settings.indexing.allows(&index.of) || index.is_stale() {
                self.drop_index(container, &index)?;
                continue;
            }
            let mut budget = Budget::default();
            for partition in &container.topology().partitions {
                if partition.quarantine().is_some() {
                    continue;
                }
                if !index.catch_up(container, partition, &mut budget)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The largest number of log entries that an index has not applied in a partition. Waits while an index catches
    /// up.
    pub(crate) fn lag(&self, container: &ContainerState) -> Result<u64, StorageError> {
        let topology = container.topology();
        let mut most = 0;
        for index in self.all() {
            for partition in &topology.partitions {
                if partition.quarantine().is_none() {
                    most = most.max(index.lag(container, partition)?);
                }
            }
        }
        Ok(most)
    }

    /// Build progress of the slowest index in percent; 100 unless one is being built.
    pub(crate) fn percent(&self, container: &ContainerState) -> u64 {
        let topology = container.topology();
        let percent = |index: Arc<PathIndex>| {
            let progress = index.progress.lock();
            let parts = topology.partitions.iter().map(|partition| {
                let visible = partition.visible().get();
                match progress.get(&partition.id) {
                    Some(reached) if reached.built => 100,
                    _ if visible == 0 => 100,
                    Some(reached) => (reached.applied.get().saturating_mul(100) / visible).min(99),
                    None => 0,
                }
            });
            parts.min().unwrap_or(100)
        };
        self.all().into_iter().map(percent).min().unwrap_or(100)
    }
}

impl PathIndex {
    fn new(number: IndexNumber, of: Indexed) -> PathIndex {
        PathIndex {
            number,
            of,
            used: AtomicU64::default(),
            progress: Mutex::new(HashMap::new()),
            dropped: AtomicBool::new(false),
            broad: lookup::BroadRanges::default(),
        }
    }

    /// Whether the index was dropped, so that its lookups may have been incomplete.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Removes the rows of the index: first its definition and progress, then the entries.
    fn remove(&self, container: &ContainerState) -> Result<(), StorageError> {
        self.dropped.store(true, Ordering::Release);
        // The lock waits for a task that adds entries. Later tasks see that the index is dropped.
        let _progress = self.progress.lock();
        let index = &*container.shared.index;
        let mut batch = Batch::default();
        batch.remove(keys::path_index(container.rid, self.number));
        let (from, to) = keys::all_index_progress(container.rid);
        index.scan(&from, &to, &mut |key, _| {
            if keys::number_of_progress(key) == Some(self.number) {
                batch.remove(keys::Key::from_slice(key));
            }
            true
        })?;
        index.write(&batch)?;
        let (from, to) = keys::index_entries(container.rid, self.number);
        remove_range(index, &from, &to)
    }
}

/// The restrictions of a query that the policy allows to look up. Those with the fewest ranges come first, since
/// single values are better.
pub(crate) fn usable(
    mut restrictions: Vec<Restriction>,
    policy: &policy::IndexingPolicy,
) -> Vec<Restriction> {
    restrictions.retain(|one| policy.includes(&one.path));
    restrictions.sort_by_key(|one| one.intervals.iter().filter(|each| !each.is_point).count());
    restrictions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{IndexView, MemoryIndex};
    use keys::Value;

    #[test]
    fn what_is_left_of_a_dropped_index_is_gone_before_its_number_is_used_again() {
        let (index, container) = (MemoryIndex::default(), ContainerRid::new(1, 2));
        let item = keys::item(container, b"e", b"t");
        let mut batch = Batch::default();
        let of = Indexed::Values(IndexPath::default());
        batch.put(keys::path_index(container, 4), of.encode());
        for number in [4, 5, 9] {
            batch.put(keys::index_entry(container, number, b"v", &item), Value::new());
        }
        let other = ContainerRid::new(1, 3);
        batch.put(keys::index_entry(other, 9, b"v", &item), Value::new());
        index.write(&batch).unwrap();
        let secondary = Secondary::load(&index, container).unwrap();
        assert_eq!(secondary.next_number.load(Ordering::Relaxed), 5);
        let is_there = |container, number| {
            let (from, to) = keys::index_entries(container, number);
            let mut found = false;
            let mut note = |_: &[u8], _: &[u8]| {
                found = true;
                true
            };
            index.scan(&from, &to, &mut note).unwrap();
            found
        };
        assert!(is_there(container, 4) && is_there(other, 9), "entries of existing indexes stay");
        assert!(!is_there(container, 5) && !is_there(container, 9), "other entries are removed");
    }
}
