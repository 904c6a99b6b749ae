//! `CATALOG.json`: a copy of the catalog, next to its log.
//!
//! The store writes it after changes of the catalog, and when it opens and the file is missing or outdated.
//! Only the repair of a damaged catalog reads it (see `repair.rs`). It never decides what a healthy store
//! contains.

use crate::catalog::{Event, Resources};
use headwater_log::disk::{Disk, read_file, replace_file};
use headwater_model::Lsn;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

pub(crate) const NAME: &str = "CATALOG.json";
/// The name of the file while it is written.
pub(crate) const TEMPORARY: &str = "CATALOG.tmp";
const FORMAT: u32 = 1;
/// Above the size of any catalog: 100,000 resources, most of them small.
const BYTES_MAX: u64 = 4 << 30;
/// A copy above this size is not written after every change,
const LARGE_BYTES: usize = 1 << 20;
/// but at most once per this interval.
const LARGE_INTERVAL: Duration = Duration::from_secs(10);

/// A copy of the catalog at one LSN.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CatalogSnapshot {
    format: u32,
    /// The LSN of the newest event in the copy.
    pub(crate) lsn: u64,
    /// Events that produce the state of the catalog.
    pub(crate) events: Vec<Event>,
}

/// Time and size of the last copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastCopy {
    at: Duration,
    bytes: usize,
}

impl LastCopy {
    /// Whether a change of the catalog is copied at once.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.bytes < LARGE_BYTES || now.saturating_sub(self.at) >= LARGE_INTERVAL
    }
}

impl CatalogSnapshot {
    pub(crate) fn new(lsn: Lsn, resources: &Resources) -> CatalogSnapshot {
        CatalogSnapshot { format: FORMAT, lsn: lsn.get(), events: resources.to_events() }
    }

    /// Reads the copy; `None` if it is missing or damaged.
    pub(crate) fn load(disk: &dyn Disk, data: &Path) -> Option<CatalogSnapshot> {
        let bytes = read_file(disk, &data.join(NAME), BYTES_MAX).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        let (json, rest) = text.split_once('\n')?;
        if rest.trim_end() != checksum(json) {
            return None;
        }
        serde_json::from_str(json).ok().filter(|known: &CatalogSnapshot| known.format == FORMAT)
    }

    /// Replaces the copy atomically: after a crash the file holds the old or the new copy.
    pub(crate) fn save(
        &self,
        disk: &dyn Disk,
        data: &Path,
        now: Duration,
    ) -> std::io::Result<LastCopy> {
        let json = serde_json::to_string(self).map_err(std::io::Error::other)?;
        let text = format!("{json}\n{}\n", checksum(&json));
        replace_file(disk, &data.join(NAME), text.as_bytes())?;
        Ok(LastCopy { at: now, bytes: text.len() })
    }
}

fn checksum(json: &str) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(json.as_bytes()))
}
