//! Counts what one run costs: steps of work and bytes of memory, each with a limit.
//!
//! Every loop of the evaluator calls [`Meter::step`], and everything that allocates a value or a row calls
//! [`Meter::charge`] or [`Meter::keep`]. Charged bytes belong to the row under evaluation and are released with
//! it; kept bytes belong to rows, groups and sets that outlive it. Both counts are upper bounds: a value that is
//! dropped early counts until its row ends.
//!
//! ```text
//! steps    ──1024──►──1024──►──1024──►        the watch is checked between two quanta: deadline, client
//! memory   ─first 64 KiB─►──256 KiB──►────►   blocks are taken from the pool that all runs share
//! ```
//!
//! This module reads no clock. The caller of a run passes a [`Watch`] that does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::EvaluationError;
use crate::limits::Limits;
use crate::value::Charge;

/// Steps between two checks of the watch.
const QUANTUM: u64 = 1024;
/// Bytes that every run may hold without using the pool: enough for ordinary queries.
const FREE_BYTES: usize = 64 << 10;
/// Bytes taken from the pool at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// Why a run must end before it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// The time limit has passed.
    OutOfTime,
    /// The client that sent the query has disconnected.
    Abandoned,
}

/// Decides whether a run may continue. Checked about every thousand steps, also within an item.
pub trait Watch: Send + Sync {
    /// Why the run must end now; `None` if it may continue.
    fn interruption(&self) -> Option<Interruption>;
}

/// A memory limit shared by several runs.
#[derive(Debug)]
pub struct MemoryPool {
    limit: usize,
    used: AtomicUsize,
}

impl MemoryPool {
    /// Creates a pool of this many bytes.
    #[must_use]
    pub fn new(limit: usize) -> MemoryPool {
        MemoryPool { limit, used: AtomicUsize::new(0) }
    }

    /// Bytes in use now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes taken from a pool, returned on drop. Code that keeps rows of a run must keep its lease as long.
#[derive(Debug, Default)]
pub struct MemoryLease {
    pool: Option<Arc<MemoryPool>>,
    bytes: usize,
}

impl MemoryLease {
    fn grow(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        if let Some(pool) = &self.pool
            && !pool.take(bytes)
        {
            return Err(EvaluationError::PoolExhausted { limit: pool.limit });
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give_back(self.bytes);
        }
    }
}

/// The memory and time that a run may take.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Budget {
    /// The most bytes that the run holds; `None` leaves the limit of the query.
    pub memory_bytes: Option<usize>,
    /// The memory pool shared with other runs.
    pub pool: Option<Arc<MemoryPool>>,
    /// Decides when the run must end.
    pub watch: Option<Arc<dyn Watch>>,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("memory_bytes", &self.memory_bytes).finish_non_exhaustive()
    }
}

impl Budget {
    /// A budget that takes its memory from a pool.
    #[must_use]
    pub fn within(pool: Arc<MemoryPool>, memory_bytes: usize) -> Budget {
        Budget { memory_bytes: Some(memory_bytes), pool: Some(pool), watch: None }
    }

    /// Adds a watch that can end the run.
    #[must_use]
    pub fn watched(mut self, watch: Arc<dyn Watch>) -> Budget {
        self.watch = Some(watch);
        self
    }
}

/// The counters of one run.
pub(crate) struct Meter {
    steps_max: u64,
    /// Steps left after the current quantum.
    steps_left: u64,
    /// Steps left until the watch is checked.
    quantum: u64,
    watch: Option<Arc<dyn Watch>>,
    memory_max: usize,
    /// Bytes that outlive the row under evaluation.
    kept: usize,
    /// Bytes of the row under evaluation.
    transient: usize,
    /// Bytes granted so far, which need no further request to the pool.
    granted: usize,
    lease: MemoryLease,
}

impl Meter {
    pub(crate) fn new(budget: Budget, limits: &Limits) -> Meter {
        let memory_max = budget.memory_bytes.unwrap_or(usize::MAX).min(limits.memory_bytes);
        Meter {
            steps_max: limits.steps,
            steps_left: limits.steps,
            quantum: 0,
            watch: budget.watch,
            memory_max,
            kept: 0,
            transient: 0,
            granted: FREE_BYTES.min(memory_max),
            lease: MemoryLease { pool: budget.pool, bytes: 0 },
        }
    }

    /// Counts steps of work.
    #[inline]
    pub(crate) fn step(&mut self, steps: usize) -> Result<(), EvaluationError> {
        match self.quantum.checked_sub(steps as u64) {
            Some(left) => {
                self.quantum = left;
                Ok(())
            }
            None => self.next_quantum(steps as u64),
        }
    }

