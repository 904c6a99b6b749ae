//! Leases in a container of a store in the same process.

use super::{Layout, LeaseStore, Listing, NewDocument, StoreError, StoreWrite, Stored};
use crate::lease::DocumentKey;
use crate::namespace::{EMBEDDED, FeedIdentity};
use headwater_model::PartitionKey;
use headwater_runtime::{BoxFuture, Runtime};
use headwater_store::{
    Container, Item, ItemReadError, ItemWrite, PageLimit, ScanScope, WriteError,
};

/// A lease container in the same process. Cheap to clone.
#[derive(Clone)]
pub struct EmbeddedLeases {
    container: Container,
    layout: Layout,
    runtime: Runtime,
}

impl EmbeddedLeases {
    /// Uses this container, which must be partitioned by `/id`, by `/partitionKey` or not at all. `runtime` is
    /// the store's.
    ///
    /// # Errors
    /// Fails if it is partitioned by something else.
    pub fn new(container: Container, runtime: Runtime) -> Result<EmbeddedLeases, StoreError> {
        let definition = container.definition();
        let paths: Vec<&str> =
            definition.partition_key().paths.iter().map(|path| path.as_str()).collect();
        let layout = match definition.partition_key().system_key {
            true => Layout::Unpartitioned,
            false => Layout::of(&paths)?,
        };
        Ok(EmbeddedLeases { container, layout, runtime })
    }

    fn stored(&self, item: &Item) -> Option<Stored> {
        let body = item.to_bytes();
        let document = crate::lease::Document::parse(&body).ok()?;
        let partition = match self.layout {
            Layout::Id | Layout::Unpartitioned => None,
            Layout::PartitionKey => document.get("partitionKey"),
        };
        let key = DocumentKey { id: document.get("id")?, partition };
        let seconds = Some(item.timestamp().as_seconds());
        Some(Stored { key, body, etag: document.get("_etag")?, seconds })
    }

    async fn write(&self, write: ItemWrite) -> Result<Option<Stored>, StoreError> {
        let written = self.container.write(write).await.map_err(refused)?;
        Ok(written.item.as_ref().and_then(|item| self.stored(item)))
    }
}

fn refused(error: WriteError) -> StoreError {
    let text = error.to_string();
    match error {
        WriteError::AlreadyExists { .. } => StoreError::Conflict,
        WriteError::NotFound { .. } => StoreError::NotFound,
        WriteError::EtagMismatch { .. } => StoreError::PreconditionFailed,
        WriteError::ContainerGone => StoreError::Gone(text),
        WriteError::Storage(_) => StoreError::Unavailable(text),
        _ => StoreError::Refused(text),
    }
}

fn unread(error: ItemReadError) -> StoreError {
    let text = error.to_string();
    match error {
        ItemReadError::ContainerGone => StoreError::Gone(text),
        ItemReadError::Storage(_) | ItemReadError::RangeGone(_) => StoreError::Unavailable(text),
        _ => StoreError::Refused(text),
    }
}

fn odd() -> StoreError {
    StoreError::Unavailable("an answer without the document".to_owned())
}

impl LeaseStore for EmbeddedLeases {
    fn list(&self, prefix: &str) -> BoxFuture<Result<Listing, StoreError>> {
        let (store, prefix) = (self.clone(), prefix.to_owned());
        Box::pin(async move {
            let mut listing = Listing {
                documents: Vec::new(),
                seconds: Some(store.runtime.unix_millis() / 1000),
            };
            let mut after = None;
            loop {
                let scope = ScanScope::Container;
                let page = store.container.scan(&scope, after.as_ref(), PageLimit::DEFAULT).await;
                let page = page.map_err(unread)?;
                let found = page.items.iter().filter_map(|item| store.stored(item));
                listing.documents.extend(found.filter(|stored| stored.key.id.starts_with(&prefix)));
                if page.next.is_none() {
                    return Ok(listing);
                }
                after = page.next;
            }
        })
    }

    fn read(&self, key: &DocumentKey) -> BoxFuture<Result<Option<Stored>, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move {
            let item = store.container.read(store.layout.partition_key(&key), &key.id).await;
            Ok(item.map_err(unread)?.and_then(|item| store.stored(&item)))
        })
    }

    fn create(&self, document: NewDocument) -> BoxFuture<Result<Stored, StoreError>> {
        let store = self.clone();
        let key = self.layout.partition_key(&document.key);
        let write = ItemWrite::create(document.body).partition_key(key);
        Box::pin(async move { store.write(write).await?.ok_or_else(odd) })
    }

    fn replace(
        &self,
        document: NewDocument,
        if_match: &str,
    ) -> BoxFuture<Result<Stored, StoreError>> {
        let store = self.clone();
        let write = ItemWrite::replace(&document.key.id, document.body)
            .partition_key(self.layout.partition_key(&document.key))
            .if_match(if_match);
        Box::pin(async move { store.write(write).await?.ok_or_else(odd) })
    }

    fn delete(&self, key: &DocumentKey, if_match: &str) -> BoxFuture<Result<(), StoreError>> {
        let store = self.clone();
        let write = ItemWrite::delete(self.layout.partition_key(key), &key.id).if_match(if_match);
        Box::pin(async move { store.write(write).await.map(drop) })
    }

    fn atomic(&self, writes: Vec<StoreWrite>) -> BoxFuture<Result<Option<()>, StoreError>> {
        let store = self.clone();
        Box::pin(async move {
            let Some(partition) = super::one_partition(&writes) else { return Ok(None) };
            let key = PartitionKey::from(partition.as_str());
            let operations = writes.into_iter().map(|write| match write {
                StoreWrite::Create(document) => ItemWrite::create(document.body),
                StoreWrite::Replace(document, etag) => {
                    ItemWrite::replace(&document.key.id, document.body).if_match(&etag)
                }
                StoreWrite::Delete(gone, etag) => {
                    ItemWrite::delete(key.clone(), &gone.id).if_match(&etag)
                }
            });
            match store.container.batch(key.clone(), operations.collect()).await {
                Ok(_) => Ok(Some(())),
                Err(failed) => Err(refused(failed.error)),
            }
        })
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn is_kept_in(&self, container: &FeedIdentity) -> bool {
        container.host == EMBEDDED && self.container.rid().to_string() == container.container.rid
    }
}
