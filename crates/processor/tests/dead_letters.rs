//! Dead letters in a container of a real server.

#![allow(clippy::unwrap_used)] // A failing step of a test should panic where it fails.

use headwater_client::{Client, Credential, Endpoint, PageRequest};
use headwater_processor::lease_store::MemoryLeases;
use headwater_processor::source::MemoryFeed;
use headwater_processor::{
    Ack, Batch, DeadLetter, DeadLetterContainer, DeadLetters, HandlerError, Options, Processor,
    RetryThenDeadLetter, Start,
};
use headwater_runtime::Runtime;
use headwater_server::{Config, Server};
use headwater_store::Account;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::mpsc;

#[tokio::test]
async fn a_change_nobody_can_handle_is_kept_in_a_container_as_it_came_and_once() {
    let store = Account::ephemeral().await.unwrap();
    let mut config = Config::emulator().unwrap();
    (config.http, config.https) = (Some(SocketAddr::from(([127, 0, 0, 1], 0))), None);
    let server = Server::start(config, store.clone(), Runtime::system()).await.unwrap();
    let at = Endpoint::http("127.0.0.1", server.http().unwrap().port());
    let (key, options) = (Credential::emulator().unwrap(), headwater_client::Options::default());
    let client = Client::new(at, key, options, Runtime::system()).unwrap();
    client.create_database("shop").await.unwrap();
    let definition = r#"{"id":"failed","partitionKey":{"paths":["/id"],"kind":"Hash"}}"#;
    client.create_container("shop", definition, None).await.unwrap();
    let failed = client.container("shop", "failed");

    let feed = MemoryFeed::new(Runtime::system(), 1);
    for id in ["1", "poison", "3"] {
        feed.put("k", &[(id, "x")]);
    }
    let (handled, mut arrivals) = mpsc::unbounded_channel::<String>();
    let mut options = Options::native("mailer");
    options.start = Start::Beginning;
    options.failure = Arc::new(RetryThenDeadLetter::default());
    options.dead_letters = Some(Arc::new(DeadLetterContainer::new(failed.clone())));
    let processor = Processor::builder()
        .source(feed.clone())
        .leases(MemoryLeases::new(Runtime::system()))
        .handler(move |batch: Batch| {
            let handled = handled.clone();
            async move {
                for change in batch.changes.iter() {
                    let json: serde_json::Value = change.parse()?;
                    let id = json["id"].as_str().unwrap_or_default().to_owned();
                    if id == "poison" {
                        return Err(HandlerError::new("not this one"));
                    }
                    handled.send(id)?;
                }
                Ok(Ack::Done)
            }
        })
        .options(options)
        .build()
        .unwrap();
    let running = processor.start().await.unwrap();
    while arrivals.recv().await.unwrap() != "3" {}
    running.stop().await;

    let letters = failed.list(&PageRequest::default()).await.unwrap().entries;
    assert_eq!(letters.len(), 1);
    let letter: DeadLetter = serde_json::from_slice(&letters[0]).unwrap();
    assert_eq!((letter.processor.as_str(), letter.lsn), ("mailer", Some(2)));
    assert!(letter.error.contains("not this one"), "{}", letter.error);
    let change: serde_json::Value = serde_json::from_slice(&letter.body()).unwrap();
    assert_eq!(change["id"], "poison");

    // Writing a letter again, as after a lost answer, changes nothing.
    DeadLetterContainer::new(failed.clone()).put(letter).await.unwrap();
    assert_eq!(failed.list(&PageRequest::default()).await.unwrap().entries.len(), 1);
    server.stop().await;
}
