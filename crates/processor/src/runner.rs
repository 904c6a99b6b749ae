//! Runners: custom processing of a lease.
//!
//! A [`Handler`](crate::Handler) is given one batch after the other. A [`LeaseRunner`] pulls batches itself, also
//! before earlier ones are handled, and acknowledges each one. It decides about order, concurrency and failures. The
//! host does the rest: it reads ahead, renews the lease, stores the contiguous handled position, and stops the runner
//! when the lease is lost.

use crate::failure::HandlerError;
use crate::handler::{Batch, BatchContext, Delivery, LeaseContext};
use crate::host::{Job, Portion, Shared, Tenure};
use crate::source::Change;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Code that processes one lease (`IPartitionProcessor`).
pub trait LeaseRunner: Send + 'static {
    /// Runs until [`LeaseSession::next`] returns `None`, which means that the lease is ending.
    ///
    /// Work in progress may then be finished within the host's `drain_timeout`. If the lease is lost, the future is
    /// dropped at its next `await`. After an error or an early return the lease is released, and changes that were
    /// not acknowledged are delivered again to the next owner.
    fn run(
        &mut self,
        session: LeaseSession,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Creates a runner for every acquired lease (`IPartitionProcessorFactory`).
pub trait RunnerFactory: Send + Sync + 'static {
    /// The runner type.
    type Runner: LeaseRunner;

    /// Creates a runner for this lease.
    fn create(&self, lease: &LeaseContext) -> Self::Runner;
}

/// Implements the factory for closures that return runners.
impl<F, R> RunnerFactory for F
where
    F: Fn(&LeaseContext) -> R + Send + Sync + 'static,
    R: LeaseRunner,
{
    type Runner = R;

    fn create(&self, lease: &LeaseContext) -> R {
        self(lease)
    }
}

/// A runner's view of its lease: the source of batches.
pub struct LeaseSession {
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) jobs: mpsc::Receiver<Job>,
    pub(crate) shared: Arc<Shared>,
}

impl LeaseSession {
    /// Returns the lease.
    #[must_use]
    pub fn lease(&self) -> &LeaseContext {
        &self.tenure.lease
    }

    /// Waits for the next batch; `None` when the lease is ending.
    ///
    /// Batches arrive in order, also while earlier ones are unhandled, until `unhandled_max` changes are in progress.
    /// Acknowledge each with [`BatchContext::done`] or [`BatchContext::checkpoint`].
    pub async fn next(&mut self) -> Option<Batch> {
        loop {
            let job = tokio::select! {
                biased;
                () = self.tenure.fence.leaving() => None,
                job = self.jobs.recv() => job,
            };
            match job? {
                Job::Work(portion) => return Some(self.batch(portion)),
                Job::Idle => {}
            }
        }
    }

    fn batch(&self, portion: Portion) -> Batch {
        let Portion { changes, tickets, attempts_before, room: _, reads } = portion;
        let lsns = changes.first().and_then(Change::lsn);
        let lsns = lsns.zip(changes.last().and_then(Change::lsn));
        let (tenure, tickets) = (self.tenure.clone(), tickets.into());
        let (shared, at) = (self.shared.clone(), self.shared.runtime.elapsed());
        let bytes = changes.iter().map(|change| change.body().len()).sum();
        let delivery = Some(Arc::new(Delivery { shared, at, bytes }));
        let attempt = attempts_before + 1;
        let context = BatchContext { tenure, tickets, attempt, lsns, reads, delivery };
        Batch { changes: changes.into(), context }
    }
}

impl std::fmt::Debug for LeaseSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeaseSession({})", self.tenure.lease.lease)
    }
}

/// A type-erased runner.
pub(crate) trait AnyRunner: Send {
    fn run(
        &mut self,
        session: LeaseSession,
    ) -> Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + '_>>;
}

impl<R: LeaseRunner> AnyRunner for R {
    fn run(
        &mut self,
        session: LeaseSession,
    ) -> Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + '_>> {
        Box::pin(LeaseRunner::run(self, session))
    }
}

pub(crate) trait AnyRunnerFactory: Send + Sync {
    fn create(&self, lease: &LeaseContext) -> Box<dyn AnyRunner>;
}

impl<F: RunnerFactory> AnyRunnerFactory for F {
    fn create(&self, lease: &LeaseContext) -> Box<dyn AnyRunner> {
        Box::new(RunnerFactory::create(self, lease))
    }
}
