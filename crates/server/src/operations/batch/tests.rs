//! Splits a range while a bulk request runs in it, at a different moment under each seed.

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
    Account, Container, ContainerDefinition, Environment, MemoryDisk, MemoryIndex, Options,
};
use http_body_util::BodyExt;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const OPERATIONS: usize = 20;
/// The maximum number of turns of other tasks before the split or the request starts.
const TURNS_MAX: u64 = 60;

/// The result of a request during a split.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The range was gone when the request arrived.
    Refused,
    /// All operations ran before the split.
    InOldRange,
    /// The last operation ran in a new range.
    InNewRange,
}

/// A request that creates items with different partition keys, addressed to the range before the split.
fn bulk() -> Call {
    let operations: Vec<Value> = (0..OPERATIONS)
        .map(|number| {
            let (id, key) = (number.to_string(), format!("[\"{number}\"]"));
            let body = json!({ "id": id, "pk": id });
            json!({ "operationType": "Create", "partitionKey": key, "resourceBody": body })
        })
        .collect();
    let mut head = HeaderMap::new();
    for (name, value) in [
        (headers::IS_BATCH, "True"),
        (headers::BATCH_ATOMIC, "False"),
        (headers::PARTITION_KEY_RANGE_ID, "0"),
    ] {
        head.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let (route, head) = (route::parse("/dbs/d/colls/c/docs").unwrap(), Head::from(head));
    let operation = Operation::classify("POST", &route, |name| head.text(name)).unwrap();
    assert_eq!(operation, Operation::Items(ItemOperation::Bulk));
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

/// Lets other tasks run for a number of turns that depends on the seed.
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

fn run(seed: u64) -> Outcome {
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
        let answer = operations::answer(&gateway, &bulk()).await;
        // The split ends independently of the request.
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
        if served == old { Outcome::InOldRange } else { Outcome::InNewRange }
    })
}

/// A split in the middle fails no operation: the request is refused or done as a whole.
#[test]
fn a_bulk_request_outlives_a_split_in_its_middle() {
    let outcomes: Vec<Outcome> = (0..60).map(run).collect();
    for expected in [Outcome::Refused, Outcome::InOldRange, Outcome::InNewRange] {
        assert!(outcomes.contains(&expected), "no seed shows {expected:?}: {outcomes:?}");
    }
}
