//! The change feed of a container: which partitions a request is about, and one page from them.
//!
//! A request for one range has a position that is one LSN. A request over several ranges has one
//! position in each, and a page takes its share from every one of them, so that a busy range never
//! starves a quiet one. After a split both kinds of position go on to be good.

use crate::container::Container;
use crate::error::{FeedError, StorageError};
use crate::filter::FeedFilter;
use crate::partition::Partition;
use crate::partition::feed::{Change, PartitionRequest};
use headwater_model::{
    Continuation, FeedMode, FeedStart, KeyRange, Lsn, PageLimit, PartitionId, PartitionKey,
    RangePosition, Timestamp,
};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A request for a page of the change feed.
///
/// ```
/// use headwater_store::{FeedRequest, FeedStart};
/// use std::time::Duration;
///
/// let request = FeedRequest::new(FeedStart::Beginning).of_key("ann").wait(Duration::from_secs(30));
/// ```
#[derive(Clone, Debug)]
pub struct FeedRequest {
    start: FeedStart,
    mode: FeedMode,
    partition: Option<PartitionId>,
    range: Option<KeyRange>,
    key: Option<PartitionKey>,
    limit: PageLimit,
    wait: Duration,
    filter: Option<Arc<FeedFilter>>,
    refuse_above: usize,
}

/// About how many bytes of changes a filter looks at for one page.
const FILTERED_BYTES: usize = 8 << 20;
/// At least so many in each of several ranges.
const FILTERED_BYTES_MIN: usize = 1 << 20;

impl FeedRequest {
    /// Latest versions of the whole container, at most a hundred on a page, without waiting.
    #[must_use]
    pub fn new(start: FeedStart) -> FeedRequest {
        FeedRequest {
            start,
            mode: FeedMode::LatestVersion,
            partition: None,
            range: None,
            key: None,
            limit: PageLimit::DEFAULT,
            wait: Duration::ZERO,
            filter: None,
            refuse_above: usize::MAX,
        }
    }

    /// Goes on after a page.
    #[must_use]
    pub fn after(continuation: Continuation) -> FeedRequest {
        FeedRequest::new(FeedStart::After(continuation))
    }

    /// Every create, replace and delete, instead of latest versions.
    #[must_use]
    pub fn all_versions(mut self) -> FeedRequest {
        self.mode = FeedMode::AllVersionsAndDeletes;
        self
    }

    /// Latest versions, or every create, replace and delete.
    #[must_use]
    pub fn mode(mut self, mode: FeedMode) -> FeedRequest {
        self.mode = mode;
        self
    }

    /// Only one range of the container.
    #[must_use]
    pub fn of_range(mut self, id: PartitionId) -> FeedRequest {
        self.partition = Some(id);
        self
    }

    /// Only items whose hashed key is within bounds.
    #[must_use]
    pub fn of_hashes(mut self, range: KeyRange) -> FeedRequest {
        self.range = Some(range);
        self
    }

    /// Only items of one partition key, or of all that start with it if it is a prefix.
    #[must_use]
    pub fn of_key(mut self, key: impl Into<PartitionKey>) -> FeedRequest {
        self.key = Some(key.into());
        self
    }

    /// How large the page may become.
    #[must_use]
    pub fn limit(mut self, limit: PageLimit) -> FeedRequest {
        self.limit = limit;
        self
    }

    /// If there is nothing new, waits for something at most this long.
    #[must_use]
    pub fn wait(mut self, at_most: Duration) -> FeedRequest {
        self.wait = at_most;
        self
    }

    /// Refuses a page with more bytes than this ([`FeedError::LargePage`]), mostly without reading it. A
    /// transaction is never cut, so one can make a page much larger than its limit: a thread on which others wait
    /// can leave such a page to another thread.
    #[must_use]
    pub fn refuse_above(mut self, bytes: usize) -> FeedRequest {
        self.refuse_above = bytes;
        self
    }

    pub(crate) fn refused_above(&self) -> usize {
        self.refuse_above
    }

    pub(crate) fn page_limit(&self) -> PageLimit {
        self.limit
    }

    /// The same request, for what follows a page.
    #[must_use]
    pub fn behind(mut self, page: &FeedPage) -> FeedRequest {
        self.start = FeedStart::After(page.continuation.clone());
        self
    }

    /// Only what a filter lets through. Positions are the same with any filter and without.
    #[must_use]
    pub fn filter(mut self, filter: FeedFilter) -> FeedRequest {
        self.filter = Some(Arc::new(filter)).filter(|filter| !filter.is_empty());
        self
    }
}

