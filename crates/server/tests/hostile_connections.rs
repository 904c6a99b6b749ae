//! Attacks by connections: what one address sends, asks for and never reads costs a bounded amount, and its
//! neighbours are served meanwhile.
//!
//! `127.0.0.1` attacks; `127.0.0.2` is the neighbour. Sizes are chosen so that each attack would need more
//! than [`MEMORY_MAX`] without its limit.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{Got, World, read_answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
const FEED: [(&str, &str); 2] = [("A-IM", "Incremental feed"), ("x-ms-max-item-count", "100")];
/// What this process may grow by, server, store and attackers together.
const MEMORY_MAX: usize = 512 << 20;
/// How often a condition is checked, every 50 ms, before the test fails.
const CHECKS: usize = 160;

/// Attacks take turns: they are measured by the memory of the whole process.
async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

async fn connect_from(world: &World, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    // A client that does not read soon has a full window.
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.connect(world.address()).await.unwrap()
}

async fn ask_from(
    world: &World,
    address: &str,
    verb: &str,
    path: &str,
    head: &[(&str, &str)],
    body: &str,
) -> Got {
    let mut stream = connect_from(world, address).await;
    let _ = stream.write_all(&world.request(verb, path, head, body.as_bytes())).await;
    read_answer(&mut stream).await.unwrap()
}

