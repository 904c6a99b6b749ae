//! Reads one page of a partition's change feed through a filter.
//!
//! Reads the log in the same order and by whole transactions as without a filter, and leaves out changes that
//! are not selected. A page ends when it is full, at the end of the feed, or at a limit of work: a filter
//! that matches nothing must not make readers wait for the whole log. The position is always the last
//! transaction that was read completely.

use super::Partition;
use super::feed::{Change, EarlierVersions, PartitionPage, PartitionRequest, Shown};
use crate::error::FeedError;
use crate::filter::FilterRun;
use headwater_log::{ReadError, ReadRequest, Which};
use headwater_model::{ChangeKind, FeedMode, Lsn, PageLimit};
use headwater_query::EvaluationError;

/// Records read from the log at once.
const RECORDS_AT_ONCE: usize = 512;
const BYTES_AT_ONCE: usize = 1 << 20;
/// Records evaluated for one page, whatever their size.
const RECORDS_PER_PAGE: usize = 16_384;

/// Evaluation steps after which a page ends. Far below the limit of a single run, so that only a transaction
/// that exceeds the limit alone fails.
const STEPS_PER_PAGE: u64 = 20_000_000;

/// A page under construction.
struct PageBuilder<'r> {
    limit: PageLimit,
    filtering: FilterRun<'r>,
    changes: Vec<Change>,
    bytes: usize,
    /// Bytes that may still be evaluated.
    bytes_left: usize,
}

impl PageBuilder<'_> {
    fn is_full(&self) -> bool {
        self.changes.len() >= self.limit.items as usize
            || self.bytes >= self.limit.bytes as usize
            || self.bytes_left == 0
            || self.filtering.steps() >= STEPS_PER_PAGE
    }
}

impl Partition {
    pub(super) fn read_filtered(
        &self,
        request: &PartitionRequest<'_>,
        filtering: FilterRun<'_>,
        visible: Lsn,
    ) -> Result<PartitionPage, FeedError> {
        let (limit, bytes_left) = (request.limit, request.scan_bytes);
        let mut page = PageBuilder { limit, filtering, changes: Vec::new(), bytes: 0, bytes_left };
        let which = match request.mode {
            FeedMode::LatestVersion => Which::Live,
            FeedMode::AllVersionsAndDeletes => Which::AllVersions,
        };
        let (settings, now) = (self.current_settings(), self.now());
        let mut records_left = RECORDS_PER_PAGE;
        let mut after = request.after;
        while after < visible && records_left > 0 && !page.is_full() {
            let batch = self.read_batch(
                request,
                &ReadRequest {
                    after,
                    upto: visible,
                    which,
                    range: request.range,
                    records_max: RECORDS_AT_ONCE.min(records_left),
                    bytes_max: BYTES_AT_ONCE.min(page.bytes_left),
                },
            )?;
            // The log has acknowledged every visible entry, so the read must make progress.
            if batch.scanned <= after {
                return Err(ReadError::Unavailable.into());
            }
            records_left = records_left.saturating_sub(batch.records.len());
            let mut changes = batch.records;
            if request.mode == FeedMode::LatestVersion {
                changes.retain(|change| !change.is_expired(&settings, now));
            }
            after = self.take_wanted(changes, request, &mut page)?.unwrap_or(batch.scanned);
        }
        let unfinished = after < visible;
        Ok(PartitionPage { changes: page.changes, position: after, unfinished })
    }

    /// Adds the selected changes, transaction by transaction. Returns the last transaction read if it stopped early.
    fn take_wanted(
        &self,
        changes: Vec<Change>,
        request: &PartitionRequest<'_>,
        page: &mut PageBuilder<'_>,
    ) -> Result<Option<Lsn>, FeedError> {
        let mut earlier = self.earlier_versions(request)?;
        let mut last = None;
        for transaction in changes.chunk_by(|one, next| one.lsn() == next.lsn()) {
            if let Some(last) = last.filter(|_| page.is_full()) {
                return Ok(Some(last));
            }
            last = transaction.first().map(Change::lsn);
            page.take_wanted(transaction, request.mode, &mut earlier)?;
        }
        Ok(None)
    }
}

impl PageBuilder<'_> {
    /// Adds the selected changes of a transaction.
    fn take_wanted(
        &mut self,
        transaction: &[Change],
        mode: FeedMode,
        earlier: &mut EarlierVersions<'_>,
    ) -> Result<(), FeedError> {
        let mut wanted = Vec::new();
        for change in transaction {
            self.bytes_left = self.bytes_left.saturating_sub(change.byte_count());
            if self.filtering.may_want(change).map_err(failed(change))? {
                wanted.push(change.clone());
            }
        }
        if mode == FeedMode::AllVersionsAndDeletes {
            let before: usize = wanted.iter().map(Change::byte_count).sum();
            earlier.add_to(&mut wanted)?;
            let after: usize = wanted.iter().map(Change::byte_count).sum();
            self.bytes_left = self.bytes_left.saturating_sub(after - before);
        }
        for change in wanted {
            let failed = failed(&change);
            if mode == FeedMode::AllVersionsAndDeletes
                && !self.filtering.wants(&change).map_err(&failed)?
            {
                continue;
            }
            let change = shaped(change, mode, &mut self.filtering).map_err(&failed)?;
            self.bytes += change.byte_count();
            self.changes.push(change);
        }
        Ok(())
    }
}

fn failed(change: &Change) -> impl Fn(EvaluationError) -> FeedError + use<> {
    let lsn = change.lsn();
    move |error| FeedError::FilterFailed { lsn, error }
}

/// Replaces the items of a change by their projections.
fn shaped(
    change: Change,
    mode: FeedMode,
    filtering: &mut FilterRun<'_>,
) -> Result<Change, EvaluationError> {
    if !filtering.has_shape() {
        return Ok(change);
    }
    let adds_lsn = mode == FeedMode::LatestVersion && filtering.adds_lsn();
    let after = match change.kind() {
        ChangeKind::Delete => None,
        _ => Some(filtering.shown(&change.body(), adds_lsn.then(|| change.lsn()))?),
    };
    let before = change.previous().map(|item| item.to_bytes());
    let before = before.map(|item| filtering.shown(&item, None)).transpose()?;
    Ok(change.shown_as(Shown { after, before }))
}
