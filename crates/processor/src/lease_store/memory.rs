//! Leases in memory, for tests and for one host that needs no lease container.

use super::{Layout, LeaseStore, Listing, NewDocument, StoreError, StoreWrite, Stored};
use crate::lease::DocumentKey;
use headwater_runtime::{BoxFuture, Runtime};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Documents in memory. Clones share the store.
#[derive(Clone)]
pub struct MemoryLeases {
    state: Arc<Mutex<State>>,
    runtime: Runtime,
    layout: Layout,
}

#[derive(Default)]
struct State {
    version: u64,
    gone: bool,
    documents: BTreeMap<DocumentKey, Stored>,
}

impl MemoryLeases {
    /// Creates an empty store.
    #[must_use]
    pub fn new(runtime: Runtime) -> MemoryLeases {
        MemoryLeases::with_layout(runtime, Layout::PartitionKey)
    }

    /// Creates an empty store with this layout.
    #[must_use]
    pub fn with_layout(runtime: Runtime, layout: Layout) -> MemoryLeases {
        MemoryLeases { state: Arc::default(), runtime, layout }
    }

    /// Returns every document, for saving elsewhere.
    #[must_use]
    pub fn export(&self) -> Vec<Stored> {
        self.state.lock().documents.values().cloned().collect()
    }

    /// Restores exported documents.
    pub fn import(&self, documents: Vec<Stored>) {
        let mut state = self.state.lock();
        for document in documents {
            state.version += 1;
            let etag = state.version.to_string();
            state.documents.insert(document.key.clone(), Stored { etag, ..document });
        }
    }

    /// Deletes everything and answers as a missing container, until called with `false`.
    pub fn set_gone(&self, gone: bool) {
        let mut state = self.state.lock();
        state.gone = gone;
        if gone {
            state.documents.clear();
        }
    }

    fn seconds(&self) -> u64 {
        self.runtime.unix_millis() / 1000
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut State) -> Result<T, StoreError>,
    ) -> BoxFuture<Result<T, StoreError>>
    where
        T: Send + 'static,
    {
        let mut state = self.state.lock();
        let gone = state.gone.then(|| StoreError::Gone("it was deleted".to_owned()));
        let result = gone.map_or_else(|| work(&mut state), Err);
        Box::pin(async move { result })
    }

    fn put(&self, state: &mut State, document: NewDocument) -> Stored {
        state.version += 1;
        let stored = Stored {
            key: document.key.clone(),
            body: document.body,
            etag: format!("\"{}\"", state.version),
            seconds: Some(self.seconds()),
        };
        state.documents.insert(document.key, stored.clone());
        stored
    }
}

impl State {
    fn check(&self, key: &DocumentKey, if_match: &str) -> Result<(), StoreError> {
        match self.documents.get(key) {
            None => Err(StoreError::NotFound),
            Some(stored) if stored.etag != if_match => Err(StoreError::PreconditionFailed),
            Some(_) => Ok(()),
        }
    }

    fn check_absent(&self, key: &DocumentKey) -> Result<(), StoreError> {
        if self.documents.contains_key(key) { Err(StoreError::Conflict) } else { Ok(()) }
    }
}

impl LeaseStore for MemoryLeases {
    fn list(&self, prefix: &str) -> BoxFuture<Result<Listing, StoreError>> {
        let seconds = Some(self.seconds());
        self.with(|state| {
            let listed = |stored: &&Stored| stored.key.id.starts_with(prefix);
            let documents = state.documents.values().filter(listed).cloned().collect();
            Ok(Listing { documents, seconds })
        })
    }

    fn read(&self, key: &DocumentKey) -> BoxFuture<Result<Option<Stored>, StoreError>> {
        self.with(|state| Ok(state.documents.get(key).cloned()))
    }

    fn create(&self, document: NewDocument) -> BoxFuture<Result<Stored, StoreError>> {
        self.with(|state| {
            state.check_absent(&document.key)?;
            Ok(self.put(state, document))
        })
    }

    fn replace(
        &self,
        document: NewDocument,
        if_match: &str,
    ) -> BoxFuture<Result<Stored, StoreError>> {
        self.with(|state| {
            state.check(&document.key, if_match)?;
            Ok(self.put(state, document))
        })
    }

    fn delete(&self, key: &DocumentKey, if_match: &str) -> BoxFuture<Result<(), StoreError>> {
        self.with(|state| {
            state.check(key, if_match)?;
            state.documents.remove(key);
            Ok(())
        })
    }

    fn atomic(&self, writes: Vec<StoreWrite>) -> BoxFuture<Result<Option<()>, StoreError>> {
        if super::one_partition(&writes).is_none() {
            return Box::pin(async { Ok(None) });
        }
        self.with(|state| {
            for write in &writes {
                match write {
                    StoreWrite::Create(document) => state.check_absent(&document.key)?,
                    StoreWrite::Replace(document, etag) => state.check(&document.key, etag)?,
                    StoreWrite::Delete(key, etag) => state.check(key, etag)?,
                }
            }
            for write in writes {
                match write {
                    StoreWrite::Create(document) | StoreWrite::Replace(document, _) => {
                        drop(self.put(state, document));
                    }
                    StoreWrite::Delete(key, _) => drop(state.documents.remove(&key)),
                }
            }
            Ok(Some(()))
        })
    }

    fn layout(&self) -> Layout {
        self.layout
    }
}
