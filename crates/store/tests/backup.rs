//! Backups are made while writing, and a restore verifies the state it restores.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use bytes::Bytes;
use headwater_runtime::Runtime;
use headwater_store::{
    Account, BackupCut, BackupError, BackupPartition, BackupPlan, BackupSource, BackupSummary,
    Container, ContainerDefinition, Continuation, CopyOptions, FeedRequest, FeedStart, Lsn,
    OpenError, Options, PageLimit, copy_backup, restore,
};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::scratch;

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 32 << 10;
    options.history = Duration::ZERO;
    options
}

async fn new_store(dir: &Path) -> (Account, Container) {
    let account = Account::open(dir, options()).await.unwrap();
    let database = account.create_database("d").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 3).await.unwrap();
    (account, container)
}

/// Asserts that two summaries are equal except for the bytes that were copied.
#[track_caller]
fn assert_same(one: &BackupSummary, other: &BackupSummary) {
    let of = |summary: &BackupSummary| {
        let BackupSummary { partitions, items, bytes, state_hash, .. } = summary;
        (*partitions, *items, *bytes, state_hash.clone())
    };
    assert_eq!(of(one), of(other));
}

/// The objects of a backup, each with the file it is a part of.
fn parts(root: &Path) -> Vec<(String, PathBuf)> {
    let contents = std::fs::read_to_string(root.join("BACKUP.json")).unwrap();
    let contents: serde_json::Value = serde_json::from_str(&contents).unwrap();
    let mut found = Vec::new();
    for file in contents["files"].as_array().unwrap() {
        for part in file["parts"].as_array().unwrap() {
            let object = root.join(part["object"].as_str().unwrap());
            found.push((file["path"].as_str().unwrap().to_owned(), object));
        }
    }
    found
}

