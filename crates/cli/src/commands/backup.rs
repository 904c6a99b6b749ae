//! `headwater backup` and `headwater restore`: a data directory into a directory, and back with proof.

use crate::connect::block_on;
use crate::output::say;
use anyhow::{Context, Result, ensure};
use clap::Args;
use headwater_store::{Account, BackupSummary, Options, restore};
use object_store::local::LocalFileSystem;
use std::path::{Path, PathBuf};

/// The name of the backup inside of its directory.
pub(super) const PREFIX: &str = "backup";

/// From where, and where to.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The data directory
    data: PathBuf,
    /// A new directory for the backup
    to: PathBuf,
}

/// From where, and where to.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The directory of the backup
    from: PathBuf,
    /// A new data directory
    data: PathBuf,
}

/// What `--help` says.
pub(crate) const HELP: &str = "\
Copy a data directory that no server has open

    headwater backup ./headwater-data /backups/monday

The copy is complete when the command says so: it holds a list of its files with their checksums and a \
hash of everything in the store, which `headwater restore` compares.";

/// What `--help` says.
pub(crate) const RESTORE_HELP: &str = "\
Make a data directory out of a backup

    headwater restore /backups/monday ./restored
    headwater serve --data ./restored

Every file is checked, the store is opened, and what is in it is compared with what was backed up.";

/// Makes a backup.
pub(crate) fn run(backup: &Backup) -> Result<()> {
    let data = &backup.data;
    ensure!(
        data.join("catalog").is_dir(),
        "{} is not a data directory; give the one `headwater serve --data` was given",
        data.display()
    );
    let full = std::fs::read_dir(&backup.to).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!full, "{} is not empty; back up into a new directory", backup.to.display());
    block_on(async {
        let account = Account::open(data, Options::default()).await;
        let account = account.with_context(|| format!("cannot open {}", data.display()))?;
        let made = async {
            let place = place(&backup.to)?;
            account.backup(&place, PREFIX).await.context("the backup is not complete")
        };
        let made = made.await;
        account.close().await.context("cannot close the store cleanly; nothing is lost")?;
        show("backed up", &made?);
        Ok(())
    })
}

/// Restores one.
pub(crate) fn run_restore(command: &Restore) -> Result<()> {
    ensure!(command.from.is_dir(), "{} is not a directory", command.from.display());
    block_on(async {
        let place = place(&command.from)?;
        let restored = restore(&place, PREFIX, &command.data, Options::default()).await;
        let (account, summary) = restored.with_context(|| {
            format!("cannot restore {} to {}", command.from.display(), command.data.display())
        })?;
        account.close().await.context("cannot close the store cleanly; nothing is lost")?;
        show("restored and compared", &summary);
        Ok(())
    })
}

pub(super) fn place(dir: &Path) -> Result<LocalFileSystem> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    LocalFileSystem::new_with_prefix(dir).with_context(|| format!("cannot use {}", dir.display()))
}

fn show(what: &str, summary: &BackupSummary) {
    say(format_args!(
        "{what}: {} items in {} partitions, {} bytes, state {}",
        summary.items, summary.partitions, summary.bytes, summary.state_hash
    ));
}
