//! Behaviour beyond single operations that clients rely on: sessions, tokens, throughput, streams, certificates,
//! and graceful shutdown.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_store::Options;
use serde_json::{Value, json};
use std::time::Duration;
use support::{World, read_answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);

async fn create(world: &World, id: &str) -> support::Got {
    let body = json!({"id": id, "pk": "a"}).to_string();
    let got = world.send("POST", DOCS, &[KEY], &body).await;
    assert_eq!(got.status, 201, "{got:?}");
    got
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_names_the_endpoint_the_client_used() {
    let world = World::with(|config| config.hosts = vec!["db.example".to_owned()]).await;
    let port = world.address().port();
    for host in [format!("127.0.0.1:{port}"), "db.example:1234".to_owned(), "[::1]:8081".to_owned()]
    {
        let date = world.date();
        let authorization = world.signature("GET", "/", &date);
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nx-ms-date: {date}\r\nauthorization: {authorization}\r\n\r\n"
        );
        let got = world.send_raw(request.as_bytes()).await;
        let endpoint = &got.json()["writableLocations"][0]["databaseAccountEndpoint"];
        assert_eq!(endpoint, &json!(format!("http://{host}/")));
        assert!(got.header("etag").is_none());
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_token_ahead_of_the_server_is_not_served_the_past() {
    let world = World::new().await.with_container().await;
    let written = create(&world, "1").await;
    let token = written.header("x-ms-session-token").unwrap().to_owned();
    let read = |token: String| {
        let world = &world;
        async move {
            let path = format!("{DOCS}/1");
            world.send("GET", &path, &[KEY, ("x-ms-session-token", token.as_str())], "").await
        }
    };
    assert_eq!(read(token).await.status, 200);
    let ahead = read("0:-1#999999".to_owned()).await;
    assert_eq!((ahead.status, ahead.substatus()), (404, Some(1002)));
    assert_eq!(read("77:-1#999999".to_owned()).await.status, 200, "of a range that is gone");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_consistency_level_is_served_whatever_the_accounts_level() {
    let world = World::new().await.with_container().await;
    create(&world, "1").await;
    let levels =
        ["Strong", "Bounded", "BoundedStaleness", "Session", "ConsistentPrefix", "eventual"];
    for (level, status) in levels.map(|level| (level, 200)).into_iter().chain([("Perfect", 400)]) {
        let head = [KEY, ("x-ms-consistency-level", level)];
        let read = world.send("GET", &format!("{DOCS}/1"), &head, "").await;
        assert_eq!(read.status, status, "{level}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_shows_the_consistency_level_it_was_given() {
    use headwater_protocol::headers::ConsistencyLevel;
    for level in [ConsistencyLevel::Session, ConsistencyLevel::Strong, ConsistencyLevel::Eventual] {
        let world = World::with(|config| config.consistency = level).await;
        let account = world.send("GET", "/", &[], "").await.json();
        let shown = &account["userConsistencyPolicy"]["defaultConsistencyLevel"];
        assert_eq!(shown, level.as_str());
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_name_the_schema_version() {
    let world = World::new().await.with_container().await;
    create(&world, "1").await;
    for path in ["/dbs/db/colls/c/pkranges", DOCS, "/dbs/db", "/dbs/none"] {
        let got = world.send("GET", path, &[], "").await;
        assert_eq!(got.header("x-ms-schemaversion"), Some("1.16"), "{path}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_are_answered_in_binary_to_those_who_offer_nothing_else() {
    use headwater_protocol::binary::{Limits, decode, encode, is_binary};
    let world = World::new().await.with_container().await;
    let formats = "x-ms-cosmos-supported-serialization-formats";
    let item = encode(br#"{"id":"1","pk":"a","n":[1,2.5,"x"]}"#).unwrap();
    let head = [KEY, (formats, "CosmosBinary")];
    let created = world.send_raw(&world.request("POST", DOCS, &head, &item)).await;
    assert_eq!(created.status, 201);
    assert!(is_binary(&created.body));
    let text = decode(&created.body, Limits::of_text_bytes(10_000)).unwrap();
    assert!(text.starts_with(br#"{"id":"1","pk":"a","n":[1,2.5,"x"],"_rid":"#));
    for (offer, binary) in [("CosmosBinary", true), ("JsonText,CosmosBinary", false), ("", false)] {
        let got = world.send("GET", &format!("{DOCS}/1"), &[KEY, (formats, offer)], "").await;
        assert_eq!(is_binary(&got.body), binary, "{offer}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_a_feed_that_ends() {
    let world = World::new().await.with_container().await;
    let path = "/dbs/db/colls/c/pkranges";
    let first = world.send("GET", path, &[("A-IM", "Incremental Feed")], "").await;
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(first.json()["PartitionKeyRanges"].as_array().unwrap().len(), 1);
    let again = world.send("GET", path, &[("If-None-Match", &etag)], "").await;
    assert_eq!((again.status, again.header("etag")), (304, Some(etag.as_str())));
    assert!(again.body.is_empty());
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    container.split(container.ranges()[0].id, None).await.unwrap();
    let after = world.send("GET", path, &[("If-None-Match", &etag)], "").await;
    assert_eq!(after.status, 200);
    let ranges = after.json();
    let ranges = ranges["PartitionKeyRanges"].as_array().unwrap().clone();
    assert_eq!(
        ranges.iter().map(|range| &range["parents"]).collect::<Vec<_>>(),
        [&json!(["0"]); 2]
    );
    let gone = world
        .send(
            "GET",
            DOCS,
            &[("A-IM", "Incremental feed"), ("x-ms-documentdb-partitionkeyrangeid", "0")],
            "",
        )
        .await;
    assert_eq!((gone.status, gone.substatus()), (410, Some(1002)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_token_covers_what_its_permission_names_and_nothing_else() {
    let world = World::new().await.with_container().await;
    create(&world, "1").await;
    world.send("POST", "/dbs/db/users", &[], r#"{"id":"ann"}"#).await;
    let permissions = "/dbs/db/users/ann/permissions";
    let body = r#"{"id":"p","permissionMode":"Read","resource":"dbs/db/colls/c"}"#;
    let made = world.send("POST", permissions, &[], body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let twice = body.replace("\"p\"", "\"q\"");
    assert_eq!(world.send("POST", permissions, &[], &twice).await.status, 409);
    let token = made.json()["_token"].as_str().unwrap().to_owned();
    let escaped: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let guest = |verb: &'static str, path: &'static str, head: &'static str, body: &'static str| {
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nauthorization: {escaped}\r\n{head}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let world = &world;
        async move { world.send_raw(request.as_bytes()).await.status }
    };
    let key = "x-ms-documentdb-partitionkey: [\"a\"]\r\n";
    assert_eq!(guest("GET", "/", "", "").await, 200);
    assert_eq!(guest("GET", "/dbs/db/colls/c/docs/1", key, "").await, 200);
    assert_eq!(guest("GET", "/dbs/db/colls/c/pkranges", "", "").await, 200);
    for scripts in ["/dbs/db/colls/c/sprocs", "/dbs/db/colls/c/triggers", "/dbs/db/colls/c/udfs"] {
        assert_eq!(guest("GET", scripts, "", "").await, 200, "{scripts}");
        assert_eq!(guest("POST", scripts, "", "{}").await, 403, "{scripts}");
    }
    assert_eq!(guest("POST", DOCS, key, r#"{"id":"2","pk":"a"}"#).await, 403);
    assert_eq!(guest("DELETE", "/dbs/db/colls/c", "", "").await, 403);
    assert_eq!(guest("GET", "/dbs", "", "").await, 403);
    assert_eq!(guest("GET", "/offers", "", "").await, 403);
    // A browser cannot send headers for an event stream, so its token is in the query string.
    let listen =
        |path: &str| format!("GET {path}?token={escaped} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut stream = world.connect().await;
    stream.write_all(listen("/_headwater/changes/db/c").as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    drop(stream);
    let elsewhere = world.send_raw(listen("/dbs/db/colls/c").as_bytes()).await.status;
    assert_eq!(elsewhere, 401, "an address with a token is for event streams alone");
    world.stop().await;
}

/// Creates a permission and returns its token, escaped as in a header.
async fn token_for(world: &World, id: &str, rest: &str) -> String {
    let body = format!(r#"{{"id":"{id}","permissionMode":"All",{rest}}}"#);
    let made = world.send("POST", "/dbs/db/users/ann/permissions", &[], &body).await;
    let token = made.json()["_token"].as_str().unwrap().to_owned();
    token.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_one_partition_key_works_on_the_items_of_that_key_and_on_nothing_else() {
    let world = World::new().await.with_container().await;
    create(&world, "1").await;
    world.send("POST", "/dbs/db/users", &[], r#"{"id":"ann"}"#).await;
    let of_key = r#""resource":"dbs/db/colls/c","resourcePartitionKey":["a"]"#;
    let token = token_for(&world, "key", of_key).await;
    let source = r#"{"id":"run","body":"function () { getContext().getResponse().setBody(1); }"}"#;
    let made = world.send("POST", "/dbs/db/colls/c/sprocs", &[], source).await;
    assert_eq!(made.status, 201, "{made:?}");
    let guest = async |verb: &str, path: &str, key: &str, body: &str| {
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nauthorization: {token}\r\n\
             x-ms-documentdb-partitionkey: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        world.send_raw(request.as_bytes()).await.status
    };
    let (ours, theirs) = (r#"["a"]"#, r#"["b"]"#);
    let run = "/dbs/db/colls/c/sprocs/run";
    assert_eq!(guest("POST", run, ours, "[]").await, 200);
    assert_eq!(guest("POST", run, theirs, "[]").await, 403);
    assert_eq!(guest("POST", DOCS, ours, r#"{"id":"2","pk":"a"}"#).await, 201);
    assert_eq!(guest("POST", DOCS, theirs, r#"{"id":"2","pk":"b"}"#).await, 403);
    let all_of_key = "/dbs/db/colls/c/operations/partitionkeydelete";
    assert_eq!(guest("POST", all_of_key, theirs, "").await, 403);
    // Resources that other keys share.
    assert_eq!(guest("POST", "/dbs/db/colls/c/sprocs", ours, source).await, 403);
    assert_eq!(guest("PUT", run, ours, source).await, 403);
    assert_eq!(guest("DELETE", run, ours, "").await, 403);
    assert_eq!(guest("DELETE", "/dbs/db/colls/c", ours, "").await, 403);
    assert_eq!(guest("GET", run, ours, "").await, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_hears_no_more_than_its_token_is_for() {
    let world = World::new().await.with_container().await;
    create(&world, "1").await;
    let key = [("x-ms-documentdb-partitionkey", r#"["b"]"#)];
    world.send("POST", DOCS, &key, r#"{"id":"theirs","pk":"b"}"#).await;
    create(&world, "2").await;
    world.send("POST", "/dbs/db/users", &[], r#"{"id":"ann"}"#).await;
    let of_key = r#""resource":"dbs/db/colls/c","resourcePartitionKey":["a"]"#;
    let of_key = token_for(&world, "key", of_key).await;
    let of_item = token_for(&world, "item", r#""resource":"dbs/db/colls/c/docs/1""#).await;
    let listen = |token: &str| {
        let path = "/_headwater/changes/db/c?from=beginning&token=";
        format!("GET {path}{token} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
    };
    assert_eq!(world.send_raw(&listen(&of_item)).await.status, 403);
    let mut stream = world.connect().await;
    stream.write_all(&listen(&of_key)).await.unwrap();
    let mut heard = String::new();
    let mut buffer = [0; 4096];
    while !heard.contains("\"id\":\"2\"") {
        let count = world.runtime.timeout(Duration::from_secs(30), stream.read(&mut buffer)).await;
        let count = count.expect("both items of the key come").unwrap();
        assert!(count > 0, "{heard}");
        heard.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert!(heard.contains("\"id\":\"1\"") && !heard.contains("theirs"), "{heard}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_for_an_item_holds_however_the_item_is_named() {
    let world = World::new().await.with_container().await;
    create(&world, "1").await;
    create(&world, "2").await;
    create(&world, "1/inside").await;
    create(&world, "1/").await;
    let key = [("x-ms-documentdb-partitionkey", r#"["a"]"#)];
    let item = world.send("GET", "/dbs/db/colls/c/docs/1", &key, "").await.json();
    let link = item["_self"].as_str().unwrap().trim_end_matches('/').to_owned();
    let rid = item["_rid"].as_str().unwrap();
    world.send("POST", "/dbs/db/users", &[], r#"{"id":"ann"}"#).await;
    for (id, resource) in [("by-name", "dbs/db/colls/c/docs/1"), ("by-rid", link.as_str())] {
        let body = format!(r#"{{"id":"{id}","permissionMode":"All","resource":"{resource}"}}"#);
        let made = world.send("POST", "/dbs/db/users/ann/permissions", &[], &body).await;
        let token = made.json()["_token"].as_str().unwrap().to_owned();
        let escaped: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let guest = async |verb: &str, path: &str, body: &str| {
            let request = format!(
                "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nauthorization: {escaped}\r\n\
                 x-ms-documentdb-partitionkey: [\"a\"]\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            world.send_raw(request.as_bytes()).await.status
        };
        let by_rid = format!("/dbs/db/colls/c/docs/{rid}");
        assert_eq!(guest("GET", "/dbs/db/colls/c/docs/1", "").await, 200, "{id}");
        assert_eq!(guest("GET", &by_rid, "").await, 200, "{id}");
        let change = r#"{"id":"1","pk":"a","n":1}"#;
        assert_eq!(guest("PUT", "/dbs/db/colls/c/docs/1", change).await, 200, "{id}");
        assert_eq!(guest("PUT", &by_rid, change).await, 200, "{id}");
        let other = r#"{"id":"2","pk":"a"}"#;
        assert_eq!(guest("GET", "/dbs/db/colls/c/docs/2", "").await, 403, "{id}");
        assert_eq!(guest("PUT", "/dbs/db/colls/c/docs/2", other).await, 403, "{id}");
        assert_eq!(guest("GET", "/dbs/db/colls/c/docs/none", "").await, 403, "{id}");
        assert_eq!(guest("GET", "/dbs/db/colls/c/docs/1%2Finside", "").await, 403, "{id}");
        assert_eq!(guest("GET", "/dbs/db/colls/c/docs/1%2F", "").await, 403, "{id}");
        assert_eq!(guest("GET", DOCS, "").await, 403, "{id}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provisioned_throughput_is_enforced_when_asked_for() {
    let world = World::with(|config| config.enforce_throughput = true).await.with_container().await;
    let mut throttled = None;
    for number in 0..400 {
        let body =
            json!({"id": number.to_string(), "pk": "a", "text": "x".repeat(4000)}).to_string();
        let got = world.send("POST", DOCS, &[KEY], &body).await;
        if got.status == 429 {
            throttled = Some(got);
            break;
        }
        assert_eq!(got.status, 201);
    }
    let throttled = throttled.expect("400 units a second are used up by 400 writes of 23 units");
    assert_eq!(throttled.substatus(), Some(3200));
    let wait: u64 = throttled.header("x-ms-retry-after-ms").unwrap().parse().unwrap();
    assert!((1..5000).contains(&wait), "{wait}");
    world.runtime.sleep(Duration::from_millis(wait + 50)).await;
    let after = world.send("POST", DOCS, &[KEY], r#"{"id":"later","pk":"a"}"#).await;
    assert_eq!(after.status, 201, "after waiting as long as was said");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_can_listen_and_goes_on_where_it_was() {
    let world = World::with(|config| config.check_signatures = false).await.with_container().await;
    create(&world, "before").await;
    let listen = |head: &str, query: &str| {
        format!("GET /_headwater/changes/db/c{query} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n")
    };
    let mut stream = world.connect().await;
    stream.write_all(listen("", "?from=beginning").as_bytes()).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("\"before\"") {
        let read = world.runtime.timeout(Duration::from_secs(10), stream.read(&mut buffer)).await;
        seen.push_str(&String::from_utf8_lossy(&buffer[..read.unwrap().unwrap()]));
    }
    assert!(seen.contains("text/event-stream") && seen.contains("event: create"), "{seen}");
    create(&world, "during").await;
    while !seen.contains("\"during\"") {
        let read = world.runtime.timeout(Duration::from_secs(10), stream.read(&mut buffer)).await;
        seen.push_str(&String::from_utf8_lossy(&buffer[..read.unwrap().unwrap()]));
    }
    let id =
        seen.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap().to_owned();
    drop(stream);
    create(&world, "after").await;
    let mut stream = world.connect().await;
    let resumed = listen(&format!("Last-Event-ID: {id}\r\n"), "");
    stream.write_all(resumed.as_bytes()).await.unwrap();
    let mut seen = String::new();
    while !seen.contains("\"after\"") {
        let read = world.runtime.timeout(Duration::from_secs(10), stream.read(&mut buffer)).await;
        seen.push_str(&String::from_utf8_lossy(&buffer[..read.unwrap().unwrap()]));
    }
    assert!(!seen.contains("\"before\"") && !seen.contains("\"during\""), "{seen}");
    drop(stream);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_reconnects_sees_no_event_twice() {
    let mut options = headwater_store::Options::default();
    options.partitions = 2;
    let world = World::with_options(options, |config| config.check_signatures = false).await;
    let world = world.with_container().await;
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    for number in 0..6 {
        let item = format!(r#"{{"id":"i{number}","pk":"{number}"}}"#);
        container.create(item).await.unwrap();
    }
    let listen = async |head: String, events: usize| {
        let mut stream = world.connect().await;
        let request = "GET /_headwater/changes/db/c?from=beginning HTTP/1.1\r\nHost: localhost\r\n";
        stream.write_all(format!("{request}{head}\r\n").as_bytes()).await.unwrap();
        let (mut seen, mut buffer) = (String::new(), [0; 4096]);
        while seen.matches("data: ").count() < events || !seen.ends_with("\r\n") {
            let read = stream.read(&mut buffer);
            let read = world.runtime.timeout(Duration::from_secs(10), read).await;
            seen.push_str(&String::from_utf8_lossy(&buffer[..read.unwrap().unwrap()]));
        }
        seen
    };
    let all = listen(String::new(), 6).await;
    let positions: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(positions.len(), 6, "{all}");
    let shown =
        |seen: &str| (0..6).filter(|n| seen.contains(&format!("\"i{n}\""))).collect::<Vec<_>>();
    for (index, position) in positions.iter().take(5).enumerate() {
        let before = &all[..all.find(&format!("id: {position}\n")).unwrap()];
        let rest = listen(format!("Last-Event-ID: {position}\r\n"), 5 - index).await;
        // The data of an event follows its id.
        let mut both = [shown(before), shown(&rest)].concat();
        assert_eq!(both.len(), 5, "{position}: {rest}");
        both.sort_unstable();
        both.dedup();
        assert_eq!(both.len(), 5, "{position}: {rest}");
    }
    world.stop().await;
}

/// Regression: the response was a stream with only an error, which browsers request again and again.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_of_all_versions_begins_at_their_beginning() {
    let world = World::with(|config| config.check_signatures = false).await.with_container().await;
    create(&world, "before").await;
    let deleted = world.send("DELETE", &format!("{DOCS}/before"), &[KEY], "").await;
    assert_eq!(deleted.status, 204);
    let mut stream = world.connect().await;
    let request =
        "GET /_headwater/changes/db/c?from=beginning&mode=all HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("event: delete") {
        let read = world.runtime.timeout(Duration::from_secs(10), stream.read(&mut buffer)).await;
        seen.push_str(&String::from_utf8_lossy(&buffer[..read.unwrap().unwrap()]));
        assert!(!seen.contains("event: error"), "{seen}");
    }
    assert!(seen.contains("event: create"), "{seen}");
    drop(stream);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_reader_is_told_and_does_not_keep_the_server_from_stopping() {
    let world = World::new().await.with_container().await;
    let now =
        world.send("GET", DOCS, &[("A-IM", "Incremental feed"), ("If-None-Match", "*")], "").await;
    assert_eq!(now.status, 304);
    let etag = now.header("etag").unwrap().to_owned();
    let wait =
        [("A-IM", "Incremental feed"), ("If-None-Match", etag.as_str()), ("Prefer", "wait=30")];
    let mut reader = world.connect().await;
    reader.write_all(&world.request("GET", DOCS, &wait, b"")).await.unwrap();
    create(&world, "1").await;
    let got = read_answer(&mut reader).await.unwrap();
    assert_eq!((got.status, got.json()["Documents"][0]["id"].clone()), (200, json!("1")));
    let etag = got.header("etag").unwrap().to_owned();
    let wait =
        [("A-IM", "Incremental feed"), ("If-None-Match", etag.as_str()), ("Prefer", "wait=1")];
    reader.write_all(&world.request("GET", DOCS, &wait, b"")).await.unwrap();
    let got = read_answer(&mut reader).await.unwrap();
    assert_eq!((got.status, got.header("etag")), (304, Some(etag.as_str())));
    let wait =
        [("A-IM", "Incremental feed"), ("If-None-Match", etag.as_str()), ("Prefer", "wait=60")];
    reader.write_all(&world.request("GET", DOCS, &wait, b"")).await.unwrap();
    world.runtime.sleep(Duration::from_millis(100)).await;
    let (answer, ()) = tokio::join!(read_answer(&mut reader), world.stop());
    assert_eq!(
        answer.unwrap().status,
        304,
        "a reader that waits is answered when the server stops"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_wait_do_not_keep_others_out() {
    let world = World::with(|config| config.limits.requests = 2).await.with_container().await;
    let now = [("A-IM", "Incremental feed"), ("If-None-Match", "*")];
    let etag = world.send("GET", DOCS, &now, "").await.header("etag").unwrap().to_owned();
    let wait =
        [("A-IM", "Incremental feed"), ("If-None-Match", etag.as_str()), ("Prefer", "wait=30")];
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut reader = world.connect().await;
        reader.write_all(&world.request("GET", DOCS, &wait, b"")).await.unwrap();
        waiting.push(reader);
    }
    world.runtime.sleep(Duration::from_millis(200)).await;
    create(&world, "1").await;
    for reader in &mut waiting {
        assert_eq!(read_answer(reader).await.unwrap().status, 200);
    }
    world.stop().await;
}

/// All connections share one thread, which a query that does not end would block.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_query_takes_nobodys_turn() {
    let world = World::with(|config| config.threads = 1).await.with_container().await;
    let numbers: Vec<u32> = (0..400).collect();
    let item = serde_json::json!({"id": "1", "pk": "a", "n": numbers}).to_string();
    assert_eq!(world.send("POST", DOCS, &[KEY], &item).await.status, 201);
    let text =
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.n JOIN y IN c.n JOIN z IN c.n WHERE x + y = -z";
    let query = serde_json::json!({"query": text}).to_string();
    let head =
        [KEY, ("x-ms-documentdb-isquery", "True"), ("content-type", "application/query+json")];
    let mut asking = world.connect().await;
    asking.write_all(&world.request("POST", DOCS, &head, query.as_bytes())).await.unwrap();
    world.runtime.sleep(Duration::from_millis(200)).await;
    for _ in 0..20 {
        assert_eq!(world.send("GET", &format!("{DOCS}/1"), &[KEY], "").await.status, 200);
    }
    let answered = world.runtime.timeout(Duration::ZERO, asking.readable()).await;
    assert!(answered.is_none(), "the query was answered before the reads");
    assert!(read_answer(&mut asking).await.is_ok());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_health_need_no_key() {
    let world = World::new().await.with_container().await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for path in ["/health/live", "/health/ready"] {
        let got = world.send_raw(get(path).as_bytes()).await;
        assert_eq!(got.status, 200, "{path}");
        assert_eq!(got.header("access-control-allow-origin"), None, "no page asked");
    }
    let metrics = world.send_raw(get("/metrics").as_bytes()).await;
    let text = String::from_utf8(metrics.body).unwrap();
    assert!(text.contains("headwater_requests_total{verb=\"POST\",status=\"201\"} 2"), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_made_once_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut known: Option<String> = None;
    for _ in 0..2 {
        let tls = dir.path().join("tls");
        let world = World::with(|config| {
            config.https = Some("127.0.0.1:0".parse().unwrap());
            config.certificates = Some(tls);
        })
        .await;
        let request = b"GET /_explorer/emulator.pem HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let pem = String::from_utf8(world.send_raw(request).await.body).unwrap();
        assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
        assert_eq!(Some(&pem), world.server.authority_pem().as_ref());
        assert!(known.as_ref().is_none_or(|known| *known == pem), "trust given once stays good");
        known = Some(pem);
        world.stop().await;
    }
    let key = std::fs::metadata(dir.path().join("tls/authority-key.pem")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o077, 0);
}

/// A page that two threads read equals the same changes in small pages.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_page_of_the_feed_says_what_small_ones_say() {
    let world = World::new().await.with_container().await;
    let padding = "x".repeat(5_000);
    for number in 0..150 {
        let body = json!({"id": number.to_string(), "pk": "a", "p": padding}).to_string();
        assert_eq!(world.send("POST", DOCS, &[KEY], &body).await.status, 201);
    }
    let page = async |etag: &str, count: &str| {
        let mut head = vec![("A-IM", "Incremental feed"), ("x-ms-max-item-count", count)];
        if !etag.is_empty() {
            head.push(("If-None-Match", etag));
        }
        world.send("GET", DOCS, &head, "").await
    };
    let (mut small, mut etag) = (Vec::new(), String::new());
    loop {
        let got = page(&etag, "20").await;
        etag = got.header("etag").unwrap().to_owned();
        if got.status == 304 {
            break;
        }
        small.extend(got.json()["Documents"].as_array().unwrap().clone());
    }
    for count in ["1000", "140", "100"] {
        let got = page("", count).await;
        let list = got.json();
        let large = list["Documents"].as_array().unwrap();
        assert_eq!(large.len(), count.parse::<usize>().unwrap().min(150), "{count}");
        assert_eq!(large[..], small[..large.len()], "{count}");
        assert_eq!(list["_count"], large.len());
        assert_eq!(got.header("x-ms-item-count").unwrap(), large.len().to_string());
        let last = format!("\"{}\"", large.last().unwrap()["_lsn"]);
        assert_eq!(got.header("etag").unwrap(), last, "{count}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unscoped_feeds_of_several_ranges_continue_from_one_etag() {
    let mut options = Options::default();
    options.partitions = 4;
    let world = World::with_options(options, |_| ()).await.with_container().await;
    for number in 0..40 {
        let (id, pk) = (number.to_string(), format!("k{number}"));
        let key = format!(r#"["{pk}"]"#);
        let head = [("x-ms-documentdb-partitionkey", key.as_str())];
        let body = json!({"id": id, "pk": pk}).to_string();
        assert_eq!(world.send("POST", DOCS, &head, &body).await.status, 201);
    }
    let (mut seen, mut etag) = (Vec::new(), String::new());
    for _ in 0..100 {
        let head = [
            ("A-IM", "Incremental feed"),
            ("If-None-Match", etag.as_str()),
            ("x-ms-max-item-count", "7"),
        ];
        let got = world.send("GET", DOCS, &head, "").await;
        etag = got.header("etag").unwrap().to_owned();
        if got.status == 304 {
            break;
        }
        let page: Value = got.json();
        seen.extend(page["Documents"].as_array().unwrap().iter().map(|item| item["id"].clone()));
    }
    seen.sort_by_key(|id| id.as_str().unwrap().parse::<u32>().unwrap());
    assert_eq!(seen, (0..40).map(|number| json!(number.to_string())).collect::<Vec<_>>());
    world.stop().await;
}

/// Reads a listing page by page; returns the ids in order and the number of pages.
async fn pages(world: &World, verb: &str, head: &[(&str, &str)], body: &str) -> (Vec<u32>, usize) {
    let (mut ids, mut after) = (Vec::new(), None::<String>);
    for pages in 1..1_000 {
        let mut head = head.to_vec();
        if let Some(after) = &after {
            head.push(("x-ms-continuation", after));
        }
        let got = world.send(verb, DOCS, &head, body).await;
        assert_eq!(got.status, 200, "{got:?}");
        let page: Value = got.json();
        let id = |item: &Value| item["id"].as_str().unwrap().parse::<u32>().unwrap();
        ids.extend(page["Documents"].as_array().unwrap().iter().map(id));
        after = got.header("x-ms-continuation").map(str::to_owned);
        if after.is_none() {
            return (ids, pages);
        }
    }
    panic!("the listing never ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_comes_in_the_order_of_creation() {
    let world = World::new().await.with_container().await;
    for number in 0..60 {
        let (id, pk) = (number.to_string(), format!("k{}", number % 7));
        let key = format!(r#"["{pk}"]"#);
        let head = [("x-ms-documentdb-partitionkey", key.as_str())];
        let body = json!({"id": id, "pk": pk}).to_string();
        assert_eq!(world.send("POST", DOCS, &head, &body).await.status, 201);
    }
    let all: Vec<u32> = (0..60).collect();
    let of_key: Vec<u32> = all.iter().copied().filter(|number| number % 7 == 3).collect();
    let key = ("x-ms-documentdb-partitionkey", r#"["k3"]"#);
    let query = [
        ("x-ms-documentdb-isquery", "True"),
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-query-enablecrosspartition", "True"),
    ];
    let everything = r#"{"query":"SELECT * FROM c"}"#;
    for count in ["1", "7", "100"] {
        let count = ("x-ms-max-item-count", count);
        assert_eq!(pages(&world, "GET", &[count], "").await.0, all);
        assert_eq!(pages(&world, "GET", &[count, key], "").await.0, of_key);
        let head = [&query[..], &[count]].concat();
        assert_eq!(pages(&world, "POST", &head, everything).await.0, all);
        let head = [&query[..], &[count, key]].concat();
        assert_eq!(pages(&world, "POST", &head, everything).await.0, of_key);
    }
    // Only clients that let the gateway visit all ranges count an empty page after a full one.
    let (twenty, three) = (("x-ms-max-item-count", "20"), ("x-ms-max-item-count", "3"));
    assert_eq!(pages(&world, "GET", &[twenty], "").await.1, 3);
    let head = [&query[..], &[twenty]].concat();
    assert_eq!(pages(&world, "POST", &head, everything).await.1, 4);
    let of_js = [&head[..], &[("user-agent", "azsdk-js-cosmos azure-cosmos-js/4.9.3")]].concat();
    assert_eq!(pages(&world, "POST", &of_js, everything).await.1, 4, "there is one range");
    let of_one = r#"{"query":"SELECT * FROM c WHERE c.pk = 'k3'"}"#;
    let head = [&query[..], &[three]].concat();
    assert_eq!(pages(&world, "POST", &head, of_one).await.1, 3);
    let head = [&query[..], &[three, key]].concat();
    assert_eq!(pages(&world, "POST", &head, everything).await.1, 3);
    let range = ("x-ms-documentdb-partitionkeyrangeid", "0");
    let head = [&query[..], &[twenty, range]].concat();
    assert_eq!(pages(&world, "POST", &head, everything).await.1, 3);
    // A continuation of one client stays valid after a split.
    let count = ("x-ms-max-item-count", "50");
    let first = world.send("GET", DOCS, &[count], "").await;
    let after = first.header("x-ms-continuation").unwrap().to_owned();
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    container.split(container.ranges()[0].id, None).await.unwrap();
    assert_eq!(pages(&world, "POST", &of_js, everything).await.1, 3, "it would merge two");
    let rest = world.send("GET", DOCS, &[count, ("x-ms-continuation", &after)], "").await;
    let rest = rest.json();
    let ids = rest["Documents"].as_array().unwrap().iter().map(|item| item["id"].clone());
    let expected: Vec<Value> = (50..60).map(|number: u32| json!(number.to_string())).collect();
    assert_eq!(ids.collect::<Vec<_>>(), expected);
    world.stop().await;
}
