//! The production backend of a [`Runtime`](crate::Runtime): Tokio, the system clock, entropy.
//!
//! No simulation uses this file.

// The only file where the banned calls are allowed: all other code uses a Runtime.
#![allow(clippy::disallowed_methods)]

use crate::{Backend, BoxFuture, Random, ThreadTime};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Handle, RuntimeFlavor};

pub(crate) struct System {
    /// The executor this was made on, where tasks start. `None`: tasks start on the executor of their caller.
    executor: Option<Handle>,
    started: Duration,
    random: Mutex<Random>,
    /// Tasks that wait for the disk right now.
    syncs: AtomicUsize,
}

impl System {
    pub(crate) fn new() -> System {
        System {
            executor: Handle::try_current().ok(),
            started: since_boot(),
            random: Mutex::new(Random::from_entropy()),
            syncs: AtomicUsize::new(0),
        }
    }
}

/// Monotonic clock that also counts the time the machine is suspended, so that leases expire meanwhile.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    time_of(rustix::time::ClockId::Boottime)
}

/// Monotonic clock of the standard library, counted from the first call.
#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

impl Backend for System {
    fn unix_millis(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.started)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<()>) {
        let task = async move {
            tracing::trace!(name, "task started");
            task.await;
            tracing::trace!(name, "task ended");
        };
        match &self.executor {
            Some(executor) => drop(executor.spawn(task)),
            None => drop(tokio::spawn(task)),
        }
    }

    fn random(&self) -> u64 {
        self.random.lock().number()
    }

    fn survives_panics(&self) -> bool {
        true
    }

    fn blocking(&self, work: &mut dyn FnMut()) {
        // On a multi-thread runtime the other tasks of this worker move to another thread. A single-threaded
        // runtime has no other thread to move them to.
        match Handle::try_current().map(|handle| handle.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
            _ => work(),
        }
    }

    fn syncing(&self, work: &mut dyn FnMut()) {
        // Moving the worker's other tasks costs more than a quick sync. As long as fewer than half of the
        // workers wait for the disk, the others steal those tasks, so they are not moved.
        let workers = Handle::try_current().map_or(0, |handle| handle.metrics().num_workers());
        if self.syncs.fetch_add(1, Ordering::Relaxed) < workers / 2 {
            work();
        } else {
            self.blocking(work);
        }
        self.syncs.fetch_sub(1, Ordering::Relaxed);
    }

    fn pause(&self, duration: Duration) {
        if duration.is_zero() {
            return std::thread::yield_now();
        }
        let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
        if matches!(flavor, Ok(RuntimeFlavor::MultiThread)) {
            // Tokio hands the worker's tasks to another thread, if that thread starts before the closure ends.
            // This thread gets them back only with its next task.
            tokio::task::block_in_place(|| std::thread::sleep(duration));
        }
    }

    fn thread_time(&self) -> ThreadTime {
        ThreadTime { thread: THREAD.with(|number| *number), computed: computed() }
    }
}

/// CPU time of the current thread.
#[cfg(unix)]
fn computed() -> Duration {
    time_of(rustix::time::ClockId::ThreadCPUTime)
}

/// Monotonic clock where there is no CPU time clock; it also counts time without a processor.
#[cfg(not(unix))]
fn computed() -> Duration {
    since_boot()
}

