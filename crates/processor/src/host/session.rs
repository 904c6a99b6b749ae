//! A session: work on one lease, from its acquisition to its end.
//!
//! ```text
//!   fetch ──pages──► session ──jobs──► lane, lane, …      each with its own handler
//!                       │                 │
//!                       │             checkpoints
//!                       ▼                 ▼
//!                  release, split ◄──── writer             the only task that writes the lease
//! ```

use super::dispatch::{Dispatch, Stop};
use super::fence::{Deadline, Fence};
use super::fetch::FetchEnd;
use super::held::HeldLease;
use super::lane::{Job, LaneFailure, catch_panic, lane};
use super::runner::run;
use super::shared::{Shared, Workers};
use super::split;
use super::tenure::{Tenure, end_of, writer};
use crate::checkpoint::Pace;
use crate::event::Event;
use crate::expiry::deadline;
use crate::failure::Backoff;
use crate::handler::{AnyHandler, CloseReason, LeaseContext};
use crate::lease::{Claim, DocumentKey, Lease, LeaseState, Start};
use crate::position::Position;
use crate::source::ReadRequest;
use crate::watermark::Watermark;
use headwater_model::KeyRange;
use headwater_runtime::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How many batches may be queued for a handler.
const JOBS_WAITING: usize = 1;
/// How long to avoid a lease after its handler could not be opened or its feed not be read.
const AVOID: Duration = Duration::from_secs(15);
/// How often the feed is asked for the position of `Now`.
const START_ATTEMPTS: u32 = 6;

/// A lease that was just acquired.
pub(crate) struct AcquiredLease {
    pub(crate) lease: Lease,
    pub(crate) range: KeyRange,
    pub(crate) etag: String,
    /// When the write that acquired it was sent.
    pub(crate) sent: Duration,
    /// The deadline's lapse count before that write.
    pub(crate) lapses: u64,
}

/// The coordinator's handle on a running session.
pub(crate) struct SessionHandle {
    pub(crate) fence: Fence,
    /// The host that should acquire the lease next.
    pub(crate) successor: Arc<Mutex<Option<String>>>,
    pub(crate) epoch: u64,
    /// The lease's document.
    pub(crate) key: DocumentKey,
    /// The lease's keys.
    pub(crate) range: KeyRange,
}

/// How a session ended.
#[derive(Debug)]
pub(crate) struct SessionEnd {
    pub(crate) token: String,
    pub(crate) reason: CloseReason,
    /// Whether everything was stored and the lease was released.
    pub(crate) orderly: bool,
    /// How long this host should not acquire the lease.
    pub(crate) avoid: Option<Duration>,
    /// The last position, in case the document is gone.
    pub(crate) known: Option<RangeProgress>,
}

/// The position of a range when work on it ended.
#[derive(Clone, Debug)]
pub(crate) struct RangeProgress {
    pub(crate) range: KeyRange,
    pub(crate) position: Position,
    pub(crate) epoch: u64,
}

/// Starts a session on a lease; sends its result to `ended`.
pub(crate) fn start(
    shared: &Arc<Shared>,
    taken: AcquiredLease,
    ended: mpsc::UnboundedSender<SessionEnd>,
) -> SessionHandle {
    // With native leases the host's heartbeat renews all of them; otherwise each lease is renewed separately.
    let until = match shared.options.is_native() {
        true => shared.deadline.clone(),
        false => Deadline::default(),
    };
    let lapses = match shared.options.is_native() {
        true => taken.lapses,
        false => {
            // Counts from before the write was sent, so a late answer yields an expired deadline.
            until.extend(deadline(taken.sent, shared.options.expiration), taken.sent);
            until.lapses()
        }
    };
    let fence = Fence::new(shared.runtime.clone(), shared.woke.clone(), until, lapses);
    #[cfg(test)]
    let fence = match shared.sabotaged(crate::proof::Sabotage::IgnoresDeadlines) {
        true => fence.ignoring_deadlines(),
        false => fence,
    };
    let successor = Arc::new(Mutex::new(None));
    let epoch = taken.lease.extra.epoch;
    let (key, range) = (taken.lease.key.clone(), taken.range.clone());
    let handle =
        SessionHandle { fence: fence.clone(), successor: successor.clone(), epoch, key, range };
    let shared = shared.clone();
    shared.runtime.clone().spawn("lease", async move {
        let token = taken.lease.token.clone();
        let session = Session { shared: shared.clone(), fence, successor };
        let mut end = session.run(taken).await;
        end.token = token;
        let (lease, reason) = (end.token.clone(), end.reason.clone());
        shared.tell(Event::Closed { lease, reason });
        // The receiver is gone if the host was dropped without a stop.
        let _ = ended.send(end);
        shared.nudge.ring();
    });
    handle
}

