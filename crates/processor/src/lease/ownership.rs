//! What may be done to a lease, as functions from one lease to the next.
//!
//! ```text
//!            acquired                      checkpointed
//!   free ───────────────► held, epoch e ───────────────► held, epoch e, further on
//!    ▲                        │  │ │
//!    └───────── released ─────┘  │ └── another host acquires: epoch e + 1, and our etag is stale
//!                                └── retired: its parts go on from its position and its epoch
//! ```
//!
//! Every step is written on the condition that the lease is still the version the step was made from.
//! So in the order in which a store commits, no step of an old owner follows the acquisition by a new
//! one, whatever clocks, pauses and lost answers do. This file holds the steps; the model checker and
//! the host run the same functions.

use super::{DocumentKey, Extra, Lease, LeaseState};
use crate::position::Position;
use headwater_model::{Epk, KeyRange};

/// One run of one host. Two processes with one name differ in their session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId {
    /// What it is called (`WithHostName`, `WithInstanceName`, `hostName`).
    pub name: String,
    /// Drawn anew for every start.
    pub session: String,
}

impl HostId {
    /// `name/session`, as reservations name it.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{}/{}", self.name, self.session)
    }
}

/// What an owner believes to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who.
    pub host: HostId,
    /// Since which acquisition.
    pub epoch: u64,
    /// Under which generation of the control document.
    pub generation: u64,
}

/// What a lease read again says about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Still ours: the answer to an earlier write was lost, or somebody added a note.
    Held,
    /// Somebody else's, nobody's, or ours under another epoch.
    Lost,
    /// Its position was set anew by an operator.
    Reset,
}

impl Lease {
    /// Whether it says that this very run of the host has it.
    #[must_use]
    pub fn is_held_by(&self, host: &HostId) -> bool {
        let session = self.extra.session.as_ref();
        self.is_named(&host.name) && session.is_none_or(|session| *session == host.session)
    }

    /// Whether its owner has this name, in whatever case.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        // The originals compare sometimes with and sometimes without regard to case.
        self.owner.as_ref().is_some_and(|owner| owner.eq_ignore_ascii_case(name))
    }

    /// The lease as the next owner writes it. `vanished` says that the last owner did not let go of
    /// it: then the attempt is counted, so that a change that kills every host is noticed.
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

    /// The lease with a position that was reached, never one further back.
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

    /// The lease as its owner lets go of it, perhaps for somebody in particular.
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

    /// The lease as nobody works on it any more. With cuts, it says what is to become of it.
    pub(crate) fn retired(&self, cuts: Vec<Epk>) -> Lease {
        let mut next = self.released(None, LeaseState::Retired);
        next.extra.cuts = cuts;
        next
    }

    /// The lease of a part of this one, which goes on where this one ended.
    pub(crate) fn part(&self, key: DocumentKey, token: String, range: KeyRange) -> Lease {
        let mut part = Lease::new(self.flavour, key, token, range, self.mode.unwrap_or_default());
        part.position.clone_from(&self.position);
        part.extra = Extra {
            start: self.extra.start.clone(),
            parent: Some(format!("{}@{}", self.token, self.extra.epoch)),
            generation: self.extra.generation,
            // Epochs go on in the parts, so that for no key an old owner has a newer one.
            epoch: self.extra.epoch,
            ..Extra::default()
        };
        part.copy_properties(self);
        part
    }

    /// What this lease, as it is stored now, says about a claim to it.
    #[must_use]
    pub fn judge(&self, claim: &Claim) -> Standing {
        let extra = &self.extra;
        if extra.session.is_some() && extra.generation != claim.generation {
            return Standing::Reset;
        }
        // The originals carry neither session nor epoch along; then the name has to do.
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
