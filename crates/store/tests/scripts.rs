//! Scripts on a container: each call is one transaction, also with concurrent writes and splits.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_store::query::Query;
use headwater_store::{
    Account, ChangeKind, Container, ContainerDefinition, ExecuteError, Executed, FeedMode,
    FeedRequest, FeedStart, ItemWrite, Options, PageLimit, ProcedureCall, ScanScope, Script,
    ScriptFailure, Triggers, WriteError,
};
use serde_json::{Value, json};
use std::time::Duration;

async fn container(definition: ContainerDefinition) -> (Account, Container) {
    container_with(Options::default(), definition).await
}

async fn container_with(options: Options, definition: ContainerDefinition) -> (Account, Container) {
    let account = Account::ephemeral_with(options).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let container = database.create_container_with(definition, 3).await.unwrap();
    (account, container)
}

fn plain() -> ContainerDefinition {
    ContainerDefinition::new("c", "/pk").unwrap()
}

fn script(source: &str) -> Script {
    Script { name: "tested".to_owned(), source: source.to_owned() }
}

fn procedure(body: &str, arguments: &Value) -> ProcedureCall {
    let source = format!(
        "function tested(a, b) {{ var link = __.getSelfLink(), response = __.response;
         function must(e) {{ if (e) throw e }} {body} }}"
    );
    ProcedureCall {
        script: script(&source),
        arguments: arguments.to_string(),
        functions: vec![Script {
            name: "twice".to_owned(),
            source: "function (n) { return 2 * n }".to_owned(),
        }],
    }
}

async fn execute(items: &Container, body: &str) -> Result<Executed, ExecuteError> {
    items.execute("k", &procedure(body, &json!([]))).await
}

async fn answer(items: &Container, body: &str) -> Value {
    let executed = execute(items, body).await.unwrap_or_else(|error| panic!("{body}: {error}"));
    executed.response.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
}

fn json_of(item: &headwater_store::Item) -> Value {
    serde_json::from_slice(&item.to_bytes()).unwrap()
}

