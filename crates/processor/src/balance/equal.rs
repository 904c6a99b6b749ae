//! Equal shares, as the .NET and Java libraries distribute leases.
//!
//! A host sees only owners, so a host without leases is invisible to the others. It acquires free leases up to its
//! share. If none is free, it takes one lease from the host with the most.

use super::{Balancer, ClusterView, LeaseView, Plan};
use crate::lease::HostId;
use std::collections::BTreeMap;

/// The strategy of equal shares; see the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EqualLeases {
    /// Most leases acquired in one round; zero means no limit (`maxLeasesToAcquirePerCycle`).
    pub take_max: usize,
}

impl Balancer for EqualLeases {
    fn plan(&self, view: &ClusterView, me: &HostId) -> Plan {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        counts.insert(me.name.to_lowercase(), 0);
        for owner in view.leases.iter().filter_map(|lease| lease.owner.as_ref()) {
            *counts.entry(owner.name.to_lowercase()).or_default() += 1;
        }
        let bounds = view.member(me).map(|member| member.bounds).unwrap_or_default();
        let mut target = view.leases.len().div_ceil(counts.len()).max(1);
        if bounds.max > 0 {
            target = target.min(bounds.max);
        }
        if bounds.min > 0 {
            target = target.max(bounds.min);
        }
        let mine = view.leases.iter().filter(|lease| lease.is_of(me)).count();
        let needed = target.saturating_sub(mine);
        if needed == 0 {
            return Plan::default();
        }
        let free = free_leases(view, me);
        if !free.is_empty() {
            let bound = if self.take_max == 0 { needed } else { needed.min(self.take_max) };
            return Plan { take: free.into_iter().take(bound).collect(), ..Plan::default() };
        }
        let preempt = steal(view, me, &counts, target, needed).into_iter().collect();
        Plan { preempt, ..Plan::default() }
    }
}

/// Returns free leases: those without an owner before those whose owner vanished.
fn free_leases(view: &ClusterView, me: &HostId) -> Vec<String> {
    let free = |expired: bool| {
        let matching = move |lease: &&LeaseView| lease.is_free_for(me) && lease.expired == expired;
        view.leases.iter().filter(matching).map(|lease| lease.token.clone())
    };
    free(false).chain(free(true)).collect()
}

fn steal(
    view: &ClusterView,
    me: &HostId,
    counts: &BTreeMap<String, usize>,
    target: usize,
    needed: usize,
) -> Option<String> {
    let mine = me.name.to_lowercase();
    let others = counts.iter().filter(|(name, _)| **name != mine);
    let (victim, count) = others.max_by_key(|(_, count)| **count)?;
    let enough = target - usize::from(needed > 1);
    if *count <= enough {
        return None;
    }
    let of_victim = |lease: &&LeaseView| {
        lease.owner.as_ref().is_some_and(|owner| owner.name.to_lowercase() == *victim)
    };
    view.leases.iter().find(of_victim).map(|lease| lease.token.clone())
}

#[cfg(test)]
mod tests {
    use super::super::{MemberView, Owner};
    use super::*;
    use crate::member::Bounds;

    fn me() -> HostId {
        HostId { name: "me".to_owned(), session: "1".to_owned() }
    }

    /// `.` is free, `x` expired, `m` ours, any other letter another host's.
    fn view(leases: &str, bounds: Bounds) -> ClusterView {
        let lease = |(index, letter): (usize, char)| LeaseView {
            token: index.to_string(),
            owner: (!matches!(letter, '.' | 'x')).then(|| Owner {
                name: if letter == 'm' { "ME".to_owned() } else { letter.to_string() },
                session: None,
                unresponsive: false,
            }),
            expired: letter == 'x',
            reserved_for: None,
            rate: 0,
        };
        let me = MemberView { host: me(), priority: 0, weight: 1.0, bounds, draining: false };
        let leases = leases.chars().enumerate().map(lease).collect();
        ClusterView { leases, members: vec![me], stable_rounds: 9 }
    }

    #[track_caller]
    fn check(leases: &str, bounds: Bounds, take: usize, preempt: &[&str]) {
        let view = view(leases, bounds);
        let plan = EqualLeases::default().plan(&view, &me());
        assert_eq!(
            (plan.take.len(), &plan.preempt[..]),
            (take, &preempt.map_owned()[..]),
            "{leases}"
        );
        assert_eq!(plan.objection(&view, &me()), None);
    }

    trait MapOwned {
        fn map_owned(&self) -> Vec<String>;
    }

    impl MapOwned for [&str] {
        fn map_owned(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }

    /// The cases of the .NET and Java libraries' own tests.
    #[test]
    fn shares_are_those_of_the_originals() {
        let free = Bounds::default();
        check("", free, 0, &[]);
        check("mm", free, 0, &[]);
        check("....", free, 4, &[]);
        check("xxxx", free, 4, &[]);
        check("aa", free, 0, &["0"]);
        check("xa", free, 1, &[]);
        check("xxxxxxxxxxa", free, 6, &[]);
        check("xxxxxxxxxxa", Bounds { min: 7, max: 0 }, 7, &[]);
        check("xxxxxxxxxxa", Bounds { min: 0, max: 3 }, 3, &[]);
        check("aaab", free, 0, &["0"]);
        check("abbb", free, 0, &["1"]);
        check("mab", free, 0, &[]);
        check("mmab", free, 0, &[]);
        check("aabbcc", free, 0, &["4"]);
        check("aaabbb", Bounds { min: 0, max: 1 }, 0, &["3"]);
    }

    #[test]
    fn free_leases_go_before_expired_ones() {
        let plan = EqualLeases { take_max: 1 }.plan(&view("x.xx", Bounds::default()), &me());
        assert_eq!(plan.take, ["1"]);
    }

    #[test]
    fn leases_reserved_for_another_host_are_not_free() {
        let mut view = view("..", Bounds::default());
        view.leases[0].reserved_for = Some("other/7".to_owned());
        view.leases[1].reserved_for = Some("me/1".to_owned());
        assert_eq!(EqualLeases::default().plan(&view, &me()).take, ["1"]);
    }
}
