//! The index: ordered rows derived from the log, behind a narrow trait.
//!
//! The index is a cache of the log and needs no sync of its own. The LSN up to which a partition was applied
//! is in the same batch as the rows, and entries missing after a crash are applied again. An index that is
//! lost or fails is rebuilt. [`MemoryIndex`] serves ephemeral stores and is the model for tests of the
//! durable one.

mod doubt;
mod fjall;
mod generation;
mod memory;
mod memtable;

use crate::error::StorageError;
use crate::keys::{Key, Value};
use headwater_runtime::Listener;
use std::any::Any;
use std::sync::Arc;

pub(crate) use fjall::FjallIndex;
pub(crate) use generation::{INDEX, doubt_files, is_doubted, is_index};
pub use memory::MemoryIndex;

/// Rows to put and keys to remove, applied atomically.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) changes: Vec<(Key, Option<Value>)>,
}

impl Batch {
    pub(crate) fn put(&mut self, key: Key, value: Value) {
        self.changes.push((key, Some(value)));
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.changes.push((key, None));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Estimated memory of an index, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexMemory {
    /// Block cache.
    pub(crate) cache_bytes: u64,
    /// Filters and block indexes of tables, which stay in memory.
    pub(crate) table_bytes: u64,
    /// Rows that are not in tables yet.
    pub(crate) row_bytes: u64,
}

/// Read access to ordered rows.
pub(crate) trait IndexView: Send + Sync + 'static {
    /// Visits the rows from `from` (included) to `to` (excluded), in order, until `visit` returns false.
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError>;
}

/// An index of ordered rows.
pub(crate) trait Index: IndexView + Any + std::fmt::Debug {
    /// Reads one row.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StorageError>;

    /// A snapshot of all rows.
    fn view(&self) -> Result<Arc<dyn IndexView>, StorageError>;

    /// A snapshot of the rows from `from` (included) to `to` (excluded). Copies no other rows from memory.
    fn view_between(&self, from: &[u8], to: &[u8]) -> Result<Arc<dyn IndexView>, StorageError>;

    /// Applies a batch atomically: no reader sees half of it, no crash leaves half of it.
    fn write(&self, batch: &Batch) -> Result<(), StorageError>;

    /// Makes all rows written so far durable, so that the next open need not read them from the log.
    ///
    /// # Errors
    /// When the rows cannot be written. No data is lost.
    fn settle(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Reports malformed rows and returns the error. A durable index is then rebuilt.
    fn doubt(&self, what: &str) -> StorageError {
        StorageError::Index(what.to_owned())
    }

    /// The memory the index uses.
    fn memory(&self) -> IndexMemory;

    /// A listener for failures; `None` if the index cannot fail.
    fn failures(&self) -> Option<Listener> {
        None
    }

    /// Whether the index has failed and must be rebuilt.
    fn has_failed(&self) -> bool {
        false
    }

    /// Creates an empty index that can replace this one.
    fn successor(&self) -> Result<Arc<dyn Index>, StorageError> {
        Err(StorageError::Index("an index in memory has no successor".to_owned()))
    }

    /// Replaces the rows by those of a successor. The caller has paused all writers.
    fn replace_by(&self, _successor: Arc<dyn Index>) -> Result<(), StorageError> {
        Err(StorageError::Index("an index in memory has no successor".to_owned()))
    }

    /// Makes all rows durable and closes the files.
    fn close(&self) -> Result<(), StorageError>;
}

/// Removes every row in a range, in bounded batches.
pub(crate) fn remove_range(index: &dyn Index, from: &[u8], to: &[u8]) -> Result<(), StorageError> {
    const ROWS_AT_ONCE: usize = 4_096;
    loop {
        let mut batch = Batch::default();
        index.scan(from, to, &mut |key, _| {
            batch.remove(Key::from_slice(key));
            batch.changes.len() < ROWS_AT_ONCE
        })?;
        if batch.is_empty() {
            return Ok(());
        }
        index.write(&batch)?;
    }
}
