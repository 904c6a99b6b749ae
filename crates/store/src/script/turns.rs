//! Whose turn it is: a few scripts at a time in all, one at a time for a partition key.
//!
//! Scripts on the same key would only make each other start over. They wait for each other before they
//! take one of the few places, so that a busy key does not keep the others out.

use headwater_model::ContainerRid;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Scripts that run at a time. Each may occupy a thread and all the memory a script may take.
const RUNNING_MAX: usize = 8;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// See the head of this file.
pub(crate) struct Turns {
    places: Arc<Semaphore>,
    /// Keys somebody has a turn on, or waits for.
    keys: Mutex<HashMap<Vec<u8>, Lock>>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { places: Arc::new(Semaphore::new(RUNNING_MAX)), keys: Mutex::default() }
    }
}

/// A turn, or a place in the queue for one. Given up when dropped.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    name: Vec<u8>,
    lock: Lock,
    held: Option<(OwnedMutexGuard<()>, Option<OwnedSemaphorePermit>)>,
}

impl Turns {
    /// Waits for a turn on a partition key.
    pub(crate) async fn wait(self: &Arc<Self>, container: ContainerRid, epk: &[u8]) -> Turn {
        let mut name = container.as_u64().to_be_bytes().to_vec();
        name.extend_from_slice(epk);
        let lock = self.keys.lock().entry(name.clone()).or_default().clone();
        // Made before the wait: whoever gives up waiting is taken off the list too.
        let mut turn = Turn { turns: self.clone(), name, lock: lock.clone(), held: None };
        let guard = lock.lock_owned().await;
        turn.held = Some((guard, self.place().await));
        turn
    }

    /// Waits for one of the places.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes the semaphore.
        self.places.clone().acquire_owned().await.ok()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.held = None;
        let mut keys = self.turns.keys.lock();
        // Ours and that of the list: nobody else waits.
        if Arc::strong_count(&self.lock) == 2 {
            keys.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_forgotten_when_nobody_has_or_wants_a_turn_on_it() {
        let turns = Arc::new(Turns::default());
        let container = ContainerRid::new(1, 1);
        let first = turns.wait(container, b"a").await;
        let other = turns.wait(container, b"b").await;
        {
            let mut second = Box::pin(turns.wait(container, b"a"));
            // Polled once, so that it waits; then given up.
            tokio::select! {
                biased;
                _ = &mut second => panic!("two turns on one key"),
                () = std::future::ready(()) => {}
            }
        }
        assert_eq!(turns.keys.lock().len(), 2);
        drop(first);
        assert_eq!(turns.keys.lock().len(), 1);
        drop(other);
        assert_eq!(turns.keys.lock().len(), 0);
        assert_eq!(turns.places.available_permits(), RUNNING_MAX);
    }
}
