//! Replays recorded requests of official SDKs and checks the statuses that the SDKs expect.
//!
//! Each recording is one operation of one SDK. Some requests repeat because the recording server demanded a retry.
//! They are replayed in order, each on the state it met when it was recorded, and must get the recorded status.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_protocol::headers;
use headwater_store::Options;
use serde_json::Value;
use support::World;

/// Whether a status is right, although the recording server responded with another one.
fn is_acceptable(recorded: u64, got: u16, request: &Value) -> bool {
    match (recorded, got) {
        (recorded, got) if recorded == u64::from(got) => true,
        // The recording server refused queries over several ranges to see what clients do; this one answers them.
        (400, 200) => header(request, "x-ms-documentdb-isquery").is_some(),
        // Positions and etags of the recording server have no meaning here.
        (200, 304) | (304, 200) => {
            header(request, "a-im").is_some() || header(request, "if-none-match").is_some()
        }
        // The recording server did not run transactions. This one replaces an item and then patches it on a condition
        // that the replacement does not meet, so it must fail.
        (200, 207) => header(request, "x-ms-cosmos-batch-atomic").is_some_and(headers::bool_of),
        _ => false,
    }
}

fn header<'a>(request: &'a Value, name: &str) -> Option<&'a str> {
    let headers = request["headers"].as_object().unwrap();
    let found = headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.and_then(|(_, value)| value.as_str())
}

/// Creates the state that a request met when it was recorded: the recording server kept items and scripts after
/// their deletion, had some that were never created, and knew an offer `o0`. Returns the path of the request.
async fn prepare(world: &World, request: &Value) -> String {
    let path = request["path"].as_str().unwrap();
    let recorded = request["statusReturnedByTestServer"].as_u64().unwrap();
    if !(200..300).contains(&recorded) {
        return path.to_owned();
    }
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match segments[..] {
        ["offers", _] => {
            let offers = world.send("GET", "/offers", &[], "").await.json();
            return format!("/offers/{}", offers["Offers"][0]["id"].as_str().unwrap());
        }
        ["dbs", db, "colls", coll, "sprocs", id] => {
            let procedure = format!(r#"{{"id":"{id}","body":"function(){{}}"}}"#);
            let path = format!("/dbs/{db}/colls/{coll}/sprocs");
            let made = world.send("POST", &path, &[], &procedure).await;
            assert!(matches!(made.status, 201 | 409), "{made:?}");
        }
        ["dbs", db, "colls", coll, "docs", "1"] if request["method"] != "GET" => {
            // The item that a condition in the recording refers to.
            let item = r#"{"id":"1","pk":"a","n":4}"#;
            let head =
                [(KEY, header(request, KEY).unwrap()), ("x-ms-documentdb-is-upsert", "True")];
            let made =
                world.send("POST", &format!("/dbs/{db}/colls/{coll}/docs"), &head, item).await;
            assert!(matches!(made.status, 200 | 201), "{made:?}");
        }
        ["dbs", db, "colls", coll, "docs"] => {
            let triggers = header(request, "x-ms-documentdb-post-trigger-include").unwrap_or("");
            for id in triggers.split(',').filter(|id| !id.is_empty()) {
                let trigger = format!(
                    r#"{{"id":"{id}","triggerType":"Post","triggerOperation":"All","body":"function(){{}}"}}"#
                );
                let path = format!("/dbs/{db}/colls/{coll}/triggers");
                assert_eq!(world.send("POST", &path, &[], &trigger).await.status, 201);
            }
            if header(request, "x-ms-cosmos-is-batch-request").is_some() {
                // An earlier batch created it here, but not on the recording server.
                let path = format!("/dbs/{db}/colls/{coll}/docs/k1");
                world.send("DELETE", &path, &[(KEY, "[\"a\"]")], "").await;
            }
        }
        _ => {}
    }
    path.to_owned()
}

const KEY: &str = "x-ms-documentdb-partitionkey";

async fn replay(name: &str, text: &str) {
    let operations: Vec<Value> = serde_json::from_str(text).unwrap();
    let mut options = Options::default();
    options.partitions = 2;
    let world = World::with_options(options, |_| ()).await;
    let (mut replayed, mut wrong) = (0, Vec::new());
    for operation in &operations {
        for request in operation["expected"]["requests"].as_array().unwrap() {
            let method = request["method"].as_str().unwrap();
            let path = prepare(&world, request).await;
            let mut head: Vec<(&str, &str)> = Vec::new();
            for (name, value) in request["headers"].as_object().unwrap() {
                // Etags and resource ids of the recording server do not exist here.
                let skipped = [
                    "host",
                    "content-length",
                    "authorization",
                    "x-ms-date",
                    "connection",
                    "if-match",
                    "x-ms-cosmos-intended-collection-rid",
                ];
                if !skipped.contains(&name.to_ascii_lowercase().as_str()) {
                    head.push((name, value.as_str().unwrap()));
                }
            }
            let body = request["body"].as_str().unwrap_or_default();
            let got = world.send(method, &path, &head, body).await;
            replayed += 1;
            let recorded = request["statusReturnedByTestServer"].as_u64().unwrap();
            if !is_acceptable(recorded, got.status, request) {
                let answer = String::from_utf8_lossy(&got.body);
                let what = operation["input"]["operation"].as_str().unwrap_or_default();
                wrong.push(format!(
                    "{what}: {method} {path}: {recorded}, got {}: {answer}",
                    got.status
                ));
            }
            assert!(got.header("x-ms-request-charge").is_some(), "{method} {path}");
            assert!(got.header("x-ms-activity-id").is_some(), "{method} {path}");
        }
    }
    world.stop().await;
    assert!(replayed > 20, "{name}: only {replayed} requests");
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_recorded_from_the_python_sdk() {
    replay("python", include_str!("vectors/trace_python.json")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_recorded_from_the_javascript_sdk() {
    replay("javascript", include_str!("vectors/trace_js.json")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_recorded_from_the_documentdb_sdk() {
    replay("documentdb", include_str!("vectors/trace_documentdb.json")).await;
}
