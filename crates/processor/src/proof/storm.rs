//! Random combinations of faults, under many seeds.

use super::network::Weather;
use super::seeds;
use super::world::{Setup, World};
use crate::Checkpoint;
use crate::lease_store::Layout;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Derives a setup from a seed: ranges, options and fault rates.
fn setup(seed: u64, layout: Layout) -> Setup {
    let mut random = headwater_runtime::Random::seeded(seed ^ 0x5eed);
    Setup::native().with(|setup| {
        setup.layout = layout;
        setup.ranges = 1 + u32::try_from(random.below(6)).unwrap_or(0);
        setup.options.lanes = *random.pick(&[1, 1, 1, 3]);
        setup.options.items_max = *random.pick(&[None, Some(1), Some(4)]);
        setup.options.batch_items_max = *random.pick(&[usize::MAX, 3]);
        setup.options.checkpoint = *random.pick(&[
            Checkpoint::EveryBatch,
            Checkpoint::EveryBatch,
            Checkpoint::Every { items: 7, bytes: 0, interval: Duration::from_secs(3) },
        ]);
        setup.options.leases_per_range = *random.pick(&[1, 1, 2]);
        setup.handler_ms = *random.pick(&[0, 50, 400]);
        setup.handler_fails = *random.pick(&[0, 0, 10]);
        setup.weather = Weather {
            latency_ms: *random.pick(&[1, 30, 300]),
            lost_requests: *random.pick(&[0, 0, 3]),
            lost_answers: *random.pick(&[0, 2, 10]),
            throttled: *random.pick(&[0, 0, 20]),
            feed_throttled: *random.pick(&[0, 0, 20]),
            feed_unavailable: *random.pick(&[0, 0, 10]),
            stale_lists: *random.pick(&[0, 0, 20]),
            ..Weather::default()
        };
    })
}

/// Random events: hosts start, stop, crash, freeze, lose their network and get wrong clocks; ranges split and merge.
async fn storm(world: World) {
    let hosts = 1 + world.random.lock().below(4);
    let mut live: Vec<usize> = (0..hosts).map(|n| world.start(&format!("h{n}"))).collect();
    let mut names = hosts;
    for _ in 0..12 {
        world.write(12, 9, 150).await;
        let (what, pause) = {
            let mut random = world.random.lock();
            (random.below(12), random.below(9))
        };
        let victim = {
            let mut random = world.random.lock();
            if live.is_empty() { None } else { Some(random.index(live.len())) }
        };
        match (what, victim) {
            (0 | 1, Some(index)) if live.len() > 1 => world.kill(live.remove(index)),
            (2, Some(index)) if live.len() > 1 => {
                world.stop(live.remove(index)).await;
            }
            (3 | 4, _) if live.len() < 5 => {
                live.push(world.start(&format!("h{names}")));
                names += 1;
            }
            (5, Some(index)) => world.freeze(live[index], 5 + pause * 5),
            (6, Some(index)) => world.weather(live[index], |weather| weather.store_cut = true),
            (7, _) => world.clear_skies(),
            (8, Some(index)) => {
                let offset = i64::try_from(pause).unwrap_or(0) * 600_000 - 2_400_000;
                world.set_clock_offset(live[index], offset);
            }
            (9 | 10, _) => {
                world.split_some();
            }
            (11, _) => {
                world.merge_some();
            }
            _ => {}
        }
        world.sleep(pause).await;
    }
    live.push(world.start("last"));
    world.clear_skies();
    world.sleep(60).await;
    world.finish(600).await;
}

/// Stop after this many broken seeds.
const BROKEN_MAX: usize = 9;

/// Runs seeds on all cores, each in a separate world. Returns the broken invariants by seed.
fn play_all(seeds: Range<u64>, layout: Layout) -> BTreeMap<u64, String> {
    let (next, broken) = (AtomicU64::new(seeds.start), Mutex::new(BTreeMap::new()));
    let players = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..players {
            scope.spawn(|| {
                while broken.lock().len() < BROKEN_MAX {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let played = catch_unwind(|| play(seed, layout));
                    let what = played.unwrap_or_else(|_| Some(format!("seed {seed} panicked")));
                    what.map(|what| broken.lock().insert(seed, what));
                }
            });
        }
    });
    broken.into_inner()
}

/// Runs one seed. Returns the broken invariants, if any.
fn play(seed: u64, layout: Layout) -> Option<String> {
    let world = World::new(seed, setup(seed, layout));
    let oracle = world.oracle.clone();
    let broken = world.play(|world| Box::pin(storm(world)));
    if oracle.handled() == 0 {
        return Some(format!("seed {seed}: nothing happened"));
    }
    let some = &broken[..broken.len().min(3)];
    (!broken.is_empty()).then(|| format!("seed {seed} broke {some:?}"))
}

/// Runs the default seeds with this lease layout. `test` is the filter for reproducing a failure.
fn check(layout: Layout, test: &str) {
    let usual = if cfg!(debug_assertions) { 200 } else { 10_000 };
    let broken: Vec<String> = play_all(seeds(usual), layout).into_values().collect();
    assert!(
        broken.is_empty(),
        "{}\nto reproduce one: HEADWATER_SEED=… cargo test -p headwater-processor {test}",
        broken.join("\n")
    );
}

#[test]
fn whatever_happens_nothing_is_lost_and_nobody_works_in_anothers_place() {
    check(Layout::PartitionKey, "whatever_happens_nothing");
}

#[test]
fn whatever_happens_by_id_nothing_is_lost_and_nobody_works_in_anothers_place() {
    check(Layout::Id, "whatever_happens_by_id");
}

#[test]
fn whatever_happens_without_a_partition_key_nothing_is_lost_and_leases_have_one_owner() {
    check(Layout::Unpartitioned, "whatever_happens_without");
}

#[test]
fn one_seed_is_one_history() {
    let history = |seed| {
        let world = World::new(seed, setup(seed, Layout::PartitionKey));
        let oracle = world.oracle.clone();
        let runtime = world.runtime.clone();
        world.play(|world| Box::pin(storm(world)));
        (oracle.handled(), oracle.calls(), oracle.acquisitions(), runtime.elapsed())
    };
    assert_eq!(history(3), history(3));
    assert_ne!(history(3), history(4));
}
