//! Models which writes a power cut may take from a store with durability `os`, and which it must leave.
//!
//! Such a store acknowledges a write before it is durable. A power cut may take the end of each log:
//!
//! ```text
//! acknowledged   1 2 3 | 4 5 6 7 8      opened at the bar: what it found there is durable
//! left           1 2 3 | 4 5            every entry up to an end, and none after it
//! ```
//!
//! The end is where the log ended when it was reopened. The model replays the calls up to the end and
//! discards the others: their LSNs and etags may name other writes, their versions must not reappear.

use super::item::{Around, ReplayCall};
use super::{Call, CallId, Fate, Key, Model, Step};
use crate::invariants::{Checked, Invariant, require};
use headwater_model::{Lsn, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

/// The place of a call in the log of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The partition that answered.
    pub partition: PartitionId,
    /// The LSN of its entry, or one that is not below it.
    pub lsn: Lsn,
    /// Whether it is the LSN of its entry.
    pub is_exact: bool,
}

/// The ends of logs after a power cut. A partition that is not listed was replaced before, which made
/// all of its entries durable.
pub type LogEnds = BTreeMap<PartitionId, Lsn>;

/// The outcome of a power cut, for readers whose positions are beyond it.
#[derive(Debug)]
pub struct CutOutcome {
    /// The ends of the logs.
    pub ends: LogEnds,
    /// Items whose newest write was taken, or may have been. An older version may be the newest again.
    pub undone: BTreeSet<Key>,
}

/// The known ends of logs.
#[derive(Debug, Default)]
pub(super) struct Loss {
    /// Where each log ended when it was last opened.
    durable: LogEnds,
    /// Where each log ended when it was first opened after a power cut; `None` without one.
    left: Option<LogEnds>,
    /// Whether the items have not been read since the power cut.
    pub(super) is_fresh: bool,
}

impl Loss {
    /// Returns whether the power cut left the entry at this place; `None` if that is not certain.
    fn has_left(ends: &LogEnds, place: Option<Place>) -> Option<bool> {
        let place = place?;
        match ends.get(&place.partition) {
            Some(end) if place.lsn > *end => place.is_exact.then_some(false),
            _ => Some(true),
        }
    }
}

impl Model {
    /// Records a power cut: entries that are not durable may be lost.
    pub fn power_was_cut(&mut self) {
        self.loss.left.get_or_insert_default();
    }

    /// Records that a log was opened or created, and its end. What an earlier open found is durable.
    pub fn log_was_opened(&mut self, partition: PartitionId, end: Lsn) -> Checked {
        if let Some(left) = &mut self.loss.left {
            left.entry(partition).or_insert(end);
        }
        let before = self.loss.durable.insert(partition, end).unwrap_or(Lsn::ZERO);
        require(end >= before, Invariant::APowerCutLeavesAPrefix, || {
            format!("partition {partition} was opened at LSN {before} and ends at {end} now")
        })
    }

    /// Records that the store is open again. After a power cut, discards the lost calls and returns the outcome.
    pub fn rewind(&mut self) -> Option<CutOutcome> {
        let ends = self.loss.left.take()?;
        self.loss.is_fresh = true;
        self.find_places();
        let fates = self.decide_fates(&ends);
        let mut undone = BTreeSet::new();
        for (id, is_left) in fates.iter().enumerate() {
            match (self.calls[id].fate, is_left) {
                (Fate::Done | Fate::InDoubt, Some(false)) => self.lose(id),
                (Fate::Done | Fate::InDoubt, None) => self.calls[id].fate = Fate::InDoubt,
                _ => continue,
            }
            undone.extend(self.calls[id].keys());
        }
        let keys = self.keys();
        for key in keys {
            let kept: Vec<ReplayCall> = (0..self.calls.len())
                .filter(|id| self.calls[*id].has_effect_on(key))
                .filter(|id| matches!(self.calls[*id].fate, Fate::Done | Fate::InDoubt))
                .map(|id| self.calls[id].replay_call(id, fates[id] == Some(true)))
                .collect();
            let around =
                Around { rules: &self.rules, clock: &self.clock, versions: &self.versions };
            self.items.entry(key).or_default().replay(&kept, &around);
        }
        Some(CutOutcome { ends, undone })
    }

    /// Returns whether the items have not all been read since the last power cut.
    #[must_use]
    pub fn has_rewound(&self) -> bool {
        self.loss.is_fresh
    }

    /// Finds the places of calls without an answer, by the versions of theirs that were seen.
    fn find_places(&mut self) {
        for call in self.calls.iter_mut().filter(|call| call.fate == Fate::InDoubt) {
            let tokens = call.steps.iter().filter_map(|(_, step)| step.token());
            let seen = tokens.filter_map(|token| self.versions.get(token)?.seen).next();
            let place =
                seen.map(|seen| Place { partition: seen.partition, lsn: seen.lsn, is_exact: true });
            call.place = call.place.or(place);
        }
    }

    /// Returns for each call whether the power cut left it; `None` where that is not certain.
    fn decide_fates(&self, ends: &LogEnds) -> Vec<Option<bool>> {
        let by_place = |call: &Call| match call.fate {
            Fate::Done | Fate::InDoubt => Loss::has_left(ends, call.place),
            _ => None,
        };
        self.calls
            .iter()
            .map(|call| {
                let decided = by_place(call);
                if decided.is_some() || call.fate != Fate::Done {
                    return decided;
                }
                // Calls on one partition key have LSNs in the order in which they follow each other.
                let same_key = || self.calls.iter().filter(|other| other.pk() == call.pk());
                let is_left = same_key().any(|other| {
                    by_place(other) == Some(true) && call.answered < Some(other.invoked.event)
                });
                let is_lost = same_key().any(|other| {
                    by_place(other) == Some(false)
                        && other.answered.is_some_and(|answered| answered < call.invoked.event)
                });
                (is_left || is_lost).then_some(is_left)
            })
            .collect()
    }

    fn lose(&mut self, id: CallId) {
        self.calls[id].fate = Fate::Lost;
        for token in self.calls[id].steps.iter().filter_map(|(_, step)| step.token()) {
            self.versions.lose(token);
        }
    }
}

impl Call {
    /// Returns the partition key, which all steps of a call share.
    fn pk(&self) -> Option<usize> {
        self.steps.first().map(|(key, _)| key.pk)
    }

    fn has_effect_on(&self, key: Key) -> bool {
        let writes = self.steps.iter().any(|(_, step)| *step != Step::Read);
        writes && self.steps.iter().any(|(other, _)| *other == key)
    }

    fn replay_call(&self, call: CallId, is_certain: bool) -> ReplayCall {
        ReplayCall {
            call,
            lsn: self.place.filter(|place| place.is_exact).map(|place| place.lsn),
            lsn_max: self.place.map(|place| place.lsn),
            invoked: self.invoked.event,
            answered: self.answered,
            is_certain,
        }
    }
}
