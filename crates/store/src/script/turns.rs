//! Admission control of scripts: a limited number at a time, and one at a time per partition key.
//!
//! Concurrent scripts on the same key would only invalidate each other. They wait for the key first and then for one
//! of the permits, so that a busy key does not block other keys.

use headwater_model::ContainerRid;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Maximum number of scripts that run at a time. Each occupies a thread and up to the memory limit of a script.
const RUNNING_MAX: usize = 8;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// The semaphore of running scripts and the locks of their partition keys.
pub(crate) struct Turns {
    places: Arc<Semaphore>,
    /// A lock for each key on which a script runs or waits.
    keys: Mutex<HashMap<Vec<u8>, Lock>>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { places: Arc::new(Semaphore::new(RUNNING_MAX)), keys: Mutex::default() }
    }
}

/// A guard that holds a turn or waits for one. Dropping it releases the turn or leaves the queue.
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
        // Created before the wait, so that a caller that is cancelled while it waits also cleans up.
        let mut turn = Turn { turns: self.clone(), name, lock: lock.clone(), held: None };
        let guard = lock.lock_owned().await;
        turn.held = Some((guard, self.place().await));
        turn
    }

    /// Waits for a permit to run a script.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // Always `Some`, because the semaphore is never closed.
        self.places.clone().acquire_owned().await.ok()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.held = None;
        let mut keys = self.turns.keys.lock();
        // Two references are left, this one and that of the map, so no other task waits.
        if Arc::strong_count(&self.lock) == 2 {
            keys.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_removed_when_no_script_runs_or_waits_on_it() {
        let turns = Arc::new(Turns::default());
        let container = ContainerRid::new(1, 1);
        let first = turns.wait(container, b"a").await;
        let other = turns.wait(container, b"b").await;
        {
            let mut second = Box::pin(turns.wait(container, b"a"));
            // Polled once, so that it waits; then dropped.
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
