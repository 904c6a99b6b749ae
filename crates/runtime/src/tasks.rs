//! Structured concurrency: groups of tasks that end together.
//!
//! `shutdown` of a [`TaskGroup`] asks all of its tasks to stop and waits until they have. A task that ignores
//! the request blocks its owner visibly instead of running on unnoticed; no task is ever aborted.

use crate::{Bell, Runtime, TaskFailure};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Cancellation token: signals a task that its owner wants it to end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    requested: AtomicBool,
    bell: Bell,
}

impl Stop {
    /// Completes when the owner has asked the task to stop or has been dropped.
    pub async fn requested(&mut self) {
        let mut bell = self.0.bell.listen();
        while !self.is_requested() {
            bell.rang().await;
        }
    }

    /// Whether the owner has asked the task to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::SeqCst)
    }
}

/// The tasks started by one component.
#[derive(Debug)]
pub struct TaskGroup {
    runtime: Runtime,
    stop: Stop,
    /// Every running task holds a clone; the channel closes when the last one has ended.
    running: Mutex<Option<Arc<watch::Sender<()>>>>,
    ended: watch::Receiver<()>,
}

impl TaskGroup {
    /// An empty group that starts its tasks on `runtime`.
    #[must_use]
    pub fn new(runtime: Runtime) -> TaskGroup {
        let stop = Stop(Arc::default());
        let (running, ended) = watch::channel(());
        TaskGroup { runtime, stop, running: Mutex::new(Some(Arc::new(running))), ended }
    }

    /// Starts a task that ends soon after `Stop` is requested. Does nothing after `shutdown`.
    pub fn spawn<F>(&self, name: &'static str, task: impl FnOnce(Stop) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn_watched(name, task, |_| ());
    }

    /// Starts a task and calls `on_end` with its outcome. Does nothing after `shutdown`.
    pub fn spawn_watched<F>(
        &self,
        name: &'static str,
        task: impl FnOnce(Stop) -> F,
        on_end: impl FnOnce(Result<(), TaskFailure>) + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(guard) = self.running.lock().clone() else {
            return;
        };
        let on_end = move |ended| {
            on_end(ended);
            drop(guard);
        };
        self.runtime.spawn_watched(name, task(self.stop.clone()), on_end);
    }

    /// Asks every task to stop, without waiting: for owners that are being dropped.
    pub fn stop(&self) {
        self.stop.0.requested.store(true, Ordering::SeqCst);
        self.stop.0.bell.ring();
        drop(self.running.lock().take());
    }

    /// Asks every task to stop and waits until all have.
    pub async fn shutdown(&self) {
        self.stop();
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }
}

impl Drop for TaskGroup {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Simulation, TaskGroup};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn shutdown_waits_for_every_task() {
        let simulation = Simulation::new(3);
        let runtime = simulation.node().runtime();
        let ended = Arc::new(AtomicU32::new(0));
        let counted = ended.clone();
        simulation.run(async move {
            let group = TaskGroup::new(runtime.clone());
            for _ in 0..5 {
                let (runtime, ended) = (runtime.clone(), counted.clone());
                group.spawn("test", |mut stop| async move {
                    stop.requested().await;
                    runtime.sleep(std::time::Duration::from_millis(10)).await;
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            group.shutdown().await;
            assert_eq!(counted.load(Ordering::SeqCst), 5);
            group.spawn("late", |_| async { panic!("a closed group starts nothing") });
        });
        assert_eq!(ended.load(Ordering::SeqCst), 5);
    }
}
