//! `headwater demo --fleet`: two hosts share the changes of a container, a third joins, one is killed.
//!
//! One letter per range shows its owner, as recorded in the leases. The module decides nothing: the hosts are the
//! library's own, with short intervals so that the demonstration is quick.

use crate::output::say;
use anyhow::{Context, Result, bail};
use headwater_processor::lease_store::EmbeddedLeases;
use headwater_processor::source::{EmbeddedFeed, FeedSource};
use headwater_processor::{Ack, Batch, Namespace, Options, Processor, Running, Start, Unit};
use headwater_runtime::{Runtime, TaskGroup};
use headwater_store::{Account, Container, ContainerDefinition, Database};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const RANGES: u32 = 8;
const LOOK: Duration = Duration::from_millis(100);
/// Number of lease reads after which waiting for a rebalance fails.
const LOOKS_MAX: u32 = 600;
/// Pause between two steps of the demonstration.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs the demonstration.
pub(crate) async fn run(changes_per_second: u32) -> Result<()> {
    let mut options = headwater_store::Options::default();
    options.partitions = RANGES;
    let account = Account::ephemeral_with(options).await.context("cannot start in memory")?;
    let shop = account.create_database("shop").await?;
    let orders = shop.create_container(ContainerDefinition::new("orders", "/customer")?).await?;
    let leases = ContainerDefinition::new("leases", "/partitionKey")?;
    let leases = shop.create_container(leases).await?;
    let runtime = Runtime::system();
    let tasks = TaskGroup::new(runtime.clone());
    let (writing, into) = (runtime.clone(), orders.clone());
    tasks.spawn("orders", move |stop| async move {
        let pause = Duration::from_secs(1) / changes_per_second.max(1);
        let mut number = 0_u64;
        while !stop.is_requested() {
            let body = format!(r#"{{"id":"{number}","customer":"c{}"}}"#, number % 97);
            if into.upsert(body).await.is_err() {
                return;
            }
            number += 1;
            writing.sleep(pause).await;
        }
    });
    let shown = Fleet::new(runtime, shop, orders, leases).await?.show().await;
    tasks.shutdown().await;
    account.close().await.context("cannot close the store")?;
    shown
}

struct Fleet {
    runtime: Runtime,
    shop: Database,
    orders: Container,
    leases: EmbeddedLeases,
    unit: Unit,
    handled: Arc<AtomicU64>,
    shown: String,
}

impl Fleet {
    async fn new(
        runtime: Runtime,
        shop: Database,
        orders: Container,
        leases: Container,
    ) -> Result<Fleet> {
        let leases = EmbeddedLeases::new(leases, runtime.clone())?;
        let identity = EmbeddedFeed::new(shop.clone(), orders.clone()).identity().await?;
        let namespace = Namespace::new("demo", &identity, false);
        let unit = Unit::new(Arc::new(leases.clone()), namespace, runtime.clone());
        let (handled, shown) = (Arc::default(), String::new());
        Ok(Fleet { runtime, shop, orders, leases, unit, handled, shown })
    }

    async fn show(mut self) -> Result<()> {
        say(format_args!(
            "two hosts, a and b, share {RANGES} ranges; a letter says who works on one"
        ));
        let one = self.start("a").await?;
        let other = self.start("b").await?;
        self.until(|shares| shares.len() == 2 && is_even(shares)).await?;
        say(format_args!("a third joins, and is handed its share"));
        let third = self.start("c").await?;
        self.until(|shares| shares.len() == 3 && is_even(shares)).await?;
        say(format_args!(
            "b is gone without a word; its ranges are taken when its leases have expired"
        ));
        drop(other);
        self.until(|shares| !shares.contains_key("b") && is_even(shares)).await?;
        for host in [one, third] {
            host.stop().await;
        }
        say(format_args!("{} changes were handled", self.handled.load(Ordering::Relaxed)));
        Ok(())
    }

    async fn start(&self, name: &str) -> Result<Running> {
        let mut options = Options::native("demo");
        options.host_name = Some(name.to_owned());
        options.start = Start::Beginning;
        options.renew_interval = Duration::from_millis(300);
        options.acquire_interval = Duration::from_millis(500);
        options.expiration = Duration::from_millis(1500);
        let handled = self.handled.clone();
        let processor = Processor::builder()
            .source(EmbeddedFeed::new(self.shop.clone(), self.orders.clone()))
            .leases(self.leases.clone())
            .handler(move |batch: Batch| {
                let count = u64::try_from(batch.changes.len()).unwrap_or(0);
                handled.fetch_add(count, Ordering::Relaxed);
                async { Ok(Ack::Done) }
            })
            .options(options)
            .build()?;
        Ok(processor.start().await?)
    }

    /// Prints the owners of ranges until `settled` holds, and a little longer.
    async fn until(&mut self, settled: impl Fn(&BTreeMap<String, usize>) -> bool) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            let snapshot = self.unit.look().await?;
            let mut shares: BTreeMap<String, usize> = BTreeMap::new();
            let mut picture = String::new();
            for info in &snapshot.leases {
                let owner = info.lease.owner.as_deref().unwrap_or("·");
                picture.push_str(owner);
                picture.push(' ');
                *shares.entry(owner.to_owned()).or_default() += 1;
            }
            if picture != self.shown {
                let handled = self.handled.load(Ordering::Relaxed);
                say(format_args!("    {picture}   {handled:>6} changes"));
                self.shown = picture;
            }
            let owned = !snapshot.leases.is_empty() && !shares.contains_key("·");
            if owned && settled(&shares) {
                self.runtime.sleep(PAUSE).await;
                return Ok(());
            }
            self.runtime.sleep(LOOK).await;
        }
        bail!("the ranges did not come to rest")
    }
}

/// Returns whether the lease counts of any two hosts differ by one at most.
fn is_even(shares: &BTreeMap<String, usize>) -> bool {
    let most = shares.values().max().copied().unwrap_or(0);
    shares.values().all(|share| share + 1 >= most)
}
