//! Stored procedures, triggers and user-defined functions over HTTP.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_store::Options;
use serde_json::{Value, json};
use std::time::Duration;
use support::{Got, World, read_answer};
use tokio::io::AsyncWriteExt;

const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"k\"]");
const SPROCS: &str = "/dbs/db/colls/c/sprocs";
const TRIGGERS: &str = "/dbs/db/colls/c/triggers";
const UDFS: &str = "/dbs/db/colls/c/udfs";
const DOCS: &str = "/dbs/db/colls/c/docs";

async fn world() -> World {
    World::new().await.with_container().await
}

/// A world with short limits, so that an endless script is stopped soon.
async fn hasty_world() -> World {
    let mut options = Options::default();
    options.scripts.time = Duration::from_millis(400);
    options.scripts.accepting = Duration::from_millis(300);
    World::with_options(options, |_| ()).await.with_container().await
}

async fn keep(world: &World, path: &str, document: Value) {
    let got = world.send("POST", path, &[], &document.to_string()).await;
    assert_eq!(got.status, 201, "{got:?}");
}

/// Creates a stored procedure and executes it once.
async fn execute(world: &World, name: &str, source: &str, arguments: &str) -> Got {
    keep(world, SPROCS, json!({"id": name, "body": source})).await;
    world.send("POST", &format!("{SPROCS}/{name}"), &[KEY], arguments).await
}

