//! The fault plan for dependencies: leases that cannot be written or deleted, stale listings, recreated feeds, a
//! failing dead-letter sink, operators who interfere.

use super::faults::{check, closed, seen};
use super::oracle::Broken;
use super::seeds;
use super::world::{Setup, World};
use crate::lease::{Flavour, Lease};
use crate::lease_store::{LeaseStore, NewDocument};
use crate::{CloseReason, Event, Fatal, Options, RetryThenDeadLetter, Start, Unit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Waits until the condition holds, for a limited time.
pub(super) async fn until(world: &World, is_so: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if is_so() {
            return;
        }
        world.runtime.sleep(Duration::from_millis(1)).await;
    }
    panic!("the condition was not met in time");
}

#[test]
fn f04_what_was_stored_before_the_host_died_does_not_come_again() {
    check(&Setup::native().with(|setup| setup.ranges = 1), |world| {
        Box::pin(async move {
            let one = world.start("a");
            world.sleep(10).await;
            world.weather(one, |weather| weather.lost_answers = 100);
            world.feed.put("k1", &[("k1-1", "x"), ("k1-2", "x"), ("k1-3", "x")]);
            let stored = world.clone();
            let at = |lease: &Lease| lease.position.as_ref().and_then(crate::Position::lsn);
            until(&world, || stored.stored().iter().any(|lease| at(lease).is_some())).await;
            world.kill(one);
            world.start("b");
            world.finish(60).await;
            assert_eq!(world.oracle.handled(), 3);
            world.oracle.check_no_duplicates();
        })
    });
}

#[test]
fn f06_a_host_frozen_while_its_write_is_on_its_way_writes_nothing() {
    let setup = Setup::native().with(|setup| {
        setup.ranges = 1;
        setup.weather.latency_ms = 400;
    });
    check(&setup, |world| {
        Box::pin(async move {
            let one = world.start("a");
            world.sleep(10).await;
            world.start("b");
            world.sleep(10).await;
            world.write(5, 3, 0).await;
            let counted = world.clone();
            until(&world, || counted.counted(one, |counts| counts.lease_writes > 0)).await;
            world.freeze(one, 40);
            world.write(20, 3, 1000).await;
            world.sleep(50).await;
            assert!(world.counted(one, |counts| counts.refused) > 0, "the store refused it");
            world.finish(60).await;
        })
    });
}

#[test]
fn f07_a_suspended_machine_knows_that_its_time_is_over_when_it_wakes() {
    let setup = Setup::native().with(|setup| {
        setup.ranges = 1;
        setup.handler_ms = 0;
    });
    for seed in seeds(8) {
        let broken = World::new(seed, setup.clone()).play(|world| {
            Box::pin(async move {
                let one = world.start("a");
                world.sleep(10).await;
                world.start("b");
                world.sleep(10).await;
                // At a random moment between two timers: a timer about to fire would hide the fault.
                let pause = world.random.lock().below(12_000);
                world.runtime.sleep(Duration::from_millis(pause)).await;
                world.set_handler_ms(60_000);
                world.write(3, 3, 0).await;
                until(&world, || world.oracle.running_on(one) > 0).await;
                // It wakes without a network, so it gets no information.
                world.weather(one, |weather| weather.store_cut = true);
                world.suspend(one, 40);
                world.sleep(42).await;
                // Its timers have not advanced. Without checking the clock it would work for up to twelve more
                // seconds.
                assert_eq!(world.oracle.running_on(one), 0, "the handler was dropped");
                world.set_handler_ms(100);
                world.clear_skies();
                world.sleep(60).await;
                world.finish(120).await;
            })
        });
        // While the machine was suspended another host began; both worked until the first one woke up.
        let others = broken.iter().filter(|(what, _)| *what != Broken::OneWorkerPerRange);
        assert_eq!(others.count(), 0, "seed {seed}: {broken:?}");
    }
}

