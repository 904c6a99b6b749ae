//! Reads one page of a partition's change feed.
//!
//! A page is a sequential read of the log. Latest-version mode reads live records only. All-versions mode
//! reads every record; the versions before the changes count towards the limit. A page ends after a whole
//! transaction and holds nothing beyond the visible LSN. Never waits; `crate::feed` does.
//!
//! ```text
//! log      5:a  6:b  7:a' 8:(c,d) 9:✗b 10:e      visible 10
//! latest             7:a' 8:(c,d)      10:e      after 6, limit 2 => 7, 8, 8; continue after 8
//! all      5:a  6:b  7:a' 8:(c,d) 9:✗b 10:e
//! ```

use super::Partition;
use crate::definition::Settings;
use crate::error::FeedError;
use crate::filter::FeedFilter;
use crate::item::{Item, Meta, item_of};
use crate::query::{QueryWatch, query_context};
use bytes::Bytes;
use headwater_log::{Batch, ReadError, ReadRequest, Record, RecordKind, RecordReader, Which};
use headwater_model::{
    ChangeKind, FeedMode, KeyRange, Lsn, PageLimit, PartitionId, PartitionKey, Timestamp,
};
use std::fmt;
use std::sync::Arc;

/// One change of one item.
#[derive(Clone)]
pub struct Change {
    record: Record,
    /// The item before the change. Boxed to keep changes small: most have none, and a page holds up to a thousand.
    previous: Option<Box<Item>>,
    /// The projection of a filter, which replaces the whole item.
    shown: Option<Box<Shown>>,
}

/// The projection of an item, after and before a change.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) after: Option<Bytes>,
    pub(crate) before: Option<Bytes>,
}

impl From<Record> for Change {
    fn from(record: Record) -> Change {
        Change { record, previous: None, shown: None }
    }
}

impl AsRef<Record> for Change {
    fn as_ref(&self) -> &Record {
        &self.record
    }
}

impl Change {
    /// The kind of change. Latest-version mode returns only the newest change of an item, so `Create` there
    /// means that the item was never replaced.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        match self.record.kind {
            RecordKind::Tombstone => ChangeKind::Delete,
            _ if self.meta().is_some_and(|meta| meta.created) => ChangeKind::Create,
            _ => ChangeKind::Replace,
        }
    }

    /// The LSN, which all changes of a transaction share.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.record.position.lsn
    }

    /// The number of the change in its transaction. Latest versions and filters leave some numbers out.
    #[must_use]
    pub fn ordinal(&self) -> u16 {
        self.record.position.ordinal
    }

    /// The partition that wrote the change, which may be an ancestor of the one read.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.record.position.origin
    }

    /// The time of the change.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.record.timestamp
    }

    /// The item after the change; `None` for a delete.
    #[must_use]
    pub fn item(&self) -> Option<Item> {
        if self.record.kind == RecordKind::Tombstone { None } else { item_of(&self.record) }
    }

    /// The item after the change as JSON, with its `_lsn`; empty for a delete. Not copied. With
    /// [`FeedFilter::showing`](crate::FeedFilter::showing), its projection.
    #[must_use]
    pub fn body(&self) -> Bytes {
        match &self.shown {
            Some(shown) => shown.after.clone().unwrap_or_default(),
            None => self.record.body_bytes(),
        }
    }

    /// Like [`body`](Change::body), borrowed. Avoids the reference counting of [`Bytes`], twice for every
    /// item of a page.
    #[must_use]
    pub fn body_slice(&self) -> &[u8] {
        match &self.shown {
            Some(shown) => shown.after.as_deref().unwrap_or_default(),
            None => self.record.body(),
        }
    }

    /// The item after the change as the all-versions feed returns it: without `_lsn`, or its projection by a
    /// filter. `None` for a delete.
    #[must_use]
    pub fn current_bytes(&self) -> Option<Bytes> {
        match &self.shown {
            Some(shown) => shown.after.clone(),
            None => self.item().map(|item| item.to_bytes()),
        }
    }

    /// The item before the change, in the form of [`current_bytes`](Change::current_bytes).
    #[must_use]
    pub fn previous_bytes(&self) -> Option<Bytes> {
        match &self.shown {
            Some(shown) => shown.before.clone(),
            None => self.previous().map(Item::to_bytes),
        }
    }

    /// The item before the change, if it is still kept. All-versions mode only.
    #[must_use]
    pub fn previous(&self) -> Option<&Item> {
        self.previous.as_deref()
    }

    /// Bytes of the versions after and before the change, or of their projections.
    pub(crate) fn byte_count(&self) -> usize {
        let before = match &self.shown {
            Some(shown) => shown.before.as_ref().map_or(0, Bytes::len),
            None => self.previous().map_or(0, |item| item.feed_bytes().len()),
        };
        self.body_slice().len() + before
    }

    /// The LSN of the version before this one.
    #[must_use]
    pub fn previous_lsn(&self) -> Option<Lsn> {
        self.record.supersedes.map(|prior| prior.lsn)
    }

    /// Whether the change is a delete by expiry.
    #[must_use]
    pub fn is_expiry(&self) -> bool {
        self.meta().is_some_and(|meta| meta.expired)
    }

    /// The id of the item.
    #[must_use]
    pub fn id(&self) -> &str {
        self.meta().map(|meta| meta.id()).unwrap_or_default()
    }

    /// The partition key of the item.
    #[must_use]
    pub fn partition_key(&self) -> PartitionKey {
        let key = self.meta().and_then(|meta| PartitionKey::decode(meta.key()).ok());
        key.unwrap_or_else(PartitionKey::empty)
    }

    /// The hashed partition key of the item.
    #[must_use]
    pub fn hashed_key(&self) -> &[u8] {
        self.record.epk()
    }

    /// Whether the item has expired, although it is not deleted yet.
    pub(super) fn is_expired(&self, settings: &Settings, now: Timestamp) -> bool {
        let ttl = self.meta().map(|meta| meta.ttl);
        ttl.is_some_and(|ttl| settings.is_expired(self.timestamp().as_seconds(), ttl, now))
    }

    pub(super) fn shown_as(mut self, shown: Shown) -> Change {
        self.shown = Some(Box::new(shown));
        self
    }

    fn meta(&self) -> Option<Meta<'_>> {
        Meta::decode(self.record.meta())
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {}", self.lsn(), self.kind().as_str(), self.id())
    }
}

