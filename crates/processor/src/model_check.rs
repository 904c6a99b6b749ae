//! Model checking of the lease protocol: every interleaving of a few hosts and one store over one lease.
//!
//! The steps are the functions the host itself uses ([`crate::lease::Lease::acquired`] and its siblings,
//! [`crate::lease::Lease::judge`]). A host reads, decides, and writes conditionally on what it read. Between any two
//! steps other hosts may act, an answer may be lost, and a host may crash and restart, or take a slow host for dead.
//! Whether a slow host stops in time depends on clocks and is not checked here. The model checks what the store
//! commits, whatever the clocks do.

use crate::lease::{Claim, DocumentKey, Flavour, HostId, Lease, LeaseState, Standing};
use crate::position::Position;
use headwater_model::{FeedMode, KeyRange, Lsn};
use stateright::{Checker, Model, Property};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The stored lease, reduced to the relevant parts, and whether a commit broke a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    lease: Compared,
    version: u8,
    hosts: Vec<Host>,
    /// An epoch or a position moved back.
    violated: bool,
    acquisitions: u8,
}

/// A lease that compares only the fields relevant to the protocol.
#[derive(Clone, Debug)]
struct Compared(Arc<Lease>);

impl Compared {
    fn of(lease: Lease) -> Compared {
        Compared(Arc::new(lease))
    }

    fn essence(&self) -> (Option<&str>, Option<&str>, u64, u64, Option<u64>) {
        let lease = &self.0;
        let at = lease.position.as_ref().and_then(Position::lsn).map(Lsn::get);
        let extra = &lease.extra;
        (lease.owner.as_deref(), extra.session.as_deref(), extra.epoch, extra.sequence, at)
    }
}

impl PartialEq for Compared {
    fn eq(&self, other: &Compared) -> bool {
        self.essence() == other.essence()
    }
}
impl Eq for Compared {}
impl Hash for Compared {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.essence().hash(hasher);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Host {
    /// Knows nothing: just started, perhaps after a crash.
    Idle,
    /// Has read this version of the lease and may try to acquire it.
    Saw(Compared, u8),
    /// Assumes that it holds the lease, and has handled up to this number.
    Holds { lease: Compared, version: u8, epoch: u64, handled: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look(usize),
    Acquire { host: usize, answered: bool },
    Handle(usize),
    Store { host: usize, answered: bool },
    Release { host: usize, answered: bool },
    Die(usize),
}

struct Hosts {
    count: usize,
    changes: u64,
    acquisitions_max: u8,
    /// Deliberately broken: after a conflict it writes again on the new version.
    writes_blindly: bool,
}

fn host_id(host: usize) -> HostId {
    HostId { name: format!("h{host}"), session: format!("s{host}") }
}

fn at(lsn: u64) -> Position {
    Position::after(Lsn::new(lsn))
}

impl Hosts {
    /// Commits a write if it was based on the stored version.
    fn commit(state: &mut State, version: u8, next: &Lease) -> bool {
        if version != state.version {
            return false;
        }
        let before = &state.lease.0;
        let back = match (&before.position, &next.position) {
            (Some(before), Some(next)) => next.is_before(before) == Some(true),
            (Some(_), None) => true,
            _ => false,
        };
        state.violated |= back || next.extra.epoch < before.extra.epoch;
        state.lease = Compared::of(next.clone());
        state.version += 1;
        true
    }

