//! Leases in a container of a server, ours or Azure's, accessed through a client.

use super::{Layout, LeaseStore, Listing, NewDocument, StoreError, StoreWrite, Stored};
use crate::lease::{Document, DocumentKey};
use crate::namespace::FeedIdentity;
use bytes::Bytes;
use headwater_client::{Batch, ClientError, Container, PageRequest, Precondition, Query, Reason};
use headwater_model::PartitionKey;
use headwater_runtime::BoxFuture;

/// The path the service gives to a container without a partition key.
const SYSTEM_PATH: &str = "/_partitionKey";
/// Page limit of a listing; more pages than this cannot be leases.
const PAGES_MAX: usize = 1000;

/// A lease container. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ContainerLeases {
    container: Container,
    layout: Layout,
    /// The resource id of the container.
    rid: String,
}

impl ContainerLeases {
    /// Opens a container, which must be partitioned by `/id`, by `/partitionKey` or not at all.
    ///
    /// # Errors
    /// Fails if it does not exist or is partitioned by something else.
    pub async fn open(container: Container) -> Result<ContainerLeases, StoreError> {
        let definition = container.definition().await.map_err(|error| match translate(error) {
            // "Not found" refers to the container itself here.
            StoreError::NotFound => StoreError::Gone("there is no such container".to_owned()),
            other => other,
        })?;
        let definition: serde_json::Value = serde_json::from_slice(&definition)
            .map_err(|error| StoreError::Refused(format!("its definition: {error}")))?;
        let layout = layout_of(&definition)?;
        let rid = definition["_rid"].as_str().unwrap_or_default().to_owned();
        Ok(ContainerLeases { container, layout, rid })
    }

    /// Opens a container, or creates it if it does not exist.
    ///
    /// [`Layout::PartitionKey`] keeps all leases of a processor in one partition. The Java libraries need `/id`.
    ///
    /// # Errors
    /// Fails if it can be neither created nor used.
    pub async fn open_or_create(
        container: Container,
        layout: Layout,
        throughput: Option<u32>,
    ) -> Result<ContainerLeases, StoreError> {
        match ContainerLeases::open(container.clone()).await {
            Err(StoreError::Gone(_)) => {}
            other => return other,
        }
        let key = |path| serde_json::json!({ "paths": [path], "kind": "Hash", "version": 2 });
        let key = match layout {
            Layout::Id => key("/id"),
            Layout::PartitionKey => key("/partitionKey"),
            Layout::Unpartitioned => {
                serde_json::json!({ "paths": [SYSTEM_PATH], "kind": "Hash", "systemKey": true })
            }
        };
        let definition = serde_json::json!({
            "id": container.id(),
            "partitionKey": key,
            "defaultTtl": -1,
        });
        let client = container.client();
        let made =
            client.create_container(container.database(), definition.to_string(), throughput).await;
        match made {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => {}
            Err(error) => return Err(translate(error)),
        }
        ContainerLeases::open(container).await
    }

    async fn list_now(&self, prefix: &str) -> Result<Listing, StoreError> {
        let query = Query::new("SELECT * FROM c WHERE STARTSWITH(c.id, @prefix)")
            .parameter("@prefix", prefix);
        match self.pages(&query, &PageRequest::default()).await {
            Err(error) if error.reason() == Some(Reason::QueryNeedsPlan) => {
                let mut all = Listing::default();
                for range in self.container.refresh_ranges().await.map_err(translate)?.iter() {
                    let of_range = PageRequest { range: Some(range.id), ..PageRequest::default() };
                    let part = self.pages(&query, &of_range).await.map_err(translate)?;
                    all.documents.extend(part.documents);
                    // The earliest time, so that no document appears older than it is.
                    all.seconds = [all.seconds, part.seconds].into_iter().flatten().min();
                }
                Ok(all)
            }
            other => other.map_err(translate),
        }
    }

    async fn pages(&self, query: &Query, from: &PageRequest) -> Result<Listing, ClientError> {
        let mut listing = Listing::default();
        let mut request = from.clone();
        for _ in 0..PAGES_MAX {
            let page = self.container.query(query, &request).await?;
            listing.seconds = [listing.seconds, page.date].into_iter().flatten().min();
            listing.documents.extend(page.entries.into_iter().filter_map(|body| self.stored(body)));
            if page.continuation.is_none() {
                break;
            }
            request.continuation = page.continuation;
        }
        Ok(listing)
    }

    fn stored(&self, body: Bytes) -> Option<Stored> {
        let document = Document::parse(&body).ok()?;
        let partition = match self.layout {
            Layout::Id | Layout::Unpartitioned => None,
            Layout::PartitionKey => document.get("partitionKey"),
        };
        let key = DocumentKey { id: document.get("id")?, partition };
        let (etag, seconds) = (document.get("_etag")?, document.get("_ts"));
        Some(Stored { key, body, etag, seconds })
    }

