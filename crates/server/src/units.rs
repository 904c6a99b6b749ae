//! Request units spent, by container and operation, for Prometheus.
//!
//! Labels are bounded: the first [`CONTAINERS_MAX`] containers have series of their own, all others share
//! `other`. Nothing here decides what a request costs or whether it is served; see `throughput`.

use headwater_protocol::charge::Charge;
use headwater_protocol::operation::ItemOperation;
use headwater_protocol::route::Route;
use headwater_store::{ContainerDefinition, Item, Written};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Containers with series of their own.
pub(crate) const CONTAINERS_MAX: usize = 1000;
/// The label of all containers beyond these.
pub(crate) const OTHER: &str = "other";

type Units = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Spent {
    container: String,
    operation: &'static str,
}

/// The counters of all containers.
#[derive(Debug)]
pub(crate) struct UnitCounters {
    spent: Family<Spent, Units>,
    leases: Units,
    labels: Mutex<HashSet<String>>,
}

/// The counters of one container.
#[derive(Debug)]
pub(crate) struct ContainerUnits {
    spent: Family<Spent, Units>,
    label: String,
    leases: Units,
    /// Whether leases can be kept there: by `/id`, by `/partitionKey` or without a partition key.
    may_hold_leases: bool,
    /// Whether an item with the id of a lease was asked for or written.
    holds_leases: AtomicBool,
    /// Hundredths of units that were spent before that.
    earlier: AtomicU64,
}

impl UnitCounters {
    pub(crate) fn new(registry: &mut Registry) -> UnitCounters {
        let (spent, leases) = (Family::default(), Units::default());
        let what = "Request units by container and operation";
        registry.register("request_units", what, Family::clone(&spent));
        let what = "Request units of containers that hold leases";
        registry.register("lease_request_units", what, Counter::clone(&leases));
        UnitCounters { spent, leases, labels: Mutex::default() }
    }

    /// The counters of a container, under this label while there is room.
    pub(crate) fn of(&self, label: String, definition: &ContainerDefinition) -> ContainerUnits {
        let mut labels = self.labels.lock();
        let has_room = labels.len() < CONTAINERS_MAX;
        let label = match labels.contains(&label) || (has_room && labels.insert(label.clone())) {
            true => label,
            false => OTHER.to_owned(),
        };
        let key = definition.partition_key();
        let may_hold_leases = match &key.paths[..] {
            _ if key.system_key => true,
            [path] => matches!(path.as_str(), "/id" | "/partitionKey"),
            _ => false,
        };
        ContainerUnits {
            spent: self.spent.clone(),
            label,
            leases: self.leases.clone(),
            may_hold_leases,
            holds_leases: AtomicBool::new(false),
            earlier: AtomicU64::new(0),
        }
    }
}

impl ContainerUnits {
    /// Counts what a request cost.
    pub(crate) fn count(&self, operation: ItemOperation, route: &Route, charge: Charge) {
        // Charges are far below where a double loses hundredths.
        let units = charge.hundredths() as f64 / 100.0;
        let spent = Spent { container: self.label.clone(), operation: name_of(operation) };
        self.spent.get_or_create(&spent).inc_by(units);
        if !self.may_hold_leases {
            return;
        }
        if let Route::Item { id, .. } = route {
            self.note_item(id);
        }
        if self.holds_leases.load(Ordering::SeqCst) {
            self.leases.inc_by(units);
            return;
        }
        // What a processor spends before its first lease is counted with it.
        self.earlier.fetch_add(charge.hundredths(), Ordering::SeqCst);
        if self.holds_leases.load(Ordering::SeqCst) {
            self.count_earlier();
        }
    }

    /// Looks at the id of an item that was written: a container with one lease holds leases.
    pub(crate) fn note_written(&self, written: &Written) {
        #[derive(Deserialize)]
        struct Named<'i> {
            #[serde(borrow)]
            id: Cow<'i, str>,
        }
        if !self.may_hold_leases || self.holds_leases.load(Ordering::Relaxed) {
            return;
        }
        let item = written.item.as_ref().map(Item::feed_bytes);
        if let Some(Ok(Named { id })) = item.map(|item| serde_json::from_slice(item)) {
            self.note_item(&id);
        }
    }

    fn note_item(&self, id: &str) {
        if !self.holds_leases.load(Ordering::Relaxed) && is_lease_id(id) {
            self.holds_leases.store(true, Ordering::SeqCst);
            self.count_earlier();
        }
    }

    /// Counts what was spent before the first lease, once.
    fn count_earlier(&self) {
        let hundredths = self.earlier.swap(0, Ordering::SeqCst);
        self.leases.inc_by(hundredths as f64 / 100.0);
    }
}

/// `prefix..0` is a lease, `prefix.info` and `prefix.lock` are the marker and the lock of the processors of all
/// libraries.
fn is_lease_id(id: &str) -> bool {
    id.ends_with(".info") || id.ends_with(".lock") || id.contains("..")
}

fn name_of(operation: ItemOperation) -> &'static str {
    match operation {
        ItemOperation::Read => "read",
        ItemOperation::List => "feed",
        ItemOperation::ReadFeed { .. } => "change_feed",
        ItemOperation::Query | ItemOperation::PlanQuery => "query",
        _ => "write",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_leases_markers_and_locks_are_told_from_others() {
        for (id, expected) in [
            ("pa.documents.azure.com_db_c..0", true),
            ("p..05C1A0-05C1B0", true),
            ("p.info", true),
            ("p.lock", true),
            ("order-1", false),
            ("a.b", false),
            ("info", false),
        ] {
            assert_eq!(is_lease_id(id), expected, "{id}");
        }
    }
}
