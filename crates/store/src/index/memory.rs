//! The index in memory, with an optional undo history for simulated crashes. Writes no file.

use super::{Batch, Index, IndexMemory, IndexView};
use crate::error::StorageError;
use crate::keys::{Key, Value};
use headwater_runtime::Random;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An index in memory. Clones share the same rows.
#[derive(Clone, Debug, Default)]
pub struct MemoryIndex(Arc<RwLock<State>>);

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<Key, Value>,
    /// The previous values of each batch since the last `settle`, the oldest first; only for simulated crashes.
    undo: Option<Vec<Batch>>,
}

impl MemoryIndex {
    /// Creates an empty index that can simulate crashes.
    #[must_use]
    pub fn with_history() -> MemoryIndex {
        let state = State { undo: Some(Vec::new()), ..State::default() };
        MemoryIndex(Arc::new(RwLock::new(state)))
    }

    /// Undoes a random number of the newest batches, like a crash of an index that was not synced.
    pub fn crash(&self, random: &mut Random) {
        let mut state = self.0.write();
        let Some(mut undo) = state.undo.take() else {
            return;
        };
        let keep = random.index(undo.len() + 1);
        for batch in undo.drain(keep..).rev() {
            for (key, before) in batch.changes.into_iter().rev() {
                match before {
                    Some(value) => state.rows.insert(key, value),
                    None => state.rows.remove(&key),
                };
            }
        }
        state.undo = Some(undo);
    }

    /// Copies all rows to another index that can simulate crashes.
    #[must_use]
    pub fn fork(&self) -> MemoryIndex {
        let state = State { rows: self.0.read().rows.clone(), undo: Some(Vec::new()) };
        MemoryIndex(Arc::new(RwLock::new(state)))
    }

    /// Removes all rows.
    pub fn clear(&self) {
        let mut state = self.0.write();
        state.rows.clear();
        if let Some(undo) = &mut state.undo {
            undo.clear();
        }
    }

    /// The number of rows.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.0.read().rows.len()
    }
}

impl IndexView for MemoryIndex {
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError> {
        if from >= to {
            return Ok(());
        }
        let state = self.0.read();
        let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(to));
        for (key, value) in state.rows.range::<[u8], _>(bounds) {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

impl Index for MemoryIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StorageError> {
        Ok(self.0.read().rows.get(key).cloned())
    }

    fn view(&self) -> Result<Arc<dyn IndexView>, StorageError> {
        let rows = self.0.read().rows.clone();
        let state = State { rows, undo: None };
        Ok(Arc::new(MemoryIndex(Arc::new(RwLock::new(state)))))
    }

    fn view_between(&self, from: &[u8], to: &[u8]) -> Result<Arc<dyn IndexView>, StorageError> {
        let mut rows = BTreeMap::new();
        self.scan(from, to, &mut |key, value| {
            rows.insert(Key::from_slice(key), Value::from_slice(value));
            true
        })?;
        let state = State { rows, undo: None };
        Ok(Arc::new(MemoryIndex(Arc::new(RwLock::new(state)))))
    }

    fn write(&self, batch: &Batch) -> Result<(), StorageError> {
        let mut state = self.0.write();
        let mut before = Batch::default();
        let keep_history = state.undo.is_some();
        for (key, value) in &batch.changes {
            let replaced = match value {
                Some(value) => state.rows.insert(key.clone(), value.clone()),
                None => state.rows.remove(key),
            };
            if keep_history {
                before.changes.push((key.clone(), replaced));
            }
        }
        if let Some(undo) = &mut state.undo {
            undo.push(before);
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), StorageError> {
        if let Some(undo) = &mut self.0.write().undo {
            undo.clear();
        }
        Ok(())
    }

    fn memory(&self) -> IndexMemory {
        let row_bytes = self.row_count() * size_of::<(Key, Value)>() * 3 / 2;
        IndexMemory { row_bytes: row_bytes as u64, ..IndexMemory::default() }
    }

    fn close(&self) -> Result<(), StorageError> {
        self.settle()
    }
}