#[test]
fn f12_a_slow_lease_container_costs_no_lease() {
    // Per round trip up to two renewal intervals.
    let native = Setup::native().with(|setup| {
        setup.weather.latency_ms = 3000;
        setup.options.store_timeout = Duration::from_secs(7);
    });
    let shared = Setup::native().with(|setup| {
        let options = Options::interop(Flavour::DotNetV3, "p");
        setup.options = Options { start: Start::Beginning, ..options };
        setup.options.store_timeout = Duration::from_secs(40);
        setup.weather.latency_ms = 11_000;
    });
    for setup in [native, shared] {
        check(&setup, |world| {
            Box::pin(async move {
                world.start("a");
                world.sleep(300).await;
                let before = world.oracle.acquisitions();
                world.write(60, 9, 10_000).await;
                assert_eq!(world.oracle.acquisitions(), before, "no lease moved");
                assert_eq!(closed(&world, &CloseReason::LeaseExpired), 0);
                world.clear_skies();
                world.finish(300).await;
            })
        });
    }
}

#[test]
fn f21_where_deleting_is_forbidden_a_parent_retires_and_is_never_read_again() {
    let setup = Setup::native().with(|setup| {
        setup.ranges = 1;
        setup.weather.deletes_forbidden = true;
    });
    check(&setup, |world| {
        Box::pin(async move {
            let one = world.start("a");
            world.sleep(10).await;
            for round in 0..3 {
                world.write(20, 30, 20).await;
                world.sleep(5).await;
                world.split_some();
                world.write(10, 30, 20).await;
                world.sleep(15).await;
                let retired = world.retired();
                assert_eq!(retired.len(), round + 1, "{retired:?}");
                assert!(retired.iter().all(|lease| lease.owner.is_none()));
            }
            world.oracle.check_no_duplicates();
            world.stop(one).await;
            let handled = world.oracle.handled();
            world.start("b");
            world.sleep(100).await;
            assert_eq!(world.oracle.handled(), handled, "no history is read again");
            world.finish(60).await;
        })
    });
}

#[test]
fn f23_range_lists_that_are_behind_after_a_split_are_waited_for() {
    check(&Setup::native().with(|setup| setup.ranges = 1), |world| {
        Box::pin(async move {
            let one = world.start("a");
            world.sleep(10).await;
            world.write(10, 9, 20).await;
            world.remember_ranges(true);
            world.split_some();
            let before = world.counted(one, |counts| counts.range_looks);
            world.write(10, 9, 20).await;
            world.sleep(60).await;
            let looks = world.counted(one, |counts| counts.range_looks) - before;
            assert!((5..100).contains(&looks), "{looks} looks in a minute");
            world.remember_ranges(false);
            world.sleep(20).await;
            world.finish(60).await;
            world.oracle.check_no_duplicates();
        })
    });
}

#[test]
fn f29_nothing_passes_a_change_that_cannot_be_put_away() {
    let setup = Setup::native().with(|setup| {
        setup.ranges = 1;
        setup.poison = vec!["k1-3".to_owned()];
        setup.options.failure = Arc::new(RetryThenDeadLetter { attempts: 2, ..Default::default() });
    });
    check(&setup, |world| {
        Box::pin(async move {
            world.letters_down.store(true, Ordering::SeqCst);
            let lsn = (0..8).map(|number| world.feed.put("k1", &[(&format!("k1-{number}"), "x")]));
            let poisoned = lsn.map(|put| put.unwrap().lsn).nth(3).unwrap();
            for number in 5..9 {
                world.feed.put("k1", &[(&format!("k1-{number}"), "y")]);
            }
            world.start("a");
            world.sleep(300).await;
            let at = world.stored()[0].position.clone().and_then(|position| position.lsn());
            assert!(at.is_none_or(|at| at < poisoned), "{at:?} is not before {poisoned}");
            assert_eq!(world.oracle.dead(), 0);
            world.letters_down.store(false, Ordering::SeqCst);
            world.sleep(30).await;
            world.finish(60).await;
            assert_eq!(world.oracle.dead(), 1);
        })
    });
}