fn item(id: &str, bytes: usize) -> String {
    format!(r#"{{"id":"{id}","pk":"a","text":"{}"}}"#, "x".repeat(bytes))
}

/// Fills the container: a page of its feed has almost four MiB.
async fn fill(world: &World) {
    for number in 0..4 {
        let body = item(&number.to_string(), 950 << 10);
        assert_eq!(world.send("POST", DOCS, &[KEY], &body).await.status, 201);
    }
}

/// The neighbour reads and writes, small and large.
async fn neighbour_is_served(world: &World) {
    let small = item("small", 100);
    let upsert = [KEY, ("x-ms-documentdb-is-upsert", "True")];
    let got = ask_from(world, "127.0.0.2", "POST", DOCS, &upsert, &small).await;
    assert!(matches!(got.status, 200 | 201), "{got:?}");
    let got = ask_from(world, "127.0.0.2", "POST", DOCS, &upsert, &item("large", 1 << 20)).await;
    assert!(matches!(got.status, 200 | 201), "{got:?}");
    let path = format!("{DOCS}/large");
    let got = ask_from(world, "127.0.0.2", "GET", &path, &[KEY], "").await;
    assert_eq!((got.status, got.body.len() > 1 << 20), (200, true));
}

/// The value of a metric.
async fn metric(world: &World, name: &str) -> usize {
    let mut stream = connect_from(world, "127.0.0.3").await;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let text = String::from_utf8(read_answer(&mut stream).await.unwrap().body).unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

async fn wait_for_metric(world: &World, name: &str, is_met: impl Fn(usize) -> bool) {
    let mut value = 0;
    for _ in 0..CHECKS {
        value = metric(world, name).await;
        if is_met(value) {
            return;
        }
        world.runtime.sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} is still {value}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_senders_of_one_address_lock_out_no_other_request() {
    let _turn = turn().await;
    let world = World::with(|config| config.limits.requests = 50).await.with_container().await;
    let request = world.request("POST", DOCS, &[KEY], item("1", 10_000).as_bytes());
    let mut stalled = Vec::new();
    for _ in 0..200 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        stream.write_all(&request[..request.len() - 5_000]).await.unwrap();
        stalled.push(stream);
    }
    world.runtime.sleep(Duration::from_millis(300)).await;
    neighbour_is_served(&world).await;
    let own = ask_from(&world, "127.0.0.1", "POST", DOCS, &[KEY], &item("2", 100)).await;
    assert_eq!(own.status, 201, "{own:?}");
    // A stalled sender that continues is served too.
    let mut first = stalled.swap_remove(0);
    first.write_all(&request[request.len() - 5_000..]).await.unwrap();
    assert_eq!(read_answer(&mut first).await.unwrap().status, 201);
    drop(stalled);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_in_parallel_are_received_within_the_budget() {
    let _turn = turn().await;
    let world = World::new().await.with_container().await;
    let before = resident_bytes();
    let body = item("1", 3_900 << 10);
    let request: Bytes = world.request("POST", DOCS, &[KEY], body.as_bytes()).into();
    let mut senders = JoinSet::new();
    for _ in 0..200 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        let part = request.slice(..request.len() - 1);
        senders.spawn(async move {
            let _ = stream.write_all(&part).await;
            stream
        });
    }
    world.runtime.sleep(Duration::from_secs(2)).await;
    neighbour_is_served(&world).await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < MEMORY_MAX, "{} MiB for bodies that never end", grown >> 20);
    drop(senders);
    world.stop().await;
}

/// Clients in a hurry wait for each other instead of being refused.
#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_that_end_are_all_accepted() {
    let _turn = turn().await;
    let world = World::new().await.with_container().await;
    let mut senders = JoinSet::new();
    for number in 0..70 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        let body = item(&number.to_string(), 1 << 20);
        let request = world.request("POST", DOCS, &[KEY], body.as_bytes());
        senders.spawn(async move {
            let _ = stream.write_all(&request).await;
            read_answer(&mut stream).await.map(|got| got.status)
        });
    }
    while let Some(answered) = senders.join_next().await {
        assert_eq!(answered.unwrap(), Ok(201));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_show_items_wait_for_memory_as_pages_do() {
    let _turn = turn().await;
    let world = World::with(|config| {
        config.limits.sending_bytes = 8 << 20;
        config.limits.memory_time = Duration::from_millis(200);
    });
    let world = world.await.with_container().await;
    fill(&world).await;
    let mut deaf = connect_from(&world, "127.0.0.1").await;
    deaf.write_all(&world.request("GET", DOCS, &FEED, b"")).await.unwrap();
    wait_for_metric(&world, "headwater_sending_bytes", |bytes| bytes > 0).await;
    let patch = r#"{"operations":[{"op":"set","path":"/n","value":1}]}"#;
    let patch = format!(r#"[{{"operationType":"Patch","id":"0","resourceBody":{patch}}}]"#);
    let read = r#"[{"operationType":"Read","id":"0"}]"#;
    let write = r#"[{"operationType":"Upsert","resourceBody":{"id":"new","pk":"a"}}]"#;
    let silent = ("Prefer", "return=minimal");
    for atomic in ["True", "False"] {
        let head =
            [KEY, ("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", atomic)];
        let ask = async |head: &[(&str, &str)], body: &str| {
            // Each operation of a bulk request names its key.
            let body = body.replace("[{", r#"[{"partitionKey":"[\"a\"]","#);
            ask_from(&world, "127.0.0.1", "POST", DOCS, head, &body).await.status
        };
        assert_eq!(ask(&head, &patch).await, 429, "{atomic}");
        assert_eq!(ask(&head, read).await, 429, "{atomic}");
        assert_eq!(ask(&head, write).await, 200, "{atomic}");
        assert_eq!(ask(&[head[0], head[1], head[2], silent], &patch).await, 200, "{atomic}");
    }
    drop(deaf);
    wait_for_metric(&world, "headwater_sending_bytes", |bytes| bytes == 0).await;
    world.stop().await;
}

/// Opens a connection that grants no window to any stream, and asks for so many pages.
async fn ask_without_reading(world: &World, streams: usize) -> Vec<Response<Incoming>> {
    ask_often_without_reading(world, streams, DOCS, &FEED).await
}

/// Opens a connection that grants no window to any stream, and asks for the same on each of them.
async fn ask_often_without_reading(
    world: &World,
    streams: usize,
    path: &str,
    head: &[(&str, &str)],
) -> Vec<Response<Incoming>> {
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(connect_from(world, "127.0.0.1").await))
        .await
        .unwrap();
    world.runtime.spawn("client", async move { drop(connection.await) });
    let mut answers = Vec::new();
    for _ in 0..streams {
        let mut request = Request::get(format!("http://{}{path}", world.address()));
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        if sender.ready().await.is_err() {
            break;
        }
        let asked = sender.send_request(request);
        match world.runtime.timeout(Duration::from_secs(2), asked).await {
            Some(Ok(answer)) => answers.push(answer),
            _ => break,
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_over_http2_that_no_client_reads_are_held_within_the_budget() {
    let _turn = turn().await;
    let world = World::with(|config| {
        config.check_signatures = false;
        config.limits.memory_time = Duration::from_millis(200);
    });
    let world = world.await.with_container().await;
    fill(&world).await;
    let before = resident_bytes();
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.extend(ask_without_reading(&world, 50).await);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < MEMORY_MAX, "{} MiB for answers that are not read", grown >> 20);
    neighbour_is_served(&world).await;
    let page = ask_from(&world, "127.0.0.2", "GET", DOCS, &FEED, "").await;
    assert_eq!((page.status, page.body.len() > 3 << 20), (200, true));
    let refused = answers.iter().filter(|answer| answer.status() == 429);
    let refused: Vec<_> = refused.collect();
    assert!(!refused.is_empty(), "what the budget does not hold is refused");
    assert!(refused.iter().all(|answer| answer.headers().contains_key("x-ms-retry-after-ms")));
    // Its own small answers are not refused.
    let own = ask_from(&world, "127.0.0.1", "GET", &format!("{DOCS}/small"), &[KEY], "").await;
    assert_eq!(own.status, 200, "{own:?}");
    drop(answers);
    wait_for_metric(&world, "headwater_sending_bytes", |bytes| bytes == 0).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_over_http1_that_no_client_reads_are_held_within_the_budget() {
    let _turn = turn().await;
    let world = World::new().await.with_container().await;
    fill(&world).await;
    let before = resident_bytes();
    let request = world.request("GET", DOCS, &FEED, b"");
    let mut deaf = Vec::new();
    for _ in 0..220 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        stream.write_all(&request.repeat(4)).await.unwrap();
        deaf.push(stream);
    }
    world.runtime.sleep(Duration::from_secs(2)).await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < MEMORY_MAX, "{} MiB for answers that are not read", grown >> 20);
    neighbour_is_served(&world).await;
    drop(deaf);
    wait_for_metric(&world, "headwater_sending_bytes", |bytes| bytes == 0).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_that_no_client_reads_are_held_within_the_budget() {
    let _turn = turn().await;
    let world = World::with(|config| config.check_signatures = false).await;
    let world = world.with_container().await;
    fill(&world).await;
    for number in 4..20 {
        let body = item(&number.to_string(), 950 << 10);
        assert_eq!(world.send("POST", DOCS, &[KEY], &body).await.status, 201);
    }
    let before = resident_bytes();
    let mut deaf = Vec::new();
    for _ in 0..60 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        let asked =
            b"GET /_headwater/changes/db/c?from=beginning HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(asked).await.unwrap();
        deaf.push(stream);
    }
    world.runtime.sleep(Duration::from_secs(2)).await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < MEMORY_MAX, "{} MiB for events that are not read", grown >> 20);
    neighbour_is_served(&world).await;
    drop(deaf);
    wait_for_metric(&world, "headwater_sending_bytes", |bytes| bytes == 0).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_read_ends_sooner_when_its_address_has_no_memory_left() {
    let _turn = turn().await;
    let world = World::with(|config| {
        config.limits.send_time = Duration::from_secs(60);
        config.limits.scarce_send_time = Duration::from_millis(300);
        config.limits.sending_bytes = 16 << 20;
    });
    let world = world.await.with_container().await;
    fill(&world).await;
    let request = world.request("GET", DOCS, &FEED, b"");
    let mut deaf = Vec::new();
    for _ in 0..4 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        stream.write_all(&request).await.unwrap();
        deaf.push(stream);
    }
    wait_for_metric(&world, "headwater_sending_bytes", |bytes| bytes > 0).await;
    wait_for_metric(&world, "headwater_sending_bytes", |bytes| bytes < 8 << 20).await;
    drop(deaf);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_address_takes_every_place_of_the_waiting_readers() {
    let _turn = turn().await;
    let world = World::with(|config| config.limits.waiting_readers = 10).await;
    let world = world.with_container().await;
    let now = world.send("GET", DOCS, &[FEED[0], ("If-None-Match", "*")], "").await;
    let etag = now.header("etag").unwrap().to_owned();
    let wait = |seconds| [FEED[0], ("If-None-Match", etag.as_str()), ("Prefer", seconds)];
    let mut waiting = Vec::new();
    for _ in 0..12 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        stream.write_all(&world.request("GET", DOCS, &wait("wait=30"), b"")).await.unwrap();
        waiting.push(stream);
    }
    wait_for_metric(&world, "headwater_waiting_readers", |count| count == 8).await;
    let got = ask_from(&world, "127.0.0.1", "GET", DOCS, &wait("wait=30"), "").await;
    assert_eq!(got.status, 429, "{got:?}");
    assert!(got.header("x-ms-retry-after-ms").is_some());
    let got = ask_from(&world, "127.0.0.2", "GET", DOCS, &wait("wait=1"), "").await;
    assert_eq!(got.status, 304, "{got:?}");
    drop(waiting);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_reader_whose_client_leaves_is_no_longer_counted() {
    let _turn = turn().await;
    let world = World::with(|config| config.check_signatures = false).await;
    let world = world.with_container().await;
    let now = world.send("GET", DOCS, &[FEED[0], ("If-None-Match", "*")], "").await;
    let etag = now.header("etag").unwrap().to_owned();
    let wait = [FEED[0], ("If-None-Match", etag.as_str()), ("Prefer", "wait=50")];
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        stream.write_all(&world.request("GET", DOCS, &wait, b"")).await.unwrap();
        waiting.push(stream);
    }
    wait_for_metric(&world, "headwater_waiting_readers", |count| count == 5).await;
    drop(waiting);
    wait_for_metric(&world, "headwater_waiting_readers", |count| count == 0).await;
    // Over HTTP/2, one stream of several.
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(connect_from(&world, "127.0.0.1").await))
        .await
        .unwrap();
    world.runtime.spawn("client", async move { drop(connection.await) });
    let (mut asked, mut first) = (JoinSet::new(), None);
    for _ in 0..3 {
        let mut request = Request::get(format!("http://{}{DOCS}", world.address()));
        for (name, value) in wait {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        sender.ready().await.unwrap();
        let one = asked.spawn(sender.send_request(request));
        first.get_or_insert(one);
    }
    wait_for_metric(&world, "headwater_waiting_readers", |count| count == 3).await;
    first.unwrap().abort();
    wait_for_metric(&world, "headwater_waiting_readers", |count| count == 2).await;
    drop((sender, asked));
    wait_for_metric(&world, "headwater_waiting_readers", |count| count == 0).await;
    world.stop().await;
}

/// Whether a connection is closed within a time.
async fn is_closed_within(world: &World, stream: &mut TcpStream, time: Duration) -> bool {
    let mut buffer = [0; 64];
    let read = world.runtime.timeout(time, stream.read(&mut buffer)).await;
    matches!(read, Some(Ok(0) | Err(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_stays_as_long_as_its_limit_says_and_a_slow_head_does_not() {
    let _turn = turn().await;
    let world = World::with(|config| {
        config.limits.head_time = Duration::from_millis(200);
        config.limits.idle_time = Duration::from_millis(1500);
    });
    let world = world.await;
    let ask = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut idle = connect_from(&world, "127.0.0.1").await;
    let mut slow = connect_from(&world, "127.0.0.1").await;
    let mut silent = connect_from(&world, "127.0.0.1").await;
    for stream in [&mut idle, &mut slow] {
        stream.write_all(ask).await.unwrap();
        assert_eq!(read_answer(stream).await.unwrap().status, 200);
    }
    slow.write_all(&ask[..10]).await.unwrap();
    let second = Duration::from_secs(1);
    assert!(is_closed_within(&world, &mut slow, second).await, "half a head is waited for");
    assert!(is_closed_within(&world, &mut silent, second).await, "no head is waited for");
    assert!(!is_closed_within(&world, &mut idle, Duration::from_millis(500)).await);
    idle.write_all(ask).await.unwrap();
    assert_eq!(read_answer(&mut idle).await.unwrap().status, 200);
    assert!(is_closed_within(&world, &mut idle, 3 * second).await, "it is idle for too long");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_are_held_within_the_budget() {
    let _turn = turn().await;
    let world = World::with(|config| config.limits.receiving_bytes = 1 << 20).await;
    let world = world.with_container().await;
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nx: {}", "x".repeat(60_000));
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        let _ = stream.write_all(head.as_bytes()).await;
        slow.push(stream);
    }
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes > 500_000).await;
    let mut closed = 0;
    for stream in &mut slow {
        closed += usize::from(is_closed_within(&world, stream, Duration::from_millis(20)).await);
    }
    assert!((10..40).contains(&closed), "{closed} of 40 are closed");
    let got = ask_from(&world, "127.0.0.2", "POST", DOCS, &[KEY], &item("1", 100_000)).await;
    assert_eq!(got.status, 201, "{got:?}");
    drop(slow);
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes == 0).await;
    world.stop().await;
}

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The fields of a `GET`, as literals.
fn fields_of(path: &str, head: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    // GET, http, and the path by the number of its name.
    let mut fields = [&[0x82, 0x86, 0x04][..], &text(path)].concat();
    for (name, value) in head {
        fields.extend([&[0][..], &text(&name.to_lowercase()), &text(value)].concat());
    }
    fields
}

/// A connection over HTTP/2 whose settings were sent.
async fn connect_http2(world: &World, address: &str) -> TcpStream {
    let mut stream = connect_from(world, address).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    stream
}

/// The kind of the next frame.
async fn next_frame(stream: &mut TcpStream) -> std::io::Result<u8> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    stream.read_exact(&mut vec![0; length as usize]).await?;
    Ok(head[3])
}

/// Whether a connection over HTTP/2 ends within a time, whatever is sent on it.
async fn ends_within(world: &World, stream: &mut TcpStream, time: Duration) -> bool {
    let ended = async { while next_frame(stream).await.is_ok() {} };
    world.runtime.timeout(time, ended).await.is_some()
}

/// Heads in several frames were decoded into memory that nothing counted.
#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_over_http2_are_held_within_the_budget() {
    let _turn = turn().await;
    let world = World::with(|config| config.limits.receiving_bytes = 4 << 20).await;
    let world = world.with_container().await;
    let begun = frame(HEADERS, END_STREAM, 1, &fields_of("/health/live", &[]));
    let more = frame(CONTINUATION, 0, 1, &fields_of("/", &[("x", "y")])[5..]);
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut stream = connect_http2(&world, "127.0.0.1").await;
        let _ = stream.write_all(&[begun.as_slice(), &more].concat()).await;
        slow.push(stream);
    }
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes > 2 << 20).await;
    let (mut closed, mut open) = (0, Vec::new());
    for mut stream in slow {
        match ends_within(&world, &mut stream, Duration::from_millis(20)).await {
            true => closed += 1,
            false => open.push(stream),
        }
    }
    assert!((10..40).contains(&closed), "{closed} of 40 are closed");
    let got = ask_from(&world, "127.0.0.2", "POST", DOCS, &[KEY], &item("1", 100_000)).await;
    assert_eq!(got.status, 201, "{got:?}");
    // One that ends is answered, and its memory is given back.
    let before = metric(&world, "headwater_receiving_bytes").await;
    let mut one = open.pop().unwrap();
    let end = frame(CONTINUATION, END_HEADERS, 1, &fields_of("/", &[("z", "y")])[5..]);
    one.write_all(&end).await.unwrap();
    while next_frame(&mut one).await.unwrap() != HEADERS {}
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes < before).await;
    drop(open);
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes == 0).await;
    drop(one);
    world.stop().await;
}

