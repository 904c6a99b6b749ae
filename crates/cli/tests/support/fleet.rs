//! Hosts as processes: starts them, records the changes their programs receive, and checks the promises.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

use super::{PATIENCE, Running, Served, headwater, ok};
use headwater_runtime::Runtime;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Number of changes per batch.
pub(crate) const BATCH: usize = 5;

/// Starts a host whose program records its input, prefixed with the lease and the epoch.
pub(crate) fn start(served: &Served, name: &str, into: &Path, more: &[&str]) -> Running {
    let orders = served.orders();
    let script = format!("sed \"s/^/$HEADWATER_LEASE $HEADWATER_EPOCH /\" >> {}", into.display());
    let program = ["--exec", "sh"];
    let arguments = ["run", &orders, "--name", "test", "--host", name, "--from", "beginning"];
    let batch = BATCH.to_string();
    let fast = ["--expiration", "4", "--batch", &batch];
    let script = ["--", "-c", &script];
    Running::start(&[&arguments[..], &program, &fast, more, &script].concat())
}

/// One change, as a program received it.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) lease: String,
    pub(crate) epoch: u64,
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) lsn: u64,
}

/// Returns everything that was recorded, in order.
pub(crate) fn given(file: &Path) -> Vec<Given> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let parse = |line: &str| {
        let (before, json) = line.split_once('{').map(|(b, j)| (b, format!("{{{j}")))?;
        let json: serde_json::Value = serde_json::from_str(&json).ok()?;
        let (lease, epoch) = before.trim().rsplit_once(' ').unwrap_or(("", "0"));
        Some(Given {
            lease: lease.to_owned(),
            epoch: epoch.parse().ok()?,
            key: json["customer"].to_string(),
            id: json["id"].as_str()?.to_owned(),
            lsn: json["_lsn"].as_u64()?,
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Returns the items that were seen.
pub(crate) fn seen(file: &Path) -> BTreeSet<String> {
    given(file).into_iter().map(|change| change.id).collect()
}

/// Checks a list of deliveries: in order per key as long as one host has a lease. At most one batch is repeated
/// for every host that did not stop cleanly.
#[track_caller]
pub(crate) fn check_promises(all: &[Given]) {
    let mut last: BTreeMap<(&str, u64, &str), u64> = BTreeMap::new();
    let mut times: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for change in all {
        let tenure = (change.lease.as_str(), change.epoch, change.key.as_str());
        if let Some(before) = last.insert(tenure, change.lsn) {
            assert!(before < change.lsn, "{change:?} came after {before}");
        }
        *times.entry((change.id.as_str(), change.lsn)).or_default() += 1;
    }
    let tenures: BTreeSet<_> = all.iter().map(|change| (&change.lease, change.epoch)).collect();
    let again: usize = times.values().map(|times| times - 1).sum();
    let bound = BATCH * tenures.len().saturating_sub(1);
    assert!(again <= bound, "{again} came again; {} tenures allow {bound}", tenures.len());
}

/// Polls until a condition holds; requesting the lag provides the delay.
#[track_caller]
pub(crate) fn until(served: &Served, mut is_so: impl FnMut() -> bool) {
    let clock = Runtime::system();
    while clock.elapsed() < PATIENCE {
        if is_so() {
            return;
        }
        let orders = served.orders();
        let _ = headwater(&["lag", &orders, "--total"]).output();
    }
    let leases = format!("{}/shop/leases", served.url);
    panic!("it never came so far\n{}", ok(&["leases", "list", &leases]));
}

pub(crate) fn signal(running: &Running, name: &str) {
    let pid = running.pid().to_string();
    assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
}