/// A page of one partition.
pub(crate) struct PartitionPage {
    pub(crate) changes: Vec<Change>,
    /// Everything up to this LSN was read.
    pub(crate) position: Lsn,
    /// The page ended before its limit because a filter reached its limit of work; there may be more changes.
    pub(crate) unfinished: bool,
}

/// A request for one page of a partition.
pub(crate) struct PartitionRequest<'a> {
    pub(crate) after: Lsn,
    pub(crate) mode: FeedMode,
    pub(crate) range: Option<&'a KeyRange>,
    pub(crate) limit: PageLimit,
    pub(crate) filter: Option<&'a FeedFilter>,
    /// Target for the bytes that a filter may evaluate.
    pub(crate) scan_bytes: usize,
    /// Latest versions after this LSN belong to another reader of the same page.
    pub(crate) until: Option<Lsn>,
    /// The page is refused if it has more bytes than this.
    pub(crate) refuse_above: usize,
}

impl PartitionRequest<'_> {
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), FeedError> {
        match bytes > self.refuse_above {
            true => Err(FeedError::LargePage { limit: self.refuse_above }),
            false => Ok(()),
        }
    }
}

impl Partition {
    pub(crate) fn read_feed(
        &self,
        request: &PartitionRequest<'_>,
    ) -> Result<PartitionPage, FeedError> {
        let page = self.read_page(request);
        if let Err(FeedError::Storage(error)) = &page {
            self.note_damage(error);
        }
        page
    }

    fn read_page(&self, request: &PartitionRequest<'_>) -> Result<PartitionPage, FeedError> {
        self.check_served()?;
        let visible = self.visible();
        if request.after >= visible {
            return self.nothing_newer(request, visible);
        }
        if let Some(filter) = request.filter {
            let time = self.shared.options.queries.time;
            let watch = QueryWatch::new(&self.shared.runtime, time);
            let watch = Arc::new(watch.in_turns(&self.shared.query_lanes));
            let context = query_context(&self.shared, watch);
            return self.read_filtered(request, filter.start(&context), visible);
        }
        let page = match request.mode {
            FeedMode::LatestVersion => self.read_latest(request, visible)?,
            FeedMode::AllVersionsAndDeletes => self.read_all_versions(request, visible)?,
        };
        debug_assert!(crate::invariants::page_is_in_order(request.after, &page.changes));
        debug_assert!(page.position >= request.after && page.position <= visible);
        Ok(page)
    }

    fn nothing_newer(
        &self,
        request: &PartitionRequest<'_>,
        visible: Lsn,
    ) -> Result<PartitionPage, FeedError> {
        if request.after > visible {
            return Err(FeedError::PositionAhead { asked: request.after, newest: visible });
        }
        Ok(PartitionPage { changes: Vec::new(), position: visible, unfinished: false })
    }