async fn write(container: &Container, number: u64) {
    let body = format!(r#"{{"id":"{}","pk":"{}","n":{number}}}"#, number % 500, number % 13);
    container.upsert(body).await.unwrap();
}

async fn everything(container: &Container) -> Vec<String> {
    let limit = PageLimit::items(10_000).unwrap();
    let request = FeedRequest::new(FeedStart::Beginning).limit(limit);
    let page = container.read_feed(&request).await.unwrap();
    let mut seen: Vec<String> = page
        .changes
        .iter()
        .map(|change| String::from_utf8(change.body().to_vec()).unwrap())
        .collect();
    seen.sort();
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_backup_is_what_was_there() {
    let (dir, place, target) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (account, container) = new_store(dir.path()).await;
    for number in 0..3_000 {
        write(&container, number).await;
    }
    let first = container.ranges()[0].id;
    container.split(first, None).await.unwrap();
    account.maintain().await.unwrap();
    for number in 3_000..3_500 {
        write(&container, number).await;
    }
    let position = container.read_feed(&FeedRequest::new(FeedStart::Now)).await.unwrap();
    let place = LocalFileSystem::new_with_prefix(place.path()).unwrap();
    let summary = account.backup(&place, "nightly").await.unwrap();
    assert_eq!(summary.state_hash, account.state_hash().unwrap());
    let before = everything(&container).await;
    write(&container, 9_999).await; // not in the backup
    account.close().await.unwrap();

    let into = target.path().join("restored");
    let (restored, proved) = restore(&place, "nightly", &into, options()).await.unwrap();
    assert_same(&proved, &summary);
    let container = restored.database("d").await.unwrap().container("c").await.unwrap();
    assert_eq!(everything(&container).await, before, "same bytes, etags and LSNs");
    let next = FeedRequest::after(position.continuation);
    assert!(
        container.read_feed(&next).await.unwrap().changes.is_empty(),
        "old positions are valid"
    );
    write(&container, 4_000).await;
    assert_eq!(container.read_feed(&next).await.unwrap().changes.len(), 1);
    restored.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_made_while_writing() {
    let (dir, place, target) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (account, container) = new_store(dir.path()).await;
    let place = LocalFileSystem::new_with_prefix(place.path()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (ended, mut writers) = tokio::sync::mpsc::channel::<()>(1);
    for writer in 0..4_u64 {
        let (container, stop, ended) = (container.clone(), stop.clone(), ended.clone());
        Runtime::system().spawn("writer", async move {
            let mut number = writer;
            while !stop.load(Ordering::Relaxed) && number < 200_000 {
                write(&container, number).await;
                number += 4;
            }
            drop(ended);
        });
    }
    drop(ended);
    for round in 0..5 {
        let prefix = format!("round{round}");
        let summary = account.backup(&place, &prefix).await.unwrap();
        let into = target.path().join(&prefix);
        let (restored, proved) = restore(&place, &prefix, &into, options()).await.unwrap();
        assert_same(&proved, &summary);
        restored.close().await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writers.recv().await.is_none());
    account.close().await.unwrap();
}

#[tokio::test]
async fn what_is_not_a_whole_backup_is_refused() {
    let (dir, place_dir, target) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (account, container) = new_store(dir.path()).await;
    for number in 0..200 {
        write(&container, number).await;
    }
    let place = LocalFileSystem::new_with_prefix(place_dir.path()).unwrap();
    let missing = restore(&place, "b", &target.path().join("0"), options()).await;
    assert!(matches!(missing, Err(BackupError::Contents(_))), "{missing:?}");
    account.backup(&place, "b").await.unwrap();
    account.close().await.unwrap();

    let occupied = restore(&place, "b", dir.path(), options()).await;
    assert!(matches!(occupied, Err(BackupError::NotEmpty(_))), "{occupied:?}");

    let contents = place_dir.path().join("b/BACKUP.json");
    let good = std::fs::read_to_string(&contents).unwrap();
    for (number, (from, to)) in [
        ("\"format\": 2", "\"format\": 99"),
        ("catalog/MANIFEST", "../../MANIFEST"),
        ("catalog/MANIFEST", "/MANIFEST"),
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(&contents, good.replace(from, to)).unwrap();
        let into = target.path().join(format!("c{number}"));
        let refused = restore(&place, "b", &into, options()).await;
        assert!(matches!(refused, Err(BackupError::Contents(_))), "{to}: {refused:?}");
    }
    std::fs::write(&contents, "{").unwrap();
    let refused = restore(&place, "b", &target.path().join("d"), options()).await;
    assert!(matches!(refused, Err(BackupError::Contents(_))), "{refused:?}");
    std::fs::write(&contents, &good).unwrap();

    let parts = parts(&place_dir.path().join("b"));
    let (_, manifest) = parts.iter().find(|(path, _)| path == "catalog/MANIFEST").unwrap();
    let mut bytes = std::fs::read(manifest).unwrap();
    bytes[20] ^= 1;
    std::fs::write(manifest, &bytes).unwrap();
    let refused = restore(&place, "b", &target.path().join("e"), options()).await;
    assert!(matches!(refused, Err(BackupError::Damaged { .. })), "{refused:?}");
    std::fs::remove_file(manifest).unwrap();
    let refused = restore(&place, "b", &target.path().join("f"), options()).await;
    assert!(matches!(refused, Err(BackupError::Damaged { .. })), "{refused:?}");
    // An unfinished restore does not open.
    let opened = Account::open(target.path().join("f"), options()).await;
    assert!(matches!(opened, Err(OpenError::UnfinishedRestore { .. })), "{opened:?}");
}

/// Every version after a position, with its previous image.
async fn versions(container: &Container, position: &Continuation) -> Vec<String> {
    let limit = PageLimit::items(10_000).unwrap();
    let request = FeedRequest::after(position.clone()).all_versions().limit(limit);
    let page = container.read_feed(&request).await.unwrap();
    let show = |change: &headwater_store::Change| {
        let (item, previous) = (change.item(), change.previous());
        format!("{change:?} {} {item:?} {previous:?}", change.timestamp().as_millis())
    };
    page.changes.iter().map(show).collect()
}

/// A restore keeps positions of both feeds, etags, LSNs, ids and definitions of several kinds of containers.
#[tokio::test]
async fn a_restored_store_continues_as_the_one_that_was_backed_up() {
    let (dir, place, target) = (scratch(), scratch(), scratch());
    let account = Account::open(dir.path(), options()).await.unwrap();
    let mut containers = Vec::new();
    for database in ["one", "two"] {
        let database = account.create_database(database).await.unwrap();
        for number in 0..3 {
            let definition = ContainerDefinition::new(&format!("c{number}"), "/pk").unwrap();
            let day = Duration::from_secs(24 * 3600);
            let definition = definition.with_all_versions(day).with_default_ttl(100_000);
            let container = database.create_container_with(definition, number + 1).await.unwrap();
            for number in 0..400 {
                write(&container, number * 7).await;
            }
            container.delete("0", "0").await.unwrap();
            let split = container.ranges()[0].id;
            container.split(split, None).await.unwrap();
            write(&container, 1).await;
            containers.push((database.clone(), container));
        }
    }
    let half = Continuation::Single(Lsn::new(10));
    let mut before = Vec::new();
    for (_, container) in &containers {
        let now = container.read_feed(&FeedRequest::new(FeedStart::Now)).await.unwrap();
        let seen = (everything(container).await, versions(container, &half).await);
        let about = (container.rid(), container.etag(), container.ranges());
        before.push((seen, about, now.continuation));
    }
    let place = LocalFileSystem::new_with_prefix(place.path()).unwrap();
    let summary = account.backup(&place, "b").await.unwrap();
    let hash = account.state_hash().unwrap();
    assert_eq!(summary.state_hash, hash, "independent of the order of containers");
    account.close().await.unwrap();

    let into = target.path().join("restored");
    let (restored, _) = restore(&place, "b", &into, options()).await.unwrap();
    assert_eq!(restored.state_hash().unwrap(), hash);
    for ((database, container), (seen, about, now)) in containers.iter().zip(before) {
        let database = restored.database(database.id()).await.unwrap();
        let container = database.container(&container.id()).await.unwrap();
        assert_eq!((container.rid(), container.etag(), container.ranges()), about);
        assert_eq!((everything(&container).await, versions(&container, &half).await), seen);
        let next = FeedRequest::after(now.clone()).all_versions();
        assert!(container.read_feed(&next).await.unwrap().changes.is_empty());
        // New changes come after the old ones, and new items get unused resource ids.
        let highest = container.ranges().iter().map(|range| range.lsn).max().unwrap();
        let written = container.create(r#"{"id":"new","pk":"3"}"#).await.unwrap().into_item();
        assert!(written.lsn() <= highest.next());
        let page = container.read_feed(&next).await.unwrap();
        assert_eq!(page.changes.len(), 1);
        let rid = |text: &str| {
            let item: serde_json::Value = serde_json::from_str(text).unwrap();
            item["_rid"].as_str().unwrap().to_owned()
        };
        let new = rid(std::str::from_utf8(&written.to_bytes()).unwrap());
        assert!(seen.0.iter().all(|old| rid(old) != new), "a resource id is never given twice");
    }
    restored.close().await.unwrap();
}

/// A restore is rejected if any file of the backup is changed, cut or missing.
#[tokio::test]
async fn every_damaged_file_of_a_backup_is_noticed() {
    let (dir, place_dir, target) = (scratch(), scratch(), scratch());
    let (account, container) = new_store(dir.path()).await;
    for number in 0..300 {
        write(&container, number).await;
    }
    let place = LocalFileSystem::new_with_prefix(place_dir.path()).unwrap();
    account.backup(&place, "b").await.unwrap();
    account.close().await.unwrap();
    let root = place_dir.path().join("b");
    let contents = std::fs::read_to_string(root.join("BACKUP.json")).unwrap();
    let listed: serde_json::Value = serde_json::from_str(&contents).unwrap();
    let files = parts(&root);
    assert!(files.len() > 8, "{files:?}");
    let mut number = 0;
    let mut attempt = async || {
        number += 1;
        let into = target.path().join(number.to_string());
        restore(&place, "b", &into, options()).await.map(|_| ())
    };
    for (_, path) in files {
        let good = std::fs::read(&path).unwrap();
        for at in [0, good.len() / 2, good.len() - 1] {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            let refused = attempt().await;
            let damaged = matches!(&refused, Err(BackupError::Damaged { file: named, .. })
                if path.ends_with(named));
            assert!(damaged, "{}: {refused:?}", path.display());
        }
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        let refused = attempt().await;
        assert!(matches!(refused, Err(BackupError::Damaged { .. })), "{refused:?}");
        std::fs::remove_file(&path).unwrap();
        let refused = attempt().await;
        assert!(refused.is_err_and(|error| !error.to_string().is_empty()));
        std::fs::write(&path, good).unwrap();
    }
    // A list that omits a file, or that states another content than the files have.
    let mut shorter = listed.clone();
    shorter["files"].as_array_mut().unwrap().pop();
    std::fs::write(root.join("BACKUP.json"), shorter.to_string()).unwrap();
    let refused = attempt().await;
    // The store opens and quarantines the partition whose file is missing, but the restore fails.
    let is_noticed = matches!(refused, Err(BackupError::Open(_) | BackupError::Storage(_)));
    assert!(is_noticed, "{refused:?}");
    for (field, value) in [("items", 7.into()), ("lsn", 7.into()), ("state", "00".into())] {
        let mut lie = listed.clone();
        lie["partitions"][0][field] = value;
        std::fs::write(root.join("BACKUP.json"), lie.to_string()).unwrap();
        let refused = attempt().await;
        assert!(matches!(refused, Err(BackupError::StateDiffers { .. })), "{field}: {refused:?}");
    }
    // No path in the list makes a restore write outside of the target directory.
    for path in ["../out", "catalog/../../out", "/dev/shm/out", "./../out", ".."] {
        let mut outside = listed.clone();
        outside["files"][0]["path"] = path.into();
        std::fs::write(root.join("BACKUP.json"), outside.to_string()).unwrap();
        let refused = attempt().await;
        assert!(matches!(refused, Err(BackupError::Contents(_))), "{path}: {refused:?}");
    }
    let out = target.path().join("out");
    assert!(!out.exists() && !std::path::Path::new("/dev/shm/out").exists());
    std::fs::write(root.join("BACKUP.json"), contents).unwrap();
    assert!(attempt().await.is_ok(), "undamaged again, it is good");
}

/// The bytes of every object under a directory, by path.
fn objects(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap())),
            }
        }
    }
    found
}

