//! Details of responses that clients depend on although no document mentions them: their test suites check them.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use serde_json::{Value, json};
use support::World;

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);

async fn world() -> World {
    World::new().await.with_container().await
}

async fn query(
    world: &World,
    container: &str,
    head: &[(&str, &str)],
    body: &Value,
) -> support::Got {
    let path = format!("/dbs/db/colls/{container}/docs");
    let mut all =
        vec![("x-ms-documentdb-isquery", "true"), ("content-type", "application/query+json")];
    all.extend_from_slice(head);
    world.send("POST", &path, &all, &body.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_that_is_null_is_not_one_that_is_missing() {
    let world = world().await;
    world.send("POST", DOCS, &[KEY], r#"{"id":"1","pk":"a","x":null}"#).await;
    world.send("POST", DOCS, &[KEY], r#"{"id":"2","pk":"a"}"#).await;
    let with = |parameter: Value| json!({ "query": "SELECT VALUE c.id FROM c WHERE c.x = @x", "parameters": [parameter] });
    let got = query(&world, "c", &[KEY], &with(json!({ "name": "@x", "value": null }))).await;
    assert_eq!(got.json()["Documents"], json!(["1"]));
    let got = query(&world, "c", &[KEY], &with(json!({ "name": "@x" }))).await;
    assert_eq!(got.json()["Documents"], json!([]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_without_an_id_is_refused() {
    let world = world().await;
    for head in [vec![KEY], vec![KEY, ("x-ms-documentdb-is-upsert", "true")]] {
        let got = world.send("POST", DOCS, &head, r#"{"pk":"a"}"#).await;
        assert_eq!(got.status, 400);
        assert!(got.json()["message"].as_str().unwrap().contains("'id; '"), "{:?}", got.json());
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_with_odd_ids_are_reached_by_name() {
    let world = world().await;
    for (id, in_url) in [
        ("a?b", "a%3Fb"),
        ("a\tb", "a%09b"),
        ("a\r\nb", "a%0D%0Ab"),
        ("a ", "a%20"),
        ("a/b", "a%2Fb"),
        ("/", "%2F"),
        ("a\\b", "a%5Cb"),
        ("#a", "%23a"),
        ("a%2Fb", "a%252Fb"),
    ] {
        let body = json!({ "id": id, "pk": "a" }).to_string();
        assert_eq!(world.send("POST", DOCS, &[KEY], &body).await.status, 201, "{id:?}");
        let path = format!("{DOCS}/{in_url}");
        let got = world.send("GET", &path, &[KEY], "").await;
        assert_eq!((got.status, &got.json()["id"]), (200, &json!(id)));
        assert_eq!(world.send("DELETE", &path, &[KEY], "").await.status, 204, "{id:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_item_may_have_another_id() {
    let world = world().await;
    world.send("POST", DOCS, &[KEY], r#"{"id":"1","pk":"a"}"#).await;
    let got = world.send("PUT", &format!("{DOCS}/1"), &[KEY], r#"{"id":"2","pk":"a"}"#).await;
    assert_eq!((got.status, &got.json()["id"]), (200, &json!("2")));
    assert_eq!(world.send("GET", &format!("{DOCS}/1"), &[KEY], "").await.status, 404);
    assert_eq!(world.send("GET", &format!("{DOCS}/2"), &[KEY], "").await.status, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_too_few_parts_is_a_mismatch_for_items_and_for_batches() {
    let world = world().await;
    let levels = r#"{"id":"levels","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash"}}"#;
    assert_eq!(world.send("POST", "/dbs/db/colls", &[], levels).await.status, 201);
    let docs = "/dbs/db/colls/levels/docs";
    let read = world.send("GET", &format!("{docs}/1"), &[KEY], "").await;
    let write = world.send("POST", docs, &[KEY], r#"{"id":"1","a":"a","b":"b"}"#).await;
    let head = [KEY, ("x-ms-cosmos-is-batch-request", "true")];
    let operations = r#"[{"operationType":"Read","id":"1"}]"#;
    let batch = world.send("POST", docs, &head, operations).await;
    for got in [read, write, batch] {
        assert_eq!((got.status, got.substatus()), (400, Some(1001)));
        let message = got.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("Partition key provided either doesn't correspond"), "{message}");
    }
    let none = ("x-ms-documentdb-partitionkey", "[]");
    let got = query(&world, "levels", &[none], &json!({ "query": "SELECT * FROM c" })).await;
    assert_eq!(got.status, 400, "an empty key is no key of this container");
    assert!(got.json()["message"].as_str().unwrap().contains("Cross partition query is required"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_answer_with_the_policy_and_statistics_the_service_has() {
    let world = world().await;
    let definition = json!({
        "id": "policy", "partitionKey": { "paths": ["/pk"], "kind": "Hash" },
        "indexingPolicy": { "indexingMode": "Consistent" },
    });
    let got = world.send("POST", "/dbs/db/colls", &[], &definition.to_string()).await;
    let policy = &got.json()["indexingPolicy"];
    assert_eq!(policy["indexingMode"], "consistent");
    assert_eq!(policy["includedPaths"], json!([{ "path": "/*" }]));
    assert_eq!(policy["excludedPaths"], json!([{ "path": "/\"_etag\"/?" }]));
    assert!(got.json().get("statistics").is_none());
    let head = [("x-ms-documentdb-populatepartitionstatistics", "True")];
    let got = world.send("GET", "/dbs/db/colls/policy", &head, "").await;
    assert_eq!(got.json()["statistics"][0]["id"], "0");
    for path in ["/id ds", "pk", "/a*"] {
        let bad = json!({ "id": "bad", "partitionKey": { "paths": [path], "kind": "Hash" } });
        let got = world.send("POST", "/dbs/db/colls", &[], &bad.to_string()).await;
        assert_eq!(got.status, 400, "{path}");
        let message = got.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("path '{path}' could not be accepted")), "{message}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_use_the_computed_properties_of_their_container() {
    let world = world().await;
    let mut definition = json!({
        "id": "computed", "partitionKey": { "paths": ["/pk"], "kind": "Hash" },
        "computedProperties": [{ "name": "low", "query": "SELECT VALUE LOWER(c.name) FROM c" }],
    });
    let got = world.send("POST", "/dbs/db/colls", &[], &definition.to_string()).await;
    assert_eq!((got.status, &got.json()["computedProperties"][0]["name"]), (201, &json!("low")));
    let docs = "/dbs/db/colls/computed/docs";
    world.send("POST", docs, &[KEY], r#"{"id":"1","pk":"a","name":"ANN"}"#).await;
    let low = json!({ "query": "SELECT VALUE c.low FROM c WHERE c.low = 'ann'" });
    let got = query(&world, "computed", &[KEY], &low).await;
    assert_eq!(got.json()["Documents"], json!(["ann"]));
    definition["computedProperties"] = json!([]);
    let path = "/dbs/db/colls/computed";
    assert_eq!(world.send("PUT", path, &[], &definition.to_string()).await.status, 200);
    let got = query(&world, "computed", &[KEY], &low).await;
    assert_eq!(got.json()["Documents"], json!([]));
    definition["computedProperties"] = json!({ "name": "low" });
    let got = world.send("PUT", path, &[], &definition.to_string()).await;
    assert_eq!(got.status, 400);
    let message = got.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("One of the specified inputs is invalid"), "{message}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_containers_offers_users_permissions_and_scripts_can_be_queried() {
    let world = World::new().await.with_container().await;
    let keep = async |path: &str, document: Value| {
        let made = world.send("POST", path, &[], &document.to_string()).await;
        assert_eq!(made.status, 201, "{path}: {}", made.json());
    };
    keep("/dbs", json!({"id": "other"})).await;
    keep("/dbs/db/colls", json!({"id": "d", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}}))
        .await;
    keep("/dbs/db/users", json!({"id": "ann"})).await;
    keep("/dbs/db/users", json!({"id": "bob"})).await;
    let read = json!({"id": "read", "permissionMode": "Read", "resource": "dbs/db/colls/c"});
    keep("/dbs/db/users/ann/permissions", read).await;
    let body = "function f() { return 1 }";
    keep("/dbs/db/colls/c/sprocs", json!({"id": "one", "body": body})).await;
    keep("/dbs/db/colls/c/sprocs", json!({"id": "two", "body": body})).await;
    keep("/dbs/db/colls/c/udfs", json!({"id": "three", "body": body})).await;
    let trigger =
        json!({"id": "four", "body": body, "triggerType": "Pre", "triggerOperation": "All"});
    keep("/dbs/db/colls/c/triggers", trigger).await;
    let ask = async |path: &str, text: &str, value: &str| {
        let query = json!({"query": text, "parameters": [{"name": "@value", "value": value}]});
        let head =
            [("content-type", "application/query+json"), ("x-ms-documentdb-isquery", "True")];
        let got = world.send("POST", path, &head, &query.to_string()).await;
        assert_eq!(got.status, 200, "{path}: {}", got.json());
        got.json()
    };
    for (path, name, id) in [
        ("/dbs", "Databases", "other"),
        ("/dbs/db/colls", "DocumentCollections", "d"),
        ("/dbs/db/users", "Users", "bob"),
        ("/dbs/db/users/ann/permissions", "Permissions", "read"),
        ("/dbs/db/colls/c/sprocs", "StoredProcedures", "two"),
        ("/dbs/db/colls/c/udfs", "UserDefinedFunctions", "three"),
        ("/dbs/db/colls/c/triggers", "Triggers", "four"),
    ] {
        let found = ask(path, "SELECT * FROM root r WHERE r.id = @value", id).await;
        assert_eq!(found[name].as_array().map(Vec::len), Some(1), "{path}: {found}");
        assert_eq!(found[name][0]["id"], id, "{path}");
        assert!(found[name][0]["_self"].is_string(), "{path}");
        let none = ask(path, "SELECT * FROM c WHERE c.id = @value", "nobody").await;
        assert_eq!((&none[name], &none["_count"]), (&json!([]), &json!(0)), "{path}");
    }
    let container = world.send("GET", "/dbs/db/colls/d", &[], "").await.json();
    let link = container["_self"].as_str().unwrap();
    let found = ask("/offers", "SELECT * FROM root WHERE root.resource = @value", link).await;
    assert_eq!(found["Offers"][0]["offerResourceId"], container["_rid"], "{found}");
    let rid = container["_rid"].as_str().unwrap();
    let found = ask("/offers", "SELECT * FROM c WHERE c.offerResourceId = @value", rid).await;
    assert_eq!(found["_count"], 1, "{found}");
    world.stop().await;
}