/// A page of the change feed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FeedPage {
    /// Changes, ordered by LSN within each partition; changes of one transaction are never apart.
    pub changes: Vec<Change>,
    /// Everything up to here has been seen: where to go on. Also moves on an empty page.
    pub continuation: Continuation,
    /// A filter had looked at enough for one page before it came to the end: an empty page then does
    /// not mean that there is nothing newer. Read on at once.
    pub unfinished: bool,
}

/// The part of a request that one partition answers.
struct Part {
    partition: Arc<Partition>,
    /// What of the partition is asked for; `None` for all of it.
    filter: Option<KeyRange>,
    /// What the position is about.
    range: KeyRange,
    after: Lsn,
}

impl Container {
    /// Reads one page of the change feed.
    ///
    /// An empty page means that there is nothing newer, unless it is [unfinished](FeedPage::unfinished);
    /// its continuation says up to where. With [`FeedRequest::wait`] that answer comes only when the
    /// time is over.
    ///
    /// All versions from [`FeedStart::Beginning`] start at the oldest change that is kept.
    ///
    /// # Errors
    /// When the range is gone, or the position is not one this container could go on from. All versions
    /// from a position that is no longer kept are refused with the oldest position that is.
    pub async fn read_feed(&self, request: &FeedRequest) -> Result<FeedPage, FeedError> {
        let page = match self.read_once(request) {
            // Compaction passed the oldest position while it was being read.
            Err(FeedError::BeforeRetention { .. }) if request.start == FeedStart::Beginning => {
                self.read_once(request)?
            }
            read => read?,
        };
        if !page.changes.is_empty() || request.wait.is_zero() {
            return Ok(page);
        }
        self.wait_for_changes(request, page).await
    }

    fn read_once(&self, request: &FeedRequest) -> Result<FeedPage, FeedError> {
        let mut parts = self.resolve(request)?;
        self.read_parts(request, &mut parts)
    }

    /// Looks again whenever something may have become visible, until the time is over.
    async fn wait_for_changes(
        &self,
        request: &FeedRequest,
        empty: FeedPage,
    ) -> Result<FeedPage, FeedError> {
        let runtime = &self.state().shared.runtime;
        let deadline = runtime.elapsed() + request.wait;
        let mut page = empty;
        loop {
            // From where the last look ended: "now" must not move while somebody waits for it.
            let again = FeedRequest {
                start: FeedStart::After(page.continuation.clone()),
                ..request.clone()
            };
            // Subscribe before looking, to ranges as to changes, or what comes between the two would go
            // unnoticed.
            let mut changes = vec![self.state().topology_changed.listen()];
            let mut parts = self.resolve(&again)?;
            changes.extend(parts.iter().map(|part| part.partition.listen()));
            page = self.read_parts(&again, &mut parts)?;
            let left = deadline.saturating_sub(runtime.elapsed());
            if !page.changes.is_empty() || left.is_zero() {
                return Ok(page);
            }
            if page.unfinished {
                tokio::task::yield_now().await;
                continue;
            }
            let mut waiting: Vec<_> =
                changes.iter_mut().map(|change| Box::pin(change.rang())).collect();
            let any = poll_fn(|context| {
                let ready = waiting.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
                if ready { Poll::Ready(()) } else { Poll::Pending }
            });
            let _ = runtime.timeout(left, any).await;
        }
    }

    /// Finds out which partitions are asked, for what, and from where.
    fn resolve(&self, request: &FeedRequest) -> Result<Vec<Part>, FeedError> {
        let topology = self.state().topology();
        if topology.dropped || topology.partitions.is_empty() {
            return Err(FeedError::ContainerGone);
        }
        if topology.closed {
            return Err(StorageError::Closed.into());
        }
        if let FeedStart::After(continuation) = &request.start
            && continuation.container().is_some_and(|container| container != self.rid())
        {
            return Err(FeedError::WrongContainer);
        }
        if let Some(filter) = &request.filter {
            filter.check(request.mode)?;
        }
        if request.mode == FeedMode::AllVersionsAndDeletes
            && matches!(request.start, FeedStart::Time(_))
        {
            return Err(FeedError::UnsupportedStart("a point in time"));
        }
        let wanted = self.wanted_range(request)?;
        let asked: Vec<&Arc<Partition>> = match request.partition {
            Some(id) => vec![topology.partition(id).ok_or(FeedError::RangeGone(id))?],
            None => topology.partitions.iter().collect(),
        };
        let mut parts = Vec::with_capacity(asked.len());
        for partition in asked {
            let Some(range) = partition.range.intersect(&wanted) else {
                continue;
            };
            partition.check_served()?;
            for (range, after) in starts_of(partition, &range, request)? {
                let filter = (range != partition.range).then(|| range.clone());
                parts.push(Part { partition: partition.clone(), filter, range, after });
            }
        }
        if parts.is_empty() { Err(FeedError::EmptyScope) } else { Ok(parts) }
    }

