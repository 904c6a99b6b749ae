//! The durable index, on fjall.
//!
//! Its engine keeps the newest rows in memory and in a journal, which it reads again when it is opened:
//! half a million rows, and half a second, at worst. So a clean close has all rows written to tables and
//! leaves an empty journal behind. After anything else the journal is read, and the log knows the rest.

use super::{Batch, Index, IndexView, doubt};
use crate::error::StorageError;
use crate::keys::{self, Value};
use fjall::config::{PartitioningPolicy, PinningPolicy};
use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot,
};
use parking_lot::RwLock;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Blocks of the index kept in memory.
const CACHE_BYTES: u64 = 16 << 20;
/// Rows collected in memory before they are written to a table.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// A journal that is read again in no time is left as it is.
const JOURNAL_BYTES_KEPT: u64 = 256 << 10;
/// Bytes of a row in the journal beside its key and value.
const JOURNAL_ROW_BYTES: u64 = 21;
/// How often a close looks whether all rows are in tables, and how many times at most.
const LOOKS: (Duration, u32) = (Duration::from_millis(2), 5_000);
/// Tells the next open that the index is not to be trusted.
const DOUBT: &str = "DOUBTED";

pub(crate) struct FjallIndex {
    /// `None` once it is closed: a handle somebody kept must not keep the files locked.
    open: RwLock<Option<Open>>,
    dir: PathBuf,
    /// About as much as the next open would have to read.
    journal_bytes: AtomicU64,
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
        let doubted =
            doubted.or(is_of_another_layout(dir).then_some("its rows lie as in another version"));
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
        tracing::warn!(dir = %dir.display(), reason, "the index is not believed and rebuilt from the log");
        std::fs::remove_dir_all(dir).map_err(io)?;
        FjallIndex::try_open(dir).map_err(|error| StorageError::Index(error.to_string()))
    }

    fn try_open(dir: &Path) -> fjall::Result<FjallIndex> {
        // A new journal has room made in it; one that was read again is as long as what was read.
        let known = !doubt::journals(dir).unwrap_or_default().is_empty();
        let database = Database::builder(dir)
            .cache_size(CACHE_BYTES)
            .worker_threads(1)
            .max_journaling_size(64 << 20)
            .open()?;
        let rows = database.keyspace("rows", row_options)?;
        std::fs::write(dir.join(layout_file()), b"")?;
        let open = RwLock::new(Some(Open { database, rows }));
        let journals = if known { doubt::journals(dir).unwrap_or_default() } else { Vec::new() };
        let lengths = journals.iter().filter_map(|path| Some(path.metadata().ok()?.len()));
        let journal_bytes = AtomicU64::new(lengths.sum());
        Ok(FjallIndex { open, dir: dir.to_owned(), journal_bytes })
    }

    fn opened(&self) -> Result<Open, StorageError> {
        self.open.read().clone().ok_or(StorageError::Closed)
    }
}

/// How rows are kept.
///
/// A filter says at once that a new item is not there yet, and is asked at every write. Its 10 bits per row
/// stay in memory: as one block of a megabyte for each table, they would push each other out of the cache
/// as soon as there are ten million rows, and every write would read some of them again. Where in a table
/// a row is, is looked up in small pieces for the same reason.
fn row_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(MEMTABLE_BYTES)
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::new([false, false, true]))
}

/// Has every row written to tables. False when that does not happen for whatever reason: then the journal
/// still has them.
fn write_tables(rows: &Keyspace) -> bool {
    let is_done = || rows.tree.get_highest_memtable_seqno().is_none();
    if !is_done() && rows.rotate_memtable().is_err() {
        return false;
    }
    let (pause, looks) = LOOKS;
    for _ in 0..looks {
        if is_done() {
            return true;
        }
        // The engine's own wait does not end if its worker has.
        std::thread::park_timeout(pause);
    }
    false
}

/// Empties the journal, whose rows are all in tables. It must stay there: see `doubt`.
fn empty_journal(dir: &Path) -> std::io::Result<()> {
    // Older ones are the engine's to remove.
    if let [journal] = &doubt::journals(dir)?[..] {
        let file = File::options().write(true).open(journal)?;
        file.set_len(0)?;
        file.sync_all()?;
    }
    Ok(())
}

