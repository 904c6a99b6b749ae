//! What official SDKs sent, recorded on the wire, is answered as they expect.
//!
//! Each recording is one operation of one SDK: some requests, some of them again because the recording
//! server said so. They are replayed in order against an empty server. What matters is that none is
//! misunderstood: statuses are those the SDK's code goes on with.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_store::Options;
use serde_json::Value;
use support::World;

/// Answers that are not those of the recording server, and why that is right.
fn is_acceptable(recorded: u64, got: u16, request: &Value) -> bool {
    let header = |name: &str| {
        let headers = request["headers"].as_object().unwrap();
        headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let path = request["path"].as_str().unwrap();
    match (recorded, got) {
        (recorded, got) if recorded == u64::from(got) => true,
        // It refused queries over several ranges to see what clients do; we answer them.
        (400, 200) => header("x-ms-documentdb-isquery").is_some(),
        // Positions and etags of that server are not ours.
        (200, 304) | (304, 200) => header("a-im").is_some() || header("if-none-match").is_some(),
        (200 | 201 | 204, 412) => header("if-match").is_some() || request["method"] == "PATCH",
        // Its batches were not carried out; ours find that items are there already, or are not.
        (200, 207) => header("x-ms-cosmos-is-batch-request").is_some(),
        // Its ranges, items and scripts were always there; ours only once they are made.
        (200 | 204, 404) => true,
        (200, 410) => header("x-ms-documentdb-partitionkeyrangeid").is_some(),
        // It ran no triggers, so none had to be there.
        (201, 400) => header("x-ms-documentdb-pre-trigger-include").is_some(),
        // Its databases and items were made anew each time.
        (201, 409 | 200) => true,
        (200, 201) => header("x-ms-documentdb-is-upsert").is_some(),
        // Its stored procedures took any arguments, and it made plans of anything.
        (200, 400) => {
            path.contains("/sprocs/") || header("x-ms-cosmos-is-query-plan-request").is_some()
        }
        _ => false,
    }
}

async fn replay(name: &str, text: &str) {
    let operations: Vec<Value> = serde_json::from_str(text).unwrap();
    let mut options = Options::default();
    options.partitions = 2;
    let world = World::with_options(options, |_| ()).await;
    let (mut replayed, mut wrong) = (0, Vec::new());
    for operation in &operations {
        for request in operation["expected"]["requests"].as_array().unwrap() {
            let method = request["method"].as_str().unwrap();
            let path = request["path"].as_str().unwrap();
            let mut head: Vec<(&str, &str)> = Vec::new();
            for (name, value) in request["headers"].as_object().unwrap() {
                let skipped =
                    ["host", "content-length", "authorization", "x-ms-date", "connection"];
                if !skipped.contains(&name.to_ascii_lowercase().as_str()) {
                    head.push((name, value.as_str().unwrap()));
                }
            }
            // Resource ids of the recording server name nothing here.
            head.retain(|(name, _)| *name != "x-ms-cosmos-intended-collection-rid");
            let body = request["body"].as_str().unwrap_or_default();
            let got = world.send(method, path, &head, body).await;
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