/// A field of two bytes takes about a hundred in memory, and a stalled body keeps its head there.
#[tokio::test(flavor = "multi_thread")]
async fn many_small_fields_over_http2_count_as_the_memory_they_take() {
    let _turn = turn().await;
    let world = World::with(|config| config.check_signatures = false).await.with_container().await;
    // POST, then a field that is remembered and sent 800 times by its number.
    let mut fields = fields_of(DOCS, &[("Host", "localhost")]);
    fields[0] = 0x83;
    fields.extend([0x40, 1, b'a', 1, b'b']);
    fields.extend([0xbe; 800]);
    let mut stream = connect_http2(&world, "127.0.0.1").await;
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &fields)).await.unwrap();
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes > 100 << 10).await;
    drop(stream);
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes == 0).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_head_over_http2_ends_its_connection_also_while_a_request_is_under_way() {
    let _turn = turn().await;
    let world = World::with(|config| {
        config.check_signatures = false;
        config.limits.head_time = Duration::from_millis(300);
    });
    let world = world.await.with_container().await;
    let waits = [("Host", "localhost"), FEED[0], ("If-None-Match", "*"), ("Prefer", "wait=50")];
    let waiting = frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields_of(DOCS, &waits));
    let split = frame(HEADERS, END_STREAM, 3, &fields_of("/health/live", &[]));
    let cut = frame(HEADERS, END_STREAM | END_HEADERS, 3, &fields_of("/health/live", &[]));
    for (count, part) in [(1, &split[..]), (2, &cut[..5]), (3, &cut[..15])] {
        let mut stream = connect_http2(&world, "127.0.0.1").await;
        stream.write_all(&waiting).await.unwrap();
        wait_for_metric(&world, "headwater_waiting_readers", |readers| readers == 1).await;
        assert!(!ends_within(&world, &mut stream, Duration::from_millis(600)).await, "{count}");
        stream.write_all(part).await.unwrap();
        assert!(ends_within(&world, &mut stream, Duration::from_secs(4)).await, "{count}");
        wait_for_metric(&world, "headwater_waiting_readers", |readers| readers == 0).await;
    }
    world.stop().await;
}

