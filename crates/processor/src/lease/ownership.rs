//! Ownership of a lease, as pure transitions from one version of a lease to the next.
//!
//! ```text
//!            acquired                      checkpointed
//!   free ───────────────► held, epoch e ───────────────► held, epoch e, later position
//!    ▲                        │  │ │
//!    └───────── released ─────┘  │ └── another host acquires: epoch e + 1, and our etag is stale
//!                                └── retired: its parts continue from its position and its epoch
//! ```
//!
//! Every transition is written with an etag condition on the version it was made from. In the commit order of a
//! store, no write of an old owner therefore follows the acquisition by a new one, whatever happens to clocks,
//! pauses and answers. The epoch serves as a fencing token. The model checker and the host run these same functions.

use super::{DocumentKey, Extra, Lease, LeaseState};
use crate::position::Position;
use headwater_model::{Epk, KeyRange};

/// One run of a host. Two processes with the same name differ in their session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId {
    /// The host name (`WithHostName`, `WithInstanceName`, `hostName`).
    pub name: String,
    /// Random, new for every start.
    pub session: String,
}

impl HostId {
    /// Returns `name/session`, the form used in reservations.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{}/{}", self.name, self.session)
    }
}

/// An owner's claim to a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The owner.
    pub host: HostId,
    /// The epoch of its acquisition.
    pub epoch: u64,
    /// The generation of the control document at that time.
    pub generation: u64,
}

/// How a lease that was read again relates to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Still ours: the answer to an earlier write was lost, or another program edited the document.
    Held,
    /// Owned by another host, by none, or by us under another epoch.
    Lost,
    /// An operator has set its position.
    Reset,
}

impl Lease {
    /// Whether this run of the host owns it. Without a stored session the name decides.
    #[must_use]
    pub fn is_held_by(&self, host: &HostId) -> bool {
        let session = self.extra.session.as_ref();
        self.is_named(&host.name) && session.is_none_or(|session| *session == host.session)
    }

