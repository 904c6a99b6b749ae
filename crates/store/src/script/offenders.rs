//! A circuit breaker for scripts that repeatedly exceed their limits.
//!
//! A script that never ends occupies a thread until its time limit on each call, and a client can call it as often
//! as it likes. After three such calls in a row, calls are rejected at once until a minute has passed. One
//! successful call resets the strike count. A changed source under the same name counts as another script.

use headwater_model::ContainerRid;
use headwater_script::Script;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Number of offences in a row that open the circuit breaker.
const STRIKES: u32 = 3;
/// How long calls are rejected, and how long an offence counts.
const MEMORY: Duration = Duration::from_secs(60);
/// Maximum number of scripts with recorded offences; the one with the oldest offence is evicted first.
const OFFENDERS_MAX: usize = 1_000;

/// Offences by script.
#[derive(Debug, Default)]
pub(crate) struct Offenders(Mutex<HashMap<u64, Offences>>);

#[derive(Clone, Copy, Debug)]
struct Offences {
    count: u32,
    last: Duration,
}

/// Identifies a script by a hash of its container, name and source.
pub(super) fn name_of(container: ContainerRid, script: &Script) -> u64 {
    let mut hasher = DefaultHasher::new();
    (container.as_u64(), &script.name, &script.source).hash(&mut hasher);
    hasher.finish()
}

impl Offenders {
    /// The time for which calls of a script are still rejected; `None` if it may run.
    pub(super) fn refused_for(&self, script: u64, now: Duration) -> Option<Duration> {
        let offences = self.0.lock().get(&script).copied()?;
        let left = (offences.last + MEMORY).checked_sub(now).filter(|left| !left.is_zero())?;
        (offences.count >= STRIKES).then_some(left)
    }

    /// Records that a script exceeded its limits.
    pub(super) fn note(&self, script: u64, now: Duration) {
        let mut all = self.0.lock();
        if all.len() >= OFFENDERS_MAX && !all.contains_key(&script) {
            let oldest = all.iter().min_by_key(|(_, one)| one.last).map(|(name, _)| *name);
            oldest.and_then(|oldest| all.remove(&oldest));
        }
        let offences = all.entry(script).or_insert(Offences { count: 0, last: now });
        let is_forgotten = now.saturating_sub(offences.last) >= MEMORY;
        offences.count = if is_forgotten { 1 } else { offences.count.saturating_add(1) };
        offences.last = now;
    }

    /// Resets the strike count of a script after a successful call.
    pub(super) fn forgive(&self, script: u64) {
        self.0.lock().remove(&script);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_script_is_refused_after_some_offences_and_let_in_again_later() {
        let offenders = Offenders::default();
        for second in 0..3 {
            assert_eq!(offenders.refused_for(7, at(second)), None);
            offenders.note(7, at(second));
        }
        assert_eq!(offenders.refused_for(7, at(3)), Some(at(59)));
        assert_eq!(offenders.refused_for(8, at(3)), None, "others are not affected");
        assert_eq!(offenders.refused_for(7, at(62)), None);
        offenders.note(7, at(62));
        assert_eq!(offenders.refused_for(7, at(63)), None, "the count starts again");
    }

    #[test]
    fn one_good_call_forgives_all() {
        let offenders = Offenders::default();
        offenders.note(7, at(0));
        offenders.note(7, at(0));
        offenders.forgive(7);
        offenders.note(7, at(0));
        assert_eq!(offenders.refused_for(7, at(0)), None);
    }

    #[test]
    fn the_number_of_offenders_is_limited_and_the_oldest_is_evicted() {
        let offenders = Offenders::default();
        for script in 0..2_000 {
            offenders.note(script, at(script));
        }
        let all = offenders.0.lock();
        assert!(all.len() == OFFENDERS_MAX && all.contains_key(&1_999) && !all.contains_key(&0));
    }
}
