//! Power cuts after every single disk operation of a store, beginning with its empty data directory.
//!
//! A short workload runs on a disk that loses unsynced file contents, names and whole directories, in any order. After
//! each cut the store is opened again. It must open with nothing quarantined, and with the data that its durability
//! level guarantees:
//!
//! ```text
//! fsync   everything that was acknowledged
//! os      per partition a prefix of what was acknowledged; all databases and containers
//! ```

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_runtime::{Random, Simulation};
use headwater_store::{
    Account, Change, Container, ContainerDefinition, Durability, Environment, FeedStart,
    MemoryDisk, MemoryIndex, Options,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{Reader, Scope, rounds};

const ROOT: &str = "store";
/// Number of writes to each container.
const WRITES: u64 = 12;

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options.segment_bytes = 1 << 10;
    options.ring_bytes = 0;
    options.maintenance_interval = Duration::ZERO;
    options
}

/// A simulated machine with its disk and the index.
struct Machine {
    simulation: Simulation,
    disk: MemoryDisk,
    index: MemoryIndex,
    durability: Durability,
}

/// The operations acknowledged before the power cut.
#[derive(Clone, Debug, Default)]
struct Acknowledged {
    /// Containers, and whether they were dropped.
    containers: BTreeMap<String, bool>,
    /// The last call, if it was not acknowledged.
    undecided: Option<String>,
    /// The versions by container and partition key, in order.
    writes: BTreeMap<(String, String), Vec<u64>>,
}

impl Machine {
    fn new(durability: Durability) -> Machine {
        let (disk, index) = (MemoryDisk::with_faults(), MemoryIndex::with_history());
        Machine { simulation: Simulation::new(7), disk, index, durability }
    }

    /// Opens the store in a new simulated process, runs `work`, and kills the process.
    fn run<F: Future<Output: Send> + Send + 'static>(
        &self,
        work: impl FnOnce(Account) -> F + Send + 'static,
    ) -> Result<F::Output, String> {
        let node = self.simulation.node();
        let environment = Environment {
            runtime: node.runtime(),
            disk: Arc::new(self.disk.clone()),
            index: Some(self.index.clone()),
            wrap_log: None,
        };
        let options = options(self.durability);
        self.simulation.run(async move {
            let account = Account::open_in(environment, Path::new(ROOT), options).await;
            let result = match account {
                Ok(account) => Ok(work(account).await),
                Err(error) => Err(error.to_string()),
            };
            node.kill();
            result
        })
    }

    fn lose_power(&self, random: &mut Random) {
        self.disk.crash(random);
        match random.below(3) {
            0 => self.index.clear(),
            1 => self.index.crash(random),
            // The index keeps all its rows, so it may be ahead of the log.
            _ => {}
        }
    }
}

