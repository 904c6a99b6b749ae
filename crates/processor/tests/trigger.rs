//! A trigger on a real server, configured by its settings only.

#![allow(clippy::unwrap_used)] // A failing step of a test should panic where it fails.

mod support;

use headwater_client::{Client, Credential, Endpoint, Options, PageRequest, Precondition};
use headwater_model::PartitionKey;
use headwater_processor::Batch;
use headwater_processor::trigger::{AppSettings, ConnectError, TriggerHost, TriggerSettings};
use headwater_runtime::Runtime;
use headwater_server::{Config, Server};
use headwater_store::Account;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::until;

const KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Starts a server with a few orders, and returns the app setting that refers to it.
async fn shop() -> (Server, Account, Client, AppSettings) {
    let store = Account::ephemeral().await.unwrap();
    let mut config = Config::emulator().unwrap();
    (config.http, config.https) = (Some(SocketAddr::from(([127, 0, 0, 1], 0))), None);
    let server = Server::start(config, store.clone(), Runtime::system()).await.unwrap();
    let port = server.http().unwrap().port();
    let (at, key) = (Endpoint::http("127.0.0.1", port), Credential::emulator().unwrap());
    let client = Client::new(at, key, Options::default(), Runtime::system()).unwrap();
    client.create_database("shop").await.unwrap();
    let definition = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash"}}"#;
    client.create_container("shop", definition, None).await.unwrap();
    let orders = client.container("shop", "orders");
    for id in 0..5 {
        let order = format!(r#"{{"id":"{id}","customer":"c{id}"}}"#);
        let key = PartitionKey::from(format!("c{id}").as_str());
        orders.upsert(&key, order, &Precondition::None).await.unwrap();
    }
    let string = format!("AccountEndpoint=http://127.0.0.1:{port}/;AccountKey={KEY};");
    (server, store, client, AppSettings::none().with("CosmosDB", string))
}

fn settings(more: &str, app: &AppSettings) -> TriggerSettings {
    let binding = format!(
        r#"{{"databaseName":"shop","containerName":"orders","startFromBeginning":true{more}}}"#
    );
    TriggerSettings::parse(&binding, None, app).unwrap()
}

#[tokio::test]
async fn a_lease_container_is_made_only_if_the_settings_say_so() {
    let (server, store, client, app) = shop().await;
    let refused = TriggerHost::connect(settings("", &app), &app).await.map(|_| ()).unwrap_err();
    assert!(matches!(refused, ConnectError::NoLeaseContainer(_)), "{refused}");
    assert!(refused.to_string().contains("createLeaseContainerIfNotExists"), "{refused}");

    let more = r#","leaseDatabaseName":"other","leaseContainerName":"mine","leaseContainerPrefix":"p",
        "createLeaseContainerIfNotExists":true"#;
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = handled.clone();
    let builder = TriggerHost::connect(settings(more, &app), &app).await.unwrap();
    let host = builder
        .function("counter", move |batch: Batch| {
            counted.fetch_add(batch.changes.len(), Ordering::SeqCst);
            async { Ok(()) }
        })
        .build()
        .unwrap();
    let running = host.start().await.unwrap();
    until(|| handled.load(Ordering::SeqCst) == 5).await;
    running.stop().await;
    let mine = client.container("other", "mine");
    let definition: serde_json::Value =
        serde_json::from_slice(&mine.definition().await.unwrap()).unwrap();
    assert_eq!(definition["partitionKey"]["paths"][0], "/id");
    assert_eq!(definition["defaultTtl"], -1);
    // Leases have the format of the .NET SDK, under the prefix.
    let page = mine.list(&PageRequest::default()).await.unwrap();
    let leases: Vec<serde_json::Value> =
        page.entries.iter().map(|body| serde_json::from_slice(body).unwrap()).collect();
    let lease = leases.iter().find(|lease| lease.get("LeaseToken").is_some()).unwrap();
    assert!(lease["id"].as_str().unwrap().starts_with("p127.0.0.1"), "{lease}");
    assert_eq!((&lease["LeaseToken"], &lease["Owner"]), (&"0".into(), &().into()));
    assert_eq!(lease["ContinuationToken"], "\"5\"");
    server.stop().await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn leases_may_be_in_another_account() {
    let (server, store, client, app) = shop().await;
    let (other_server, other_store, other, other_app) = shop().await;
    let app = app.with("Leases", other_app.get("CosmosDB").unwrap());
    let more = r#","leaseConnection":"Leases","createLeaseContainerIfNotExists":true"#;
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = handled.clone();
    let builder = TriggerHost::connect(settings(more, &app), &app).await.unwrap();
    let host = builder
        .function("counter", move |batch: Batch| {
            counted.fetch_add(batch.changes.len(), Ordering::SeqCst);
            async { Ok(()) }
        })
        .build()
        .unwrap();
    let running = host.start().await.unwrap();
    until(|| handled.load(Ordering::SeqCst) == 5).await;
    running.stop().await;
    assert!(client.container("shop", "leases").definition().await.is_err());
    let page = other.container("shop", "leases").list(&PageRequest::default()).await.unwrap();
    assert!(!page.entries.is_empty());
    for (server, store) in [(server, store), (other_server, other_store)] {
        server.stop().await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_is_missing_or_none_is_named_and_not_shown() {
    let none = AppSettings::none();
    let refused = |app: AppSettings| async move {
        let settings = settings(r#","connection":"Shop""#, &app);
        TriggerHost::connect(settings, &app).await.map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(none.clone()).await.contains("\"Shop\""));
    let said =
        refused(none.with("Shop", "AccountEndpoint=http://127.0.0.1:1;AccountKey=se*cret")).await;
    assert!(said.contains("\"Shop\"") && !said.contains("se*cret"), "{said}");
}
