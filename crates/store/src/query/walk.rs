//! An ordered index scan: the first rows of a sorted query, from an index in the same order.
//!
//! The walk reads the index from the start of the page and pushes each item to the run. It stops when the page is
//! full and no other item can sort before its last row. The run sorts the rows again, because the index is only
//! roughly ordered: it stores only the beginning of long strings.
//!
//! Each entry names the position of one version of an item. If that version is live, its place is current. Otherwise
//! the walk reads the current version:
//!
//! ```text
//! entries   n=10 → a    n=20 → b    n=60 → a            a is 10 or 60 now, or a value the index has not applied
//! ```
//!
//! An item is pushed once, by its current value. If its place is behind the walk, it is pushed at once. If its place
//! is ahead, the walk reaches its entry later; without an entry, the item waits in `ahead` until the walk is there.
//! So an item that changes during the walk is neither missed nor returned twice on a page.

use super::{ITEMS_READ_MAX, QueryFailure, QueryPage};
use crate::container::Container;
use crate::error::{ItemReadError, StorageError};
use crate::keys::{self, Key};
use crate::partition::Look;
use crate::scan::ScanScope;
use crate::secondary::{Budget, Indexed, OrderEntry, PathIndex};
use bytes::Bytes;
use headwater_model::PartitionKeyValue;
use headwater_query::{IndexPath, OrderMark, Ordering, PathStep, Query, Run, Value, order_key};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Number of entries read from the index at a time.
const ENTRIES_AT_ONCE: usize = 128;
/// Maximum number of entries read for a page. In a small scope, most entries name items outside of it.
const ENTRIES_MAX: usize = 100_000;

/// An ordered scan of an index, limited to a range of keys.
pub(super) struct Walk {
    pub(super) index: Arc<PathIndex>,
    ordering: Ordering,
    /// First key of the scope.
    from: Key,
    to: Key,
}

/// The state of a walk.
struct WalkState {
    run: Run,
    /// Keys of the items that were pushed.
    pushed: HashSet<Key>,
    /// Items ahead that have no index entry yet, with their numbers, by their places.
    ahead: BTreeMap<(Vec<u8>, Key), (Bytes, u64)>,
    deadline: Duration,
    entries: usize,
}

impl Container {
    /// The order in which a query needs its items, if the indexing policy allows an index of it.
    pub(super) fn ordering(&self, query: &Query, scope: &ScanScope) -> Option<Ordering> {
        let settings = self.settings();
        let includes = |path: &IndexPath| settings.indexing.includes(path);
        let mut fixed = self.fixed_by(scope);
        fixed.retain(|(path, _)| includes(path));
        let ordering = query.ordering(&fixed, includes)?;
        settings.indexing.allows(&Indexed::Order(ordering.paths.clone())).then_some(ordering)
    }

    /// The values of the partition key paths that all items of a scope share.
    pub(crate) fn fixed_by(&self, scope: &ScanScope) -> Vec<(IndexPath, Value<'static>)> {
        let ScanScope::Key(key) = scope else { return Vec::new() };
        let settings = self.settings();
        let paths =
            settings.definition.partition_key().paths.iter().map(|path| {
                IndexPath(path.segments().iter().cloned().map(PathStep::Name).collect())
            });
        let values = key.components().iter().map(|value| match value {
            PartitionKeyValue::Undefined => None,
            PartitionKeyValue::Null => Some(Value::Null),
            PartitionKeyValue::Bool(value) => Some(Value::Bool(*value)),
            PartitionKeyValue::Number(value) => Some(Value::number(*value)),
            PartitionKeyValue::String(value) => Some(Value::text(value.clone())),
        });
        paths.zip(values).filter_map(|(path, value)| Some((path, value?))).collect()
    }

    /// Prepares a walk, if an index of this order exists and has caught up.
    pub(super) fn walk(
        &self,
        ordering: &Ordering,
        scope: &ScanScope,
    ) -> Result<Option<Walk>, ItemReadError> {
        let state = self.state();
        let Some(index) = state.secondary.find_order(&ordering.paths) else { return Ok(None) };
        let (from, to) = self.bounds(scope)?;
        if !self.catches_up(&index, &from, &to)? {
            return Ok(None);
        }
        Ok(Some(Walk { index, ordering: ordering.clone(), from, to }))
    }

