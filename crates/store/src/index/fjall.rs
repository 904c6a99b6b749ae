//! The durable index: the newest rows in memory, all others in tables of fjall.
//!
//! The engine has a memory and a journal of its own for new rows, and we use neither. The log is a journal
//! already, and rows that are on their way need no versions: a tree of them is found and filled in a
//! fraction of the time. When it has grown enough, its rows are given to the engine in order, as tables.
//! What a crash takes with it is applied from the log again.

use super::front::{Front, Rows};
use super::generation::{self, Generation};
use super::{Batch, Index, IndexMemory, IndexView, doubt};
use crate::error::StorageError;
use crate::keys::{self, Key, Value};
use crate::quarantine::is_about_one_file;
use fjall::config::{PartitioningPolicy, PinningPolicy};
use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode, Readable,
    Snapshot,
};
use headwater_runtime::{Bell, Listener, Runtime, TaskFailure};
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::iter::Peekable;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Blocks of the index kept in memory.
const CACHE_BYTES: u64 = 16 << 20;
/// Rows collected in memory before they are written to a table.
const YOUNG_BYTES: usize = 16 << 20;
/// Rows in memory that a scan takes at once.
const ROWS_AT_ONCE: usize = 128;
/// Tables of new rows that the engine has not merged yet; beyond that rows wait for it, as every look-up
/// would have to ask each of them.
const UNMERGED_TABLES_MAX: usize = 16;
/// How long they wait at a time, and how many times at most.
const PAUSES: (Duration, u32) = (Duration::from_millis(2), 5_000);

#[derive(Debug)]
pub(crate) struct FjallIndex {
    shared: Arc<Shared>,
    runtime: Runtime,
}

struct Shared {
    /// `None` once it is closed: a handle somebody kept must not keep the files locked.
    open: RwLock<Option<Open>>,
    front: RwLock<Front>,
    /// Held while rows are written to tables.
    settling: Mutex<()>,
    young_bytes_max: usize,
    failures: Bell,
}

#[derive(Clone)]
struct Open {
    database: Database,
    rows: Keyspace,
    /// Dropped last: it may remove the files.
    generation: Arc<Generation>,
}

impl Open {
    /// The error for a caller. Damage has the index rebuilt; a full disk does not.
    fn failed(&self, error: &fjall::Error) -> StorageError {
        failed(&self.generation, error)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallIndex").finish_non_exhaustive()
    }
}

impl FjallIndex {
    /// Opens the index, or starts an empty one in its place when it is missing or damaged. The caller
    /// notices an empty index by its missing partition rows and applies the log again.
    pub(crate) fn open(dir: &Path, runtime: Runtime) -> Result<FjallIndex, StorageError> {
        FjallIndex::open_with(dir, runtime, YOUNG_BYTES)
    }

    fn open_with(
        dir: &Path,
        runtime: Runtime,
        young_bytes_max: usize,
    ) -> Result<FjallIndex, StorageError> {
        let failures = Bell::default();
        let open = open_engine(dir, failures.clone())?;
        Ok(FjallIndex::with(open, runtime, young_bytes_max, failures))
    }

    fn with(open: Open, runtime: Runtime, young_bytes_max: usize, failures: Bell) -> FjallIndex {
        let shared = Shared {
            open: RwLock::new(Some(open)),
            front: RwLock::default(),
            settling: Mutex::default(),
            young_bytes_max,
            failures,
        };
        FjallIndex { shared: Arc::new(shared), runtime }
    }

    /// Lets the rows in memory go on to tables, elsewhere. Where tables are made more slowly than rows are
    /// written, whoever writes waits.
    fn make_room(&self) -> Result<(), StorageError> {
        let (has_begun, is_crowded) = {
            let mut front = self.shared.front.write();
            (front.freeze(), front.young_bytes() >= 2 * self.shared.young_bytes_max)
        };
        if has_begun {
            let (shared, runtime) = (self.shared.clone(), self.runtime.clone());
            let settled = async move {
                if let Err(error) = runtime.blocking(|| shared.settle_frozen()) {
                    tracing::warn!(%error, "rows of the index stay in memory; tried again with the next");
                }
            };
            let shared = self.shared.clone();
            self.runtime
                .spawn_watched("rows to tables", settled, move |ended| shared.note_end(ended));
        } else if is_crowded {
            self.runtime.blocking(|| self.shared.settle_frozen())?;
        }
        Ok(())
    }
}

