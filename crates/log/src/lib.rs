//! The partition log: an append-only, checksummed, compactable sequence of entries on disk.
//!
//! A partition is a log, and reading the log is the change feed. This crate stores entries and their records,
//! tracks which record supersedes which, and finds each one by position. It never interprets items or a
//! record's meta bytes, and never checks permissions.
//!
//! ```text
//! entry 5      6      7          8           9
//!       a      b      a'         c d         ✗b
//!       dead   dead   supersedes two records supersedes 6
//!                     5          one entry   a tombstone
//! ```
//!
//! * [`entry`] is the encoding of a state change of a partition.
//! * [`LocalLog`] keeps entries in segments on a [`disk::Disk`], serves reads and compacts.
//! * [`PartitionLog`] is the interface of local and replicated logs.
//! * [`FaultyLog`] simulates an unreliable network, and [`conformance`] tests every log.
//! * [`invariants`] defines what a reader may rely on, for assertions, tests and simulations.
//!
//! `FORMAT.md` in this crate's folder specifies every byte.

mod buffers;
mod checksum;
mod codec;
mod compaction;
pub mod conformance;
mod decide;
pub mod disk;
pub mod entry;
mod error;
mod faulty;
mod floors;
#[doc(hidden)]
pub mod fuzzing;
pub mod invariants;
mod liveness;
mod local;
mod manifest;
mod meter;
pub mod private;
mod read;
mod recovery;
mod ring;
pub mod salvage;
mod segment;
mod snapshot;
mod table;

use headwater_model::Lsn;
use headwater_runtime::BoxFuture;

pub use compaction::{Compacted, CompactionPolicy};
pub use decide::append_decided;
pub use entry::{Entry, Group, GroupBuilder, NewRecord, Position, Record, RecordKind, Tail};
pub use error::{AppendError, Damage, OpenError, ReadError};
pub use faulty::{Faults, FaultyLog};
pub use local::{Ancestor, Durability, LocalLog, LogOptions, LogStatistics, Opened, RecordReader};
pub use meter::{Histogram, HistogramFigures, LogFigures, LogMeter};
pub use read::{Batch, Extent, ReadRequest, Which};
pub use snapshot::{Snapshot, SnapshotFile};

/// A log with compare-and-append: the authority on a partition's next entry.
///
/// On one machine this is a file; in a cluster it is a replicated engine, which every node copies into its own
/// [`LocalLog`]. The outcome of an append may be unknown ([`AppendError::Undecided`]). Then the first slot of
/// the group decides. [`PartitionLog::entry`] shows the batch of this group (written), another batch
/// (rejected), or nothing (send the same bytes again).
pub trait PartitionLog: Send + Sync + 'static {
    /// Appends a group of entries directly after `group.after()`, atomically for readers.
    ///
    /// Returns when the entries are as durable as this log promises.
    fn append(&self, group: Group) -> BoxFuture<Result<(), AppendError>>;

    /// Reads the entry in one slot of this partition's own sequence; `None` if it is not written.
    fn entry(&self, lsn: Lsn) -> BoxFuture<Result<Option<Entry>, ReadError>>;

    /// The end of the log. May be stale in a replicated log.
    fn tail(&self) -> BoxFuture<Result<Tail, ReadError>>;
}