/// Each kind of frame that costs its sender nothing.
#[tokio::test(flavor = "multi_thread")]
async fn frames_without_requests_end_their_connection() {
    let _turn = turn().await;
    let world = World::with(|config| config.check_signatures = false).await.with_container().await;
    let post = [&[0x83, 0x86, 0x04, 1][..], b"/"].concat();
    for (name, count, flood) in [
        ("PING", 20_000, frame(6, 0, 0, &[7; 8])),
        ("SETTINGS", 20_000, frame(4, 0, 0, &[])),
        ("PRIORITY", 20_000, frame(2, 0, 5, &[0, 0, 0, 3, 9])),
        ("WINDOW_UPDATE", 20_000, frame(8, 0, 0, &[0, 0, 0, 1])),
        ("RST_STREAM", 20_000, frame(3, 0, 1, &[0, 0, 0, 8])),
        ("empty DATA", 20_000, frame(0, 0, 3, &[])),
        ("unknown", 20_000, frame(0xfa, 0, 0, &[1, 2, 3])),
        ("few PINGs", 200, frame(6, 0, 0, &[7; 8])),
    ] {
        let mut stream = connect_http2(&world, "127.0.0.1").await;
        let fields = fields_of("/health/live", &[]);
        let asked = frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields);
        stream.write_all(&asked).await.unwrap();
        while next_frame(&mut stream).await.unwrap() != HEADERS {}
        // Its body is not sent.
        stream.write_all(&frame(HEADERS, END_HEADERS, 3, &post)).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let mut read = JoinSet::new();
        read.spawn(async move { drop(tokio::io::copy(&mut reader, &mut tokio::io::sink()).await) });
        let mut is_ended = false;
        for _ in 0..count / 100 {
            is_ended |= writer.write_all(&flood.repeat(100)).await.is_err();
        }
        let ended = world.runtime.timeout(Duration::from_millis(500), read.join_next()).await;
        assert_eq!(is_ended || ended.is_some(), count > 1000, "{name}");
    }
    neighbour_is_served(&world).await;
    world.stop().await;
}

