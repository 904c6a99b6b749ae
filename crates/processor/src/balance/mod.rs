//! Load balancing of leases: pure functions from a view of the cluster to a plan.
//!
//! [`EqualLeases`] behaves like the .NET and Java libraries, for containers shared with them. [`Cooperative`] is our
//! own: every host computes the same distribution from the same list and hands over surplus leases. It preempts
//! only hosts that take no part or do not respond. A balancer never writes a lease.

mod cooperative;
mod equal;

pub use cooperative::Cooperative;
pub use equal::EqualLeases;

use crate::lease::HostId;
use crate::member::Bounds;

/// A runnable lease as a balancer sees it. Paused, halted and retired leases are not part of the view.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseView {
    /// Its token.
    pub token: String,
    /// Its owner, if that is alive.
    pub owner: Option<Owner>,
    /// Whether its last owner vanished without releasing it.
    pub expired: bool,
    /// The host it is reserved for, for a while: `name/session`, or only a name.
    pub reserved_for: Option<String>,
    /// Approximate bytes per second.
    pub rate: u64,
}

/// A live owner of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The host name.
    pub name: String,
    /// The session, if it is one of our hosts.
    pub session: Option<String>,
    /// Whether it does not react to offers, so that its leases may be preempted.
    pub unresponsive: bool,
}

/// A live host that takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberView {
    /// Its identity.
    pub host: HostId,
    /// Hosts with a higher priority are filled first.
    pub priority: i32,
    /// Its relative capacity.
    pub weight: f64,
    /// The minimum and maximum number of leases.
    pub bounds: Bounds,
    /// Whether it is about to stop.
    pub draining: bool,
}

/// The input of a balancer.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    /// Every runnable lease, in key order.
    pub leases: Vec<LeaseView>,
    /// Every live member; only this host if hosts write no member documents.
    pub members: Vec<MemberView>,
    /// For how many rounds members and owners have not changed.
    pub stable_rounds: u32,
}

impl ClusterView {
    /// Returns the member with this identity.
    #[must_use]
    pub fn member(&self, host: &HostId) -> Option<&MemberView> {
        self.members.iter().find(|member| member.host == *host)
    }
}

/// The actions of one host, by lease token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Leases to acquire that have no live owner.
    pub take: Vec<String>,
    /// Leases to take from a live owner.
    pub preempt: Vec<String>,
    /// Own leases to hand over, and to whom: `name/session`.
    pub offer: Vec<(String, String)>,
}

/// A balancing strategy (`IParitionLoadBalancingStrategy`). Must be deterministic and fast.
pub trait Balancer: Send + Sync + 'static {
    /// Returns what this host should do.
    fn plan(&self, view: &ClusterView, me: &HostId) -> Plan;
}

impl LeaseView {
    /// Whether this host owns it.
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
    /// Returns why a plan is invalid; `None` if a host may carry it out.
    #[must_use]
    pub fn objection(&self, view: &ClusterView, me: &HostId) -> Option<String> {
        let lease = |token: &String| view.leases.iter().find(|lease| lease.token == *token);
        for token in &self.take {
            match lease(token) {
                None => return Some(format!("the lease {token} does not exist")),
                Some(lease) if lease.owner.is_some() => {
                    return Some(format!("the lease {token} has a live owner"));
                }
                Some(_) => {}
            }
        }
        for (token, _) in &self.offer {
            if !lease(token).is_some_and(|lease| lease.is_of(me)) {
                return Some(format!("cannot offer the lease {token}: it belongs to another host"));
            }
        }
        let mine = view.leases.iter().filter(|lease| lease.is_of(me)).count();
        let after = mine + self.take.len() + self.preempt.len() - self.offer.len();
        // The minimum takes precedence over the maximum.
        let most = |bounds: Bounds| if bounds.max == 0 { 0 } else { bounds.max.max(bounds.min) };
        let max = view.member(me).map_or(0, |member| most(member.bounds));
        (max > 0 && after > max.max(mine))
            .then(|| format!("{after} leases exceed the maximum of {max}"))
    }
}
