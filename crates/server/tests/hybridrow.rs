//! Batches in the .NET SDK's form: rows in, rows out, with the semantics of the JSON form.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_protocol::binary;
use headwater_protocol::hybridrow::{self, OperationRow, Records, ResultRow};
use serde_json::Value;
use support::{Got, World};

const ITEMS: &str = "/dbs/db/colls/c/docs";
const IS_BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
const ATOMIC: [(&str, &str); 4] = [
    IS_BATCH,
    ("x-ms-cosmos-batch-atomic", "True"),
    ("x-ms-cosmos-batch-ordered", "True"),
    ("x-ms-documentdb-partitionkey", r#"["a"]"#),
];
const BULK: [(&str, &str); 4] = [
    IS_BATCH,
    ("x-ms-cosmos-batch-atomic", "False"),
    ("x-ms-cosmos-batch-continue-on-error", "True"),
    ("x-ms-documentdb-partitionkeyrangeid", "0"),
];

const CREATE: i32 = 0;
const PATCH: i32 = 1;
const READ: i32 = 2;
const DELETE: i32 = 4;
const REPLACE: i32 = 5;
const UPSERT: i32 = 20;

fn row(kind: i32) -> OperationRow<'static> {
    OperationRow { operation_type: Some(kind), resource_type: Some(2), ..Default::default() }
}

