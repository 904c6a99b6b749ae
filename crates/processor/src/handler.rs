//! Handlers: user code that processes changes.
//!
//! A [`Handler`] processes one lease, one batch at a time. It is opened exactly once before the first batch and
//! closed exactly once after the last. Its methods never run concurrently. A closure is enough if nothing needs
//! opening.

use crate::event::Event;
use crate::failure::{FailureKind, HandlerError};
use crate::host::{Shared, Tenure};
use crate::lag::Lag;
use crate::lease::{HostId, Start};
use crate::position::Position;
use crate::source::Change;
use crate::watermark::Ticket;
use headwater_model::{KeyRange, Lsn};
use serde::de::DeserializeOwned;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// User code that processes changes (`IChangeFeedObserver`).
pub trait Handler: Send + 'static {
    /// Called before the first batch of a lease. After an error the lease is released and retried later.
    fn open(
        &mut self,
        lease: &LeaseContext,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = lease;
        async { Ok(()) }
    }

    /// Processes a batch. The batch is delivered again until this succeeds or the failure policy decides otherwise.
    /// If the lease is lost, the future is dropped at its next `await`.
    fn process(&mut self, batch: Batch) -> impl Future<Output = Result<Ack, HandlerError>> + Send;

    /// Called when the feed has no new changes.
    fn idle(&mut self, lease: &LeaseContext) -> impl Future<Output = ()> + Send {
        let _ = lease;
        async {}
    }

    /// Called after the last batch of a lease.
    fn close(
        &mut self,
        lease: &LeaseContext,
        reason: CloseReason,
    ) -> impl Future<Output = ()> + Send {
        let _ = (lease, reason);
        async {}
    }
}

/// Creates a handler for every acquired lease (`IChangeFeedObserverFactory`).
pub trait HandlerFactory: Send + Sync + 'static {
    /// The handler type.
    type Handler: Handler;

    /// Creates a handler for this lease; with several lanes, one per lane.
    fn create(&self, lease: &LeaseContext) -> Self::Handler;
}

/// Implements the factory for closures, whose handlers need no opening.
impl<F, Work> HandlerFactory for F
where
    F: Fn(Batch) -> Work + Clone + Send + Sync + 'static,
    Work: Future<Output = Result<Ack, HandlerError>> + Send + 'static,
{
    type Handler = FromClosure<F>;

    fn create(&self, _: &LeaseContext) -> FromClosure<F> {
        FromClosure(self.clone())
    }
}

/// A handler that calls a closure.
pub struct FromClosure<F>(F);

impl<F, Work> Handler for FromClosure<F>
where
    F: Fn(Batch) -> Work + Send + Sync + 'static,
    Work: Future<Output = Result<Ack, HandlerError>> + Send + 'static,
{
    fn process(&mut self, batch: Batch) -> impl Future<Output = Result<Ack, HandlerError>> + Send {
        (self.0)(batch)
    }
}

/// A handler's acknowledgement: how much of a batch it handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// The whole batch.
    Done,
    /// Nothing yet: the handler keeps the batch's context and calls [`BatchContext::checkpoint`] later.
    Deferred,
    /// This many changes from the start; the rest is delivered again.
    Through(usize),
}

/// Why work on a lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The host stops.
    Shutdown,
    /// The lease is handed over to another host.
    Handover,
    /// Another host took the lease.
    LeaseLost,
    /// The lease could not be renewed in time, so that other hosts may own it.
    LeaseExpired,
    /// The range was split or merged; other leases continue.
    RangeGone,
    /// The monitored container is gone.
    FeedGone,
    /// The feed could not be read for a long time; another host may be able to.
    FeedUnreachable,
    /// The lease container is gone.
    LeaseStoreGone,
    /// The handler failed, and the lease was released or the host stopped.
    HandlerError,
    /// Work on the lease stopped for all hosts.
    Halted,
    /// An operator paused the unit or changed its positions.
    Reset,
}

