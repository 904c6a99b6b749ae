//! Damage of the index while the store is in use: it is rebuilt from the log at once.
//!
//! Reads and writes that hit the damage get an error with the remedy to retry, and nothing acknowledged is lost. A
//! partition whose log is damaged too is quarantined, and the others are served.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_runtime::Runtime;
use headwater_store::query::{Query, QueryFailure};
use headwater_store::{
    Account, Container, ContainerDefinition, FeedError, FeedRequest, FeedStart, ItemReadError,
    ItemWrite, Options, PageLimit, RangeInfo, Remedy, ScanScope, StorageError, WriteError,
};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use support::{Reader, Scope, scratch};
use tokio::sync::oneshot;

/// Time limit for a rebuild on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const ITEMS: usize = 2_000;

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 64 << 10;
    options.recent_bytes = 0;
    options.index_after_items = 10;
    options.maintenance_interval = Duration::ZERO;
    options
}

/// The log output of the process, shared by all tests.
fn logged() -> &'static Mutex<Vec<u8>> {
    static LOGGED: OnceLock<Mutex<Vec<u8>>> = OnceLock::new();
    LOGGED.get_or_init(|| {
        struct Sink;
        impl std::io::Write for Sink {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                logged().lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(|| Sink)
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        Mutex::default()
    })
}

/// Number of log lines that name this directory and contain `what`.
fn lines_about(dir: &Path, what: &str) -> usize {
    let text = String::from_utf8_lossy(&logged().lock().unwrap()).into_owned();
    let dir = dir.display().to_string();
    text.lines().filter(|line| line.contains(&dir) && line.contains(what)).count()
}

/// Creates two containers with many rows, deletes and a split; one has unique keys and expiry.
async fn build(dir: &Path) {
    let account = Account::open(dir, options()).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    for (id, partitions) in [("plain", 2), ("limited", 1)] {
        let definition = ContainerDefinition::new(id, "/pk").unwrap();
        let definition = match id {
            "limited" => definition.with_default_ttl(-1).with_unique_key(&["/n"]),
            _ => definition,
        };
        let container = database.create_container_with(definition, partitions).await.unwrap();
        for key in 0..ITEMS / 100 {
            let write = |number: usize| {
                ItemWrite::upsert(format!(
                    r#"{{"id":"{number}","pk":"k{key}","n":{number},"ttl":1000000}}"#
                ))
            };
            let writes = (0..100).map(|number| write(key * 100 + number)).collect();
            container.batch(format!("k{key}"), writes).await.map_err(|error| error.error).unwrap();
            container.delete(format!("k{key}"), &format!("{}", key * 100)).await.unwrap();
        }
        if id == "plain" {
            container.split(container.ranges()[0].id, None).await.unwrap();
        }
    }
    account.close().await.unwrap();
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.parent().is_some_and(|parent| parent.ends_with("tables")) {
                found.push(path);
            }
        }
    }
    found
}

/// Flips bits in every hundredth byte of every index table, in the files that the engine has open.
fn damage(dir: &Path) {
    let tables = tables(&dir.join("index"));
    assert!(!tables.is_empty(), "the index has tables");
    for table in tables {
        let mut bytes = std::fs::read(&table).unwrap();
        bytes.iter_mut().step_by(100).for_each(|byte| *byte ^= 0x55);
        std::fs::write(&table, bytes).unwrap();
    }
}

/// Retries until the rebuild is done and returns the value. Asserts that every error has the remedy to retry.
async fn patiently<T, E: std::fmt::Debug, F: Future<Output = Result<T, E>>>(
    met: &AtomicBool,
    storage: impl Fn(&E) -> Option<&StorageError>,
    attempt: impl Fn() -> F,
) -> T {
    let runtime = Runtime::system();
    let begun = runtime.elapsed();
    loop {
        let error = match attempt().await {
            Ok(value) => return value,
            Err(error) => error,
        };
        met.store(true, Ordering::SeqCst);
        let remedy = storage(&error).map(StorageError::remedy);
        assert_eq!(remedy, Some(Remedy::RetryLater), "{error:?}");
        assert!(runtime.elapsed() - begun < PATIENCE, "never rebuilt: {error:?}");
        runtime.sleep(Duration::from_millis(5)).await;
    }
}