/// The name of the file that tells how rows lie.
fn layout_file() -> String {
    format!("LAYOUT-{}", keys::LAYOUT)
}

/// Whether there are rows that must not be read.
fn is_of_another_layout(dir: &Path) -> bool {
    dir.join("keyspaces").exists() && !dir.join(layout_file()).exists()
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

    fn write(&self, batch: &Batch) -> Result<(), StorageError> {
        let open = self.open.read();
        let open = open.as_ref().ok_or(StorageError::Closed)?;
        let mut rows = open.database.batch();
        let mut bytes = 0;
        for (key, value) in &batch.changes {
            let value_bytes = value.as_ref().map_or(0, |value| value.len());
            bytes += JOURNAL_ROW_BYTES + (key.len() + value_bytes) as u64;
            match value {
                Some(value) => rows.insert(&open.rows, &key[..], &value[..]),
                None => rows.remove(&open.rows, &key[..]),
            }
        }
        self.journal_bytes.fetch_add(bytes, Ordering::Relaxed);
        rows.commit().map_err(|error| failed(&self.dir, &error))
    }

    fn doubt(&self, what: &str) -> StorageError {
        failed(&self.dir, &what)
    }

    fn close(&self) -> Result<(), StorageError> {
        let Some(open) = self.open.write().take() else {
            return Ok(());
        };
        open.database.persist(PersistMode::SyncAll).map_err(|error| failed(&self.dir, &error))?;
        if self.journal_bytes.load(Ordering::Relaxed) <= JOURNAL_BYTES_KEPT {
            return Ok(());
        }
        let written = write_tables(&open.rows);
        drop(open);
        if !written {
            tracing::warn!(dir = %self.dir.display(), "index not written to tables; the next start takes longer");
            return Ok(());
        }
        empty_journal(&self.dir).map_err(|error| failed(&self.dir, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Key;

    fn rows(from: u32, to: u32, version: u8) -> Batch {
        let mut batch = Batch::default();
        for number in from..to {
            batch.put(Key::from_slice(&number.to_be_bytes()), Value::from_slice(&[version; 40]));
        }
        batch
    }

    fn journal_bytes(dir: &Path) -> u64 {
        let journals = doubt::journals(dir).unwrap();
        journals.iter().map(|path| path.metadata().unwrap().len()).sum()
    }

    #[test]
    fn rows_of_another_layout_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let index = FjallIndex::open(dir.path()).unwrap();
        index.write(&rows(0, 10, 1)).unwrap();
        index.close().unwrap();
        let index = FjallIndex::open(dir.path()).unwrap();
        assert!(index.get(&7_u32.to_be_bytes()).unwrap().is_some());
        index.close().unwrap();
        std::fs::rename(dir.path().join(layout_file()), dir.path().join("LAYOUT-1")).unwrap();
        let index = FjallIndex::open(dir.path()).unwrap();
        assert_eq!(index.get(&7_u32.to_be_bytes()).unwrap(), None);
    }

    #[test]
    fn a_clean_close_leaves_no_journal_to_read_and_later_rows_win() {
        let dir = tempfile::tempdir().unwrap();
        for version in 1..=4 {
            let index = FjallIndex::open(dir.path()).unwrap();
            let before = index.get(&7_u32.to_be_bytes()).unwrap();
            let expected = (version > 1).then(|| Value::from_slice(&[version - 1; 40]));
            assert_eq!(before, expected, "what the last one wrote");
            index.write(&rows(0, 10_000, version)).unwrap();
            index.close().unwrap();
            assert_eq!(journal_bytes(dir.path()), 0, "version {version}");
            assert_eq!(doubt::reason(dir.path()).unwrap(), None);
        }
        // Few rows stay in the journal, behind those in tables.
        let index = FjallIndex::open(dir.path()).unwrap();
        index.write(&rows(7, 8, 5)).unwrap();
        index.close().unwrap();
        assert!(journal_bytes(dir.path()) > 0);
        let index = FjallIndex::open(dir.path()).unwrap();
        for (number, version) in [(6_u32, 4), (7, 5), (8, 4)] {
            let row = index.get(&number.to_be_bytes()).unwrap();
            assert_eq!(row, Some(Value::from_slice(&[version; 40])), "row {number}");
        }
    }
}
