//! The durable index, on fjall.

use super::{Batch, Index, IndexView, doubt};
use crate::error::StorageError;
use crate::keys::Value;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};
use parking_lot::RwLock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Blocks of the index kept in memory.
const CACHE_BYTES: u64 = 16 << 20;
/// Rows collected in memory before they are written to a table.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// Tells the next open that the index is not to be trusted.
const DOUBT: &str = "DOUBTED";

pub(crate) struct FjallIndex {
    /// `None` once it is closed: a handle somebody kept must not keep the files locked.
    open: RwLock<Option<Open>>,
    dir: PathBuf,
}

#[derive(Clone)]
struct Open {
    database: Database,
    rows: Keyspace,
}

impl std::fmt::Debug for FjallIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallIndex").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl FjallIndex {
    /// Opens the index, or starts an empty one in its place when it is missing or damaged. The caller
    /// notices an empty index by its missing partition rows and applies the log again.
    pub(crate) fn open(dir: &Path) -> Result<FjallIndex, StorageError> {
        let io = |error: std::io::Error| StorageError::Index(error.to_string());
        let doubted = dir.join(DOUBT).exists().then_some("it failed when it was last open");
        let reason = match doubted.or(doubt::reason(dir).map_err(io)?) {
            Some(reason) => reason.to_owned(),
            // The engine asserts some of what it reads; a flipped bit must not end the process.
            None => match catch_unwind(AssertUnwindSafe(|| FjallIndex::try_open(dir))) {
                Ok(Ok(index)) => return Ok(index),
                Ok(Err(fjall::Error::Locked)) => {
                    let what = "it is still open elsewhere; close the other store first";
                    return Err(StorageError::Index(what.to_owned()));
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "its engine panicked".to_owned(),
            },
        };
        tracing::warn!(dir = %dir.display(), reason, "index damaged, rebuilt from the log");
        std::fs::remove_dir_all(dir).map_err(io)?;
        FjallIndex::try_open(dir).map_err(|error| StorageError::Index(error.to_string()))
    }

    fn try_open(dir: &Path) -> fjall::Result<FjallIndex> {
        let database = Database::builder(dir)
            .cache_size(CACHE_BYTES)
            .worker_threads(1)
            .max_journaling_size(64 << 20)
            .open()?;
        let rows = database.keyspace("rows", || {
            KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES)
        })?;
        let open = RwLock::new(Some(Open { database, rows }));
        Ok(FjallIndex { open, dir: dir.to_owned() })
    }

    fn opened(&self) -> Result<Open, StorageError> {
        self.open.read().clone().ok_or(StorageError::Closed)
    }
}

/// A failing index must not be believed after the next open either.
fn failed(dir: &Path, error: &dyn std::fmt::Display) -> StorageError {
    tracing::error!(dir = %dir.display(), %error, "index failed; it is rebuilt at the next open");
    let _ = std::fs::write(dir.join(DOUBT), b"");
    StorageError::Index(error.to_string())
}

fn visit_rows(
    dir: &Path,
    rows: impl Iterator<Item = fjall::Guard>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), StorageError> {
    for row in rows {
        let (key, value) = row.into_inner().map_err(|error| failed(dir, &error))?;
        if !visit(&key, &value) {
            break;
        }
    }
    Ok(())
}

/// The rows at one moment.
struct FjallView {
    snapshot: Snapshot,
    rows: Keyspace,
    dir: PathBuf,
}

impl IndexView for FjallView {
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError> {
        if from >= to {
            return Ok(());
        }
        visit_rows(&self.dir, self.snapshot.range(&self.rows, from..to), visit)
    }
}

impl IndexView for FjallIndex {
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError> {
        if from >= to {
            return Ok(());
        }
        visit_rows(&self.dir, self.opened()?.rows.range(from..to), visit)
    }
}

impl Index for FjallIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StorageError> {
        let open = self.open.read();
        let open = open.as_ref().ok_or(StorageError::Closed)?;
        let row = open.rows.get(key).map_err(|error| failed(&self.dir, &error))?;
        Ok(row.map(|value| Value::from_slice(&value)))
    }

    fn view(&self) -> Result<Arc<dyn IndexView>, StorageError> {
        let Open { database, rows } = self.opened()?;
        Ok(Arc::new(FjallView { snapshot: database.snapshot(), rows, dir: self.dir.clone() }))
    }

    fn write(&self, batch: Batch) -> Result<(), StorageError> {
        let open = self.open.read();
        let open = open.as_ref().ok_or(StorageError::Closed)?;
        let mut rows = open.database.batch();
        for (key, value) in &batch.changes {
            match value {
                Some(value) => rows.insert(&open.rows, &key[..], &value[..]),
                None => rows.remove(&open.rows, &key[..]),
            }
        }
        rows.commit().map_err(|error| failed(&self.dir, &error))
    }

    fn doubt(&self, what: &str) -> StorageError {
        failed(&self.dir, &what)
    }

    fn close(&self) -> Result<(), StorageError> {
        let Some(open) = self.open.write().take() else {
            return Ok(());
        };
        open.database.persist(PersistMode::SyncAll).map_err(|error| failed(&self.dir, &error))
    }
}
