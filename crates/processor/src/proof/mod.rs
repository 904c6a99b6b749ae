//! Whole fleets in one thread under one seed: hosts that are killed, frozen and cut off, clocks that are
//! wrong, answers that are lost, ranges that split and merge; and an oracle that looks at what handlers
//! were given and what the store committed, never at what a lease table says.
//!
//! ```text
//! world     hosts on machines of their own, a feed, a lease store, a writer
//! network   what happens to requests on their way
//! original  a host as .NET and Java have it
//! oracle    what must be true, checked as it happens and at the end
//! faults    the scenarios of hosts, one test each; faults_of_services those of what they depend on
//! late      those of hosts that stand still between what they were told and what they do
//! storm     everything at once, under many seeds
//! stage     one host, looked at closely: what handlers and trigger promise
//! settings  what single options promise: starts, polling, scopes, prefixes, balancers
//! sabotage  hosts broken on purpose, to see that the oracle notices
//! ```
//!
//! `HEADWATER_SEEDS=1000000` tries that many seeds instead of the usual number, `HEADWATER_SEEDS=10000..20000`
//! those from here to there, `HEADWATER_SEED=17` exactly that one and says what happens.

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

/// A host broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Goes on working when its time is over.
    IgnoresDeadlines,
    /// Stores positions behind what is stored.
    PositionsGoBack,
    /// Stores positions before changes are handled.
    StoresBeforeHandling,
    /// Counts changes as handled although the handler failed.
    ForgetsFailures,
    /// Gives lanes changes without regard to their keys.
    LanesIgnoreKeys,
    /// Begins children of a split behind what was read.
    SplitsAtWhatWasRead,
    /// Does not take leases of hosts that vanished.
    LeavesTheDeadAlone,
    /// Lets go of leases without storing what was handled.
    LeavesWithoutStoring,
    /// Writes a lease again after a conflict, whoever has it now.
    WritesAnyway,
    /// Makes leases without saying so first, and deletes those that are over.
    PromisesNothing,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Whether somebody wants to see what one seed leads to.
pub(crate) fn looks_at_one() -> bool {
    static LOOKS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *LOOKS.get_or_init(|| number("HEADWATER_SEED").is_some())
}

/// The seeds to try, given how many are usual.
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
