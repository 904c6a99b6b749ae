//! Helpers shared by the tests: open a simulated store, read a feed to its end, read a whole container.

// Every test file uses its own part of this.
#![allow(dead_code)]

use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Node, Random};
use headwater_store::{
    Account, Change, Container, Continuation, Environment, FeedError, FeedMode, FeedPage,
    FeedRequest, FeedStart, Item, KeyRange, Lsn, MemoryIndex, Options, PageLimit, PartitionId,
    PartitionKey, ScanScope, invariants,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// More pages than any feed in these tests has. A reader that reaches this number is in an endless loop.
const PAGES_MAX: usize = 200_000;

/// Prints the seed if the test panics.
pub(crate) struct Seed(pub(crate) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

/// Opens the store on this disk and index, as one process of a simulation does.
pub(crate) async fn open_simulated(
    node: &Node,
    disk: &MemoryDisk,
    index: &MemoryIndex,
    options: &Options,
) -> Account {
    let environment = Environment {
        runtime: node.runtime(),
        disk: Arc::new(disk.clone()),
        index: Some(index.clone()),
        wrap_log: None,
    };
    Account::open_in(environment, Path::new("store"), options.clone()).await.unwrap()
}

/// Splits a random range, unless there are `ranges_max` ranges already.
pub(crate) async fn split_some(container: &Container, random: &mut Random, ranges_max: usize) {
    let ranges = container.ranges();
    if ranges.len() < ranges_max {
        container.split(random.pick(&ranges).id, None).await.unwrap();
    }
}

/// Merges two random adjacent ranges, if there are at least two.
pub(crate) async fn merge_some(container: &Container, random: &mut Random) {
    let ranges = container.ranges();
    if ranges.len() > 1 {
        let at = random.index(ranges.len() - 1);
        container.merge(ranges[at].id, ranges[at + 1].id).await.unwrap();
    }
}

/// Number of rounds or seeds to run: from the environment variable, or else a default for the build.
pub(crate) fn rounds(variable: &str, debug: u64, release: u64) -> u64 {
    let default = if cfg!(debug_assertions) { debug } else { release };
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A directory for stores that are opened very often. In memory if the machine has `/dev/shm`, because
/// syncs would otherwise dominate the time of these tests.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.unwrap()
}

/// The part of a container that a reader reads.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    Container,
    Range(PartitionId),
    Hashes(KeyRange),
    Key(PartitionKey),
}

/// The parameters that all requests of a reader share.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) scope: Scope,
    pub(crate) mode: FeedMode,
    pub(crate) page_size: u32,
}

impl Reader {
    pub(crate) fn latest(scope: Scope, page_size: u32) -> Reader {
        Reader { scope, mode: FeedMode::LatestVersion, page_size }
    }

    pub(crate) fn all_versions(scope: Scope, page_size: u32) -> Reader {
        Reader { scope, mode: FeedMode::AllVersionsAndDeletes, page_size }
    }

    pub(crate) fn request(&self, start: FeedStart) -> FeedRequest {
        let limit = PageLimit::items(self.page_size).unwrap();
        let request = FeedRequest::new(start).mode(self.mode).limit(limit);
        match &self.scope {
            Scope::Container => request,
            Scope::Range(id) => request.of_range(*id),
            Scope::Hashes(range) => request.of_hashes(range.clone()),
            Scope::Key(key) => request.of_key(key.clone()),
        }
    }

    /// Reads pages until one is empty; returns all changes and the last position.
    pub(crate) async fn drain(
        &self,
        container: &Container,
        start: FeedStart,
    ) -> Result<(Vec<Change>, Continuation), FeedError> {
        let mut start = start;
        let mut all: Vec<Change> = Vec::new();
        let mut last: Vec<Change> = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = container.read_feed(&self.request(start.clone())).await?;
            self.check_page(&start, &last, &page);
            if page.changes.is_empty() {
                return Ok((all, page.continuation));
            }
            all.extend(page.changes.iter().cloned());
            last = page.changes;
            start = FeedStart::After(page.continuation);
        }
        panic!("the feed does not end: {self:?}");
    }

    /// Asserts what holds for every page of every feed.
    fn check_page(&self, start: &FeedStart, last: &[Change], page: &FeedPage) {
        let changes = &page.changes;
        if self.mode == FeedMode::LatestVersion {
            assert!(invariants::page_has_no_duplicates(changes), "{self:?} {changes:?}");
        }
        // A single position means a single partition, whose pages are in LSN order.
        let Continuation::Single(reached) = page.continuation else {
            return;
        };
        let from = match start {
            FeedStart::After(Continuation::Single(from)) => *from,
            _ => Lsn::ZERO,
        };
        assert!(invariants::page_is_in_order(from, changes), "{self:?} {from} {changes:?}");
        assert!(invariants::position_moves_forward(from, reached), "{self:?} {from} {reached}");
        if matches!(start, FeedStart::After(Continuation::Single(_))) {
            let whole = invariants::no_transaction_is_cut(last, changes);
            assert!(whole, "{self:?} {last:?} {changes:?}");
        }
        if let Some(newest) = changes.last() {
            assert_eq!(newest.lsn(), reached, "the position of a page is its last change");
        }
    }
}

/// Reads every item of a container with a scan; returns them by partition key and id.
pub(crate) async fn scan_all(container: &Container) -> BTreeMap<(String, String), Item> {
    let limit = PageLimit::items(1000).unwrap();
    let mut items = BTreeMap::new();
    let mut position = None;
    for _ in 0..PAGES_MAX {
        let page = container.scan(&ScanScope::Container, position.as_ref(), limit).await.unwrap();
        for item in page.items {
            let body: serde_json::Value = item.parse().unwrap();
            let id = body["id"].as_str().unwrap().to_owned();
            let key = PartitionKey::from(body["pk"].as_str().unwrap()).to_json();
            assert!(items.insert((key, id), item).is_none(), "a scan shows an item once");
        }
        match page.next {
            Some(next) => position = Some(next),
            None => return items,
        }
    }
    panic!("the scan does not end");
}

/// The container `c` of the database `db`.
pub(crate) async fn container_of(account: &Account) -> Container {
    account.database("db").await.unwrap().container("c").await.unwrap()
}
