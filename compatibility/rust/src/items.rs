//! Items: every operation, preconditions, batches, queries.

use crate::harness::{Checked, Context, equal, fails};
use azure_data_cosmos::models::{PatchInstructions, PatchOperation};
use azure_data_cosmos::options::{
    ContentResponseOnWrite, ItemReadOptions, ItemWriteOptions, OperationOptionsBuilder,
    PatchItemOptions, PatchStrategy, Precondition, QueryOptions, QueryPlanMode,
};
use azure_data_cosmos::{ContainerClient, FeedScope, Query, TransactionalBatch};
use futures::TryStreamExt;
use serde_json::{Value, json};

pub async fn read(container: &ContainerClient, id: &str, key: &str) -> Checked<Value> {
    Ok(container.read_item(key.to_owned(), id, None).await?.into_model()?)
}

pub fn plain(item: Value) -> Value {
    let Value::Object(mut map) = item else { return item };
    map.retain(|name, _| !name.starts_with('_'));
    Value::Object(map)
}

pub async fn fill(container: &ContainerClient, from: usize, to: usize, keys: usize) -> Checked<()> {
    for number in from..to {
        let (id, key) = (number.to_string(), format!("k{}", number % keys));
        let item = json!({ "id": id, "pk": key, "n": number });
        container.create_item(key, &id, &item, None).await?;
    }
    Ok(())
}

pub async fn run(run: &mut Context) {
    run.check("items", "create returns the item with system properties", async |stage| {
        let container = stage.container().await?;
        let given =
            json!({ "id": "1", "pk": "a", "deep": { "list": [1, 2.5, "drei", null, true] } });
        let response = container.create_item("a", "1", &given, None).await?;
        if response.headers().etag().is_none() || response.headers().request_charge().is_none() {
            return Err("a header is missing".into());
        }
        equal(&plain(read(&container, "1", "a").await?), &given)
    })
    .await;
    // A client that is asked for nothing names every item itself.
    run.not_offered("items", "an id is made when asked for");
    run.check("items", "read", async |stage| {
        let container = stage.container().await?;
        let item = json!({ "id": "1", "pk": "a", "n": 1 });
        container.create_item("a", "1", &item, None).await?;
        equal(&plain(read(&container, "1", "a").await?), &item)
    })
    .await;
    run.check("items", "a missing item is not found", async |stage| {
        let container = stage.container().await?;
        fails(404, container.read_item("a", "2", None).await)?;
        fails(404, container.replace_item("a", "2", &json!({ "id": "2", "pk": "a" }), None).await)?;
        fails(404, container.delete_item("a", "2", None).await)
    })
    .await;
    run.check("items", "a taken id conflicts", async |stage| {
        let container = stage.container().await?;
        let item = json!({ "id": "1", "pk": "a" });
        container.create_item("a", "1", &item, None).await?;
        fails(409, container.create_item("a", "1", &item, None).await)
    })
    .await;
    run.check("items", "upsert creates and replaces", async |stage| {
        let container = stage.container().await?;
        container.upsert_item("a", "1", &json!({ "id": "1", "pk": "a", "old": 1 }), None).await?;
        let item = json!({ "id": "1", "pk": "a", "n": 2 });
        container.upsert_item("a", "1", &item, None).await?;
        equal(&plain(read(&container, "1", "a").await?), &item)
    })
    .await;
    run.check("items", "replace", async |stage| {
        let container = stage.container().await?;
        container.create_item("a", "1", &json!({ "id": "1", "pk": "a" }), None).await?;
        let item = json!({ "id": "1", "pk": "a", "n": 2 });
        container.replace_item("a", "1", &item, None).await?;
        equal(&plain(read(&container, "1", "a").await?), &item)
    })
    .await;
    run.check("items", "delete", async |stage| {
        let container = stage.container().await?;
        container.create_item("a", "1", &json!({ "id": "1", "pk": "a" }), None).await?;
        container.delete_item("a", "1", None).await?;
        fails(404, container.read_item("a", "1", None).await)
    })
    .await;
    run.check("items", "a write without a returned item", async |stage| {
        let container = stage.container().await?;
        let item = json!({ "id": "1", "pk": "a" });
        for (wanted, is_sent) in
            [(ContentResponseOnWrite::Disabled, false), (ContentResponseOnWrite::Enabled, true)]
        {
            let operation =
                OperationOptionsBuilder::new().with_content_response_on_write(wanted).build();
            let options = ItemWriteOptions::default().with_operation_options(operation);
            let written = container.upsert_item("a", "1", &item, Some(options)).await?;
            equal(&written.headers().etag().is_some(), &true)?;
            equal(&written.into_model::<Value>().is_ok(), &is_sent)?;
        }
        Ok(())
    })
    .await;
    run.not_offered("items", "delete all of a partition key");
    run.not_offered("items", "read many");
    run.check("items", "numbers and texts are kept exactly", async |stage| {
        let container = stage.container().await?;
        let given = json!({ "id": "1", "pk": "a", "big": 9_007_199_254_740_991_i64, "small": -0.000001,
            "large": 1.5e300, "text": "\u{0}\u{1f}\"\\/ äöü 日本 😀 \u{2028}", "": "empty name" });
        container.create_item("a", "1", &given, None).await?;
        equal(&plain(read(&container, "1", "a").await?), &given)
    })
    .await;
    patches(run).await;
    preconditions(run).await;
    batches(run).await;
    queries(run).await;
}

