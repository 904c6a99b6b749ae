//! Requests and responses as shown in Microsoft's articles on the change feed.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_store::{ItemWrite, Options};
use serde_json::{Value, json};
use std::time::Duration;
use support::World;

const COLLS: &str = "/dbs/db/colls";
const DOCS: &str = "/dbs/db/colls/c/docs";
const FEED: (&str, &str) = ("A-IM", "Incremental feed");

async fn world_of(partitions: u32) -> World {
    let mut options = Options::default();
    options.partitions = partitions;
    World::with_options(options, |_| ()).await.with_container().await
}

fn ids(page: &Value) -> Vec<String> {
    let documents = page["Documents"].as_array().unwrap();
    documents.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_ranges_counts_them() {
    let world = world_of(3).await;
    let got = world.send("GET", "/dbs/db/colls/c/pkranges", &[], "").await;
    assert_eq!(got.header("x-ms-item-count"), Some("3"));
    assert_eq!(got.json()["_count"], 3);
    let etag = got.header("etag").unwrap();
    let same = world.send("GET", "/dbs/db/colls/c/pkranges", &[("If-None-Match", etag)], "").await;
    assert_eq!((same.status, same.header("x-ms-item-count")), (304, Some("0")));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_feed_of_one_range_lists_the_items_of_that_range_page_by_page() {
    let world = world_of(2).await;
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    for number in 0..20 {
        let item = json!({ "id": number.to_string(), "pk": number.to_string() });
        container.write(ItemWrite::create(item.to_string())).await.unwrap();
    }
    let mut all = Vec::new();
    for range in container.ranges() {
        let id = range.id.to_string();
        let scope = ("x-ms-documentdb-partitionkeyrangeid", id.as_str());
        let mut of_range = Vec::new();
        let mut continuation = String::new();
        // Pages of three: twenty items take at most seven.
        for _ in 0..8 {
            let mut head = vec![scope, ("x-ms-max-item-count", "3")];
            if !continuation.is_empty() {
                head.push(("x-ms-continuation", &continuation));
            }
            let page = world.send("GET", DOCS, &head, "").await;
            assert_eq!(page.status, 200);
            let found = ids(&page.json());
            assert_eq!(page.header("x-ms-item-count"), Some(found.len().to_string().as_str()));
            of_range.extend(found);
            continuation = page.header("x-ms-continuation").unwrap_or_default().to_owned();
            if continuation.is_empty() {
                break;
            }
        }
        for id in &of_range {
            let key = headwater_store::PartitionKey::from(id.as_str());
            assert_eq!(container.locate(&key).unwrap().0, range.id, "{id}");
        }
        assert!(!of_range.is_empty());
        all.extend(of_range);
    }
    all.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(all, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_delete_is_a_change_and_its_time_to_live_removes_the_item() {
    let world = World::new().await.with_container().await;
    let definition = r#"{"id":"soft","defaultTtl":-1,
        "partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    assert_eq!(world.send("POST", COLLS, &[], definition).await.status, 201);
    let docs = format!("{COLLS}/soft/docs");
    let key = ("x-ms-documentdb-partitionkey", "[\"a\"]");
    for item in [r#"{"id":"1","pk":"a"}"#, r#"{"id":"2","pk":"a"}"#] {
        assert_eq!(world.send("POST", &docs, &[key], item).await.status, 201);
    }
    let before = world.send("GET", &docs, &[FEED], "").await;
    let position = before.header("etag").unwrap();
    let deleted = r#"{"id":"1","pk":"a","deleted":true,"ttl":2}"#;
    let item = format!("{docs}/1");
    assert_eq!(world.send("PUT", &item, &[key], deleted).await.status, 200);
    let changed = world.send("GET", &docs, &[FEED, ("If-None-Match", position)], "").await;
    let change = &changed.json()["Documents"][0];
    assert_eq!((&change["id"], &change["deleted"]), (&json!("1"), &json!(true)));
    let mut status = 200;
    for _ in 0..300 {
        status = world.send("GET", &item, &[key], "").await.status;
        if status == 404 {
            break;
        }
        world.runtime.sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(status, 404);
    let all = world.send("GET", &docs, &[FEED], "").await;
    assert_eq!(ids(&all.json()), ["2"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_partition_key_needs_none_in_any_request() {
    let world = world_of(4).await;
    let old = ("x-ms-version", "2016-07-11");
    let created = world.send("POST", COLLS, &[old], r#"{"id":"leases"}"#).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["partitionKey"]["systemKey"], true);
    let ranges = world.send("GET", &format!("{COLLS}/leases/pkranges"), &[old], "").await;
    assert_eq!(ranges.header("x-ms-item-count"), Some("1"));
    let docs = format!("{COLLS}/leases/docs");
    let item = format!("{docs}/p..0");
    // As clients of that time send it, and as current ones do.
    for head in [&[old][..], &[("x-ms-documentdb-partitionkey", "[]")][..]] {
        let send = async |verb, path: &str, body| world.send(verb, path, head, body).await.status;
        assert_eq!(send("POST", &docs, r#"{"id":"p..0","Owner":"a"}"#).await, 201);
        assert_eq!(send("GET", &item, "").await, 200);
        assert_eq!(send("PUT", &item, r#"{"id":"p..0","Owner":"b"}"#).await, 200);
        let mut query = head.to_vec();
        query.push(("x-ms-documentdb-isquery", "True"));
        query.push(("content-type", "application/query+json"));
        let text = r#"{"query":"SELECT * FROM c WHERE STARTSWITH(c.id, 'p.')"}"#;
        let found = world.send("POST", &docs, &query, text).await;
        assert_eq!(ids(&found.json()), ["p..0"]);
        let listed = world.send("GET", &docs, head, "").await;
        assert_eq!(ids(&listed.json()), ["p..0"]);
        assert_eq!(send("DELETE", &item, "").await, 204);
        assert_eq!(send("GET", &item, "").await, 404);
    }
    world.stop().await;
}
