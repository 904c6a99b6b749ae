//! The items of a scope in the order of their creation, which is that of their numbers.
//!
//! Items lie in the order of their hashed keys, so this order has to be made, and nothing is done for it when an
//! item is written:
//!
//! ```text
//! few items     their rows are read, which know the numbers, and sorted; no item is looked at
//! many          along an index of that order (see `secondary`), if there is one that has caught up
//! many, no index    nobody begins such a listing, but one that was begun goes on: all rows are read, and those
//!                   that come next are kept
//! ```
//!
//! An item keeps its number as long as it lives, and numbers do not depend on where the bounds of ranges are. So a
//! number says where a listing goes on, through writes, restarts, splits and merges, whichever of the three ways the
//! next page takes. An item that is there during the whole listing is seen exactly once; one that comes or goes
//! meanwhile may or may not be. Items of several ranges come by the range they were created in.

use crate::container::Container;
use crate::error::{ItemReadError, StorageError};
use crate::item::Item;
use crate::keys::{self, ItemRow, Key};
use crate::partition::recover::first_rid;
use crate::scan::{ScanPage, ScanPosition, ScanScope};
use crate::secondary::{Indexed, PathIndex, Proposed};
use headwater_model::{PageLimit, PartitionId};
use headwater_query::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

/// Entries taken from an index at once.
const ENTRIES_AT_ONCE: usize = 256;
/// Entries that may lead out of the scope before others have a turn.
const ENTRIES_MAX: usize = 100_000;
/// Rows that are sorted at once, at least; a listing that goes on without an index reads all others for it.
const ROWS_AT_ONCE: usize = 4_000;

/// See the head of this file.
pub(crate) struct Listing {
    /// The items in question.
    from: Key,
    to: Key,
    /// The first number that was not handed out.
    next: u64,
    /// What comes next, by number.
    lot: VecDeque<Listed>,
    /// From which number on there may be more; `None` if the lot is all.
    horizon: Option<u64>,
    along: Option<Along>,
    /// Entries of an index that were looked at.
    pub(crate) entries: usize,
}

/// An item whose turn will come.
pub(crate) struct Listed {
    pub(crate) number: u64,
    pub(crate) item: Proposed,
    /// The item, where it was read already.
    pub(crate) read: Option<Item>,
}

/// An index to walk along.
struct Along {
    index: Arc<PathIndex>,
    ordering: Ordering,
    /// The numbers that items of the scope may have, and the first behind them.
    first: u64,
    end: u64,
}

impl Container {
    /// Reads items in the order of their creation, a page at a time.
    ///
    /// Where they are many and no index has that order yet, the listing is in the order of a
    /// [scan](Container::scan) instead, to its end.
    ///
    /// # Errors
    /// When the scope or position is not one of this container, or the store fails.
    pub async fn list(
        &self,
        scope: &ScanScope,
        after: Option<&ScanPosition>,
        limit: PageLimit,
    ) -> Result<ScanPage, ItemReadError> {
        let listing = match after {
            None => self.begin_listing(scope)?,
            Some(position) => match position.number()? {
                Some(number) => Some(self.resume_listing(scope, number)?),
                None => None,
            },
        };
        let Some(mut listing) = listing else {
            let page = self.scan(scope, after, limit).await?;
            if after.is_none() && page.next.is_some() {
                self.miss_listing(scope)?;
            }
            return Ok(page);
        };
        let items = self.list_on(&mut listing, limit).await?;
        let next = listing.position(self)?.map(ScanPosition::of_number);
        self.check_served(scope)?;
        Ok(ScanPage { items, next })
    }

    /// All items of a scope, from the first on; `None` if they are many and no index has them in order.
    pub(crate) fn begin_listing(
        &self,
        scope: &ScanScope,
    ) -> Result<Option<Listing>, ItemReadError> {
        let (from, to) = self.bounds(scope)?;
        if let Some(along) = self.along(scope, &from, &to)? {
            return Ok(Some(Listing::new((from, to), 0, Some(along))));
        }
        let most = self.state().shared.options.sort_listings_up_to;
        let extent = self.extent(&from, &to);
        if self.is_long(&extent, most) {
            return Ok(None);
        }
        // Some more than are sorted, so that it is not found out again whenever an item goes.
        let (room, gone) = (most.saturating_mul(2), extent.gone());
        let mut sorting = Sorting::new(0, most, room);
        self.sort_rows(&from, &to, &mut sorting, false)?;
        if sorting.horizon.is_some() {
            self.note_long(&extent, sorting.rows, gone);
            return Ok(None);
        }
        let mut listing = Listing::new((from, to), 0, None);
        listing.take(sorting);
        Ok(Some(listing))
    }

    /// The items of a scope from a number on.
    pub(crate) fn resume_listing(
        &self,
        scope: &ScanScope,
        next: u64,
    ) -> Result<Listing, ItemReadError> {
        let (from, to) = self.bounds(scope)?;
        let along = self.along(scope, &from, &to)?;
        Ok(Listing::new((from, to), next, along))
    }