impl Shared {
    fn opened(&self) -> Result<Open, StorageError> {
        self.open.read().clone().ok_or(StorageError::Closed)
    }

    /// Has the index rebuilt when the task that writes tables panicked: what is in them is not known.
    fn note_end(&self, ended: Result<(), TaskFailure>) {
        if let (Err(failure), Ok(open)) = (ended, self.opened()) {
            let _ = open.generation.fail(&failure);
        }
    }

    fn settle_frozen(&self) -> Result<(), StorageError> {
        let _settling = self.settling.lock();
        let frozen = self.front.read().frozen();
        match frozen {
            Some(rows) => self.write_tables(&self.opened()?, &rows),
            None => Ok(()),
        }
    }

    /// Writes rows to tables, all or none. Whoever asks for them finds them in memory until they are there.
    fn write_tables(&self, open: &Open, rows: &Rows) -> Result<(), StorageError> {
        let written = || {
            let (pause, pauses) = PAUSES;
            for _ in 0..pauses {
                if open.rows.l0_table_count() < UNMERGED_TABLES_MAX {
                    break;
                }
                // Fails when the engine stopped merging because of an error.
                open.database.persist(PersistMode::Buffer)?;
                std::thread::park_timeout(pause);
            }
            let mut tables = open.rows.start_ingestion()?;
            for (key, value) in rows {
                match value {
                    Some(value) => tables.write(&key[..], &value[..])?,
                    None => tables.write_tombstone(&key[..])?,
                }
            }
            tables.finish()
        };
        written().map_err(|error: fjall::Error| open.failed(&error))?;
        self.front.write().forget_frozen();
        Ok(())
    }

    /// Writes everything in memory to tables.
    fn settle(&self, open: &Open) -> Result<(), StorageError> {
        let _settling = self.settling.lock();
        // Those that were frozen before, and then the others.
        for _ in 0..2 {
            let frozen = {
                let mut front = self.front.write();
                front.freeze();
                front.frozen()
            };
            if let Some(rows) = frozen {
                self.write_tables(open, &rows)?;
            }
        }
        Ok(())
    }
}

fn open_engine(dir: &Path, failures: Bell) -> Result<Open, StorageError> {
    let io = |error: std::io::Error| StorageError::Index(error.to_string());
    generation::settle(dir).map_err(io)?;
    let generation = Arc::new(Generation::new(dir, failures));
    let doubted = generation::is_doubted(dir).then_some("it failed when it was last open");
    let doubted =
        doubted.or(is_of_another_layout(dir).then_some("its rows lie as in another version"));
    let found = match doubt::reason(dir) {
        Err(error) if is_about_one_file(&error) => Some(format!("it cannot be read: {error}")),
        found => found.map_err(io)?.map(str::to_owned),
    };
    let reason = match doubted.map(str::to_owned).or(found) {
        Some(reason) => reason,
        // The engine asserts some of what it reads; a flipped bit must not end the process.
        None => match catch_unwind(AssertUnwindSafe(|| try_open(generation.clone()))) {
            Ok(Ok(index)) => return Ok(index),
            Ok(Err(fjall::Error::Locked)) => {
                let what = "it is still open elsewhere; close the other store first";
                return Err(StorageError::Index(what.to_owned()));
            }
            Ok(Err(error)) => describe(&error),
            Err(_) => "its engine panicked".to_owned(),
        },
    };
    tracing::warn!(dir = %dir.display(), reason, "the index is not believed and rebuilt from the log");
    generation::remove(dir).map_err(io)?;
    try_open(generation).map_err(|error| StorageError::Index(describe(&error)))
}

fn try_open(generation: Arc<Generation>) -> fjall::Result<Open> {
    let dir = &generation.dir;
    let database = Database::builder(dir).cache_size(CACHE_BYTES).worker_threads(1).open()?;
    let rows = database.keyspace("rows", row_options)?;
    std::fs::write(dir.join(layout_file()), b"")?;
    Ok(Open { database, rows, generation })
}

/// How rows are kept.
///
/// A filter says at once that a new item is not there yet, and is asked at every write. Its 10 bits per row
/// stay in memory: as one block of a megabyte for each table, they would push each other out of the cache
/// as soon as there are ten million rows, and every write would read some of them again. Where in a table
/// a row is, is looked up in small pieces for the same reason.
fn row_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::new([false, false, true]))
}