#[cfg(unix)]
fn time_of(clock: rustix::time::ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

thread_local! {
    /// Whether this thread belongs to a pool of `Threads`, whose tasks may move while it waits.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
    /// A unique number of this thread: `std::thread::ThreadId` has no stable conversion to an integer.
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Runs a read that has to wait for the disk.
///
/// On the threads of [`Runtime::threads`](crate::Runtime::threads) the thread's other tasks continue on another
/// thread meanwhile. On foreign threads they wait, because their state may not be movable.
pub fn slow_read<T>(read: impl FnOnce() -> T) -> T {
    match IS_OURS.get() {
        true => tokio::task::block_in_place(read),
        false => read(),
    }
}

/// Lowers the priority of this thread to nice 5: a third of the processor time of a busy normal thread.
///
/// It still gets a whole processor while no other thread needs it.
#[cfg(target_os = "linux")]
pub(crate) fn lower_priority() {
    // A failure only affects latencies under load.
    if let Err(error) = rustix::process::setpriority_process(None, 5) {
        tracing::debug!(%error, "cannot lower the priority of a thread");
    }
}

/// Does nothing: outside of Linux priorities belong to whole processes.
#[cfg(not(target_os = "linux"))]
pub(crate) fn lower_priority() {}

/// The system backend with a thread pool of its own for its tasks.
pub(crate) struct Threads {
    system: System,
    /// Taken on drop and shut down without waiting, because one of its own threads may be the one that drops it.
    pool: Option<tokio::runtime::Runtime>,
}

impl Threads {
    /// Starts a pool of `count` threads, at least one, that each call `prepare` when they start.
    pub(crate) fn new(name: &'static str, count: usize, prepare: fn()) -> std::io::Result<Threads> {
        let pool = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(count.max(1))
            .thread_name(name)
            .on_thread_start(move || {
                IS_OURS.set(true);
                prepare();
            })
            .enable_all()
            .build()?;
        let system = System { executor: Some(pool.handle().clone()), ..System::new() };
        Ok(Threads { system, pool: Some(pool) })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.shutdown_background();
        }
    }
}

impl Backend for Threads {
    fn unix_millis(&self) -> u64 {
        self.system.unix_millis()
    }

    fn elapsed(&self) -> Duration {
        self.system.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let _entered = self.pool.as_ref().map(tokio::runtime::Runtime::enter);
        self.system.sleep(duration)
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<()>) {
        self.system.spawn(name, task);
    }

    fn random(&self) -> u64 {
        self.system.random()
    }

    fn survives_panics(&self) -> bool {
        self.system.survives_panics()
    }

    fn blocking(&self, work: &mut dyn FnMut()) {
        self.system.blocking(work);
    }

    fn syncing(&self, work: &mut dyn FnMut()) {
        self.system.syncing(work);
    }

    fn pause(&self, duration: Duration) {
        self.system.pause(duration);
    }

    fn thread_time(&self) -> ThreadTime {
        self.system.thread_time()
    }
}

#[cfg(test)]
mod tests {
    use crate::Runtime;
    use std::time::Duration;

    #[test]
    fn threads_of_its_own_go_on_while_every_other_is_blocked() {
        let threads = Runtime::threads("test-threads", 1).unwrap();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (done, wait) = std::sync::mpsc::channel();
        tokio.block_on(async {
            let inside = threads.clone();
            threads.spawn("test", async move {
                inside.sleep(Duration::from_millis(1)).await;
                done.send(std::thread::current().name().map(ToOwned::to_owned)).unwrap();
            });
            // Blocks the only thread of this runtime until the other thread has sent its name.
            assert_eq!(wait.recv().unwrap().as_deref(), Some("test-threads"));
        });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn background_threads_have_a_lower_priority_and_no_other_thread_has() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let (tell, told) = std::sync::mpsc::channel();
        let background = Runtime::background_threads("test-background", 1).unwrap();
        background.spawn("test", async move {
            tell.send(priority()).unwrap();
            // The thread that takes over while this one waits has the same priority.
            crate::slow_read(|| tell.send(priority()).unwrap());
        });
        let timeout = Duration::from_secs(60);
        assert_eq!(told.recv_timeout(timeout).unwrap(), before + 5);
        assert_eq!(told.recv_timeout(timeout).unwrap(), before + 5);
        assert_eq!(priority(), before);
    }

    /// The only thread waits in a read for a message that a task on the same thread sends.
    #[test]
    fn a_slow_read_holds_up_nobody_else_on_its_thread() {
        let thread = Runtime::threads("test-reads", 1).unwrap();
        let (ask, asked) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel();
        let inside = thread.clone();
        thread.spawn("reader", async move {
            inside.spawn("other", async move { ask.send(7).unwrap() });
            let read = crate::slow_read(|| asked.recv_timeout(Duration::from_secs(60)));
            done.send(read).unwrap();
        });
        assert_eq!(wait.recv().unwrap(), Ok(7));
        // On other threads the read runs in place.
        assert_eq!(crate::slow_read(|| 8), 8);
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(tokio.block_on(async { crate::slow_read(|| 9) }), 9);
    }

    /// Runs `there` on another thread, next to a first function that returns only once `there` has begun.
    fn beside_what_waits_for_it<B: Send + 'static>(
        there: impl FnOnce() -> B + Send + 'static,
    ) -> (bool, Option<B>) {
        let threads = Runtime::threads("test-beside", 1).unwrap();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (begun, beginning) = std::sync::mpsc::channel();
        tokio.block_on(threads.beside(
            "test",
            move || beginning.recv_timeout(Duration::from_secs(60)).is_ok(),
            move || {
                begun.send(()).unwrap();
                there()
            },
        ))
    }

    #[test]
    fn two_things_are_done_beside_each_other_if_somebody_is_free() {
        assert_eq!(beside_what_waits_for_it(|| 7), (true, Some(7)));
        // The only thread of this runtime is busy with the first function.
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (here, there) = tokio.block_on(async {
            let own = Runtime::system();
            let name = || std::thread::current().id();
            own.beside("test", name, name).await
        });
        assert_eq!(Some(here), there);
    }

    #[test]
    fn what_panics_beside_ends_nobody_else() {
        assert_eq!(beside_what_waits_for_it(|| panic!("on purpose")), (true, None::<()>));
    }

    #[test]
    fn a_task_runs_where_its_runtime_was_made_and_ends_with_whoever_waits() {
        let threads = Runtime::threads("test-made-here", 1).unwrap();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async {
            let name = || std::thread::current().name().map(ToOwned::to_owned);
            let ran = threads.run("test", async move { name() }).await;
            assert_eq!(ran.unwrap().as_deref(), Some("test-made-here"));
            // A system runtime made inside a pool starts its tasks there, from any thread.
            let inside = threads.run("test", async { Runtime::system() }).await.unwrap();
            let ran = inside.run("test", async move { name() }).await;
            assert_eq!(ran.unwrap().as_deref(), Some("test-made-here"));
            let panicked = threads.run("test", async { panic!("on purpose") }).await;
            assert_eq!(panicked.map(|(): ()| ()).unwrap_err().message, "on purpose");
            let (ended, end) = tokio::sync::oneshot::channel::<()>();
            let waiting = threads.run("test", async move {
                std::future::pending::<()>().await;
                drop(ended);
            });
            assert!(threads.timeout(Duration::from_millis(1), waiting).await.is_none());
            let dropped = threads.timeout(Duration::from_secs(60), end).await;
            assert!(
                matches!(dropped, Some(Err(_))),
                "the task continues although its caller has gone"
            );
        });
    }

    #[test]
    fn blocking_returns_its_value_with_and_without_tokio() {
        let runtime = Runtime::system();
        assert_eq!(runtime.blocking(|| 7), 7);
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        assert_eq!(tokio.block_on(async { runtime.blocking(|| 8) }), 8);
    }

    #[test]
    fn syncing_returns_its_value_however_many_do_it_at_once() {
        let runtime = Runtime::system();
        assert_eq!(runtime.syncing(|| 7), 7);
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let nested = runtime.clone();
        let both = tokio.block_on(async { runtime.syncing(|| nested.syncing(|| 8)) });
        assert_eq!(both, 8);
        assert_eq!(tokio.block_on(async { runtime.syncing(|| 9) }), 9);
    }
}
