//! A feed whose first region fails is read from the next one, from the same position.

#![allow(clippy::unwrap_used)] // A failing step of a test should panic where it fails.

use headwater_client::{Client, Credential, Endpoint};
use headwater_processor::lease_store::MemoryLeases;
use headwater_processor::source::RemoteFeed;
use headwater_processor::{Ack, Batch, HandlerError, Options, Processor, Start};
use headwater_runtime::Runtime;
use headwater_server::{Config, Server};
use headwater_store::{Account, ContainerDefinition};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

const PAGE: u32 = 5;

async fn head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => head.extend_from_slice(&buffer[..count]),
        }
    }
}

async fn answer(mut stream: TcpStream, status: &str, body: &str) {
    head(&mut stream).await;
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Starts a proxy for a region of the server; while `broken` is true it answers 503.
async fn region(to: SocketAddr, mut broken: watch::Receiver<bool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let runtime = Runtime::system();
    runtime.clone().spawn("region", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if *broken.borrow_and_update() {
                runtime.spawn("refuse", async move {
                    answer(stream, "503 Out of order", "{}").await;
                });
                continue;
            }
            let mut breaks = broken.clone();
            runtime.spawn("pass on", async move {
                let Ok(mut server) = TcpStream::connect(to).await else { return };
                tokio::select! {
                    _ = breaks.wait_for(|broken| *broken) => {}
                    _ = tokio::io::copy_bidirectional(&mut stream, &mut server) => {}
                }
            });
        }
    });
    port
}

/// Starts an account endpoint that lists two regions.
async fn account(first: u16, second: u16) -> u16 {
    let place = |name: &str, port: u16| {
        format!(r#"{{"name":"{name}","databaseAccountEndpoint":"http://127.0.0.1:{port}/"}}"#)
    };
    let (first, second) = (place("First", first), place("Second", second));
    let body = format!(
        r#"{{"id":"a","writableLocations":[{second}],"readableLocations":[{second},{first}],
        "userConsistencyPolicy":{{"defaultConsistencyLevel":"Session"}}}}"#
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    Runtime::system().spawn("account", async move {
        while let Ok((stream, _)) = listener.accept().await {
            answer(stream, "200 OK", &body).await;
        }
    });
    port
}

#[tokio::test]
async fn f15_when_a_region_fails_the_feed_goes_on_in_the_next_one() {
    let store = Account::ephemeral().await.unwrap();
    let database = store.create_database("shop").await.unwrap();
    let feed = ContainerDefinition::new("feed", "/key").unwrap();
    let feed = database.create_container(feed).await.unwrap();
    let mut config = Config::emulator().unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    (config.http, config.https) = (Some(any), None);
    let server = Server::start(config, store, Runtime::system()).await.unwrap();
    let (breaks, broken) = watch::channel(false);
    let (_keep, sound) = watch::channel(false);
    let first = region(server.http().unwrap(), broken).await;
    let second = region(server.http().unwrap(), sound).await;

    let mut options = headwater_client::Options::default();
    options.discover_regions = Some(true);
    options.preferred_regions = vec!["First".to_owned()];
    options.retry.first_wait = Duration::from_millis(2);
    let at = Endpoint::http("127.0.0.1", account(first, second).await);
    let key = Credential::emulator().unwrap();
    let client = Client::new(at, key, options, Runtime::system()).unwrap();
    let (handled, mut arrivals) = mpsc::unbounded_channel::<String>();
    let mut options = Options::native("p");
    (options.start, options.items_max) = (Start::Beginning, Some(PAGE));
    let processor = Processor::builder()
        .source(RemoteFeed::new(client.container("shop", "feed")))
        .leases(MemoryLeases::new(Runtime::system()))
        .handler(move |batch: Batch| {
            let handled = handled.clone();
            async move {
                for change in batch.changes.iter() {
                    let json: serde_json::Value = change.parse()?;
                    handled.send(json["id"].to_string())?;
                }
                Ok::<_, HandlerError>(Ack::Done)
            }
        })
        .options(options)
        .build()
        .unwrap();
    let running = processor.start().await.unwrap();
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for round in 0..2 {
        for number in 0..20 {
            let body = format!(r#"{{"id":"{round}-{number}","key":"k{}"}}"#, number % 3);
            feed.upsert(body).await.unwrap();
        }
        while times.len() < 20 * (round + 1) {
            // With a timeout, so that reading the wrong region forever fails the test.
            let system = Runtime::system();
            let arrival = system.timeout(Duration::from_secs(100), arrivals.recv()).await;
            let arrival = arrival.unwrap().unwrap();
            *times.entry(arrival).or_default() += 1;
        }
        breaks.send(true).unwrap();
    }
    let repeated = times.values().filter(|times| **times > 1).count();
    assert!(repeated <= PAGE as usize, "{repeated} changes came twice");
    running.stop().await;
    server.stop().await;
}
