//! What depends on keys and time: keys of every kind, hierarchical ones, odd ids, time to live, sessions.

use crate::harness::{Checked, Context, equal, fails};
use crate::items::{plain, read};
use azure_data_cosmos::models::{PartitionKey, TimeToLive};
use azure_data_cosmos::options::ItemReadOptions;
use azure_data_cosmos::{ContainerClient, FeedScope, Query};
use futures::TryStreamExt;
use serde_json::{Value, json};
use std::time::Duration;

pub async fn run(run: &mut Context) {
    kinds(run).await;
    hierarchical(run).await;
    time_to_live(run).await;
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
    run.check("session", "a client reads what it wrote", async |stage| {
        let container = stage.container().await?;
        for n in 1..4 {
            let item = json!({ "id": "1", "pk": "a", "n": n });
            let written = container.upsert_item("a", "1", &item, None).await?;
            let token = written.headers().session_token().cloned().ok_or("no session token")?;
            let options = ItemReadOptions::default().with_session_token(token);
            let found = container.read_item("a", "1", Some(options)).await?;
            equal(&found.into_model::<Value>()?["n"], &json!(n))?;
        }
        Ok(())
    })
    .await;
}

async fn kinds(run: &mut Context) {
    run.check("items", "partition keys of every type", async |stage| {
        let container = stage.container().await?;
        let keys: [(&str, Value, PartitionKey); 5] = [
            ("text", json!("ä b+%"), "ä b+%".into()),
            ("number", json!(4.5), PartitionKey::try_from(4.5)?),
            ("integer", json!(42), 42.into()),
            ("true", json!(true), true.into()),
            ("null", Value::Null, Option::<String>::None.into()),
        ];
        for (id, value, key) in keys {
            let item = json!({ "id": id, "pk": value });
            container.create_item(key.clone(), id, &item, None).await?;
            let found: Value = container.read_item(key, id, None).await?.into_model()?;
            equal(&plain(found), &item)?;
        }
        Ok(())
    })
    .await;
}

/// Twelve items of three tenants and two users.
pub async fn fill_tenants(container: &ContainerClient) -> Checked<()> {
    for number in 0..12 {
        let (tenant, user) = (format!("t{}", number % 3), format!("u{}", number % 2));
        let item = json!({ "id": number.to_string(), "tenant": tenant, "user": user, "n": number });
        container.create_item((tenant, user), &number.to_string(), &item, None).await?;
    }
    Ok(())
}

async fn hierarchical(run: &mut Context) {
    run.check("hierarchical keys", "create, read, replace, delete", async |stage| {
        let container = stage.container_by(&["/tenant", "/user", "/session"]).await?;
        let key = || ("t", "u", 3);
        let item = json!({ "id": "1", "tenant": "t", "user": "u", "session": 3 });
        container.create_item(key(), "1", &item, None).await?;
        let item = json!({ "id": "1", "tenant": "t", "user": "u", "session": 3, "n": 1 });
        container.replace_item(key(), "1", &item, None).await?;
        let found: Value = container.read_item(key(), "1", None).await?.into_model()?;
        equal(&plain(found), &item)?;
        fails(404, container.read_item(("t", "u", 4), "1", None).await)?;
        container.delete_item(key(), "1", None).await?;
        fails(404, container.read_item(key(), "1", None).await)
    })
    .await;
    run.check("hierarchical keys", "query by a prefix", async |stage| {
        let container = stage.container_by(&["/tenant", "/user"]).await?;
        fill_tenants(&container).await?;
        let query = Query::from("SELECT VALUE c.n FROM c");
        let scope = FeedScope::partition("t1");
        let found = container.query_items::<i64>(query, scope, None).await?;
        let mut found: Vec<i64> = found.try_collect().await?;
        found.sort_unstable();
        equal(&found, &vec![1, 4, 7, 10])
    })
    .await;
}

async fn time_to_live(run: &mut Context) {
    run.check("ttl", "an item expires", async |stage| {
        let container = stage
            .container_with(|properties| properties.with_default_ttl(TimeToLive::NoDefault))
            .await?;
        for (id, ttl) in [("short", 1), ("long", -1)] {
            let item = json!({ "id": id, "pk": "a", "ttl": ttl });
            container.create_item("a", id, &item, None).await?;
        }
        tokio::time::sleep(Duration::from_millis(2500)).await;
        fails(404, container.read_item("a", "short", None).await)?;
        read(&container, "long", "a").await?;
        Ok(())
    })
    .await;
    run.check("ttl", "the container's default applies", async |stage| {
        let container =
            stage.container_with(|properties| properties.with_default_ttl(1_u32)).await?;
        container.create_item("a", "default", &json!({ "id": "default", "pk": "a" }), None).await?;
        let own = json!({ "id": "own", "pk": "a", "ttl": 100 });
        container.create_item("a", "own", &own, None).await?;
        tokio::time::sleep(Duration::from_millis(2500)).await;
        fails(404, container.read_item("a", "default", None).await)?;
        read(&container, "own", "a").await?;
        Ok(())
    })
    .await;
    run.check("ttl", "an impossible one is refused", async |stage| {
        let container = stage
            .container_with(|properties| properties.with_default_ttl(TimeToLive::NoDefault))
            .await?;
        for ttl in [json!(0), json!(-2), json!("10"), Value::Null] {
            let item = json!({ "id": "1", "pk": "a", "ttl": ttl });
            fails(400, container.create_item("a", "1", &item, None).await)?;
        }
        Ok(())
    })
    .await;
}