/// A lane or runner that starts when it is given its queue.
type Worker = Box<dyn FnOnce(mpsc::Receiver<Job>) -> BoxFuture<Option<LaneFailure>> + Send>;

struct Session {
    shared: Arc<Shared>,
    fence: Fence,
    successor: Arc<Mutex<Option<String>>>,
}

impl Session {
    async fn run(&self, taken: AcquiredLease) -> SessionEnd {
        let claim = Claim {
            host: self.shared.me.clone(),
            epoch: taken.lease.extra.epoch,
            generation: taken.lease.extra.generation,
        };
        let attempts_before = taken.lease.extra.attempts;
        let mut held = HeldLease { lease: taken.lease, etag: taken.etag, claim, sent: taken.sent };
        let from = match self.start_position(&mut held, &taken.range).await {
            Ok(from) => from,
            Err(reason) => {
                self.fence.end(reason.clone());
                return session_end(reason, false, Some(AVOID), None);
            }
        };
        let lease = LeaseContext {
            lease: held.lease.token.clone(),
            range: taken.range.clone(),
            epoch: held.lease.extra.epoch,
            host: self.shared.me.clone(),
            from: held.lease.position.clone(),
        };
        let (token, epoch) = (lease.lease.clone(), lease.epoch);
        self.shared.tell(Event::Acquired { lease: token, epoch, from: lease.from.clone() });
        let handlers = match self.open(&lease).await {
            Ok(handlers) => handlers,
            Err(_) if self.fence.is_ended() => {
                return session_end(end_of(&self.fence), false, None, None);
            }
            Err(error) => {
                let (lease, attempt) = (lease.lease, 1);
                self.shared.tell(Event::HandlerFailed { lease, attempt, error });
                let orderly = self.release(&mut held, LeaseState::Running, None).await.is_ok();
                return session_end(CloseReason::HandlerError, orderly, Some(AVOID), None);
            }
        };
        let sub_page = self.shared.source.capabilities().any_lsn;
        let watermark = Watermark::new(held.lease.position.clone(), sub_page);
        let pace = Pace::new(self.shared.options.checkpoint, self.shared.runtime.elapsed());
        let (tenure, requests) = Tenure::new(lease, self.fence.clone(), watermark, pace);
        self.shared.look_after(&tenure);
        let writing = writer(self.shared.clone(), tenure.clone(), held, requests);
        self.shared.runtime.spawn("lease writer", writing);
        self.work(&tenure, handlers, from, attempts_before).await
    }

    /// Returns where to begin. If a lease without a position should begin now, the position is stored before
    /// anything is read. No change is then missed if this host vanishes before its first checkpoint.
    async fn start_position(
        &self,
        held: &mut HeldLease,
        range: &KeyRange,
    ) -> Result<Start, CloseReason> {
        if let Some(position) = &held.lease.position {
            return Ok(Start::Position(position.clone()));
        }
        let start = held.lease.extra.start.clone();
        let start = start.unwrap_or_else(|| self.shared.options.start.clone());
        if start != Start::Now {
            return Ok(start);
        }
        let request = ReadRequest {
            container: Some(self.shared.identity.container.rid.clone()),
            range: range.clone(),
            from: Start::Now,
            mode: self.shared.options.mode,
            items_max: Some(1),
            wait: Duration::ZERO,
        };
        let mut position = None;
        for attempt in 1..=START_ATTEMPTS {
            let read = self.shared.source.read(request.clone());
            let patience = self.shared.options.feed_timeout.min(self.fence.time_left());
            if let Some(Ok(page)) = self.shared.runtime.timeout(patience, read).await {
                position = Some(page.position);
                break;
            }
            self.shared.runtime.sleep(Backoff::default().after(attempt)).await;
        }
        let position = position.ok_or(CloseReason::FeedUnreachable)?;
        held.write(&self.shared, &self.fence, |lease| lease.checkpointed(Some(&position))).await?;
        Ok(Start::Position(position))
    }

    /// Opens the handlers on the runtime they will run on.
    async fn open(&self, lease: &LeaseContext) -> Result<Vec<Box<dyn AnyHandler>>, String> {
        let (opened, opening) = oneshot::channel();
        let (shared, lease) = (self.shared.clone(), lease.clone());
        self.shared.handlers.spawn("open", async move {
            // The receiver is gone: the lease was lost in the meantime.
            if let Err(Ok(handlers)) = opened.send(open_all(&shared, &lease).await) {
                close_all(handlers, &lease, CloseReason::LeaseLost).await;
            }
        });
        tokio::select! {
            biased;
            () = self.fence.ended() => Err("the lease was lost".to_owned()),
            opened = opening => opened.unwrap_or_else(|_| Err("the host ended".to_owned())),
        }
    }

