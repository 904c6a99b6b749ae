//! What can go wrong with a log, by what the caller was doing.

use headwater_model::{Lsn, PartitionId};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes on disk that are not what was written. Always says where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is damaged at byte {offset}{}: {what}", lsn_text(.lsn))]
pub struct Damage {
    /// The file, relative to nothing: as it was opened.
    pub file: String,
    /// Where in the file the damage was noticed.
    pub offset: u64,
    /// The entry that is damaged, where it is known.
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
    /// The operating system refused.
    #[error("cannot open the log in {}", dir.display())]
    Io {
        /// The directory of the log, or the file in it.
        dir: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Bytes on disk are not what was written: restore from a backup, or from a replica.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The directory belongs to another partition.
    #[error("{} holds partition {found}, not {expected}; check the data directory", dir.display())]
    WrongPartition {
        /// The directory of the log.
        dir: PathBuf,
        /// The partition that was asked for.
        expected: PartitionId,
        /// The partition the files say they are.
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
        /// The newest format this version knows.
        supported: u32,
    },
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system refused.
    #[error("cannot read {file}")]
    Io {
        /// The file.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// Bytes on disk are not what was written.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// All versions were asked for after a position that compaction has already passed.
    #[error(
        "changes after {asked} are no longer complete; the oldest complete position is {oldest}"
    )]
    BeforeRetention {
        /// The position asked for.
        asked: Lsn,
        /// The oldest position from which every version is still there.
        oldest: Lsn,
    },
    /// The log did not answer; ask again.
    #[error("the log did not answer; ask again")]
    Unavailable,
}

/// Why an append did not (certainly) happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Somebody else has written the slot.
    #[error("slot after {expected} is taken; the log ends at {tail}")]
    Conflict {
        /// What the group was to follow.
        expected: Lsn,
        /// The end of the log.
        tail: Lsn,
    },
    /// No answer: the group may or may not have been written. Look into its first slot.
    #[error("the append was not answered; it may have been written")]
    Undecided,
    /// The partition was split or merged away.
    #[error("the partition is sealed at {0}; it takes no further entries")]
    Sealed(Lsn),
    /// The disk is full; nothing was written. Make room and write again.
    #[error("the disk is full; nothing was written")]
    DiskFull,
    /// Writing failed before the sync; nothing was written.
    #[error("writing failed; nothing was written")]
    Io(#[source] io::Error),
    /// A sync failed earlier: what is on disk is not known. Reopen the partition.
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
