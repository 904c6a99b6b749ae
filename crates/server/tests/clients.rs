//! What running official clients taught us, each as the one request that showed it.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_store::Options;
use support::World;

const ITEMS: &str = "/dbs/db/colls/c/docs";
const KEY: &str = "x-ms-documentdb-partitionkey";

async fn three_ranges() -> World {
    let mut options = Options::default();
    options.partitions = 3;
    World::with_options(options, |_| ()).await.with_container().await
}

/// Python replaces, reads and deletes by the `_self` of what it read.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_found_by_its_resource_id() {
    let world = World::new().await.with_container().await;
    let key = [(KEY, r#"["a"]"#)];
    let created = world.send("POST", ITEMS, &key, r#"{"id":"1","pk":"a"}"#).await;
    let link = format!("/{}", created.json()["_self"].as_str().unwrap().trim_end_matches('/'));
    let replaced = world.send("PUT", &link, &key, r#"{"id":"1","pk":"a","n":2}"#).await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    assert_eq!(world.send("GET", &link, &key, "").await.json()["n"], 2);
    assert_eq!(world.send("DELETE", &link, &key, "").await.status, 204);
    assert_eq!(world.send("GET", &link, &key, "").await.status, 404);
    world.stop().await;
}

/// Go names its key to every range in turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_without_the_key_has_no_changes_and_is_not_gone() {
    let world = three_ranges().await;
    let key = [(KEY, r#"["a"]"#)];
    world.send("POST", ITEMS, &key, r#"{"id":"1","pk":"a"}"#).await;
    let mut statuses = Vec::new();
    for range in ["0", "1", "2"] {
        let range = ("x-ms-documentdb-partitionkeyrangeid", range);
        let got =
            world.send("GET", ITEMS, &[("A-IM", "Incremental Feed"), range, key[0]], "").await;
        assert!(got.header("etag").is_some(), "{got:?}");
        statuses.push(got.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 304, 304]);
    world.stop().await;
}

/// Java makes the address of a container of this header, and writes key versions as names.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_names_its_owner_and_takes_a_version_by_name() {
    let world = World::new().await.with_container().await;
    let read = world.send("GET", "/dbs/db/colls/c", &[], "").await;
    assert_eq!(read.header("x-ms-alt-content-path"), Some("dbs/db"));
    let definition =
        r#"{"id":"h","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":"V2"}}"#;
    let created = world.send("POST", "/dbs/db/colls", &[], definition).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.json()["partitionKey"]["version"], 2);
    world.stop().await;
}

/// Java's processor of latest versions reads only wrapped items, and asks for them.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_wrapped_for_those_who_name_a_wire_format() {
    let world = World::new().await.with_container().await;
    world.send("POST", ITEMS, &[(KEY, r#"["a"]"#)], r#"{"id":"1","pk":"a"}"#).await;
    let feed = ("A-IM", "Incremental Feed");
    let format = ("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15");
    let flat = world.send("GET", ITEMS, &[feed], "").await.json();
    assert_eq!(flat["Documents"][0]["id"], "1");
    let wrapped = world.send("GET", ITEMS, &[feed, format], "").await.json();
    let change = &wrapped["Documents"][0];
    assert_eq!(change["current"]["id"], "1");
    assert_eq!(change["metadata"]["lsn"], flat["Documents"][0]["_lsn"]);
    world.stop().await;
}
