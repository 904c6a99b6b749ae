//! Detects when leases do not cover every key exactly once, and repairs it.
//!
//! A listing may be stale or incomplete. A finding counts only when the next listing confirms it, and removing a
//! lease is conditional on the version that was listed. Leases that fill a gap are created together with the
//! marker, conditional on its listed version, so a host with an older listing creates nothing. Promised leases
//! that were not created are created here.

use super::acquire::range_of;
use super::bootstrap::{create, fulfill, leases_for, make_with_marker, with_start};
use super::coordinator::View;
use super::session::RangeProgress;
use super::shared::Shared;
use crate::coverage::{self, Covered, Finding};
use crate::event::Event;
use crate::lease::{DocumentKey, Lease};
use crate::lease_store::{StoreError, Stored, WRITES_MAX};
use crate::member::Marker;
use crate::promised;
use headwater_model::KeyRange;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Auditor {
    shared: Arc<Shared>,
    next: Duration,
    before: Vec<Finding>,
    /// Etags of documents whose promises the previous listing showed.
    promised: BTreeSet<String>,
    /// Last known positions of ranges whose lease this host held when it was lost.
    known: Vec<RangeProgress>,
}

/// How soon a finding is checked again.
const CONFIRM: Duration = Duration::from_secs(10);
const KNOWN_MAX: usize = 4096;

impl Auditor {
    pub(crate) fn new(shared: Arc<Shared>) -> Auditor {
        let next = shared.runtime.elapsed() + CONFIRM.min(shared.options.audit_interval);
        Auditor { shared, next, before: Vec::new(), promised: BTreeSet::new(), known: Vec::new() }
    }

    /// Stores the position of a range, in case its lease is gone.
    pub(crate) fn remember(&mut self, reached: RangeProgress) {
        self.known.retain(|known| known.range != reached.range);
        if self.known.len() < KNOWN_MAX {
            self.known.push(reached);
        }
    }

    /// Runs the audit if it is due; creates promised leases every time.
    pub(crate) async fn round(&mut self, view: &View, alive: &BTreeSet<DocumentKey>) {
        self.keep_promises(view).await;
        let now = self.shared.runtime.elapsed();
        if now < self.next {
            return;
        }
        let mut covered = Vec::new();
        for (lease, stored) in view.leases.iter().chain(&view.duplicates) {
            let Some(range) = range_of(&self.shared, lease).await else { return };
            let document = name(stored);
            covered.push(Covered { document, range, position: lease.position.clone() });
        }
        let found = coverage::audit(&covered, &self.shared.options.scope);
        let mut missing = Vec::new();
        for finding in &found {
            let confirmed = self.before.contains(finding);
            match finding {
                Finding::Gap(gap) => missing.extend(self.missing(view, gap, confirmed).await),
                Finding::Superseded { document } | Finding::Duplicate { document } if confirmed => {
                    let all = view.leases.iter().chain(&view.duplicates);
                    let mut named = all.filter(|(_, stored)| name(stored) == *document);
                    // Of two documents for the same keys one is enough, even if a host works on the other. A
                    // parent that is worked on is about to be replaced by its children.
                    let double = matches!(finding, Finding::Duplicate { .. });
                    if let Some((lease, stored)) = named.next()
                        && (double || !alive.contains(&stored.key))
                        && self.remove(lease, stored).await.is_ok()
                    {
                        self.shared.tell(Event::DuplicateLease { document: document.clone() });
                    }
                }
                Finding::Overlap { one, other } if confirmed => {
                    let (one, other) = (one.clone(), other.clone());
                    self.shared.tell(Event::CoverageOverlap { one, other });
                }
                _ => {}
            }
        }
        // A gap may be what a pending promise will fill.
        let fills = !missing.is_empty() && view.promises.is_empty();
        if let Some(marker) = view.marker.as_ref().filter(|_| fills) {
            self.fill(marker, missing).await;
        }
        let soon = if found.is_empty() { self.shared.options.audit_interval } else { CONFIRM };
        self.next = now + soon.min(self.shared.options.audit_interval);
        self.before = found;
    }

