//! The file system interface of the log, with the durability rules of POSIX.
//!
//! Written bytes are durable after [`DiskFile::sync`], names in a directory after [`Disk::sync_dir`]; nothing is
//! durable earlier. [`OsDisk`] uses the operating system. [`MemoryDisk`] keeps files in memory for ephemeral
//! stores, and injects faults in tests.

mod memory;
mod os;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use memory::MemoryDisk;
pub use os::OsDisk;

/// A file system: directories and files by path.
pub trait Disk: Send + Sync + std::fmt::Debug + 'static {
    /// Creates a directory and its parents.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Lists the names in a directory, in no particular order; empty when there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens a file for reading and writing. With `create`, creates it or truncates an existing one.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, and replaces `to` if it exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a hard link: a second name of a file.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file name; open handles can still read the content.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything in it.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Free bytes of the file system of a directory, if known.
    fn free_bytes(&self, _dir: &Path) -> Option<u64> {
        None
    }
}

/// An open file.
pub trait DiskFile: Send + Sync + std::fmt::Debug + 'static {
    /// Reads into `buffer` from `offset`; an error when the file is shorter.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Reads `length` bytes from `offset`; an error when the file is shorter.
    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        self.read_at(&mut buffer, offset)?;
        Ok(buffer)
    }
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Preallocates the file up to `length`, so that later writes do not change its size.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Writes zeros to an unwritten part of the preallocated range.
    ///
    /// Syncs of later writes there need no metadata update of the blocks. Does nothing on disks without blocks.
    fn zero(&self, _part: Range<u64>) -> io::Result<()> {
        Ok(())
    }
    /// Cuts the file to `length`.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Bytes this file takes on the medium.
    fn allocated(&self) -> io::Result<u64>;
}

/// Reads a whole small file; an error if it is larger than `limit` bytes.
pub fn read_file(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, false)?;
    let length = file.length()?;
    if length > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is larger than it can be",
        ));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Replaces a file atomically: after a crash it has the old or the new content.
pub fn replace_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let file = disk.open(&temporary, true)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&temporary, path).map_err(|error| match error.kind() {
        kind @ (io::ErrorKind::IsADirectory | io::ErrorKind::DirectoryNotEmpty) => {
            let what = format!("a directory is in the place of {}. Remove it", path.display());
            io::Error::new(kind, what)
        }
        _ => error,
    })?;
    disk.sync_dir(path.parent().unwrap_or(Path::new("")))
}
