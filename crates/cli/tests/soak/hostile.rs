//! Hostile clients that send invalid requests during the workload. They must be refused, and others are unaffected.
//!
//! Their requests that happen to be valid writes go to a separate container, which is not judged.

use crate::world::{DATABASE, ITEMS, NOISE, World};
use headwater_protocol::binary;
use headwater_protocol::route;
use headwater_runtime::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a hostile client waits for an answer it may not get.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections of one storm.
const STORM: usize = 300;

/// How often each attack was sent, and the counts of its answers by status; 0 is no answer.
pub(crate) type Tally = BTreeMap<&'static str, BTreeMap<u16, u64>>;

/// Adds the counts of another client.
pub(crate) fn add(tally: &mut Tally, other: Tally) {
    for (trick, statuses) in other {
        let known = tally.entry(trick).or_default();
        statuses.into_iter().for_each(|(status, count)| *known.entry(status).or_default() += count);
    }
}

/// Sends attacks until writing is over.
pub(crate) async fn attack(world: Arc<World>, seed: u64) -> Tally {
    let mut hostile = Hostile { world, random: Random::seeded(seed) };
    let mut tally = Tally::new();
    while !hostile.world.is_over() {
        let (trick, status) = hostile.trick().await;
        *tally.entry(trick).or_default().entry(status.unwrap_or(0)).or_default() += 1;
        if status == Some(500) {
            hostile.world.complain(format!("a hostile client was answered 500: {trick}"));
        }
        let pause = hostile.random.below(60);
        hostile.world.pause(pause).await;
    }
    tally
}

struct Hostile {
    world: Arc<World>,
    random: Random,
}

type Status = Option<u16>;

impl Hostile {
    async fn trick(&mut self) -> (&'static str, Status) {
        match self.random.below(20) {
            0 => ("bad signature", self.bad_signature().await),
            1 => ("malformed JSON", self.malformed_json().await),
            2 => ("deep JSON", self.deep_json().await),
            3 => ("oversized body", self.oversized_body().await),
            4 => ("endless chunks", self.endless_chunks().await),
            5 => ("truncated body", self.truncated_body().await),
            6 => ("header flood", self.header_flood().await),
            7 => ("slow sender", self.slow_sender().await),
            8 => ("slow reader", self.slow_reader().await),
            9 => ("half-closed", self.half_closed().await),
            10 => ("pipelined garbage", self.pipelined_garbage().await),
            11 => ("random bytes", self.random_bytes().await),
            12 => ("HTTP/2 garbage", self.http2_garbage().await),
            13 | 14 => ("binary mutation", self.binary_mutation().await),
            15 | 16 => ("absurd header", self.absurd_header().await),
            17 => ("absurd query", self.absurd_query().await),
            18 => ("abandoned stream", self.abandoned_stream().await),
            _ => ("connection storm", self.storm().await),
        }
    }

    fn docs(&self) -> String {
        format!("/dbs/{DATABASE}/colls/{NOISE}/docs")
    }

    /// Returns the head of a signed request, without its last line break.
    fn head(&self, verb: &str, path: &str, length: usize) -> String {
        let (token, date) = self.world.sign(verb, &route::parse(path).unwrap());
        format!(
            "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nx-ms-version: 2020-07-15\r\nx-ms-date: {date}\r\n\
             authorization: {token}\r\nContent-Length: {length}\r\n"
        )
    }

    fn post(&self, more: &str, body: &[u8]) -> Vec<u8> {
        let head = self.head("POST", &self.docs(), body.len());
        let mut bytes = format!("{head}{more}\r\n").into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    async fn connect(&self) -> Option<TcpStream> {
        TcpStream::connect(self.world.address()).await.ok()
    }

    /// Sends bytes. Returns the status of the answer, if there is one.
    async fn send(&self, bytes: &[u8]) -> Status {
        let mut stream = self.connect().await?;
        let exchange = async {
            // A server that refuses early may close before it has read everything.
            let _ = stream.write_all(bytes).await;
            status_of(&mut stream).await
        };
        self.world.runtime.timeout(PATIENCE, exchange).await?
    }

    fn noise(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| u8::try_from(self.random.below(256)).unwrap()).collect()
    }

