//! The disk as the log needs it: a handful of calls with the durability rules of a POSIX file system.
//!
//! What is written is durable after [`DiskFile::sync`]; what a directory holds is durable after
//! [`Disk::sync_dir`]. Two implementations: [`OsDisk`] is the real one; [`MemoryDisk`] keeps files in
//! memory, for ephemeral stores and, with its faults switched on, for everything a disk may do to us.

mod memory;
mod os;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use memory::MemoryDisk;
pub use os::OsDisk;

/// A place for files.
pub trait Disk: Send + Sync + std::fmt::Debug + 'static {
    /// Creates a directory and its parents.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// The names in a directory, in no particular order; empty when there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens a file for reading and writing; with `create`, an empty new one in its place.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// Puts `from` in the place of `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; its content stays for those who have it open.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything in it.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Bytes that can still be written below a directory, where that is known.
    fn free_bytes(&self, _dir: &Path) -> Option<u64> {
        None
    }
}

/// An open file.
pub trait DiskFile: Send + Sync + std::fmt::Debug + 'static {
    /// Fills `buffer` from `offset`; an error when the file is shorter.
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
    /// Makes room up to `length`, so that later writes do not change the file's size.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Writes zeros to a part of that room, which nobody has written to, so that syncing later writes
    /// there has nothing to note about the blocks. Where blocks are nothing special nothing happens.
    fn zero(&self, _part: Range<u64>) -> io::Result<()> {
        Ok(())
    }
    /// Cuts the file to `length`.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Bytes this file takes on the medium.
    fn allocated(&self) -> io::Result<u64>;
}

/// Reads a whole (small) file, at most `limit` bytes of it.
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

/// Puts `bytes` in the place of a file in one step: after a crash it is the old or the new one.
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
