//! What the bare machine can do: sync, copy, compute. No store does better.

use super::harness::{ThreadTimer, rate, thread_cpu};
use anyhow::{Context, Result};
use headwater_runtime::Runtime;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Room for writes that are synced; writing starts again at its beginning when it is full.
const SYNCED_BYTES: u64 = 16 << 20;
/// Bytes copied out of the page cache at once: what fits the caches of a core.
const COPY_BYTES: usize = 256 << 10;

/// A file to write to and sync.
///
/// All its blocks were written before, so a data sync has nothing but the data to bring to the disk.
/// That is the limit of the disk. A file that was only allocated also has to note which blocks are in
/// use now; [`allocated_sync_rate`] is the limit of that.
#[derive(Debug)]
pub(crate) struct SyncedFile {
    file: File,
    offset: u64,
}

impl SyncedFile {
    pub(crate) fn create(path: &Path) -> Result<SyncedFile> {
        let file = open_new(path)?;
        let zeros = vec![0; 1 << 20];
        for megabyte in 0..SYNCED_BYTES >> 20 {
            file.write_all_at(&zeros, megabyte << 20)?;
        }
        file.sync_all()?;
        Ok(SyncedFile { file, offset: 0 })
    }

    /// Writes of so many bytes, one behind the other and each synced, per second.
    pub(crate) fn rate(&mut self, clock: &Runtime, bytes: usize, window: Duration) -> Result<f64> {
        let content = vec![b'x'; bytes];
        let started = clock.elapsed();
        let mut count = 0;
        loop {
            if self.offset + bytes as u64 > SYNCED_BYTES {
                self.offset = 0;
            }
            self.file.write_all_at(&content, self.offset)?;
            self.file.sync_data()?;
            self.offset += bytes as u64;
            count += 1;
            let passed = clock.elapsed().saturating_sub(started);
            if passed >= window {
                return Ok(rate(count, passed));
            }
        }
    }
}

/// The same in a file that was allocated but never written, as segments of a log are.
pub(crate) fn allocated_sync_rate(
    clock: &Runtime,
    path: &Path,
    bytes: usize,
    window: Duration,
) -> Result<f64> {
    let file = open_new(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, SYNCED_BYTES)?;
    file.sync_all()?;
    let mut synced = SyncedFile { file, offset: 0 };
    let result = synced.rate(clock, bytes, window);
    std::fs::remove_file(path)?;
    result
}

fn open_new(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .with_context(|| format!("cannot create {}", path.display()))
}

/// A segment of a store's log, and how much of it is in use.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The segments of all containers of a store.
pub(crate) fn segments(store: &Path) -> Result<Vec<Segment>> {
    let mut found = Vec::new();
    let mut folders = vec![store.join("containers")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "seg") {
                let bytes = used_bytes(&path)?;
                found.push(Segment { path, bytes });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

pub(crate) fn total_bytes(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| segment.bytes).sum()
}

/// Where the zeros begin that a file was allocated with.
fn used_bytes(path: &Path) -> Result<u64> {
    let file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut buffer = vec![0; COPY_BYTES];
    while end > 0 {
        let start = end.saturating_sub(COPY_BYTES as u64);
        let chunk = &mut buffer[..usize::try_from(end - start)?];
        file.read_exact_at(chunk, start)?;
        if let Some(last) = chunk.iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Bytes copied out of the page cache into one buffer, per second of CPU.
pub(crate) fn page_cache_copy(segments: &[Segment]) -> Result<f64> {
    let mut buffer = vec![0; COPY_BYTES];
    let timer = ThreadTimer::start();
    for segment in segments {
        let file = File::open(&segment.path)?;
        let mut offset = 0;
        while offset < segment.bytes {
            let left = usize::try_from(segment.bytes - offset)?;
            let chunk = &mut buffer[..left.min(COPY_BYTES)];
            file.read_exact_at(chunk, offset)?;
            offset += chunk.len() as u64;
        }
    }
    Ok(rate(total_bytes(segments), timer.stop()?))
}

/// How many cores this process gets when it wants all of them.
pub(crate) fn free_cores(clock: &Runtime, cores: usize, window: Duration) -> f64 {
    let started = clock.elapsed();
    let busy = |clock: &Runtime| {
        let before = thread_cpu();
        while clock.elapsed().saturating_sub(started) < window {
            std::hint::spin_loop();
        }
        thread_cpu().saturating_sub(before)
    };
    let used: Duration = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(|| busy(clock))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
    });
    let passed = clock.elapsed().saturating_sub(started);
    used.as_secs_f64() / passed.as_secs_f64().max(1e-9)
}

/// Bytes that the files under a directory take on the disk, as `du` counts them.
pub(crate) fn disk_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut total = 0;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                // A background task of the store may have removed it just now.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                other => other?,
            };
            total += metadata.blocks() * 512;
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zeros_of_an_allocation_are_not_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.seg");
        std::fs::write(&path, b"content").unwrap();
        assert_eq!(used_bytes(&path).unwrap(), 7);
        File::options().write(true).open(&path).unwrap().set_len(3 * COPY_BYTES as u64).unwrap();
        assert_eq!(used_bytes(&path).unwrap(), 7);
    }
}
