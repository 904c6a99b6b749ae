//! Clock, randomness and tasks: everything a simulation must be able to replace, and nothing else.
//!
//! Code above this crate never reads the system clock, never uses a random number generator of its own and
//! never starts a task by itself. It holds a [`Runtime`]: either Tokio and the system clock, or a node of a
//! [`Simulation`] with one thread, one seed and a clock that advances only when no task is ready.
//!
//! ```
//! use headwater_runtime::Simulation;
//! use std::time::Duration;
//!
//! let simulation = Simulation::new(7);
//! let node = simulation.node();
//! let runtime = node.runtime();
//! simulation.run(async move {
//!     let before = runtime.elapsed();
//!     runtime.sleep(Duration::from_secs(3600)).await; // takes no time at all
//!     assert_eq!(runtime.elapsed() - before, Duration::from_secs(3600));
//! });
//! ```

mod bell;
mod failure;
mod random;
mod simulated;
mod system;
mod tasks;
mod waiter;

use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

pub use bell::{Bell, Listener};
pub use failure::TaskFailure;
pub use random::Random;
pub use simulated::{Node, Simulation};
pub use system::slow_read;
pub use tasks::{Stop, TaskGroup};
pub use waiter::Waiter;

/// A future that owns what it needs and may move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Clock, randomness and tasks behind a [`Runtime`]: the system, a thread pool or a simulated node.
trait Backend: Send + Sync + 'static {
    fn unix_millis(&self) -> u64;
    fn elapsed(&self) -> Duration;
    fn sleep(&self, duration: Duration) -> BoxFuture<()>;
    fn spawn(&self, name: &'static str, task: BoxFuture<()>);
    fn random(&self) -> u64;
    /// Whether a task that panics leaves the others running.
    fn survives_panics(&self) -> bool;
    /// Runs work that may block the thread for a while, and may wait for other tasks.
    fn blocking(&self, work: &mut dyn FnMut());
    /// Runs work that blocks the thread for a moment and waits for no other task.
    fn syncing(&self, work: &mut dyn FnMut());
    fn pause(&self, duration: Duration);
    fn thread_time(&self) -> ThreadTime;
}

/// CPU time used by one thread so far. Only values of the same thread can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    thread: u64,
    computed: Duration,
}

impl ThreadTime {
    /// CPU time used since an earlier value; `None` if that value belongs to another thread.
    #[must_use]
    pub fn since(self, earlier: ThreadTime) -> Option<Duration> {
        (self.thread == earlier.thread).then(|| self.computed.saturating_sub(earlier.computed))
    }
}

/// The clock, the randomness and the task executor of a component. Cheap to clone.
#[derive(Clone)]
pub struct Runtime(Arc<dyn Backend>);

impl Runtime {
    /// The system clock, the operating system's entropy, and the Tokio runtime this is called on.
    ///
    /// All tasks start on that Tokio runtime. If this is called outside of one, each task starts on the Tokio
    /// runtime of the thread that calls [`Runtime::spawn`].
    ///
    /// # Panics
    /// Later, in [`Runtime::spawn`] or [`Runtime::sleep`], when no Tokio runtime is running.
    #[must_use]
    pub fn system() -> Runtime {
        Runtime(Arc::new(system::System::new()))
    }

