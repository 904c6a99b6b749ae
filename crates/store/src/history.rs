//! History of a container: how many superseded versions and deletes are kept for readers of all versions.
//!
//! The only place that decides it. A `changeFeedPolicy` of the container guarantees a time. Without one, the
//! store's options set a time and a limit in bytes, so that frequent writes to a container cannot fill the
//! disk:
//!
//! ```text
//! own history + shared history / 4 ≤ max(history_bytes_min, live bytes × history_percent / 100)
//! ```
//!
//! for each range. Shared history is in files that a split or merge linked and compaction has not rewritten
//! yet. It counts a quarter. So a range keeps what its predecessors kept although its own limit is lower, and
//! no sequence of splits and merges keeps more than four times the limit.
//!
//! Compaction applies the policy, the oldest segments first. Nothing else removes history.

use crate::account::Options;
use crate::container::{Container, ContainerState};
use crate::error::StorageError;
use crate::partition::Partition;
use crate::statistics::live_bytes_of;
use headwater_log::{CompactionPolicy, LocalLog};
use headwater_model::Timestamp;
use std::time::Duration;

/// Size and age of the history of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryStatistics {
    /// Bytes of superseded versions and tombstones that readers of all versions can get. While ranges share
    /// files after a split, each range counts the whole file.
    pub bytes: u64,
    /// The limit of `bytes`, where history in files that were linked in a split or merge counts a quarter.
    /// `None` if only time limits the history.
    pub bytes_max: Option<u64>,
    /// The time that history is kept.
    pub retention: Duration,
    /// Time of the oldest change from which on all versions of every range are kept. `None` if there is no
    /// such change.
    pub oldest: Option<Timestamp>,
}

/// The retention of a container.
#[derive(Clone, Copy, Debug)]
struct Retention {
    time: Duration,
    /// Whether a limit in bytes applies too.
    is_bounded: bool,
}

impl Retention {
    fn of_container(container: &ContainerState) -> Retention {
        let policy = container.settings.read().definition.all_versions_retention();
        let time = policy.unwrap_or(container.shared.options.history);
        Retention { time, is_bounded: policy.is_none() }
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

/// The bytes of history that `history_percent` allows for these live bytes.
fn share_of(live_bytes: u64, options: &Options) -> u64 {
    let share = u128::from(live_bytes) * u128::from(options.history_percent) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The policy that compaction of a partition must follow.
pub(crate) fn compaction_policy(
    container: &ContainerState,
    partition: &Partition,
    log: &LocalLog,
) -> CompactionPolicy {
    let options = &container.shared.options;
    let retention = Retention::of_container(container);
    let retain_from = if retention.time.is_zero() {
        Timestamp::from_millis(u64::MAX)
    } else {
        let millis = u64::try_from(retention.time.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(partition.now().as_millis().saturating_sub(millis))
    };
    // Counting items takes time the first time, and only matters where the share may be the bound and
    // files are shared.
    let is_share_decisive = retention.is_bounded
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
        history_bytes_max: retention.bytes_max(partition, log, options),
        dead_percent: options.compaction_dead_percent,
    }
}

impl Container {
    /// Size, limits and age of the history.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn history(&self) -> Result<HistoryStatistics, StorageError> {
        let state = self.state();
        let retention = Retention::of_container(state);
        let mut found = HistoryStatistics {
            bytes: 0,
            bytes_max: retention.is_bounded.then_some(0),
            retention: retention.time,
            oldest: None,
        };
        for partition in &state.topology().partitions {
            let log = partition.log()?;
            found.bytes = found.bytes.saturating_add(log.history_bytes());
            let bytes_max = retention.bytes_max(partition, log, &state.shared.options);
            found.bytes_max = found.bytes_max.map(|sum| sum.saturating_add(bytes_max));
            // The range with the shortest history decides for the container.
            found.oldest = found.oldest.max(log.oldest_complete()?);
        }
        Ok(found)
    }
}