/// The workload: creates, writes, splits, merges and drops. Stops at the first call that fails and returns what was
/// acknowledged.
async fn live(account: &Account) -> Acknowledged {
    let mut known = Acknowledged::default();
    let Ok(database) = account.create_database("db").await else { return known };
    for (name, partitions) in [("one", 1), ("two", 2), ("gone", 1)] {
        known.undecided = Some(name.to_owned());
        let definition = ContainerDefinition::new(name, "/pk").unwrap();
        let Ok(container) = database.create_container_with(definition, partitions).await else {
            return known;
        };
        known.containers.insert(name.to_owned(), false);
        known.undecided = None;
        for number in 0..WRITES {
            let key = format!("k{}", number % 3);
            let body = format!(r#"{{"id":"{}","pk":"{key}","v":{number}}}"#, number % 2);
            // Recorded before the write, because an unacknowledged version may exist.
            known.writes.entry((name.to_owned(), key)).or_default().push(number);
            if container.upsert(body).await.is_err() {
                known.undecided = Some(format!("write {name} {number}"));
                return known;
            }
        }
        if account.maintain().await.is_err() {
            return known;
        }
        if name == "one" {
            let ranges = container.ranges();
            let Ok(children) = container.split(ranges[0].id, None).await else { return known };
            if container.merge(children[0].id, children[1].id).await.is_err() {
                return known;
            }
        }
    }
    known.undecided = Some("gone".to_owned());
    if database.drop_container("gone").await.is_ok() {
        known.containers.insert("gone".to_owned(), true);
        known.undecided = None;
        let _ = account.close().await;
    }
    known
}

/// Compares the store with what was acknowledged.
async fn check(
    account: &Account,
    known: &Acknowledged,
    durability: Durability,
) -> Result<(), String> {
    let quarantined = account.quarantined();
    if !quarantined.is_empty() {
        return Err(format!("{quarantined:?}"));
    }
    if known.containers.is_empty() {
        return Ok(());
    }
    let database = account.database("db").await.map_err(|error| error.to_string())?;
    for (name, is_dropped) in &known.containers {
        let undecided = known.undecided.as_ref() == Some(name);
        let container = match database.container(name).await {
            Ok(_) if *is_dropped => return Err(format!("{name} was dropped and exists again")),
            Ok(container) => container,
            Err(_) if *is_dropped || undecided => continue,
            Err(error) => return Err(error.to_string()),
        };
        let of_container = known.writes.iter().filter(|((of, _), _)| of == name);
        for ((_, key), versions) in of_container {
            let last = known.undecided.as_ref()
                == Some(&format!("write {name} {}", versions[versions.len() - 1]));
            check_key(&container, key, versions, last, durability).await?;
        }
        check_feed(&container).await?;
        // The container takes writes.
        let body = r#"{"id":"after","pk":"k0"}"#;
        container.upsert(body).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Checks one partition key: its items have the state after a prefix of its versions, or after all of them if the
/// durability level guarantees that.
async fn check_key(
    container: &Container,
    key: &str,
    versions: &[u64],
    last_is_undecided: bool,
    durability: Durability,
) -> Result<(), String> {
    let mut found = BTreeMap::new();
    for id in ["0", "1"] {
        let item = container.read(key, id).await.map_err(|error| error.to_string())?;
        if let Some(item) = item {
            let body = String::from_utf8(item.to_bytes().to_vec()).unwrap();
            let version = body.split(r#""v":"#).nth(1).unwrap();
            let version: u64 = version.split([',', '}']).next().unwrap().parse().unwrap();
            found.insert(id.to_owned(), version);
        }
    }
    let certain = match durability {
        Durability::Os => 0,
        _ => versions.len() - usize::from(last_is_undecided),
    };
    let is_possible = (certain..=versions.len()).any(|count| {
        let state: BTreeMap<String, u64> =
            versions[..count].iter().map(|version| ((version % 2).to_string(), *version)).collect();
        state == found
    });
    if is_possible { Ok(()) } else { Err(format!("{key}: {versions:?}, but found {found:?}")) }
}

/// Checks that the feed returns only items that point reads return, at the same LSNs.
async fn check_feed(container: &Container) -> Result<(), String> {
    for range in container.ranges() {
        let reader = Reader::latest(Scope::Range(range.id), 3);
        let read = reader.drain(container, FeedStart::Beginning).await;
        let (changes, _) = read.map_err(|error| error.to_string())?;
        for change in changes {
            let (id, body) = (change.id().to_owned(), change.body());
            let text = String::from_utf8_lossy(&body).into_owned();
            let key = text.split(r#""pk":""#).nth(1).unwrap().split('"').next().unwrap();
            let item = container.read(key, &id).await.map_err(|error| error.to_string())?;
            let item =
                item.ok_or_else(|| format!("the feed returns {key}/{id}, which does not exist"))?;
            if item.lsn() != change.lsn() {
                return Err(format!(
                    "{key}/{id} is at {}, in the feed at {}",
                    item.lsn(),
                    change.lsn()
                ));
            }
        }
    }
    Ok(())
}

/// The LSNs of all items by point reads, for two ids in each of two partition keys.
async fn positions(container: &Container) -> BTreeMap<(String, String), u64> {
    let mut found = BTreeMap::new();
    for (key, id) in [("k0", "0"), ("k0", "1"), ("k1", "0"), ("k1", "1")] {
        if let Some(item) = container.read(key, id).await.unwrap() {
            found.insert((key.to_owned(), id.to_owned()), item.lsn().get());
        }
    }
    found
}

/// The LSNs of all items by the feed from the beginning.
async fn positions_in_feed(container: &Container) -> BTreeMap<(String, String), u64> {
    let reader = Reader::latest(Scope::Container, 3);
    let (changes, _) = reader.drain(container, FeedStart::Beginning).await.unwrap();
    let position = |change: &Change| {
        let key: [String; 1] = serde_json::from_str(&change.partition_key().to_json()).unwrap();
        let [key] = key;
        ((key, change.id().to_owned()), change.lsn().get())
    };
    changes.iter().map(position).collect()
}

/// Writes and deletes items of `positions` at random.
async fn write_at_random(container: &Container, random: &mut Random) {
    for number in 0..2 + random.below(8) {
        let (key, id) = (format!("k{}", random.below(2)), random.below(2).to_string());
        if random.chance(30) {
            // Deleting an item that does not exist fails; this test ignores that.
            let _ = container.delete(key.as_str(), &id).await;
        } else {
            let body = format!(r#"{{"id":"{id}","pk":"{key}","v":{number}}}"#);
            container.upsert(body).await.unwrap();
        }
    }
}

/// After a first power cut the index is ahead of its log. After a second one, its old rows must not come back, although
/// the LSNs of the log cover them by then.
#[test]
fn an_index_that_was_ahead_of_its_log_does_not_come_back() {
    for seed in 0..rounds("HEADWATER_CRASHES", 150, 2_000) {
        let machine = Machine::new(Durability::Os);
        let mut random = Random::seeded(seed);
        let mut work = Random::seeded(random.number());
        machine
            .run(|account| async move {
                let database = account.create_database("db").await.unwrap();
                let definition = ContainerDefinition::new("c", "/pk").unwrap();
                let container = database.create_container_with(definition, 1).await.unwrap();
                write_at_random(&container, &mut work).await;
            })
            .unwrap();
        machine.disk.crash(&mut random);
        let mut work = Random::seeded(random.number());
        machine
            .run(|account| async move {
                write_at_random(&support::container_of(&account).await, &mut work).await;
            })
            .unwrap();
        machine.disk.crash(&mut random);
        machine.index.crash(&mut random);
        let found = machine.run(|account| async move {
            let container = support::container_of(&account).await;
            (positions(&container).await, positions_in_feed(&container).await)
        });
        let (items, feed) = found.unwrap();
        assert_eq!(items, feed, "seed {seed}: point reads and the feed");
    }
}

fn cut_power_at_every_step(durability: Durability) {
    let crashes = rounds("HEADWATER_CRASHES", 1, 10);
    // A debug build cuts at every third step only, which is enough to detect each kind of failure.
    let stride = rounds("HEADWATER_STRIDE", 3, 1);
    for steps in (1..10_000).step_by(usize::try_from(stride).unwrap()) {
        for crash in 0..crashes {
            let machine = Machine::new(durability);
            machine.disk.cut_power_after(steps);
            let known = machine.run(|account| async move { live(&account).await });
            let is_out = machine.disk.is_out_of_power();
            let known = known.unwrap_or_default();
            let mut random = Random::seeded(steps * 1_000 + crash);
            machine.lose_power(&mut random);
            let checked = known.clone();
            let found = machine
                .run(move |account| async move { check(&account, &checked, durability).await })
                .and_then(|found| found);
            assert_eq!(
                found,
                Ok(()),
                "{durability:?}, power cut after step {steps}, crash {crash}"
            );
            if !is_out {
                assert!(steps > 100, "nothing was done in {steps} steps");
                return;
            }
        }
    }
    panic!("the workload never ended before the power cut");
}

#[test]
fn nothing_acknowledged_is_lost_from_the_empty_directory_on() {
    cut_power_at_every_step(Durability::Fsync);
}

#[test]
fn with_durability_os_a_power_cut_leaves_a_prefix_that_opens() {
    cut_power_at_every_step(Durability::Os);
}
