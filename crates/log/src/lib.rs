//! The partition log: an append-only, checksummed, compactable sequence of entries on disk.
//!
//! A partition is a log, and reading the log is the change feed. This crate keeps the bytes: it knows
//! entries, their records, which record supersedes which, and where each one lies. It does not know
//! what an item is, what a record's meta bytes mean, or who may write.
//!
//! ```text
//! entry 5      6      7          8           9
//!       a      b      a'         c d         ✗b
//!       dead   dead   supersedes two records supersedes 6
//!                     5          one entry   a tombstone
//! ```
//!
//! * [`entry`] is the envelope every state change of a partition travels in.
//! * [`LocalLog`] keeps entries in segments on a [`disk::Disk`], answers reads and compacts.
//! * [`PartitionLog`] is the seam between one machine and many: who decides the next slot.
//! * [`FaultyLog`] answers as a network would, and [`conformance`] is what every log must pass.
//! * [`invariants`] says what a reader may rely on, once for assertions, tests and simulations.
//!
//! `FORMAT.md` in this crate's folder draws every byte.

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

/// Who decides what the next entry of a partition is.
///
/// On one machine that is a file; on many it is a replicated engine, which every node copies into its
/// own [`LocalLog`]. An append may end undecided. Then *the next slot decides*: [`PartitionLog::entry`]
/// at the first slot of the group shows our batch (it was written), another's (it was rejected), or
/// nothing (send the same bytes again).
pub trait PartitionLog: Send + Sync + 'static {
    /// Appends a group of entries right behind `group.after()`, all or nothing as far as readers can
    /// tell, and returns when they are as durable as this log promises.
    fn append(&self, group: Group) -> BoxFuture<Result<(), AppendError>>;

    /// The entry in one slot of this partition's own sequence, if it has been written.
    fn entry(&self, lsn: Lsn) -> BoxFuture<Result<Option<Entry>, ReadError>>;

    /// The last written slot, as far as this log knows. May lag behind in a replicated log.
    fn tail(&self) -> BoxFuture<Result<Tail, ReadError>>;
}
