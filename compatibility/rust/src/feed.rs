//! Feed ranges, and the change feed in the ways the client can ask for it.

use crate::harness::{Checked, Context, equal, restart_server};
use crate::items::fill;
use azure_data_cosmos::feed::ContinuationToken;
use azure_data_cosmos::models::ChangeFeedPolicy;
use azure_data_cosmos::options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom};
use azure_data_cosmos::{ContainerClient, FeedScope, TransactionalBatch};
use futures::StreamExt;
use serde_json::{Value, json};

/// A whole round of the ranges without a change is the end.
const QUIET: usize = 8;

/// Reads a change feed to its end, and remembers where that was.
struct Feed<'a> {
    container: &'a ContainerClient,
    scope: FeedScope,
    start: ChangeFeedStartFrom,
    mode: ChangeFeedMode,
    position: Option<ContinuationToken>,
}

/// A change: what happened, if the feed says, and the item behind and before it.
type Change = (String, Value, Value);

impl<'a> Feed<'a> {
    fn new(container: &'a ContainerClient, scope: FeedScope, start: ChangeFeedStartFrom) -> Self {
        Feed { container, scope, start, mode: ChangeFeedMode::LatestVersion, position: None }
    }

    async fn pages(&mut self) -> Checked<Vec<Vec<Change>>> {
        let mut options = ChangeFeedOptions::default().with_mode(self.mode);
        if let Some(position) = self.position.take() {
            options = options.with_continuation_token(position);
        }
        let (scope, start) = (self.scope.clone(), self.start.clone());
        let mut pages =
            self.container.query_change_feed::<Value>(scope, start, Some(options)).await?;
        let (mut found, mut quiet) = (Vec::new(), 0);
        while quiet < QUIET {
            let Some(page) = pages.next().await else { break };
            let page = page?.into_items();
            quiet = if page.is_empty() { quiet + 1 } else { 0 };
            if page.is_empty() {
                continue;
            }
            let page = page.iter().map(|change| {
                let kind = change.operation_type().map(|kind| format!("{kind:?}"));
                let item = |item: Option<&Value>| item.cloned().unwrap_or_default();
                (kind.unwrap_or_default(), item(change.current()), item(change.previous()))
            });
            found.push(page.collect());
        }
        self.position = Some(pages.to_continuation_token()?);
        Ok(found)
    }

    async fn reads(&mut self, from: usize, to: usize) -> Checked<()> {
        let pages = self.pages().await?;
        let number = |(_, item, _): &Change| item["n"].as_u64().unwrap_or(u64::MAX) as usize;
        let mut found: Vec<usize> = pages.iter().flatten().map(number).collect();
        found.sort_unstable();
        equal(&found, &(from..to).collect())
    }
}

pub async fn run(run: &mut Context) {
    run.check("feed ranges", "they cover the container", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 20, 7).await?;
        let ranges = container.read_feed_ranges(None).await?;
        let mut count = 0;
        for range in &ranges {
            let scope = FeedScope::range(range.clone());
            let mut feed = Feed::new(&container, scope, ChangeFeedStartFrom::Beginning);
            count += feed.pages().await?.iter().map(Vec::len).sum::<usize>();
        }
        equal(&(ranges.len() >= 2, count), &(true, 20))
    })
    .await;
    run.check("change feed", "from the beginning", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 20, 7).await?;
        let scope = FeedScope::full_container();
        let mut feed = Feed::new(&container, scope, ChangeFeedStartFrom::Beginning);
        feed.reads(0, 20).await?;
        feed.reads(0, 0).await?;
        fill(&container, 20, 23, 7).await?;
        feed.reads(20, 23).await
    })
    .await;
    run.check("change feed", "from now", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 10, 7).await?;
        let mut feed = Feed::new(&container, FeedScope::full_container(), ChangeFeedStartFrom::Now);
        feed.reads(0, 0).await?;
        fill(&container, 10, 20, 7).await?;
        feed.reads(10, 20).await
    })
    .await;
    run.check("change feed", "of one partition key", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 21, 7).await?;
        let scope = FeedScope::partition("k3");
        let mut feed = Feed::new(&container, scope, ChangeFeedStartFrom::Beginning);
        let found: Vec<Value> =
            feed.pages().await?.into_iter().flatten().map(|change| change.1["n"].clone()).collect();
        equal(&found, &vec![json!(3), json!(10), json!(17)])
    })
    .await;
    run.check("change feed", "a transaction stays on one page", async |stage| {
        let container = stage.container().await?;
        for number in 0..3 {
            let mut batch = TransactionalBatch::new("a");
            for part in 0..5 {
                batch =
                    batch.create_item(json!({ "id": format!("{number}-{part}"), "pk": "a" }))?;
            }
            container.execute_transactional_batch(batch, None).await?;
        }
        let scope = FeedScope::partition("a");
        let mut feed = Feed::new(&container, scope, ChangeFeedStartFrom::Beginning);
        let sizes: Vec<usize> = feed.pages().await?.iter().map(Vec::len).collect();
        equal(&sizes.iter().all(|size| size % 5 == 0), &true)?;
        equal(&sizes.iter().sum(), &15)
    })
    .await;
    run.check("change feed", "resumes after a restart of the server", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 10, 7).await?;
        let scope = FeedScope::full_container();
        let mut feed = Feed::new(&container, scope, ChangeFeedStartFrom::Beginning);
        feed.reads(0, 10).await?;
        fill(&container, 10, 15, 7).await?;
        restart_server()?;
        feed.reads(10, 15).await
    })
    .await;
    run.check("change feed", "all versions and deletes", async |stage| {
        let policy =
            serde_json::from_value::<ChangeFeedPolicy>(json!({ "retentionDuration": 10 }))?;
        let container =
            stage.container_with(|properties| properties.with_change_feed_policy(policy)).await?;
        let mut feed = Feed::new(&container, FeedScope::full_container(), ChangeFeedStartFrom::Now);
        feed.mode = ChangeFeedMode::AllVersionsAndDeletes;
        equal(&feed.pages().await?.len(), &0)?;
        container.create_item("a", "x", &json!({ "id": "x", "pk": "a", "n": 1 }), None).await?;
        container.upsert_item("a", "x", &json!({ "id": "x", "pk": "a", "n": 2 }), None).await?;
        container.delete_item("a", "x", None).await?;
        let changes: Vec<Change> = feed.pages().await?.into_iter().flatten().collect();
        let kinds: Vec<&str> = changes.iter().map(|change| change.0.as_str()).collect();
        equal(&kinds, &vec!["Create", "Replace", "Delete"])?;
        equal(&changes[1].2["n"], &json!(1))
    })
    .await;
}
