//! What queries may take, and when one must end: its time is up, or its client is gone.
//!
//! The evaluator asks every thousand steps, also within an item. A query that has computed for long pauses there
//! until its turn (see `lanes`). Decides nothing about pages; see `stream`.

use super::lanes::{Lanes, SLICE};
use headwater_query::{Interruption, Watch};
use headwater_runtime::{Runtime, Waiter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What queries may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryLimits {
    /// Bytes one query holds at a time: rows, groups, distinct values and values in flight.
    pub memory_bytes: usize,
    /// Bytes all queries of the account hold together.
    pub memory_bytes_together: usize,
    /// After this a page is answered as it is, and the next one continues behind it. A query fails if a
    /// single item alone takes longer.
    pub page_time: Duration,
    /// After this a query that needs every item before its first row fails.
    pub time: Duration,
}

impl Default for QueryLimits {
    fn default() -> QueryLimits {
        QueryLimits {
            memory_bytes: 256 << 20,
            memory_bytes_together: 288 << 20,
            page_time: Duration::from_secs(5),
            // SDKs give up after about as long.
            time: Duration::from_secs(60),
        }
    }
}

/// The longest time between two questions that counts as computing. The query may have waited for more.
const STEP_TIME_MAX: Duration = Duration::from_millis(2);
/// The pause in which another thread takes over the other tasks of this one.
const HANDOVER_TIME: Duration = Duration::from_micros(200);
/// A shorter pause before later slices, in case nothing was handed over before.
const REPEAT_TIME: Duration = Duration::from_micros(50);
/// A query that waits for its turn looks this often whether it must end.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// Ends a query.
pub(crate) struct QueryWatch {
    runtime: Runtime,
    waiter: Waiter,
    /// In milliseconds of the runtime's clock.
    deadline_ms: AtomicU64,
    /// Where it takes turns, if it does.
    lanes: Option<Arc<Lanes>>,
    /// When it was asked last, in microseconds of the runtime's clock.
    asked_us: AtomicU64,
    /// How much it may compute until its next turn.
    left_us: AtomicU64,
    is_long: AtomicBool,
}

impl QueryWatch {
    /// A watch for the query of the current task, which must end after this time.
    pub(crate) fn new(runtime: &Runtime, time: Duration) -> QueryWatch {
        let now = runtime.elapsed();
        let watch = QueryWatch {
            runtime: runtime.clone(),
            waiter: Waiter::current(),
            deadline_ms: AtomicU64::new(0),
            lanes: None,
            asked_us: AtomicU64::new(micros(now)),
            left_us: AtomicU64::new(0),
            is_long: AtomicBool::new(false),
        };
        watch.end_at(now + time);
        watch
    }

    /// The same, for a query that takes turns with other long ones.
    pub(crate) fn in_turns(self, lanes: &Arc<Lanes>) -> QueryWatch {
        let free = lanes.free_time(self.runtime.elapsed());
        QueryWatch { lanes: Some(lanes.clone()), left_us: AtomicU64::new(micros(free)), ..self }
    }

    /// Moves the deadline.
    pub(crate) fn end_at(&self, deadline: Duration) {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self.deadline_ms.store(deadline_ms, Ordering::Relaxed);
    }

    /// Why the query must end, at a time of the runtime's clock.
    fn end_of(&self, now: Duration) -> Option<Interruption> {
        if self.waiter.is_gone() {
            return Some(Interruption::Abandoned);
        }
        let deadline = Duration::from_millis(self.deadline_ms.load(Ordering::Relaxed));
        (now >= deadline).then_some(Interruption::OutOfTime)
    }

    /// Counts what was computed since the last question. True once that is all it may until its next turn.
    fn has_used_up(&self, now: Duration) -> bool {
        let asked_us = self.asked_us.swap(micros(now), Ordering::Relaxed);
        let computed = micros(now).saturating_sub(asked_us).min(micros(STEP_TIME_MAX));
        let left_us = self.left_us.load(Ordering::Relaxed).saturating_sub(computed);
        self.left_us.store(left_us, Ordering::Relaxed);
        left_us == 0
    }

    /// Waits for the next turn, unless the query must end before.
    fn wait_for_turn(&self, lanes: &Lanes, mut now: Duration) -> Option<Interruption> {
        let shortest = match self.is_long.swap(true, Ordering::Relaxed) {
            false => HANDOVER_TIME,
            true => REPEAT_TIME,
        };
        let begin = lanes.reserve(now).max(now + shortest);
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
        self.asked_us.store(micros(now), Ordering::Relaxed);
        self.left_us.store(micros(SLICE), Ordering::Relaxed);
        None
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Watch for QueryWatch {
    fn interruption(&self) -> Option<Interruption> {
        let now = self.runtime.elapsed();
        let end = self.end_of(now);
        match &self.lanes {
            Some(lanes) if end.is_none() && self.has_used_up(now) => self.wait_for_turn(lanes, now),
            // Threads of short requests need not wait for the end of a slice of the scheduler.
            Some(_) if end.is_none() && self.is_long.load(Ordering::Relaxed) => {
                self.runtime.pause(Duration::ZERO);
                None
            }
            _ => end,
        }
    }
}
