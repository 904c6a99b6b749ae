//! A condition variable for async tasks: wakes all listeners, in the order in which they were created.
//!
//! Carries no data; woken listeners re-check the state. A Tokio watch channel would do, but its wake-up order
//! is random and does not come from the seed, and one seed must give one history.

use crate::Runtime;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

/// How many listeners [`Bell::ring_spread`] wakes together: a few hundred microseconds of work for their threads.
const SPREAD_GROUP: usize = 32;
/// The pause between two groups of listeners.
const SPREAD_PAUSE: Duration = Duration::from_millis(1);

/// Wakes all of its [`Listener`]s at once. Clones share the listeners.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// How often the bell was rung. Changes only under the lock; a registered listener reads it without.
    rings: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_listener: u64,
    waiting: BTreeMap<u64, Waker>,
    /// Listeners of past rings that a task wakes group by group.
    spread: VecDeque<Waker>,
    is_spreading: bool,
}

impl Bell {
    /// Wakes all listeners at once.
    pub fn ring(&self) {
        let waiting = {
            let mut state = self.0.state.lock();
            self.0.rings.fetch_add(1, Ordering::Release);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Wakes all listeners, in groups with a pause between them if there are many.
    ///
    /// Thousands of listeners woken at once would delay every other task of their threads.
    pub fn ring_spread(&self, runtime: &Runtime) {
        let first = {
            let mut state = self.0.state.lock();
            self.0.rings.fetch_add(1, Ordering::Release);
            let waiting = std::mem::take(&mut state.waiting);
            if !state.is_spreading && waiting.len() <= SPREAD_GROUP {
                drop(state);
                return waiting.into_values().for_each(Waker::wake);
            }
            state.spread.extend(waiting.into_values());
            if std::mem::replace(&mut state.is_spreading, true) {
                return;
            }
            state.next_group()
        };
        first.into_iter().for_each(Waker::wake);
        let (mut rest, clock) = (Spread { bell: self.clone(), is_over: false }, runtime.clone());
        runtime.spawn("wake listeners", async move {
            while !rest.is_over {
                clock.sleep(SPREAD_PAUSE).await;
                rest.wake_group();
            }
        });
    }

    /// Returns a listener for all later rings.
    #[must_use]
    pub fn listen(&self) -> Listener {
        let mut state = self.0.state.lock();
        state.next_listener += 1;
        let heard = self.0.rings.load(Ordering::Acquire);
        Listener { bell: self.clone(), id: state.next_listener, heard, waiting: None }
    }
}

impl State {
    fn next_group(&mut self) -> Vec<Waker> {
        let count = self.spread.len().min(SPREAD_GROUP);
        self.spread.drain(..count).collect()
    }
}

/// Wakes the remaining listeners group by group, and all of them when it is dropped.
struct Spread {
    bell: Bell,
    is_over: bool,
}

impl Spread {
    fn wake_group(&mut self) {
        let group = {
            let mut state = self.bell.0.state.lock();
            let group = state.next_group();
            state.is_spreading = !group.is_empty();
            group
        };
        self.is_over = group.is_empty();
        group.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Spread {
    fn drop(&mut self) {
        while !self.is_over {
            self.wake_group();
        }
    }
}

/// Waits for the rings of a [`Bell`].
#[derive(Debug)]
pub struct Listener {
    bell: Bell,
    id: u64,
    heard: u64,
    /// The waker registered at the bell, until it rings.
    waiting: Option<Waker>,
}

impl Listener {
    /// Completes when the bell has rung since the last time this completed.
    pub async fn rang(&mut self) {
        poll_fn(|context| {
            // Every connection polls this at every step, so the common case takes no lock: until the bell
            // rings, it still holds the waker registered here.
            let shared = &self.bell.0;
            let is_known = |waker: &Waker| waker.will_wake(context.waker());
            if self.waiting.as_ref().is_some_and(is_known)
                && shared.rings.load(Ordering::Acquire) == self.heard
            {
                return Poll::Pending;
            }
            let mut state = shared.state.lock();
            let rings = shared.rings.load(Ordering::Acquire);
            if rings != self.heard {
                self.heard = rings;
                self.waiting = None;
                return Poll::Ready(());
            }
            state.waiting.insert(self.id, context.waker().clone());
            self.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.bell.0.state.lock().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;

    #[test]
    fn a_ring_is_heard_by_all_also_before_they_wait() {
        let simulation = Simulation::new(5);
        let runtime = simulation.node().runtime();
        simulation.run(async move {
            let bell = Bell::default();
            let mut early = bell.listen();
            bell.ring();
            early.rang().await;
            let mut late = bell.listen();
            let quiet = runtime.timeout(Duration::from_secs(1), late.rang()).await;
            assert_eq!(quiet, None, "earlier rings are not heard");
            bell.ring();
            late.rang().await;
            early.rang().await;
            drop((early, late));
            assert!(bell.0.state.lock().waiting.is_empty(), "dropped listeners are removed");
        });
    }

    /// Starts listeners that each record when they wake, then calls `rings`. Returns the number of listeners
    /// that woke at each time.
    fn heard_after(
        listeners: usize,
        rings: impl FnOnce(&Bell, &Runtime) + Send + 'static,
    ) -> BTreeMap<Duration, usize> {
        let simulation = Simulation::new(7);
        let runtime = simulation.node().runtime();
        simulation.run(async move {
            let bell = Bell::default();
            let heard = Arc::new(Mutex::new(BTreeMap::new()));
            for _ in 0..listeners {
                let (mut listener, clock, heard) = (bell.listen(), runtime.clone(), heard.clone());
                runtime.spawn("listener", async move {
                    listener.rang().await;
                    *heard.lock().entry(clock.elapsed()).or_insert(0) += 1;
                });
            }
            runtime.sleep(Duration::from_millis(5)).await;
            rings(&bell, &runtime);
            runtime.sleep(Duration::from_secs(1)).await;
            heard.lock().clone()
        })
    }

    #[test]
    fn thousands_of_listeners_are_woken_in_groups_and_every_one_is() {
        let heard = heard_after(1_000, |bell, runtime| bell.ring_spread(runtime));
        assert_eq!(heard.values().sum::<usize>(), 1_000);
        assert!(heard.values().all(|count| *count <= SPREAD_GROUP), "{heard:?}");
        assert_eq!(heard.len(), 1_000usize.div_ceil(SPREAD_GROUP));
    }

    #[test]
    fn a_few_listeners_are_woken_at_once() {
        let heard = heard_after(SPREAD_GROUP, |bell, runtime| bell.ring_spread(runtime));
        assert_eq!(heard.into_values().collect::<Vec<_>>(), [SPREAD_GROUP]);
    }

    #[test]
    fn rings_while_listeners_are_being_woken_lose_none_of_them() {
        let heard = heard_after(300, |bell, runtime| {
            let (late, clock) = (bell.clone(), runtime.clone());
            bell.ring_spread(runtime);
            runtime.spawn("ringer", async move {
                for _ in 0..20 {
                    clock.sleep(SPREAD_PAUSE / 2).await;
                    late.ring_spread(&clock);
                }
            });
        });
        assert_eq!(heard.values().sum::<usize>(), 300);
        assert!(heard.values().all(|count| *count <= SPREAD_GROUP), "{heard:?}");
    }
}
