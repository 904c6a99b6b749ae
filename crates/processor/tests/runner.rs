//! A custom runner pulls batches and handles them in its own order, and no change is lost.

#![allow(clippy::unwrap_used)] // A failing step of a test should panic where it fails.

use headwater_model::Lsn;
use headwater_processor::lease::Lease;
use headwater_processor::lease_store::MemoryLeases;
use headwater_processor::source::MemoryFeed;
use headwater_processor::{
    Batch, BuildError, Checkpoint, Event, HandlerError, LeaseContext, LeaseRunner, LeaseSession,
    Options, Position, Processor, ProcessorBuilder, Start,
};
use headwater_runtime::{Runtime, Simulation};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A feed of one range, a lease store, and the number of deliveries per change.
#[derive(Clone)]
struct Stage {
    runtime: Runtime,
    feed: MemoryFeed,
    leases: MemoryLeases,
    arrived: Arc<Mutex<BTreeMap<Vec<u8>, u32>>>,
}

impl Stage {
    fn new(runtime: Runtime) -> Stage {
        let feed = MemoryFeed::new(runtime.clone(), 1);
        let leases = MemoryLeases::new(runtime.clone());
        Stage { runtime, feed, leases, arrived: Arc::default() }
    }

    fn write(&self, from: u32, to: u32) {
        for number in from..to {
            self.feed.put(&format!("k{}", number % 3), &[(&number.to_string(), "x")]);
        }
    }

    fn processor(&self) -> ProcessorBuilder {
        let mut options = Options::native("p");
        (options.start, options.items_max) = (Start::Beginning, Some(5));
        Processor::builder()
            .source(self.feed.clone())
            .leases(self.leases.clone())
            .runtime(self.runtime.clone())
            .options(options)
    }

    fn arrive(&self, batch: &Batch) {
        let mut arrived = self.arrived.lock().unwrap();
        for change in batch.changes.iter() {
            *arrived.entry(change.body().to_vec()).or_default() += 1;
        }
    }

    fn stored(&self) -> Option<Lsn> {
        let leases = self.leases.export();
        let mut leases = leases.iter().filter_map(|stored| Lease::parse(&stored.body).ok());
        leases.next()?.position.as_ref().and_then(Position::lsn)
    }

    async fn sleep(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }
}

fn play<Work: Future<Output = ()> + Send + 'static>(script: fn(Stage) -> Work) {
    let simulation = Simulation::new(11);
    simulation.run(script(Stage::new(simulation.node().runtime())));
}

/// Pulls two batches and handles the second one before the first.
struct Backwards(Stage);

impl LeaseRunner for Backwards {
    async fn run(&mut self, mut session: LeaseSession) -> Result<(), HandlerError> {
        while let Some(first) = session.next().await {
            let Some(second) = session.next().await else { return Ok(()) };
            self.0.arrive(&second);
            second.context.done().await;
            self.0.sleep(3).await;
            assert!(
                self.0.stored() < first.context.lsn_range().map(|(from, _)| from),
                "the position does not pass the first batch"
            );
            self.0.arrive(&first);
            first.context.done().await;
            assert_eq!(self.0.stored(), second.context.lsn_range().map(|(_, to)| to));
        }
        Ok(())
    }
}

#[test]
fn a_position_never_passes_what_a_runner_has_not_handled_yet() {
    play(|stage| async move {
        stage.write(0, 20);
        let runners = stage.clone();
        let runner = move |_: &LeaseContext| Backwards(runners.clone());
        let running = stage.processor().runner(runner).build().unwrap().start().await.unwrap();
        stage.sleep(60).await;
        let arrived = stage.arrived.lock().unwrap().clone();
        assert_eq!((arrived.len(), arrived.values().max()), (20, Some(&1)));
        let report = running.stop().await;
        assert!(report.stopped.iter().all(|stopped| stopped.orderly), "{report:?}");
    });
}

/// Fails or panics for some batches, or returns early.
struct Fickle(Stage, Arc<AtomicU32>);

impl LeaseRunner for Fickle {
    async fn run(&mut self, mut session: LeaseSession) -> Result<(), HandlerError> {
        while let Some(batch) = session.next().await {
            self.0.arrive(&batch);
            match self.1.fetch_add(1, Ordering::SeqCst) {
                1 => return Err(HandlerError::new("not this one")),
                3 => panic!("simulated panic"),
                5 => return Ok(()),
                _ => batch.context.checkpoint().await?,
            }
        }
        Ok(())
    }
}

