//! Event streams that resume: behind each event, inside transactions, over several ranges and through filters.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use headwater_store::Options;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use support::World;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const FILTER: &str = "&where=c.n+!%3D+3&select=c.id,c.pk,c.n,c.round";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    id: String,
    data: String,
}

/// An event stream that is read.
struct Listener<'w> {
    world: &'w World,
    stream: TcpStream,
    bytes: Vec<u8>,
    text: String,
}

impl<'w> Listener<'w> {
    async fn open(world: &'w World, query: &str, last_id: Option<&str>) -> Listener<'w> {
        let mut stream = world.connect().await;
        stream.write_all(request(query, last_id.map(str::as_bytes)).as_slice()).await.unwrap();
        let mut listener = Listener { world, stream, bytes: Vec::new(), text: String::new() };
        let head = loop {
            let end = listener.bytes.windows(4).position(|four| four == b"\r\n\r\n");
            match end {
                Some(end) => break listener.bytes.drain(..end + 4).collect::<Vec<u8>>(),
                None => listener.read().await,
            }
        };
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{last_id:?}: {head}");
        listener
    }

    async fn read(&mut self) {
        let mut buffer = [0; 16 << 10];
        let read =
            self.world.runtime.timeout(Duration::from_secs(10), self.stream.read(&mut buffer));
        let count = read.await.unwrap_or_else(|| panic!("no more events after {:?}", self.text));
        let count = count.unwrap();
        assert!(count > 0, "the stream ended after {:?}", self.text);
        self.bytes.extend_from_slice(&buffer[..count]);
    }

    /// Decodes one chunk of the body, if it is complete.
    fn decode_chunk(&mut self) -> bool {
        let Some(line) = self.bytes.windows(2).position(|two| two == b"\r\n") else { return false };
        let length = std::str::from_utf8(&self.bytes[..line]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if self.bytes.len() < line + 2 + length + 2 {
            return false;
        }
        let chunk: Vec<u8> = self.bytes.drain(..line + 2 + length + 2).collect();
        self.text.push_str(std::str::from_utf8(&chunk[line + 2..line + 2 + length]).unwrap());
        true
    }

    /// The next event; comments are skipped.
    async fn next(&mut self) -> Event {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let text: String = self.text.drain(..end + 2).collect();
                let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
                let Some(data) = field("data: ") else { continue };
                assert_ne!(field("event: "), Some("error"), "{text}");
                let id = field("id: ").unwrap_or_else(|| panic!("an event without an id: {text}"));
                return Event { id: id.to_owned(), data: data.to_owned() };
            }
            if !self.decode_chunk() {
                self.read().await;
            }
        }
    }

    async fn take(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.next().await);
        }
        events
    }
}

