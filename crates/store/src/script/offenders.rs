//! Scripts that keep taking more than they may, and are not run for a while.
//!
//! A script that never ends costs a thread for seconds each time it is called, and one caller can call it as
//! often as it likes. After a few such calls in a row it is refused at once, until some time has passed; one
//! call that ends in order forgives all. Another source under the same name is another script.

use headwater_model::ContainerRid;
use headwater_script::Script;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Offences in a row that are tolerated.
const STRIKES: u32 = 3;
/// How long a script is refused, and how long an offence is remembered.
const MEMORY: Duration = Duration::from_secs(60);
/// Offenders that are remembered; the one whose offence is oldest is forgotten first.
const OFFENDERS_MAX: usize = 1_000;

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Offenders(Mutex<HashMap<u64, Offences>>);

#[derive(Clone, Copy, Debug)]
struct Offences {
    count: u32,
    last: Duration,
}

/// Which script it is.
pub(super) fn name_of(container: ContainerRid, script: &Script) -> u64 {
    let mut hasher = DefaultHasher::new();
    (container.as_u64(), &script.name, &script.source).hash(&mut hasher);
    hasher.finish()
}

impl Offenders {
    /// How long a script is still refused.
    pub(super) fn refused_for(&self, script: u64, now: Duration) -> Option<Duration> {
        let offences = self.0.lock().get(&script).copied()?;
        let left = (offences.last + MEMORY).checked_sub(now).filter(|left| !left.is_zero())?;
        (offences.count >= STRIKES).then_some(left)
    }

    /// It has taken more than it may.
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

    /// It has ended in order.
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
        assert_eq!(offenders.refused_for(7, at(63)), None, "it begins anew");
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
    fn only_so_many_are_remembered_and_the_oldest_is_forgotten() {
        let offenders = Offenders::default();
        for script in 0..2_000 {
            offenders.note(script, at(script));
        }
        let all = offenders.0.lock();
        assert!(all.len() == OFFENDERS_MAX && all.contains_key(&1_999) && !all.contains_key(&0));
    }
}
