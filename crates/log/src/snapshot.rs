//! A consistent snapshot of a log at an exact LSN, while writes continue.
//!
//! Sealed segments never change, and the active one only grows, so a snapshot is a list of files and lengths.
//! Dead bits are left out, because they may include entries after the snapshot. A restore recomputes them by
//! replay.

use crate::disk::DiskFile;
use crate::error::ReadError;
use crate::local::LocalLog;
use crate::manifest::{Manifest, Sealed, SegmentInfo};
use crate::segment::Segment;
use headwater_model::Lsn;
use std::sync::Arc;

/// A snapshot of a log. While it exists its files stay readable, even if compaction replaces them.
#[derive(Debug)]
pub struct Snapshot {
    /// The last entry in the snapshot.
    pub lsn: Lsn,
    /// The files to copy, the manifest last.
    pub files: Vec<SnapshotFile>,
}

/// A file of a [`Snapshot`].
#[derive(Debug)]
pub struct SnapshotFile {
    /// Its name in the directory of the log.
    pub name: String,
    /// Identifies the content of a segment: files with the same name, length and identity have the same bytes.
    /// `None` for the manifest, which differs in each snapshot.
    pub identity: Option<String>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Segment { segment: Arc<Segment>, bytes: u32 },
    Made(Vec<u8>),
}

impl SnapshotFile {
    /// The length of the file in the snapshot.
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
    /// Takes a snapshot at the end of the log.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        // While these are held, no compaction swaps files and no append is in progress.
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
            // In the copy, the active segment is sealed at the snapshot's LSN.
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

/// A text that identifies the content of a segment.
///
/// The hash of the last entry covers the entries before it through the chain. In a compacted segment the chain
/// is broken, so the numbers of records and tombstone bytes identify it.
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
