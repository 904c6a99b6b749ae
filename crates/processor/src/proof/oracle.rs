//! The invariants of what handlers received and what the store committed.

use crate::lease::Lease;
use headwater_model::{KeyRange, Lsn};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A broken invariant. The names are those of the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broken {
    /// A change was never handled, although positions have passed it.
    AtLeastOnce,
    /// Changes of one key were delivered out of order or concurrently.
    OrderPerKey,
    /// The store accepted a write of a previous owner after another host had acquired the lease.
    FencedProgress,
    /// A stored position moved back.
    MonotonePositions,
    /// A change was delivered twice although nothing failed.
    NoDuplicatesInPeace,
    /// Two hosts processed the same keys concurrently.
    OneWorkerPerRange,
    /// At the end a lease has no live owner, or the leases have gaps.
    EverythingIsOwned,
}

#[derive(Default)]
struct State {
    next_call: u64,
    running: BTreeMap<u64, Call>,
    /// Per lease, tenure and key: the last handled change, and the first failed one.
    keys: BTreeMap<(String, u64, u64), KeyState>,
    handled: BTreeMap<(String, Lsn), u32>,
    calls: usize,
    largest_call: usize,
    dead: BTreeSet<(String, Lsn)>,
    leases: BTreeMap<String, (u64, Option<Lsn>, u64)>,
    acquisitions: usize,
    broken: Vec<(Broken, String)>,
}

#[derive(Clone)]
struct Call {
    machine: usize,
    tenure: u64,
    lease: String,
    epoch: u64,
    range: KeyRange,
    keys: BTreeSet<u64>,
    items: Vec<(String, Lsn, u64)>,
}

#[derive(Default)]
struct KeyState {
    handled: Option<Lsn>,
    failed: Option<Lsn>,
}

/// One call of a handler.
pub(crate) struct Given {
    pub(crate) machine: usize,
    /// Distinguishes tenures of a lease; the epoch if the format has one.
    pub(crate) tenure: u64,
    pub(crate) lease: String,
    pub(crate) epoch: u64,
    pub(crate) range: KeyRange,
    /// Id, LSN and key of every change.
    pub(crate) items: Vec<(String, Lsn, u64)>,
}

/// The oracle; see the module documentation. Clones share its state.
#[derive(Clone, Default)]
pub(crate) struct Oracle(Arc<Mutex<State>>);

impl Oracle {
    /// Records the start of a handler call. `stands_still` returns whether a machine is dead or frozen.
    pub(crate) fn begin(&self, given: Given, stands_still: impl Fn(usize) -> bool) -> u64 {
        let mut state = self.0.lock();
        state.calls += 1;
        state.largest_call = state.largest_call.max(given.items.len());
        let keys: BTreeSet<u64> = given.items.iter().map(|(_, _, key)| *key).collect();
        let mut found = Vec::new();
        for other in state.running.values().filter(|call| !stands_still(call.machine)) {
            let same_tenure = other.lease == given.lease
                && other.epoch == given.epoch
                && other.machine == given.machine;
            if !same_tenure && other.range.overlaps(&given.range) {
                found.push((
                    Broken::OneWorkerPerRange,
                    format!("{} {} and {} {}", other.lease, other.epoch, given.lease, given.epoch),
                ));
            }
            if same_tenure && !other.keys.is_disjoint(&keys) {
                found.push((Broken::OrderPerKey, "one key in two concurrent calls".to_owned()));
            }
        }
        let mut last: BTreeMap<u64, Lsn> = BTreeMap::new();
        for (id, lsn, key) in &given.items {
            let known = (given.lease.clone(), given.tenure, *key);
            let key_state = state.keys.entry(known).or_default();
            let behind = key_state.handled.is_some_and(|handled| *lsn < handled);
            let past_failure = key_state.failed.is_some_and(|failed| *lsn > failed);
            let within = last.get(key).is_some_and(|last| lsn < last);
            let first = !last.contains_key(key);
            if behind || within || (past_failure && first) {
                let what = format!("{id}@{lsn} of {} under {}", given.lease, given.epoch);
                found.push((Broken::OrderPerKey, what));
            }
            last.insert(*key, *lsn);
        }
        state.broken.extend(found);
        let call = state.next_call;
        state.next_call += 1;
        let Given { machine, tenure, lease, epoch, range, items } = given;
        state.running.insert(call, Call { machine, tenure, lease, epoch, range, keys, items });
        call
    }

