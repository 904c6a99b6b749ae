//! What users write: code that is given changes.
//!
//! A [`Handler`] works on one lease, one batch at a time. It is opened before the first batch and closed
//! after the last, exactly once, and never called in between by two at once or after it was closed. A
//! closure will do where nothing needs to be opened.

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

/// Code that handles changes (`IChangeFeedObserver`).
pub trait Handler: Send + 'static {
    /// Work on a lease begins. After an error the lease is let go of, and tried again later.
    fn open(
        &mut self,
        lease: &LeaseContext,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = lease;
        async { Ok(()) }
    }

    /// Handles changes. They come again until this succeeds, or a policy decides otherwise. It is
    /// dropped at its next `await` when the lease is lost.
    fn process(&mut self, batch: Batch) -> impl Future<Output = Result<Ack, HandlerError>> + Send;

    /// Everything was handled, and there is nothing new.
    fn idle(&mut self, lease: &LeaseContext) -> impl Future<Output = ()> + Send {
        let _ = lease;
        async {}
    }

    /// Work on the lease ended.
    fn close(
        &mut self,
        lease: &LeaseContext,
        reason: CloseReason,
    ) -> impl Future<Output = ()> + Send {
        let _ = (lease, reason);
        async {}
    }
}

/// Makes a handler for every lease that is taken (`IChangeFeedObserverFactory`).
pub trait HandlerFactory: Send + Sync + 'static {
    /// What it makes.
    type Handler: Handler;

    /// A handler for this lease; with lanes, one for each.
    fn create(&self, lease: &LeaseContext) -> Self::Handler;
}

/// A closure is a factory of handlers that need no opening.
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

/// A handler made of a closure.
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

/// How much of a batch was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// All of it.
    Done,
    /// Later: the handler keeps the batch's context and calls [`BatchContext::checkpoint`] when it is.
    Deferred,
    /// The first so many changes; the rest comes again.
    Through(usize),
}

/// Why work on a lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The host stops.
    Shutdown,
    /// Another host is given the lease.
    Handover,
    /// Another host took the lease.
    LeaseLost,
    /// The lease could not be renewed in time, so that others may have it.
    LeaseExpired,
    /// The range was split, or leases were merged; others go on.
    RangeGone,
    /// The monitored container is gone.
    FeedGone,
    /// The feed could not be read for long; perhaps another host can.
    FeedUnreachable,
    /// The lease container is gone.
    LeaseStoreGone,
    /// The handler failed, and the policy is to stop.
    HandlerError,
    /// Work on the lease stopped for everybody.
    Halted,
    /// An operator paused the unit or set its positions anew.
    Reset,
}

impl CloseReason {
    /// The name the originals have for it (`ChangeFeedObserverCloseReason`).
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
    /// Which lease: what the originals call the lease token.
    pub lease: String,
    /// The keys it is about.
    pub range: KeyRange,
    /// Grows with every change of hands. A sink that remembers it can refuse late effects of an owner
    /// that was frozen.
    pub epoch: u64,
    /// Who works on it.
    pub host: HostId,
    /// Where work on it began.
    pub from: Option<Position>,
}

/// Changes to handle, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The changes. Never empty.
    pub changes: Arc<[Change]>,
    /// What is known about them, and how to store a position.
    pub context: BatchContext,
}

impl Batch {
    /// The changes as a type of the user's, if all of them are.
    ///
    /// # Errors
    /// Names the changes that are not; a policy can put just those away.
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

/// What is known about a batch.
#[derive(Clone)]
pub struct BatchContext {
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) tickets: Arc<[Ticket]>,
    pub(crate) attempt: u32,
    pub(crate) lsns: Option<(Lsn, Lsn)>,
    pub(crate) reads: Arc<[Diagnostics]>,
    /// Where a runner asked for the batch; handlers are watched by whoever calls them.
    pub(crate) delivery: Option<Arc<Delivery>>,
}

/// A batch that a runner was given.
pub(crate) struct Delivery {
    pub(crate) shared: Arc<Shared>,
    pub(crate) at: Duration,
    pub(crate) bytes: usize,
}

/// How one page of the feed was read (`Diagnostics` of the originals' contexts).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnostics {
    /// From where.
    pub from: Start,
    /// Where the feed goes on behind it.
    pub position: Position,
    /// How many changes came.
    pub changes: usize,
    /// How long the answer took, waiting for a change included.
    pub took: Duration,
    /// How many attempts failed before.
    pub failures: u32,
    /// What it cost, in request units.
    pub charge: f64,
    /// The newest transaction of the range then, if the answer said so.
    pub newest: Option<Lsn>,
    /// What the service calls the request; its operators can find it by that.
    pub activity: Option<String>,
}

/// Why a position was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Somebody else has the lease, or may have it: what was done since will be done again there.
    #[error("the lease is not ours any more; what was handled since will be handled again")]
    LeaseLost,
}

impl BatchContext {
    /// The lease.
    #[must_use]
    pub fn lease(&self) -> &LeaseContext {
        &self.tenure.lease
    }

    /// How often these changes are tried, this time included, also by hosts that vanished meanwhile.
    #[must_use]
    pub fn delivery_attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether they may have been delivered before.
    #[must_use]
    pub fn is_redelivery(&self) -> bool {
        self.attempt > 1
    }

    /// The first and the last transaction in it, if they are known.
    #[must_use]
    pub fn lsn_range(&self) -> Option<(Lsn, Lsn)> {
        self.lsns
    }

    /// How the feed was read for these changes: one page, or several where changes are gathered.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostics] {
        &self.reads
    }

    /// Whether the host was asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.tenure.fence.is_stopping()
    }

    /// How far behind the lease is, as of about a second ago; nothing before that is known.
    #[must_use]
    pub fn lag(&self) -> Option<Lag> {
        self.tenure.known_lag()
    }

    /// How long from now the handler may go on; another host may have the lease after that. Grows while
    /// the lease is renewed.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.tenure.fence.time_left()
    }

    /// Completes when the lease is lost, or about to be let go of: what is not done soon is dropped.
    pub async fn cancelled(&self) {
        self.tenure.fence.leaving().await;
    }

    /// Counts the batch as handled; the position is stored when the options say so. May be called later,
    /// from elsewhere, and in any order.
    pub async fn done(&self) {
        self.mark(&self.tickets);
        let bytes = self.delivery.as_ref().map_or(0, |delivery| delivery.bytes);
        self.tenure.store_if_due(self.tickets.len(), bytes).await;
    }

    /// Counts changes as handled, and says so where nobody else does.
    fn mark(&self, tickets: &[Ticket]) {
        let changes = self.tenure.mark(tickets);
        let Some(delivery) = self.delivery.as_ref().filter(|_| changes > 0) else { return };
        let took = delivery.shared.runtime.elapsed().saturating_sub(delivery.at);
        let lease = self.tenure.lease.lease.clone();
        delivery.shared.tell(Event::Handled { lease, changes, took });
    }

    /// Counts the batch as handled, and stores how far everything has been handled without a hole. May
    /// be called later, from elsewhere, and in any order.
    ///
    /// # Errors
    /// When the lease is not ours any more.
    pub async fn checkpoint(&self) -> Result<(), CheckpointError> {
        self.checkpoint_through(self.tickets.len()).await
    }

    /// The same for the first `count` changes of the batch.
    ///
    /// # Errors
    /// When the lease is not ours any more.
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

/// A handler whose type is not known any more.
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
