//! One segment: a file of entries in order of their LSNs, append-only until it is sealed, then read-only.

use crate::buffers;
use crate::disk::{Disk, DiskFile, read_file, replace_file};
use crate::entry::{self, BadEntry, Header};
use crate::error::{Damage, OpenError, ReadError};
use crate::liveness::DeadBits;
use crate::manifest::{Sealed, SegmentInfo};
use crate::recovery;
use crate::table::Table;
use bytes::Bytes;
use headwater_model::{Lsn, PartitionId};
use parking_lot::RwLock;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const MAGIC: &[u8; 8] = b"HWSEG\0\0\x01";
/// Size of the segment header, before the first entry.
pub(crate) const HEADER_BYTES: u32 = 64;

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) info: SegmentInfo,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) dead: DeadBits,
    /// Set once, when the segment is sealed.
    sealed: OnceLock<Sealed>,
    /// Loaded on first use; always loaded for the active segment. Never read a file while holding this lock,
    /// because the writer waits for it.
    table: RwLock<Option<Table>>,
    disk: Arc<dyn Disk>,
}

pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.seg"))
}

pub(crate) fn table_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.tab"))
}

/// The number in the name of a log file with this extension; `None` for other names.
pub(crate) fn number_of(name: &str, extension: &str) -> Option<u64> {
    let stem = name.strip_suffix(extension)?.strip_suffix('.')?;
    let is_ours = stem.len() >= 8 && stem.bytes().all(|byte| byte.is_ascii_digit());
    is_ours.then(|| stem.parse().ok())?
}

/// The partition named in the header of a segment file; `None` if the header is unreadable or damaged.
pub(crate) fn origin(file: &dyn DiskFile) -> Option<PartitionId> {
    let mut header = [0; HEADER_BYTES as usize];
    file.read_at(&mut header, 0).ok()?;
    let mut reader = crate::codec::Reader::new(crate::codec::checked_content(&header)?);
    let magic = reader.take(MAGIC.len()).ok()?;
    let origin = PartitionId::new(reader.u32().ok()?);
    (magic == MAGIC).then_some(origin)
}

pub(crate) fn encode_header(origin: PartitionId, first_lsn: Lsn, previous_hash: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES as usize);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&origin.get().to_le_bytes());
    out.extend_from_slice(&first_lsn.get().to_le_bytes());
    out.extend_from_slice(&previous_hash.to_le_bytes());
    out.resize(HEADER_BYTES as usize - 4, 0);
    crate::codec::seal_with_crc(&mut out);
    out
}

