//! Distributions, played out round by round until no lease moves.

use super::super::Owner;
use super::*;
use crate::member::Bounds;
use proptest::prelude::*;

fn host(name: &str) -> HostId {
    HostId { name: name.to_owned(), session: format!("{name}1") }
}

fn member(name: &str) -> MemberView {
    let bounds = Bounds::default();
    MemberView { host: host(name), priority: 0, weight: 1.0, bounds, draining: false }
}

fn owner(host: &HostId) -> Owner {
    let (name, session) = (host.name.clone(), Some(host.session.clone()));
    Owner { name, session, unresponsive: false }
}

fn view(leases: usize, members: Vec<MemberView>) -> ClusterView {
    let lease = |index: usize| LeaseView {
        token: format!("{index:02}"),
        owner: None,
        expired: false,
        reserved_for: None,
        rate: 0,
    };
    ClusterView { leases: (0..leases).map(lease).collect(), members, stable_rounds: 9 }
}

/// Carries out the plans of all hosts. Returns how many leases moved from one host to another.
fn settle(view: &mut ClusterView) -> usize {
    let mut moves = 0;
    for _ in 0..view.leases.len() + 3 {
        let before = view.leases.clone();
        for me in view.members.clone() {
            let plan = Cooperative.plan(view, &me.host);
            assert_eq!(plan.objection(view, &me.host), None);
            for lease in &mut view.leases {
                if plan.take.contains(&lease.token) || plan.preempt.contains(&lease.token) {
                    (lease.owner, lease.reserved_for) = (Some(owner(&me.host)), None);
                }
                if let Some((_, to)) = plan.offer.iter().find(|(token, _)| *token == lease.token) {
                    (lease.owner, lease.reserved_for) = (None, Some(to.clone()));
                    moves += 1;
                }
            }
        }
        if view.leases == before {
            return moves;
        }
    }
    panic!("the distribution never settles: {view:?}");
}

fn counts(view: &ClusterView) -> Vec<usize> {
    let of = |member: &MemberView| view.leases.iter().filter(|l| l.is_of(&member.host)).count();
    view.members.iter().map(of).collect()
}

#[track_caller]
fn check(leases: usize, members: Vec<MemberView>, expected: &[usize]) -> ClusterView {
    let mut view = view(leases, members);
    settle(&mut view);
    assert_eq!(counts(&view), expected);
    view
}

#[test]
fn leases_are_shared_by_weight_priority_and_bounds() {
    check(4, vec![member("a")], &[4]);
    check(4, vec![member("a"), member("b")], &[2, 2]);
    check(5, vec![member("a"), member("b")], &[3, 2]);
    check(2, vec![member("a"), member("b"), member("c")], &[1, 1, 0]);
    check(6, vec![MemberView { weight: 2.0, ..member("a") }, member("b")], &[4, 2]);
    let bounds = Bounds { min: 3, max: 0 };
    check(4, vec![MemberView { bounds, ..member("a") }, member("b")], &[3, 1]);
    let high = |name: &str| MemberView { priority: 1, ..member(name) };
    check(4, vec![high("a"), high("b"), member("c")], &[2, 2, 0]);
    check(4, vec![high("a"), member("c")], &[4, 0]);
    let bounds = Bounds { min: 0, max: 2 };
    check(4, vec![MemberView { bounds, ..high("a") }, member("c")], &[2, 2]);
    let small = |name: &str| MemberView { bounds: Bounds { min: 0, max: 1 }, ..member(name) };
    check(4, vec![small("a"), small("b")], &[1, 1]);
    check(3, vec![MemberView { draining: true, ..member("a") }, member("b")], &[0, 3]);
}

#[test]
fn a_newcomer_is_given_its_share_and_nothing_else_moves() {
    let mut view = check(4, vec![member("a")], &[4]);
    view.members.push(member("b"));
    assert_eq!(settle(&mut view), 2);
    assert_eq!(counts(&view), [2, 2]);
    assert_eq!(settle(&mut view), 0, "a settled distribution stays");
    view.members.push(member("c"));
    assert_eq!(settle(&mut view), 1);
    assert_eq!(counts(&view).iter().max(), Some(&2));
}

