//! A consistent cut of a log at an exact LSN, while writes go on.
//!
//! Sealed segments never change, and the active one only grows, so a cut is a list of files and how
//! much of each belongs to it. Dead bits are left out: they may already know entries behind the cut.
//! Whoever restores the files finds them out again by replay.

use crate::disk::DiskFile;
use crate::error::ReadError;
use crate::local::LocalLog;
use crate::manifest::{Manifest, Sealed, SegmentInfo};
use crate::segment::Segment;
use headwater_model::Lsn;
use std::sync::Arc;

/// A cut through a log. Holding it keeps its files readable, also when compaction replaces them.
#[derive(Debug)]
pub struct Snapshot {
    /// The last entry that belongs to it.
    pub lsn: Lsn,
    /// The files to copy, the manifest last.
    pub files: Vec<SnapshotFile>,
}

/// A file of a [`Snapshot`].
#[derive(Debug)]
pub struct SnapshotFile {
    /// Its name in the directory of the log.
    pub name: String,
    /// What the log knows about the content of a segment: two files of the same name, length and identity
    /// have the same bytes. `None` for the manifest, which is different in each snapshot.
    pub identity: Option<String>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Segment { segment: Arc<Segment>, bytes: u32 },
    Made(Vec<u8>),
}

impl SnapshotFile {
    /// How many bytes of it belong to the snapshot.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.content {
            Content::Segment { bytes, .. } => u64::from(*bytes),
            Content::Made(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there is nothing to copy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// When the bytes cannot be read.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), ReadError> {
        match &self.content {
            Content::Segment { segment, .. } => {
                let file: &dyn DiskFile = &*segment.file;
                file.read_at(buffer, offset).map_err(|source| ReadError::Io {
                    file: segment.path.display().to_string(),
                    source,
                })
            }
            Content::Made(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(buffer.len());
                let source = bytes.get(start..end).ok_or_else(|| ReadError::Io {
                    file: self.name.clone(),
                    source: std::io::ErrorKind::UnexpectedEof.into(),
                })?;
                buffer.copy_from_slice(source);
                Ok(())
            }
        }
    }
}

impl LocalLog {
    /// Cuts through the log at its end.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        // No compaction swaps files, and no group is half there, while these are held.
        let _one_at_a_time = self.compacting.lock();
        let held = self.hold_appends();
        let (tail, active) = held.position();
        let manifest = self.manifest.lock().clone();
        let set = self.segments.read().clone();
        let mut files = Vec::new();
        let mut infos = Vec::new();
        for segment in set.segments() {
            let sealed = segment.sealed().unwrap_or(active);
            let mut info = segment.current_info();
            // In the copy the active segment is sealed where the cut is.
            info.sealed = Some(sealed);
            files.push(SnapshotFile {
                name: file_name(segment),
                identity: Some(identity(&info, &sealed)),
                content: Content::Segment { segment: segment.clone(), bytes: sealed.bytes },
            });
            infos.push(info);
        }
        drop(held);
        let copy = Manifest {
            reached: tail.lsn,
            clock: tail.timestamp,
            floors: self.floors.read().clone(),
            segments: infos,
            ..manifest
        };
        files.push(SnapshotFile {
            name: "MANIFEST".to_owned(),
            identity: None,
            content: Content::Made(copy.encode()),
        });
        Snapshot { lsn: tail.lsn, files }
    }
}

/// The hash of the last entry covers the entries in front of it, except in a compacted segment; there the
/// number of its records and tombstones has to do.
fn identity(info: &SegmentInfo, sealed: &Sealed) -> String {
    format!(
        "{}-{}-{}-{}-{}-{:016x}-{:016x}-{}",
        info.origin,
        info.first_lsn,
        sealed.last_lsn,
        sealed.records,
        sealed.tombstone_bytes,
        info.previous_hash,
        sealed.last_hash,
        if info.compacted { "compacted" } else { "whole" },
    )
}

fn file_name(segment: &Segment) -> String {
    segment.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
