//! Statistics of ranges: bytes, items and largest partition keys. Estimates, used only to decide about splits.
//!
//! Items are counted in the index, which does not know their lengths. The bytes of a partition key are
//! estimated as its share of the items. An expired item counts until it is deleted.

use crate::container::Container;
use crate::error::StorageError;
use crate::keys;
use crate::partition::Partition;
use headwater_log::LogStatistics;
use headwater_model::{PartitionId, PartitionKey};

/// Rows counted at most, so that an estimate does not take too long.
const ROWS_MAX: u64 = 1_000_000;
/// Partition keys that are reported.
const KEYS_MAX: usize = 10;

/// Statistics of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeStatistics {
    /// The range.
    pub id: PartitionId,
    /// Whether the range is quarantined because its files are damaged. Then nothing is counted.
    pub is_quarantined: bool,
    /// Bytes of live entries in its log.
    pub bytes: u64,
    /// Items of the range. A lower bound from a million on.
    pub items: u64,
    /// Distinct partition keys of these items.
    pub distinct_keys: u64,
    /// The partition keys with the most items, and their estimated bytes.
    pub largest_keys: Vec<(PartitionKey, u64)>,
}

/// The rows of one partition key, which are adjacent.
struct Run {
    /// The common prefix of their keys.
    prefix: Vec<u8>,
    key: PartitionKey,
    items: u64,
}

impl Container {
    /// Statistics of each range, in the order of the ranges.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn statistics(&self) -> Result<Vec<RangeStatistics>, StorageError> {
        let topology = self.state().topology();
        topology.partitions.iter().map(|partition| self.statistics_of(partition)).collect()
    }

    fn statistics_of(&self, partition: &Partition) -> Result<RangeStatistics, StorageError> {
        let mut counted = RangeStatistics {
            id: partition.id,
            is_quarantined: partition.quarantine().is_some(),
            bytes: 0,
            items: 0,
            distinct_keys: 0,
            largest_keys: Vec::new(),
        };
        let Ok(log) = partition.log() else { return Ok(counted) };
        let mut largest: Vec<Run> = Vec::new();
        let mut run: Option<Run> = None;
        let mut malformed = false;
        let (from, to) = keys::items_in(self.rid(), &partition.range);
        self.state().shared.index.scan(&from, &to, &mut |row, _| {
            counted.items += 1;
            match run.as_mut().filter(|run| row.starts_with(&run.prefix)) {
                Some(run) => run.items += 1,
                None => {
                    counted.distinct_keys += 1;
                    keep(&mut largest, run.take());
                    run = first_of(row);
                    malformed |= run.is_none();
                }
            }
            !malformed && counted.items < ROWS_MAX
        })?;
        if malformed {
            return Err(self.state().shared.index.doubt("a row is malformed"));
        }
        keep(&mut largest, run);
        counted.bytes = live_bytes_of(&log.statistics(), counted.items);
        let share = |items: u64| {
            let share = u128::from(counted.bytes) * u128::from(items);
            u64::try_from(share / u128::from(counted.items.max(1))).unwrap_or(u64::MAX)
        };
        counted.largest_keys = largest.into_iter().map(|run| (run.key, share(run.items))).collect();
        Ok(counted)
    }
}

/// Estimated bytes of live entries in a partition's log.
pub(crate) fn live_bytes_of(log: &LogStatistics, items: u64) -> u64 {
    let live = log.bytes.saturating_sub(log.dead_bytes);
    if !log.shared {
        return live;
    }
    // After a split both halves share the old files. Estimate each half's bytes by its items.
    let share = u128::from(live) * u128::from(items) / u128::from(log.live_records.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(live)
}

/// A run that starts with this row.
fn first_of(row: &[u8]) -> Option<Run> {
    let (_, tail) = keys::parse_item(row)?;
    let (key, length) = PartitionKey::decode_prefix(tail).ok()?;
    let prefix = row.get(..row.len() - tail.len() + length)?.to_vec();
    Some(Run { prefix, key, items: 1 })
}

/// Adds a run to the list if it is among the largest.
fn keep(largest: &mut Vec<Run>, run: Option<Run>) {
    let Some(run) = run else { return };
    let place = largest.partition_point(|other| other.items >= run.items);
    if place < KEYS_MAX {
        largest.insert(place, run);
        largest.truncate(KEYS_MAX);
    }
}
