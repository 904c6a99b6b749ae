//! A damaged partition as clients see it: what needs it is answered with 500, the file and the way out; everything
//! else is served.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_store::{Account, ContainerDefinition, Options};
use serde_json::json;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::{Got, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEY: &str = "x-ms-documentdb-partitionkey";
const RANGE: &str = "x-ms-documentdb-partitionkeyrangeid";
const FEED: (&str, &str) = ("A-IM", "Incremental feed");
const CROSS: (&str, &str) = ("x-ms-documentdb-query-enablecrosspartition", "True");
const QUERY: [(&str, &str); 2] =
    [("x-ms-documentdb-isquery", "True"), ("content-type", "application/query+json")];

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 4 << 10;
    options.maintenance_interval = Duration::ZERO;
    options
}

/// Writes items to two ranges. Returns the directory of the second range.
async fn build(dir: &Path) -> PathBuf {
    let account = Account::open(dir, options()).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 2).await.unwrap();
    for number in 0..200 {
        let padding = "x".repeat(100);
        let item = format!(r#"{{"id":"{number}","pk":"k{}","p":"{padding}"}}"#, number % 8);
        container.create(item).await.unwrap();
    }
    let rid = container.rid().as_u64();
    account.close().await.unwrap();
    dir.join(format!("containers/{rid:016x}/00000001"))
}

/// Changes a byte in the first segment of a range and removes the index, so that the next start reads the segment.
fn damage(dir: &Path, range: &Path) -> PathBuf {
    let names = std::fs::read_dir(range).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> =
        names.filter(|path| path.extension().is_some_and(|name| name == "seg")).collect();
    segments.sort();
    let mut file = std::fs::File::options().read(true).write(true).open(&segments[0]).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(2_000)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(2_000)).unwrap();
    file.write_all(&[byte[0] ^ 0x55]).unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("index") {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    segments.swap_remove(0)
}

/// A text names the file, the byte, the LSN and the next step.
#[track_caller]
fn check_text(what: &str, text: &str, file: &Path, dir: &Path) {
    let next_step = format!("headwater doctor --data {}", dir.display());
    let parts = [
        "partition 1 of container c is quarantined",
        &file.display().to_string(),
        "at byte ",
        "(LSN ",
        &next_step,
    ];
    for part in parts {
        assert!(text.contains(part), "{what}: no {part:?} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quarantined_partition_answers_500_with_the_file_and_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let range = build(dir.path()).await;
    let file = damage(dir.path(), &range);
    let account = Account::open(dir.path(), options()).await.unwrap();
    assert_eq!(account.quarantined().len(), 1);
    let world = World::over(account, |config| config.check_signatures = false).await;
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    let keys_of = |range: &str| {
        let range = container.ranges().into_iter().find(|known| known.id.to_string() == range);
        let range = range.unwrap().range;
        let keys = (0..8).map(|number| (number, format!("k{number}")));
        let mut keys = keys.filter(|(_, key)| {
            let key = container.definition().partition_key().epk(&key.as_str().into()).unwrap();
            range.contains(key.as_bytes())
        });
        keys.next().unwrap()
    };
    for (range, status) in [("0", 200), ("1", 500)] {
        let (id, key) = keys_of(range);
        let item = json!({ "id": format!("new{id}"), "pk": key }).to_string();
        let key = json!([key]).to_string();
        let (key, range) = ((KEY, key.as_str()), (RANGE, range));
        let path = format!("{DOCS}/{id}");
        let query = json!({ "query": "SELECT * FROM c" }).to_string();
        let batch = json!([{ "operationType": "Read", "id": id.to_string() }]).to_string();
        let is_batch =
            [key, ("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")];
        let upsert = [key, ("x-ms-documentdb-is-upsert", "True")];
        let answers: [(&str, Got); 7] = [
            ("read", world.send("GET", &path, &[key], "").await),
            ("upsert", world.send("POST", DOCS, &upsert, &item).await),
            ("batch", world.send("POST", DOCS, &is_batch, &batch).await),
            ("query", world.send("POST", DOCS, &[&QUERY[..], &[key]].concat(), &query).await),
            ("list", world.send("GET", DOCS, &[range], "").await),
            ("feed", world.send("GET", DOCS, &[FEED, range], "").await),
            ("feed of a key", world.send("GET", DOCS, &[FEED, key], "").await),
        ];
        for (what, got) in answers {
            let expected = if (what, status) == ("upsert", 200) { 201 } else { status };
            assert_eq!(got.status, expected, "{what} of range {}: {got:?}", range.1);
            if status == 500 {
                check_text(what, &String::from_utf8_lossy(&got.body), &file, dir.path());
            }
        }
    }
    // What is about all of the container never leaves items out silently.
    let count = json!({ "query": "SELECT VALUE COUNT(1) FROM c" }).to_string();
    let answers: [(&str, Got); 3] = [
        ("list", world.send("GET", DOCS, &[], "").await),
        ("query", world.send("POST", DOCS, &[&QUERY[..], &[CROSS]].concat(), &count).await),
        ("feed", world.send("GET", DOCS, &[FEED], "").await),
    ];
    for (what, got) in answers {
        assert_eq!(got.status, 500, "{what}: {got:?}");
        check_text(what, &String::from_utf8_lossy(&got.body), &file, dir.path());
    }
    let text = event_stream(&world).await;
    assert!(text.contains("event: error") && !text.contains("event: create"), "{text}");
    check_text("event stream", &text, &file, dir.path());
    world.stop().await;
}

/// What a stream of the whole container says until it ends.
async fn event_stream(world: &World) -> String {
    let mut stream = world.connect().await;
    let request = "GET /_headwater/changes/db/c?from=beginning HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains("\n\n") {
        let read = world.runtime.timeout(Duration::from_secs(10), stream.read(&mut buffer)).await;
        let count = read.expect("an event").unwrap();
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}
