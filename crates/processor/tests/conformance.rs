//! Every feed source and every lease store passes its conformance suite, and a processor runs end to end on each of
//! them.

#![allow(clippy::unwrap_used)] // A failing step of a test should panic where it fails.

use headwater_client::{Client, Credential, Endpoint};
use headwater_model::FeedMode;
use headwater_processor::lease_store::{
    ContainerLeases, EmbeddedLeases, Layout, LeaseStore, MemoryLeases, NewDocument,
};
use headwater_processor::source::conformance::Subject;
use headwater_processor::source::{EmbeddedFeed, FeedSource, MemoryFeed, ReadRequest, RemoteFeed};
use headwater_processor::{
    Ack, Batch, HandlerError, Namespace, Options, Processor, Start, StartError, Unit, lag_of,
};
use headwater_runtime::{BoxFuture, Runtime};
use headwater_server::{Config, Server};
use headwater_store::{Account, Container, ContainerDefinition, Database};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

async fn store() -> (Account, Database, Container, Container) {
    let mut options = headwater_store::Options::default();
    options.partitions = 2;
    let account = Account::ephemeral_with(options).await.unwrap();
    let database = account.create_database("shop").await.unwrap();
    let feed = ContainerDefinition::new("feed", "/key").unwrap();
    let feed = database.create_container(feed).await.unwrap();
    let leases = ContainerDefinition::new("leases", "/partitionKey").unwrap();
    let leases = database.create_container(leases).await.unwrap();
    (account, database, feed, leases)
}

/// A container without a partition key, as the service reports it.
const FIXED: &str =
    r#"{"id":"fixed","partitionKey":{"paths":["/_partitionKey"],"kind":"Hash","systemKey":true}}"#;

struct Memory(MemoryFeed);

impl Subject for Memory {
    fn source(&self) -> Arc<dyn FeedSource> {
        Arc::new(self.0.clone())
    }

    fn put(&self, key: &str, id: &str, text: &str) -> BoxFuture<()> {
        self.0.put(key, &[(id, text)]);
        Box::pin(async {})
    }

    fn split(&self, index: usize) -> BoxFuture<()> {
        let feed = self.0.clone();
        Box::pin(async move {
            assert!(feed.split(feed.ranges(true).await.unwrap()[index].id));
        })
    }

    fn merge(&self, index: usize) -> BoxFuture<()> {
        let feed = self.0.clone();
        Box::pin(async move {
            assert!(feed.merge(feed.ranges(true).await.unwrap()[index].id));
        })
    }
}

/// A container of a store, read directly or over a server.
struct Stored {
    container: Container,
    source: Arc<dyn FeedSource>,
}

impl Subject for Stored {
    fn source(&self) -> Arc<dyn FeedSource> {
        self.source.clone()
    }

    fn put(&self, key: &str, id: &str, text: &str) -> BoxFuture<()> {
        let container = self.container.clone();
        let body = serde_json::json!({ "id": id, "key": key, "text": text }).to_string();
        Box::pin(async move {
            container.upsert(body).await.unwrap();
        })
    }

    fn split(&self, index: usize) -> BoxFuture<()> {
        let container = self.container.clone();
        Box::pin(async move {
            container.split(container.ranges()[index].id, None).await.unwrap();
        })
    }

    fn merge(&self, index: usize) -> BoxFuture<()> {
        let container = self.container.clone();
        Box::pin(async move {
            let ranges = container.ranges();
            container.merge(ranges[index].id, ranges[index + 1].id).await.unwrap();
        })
    }
}

/// A server in this process.
struct Served {
    server: Server,
    account: Account,
    feed: Container,
    client: Client,
}

impl Served {
    async fn start() -> Served {
        let (account, _, feed, _) = store().await;
        let mut config = Config::emulator().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        (config.http, config.https) = (Some(any), None);
        let server = Server::start(config, account.clone(), Runtime::system()).await.unwrap();
        let at = Endpoint::http("127.0.0.1", server.http().unwrap().port());
        let options = headwater_client::Options::default();
        let client =
            Client::new(at, Credential::emulator().unwrap(), options, Runtime::system()).unwrap();
        Served { server, account, feed, client }
    }

