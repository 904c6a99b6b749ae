//! Items: every operation, preconditions, batches, queries, keys and ids of all kinds.

use crate::harness::{Checked, Context, equal, fails};
use azure_data_cosmos::options::{ItemWriteOptions, Precondition};
use azure_data_cosmos::{ContainerClient, FeedScope, Query, TransactionalBatch};
use futures::TryStreamExt;
use serde_json::{Value, json};

pub async fn read(container: &ContainerClient, id: &str, key: &str) -> Checked<Value> {
    Ok(container.read_item(key.to_owned(), id, None).await?.into_model()?)
}

fn plain(item: Value) -> Value {
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
    run.check("items", "numbers and texts are kept exactly", async |stage| {
        let container = stage.container().await?;
        let given = json!({ "id": "1", "pk": "a", "big": 9_007_199_254_740_991_i64, "small": -0.000001,
            "large": 1.5e300, "text": "\u{0}\u{1f}\"\\/ äöü 日本 😀 \u{2028}", "": "empty name" });
        container.create_item("a", "1", &given, None).await?;
        equal(&plain(read(&container, "1", "a").await?), &given)
    })
    .await;
    run.check("preconditions", "a stale etag does not replace", async |stage| {
        let container = stage.container().await?;
        let item = json!({ "id": "1", "pk": "a" });
        let first = container.create_item("a", "1", &item, None).await?;
        let etag = first.headers().etag().cloned().ok_or("no etag")?;
        container.upsert_item("a", "1", &item, None).await?;
        let stale = ItemWriteOptions::default().with_precondition(Precondition::if_match(etag));
        fails(412, container.replace_item("a", "1", &item, Some(stale.clone())).await)?;
        fails(412, container.delete_item("a", "1", Some(stale)).await)
    })
    .await;
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
    queries(run).await;
    run.check("odd ids", "spaces, unicode, plus, percent, quotes", async |stage| {
        let container = stage.container().await?;
        for id in ["a b", "äöü", "日本", "😀", "a+b", "a%20b", "100%", "a&b=c", "it's", "say \"x\""]
        {
            let item = json!({ "id": id, "pk": id });
            container.create_item(id, id, &item, None).await?;
            equal(&plain(read(&container, id, id).await?), &item)?;
            container.delete_item(id, id, None).await?;
        }
        Ok(())
    })
    .await;
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
}
