//! The checks of a reader of the change feed, on every page and at the end.
//!
//! A reader has a position (LSN) in each stretch of hashed keys. A page advances it, stretch by stretch:
//!
//! ```text
//! before   |  after 7  |      after 3       |        a range was split, another merged
//! page     | 8 8 9 | 9 |   4 5    |    6    |
//! now      | after 9 |   after 9  | after 6 |        checked for each overlap of before and now
//! ```

use crate::invariants::{Checked, Invariant, broken, require};
use crate::model::{Key, Model, Seen};
use crate::setup::Setup;
use headwater_model::{
    ChangeKind, Continuation, Epk, Etag, FeedMode, KeyRange, Lsn, RangePosition,
};
use headwater_store::{Change, FeedPage, invariants};
use std::collections::{BTreeMap, BTreeSet};

/// The newest change of an item that a reader of all versions received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Version(Seen),
    Deleted,
}

/// Everything that a reader has received so far.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// The starting position in each stretch.
    began: Vec<RangePosition>,
    versions: BTreeSet<Etag>,
    links: BTreeMap<Key, Link>,
    /// Items whose newest write a power cut took, and the reader's position at that time. The reader may have
    /// skipped a version that became the newest again.
    excused: BTreeMap<Key, Lsn>,
    last_page: Vec<Change>,
}

/// A stretch of keys in which the position was one LSN before a page and is one LSN after it.
struct Stretch {
    range: KeyRange,
    before: Option<Lsn>,
    after: Lsn,
    changes: Vec<Change>,
}

/// Returns the positions of a continuation over the keys that it covers.
pub(crate) fn positions(continuation: &Continuation, about: &KeyRange) -> Vec<RangePosition> {
    match continuation {
        Continuation::Single(after) => {
            vec![RangePosition { range: about.clone(), after: *after }]
        }
        Continuation::Composite { positions, .. } => positions.clone(),
    }
}

/// Returns the position at one key.
pub(crate) fn position_at(positions: &[RangePosition], epk: &[u8]) -> Option<Lsn> {
    let found = positions.iter().find(|position| position.range.contains(epk));
    found.map(|position| position.after)
}

impl Delivered {
    /// Checks and records a page. `before` is empty on a first page, which begins at `start` if that is known.
    pub(crate) fn take(
        &mut self,
        page: &FeedPage,
        mode: FeedMode,
        before: &[RangePosition],
        start: Option<Lsn>,
        about: &KeyRange,
    ) -> Checked {
        let now = positions(&page.continuation, about);
        let covered = page.continuation.position_for(about).is_some();
        require(covered, Invariant::PositionsStayValid, || {
            format!("{:?} does not say where to go on in all of {about}", page.continuation)
        })?;
        if before.is_empty() {
            let began = |position: &RangePosition| RangePosition {
                range: position.range.clone(),
                after: start.unwrap_or(position.after),
            };
            self.began.extend(now.iter().map(began));
        }
        if mode == FeedMode::LatestVersion {
            let once = invariants::page_has_no_duplicates(&page.changes);
            require(once, Invariant::APageHasNoItemTwice, || format!("{:?}", page.changes))?;
        }
        self.check_new(page)?;
        let stretches = stretches(page, before, &now, start);
        let placed: usize = stretches.iter().map(|stretch| stretch.changes.len()).sum();
        require(placed == page.changes.len(), Invariant::APageIsInOrder, || {
            format!("{:?} holds changes that {about} did not ask for", page.changes)
        })?;
        for stretch in &stretches {
            self.check_stretch(stretch)?;
        }
        if !page.changes.is_empty() {
            self.last_page.clone_from(&page.changes);
        }
        Ok(())
    }

    /// Records that a power cut took the newest write of an item while the reader had this position.
    pub(crate) fn excuse(&mut self, key: Key, after: Lsn) {
        self.excused.insert(key, after);
    }

    /// Records the starting position in a range that the reader had not read before.
    pub(crate) fn begin(&mut self, at: RangePosition) {
        self.began.push(at);
    }

