//! What queries may take, and when one must end: its time is up, or its client is gone.
//!
//! The evaluator asks every thousand steps, also within an item. Decides nothing about pages; see `stream`.

use headwater_query::{Interruption, Watch};
use headwater_runtime::{Runtime, Waiter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
            memory_bytes_together: 1 << 30,
            page_time: Duration::from_secs(5),
            // SDKs give up after about as long.
            time: Duration::from_secs(60),
        }
    }
}

/// Ends a query.
pub(crate) struct QueryWatch {
    runtime: Runtime,
    waiter: Waiter,
    /// In milliseconds of the runtime's clock.
    deadline_ms: AtomicU64,
}

impl QueryWatch {
    /// A watch for the query of the current task, which must end after this time.
    pub(crate) fn new(runtime: &Runtime, time: Duration) -> Arc<QueryWatch> {
        let watch = QueryWatch {
            runtime: runtime.clone(),
            waiter: Waiter::current(),
            deadline_ms: AtomicU64::new(0),
        };
        watch.end_at(runtime.elapsed() + time);
        Arc::new(watch)
    }

    /// Moves the deadline.
    pub(crate) fn end_at(&self, deadline: Duration) {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self.deadline_ms.store(deadline_ms, Ordering::Relaxed);
    }
}

impl Watch for QueryWatch {
    fn interruption(&self) -> Option<Interruption> {
        if self.waiter.is_gone() {
            return Some(Interruption::Abandoned);
        }
        let deadline = Duration::from_millis(self.deadline_ms.load(Ordering::Relaxed));
        (self.runtime.elapsed() >= deadline).then_some(Interruption::OutOfTime)
    }
}
