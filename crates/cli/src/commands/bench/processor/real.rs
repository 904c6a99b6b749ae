//! What takes time on this machine: changes delivered, latency, idle leases.

use crate::commands::bench::harness::{Harness, Series, bar, process_cpu, rate};
use crate::commands::bench::http::Process;
use crate::commands::bench::machine;
use crate::commands::bench::ours::{Maintenance, Ours};
use crate::commands::bench::report::{Hold, Of, Row, Unit};
use crate::commands::bench::workload::Workload;
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use headwater_client::Precondition;
use headwater_client::{Client, Container, Credential, Endpoint, FeedFrom, FeedRead, FeedScope};
use headwater_model::{FeedStart, PageLimit, PartitionKey};
use headwater_processor::lease_store::{
    ContainerLeases, EmbeddedLeases, Layout, LeaseStore, MemoryLeases,
};
use headwater_processor::source::{EmbeddedFeed, FeedSource, MemoryFeed, RemoteFeed};
use headwater_processor::{Ack, Batch, Checkpoint, Options, Processor, Start};
use headwater_runtime::Runtime;
use headwater_store::{ContainerDefinition, FeedRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

const PAGE: u32 = 1000;
/// The share of what is read that should arrive.
const SHARE: f64 = 0.7;
const IDLE_LEASES: u32 = 1000;

fn every_second() -> Checkpoint {
    Checkpoint::Every { items: 0, bytes: 0, interval: Duration::from_secs(1) }
}

/// Runs a processor until it has delivered everything; items per second.
async fn deliver(
    clock: &Runtime,
    items: u64,
    name: String,
    checkpoint: Checkpoint,
    source: Arc<dyn FeedSource>,
    leases: Arc<dyn LeaseStore>,
) -> Result<f64> {
    let mut options = Options::native(name);
    options.start = Start::Beginning;
    options.items_max = Some(PAGE);
    options.checkpoint = checkpoint;
    let seen = Arc::new(AtomicU64::new(0));
    let (first, mut begun) = mpsc::channel::<Duration>(1);
    let (all, mut done) = mpsc::channel::<Duration>(1);
    let (counted, time) = (seen.clone(), clock.clone());
    let processor = Processor::builder()
        .source(source)
        .leases(leases)
        .handler(move |batch: Batch| {
            let bytes: usize = batch.changes.iter().map(|change| change.body().len()).sum();
            std::hint::black_box(bytes);
            let count = u64::try_from(batch.changes.len()).unwrap_or(0);
            let before = counted.fetch_add(count, Ordering::Relaxed);
            // Timed from the first page to the last: joining the unit is not delivering.
            if before == 0 {
                let _ = first.try_send(time.elapsed());
            }
            if before + count >= items {
                let _ = all.try_send(time.elapsed());
            }
            async { Ok(Ack::Done) }
        })
        .options(options)
        .build()?;
    let running = processor.start().await?;
    let began = begun.recv().await.context("nothing was delivered")?;
    let ended = done.recv().await.context("not everything was delivered")?;
    running.stop().await;
    Ok(rate(items.saturating_sub(u64::from(PAGE)), ended.saturating_sub(began)))
}

/// Rounds of reading alone, of delivering with a position every second, and after every page.
struct Shares {
    raw: Series,
    paced: Series,
    paged: Series,
    share: Series,
    page_share: Series,
}

impl Shares {
    fn new() -> Shares {
        let new = Series::default;
        Shares { raw: new(), paced: new(), paged: new(), share: new(), page_share: new() }
    }

    fn push(&mut self, [raw, paced, paged]: [f64; 3]) {
        self.raw.push(raw);
        self.paced.push(paced);
        self.paged.push(paged);
        self.share.push(paced / raw);
        self.page_share.push(paged / raw);
    }

    fn rows(&self, whence: &str) -> [Row; 2] {
        let limit = self.raw.median();
        let first = Row {
            ours: self.paced.median(),
            limit,
            ratio: self.share.median(),
            hold: Some(Hold::AtLeast(Of::Ratio, SHARE)),
            ..Row::new(format!("changes delivered, {whence} ÷ reading the feed"), Unit::PerSecond)
                .noted("position stored every second")
        };
        let second = Row {
            ours: self.paged.median(),
            limit,
            ratio: self.page_share.median(),
            ..Row::new(format!("the same, {whence}, position after every page"), Unit::PerSecond)
                .noted("waits for a durable write after every 1000 changes")
        };
        [first, second]
    }
}

/// From a store in this process.
pub(super) fn embedded(harness: &Harness) -> Result<Vec<Row>> {
    let (clock, dir, items) = (harness.clock.clone(), harness.dir("embedded"), harness.plan.items);
    let bar = bar(items, "filling a store", "items");
    let (filling, progress) = (clock.clone(), bar.clone());
    let ours = harness.run(async move {
        let ours = Ours::open(&filling, &dir, Maintenance::Asked).await?;
        ours.write_count(items, &progress).await?;
        let shop = ours.account.database("shop").await?;
        let leases = ContainerDefinition::new("leases", "/partitionKey")?;
        shop.create_container(leases).await?;
        Ok(Arc::new(ours))
    })?;
    bar.finish_and_clear();
    let mut shares = Shares::new();
    harness.rounds("delivering, embedded", |round| {
        let (ours, clock) = (ours.clone(), clock.clone());
        shares.push(harness.run(async move {
            let shop = ours.account.database("shop").await?;
            let leases = shop.container("leases").await?;
            let leases = Arc::new(EmbeddedLeases::new(leases, clock.clone())?);
            let source = Arc::new(EmbeddedFeed::new(shop, ours.container.clone()));
            let raw = read_embedded(&clock, &ours, items).await?;
            let mut rates = [raw, 0.0, 0.0];
            for (place, checkpoint) in [(1, every_second()), (2, Checkpoint::EveryBatch)] {
                let name = format!("p{round}-{place}");
                let (source, leases) = (source.clone(), leases.clone());
                rates[place] = deliver(&clock, items, name, checkpoint, source, leases).await?;
            }
            Ok(rates)
        })?);
        Ok(())
    })?;
    Ok(shares.rows("embedded").into())
}

async fn read_embedded(clock: &Runtime, ours: &Ours, items: u64) -> Result<f64> {
    let began = clock.elapsed();
    let mut from = FeedStart::Beginning;
    let mut seen = 0;
    let id = ours.container.ranges().first().context("a container without ranges")?.id;
    loop {
        let request = FeedRequest::new(from).of_range(id).limit(PageLimit::items(PAGE)?);
        let page = ours.container.read_feed(&request).await?;
        if page.changes.is_empty() {
            break;
        }
        let bytes: usize = page.changes.iter().map(|change| change.body().len()).sum();
        std::hint::black_box(bytes);
        seen += u64::try_from(page.changes.len()).unwrap_or(0);
        from = FeedStart::After(page.continuation);
    }
    ensure!(seen == items, "{seen} of {items} items are in the feed");
    Ok(rate(items, clock.elapsed() - began))
}

/// Over HTTP, from a server in a process of its own.
pub(super) fn served(harness: &Harness, delivered: bool, latency: bool) -> Result<Vec<Row>> {
    let process = Process::serve(harness, &harness.dir("processor-served"))?;
    let at = Endpoint::http("127.0.0.1", process.address.port());
    let clock = harness.clock.clone();
    let options = headwater_client::Options::default();
    let client = Client::new(at, Credential::emulator()?, options, clock.clone())?;
    let setting_up = client.clone();
    harness.run(async move {
        setting_up.create_database("shop").await?;
        for name in ["orders", "quick"] {
            let definition = format!(
                r#"{{"id":"{name}","partitionKey":{{"paths":["/customer"],"kind":"Hash","version":2}}}}"#
            );
            setting_up.create_container("shop", definition, None).await?;
        }
        Ok(())
    })?;
    let mut rows = Vec::new();
    if delivered {
        rows.extend(over_http(harness, &client)?);
    }
    if latency {
        rows.extend(latencies(harness, &client)?);
    }
    Ok(rows)
}

fn over_http(harness: &Harness, client: &Client) -> Result<Vec<Row>> {
    let (items, clock) = (harness.plan.items, harness.clock.clone());
    let progress = bar(items, "filling a server", "items");
    let (filling, counted, writers) = (client.clone(), progress.clone(), clock.clone());
    harness.run(async move { fill(&writers, &filling, items, &counted).await })?;
    progress.finish_and_clear();
    let mut shares = Shares::new();
    harness.rounds("delivering, over HTTP", |round| {
        let (client, clock) = (client.clone(), clock.clone());
        shares.push(harness.run(async move {
            let container = client.container("shop", "orders");
            let raw = read_served(&clock, &container, items).await?;
            let mut rates = [raw, 0.0, 0.0];
            for (place, checkpoint) in [(1, every_second()), (2, Checkpoint::EveryBatch)] {
                let leases = client.container("shop", "leases");
                let leases = ContainerLeases::open_or_create(leases, Layout::PartitionKey, None);
                let leases = Arc::new(leases.await?);
                let source = Arc::new(RemoteFeed::new(container.clone()).any_lsn(true));
                let name = format!("p{round}-{place}");
                rates[place] = deliver(&clock, items, name, checkpoint, source, leases).await?;
            }
            Ok(rates)
        })?);
        Ok(())
    })?;
    Ok(shares.rows("over HTTP").into())
}

async fn fill(
    clock: &Runtime,
    client: &Client,
    items: u64,
    bar: &indicatif::ProgressBar,
) -> Result<()> {
    const WRITERS: u64 = 64;
    let next = Arc::new(AtomicU64::new(0));
    let (ended, mut ends) = mpsc::unbounded_channel::<Result<()>>();
    for _ in 0..WRITERS {
        let (container, next) = (client.container("shop", "orders"), next.clone());
        let (bar, ended) = (bar.clone(), ended.clone());
        clock.spawn("fill", async move {
            let workload = Workload::new();
            let mut outcome = Ok(());
            while outcome.is_ok() {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= items {
                    break;
                }
                outcome = write(&container, workload.body(number, 0), number).await;
                bar.inc(1);
            }
            let _ = ended.send(outcome);
        });
    }
    drop(ended);
    while let Some(outcome) = ends.recv().await {
        outcome?;
    }
    Ok(())
}

async fn write(container: &Container, body: Vec<u8>, number: u64) -> Result<()> {
    let key = crate::commands::bench::workload::Key::of(number);
    let key = PartitionKey::from(key.customer.as_str());
    container.upsert(&key, body, &Precondition::None).await?;
    Ok(())
}

async fn read_served(clock: &Runtime, container: &Container, items: u64) -> Result<f64> {
    let id = container.ranges().await?.first().context("a container without ranges")?.id;
    let began = clock.elapsed();
    let (mut from, mut seen) = (FeedFrom::Beginning, 0);
    loop {
        let read = FeedRead::new(FeedScope::Range(id), from).items(PAGE);
        let page = container.read_feed(&read).await?;
        if page.changes.is_empty() {
            break;
        }
        let bytes: usize = page.changes.iter().map(|change| change.len()).sum();
        std::hint::black_box(bytes);
        seen += u64::try_from(page.changes.len()).unwrap_or(0);
        from = FeedFrom::After(page.etag);
    }
    ensure!(seen == items, "{seen} of {items} items are in the feed");
    Ok(rate(items, clock.elapsed() - began))
}

/// From sending a write to its arrival at a handler.
fn latencies(harness: &Harness, client: &Client) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for waits in [true, false] {
        let (clock, client) = (harness.clock.clone(), client.clone());
        let window = harness.plan.window;
        let seen = harness.run(async move { latency(&clock, &client, waits, window).await })?;
        let how = if waits { "the feed waits" } else { "asked every 5 s" };
        for (quantile, name) in [(0.5, "median"), (0.99, "99th percentile")] {
            let row = Row::new(format!("write to handler, {how}, {name}"), Unit::Milliseconds);
            let hold =
                waits.then_some(Hold::AtMost(Of::Ours, if quantile < 0.9 { 10.0 } else { 50.0 }));
            let ours = Some(seen.value_at_quantile(quantile) as f64 / 1e3);
            rows.push(Row { ours, hold, ..row.noted(format!("{} writes", seen.len())) });
        }
    }
    Ok(rows)
}

