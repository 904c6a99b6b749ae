//! Backups made while writing, restored with proof.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_runtime::Runtime;
use headwater_store::{
    Account, BackupError, Container, ContainerDefinition, Continuation, FeedRequest, FeedStart,
    Lsn, Options, PageLimit, restore,
};
use object_store::local::LocalFileSystem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::scratch;

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 32 << 10;
    options.history = std::time::Duration::ZERO;
    options
}

async fn new_store(dir: &Path) -> (Account, Container) {
    let account = Account::open(dir, options()).await.unwrap();
    let database = account.create_database("d").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 3).await.unwrap();
    (account, container)
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
    assert_eq!(proved, summary);
    let container = restored.database("d").await.unwrap().container("c").await.unwrap();
    assert_eq!(everything(&container).await, before, "same bytes, etags and LSNs");
    let next = FeedRequest::after(position.continuation);
    assert!(container.read_feed(&next).await.unwrap().changes.is_empty(), "old positions are good");
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
        assert_eq!(proved, summary, "round {round}");
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
        ("\"format\": 1", "\"format\": 99"),
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

    let manifest = place_dir.path().join("b/catalog/MANIFEST");
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&manifest, &bytes).unwrap();
    let refused = restore(&place, "b", &target.path().join("e"), options()).await;
    assert!(matches!(refused, Err(BackupError::Damaged { .. })), "{refused:?}");
    std::fs::remove_file(&manifest).unwrap();
    let refused = restore(&place, "b", &target.path().join("f"), options()).await;
    assert!(matches!(refused, Err(BackupError::Place(_))), "{refused:?}");
}

/// Every version behind a position, with the images before them.
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

/// Containers of every kind in one backup: positions of both feeds, etags, LSNs, ids and definitions
/// are what they were.
#[tokio::test]
async fn a_restored_store_goes_on_as_the_one_that_was_backed_up() {
    let (dir, place, target) = (scratch(), scratch(), scratch());
    let account = Account::open(dir.path(), options()).await.unwrap();
    let mut containers = Vec::new();
    for database in ["one", "two"] {
        let database = account.create_database(database).await.unwrap();
        for number in 0..3 {
            let definition = ContainerDefinition::new(&format!("c{number}"), "/pk").unwrap();
            let day = std::time::Duration::from_secs(24 * 3600);
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
    assert_eq!(summary.state_hash, hash, "whatever order containers are visited in");
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
        // New changes come behind the old ones, and new items get ids nobody had.
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

/// Every file of a backup counts: changed, cut or missing, it is refused, and nothing opens.
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
    let files = listed["files"].as_array().unwrap();
    assert!(files.len() > 8, "{files:?}");
    let mut number = 0;
    let mut attempt = async || {
        number += 1;
        let into = target.path().join(number.to_string());
        restore(&place, "b", &into, options()).await.map(|_| ())
    };
    for file in files {
        let path = root.join(file["path"].as_str().unwrap());
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
    // A list that leaves files out, or says another state than there is.
    let mut shorter = listed.clone();
    shorter["files"].as_array_mut().unwrap().pop();
    std::fs::write(root.join("BACKUP.json"), shorter.to_string()).unwrap();
    let refused = attempt().await;
    // The store opens and quarantines the partition whose file is missing; the restore is refused all the same.
    let is_noticed = matches!(refused, Err(BackupError::Open(_) | BackupError::Storage(_)));
    assert!(is_noticed, "{refused:?}");
    for (field, value) in [("items", 7.into()), ("lsn", 7.into()), ("state", "00".into())] {
        let mut lie = listed.clone();
        lie["partitions"][0][field] = value;
        std::fs::write(root.join("BACKUP.json"), lie.to_string()).unwrap();
        let refused = attempt().await;
        assert!(matches!(refused, Err(BackupError::StateDiffers { .. })), "{field}: {refused:?}");
    }
    // Whatever it says, nothing is written outside of the directory.
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