/// Sealed segments are reused, only the end of the active segment is copied, and objects that a restore does not
/// need are deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_backup_copies_only_what_is_new() {
    let (dir, place_dir, target) = (scratch(), scratch(), scratch());
    let (account, container) = new_store(dir.path()).await;
    for number in 0..3_000 {
        write(&container, number).await;
    }
    let place = LocalFileSystem::new_with_prefix(place_dir.path()).unwrap();
    let first = account.backup(&place, "b").await.unwrap();
    assert_eq!(first.copied_bytes, first.bytes);
    let before = objects(place_dir.path());
    let same = account.backup(&place, "b").await.unwrap();
    assert_eq!(same.copied_bytes, 0);
    assert_eq!(objects(place_dir.path()), before, "nothing new");
    write(&container, 1).await;
    let second = account.backup(&place, "b").await.unwrap();
    // One item, and the manifests, which state the end of each log.
    let parts = parts(&place_dir.path().join("b"));
    let manifests = parts.iter().filter(|(path, _)| path.ends_with("MANIFEST"));
    let manifests: u64 = manifests.map(|(_, path)| path.metadata().unwrap().len()).sum();
    assert!(second.copied_bytes <= manifests + 1_000, "{second:?}, {manifests}");
    assert!(second.copied_bytes > 0);

    // Compaction rewrites everything, and the old objects are deleted.
    for number in 0..3_000 {
        write(&container, number).await;
    }
    account.maintain().await.unwrap();
    let third = account.backup(&place, "b").await.unwrap();
    let kept: u64 = objects(place_dir.path()).values().map(|bytes| bytes.len() as u64).sum();
    assert!(kept <= third.bytes + 100_000, "{kept} bytes for {third:?}");
    let hash = account.state_hash().unwrap();
    account.close().await.unwrap();
    let (restored, proved) =
        restore(&place, "b", &target.path().join("r"), options()).await.unwrap();
    assert_same(&proved, &third);
    assert_eq!(restored.state_hash().unwrap(), hash);
    restored.close().await.unwrap();
}

