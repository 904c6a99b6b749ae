//! Questions: how close to a bare copy is reading the feed, what does looking for nothing cost, how quick
//! are point reads and scans, and how much disk does all of it take?
//!
//! Workload: one store with every item written once, and one with every item written twice, creates and
//! updates shuffled, which nobody compacts before it was read once. Everything is in the page cache and
//! read by one thread, so the figures are per second of that thread's CPU: on a machine with nothing
//! else to do that is the wall clock. Expected: half of a bare copy or more, as each entry is also checked.

use super::figures::Figures;
use crate::commands::bench::Topic;
use crate::commands::bench::harness::{Harness, bar, rate};
use crate::commands::bench::limits::{self, Segment};
use crate::commands::bench::ours::{Maintenance, Ours};
use crate::commands::bench::peers::{self, Measured};
use crate::commands::bench::report::{Hold, Of, Row, Unit};
use crate::commands::bench::workload::{BODY_BYTES, Key, creates_and_updates};
use anyhow::{Result, ensure};
use std::time::Duration;

/// Ours and the peers with the same items.
struct Stores {
    name: &'static str,
    ours: Ours,
    peers: Vec<Measured>,
    segments: Vec<Segment>,
}

pub(super) fn run(harness: &Harness) -> Result<Vec<Row>> {
    let plan = &harness.plan;
    let mut rows = Vec::new();
    let mut fresh = Stores::fill(harness, "fresh", (0..plan.items).collect())?;
    let item_bytes = limits::total_bytes(&fresh.segments) as f64 / plan.items as f64;
    if plan.wants(Topic::Feed) {
        let question = "feed, pages of 1000, fresh ÷ page-cache copy";
        let figures = fresh.read_feeds(harness, question, item_bytes)?;
        let hold = Some(Hold::AtLeast(Of::Ratio, 0.5));
        let row = figures.into_row(question, Unit::PerSecond, hold);
        rows.push(row.noted(format!(
            "per second of CPU of the reading thread, as the limit: {item_bytes:.0} bytes per item copied \
             out of the page cache"
        )));
    }
    let small = fresh.small_reads(harness)?;
    fresh.remove(harness)?;
    let mut disk = Vec::new();
    if plan.wants_any(&[Topic::Feed, Topic::Disk]) {
        let mut updated = Stores::fill(harness, "updated", creates_and_updates(plan.items))?;
        if plan.wants(Topic::Feed) {
            let question = "feed, pages of 1000, 1 update per item";
            let figures = updated.read_feeds(harness, question, item_bytes)?;
            let hold = Some(Hold::AtLeast(Of::Ratio, 0.3));
            let row = figures.into_row(question, Unit::PerSecond, hold);
            rows.push(row.noted("creates and updates shuffled, nothing compacted yet"));
        }
        if plan.wants(Topic::Disk) {
            disk.push(updated.disk_with_history(harness)?);
        }
        updated.drop_history(harness)?;
        updated.settle(harness)?;
        if plan.wants(Topic::Feed) {
            let question = "feed, pages of 1000, compacted after that";
            let figures = updated.read_feeds(harness, question, item_bytes)?;
            rows.push(figures.into_row(question, Unit::PerSecond, None));
        }
        if plan.wants(Topic::Disk) {
            disk.push(updated.disk(harness)?);
        }
        updated.remove(harness)?;
    }
    rows.extend(small);
    rows.extend(disk);
    Ok(rows)
}

impl Stores {
    /// Writes the items of these numbers, in this order, into everybody's store.
    fn fill(harness: &Harness, name: &'static str, numbers: Vec<u64>) -> Result<Stores> {
        let dir = harness.dir(name);
        let bar = bar(3 * numbers.len() as u64, &format!("filling, {name}"), "items");
        let mut peers = peers::open_all(&dir)?;
        for peer in &mut peers {
            peer.load(numbers.iter().copied(), &bar)?;
        }
        let (clock, ours_dir, filling) = (harness.clock.clone(), dir.join("ours"), bar.clone());
        let ours = harness.run(async move {
            let ours = Ours::open(&clock, &ours_dir, Maintenance::Asked).await?;
            ours.upsert_all(numbers, &filling).await?;
            Ok(ours)
        })?;
        bar.finish_and_clear();
        Ok(Stores { name, segments: limits::segments(&ours.dir)?, ours, peers })
    }

    /// Rounds of everybody's feed, beside copying as many items of `item_bytes` each.
    fn read_feeds(&mut self, harness: &Harness, what: &str, item_bytes: f64) -> Result<Figures> {
        let mut figures = Figures::default();
        let expected = harness.plan.items;
        harness.rounds(what, |_| {
            let limit = limits::page_cache_copy(&self.segments)? / item_bytes;
            let ours = self.ours.clone();
            let (items, cpu) = harness.run(async move { ours.read_feed().await })?;
            ensure!(items == expected, "the feed shows {items} of {expected} items");
            figures.add_limited(rate(items, cpu), limit);
            figures.add_peers(&mut self.peers, |peer| peer.read_feed(expected))
        })?;
        Ok(figures)
    }

