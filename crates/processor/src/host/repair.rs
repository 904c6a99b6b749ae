//! Notices when leases do not cover everything exactly once, and repairs it.
//!
//! A list may be old or incomplete, so nothing is done about what was seen once: a finding counts when
//! the next look shows it as well, and every lease that goes is the version that was seen. Leases that fill a gap
//! are made with the marker, in the version the same look showed: whoever looked before another filled it
//! makes nothing. And where leases were promised by somebody who did not make them, it makes them.

use super::acquire::range_of;
use super::bootstrap::{begun, create, keep, leases_for, make_with_marker};
use super::coordinator::View;
use super::session::Reached;
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
    /// Versions of documents whose promises the last look showed.
    promised: BTreeSet<String>,
    /// How far ranges were whose lease this host held when it was lost.
    known: Vec<Reached>,
}

/// How soon a finding is looked at again.
const CONFIRM: Duration = Duration::from_secs(10);
const KNOWN_MAX: usize = 4096;

impl Auditor {
    pub(crate) fn new(shared: Arc<Shared>) -> Auditor {
        let next = shared.runtime.elapsed() + CONFIRM.min(shared.options.audit_interval);
        Auditor { shared, next, before: Vec::new(), promised: BTreeSet::new(), known: Vec::new() }
    }

    /// Remembers how far a range was, in case its lease is gone.
    pub(crate) fn remember(&mut self, reached: Reached) {
        self.known.retain(|known| known.range != reached.range);
        if self.known.len() < KNOWN_MAX {
            self.known.push(reached);
        }
    }

    /// Looks, if it is time to.
    pub(crate) async fn round(&mut self, view: &View, alive: &BTreeSet<DocumentKey>) {
        self.keep_promises(view).await;
        let now = self.shared.runtime.elapsed();
        if now < self.next {
            return;
        }
        let mut covered = Vec::new();
        for (lease, stored) in view.leases.iter().chain(&view.doubles) {
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
                    let all = view.leases.iter().chain(&view.doubles);
                    let mut named = all.filter(|(_, stored)| name(stored) == *document);
                    // Of two documents about the same keys one is enough, whoever works on the other;
                    // a parent that is worked on is on its way to becoming its children.
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
        // A gap may be what somebody has promised to fill.
        let fills = !missing.is_empty() && view.promises.is_empty();
        if let Some(marker) = view.marker.as_ref().filter(|_| fills) {
            self.fill(marker, missing).await;
        }
        let soon = if found.is_empty() { self.shared.options.audit_interval } else { CONFIRM };
        self.next = now + soon.min(self.shared.options.audit_interval);
        self.before = found;
    }

    /// Makes leases that somebody promised and did not make by the next look.
    async fn keep_promises(&mut self, view: &View) {
        for promise in view.promises.iter().filter(|one| self.promised.contains(&one.etag)) {
            // If it cannot be done now, the next look shows it again.
            let _ = keep(&self.shared, promise).await;
        }
        self.promised = view.promises.iter().map(|promise| promise.etag.clone()).collect();
    }

    /// Takes a lease away that others cover. Ours are never deleted (`promised`).
    async fn remove(&self, lease: &Lease, stored: &Stored) -> Result<(), StoreError> {
        let store = &self.shared.store;
        if self.shared.promises() {
            let retired = self.shared.document(&lease.retired(Vec::new()));
            store.replace(retired, &stored.etag).await.map(drop)
        } else {
            store.delete(&stored.key, &stored.etag).await
        }
    }

    /// Leases for keys nobody covers, further back rather than further on.
    async fn missing(&self, view: &View, gap: &KeyRange, confirmed: bool) -> Vec<Lease> {
        let known = self.known.iter().filter(|known| known.range.contains_range(gap));
        // A sink that remembers epochs must not see one again.
        let retired = promised::epoch_after(view.retired.iter(), gap);
        let epoch = known.clone().map(|known| known.epoch).max().max(retired).unwrap_or(0);
        let known = known
            .map(|known| known.position.clone())
            .reduce(|one, other| if other.is_before(&one) == Some(true) { other } else { one });
        let mut leases = Vec::new();
        // Whoever knows how far the range was goes first.
        if !confirmed && known.is_none() {
            return leases;
        }
        let Some(marker) = &view.marker else {
            // Everything is gone, not one lease: somebody emptied the container.
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
            // A list that left it out: then it is there, and making it would fail anyway.
            let retired =
                |stored: &Stored| view.retired.iter().any(|(_, one)| one.key == stored.key);
            match self.shared.store.read(&lease.key).await {
                Ok(found) if found.as_ref().is_none_or(retired) => {}
                _ => continue,
            }
            let begin = known.clone().map_or_else(|| Err(start.clone()), Ok);
            leases.extend(begun(&self.shared, lease, Some(begin), epoch).await);
        }
        leases
    }

    /// Makes missing leases, if nobody did since the look that showed this marker.
    async fn fill(&self, marker: &Stored, mut leases: Vec<Lease>) {
        // The next look finds the others.
        leases.truncate(WRITES_MAX - 1);
        let filled = |lease: &Lease| {
            let range = lease.range.clone().unwrap_or_else(KeyRange::full);
            self.shared.tell(Event::CoverageGap { range });
        };
        if self.shared.promises() {
            let unchanged = Marker::parse(&marker.body);
            let made =
                make_with_marker(&self.shared, leases.clone(), unchanged, Some(marker)).await;
            // Otherwise somebody was quicker, or there was no answer: the next look tells.
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

/// A document, also if another one has the same id in another partition.
fn name(stored: &Stored) -> String {
    format!("{}|{}", stored.key.id, stored.key.partition.as_deref().unwrap_or_default())
}
