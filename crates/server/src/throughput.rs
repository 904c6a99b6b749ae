//! Provisioned throughput: limits the request units that a partition spends per second.
//!
//! A partition's budget refills continuously and may be overdrawn by one request, as in the service, because
//! the charge is known only after the request. It is enforced only if configured.
//!
//! A request over several partitions needs some budget in each of them, and each pays an equal share.

use crate::failure::Failure;
use headwater_model::{ContainerRid, PartitionId};
use headwater_protocol::charge::Charge;
use headwater_protocol::error::Code;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// The maximum number of budgets in memory; beyond it all are reset to full.
const BUDGETS_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Remaining hundredths of a request unit; negative when overdrawn.
    left: f64,
    at: Duration,
}

/// The budgets of all partitions.
#[derive(Debug)]
pub(crate) struct Throughput {
    is_enforced: bool,
    budgets: Mutex<HashMap<(ContainerRid, PartitionId), Budget>>,
}

impl Throughput {
    pub(crate) fn new(is_enforced: bool) -> Throughput {
        Throughput { is_enforced, budgets: Mutex::default() }
    }

    pub(crate) fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// Refuses a request if the budget of a partition is exhausted. `per_second` is in request units per partition.
    pub(crate) fn admit(
        &self,
        container: ContainerRid,
        partitions: &[PartitionId],
        per_second: f64,
        now: Duration,
    ) -> Result<(), Failure> {
        let mut budgets = self.budgets.lock();
        if budgets.len() >= BUDGETS_MAX {
            budgets.clear();
        }
        let rate = per_second * 100.0;
        let mut least = f64::INFINITY;
        for partition in partitions {
            let full = Budget { left: rate, at: now };
            let budget = budgets.entry((container, *partition)).or_insert(full);
            let passed = now.saturating_sub(budget.at).as_secs_f64();
            *budget = Budget { left: (budget.left + passed * rate).min(rate), at: now };
            least = least.min(budget.left);
        }
        if least > 0.0 {
            return Ok(());
        }
        let wait = Duration::from_secs_f64((1.0 - least) / rate.max(1.0));
        let message = "Request rate is large: the provisioned throughput of the partition is used \
                       up; wait as long as x-ms-retry-after-ms says, or raise it.";
        let mut failure = Failure::new(Code::TooManyRequests, message);
        failure.retry_after = Some(wait.max(Duration::from_millis(1)));
        Err(failure)
    }

    /// Deducts the charge of a request from the budgets of its partitions.
    pub(crate) fn spend(
        &self,
        container: ContainerRid,
        partitions: &[PartitionId],
        charge: Charge,
    ) {
        // Charges are small enough for an f64 to hold hundredths exactly.
        let share = charge.hundredths() as f64 / partitions.len().max(1) as f64;
        let mut budgets = self.budgets.lock();
        for partition in partitions {
            if let Some(budget) = budgets.get_mut(&(container, *partition)) {
                budget.left -= share;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_fills_up_by_the_second_and_is_overdrawn_by_one_request() {
        let throughput = Throughput::new(true);
        let (container, partition) = (ContainerRid::new(1, 1), PartitionId::new(0));
        let at = Duration::from_millis;
        let admit = |now| throughput.admit(container, &[partition], 400.0, at(now));
        admit(0).unwrap();
        throughput.spend(container, &[partition], Charge::from_hundredths(60_000));
        let refused = admit(0).unwrap_err();
        assert_eq!(refused.code, Code::TooManyRequests);
        assert_eq!(refused.retry_after.unwrap().as_millis(), 500);
        assert!(admit(499).is_err());
        admit(501).unwrap();
        admit(1_000_000).unwrap();
        throughput.spend(container, &[partition], Charge::from_hundredths(40_001));
        assert!(admit(1_000_000).is_err(), "a budget never holds more than a second's worth");
    }

    #[test]
    fn a_request_over_several_partitions_needs_and_spends_a_share_of_each() {
        let throughput = Throughput::new(true);
        let container = ContainerRid::new(1, 1);
        let [one, two] = [0, 1].map(PartitionId::new);
        let admit = |partitions: &[PartitionId]| {
            throughput.admit(container, partitions, 100.0, Duration::ZERO)
        };
        admit(&[one, two]).unwrap();
        throughput.spend(container, &[one, two], Charge::from_hundredths(15_000));
        admit(&[one, two]).unwrap();
        throughput.spend(container, &[two], Charge::from_hundredths(2_500));
        assert!(admit(&[two]).is_err() && admit(&[one, two]).is_err());
        admit(&[one]).unwrap();
    }
}
