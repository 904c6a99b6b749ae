//! A position in the all-versions feed that is older than the retained history: the lease halts and reports it, other
//! leases continue, and nothing is skipped until an operator seeks.

#![allow(clippy::unwrap_used)] // A failing step of a test should panic where it fails.

mod support;

use headwater_model::FeedMode;
use headwater_processor::lease::LeaseState;
use headwater_processor::lease_store::MemoryLeases;
use headwater_processor::source::EmbeddedFeed;
use headwater_processor::{Ack, Batch, Event, Options, Position, Processor, Running, Start, Unit};
use headwater_runtime::Runtime;
use headwater_store::{Account, Container, ContainerDefinition, Database};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::until;

struct Stage {
    database: Database,
    orders: Container,
    leases: MemoryLeases,
    arrived: Arc<Mutex<BTreeSet<String>>>,
    halted: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    async fn start(&self) -> Running {
        let mut options = Options::native("p");
        (options.mode, options.start) = (FeedMode::AllVersionsAndDeletes, Start::Now);
        options.renew_interval = Duration::from_millis(100);
        options.acquire_interval = Duration::from_millis(100);
        let (halted, arrived) = (self.halted.clone(), self.arrived.clone());
        let options = options.on_event(move |event: &Event| {
            if let Event::Halted { lease, .. } = event {
                halted.lock().unwrap().push(lease.clone());
            }
        });
        let processor = Processor::builder()
            .source(EmbeddedFeed::new(self.database.clone(), self.orders.clone()))
            .leases(self.leases.clone())
            .handler(move |batch: Batch| {
                for change in batch.changes.iter() {
                    let json: serde_json::Value = change.parse().unwrap();
                    let text = json["current"]["n"].as_str().unwrap_or_default().to_owned();
                    arrived.lock().unwrap().insert(text);
                }
                async { Ok(Ack::Done) }
            })
            .options(options)
            .build()
            .unwrap();
        let running = processor.start().await.unwrap();
        running.ready().await;
        running
    }

    async fn write(&self, key: &str, n: &str) {
        let pad = "p".repeat(200);
        let body = format!(r#"{{"id":"1","pk":"{key}","n":"{n}","pad":"{pad}"}}"#);
        self.orders.upsert(body).await.unwrap();
    }

    fn has(&self, n: &str) -> bool {
        self.arrived.lock().unwrap().contains(n)
    }

    async fn unit(&self) -> Unit {
        let store = Arc::new(self.leases.clone());
        let namespace = Unit::discover(&*store).await.unwrap().remove(0);
        Unit::new(store, namespace, Runtime::system())
    }

    async fn position(&self, lease: &str) -> Option<Position> {
        let leases = self.unit().await.look().await.unwrap().leases;
        leases.into_iter().find(|info| info.lease.token == lease).unwrap().lease.position
    }
}

#[tokio::test]
async fn f45_a_position_older_than_what_is_kept_halts_its_lease_and_nothing_is_jumped_over() {
    let mut options = headwater_store::Options::default();
    options.segment_bytes = 4 << 10;
    options.history = Duration::ZERO;
    let account = Account::ephemeral_with(options).await.unwrap();
    let database = account.create_database("shop").await.unwrap();
    let definition = ContainerDefinition::new("orders", "/pk").unwrap();
    let orders = database.create_container_with(definition, 2).await.unwrap();
    let (arrived, halted) = (Arc::default(), Arc::default());
    let leases = MemoryLeases::new(Runtime::system());
    let stage = Stage { database, orders, leases, arrived, halted };

    let running = stage.start().await;
    // Enough keys for both ranges.
    for key in 0..20 {
        stage.write(&format!("k{key}"), &format!("first {key}")).await;
    }
    until(|| (0..20).all(|key| stage.has(&format!("first {key}")))).await;
    running.stop().await;
    for number in 0..300 {
        stage.write("k0", &format!("missed {number}")).await;
    }
    account.maintain().await.unwrap();

    let running = stage.start().await;
    until(|| !stage.halted.lock().unwrap().is_empty()).await;
    let lease = stage.halted.lock().unwrap()[0].clone();
    let before = stage.position(&lease).await;
    for key in 0..20 {
        stage.write(&format!("k{key}"), &format!("second {key}")).await;
    }
    until(|| (0..20).any(|key| stage.has(&format!("second {key}")))).await;
    assert!(
        !stage.has("second 0") && !stage.has("missed 299"),
        "the halted lease makes no progress"
    );
    let halted = stage.halted.lock().unwrap().clone();
    assert!(halted.iter().all(|one| *one == lease), "only one: {halted:?}");
    assert_eq!(stage.position(&lease).await, before, "its position stays unchanged");
    let states = stage.unit().await.look().await.unwrap().leases;
    let halted = states.iter().filter(|info| info.lease.extra.state == LeaseState::Halted);
    assert_eq!(halted.count(), 1);

    stage.unit().await.seek(Some(&lease), &Start::Now, None, Duration::from_secs(5)).await.unwrap();
    running.ready().await;
    // The position of `Now` is fixed when the lease is acquired; from then on nothing is missed.
    let mut number = 0;
    while !stage.has(&format!("third {}", number - 1)) {
        stage.write("k0", &format!("third {number}")).await;
        number += 1;
        assert!(number < 600, "the lease never continued");
        Runtime::system().sleep(Duration::from_millis(100)).await;
    }
    assert!(!stage.has("missed 299"), "the seek skips the changes in between");
    running.stop().await;
}
