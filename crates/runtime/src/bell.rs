//! A bell that everybody who listens hears, in the order in which they began to wait.
//!
//! It carries no data: whoever hears it looks for himself. A watch channel would do, but wakes its
//! listeners in an order drawn by chance outside the seed, and one seed must be one history.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

/// See the head of this file. Clones are the same bell.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Moves only under the lock; who waits already may look at it without.
    rings: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_listener: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Bell {
    /// Wakes everybody who waits.
    pub fn ring(&self) {
        let waiting = {
            let mut state = self.0.state.lock();
            self.0.rings.fetch_add(1, Ordering::Release);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Hears every ring from now on.
    #[must_use]
    pub fn listen(&self) -> Listener {
        let mut state = self.0.state.lock();
        state.next_listener += 1;
        let heard = self.0.rings.load(Ordering::Acquire);
        Listener { bell: self.clone(), id: state.next_listener, heard, waiting: None }
    }
}

/// Hears the rings of a [`Bell`] since it was made.
#[derive(Debug)]
pub struct Listener {
    bell: Bell,
    id: u64,
    heard: u64,
    /// What the bell wakes for this one, until it rings.
    waiting: Option<Waker>,
}

impl Listener {
    /// Completes when the bell has rung since the last time this completed.
    pub async fn rang(&mut self) {
        poll_fn(|context| {
            // A connection asks at every step whether its server stops: that must not take a lock. As
            // long as the bell has not rung since, it has the waker it was given.
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
    use crate::{Bell, Simulation};
    use std::time::Duration;

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
            assert_eq!(quiet, None, "what was before is not heard");
            bell.ring();
            late.rang().await;
            early.rang().await;
            drop((early, late));
            assert!(bell.0.state.lock().waiting.is_empty(), "nobody is kept who does not listen");
        });
    }
}
