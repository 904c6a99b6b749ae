//! Counts without a filter read no item. They are right after writes, expiry, splits, merges, restarts and the loss of
//! the index.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Random, Simulation};
use headwater_store::query::{Query, QueryPage};
use headwater_store::{
    Account, Container, ContainerDefinition, Epk, ItemWrite, KeyRange, MemoryIndex, Options,
    PageLimit, ScanScope,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Seed, merge_some, open_simulated, rounds, split_some};

const COUNTS: [&str; 8] = [
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT VALUE COUNT(c) FROM c",
    "SELECT COUNT(1) FROM c",
    "SELECT COUNT(1) AS a, COUNT('x') + 1 AS b FROM root r",
    "SELECT VALUE [{\"item\": COUNT(1)}] FROM c",
    "SELECT {\"many\": {\"item\": COUNT(1)}} AS payload FROM c",
    "SELECT VALUE COUNT(1) FROM c WHERE true",
    "SELECT TOP 1 VALUE COUNT(1) FROM c ORDER BY c.n",
];

fn options() -> Options {
    let mut options = Options::default();
    options.maintenance_interval = Duration::ZERO;
    options
}

async fn ask(container: &Container, text: &str, scope: &ScanScope) -> QueryPage {
    let query = Query::parse(text, &[]).unwrap();
    container.query(&query, scope, None, PageLimit::default()).await.unwrap()
}

/// Compares a count with the same count over a filter that reads every item. Returns the number of items read.
async fn check(container: &Container, text: &str, scope: &ScanScope) -> u64 {
    let page = ask(container, text, scope).await;
    assert_eq!((page.items_read, page.bytes_read), (0, 0), "{text} in {scope:?}");
    assert_eq!(page.next, None);
    // Neither an index nor the maintained count can answer this filter.
    let looking = text.replace("WHERE true", "").replace("COUNT(c)", "COUNT(1)");
    let (before, after) = looking.split_once(" FROM ").unwrap();
    let alias = after.split(' ').next().unwrap();
    let alias = if alias == "root" { "root r" } else { alias };
    let order = after.find("ORDER").map_or("", |at| &after[at..]);
    let name = if alias == "c" { "c" } else { "r" };
    let looking = format!("{before} FROM {alias} WHERE IS_STRING({name}.id) {order}");
    let looked = ask(container, &looking, scope).await;
    assert_eq!(page.rows, looked.rows, "{text} in {scope:?}");
    looked.items_read as u64
}

fn half() -> ScanScope {
    let middle = Epk::from_bytes(&[0x1A, 0x33]);
    ScanScope::Hashes(KeyRange::new(Epk::from_bytes(&[]), middle).unwrap())
}

async fn container_of(account: &Account, ttl: Option<i32>, partitions: u32) -> Container {
    let database = account.create_database("db").await.unwrap();
    let mut definition = ContainerDefinition::new("c", "/pk").unwrap();
    if let Some(ttl) = ttl {
        definition = definition.with_default_ttl(ttl);
    }
    database.create_container_with(definition, partitions).await.unwrap()
}

