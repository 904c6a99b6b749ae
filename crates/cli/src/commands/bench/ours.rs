//! Headwater as a program would use it: one store in one directory, one container, one partition.

use super::harness::{ThreadTimer, in_task, process_cpu, rate};
use super::workload::{Key, Workload};
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use headwater_runtime::{Random, Runtime};
use headwater_store::{
    Account, CatalogError, Container, ContainerDefinition, Continuation, FeedRequest, FeedStart,
    Options, PageLimit, ScanScope,
};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Items on a page, of the feed and of a scan.
const PAGE_ITEMS: u32 = 1000;
/// Writers that fill a store; a group takes that many.
const LOADERS: u64 = 512;
/// Polls between two looks at the clock.
const POLLS: u64 = 1000;
/// How long a reader waits for a change that is on its way.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who keeps a store small and quick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maintenance {
    /// The store itself, as always.
    Automatic,
    /// Nobody, until it is asked for.
    Asked,
    /// The same, and no history is kept.
    AskedWithoutHistory,
}

/// An open store.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    pub(crate) account: Account,
    pub(crate) container: Container,
    pub(crate) clock: Runtime,
    pub(crate) dir: PathBuf,
    workload: Arc<Workload>,
    /// The number of the next item that nobody has written.
    next: Arc<AtomicU64>,
}

/// What writers did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writes {
    pub(crate) items: u64,
    pub(crate) wall: Duration,
    /// Of all threads of the process.
    pub(crate) cpu: Duration,
}

impl Writes {
    pub(crate) fn per_second(&self) -> f64 {
        rate(self.items, self.wall)
    }

    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.items.max(1) as f64
    }
}

/// What a writer does next.
#[derive(Clone, Copy, Debug)]
enum Write {
    Create(u64),
    /// An item, and which of its versions.
    Upsert(u64, u64),
}

/// How long writes took to be seen, in microseconds.
pub(crate) struct Visibility {
    pub(crate) seen: Histogram<u64>,
    pub(crate) written: Histogram<u64>,
}

impl Ours {
    /// Opens a store, with the container it has or a new one.
    pub(crate) async fn open(clock: &Runtime, dir: &Path, who: Maintenance) -> Result<Ours> {
        let mut options = Options::default();
        if who != Maintenance::Automatic {
            options.maintenance_interval = Duration::ZERO;
        }
        if who == Maintenance::AskedWithoutHistory {
            options.history = Duration::ZERO;
        }
        let account = Account::open(dir, options).await?;
        let shop = match account.database("shop").await {
            Err(CatalogError::NotFound { .. }) => account.create_database("shop").await?,
            other => other?,
        };
        let container = match shop.container("orders").await {
            Err(CatalogError::NotFound { .. }) => {
                let orders = ContainerDefinition::new("orders", "/customer")?;
                shop.create_container(orders).await?
            }
            other => other?,
        };
        Ok(Ours {
            account,
            container,
            clock: clock.clone(),
            dir: dir.to_owned(),
            workload: Arc::new(Workload::new()),
            next: Arc::new(AtomicU64::new(0)),
        })
    }

    /// Goes on with items from this number.
    pub(crate) fn continue_from(&self, number: u64) {
        self.next.store(number, Ordering::Relaxed);
    }

