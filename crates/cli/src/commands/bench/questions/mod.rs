//! The questions, in the order of the table in the design: one file per kind of work.

mod figures;
mod lookups;
mod reads;
mod start;
mod visible;
mod writes;

use super::Topic;
use super::harness::Harness;
use super::report::Row;
use anyhow::Result;

/// Asks everything the plan wants to know.
pub(super) fn run(harness: &Harness) -> Result<Vec<Row>> {
    let plan = &harness.plan;
    let mut rows = Vec::new();
    if plan.wants_any(&[Topic::Commits, Topic::Writers]) {
        rows.extend(writes::run(harness)?);
    }
    if plan.wants(Topic::Visible) {
        rows.extend(visible::run(harness)?);
    }
    if plan.wants_any(&[Topic::Feed, Topic::Polls, Topic::Reads, Topic::Disk]) {
        rows.extend(reads::run(harness)?);
    }
    if plan.wants(Topic::Lookups) {
        rows.extend(lookups::run(harness)?);
    }
    if plan.wants_any(&[Topic::Start, Topic::Memory]) {
        rows.extend(start::run(harness)?);
    }
    Ok(rows)
}

/// A number of items as people say it.
fn spoken(items: u64) -> String {
    match items {
        items if items >= 1_000_000 && items % 100_000 == 0 => {
            format!("{} M items", items as f64 / 1e6)
        }
        items if items >= 1_000 && items % 1_000 == 0 => format!("{} k items", items / 1_000),
        items => format!("{items} items"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spoken() {
        for (items, expected) in [
            (999, "999 items"),
            (2_000, "2 k items"),
            (100_000, "100 k items"),
            (1_000_000, "1 M items"),
            (2_500_000, "2.5 M items"),
            (1_234_567, "1234567 items"),
        ] {
            assert_eq!(spoken(items), expected);
        }
    }
}