fn request(query: &str, last_id: Option<&[u8]>) -> Vec<u8> {
    let line = format!("GET /_headwater/changes/db/c?{query} HTTP/1.1\r\nHost: localhost\r\n");
    let mut bytes = line.into_bytes();
    if let Some(id) = last_id {
        bytes.extend_from_slice(b"Last-Event-ID: ");
        bytes.extend_from_slice(id);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

async fn world(partitions: u32) -> World {
    let mut options = Options::default();
    options.partitions = partitions;
    let world = World::with_options(options, |config| config.check_signatures = false).await;
    world.with_container().await
}

async fn send(world: &World, path: &str, key: &str, head: &[(&str, &str)], body: &Value) {
    let key = json!([key]).to_string();
    let head = [&[("x-ms-documentdb-partitionkey", key.as_str())], head].concat();
    let got = world.send("POST", path, &head, &body.to_string()).await;
    assert!(matches!(got.status, 200 | 201), "{got:?}");
}

/// Creates five items of a key in one transaction.
async fn batch(world: &World, key: &str) {
    let create = |n: usize| {
        let body = json!({ "id": format!("batch{n}"), "pk": key, "n": n, "round": 1 });
        json!({ "operationType": "Create", "resourceBody": body })
    };
    let operations: Vec<Value> = (0..5).map(create).collect();
    let head = [("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")];
    send(world, DOCS, key, &head, &json!(operations)).await;
}

/// Of each key: a batch, the writes of a script, and a later write to one item of each.
async fn fill(world: &World) {
    let script = "function make(key) {
        var link = getContext().getCollection().getSelfLink();
        for (var n = 0; n < 5; n++)
            __.createDocument(link, { id: 'script' + n, pk: key, n: n, round: 1 }, function (e) { if (e) throw e });
    }";
    let script = json!({ "id": "make", "body": script }).to_string();
    let made = world.send("POST", "/dbs/db/colls/c/sprocs", &[], &script).await;
    assert_eq!(made.status, 201);
    for key in KEYS {
        batch(world, key).await;
        send(world, "/dbs/db/colls/c/sprocs/make", key, &[], &json!([key])).await;
        for id in ["batch2", "script0"] {
            let item = json!({ "id": id, "pk": key, "n": 2, "round": 2 });
            send(world, DOCS, key, &[("x-ms-documentdb-is-upsert", "True")], &item).await;
        }
    }
}

fn data(events: &[Event]) -> BTreeSet<String> {
    events.iter().map(|event| event.data.clone()).collect()
}

/// Reconnects behind each event, and then again and again behind each first event that comes.
async fn check_all_places(world: &World, query: &str, count: usize) {
    let all = Listener::open(world, query, None).await.take(count).await;
    let expected = data(&all);
    assert_eq!(expected.len(), count, "{query}: {all:?}");
    for (index, event) in all.iter().enumerate() {
        let mut rest = Listener::open(world, query, Some(&event.id)).await;
        let rest = rest.take(count - index - 1).await;
        let both: BTreeSet<String> = data(&all[..=index]).union(&data(&rest)).cloned().collect();
        assert_eq!(both, expected, "{query}: behind {event:?}: {rest:?}");
    }
    let mut one_each = vec![Listener::open(world, query, None).await.next().await];
    while one_each.len() < count {
        let last = one_each.last().unwrap().id.clone();
        one_each.push(Listener::open(world, query, Some(&last)).await.next().await);
    }
    assert_eq!(data(&one_each), expected, "{query}: one event of each connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_behind_each_event_of_a_batch_and_of_a_script() {
    for partitions in [1, 3] {
        let world = world(partitions).await;
        fill(&world).await;
        let each = KEYS.len();
        // Two of the ten items of a key were written again; the filter leaves out two others.
        for (query, count) in [
            ("from=beginning", 10 * each),
            ("from=beginning&mode=all", 12 * each),
            (&format!("from=beginning{FILTER}"), 8 * each),
            (&format!("from=beginning&mode=all{FILTER}"), 10 * each),
            ("from=beginning&key=%5B%22b%22%5D", 10),
            ("from=Tue,+14+Nov+2023+22:13:20+GMT", 10 * each),
        ] {
            check_all_places(&world, query, count).await;
        }
        world.stop().await;
    }
}

/// A later write takes an item out of the transaction: places on a page would move, ordinals do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_in_a_transaction_that_later_writes_have_thinned_out() {
    let world = world(1).await;
    batch(&world, "a").await;
    let query = "from=beginning";
    let before = Listener::open(&world, query, None).await.take(5).await;
    for id in ["batch0", "batch3"] {
        let item = json!({ "id": id, "pk": "a", "n": 0, "round": 2 });
        send(&world, DOCS, "a", &[("x-ms-documentdb-is-upsert", "True")], &item).await;
    }
    let ids = |events: &[Event]| -> Vec<String> {
        let id = |event: &Event| serde_json::from_str::<Value>(&event.data).unwrap()["id"].clone();
        events.iter().map(|event| id(event).as_str().unwrap().to_owned()).collect()
    };
    for (event, expected) in before.iter().zip([
        ["batch1", "batch2", "batch4", "batch0", "batch3"].as_slice(),
        &["batch2", "batch4", "batch0", "batch3"],
        &["batch4", "batch0", "batch3"],
        &["batch4", "batch0", "batch3"],
        &["batch0", "batch3"],
    ]) {
        let mut rest = Listener::open(&world, query, Some(&event.id)).await;
        assert_eq!(ids(&rest.take(expected.len()).await), expected, "behind {event:?}");
    }
    // The range is split inside of the transaction of the last event.
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    container.split(container.ranges()[0].id, None).await.unwrap();
    let mut rest = Listener::open(&world, query, Some(&before[1].id)).await;
    assert_eq!(ids(&rest.take(4).await), ["batch2", "batch4", "batch0", "batch3"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_refuses_what_is_no_event_id() {
    let world = world(1).await;
    batch(&world, "a").await;
    let events = Listener::open(&world, "from=beginning", None).await.take(5).await;
    let (middle, end) = (&events[1].id, &events[4].id);
    assert!(middle.contains('~') && !end.contains('~'), "{events:?}");
    let lsn: u64 = end.parse().unwrap();
    let key = &middle[middle.find('~').unwrap() + 1..middle.find('.').unwrap()];
    let none = lsn - 1;
    let cases = [
        format!("{middle}~"),
        format!("{middle}.0"),
        format!("{end}~{key}.{lsn}.1"),
        format!("{none}~{key}.{}.1", lsn + 1),
        format!("{none}~{key}.{lsn}.+1"),
        format!("{none}~{key}.{lsn}.65536"),
        format!("{none}~{key}.0{lsn}.1"),
        format!("{none}~{}.{lsn}.1", key.to_lowercase()),
        format!("{none}~{}.{lsn}.1", "F".repeat(2_000)),
        format!("{none}~{key}.{lsn}.1").repeat(2),
        format!("{none}{}", format!("~{key}.{lsn}.1").repeat(100)),
        "~".repeat(10_000),
        "\u{feff}1".to_owned(),
        "-1".to_owned(),
    ];
    for id in cases.iter().map(String::as_bytes).chain([&b"1\xff"[..], b"\xc3\x28~A.1.1"]) {
        let got = world.send_raw(&request("from=beginning", Some(id))).await;
        let text = String::from_utf8_lossy(id);
        assert_eq!(got.status, 400, "{text}: {got:?}");
        let message = got.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.len() > 20 && message.len() < 400, "{text}: {message}");
    }
    // In the address it is good as well.
    let escaped = middle.replace('~', "%7E");
    let mut rest = Listener::open(&world, &format!("position={escaped}"), None).await;
    assert_eq!(rest.take(3).await, events[2..]);
    world.stop().await;
}
