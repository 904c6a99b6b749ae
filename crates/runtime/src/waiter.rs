//! Cancellation of tasks that compute without an await.
//!
//! Such a task cannot be dropped in the middle when its caller stops waiting, so it checks its [`Waiter`] from
//! time to time. The waiter is task-local: no layer between the caller and the computing loop passes it on.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

tokio::task_local! {
    static WAITER: Waiter;
}

/// Shows whether the caller still waits for a task started with [`Runtime::run`](crate::Runtime::run).
#[derive(Clone, Debug, Default)]
pub struct Waiter(Arc<AtomicBool>);

impl Waiter {
    /// The waiter of the current task. Never gone for a task not started with
    /// [`Runtime::run`](crate::Runtime::run).
    #[must_use]
    pub fn current() -> Waiter {
        WAITER.try_with(Clone::clone).unwrap_or_default()
    }

    /// Whether the caller has stopped waiting for the result.
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

/// Gives a task a waiter, which is gone once the returned guard is dropped.
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
        assert!(!Waiter::current().is_gone(), "outside of a task the waiter is never gone");
    }
}