    /// The one partition and position that a plain request for latest versions is about, if it is one.
    pub(crate) fn one_log(
        &self,
        request: &FeedRequest,
    ) -> Result<Option<(Arc<Partition>, Lsn)>, FeedError> {
        if request.filter.is_some() || request.mode != FeedMode::LatestVersion {
            return Ok(None);
        }
        let parts = self.resolve(request)?;
        Ok(match &parts[..] {
            [Part { partition, filter: None, after, .. }] => Some((partition.clone(), *after)),
            _ => None,
        })
    }

    fn wanted_range(&self, request: &FeedRequest) -> Result<KeyRange, FeedError> {
        let mut wanted = request.range.clone().unwrap_or_else(KeyRange::full);
        if let Some(key) = &request.key {
            let of_key = self.settings().definition.partition_key().prefix_range(key)?;
            wanted = wanted.intersect(&of_key).ok_or(FeedError::EmptyScope)?;
        }
        Ok(wanted)
    }

    fn read_parts(&self, request: &FeedRequest, parts: &mut [Part]) -> Result<FeedPage, FeedError> {
        let read = self.fill_page(request, parts);
        read.map_err(|error| match error {
            FeedError::BeforeRetention { asked, oldest, .. } => {
                self.before_retention(request, asked, oldest)
            }
            other => other,
        })
    }

    /// A refusal that says where everything the request is about can be resumed.
    fn before_retention(&self, request: &FeedRequest, asked: Lsn, oldest: Lsn) -> FeedError {
        let mut positions = Vec::new();
        let mut missing: BTreeMap<u32, u64> = BTreeMap::new();
        // The parts that were read have moved on; these stand where the request began.
        for part in self.resolve(request).unwrap_or_default() {
            let Ok(log) = part.partition.log() else { continue };
            for (range, floor) in log.complete_by_key(&part.range) {
                let behind = floor.get().saturating_sub(part.after.get());
                let known = missing.entry(part.partition.id.get()).or_default();
                *known = behind.max(*known);
                positions.push(RangePosition { range, after: part.after.max(floor) });
            }
        }
        let position = match &positions[..] {
            [] => Continuation::Single(oldest),
            [one] => Continuation::Single(one.after),
            _ => Continuation::composite(self.rid(), positions)
                .unwrap_or(Continuation::Single(oldest)),
        };
        let missing = missing.values().sum();
        FeedError::BeforeRetention { asked, oldest, position: Box::new(position), missing }
    }

    fn fill_page(&self, request: &FeedRequest, parts: &mut [Part]) -> Result<FeedPage, FeedError> {
        if let [part] = parts {
            let page = part.partition.read_feed(&PartitionRequest {
                after: part.after,
                mode: request.mode,
                range: part.filter.as_ref(),
                limit: request.limit,
                filter: request.filter.as_deref(),
                scan_bytes: FILTERED_BYTES,
                until: None,
                refuse_above: request.refuse_above,
            })?;
            return Ok(FeedPage {
                changes: page.changes,
                continuation: Continuation::Single(page.position),
                unfinished: page.unfinished,
            });
        }
        // Who comes first changes from page to page, so that a small limit starves nobody.
        let turn: u64 = parts.iter().fold(0, |sum, part| sum.wrapping_add(part.after.get()));
        let count = parts.len();
        let first = usize::try_from(turn % count as u64).unwrap_or(0);
        let (mut items, mut bytes) = (request.limit.items, request.limit.bytes);
        let scan_bytes = (FILTERED_BYTES / count).max(FILTERED_BYTES_MIN);
        let (mut changes, mut unfinished) = (Vec::new(), false);
        for visited in 0..count {
            let left = u32::try_from(count - visited).unwrap_or(1);
            let share = (items / left).max(u32::from(items > 0));
            let Ok(limit) = PageLimit::new(share, (bytes / left).max(u32::from(bytes > 0))) else {
                unfinished |= request.filter.is_some();
                break;
            };
            let part = &mut parts[(first + visited) % count];
            let page = part.partition.read_feed(&PartitionRequest {
                after: part.after,
                mode: request.mode,
                range: part.filter.as_ref(),
                limit,
                filter: request.filter.as_deref(),
                scan_bytes,
                until: None,
                refuse_above: request.refuse_above,
            })?;
            part.after = page.position;
            unfinished |= page.unfinished;
            let size: usize = page.changes.iter().map(Change::byte_count).sum();
            items = items.saturating_sub(u32::try_from(page.changes.len()).unwrap_or(u32::MAX));
            bytes = bytes.saturating_sub(u32::try_from(size).unwrap_or(u32::MAX));
            changes.extend(page.changes);
        }
        let continuation = Continuation::composite(self.rid(), positions_of(parts))?;
        Ok(FeedPage { changes, continuation, unfinished })
    }