#[tokio::test]
async fn a_count_reads_no_item() {
    let account = Account::ephemeral_with(options()).await.unwrap();
    let container = container_of(&account, None, 3).await;
    for number in 0..100 {
        let item = json!({"id": number.to_string(), "pk": format!("k{}", number % 7), "n": number});
        container.create(item.to_string()).await.unwrap();
    }
    container.delete("k0", "7").await.unwrap();
    container.upsert(r#"{"id":"8","pk":"k1"}"#).await.unwrap();
    let range = ScanScope::Range(container.ranges()[1].id);
    for scope in [ScanScope::Container, range, half(), ScanScope::Key("k3".into())] {
        for text in COUNTS {
            check(&container, text, &scope).await;
        }
    }
    let all = ask(&container, COUNTS[0], &ScanScope::Container).await;
    assert_eq!(all.rows, ["99"]);
    // Counts that depend on the items still read them.
    for text in [
        "SELECT VALUE COUNT(c.n) FROM c",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n > 1",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.list",
        "SELECT c.pk, COUNT(1) FROM c GROUP BY c.pk",
        "SELECT VALUE COUNT(1) FROM c.n",
    ] {
        assert!(ask(&container, text, &ScanScope::Container).await.items_read > 0, "{text}");
    }
    let rows = |text| {
        let container = &container;
        async move { ask(container, text, &ScanScope::Container).await.rows }
    };
    assert_eq!(rows("SELECT VALUE COUNT(undefined) FROM c").await, ["0"]);
    assert_eq!(rows("SELECT VALUE COUNTIF(true) FROM c").await, ["99"]);
    assert_eq!(rows("SELECT VALUE COUNTIF(c) FROM c").await, ["0"]);
    assert_eq!(rows("SELECT TOP 0 VALUE COUNT(1) FROM c").await, [""; 0]);
    assert_eq!(rows("SELECT VALUE COUNT(1) FROM c OFFSET 1 LIMIT 1").await, [""; 0]);
    let staged = "SELECT VALUE x.many * 2 FROM (SELECT COUNT(1) AS many FROM c) AS x";
    assert_eq!(rows(staged).await, ["198"]);
    account.close().await.unwrap();
}

struct World {
    random: Random,
    container: Container,
    alive: BTreeSet<(String, String)>,
    checked: u64,
}

impl World {
    async fn write(&mut self) {
        let (pk, id) = (format!("k{}", self.random.below(4)), self.random.below(12).to_string());
        let ttl = self.random.below(4);
        let mut item = json!({"id": id, "pk": pk, "n": self.random.below(100)});
        if ttl > 0 {
            item["ttl"] = json!(ttl * 2);
        }
        match self.random.below(10) {
            0..6 => {
                self.container.upsert(item.to_string()).await.unwrap();
                self.alive.insert((pk, id));
            }
            6..8 => {
                // The item may not exist, or may have expired.
                let _ = self.container.delete(pk.as_str(), &id).await;
                self.alive.remove(&(pk, id));
            }
            _ => {
                // One item is created and deleted in one transaction, which may also fail as a whole.
                let other = json!({"id": "x", "pk": pk}).to_string();
                let batch = [
                    ItemWrite::create(other),
                    ItemWrite::delete(pk.as_str(), "x"),
                    ItemWrite::create(item.to_string()),
                ];
                if self.container.batch(pk.as_str(), batch.to_vec()).await.is_ok() {
                    self.alive.insert((pk, id));
                }
            }
        }
    }

    async fn check(&mut self) {
        let ranges = self.container.ranges();
        let scope = match self.random.below(4) {
            0 => ScanScope::Container,
            1 => ScanScope::Range(self.random.pick(&ranges).id),
            2 => half(),
            _ => ScanScope::Key(format!("k{}", self.random.below(4)).as_str().into()),
        };
        let text = *self.random.pick(&COUNTS);
        self.checked += check(&self.container, text, &scope).await;
    }
}

#[test]
fn a_count_is_what_a_look_at_every_item_finds() {
    let mut checked = 0;
    for seed in 0..rounds("HEADWATER_SEEDS", 40, 400) {
        let seed = std::env::var("HEADWATER_SEED").map_or(seed, |one| one.parse().unwrap());
        let _seed = Seed(seed);
        let simulation = Simulation::new(seed);
        checked += simulation.clone().run(async move {
            let mut random = simulation.random();
            let options = options();
            let (disk, index) = (MemoryDisk::new(), MemoryIndex::with_history());
            let mut node = simulation.node();
            let mut account = open_simulated(&node, &disk, &index, &options).await;
            let partitions = u32::try_from(1 + random.below(3)).unwrap();
            let ttl = *random.pick(&[None, Some(-1), Some(5)]);
            let container = container_of(&account, ttl, partitions).await;
            let mut world = World { random, container, alive: BTreeSet::new(), checked: 0 };
            for _ in 0..300 {
                match world.random.below(40) {
                    0..20 => world.write().await,
                    20..33 => world.check().await,
                    33..35 => {
                        let wait = Duration::from_millis(world.random.below(3_000));
                        node.runtime().sleep(wait).await;
                    }
                    35 => split_some(&world.container, &mut world.random, 5).await,
                    36 => merge_some(&world.container, &mut world.random).await,
                    37 => account.maintain().await.unwrap(),
                    _ => {
                        account.close().await.unwrap();
                        match world.random.below(3) {
                            0 => index.clear(),
                            1 => index.crash(&mut world.random),
                            _ => {}
                        }
                        node = simulation.node();
                        account = open_simulated(&node, &disk, &index, &options).await;
                        world.container = support::container_of(&account).await;
                    }
                }
            }
            if ttl.is_none() {
                let all = ask(&world.container, COUNTS[0], &ScanScope::Container).await;
                assert_eq!(all.rows, [world.alive.len().to_string()]);
            }
            account.close().await.unwrap();
            world.checked
        });
    }
    assert!(checked > 5_000, "only {checked} items were counted");
}

/// Runs on real threads: pairs of items are created and deleted in one transaction each, while ranges are split. A
/// count of whole ranges is a consistent snapshot, so it never sees half a pair.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_count_is_of_one_moment_while_others_write() {
    let account = Account::ephemeral_with(options()).await.unwrap();
    let container = container_of(&account, None, 1).await;
    let is_over = AtomicBool::new(false);
    let writer = |first: u32| {
        let (container, is_over) = (&container, &is_over);
        async move {
            let mut round = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                let pk = format!("k{}", (first + round) % 9);
                let item =
                    |name: &str| json!({"id": format!("{name}{first}"), "pk": pk}).to_string();
                let pair = vec![ItemWrite::create(item("a")), ItemWrite::create(item("b"))];
                container.batch(pk.as_str(), pair).await.unwrap();
                let ids = [format!("a{first}"), format!("b{first}")];
                let gone = ids.iter().map(|id| ItemWrite::delete(pk.as_str(), id)).collect();
                container.batch(pk.as_str(), gone).await.unwrap();
                round += 1;
            }
        }
    };
    let reader = async {
        for round in 0..rounds("HEADWATER_ROUNDS", 400, 4_000) {
            if round % 100 == 50 {
                container.split(container.ranges()[0].id, None).await.unwrap();
            }
            let page = ask(&container, COUNTS[0], &ScanScope::Container).await;
            assert_eq!(page.items_read, 0);
            let count: Value = serde_json::from_slice(&page.rows[0]).unwrap();
            let count = count.as_u64().unwrap();
            assert!(count.is_multiple_of(2) && count <= 6, "{count}");
            tokio::task::yield_now().await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(reader, writer(0), writer(1), writer(2));
    account.close().await.unwrap();
}
