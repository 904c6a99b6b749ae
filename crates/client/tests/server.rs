//! The client against a real server in the same process: what it writes is what it reads.

#![allow(clippy::unwrap_used)] // a failed test names the line

use bytes::Bytes;
use futures_util::TryStreamExt;
use headwater_client::{
    Batch, Client, Container, Credential, Endpoint, FeedFrom, FeedRead, FeedScope, Options,
    PageRequest, Precondition, Query, Reason,
};
use headwater_model::{FeedMode, PartitionKey, ResourceId};
use headwater_protocol::auth::{EMULATOR_KEY, Grant, GrantMode, Key, mint};
use headwater_runtime::Runtime;
use headwater_server::{Config, Server};
use headwater_store::{Account, ResourceType};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

struct World {
    server: Server,
    account: Account,
    client: Client,
}

impl World {
    async fn start() -> World {
        let account = Account::ephemeral().await.unwrap();
        let mut config = Config::emulator().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        (config.http, config.https) = (Some(any), Some(any));
        let server = Server::start(config, account.clone(), Runtime::system()).await.unwrap();
        let at = Endpoint::http("127.0.0.1", server.http().unwrap().port());
        let client = client(at, Options::default());
        World { server, account, client }
    }

    async fn container(&self) -> Container {
        self.client.create_database("shop").await.unwrap();
        let definition = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash"},
            "changeFeedPolicy":{"retentionDuration":10}}"#;
        self.client.create_container("shop", definition, Some(400)).await.unwrap();
        self.client.container("shop", "orders")
    }

    async fn stop(self) {
        self.server.stop().await;
        self.account.close().await.unwrap();
    }
}

fn client(at: Endpoint, options: Options) -> Client {
    Client::new(at, Credential::emulator().unwrap(), options, Runtime::system()).unwrap()
}

fn key(text: &str) -> PartitionKey {
    PartitionKey::parse(&format!("[\"{text}\"]")).unwrap()
}

