//! Feed ranges, and the change feed in the ways the client can ask for it.

use crate::harness::{Checked, Context, equal, fails, restart_server, split};
use crate::items::fill;
use crate::keys::fill_tenants;
use azure_core::time::{Duration, OffsetDateTime};
use azure_data_cosmos::feed::{ContinuationToken, FeedRange};
use azure_data_cosmos::models::{ChangeFeedPolicy, EffectivePartitionKey, TimeToLive};
use azure_data_cosmos::options::{
    ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint,
};
use azure_data_cosmos::{ContainerClient, FeedScope, TransactionalBatch};
use futures::StreamExt;
use serde_json::{Value, json};
use std::num::NonZeroU32;

/// A whole round of the ranges without a change is the end.
const QUIET: usize = 8;

/// Reads a change feed to its end, and remembers where that was.
struct Feed<'a> {
    container: &'a ContainerClient,
    scope: FeedScope,
    start: ChangeFeedStartFrom,
    mode: ChangeFeedMode,
    page_size: Option<NonZeroU32>,
    position: Option<ContinuationToken>,
}

/// A change: what happened, if the feed says, and the item behind and before it.
type Change = (String, Value, Value);

impl<'a> Feed<'a> {
    fn new(container: &'a ContainerClient, scope: FeedScope, start: ChangeFeedStartFrom) -> Self {
        let mode = ChangeFeedMode::LatestVersion;
        Feed { container, scope, start, mode, page_size: None, position: None }
    }

    fn beginning(container: &'a ContainerClient, scope: FeedScope) -> Self {
        Feed::new(container, scope, ChangeFeedStartFrom::Beginning)
    }

    fn all_versions(container: &'a ContainerClient, start: ChangeFeedStartFrom) -> Self {
        let mode = ChangeFeedMode::AllVersionsAndDeletes;
        Feed { mode, ..Feed::new(container, FeedScope::full_container(), start) }
    }

    async fn pages(&mut self) -> Checked<Vec<Vec<Change>>> {
        let mut options = ChangeFeedOptions::default().with_mode(self.mode);
        if let Some(size) = self.page_size {
            options = options.with_max_item_count(MaxItemCountHint::Limit(size));
        }
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

    /// The numbers of the items that changed, in order of their changes.
    async fn numbers(&mut self) -> Checked<Vec<usize>> {
        let number = |(_, item, _): &Change| item["n"].as_u64().unwrap_or(u64::MAX) as usize;
        Ok(self.pages().await?.iter().flatten().map(number).collect())
    }

    async fn sorted(&mut self) -> Checked<Vec<usize>> {
        let mut found = self.numbers().await?;
        found.sort_unstable();
        Ok(found)
    }

    async fn reads(&mut self, from: usize, to: usize) -> Checked<()> {
        equal(&self.sorted().await?, &(from..to).collect())
    }
}

pub async fn run(run: &mut Context) {
    run.not_offered("read feed", "all items, page by page");
    ranges(run).await;
    starts(run).await;
    scopes(run).await;
    pages(run).await;
    disturbances(run).await;
    all_versions(run).await;
    for check in [
        "first generation: every change, over a split",
        "latest versions: two hosts share the leases",
        "a host goes on where the last one stopped",
        "all versions and deletes",
    ] {
        run.not_offered("processor", check);
    }
}

async fn ranges(run: &mut Context) {
    run.check("feed ranges", "they cover the container", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 20, 7).await?;
        let ranges = container.read_feed_ranges(None).await?;
        let mut found = Vec::new();
        for range in &ranges {
            let scope = FeedScope::range(range.clone());
            found.extend(Feed::beginning(&container, scope).numbers().await?);
        }
        found.sort_unstable();
        equal(&(ranges.len() >= 2, found), &(true, (0..20).collect()))
    })
    .await;
    run.check("feed ranges", "a key's range is within one of them", async |stage| {
        let container = stage.container().await?;
        let ranges = container.read_feed_ranges(None).await?;
        for number in 0..20 {
            let key = format!("k{number}");
            let own = container.feed_range_from_partition_key(key, None).await?;
            let holds = |own: &FeedRange| ranges.iter().filter(|all| own.is_subset_of(all)).count();
            equal(&own.iter().map(holds).collect(), &vec![1])?;
        }
        Ok(())
    })
    .await;
}

