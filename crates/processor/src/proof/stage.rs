//! A feed of one range, a lease store and a log, for tests of a single host.

use crate::handler::{Batch, HandlerFactory};
use crate::lease::Lease;
use crate::lease_store::MemoryLeases;
use crate::source::MemoryFeed;
use crate::{Options, Processor, Running, Start};
use headwater_runtime::{BoxFuture, Node, Runtime, Simulation};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

pub(super) type Log = Arc<Mutex<Vec<String>>>;

/// A feed of one range, a lease store, and a log of what happened.
#[derive(Clone)]
pub(super) struct Stage {
    simulation: Simulation,
    pub(super) runtime: Runtime,
    pub(super) feed: MemoryFeed,
    pub(super) leases: MemoryLeases,
    pub(super) log: Log,
}

impl Stage {
    pub(super) fn play(script: impl FnOnce(Stage) -> BoxFuture<()>) {
        let simulation = Simulation::new(7);
        let runtime = simulation.node().runtime();
        let stage = Stage {
            feed: MemoryFeed::new(runtime.clone(), 1),
            leases: MemoryLeases::new(runtime.clone()),
            runtime,
            log: Log::default(),
            simulation: simulation.clone(),
        };
        simulation.run(script(stage));
    }

    /// Creates a separate machine, which can be killed.
    pub(super) fn machine(&self) -> Node {
        self.simulation.node()
    }

    pub(super) fn options(&self) -> Options {
        Options { start: Start::Beginning, ..Options::native("p") }
    }

    pub(super) async fn start(&self, options: Options, handler: impl HandlerFactory) -> Running {
        let processor = Processor::builder()
            .source(self.feed.clone())
            .leases(self.leases.clone())
            .handler(handler)
            .options(options)
            .runtime(self.runtime.clone())
            .build()
            .unwrap();
        processor.start().await.unwrap()
    }

    pub(super) fn put(&self, ids: std::ops::Range<u32>) {
        for id in ids {
            self.feed.put("k", &[(&id.to_string(), "x")]);
        }
    }

    pub(super) async fn sleep(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }

    pub(super) fn stored(&self) -> Option<u64> {
        let documents = self.leases.export();
        let lease = documents.iter().find_map(|stored| Lease::parse(&stored.body).ok())?;
        lease.position?.lsn().map(headwater_model::Lsn::get)
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

/// Returns the ids of a batch as one string.
pub(super) fn ids(batch: &Batch) -> String {
    let id = |change: &crate::source::Change| {
        let json: serde_json::Value = change.parse().unwrap();
        json["id"].as_str().unwrap().to_owned()
    };
    batch.changes.iter().map(id).collect::<Vec<_>>().join(",")
}
