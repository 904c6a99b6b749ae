//! One host's work on one lease: the state its handlers, reader and writer share.

use super::fence::Fence;
use super::held::HeldLease;
use super::shared::Shared;
use super::watch::Progress;
use crate::checkpoint::{Checkpoint, Pace};
use crate::event::Event;
use crate::handler::{CheckpointError, CloseReason, LeaseContext};
use crate::lag::{Lag, Look};
use crate::position::Position;
use crate::watermark::{Ticket, Watermark};
use headwater_model::Lsn;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How many requests may wait for the writer, which answers all waiting ones with one write (group commit).
const REQUESTS_MAX: usize = 64;

/// The shared state of one session; see the module documentation.
pub(crate) struct Tenure {
    pub(crate) lease: LeaseContext,
    pub(crate) fence: Fence,
    pub(crate) watermark: Mutex<Watermark>,
    pub(crate) pace: Mutex<Pace>,
    /// The highest position that may be stored: what was reached, unless handlers decide.
    allowed: Mutex<Option<Position>>,
    requests: mpsc::Sender<WriteRequest>,
    pub(crate) progress: Mutex<Progress>,
    /// The end of the feed according to its latest answer.
    feed_end: Mutex<FeedEnd>,
    /// Since when a handler has run without yielding its thread, in microseconds, at least 1; zero if none does.
    inside: AtomicU64,
    told_blocked: AtomicBool,
    /// The error of the last handler call, if it failed.
    failing: Mutex<Option<String>>,
}

/// What an answer of the feed says about the lag.
#[derive(Clone, Copy, Debug, Default)]
struct FeedEnd {
    newest: Option<Lsn>,
    /// No changes followed it.
    is_end: bool,
}

pub(crate) enum WriteRequest {
    /// Store the handled position.
    Store(oneshot::Sender<Result<(), CheckpointError>>),
    /// Stop the writer and return the lease.
    Finish(oneshot::Sender<HeldLease>),
}

impl Tenure {
    pub(crate) fn new(
        lease: LeaseContext,
        fence: Fence,
        watermark: Watermark,
        pace: Pace,
    ) -> (Arc<Tenure>, mpsc::Receiver<WriteRequest>) {
        let (requests, waiting) = mpsc::channel(REQUESTS_MAX);
        let (watermark, pace) = (Mutex::new(watermark), Mutex::new(pace));
        let allowed = Mutex::new(lease.from.clone());
        let tenure = Tenure {
            lease,
            fence,
            watermark,
            pace,
            allowed,
            requests,
            progress: Mutex::default(),
            feed_end: Mutex::default(),
            inside: AtomicU64::new(0),
            told_blocked: AtomicBool::new(false),
            failing: Mutex::default(),
        };
        (Arc::new(tenure), waiting)
    }

