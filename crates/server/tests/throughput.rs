//! Throughput: how many partitions it takes, what requests cost, who is throttled, and what metrics show of it.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_protocol::auth::{Key, Keys};
use headwater_store::{ItemWrite, Options};
use serde_json::{Value, json};
use support::{Got, World};

const COLLS: &str = "/dbs/db/colls";
const LARGE: &str = r#"{"id":"large","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#;

async fn ranges(world: &World, container: &str) -> usize {
    let got = world.send("GET", &format!("{COLLS}/{container}/pkranges"), &[], "").await;
    assert_eq!(got.status, 200);
    got.json()["PartitionKeyRanges"].as_array().unwrap().len()
}

async fn offer_of(world: &World, rid: &Value) -> Value {
    let offers = world.send("GET", "/offers", &[], "").await.json();
    let all = offers["Offers"].as_array().unwrap();
    all.iter().find(|offer| offer["offerResourceId"] == *rid).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_much_throughput_has_several_partitions() {
    let world = World::new().await.with_container().await;
    assert_eq!(ranges(&world, "c").await, 1);
    let head = [("x-ms-offer-throughput", "30000")];
    assert_eq!(world.send("POST", COLLS, &head, LARGE).await.status, 201);
    assert_eq!(ranges(&world, "large").await, 5);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raising_throughput_beyond_what_partitions_can_give_splits_them() {
    let world = World::new().await.with_container().await;
    let container = world.send("GET", "/dbs/db/colls/c", &[], "").await.json();
    let mut offer = offer_of(&world, &container["_rid"]).await;
    let path = format!("/offers/{}", offer["id"].as_str().unwrap());
    for (units, expected) in [(10_000, 1), (11_000, 2), (50_000, 5), (400, 5)] {
        offer["content"]["offerThroughput"] = json!(units);
        let got = world.send("PUT", &path, &[], &offer.to_string()).await;
        assert_eq!(got.status, 200, "{units}");
        assert_eq!(got.header("x-ms-offer-replace-pending"), Some("false"));
        assert_eq!(ranges(&world, "c").await, expected, "{units}");
    }
    world.stop().await;
}

const DOCS: &str = "/dbs/db/colls/c/docs";
/// A key that is not the emulator's, which a server that others can reach needs.
const OWN_KEY: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8w";

fn charge(got: &Got) -> f64 {
    got.header("x-ms-request-charge").unwrap().parse().unwrap()
}

async fn fill(world: &World, items: usize, bytes: usize) {
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    for id in 0..items {
        let item = json!({ "id": id.to_string(), "pk": id.to_string(), "x": "y".repeat(bytes) });
        container.write(ItemWrite::create(item.to_string())).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_page_of_a_hundred_small_items_costs_at_most_ten_units() {
    let world = World::new().await.with_container().await;
    fill(&world, 100, 100).await;
    for head in [&[][..], &[("A-IM", "Incremental feed")]] {
        let page = world.send("GET", DOCS, head, "").await;
        assert_eq!(page.header("x-ms-item-count"), Some("100"));
        assert!((1.0..=10.0).contains(&charge(&page)), "{head:?}: {}", charge(&page));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feeds_over_the_whole_container_are_throttled_like_those_of_a_range() {
    let feed = ("A-IM", "Incremental feed");
    let range = ("x-ms-documentdb-partitionkeyrangeid", "0");
    for head in [&[feed][..], &[][..], &[feed, range][..]] {
        let mut options = Options::default();
        options.partitions = 2;
        let world = World::with_options(options, |config| config.enforce_throughput = true).await;
        let world = world.with_container().await;
        // A page of these costs about as many units as the container has in a second.
        fill(&world, 8, 1_000_000).await;
        let mut statuses = Vec::new();
        for _ in 0..50 {
            let got = world.send("GET", DOCS, head, "").await;
            statuses.push(got.status);
            if got.status == 429 {
                assert!(got.header("x-ms-retry-after-ms").is_some());
                break;
            }
        }
        assert_eq!(statuses.first(), Some(&200), "{head:?}");
        assert_eq!(statuses.last(), Some(&429), "{head:?}: {statuses:?}");
        world.stop().await;
    }
}

async fn metrics(world: &World) -> String {
    let got = world.send_raw(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    String::from_utf8(got.body).unwrap()
}

fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_request_units_by_container_and_operation() {
    let world = World::new().await.with_container().await;
    let key = ("x-ms-documentdb-partitionkey", "[\"a\"]");
    let created = world.send("POST", DOCS, &[key], r#"{"id":"1","pk":"a"}"#).await;
    let read = world.send("GET", &format!("{DOCS}/1"), &[key], "").await;
    let missing = world.send("GET", &format!("{DOCS}/2"), &[key], "").await;
    let listed = world.send("GET", DOCS, &[], "").await;
    let changed = world.send("GET", DOCS, &[("A-IM", "Incremental feed")], "").await;
    let text = metrics(&world).await;
    for (operation, expected) in [
        ("write", charge(&created)),
        ("read", charge(&read) + charge(&missing)),
        ("feed", charge(&listed)),
        ("change_feed", charge(&changed)),
        ("query", 0.0),
    ] {
        let name = "headwater_request_units_total";
        let name = format!("{name}{{container=\"db/c\",operation=\"{operation}\"}}");
        assert!((metric(&text, &name) - expected).abs() < 1e-6, "{operation}: {text}");
    }
    assert_eq!(metric(&text, "headwater_lease_request_units_total"), 0.0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_the_request_units_of_lease_traffic() {
    let world = World::new().await.with_container().await;
    let leases = r#"{"id":"leases","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    assert_eq!(world.send("POST", COLLS, &[], leases).await.status, 201);
    let path = format!("{COLLS}/leases/docs");
    let key = ("x-ms-documentdb-partitionkey", "[\"p..0\"]");
    world.send("POST", &path, &[key], r#"{"id":"p..0"}"#).await;
    let renewed = world.send("PUT", &format!("{path}/p..0"), &[key], r#"{"id":"p..0"}"#).await;
    let listed = world.send("GET", &path, &[], "").await;
    // An id alone is not enough: a container by another key holds no leases.
    let key = ("x-ms-documentdb-partitionkey", "[\"a\"]");
    world.send("POST", DOCS, &[key], r#"{"id":"p..0","pk":"a"}"#).await;
    world.send("GET", &format!("{DOCS}/p..0"), &[key], "").await;
    let spent = metric(&metrics(&world).await, "headwater_lease_request_units_total");
    assert!((spent - charge(&renewed) - charge(&listed)).abs() < 1e-6, "{spent}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_name_at_most_a_thousand_containers() {
    let world = World::new().await;
    let database = world.account.create_database("db").await.unwrap();
    let key = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
    for number in 0..1003 {
        let definition = format!(r#"{{"id":"c{number}","partitionKey":{key}}}"#);
        let definition = headwater_store::ContainerDefinition::from_json(&definition).unwrap();
        database.create_container(definition).await.unwrap();
        let got = world.send("GET", &format!("/dbs/db/colls/c{number}/docs"), &[], "").await;
        assert_eq!(got.status, 200);
    }
    let text = metrics(&world).await;
    let of_feeds = |line: &&str| {
        line.starts_with("headwater_request_units_total") && line.contains("\"feed\"")
    };
    assert_eq!(text.lines().filter(of_feeds).count(), 1001);
    let other = "headwater_request_units_total{container=\"other\",operation=\"feed\"}";
    assert!((metric(&text, other) - 3.0).abs() < 1e-6);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_that_strangers_may_read_do_not_name_containers() {
    let world = World::with(|config| {
        config.http = Some("0.0.0.0:0".parse().unwrap());
        config.keys = Keys::new(Key::from_base64(OWN_KEY).unwrap());
    });
    let world = world.await.with_container().await;
    world.send("GET", DOCS, &[], "").await;
    let rid = world.send("GET", "/dbs/db/colls/c", &[], "").await.json()["_rid"].clone();
    let text = metrics(&world).await;
    assert!(text.contains(&format!("container=\"{}\"", rid.as_str().unwrap())), "{text}");
    assert!(!text.contains("db/c"), "{text}");
    world.stop().await;
}
