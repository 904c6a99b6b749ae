//! Long queries take turns, so that many of them do not take the processor from everything else.
//!
//! A query computes freely at first; most end within that time. After it, the query reserves slices of time on
//! a lane, and its thread pauses until the slice begins. There is one lane fewer than processors:
//!
//! ```text
//! lane 1   │ query A │ query B │ query C │ query A │ …
//! ```
//!
//! A reservation is a time, not a lock: a query that ends or waits within its slice blocks no other query.
//! Decides nothing about deadlines; see `watch`.

use parking_lot::Mutex;
use std::num::NonZero;
use std::time::Duration;

/// What a query computes before it takes turns, while no other query waits for one.
const FREE_TIME: Duration = Duration::from_millis(2);
/// The same while others wait: many queries that each compute a little are as much as one that computes for long.
const FREE_TIME_WHEN_BUSY: Duration = Duration::from_micros(300);
/// What it computes in a turn.
pub(super) const SLICE: Duration = Duration::from_millis(5);

/// When each lane is free, on the clock of the runtime.
#[derive(Debug)]
pub(crate) struct Lanes(Mutex<Vec<Duration>>);

impl Lanes {
    fn new(count: usize) -> Lanes {
        Lanes(Mutex::new(vec![Duration::ZERO; count.max(1)]))
    }

    /// What a query that begins may compute before it takes turns.
    pub(super) fn free_time(&self, now: Duration) -> Duration {
        match self.0.lock().iter().all(|free_at| *free_at > now) {
            true => FREE_TIME_WHEN_BUSY,
            false => FREE_TIME,
        }
    }

    /// Reserves the next free slice and returns when it begins.
    pub(super) fn reserve(&self, now: Duration) -> Duration {
        let mut lanes = self.0.lock();
        let Some(free_at) = lanes.iter_mut().min() else { return now };
        let begin = now.max(*free_at);
        *free_at = begin + SLICE;
        begin
    }
}

impl Default for Lanes {
    fn default() -> Lanes {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Lanes::new(processors - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_lane_follow_each_other_and_lanes_run_side_by_side() {
        let lanes = Lanes::new(2);
        let now = Duration::from_secs(1);
        let begins: Vec<Duration> = (0..5).map(|_| lanes.reserve(now) - now).collect();
        assert_eq!(begins, [0, 0, 1, 1, 2].map(|slice| SLICE * slice));
        assert_eq!(lanes.free_time(now), FREE_TIME_WHEN_BUSY);
        let later = now + Duration::from_secs(1);
        assert_eq!(lanes.free_time(later), FREE_TIME);
        assert_eq!(lanes.reserve(later), later, "time that nobody reserved is not owed");
    }
}
