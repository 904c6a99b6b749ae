//! From values to items: the keys of the items an index proposes, in the order of a scan or its own.

use super::PathIndex;
use super::indexed::{decode_place, decode_value};
use crate::container::ContainerState;
use crate::error::StorageError;
use crate::keys::{self, Key};
use headwater_log::Position;
use headwater_query::{KeyInterval, key_length};
use parking_lot::Mutex;

/// Proposed items kept at once.
const KEYS_AT_ONCE: usize = 8_192;
/// At least so many for each of several values.
const KEYS_PER_VALUE_MIN: usize = 16;
/// Entries of ranges looked at. Beyond that a scan is as good, and needs no memory.
const RANGE_ENTRIES_MAX: usize = 50_000;
/// That many are always looked at.
const RANGE_ENTRIES_MIN: usize = 1_000;
/// To look an item up takes as long as to read so many of them one behind the other.
const ITEMS_PER_LOOK: u64 = 8;

/// Ranges that are remembered as too broad.
const BROAD_MAX: usize = 8;

/// Ranges of values that proposed too much, so that nobody counts their entries again.
///
/// An index never loses an entry before it is dropped as a whole, so a range that had as many stays too broad
/// for whoever would give up there, and so does every range around it.
#[derive(Debug, Default)]
pub(super) struct Broad(Mutex<Vec<(KeyInterval, usize)>>);

impl Broad {
    /// Whether a range is known to have that many entries.
    fn has(&self, interval: &KeyInterval, most: usize) -> bool {
        let known = self.0.lock();
        known.iter().any(|(inner, entries)| *entries >= most && surrounds(interval, inner))
    }

    /// Remembers how many entries a range has at least. What follows from it is forgotten, and then what
    /// was remembered first.
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

/// An item to look at.
#[derive(Clone, Debug)]
pub(crate) struct Proposed {
    pub(crate) key: Key,
    /// The version an index knows of, if one has proposed it.
    pub(crate) position: Option<Position>,
}

/// Items that may match.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// Each once, in the order of a scan.
    pub(crate) items: Vec<Proposed>,
    /// There are more behind this key; `None` if that is all.
    pub(crate) horizon: Option<Key>,
}

/// The items from `from` (included) to `to` (excluded) that an index proposes for these values. `None` if
/// they are so many that a scan is the better way. Counts the `entries` it looks at, in vain or not.
pub(crate) fn gather(
    container: &ContainerState,
    index: &PathIndex,
    intervals: &[KeyInterval],
    (from, to): (&Key, &Key),
    entries: &mut usize,
) -> Result<Option<Gathered>, StorageError> {
    let mut gathered = Gathered { items: Vec::new(), horizon: None };
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

/// The items with one value: they lie in the order of a scan, so only the next few are taken. Returns how many
/// entries were looked at.
fn gather_value(
    container: &ContainerState,
    index: &PathIndex,
    value: &[u8],
    (from, to): (&Key, &Key),
    most: usize,
    gathered: &mut Gathered,
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

/// The items with any value in a range: in no order, so all of them are needed. Returns how many entries were
/// looked at; with `most` of them there are too many.
fn gather_range(
    container: &ContainerState,
    index: &PathIndex,
    (interval, most): (&KeyInterval, usize),
    (from, to): (&Key, &Key),
    gathered: &mut Gathered,
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

/// How many entries of ranges are worth it in a container of this size.
fn range_entries_max(container: &ContainerState) -> usize {
    let partitions = &container.topology().partitions;
    let written: u64 = partitions.iter().map(|partition| partition.visible().get()).sum();
    let share = usize::try_from(written / ITEMS_PER_LOOK).unwrap_or(usize::MAX);
    share.clamp(RANGE_ENTRIES_MIN, RANGE_ENTRIES_MAX)
}

/// An item where an index of an order has it.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// The key of the place.
    pub(crate) place: Vec<u8>,
    /// How much of it the items share that may lie in any order.
    pub(crate) group: usize,
    pub(crate) item: Proposed,
}

impl PathIndex {
    /// Items from one place (included) to another (excluded), in order. Fewer than `most` only at the end.
    pub(crate) fn placed(
        &self,
        container: &ContainerState,
        (from, to): (&[u8], &[u8]),
        behind: Option<&Placed>,
        most: usize,
    ) -> Result<Vec<Placed>, StorageError> {
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
            found.push(Placed { place: place.to_vec(), group: said.group, item });
            found.len() < most
        })?;
        if is_malformed {
            return Err(container.shared.index.doubt("a place in an order is malformed"));
        }
        Ok(found)
    }

    /// Whether the index has an item at a place.
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
        let broad = Broad::default();
        broad.note(&interval(3, 7), 100);
        assert!(broad.has(&interval(3, 7), 100) && broad.has(&interval(0, 9), 50));
        assert!(!broad.has(&interval(4, 7), 100), "nobody has counted that one");
        assert!(!broad.has(&interval(3, 6), 100));
        assert!(!broad.has(&interval(0, 9), 101), "more are worth it in a larger container");
    }

    #[test]
    fn few_ranges_are_remembered_and_the_narrowest_say_most() {
        let broad = Broad::default();
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