    /// Creates leases that were promised in the previous listing and are still missing.
    async fn keep_promises(&mut self, view: &View) {
        for promise in view.promises.iter().filter(|one| self.promised.contains(&one.etag)) {
            // On failure the next listing shows the promise again.
            let _ = fulfill(&self.shared, promise).await;
        }
        self.promised = view.promises.iter().map(|promise| promise.etag.clone()).collect();
    }

    /// Removes a lease whose keys are covered by others. Native leases are retired, never deleted (`promised`).
    async fn remove(&self, lease: &Lease, stored: &Stored) -> Result<(), StoreError> {
        let store = &self.shared.store;
        if self.shared.promises() {
            let retired = self.shared.document(&lease.retired(Vec::new()));
            store.replace(retired, &stored.etag).await.map(drop)
        } else {
            store.delete(&stored.key, &stored.etag).await
        }
    }

    /// Returns leases for uncovered keys. If several positions are known, they begin at the earliest.
    async fn missing(&self, view: &View, gap: &KeyRange, confirmed: bool) -> Vec<Lease> {
        let known = self.known.iter().filter(|known| known.range.contains_range(gap));
        // A sink that stores epochs must not see one twice.
        let retired = promised::epoch_after(view.retired.iter(), gap);
        let epoch = known.clone().map(|known| known.epoch).max().max(retired).unwrap_or(0);
        let known = known
            .map(|known| known.position.clone())
            .reduce(|one, other| if other.is_before(&one) == Some(true) { other } else { one });
        let mut leases = Vec::new();
        // A host that knows the position of the range goes first; others wait for confirmation.
        if !confirmed && known.is_none() {
            return leases;
        }
        let Some(marker) = &view.marker else {
            // The marker is gone as well: the container was emptied.
            let key = self.shared.key(self.shared.namespace.marker());
            if confirmed && matches!(self.shared.store.read(&key).await, Ok(None)) {
                let why = "its documents were deleted".to_owned();
                self.shared.fail(super::Fatal::LeaseStoreGone(why));
            }
            return leases;
        };
        let Ok(ranges) = self.shared.source.ranges(true).await else { return leases };
        let start = Marker::parse(&marker.body).start;
        let start = start.unwrap_or_else(|| self.shared.options.start.clone());
        for lease in leases_for(&self.shared, &ranges, std::slice::from_ref(gap)) {
            // The listing may have omitted a lease that exists; then creating it would fail anyway.
            let retired =
                |stored: &Stored| view.retired.iter().any(|(_, one)| one.key == stored.key);
            match self.shared.store.read(&lease.key).await {
                Ok(found) if found.as_ref().is_none_or(retired) => {}
                _ => continue,
            }
            let begin = known.clone().map_or_else(|| Err(start.clone()), Ok);
            leases.extend(with_start(&self.shared, lease, Some(begin), epoch).await);
        }
        leases
    }

    /// Creates missing leases, unless the marker changed since the listing.
    async fn fill(&self, marker: &Stored, mut leases: Vec<Lease>) {
        // The next round finds the rest.
        leases.truncate(WRITES_MAX - 1);
        let filled = |lease: &Lease| {
            let range = lease.range.clone().unwrap_or_else(KeyRange::full);
            self.shared.tell(Event::CoverageGap { range });
        };
        if self.shared.promises() {
            let unchanged = Marker::parse(&marker.body);
            let made =
                make_with_marker(&self.shared, leases.clone(), unchanged, Some(marker)).await;
            // Otherwise another host was faster, or there was no answer: the next listing shows it.
            if made.is_ok() {
                leases.iter().for_each(filled);
            }
            return;
        }
        for lease in &leases {
            if create(&self.shared, self.shared.document(lease)).await.is_ok() {
                filled(lease);
            }
        }
    }
}

/// Returns a name that is unique per document, also if two partitions contain the same id.
fn name(stored: &Stored) -> String {
    format!("{}|{}", stored.key.id, stored.key.partition.as_deref().unwrap_or_default())
}