#[test]
fn f35_a_container_made_anew_is_not_read_from_old_positions() {
    for seed in seeds(4) {
        let broken = World::new(seed, Setup::native()).play(|world| {
            Box::pin(async move {
                let hosts = [world.start("a"), world.start("b")];
                world.write(30, 9, 50).await;
                world.sleep(20).await;
                world.feed.recreate();
                let calls = world.oracle.calls();
                // More changes than before: old positions would lie in the middle of them.
                world.write(200, 9, 0).await;
                world.sleep(60).await;
                assert_eq!(
                    world.oracle.calls(),
                    calls,
                    "no change of the new container was delivered"
                );
                for host in hosts {
                    let report = world.report(host).unwrap();
                    assert!(matches!(report.fatal, Some(Fatal::FeedGone(_))), "{report:?}");
                }
                assert!(seen(&world, |event| matches!(event, Event::FeedGone { .. })) > 0);
                // After a restart they create separate leases for the new container.
                world.start("c");
                world.sleep(30).await;
                assert!(world.is_complete());
            })
        });
        // The lease ids of the new container differ, so its positions are separate.
        assert!(broken.is_empty(), "seed {seed}: {broken:?}");
    }
}

#[test]
fn f39_a_host_that_comes_and_goes_moves_only_its_own_leases() {
    let setup = Setup::native().with(|setup| setup.ranges = 6);
    check(&setup, |world| {
        Box::pin(async move {
            world.start("a");
            world.start("b");
            world.sleep(40).await;
            let before = world.oracle.acquisitions();
            for round in 0..6 {
                let flapping = world.start(&format!("f{round}"));
                world.write(10, 9, 1000).await;
                world.kill(flapping);
                world.sleep(10).await;
            }
            world.sleep(40).await;
            let moves = world.oracle.acquisitions() - before;
            // Its share of six leases is two: handed over to it, and acquired back.
            assert!(moves <= 6 * 4, "{moves} changes of hands");
            assert_eq!(world.shares(), [3, 3]);
            world.finish(60).await;
        })
    });
}

#[test]
fn f42_of_several_documents_about_one_range_the_one_behind_the_others_is_kept() {
    let setup = Setup::native().with(|setup| {
        let options = Options::interop(Flavour::DotNetV3, "p");
        setup.options = Options { start: Start::Beginning, ..options };
        setup.options.audit_interval = Duration::from_secs(20);
        setup.ranges = 2;
    });
    for seed in seeds(4) {
        let broken = World::new(seed, setup.clone()).play(|world| {
            Box::pin(async move {
                let one = world.start("a");
                world.write(20, 9, 20).await;
                world.sleep(20).await;
                world.stop(one).await;
                // Duplicates like those of .NET: the same id in another partition, one more advanced, one without
                // a position.
                let originals = world.stored();
                for (number, lease) in originals.iter().enumerate() {
                    let mut double = lease.clone();
                    double.key.partition = Some(format!("random-{number}"));
                    double.position = match number {
                        0 => None,
                        _ => lease.position.as_ref().and_then(crate::Position::lsn).map(|lsn| {
                            crate::Position::after(headwater_model::Lsn::new(lsn.get() + 1000))
                        }),
                    };
                    let now = headwater_model::Timestamp::from_millis(world.runtime.unix_millis());
                    let (key, body) = (double.key.clone(), double.to_bytes(now, "c1").into());
                    world.leases.create(NewDocument { key, body }).await.unwrap();
                }
                assert_eq!(world.stored().len(), 4);
                // The oracle identifies leases by id, which the duplicates share.
                world.oracle.store_forgot();
                world.start("b");
                world.start("c");
                world.write(40, 9, 2000).await;
                world.sleep(120).await;
                let stored = world.stored();
                assert_eq!(stored.len(), 2, "{stored:?}");
                let partitions: Vec<_> = stored.iter().map(|lease| &lease.key.partition).collect();
                let kept = |name: &str| partitions.iter().any(|one| one.as_deref() == Some(name));
                assert!(
                    kept("random-0") && !kept("random-1"),
                    "the lower positions: {partitions:?}"
                );
                assert_eq!(
                    seen(&world, |event| matches!(event, Event::DuplicateLease { .. })),
                    2,
                    "each was reported once"
                );
                world.finish(60).await;
            })
        });
        // Interop hosts preempt leases from each other here.
        let ours = broken.iter().filter(|(what, _)| *what != Broken::OneWorkerPerRange);
        assert_eq!(ours.count(), 0, "seed {seed}: {broken:?}");
    }
}

/// Seeks a unit to the beginning.
async fn seek_to_the_beginning(world: &World) {
    let store = Arc::new(world.store_for(&world.runtime));
    let namespace = Unit::discover(&*store).await.unwrap().remove(0);
    let unit = Unit::new(store, namespace, world.runtime.clone());
    unit.seek(None, &Start::Beginning, None, Duration::from_secs(20)).await.unwrap();
}