/// A client that works sends many frames too: windows for what it reads, and settings, pings and priorities.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_works_may_send_as_many_frames_as_its_requests_need() {
    let _turn = turn().await;
    let world = World::with(|config| config.check_signatures = false).await.with_container().await;
    fill(&world).await;
    // Windows this small are opened again after every 2 KiB.
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(4 << 10)
        .initial_connection_window_size(64 << 10)
        .handshake(TokioIo::new(connect_from(&world, "127.0.0.1").await))
        .await
        .unwrap();
    world.runtime.spawn("client", async move { drop(connection.await) });
    let mut ask = async |path: &str, head: &[(&str, &str)]| {
        let mut request = Request::get(format!("http://{}{path}", world.address()));
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        sender.ready().await.unwrap();
        let asked = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap());
        let mut answer = asked.await.unwrap();
        let mut bytes = 0;
        while let Some(piece) = answer.frame().await {
            bytes += piece.unwrap().into_data().unwrap_or_default().len();
        }
        (answer.status().as_u16(), bytes)
    };
    for _ in 0..3 {
        let (status, bytes) = ask(DOCS, &FEED).await;
        assert_eq!((status, bytes > 3 << 20), (200, true));
    }
    for _ in 0..3_000 {
        assert_eq!(ask("/health/live", &[]).await.0, 200);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_of_waiting_readers_are_held_within_the_budget() {
    let _turn = turn().await;
    let world = World::with(|config| config.limits.filter_bytes = 1 << 20).await;
    let world = world.with_container().await;
    let condition = vec!["c.a = 1"; 500].join(" or ");
    let head = [
        FEED[0],
        ("If-None-Match", "*"),
        ("Prefer", "wait=30"),
        ("x-headwater-feed-where", condition.as_str()),
    ];
    let first = {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        stream.write_all(&world.request("GET", DOCS, &head, b"")).await.unwrap();
        stream
    };
    wait_for_metric(&world, "headwater_filter_bytes", |bytes| bytes >= 400_000).await;
    let mut others = Vec::new();
    for _ in 0..3 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        stream.write_all(&world.request("GET", DOCS, &head, b"")).await.unwrap();
        others.push(stream);
    }
    let refused = ask_from(&world, "127.0.0.1", "GET", DOCS, &head, "").await;
    assert_eq!(refused.status, 429, "{refused:?}");
    let text = String::from_utf8_lossy(&refused.body);
    assert!(text.contains("filters of readers"), "{text}");
    let unfiltered = &head[..2];
    let got = ask_from(&world, "127.0.0.1", "GET", DOCS, unfiltered, "").await;
    assert_eq!(got.status, 304, "{got:?}");
    assert!(metric(&world, "headwater_filter_bytes").await <= 1 << 20);
    drop((first, others));
    wait_for_metric(&world, "headwater_filter_bytes", |bytes| bytes == 0).await;
    world.stop().await;
}

