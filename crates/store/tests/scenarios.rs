//! The change feed scenarios of the protocol reference, run against the library.
//!
//! The vectors describe HTTP; the little adapter below does what the gateway will do with headers.
//! Each write waits on a virtual clock for its `ts`, so that times are exact.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

use headwater_log::disk::MemoryDisk;
use headwater_model::{FeedMode, FeedStart, PageLimit, PartitionId, PartitionKey, Timestamp};
use headwater_runtime::Simulation;
use headwater_store::{
    Account, Change, Container, ContainerDefinition, Environment, FeedError, FeedPage, FeedRequest,
    ItemWrite, MemoryIndex, Options,
};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const SIMULATION_START: u64 = 1_767_225_600;

struct Answer {
    status: u64,
    substatus: Option<u64>,
    etag: Option<String>,
    items: Vec<Value>,
}

fn refused(status: u64, substatus: Option<u64>) -> Answer {
    Answer { status, substatus, etag: None, items: Vec::new() }
}

async fn write_all(container: &Container, writes: &[Value]) {
    let mut index = 0;
    while index < writes.len() {
        let lsn = writes[index]["lsn"].as_u64();
        let together: Vec<&Value> =
            writes[index..].iter().take_while(|write| write["lsn"].as_u64() == lsn).collect();
        index += together.len();
        let operations = together.iter().map(|write| operation(write)).collect();
        let key = together[0]["pk"].as_str().unwrap();
        let written = container.batch(key, operations).await.unwrap();
        assert_eq!(Some(written[0].lsn.get()), lsn, "the vector's LSN is the next one");
    }
}

fn operation(write: &Value) -> ItemWrite {
    let (id, pk) = (write["id"].as_str().unwrap(), write["pk"].as_str().unwrap());
    let body = json!({ "id": id, "pk": pk, "v": write["v"] }).to_string();
    match write["op"].as_str().unwrap() {
        "create" => ItemWrite::create(body),
        "replace" => ItemWrite::replace(id, body),
        "delete" => ItemWrite::delete(pk, id),
        other => panic!("unknown operation {other}"),
    }
}

/// What the gateway will do with the headers of a feed request.
async fn answer(container: &Container, headers: &Value, shift: u64) -> Answer {
    let header = |name: &str| headers.get(name).and_then(Value::as_str);
    let mode = if header("A-IM").unwrap().eq_ignore_ascii_case("full-fidelity feed") {
        FeedMode::AllVersionsAndDeletes
    } else {
        FeedMode::LatestVersion
    };
    let old_version = header("x-ms-version").is_none_or(|version| version < "2018-12-31");
    let time = header("If-Modified-Since").map(|date| {
        Timestamp::from_seconds(Timestamp::from_rfc1123(date).unwrap().as_seconds() + shift)
    });
    let start = match (header("If-None-Match").filter(|etag| !etag.is_empty()), time) {
        (Some("*"), _) => FeedStart::Now,
        (Some(etag), _) => match etag.parse() {
            Ok(position) => FeedStart::After(position),
            Err(_) => return refused(400, None),
        },
        (None, Some(time)) => FeedStart::Time(time),
        (None, None) => FeedStart::Beginning,
    };
    let only_position = matches!(start, FeedStart::Time(_)) && old_version;
    if only_position && mode == FeedMode::LatestVersion {
        let lsn = container.position_at(PartitionId::new(0), time.unwrap()).unwrap();
        return Answer {
            status: 304,
            substatus: None,
            etag: Some(format!("\"{lsn}\"")),
            items: vec![],
        };
    }
    let mut request = FeedRequest::new(start).mode(mode);
    if let Some(count) = header("x-ms-max-item-count") {
        request = request.limit(PageLimit::items(count.parse().unwrap()).unwrap());
    }
    if let Some(id) = header("x-ms-documentdb-partitionkeyrangeid") {
        let id = id.rsplit(',').next().unwrap();
        request = request.of_range(id.parse().unwrap());
    }
    if let Some(key) = header("x-ms-documentdb-partitionkey") {
        request = request.of_key(PartitionKey::parse(key).unwrap());
    }
    match container.read_feed(&request).await {
        Ok(page) => page_answer(&page, mode),
        // A reader ahead of the container is told that there is nothing newer than what it has.
        Err(FeedError::PositionAhead { asked, .. }) => Answer {
            status: 304,
            substatus: None,
            etag: Some(format!("\"{asked}\"")),
            items: vec![],
        },
        Err(FeedError::RangeGone(_)) => refused(410, Some(1002)),
        Err(FeedError::UnsupportedStart(_)) => refused(400, None),
        Err(error) => panic!("{error}"),
    }
}

