//! Limits of large transactions, and the cost of reading them from the feed.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_log::disk::{Disk, DiskFile, MemoryDisk};
use headwater_runtime::Runtime;
use headwater_store::{
    Account, BatchError, Container, ContainerDefinition, Environment, FeedError, FeedFilter,
    FeedPage, FeedRequest, FeedStart, ItemWrite, MemoryIndex, Options, PageLimit, Patch,
    ProcedureCall, Script, WriteError, Written,
};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A disk that counts the bytes that are read.
#[derive(Clone, Debug, Default)]
struct CountingDisk {
    disk: MemoryDisk,
    read: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn DiskFile>,
    read: Arc<AtomicU64>,
}

impl Disk for CountingDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, create)?;
        Ok(Arc::new(CountedFile { file, read: self.read.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

impl DiskFile for CountedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.file.allocate(length)
    }
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }
    fn allocated(&self) -> io::Result<u64> {
        self.file.allocated()
    }
}

struct World {
    disk: CountingDisk,
    _account: Account,
    container: Container,
}

impl World {
    async fn new() -> World {
        let disk = CountingDisk::default();
        let environment = Environment {
            runtime: Runtime::system(),
            disk: Arc::new(disk.clone()),
            index: Some(MemoryIndex::default()),
            wrap_log: None,
        };
        let mut options = Options::default();
        options.ring_bytes = 0;
        let account = Account::open_in(environment, Path::new("store"), options).await.unwrap();
        let database = account.create_database("d").await.unwrap();
        let definition = ContainerDefinition::new("c", "/pk").unwrap();
        let container = database.create_container(definition).await.unwrap();
        World { disk, _account: account, container }
    }

    /// Upserts items `0..count` of one key, in one transaction.
    async fn upsert_together(&self, count: usize, bytes: usize) {
        let writes = (0..count).map(|id| ItemWrite::upsert(item(id, bytes))).collect();
        self.container.batch("p", writes).await.unwrap();
    }

    /// Upserts items `0..count` of one key, each in a transaction of its own.
    async fn upsert_apart(&self, count: usize, bytes: usize) {
        for id in 0..count {
            self.container.upsert(item(id, bytes)).await.unwrap();
        }
    }

    async fn delete_apart(&self, count: usize) {
        for id in 0..count {
            self.container.delete("p", &id.to_string()).await.unwrap();
        }
    }

    /// A request for all versions of the changes from now on.
    async fn now_on(&self) -> FeedRequest {
        let now = FeedRequest::new(FeedStart::Now).all_versions();
        let now = self.container.read_feed(&now).await.unwrap();
        let limit = PageLimit::new(1_000, 4 << 20).unwrap();
        FeedRequest::after(now.continuation).all_versions().limit(limit)
    }

    /// Reads a page; also returns the number of bytes read from files.
    async fn read(&self, request: &FeedRequest) -> (Result<FeedPage, FeedError>, usize) {
        let before = self.disk.read.load(Ordering::Relaxed);
        let page = self.container.read_feed(request).await;
        let read = self.disk.read.load(Ordering::Relaxed) - before;
        (page, usize::try_from(read).unwrap())
    }
}

