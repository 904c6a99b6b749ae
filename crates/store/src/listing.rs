//! Lists the items of a scope in order of creation, which is the order of their numbers.
//!
//! Items are stored in the order of their hashed keys, and writes do nothing for this order. It is made when
//! listing:
//!
//! ```text
//! few items         their rows, which hold the numbers, are read and sorted; no item is read
//! many items        walk an index of that order (see `secondary`), if there is one that has caught up
//! many, no index    no such listing is started, but one that was started continues: all rows are read, and
//! the next
//!                   ones are kept
//! ```
//!
//! An item keeps its number for its whole life, and numbers do not depend on the bounds of ranges. So a
//! number is a position that stays valid through writes, restarts, splits and merges, whichever of the three
//! ways the next page takes. An item that exists during the whole listing is returned exactly once. One that
//! is created or deleted meanwhile may or may not be returned. Items created in different ranges are ordered
//! by range.

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

/// Index entries read at once.
const ENTRIES_AT_ONCE: usize = 256;
/// Index entries read for one page. They may all point outside the scope, and other tasks must get a turn.
const ENTRIES_MAX: usize = 100_000;
/// Minimum number of rows sorted at once. A listing that continues without an index reads all other rows for
/// them.
const ROWS_AT_ONCE: usize = 4_000;

/// A listing in progress.
pub(crate) struct Listing {
    /// The bounds of the items to list.
    from: Key,
    to: Key,
    /// The first number that was not returned yet.
    next: u64,
    /// The next items, ordered by number.
    lot: VecDeque<Listed>,
    /// The number from which on there may be more items; `None` if `lot` holds all of them.
    horizon: Option<u64>,
    along: Option<Along>,
    /// Index entries read so far.
    pub(crate) entries: usize,
}

/// An item to be returned.
pub(crate) struct Listed {
    pub(crate) number: u64,
    pub(crate) item: Proposed,
    /// The item, if it was read already.
    pub(crate) read: Option<Item>,
}

/// An index to walk, and the numbers to visit.
struct Along {
    index: Arc<PathIndex>,
    ordering: Ordering,
    /// The first number that items of the scope may have. `end` is the first number after the last one.
    first: u64,
    end: u64,
}

impl Container {
    /// Reads a page of items in order of creation.
    ///
    /// If there are many items and no index of that order yet, the whole listing is in the order of a
    /// [scan](Container::scan) instead.
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

    /// Starts a listing of a scope; `None` if it has many items and no index has them in order.
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
        // Count some more than are sorted, so that the result stays valid after some deletes.
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

    /// Continues the listing of a scope from a number on.
    pub(crate) fn resume_listing(
        &self,
        scope: &ScanScope,
        next: u64,
    ) -> Result<Listing, ItemReadError> {
        let (from, to) = self.bounds(scope)?;
        let along = self.along(scope, &from, &to)?;
        Ok(Listing::new((from, to), next, along))
    }

    /// Records that a listing could not be in order of creation, so that an index of it may be built.
    pub(crate) fn miss_listing(&self, scope: &ScanScope) -> Result<(), StorageError> {
        match self.creation(scope) {
            Some(ordering) => {
                let of = Indexed::Order(ordering.paths);
                self.state().secondary.miss_listing(self.state(), of)
            }
            None => Ok(()),
        }
    }

    /// The order of creation in a scope, if the policy allows an index of it. Within a partition key it is
    /// the order that keeps each key's items together.
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

    /// An index of the order to walk, if there is one that has caught up.
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

    /// The numbers that items between two keys may have. They were assigned by the partitions there or by
    /// their ancestors.
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

    /// Sorts the rows between two keys by number. Stops at the limit unless `is_all_wanted`.
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

    /// The next items. Fewer than requested at the end, or when many index entries pointed outside the scope.
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
            // An item that was deleted and created again has another number, and is returned in its place.
            if let Some(item) = item.filter(|item| item.number() == listed.number) {
                bytes += item.feed_bytes().len();
                items.push(item);
            }
        }
        Ok(items)
    }

    /// The number of a candidate item; `None` if the item is gone.
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

    /// A listing of exactly these items, in the order of their numbers.
    pub(crate) fn of(mut items: Vec<Listed>) -> Listing {
        items.sort_unstable_by_key(|listed| listed.number);
        let mut listing = Listing::new((Key::new(), Key::new()), 0, None);
        listing.horizon = None;
        listing.lot = items.into();
        listing
    }

    /// The next number that has an item, as far as known; `None` at the end.
    pub(crate) fn position(&mut self, container: &Container) -> Result<Option<u64>, StorageError> {
        if self.lot.is_empty() && self.horizon.is_some() && self.along.is_some() {
            self.fill(container)?;
        }
        Ok(match self.lot.front() {
            Some(listed) => Some(listed.number),
            None => self.horizon,
        })
    }

    /// The first number that was not returned yet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The number of items left; `None` if unknown.
    pub(crate) fn left(&self) -> Option<usize> {
        self.horizon.is_none().then_some(self.lot.len())
    }

    /// Whether the listing is at its end.
    pub(crate) fn is_done(&self) -> bool {
        self.lot.is_empty() && self.horizon.is_none()
    }

    /// The next item to read; `None` at the end, or when many index entries pointed outside the scope.
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

    /// Finds the next items.
    fn fill(&mut self, container: &Container) -> Result<(), StorageError> {
        let next = self.horizon.unwrap_or(self.next);
        if self.walk(container, next)? {
            return Ok(());
        }
        let shared = &container.state().shared;
        let most = shared.options.sort_listings_up_to.max(ROWS_AT_ONCE);
        // Keep room for twice as many, so that the rows are not cut after every push.
        let mut sorting = Sorting::new(next, most, most.saturating_mul(2));
        let (from, to) = (&self.from, &self.to);
        shared.runtime.blocking(|| container.sort_rows(from, to, &mut sorting, true))?;
        self.take(sorting);
        Ok(())
    }

    /// Reads the next index entries. False if the index cannot be used.
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

/// Collects the rows with the lowest numbers.
struct Sorting {
    next: u64,
    most: usize,
    /// The number of rows to collect before the highest are dropped.
    room: usize,
    found: Vec<Listed>,
    /// The number of rows pushed.
    rows: usize,
    /// The lowest number that was dropped.
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

    /// Drops the rows with the highest numbers.
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
