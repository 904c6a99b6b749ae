//! Runs the change feed scenarios of the protocol reference, through headers and bodies.
//!
//! Each write waits on a virtual clock for its `ts`, so that times are exact.

use crate::config::Config;
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::head::Head;
use crate::operations;
use crate::request::{Call, Caller};
use bytes::Bytes;
use headwater_model::Timestamp;
use headwater_protocol::operation::Operation;
use headwater_protocol::route;
use headwater_runtime::Simulation;
use headwater_store::{
    Account, Container, ContainerDefinition, Environment, ItemWrite, MemoryDisk, MemoryIndex,
    Options,
};
use http_body_util::BodyExt;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SIMULATION_START: u64 = 1_767_225_600;

struct Got {
    status: u64,
    substatus: Option<u64>,
    etag: Option<String>,
    count: Option<u64>,
    items: Vec<Value>,
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

async fn write_group(container: &Container, together: &[Value]) {
    let operations = together.iter().map(operation).collect();
    let key = together[0]["pk"].as_str().unwrap();
    let written = container.batch(key, operations).await.unwrap();
    assert_eq!(Some(written[0].lsn.get()), together[0]["lsn"].as_u64());
}

fn head_of(headers: &Value, shift: u64) -> HeaderMap {
    let mut head = HeaderMap::new();
    for (name, value) in headers.as_object().unwrap() {
        let mut value = value.as_str().unwrap().to_owned();
        if name.eq_ignore_ascii_case("if-modified-since") {
            let time = Timestamp::from_rfc1123(&value).unwrap();
            value = Timestamp::from_seconds(time.as_seconds() + shift).to_rfc1123();
        }
        let name: HeaderName = name.parse().unwrap();
        head.insert(name, HeaderValue::from_str(&value).unwrap());
    }
    head
}

async fn ask(gateway: &Arc<Gateway>, path: &str, head: HeaderMap) -> Got {
    let (route, head) = (route::parse(path).unwrap(), Head::from(head));
    let call = Call {
        operation: Operation::classify("GET", &route, |name| head.text(name)).unwrap(),
        route,
        query: None,
        head,
        body: Bytes::new(),
        caller: Caller::Owner,
        origin: "http://localhost/".to_owned(),
        peer: crate::budget::Peer::for_tests(),
    };
    let answer = operations::answer(gateway, &call).await;
    let answer = answer.unwrap_or_else(|failure: Failure| failure.into_answer("scenario"));
    let header = |name: &str| Some(answer.headers.get(name)?.to_str().unwrap().to_owned());
    let number = |name: &str| header(name).map(|text| text.parse::<u64>().unwrap());
    let (etag, count, substatus) =
        (header("etag"), number("x-ms-item-count"), number("x-ms-substatus"));
    let status = u64::from(answer.status.as_u16());
    let body = answer.payload.collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let items = body["Documents"].as_array().cloned().unwrap_or_default();
    let items = items.into_iter().map(flatten).collect();
    Got { status, substatus, etag, count, items }
}

/// Moves the members of an envelope's metadata to the top level, where the vectors have them.
fn flatten(item: Value) -> Value {
    let Some(metadata) = item.get("metadata") else { return item };
    let mut flat = metadata.as_object().unwrap().clone();
    flat.insert("current".to_owned(), item["current"].clone());
    if let Some(id) = item["current"].get("id") {
        flat.insert("id".to_owned(), id.clone());
    }
    Value::Object(flat)
}

/// Whether the item has everything that the vector names; it may have more.
fn matches(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => expected.iter().all(|(key, value)| {
            let absent = value.is_null() || value == &json!(false);
            actual.get(key).map_or(absent, |found| matches(value, found))
        }),
        _ => expected == actual,
    }
}

fn run(case: &Value) {
    let description = case["input"]["description"].as_str().unwrap().to_owned();
    let writes = case["input"]["writes"].as_array().unwrap().clone();
    let request = case["input"]["request"].clone();
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
    let shift = SIMULATION_START + 100 - first;
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
            let due = shift + write["ts"].as_u64().unwrap();
            let wait = (due * 1000).saturating_sub(runtime.unix_millis());
            runtime.sleep(Duration::from_millis(wait)).await;
            let same = rest.iter().take_while(|other| other["lsn"] == write["lsn"]).count();
            if write["ttl"] == json!(true) {
                runtime.sleep(Duration::from_secs(2)).await;
            } else {
                write_group(&container, &rest[..same]).await;
            }
            rest = &rest[same..];
        }
        let config = Config::emulator().unwrap();
        let gateway = Arc::new(Gateway::new(config, account, runtime.clone(), runtime, None));
        let head = head_of(&request["headers"], shift);
        ask(&gateway, request["path"].as_str().unwrap(), head).await
    });
    let expected = &case["expected"];
    assert_eq!(Some(got.status), expected["status"].as_u64(), "{description}: status");
    assert_eq!(got.substatus, expected["substatus"].as_u64(), "{description}: substatus");
    if let Some(etag) = expected["etag"].as_str() {
        assert_eq!(got.etag.as_deref(), Some(etag), "{description}: etag");
        assert_eq!(got.count, Some(got.items.len() as u64), "{description}: x-ms-item-count");
    }
    if let Some(count) = expected["itemCount"].as_u64() {
        assert_eq!(got.items.len() as u64, count, "{description}: count");
    }
    for (expected, actual) in expected["items"].as_array().into_iter().flatten().zip(&got.items) {
        assert!(matches(expected, actual), "{description}: expected {expected}, got {actual}");
    }
}

#[test]
fn every_scenario_of_the_protocol_reference_over_the_wire() {
    let text = include_str!("../tests/vectors/change_feed_scenarios.json");
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    assert_eq!(cases.len(), 40);
    for case in &cases {
        run(case);
    }
}
