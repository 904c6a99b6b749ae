//! When a position is stored. Counts only; never writes.

use std::time::Duration;

/// The checkpoint policy: how often positions are stored (`CheckpointFrequency`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpoint {
    /// After every batch, before the next one is handled. A crash repeats at most one batch.
    #[default]
    EveryBatch,
    /// As soon as one of these limits is reached; zero disables a limit. A timer ensures that the tail of a
    /// burst is stored as well.
    Every {
        /// Handled changes (`ProcessedDocumentCount`).
        items: usize,
        /// Bytes of handled changes.
        bytes: usize,
        /// Time since the first change that is not stored (`TimeInterval`).
        interval: Duration,
    },
    /// Only when a handler requests it (`ExplicitCheckpoint`).
    Manual,
}

impl Checkpoint {
    /// Returns the longest time a handled change may wait to be stored, if limited.
    #[must_use]
    pub fn interval(self) -> Option<Duration> {
        match self {
            Checkpoint::Every { interval, .. } if !interval.is_zero() => Some(interval),
            _ => None,
        }
    }
}

/// Counts handled changes since the last checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    policy: Checkpoint,
    items: usize,
    bytes: usize,
    since: Duration,
}

impl Pace {
    /// Creates a counter without handled changes.
    #[must_use]
    pub fn new(policy: Checkpoint, now: Duration) -> Pace {
        Pace { policy, items: 0, bytes: 0, since: now }
    }

    /// Counts handled changes. Returns true if a checkpoint is due.
    pub fn handled(&mut self, items: usize, bytes: usize, now: Duration) -> bool {
        if self.items == 0 && self.bytes == 0 {
            self.since = now;
        }
        self.items += items;
        self.bytes += bytes;
        self.is_due(now)
    }

    /// Whether a checkpoint is due, also if nothing was handled since the last call.
    #[must_use]
    pub fn is_due(&self, now: Duration) -> bool {
        if self.items == 0 {
            return false;
        }
        match self.policy {
            Checkpoint::EveryBatch => true,
            Checkpoint::Manual => false,
            Checkpoint::Every { items, bytes, interval } => {
                let elapsed = now.saturating_sub(self.since);
                let unbounded = items == 0 && bytes == 0 && interval.is_zero();
                unbounded
                    || (items > 0 && self.items >= items)
                    || (bytes > 0 && self.bytes >= bytes)
                    || (!interval.is_zero() && elapsed >= interval)
            }
        }
    }

    /// Resets the counters after a checkpoint.
    pub fn stored(&mut self, now: Duration) {
        *self = Pace::new(self.policy, now);
    }

    /// Returns when to check again if nothing happens.
    #[must_use]
    pub fn timer(&self) -> Option<Duration> {
        let interval = self.policy.interval().filter(|_| self.items > 0)?;
        Some(self.since + interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn whichever_bound_is_reached_first_counts() {
        let every =
            |items, bytes, seconds| Checkpoint::Every { items, bytes, interval: at(seconds) };
        for (policy, handled, expected) in [
            (Checkpoint::EveryBatch, (1, 1, 0), true),
            (Checkpoint::Manual, (999, 999, 999), false),
            (every(0, 0, 0), (1, 1, 0), true),
            (every(10, 0, 0), (9, 9999, 999), false),
            (every(10, 0, 0), (10, 0, 0), true),
            (every(0, 100, 0), (9, 100, 0), true),
            (every(10, 100, 0), (9, 99, 999), false),
        ] {
            let mut pace = Pace::new(policy, at(0));
            let (items, bytes, now) = handled;
            assert_eq!(pace.handled(items, bytes, at(now)), expected, "{policy:?}");
        }
    }

    #[test]
    fn the_timer_runs_from_the_first_change_that_is_not_stored() {
        let policy = Checkpoint::Every { items: 0, bytes: 0, interval: at(5) };
        let mut pace = Pace::new(policy, at(0));
        assert!(!pace.is_due(at(100)) && pace.timer().is_none(), "nothing to store");
        assert!(!pace.handled(1, 1, at(100)));
        assert_eq!(pace.timer(), Some(at(105)));
        assert!(!pace.is_due(at(104)) && pace.is_due(at(105)));
        pace.stored(at(105));
        assert!(!pace.is_due(at(999)));
    }
}