#[test]
fn what_a_runner_did_not_finish_comes_again() {
    play(|stage| async move {
        stage.write(0, 20);
        let (runners, calls) = (stage.clone(), Arc::new(AtomicU32::new(0)));
        let runner = move |_: &LeaseContext| Fickle(runners.clone(), calls.clone());
        let running = stage.processor().runner(runner).build().unwrap().start().await.unwrap();
        stage.sleep(200).await;
        let arrived = stage.arrived.lock().unwrap().clone();
        let twice = arrived.values().filter(|times| **times == 2).count();
        assert_eq!((arrived.len(), twice), (20, 15), "{arrived:?}");
        assert_eq!(running.report().owned.len(), 1, "the lease is owned again");
        running.stop().await;
    });
}

#[test]
fn a_runner_is_stopped_with_its_host_and_decides_by_itself_what_happens_at_once() {
    struct Waits(Stage);
    impl LeaseRunner for Waits {
        async fn run(&mut self, mut session: LeaseSession) -> Result<(), HandlerError> {
            let mut kept = Vec::new();
            while let Some(batch) = session.next().await {
                kept.push(batch);
            }
            // The lease is ending: work in progress may be finished.
            for batch in &kept {
                self.0.arrive(batch);
                batch.context.done().await;
            }
            Ok(())
        }
    }
    play(|stage| async move {
        stage.write(0, 20);
        let runners = stage.clone();
        let runner = move |_: &LeaseContext| Waits(runners.clone());
        let mut options = Options::native("p");
        options.lanes = 2;
        let lanes = stage.processor().options(options).runner(runner.clone()).build();
        assert!(matches!(lanes, Err(BuildError::Option(_))));
        let mut options = Options::native("p");
        (options.start, options.items_max) = (Start::Beginning, Some(5));
        options.checkpoint =
            Checkpoint::Every { items: 0, bytes: 0, interval: Duration::from_secs(3600) };
        let builder = stage.processor().options(options).runner(runner);
        let running = builder.build().unwrap().start().await.unwrap();
        stage.sleep(30).await;
        let report = running.stop().await;
        assert!(report.stopped.iter().all(|stopped| stopped.orderly), "{report:?}");
        assert_eq!(stage.arrived.lock().unwrap().len(), 20);
        assert_eq!(stage.stored(), Some(Lsn::new(20)), "everything is stored");
    });
}

/// Acknowledges every batch twice.
struct Twice;

impl LeaseRunner for Twice {
    async fn run(&mut self, mut session: LeaseSession) -> Result<(), HandlerError> {
        while let Some(batch) = session.next().await {
            assert_eq!(batch.context.diagnostics().len(), 1);
            batch.context.done().await;
            batch.context.checkpoint().await?;
        }
        Ok(())
    }
}

#[test]
fn what_a_runner_handled_is_told_as_that_of_a_handler_is_and_once() {
    play(|stage| async move {
        stage.write(0, 20);
        let told = Arc::new(AtomicU32::new(0));
        let counted = told.clone();
        let mut options = Options::native("p");
        (options.start, options.items_max) = (Start::Beginning, Some(5));
        let options = options.on_event(move |event: &Event| {
            if let Event::Handled { changes, .. } = event {
                counted.fetch_add(u32::try_from(*changes).unwrap(), Ordering::SeqCst);
            }
        });
        let builder = stage.processor().options(options).runner(|_: &LeaseContext| Twice);
        let running = builder.build().unwrap().start().await.unwrap();
        stage.sleep(30).await;
        running.stop().await;
        assert_eq!(told.load(Ordering::SeqCst), 20);
    });
}

#[test]
fn bytes_that_a_runner_handled_count_towards_a_checkpoint() {
    struct Once;
    impl LeaseRunner for Once {
        async fn run(&mut self, mut session: LeaseSession) -> Result<(), HandlerError> {
            while let Some(batch) = session.next().await {
                batch.context.done().await;
            }
            Ok(())
        }
    }
    play(|stage| async move {
        stage.write(0, 20);
        let mut options = Options::native("p");
        (options.start, options.items_max) = (Start::Beginning, Some(5));
        options.checkpoint =
            Checkpoint::Every { items: 0, bytes: 1, interval: Duration::from_secs(3600) };
        let builder = stage.processor().options(options).runner(|_: &LeaseContext| Once);
        let running = builder.build().unwrap().start().await.unwrap();
        stage.sleep(30).await;
        assert_eq!(stage.stored(), Some(Lsn::new(20)), "without waiting for the clock");
        running.stop().await;
    });
}
