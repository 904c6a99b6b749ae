//! A range is split while a bulk request or a transaction runs in it, at another moment under each seed.

use crate::answer::Answer;
use crate::config::Config;
use crate::gateway::Gateway;
use crate::head::Head;
use crate::operations;
use crate::request::{Call, Caller};
use headwater_model::PartitionId;
use headwater_protocol::operation::{ItemOperation, Operation};
use headwater_protocol::{headers, route};
use headwater_runtime::{Runtime, Simulation};
use headwater_store::{
    Account, Change, Container, ContainerDefinition, Environment, FeedRequest, FeedStart,
    MemoryDisk, MemoryIndex, Options, PageLimit,
};
use http_body_util::BodyExt;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const OPERATIONS: usize = 20;
/// Turns of other tasks before the split or the request begins, at most.
const TURNS_MAX: u64 = 60;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Creates items of as many partition keys, each on its own.
    Bulk,
    /// Creates items of one partition key, all or none.
    Transaction,
}

/// How a request came out.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The range was gone when the request arrived.
    Refused,
    /// All operations were done before the split.
    InOldRange,
    /// The last operation was done in a new range.
    InNewRange,
}

/// A request for a range that was there when the client looked.
fn request(kind: Kind) -> Call {
    let operations: Vec<Value> = (0..OPERATIONS)
        .map(|number| {
            let id = number.to_string();
            let pk = if kind == Kind::Bulk { id.as_str() } else { "one" };
            let (key, body) = (json!([pk]).to_string(), json!({ "id": id, "pk": pk }));
            json!({ "operationType": "Create", "partitionKey": key, "resourceBody": body })
        })
        .collect();
    let (atomic, expected) = match kind {
        Kind::Bulk => ("False", ItemOperation::Bulk),
        Kind::Transaction => ("True", ItemOperation::Transaction),
    };
    let mut head = HeaderMap::new();
    for (name, value) in [
        (headers::IS_BATCH, "True"),
        (headers::BATCH_ATOMIC, atomic),
        (headers::PARTITION_KEY_RANGE_ID, "0"),
    ] {
        head.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if kind == Kind::Transaction {
        let name = HeaderName::from_static(headers::PARTITION_KEY);
        head.insert(name, HeaderValue::from_static(r#"["one"]"#));
    }
    let (route, head) = (route::parse("/dbs/d/colls/c/docs").unwrap(), Head::from(head));
    let operation = Operation::classify("POST", &route, |name| head.text(name)).unwrap();
    assert_eq!(operation, Operation::Items(expected));
    let (query, origin) = (None, String::new());
    let body = Value::Array(operations).to_string().into();
    let peer = crate::budget::Peer::for_tests();
    Call { operation, route, query, head, body, caller: Caller::Owner, origin, peer }
}

async fn open(runtime: &Runtime) -> (Arc<Gateway>, Container) {
    let environment = Environment {
        runtime: runtime.clone(),
        disk: Arc::new(MemoryDisk::new()),
        index: Some(MemoryIndex::default()),
        wrap_log: None,
    };
    let options = Options::default();
    let account = Account::open_in(environment, Path::new("store"), options).await.unwrap();
    let database = account.create_database("d").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 1).await.unwrap();
    let config = Config::emulator().unwrap();
    (Arc::new(Gateway::new(config, account, runtime.clone(), runtime.clone(), None)), container)
}

/// Lets other tasks run for as long as the seed says.
async fn pass_turns(runtime: &Runtime) {
    for _ in 0..runtime.random() % TURNS_MAX {
        runtime.run("turn", async {}).await.unwrap();
    }
}

async fn statuses(answer: Answer) -> Vec<u64> {
    let body = answer.payload.collect().await.unwrap().to_bytes();
    let results: Vec<Value> = serde_json::from_slice(&body).unwrap();
    results.iter().map(|one| one["statusCode"].as_u64().unwrap()).collect()
}

fn run(kind: Kind, seed: u64) -> Outcome {
    let simulation = Simulation::new(seed);
    let runtime = simulation.node().runtime();
    simulation.run(async move {
        let (gateway, container) = open(&runtime).await;
        let old: PartitionId = container.ranges()[0].id;
        let (splitter, halved) = (runtime.clone(), container.clone());
        runtime.spawn("split", async move {
            pass_turns(&splitter).await;
            halved.split(old, None).await.unwrap();
        });
        pass_turns(&runtime).await;
        let answer = operations::answer(&gateway, &request(kind)).await;
        // The split ends whatever became of the request.
        for _ in 0..10_000 {
            if container.newest(old).is_none() {
                break;
            }
            runtime.run("turn", async {}).await.unwrap();
        }
        assert!(container.newest(old).is_none(), "seed {seed}: the split did not end");
        let stored: u64 = container.statistics().unwrap().iter().map(|range| range.items).sum();
        let answer = match answer {
            Ok(answer) => answer,
            Err(refused) => {
                let code = (refused.code.status(), refused.code.substatus());
                assert_eq!((code, stored), ((410, 1002), 0), "seed {seed}");
                return Outcome::Refused;
            }
        };
        let served = answer.partition.unwrap();
        assert_eq!(statuses(answer).await, [201; OPERATIONS], "seed {seed}");
        assert_eq!(stored, OPERATIONS as u64, "seed {seed}");
        if kind == Kind::Transaction {
            check_is_one_change(&container, seed).await;
        }
        if served == old { Outcome::InOldRange } else { Outcome::InNewRange }
    })
}

/// All items have one LSN: the transaction was not divided.
async fn check_is_one_change(container: &Container, seed: u64) {
    let request = FeedRequest::new(FeedStart::Beginning).limit(PageLimit::items(1).unwrap());
    let mut lsns = Vec::new();
    let mut page = container.read_feed(&request).await.unwrap();
    while !page.changes.is_empty() {
        lsns.extend(page.changes.iter().map(Change::lsn));
        let next = request.clone().behind(&page);
        page = container.read_feed(&next).await.unwrap();
    }
    assert!(lsns == [lsns[0]; OPERATIONS], "seed {seed}: {lsns:?}");
}

/// Runs a request under each seed; together they show these outcomes.
fn check_outcomes(kind: Kind, expected: &[Outcome]) {
    let outcomes: Vec<Outcome> = (0..60).map(|seed| run(kind, seed)).collect();
    for expected in expected {
        assert!(outcomes.contains(expected), "no seed shows {expected:?}: {outcomes:?}");
    }
}

/// Decided: a split in the middle fails no operation. It is refused as a whole or done as a whole.
#[test]
fn a_bulk_request_outlives_a_split_in_its_middle() {
    let all = [Outcome::Refused, Outcome::InOldRange, Outcome::InNewRange];
    check_outcomes(Kind::Bulk, &all);
}

#[test]
fn a_transaction_is_done_whole_or_not_at_all_when_its_range_is_split() {
    // A transaction is one write: few moments, if any, are left for a new range.
    check_outcomes(Kind::Transaction, &[Outcome::Refused, Outcome::InOldRange]);
}
