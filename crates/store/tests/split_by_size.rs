//! Automatic splits: the store splits ranges that exceed a size.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_runtime::Runtime;
use headwater_store::{
    Account, Container, ContainerDefinition, FeedRequest, FeedStart, Options, PageLimit,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::scratch;

const LIMIT: u64 = 64 << 10;

async fn store(dir: &Path, maintenance: Duration, limit: u64) -> (Account, Container) {
    let mut options = Options::default();
    options.segment_bytes = 16 << 10;
    options.maintenance_interval = maintenance;
    options.split_at_bytes = limit;
    let account = Account::open(dir, options).await.unwrap();
    let database = account.create_database("d").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 1).await.unwrap();
    (account, container)
}

async fn write(container: &Container, key: &str, id: u64, version: u64) {
    let text = "x".repeat(200);
    let body = format!(r#"{{"id":"{id}","pk":"{key}","v":{version},"text":"{text}"}}"#);
    container.upsert(body).await.unwrap();
}

/// Reads a feed page by page and records the newest version of each item.
struct Reader {
    request: FeedRequest,
    seen: BTreeMap<String, u64>,
}

impl Reader {
    fn new() -> Reader {
        let limit = PageLimit::items(50).unwrap();
        let request = FeedRequest::new(FeedStart::Beginning).limit(limit);
        Reader { request, seen: BTreeMap::new() }
    }

    /// Reads a page; returns whether it has changes.
    async fn read(&mut self, container: &Container) -> bool {
        let page = container.read_feed(&self.request).await.unwrap();
        for change in &page.changes {
            let item: serde_json::Value = serde_json::from_slice(&change.body()).unwrap();
            let (id, version) = (item["id"].as_str().unwrap(), item["v"].as_u64().unwrap());
            let before = self.seen.insert(id.to_owned(), version);
            assert!(before.is_none_or(|before| before < version), "{id}: {version} came again");
        }
        let limit = PageLimit::items(50).unwrap();
        self.request = FeedRequest::after(page.continuation).limit(limit);
        !page.changes.is_empty()
    }
}

/// Writers and a reader run during the splits: the reader gets every acknowledged write, and none twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_has_grown_is_split_by_itself_while_it_is_used() {
    let dir = scratch();
    let (account, container) = store(dir.path(), Duration::from_millis(20), LIMIT).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (report, mut reports) = tokio::sync::mpsc::channel(4);
    for writer in 0..3_u64 {
        let (container, stop, report) = (container.clone(), stop.clone(), report.clone());
        Runtime::system().spawn("writer", async move {
            let mut written = BTreeMap::new();
            for number in 0..100_000_u64 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // Some items are replaced, so that the log has dead records.
                let (id, version) = (writer * 1_000_000 + number % 700, number + 1);
                write(&container, &format!("k{}", id % 97), id, version).await;
                written.insert(id.to_string(), version);
            }
            report.send(written).await.unwrap();
        });
    }
    drop(report);
    let mut reader = Reader::new();
    let runtime = Runtime::system();
    let started = runtime.elapsed();
    while container.ranges().len() < 5 {
        assert!(runtime.elapsed() - started < Duration::from_secs(60), "it is not split");
        if !reader.read(&container).await {
            runtime.sleep(Duration::from_millis(1)).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = BTreeMap::new();
    while let Some(more) = reports.recv().await {
        written.extend(more);
    }
    while reader.read(&container).await {}
    assert_eq!(reader.seen, written, "the reader that followed the splits");
    let mut late = Reader::new();
    while late.read(&container).await {}
    assert_eq!(late.seen, written, "a reader from the beginning");
    // No range is empty.
    for statistics in container.statistics().unwrap() {
        assert!(statistics.items > 0, "{statistics:?}");
    }
    account.close().await.unwrap();
}

#[tokio::test]
async fn a_range_of_one_partition_key_is_left_alone_until_it_has_grown() {
    let dir = scratch();
    let (account, container) = store(dir.path(), Duration::ZERO, LIMIT).await;
    for id in 0..300 {
        write(&container, "hot", id, 1).await;
    }
    for _ in 0..3 {
        account.maintain().await.unwrap();
    }
    assert_eq!(container.ranges().len(), 1, "there is nothing to split");
    for id in 1_000..1_010 {
        write(&container, &format!("k{id}"), id, 1).await;
    }
    account.maintain().await.unwrap();
    assert_eq!(container.ranges().len(), 1, "it is not examined again until it has grown");
    for id in 300..500 {
        write(&container, "hot", id, 1).await;
    }
    // One range at a time, until the large key has its own range or only small neighbours on one side.
    for round in 0..5 {
        let before = container.ranges().len();
        account.maintain().await.unwrap();
        assert!(container.ranges().len() <= before + 1, "round {round}");
    }
    let ranges = container.ranges().len();
    assert!((2..=3).contains(&ranges), "{ranges} ranges");
    account.close().await.unwrap();
}

#[tokio::test]
async fn a_store_whose_limit_is_zero_splits_nothing() {
    let dir = scratch();
    let (account, container) = store(dir.path(), Duration::ZERO, 0).await;
    for id in 0..400 {
        write(&container, &format!("k{id}"), id, 1).await;
    }
    account.maintain().await.unwrap();
    assert_eq!(container.ranges().len(), 1);
    account.close().await.unwrap();
}
