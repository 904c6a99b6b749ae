//! Shares by weight and priority, with handover instead of preemption.
//!
//! Every host computes the same distribution from the same list and carries out its own part. It acquires free
//! leases that are assigned to it, and offers its leases that are assigned to others. A host keeps its leases as far
//! as its share allows, so the number of moves is minimal.
//!
//! ```text
//! quota    by priority: the highest class is filled first, the others share what is left
//!          within a class by weight, whole leases by largest remainder, within [min, max]
//! keep     a host keeps its leases up to its quota; the others go to hosts below their quota
//! calm     an owned lease moves only after two rounds without any change of members and owners
//! ```

use super::{Balancer, ClusterView, LeaseView, MemberView, Plan};
use crate::lease::HostId;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Rounds without a change before an owned lease is moved.
const CALM_ROUNDS: u32 = 2;

/// The strategy of weighted shares; see the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cooperative;

impl Balancer for Cooperative {
    fn plan(&self, view: &ClusterView, me: &HostId) -> Plan {
        let assigned = distribute(view);
        let mut plan = Plan::default();
        let calm = view.stable_rounds >= CALM_ROUNDS;
        for (lease, target) in view.leases.iter().zip(&assigned) {
            let Some(target) = target else { continue };
            let for_me = *target == *me;
            match &lease.owner {
                None if for_me && lease.is_free_for(me) => plan.take.push(lease.token.clone()),
                None => {}
                Some(_) if lease.is_of(me) && !for_me && calm => {
                    plan.offer.push((lease.token.clone(), target.to_text()));
                }
                // A host without a member document cannot be offered the lease, and an unresponsive one
                // was offered it long enough.
                Some(owner) if for_me && calm && !lease.is_of(me) => {
                    let is_member = view.members.iter().any(|member| lease.is_of(&member.host));
                    let may_take = !is_member || owner.unresponsive;
                    if may_take && plan.preempt.is_empty() {
                        plan.preempt.push(lease.token.clone());
                    }
                }
                Some(_) => {}
            }
        }
        plan
    }
}

/// Assigns every lease to a host; `None` where every host has reached its maximum.
pub(super) fn distribute(view: &ClusterView) -> Vec<Option<HostId>> {
    let mut members: Vec<&MemberView> =
        view.members.iter().filter(|member| !member.draining).collect();
    members.sort_by(|one, other| {
        other.priority.cmp(&one.priority).then_with(|| one.host.cmp(&other.host))
    });
    let quotas = quotas(&members, view.leases.len());
    let mut assigned: Vec<Option<HostId>> = vec![None; view.leases.len()];
    let mut left: BTreeMap<&HostId, usize> = BTreeMap::new();
    for (member, quota) in members.iter().zip(&quotas) {
        let mut had: Vec<usize> = indices(view, |lease| lease.is_of(&member.host));
        had.sort_by_key(|index| std::cmp::Reverse(affinity(&view.leases[*index], &member.host)));
        had.truncate(*quota);
        left.insert(&member.host, quota - had.len());
        for index in had {
            assigned[index] = Some(member.host.clone());
        }
    }
    // Reserved leases go to their host first, if it has room.
    for (index, lease) in view.leases.iter().enumerate() {
        let Some(wanted) = lease.reserved_for.as_ref().filter(|_| assigned[index].is_none()) else {
            continue;
        };
        let matching =
            |member: &&&MemberView| member.host.to_text() == *wanted || member.host.name == *wanted;
        if let Some(member) = members.iter().find(matching)
            && let Some(room) = left.get_mut(&member.host).filter(|room| **room > 0)
        {
            *room -= 1;
            assigned[index] = Some(member.host.clone());
        }
    }
    // Free leases first: assigning them needs no move.
    let mut order: Vec<usize> =
        (0..assigned.len()).filter(|index| assigned[*index].is_none()).collect();
    order.sort_by_key(|index| (view.leases[*index].owner.is_some(), *index));
    for index in order {
        let roomy = left.iter().filter(|(_, room)| **room > 0);
        let best = roomy.max_by_key(|(host, room)| (**room, affinity(&view.leases[index], host)));
        let Some(host) = best.map(|(host, _)| (*host).clone()) else { break };
        if let Some(room) = left.get_mut(&host) {
            *room -= 1;
        }
        assigned[index] = Some(host);
    }
    assigned
}

fn indices(view: &ClusterView, matches: impl Fn(&LeaseView) -> bool) -> Vec<usize> {
    (0..view.leases.len()).filter(|index| matches(&view.leases[*index])).collect()
}

/// A pseudo-random rank that is the same on every host and spreads leases evenly.
fn affinity(lease: &LeaseView, host: &HostId) -> u64 {
    xxh3_64(format!("{}\n{}\n{}", lease.token, host.name, host.session).as_bytes())
}

/// Returns the quota of each member. Members are sorted by descending priority.
fn quotas(members: &[&MemberView], leases: usize) -> Vec<usize> {
    let mut quotas = vec![0; members.len()];
    let mut left = leases;
    let mut from = 0;
    while from < members.len() {
        let priority = members[from].priority;
        let to = from + members[from..].iter().take_while(|m| m.priority == priority).count();
        let class = quotas_of_class(&members[from..to], left);
        left = left.saturating_sub(class.iter().sum());
        quotas[from..to].copy_from_slice(&class);
        from = to;
    }
    quotas
}

fn quotas_of_class(members: &[&MemberView], leases: usize) -> Vec<usize> {
    let cap = |member: &MemberView| match member.bounds.max {
        0 => leases,
        // The minimum takes precedence over the maximum.
        max => max.max(member.bounds.min).min(leases),
    };
    let mut quotas: Vec<usize> = members.iter().map(|m| m.bounds.min.min(leases)).collect();
    // If the minimums exceed the leases, the first members get theirs.
    let mut room = leases;
    for quota in &mut quotas {
        *quota = (*quota).min(room);
        room -= *quota;
    }
    // One lease at a time to the member furthest below its weighted share (largest remainder).
    while room > 0 {
        let open = (0..members.len()).filter(|index| quotas[*index] < cap(members[*index]));
        let next = open.min_by(|one, other| {
            let load = |index: usize| {
                let weight = members[index].weight.max(1e-9);
                // The load after one more lease decides.
                (quotas[index] as f64 + 1.0) / weight
            };
            load(*one).total_cmp(&load(*other)).then_with(|| one.cmp(other))
        });
        let Some(next) = next else { break };
        quotas[next] += 1;
        room -= 1;
    }
    quotas
}

#[cfg(test)]
mod tests;
