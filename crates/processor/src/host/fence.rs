//! Whether a host may still work on a lease.
//!
//! Three things end it: an order to leave, news that the lease is lost, and the passing of a deadline that
//! only a confirmed renewal moves. The deadline lies before the moment at which others may act, so a host
//! that cannot reach the lease store stops by itself, without anybody telling it.

use crate::handler::CloseReason;
use headwater_runtime::{Bell, Runtime};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Until when one may work, on the host's own clock. Clones are the same deadline.
///
/// A deadline that has passed may be moved again, by a host that was frozen and then heard from the store;
/// but somebody else may have acted in between, so whatever was under way before must not go on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadline(Arc<Times>);

#[derive(Debug, Default)]
struct Times {
    until: AtomicU64,
    lapses: AtomicU64,
}

impl Deadline {
    /// Never moves back. `now` is when the confirmation was heard.
    pub(crate) fn extend(&self, until: Duration, now: Duration) {
        let micros = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        if now >= self.get() {
            self.0.lapses.fetch_add(1, Ordering::SeqCst);
        }
        self.0.until.fetch_max(micros, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_micros(self.0.until.load(Ordering::SeqCst))
    }

    /// How often it passed before it was moved.
    pub(crate) fn lapses(&self) -> u64 {
        self.0.lapses.load(Ordering::SeqCst)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Open,
    Leaving(CloseReason),
    Ended(CloseReason),
}

/// See the head of this file. Clones are the same fence.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    state: Arc<Mutex<State>>,
    bell: Bell,
    deadline: Deadline,
    /// Rung when more time has passed than timers show.
    woke: Bell,
    /// How often the deadline had passed when work began.
    lapses: u64,
    runtime: Runtime,
    obeys_deadline: bool,
}

impl Fence {
    pub(crate) fn new(runtime: Runtime, woke: Bell, deadline: Deadline, lapses: u64) -> Fence {
        let (state, bell) = (Arc::new(Mutex::new(State::Open)), Bell::default());
        Fence { state, bell, deadline, woke, lapses, runtime, obeys_deadline: true }
    }

    /// An open fence with the same deadline: for the last write of whoever was told to stop.
    pub(crate) fn reopened(&self) -> Fence {
        let (runtime, woke) = (self.runtime.clone(), self.woke.clone());
        let fence = Fence::new(runtime, woke, self.deadline.clone(), self.lapses);
        Fence { obeys_deadline: self.obeys_deadline, ..fence }
    }

    #[cfg(test)]
    pub(crate) fn ignoring_deadlines(self) -> Fence {
        Fence { obeys_deadline: false, ..self }
    }

    pub(crate) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// The time, on the clock of the deadline.
    pub(crate) fn now(&self) -> Duration {
        self.runtime.elapsed()
    }

    /// How long one may still work.
    pub(crate) fn time_left(&self) -> Duration {
        if matches!(*self.state.lock(), State::Ended(_)) {
            return Duration::ZERO;
        }
        if !self.obeys_deadline {
            return Duration::from_secs(3600);
        }
        if self.deadline.lapses() != self.lapses {
            return Duration::ZERO;
        }
        self.deadline.get().saturating_sub(self.runtime.elapsed())
    }

    /// Asks for an orderly end: what runs may finish, nothing new begins.
    pub(crate) fn leave(&self, reason: CloseReason) {
        let mut state = self.state.lock();
        if *state == State::Open {
            *state = State::Leaving(reason);
            drop(state);
            self.bell.ring();
        }
    }

    /// Ends it now: what runs is dropped.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Ended(_)) {
            *state = State::Ended(reason);
            drop(state);
            self.bell.ring();
        }
    }

    /// Why it was asked to end, if it was.
    pub(crate) fn reason(&self) -> Option<CloseReason> {
        match &*self.state.lock() {
            State::Open => None,
            State::Leaving(reason) | State::Ended(reason) => Some(reason.clone()),
        }
    }

    /// Whether the host was asked to stop, and that is why work ends.
    pub(crate) fn is_stopping(&self) -> bool {
        self.reason() == Some(CloseReason::Shutdown)
    }

    /// Whether nothing new may begin. Looks at the deadline as well.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_ended() || *self.state.lock() != State::Open
    }

    /// Whether everything must stop. Looks at the deadline as well.
    pub(crate) fn is_ended(&self) -> bool {
        if self.time_left().is_zero() {
            self.end(CloseReason::LeaseExpired);
            return true;
        }
        false
    }

    /// Completes when nothing new may begin.
    pub(crate) async fn leaving(&self) {
        self.until(Fence::is_leaving).await;
    }

    /// Completes when everything must stop.
    pub(crate) async fn ended(&self) {
        self.until(Fence::is_ended).await;
    }

    async fn until(&self, reached: impl Fn(&Fence) -> bool) {
        let (mut bell, mut woke) = (self.bell.listen(), self.woke.listen());
        while !reached(self) {
            let left = self.time_left().max(Duration::from_micros(1));
            tokio::select! {
                biased;
                () = bell.rang() => {}
                () = woke.rang() => {}
                () = self.runtime.sleep(left) => {}
            }
        }
    }
}
