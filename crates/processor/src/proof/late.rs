//! Hosts that freeze between reading and acting, while other hosts continue and ranges change. Runs with both
//! kinds of lease containers, with and without transactions.

use super::Sabotage;
use super::faults::{check, seen};
use super::faults_of_services::until;
use super::world::{Setup, World};
use crate::Event;
use crate::lease_store::{Layout, LeaseStore};
use headwater_model::PartitionId;
use headwater_runtime::BoxFuture;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns a setup with slow requests, so that a host can be frozen during one.
fn slow(ranges: u32, layout: Layout) -> Setup {
    Setup::native().with(|setup| {
        setup.ranges = ranges;
        setup.weather.latency_ms = 1000;
        setup.layout = layout;
    })
}

/// Runs a scenario with both kinds of lease containers. Without transactions it must fail for hosts that do not
/// promise their leases; otherwise the scenario proves nothing.
#[track_caller]
fn check_both(ranges: u32, script: fn(World) -> BoxFuture<()>) {
    check(&slow(ranges, Layout::PartitionKey), script);
    let by_id = slow(ranges, Layout::Id);
    check(&by_id, script);
    let broken = by_id.with(|setup| setup.options.sabotage = Some(Sabotage::PromisesNothing));
    let without = catch_unwind(AssertUnwindSafe(|| check(&broken, script)));
    assert!(without.is_err(), "the scenario passes without promises");
}

#[test]
fn f33_a_gap_that_was_filled_is_not_filled_again_by_a_host_that_saw_it_before() {
    check_both(2, |world| {
        Box::pin(async move {
            let hosts = [world.start("a"), world.start("b")];
            world.sleep(30).await;
            world.write(20, 9, 100).await;
            let lease = world.stored().remove(0);
            let stored = world.leases.read(&lease.key).await.unwrap().unwrap();
            world.leases.delete(&stored.key, &stored.etag).await.unwrap();
            let looks = |host: usize| world.counted(host, |counts| counts.range_looks);
            let before = hosts.map(looks);
            let asks = || (0..2).find(|host| looks(hosts[*host]) > before[*host]);
            until(&world, || asks().is_some()).await;
            // It has read the ranges and is about to create a lease.
            world.freeze(hosts[asks().unwrap()], 120);
            world.feed.split(PartitionId::new(0));
            world.sleep(60).await;
            assert_eq!(world.stored().len(), 3, "the other host creates two");
            world.feed.merge(PartitionId::new(2));
            world.write(100, 9, 1500).await;
            world.sleep(30).await;
            assert_eq!(world.stored().len(), 3);
            world.clear_skies();
            world.finish(60).await;
        })
    });
}

#[test]
fn f34_a_host_that_is_late_makes_no_leases_beside_those_there_are() {
    check_both(2, |world| {
        Box::pin(async move {
            let late = world.start("late");
            until(&world, || world.counted(late, |counts| counts.range_looks) > 0).await;
            // It has read the ranges and is about to create leases for them.
            world.freeze(late, 120);
            world.feed.merge(PartitionId::new(0));
            world.start("b");
            world.sleep(90).await;
            assert_eq!(world.stored().len(), 1, "one lease for the merged range");
            world.write(100, 9, 1500).await;
            world.sleep(30).await;
            assert_eq!(world.stored().len(), 1);
            world.clear_skies();
            world.finish(60).await;
        })
    });
}

/// Whether a split has begun: its first write has been committed.
fn is_split(world: &World) -> bool {
    world.stored().len() != 1
}

#[test]
fn f18_a_host_that_is_late_with_a_split_makes_nothing_that_others_have_split_again() {
    check_both(1, |world| {
        Box::pin(async move {
            let late = world.start("late");
            world.sleep(20).await;
            world.start("b");
            world.write(20, 9, 100).await;
            world.feed.split(PartitionId::new(0));
            until(&world, || is_split(&world)).await;
            let owner = world.stored().iter().find_map(|lease| lease.owner.clone());
            assert!(owner.is_none_or(|owner| owner == "late"), "the late host had the only lease");
            // It has begun to split its lease.
            world.freeze(late, 120);
            world.write(40, 9, 1500).await;
            world.sleep(20).await;
            for range in [1, 2] {
                world.feed.split(PartitionId::new(range));
            }
            world.write(100, 9, 1500).await;
            world.sleep(30).await;
            assert_eq!(world.stored().len(), 4);
            world.clear_skies();
            world.finish(60).await;
        })
    });
}

#[test]
fn f18_what_a_host_promised_before_it_died_is_made_by_whoever_looks_next() {
    for layout in [Layout::PartitionKey, Layout::Id] {
        check(&slow(1, layout), |world| {
            Box::pin(async move {
                let one = world.start("a");
                world.sleep(20).await;
                world.write(20, 9, 100).await;
                world.sleep(10).await;
                world.feed.split(PartitionId::new(0));
                until(&world, || is_split(&world)).await;
                world.kill(one);
                let handled = world.oracle.handled();
                world.start("b");
                world.sleep(60).await;
                assert_eq!(world.stored().len(), 2);
                assert!(world.oracle.handled() - handled <= 5, "history is not read again");
                assert_eq!(seen(&world, |event| matches!(event, Event::CoverageGap { .. })), 0);
                world.finish(60).await;
                let retired = world.retired();
                assert!(retired.len() == 1 && retired[0].extra.cuts.is_empty(), "{retired:?}");
            })
        });
    }
}

#[test]
fn f33_keys_whose_lease_was_retired_and_all_that_came_of_it_deleted_get_it_back() {
    for layout in [Layout::PartitionKey, Layout::Id] {
        let setup = Setup::native().with(|setup| (setup.ranges, setup.layout) = (1, layout));
        check(&setup, |world| {
            Box::pin(async move {
                world.start("a");
                world.sleep(20).await;
                world.write(20, 9, 100).await;
                world.feed.split(PartitionId::new(0));
                world.sleep(30).await;
                let epoch = world.stored().iter().map(|lease| lease.extra.epoch).max();
                for lease in world.stored() {
                    let stored = world.leases.read(&lease.key).await.unwrap().unwrap();
                    world.leases.delete(&stored.key, &stored.etag).await.unwrap();
                }
                // The new lease begins earlier, because the positions of its keys are unknown.
                world.oracle.store_forgot();
                world.feed.merge(PartitionId::new(1));
                world.sleep(120).await;
                let stored = world.stored();
                assert!(stored.len() == 1 && world.retired().is_empty(), "{stored:?}");
                assert!(Some(stored[0].extra.epoch) >= epoch, "{epoch:?} and then {stored:?}");
                world.write(20, 9, 100).await;
                world.finish(60).await;
            })
        });
    }
}
