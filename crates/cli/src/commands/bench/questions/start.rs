//! Question: how soon does a store answer after its process has started, and how much memory has it then?
//!
//! Workload: processes of their own, each opening the store, asking for one item, then reading a little
//! (1000 random items, 10 pages of the feed). All items are created by a process that is killed while it
//! writes on, and so is each process that was started after that; at last one closes the store. Files
//! are in the page cache. Expected: the time to read what the last clean end or the last segment left.

use crate::commands::bench::Topic;
use crate::commands::bench::child::{Child, Created, End, Started};
use crate::commands::bench::harness::{Harness, Series, bar};
use crate::commands::bench::report::{Hold, Of, Row, Unit};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// Items the holds of the design are about.
const HELD_ITEMS: u64 = 1_000_000;

#[derive(Default)]
struct Figures {
    millis: Series,
    resident: Series,
}

impl Figures {
    fn add(&mut self, started: Started) {
        self.millis.push(started.millis);
        self.resident.push(started.resident_bytes as f64);
    }
}

pub(super) fn run(harness: &Harness) -> Result<Vec<Row>> {
    let (fresh, empty) = empty_stores(harness)?;
    let (killed, closed) = full_store(harness)?;
    let items = super::spoken(harness.plan.items);
    let note = if harness.plan.items == HELD_ITEMS {
        String::new()
    } else {
        format!("scaled: the hold is for {}", super::spoken(HELD_ITEMS))
    };
    let start = |question: &str, figures: &Figures, hold: Option<f64>| Row {
        ours: figures.millis.median(),
        hold: hold.map(|millis| Hold::AtMost(Of::Ours, millis)),
        ..Row::new(format!("start to first answer, {question}"), Unit::Milliseconds)
    };
    let memory = |question: &str, figures: &Figures, hold: f64| Row {
        ours: figures.resident.median(),
        hold: Some(Hold::AtMost(Of::Ours, hold)),
        ..Row::new(format!("resident memory, {question}"), Unit::Bytes)
    };
    let mut rows = Vec::new();
    if harness.plan.wants(Topic::Start) {
        rows.push(start("new directory", &fresh, None));
        rows.push(start("empty", &empty, Some(20.0)));
        rows.push(Row {
            note: note.clone(),
            ..start(&format!("{items}, closed"), &closed, Some(300.0))
        });
        rows.push(Row {
            note: note.clone(),
            ..start(&format!("{items}, kill -9"), &killed, Some(2000.0))
        });
    }
    if harness.plan.wants(Topic::Memory) {
        rows.push(memory("idle", &empty, 20e6));
        rows.push(Row { note, ..memory(&items, &closed, 100e6) });
    }
    Ok(rows)
}

/// Starts in new directories, and in one that is empty.
fn empty_stores(harness: &Harness) -> Result<(Figures, Figures)> {
    let (mut fresh, mut empty) = (Figures::default(), Figures::default());
    harness.rounds("starts, empty", |_| {
        let dir = harness.dir("empty");
        fresh.add(start_and_close(&dir, 0)?);
        empty.add(start_and_close(&dir, 0)?);
        harness.remove("empty")
    })?;
    Ok((fresh, empty))
}

/// Starts after kills, and after clean ends.
fn full_store(harness: &Harness) -> Result<(Figures, Figures)> {
    let (mut killed, mut closed) = (Figures::default(), Figures::default());
    let dir = harness.dir("full");
    let items = harness.plan.items;
    // Between two starts, enough that there is something to find out.
    let more = (items / 50).max(1000);

    let filling = bar(0, "filling a store", "items");
    filling.enable_steady_tick(Duration::from_millis(200));
    let mut has = kill_when_written(Child::load(&dir, 0, items, End::Killed)?)?;
    filling.finish_and_clear();
    harness.rounds("starts, killed", |_| {
        let mut child = Child::start(&dir, has, more, End::Killed)?;
        killed.add(child.hear()?);
        has = kill_when_written(child)?;
        Ok(())
    })?;
    start_and_close(&dir, has)?;
    harness.rounds("starts, closed", |_| {
        closed.add(start_and_close(&dir, has)?);
        Ok(())
    })?;
    harness.remove("full")?;
    Ok((killed, closed))
}

fn start_and_close(dir: &Path, has: u64) -> Result<Started> {
    let mut child = Child::start(dir, has, 0, End::Closed)?;
    let started = child.hear()?;
    child.finish()?;
    Ok(started)
}

fn kill_when_written(mut child: Child) -> Result<u64> {
    let created: Created = child.hear()?;
    child.kill()?;
    Ok(created.items)
}
