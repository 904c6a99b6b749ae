//! Who should work on what: pure functions from what is known to what to do.
//!
//! [`EqualLeases`] does what the originals do, for containers shared with them. [`Cooperative`] is ours:
//! every host computes the same distribution from the same list, and hands over what it should not have
//! instead of having it taken away.

mod cooperative;
mod equal;

pub use cooperative::Cooperative;
pub use equal::EqualLeases;

use crate::lease::HostId;
use crate::member::Bounds;

/// A lease that may be worked on, as a balancer sees it. Paused, halted and retired ones are not shown.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseView {
    /// Which.
    pub token: String,
    /// Whose, if it has an owner who is alive.
    pub owner: Option<Owner>,
    /// Whether its last owner vanished without letting go of it.
    pub expired: bool,
    /// For whom it is kept a while: `name/session`, or just a name.
    pub reserved_for: Option<String>,
    /// Bytes per second, roughly.
    pub rate: u64,
}

/// Somebody who is alive and has a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The name.
    pub name: String,
    /// The run, if it is one of ours.
    pub session: Option<String>,
    /// For how many rounds it has not answered an offer of ours to take the lease over.
    pub unresponsive: bool,
}

/// A host that is alive and takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberView {
    /// Who.
    pub host: HostId,
    /// Hosts of a higher priority are filled first.
    pub priority: i32,
    /// How much it can carry.
    pub weight: f64,
    /// The fewest and the most leases it wants.
    pub bounds: Bounds,
    /// Whether it is about to leave.
    pub draining: bool,
}

/// Everything a balancer may look at.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    /// Every lease that may be worked on, in the order of their keys.
    pub leases: Vec<LeaseView>,
    /// Every member that is alive; only ourselves where hosts do not write members.
    pub members: Vec<MemberView>,
    /// For how many rounds nobody came, went, or took anything.
    pub stable_rounds: u32,
}

impl ClusterView {
    /// How we describe ourselves.
    #[must_use]
    pub fn member(&self, host: &HostId) -> Option<&MemberView> {
        self.members.iter().find(|member| member.host == *host)
    }
}

/// What to do, by tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Take these, which nobody has.
    pub take: Vec<String>,
    /// Take these away from somebody who is alive.
    pub preempt: Vec<String>,
    /// Hand these, which are ours, to somebody else: `name/session`.
    pub offer: Vec<(String, String)>,
}

/// A strategy (`IParitionLoadBalancingStrategy`). Must be deterministic and quick.
pub trait Balancer: Send + Sync + 'static {
    /// What this host should do.
    fn plan(&self, view: &ClusterView, me: &HostId) -> Plan;
}

impl LeaseView {
    /// Whether it is ours.
    #[must_use]
    pub fn is_of(&self, host: &HostId) -> bool {
        self.owner.as_ref().is_some_and(|owner| {
            let session = owner.session.as_ref();
            owner.name.eq_ignore_ascii_case(&host.name)
                && session.is_none_or(|session| *session == host.session)
        })
    }

    fn is_free_for(&self, host: &HostId) -> bool {
        let kept = |wanted: &String| *wanted != host.to_text() && *wanted != host.name;
        self.owner.is_none() && !self.reserved_for.as_ref().is_some_and(kept)
    }
}

impl Plan {
    /// What is wrong with a plan; nothing if a host may carry it out.
    #[must_use]
    pub fn objection(&self, view: &ClusterView, me: &HostId) -> Option<String> {
        let lease = |token: &String| view.leases.iter().find(|lease| lease.token == *token);
        for token in &self.take {
            match lease(token) {
                None => return Some(format!("there is no lease {token} to take")),
                Some(lease) if lease.owner.is_some() => {
                    return Some(format!("{token} belongs to somebody who is alive"));
                }
                Some(_) => {}
            }
        }
        for (token, _) in &self.offer {
            if !lease(token).is_some_and(|lease| lease.is_of(me)) {
                return Some(format!("{token} is not ours to offer"));
            }
        }
        let mine = view.leases.iter().filter(|lease| lease.is_of(me)).count();
        let after = mine + self.take.len() + self.preempt.len() - self.offer.len();
        // The least a host wants counts more than the most.
        let most = |bounds: Bounds| if bounds.max == 0 { 0 } else { bounds.max.max(bounds.min) };
        let max = view.member(me).map_or(0, |member| most(member.bounds));
        (max > 0 && after > max.max(mine)).then(|| format!("{after} leases are more than {max}"))
    }
}
