//! Hosts broken on purpose: each invariant must be seen to fail, because a check that never failed proves nothing.

use super::Sabotage;
use super::oracle::Broken;
use super::world::{Setup, World};
use crate::lease::Flavour;
use crate::{Checkpoint, Options, Start};
use headwater_runtime::BoxFuture;
use std::time::Duration;

/// Runs a scenario with broken hosts under several seeds, until the oracle detects the defect.
#[track_caller]
fn noticed(sabotage: Sabotage, by: Broken, setup: Setup, script: fn(World) -> BoxFuture<()>) {
    let mut others = Vec::new();
    for seed in 0..20 {
        let broken_setup = setup.clone().with(|setup| setup.options.sabotage = Some(sabotage));
        let broken = World::new(seed, broken_setup).play(script);
        if broken.iter().any(|(what, _)| *what == by) {
            let sound = World::new(seed, setup.clone()).play(script);
            assert!(sound.is_empty(), "a correct host fails as well: {sound:?}");
            return;
        }
        others.extend(broken);
    }
    panic!("{sabotage:?} was not detected by {by:?}, only {others:?}");
}

fn cut_off(world: World) -> BoxFuture<()> {
    Box::pin(async move {
        let one = world.start("a");
        world.start("b");
        world.sleep(20).await;
        world.weather(one, |weather| weather.store_cut = true);
        world.write(100, 9, 600).await;
        world.clear_skies();
        world.sleep(60).await;
        world.finish(60).await;
    })
}

#[test]
fn working_after_the_deadline_is_noticed() {
    let setup = Setup::native().with(|setup| {
        setup.handler_ms = 4000;
        // Otherwise the broken host would wait for its checkpoint and stop by accident.
        setup.options.checkpoint =
            Checkpoint::Every { items: 100_000, bytes: 0, interval: Duration::from_secs(3600) };
    });
    noticed(Sabotage::IgnoresDeadlines, Broken::OneWorkerPerRange, setup, cut_off);
}

fn killed(world: World) -> BoxFuture<()> {
    Box::pin(async move {
        let one = world.start("a");
        world.sleep(10).await;
        world.write(20, 5, 100).await;
        world.kill(one);
        world.start("b");
        world.write(20, 5, 100).await;
        world.sleep(60).await;
        world.finish(60).await;
    })
}

#[test]
fn a_position_that_moves_back_is_noticed() {
    noticed(Sabotage::PositionsGoBack, Broken::MonotonePositions, Setup::native(), killed);
}

#[test]
fn a_position_stored_too_early_is_noticed() {
    let setup = Setup::native().with(|setup| setup.handler_ms = 2000);
    noticed(Sabotage::StoresBeforeHandling, Broken::AtLeastOnce, setup, killed);
}

#[test]
fn a_forgotten_failure_is_noticed() {
    let setup = Setup::native().with(|setup| setup.handler_fails = 30);
    noticed(Sabotage::ForgetsFailures, Broken::AtLeastOnce, setup, killed);
}

#[test]
fn a_dead_host_whose_leases_nobody_takes_is_noticed() {
    noticed(Sabotage::LeavesTheDeadAlone, Broken::EverythingIsOwned, Setup::native(), killed);
}

#[test]
fn lanes_that_mix_keys_are_noticed() {
    let setup = Setup::native().with(|setup| {
        setup.options.lanes = 3;
        setup.options.items_max = Some(20);
        setup.handler_ms = 1000;
    });
    noticed(Sabotage::LanesIgnoreKeys, Broken::OrderPerKey, setup, |world| {
        Box::pin(async move {
            world.start("a");
            world.sleep(10).await;
            world.write(60, 2, 10).await;
            world.sleep(60).await;
            world.finish(60).await;
        })
    });
}

#[test]
fn a_split_that_goes_on_too_far_is_noticed() {
    let setup = Setup::native().with(|setup| {
        setup.ranges = 1;
        setup.handler_ms = 3000;
        setup.options.items_max = Some(2);
    });
    noticed(Sabotage::SplitsAtWhatWasRead, Broken::AtLeastOnce, setup, |world| {
        Box::pin(async move {
            world.start("a");
            world.sleep(5).await;
            world.write(30, 9, 0).await;
            world.sleep(3).await;
            world.split_some();
            world.sleep(90).await;
            world.finish(60).await;
        })
    });
}

#[test]
fn leaving_without_storing_is_noticed() {
    let setup = Setup::native().with(|setup| {
        setup.options.checkpoint =
            Checkpoint::Every { items: 1000, bytes: 0, interval: Duration::from_secs(600) };
    });
    noticed(Sabotage::LeavesWithoutStoring, Broken::NoDuplicatesInPeace, setup, |world| {
        Box::pin(async move {
            world.start("a");
            world.sleep(10).await;
            world.write(40, 9, 20).await;
            world.sleep(10).await;
            world.start("b");
            world.sleep(30).await;
            world.finish(60).await;
            world.oracle.check_no_duplicates();
        })
    });
}

#[test]
fn writing_a_lease_that_was_taken_is_noticed() {
    let setup = Setup::native().with(|setup| {
        let options = Options::interop(Flavour::DotNetV3, "p");
        setup.options = Options { start: Start::Beginning, ..options };
        // Short, so that no handler runs when a lease is taken.
        setup.handler_ms = 10;
    });
    noticed(Sabotage::WritesAnyway, Broken::FencedProgress, setup, |world| {
        Box::pin(async move {
            world.start("a");
            world.sleep(30).await;
            world.start("b");
            world.sleep(90).await;
            world.write(10, 9, 0).await;
            world.finish(60).await;
        })
    });
}
