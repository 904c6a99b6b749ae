//! A disk in memory, with fault injection.
//!
//! Without faults this is the disk of an ephemeral store. With [`MemoryDisk::with_faults`] it tracks durable and
//! unsynced state separately, so that [`MemoryDisk::crash`] leaves what a power cut may leave: none or any part
//! of the unsynced changes, torn at any byte.
//!
//! A failed sync behaves as on Linux: its bytes can still be read, but no later sync makes them durable. Only
//! another write does. No byte ever reaches a real disk.

use super::{Disk, DiskFile};
use headwater_runtime::Random;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Arc<State>);

#[derive(Debug)]
struct State {
    tree: Mutex<Tree>,
    track_unsynced: bool,
    fail_syncs: AtomicBool,
    /// Free bytes before the disk is full.
    room: AtomicU64,
    /// Changes left before the power cut; `u64::MAX` for no limit.
    changes_left: AtomicU64,
    /// Files that cannot be opened.
    denied: Mutex<BTreeSet<PathBuf>>,
}

impl State {
    /// Counts one change; an error when the power is out.
    fn change(&self) -> io::Result<()> {
        if self.changes_left.load(Ordering::Relaxed) == u64::MAX {
            return Ok(());
        }
        let counted =
            self.changes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
                u64::MAX => Some(left),
                _ => left.checked_sub(1),
            });
        match counted {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("the power is out")),
        }
    }
}

#[derive(Debug, Default)]
struct Tree {
    /// The current names.
    names: Names,
    /// The durable names; tracked only by a disk with faults.
    durable: Names,
    /// The unsynced changes from `durable` to `names`, oldest first; tracked only by a disk with faults.
    pending: Vec<NameChange>,
    /// Every directory that was ever created.
    known_dirs: BTreeSet<PathBuf>,
}

/// The existing files and directories.
#[derive(Clone, Debug, Default)]
struct Names {
    files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    dirs: BTreeSet<PathBuf>,
}

/// A change to the names in one directory.
#[derive(Debug)]
struct NameChange {
    /// Syncing this directory makes the change durable.
    dir: PathBuf,
    steps: Vec<NameStep>,
}

#[derive(Debug)]
enum NameStep {
    Put(PathBuf, Arc<MemoryFile>),
    Remove(PathBuf, Arc<MemoryFile>),
    PutDir(PathBuf),
    RemoveDir(PathBuf),
}

impl Names {
    fn apply(&mut self, step: &NameStep) {
        match step {
            NameStep::Put(path, file) => {
                self.files.insert(path.clone(), file.clone());
            }
            // The name may belong to another file now.
            NameStep::Remove(path, file) => {
                if self.files.get(path).is_some_and(|known| Arc::ptr_eq(known, file)) {
                    self.files.remove(path);
                }
            }
            NameStep::PutDir(path) => {
                self.dirs.insert(path.clone());
            }
            NameStep::RemoveDir(path) => {
                self.dirs.remove(path);
            }
        }
    }
}

impl Tree {
    fn change(&mut self, dir: &Path, steps: Vec<NameStep>, tracked: bool) {
        steps.iter().for_each(|step| self.names.apply(step));
        if tracked {
            self.pending.push(NameChange { dir: dir.to_owned(), steps });
        }
    }

    /// Applies a power cut to the names.
    ///
    /// Unsynced changes survive up to some point, as with a journal, or independently of each other, as POSIX
    /// allows.
    fn crash(&mut self, random: &mut Random) {
        let in_order = random.chance(50);
        let keep = if random.chance(50) { 0 } else { random.index(self.pending.len() + 1) };
        let mut left = std::mem::take(&mut self.durable);
        for (number, change) in std::mem::take(&mut self.pending).iter().enumerate() {
            let survives = if in_order { number < keep } else { random.chance(50) };
            if survives {
                change.steps.iter().for_each(|step| left.apply(step));
            }
        }
        // The content of a lost directory is unreachable.
        let gone: BTreeSet<PathBuf> = self.known_dirs.difference(&left.dirs).cloned().collect();
        let is_gone = |path: &Path| path.ancestors().skip(1).any(|dir| gone.contains(dir));
        left.files.retain(|path, _| !is_gone(path));
        left.dirs.retain(|dir| !is_gone(dir));
        self.names = left;
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: std::sync::Weak<State>,
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    /// The current content.
    bytes: Vec<u8>,
    /// The durable content; tracked only by a disk with faults.
    durable: Vec<u8>,
    /// The unsynced changes from `durable` to `bytes`, oldest first; tracked only by a disk with faults.
    pending: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    change: Change,
    /// A sync of this change failed: later syncs skip its bytes.
    forgotten: bool,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { length: usize },
}

impl Content {
    fn whole(bytes: Vec<u8>, tracked: bool) -> Content {
        Content {
            durable: if tracked { bytes.clone() } else { Vec::new() },
            bytes,
            pending: Vec::new(),
        }
    }

