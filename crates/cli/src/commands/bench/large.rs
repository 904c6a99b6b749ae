//! `headwater bench store --large`: does a store of ten times the size cost more per item?
//!
//! One process fills one store. At a tenth of the items, and again at all of them, it has timed the CPU of
//! the second half of the writes up to there; then it reads the whole feed, and times that. Expected: the
//! same, because nothing on either path depends on how much is behind it but the depth of the index. Half
//! of all writes, because the index merges large pieces rarely: a short stretch has all of that or none.

use super::harness::{Harness, bar, rate};
use super::limits::{page_cache_copy, segments, total_bytes};
use super::machine::{bytes_from_disk, resident_bytes};
use super::ours::{Maintenance, Ours};
use super::report::{Hold, Of, Row, Unit};
use anyhow::{Result, ensure};
use std::time::Duration;

/// The large size is so many times the small one.
const TIMES: u64 = 10;
/// What one size costs.
#[derive(Clone, Copy, Debug)]
struct Cost {
    write_micros: f64,
    writes_per_second: f64,
    feed_micros: f64,
    feed_per_second: f64,
    /// What of the feed was not in memory any more, in bytes.
    feed_from_disk: u64,
    /// The same bytes, copied and not looked at. Where most come from the disk, the feed cannot cost less.
    copy_micros: f64,
}

pub(super) fn run(harness: &Harness) -> Result<Vec<Row>> {
    let large = harness.plan.items;
    let small = large / TIMES;
    let (clock, dir) = (harness.clock.clone(), harness.dir("large"));
    let ours =
        harness.run(async move { Ours::open(&clock, &dir, Maintenance::Automatic).await })?;
    let writing = bar(large, "filling", "items");
    let mut costs = Vec::new();
    let mut has = 0;
    for size in [small, large] {
        let timed = size / 2;
        let (filler, count, shown) = (ours.clone(), size - timed - has, writing.clone());
        harness.run(async move { filler.write_count(count, &shown).await })?;
        let (writer, shown) = (ours.clone(), writing.clone());
        let writes = harness.run(async move { writer.write_count(timed, &shown).await })?;
        has = size;

        let reading = bar(0, "reading the feed", "");
        reading.enable_steady_tick(Duration::from_millis(200));
        let reader = ours.clone();
        let (before, from_disk) = (harness.clock.elapsed(), bytes_from_disk());
        let (items, cpu) = harness.run(async move { reader.read_feed().await })?;
        let wall = harness.clock.elapsed().saturating_sub(before);
        ensure!(items == size, "the feed shows {items} of {size} items");
        reading.finish_and_clear();
        let from_disk = bytes_from_disk().saturating_sub(from_disk);
        let copied = segments(&harness.dir("large"))?;
        let copy_seconds = total_bytes(&copied) as f64 / page_cache_copy(&copied)?;
        costs.push(Cost {
            write_micros: writes.cpu_micros(),
            writes_per_second: writes.per_second(),
            feed_micros: cpu.as_secs_f64() * 1e6 / items as f64,
            feed_per_second: rate(items, wall),
            feed_from_disk: from_disk,
            copy_micros: copy_seconds * 1e6 / items as f64,
        });
    }
    writing.finish_and_clear();
    let (resident, most) = resident_bytes();
    let account = ours.account.clone();
    harness.run(async move { Ok(account.close().await?) })?;
    drop(ours);
    Ok(rows(small, large, &costs, (resident, most)))
}

fn rows(small: u64, large: u64, costs: &[Cost], (resident, most): (u64, u64)) -> Vec<Row> {
    let [at_small, at_large] = costs else {
        return Vec::new();
    };
    let compared = |what: &str, cost: fn(&Cost) -> f64, walls: [f64; 2], more: &str| Row {
        ours: Some(cost(at_large)),
        limit: Some(cost(at_small)),
        ratio: Some(cost(at_large) / cost(at_small)),
        hold: Some(Hold::AtMost(Of::Ratio, 1.5)),
        note: format!(
            "limit: the same at {small} items; on the wall {:.0}/s now, {:.0}/s then{more}",
            walls[1], walls[0]
        ),
        ..Row::new(format!("CPU per {what} at {large} items"), Unit::Microseconds)
    };
    let writes = [at_small.writes_per_second, at_large.writes_per_second];
    let [then, now] = [at_small, at_large].map(|cost| cost.feed_from_disk as f64 / 1e6);
    let from_disk = format!(
        "; {now:.0} MB came from the disk now, {then:.0} MB then; copying the same bytes: {:.2} µs now, \
         {:.2} µs then",
        at_large.copy_micros, at_small.copy_micros
    );
    let feeds = [at_small.feed_per_second, at_large.feed_per_second];
    vec![
        compared("durable write", |cost| cost.write_micros, writes, ""),
        compared("feed item", |cost| cost.feed_micros, feeds, &from_disk),
        Row {
            ours: Some(most as f64),
            hold: Some(Hold::AtMost(Of::Ours, 1e9)),
            note: format!("the most it ever was; {:.0} MB at the end", resident as f64 / 1e6),
            ..Row::new("resident memory", Unit::Bytes)
        },
    ]
}
