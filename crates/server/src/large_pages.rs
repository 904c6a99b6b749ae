//! Tests that pages and events with large items are built on the background threads.

use crate::answer::Answer;
use crate::budget::Peer;
use crate::config::Config;
use crate::gateway::Gateway;
use crate::head::Head;
use crate::operations;
use crate::request::{Call, Caller};
use bytes::Bytes;
use headwater_protocol::headers;
use headwater_protocol::operation::Operation;
use headwater_protocol::route;
use headwater_runtime::Runtime;
use headwater_store::{Account, ContainerDefinition, ItemWrite, Patch};
use http_body_util::BodyExt;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use std::future::{Future, ready};
use std::sync::Arc;

const LATEST: &str = "Incremental feed";
const ALL: &str = "Full-Fidelity Feed";

fn call_of(path: &str, query: Option<&str>, head: HeaderMap) -> Call {
    let (route, head) = (route::parse(path).unwrap(), Head::from(head));
    Call {
        operation: Operation::classify("GET", &route, |name| head.text(name)).unwrap(),
        route,
        query: query.map(str::to_owned),
        head,
        body: Bytes::new(),
        caller: Caller::Owner,
        origin: "http://localhost/".to_owned(),
        peer: Peer::for_tests(),
    }
}

fn read_of(mode: &str, after: &str) -> Call {
    let mut head = HeaderMap::new();
    let count = "1000";
    for (name, value) in [
        (headers::A_IM, mode),
        ("if-none-match", after),
        (headers::MAX_ITEM_COUNT, count),
        (headers::VERSION, "2020-07-15"),
    ] {
        head.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    call_of("/dbs/d/colls/c/docs", None, head)
}

async fn items_of(answer: Answer) -> usize {
    let body = answer.payload.collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    body["Documents"].as_array().map_or(0, Vec::len)
}

/// A runtime whose only thread blocks until the sender is used or dropped.
fn busy() -> (Runtime, std::sync::mpsc::Sender<()>) {
    let runtime = Runtime::background_threads("test-background", 1).unwrap();
    let (release, wait) = std::sync::mpsc::channel();
    runtime.spawn("busy", async move {
        let _ = wait.recv();
    });
    (runtime, release)
}

/// Polls a future once and returns its output if it is ready.
async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = future => Some(done),
        () = ready(()) => None,
    }
}

/// If the page were built on the calling thread, it would be ready at the first poll.
#[tokio::test]
async fn a_page_of_one_large_transaction_is_made_on_a_background_thread() {
    let account = Account::ephemeral().await.unwrap();
    let database = account.create_database("d").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container(definition).await.unwrap();
    let text = "x".repeat(1 << 20);
    for id in 0..12 {
        let item = format!(r#"{{"id":"{id}","pk":"p","text":"{text}"}}"#);
        container.create(item).await.unwrap();
    }
    let (background, release) = busy();
    let config = Config::emulator().unwrap();
    let gateway = Gateway::new(config, account, Runtime::system(), background, None);
    let gateway = Arc::new(gateway);
    let small = read_of(LATEST, "\"0\"");
    let page = at_once(operations::answer(&gateway, &small)).await;
    let page = page.expect("a page of many small transactions is made at once").unwrap();
    assert!((1..12).contains(&items_of(page).await));

    let patch = |id: u32| {
        let patch = Patch::new().set("/n", "1").unwrap();
        ItemWrite::patch("p", &id.to_string(), patch)
    };
    let written = container.batch("p", (0..12).map(patch).collect()).await.unwrap();
    let before = format!("\"{}\"", written[0].lsn.get() - 1);
    let calls = [read_of(LATEST, &before), read_of(ALL, &before)];
    let mut answers: Vec<_> =
        calls.iter().map(|call| Box::pin(operations::answer(&gateway, call))).collect();
    for answer in &mut answers {
        assert!(at_once(answer.as_mut()).await.is_none(), "it was not made in the background");
    }
    drop(release);
    for answer in answers {
        let page = answer.await.unwrap();
        assert!(page.memory.is_some());
        assert_eq!(items_of(page).await, 12);
    }
}

/// While the background thread is busy, the large event waits and the small one does not.
#[tokio::test]
async fn an_event_of_a_large_item_is_made_on_a_background_thread() {
    let account = Account::ephemeral().await.unwrap();
    let database = account.create_database("d").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container(definition).await.unwrap();
    for bytes in [100 << 10, 500 << 10] {
        let text = "x".repeat(bytes);
        container.create(format!(r#"{{"id":"{bytes}","pk":"p","text":"{text}"}}"#)).await.unwrap();
    }
    let (background, release) = busy();
    let config = Config::emulator().unwrap();
    let gateway = Gateway::new(config, account, Runtime::system(), background, None);
    let gateway = Arc::new(gateway);
    let path = "/_headwater/changes/d/c";
    let call = call_of(path, Some("from=beginning"), HeaderMap::new());
    let mut events = operations::answer(&gateway, &call).await.unwrap().payload;
    let first = events.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!((100 << 10..200 << 10).contains(&first.len()), "{} bytes", first.len());
    // Let the tasks of this thread run as far as they can.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(at_once(events.frame()).await.is_none(), "it was not made in the background");
    drop(release);
    let second = events.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(second.len() > 500 << 10, "{} bytes", second.len());
}