/// A query in binary JSON of 7 KB that is 4 MB as text: one string, and a thousand references to it.
fn unfolding_query() -> Vec<u8> {
    let text = |text: &str| {
        let length = u16::try_from(text.len()).unwrap().to_le_bytes();
        [&[0xc1], &length[..], text.as_bytes()].concat()
    };
    let sized = |marker: u8, values: &[u8]| {
        let length = u32::try_from(values.len()).unwrap().to_le_bytes();
        [&[marker], &length[..], values].concat()
    };
    // Behind the format, the object's head, a name of one character and the array's head.
    let place_of_text = 1 + 5 + 4 + 5;
    let mut values = text(&"x".repeat(4_000));
    for _ in 0..990 {
        values.extend([0xc4, place_of_text, 0]);
    }
    let members = [text("a"), sized(0xe4, &values), text("query"), text("SELECT * FROM c")];
    [vec![0x80], sized(0xec, &members.concat())].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_bodies_that_unfold_are_decoded_within_the_budget() {
    let _turn = turn().await;
    let world = World::new().await.with_container().await;
    let before = resident_bytes();
    let head =
        [KEY, ("x-ms-documentdb-isquery", "True"), ("Content-Type", "application/query+json")];
    let request: Bytes = world.request("POST", DOCS, &head, &unfolding_query()).into();
    let mut senders = JoinSet::new();
    for _ in 0..400 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        let request = request.clone();
        senders.spawn(async move {
            let _ = stream.write_all(&request).await;
            read_answer(&mut stream).await.map(|got| got.status)
        });
    }
    let mut most = 0;
    while let Some(answered) = senders.join_next().await {
        assert_eq!(answered.unwrap(), Ok(200));
        most = most.max(resident_bytes().saturating_sub(before));
    }
    assert!(most < MEMORY_MAX / 2, "{} MiB for bodies of 3 MiB together", most >> 20);
    world.stop().await;
}

/// What a refusal of a wrong signature repeats of its request: each of these bytes takes six in JSON.
fn long_path() -> String {
    format!("/dbs/{}", "%01".repeat(2_600))
}

const WRONG_SIGNATURE: (&str, &str) = ("authorization", "type%3Dmaster%26ver%3D1.0%26sig%3DQUJD");

