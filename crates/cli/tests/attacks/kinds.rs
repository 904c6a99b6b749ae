//! The attacks from one address: floods, expensive requests, stalled heads and bodies, unread answers.
//!
//! Each attack runs until it is dropped, which closes its connections. It never ends by itself.

use crate::target::{DOCS, KEY, Sent, Target, ask_on, query, request};
use bytes::Bytes;
use headwater_runtime::TaskGroup;
use http_body_util::Empty;
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::Future;
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

/// The address of the attackers.
pub(crate) const FROM: &str = "127.0.0.1";
const FEED: (&str, &str) = ("A-IM", "Incremental feed");

type Attacker = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A kind of attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Number of concurrent clients.
    clients: usize,
    /// Time until the attack takes effect.
    pub(crate) lead_time: Duration,
    /// Whether the attack consists of connections only.
    only_connects: bool,
    /// Whether other programs at the address of the attack must be served too.
    pub(crate) spares_its_address: bool,
    client: fn(Target, usize) -> Attacker,
}

/// Running attackers, stopped on drop.
///
/// Their threads run only while a processor is idle, because a remote attacker takes processor time from the
/// server only through its requests, and none from the measuring neighbour. The lowest priority is not
/// enough: a busy thread of any priority may keep its processor until the next tick of the kernel, up to 4 ms.
pub(crate) struct Attackers {
    threads: Option<tokio::runtime::Runtime>,
    sent: Arc<Sent>,
}

impl Drop for Attackers {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

impl Attackers {
    /// The traffic sent so far.
    pub(crate) fn sent(&self) -> &Sent {
        &self.sent
    }
}

impl Attack {
    /// Returns whether this traffic shows that the attack has taken place.
    pub(crate) fn has_happened(&self, sent: &Sent) -> bool {
        sent.connections() > 0 && (self.only_connects || sent.bytes() > 0)
    }