fn stream(rows: &[OperationRow<'_>]) -> Vec<u8> {
    let mut stream = Vec::new();
    hybridrow::start(&mut stream);
    for row in rows {
        hybridrow::append_record(&mut stream, |out| row.encode_into(out));
    }
    stream
}

async fn send(world: &World, head: &[(&str, &str)], rows: &[OperationRow<'_>]) -> Got {
    world.send_raw(&world.request("POST", ITEMS, head, &stream(rows))).await
}

fn results(got: &Got) -> Vec<ResultRow<'_>> {
    assert_eq!(got.header("content-type"), Some("application/octet-stream"), "{got:?}");
    Records::new(&got.body).map(|row| ResultRow::decode(row.unwrap()).unwrap()).collect()
}

fn statuses(got: &Got) -> Vec<(i32, i32)> {
    results(got).iter().map(|row| (row.status.unwrap(), row.substatus.unwrap())).collect()
}

fn json(body: Option<&[u8]>) -> Value {
    serde_json::from_slice(body.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_in_rows_is_done_and_answered_in_rows() {
    let world = World::new().await.with_container().await;
    let patch = br#"{"operations":[{"op":"incr","path":"/n","value":2}]}"#;
    let rows = [
        OperationRow { resource_body: Some(br#"{"id":"1","pk":"a","n":1.50}"#), ..row(CREATE) },
        OperationRow { resource_body: Some(br#"{"id":"2","pk":"a"}"#), ..row(UPSERT) },
        OperationRow {
            id: Some("2"),
            resource_body: Some(br#"{"id":"2","pk":"a","n":2}"#),
            indexing_directive: Some("Include"),
            wants_minimal: Some(true),
            ..row(REPLACE)
        },
        OperationRow { id: Some("1"), resource_body: Some(patch), ..row(PATCH) },
        OperationRow { id: Some("1"), ..row(READ) },
        OperationRow { id: Some("2"), ..row(DELETE) },
    ];
    let got = send(&world, &ATOMIC, &rows).await;
    assert_eq!(got.status, 200, "{got:?}");
    let results = results(&got);
    assert_eq!(statuses(&got), [(201, 0), (201, 0), (200, 0), (200, 0), (200, 0), (204, 0)]);
    let has_body: Vec<bool> = results.iter().map(|row| row.resource_body.is_some()).collect();
    assert_eq!(has_body, [true, true, false, true, true, false]);
    let read = json(results[4].resource_body);
    assert_eq!((&read["n"], &read["_etag"]), (&3.5.into(), &results[4].etag.unwrap().into()));
    let charges: f64 = results.iter().map(|row| row.request_charge.unwrap()).sum();
    let whole: f64 = got.header("x-ms-request-charge").unwrap().parse().unwrap();
    assert!((charges - whole).abs() < 0.01, "{charges} {whole}");
    assert!(got.header("x-ms-session-token").is_some());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_operation_undoes_the_transaction_and_says_why() {
    let world = World::new().await.with_container().await;
    let create = OperationRow { resource_body: Some(br#"{"id":"1","pk":"a"}"#), ..row(CREATE) };
    let delete = OperationRow { id: Some("none"), ..row(DELETE) };
    let got = send(&world, &ATOMIC, &[create, create, delete]).await;
    assert_eq!((got.status, statuses(&got)), (207, vec![(424, 0), (409, 0), (424, 0)]));
    let results = results(&got);
    let error = json(results[1].resource_body);
    assert_eq!(error["code"], "Conflict", "{error}");
    assert!(error["message"].as_str().unwrap().contains("already exists"), "{error}");
    assert_eq!((results[0].resource_body, results[0].request_charge), (None, Some(0.0)));
    let read = [OperationRow { id: Some("1"), ..row(READ) }];
    assert_eq!(statuses(&send(&world, &ATOMIC, &read).await), [(404, 0)]);

    // An error in a body fails only its operation too.
    let broken = OperationRow { resource_body: Some(b"not an item"), ..row(CREATE) };
    let expiring = OperationRow { time_to_live_seconds: Some(10), ..create };
    let stale = OperationRow { id: Some("1"), if_match: Some("\"x\""), ..row(REPLACE) };
    let stale = OperationRow { resource_body: create.resource_body, ..stale };
    for (rows, expected) in [
        ([broken, create], [(400, 0), (424, 0)]),
        ([create, expiring], [(424, 0), (400, 0)]),
        ([create, stale], [(424, 0), (412, 0)]),
    ] {
        let got = send(&world, &ATOMIC, &rows).await;
        assert_eq!((got.status, statuses(&got)), (207, expected.to_vec()));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_of_a_bulk_request_in_rows_has_its_own_result() {
    let world = World::new().await.with_container().await;
    let encoded = binary::encode(br#"{"id":"2","pk":"b","n":[1,2]}"#).unwrap();
    let item = |key, body| OperationRow {
        partition_key: Some(key),
        resource_body: Some(body),
        ..row(CREATE)
    };
    let rows = [
        item(r#"["a"]"#, br#"{"id":"1","pk":"a"}"#),
        item(r#"["a"]"#, br#"{"id":"1","pk":"a"}"#),
        item(r#"["b"]"#, &encoded),
        item("[5.0]", br#"{"id":"3","pk":5}"#),
        item("[{}]", br#"{"id":"4"}"#),
        item(r#"["b"]"#, b"\x80\xff"),
        OperationRow { id: Some("1"), partition_key: Some(r#"["a"]"#), ..row(READ) },
        OperationRow { id: Some("1"), ..row(READ) },
        OperationRow { id: Some("9"), partition_key: Some(r#"["a"]"#), ..row(DELETE) },
    ];
    let got = send(&world, &BULK, &rows).await;
    let expected = [201, 409, 201, 201, 201, 400, 200, 400, 404].map(|status| (status, 0));
    assert_eq!((got.status, statuses(&got)), (207, expected.to_vec()));
    let results = results(&got);
    assert_eq!(json(results[2].resource_body)["n"], serde_json::json!([1, 2]));
    assert_eq!(json(results[5].resource_body)["code"], "BadRequest");
    assert!(got.header("x-ms-content-path").is_some(), "{got:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_no_batch_of_rows_is_refused_in_json() {
    let world = World::new().await.with_container().await;
    let read = OperationRow { id: Some("1"), ..row(READ) };
    let mut broken = stream(&[read, read]);
    *broken.last_mut().unwrap() ^= 1;
    for (body, message) in [
        (stream(&[]), "Batch request has no operations."),
        (stream(&[read; 101]), "Batch request has more operations than what is supported."),
        (broken, "at operation 1: the checksum"),
        (stream(&[read, row(READ)]), "operation 1 of the batch has no id"),
        (stream(&[OperationRow { resource_type: Some(1), ..read }]), "resourceType 1"),
        (stream(&[OperationRow { operation_type: Some(3), ..read }]), "operationType"),
        (vec![0x81], "HybridRow"),
    ] {
        for head in [&ATOMIC, &BULK] {
            let got = world.send_raw(&world.request("POST", ITEMS, head, &body)).await;
            assert_eq!((got.status, &got.json()["code"]), (400, &"BadRequest".into()), "{got:?}");
            let said = got.json()["message"].as_str().unwrap().to_owned();
            assert!(said.contains(message), "{said}");
        }
    }
    world.stop().await;
}

/// A patch is small but its item may not be, so the size of the request does not limit the response.
#[tokio::test(flavor = "multi_thread")]
async fn patches_of_large_items_do_not_make_the_answer_larger_than_its_limit() {
    let world = World::new().await.with_container().await;
    let text = "x".repeat(1 << 20);
    let item = format!(r#"{{"id":"1","pk":"a","n":0,"text":"{text}"}}"#);
    let key = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
    assert_eq!(world.send("POST", ITEMS, &[key], &item).await.status, 201);
    let patch = OperationRow {
        id: Some("1"),
        partition_key: Some(r#"["a"]"#),
        resource_body: Some(br#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#),
        ..row(PATCH)
    };
    let got = send(&world, &BULK, &[patch; 8]).await;
    let (done, refused) = ((200, 0), (413, 3402));
    assert_eq!(statuses(&got), [done, done, done, done, refused, refused, refused, refused]);
    let read = OperationRow { id: Some("1"), partition_key: Some(r#"["a"]"#), ..row(READ) };
    let got = send(&world, &BULK, &[read]).await;
    assert_eq!(json(results(&got)[0].resource_body)["n"], 4, "what is refused is not done");
    world.stop().await;
}
