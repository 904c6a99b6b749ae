//! Iterates over all items of the transaction's key, including its own writes.
//!
//! Items come in creation order, as in any listing (see `listing`). Stored items come first, by number, each as the
//! transaction sees it. Items that the transaction created follow. If there are too many items to sort and no index
//! has creation order, they come in the order of their ids.

use super::{ItemView, OwnVersion, Transaction, Trouble};
use crate::keys;
use crate::listing::Listing;
use crate::scan::ScanScope;
use headwater_model::ItemRid;
use std::collections::VecDeque;
use std::ops::Bound;

/// Number of items read at a time in the order of ids.
const ITEMS_AT_ONCE: usize = 256;

/// The item after which to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResumePoint {
    Number(u64),
    Id(String),
}

/// The state of an iteration over all items of the key.
pub(super) struct ItemCursor {
    way: CursorSource,
    /// The last item that was returned.
    pub(super) behind: Option<ResumePoint>,
    /// The id of the next item, which was found but not returned.
    waiting: Option<String>,
}

enum CursorSource {
    Numbers(Box<Listing>),
    Ids(VecDeque<(String, ItemView)>),
}

impl ItemCursor {
    /// Whether items come in creation order.
    pub(super) fn is_by_number(&self) -> bool {
        matches!(self.way, CursorSource::Numbers(_))
    }
}

impl Transaction {
    /// Starts an iteration over all items, or resumes one after an item.
    pub(super) fn look(&mut self, behind: Option<ResumePoint>) -> Result<ItemCursor, Trouble> {
        self.scanned = true;
        if let Some(before) = self.cursor.take_if(|before| before.behind == behind) {
            return Ok(before);
        }
        let scope = ScanScope::Key(self.key.clone());
        let numbers = |listing| CursorSource::Numbers(Box::new(listing));
        let way = match &behind {
            None => self.container.begin_listing(&scope).map(|listing| listing.map(numbers)),
            Some(ResumePoint::Id(_)) => Ok(None),
            // The transaction's own items follow all stored items, so no stored item is left.
            Some(ResumePoint::Number(number)) if self.provisional.owns(*number) => {
                Ok(Some(numbers(Listing::of(Vec::new()))))
            }
            Some(ResumePoint::Number(number)) => {
                let listing = self.container.resume_listing(&scope, number.saturating_add(1));
                listing.map(|listing| Some(numbers(listing)))
            }
        };
        let way =
            way.map_err(Trouble::Failed)?.unwrap_or_else(|| CursorSource::Ids(VecDeque::new()));
        Ok(ItemCursor { way, behind, waiting: None })
    }

    /// Reads the next item and counts it.
    pub(super) fn next_item(
        &mut self,
        cursor: &mut ItemCursor,
    ) -> Result<Option<ItemView>, Trouble> {
        let Some((id, seen)) = self.step(cursor)? else { return Ok(None) };
        self.items_read += 1;
        self.bytes_read += seen.json.len();
        self.remember(&id, seen.number);
        Ok(Some(seen))
    }

    fn step(&mut self, cursor: &mut ItemCursor) -> Result<Option<(String, ItemView)>, Trouble> {
        let found = self.find_next(cursor)?;
        if let Some((id, seen)) = &found {
            cursor.behind = Some(match &cursor.way {
                CursorSource::Numbers(_) => ResumePoint::Number(seen.number),
                CursorSource::Ids(_) => ResumePoint::Id(id.clone()),
            });
        }
        Ok(found)
    }

    /// Pauses an iteration after the last returned item; `None` if no item follows it.
    pub(super) fn pause(&mut self, mut cursor: ItemCursor) -> Result<Option<ResumePoint>, Trouble> {
        let Some((id, _)) = self.find_next(&mut cursor)? else { return Ok(None) };
        let behind = cursor.behind.clone();
        if cursor.is_by_number() {
            // The item may change before it is returned, so only its id is stored.
            cursor.waiting = Some(id);
            self.cursor = Some(cursor);
        }
        Ok(behind)
    }

    fn find_next(
        &mut self,
        cursor: &mut ItemCursor,
    ) -> Result<Option<(String, ItemView)>, Trouble> {
        let waiting = cursor.waiting.take();
        match &mut cursor.way {
            CursorSource::Numbers(listing) => {
                let behind = match cursor.behind {
                    Some(ResumePoint::Number(number)) => Some(number),
                    _ => None,
                };
                if let Some(id) = waiting
                    && let Some(seen) = self.current(&id)?
                    && behind.is_none_or(|behind| seen.number > behind)
                    && !self.provisional.owns(seen.number)
                {
                    return Ok(Some((id, seen)));
                }
                match self.next_stored(listing)? {
                    Some(found) => Ok(Some(found)),
                    None => Ok(self.next_own(behind)),
                }
            }
            CursorSource::Ids(items) => {
                if items.is_empty() {
                    let behind = match &cursor.behind {
                        Some(ResumePoint::Id(id)) => Some(id.as_str()),
                        _ => None,
                    };
                    *items = self.page(behind, ITEMS_AT_ONCE)?.into();
                }
                Ok(items.pop_front())
            }
        }
    }

    /// The next item of a listing, as the transaction sees it.
    fn next_stored(
        &mut self,
        listing: &mut Listing,
    ) -> Result<Option<(String, ItemView)>, Trouble> {
        let (from, _) = keys::items_of(self.rid(), self.epk.as_bytes(), &self.encoded);
        while !listing.is_done() {
            self.check_time()?;
            let Some(listed) = listing.next_listed(&self.container)? else { continue };
            let id = listed.item.key.get(from.len()..).unwrap_or_default();
            let id = String::from_utf8_lossy(id).into_owned();
            // An item that was deleted and created again has another number and comes later.
            if let Some(seen) = self.current(&id)?.filter(|seen| seen.number == listed.number) {
                return Ok(Some((id, seen)));
            }
        }
        Ok(None)
    }

    /// The next item that the transaction has created.
    fn next_own(&self, behind: Option<u64>) -> Option<(String, ItemView)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.created.range((from, Bound::Unbounded)).find_map(|(number, id)| {
            match self.own.get(id) {
                Some(OwnVersion::Put(seen)) if seen.number == *number => {
                    Some((id.clone(), seen.clone()))
                }
                _ => None,
            }
        })
    }

    /// The id of the item with this resource id, or else the text itself.
    pub(crate) fn id_of(&mut self, rid: &str) -> Result<String, Trouble> {
        if let Some(id) = self.by_rid.get(rid) {
            return Ok(id.clone());
        }
        let Some(wanted) = ItemRid::parse(rid).ok().filter(|rid| rid.container == self.rid())
        else {
            return Ok(rid.to_owned());
        };
        // A link from an earlier call. Resource ids have no index, so this searches all items.
        let mut cursor = self.look(None)?;
        while let Some((id, seen)) = self.step(&mut cursor)? {
            if seen.number == wanted.number {
                return Ok(id);
            }
        }
        Ok(rid.to_owned())
    }
}
