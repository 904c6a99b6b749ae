//! `headwater bench http`: the server over loopback, beside a hyper server that does nothing.
//!
//! Both are processes of their own, started and ended here; both get the same signed requests from the
//! same load generator in the same rounds, and the bare one answers with the bytes of one of our answers,
//! head and body. Client and server share the machine's cores.

pub(crate) mod bare;
pub(super) mod load;

use super::common::{Common, Size};
use super::harness::{Harness, Series, bar};
use super::machine;
use super::report::{Hold, Of, Report, Row, Unit};
use super::workload::{Key, Workload};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use load::{Channel, Connection, Requests, Signer, Target, Until};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ITEMS: u64 = 100_000;
const ITEMS_QUICK: u64 = 20_000;
pub(super) const MANY: u64 = 64;
/// Items between two moves of the bar.
const FILL_ITEMS: u64 = 5000;
/// Writes that a waiting reader has to see.
pub(super) const SEEN_WRITES: usize = 400;
pub(super) const DOCS: &str = "/dbs/shop/colls/orders/docs";

/// What `--help` says.
pub(super) const HELP: &str = "\
Measure the server over loopback, next to a bare HTTP server

    headwater bench http --quick
    headwater bench http --only writes,reads";

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct HttpArguments {
    #[command(flatten)]
    common: Common,
    /// Measure these rows only, separated by commas
    #[arg(long, value_enum, value_name = "ROW", value_delimiter = ',')]
    only: Vec<Asked>,
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Asked {
    Writes,
    Reads,
    Feed,
    Visible,
}

impl Asked {
    const ALL: [Asked; 4] = [Asked::Writes, Asked::Reads, Asked::Feed, Asked::Visible];
}

pub(crate) fn run(arguments: &HttpArguments) -> Result<()> {
    let size = arguments.common.size(
        Size { items: ITEMS_QUICK, rounds: 3, window: Duration::from_millis(500) },
        Size { items: ITEMS, rounds: 5, window: Duration::from_secs(2) },
    );
    let harness = arguments.common.harness(size, Vec::new())?;
    let machine = machine::describe(&harness)?;
    let asked = if arguments.only.is_empty() { &Asked::ALL[..] } else { &arguments.only };
    let report = Report { machine, rows: rows(&harness, asked)? };
    arguments.common.print(&report)
}

/// A server in a process of its own, ended with this handle.
pub(super) struct Process {
    child: Child,
    pub(super) address: SocketAddr,
    /// From the start of the process to its ready line.
    ready: Duration,
}

impl Process {
    pub(super) fn start(harness: &Harness, arguments: &[&str]) -> Result<Process> {
        let started = harness.clock.elapsed();
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start a server")?;
        let out = child.stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let ready = harness.clock.elapsed() - started;
        let parsed: serde_json::Value = serde_json::from_str(&line)
            .with_context(|| format!("a server said {line:?} instead of being ready"))?;
        let url = parsed["http"].as_str().unwrap_or_default();
        let address = url.trim_start_matches("http://").parse().context("no address")?;
        Ok(Process { child, address, ready })
    }

    pub(super) fn serve(harness: &Harness, dir: &Path) -> Result<Process> {
        Process::serve_with(harness, dir, &[])
    }

    pub(super) fn serve_with(harness: &Harness, dir: &Path, more: &[&str]) -> Result<Process> {
        let dir = dir.to_str().context("the directory is not UTF-8")?;
        let arguments =
            ["serve", "--data", dir, "--http", "127.0.0.1:0", "--no-https", "--ready-json"];
        Process::start(harness, &[&arguments, more].concat())
    }

    /// One that does nothing but send what another server answered to this request.
    fn bare(harness: &Harness, other: &Process, request: Vec<u8>) -> Result<Process> {
        let file = harness.dir("bare-answer");
        std::fs::write(&file, answer_to(harness, other.address, request)?)?;
        let file = file.to_str().context("the directory is not UTF-8")?;
        Process::start(harness, &["bench", "bare-http", file])
    }

    pub(super) fn cpu(&self) -> Result<Duration> {
        machine::cpu_of(self.child.id())
    }

    pub(super) fn resident_bytes(&self) -> Result<f64> {
        machine::resident_bytes_of(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rows(harness: &Harness, asked: &[Asked]) -> Result<Vec<Row>> {
    let dir = harness.dir("served");
    let empty = Process::serve(harness, &harness.dir("empty"))?;
    let idle = empty.resident_bytes()?;
    let mut start = Series::default();
    start.push(empty.ready.as_secs_f64() * 1e3);
    drop(empty);
    let ours = Process::serve(harness, &dir)?;
    let signer = Signer::new(&harness.clock)?;
    let address = ours.address;
    create_container(harness, address, &signer)?;
    let written = Arc::new(AtomicU64::new(0));
    let writes = write_requests(&signer, &written, "x-ms-documentdb-is-upsert: True\r\n");
    fill::<Connection>(harness, &Target::at(address), "the server", &writes)?;
    let mut rows = Vec::new();
    for topic in Asked::ALL.iter().filter(|topic| asked.contains(topic)) {
        match topic {
            Asked::Writes => rows.push(measure_writes(harness, &ours, writes.clone())?),
            Asked::Reads => rows.extend(measure_reads(harness, &ours, &signer)?),
            Asked::Feed => rows.extend(measure_feeds(harness, &ours, &signer)?),
            Asked::Visible => rows.push(measure_visible(harness, address, &signer)?),
        }
    }
    let memory = ours.resident_bytes()?;
    drop(ours);
    let row = Row::new("start to ready, in a new directory", Unit::Milliseconds);
    rows.push(Row { ours: start.median(), hold: Some(Hold::AtMost(Of::Ours, 20.0)), ..row });
    let row = Row::new("resident memory, idle", Unit::Bytes);
    rows.push(Row { ours: Some(idle), hold: Some(Hold::AtMost(Of::Ours, 20e6)), ..row });
    let row = Row::new("resident memory after all of this", Unit::Bytes);
    rows.push(Row { ours: Some(memory), hold: Some(Hold::AtMost(Of::Ours, 100e6)), ..row });
    Ok(rows)
}

/// A database and a container to write into.
pub(super) fn create_container(
    harness: &Harness,
    address: SocketAddr,
    signer: &Signer,
) -> Result<()> {
    let signer = signer.clone();
    harness.run(async move {
        let mut connection = Connection::open(address).await?;
        let database = signer.request("POST", "/dbs", "", br#"{"id":"shop"}"#);
        ensure!(connection.ask(&database).await?.status == 201, "no database");
        let definition =
            br#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash","version":2}}"#;
        let container = signer.request("POST", "/dbs/shop/colls", "", definition);
        ensure!(connection.ask(&container).await?.status == 201, "no container");
        Ok(())
    })
}

/// Writes of one new item each; `head` says more about them.
pub(super) fn write_requests(signer: &Signer, written: &Arc<AtomicU64>, head: &str) -> Requests {
    let (signer, written) = (signer.clone(), written.clone());
    let workload = Workload::new();
    // Every create has the same path, so one signature serves all of them.
    let head = signer.request("POST", DOCS, head, &[b'x'; 1024]);
    let head = head[..head.len() - 1024].to_vec();
    Arc::new(move |_| {
        let number = written.fetch_add(1, Ordering::Relaxed);
        let mut body = Vec::with_capacity(head.len() + 1024);
        body.extend_from_slice(&head);
        let item = workload.body(number, 0);
        debug_assert_eq!(item.len(), 1024);
        body.extend_from_slice(&item);
        body
    })
}

/// Puts all items of the plan into a new server, no more and no less.
pub(super) fn fill<C: Channel>(
    harness: &Harness,
    target: &Target,
    who: &str,
    requests: &Requests,
) -> Result<()> {
    let items = harness.plan.items;
    let bar = bar(items, &format!("filling {who}"), "items");
    let mut filled = 0;
    while filled < items {
        harness.check_interrupted()?;
        let (clock, requests, target) = (harness.clock.clone(), requests.clone(), target.clone());
        let step = (items - filled).min(FILL_ITEMS);
        harness.run(async move {
            load::run::<C>(&clock, &target, MANY, Until::Answered(step), requests).await
        })?;
        filled += step;
        bar.set_position(filled);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Rounds of ours and of the bare server.
fn compare(
    harness: &Harness,
    question: &str,
    (ours, bare): (&Process, &Process),
    connections: u64,
    requests: &Requests,
    (per_answer, hold): (f64, f64),
) -> Result<Row> {
    let mut rates = [Series::default(), Series::default()];
    let mut micros = [Series::default(), Series::default()];
    let mut ratio = Series::default();
    harness.rounds(question, |_| {
        let mut measured = [0.0; 2];
        for (place, process) in [ours, bare].into_iter().enumerate() {
            let (clock, requests, address) =
                (harness.clock.clone(), requests.clone(), process.address);
            let (window, began) = (harness.plan.window, harness.clock.elapsed());
            let cpu = process.cpu()?;
            let rate = harness.run(async move {
                load::rate(&clock, address, connections, window, requests).await
            })?;
            let answers = rate * (harness.clock.elapsed() - began).as_secs_f64();
            let cpu = process.cpu()?.saturating_sub(cpu);
            micros[place].push(cpu.as_secs_f64() * 1e6 / answers.max(1.0));
            measured[place] = per_answer * rate;
            rates[place].push(measured[place]);
        }
        ratio.push(measured[0] / measured[1]);
        Ok(())
    })?;
    let [ours_micros, bare_micros] = micros.map(|micros| micros.median().unwrap_or(0.0));
    let note =
        format!("CPU of the server per answer: {ours_micros:.1} µs, bare {bare_micros:.1} µs");
    let [own, limit] = rates;
    Ok(Row {
        ours: own.median(),
        limit: limit.median(),
        ratio: ratio.median(),
        hold: Some(Hold::AtLeast(Of::Ratio, hold)),
        ..Row::new(question, Unit::PerSecond).noted(note)
    })
}

/// The answer to this request, byte by byte.
fn answer_to(harness: &Harness, address: SocketAddr, request: Vec<u8>) -> Result<Vec<u8>> {
    harness.run(async move {
        let mut connection = Connection::open(address).await?;
        let got = connection.ask(&request).await?;
        ensure!(got.status < 300, "answered with status {}", got.status);
        Ok(connection.last_answer().to_vec())
    })
}

fn measure_writes(harness: &Harness, ours: &Process, requests: Requests) -> Result<Row> {
    let bare = Process::bare(harness, ours, requests(0))?;
    let question = "durable writes, 64 connections ÷ bare hyper";
    compare(harness, question, (ours, &bare), MANY, &requests, (1.0, 0.4))
}

fn measure_reads(harness: &Harness, ours: &Process, signer: &Signer) -> Result<Vec<Row>> {
    let requests = read_requests(harness, signer);
    let bare = Process::bare(harness, ours, requests[0].clone())?;
    let requests = in_turn(requests);
    let both = (ours, &bare);
    Ok(vec![
        compare(harness, "point reads, 1 connection ÷ bare hyper", both, 1, &requests, (1.0, 0.6))?,
        compare(
            harness,
            "point reads, 64 connections ÷ bare hyper",
            both,
            MANY,
            &requests,
            (1.0, 0.6),
        )?,
    ])
}

/// Reads of single items, signed before, as signing is the client's work.
pub(super) fn read_requests(harness: &Harness, signer: &Signer) -> Vec<Vec<u8>> {
    let request = |key: Key| {
        let head = format!("x-ms-documentdb-partitionkey: [\"{}\"]\r\n", key.customer);
        signer.request("GET", &format!("{DOCS}/{}", key.id), &head, b"")
    };
    keys_to_read(harness.plan.items).map(request).collect()
}

/// Keys in no order, more of them than fit into a cache.
pub(super) fn keys_to_read(items: u64) -> impl Iterator<Item = Key> {
    (0..5000_u64.min(items)).map(move |number| Key::of(number * 7919 % items))
}

/// The same requests again and again.
pub(super) fn in_turn(requests: Vec<Vec<u8>>) -> Requests {
    let count = requests.len() as u64;
    Arc::new(move |number| requests[usize::try_from(number % count).unwrap_or(0)].clone())
}

fn measure_feeds(harness: &Harness, ours: &Process, signer: &Signer) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (items, hold) in [(1000_u64, 0.6), (100, 0.5)] {
        let pages = pages(harness, ours.address, signer, items)?;
        let bare = Process::bare(harness, ours, pages[0].clone())?;
        let requests = in_turn(pages);
        let question = format!("feed items/s, pages of {items} ÷ bare hyper");
        let both = (ours, &bare);
        rows.push(compare(harness, &question, both, 1, &requests, (items as f64, hold))?);
    }
    Ok(rows)
}

/// Requests for the full pages of the feed, from its beginning.
fn pages(
    harness: &Harness,
    address: SocketAddr,
    signer: &Signer,
    items: u64,
) -> Result<Vec<Vec<u8>>> {
    let (signer, wanted) = (signer.clone(), (harness.plan.items / items).clamp(1, 50));
    harness.run(async move {
        let mut connection = Connection::open(address).await?;
        let (mut pages, mut position) = (Vec::new(), String::new());
        for _ in 0..wanted {
            let head =
                format!("A-IM: Incremental Feed\r\nx-ms-max-item-count: {items}\r\n{position}");
            let request = signer.request("GET", DOCS, &head, b"");
            let got = connection.ask(&request).await?;
            ensure!(got.status == 200, "the feed ended early");
            position = format!("If-None-Match: {}\r\n", got.etag.context("no etag")?);
            pages.push(request);
        }
        Ok(pages)
    })
}

/// From the start of a write to the moment a waiting reader has it, beside the write's own time.
fn measure_visible(harness: &Harness, address: SocketAddr, signer: &Signer) -> Result<Row> {
    let (visible, own) = visible_p99(harness, address, signer)?;
    let row = Row::new("write → waiting reader, p99 ÷ the write's own", Unit::Microseconds);
    let (ours, limit, ratio) = (Some(visible), Some(own), Some(visible / own));
    Ok(Row { ours, limit, ratio, hold: Some(Hold::AtMost(Of::Ratio, 2.0)), ..row })
}

/// Both in microseconds, as 99 of 100 writes are better.
pub(super) fn visible_p99(
    harness: &Harness,
    address: SocketAddr,
    signer: &Signer,
) -> Result<(f64, f64)> {
    let (clock, signer) = (harness.clock.clone(), signer.clone());
    let (visible, own) = harness.run(async move {
        let (mut reader, mut writer) =
            (Connection::open(address).await?, Connection::open(address).await?);
        let now =
            signer.request("GET", DOCS, "A-IM: Incremental Feed\r\nIf-None-Match: *\r\n", b"");
        let mut etag = reader.ask(&now).await?.etag.context("no etag")?;
        let (mut visible, mut own) = (Vec::new(), Vec::new());
        for number in 0..SEEN_WRITES {
            let head =
                format!("A-IM: Incremental Feed\r\nPrefer: wait=10\r\nIf-None-Match: {etag}\r\n");
            let waiting = signer.request("GET", DOCS, &head, b"");
            let body =
                format!(r#"{{"id":"seen-{number}","customer":"x","text":"{}"}}"#, "x".repeat(900));
            let write = signer.request(
                "POST",
                DOCS,
                "x-ms-documentdb-is-upsert: True\r\n",
                body.as_bytes(),
            );
            let (inside, pause) = (clock.clone(), clock.sleep(Duration::from_millis(2)));
            let writing = async {
                pause.await;
                let began = inside.elapsed();
                let got = writer.ask(&write).await?;
                ensure!(got.status < 300, "answered with status {}", got.status);
                Ok::<_, anyhow::Error>((began, inside.elapsed()))
            };
            let reading = async {
                let got = reader.ask(&waiting).await?;
                Ok::<_, anyhow::Error>((clock.elapsed(), got))
            };
            let (wrote, read) = tokio::join!(writing, reading);
            let ((began, ended), (seen, got)) = (wrote?, read?);
            etag = got.etag.context("no etag")?;
            visible.push(seen.saturating_sub(began).as_secs_f64() * 1e6);
            own.push((ended - began).as_secs_f64() * 1e6);
        }
        Ok((visible, own))
    })?;
    Ok((p99(visible), p99(own)))
}

/// What 99 of 100 stay below; zero of nothing.
pub(super) fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 99 / 100).copied().unwrap_or(0.0)
}
