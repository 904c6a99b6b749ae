//! A page of a query that answers item by item, in the order of a scan.
//!
//! It looks at some items one by one. If few of them match, the rest of the partition is quicker read in the
//! order of its log (see `sweep`): the rows are put into the order of a scan afterwards, and those beyond the
//! page are kept for the next one. The position in the continuation is that of the scan in either case, so
//! rows that were kept and are gone are simply found again.

use super::leftovers::Rows;
use super::source::Source;
use super::sweep::{Seen, Swept};
use super::{
    ITEMS_READ_MAX, PAGE_TIME_MAX, Place, QueryFailure, QueryPage, SCAN_BYTES, SCAN_ITEMS,
};
use crate::container::Container;
use crate::keys::{self, Key};
use crate::partition::Partition;
use crate::scan::{ScanScope, position_text, successor};
use bytes::Bytes;
use headwater_model::PageLimit;
use headwater_query::{Context, Next, Progress, Query, Run};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of rows that a sweep may find, as far as can be foreseen; more could not be kept.
const SWEPT_BYTES_MAX: usize = 2 << 20;
/// Steps of evaluation a sweep may take, as far as can be foreseen; far below what a run may.
const SWEPT_STEPS_MAX: u64 = 50_000_000;
/// Entries of a log that are read for one page.
const SWEPT_ENTRIES_MAX: u64 = 4_000_000;

/// A page that is being filled.
struct Filling<'c> {
    page: QueryPage,
    bytes: usize,
    limit: PageLimit,
    deadline: Duration,
    source: Source<'c>,
    run: Run,
    /// Where the page began.
    began: Option<Key>,
    /// A sweep came to nothing, so that no other is tried.
    swept_in_vain: bool,
}

impl Filling<'_> {
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
        scope: &ScanScope,
        after: Option<&str>,
        limit: PageLimit,
    ) -> Result<QueryPage, QueryFailure> {
        let (progress, position, leftovers) = match after.map(Place::parse).transpose()? {
            None => (Progress::default(), None, 0),
            Some(Place::Scan { progress, position, leftovers }) => {
                (progress, Some(position), leftovers)
            }
            Some(_) => return Err(QueryFailure::BadContinuation),
        };
        let shared = &self.state().shared;
        let source = Source::new(self, query, scope, position.as_ref())?;
        let mut filling = Filling {
            page: QueryPage::default(),
            bytes: 0,
            limit,
            deadline: shared.runtime.elapsed() + PAGE_TIME_MAX,
            began: source.left().map(|(from, _)| from),
            source,
            run: query.resume(context, progress),
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
                && let Some((rows, at)) = filling.take_kept(rows)
            {
                let (id, owner) = (shared.runtime.random(), self.owner_of(query, scope));
                let leftovers = shared.leftovers.keep(id, owner, rows, shared.runtime.elapsed());
                let place = Place::Scan {
                    progress: filling.run.progress(),
                    position: position_text(&at),
                    leftovers,
                };
                filling.page.next = Some(place.write());
                return filling.finish();
            }
            let is_spent = filling.page.items_read >= ITEMS_READ_MAX
                || shared.runtime.elapsed() >= filling.deadline;
            if filling.source.position().is_none() || filling.is_full() || is_spent {
                let position = filling.source.position();
                let progress = filling.run.progress();
                let place = |position| Place::Scan { progress, position, leftovers: 0 };
                filling.page.next = position.map(|position| place(position).write());
                return filling.finish();
            }
            kept = match self.worth_sweeping(query, &filling) {
                Some(partition) => {
                    let rows = self.sweep_rows(&partition, query, &mut filling).await?;
                    filling.swept_in_vain = rows.is_none();
                    rows
                }
                None => None,
            };
            if kept.is_none() {
                filling.scan_on().await?;
            }
        }
    }

    /// The partition whose rest had better be read in the order of its log.
    fn worth_sweeping(&self, query: &Query, filling: &Filling<'_>) -> Option<Arc<Partition>> {
        let read = filling.page.items_read;
        let enough = read >= self.state().shared.options.sweep_after_items;
        if !enough
            || filling.swept_in_vain
            || !filling.source.is_scan()
            || query.window() != (0, None)
        {
            return None;
        }
        let (from, to) = filling.source.left()?;
        let topology = self.state().topology();
        let (epk, _) =
            keys::parse_item(&from).or_else(|| Some((self.first_epk(&from)?, &[][..])))?;
        let partition = topology.partition_of(epk.as_bytes())?;
        // What lies before the page would be read for nothing.
        let entries = partition.visible().get();
        let whole = self.may_sweep(partition, filling.began.as_ref()?, &to);
        let per_item = |sum: u64| sum.saturating_mul(entries) / (read as u64).max(1);
        let fits = entries <= SWEPT_ENTRIES_MAX
            && per_item(filling.bytes as u64) <= SWEPT_BYTES_MAX as u64
            && per_item(filling.run.steps()) <= SWEPT_STEPS_MAX;
        (whole && fits).then(|| partition.clone())
    }

    /// The hashed key where a partition begins, if a key is just that.
    fn first_epk(&self, key: &Key) -> Option<headwater_model::Epk> {
        let topology = self.state().topology();
        let begins =
            |partition: &&Arc<Partition>| keys::items_in(self.rid(), &partition.range).0 == *key;
        topology.partitions.iter().find(begins).map(|partition| partition.range.min().clone())
    }

    /// The rows of what is left of a partition, in the order of a scan. `None` if they are too many, or some
    /// may be missing.
    async fn sweep_rows(
        &self,
        partition: &Partition,
        query: &Query,
        filling: &mut Filling<'_>,
    ) -> Result<Option<Rows>, QueryFailure> {
        let Some((from, _)) = filling.source.left() else { return Ok(None) };
        let mut found: Vec<(Key, Vec<Bytes>)> = Vec::new();
        let (mut bytes, mut items, mut item_bytes) = (0, 0, 0);
        let run = &mut filling.run;
        let mut look = |seen: Seen<'_>| {
            items += 1;
            item_bytes += seen.text.len();
            let mut rows = Vec::new();
            seen.push(run, &mut rows)?;
            if rows.is_empty() {
                return Ok(true);
            }
            let key = seen.key();
            if key >= from {
                let rows: Vec<Bytes> =
                    rows.into_iter().map(|row| row.into_owned().into()).collect();
                bytes += rows.iter().map(Bytes::len).sum::<usize>() + key.len();
                found.push((key, rows));
            }
            Ok(bytes <= 2 * SWEPT_BYTES_MAX)
        };
        let swept = match self.sweep(partition, query, &mut look).await {
            Err(QueryFailure::Read(_)) => Swept::GivenUp,
            swept => swept?,
        };
        filling.page.items_read += items;
        filling.page.bytes_read += item_bytes;
        if swept != Swept::All {
            return Ok(None);
        }
        found.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        let (_, behind) = keys::items_in(self.rid(), &partition.range);
        let mut rows = Rows { end: Some(behind), ..Rows::default() };
        for (key, of_item) in found {
            rows.keys.extend(std::iter::repeat_n(key, of_item.len()));
            rows.rows.extend(of_item.into_iter().map(|row| (row, None)));
        }
        Ok(Some(rows))
    }
}