    fn check_new(&mut self, page: &FeedPage) -> Checked {
        for change in &page.changes {
            let Some(item) = change.item() else { continue };
            let new = self.versions.insert(item.etag());
            require(new, Invariant::NothingIsSeenTwice, || format!("{change:?} came again"))?;
        }
        Ok(())
    }

    fn check_stretch(&self, stretch: &Stretch) -> Checked {
        let inside = |change: &&Change| stretch.range.contains(change.hashed_key());
        let last: Vec<Change> = self.last_page.iter().filter(inside).cloned().collect();
        let whole = invariants::no_transaction_is_cut(&last, &stretch.changes);
        require(whole, Invariant::NoTransactionIsCut, || {
            format!("{last:?} was followed by {:?} in {}", stretch.changes, stretch.range)
        })?;
        let Some(before) = stretch.before else {
            return Ok(());
        };
        let ordered = invariants::page_is_in_order(before, &stretch.changes);
        require(ordered, Invariant::APageIsInOrder, || {
            format!("{:?} after {before} in {}", stretch.changes, stretch.range)
        })?;
        let forward = invariants::position_moves_forward(before, stretch.after);
        require(forward, Invariant::PositionsMoveForward, || {
            format!("from {before} to {} in {}", stretch.after, stretch.range)
        })
    }

    /// Checks one change of all versions: it must be linked to the previous one.
    pub(crate) fn follow(
        &mut self,
        key: Key,
        change: &Change,
        seen: Option<Seen>,
        model: &Model,
    ) -> Checked {
        let incomplete = Invariant::AllVersionsAreComplete;
        let before = self.links.get(&key).copied();
        let linked = match (before, change.kind()) {
            (None, _) => true,
            (Some(Link::Deleted), kind) => kind == ChangeKind::Create,
            (Some(Link::Version(_)), ChangeKind::Create) => false,
            (Some(Link::Version(last)), _) => change.previous_lsn() == Some(last.lsn),
        };
        require(linked, incomplete, || {
            format!(
                "{key}: {change:?} supersedes {:?} but came after {before:?}",
                change.previous_lsn()
            )
        })?;
        if let (Some(Link::Version(last)), Some(previous)) = (before, change.previous()) {
            require(previous.etag() == last.etag, incomplete, || {
                format!(
                    "{key}: {change:?} shows {} as the version before, not {}",
                    previous.etag(),
                    last.etag
                )
            })?;
        }
        let link = match (seen, change.kind()) {
            (_, ChangeKind::Delete) => Link::Deleted,
            (Some(seen), _) => Link::Version(seen),
            (None, _) => return broken(incomplete, format!("{key}: {change:?} has no item")),
        };
        if let (true, Some(Link::Version(last))) = (change.is_expiry(), before) {
            let ended = model.has_ended_by(&last, change.timestamp().as_seconds());
            require(ended, Invariant::TheExpiredIsInvisible, || {
                format!("{key}: {change:?} says that version {} expired", last.token)
            })?;
        }
        self.links.insert(key, link);
        Ok(())
    }

    /// Checks that a reader of latest versions at the end has received every live item.
    pub(crate) fn check_latest(
        &self,
        truth: &BTreeMap<Key, Seen>,
        now: &[RangePosition],
        setup: &Setup,
        model: &Model,
    ) -> Checked {
        for (key, seen) in truth {
            if !self.should_have(setup.epk(*key), seen.lsn, now)? {
                continue;
            }
            let is_excused = self.excused.get(key).is_some_and(|after| seen.lsn <= *after);
            // A clock that was ahead may have hidden the item while the reader passed it.
            let given =
                self.versions.contains(&seen.etag) || model.may_be_expired(seen) || is_excused;
            require(given, Invariant::ReadersMissNothing, || {
                format!("{key} is at {}:{} and was never given", seen.partition, seen.lsn)
            })?;
        }
        Ok(())
    }

