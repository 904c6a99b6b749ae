//! How much history a container keeps: superseded versions and deletes, for readers of all versions.
//!
//! One place decides. A `changeFeedPolicy` of the container is a guarantee of time. Without one, the
//! store's options give a time and a bound in bytes, so that a container that is written hot cannot
//! fill a disk:
//!
//! ```text
//! own history + shared history / 4 ≤ max(history_bytes_min, live bytes × history_percent / 100)
//! ```
//!
//! for each range. Shared history is in files that a split or merge linked and compaction has not rewritten
//! yet. It counts a quarter, so that a range keeps what its predecessors kept although its own bound is
//! lower, and so that no sequence of splits and merges keeps more than four times the bound.
//!
//! Compaction carries it out, oldest segments first; nothing else removes history.

use crate::account::Options;
use crate::container::{Container, ContainerState};
use crate::error::StorageError;
use crate::partition::Partition;
use crate::statistics::live_bytes_of;
use headwater_log::{CompactionPolicy, LocalLog};
use headwater_model::Timestamp;
use std::time::Duration;

/// The history of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryStatistics {
    /// Bytes of superseded versions and tombstones that readers of all versions can get. While ranges
    /// share files after a split, each of them counts all of such a file.
    pub bytes: u64,
    /// The most they may take, not counting three quarters of what is in files that were linked in a split
    /// or merge; `None` if only time counts.
    pub bytes_max: Option<u64>,
    /// How long they are kept.
    pub retention: Duration,
    /// Since when all versions of every range are there. `None` if nothing was written since.
    pub oldest: Option<Timestamp>,
}

/// What a container keeps.
#[derive(Clone, Copy, Debug)]
struct Kept {
    retention: Duration,
    /// Whether bytes count too.
    is_bounded: bool,
}

impl Kept {
    fn of(container: &ContainerState) -> Kept {
        let policy = container.settings.read().definition.all_versions_retention();
        let retention = policy.unwrap_or(container.shared.options.history);
        Kept { retention, is_bounded: policy.is_none() }
    }

    fn bytes_max(self, partition: &Partition, log: &LocalLog, options: &Options) -> u64 {
        if !self.is_bounded {
            return u64::MAX;
        }
        let live = log.live_bytes();
        if share_of(live, options) <= options.history_bytes_min {
            return options.history_bytes_min;
        }
        // What a sibling superseded in a shared file looks alive here, but is no item of this range.
        let items = partition.population.known();
        let own = items.map_or(live, |items| live_bytes_of(&log.statistics(), items).min(live));
        share_of(own, options).max(options.history_bytes_min)
    }
}

/// What `history_percent` allows for these live bytes.
fn share_of(live_bytes: u64, options: &Options) -> u64 {
    let share = u128::from(live_bytes) * u128::from(options.history_percent) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// What compaction of a partition has to leave.
pub(crate) fn compaction_policy(
    container: &ContainerState,
    partition: &Partition,
    log: &LocalLog,
) -> CompactionPolicy {
    let options = &container.shared.options;
    let kept = Kept::of(container);
    let retain_from = if kept.retention.is_zero() {
        Timestamp::from_millis(u64::MAX)
    } else {
        let millis = u64::try_from(kept.retention.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(partition.now().as_millis().saturating_sub(millis))
    };
    // Counting items takes time the first time, and only matters where the share may be the bound and
    // files are shared.
    let is_share_decisive = kept.is_bounded
        && share_of(log.live_bytes(), options) > options.history_bytes_min
        && partition.population.known().is_none()
        && log.statistics().shared;
    if is_share_decisive
        && let Err(error) = container.shared.runtime.blocking(|| partition.item_count())
    {
        tracing::warn!(partition = %partition.id, %error, "cannot count the items of a range");
    }
    CompactionPolicy {
        retain_from,
        history_bytes_max: kept.bytes_max(partition, log, options),
        dead_percent: options.compaction_dead_percent,
    }
}

impl Container {
    /// How much history is kept, and how much may be.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn history(&self) -> Result<HistoryStatistics, StorageError> {
        let state = self.state();
        let kept = Kept::of(state);
        let mut found = HistoryStatistics {
            bytes: 0,
            bytes_max: kept.is_bounded.then_some(0),
            retention: kept.retention,
            oldest: None,
        };
        for partition in &state.topology().partitions {
            let log = partition.log()?;
            found.bytes = found.bytes.saturating_add(log.history_bytes());
            let bytes_max = kept.bytes_max(partition, log, &state.shared.options);
            found.bytes_max = found.bytes_max.map(|sum| sum.saturating_add(bytes_max));
            // The range that was cut last decides for all of them.
            found.oldest = found.oldest.max(log.oldest_complete()?);
        }
        Ok(found)
    }
}