impl Segment {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        file: Arc<dyn DiskFile>,
        info: SegmentInfo,
        dead: DeadBits,
        table: Option<Table>,
    ) -> Segment {
        let sealed = OnceLock::new();
        if let Some(known) = info.sealed {
            let _ = sealed.set(known);
        }
        Segment { info, path, file, dead, sealed, table: RwLock::new(table), disk }
    }

    /// Creates an empty segment file with its header, synced.
    pub(crate) fn create(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        info: SegmentInfo,
    ) -> std::io::Result<Segment> {
        let path = segment_path(dir, info.number);
        let file = disk.open(&path, true)?;
        file.write_at(&encode_header(info.origin, info.first_lsn, info.previous_hash), 0)?;
        file.sync()?;
        disk.sync_dir(dir)?;
        let table = Table::new(info.first_lsn, HEADER_BYTES);
        Ok(Segment::new(disk.clone(), path, file, info, DeadBits::default(), Some(table)))
    }

    /// Opens a segment file and checks that it is the one the manifest describes.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        info: SegmentInfo,
        dead: DeadBits,
    ) -> Result<Segment, OpenError> {
        let path = segment_path(dir, info.number);
        let damaged =
            |offset: u64, what: &str| Damage::new(&path, offset, Some(info.first_lsn), what);
        let io = |source| OpenError::Io { dir: path.clone(), source };
        let file = match disk.open(&path, false) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(damaged(0, "the file is missing").into());
            }
            other => other.map_err(io)?,
        };
        let length = file.length().map_err(io)?;
        let expected =
            info.sealed.map_or(u64::from(HEADER_BYTES), |sealed| u64::from(sealed.bytes));
        if length < expected {
            return Err(damaged(length, &format!("the file ends before byte {expected}")).into());
        }
        let mut header = vec![0; HEADER_BYTES as usize];
        file.read_at(&mut header, 0).map_err(io)?;
        if header != encode_header(info.origin, info.first_lsn, info.previous_hash) {
            return Err(damaged(0, "the header is not the one the manifest names").into());
        }
        Ok(Segment::new(disk.clone(), path, file, info, dead, None))
    }

    pub(crate) fn set_table(&self, table: Table) {
        *self.table.write() = Some(table);
    }

    pub(crate) fn sealed(&self) -> Option<Sealed> {
        self.sealed.get().copied()
    }

    pub(crate) fn seal(&self, sealed: Sealed) {
        let _ = self.sealed.set(sealed);
    }

    /// The current description of this segment for the manifest.
    pub(crate) fn current_info(&self) -> SegmentInfo {
        SegmentInfo { sealed: self.sealed(), ..self.info.clone() }
    }

    /// Calls `look` with the offset table, and loads the table first if needed.
    pub(crate) fn with_table<T>(&self, look: impl FnOnce(&Table) -> T) -> Result<T, ReadError> {
        if let Some(table) = &*self.table.read() {
            return Ok(look(table));
        }
        let loaded = self.load_table()?;
        let mut slot = self.table.write();
        Ok(look(slot.get_or_insert(loaded)))
    }

    /// Calls `extend` to add rows to the table of the active segment.
    pub(crate) fn extend_table(&self, extend: impl FnOnce(&mut Table)) {
        let mut slot = self.table.write();
        extend(slot.get_or_insert_with(|| Table::new(self.info.first_lsn, HEADER_BYTES)));
    }

    fn load_table(&self) -> Result<Table, ReadError> {
        let path = self.path.with_extension("tab");
        let stored = read_file(&*self.disk, &path, 1 << 30);
        let is_missing = stored.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let stored = stored.ok().and_then(|bytes| Table::decode(&bytes));
        let sealed = self.sealed();
        let fits = |table: &Table| {
            sealed.is_none_or(|sealed| {
                table.base() == self.info.first_lsn
                    && table.end() == sealed.bytes
                    && table.len() == sealed.records as usize
            })
        };
        if let Some(table) = stored.filter(fits) {
            return Ok(table);
        }
        // A restored backup has no tables, so a missing one is not damage.
        match is_missing {
            true => tracing::info!(file = %path.display(), "built the offset table"),
            false => tracing::warn!(file = %path.display(), "offset table damaged, rebuilt"),
        }
        let table = recovery::rebuild_table(self)?;
        // The file only speeds up later opens; a full disk must not fail a read.
        if let Err(error) = replace_file(&*self.disk, &path, &table.encode()) {
            tracing::warn!(file = %path.display(), %error, "could not save the offset table");
        }
        Ok(table)
    }

    /// Reads bytes of the file.
    pub(crate) fn read(&self, from: u32, to: u32) -> Result<Bytes, ReadError> {
        let read = self.file.read(u64::from(from), (to - from) as usize);
        read.map(Bytes::from).map_err(|source| self.unreadable(from, source))
    }

    /// Reads several pieces of the file into one buffer, in order.
    pub(crate) fn read_pieces(&self, pieces: &[Range<u32>]) -> Result<Bytes, ReadError> {
        let total = pieces.iter().map(|piece| (piece.end - piece.start) as usize).sum();
        let mut reached = pieces.first().map_or(0, |first| first.start);
        let mut fill = |buffer: &mut [u8]| {
            let mut rest = buffer;
            for piece in pieces {
                reached = piece.start;
                let (place, behind) = rest.split_at_mut((piece.end - piece.start) as usize);
                self.file.read_at(place, u64::from(piece.start))?;
                rest = behind;
            }
            Ok(())
        };
        let read = match pieces {
            _ if buffers::suits(total) => buffers::filled(total, &mut fill),
            [piece] => self.file.read(u64::from(piece.start), total).map(Bytes::from),
            _ => {
                let mut buffer = vec![0; total];
                fill(&mut buffer).map(|()| Bytes::from(buffer))
            }
        };
        read.map_err(|source| self.unreadable(reached, source))
    }

    fn unreadable(&self, from: u32, source: std::io::Error) -> ReadError {
        if source.kind() == std::io::ErrorKind::UnexpectedEof {
            let what = "the file ends before its content does";
            return ReadError::Damaged(Damage::new(&self.path, u64::from(from), None, what));
        }
        ReadError::Io { file: self.path.display().to_string(), source }
    }

    /// Checks one entry that is known to start at `offset` and to have `lsn`.
    pub(crate) fn check_entry(
        &self,
        bytes: &[u8],
        offset: u32,
        lsn: Lsn,
    ) -> Result<Header, ReadError> {
        self.expect(entry::check(bytes), offset, lsn)
    }

    /// Checks that the header found at `offset` belongs to the expected entry.
    #[inline]
    pub(crate) fn expect(
        &self,
        found: Result<Header, BadEntry>,
        offset: u32,
        lsn: Lsn,
    ) -> Result<Header, ReadError> {
        let header = found.map_err(|bad| self.damage(offset, lsn, bad))?;
        if header.lsn != lsn || header.partition != self.info.origin {
            return Err(self.damage(offset, lsn, BadEntry::Inconsistent));
        }
        Ok(header)
    }

    pub(crate) fn damage(&self, offset: u32, lsn: Lsn, bad: BadEntry) -> ReadError {
        Damage::new(&self.path, u64::from(offset), Some(lsn), bad.to_string()).into()
    }

    /// Marks one record dead. False when it is not in this segment or already dead.
    pub(crate) fn mark_dead(&self, lsn: Lsn, ordinal: u16) -> Result<bool, ReadError> {
        self.with_table(|table| {
            let Some(number) = table.find(lsn, ordinal) else {
                return false;
            };
            let Some(row) = table.row(number) else {
                return false;
            };
            let entry_bytes = u64::from(table.entry_end(number) - row.offset);
            self.dead.set(number, entry_bytes / u64::from(row.siblings.max(1)))
        })
    }

    /// Whether a record is dead. True for a record that is not in this segment.
    pub(crate) fn is_dead(&self, lsn: Lsn, ordinal: u16) -> Result<bool, ReadError> {
        self.with_table(|table| {
            table.find(lsn, ordinal).is_none_or(|number| self.dead.is_dead(number))
        })
    }
}
