//! Deterministic simulation: a fleet of hosts in one thread under one seed. Hosts crash, freeze and lose their
//! network, clocks are wrong, answers get lost, ranges split and merge. An oracle checks what handlers received
//! and what the store committed; it never trusts the contents of leases.
//!
//! ```text
//! world     hosts on separate machines, a feed, a lease store, a writer
//! network   faults of requests and answers
//! original  a host that behaves like the .NET and Java libraries
//! oracle    the invariants, checked continuously and at the end
//! faults    the scenarios of host faults, one test each; faults_of_services: faults of their dependencies
//! late      hosts that stop between reading and acting
//! storm     random faults under many seeds
//! stage     one host in detail, for the tests of handlers and trigger
//! settings  single options: starts, polling, scopes, prefixes, balancers
//! sabotage  hosts broken on purpose, to prove that the oracle detects it
//! ```
//!
//! `HEADWATER_SEEDS=1000000` runs that many seeds instead of the default number, `HEADWATER_SEEDS=10000..20000` a
//! range of seeds, and `HEADWATER_SEED=17` one seed with a trace of its events.

mod faults;
mod faults_of_services;
mod handlers;
mod late;
mod network;
mod oracle;
mod original;
mod sabotage;
mod settings;
mod stage;
mod storm;
mod trigger;
mod world;

use std::ops::Range;

/// A host that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Works past its deadline.
    IgnoresDeadlines,
    /// Stores positions before the stored one.
    PositionsGoBack,
    /// Stores positions before the changes are handled.
    StoresBeforeHandling,
    /// Counts changes as handled although the handler failed.
    ForgetsFailures,
    /// Distributes changes to lanes regardless of their keys.
    LanesIgnoreKeys,
    /// Begins the children of a split at the read position.
    SplitsAtWhatWasRead,
    /// Never acquires leases of hosts that vanished.
    LeavesTheDeadAlone,
    /// Releases leases without storing what was handled.
    LeavesWithoutStoring,
    /// Writes a lease again after a conflict, whatever its owner.
    WritesAnyway,
    /// Creates leases without a promise, and deletes leases that are over.
    PromisesNothing,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Whether a single seed was requested, whose events are traced.
pub(crate) fn looks_at_one() -> bool {
    static LOOKS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *LOOKS.get_or_init(|| number("HEADWATER_SEED").is_some())
}

/// Returns the seeds to run, given the default number.
pub(crate) fn seeds(usual: u64) -> Range<u64> {
    if let Some(seed) = number("HEADWATER_SEED") {
        return seed..seed + 1;
    }
    let wanted = std::env::var("HEADWATER_SEEDS").unwrap_or_default();
    match wanted.split_once("..") {
        Some((first, end)) => first.parse().unwrap_or(0)..end.parse().unwrap_or(usual),
        None => 0..wanted.parse().unwrap_or(usual),
    }
}
