//! Copies a container to one with a better partition key while the application keeps writing, then continues to copy
//! its changes.
//!
//! ```sh
//! cargo run -p headwater-processor --example copy_to_another_key
//! ```

use headwater_processor::lease_store::EmbeddedLeases;
use headwater_processor::source::EmbeddedFeed;
use headwater_processor::{Ack, Batch, HandlerError, Options, Processor, Start};
use headwater_runtime::Runtime;
use headwater_store::{Account, Container, ContainerDefinition, PageLimit, ScanScope};
use std::error::Error;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{} orders by city", run().await?);
    Ok(())
}

/// Returns how many items the copy has at the end.
pub(crate) async fn run() -> Result<usize, Box<dyn Error>> {
    let runtime = Runtime::system();
    let account = Account::ephemeral().await?;
    let shop = account.create_database("shop").await?;
    let orders = shop.create_container(ContainerDefinition::new("orders", "/customer")?).await?;
    let by_city = shop.create_container(ContainerDefinition::new("by-city", "/city")?).await?;
    let leases =
        shop.create_container(ContainerDefinition::new("leases", "/partitionKey")?).await?;
    for number in 0..100 {
        orders.upsert(order(number, "placed")).await?;
    }

    let mut options = Options::native("copy");
    options.start = Start::Beginning;
    let into = by_city.clone();
    let processor = Processor::builder()
        .source(EmbeddedFeed::new(shop.clone(), orders.clone()))
        .leases(EmbeddedLeases::new(leases, runtime.clone())?)
        .handler(move |batch: Batch| {
            let into = into.clone();
            async move { copy(&into, &batch).await }
        })
        .options(options)
        .build()?;
    let running = processor.start().await?;
    for number in 50..150 {
        orders.upsert(order(number, "paid")).await?;
    }
    while count(&by_city, "paid").await? < 100 {
        runtime.sleep(Duration::from_millis(20)).await;
    }
    running.stop().await;
    let copied = count(&by_city, "").await?;
    account.close().await?;
    Ok(copied)
}

/// Upserts the item, because a change may be delivered again. System properties of the old container are removed.
async fn copy(into: &Container, batch: &Batch) -> Result<Ack, HandlerError> {
    for mut item in batch.parse::<serde_json::Map<String, serde_json::Value>>()? {
        item.retain(|name, _| !name.starts_with('_'));
        into.upsert(serde_json::Value::Object(item).to_string()).await?;
    }
    Ok(Ack::Done)
}

fn order(number: u32, status: &str) -> String {
    let (customer, city) = (format!("customer-{}", number % 40), ["Ghent", "Turku", "Porto"]);
    let city = city[(number % 3) as usize];
    serde_json::json!({ "id": number.to_string(), "customer": customer, "city": city, "status": status })
        .to_string()
}

/// Counts the items with this status; all items if it is empty.
async fn count(container: &Container, status: &str) -> Result<usize, Box<dyn Error>> {
    let mut found = 0;
    let page = container.scan(&ScanScope::Container, None, PageLimit::items(1000)?).await?;
    for item in &page.items {
        let json: serde_json::Value = serde_json::from_slice(&item.to_bytes())?;
        found += usize::from(status.is_empty() || json["status"] == status);
    }
    Ok(found)
}