fn item(id: &str, customer: &str) -> Bytes {
    Bytes::from(format!(r#"{{"id":"{id}","customer":"{customer}","total":1.50}}"#))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_follows_the_feed_through_a_split_and_ends_with_what_went_wrong() {
    let world = World::start().await;
    let orders = world.container().await;
    orders.create(&key("ann"), item("1", "ann")).await.unwrap();
    let read = FeedRead::new(FeedScope::Container, FeedFrom::Beginning);
    let mut pages = pin!(orders.changes(read));
    let first = pages.try_next().await.unwrap().unwrap();
    assert_eq!(first.changes.len(), 1);
    let range = orders.ranges().await.unwrap()[0].id;
    let mut of_range = pin!(
        orders.changes(FeedRead::new(FeedScope::Range(range), FeedFrom::After(first.etag.clone())))
    );
    let asked = async {
        orders.split(range, None).await.unwrap();
        orders.create(&key("bob"), item("2", "bob")).await.unwrap();
    };
    let (next, ()) = tokio::join!(pages.try_next(), asked);
    assert!(String::from_utf8_lossy(&next.unwrap().unwrap().changes[0]).contains("bob"));
    let gone = of_range.try_next().await.unwrap_err();
    assert_eq!(gone.reason(), Some(Reason::RangeGone), "{gone}");
    assert!(of_range.try_next().await.unwrap().is_none());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_read_with_a_session_is_not_served_by_who_is_behind_it() {
    let world = World::start().await;
    let orders = world.container().await;
    let read = FeedRead::new(FeedScope::Container, FeedFrom::Beginning);
    let behind = orders.read_feed(&read.clone().session_token("0:-1#1000".to_owned())).await;
    assert!(behind.is_err(), "{behind:?}");
    assert!(orders.read_feed(&read.session_token("0:-1#0".to_owned())).await.is_ok());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_and_containers_come_and_go() {
    let world = World::start().await;
    let account = world.client.account().await.unwrap();
    assert_eq!(account.id, "headwater");
    assert_eq!(account.readable[0].endpoint, *world.client.endpoint());
    world.container().await;
    let twice = world.client.create_database("shop").await.unwrap_err();
    assert!(twice.is_already_exists(), "{twice}");
    world.client.create_database("other + é").await.unwrap();
    world.client.read_database("other + é").await.unwrap();
    let page = PageRequest { items: Some(1), ..PageRequest::default() };
    let first = world.client.databases(&page).await.unwrap();
    assert_eq!(first.entries.len(), 1);
    let page = PageRequest { continuation: first.continuation, ..page };
    assert_eq!(world.client.databases(&page).await.unwrap().continuation, None);
    let listed = world.client.containers("shop", &PageRequest::default()).await.unwrap();
    assert_eq!(listed.entries.len(), 1);
    world.client.delete_container("shop", "orders").await.unwrap();
    let gone = world.client.read_container("shop", "orders").await.unwrap_err();
    assert!(gone.is_not_found(), "{gone}");
    world.client.delete_database("shop").await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_are_written_on_conditions_and_read_as_they_are() {
    let world = World::start().await;
    let orders = world.container().await;
    let (ann, any) = (key("ann"), Precondition::None);
    let created = orders.create(&ann, item("1", "ann")).await.unwrap();
    assert!(
        created.created && created.body.starts_with(br#"{"id":"1","customer":"ann","total":1.50"#)
    );
    let twice = orders.create(&ann, item("1", "ann")).await.unwrap_err();
    assert!(twice.is_already_exists(), "{twice}");
    let upserted = orders.upsert(&ann, item("1", "ann"), &any).await.unwrap();
    assert!(!upserted.created && upserted.etag != created.etag);
    let stale = Precondition::IfMatch(created.etag);
    let refused = orders.replace(&ann, "1", item("1", "ann"), &stale).await.unwrap_err();
    assert!(refused.is_precondition_failed(), "{refused}");
    let fresh = Precondition::IfMatch(upserted.etag);
    orders.replace(&ann, "1", item("1", "ann"), &fresh).await.unwrap();
    let patch = r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#;
    let patched = orders.patch(&ann, "1", patch, &any).await.unwrap();
    let read = orders.read(&ann, "1").await.unwrap().unwrap();
    assert_eq!((read.etag, &read.body), (patched.etag, &patched.body));
    orders.create(&ann, item("é +%", "ann")).await.unwrap();
    assert!(orders.read(&ann, "é +%").await.unwrap().is_some());
    orders.delete(&ann, "1", &any).await.unwrap();
    assert_eq!(orders.read(&ann, "1").await.unwrap(), None);
    let elsewhere = world.client.container("shop", "nothing").read(&ann, "1").await.unwrap_err();
    assert_eq!(elsewhere.reason(), Some(Reason::OwnerNotFound));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_all_or_nothing() {
    let world = World::start().await;
    let orders = world.container().await;
    let batch =
        Batch::new(key("ann")).create(&item("1", "ann")).upsert(&item("2", "ann")).read("1");
    let done = orders.batch(batch).await.unwrap();
    assert!(done.committed && done.operations.len() == 3, "{done:?}");
    assert!(done.operations[2].body.starts_with(br#"{"id":"1","customer":"ann","total":1.50"#));
    let batch = Batch::new(key("ann")).delete("2", None).create(&item("1", "ann"));
    let undone = orders.batch(batch).await.unwrap();
    let failed: Vec<_> = undone.operations.iter().map(|operation| operation.failed).collect();
    assert_eq!(failed, [Some(Reason::FailedDependency), Some(Reason::AlreadyExists)]);
    assert!(!undone.committed && orders.read(&key("ann"), "2").await.unwrap().is_some());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_goes_on_in_both_children_at_the_etag_of_the_parent() {
    let world = World::start().await;
    let orders = world.container().await;
    let write = async |from: usize, to: usize| {
        for n in from..to {
            let customer = format!("c{n}");
            let body = item(&n.to_string(), &customer);
            orders.create(&key(&customer), body).await.unwrap();
        }
    };
    write(0, 10).await;
    let parent = orders.ranges().await.unwrap()[0].clone();
    let read = FeedRead::new(FeedScope::Range(parent.id), FeedFrom::Beginning).items(10);
    let page = orders.read_feed(&read).await.unwrap();
    assert_eq!(page.changes.len(), 10);
    let children = orders.split(parent.id, None).await.unwrap();
    assert_eq!(children.len(), 2);
    assert_eq!(children[0].range.parents, [parent.id]);
    write(10, 20).await;
    let stale = FeedRead::new(FeedScope::Range(parent.id), FeedFrom::After(page.etag.clone()));
    let gone = orders.read_feed(&stale).await.unwrap_err();
    assert!(gone.is_range_gone(), "{gone}");
    let mut seen = 0;
    let ranges = orders.ranges().await.unwrap();
    assert_eq!(ranges.len(), 2);
    for range in ranges.iter() {
        let after = FeedFrom::After(page.etag.clone());
        let read = FeedRead::new(FeedScope::Range(range.id), after);
        seen += orders.read_feed(&read).await.unwrap().changes.len();
    }
    assert_eq!(seen, 10, "each of the later ten once");
    // After a merge, each child's reader continues in its part of the new range.
    let merged = orders.merge(ranges[0].id, ranges[1].id).await.unwrap();
    assert_eq!(orders.ranges().await.unwrap().len(), 1);
    let part = FeedScope::Part(merged[0].range.id, ranges[0].keys.clone());
    let page = orders.read_feed(&FeedRead::new(part, FeedFrom::Beginning)).await.unwrap();
    assert!((1..20).contains(&page.changes.len()));
    let partitions = orders.partitions().await.unwrap();
    assert!(partitions[0].lsn.get() > 10);
    assert!(partitions[0].live_bytes.unwrap() > 100, "{partitions:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_waits_is_woken_and_sees_deletes_in_the_other_mode() {
    let world = World::start().await;
    let orders = world.container().await;
    let range = FeedScope::Range(orders.ranges().await.unwrap()[0].id);
    let now = FeedRead::new(range.clone(), FeedFrom::Now).mode(FeedMode::AllVersionsAndDeletes);
    let start = orders.read_feed(&now).await.unwrap();
    assert!(start.changes.is_empty());
    let writer = orders.clone();
    let runtime = Runtime::system();
    runtime.spawn("writer", async move {
        Runtime::system().sleep(Duration::from_millis(50)).await;
        writer.create(&key("ann"), item("1", "ann")).await.unwrap();
        writer.delete(&key("ann"), "1", &Precondition::None).await.unwrap();
    });
    let mut etag = start.etag;
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..10 {
        let read = FeedRead::new(range.clone(), FeedFrom::After(etag))
            .mode(FeedMode::AllVersionsAndDeletes)
            .wait(Duration::from_secs(20));
        let page = orders.read_feed(&read).await.unwrap();
        seen.extend(page.changes.iter().map(|change| String::from_utf8_lossy(change).into_owned()));
        etag = page.etag;
        if seen.len() >= 2 {
            break;
        }
    }
    assert!(seen[0].contains(r#""operationType":"create""#), "{seen:?}");
    assert!(seen[1].contains(r#""operationType":"delete""#), "{seen:?}");
    assert!(runtime.elapsed() < Duration::from_secs(15), "woken, not waited out");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_go_page_by_page_through_every_item_once() {
    let world = World::start().await;
    let orders = world.container().await;
    for n in 0..25 {
        orders.create(&key("ann"), item(&n.to_string(), "ann")).await.unwrap();
    }
    let mut page = PageRequest { items: Some(10), ..PageRequest::default() };
    let mut entries = Vec::new();
    for _ in 0..10 {
        let read = orders.list(&page).await.unwrap();
        entries.extend(read.entries);
        page.continuation = read.continuation;
        if page.continuation.is_none() {
            break;
        }
    }
    entries.sort();
    entries.dedup();
    assert_eq!(entries.len(), 25);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_scheme_is_answered_with_the_right_one_at_once() {
    let world = World::start().await;
    let (http, https) = (world.server.http().unwrap().port(), world.server.https().unwrap().port());
    for (wrong, says) in [
        (
            Endpoint::https("127.0.0.1", http),
            format!("127.0.0.1:{http} speaks plain HTTP; use http://127.0.0.1:{http}"),
        ),
        (
            Endpoint::http("127.0.0.1", https),
            format!("127.0.0.1:{https} speaks TLS; use https://127.0.0.1:{https}"),
        ),
    ] {
        let mut options = Options::default();
        options.retry.first_wait = Duration::from_secs(3600);
        let refused = client(wrong, options).account().await.unwrap_err();
        assert_eq!(refused.to_string(), says);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_needs_the_authority_and_then_works() {
    let world = World::start().await;
    let at = Endpoint::https("localhost", world.server.https().unwrap().port());
    let stranger = client(at.clone(), Options::default());
    let refused = stranger.account().await.unwrap_err();
    assert!(matches!(refused, headwater_client::ClientError::Untrusted { .. }), "{refused:?}");
    let pem = world.client.authority_pem().await.unwrap().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("authority.pem");
    std::fs::write(&file, pem).unwrap();
    let mut options = Options::default();
    options.authorities = Some(file);
    let account = client(at, options).account().await.unwrap();
    assert!(account.writable[0].endpoint.is_tls());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_key_is_said_to_be_wrong() {
    let world = World::start().await;
    let at = world.client.endpoint().clone();
    let key = Credential::key("QUJD").unwrap();
    let wrong = Client::new(at, key, Options::default(), Runtime::system()).unwrap();
    let refused = wrong.account().await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::Unauthorized));
    assert!(refused.to_string().starts_with("the server does not accept the key"), "{refused}");
    let health = wrong.health().await.unwrap();
    assert!(health.ready && health.clock_ahead_seconds.unwrap().abs() <= 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_find_items_by_key_and_across_partitions() {
    let world = World::start().await;
    let orders = world.container().await;
    for n in 0..12 {
        let customer = if n % 2 == 0 { "ann" } else { "bo" };
        orders.create(&key(customer), item(&n.to_string(), customer)).await.unwrap();
    }
    let of_ann = PageRequest { partition_key: Some(key("ann")), ..PageRequest::default() };
    let query = Query::new("SELECT * FROM c WHERE c.id = @id").parameter("@id", "4");
    let found = orders.query(&query, &of_ann).await.unwrap();
    assert_eq!(found.entries.len(), 1);
    assert!(found.entries[0].starts_with(br#"{"id":"4","customer":"ann","total":1.50"#));
    let query = Query::new("SELECT VALUE c.id FROM c");
    let mut page = PageRequest { items: Some(5), ..PageRequest::default() };
    let mut seen = 0;
    for _ in 0..10 {
        let found = orders.query(&query, &page).await.unwrap();
        seen += found.entries.len();
        page.continuation = found.continuation;
        if page.continuation.is_none() {
            break;
        }
    }
    assert_eq!(seen, 12);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_token_opens_what_it_grants_and_nothing_else() {
    let world = World::start().await;
    let orders = world.container().await;
    orders.create(&key("ann"), item("1", "ann")).await.unwrap();
    let database = world.account.find_database("shop").unwrap();
    let container = database.find_container("orders").unwrap();
    let (owner, account) = (ResourceId::Database(database.rid()), &world.account);
    let make = async |kind, owner, json: &str| {
        account.create_resource(kind, owner, "ann", json, |_| false).await.unwrap().rid
    };
    let user = make(ResourceType::User, owner, r#"{"id":"ann"}"#).await;
    let json = r#"{"id":"ann","permissionMode":"Read","resource":"dbs/shop/colls/orders"}"#;
    let permission = make(ResourceType::Permission, user, json).await;
    let ResourceId::Permission(permission) = permission else { panic!("{permission}") };
    let grant = Grant {
        permission,
        resource: format!("dbs/{}/colls/{}", database.rid(), container.rid()),
        mode: GrantMode::Read,
        partition_key: None,
        expires: Runtime::system().unix_millis() / 1000 + 600,
    };
    let token = mint(&Key::from_base64(EMULATOR_KEY).unwrap(), &grant);
    let at = world.client.endpoint().clone();
    let guest = Credential::ResourceToken(token);
    let guest = Client::new(at, guest, Options::default(), Runtime::system()).unwrap();
    let seen = guest.container("shop", "orders");
    assert!(seen.read(&key("ann"), "1").await.unwrap().is_some());
    let refused = seen.create(&key("ann"), item("2", "ann")).await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::Forbidden), "{refused}");
    let refused = guest.create_database("mine").await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::Forbidden), "{refused}");
    world.stop().await;
}
