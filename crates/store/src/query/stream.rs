//! A page of a query that streams item by item, in creation order or in scan order (see `source`).
//!
//! The page first reads items one by one. If few of them match, a sweep reads the rest in log order, which is faster
//! (see `sweep`). The rows are then sorted into the order of the query, and those beyond the page are cached for the
//! next one. A sweep can also change a query from scan order to creation order, if no row was returned yet. The
//! continuation token always holds a position in the order of the query, so cached rows that are evicted are found
//! again.

use super::leftovers::Rows;
use super::source::{Source, Spot};
use super::sweep::{Seen, Swept};
use super::{
    ITEMS_READ_MAX, Place, QueryFailure, QueryPage, QueryWatch, SCAN_BYTES, SCAN_ITEMS,
    SWEEP_TIME_MAX,
};
use crate::container::Container;
use crate::item::Item;
use crate::keys::{self, Key};
use crate::partition::Partition;
use crate::scan::{ScanPosition, ScanScope};
use bytes::Bytes;
use headwater_model::PageLimit;
use headwater_query::{
    Context, EvaluationError, Next, Portion, Portioned, Progress, Query, RowPosition, Run,
};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Estimated bytes of rows that a sweep may find; more could not be cached.
const SWEPT_BYTES_MAX: usize = 2 << 20;
/// Estimated evaluation steps that a sweep may take; far below the limit of a run.
const SWEPT_STEPS_MAX: u64 = 50_000_000;
/// Maximum number of log entries that are read for one page.
const SWEPT_ENTRIES_MAX: u64 = 4_000_000;
/// Maximum number of items read after a full page to avoid an empty next page.
const AHEAD_MAX: u32 = 1_000;

/// The partitions that a sweep reads, and the place from which it keeps their items.
struct Sweep {
    partitions: Vec<Arc<Partition>>,
    from: Spot,
}

/// The end of a page: an item, and a position within its rows.
struct PageEnd {
    spot: Spot,
    within: RowPosition,
}

impl From<Spot> for PageEnd {
    fn from(spot: Spot) -> PageEnd {
        PageEnd { spot, within: RowPosition::default() }
    }
}

/// A page that is being filled.
struct PageBuilder<'c> {
    page: QueryPage,
    bytes: usize,
    limit: PageLimit,
    deadline: Duration,
    watch: Arc<QueryWatch>,
    source: Source<'c>,
    run: Run,
    /// The item within which the page ended, because its time was up or it was full.
    stopped_at: Option<PageEnd>,
    /// The position within its first item at which the page resumes.
    resumes_at: Option<PageEnd>,
    /// The unread rest of a batch when the page is full, with the place of each item.
    unseen: VecDeque<(Item, Option<Spot>)>,
    /// Whether this is the first page of the query.
    is_first: bool,
    /// The key at which the page began.
    began: Option<Key>,
    /// Whether a sweep failed; no other sweep is tried then.
    swept_in_vain: bool,
}

impl PageBuilder<'_> {
    fn is_full(&self) -> bool {
        self.page.rows.len() >= self.limit.items as usize || self.bytes >= self.limit.bytes as usize
    }

    fn push(&mut self, row: Bytes) {
        self.bytes += row.len();
        self.page.rows.push(row);
    }
}