    fn note(&mut self, change: Change) {
        self.pending.push(Pending { change, forgotten: false });
    }

    fn sync(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            match pending.change {
                Change::Write { offset, bytes } if pending.forgotten => {
                    // The file size is metadata and is synced separately from the lost bytes.
                    if self.durable.len() < offset + bytes.len() {
                        self.durable.resize(offset + bytes.len(), 0);
                    }
                }
                Change::Write { offset, bytes } => put(&mut self.durable, offset, &bytes),
                Change::Truncate { length } => self.durable.truncate(length),
            }
        }
    }
}

fn put(target: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if target.len() < end {
        target.resize(end, 0);
    }
    target[offset..end].copy_from_slice(bytes);
}

impl Default for MemoryDisk {
    fn default() -> MemoryDisk {
        MemoryDisk::new()
    }
}

impl MemoryDisk {
    /// An empty disk that never fails and is not durable.
    #[must_use]
    pub fn new() -> MemoryDisk {
        MemoryDisk::make(false)
    }

    /// An empty disk that can crash and fail.
    #[must_use]
    pub fn with_faults() -> MemoryDisk {
        MemoryDisk::make(true)
    }

    fn make(track_unsynced: bool) -> MemoryDisk {
        MemoryDisk(Arc::new(State {
            tree: Mutex::default(),
            track_unsynced,
            fail_syncs: AtomicBool::new(false),
            room: AtomicU64::new(u64::MAX),
            changes_left: AtomicU64::new(u64::MAX),
            denied: Mutex::default(),
        }))
    }

    /// Makes every sync fail from now on, or succeed again.
    pub fn fail_syncs(&self, fail: bool) {
        self.0.fail_syncs.store(fail, Ordering::SeqCst);
    }

    /// Limits the growth of all files to `bytes`; overwriting existing bytes is always possible.
    pub fn set_room(&self, bytes: u64) {
        self.0.room.store(bytes, Ordering::SeqCst);
    }

    /// Makes every open of a file fail with `PermissionDenied` from now on.
    pub fn deny(&self, path: &Path) {
        self.0.denied.lock().insert(path.to_owned());
    }

    /// Cuts the power after this many more changes (writes, syncs, new names).
    ///
    /// Later changes fail and have no effect. [`MemoryDisk::crash`] switches the power on again.
    pub fn cut_power_after(&self, changes: u64) {
        self.0.changes_left.store(changes, Ordering::SeqCst);
    }

    /// Whether the power is out.
    #[must_use]
    pub fn is_out_of_power(&self) -> bool {
        self.0.changes_left.load(Ordering::SeqCst) == 0
    }

    /// Simulates a power cut: `random` decides which unsynced changes survive.
    ///
    /// Writes of one file survive up to some point, or independently of each other (a disk may reorder them), and
    /// may be torn at any byte. Changes of names survive up to some point, or independently of each other. The
    /// content of a lost directory is lost too.
    pub fn crash(&self, random: &mut Random) {
        assert!(self.0.track_unsynced, "a disk without faults cannot crash");
        let mut tree = self.0.tree.lock();
        // Open handles belong to the killed process. Files get new identities, so those handles can no longer
        // reach the disk.
        tree.crash(random);
        let mut renewed: Vec<(*const MemoryFile, Arc<MemoryFile>)> = Vec::new();
        let paths: Vec<PathBuf> = tree.names.files.keys().cloned().collect();
        for path in paths {
            let file = tree.names.files[&path].clone();
            let known = renewed.iter().find(|(old, _)| *old == Arc::as_ptr(&file));
            let fresh = match known {
                Some((_, fresh)) => fresh.clone(),
                None => {
                    let left = after_crash(&file.content.lock(), random);
                    let fresh = Arc::new(MemoryFile {
                        disk: Arc::downgrade(&self.0),
                        content: Mutex::new(Content::whole(left, true)),
                    });
                    renewed.push((Arc::as_ptr(&file), fresh.clone()));
                    fresh
                }
            };
            tree.names.files.insert(path, fresh);
        }
        tree.durable = tree.names.clone();
        drop(tree);
        self.fail_syncs(false);
        self.set_room(u64::MAX);
        self.cut_power_after(u64::MAX);
    }

