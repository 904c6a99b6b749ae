//! Whether the result of the current task is still wanted.
//!
//! A task that computes without an await does not notice that its caller has stopped waiting. Such a task
//! asks its [`Waiter`] from time to time. The waiter is part of the task, so nothing has to be passed through
//! the layers between the one who waits and the loop that computes.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

tokio::task_local! {
    static WAITER: Waiter;
}

/// Whoever waits for a task that was started with [`Runtime::run`](crate::Runtime::run).
#[derive(Clone, Debug, Default)]
pub struct Waiter(Arc<AtomicBool>);

impl Waiter {
    /// The one who waits for the current task. A task that was not started with
    /// [`Runtime::run`](crate::Runtime::run) has one that never leaves.
    #[must_use]
    pub fn current() -> Waiter {
        WAITER.try_with(Clone::clone).unwrap_or_default()
    }

    /// Whether the result is no longer wanted.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Marks the waiter as gone when it is dropped.
pub(crate) struct Waiting(Waiter);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// A task with a waiter, who is there until the guard is dropped.
pub(crate) fn waited_for<T>(
    task: impl Future<Output = T> + Send + 'static,
) -> (impl Future<Output = T> + Send + 'static, Waiting) {
    let waiter = Waiter::default();
    (WAITER.scope(waiter.clone(), task), Waiting(waiter))
}

#[cfg(test)]
mod tests {
    use super::Waiter;
    use crate::Runtime;
    use std::time::Duration;

    #[test]
    fn a_task_that_never_awaits_learns_that_its_waiter_is_gone() {
        let threads = Runtime::threads("test-waiter", 1).unwrap();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (told, telling) = std::sync::mpsc::channel();
        let clock = threads.clone();
        tokio.block_on(async {
            let busy = threads.run("test", async move {
                let waiter = Waiter::current();
                while !waiter.is_gone() && clock.elapsed() < Duration::from_secs(60) {}
                told.send(waiter.is_gone()).unwrap();
            });
            assert!(Runtime::system().timeout(Duration::from_millis(10), busy).await.is_none());
        });
        assert_eq!(telling.recv(), Ok(true));
        assert!(!Waiter::current().is_gone(), "outside of a task somebody always waits");
    }
}