    async fn stop(self) {
        self.server.stop().await;
        self.account.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_source_passes_the_suite() {
    use headwater_processor::source::conformance::run;
    run(&Memory(MemoryFeed::new(Runtime::system(), 2))).await;
    let (account, database, feed, _) = store().await;
    let source = Arc::new(EmbeddedFeed::new(database, feed.clone()));
    run(&Stored { container: feed, source }).await;
    account.close().await.unwrap();
    let served = Served::start().await;
    let source = Arc::new(RemoteFeed::new(served.client.container("shop", "feed")));
    run(&Stored { container: served.feed.clone(), source }).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lease_store_passes_the_suite() {
    use headwater_processor::lease_store::conformance::run;
    for layout in [Layout::PartitionKey, Layout::Id, Layout::Unpartitioned] {
        run(Arc::new(MemoryLeases::with_layout(Runtime::system(), layout))).await;
    }
    let (account, database, _, leases) = store().await;
    run(Arc::new(EmbeddedLeases::new(leases, Runtime::system()).unwrap())).await;
    let by_id = ContainerDefinition::new("by-id", "/id").unwrap();
    let by_id = database.create_container(by_id).await.unwrap();
    run(Arc::new(EmbeddedLeases::new(by_id, Runtime::system()).unwrap())).await;
    let fixed = ContainerDefinition::from_json(FIXED).unwrap();
    let fixed = database.create_container(fixed).await.unwrap();
    let fixed = EmbeddedLeases::new(fixed, Runtime::system()).unwrap();
    assert_eq!(fixed.layout(), Layout::Unpartitioned);
    run(Arc::new(fixed)).await;
    account.close().await.unwrap();
    let served = Served::start().await;
    run(Arc::new(ContainerLeases::open(served.client.container("shop", "leases")).await.unwrap()))
        .await;
    let made = served.client.container("shop", "made");
    let made = ContainerLeases::open_or_create(made, Layout::Id, Some(400)).await.unwrap();
    assert_eq!(made.layout(), Layout::Id);
    run(Arc::new(made)).await;
    let made = served.client.container("shop", "fixed");
    let made = ContainerLeases::open_or_create(made, Layout::Unpartitioned, Some(400)).await;
    let made = made.unwrap();
    assert_eq!(made.layout(), Layout::Unpartitioned);
    run(Arc::new(made)).await;
    let foreign = ContainerLeases::open(served.client.container("shop", "feed")).await;
    assert!(foreign.is_err(), "a container with another partition key is refused");
    served.stop().await;
}

/// Runs processors on this source and store; their handlers send the ids of the changes.
async fn process(
    source: Arc<dyn FeedSource>,
    store: Arc<dyn LeaseStore>,
    put: impl AsyncFn(u32),
    split: impl AsyncFn(),
) {
    let (sent, mut ids) = mpsc::unbounded_channel::<String>();
    let start = |name: &str| {
        let sent = sent.clone();
        let mut options = Options::native("test");
        options.host_name = Some(name.to_owned());
        options.start = Start::Beginning;
        options.lanes = 2;
        options.acquire_interval = Duration::from_millis(300);
        options.renew_interval = Duration::from_millis(300);
        options.poll_delay = Duration::from_millis(100);
        let processor = Processor::builder()
            .source(source.clone())
            .leases(store.clone())
            .handler(move |batch: Batch| {
                let sent = sent.clone();
                async move {
                    for change in batch.changes.iter() {
                        let json: serde_json::Value = change.parse()?;
                        sent.send(json["id"].as_str().unwrap_or_default().to_owned())?;
                    }
                    Ok::<_, HandlerError>(Ack::Done)
                }
            })
            .options(options)
            .build()
            .unwrap();
        async move { processor.start().await.unwrap() }
    };
    for number in 0..50 {
        put(number).await;
    }
    let one = start("one").await;
    let mut seen = BTreeSet::new();
    while seen.len() < 50 {
        seen.insert(ids.recv().await.unwrap());
    }
    let two = start("two").await;
    split().await;
    for number in 50..100 {
        put(number).await;
    }
    while seen.len() < 100 {
        seen.insert(ids.recv().await.unwrap());
    }
    let identity = source.identity().await.unwrap();
    let unit =
        Unit::new(store.clone(), Namespace::new("test", &identity, false), Runtime::system());
    let snapshot = unit.look().await.unwrap();
    assert!(snapshot.leases.len() >= 3 && snapshot.unreadable.is_empty(), "{snapshot:?}");
    assert_eq!(snapshot.members.len(), 2);
    assert_eq!(Unit::discover(&*store).await.unwrap(), [unit.namespace().clone()]);
    let (first, second) = (one.stop().await, two.stop().await);
    for report in [first, second] {
        assert!(report.stopped.iter().all(|stopped| stopped.orderly), "{report:?}");
    }
    for info in unit.look().await.unwrap().leases {
        assert_eq!(info.lease.owner, None);
        let lag = lag_of(&*source, &info.lease, FeedMode::LatestVersion, 0).await.unwrap();
        assert_eq!(lag.transactions, Some(0), "{:?}", info.lease);
    }
    // Deliver everything again after a seek.
    unit.seek(None, &Start::Beginning, None, Duration::from_secs(1)).await.unwrap();
    let lags = unit.look().await.unwrap().leases;
    let lag = lag_of(&*source, &lags[0].lease, FeedMode::LatestVersion, 0).await.unwrap();
    assert!(lag.transactions.is_some_and(|lag| lag > 0));
    let three = start("three").await;
    let mut again = BTreeSet::new();
    while again.len() < 100 {
        again.insert(ids.recv().await.unwrap());
    }
    unit.pause(Duration::from_secs(5)).await.unwrap();
    assert_eq!(three.report().owned, Vec::<String>::new());
    unit.resume().await.unwrap();
    put(100).await;
    while !again.contains("i100") {
        again.insert(ids.recv().await.unwrap());
    }
    // An unreadable control document may have been a pause.
    damage_control(&*store, &unit).await;
    for _ in 0..600 {
        if three.report().owned.is_empty() {
            break;
        }
        Runtime::system().sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(three.report().owned, Vec::<String>::new());
    let snapshot = unit.look().await.unwrap();
    assert!(snapshot.control.paused && snapshot.unreadable.len() == 1, "{snapshot:?}");
    let obeyed = snapshot.members.iter().map(|member| member.generation).max();
    unit.resume().await.unwrap();
    assert!(Some(unit.look().await.unwrap().control.generation) > obeyed);
    put(101).await;
    while !again.contains("i101") {
        again.insert(ids.recv().await.unwrap());
    }
    three.stop().await;
}

async fn damage_control(store: &dyn LeaseStore, unit: &Unit) {
    let listing = store.list(&unit.namespace().prefix()).await.unwrap();
    let id = unit.namespace().control();
    let control = listing.documents.into_iter().find(|stored| stored.key.id == id).unwrap();
    let mut body: serde_json::Value = serde_json::from_slice(&control.body).unwrap();
    body["state"] = "pausd".into();
    let document = NewDocument { key: control.key, body: body.to_string().into() };
    store.replace(document, &control.etag).await.unwrap();
}

async fn put(container: &Container, number: u32) {
    let body = format!(r#"{{"id":"i{number}","key":"k{}"}}"#, number % 17);
    container.create(body).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_works_on_an_embedded_store() {
    let (account, database, feed, leases) = store().await;
    let source = Arc::new(EmbeddedFeed::new(database, feed.clone()));
    let leases = Arc::new(EmbeddedLeases::new(leases, Runtime::system()).unwrap());
    let (writer, splitter) = (feed.clone(), feed.clone());
    process(
        source,
        leases,
        async |n| put(&writer, n).await,
        async || {
            splitter.split(splitter.ranges()[0].id, None).await.unwrap();
        },
    )
    .await;
    account.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_works_over_a_server() {
    let served = Served::start().await;
    let feed = served.client.container("shop", "feed");
    let source = Arc::new(RemoteFeed::new(feed.clone()));
    let leases = ContainerLeases::open(served.client.container("shop", "leases")).await.unwrap();
    let writer = served.feed.clone();
    process(
        source,
        Arc::new(leases),
        async |n| put(&writer, n).await,
        async || {
            let range = feed.refresh_ranges().await.unwrap()[0].id;
            feed.split(range, None).await.unwrap();
        },
    )
    .await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_keeps_its_leases_in_a_container_without_a_partition_key() {
    let served = Served::start().await;
    let feed = served.client.container("shop", "feed");
    served.client.create_container("shop", FIXED, None).await.unwrap();
    let leases = ContainerLeases::open(served.client.container("shop", "fixed")).await.unwrap();
    let writer = served.feed.clone();
    process(
        Arc::new(RemoteFeed::new(feed.clone())),
        Arc::new(leases),
        async |n| put(&writer, n).await,
        async || {
            let range = feed.refresh_ranges().await.unwrap()[0].id;
            feed.split(range, None).await.unwrap();
        },
    )
    .await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_not_kept_in_the_container_they_are_about() {
    async fn start(source: impl FeedSource, leases: impl LeaseStore) -> Result<(), StartError> {
        let processor = Processor::builder()
            .source(source)
            .leases(leases)
            .handler(|_: Batch| async { Ok(Ack::Done) })
            .options(Options::native("p"))
            .build()
            .unwrap();
        processor.start().await?.stop().await;
        Ok(())
    }
    let served = Served::start().await;
    let shop = served.account.database("shop").await.unwrap();
    let leases = shop.container("leases").await.unwrap();
    let embedded = || EmbeddedLeases::new(leases.clone(), Runtime::system()).unwrap();
    let remote = || ContainerLeases::open(served.client.container("shop", "leases"));
    let monitored = |name| RemoteFeed::new(served.client.container("shop", name));
    let refused = start(EmbeddedFeed::new(shop.clone(), leases.clone()), embedded()).await;
    assert_eq!(refused, Err(StartError::SameContainer));
    let refused = start(monitored("leases"), Arc::new(remote().await.unwrap())).await;
    assert_eq!(refused, Err(StartError::SameContainer));
    start(monitored("feed"), remote().await.unwrap()).await.unwrap();
    start(EmbeddedFeed::new(shop.clone(), served.feed.clone()), embedded()).await.unwrap();
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_token_is_honoured_when_the_feed_is_read() {
    let served = Served::start().await;
    let source = RemoteFeed::new(served.client.container("shop", "feed"));
    let range = source.ranges(true).await.unwrap().remove(0);
    let read = |token: String| {
        let source = source.clone().session_token(token);
        source.read(ReadRequest {
            container: None,
            range: range.keys.clone(),
            from: Start::Beginning,
            mode: FeedMode::LatestVersion,
            items_max: None,
            wait: Duration::ZERO,
        })
    };
    read(format!("{}:-1#0", range.id)).await.unwrap();
    assert!(read(format!("{}:-1#999", range.id)).await.is_err(), "no region has reached it");
    served.stop().await;
}
