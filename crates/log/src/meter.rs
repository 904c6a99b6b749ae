//! Metrics of logs: syncs, groups and compactions, summed over all logs that share a [`LogMeter`].
//!
//! Counting uses relaxed atomics: no lock, no allocation. Monitoring reads [`LogMeter::figures`]; no text format
//! is produced here.

use crate::compaction::Compacted;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the sync latencies, in nanoseconds: 50 µs to 10 s.
const SYNC_NANOS: [u64; 16] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
];
/// Upper bounds of the group sizes, in entries. A writer takes at most 512 requests into a group.
const GROUP_ENTRIES: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// A histogram of whole numbers with fixed buckets. Observing takes two relaxed atomic additions.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One count for each bound, and one for larger values.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// The buckets of a [`Histogram`] at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramFigures {
    /// Upper bounds, inclusive and ascending.
    pub bounds: &'static [u64],
    /// Observations per bucket, not cumulative; the last bucket has no upper bound.
    pub counts: Vec<u64>,
    /// The sum of all observed values.
    pub sum: u64,
}

impl Histogram {
    /// An empty histogram with these upper bounds, which must ascend.
    #[must_use]
    pub fn new(bounds: &'static [u64]) -> Histogram {
        debug_assert!(bounds.is_sorted());
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts one value.
    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts one duration, in nanoseconds.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The buckets as they are now. Values observed meanwhile may be missing from some of the figures.
    #[must_use]
    pub fn figures(&self) -> HistogramFigures {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        HistogramFigures { bounds: self.bounds, counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl HistogramFigures {
    /// How many values were observed.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Counts the syncs, groups and compactions of the logs of a store.
#[derive(Debug)]
pub struct LogMeter {
    sync_nanos: Histogram,
    group_entries: Histogram,
    compactions: AtomicU64,
    compaction_read_bytes: AtomicU64,
    compaction_written_bytes: AtomicU64,
    last_compaction_ms: AtomicU64,
}

impl Default for LogMeter {
    fn default() -> LogMeter {
        LogMeter {
            sync_nanos: Histogram::new(&SYNC_NANOS),
            group_entries: Histogram::new(&GROUP_ENTRIES),
            compactions: AtomicU64::new(0),
            compaction_read_bytes: AtomicU64::new(0),
            compaction_written_bytes: AtomicU64::new(0),
            last_compaction_ms: AtomicU64::new(0),
        }
    }
}

/// The counters of a [`LogMeter`] at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogFigures {
    /// Latency of each sync of an append, in nanoseconds. Empty with `Durability::Os`.
    pub sync_nanos: HistogramFigures,
    /// Entries of each appended group: one for each write or transaction.
    pub group_entries: HistogramFigures,
    /// Runs of segments that were rewritten.
    pub compactions: u64,
    /// Bytes of the segments they replaced.
    pub compaction_read_bytes: u64,
    /// Bytes of the segments that replaced them.
    pub compaction_written_bytes: u64,
    /// When the last one ended, in milliseconds since 1970; `None` before the first.
    pub last_compaction_ms: Option<u64>,
}

impl LogMeter {
    pub(crate) fn observe_sync(&self, took: Duration) {
        self.sync_nanos.observe_duration(took);
    }

    pub(crate) fn observe_group(&self, entries: usize) {
        self.group_entries.observe(entries as u64);
    }

    pub(crate) fn count_compaction(&self, done: &Compacted, now_ms: u64) {
        self.compactions.fetch_add(1, Ordering::Relaxed);
        self.compaction_read_bytes.fetch_add(done.bytes_before, Ordering::Relaxed);
        self.compaction_written_bytes.fetch_add(done.bytes_after, Ordering::Relaxed);
        self.last_compaction_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// The counters as they are now.
    #[must_use]
    pub fn figures(&self) -> LogFigures {
        let last = self.last_compaction_ms.load(Ordering::Relaxed);
        LogFigures {
            sync_nanos: self.sync_nanos.figures(),
            group_entries: self.group_entries.figures(),
            compactions: self.compactions.load(Ordering::Relaxed),
            compaction_read_bytes: self.compaction_read_bytes.load(Ordering::Relaxed),
            compaction_written_bytes: self.compaction_written_bytes.load(Ordering::Relaxed),
            last_compaction_ms: (last > 0).then_some(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_the_first_bucket_that_reaches_it() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1_000] {
            histogram.observe(value);
        }
        let figures = histogram.figures();
        assert_eq!(figures.counts, [2, 2, 2]);
        assert_eq!((figures.count(), figures.sum), (6, 1_062));
        histogram.observe_duration(Duration::from_nanos(15));
        assert_eq!(histogram.figures().counts, [2, 3, 2]);
    }
}
