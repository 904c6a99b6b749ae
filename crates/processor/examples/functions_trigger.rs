//! An Azure Functions trigger configured by its `function.json`. The function fails once for one order; the
//! example runs it in both modes.
//!
//! | mode | what happens to the order |
//! |---|---|
//! | `Mode::Compat` | skipped, as in the Functions host: the function never receives it again |
//! | `Mode::Safe`, the default | retried until it is handled |
//!
//! ```sh
//! cargo run -p headwater-processor --example functions_trigger
//! ```

use headwater_client::{Client, Container, Credential, Endpoint, Precondition};
use headwater_model::PartitionKey;
use headwater_processor::trigger::{AppSettings, Mode, TriggerHost, TriggerSettings};
use headwater_processor::{Batch, HandlerError};
use headwater_runtime::Runtime;
use headwater_server::{Config, Server};
use headwater_store::Account;
use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// The `function.json` of the function.
const FUNCTION: &str = r#"{
    "bindings": [{
        "type": "cosmosDBTrigger", "direction": "in", "name": "documents",
        "connection": "Shop", "databaseName": "shop", "containerName": "orders",
        "leaseContainerPrefix": "%Prefix%", "createLeaseContainerIfNotExists": true,
        "startFromBeginning": true, "maxItemsPerInvocation": 1
    }]
}"#;
/// The well-known key of every emulator; a real key is a secret in the app settings.
const KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const ORDERS: usize = 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for (mode, handled) in run().await? {
        println!("{mode:?}: {} of {ORDERS} orders were handled", handled.len());
    }
    Ok(())
}

/// Returns the handled orders for each mode.
pub(crate) async fn run() -> Result<Vec<(Mode, BTreeSet<String>)>, Box<dyn Error>> {
    let store = Account::ephemeral().await?;
    let mut config = Config::emulator()?;
    (config.http, config.https) = (Some(SocketAddr::from(([127, 0, 0, 1], 0))), None);
    let server = Server::start(config, store.clone(), Runtime::system()).await?;
    let port = server.http().ok_or("it does not listen")?.port();
    write_orders(port).await?;
    let mut outcomes = Vec::new();
    for mode in [Mode::Compat { drain: false }, Mode::Safe] {
        outcomes.push((mode, handle(port, mode).await?));
    }
    server.stop().await;
    store.close().await?;
    Ok(outcomes)
}

/// Runs the function on all orders, under its own prefix, until the last one is handled.
async fn handle(port: u16, mode: Mode) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let app = AppSettings::none()
        .with("Shop", format!("AccountEndpoint=http://127.0.0.1:{port}/;AccountKey={KEY};"))
        .with("Prefix", format!("{mode:?}"));
    let settings = TriggerSettings::parse(FUNCTION, None, &app)?;
    let (say, mut said) = mpsc::unbounded_channel();
    let thrown = Arc::new(AtomicBool::new(false));
    let host = TriggerHost::connect(settings, &app)
        .await?
        .mode(mode)
        .function("send-mail", move |batch| send_mail(batch, say.clone(), thrown.clone()))
        .build()?;
    let running = host.start().await?;
    let mut handled = BTreeSet::new();
    // All orders belong to one customer, so they arrive in order.
    while let Some(id) = said.recv().await {
        let is_last = id == (ORDERS - 1).to_string();
        handled.insert(id);
        if is_last {
            break;
        }
    }
    running.stop().await;
    Ok(handled)
}

/// The function: sends a mail per order.
async fn send_mail(
    batch: Batch,
    say: mpsc::UnboundedSender<String>,
    thrown: Arc<AtomicBool>,
) -> Result<(), HandlerError> {
    for order in batch.parse::<serde_json::Value>()? {
        let id = order["id"].as_str().unwrap_or_default().to_owned();
        if id == "3" && !thrown.swap(true, Ordering::SeqCst) {
            return Err(HandlerError::new("the mail server does not answer"));
        }
        say.send(id)?;
    }
    Ok(())
}

async fn write_orders(port: u16) -> Result<Container, Box<dyn Error>> {
    let endpoint = Endpoint::http("127.0.0.1", port);
    let options = headwater_client::Options::default();
    let client = Client::new(endpoint, Credential::emulator()?, options, Runtime::system())?;
    client.create_database("shop").await?;
    let definition = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash"}}"#;
    client.create_container("shop", definition, None).await?;
    let orders = client.container("shop", "orders");
    for id in 0..ORDERS {
        let order = format!(r#"{{"id":"{id}","customer":"ann"}}"#);
        orders.upsert(&PartitionKey::from("ann"), order, &Precondition::None).await?;
    }
    Ok(orders)
}
