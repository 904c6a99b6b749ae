//! Deterministic simulation of several machines in one thread.
//!
//! The seed decides which ready task runs next, and time advances only when no task can run; the system clock
//! is never read. A [`Node`] is a machine in the simulation. Killing it drops its tasks wherever they are, as a
//! power cut would; the next [`Simulation::node`] is the machine after its restart. Nodes may have different
//! clocks.

use crate::{Backend, BoxFuture, Random, Runtime, ThreadTime};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Wall clock at the start of every simulation: 2026-01-01, so that timestamps look realistic.
const START_UNIX_MILLIS: u64 = 1_767_225_600_000;

/// A deterministic world of machines, tasks and timers under one seed.
#[derive(Clone)]
pub struct Simulation(Arc<World>);

struct World {
    seed: u64,
    /// Microseconds since the start.
    now: AtomicU64,
    random: Mutex<Random>,
    tasks: Mutex<BTreeMap<u64, Task>>,
    ready: Mutex<Vec<u64>>,
    /// Sorted by the time they fire and then by number, each with the waker of the last poll.
    timers: Mutex<BTreeMap<(u64, u64), SharedWaker>>,
    /// Until when each frozen machine stands still, in microseconds since the start.
    frozen: Mutex<BTreeMap<u64, u64>>,
    next_id: AtomicU64,
}

struct Task {
    node: u64,
    /// `None` while it is being polled.
    future: Option<BoxFuture<()>>,
}

type SharedWaker = Arc<Mutex<Waker>>;

impl Simulation {
    /// Creates the world of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Simulation {
        Simulation(Arc::new(World {
            seed,
            now: AtomicU64::new(0),
            random: Mutex::new(Random::seeded(seed)),
            tasks: Mutex::default(),
            ready: Mutex::default(),
            timers: Mutex::default(),
            frozen: Mutex::default(),
            next_id: AtomicU64::new(1),
        }))
    }

    /// Adds a machine that was just switched on.
    #[must_use]
    pub fn node(&self) -> Node {
        Node(Arc::new(NodeState {
            world: self.0.clone(),
            id: self.0.next_id.fetch_add(1, Ordering::Relaxed),
            clock_offset_millis: AtomicI64::new(0),
            clock_rate_permille: AtomicU64::new(1000),
            suspended: Arc::default(),
        }))
    }

    /// The seed, for messages.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// A separate random stream for the caller, derived from the seed.
    #[must_use]
    pub fn random(&self) -> Random {
        Random::seeded(self.0.random.lock().number())
    }

    /// Runs `main` to its end, and all other tasks until then.
    ///
    /// # Panics
    /// On a deadlock: `main` waits, no task is ready and no timer is left.
    pub fn run<T: Send + 'static>(&self, main: impl Future<Output = T> + Send + 'static) -> T {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let id = self.0.add_task(0, Box::pin(async move { *slot.lock() = Some(main.await) }));
        while self.0.tasks.lock().contains_key(&id) {
            if !self.0.step() {
                panic!("seed {}: deadlock: no task is ready and no timer is left", self.0.seed);
            }
        }
        let value = result.lock().take();
        value.expect("the main task stores its result before it ends")
    }
}

impl World {
    fn add_task(&self, node: u64, future: BoxFuture<()>) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.tasks.lock().insert(id, Task { node, future: Some(future) });
        self.ready.lock().push(id);
        id
    }

    /// Polls one ready task, or advances the clock to the next timer. False when there is neither.
    fn step(self: &Arc<World>) -> bool {
        let id = {
            let mut ready = self.ready.lock();
            if ready.is_empty() {
                None
            } else {
                let chosen = self.random.lock().index(ready.len());
                Some(ready.swap_remove(chosen))
            }
        };
        match id {
            Some(id) => {
                self.poll(id);
                true
            }
            None => self.fire_next_timer(),
        }
    }

    /// Whether a task's machine is frozen; if so, sets a timer that wakes the task when the machine continues.
    fn is_frozen(self: &Arc<World>, id: u64) -> bool {
        let Some(node) = self.tasks.lock().get(&id).map(|task| task.node) else {
            return false;
        };
        let now = self.now.load(Ordering::Relaxed);
        let until = self.frozen.lock().get(&node).copied().filter(|until| *until > now);
        let Some(at) = until else { return false };
        let timer = self.next_id.fetch_add(1, Ordering::Relaxed);
        let waker = Waker::from(Arc::new(TaskWaker { world: self.clone(), id }));
        let waker = Arc::new(Mutex::new(waker));
        self.timers.lock().insert((at, timer), waker);
        true
    }

    fn poll(self: &Arc<World>, id: u64) {
        if self.is_frozen(id) {
            return;
        }
        // A waker may outlive its task, and a task may be woken twice.
        let Some(mut future) = self.tasks.lock().get_mut(&id).and_then(|task| task.future.take())
        else {
            return;
        };
        let waker = Waker::from(Arc::new(TaskWaker { world: self.clone(), id }));
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => drop(self.tasks.lock().remove(&id)),
            // The poll may have killed its own node; then the future is dropped here.
            Poll::Pending => {
                if let Some(task) = self.tasks.lock().get_mut(&id) {
                    task.future = Some(future);
                }
            }
        }
    }

    fn fire_next_timer(&self) -> bool {
        let Some(((at, _), waker)) = self.timers.lock().pop_first() else {
            return false;
        };
        self.now.fetch_max(at, Ordering::Relaxed);
        let waker = waker.lock().clone();
        waker.wake();
        true
    }
}

