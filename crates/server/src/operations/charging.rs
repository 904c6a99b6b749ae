//! Admits requests by provisioned throughput and charges them. All pages, reads and writes of items use it.
//!
//! Event streams and single requests share one mechanism: [`Target::admit`] checks the budgets of the
//! partitions in a [`Scope`], [`Target::spend`] counts the charge in the metrics and deducts it. They differ
//! only when a budget is empty: a request is refused with 429, a stream that has sent its 200 waits.

use super::{Outcome, offers};
use crate::failure::Failure;
use crate::gateway::{Gateway, Target};
use crate::request::{Call, Scope};
use headwater_model::PartitionId;
use headwater_protocol::charge::Charge;
use headwater_protocol::operation::ItemOperation;
use headwater_protocol::route::Route;
use std::time::Duration;

impl Target {
    /// Refuses a request beyond the provisioned throughput.
    pub(super) fn admit_call(&self, gateway: &Gateway, call: &Call) -> Result<(), Failure> {
        match gateway.throughput.is_enforced() {
            true => self.admit(gateway, &call.scope()?),
            false => Ok(()),
        }
    }

    /// Refuses a request beyond the provisioned throughput, for a scope that is not in its headers.
    pub(super) fn admit(&self, gateway: &Gateway, scope: &Scope) -> Result<(), Failure> {
        let admitted = self.check_budgets(gateway, scope);
        if admitted.is_err() {
            gateway.metrics.throttled.inc();
        }
        admitted
    }

    /// Waits up to `patience` for request units; returns whether there are any.
    pub(super) async fn admit_when_free(
        &self,
        gateway: &Gateway,
        scope: &Scope,
        patience: Duration,
    ) -> bool {
        // Counted as throttled once, not at each attempt.
        let Err(mut refused) = self.admit(gateway, scope) else { return true };
        let waiting = async {
            loop {
                gateway.runtime.sleep(refused.retry_after.unwrap_or(patience)).await;
                match self.check_budgets(gateway, scope) {
                    Ok(()) => return,
                    Err(failure) => refused = failure,
                }
            }
        };
        gateway.runtime.timeout(patience, waiting).await.is_some()
    }

    fn check_budgets(&self, gateway: &Gateway, scope: &Scope) -> Result<(), Failure> {
        if !gateway.throughput.is_enforced() {
            return Ok(());
        }
        let Some(units) = offers::units_per_partition(gateway, &self.container) else {
            return Ok(());
        };
        let (partitions, now) = (self.partitions_of(scope), gateway.runtime.elapsed());
        gateway.throughput.admit(self.container.rid(), &partitions, units, now)
    }

    /// The partitions in a scope: that of its range or key, otherwise all of the container.
    fn partitions_of(&self, scope: &Scope) -> Vec<PartitionId> {
        let by_key = scope.key.as_ref().and_then(|key| self.container.locate(key).ok());
        match scope.range.or(by_key.map(|(partition, _)| partition)) {
            Some(partition) => vec![partition],
            None => self.container.ranges().into_iter().map(|range| range.id).collect(),
        }
    }

    /// Counts the charge of a request and deducts it. A failed request counts one unit and deducts nothing.
    pub(super) fn spend_call(
        &self,
        gateway: &Gateway,
        call: &Call,
        operation: ItemOperation,
        outcome: Outcome,
    ) -> Outcome {
        let answer =
            outcome.inspect_err(|_| self.units.count(operation, &call.route, Charge::ONE))?;
        let scope = match answer.partition {
            // If a single partition answered, it is charged.
            Some(_) => Scope { range: answer.partition, ..Scope::default() },
            None if gateway.throughput.is_enforced() => call.scope()?,
            None => Scope::default(),
        };
        self.spend(gateway, operation, &call.route, answer.charge, &scope);
        Ok(self.name(answer))
    }

    /// Counts a charge and deducts it from the budgets of the partitions in the scope.
    pub(super) fn spend(
        &self,
        gateway: &Gateway,
        operation: ItemOperation,
        route: &Route,
        charge: Charge,
        scope: &Scope,
    ) {
        self.units.count(operation, route, charge);
        if gateway.throughput.is_enforced() {
            let partitions = self.partitions_of(scope);
            gateway.throughput.spend(self.container.rid(), &partitions, charge);
        }
    }
}
