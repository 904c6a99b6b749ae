//! Data directories that commands open themselves: checks that one is there, and says what to do while another
//! process has it open.
//!
//! It never ends that process, and repairs nothing.

use anyhow::{Result, ensure};
use headwater_store::{Account, OpenError, Options};
use std::fmt;
use std::path::{Path, PathBuf};

/// The exit code of a command whose data directory another process has open. It says nothing about the data.
pub(crate) const IN_USE: u8 = 3;

/// Another process has the data directory open.
#[derive(Debug)]
struct InUse {
    dir: PathBuf,
    pid: Option<u32>,
    /// What to do instead of stopping that process.
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

/// Opens one. `otherwise` says what to do instead of stopping a process that has it open.
pub(crate) async fn open(dir: &Path, options: Options, otherwise: &'static str) -> Result<Account> {
    Account::open(dir, options).await.map_err(|error| explain(error, otherwise))
}

/// The error with the remedy of a command.
pub(crate) fn explain(error: OpenError, otherwise: &'static str) -> anyhow::Error {
    match error {
        OpenError::Locked { dir, pid } => InUse { dir, pid, otherwise }.into(),
        error => error.into(),
    }
}

/// Whether a command failed only because another process has its data directory open.
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
