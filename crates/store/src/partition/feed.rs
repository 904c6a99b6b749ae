//! One page of a partition's change feed.
//!
//! A page is a sequential read of the log: live records only in latest-version mode, everything in
//! all-versions mode, where the versions before the changes count too. It ends at the end of a transaction,
//! never inside one, and it never shows anything that is not visible yet.
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
    /// Boxed: a page holds a thousand changes, and most have none.
    previous: Option<Box<Item>>,
    /// What a filter shows of it instead of all.
    shown: Option<Box<Shown>>,
}

/// The parts of an item that a filter shows, after and before a change.
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
    /// What happened. In latest-version mode an item that was created and then replaced shows its
    /// newest change, so `Create` means that it was never replaced.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        match self.record.kind {
            RecordKind::Tombstone => ChangeKind::Delete,
            _ if self.meta().is_some_and(|meta| meta.created) => ChangeKind::Create,
            _ => ChangeKind::Replace,
        }
    }

    /// The transaction. Changes of one transaction share it.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.record.position.lsn
    }

    /// The number of the change in its transaction. Latest versions and filters leave some numbers out.
    #[must_use]
    pub fn ordinal(&self) -> u16 {
        self.record.position.ordinal
    }

    /// The partition whose log first had it.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.record.position.origin
    }

    /// When it happened.
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
    /// [`FeedFilter::showing`](crate::FeedFilter::showing), what that shows of it.
    #[must_use]
    pub fn body(&self) -> Bytes {
        match &self.shown {
            Some(shown) => shown.after.clone().unwrap_or_default(),
            None => self.record.body_bytes(),
        }
    }

    /// The same, for whoever only looks at it: to share memory is to count who does, twice for every item
    /// of a page.
    #[must_use]
    pub fn body_slice(&self) -> &[u8] {
        match &self.shown {
            Some(shown) => shown.after.as_deref().unwrap_or_default(),
            None => self.record.body(),
        }
    }

    /// The item after the change as the all-versions feed shows it: without `_lsn`, or what a filter
    /// shows of it. `None` for a delete.
    #[must_use]
    pub fn current_bytes(&self) -> Option<Bytes> {
        match &self.shown {
            Some(shown) => shown.after.clone(),
            None => self.item().map(|item| item.to_bytes()),
        }
    }

    /// The item before the change, likewise.
    #[must_use]
    pub fn previous_bytes(&self) -> Option<Bytes> {
        match &self.shown {
            Some(shown) => shown.before.clone(),
            None => self.previous().map(Item::to_bytes),
        }
    }

    /// The item before the change, where it is still kept. All-versions mode only.
    #[must_use]
    pub fn previous(&self) -> Option<&Item> {
        self.previous.as_deref()
    }

    /// Bytes of the versions after and before it, as far as they are shown.
    pub(crate) fn byte_count(&self) -> usize {
        let before = match &self.shown {
            Some(shown) => shown.before.as_ref().map_or(0, Bytes::len),
            None => self.previous().map_or(0, |item| item.feed_bytes().len()),
        };
        self.body_slice().len() + before
    }

    /// The transaction that wrote the version before this one.
    #[must_use]
    pub fn previous_lsn(&self) -> Option<Lsn> {
        self.record.supersedes.map(|prior| prior.lsn)
    }

    /// Whether it is a delete because the item's time was over.
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

    /// Whether the item's time was over before anybody deleted it.
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
    /// Everything up to here has been seen.
    pub(crate) position: Lsn,
    /// It ended before its limit because a filter had looked at enough; more may be there already.
    pub(crate) unfinished: bool,
}

/// What to read from a partition.
pub(crate) struct PartitionRequest<'a> {
    pub(crate) after: Lsn,
    pub(crate) mode: FeedMode,
    pub(crate) range: Option<&'a KeyRange>,
    pub(crate) limit: PageLimit,
    pub(crate) filter: Option<&'a FeedFilter>,
    /// About how many bytes a filter may look at.
    pub(crate) scan_bytes: usize,
    /// Latest versions behind this are somebody else's to read.
    pub(crate) until: Option<Lsn>,
    /// A page with more bytes than this is refused.
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
            // What is visible was acknowledged by the log, so it must be there.
            if batch.scanned <= after {
                return Err(ReadError::Unavailable.into());
            }
            after = batch.scanned;
            let end = request.until.map_or(visible, |until| until.min(visible));
            // The position of a page is its last change, so that a reader who compares both agrees;
            // only an empty page moves to where the scan ended.
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

    /// Reads records, unless there are more of them than the page may have. Mostly tables tell that in advance.
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

/// Adds to changes the versions before them.
pub(super) struct EarlierVersions<'a> {
    reader: RecordReader<'a>,
    request: &'a PartitionRequest<'a>,
}

impl EarlierVersions<'_> {
    /// Adds the versions before the changes of a transaction, where they are still kept. They are read in the
    /// order in which they lie in the log.
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
