//! Runs one seed: creates a world, runs its phases, and reports the result.

use crate::audit::{Remembered, audit};
use crate::faults::Troubles;
use crate::invariants::{Invariant, Violation};
use crate::model::Model;
use crate::sabotage::Sabotage;
use crate::seeds::lines_kept;
use crate::setup::{Profile, Setup};
use crate::witness::Witness;
use crate::workload::reader::Reader;
use crate::workload::{self, Scene, SharedReader};
use crate::world::World;
use headwater_runtime::{Random, Simulation};
use headwater_store::ItemWrite;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Time limit of a phase, on any clock.
const PHASE_MAX: Duration = Duration::from_secs(3 * 3600);

/// The result of a seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The hash of the history; equal hashes mean equal histories.
    pub hash: u64,
    /// Events in the history.
    pub events: u64,
    /// How often an item was too busy for the model to follow.
    pub tracks_lost: u64,
    /// The first violation.
    pub violation: Option<Violation>,
    /// A description of the world.
    pub setup: String,
    /// The newest lines of the history.
    pub tail: Vec<String>,
}

/// How a phase ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Quiet,
    Close,
    Kill,
    PowerCut,
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, profile: &Profile) -> Report {
    let mut random = Random::seeded(seed);
    let setup = Arc::new(Setup::draw(profile, &mut random));
    let model = Model::new(setup.rules, setup.item_keys().into_iter());
    let witness = Witness::new(model, lines_kept());
    let simulation = Simulation::new(seed);
    let world = World::new(&simulation, setup.clone(), witness.clone());
    let ran = catch_unwind(AssertUnwindSafe(|| simulation.run(play(world, random))));
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        witness.object(Invariant::NothingFailsWithoutAFault, format!("panicked: {text}"));
    }
    witness.ask(|known| Report {
        seed,
        hash: known.history.hash(),
        events: known.history.count(),
        tracks_lost: known.model.tracks_lost,
        violation: known.violation.clone(),
        setup: format!("{setup:?}"),
        tail: known.history.tail(),
    })
}

async fn play(mut world: World, mut random: Random) {
    world.create().await;
    let readers = Reader::crew(&world.setup, &mut random);
    let mut remembered = Remembered::default();
    for number in 1..=world.setup.phases {
        if world.witness.has_objected() {
            return;
        }
        let ending = phase(&mut world, number, &readers, &mut random).await;
        let Some(scene) = Scene::of(&world) else {
            return;
        };
        let restarted = ending != Ending::Quiet;
        let nobody_looks = world.setup.profile.sabotage == Some(Sabotage::TheTailIsWrittenAgain);
        if !nobody_looks && !world.witness.has_objected() {
            audit(&scene, &readers, &mut remembered, restarted, &mut random).await;
        }
    }
    if !world.witness.has_objected() {
        world.close().await;
    }
}

fn draw_ending(world: &World, random: &mut Random) -> Ending {
    let weights = &world.setup.profile.endings;
    let sum = weights.quiet + weights.close + weights.kill + weights.power_cut;
    let dice = random.below(sum);
    match dice {
        _ if dice < weights.quiet => Ending::Quiet,
        _ if dice < weights.quiet + weights.close => Ending::Close,
        _ if dice < weights.quiet + weights.close + weights.kill => Ending::Kill,
        _ => Ending::PowerCut,
    }
}

/// Runs the workload until the phase ends, and reopens the store if necessary.
async fn phase(
    world: &mut World,
    number: u64,
    readers: &[SharedReader],
    random: &mut Random,
) -> Ending {
    let mut ending = draw_ending(world, random);
    let mut troubles = Troubles::draw(&world.setup, random);
    if ending == Ending::Quiet && troubles.need_reopening() {
        ending = Ending::Close;
    }
    let Some(scene) = Scene::of(world) else {
        return ending;
    };
    scene.witness.tell_quiet(&scene.runtime, &format!("phase {number} until {ending:?}"));
    workload::start(&scene, readers, random);
    if ending == Ending::PowerCut {
        world.disk.cut_power_after(random.below(250));
    }
    let started = scene.runtime.elapsed();
    let killed_after = Duration::from_micros(random.below(150_000));
    loop {
        scene.runtime.sleep(Duration::from_micros(1 + random.below(2_000))).await;
        let passed = scene.runtime.elapsed() - started;
        let cut = world.disk.is_out_of_power();
        let killed = ending == Ending::Kill && passed >= killed_after;
        if scene.witness.has_objected() || scene.is_deserted() || cut || killed {
            break;
        }
        if passed > PHASE_MAX {
            scene.witness.object(Invariant::EveryCallEnds, "a phase never ended");
            break;
        }
        troubles.tick(&world.disk, &world.witness, &scene.runtime, random);
        if let Some(millis) = troubles.clock_change(random) {
            world.change_clock(millis);
        }
    }
    drop(scene);
    if world.witness.has_objected() {
        return ending;
    }
    match ending {
        Ending::Quiet => {
            wait_for_writers(world).await;
            return ending;
        }
        Ending::Close => world.close().await,
        Ending::Kill => world.kill(),
        Ending::PowerCut => world.cut_power(),
    }
    if random.chance(world.setup.profile.clock_changes) {
        let millis = i64::try_from(random.below(100_000)).unwrap_or(0) - 30_000;
        world.change_clock(millis);
    }
    world.open().await;
    if let Some(aftermath) = world.take_aftermath() {
        for reader in readers {
            reader.lock().compare_with(&aftermath, &world.setup);
        }
    }
    ending
}

/// Waits until every partition has finished all requests, including those of callers that gave up.
///
/// While a write is in the log but not yet visible, a reader of latest versions finds neither the old version
/// nor the new one; the next read finds the new one. An audit covers a single moment, which must not be such a
/// moment.
async fn wait_for_writers(world: &World) {
    let Some(scene) = Scene::of(world) else {
        return;
    };
    for key in &world.setup.keys {
        // The answer, whatever it is, follows those of all earlier writes.
        let read = ItemWrite::read("i0");
        let _ = scene.store.container.batch(key.key.clone(), vec![read]).await;
    }
}