/// A restored store writes other entries under the same LSNs and file names as the original does after the backup.
/// A backup of it into the same place must not confuse the two.
#[tokio::test]
async fn a_backup_of_a_restored_store_does_not_take_over_what_the_original_wrote_later() {
    let (dir, place_dir, target) = (scratch(), scratch(), scratch());
    let (account, container) = new_store(dir.path()).await;
    for number in 0..500 {
        write(&container, number).await;
    }
    let place = LocalFileSystem::new_with_prefix(place_dir.path()).unwrap();
    account.backup(&place, "early").await.unwrap();
    for number in 500..900 {
        write(&container, number).await;
    }
    account.backup(&place, "b").await.unwrap();
    account.close().await.unwrap();
    let (restored, _) =
        restore(&place, "early", &target.path().join("1"), options()).await.unwrap();
    let container = restored.database("d").await.unwrap().container("c").await.unwrap();
    for number in 500..900 {
        write(&container, number).await;
    }
    let summary = restored.backup(&place, "b").await.unwrap();
    restored.close().await.unwrap();
    let again = restore(&place, "b", &target.path().join("2"), options()).await;
    let (again, proved) = again.unwrap();
    assert_same(&proved, &summary);
    again.close().await.unwrap();
}

/// A backup with verification finds and replaces damaged parts.
#[tokio::test]
async fn a_damaged_backup_is_repaired_by_comparing_it_with_the_store() {
    let (dir, place_dir, target) = (scratch(), scratch(), scratch());
    let (account, container) = new_store(dir.path()).await;
    for number in 0..1_000 {
        write(&container, number).await;
    }
    let place = LocalFileSystem::new_with_prefix(place_dir.path()).unwrap();
    account.backup(&place, "b").await.unwrap();
    for (_, path) in parts(&place_dir.path().join("b")).iter().step_by(3) {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let cut = account.begin_backup().await.unwrap();
    let options_of_copy = CopyOptions::default().verify(true);
    let copied = copy_backup(&cut, &place, "b", options_of_copy, &mut |_| ()).await.unwrap();
    assert!(copied.copied_bytes > 0 && copied.copied_bytes < copied.bytes, "{copied:?}");
    account.close().await.unwrap();
    let (restored, _) = restore(&place, "b", &target.path().join("r"), options()).await.unwrap();
    restored.close().await.unwrap();
}

/// A source that fails after some reads, as a killed command or a lost server does.
struct Failing {
    cut: BackupCut,
    reads: AtomicUsize,
    allowed: usize,
}

impl BackupSource for Failing {
    fn plan(&self) -> &BackupPlan {
        self.cut.plan()
    }

    async fn partition(&self, number: usize) -> Result<BackupPartition, BackupError> {
        BackupSource::partition(&self.cut, number).await
    }

    async fn read(
        &self,
        file: usize,
        offset: u64,
        bytes: usize,
        known: Option<&str>,
    ) -> Result<Option<Bytes>, BackupError> {
        if self.reads.fetch_add(1, Ordering::Relaxed) >= self.allowed {
            return Err(BackupError::Source("the connection is lost".into()));
        }
        BackupSource::read(&self.cut, file, offset, bytes, known).await
    }
}

/// A source that waits with its first partition until another backup of the same store is complete.
struct Overtaken<'a> {
    cut: BackupCut,
    account: &'a Account,
    place: &'a InMemory,
    other: Mutex<Option<BackupSummary>>,
}