    /// After a conflict: reads again and judges its claim, as an owner does.
    fn look_again(&self, state: &State, host: usize, epoch: u64, handled: u64) -> Host {
        let claim = Claim { host: host_id(host), epoch, generation: 0 };
        let (lease, version) = (state.lease.clone(), state.version);
        let held = lease.0.judge(&claim) == Standing::Held || self.writes_blindly;
        if held { Host::Holds { lease, version, epoch, handled } } else { Host::Idle }
    }
}

impl Model for Hosts {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let key = DocumentKey { id: "NS..-FF".to_owned(), partition: None };
        let lease = Lease::new(
            Flavour::DotNetV3,
            key,
            "-FF".to_owned(),
            KeyRange::full(),
            FeedMode::LatestVersion,
        );
        let hosts = vec![Host::Idle; self.count];
        let lease = Compared::of(lease);
        vec![State { lease, version: 0, hosts, violated: false, acquisitions: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        for (host, known) in state.hosts.iter().enumerate() {
            match known {
                Host::Idle => actions.push(Step::Look(host)),
                Host::Saw(..) => {
                    actions.push(Step::Acquire { host, answered: true });
                    actions.push(Step::Acquire { host, answered: false });
                }
                Host::Holds { handled, .. } => {
                    if *handled < self.changes {
                        actions.push(Step::Handle(host));
                    }
                    for answered in [true, false] {
                        actions.push(Step::Store { host, answered });
                        actions.push(Step::Release { host, answered });
                    }
                }
            }
            if *known != Host::Idle {
                actions.push(Step::Die(host));
            }
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        match step {
            Step::Look(host) => {
                state.hosts[host] = Host::Saw(state.lease.clone(), state.version);
            }
            Step::Acquire { host, answered } => {
                let Host::Saw(seen, version) = &before.hosts[host] else { return None };
                if before.acquisitions >= self.acquisitions_max {
                    return None;
                }
                // The previous owner counts as gone, rightly or not.
                let vanished = seen.0.owner.is_some();
                let next = seen.0.acquired(&host_id(host), vanished);
                let taken = Hosts::commit(&mut state, *version, &next);
                state.acquisitions += u8::from(taken);
                state.hosts[host] = match taken && answered {
                    true => {
                        let handled = next.position.as_ref().and_then(Position::lsn);
                        let handled = handled.map_or(0, Lsn::get);
                        let (epoch, version) = (next.extra.epoch, state.version);
                        Host::Holds { lease: Compared::of(next), version, epoch, handled }
                    }
                    // Another host was faster, or the outcome is unknown: read again, never retry blindly.
                    false => Host::Idle,
                };
            }
            Step::Handle(host) => {
                let Host::Holds { handled, .. } = &mut state.hosts[host] else { return None };
                *handled += 1;
            }
            Step::Store { host, answered } | Step::Release { host, answered } => {
                let known = before.hosts[host].clone();
                let Host::Holds { lease, version, epoch, handled } = known else { return None };
                let stored = lease.0.checkpointed((handled > 0).then(|| at(handled)).as_ref());
                let release = matches!(step, Step::Release { .. });
                let next = match release {
                    true => stored.released(None, LeaseState::Running),
                    false => stored,
                };
                // Enough writes for every distinct behaviour; more only make traces longer.
                if next.extra.sequence > 2 {
                    return None;
                }
                let done = Hosts::commit(&mut state, version, &next);
                state.hosts[host] = match (done, answered) {
                    (true, true) if release => Host::Idle,
                    (true, true) => {
                        let version = state.version;
                        Host::Holds { lease: Compared::of(next), version, epoch, handled }
                    }
                    // A conflict or a lost answer: reading shows which.
                    _ => self.look_again(&state, host, epoch, handled),
                };
            }
            Step::Die(host) => state.hosts[host] = Host::Idle,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Hosts>> {
        vec![
            Property::always("no epoch and no position moves back", |_, state: &State| {
                !state.violated
            }),
            Property::always("a version of the lease has one holder", |_, state: &State| {
                let current = |host: &&Host| matches!(host, Host::Holds { version, .. } if *version == state.version);
                state.hosts.iter().filter(current).count() <= 1
            }),
            Property::sometimes(
                "everything is handled and stored",
                |model: &Hosts, state: &State| state.lease.0.position == Some(at(model.changes)),
            ),
            Property::sometimes("a lease changes hands twice", |_, state: &State| {
                state.lease.0.extra.epoch >= 3
            }),
        ]
    }
}

fn model(count: usize, writes_blindly: bool) -> Hosts {
    Hosts { count, changes: 2, acquisitions_max: 3, writes_blindly }
}

#[test]
fn in_every_order_of_events_a_lost_lease_cannot_be_moved() {
    let checker = model(3, false).checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 10_000, "{}", checker.unique_state_count());
}

#[test]
fn a_host_that_writes_blindly_after_a_conflict_is_found_out() {
    let checker = model(2, true).checker().spawn_bfs().join();
    assert!(
        checker.discovery("a version of the lease has one holder").is_some()
            || checker.discovery("no epoch and no position moves back").is_some()
    );
}