#[test]
fn f44_after_a_seek_nobody_goes_on_from_an_old_position_whoever_dies_or_joins() {
    for seed in seeds(6) {
        let broken = World::new(seed, Setup::native()).play(|world| {
            Box::pin(async move {
                let hosts = [world.start("a"), world.start("b")];
                world.write(40, 9, 50).await;
                world.sleep(20).await;
                let before = world.oracle.times();
                let done = Arc::new(AtomicBool::new(false));
                let (operator, sought) = (world.clone(), done.clone());
                world.runtime.spawn("operator", async move {
                    seek_to_the_beginning(&operator).await;
                    sought.store(true, Ordering::SeqCst);
                });
                let pause = world.random.lock().below(4000);
                world.runtime.sleep(Duration::from_millis(pause)).await;
                world.kill(hosts[0]);
                world.start("c");
                let pause = world.random.lock().below(4000);
                world.runtime.sleep(Duration::from_millis(pause)).await;
                world.freeze(hosts[1], 30);
                world.start("d");
                until(&world, || done.load(Ordering::SeqCst)).await;
                world.sleep(60).await;
                world.finish(60).await;
                let generations: Vec<u64> =
                    world.stored().iter().map(|lease| lease.extra.generation).collect();
                assert!(generations.windows(2).all(|two| two[0] == two[1]), "{generations:?}");
                let after = world.oracle.times();
                for item in world.feed.live() {
                    let item = (item.1, item.2);
                    let (then, now) = (before.get(&item).unwrap_or(&0), after[&item]);
                    assert!(now > *then, "{item:?} was not delivered again");
                }
            })
        });
        assert!(broken.is_empty(), "seed {seed}: {broken:?}");
    }
}

#[test]
fn f44_when_a_pause_is_over_nobody_works_until_everybody_may_again() {
    let setup = Setup::native().with(|setup| setup.handler_ms = 3000);
    check(&setup, |world| {
        Box::pin(async move {
            let hosts = [world.start("a"), world.start("b")];
            world.sleep(20).await;
            world.write(40, 9, 100).await;
            let store = Arc::new(world.store_for(&world.runtime));
            let namespace = Unit::discover(&*store).await.unwrap().remove(0);
            let unit = Unit::new(store, namespace, world.runtime.clone());
            unit.pause(Duration::from_secs(20)).await.unwrap();
            let (calls, joined) = (world.oracle.calls(), world.start("c"));
            for host in hosts.into_iter().chain([joined]) {
                assert_eq!(world.oracle.running_on(host), 0, "{host} works");
            }
            world.write(10, 9, 100).await;
            world.sleep(30).await;
            assert_eq!(world.oracle.calls(), calls, "no handler call starts");
            unit.resume().await.unwrap();
            world.finish(60).await;
        })
    });
}

#[test]
fn f44_an_interrupted_seek_leaves_all_hosts_paused_and_can_be_repeated() {
    check(&Setup::native(), |world| {
        Box::pin(async move {
            world.start("a");
            world.write(30, 9, 50).await;
            world.sleep(20).await;
            let (operator, machine) = (world.clone(), world.simulation.node());
            machine.runtime().spawn("operator", async move {
                seek_to_the_beginning(&operator).await;
            });
            let control = world.clone();
            let paused = move || {
                let documents = control.leases.export();
                documents.iter().any(|one| one.key.id.ends_with(".ctl"))
            };
            until(&world, paused).await;
            machine.kill();
            world.sleep(40).await;
            let calls = world.oracle.calls();
            world.write(10, 9, 100).await;
            world.sleep(20).await;
            assert_eq!(world.oracle.calls(), calls, "no host works during a pause");
            let before = world.oracle.times();
            seek_to_the_beginning(&world).await;
            world.sleep(20).await;
            world.finish(60).await;
            let after = world.oracle.times();
            for item in world.feed.live().into_iter().map(|(_, id, lsn)| (id, lsn)) {
                let (then, now) = (before.get(&item).unwrap_or(&0), after[&item]);
                assert!(now > *then, "{item:?} was not delivered again");
            }
        })
    });
}