struct TaskWaker {
    world: Arc<World>,
    id: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.world.ready.lock();
        if !ready.contains(&self.id) {
            ready.push(self.id);
        }
    }
}

/// A machine in a simulation.
#[derive(Clone)]
pub struct Node(Arc<NodeState>);

struct NodeState {
    world: Arc<World>,
    id: u64,
    clock_offset_millis: AtomicI64,
    /// The speed of its monotonic clock, in thousandths.
    clock_rate_permille: AtomicU64,
    /// Microseconds it was suspended so far.
    suspended: Arc<AtomicU64>,
}

impl Node {
    /// The runtime of this machine.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        Runtime(self.0.clone())
    }

    /// Drops every task of this machine at its current await.
    pub fn kill(&self) {
        let dropped: Vec<Task> = {
            let mut tasks = self.0.world.tasks.lock();
            let ids: Vec<u64> = tasks
                .iter()
                .filter(|(_, task)| task.node == self.0.id)
                .map(|(id, _)| *id)
                .collect();
            ids.iter().filter_map(|id| tasks.remove(id)).collect()
        };
        // Outside the lock: a future may wake others while it is dropped.
        drop(dropped);
    }

    /// Stops every task of this machine for `duration`, as a debugger would. Its clocks and timers continue.
    ///
    /// A machine that is already frozen stays frozen at least as long as before.
    pub fn freeze(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2);
        let until = self.0.world.now.load(Ordering::Relaxed).saturating_add(micros);
        let mut frozen = self.0.world.frozen.lock();
        let known = frozen.entry(self.0.id).or_default();
        *known = until.max(*known);
    }

    /// Stops this machine for `duration`, as closing a laptop does. Its clocks continue, its timers do not.
    ///
    /// A sleeping task has as much time left after the suspension as before it.
    pub fn suspend(&self, duration: Duration) {
        self.freeze(duration);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2);
        self.0.suspended.fetch_add(micros, Ordering::Relaxed);
    }

    /// Whether the machine is frozen or suspended now.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        let now = self.0.world.now.load(Ordering::Relaxed);
        self.0.world.frozen.lock().get(&self.0.id).is_some_and(|until| *until > now)
    }

    /// Sets the speed of this machine's monotonic clock, in thousandths.
    ///
    /// Call it before anything runs on the machine: time already measured would jump.
    pub fn set_clock_rate_permille(&self, rate: u64) {
        self.0.clock_rate_permille.store(rate.max(1), Ordering::Relaxed);
    }

    /// Offsets this machine's wall clock by this many milliseconds.
    pub fn set_clock_offset_millis(&self, offset: i64) {
        self.0.clock_offset_millis.store(offset, Ordering::Relaxed);
    }
}

impl Backend for NodeState {
    fn unix_millis(&self) -> u64 {
        let now = START_UNIX_MILLIS + self.world.now.load(Ordering::Relaxed) / 1000;
        now.saturating_add_signed(self.clock_offset_millis.load(Ordering::Relaxed))
    }

