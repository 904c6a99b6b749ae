//! Which seeds a promise is tried with, and what is said when one of them breaks it.
//!
//! * `HEADWATER_SEEDS=1000000` tries the first million instead of the usual number.
//! * `HEADWATER_SEED=17` tries exactly this one.
//! * `HEADWATER_LINES=9999` shows that much of the history of a seed that broke something.

use crate::run::{Report, run};
use crate::setup::Profile;
use std::ops::Range;

/// How many seeds a promise is tried with.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// In an optimised build.
    pub release: u64,
    /// In any other.
    pub debug: u64,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// How many lines of a history are shown.
pub(crate) fn lines_kept() -> usize {
    number("HEADWATER_LINES").and_then(|lines| usize::try_from(lines).ok()).unwrap_or(120)
}

/// The seeds to try, given how many are usual.
#[must_use]
pub fn seeds(count: Count) -> Range<u64> {
    if let Some(seed) = number("HEADWATER_SEED") {
        return seed..seed + 1;
    }
    let usual = if cfg!(debug_assertions) { count.debug } else { count.release };
    0..number("HEADWATER_SEEDS").unwrap_or(usual)
}

/// Tries a promise with every seed.
///
/// # Panics
/// When a seed breaks it; says which one, how, what came before, and how to see it again.
pub fn keep(profile: &Profile, count: Count) {
    let (mut events, mut lost, mut tried) = (0, 0, 0);
    for seed in seeds(count) {
        let report = run(seed, profile);
        if report.violation.is_some() {
            panic!("{}", describe(&report, profile));
        }
        events += report.events;
        lost += report.tracks_lost;
        tried += 1;
    }
    println!("{}: {tried} seeds, {events} events, {lost} items lost track of", profile.promise);
}

/// Everything a person needs to see a broken promise again.
#[must_use]
pub fn describe(report: &Report, profile: &Profile) -> String {
    let broken = report.violation.as_ref().map(ToString::to_string).unwrap_or_default();
    let release = if cfg!(debug_assertions) { "" } else { "--release " };
    format!(
        "\n{}\n\n{}\n\nseed {} broke {}\n{}\n\nto see it again:\n  HEADWATER_SEED={} cargo test \
         {release}-p headwater-simulation --test promises {}\n",
        report.setup,
        report.tail.join("\n"),
        report.seed,
        profile.promise,
        broken,
        report.seed,
        profile.promise,
    )
}