    /// Brings an index up to date with everything visible to a query over these keys. False if that takes too long.
    pub(crate) fn catches_up(
        &self,
        index: &PathIndex,
        from: &Key,
        to: &Key,
    ) -> Result<bool, StorageError> {
        let state = self.state();
        let mut budget = Budget::default();
        for partition in &state.topology().partitions {
            let (first, behind) = keys::items_in(state.rid, &partition.range);
            let is_asked = first < *to && *from < behind;
            if is_asked && !index.catch_up(state, partition, &mut budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Pushes items in order until a run has more rows than `wanted`. `None` if that takes too long; the caller
    /// then reads all items.
    pub(super) async fn push_in_order(
        &self,
        walk: &Walk,
        run: Run,
        mark: Option<&OrderMark>,
        wanted: usize,
        page: &mut QueryPage,
    ) -> Result<Option<Run>, QueryFailure> {
        let ordering = &walk.ordering;
        let from = mark.map_or_else(|| ordering.from.clone(), |mark| ordering.resume_at(mark));
        let shared = &self.state().shared;
        let mut walked = WalkState {
            run,
            pushed: HashSet::new(),
            ahead: BTreeMap::new(),
            deadline: shared.runtime.elapsed() + shared.options.queries.page_time,
            entries: 0,
        };
        let mut last: Option<OrderEntry> = None;
        loop {
            let bounds = (&from[..], &ordering.to[..]);
            let lot = walk.index.placed(self.state(), bounds, last.as_ref(), ENTRIES_AT_ONCE)?;
            if walk.index.is_dropped() {
                return Ok(None);
            }
            let is_end = lot.len() < ENTRIES_AT_ONCE;
            for entry in lot {
                walked.push_passed(Some(&entry.place), page)?;
                let is_next_group = last.as_ref().is_none_or(|last| {
                    last.place.get(..last.group) != entry.place.get(..last.group)
                });
                if is_next_group && walked.run.rows_kept() > wanted {
                    page.index.entries += walked.entries;
                    return Ok(Some(walked.run));
                }
                self.step(walk, &entry, &mut walked, page).await?;
                last = Some(entry);
            }
            if is_end {
                walked.push_passed(None, page)?;
                page.index.entries += walked.entries;
                return Ok(Some(walked.run));
            }
            let is_late = self.state().shared.runtime.elapsed() >= walked.deadline;
            if walked.pushed.len() >= ITEMS_READ_MAX || walked.entries >= ENTRIES_MAX || is_late {
                return Ok(None);
            }
        }
    }

    /// Processes one index entry.
    async fn step(
        &self,
        walk: &Walk,
        entry: &OrderEntry,
        walked: &mut WalkState,
        page: &mut QueryPage,
    ) -> Result<(), QueryFailure> {
        walked.entries += 1;
        let key = &entry.item.key;
        let is_asked = walk.from <= *key && *key < walk.to;
        if !is_asked || walked.pushed.contains(key) {
            return Ok(());
        }
        let item = match self.look_at(&entry.item)? {
            Look::Found(None) => return Ok(()),
            // The entry was made from this version, so its place is current.
            Look::Found(Some(item)) => {
                return walked.push(key, &item.to_bytes(), item.number(), page);
            }
            Look::Moved => self.read_row(key).await?,
        };
        let Some(item) = item else { return Ok(()) };
        let (text, number) = (item.to_bytes(), item.number());
        let place = order_key(&text, &walk.ordering.paths, number).bytes;
        if place <= entry.place {
            return walked.push(key, &text, number, page);
        }
        // The place is ahead. If the index has an entry there, the walk reaches it later.
        if !walk.index.has_placed(self.state(), &place, key)? {
            walked.ahead.insert((place, key.clone()), (text, number));
        }
        Ok(())
    }
}

impl WalkState {
    fn push(
        &mut self,
        key: &Key,
        text: &[u8],
        number: u64,
        page: &mut QueryPage,
    ) -> Result<(), QueryFailure> {
        if !self.pushed.insert(key.clone()) {
            return Ok(());
        }
        page.items_read += 1;
        page.bytes_read += text.len();
        self.run.push(text, number, &mut Vec::new())?;
        Ok(())
    }

    /// Pushes the items in `ahead` that the walk has passed; all of them if `place` is `None`.
    fn push_passed(
        &mut self,
        place: Option<&[u8]>,
        page: &mut QueryPage,
    ) -> Result<(), QueryFailure> {
        while let Some(first) = self.ahead.first_entry() {
            if place.is_some_and(|place| first.key().0[..] > *place) {
                break;
            }
            let ((_, key), (text, number)) = first.remove_entry();
            self.push(&key, &text, number, page)?;
        }
        Ok(())
    }
}