async fn starts(run: &mut Context) {
    run.check("change feed", "from the beginning", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 20, 7).await?;
        let mut feed = Feed::beginning(&container, FeedScope::full_container());
        feed.reads(0, 20).await?;
        feed.reads(0, 0).await?;
        fill(&container, 20, 23, 7).await?;
        feed.reads(20, 23).await?;
        container.delete_item("k0", "0", None).await?;
        Feed::beginning(&container, FeedScope::full_container()).reads(1, 23).await
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
    run.check("change feed", "from a time", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 10, 7).await?;
        tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
        let middle = OffsetDateTime::now_utc();
        fill(&container, 10, 20, 7).await?;
        let from = |moment| {
            let start = ChangeFeedStartFrom::PointInTime(moment);
            Feed::new(&container, FeedScope::full_container(), start)
        };
        from(middle).reads(10, 20).await?;
        from(middle + Duration::hours(1)).reads(0, 0).await?;
        from(middle - Duration::hours(1)).reads(0, 20).await
    })
    .await;
}

async fn scopes(run: &mut Context) {
    run.check("change feed", "of one partition key", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 21, 7).await?;
        let mut feed = Feed::beginning(&container, FeedScope::partition("k3"));
        equal(&feed.numbers().await?, &vec![3, 10, 17])?;
        fill(&container, 21, 28, 7).await?;
        equal(&feed.numbers().await?, &vec![24])
    })
    .await;
    run.check("change feed", "of a hierarchical key and its prefix", async |stage| {
        let container = stage.container_by(&["/tenant", "/user"]).await?;
        fill_tenants(&container).await?;
        let mut feed = Feed::beginning(&container, FeedScope::partition(("t1", "u1")));
        equal(&feed.sorted().await?, &vec![1, 7])?;
        let mut feed = Feed::beginning(&container, FeedScope::partition("t1"));
        equal(&feed.sorted().await?, &vec![1, 4, 7, 10])
    })
    .await;
    run.check("change feed", "of one range", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 20, 7).await?;
        let ranges = container.read_feed_ranges(None).await?;
        let scopes = ranges.into_iter().map(FeedScope::range);
        let mut feeds: Vec<Feed> = scopes.map(|scope| Feed::beginning(&container, scope)).collect();
        for (from, to) in [(0, 20), (20, 30)] {
            fill(&container, from.max(20), to, 7).await?;
            let mut found = Vec::new();
            for feed in &mut feeds {
                let numbers = feed.numbers().await?;
                equal(&numbers.is_sorted(), &true)?;
                found.extend(numbers);
            }
            found.sort_unstable();
            equal(&found, &(from..to).collect())?;
        }
        Ok(())
    })
    .await;
    run.check("change feed", "of a part of a range", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 40, 40).await?;
        let first = container.read_feed_ranges(None).await?.into_iter().next().ok_or("no range")?;
        let mut whole = Feed::beginning(&container, FeedScope::range(first.clone()));
        let whole = whole.sorted().await?;
        let middle = EffectivePartitionKey::try_from("0A000000000000000000000000000000")?;
        let mut found = Vec::new();
        for part in [
            FeedRange::new(first.min_inclusive().clone(), middle.clone())?,
            FeedRange::new(middle, first.max_exclusive().clone())?,
        ] {
            let numbers = Feed::beginning(&container, FeedScope::range(part)).numbers().await?;
            equal(&(numbers.len() < whole.len()), &true)?;
            found.extend(numbers);
        }
        found.sort_unstable();
        equal(&found, &whole)
    })
    .await;
}