    fn elapsed(&self) -> Duration {
        let rate = self.clock_rate_permille.load(Ordering::Relaxed);
        let now = u128::from(self.world.now.load(Ordering::Relaxed)) * u128::from(rate) / 1000;
        Duration::from_micros(u64::try_from(now).unwrap_or(u64::MAX))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let rate = u128::from(self.clock_rate_permille.load(Ordering::Relaxed));
        // Rounded up: a sleep until a time of its own clock must not end before that time.
        let micros = (duration.as_micros().saturating_mul(1000)).div_ceil(rate);
        let micros = u64::try_from(micros).unwrap_or(u64::MAX / 2);
        let at = self.world.now.load(Ordering::Relaxed).saturating_add(micros);
        let counted = self.suspended.load(Ordering::Relaxed);
        let (world, suspended) = (self.world.clone(), self.suspended.clone());
        Box::pin(Sleep { world, suspended, counted, at, registered: None })
    }

    fn spawn(&self, _name: &'static str, task: BoxFuture<()>) {
        self.world.add_task(self.id, task);
    }

    fn random(&self) -> u64 {
        self.world.random.lock().number()
    }

    fn survives_panics(&self) -> bool {
        false
    }

    fn blocking(&self, work: &mut dyn FnMut()) {
        work();
    }

