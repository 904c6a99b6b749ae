//! What follows from the protocol alone: fleets in one thread, in virtual time, where a minute takes no
//! time and a neighbour on the machine changes nothing.

use super::hosts::Settings;
use crate::commands::bench::report::{Hold, Of, Row, Unit};
use headwater_processor::lease::{DocumentKey, Flavour};
use headwater_processor::lease_store::{
    Layout, LeaseStore, Listing, MemoryLeases, NewDocument, StoreError, StoreWrite, Stored,
};
use headwater_processor::source::MemoryFeed;
use headwater_processor::{Ack, Batch, Options, Processor, Running, Start};
use headwater_runtime::{BoxFuture, Node, Runtime, Simulation};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a request to the lease container takes.
const LATENCY: Duration = Duration::from_millis(5);
/// Deaths at random moments.
const DEATHS: u64 = 20;

/// Leases that are a little away, and counted.
#[derive(Clone)]
struct Counted {
    inner: MemoryLeases,
    runtime: Runtime,
    reads: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
}

impl Counted {
    fn after<T: Send + 'static>(
        &self,
        counter: &AtomicU64,
        work: impl FnOnce(&MemoryLeases) -> BoxFuture<Result<T, StoreError>> + Send + 'static,
    ) -> BoxFuture<Result<T, StoreError>> {
        counter.fetch_add(1, Ordering::Relaxed);
        let (inner, runtime) = (self.inner.clone(), self.runtime.clone());
        Box::pin(async move {
            runtime.sleep(LATENCY).await;
            work(&inner).await
        })
    }
}

impl LeaseStore for Counted {
    fn list(&self, prefix: &str) -> BoxFuture<Result<Listing, StoreError>> {
        let prefix = prefix.to_owned();
        self.after(&self.reads, move |leases| leases.list(&prefix))
    }

    fn read(&self, key: &DocumentKey) -> BoxFuture<Result<Option<Stored>, StoreError>> {
        let key = key.clone();
        self.after(&self.reads, move |leases| leases.read(&key))
    }

    fn create(&self, document: NewDocument) -> BoxFuture<Result<Stored, StoreError>> {
        self.after(&self.writes, move |leases| leases.create(document))
    }

    fn replace(
        &self,
        document: NewDocument,
        if_match: &str,
    ) -> BoxFuture<Result<Stored, StoreError>> {
        let if_match = if_match.to_owned();
        self.after(&self.writes, move |leases| leases.replace(document, &if_match))
    }

    fn delete(&self, key: &DocumentKey, if_match: &str) -> BoxFuture<Result<(), StoreError>> {
        let (key, if_match) = (key.clone(), if_match.to_owned());
        self.after(&self.writes, move |leases| leases.delete(&key, &if_match))
    }

    fn atomic(&self, writes: Vec<StoreWrite>) -> BoxFuture<Result<Option<()>, StoreError>> {
        self.after(&self.writes, move |leases| leases.atomic(writes))
    }

    fn layout(&self) -> Layout {
        self.inner.layout()
    }
}

/// How often every change was delivered, by its id.
type Deliveries = Arc<Mutex<BTreeMap<String, u32>>>;

/// Hosts on machines of their own, a feed and a lease store.
#[derive(Clone)]
struct Fleet {
    simulation: Simulation,
    /// Where the feed and the leases are.
    outside: Runtime,
    feed: MemoryFeed,
    leases: MemoryLeases,
    options: Options,
    reads: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
    delivered: Deliveries,
}

struct Host {
    node: Node,
    running: Arc<Mutex<Option<Running>>>,
}

impl Fleet {
    fn new(seed: u64, ranges: u32, mut options: Options) -> Fleet {
        options.start = Start::Beginning;
        let simulation = Simulation::new(seed);
        let outside = simulation.node().runtime();
        Fleet {
            feed: MemoryFeed::new(outside.clone(), ranges),
            leases: MemoryLeases::new(outside.clone()),
            simulation,
            outside,
            options,
            reads: Arc::default(),
            writes: Arc::default(),
            delivered: Arc::default(),
        }
    }

    fn start(&self, name: &str) -> Host {
        let node = self.simulation.node();
        let runtime = node.runtime();
        let mut options = self.options.clone();
        options.host_name = Some(name.to_owned());
        let delivered = self.delivered.clone();
        let leases = Counted {
            inner: self.leases.clone(),
            runtime: runtime.clone(),
            reads: self.reads.clone(),
            writes: self.writes.clone(),
        };
        let processor = Processor::builder()
            .source(self.feed.clone())
            .leases(leases)
            .handler(move |batch: Batch| {
                for change in batch.changes.iter() {
                    if let Ok(json) = change.parse::<serde_json::Value>() {
                        *delivered.lock().entry(json["id"].to_string()).or_default() += 1;
                    }
                }
                async { Ok(Ack::Done) }
            })
            .options(options)
            .runtime(runtime.clone())
            .build();
        let running = Arc::new(Mutex::new(None));
        let slot = running.clone();
        runtime.spawn("host", async move {
            if let Ok(processor) = processor
                && let Ok(started) = processor.start().await
            {
                *slot.lock() = Some(started);
            }
        });
        Host { node, running }
    }

    async fn sleep(&self, seconds: u64) {
        self.outside.sleep(Duration::from_secs(seconds)).await;
    }

