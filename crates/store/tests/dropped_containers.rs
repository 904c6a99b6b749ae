//! Files of dropped containers and replaced ranges are closed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_runtime::Runtime;
use headwater_store::{Account, ContainerDefinition, Options};
use std::path::Path;
use std::time::Duration;

/// Files below a directory that are deleted but still open in this process.
fn removed_but_open(dir: &Path) -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let names = names.filter(|name| name.starts_with(dir));
    let names = names.map(|name| name.display().to_string());
    names.filter(|name| name.ends_with(" (deleted)")).collect()
}

async fn assert_all_are_closed(dir: &Path) {
    let runtime = Runtime::system();
    for _ in 0..500 {
        if removed_but_open(dir).is_empty() {
            return;
        }
        runtime.sleep(Duration::from_millis(10)).await;
    }
    panic!("still open: {:?}", removed_but_open(dir));
}

#[tokio::test]
async fn the_files_of_dropped_containers_and_of_split_ranges_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let account = Account::open(&root, Options::default()).await.unwrap();
    let database = account.create_database("d").await.unwrap();
    for number in 0..20 {
        let definition = ContainerDefinition::new(&format!("c{number}"), "/pk").unwrap();
        let container = database.create_container_with(definition, 2).await.unwrap();
        container.create(r#"{"id":"1","pk":"p"}"#).await.unwrap();
        database.drop_container(&format!("c{number}")).await.unwrap();
        // A handle of the dropped container gets an error at once.
        let refused = container.create(r#"{"id":"2","pk":"p"}"#).await;
        assert!(refused.is_err());
    }
    assert_all_are_closed(&root).await;

    let definition = ContainerDefinition::new("split", "/pk").unwrap();
    let container = database.create_container_with(definition, 1).await.unwrap();
    container.create(r#"{"id":"1","pk":"p"}"#).await.unwrap();
    let children = container.split(container.ranges()[0].id, None).await.unwrap();
    container.merge(children[0].id, children[1].id).await.unwrap();
    container.create(r#"{"id":"2","pk":"p"}"#).await.unwrap();
    account.maintain().await.unwrap();
    assert_all_are_closed(&root).await;
    assert!(container.read("p", "1").await.unwrap().is_some());
    account.close().await.unwrap();
}