#[test]
fn f46_a_lease_container_that_lost_its_last_writes_costs_repetitions_and_no_change() {
    for seed in seeds(8) {
        let broken = World::new(seed, Setup::native()).play(|world| {
            Box::pin(async move {
                let one = world.start("a");
                world.sleep(15).await;
                world.start("b");
                world.write(30, 9, 50).await;
                let pause = world.random.lock().below(9000);
                world.runtime.sleep(Duration::from_millis(pause)).await;
                // The region that takes over has the state of some seconds ago.
                let old = world.leases.export();
                if seed % 2 == 0 {
                    world.kill(one);
                }
                world.write(60, 9, 300).await;
                world.start("c");
                world.write(20, 9, 300).await;
                world.leases.import(old);
                world.oracle.store_forgot();
                world.write(20, 9, 300).await;
                world.sleep(90).await;
                world.finish(60).await;
            })
        });
        // A lease whose acquisition was lost is acquired again while its owner works; the owner notices at its
        // next write.
        let theirs = [Broken::OneWorkerPerRange, Broken::OrderPerKey];
        let ours: Vec<_> = broken.iter().filter(|(what, _)| !theirs.contains(what)).collect();
        assert!(ours.is_empty(), "seed {seed}: {ours:?}");
    }
}

#[test]
fn f48_a_transaction_larger_than_a_batch_comes_whole_and_memory_is_bounded() {
    let setup = Setup::native().with(|setup| {
        setup.ranges = 1;
        setup.options.items_max = Some(2);
        setup.options.batch_items_max = 2;
        setup.options.batch_bytes_max = 1000;
        setup.options.prefetch_pages = 2;
        setup.handler_ms = 3000;
    });
    for seed in seeds(2) {
        let broken = World::new(seed, setup.clone()).play(|world| {
            Box::pin(async move {
                let ids: Vec<String> = (0..40).map(|number| format!("k1-{number}")).collect();
                let items: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "x")).collect();
                world.feed.put("k1", &items);
                let large = "x".repeat(2 << 20);
                for number in 0..20 {
                    world.feed.put("k2", &[(&format!("k2-{number}"), &large)]);
                }
                let one = world.start("a");
                let mut largest = 0;
                while !world.is_complete() {
                    world.runtime.sleep(Duration::from_millis(100)).await;
                    let read = world.counted(one, |counts| counts.bytes_read);
                    let handled: usize =
                        world.oracle.times().keys().filter(|(id, _)| id.starts_with("k2")).count();
                    largest = largest.max(read.saturating_sub(handled * large.len()));
                }
                // Two pages ahead and one in progress, each of two items, plus small items.
                let bound = 6 * large.len() + 100_000;
                assert!(largest <= bound, "{largest} bytes were in memory");
                assert!(largest > 3 * large.len(), "it did read ahead");
                assert_eq!(world.oracle.largest_call(), 40, "one transaction is one batch");
                world.finish(10).await;
            })
        });
        assert!(broken.is_empty(), "seed {seed}: {broken:?}");
    }
}

#[test]
fn f50_a_host_whose_key_is_refused_stops_in_time_and_comes_back_with_the_new_one() {
    check(&Setup::native(), |world| {
        Box::pin(async move {
            let one = world.start("a");
            world.start("b");
            world.sleep(20).await;
            let before = world.oracle.acquisitions();
            world.weather(one, |weather| weather.store_refuses = true);
            world.sleep(6).await;
            assert_eq!(world.oracle.acquisitions(), before, "it keeps its leases for a while");
            world.write(40, 9, 1000).await;
            assert!(closed(&world, &CloseReason::LeaseExpired) > 0, "then it stops");
            world.sleep(5).await;
            assert!(world.is_complete(), "other hosts continue");
            world.clear_skies();
            world.sleep(40).await;
            assert_eq!(world.shares(), [2, 2], "with a valid key it gets its share again");
            // Only the feed rejects the key: leases are kept, because a key may be rotated here and elsewhere.
            let before = world.oracle.acquisitions();
            world.weather(one, |weather| weather.feed_refuses = true);
            world.write(20, 9, 1000).await;
            assert_eq!(world.oracle.acquisitions(), before);
            world.clear_skies();
            world.sleep(20).await;
            world.finish(60).await;
        })
    });
}