#[tokio::test(flavor = "multi_thread")]
async fn refusals_that_no_client_reads_are_held_within_the_budget() {
    let _turn = turn().await;
    let world = World::with(|config| config.limits.sending_bytes = 64 << 10).await;
    let date = world.date();
    let head = [WRONG_SIGNATURE, ("x-ms-date", date.as_str())];
    let answers = ask_often_without_reading(&world, 50, &long_path(), &head).await;
    assert_eq!(answers.len(), 50);
    assert!(answers.iter().all(|answer| answer.status() == 401));
    let has_body = |answer: &Response<Incoming>| answer.headers().contains_key("content-length");
    assert!(has_body(&answers[0]));
    assert!(!has_body(&answers[49]), "without memory a refusal has no body");
    assert!(metric(&world, "headwater_sending_bytes").await >= 32 << 10);
    drop(answers);
    wait_for_metric(&world, "headwater_sending_bytes", |bytes| bytes == 0).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_repeats_little_of_its_request() {
    let _turn = turn().await;
    let world = World::new().await;
    let (path, date, date_too) = (long_path(), world.date(), "\u{1}".repeat(6_000));
    for date in [&date, &date_too] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\n{}: {}\r\nx-ms-date: {date}\r\n\r\n",
            WRONG_SIGNATURE.0, WRONG_SIGNATURE.1
        );
        let refused = world.send_raw(request.as_bytes()).await;
        assert!(matches!(refused.status, 400 | 401), "{refused:?}");
        assert!(refused.body.len() < 8 << 10, "{} bytes", refused.body.len());
    }
    world.stop().await;
}

/// A write is answered for what it did, also when there is no memory for its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_done_is_never_refused() {
    let _turn = turn().await;
    let world = World::with(|config| {
        config.limits.sending_bytes = 6 << 20;
        config.limits.scarce_send_time = Duration::from_secs(60);
        config.limits.memory_time = Duration::from_millis(200);
    });
    let world = world.await.with_container().await;
    fill(&world).await;
    let mut deaf = connect_from(&world, "127.0.0.1").await;
    deaf.write_all(&world.request("GET", DOCS, &FEED, b"")).await.unwrap();
    wait_for_metric(&world, "headwater_sending_bytes", |bytes| (1..5 << 20).contains(&bytes)).await;
    let large = item("large", 3 << 19);
    let created = ask_from(&world, "127.0.0.1", "POST", DOCS, &[KEY], &large).await;
    let kept = ask_from(&world, "127.0.0.2", "GET", &format!("{DOCS}/large"), &[KEY], "").await;
    assert_eq!((created.status, kept.status), (201, 200));
    assert!(created.body.is_empty());
    assert_eq!(created.header("etag"), kept.header("etag"));
    let path = format!("{DOCS}/large");
    let patch = r#"{"operations":[{"op":"set","path":"/n","value":1}]}"#;
    let patched = ask_from(&world, "127.0.0.1", "PATCH", &path, &[KEY], patch).await;
    let kept = ask_from(&world, "127.0.0.2", "GET", &path, &[KEY], "").await;
    assert_eq!((patched.status, kept.json()["n"].as_i64()), (200, Some(1)));
    // A batch has its results in its body, so it is not begun.
    let batch =
        format!(r#"[{{"operationType":"Create","resourceBody":{}}}]"#, item("other", 3 << 19));
    let head =
        [KEY, ("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")];
    let refused = ask_from(&world, "127.0.0.1", "POST", DOCS, &head, &batch).await;
    let kept = ask_from(&world, "127.0.0.2", "GET", &format!("{DOCS}/other"), &[KEY], "").await;
    assert_eq!((refused.status, kept.status), (429, 404));
    drop(deaf);
    world.stop().await;
}

/// A query in binary JSON of 3.9 MB, nearly all of it one string.
fn large_binary_query() -> Vec<u8> {
    let text = format!(r#"{{"a":"{}","query":"SELECT * FROM c"}}"#, "x".repeat(3_900_000));
    headwater_protocol::binary::encode(text.as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_binary_bodies_in_parallel_are_received_within_the_budget() {
    let _turn = turn().await;
    let world = World::new().await.with_container().await;
    let head =
        [KEY, ("x-ms-documentdb-isquery", "True"), ("Content-Type", "application/query+json")];
    let request: Bytes = world.request("POST", DOCS, &head, &large_binary_query()).into();
    let before = resident_bytes();
    let mut senders = JoinSet::new();
    for _ in 0..400 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        let request = request.clone();
        senders.spawn(async move {
            let _ = stream.write_all(&request).await;
            read_answer(&mut stream).await.map(|got| got.status)
        });
    }
    let most = Arc::new(AtomicUsize::new(0));
    let measuring = most.clone();
    let runtime = world.runtime.clone();
    let mut measurer = JoinSet::new();
    measurer.spawn(async move {
        loop {
            let grown = resident_bytes().saturating_sub(before);
            measuring.fetch_max(grown, Ordering::Relaxed);
            runtime.sleep(Duration::from_millis(20)).await;
        }
    });
    let mut answered = 0;
    while let Some(status) = senders.join_next().await {
        // Which of them wait for too long depends on the machine.
        answered += usize::from(matches!(status.unwrap(), Ok(200 | 429)));
    }
    let most = most.load(Ordering::Relaxed);
    assert!(most < MEMORY_MAX, "{} MiB for binary bodies", most >> 20);
    assert_eq!(answered, 400);
    neighbour_is_served(&world).await;
    world.stop().await;
}

/// A sender that has sent its first step and waits for the memory of the rest.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_sender_has_sent_stays_counted_while_it_waits_for_more() {
    let _turn = turn().await;
    let world = World::with(|config| config.limits.receiving_bytes = 1 << 20).await;
    let world = world.with_container().await;
    let request = world.request("POST", DOCS, &[KEY], item("1", 700 << 10).as_bytes());
    let mut first = connect_from(&world, "127.0.0.1").await;
    first.write_all(&request[..300 << 10]).await.unwrap();
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes >= 700 << 10).await;
    let mut second = connect_from(&world, "127.0.0.1").await;
    second.write_all(&request[..50 << 10]).await.unwrap();
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes >= 764 << 10).await;
    second.write_all(&request[50 << 10..200 << 10]).await.unwrap();
    world.runtime.sleep(Duration::from_millis(300)).await;
    let counted = metric(&world, "headwater_receiving_bytes").await;
    assert!(counted >= 764 << 10, "{counted} bytes");
    // It continues when the first one is done.
    first.write_all(&request[300 << 10..]).await.unwrap();
    assert_eq!(read_answer(&mut first).await.unwrap().status, 201);
    second.write_all(&request[200 << 10..]).await.unwrap();
    assert_eq!(read_answer(&mut second).await.unwrap().status, 409);
    wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes == 0).await;
    world.stop().await;
}

