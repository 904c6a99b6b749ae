//! Throughput: how many partitions it takes, what requests cost, who is throttled, and what metrics show of it.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_model::PartitionKey;
use headwater_protocol::auth::{Key, Keys};
use headwater_server::Config;
use headwater_store::{ItemWrite, Options};
use serde_json::{Value, json};
use std::time::Duration;
use support::{Got, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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

/// Creates a container by `/id` or `/partitionKey` and returns the path of its items.
async fn container_by(world: &World, id: &str, path: &str) -> String {
    let key = json!({"paths": [path], "kind": "Hash", "version": 2});
    let definition = json!({"id": id, "partitionKey": key}).to_string();
    assert_eq!(world.send("POST", COLLS, &[], &definition).await.status, 201);
    format!("{COLLS}/{id}/docs")
}

async fn lease_units(world: &World) -> f64 {
    metric(&metrics(world).await, "headwater_lease_request_units_total")
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_the_request_units_of_lease_traffic() {
    let world = World::new().await.with_container().await;
    let path = container_by(&world, "leases", "/id").await;
    let key = ("x-ms-documentdb-partitionkey", "[\"p..0\"]");
    let first = world.send("GET", &path, &[], "").await;
    assert_eq!(lease_units(&world).await, 0.0, "an empty container may become one of data");
    let created = world.send("POST", &path, &[key], r#"{"id":"p..0"}"#).await;
    assert_eq!(created.status, 201);
    let mut expected = charge(&first) + charge(&created);
    let spent = lease_units(&world).await;
    assert!((spent - expected).abs() < 1e-6, "{spent}, not {expected}");
    let renewed = world.send("PUT", &format!("{path}/p..0"), &[key], r#"{"id":"p..0"}"#).await;
    let listed = world.send("GET", &path, &[], "").await;
    expected += charge(&renewed) + charge(&listed);
    let spent = lease_units(&world).await;
    assert!((spent - expected).abs() < 1e-6, "{spent}, not {expected}");
    // An id alone is not enough: a container by another key holds no leases.
    let key = ("x-ms-documentdb-partitionkey", "[\"a\"]");
    world.send("POST", DOCS, &[key], r#"{"id":"p..0","pk":"a"}"#).await;
    world.send("GET", &format!("{DOCS}/p..0"), &[key], "").await;
    // Nor is the key: a container without ids of leases holds data.
    let orders = container_by(&world, "orders", "/id").await;
    let key = ("x-ms-documentdb-partitionkey", "[\"order-1\"]");
    world.send("POST", &orders, &[key], r#"{"id":"order-1"}"#).await;
    world.send("GET", &format!("{orders}/order-1"), &[key], "").await;
    assert_eq!(lease_units(&world).await, spent);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_leases_count_as_lease_traffic() {
    let world = World::new().await.with_container().await;
    let mut expected = 0.0;
    for (id, path, atomic) in [
        ("bulk", "/id", "False"),
        ("one-key", "/partitionKey", "True"),
        ("by-key", "/partitionKey", "False"),
    ] {
        let docs = container_by(&world, id, path).await;
        let key = ("x-ms-documentdb-partitionkey", "[\"p.info\"]");
        let operations = json!([
            {"operationType": "Create", "partitionKey": key.1,
             "resourceBody": {"id": "p.info", "partitionKey": "p.info"}},
        ]);
        let batch =
            [key, ("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", atomic)];
        let done = world.send("POST", &docs, &batch, &operations.to_string()).await;
        assert_eq!((done.status, &done.json()[0]["statusCode"]), (200, &json!(201)), "{done:?}");
        expected += charge(&done);
        let spent = lease_units(&world).await;
        assert!((spent - expected).abs() < 1e-6, "{id}: {spent}, not {expected}");
    }
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

const UNITS: &str = "headwater_request_units_total{container=\"db/c\",operation=\"change_feed\"}";
/// What every event begins with.
const EVENT: &str = "event: ";
const STREAM: &str =
    "GET /_headwater/changes/db/c?from=beginning HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Opens an event stream and reads until `count` changes have arrived; the connection stays open.
async fn read_events(world: &World, request: &str, count: usize) -> (TcpStream, String) {
    let mut stream = world.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut seen, mut buffer) = (String::new(), vec![0; 256 << 10]);
    let (mut events, mut looked_at) = (0, 0);
    while events < count || !seen.ends_with("\n\n\r\n") {
        let read = world.runtime.timeout(Duration::from_secs(20), stream.read(&mut buffer));
        let length = read.await.expect("the stream continues").unwrap();
        assert!(length > 0, "the stream ended");
        seen.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        // The end of the text may be the beginning of a name.
        let end = seen.len().saturating_sub(EVENT.len() - 1).max(looked_at);
        let found = seen[looked_at..].matches(EVENT).count();
        let found_behind = seen[end..].matches(EVENT).count();
        (events, looked_at) = (events + found - found_behind, end);
    }
    (stream, seen)
}

async fn throttled_world(partitions: u32) -> World {
    let mut options = Options::default();
    options.partitions = partitions;
    let change = |config: &mut Config| {
        config.enforce_throughput = true;
        config.check_signatures = false;
    };
    World::with_options(options, change).await.with_container().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_is_charged_like_a_feed() {
    let world = World::with(|config| config.check_signatures = false).await.with_container().await;
    fill(&world, 100, 1000).await;
    let (stream, _) = read_events(&world, STREAM, 100).await;
    let spent = metric(&metrics(&world).await, UNITS);
    let page = world.send("GET", DOCS, &[("A-IM", "Incremental feed")], "").await;
    assert_eq!(page.header("x-ms-item-count"), Some("100"));
    // Events have more bytes around an item, and each block of them is rounded up.
    let expected = charge(&page)..=charge(&page) * 1.3 + 2.0;
    assert!(expected.contains(&spent), "{spent} units, not {expected:?}");
    drop(stream);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_waits_for_request_units_and_loses_nothing() {
    let world = throttled_world(1).await;
    // 16 pages of 98 units each: the first second has 400 units, and each later one.
    fill(&world, 16, 1_000_000).await;
    let begun = world.runtime.elapsed();
    let (stream, seen) = read_events(&world, STREAM, 16).await;
    let took = world.runtime.elapsed().saturating_sub(begun);
    assert!(took >= Duration::from_secs(2), "1560 units were spent in {took:?}");
    assert!(seen.starts_with("HTTP/1.1 200") && !seen.contains("event: error"));
    for id in 0..16 {
        assert_eq!(seen.matches(&format!("{{\"id\":\"{id}\",")).count(), 1, "{id}");
    }
    let text = metrics(&world).await;
    assert!(metric(&text, UNITS) >= 1500.0, "{text}");
    assert!(metric(&text, "headwater_throttled_requests_total") >= 1.0, "{text}");
    drop(stream);
    world.stop().await;
}

/// Reads an item that is not there: 404, or 429 where its partition has no units left.
async fn probe(world: &World, key: &str) -> Got {
    let head = [("x-ms-documentdb-partitionkey", &*format!("[\"{key}\"]"))];
    world.send("GET", &format!("{DOCS}/none"), &head, "").await
}

/// Opens event streams that together read more in one page each than there are units for in seconds, and
/// writes items of the key `a` until they have.
async fn overdraw(world: &World, request: &str) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = world.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        streams.push(stream);
    }
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    for id in 0..100 {
        let item = json!({ "id": id.to_string(), "pk": "a", "x": "y".repeat(1_000_000) });
        container.write(ItemWrite::create(item.to_string())).await.unwrap();
        world.runtime.sleep(Duration::from_millis(50)).await;
        if probe(world, "a").await.status == 429 {
            return streams;
        }
    }
    panic!("20 streams have read 1 MB a hundred times without using up 400 units a second");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_without_request_units_is_refused_at_its_beginning() {
    let world = throttled_world(1).await;
    let streams = overdraw(&world, &STREAM.replace("beginning", "now")).await;
    // What the streams spend, others lack.
    let feed = world.send("GET", DOCS, &[("A-IM", "Incremental feed")], "").await;
    let another = world.send_raw(STREAM.as_bytes()).await;
    for refused in [feed, another] {
        assert_eq!((refused.status, refused.substatus()), (429, Some(3200)));
        assert!(refused.header("x-ms-retry-after-ms").is_some());
    }
    drop(streams);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_of_one_key_is_charged_to_its_partition_alone() {
    let world = throttled_world(2).await;
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    let range_of = |key: &str| container.locate(&PartitionKey::from(key)).unwrap().0;
    let mut keys = (0..100).map(|number| number.to_string());
    let other = keys.find(|key| range_of(key) != range_of("a")).unwrap();
    let request = STREAM.replace("from=beginning", "from=now&key=%5B%22a%22%5D");
    let streams = overdraw(&world, &request).await;
    assert_eq!(probe(&world, &other).await.status, 404);
    assert_eq!(probe(&world, "a").await.status, 429);
    drop(streams);
    world.stop().await;
}