/// The name of the file that tells how rows lie.
fn layout_file() -> String {
    format!("LAYOUT-{}", keys::LAYOUT)
}

/// Whether there are rows that must not be read.
fn is_of_another_layout(dir: &Path) -> bool {
    dir.join("keyspaces").exists() && !dir.join(layout_file()).exists()
}

fn io_of(error: &fjall::Error) -> Option<&std::io::Error> {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => Some(error),
        _ => None,
    }
}

/// What the engine reports, in words.
fn describe(error: &fjall::Error) -> String {
    match error {
        fjall::Error::Storage(LsmError::ChecksumMismatch { .. }) => {
            "a block of a table does not have its checksum".to_owned()
        }
        fjall::Error::Poisoned => "the engine stopped after an error in a table".to_owned(),
        _ => io_of(error).map_or_else(|| error.to_string(), |io| format!("a table: {io}")),
    }
}

/// The error for a caller. Damage has the index rebuilt; a full disk does not.
fn failed(generation: &Generation, error: &fjall::Error) -> StorageError {
    match io_of(error) {
        Some(io) if !is_about_one_file(io) => StorageError::Index(describe(error)),
        _ => generation.fail(&describe(error)),
    }
}

/// Rows of tables, as far as they have not been visited.
struct Tables<I: Iterator>(Peekable<I>);

fn tables(
    rows: impl Iterator<Item = fjall::Guard>,
) -> Tables<impl Iterator<Item = fjall::Result<fjall::KvPair>>> {
    Tables(rows.map(fjall::Guard::into_inner).peekable())
}