fn item(id: usize, bytes: usize) -> String {
    format!(r#"{{"id":"{id}","pk":"p","text":"{}"}}"#, "x".repeat(bytes))
}

/// Bytes of the new and the previous versions on a page.
fn size(page: &FeedPage) -> usize {
    let before = |change: &headwater_store::Change| change.previous_bytes().map_or(0, |b| b.len());
    page.changes.iter().map(|change| change.body().len() + before(change)).sum()
}

#[tokio::test]
async fn the_versions_before_a_large_transaction_are_read_once() {
    let world = World::new().await;
    world.upsert_together(100, 15 * KIB).await;
    let request = world.now_on().await;
    world.upsert_together(100, 15 * KIB).await;
    let (page, read) = world.read(&request).await;
    let page = page.unwrap();
    assert!(page.changes.iter().all(|change| change.previous().is_some()));
    assert_eq!(page.changes.len(), 100);
    assert!(read < 4 * MIB, "{} KiB were read for {} KiB", read / KIB, size(&page) / KIB);

    // The previous versions are in another order in the log, in several transactions.
    let world = World::new().await;
    for ids in [[3, 1], [0, 2], [5, 4]] {
        let writes = ids.map(|id| ItemWrite::upsert(item(id, 200 * KIB))).to_vec();
        world.container.batch("p", writes).await.unwrap();
    }
    let request = world.now_on().await;
    world.upsert_together(6, 200 * KIB).await;
    let (page, read) = world.read(&request).await;
    let page = page.unwrap();
    let ids: Vec<&str> = page.changes.iter().map(headwater_store::Change::id).collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4", "5"]);
    for change in &page.changes {
        let start = format!(r#"{{"id":"{}""#, change.id());
        assert!(change.previous_bytes().unwrap().starts_with(start.as_bytes()), "{start}");
    }
    assert!(read < 3 * MIB, "{} KiB were read for {} KiB", read / KIB, size(&page) / KIB);
}

#[tokio::test]
async fn versions_before_the_changes_count_for_the_size_of_a_page() {
    let world = World::new().await;
    world.upsert_apart(20, MIB).await;
    let request = world.now_on().await;
    world.delete_apart(20).await;
    let (mut next, mut seen) = (request, BTreeSet::new());
    loop {
        let (page, _) = world.read(&next).await;
        let page = page.unwrap();
        if page.changes.is_empty() {
            break;
        }
        assert!(size(&page) < 6 * MIB, "{} MiB on a page of 4", size(&page) / MIB);
        for change in &page.changes {
            assert!(change.previous().is_some());
            assert!(seen.insert(change.id().to_owned()), "{} came twice", change.id());
        }
        next = next.behind(&page);
    }
    assert_eq!(seen.len(), 20);
}

#[tokio::test]
async fn a_filter_that_looks_at_versions_before_changes_looks_at_few_for_one_page() {
    let world = World::new().await;
    world.upsert_apart(30, MIB).await;
    let request = world.now_on().await;
    world.delete_apart(30).await;
    let filter = FeedFilter::new().matching("c.id = '29'").unwrap();
    let mut next = request.filter(filter);
    let (mut pages, mut found) = (0, 0);
    loop {
        let (page, read) = world.read(&next).await;
        let page = page.unwrap();
        assert!(read < 12 * MIB, "{} MiB were read for one page", read / MIB);
        found += page.changes.len();
        pages += 1;
        if !page.unfinished {
            break;
        }
        next = next.behind(&page);
    }
    assert_eq!(found, 1);
    assert!(pages > 2, "{pages} pages");
}

#[tokio::test]
async fn a_large_page_is_refused_without_being_read() {
    let world = World::new().await;
    world.upsert_apart(1, 10).await;
    let all = world.now_on().await;
    let limit = PageLimit::new(1_000, 4 << 20).unwrap();
    let latest = FeedRequest::new(FeedStart::Beginning).limit(limit);
    world.upsert_together(100, 15 * KIB).await;
    let filter = FeedFilter::new().matching("c.id = '5'").unwrap();
    let filtered = all.clone().filter(filter);
    for request in [all, latest, filtered] {
        let (refused, read) = world.read(&request.clone().refuse_above(MIB)).await;
        assert!(matches!(refused, Err(FeedError::LargePage { .. })), "{request:?}");
        assert!(read < 64 * KIB, "{request:?}: {read} bytes were read");
        let (page, _) = world.read(&request.refuse_above(2 * MIB)).await;
        assert!(!page.unwrap().changes.is_empty());
    }
    // The changes are small, but the previous versions are large.
    let request = world.now_on().await;
    let deletes = (0..100).map(|id| ItemWrite::delete("p", &id.to_string())).collect();
    world.container.batch("p", deletes).await.unwrap();
    let (refused, _) = world.read(&request.clone().refuse_above(MIB)).await;
    assert!(matches!(refused, Err(FeedError::LargePage { .. })));
    let (page, _) = world.read(&request).await;
    assert_eq!(page.unwrap().changes.len(), 100);
}

/// A larger transaction would be a page that readers of the feed over HTTP have no memory for.
#[tokio::test]
async fn a_batch_writes_and_replaces_16_mib_at_most() {
    let too_large = |refused: Result<Vec<Written>, BatchError>, index| {
        let BatchError { index: at, error } = refused.unwrap_err();
        assert!(matches!(error, WriteError::TransactionTooLarge { .. }), "{error}");
        assert_eq!(at, index);
    };
    let world = World::new().await;
    world.upsert_apart(20, MIB).await;
    let newest = world.now_on().await;
    let deletes = |ids: std::ops::Range<usize>| {
        ids.map(|id| ItemWrite::delete("p", &id.to_string())).collect::<Vec<_>>()
    };
    too_large(world.container.batch("p", deletes(0..20)).await, 19);
    let patch =
        |id: usize| ItemWrite::patch("p", &id.to_string(), Patch::new().set("/n", "1").unwrap());
    too_large(world.container.batch("p", (0..20).map(patch).collect()).await, 15);
    assert!(world.read(&newest).await.0.unwrap().changes.is_empty(), "nothing was written");
    world.container.batch("p", deletes(0..15)).await.unwrap();

    // Entries with several items: only the items that are replaced count.
    let world = World::new().await;
    for first in (0..60).step_by(20) {
        let large = (first..first + 10).map(|id| ItemWrite::upsert(item(id, 190 * KIB)));
        let small = (first + 10..first + 20).map(|id| ItemWrite::upsert(item(id, 10)));
        world.container.batch("p", large.chain(small).collect()).await.unwrap();
    }
    for first in (60..200).step_by(10) {
        let large = (first..first + 10).map(|id| ItemWrite::upsert(item(id, 190 * KIB)));
        world.container.batch("p", large.collect()).await.unwrap();
    }
    let one_of_each = (0..60).step_by(20).chain((60..200).step_by(10));
    let writes: Vec<_> = one_of_each.map(|id| ItemWrite::upsert(item(id, 10))).collect();
    world.container.batch("p", writes).await.unwrap();
    too_large(world.container.batch("p", deletes(101..199)).await, 97);
}

#[tokio::test]
async fn a_script_replaces_and_deletes_16_mib_at_most() {
    let world = World::new().await;
    world.upsert_apart(20, MIB).await;
    let source = "function purge() {
        var deleted = 0;
        for (var id = 0; id < 20; id++) {
            if (__.deleteDocument(__.getSelfLink() + 'docs/' + id)) deleted++;
        }
        __.response.setBody(deleted);
    }";
    let call = ProcedureCall {
        script: Script { name: "purge".to_owned(), source: source.to_owned() },
        arguments: "[]".to_owned(),
        functions: Vec::new(),
    };
    let executed = world.container.execute("p", &call).await.unwrap();
    assert_eq!(executed.response.as_deref(), Some("15"));
}

#[tokio::test]
async fn the_deletes_of_a_partition_key_are_in_transactions_of_16_mib() {
    let world = World::new().await;
    world.upsert_apart(40, MIB).await;
    let request = world.now_on().await;
    assert_eq!(world.container.delete_partition_key("p").await.unwrap(), 40);
    let (mut next, mut transactions) = (request, Vec::new());
    loop {
        let (page, _) = world.read(&next).await;
        let page = page.unwrap();
        if page.changes.is_empty() {
            break;
        }
        let lsns: BTreeSet<_> = page.changes.iter().map(headwater_store::Change::lsn).collect();
        assert_eq!(lsns.len(), 1);
        transactions.push(size(&page) / MIB);
        next = next.behind(&page);
    }
    assert_eq!(transactions, [15, 15, 10]);
}
