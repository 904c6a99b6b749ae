//! Errors of a log, one type per operation: open, read, append.

use headwater_model::{Lsn, PartitionId};
use std::io;
use std::path::{Path, PathBuf};

/// Damaged bytes on disk, always with their location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is damaged at byte {offset}{}: {what}", lsn_text(.lsn))]
pub struct Damage {
    /// The path of the file, as it was opened.
    pub file: String,
    /// The byte offset at which the damage was detected.
    pub offset: u64,
    /// The damaged entry, if known.
    pub lsn: Option<Lsn>,
    /// What was wrong.
    pub what: String,
}

fn lsn_text(lsn: &Option<Lsn>) -> String {
    lsn.map(|lsn| format!(" (LSN {lsn})")).unwrap_or_default()
}

impl Damage {
    pub(crate) fn new(
        file: &Path,
        offset: u64,
        lsn: Option<Lsn>,
        what: impl Into<String>,
    ) -> Damage {
        Damage { file: file.display().to_string(), offset, lsn, what: what.into() }
    }
}

/// Why a log could not be opened or created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system returned an error.
    #[error("cannot open the log in {}", dir.display())]
    Io {
        /// The directory of the log, or the file in it.
        dir: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Bytes on disk are damaged: restore from a backup or from a replica.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The directory belongs to another partition.
    #[error("{} holds partition {found}, not {expected}; check the data directory", dir.display())]
    WrongPartition {
        /// The directory of the log.
        dir: PathBuf,
        /// The requested partition.
        expected: PartitionId,
        /// The partition named in the files.
        found: PartitionId,
    },
    /// Written by a newer version of this program.
    #[error(
        "{file} has format {found}; this version reads up to {supported}: use a newer Headwater"
    )]
    NewerFormat {
        /// The file.
        file: String,
        /// Its format number.
        found: u32,
        /// The newest format this version can read.
        supported: u32,
    },
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system returned an error.
    #[error("cannot read {file}")]
    Io {
        /// The file.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Bytes on disk are damaged.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A read of all versions starts before the retained history.
    #[error(
        "changes after {asked} are no longer complete; the oldest complete position is {oldest}"
    )]
    BeforeRetention {
        /// The requested position.
        asked: Lsn,
        /// The oldest position after which every version is still in the log.
        oldest: Lsn,
    },
    /// The log did not answer; retry.
    #[error("the log did not answer; ask again")]
    Unavailable,
}

/// Why an append failed or its outcome is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Another writer has written the slot.
    #[error("slot after {expected} is taken; the log ends at {tail}")]
    Conflict {
        /// The LSN that the group was to follow.
        expected: Lsn,
        /// The end of the log.
        tail: Lsn,
    },
    /// No answer: the group may or may not have been written. Read its first slot to find out.
    #[error("the append was not answered; it may have been written")]
    Undecided,
    /// The partition was split or merged and takes no more entries.
    #[error("the partition is sealed at {0}; it takes no further entries")]
    Sealed(Lsn),
    /// The disk is full; nothing was written. Free space and retry.
    #[error("the disk is full; nothing was written")]
    DiskFull,
    /// The write failed before the sync; nothing was written.
    #[error("writing failed; nothing was written")]
    Io(#[source] io::Error),
    /// A sync failed earlier, so the content of the disk is unknown. Reopen the partition.
    #[error("an earlier sync failed; the partition refuses writes until it is reopened")]
    Poisoned,
    /// The group is larger than a segment may be.
    #[error("the group has {bytes} bytes; a segment holds at most {limit}")]
    TooLarge {
        /// Size of the group.
        bytes: usize,
        /// The most a segment may hold.
        limit: usize,
    },
}