    fn answer(&self, body: Bytes) -> Result<Stored, StoreError> {
        let odd = || StoreError::Unavailable("an answer without the document".to_owned());
        self.stored(body).ok_or_else(odd)
    }
}

/// Returns the layout of a container with this definition.
///
/// For a container created without a partition key, the service reports a system key; under old API versions it
/// reports no key at all.
fn layout_of(definition: &serde_json::Value) -> Result<Layout, StoreError> {
    let key = &definition["partitionKey"];
    if key.is_null() || key["systemKey"] == true {
        return Ok(Layout::Unpartitioned);
    }
    let paths = key["paths"].as_array().into_iter().flatten();
    Layout::of(&paths.filter_map(|path| path.as_str()).collect::<Vec<_>>())
}

fn translate(error: ClientError) -> StoreError {
    let text = error.to_string();
    reason(error.reason(), &error, text)
}

fn reason(reason: Option<Reason>, error: &ClientError, text: String) -> StoreError {
    match reason {
        Some(Reason::AlreadyExists) => StoreError::Conflict,
        Some(Reason::PreconditionFailed) => StoreError::PreconditionFailed,
        Some(Reason::NotFound) => StoreError::NotFound,
        Some(Reason::OwnerNotFound | Reason::ContainerReplaced) => StoreError::Gone(text),
        Some(Reason::Throttled) => {
            let after = match error {
                ClientError::Refused(refusal) => refusal.retry_after,
                _ => None,
            };
            StoreError::Throttled { after }
        }
        Some(Reason::RangeGone) => StoreError::Unavailable(text),
        _ if error.is_passing() => StoreError::Unavailable(text),
        _ => StoreError::Refused(text),
    }
}

impl LeaseStore for ContainerLeases {
    fn list(&self, prefix: &str) -> BoxFuture<Result<Listing, StoreError>> {
        let (store, prefix) = (self.clone(), prefix.to_owned());
        Box::pin(async move { store.list_now(&prefix).await })
    }

    fn read(&self, key: &DocumentKey) -> BoxFuture<Result<Option<Stored>, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move {
            let read = store.container.read(&store.layout.partition_key(&key), &key.id).await;
            match read.map_err(translate)? {
                None => Ok(None),
                Some(found) => Ok(Some(store.answer(found.body)?)),
            }
        })
    }

    fn create(&self, document: NewDocument) -> BoxFuture<Result<Stored, StoreError>> {
        let store = self.clone();
        Box::pin(async move {
            let key = store.layout.partition_key(&document.key);
            let made = store.container.create(&key, document.body).await.map_err(translate)?;
            store.answer(made.body)
        })
    }

    fn replace(
        &self,
        document: NewDocument,
        if_match: &str,
    ) -> BoxFuture<Result<Stored, StoreError>> {
        let (store, condition) = (self.clone(), Precondition::IfMatch(if_match.to_owned()));
        Box::pin(async move {
            let key = store.layout.partition_key(&document.key);
            let written =
                store.container.replace(&key, &document.key.id, document.body, &condition).await;
            store.answer(written.map_err(translate)?.body)
        })
    }

    fn delete(&self, key: &DocumentKey, if_match: &str) -> BoxFuture<Result<(), StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        let condition = Precondition::IfMatch(if_match.to_owned());
        Box::pin(async move {
            let partition = store.layout.partition_key(&key);
            store.container.delete(&partition, &key.id, &condition).await.map_err(translate)
        })
    }

    fn atomic(&self, writes: Vec<StoreWrite>) -> BoxFuture<Result<Option<()>, StoreError>> {
        let store = self.clone();
        Box::pin(async move {
            let Some(partition) = super::one_partition(&writes) else { return Ok(None) };
            let mut batch = Batch::new(PartitionKey::from(partition.as_str()));
            for write in &writes {
                batch = match write {
                    StoreWrite::Create(document) => batch.create(&document.body),
                    StoreWrite::Replace(document, etag) => {
                        batch.replace(&document.key.id, &document.body, Some(etag))
                    }
                    StoreWrite::Delete(key, etag) => batch.delete(&key.id, Some(etag)),
                };
            }
            let outcome = store.container.batch(batch).await.map_err(translate)?;
            if outcome.committed {
                return Ok(Some(()));
            }
            let failed = outcome.operations.iter().find_map(|operation| {
                operation.failed.filter(|reason| *reason != Reason::FailedDependency)
            });
            Err(match failed {
                Some(Reason::AlreadyExists) => StoreError::Conflict,
                Some(Reason::PreconditionFailed) => StoreError::PreconditionFailed,
                Some(Reason::NotFound) => StoreError::NotFound,
                other => StoreError::Unavailable(format!("a batch failed: {other:?}")),
            })
        })
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn is_kept_in(&self, container: &FeedIdentity) -> bool {
        let host = self.container.client().endpoint().host();
        !self.rid.is_empty() && self.rid == container.container.rid && host == container.host
    }
}
