//! Figures for monitoring: what a store has done since it was opened, and what it uses now.
//!
//! Reading them costs a few locks and a look at each segment file, so it can be done every few seconds. No
//! item is counted or read; `statistics` does that. Knows no format of a monitoring system.

use crate::account::Account;
use crate::container::Container;
use crate::error::StorageError;
use crate::partition::Partition;
use crate::statistics::live_bytes_of;
use headwater_log::LogFigures;
use headwater_model::PartitionId;
use std::sync::Arc;

/// The figures of a whole store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AccountFigures {
    /// What all logs did, that of the catalog included.
    pub log: LogFigures,
    /// Memory in use, by purpose.
    pub memory: MemoryFigures,
    /// Bytes that can still be written to the file system of the data directory; `None` if it does not tell.
    pub disk_free_bytes: Option<u64>,
}

/// Memory in use, in bytes, estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFigures {
    /// Index blocks that were read.
    pub index_cache: u64,
    /// Filters and block indexes of index tables, which stay in memory.
    pub index_tables: u64,
    /// Index rows that are not in tables.
    pub index_rows: u64,
    /// Items that were read recently.
    pub recent_items: u64,
    /// The newest changes of each range.
    pub recent_changes: u64,
    /// What queries hold beyond the first 64 KiB of each.
    pub queries: u64,
}

/// The figures of one container. While ranges share files after a split, each of them counts all of such a
/// file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerFigures {
    /// Ranges, quarantined ones included.
    pub partitions: u64,
    /// Bytes of log entries that nothing has superseded.
    pub live_bytes: u64,
    /// The same of the range with most of them, estimated as by [`Container::live_bytes_in`].
    pub largest_range_live_bytes: u64,
    /// Bytes of all log entries.
    pub log_bytes: u64,
    /// Bytes the log files take on the disk.
    pub disk_bytes: u64,
    /// The most entries of a range's log that one of the indexes for queries has yet to apply.
    pub index_lag: u64,
}

impl Account {
    /// The figures of the whole store.
    #[must_use]
    pub fn figures(&self) -> AccountFigures {
        let shared = &self.0.shared;
        let index = shared.index.memory();
        let mut recent_changes = 0;
        for container in self.open_container_states() {
            let topology = container.topology();
            let logs = topology.partitions.iter().filter_map(|partition| partition.log().ok());
            recent_changes += logs.map(|log| log.ring_bytes()).sum::<u64>();
        }
        AccountFigures {
            log: shared.meter.figures(),
            memory: MemoryFigures {
                index_cache: index.cache_bytes,
                index_tables: index.table_bytes,
                index_rows: index.row_bytes,
                recent_items: shared.recent.byte_count() as u64,
                recent_changes,
                queries: shared.query_memory.used() as u64,
            },
            disk_free_bytes: shared.disk.free_bytes(&shared.root),
        }
    }
}

impl Container {
    /// The figures of this container. Quarantined ranges are counted, their bytes are not.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn figures(&self) -> Result<ContainerFigures, StorageError> {
        let state = self.state();
        let topology = state.topology();
        let mut figures = ContainerFigures {
            partitions: topology.partitions.len() as u64,
            index_lag: state.secondary.lag(state)?,
            ..ContainerFigures::default()
        };
        let ranges = topology.partitions.iter().filter_map(live_bytes);
        figures.largest_range_live_bytes = ranges.max().unwrap_or(0);
        for log in topology.partitions.iter().filter_map(|partition| partition.log().ok()) {
            let log = log.statistics();
            figures.live_bytes += log.bytes.saturating_sub(log.dead_bytes);
            figures.log_bytes += log.bytes;
            figures.disk_bytes += log.disk_bytes;
        }
        Ok(figures)
    }

    /// Bytes of the live items of a range, which decide when it is split ([`Options::split_at_bytes`]); `None` if it
    /// is gone or quarantined. While ranges share files after a split, this is their share by items, or all of the
    /// files until the items of the range were counted.
    ///
    /// [`Options::split_at_bytes`]: crate::Options::split_at_bytes
    #[must_use]
    pub fn live_bytes_in(&self, range: PartitionId) -> Option<u64> {
        live_bytes(self.state().topology().partition(range)?)
    }
}

fn live_bytes(partition: &Arc<Partition>) -> Option<u64> {
    let log = partition.log().ok()?.statistics();
    // Only shared files need the number of items.
    let items = partition.known_item_count().unwrap_or(log.live_records);
    Some(live_bytes_of(&log, items))
}