impl BackupSource for Overtaken<'_> {
    fn plan(&self) -> &BackupPlan {
        self.cut.plan()
    }

    async fn partition(&self, number: usize) -> Result<BackupPartition, BackupError> {
        if number == 0 {
            let other = self.account.begin_backup().await?;
            let options = CopyOptions::default().conditional(true);
            let other = copy_backup(&other, self.place, "b", options, &mut |_| ()).await?;
            *self.other.lock().unwrap() = Some(other);
        }
        BackupSource::partition(&self.cut, number).await
    }

    async fn read(
        &self,
        file: usize,
        offset: u64,
        bytes: usize,
        known: Option<&str>,
    ) -> Result<Option<Bytes>, BackupError> {
        BackupSource::read(&self.cut, file, offset, bytes, known).await
    }
}

/// Without locks, the first list that is written wins, with or without an earlier list.
#[tokio::test]
async fn of_two_backups_at_once_the_first_that_is_complete_counts() {
    let (dir, target) = (scratch(), scratch());
    let (account, container) = new_store(dir.path()).await;
    let place = InMemory::new();
    for round in 0..2 {
        write(&container, round).await;
        let cut = account.begin_backup().await.unwrap();
        write(&container, 100 + round).await;
        let (account, other) = (&account, Mutex::new(None));
        let source = Overtaken { cut, account, place: &place, other };
        let options = CopyOptions::default().conditional(true);
        let refused = copy_backup(&source, &place, "b", options, &mut |_| ()).await;
        assert!(matches!(refused, Err(BackupError::Overtaken)), "{refused:?}");
        let other = source.other.into_inner().unwrap().unwrap();
        let into = target.path().join(round.to_string());
        let (restored, summary) = restore(&place, "b", &into, self::options()).await.unwrap();
        assert_same(&summary, &other);
        restored.close().await.unwrap();
    }
    account.close().await.unwrap();
}

