//! Fencing: whether this host may still work on a lease.
//!
//! Three things end the permission: a request to leave, a lost lease, and a deadline that only a confirmed
//! renewal extends. The deadline lies before the moment other hosts may take the lease, so a host that cannot
//! reach the lease store stops without any message.

use crate::handler::CloseReason;
use headwater_runtime::{Bell, Runtime};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time until which a host may work, on its own clock. Clones share the deadline.
///
/// A deadline that has passed may be extended later, for example after the process was frozen. Another host may
/// have acted in between, so each lapse is counted and work that began before it must not continue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadline(Arc<Times>);

#[derive(Debug, Default)]
struct Times {
    until: AtomicU64,
    lapses: AtomicU64,
}

impl Deadline {
    /// Extends the deadline; never moves it back. `now` is when the confirmation arrived.
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

    /// How often the deadline passed before it was extended.
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

/// The permission to work on one lease; see the module documentation. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    state: Arc<Mutex<State>>,
    bell: Bell,
    deadline: Deadline,
    /// Notified when the host wakes from suspend, so that deadlines are checked again.
    woke: Bell,
    /// The lapse count of the deadline when work began.
    lapses: u64,
    runtime: Runtime,
    obeys_deadline: bool,
}

impl Fence {
    pub(crate) fn new(runtime: Runtime, woke: Bell, deadline: Deadline, lapses: u64) -> Fence {
        let (state, bell) = (Arc::new(Mutex::new(State::Open)), Bell::default());
        Fence { state, bell, deadline, woke, lapses, runtime, obeys_deadline: true }
    }

    /// Returns an open fence with the same deadline, for the last write after a stop.
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

    /// Returns the time on the deadline's clock.
    pub(crate) fn now(&self) -> Duration {
        self.runtime.elapsed()
    }

    /// Returns how long work may continue.
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

    /// Requests an orderly end: running work may finish, no new work starts.
    pub(crate) fn leave(&self, reason: CloseReason) {
        let mut state = self.state.lock();
        if *state == State::Open {
            *state = State::Leaving(reason);
            drop(state);
            self.bell.ring();
        }
    }

    /// Ends the permission now: running work is dropped.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Ended(_)) {
            *state = State::Ended(reason);
            drop(state);
            self.bell.ring();
        }
    }

    /// Returns why the lease is ending, if it is.
    pub(crate) fn reason(&self) -> Option<CloseReason> {
        match &*self.state.lock() {
            State::Open => None,
            State::Leaving(reason) | State::Ended(reason) => Some(reason.clone()),
        }
    }

    /// Whether work ends because the host is shutting down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.reason() == Some(CloseReason::Shutdown)
    }

    /// Whether no new work may start. Checks the deadline as well.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_ended() || *self.state.lock() != State::Open
    }

    /// Whether all work must stop. Checks the deadline as well.
    pub(crate) fn is_ended(&self) -> bool {
        if self.time_left().is_zero() {
            self.end(CloseReason::LeaseExpired);
            return true;
        }
        false
    }

    /// Completes when no new work may start.
    pub(crate) async fn leaving(&self) {
        self.until(Fence::is_leaving).await;
    }

    /// Completes when all work must stop.
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
