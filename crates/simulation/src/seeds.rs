//! Chooses the seeds that a promise is tested with, and reports a seed that breaks it.
//!
//! * `HEADWATER_SEEDS=1000000` runs the first million instead of the usual number.
//! * `HEADWATER_SEED=17` runs only this seed.
//! * `HEADWATER_LINES=9999` shows that many lines of the history of a failed seed.

use crate::run::{Report, run};
use crate::setup::Profile;
use std::ops::Range;

/// The number of seeds that a promise is tested with.
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

/// Returns how many lines of a history to keep.
pub(crate) fn lines_kept() -> usize {
    number("HEADWATER_LINES").and_then(|lines| usize::try_from(lines).ok()).unwrap_or(120)
}

/// Returns the seeds to run, given the usual count.
#[must_use]
pub fn seeds(count: Count) -> Range<u64> {
    if let Some(seed) = number("HEADWATER_SEED") {
        return seed..seed + 1;
    }
    let usual = if cfg!(debug_assertions) { count.debug } else { count.release };
    0..number("HEADWATER_SEEDS").unwrap_or(usual)
}

/// Tests a promise with every seed.
///
/// # Panics
/// If a seed breaks it. The message has the seed, the violation, the last events and how to reproduce it.
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

/// Describes a broken promise, with all that is needed to reproduce it.
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