    pub(crate) fn begin(&self, target: &Target) -> Attackers {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .on_thread_start(run_only_while_idle)
            .enable_all()
            .build()
            .unwrap();
        let (target, sent) = target.for_attackers();
        for number in 0..self.clients {
            threads.spawn((self.client)(target.clone(), number));
        }
        Attackers { threads: Some(threads), sent }
    }
}

/// Sets this thread's policy to SCHED_IDLE, if the program for it is installed.
fn run_only_while_idle() {
    static NOTE: Once = Once::new();
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let status = Command::new("chrt")
        .args(["--idle", "--pid", "0"])
        .arg(thread.file_name().unwrap())
        .status();
    match status {
        Ok(status) => assert!(status.success(), "chrt: {status}"),
        // Without it the attack is the same, but the neighbour's latency is less meaningful.
        Err(error) => NOTE.call_once(|| {
            println!("attackers run at normal priority: cannot run chrt of util-linux: {error}");
        }),
    }
}

const SOON: Duration = Duration::from_millis(300);
const LATER: Duration = Duration::from_millis(1500);

macro_rules! attack {
    ($name:literal, $clients:literal, $lead:expr, $client:expr) => {
        attack!($name, $clients, $lead, false, $client)
    };
    ($name:literal, $clients:literal, $lead:expr, $only_connects:literal, $client:expr) => {
        Attack {
            name: $name,
            clients: $clients,
            lead_time: $lead,
            only_connects: $only_connects,
            spares_its_address: false,
            client: $client,
        }
    };
}

pub(crate) const ATTACKS: &[Attack] = &[
    attack!("long queries", 16, SOON, |target, _| repeat(target, query(LONG))),
    attack!("long filters of the feed", 16, SOON, |target, _| repeat(target, filtered_feed())),
    attack!("queries whose rows are large", 16, SOON, |target, number| {
        repeat(target, query(LARGE[number % LARGE.len()]))
    }),
    attack!("queries whose clients leave", 16, SOON, |target, number| {
        leave(target, query([LONG, LARGE[0]][number % 2]))
    }),
    attack!("endless procedures", 16, SOON, |target, _| repeat(target, procedure())),
    Attack {
        spares_its_address: true,
        ..attack!("heads that never end", 4096, LATER, |target, _| {
            stall(target, "GET /dbs HTTP/1.1\r\nHost".to_owned())
        })
    },
    Attack {
        spares_its_address: true,
        ..attack!("bodies that never end", 4096, LATER, |target, _| {
            stall(target, half_a_body(2_000))
        })
    },
    attack!("large bodies that never end", 500, LATER, |target, _| {
        stall(target, half_a_body(1_900_000))
    }),
    attack!("large bodies, one after another", 32, SOON, |target, number| {
        repeat(target, large_item(number))
    }),
    attack!("answers over HTTP/1 that are not read", 200, LATER, |target, _| {
        stall(target, request("GET", DOCS, &[FEED], "").repeat(50))
    }),
    attack!("answers over HTTP/2 that are not read", 30, LATER, |target, _| unread(target)),
    attack!("event streams that are not read", 200, LATER, |target, _| {
        stall(target, request("GET", "/_headwater/changes/d/c?from=beginning", &[], ""))
    }),
    attack!("heads over HTTP/2 that never end", 4096, LATER, |target, _| unfinished(target)),
    attack!("frames over HTTP/2 without requests", 64, SOON, |target, number| {
        flood(target, number)
    }),
    attack!("readers that wait for what is no feed", 500, SOON, |target, _| {
        ask_often(target, request("GET", "/dbs/d/colls/c", &[FEED, ("Prefer", "wait=30")], ""))
    }),
    attack!("readers that wait", 4096, LATER, |target, _| {
        let head = [FEED, ("Prefer", "wait=30"), ("If-None-Match", "*")];
        stall(target, request("GET", DOCS, &head, ""))
    }),
    attack!("conditions of patches", 16, SOON, |target, _| repeat(target, conditional_patch())),
    attack!("connections that come and leave", 16, SOON, true, |target, _| knock(target)),
    attack!("deep and wide documents", 16, SOON, |target, number| {
        repeat(target, [deep_item(), wide_item()][number % 2].clone())
    }),
];

/// A query that would take hours.
const LONG: &str =
    "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN w IN c.a";
const LARGE: [&str; 6] = [
    "SELECT c.s, x, y FROM c JOIN x IN c.a JOIN y IN c.a",
    "SELECT c.s, x FROM c JOIN x IN c.a JOIN y IN c.a ORDER BY c.id",
    "SELECT VALUE ARRAY_CONCAT(ARRAY(SELECT VALUE CONCAT(c.s, ToString(x)) FROM x IN c.a JOIN y IN c.a), c.a) FROM c",
    "SELECT VALUE COUNT(1) FROM c WHERE EXISTS(SELECT VALUE x FROM x IN c.a WHERE EXISTS(SELECT VALUE y FROM y IN c.a WHERE EXISTS(SELECT VALUE z FROM z IN c.a WHERE x + y + z < 0)))",
    "SELECT DISTINCT CONCAT(c.s, ToString(x), ToString(y)) FROM c JOIN x IN c.a JOIN y IN c.a",
    "SELECT VALUE SetUnion(ARRAY(SELECT VALUE CONCAT(c.s, ToString(x * 1000 + y)) FROM x IN c.a JOIN y IN c.a), c.a) FROM c",
];

fn filtered_feed() -> String {
    let nested = "EXISTS(SELECT VALUE x FROM x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN w IN c.a WHERE x + y + z + w < 0)";
    request("GET", DOCS, &[FEED, ("x-headwater-feed-where", nested)], "")
}

fn procedure() -> String {
    request("POST", "/dbs/d/colls/c/sprocs/endless", &[KEY], "[]")
}

fn half_a_body(bytes: usize) -> String {
    let head = format!(
        "POST {DOCS} HTTP/1.1\r\nHost: localhost\r\nx-ms-version: 2020-07-15\r\nContent-Length: {bytes}\r\n\r\n"
    );
    head + &" ".repeat(bytes / 2)
}

fn large_item(number: usize) -> String {
    let text = "x".repeat(1_900_000);
    let item = format!(r#"{{"id":"attack{number}","pk":"p","text":"{text}"}}"#);
    request("POST", DOCS, &[KEY, ("x-ms-documentdb-is-upsert", "True")], &item)
}

fn conditional_patch() -> String {
    let condition = "from c where EXISTS(SELECT VALUE x FROM x IN c.a JOIN y IN c.a JOIN z IN c.a WHERE x + y + z < 0)";
    let body = serde_json::json!({
        "condition": condition,
        "operations": [{ "op": "set", "path": "/n", "value": 1 }],
    });
    let head = [KEY, ("Content-Type", "application/json_patch+json")];
    request("PATCH", &format!("{DOCS}/rich"), &head, &body.to_string())
}

fn deep_item() -> String {
    let item =
        format!(r#"{{"id":"deep","pk":"p","a":{}1{}}}"#, "[".repeat(500_000), "]".repeat(500_000));
    request("POST", DOCS, &[KEY], &item)
}

fn wide_item() -> String {
    let properties: Vec<String> = (0..100_000).map(|number| format!(r#""p{number}":1"#)).collect();
    let item = format!(r#"{{"id":"wide","pk":"p",{}}}"#, properties.join(","));
    request("POST", DOCS, &[KEY, ("x-ms-documentdb-is-upsert", "True")], &item)
}

/// Sends the same request in a loop.
fn repeat(target: Target, request: String) -> Attacker {
    Box::pin(async move {
        loop {
            if let Ok(mut stream) = target.connect(FROM).await {
                while ask_on(&mut stream, &request).await.is_ok() {}
            }
            pause(&target).await;
        }
    })
}

/// Sends the same request ten times a second. In a tight loop, many clients would take processor time from the
/// server instead of its resources.
fn ask_often(target: Target, request: String) -> Attacker {
    Box::pin(async move {
        loop {
            let _ = target.ask(FROM, &request).await;
            target.runtime.sleep(Duration::from_millis(100)).await;
        }
    })
}

/// Sends a request and disconnects before the answer.
fn leave(target: Target, request: String) -> Attacker {
    Box::pin(async move {
        loop {
            if let Ok(mut stream) = target.connect(FROM).await {
                let _ = stream.write_all(request.as_bytes()).await;
                target.runtime.sleep(Duration::from_millis(50)).await;
            }
        }
    })
}

/// Sends an incomplete request and reads no answer.
fn stall(target: Target, text: String) -> Attacker {
    Box::pin(async move {
        loop {
            if let Ok(mut stream) = target.connect(FROM).await {
                let _ = stream.write_all(text.as_bytes()).await;
                target.runtime.sleep(Duration::from_secs(3600)).await;
            }
            pause(&target).await;
        }
    })
}

/// Connects and disconnects.
fn knock(target: Target) -> Attacker {
    Box::pin(async move {
        loop {
            drop(target.connect(FROM).await);
            target.runtime.sleep(Duration::from_millis(5)).await;
        }
    })
}

/// Requests many pages on one connection and opens no window for their bodies.
fn unread(target: Target) -> Attacker {
    Box::pin(async move {
        let Ok(stream) = target.connect(FROM).await else { return };
        let handshake = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(0)
            .handshake(TokioIo::new(stream));
        let Ok((mut sender, connection)) = handshake.await else { return };
        let tasks = TaskGroup::new(target.runtime.clone());
        tasks.spawn("connection", |_| async move { drop(connection.await) });
        let mut answers = Vec::new();
        for _ in 0..100 {
            let request = Request::get(format!("http://{}{DOCS}", target.address))
                .header("Host", "localhost")
                .header(FEED.0, FEED.1)
                .body(Empty::<Bytes>::new())
                .unwrap();
            if sender.ready().await.is_err() {
                break;
            }
            match sender.send_request(request).await {
                Ok(answer) => answers.push(answer),
                Err(_) => break,
            }
        }
        target.runtime.sleep(Duration::from_secs(3600)).await;
    })
}

/// Builds an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The connection preface of HTTP/2.
fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat()
}

/// Sends a head in several frames without the last one: the maximum number of small fields, and a
/// large, incomplete one.
fn unfinished(target: Target) -> Attacker {
    // GET, http, the path; a field in the dynamic table, and then many references to it.
    let mut fields = vec![0x82, 0x86, 0x84, 0x40, 1, b'a', 1, b'b'];
    fields.resize(900, 0xbe);
    let large = [&[0, 1, b'c', 0x7f, 0x80, 0xff, 0x03][..], &[b'd'; 15_000]].concat();
    let mut bytes = [preface(), frame(1, 1, 1, &fields), frame(9, 0, 1, &large)].concat();
    bytes.extend(frame(9, 0, 1, &[b'd'; 16_000]).repeat(4));
    Box::pin(async move {
        loop {
            if let Ok(mut stream) = target.connect(FROM).await {
                let _ = stream.write_all(&bytes).await;
                while read_some(&mut stream).await {}
            }
            pause(&target).await;
        }
    })
}

/// Sends empty frames as fast as the server accepts them, and reads the answers.
fn flood(target: Target, number: usize) -> Attacker {
    let kinds = [
        frame(6, 0, 0, &[7; 8]),
        frame(4, 0, 0, &[]),
        frame(2, 0, 5, &[0, 0, 0, 3, 9]),
        frame(8, 0, 0, &[0, 0, 0, 1]),
        frame(0xfa, 0, 0, &[]),
    ];
    let frames = kinds[number % kinds.len()].repeat(4_000);
    Box::pin(async move {
        loop {
            if let Ok(mut stream) = target.connect(FROM).await {
                let _ = stream.write_all(&preface()).await;
                let (mut reader, mut writer) = tokio::io::split(stream);
                tokio::select! {
                    () = async { while writer.write_all(&frames).await.is_ok() {} } => {}
                    () = async { while read_some(&mut reader).await {} } => {}
                }
            }
            pause(&target).await;
        }
    })
}

/// Returns whether there was something to read.
async fn read_some(reader: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut buffer = [0; 16 << 10];
    matches!(reader.read(&mut buffer).await, Ok(1..))
}

async fn pause(target: &Target) {
    target.runtime.sleep(Duration::from_millis(5)).await;
}
