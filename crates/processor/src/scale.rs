//! Scaling: how many hosts a processor needs, for the Functions scale controller and KEDA.
//!
//! There are two algorithms, both pure functions of samples. [`target_instances`] returns a number. The older
//! [`vote`] looks at the last five samples and returns more, fewer, or unchanged. [`Scaler`] takes the samples. It
//! never starts or stops a host.

use crate::lag::Lag;
use crate::source::{FeedSource, SourceError};
use crate::unit::{Snapshot, Unit, UnitError, lag_of};
use headwater_model::FeedMode;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many changes one host is assumed to handle if no page size is configured.
pub const ITEMS_PER_INSTANCE: u64 = 100;
/// How many samples [`vote`] looks at.
pub const SAMPLES: usize = 5;
/// Largest acceptable lag per host.
const LAG_PER_WORKER_MAX: u64 = 1000;

/// Returns the number of hosts to run: one per waiting batch, at most one per lease.
///
/// Without leases there is no such limit, because a host must create them first.
#[must_use]
pub fn target_instances(lag: u64, items_max: Option<u32>, leases: usize) -> u64 {
    let items = items_max.map_or(ITEMS_PER_INSTANCE, u64::from);
    let wanted = lag.div_ceil(if items == 0 { ITEMS_PER_INSTANCE } else { items });
    match u64::try_from(leases).unwrap_or(u64::MAX) {
        0 => wanted,
        leases => wanted.min(leases),
    }
}

/// A measurement at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The lag as the .NET and Java libraries count it: [`Lag::legacy`].
    pub lag: u64,
    /// The number of leases.
    pub leases: usize,
}

/// A recommended change of the number of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// One more.
    Out,
    /// One fewer.
    In,
    /// As many as there are.
    Stay,
}

impl Vote {
    /// Returns the vote as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Vote::Out => "out",
            Vote::In => "in",
            Vote::Stay => "stay",
        }
    }
}

/// Returns what the newest samples (oldest first) recommend for this number of hosts; the older algorithm.
#[must_use]
pub fn vote(samples: &[Sample], workers: usize) -> Vote {
    let Some(newest) = samples.last() else { return Vote::Stay };
    // The only rule that does not depend on the lag, so it needs no five samples.
    if newest.leases > 0 && workers > newest.leases {
        return Vote::In;
    }
    let Some(samples) = samples.last_chunk::<SAMPLES>() else { return Vote::Stay };
    let bearable = u64::try_from(workers).unwrap_or(u64::MAX).saturating_mul(LAG_PER_WORKER_MAX);
    let always_waiting = samples.iter().all(|sample| sample.lag > 0);
    let idle = samples.iter().all(|sample| sample.lag == 0);
    let steps =
        |goes: fn(u64, u64) -> bool| samples.windows(2).all(|two| goes(two[0].lag, two[1].lag));
    // A step from zero is not a trend yet.
    let rising = samples[0].lag > 0 && steps(|before, after| before < after);
    let falling = steps(|before, after| before > after);
    if newest.lag > bearable || (always_waiting && newest.leases > workers) || rising {
        Vote::Out
    } else if idle || falling {
        Vote::In
    } else {
        Vote::Stay
    }
}

/// The demand of a processor at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Demand {
    /// The lag as the .NET and Java libraries count it: 1 if unknown, so that a host starts.
    pub legacy_lag: u64,
    /// The number of leases.
    pub leases: usize,
    /// The number of working hosts, according to the leases.
    pub workers: usize,
    /// The recommended number by [`target_instances`], computed from the actual lag where it is known.
    pub instances: u64,
    /// The actual lag; unknown values stay unknown.
    pub lag: Lag,
}

impl Demand {
    /// The demand if there are no leases: one host must start and create them.
    #[must_use]
    pub fn of_nobody() -> Demand {
        let unknown = Lag { transactions: None, time: None };
        Demand { legacy_lag: 1, leases: 0, workers: 0, instances: 1, lag: unknown }
    }

    /// Returns the input for [`vote`].
    #[must_use]
    pub fn sample(&self) -> Sample {
        Sample { lag: self.legacy_lag, leases: self.leases }
    }
}

/// Measures the demand of one processor.
#[derive(Clone)]
pub struct Scaler {
    source: Arc<dyn FeedSource>,
    unit: Unit,
    items_max: Option<u32>,
}

impl Scaler {
    /// Measures this unit, whose hosts handle at most `items_max` changes at once.
    #[must_use]
    pub fn new(source: Arc<dyn FeedSource>, unit: Unit, items_max: Option<u32>) -> Scaler {
        Scaler { source, unit, items_max }
    }