fn of_read(error: &ItemReadError) -> Option<&StorageError> {
    match error {
        ItemReadError::Storage(error) => Some(error),
        _ => None,
    }
}

fn of_write(error: &WriteError) -> Option<&StorageError> {
    match error {
        WriteError::Storage(error) => Some(error),
        _ => None,
    }
}

/// Every item of a container by its id.
async fn all_items(container: &Container, met: &AtomicBool) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for number in 0..ITEMS + 2_000 {
        let (key, id) = (format!("k{}", number / 100), number.to_string());
        let read = || container.read(key.as_str(), &id);
        if let Some(item) = patiently(met, of_read, read).await {
            found.insert(id, item.to_bytes().to_vec());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_index_is_rebuilt_while_the_server_runs() {
    logged();
    let dir = scratch();
    build(dir.path()).await;
    let account = Account::open(dir.path(), options()).await.unwrap();
    let met = Arc::new(AtomicBool::new(false));
    let mut expected = BTreeMap::new();
    for container in account.find_database("db").unwrap().containers() {
        expected.insert(container.id().to_string(), all_items(&container, &met).await);
    }
    assert!(!met.load(Ordering::SeqCst));
    account.close().await.unwrap();
    drop(account);

    // Opened again, so that no table block is cached.
    let account = Account::open(dir.path(), options()).await.unwrap();
    damage(dir.path());
    let containers = account.find_database("db").unwrap().containers();
    let done = Arc::new(AtomicBool::new(false));
    let writers = containers.iter().cloned().map(|container| {
        let (met, done) = (met.clone(), done.clone());
        let (sender, receiver) = oneshot::channel();
        Runtime::system().spawn("test writer", async move {
            let mut written = BTreeMap::new();
            for number in ITEMS..ITEMS + 2_000 {
                if done.load(Ordering::SeqCst) && number > ITEMS + 20 {
                    break;
                }
                let body = format!(r#"{{"id":"{number}","pk":"k{}","n":{number}}}"#, number / 100);
                let write = || container.create(body.clone());
                let made = patiently(&met, of_write, write).await;
                written.insert(number.to_string(), made.item.unwrap().to_bytes().to_vec());
            }
            sender.send(written).unwrap();
        });
        receiver
    });
    let writers: Vec<_> = writers.collect();
    for container in &containers {
        let found = all_items(container, &met).await;
        let expected = &expected[container.id().as_str()];
        assert!(expected.iter().all(|(id, item)| found.get(id) == Some(item)));
    }
    done.store(true, Ordering::SeqCst);
    assert!(met.load(Ordering::SeqCst), "no read hit the damage");
    for (container, writer) in containers.iter().zip(writers) {
        let all = expected.get_mut(container.id().as_str()).unwrap();
        all.extend(writer.await.unwrap());
        check(container, all).await;
        let twice = format!(r#"{{"id":"twice","pk":"k1","n":{}}}"#, 150);
        let refused = container.create(twice).await;
        let is_limited = container.id().as_str() == "limited";
        assert_eq!(matches!(refused, Err(WriteError::UniqueKey { .. })), is_limited);
        if !is_limited {
            container.delete("k1", "twice").await.unwrap();
        }
    }
    assert_eq!(lines_about(dir.path(), "index failed"), 1, "logged once");
    let rebuilt = lines_about(dir.path(), "rebuilt from the log");
    account.close().await.unwrap();
    drop((account, containers));

    let account = Account::open(dir.path(), options()).await.unwrap();
    for container in account.find_database("db").unwrap().containers() {
        check(&container, &expected[container.id().as_str()]).await;
    }
    account.close().await.unwrap();
    assert_eq!(lines_about(dir.path(), "rebuilt from the log"), rebuilt, "the next start is quick");
    let indexes = std::fs::read_dir(dir.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("index"));
    assert_eq!(indexes.count(), 1, "the damaged files are gone");
}

/// Flips bits in the middle of the first segment of a partition, in the file that the log has open.
fn damage_log(dir: &Path, partition: &str) -> PathBuf {
    let mut dirs = vec![dir.join("containers")];
    let mut segments = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let is_segment = path.extension().is_some_and(|extension| extension == "seg");
            if path.is_dir() {
                dirs.push(path);
            } else if is_segment && path.parent().unwrap().ends_with(partition) {
                segments.push(path);
            }
        }
    }
    segments.sort();
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(&segments[0]).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.seek(SeekFrom::Start(middle)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(middle)).unwrap();
    file.write_all(&[byte[0] ^ 0x55]).unwrap();
    segments.swap_remove(0)
}

/// Asserts that the error of a quarantined partition names the file, the byte, the LSN and the next step.
fn check_quarantined(error: &StorageError, file: &Path, dir: &Path) {
    assert!(matches!(error, StorageError::Quarantined(_)), "{error}");
    assert_eq!(error.remedy(), Remedy::Restore);
    let text = error.to_string();
    let (file, dir) = (file.display().to_string(), dir.display());
    let next_step = format!("headwater doctor --data {dir}");
    for part in ["partition 1 of container plain", &file, "byte", "LSN", &next_step] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_whose_log_is_damaged_too_is_quarantined_while_the_server_runs() {
    logged();
    let dir = scratch();
    build(dir.path()).await;
    let account = Account::open(dir.path(), options()).await.unwrap();
    let plain = account.find_database("db").unwrap().find_container("plain").unwrap();
    let lost = plain.ranges().iter().find(|range| range.id.get() == 1).unwrap().clone();
    let is_lost = |container: &Container, key: &str| {
        let epk = container.definition().partition_key().epk(&key.into()).unwrap();
        container.id().as_str() == "plain" && lost.range.contains(epk.as_bytes())
    };
    // A reader that waits for changes of the partition.
    let waiting = {
        let (plain, id, (sender, receiver)) = (plain.clone(), lost.id, oneshot::channel());
        let request = FeedRequest::new(FeedStart::Now).of_range(id).wait(PATIENCE * 2);
        let read = async move { drop(sender.send(plain.read_feed(&request).await)) };
        Runtime::system().spawn("test reader", read);
        receiver
    };
    let file = damage_log(dir.path(), "00000001");
    damage(dir.path());

    let met = AtomicBool::new(false);
    let mut counts = BTreeMap::new();
    for container in account.find_database("db").unwrap().containers() {
        for number in 0..ITEMS {
            let (key, id) = (format!("k{}", number / 100), number.to_string());
            let read = || async {
                let read = container.read(key.as_str(), &id).await;
                match read {
                    Err(ItemReadError::Storage(error)) if error.damage().is_some() => {
                        Ok(Err(error))
                    }
                    read => read.map(Ok),
                }
            };
            let is_lost = is_lost(&container, &key);
            match patiently(&met, of_read, read).await {
                Ok(item) => assert_eq!(item.is_some(), number % 100 != 0, "{number}"),
                Err(error) => assert!(is_lost, "{number}: {error}"),
            }
            *counts.entry(is_lost).or_insert(0) += 1;
        }
    }
    assert!(met.load(Ordering::SeqCst) && counts.len() == 2, "{counts:?}");
    let runtime = Runtime::system();
    let begun = runtime.elapsed();
    while account.quarantined().is_empty() {
        assert!(runtime.elapsed() - begun < PATIENCE, "never quarantined");
        runtime.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(account.quarantined().len(), 1);
    check_lost(&plain, &lost, &file, dir.path()).await;
    let Err(FeedError::Storage(error)) = waiting.await.unwrap() else { panic!("a page") };
    check_quarantined(&error, &file, dir.path());
    // All other partitions are readable and writable.
    for container in account.find_database("db").unwrap().containers() {
        let keys = (0..ITEMS / 100).map(|key| format!("k{key}"));
        for key in keys.filter(|key| !is_lost(&container, key)) {
            let id = format!("new {key}");
            let write = || container.create(format!(r#"{{"id":"{id}","pk":"{key}","n":"{id}"}}"#));
            patiently(&met, of_write, write).await;
            assert!(container.read(key.as_str(), &id).await.unwrap().is_some());
        }
    }
    assert_eq!(lines_about(dir.path(), "is quarantined"), 1, "logged once");
    assert_eq!(lines_about(dir.path(), "rebuilt from the log"), 1);
    assert!(account.stopped_tasks().is_empty());
    account.close().await.unwrap();
    drop((account, plain));

    let account = Account::open(dir.path(), options()).await.unwrap();
    let plain = account.find_database("db").unwrap().find_container("plain").unwrap();
    assert_eq!(account.quarantined().len(), 1, "it is still damaged");
    check_lost(&plain, &lost, &file, dir.path()).await;
    account.close().await.unwrap();
}

/// Asserts that every request that needs a quarantined partition returns the error that explains it.
async fn check_lost(container: &Container, lost: &RangeInfo, file: &Path, dir: &Path) {
    let key = (0..ITEMS / 100).map(|key| format!("k{key}")).find(|key| {
        let epk = container.definition().partition_key().epk(&key.as_str().into()).unwrap();
        lost.range.contains(epk.as_bytes())
    });
    let key = key.unwrap();
    let read = container.read(key.as_str(), "no such item").await;
    let written = container.upsert(format!(r#"{{"id":"1","pk":"{key}"}}"#)).await;
    let page = PageLimit::items(10).unwrap();
    let scanned = container.scan(&ScanScope::Range(lost.id), None, page).await;
    let listed = container.list(&ScanScope::Container, None, page).await;
    let feed = FeedRequest::new(FeedStart::Beginning);
    let fed = container.read_feed(&feed.clone().of_range(lost.id)).await;
    let fed_all = container.read_feed(&feed).await;
    let reads = [read.map(drop), scanned.map(drop), listed.map(drop)];
    for read in reads {
        check_quarantined(of_read(&read.unwrap_err()).unwrap(), file, dir);
    }
    for read in [fed, fed_all] {
        let Err(FeedError::Storage(error)) = read else { panic!("a page") };
        check_quarantined(&error, file, dir);
    }
    check_quarantined(of_write(&written.unwrap_err()).unwrap(), file, dir);
    for text in ["SELECT VALUE COUNT(1) FROM c", "SELECT * FROM c WHERE c.n = 1", "SELECT * FROM c"]
    {
        let query = Query::parse(text, &[]).unwrap();
        let asked = container.query(&query, &ScanScope::Container, None, page).await;
        let Err(QueryFailure::Read(ItemReadError::Storage(error))) = asked else {
            panic!("{text}: rows")
        };
        check_quarantined(&error, file, dir);
    }
}

/// Asserts that items, their count, the feed and a query match what was written.
async fn check(container: &Container, expected: &BTreeMap<String, Vec<u8>>) {
    let found = all_items(container, &AtomicBool::new(false)).await;
    assert!(found == *expected, "{}", container.id());
    let feed = Reader::latest(Scope::Container, 500);
    let (changes, _) = feed.drain(container, FeedStart::Beginning).await.unwrap();
    assert_eq!(changes.len(), expected.len());
    assert_eq!(ask(container, "SELECT VALUE COUNT(1) FROM c").await, [expected.len().to_string()]);
    let number = ITEMS / 2 + 1;
    for _ in 0..2 {
        let rows = ask(container, &format!("SELECT VALUE c.id FROM c WHERE c.n = {number}")).await;
        assert_eq!(rows, [format!("\"{number}\"")]);
    }
}

async fn ask(container: &Container, text: &str) -> Vec<String> {
    let query = Query::parse(text, &[]).unwrap();
    let (mut rows, mut position) = (Vec::new(), None::<String>);
    for _ in 0..100 {
        let limit = PageLimit::items(1_000).unwrap();
        let page = container.query(&query, &ScanScope::Container, position.as_deref(), limit);
        let page = page.await.unwrap();
        rows.extend(page.rows.iter().map(|row| String::from_utf8_lossy(row).into_owned()));
        position = page.next;
        if position.is_none() {
            return rows;
        }
    }
    panic!("the query does not end");
}