fn page_answer(page: &FeedPage, mode: FeedMode) -> Answer {
    let show = |change: &Change| match mode {
        FeedMode::LatestVersion => serde_json::from_slice(&change.body()).unwrap(),
        FeedMode::AllVersionsAndDeletes => json!({
            "operationType": change.kind().as_str(),
            "lsn": change.lsn().get(),
            "id": change.id(),
            "current": change.item().map_or(json!({}), |item| item.parse().unwrap()),
            "previousImageLSN": change.previous_lsn().map(|lsn| lsn.get()),
            "timeToLiveExpired": change.is_expiry(),
        }),
    };
    Answer {
        status: if page.changes.is_empty() { 304 } else { 200 },
        substatus: None,
        etag: Some(page.continuation.to_string()),
        items: page.changes.iter().map(show).collect(),
    }
}

/// Everything the vector names must be so; it may name less than there is.
fn matches(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => expected
            .iter()
            .all(|(key, value)| actual.get(key).is_some_and(|found| matches(value, found))),
        _ => expected == actual,
    }
}

fn run(case: &Value) {
    let description = case["input"]["description"].as_str().unwrap().to_owned();
    let writes = case["input"]["writes"].as_array().unwrap().clone();
    let headers = case["input"]["request"]["headers"].clone();
    let simulation = Simulation::new(1);
    let runtime = simulation.node().runtime();
    let environment = Environment {
        runtime: runtime.clone(),
        disk: Arc::new(MemoryDisk::new()),
        index: Some(MemoryIndex::default()),
        wrap_log: None,
    };
    // The vectors' clock starts in 2023, the simulation's in 2026.
    let first = writes.first().and_then(|write| write["ts"].as_u64()).unwrap_or(0);
    let expires = writes.iter().any(|write| write["ttl"] == json!(true));
    let got = simulation.run(async move {
        let options = Options::default();
        let account = Account::open_in(environment, Path::new("store"), options).await.unwrap();
        let database = account.create_database("d").await.unwrap();
        let mut definition = ContainerDefinition::new("c", "/pk").unwrap();
        if expires {
            definition = definition.with_default_ttl(60);
        }
        let container = database.create_container_with(definition, 1).await.unwrap();
        let mut rest = &writes[..];
        while let Some(write) = rest.first() {
            let due = SIMULATION_START + 100 + write["ts"].as_u64().unwrap() - first;
            let wait = (due * 1000).saturating_sub(runtime.unix_millis());
            runtime.sleep(std::time::Duration::from_millis(wait)).await;
            if write["ttl"] == json!(true) {
                runtime.sleep(std::time::Duration::from_secs(2)).await;
                rest = &rest[1..];
                continue;
            }
            let same = rest.iter().take_while(|other| other["lsn"] == write["lsn"]).count();
            write_all(&container, &rest[..same]).await;
            rest = &rest[same..];
        }
        let shift = SIMULATION_START + 100 - first;
        answer(&container, &headers, shift).await
    });
    let expected = &case["expected"];
    assert_eq!(Some(got.status), expected["status"].as_u64(), "{description}: status");
    assert_eq!(got.substatus, expected["substatus"].as_u64(), "{description}: substatus");
    if let Some(etag) = expected["etag"].as_str() {
        assert_eq!(got.etag.as_deref(), Some(etag), "{description}: etag");
    }
    if let Some(count) = expected["itemCount"].as_u64() {
        assert_eq!(got.items.len() as u64, count, "{description}: count");
    }
    for (expected, actual) in expected["items"].as_array().into_iter().flatten().zip(&got.items) {
        assert!(matches(expected, actual), "{description}: expected {expected}, got {actual}");
    }
}

#[test]
fn every_scenario_of_the_protocol_reference() {
    let text = include_str!("vectors/change_feed_scenarios.json");
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    assert_eq!(cases.len(), 40);
    for case in &cases {
        run(case);
    }
}
