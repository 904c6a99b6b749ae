//! Copies a cut into a place: only the parts the place does not have.
//!
//! A file is stored in parts of [`PART_BYTES`]. Each part is an immutable object:
//!
//! ```text
//! parts/containers/…/00000007.seg/0000000000-<checksum>
//! parts/containers/…/00000007.seg/0004194304-<checksum>   if the file grows, the next backup writes a new object
//! ```
//!
//! A file with the same identity as in the last list is kept without reading it. For other files, each part
//! in the place is compared with the source by checksum. So a backup that was interrupted continues where it
//! stopped. Objects that the new list does not name are removed after the list is written.
//!
//! Two concurrent backups into one place would remove each other's objects. The caller locks a directory; in
//! an object store, `CopyOptions::conditional` lets only the first backup replace the list. A backup removes
//! nothing before it has replaced the list, and no object that was written after the backup listed the place.

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

/// The length of a part, except the last one of a file.
pub const PART_BYTES: usize = 4 << 20;

/// Directories of a place that hold objects of backups, in both formats.
const OURS: [&str; 3] = ["parts", "catalog", "containers"];

/// The source of a backup: a cut in this process, or a server that holds one.
pub trait BackupSource: Sync {
    /// The files and partitions to copy.
    fn plan(&self) -> &BackupPlan;

    /// The state of a partition.
    fn partition(
        &self,
        number: usize,
    ) -> impl Future<Output = Result<BackupPartition, BackupError>> + Send;

    /// Reads at most [`PART_BYTES`] of a file; `None` if their checksum equals `known`.
    fn read(
        &self,
        file: usize,
        offset: u64,
        bytes: usize,
        known: Option<&str>,
    ) -> impl Future<Output = Result<Option<Bytes>, BackupError>> + Send;
}

/// Options of a copy.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Compares every part in the place with the source byte by byte, and replaces damaged ones.
    pub verify: bool,
    /// Replaces the list only if no other backup has replaced it meanwhile, by a conditional put of the
    /// object store. For places that cannot be locked.
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

/// Progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that are in the place so far.
    pub done_bytes: u64,
    /// Bytes of those that this backup copied.
    pub copied_bytes: u64,
}

/// Copies a cut to a place, under `prefix`.
///
/// # Errors
/// When the source or the place fails. The last complete backup of the place stays valid.
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
        known: PlaceContents::load(place, prefix).await?,
        progress: BackupProgress { bytes, done_bytes: 0, copied_bytes: 0 },
        report: progress,
        source,
        place,
        prefix,
        options,
    };
    // First the states: a cut holds index rows until they are known.
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
    // The backup is complete without this step; the next one tries again.
    if let Err(error) = known.remove_unnamed(place, prefix, &contents).await {
        tracing::warn!(%error, "cannot remove parts of an older backup");
    }
    Ok(contents.summary(copied_bytes))
}

/// The content of the place before the copy.
struct PlaceContents {
    /// Files of the last complete backup, by path.
    files: HashMap<String, FileEntry>,
    /// The version of the list with these files.
    version: Option<UpdateVersion>,
    /// The longest part at each path and offset.
    parts: HashMap<(String, u64), Part>,
    /// The length of every object, by path.
    objects: HashMap<String, u64>,
}

impl PlaceContents {
    async fn load(place: &dyn ObjectStore, prefix: &str) -> Result<PlaceContents, BackupError> {
        // Read the list before the objects: if it is replaced in between, that is detected at the end. A
        // damaged list does not prevent a new backup.
        let (contents, version) = Contents::load_to_replace(place, prefix).await?;
        let by_path = |file: FileEntry| (file.path.clone(), file);
        let files = contents.into_iter().flat_map(|contents| contents.files).map(by_path).collect();
        let mut known =
            PlaceContents { files, version, parts: HashMap::new(), objects: HashMap::new() };
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

    async fn remove_unnamed(
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
    known: PlaceContents,
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

    /// Provides a part of a file: keeps the one in the place, extends it, or copies all of it.
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

/// Parses the name of an object to path, offset and part.
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
