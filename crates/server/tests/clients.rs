//! Behaviours found by running official clients, each reduced to the request that showed it.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_store::Options;
use serde_json::{Value, json};
use support::{Got, World};

const DOCS: &str = "/dbs/db/colls/c/docs";

const ITEMS: &str = "/dbs/db/colls/c/docs";
const KEY: &str = "x-ms-documentdb-partitionkey";

async fn three_ranges() -> World {
    let mut options = Options::default();
    options.partitions = 3;
    World::with_options(options, |_| ()).await.with_container().await
}

/// The Python SDK replaces, reads and deletes items by the `_self` link that it read.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_found_by_its_resource_id() {
    let world = World::new().await.with_container().await;
    let key = [(KEY, r#"["a"]"#)];
    let created = world.send("POST", ITEMS, &key, r#"{"id":"1","pk":"a"}"#).await;
    let link = format!("/{}", created.json()["_self"].as_str().unwrap().trim_end_matches('/'));
    let replaced = world.send("PUT", &link, &key, r#"{"id":"1","pk":"a","n":2}"#).await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    assert_eq!(world.send("GET", &link, &key, "").await.json()["n"], 2);
    assert_eq!(world.send("DELETE", &link, &key, "").await.status, 204);
    assert_eq!(world.send("GET", &link, &key, "").await.status, 404);
    world.stop().await;
}

/// The Go SDK sends its key to every range in turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_without_the_key_has_no_changes_and_is_not_gone() {
    let world = three_ranges().await;
    let key = [(KEY, r#"["a"]"#)];
    world.send("POST", ITEMS, &key, r#"{"id":"1","pk":"a"}"#).await;
    let mut statuses = Vec::new();
    for range in ["0", "1", "2"] {
        let range = ("x-ms-documentdb-partitionkeyrangeid", range);
        let got =
            world.send("GET", ITEMS, &[("A-IM", "Incremental Feed"), range, key[0]], "").await;
        assert!(got.header("etag").is_some(), "{got:?}");
        statuses.push(got.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 304, 304]);
    world.stop().await;
}

/// The Java SDK builds the address of a container from this header, and writes key versions as names.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_names_its_owner_and_takes_a_version_by_name() {
    let world = World::new().await.with_container().await;
    let read = world.send("GET", "/dbs/db/colls/c", &[], "").await;
    assert_eq!(read.header("x-ms-alt-content-path"), Some("dbs/db"));
    let definition =
        r#"{"id":"h","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":"V2"}}"#;
    let created = world.send("POST", "/dbs/db/colls", &[], definition).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.json()["partitionKey"]["version"], 2);
    world.stop().await;
}

/// Java's processor of latest versions reads only wrapped items, and requests them by a header.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_wrapped_for_those_who_name_a_wire_format() {
    let world = World::new().await.with_container().await;
    world.send("POST", ITEMS, &[(KEY, r#"["a"]"#)], r#"{"id":"1","pk":"a"}"#).await;
    let feed = ("A-IM", "Incremental Feed");
    let format = ("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15");
    let flat = world.send("GET", ITEMS, &[feed], "").await.json();
    assert_eq!(flat["Documents"][0]["id"], "1");
    let wrapped = world.send("GET", ITEMS, &[feed, format], "").await.json();
    let change = &wrapped["Documents"][0];
    assert_eq!(change["current"]["id"], "1");
    assert_eq!(change["metadata"]["lsn"], flat["Documents"][0]["_lsn"]);
    world.stop().await;
}

/// The Go SDK passes the user's option on unchanged, and users expect a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_over_all_keys_is_refused_to_a_client_that_does_not_want_it() {
    let world = World::new().await.with_container().await;
    world.send("POST", ITEMS, &[(KEY, r#"["a"]"#)], r#"{"id":"1","pk":"a"}"#).await;
    for (allowed, status) in [(None, 400), (Some("True"), 200), (Some("False"), 400)] {
        let mut head = vec![("content-type", "application/query+json")];
        head.push(("x-ms-documentdb-isquery", "True"));
        head.extend(allowed.map(|allowed| ("x-ms-documentdb-query-enablecrosspartition", allowed)));
        let found = world.send("POST", ITEMS, &head, r#"{"query":"SELECT * FROM c"}"#).await;
        assert_eq!(found.status, status, "{allowed:?}: {found:?}");
    }
    world.stop().await;
}

/// npm `documentdb` parses a session token as one number, and crashes on anything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_token_has_the_form_the_client_reads() {
    let world = World::new().await.with_container().await;
    let session = async |version: &str| {
        let head =
            [(KEY, r#"["a"]"#), ("x-ms-documentdb-is-upsert", "True"), ("x-ms-version", version)];
        let written = world.send("POST", ITEMS, &head, r#"{"id":"1","pk":"a"}"#).await;
        let read = world.send("GET", "/dbs/db/colls/c/docs/1", &head, "").await;
        let token = |answer: &Got| answer.header("x-ms-session-token").unwrap_or("").to_owned();
        [token(&written), token(&read)]
    };
    let is_number = |token: &String| token.strip_prefix("0:").unwrap().parse::<u64>().is_ok();
    let old = session("2017-11-15").await;
    assert!(old.iter().all(is_number), "{old:?}");
    let new = session("2018-12-31").await;
    assert!(new.iter().all(|token| token.starts_with("0:-1#")), "{new:?}");
    // The old client sends back the token it received.
    let head = [
        (KEY, r#"["a"]"#),
        ("x-ms-version", "2017-11-15"),
        ("x-ms-session-token", old[0].as_str()),
    ];
    assert_eq!(world.send("GET", "/dbs/db/colls/c/docs/1", &head, "").await.status, 200);
    world.stop().await;
}

/// The Java SDK reads the changes of a prefix without a range, and cannot parse two session tokens.
#[tokio::test(flavor = "multi_thread")]
async fn the_feed_of_a_prefix_has_the_session_token_of_its_partition() {
    let world = three_ranges().await;
    let definition =
        r#"{"id":"h","partitionKey":{"paths":["/t","/u"],"kind":"MultiHash","version":2}}"#;
    assert_eq!(world.send("POST", "/dbs/db/colls", &[], definition).await.status, 201);
    let items = "/dbs/db/colls/h/docs";
    for user in ["x", "y"] {
        let body = format!(r#"{{"id":"{user}","t":"a","u":"{user}"}}"#);
        let key = format!(r#"["a","{user}"]"#);
        assert_eq!(world.send("POST", items, &[(KEY, &key)], &body).await.status, 201);
    }
    let prefix = [("A-IM", "Incremental Feed"), (KEY, r#"["a"]"#)];
    let part = world.send("GET", items, &prefix, "").await;
    assert_eq!(part.json()["_count"], 2);
    let token = part.header("x-ms-session-token").unwrap();
    assert!(!token.contains(','), "{token}");
    assert_eq!(token.split(':').next(), part.header("x-ms-documentdb-partitionkeyrangeid"));
    let all = world.send("GET", items, &prefix[..1], "").await;
    assert_eq!(all.header("x-ms-session-token").unwrap().matches(',').count(), 2);
    world.stop().await;
}

/// The Java SDK says for each operation of a bulk request whether it wants the item back.
#[tokio::test(flavor = "multi_thread")]
async fn an_operation_of_a_batch_may_want_no_item_back() {
    let world = World::new().await.with_container().await;
    for atomic in ["True", "False"] {
        let head = [
            (KEY, r#"["a"]"#),
            ("x-ms-cosmos-is-batch-request", "True"),
            ("x-ms-cosmos-batch-atomic", atomic),
        ];
        let body = r#"[
            {"operationType":"Upsert","resourceBody":{"id":"1","pk":"a"}},
            {"operationType":"Upsert","resourceBody":{"id":"2","pk":"a"},"minimalReturnPreference":true},
            {"operationType":"Read","id":"2","minimalReturnPreference":true}]"#;
        let results = world.send("POST", ITEMS, &head, body).await.json();
        let has_item = |index: usize| results[index].get("resourceBody").is_some();
        assert_eq!([0, 1, 2].map(has_item), [true, false, true], "{results}");
        assert!(results[1]["eTag"].is_string(), "{results}");
    }
    world.stop().await;
}

/// The Java SDK addresses resources by the link it read; the header's value is then not comparable.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_named_by_its_resource_id_is_no_other() {
    let world = World::new().await.with_container().await;
    let head = [(KEY, r#"["a"]"#), ("x-ms-cosmos-intended-collection-rid", "something")];
    let created = world.send("POST", ITEMS, &head[..1], r#"{"id":"1","pk":"a"}"#).await;
    let link = format!("/{}", created.json()["_self"].as_str().unwrap().trim_end_matches('/'));
    let by_rid = world.send("PUT", &link, &head, r#"{"id":"1","pk":"a","n":2}"#).await;
    assert_eq!(by_rid.status, 200, "{by_rid:?}");
    let by_name = world.send("GET", "/dbs/db/colls/c/docs/1", &head, "").await;
    assert_eq!((by_name.status, by_name.substatus()), (400, Some(1024)));
    world.stop().await;
}

/// The Java SDK adds up the charges of a failed batch's operations, and keeps its session.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_batch_says_what_it_cost_and_where_it_was_refused() {
    let world = World::new().await.with_container().await;
    let head = [(KEY, r#"["a"]"#), ("x-ms-cosmos-is-batch-request", "True")];
    let body = r#"[{"operationType":"Create","resourceBody":{"id":"1","pk":"a"}},
        {"operationType":"Delete","id":"none"}]"#;
    let refused = world.send("POST", ITEMS, &head, body).await;
    let results = refused.json();
    assert_eq!([&results[0]["statusCode"], &results[1]["statusCode"]], [424, 404], "{results}");
    let charge = |index: usize| results[index]["requestCharge"].as_f64().unwrap();
    let whole: f64 = refused.header("x-ms-request-charge").unwrap().parse().unwrap();
    assert!((charge(0) + charge(1) - whole).abs() < 0.01, "{refused:?}");
    assert!(refused.header("x-ms-session-token").is_some(), "{refused:?}");
    // Like any error, it does not name the container. A response to a bulk request does.
    assert_eq!(refused.header("x-ms-content-path"), None, "{refused:?}");
    let each = [head[0], head[1], ("x-ms-cosmos-batch-atomic", "False")];
    let partly = world.send("POST", ITEMS, &each, body).await;
    assert_eq!(partly.status, 207);
    assert!(partly.header("x-ms-content-path").is_some(), "{partly:?}");
    world.stop().await;
}

/// The service responds with at most 4 MiB. The Java SDK then splits its bulk reads.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_answer_would_be_too_large_is_not_done() {
    let world = World::new().await.with_container().await;
    let key = (KEY, r#"["a"]"#);
    let item = format!(r#"{{"id":"1","pk":"a","text":"{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(world.send("POST", ITEMS, &[key], &item).await.status, 201);
    let statuses = |answer: &Got| -> Vec<(u64, u64)> {
        let number = |result: &serde_json::Value, name: &str| result[name].as_u64().unwrap_or(0);
        let results = answer.json();
        let results = results.as_array().unwrap().iter();
        results.map(|one| (number(one, "statusCode"), number(one, "subStatusCode"))).collect()
    };
    let read = r#"{"operationType":"Read","id":"1"}"#;
    let create = r#"{"operationType":"Create","resourceBody":{"id":"2","pk":"a"}}"#;
    let body = format!("[{create},{read},{read},{read},{read}]");
    let head = [key, ("x-ms-cosmos-is-batch-request", "True")];
    let refused = world.send("POST", ITEMS, &head, &body).await;
    let (undone, too_large) = ((424, 0), (413, 3402));
    assert_eq!(statuses(&refused), [undone, undone, undone, undone, too_large]);
    let missing = world.send("GET", "/dbs/db/colls/c/docs/2", &[key], "").await;
    assert_eq!(missing.status, 404);
    // Items that the batch itself writes count too.
    let made = format!(
        r#"[{{"operationType":"Upsert","resourceBody":{{"id":"3","pk":"a","text":"{}"}}}},
            {{"operationType":"Read","id":"3"}},{{"operationType":"Read","id":"3"}}]"#,
        "x".repeat(3 << 19)
    );
    let refused = world.send("POST", ITEMS, &head, &made).await;
    assert_eq!(statuses(&refused), [undone, undone, too_large]);
    // In bulk, the operations that fit are answered.
    let head = [head[0], head[1], ("x-ms-cosmos-batch-atomic", "False")];
    let partly = world.send("POST", ITEMS, &head, &body).await;
    assert_eq!(statuses(&partly), [(201, 0), (200, 0), (200, 0), (200, 0), too_large]);
    world.stop().await;
}

/// The Java SDK reads in bulk only items that changed, and says so with the condition of a write.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_a_batch_sends_only_what_the_client_does_not_know() {
    let world = World::new().await.with_container().await;
    let key = (KEY, r#"["a"]"#);
    let created = world.send("POST", ITEMS, &[key], r#"{"id":"1","pk":"a"}"#).await;
    let etag = created.json()["_etag"].as_str().unwrap().replace('"', "\\\"");
    for condition in ["ifMatch", "ifNoneMatch"] {
        let body = format!(
            r#"[{{"operationType":"Read","id":"1","{condition}":"{etag}"}},
                {{"operationType":"Read","id":"1","{condition}":"\"other\""}}]"#
        );
        let head = [key, ("x-ms-cosmos-is-batch-request", "True")];
        let answer = world.send("POST", ITEMS, &head, &body).await;
        let results = answer.json();
        let statuses = [&results[0]["statusCode"], &results[1]["statusCode"]];
        assert_eq!(statuses, [304, 200], "{condition}: {results}");
        assert!(results[0].get("resourceBody").is_none(), "{results}");
    }
    world.stop().await;
}

/// The Rust SDK takes the session token from a response with 404.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_item_says_which_partition_lacks_it() {
    let world = World::new().await.with_container().await;
    for (version, form) in [("2020-07-15", "0:-1#"), ("2017-11-15", "0:")] {
        let head = [(KEY, r#"["a"]"#), ("x-ms-version", version)];
        let missing = world.send("GET", "/dbs/db/colls/c/docs/none", &head, "").await;
        assert_eq!(missing.status, 404);
        assert_eq!(missing.header("x-ms-documentdb-partitionkeyrangeid"), Some("0"));
        let token = missing.header("x-ms-session-token").unwrap();
        assert!(token.strip_prefix(form).unwrap().parse::<u64>().is_ok(), "{token}");
        assert!(missing.header("lsn").is_some(), "{missing:?}");
    }
    world.stop().await;
}

/// The Rust SDK distinguishes a query that it cannot run from an invalid one.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_the_client_cannot_follow_has_a_sub_status() {
    let world = World::new().await.with_container().await;
    let head = [
        ("content-type", "application/query+json"),
        ("x-ms-cosmos-is-query-plan-request", "True"),
        ("x-ms-cosmos-supported-query-features", "None"),
    ];
    let query = r#"{"query":"SELECT DISTINCT c.a FROM c"}"#;
    let refused = world.send("POST", ITEMS, &head, query).await;
    assert_eq!((refused.status, refused.substatus()), (400, Some(1004)), "{refused:?}");
    world.stop().await;
}

/// The Go SDK requests a plan without the parameters.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_made_without_parameters_and_then_covers_every_key() {
    let world = World::new().await.with_container().await;
    let head = [
        ("content-type", "application/query+json"),
        ("x-ms-cosmos-is-query-plan-request", "True"),
        ("x-ms-cosmos-supported-query-features", "OrderBy"),
    ];
    let query = "SELECT * FROM c WHERE c.pk = @a AND c.n > @b ORDER BY c.n";
    let plan = async |parameters: serde_json::Value| {
        let body = serde_json::json!({ "query": query, "parameters": parameters }).to_string();
        let plan = world.send("POST", ITEMS, &head, &body).await;
        assert_eq!(plan.status, 200, "{plan:?}");
        plan.json()
    };
    let narrow = plan(serde_json::json!([{"name":"@a","value":"x"},{"name":"@b","value":1}])).await;
    assert_eq!(narrow["queryRanges"][0]["isMaxInclusive"], true, "{narrow}");
    let wide = plan(serde_json::json!([])).await;
    let all = serde_json::json!([
        {"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}
    ]);
    assert_eq!(wide["queryRanges"], all);
    assert_eq!(wide["queryInfo"]["orderBy"], narrow["queryInfo"]["orderBy"]);
    world.stop().await;
}

/// The Java SDK requests a plan for every query, including those within one key, which need no merging.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_merged_has_a_plan_within_one_key() {
    let world = World::new().await.with_container().await;
    for item in [r#"{"id":"1","pk":"a","n":"x"}"#, r#"{"id":"2","pk":"a","n":"w"}"#] {
        assert_eq!(world.send("POST", ITEMS, &[(KEY, r#"["a"]"#)], item).await.status, 201);
    }
    let query = ("content-type", "application/query+json");
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    let key = (KEY, r#"["a"]"#);
    for (text, expected) in [
        (
            "SELECT MAX(c.id) AS m FROM c GROUP BY c.n ORDER BY COUNT(1), c.n",
            json!([{"m":"2"},{"m":"1"}]),
        ),
        ("SELECT p.id FROM (SELECT DISTINCT * FROM r) p WHERE p.n = 'x'", json!([{"id":"1"}])),
    ] {
        let body = json!({ "query": text }).to_string();
        let across = world.send("POST", ITEMS, &[query, plan], &body).await;
        assert_eq!(across.status, 400, "{across:?}");
        let planned = world.send("POST", ITEMS, &[query, plan, key], &body).await;
        assert_eq!(planned.status, 200, "{planned:?}");
        let info = &planned.json()["queryInfo"];
        assert_eq!(info["rewrittenQuery"], "", "the client sends it as it is");
        assert_eq!((&info["orderBy"], &info["groupByExpressions"]), (&json!([]), &json!([])));
        let answered = world.send("POST", ITEMS, &[query, key], &body).await;
        assert_eq!(answered.json()["Documents"], expected, "{answered:?}");
    }
    world.stop().await;
}

/// The Java SDK caches a plan without features for all queries of the same text, and checks `hasOrderBy` first.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_sorted_groups_within_one_key_names_their_order() {
    let world = World::new().await.with_container().await;
    for item in [r#"{"id":"1","pk":"a","n":"x"}"#, r#"{"id":"2","pk":"a","n":"w"}"#] {
        assert_eq!(world.send("POST", ITEMS, &[(KEY, r#"["a"]"#)], item).await.status, 201);
    }
    let query = ("content-type", "application/query+json");
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    let features = ("x-ms-cosmos-supported-query-features", "OrderBy, GroupBy, Top");
    let key = (KEY, r#"["a"]"#);
    let text = "SELECT TOP 5 MAX(c.id) AS m, c.n FROM c GROUP BY c.n ORDER BY c.n DESC";
    let body = json!({ "query": text }).to_string();
    let planned = world.send("POST", ITEMS, &[query, plan, features, key], &body).await;
    assert_eq!(planned.status, 200, "{planned:?}");
    let info = &planned.json()["queryInfo"];
    assert_eq!(info["orderBy"], json!(["Descending"]), "{info}");
    assert_eq!(info["orderByExpressions"], json!(["c.n"]), "{info}");
    assert_eq!(info["top"], 5, "{info}");
    // The groups of one key are complete: a client that grouped them again would lose their order.
    assert_eq!(info["groupByExpressions"], json!([]), "{info}");
    let rewritten = info["rewrittenQuery"].as_str().unwrap();
    for (resume, expected) in [("true", vec!["x", "w"]), ("c.n < 'x'", vec!["w"])] {
        let text = rewritten.replace("{documentdb-formattableorderbyquery-filter}", resume);
        let body = json!({ "query": text }).to_string();
        let answered = world.send("POST", ITEMS, &[query, key], &body).await;
        let rows = answered.json()["Documents"].clone();
        let found: Vec<_> =
            rows.as_array().unwrap().iter().map(|row| &row["payload"]["n"]).collect();
        assert_eq!(found, expected, "{rows}");
        let is_whole = |row: &Value| {
            row["_rid"].is_string() && row["orderByItems"][0]["item"] == row["payload"]["n"]
        };
        assert!(rows.as_array().unwrap().iter().all(is_whole), "{rows}");
    }
    world.stop().await;
}

/// The Java SDK requests pages of the size of its `TOP`, even if that is zero.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_for_no_rows_may_ask_for_pages_of_none() {
    let world = World::new().await.with_container().await;
    let key = (KEY, r#"["a"]"#);
    assert_eq!(world.send("POST", ITEMS, &[key], r#"{"id":"1","pk":"a"}"#).await.status, 201);
    let head = [("content-type", "application/query+json"), ("x-ms-max-item-count", "0"), key];
    for (text, rows) in [("SELECT TOP 0 * FROM c", 0), ("SELECT * FROM c", 1)] {
        let answered =
            world.send("POST", ITEMS, &head, &json!({ "query": text }).to_string()).await;
        assert_eq!(answered.status, 200, "{answered:?}");
        assert_eq!(answered.json()["_count"], rows, "{text}");
    }
    world.stop().await;
}

/// The Java SDK searches for the service's exact message.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_not_the_items_is_refused_in_the_services_words() {
    let world = World::new().await.with_container().await;
    let refused = world.send("POST", ITEMS, &[(KEY, r#"["b"]"#)], r#"{"id":"1","pk":"a"}"#).await;
    assert_eq!((refused.status, refused.substatus()), (400, Some(1001)), "{refused:?}");
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    let words =
        "PartitionKey extracted from document doesn't match the one specified in the header.";
    assert!(message.contains(words), "{message}");
    world.stop().await;
}

/// The Java SDK requests a lazy index, and expects the response to say `consistent`.
#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_index_is_kept_at_once() {
    let world = World::new().await.with_container().await;
    let definition = r#"{"id":"lazy","partitionKey":{"paths":["/pk"],"kind":"Hash"},
        "indexingPolicy":{"indexingMode":"lazy","automatic":true}}"#;
    let created = world.send("POST", "/dbs/db/colls", &[], definition).await;
    assert_eq!(created.json()["indexingPolicy"]["indexingMode"], "consistent", "{created:?}");
    world.stop().await;
}

/// The Python and JavaScript SDKs merge the results of ranges themselves, and their test suites check how.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_merges_is_given_the_plan_and_everybody_else_the_answer() {
    let world = World::new().await.with_container().await;
    for number in 0..6 {
        let key = format!(r#"["{number}"]"#);
        let body = format!(r#"{{"id":"{number}","pk":"{number}","n":{number}}}"#);
        let head = [("x-ms-documentdb-partitionkey", key.as_str())];
        assert_eq!(world.send("POST", DOCS, &head, &body).await.status, 201);
    }
    let ask = async |agent: &str, range: Option<&str>, query: &str| {
        let mut head = vec![
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-isquery", "True"),
            ("x-ms-documentdb-query-enablecrosspartition", "True"),
            ("user-agent", agent),
        ];
        head.extend(range.map(|id| ("x-ms-documentdb-partitionkeyrangeid", id)));
        let body = serde_json::json!({ "query": query }).to_string();
        world.send("POST", DOCS, &head, &body).await
    };
    let (python, javascript) = ("azsdk-python-cosmos-async/4.17.1 x", "Node azure-cosmos-js/4.9.3");
    let sorted = "SELECT VALUE c.n FROM c ORDER BY c.n DESC";
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    // A single range is merged like many, so that the first split changes nothing for users.
    for (round, agent) in [python, python, javascript].into_iter().enumerate() {
        if round == 1 {
            container.split(container.ranges()[0].id, None).await.unwrap();
        }
        let told = ask(agent, None, sorted).await;
        assert_eq!((told.status, told.substatus()), (400, Some(1004)), "{told:?}");
        let plan = told.json()["additionalErrorInfo"].as_str().unwrap().to_owned();
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        assert_eq!(plan["queryInfo"]["orderBy"], serde_json::json!(["Descending"]));
        for ours in [
            "SELECT * FROM c WHERE c.n > 1",
            "SELECT TOP 1 * FROM c WHERE c.pk = '1'",
            "SELECT VALUE AVG(c.n) FROM c GROUP BY c.pk",
        ] {
            assert_eq!(ask(agent, None, ours).await.status, 200, "{ours}");
        }
        let named = ask(agent, None, "SELECT COUNT(1) FROM c WHERE c.pk = '1'").await;
        assert_eq!((named.status, named.substatus()), (400, Some(1004)), "{named:?}");
        let range = container.ranges()[0].id.to_string();
        assert_eq!(ask(agent, Some(&range), sorted).await.status, 200);
    }
    let whole = ask("curl/8", None, sorted).await;
    assert_eq!(whole.json()["Documents"], serde_json::json!([5, 4, 3, 2, 1, 0]));
    world.stop().await;
}

/// The Python SDK's test suite sends a continuation of an Azure account and expects items.
#[tokio::test(flavor = "multi_thread")]
async fn a_continuation_of_azure_starts_over_and_any_other_is_refused() {
    let world = World::new().await.with_container().await;
    let key = (KEY, r#"["a"]"#);
    assert_eq!(world.send("POST", ITEMS, &[key], r#"{"id":"1","pk":"a"}"#).await.status, 201);
    let ask = async |continuation: &str| {
        let head = [
            key,
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-isquery", "True"),
            ("x-ms-continuation", continuation),
        ];
        world.send("POST", ITEMS, &head, r#"{"query":"SELECT VALUE c.id FROM c"}"#).await
    };
    let anew = ask("-RID:~a0NPAOszCpOChB4AAAAAAA==#RT:1#TRC:2#ISV:2#IEO:65567#QCF:8").await;
    assert_eq!(anew.json()["Documents"], serde_json::json!(["1"]), "{anew:?}");
    assert_eq!(ask("something").await.status, 400);
    world.stop().await;
}

/// Clients that show or log continuations parse the JSON form of the service's gateway.
#[tokio::test(flavor = "multi_thread")]
async fn the_continuation_of_a_query_over_all_ranges_is_json() {
    let world = three_ranges().await;
    for n in 0..6 {
        let item = format!(r#"{{"id":"{n}","pk":"a","n":{n}}}"#);
        assert_eq!(world.send("POST", ITEMS, &[(KEY, r#"["a"]"#)], &item).await.status, 201);
    }
    let all = ("x-ms-documentdb-query-enablecrosspartition", "True");
    let ask = async |text: &str, scope: (&str, &str), continuation: &str| {
        let head = [
            ("content-type", "application/query+json"),
            ("x-ms-max-item-count", "2"),
            ("x-ms-continuation", continuation),
            scope,
        ];
        world.send("POST", ITEMS, &head, &json!({ "query": text }).to_string()).await
    };
    for text in ["SELECT VALUE c.n FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n"] {
        let first = ask(text, all, "").await;
        let next = first.header("x-ms-continuation").unwrap();
        let read: Value = serde_json::from_str(next).unwrap();
        assert_eq!(read["range"], json!({"min": "", "max": "FF"}), "{next}");
        let token = read["token"].as_str().unwrap();
        // Older positions have no JSON around them, and neither have those within a key.
        for position in [next, token] {
            let second = ask(text, all, position).await;
            assert_eq!(second.json()["Documents"], json!([2, 3]), "{second:?}");
        }
        let within = ask(text, (KEY, r#"["a"]"#), "").await;
        let next = within.header("x-ms-continuation").unwrap();
        assert!(!next.starts_with('{'), "{next}");
        let foreign =
            r#"{"token":"+RID:~a0NPAOszCpOChB4AAAAAAA==#RT:1","range":{"min":"","max":"FF"}}"#;
        assert_eq!(ask(text, all, foreign).await.json()["Documents"], json!([0, 1]));
        let begin = r#"{"token":null,"range":{"min":"05C1DFFFFFFFFC","max":"FF"}}"#;
        assert_eq!(ask(text, all, begin).await.json()["Documents"], json!([0, 1]));
        for bad in ["{", "{}", r#"{"token":1,"range":{"min":"","max":"FF"}}"#, r#"{"token":"x"}"#] {
            assert_eq!(ask(text, all, bad).await.status, 400, "{bad}");
        }
    }
    world.stop().await;
}

/// The .NET SDK sends the position where a sorted query resumes next to the text, for each range.
#[tokio::test(flavor = "multi_thread")]
async fn a_sorted_query_resumes_at_the_filter_beside_its_text() {
    let world = World::new().await.with_container().await;
    for n in 0..5 {
        let item = format!(r#"{{"id":"{n}","pk":"a","n":{n}}}"#);
        assert_eq!(world.send("POST", ITEMS, &[(KEY, r#"["a"]"#)], &item).await.status, 201);
    }
    let head = [
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-isquery", "True"),
        ("x-ms-documentdb-partitionkeyrangeid", "0"),
        ("x-ms-max-item-count", "2"),
    ];
    let text = r#""query":"SELECT VALUE c.n FROM c WHERE (true) ORDER BY c.n""#;
    for (filter, pages) in [
        (r#"{"value":[1],"exclude":true}"#, ["[2,3]", "[4]"]),
        (r#"{"value":[1],"rid":"x","exclude":false}"#, ["[1,2]", "[3,4]"]),
        (r#"{"value":[3],"exclude":false}"#, ["[3,4]", ""]),
    ] {
        let body = format!(r#"{{{text},"resumeFilter":{filter}}}"#);
        let first = world.send("POST", ITEMS, &head, &body).await;
        assert_eq!(first.json()["Documents"].to_string(), pages[0], "{first:?}");
        let Some(next) = first.header("x-ms-continuation").filter(|_| !pages[1].is_empty()) else {
            assert_eq!(pages[1], "", "{first:?}");
            continue;
        };
        let mut head = head.to_vec();
        head.push(("x-ms-continuation", next));
        let second = world.send("POST", ITEMS, &head, &body).await;
        assert_eq!(second.json()["Documents"].to_string(), pages[1], "{second:?}");
    }
    let body = format!(r#"{{{text},"resumeFilter":{{"value":[1,2],"exclude":true}}}}"#);
    assert_eq!(world.send("POST", ITEMS, &head, &body).await.status, 400);
    world.stop().await;
}
