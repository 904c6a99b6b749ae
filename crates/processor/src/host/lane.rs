//! A lane: one handler that processes one batch after the other.
//!
//! Each lane has its own keys, so order per key is kept with any number of lanes. A lane never calls its handler
//! after the lease has ended.

use super::fetch::PagePermit;
use super::shared::Shared;
use super::tenure::{Tenure, end_of};
use super::watch::tell_blocked;
use crate::dead_letter::DeadLetter;
use crate::event::Event;
use crate::failure::{Action, Backoff, Failure, FailureKind, HandlerError};
use crate::handler::{
    Ack, AnyHandler, Batch, BatchContext, CloseReason, Diagnostics, LeaseContext,
};
use crate::source::Change;
use crate::watermark::Ticket;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Work sent to a lane.
pub(crate) enum Job {
    Work(Portion),
    Idle,
}

/// Changes to handle.
pub(crate) struct Portion {
    pub(crate) changes: Vec<Change>,
    pub(crate) tickets: Vec<Ticket>,
    /// How often hosts vanished while they worked on these changes.
    pub(crate) attempts_before: u32,
    /// The permit of their page, held until they are handled; none if they come from several pages.
    pub(crate) room: Option<PagePermit>,
    /// Diagnostics of the pages they came from.
    pub(crate) reads: Arc<[Diagnostics]>,
}

/// Why a lane gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LaneFailure {
    Halt(String),
    StopHost(String),
    /// Release the lease for another attempt, here or on another host.
    LetGo,
}

const STUCK_PAUSES: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };

/// Runs until the queue or the lease ends, then closes the handler.
pub(crate) async fn lane(
    shared: Arc<Shared>,
    tenure: Arc<Tenure>,
    mut handler: Box<dyn AnyHandler>,
    mut jobs: mpsc::Receiver<Job>,
) -> Option<LaneFailure> {
    let mut gave_up = None;
    loop {
        let job = tokio::select! {
            biased;
            () = tenure.fence.leaving() => None,
            job = jobs.recv() => job,
        };
        match job {
            Some(Job::Work(portion)) => {
                let mut worker = Worker { shared: &shared, tenure: &tenure, handler: &mut handler };
                if let Err(why) = worker.handle(portion).await {
                    gave_up = Some(why);
                    break;
                }
            }
            Some(Job::Idle) => {
                let idle = catch_panic(handler.idle(&tenure.lease));
                tokio::select! { biased; () = tenure.fence.ended() => {}, _ = idle => {} }
            }
            None => break,
        }
    }
    let reason = match &gave_up {
        Some(LaneFailure::Halt(_)) => CloseReason::Halted,
        Some(LaneFailure::StopHost(_) | LaneFailure::LetGo) => CloseReason::HandlerError,
        None => end_of(&tenure.fence),
    };
    if let Err(panicked) = catch_panic(handler.close(&tenure.lease, reason)).await {
        let lease = tenure.lease.lease.clone();
        shared.tell(Event::HandlerFailed { lease, attempt: 0, error: panicked });
    }
    gave_up
}

struct Worker<'a> {
    shared: &'a Shared,
    tenure: &'a Arc<Tenure>,
    handler: &'a mut Box<dyn AnyHandler>,
}

/// Changes that are tried together.
struct Piece {
    changes: Vec<Change>,
    tickets: Vec<Ticket>,
    attempt: u32,
    /// How many of the attempts were made by hosts that vanished.
    before: u32,
}

impl Piece {
    fn split_off(&mut self, at: usize) -> Piece {
        let (changes, tickets) = (self.changes.split_off(at), self.tickets.split_off(at));
        Piece { changes, tickets, attempt: self.attempt, before: self.before }
    }

    /// Resets the attempts for changes that have not been tried by themselves.
    fn reset_attempts(&mut self) {
        (self.attempt, self.before) = (1, 0);
    }

    /// Removes the changes at these indexes, which must be in ascending order.
    fn take(&mut self, places: &[usize]) -> Piece {
        let is_taken = |index: &usize| places.contains(index);
        let (attempt, before) = (self.attempt, self.before);
        let mut taken = Piece { attempt, before, ..empty() };
        let mut kept = Piece { attempt, before, ..empty() };
        let all = self.changes.drain(..).zip(self.tickets.drain(..));
        for (index, (change, ticket)) in all.enumerate() {
            let into = if is_taken(&index) { &mut taken } else { &mut kept };
            into.changes.push(change);
            into.tickets.push(ticket);
        }
        *self = kept;
        taken
    }
}

