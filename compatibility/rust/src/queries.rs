//! Queries beyond a filter. Over several ranges the client itself merges what is sorted, skipped and limited, and
//! nothing else; within a partition key a query goes to the server as it is.

use crate::harness::{Checked, Context, equal};
use azure_data_cosmos::options::{MaxItemCountHint, QueryOptions};
use azure_data_cosmos::{ContainerClient, FeedScope, Query};
use futures::TryStreamExt;
use serde_json::{Value, json};

const WORDS: [&str; 3] = ["ash", "birch", "cedar"];

/// Twenty items over seven keys; `word` is missing from every fourth.
async fn fill(container: &ContainerClient) -> Checked<()> {
    for number in 0..20 {
        let (id, key) = (number.to_string(), format!("k{}", number % 7));
        let mut item =
            json!({ "id": id, "pk": key, "n": number, "tags": [number % 2, number % 3] });
        if number % 4 != 0 {
            item["word"] = json!(WORDS[number % 3]);
        }
        container.create_item(key, &id, &item, None).await?;
    }
    Ok(())
}

async fn ask(container: &ContainerClient, query: Query, scope: FeedScope) -> Checked<Vec<Value>> {
    let found = container.query_items::<Value>(query, scope, None).await?;
    Ok(found.try_collect().await?)
}

/// Asks within one key, or everywhere, and compares.
async fn check(
    container: &ContainerClient,
    query: &str,
    key: Option<&'static str>,
    expected: Value,
) -> Checked<()> {
    let scope = key.map_or_else(FeedScope::full_container, FeedScope::partition);
    equal(&json!(ask(container, Query::from(query), scope).await?), &expected)
}

pub async fn run(run: &mut Context) {
    run.check("queries", "parameters", async |stage| {
        let container = stage.container().await?;
        fill(&container).await?;
        let text = "SELECT VALUE c.n FROM c WHERE c.word = @word AND ARRAY_CONTAINS(@numbers, c.n)";
        let query = Query::from(text)
            .with_parameter("@word", "birch")?
            .with_parameter("@numbers", [1, 2, 7, 10])?;
        equal(&json!(ask(&container, query, FeedScope::partition("k0")).await?), &json!([7]))
    })
    .await;
    run.check("queries", "aggregates", async |stage| {
        let container = stage.container().await?;
        fill(&container).await?;
        for (query, expected) in [
            ("SELECT VALUE COUNT(1) FROM c", json!([3])),
            ("SELECT VALUE SUM(c.n) FROM c", json!([24])),
            ("SELECT VALUE AVG(c.n) FROM c", json!([8])),
            ("SELECT VALUE MAX(c.word) FROM c", json!(["birch"])),
            ("SELECT COUNT(1) AS many, MIN(c.n) AS least FROM c", json!([{"many": 3, "least": 1}])),
        ] {
            check(&container, query, Some("k1"), expected).await?;
        }
        Ok(())
    })
    .await;
    run.check("queries", "group by", async |stage| {
        let container = stage.container().await?;
        fill(&container).await?;
        let query = "SELECT c.word, COUNT(1) AS many FROM c WHERE IS_DEFINED(c.word) GROUP BY c.word";
        let expected = json!([{"word": "birch", "many": 1}, {"word": "ash", "many": 1}]);
        let found = ask(&container, Query::from(query), FeedScope::partition("k1")).await?;
        let same = found.len() == 2
            && expected.as_array().is_some_and(|groups| groups.iter().all(|one| found.contains(one)));
        if same { Ok(()) } else { Err(format!("found {found:?}").into()) }
    })
    .await;
    run.check("queries", "distinct", async |stage| {
        let container = stage.container().await?;
        fill(&container).await?;
        check(&container, "SELECT DISTINCT VALUE c.pk FROM c", Some("k1"), json!(["k1"])).await
    })
    .await;
    run.check("queries", "top, offset and limit", async |stage| {
        let container = stage.container().await?;
        fill(&container).await?;
        let top = "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC";
        check(&container, top, None, json!([19, 18, 17])).await?;
        let window = "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 4 LIMIT 3";
        check(&container, window, None, json!([4, 5, 6])).await?;
        check(&container, "SELECT VALUE 1 FROM c OFFSET 18 LIMIT 5", None, json!([1, 1])).await
    })
    .await;
    run.check("queries", "joins and sub-queries", async |stage| {
        let container = stage.container().await?;
        fill(&container).await?;
        let expected = json!([2, 5, 8, 11, 14, 17]);
        let join = "SELECT VALUE c.n FROM c JOIN t IN c.tags WHERE t = 2 ORDER BY c.n";
        check(&container, join, None, expected.clone()).await?;
        let exists = "SELECT VALUE c.n FROM c WHERE EXISTS (SELECT VALUE t FROM t IN c.tags \
                      WHERE t > 1) ORDER BY c.n";
        check(&container, exists, None, expected).await
    })
    .await;
    run.check("queries", "a continuation goes on in another client", async |stage| {
        let container = stage.container().await?;
        fill(&container).await?;
        let (mut found, mut token) = (Vec::new(), None);
        for _ in 0..30 {
            let page_size = MaxItemCountHint::Limit(2.try_into()?);
            let mut options = QueryOptions::default().with_max_item_count(page_size);
            if let Some(token) = token.take() {
                options = options.with_continuation_token(token);
            }
            let query = Query::from("SELECT VALUE c.n FROM c ORDER BY c.n");
            let scope = FeedScope::full_container();
            let asked = container.query_items::<i64>(query, scope, Some(options)).await?;
            let mut pages = asked.into_pages();
            let Some(page) = pages.try_next().await? else { break };
            found.extend(page.into_items());
            token = Some(pages.to_continuation_token()?);
        }
        equal(&found, &(0..20).collect::<Vec<i64>>())
    })
    .await;
}