    /// Notes that a listing was not in the order of creation.
    pub(crate) fn miss_listing(&self, scope: &ScanScope) -> Result<(), StorageError> {
        match self.creation(scope) {
            Some(ordering) => {
                let of = Indexed::Order(ordering.paths);
                self.state().secondary.miss_listing(self.state(), of)
            }
            None => Ok(()),
        }
    }

    /// The order of creation in a scope, if there may be an index of it. Within a partition key it is one that
    /// has each key's items together.
    fn creation(&self, scope: &ScanScope) -> Option<Ordering> {
        let fixed = self.fixed_by(scope);
        let has_all = match scope {
            ScanScope::Key(key) => fixed.len() == key.components().len(),
            _ => true,
        };
        let ordering = Ordering::of_creation(&fixed).filter(|_| has_all)?;
        let of = Indexed::Order(ordering.paths.clone());
        self.settings().indexing.allows(&of).then_some(ordering)
    }

    /// An index of the order, if there is one that has caught up.
    fn along(
        &self,
        scope: &ScanScope,
        from: &Key,
        to: &Key,
    ) -> Result<Option<Along>, ItemReadError> {
        let Some(ordering) = self.creation(scope) else { return Ok(None) };
        let Some(index) = self.state().secondary.find_order(&ordering.paths) else {
            return Ok(None);
        };
        if !self.catches_up(&index, from, to)? {
            return Ok(None);
        }
        let (first, end) = self.numbers(from, to);
        Ok(Some(Along { index, ordering, first, end }))
    }

    /// The numbers that items between two keys may have: whoever gave them out is one of the partitions
    /// there, or was one before.
    fn numbers(&self, from: &Key, to: &Key) -> (u64, u64) {
        let topology = self.state().topology();
        let there = topology.partitions.iter().filter(|partition| {
            let (first, behind) = keys::items_in(self.rid(), &partition.range);
            first < *to && *from < behind
        });
        let ids = there.flat_map(|partition| partition.ancestors.iter().chain([&partition.id]));
        let (mut lowest, mut behind) = (u32::MAX, 0);
        for id in ids {
            lowest = lowest.min(id.get());
            behind = behind.max(id.get().saturating_add(1));
        }
        (first_rid(PartitionId::new(lowest)), first_rid(PartitionId::new(behind)))
    }

    /// Sorts the rows between two keys by their numbers. Unless all are wanted, it stops when there are too
    /// many.
    fn sort_rows(
        &self,
        from: &Key,
        to: &Key,
        sorting: &mut Sorting,
        is_all_wanted: bool,
    ) -> Result<(), StorageError> {
        let index = &self.state().shared.index;
        let mut is_malformed = false;
        index.scan(from, to, &mut |key, row| {
            let Some(row) = ItemRow::decode(row) else {
                is_malformed = true;
                return false;
            };
            sorting.push(key, &row);
            is_all_wanted || sorting.horizon.is_none()
        })?;
        if is_malformed {
            return Err(index.doubt("a row is malformed"));
        }
        sorting.end();
        Ok(())
    }

    /// The next items; fewer than asked for at the end, or when many entries led elsewhere.
    pub(crate) async fn list_on(
        &self,
        listing: &mut Listing,
        limit: PageLimit,
    ) -> Result<Vec<Item>, ItemReadError> {
        let mut items = Vec::new();
        let mut bytes = 0;
        let entries_max = listing.entries + ENTRIES_MAX;
        while items.len() < limit.items as usize && bytes < limit.bytes as usize {
            let Some(listed) = listing.lot.pop_front() else {
                if listing.horizon.is_none() || listing.entries >= entries_max {
                    break;
                }
                listing.fill(self)?;
                continue;
            };
            listing.next = listed.number.saturating_add(1);
            let item = match listed.read {
                Some(item) => Some(item),
                None => self.read_proposed(&listed.item).await?,
            };
            // An item that was deleted and created anew is another one, and has its turn later.
            if let Some(item) = item.filter(|item| item.number() == listed.number) {
                bytes += item.feed_bytes().len();
                items.push(item);
            }
        }
        Ok(items)
    }

    /// The number of a proposed item; `None` if it is gone.
    pub(crate) fn number_of(&self, proposed: &Proposed) -> Result<Option<u64>, StorageError> {
        let index = &self.state().shared.index;
        let Some(row) = index.get(&proposed.key)? else { return Ok(None) };
        match ItemRow::decode(&row) {
            Some(row) => Ok(Some(row.rid)),
            None => Err(index.doubt("a row is malformed")),
        }
    }
}

impl Listing {
    fn new((from, to): (Key, Key), next: u64, along: Option<Along>) -> Listing {
        let horizon = Some(next);
        Listing { from, to, next, lot: VecDeque::new(), horizon, along, entries: 0 }
    }