impl Worker<'_> {
    async fn handle(&mut self, portion: Portion) -> Result<(), LaneFailure> {
        let Portion { changes, tickets, attempts_before, room: _room, reads } = portion;
        let (attempt, before) = (attempts_before + 1, attempts_before);
        let mut stack = vec![Piece { changes, tickets, attempt, before }];
        while let Some(piece) = stack.pop() {
            if piece.changes.is_empty() {
                continue;
            }
            let began = self.shared.runtime.elapsed();
            // The lease ended: unhandled changes are delivered again by its next owner.
            let Some(outcome) = self.call(&piece, &reads).await else { return Ok(()) };
            self.tell(&piece, &outcome, began);
            match outcome {
                Ok(Ack::Done) => self.done(&piece.tickets, bytes(&piece.changes)).await,
                Ok(Ack::Deferred) => {}
                Ok(Ack::Through(count)) if count > 0 => {
                    let mut piece = piece;
                    let mut rest = piece.split_off(count.min(piece.changes.len()));
                    self.done(&piece.tickets, bytes(&piece.changes)).await;
                    rest.reset_attempts();
                    stack.push(rest);
                }
                Ok(Ack::Through(_)) => {
                    let nothing = HandlerError::new("the handler handled none of the changes");
                    self.failed(piece, nothing, &mut stack).await?;
                }
                Err(error) => self.failed(piece, error, &mut stack).await?,
            }
            if self.tenure.fence.is_leaving() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Calls the handler; `None` if the lease ended first.
    async fn call(
        &mut self,
        piece: &Piece,
        reads: &Arc<[Diagnostics]>,
    ) -> Option<Result<Ack, HandlerError>> {
        // Checked right before the call: the process may have been frozen since the last check.
        if self.tenure.fence.is_ended() {
            return None;
        }
        #[cfg(test)]
        if self.shared.sabotaged(crate::proof::Sabotage::StoresBeforeHandling) {
            self.done(&piece.tickets, 1).await;
        }
        let lsns = piece.changes.first().and_then(Change::lsn);
        let lsns = lsns.zip(piece.changes.last().and_then(Change::lsn));
        let context = BatchContext {
            tenure: self.tenure.clone(),
            tickets: piece.tickets.clone().into(),
            attempt: piece.attempt,
            lsns,
            reads: reads.clone(),
            delivery: None,
        };
        let batch = Batch { changes: piece.changes.clone().into(), context };
        let limit = self.shared.options.handler_timeout;
        let timer = self.shared.runtime.sleep(limit.unwrap_or(Duration::from_secs(1 << 32)));
        let LeaseContext { lease, epoch, .. } = &self.tenure.lease;
        let (changes, attempt) = (piece.changes.len(), piece.attempt);
        let work = TrackedCall {
            work: catch_panic(self.handler.process(batch)),
            span: tracing::info_span!("handle changes", lease, epoch, changes, attempt),
            shared: self.shared,
            tenure: self.tenure,
        };
        let outcome = tokio::select! {
            biased;
            () = self.tenure.fence.ended() => return None,
            outcome = work => outcome,
            () = timer => Ok(Err(HandlerError::of_kind(FailureKind::Timeout, "the handler took too long"))),
        };
        let panicked = |text| HandlerError::of_kind(FailureKind::Panic, text);
        Some(outcome.unwrap_or_else(|text| Err(panicked(text))))
    }

    /// Records the outcome, and reports the changes that a handler handled.
    fn tell(&self, piece: &Piece, outcome: &Result<Ack, HandlerError>, began: Duration) {
        self.tenure.set_failing(outcome.as_ref().err().map(ToString::to_string).as_deref());
        let changes = match outcome {
            Ok(Ack::Done | Ack::Deferred) => piece.changes.len(),
            Ok(Ack::Through(count)) => (*count).min(piece.changes.len()),
            Err(_) => return,
        };
        let took = self.shared.runtime.elapsed().saturating_sub(began);
        let lease = self.tenure.lease.lease.clone();
        self.shared.tell(Event::Handled { lease, changes, took });
    }

    /// Counts changes as handled, and stores the position if a checkpoint is due.
    async fn done(&mut self, tickets: &[Ticket], bytes: usize) {
        self.tenure.done(tickets, bytes).await;
    }

    async fn failed(
        &mut self,
        mut piece: Piece,
        error: HandlerError,
        stack: &mut Vec<Piece>,
    ) -> Result<(), LaneFailure> {
        let lease = self.tenure.lease.lease.clone();
        let (attempt, text) = (piece.attempt, error.to_string());
        self.shared.tell(Event::HandlerFailed { lease, attempt, error: text.clone() });
        #[cfg(test)]
        if self.shared.sabotaged(crate::proof::Sabotage::ForgetsFailures) {
            self.done(&piece.tickets, 1).await;
            return Ok(());
        }
        let failure = Failure {
            attempt,
            attempt_here: attempt.saturating_sub(piece.before),
            stopping: self.tenure.fence.is_stopping(),
            items: piece.changes.len(),
            error: &error,
        };
        let action = self.shared.options.failure.decide(&failure);
        // A handler that names the changes to blame has handled the others, unless it failed to decode them.
        let others_handled = error.kind() == FailureKind::Error && !error.blamed().is_empty();
        match action {
            Action::Retry { after } => {
                if others_handled {
                    let blamed = piece.take(error.blamed());
                    self.done(&piece.tickets, bytes(&piece.changes)).await;
                    piece = blamed;
                }
                piece.attempt = piece.attempt.saturating_add(1);
                stack.push(piece);
                self.pause(after).await;
            }
            Action::Bisect if piece.changes.len() > 1 => {
                piece.attempt = piece.attempt.saturating_add(1);
                let upper = piece.split_off(piece.changes.len() / 2);
                stack.push(upper);
                stack.push(piece);
            }
            Action::Bisect | Action::DeadLetter => {
                let blamed = match error.blamed() {
                    [] => std::mem::replace(&mut piece, empty()),
                    places => piece.take(places),
                };
                if !self.write_dead_letters(&blamed, &text).await? {
                    return Ok(());
                }
                self.done(&blamed.tickets, bytes(&blamed.changes)).await;
                if others_handled {
                    self.done(&piece.tickets, bytes(&piece.changes)).await;
                } else {
                    piece.reset_attempts();
                    stack.push(piece);
                }
            }
            Action::Skip => {
                let (lease, changes) = (self.tenure.lease.lease.clone(), piece.changes.len());
                self.shared.tell(Event::Skipped { lease, changes, error: text });
                self.done(&piece.tickets, bytes(&piece.changes)).await;
            }
            Action::HaltLease => return Err(LaneFailure::Halt(text)),
            Action::StopProcessor => return Err(LaneFailure::StopHost(text)),
        }
        Ok(())
    }

    async fn pause(&mut self, wait: Duration) {
        let pause = self.shared.runtime.sleep(wait);
        tokio::select! { biased; () = self.tenure.fence.leaving() => {}, () = pause => {} }
    }

    /// Writes changes to the dead letters, retrying until it succeeds. Returns false if the lease ended first.
    async fn write_dead_letters(
        &mut self,
        piece: &Piece,
        error: &str,
    ) -> Result<bool, LaneFailure> {
        let shared = self.shared;
        let Some(letters) = &shared.options.dead_letters else {
            return Err(LaneFailure::Halt(format!("no dead letters are configured: {error}")));
        };
        for change in &piece.changes {
            let letter = DeadLetter {
                processor: self.shared.options.processor_name.clone(),
                lease: self.tenure.lease.lease.clone(),
                epoch: self.tenure.lease.epoch,
                lsn: change.lsn().map(headwater_model::Lsn::get),
                attempts: piece.attempt,
                time: self.shared.runtime.unix_millis(),
                error: error.to_owned(),
                change: DeadLetter::raw(change),
            };
            let mut failures = 0;
            while let Err(refused) = letters.put(letter.clone()).await {
                failures += 1;
                tracing::warn!(refused, "cannot write a dead letter; retrying");
                self.pause(STUCK_PAUSES.after(failures)).await;
                if self.tenure.fence.is_leaving() {
                    return Ok(false);
                }
            }
            let lease = self.tenure.lease.lease.clone();
            self.shared.tell(Event::DeadLettered { lease, error: error.to_owned() });
        }
        Ok(true)
    }
}

fn empty() -> Piece {
    Piece { changes: Vec::new(), tickets: Vec::new(), attempt: 1, before: 0 }
}

fn bytes(changes: &[Change]) -> usize {
    changes.iter().map(|change| change.body().len()).sum()
}

/// A handler's future that records when it is polled and when it yields.
struct TrackedCall<'a> {
    work: CatchPanic<'a, Result<Ack, HandlerError>>,
    span: tracing::Span,
    shared: &'a Shared,
    tenure: &'a Tenure,
}