impl Container {
    pub(super) async fn stream_query(
        &self,
        query: &Query,
        context: Context,
        watch: &Arc<QueryWatch>,
        scope: &ScanScope,
        after: Option<&str>,
        limit: PageLimit,
    ) -> Result<QueryPage, QueryFailure> {
        let (progress, position, leftovers, within) = match after.map(Place::parse).transpose()? {
            None => (Progress::default(), None, 0, RowPosition::default()),
            Some(Place::Scan { progress, position, leftovers, within }) => {
                (progress, Some(position), leftovers, within)
            }
            Some(_) => return Err(QueryFailure::BadContinuation),
        };
        let resumes_at = match &position {
            Some(position) if !within.is_start() => {
                Some(PageEnd { spot: self.spot_at(position)?, within })
            }
            _ => None,
        };
        let shared = &self.state().shared;
        let rows = limit.items as usize;
        let source = match &position {
            None => Source::begin(self, query, scope, rows).await?,
            Some(position) => Source::resume(self, query, scope, position, rows).await?,
        };
        let deadline = shared.runtime.elapsed() + shared.options.queries.page_time;
        watch.end_at(deadline);
        let mut builder = PageBuilder {
            page: QueryPage::default(),
            bytes: 0,
            limit,
            deadline,
            watch: watch.clone(),
            stopped_at: None,
            resumes_at,
            unseen: VecDeque::new(),
            is_first: after.is_none(),
            began: source.left().map(|(from, _)| from),
            source,
            run: query.resume(context.clone(), progress),
            swept_in_vain: false,
        };
        let mut kept = match leftovers {
            0 => None,
            id => {
                let owner = self.owner_of(query, scope);
                shared.leftovers.take(id, &owner, shared.runtime.elapsed())
            }
        };
        loop {
            if let Some(rows) = kept.take()
                && let Some((rows, at)) = builder.take_kept(rows)
            {
                let (id, owner) = (shared.runtime.random(), self.owner_of(query, scope));
                let leftovers = shared.leftovers.keep(id, owner, rows, shared.runtime.elapsed());
                return builder.finish(Some(at.into()), leftovers);
            }
            if let Some(stop) = builder.stopped_at.take() {
                return builder.finish(Some(stop), 0);
            }
            let is_spent = builder.page.items_read >= ITEMS_READ_MAX
                || shared.runtime.elapsed() >= builder.deadline;
            if builder.source.is_done() || builder.is_full() || is_spent {
                let next = match builder.is_full() {
                    true => builder.look_ahead(query, context).await?,
                    false => builder.source.spot(),
                };
                self.note_order(scope, &builder, next.is_some())?;
                return builder.finish(next.map(PageEnd::from), 0);
            }
            kept = self.swept(query, &mut builder).await?;
            if kept.is_none() {
                builder.scan_on().await?;
            }
        }
    }

    /// The spot that a position names.
    fn spot_at(&self, position: &ScanPosition) -> Result<Spot, QueryFailure> {
        Ok(match position.number()? {
            Some(number) => Spot::Number(number),
            None => Spot::Key(self.behind(position)?),
        })
    }

    /// Records that a query listed most of its items without creation order, so that a listing is built. A query
    /// with few matches does not count.
    fn note_order(
        &self,
        scope: &ScanScope,
        builder: &PageBuilder<'_>,
        is_more: bool,
    ) -> Result<(), QueryFailure> {
        let (source, page) = (&builder.source, &builder.page);
        let is_unordered = source.is_scan() && !source.is_listing();
        let is_list = page.rows.len().saturating_mul(4) >= page.items_read;
        if builder.is_first && is_more && is_unordered && is_list {
            self.miss_listing(scope)?;
        }
        Ok(())
    }

    /// Finds the remaining rows with a sweep of the logs, if that is faster. `None` if not, or if the sweep failed.
    async fn swept(
        &self,
        query: &Query,
        builder: &mut PageBuilder<'_>,
    ) -> Result<Option<Rows>, QueryFailure> {
        let Some(sweep) = self.worth_sweeping(query, builder) else { return Ok(None) };
        let (items, bytes) = (builder.page.items_read, builder.page.bytes_read);
        builder.watch.end_at(self.state().shared.runtime.elapsed() + SWEEP_TIME_MAX);
        let rows = match self.sweep_rows(&sweep, query, builder).await {
            Err(QueryFailure::Evaluation(EvaluationError::OutOfTime)) => None,
            rows => rows?,
        };
        builder.watch.end_at(builder.deadline);
        builder.swept_in_vain = rows.is_none();
        if rows.is_some() && matches!(sweep.from, Spot::Number(_)) {
            if !builder.source.is_listing() {
                // The sweep found the previous rows again, at their places in creation order.
                builder.page.rows.clear();
                builder.bytes = 0;
                builder.page.items_read -= items;
                builder.page.bytes_read -= bytes;
            }
            builder.source.end();
        }
        Ok(rows)
    }

