//! The data directory: creates it with owner-only permissions, restricts an existing one, and locks it while
//! it is open.
//!
//! A directory that also holds other files keeps its mode, because others may need it. The store's own
//! directories in it are restricted in any case.

use crate::catalog_snapshot;
use crate::error::OpenError;
use crate::index::is_index;
use headwater_log::disk::{Disk, OsDisk};
use headwater_log::private;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;

/// Directories of the store and the server in the data directory, apart from those of the index.
const OURS: [&str; 3] = ["catalog", "containers", "tls"];
/// Files of the store in the data directory.
const FILES: [&str; 5] =
    [LOCK, GITIGNORE, UNFINISHED, catalog_snapshot::NAME, catalog_snapshot::TEMPORARY];
/// Locked by the process that has the directory open. Holds the id of that process.
const LOCK: &str = "LOCK";
/// Bytes of the lock file that are read.
const LOCK_BYTES_MAX: u64 = 32;
const GITIGNORE: &str = ".gitignore";
/// Exists while a backup is restored into the directory.
const UNFINISHED: &str = "RESTORE-UNFINISHED";

/// Creates the directory and syncs its parents, so that it survives a power cut.
fn create(root: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        root.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).collect();
    private::create_dir_all(root)?;
    missing.iter().try_for_each(|dir| OsDisk.sync_dir(dir.parent().unwrap_or(Path::new(""))))
}

/// Creates the directory if it does not exist, and restricts it to its owner.
pub(crate) fn prepare(root: &Path) -> io::Result<()> {
    if !root.exists() {
        create(root)?;
        // Data does not belong in a repository. Not synced: a power cut can only remove the file.
        let mut options = private::options();
        let file = options.write(true).create(true).truncate(true).open(root.join(GITIGNORE));
        return file?.write_all(b"*\n");
    }
    let is_our_dir = |name: &str| OURS.contains(&name) || is_index(name);
    let mut holds_others = false;
    let mut inside = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        holds_others |= !is_our_dir(name) && !FILES.contains(&name);
        if is_our_dir(name) && entry.path().is_dir() {
            inside.push(entry.path());
        }
    }
    let whole = Some(root.to_owned()).filter(|_| !holds_others);
    for dir in inside.into_iter().chain(whole) {
        if let Err(error) = private::close_to_others(&dir) {
            let dir = dir.display();
            tracing::warn!(%dir, %error, "cannot close the directory to other users; run chmod 700 on it");
        }
    }
    Ok(())
}

/// Locks a directory against other processes for as long as the file is open.
pub(crate) fn lock(root: &Path) -> Result<File, OpenError> {
    let path = root.join(LOCK);
    let failed = |source| OpenError::Io { dir: root.to_owned(), source };
    let opened = private::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => failed(source),
        _ => {
            OpenError::Lock { file: path.clone(), source }.explained(root, OsDisk.free_bytes(root))
        }
    })?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(OpenError::Locked { dir: root.to_owned(), pid: holder(&mut file) });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // Only for error messages of other processes, so a full disk does not prevent the store from opening.
    let written = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    if let Err(error) = written {
        tracing::debug!(%error, "cannot write the process id to {}", path.display());
    }
    Ok(file)
}

/// The id of the process that holds the lock. `None` if it equals ours: then the holder is this process, or
/// one in another container.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(LOCK_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|pid| *pid != std::process::id())
}

/// Marks the directory as an unfinished restore.
pub(crate) fn mark_unfinished(root: &Path) -> io::Result<()> {
    private::write(&root.join(UNFINISHED), b"")?;
    OsDisk.sync_dir(root)
}

/// Removes the mark of an unfinished restore.
pub(crate) fn mark_finished(root: &Path) -> io::Result<()> {
    std::fs::remove_file(root.join(UNFINISHED))?;
    OsDisk.sync_dir(root)
}

/// Whether a restore into the directory was interrupted or refused.
pub(crate) fn is_unfinished(root: &Path) -> bool {
    root.join(UNFINISHED).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Account, Options};

    #[test]
    fn a_second_lock_names_the_process_that_has_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK);
        std::fs::write(&path, "4294967295 is what a process left that was killed").unwrap();
        let held = lock(dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), std::process::id().to_string());
        let refused = lock(dir.path()).unwrap_err();
        assert!(matches!(refused, OpenError::Locked { pid: None, .. }), "{refused}");
        std::fs::write(&path, "812").unwrap();
        let refused = lock(dir.path()).unwrap_err();
        assert!(matches!(refused, OpenError::Locked { pid: Some(812), .. }), "{refused}");
        assert!(refused.to_string().contains("another process (pid 812) has it open"), "{refused}");
        drop(held);
        lock(dir.path()).unwrap();
    }

    #[tokio::test]
    async fn a_restore_that_is_under_way_is_not_called_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        mark_unfinished(dir.path()).unwrap();
        let refused = Account::open(dir.path(), Options::default()).await.unwrap_err();
        assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
        drop(held);
        let refused = Account::open(dir.path(), Options::default()).await.unwrap_err();
        assert!(matches!(refused, OpenError::UnfinishedRestore { .. }), "{refused}");
    }
}
