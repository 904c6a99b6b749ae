//! Restores records for a reader that were marked dead by entries after the end of its read.
//!
//! ```text
//! log     5:a   6:b   7:a'        reader up to 6: a is dead because of entry 7, which the reader does not see
//! ```
//!
//! A writer sets the dead bits of an entry just before the entry becomes visible. In between, a reader that
//! trusts the dead bits would find neither version. The entries after its end name the records that were marked
//! too early for it. These are the newest entries and mostly in memory. No extra state is kept, and writers do
//! no extra work.
//!
//! Compaction also uses the dead bits. A record that it removes in that moment stays removed, and the reader
//! finds the new version on its next page.

use super::LocalLog;
use crate::entry::{Position, Record};
use crate::error::ReadError;
use crate::read::{Batch, ReadRequest, Which};
use headwater_model::Lsn;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The batch size for reading the entries after a reader's end.
const RECORDS_AT_ONCE: usize = 1024;
const BYTES_AT_ONCE: usize = 4 << 20;

impl LocalLog {
    /// Adds the records that were alive at the reader's end. Call it after the dead bits were read.
    pub(super) fn restore_overtaken<T>(
        &self,
        request: &ReadRequest<'_>,
        batch: Batch<T>,
    ) -> Result<Batch<T>, ReadError>
    where
        T: From<Record> + AsRef<Record>,
    {
        // Read after the dead bits, so this LSN covers every mark that the reader has seen.
        let marked = Lsn::new(self.marked_lsn.load(Ordering::Acquire));
        if request.which != Which::Live || marked <= request.upto {
            return Ok(batch);
        }
        let mut overtaken = self.overtaken(request, batch.scanned, marked)?;
        for record in &batch.records {
            overtaken.remove(&place(record.as_ref().position));
        }
        if overtaken.is_empty() { Ok(batch) } else { Ok(joined(request, batch, overtaken)) }
    }

    /// Records up to `scanned` that entries after the reader's end supersede.
    fn overtaken(
        &self,
        request: &ReadRequest<'_>,
        scanned: Lsn,
        marked: Lsn,
    ) -> Result<BTreeMap<Place, Record>, ReadError> {
        let mut found = BTreeMap::new();
        let mut after = request.upto;
        while after < marked {
            let newer: Batch = self.read_unclamped(&ReadRequest {
                after,
                upto: marked,
                which: Which::Everything,
                range: request.range,
                records_max: RECORDS_AT_ONCE,
                bytes_max: BYTES_AT_ONCE,
            })?;
            for record in &newer.records {
                let prior = record.supersedes;
                let asked = prior.filter(|at| request.after < at.lsn && at.lsn <= scanned);
                let Some(position) = asked else { continue };
                let prior = self.record(position, record.epk())?;
                if let Some(prior) = prior.filter(|prior| request.which.shows(prior.kind)) {
                    found.insert(place(position), prior);
                }
            }
            after = newer.scanned;
        }
        Ok(found)
    }
}

/// Positions in the order of a page: by LSN first.
type Place = (Lsn, u32, u16);

fn place(position: Position) -> Place {
    (position.lsn, position.origin.get(), position.ordinal)
}

/// Merges records into a page and cuts it where it is full.
fn joined<T>(
    request: &ReadRequest<'_>,
    batch: Batch<T>,
    mut more: BTreeMap<Place, Record>,
) -> Batch<T>
where
    T: From<Record> + AsRef<Record>,
{
    for made in batch.records {
        more.insert(place(made.as_ref().position), made.as_ref().clone());
    }
    let (mut records, mut bytes, mut last) = (Vec::with_capacity(more.len()), 0, None);
    for ((lsn, ..), record) in more {
        let is_full =
            records.len() >= request.records_max.max(1) || bytes >= request.bytes_max.max(1);
        if let Some(last) = last.filter(|last| is_full && *last < lsn) {
            return Batch { records, scanned: last };
        }
        bytes += record.content_bytes();
        last = Some(lsn);
        records.push(T::from(record));
    }
    Batch { records, scanned: batch.scanned }
}
