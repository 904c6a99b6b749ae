//! A soak test: concurrent writers, feed readers and hostile clients, on a server with splits, merges and
//! kills. At the end the feed must match the acknowledged writes, and every reader must have seen it.
//!
//! ```text
//! world     the server as a process: killed, restarted, its memory and its panics
//! writers   every kind of write, recorded with its answer
//! readers   both modes, by range, by key, of the container, waiting or not; events: server-sent ones
//! hostile   everything a client must not do
//! judge     compares; the only part that decides, with tests of its own
//! ```
//!
//! Here it takes about twenty seconds. `cargo xtask soak --minutes 10 --seed 7` is the long one.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod events;
mod hostile;
mod judge;
mod readers;
#[path = "../support/mod.rs"]
mod support;
mod world;
mod writers;

use headwater_client::{FeedFrom, FeedRead, FeedScope};
use headwater_model::FeedMode;
use headwater_runtime::{Random, Runtime};
use judge::{Extent, Item, Print, Seen, Truth, Write};
use readers::{Log, Plan, Scope};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use world::World;
use writers::{Written, partition_key, print};

const WRITERS: u64 = 6;
const HOSTILE: u64 = 6;
const RANGES_MAX: usize = 8;
/// Memory limit: far above the needs of a server of this size, far below the effect of an unbounded attack, such
/// as bodies of 100 MiB or buffers of a million connections.
const MEMORY_KIB_MAX: u64 = 1 << 20;
/// Time without progress of any reader, after writing is over, that fails the test.
const STILL_TIME: Duration = Duration::from_secs(120);

fn setting(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => otherwise,
    }
}

/// All readers, with what each must have seen.
fn plans(seed: u64) -> Vec<Plan> {
    let mut plans = Vec::new();
    for mode in [FeedMode::LatestVersion, FeedMode::AllVersionsAndDeletes] {
        for (scope, seconds, whole) in [
            (Scope::Ranges, 0, true),
            (Scope::Ranges, 1, true),
            (Scope::Container, 0, true),
            (Scope::Container, 5, true),
            (Scope::Key(0), 5, true),
            (Scope::Key(7), 0, true),
            (Scope::Container, 2, false),
        ] {
            // What a reader of latest versions may miss from now on cannot be determined from outside.
            if whole || mode == FeedMode::AllVersionsAndDeletes {
                let (wait, number) = (Duration::from_secs(seconds), plans.len() as u64);
                plans.push(Plan { scope, mode, whole, wait, seed: seed + 1000 + number });
            }
        }
    }
    plans
}

#[test]
fn a_soak_ends_with_the_feed_equal_to_the_acknowledged_writes() {
    let executor =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    executor.block_on(soak());
}

async fn soak() {
    let seconds = setting("HEADWATER_SOAK_SECONDS", 20);
    let seed = setting("HEADWATER_SOAK_SEED", 1);
    println!("soaking for {seconds} s with seed {seed}");
    let runtime = Runtime::system();
    let world = Arc::new(World::start(runtime).await);
    let attacks: Vec<_> = (0..HOSTILE)
        .map(|n| world.begin("hostile", hostile::attack(world.clone(), seed + 2000 + n)))
        .collect();
    let writing: Vec<_> = (0..WRITERS)
        .map(|n| world.begin("writer", writers::write(world.clone(), n, seed + n)))
        .collect();
    let plans = plans(seed);
    let following: Vec<_> = plans
        .iter()
        .map(|plan| world.begin("reader", readers::follow(world.clone(), plan.clone())))
        .collect();
    let modes = [FeedMode::LatestVersion, FeedMode::AllVersionsAndDeletes];
    let listening = modes.map(|mode| world.begin("listener", events::listen(world.clone(), mode)));

    disturb(&world, seconds, seed).await;
    world.end_writing();
    let mut written = Vec::new();
    for writer in writing {
        written.push(writer.await.expect("a writer does not panic"));
    }
    let mut writes: Vec<Write> =
        written.iter_mut().flat_map(|one| std::mem::take(&mut one.writes)).collect();
    writes.extend(writers::write_ends(&world).await);
    let mut tally = hostile::Tally::new();
    for attack in attacks {
        hostile::add(&mut tally, attack.await.expect("a hostile client does not panic"));
    }
    tally.iter().for_each(|(trick, statuses)| println!("hostile: {trick}, answered {statuses:?}"));
    report(&world, &written, &writes);

    let truth = Truth::establish(read_everything(&world).await, &writes);
    let truth = truth.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    println!("the feed has {} changes, and they are the acknowledged ones", truth.len());
    for (plan, log) in plans.iter().zip(following) {
        let log = caught_up(&world, log, plan).await;
        let pages = log.pages;
        let verdict = judge(&truth, plan, log);
        assert_eq!(verdict, Ok(()), "seed {seed}: {plan:?}");
        println!("seen on {pages} pages by {plan:?}");
    }
    let everything = plans[0].keys();
    for (mode, log) in modes.into_iter().zip(listening) {
        let plan = Plan { mode, ..plans[2].clone() };
        let log = caught_up(&world, log, &plan).await;
        assert_eq!(judge(&truth, &plan, log), Ok(()), "seed {seed}: events, {mode:?}");
    }
    let late = follow_now(&world, FeedMode::LatestVersion).await;
    assert_eq!(truth.check_existing(&everything, late), Ok(()), "seed {seed}: a late reader");
    check_point_reads(&world, truth.existing()).await;

    let peak = world.peak_kib();
    println!("the server had at most {} MiB, over {} starts", peak >> 10, world.starts());
    assert_eq!(world.complaints(), Vec::<String>::new(), "seed {seed}");
    assert_eq!(world.finish(), Vec::<String>::new(), "seed {seed}: the server panicked");
    assert!(peak < MEMORY_KIB_MAX, "seed {seed}: the server had {peak} KiB");
}

