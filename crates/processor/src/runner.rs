//! Working on a lease in a way of one's own.
//!
//! A [`Handler`](crate::Handler) is given one batch after the other. A [`LeaseRunner`] asks for them, as many as
//! it likes before the first is handled, and says of each when it is: the order of work, what happens at once
//! and what a failure means are its own business. Everything else stays as it is. The host reads ahead, keeps
//! the lease, stores how far everything was handled without a hole, and stops the runner when the lease is lost.

use crate::failure::HandlerError;
use crate::handler::{Batch, BatchContext, Delivery, LeaseContext};
use crate::host::{Job, Portion, Shared, Tenure};
use crate::source::Change;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Code that works on one lease (`IPartitionProcessor`).
pub trait LeaseRunner: Send + 'static {
    /// Works until [`LeaseSession::next`] has nothing more, which is when the lease is to be left: what is
    /// under way may be finished then, within the host's `drain_timeout`. It is dropped at its next `await`
    /// when the lease is lost. After an error, or when it returns before that, the lease is let go of, and
    /// whatever was not counted as handled comes again where it is taken next.
    fn run(
        &mut self,
        session: LeaseSession,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Makes a runner for every lease that is taken (`IPartitionProcessorFactory`).
pub trait RunnerFactory: Send + Sync + 'static {
    /// What it makes.
    type Runner: LeaseRunner;

    /// A runner for this lease.
    fn create(&self, lease: &LeaseContext) -> Self::Runner;
}

/// A closure that makes runners is a factory.
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

/// A lease as its runner sees it: where batches come from.
pub struct LeaseSession {
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) jobs: mpsc::Receiver<Job>,
    pub(crate) shared: Arc<Shared>,
}

impl LeaseSession {
    /// The lease.
    #[must_use]
    pub fn lease(&self) -> &LeaseContext {
        &self.tenure.lease
    }

    /// The next batch, as soon as there is one; nothing when the lease is to be left. Batches come in order,
    /// also while earlier ones are not handled, until `unhandled_max` changes are under way. Of each one its
    /// context is told when it is handled: [`BatchContext::done`] or [`BatchContext::checkpoint`].
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

/// A runner whose type is not known any more.
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
