//! What is in use at the moment metrics are asked for: connections, memory, partitions, disk.
//!
//! Each answer has a registry of its own, so two readers at a time do not disturb each other. Nothing here
//! is on the way of a request.

use super::histogram::{Counts, Seconds};
use crate::budget::Resource;
use crate::gateway::Gateway;
use crate::units::{CONTAINERS_MAX, OTHER};
use headwater_store::{Container, StorageError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Purpose {
    purpose: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Place {
    container: String,
}

/// The metrics of the server and its store.
pub(super) fn server(gateway: &Gateway) -> Registry {
    let mut registry = Registry::with_prefix("headwater");
    add_connections(&mut registry, gateway);
    add_store(&mut registry, gateway);
    add_containers(&mut registry, gateway);
    registry
}

/// The metrics that every program has, under the names that dashboards expect.
pub(super) fn process() -> Registry {
    let mut registry = Registry::default();
    if let Some(bytes) = resident_bytes() {
        let what = "Memory of the process that is resident";
        gauge(&mut registry, "process_resident_memory_bytes", what, bytes);
    }
    registry
}

fn gauge(registry: &mut Registry, name: &'static str, what: &'static str, value: u64) {
    registry.register(name, what, ConstGauge::new(number(value)));
}

fn counter(registry: &mut Registry, name: &'static str, what: &'static str, value: u64) {
    registry.register(name, what, ConstCounter::new(value));
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn add_connections(registry: &mut Registry, gateway: &Gateway) {
    let budgets = &gateway.budgets;
    let used = |resource| budgets.used(resource) as u64;
    gauge(registry, "connections", "Open connections", budgets.connections() as u64);
    let states = Family::<State, Gauge>::default();
    for (state, count) in gateway.connections.states() {
        states.get_or_create(&State { state }).set(number(count));
    }
    registry.register(
        "connection_states",
        "Open connections: opening (no request yet), busy or idle",
        states,
    );
    let what = "Readers waiting for changes";
    gauge(registry, "waiting_readers", what, used(Resource::WaitingReaders));
    let what = "Requests that are worked on";
    gauge(registry, "running_requests", what, used(Resource::Requests));
    let what = "Memory of requests being received";
    gauge(registry, "receiving_bytes", what, used(Resource::Receiving));
    gauge(registry, "sending_bytes", "Memory of answers being sent", used(Resource::Sending));
    gauge(registry, "filter_bytes", "Memory of filters of feed readers", used(Resource::Filters));
}

fn add_store(registry: &mut Registry, gateway: &Gateway) {
    let figures = gateway.account.figures();
    let (log, memory) = (figures.log, figures.memory);
    registry.register("sync_seconds", "Time a sync of a log takes", Seconds(log.sync_nanos));
    let what = "Writes that one group commit makes durable";
    registry.register("group_writes", what, Counts(log.group_entries));
    let (read, written) = (log.compaction_read_bytes, log.compaction_written_bytes);
    counter(registry, "compactions", "Runs of log segments that were rewritten", log.compactions);
    let what = "Bytes of log segments that compaction replaced";
    counter(registry, "compaction_read_bytes", what, read);
    let what = "Bytes of log segments that compaction wrote";
    counter(registry, "compaction_written_bytes", what, written);
    let what = "Bytes of log segments that compaction gave back";
    counter(registry, "compaction_reclaimed_bytes", what, read.saturating_sub(written));
    if let Some(millis) = log.last_compaction_ms {
        let what = "When the last compaction ended, in Unix time";
        gauge(registry, "last_compaction_timestamp_seconds", what, millis / 1000);
    }
    if let Some(bytes) = figures.disk_free_bytes {
        let what = "Bytes that can still be written to the disk of the data directory";
        gauge(registry, "disk_free_bytes", what, bytes);
    }
    let purposes = Family::<Purpose, Gauge>::default();
    for (purpose, bytes) in [
        ("index_cache", memory.index_cache),
        ("index_tables", memory.index_tables),
        ("index_rows", memory.index_rows),
        ("recent_items", memory.recent_items),
        ("recent_changes", memory.recent_changes),
        ("queries", memory.queries),
        ("receiving", gateway.budgets.used(Resource::Receiving) as u64),
        ("filters", gateway.budgets.used(Resource::Filters) as u64),
        ("sending", gateway.budgets.used(Resource::Sending) as u64),
    ] {
        purposes.get_or_create(&Purpose { purpose }).set(number(bytes));
    }
    registry.register("memory_bytes", "Memory by purpose", purposes);
    let quarantined = gateway.account.quarantined().len() as u64;
    let what = "Partitions that are not served because their files are damaged";
    gauge(registry, "quarantined_partitions", what, quarantined);
    let what = "Background tasks that failed; restart the server";
    gauge(registry, "stopped_tasks", what, gateway.stopped_tasks() as u64);
}

/// The gauges that each container has.
#[derive(Debug, Default)]
struct Containers {
    partitions: Family<Place, Gauge>,
    live_bytes: Family<Place, Gauge>,
    largest_live_bytes: Family<Place, Gauge>,
    log_bytes: Family<Place, Gauge>,
    log_disk_bytes: Family<Place, Gauge>,
    index_lag: Family<Place, Gauge>,
    history_bytes: Family<Place, Gauge>,
    history_bytes_max: Family<Place, Gauge>,
    history_oldest_seconds: Family<Place, Gauge>,
}

impl Containers {
    /// Adds a container to the series of its label, which it may share with others.
    fn add(&self, container: &Container, label: String, now: u64) -> Result<(), StorageError> {
        let place = Place { container: label };
        let sum = |family: &Family<Place, Gauge>, value: u64| {
            family.get_or_create(&place).inc_by(number(value));
        };
        let figures = container.figures()?;
        sum(&self.partitions, figures.partitions);
        sum(&self.live_bytes, figures.live_bytes);
        sum(&self.log_bytes, figures.log_bytes);
        sum(&self.log_disk_bytes, figures.disk_bytes);
        let max = |family: &Family<Place, Gauge>, value: u64| {
            let gauge = family.get_or_create(&place);
            gauge.set(gauge.get().max(number(value)));
        };
        max(&self.largest_live_bytes, figures.largest_range_live_bytes);
        max(&self.index_lag, figures.index_lag);
        let history = container.history()?;
        sum(&self.history_bytes, history.bytes);
        if let Some(most) = history.bytes_max {
            sum(&self.history_bytes_max, most);
        }
        if let Some(oldest) = history.oldest {
            let age = number(now.saturating_sub(oldest.as_seconds()));
            let known = self.history_oldest_seconds.get(&place).map(|gauge| gauge.get());
            let least = known.map_or(age, |known| known.min(age));
            self.history_oldest_seconds.get_or_create(&place).set(least);
        }
        Ok(())
    }
}

fn add_containers(registry: &mut Registry, gateway: &Gateway) {
    let families = Containers::default();
    let now = gateway.runtime.unix_millis() / 1000;
    let mut count = 0;
    for database in gateway.account.databases() {
        for container in database.containers() {
            count += 1;
            let label = match count <= CONTAINERS_MAX {
                true => gateway.metrics_label(&database, &container),
                false => OTHER.to_owned(),
            };
            // A container that is dropped, closed or quarantined has no more to show.
            let _ = families.add(&container, label, now);
        }
    }
    let what = "Ranges of a container";
    registry.register("partitions", what, families.partitions);
    let what = "Bytes of log entries that nothing has superseded";
    registry.register("live_bytes", what, families.live_bytes);
    let what = "Live bytes of the largest range, to compare with --split-at";
    registry.register("largest_partition_live_bytes", what, families.largest_live_bytes);
    registry.register("log_bytes", "Bytes of all log entries", families.log_bytes);
    let what = "Bytes the log files take on the disk";
    registry.register("log_disk_bytes", what, families.log_disk_bytes);
    let what = "Changes that the index furthest behind has yet to apply";
    registry.register("index_lag_changes", what, families.index_lag);
    let what = "Bytes of superseded versions and deletes that are kept";
    registry.register("history_bytes", what, families.history_bytes);
    let what = "The most bytes of history that are kept; absent where a changeFeedPolicy decides";
    registry.register("history_bytes_max", what, families.history_bytes_max);
    let what = "Age of the oldest change from which on all versions are there";
    registry.register("history_oldest_seconds", what, families.history_oldest_seconds);
}

/// The resident memory of this process, where the system tells.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
