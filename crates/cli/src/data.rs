//! Opens data directories for commands: checks that a directory is one, and adds a remedy if another process has it
//! open.
//!
//! It never stops that process, and repairs nothing.

use anyhow::{Result, ensure};
use headwater_store::{Account, OpenError, Options};
use std::fmt;
use std::path::{Path, PathBuf};

/// The exit code of a command whose data directory another process has open. The data was not checked.
pub(crate) const IN_USE: u8 = 3;

/// Another process has the data directory open.
#[derive(Debug)]
struct InUse {
    dir: PathBuf,
    pid: Option<u32>,
    /// The alternative to stopping that process.
    otherwise: &'static str,
}

impl std::error::Error for InUse {}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InUse { dir, pid, otherwise } = self;
        let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        let dir = dir.display();
        write!(f, "another process{pid} has the data directory {dir} open. Stop it, or {otherwise}")
    }
}

/// Opens a data directory. `otherwise` is the alternative to stopping a process that has it open.
pub(crate) async fn open(dir: &Path, options: Options, otherwise: &'static str) -> Result<Account> {
    Account::open(dir, options).await.map_err(|error| explain(error, otherwise))
}

/// Adds the remedy of a command to an error.
pub(crate) fn explain(error: OpenError, otherwise: &'static str) -> anyhow::Error {
    match error {
        OpenError::Locked { dir, pid } => InUse { dir, pid, otherwise }.into(),
        error => error.into(),
    }
}

/// Returns whether a command failed only because another process has its data directory open.
pub(crate) fn is_in_use(error: &anyhow::Error) -> bool {
    error.is::<InUse>()
}

/// Refuses a directory in which no server kept data.
pub(crate) fn ensure_is_one(dir: &Path) -> Result<()> {
    ensure!(
        dir.join("catalog").is_dir() || dir.join("containers").is_dir(),
        "{} is not a data directory; give the one of `headwater serve --data`, or the URL of a server",
        dir.display()
    );
    Ok(())
}
