//! The items that a query reads: all items of a scope, or the candidates of an index.
//!
//! Items come in creation order (see `listing`). Where that order is not available at once, they come in scan
//! order, which is key order. In one order, a scan and an index lookup visit items in the same sequence. So a query
//! may change from the lookup to the scan between pages, or within a page if the index has too many candidates. It
//! never changes its order.

use crate::container::Container;
use crate::error::{ItemReadError, StorageError};
use crate::item::Item;
use crate::keys::{self, Key};
use crate::listing::{Listed, Listing};
use crate::scan::{ScanPosition, ScanScope, position_text, successor};
use crate::secondary::{self, Indexed, PathIndex, Proposed, gather};
use headwater_model::PageLimit;
use headwater_query::{IndexPath, Kind, Query, Restriction};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of ids that are looked up one by one.
const IDS_MAX: usize = 1_000;
/// Maximum number of candidates that are sorted by creation, because each costs the read of a row.
const SORTED_MAX: usize = 1_000;
/// Maximum bytes of items that are read while sorting candidates.
const SORTED_BYTES_MAX: usize = 1 << 20;

/// An iterator over the items that a query reads.
pub(super) struct Source<'c> {
    container: &'c Container,
    from: Key,
    to: Key,
    is_done: bool,
    /// Keys of the items of the last batch, in scan order.
    batch: Vec<Key>,
    lookup: Option<Lookup>,
    /// The items to read if the source is in creation order.
    listing: Option<Listing>,
    /// Indexes that were used, and indexes that would have helped.
    pub(super) usage: IndexUsage,
    wanted: Option<IndexPath>,
}

/// The first place that a query has not read, in scan order or in creation order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spot {
    Key(Key),
    Number(u64),
}

impl Spot {
    pub(super) fn position(&self) -> ScanPosition {
        match self {
            Spot::Key(key) => position_text(key),
            Spot::Number(number) => ScanPosition::of_number(*number),
        }
    }

    /// Bytes it takes on the heap.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Spot::Key(key) => key.len(),
            Spot::Number(_) => 0,
        }
    }
}

/// The indexes that a page used, and those that would have helped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexUsage {
    /// Paths whose index was used, as index metrics name them: `/name/?`.
    pub used: Vec<String>,
    /// Paths whose index would have helped.
    pub potential: Vec<String>,
    /// Composite orders along which items were read, each as a list of `/name ASC`.
    pub used_composites: Vec<Vec<String>>,
    /// Composite orders that would have helped.
    pub potential_composites: Vec<Vec<String>>,
    /// Number of index entries that were read.
    pub entries: usize,
}

impl IndexUsage {
    pub(super) fn note_used(&mut self, of: &Indexed) {
        note(of, &mut self.used, &mut self.used_composites);
    }

    pub(super) fn note_potential(&mut self, of: &Indexed) {
        note(of, &mut self.potential, &mut self.potential_composites);
    }
}

fn note(of: &Indexed, single: &mut Vec<String>, composite: &mut Vec<Vec<String>>) {
    let mut specification = of.specification();
    if specification.len() > 1 {
        composite.push(specification);
    } else {
        specification.retain(|path| !single.contains(path));
        single.append(&mut specification);
    }
}

/// Candidate items that were not read yet.
struct Lookup {
    by: Proposer,
    items: VecDeque<Proposed>,
    horizon: Option<Key>,
    is_fresh: bool,
}

enum Proposer {
    /// The keys of the query's ids; there are no further candidates.
    Keys,
    Index(Arc<PathIndex>, Restriction),
}

impl Lookup {
    fn new(by: Proposer, items: VecDeque<Proposed>) -> Lookup {
        Lookup { by, items, horizon: None, is_fresh: true }
    }

    fn is_used_up(&self) -> bool {
        let has_asked = matches!(self.by, Proposer::Keys) || !self.is_fresh;
        self.items.is_empty() && self.horizon.is_none() && has_asked
    }

