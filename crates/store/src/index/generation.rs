//! Generations of the index: directories of an index, failure marks, and the choice at the next open.
//!
//! ```text
//! index      the index that was opened
//! index-1    its successor, rebuilt from the log while the store was in use
//! ```
//!
//! A failed index cannot be replaced in its own directory, because readers may have its files open. The next
//! open takes the newest generation and renames it to the plain name. That may be an unfinished one: it lacks
//! the rows of some partitions, and their logs are applied to it. Knows no rows.

use crate::error::StorageError;
use headwater_log::private;
use headwater_runtime::Bell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of the index in a data directory.
pub(crate) const INDEX: &str = "index";
/// The file that marks an index to be rebuilt at the next open.
const DOUBT: &str = "DOUBTED";

/// One directory of an index.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) dir: PathBuf,
    /// The directory with the plain name.
    first: PathBuf,
    failed: AtomicBool,
    /// Rung when a generation fails.
    failures: Bell,
    /// Whether the directory is removed with the last handle.
    is_discarded: AtomicBool,
}

impl Generation {
    /// The generation with the plain name.
    pub(super) fn new(dir: &Path, failures: Bell) -> Generation {
        Generation {
            dir: dir.to_owned(),
            first: dir.to_owned(),
            failed: AtomicBool::new(false),
            failures,
            is_discarded: AtomicBool::new(false),
        }
    }

    /// Creates an empty directory for a successor. It is removed unless the successor is used.
    pub(super) fn successor(&self) -> io::Result<Generation> {
        let (parent, name) = split(&self.first);
        let newest = successors(&parent, &name)?.last().map_or(0, |(number, _)| *number);
        let dir = parent.join(format!("{name}-{}", newest + 1));
        private::create_dir_all(&dir)?;
        Ok(Generation {
            dir,
            first: self.first.clone(),
            failed: AtomicBool::new(false),
            failures: self.failures.clone(),
            is_discarded: AtomicBool::new(true),
        })
    }

    /// Sets whether the directory is removed with the last handle.
    pub(super) fn discard(&self, is_discarded: bool) {
        self.is_discarded.store(is_discarded, Ordering::Release);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Marks the index as failed, so that it is rebuilt now or at the next open. Returns the error.
    pub(super) fn fail(&self, error: &dyn std::fmt::Display) -> StorageError {
        if !self.failed.swap(true, Ordering::AcqRel) {
            let dir = self.dir.display();
            tracing::error!(%dir, %error, "the index failed; a rebuild from the log follows");
            let _ = std::fs::write(self.dir.join(DOUBT), b"");
        }
        self.failures.ring();
        StorageError::Index(error.to_string())
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.is_discarded.load(Ordering::Acquire)
            && let Err(error) = std::fs::remove_dir_all(&self.dir)
        {
            let dir = self.dir.display();
            tracing::warn!(%dir, %error, "cannot remove an index that was replaced; the next start removes it");
        }
    }
}

/// Whether an index is marked as failed.
pub(crate) fn is_doubted(dir: &Path) -> bool {
    dir.join(DOUBT).exists()
}

/// Marks every generation of the index, so that the next open rebuilds it from the log.
pub(crate) fn doubt_files(dir: &Path) -> io::Result<()> {
    let (parent, name) = split(dir);
    let successors = successors(&parent, &name)?.into_iter().map(|(_, dir)| dir);
    let mut all = successors.chain([dir.to_owned()]).filter(|dir| dir.is_dir());
    all.try_for_each(|dir| std::fs::write(dir.join(DOUBT), b""))
}

/// Renames the newest generation to the plain name and removes the others.
pub(super) fn settle(dir: &Path) -> io::Result<()> {
    let (parent, name) = split(dir);
    let mut successors = successors(&parent, &name)?;
    if let Some((_, newest)) = successors.pop() {
        remove(dir)?;
        std::fs::rename(newest, dir)?;
    }
    successors.iter().try_for_each(|(_, dir)| remove(dir))
}

/// Removes an index directory, or the file in its place.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(dir) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(dir),
        Ok(_) => std::fs::remove_file(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a name in a data directory is that of an index or of a successor.
pub(crate) fn is_index(name: &str) -> bool {
    name == INDEX || number_of(name, INDEX).is_some()
}

fn split(dir: &Path) -> (PathBuf, String) {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (parent.unwrap_or(Path::new(".")).to_owned(), name)
}

fn number_of(name: &str, base: &str) -> Option<u64> {
    name.strip_prefix(base)?.strip_prefix('-')?.parse().ok()
}

/// The successors of an index, the newest last.
fn successors(parent: &Path, base: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?;
        if let Some(number) = entry.file_name().to_str().and_then(|name| number_of(name, base)) {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}
