//! Runs the checks with the official Rust client: `headwater-compatibility <name for results>`.
//!
//! Binary encoding is the client's default; its own environment variable turns it off.

mod feed;
mod harness;
mod items;

use azure_data_cosmos::models::{ContainerProperties, PartitionKeyDefinition};
use azure_data_cosmos::{
    AccountReference, ContainerClient, CosmosClient, DatabaseClient, RoutingStrategy,
};
use harness::{Checked, Context};

/// The client, made once; the databases are left to the server, which ends with the run.
pub struct Stage {
    client: CosmosClient,
    made: std::sync::atomic::AtomicUsize,
}

impl Stage {
    async fn new(key: &str) -> Checked<Stage> {
        let endpoint = harness::variable("HEADWATER_ENDPOINT").parse()?;
        let account = AccountReference::with_authentication_key(endpoint, key.to_owned());
        let strategy = RoutingStrategy::ProximityTo("South Central US".into());
        let client = CosmosClient::builder().build(account, strategy).await?;
        Ok(Stage { client, made: std::sync::atomic::AtomicUsize::new(0) })
    }

    async fn database(&self) -> Checked<(String, DatabaseClient)> {
        let number = self.made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let id = format!("rust-{number}-{}", std::process::id());
        self.client.create_database(&id, None).await?;
        let database = self.client.database_client(id.as_str());
        Ok((id, database))
    }

    async fn container(&self) -> Checked<ContainerClient> {
        self.container_with(|properties| properties).await
    }

    async fn container_with(
        &self,
        change: impl FnOnce(ContainerProperties) -> ContainerProperties,
    ) -> Checked<ContainerClient> {
        let (_, database) = self.database().await?;
        let key = PartitionKeyDefinition::new(vec!["/pk".into()]);
        database.create_container(change(ContainerProperties::new("items", key)), None).await?;
        Ok(database.container_client("items", None).await?)
    }
}

async fn account(run: &mut Context) {
    run.check("start-up", "reads the account", async |stage| {
        stage.database().await?;
        Ok(())
    })
    .await;
    run.check("start-up", "refuses a wrong key", async |_| {
        let refused = async {
            let stage = Stage::new("d3Jvbmcgd3Jvbmcgd3Jvbmc=").await?;
            stage.database().await
        };
        harness::refused(401, refused.await)
    })
    .await;
    run.check("databases", "create, read, list, delete", async |stage| {
        let (id, database) = stage.database().await?;
        let found = database.read(None).await?.into_model()?;
        harness::equal(&found.id, &Some(id))?;
        database.delete(None).await?;
        harness::fails(404, database.read(None).await)
    })
    .await;
    run.check("databases", "a taken id conflicts", async |stage| {
        let (id, _) = stage.database().await?;
        harness::fails(409, stage.client.create_database(&id, None).await)
    })
    .await;
    run.check("containers", "create, read, list, delete", async |stage| {
        let container = stage.container().await?;
        let found = container.read(None).await?.into_model()?;
        harness::equal(&found.id.to_string(), &"items".to_owned())?;
        container.delete(None).await?;
        harness::fails(404, container.read(None).await)
    })
    .await;
    run.check("throughput", "read", async |stage| {
        let container = stage.container().await?;
        let found = container.read_throughput(None).await?.and_then(|offer| offer.throughput());
        harness::equal(&found, &Some(400))
    })
    .await;
}

#[tokio::main]
async fn main() -> Checked<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "rust".to_owned());
    let stage = Stage::new(&harness::variable("HEADWATER_ACCOUNT_KEY")).await?;
    let mut run = Context::new(name, stage);
    account(&mut run).await;
    items::run(&mut run).await;
    feed::run(&mut run).await;
    std::process::exit(run.exit_code())
}
