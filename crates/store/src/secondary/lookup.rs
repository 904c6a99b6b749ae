//! Index lookups: finds the keys of candidate items, in scan order or in the order of the index.

use super::PathIndex;
use super::indexed::{decode_place, decode_value};
use crate::container::ContainerState;
use crate::error::StorageError;
use crate::keys::{self, Key};
use headwater_log::Position;
use headwater_query::{KeyInterval, key_length};
use parking_lot::Mutex;

/// Number of candidates gathered at a time, shared by the values of a lookup.
const KEYS_AT_ONCE: usize = 8_192;
/// Minimum number of candidates gathered per value.
const KEYS_PER_VALUE_MIN: usize = 16;
/// Maximum number of entries read for a range. With more, a scan is as fast and needs no memory.
const RANGE_ENTRIES_MAX: usize = 50_000;
/// Number of entries that is allowed for a range in a container of any size.
const RANGE_ENTRIES_MIN: usize = 1_000;
/// Cost of looking up one item, as a number of items read sequentially.
const ITEMS_PER_LOOK: u64 = 8;

/// Maximum number of ranges remembered as too broad.
const BROAD_MAX: usize = 8;

/// Intervals known to match too many entries for an index lookup.
///
/// Spares counting their entries again. An index never loses an entry before it is dropped as a whole. So a range
/// that had too many entries stays too broad, and so does every range that contains it.
#[derive(Debug, Default)]
pub(super) struct BroadRanges(Mutex<Vec<(KeyInterval, usize)>>);

impl BroadRanges {
    /// Whether a range is known to have at least `most` entries.
    fn has(&self, interval: &KeyInterval, most: usize) -> bool {
        let known = self.0.lock();
        known.iter().any(|(inner, entries)| *entries >= most && surrounds(interval, inner))
    }

    /// Records that a range has at least this many entries. Replaces the ranges that it implies, and evicts the
    /// oldest range if there are too many.
    fn note(&self, interval: &KeyInterval, entries: usize) {
        let mut known = self.0.lock();
        known.retain(|(outer, fewer)| !(*fewer <= entries && surrounds(outer, interval)));
        if known.len() >= BROAD_MAX {
            known.remove(0);
        }
        known.push((interval.clone(), entries));
    }
}

fn surrounds(outer: &KeyInterval, inner: &KeyInterval) -> bool {
    outer.from <= inner.from && inner.to <= outer.to
}

/// A candidate item: one that may match a query.
#[derive(Clone, Debug)]
pub(crate) struct Proposed {
    pub(crate) key: Key,
    /// Position of the version in the index entry; `None` if the key does not come from an index.
    pub(crate) position: Option<Position>,
}

/// A batch of candidates.
#[derive(Debug)]
pub(crate) struct CandidateBatch {
    /// The candidates without duplicates, in scan order.
    pub(crate) items: Vec<Proposed>,
    /// The last key of this batch if more candidates follow; `None` if the batch is complete.
    pub(crate) horizon: Option<Key>,
}

/// Looks up the candidates from `from` (included) to `to` (excluded) for these intervals of values. `None` if they
/// are so many that a scan is better. Adds the number of entries it reads to `entries`, in either case.
pub(crate) fn gather(
    container: &ContainerState,
    index: &PathIndex,
    intervals: &[KeyInterval],
    (from, to): (&Key, &Key),
    entries: &mut usize,
) -> Result<Option<CandidateBatch>, StorageError> {
    let mut gathered = CandidateBatch { items: Vec::new(), horizon: None };
    let most = (KEYS_AT_ONCE / intervals.len().max(1)).max(KEYS_PER_VALUE_MIN);
    let range_most = range_entries_max(container);
    for interval in intervals {
        let is_good = if interval.is_point {
            *entries +=
                gather_value(container, index, &interval.from, (from, to), most, &mut gathered)?;
            true
        } else if index.broad.has(interval, range_most) {
            false
        } else {
            let range = (interval, range_most);
            let visited = gather_range(container, index, range, (from, to), &mut gathered)?;
            *entries += visited;
            visited < range_most
        };
        if !is_good {
            return Ok(None);
        }
    }
    gathered.items.sort_unstable_by(|one, two| one.key.cmp(&two.key));
    gathered.items.dedup_by(|one, two| one.key == two.key);
    if let Some(horizon) = &gathered.horizon {
        gathered.items.retain(|item| item.key <= *horizon);
    }
    Ok(Some(gathered))
}

/// Gathers the items with one value. Their entries are in scan order, so only the next `most` are read. Returns the
/// number of entries read.
fn gather_value(
    container: &ContainerState,
    index: &PathIndex,
    value: &[u8],
    (from, to): (&Key, &Key),
    most: usize,
    gathered: &mut CandidateBatch,
) -> Result<usize, StorageError> {
    let first = keys::index_entry(container.rid, index.number, value, from);
    let last = keys::index_entry(container.rid, index.number, value, to);
    let (prefix, _) = keys::index_entries(container.rid, index.number);
    let skipped = prefix.len() + value.len();
    let (mut found, mut is_malformed) = (0, false);
    container.shared.index.scan(&first, &last, &mut |entry, value| {
        let Some(position) = decode_value(value) else {
            is_malformed = true;
            return false;
        };
        let key = keys::item_of_entry(container.rid, entry.get(skipped..).unwrap_or_default());
        gathered.items.push(Proposed { key, position: Some(position) });
        found += 1;
        found < most
    })?;
    if is_malformed {
        return Err(malformed(container));
    }
    if found >= most
        && let Some(Proposed { key: reached, .. }) = gathered.items.last()
        && gathered.horizon.as_ref().is_none_or(|horizon| reached < horizon)
    {
        gathered.horizon = Some(reached.clone());
    }
    Ok(found)
}