    #[cold]
    fn next_quantum(&mut self, steps: u64) -> Result<(), EvaluationError> {
        let Some(left) = (self.steps_left + self.quantum).checked_sub(steps) else {
            return Err(EvaluationError::TooManySteps { limit: self.steps_max });
        };
        self.quantum = left.min(QUANTUM);
        self.steps_left = left - self.quantum;
        match self.watch.as_ref().and_then(|watch| watch.interruption()) {
            None => Ok(()),
            Some(Interruption::OutOfTime) => Err(EvaluationError::OutOfTime),
            Some(Interruption::Abandoned) => Err(EvaluationError::Abandoned),
        }
    }

    pub(crate) fn steps_used(&self) -> u64 {
        self.steps_max - self.steps_left - self.quantum
    }

    /// Counts bytes of the row under evaluation.
    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.transient = self.transient.saturating_add(bytes);
        self.check_memory()
    }

    /// The bytes charged now, for [`Meter::release_to`].
    #[inline]
    pub(crate) fn mark(&self) -> usize {
        self.transient
    }

    /// Releases the bytes charged since a mark.
    #[inline]
    pub(crate) fn release_to(&mut self, mark: usize) {
        self.transient = mark;
    }

    /// Counts bytes that outlive the row under evaluation.
    pub(crate) fn keep(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.kept = self.kept.saturating_add(bytes);
        self.check_memory()
    }

    /// Releases kept bytes.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.kept = self.kept.saturating_sub(bytes);
    }

    #[inline]
    fn check_memory(&mut self) -> Result<(), EvaluationError> {
        match self.kept.saturating_add(self.transient) {
            held if held <= self.granted => Ok(()),
            held => self.grow(held),
        }
    }

    #[cold]
    fn grow(&mut self, held: usize) -> Result<(), EvaluationError> {
        if held > self.memory_max {
            return Err(EvaluationError::TooMuchMemory { limit: self.memory_max });
        }
        let wanted = held.saturating_add(BLOCK_BYTES).min(self.memory_max);
        self.lease.grow(wanted - self.granted)?;
        self.granted = wanted;
        Ok(())
    }

    /// The most bytes held at a time, rounded up to blocks.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.granted
    }

    /// Takes the lease on the pool's memory, for the caller that keeps the rows.
    pub(crate) fn take_lease(&mut self) -> MemoryLease {
        let pool = self.lease.pool.clone();
        self.granted = FREE_BYTES.min(self.memory_max);
        std::mem::replace(&mut self.lease, MemoryLease { pool, bytes: 0 })
    }
}

impl Charge for Meter {
    type Refusal = EvaluationError;

    fn walked(&mut self, steps: usize) -> Result<(), EvaluationError> {
        self.step(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(memory_bytes: usize, pool: &Arc<MemoryPool>) -> Meter {
        Meter::new(Budget::within(pool.clone(), memory_bytes), &Limits::default())
    }

    #[test]
    fn runs_share_a_pool_and_give_back_what_they_took() {
        let pool = Arc::new(MemoryPool::new(1 << 20));
        let mut one = meter(usize::MAX, &pool);
        one.keep(FREE_BYTES).unwrap();
        assert_eq!(pool.used(), 0, "small runs do not touch the pool");
        one.keep(700 << 10).unwrap();
        let mut two = meter(usize::MAX, &pool);
        let refused = EvaluationError::PoolExhausted { limit: 1 << 20 };
        assert_eq!(two.charge(700 << 10), Err(refused));
        let lease = one.take_lease();
        drop((one, two));
        assert!(pool.used() >= 700 << 10, "rows that live on still count");
        drop(lease);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn what_is_charged_ends_with_its_row_and_what_is_kept_does_not() {
        let pool = Arc::new(MemoryPool::new(usize::MAX));
        let mut meter = meter(1 << 20, &pool);
        for _ in 0..100 {
            let mark = meter.mark();
            meter.charge(1 << 19).unwrap();
            meter.release_to(mark);
        }
        meter.keep(1 << 19).unwrap();
        let limit = 1 << 20;
        assert_eq!(meter.keep((1 << 19) + 1), Err(EvaluationError::TooMuchMemory { limit }));
        assert!(meter.peak_bytes() <= limit && pool.used() <= limit);
    }

    #[test]
    fn the_watch_is_asked_within_a_quantum_and_the_steps_add_up() {
        struct Never;
        impl Watch for Never {
            fn interruption(&self) -> Option<Interruption> {
                Some(Interruption::Abandoned)
            }
        }
        let budget = Budget::default().watched(Arc::new(Never));
        let mut meter = Meter::new(budget, &Limits::default());
        assert_eq!(meter.step(1), Err(EvaluationError::Abandoned));
        let limits = Limits { steps: 3000, ..Limits::default() };
        let mut meter = Meter::new(Budget::default(), &limits);
        for _ in 0..3000 {
            meter.step(1).unwrap();
        }
        assert_eq!(meter.steps_used(), 3000);
        assert_eq!(meter.step(1), Err(EvaluationError::TooManySteps { limit: 3000 }));
    }
}