    fn syncing(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Does nothing: computing takes no time in a simulation, and there is one thread.
    fn pause(&self, _duration: Duration) {}

    fn thread_time(&self) -> ThreadTime {
        ThreadTime { thread: 0, computed: self.elapsed() }
    }
}

struct Sleep {
    world: Arc<World>,
    suspended: Arc<AtomicU64>,
    /// How many microseconds of suspension `at` already includes.
    counted: u64,
    at: u64,
    registered: Option<((u64, u64), SharedWaker)>,
}

impl Sleep {
    /// Removes its timer: an abandoned timer must not advance the clock.
    fn forget(&mut self) {
        if let Some((timer, _)) = self.registered.take() {
            self.world.timers.lock().remove(&timer);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let suspended = self.suspended.load(Ordering::Relaxed);
        if suspended > self.counted {
            self.forget();
            self.at = self.at.saturating_add(suspended - self.counted);
            self.counted = suspended;
        }
        if self.world.now.load(Ordering::Relaxed) >= self.at {
            return Poll::Ready(());
        }
        if let Some((_, waker)) = &self.registered {
            // One timer per sleep, however often it is polled: a stale timer would advance the clock, and
            // stale timers would accumulate.
            *waker.lock() = context.waker().clone();
            return Poll::Pending;
        }
        let timer = (self.at, self.world.next_id.fetch_add(1, Ordering::Relaxed));
        let waker = Arc::new(Mutex::new(context.waker().clone()));
        self.world.timers.lock().insert(timer, waker.clone());
        self.registered = Some((timer, waker));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history_of(seed: u64) -> Vec<u64> {
        let simulation = Simulation::new(seed);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let runtime = simulation.node().runtime();
        let log = seen.clone();
        simulation.run(async move {
            for task in 0..6 {
                let (log, runtime2) = (log.clone(), runtime.clone());
                runtime.spawn("test", async move {
                    for _ in 0..3 {
                        runtime2.sleep(Duration::from_millis(runtime2.random() % 5)).await;
                        log.lock().push(task);
                    }
                });
            }
            runtime.sleep(Duration::from_secs(1)).await;
        });
        let history = seen.lock();
        history.clone()
    }

    #[test]
    fn one_seed_is_one_history() {
        assert_eq!(history_of(1).len(), 18);
        assert_eq!(history_of(1), history_of(1));
        assert_ne!(history_of(1), history_of(2));
    }

    #[test]
    fn a_killed_node_does_nothing_more() {
        let simulation = Simulation::new(9);
        let node = simulation.node();
        let count = Arc::new(AtomicU64::new(0));
        let (runtime, counted) = (node.runtime(), count.clone());
        simulation.run(async move {
            let ticking = runtime.clone();
            runtime.spawn("ticks", async move {
                loop {
                    ticking.sleep(Duration::from_secs(1)).await;
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
            runtime.sleep(Duration::from_millis(3500)).await;
            node.kill();
            runtime.sleep(Duration::from_secs(100)).await;
        });
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_sleep_looked_at_often_has_one_timer() {
        let simulation = Simulation::new(13);
        let runtime = simulation.node().runtime();
        let world = simulation.0.clone();
        simulation.run(async move {
            let mut long = runtime.sleep(Duration::from_secs(3600));
            for _ in 0..5 {
                tokio::select! {
                    biased;
                    () = &mut long => panic!("too early"),
                    () = runtime.sleep(Duration::from_secs(1)) => {}
                }
            }
            assert_eq!(world.timers.lock().len(), 1);
            drop(long);
            assert_eq!(world.timers.lock().len(), 0);
        });
    }

    #[test]
    fn a_frozen_node_stands_still_and_then_finds_that_time_has_passed() {
        let simulation = Simulation::new(11);
        let (node, other) = (simulation.node(), simulation.node());
        let woke_at = Arc::new(Mutex::new(None));
        let (runtime, seen) = (node.runtime(), woke_at.clone());
        let outside = other.runtime();
        simulation.run(async move {
            let sleeping = runtime.clone();
            runtime.spawn("sleeper", async move {
                sleeping.sleep(Duration::from_secs(2)).await;
                *seen.lock() = Some(sleeping.elapsed());
            });
            outside.sleep(Duration::from_secs(1)).await;
            node.freeze(Duration::from_secs(30));
            assert!(node.is_frozen());
            outside.sleep(Duration::from_secs(60)).await;
            assert!(!node.is_frozen());
        });
        assert_eq!(*woke_at.lock(), Some(Duration::from_secs(31)));
    }

    #[test]
    fn a_frozen_node_that_is_frozen_again_for_less_does_not_wake_in_parts() {
        let simulation = Simulation::new(11);
        let (node, other) = (simulation.node(), simulation.node());
        let woke_at = Arc::new(Mutex::new(Vec::new()));
        let (runtime, outside, seen) = (node.runtime(), other.runtime(), woke_at.clone());
        simulation.run(async move {
            for seconds in [2, 20] {
                let (sleeping, seen) = (runtime.clone(), seen.clone());
                runtime.spawn("sleeper", async move {
                    sleeping.sleep(Duration::from_secs(seconds)).await;
                    seen.lock().push(sleeping.elapsed());
                });
            }
            outside.sleep(Duration::from_secs(1)).await;
            node.freeze(Duration::from_secs(30));
            outside.sleep(Duration::from_secs(9)).await;
            node.freeze(Duration::from_secs(5));
            outside.sleep(Duration::from_secs(60)).await;
        });
        // Both wake at the end of the longer freeze.
        assert_eq!(*woke_at.lock(), [Duration::from_secs(31); 2]);
    }

    #[test]
    fn a_suspended_node_sleeps_on_when_it_wakes_although_time_has_passed() {
        let simulation = Simulation::new(14);
        let (node, outside) = (simulation.node(), simulation.node().runtime());
        let woke_at = Arc::new(Mutex::new(None));
        let (runtime, seen) = (node.runtime(), woke_at.clone());
        simulation.run(async move {
            let sleeping = runtime.clone();
            runtime.spawn("sleeper", async move {
                sleeping.sleep(Duration::from_secs(3)).await;
                *seen.lock() = Some(sleeping.elapsed());
            });
            outside.sleep(Duration::from_secs(1)).await;
            node.suspend(Duration::from_secs(30));
            outside.sleep(Duration::from_secs(60)).await;
        });
        assert_eq!(*woke_at.lock(), Some(Duration::from_secs(33)));
    }

    #[test]
    fn a_fast_clock_shows_more_time() {
        let simulation = Simulation::new(12);
        let (fast, normal) = (simulation.node(), simulation.node().runtime());
        fast.set_clock_rate_permille(1100);
        let runtime = fast.runtime();
        simulation.run(async move {
            runtime.sleep(Duration::from_secs(11)).await;
            assert_eq!(normal.elapsed(), Duration::from_secs(10));
            assert_eq!(runtime.elapsed(), Duration::from_secs(11));
        });
    }

    #[test]
    fn timeout_gives_up_and_leaves_no_timer_behind() {
        let simulation = Simulation::new(4);
        let runtime = simulation.node().runtime();
        simulation.run(async move {
            let never = std::future::pending::<()>();
            assert_eq!(runtime.timeout(Duration::from_secs(5), never).await, None);
            assert_eq!(runtime.elapsed(), Duration::from_secs(5));
            assert_eq!(runtime.timeout(Duration::from_secs(5), async { 1 }).await, Some(1));
            runtime.sleep(Duration::from_secs(1)).await;
            assert_eq!(runtime.elapsed(), Duration::from_secs(6));
        });
    }
}