    /// Returns the position before the first change of a request, whatever the request starts with.
    ///
    /// # Errors
    /// As [`read_feed`](Container::read_feed).
    pub fn start_position(&self, request: &FeedRequest) -> Result<Continuation, FeedError> {
        match &self.resolve(request)?[..] {
            [part] => Ok(Continuation::Single(part.after)),
            parts => Ok(Continuation::composite(self.rid(), positions_of(parts))?),
        }
    }

    /// The positions from which changes at or after `time` follow, for one range: one, or several where
    /// ranges were merged.
    ///
    /// # Errors
    /// When the range is gone or the log cannot be read.
    pub fn positions_at(
        &self,
        range: PartitionId,
        time: Timestamp,
    ) -> Result<Vec<RangePosition>, FeedError> {
        let topology = self.state().topology();
        let partition = topology.partition(range).ok_or(FeedError::RangeGone(range))?;
        let positions = positions_at(partition, &partition.range, time)?.into_iter();
        Ok(positions.map(|(range, after)| RangePosition { range, after }).collect())
    }
}

fn positions_at(
    partition: &Partition,
    range: &KeyRange,
    time: Timestamp,
) -> Result<Vec<(KeyRange, Lsn)>, FeedError> {
    let visible = partition.visible();
    let positions = partition.log()?.positions_before(time, range)?.into_iter();
    Ok(positions.map(|(range, after)| (range, after.min(visible))).collect())
}

/// Where to start in a range of a partition: usually one position, but after a merge a reader may
/// have got further in one half than in the other, and neither must be read twice.
fn starts_of(
    partition: &Partition,
    range: &KeyRange,
    request: &FeedRequest,
) -> Result<Vec<(KeyRange, Lsn)>, FeedError> {
    let starts = match &request.start {
        FeedStart::Beginning if request.mode == FeedMode::AllVersionsAndDeletes => {
            let newest = partition.visible();
            let oldest = partition.log()?.complete_by_key(range).into_iter();
            oldest.map(|(range, after)| (range, after.min(newest))).collect()
        }
        FeedStart::Beginning => vec![(range.clone(), Lsn::ZERO)],
        FeedStart::Now => vec![(range.clone(), partition.visible())],
        FeedStart::Time(time) => positions_at(partition, range, *time)?,
        FeedStart::After(Continuation::Single(after)) => vec![(range.clone(), *after)],
        FeedStart::After(continuation @ Continuation::Composite { positions, .. }) => {
            if continuation.position_for(range).is_none() {
                return Err(FeedError::PositionMissing(range.clone()));
            }
            let overlapping = positions
                .iter()
                .filter_map(|position| Some((position.range.intersect(range)?, position.after)));
            overlapping.collect()
        }
    };
    let newest = partition.visible();
    match starts.iter().find(|(_, after)| *after > newest) {
        Some((_, asked)) => Err(FeedError::PositionAhead { asked: *asked, newest }),
        None => Ok(starts),
    }
}

/// One position per stretch of keys: neighbours that have come equally far become one.
fn positions_of(parts: &[Part]) -> Vec<RangePosition> {
    let mut positions: Vec<(PartitionId, RangePosition)> = Vec::with_capacity(parts.len());
    for part in parts {
        let id = part.partition.id;
        if let Some((known, last)) = positions.last_mut()
            && *known == id
            && last.after == part.after
            && let Ok(range) = last.range.merge(&part.range)
        {
            last.range = range;
            continue;
        }
        positions.push((id, RangePosition { range: part.range.clone(), after: part.after }));
    }
    positions.into_iter().map(|(_, position)| position).collect()
}
