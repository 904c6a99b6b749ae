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
const HOUR: Duration = Duration::from_secs(3600);

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

    /// Items that are a day old: beyond the retention, so compaction rewrites their segments.
    async fn write_cold_items(&mut self) {
        for key in 0..300 {
            self.write(&format!("cold{key}")).await;
        }
        self.node.runtime().sleep(25 * HOUR).await;
    }

    /// Writes new versions of the hot items until history takes nearly as much as its bound.
    async fn fill_history(&mut self) {
        loop {
            self.write_round().await;
            let history = self.container.history().unwrap();
            if history.bytes * 100 >= history.bytes_max.unwrap() * 85 {
                return;
            }
        }
    }

    /// A partition key whose items are in this range, by the order of ranges.
    fn key_in(&self, range: usize) -> String {
        let id = self.container.ranges()[range].id;
        let mut keys = (0..).map(|number| format!("k{number}"));
        keys.find(|key| self.container.locate(&key.as_str().into()).unwrap().0 == id).unwrap()
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
        let mut stage = Stage::new(&simulation, |options| options.history = HOUR).await;
        stage.split_all().await;
        let (low, high) = (stage.key_in(0), stage.key_in(1));
        for _ in 0..100 {
            stage.write(&low).await;
        }
        stage.node.runtime().sleep(2 * HOUR).await;
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

/// Rewriting the cold segments halves the live bytes of each child, and the bound with them, while the
/// hot segments are shared and keep the history of both halves.
#[test]
fn a_split_keeps_history_that_fills_its_share_of_the_live_bytes() {
    run(|simulation| async move {
        let mut stage = Stage::new(&simulation, |options| options.history_bytes_min = 0).await;
        stage.write_cold_items().await;
        stage.fill_history().await;
        stage.account.maintain().await.unwrap();
        let before = stage.read(FeedStart::Beginning).await.unwrap();
        assert_eq!(before, stage.written, "the bound is not reached");
        stage.split_all().await;
        stage.account.maintain().await.unwrap();
        stage.restart().await;
        stage.account.maintain().await.unwrap();
        assert_eq!(stage.read(FeedStart::Beginning).await.unwrap(), before);
    });
}

/// Each half may keep `history_bytes_min`; the range merged from them may too, but takes over both.
#[test]
fn a_merge_keeps_the_history_of_two_ranges_that_both_fill_the_minimum() {
    run(|simulation| async move {
        let bytes_min = 40 << 10;
        let mut stage =
            Stage::new(&simulation, |options| options.history_bytes_min = bytes_min).await;
        stage.split_all().await;
        let keys = [stage.key_in(0), stage.key_in(1)];
        while stage.container.history().unwrap().bytes < bytes_min * 3 / 2 {
            stage.write(&keys[0]).await;
            stage.write(&keys[1]).await;
        }
        stage.account.maintain().await.unwrap();
        assert_eq!(stage.read(before_all()).await.unwrap(), stage.written);
        stage.merge_first().await;
        stage.account.maintain().await.unwrap();
        stage.restart().await;
        stage.account.maintain().await.unwrap();
        assert_eq!(stage.read(before_all()).await.unwrap(), stage.written);
    });
}

/// A file that both halves of a split linked is one file again after they are merged.
#[test]
fn a_split_and_a_merge_count_the_history_of_a_file_once() {
    run(|simulation| async move {
        let mut stage = Stage::new(&simulation, |_| {}).await;
        for _ in 0..30 {
            stage.write_round().await;
        }
        let before = stage.container.history().unwrap();
        stage.split_all().await;
        stage.merge_first().await;
        let after = stage.container.history().unwrap();
        assert_eq!(after.bytes, before.bytes);
        assert_eq!(stage.read(before_all()).await.unwrap(), stage.written);
    });
}

/// LSNs of merged ranges say nothing about age: the half with the lower ones was written last.
#[test]
fn a_merged_range_releases_its_oldest_history_first() {
    run(|simulation| async move {
        let bytes_min = 60 << 10;
        let mut stage =
            Stage::new(&simulation, |options| options.history_bytes_min = bytes_min).await;
        stage.split_all().await;
        let (low, high) = (stage.key_in(0), stage.key_in(1));
        for _ in 0..150 {
            stage.write(&high).await;
        }
        stage.node.runtime().sleep(20 * HOUR).await;
        for _ in 0..60 {
            stage.write(&low).await;
        }
        stage.merge_first().await;
        for _ in 0..10_000 {
            stage.write(&high).await;
            stage.account.maintain().await.unwrap();
            let seen = stage.read(FeedStart::Beginning).await.unwrap();
            if seen == stage.written {
                continue;
            }
            assert_eq!(seen[&low], stage.written[&low], "minutes old");
            assert!(stage.written[&high].ends_with(&seen[&high]), "a gap in {:?}", seen[&high]);
            return;
        }
        panic!("the bound is never reached");
    });
}

/// What a range took over counts less than its own history, but it counts. And its bound does not grow with
/// what siblings superseded in shared files.
#[test]
fn history_stays_bounded_through_any_number_of_splits_and_merges() {
    run(|simulation| async move {
        for bytes_min in [20 << 10, 0] {
            let mut stage =
                Stage::new(&simulation, |options| options.history_bytes_min = bytes_min).await;
            if bytes_min == 0 {
                stage.write_cold_items().await;
            }
            stage.write_round().await;
            let bytes_max = stage.container.history().unwrap().bytes_max.unwrap();
            for cycle in 0..12 {
                stage.split_all().await;
                for _ in 0..20 {
                    stage.write_round().await;
                    stage.account.maintain().await.unwrap();
                }
                stage.merge_first().await;
                for _ in 0..20 {
                    stage.write_round().await;
                    stage.account.maintain().await.unwrap();
                }
                let history = stage.container.history().unwrap();
                let still = history.bytes_max.unwrap();
                assert!(still.abs_diff(bytes_max) <= bytes_max / 10, "{still} of {bytes_max}");
                let most = 4 * still + 2 * u64::from(stage.options.segment_bytes);
                assert!(history.bytes <= most, "cycle {cycle}: {history:?}");
            }
        }
    });
}

#[test]
fn history_takes_no_more_bytes_than_its_share_of_the_live_bytes() {
    run(|simulation| async move {
        for percent in [50, 100] {
            let mut stage = Stage::new(&simulation, |options| {
                options.history_bytes_min = 0;
                options.history_percent = percent;
            })
            .await;
            stage.write_cold_items().await;
            for _ in 0..100 {
                stage.write_round().await;
                stage.account.maintain().await.unwrap();
            }
            let history = stage.container.history().unwrap();
            let live: u64 = stage.container.figures().unwrap().live_bytes;
            let most = history.bytes_max.unwrap();
            assert!(most.abs_diff(live * percent / 100) <= live / 50, "{most} of {live}");
            // The active segment cannot be compacted, and the one at the border is kept or dropped whole.
            let above = 2 * u64::from(stage.options.segment_bytes);
            assert!(history.bytes <= most + above, "{history:?}");
            assert!(history.bytes >= most * 3 / 4, "{history:?}");
            let seen = stage.read(FeedStart::Beginning).await.unwrap();
            for (key, versions) in &seen {
                assert!(stage.written[key].ends_with(versions), "{key}: a gap in {versions:?}");
            }
            assert!(seen["k0"].len() > 10 && seen["k0"].len() < 100, "{:?}", seen["k0"]);
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
        let mut stage = Stage::new(&simulation, |options| options.history = HOUR).await;
        stage.split_all().await;
        for _ in 0..30 {
            stage.write_round().await;
        }
        stage.node.runtime().sleep(2 * HOUR).await;
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