    async fn work(
        &self,
        tenure: &Arc<Tenure>,
        handlers: Vec<Box<dyn AnyHandler>>,
        from: Start,
        attempts_before: u32,
    ) -> SessionEnd {
        let (gave_up, mut giving_up) = mpsc::channel::<()>(1);
        let (mut lanes, mut ends) = (Vec::new(), Vec::new());
        for work in self.workers(tenure, handlers) {
            let (jobs, waiting) = mpsc::channel(JOBS_WAITING);
            let (done, end) = oneshot::channel();
            let (work, gave_up) = (work(waiting), gave_up.clone());
            self.shared.handlers.spawn("lane", async move {
                let outcome = work.await;
                if outcome.is_some() {
                    let _ = gave_up.try_send(());
                }
                let _ = done.send(outcome);
            });
            lanes.push(jobs);
            ends.push(end);
        }
        let (shared, fence) = (&self.shared, &self.fence);
        let mut dispatch = Dispatch::new(shared, fence, tenure, lanes, attempts_before);
        let stop = dispatch.run(from, &mut giving_up).await;
        drop(dispatch);
        self.fence.leave(match &stop {
            Stop::Leaving => end_of(&self.fence),
            Stop::LaneFailed => CloseReason::Halted,
            Stop::Split(_) => CloseReason::RangeGone,
            Stop::Fetch(FetchEnd::RangeGone) => CloseReason::RangeGone,
            Stop::Fetch(FetchEnd::FeedGone(_)) => CloseReason::FeedGone,
            Stop::Fetch(FetchEnd::PositionLost(_)) => CloseReason::Halted,
            Stop::Fetch(FetchEnd::Unreachable) => CloseReason::FeedUnreachable,
        });
        let gave_up = self.wait_for_lanes(ends).await;
        self.finish(tenure, stop, gave_up).await
    }

    /// Returns the lanes or the runner of the lease, each waiting for its queue.
    fn workers(&self, tenure: &Arc<Tenure>, handlers: Vec<Box<dyn AnyHandler>>) -> Vec<Worker> {
        let mut workers: Vec<Worker> = Vec::new();
        if let Workers::Runners(factory) = &self.shared.workers {
            let (shared, tenure) = (self.shared.clone(), tenure.clone());
            let runner = factory.create(&tenure.lease);
            workers.push(Box::new(move |jobs| Box::pin(run(shared, tenure, runner, jobs))));
        }
        for handler in handlers {
            let (shared, tenure) = (self.shared.clone(), tenure.clone());
            workers.push(Box::new(move |jobs| Box::pin(lane(shared, tenure, handler, jobs))));
        }
        workers
    }

    /// Waits until every handler has finished and is closed; drops those that take too long.
    async fn wait_for_lanes(
        &self,
        ends: Vec<oneshot::Receiver<Option<LaneFailure>>>,
    ) -> Option<LaneFailure> {
        let mut gave_up = None;
        let patience = match self.fence.reason() {
            Some(CloseReason::Handover) => self.shared.options.handover_timeout,
            _ => self.shared.options.drain_timeout,
        };
        let until = self.shared.runtime.elapsed() + patience;
        for mut end in ends {
            let left = until.saturating_sub(self.shared.runtime.elapsed());
            let outcome = match self.shared.runtime.timeout(left, &mut end).await {
                Some(outcome) => outcome,
                None => {
                    let reason = end_of(&self.fence);
                    self.fence.end(reason);
                    end.await
                }
            };
            gave_up = gave_up.or(outcome.ok().flatten());
        }
        gave_up
    }

