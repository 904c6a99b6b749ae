//! Handlers that block their thread: the host stays alive, and a handler that cannot be cancelled is not called again
//! before it has returned. Runs on the real clock, because a blocked thread cannot be simulated; no check depends on
//! how long anything takes.

#![allow(clippy::unwrap_used)] // A failing step of a test should panic where it fails.

mod support;

use bytes::Bytes;
use headwater_model::PartitionId;
use headwater_processor::lease::DocumentKey;
use headwater_processor::lease_store::{
    Layout, LeaseStore, Listing, MemoryLeases, NewDocument, StoreError, StoreWrite, Stored,
};
use headwater_processor::member::Member;
use headwater_processor::source::MemoryFeed;
use headwater_processor::{
    Ack, Batch, CloseReason, Event, Options, Processor, ProcessorBuilder, Running, Start,
};
use headwater_runtime::{BoxFuture, Runtime};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::until;

/// A feed of one range, a lease store, and the events.
#[derive(Clone)]
struct Stage {
    feed: MemoryFeed,
    leases: MemoryLeases,
    told: Arc<Mutex<Vec<Event>>>,
}

impl Stage {
    fn new() -> Stage {
        let runtime = Runtime::system();
        Stage {
            feed: MemoryFeed::new(runtime.clone(), 1),
            leases: MemoryLeases::new(runtime),
            told: Arc::default(),
        }
    }

    fn options(&self, host: &str) -> Options {
        let mut options = Options::native("p");
        options.start = Start::Beginning;
        options.host_name = Some(host.to_owned());
        options.renew_interval = Duration::from_millis(100);
        options.acquire_interval = Duration::from_millis(200);
        options.expiration = Duration::from_secs(3);
        let told = self.told.clone();
        options.on_event(move |event: &Event| told.lock().unwrap().push(event.clone()))
    }

    fn processor(&self, host: &str) -> ProcessorBuilder {
        Processor::builder().source(self.feed.clone()).options(self.options(host))
    }

    fn was_told(&self, matches: impl Fn(&Event) -> bool) -> bool {
        self.told.lock().unwrap().iter().any(matches)
    }

    fn heartbeat(&self) -> u64 {
        let beats = self.leases.export();
        beats.iter().filter_map(|stored| Member::parse(&stored.body)).map(|m| m.heartbeat).sum()
    }
}

/// Longest time a handler blocks its thread if it is not released.
const HELD_MAX: Duration = Duration::from_secs(100);

/// Returns a handler that reports its call and blocks its thread until it is released.
fn blocking(
    called: Sender<()>,
    let_go: Receiver<()>,
) -> impl Fn(Batch) -> BoxFuture<Result<Ack, headwater_processor::HandlerError>> + Clone {
    let let_go = Arc::new(Mutex::new(let_go));
    let called = Arc::new(Mutex::new(called));
    move |_: Batch| {
        let (called, let_go) = (called.clone(), let_go.clone());
        Box::pin(async move {
            called.lock().unwrap().send(()).unwrap();
            // Dropping the sender releases all calls for good. The timeout makes the test fail instead of hang if the
            // blocked thread keeps the releasing code from running.
            let _ = let_go.lock().unwrap().recv_timeout(HELD_MAX);
            Ok(Ack::Done)
        })
    }
}

#[tokio::test(flavor = "current_thread")]
async fn f25_a_handler_that_blocks_its_thread_does_not_stop_the_heart() {
    let stage = Stage::new();
    stage.feed.put("k", &[("1", "x")]);
    let (called, calls) = channel();
    let (let_go, held) = channel();
    let processor = stage
        .processor("a")
        .leases(stage.leases.clone())
        .handler(blocking(called, held))
        .handler_threads(1)
        .build()
        .unwrap();
    let running = processor.start().await.unwrap();
    until(|| calls.try_recv().is_ok()).await;
    let before = stage.heartbeat();
    until(|| stage.heartbeat() > before + 10).await;
    until(|| stage.was_told(|event| matches!(event, Event::HandlerBlocks { .. }))).await;
    assert_eq!(running.report().owned.len(), 1, "it keeps its lease");
    drop(let_go);
    let report = running.stop().await;
    assert!(report.stopped.iter().all(|stopped| stopped.orderly), "{report:?}");
}

/// A lease store that can be cut off.
#[derive(Clone)]
struct Cut {
    inner: MemoryLeases,
    cut: Arc<AtomicBool>,
    /// The number of listings.
    looks: Arc<AtomicU32>,
}

impl Cut {
    fn or<T: Send + 'static>(
        &self,
        answer: BoxFuture<Result<T, StoreError>>,
    ) -> BoxFuture<Result<T, StoreError>> {
        match self.cut.load(Ordering::SeqCst) {
            true => Box::pin(async { Err(StoreError::Unavailable("cut".to_owned())) }),
            false => answer,
        }
    }

    fn never<T: Send + 'static>(&self) -> Option<BoxFuture<Result<T, StoreError>>> {
        let cut = self.cut.load(Ordering::SeqCst);
        cut.then(|| Box::pin(async { Err(StoreError::Unavailable("cut".to_owned())) }) as _)
    }
}

