//! Start-up, databases, containers, throughput: what is there before any item.

use crate::Stage;
use crate::harness::{Checked, Context, equal, fails, refused};
use azure_data_cosmos::models::{
    CompositeIndex, CompositeIndexOrder, CompositeIndexProperty, ContainerProperties,
    IndexingPolicy, ThroughputProperties, TimeToLive, UniqueKey, UniqueKeyPolicy,
};
use azure_data_cosmos::options::CreateContainerOptions;
use azure_data_cosmos::{ContainerClient, Query};
use futures::TryStreamExt;
use serde_json::json;

pub async fn run(run: &mut Context) {
    start_up(run).await;
    databases(run).await;
    containers(run).await;
    definitions(run).await;
    throughput(run).await;
    run.not_offered("users", "a permission's token reads and does not write");
}

async fn start_up(run: &mut Context) {
    run.check("start-up", "reads the account", async |stage| {
        stage.database().await?;
        Ok(())
    })
    .await;
    run.check("start-up", "refuses a wrong key", async |_| {
        let wrong = async {
            let stage = Stage::new("d3Jvbmcgd3Jvbmcgd3Jvbmc=").await?;
            stage.database().await
        };
        refused(401, wrong.await)
    })
    .await;
}

async fn databases(run: &mut Context) {
    run.check("databases", "create, read, list, delete", async |stage| {
        let (id, database) = stage.database().await?;
        let found = database.read(None).await?.into_model()?;
        equal(&found.id, &Some(id.clone()))?;
        let listed = stage.client.query_databases("SELECT * FROM c", None).await?;
        let listed: Vec<_> = listed.try_collect().await?;
        equal(&listed.iter().any(|each| each.id.as_ref() == Some(&id)), &true)?;
        database.delete(None).await?;
        fails(404, database.read(None).await)
    })
    .await;
    run.not_offered("databases", "create if not exists");
    run.check("databases", "a taken id conflicts", async |stage| {
        let (id, _) = stage.database().await?;
        fails(409, stage.client.create_database(&id, None).await)
    })
    .await;
    run.check("databases", "query by id", async |stage| {
        let (id, _) = stage.database().await?;
        let query = Query::from("SELECT * FROM root r WHERE r.id = @id");
        let query = query.with_parameter("@id", &id)?;
        let found: Vec<_> = stage.client.query_databases(query, None).await?.try_collect().await?;
        equal(&found.into_iter().map(|each| each.id).collect(), &vec![Some(id)])
    })
    .await;
}

async fn containers(run: &mut Context) {
    run.check("containers", "create, read, list, delete", async |stage| {
        let (_, database) = stage.database().await?;
        database.create_container(ContainerProperties::new("items", "/pk".into()), None).await?;
        let container = database.container_client("items", None).await?;
        let found = container.read(None).await?.into_model()?;
        equal(&found.id.to_string(), &"items".to_owned())?;
        let listed = database.query_containers("SELECT * FROM c", None).await?;
        let listed: Vec<ContainerProperties> = listed.try_collect().await?;
        equal(&listed.len(), &1)?;
        container.delete(None).await?;
        fails(404, container.read(None).await)
    })
    .await;
    run.not_offered("containers", "create if not exists");
    run.check("containers", "a taken id conflicts", async |stage| {
        let (_, database) = stage.database().await?;
        let wanted = || ContainerProperties::new("items", "/pk".into());
        database.create_container(wanted(), None).await?;
        fails(409, database.create_container(wanted(), None).await)
    })
    .await;
    run.check("containers", "query by id", async |stage| {
        let (_, database) = stage.database().await?;
        for id in ["one", "two"] {
            database.create_container(ContainerProperties::new(id, "/pk".into()), None).await?;
        }
        let query = "SELECT * FROM c WHERE c.id = 'two'";
        let found = database.query_containers(query, None).await?;
        let found: Vec<ContainerProperties> = found.try_collect().await?;
        equal(&found.iter().map(|each| &*each.id).collect(), &vec!["two"])
    })
    .await;
    run.check("containers", "made anew under its name", async |stage| {
        let (_, database) = stage.database().await?;
        let wanted = || ContainerProperties::new("items", "/pk".into());
        database.create_container(wanted(), None).await?;
        let container = database.container_client("items", None).await?;
        let item = json!({ "id": "1", "pk": "a" });
        container.create_item("a", "1", &item, None).await?;
        container.delete(None).await?;
        database.create_container(wanted(), None).await?;
        // A client of a container knows it by its resource id; the name leads to the new one.
        let container = database.container_client("items", None).await?;
        fails(404, container.read_item("a", "1", None).await)?;
        container.create_item("a", "1", &item, None).await?;
        Ok(())
    })
    .await;
}