    /// These items and no others, in the order of their numbers.
    pub(crate) fn of(mut items: Vec<Listed>) -> Listing {
        items.sort_unstable_by_key(|listed| listed.number);
        let mut listing = Listing::new((Key::new(), Key::new()), 0, None);
        listing.horizon = None;
        listing.lot = items.into();
        listing
    }

    /// The next number there is an item of, as far as is known; `None` at the end.
    pub(crate) fn position(&mut self, container: &Container) -> Result<Option<u64>, StorageError> {
        if self.lot.is_empty() && self.horizon.is_some() && self.along.is_some() {
            self.fill(container)?;
        }
        Ok(match self.lot.front() {
            Some(listed) => Some(listed.number),
            None => self.horizon,
        })
    }

    /// The first number that was not handed out.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// How many items it has not looked at; `None` if nobody knows.
    pub(crate) fn left(&self) -> Option<usize> {
        self.horizon.is_none().then_some(self.lot.len())
    }

    /// Whether there is nothing more.
    pub(crate) fn is_done(&self) -> bool {
        self.lot.is_empty() && self.horizon.is_none()
    }

    /// The next item to be looked at; `None` at the end, or when many entries led elsewhere.
    pub(crate) fn next_listed(
        &mut self,
        container: &Container,
    ) -> Result<Option<Listed>, StorageError> {
        if self.lot.is_empty() && self.horizon.is_some() {
            self.fill(container)?;
        }
        let listed = self.lot.pop_front();
        if let Some(listed) = &listed {
            self.next = listed.number.saturating_add(1);
        }
        Ok(listed)
    }

    /// Finds what comes next.
    fn fill(&mut self, container: &Container) -> Result<(), StorageError> {
        let next = self.horizon.unwrap_or(self.next);
        if self.walk(container, next)? {
            return Ok(());
        }
        let shared = &container.state().shared;
        let most = shared.options.sort_listings_up_to.max(ROWS_AT_ONCE);
        // Twice as many as are wanted, so that they are not sorted again and again.
        let mut sorting = Sorting::new(next, most, most.saturating_mul(2));
        let (from, to) = (&self.from, &self.to);
        shared.runtime.blocking(|| container.sort_rows(from, to, &mut sorting, true))?;
        self.take(sorting);
        Ok(())
    }

    /// Takes the next entries of the index. False if there is none to be trusted.
    fn walk(&mut self, container: &Container, next: u64) -> Result<bool, StorageError> {
        let Some(along) = &self.along else { return Ok(false) };
        let next = next.max(along.first);
        if next >= along.end {
            self.horizon = None;
            return Ok(true);
        }
        let (from, to) = (along.ordering.place_of(next), along.ordering.place_of(along.end));
        let bounds = (&from[..], &to[..]);
        let found = along.index.placed(container.state(), bounds, None, ENTRIES_AT_ONCE)?;
        if along.index.is_dropped() {
            self.along = None;
            return Ok(false);
        }
        self.entries += found.len();
        let is_end = found.len() < ENTRIES_AT_ONCE;
        self.horizon = None;
        for placed in found {
            let Some((_, number)) = placed.place.split_last_chunk() else { continue };
            let number = u64::from_be_bytes(*number);
            self.horizon = number.checked_add(1).filter(|_| !is_end);
            if self.from <= placed.item.key && placed.item.key < self.to {
                self.lot.push_back(Listed { number, item: placed.item, read: None });
            }
        }
        Ok(true)
    }

    fn take(&mut self, sorting: Sorting) {
        self.horizon = sorting.horizon;
        self.lot = sorting.found.into();
    }
}

/// The rows that come next, by number, of all that are pushed.
struct Sorting {
    next: u64,
    most: usize,
    /// How many may be found before those that are too many are left out.
    room: usize,
    found: Vec<Listed>,
    /// How many were pushed.
    rows: usize,
    /// The first number that was left out.
    horizon: Option<u64>,
}

impl Sorting {
    fn new(next: u64, most: usize, room: usize) -> Sorting {
        Sorting { next, most, room, found: Vec::new(), rows: 0, horizon: None }
    }

    fn push(&mut self, key: &[u8], row: &ItemRow) {
        self.rows += 1;
        if row.rid < self.next || self.horizon.is_some_and(|horizon| row.rid >= horizon) {
            return;
        }
        let item = Proposed { key: Key::from_slice(key), position: Some(row.position) };
        self.found.push(Listed { number: row.rid, item, read: None });
        if self.found.len() > self.room {
            self.cut();
        }
    }

    /// Leaves out what does not come next.
    fn cut(&mut self) {
        if self.found.len() > self.most {
            self.found.select_nth_unstable_by_key(self.most, |listed| listed.number);
            self.horizon = self.found.get(self.most).map(|listed| listed.number);
            self.found.truncate(self.most);
        }
    }

    fn end(&mut self) {
        self.cut();
        self.found.sort_unstable_by_key(|listed| listed.number);
    }
}
