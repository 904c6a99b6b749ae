//! The same work on two stores everybody knows, as far as they can do it.
//!
//! Both keep what our log is: a feed in the order of a sequence number, holding the bodies, and beside it
//! where each key stands in it. Writing an item again removes its older place in the feed, in the same
//! transaction. They are given every advantage that costs them no durability: one thread, no queue,
//! groups made in advance.

mod fjall;
mod sqlite;

use super::harness::{ThreadTimer, process_cpu, rate};
use super::ours::Writes;
use super::workload::{Key, Workload};
use anyhow::{Result, ensure};
use headwater_runtime::{Random, Runtime};
use indicatif::ProgressBar;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// Changes on a page of the feed.
const PAGE_ITEMS: usize = 1000;
/// Items per transaction when a store is filled.
const LOAD_ITEMS: usize = 1000;
/// Polls between two looks at the clock.
const POLLS: u64 = 100;

/// An item on its way into a store.
pub(super) struct Item {
    pub(super) key: Key,
    pub(super) body: Vec<u8>,
}

/// Whether a transaction waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    Yes,
    /// Only while a store is filled.
    No,
}

/// What a peer must be able to do.
pub(super) trait Peer {
    fn name(&self) -> &'static str;
    /// Creates or replaces items in one transaction.
    fn write(&mut self, items: &[Item], sync: Sync) -> Result<()>;
    /// Shows a page of the feed after a sequence number; returns how many changes it has and the
    /// last one's number.
    fn read_feed(&mut self, after: u64, limit: usize) -> Result<(usize, u64)>;
    /// The size of one item's body.
    fn read(&mut self, key: &Key) -> Result<Option<usize>>;
    /// Reads all items in key order; returns how many there are.
    fn scan(&mut self) -> Result<u64>;
    /// Lets go of whatever is not needed any more.
    fn settle(&mut self) -> Result<()>;
}

/// Opens every peer, each in a directory of its own.
pub(super) fn open_all(dir: &Path) -> Result<Vec<Measured>> {
    let peers: [Box<dyn Peer>; 2] = [
        Box::new(fjall::Fjall::open(&dir.join("fjall"))?),
        Box::new(sqlite::Sqlite::open(&dir.join("sqlite"))?),
    ];
    let measured = |peer| Measured { peer, workload: Workload::new(), next: 0 };
    Ok(peers.into_iter().map(measured).collect())
}

/// A peer and the items it has been given.
pub(super) struct Measured {
    peer: Box<dyn Peer>,
    workload: Workload,
    next: u64,
}

impl Measured {
    pub(super) fn name(&self) -> &'static str {
        self.peer.name()
    }

    fn item(&self, number: u64, revision: u64) -> Item {
        Item { key: Key::of(number), body: self.workload.body(number, revision) }
    }

    /// Durable transactions of `group` new items, one after the other.
    pub(super) fn write_for(
        &mut self,
        clock: &Runtime,
        group: u64,
        window: Duration,
    ) -> Result<Writes> {
        let (started, cpu) = (clock.elapsed(), process_cpu());
        let mut items = 0;
        loop {
            let numbers = self.next..self.next + group;
            let batch: Vec<Item> = numbers.map(|number| self.item(number, 0)).collect();
            self.peer.write(&batch, Sync::Yes)?;
            self.next += group;
            items += group;
            let wall = clock.elapsed().saturating_sub(started);
            if wall >= window {
                let cpu = process_cpu().saturating_sub(cpu);
                return Ok(Writes { items, wall, cpu });
            }
        }
    }

    /// Creates or replaces the items of these numbers, in this order.
    pub(super) fn load(
        &mut self,
        numbers: impl Iterator<Item = u64>,
        bar: &ProgressBar,
    ) -> Result<()> {
        let mut batch = Vec::new();
        // fjall does not see what stands in the same batch, so no item may be in one twice.
        let mut in_batch = HashSet::new();
        for (revision, number) in (0..).zip(numbers) {
            if batch.len() == LOAD_ITEMS || !in_batch.insert(number) {
                self.peer.write(&batch, Sync::No)?;
                bar.inc(batch.len() as u64);
                batch.clear();
                in_batch.clear();
                in_batch.insert(number);
            }
            batch.push(self.item(number, revision));
        }
        bar.inc(batch.len() as u64);
        self.peer.write(&batch, Sync::Yes)
    }

    /// Items of the feed per second of CPU, from its beginning to its end.
    pub(super) fn read_feed(&mut self, expected: u64) -> Result<f64> {
        let timer = ThreadTimer::start();
        let (items, _) = self.follow_feed()?;
        ensure!(items == expected, "{} shows {items} of {expected} items", self.name());
        Ok(rate(items, timer.stop()?))
    }

    fn follow_feed(&mut self) -> Result<(u64, u64)> {
        let (mut items, mut after) = (0, 0);
        loop {
            let (count, last) = self.peer.read_feed(after, PAGE_ITEMS)?;
            if count == 0 {
                return Ok((items, after));
            }
            items += count as u64;
            after = last;
        }
    }

    /// Feed reads that find nothing, per second of CPU.
    pub(super) fn poll_for(&mut self, clock: &Runtime, window: Duration) -> Result<f64> {
        let (_, end) = self.follow_feed()?;
        let started = clock.elapsed();
        let timer = ThreadTimer::start();
        let mut polls = 0;
        while clock.elapsed().saturating_sub(started) < window {
            for _ in 0..POLLS {
                let (count, _) = self.peer.read_feed(end, PAGE_ITEMS)?;
                ensure!(count == 0, "nobody has written anything");
            }
            polls += POLLS;
        }
        Ok(rate(polls, timer.stop()?))
    }

    /// Point reads of random items, per second of CPU.
    pub(super) fn read_for(
        &mut self,
        clock: &Runtime,
        items: u64,
        window: Duration,
    ) -> Result<f64> {
        let mut random = Random::seeded(3);
        let started = clock.elapsed();
        let timer = ThreadTimer::start();
        let mut reads = 0;
        while clock.elapsed().saturating_sub(started) < window {
            let number = random.below(items);
            let size = self.peer.read(&Key::of(number))?;
            ensure!(size.is_some(), "item {number} is not in {}", self.name());
            reads += 1;
        }
        Ok(rate(reads, timer.stop()?))
    }

    /// Items of a scan in key order, per second of CPU.
    pub(super) fn scan(&mut self, expected: u64) -> Result<f64> {
        let timer = ThreadTimer::start();
        let items = self.peer.scan()?;
        ensure!(items == expected, "{} scans {items} of {expected} items", self.name());
        Ok(rate(items, timer.stop()?))
    }

    pub(super) fn settle(&mut self) -> Result<()> {
        self.peer.settle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_do_the_work_they_are_measured_at() {
        let dir = tempfile::tempdir().unwrap();
        for mut peer in open_all(dir.path()).unwrap() {
            peer.load(0..2500, &ProgressBar::hidden()).unwrap();
            peer.load([7, 8, 7].into_iter(), &ProgressBar::hidden()).unwrap();
            peer.read_feed(2500).unwrap();
            peer.scan(2500).unwrap();
            peer.settle().unwrap();
            peer.read_feed(2500).unwrap();
            assert_eq!(peer.peer.read(&Key::of(7)).unwrap(), Some(1024), "{}", peer.name());
            assert_eq!(peer.peer.read(&Key::of(2500)).unwrap(), None, "{}", peer.name());
        }
    }
}
