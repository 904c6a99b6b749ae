//! Write, read, listen: the store in one screen. Nothing to set up, nothing left behind.
//!
//! ```sh
//! cargo run --release --package headwater-store --example quickstart
//! ```

use headwater_runtime::Runtime;
use headwater_store::{Account, ContainerDefinition, FeedRequest, FeedStart, ItemWrite, Patch};
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let account = Account::ephemeral().await?;
    let shop = account.create_database("shop").await?;
    let orders = shop.create_container(ContainerDefinition::new("orders", "/customer")?).await?;

    // Somebody listens, from now on and as things happen.
    let listener = orders.clone();
    let (told, mut heard) = tokio::sync::mpsc::channel(16);
    let mut position = listener.read_feed(&FeedRequest::new(FeedStart::Now)).await?.continuation;
    Runtime::system().spawn("listener", async move {
        loop {
            let request = FeedRequest::after(position).wait(Duration::from_secs(5));
            let Ok(page) = listener.read_feed(&request).await else { return };
            position = page.continuation;
            for change in page.changes {
                if told.send(change).await.is_err() {
                    return;
                }
            }
        }
    });

    // Somebody writes: single items, then two of them in one transaction.
    orders.create(r#"{"id":"1","customer":"ann","city":"Oslo","total":120}"#).await?;
    orders.create(r#"{"id":"2","customer":"bob","city":"Lima","total":80}"#).await?;
    orders.patch("ann", "1", Patch::new().increment("/total", 30)?).await?;
    let both = vec![
        ItemWrite::create(r#"{"id":"3","customer":"bob","city":"Lima","total":15}"#),
        ItemWrite::upsert(r#"{"id":"2","customer":"bob","city":"Lima","total":65}"#),
    ];
    orders.batch("bob", both).await?;

    println!("heard while it happened:");
    let runtime = Runtime::system();
    let mut last = 0;
    while last < 4 {
        let change = runtime.timeout(Duration::from_secs(5), heard.recv()).await.flatten();
        let Some(change) = change else { return Err("the listener heard nothing".into()) };
        last = change.lsn().get();
        println!("  lsn {last}  {:8} order {}", change.kind(), change.id());
    }

    // A late reader sees every order once, at its newest change.
    println!("from the beginning, later:");
    let page = orders.read_feed(&FeedRequest::new(FeedStart::Beginning)).await?;
    for change in &page.changes {
        println!("  lsn {}  {}", change.lsn(), String::from_utf8_lossy(&change.body()));
    }

    let order = orders.read("ann", "1").await?.ok_or("the order was just written")?;
    println!("one order: {order:?}");
    account.close().await?;
    Ok(())
}