fn message(got: &Got) -> String {
    got.json()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_procedure_is_executed_and_its_writes_are_one_transaction() {
    let world = world().await;
    let source = "function make(count) { var link = getContext().getCollection().getSelfLink();
        for (var i = 0; i < count; i++) __.createDocument(link, { id: '' + i, pk: 'k' }, function (e) { if (e) throw e });
        getContext().getResponse().setBody({ made: count }) }";
    let got = execute(&world, "make", source, "[120]").await;
    assert_eq!((got.status, got.json()), (200, json!({"made": 120})), "{got:?}");
    assert!(got.header("x-ms-session-token").is_some());
    assert!(got.header("x-ms-request-charge").unwrap().parse::<f64>().unwrap() > 100.0);
    assert_eq!(got.header("x-ms-alt-content-path"), Some("dbs/db/colls/c"));
    let feed = [("A-IM", "Incremental feed"), ("x-ms-max-item-count", "10"), KEY];
    let page = world.send("GET", DOCS, &feed, "").await;
    let changes = page.json()["Documents"].as_array().unwrap().clone();
    assert_eq!(changes.len(), 120, "one page, though ten were asked for");
    assert!(changes.iter().all(|change| change["_lsn"] == changes[0]["_lsn"]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_answers_and_logs_travel_as_the_service_sends_them() {
    let world = world().await;
    let echo = "function echo(a, b) { console.log('got %s: é.', a); getContext().getResponse().setBody(b) }";
    keep(&world, SPROCS, json!({"id": "echo", "body": echo})).await;
    let path = format!("{SPROCS}/echo");
    for (arguments, expected) in [
        (r#"["x", "text"]"#, "\"text\""),
        (r#"["x", {"a":[1]}]"#, r#"{"a":[1]}"#),
        (r#"["x", null]"#, "null"),
        ("[]", "\"\""),
        ("", "\"\""),
    ] {
        let got = world.send("POST", &path, &[KEY], arguments).await;
        assert_eq!(String::from_utf8_lossy(&got.body), expected, "{arguments}");
        assert_eq!((got.status, got.header("x-ms-documentdb-script-log-results")), (200, None));
    }
    let logged = [KEY, ("x-ms-documentdb-script-enable-logging", "true")];
    let got = world.send("POST", &path, &logged, r#"["x"]"#).await;
    let log = got.header("x-ms-documentdb-script-log-results");
    assert_eq!(log, Some("got%20x%3A%20%C3%A9."));
    for bad in ["{}", "1", "[", "[1,]"] {
        let got = world.send("POST", &path, &[KEY], bad).await;
        assert_eq!(got.status, 400, "{bad}: {got:?}");
    }
    let got = world.send("POST", &path, &[], "[]").await;
    assert_eq!(got.status, 400);
    assert!(message(&got).contains("PartitionKey value must be supplied"), "{got:?}");
    let got = world.send("POST", &format!("{SPROCS}/absent"), &[KEY], "[]").await;
    assert_eq!(got.status, 404);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_script_gets_a_status_and_a_substatus() {
    let world = hasty_world().await;
    for (name, source, status, substatus, text) in [
        ("boom", "function f() { throw new Error('boom') }", 400, None, "Exception = Error: boom"),
        ("gone", "function f() { throw new Error(404, 'gone') }", 400, Some(404), "Error: gone"),
        (
            "absent",
            "function f() { __.readDocument(__.getAltLink() + '/docs/none') }",
            400,
            Some(404),
            "Resource Not Found",
        ),
        (
            "elsewhere",
            "function f() { __.createDocument(__.getSelfLink(), { id: '1', pk: 'z' }) }",
            400,
            Some(400),
            "cannot reference partition keys other than",
        ),
        ("broken", "function f( {", 400, Some(65535), "compile"),
        ("nothing", "1 + 1", 400, None, "must be a function"),
        ("endless", "function f() { for (;;) {} }", 408, None, "did not end within"),
        ("deep", "function f() { (function g() { g() })() }", 400, None, "call stack"),
        (
            "greedy",
            "function f() { var a = []; for (;;) a.push(new Uint8Array(1 << 20)) }",
            403,
            None,
            "memory",
        ),
        (
            "large",
            "function f() { __.response.setBody('x'.repeat(3000000)) }",
            413,
            None,
            "larger than",
        ),
    ] {
        let got = execute(&world, name, source, "[]").await;
        assert_eq!((got.status, got.substatus()), (status, substatus), "{name}: {got:?}");
        assert!(message(&got).contains(text), "{name}: {}", message(&got));
        assert!(message(&got).starts_with("Message: {\"Errors\":["), "{name}: {}", message(&got));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_answers_while_scripts_loop() {
    let world = hasty_world().await;
    keep(&world, SPROCS, json!({"id": "endless", "body": "function f() { for (;;) {} }"})).await;
    let path = format!("{SPROCS}/endless");
    let mut looping = Vec::new();
    for n in 0..12 {
        let key = format!("[\"k{n}\"]");
        let head = [("x-ms-documentdb-partitionkey", key.as_str())];
        let mut stream = world.connect().await;
        stream.write_all(&world.request("POST", &path, &head, b"[]")).await.unwrap();
        looping.push(stream);
    }
    for n in 0..20 {
        let item = format!(r#"{{"id":"{n}","pk":"k"}}"#);
        let got = world.send("POST", DOCS, &[KEY], &item).await;
        assert_eq!(got.status, 201, "{got:?}");
    }
    let mut statuses = Vec::new();
    for stream in &mut looping {
        statuses.push(read_answer(stream).await.unwrap().status);
    }
    // Stopped, refused because too many were running, or blocked because it never ends.
    assert!(statuses.iter().all(|status| [408, 429, 403].contains(status)), "{statuses:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn triggers_run_where_they_are_named() {
    let world = world().await;
    let stamp = "function stamp() { var r = getContext().getRequest(), item = r.getBody(); item.stamped = r.getOperationType(); r.setBody(item) }";
    let count = "function count() { var made = getContext().getResponse().getBody();
        __.upsertDocument(__.getSelfLink(), { id: 'last', pk: 'k', of: made.id }, function (e) { if (e) throw e }) }";
    let refuse = "function refuse() { throw new Error(403, 'not today') }";
    for (id, body, kind, operation) in [
        ("stamp", stamp, "Pre", "All"),
        ("only-replace", stamp, "Pre", "Replace"),
        ("count", count, "Post", "Create"),
        ("refuse", refuse, "Post", "Delete"),
    ] {
        let document =
            json!({"id": id, "body": body, "triggerType": kind, "triggerOperation": operation});
        keep(&world, TRIGGERS, document).await;
    }
    let (before, after) =
        ("x-ms-documentdb-pre-trigger-include", "x-ms-documentdb-post-trigger-include");
    let create = |head: Vec<(&'static str, &'static str)>, id: &'static str| {
        let world = &world;
        async move {
            let head: Vec<_> = head.into_iter().chain([KEY]).collect();
            world.send("POST", DOCS, &head, &format!(r#"{{"id":"{id}","pk":"k"}}"#)).await
        }
    };
    let got = create(vec![(before, "stamp"), (after, "count")], "1").await;
    assert_eq!((got.status, &got.json()["stamped"]), (201, &json!("Create")), "{got:?}");
    assert_eq!(got.header("etag"), got.json()["_etag"].as_str());
    let last = world.send("GET", "/dbs/db/colls/c/docs/last", &[KEY], "").await;
    assert_eq!(last.json()["of"], json!("1"));
    // A trigger that is not named does not run.
    let got = create(vec![], "2").await;
    assert_eq!((got.status, &got.json()["stamped"]), (201, &Value::Null));
    for (head, text) in [
        (vec![(before, "absent")], "does not exist"),
        (vec![(before, "count")], "cannot run as Pre"),
        (vec![(after, "stamp")], "cannot run as Post"),
        (vec![(before, "only-replace")], "not for Create"),
        (vec![(after, "refuse")], "not for Create"),
    ] {
        let got = create(head, "3").await;
        assert_eq!(got.status, 400, "{got:?}");
        assert!(message(&got).contains(text), "{got:?}");
    }
    let upsert = [KEY, ("x-ms-documentdb-is-upsert", "True"), (before, "only-replace")];
    let got = world.send("POST", DOCS, &upsert, r#"{"id":"1","pk":"k"}"#).await;
    assert_eq!((got.status, &got.json()["stamped"]), (200, &json!("Upsert")), "{got:?}");
    let path = "/dbs/db/colls/c/docs/1";
    let got = world.send("PUT", path, &[KEY, (before, "stamp")], r#"{"id":"1","pk":"k"}"#).await;
    assert_eq!((got.status, &got.json()["stamped"]), (200, &json!("Replace")), "{got:?}");
    let got = world.send("DELETE", path, &[KEY, (after, "refuse")], "").await;
    assert_eq!((got.status, got.substatus()), (400, Some(403)), "{got:?}");
    assert_eq!(world.send("GET", path, &[KEY], "").await.status, 200, "the delete was undone");
    let patch = r#"{"operations":[{"op":"set","path":"/n","value":1}]}"#;
    let got = world.send("PATCH", path, &[KEY, (before, "stamp")], patch).await;
    let stamped = got.json();
    assert_eq!((got.status, &stamped["stamped"]), (200, &json!("Replace")), "{got:?}");
    assert_eq!((&stamped["n"], &stamped["pk"]), (&json!(1), &json!("k")));
    assert_eq!(world.send("GET", path, &[KEY], "").await.json(), stamped);
    let unless = patch.replacen('{', r#"{"condition":"from c where c.n = 2","#, 1);
    let got = world.send("PATCH", path, &[KEY, (before, "stamp")], &unless).await;
    assert_eq!(got.status, 412, "{got:?}");
    let absent = "/dbs/db/colls/c/docs/absent";
    assert_eq!(world.send("PATCH", absent, &[KEY, (before, "stamp")], patch).await.status, 404);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_call_user_defined_functions() {
    let world = hasty_world().await;
    keep(&world, UDFS, json!({"id": "tax", "body": "function tax(n) { return n * 0.5 }"})).await;
    keep(&world, UDFS, json!({"id": "endless", "body": "function f() { for (;;) {} }"})).await;
    for n in 1..=3 {
        let item = format!(r#"{{"id":"{n}","pk":"k","n":{n}}}"#);
        assert_eq!(world.send("POST", DOCS, &[KEY], &item).await.status, 201);
    }
    let query = |text: &str| {
        let (world, body) = (&world, json!({"query": text}).to_string());
        async move {
            let head = [
                KEY,
                ("x-ms-documentdb-isquery", "True"),
                ("Content-Type", "application/query+json"),
            ];
            world.send("POST", DOCS, &head, &body).await
        }
    };
    let got = query("SELECT VALUE udf.tax(c.n) FROM c WHERE udf.tax(c.n) >= 1").await;
    assert_eq!(got.json()["Documents"], json!([1, 1.5]), "{got:?}");
    let got = query("SELECT VALUE udf.absent(c.n) FROM c").await;
    assert_eq!(got.status, 400);
    assert!(message(&got).contains("absent"), "{got:?}");
    let got = query("SELECT VALUE udf.endless(c.n) FROM c").await;
    assert_eq!(got.status, 400, "{got:?}");
    assert!(message(&got).contains("did not end within"), "{got:?}");
    world.stop().await;
}