/// If a backup stops at any point, the previous one can be restored, and the next copies only the missing parts.
#[tokio::test]
async fn a_killed_backup_leaves_the_last_one_restorable() {
    let (dir, place_dir, target) = (scratch(), scratch(), scratch());
    let (account, container) = new_store(dir.path()).await;
    for number in 0..1_000 {
        write(&container, number).await;
    }
    let place = LocalFileSystem::new_with_prefix(place_dir.path()).unwrap();
    let first = account.backup(&place, "b").await.unwrap();
    let mut attempts = 0;
    let last = loop {
        for number in 0..200 {
            write(&container, number * 7).await;
        }
        account.maintain().await.unwrap();
        let cut = account.begin_backup().await.unwrap();
        let source = Failing { cut, reads: AtomicUsize::new(0), allowed: attempts * 3 };
        let copied = copy_backup(&source, &place, "b", CopyOptions::default(), &mut |_| ()).await;
        let into = target.path().join(attempts.to_string());
        let (restored, proved) = restore(&place, "b", &into, options()).await.unwrap();
        restored.close().await.unwrap();
        match copied {
            Ok(summary) => {
                assert_same(&proved, &summary);
                break summary;
            }
            Err(error) => assert!(matches!(error, BackupError::Source(_)), "{error:?}"),
        }
        assert_same(&proved, &first);
        attempts += 1;
        assert!(attempts < 100, "it never ends");
    };
    assert!(attempts >= 3, "{attempts} attempts were stopped");
    assert!(last.copied_bytes < last.bytes, "{last:?}");
    account.close().await.unwrap();
}

