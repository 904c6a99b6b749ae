//! Tracks the backups that clients are copying. Their number is limited, and each is released when its
//! client is done or gone.
//!
//! A backup holds files that compaction has replaced, so it takes disk space until it is released. This
//! module limits the number of backups and ends idle ones; `headwater_store::BackupCut` holds the files.

use headwater_runtime::Runtime;
use headwater_store::BackupCut;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The maximum number of backups at a time.
pub(crate) const BACKUPS_MAX: usize = 4;

/// The backups in progress, by id.
#[derive(Debug, Default)]
pub(crate) struct Backups(Mutex<HashMap<String, Held>>);

#[derive(Debug)]
struct Held {
    /// `None` while the cut is being made.
    cut: Option<Arc<BackupCut>>,
    /// When a client last used the backup.
    used: Duration,
}

/// A slot reserved for a backup that is being created. Dropping it frees the slot unless it was filled.
pub(crate) struct Place<'a> {
    backups: &'a Backups,
    id: String,
}

impl Backups {
    /// Reserves a slot; `None` if [`BACKUPS_MAX`] are taken.
    pub(crate) fn reserve(&self, runtime: &Runtime) -> Option<Place<'_>> {
        let mut held = self.0.lock();
        if held.len() >= BACKUPS_MAX {
            return None;
        }
        let id = format!("{:032x}", runtime.random_u128());
        held.insert(id.clone(), Held { cut: None, used: runtime.elapsed() });
        Some(Place { backups: self, id })
    }

    /// Returns the backup with this id and records its use.
    pub(crate) fn get(&self, id: &str, now: Duration) -> Option<Arc<BackupCut>> {
        let mut held = self.0.lock();
        let backup = held.get_mut(id)?;
        backup.used = now;
        backup.cut.clone()
    }

    /// Releases a backup; returns whether it existed.
    pub(crate) fn release(&self, id: &str) -> bool {
        let released = self.0.lock().remove(id);
        released.is_some()
    }

    pub(crate) fn release_all(&self) {
        let released = std::mem::take(&mut *self.0.lock());
        drop(released);
    }

    /// The time until a backup counts as idle. An idle one is released.
    fn time_left(&self, id: &str, now: Duration, idle_max: Duration) -> Option<Duration> {
        let used = self.0.lock().get(id)?.used;
        let left = (used + idle_max).checked_sub(now).filter(|left| !left.is_zero());
        if left.is_none() {
            self.release(id);
            tracing::warn!(id, "released a backup whose client has left; start it again");
        }
        left
    }
}

impl Place<'_> {
    /// Fills the slot; returns the backup and its id.
    pub(crate) fn fill(self, cut: BackupCut) -> (String, Arc<BackupCut>) {
        let cut = Arc::new(cut);
        if let Some(held) = self.backups.0.lock().get_mut(&self.id) {
            held.cut = Some(cut.clone());
        }
        (self.id.clone(), cut)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut held = self.backups.0.lock();
        if held.get(&self.id).is_some_and(|held| held.cut.is_none()) {
            held.remove(&self.id);
        }
    }
}

/// Spawns a task that releases a backup when it is idle. The task ends with the backup or the server.
pub(crate) fn watch<T: Send + Sync + 'static>(
    runtime: &Runtime,
    owner: Weak<T>,
    backups: fn(&T) -> &Backups,
    id: String,
    idle_max: Duration,
) {
    let clock = runtime.clone();
    runtime.spawn("idle backup", async move {
        loop {
            let left = owner
                .upgrade()
                .and_then(|owner| backups(&owner).time_left(&id, clock.elapsed(), idle_max));
            let Some(left) = left else { return };
            clock.sleep(left).await;
        }
    });
}
