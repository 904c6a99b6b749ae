//! Places for backups: a directory, or a prefix in an object store.
//!
//! Both hold the same objects under the same names, so a backup can be copied between them:
//!
//! ```text
//! DIR/backup/BACKUP.json                  the list, written last
//! DIR/backup/parts/…
//! DIR/LOCK                                directories only: one backup at a time
//! az://container/prefix/backup/BACKUP.json
//! ```
//!
//! An object store has no lock. There, the list is replaced only if no other backup has replaced it meanwhile.

mod cloud;
mod failure;
mod http;

use anyhow::{Context, Result, anyhow, bail, ensure};
use cloud::ObjectUrl;
use headwater_store::{BackupError, CopyOptions, private};
use http::Http;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// The name of the backup inside its place.
const PREFIX: &str = "backup";
const LOCK: &str = "LOCK";
/// A probe object: written to check that writes succeed, then removed.
const WRITE_CHECK: &str = "WRITE_CHECK";

/// A place that holds a backup, or will.
pub(crate) struct BackupPlace {
    store: Box<dyn ObjectStore>,
    prefix: String,
    name: String,
    objects: Option<(ObjectUrl, Http)>,
    /// Locks a directory against other backups, which would remove each other's parts.
    _lock: Option<File>,
}

impl BackupPlace {
    /// Opens a place to write to. Checks that it is writable before anything is copied.
    pub(crate) async fn for_backup(place: &Path) -> Result<BackupPlace> {
        if let Some(url) = object_url(place)? {
            let place = BackupPlace::in_object_store(place, url).await?;
            place.check_writing().await?;
            return Ok(place);
        }
        check_directory(place)?;
        std::fs::create_dir_all(place)
            .with_context(|| format!("cannot make {}", place.display()))?;
        BackupPlace::in_directory(place, Some(lock(place)?))
    }

    /// Opens a place to read from.
    pub(crate) async fn for_restore(place: &Path) -> Result<BackupPlace> {
        if let Some(url) = object_url(place)? {
            return BackupPlace::in_object_store(place, url).await;
        }
        ensure!(place.is_dir(), "{} is not a directory", place.display());
        BackupPlace::in_directory(place, None)
    }

    fn in_directory(dir: &Path, lock: Option<File>) -> Result<BackupPlace> {
        let store = LocalFileSystem::new_with_prefix(dir);
        let store = store.with_context(|| format!("cannot use {}", dir.display()))?;
        Ok(BackupPlace {
            store: Box::new(store.with_fsync(true)),
            prefix: PREFIX.to_owned(),
            name: dir.display().to_string(),
            objects: None,
            _lock: lock,
        })
    }

    async fn in_object_store(place: &Path, url: ObjectUrl) -> Result<BackupPlace> {
        let name = place.display().to_string();
        let cannot = || format!("cannot use {name}");
        let http = Http::new(url.cloud.allows_http()).with_context(cannot)?;
        let prefix = match url.prefix.as_str() {
            "" => PREFIX.to_owned(),
            prefix => format!("{prefix}/{PREFIX}"),
        };
        // The first request retries little, because its failures are rarely transient.
        let first = url.open(&http, impatient()).with_context(cannot)?;
        let found = first.list_with_delimiter(Some(&ObjectPath::from(prefix.as_str()))).await;
        let store = url.open(&http, RetryConfig::default()).with_context(cannot)?;
        let objects = Some((url, http));
        let place = BackupPlace { store, prefix, name, objects, _lock: None };
        found.map_err(|error| place.explain(error.into()))?;
        Ok(place)
    }

    async fn check_writing(&self) -> Result<()> {
        let object = ObjectPath::from(format!("{}/{WRITE_CHECK}", self.prefix));
        let written = self.store.put(&object, PutPayload::new()).await;
        written.map_err(|error| self.explain(error.into()))?;
        // A failed delete is ignored: without that permission, backups are complete but never shrink.
        let _ = self.store.delete(&object).await;
        Ok(())
    }

    /// Returns the object store.
    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    /// Returns the prefix of the object names.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the options for copying to this place.
    pub(crate) fn copy_options(&self) -> CopyOptions {
        CopyOptions::default().conditional(self.objects.is_some())
    }

    /// Adds a remedy to a backup error where it depends on the place.
    pub(crate) fn explain(&self, error: BackupError) -> anyhow::Error {
        let known = self.objects.as_ref().and_then(|(url, http)| Some((url, http.last_failure()?)));
        match (error, known) {
            (BackupError::Place(_), Some((url, failure))) => {
                let explanation = failure.explain(url.cloud, &url.container);
                anyhow!("cannot use {}: {explanation}", self.name)
            }
            (other, _) => other.into(),
        }
    }
}

impl std::fmt::Display for BackupPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns whether a text names a place in an object store.
pub(crate) fn is_object_url(text: &str) -> bool {
    ObjectUrl::parse(text).is_ok()
}

/// Parses the place as a URL, if it is one.
fn object_url(place: &Path) -> Result<Option<ObjectUrl>> {
    match place.to_str().filter(|text| text.contains("://")) {
        Some(text) => ObjectUrl::parse(text).map(Some),
        None => Ok(None),
    }
}

fn impatient() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(200),
        max_backoff: Duration::from_secs(1),
        base: 2.0,
    };
    RetryConfig { backoff, max_retries: 2, retry_timeout: Duration::from_secs(20) }
}

/// Refuses a directory that holds anything but a backup.
fn check_directory(dir: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    let is_ours = |name: &str| name == PREFIX || name == LOCK;
    let is_other = |entry: std::io::Result<std::fs::DirEntry>| {
        !entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_ours))
    };
    let is_other = entries.into_iter().any(is_other);
    let dir = dir.display();
    ensure!(!is_other, "{dir} is not empty and holds no backup; choose a new directory");
    Ok(())
}

fn lock(dir: &Path) -> Result<File> {
    let cannot = || format!("cannot write to {}", dir.display());
    let file = private::options().write(true).create(true).truncate(true).open(dir.join(LOCK));
    let file = file.with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another backup into {} is under way; wait for it", dir.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(cannot),
    }
}