async fn numbers(container: &ContainerClient, query: &str, scope: FeedScope) -> Checked<Vec<i64>> {
    let found = container.query_items::<i64>(Query::from(query), scope, None).await?;
    Ok(found.try_collect().await?)
}

async fn queries(run: &mut Context) {
    run.check("queries", "within a partition key", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 10, 2).await?;
        let query = "SELECT VALUE c.n FROM c WHERE c.n > 3";
        let mut found = numbers(&container, query, FeedScope::partition("k0")).await?;
        found.sort_unstable();
        equal(&found, &vec![4, 6, 8])
    })
    .await;
    run.check("queries", "across partitions, in order", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 20, 20).await?;
        let query = "SELECT VALUE c.n FROM c ORDER BY c.n DESC";
        let found = numbers(&container, query, FeedScope::full_container()).await?;
        equal(&found, &(0..20).rev().collect())
    })
    .await;
    run.check("queries", "with a plan from the server", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 20, 20).await?;
        let query = Query::from("SELECT VALUE c.n FROM c WHERE c.n > 4 ORDER BY c.n");
        let options = QueryOptions::default().with_query_plan_mode(QueryPlanMode::GatewayOnly);
        let scope = FeedScope::full_container();
        let found = container.query_items::<i64>(query, scope, Some(options)).await?;
        equal(&found.try_collect().await?, &(5..20).collect::<Vec<i64>>())
    })
    .await;
}

async fn patches(run: &mut Context) {
    run.check("items", "patch: every operation", async |stage| {
        // Sent as it is, and done by the client with a read and a conditional replace.
        for strategy in [PatchStrategy::ServerSide, PatchStrategy::ClientSide] {
            let container = stage.container().await?;
            let item =
                json!({ "id": "1", "pk": "a", "n": 1, "old": 1, "list": [1, 3], "from": "x" });
            container.create_item("a", "1", &item, None).await?;
            let patch = PatchInstructions::new()
                .with_operation(PatchOperation::add("/new", json!({ "a": 1 })))
                .with_operation(PatchOperation::add("/list/1", json!(2)))
                .with_operation(PatchOperation::set("/set", json!([true])))
                .with_operation(PatchOperation::replace("/n", json!(10)))
                .with_operation(PatchOperation::increment("/n", 5))
                .with_operation(PatchOperation::remove("/old"))
                .with_operation(PatchOperation::move_value("/from", "/to"));
            let options = PatchItemOptions::default().with_strategy(strategy);
            container.patch_item("a", "1", patch, Some(options)).await?;
            let expected = json!({ "id": "1", "pk": "a", "n": 15, "list": [1, 2, 3],
                "new": { "a": 1 }, "set": [true], "to": "x" });
            equal(&plain(read(&container, "1", "a").await?), &expected)?;
        }
        Ok(())
    })
    .await;
    run.not_offered("items", "patch under a condition");
}

