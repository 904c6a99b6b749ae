//! Backups over HTTP: bounded chunks, a bounded number of backups, and a time limit for idle ones.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_store::{ContainerDefinition, Options};
use std::time::Duration;
use support::{Got, World};

const BACKUPS: &str = "/_headwater/backups";
/// The maximum number of backups at a time.
const BACKUPS_MAX: usize = 4;

/// A server with some items, and small segments so that compaction replaces files.
async fn world(idle: Duration) -> World {
    let mut options = Options::default();
    options.segment_bytes = 32 << 10;
    options.history = Duration::ZERO;
    options.maintenance_interval = Duration::ZERO;
    let world = World::with_options(options, |config| config.limits.backup_idle_time = idle).await;
    let database = world.account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    database.create_container_with(definition, 2).await.unwrap();
    write(&world).await;
    world
}

async fn write(world: &World) {
    let container = world.account.database("db").await.unwrap().container("c").await.unwrap();
    for number in 0..500 {
        let item = format!(r#"{{"id":"{number}","pk":"{}","text":"some text"}}"#, number % 7);
        container.upsert(item).await.unwrap();
    }
}

/// The number of further backups that the server accepts.
async fn room(world: &World) -> usize {
    let mut made = Vec::new();
    loop {
        let begun = world.send("POST", BACKUPS, &[], "").await;
        if begun.status != 201 {
            assert_eq!(begun.status, 429, "{begun:?}");
            break;
        }
        made.push(begun.json()["id"].as_str().unwrap().to_owned());
        assert!(made.len() <= 100, "there is no limit");
    }
    for id in &made {
        world.send("DELETE", &format!("{BACKUPS}/{id}"), &[], "").await;
    }
    made.len()
}

async fn get(world: &World, path: &str) -> Got {
    world.send("GET", path, &[], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_keeps_its_files_while_compaction_replaces_them() {
    let world = world(Duration::from_secs(300)).await;
    let begun = world.send("POST", BACKUPS, &[], "").await;
    assert_eq!(begun.status, 201, "{begun:?}");
    let begun = begun.json();
    let id = begun["id"].as_str().unwrap();
    assert_eq!(room(&world).await, BACKUPS_MAX - 1);
    let files = begun["plan"]["files"].as_array().unwrap().clone();
    let read_all = async || {
        let mut all = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let bytes = &file["bytes"];
            let path = format!("{BACKUPS}/{id}/files/{number}?offset=0&bytes={bytes}");
            let got = get(&world, &path).await;
            assert_eq!((got.status, got.body.len() as u64), (200, bytes.as_u64().unwrap()));
            all.push((got.header("etag").unwrap().to_owned(), got.body));
        }
        all
    };
    let before = read_all().await;
    for _ in 0..3 {
        write(&world).await;
        world.account.maintain().await.unwrap();
    }
    assert!(read_all().await == before, "the same bytes");
    let partition = get(&world, &format!("{BACKUPS}/{id}/partitions/0")).await;
    assert!(partition.json()["items"].as_u64().unwrap() > 0, "{partition:?}");

    // A chunk that the client already has is compared and not sent.
    let (etag, content) = &before[0];
    let length = content.len();
    let path = format!("{BACKUPS}/{id}/files/0?offset=0&bytes={length}");
    let same = world.send("GET", &path, &[("If-None-Match", etag)], "").await;
    assert_eq!((same.status, same.body.len()), (304, 0));
    let middle = get(&world, &format!("{BACKUPS}/{id}/files/0?offset=5&bytes=7")).await;
    assert_eq!(middle.body, content[5..12]);

    for (query, status) in [
        ("", 400),
        ("?offset=0", 400),
        ("?offset=-1&bytes=1", 400),
        ("?offset=0&bytes=4194305", 400),
        ("?offset=0&bytes=99999999999999999999", 400),
        ("?offset=18446744073709551615&bytes=1", 404),
        (&format!("?offset=1&bytes={length}"), 404),
    ] {
        let got = get(&world, &format!("{BACKUPS}/{id}/files/0{query}")).await;
        assert_eq!(got.status, status, "{query}: {got:?}");
    }
    for path in ["files/9999?offset=0&bytes=1", "partitions/2"] {
        assert_eq!(get(&world, &format!("{BACKUPS}/{id}/{path}")).await.status, 404, "{path}");
    }
    let ended = world.send("DELETE", &format!("{BACKUPS}/{id}"), &[], "").await;
    assert_eq!(ended.status, 204);
    assert_eq!(get(&world, &path).await.status, 404);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_whose_client_has_left_is_released() {
    let world = world(Duration::from_millis(300)).await;
    let begun = world.send("POST", BACKUPS, &[], "").await.json();
    let id = begun["id"].as_str().unwrap();
    let path = format!("{BACKUPS}/{id}/files/0?offset=0&bytes=1");
    // A request for it would keep the backup alive, so count how many others the server accepts.
    let mut attempts = 0;
    while room(&world).await < BACKUPS_MAX {
        attempts += 1;
        assert!(attempts < 600, "the backup is never released");
        world.runtime.sleep(Duration::from_millis(50)).await;
    }
    let gone = get(&world, &path).await;
    assert_eq!(gone.status, 404);
    assert!(
        gone.json()["message"].as_str().unwrap().contains("Start the backup again"),
        "{gone:?}"
    );
    world.stop().await;
}