/// Splits, merges and kills until the time is over; the last quarter has no kills.
async fn disturb(world: &Arc<World>, seconds: u64, seed: u64) {
    let mut random = Random::seeded(seed + 3000);
    let begun = world.runtime.elapsed();
    let (steps, kills) = ((seconds / 4).clamp(4, 120), (seconds / 60).max(1));
    let kill_every = (steps * 3 / 4 / kills).max(1);
    for step in 1..=steps {
        let until = begun + Duration::from_secs(seconds).mul_f64(step as f64 / steps as f64);
        world.runtime.sleep(until.saturating_sub(world.runtime.elapsed())).await;
        if step % kill_every == 0 && step <= steps * 3 / 4 {
            world.kill_and_restart().await;
        } else {
            reshape(world, &mut random).await;
        }
    }
}

async fn reshape(world: &World, random: &mut Random) {
    let items = world.items();
    let ranges = items.refresh_ranges().await.unwrap();
    let done = if ranges.len() < 3 || (ranges.len() < RANGES_MAX && random.chance(60)) {
        items.split(random.pick(&ranges).id, None).await
    } else {
        let at = random.index(ranges.len() - 1);
        items.merge(ranges[at].id, ranges[at + 1].id).await
    };
    if let Err(error) = done {
        world.complain(format!("ranges could not be reshaped: {error}"));
    }
}

fn report(world: &World, written: &[Written], writes: &[Write]) {
    let mut micros = written[0].micros.clone();
    written[1..].iter().for_each(|one| micros.add(&one.micros).unwrap());
    let refused: u64 = written.iter().map(|one| one.refused).sum();
    let unknown: u64 = written.iter().map(|one| one.unknown).sum();
    let acknowledged = writes.iter().filter(|write| write.acknowledged).count();
    println!(
        "{acknowledged} changes acknowledged, {refused} requests refused as expected, {unknown} \
         without an answer; p50 {} ms, p99 {} ms, max {} ms; {} starts",
        micros.value_at_quantile(0.5) / 1000,
        micros.value_at_quantile(0.99) / 1000,
        micros.max() / 1000,
        world.starts()
    );
}

/// Waits for a reader as long as any reader makes progress, because the speed depends on the machine.
async fn caught_up(world: &World, mut log: oneshot::Receiver<Log>, plan: &Plan) -> Log {
    loop {
        let before = world.pages();
        if let Some(log) = world.runtime.timeout(STILL_TIME, &mut log).await {
            return log.expect("a reader does not panic");
        }
        let complaints = world.complaints();
        assert!(world.pages() > before, "{plan:?} never saw the end: {complaints:?}");
    }
}

fn judge(truth: &Truth, plan: &Plan, log: Log) -> judge::Verdict {
    let extent = if plan.whole { Extent::Whole } else { Extent::End };
    match plan.mode {
        FeedMode::LatestVersion => truth.check_latest(&plan.keys(), log.seen),
        FeedMode::AllVersionsAndDeletes => truth.check_all(&plan.keys(), log.seen, extent),
    }
}

/// Reads all versions from the beginning, range by range.
async fn read_everything(world: &Arc<World>) -> Vec<Seen> {
    follow_now(world, FeedMode::AllVersionsAndDeletes).await
}

/// Reads what a reader sees that starts now, from the beginning.
async fn follow_now(world: &Arc<World>, mode: FeedMode) -> Vec<Seen> {
    let items = world.items();
    let mut log = Log::new(mode, &[]);
    for range in items.refresh_ranges().await.unwrap().iter() {
        let mut from = match mode {
            FeedMode::LatestVersion => FeedFrom::Beginning,
            FeedMode::AllVersionsAndDeletes => FeedFrom::After("\"0\"".to_owned()),
        };
        loop {
            let read = FeedRead::new(FeedScope::Range(range.id), from).mode(mode);
            let page = items.read_feed(&read).await.unwrap();
            if page.changes.is_empty() {
                break;
            }
            log.add(page.changes.iter().map(|bytes| serde_json::from_slice(bytes).unwrap()));
            from = FeedFrom::After(page.etag);
        }
    }
    log.seen
}

/// Checks that point reads match the last version in the feed.
async fn check_point_reads(world: &World, existing: Vec<(Item, Print)>) {
    let items = world.items();
    for ((key, id), expected) in existing {
        let stored = items.read(&partition_key(&key), &id).await.unwrap();
        let stored = stored.unwrap_or_else(|| panic!("{key}/{id} is in the feed and not there"));
        let body = serde_json::from_slice(&stored.body).unwrap();
        assert_eq!(print(&body), expected, "{key}/{id}");
    }
}