async fn latency(
    clock: &Runtime,
    client: &Client,
    waits: bool,
    window: Duration,
) -> Result<Histogram<u64>> {
    let container = client.container("shop", "quick");
    let leases = client.container("shop", "leases");
    let leases = ContainerLeases::open_or_create(leases, Layout::PartitionKey, None).await?;
    let mut options = Options::native(format!("latency-{waits}"));
    options.start = Start::Now;
    if !waits {
        options.feed_wait = Duration::ZERO;
    }
    let (arrived, mut arrivals) = mpsc::unbounded_channel::<(u64, Duration)>();
    let time = clock.clone();
    let processor = Processor::builder()
        .source(RemoteFeed::new(container.clone()))
        .leases(leases)
        .handler(move |batch: Batch| {
            let now = time.elapsed();
            for change in batch.changes.iter() {
                if let Ok(json) = change.parse::<serde_json::Value>() {
                    let sent = json["sent"].as_u64().unwrap_or(0);
                    let _ = arrived.send((sent, now));
                }
            }
            async { Ok(Ack::Done) }
        })
        .options(options)
        .build()?;
    let running = processor.start().await?;
    running.ready().await;
    // The first change comes after the first page was asked for, in both ways.
    clock.sleep(Duration::from_millis(300)).await;
    let mut seen = Histogram::<u64>::new(3)?;
    let until = clock.elapsed() + window.max(Duration::from_secs(6));
    let mut number = 0_u64;
    while clock.elapsed() < until {
        let sent = u64::try_from(clock.elapsed().as_micros()).unwrap_or(0);
        let body = format!(r#"{{"id":"{waits}-{number}","customer":"c","sent":{sent}}}"#);
        container.upsert(&PartitionKey::from("c"), body, &Precondition::None).await?;
        number += 1;
        clock.sleep(Duration::from_millis(20)).await;
    }
    while seen.len() < number {
        let (sent, at) = arrivals.recv().await.context("the processor ended")?;
        let at = u64::try_from(at.as_micros()).unwrap_or(0);
        seen.record(at.saturating_sub(sent).max(1))?;
    }
    running.stop().await;
    Ok(seen)
}

/// What leases without changes cost.
pub(super) fn idle(harness: &Harness) -> Result<Vec<Row>> {
    let (clock, window) = (harness.clock.clone(), harness.plan.window);
    let (micros, bytes) = harness.run(async move {
        let feed = MemoryFeed::new(clock.clone(), IDLE_LEASES);
        let before = machine::resident_bytes().0;
        let mut options = Options::native("p");
        options.start = Start::Beginning;
        let processor = Processor::builder()
            .source(feed)
            .leases(MemoryLeases::new(clock.clone()))
            .handler(|_: Batch| async { Ok(Ack::Done) })
            .options(options)
            .build()?;
        let running = processor.start().await?;
        running.ready().await;
        clock.sleep(Duration::from_secs(3)).await;
        let (cpu, began) = (process_cpu(), clock.elapsed());
        clock.sleep(window).await;
        let cpu = process_cpu().saturating_sub(cpu).as_secs_f64();
        let micros = cpu / (clock.elapsed() - began).as_secs_f64() * 1e6;
        let bytes = machine::resident_bytes().0.saturating_sub(before);
        running.stop().await;
        Ok((micros, bytes as f64))
    })?;
    let cpu = Row {
        ours: Some(micros / 1e3),
        hold: Some(Hold::AtMost(Of::Ours, 50.0)),
        ..Row::new("CPU a second of 1000 idle leases", Unit::Milliseconds)
            .noted("one host, feed and leases in memory")
    };
    let memory = Row {
        ours: Some(bytes),
        hold: Some(Hold::AtMost(Of::Ours, 50e6)),
        ..Row::new("memory of 1000 idle leases", Unit::Bytes)
    };
    Ok(vec![cpu, memory])
}
