//! Model test of the change feed: random histories, every scope, every page size, both modes.
//!
//! The model is a list of all changes. It gives the expected result of a reader in a few lines: the newest version
//! of every live item, or every version, in a scope, after a position. Histories write, patch, delete and batch, let
//! items expire on a virtual clock, compact, split, merge, restart, are killed and lose their index. Readers with old
//! positions follow.
//!
//! One seed is one history. `HEADWATER_SEEDS` sets their number, `HEADWATER_SEED` runs a single one.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod history;
mod model;
mod readers;
#[path = "../support/mod.rs"]
mod support;

use bytes::Bytes;
use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Node, Random, Simulation};
use headwater_store::{
    Account, Container, ContainerDefinition, Continuation, FeedMode, Lsn, MemoryIndex, Options,
    PartitionKey, PartitionKeyDefinition, RangeInfo,
};
use model::{Model, Name};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use support::{Seed, open_simulated, rounds};

struct World {
    random: Random,
    simulation: Simulation,
    node: Node,
    disk: MemoryDisk,
    index: MemoryIndex,
    options: Options,
    account: Account,
    container: Container,
    levels: bool,
    ttl: Option<i32>,
    retention: Duration,
    model: Model,
    followers: Vec<Follower>,
    reshaped: bool,
    next_value: u64,
}

/// A reader that keeps its position and a copy of the items it has read.
struct Follower {
    mode: FeedMode,
    position: Continuation,
    copy: BTreeMap<Name, Bytes>,
    started_over: bool,
}

impl World {
    async fn new(simulation: Simulation) -> World {
        let mut random = simulation.random();
        let mut options = Options::default();
        options.segment_bytes = *random.pick(&[1 << 10, 3 << 10, 20 << 10]);
        options.ring_bytes = *random.pick(&[0, 600, 5_000, 1 << 20]);
        options.maintenance_interval = Duration::ZERO;
        options.compaction_dead_percent = *random.pick(&[1, 25, 60]);
        let levels = random.chance(40);
        let key = if levels {
            PartitionKeyDefinition::multi_hash(&["/t", "/u"]).unwrap()
        } else {
            PartitionKeyDefinition::hash("/t").unwrap()
        };
        let mut definition = ContainerDefinition::with_partition_key("c", &key).unwrap();
        let ttl = *random.pick(&[None, Some(-1), Some(40)]);
        if let Some(seconds) = ttl {
            definition = definition.with_default_ttl(seconds);
        }
        // Retention from the policy, from the store's options, or the default.
        let retention = match random.below(5) {
            0 => {
                options.history = Duration::ZERO;
                Duration::ZERO
            }
            1 | 2 => {
                let retention = Duration::from_secs(*random.pick(&[300, 1_000_000]));
                definition = definition.with_all_versions(retention);
                retention
            }
            3 => {
                options.history = Duration::from_secs(300);
                options.history
            }
            _ => options.history,
        };
        let (disk, index) = (MemoryDisk::new(), MemoryIndex::default());
        let node = simulation.node();
        let account = open_simulated(&node, &disk, &index, &options).await;
        let database = account.create_database("db").await.unwrap();
        let partitions = u32::try_from(1 + random.below(3)).unwrap();
        let container = database.create_container_with(definition, partitions).await.unwrap();
        let mut followers = Vec::new();
        for mode in [FeedMode::LatestVersion, FeedMode::AllVersionsAndDeletes] {
            let position = Continuation::Single(Lsn::ZERO);
            let copy = BTreeMap::new();
            followers.push(Follower { mode, position, copy, started_over: false });
        }
        let model = Model::default();
        World {
            random,
            simulation,
            node,
            disk,
            index,
            options,
            account,
            container,
            levels,
            ttl,
            retention,
            model,
            followers,
            reshaped: false,
            next_value: 0,
        }
    }

    fn now(&self) -> u64 {
        self.node.runtime().unix_millis() / 1000
    }

    fn key_definition(&self) -> PartitionKeyDefinition {
        self.container.definition().partition_key().clone()
    }

    fn random_key(&mut self) -> PartitionKey {
        let top = format!("t{}", self.random.below(4));
        if self.levels {
            let low = format!("u{}", self.random.below(3));
            [top.as_str(), low.as_str()].into()
        } else {
            top.as_str().into()
        }
    }

    fn random_id(&mut self) -> String {
        self.random.below(7).to_string()
    }

    fn epk(&self, key: &PartitionKey) -> Vec<u8> {
        self.key_definition().epk(key).unwrap().as_bytes().to_vec()
    }

    fn range_of(&self, epk: &[u8]) -> RangeInfo {
        self.container.ranges().into_iter().find(|range| range.range.contains(epk)).unwrap()
    }

    /// A random item.
    fn random_item(&mut self, key: &PartitionKey, id: &str) -> Value {
        self.next_value += 1;
        let parts: Value = serde_json::from_str(&key.to_json()).unwrap();
        let mut item = json!({ "id": id, "t": parts[0], "v": self.next_value });
        if self.levels {
            item["u"] = parts[1].clone();
        }
        item["p"] = json!("p".repeat(self.random.index(120)));
        if self.random.chance(30) {
            item["ttl"] = self.random.pick(&[json!(-1), json!(5), json!(60), json!(500)]).clone();
        }
        item
    }

    fn expires(&self, item: &Value, second: u64) -> Option<u64> {
        let default = i64::from(self.ttl?);
        let seconds = item.get("ttl").map_or(default, |ttl| ttl.as_i64().unwrap());
        u64::try_from(seconds).ok().map(|seconds| second + seconds)
    }

    async fn step(&mut self) {
        match self.random.below(100) {
            0..50 => self.write_one().await,
            50..60 => self.write_batch().await,
            60..63 => self.delete_key().await,
            63..70 => {
                let seconds = *self.random.pick(&[0, 1, 3, 10, 30, 400]);
                let wait = Duration::from_millis(seconds * 1000 + self.random.below(999));
                self.node.runtime().sleep(wait).await;
            }
            70..76 => self.maintain().await,
            76..79 => self.split().await,
            79..82 => self.merge().await,
            82..85 => self.restart().await,
            85..90 => self.follow().await,
            90..93 => self.check_reads().await,
            93..95 => self.check_time().await,
            _ => self.check_scope().await,
        }
    }
}

async fn live_through(simulation: Simulation, steps: u64) -> usize {
    let mut world = World::new(simulation).await;
    for _ in 0..steps {
        world.step().await;
    }
    world.follow().await;
    for _ in 0..6 {
        world.check_scope().await;
        world.check_time().await;
    }
    world.check_reads().await;
    world.account.close().await.unwrap();
    world.model.versions.len()
}

#[test]
fn every_reader_of_every_history_sees_what_the_model_says() {
    let only = std::env::var("HEADWATER_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = rounds("HEADWATER_SEEDS", 60, 1500);
    let range: Vec<u64> = only.map_or_else(|| (0..seeds).collect(), |seed| vec![seed]);
    let mut versions = 0;
    for seed in range {
        let _seed = Seed(seed);
        let simulation = Simulation::new(seed);
        versions += simulation.run(live_through(simulation.clone(), 250));
    }
    assert!(versions > 30, "a history without changes proves nothing");
}