    /// Returns the source of time.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn runtime(&self) -> &headwater_runtime::Runtime {
        self.unit.runtime()
    }

    /// Measures the current demand.
    ///
    /// # Errors
    /// Fails if either container cannot be read.
    pub async fn measure(&self) -> Result<Demand, UnitError> {
        let snapshot = self.unit.look().await?;
        let now = self.unit.runtime().unix_millis() / 1000;
        let (mut lags, mut legacy_lag, mut waiting) = (Vec::new(), 0_u64, 0_u64);
        for info in &snapshot.leases {
            let lease = &info.lease;
            let mode = lease.mode.unwrap_or(FeedMode::LatestVersion);
            let lag = match lag_of(&*self.source, lease, mode, now).await {
                Ok(lag) => lag,
                // The range was just split: the lag is unknown, and counts as 1.
                Err(SourceError::RangeGone) => Lag { transactions: None, time: None },
                Err(error) => return Err(error.into()),
            };
            legacy_lag = legacy_lag.saturating_add(lag.legacy(lease.position.as_ref()));
            // The legacy lag of a lease without a position is always 1; here the actual lag is used.
            waiting = waiting.saturating_add(lag.transactions.unwrap_or(1));
            lags.push(lag);
        }
        if lags.is_empty() {
            return Ok(Demand::of_nobody());
        }
        let leases = lags.len();
        let instances = target_instances(waiting, self.items_max, leases);
        let lag = Lag::total(lags);
        Ok(Demand { legacy_lag, leases, workers: workers(&snapshot), instances, lag })
    }
}

/// Returns the number of hosts: members if there are any, otherwise distinct owners.
fn workers(snapshot: &Snapshot) -> usize {
    let members = snapshot.members.iter().filter(|member| !member.draining).count();
    let owners: BTreeSet<&str> =
        snapshot.leases.iter().filter_map(|info| info.lease.owner.as_deref()).collect();
    if members > 0 { members } else { owners.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_host_for_each_batch_that_waits_and_none_without_a_lease() {
        for (lag, items_max, leases, expected) in [
            (0, None, 4, 0),
            (1, None, 4, 1),
            (100, None, 4, 1),
            (101, None, 4, 2),
            (101, Some(10), 20, 11),
            (9999, None, 4, 4),
            (5, Some(0), 4, 1),
            (u64::MAX, Some(1), 4, 4),
            // No leases yet: one host must create them.
            (1, None, 0, 1),
        ] {
            let target = target_instances(lag, items_max, leases);
            assert_eq!(target, expected, "lag {lag}, {items_max:?} at once, {leases} leases");
        }
    }

    #[track_caller]
    fn check(lags: &[u64], leases: usize, workers: usize, expected: Vote) {
        let samples: Vec<Sample> = lags.iter().map(|lag| Sample { lag: *lag, leases }).collect();
        assert_eq!(vote(&samples, workers), expected, "{lags:?}, {leases} leases, {workers} hosts");
    }

    #[test]
    fn without_five_samples_only_hosts_without_a_lease_are_too_many() {
        check(&[], 4, 1, Vote::Stay);
        check(&[9999], 4, 1, Vote::Stay);
        check(&[0, 0, 0, 0], 4, 1, Vote::Stay);
        check(&[5], 4, 5, Vote::In);
        check(&[5], 0, 5, Vote::Stay);
    }

    #[test]
    fn a_host_for_every_thousand_that_wait() {
        check(&[5000, 4000, 3000, 2500, 2001], 2, 2, Vote::Out);
        check(&[0, 0, 0, 0, 1001], 1, 1, Vote::Out);
        check(&[2400, 2300, 2300, 2300, 2000], 2, 2, Vote::Stay);
        check(&[1, 1, 1, 1, 1], 1, 0, Vote::Out);
    }

    #[test]
    fn where_something_always_waits_and_leases_are_shared_one_more_helps() {
        check(&[5, 9, 3, 9, 1], 4, 3, Vote::Out);
        check(&[5, 9, 0, 9, 1], 4, 3, Vote::Stay);
        check(&[5, 9, 3, 9, 1], 3, 3, Vote::Stay);
    }

    #[test]
    fn where_nothing_waits_one_fewer_will_do() {
        check(&[0, 0, 0, 0, 0], 4, 2, Vote::In);
        check(&[0, 0, 0, 1, 0], 4, 2, Vote::Stay);
        check(&[7, 0, 0, 0, 0, 0], 4, 2, Vote::In);
    }

    #[test]
    fn a_trend_counts_if_it_has_no_exception() {
        check(&[1, 2, 3, 4, 5], 3, 3, Vote::Out);
        check(&[0, 2, 3, 4, 5], 3, 3, Vote::Stay);
        check(&[1, 2, 3, 3, 5], 3, 3, Vote::Stay);
        check(&[5, 4, 3, 2, 1], 3, 3, Vote::In);
        check(&[5, 4, 3, 2, 0], 4, 3, Vote::In);
        check(&[5, 4, 3, 3, 1], 3, 3, Vote::Stay);
        // Only the newest five.
        check(&[9, 1, 2, 3, 4, 5], 3, 3, Vote::Out);
    }
}