    /// Checks that a late reader at the end has received the live items and nothing else.
    pub(crate) fn check_late(
        &self,
        truth: &BTreeMap<Key, Seen>,
        about: &KeyRange,
        setup: &Setup,
    ) -> Checked {
        let alive = truth.iter().filter(|(key, _)| about.contains(setup.epk(**key)));
        let alive: BTreeSet<Etag> = alive.map(|(_, seen)| seen.etag).collect();
        require(alive == self.versions, Invariant::ALateReaderSeesTheLiveSet, || {
            let missing: Vec<_> = alive.difference(&self.versions).collect();
            let superfluous: Vec<_> = self.versions.difference(&alive).collect();
            format!("in {about} missing {missing:?}, superfluous {superfluous:?}")
        })
    }

    /// Returns whether the reader has received this version.
    pub(crate) fn has(&self, etag: Etag) -> bool {
        self.versions.contains(&etag)
    }

    /// Checks that a reader of all versions at the end has received all of them, the last one being the current one.
    pub(crate) fn check_all(
        &self,
        truth: &BTreeMap<Key, Seen>,
        now: &[RangePosition],
        setup: &Setup,
        model: &Model,
    ) -> Checked {
        let complete = Invariant::AllVersionsAreComplete;
        for (version, seen) in model.versions_seen() {
            if self.should_have(setup.epk(version.key), seen.lsn, now)? {
                let given = self.versions.contains(&seen.etag);
                require(given, complete, || {
                    format!(
                        "{} was at {}:{} and that was never given",
                        version.key, seen.partition, seen.lsn
                    )
                })?;
            }
        }
        for (key, link) in &self.links {
            let fits = match (link, truth.get(key)) {
                (Link::Version(last), Some(seen)) => last.etag == seen.etag,
                (Link::Version(last), None) => model.may_be_expired(last),
                (Link::Deleted, seen) => seen.is_none(),
            };
            require(fits, complete, || {
                format!("{key} ended as {link:?} and is {:?}", truth.get(key))
            })?;
        }
        Ok(())
    }

    /// Returns whether this reader must have received a version at this key and LSN by now.
    fn should_have(
        &self,
        epk: &[u8],
        lsn: Lsn,
        now: &[RangePosition],
    ) -> Result<bool, crate::invariants::Violation> {
        let Some(began) = position_at(&self.began, epk) else {
            return Ok(false);
        };
        let Some(reached) = position_at(now, epk) else {
            return broken(Invariant::PositionsStayValid, "the position has a hole");
        };
        require(lsn <= reached, Invariant::ReadersMissNothing, || {
            format!("the end is {reached}, but there is something at {lsn}")
        })?;
        Ok(lsn > began)
    }
}

fn stretches(
    page: &FeedPage,
    before: &[RangePosition],
    now: &[RangePosition],
    start: Option<Lsn>,
) -> Vec<Stretch> {
    let anywhere = [RangePosition { range: KeyRange::full(), after: start.unwrap_or_default() }];
    let (old, known) =
        if before.is_empty() { (&anywhere[..], start.is_some()) } else { (before, true) };
    let mut stretches = Vec::new();
    for new in now {
        for old in old {
            let Some(range) = new.range.intersect(&old.range) else {
                continue;
            };
            let inside = page.changes.iter().filter(|change| range.contains(change.hashed_key()));
            stretches.push(Stretch {
                before: known.then_some(old.after),
                after: new.after,
                changes: inside.cloned().collect(),
                range,
            });
        }
    }
    stretches
}

/// Checks that ranges are adjacent from the first key to the last.
pub(crate) fn check_ranges(ranges: &[KeyRange]) -> Checked {
    let mut next = Epk::min();
    for range in ranges {
        require(*range.min() == next, Invariant::RangesCoverEverything, || {
            format!("{range} does not begin where the one before it ends")
        })?;
        next = range.max().clone();
    }
    require(next == Epk::max(), Invariant::RangesCoverEverything, || {
        format!("nothing covers what follows {next:?}")
    })
}
