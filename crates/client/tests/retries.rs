//! The client against a server that fails on purpose: what it retries and where, and what it does not retry.

#![allow(clippy::unwrap_used)] // a failed test names the line

use bytes::Bytes;
use headwater_client::{
    Client, ClientError, Credential, Endpoint, Options, PageRequest, Precondition, Query, Reason,
    RetryPolicy,
};
use headwater_model::PartitionKey;
use headwater_runtime::Runtime;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that answers each connection with its next answer, and repeats the last one.
struct Fake {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    async fn start(answers: Vec<String>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heads = seen.clone();
        Runtime::system().spawn("fake server", async move {
            let mut next = 0;
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                let mut buffer = [0; 4096];
                while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                    match stream.read(&mut buffer).await {
                        Ok(0) | Err(_) => break,
                        Ok(count) => head.extend_from_slice(&buffer[..count]),
                    }
                }
                heads.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
                let answer = &answers[next.min(answers.len() - 1)];
                next += 1;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Fake { port, seen }
    }

    fn client(&self, discover: bool) -> Client {
        let mut options = Options::default();
        options.discover_regions = Some(discover);
        options.retry.first_wait = Duration::from_millis(2);
        options.request_time = Duration::from_secs(10);
        let at = Endpoint::http("127.0.0.1", self.port);
        Client::new(at, Credential::emulator().unwrap(), options, Runtime::system()).unwrap()
    }

    fn asked(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
    )
}

fn ok() -> String {
    answer("200 OK", "etag: \"1\"\r\n", r#"{"id":"1"}"#)
}

fn key() -> PartitionKey {
    PartitionKey::parse("[\"a\"]").unwrap()
}

#[tokio::test]
async fn what_passes_is_tried_again_until_it_has_passed() {
    for (first, reads, writes) in [
        (answer("429 Slow", "x-ms-retry-after-ms: 30\r\n", "{}"), true, true),
        (answer("449 Clash", "", "{}"), true, true),
        (answer("503 Busy", "", "{}"), true, true),
        (answer("408 Late", "", "{}"), true, false),
        (answer("404 Behind", "x-ms-substatus: 1002\r\n", "{}"), true, false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{".to_owned(), true, false),
        (answer("400 Bad", "", "{}"), false, false),
        (answer("410 Gone", "x-ms-substatus: 1002\r\n", "{}"), false, false),
    ] {
        let fake = Fake::start(vec![first.clone(), first.clone(), ok()]).await;
        let read = fake.client(false).container("d", "c").read(&key(), "1").await;
        assert_eq!(read.is_ok(), reads, "{first}: {read:?}");
        assert_eq!(fake.asked(), if reads { 3 } else { 1 }, "{first}");
        let fake = Fake::start(vec![first.clone(), first.clone(), ok()]).await;
        let container = fake.client(false).container("d", "c");
        let written = container.upsert(&key(), r#"{"id":"1"}"#, &Precondition::None).await;
        assert_eq!(written.is_ok(), writes, "{first}: {written:?}");
        assert_eq!(fake.asked(), if writes { 3 } else { 1 }, "{first}");
    }
}

#[tokio::test]
async fn patience_ends() {
    let fake = Fake::start(vec![answer("429 Slow", "x-ms-retry-after-ms: 1\r\n", "{}")]).await;
    let refused = fake.client(false).read_database("d").await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::Throttled));
    assert_eq!(fake.asked(), 1 + 9);
    let fake = Fake::start(vec![answer("503 Busy", "", "{}")]).await;
    let refused = fake.client(false).read_database("d").await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::Unavailable));
    assert_eq!(fake.asked(), 1 + 5);
}

#[tokio::test]
async fn the_next_region_is_asked_when_one_cannot_be_reached() {
    let alive = Fake::start(vec![ok()]).await;
    // A port that was just free and has no listener.
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let account = format!(
        r#"{{"id":"shop","writableLocations":[{{"name":"A","databaseAccountEndpoint":"http://127.0.0.1:{dead}/"}}],
        "readableLocations":[{{"name":"A","databaseAccountEndpoint":"http://127.0.0.1:{dead}/"}},
        {{"name":"B","databaseAccountEndpoint":"http://127.0.0.1:{}/"}}]}}"#,
        alive.port
    );
    let global = Fake::start(vec![answer("200 OK", "", &account)]).await;
    let client = global.client(true);
    client.read_database("d").await.unwrap();
    client.read_database("d").await.unwrap();
    assert_eq!((global.asked(), alive.asked()), (1, 2), "found once, and remembered");
}

#[tokio::test]
async fn a_write_to_a_region_that_does_not_write_looks_up_where_to_go() {
    let writes = Fake::start(vec![ok()]).await;
    let reads = Fake::start(vec![answer("403 No", "x-ms-substatus: 3\r\n", "{}")]).await;
    let account = |port: u16| {
        let place =
            format!(r#"{{"name":"A","databaseAccountEndpoint":"http://127.0.0.1:{port}/"}}"#);
        let body =
            format!(r#"{{"id":"s","writableLocations":[{place}],"readableLocations":[{place}]}}"#);
        answer("200 OK", "", &body)
    };
    let global = Fake::start(vec![account(reads.port), account(writes.port)]).await;
    global.client(true).create_database("d").await.unwrap();
    assert_eq!((global.asked(), reads.asked(), writes.asked()), (2, 1, 1));
}

#[tokio::test]
async fn queries_say_that_they_are_and_follow_continuations() {
    let page = |next: &str, id: u32| {
        answer(
            "200 OK",
            next,
            &format!(r#"{{"_rid":"r","Documents":[{{"id":"{id}"}}],"_count":1}}"#),
        )
    };
    let fake = Fake::start(vec![page("x-ms-continuation: two\r\n", 1), page("", 2)]).await;
    let container = fake.client(false).container("d", "c");
    let query = Query::new("SELECT * FROM c");
    let first = container.query(&query, &PageRequest::default()).await.unwrap();
    assert_eq!(first.continuation.as_deref(), Some("two"));
    let next = PageRequest { continuation: first.continuation, ..PageRequest::default() };
    let second = container.query(&query, &next).await.unwrap();
    assert_eq!(second.entries, [Bytes::from_static(br#"{"id":"2"}"#)]);
    assert_eq!(second.continuation, None);
    let seen = fake.seen.lock().unwrap();
    assert!(seen[0].contains("content-type: application/query+json"), "{}", seen[0]);
    assert!(seen[1].contains("x-ms-continuation: two"), "{}", seen[1]);
}

#[tokio::test]
async fn nobody_there_and_somebody_else_there_are_told_apart() {
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut options = Options::default();
    options.retry = RetryPolicy::never();
    let at = Endpoint::http("127.0.0.1", dead);
    let key = Credential::emulator().unwrap();
    let client = Client::new(at, key, options, Runtime::system()).unwrap();
    let error = client.account().await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
    let fake = Fake::start(vec![answer("200 OK", "", "<html>hello")]).await;
    let error = fake.client(false).account().await.unwrap_err();
    assert!(matches!(error, ClientError::BadAnswer { .. }), "{error:?}");
}
