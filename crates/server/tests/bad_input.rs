//! Invalid input: the response is clear, the server stays up, and other clients are not affected.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use bytes::Bytes;
use headwater_protocol::auth::format_http_date;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::Duration;
use support::{Got, World, read_answer};
use tokio::io::AsyncWriteExt;

/// Description, method, path, headers, body, and the expected status.
type Case<'a> = (&'a str, &'a str, &'a str, Vec<(&'a str, &'a str)>, &'a str, u16);

/// Checks the common form of error responses.
fn check_refusal(what: &str, got: &Got, status: u16) {
    assert_eq!(got.status, status, "{what}: {}", String::from_utf8_lossy(&got.body));
    let body = got.json();
    assert!(body["code"].is_string(), "{what}: {body}");
    assert!(body["message"].as_str().is_some_and(|text| text.len() > 10), "{what}: {body}");
    let charge = got.header("x-ms-request-charge").unwrap();
    assert!(charge.parse::<f64>().unwrap() > 0.0, "{what}");
    assert_eq!(got.header("x-ms-activity-id").unwrap().len(), 36, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_valid_signature_are_refused() {
    let world = World::new().await.with_container().await;
    let path = "/dbs/db/colls/c/docs/1";
    let date = world.date();
    let good = world.signature("GET", path, &date);
    let hour_ago = format_http_date(world.runtime.unix_millis() / 1000 - 3600);
    let old = world.signature("GET", path, &hour_ago);
    let cases: [(&str, Option<&str>, Option<&str>, u16); 8] = [
        ("no authorization", None, Some(&date), 401),
        ("nonsense", Some("nonsense"), Some(&date), 401),
        ("another type", Some("type%3Dkey%26ver%3D1.0%26sig%3Dabc"), Some(&date), 401),
        ("no signature", Some("type%3Dmaster%26ver%3D1.0%26sig%3D"), Some(&date), 401),
        ("no date", Some(&good), None, 401),
        ("another date", Some(&good), Some(&hour_ago), 401),
        ("an old date", Some(&old), Some(&hour_ago), 403),
        ("not a date", Some(&good), Some("yesterday"), 401),
    ];
    for (what, authorization, date, status) in cases {
        let mut text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n");
        if let Some(value) = authorization {
            text.push_str(&format!("authorization: {value}\r\n"));
        }
        if let Some(value) = date {
            text.push_str(&format!("x-ms-date: {value}\r\n"));
        }
        let got = world.send_raw(format!("{text}\r\n").as_bytes()).await;
        check_refusal(what, &got, status);
    }
    let delete = format!(
        "DELETE {path} HTTP/1.1\r\nHost: localhost\r\nauthorization: {good}\r\nx-ms-date: {date}\r\n\r\n"
    );
    let got = world.send_raw(delete.as_bytes()).await;
    check_refusal("the signature of another verb", &got, 401);
    let shown = got.json()["message"].as_str().unwrap().to_owned();
    assert!(shown.contains("delete\ndocs\ndbs/db/colls/c/docs/1\n"), "{shown}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_headers_paths_and_verbs_that_are_wrong_get_a_clear_answer() {
    let world = World::new().await.with_container().await;
    let docs = "/dbs/db/colls/c/docs";
    let key: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
    let deep = format!(r#"{{"id":"1","pk":"a","x":{}{}}}"#, "[".repeat(300), "]".repeat(300));
    let large = format!(r#"{{"id":"1","pk":"a","x":"{}"}}"#, "x".repeat(2 << 20));
    let cases: Vec<Case<'_>> = vec![
        ("malformed JSON", "POST", docs, vec![key], r#"{"id":"1","pk":"a""#, 400),
        ("not an object", "POST", docs, vec![key], "[]", 400),
        ("no body", "POST", docs, vec![key], "", 400),
        ("deep JSON", "POST", docs, vec![key], &deep, 400),
        ("a large item", "POST", docs, vec![key], &large, 413),
        ("another key", "POST", docs, vec![key], r#"{"id":"1","pk":"b"}"#, 400),
        ("an id with a NUL", "POST", docs, vec![key], r#"{"id":"a\u0000b","pk":"a"}"#, 400),
        ("an id that is a number", "POST", docs, vec![key], r#"{"id":1,"pk":"a"}"#, 400),
        ("ttl of zero", "POST", docs, vec![key], r#"{"id":"1","pk":"a","ttl":0}"#, 400),
        ("no key", "GET", "/dbs/db/colls/c/docs/1", vec![], "", 400),
        (
            "a key that is not JSON",
            "GET",
            "/dbs/db/colls/c/docs/1",
            vec![("x-ms-documentdb-partitionkey", "a")],
            "",
            400,
        ),
        (
            "a key of two parts",
            "GET",
            "/dbs/db/colls/c/docs/1",
            vec![("x-ms-documentdb-partitionkey", r#"["a","b"]"#)],
            "",
            400,
        ),
        ("no item", "GET", "/dbs/db/colls/c/docs/1", vec![key], "", 404),
        ("no container", "GET", "/dbs/db/colls/x/docs/1", vec![key], "", 404),
        ("no database", "GET", "/dbs/x/colls/c/docs/1", vec![key], "", 404),
        ("an unknown verb", "PUT", docs, vec![key], "{}", 405),
        ("an undefined verb", "BREW", docs, vec![key], "{}", 405),
        ("a page of no items", "GET", docs, vec![("x-ms-max-item-count", "0")], "", 400),
        ("a page of words", "GET", docs, vec![("x-ms-max-item-count", "ten")], "", 400),
        ("an invalid continuation", "GET", docs, vec![("x-ms-continuation", "zzz!")], "", 400),
        ("an invalid session token", "GET", docs, vec![("x-ms-session-token", "zzz")], "", 400),
        ("an unknown feed", "GET", docs, vec![("A-IM", "Backwards feed")], "", 400),
        (
            "an invalid etag",
            "GET",
            docs,
            vec![("A-IM", "Incremental feed"), ("If-None-Match", "\"zzz\"")],
            "",
            400,
        ),
        (
            "a range that is gone",
            "GET",
            docs,
            vec![("A-IM", "Incremental feed"), ("x-ms-documentdb-partitionkeyrangeid", "77")],
            "",
            410,
        ),
        ("a query without one", "POST", docs, vec![("x-ms-documentdb-isquery", "True")], "{}", 400),
        (
            "an invalid query",
            "POST",
            docs,
            vec![("x-ms-documentdb-isquery", "True")],
            r#"{"query":"SELCT 1"}"#,
            400,
        ),
        (
            "a batch that is not an array",
            "POST",
            docs,
            vec![key, ("x-ms-cosmos-is-batch-request", "True")],
            "{}",
            400,
        ),
        (
            "a batch of nothing",
            "POST",
            docs,
            vec![key, ("x-ms-cosmos-is-batch-request", "True")],
            "[]",
            400,
        ),
        ("a database without an id", "POST", "/dbs", vec![], "{}", 400),
        ("a database that is there", "POST", "/dbs", vec![], r#"{"id":"db"}"#, 409),
        ("a container without a key", "POST", "/dbs/db/colls", vec![], r#"{"id":"x"}"#, 400),
        (
            "throughput of words",
            "POST",
            "/dbs/db/colls",
            vec![("x-ms-offer-throughput", "much")],
            r#"{"id":"x","partitionKey":{"paths":["/a"]}}"#,
            400,
        ),
        ("a patch without operations", "PATCH", "/dbs/db/colls/c/docs/1", vec![key], "{}", 400),
    ];
    for (what, verb, path, head, body, status) in cases {
        let got = world.send(verb, path, &head, body).await;
        check_refusal(what, &got, status);
    }
    let substatus = |got: &Got| got.substatus();
    let mismatch = world.send("POST", docs, &[key], r#"{"id":"1","pk":"b"}"#).await;
    assert_eq!(substatus(&mismatch), Some(1001));
    let gone = world.send("GET", "/dbs/db/colls/x/docs/1", &[key], "").await;
    assert_eq!(substatus(&gone), Some(1003), "a missing container is not a missing item");
    let item = world.send("GET", "/dbs/db/colls/c/docs/1", &[key], "").await;
    assert_eq!(substatus(&item), None);
    let fine = world.send("POST", docs, &[key], r#"{"id":"1","pk":"a"}"#).await;
    assert_eq!(fine.status, 201);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_requests_end_their_own_connection_only() {
    let world = World::new().await.with_container().await;
    let mut steady = world.connect().await;
    let flood = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(20_000));
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(200_000));
    let cases: [&[u8]; 9] = [
        b"\x00\x01\x02\x03\x04\x05\x06\x07\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabc",
        b"POST /dbs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot frames at all, not at all",
        flood.as_bytes(),
        long.as_bytes(),
    ];
    for (index, bytes) in cases.into_iter().enumerate() {
        let mut stream = world.connect().await;
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        if let Ok(got) = read_answer(&mut stream).await {
            assert!(got.status >= 400, "case {index}: {got:?}");
        }
        // A client that was connected before is still served on its connection.
        steady.write_all(&world.request("GET", "/dbs/db", &[], b"")).await.unwrap();
        let got = read_answer(&mut steady).await.unwrap();
        assert_eq!(got.status, 200, "after case {index}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_broken_senders_are_given_up_on() {
    let world = World::with(|config| {
        config.limits.head_time = Duration::from_millis(300);
        config.limits.body_time = Duration::from_millis(300);
    });
    let world = world.await.with_container().await;
    let mut half_head = world.connect().await;
    half_head.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
    let request = world.request("POST", "/dbs/db/colls/c/docs", &[], &[b'x'; 1000]);
    let mut half_body = world.connect().await;
    half_body.write_all(&request[..request.len() - 500]).await.unwrap();
    let got = read_answer(&mut half_body).await.unwrap();
    check_refusal("half a body", &got, 408);
    assert!(read_answer(&mut half_head).await.is_err(), "half a head is not answered");
    let mut cut = world.connect().await;
    cut.write_all(&request[..request.len() - 500]).await.unwrap();
    cut.shutdown().await.unwrap();
    if let Ok(got) = read_answer(&mut cut).await {
        check_refusal("a body that is cut off", &got, 400);
    }
    let got = world.send("GET", "/dbs/db", &[], "").await;
    assert_eq!(got.status, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let world = World::with(|config| {
        config.limits.connections = 2;
        config.limits.address_share_percent = 100;
    });
    let world = world.await;
    let (first, second) = (world.connect().await, world.connect().await);
    // Both connections must be accepted before the third one is opened.
    world.runtime.sleep(Duration::from_millis(100)).await;
    let mut third = world.connect().await;
    third.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let early = world.runtime.timeout(Duration::from_millis(200), read_answer(&mut third)).await;
    assert!(early.is_none(), "{early:?}");
    drop(first);
    let got = read_answer(&mut third).await.unwrap();
    assert_eq!(got.status, 200);
    drop(second);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_holds_all_its_connections_keeps_nobody_else_out() {
    let world = World::with(|config| {
        config.limits.connections = 5;
        config.limits.address_share_percent = 80;
    });
    let world = world.await;
    let ask = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = world.connect().await;
        stream.write_all(ask).await.unwrap();
        assert_eq!(read_answer(&mut stream).await.unwrap().status, 200);
        held.push(stream);
    }
    for _ in 0..20 {
        let mut beyond = world.connect().await;
        let _ = beyond.write_all(ask).await;
        assert!(read_answer(&mut beyond).await.is_err(), "it is closed at once");
    }
    // Another address of loopback.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(world.address()).await.unwrap();
    other.write_all(ask).await.unwrap();
    assert_eq!(read_answer(&mut other).await.unwrap().status, 200);
    // A closed connection makes room.
    held.pop();
    let mut answered = false;
    for _ in 0..100 {
        let mut again = world.connect().await;
        let _ = again.write_all(ask).await;
        answered = read_answer(&mut again).await.is_ok();
        if answered {
            break;
        }
        world.runtime.sleep(Duration::from_millis(50)).await;
    }
    assert!(answered);
    world.stop().await;
}

/// Waits until the connection of the metrics request is the only open one.
async fn only_one_is_left(world: &World) {
    let mut open = String::new();
    for _ in 0..200 {
        let metrics = world.send_raw(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        let text = String::from_utf8(metrics.body).unwrap();
        open = text.lines().filter(|line| line.contains("connections ")).collect();
        if open.ends_with(" 1") {
            return;
        }
        world.runtime.sleep(Duration::from_millis(50)).await;
    }
    panic!("more connections than that of the metrics request are open: {open}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_its_answers_is_given_up_on() {
    let world = World::with(|config| config.limits.send_time = Duration::from_millis(300));
    let world = world.await.with_container().await;
    let key = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
    let body = format!(r#"{{"id":"1","pk":"a","text":"{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(world.send("POST", "/dbs/db/colls/c/docs", &[key], &body).await.status, 201);
    let mut deaf = world.connect().await;
    let request = world.request("GET", "/dbs/db/colls/c/docs/1", &[key], b"");
    // More than the kernel buffers on both sides of loopback.
    deaf.write_all(&request.repeat(60)).await.unwrap();
    only_one_is_left(&world).await;
    drop(deaf);
    world.stop().await;
}

/// Sends a request over HTTP/2. The window grows only when the body is read.
async fn ask_over_http2(world: &World, window: u32, path: &str) -> Response<Incoming> {
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(world.connect().await))
        .await
        .unwrap();
    world.runtime.spawn("client", async move { drop(connection.await) });
    let request = Request::get(format!("http://{}{path}", world.address()))
        .header("x-ms-documentdb-partitionkey", r#"["a"]"#)
        .body(Empty::<Bytes>::new())
        .unwrap();
    sender.send_request(request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_over_http2_that_opens_no_window_is_given_up_on() {
    let world = World::with(|config| {
        config.limits.send_time = Duration::from_millis(300);
        config.check_signatures = false;
    });
    let world = world.await.with_container().await;
    let key = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
    let body = format!(r#"{{"id":"1","pk":"a","text":"{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(world.send("POST", "/dbs/db/colls/c/docs", &[key], &body).await.status, 201);
    for window in [0, 65_535] {
        // The connection is driven and answers pings, but the body is not read.
        let deaf = ask_over_http2(&world, window, "/dbs/db/colls/c/docs/1").await;
        assert_eq!(deaf.status(), 200);
        only_one_is_left(&world).await;
        assert!(deaf.into_body().collect().await.is_err(), "the rest does not come, {window}");
    }
    let reads = ask_over_http2(&world, 65_535, "/dbs/db/colls/c/docs/1").await;
    assert!(reads.into_body().collect().await.unwrap().to_bytes().len() > 1 << 20);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_over_http2_is_not_given_up_on_while_nothing_happens() {
    let world = World::with(|config| {
        config.limits.send_time = Duration::from_millis(50);
        config.check_signatures = false;
    });
    let world = world.await.with_container().await;
    let path = "/_headwater/changes/db/c?from=beginning";
    let mut events = ask_over_http2(&world, 65_535, path).await.into_body();
    world.runtime.sleep(Duration::from_millis(300)).await;
    let key = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
    let created =
        world.send("POST", "/dbs/db/colls/c/docs", &[key], r#"{"id":"1","pk":"a"}"#).await;
    assert_eq!(created.status, 201);
    let event = events.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(event.starts_with(b"event: create"), "{event:?}");
    drop(events);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_connections_are_all_taken_still_stops() {
    let world = World::with(|config| {
        config.limits.connections = 1;
        config.limits.shutdown_time = Duration::from_secs(3600);
    });
    let world = world.await;
    let mut only = world.connect().await;
    only.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(read_answer(&mut only).await.unwrap().status, 200);
    let runtime = world.runtime.clone();
    assert!(runtime.timeout(Duration::from_secs(60), world.stop()).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_well_known_key_is_refused_where_others_can_reach_us() {
    let mut config = headwater_server::Config::emulator().unwrap();
    config.http = Some("0.0.0.0:0".parse().unwrap());
    config.https = None;
    let account = headwater_store::Account::ephemeral().await.unwrap();
    let runtime = headwater_runtime::Runtime::system();
    let refused = headwater_server::Server::start(config, account, runtime).await.unwrap_err();
    assert!(refused.to_string().contains("HEADWATER_KEY"), "{refused}");
}