async fn definitions(run: &mut Context) {
    let unique =
        || UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/email"));
    run.check("containers", "policies come back as given", async |stage| {
        let indexes = CompositeIndex::default()
            .with_property(CompositeIndexProperty::new("/a", CompositeIndexOrder::Ascending))
            .with_property(CompositeIndexProperty::new("/b", CompositeIndexOrder::Descending));
        let indexing = IndexingPolicy::default().with_included_path("/*");
        let indexing = indexing.with_composite_index(indexes.clone());
        let container = stage
            .container_with(|properties| {
                let properties = properties.with_indexing_policy(indexing);
                properties.with_unique_key_policy(unique()).with_default_ttl(3600_u32)
            })
            .await?;
        let found = container.read(None).await?.into_model()?;
        equal(&found.default_ttl, &TimeToLive::Seconds(3600))?;
        equal(&found.unique_key_policy, &Some(unique()))?;
        let indexing = found.indexing_policy.ok_or("no indexing policy")?;
        equal(&indexing.composite_indexes, &vec![indexes])
    })
    .await;
    run.check("containers", "replace changes what may change", async |stage| {
        let container = stage.container().await?;
        let found = container.read(None).await?.into_model()?;
        container.replace(found.with_default_ttl(60_u32), None).await?;
        let found = container.read(None).await?.into_model()?;
        equal(&found.default_ttl, &TimeToLive::Seconds(60))
    })
    .await;
    run.check("containers", "unique keys", async |stage| {
        let container =
            stage.container_with(|properties| properties.with_unique_key_policy(unique())).await?;
        let item = |id: &str, key: &str| json!({ "id": id, "pk": key, "email": "x" });
        container.create_item("a", "1", &item("1", "a"), None).await?;
        fails(409, container.create_item("a", "2", &item("2", "a"), None).await)?;
        container.create_item("b", "2", &item("2", "b"), None).await?;
        Ok(())
    })
    .await;
}

async fn with_throughput(
    stage: &Stage,
    throughput: ThroughputProperties,
) -> Checked<ContainerClient> {
    let (_, database) = stage.database().await?;
    let options = CreateContainerOptions::default().with_throughput(throughput);
    let wanted = ContainerProperties::new("items", "/pk".into());
    database.create_container(wanted, Some(options)).await?;
    Ok(database.container_client("items", None).await?)
}

async fn throughput(run: &mut Context) {
    run.check("throughput", "read", async |stage| {
        let container = with_throughput(stage, ThroughputProperties::manual(700)).await?;
        let found = container.read_throughput(None).await?.and_then(|offer| offer.throughput());
        equal(&found, &Some(700))
    })
    .await;
    run.check("throughput", "replace", async |stage| {
        let container = with_throughput(stage, ThroughputProperties::manual(400)).await?;
        let wanted = ThroughputProperties::manual(1000);
        container.begin_replace_throughput(wanted, None).await?.await?;
        let found = container.read_throughput(None).await?.and_then(|offer| offer.throughput());
        equal(&found, &Some(1000))
    })
    .await;
    run.check("throughput", "autoscale", async |stage| {
        let wanted = ThroughputProperties::autoscale(5000, None);
        let container = with_throughput(stage, wanted).await?;
        let found = container.read_throughput(None).await?;
        equal(&found.and_then(|offer| offer.autoscale_maximum()), &Some(5000))
    })
    .await;
    // A database is made without throughput, and only what is there can be read or replaced.
    run.not_offered("throughput", "of a database");
}