    /// Takes the candidates if they are complete and at most `most`.
    fn take_all(&mut self, most: usize) -> Option<VecDeque<Proposed>> {
        let has_asked = matches!(self.by, Proposer::Keys) || !self.is_fresh;
        let is_all = has_asked && self.horizon.is_none() && self.items.len() <= most;
        is_all.then(|| std::mem::take(&mut self.items))
    }
}

impl<'c> Source<'c> {
    /// Starts at the first item of a scope, in creation order if that is available at once. `page` is the number
    /// of rows on a page.
    pub(super) async fn begin(
        container: &'c Container,
        query: &Query,
        scope: &ScanScope,
        page: usize,
    ) -> Result<Source<'c>, ItemReadError> {
        let mut source = Source::new(container, query, scope, None)?;
        source.settle()?;
        source.listing = match source.is_scan() {
            true => container.begin_listing(scope)?,
            false => source.sort_proposed(0, page).await?,
        };
        Ok(source)
    }

    /// Resumes at a position, in the order of that position.
    pub(super) async fn resume(
        container: &'c Container,
        query: &Query,
        scope: &ScanScope,
        after: &ScanPosition,
        page: usize,
    ) -> Result<Source<'c>, ItemReadError> {
        let Some(number) = after.number()? else {
            return Source::new(container, query, scope, Some(after));
        };
        let mut source = Source::new(container, query, scope, None)?;
        source.settle()?;
        source.listing = source.sort_proposed(number, page).await?;
        if source.listing.is_none() {
            source.lookup = None;
            source.usage.potential.append(&mut source.usage.used);
            source.listing = Some(container.resume_listing(scope, number)?);
        }
        Ok(source)
    }

    /// Sorts the candidates by creation, from the item number `next` on; `None` if they are too many.
    async fn sort_proposed(
        &mut self,
        next: u64,
        page: usize,
    ) -> Result<Option<Listing>, ItemReadError> {
        let Some(lookup) = &mut self.lookup else { return Ok(None) };
        let Some(proposed) = lookup.take_all(SORTED_MAX) else { return Ok(None) };
        // Candidates that fit on the page are read now, since they are shown now anyway.
        let mut room = if proposed.len() <= page { SORTED_BYTES_MAX } else { 0 };
        let mut listed = Vec::with_capacity(proposed.len());
        for item in proposed {
            let (mut number, mut read) = (None, None);
            if room > 0 {
                read = self.container.read_proposed(&item).await?;
                number = read.as_ref().map(Item::number);
                room = room.saturating_sub(read.as_ref().map_or(0, |read| read.feed_bytes().len()));
            } else {
                number = self.container.number_of(&item)?.or(number);
            }
            if let Some(number) = number.filter(|number| *number >= next) {
                listed.push(Listed { number, item, read });
            }
        }
        Ok(Some(Listing::of(listed)))
    }

    /// Creates a source in scan order, from a position on.
    pub(super) fn new(
        container: &'c Container,
        query: &Query,
        scope: &ScanScope,
        after: Option<&ScanPosition>,
    ) -> Result<Source<'c>, ItemReadError> {
        let (mut from, to) = container.bounds(scope)?;
        if let Some(position) = after {
            from = container.behind(position)?.max(from);
        }
        let mut source = Source {
            container,
            from,
            to,
            is_done: false,
            batch: Vec::new(),
            lookup: None,
            listing: None,
            usage: IndexUsage::default(),
            wanted: None,
        };
        source.lookup = match source.by_id(query, scope)? {
            Some(lookup) => {
                source.usage.used.push("/id/?".to_owned());
                Some(lookup)
            }
            None => source.by_index(query)?,
        };
        Ok(source)
    }

    /// A lookup by key, for a query with one full partition key and a limited set of ids.
    fn by_id(&self, query: &Query, scope: &ScanScope) -> Result<Option<Lookup>, ItemReadError> {
        let ScanScope::Key(key) = scope else { return Ok(None) };
        let settings = self.container.settings();
        let definition = settings.definition.partition_key();
        let Some(candidates) = query.candidates(&[vec!["id"]]) else { return Ok(None) };
        if candidates.len() > IDS_MAX || key.components().len() != definition.paths.len() {
            return Ok(None);
        }
        let epk = definition.epk(key)?;
        let mut keys = Vec::with_capacity(candidates.len());
        for value in candidates.iter().flatten().flatten() {
            // An id is always a string, so other values match no item.
            if let (Kind::String, Some(id)) = (value.kind(), value.as_text()) {
                let mut tail = Vec::new();
                key.encode_into(&mut tail);
                tail.extend_from_slice(id.as_bytes());
                keys.push(keys::item(self.container.rid(), epk.as_bytes(), &tail));
            }
        }
        keys.retain(|key| *key >= self.from && *key < self.to);
        keys.sort_unstable();
        keys.dedup();
        let items = keys.into_iter().map(|key| Proposed { key, position: None });
        Ok(Some(Lookup::new(Proposer::Keys, items.collect())))
    }

    /// A lookup in the best index that has caught up. Records the index that should be created.
    fn by_index(&mut self, query: &Query) -> Result<Option<Lookup>, StorageError> {
        let state = self.container.state();
        let settings = state.settings.read().clone();
        let usable = secondary::usable(query.restrictions(), &settings.indexing);
        for restriction in usable {
            let name = format!("{}/?", restriction.path);
            let index = state.secondary.find(&restriction.path);
            if index.is_none() && self.wanted.is_none() {
                self.wanted = Some(restriction.path.clone());
            }
            match index {
                Some(index) if self.container.catches_up(&index, &self.from, &self.to)? => {
                    self.usage.used.push(name);
                    let by = Proposer::Index(index, restriction);
                    return Ok(Some(Lookup::new(by, VecDeque::new())));
                }
                _ => self.usage.potential.push(name),
            }
        }
        Ok(None)
    }

    /// Reads the next items. A batch is smaller than `limit` only at the end.
    pub(super) async fn next(&mut self, limit: PageLimit) -> Result<Vec<Item>, ItemReadError> {
        if self.is_done {
            return Ok(Vec::new());
        }
        if let Some(listing) = &mut self.listing {
            let items = self.container.list_on(listing, limit).await?;
            self.is_done = listing.is_done();
            return Ok(items);
        }
        let mut items = Vec::new();
        let mut bytes = 0;
        self.batch.clear();
        while items.len() < limit.items as usize && bytes < limit.bytes as usize {
            if self.lookup.is_none() {
                return self.scan_on(items, bytes, limit).await;
            }
            let Some(proposed) = self.next_proposed()? else {
                self.is_done = self.lookup.is_some();
                if self.is_done {
                    break;
                }
                continue;
            };
            if let Some(item) = self.container.read_proposed(&proposed).await? {
                bytes += item.feed_bytes().len();
                items.push(item);
                self.batch.push(proposed.key.clone());
            }
            self.from = successor(proposed.key);
        }
        self.is_done |= self.lookup.as_ref().is_some_and(Lookup::is_used_up);
        Ok(items)
    }

    async fn scan_on(
        &mut self,
        mut items: Vec<Item>,
        bytes: usize,
        limit: PageLimit,
    ) -> Result<Vec<Item>, ItemReadError> {
        let left = u32::try_from(limit.items as usize - items.len()).unwrap_or(1).max(1);
        let bytes = u32::try_from(limit.bytes as usize - bytes).unwrap_or(1).max(1);
        let limit = PageLimit::new(left, bytes).unwrap_or_default();
        let (from, to) = (&mut self.from, &self.to);
        let (more, is_more) = self.container.scan_keys(from, to, limit, &mut self.batch).await?;
        self.is_done = !is_more;
        items.extend(more);
        Ok(items)
    }

    /// The place of an item of the last batch; `None` if the batch has no such item.
    pub(super) fn spot_of(&self, place: usize, item: &Item) -> Option<Spot> {
        match self.is_listing() {
            true => Some(Spot::Number(item.number())),
            false => self.batch.get(place).cloned().map(Spot::Key),
        }
    }

    /// Reads the first candidates now, to learn whether they are so many that a scan is better.
    pub(super) fn settle(&mut self) -> Result<(), StorageError> {
        if let Some(proposed) = self.next_proposed()?
            && let Some(lookup) = &mut self.lookup
        {
            lookup.items.push_front(proposed);
        }
        Ok(())
    }

    /// The next candidate; `None` at the end, or if the lookup was given up in favour of a scan.
    fn next_proposed(&mut self) -> Result<Option<Proposed>, StorageError> {
        let state = self.container.state();
        loop {
            let Some(lookup) = &mut self.lookup else { return Ok(None) };
            if let Some(proposed) = lookup.items.pop_front() {
                return Ok(Some(proposed));
            }
            let Proposer::Index(index, restriction) = &lookup.by else { return Ok(None) };
            match (lookup.is_fresh, lookup.horizon.take()) {
                (true, _) => lookup.is_fresh = false,
                (false, Some(horizon)) => self.from = successor(horizon).max(self.from.clone()),
                (false, None) => return Ok(None),
            }
            let keys = (&self.from, &self.to);
            let entries = &mut self.usage.entries;
            let gathered = gather(state, index, &restriction.intervals, keys, entries)?;
            match gathered.filter(|_| !index.is_dropped()) {
                Some(gathered) => {
                    lookup.items = gathered.items.into();
                    lookup.horizon = gathered.horizon;
                }
                None => {
                    self.lookup = None;
                    self.usage.potential.append(&mut self.usage.used);
                }
            }
        }
    }

    /// Whether the source reads every item of its scope.
    pub(super) fn is_scan(&self) -> bool {
        self.lookup.is_none()
    }

    /// Whether the source reads items in creation order.
    pub(super) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// The number of items left to read; `None` if it is unknown.
    pub(super) fn items_left(&self) -> Option<usize> {
        self.listing.as_ref().and_then(Listing::left)
    }

    /// The range of keys left to read, or the whole range in creation order; `None` at the end.
    pub(super) fn left(&self) -> Option<(Key, Key)> {
        (!self.is_done).then(|| (self.from.clone(), self.to.clone()))
    }

    /// Continues at a key.
    pub(super) fn move_to(&mut self, key: Key) {
        self.is_done = key >= self.to;
        self.from = key;
    }

    /// Ends the source, because no more items are needed.
    pub(super) fn end(&mut self) {
        self.is_done = true;
    }

    /// The place at which to continue; `None` at the end.
    pub(super) fn spot(&self) -> Option<Spot> {
        let spot = || match &self.listing {
            Some(listing) => Spot::Number(listing.next()),
            None => Spot::Key(self.from.clone()),
        };
        (!self.is_done).then(spot)
    }

    /// Whether no items are left.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes the index usage, including the entries that the listing read.
    pub(super) fn take_usage(&mut self) -> IndexUsage {
        self.usage.entries += self.listing.as_ref().map_or(0, |listing| listing.entries);
        std::mem::take(&mut self.usage)
    }

    /// Creates an index of the order in which the page would have read few items. Does so only if the page read
    /// at least `index_after_items` items, and four times as many as it has rows.
    pub(super) fn learn_order(
        &self,
        of: Indexed,
        items_read: usize,
        rows: usize,
    ) -> Result<(), StorageError> {
        let state = self.container.state();
        if items_read >= state.shared.options.index_after_items
            && rows.saturating_mul(4) <= items_read
        {
            state.secondary.create(state, of)?;
        }
        Ok(())
    }

    /// Creates an index of the path that would have avoided most reads. Does so only if the page read at least
    /// `index_after_items` items, and four times as many as were `wanted`.
    pub(super) fn learn(&self, items_read: usize, wanted: usize) -> Result<(), StorageError> {
        let state = self.container.state();
        let is_worth_it = items_read >= state.shared.options.index_after_items
            && wanted.saturating_mul(4) <= items_read;
        match &self.wanted {
            Some(path) if is_worth_it => {
                state.secondary.create(state, Indexed::Values(path.clone()))
            }
            _ => Ok(()),
        }
    }
}