    /// The partitions to sweep: all of the scope if rows may come in creation order, otherwise the next one in scan
    /// order. `None` if a sweep is not worth it.
    fn worth_sweeping(&self, query: &Query, builder: &PageBuilder<'_>) -> Option<Sweep> {
        let read = builder.page.items_read;
        let worth_it = self.state().shared.options.sweep_after_items;
        let is_long = builder.source.items_left().is_none_or(|left| left >= worth_it);
        if read < worth_it
            || !is_long
            || builder.swept_in_vain
            || builder.resumes_at.is_some()
            || !builder.source.is_scan()
            || query.window() != (0, None)
        {
            return None;
        }
        let fits = |partitions: &[Arc<Partition>]| {
            let entries: u64 = partitions.iter().map(|partition| partition.visible().get()).sum();
            let per_item = |sum: u64| sum.saturating_mul(entries) / (read as u64).max(1);
            entries <= SWEPT_ENTRIES_MAX
                && per_item(builder.bytes as u64) <= SWEPT_BYTES_MAX as u64
                && per_item(builder.run.steps()) <= SWEPT_STEPS_MAX
        };
        let (from, to) = builder.source.left()?;
        let began = builder.began.as_ref()?;
        if builder.source.is_listing() || builder.is_first {
            let partitions = self.whole_partitions(began, &to).filter(|all| fits(all));
            if let Some(partitions) = partitions {
                let from = builder.source.spot().filter(|_| builder.source.is_listing());
                return Some(Sweep { partitions, from: from.unwrap_or(Spot::Number(0)) });
            }
        }
        if builder.source.is_listing() {
            return None;
        }
        let topology = self.state().topology();
        let (epk, _) =
            keys::parse_item(&from).or_else(|| Some((self.first_epk(&from)?, &[][..])))?;
        let partition = topology.partition_of(epk.as_bytes())?;
        // A sweep reads whole partitions, so the part before the page would be wasted.
        let whole = self.may_sweep(partition, began, &to) && fits(std::slice::from_ref(partition));
        whole.then(|| Sweep { partitions: vec![partition.clone()], from: Spot::Key(from) })
    }

    /// The partitions that lie between two keys; `None` if one lies there only in part.
    fn whole_partitions(&self, from: &Key, to: &Key) -> Option<Vec<Arc<Partition>>> {
        let mut whole = Vec::new();
        for partition in &self.state().topology().partitions {
            let (first, behind) = keys::items_in(self.rid(), &partition.range);
            if behind <= *from || *to <= first {
                continue;
            }
            if first < *from || *to < behind {
                return None;
            }
            whole.push(partition.clone());
        }
        Some(whole)
    }

    /// The hashed key at which a partition begins, if `key` is the first key of that partition.
    fn first_epk(&self, key: &Key) -> Option<headwater_model::Epk> {
        let topology = self.state().topology();
        let begins =
            |partition: &&Arc<Partition>| keys::items_in(self.rid(), &partition.range).0 == *key;
        topology.partitions.iter().find(begins).map(|partition| partition.range.min().clone())
    }

