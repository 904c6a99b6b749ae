//! Question: how much of the disk, and of the CPU, is left of a durable write?
//!
//! Workload: creates of new items in one partition, by one writer that waits for each answer and by 64
//! of them. Expected: nearly the rate of bare syncs for one; for 64 the CPU is the limit on a quick disk
//! and the disk on a slow one.

use super::figures::Figures;
use crate::commands::bench::Topic;
use crate::commands::bench::harness::{Harness, Series, ThreadTimer};
use crate::commands::bench::limits::{self, SyncedFile};
use crate::commands::bench::ours::{Maintenance, Ours, Writes};
use crate::commands::bench::peers::{self, Measured};
use crate::commands::bench::report::{Hold, Of, Row, Unit};
use crate::commands::bench::workload::Workload;
use anyhow::Result;
use std::time::Duration;

/// Writers at once.
const WRITERS: u64 = 64;
/// CPU a durable write may cost. Also what the CPU bound of the 64 writers is made of: a bound made of
/// the CPU that was measured would fall with a store that needs more.
const CPU_MICROS_MAX: f64 = 20.0;
/// Writes that show how many bytes one takes in the log.
const SAMPLE: Duration = Duration::from_millis(50);

/// Everything the rounds found out.
#[derive(Default)]
struct Found {
    commits: Figures,
    items: Figures,
    cpu: Figures,
    free_cores: Series,
    allocated: Series,
}

struct Subjects {
    ours: Ours,
    peers: Vec<Measured>,
    synced: SyncedFile,
    /// Bytes of one write in the log.
    entry_bytes: usize,
    /// CPU that goes into the making of one item, which no store is to blame for.
    item_micros: f64,
}

pub(super) fn run(harness: &Harness) -> Result<Vec<Row>> {
    let mut subjects = Subjects::prepare(harness)?;
    let mut found = Found::default();
    harness.rounds("durable writes", |_| {
        let synced = subjects.one_writer(harness, &mut found)?;
        if harness.plan.wants(Topic::Writers) {
            subjects.many_writers(harness, synced, &mut found)?;
        }
        Ok(())
    })?;
    let account = subjects.ours.account.clone();
    harness.run(async move { Ok(account.close().await?) })?;
    let entry_bytes = subjects.entry_bytes;
    drop(subjects);
    harness.remove("writes")?;
    Ok(rows(harness, found, entry_bytes))
}

impl Subjects {
    fn prepare(harness: &Harness) -> Result<Subjects> {
        let dir = harness.dir("writes");
        let (clock, ours_dir) = (harness.clock.clone(), dir.join("ours"));
        let ours = harness.run(async move {
            let ours = Ours::open(&clock, &ours_dir, Maintenance::Automatic).await?;
            Ok(ours)
        })?;
        let writer = ours.clone();
        let sample = harness.run(async move { writer.write_for(1, SAMPLE).await })?;
        let bytes = limits::total_bytes(&limits::segments(&ours.dir)?);
        Ok(Subjects {
            entry_bytes: usize::try_from(bytes / sample.items.max(1))?,
            peers: peers::open_all(&dir)?,
            synced: SyncedFile::create(&dir.join("synced"))?,
            item_micros: micros_per_item()?,
            ours,
        })
    }

    fn write(&self, harness: &Harness, writers: u64) -> Result<Writes> {
        let (ours, window) = (self.ours.clone(), harness.plan.window);
        harness.run(async move { ours.write_for(writers, window).await })
    }

    /// One round of one writer. Returns bare syncs per second.
    fn one_writer(&mut self, harness: &Harness, found: &mut Found) -> Result<f64> {
        let (clock, window) = (&harness.clock, harness.plan.window);
        let bytes = self.entry_bytes;
        let before = self.synced.rate(clock, bytes, window / 2)?;
        let ours = self.write(harness, 1)?.per_second();
        let after = self.synced.rate(clock, bytes, window / 2)?;
        let synced = (before + after) / 2.0;
        if harness.plan.wants(Topic::Commits) {
            found.commits.add_limited(ours, synced);
            found.commits.add_peers(&mut self.peers, |peer| {
                Ok(peer.write_for(clock, 1, window)?.per_second())
            })?;
            let path = harness.dir("writes").join("allocated");
            let allocated = limits::allocated_sync_rate(clock, &path, bytes, window / 2)?;
            found.allocated.push(allocated);
        }
        Ok(synced)
    }

    /// One round of 64 writers.
    fn many_writers(&mut self, harness: &Harness, synced: f64, found: &mut Found) -> Result<()> {
        let (clock, window) = (&harness.clock, harness.plan.window);
        let before = limits::free_cores(clock, harness.cores, window / 5);
        let ours = self.write(harness, WRITERS)?;
        let after = limits::free_cores(clock, harness.cores, window / 5);
        let free_cores = (before + after) / 2.0;
        let bound = (WRITERS as f64 * synced).min(free_cores * 1e6 / CPU_MICROS_MAX);
        found.free_cores.push(free_cores);
        found.items.add_limited(ours.per_second(), bound);
        found.cpu.add(ours.cpu_micros() - self.item_micros);
        for peer in &mut self.peers {
            let writes = peer.write_for(clock, WRITERS, window)?;
            found.items.add_peer(peer.name(), writes.per_second());
            let cpu = writes.cpu_micros() - self.item_micros;
            found.cpu.add_peer(peer.name(), cpu);
        }
        Ok(())
    }
}

/// CPU of making one item.
fn micros_per_item() -> Result<f64> {
    const ITEMS: u64 = 20_000;
    let workload = Workload::new();
    let timer = ThreadTimer::start();
    for number in 0..ITEMS {
        std::hint::black_box(workload.body(number, 0));
    }
    Ok(timer.stop()?.as_secs_f64() * 1e6 / ITEMS as f64)
}

fn rows(harness: &Harness, found: Found, entry_bytes: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    if harness.plan.wants(Topic::Commits) {
        let question = "durable commits, 1 writer ÷ bare fdatasync";
        let hold = Some(Hold::AtLeast(Of::Ratio, 0.8));
        let allocated = found.allocated.median().unwrap_or(0.0);
        let row = found.commits.into_row(question, Unit::PerSecond, hold);
        rows.push(row.noted(format!(
            "limit: {entry_bytes} bytes per sync in blocks written before; in blocks only allocated, as \
             segments are, {allocated:.0}/s"
        )));
    }
    if harness.plan.wants(Topic::Writers) {
        let question = "durable items, 64 writers ÷ what disk and CPU allow";
        let hold = Some(Hold::AtLeast(Of::Ratio, 0.5));
        let (free, cores) = (found.free_cores.median().unwrap_or(0.0), harness.cores);
        let row = found.items.into_row(question, Unit::PerSecond, hold);
        rows.push(row.noted(format!(
            "limit: the lower of 64 × bare fdatasync/s and the CPU bound, {free:.2} free of {cores} cores \
             ÷ {CPU_MICROS_MAX} µs; peers put 64 items into a transaction"
        )));
        let question = "CPU per durable write, 64 writers";
        let hold = Some(Hold::AtMost(Of::Ours, CPU_MICROS_MAX));
        let row = found.cpu.into_row(question, Unit::Microseconds, hold);
        rows.push(row.noted("all threads of the process, less the making of the items"));
    }
    rows
}
