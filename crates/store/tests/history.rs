//! History of containers without a policy: what the all-versions feed retains, for how long, and the error for
//! a reader with an older position.
//!
//! Runs in a simulation, because the retention is a day.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Node, Simulation};
use headwater_store::{
    Account, Change, Container, ContainerDefinition, Continuation, FeedError, FeedStart, Lsn,
    MemoryIndex, Options,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;
use support::{Reader, Scope, container_of, open_simulated};

const KEYS: u64 = 12;

/// A store with tiny segments and without background maintenance.
struct Stage {
    simulation: Simulation,
    node: Node,
    disk: MemoryDisk,
    index: MemoryIndex,
    options: Options,
    account: Account,
    container: Container,
    /// Versions by partition key, in the order they were written.
    written: BTreeMap<String, Vec<u64>>,
    next: u64,
}

impl Stage {
    async fn new(simulation: &Simulation, change: impl FnOnce(&mut Options)) -> Stage {
        let mut options = Options::default();
        options.segment_bytes = 4 << 10;
        options.maintenance_interval = Duration::ZERO;
        change(&mut options);
        let (node, disk, index) = (simulation.node(), MemoryDisk::new(), MemoryIndex::default());
        let account = open_simulated(&node, &disk, &index, &options).await;
        let database = account.create_database("db").await.unwrap();
        let definition = ContainerDefinition::new("c", "/pk").unwrap();
        let container = database.create_container(definition).await.unwrap();
        let (simulation, written) = (simulation.clone(), BTreeMap::new());
        Stage { simulation, node, disk, index, options, account, container, written, next: 0 }
    }

    /// Writes one more version of every item.
    async fn write_round(&mut self) {
        for key in 0..KEYS {
            self.write(&format!("k{key}")).await;
        }
    }

    async fn write(&mut self, key: &str) {
        self.next += 1;
        let version = self.next;
        let pad = "p".repeat(100);
        let body = format!(r#"{{"id":"i","pk":"{key}","v":{version},"pad":"{pad}"}}"#);
        self.container.upsert(body).await.unwrap();
        self.written.entry(key.to_owned()).or_default().push(version);
    }

    async fn restart(&mut self) {
        self.account.close().await.unwrap();
        self.node = self.simulation.node();
        self.account = open_simulated(&self.node, &self.disk, &self.index, &self.options).await;
        self.container = container_of(&self.account).await;
    }

    async fn split_all(&mut self) {
        for range in self.container.ranges() {
            self.container.split(range.id, None).await.unwrap();
        }
    }

    async fn merge_first(&mut self) {
        let ranges = self.container.ranges();
        self.container.merge(ranges[0].id, ranges[1].id).await.unwrap();
    }

    async fn read(&self, start: FeedStart) -> Result<BTreeMap<String, Vec<u64>>, FeedError> {
        let reader = Reader::all_versions(Scope::Container, 7);
        let (changes, _) = reader.drain(&self.container, start).await?;
        let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for change in &changes {
            let key = change.partition_key().to_json();
            let key = key.trim_matches(['[', ']', '"']).to_owned();
            seen.entry(key).or_default().push(version_of(change));
        }
        Ok(seen)
    }
}

fn version_of(change: &Change) -> u64 {
    let item: serde_json::Value = serde_json::from_slice(&change.body()).unwrap();
    item["v"].as_u64().unwrap()
}

fn before_all() -> FeedStart {
    FeedStart::After(Continuation::Single(Lsn::ZERO))
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Simulation) -> F) {
    let simulation = Simulation::new(1);
    simulation.run(test(simulation.clone()));
}

#[test]
fn splits_merges_restarts_and_compaction_keep_history_without_a_policy() {
    run(|simulation| async move {
        let mut stage = Stage::new(&simulation, |_| {}).await;
        for round in 0..6 {
            for _ in 0..10 {
                stage.write_round().await;
            }
            match round % 3 {
                0 => stage.split_all().await,
                1 => stage.merge_first().await,
                _ => stage.restart().await,
            }
            stage.account.maintain().await.unwrap();
            let seen = stage.read(before_all()).await.unwrap();
            assert_eq!(seen, stage.written, "after round {round}");
        }
    });
}

#[test]
fn a_merge_keeps_the_history_of_the_half_with_the_lower_lsns() {
    run(|simulation| async move {
        let hour = Duration::from_secs(3600);
        let mut stage = Stage::new(&simulation, |options| options.history = hour).await;
        stage.split_all().await;
        let ranges = stage.container.ranges();
        let key_in = |range: usize| {
            let keys = (0..).map(|number| format!("k{number}"));
            let (id, container) = (ranges[range].id, stage.container.clone());
            keys.into_iter().find(|key| container.locate(&key.as_str().into()).unwrap().0 == id)
        };
        let (low, high) = (key_in(0).unwrap(), key_in(1).unwrap());
        for _ in 0..100 {
            stage.write(&low).await;
        }
        stage.node.runtime().sleep(2 * hour).await;
        for _ in 0..100 {
            stage.write(&low).await;
        }
        for _ in 0..5 {
            stage.write(&high).await;
        }
        stage.account.maintain().await.unwrap();
        let refused = stage.read(before_all()).await;
        assert!(matches!(refused, Err(FeedError::BeforeRetention { .. })), "{refused:?}");
        let before = stage.read(FeedStart::Beginning).await.unwrap();
        stage.merge_first().await;
        stage.account.maintain().await.unwrap();
        stage.restart().await;
        let seen = stage.read(FeedStart::Beginning).await.unwrap();
        assert_eq!(seen, before, "a merge changes nothing");
        assert_eq!(seen[&high], stage.written[&high]);
        assert!(seen[&low].len() >= 100 && seen[&low].len() < 200, "{:?}", seen[&low]);
    });
}

#[test]
fn history_takes_no_more_bytes_than_its_bound() {
    run(|simulation| async move {
        const BYTES_MIN: u64 = 20 << 10;
        let mut stage =
            Stage::new(&simulation, |options| options.history_bytes_min = BYTES_MIN).await;
        for _ in 0..100 {
            stage.write_round().await;
            stage.account.maintain().await.unwrap();
        }
        let history = stage.container.history().unwrap();
        assert_eq!(history.bytes_max, Some(BYTES_MIN), "twelve small items are less");
        // The active segment is never compacted, and the segment at the border is kept or dropped whole.
        let most = BYTES_MIN + 2 * u64::from(stage.options.segment_bytes);
        assert!(history.bytes <= most, "{history:?}");
        assert!(history.bytes >= BYTES_MIN / 2, "{history:?}");
        let seen = stage.read(FeedStart::Beginning).await.unwrap();
        for (key, versions) in &seen {
            assert!(stage.written[key].ends_with(versions), "{key}: a gap in {versions:?}");
            assert!(versions.len() > 2 && versions.len() < 100, "{key}: {versions:?}");
        }
    });
}

#[test]
fn without_history_only_what_compaction_has_not_reached_is_there() {
    run(|simulation| async move {
        let mut stage = Stage::new(&simulation, |options| options.history = Duration::ZERO).await;
        for _ in 0..100 {
            stage.write_round().await;
        }
        stage.account.maintain().await.unwrap();
        let history = stage.container.history().unwrap();
        assert!(history.bytes <= u64::from(stage.options.segment_bytes), "{history:?}");
    });
}

#[test]
fn a_position_behind_what_is_kept_gets_the_oldest_one_and_how_much_is_missing() {
    run(|simulation| async move {
        let hour = Duration::from_secs(3600);
        let mut stage = Stage::new(&simulation, |options| options.history = hour).await;
        stage.split_all().await;
        for _ in 0..30 {
            stage.write_round().await;
        }
        stage.node.runtime().sleep(2 * hour).await;
        for _ in 0..30 {
            stage.write_round().await;
        }
        stage.account.maintain().await.unwrap();
        let error = stage.read(before_all()).await.unwrap_err();
        let text = error.to_string();
        let FeedError::BeforeRetention { position, missing, .. } = error else { panic!("{text}") };
        assert!(text.contains(&format!("up to {missing} of them")), "{text}");
        let ranges = stage.container.ranges();
        let behind = ranges.iter().map(|range| position.position_for(&range.range).unwrap().get());
        assert_eq!(missing, behind.sum::<u64>(), "of every range, from position 0");
        // The position as the error prints it, as a user would copy it.
        let printed = text.split("oldest kept position is ").nth(1).unwrap();
        let printed: Continuation = printed.split('.').next().unwrap().parse().unwrap();
        let resumed = stage.read(FeedStart::After(printed)).await.unwrap();
        assert_eq!(resumed, stage.read(FeedStart::Beginning).await.unwrap());
        assert!(resumed.values().all(|versions| versions.len() >= 30), "{resumed:?}");
    });
}