    async fn finish(
        &self,
        tenure: &Tenure,
        stop: Stop,
        gave_up: Option<LaneFailure>,
    ) -> SessionEnd {
        let token = tenure.lease.lease.clone();
        let Some(mut held) = tenure.finish().await else {
            return session_end(end_of(&self.fence), false, None, None);
        };
        let known = held.lease.position.clone().map(|position| RangeProgress {
            range: tenure.lease.range.clone(),
            position,
            epoch: tenure.lease.epoch,
        });
        if self.fence.is_ended()
            && !matches!(self.fence.reason(), Some(CloseReason::Shutdown | CloseReason::Handover))
        {
            return session_end(end_of(&self.fence), false, None, known);
        }
        #[cfg_attr(not(test), allow(unused_mut))]
        let mut position = tenure.storable(self.shared.options.checkpoint);
        #[cfg(test)]
        if self.shared.sabotaged(crate::proof::Sabotage::LeavesWithoutStoring) {
            position = None;
        }
        let position = position.as_ref();
        let outcome = match (gave_up, stop) {
            (Some(LaneFailure::Halt(why)), _)
            | (None, Stop::Fetch(FetchEnd::PositionLost(why))) => {
                self.shared.tell(Event::Halted { lease: token, why });
                (CloseReason::Halted, self.release(&mut held, LeaseState::Halted, position).await)
            }
            (Some(LaneFailure::StopHost(why)), _) => {
                self.shared.fail(super::Fatal::Handler(why));
                let released = self.release(&mut held, LeaseState::Running, position).await;
                (CloseReason::HandlerError, released)
            }
            (Some(LaneFailure::LetGo), _) => {
                let released = self.release(&mut held, LeaseState::Running, position).await;
                return session_end(
                    CloseReason::HandlerError,
                    released.is_ok(),
                    Some(AVOID),
                    known,
                );
            }
            (None, Stop::Split(successors)) => {
                #[cfg(test)]
                let position =
                    match self.shared.sabotaged(crate::proof::Sabotage::SplitsAtWhatWasRead) {
                        true => successors.read.as_ref(),
                        false => position,
                    };
                let split = split::replace(&self.shared, &self.fence, held, position, &successors);
                (CloseReason::RangeGone, split.await)
            }
            (None, Stop::Fetch(FetchEnd::FeedGone(why))) => {
                self.shared.fail(super::Fatal::FeedGone(why));
                (
                    CloseReason::FeedGone,
                    self.release(&mut held, LeaseState::Running, position).await,
                )
            }
            (None, Stop::Fetch(FetchEnd::RangeGone | FetchEnd::Unreachable)) => {
                let released = self.release(&mut held, LeaseState::Running, position).await;
                return session_end(
                    CloseReason::FeedUnreachable,
                    released.is_ok(),
                    Some(AVOID * 2),
                    known,
                );
            }
            (None, Stop::Leaving | Stop::LaneFailed) => {
                let state = held.lease.extra.state;
                (end_of(&self.fence), self.release(&mut held, state, position).await)
            }
        };
        match outcome {
            (reason, Ok(())) => session_end(reason, true, None, known),
            (_, Err(reason)) => session_end(reason, false, None, known),
        }
    }

    /// Releases the lease and stores what was handled, in one write.
    async fn release(
        &self,
        held: &mut HeldLease,
        state: LeaseState,
        position: Option<&Position>,
    ) -> Result<(), CloseReason> {
        let successor = self.successor.lock().clone();
        // Even a session cancelled at its deadline releases the lease, as long as the lease is still its own.
        let fence = self.fence.reopened();
        held.write(&self.shared, &fence, |lease| {
            lease.checkpointed(position).released(successor.clone(), state)
        })
        .await
    }
}

async fn open_all(
    shared: &Shared,
    lease: &LeaseContext,
) -> Result<Vec<Box<dyn AnyHandler>>, String> {
    let mut handlers = Vec::new();
    // A runner opens its own resources.
    let Workers::Handlers(factory) = &shared.workers else { return Ok(handlers) };
    for _ in 0..shared.options.lanes {
        let mut handler = factory.create(lease);
        let opened = match catch_panic(handler.open(lease)).await {
            Ok(opened) => opened.map_err(|error| error.to_string()),
            Err(panicked) => Err(panicked),
        };
        if let Err(error) = opened {
            close_all(handlers, lease, CloseReason::HandlerError).await;
            return Err(error);
        }
        handlers.push(handler);
    }
    Ok(handlers)
}

async fn close_all(handlers: Vec<Box<dyn AnyHandler>>, lease: &LeaseContext, reason: CloseReason) {
    for mut handler in handlers {
        let _ = catch_panic(handler.close(lease, reason.clone())).await;
    }
}

fn session_end(
    reason: CloseReason,
    orderly: bool,
    avoid: Option<Duration>,
    known: Option<RangeProgress>,
) -> SessionEnd {
    SessionEnd { token: String::new(), reason, orderly, avoid, known }
}

/// Returns the generation that a lease acquired now belongs to.
pub(crate) fn generation(shared: &Shared) -> u64 {
    shared.generation.load(Ordering::SeqCst)
}
