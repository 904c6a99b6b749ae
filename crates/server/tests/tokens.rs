//! Resource tokens end with the permissions they were made for.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use serde_json::json;
use std::time::Duration;
use support::{World, read_answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DOCS: &str = "/dbs/db/colls/c/docs";
const ITEM: &str = "/dbs/db/colls/c/docs/1";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
const PERMISSION: &str = "/dbs/db/users/ann/permissions/p";

/// A container with an item, and a user with a permission for everything in it.
async fn granted() -> (World, String) {
    let world = World::new().await.with_container().await;
    make(&world, DOCS, r#"{"id":"1","pk":"a"}"#).await;
    make(&world, "/dbs/db/users", r#"{"id":"ann"}"#).await;
    let token = permission(&world).await;
    (world, token)
}

async fn make(world: &World, path: &str, body: &str) {
    let made = world.send("POST", path, &[KEY], body).await;
    assert_eq!(made.status, 201, "{path}: {made:?}");
}

/// Makes the permission; its token, escaped as a header has it.
async fn permission(world: &World) -> String {
    permission_for(world, "p", "dbs/db/colls/c").await
}

async fn permission_for(world: &World, id: &str, resource: &str) -> String {
    let body = json!({ "id": id, "permissionMode": "All", "resource": resource });
    let made = world.send("POST", "/dbs/db/users/ann/permissions", &[], &body.to_string()).await;
    let token = made.json()["_token"].as_str().unwrap().to_owned();
    token.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// What the token gets for a read and for a write of the item.
async fn statuses(world: &World, token: &str) -> (u16, u16) {
    let send = async |verb: &str, body: &str| {
        let request = format!(
            "{verb} {ITEM} HTTP/1.1\r\nHost: localhost\r\nauthorization: {token}\r\n{}: {}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            KEY.0,
            KEY.1,
            body.len()
        );
        world.send_raw(request.as_bytes()).await.status
    };
    (send("GET", "").await, send("PUT", r#"{"id":"1","pk":"a"}"#).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_when_its_permission_is_deleted() {
    let gone = ["/dbs/db/users/ann/permissions/p", "/dbs/db/users/ann"];
    for path in gone {
        let (world, token) = granted().await;
        assert_eq!(statuses(&world, &token).await, (200, 200));
        assert_eq!(world.send("DELETE", path, &[], "").await.status, 204);
        assert_eq!(statuses(&world, &token).await, (403, 403), "{path}");
        // Another permission of the same name is not the one the token was made for.
        if path == "/dbs/db/users/ann" {
            make(&world, "/dbs/db/users", r#"{"id":"ann"}"#).await;
        }
        let new = permission(&world).await;
        assert_eq!(statuses(&world, &token).await, (403, 403), "{path}");
        assert_eq!(statuses(&world, &new).await, (200, 200), "{path}");
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_when_its_permission_grants_less() {
    let (world, token) = granted().await;
    let all = json!({ "id": "p", "permissionMode": "All", "resource": "dbs/db/colls/c" });
    let with = |name: &str, value: serde_json::Value| {
        let mut changed = all.clone();
        changed[name] = value;
        changed
    };
    for (permission, expected) in [
        (with("permissionMode", json!("Read")), (403, 403)),
        (all.clone(), (200, 200)),
        (with("resourcePartitionKey", json!(["a"])), (403, 403)),
        (with("resource", json!("dbs/db/colls/c/docs/1")), (403, 403)),
        (with("resource", json!("dbs/db")), (200, 200)),
    ] {
        let replaced = world.send("PUT", PERMISSION, &[], &permission.to_string()).await;
        assert_eq!(replaced.status, 200, "{replaced:?}");
        assert_eq!(statuses(&world, &token).await, expected, "{permission}");
    }
    world.stop().await;
}

/// Names come back, resource ids do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_not_good_for_what_was_made_again() {
    let (world, token) = granted().await;
    let definition = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    assert_eq!(world.send("DELETE", "/dbs/db/colls/c", &[], "").await.status, 204);
    make(&world, "/dbs/db/colls", definition).await;
    make(&world, DOCS, r#"{"id":"1","pk":"a"}"#).await;
    assert_eq!(statuses(&world, &token).await, (403, 403), "another container");
    assert_eq!(world.send("DELETE", "/dbs/db", &[], "").await.status, 204);
    assert_eq!(statuses(&world, &token).await, (403, 403), "no database");
    make(&world, "/dbs", r#"{"id":"db"}"#).await;
    make(&world, "/dbs/db/colls", definition).await;
    make(&world, DOCS, r#"{"id":"1","pk":"a"}"#).await;
    make(&world, "/dbs/db/users", r#"{"id":"ann"}"#).await;
    let new = permission(&world).await;
    assert_eq!(statuses(&world, &token).await, (403, 403), "another database");
    assert_eq!(statuses(&world, &new).await, (200, 200));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_ends_when_the_permission_of_its_token_is_deleted() {
    let (world, token) = granted().await;
    let mut stream = world.connect().await;
    let path = format!("/_headwater/changes/db/c?from=beginning&token={token}");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    let mut read = async |heard: &mut Vec<u8>| {
        let read = world.runtime.timeout(Duration::from_secs(30), stream.read(&mut buffer)).await;
        let count = read.expect("a change, or the end").unwrap();
        heard.extend_from_slice(&buffer[..count]);
        count
    };
    while !String::from_utf8_lossy(&heard).contains("\"id\":\"1\"") {
        assert!(read(&mut heard).await > 0);
    }
    assert_eq!(world.send("DELETE", PERMISSION, &[], "").await.status, 204);
    make(&world, DOCS, r#"{"id":"secret","pk":"a"}"#).await;
    while read(&mut heard).await > 0 {
        assert!(!String::from_utf8_lossy(&heard).contains("secret"));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_ends_with_the_permission_of_its_token() {
    let (world, token) = granted().await;
    let feed = ("A-IM", "Incremental feed");
    let now = world.send("GET", DOCS, &[feed, ("If-None-Match", "*")], "").await;
    let etag = now.header("etag").unwrap();
    let request = format!(
        "GET {DOCS} HTTP/1.1\r\nHost: localhost\r\nauthorization: {token}\r\nA-IM: {}\r\n\
         If-None-Match: {etag}\r\nPrefer: wait=30\r\n\r\n",
        feed.1
    );
    let mut stream = world.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    // Until it waits.
    for _ in 0..100 {
        let metrics = world.send_raw(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        if String::from_utf8_lossy(&metrics.body).contains("headwater_waiting_readers 1") {
            break;
        }
        world.runtime.sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.send("DELETE", PERMISSION, &[], "").await.status, 204);
    make(&world, DOCS, r#"{"id":"secret","pk":"a"}"#).await;
    let answer = read_answer(&mut stream).await.unwrap();
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(!String::from_utf8_lossy(&answer.body).contains("secret"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_permission_is_for_all_databases() {
    let (world, _) = granted().await;
    for (resource, expected) in [("dbs", 400), ("/dbs/", 400), ("/", 400), ("dbs/db", 201)] {
        let body = json!({ "id": "all", "permissionMode": "All", "resource": resource });
        let path = "/dbs/db/users/ann/permissions";
        let made = world.send("POST", path, &[], &body.to_string()).await;
        assert_eq!(made.status, expected, "{resource}: {made:?}");
    }
    world.stop().await;
}

/// What a token gets for a request about the partition key of the item.
async fn status_with(
    world: &World,
    token: &str,
    (verb, path, head, body): (&str, &str, &[(&str, &str)], &str),
) -> u16 {
    let head: String = head.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nauthorization: {token}\r\n{}: {}\r\n{head}\
         Content-Length: {}\r\n\r\n{body}",
        KEY.0,
        KEY.1,
        body.len()
    );
    world.send_raw(request.as_bytes()).await.status
}

/// A replacement whose body has another id renames the item, and so made one that the token is not for.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_one_item_makes_no_other_item_of_it() {
    const RENAMED: &str = r#"{"id":"new","pk":"a"}"#;
    const UPSERT: (&str, &str) = ("x-ms-documentdb-is-upsert", "True");
    const BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
    const TRIGGER: (&str, &str) = ("x-ms-documentdb-pre-trigger-include", "t");
    let (world, whole) = granted().await;
    let trigger =
        r#"{"id":"t","body":"function () {}","triggerType":"Pre","triggerOperation":"All"}"#;
    make(&world, "/dbs/db/colls/c/triggers", trigger).await;
    let item = world.send("GET", ITEM, &[KEY], "").await.json();
    let by_rid = format!("{DOCS}/{}", item["_rid"].as_str().unwrap());
    let tokens = [
        permission_for(&world, "by-id", "dbs/db/colls/c/docs/1").await,
        permission_for(&world, "by-rid", item["_self"].as_str().unwrap()).await,
    ];
    let batch = json!([
        { "operationType": "Replace", "id": "1", "resourceBody": { "id": "new", "pk": "a" } }
    ]);
    let patch = json!({ "operations": [{ "op": "set", "path": "/id", "value": "new" }] });
    let (batch, patch) = (batch.to_string(), patch.to_string());
    let twice = r#"{"id":"1","pk":"a","id":"new"}"#;
    for token in &tokens {
        for (request, expected) in [
            (("PUT", ITEM, [].as_slice(), RENAMED), 403),
            (("PUT", by_rid.as_str(), &[], RENAMED), 403),
            (("PUT", ITEM, &[UPSERT], RENAMED), 403),
            (("PUT", ITEM, &[BATCH], RENAMED), 403),
            (("PUT", ITEM, &[TRIGGER], RENAMED), 400),
            (("PUT", ITEM, &[], twice), 400),
            (("POST", DOCS, &[UPSERT], RENAMED), 403),
            (("POST", DOCS, &[BATCH], batch.as_str()), 403),
            (("PATCH", ITEM, &[], patch.as_str()), 400),
            (("PUT", ITEM, &[], r#"{"id":"1","pk":"a","n":1}"#), 200),
            (("PUT", by_rid.as_str(), &[], r#"{"id":"1","pk":"a","n":2}"#), 200),
            (("PUT", ITEM, &[], r#"{"pk":"a","n":3}"#), 200),
        ] {
            assert_eq!(status_with(&world, token, request).await, expected, "{request:?}");
            assert_eq!(world.send("GET", ITEM, &[KEY], "").await.status, 200, "{request:?}");
        }
    }
    let whole = status_with(&world, &whole, ("PUT", ITEM, &[], RENAMED)).await;
    assert_eq!(whole, 200, "a token for the container may rename");
    world.stop().await;
}
