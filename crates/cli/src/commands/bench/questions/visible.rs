//! Question: how long after a write has begun does a waiting reader have it?
//!
//! Workload: one reader that waits for changes, one writer that creates an item, waits until the reader
//! has seen it, and goes on. Expected: the write's own time, which is the disk's, and some microseconds.
//! The hold of the design is for a client over the network, so here it is information.

use crate::commands::bench::harness::Harness;
use crate::commands::bench::ours::{Maintenance, Ours};
use crate::commands::bench::report::{Row, Unit};
use anyhow::Result;

pub(super) fn run(harness: &Harness) -> Result<Vec<Row>> {
    let (clock, dir) = (harness.clock.clone(), harness.dir("visible"));
    let window = harness.plan.window * harness.plan.rounds;
    let found = harness.run(async move {
        let ours = Ours::open(&clock, &dir, Maintenance::Automatic).await?;
        let found = ours.watch_for(window).await?;
        ours.account.close().await?;
        Ok(found)
    })?;
    harness.remove("visible")?;
    let row = |name: &str, quantile: f64| {
        let seen = found.seen.value_at_quantile(quantile) as f64;
        let written = found.written.value_at_quantile(quantile) as f64;
        Row {
            ours: Some(seen),
            limit: Some(written),
            ratio: Some(seen / written.max(1.0)),
            ..Row::new(format!("write → seen by a waiting reader, {name}"), Unit::Microseconds)
        }
    };
    let mut last = row("p99", 0.99);
    last.note = format!(
        "limit: the write's own time until it was answered; {} writes, one at a time",
        found.seen.len()
    );
    Ok(vec![row("p50", 0.50), last])
}
