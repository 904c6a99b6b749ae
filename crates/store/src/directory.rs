//! The data directory itself: made for its owner alone, and closed to others when it is opened.
//!
//! A directory that also holds other files may be one that others need, so it keeps its mode; what the store
//! keeps in it is closed in any case.

use crate::catalog_snapshot;
use crate::index::is_index;
use headwater_log::disk::{Disk, OsDisk};
use headwater_log::private;
use std::io;
use std::path::Path;

/// Directories the store and the server keep in it, next to those of the index.
const OURS: [&str; 3] = ["catalog", "containers", "tls"];
/// Files in it.
const FILES: [&str; 5] =
    ["LOCK", GITIGNORE, UNFINISHED, catalog_snapshot::NAME, catalog_snapshot::TEMPORARY];
const GITIGNORE: &str = ".gitignore";
/// Exists while a backup is restored into the directory.
const UNFINISHED: &str = "RESTORE-UNFINISHED";

/// Creates the directory so that its name survives a power cut.
fn create(root: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        root.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).collect();
    private::create_dir_all(root)?;
    missing.iter().try_for_each(|dir| OsDisk.sync_dir(dir.parent().unwrap_or(Path::new(""))))
}

/// Makes the directory if need be, and closes it to others.
pub(crate) fn prepare(root: &Path) -> io::Result<()> {
    if !root.exists() {
        create(root)?;
        // Data belongs into no repository.
        return private::write(&root.join(GITIGNORE), b"*\n");
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

/// Says that the directory does not hold a whole store yet.
pub(crate) fn mark_unfinished(root: &Path) -> io::Result<()> {
    private::write(&root.join(UNFINISHED), b"")?;
    OsDisk.sync_dir(root)
}

/// Says that it does.
pub(crate) fn mark_finished(root: &Path) -> io::Result<()> {
    std::fs::remove_file(root.join(UNFINISHED))?;
    OsDisk.sync_dir(root)
}

/// Whether a restore into the directory was interrupted or refused.
pub(crate) fn is_unfinished(root: &Path) -> bool {
    root.join(UNFINISHED).exists()
}