impl<I: Iterator<Item = fjall::Result<fjall::KvPair>>> Tables<I> {
    /// Visits rows up to a key, excluded. False if whoever visits has seen enough.
    fn visit_until(
        &mut self,
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> fjall::Result<bool> {
        let is_due = |row: &fjall::Result<fjall::KvPair>| match row {
            Ok((key, _)) => **key < *end,
            Err(_) => true,
        };
        while let Some(row) = self.0.next_if(is_due) {
            let (key, value) = row?;
            if !visit(&key, &value) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Visits rows up to a key, excluded, and the newer ones of memory, which are right where both have a
    /// key. False if whoever visits has seen enough.
    fn visit_with(
        &mut self,
        newer: &[(Key, Option<Value>)],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> fjall::Result<bool> {
        for (key, value) in newer {
            if !self.visit_until(key, visit)? {
                return Ok(false);
            }
            self.0.next_if(|row| row.as_ref().is_ok_and(|(older, _)| **older == **key));
            if value.as_ref().is_some_and(|value| !visit(key, value)) {
                return Ok(false);
            }
        }
        self.visit_until(end, visit)
    }
}

/// Where the rows end that a scan has taken from memory: there is none before it that was not taken.
fn end_of(taken: &[(Key, Option<Value>)], to: &[u8]) -> Key {
    match taken.last() {
        Some((last, _)) if taken.len() == ROWS_AT_ONCE => crate::scan::successor(last.clone()),
        _ => Key::from_slice(to),
    }
}

/// The rows at one moment.
struct FjallView {
    front: Front,
    snapshot: Snapshot,
    rows: Keyspace,
    /// Dropped last: it may remove the files.
    generation: Arc<Generation>,
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
        let mut scanned = || -> fjall::Result<()> {
            let mut tables = tables(self.snapshot.range(&self.rows, from..to));
            let mut from = Key::from_slice(from);
            while from[..] < *to {
                let newer = self.front.rows(&from, to, ROWS_AT_ONCE);
                from = end_of(&newer, to);
                if !tables.visit_with(&newer, &from, visit)? {
                    break;
                }
            }
            Ok(())
        };
        scanned().map_err(|error| failed(&self.generation, &error))
    }
}

impl IndexView for FjallIndex {
    /// What is written meanwhile may be seen or not; every other row is seen once.
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError> {
        let mut from = Key::from_slice(from);
        let mut of_tables: Option<(u64, _, Arc<Generation>)> = None;
        while from[..] < *to {
            let newer = {
                let open = self.shared.open.read();
                let open = open.as_ref().ok_or(StorageError::Closed)?;
                let front = self.shared.front.read();
                // Rows that have gone on to tables since, or to another index, are looked for there.
                let moves = front.moves();
                if of_tables.as_ref().is_none_or(|(known, ..)| *known != moves) {
                    let rows = tables(open.rows.range(&from[..]..to));
                    of_tables = Some((moves, rows, open.generation.clone()));
                }
                front.rows(&from, to, ROWS_AT_ONCE)
            };
            let Some((_, rows, generation)) = &mut of_tables else { break };
            from = end_of(&newer, to);
            let visited = rows.visit_with(&newer, &from, visit);
            if !visited.map_err(|error| failed(generation, &error))? {
                break;
            }
        }
        Ok(())
    }
}

impl FjallIndex {
    /// A view of the tables and of what is taken from memory.
    fn view_of(
        &self,
        front: impl FnOnce(&Front) -> Front,
    ) -> Result<Arc<dyn IndexView>, StorageError> {
        let open = self.shared.open.read();
        let Open { database, rows, generation } = open.as_ref().ok_or(StorageError::Closed)?;
        // Locked until the snapshot is taken, so that both are of one moment.
        let memory = self.shared.front.read();
        let (front, snapshot) = (front(&memory), database.snapshot());
        let (rows, generation) = (rows.clone(), generation.clone());
        Ok(Arc::new(FjallView { front, snapshot, rows, generation }))
    }
}

impl Index for FjallIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StorageError> {
        let open = self.shared.open.read();
        let open = open.as_ref().ok_or(StorageError::Closed)?;
        if let Some(row) = self.shared.front.read().get(key) {
            return Ok(row.cloned());
        }
        let row = open.rows.get(key).map_err(|error| open.failed(&error))?;
        Ok(row.map(|value| Value::from_slice(&value)))
    }

    fn view(&self) -> Result<Arc<dyn IndexView>, StorageError> {
        self.view_of(Front::clone)
    }

    fn view_between(&self, from: &[u8], to: &[u8]) -> Result<Arc<dyn IndexView>, StorageError> {
        self.view_of(|front| front.between(from, to))
    }

    fn write(&self, batch: &Batch) -> Result<(), StorageError> {
        let open = self.shared.open.read();
        if open.is_none() {
            return Err(StorageError::Closed);
        }
        let is_full = {
            let mut front = self.shared.front.write();
            front.write(batch);
            front.young_bytes() >= self.shared.young_bytes_max
        };
        drop(open);
        if is_full { self.make_room() } else { Ok(()) }
    }

    fn settle(&self) -> Result<(), StorageError> {
        self.shared.settle(&self.shared.opened()?)
    }

    fn doubt(&self, what: &str) -> StorageError {
        match self.shared.opened() {
            Ok(open) => open.generation.fail(&what),
            Err(closed) => closed,
        }
    }

    fn failures(&self) -> Option<Listener> {
        Some(self.shared.failures.listen())
    }

    fn has_failed(&self) -> bool {
        self.shared.open.read().as_ref().is_some_and(|open| open.generation.has_failed())
    }

    fn successor(&self) -> Result<Arc<dyn Index>, StorageError> {
        let generation = self.shared.opened()?.generation.successor();
        let open = generation.map_err(fjall::Error::from).map(Arc::new).and_then(try_open);
        let open = open.map_err(|error| StorageError::Index(describe(&error)))?;
        let shared = &self.shared;
        let (runtime, failures) = (self.runtime.clone(), shared.failures.clone());
        Ok(Arc::new(FjallIndex::with(open, runtime, shared.young_bytes_max, failures)))
    }

    fn replace_by(&self, successor: Arc<dyn Index>) -> Result<(), StorageError> {
        let successor: Arc<dyn Any + Send + Sync> = successor;
        let Ok(successor) = successor.downcast::<FjallIndex>() else {
            return Err(StorageError::Index("the successor is of another kind".to_owned()));
        };
        successor.settle()?;
        let _settling = self.shared.settling.lock();
        let new = successor.shared.open.write().take().ok_or(StorageError::Closed)?;
        let old = {
            let mut open = self.shared.open.write();
            let open = open.as_mut().ok_or(StorageError::Closed)?;
            new.generation.discard(false);
            self.shared.front.write().clear();
            std::mem::replace(open, new)
        };
        old.generation.discard(true);
        Ok(())
    }

    fn memory(&self) -> IndexMemory {
        let row_bytes = self.shared.front.read().bytes() as u64;
        let Ok(Open { database, rows, .. }) = self.shared.opened() else {
            return IndexMemory { row_bytes, ..IndexMemory::default() };
        };
        let table_bytes = rows.tree.pinned_filter_size() + rows.tree.pinned_block_index_size();
        let cache_bytes = database.cache_size();
        IndexMemory { cache_bytes, table_bytes: table_bytes as u64, row_bytes }
    }

    fn close(&self) -> Result<(), StorageError> {
        let Some(open) = self.shared.open.write().take() else {
            return Ok(());
        };
        self.shared.settle(&open)?;
        open.database.persist(PersistMode::SyncAll).map_err(|error| open.failed(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::MemoryIndex;
    use headwater_runtime::Random;

    fn rows(from: u32, to: u32, version: u8) -> Batch {
        let mut batch = Batch::default();
        for number in from..to {
            batch.put(Key::from_slice(&number.to_be_bytes()), Value::from_slice(&[version; 40]));
        }
        batch
    }

    fn open(dir: &Path) -> FjallIndex {
        FjallIndex::open(dir, Runtime::system()).unwrap()
    }

    #[tokio::test]
    async fn an_index_whose_tables_were_not_written_to_the_end_is_rebuilt() {
        let dir = tempfile::tempdir().unwrap();
        let index = open(dir.path());
        let mut failures = index.failures().unwrap();
        let ended = Runtime::system().watch("rows to tables", async { panic!("a table") }).await;
        index.shared.note_end(ended);
        assert!(index.has_failed());
        failures.rang().await;
    }

    #[test]
    fn rows_of_another_layout_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let index = open(dir.path());
        index.write(&rows(0, 10, 1)).unwrap();
        index.close().unwrap();
        let index = open(dir.path());
        assert!(index.get(&7_u32.to_be_bytes()).unwrap().is_some());
        index.close().unwrap();
        std::fs::rename(dir.path().join(layout_file()), dir.path().join("LAYOUT-1")).unwrap();
        let index = open(dir.path());
        assert_eq!(index.get(&7_u32.to_be_bytes()).unwrap(), None);
    }

    #[test]
    fn what_was_settled_or_closed_is_there_again_and_later_rows_win() {
        let dir = tempfile::tempdir().unwrap();
        for version in 1..=8 {
            let index = open(dir.path());
            let before = index.get(&7_u32.to_be_bytes()).unwrap();
            let expected = (version > 1).then(|| Value::from_slice(&[version - 1; 40]));
            assert_eq!(before, expected, "what the last one wrote");
            index.write(&rows(0, 1_000, version)).unwrap();
            if version % 2 == 0 {
                index.close().unwrap();
            } else {
                index.settle().unwrap();
                index.write(&rows(0, 1_000, 99)).unwrap();
                // As if the process had ended here: the last batch is lost as a whole.
            }
            drop(index);
            assert_eq!(doubt::reason(dir.path()).unwrap(), None);
        }
    }

    #[test]
    fn a_closed_index_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let index = open(dir.path());
        index.write(&rows(0, 10, 1)).unwrap();
        index.close().unwrap();
        assert!(matches!(index.get(&7_u32.to_be_bytes()), Err(StorageError::Closed)));
        assert!(matches!(index.write(&rows(0, 1, 2)), Err(StorageError::Closed)));
        assert!(matches!(index.settle(), Err(StorageError::Closed)));
    }

    fn all(view: &dyn IndexView, from: &[u8], to: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            true
        };
        view.scan(from, to, &mut visit).unwrap();
        found
    }

    /// Batches of puts and removes while rows go on to tables, read back in every way.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_index_with_tables_answers_as_one_in_memory() {
        for seed in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            let mut random = Random::seeded(seed);
            let model = MemoryIndex::default();
            // A few hundred rows fill the memory.
            let reopen = || FjallIndex::open_with(dir.path(), Runtime::system(), 60_000).unwrap();
            let mut index = reopen();
            for step in 0..300_u32 {
                let mut batch = Batch::default();
                for _ in 0..random.index(60) {
                    let number = u32::try_from(random.index(1_500)).unwrap();
                    let key = Key::from_slice(&number.to_be_bytes());
                    match random.index(4) {
                        0 => batch.remove(key),
                        // Some are larger than a row has room for.
                        kind => {
                            batch.put(key, Value::from_slice(&step.to_be_bytes().repeat(10 * kind)))
                        }
                    }
                }
                index.write(&batch).unwrap();
                model.write(&batch).unwrap();
                let bound =
                    |random: &mut Random| u32::try_from(random.index(1_600)).unwrap().to_be_bytes();
                let (from, to) = (bound(&mut random), bound(&mut random));
                assert_eq!(all(&index, &from, &to), all(&model, &from, &to), "{seed} {step}");
                assert_eq!(index.get(&from).unwrap(), model.get(&from).unwrap(), "{seed} {step}");
                match random.index(40) {
                    0 => index.settle().unwrap(),
                    1 => {
                        let (view, expected) = (index.view().unwrap(), model.view().unwrap());
                        let part = index.view_between(&from, &to).unwrap();
                        let part_expected = model.view_between(&from, &to).unwrap();
                        index.write(&rows(0, 50, 9)).unwrap();
                        model.write(&rows(0, 50, 9)).unwrap();
                        index.settle().unwrap();
                        assert_eq!(
                            all(&*view, &[0], &[9]),
                            all(&*expected, &[0], &[9]),
                            "{seed} {step}"
                        );
                        assert_eq!(
                            all(&*part, &from, &to),
                            all(&*part_expected, &from, &to),
                            "{seed} {step}"
                        );
                    }
                    2 => {
                        index.close().unwrap();
                        drop(index);
                        index = reopen();
                    }
                    _ => {}
                }
            }
            assert_eq!(all(&index, &[0], &[9]), all(&model, &[0], &[9]), "seed {seed}");
            index.close().unwrap();
        }
    }

