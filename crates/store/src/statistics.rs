//! How much is in each range, and which partition keys take most of it. Estimates: nothing
//! decides by them but whether a range is split.
//!
//! Items are counted in the index, which does not know how long they are; the bytes of a partition key
//! are its share of the items. An item whose time is over counts until it is deleted.

use crate::container::Container;
use crate::error::StorageError;
use crate::keys;
use crate::partition::Partition;
use headwater_log::LogStatistics;
use headwater_model::{PartitionId, PartitionKey};

/// Counting more would take longer than anybody waits for an estimate.
const ROWS_MAX: u64 = 1_000_000;
/// Partition keys that are named.
const KEYS_MAX: usize = 10;

/// How much is in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeStatistics {
    /// The range.
    pub id: PartitionId,
    /// Whether it is set aside because its files are damaged; nothing is counted then.
    pub is_quarantined: bool,
    /// Bytes of what exists in its log.
    pub bytes: u64,
    /// Items; at least so many if there are a million or more.
    pub items: u64,
    /// Partition keys they have.
    pub distinct_keys: u64,
    /// The partition keys with most items, and about how many bytes these are.
    pub largest_keys: Vec<(PartitionKey, u64)>,
}

/// The rows of one partition key, which lie side by side.
struct Run {
    /// How all of them begin.
    prefix: Vec<u8>,
    key: PartitionKey,
    items: u64,
}

impl Container {
    /// How much is in each range, in ascending order.
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

/// Bytes of what exists in a partition's log.
pub(crate) fn live_bytes_of(log: &LogStatistics, items: u64) -> u64 {
    let live = log.bytes.saturating_sub(log.dead_bytes);
    if !log.shared {
        return live;
    }
    // After a split both halves have all of the old files. Theirs is what their items take on average.
    let share = u128::from(live) * u128::from(items) / u128::from(log.live_records.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(live)
}

/// A run that begins with this row.
fn first_of(row: &[u8]) -> Option<Run> {
    let (_, tail) = keys::parse_item(row)?;
    let (key, length) = PartitionKey::decode_prefix(tail).ok()?;
    let prefix = row.get(..row.len() - tail.len() + length)?.to_vec();
    Some(Run { prefix, key, items: 1 })
}

/// Keeps a run if it is among the largest.
fn keep(largest: &mut Vec<Run>, run: Option<Run>) {
    let Some(run) = run else { return };
    let place = largest.partition_point(|other| other.items >= run.items);
    if place < KEYS_MAX {
        largest.insert(place, run);
        largest.truncate(KEYS_MAX);
    }
}