impl CloseReason {
    /// Returns the name that the .NET library uses (`ChangeFeedObserverCloseReason`).
    #[must_use]
    pub fn legacy(&self) -> &'static str {
        match self {
            CloseReason::Shutdown | CloseReason::Handover => "Shutdown",
            CloseReason::LeaseLost | CloseReason::LeaseExpired => "LeaseLost",
            CloseReason::RangeGone => "LeaseGone",
            CloseReason::FeedGone => "ResourceGone",
            CloseReason::HandlerError => "ObserverError",
            _ => "Unknown",
        }
    }
}

/// A lease as its handler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseContext {
    /// The lease token.
    pub lease: String,
    /// Its keys.
    pub range: KeyRange,
    /// The fencing token: grows with every acquisition. A sink that stores it can refuse late writes of a
    /// previous owner.
    pub epoch: u64,
    /// The host that owns it.
    pub host: HostId,
    /// The position where work on it began.
    pub from: Option<Position>,
}

/// A batch of changes, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The changes. Never empty.
    pub changes: Arc<[Change]>,
    /// Metadata of the batch, and the means to acknowledge it.
    pub context: BatchContext,
}

impl Batch {
    /// Deserializes all changes.
    ///
    /// # Errors
    /// The error names the changes that do not match the type, so that a policy can dead-letter just those.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<Vec<T>, HandlerError> {
        let mut parsed = Vec::with_capacity(self.changes.len());
        let (mut blamed, mut first) = (Vec::new(), None);
        for (index, change) in self.changes.iter().enumerate() {
            match change.parse() {
                Ok(item) => parsed.push(item),
                Err(error) => {
                    blamed.push(index);
                    first.get_or_insert_with(|| {
                        format!("change {index} cannot be decoded: {error}")
                    });
                }
            }
        }
        match first {
            None => Ok(parsed),
            Some(message) => {
                Err(HandlerError::of_items(message, blamed).with_kind(FailureKind::Decode))
            }
        }
    }
}

/// Metadata of a batch, and the means to acknowledge it.
#[derive(Clone)]
pub struct BatchContext {
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) tickets: Arc<[Ticket]>,
    pub(crate) attempt: u32,
    pub(crate) lsns: Option<(Lsn, Lsn)>,
    pub(crate) reads: Arc<[Diagnostics]>,
    /// Set if a runner pulled the batch; for handlers, the lane reports the outcome.
    pub(crate) delivery: Option<Arc<Delivery>>,
}

/// Data for reporting a batch that was given to a runner.
pub(crate) struct Delivery {
    pub(crate) shared: Arc<Shared>,
    pub(crate) at: Duration,
    pub(crate) bytes: usize,
}

/// How one page of the feed was read (`Diagnostics` in the .NET and Java contexts).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnostics {
    /// Where the read began.
    pub from: Start,
    /// Where the feed continues after the page.
    pub position: Position,
    /// Number of changes.
    pub changes: usize,
    /// How long the answer took, including long polling.
    pub took: Duration,
    /// Number of failed attempts before.
    pub failures: u32,
    /// The request charge.
    pub charge: f64,
    /// The newest LSN of the range at that time, if the answer contained it.
    pub newest: Option<Lsn>,
    /// The activity id of the request, which the service's operators can look up.
    pub activity: Option<String>,
}

/// Errors of storing a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Another host owns the lease, or may own it. Unstored work will be repeated there.
    #[error(
        "this host lost the lease; changes handled since the last checkpoint will be delivered again"
    )]
    LeaseLost,
}

impl BatchContext {
    /// Returns the lease.
    #[must_use]
    pub fn lease(&self) -> &LeaseContext {
        &self.tenure.lease
    }

    /// Returns the number of this delivery attempt, counted from 1, including attempts of hosts that vanished.
    #[must_use]
    pub fn delivery_attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether the changes may have been delivered before.
    #[must_use]
    pub fn is_redelivery(&self) -> bool {
        self.attempt > 1
    }

    /// Returns the first and the last LSN of the batch, if known.
    #[must_use]
    pub fn lsn_range(&self) -> Option<(Lsn, Lsn)> {
        self.lsns
    }