    /// Records that a handler is being polled. Returns false if another lane is recorded already.
    pub(crate) fn enter(&self, now: Duration) -> bool {
        let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX).max(1);
        let entered = self.inside.compare_exchange(0, micros, Ordering::SeqCst, Ordering::SeqCst);
        entered.is_ok()
    }

    /// Records that the handler yielded its thread.
    pub(crate) fn give_way(&self) {
        self.inside.store(0, Ordering::SeqCst);
        self.told_blocked.store(false, Ordering::SeqCst);
    }

    /// How long a handler has run without yielding.
    pub(crate) fn blocked_for(&self, now: Duration) -> Option<Duration> {
        let since = self.inside.load(Ordering::SeqCst);
        (since > 0).then(|| now.saturating_sub(Duration::from_micros(since)))
    }

    /// Records that the blocked handler was reported. Returns true the first time.
    pub(crate) fn note_blocked(&self) -> bool {
        !self.told_blocked.swap(true, Ordering::SeqCst)
    }

    /// Records the error of the last handler call, or its success.
    pub(crate) fn set_failing(&self, error: Option<&str>) {
        *self.failing.lock() = error.map(str::to_owned);
    }

    /// Returns the error of the last handler call, if it failed.
    pub(crate) fn failing(&self) -> Option<String> {
        self.failing.lock().clone()
    }

    /// Records what an answer of the feed said about its end.
    pub(crate) fn note_feed_end(&self, newest: Option<Lsn>, is_end: bool) {
        *self.feed_end.lock() = FeedEnd { newest, is_end };
    }

    /// Returns how far behind the lease is at this time of the service, as far as is known.
    pub(crate) fn lag(&self, now_seconds: u64) -> Lag {
        let FeedEnd { newest, is_end } = *self.feed_end.lock();
        let watermark = self.watermark.lock();
        if let Some((next, next_at)) = watermark.first_unhandled() {
            let now = Some(now_seconds);
            return Lag::of(&Look { newest, next, next_at, waiting: true, now });
        }
        let reached = watermark.reached().and_then(Position::lsn);
        let left = newest.zip(reached).map(|(newest, at)| newest.get().saturating_sub(at.get()));
        match is_end || left == Some(0) {
            true => Lag::of(&Look::default()),
            // More changes exist but were not read yet, so their age is unknown.
            false => Lag { transactions: left, time: None },
        }
    }

    /// Returns the lag that was reported last.
    pub(crate) fn known_lag(&self) -> Option<Lag> {
        self.progress.lock().lag()
    }

    /// Allows storing everything that has been reached.
    pub(crate) fn allow_reached(&self) {
        let reached = self.watermark.lock().reached().cloned();
        let mut allowed = self.allowed.lock();
        *allowed = match (allowed.take(), reached) {
            (Some(before), Some(reached)) => Some(reached.or_later(&before)),
            (before, reached) => reached.or(before),
        };
    }

    /// Returns the position that may be stored.
    pub(crate) fn storable(&self, policy: Checkpoint) -> Option<Position> {
        if policy != Checkpoint::Manual {
            self.allow_reached();
        }
        self.allowed.lock().clone()
    }

    /// Counts changes as handled, and stores the position if a checkpoint is due.
    pub(crate) async fn done(&self, tickets: &[Ticket], bytes: usize) {
        self.mark(tickets);
        self.store_if_due(tickets.len(), bytes).await;
    }

    /// Counts changes as handled. Returns how many of them were not yet counted.
    pub(crate) fn mark(&self, tickets: &[Ticket]) -> usize {
        self.watermark.lock().done(tickets)
    }

    /// Stores the position if these handled changes make a checkpoint due.
    pub(crate) async fn store_if_due(&self, changes: usize, bytes: usize) {
        let now = self.fence.now();
        let due = self.pace.lock().handled(changes, bytes, now);
        if due {
            // A failure ends the fence, which every task checks.
            let _ = self.store().await;
        }
    }

    /// Stores the handled position and waits for the confirmation.
    pub(crate) async fn store(&self) -> Result<(), CheckpointError> {
        let (answer, stored) = oneshot::channel();
        let sent = self.requests.send(WriteRequest::Store(answer)).await;
        sent.map_err(|_| CheckpointError::LeaseLost)?;
        stored.await.unwrap_or(Err(CheckpointError::LeaseLost))
    }

    /// Stops the writer and returns the lease; `None` if the writer has already stopped.
    pub(crate) async fn finish(&self) -> Option<HeldLease> {
        let (answer, held) = oneshot::channel();
        self.requests.send(WriteRequest::Finish(answer)).await.ok()?;
        held.await.ok()
    }
}