async fn pages(run: &mut Context) {
    run.check("change feed", "page sizes", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 20, 7).await?;
        let mut feed = Feed::beginning(&container, FeedScope::full_container());
        feed.page_size = NonZeroU32::new(3);
        let sizes: Vec<usize> = feed.pages().await?.iter().map(Vec::len).collect();
        equal(&(sizes.iter().all(|size| *size <= 3), sizes.iter().sum()), &(true, 20))
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
        let mut feed = Feed::beginning(&container, FeedScope::partition("a"));
        feed.page_size = NonZeroU32::new(1);
        let sizes: Vec<usize> = feed.pages().await?.iter().map(Vec::len).collect();
        equal(&sizes, &vec![5, 5, 5])
    })
    .await;
}

async fn disturbances(run: &mut Context) {
    run.check("change feed", "resumes after a restart of the server", async |stage| {
        let container = stage.container().await?;
        fill(&container, 0, 10, 7).await?;
        let mut feed = Feed::beginning(&container, FeedScope::full_container());
        feed.reads(0, 10).await?;
        fill(&container, 10, 15, 7).await?;
        restart_server()?;
        feed.reads(10, 15).await?;
        fill(&container, 15, 20, 7).await?;
        feed.reads(15, 20).await
    })
    .await;
    run.check("change feed", "a split during a read", async |stage| {
        let (id, container) = stage.named_container().await?;
        fill(&container, 0, 30, 30).await?;
        let mut feed = Feed::beginning(&container, FeedScope::full_container());
        feed.reads(0, 30).await?;
        fill(&container, 30, 60, 30).await?;
        split(&id, "items", "0")?;
        split(&id, "items", "1")?;
        feed.reads(30, 60).await?;
        fill(&container, 60, 90, 30).await?;
        feed.reads(60, 90).await?;
        Feed::beginning(&container, FeedScope::full_container()).reads(0, 90).await
    })
    .await;
}

fn kept() -> Checked<ChangeFeedPolicy> {
    Ok(serde_json::from_value(json!({ "retentionDuration": 10 }))?)
}

async fn all_versions(run: &mut Context) {
    run.check("change feed", "all versions and deletes", async |stage| {
        let policy = kept()?;
        let container =
            stage.container_with(|properties| properties.with_change_feed_policy(policy)).await?;
        let mut feed = Feed::all_versions(&container, ChangeFeedStartFrom::Now);
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
    run.check("change feed", "all versions: an expired item is a delete", async |stage| {
        let policy = kept()?;
        let container = stage
            .container_with(|properties| {
                let properties = properties.with_change_feed_policy(policy);
                properties.with_default_ttl(TimeToLive::NoDefault)
            })
            .await?;
        let mut feed = Feed::all_versions(&container, ChangeFeedStartFrom::Now);
        feed.pages().await?;
        let item = json!({ "id": "x", "pk": "a", "ttl": 1 });
        container.create_item("a", "x", &item, None).await?;
        let mut kinds = Vec::new();
        for _ in 0..20 {
            kinds.extend(feed.pages().await?.into_iter().flatten().map(|change| change.0));
            if kinds.len() >= 2 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        equal(&kinds, &vec!["Create".to_owned(), "Delete".to_owned()])
    })
    .await;
    run.check("change feed", "all versions only from now or a position", async |stage| {
        let policy = kept()?;
        let container =
            stage.container_with(|properties| properties.with_change_feed_policy(policy)).await?;
        let options = ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes);
        let (scope, start) = (FeedScope::full_container(), ChangeFeedStartFrom::Beginning);
        let refused = match container.query_change_feed::<Value>(scope, start, Some(options)).await
        {
            Ok(mut pages) => pages.next().await.ok_or("it ended")?.map(|_| ()),
            Err(error) => Err(error),
        };
        fails(400, refused)
    })
    .await;
}