/// Gathers the items with any value in a range. Their entries are not in scan order, so all of them are read. Returns
/// the number of entries read; `most` means that there are too many.
fn gather_range(
    container: &ContainerState,
    index: &PathIndex,
    (interval, most): (&KeyInterval, usize),
    (from, to): (&Key, &Key),
    gathered: &mut CandidateBatch,
) -> Result<usize, StorageError> {
    let (all, _) = keys::index_entries(container.rid, index.number);
    let bound = |value: &[u8]| {
        let mut bound = all.clone();
        bound.extend_from_slice(value);
        bound
    };
    let (first, last) = (bound(&interval.from), bound(&interval.to));
    let (mut visited, mut is_malformed) = (0, false);
    container.shared.index.scan(&first, &last, &mut |entry, value| {
        visited += 1;
        let entry = entry.get(all.len()..).unwrap_or_default();
        let item = key_length(entry).and_then(|length| entry.get(length..));
        let Some((item, position)) = item.zip(decode_value(value)) else {
            is_malformed = true;
            return false;
        };
        let key = keys::item_of_entry(container.rid, item);
        if *from <= key && key < *to {
            gathered.items.push(Proposed { key, position: Some(position) });
        }
        visited < most
    })?;
    if is_malformed {
        return Err(malformed(container));
    }
    if visited >= most {
        index.broad.note(interval, visited);
    }
    Ok(visited)
}

fn malformed(container: &ContainerState) -> StorageError {
    container.shared.index.doubt("an entry is malformed")
}

/// The maximum number of entries to read for a range in a container of this size.
fn range_entries_max(container: &ContainerState) -> usize {
    let partitions = &container.topology().partitions;
    let written: u64 = partitions.iter().map(|partition| partition.visible().get()).sum();
    let share = usize::try_from(written / ITEMS_PER_LOOK).unwrap_or(usize::MAX);
    share.clamp(RANGE_ENTRIES_MIN, RANGE_ENTRIES_MAX)
}

/// An entry of an order index.
#[derive(Clone, Debug)]
pub(crate) struct OrderEntry {
    /// Sort key of the entry.
    pub(crate) place: Vec<u8>,
    /// Length of the prefix of `place` that its group shares. Within a group the order is not reliable.
    pub(crate) group: usize,
    pub(crate) item: Proposed,
}

impl PathIndex {
    /// Reads entries from one place (included) to another (excluded), in order. Fewer than `most` only at the end.
    pub(crate) fn placed(
        &self,
        container: &ContainerState,
        (from, to): (&[u8], &[u8]),
        behind: Option<&OrderEntry>,
        most: usize,
    ) -> Result<Vec<OrderEntry>, StorageError> {
        let (all, _) = keys::index_entries(container.rid, self.number);
        let bound = |place: &[u8]| {
            let mut bound = all.clone();
            bound.extend_from_slice(place);
            bound
        };
        let first = match behind {
            Some(last) => {
                let at = keys::index_entry(container.rid, self.number, &last.place, &last.item.key);
                crate::scan::successor(at)
            }
            None => bound(from),
        };
        let mut found = Vec::new();
        let mut is_malformed = false;
        container.shared.index.scan(&first, &bound(to), &mut |entry, value| {
            let entry = entry.get(all.len()..).unwrap_or_default();
            let parts = decode_place(value)
                .and_then(|said| entry.split_at_checked(said.key).map(|parts| (said, parts)));
            let Some((said, (place, item))) = parts else {
                is_malformed = true;
                return false;
            };
            let key = keys::item_of_entry(container.rid, item);
            let item = Proposed { key, position: Some(said.position) };
            found.push(OrderEntry { place: place.to_vec(), group: said.group, item });
            found.len() < most
        })?;
        if is_malformed {
            return Err(container.shared.index.doubt("an entry of an order is malformed"));
        }
        Ok(found)
    }

    /// Whether the index has an entry for an item at a place.
    pub(crate) fn has_placed(
        &self,
        container: &ContainerState,
        place: &[u8],
        item: &Key,
    ) -> Result<bool, StorageError> {
        let entry = keys::index_entry(container.rid, self.number, place, item);
        Ok(container.shared.index.get(&entry)?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(from: u8, to: u8) -> KeyInterval {
        KeyInterval { from: vec![from], to: vec![to], is_point: false }
    }

    #[test]
    fn a_range_around_one_that_was_too_broad_is_too_broad() {
        let broad = BroadRanges::default();
        broad.note(&interval(3, 7), 100);
        assert!(broad.has(&interval(3, 7), 100) && broad.has(&interval(0, 9), 50));
        assert!(!broad.has(&interval(4, 7), 100), "a narrower range was not counted");
        assert!(!broad.has(&interval(3, 6), 100));
        assert!(!broad.has(&interval(0, 9), 101), "more are worth it in a larger container");
    }

    #[test]
    fn few_ranges_are_remembered_and_the_narrowest_say_most() {
        let broad = BroadRanges::default();
        broad.note(&interval(0, 9), 100);
        broad.note(&interval(3, 7), 100);
        assert_eq!(broad.0.lock().len(), 1, "the first follows from the second");
        for number in 10..200 {
            broad.note(&interval(number, number + 1), 100);
            assert!(broad.0.lock().len() <= BROAD_MAX);
        }
        assert!(broad.has(&interval(199, 200), 100) && !broad.has(&interval(3, 7), 100));
    }
}