impl Filling<'_> {
    /// Looks at some items one by one.
    async fn scan_on(&mut self) -> Result<(), QueryFailure> {
        let wanted = (self.limit.items as usize).saturating_sub(self.page.rows.len());
        let batch = u32::try_from(wanted).unwrap_or(SCAN_ITEMS).clamp(1, SCAN_ITEMS);
        let batch = PageLimit::new(batch, SCAN_BYTES).unwrap_or_default();
        for item in self.source.next(batch).await? {
            let text = item.to_bytes();
            self.page.items_read += 1;
            self.page.bytes_read += text.len();
            let mut rows = Vec::new();
            let next = self.run.push(&text, item.number(), &mut rows)?;
            for row in rows {
                self.push(match row {
                    Cow::Borrowed(row) => text.slice_ref(row),
                    Cow::Owned(row) => Bytes::from(row),
                });
            }
            if next == Next::Enough {
                self.source.end();
                break;
            }
        }
        Ok(())
    }

    /// Takes rows that are in the order of the scan, all rows of an item or none. Returns those that are
    /// left over and where they begin; when there are none, the scan goes on behind them.
    fn take_kept(&mut self, mut rows: Rows) -> Option<(Rows, Key)> {
        let mut last: Option<Key> = None;
        while let (Some(key), false) = (rows.keys.front(), self.is_full()) {
            let key = key.clone();
            while rows.keys.front() == Some(&key) {
                rows.keys.pop_front();
                let row = rows.rows.pop_front();
                row.into_iter().for_each(|(row, _)| self.push(row));
            }
            last = Some(key);
        }
        if rows.keys.is_empty() {
            if let Some(end) = rows.end {
                self.source.move_to(end);
            }
            return None;
        }
        let at = last
            .map_or_else(|| self.source.left().map(|(from, _)| from), |key| Some(successor(key)))?;
        Some((rows, at))
    }

    fn finish(mut self) -> Result<QueryPage, QueryFailure> {
        self.page.steps = self.run.steps();
        self.source.learn(self.page.items_read, self.page.rows.len())?;
        self.page.index = self.source.usage;
        Ok(self.page)
    }
}