    /// Sweeps partitions and returns their rows in the order of the query. `None` if the rows are too many or may
    /// be incomplete.
    async fn sweep_rows(
        &self,
        sweep: &Sweep,
        query: &Query,
        builder: &mut PageBuilder<'_>,
    ) -> Result<Option<Rows>, QueryFailure> {
        let mut found: Vec<(Spot, Vec<Bytes>)> = Vec::new();
        let (mut bytes, mut items, mut item_bytes) = (0, 0, 0);
        let run = &mut builder.run;
        // Cached rows are returned item by item, so an item with more rows than a page ends the sweep.
        let (rows, bytes_max) = (builder.limit.items as usize, builder.limit.bytes as usize);
        let bytes_max = bytes_max.min(SWEPT_BYTES_MAX);
        let whole = Portion { from: RowPosition::default(), rows, bytes: bytes_max };
        let mut look = |seen: Seen<'_>| {
            items += 1;
            item_bytes += seen.text.len();
            let mut rows = Vec::new();
            if let Portioned::Part(_) = seen.push_portion(run, &whole, &mut rows)? {
                return Ok(false);
            }
            if rows.is_empty() {
                return Ok(true);
            }
            let spot = match sweep.from {
                Spot::Key(_) => Spot::Key(seen.key()),
                Spot::Number(_) => Spot::Number(seen.number),
            };
            if spot >= sweep.from {
                let rows: Vec<Bytes> =
                    rows.into_iter().map(|row| row.into_owned().into()).collect();
                bytes += rows.iter().map(Bytes::len).sum::<usize>() + spot.bytes();
                found.push((spot, rows));
            }
            Ok(bytes <= 2 * SWEPT_BYTES_MAX)
        };
        let mut swept = Swept::All;
        for partition in &sweep.partitions {
            if swept == Swept::All {
                swept = match self.sweep(partition, query, &mut look).await {
                    Err(QueryFailure::Read(_)) => Swept::GivenUp,
                    swept => swept?,
                };
            }
        }
        builder.page.items_read += items;
        builder.page.bytes_read += item_bytes;
        if swept != Swept::All {
            return Ok(None);
        }
        found.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        let behind = sweep.partitions.last().map(|last| keys::items_in(self.rid(), &last.range).1);
        let end = behind.filter(|_| matches!(sweep.from, Spot::Key(_)));
        let mut rows = Rows { end, ..Rows::default() };
        for (spot, of_item) in found {
            rows.spots.extend(std::iter::repeat_n(spot, of_item.len()));
            rows.rows.extend(of_item.into_iter().map(|row| (row, None)));
        }
        Ok(Some(rows))
    }
}

