//! Time slicing of long queries, so that they do not starve other work of CPU time.
//!
//! A query computes freely at first; most end within that time. After it, the query reserves slices of time on
//! a lane, and its thread pauses until the slice begins. There is one lane fewer than processors, but at least one:
//!
//! ```text
//! lane 1   │ A │ B │ C │  A  │  B  │    A    │    B    │ …
//! ```
//!
//! The first slice is short and each later one twice as long, up to a limit. So a query that needs a little more
//! than the free time does not reserve ten times as much. A query that ends returns the rest of its slice if
//! none is reserved behind it.
//!
//! A reservation is a time, not a lock: a query that waits within its slice blocks no other query.
//! Decides nothing about deadlines; see `watch`.

use parking_lot::Mutex;
use std::num::NonZero;
use std::time::Duration;

/// Time a query may compute before it takes turns, if a lane is free.
const FREE_TIME: Duration = Duration::from_millis(2);
/// Free time while all lanes are reserved: many queries that compute a little cost as much as a long one.
const FREE_TIME_WHEN_BUSY: Duration = Duration::from_micros(300);
/// Length of the first slice of a query.
pub(super) const FIRST_SLICE: Duration = Duration::from_micros(500);
/// Maximum length of a later slice.
pub(super) const SLICE_MAX: Duration = Duration::from_millis(5);

/// The time at which each lane becomes free, on the clock of the runtime.
#[derive(Debug)]
pub(crate) struct Lanes(Mutex<Vec<Duration>>);

impl Lanes {
    fn new(count: usize) -> Lanes {
        Lanes(Mutex::new(vec![Duration::ZERO; count.max(1)]))
    }

    /// Time that a new query may compute before it takes turns.
    pub(super) fn free_time(&self, now: Duration) -> Duration {
        match self.0.lock().iter().all(|free_at| *free_at > now) {
            true => FREE_TIME_WHEN_BUSY,
            false => FREE_TIME,
        }
    }

    /// Reserves the next free slice of this length and returns when it begins.
    pub(super) fn reserve(&self, now: Duration, slice: Duration) -> Duration {
        let mut lanes = self.0.lock();
        let Some(free_at) = lanes.iter_mut().min() else { return now };
        let begin = now.max(*free_at);
        *free_at = begin + slice;
        begin
    }

    /// Gives back the rest of a slice that was reserved until `end`, unless another slice follows it.
    pub(super) fn release(&self, now: Duration, end: Duration) {
        if let Some(free_at) = self.0.lock().iter_mut().find(|free_at| **free_at == end) {
            *free_at = now.min(end);
        }
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

    const SLICE: Duration = SLICE_MAX;

    #[test]
    fn slices_of_a_lane_follow_each_other_and_lanes_run_side_by_side() {
        let lanes = Lanes::new(2);
        let now = Duration::from_secs(1);
        let begins: Vec<Duration> = (0..5).map(|_| lanes.reserve(now, SLICE) - now).collect();
        assert_eq!(begins, [0, 0, 1, 1, 2].map(|slice| SLICE * slice));
        assert_eq!(lanes.free_time(now), FREE_TIME_WHEN_BUSY);
        let later = now + Duration::from_secs(1);
        assert_eq!(lanes.free_time(later), FREE_TIME);
        assert_eq!(lanes.reserve(later, SLICE), later, "unreserved time is not carried over");
    }

    #[test]
    fn the_rest_of_a_slice_is_returned_unless_another_is_reserved_behind_it() {
        let lanes = Lanes::new(1);
        let now = Duration::from_secs(1);
        let end = lanes.reserve(now, SLICE) + SLICE;
        lanes.release(now + SLICE / 5, end);
        let begin = lanes.reserve(now, SLICE);
        assert_eq!(begin, now + SLICE / 5);
        let behind = lanes.reserve(now, SLICE);
        lanes.release(now, begin + SLICE);
        assert_eq!(lanes.reserve(now, SLICE), behind + SLICE);
    }
}