/// The single task that writes a lease: checkpoints and renewals. Waiting requests share one write.
pub(crate) async fn writer(
    shared: Arc<Shared>,
    tenure: Arc<Tenure>,
    mut held: HeldLease,
    mut requests: mpsc::Receiver<WriteRequest>,
) {
    let renew = shared.options.renew_interval;
    let mut written_at = held.sent;
    loop {
        // Where a heartbeat keeps leases alive, an idle position is still stored from time to time, so that
        // it does not become too old to read from.
        let due = if shared.options.is_native() { renew * 20 } else { renew };
        let wait = (written_at + due).saturating_sub(shared.runtime.elapsed());
        let first = tokio::select! {
            biased;
            () = tenure.fence.ended() => None,
            request = requests.recv() => match request {
                Some(request) => Some(vec![request]),
                None => return,
            },
            () = shared.runtime.sleep(wait) => Some(Vec::new()),
        };
        let Some(mut waiting) = first else {
            return refuse_all(requests, held).await;
        };
        while let Ok(request) = requests.try_recv() {
            waiting.push(request);
        }
        let mut finish = None;
        let mut answers = Vec::new();
        for request in waiting {
            match request {
                WriteRequest::Store(answer) => answers.push(answer),
                WriteRequest::Finish(answer) => finish = Some(answer),
            }
        }
        let is_renewal = answers.is_empty() && finish.is_none();
        if !answers.is_empty() || is_renewal {
            let position = tenure.storable(shared.options.checkpoint);
            let moved = position.is_some() && position != held.lease.position;
            let needed = moved || !shared.options.is_native();
            // A renewal counts from when it was sent, so the next one is due from then as well.
            written_at = shared.runtime.elapsed();
            let outcome = match needed {
                true => {
                    held.write(&shared, &tenure.fence, |lease| {
                        step(&shared, lease, position.as_ref())
                    })
                    .await
                }
                false => Ok(()),
            };
            match outcome {
                Ok(()) => {
                    tenure.pace.lock().stored(shared.runtime.elapsed());
                    if moved {
                        let lease = tenure.lease.lease.clone();
                        let position = held.lease.position.clone();
                        shared.tell(Event::Checkpointed { lease, position });
                    }
                    tell_all(answers, Ok(()));
                }
                Err(reason) => {
                    tenure.fence.end(reason);
                    tell_all(answers, Err(CheckpointError::LeaseLost));
                    if let Some(finish) = finish {
                        drop(finish.send(held));
                        return;
                    }
                    return refuse_all(requests, held).await;
                }
            }
        }
        if let Some(finish) = finish {
            drop(finish.send(held));
            return;
        }
    }
}

/// Answers requests. A receiver may be gone because its handler was dropped.
fn tell_all(
    answers: Vec<oneshot::Sender<Result<(), CheckpointError>>>,
    outcome: Result<(), CheckpointError>,
) {
    for answer in answers {
        let _ = answer.send(outcome);
    }
}

fn step(
    shared: &Shared,
    lease: &crate::lease::Lease,
    position: Option<&Position>,
) -> crate::lease::Lease {
    let _ = shared;
    #[cfg(test)]
    if shared.sabotaged(crate::proof::Sabotage::PositionsGoBack)
        && let Some(lsn) = position.and_then(Position::lsn)
        && lsn.get() > 3
    {
        let mut next = lease.checkpointed(None);
        next.position = Some(Position::after(headwater_model::Lsn::new(lsn.get() - 3)));
        return next;
    }
    lease.checkpointed(position)
}

/// After the lease was lost: refuses every store request, and returns the lease to the caller of `finish`.
async fn refuse_all(mut requests: mpsc::Receiver<WriteRequest>, held: HeldLease) {
    let mut held = Some(held);
    while let Some(request) = requests.recv().await {
        match request {
            WriteRequest::Store(answer) => tell_all(vec![answer], Err(CheckpointError::LeaseLost)),
            WriteRequest::Finish(answer) => {
                if let Some(held) = held.take() {
                    drop(answer.send(held));
                }
                return;
            }
        }
    }
}

/// Returns why the fence ended, for messages.
pub(crate) fn end_of(fence: &Fence) -> CloseReason {
    fence.reason().unwrap_or(CloseReason::LeaseExpired)
}
