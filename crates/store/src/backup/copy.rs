//! Copies a cut into a place, and only what the place does not have.
//!
//! A file is kept in parts of [`PART_BYTES`], each an object of its own that never changes:
//!
//! ```text
//! parts/containers/…/00000007.seg/0000000000-<checksum>
//! parts/containers/…/00000007.seg/0004194304-<checksum>   grew by the next backup? then a new object
//! ```
//!
//! A file whose identity is the one in the last list is taken over unread. Of others, each part that the place
//! has is compared with the source by its checksum. So a backup that was interrupted continues where it was.
//! Objects that the new list does not name are removed after it is written.
//!
//! Two backups into one place would remove what the other has copied. A directory is locked by the caller;
//! in an object store, `CopyOptions::conditional` lets only the first of them replace the list. A backup removes
//! nothing before it has replaced the list, and nothing that came after it began.

use super::BackupError;
use super::contents::{
    BackupPartition, BackupSummary, Contents, FileEntry, Part, checksum, get_part, object_path,
    put, safe_path,
};
use super::cut::{BackupFile, BackupPlan};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use std::collections::{HashMap, HashSet};

/// How long a part is, except the last of a file.
pub const PART_BYTES: usize = 4 << 20;

/// Directories of a place that hold objects of backups, of this format and the one before.
const OURS: [&str; 3] = ["parts", "catalog", "containers"];

/// Where a backup comes from: the cut itself, or a server that holds one.
pub trait BackupSource: Sync {
    /// What there is to copy.
    fn plan(&self) -> &BackupPlan;

    /// What is in a partition.
    fn partition(
        &self,
        number: usize,
    ) -> impl Future<Output = Result<BackupPartition, BackupError>> + Send;

    /// A stretch of a file, at most [`PART_BYTES`]; `None` if its checksum is the known one.
    fn read(
        &self,
        file: usize,
        offset: u64,
        bytes: usize,
        known: Option<&str>,
    ) -> impl Future<Output = Result<Option<Bytes>, BackupError>> + Send;
}

/// How to copy.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Compares all that the place has with the source, byte by byte, and replaces what is damaged.
    pub verify: bool,
    /// Replaces the list only if no other backup did so meanwhile, with the conditional put of the object store.
    /// For places that cannot be locked.
    pub conditional: bool,
}

impl CopyOptions {
    /// Sets [`CopyOptions::verify`].
    #[must_use]
    pub fn verify(mut self, verify: bool) -> CopyOptions {
        self.verify = verify;
        self
    }

    /// Sets [`CopyOptions::conditional`].
    #[must_use]
    pub fn conditional(mut self, conditional: bool) -> CopyOptions {
        self.conditional = conditional;
        self
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that are in the place.
    pub done_bytes: u64,
    /// Bytes of those that were copied.
    pub copied_bytes: u64,
}

/// Copies a cut under `prefix` of a place.
///
/// # Errors
/// When the source or the place fails; the last complete backup of the place stays as it is.
pub async fn copy_backup<S: BackupSource>(
    source: &S,
    place: &dyn ObjectStore,
    prefix: &str,
    options: CopyOptions,
    progress: &mut (dyn FnMut(BackupProgress) + Send),
) -> Result<BackupSummary, BackupError> {
    let plan = source.plan();
    let bytes = plan.files.iter().map(|file| file.bytes).sum();
    let mut copy = Copy {
        known: Known::load(place, prefix).await?,
        progress: BackupProgress { bytes, done_bytes: 0, copied_bytes: 0 },
        report: progress,
        source,
        place,
        prefix,
        options,
    };
    // First: rows of a cut are held until its states are known.
    let mut partitions = Vec::new();
    for number in 0..plan.partitions {
        partitions.push(source.partition(number).await?);
    }
    let mut files = Vec::new();
    for (number, file) in plan.files.iter().enumerate() {
        safe_path(&file.path)?;
        files.push(copy.file(number, file).await?);
    }
    let contents = Contents::new(files, partitions);
    match copy.options.conditional {
        true => contents.save_if_unchanged(place, prefix, copy.known.version.take()).await?,
        false => contents.save(place, prefix).await?,
    }
    let copied_bytes = copy.progress.copied_bytes;
    let known = copy.known;
    // The backup is complete without it; the next one tries again.
    if let Err(error) = known.remove_others(place, prefix, &contents).await {
        tracing::warn!(%error, "cannot remove parts of an older backup");
    }
    Ok(contents.summary(copied_bytes))
}

/// What the place has.
struct Known {
    /// Files of the last complete backup, by path.
    files: HashMap<String, FileEntry>,
    /// Of the list that those are in.
    version: Option<UpdateVersion>,
    /// Parts by directory and offset, the longest first come.
    parts: HashMap<(String, u64), Part>,
    /// Every object, and how long it is.
    objects: HashMap<String, u64>,
}

impl Known {
    async fn load(place: &dyn ObjectStore, prefix: &str) -> Result<Known, BackupError> {
        // Before the objects: a list that is replaced in between is noticed at the end.
        // One that is damaged is no reason to make no new backup.
        let (contents, version) = Contents::load_to_replace(place, prefix).await?;
        let by_path = |file: FileEntry| (file.path.clone(), file);
        let files = contents.into_iter().flat_map(|contents| contents.files).map(by_path).collect();
        let mut known = Known { files, version, parts: HashMap::new(), objects: HashMap::new() };
        let root = object_path(prefix, "");
        let mut listed = place.list(Some(&root));
        while let Some(meta) = listed.try_next().await? {
            let path = meta.location.as_ref();
            let Some(path) = path.strip_prefix(prefix).and_then(|path| path.strip_prefix('/'))
            else {
                continue;
            };
            known.objects.insert(path.to_owned(), meta.size);
            if let Some((place, part)) = parse_part(path, meta.size) {
                let longest = known.parts.entry(place).or_insert_with(|| part.clone());
                if longest.bytes < part.bytes {
                    *longest = part;
                }
            }
        }
        Ok(known)
    }