    /// Every row is visited once, in order, while others are written and all of them go on to tables.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_scan_misses_no_row_that_goes_on_to_a_table_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let index = open(dir.path());
        index.write(&rows(0, 1_000, 1)).unwrap();
        let mut visited = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            visited.push(u32::from_be_bytes(key.try_into().unwrap()));
            assert!(value[0] >= 1);
            match visited.len() {
                10 => index.settle().unwrap(),
                200 => index.write(&rows(500, 600, 2)).unwrap(),
                300 => index.settle().unwrap(),
                700 => index.write(&rows(800, 1_000, 3)).unwrap(),
                _ => {}
            }
            true
        };
        index.scan(&0_u32.to_be_bytes(), &2_000_u32.to_be_bytes(), &mut visit).unwrap();
        assert_eq!(visited, (0..1_000).collect::<Vec<_>>());
    }

    /// The engine merges tables in a thread of its own, which ends at the first damaged block.
    #[test]
    fn damage_that_only_a_merge_of_tables_meets_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let index = open(dir.path());
        let settle = |version: u8| {
            index.write(&rows(0, 2_000, version)).unwrap();
            index.settle()
        };
        settle(1).unwrap();
        let tables =
            std::fs::read_dir(dir.path().join("keyspaces")).unwrap().flat_map(|keyspace| {
                let tables = std::fs::read_dir(keyspace.unwrap().path().join("tables"));
                tables.into_iter().flatten().map(|table| table.unwrap().path())
            });
        for table in tables {
            let mut bytes = std::fs::read(&table).unwrap();
            bytes.iter_mut().step_by(50).for_each(|byte| *byte ^= 1);
            std::fs::write(&table, bytes).unwrap();
        }
        assert!(!index.has_failed());
        let failed = (2..100).find_map(|version| settle(version).err());
        assert!(matches!(failed, Some(StorageError::Index(_))), "{failed:?}");
        assert!(index.has_failed());
        let successor = index.successor().unwrap();
        successor.write(&rows(0, 10, 7)).unwrap();
        index.replace_by(successor).unwrap();
        assert!(!index.has_failed());
        assert_eq!(index.get(&7_u32.to_be_bytes()).unwrap(), Some(Value::from_slice(&[7; 40])));
        assert_eq!(index.get(&70_u32.to_be_bytes()).unwrap(), None);
        assert!(!dir.path().exists(), "the files of the failed index are gone");
        index.close().unwrap();
        drop(index);
        let index = open(dir.path());
        assert_eq!(index.get(&7_u32.to_be_bytes()).unwrap(), Some(Value::from_slice(&[7; 40])));
    }
}