    /// Records that a handler call returned or was dropped.
    pub(crate) fn end(&self, call: u64, handled: bool) {
        let mut state = self.0.lock();
        let Some(call) = state.running.remove(&call) else { return };
        for (id, lsn, key) in call.items {
            let known = (call.lease.clone(), call.tenure, key);
            let key_state = state.keys.entry(known).or_default();
            if handled {
                key_state.handled = key_state.handled.max(Some(lsn));
                if key_state.failed.is_some_and(|failed| failed <= lsn) {
                    key_state.failed = None;
                }
                *state.handled.entry((id, lsn)).or_default() += 1;
            } else {
                let first = key_state.failed.map_or(lsn, |failed| failed.min(lsn));
                key_state.failed = Some(first);
            }
        }
    }

    /// Records a dead letter.
    pub(crate) fn dead_letter(&self, lease: &str, epoch: u64, item: (String, Lsn)) {
        let mut state = self.0.lock();
        for ((of, under, _), key) in &mut state.keys {
            if of == lease && *under == epoch && key.failed == Some(item.1) {
                key.failed = None;
            }
        }
        state.dead.insert(item);
    }

    /// Records that a machine and everything on it is gone.
    pub(crate) fn machine_gone(&self, machine: usize) {
        self.0.lock().running.retain(|_, call| call.machine != machine);
    }

    /// Records a committed document.
    pub(crate) fn committed(&self, body: &[u8]) {
        let Ok(lease) = Lease::parse(body) else { return };
        let mut state = self.0.lock();
        let position = lease.position.as_ref().and_then(crate::Position::lsn);
        let (epoch, generation) = (lease.extra.epoch, lease.extra.generation);
        let id = lease.key.id.clone();
        if let Some((known, before, known_generation)) = state.leases.get(&id).cloned() {
            if epoch < known {
                let what = format!("{id}: epoch {epoch} after {known}");
                state.broken.push((Broken::FencedProgress, what));
            }
            if generation == known_generation && position < before {
                let what = format!("{id}: {position:?} after {before:?}");
                state.broken.push((Broken::MonotonePositions, what));
            }
            if epoch > known {
                state.acquisitions += 1;
            }
        } else if epoch > 0 {
            state.acquisitions += 1;
        }
        state.leases.insert(id, (epoch, position, generation));
    }

    /// Checks that the newest version of every item was handled or dead-lettered.
    pub(crate) fn check_complete(&self, live: &[(String, Lsn)]) {
        let mut state = self.0.lock();
        for item in live {
            if !state.handled.contains_key(item) && !state.dead.contains(item) {
                let what = format!("{}@{} was never handled", item.0, item.1);
                state.broken.push((Broken::AtLeastOnce, what));
            }
        }
    }

    /// Whether the newest version of every item was handled or dead-lettered.
    pub(crate) fn has_all(&self, live: &[(String, Lsn)]) -> bool {
        let state = self.0.lock();
        live.iter().all(|item| state.handled.contains_key(item) || state.dead.contains(item))
    }

    /// Checks that no change was handled twice.
    pub(crate) fn check_no_duplicates(&self) {
        let mut state = self.0.lock();
        let twice: Vec<String> = state
            .handled
            .iter()
            .filter(|(_, times)| **times > 1)
            .map(|((id, lsn), times)| format!("{id}@{lsn} × {times}"))
            .collect();
        if !twice.is_empty() {
            state.broken.push((Broken::NoDuplicatesInPeace, twice.join(", ")));
        }
    }

    pub(crate) fn note(&self, broken: Broken, what: String) {
        self.0.lock().broken.push((broken, what));
    }

    pub(crate) fn broken(&self) -> Vec<(Broken, String)> {
        self.0.lock().broken.clone()
    }

    /// Records that the store lost committed writes, so that later commits are not compared with earlier ones.
    pub(crate) fn store_forgot(&self) {
        let mut state = self.0.lock();
        state.leases.clear();
        state.keys.clear();
    }

    /// Returns how often each change was handled.
    pub(crate) fn times(&self) -> BTreeMap<(String, Lsn), u32> {
        self.0.lock().handled.clone()
    }

    /// Returns how many changes were handled, counting repetitions.
    pub(crate) fn handled(&self) -> usize {
        self.0.lock().handled.values().map(|times| *times as usize).sum()
    }

    /// Returns how many changes were handled more than once.
    pub(crate) fn repeated(&self) -> usize {
        self.0.lock().handled.values().filter(|times| **times > 1).count()
    }

    pub(crate) fn dead(&self) -> usize {
        self.0.lock().dead.len()
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.lock().calls
    }

    /// Returns the largest number of changes in one call.
    pub(crate) fn largest_call(&self) -> usize {
        self.0.lock().largest_call
    }

    /// Returns how many calls run on a machine.
    pub(crate) fn running_on(&self, machine: usize) -> usize {
        self.0.lock().running.values().filter(|call| call.machine == machine).count()
    }

    pub(crate) fn running(&self) -> usize {
        self.0.lock().running.len()
    }

    pub(crate) fn acquisitions(&self) -> usize {
        self.0.lock().acquisitions
    }
}
