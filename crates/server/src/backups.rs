//! The backups that clients are copying: at most a few, each released when its client is done or gone.
//!
//! A backup holds files that compaction has replaced, so it costs disk until it is released. This file decides
//! how many there are and when one ends; what one holds is `headwater_store::BackupCut`.

use headwater_runtime::Runtime;
use headwater_store::BackupCut;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Backups at a time.
pub(crate) const BACKUPS_MAX: usize = 4;

/// The backups in progress, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Backups(Mutex<HashMap<String, Held>>);

#[derive(Debug)]
struct Held {
    /// `None` while the cut is being made.
    cut: Option<Arc<BackupCut>>,
    /// When it was last asked for something.
    used: Duration,
}

/// A place for a backup that is being made. Dropped, it is free again unless it was filled.
pub(crate) struct Place<'a> {
    backups: &'a Backups,
    id: String,
}

impl Backups {
    /// A place for one more, unless there are as many as there may be.
    pub(crate) fn reserve(&self, runtime: &Runtime) -> Option<Place<'_>> {
        let mut held = self.0.lock();
        if held.len() >= BACKUPS_MAX {
            return None;
        }
        let id = format!("{:032x}", runtime.random_u128());
        held.insert(id.clone(), Held { cut: None, used: runtime.elapsed() });
        Some(Place { backups: self, id })
    }

    /// The backup of this id, used now.
    pub(crate) fn get(&self, id: &str, now: Duration) -> Option<Arc<BackupCut>> {
        let mut held = self.0.lock();
        let backup = held.get_mut(id)?;
        backup.used = now;
        backup.cut.clone()
    }

    /// Releases a backup; whether there was one.
    pub(crate) fn release(&self, id: &str) -> bool {
        let released = self.0.lock().remove(id);
        released.is_some()
    }

    pub(crate) fn release_all(&self) {
        let released = std::mem::take(&mut *self.0.lock());
        drop(released);
    }

    /// How long a backup may still be idle. One that was idle too long is released.
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
    /// Fills the place; the id of the backup.
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

/// Releases a backup when it was idle too long. Owns nothing: it ends with the backup or its server.
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
