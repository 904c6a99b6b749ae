//! Batches that are refused as a whole, before their first operation.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use serde_json::json;
use support::{Got, World};

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
const BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
const RANGE: &str = "x-ms-documentdb-partitionkeyrangeid";
const SESSION: &str = "x-ms-session-token";

/// A transaction and a bulk request.
const ATOMIC: [(&str, &str); 2] =
    [("x-ms-cosmos-batch-atomic", "True"), ("x-ms-cosmos-batch-atomic", "False")];

fn create(id: &str, key: &str) -> serde_json::Value {
    let key_text = json!([key]).to_string();
    let body = json!({ "id": id, "pk": key });
    json!({ "operationType": "Create", "partitionKey": key_text, "resourceBody": body })
}

fn ids(got: &Got) -> Vec<String> {
    let items = got.json()["Documents"].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// The bulk executor of Java, Spark and Kafka refreshes its ranges only if the whole request is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_for_a_range_that_is_gone_is_refused_as_a_whole() {
    let world = World::new().await.with_container().await;
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    let gone = container.ranges()[0].id;
    let halves = container.split(gone, None).await.unwrap();
    assert_eq!(halves.len(), 2);
    let (gone, half) = (gone.to_string(), halves[0].id.to_string());
    for (index, atomic) in ATOMIC.into_iter().enumerate() {
        let body = json!([create(&index.to_string(), "a")]).to_string();
        let head = [KEY, BATCH, atomic, (RANGE, gone.as_str())];
        let refused = world.send("POST", DOCS, &head, &body).await;
        assert_eq!((refused.status, refused.substatus()), (410, Some(1002)), "{refused:?}");
        assert_eq!(ids(&world.send("GET", DOCS, &[], "").await).len(), index);
        // With an existing range it succeeds, even if the key is in the other range.
        let head = [KEY, BATCH, atomic, (RANGE, half.as_str())];
        let done = world.send("POST", DOCS, &head, &body).await;
        assert_eq!(done.status, 200, "{done:?}");
        assert_eq!(ids(&world.send("GET", DOCS, &[], "").await).len(), index + 1);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_a_read_is_not_served_the_past() {
    let world = World::new().await.with_container().await;
    let written = world.send("POST", DOCS, &[KEY], r#"{"id":"1","pk":"a"}"#).await;
    let session = written.header(SESSION).unwrap().to_owned();
    let read = json!({ "operationType": "Read", "id": "1", "partitionKey": "[\"a\"]" });
    for (index, atomic) in ATOMIC.into_iter().enumerate() {
        let made = create(&format!("new-{index}"), "a");
        let body = json!([made, read]).to_string();
        let ahead = [KEY, BATCH, atomic, (SESSION, "0:-1#1000")];
        let refused = world.send("POST", DOCS, &ahead, &body).await;
        assert_eq!((refused.status, refused.substatus()), (404, Some(1002)), "{refused:?}");
        assert_eq!(
            ids(&world.send("GET", DOCS, &[], "").await).len(),
            index + 1,
            "nothing is done"
        );
        let known = [KEY, BATCH, atomic, (SESSION, session.as_str())];
        assert_eq!(world.send("POST", DOCS, &known, &body).await.status, 200);
    }
    // A batch that only writes cannot read stale data.
    let body = json!([create("last", "a")]).to_string();
    let ahead = [KEY, BATCH, ATOMIC[0], (SESSION, "0:-1#1000")];
    assert_eq!(world.send("POST", DOCS, &ahead, &body).await.status, 200);
    world.stop().await;
}

/// Regression: each operation of a bulk request has its own key, but only the header was compared with the token.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_one_partition_key_reaches_no_other_in_a_batch() {
    let world = World::new().await.with_container().await;
    world.send("POST", "/dbs/db/users", &[], r#"{"id":"ann"}"#).await;
    let body = r#"{"id":"p","permissionMode":"All","resource":"dbs/db/colls/c","resourcePartitionKey":["a"]}"#;
    let made = world.send("POST", "/dbs/db/users/ann/permissions", &[], body).await;
    let token = made.json()["_token"].as_str().unwrap().to_owned();
    let token: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let guest = async |atomic: (&str, &str), body: &str| {
        let request = format!(
            "POST {DOCS} HTTP/1.1\r\nHost: localhost\r\nauthorization: {token}\r\n{}: {}\r\n\
             {}: {}\r\n{}: {}\r\nContent-Length: {}\r\n\r\n{body}",
            KEY.0,
            KEY.1,
            BATCH.0,
            BATCH.1,
            atomic.0,
            atomic.1,
            body.len()
        );
        world.send_raw(request.as_bytes()).await.status
    };
    for (index, atomic) in ATOMIC.into_iter().enumerate() {
        let (ours, theirs) = (format!("ours-{index}"), format!("theirs-{index}"));
        let both = json!([create(&ours, "a"), create(&theirs, "b")]).to_string();
        assert_eq!(guest(atomic, &both).await, 403);
        assert_eq!(guest(atomic, &json!([create(&ours, "a")]).to_string()).await, 200);
    }
    assert_eq!(ids(&world.send("GET", DOCS, &[], "").await), ["ours-0", "ours-1"]);
    world.stop().await;
}

/// Regression: twenty small patches of large items led to a response of 38 MB.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_whose_answer_would_be_too_large_does_nothing() {
    const COUNT: usize = 6;
    let world = World::new().await.with_container().await;
    let text = "x".repeat(900 << 10);
    for number in 0..COUNT {
        let body = json!({ "id": number.to_string(), "pk": "a", "text": text }).to_string();
        assert_eq!(world.send("POST", DOCS, &[KEY], &body).await.status, 201);
    }
    let patches = |count: usize, value: usize| {
        let patch = |number: usize| {
            let operations = json!([{ "op": "set", "path": "/n", "value": value }]);
            let body = json!({ "operations": operations });
            json!({ "operationType": "Patch", "id": number.to_string(), "resourceBody": body })
        };
        let all: Vec<_> = (0..count).map(patch).collect();
        json!(all).to_string()
    };
    let head = [KEY, BATCH, ATOMIC[0]];
    let value = async || {
        let item = world.send("GET", &format!("{DOCS}/0"), &[KEY], "").await;
        item.json()["n"].as_u64()
    };
    let refused = world.send("POST", DOCS, &head, &patches(COUNT, 1)).await;
    assert_eq!(refused.status, 207, "{} bytes", refused.body.len());
    let results = refused.json();
    let statuses: Vec<_> =
        results.as_array().unwrap().iter().map(|one| &one["statusCode"]).collect();
    assert_eq!(statuses, [424, 424, 424, 424, 413, 424]);
    assert_eq!(value().await, None);
    let done = world.send("POST", DOCS, &head, &patches(COUNT - 2, 2)).await;
    assert_eq!((done.status, done.body.len() > 3 << 20), (200, true));
    assert_eq!(value().await, Some(2));
    let silent = [KEY, BATCH, ATOMIC[0], ("Prefer", "return=minimal")];
    let done = world.send("POST", DOCS, &silent, &patches(COUNT, 3)).await;
    assert_eq!((done.status, done.body.len() < 2_000), (200, true));
    assert_eq!(value().await, Some(3));
    world.stop().await;
}