    /// All files with their lengths, sorted by name.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, usize)> {
        let tree = self.0.tree.lock();
        let files = &tree.names.files;
        files.iter().map(|(path, file)| (path.clone(), file.content.lock().bytes.len())).collect()
    }

    /// Flips one bit of a file, as a failing medium would. False when there is no such byte.
    pub fn flip(&self, path: &Path, offset: usize, bit: u8) -> bool {
        let tree = self.0.tree.lock();
        let Some(file) = tree.names.files.get(path) else {
            return false;
        };
        let mut content = file.content.lock();
        if let Some(byte) = content.durable.get_mut(offset) {
            *byte ^= 1 << (bit % 8);
        }
        let Some(byte) = content.bytes.get_mut(offset) else {
            return false;
        };
        *byte ^= 1 << (bit % 8);
        true
    }

    /// Copies all files to a new disk of the same kind.
    #[must_use]
    pub fn fork(&self) -> MemoryDisk {
        let copy = MemoryDisk::make(self.0.track_unsynced);
        let tree = self.0.tree.lock();
        let mut target = copy.0.tree.lock();
        target.names.dirs.clone_from(&tree.names.dirs);
        target.known_dirs.clone_from(&tree.known_dirs);
        for (path, file) in &tree.names.files {
            let bytes = file.content.lock().bytes.clone();
            let content = Content::whole(bytes, self.0.track_unsynced);
            let disk = Arc::downgrade(&copy.0);
            let file = Arc::new(MemoryFile { disk, content: Mutex::new(content) });
            target.names.files.insert(path.clone(), file);
        }
        if self.0.track_unsynced {
            target.durable = target.names.clone();
        }
        drop(target);
        copy
    }

    /// Changes names in the directory of `path`; a crash keeps all or none of these steps.
    fn change_names(&self, tree: &mut Tree, path: &Path, steps: Vec<NameStep>) {
        tree.change(parent_of(path), steps, self.0.track_unsynced);
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// The content of a file after a power cut: its durable bytes and a random part of the unsynced changes.
fn after_crash(content: &Content, random: &mut Random) -> Vec<u8> {
    let mut left = content.durable.clone();
    if random.chance(30) {
        return left;
    }
    // The page cache may have been written back in order, up to one of the changes.
    let whole = random.chance(30).then(|| random.index(content.pending.len() + 1));
    for (number, pending) in content.pending.iter().enumerate() {
        let is_whole = whole.is_some_and(|whole| number < whole);
        if whole.is_some_and(|whole| number > whole) {
            break;
        }
        match &pending.change {
            // A write survives completely, not at all, or as one contiguous piece.
            Change::Write { offset, bytes } => {
                let (from, to) = match random.below(3) {
                    _ if is_whole => (0, bytes.len()),
                    0 => continue,
                    1 => (0, bytes.len()),
                    _ => {
                        let from =
                            if random.chance(50) { 0 } else { random.index(bytes.len() + 1) };
                        (from, from + random.index(bytes.len() - from + 1))
                    }
                };
                if from < to {
                    put(&mut left, offset + from, &bytes[from..to]);
                }
            }
            Change::Truncate { length } => {
                if is_whole || random.chance(50) {
                    left.truncate(*length);
                }
            }
        }
    }
    left
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

impl Disk for MemoryDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut tree = self.0.tree.lock();
        let mut missing: Vec<&Path> = dir
            .ancestors()
            .filter(|dir| !dir.as_os_str().is_empty() && !tree.names.dirs.contains(*dir))
            .collect();
        // Parents first: each directory is a name in its parent.
        while let Some(dir) = missing.pop() {
            tree.known_dirs.insert(dir.to_owned());
            self.change_names(&mut tree, dir, vec![NameStep::PutDir(dir.to_owned())]);
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let tree = self.0.tree.lock();
        let names = tree.names.files.keys().chain(tree.names.dirs.iter()).filter_map(|path| {
            let rest = path.strip_prefix(dir).ok()?;
            Some(rest.components().next()?.as_os_str().to_string_lossy().into_owned())
        });
        Ok(names.collect::<BTreeSet<String>>().into_iter().collect())
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        if create {
            self.0.change()?;
        }
        if self.0.denied.lock().contains(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut tree = self.0.tree.lock();
        if create {
            let file =
                Arc::new(MemoryFile { disk: Arc::downgrade(&self.0), content: Mutex::default() });
            let put = NameStep::Put(path.to_owned(), file.clone());
            self.change_names(&mut tree, path, vec![put]);
            return Ok(file);
        }
        let file = tree.names.files.get(path).ok_or_else(|| not_found(path))?;
        Ok(file.clone())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.change()?;
        let mut tree = self.0.tree.lock();
        let file = tree.names.files.get(from).cloned().ok_or_else(|| not_found(from))?;
        let put = NameStep::Put(to.to_owned(), file.clone());
        self.change_names(&mut tree, to, vec![put, NameStep::Remove(from.to_owned(), file)]);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.change()?;
        let mut tree = self.0.tree.lock();
        let file = tree.names.files.get(from).cloned().ok_or_else(|| not_found(from))?;
        if tree.names.files.contains_key(to) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the name is taken"));
        }
        self.change_names(&mut tree, to, vec![NameStep::Put(to.to_owned(), file)]);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.change()?;
        let mut tree = self.0.tree.lock();
        let file = tree.names.files.get(path).cloned().ok_or_else(|| not_found(path))?;
        self.change_names(&mut tree, path, vec![NameStep::Remove(path.to_owned(), file)]);
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.change()?;
        let mut tree = self.0.tree.lock();
        let files = tree.names.files.iter().filter(|(path, _)| path.starts_with(dir));
        let files = files.map(|(path, file)| NameStep::Remove(path.clone(), file.clone()));
        let dirs = tree.names.dirs.iter().rev().filter(|path| path.starts_with(dir));
        let dirs = dirs.map(|path| NameStep::RemoveDir(path.clone()));
        // One change per name, so that a power cut may leave some of them.
        for step in files.chain(dirs).collect::<Vec<_>>() {
            let path = match &step {
                NameStep::Put(path, _)
                | NameStep::Remove(path, _)
                | NameStep::PutDir(path)
                | NameStep::RemoveDir(path) => path.clone(),
            };
            self.change_names(&mut tree, &path, vec![step]);
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.change()?;
        if self.0.fail_syncs.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk failed to sync a directory"));
        }
        let mut tree = self.0.tree.lock();
        let Tree { durable, pending, .. } = &mut *tree;
        pending.retain(|change| {
            if change.dir != dir {
                return true;
            }
            change.steps.iter().for_each(|step| durable.apply(step));
            false
        });
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> Option<u64> {
        let room = self.0.room.load(Ordering::SeqCst);
        (room != u64::MAX).then_some(room)
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.content.lock();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let source = start
            .checked_add(buffer.len())
            .and_then(|end| content.bytes.get(start..end))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(source);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Some(disk) = self.disk.upgrade() else {
            return Err(io::Error::other("the disk is gone"));
        };
        disk.change()?;
        let mut content = self.content.lock();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let growth = (offset + bytes.len()).saturating_sub(content.bytes.len());
        let room = disk.room.load(Ordering::SeqCst);
        let granted = usize::try_from(room).unwrap_or(usize::MAX).min(growth);
        if room != u64::MAX {
            disk.room.store(room - granted as u64, Ordering::SeqCst);
        }
        let written = &bytes[..bytes.len() - (growth - granted)];
        put(&mut content.bytes, offset, written);
        if disk.track_unsynced {
            content.note(Change::Write { offset, bytes: written.to_vec() });
        }
        if granted < growth {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let Some(disk) = self.disk.upgrade() else {
            return Err(io::Error::other("the disk is gone"));
        };
        disk.change()?;
        let mut content = self.content.lock();
        if disk.fail_syncs.load(Ordering::SeqCst) {
            for pending in &mut content.pending {
                pending.forgotten = true;
            }
            return Err(io::Error::other("the disk failed to sync"));
        }
        content.sync();
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.content.lock().bytes.len() as u64)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        // Memory is not preallocated; only a full disk returns an error, as a real one would.
        let Some(disk) = self.disk.upgrade() else {
            return Err(io::Error::other("the disk is gone"));
        };
        disk.change()?;
        let missing = length.saturating_sub(self.content.lock().bytes.len() as u64);
        if missing > 0 && disk.room.load(Ordering::SeqCst) == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let Some(disk) = self.disk.upgrade() else {
            return Err(io::Error::other("the disk is gone"));
        };
        disk.change()?;
        let mut content = self.content.lock();
        let length = usize::try_from(length).map_err(io::Error::other)?;
        if length < content.bytes.len() {
            content.bytes.truncate(length);
            if disk.track_unsynced {
                content.note(Change::Truncate { length });
            }
        }
        Ok(())
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(self.content.lock().bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(disk: &MemoryDisk, name: &str, bytes: &[u8], sync: bool) {
        let file = disk.open(Path::new(name), true).unwrap();
        file.write_at(bytes, 0).unwrap();
        if sync {
            file.sync().unwrap();
            disk.sync_dir(Path::new("")).unwrap();
        }
    }

    #[test]
    fn what_was_synced_survives_every_crash() {
        for seed in 0..200 {
            let disk = MemoryDisk::with_faults();
            write(&disk, "a", b"synced", true);
            let file = disk.open(Path::new("a"), false).unwrap();
            file.write_at(b"unsynced tail", 6).unwrap();
            disk.crash(&mut Random::seeded(seed));
            let bytes = super::super::read_file(&disk, Path::new("a"), 100).unwrap();
            assert!(bytes.starts_with(b"synced"), "seed {seed}: {bytes:?}");
        }
    }

    #[test]
    fn what_was_not_synced_is_sometimes_lost_and_sometimes_torn() {
        let mut lengths = BTreeSet::new();
        for seed in 0..200 {
            let disk = MemoryDisk::with_faults();
            write(&disk, "a", b"", true);
            let file = disk.open(Path::new("a"), false).unwrap();
            file.write_at(b"12345678", 0).unwrap();
            disk.crash(&mut Random::seeded(seed));
            lengths.insert(super::super::read_file(&disk, Path::new("a"), 100).unwrap().len());
        }
        assert!(lengths.contains(&0) && lengths.contains(&8) && lengths.len() > 4, "{lengths:?}");
    }

    /// A synced file in a directory whose own name was never synced.
    #[test]
    fn a_directory_that_was_not_synced_may_be_lost_with_what_is_in_it() {
        let mut found = BTreeSet::new();
        for seed in 0..50 {
            let disk = MemoryDisk::with_faults();
            disk.create_dir(Path::new("top/new")).unwrap();
            disk.sync_dir(Path::new("")).unwrap();
            write(&disk, "top/new/a", b"synced", false);
            disk.open(Path::new("top/new/a"), false).unwrap().sync().unwrap();
            disk.sync_dir(Path::new("top/new")).unwrap();
            disk.crash(&mut Random::seeded(seed));
            found.insert(disk.files().len());
        }
        assert_eq!(found, BTreeSet::from([0, 1]));
    }

    #[test]
    fn names_that_were_not_synced_survive_in_any_order() {
        let mut found = BTreeSet::new();
        for seed in 0..100 {
            let disk = MemoryDisk::with_faults();
            write(&disk, "a", b"", false);
            write(&disk, "b", b"", false);
            disk.crash(&mut Random::seeded(seed));
            let names: Vec<String> =
                disk.files().iter().map(|(path, _)| path.display().to_string()).collect();
            found.insert(names.concat());
        }
        assert_eq!(found, BTreeSet::from(["", "a", "b", "ab"].map(str::to_owned)));
    }

    #[test]
    fn a_full_disk_writes_what_fits_and_says_so() {
        let disk = MemoryDisk::with_faults();
        write(&disk, "a", b"", true);
        disk.set_room(3);
        let file = disk.open(Path::new("a"), false).unwrap();
        let error = file.write_at(b"12345", 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.length().unwrap(), 3);
    }

    #[test]
    fn a_dead_process_cannot_reach_the_disk_after_a_crash() {
        let disk = MemoryDisk::with_faults();
        write(&disk, "a", b"one", true);
        let old = disk.open(Path::new("a"), false).unwrap();
        disk.crash(&mut Random::seeded(1));
        old.write_at(b"two", 0).unwrap();
        assert_eq!(super::super::read_file(&disk, Path::new("a"), 100).unwrap(), b"one");
    }
}