impl LeaseStore for Cut {
    fn list(&self, prefix: &str) -> BoxFuture<Result<Listing, StoreError>> {
        if !self.cut.load(Ordering::SeqCst) {
            self.looks.fetch_add(1, Ordering::SeqCst);
        }
        self.or(self.inner.list(prefix))
    }

    fn read(&self, key: &DocumentKey) -> BoxFuture<Result<Option<Stored>, StoreError>> {
        self.or(self.inner.read(key))
    }

    fn create(&self, document: NewDocument) -> BoxFuture<Result<Stored, StoreError>> {
        self.never().unwrap_or_else(|| self.inner.create(document))
    }

    fn replace(
        &self,
        document: NewDocument,
        if_match: &str,
    ) -> BoxFuture<Result<Stored, StoreError>> {
        self.never().unwrap_or_else(|| self.inner.replace(document, if_match))
    }

    fn delete(&self, key: &DocumentKey, if_match: &str) -> BoxFuture<Result<(), StoreError>> {
        self.never().unwrap_or_else(|| self.inner.delete(key, if_match))
    }

    fn atomic(&self, writes: Vec<StoreWrite>) -> BoxFuture<Result<Option<()>, StoreError>> {
        self.never().unwrap_or_else(|| self.inner.atomic(writes))
    }

    fn layout(&self) -> Layout {
        self.inner.layout()
    }
}

#[tokio::test]
async fn f26_a_handler_that_cannot_be_cancelled_is_not_called_again_before_it_returned() {
    a_handler_is_left_behind(false).await;
}

#[tokio::test]
async fn f26_nor_for_keys_that_have_a_lease_of_their_own_by_then() {
    a_handler_is_left_behind(true).await;
}

/// A host loses its lease while its handler blocks, and could acquire it again: unchanged, or in parts.
async fn a_handler_is_left_behind(range_splits: bool) {
    let stage = Stage::new();
    stage.feed.put("k", &[("1", "x")]);
    let (called, calls) = channel();
    let (let_go, held) = channel();
    let (cut, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut options = stage.options("a");
    // Shorter than the handler blocks.
    options.drain_timeout = Duration::from_millis(100);
    let one = stage
        .processor("a")
        .options(options)
        .leases(Cut { inner: stage.leases.clone(), cut: cut.clone(), looks: looks.clone() })
        .handler(blocking(called, held))
        .handler_threads(2)
        .build()
        .unwrap();
    let one: Running = one.start().await.unwrap();
    until(|| calls.try_recv().is_ok()).await;
    cut.store(true, Ordering::SeqCst);
    let (handled, arrivals) = channel::<Bytes>();
    let handled = Arc::new(Mutex::new(handled));
    let other = stage
        .processor("b")
        .leases(stage.leases.clone())
        .handler(move |batch: Batch| {
            let handled = handled.clone();
            async move {
                let first = batch.changes[0].body().clone();
                handled.lock().unwrap().send(first)?;
                Ok(Ack::Done)
            }
        })
        .build()
        .unwrap();
    let other = other.start().await.unwrap();
    until(|| arrivals.try_recv().is_ok()).await;
    if range_splits {
        assert!(stage.feed.split(PartitionId::new(0)));
        let parse = |stored: &Stored| headwater_processor::lease::Lease::parse(&stored.body).ok();
        let running = |stored: &Stored| parse(stored).filter(|lease| !lease.is_retired());
        until(|| stage.leases.export().iter().filter_map(running).count() == 2).await;
    }
    // The first host can reach its leases again, and all of them are free.
    cut.store(false, Ordering::SeqCst);
    other.stop().await;
    let free = || {
        let parse = |stored: &Stored| headwater_processor::lease::Lease::parse(&stored.body).ok();
        let leases: Vec<_> = stage.leases.export().iter().filter_map(parse).collect();
        leases.iter().all(|lease| lease.owner.is_none())
    };
    until(free).await;
    // The host lists the free lease several times. Heartbeats would not prove that, because failed attempts count
    // as well.
    let before = looks.load(Ordering::SeqCst);
    until(|| looks.load(Ordering::SeqCst) > before + 8).await;
    assert!(calls.try_recv().is_err(), "the handler is not called before it has returned");
    assert!(free(), "it does not acquire the lease");
    drop(let_go);
    let expired =
        |event: &Event| matches!(event, Event::Closed { reason: CloseReason::LeaseExpired, .. });
    until(|| stage.was_told(expired)).await;
    stage.feed.put("k", &[("2", "x")]);
    until(|| calls.try_recv().is_ok()).await;
    one.stop().await;
}