    /// One change in every range, more or less.
    fn put(&self, round: u64) {
        for key in 0..200 {
            self.feed.put(&format!("k{key}"), &[(&format!("{round}-{key}"), "x")]);
        }
    }

    fn has_delivered(&self, rounds: u64) -> bool {
        u64::try_from(self.delivered.lock().len()).is_ok_and(|count| count >= rounds * 200)
    }

    fn play<T: Send + 'static>(self, script: impl FnOnce(Fleet) -> BoxFuture<T>) -> T {
        let simulation = self.simulation.clone();
        simulation.run(script(self))
    }
}

/// Ends a host as a power cut would.
fn kill(host: &Host) {
    host.node.kill();
    drop(host.running.lock().take());
}

/// Lease writes per minute, idle: ours, and in the form of the originals.
pub(super) fn lease_writes() -> Vec<Row> {
    let shared = Options::interop(Flavour::DotNetV3, "p");
    let forms = [("native", Options::native("p"), 100.0), ("shared with .NET", shared, 260.0)];
    let row = |(name, options, most): (&str, Options, f64)| {
        let (writes, reads) = Fleet::new(1, 64, options).play(|fleet| {
            Box::pin(async move {
                let hosts: Vec<Host> = (0..4).map(|n| fleet.start(&format!("h{n}"))).collect();
                fleet.sleep(300).await;
                let before =
                    [&fleet.writes, &fleet.reads].map(|count| count.load(Ordering::Relaxed));
                fleet.sleep(600).await;
                let after =
                    [&fleet.writes, &fleet.reads].map(|count| count.load(Ordering::Relaxed));
                hosts.iter().for_each(kill);
                (after[0] - before[0], after[1] - before[1])
            })
        });
        let question = format!("lease writes a minute, 64 ranges, 4 hosts, {name}");
        let note = format!("reads of the lease container: {:.1} a minute", reads as f64 / 10.0);
        Row {
            ours: Some(writes as f64 / 10.0),
            hold: Some(Hold::AtMost(Of::Ours, most)),
            ..Row::new(question, Unit::Times).noted(note)
        }
    };
    forms.into_iter().map(row).collect()
}

/// From the death of a host to everything being delivered by others.
pub(super) fn failover() -> Vec<Row> {
    let mut fast = Options::native("p");
    Settings::Fast.apply(&mut fast);
    let kinds = [("defaults", Options::native("p"), 25.0), ("fast settings", fast, 3.0)];
    let row = |(name, options, most): (&str, Options, f64)| {
        let took = |seed| {
            Fleet::new(seed, 8, options.clone()).play(move |fleet| {
                Box::pin(async move {
                    let hosts = [fleet.start("a"), fleet.start("b")];
                    fleet.sleep(30).await;
                    let pause = fleet.outside.random() % 5000;
                    fleet.outside.sleep(Duration::from_millis(pause)).await;
                    kill(&hosts[0]);
                    let died = fleet.outside.elapsed();
                    fleet.put(0);
                    while !fleet.has_delivered(1) {
                        fleet.outside.sleep(Duration::from_millis(10)).await;
                    }
                    let took = fleet.outside.elapsed() - died;
                    kill(&hosts[1]);
                    took
                })
            })
        };
        let took: Vec<Duration> = (0..DEATHS).map(took).collect();
        let worst = took.iter().max().map(Duration::as_secs_f64);
        let mean = took.iter().map(Duration::as_secs_f64).sum::<f64>() / DEATHS as f64;
        Row {
            ours: worst.map(|seconds| seconds * 1e3),
            hold: Some(Hold::AtMost(Of::Ours, most * 1e3)),
            ..Row::new(format!("death of a host to progress elsewhere, {name}"), Unit::Milliseconds)
                .noted(format!("worst of {DEATHS}; {mean:.1} s on average"))
        }
    };
    kinds.into_iter().map(row).collect()
}

/// What comes twice when hosts come and go in order, under changes all the time.
pub(super) fn handover() -> Row {
    let (twice, all) = Fleet::new(7, 16, Options::native("p")).play(|fleet| {
        Box::pin(async move {
            let mut hosts: Vec<Host> = Vec::new();
            let mut round = 0;
            for joining in 0..4 {
                hosts.push(fleet.start(&format!("h{joining}")));
                for _ in 0..20 {
                    fleet.put(round);
                    round += 1;
                    fleet.sleep(1).await;
                }
            }
            while let Some(host) = hosts.pop() {
                let running = host.running.lock().take();
                if hosts.is_empty() {
                    while !fleet.has_delivered(round) {
                        fleet.sleep(1).await;
                    }
                }
                if let Some(running) = running {
                    running.stop().await;
                }
                if !hosts.is_empty() {
                    fleet.put(round);
                    round += 1;
                    fleet.sleep(10).await;
                }
            }
            let delivered = fleet.delivered.lock();
            let twice = delivered.values().filter(|times| **times > 1).count();
            (twice, delivered.len())
        })
    });
    Row {
        ours: Some(twice as f64),
        hold: Some(Hold::AtMost(Of::Ours, 0.0)),
        ..Row::new("changes delivered twice at planned handovers", Unit::Times)
            .noted(format!("of {all}, while 4 hosts join and leave"))
    }
}
