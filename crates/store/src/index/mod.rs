//! The index: ordered rows derived from the log, behind a narrow trait.
//!
//! The index is a cache of the log. It needs no sync of its own: the LSN up to which a partition was
//! applied is written in the same batch as the effects, and what is missing after a crash is applied
//! again. If it is lost or fails, it is rebuilt. [`MemoryIndex`] serves ephemeral stores and is
//! the model the durable one is tested against.

mod doubt;
mod fjall;
mod front;
mod generation;
mod memory;

use crate::error::StorageError;
use crate::keys::{Key, Value};
use headwater_runtime::Listener;
use std::any::Any;
use std::sync::Arc;

pub(crate) use fjall::FjallIndex;
pub(crate) use generation::{INDEX, doubt_files, is_doubted, is_index};
pub use memory::MemoryIndex;

/// Rows to put and keys to remove, all or nothing.
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

/// Memory an index uses, in bytes, estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexMemory {
    /// Blocks of tables that were read.
    pub(crate) cache_bytes: u64,
    /// Filters and indexes of tables.
    pub(crate) table_bytes: u64,
    /// Rows that are not in tables.
    pub(crate) row_bytes: u64,
}

/// Ordered rows to read.
pub(crate) trait IndexView: Send + Sync + 'static {
    /// Rows from `from` (included) to `to` (excluded), in order, until `visit` returns false.
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError>;
}

/// Ordered rows.
pub(crate) trait Index: IndexView + Any + std::fmt::Debug {
    /// One row.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StorageError>;

    /// The rows as they are now, whatever is written later.
    fn view(&self) -> Result<Arc<dyn IndexView>, StorageError>;

    /// The same, of the rows from `from` (included) to `to` (excluded) only: copies none of the others.
    fn view_between(&self, from: &[u8], to: &[u8]) -> Result<Arc<dyn IndexView>, StorageError>;

    /// Applies a batch as a whole: no reader sees half of it, no crash leaves half of it.
    fn write(&self, batch: &Batch) -> Result<(), StorageError>;

    /// Makes everything that was written so far durable, so that the next open need not find it in the log.
    ///
    /// # Errors
    /// When it cannot be written; nothing is lost by that.
    fn settle(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// The error for rows that make no sense. The index is rebuilt.
    fn doubt(&self, what: &str) -> StorageError {
        StorageError::Index(what.to_owned())
    }

    /// Memory it uses.
    fn memory(&self) -> IndexMemory;

    /// Rings when the index may have failed; `None` if it cannot fail.
    fn failures(&self) -> Option<Listener> {
        None
    }

    /// Whether the index has failed and must be rebuilt.
    fn has_failed(&self) -> bool {
        false
    }

    /// An empty index that can replace this one.
    fn successor(&self) -> Result<Arc<dyn Index>, StorageError> {
        Err(StorageError::Index("an index in memory has no successor".to_owned()))
    }

    /// Uses the rows of a successor instead of its own. The caller keeps all writers away.
    fn replace_by(&self, _successor: Arc<dyn Index>) -> Result<(), StorageError> {
        Err(StorageError::Index("an index in memory has no successor".to_owned()))
    }

    /// Makes everything durable and lets go of the files.
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
