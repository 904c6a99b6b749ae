//! The real world behind a [`Runtime`](crate::Runtime): Tokio, the system clock, entropy.

// The one place where the banned calls are allowed: everybody else asks a Runtime.
#![allow(clippy::disallowed_methods)]

use crate::{Backend, BoxFuture, Random};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Handle, RuntimeFlavor};

pub(crate) struct System {
    started: Duration,
    random: Mutex<Random>,
    /// Tasks that wait for the disk right now.
    syncs: AtomicUsize,
}

impl System {
    pub(crate) fn new() -> System {
        System {
            started: since_boot(),
            random: Mutex::new(Random::from_entropy()),
            syncs: AtomicUsize::new(0),
        }
    }
}

/// A clock that never goes back and goes on while the machine is suspended: whoever holds something
/// until a moment must not wake up and believe that no time has passed.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The clock of the standard library, counted from the first look at it.
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
        tokio::spawn(async move {
            tracing::trace!(name, "task started");
            task.await;
            tracing::trace!(name, "task ended");
        });
    }

    fn random(&self) -> u64 {
        self.random.lock().number()
    }

    fn blocking(&self, work: &mut dyn FnMut()) {
        // On a multi-thread runtime the other tasks of this worker move to another thread
        // meanwhile; elsewhere nobody else could run anyway.
        match Handle::try_current().map(|handle| handle.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
            _ => work(),
        }
    }

    fn syncing(&self, work: &mut dyn FnMut()) {
        // Moving the worker's other tasks costs more than a quick sync takes, so it is left out as
        // long as most workers go on: those steal what waits here.
        let workers = Handle::try_current().map_or(0, |handle| handle.metrics().num_workers());
        if self.syncs.fetch_add(1, Ordering::Relaxed) < workers / 2 {
            work();
        } else {
            self.blocking(work);
        }
        self.syncs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The system, with threads of its own for its tasks.
pub(crate) struct Threads {
    system: System,
    /// Taken when it is dropped: a pool must not be waited for by one of its own threads.
    pool: Option<tokio::runtime::Runtime>,
}

impl Threads {
    pub(crate) fn new(name: &'static str, count: usize) -> std::io::Result<Threads> {
        let pool = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(count.max(1))
            .thread_name(name)
            .enable_all()
            .build()?;
        Ok(Threads { system: System::new(), pool: Some(pool) })
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
        let _entered = self.pool.as_ref().map(tokio::runtime::Runtime::enter);
        self.system.spawn(name, task);
    }

    fn random(&self) -> u64 {
        self.system.random()
    }

    fn blocking(&self, work: &mut dyn FnMut()) {
        self.system.blocking(work);
    }

    fn syncing(&self, work: &mut dyn FnMut()) {
        self.system.syncing(work);
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
            // Blocks the only thread of this runtime until the other one has worked.
            assert_eq!(wait.recv().unwrap().as_deref(), Some("test-threads"));
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