#[test]
fn owned_leases_stay_while_hosts_come_and_go_and_free_ones_are_acquired() {
    let mut view = check(4, vec![member("a")], &[4]);
    view.members.push(member("b"));
    view.stable_rounds = CALM_ROUNDS - 1;
    assert_eq!(Cooperative.plan(&view, &host("a")), Plan::default());
    view.leases[0].owner = None;
    assert_eq!(Cooperative.plan(&view, &host("b")).take, ["00"]);
}

#[test]
fn reserved_leases_are_acquired_by_their_host_only() {
    let mut view = view(2, vec![member("a"), member("b")]);
    view.leases[0].reserved_for = Some(host("b").to_text());
    view.leases[1].reserved_for = Some("a".to_owned());
    assert_eq!(Cooperative.plan(&view, &host("a")).take, ["01"]);
    assert_eq!(Cooperative.plan(&view, &host("b")).take, ["00"]);
}

#[test]
fn one_of_the_originals_and_one_that_does_not_answer_are_taken_from_one_at_a_time() {
    let mut view = view(4, vec![member("a")]);
    for lease in &mut view.leases {
        lease.owner = Some(Owner { name: "dotnet".to_owned(), session: None, unresponsive: false });
    }
    assert_eq!(Cooperative.plan(&view, &host("a")).preempt.len(), 1);
    view.members.push(member("b"));
    for lease in &mut view.leases {
        lease.owner = Some(owner(&host("b")));
    }
    assert_eq!(Cooperative.plan(&view, &host("a")), Plan::default());
    for lease in &mut view.leases {
        lease.owner = Some(Owner { unresponsive: true, ..owner(&host("b")) });
    }
    assert_eq!(Cooperative.plan(&view, &host("a")).preempt.len(), 1);
}

proptest! {
    /// For any hosts and owners the distribution settles. Every lease that some host may have has exactly one
    /// owner, no host gets more than its maximum, and equal hosts differ by at most one lease. A host above its
    /// maximum keeps the leases that no other host may have.
    #[test]
    fn every_picture_comes_to_rest_in_balance(
        leases in 0_usize..24,
        hosts in prop::collection::vec((0_i32..2, 1_u8..4, 0_usize..3, 0_usize..5, any::<bool>()), 1..6),
        owners in prop::collection::vec(0_usize..8, 24),
    ) {
        let members: Vec<MemberView> = hosts.iter().enumerate().map(|(index, host)| {
            let (priority, weight, min, max, draining) = *host;
            let name = format!("h{index}");
            let bounds = Bounds { min, max };
            MemberView { priority, weight: weight.into(), bounds, draining, ..member(&name) }
        }).collect();
        let mut view = view(leases, members);
        for (lease, owned) in view.leases.iter_mut().zip(&owners) {
            lease.owner = view.members.get(*owned).map(|member| owner(&member.host));
        }
        let before = counts(&view);
        settle(&mut view);
        let counts = counts(&view);
        let working: Vec<_> = view.members.iter().zip(&counts).filter(|(m, _)| !m.draining).collect();
        for ((member, count), before) in view.members.iter().zip(&counts).zip(&before) {
            let max = member.bounds.max.max(member.bounds.min);
            prop_assert!(member.bounds.max == 0 || *count <= max.max(*before));
        }
        let free = view.leases.iter().filter(|lease| lease.owner.is_none()).count();
        for (member, count) in &working {
            prop_assert!(free == 0 || (member.bounds.max > 0 && **count >= member.bounds.max.min(leases)),
                "{free} free, {count} of {member:?}");
        }
        for (one, a) in &working {
            for (other, b) in &working {
                let alike = one.priority == other.priority && one.weight == other.weight
                    && one.bounds == Bounds::default() && other.bounds == Bounds::default();
                prop_assert!(!alike || a.abs_diff(**b) <= 1, "{a} and {b}");
            }
        }
    }
}
