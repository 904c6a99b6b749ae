//! Ranges split and merge while writers and readers run, on real threads and a real disk.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

use headwater_runtime::Runtime;
use headwater_store::{
    Account, Change, Container, ContainerDefinition, Continuation, FeedError, FeedRequest,
    FeedStart, Lsn, Options, PageLimit, PartitionId, invariants,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes of each writer in one run.
const WRITES: u64 = 600;
const WRITERS: u64 = 4;

async fn store(durable: Option<&std::path::Path>) -> (Account, Container) {
    let mut options = Options::default();
    options.segment_bytes = 16 << 10;
    let account = match durable {
        Some(dir) => Account::open(dir, options).await.unwrap(),
        None => Account::ephemeral_with(options).await.unwrap(),
    };
    let database = account.create_database("d").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 1).await.unwrap();
    (account, container)
}

/// Every item is written three times; the last time says 3.
fn start_writers(container: &Container) -> tokio::sync::mpsc::Receiver<()> {
    let (ended, all) = tokio::sync::mpsc::channel(1);
    for writer in 0..WRITERS {
        let (container, ended) = (container.clone(), ended.clone());
        Runtime::system().spawn("writer", async move {
            for version in 1..=3 {
                for number in 0..WRITES / 3 {
                    let body = format!(
                        r#"{{"id":"{writer}-{number}","pk":"{}","version":{version}}}"#,
                        number % 17
                    );
                    container.upsert(body).await.unwrap();
                }
            }
            drop(ended);
        });
    }
    all
}

