//! The concurrent workload on the store: writers, readers of every kind, and tasks that reshape and
//! maintain it.

pub(crate) mod checks;
pub(crate) mod reader;
mod reshaper;
mod resume;
pub(crate) mod writer;

use crate::invariants::Invariant;
use crate::setup::Setup;
use crate::witness::Witness;
use crate::world::{Store, World};
use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Random, Runtime};
use parking_lot::Mutex;
use reader::Reader;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time limit of a call, on any clock.
const CALL_MAX: Duration = Duration::from_secs(180);

/// A reader between two pages. It survives a crash of the machine: its position is kept elsewhere.
pub(crate) type SharedReader = Arc<Mutex<Reader>>;

/// The context that all tasks of the workload share.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) runtime: Runtime,
    pub(crate) store: Store,
    pub(crate) disk: MemoryDisk,
    pub(crate) witness: Witness,
    pub(crate) setup: Arc<Setup>,
    /// Number of running tasks.
    crew: Arc<AtomicUsize>,
}

impl Scene {
    /// Returns the scene of the open store; `None` if it is closed.
    pub(crate) fn of(world: &World) -> Option<Scene> {
        Some(Scene {
            runtime: world.runtime(),
            store: world.store()?,
            disk: world.disk.clone(),
            witness: world.witness.clone(),
            setup: world.setup.clone(),
            crew: Arc::default(),
        })
    }

    /// Returns whether all tasks have finished.
    pub(crate) fn is_deserted(&self) -> bool {
        self.crew.load(Ordering::Relaxed) == 0
    }

    /// Returns whether a violation was found, so that tasks should stop.
    fn should_stop(&self) -> bool {
        self.witness.has_objected()
    }

    fn start<F>(&self, name: &'static str, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.crew.fetch_add(1, Ordering::Relaxed);
        let crew = self.crew.clone();
        self.runtime.spawn(name, async move {
            work.await;
            crew.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Waits for a call to the store. `None` if it exceeds its time limit.
    async fn call<T>(&self, what: &str, call: impl Future<Output = T>) -> Option<T> {
        let answer = self.runtime.timeout(CALL_MAX, call).await;
        if answer.is_none() {
            self.witness.object(Invariant::EveryCallEnds, format!("{what} never ended"));
        }
        answer
    }

    /// Pauses between two calls, mostly briefly.
    async fn rest(&self, random: &mut Random) {
        let micros = match random.below(100) {
            0..30 => 0,
            30..96 => random.below(4_000),
            96..98 => random.below(100_000),
            _ => random.below(8_000_000),
        };
        if micros > 0 {
            self.runtime.sleep(Duration::from_micros(micros)).await;
        }
    }
}

/// Starts all tasks.
pub(crate) fn start(scene: &Scene, readers: &[SharedReader], random: &mut Random) {
    for number in 0..scene.setup.writers {
        let dice = Random::seeded(random.number());
        scene.start("writer", writer::write(scene.clone(), number, dice));
    }
    for reader in readers {
        let dice = Random::seeded(random.number());
        scene.start("reader", reader::read(scene.clone(), reader.clone(), dice));
    }
    scene.start("looker", writer::look(scene.clone(), Random::seeded(random.number())));
    scene.start("scanner", reader::scan(scene.clone(), Random::seeded(random.number())));
    scene.start("keeper", reshaper::maintain(scene.clone(), Random::seeded(random.number())));
    if scene.setup.is_reshaping {
        scene.start("reshaper", reshaper::reshape(scene.clone(), Random::seeded(random.number())));
    }
}
