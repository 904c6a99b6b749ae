//! Splits and merges while a container is in use: readers keep their positions and see no change twice.
//!
//! On the real runtime, writers and readers run while ranges are split and merged. In a simulation, a power cut
//! follows every single disk operation of a split or a merge in turn.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Node, Random, Runtime, Simulation, TaskGroup};
use headwater_store::{
    Account, CatalogError, Change, ChangeKind, Container, ContainerDefinition, Continuation,
    Environment, FeedError, FeedMode, FeedStart, KeyRange, MemoryIndex, Options, PartitionId,
    TopologyError,
};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Reader, Scope, Seed, rounds, scratch};

const RETENTION: Duration = Duration::from_secs(24 * 3600);

fn definition() -> ContainerDefinition {
    ContainerDefinition::new("c", "/pk").unwrap().with_all_versions(RETENTION)
}

fn version_of(change: &Change) -> u64 {
    let item: serde_json::Value = serde_json::from_slice(&change.body()).unwrap();
    item["v"].as_u64().unwrap()
}

// ---- on the real runtime

/// Writes version after version of a few items, and reads each back.
async fn write_until(container: Container, task: u64, stop: Arc<AtomicBool>) -> u64 {
    let runtime = Runtime::system();
    let mut version = 0;
    while !stop.load(Ordering::Relaxed) && version < 100_000 {
        version += 1;
        let (key, id) = (format!("k{task}-{}", version % 5), (version % 3).to_string());
        let body = format!(r#"{{"id":"{id}","pk":"{key}","v":{version}}}"#);
        let written = container.upsert(body).await.unwrap().into_item();
        let read = container.read(key.as_str(), &id).await.unwrap().unwrap();
        assert_eq!(read.etag(), written.etag(), "a writer reads its own write");
        if version % 16 == 0 {
            runtime.sleep(Duration::from_millis(1)).await;
        }
    }
    version
}

/// The changes a reader got: versions by item, in order.
type Seen = HashMap<(String, String), Vec<u64>>;

fn note(seen: &mut Seen, changes: &[Change]) {
    for change in changes {
        let name = (change.partition_key().to_json(), change.id().to_owned());
        seen.entry(name).or_default().push(version_of(change));
    }
}

/// Follows the whole container with waiting reads, until `stop` is set and no changes are left.
async fn follow_container(container: Container, mode: FeedMode, stop: Arc<AtomicBool>) -> Seen {
    let reader = Reader { scope: Scope::Container, mode, page_size: 50 };
    let mut position = Continuation::Single(headwater_store::Lsn::ZERO);
    let mut seen = Seen::new();
    for _ in 0..1_000_000 {
        let stopping = stop.load(Ordering::Acquire);
        let request = reader.request(FeedStart::After(position)).wait(Duration::from_millis(20));
        let page = container.read_feed(&request).await.unwrap();
        position = page.continuation;
        note(&mut seen, &page.changes);
        if stopping && page.changes.is_empty() {
            return seen;
        }
    }
    panic!("the feed does not end");
}

/// Follows range by range, as the SDKs do. A range that is gone is replaced by the ranges that overlap it. Each is
/// read from the position of the old range, and only for the keys of the old range.
async fn follow_ranges(container: Container, mode: FeedMode, stop: Arc<AtomicBool>) -> (Seen, u64) {
    let mut gone = 0;
    let mut seen = Seen::new();
    let mut leases: Vec<(PartitionId, KeyRange, Continuation)> = Vec::new();
    let beginning = Continuation::Single(headwater_store::Lsn::ZERO);
    for range in container.ranges() {
        leases.push((range.id, range.range, beginning.clone()));
    }
    let runtime = Runtime::system();
    for _ in 0..1_000_000 {
        let stopping = stop.load(Ordering::Acquire);
        let mut quiet = true;
        let mut next = Vec::new();
        for (id, range, position) in leases {
            let reader = Reader { scope: Scope::Range(id), mode, page_size: 50 };
            let request = reader.request(FeedStart::After(position.clone()));
            match container.read_feed(&request.of_hashes(range.clone())).await {
                Ok(page) => {
                    quiet &= page.changes.is_empty();
                    note(&mut seen, &page.changes);
                    next.push((id, range, page.continuation));
                }
                Err(FeedError::RangeGone(named)) => {
                    assert_eq!(named, id);
                    (gone, quiet) = (gone + 1, false);
                    for successor in container.ranges() {
                        if let Some(part) = successor.range.intersect(&range) {
                            next.push((successor.id, part, position.clone()));
                        }
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        leases = next;
        if stopping && quiet {
            return (seen, gone);
        }
        runtime.sleep(Duration::from_millis(1)).await;
    }
    panic!("the feed does not end");
}

/// Starts a task; the receiver gets its result.
fn start<T: Send + 'static>(
    group: &TaskGroup,
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::sync::oneshot::Receiver<T> {
    let (answer, result) = tokio::sync::oneshot::channel();
    group.spawn("test", |_| async move {
        let _ = answer.send(task.await);
    });
    result
}

async fn reshape_under_load(account: &Account, reshapes: u64) {
    let database = account.create_database("db").await.unwrap();
    let container = database.create_container_with(definition(), 2).await.unwrap();
    let group = TaskGroup::new(Runtime::system());
    let (writing, reading) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..4)
        .map(|task| start(&group, write_until(container.clone(), task, writing.clone())))
        .collect();
    let (all, latest) = (FeedMode::AllVersionsAndDeletes, FeedMode::LatestVersion);
    let follow = |mode| start(&group, follow_container(container.clone(), mode, reading.clone()));
    let by_range = |mode| start(&group, follow_ranges(container.clone(), mode, reading.clone()));
    let (whole_all, whole_latest) = (follow(all), follow(latest));
    let (ranges_all, ranges_latest) = (by_range(all), by_range(latest));

    // Splits and merges alternate, with two to six ranges.
    let mut random = Random::seeded(1);
    let runtime = Runtime::system();
    for number in 0..reshapes {
        let ranges = container.ranges();
        let at = random.index(ranges.len() - 1);
        let grow = ranges.len() < 3 || (ranges.len() < 6 && number % 3 != 2);
        let done = if grow {
            container.split(ranges[at].id, None).await
        } else {
            container.merge(ranges[at].id, ranges[at + 1].id).await
        };
        done.unwrap();
        let again = container.split(ranges[at].id, None).await;
        let gone = matches!(again, Err(CatalogError::Topology(TopologyError::RangeGone(_))));
        assert!(gone, "{again:?}");
        runtime.sleep(Duration::from_millis(3)).await;
        account.maintain().await.unwrap();
    }
    writing.store(true, Ordering::Release);
    let mut written = Vec::new();
    for writer in writers {
        written.push(writer.await.unwrap());
    }
    reading.store(true, Ordering::Release);
    let (whole_all, whole_latest) = (whole_all.await.unwrap(), whole_latest.await.unwrap());
    let (ranges_all, gone) = ranges_all.await.unwrap();
    let (ranges_latest, _) = ranges_latest.await.unwrap();
    assert!(gone >= reshapes, "readers of ranges saw every reshape: {gone} of {reshapes}");

    let mut expected = Seen::new();
    for (task, versions) in written.iter().enumerate() {
        for version in 1..=*versions {
            let key = format!(r#"["k{task}-{}"]"#, version % 5);
            expected.entry((key, (version % 3).to_string())).or_default().push(version);
        }
    }
    assert_eq!(whole_all, expected, "every version once, in order");
    assert_eq!(ranges_all, expected, "every version once, in order, range by range");
    for seen in [whole_latest, ranges_latest] {
        assert_eq!(seen.len(), expected.len());
        for (name, versions) in seen {
            assert!(versions.is_sorted_by(|one, next| one < next), "{name:?} {versions:?}");
            assert_eq!(versions.last(), expected[&name].last(), "the newest of {name:?}");
        }
    }
    group.shutdown().await;
}

fn busy_options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 16 << 10;
    options.ring_bytes = 8 << 10;
    options.maintenance_interval = Duration::from_millis(20);
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reshaping_an_ephemeral_store_in_use_loses_and_repeats_nothing() {
    let account = Account::ephemeral_with(busy_options()).await.unwrap();
    reshape_under_load(&account, rounds("HEADWATER_RESHAPES", 30, 150)).await;
    account.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reshaping_a_durable_store_in_use_loses_and_repeats_nothing() {
    let dir = scratch();
    let account = Account::open(dir.path(), busy_options()).await.unwrap();
    reshape_under_load(&account, rounds("HEADWATER_RESHAPES", 20, 100)).await;
    let before = account.state_hash().unwrap();
    account.close().await.unwrap();
    drop(account);
    let account = Account::open(dir.path(), busy_options()).await.unwrap();
    assert_eq!(account.state_hash().unwrap(), before);
    // The directories of replaced ranges are removed.
    let containers = std::fs::read_dir(dir.path().join("containers")).unwrap();
    let container = containers.map(|entry| entry.unwrap().path()).next().unwrap();
    let ranges = support::container_of(&account).await.ranges();
    let directories = std::fs::read_dir(container).unwrap();
    let directories = directories.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(directories.count(), ranges.len());
    account.close().await.unwrap();
}

/// A reader waits while its ranges are replaced: it must not wait on a partition without a writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_reader_follows_the_ranges_it_waits_for() {
    let account = Account::ephemeral().await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let group = TaskGroup::new(Runtime::system());
    let runtime = Runtime::system();
    let long = Duration::from_secs(600);
    for round in 0..rounds("HEADWATER_WAITS", 100, 1500) {
        // A new container from time to time, since ancestors add up and make reads slower.
        if round % 25 == 0 {
            let _ = database.drop_container("c").await;
            database.create_container_with(definition(), 1).await.unwrap();
        }
        let container = database.container("c").await.unwrap();
        let range = container.ranges()[0].clone();
        let now = |scope| Reader::latest(scope, 10).request(FeedStart::Now).wait(long);
        let (whole, one) = (now(Scope::Container), now(Scope::Range(range.id)));
        let looker = container.clone();
        let whole = start(&group, async move { looker.read_feed(&whole).await });
        let looker = container.clone();
        let one = start(&group, async move { looker.read_feed(&one).await });
        if round % 3 > 0 {
            runtime.sleep(Duration::from_micros(round % 7 * 50)).await;
        }
        // The reader of the container resolves its partitions while they are replaced.
        let children = container.split(range.id, None).await.unwrap();
        let merged = container.merge(children[0].id, children[1].id).await.unwrap();
        assert_eq!(merged.len(), 1);
        let mut whole = std::pin::pin!(whole);
        let mut page = None;
        for version in 0..20_000 {
            container.upsert(format!(r#"{{"id":"1","pk":"a","v":{version}}}"#)).await.unwrap();
            page = runtime.timeout(Duration::from_millis(1), &mut whole).await;
            if page.is_some() {
                break;
            }
        }
        let page = page.expect("a reader of the container waits on a range that is gone");
        assert!(!page.unwrap().unwrap().changes.is_empty());
        let page = runtime.timeout(Duration::from_secs(20), one).await;
        let page = page.expect("a reader of a range waits although it is gone").unwrap();
        // Whether it was already waiting or began too late.
        let gone = matches!(page, Err(FeedError::RangeGone(id)) if id == range.id);
        assert!(gone, "{page:?}");
    }
    group.shutdown().await;
    account.close().await.unwrap();
}

// ---- in a simulation

/// A store on a disk that can lose power, with a history in it.
struct World {
    simulation: Simulation,
    node: Node,
    disk: MemoryDisk,
    index: MemoryIndex,
    account: Account,
    container: Container,
    /// The newest acknowledged version by item.
    items: BTreeMap<(String, String), u64>,
    /// The write that was in flight when the power was cut.
    unsure: Option<((String, String), u64)>,
    next: u64,
}

impl World {
    async fn new(simulation: Simulation, partitions: u32) -> World {
        let (disk, index) = (MemoryDisk::with_faults(), MemoryIndex::with_history());
        let node = simulation.node();
        let account = open(&node, &disk, &index).await;
        let database = account.create_database("db").await.unwrap();
        let container = database.create_container_with(definition(), partitions).await.unwrap();
        let (items, unsure, next) = (BTreeMap::new(), None, 0);
        let mut world =
            World { simulation, node, disk, index, account, container, items, unsure, next };
        for _ in 0..60 {
            world.write().await;
        }
        world
    }

    /// Writes an item; false if it was not acknowledged.
    async fn write(&mut self) -> bool {
        self.next += 1;
        let version = self.next;
        let name = (format!("k{}", version % 7), (version % 5).to_string());
        let body = format!(r#"{{"id":"{}","pk":"{}","v":{version}}}"#, name.1, name.0);
        // Longer than anything here takes: a longer wait would never end.
        let patience = Duration::from_secs(3600);
        let container = self.container.clone();
        let written = self.node.runtime().timeout(patience, container.upsert(body)).await;
        match written.expect("a write is always answered") {
            Ok(_) => self.items.insert(name, version),
            Err(_) => {
                self.unsure = Some((name, version));
                return false;
            }
        };
        true
    }

    /// Cuts the power and opens the store again.
    async fn crash(&mut self, random: &mut Random) {
        self.node.kill();
        self.disk.crash(random);
        self.index.crash(random);
        self.node = self.simulation.node();
        self.account = open(&self.node, &self.disk, &self.index).await;
        self.container = support::container_of(&self.account).await;
    }

    /// Asserts that feed and scan return exactly the acknowledged items, and that ranges have no gaps.
    async fn check(&mut self) {
        let mut found = BTreeMap::new();
        for ((_, id), item) in support::scan_all(&self.container).await {
            let value: serde_json::Value = item.parse().unwrap();
            let key = value["pk"].as_str().unwrap().to_owned();
            found.insert((key, id), value["v"].as_u64().unwrap());
        }
        if let Some((name, version)) = self.unsure.take()
            && found.get(&name) == Some(&version)
        {
            self.items.insert(name, version);
        }
        assert_eq!(found, self.items);
        let ranges = self.container.ranges();
        assert!(ranges.windows(2).all(|pair| pair[0].range.max() == pair[1].range.min()));
        let mut seen = BTreeMap::new();
        for range in &ranges {
            let reader = Reader::latest(Scope::Range(range.id), 3);
            let read = reader.drain(&self.container, FeedStart::Beginning).await;
            for change in read.unwrap().0 {
                let key = change.partition_key().to_json();
                let name = (key.trim_matches(['[', ']', '"']).to_owned(), change.id().to_owned());
                assert!(seen.insert(name, version_of(&change)).is_none(), "shown twice");
            }
        }
        assert_eq!(seen, self.items, "the feed shows the live items");
    }

    /// Asserts that a reader resumes from its position and gets every version exactly once.
    async fn check_versions(&self, reader: &Halfway) {
        let all = Reader::all_versions(Scope::Container, 4);
        let start = FeedStart::After(reader.position.clone());
        let (changes, _) = all.drain(&self.container, start).await.unwrap();
        let mut versions: Vec<u64> = changes.iter().map(version_of).collect();
        versions.extend(&reader.seen);
        versions.sort_unstable();
        let unsure = self.unsure.as_ref().map(|(_, version)| *version);
        versions.retain(|version| Some(*version) != unsure);
        let all: Vec<u64> = (1..=self.next).filter(|version| Some(*version) != unsure).collect();
        assert_eq!(versions, all, "all versions behind {}", reader.position);
        assert!(changes.iter().all(|change| change.kind() != ChangeKind::Delete));
    }

    /// Reads ten pages of all versions and stops there.
    async fn read_half(&self) -> Halfway {
        let all = Reader::all_versions(Scope::Container, 3);
        let mut position = Continuation::Single(headwater_store::Lsn::ZERO);
        let mut seen = Vec::new();
        for _ in 0..10 {
            let request = all.request(FeedStart::After(position));
            let page = self.container.read_feed(&request).await.unwrap();
            seen.extend(page.changes.iter().map(version_of));
            position = page.continuation;
        }
        Halfway { position, seen }
    }
}

struct Halfway {
    position: Continuation,
    seen: Vec<u64>,
}

async fn open(node: &Node, disk: &MemoryDisk, index: &MemoryIndex) -> Account {
    let environment = Environment {
        runtime: node.runtime(),
        disk: Arc::new(disk.clone()),
        index: Some(index.clone()),
        wrap_log: None,
    };
    let mut options = Options::default();
    options.segment_bytes = 2 << 10;
    options.ring_bytes = 1 << 10;
    options.maintenance_interval = Duration::ZERO;
    Account::open_in(environment, Path::new("store"), options).await.unwrap()
}

#[derive(Clone, Copy, PartialEq)]
enum Reshape {
    Split,
    Merge,
}

/// Splits or merges with a power cut after `changes` disk operations; true if the power was cut before the end.
async fn reshape_without_power(simulation: Simulation, what: Reshape, changes: u64) -> bool {
    let partitions = if what == Reshape::Split { 1 } else { 2 };
    let mut world = World::new(simulation.clone(), partitions).await;
    let mut random = simulation.random();
    let reader = world.read_half().await;
    let ranges = world.container.ranges();
    world.disk.cut_power_after(changes);
    let done = match what {
        Reshape::Split => world.container.split(ranges[0].id, None).await,
        Reshape::Merge => world.container.merge(ranges[0].id, ranges[1].id).await,
    };
    let went_out = world.disk.is_out_of_power();
    assert!(done.is_ok() || went_out, "{done:?}");
    if went_out {
        // A write returns in any state of the partition.
        assert!(!world.write().await, "without power nothing is acknowledged");
    } else {
        world.disk.cut_power_after(u64::MAX);
        assert!(world.write().await, "a reshape that is done takes writes");
    }
    world.crash(&mut random).await;
    world.check_versions(&reader).await;
    world.check().await;
    let ranges = world.container.ranges().len();
    if done.is_ok() {
        assert_eq!(ranges, if what == Reshape::Split { 2 } else { 1 });
    } else {
        assert!((1..=2).contains(&ranges));
    }
    // The store works as before.
    for _ in 0..10 {
        assert!(world.write().await);
    }
    let first = world.container.ranges()[0].id;
    world.container.split(first, None).await.unwrap();
    assert!(world.write().await);
    world.check().await;
    went_out
}

fn every_step(what: Reshape) {
    let seeds = rounds("HEADWATER_SEEDS", 1, 10);
    for seed in 0..seeds {
        let mut steps = 0;
        for changes in 0..500 {
            let _seed = Seed(seed * 1000 + changes);
            let simulation = Simulation::new(seed * 1000 + changes);
            let run = reshape_without_power(simulation.clone(), what, changes);
            if !simulation.run(run) {
                break;
            }
            steps = changes + 1;
        }
        assert!((10..500).contains(&steps), "{steps} changes make a reshape");
    }
}

#[test]
fn a_split_survives_a_power_cut_after_every_step() {
    every_step(Reshape::Split);
}

#[test]
fn a_merge_survives_a_power_cut_after_every_step() {
    every_step(Reshape::Merge);
}

/// A caller may be cancelled at any await. The partition must not stay sealed then.
#[test]
fn a_split_or_merge_whose_caller_is_cancelled_is_finished() {
    for seed in 0..rounds("HEADWATER_SEEDS", 20, 200) {
        let _seed = Seed(seed);
        let simulation = Simulation::new(seed);
        simulation.run(give_up_waiting(simulation.clone()));
    }
}

async fn give_up_waiting(simulation: Simulation) {
    let mut world = World::new(simulation.clone(), 1).await;
    let runtime = world.node.runtime();
    let parent = world.container.ranges()[0].id;
    let split = world.container.split(parent, None);
    assert!(runtime.timeout(Duration::ZERO, split).await.is_none(), "given up at the first await");
    assert!(world.write().await);
    runtime.sleep(Duration::from_secs(1)).await;
    let ranges = world.container.ranges();
    assert_eq!(ranges.len(), 2);
    let merge = world.container.merge(ranges[0].id, ranges[1].id);
    assert!(runtime.timeout(Duration::ZERO, merge).await.is_none());
    assert!(world.write().await);
    runtime.sleep(Duration::from_secs(1)).await;
    assert_eq!(world.container.ranges().len(), 1);
    world.check().await;
}
