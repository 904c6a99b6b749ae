//! Extensions of feeds and queries over HTTP: filters, query metrics, index metrics.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater_store::Options;
use serde_json::{Value, json};
use std::time::Duration;
use support::{Got, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ITEMS: &str = "/dbs/db/colls/c/docs";

async fn upsert(world: &World, item: &Value) {
    let key = json!([item["pk"]]).to_string();
    let head =
        [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "True")];
    let got = world.send("POST", ITEMS, &head, &item.to_string()).await;
    assert!(got.status < 300, "{} {}", got.status, got.json());
}

async fn feed(world: &World, mode: &str, after: &str, filter: &[(&str, &str)]) -> Got {
    let mut head = vec![("a-im", mode), ("if-none-match", after)];
    head.extend_from_slice(filter);
    world.send("GET", ITEMS, &head, "").await
}

fn documents(got: &Got) -> Vec<Value> {
    got.json()["Documents"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_request_can_carry_a_filter_and_its_etag_is_good_without() {
    let world = World::new().await.with_container().await;
    for number in 0..10 {
        upsert(&world, &json!({"id": number.to_string(), "pk": "a", "n": number, "x": "é"})).await;
    }
    upsert(&world, &json!({"id": "3", "pk": "a", "n": 30, "x": "é"})).await;
    let latest = "Incremental Feed";
    let filter =
        [("x-headwater-feed-where", "c.n >= 8 AND c.x = 'é'"), ("x-headwater-feed-select", "c.n")];
    let got = feed(&world, latest, "", &filter).await;
    assert_eq!(got.status, 200);
    let numbers: Vec<u64> =
        documents(&got).iter().map(|item| item["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [8, 9, 30]);
    let first = documents(&got)[0].clone();
    assert_eq!(first.as_object().unwrap().len(), 2, "{first}");
    assert!(first["_lsn"].is_u64());
    let etag = got.header("etag").unwrap().to_owned();
    assert_eq!(feed(&world, latest, &etag, &[]).await.status, 304, "everything was looked at");
    let nothing = feed(&world, latest, "", &[("x-headwater-feed-where", "false")]).await;
    assert_eq!((nothing.status, nothing.header("etag")), (304, Some(etag.as_str())));

    let all = "Full-Fidelity Feed";
    let changed =
        [("x-headwater-feed-ops", "replace"), ("x-headwater-feed-changed", "/n,/missing")];
    let got = feed(&world, all, "\"0\"", &changed).await;
    let changes = documents(&got);
    assert_eq!(changes.len(), 1, "{}", got.json());
    assert_eq!(
        (&changes[0]["current"]["n"], &changes[0]["previous"]["n"]),
        (&json!(30), &json!(3))
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_makes_no_sense_is_refused_with_what_to_do() {
    let world = World::new().await.with_container().await;
    for (name, value, expected) in [
        ("x-headwater-feed-where", "c.n >", "unexpected end"),
        ("x-headwater-feed-where", "COUNT(1) > 1", "aggregate"),
        ("x-headwater-feed-select", "VALUE c.n", "list what to show"),
        ("x-headwater-feed-ops", "upsert", "create, replace or delete"),
        ("x-headwater-feed-ops", "delete", "all versions"),
        ("x-headwater-feed-changed", "n", "write /name"),
        ("x-headwater-feed-changed", "/n", "all versions"),
    ] {
        let got = feed(&world, "Incremental Feed", "", &[(name, value)]).await;
        let message = got.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(got.status, 400, "{name}: {value}");
        assert!(message.contains(expected), "{name}: {value}: {message}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_can_be_filtered() {
    let world = World::with(|config| config.check_signatures = false).await.with_container().await;
    for number in 0..5 {
        upsert(&world, &json!({"id": format!("id{number}"), "pk": "a", "n": number})).await;
    }
    let mut stream = world.connect().await;
    let request = "GET /_headwater/changes/db/c?from=beginning&where=c.n+%3E+3&select=c.id HTTP/1.1\r\n\
                   Host: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("\"id4\"") {
        let read = world.runtime.timeout(Duration::from_secs(10), stream.read(&mut buffer)).await;
        seen.push_str(&String::from_utf8_lossy(&buffer[..read.unwrap().unwrap()]));
    }
    assert!(!seen.contains("\"id3\"") && !seen.contains("\"n\""), "{seen}");
    drop(stream);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_can_be_of_one_key_and_from_a_time_on() {
    let world = World::with(|config| config.check_signatures = false).await.with_container().await;
    for (id, pk) in [("a1", "a b"), ("b1", "b"), ("a2", "a b")] {
        upsert(&world, &json!({"id": id, "pk": pk})).await;
    }
    for (query, sees, sees_not) in [
        ("from=beginning&key=%5B%22a+b%22%5D", "\"a2\"", "\"b1\""),
        ("from=Tue,+14+Nov+2023+22:13:20+GMT", "\"a2\"", "error"),
    ] {
        let mut stream = world.connect().await;
        let request =
            format!("GET /_headwater/changes/db/c?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut seen = String::new();
        let mut buffer = [0; 4096];
        while !seen.contains(sees) {
            let read = world.runtime.timeout(Duration::from_secs(10), stream.read(&mut buffer));
            let count = read.await.unwrap().unwrap();
            assert!(count > 0, "{query}: {seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        assert!(seen.contains("\"a1\"") && !seen.contains(sees_not), "{query}: {seen}");
    }
    for query in ["from=yesterday", "key=a", "key=%5B%22a%22,%22b%22%5D"] {
        let request =
            format!("GET /_headwater/changes/db/c?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(world.send_raw(request.as_bytes()).await.status, 400, "{query}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_say_what_a_query_read_and_which_index_it_used() {
    let mut options = Options::default();
    options.index_after_items = 10;
    let world = World::with_options(options, |_| ()).await.with_container().await;
    for number in 0..40 {
        let pk = format!("k{}", number % 5);
        upsert(&world, &json!({"id": number.to_string(), "pk": pk, "n": number})).await;
    }
    let ask = async |version: &str| {
        let head = [
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-isquery", "True"),
            ("x-ms-documentdb-query-enablecrosspartition", "True"),
            ("x-ms-documentdb-populatequerymetrics", "True"),
            (version, "True"),
        ];
        world.send("POST", ITEMS, &head, r#"{"query":"SELECT * FROM c WHERE c.n = 7"}"#).await
    };
    let version = "x-ms-cosmos-populateindexmetrics";
    let scanned = ask(version).await;
    let metrics = scanned.header("x-ms-documentdb-query-metrics").unwrap();
    assert!(metrics.contains("retrievedDocumentCount=40;"), "{metrics}");
    assert!(!metrics.contains("queryCompileTimeInMs=0.00"), "it took some time: {metrics}");
    let found = ask(version).await;
    let metrics = found.header("x-ms-documentdb-query-metrics").unwrap();
    assert!(metrics.contains("retrievedDocumentCount=1;"), "{metrics}");
    assert!(metrics.contains("indexUtilizationRatio=1.00"), "{metrics}");
    assert_eq!(documents(&found), documents(&scanned));
    let indexes = STANDARD.decode(found.header("x-ms-cosmos-index-utilization").unwrap()).unwrap();
    let indexes: Value = serde_json::from_slice(&indexes).unwrap();
    assert_eq!(indexes["UtilizedSingleIndexes"][0]["IndexSpec"], "/n/?");
    assert_eq!(indexes["PotentialSingleIndexes"], json!([]));
    let found = ask("x-ms-cosmos-populateindexmetrics-v2").await;
    let indexes = found.header("x-ms-cosmos-index-utilization").unwrap();
    let indexes = percent_encoding::percent_decode_str(indexes).decode_utf8().unwrap();
    let indexes: Value = serde_json::from_str(&indexes).unwrap();
    assert_eq!(indexes["Utilized"]["SingleIndexes"], json!([{"IndexSpec": "/n/?"}]));
    let head = [
        ("x-ms-documentdb-partitionkey", r#"["a"]"#),
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-isquery", "True"),
        ("x-ms-cosmos-populateindexmetrics-v2", "True"),
    ];
    let by_key = world.send("POST", ITEMS, &head, r#"{"query":"SELECT * FROM c"}"#).await;
    let indexes = by_key.header("x-ms-cosmos-index-utilization").unwrap();
    let indexes = percent_encoding::percent_decode_str(indexes).decode_utf8().unwrap();
    assert!(
        indexes.contains(
            r#""Utilized":{"CompositeIndexes":[],"SingleIndexes":[{"IndexSpec":"/pk/?"}]}"#
        ),
        "{indexes}"
    );
    let container = world.send("GET", "/dbs/db/colls/c", &[], "").await;
    let progress = container.header("x-ms-documentdb-collection-index-transformation-progress");
    assert_eq!(progress, Some("100"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sorted_query_goes_along_an_index_and_says_so() {
    let mut options = Options::default();
    options.index_after_items = 10;
    let world = World::with_options(options, |_| ()).await.with_container().await;
    for number in 0..40 {
        upsert(&world, &json!({"id": number.to_string(), "pk": "a", "n": number % 4, "m": number}))
            .await;
    }
    let ask = async |version: &str| {
        let head = [
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-isquery", "True"),
            ("x-ms-documentdb-query-enablecrosspartition", "True"),
            ("x-ms-documentdb-populatequerymetrics", "True"),
            ("x-ms-max-item-count", "3"),
            (version, "True"),
        ];
        let query = json!({"query": "SELECT VALUE c.m FROM c WHERE c.n = 1 ORDER BY c.m DESC"});
        let got = world.send("POST", ITEMS, &head, &query.to_string()).await;
        let indexes = got.header("x-ms-cosmos-index-utilization").unwrap().to_owned();
        (got, indexes)
    };
    let expected = json!(["/n ASC", "/m DESC"]);
    let (scanned, indexes) = ask("x-ms-cosmos-populateindexmetrics").await;
    let indexes: Value = serde_json::from_slice(&STANDARD.decode(indexes).unwrap()).unwrap();
    assert_eq!(indexes["PotentialCompositeIndexes"][0]["IndexSpecs"], expected);
    let (found, indexes) = ask("x-ms-cosmos-populateindexmetrics-v2").await;
    let indexes = percent_encoding::percent_decode_str(&indexes).decode_utf8().unwrap();
    let indexes: Value = serde_json::from_str(&indexes).unwrap();
    assert_eq!(indexes["Utilized"]["CompositeIndexes"], json!([{ "IndexSpecs": expected }]));
    assert_eq!(documents(&found), documents(&scanned));
    assert_eq!(documents(&found), [json!(37), json!(33), json!(29)]);
    let metrics = found.header("x-ms-documentdb-query-metrics").unwrap();
    assert!(metrics.contains("retrievedDocumentCount=4;"), "{metrics}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_says_that_it_has_read_nothing() {
    let world = World::new().await.with_container().await;
    for number in 0..25 {
        upsert(&world, &json!({"id": number.to_string(), "pk": "a", "n": number})).await;
    }
    upsert(&world, &json!({"id": "other", "pk": "b"})).await;
    for (text, expected) in [
        ("SELECT VALUE COUNT(1) FROM c", json!([25])),
        // The form in which SDKs send it to a range.
        ("SELECT VALUE [{\"item\": COUNT(1)}] FROM c", json!([[{"item": 25}]])),
    ] {
        let head = [
            ("x-ms-documentdb-partitionkey", r#"["a"]"#),
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-isquery", "True"),
            ("x-ms-documentdb-populatequerymetrics", "True"),
        ];
        let query = json!({ "query": text }).to_string();
        let counted = world.send("POST", ITEMS, &head, &query).await;
        assert_eq!(json!(documents(&counted)), expected);
        assert_eq!(counted.header("x-ms-continuation"), None);
        let metrics = counted.header("x-ms-documentdb-query-metrics").unwrap();
        for figure in
            ["retrievedDocumentCount=0;", "retrievedDocumentSize=0;", "indexUtilizationRatio=1.00"]
        {
            assert!(metrics.contains(figure), "{figure} in {metrics}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_behind_retention_gets_the_oldest_position_and_it_works() {
    let mut options = Options::default();
    (options.history, options.segment_bytes) = (Duration::ZERO, 4 << 10);
    options.maintenance_interval = Duration::from_millis(20);
    let world = World::with_options(options, |_| ()).await.with_container().await;
    for number in 0..100 {
        upsert(&world, &json!({"id": "1", "pk": "a", "n": number, "pad": "p".repeat(200)})).await;
    }
    let all = "Full-Fidelity Feed";
    let mut refused = feed(&world, all, "\"0\"", &[]).await;
    for _ in 0..500 {
        if refused.status == 400 {
            break;
        }
        world.runtime.sleep(Duration::from_millis(20)).await;
        refused = feed(&world, all, "\"0\"", &[]).await;
    }
    assert_eq!(refused.status, 400, "compaction drops what is superseded");
    let oldest = refused.header("x-headwater-feed-oldest").unwrap().to_owned();
    let missing = refused.header("x-headwater-feed-missing").unwrap().to_owned();
    assert_eq!(oldest.trim_matches('"'), missing, "from position 0 on");
    let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains(&format!("oldest kept position is {missing}")), "{message}");
    let resumed = feed(&world, all, &oldest, &[]).await;
    assert_eq!(resumed.status, 200, "{}", resumed.json());
    let start = [("x-headwater-feed-start", "oldest")];
    let from_oldest = feed(&world, all, "", &start).await;
    assert_eq!(from_oldest.status, 200, "{}", from_oldest.json());
    let newest = |got: &Got| documents(got).last().map(|change| change["current"]["n"].clone());
    assert_eq!(newest(&resumed), Some(json!(99)));
    assert_eq!(newest(&from_oldest), Some(json!(99)));
    assert_eq!(feed(&world, all, "", &[]).await.status, 400, "as in the service");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", world.address());
    let metrics = world.send_raw(request.as_bytes()).await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    for name in ["history_bytes", "history_bytes_max", "history_oldest_seconds"] {
        assert!(text.contains(&format!("headwater_{name}{{container=")), "{name}: {text}");
    }
    world.stop().await;
}
