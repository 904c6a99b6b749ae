//! Backups made while writing, restored with proof.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

use headwater_runtime::Runtime;
use headwater_store::{
    Account, BackupError, Container, ContainerDefinition, FeedRequest, FeedStart, Options,
    PageLimit, restore,
};
use object_store::local::LocalFileSystem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 32 << 10;
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