/// Where an address has all the connections it may have, the one that has been longest in its head or body ends.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_senders_do_not_lock_out_their_own_address() {
    let _turn = turn().await;
    let world = World::with(|config| config.limits.connections = 50).await.with_container().await;
    let body = world.request("POST", DOCS, &[KEY], item("1", 10_000).as_bytes());
    let head = b"GET /health/live HTTP/1.1\r\nHost";
    let wait = [FEED[0], ("If-None-Match", "*"), ("Prefer", "wait=50")];
    let mut busy = connect_from(&world, "127.0.0.1").await;
    busy.write_all(&world.request("GET", DOCS, &wait, b"")).await.unwrap();
    wait_for_metric(&world, "headwater_waiting_readers", |readers| readers == 1).await;
    let mut stalled = Vec::new();
    for number in 0..39 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        let sent = if number % 2 == 0 { &body[..body.len() - 5_000] } else { &head[..] };
        stream.write_all(sent).await.unwrap();
        stalled.push(stream);
    }
    wait_for_metric(&world, "headwater_connections", |count| count >= 40).await;
    for number in 0..5 {
        let id = number.to_string();
        let own = ask_from(&world, "127.0.0.1", "POST", DOCS, &[KEY], &item(&id, 100)).await;
        assert_eq!(own.status, 201, "{own:?}");
    }
    // Ten more stay open: each takes the place of another one.
    let mut more = Vec::new();
    for _ in 0..10 {
        let mut stream = connect_from(&world, "127.0.0.1").await;
        stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert_eq!(read_answer(&mut stream).await.unwrap().status, 200);
        more.push(stream);
    }
    let moment = Duration::from_millis(100);
    assert!(is_closed_within(&world, &mut stalled[0], moment).await, "the oldest body");
    assert!(is_closed_within(&world, &mut stalled[1], moment).await, "the oldest head");
    assert!(!is_closed_within(&world, &mut stalled[38], moment).await, "the youngest");
    assert!(!is_closed_within(&world, &mut busy, moment).await, "a reader that waits");
    neighbour_is_served(&world).await;
    world.stop().await;
}

/// Answers without a body are nothing but heads. They wait while the client reads nothing.
#[tokio::test(flavor = "multi_thread")]
async fn heads_over_http2_that_no_client_reads_are_held_within_the_budget() {
    let _turn = turn().await;
    for (receiving_bytes, is_ended) in [(64 << 20, false), (256 << 10, true)] {
        let world = World::with(|config| {
            config.check_signatures = false;
            config.limits.receiving_bytes = receiving_bytes;
        });
        let world = world.await;
        let mut stream = connect_http2(&world, "127.0.0.1").await;
        // Without a table of fields, each head is written whole: 3 KB.
        stream.write_all(&frame(4, 0, 0, &[0, 1, 0, 0, 0, 0])).await.unwrap();
        let mut fields =
            fields_of("/dbs", &[("Host", "localhost"), ("Origin", "http://localhost")]);
        fields = [&[0x02, 7][..], b"OPTIONS", &fields[1..]].concat();
        // Few at a time: streams beyond the limit would be refused.
        let asked = async {
            for number in 0..20_000_u32 {
                let head = frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &fields);
                if stream.write_all(&head).await.is_err() {
                    return;
                }
                if number % 16 == 0 {
                    world.runtime.sleep(Duration::from_millis(1)).await;
                }
            }
        };
        let _ = world.runtime.timeout(Duration::from_secs(3), asked).await;
        if is_ended {
            assert!(ends_within(&world, &mut stream, Duration::from_secs(2)).await);
        } else {
            let counted = metric(&world, "headwater_receiving_bytes").await;
            assert!(counted >= 100 * (3 << 10), "{counted} bytes");
        }
        drop(stream);
        wait_for_metric(&world, "headwater_receiving_bytes", |bytes| bytes == 0).await;
        world.stop().await;
    }
}
