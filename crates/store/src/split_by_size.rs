//! Splits a range that has grown beyond [`Options::split_at_bytes`], while it is in use.
//!
//! The size of a range is the bytes of its live items. Each round of maintenance splits at most one range of
//! the store, the largest. It is split between two partition keys, near the middle of its items. A range of a
//! single partition key cannot be split; it is tried again when it has grown by half. Never merges ranges.
//!
//! [`Options::split_at_bytes`]: crate::Options::split_at_bytes

use crate::account::Account;
use crate::container::{Container, ContainerState};
use crate::definition::PARTITIONS_MAX;
use crate::error::{CatalogError, StorageError};
use crate::keys;
use crate::partition::Partition;
use crate::statistics::live_bytes_of;
use headwater_model::{ContainerRid, Epk, PartitionId};
use headwater_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The pause after a failed split of a range.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// Ranges that could not be split, with the time of the next attempt. Kept while the store is open.
#[derive(Debug, Default)]
pub(crate) struct PostponedSplits(Mutex<HashMap<(ContainerRid, PartitionId), Retry>>);

/// The condition for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    /// When the range has this size.
    Bytes(u64),
    /// At this time.
    At(Duration),
}

/// A range with the properties that decide about a split.
#[derive(Clone, Copy, Debug)]
struct RangeSize {
    bytes: u64,
    /// The number of ranges of its container.
    siblings: usize,
    retry: Option<Retry>,
}

/// The range to split now, if any: the largest that exceeds the limit and may be tried.
fn choose(ranges: &[RangeSize], limit_bytes: u64, now: Duration) -> Option<usize> {
    let may_split = |range: &RangeSize| {
        let is_due = match range.retry {
            None => true,
            Some(Retry::Bytes(bytes)) => range.bytes >= bytes,
            Some(Retry::At(time)) => now >= time,
        };
        let is_full = range.siblings >= usize::try_from(PARTITIONS_MAX).unwrap_or(usize::MAX);
        limit_bytes > 0 && range.bytes > limit_bytes && is_due && !is_full
    };
    let candidates = ranges.iter().enumerate().filter(|(_, range)| may_split(range));
    candidates.max_by_key(|(_, range)| range.bytes).map(|(number, _)| number)
}

/// Splits the largest range above the limit, if there is one.
pub(crate) async fn split_largest(account: &Account) -> Result<(), StorageError> {
    let shared = &account.0.shared;
    let limit_bytes = shared.options.split_at_bytes;
    if limit_bytes == 0 {
        return Ok(());
    }
    let mut found: Vec<(Arc<ContainerState>, Arc<Partition>)> = Vec::new();
    let mut sizes = Vec::new();
    for container in account.open_container_states() {
        let topology = container.topology();
        for partition in &topology.partitions {
            let retry =
                account.0.postponed_splits.0.lock().get(&(container.rid, partition.id)).copied();
            let bytes = size_of(&shared.runtime, partition, limit_bytes)?;
            sizes.push(RangeSize { bytes, siblings: topology.partitions.len(), retry });
            found.push((container.clone(), partition.clone()));
        }
    }
    let number = choose(&sizes, limit_bytes, shared.runtime.elapsed());
    let Some(((container, partition), size)) =
        number.and_then(|number| Some((found.get(number)?, sizes.get(number)?)))
    else {
        return Ok(());
    };
    let postpone = |retry: Retry| {
        let mut postponed = account.0.postponed_splits.0.lock();
        // Forget ranges that no longer exist.
        postponed.retain(|known, _| {
            found.iter().any(|(container, partition)| (container.rid, partition.id) == *known)
        });
        postponed.insert((container.rid, partition.id), retry);
    };
    let (id, bytes) = (partition.id, size.bytes);
    let Some(at) = shared.runtime.blocking(|| middle_key(container, partition))? else {
        tracing::warn!(
            container = %container.rid, range = %id, bytes,
            "the range is larger than --split-at, and all of its items have one partition key; choose a \
             partition key with more values"
        );
        postpone(Retry::Bytes(bytes.saturating_add(bytes / 2)));
        return Ok(());
    };
    match Container::new(container.clone(), account.0.clone()).split(id, Some(at)).await {
        Ok(_) => {
            tracing::info!(container = %container.rid, range = %id, bytes, "split a range above the size limit");
            Ok(())
        }
        // The range was split, merged or dropped meanwhile.
        Err(CatalogError::Topology(_)) => Ok(()),
        Err(error) => {
            tracing::warn!(
                container = %container.rid, range = %id, %error,
                "cannot split a range above the size limit; the next attempt is in ten minutes"
            );
            postpone(Retry::At(shared.runtime.elapsed() + RETRY_AFTER));
            Ok(())
        }
    }
}