    /// Whether its owner has this name, ignoring case.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        // The .NET and Java libraries compare names inconsistently, with and without case.
        self.owner.as_ref().is_some_and(|owner| owner.eq_ignore_ascii_case(name))
    }

    /// Returns the lease as the next owner writes it.
    ///
    /// `vanished` means that the last owner did not release it. The attempt is then counted, so that a change that
    /// crashes every host is detected.
    #[must_use]
    pub fn acquired(&self, host: &HostId, vanished: bool) -> Lease {
        let mut next = self.clone();
        next.owner = Some(host.name.clone());
        let at = self.position.as_ref().map(|position| position.as_str().to_owned());
        let extra = &mut next.extra;
        extra.session = Some(host.session.clone());
        extra.epoch += 1;
        extra.sequence = 0;
        extra.reserved_for = None;
        let again = vanished && extra.attempts > 0 && extra.attempts_at == at;
        extra.attempts = match (vanished, again) {
            (true, true) => extra.attempts.saturating_add(1),
            (true, false) => 1,
            (false, _) => 0,
        };
        extra.attempts_at = if vanished { at } else { None };
        next
    }

    /// Returns the lease with a later position; an earlier one is ignored.
    #[must_use]
    pub fn checkpointed(&self, reached: Option<&Position>) -> Lease {
        let mut next = self.clone();
        next.extra.sequence += 1;
        if let Some(reached) = reached {
            next.position = Some(match &self.position {
                Some(stored) => reached.clone().or_later(stored),
                None => reached.clone(),
            });
            next.extra.start = None;
        }
        next
    }

    /// Returns the lease without an owner, optionally reserved for another host.
    #[must_use]
    pub fn released(&self, reserved_for: Option<String>, state: LeaseState) -> Lease {
        let mut next = self.clone();
        next.owner = None;
        next.extra.session = None;
        next.extra.sequence += 1;
        next.extra.reserved_for = reserved_for;
        next.extra.attempts = 0;
        next.extra.attempts_at = None;
        next.extra.state = state;
        next
    }

    /// Returns the lease as retired. `cuts` lists the keys that separate the parts to create.
    pub(crate) fn retired(&self, cuts: Vec<Epk>) -> Lease {
        let mut next = self.released(None, LeaseState::Retired);
        next.extra.cuts = cuts;
        next
    }

    /// Returns the lease of a part of this one. It continues from this lease's position.
    pub(crate) fn part(&self, key: DocumentKey, token: String, range: KeyRange) -> Lease {
        let mut part = Lease::new(self.flavour, key, token, range, self.mode.unwrap_or_default());
        part.position.clone_from(&self.position);
        part.extra = Extra {
            start: self.extra.start.clone(),
            parent: Some(format!("{}@{}", self.token, self.extra.epoch)),
            generation: self.extra.generation,
            // Parts continue the epoch, so that for no key an old owner has a higher one.
            epoch: self.extra.epoch,
            ..Extra::default()
        };
        part.copy_properties(self);
        part
    }

    /// Compares this lease, as it is stored now, with a claim to it.
    #[must_use]
    pub fn judge(&self, claim: &Claim) -> Standing {
        let extra = &self.extra;
        if extra.session.is_some() && extra.generation != claim.generation {
            return Standing::Reset;
        }
        // The .NET and Java libraries preserve neither session nor epoch; then the name decides.
        let same_epoch = extra.session.is_none() || extra.epoch == claim.epoch;
        if self.is_held_by(&claim.host) && same_epoch { Standing::Held } else { Standing::Lost }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DocumentKey, Flavour};
    use super::*;
    use headwater_model::{FeedMode, KeyRange};

    fn host(name: &str, session: &str) -> HostId {
        HostId { name: name.to_owned(), session: session.to_owned() }
    }

    fn lease() -> Lease {
        let key = DocumentKey { id: "NS..-FF".to_owned(), partition: None };
        let (token, range) = ("-FF".to_owned(), KeyRange::full());
        Lease::new(Flavour::DotNetV3, key, token, range, FeedMode::LatestVersion)
    }

    fn at(lsn: u64) -> Position {
        Position::new(format!("\"{lsn}\"")).unwrap()
    }

    #[test]
    fn a_checkpoint_never_moves_back() {
        let held = lease().acquired(&host("a", "1"), false).checkpointed(Some(&at(9)));
        assert_eq!(held.checkpointed(Some(&at(5))).position, Some(at(9)));
        assert_eq!(held.checkpointed(Some(&at(12))).position, Some(at(12)));
        assert_eq!(held.checkpointed(None).position, Some(at(9)));
        assert_eq!(held.checkpointed(None).extra.sequence, 2);
    }

    #[test]
    fn every_acquisition_is_an_epoch_and_every_claim_is_of_one() {
        let (a, twin) = (host("a", "1"), host("A", "2"));
        let held = lease().acquired(&a, false);
        let claim = Claim { host: a.clone(), epoch: 1, generation: 0 };
        assert_eq!(held.judge(&claim), Standing::Held);
        assert_eq!(held.checkpointed(Some(&at(1))).judge(&claim), Standing::Held);
        assert_eq!(held.released(None, LeaseState::Running).judge(&claim), Standing::Lost);
        assert_eq!(held.acquired(&twin, true).judge(&claim), Standing::Lost);
        assert_eq!(held.acquired(&a, true).judge(&claim), Standing::Lost, "epoch 2");
        let mut reset = held.clone();
        reset.extra.generation = 1;
        assert_eq!(reset.judge(&claim), Standing::Reset);
        let mut rewritten_by_java = held;
        rewritten_by_java.extra = super::super::Extra::default();
        assert_eq!(rewritten_by_java.judge(&claim), Standing::Held);
    }

    #[test]
    fn hosts_that_vanish_at_one_position_are_counted() {
        let a = host("a", "1");
        let mut held = lease().acquired(&a, false);
        assert_eq!(held.extra.attempts, 0);
        for expected in 1..4 {
            held = held.acquired(&a, true);
            assert_eq!(held.extra.attempts, expected);
        }
        held = held.checkpointed(Some(&at(3))).acquired(&a, true);
        assert_eq!(held.extra.attempts, 1, "another position");
        held = held.released(None, LeaseState::Running).acquired(&a, false);
        assert_eq!(held.extra.attempts, 0, "an orderly end");
    }
}