/// Follows the whole container until `stop` and then to the end; checks every page on its way.
async fn follow_container(container: Container, stop: Arc<AtomicBool>) -> Vec<Change> {
    let mut seen: Vec<Change> = Vec::new();
    let mut position = FeedStart::Beginning;
    loop {
        let stopping = stop.load(Ordering::SeqCst);
        let request = FeedRequest::new(position).limit(PageLimit::items(50).unwrap());
        let page = container.read_feed(&request).await.unwrap();
        position = FeedStart::After(page.continuation);
        let empty = page.changes.is_empty();
        assert!(invariants::page_has_no_duplicates(&page.changes));
        seen.extend(page.changes);
        if empty && stopping {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

/// Follows range by range, as a processor does: a range that is gone is followed in its children, from
/// the same position and only for the keys it had.
async fn follow_ranges(container: Container, stop: Arc<AtomicBool>) -> Vec<Change> {
    let mut seen: Vec<Change> = Vec::new();
    let mut leases: BTreeMap<PartitionId, (Lsn, headwater_store::KeyRange)> =
        container.ranges().into_iter().map(|info| (info.id, (Lsn::ZERO, info.range))).collect();
    let mut idle_rounds = 0;
    while idle_rounds < 2 {
        let stopping = stop.load(Ordering::SeqCst);
        let mut idle = true;
        for (id, (after, keys)) in leases.clone() {
            let request = FeedRequest::after(Continuation::Single(after))
                .of_range(id)
                .of_hashes(keys.clone())
                .limit(PageLimit::items(40).unwrap());
            match container.read_feed(&request).await {
                Ok(page) => {
                    let Continuation::Single(position) = page.continuation else {
                        panic!("one range has one position");
                    };
                    assert!(invariants::page_is_in_order(after, &page.changes));
                    assert!(invariants::position_moves_forward(after, position));
                    idle &= page.changes.is_empty();
                    seen.extend(page.changes);
                    leases.insert(id, (position, keys));
                }
                Err(FeedError::RangeGone(gone)) => {
                    assert_eq!(gone, id);
                    idle = false;
                    leases.remove(&id);
                    for info in container.ranges() {
                        if let Some(part) = info.range.intersect(&keys) {
                            // Of two parents' positions this simple follower keeps the lower:
                            // some changes come twice, none is missed.
                            let previous = leases.insert(info.id, (after, part.clone()));
                            if let Some((other, other_keys)) = previous {
                                let merged = other_keys.merge(&part).unwrap();
                                leases.insert(info.id, (after.min(other), merged));
                            }
                        }
                    }
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        idle_rounds = if idle && stopping { idle_rounds + 1 } else { 0 };
        tokio::task::yield_now().await;
    }
    seen
}

fn version_of(change: &Change) -> u64 {
    let item = change.item().unwrap();
    item.parse::<serde_json::Value>().unwrap()["version"].as_u64().unwrap()
}

/// The last version of every item was seen, and the versions of each item never went back.
fn check_follower(seen: &[Change], at_least_once: bool) {
    let mut newest: HashMap<String, u64> = HashMap::new();
    for change in seen {
        let version = version_of(change);
        let before = newest.insert(change.id().to_owned(), version);
        let forward = before.is_none_or(|before| before < version);
        assert!(forward || at_least_once, "{change:?} came again or went back");
    }
    assert_eq!(newest.len() as u64, WRITERS * WRITES / 3, "every item was seen");
    assert!(
        newest.values().all(|version| *version == 3),
        "every item was seen in its last version"
    );
}

async fn reshape(container: &Container, rounds: usize) {
    for round in 0..rounds {
        let ranges = container.ranges();
        let pick = round % ranges.len();
        if ranges.len() < 2 || (round % 3 != 2 && ranges.len() < 6) {
            container.split(ranges[pick].id, None).await.unwrap();
        } else {
            let pick = pick.min(ranges.len() - 2);
            container.merge(ranges[pick].id, ranges[pick + 1].id).await.unwrap();
        }
        Runtime::system().sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn run(durable: Option<&std::path::Path>) {
    let (account, container) = store(durable).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (done, mut followers) = tokio::sync::mpsc::channel(2);
    let (reader, stopping, sender) = (container.clone(), stop.clone(), done.clone());
    Runtime::system().spawn("container follower", async move {
        sender.send((false, follow_container(reader, stopping).await)).await.unwrap();
    });
    let (reader, stopping) = (container.clone(), stop.clone());
    Runtime::system().spawn("range follower", async move {
        done.send((true, follow_ranges(reader, stopping).await)).await.unwrap();
    });
    let mut writers = start_writers(&container);
    reshape(&container, 12).await;
    assert!(writers.recv().await.is_none());
    reshape(&container, 3).await;
    account.maintain().await.unwrap();
    stop.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let (at_least_once, seen) = followers.recv().await.unwrap();
        check_follower(&seen, at_least_once);
    }
    let late = follow_container(container.clone(), stop).await;
    assert_eq!(late.len() as u64, WRITERS * WRITES / 3, "a late reader sees each item once");
    check_follower(&late, false);
    account.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_ranges_split_and_merge_in_memory() {
    run(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_ranges_split_and_merge_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    run(Some(dir.path())).await;
    let account = Account::open(dir.path(), Options::default()).await.unwrap();
    let container = account.database("d").await.unwrap().container("c").await.unwrap();
    let stopped = Arc::new(AtomicBool::new(true));
    check_follower(&follow_container(container.clone(), stopped).await, false);
    let mut expected = headwater_store::KeyRange::full().min().clone();
    for range in container.ranges() {
        assert_eq!(range.range.min(), &expected, "ranges have no gaps");
        expected = range.range.max().clone();
    }
    assert_eq!(&expected, headwater_store::KeyRange::full().max());
    account.close().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_split_or_merged_says_why() {
    let (_account, container) = store(None).await;
    let only = container.ranges()[0].id;
    let children = container.split(only, None).await.unwrap();
    assert_eq!(children.len(), 2);
    assert_eq!(children[0].ancestors, [only]);
    let gone = container.split(only, None).await.unwrap_err().to_string();
    assert!(gone.contains("range 0 is gone"), "{gone}");
    let outside = children[1].range.max().clone();
    let error = container.split(children[0].id, Some(outside)).await.unwrap_err().to_string();
    assert!(error.contains("choose one inside it"), "{error}");
    let more = container.split(children[1].id, None).await.unwrap();
    let error = container.merge(children[0].id, more[1].id).await.unwrap_err().to_string();
    assert!(error.contains("not neighbours"), "{error}");
    let merged = container.merge(more[1].id, more[0].id).await.unwrap();
    assert_eq!(merged[0].range, children[1].range);
    assert_eq!(merged[0].ancestors, [only, children[1].id, more[0].id, more[1].id]);
}