async fn preconditions(run: &mut Context) {
    run.check("preconditions", "a stale etag does not replace", async |stage| {
        let container = stage.container().await?;
        let item = json!({ "id": "1", "pk": "a" });
        let first = container.create_item("a", "1", &item, None).await?;
        let etag = first.headers().etag().cloned().ok_or("no etag")?;
        container.upsert_item("a", "1", &item, None).await?;
        let stale = ItemWriteOptions::default().with_precondition(Precondition::if_match(etag));
        fails(412, container.replace_item("a", "1", &item, Some(stale)).await)
    })
    .await;
    run.check("preconditions", "a stale etag does not upsert, patch or delete", async |stage| {
        let container = stage.container().await?;
        let item = json!({ "id": "1", "pk": "a" });
        let first = container.create_item("a", "1", &item, None).await?;
        let etag = first.headers().etag().cloned().ok_or("no etag")?;
        container.upsert_item("a", "1", &item, None).await?;
        let stale = Precondition::if_match(etag);
        let options = ItemWriteOptions::default().with_precondition(stale.clone());
        fails(412, container.upsert_item("a", "1", &item, Some(options.clone())).await)?;
        fails(412, container.delete_item("a", "1", Some(options)).await)?;
        let patch = PatchInstructions::new().with_operation(PatchOperation::set("/n", json!(1)));
        let options = PatchItemOptions::default().with_precondition(stale);
        let options = options.with_strategy(PatchStrategy::ServerSide);
        fails(412, container.patch_item("a", "1", patch, Some(options)).await)
    })
    .await;
    run.check("preconditions", "an unchanged item is not sent again", async |stage| {
        let container = stage.container().await?;
        let item = json!({ "id": "1", "pk": "a" });
        let first = container.create_item("a", "1", &item, None).await?;
        let etag = first.headers().etag().cloned().ok_or("no etag")?;
        let unless = Precondition::if_none_match(etag);
        let options = ItemReadOptions::default().with_precondition(unless);
        let same = container.read_item("a", "1", Some(options.clone())).await?;
        equal(&u16::from(same.status().status_code()), &304)?;
        container.upsert_item("a", "1", &json!({ "id": "1", "pk": "a", "n": 1 }), None).await?;
        let found: Value = container.read_item("a", "1", Some(options)).await?.into_model()?;
        equal(&found["n"], &json!(1))
    })
    .await;
}

async fn batches(run: &mut Context) {
    run.check("batch", "every operation in one transaction", async |stage| {
        let container = stage.container().await?;
        for id in ["read", "replace", "delete"] {
            container.create_item("a", id, &json!({ "id": id, "pk": "a" }), None).await?;
        }
        let batch = TransactionalBatch::new("a")
            .create_item(json!({ "id": "create", "pk": "a" }))?
            .upsert_item(json!({ "id": "upsert", "pk": "a" }), None)?
            .read_item("read", None)
            .replace_item("replace", json!({ "id": "replace", "pk": "a", "n": 2 }), None)?
            .delete_item("delete", None);
        let response = container.execute_transactional_batch(batch, None).await?.into_model()?;
        let statuses: Vec<u16> = response.results().iter().map(|one| one.status_code()).collect();
        equal(&statuses, &vec![201, 201, 200, 200, 204])
    })
    .await;
    run.check("batch", "a failing one changes nothing", async |stage| {
        let container = stage.container().await?;
        container.create_item("a", "taken", &json!({ "id": "taken", "pk": "a" }), None).await?;
        let batch = TransactionalBatch::new("a")
            .create_item(json!({ "id": "new", "pk": "a" }))?
            .create_item(json!({ "id": "taken", "pk": "a" }))?;
        let response = container.execute_transactional_batch(batch, None).await?.into_model()?;
        let statuses: Vec<u16> = response.results().iter().map(|one| one.status_code()).collect();
        equal(&statuses, &vec![424, 409])?;
        fails(404, container.read_item("a", "new", None).await)
    })
    .await;
    run.check("batch", "limits are named", async |stage| {
        let container = stage.container().await?;
        let batch = |count: usize| {
            let start = Ok(TransactionalBatch::new("a"));
            (0..count).fold(start, |batch: azure_data_cosmos::Result<_>, number| {
                batch?.create_item(json!({ "id": number.to_string(), "pk": "a" }))
            })
        };
        fails(400, container.execute_transactional_batch(batch(101)?, None).await)?;
        let response = container.execute_transactional_batch(batch(100)?, None).await?;
        equal(&response.into_model()?.results().iter().all(|one| one.is_success()), &true)
    })
    .await;
    for check in
        ["many operations over all ranges", "every operation", "a write without a returned item"]
    {
        run.not_offered("bulk", check);
    }
}