impl Future for TrackedCall<'_> {
    type Output = Result<Result<Ack, HandlerError>, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let first = self.tenure.enter(self.shared.runtime.elapsed());
        let TrackedCall { work, span, .. } = &mut *self;
        let polled = span.in_scope(|| Pin::new(work).poll(context));
        if first {
            // Checked here as well: while the thread was blocked, the watch task may have been blocked too.
            if let Some(since) = self.tenure.blocked_for(self.shared.runtime.elapsed()) {
                tell_blocked(self.shared, self.tenure, since);
            }
            self.tenure.give_way();
        }
        polled
    }
}

/// Wraps a handler's future; a panic becomes an error message.
pub(crate) fn catch_panic<'a, T>(
    work: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
) -> CatchPanic<'a, T> {
    CatchPanic(work)
}

pub(crate) struct CatchPanic<'a, T>(Pin<Box<dyn Future<Output = T> + Send + 'a>>);

impl<T> Future for CatchPanic<'_, T> {
    type Output = Result<T, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, String>> {
        let work = AssertUnwindSafe(|| self.0.as_mut().poll(context));
        match std::panic::catch_unwind(work) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_else(|| "no message".to_owned());
                Poll::Ready(Err(format!("the handler panicked: {text}")))
            }
        }
    }
}
