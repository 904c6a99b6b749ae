//! Runs the checks with the official Rust client: `headwater-compatibility <name for results>`.
//!
//! Binary encoding is the client's default; its own environment variable turns it off.

mod account;
mod feed;
mod harness;
mod items;
mod keys;
mod queries;

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
        self.make(change(ContainerProperties::new("items", "/pk".into()))).await
    }

    /// A container whose partition key has several parts.
    async fn container_by(&self, paths: &[&'static str]) -> Checked<ContainerClient> {
        let paths = paths.iter().map(|path| (*path).into()).collect();
        self.make(ContainerProperties::new("items", PartitionKeyDefinition::new(paths))).await
    }

    /// A container and the name of its database, for what the client cannot say.
    async fn named_container(&self) -> Checked<(String, ContainerClient)> {
        let (id, database) = self.database().await?;
        database.create_container(ContainerProperties::new("items", "/pk".into()), None).await?;
        Ok((id, database.container_client("items", None).await?))
    }

    /// A container in a database of its own.
    async fn make(&self, properties: ContainerProperties) -> Checked<ContainerClient> {
        let (_, database) = self.database().await?;
        database.create_container(properties, None).await?;
        Ok(database.container_client("items", None).await?)
    }
}

#[tokio::main]
async fn main() -> Checked<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "rust".to_owned());
    let stage = Stage::new(&harness::variable("HEADWATER_ACCOUNT_KEY")).await?;
    let mut run = Context::new(name, stage);
    account::run(&mut run).await;
    items::run(&mut run).await;
    queries::run(&mut run).await;
    keys::run(&mut run).await;
    feed::run(&mut run).await;
    std::process::exit(run.exit_code())
}