    /// Polls, point reads, scans.
    fn small_reads(&mut self, harness: &Harness) -> Result<Vec<Row>> {
        let plan = &harness.plan;
        let (clock, items, window) = (&harness.clock, plan.items, plan.window / 2);
        let (mut polls, mut reads) = (Figures::default(), Figures::default());
        let mut scans = Figures::default();
        harness.rounds("polls, reads, scans", |_| {
            if plan.wants(Topic::Polls) {
                let ours = self.ours.clone();
                polls.add(harness.run(async move { ours.poll_for(window).await })?);
                polls.add_peers(&mut self.peers, |peer| peer.poll_for(clock, window))?;
            }
            if plan.wants(Topic::Reads) {
                let ours = self.ours.clone();
                reads.add(harness.run(async move { ours.read_for(items, window).await })?);
                reads.add_peers(&mut self.peers, |peer| peer.read_for(clock, items, window))?;
                scans.add(self.scan(harness)?);
                scans.add_peers(&mut self.peers, |peer| peer.scan(items))?;
            }
            Ok(())
        })?;
        let mut rows = Vec::new();
        if plan.wants(Topic::Polls) {
            let hold = Some(Hold::AtLeast(Of::Ours, 1e6));
            rows.push(polls.into_row("empty polls, one core", Unit::PerSecond, hold));
        }
        if plan.wants(Topic::Reads) {
            rows.push(reads.into_row("point reads, random, one core", Unit::PerSecond, None));
            rows.push(scans.into_row("scan in key order, one core", Unit::PerSecond, None));
        }
        Ok(rows)
    }

    fn scan(&self, harness: &Harness) -> Result<f64> {
        let (ours, expected) = (self.ours.clone(), harness.plan.items);
        let (items, cpu) = harness.run(async move { ours.scan().await })?;
        ensure!(items == expected, "the scan shows {items} of {expected} items");
        Ok(rate(items, cpu))
    }

    /// From here on our store keeps no history, as the peers keep none.
    fn drop_history(&mut self, harness: &Harness) -> Result<()> {
        let (account, clock, dir) =
            (self.ours.account.clone(), harness.clock.clone(), self.ours.dir.clone());
        self.ours = harness.run(async move {
            account.close().await?;
            Ours::open(&clock, &dir, Maintenance::AskedWithoutHistory).await
        })?;
        Ok(())
    }

    /// Compacts ours as it is by default: history may take as much as the live items.
    fn disk_with_history(&self, harness: &Harness) -> Result<Row> {
        let ours = self.ours.clone();
        let live = harness.run(async move {
            ours.account.maintain().await?;
            ours.live_bytes().await
        })? as f64;
        let used = limits::disk_bytes(&self.ours.dir)? as f64;
        Ok(Row {
            ours: Some(used / live),
            hold: Some(Hold::AtMost(Of::Ours, 2.6)),
            note: format!(
                "{:.0} MB on disk for {:.0} MB of live items and keys, with every version kept",
                used / 1e6,
                live / 1e6
            ),
            ..Row::new("with history: disk ÷ live bytes, 1 update per item", Unit::Times)
        })
    }

    /// Compacts everybody.
    fn settle(&mut self, harness: &Harness) -> Result<()> {
        let bar = bar(0, "settling", "");
        bar.enable_steady_tick(Duration::from_millis(200));
        let account = self.ours.account.clone();
        harness.run(async move { Ok(account.maintain().await?) })?;
        for peer in &mut self.peers {
            peer.settle()?;
        }
        self.segments = limits::segments(&self.ours.dir)?;
        bar.finish_and_clear();
        Ok(())
    }

    fn disk(&self, harness: &Harness) -> Result<Row> {
        let ours = self.ours.clone();
        let live = harness.run(async move { ours.live_bytes().await })? as f64;
        let used = limits::disk_bytes(&self.ours.dir)? as f64;
        let log = limits::total_bytes(&self.segments) as f64;
        let sent = (harness.plan.items * (BODY_BYTES + Key::byte_count()) as u64) as f64;
        let peer = |name: &'static str| -> Result<(&'static str, f64)> {
            let dir = harness.dir(self.name).join(name);
            Ok((name, limits::disk_bytes(&dir)? as f64 / sent))
        };
        Ok(Row {
            ours: Some(used / live),
            hold: Some(Hold::AtMost(Of::Ours, 1.6)),
            others: vec![peer("fjall")?, peer("sqlite")?],
            note: format!(
                "{:.0} MB on disk, {:.0} MB of them log, for {:.0} MB of live items and keys; peers keep the \
                 bodies as sent, without system properties, fjall compressed",
                used / 1e6,
                log / 1e6,
                live / 1e6
            ),
            ..Row::new("disk ÷ live bytes, 1 update per item, compacted", Unit::Times)
        })
    }

    fn remove(self, harness: &Harness) -> Result<()> {
        let (name, account) = (self.name, self.ours.account.clone());
        harness.run(async move { Ok(account.close().await?) })?;
        drop(self);
        harness.remove(name)
    }
}