impl PageBuilder<'_> {
    /// Reads and evaluates one batch of items.
    async fn scan_on(&mut self) -> Result<(), QueryFailure> {
        let wanted = (self.limit.items as usize).saturating_sub(self.page.rows.len());
        let batch = u32::try_from(wanted).unwrap_or(SCAN_ITEMS).clamp(1, SCAN_ITEMS);
        let batch = PageLimit::new(batch, SCAN_BYTES).unwrap_or_default();
        let items = self.source.next(batch).await?;
        let mut items = items.into_iter().enumerate();
        while let Some((place, item)) = items.next() {
            let spot = self.source.spot_of(place, &item);
            if self.is_full() {
                self.unseen.push_back((item, spot));
                let spots = items.map(|(place, item)| {
                    let spot = self.source.spot_of(place, &item);
                    (item, spot)
                });
                self.unseen.extend(spots);
                return Ok(());
            }
            // If the item at which to resume is gone, the next one starts with its first row.
            let resumed = self.resumes_at.take().filter(|stop| Some(&stop.spot) == spot.as_ref());
            let portion = Portion {
                from: resumed.map(|stop| stop.within).unwrap_or_default(),
                rows: (self.limit.items as usize).saturating_sub(self.page.rows.len()),
                bytes: (self.limit.bytes as usize).saturating_sub(self.bytes),
            };
            let text = item.to_bytes();
            let mut rows = Vec::new();
            let next = match self.run.push_portion(&text, item.number(), &portion, &mut rows) {
                // The next page begins with this item. If it is the first item of the page, the query fails.
                Err(EvaluationError::OutOfTime) if self.page.items_read > 0 => {
                    self.stopped_at = spot.map(|spot| PageEnd { spot, within: portion.from });
                    return Ok(());
                }
                next => next?,
            };
            self.page.items_read += 1;
            self.page.bytes_read += text.len();
            for row in rows {
                self.push(match row {
                    Cow::Borrowed(row) => text.slice_ref(row),
                    Cow::Owned(row) => Bytes::from(row),
                });
            }
            match next {
                Portioned::Whole(Next::More) => {}
                Portioned::Whole(Next::Enough) => {
                    self.source.end();
                    break;
                }
                Portioned::Part(within) => {
                    self.stopped_at = spot.map(|spot| PageEnd { spot, within });
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The place at which to continue after a full page. Looks for the next item that has a row, so that no empty
    /// page follows, but reads at most about `AHEAD_MAX` items.
    async fn look_ahead(
        &mut self,
        query: &Query,
        context: Context,
    ) -> Result<Option<Spot>, QueryFailure> {
        let may_have_none = query.may_pass_over() && query.user_functions().is_empty();
        // A separate run, because the run of the page must not count rows that are not returned.
        let mut run = query.resume(context, self.run.progress());
        while let Some((item, spot)) = self.unseen.pop_front() {
            if !may_have_none || self.has_row(&mut run, &item) {
                return Ok(spot);
            }
        }
        if !self.source.is_listing() || !may_have_none {
            return Ok(self.source.spot());
        }
        let (mut looked, mut batch) = (0, 1);
        while looked < AHEAD_MAX && !self.source.is_done() {
            let limit = PageLimit::new(batch, SCAN_BYTES).unwrap_or_default();
            for item in self.source.next(limit).await? {
                if self.has_row(&mut run, &item) {
                    return Ok(Some(Spot::Number(item.number())));
                }
            }
            looked += batch;
            batch = (batch * 2).min(SCAN_ITEMS);
        }
        Ok(self.source.spot())
    }

    /// Whether an item has a row. An item that fails to evaluate counts, so that the next page reports the error.
    fn has_row(&mut self, run: &mut Run, item: &Item) -> bool {
        let text = item.to_bytes();
        self.page.items_read += 1;
        self.page.bytes_read += text.len();
        let mut rows = Vec::new();
        let first = Portion { from: RowPosition::default(), rows: 1, bytes: usize::MAX };
        let next = run.push_portion(&text, item.number(), &first, &mut rows);
        !rows.is_empty() || !matches!(next, Ok(Portioned::Whole(_)))
    }

    /// Moves cached rows to the page, always all rows of an item. Returns the rows that do not fit and the place of
    /// the first of them. If all fit, the source continues after them.
    fn take_kept(&mut self, mut rows: Rows) -> Option<(Rows, Spot)> {
        while let (Some(spot), false) = (rows.spots.front(), self.is_full()) {
            let spot = spot.clone();
            if !self.page.rows.is_empty() && !self.has_room_for(&rows, &spot) {
                break;
            }
            while rows.spots.front() == Some(&spot) {
                rows.spots.pop_front();
                let row = rows.rows.pop_front();
                row.into_iter().for_each(|(row, _)| self.push(row));
            }
        }
        let Some(at) = rows.spots.front().cloned() else {
            match rows.end {
                Some(end) => self.source.move_to(end),
                None => self.source.end(),
            }
            return None;
        };
        Some((rows, at))
    }

    /// Whether all cached rows of the item at a place fit on the page.
    fn has_room_for(&self, rows: &Rows, spot: &Spot) -> bool {
        let of_item = rows.spots.iter().take_while(|one| *one == spot).count();
        let bytes: usize = rows.rows.iter().take(of_item).map(|(row, _)| row.len()).sum();
        self.page.rows.len() + of_item <= self.limit.items as usize
            && self.bytes + bytes <= self.limit.bytes as usize
    }

    /// Completes the page with the token of the next one and the usage of resources.
    fn finish(mut self, next: Option<PageEnd>, leftovers: u64) -> Result<QueryPage, QueryFailure> {
        let progress = self.run.progress();
        let place = |PageEnd { spot, within }: PageEnd| Place::Scan {
            progress,
            position: spot.position(),
            leftovers,
            within,
        };
        self.page.next = next.map(|stop| place(stop).write());
        self.page.steps = self.run.steps();
        self.page.memory = Arc::new(self.run.take_lease());
        self.source.learn(self.page.items_read, self.page.rows.len())?;
        self.page.index = self.source.take_usage();
        Ok(self.page)
    }
}