    /// The system clock with a pool of `count` threads for the tasks it starts: for work that may block its thread.
    ///
    /// When the last clone is dropped, waiting tasks are dropped. A blocked thread ends once its work returns.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn threads(name: &'static str, count: usize) -> std::io::Result<Runtime> {
        Ok(Runtime(Arc::new(system::Threads::new(name, count, || {})?)))
    }

    /// Like [`Runtime::threads`], at a lower priority: for long computations that must not delay other threads.
    ///
    /// Only Linux has priorities per thread; elsewhere the threads have the usual priority.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn background_threads(name: &'static str, count: usize) -> std::io::Result<Runtime> {
        Ok(Runtime(Arc::new(system::Threads::new(name, count, system::lower_priority)?)))
    }

    /// Wall clock, in milliseconds since 1970. May jump in either direction.
    #[must_use]
    pub fn unix_millis(&self) -> u64 {
        self.0.unix_millis()
    }

    /// Monotonic time since this runtime was made. Use it to measure durations.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Completes after `duration`.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        self.0.sleep(duration)
    }

    /// Waits for `future` at most `duration`; `None` on a timeout.
    pub async fn timeout<T>(
        &self,
        duration: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            value = future => Some(value),
            () = self.sleep(duration) => None,
        }
    }

    /// Starts a task without waiting for it; a panic is logged. Prefer a [`TaskGroup`], which also ends its tasks.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_watched(name, task, |_| ());
    }

    /// Starts a task and calls `on_end` with its outcome.
    pub fn spawn_watched(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
        on_end: impl FnOnce(Result<(), TaskFailure>) + Send + 'static,
    ) {
        let survives = self.0.survives_panics();
        let watched = async move { on_end(failure::watch(name, survives, task).await) };
        self.0.spawn(name, Box::pin(watched));
    }

    /// Runs a task within the current one. A panic is logged and returned.
    ///
    /// # Errors
    /// When the task panicked.
    pub async fn watch<T>(
        &self,
        name: &'static str,
        task: impl Future<Output = T>,
    ) -> Result<T, TaskFailure> {
        failure::watch(name, self.0.survives_panics(), task).await
    }

    /// Runs a task on this runtime's executor and waits for its result, from any thread.
    ///
    /// The task ends when its caller stops waiting: at its next await, or earlier if it checks its [`Waiter`].
    ///
    /// # Errors
    /// When the task panicked, or the runtime ended first.
    pub async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, TaskFailure> {
        let (mut sender, receiver) = oneshot::channel();
        let (task, _waiting) = waiter::waited_for(task);
        let survives = self.0.survives_panics();
        self.0.spawn(
            name,
            Box::pin(async move {
                tokio::select! {
                    biased;
                    ended = failure::watch(name, survives, task) => drop(sender.send(ended)),
                    () = sender.closed() => {}
                }
            }),
        );
        let ended = || TaskFailure { name, message: "its runtime has ended".to_owned() };
        receiver.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Runs `here` on this thread and, in parallel if possible, `there` on this runtime's executor.
    ///
    /// If no executor thread has begun `there` when `here` is done, `there` runs on this thread. The second
    /// result is `None` when `there` panicked on the executor, or when the runtime ended.
    pub async fn beside<A, B: Send + 'static>(
        &self,
        name: &'static str,
        here: impl FnOnce() -> A,
        there: impl FnOnce() -> B + Send + 'static,
    ) -> (A, Option<B>) {
        let (sender, receiver) = oneshot::channel();
        let waiting = Arc::new(Mutex::new(Some(there)));
        let taken = waiting.clone();
        self.spawn(name, async move {
            let work = taken.lock().take();
            if let Some(work) = work {
                let _ = sender.send(work());
            }
        });
        let first = here();
        let work = waiting.lock().take();
        let second = match work {
            Some(work) => Some(work()),
            None => receiver.await.ok(),
        };
        (first, second)
    }

    /// A random number.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.0.random()
    }

    /// A random number of 128 bits.
    #[must_use]
    pub fn random_u128(&self) -> u128 {
        (u128::from(self.0.random()) << 64) | u128::from(self.0.random())
    }

    /// Runs work that may block the thread without starving other tasks.
    pub fn blocking<T>(&self, work: impl FnOnce() -> T) -> T {
        once(work, |work| self.0.blocking(work))
    }

    /// Runs work that waits for the disk and for no other task.
    ///
    /// Cheaper than [`Runtime::blocking`]: the thread's other tasks move to another thread only when many
    /// threads of the pool wait for the disk at once.
    pub fn syncing<T>(&self, work: impl FnOnce() -> T) -> T {
        once(work, |work| self.0.syncing(work))
    }

    /// Pauses the current thread within a task that computes.
    ///
    /// The thread's other tasks continue on another thread, also after the pause, until this task awaits.
    /// Does nothing on a single-threaded runtime. A pause of zero yields to other ready threads.
    pub fn pause(&self, duration: Duration) {
        self.0.pause(duration);
    }

    /// CPU time of the current thread, without the time it waits for a processor.
    ///
    /// In a simulation, and on systems without such a clock, it is a monotonic clock.
    #[must_use]
    pub fn thread_time(&self) -> ThreadTime {
        self.0.thread_time()
    }
}

fn once<T>(work: impl FnOnce() -> T, run: impl FnOnce(&mut dyn FnMut())) -> T {
    let mut work = Some(work);
    let mut result = None;
    run(&mut || result = work.take().map(|work| work()));
    result.expect("a runtime runs blocking work exactly once")
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runtime")
    }
}