#[tokio::test]
async fn what_a_script_writes_is_one_transaction_in_the_change_feed() {
    let kept = plain().with_all_versions(Duration::from_secs(3600));
    let (_account, items) = container(kept).await;
    items.create(r#"{"id":"old","pk":"k","n":1}"#).await.unwrap();
    let before = items.read_feed(&FeedRequest::new(FeedStart::Now).all_versions()).await.unwrap();
    // More writes than a batch may hold, and two on the same item.
    let body =
        "for (var i = 0; i < 250; i++) __.createDocument(link, { id: 'n' + i, pk: 'k' }, must);
        __.replaceDocument(link + 'docs/old', { id: 'old', pk: 'k', n: 2 }, must);
        __.replaceDocument(link + 'docs/old', { id: 'old', pk: 'k', n: 3 }, must);
        __.deleteDocument(link + 'docs/n7', must);";
    let executed = execute(&items, body).await.unwrap();
    assert_eq!(executed.written.len(), 253);

    let few = PageLimit::new(5, 1000).unwrap();
    let versions = FeedRequest::after(before.continuation).mode(FeedMode::AllVersionsAndDeletes);
    let page = items.read_feed(&versions.limit(few)).await.unwrap();
    assert_eq!(page.changes.len(), 253, "a transaction is one page, even above the page limit");
    assert!(page.changes.iter().all(|change| change.lsn() == executed.lsn));
    assert_eq!(page.changes.last().unwrap().kind(), ChangeKind::Delete);

    let latest = FeedRequest::new(FeedStart::Beginning).limit(few);
    let page = items.read_feed(&latest).await.unwrap();
    assert_eq!(page.changes.len(), 250, "249 new items and the changed one, each once");
    let lsns: Vec<Value> = page
        .changes
        .iter()
        .map(|change| serde_json::from_slice::<Value>(&change.body()).unwrap()["_lsn"].clone())
        .collect();
    assert!(lsns.iter().all(|lsn| *lsn == json!(executed.lsn.get())));
}

#[tokio::test]
async fn a_script_that_fails_leaves_nothing() {
    let (_account, items) = container(plain()).await;
    items.create(r#"{"id":"1","pk":"k","n":1}"#).await.unwrap();
    let newest = items.locate(&"k".into()).unwrap();
    for end in [
        "throw new Error('boom')",
        "getContext().abort('boom')",
        "__.createDocument(link, { id: '1', pk: 'k' })",
        "__.createDocument(link, { id: 'other', pk: 'elsewhere' })",
        "__.readDocument(link + 'docs/absent')",
        "null.x",
    ] {
        let body = format!(
            "__.createDocument(link, {{ id: '2', pk: 'k' }}, must);
             __.replaceDocument(link + 'docs/1', {{ id: '1', pk: 'k', n: 2 }}, function () {{ {end} }});"
        );
        let error = execute(&items, &body).await.unwrap_err();
        assert!(matches!(error, ExecuteError::Script { .. }), "{end}: {error}");
        assert!(items.read("k", "2").await.unwrap().is_none(), "{end}");
        let item = items.read("k", "1").await.unwrap().unwrap();
        assert_eq!(json_of(&item)["n"], json!(1), "{end}");
    }
    assert_eq!(items.locate(&"k".into()).unwrap(), newest, "no LSN was used");
}

#[tokio::test]
async fn a_script_reads_what_it_has_written_also_in_queries() {
    let (_account, items) = container(plain()).await;
    for id in ["1", "2", "3"] {
        items.create(format!(r#"{{"id":"{id}","pk":"k","n":{id}}}"#)).await.unwrap();
    }
    items.create(r#"{"id":"1","pk":"other","n":100}"#).await.unwrap();
    let body = "
        __.createDocument(link, { id: '0', pk: 'k', n: 10 }, must);
        __.createDocument(link, { id: '25', pk: 'k', n: 20 }, must);
        __.deleteDocument(link + 'docs/2', must);
        __.replaceDocument(link + 'docs/3', { id: '3', pk: 'k', n: 30 }, must);
        var found = {};
        function ask(name, query, options) { __.queryDocuments(link, query, options || {}, function (e, feed) {
            must(e); found[name] = feed; response.setBody(found) }) }
        ask('ids', 'SELECT VALUE c.id FROM c');
        ask('sum', 'SELECT VALUE SUM(c.n) FROM c');
        ask('sorted', 'SELECT VALUE c.n FROM c ORDER BY c.n DESC');
        ask('one', { query: 'SELECT VALUE c.n FROM c WHERE c.id = @id', parameters: [{ name: '@id', value: '3' }] });
        ask('udf', 'SELECT VALUE udf.twice(c.n) FROM c WHERE c.id = \"25\"');
        ask('two', 'SELECT VALUE c.id FROM c', { pageSize: 2 });";
    let found = answer(&items, body).await;
    let expected = json!({
        "ids": ["1", "3", "0", "25"], "sum": [61], "sorted": [30, 20, 10, 1],
        "one": [30], "udf": [40], "two": ["1", "3"],
    });
    assert_eq!(found, expected);
}

#[tokio::test]
async fn queries_of_a_script_resume_in_the_same_call_and_in_the_next() {
    let (_account, items) = container(plain()).await;
    for n in 0..25 {
        items.create(format!(r#"{{"id":"{n:02}","pk":"k","n":{n}}}"#)).await.unwrap();
    }
    for query in ["SELECT VALUE c.n FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n", ""] {
        let mut continuation = Value::Null;
        let mut all: Vec<u64> = Vec::new();
        for _ in 0..10 {
            let ask = if query.is_empty() {
                "__.readDocuments(link, { pageSize: 4, continuation: a }, page)".to_owned()
            } else {
                format!(
                    "__.queryDocuments(link, '{query}', {{ pageSize: 4, continuation: a }}, page)"
                )
            };
            let body = format!(
                "function page(e, feed, options) {{ must(e);
                   response.setBody([feed.map(r => typeof r === 'object' ? r.n : r), options.continuation || null]) }} {ask}"
            );
            let call = procedure(&body, &json!([continuation]));
            let text = items.execute("k", &call).await.unwrap().response.unwrap();
            let (rows, next): (Vec<u64>, Value) = serde_json::from_str(&text).unwrap();
            all.extend(rows);
            continuation = next;
            if continuation.is_null() {
                break;
            }
        }
        assert_eq!(all, (0..25).collect::<Vec<u64>>(), "{query}");
    }
    for bad in ["x", "s.1", "s.x.MQ", "o.x", "a.0.!"] {
        let call = procedure(
            "__.queryDocuments(link, 'SELECT * FROM c', { continuation: a })",
            &json!([bad]),
        );
        let error = items.execute("k", &call).await.unwrap_err();
        assert!(error.to_string().contains("continuation"), "{bad}: {error}");
    }
}

/// Lists all items of the key in pages, one call per page. After its page, each call runs `then`.
async fn listed_by_scripts(items: &Container, query: Option<&str>, page: u32, then: &str) -> Value {
    let ask = match query {
        None => format!("__.readDocuments(link, {{ pageSize: {page}, continuation: a }}, shown)"),
        Some(query) => format!(
            "__.queryDocuments(link, '{query}', {{ pageSize: {page}, continuation: a }}, shown)"
        ),
    };
    let body = format!(
        "function shown(e, feed, options) {{ must(e);
           response.setBody([feed.map(r => r.id), options.continuation || null]); {then} }} {ask}"
    );
    let (mut seen, mut continuation) = (Vec::new(), Value::Null);
    for _ in 0..1_000 {
        let executed = items.execute("k", &procedure(&body, &json!([continuation]))).await.unwrap();
        let answer: Value = serde_json::from_str(&executed.response.unwrap()).unwrap();
        seen.extend(answer[0].as_array().unwrap().iter().cloned());
        continuation = answer[1].clone();
        if continuation.is_null() {
            return seen.into();
        }
    }
    panic!("it never ends");
}

#[tokio::test]
async fn items_come_to_a_script_in_the_order_of_their_creation() {
    let ids = ["m", "c", "z", "a", "q", "b", "x", "k"];
    for sort_up_to in [0, 1_000] {
        let mut options = Options::default();
        options.sort_listings_up_to = sort_up_to;
        options.maintenance_interval = Duration::ZERO;
        let (account, items) = container_with(options, plain()).await;
        for id in ids {
            items.create(json!({"id": id, "pk": "k"}).to_string()).await.unwrap();
            items.create(json!({"id": id, "pk": "other"}).to_string()).await.unwrap();
        }
        // An item that is replaced keeps its place.
        items.upsert(json!({"id": "c", "pk": "k", "again": true}).to_string()).await.unwrap();
        // The first long listings create an index of creation order, which later ones use.
        let mut listings = Vec::new();
        for _ in 0..4 {
            for query in [None, Some("SELECT * FROM c"), Some("SELECT c.id FROM c WHERE true")] {
                for page in [1, 3, 100] {
                    listings.push(listed_by_scripts(&items, query, page, "").await);
                }
            }
        }
        let last = listings.split_off(9);
        assert!(last.iter().all(|listed| *listed == json!(ids)), "{sort_up_to}: {last:?}");
        if sort_up_to > 0 {
            assert!(listings.iter().all(|listed| *listed == json!(ids)), "{listings:?}");
        }
        account.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_a_script_creates_comes_last_and_what_it_replaces_stays_where_it_is() {
    let (account, items) = container(plain()).await;
    for id in ["m", "c", "z", "a"] {
        items.create(json!({"id": id, "pk": "k"}).to_string()).await.unwrap();
    }
    let body = "
        __.createDocument(link, { id: 'b', pk: 'k' }, must);
        __.createDocument(link, { id: 'A', pk: 'k' }, must);
        __.upsertDocument(link, { id: 'm', pk: 'k', n: 2 }, must);
        __.deleteDocument(link + 'docs/c', must);
        __.createDocument(link, { id: 'c', pk: 'k' }, must);
        __.createDocument(link, { id: 'gone', pk: 'k' }, must);
        __.deleteDocument(link + 'docs/gone', must);
        var seen = [];
        (function page(continuation) {
          __.readDocuments(link, { pageSize: 2, continuation: continuation }, function (e, feed, options) {
            must(e);
            feed.forEach(item => seen.push(item.id));
            if (options.continuation) page(options.continuation); else response.setBody(seen);
          });
        })();";
    let expected = json!(["m", "z", "a", "b", "A", "c"]);
    assert_eq!(answer(&items, body).await, expected);
    // Other readers see the items in the same order.
    let page = items.list(&ScanScope::Key("k".into()), None, PageLimit::default()).await.unwrap();
    let ids: Vec<Value> = page.items.iter().map(|item| json_of(item)["id"].clone()).collect();
    assert_eq!(json!(ids), expected);
    account.close().await.unwrap();
}

#[tokio::test]
async fn a_listing_resumes_after_items_that_the_same_script_created() {
    let (account, items) = container(plain()).await;
    for id in ["m", "c"] {
        items.create(json!({"id": id, "pk": "k"}).to_string()).await.unwrap();
    }
    // Creates three items, lists all but the last two, and returns a position after one of its own items.
    let body = "
        ['x', 'b', 'y'].forEach(id => __.createDocument(link, { id: id, pk: 'k' }, must));
        __.readDocuments(link, { pageSize: 3 }, function (e, feed, options) {
          must(e);
          response.setBody([feed.map(item => item.id), options.continuation]);
        });";
    let first = answer(&items, body).await;
    assert_eq!(first[0], json!(["m", "c", "x"]));
    items.create(r#"{"id":"a","pk":"k"}"#).await.unwrap();
    let body = "__.readDocuments(link, { continuation: a }, function (e, feed) {
          must(e); response.setBody(feed.map(item => item.id)) })";
    let call = procedure(body, &json!([first[1]]));
    let rest = items.execute("k", &call).await.unwrap().response.unwrap();
    assert_eq!(rest, r#"["b","y","a"]"#);
    // A position with a provisional resource id of no transaction is rejected.
    let container = items.rid();
    let made_up = headwater_model::ItemRid::new(container, (1 << 59) | 7).to_string();
    let call = procedure(body, &json!([format!("a.0.~{made_up}")]));
    let error = items.execute("k", &call).await.unwrap_err();
    assert!(error.to_string().contains("continuation"), "{error}");
    account.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_script_whose_items_keep_changing_fails_with_a_conflict_and_leaves_nothing() {
    let (account, items) = container(plain()).await;
    items.create(r#"{"id":"1","pk":"k","n":0}"#).await.unwrap();
    let mut others = tokio::task::JoinSet::new();
    let writer = items.clone();
    others.spawn(async move {
        for n in 0..1_000_000_000_u64 {
            let item = json!({"id": "1", "pk": "k", "n": n}).to_string();
            writer.upsert(item).await.unwrap();
        }
    });
    // Reads the whole key and runs so long that the key is written meanwhile.
    let body = "__.queryDocuments(link, 'SELECT * FROM c', function (e, feed) { must(e);
        for (var until = Date.now() + 100; Date.now() < until;) {}
        __.createDocument(link, { id: 'half', pk: 'k' }, must) })";
    let result = execute(&items, body).await;
    others.shutdown().await;
    assert!(matches!(result, Err(ExecuteError::Conflict)), "{result:?}");
    assert!(items.read("k", "half").await.unwrap().is_none());
    account.close().await.unwrap();
}

#[tokio::test]
async fn etags_and_resource_ids_in_an_answer_are_those_of_the_items() {
    let (_account, items) = container(plain()).await;
    items.create(r#"{"id":"old","pk":"k"}"#).await.unwrap();
    let body = "__.createDocument(link, { id: 'new', pk: 'k' }, function (e, made) { must(e);
        __.replaceDocument(made._self, { id: 'new', pk: 'k', n: 1 }, { etag: made._etag }, function (e, now) { must(e);
          __.readDocument(link + 'docs/old', function (e, old) { must(e);
            __.replaceDocument(old._self, { id: 'old', pk: 'k', n: 2 }, { etag: old._etag }, function (e, old) { must(e);
              response.setBody({ made: made, now: now, old: old }) }) }) }) });";
    let found = answer(&items, body).await;
    for (name, id) in [("now", "new"), ("old", "old")] {
        let item = json_of(&items.read("k", id).await.unwrap().unwrap());
        for property in ["_etag", "_rid", "_self", "n"] {
            assert_eq!(found[name][property], item[property], "{name} {property}");
        }
    }
    assert_eq!(found["made"]["_rid"], found["now"]["_rid"]);
    assert_ne!(found["made"]["_etag"], found["now"]["_etag"]);
}

#[tokio::test]
async fn a_link_from_an_earlier_call_still_leads_to_its_item() {
    let (_account, items) = container(plain()).await;
    let made = items.create(r#"{"id":"1","pk":"k"}"#).await.unwrap().into_item();
    let link = json_of(&made)["_self"].clone();
    let call = procedure(
        "__.readDocument(a, function (e, d) { must(e); response.setBody(d.id) })",
        &json!([link]),
    );
    assert_eq!(items.execute("k", &call).await.unwrap().response.as_deref(), Some("\"1\""));
}

#[tokio::test]
async fn unique_keys_hold_inside_a_script() {
    let definition = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
        "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}"#;
    let (_account, items) = container(ContainerDefinition::from_json(definition).unwrap()).await;
    items.create(r#"{"id":"1","pk":"k","u":1}"#).await.unwrap();
    let body = "
        var told = []; function note(e) { told.push(e ? e.number : 0); response.setBody(told) }
        __.createDocument(link, { id: '2', pk: 'k', u: 1 }, note);
        __.createDocument(link, { id: '2', pk: 'k', u: 2 }, note);
        __.createDocument(link, { id: '3', pk: 'k', u: 2 }, note);
        __.replaceDocument(link + 'docs/1', { id: '1', pk: 'k', u: 3 }, note);
        __.createDocument(link, { id: '3', pk: 'k', u: 1 }, note);
        __.deleteDocument(link + 'docs/2', note);
        __.createDocument(link, { id: '4', pk: 'k', u: 2 }, note);
        __.replaceDocument(link + 'docs/4', { id: '4', pk: 'k', u: 2 }, note);
        __.replaceDocument(link + 'docs/4', { id: '4', pk: 'k', u: 3 }, note);";
    assert_eq!(answer(&items, body).await, json!([409, 0, 409, 0, 0, 0, 0, 0, 409]));
    for (u, free) in [(1, false), (2, false), (3, false), (4, true)] {
        let created = items.create(format!(r#"{{"id":"x{u}","pk":"k","u":{u}}}"#)).await;
        assert_eq!(created.is_ok(), free, "{u}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_and_writers_at_the_same_time_undo_nothing_of_each_other() {
    const CALLS: usize = 40;
    let (_account, items) = container(plain()).await;
    items.create(r#"{"id":"counter","pk":"k","n":0}"#).await.unwrap();
    // Reads the counter, counts the existing items, and writes both.
    let body = "__.readDocument(link + 'docs/counter', function (e, counter) { must(e);
        __.queryDocuments(link, 'SELECT VALUE COUNT(1) FROM c', function (e, feed) { must(e);
          counter.n++;
          __.replaceDocument(counter._self, counter, must);
          __.createDocument(link, { id: 's' + counter.n, pk: 'k', found: feed[0] }, must) }) });";
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..CALLS {
        let (scripts, writers) = (items.clone(), items.clone());
        tasks.spawn(async move {
            // Concurrent writers may win every time, and turns take long on a busy machine; then the call fails.
            for _ in 0..100 {
                match execute(&scripts, body).await {
                    Ok(_) => return,
                    Err(ExecuteError::Conflict | ExecuteError::Busy) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            panic!("no attempt succeeded");
        });
        tasks.spawn(async move {
            let written = writers.create(format!(r#"{{"id":"w{number}","pk":"k"}}"#)).await;
            written.unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let counter = json_of(&items.read("k", "counter").await.unwrap().unwrap());
    assert_eq!(counter["n"], json!(CALLS), "no increment was lost");
    let all = PageLimit::new(1000, 1 << 20).unwrap();
    let page = items.scan(&ScanScope::Key("k".into()), None, all).await.unwrap();
    let created: Vec<(u64, Value)> =
        page.items.iter().map(|item| (item.lsn().get(), json_of(item))).collect();
    for (lsn, item) in created.iter().filter(|(_, item)| item["found"].is_number()) {
        // The counter existed before all others, although its LSN is newer now.
        let before = created.iter().filter(|(other, item)| other < lsn && item["id"] != "counter");
        assert_eq!(item["found"], json!(before.count() + 1), "{item}: the state at its own LSN");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_run_while_ranges_are_split() {
    let (_account, items) = container(plain()).await;
    items.create(r#"{"id":"counter","pk":"k","n":0}"#).await.unwrap();
    let body = "__.readDocument(link + 'docs/counter', function (e, c) { must(e); c.n++; __.replaceDocument(c._self, c, must) })";
    let splitter = {
        let items = items.clone();
        async move {
            for _ in 0..4 {
                let (partition, _) = items.locate(&"k".into()).unwrap();
                items.split(partition, None).await.unwrap();
            }
        }
    };
    let counter = async {
        for _ in 0..40 {
            execute(&items, body).await.unwrap();
        }
    };
    tokio::join!(splitter, counter);
    let item = json_of(&items.read("k", "counter").await.unwrap().unwrap());
    assert_eq!(item["n"], json!(40));
}

#[tokio::test]
async fn writes_of_a_script_beyond_one_transaction_are_not_accepted() {
    // Generous time limits, so that time does not end the script on a busy machine.
    let mut options = Options::default();
    options.scripts.time = Duration::from_secs(120);
    options.scripts.accepting = Duration::from_secs(100);
    let (_account, items) = container_with(options, plain()).await;
    let body =
        "var made = 0; while (__.createDocument(link, { id: 'i' + made, pk: 'k' }, must)) made++;
        response.setBody(made)";
    let made = answer(&items, body).await;
    assert_eq!(made, json!(5000));
    assert!(items.read("k", "i4999").await.unwrap().is_some());
    assert!(items.read("k", "i5000").await.unwrap().is_none());
    let body = "var text = 'x'.repeat(1 << 20), made = 0;
        while (__.upsertDocument(link, { id: 'big' + made, pk: 'k', text: text })) made++; response.setBody(made)";
    assert_eq!(answer(&items, body).await, json!(3));
}

#[tokio::test]
async fn triggers_run_in_order_and_are_part_of_the_write() {
    let (_account, items) = container(plain()).await;
    let before = |mark: &str| {
        script(&format!(
            "function f() {{ var request = getContext().getRequest(), item = request.getBody();
             item.marks = (item.marks || '') + '{mark}' + request.getOperationType()[0]; request.setBody(item) }}"
        ))
    };
    let after = script(
        "function f() { var made = __.response.getBody();
         __.upsertDocument(__.getSelfLink(), { id: 'log', pk: 'k', last: made.id, etag: made._etag }, function (e) { if (e) throw e }) }",
    );
    let triggers = Triggers {
        before: vec![before("a"), before("b")],
        after: vec![after],
        ..Triggers::default()
    };
    let write = ItemWrite::create(r#"{"id":"1","pk":"k"}"#);
    let executed = items.write_with_triggers(write, &triggers).await.unwrap();
    assert_eq!((executed.written.len(), executed.main), (2, Some(0)));
    let item = items.read("k", "1").await.unwrap().unwrap();
    let log = items.read("k", "log").await.unwrap().unwrap();
    assert_eq!(json_of(&item)["marks"], json!("aCbC"));
    assert_eq!(json_of(&log)["last"], json!("1"));
    assert_eq!(item.lsn(), log.lsn(), "one transaction");

    // A trigger that throws rolls back the write and all writes of triggers.
    let mut failing = triggers.clone();
    failing.after.push(script("function f() { throw new Error(409, 'no') }"));
    let write = ItemWrite::replace("1", r#"{"id":"1","pk":"k","n":2}"#);
    let error = items.write_with_triggers(write, &failing).await.unwrap_err();
    let ExecuteError::Script { error: ScriptFailure::Thrown { number: 409, .. }, .. } = error
    else {
        panic!("{error}")
    };
    assert_eq!(json_of(&items.read("k", "1").await.unwrap().unwrap())["n"], Value::Null);

    // The write itself fails with the same errors as without triggers.
    let write = ItemWrite::create(r#"{"id":"1","pk":"k"}"#);
    let error = items.write_with_triggers(write, &triggers).await.unwrap_err();
    assert!(matches!(error, ExecuteError::Write(WriteError::AlreadyExists { .. })), "{error}");
    let write = ItemWrite::delete("k", "1").if_match("\"another\"");
    let only_after = Triggers { after: triggers.after.clone(), ..Triggers::default() };
    let error = items.write_with_triggers(write, &only_after).await.unwrap_err();
    assert!(matches!(error, ExecuteError::Write(WriteError::EtagMismatch { .. })), "{error}");
    // A trigger cannot move an item to another partition key.
    let moving = Triggers {
        before: vec![script(
            "function f() { var r = __.request, i = r.getBody(); i.pk = 'z'; r.setBody(i) }",
        )],
        ..Triggers::default()
    };
    let error =
        items.write_with_triggers(ItemWrite::upsert(r#"{"id":"1","pk":"k"}"#), &moving).await;
    assert!(matches!(error, Err(ExecuteError::Write(WriteError::PartitionKeyMismatch { .. }))));
}

#[tokio::test]
async fn an_expired_item_is_gone_for_scripts_too_and_can_be_created_again() {
    let definition =
        r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1}"#;
    let (_account, items) = container(ContainerDefinition::from_json(definition).unwrap()).await;
    items.create(r#"{"id":"1","pk":"k","ttl":1,"n":1}"#).await.unwrap();
    // Expiry counts whole seconds, so the test polls until the item has expired.
    for _ in 0..100 {
        if items.read("k", "1").await.unwrap().is_none() {
            break;
        }
        headwater_runtime::Runtime::system().sleep(Duration::from_millis(50)).await;
    }
    let body = "__.readDocument(link + 'docs/1', function (e) {
        __.createDocument(link, { id: '1', pk: 'k', n: 2 }, function (x, made) { must(x); response.setBody([e.number, made.n]) }) })";
    assert_eq!(answer(&items, body).await, json!([404, 2]));
}

#[tokio::test]
async fn user_defined_functions_are_called_by_queries() {
    let (_account, items) = container(plain()).await;
    for n in 1..=3 {
        items.create(format!(r#"{{"id":"{n}","pk":"{n}","n":{n}}}"#)).await.unwrap();
    }
    let twice = procedure("", &json!([])).functions;
    let rows = |text: &'static str| {
        let (items, twice) = (items.clone(), twice.clone());
        async move {
            let query = Query::parse(text, &[]).unwrap();
            let limit = PageLimit::new(100, 1 << 20).unwrap();
            let page = items.query_with(&query, &ScanScope::Container, None, limit, &twice).await;
            page.map(|page| {
                let mut rows: Vec<String> =
                    page.rows.iter().map(|row| String::from_utf8_lossy(row).into_owned()).collect();
                rows.sort();
                rows.join(" ")
            })
        }
    };
    assert_eq!(rows("SELECT VALUE udf.twice(c.n) FROM c").await.unwrap(), "2 4 6");
    assert_eq!(
        rows("SELECT VALUE c.id FROM c WHERE udf.twice(c.n) > 3").await.unwrap(),
        "\"2\" \"3\""
    );
    assert_eq!(rows("SELECT VALUE SUM(udf.twice(c.n)) FROM c").await.unwrap(), "12");
    assert_eq!(
        rows("SELECT VALUE udf.twice(c.missing) ?? 'none' FROM c WHERE c.n = 1").await.unwrap(),
        "null"
    );
    let error = rows("SELECT VALUE udf.absent(1) FROM c").await.unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_never_ends_does_not_block_other_work() {
    let mut options = Options::default();
    options.scripts.time = Duration::from_millis(500);
    options.scripts.accepting = Duration::from_millis(400);
    let (_account, items) = container_with(options, plain()).await;
    let mut endless = tokio::task::JoinSet::new();
    for number in 0..6 {
        let items = items.clone();
        endless.spawn(async move {
            let key = format!("other{number}");
            items.execute(key, &procedure("for (;;) {}", &json!([]))).await
        });
    }
    // Writers and other scripts are served meanwhile.
    for n in 0..20 {
        items.create(format!(r#"{{"id":"{n}","pk":"k"}}"#)).await.unwrap();
    }
    assert_eq!(answer(&items, "response.setBody(1)").await, json!(1));
    while let Some(ended) = endless.join_next().await {
        let error = ended.unwrap().unwrap_err();
        let ExecuteError::Script { error: ScriptFailure::Time(_), .. } = error else {
            panic!("{error}")
        };
    }
}

#[tokio::test]
async fn the_examples_of_the_documentation_run() {
    let page = include_str!("../../../docs/guide/scripts.md");
    let mut count = 0;
    for block in page.split("```js\n").skip(1) {
        let source = block.split("\n```").next().unwrap();
        let first = source.lines().next().unwrap().strip_prefix("// ").unwrap();
        let (arguments, expected) = first.split_once(" => ").unwrap();
        let (_account, items) = container(plain()).await;
        let call = ProcedureCall {
            script: script(source),
            arguments: arguments.to_owned(),
            functions: Vec::new(),
        };
        let executed = items.execute("k", &call).await.unwrap_or_else(|error| panic!("{error}"));
        let found: Value = serde_json::from_str(&executed.response.unwrap()).unwrap();
        assert_eq!(found, serde_json::from_str::<Value>(expected).unwrap(), "{source}");
        count += 1;
    }
    assert_eq!(count, 3, "the number of examples on the page has changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_keeps_exceeding_its_limits_is_blocked_and_others_are_not() {
    let mut options = Options::default();
    options.scripts.time = Duration::from_millis(50);
    options.scripts.accepting = Duration::from_millis(40);
    let (_account, items) = container_with(options, plain()).await;
    let endless = "if (a !== 'end') for (;;) {}";
    for _ in 0..3 {
        let error = execute(&items, endless).await.unwrap_err();
        let is_time = matches!(&error, ExecuteError::Script { error: ScriptFailure::Time(_), .. });
        assert!(is_time, "{error}");
    }
    let error = execute(&items, endless).await.unwrap_err();
    assert!(matches!(&error, ExecuteError::Blocked { .. }), "{error}");
    assert!(error.to_string().contains("exceeded its limits several times"), "{error}");
    // A script with the same name and another source is not blocked.
    assert_eq!(answer(&items, "response.setBody(1)").await, json!(1));
}