/// Bytes of the live items of a partition. Below the limit, this may be an overestimate.
fn size_of(
    runtime: &Runtime,
    partition: &Partition,
    limit_bytes: u64,
) -> Result<u64, StorageError> {
    if partition.quarantine().is_some() || partition.known_damage().is_some() {
        return Ok(0);
    }
    let Ok(log) = partition.log() else { return Ok(0) };
    let figures = log.statistics();
    let most = figures.bytes.saturating_sub(figures.dead_bytes);
    // Only shared files need a count of items, which takes time at the first call.
    if most <= limit_bytes || !figures.shared {
        return Ok(most);
    }
    let items = runtime.blocking(|| partition.item_count())?;
    Ok(live_bytes_of(&figures, items))
}

/// The hashed key that divides the items of a range most evenly, with items on both sides. `None` if all
/// items have the same key.
fn middle_key(
    container: &ContainerState,
    partition: &Partition,
) -> Result<Option<Epk>, StorageError> {
    let (from, to) = keys::items_in(container.rid, &partition.range);
    let index = &*container.shared.index;
    let mut middle = Middle::new(partition.item_count()?);
    let mut malformed = false;
    index.scan(&from, &to, &mut |row, _| match keys::parse_item(row) {
        Some((epk, _)) => middle.visit(epk),
        None => {
            malformed = true;
            false
        }
    })?;
    if malformed {
        return Err(index.doubt("a row is malformed"));
    }
    Ok(middle.best.map(|(_, epk)| epk))
}

/// Finds, in one pass, the boundary between two keys that is nearest to the middle of the items.
struct Middle {
    count: u64,
    before: u64,
    newest: Option<Epk>,
    /// The best boundary: the difference of items between both sides, and the key.
    best: Option<(u64, Epk)>,
}

impl Middle {
    fn new(count: u64) -> Middle {
        Middle { count, before: 0, newest: None, best: None }
    }

    /// Adds the next item. False when no better boundary can follow.
    fn visit(&mut self, epk: Epk) -> bool {
        let begins_key = self.newest.as_ref() != Some(&epk);
        if begins_key && self.newest.is_some() {
            let uneven = self.count.abs_diff(self.before * 2);
            if self.best.as_ref().is_none_or(|(least, _)| uneven < *least) {
                self.best = Some((uneven, epk.clone()));
            }
        }
        let is_past = begins_key && self.best.is_some() && self.before * 2 >= self.count;
        self.newest = Some(epk);
        self.before += 1;
        !is_past
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_range_beyond_the_limit_is_split_unless_it_is_postponed() {
        let range = |bytes: u64, retry: Option<Retry>| RangeSize { bytes, siblings: 3, retry };
        let second = Duration::from_secs(1);
        let full = RangeSize { siblings: 1000, ..range(900, None) };
        for (ranges, limit, now, expected) in [
            (vec![], 100, second, None),
            (vec![range(100, None)], 100, second, None),
            (vec![range(101, None)], 100, second, Some(0)),
            (vec![range(u64::MAX, None)], 0, second, None),
            (vec![range(101, None), range(300, None), range(200, None)], 100, second, Some(1)),
            // A range of one key, until it has grown to the noted size.
            (vec![range(300, Some(Retry::Bytes(301)))], 100, second, None),
            (vec![range(301, Some(Retry::Bytes(301)))], 100, second, Some(0)),
            (vec![range(300, Some(Retry::Bytes(301))), range(150, None)], 100, second, Some(1)),
            // A split that failed, until its time has come.
            (vec![range(300, Some(Retry::At(second * 2)))], 100, second, None),
            (vec![range(300, Some(Retry::At(second * 2)))], 100, second * 2, Some(0)),
            // A container with the maximum number of ranges.
            (vec![full, range(150, None)], 100, second, Some(1)),
        ] {
            assert_eq!(choose(&ranges, limit, now), expected, "{ranges:?} {limit} {now:?}");
        }
    }

    #[test]
    fn a_range_is_divided_between_two_keys_as_evenly_as_they_allow() {
        for (keys, expected) in [
            (vec![], None),
            (vec![1], None),
            (vec![1, 1, 1, 1], None),
            (vec![1, 2], Some(2)),
            (vec![1, 2, 3, 4], Some(3)),
            (vec![1, 2, 2, 2, 2, 2, 3], Some(2)),
            (vec![1, 1, 1, 1, 2], Some(2)),
            (vec![1, 2, 2, 2, 2], Some(2)),
            (vec![1, 1, 2, 2, 2, 3], Some(2)),
            (vec![1, 2, 2, 2, 3, 3, 3], Some(3)),
        ] {
            let mut middle = Middle::new(keys.len() as u64);
            for key in &keys {
                if !middle.visit(Epk::from_bytes(&[*key])) {
                    break;
                }
            }
            let found = middle.best.map(|(_, epk)| epk.as_bytes()[0]);
            assert_eq!(found, expected, "{keys:?}");
        }
    }
}