    /// Creates new items with so many writers at once, each waiting for its answer.
    pub(crate) async fn write_for(&self, writers: u64, window: Duration) -> Result<Writes> {
        let (clock, next) = (self.clock.clone(), self.next.clone());
        let until = clock.elapsed() + window;
        let take = move || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            (clock.elapsed() < until).then_some(Write::Create(number))
        };
        self.write_all(writers, Arc::new(take)).await
    }

    /// Creates so many new items as fast as it goes.
    pub(crate) async fn write_count(&self, count: u64, bar: &ProgressBar) -> Result<Writes> {
        let (next, bar) = (self.next.clone(), bar.clone());
        let end = next.load(Ordering::Relaxed) + count;
        let take = move || {
            bar.inc(1);
            let number = next.fetch_add(1, Ordering::Relaxed);
            (number < end).then_some(Write::Create(number))
        };
        let writes = self.write_all(LOADERS, Arc::new(take)).await?;
        self.continue_from(end);
        Ok(writes)
    }

    /// Upserts the items of these numbers in about this order.
    pub(crate) async fn upsert_all(&self, numbers: Vec<u64>, bar: &ProgressBar) -> Result<Writes> {
        let (at, bar) = (AtomicU64::new(0), bar.clone());
        let take = move || {
            bar.inc(1);
            let place = at.fetch_add(1, Ordering::Relaxed);
            let number = *numbers.get(usize::try_from(place).ok()?)?;
            Some(Write::Upsert(number, place))
        };
        self.write_all(LOADERS, Arc::new(take)).await
    }

    /// Has so many writers carry out what `take` gives them, until it gives nothing.
    async fn write_all(
        &self,
        writers: u64,
        take: Arc<dyn Fn() -> Option<Write> + Send + Sync>,
    ) -> Result<Writes> {
        let (started, cpu) = (self.clock.elapsed(), process_cpu());
        let (sender, mut ended) = mpsc::unbounded_channel();
        for _ in 0..writers {
            let (ours, sender, take) = (self.clone(), sender.clone(), take.clone());
            self.clock.spawn("bench writer", async move {
                let _ = sender.send(ours.write_while(&*take).await);
            });
        }
        drop(sender);
        let (mut items, mut answers) = (0, 0);
        while let Some(written) = ended.recv().await {
            items += written?;
            answers += 1;
        }
        ensure!(answers == writers, "a writer panicked");
        Ok(Writes {
            items,
            wall: self.clock.elapsed().saturating_sub(started),
            cpu: process_cpu().saturating_sub(cpu),
        })
    }

    async fn write_while(&self, take: &(dyn Fn() -> Option<Write> + Send + Sync)) -> Result<u64> {
        let mut count = 0;
        while let Some(write) = take() {
            match write {
                Write::Create(number) => {
                    self.container.create(self.workload.body(number, 0)).await?;
                }
                Write::Upsert(number, revision) => {
                    self.container.upsert(self.workload.body(number, revision)).await?;
                }
            }
            count += 1;
        }
        Ok(count)
    }

    /// Reads the whole feed in pages; returns how many changes it has and the CPU this took.
    pub(crate) async fn read_feed(&self) -> Result<(u64, Duration)> {
        let timer = ThreadTimer::start();
        let (items, _) = self.follow_feed().await?;
        Ok((items, timer.stop()?))
    }

    async fn follow_feed(&self) -> Result<(u64, Continuation)> {
        let limit = PageLimit::items(PAGE_ITEMS)?;
        let mut request = FeedRequest::new(FeedStart::Beginning).limit(limit);
        let mut items = 0;
        loop {
            let page = self.container.read_feed(&request).await?;
            if page.changes.is_empty() {
                return Ok((items, page.continuation));
            }
            items += page.changes.len() as u64;
            request = FeedRequest::after(page.continuation).limit(limit);
        }
    }

    /// So many pages of the feed, from its beginning.
    pub(crate) async fn read_feed_pages(&self, pages: u32) -> Result<()> {
        let limit = PageLimit::items(PAGE_ITEMS)?;
        let mut request = FeedRequest::new(FeedStart::Beginning).limit(limit);
        for _ in 0..pages {
            let page = self.container.read_feed(&request).await?;
            request = FeedRequest::after(page.continuation).limit(limit);
        }
        Ok(())
    }

    /// Bytes of all live items as they are stored, with their keys.
    pub(crate) async fn live_bytes(&self) -> Result<u64> {
        let limit = PageLimit::items(PAGE_ITEMS)?;
        let mut request = FeedRequest::new(FeedStart::Beginning).limit(limit);
        let mut bytes = 0;
        loop {
            let page = self.container.read_feed(&request).await?;
            if page.changes.is_empty() {
                return Ok(bytes);
            }
            let bodies: usize = page.changes.iter().map(|change| change.body().len()).sum();
            bytes += (bodies + page.changes.len() * Key::byte_count()) as u64;
            request = FeedRequest::after(page.continuation).limit(limit);
        }
    }

    /// Feed reads that find nothing, per second of CPU.
    pub(crate) async fn poll_for(&self, window: Duration) -> Result<f64> {
        let (_, end) = self.follow_feed().await?;
        let request = FeedRequest::after(end);
        let started = self.clock.elapsed();
        let timer = ThreadTimer::start();
        let mut polls = 0;
        while self.clock.elapsed().saturating_sub(started) < window {
            for _ in 0..POLLS {
                let page = self.container.read_feed(&request).await?;
                ensure!(page.changes.is_empty(), "nobody has written anything");
            }
            polls += POLLS;
        }
        Ok(rate(polls, timer.stop()?))
    }

    /// Point reads of random items, per second of CPU.
    pub(crate) async fn read_for(&self, items: u64, window: Duration) -> Result<f64> {
        let mut random = Random::seeded(3);
        let started = self.clock.elapsed();
        let timer = ThreadTimer::start();
        let mut reads = 0;
        while self.clock.elapsed().saturating_sub(started) < window {
            self.read_one(random.below(items)).await?;
            reads += 1;
        }
        Ok(rate(reads, timer.stop()?))
    }

    /// Reads the item of a number, which must be there.
    pub(crate) async fn read_one(&self, number: u64) -> Result<()> {
        let key = Key::of(number);
        let item = self.container.read(key.customer, &key.id).await?;
        item.with_context(|| format!("item {number} is not there"))?;
        Ok(())
    }

    /// Asks for an item that is not there.
    pub(crate) async fn read_nothing(&self) -> Result<()> {
        let item = self.container.read("nobody", "nothing").await?;
        ensure!(item.is_none(), "nobody has written it");
        Ok(())
    }

    /// Reads all items in key order; returns how many there are and the CPU this took.
    pub(crate) async fn scan(&self) -> Result<(u64, Duration)> {
        let limit = PageLimit::items(PAGE_ITEMS)?;
        let timer = ThreadTimer::start();
        let (mut items, mut after) = (0, None);
        loop {
            let scope = ScanScope::Container;
            let page = self.container.scan(&scope, after.as_ref(), limit).await?;
            items += page.items.len() as u64;
            after = page.next;
            if after.is_none() {
                return Ok((items, timer.stop()?));
            }
        }
    }

    /// Writes one item at a time while somebody waits for it.
    pub(crate) async fn watch_for(&self, window: Duration) -> Result<Visibility> {
        let (seen_sender, mut seen) = mpsc::unbounded_channel();
        let reader = self.clone();
        let (_, start) = self.follow_feed().await?;
        let until = self.clock.elapsed() + window;
        self.clock.spawn("bench reader", async move {
            let _ = seen_sender.send(Ok(Duration::ZERO));
            let mut position = start;
            loop {
                let request = FeedRequest::after(position).wait(PATIENCE);
                match reader.container.read_feed(&request).await {
                    Ok(page) => {
                        let _ = seen_sender.send(Ok(reader.clock.elapsed()));
                        position = page.continuation;
                    }
                    Err(error) => {
                        let _ = seen_sender.send(Err(error));
                        return;
                    }
                }
                if seen_sender.is_closed() {
                    return;
                }
            }
        });
        let writer = self.clone();
        let measured = in_task(&self.clock, async move {
            let mut result = Visibility { seen: Histogram::new(3)?, written: Histogram::new(3)? };
            seen.recv().await.context("the reader panicked")??;
            while writer.clock.elapsed() < until {
                // The reader is on its way back to waiting; this is longer than it takes.
                writer.clock.sleep(Duration::from_millis(1)).await;
                let number = writer.next.fetch_add(1, Ordering::Relaxed);
                let body = writer.workload.body(number, 0);
                let asked = writer.clock.elapsed();
                writer.container.create(body).await?;
                let answered = writer.clock.elapsed();
                let shown = seen.recv().await.context("the reader panicked")??;
                result.written.record(micros(answered.saturating_sub(asked)))?;
                result.seen.record(micros(shown.saturating_sub(asked)))?;
            }
            // One more, for the reader to notice that nobody listens any more.
            drop(seen);
            let number = writer.next.fetch_add(1, Ordering::Relaxed);
            writer.container.create(writer.workload.body(number, 0)).await?;
            Ok(result)
        });
        measured.await
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