    fn read_latest(
        &self,
        request: &PartitionRequest<'_>,
        visible: Lsn,
    ) -> Result<PartitionPage, FeedError> {
        let settings = self.current_settings();
        let may_expire = settings.definition.default_ttl().is_some();
        let now = self.now();
        let mut after = request.after;
        loop {
            let batch = self.read_batch(
                request,
                &ReadRequest {
                    after,
                    upto: visible,
                    which: Which::Live,
                    range: request.range,
                    records_max: request.limit.items as usize,
                    bytes_max: request.limit.bytes as usize,
                },
            )?;
            let mut changes = batch.records;
            if let Some(until) = request.until {
                changes.truncate(changes.partition_point(|change| change.lsn() <= until));
            }
            if may_expire {
                changes.retain(|change| !change.is_expired(&settings, now));
            }
            // The log has acknowledged every visible entry, so the read must make progress.
            if batch.scanned <= after {
                return Err(ReadError::Unavailable.into());
            }
            after = batch.scanned;
            let end = request.until.map_or(visible, |until| until.min(visible));
            // The position of a page is its last change, so that both agree for a reader that compares them.
            // Only an empty page advances to where the scan ended.
            if let Some(last) = changes.last() {
                return Ok(PartitionPage { position: last.lsn(), changes, unfinished: false });
            }
            if after >= end {
                return Ok(PartitionPage { changes, position: end, unfinished: false });
            }
        }
    }

    fn read_all_versions(
        &self,
        request: &PartitionRequest<'_>,
        visible: Lsn,
    ) -> Result<PartitionPage, FeedError> {
        let batch = self.read_batch(
            request,
            &ReadRequest {
                after: request.after,
                upto: visible,
                which: Which::AllVersions,
                range: request.range,
                records_max: request.limit.items as usize,
                bytes_max: request.limit.bytes as usize,
            },
        )?;
        let mut changes = batch.records;
        let mut earlier = self.earlier_versions(request)?;
        let (mut end, mut bytes) = (0, 0);
        while let Some(next) = changes.get(end).map(Change::lsn)
            && bytes < request.limit.bytes as usize
        {
            let first = end;
            end += changes[first..].partition_point(|change| change.lsn() == next);
            earlier.add_to(&mut changes[first..end])?;
            bytes += changes[first..end].iter().map(Change::byte_count).sum::<usize>();
            request.check_size(bytes)?;
        }
        changes.truncate(end);
        let position = changes.last().map_or(batch.scanned, Change::lsn);
        Ok(PartitionPage { changes, position, unfinished: false })
    }

    /// Reads records, unless they exceed the limit of the page. Offset tables usually tell that in advance.
    pub(super) fn read_batch(
        &self,
        request: &PartitionRequest<'_>,
        read: &ReadRequest<'_>,
    ) -> Result<Batch<Change>, FeedError> {
        let log = self.log()?;
        if request.refuse_above == usize::MAX {
            return Ok(log.read_as(read)?);
        }
        let bytes_max = read.bytes_max.min(request.refuse_above);
        if let Some(extent) = log.extent(&ReadRequest { bytes_max, ..read.clone() })? {
            request.check_size(extent.bytes)?;
        }
        let batch = log.read_as::<Change>(read)?;
        request.check_size(batch.records.iter().map(Change::byte_count).sum())?;
        Ok(batch)
    }

    pub(super) fn earlier_versions<'a>(
        &'a self,
        request: &'a PartitionRequest<'a>,
    ) -> Result<EarlierVersions<'a>, FeedError> {
        Ok(EarlierVersions { reader: self.log()?.record_reader(), request })
    }
}

/// Adds the previous versions to changes.
pub(super) struct EarlierVersions<'a> {
    reader: RecordReader<'a>,
    request: &'a PartitionRequest<'a>,
}

impl EarlierVersions<'_> {
    /// Adds the previous versions to the changes of a transaction, if they are still kept. Reads them in log order.
    pub(super) fn add_to(&mut self, transaction: &mut [Change]) -> Result<(), FeedError> {
        let mut changes: Vec<&mut Change> = transaction.iter_mut().collect();
        changes.sort_by_key(|change| change.record.supersedes);
        let mut bytes = 0;
        for change in changes {
            if let Some(prior) = change.record.supersedes {
                let previous = self.reader.record(prior, change.record.epk())?;
                change.previous = previous.as_ref().and_then(item_of).map(Box::new);
            }
            bytes += change.byte_count();
            self.request.check_size(bytes)?;
        }
        Ok(())
    }
}
