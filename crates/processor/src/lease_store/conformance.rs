//! The conformance suite for lease stores, for ours and for those of users.

#![allow(clippy::unwrap_used)] // A failing step of the suite should panic where it fails.

use super::{Layout, LeaseStore, NewDocument, StoreError, StoreWrite};
use crate::lease::{Document, DocumentKey};
use std::sync::Arc;

fn document(layout: Layout, id: &str, text: &str) -> NewDocument {
    let key = layout.key("unit", id.to_owned(), false);
    let mut body = crate::member::with_key(&key);
    body.set("text", &text);
    NewDocument { key, body: body.to_bytes().into() }
}

fn text(body: &[u8]) -> String {
    Document::parse(body).unwrap().get("text").unwrap()
}

/// Runs the suite against an empty store.
///
/// # Panics
/// Panics if the store violates the contract of [`LeaseStore`].
pub async fn run(store: Arc<dyn LeaseStore>) {
    let layout = store.layout();
    writes_depend_on_versions(&*store, layout).await;
    lists_are_by_prefix(&*store, layout).await;
    several_writes_are_one_or_none(&*store, layout).await;
    one_of_many_wins(store, layout).await;
}

async fn writes_depend_on_versions(store: &dyn LeaseStore, layout: Layout) {
    let created = store.create(document(layout, "a", "1")).await.unwrap();
    let again = store.create(document(layout, "a", "2")).await;
    assert_eq!(again, Err(StoreError::Conflict));
    let read = store.read(&created.key).await.unwrap().unwrap();
    assert_eq!((&read.etag, &*text(&read.body)), (&created.etag, "1"));
    let replaced = store.replace(document(layout, "a", "3"), &created.etag).await.unwrap();
    assert_ne!(replaced.etag, created.etag, "every write changes the version");
    let stale = store.replace(document(layout, "a", "4"), &created.etag).await;
    assert_eq!(stale, Err(StoreError::PreconditionFailed));
    let same = store.replace(document(layout, "a", "3"), &replaced.etag).await.unwrap();
    assert_ne!(same.etag, replaced.etag, "also a write without a change");
    let stale = store.delete(&created.key, &replaced.etag).await;
    assert_eq!(stale, Err(StoreError::PreconditionFailed));
    let read = store.read(&created.key).await.unwrap().unwrap();
    assert_eq!((&read.etag, &*text(&read.body)), (&same.etag, "3"));
    store.delete(&created.key, &same.etag).await.unwrap();
    assert_eq!(store.read(&created.key).await.unwrap(), None);
    assert_eq!(store.delete(&created.key, &same.etag).await, Err(StoreError::NotFound));
    let gone = store.replace(document(layout, "a", "5"), &same.etag).await;
    assert_eq!(gone, Err(StoreError::NotFound));
}

async fn lists_are_by_prefix(store: &dyn LeaseStore, layout: Layout) {
    for id in ["x.one", "x.two", "x..three", "xx.four", "y'.\"five"] {
        store.create(document(layout, id, id)).await.unwrap();
    }
    let listing = store.list("x.").await.unwrap();
    let mut ids: Vec<&str> = listing.documents.iter().map(|one| one.key.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["x..three", "x.one", "x.two"]);
    let odd = store.list("y'.\"").await.unwrap();
    assert_eq!(odd.documents.len(), 1, "quotes in a prefix are literal");
    for stored in &listing.documents {
        let read = store.read(&stored.key).await.unwrap().unwrap();
        assert_eq!(read.etag, stored.etag, "a listing returns current versions");
        let age = listing.seconds.zip(stored.seconds).map(|(now, then)| now.saturating_sub(then));
        assert!(age.is_none_or(|age| age < 600), "both times are from one clock");
    }
}

async fn several_writes_are_one_or_none(store: &dyn LeaseStore, layout: Layout) {
    let parent = store.create(document(layout, "p.0", "parent")).await.unwrap();
    let create = |id: &str| StoreWrite::Create(document(layout, id, id));
    let gone = |etag: &str| StoreWrite::Delete(parent.key.clone(), etag.to_owned());
    let stale = store.atomic(vec![create("p.1"), create("p.2"), gone("\"nonsense\"")]).await;
    let count = || async { store.list("p.").await.unwrap().documents.len() };
    assert_eq!(count().await, 1, "a failed set has no effect");
    if stale == Ok(None) {
        return;
    }
    assert_eq!(stale, Err(StoreError::PreconditionFailed));
    let done = store.atomic(vec![create("p.1"), create("p.2"), gone(&parent.etag)]).await;
    assert_eq!(done, Ok(Some(())));
    assert_eq!(count().await, 2);
    let taken = store.atomic(vec![create("p.3"), create("p.1")]).await;
    assert_eq!((taken, count().await), (Err(StoreError::Conflict), 2));
    let again = store.atomic(vec![gone(&parent.etag), create("p.1")]).await;
    assert_eq!(again, Err(StoreError::NotFound), "the first failed write decides the error");
    let replace = |etag: &str| StoreWrite::Replace(document(layout, "p.1", "new"), etag.to_owned());
    let stale = store.atomic(vec![replace("\"nonsense\""), create("p.3")]).await;
    assert_eq!((stale, count().await), (Err(StoreError::PreconditionFailed), 2));
    let key = layout.key("unit", "p.1".to_owned(), false);
    let before = store.read(&key).await.unwrap().unwrap();
    let done = store.atomic(vec![replace(&before.etag), create("p.3")]).await;
    assert_eq!((done, count().await), (Ok(Some(())), 3));
    let after = store.read(&key).await.unwrap().unwrap();
    assert_eq!((&*text(&after.body), after.etag == before.etag), ("new", false));
}

async fn one_of_many_wins(store: Arc<dyn LeaseStore>, layout: Layout) {
    let first = store.create(document(layout, "race", "0")).await.unwrap();
    let attempts = (0..8).map(|number| {
        let write = document(layout, "race", &number.to_string());
        let (store, etag) = (store.clone(), first.etag.clone());
        Box::pin(async move { store.replace(write, &etag).await })
            as headwater_runtime::BoxFuture<Result<super::Stored, StoreError>>
    });
    let outcomes = crate::host::all(attempts.collect()).await;
    let won: Vec<_> = outcomes.iter().flatten().collect();
    assert_eq!(won.len(), 1, "{outcomes:?}");
    let read = store.read(&DocumentKey::clone(&first.key)).await.unwrap().unwrap();
    assert_eq!(read.etag, won[0].etag);
}
