//! Files and directories of the operating system. Never syncs unless the caller requests it.

use super::{Disk, DiskFile};
use crate::private;
use headwater_runtime::slow_read;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Buffers up to this size are zeroed before the read. That costs less than another system call, and a read
/// without waiting needs initialised memory.
const CLEARED_MAX: usize = 16 << 10;
/// The source of zeros for preallocated blocks. A fresh buffer would be cleared again for each call.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// How many times `ZEROS` is written in one call.
///
/// One large write gives large contiguous pieces in the page cache, which are faster to read later. With calls of
/// 64 KiB, a read of a whole log takes 7 % longer.
const ZEROS_AT_ONCE: usize = 64;

/// The file system of the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        private::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file =
            private::options().read(true).write(true).create(create).truncate(create).open(path)?;
        Ok(Arc::new(OsFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // A relative path with one component is in the working directory.
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        File::open(dir)?.sync_all()
    }

    fn free_bytes(&self, dir: &Path) -> Option<u64> {
        let found = rustix::fs::statvfs(dir).ok()?;
        found.f_bavail.checked_mul(found.f_frsize)
    }
}

#[derive(Debug)]
struct OsFile(File);

/// The result of a read that does not wait for the disk.
enum AtOnce {
    /// This many bytes were read from the page cache.
    Read(usize),
    /// The system does not support such reads.
    Unknown,
}

impl OsFile {
    /// Reads the bytes that are in the page cache, without waiting for the disk.
    #[cfg(target_os = "linux")]
    fn read_at_once(&self, buffer: &mut [u8], offset: u64) -> AtOnce {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let mut buffers = [io::IoSliceMut::new(buffer)];
        match preadv2(&self.0, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => AtOnce::Read(count),
            Err(Errno::AGAIN) => AtOnce::Read(0),
            Err(_) => AtOnce::Unknown,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn read_at_once(&self, _: &mut [u8], _: u64) -> AtOnce {
        AtOnce::Unknown
    }

    /// Whether a read is likely to wait for the disk: its first or last byte is not in the page cache.
    fn is_slow(&self, offset: u64, length: usize) -> bool {
        let last = offset + length.saturating_sub(1) as u64;
        [offset, last]
            .into_iter()
            .any(|place| matches!(self.read_at_once(&mut [0], place), AtOnce::Read(0)))
    }

    fn read_now(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::with_capacity(length);
        while buffer.len() < length {
            let at = offset + buffer.len() as u64;
            match rustix::io::pread(&self.0, rustix::buffer::spare_capacity(&mut buffer), at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        buffer.truncate(length);
        Ok(buffer)
    }
}

impl DiskFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at_once(buffer, offset) {
            AtOnce::Read(count) if count == buffer.len() => Ok(()),
            AtOnce::Read(count) => {
                let (rest, offset) = (&mut buffer[count..], offset + count as u64);
                slow_read(|| self.0.read_exact_at(rest, offset))
            }
            AtOnce::Unknown => self.0.read_exact_at(buffer, offset),
        }
    }

    /// Reads large ranges into uninitialised memory: this copy is most of the cost of a feed page.
    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        if length <= CLEARED_MAX {
            let mut buffer = vec![0; length];
            return self.read_at(&mut buffer, offset).map(|()| buffer);
        }
        match self.is_slow(offset, length) {
            true => slow_read(|| self.read_now(offset, length)),
            false => self.read_now(offset, length),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let current = self.length()?;
        if current >= length {
            return Ok(());
        }
        let grown = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(
                &self.0,
                rustix::fs::FallocateFlags::empty(),
                current,
                length - current,
            )
        });
        match grown {
            // Not every file system supports this. Then writes extend the file, which is only slower.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    fn zero(&self, part: Range<u64>) -> io::Result<()> {
        let mut at = part.start;
        while at < part.end {
            let left = usize::try_from(part.end - at).unwrap_or(usize::MAX);
            let whole = (left / ZEROS.len()).min(ZEROS_AT_ONCE);
            let rest = left.min(ZEROS.len() * ZEROS_AT_ONCE) - whole * ZEROS.len();
            let mut pieces = vec![IoSlice::new(&ZEROS); whole];
            pieces.push(IoSlice::new(&ZEROS[..rest]));
            match rustix::io::pwritev(&self.0, &pieces, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => at += count as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.blocks() * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;

    #[test]
    fn a_part_of_any_length_is_zeroed_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = OsDisk.open(&dir.path().join("file"), true).unwrap();
        let length = 3 * ZEROS.len();
        for part in [0..0, 1..2, 7..ZEROS.len() + 7, 5..2 * ZEROS.len() + 6, 0..length] {
            file.write_at(&vec![1; length], 0).unwrap();
            file.zero(part.start as u64..part.end as u64).unwrap();
            let read = std::fs::read(dir.path().join("file")).unwrap();
            let zeros = |(at, byte): (usize, &u8)| (*byte == 0) == part.contains(&at);
            assert!(read.len() == length && read.iter().enumerate().all(zeros), "{part:?}");
        }
    }

    /// Reads with different parts of the file in the page cache.
    #[test]
    fn a_read_is_the_same_from_memory_and_from_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = OsDisk.open(&path, true).unwrap();
        let bytes: Vec<u8> = (0..700_001_u32).flat_map(u32::to_le_bytes).collect();
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        let forget = || {
            let file = File::open(&path).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        };
        for (offset, length) in [(0, bytes.len()), (5, 1), (4_000, 300_000), (2_500_000, 300_004)] {
            let expected = &bytes[offset..offset + length];
            for warm in [0, 1, length] {
                forget();
                file.read_at(&mut vec![0; warm], offset as u64).unwrap();
                let mut buffer = vec![0; length];
                file.read_at(&mut buffer, offset as u64).unwrap();
                assert!(buffer == expected, "{length} at {offset}, {warm} in memory");
                forget();
                file.read_at(&mut vec![0; warm], offset as u64).unwrap();
                assert!(file.read(offset as u64, length).unwrap() == expected);
            }
        }
        for result in
            [file.read_at(&mut [0; 8], bytes.len() as u64 - 7), file.read(1 << 30, 1).map(drop)]
        {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
