//! Resource limits of queries, and cancellation: ends a query whose time is up or whose client is gone.
//!
//! The evaluator checks every thousand steps, also within an item. A query that has computed for long pauses there
//! until its turn (see `lanes`). Decides nothing about pages; see `stream`.

use super::lanes::{FIRST_SLICE, Lanes, SLICE_MAX};
use headwater_query::{Interruption, Watch};
use headwater_runtime::{Runtime, ThreadTime, Waiter};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Limits on the memory and time of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryLimits {
    /// Maximum bytes one query holds at a time: rows, groups, distinct values and values in flight.
    pub memory_bytes: usize,
    /// Maximum bytes all queries of the account hold together.
    pub memory_bytes_together: usize,
    /// Time after which a page is returned as it is, and the next one continues behind it. A query fails if a
    /// single item takes longer.
    pub page_time: Duration,
    /// Time after which a query fails if it needs every item before its first row.
    pub time: Duration,
}

impl Default for QueryLimits {
    fn default() -> QueryLimits {
        QueryLimits {
            memory_bytes: 256 << 20,
            memory_bytes_together: 288 << 20,
            page_time: Duration::from_secs(5),
            // SDKs time out after about the same time.
            time: Duration::from_secs(60),
        }
    }
}

/// Minimum pause before the first slice, in which another thread takes over the other tasks of this one.
const HANDOVER_TIME: Duration = Duration::from_micros(200);
/// Shorter minimum pause before later slices, in case no task was handed over before.
const REPEAT_TIME: Duration = Duration::from_micros(50);
/// Interval at which a query that waits for its turn checks whether it must end.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// The deadline, cancellation check and time slices of one query.
pub(crate) struct QueryWatch {
    runtime: Runtime,
    waiter: Waiter,
    /// In milliseconds of the runtime's clock.
    deadline_ms: AtomicU64,
    /// The lanes of long queries; `None` if the query takes no turns.
    lanes: Option<Arc<Lanes>>,
    turn: Mutex<Turn>,
    /// Whether the query has taken a turn.
    is_long: AtomicBool,
}

/// Progress of a query within its free time or its slice.
struct Turn {
    /// CPU time left until its next turn.
    left: Duration,
    /// Earliest time at which `left` can be used up, on the clock of the runtime. Reading that clock costs less
    /// than reading the CPU time of a thread.
    next_look: Duration,
    /// CPU time of its thread at the last check; `None` before the first.
    looked: Option<ThreadTime>,
    /// Length of the slice it reserves next.
    next_slice: Duration,
    /// End of the slice it has reserved; zero before the first.
    slice_end: Duration,
}

impl QueryWatch {
    /// Creates a watch for the query of the current task, which must end after `time`.
    pub(crate) fn new(runtime: &Runtime, time: Duration) -> QueryWatch {
        let turn = Turn {
            left: Duration::ZERO,
            next_look: Duration::ZERO,
            looked: None,
            next_slice: FIRST_SLICE,
            slice_end: Duration::ZERO,
        };
        let watch = QueryWatch {
            runtime: runtime.clone(),
            waiter: Waiter::current(),
            deadline_ms: AtomicU64::new(0),
            lanes: None,
            turn: Mutex::new(turn),
            is_long: AtomicBool::new(false),
        };
        watch.end_at(runtime.elapsed() + time);
        watch
    }

    /// Makes the query take turns with other long queries.
    pub(crate) fn in_turns(mut self, lanes: &Arc<Lanes>) -> QueryWatch {
        let now = self.runtime.elapsed();
        let turn = self.turn.get_mut();
        turn.left = lanes.free_time(now);
        turn.next_look = now + turn.left;
        self.lanes = Some(lanes.clone());
        self
    }

    /// Moves the deadline.
    pub(crate) fn end_at(&self, deadline: Duration) {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self.deadline_ms.store(deadline_ms, Ordering::Relaxed);
    }

    /// Why the query must end at time `now`; `None` if it may continue.
    fn end_of(&self, now: Duration) -> Option<Interruption> {
        if self.waiter.is_gone() {
            return Some(Interruption::Abandoned);
        }
        let deadline = Duration::from_millis(self.deadline_ms.load(Ordering::Relaxed));
        (now >= deadline).then_some(Interruption::OutOfTime)
    }

    /// Whether the query has used up its CPU time until its next turn. Time in which its thread waited for a
    /// processor does not count from the first check on.
    fn has_used_up(&self, now: Duration) -> bool {
        let mut turn = self.turn.lock();
        if now < turn.next_look {
            return false;
        }
        let computed = self.runtime.thread_time();
        let since = turn.looked.and_then(|looked| computed.since(looked));
        turn.looked = Some(computed);
        turn.left = turn.left.saturating_sub(since.unwrap_or_default());
        turn.next_look = now + turn.left;
        turn.left.is_zero()
    }

    /// Waits for the next turn, unless the query must end before.
    fn wait_for_turn(&self, lanes: &Lanes, mut now: Duration) -> Option<Interruption> {
        let shortest = match self.is_long.swap(true, Ordering::Relaxed) {
            false => HANDOVER_TIME,
            true => REPEAT_TIME,
        };
        let begin = self.reserve(lanes, now).max(now + shortest);
        while now < begin {
            self.runtime.pause((begin - now).min(LOOK_TIME));
            let then = self.runtime.elapsed();
            // In a simulation, and on a runtime with one thread, there is no pause.
            let has_paused = then > now;
            now = then;
            let end = self.end_of(now);
            if end.is_some() {
                return end;
            }
            if !has_paused {
                break;
            }
        }
        let mut turn = self.turn.lock();
        turn.looked = Some(self.runtime.thread_time());
        turn.next_look = now + turn.left;
        None
    }

    /// Reserves the next slice and returns when it begins.
    fn reserve(&self, lanes: &Lanes, now: Duration) -> Duration {
        let mut turn = self.turn.lock();
        let slice = turn.next_slice;
        let begin = lanes.reserve(now, slice);
        turn.left = slice;
        turn.slice_end = begin + slice;
        turn.next_slice = (slice * 2).min(SLICE_MAX);
        begin
    }
}

impl Drop for QueryWatch {
    fn drop(&mut self) {
        let slice_end = self.turn.get_mut().slice_end;
        if let Some(lanes) = self.lanes.as_ref().filter(|_| !slice_end.is_zero()) {
            lanes.release(self.runtime.elapsed(), slice_end);
        }
    }
}

impl Watch for QueryWatch {
    fn interruption(&self) -> Option<Interruption> {
        let now = self.runtime.elapsed();
        let end = self.end_of(now);
        match &self.lanes {
            Some(lanes) if end.is_none() && self.has_used_up(now) => self.wait_for_turn(lanes, now),
            // Yields, so that threads of short requests need not wait for the end of a scheduler slice.
            Some(_) if end.is_none() && self.is_long.load(Ordering::Relaxed) => {
                self.runtime.pause(Duration::ZERO);
                None
            }
            _ => end,
        }
    }
}