    /// The entry of a file that has not changed since the last backup.
    fn unchanged(&self, file: &BackupFile) -> Option<&FileEntry> {
        let entry = self.files.get(&file.path)?;
        let is_same = file.identity.is_some() && entry.identity == file.identity;
        let has_parts =
            || entry.parts.iter().all(|part| self.objects.get(&part.object) == Some(&part.bytes));
        (is_same && entry.bytes == file.bytes && has_parts()).then_some(entry)
    }

    async fn remove_others(
        self,
        place: &dyn ObjectStore,
        prefix: &str,
        contents: &Contents,
    ) -> Result<(), BackupError> {
        let parts = contents.files.iter().flat_map(|file| &file.parts);
        let named: HashSet<&str> = parts.map(|part| part.object.as_str()).collect();
        for object in self.objects.into_keys() {
            let dir = object.split_once('/').map_or("", |(dir, _)| dir);
            if OURS.contains(&dir) && !named.contains(object.as_str()) {
                place.delete(&object_path(prefix, &object)).await?;
            }
        }
        Ok(())
    }
}

struct Copy<'a, S> {
    source: &'a S,
    place: &'a dyn ObjectStore,
    prefix: &'a str,
    options: CopyOptions,
    known: Known,
    progress: BackupProgress,
    report: &'a mut (dyn FnMut(BackupProgress) + Send),
}

impl<S: BackupSource> Copy<'_, S> {
    async fn file(&mut self, number: usize, file: &BackupFile) -> Result<FileEntry, BackupError> {
        if let Some(entry) = self.known.unchanged(file).filter(|_| !self.options.verify) {
            let entry = entry.clone();
            self.advance(file.bytes);
            return Ok(entry);
        }
        let mut parts = Vec::new();
        let mut offset = 0;
        while offset < file.bytes {
            let length = (file.bytes - offset).min(PART_BYTES as u64);
            parts.push(self.part(number, file, offset, length).await?);
            self.advance(length);
            offset += length;
        }
        Ok(FileEntry::new(&file.path, file.bytes, file.identity.as_deref(), parts))
    }

    /// A part of a file: the one the place has, or what it has and the rest, or all of it.
    async fn part(
        &mut self,
        number: usize,
        file: &BackupFile,
        offset: u64,
        length: u64,
    ) -> Result<Part, BackupError> {
        let mut bytes = Vec::new();
        let known = self.known.parts.get(&(file.path.clone(), offset));
        if let Some(known) = known.filter(|known| known.bytes <= length).cloned() {
            let read = usize::try_from(known.bytes).unwrap_or(usize::MAX);
            match self.source.read(number, offset, read, Some(&known.xxh3)).await? {
                Some(new) => bytes = self.received(new, read)?,
                None if known.bytes == length && !self.options.verify => return Ok(known),
                None => match get_part(self.place, self.prefix, &known).await {
                    Ok(_) if known.bytes == length => return Ok(known),
                    Ok(start) => bytes = start,
                    Err(BackupError::Damaged { .. }) => {}
                    Err(error) => return Err(error),
                },
            }
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes.len() < length {
            let (from, rest) = (offset + bytes.len() as u64, length - bytes.len());
            let read = self.source.read(number, from, rest, None).await?;
            let read = read.ok_or_else(|| BackupError::Answer("a part has no bytes".to_owned()))?;
            bytes.extend(self.received(read, rest)?);
        }
        let xxh3 = checksum(&bytes);
        let part =
            Part { object: part_object(&file.path, offset, &xxh3), bytes: length as u64, xxh3 };
        put(self.place, self.prefix, &part.object, bytes, PutMode::Overwrite).await?;
        Ok(part)
    }

    fn received(&mut self, bytes: Bytes, asked: usize) -> Result<Vec<u8>, BackupError> {
        if bytes.len() != asked {
            let what = format!("{} bytes instead of {asked}", bytes.len());
            return Err(BackupError::Answer(what));
        }
        self.progress.copied_bytes += asked as u64;
        Ok(bytes.to_vec())
    }

    fn advance(&mut self, bytes: u64) {
        self.progress.done_bytes += bytes;
        (self.report)(self.progress);
    }
}

fn part_object(path: &str, offset: u64, xxh3: &str) -> String {
    format!("parts/{path}/{offset:010}-{xxh3}")
}

/// Which stretch of which file an object is, by its name.
fn parse_part(object: &str, bytes: u64) -> Option<((String, u64), Part)> {
    let (path, name) = object.strip_prefix("parts/")?.rsplit_once('/')?;
    let (offset, xxh3) = name.split_once('-')?;
    let (offset, xxh3) = (offset.parse().ok()?, xxh3.to_owned());
    Some(((path.to_owned(), offset), Part { object: object.to_owned(), bytes, xxh3 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_part_says_what_it_is() {
        let object = part_object("containers/1/00000000/00000007.seg", 4 << 20, "ab");
        let ((path, offset), part) = parse_part(&object, 9).unwrap();
        assert_eq!((path.as_str(), offset), ("containers/1/00000000/00000007.seg", 4 << 20));
        assert_eq!(part, Part { object, bytes: 9, xxh3: "ab".to_owned() });
        for other in ["BACKUP.json", "parts/x", "parts/a/b", "parts/a/x-y", "catalog/MANIFEST"] {
            assert_eq!(parse_part(other, 1), None, "{other}");
        }
    }
}