    async fn bad_signature(&mut self) -> Status {
        let request = String::from_utf8(self.post("", br#"{"id":"1","pk":"k1"}"#)).unwrap();
        let request = match self.random.below(3) {
            0 => request.replace("sig", "sgi"),
            1 => request.replace("authorization: ", "authorization: x"),
            _ => request.replacen(DATABASE, "other", 1),
        };
        let status = self.send(request.as_bytes()).await;
        if status.is_some_and(|status| status < 400) {
            self.world.complain(format!("a request without a signature was answered {status:?}"));
        }
        status
    }

    async fn malformed_json(&mut self) -> Status {
        let bodies: [&[u8]; 7] = [
            b"{",
            br#"{"id":"1","pk":"k1""#,
            br#"{"id":1,"pk":"k1"}"#,
            b"{\"id\":\"\xff\xfe\",\"pk\":\"k1\"}",
            br#"{"id":"1","pk":"k1","n":1e999999}"#,
            br#"[{"id":"1"}]"#,
            b"null",
        ];
        let body = *self.random.pick(&bodies);
        self.send(&self.post("x-ms-documentdb-partitionkey: [\"k1\"]\r\n", body)).await
    }

    async fn deep_json(&mut self) -> Status {
        let depth = 1 + self.random.index(200_000);
        let body = format!("{{\"id\":\"1\",\"pk\":\"k1\",\"a\":{}", "[".repeat(depth));
        self.send(&self.post("", body.as_bytes())).await
    }

    async fn oversized_body(&mut self) -> Status {
        let length = (5 << 20) + self.random.index(100 << 20);
        let head = self.head("POST", &self.docs(), length);
        let mut bytes = format!("{head}\r\n").into_bytes();
        bytes.resize(bytes.len() + (1 << 20), b'x');
        self.send(&bytes).await
    }

    async fn endless_chunks(&mut self) -> Status {
        let head = self.head("POST", &self.docs(), 0);
        let head = head.replace("Content-Length: 0", "Transfer-Encoding: chunked");
        let mut bytes = format!("{head}\r\n").into_bytes();
        for _ in 0..80 {
            bytes.extend_from_slice(b"10000\r\n");
            bytes.resize(bytes.len() + (1 << 16), b' ');
            bytes.extend_from_slice(b"\r\n");
        }
        self.send(&bytes).await
    }

    async fn truncated_body(&mut self) -> Status {
        let mut bytes = self.post("", &[b' '; 1000]);
        bytes.truncate(bytes.len() - 1 - self.random.index(1000));
        let mut stream = self.connect().await?;
        stream.write_all(&bytes).await.ok()?;
        if self.random.chance(50) {
            return None;
        }
        stream.shutdown().await.ok()?;
        self.world.runtime.timeout(PATIENCE, status_of(&mut stream)).await?
    }

    async fn header_flood(&mut self) -> Status {
        let head = match self.random.below(3) {
            0 => "a: b\r\n".repeat(20_000),
            1 => format!("a: {}\r\n", "b".repeat(1 << 20)),
            _ => "x-ms-documentdb-partitionkey: [\"k1\"]\r\n".repeat(90),
        };
        self.send(&self.post(&head, br#"{"id":"1","pk":"k1"}"#)).await
    }

    /// Sends a request byte by byte without completing it.
    async fn slow_sender(&mut self) -> Status {
        let bytes = self.post("", &[b' '; 1000]);
        let stop = self.random.index(bytes.len() - 1);
        let mut stream = self.connect().await?;
        stream.write_all(&bytes[..stop.min(300)]).await.ok()?;
        for byte in bytes[stop.min(300)..stop].iter().take(60) {
            if self.world.is_over() || stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            self.world.pause(50).await;
        }
        None
    }

    /// Requests much data, and reads nothing of it.
    async fn slow_reader(&mut self) -> Status {
        let path = format!("/dbs/{DATABASE}/colls/{ITEMS}/docs");
        let request = format!("{}A-IM: Incremental feed\r\n\r\n", self.head("GET", &path, 0));
        let mut stream = self.connect().await?;
        stream.write_all(request.repeat(50).as_bytes()).await.ok()?;
        self.world.pause(2000).await;
        None
    }

    /// Sends a full request and closes its sending side. The server may treat that as a disconnect.
    async fn half_closed(&mut self) -> Status {
        let path = format!("/dbs/{DATABASE}/colls/{ITEMS}");
        let request = format!("{}\r\n", self.head("GET", &path, 0));
        let mut stream = self.connect().await?;
        stream.write_all(request.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()?;
        self.world.runtime.timeout(PATIENCE, status_of(&mut stream)).await?
    }

    async fn pipelined_garbage(&mut self) -> Status {
        let path = format!("/dbs/{DATABASE}/colls/{ITEMS}");
        let mut bytes = format!("{}\r\n", self.head("GET", &path, 0)).into_bytes();
        let length = 1 + self.random.index(100_000);
        bytes.extend_from_slice(&self.noise(length));
        self.send(&bytes).await
    }

    async fn random_bytes(&mut self) -> Status {
        let length = 1 + self.random.index(10_000);
        let bytes = self.noise(length);
        let mut stream = self.connect().await?;
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        self.world.runtime.timeout(PATIENCE, status_of(&mut stream)).await?
    }

    /// Sends a valid preface, then frames of any type, length and flags.
    async fn http2_garbage(&mut self) -> Status {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for _ in 0..self.random.index(50) {
            let length = self.random.index(200);
            let stream = u8::try_from(self.random.below(8)).unwrap();
            let kind = u8::try_from(self.random.below(12)).unwrap();
            let flags = u8::try_from(self.random.below(256)).unwrap();
            let declared = u8::try_from(length).unwrap();
            bytes.extend_from_slice(&[0, 0, declared, kind, flags, 0, 0, 0, stream]);
            bytes.extend_from_slice(&self.noise(length));
        }
        let mut stream = self.connect().await?;
        let _ = stream.write_all(&bytes).await;
        let mut buffer = [0; 1024];
        let reading = async { while matches!(stream.read(&mut buffer).await, Ok(1..)) {} };
        let _ = self.world.runtime.timeout(Duration::from_millis(500), reading).await;
        None
    }

    /// Sends binary JSON with a few bytes changed.
    async fn binary_mutation(&mut self) -> Status {
        let text = br#"{"id":"m","pk":"k1","a":[1,2.5,-3,null,true,"long enough to be a reference"],
            "b":{"c":"long enough to be a reference","d":1234567890123,"e":"2024-01-01T00:00:00Z"}}"#;
        let mut bytes = binary::encode(text).unwrap();
        for _ in 0..=self.random.index(6) {
            let at = self.random.index(bytes.len());
            match self.random.below(4) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes.insert(at, u8::try_from(self.random.below(256)).unwrap()),
                _ => bytes[at] = u8::try_from(self.random.below(256)).unwrap(),
            }
        }
        let more = "x-ms-documentdb-partitionkey: [\"k1\"]\r\nx-ms-documentdb-is-upsert: True\r\n";
        self.send(&self.post(more, &bytes)).await
    }

    /// Sends tokens, continuations, etags and keys that no server issued.
    async fn absurd_header(&mut self) -> Status {
        let name = *self.random.pick(&[
            "x-ms-session-token",
            "x-ms-continuation",
            "If-None-Match",
            "If-Modified-Since",
            "x-ms-documentdb-partitionkey",
            "x-ms-documentdb-partitionkeyrangeid",
            "x-ms-max-item-count",
            "x-ms-start-epk",
            "Prefer",
            "A-IM",
        ]);
        let long = "9".repeat(1 + self.random.index(5000));
        let brackets = "[".repeat(1 + self.random.index(5000));
        let tokens =
            ["0:-1#", "0:1#99999999999999999999", "\"-1\"", "e30=", "*", "%00", "\u{fffd}"];
        let value = match self.random.below(3) {
            0 => long.as_str(),
            1 => brackets.as_str(),
            _ => *self.random.pick(&tokens),
        };
        let path = format!("/dbs/{DATABASE}/colls/{ITEMS}/docs");
        let feed = if self.random.chance(60) { "A-IM: Incremental feed\r\n" } else { "" };
        let head = self.head("GET", &path, 0);
        self.send(format!("{head}{feed}{name}: {value}\r\n\r\n").as_bytes()).await
    }

    async fn absurd_query(&mut self) -> Status {
        let count = 1 + self.random.index(20_000);
        let text = match self.random.below(5) {
            0 => format!("SELECT {}1", "(".repeat(count)),
            1 => format!("SELECT * FROM c WHERE {}true", "NOT ".repeat(count)),
            2 => format!("SELECT 1{}", "+1".repeat(count)),
            3 => format!("SELECT * FROM c WHERE c.id IN ({}1)", "1,".repeat(count)),
            _ => "SELECT * FROM c JOIN a IN c.x JOIN b IN c.x JOIN d IN c.x".to_owned(),
        };
        let body = serde_json::json!({ "query": text }).to_string();
        let more = "x-ms-documentdb-isquery: True\r\nContent-Type: application/query+json\r\n\
                    x-ms-documentdb-query-enablecrosspartition: True\r\n";
        self.send(&self.post(more, body.as_bytes())).await
    }

    /// Listens and disconnects.
    async fn abandoned_stream(&mut self) -> Status {
        let path = format!("/dbs/{DATABASE}/colls/{ITEMS}");
        let head = self.head("GET", &path, 0);
        let stream_path = format!("/_headwater/changes/{DATABASE}/{ITEMS}?from=beginning");
        let head = head.replacen(&path, &stream_path, 1);
        let mut stream = self.connect().await?;
        stream.write_all(format!("{head}\r\n").as_bytes()).await.ok()?;
        self.world.runtime.timeout(PATIENCE, status_of(&mut stream)).await?
    }

    /// Opens and drops connections, most of them without sending anything.
    async fn storm(&mut self) -> Status {
        let mut open = Vec::new();
        for _ in 0..STORM {
            let Some(mut stream) = self.connect().await else { break };
            if self.random.chance(20) {
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: ").await;
            }
            open.push(stream);
        }
        drop(open);
        None
    }
}

/// Reads the status of the next answer; none if the connection ends first.
async fn status_of(stream: &mut TcpStream) -> Status {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
        if let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
            let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
            return line.split(' ').nth(1)?.parse().ok();
        }
    }
}
