//! Waiting reads: a reader that has caught up gets a change at once, or an empty page at its deadline.
//!
//! Runs in simulated time, so that "at once" is exact.

#![allow(clippy::unwrap_used)] // a failed test names the line

use futures_util::TryStreamExt;
use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Runtime, Simulation};
use headwater_store::{
    Account, Container, ContainerDefinition, Continuation, Environment, FeedError, FeedRequest,
    FeedStart, MemoryIndex, Options, PartitionId, StorageError,
};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Runs a test under several seeds on a fresh store with two partitions.
fn simulate<F>(story: impl Fn(Runtime, Container) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for seed in 0..20 {
        let simulation = Simulation::new(seed);
        let runtime = simulation.node().runtime();
        let environment = Environment {
            runtime: runtime.clone(),
            disk: Arc::new(MemoryDisk::new()),
            index: Some(MemoryIndex::default()),
            wrap_log: None,
        };
        let (account, container) = simulation.run(async move {
            let root = Path::new("store");
            let account = Account::open_in(environment, root, Options::default()).await.unwrap();
            let database = account.create_database("d").await.unwrap();
            let definition = ContainerDefinition::new("c", "/pk").unwrap();
            let container = database.create_container_with(definition, 2).await.unwrap();
            (account, container)
        });
        simulation.run(story(runtime, container));
        drop(account);
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

async fn write_after(runtime: Runtime, container: Container, delay: Duration, id: &str) {
    let body = format!(r#"{{"id":"{id}","pk":"{id}"}}"#);
    let writer = runtime.clone();
    runtime.spawn("writer", async move {
        writer.sleep(delay).await;
        container.create(body).await.unwrap();
    });
}

#[test]
fn a_waiting_reader_gets_a_change_at_once() {
    simulate(|runtime, container| async move {
        for id in ["a", "b", "c", "d"] {
            let now = container.read_feed(&FeedRequest::new(FeedStart::Now)).await.unwrap();
            write_after(runtime.clone(), container.clone(), seconds(7), id).await;
            let asked = runtime.elapsed();
            let request = FeedRequest::after(now.continuation).wait(seconds(60));
            let page = container.read_feed(&request).await.unwrap();
            assert_eq!(page.changes.len(), 1);
            assert_eq!(page.changes[0].id(), id);
            assert_eq!(runtime.elapsed() - asked, seconds(7), "at once");
        }
    });
}

#[test]
fn a_stream_returns_every_change_once_without_delay_and_resumes_from_any_page() {
    simulate(|runtime, container| async move {
        container.create(r#"{"id":"old","pk":"old"}"#).await.unwrap();
        let mut pages = pin!(container.changes(FeedRequest::new(FeedStart::Beginning)));
        let first = pages.try_next().await.unwrap().unwrap();
        assert_eq!(first.changes[0].id(), "old");
        // The second delay is longer than a single request of the stream waits.
        for (id, delay) in [("a", 7), ("b", 5000)] {
            write_after(runtime.clone(), container.clone(), seconds(delay), id).await;
            let asked = runtime.elapsed();
            let page = pages.try_next().await.unwrap().unwrap();
            assert_eq!(page.changes.iter().map(|one| one.id()).collect::<Vec<_>>(), [id]);
            assert_eq!(runtime.elapsed() - asked, seconds(delay), "at once");
        }
        let again = FeedRequest::after(first.continuation);
        let mut again = pin!(container.changes(again));
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let page = again.try_next().await.unwrap().unwrap();
            seen.extend(page.changes.iter().map(|one| one.id().to_owned()));
        }
        seen.sort();
        assert_eq!(seen, ["a", "b"]);
    });
}

#[test]
fn waiting_ends_at_its_deadline_with_a_position() {
    simulate(|runtime, container| async move {
        let asked = runtime.elapsed();
        let request = FeedRequest::new(FeedStart::Now).wait(seconds(30));
        let page = container.read_feed(&request).await.unwrap();
        assert!(page.changes.is_empty());
        assert_eq!(runtime.elapsed() - asked, seconds(30));
        container.create(r#"{"id":"x","pk":"x"}"#).await.unwrap();
        let next = container.read_feed(&FeedRequest::after(page.continuation)).await.unwrap();
        assert_eq!(next.changes.len(), 1);
    });
}

#[test]
fn from_now_misses_nothing_between_two_looks() {
    simulate(|runtime, container| async move {
        // Writes outside of the reader's scope wake it up again and again between those inside.
        let wanted = container.ranges()[1].range.clone();
        for step in 1..30 {
            let id = format!("n{step}");
            write_after(runtime.clone(), container.clone(), seconds(step), &id).await;
        }
        let request = FeedRequest::new(FeedStart::Now).of_hashes(wanted.clone()).wait(seconds(100));
        let mut page = container.read_feed(&request).await.unwrap();
        let mut seen = page.changes.len();
        while !page.changes.is_empty() {
            let next = FeedRequest::after(page.continuation).of_hashes(wanted.clone());
            page = container.read_feed(&next.wait(seconds(100))).await.unwrap();
            seen += page.changes.len();
        }
        let all = FeedRequest::new(FeedStart::Beginning).of_hashes(wanted);
        assert_eq!(seen, container.read_feed(&all).await.unwrap().changes.len());
        assert!(seen > 0);
    });
}

#[test]
fn every_waiting_reader_is_woken() {
    simulate(|runtime, container| async move {
        let (told, mut answers) = tokio::sync::mpsc::channel(64);
        for _ in 0..50 {
            let (container, told) = (container.clone(), told.clone());
            runtime.spawn("waiter", async move {
                let request = FeedRequest::new(FeedStart::Now).wait(seconds(60));
                let page = container.read_feed(&request).await.unwrap();
                told.send(page.changes.len()).await.unwrap();
            });
        }
        drop(told);
        runtime.sleep(seconds(1)).await;
        container.create(r#"{"id":"x","pk":"x"}"#).await.unwrap();
        for _ in 0..50 {
            assert_eq!(answers.recv().await, Some(1));
        }
    });
}

#[test]
fn a_split_wakes_a_waiter_of_the_range_and_not_one_of_the_container() {
    simulate(|runtime, container| async move {
        let gone = container.ranges()[0].id;
        let (told, mut answer) = tokio::sync::mpsc::channel(1);
        let waiter = container.clone();
        runtime.spawn("waiter", async move {
            let request = FeedRequest::new(FeedStart::Now).of_range(gone).wait(seconds(600));
            told.send(waiter.read_feed(&request).await).await.unwrap();
        });
        let splitter = (runtime.clone(), container.clone());
        runtime.spawn("splitter", async move {
            splitter.0.sleep(seconds(5)).await;
            splitter.1.split(gone, None).await.unwrap();
            splitter.0.sleep(seconds(5)).await;
            splitter.1.create(r#"{"id":"x","pk":"x"}"#).await.unwrap();
        });
        let request = FeedRequest::new(FeedStart::Now).wait(seconds(600));
        let page = container.read_feed(&request).await.unwrap();
        assert_eq!(page.changes.len(), 1);
        assert!(runtime.elapsed() < seconds(60));
        let answer = answer.recv().await.unwrap();
        assert!(matches!(answer, Err(FeedError::RangeGone(id)) if id == gone), "{answer:?}");
    });
}

#[test]
fn an_empty_poll_moves_past_what_it_does_not_want() {
    simulate(|_runtime, container| async move {
        for number in 0..20 {
            container.create(format!(r#"{{"id":"{number}","pk":"other"}}"#)).await.unwrap();
        }
        let range = container.ranges().into_iter().find(|range| range.lsn.get() == 20).unwrap();
        let request = FeedRequest::new(FeedStart::Beginning).of_range(range.id).of_key("nobody");
        match container.read_feed(&request).await {
            Ok(page) => assert_eq!(page.continuation, Continuation::Single(range.lsn)),
            Err(error) => assert!(matches!(error, FeedError::EmptyScope), "{error}"),
        }
        let unknown = FeedRequest::new(FeedStart::Beginning).of_range(PartitionId::new(77));
        assert!(matches!(container.read_feed(&unknown).await, Err(FeedError::RangeGone(_))));
    });
}

#[test]
fn a_dropped_container_and_a_closed_store_tell_everyone_who_waits() {
    for seed in 0..20 {
        let simulation = Simulation::new(seed);
        let runtime = simulation.node().runtime();
        let environment = Environment {
            runtime: runtime.clone(),
            disk: Arc::new(MemoryDisk::new()),
            index: Some(MemoryIndex::default()),
            wrap_log: None,
        };
        simulation.run(async move {
            let root = Path::new("store");
            let account = Account::open_in(environment, root, Options::default()).await.unwrap();
            let database = account.create_database("d").await.unwrap();
            let (told, mut answers) = tokio::sync::mpsc::channel(64);
            for id in ["dropped", "closed"] {
                let definition = ContainerDefinition::new(id, "/pk").unwrap();
                let container = database.create_container_with(definition, 2).await.unwrap();
                for waiter in 0..10 {
                    let mut request = FeedRequest::new(FeedStart::Now).wait(seconds(3600));
                    if waiter % 2 == 0 {
                        request = request.of_range(PartitionId::new(1));
                    }
                    let (container, told) = (container.clone(), told.clone());
                    runtime.spawn("waiter", async move {
                        let answer = container.read_feed(&request).await.map(|page| page.changes);
                        told.send((id, answer)).await.unwrap();
                    });
                }
            }
            runtime.sleep(seconds(5)).await;
            database.drop_container("dropped").await.unwrap();
            for _ in 0..10 {
                let (id, answer) = answers.recv().await.unwrap();
                let gone = matches!(answer, Err(FeedError::ContainerGone));
                assert!(id == "dropped" && gone, "{id} {answer:?}");
            }
            account.close().await.unwrap();
            for _ in 0..10 {
                let (id, answer) = answers.recv().await.unwrap();
                let closed = matches!(answer, Err(FeedError::Storage(StorageError::Closed)));
                assert!(id == "closed" && closed, "{id} {answer:?}");
            }
            assert!(runtime.elapsed() < seconds(60), "no reader waits until its deadline");
        });
    }
}

#[test]
fn at_its_deadline_a_reader_has_moved_past_what_it_does_not_want() {
    simulate(|runtime, container| async move {
        let ranges = container.ranges();
        let key = container.definition().partition_key().clone();
        let mut keys = (0..).map(|number| format!("k{number}")).filter(|name| {
            let epk = key.epk(&name.as_str().into()).unwrap();
            ranges[0].range.contains(epk.as_bytes())
        });
        let (wanted, other) = (keys.next().unwrap(), keys.next().unwrap());
        let waiting = runtime.elapsed();
        for second in 1..=9 {
            let body = format!(r#"{{"id":"{second}","pk":"{other}"}}"#);
            let (runtime2, container) = (runtime.clone(), container.clone());
            runtime.spawn("writer", async move {
                runtime2.sleep(seconds(second)).await;
                container.create(body).await.unwrap();
            });
        }
        let request = FeedRequest::new(FeedStart::Now).of_key(wanted.as_str()).wait(seconds(20));
        let page = container.read_feed(&request).await.unwrap();
        assert!(page.changes.is_empty());
        assert_eq!(runtime.elapsed() - waiting, seconds(20));
        let newest = container.ranges()[0].lsn;
        assert_eq!((page.continuation, newest.get()), (Continuation::Single(newest), 9));
    });
}
