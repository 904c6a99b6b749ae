//! Question: what does an index spare a query that looks for one value?
//!
//! Workload: `SELECT * FROM c WHERE c.id = "…"` over all items, without the partition key, so that only an
//! index knows where to look; beside the same question put so that no index answers it. Expected: the time
//! of a few reads, whatever the number of items.

use super::figures::Figures;
use super::spoken;
use crate::commands::bench::harness::{Harness, ThreadTimer, bar, rate};
use crate::commands::bench::ours::{Maintenance, Ours};
use crate::commands::bench::report::{Row, Unit};
use crate::commands::bench::workload::Key;
use anyhow::{Result, ensure};
use headwater_store::query::Query;
use headwater_store::{PageLimit, ScanScope};

/// More items only make the scan longer.
const ITEMS_MAX: u64 = 100_000;
/// Queries in a round through the index.
const QUERIES: u64 = 100;
/// Pages the index may take to be built, and the scan to end.
const PAGES_MAX: usize = 10_000;

pub(super) fn run(harness: &Harness) -> Result<Vec<Row>> {
    let (clock, dir) = (harness.clock.clone(), harness.dir("lookups"));
    let (items, rounds) = (harness.plan.items.min(ITEMS_MAX), u64::from(harness.plan.rounds));
    let progress = bar(items, "filling", "items");
    let figures = harness.run(async move {
        let ours = Ours::open(&clock, &dir, Maintenance::Automatic).await?;
        ours.write_count(items, &progress).await?;
        // The first queries have the index made.
        for _ in 0..PAGES_MAX {
            let (used, _) = ask(&ours, &format!("c.id = \"{}\"", Key::of(0).id)).await?;
            if used {
                break;
            }
        }
        let mut figures = Figures::default();
        for round in 0..rounds {
            let timer = ThreadTimer::start();
            for query in 0..QUERIES {
                let id = Key::of((round * QUERIES + query) % items).id;
                let (used, rows) = ask(&ours, &format!("c.id = \"{id}\"")).await?;
                ensure!(used && rows == 1, "the index does not find {id}");
            }
            let found = rate(QUERIES, timer.stop()?);
            let timer = ThreadTimer::start();
            let id = Key::of(round).id;
            let (used, rows) = ask(&ours, &format!("c.id || '' = \"{id}\"")).await?;
            ensure!(!used && rows == 1, "the scan does not find {id}");
            figures.add_limited(found, rate(1, timer.stop()?));
        }
        ours.account.close().await?;
        Ok(figures)
    })?;
    harness.remove("lookups")?;
    let question = format!("queries by equality, {}, index ÷ scan", spoken(items));
    let row = figures.into_row(&question, Unit::PerSecond, None);
    Ok(vec![row.noted("per second of CPU of the asking thread; the limit is the same by a scan")])
}

/// Asks for items; whether an index was used, and how many there are.
async fn ask(ours: &Ours, filter: &str) -> Result<(bool, usize)> {
    let query = Query::parse(&format!("SELECT * FROM c WHERE {filter}"), &[])?;
    let limit = PageLimit::items(1_000)?;
    let (mut used, mut rows, mut after) = (false, 0, None::<String>);
    for _ in 0..PAGES_MAX {
        let scope = ScanScope::Container;
        let page = ours.container.query(&query, &scope, after.as_deref(), limit).await?;
        used |= !page.index.used.is_empty();
        rows += page.rows.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok((used, rows))
}