    /// Returns how the pages of these changes were read: one page, or several if changes are gathered.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostics] {
        &self.reads
    }

    /// Whether the host is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.tenure.fence.is_stopping()
    }

    /// Returns the lag of the lease, at most about a second old; `None` until it is known.
    #[must_use]
    pub fn lag(&self) -> Option<Lag> {
        self.tenure.known_lag()
    }

    /// Returns how long the handler may still work. Another host may own the lease after that. Each renewal
    /// extends it.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.tenure.fence.time_left()
    }

    /// Completes when the lease is lost or about to be released: work that does not end soon is dropped.
    pub async fn cancelled(&self) {
        self.tenure.fence.leaving().await;
    }

    /// Acknowledges the batch; the position is stored when the checkpoint policy says so. May be called later,
    /// from another task, and in any order.
    pub async fn done(&self) {
        self.mark(&self.tickets);
        let bytes = self.delivery.as_ref().map_or(0, |delivery| delivery.bytes);
        self.tenure.store_if_due(self.tickets.len(), bytes).await;
    }

    /// Acknowledges changes, and reports them if a runner handled them.
    fn mark(&self, tickets: &[Ticket]) {
        let changes = self.tenure.mark(tickets);
        let Some(delivery) = self.delivery.as_ref().filter(|_| changes > 0) else { return };
        let took = delivery.shared.runtime.elapsed().saturating_sub(delivery.at);
        let lease = self.tenure.lease.lease.clone();
        delivery.shared.tell(Event::Handled { lease, changes, took });
    }

    /// Acknowledges the batch, and stores the contiguous handled position. May be called later, from another
    /// task, and in any order.
    ///
    /// # Errors
    /// Fails if this host lost the lease.
    pub async fn checkpoint(&self) -> Result<(), CheckpointError> {
        self.checkpoint_through(self.tickets.len()).await
    }

    /// Acknowledges the first `count` changes of the batch, and stores the contiguous handled position.
    ///
    /// # Errors
    /// Fails if this host lost the lease.
    pub async fn checkpoint_through(&self, count: usize) -> Result<(), CheckpointError> {
        let count = count.min(self.tickets.len());
        self.mark(&self.tickets[..count]);
        self.tenure.allow_reached();
        self.tenure.store().await
    }
}

impl std::fmt::Debug for BatchContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {} of {}", self.tickets.len(), self.attempt, self.tenure.lease.lease)
    }
}

type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A type-erased handler.
pub(crate) trait AnyHandler: Send {
    fn open<'a>(&'a mut self, lease: &'a LeaseContext) -> Work<'a, Result<(), HandlerError>>;
    fn process(&mut self, batch: Batch) -> Work<'_, Result<Ack, HandlerError>>;
    fn idle<'a>(&'a mut self, lease: &'a LeaseContext) -> Work<'a, ()>;
    fn close<'a>(&'a mut self, lease: &'a LeaseContext, reason: CloseReason) -> Work<'a, ()>;
}

impl<H: Handler> AnyHandler for H {
    fn open<'a>(&'a mut self, lease: &'a LeaseContext) -> Work<'a, Result<(), HandlerError>> {
        Box::pin(Handler::open(self, lease))
    }

    fn process(&mut self, batch: Batch) -> Work<'_, Result<Ack, HandlerError>> {
        Box::pin(Handler::process(self, batch))
    }

    fn idle<'a>(&'a mut self, lease: &'a LeaseContext) -> Work<'a, ()> {
        Box::pin(Handler::idle(self, lease))
    }

    fn close<'a>(&'a mut self, lease: &'a LeaseContext, reason: CloseReason) -> Work<'a, ()> {
        Box::pin(Handler::close(self, lease, reason))
    }
}

pub(crate) trait AnyFactory: Send + Sync {
    fn create(&self, lease: &LeaseContext) -> Box<dyn AnyHandler>;
}

impl<F: HandlerFactory> AnyFactory for F {
    fn create(&self, lease: &LeaseContext) -> Box<dyn AnyHandler> {
        Box::new(HandlerFactory::create(self, lease))
    }
}
