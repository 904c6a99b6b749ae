//! The conformance suite for feed sources, for ours and for those of users.

#![allow(clippy::unwrap_used)] // A failing step of the suite should panic where it fails.

use super::{FeedSource, Page, ReadRequest, SourceError};
use crate::coverage;
use crate::lease::Start;
use headwater_model::{FeedMode, KeyRange, Lsn};
use headwater_runtime::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Operations of the suite on the container behind a source.
pub trait Subject: Send + Sync {
    /// Returns the source.
    fn source(&self) -> Arc<dyn FeedSource>;
    /// Writes an item with this id and this partition key.
    fn put(&self, key: &str, id: &str, text: &str) -> BoxFuture<()>;
    /// Splits the range at this index of the list.
    fn split(&self, index: usize) -> BoxFuture<()>;
    /// Merges the range at this index of the list with the next higher one.
    fn merge(&self, index: usize) -> BoxFuture<()>;
}

fn request(range: &KeyRange, from: Start) -> ReadRequest {
    let (mode, items_max, wait) = (FeedMode::LatestVersion, Some(3), Duration::ZERO);
    ReadRequest { container: None, range: range.clone(), from, mode, items_max, wait }
}

/// Reads everything after a position, page by page. Returns ids with their texts, and the end position.
async fn read_all(
    source: &dyn FeedSource,
    range: &KeyRange,
    from: Start,
) -> (Vec<(String, String)>, Start) {
    let (mut found, mut from) = (Vec::new(), from);
    for _ in 0..1000 {
        let page: Page = source.read(request(range, from)).await.unwrap();
        from = Start::Position(page.position.clone());
        if page.changes.is_empty() {
            return (found, from);
        }
        let mut last = Lsn::ZERO;
        for change in &page.changes {
            assert!(change.lsn().is_some_and(|lsn| lsn >= last), "changes are in order");
            last = change.lsn().unwrap_or_default();
            assert!(change.seconds().is_some());
            let json: serde_json::Value = change.parse().unwrap();
            let text = |name: &str| json[name].as_str().unwrap().to_owned();
            found.push((text("id"), text("text")));
        }
    }
    panic!("the feed does not end");
}

/// Runs the suite against an empty container of two ranges.
///
/// # Panics
/// Panics if the source violates the contract of [`FeedSource`].
pub async fn run(subject: &dyn Subject) {
    let source = subject.source();
    let identity = source.identity().await.unwrap();
    assert!(!identity.container.rid.is_empty() && !identity.host.is_empty());
    let ranges = source.ranges(true).await.unwrap();
    assert_eq!(ranges.len(), 2);
    assert_eq!(coverage::gaps(&KeyRange::full(), ranges.iter().map(|one| &one.keys)).next(), None);
    for number in 0..40 {
        let (key, id) = (format!("k{}", number % 13), format!("i{number}"));
        subject.put(&key, &id, "old").await;
    }
    for number in 0..10 {
        subject.put(&format!("k{}", number % 13), &format!("i{number}"), "new").await;
    }
    let mut positions = Vec::new();
    let mut all = BTreeMap::new();
    for range in &ranges {
        let (found, end) = read_all(&*source, &range.keys, Start::Beginning).await;
        let (again, _) = read_all(&*source, &range.keys, end.clone()).await;
        assert_eq!(again, [], "no change is delivered twice");
        for (id, text) in found {
            assert_eq!(all.insert(id, text), None, "every item once");
        }
        positions.push((range.keys.clone(), end));
    }
    assert_eq!(all.len(), 40);
    assert_eq!(all.values().filter(|text| *text == "new").count(), 10);
    let (now, _) = read_all(&*source, &ranges[0].keys, Start::Now).await;
    assert_eq!(now, []);
    across_ranges(subject, &*source, positions).await;
}

async fn across_ranges(
    subject: &dyn Subject,
    source: &dyn FeedSource,
    positions: Vec<(KeyRange, Start)>,
) {
    let whole = source.read(request(&KeyRange::full(), Start::Beginning)).await;
    assert!(
        matches!(whole, Err(SourceError::RangeGone)),
        "one read cannot cover keys of two ranges"
    );
    subject.split(0).await;
    for number in 0..13 {
        subject.put(&format!("k{number}"), &format!("j{number}"), "later").await;
    }
    let (parent, from) = &positions[0];
    let gone = source.read(request(parent, from.clone())).await;
    assert!(matches!(gone, Err(SourceError::RangeGone)), "{gone:?}");
    let ranges = source.ranges(true).await.unwrap();
    assert_eq!(ranges.len(), 3);
    let mut later = Vec::new();
    let pieces = coverage::successors(parent, &ranges);
    assert_eq!(pieces.len(), 2);
    for (_, keys) in pieces {
        later.extend(read_all(source, &keys, from.clone()).await.0);
    }
    later.extend(read_all(source, &positions[1].0, positions[1].1.clone()).await.0);
    later.sort();
    later.dedup();
    assert_eq!(later.len(), 13, "children continue from their parent's position");
    assert!(later.iter().all(|(_, text)| text == "later"));
    subject.merge(0).await;
    // The keys of a child are now part of a larger range and are read from the child's own position.
    let (found, _) = read_all(source, parent, from.clone()).await;
    let expected =
        later.len() - read_all(source, &positions[1].0, positions[1].1.clone()).await.0.len();
    assert_eq!(found.len(), expected, "a merge does not affect reads of a part");
    let half = &coverage::parts(parent, 2)[0];
    let (part, _) = read_all(source, half, from.clone()).await;
    assert!(part.len() <= found.len());
}
