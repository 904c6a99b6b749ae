//! `/metrics`: what an operator needs is there, moves when it happens, and is text that parsers accept.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_runtime::Runtime;
use headwater_store::{Account, Disk, Environment, MemoryDisk, Options};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{World, read_answer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const UPSERT: (&str, &str) = ("x-ms-documentdb-is-upsert", "True");
const QUERY: [(&str, &str); 3] = [
    ("x-ms-documentdb-isquery", "True"),
    ("content-type", "application/query+json"),
    ("x-ms-documentdb-query-enablecrosspartition", "True"),
];
const LARGEST: &str = "largest_partition_live_bytes{container=\"db/c\"}";
const METRICS: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Waits of 50 ms before a test gives up: 30 s.
const CHECKS: usize = 600;

async fn text(world: &World) -> String {
    let got = world.send_raw(METRICS).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((got.status, got.header("content-type")), (200, Some(kind)));
    String::from_utf8(got.body).unwrap()
}

/// The samples of a text by name and labels.
#[derive(Debug)]
struct Samples(BTreeMap<String, f64>);

impl Samples {
    fn parse(text: &str) -> Samples {
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        Samples(samples.collect())
    }

    /// The value of a sample, without the prefix of all names; zero if it is not there yet.
    fn get(&self, name: &str) -> f64 {
        self.0.get(&format!("headwater_{name}")).copied().unwrap_or(0.0)
    }
}

async fn samples(world: &World) -> Samples {
    Samples::parse(&text(world).await)
}

/// Waits until the metrics are as they should be.
async fn until(world: &World, what: &str, is_met: impl Fn(&Samples) -> bool) -> Samples {
    let mut last = None;
    for _ in 0..CHECKS {
        let now = samples(world).await;
        if is_met(&now) {
            return now;
        }
        last = Some(now);
        world.runtime.sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: {last:?}");
}

fn assert_rose(before: &Samples, after: &Samples, names: &[&str]) {
    for name in names {
        let (before, after) = (before.get(name), after.get(name));
        assert!(after > before, "{name}: {before}, then {after}");
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 64 << 10;
    options.maintenance_interval = Duration::ZERO;
    options.history = Duration::ZERO;
    options.history_bytes_min = 0;
    options.index_after_items = 10;
    options
}

/// A store whose logs are in memory, on a disk with an end, and whose index is in real files.
async fn open(disk: &MemoryDisk, root: &Path) -> Account {
    let environment = Environment {
        runtime: Runtime::system(),
        disk: Arc::new(disk.clone()),
        index: None,
        wrap_log: None,
    };
    Account::open_in(environment, root, options()).await.unwrap()
}

async fn upsert(world: &World, id: usize, padding: usize) {
    let body = format!(r#"{{"id":"{id}","pk":"p","n":{id},"s":"{}"}}"#, "x".repeat(padding));
    let got = world.send("POST", DOCS, &[KEY, UPSERT], &body).await;
    assert!(matches!(got.status, 200 | 201), "{got:?}");
}

async fn send_from(world: &World, request: &[u8]) -> TcpStream {
    let mut stream = world.connect().await;
    stream.write_all(request).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_an_operator_needs_is_there_and_moves() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::new());
    disk.set_room(1 << 30);
    let world = World::over(open(&disk, dir.path()).await, |_| ()).await.with_container().await;
    writes_and_reads(&world).await;
    compaction(&world).await;
    index_lag(&world).await;
    connections(&world).await;
    memory_of_requests(&world).await;
    partitions(&world).await;
    memory_of_the_process(&world).await;
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    let rid = container.rid().as_u64();
    let range = container.ranges()[0].id.get();
    assert_eq!(samples(&world).await.get("quarantined_partitions"), 0.0);
    assert_eq!(samples(&world).await.get("stopped_tasks"), 0.0);
    drop(container);
    world.stop().await;
    // One range without its list of files.
    let files = dir.path().join(format!("containers/{rid:016x}/{range:08}"));
    disk.remove(&files.join("MANIFEST")).unwrap();
    let world = World::over(open(&disk, dir.path()).await, |_| ()).await;
    let damaged = samples(&world).await;
    assert_eq!(damaged.get("quarantined_partitions"), 1.0);
    assert_eq!(damaged.get("partitions{container=\"db/c\"}"), 2.0);
    // Tables have their filters in memory from the next start on, or when they were merged.
    assert!(damaged.get("memory_bytes{purpose=\"index_tables\"}") > 0.0, "{damaged:?}");
    world.stop().await;
}

async fn writes_and_reads(world: &World) {
    let before = samples(world).await;
    for id in 0..20 {
        upsert(world, id, 1_000).await;
    }
    for _ in 0..3 {
        assert_eq!(world.send("GET", &format!("{DOCS}/1"), &[KEY], "").await.status, 200);
    }
    let after = samples(world).await;
    assert_rose(
        &before,
        &after,
        &[
            "requests_total{verb=\"POST\",status=\"201\"}",
            "request_seconds_sum{operation=\"upsert_item\"}",
            "sync_seconds_count",
            "group_writes_count",
            "request_units_total{container=\"db/c\",operation=\"write\"}",
            "live_bytes{container=\"db/c\"}",
            LARGEST,
            "log_bytes{container=\"db/c\"}",
            "history_bytes_max{container=\"db/c\"}",
            "log_disk_bytes{container=\"db/c\"}",
            "memory_bytes{purpose=\"index_rows\"}",
            "memory_bytes{purpose=\"recent_items\"}",
            "memory_bytes{purpose=\"recent_changes\"}",
        ],
    );
    assert!(after.get("disk_free_bytes") < before.get("disk_free_bytes"));
    assert_eq!(after.get("request_seconds_count{operation=\"upsert_item\"}"), 20.0);
    assert_eq!(after.get("request_seconds_count{operation=\"read_item\"}"), 3.0);
    assert_eq!(after.get("request_seconds_count{operation=\"create_container\"}"), 1.0);
    assert_eq!(after.get("group_writes_sum") - before.get("group_writes_sum"), 20.0);
    assert!(after.get("request_seconds_count{operation=\"other\"}") >= 1.0, "of /metrics itself");
}

async fn compaction(world: &World) {
    let before = samples(world).await;
    assert_eq!(before.get("compactions_total"), 0.0);
    for _ in 0..20 {
        for id in 0..10 {
            upsert(world, id, 1_000).await;
        }
    }
    let full = samples(world).await;
    let history = "history_bytes{container=\"db/c\"}";
    assert_rose(&before, &full, &[history]);
    world.account.maintain().await.unwrap();
    // Rows of the index are in tables now; reading them fills its cache.
    for id in 10..20 {
        assert_eq!(world.send("GET", &format!("{DOCS}/{id}"), &[KEY], "").await.status, 200);
    }
    let after = samples(world).await;
    assert_rose(
        &full,
        &after,
        &[
            "compactions_total",
            "compaction_read_bytes_total",
            "compaction_written_bytes_total",
            "compaction_reclaimed_bytes_total",
            "last_compaction_timestamp_seconds",
            "memory_bytes{purpose=\"index_cache\"}",
        ],
    );
    for name in [history, "log_bytes{container=\"db/c\"}"] {
        assert!(after.get(name) < full.get(name), "{name}: {after:?}");
    }
    let read = after.get("compaction_read_bytes_total");
    let written = after.get("compaction_written_bytes_total");
    assert_eq!(after.get("compaction_reclaimed_bytes_total"), read - written);
}

async fn index_lag(world: &World) {
    let lag = "index_lag_changes{container=\"db/c\"}";
    let query = r#"{"query":"SELECT VALUE c.id FROM c WHERE c.n = 5"}"#;
    for _ in 0..2 {
        assert_eq!(world.send("POST", DOCS, &QUERY, query).await.status, 200);
    }
    world.account.maintain().await.unwrap();
    assert_eq!(samples(world).await.get(lag), 0.0);
    for id in 0..7 {
        upsert(world, id, 10).await;
    }
    assert_eq!(samples(world).await.get(lag), 7.0);
    world.account.maintain().await.unwrap();
    assert_eq!(samples(world).await.get(lag), 0.0);
}

async fn connections(world: &World) {
    let state = |samples: &Samples, state: &str| {
        samples.get(&format!("connection_states{{state=\"{state}\"}}"))
    };
    until(world, "only one is there", |now| now.get("connections") == 1.0).await;
    let opening = world.connect().await;
    let mut idle = send_from(world, METRICS).await;
    read_answer(&mut idle).await.unwrap();
    let head = [("A-IM", "Incremental feed"), ("If-None-Match", "*"), ("Prefer", "wait=60")];
    let waiting = send_from(world, &world.request("GET", DOCS, &head, b"")).await;
    let now = until(world, "each is counted", |now| {
        ["opening", "idle"].map(|name| state(now, name)) == [1.0; 2] && state(now, "busy") == 2.0
    })
    .await;
    assert_eq!(now.get("connections"), 4.0);
    until(world, "a reader waits", |now| now.get("waiting_readers") == 1.0).await;
    drop((opening, idle, waiting));
    let is_alone = |now: &Samples| now.get("connections") == 1.0 && state(now, "busy") == 1.0;
    until(world, "all others are gone", is_alone).await;
    let now = until(world, "no reader waits", |now| now.get("waiting_readers") == 0.0).await;
    assert_eq!(now.get("request_seconds_count{operation=\"wait_for_changes\"}"), 0.0, "unanswered");
}

async fn memory_of_requests(world: &World) {
    let memory = |samples: &Samples, purpose: &str| {
        samples.get(&format!("memory_bytes{{purpose=\"{purpose}\"}}"))
    };
    let body = format!(r#"{{"id":"large","pk":"p","s":"{}"}}"#, "x".repeat(1 << 20));
    let upsert = world.request("POST", DOCS, &[KEY, UPSERT], body.as_bytes());
    let sender = send_from(world, &upsert[..upsert.len() - 1_000]).await;
    let is_receiving = |now: &Samples| {
        memory(now, "receiving") > 1e6 && memory(now, "receiving") == now.get("receiving_bytes")
    };
    until(world, "a body is received", is_receiving).await;
    drop(sender);
    until(world, "no body is received", |now| memory(now, "receiving") == 0.0).await;

    assert_eq!(world.send_raw(&upsert).await.status, 201);
    // More than the kernel keeps on both sides of loopback.
    let read = world.request("GET", &format!("{DOCS}/large"), &[KEY], b"");
    let reader = send_from(world, &read.repeat(60)).await;
    let is_sending = |now: &Samples| {
        memory(now, "sending") > 1e6 && memory(now, "sending") == now.get("sending_bytes")
    };
    until(world, "an answer is sent", is_sending).await;
    drop(reader);
    until(world, "no answer is sent", |now| memory(now, "sending") == 0.0).await;

    // Holds some megabytes for about a minute, if it is not ended.
    let numbers: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    let text = "x".repeat(10_000);
    let item = format!(r#"{{"id":"joined","pk":"p","a":[{}],"s":"{text}"}}"#, numbers.join(","));
    assert_eq!(world.send("POST", DOCS, &[KEY], &item).await.status, 201);
    let query = "SELECT VALUE COUNT(1) FROM c JOIN (SELECT VALUE ARRAY(SELECT VALUE \
                 CONCAT(c.s, ToString(x)) FROM x IN c.a)) z JOIN x IN c.a JOIN y IN c.a \
                 JOIN v IN c.a JOIN w IN c.a";
    let query = format!(r#"{{"query":"{query}"}}"#);
    let client = send_from(world, &world.request("POST", DOCS, &QUERY, query.as_bytes())).await;
    let is_running =
        |now: &Samples| memory(now, "queries") > 1e6 && now.get("running_requests") == 1.0;
    until(world, "a query runs", is_running).await;
    drop(client);
    let is_over =
        |now: &Samples| memory(now, "queries") == 0.0 && now.get("running_requests") == 0.0;
    until(world, "no query runs", is_over).await;
}

async fn partitions(world: &World) {
    let partitions = "partitions{container=\"db/c\"}";
    let before = samples(world).await;
    assert_eq!(before.get(partitions), 1.0);
    assert_eq!(before.get(LARGEST), before.get("live_bytes{container=\"db/c\"}"), "of one range");
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    container.split(container.ranges()[0].id, None).await.unwrap();
    let after = samples(world).await;
    assert_eq!(after.get(partitions), 2.0);
    let of_ranges: Vec<u64> =
        container.ranges().iter().filter_map(|range| container.live_bytes_in(range.id)).collect();
    assert_eq!(of_ranges.len(), 2);
    assert_eq!(after.get(LARGEST), of_ranges.into_iter().max().unwrap() as f64);
    assert!(after.get(LARGEST) < after.get("live_bytes{container=\"db/c\"}"), "{after:?}");
}

async fn memory_of_the_process(world: &World) {
    let name = "process_resident_memory_bytes";
    let resident = |samples: Samples| samples.0.get(name).copied().unwrap_or_default();
    if cfg!(target_os = "linux") {
        let before = resident(samples(world).await);
        let block = std::hint::black_box(vec![7_u8; 256 << 20]);
        let after = resident(samples(world).await);
        assert!(after > before + 128e6, "{before}, then {after}");
        drop(block);
    }
}

/// A metric with its samples, each with name, labels and value.
struct Family {
    name: String,
    kind: String,
    samples: Vec<(String, String)>,
}

/// The families of a text, each with its help in front.
fn families(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let mut helped = None;
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(help.len() > 5, "{name} is not explained: {help}");
            helped = Some(name.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(helped.as_deref(), Some(name), "HELP comes first");
            let (name, kind) = (name.to_owned(), kind.to_owned());
            families.push(Family { name, kind, samples: Vec::new() });
        } else if line != "# EOF" {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = families.last_mut().unwrap();
            assert!(name.starts_with(&family.name), "{name} is in {}", family.name);
            family.samples.push((name.to_owned(), value.to_owned()));
        }
    }
    families
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_openmetrics_text() {
    let world = World::new().await.with_container().await;
    for id in 0..5 {
        upsert(&world, id, 100).await;
    }
    let text = text(&world).await;
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (mut names, mut series) = (HashSet::new(), HashSet::new());
    for Family { name: family, kind, samples } in families(&text) {
        assert!(names.insert(family.clone()), "{family} is there twice");
        for (name, value) in &samples {
            assert!(series.insert(name.clone()), "{name} is there twice");
            let value: f64 = value.parse().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{name} is {value}");
            let suffix = name[family.len()..].split('{').next().unwrap();
            let allowed: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_sum", "_count", "_bucket"],
                other => panic!("{family} is a {other}"),
            };
            assert!(allowed.contains(&suffix), "{name} of a {kind}");
        }
        if kind == "histogram" {
            check_histogram(&family, &samples);
        }
    }
    world.stop().await;
}

/// Each series ends at infinity with all of its observations, and no bucket has fewer than the one before.
fn check_histogram(family: &str, samples: &[(String, String)]) {
    let counts = samples.iter().filter(|(name, _)| name.starts_with(&format!("{family}_count")));
    let mut checked = 0;
    for (name, count) in counts {
        let labels = name[family.len() + "_count".len()..].trim_matches(['{', '}']);
        let (mut least, mut bound, mut last) = (0, f64::NEG_INFINITY, 0.0);
        for (name, value) in samples {
            let Some(bucket) = name.strip_prefix(&format!("{family}_bucket{{")) else { continue };
            // No value of a label has a comma here.
            let (le, others): (Vec<&str>, Vec<&str>) =
                bucket.trim_end_matches('}').split(',').partition(|label| label.starts_with("le="));
            if others.join(",") != labels {
                continue;
            }
            let upper: f64 = le[0]["le=".len()..].trim_matches('"').parse().unwrap();
            let value: u64 = value.parse().unwrap();
            assert!(upper > bound && value >= least, "{name} after {bound}: {least}");
            (bound, least, last) = (upper, value, upper);
        }
        assert!(last.is_infinite(), "{family}{{{labels}}} ends at {last}");
        assert_eq!(*count, least.to_string(), "{family}{{{labels}}}");
        checked += 1;
    }
    assert!(checked > 0, "{family} has no series");
}