/// Items that expire between a backup and its restore are still verified, but no longer served.
#[tokio::test]
async fn a_backup_whose_items_have_expired_since_is_restored() {
    let (dir, place, target) = (scratch(), scratch(), scratch());
    let (account, _) = new_store(dir.path()).await;
    let definition = ContainerDefinition::new("short", "/pk").unwrap().with_default_ttl(2);
    let database = account.database("d").await.unwrap();
    let container = database.create_container_with(definition, 2).await.unwrap();
    for number in 0..200 {
        write(&container, number).await;
    }
    container.upsert(r#"{"id":"kept","pk":"1","ttl":-1}"#).await.unwrap();
    let place = LocalFileSystem::new_with_prefix(place.path()).unwrap();
    let summary = account.backup(&place, "b").await.unwrap();
    account.close().await.unwrap();
    Runtime::system().sleep(Duration::from_millis(3_100)).await;

    let into = target.path().join("restored");
    let (restored, proved) = restore(&place, "b", &into, options()).await.unwrap();
    assert_same(&proved, &summary);
    let container = restored.database("d").await.unwrap().container("short").await.unwrap();
    let seen = everything(&container).await;
    assert!(matches!(&seen[..], [one] if one.contains(r#""id":"kept""#)), "{} items", seen.len());
    restored.close().await.unwrap();
}

/// Containers are created and dropped during backups: each backup holds the containers of its catalog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_holds_the_containers_of_its_catalog() {
    let (dir, place, target) = (scratch(), scratch(), scratch());
    let (account, _) = new_store(dir.path()).await;
    let place = LocalFileSystem::new_with_prefix(place.path()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (ended, mut makers) = tokio::sync::mpsc::channel::<()>(1);
    let (maker, is_stopped) = (account.clone(), stop.clone());
    Runtime::system().spawn("maker", async move {
        let database = maker.database("d").await.unwrap();
        for number in 0..10_000 {
            if is_stopped.load(Ordering::Relaxed) {
                break;
            }
            let id = format!("x{}", number % 3);
            let definition = ContainerDefinition::new(&id, "/pk").unwrap();
            let made = database.create_container_with(definition, 2).await.unwrap();
            write(&made, number).await;
            let first = made.ranges()[0].id;
            made.split(first, None).await.unwrap();
            database.drop_container(&id).await.unwrap();
        }
        drop(ended);
    });
    for round in 0..10 {
        let summary = account.backup(&place, "b").await.unwrap();
        let into = target.path().join(round.to_string());
        let (restored, proved) = restore(&place, "b", &into, options()).await.unwrap();
        assert_same(&proved, &summary);
        restored.close().await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    assert!(makers.recv().await.is_none());
    account.close().await.unwrap();
}

/// Format 1 lists whole files instead of parts.
#[tokio::test]
async fn a_backup_of_the_first_format_is_restored_and_continued() {
    let (dir, place_dir, target) = (scratch(), scratch(), scratch());
    let (account, container) = new_store(dir.path()).await;
    for number in 0..300 {
        write(&container, number).await;
    }
    let place = LocalFileSystem::new_with_prefix(place_dir.path()).unwrap();
    account.backup(&place, "b").await.unwrap();
    let root = place_dir.path().join("b");
    let text = std::fs::read_to_string(root.join("BACKUP.json")).unwrap();
    let mut contents: serde_json::Value = serde_json::from_str(&text).unwrap();
    contents["format"] = 1.into();
    for file in contents["files"].as_array_mut().unwrap() {
        assert_eq!(file["parts"].as_array().unwrap().len(), 1);
        let path = root.join(file["path"].as_str().unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(root.join(file["parts"][0]["object"].as_str().unwrap()), path).unwrap();
        let (path, bytes) = (file["path"].clone(), file["bytes"].clone());
        let xxh3 = file["parts"][0]["xxh3"].clone();
        *file = serde_json::json!({ "path": path, "bytes": bytes, "xxh3": xxh3 });
    }
    std::fs::write(root.join("BACKUP.json"), contents.to_string()).unwrap();
    std::fs::remove_dir_all(root.join("parts")).unwrap();
    let hash = account.state_hash().unwrap();
    let (restored, proved) =
        restore(&place, "b", &target.path().join("1"), options()).await.unwrap();
    assert_eq!((proved.state_hash, restored.state_hash().unwrap()), (hash.clone(), hash));
    restored.close().await.unwrap();
    let summary = account.backup(&place, "b").await.unwrap();
    account.close().await.unwrap();
    let is_old = |path: &&PathBuf| !path.starts_with(root.join("parts"));
    assert_eq!(objects(&root).keys().filter(is_old).count(), 1, "the list alone");
    let (restored, proved) =
        restore(&place, "b", &target.path().join("2"), options()).await.unwrap();
    assert_same(&proved, &summary);
    restored.close().await.unwrap();
}
