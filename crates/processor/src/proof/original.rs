//! A host that behaves like the .NET and Java libraries. It trusts wall clocks, preempts live owners, renews every
//! lease separately, and preserves only the properties it knows. Our hosts must coexist with it.

use super::network::FarLeases;
use super::oracle::{Broken, Given};
use super::seeds;
use super::world::{Setup, World};
use crate::balance::{Balancer, ClusterView, EqualLeases, LeaseView, Owner};
use crate::lease::{Flavour, HostId, Lease};
use crate::lease_store::{LeaseStore, NewDocument, Stored};
use crate::source::{FeedSource, ReadRequest};
use crate::{Options, Start};
use headwater_model::{FeedMode, KeyRange, Timestamp};
use headwater_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const ACQUIRE: Duration = Duration::from_secs(13);
const RENEW: Duration = Duration::from_secs(17);
const EXPIRATION_MILLIS: u64 = 60_000;

#[derive(Clone)]
struct Original {
    world: World,
    runtime: Runtime,
    store: FarLeases,
    host: HostId,
    machine: usize,
    working: Arc<Mutex<BTreeSet<String>>>,
}

impl Original {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.runtime.unix_millis())
    }

    /// Returns the milliseconds since the owner's timestamp in the lease.
    fn age(&self, lease: &Lease) -> u64 {
        let said = lease.timestamp().unwrap_or_default();
        // Only the time of day matters in a simulation of minutes.
        let millis = |text: &str| {
            let time = text.split(['T', 'Z']).nth(1)?;
            let mut parts = time.split([':', '.']);
            let mut next = || parts.next()?.parse::<u64>().ok();
            let (hours, minutes, seconds) = (next()?, next()?, next()?);
            Some((hours * 3600 + minutes * 60 + seconds) * 1000)
        };
        let (then, now) =
            (millis(&said).unwrap_or(0), millis(&self.now().to_string()).unwrap_or(0));
        now.saturating_sub(then)
    }

    async fn leases(&self) -> Vec<(Lease, Stored)> {
        let listing = self.store.list("").await.unwrap_or_default();
        let parse = |stored: Stored| Some((Lease::parse(&stored.body).ok()?, stored));
        listing.documents.into_iter().filter_map(parse).collect()
    }

    async fn run(self) {
        loop {
            let leases = self.leases().await;
            let views = leases.iter().map(|(lease, _)| {
                let expired = lease.owner.is_some() && self.age(lease) > EXPIRATION_MILLIS;
                let owner = lease.owner.clone().filter(|_| !expired);
                let owner = owner.map(|name| Owner { name, session: None, unresponsive: false });
                let (token, rate) = (lease.token.clone(), 0);
                LeaseView { token, owner, expired, reserved_for: None, rate }
            });
            let view =
                ClusterView { leases: views.collect(), members: Vec::new(), stable_rounds: 9 };
            let plan = EqualLeases::default().plan(&view, &self.host);
            for (lease, stored) in leases {
                if plan.take.contains(&lease.token) || plan.preempt.contains(&lease.token) {
                    self.acquire(lease, &stored).await;
                }
            }
            self.runtime.sleep(ACQUIRE).await;
        }
    }

    async fn write(&self, lease: &Lease, etag: &str) -> Option<String> {
        let body = lease.to_bytes(self.now(), "c1").into();
        let document = NewDocument { key: lease.key.clone(), body };
        Some(self.store.replace(document, etag).await.ok()?.etag)
    }

    async fn acquire(&self, mut lease: Lease, stored: &Stored) {
        if self.working.lock().contains(&lease.token) {
            return;
        }
        lease.owner = Some(self.host.name.clone());
        if let Some(etag) = self.write(&lease, &stored.etag).await {
            self.working.lock().insert(lease.token.clone());
            let worker = self.clone();
            self.runtime.spawn("original", async move {
                let token = lease.token.clone();
                worker.work(lease, etag).await;
                worker.working.lock().remove(&token);
            });
        }
    }

    /// Reads, handles and checkpoints; every write renews the lease. Ends when the lease is lost.
    async fn work(&self, mut lease: Lease, mut etag: String) {
        let ranges = self.world.feed.ranges(true).await.unwrap();
        let by_id = || crate::coverage::keys_of(lease.token.parse().ok()?, &ranges);
        let Some(range) = lease.range.clone().or_else(by_id) else { return };
        let tenure = self.world.next_tenure();
        loop {
            let from = lease.position.clone().map_or(Start::Beginning, Start::Position);
            let mode = FeedMode::LatestVersion;
            let request = ReadRequest {
                container: None,
                range: range.clone(),
                from,
                mode,
                items_max: Some(5),
                wait: RENEW,
            };
            let Ok(page) = self.world.feed.read(request).await else { return };
            self.deliver(tenure, &lease, &range, &page.changes).await;
            lease.position = Some(page.position);
            match self.write(&lease, &etag).await {
                Some(next) => etag = next,
                None => {
                    // Either its own write with a lost answer, or another host's: read the lease.
                    let Ok(Some(stored)) = self.store.read(&lease.key).await else { return };
                    let Ok(current) = Lease::parse(&stored.body) else { return };
                    if !current.is_named(&self.host.name) {
                        return;
                    }
                    (lease, etag) = (current, stored.etag);
                }
            }
        }
    }

    async fn deliver(
        &self,
        tenure: u64,
        lease: &Lease,
        range: &KeyRange,
        changes: &[crate::source::Change],
    ) {
        if changes.is_empty() {
            return;
        }
        let items = changes.iter().map(|change| {
            let json: serde_json::Value = change.parse().unwrap();
            (json["id"].as_str().unwrap().to_owned(), change.lsn().unwrap(), change.key(&[]))
        });
        let given = Given {
            machine: self.machine,
            tenure,
            lease: lease.token.clone(),
            epoch: lease.extra.epoch,
            range: range.clone(),
            items: items.collect(),
        };
        let call = self.world.oracle.begin(given, |_| true);
        self.runtime.sleep(Duration::from_millis(self.runtime.random() % 100)).await;
        self.world.oracle.end(call, true);
    }
}

/// Both kinds of hosts take leases from each other, crash and restart; the stored position decides.
#[test]
fn f41_hosts_of_the_originals_and_ours_share_leases_and_lose_nothing() {
    for flavour in [Flavour::DotNetV3, Flavour::JavaPk] {
        let setup = Setup::native().with(|setup| {
            setup.options = Options { start: Start::Beginning, ..Options::interop(flavour, "p") };
            setup.options.items_max = Some(5);
        });
        for seed in seeds(3) {
            let world = World::new(seed, setup.clone());
            let broken = world.play(|world| {
                Box::pin(async move {
                    let ours = world.start("ours");
                    world.sleep(30).await;
                    assert_eq!(world.shares(), [4]);
                    let node = world.simulation.node();
                    let original = Original {
                        runtime: node.runtime(),
                        store: world.store_for(&node.runtime()),
                        host: HostId { name: "theirs".to_owned(), session: "-".to_owned() },
                        machine: 1000,
                        working: Arc::default(),
                        world: world.clone(),
                    };
                    node.runtime().spawn("original", original.run());
                    world.write(60, 9, 3000).await;
                    assert_eq!(world.shares(), [2, 2], "both hosts share the leases");
                    world.kill(ours);
                    world.write(40, 9, 3000).await;
                    world.sleep(120).await;
                    assert!(world.is_complete(), "the other kind of host took over");
                    assert_eq!(world.shares(), [4]);
                    world.start("again");
                    world.write(60, 9, 3000).await;
                    assert_eq!(world.shares(), [2, 2], "it hands over half");
                    node.kill();
                    world.write(20, 9, 3000).await;
                    world.sleep(150).await;
                    world.finish(120).await;
                    let stored = world.stored();
                    assert!(stored.iter().all(|lease| lease.flavour() == flavour), "{stored:?}");
                })
            });
            // Such hosts keep working after losing a lease until their next write, so these two invariants may break.
            let theirs = [Broken::OneWorkerPerRange, Broken::OrderPerKey];
            let ours: Vec<_> = broken.iter().filter(|(what, _)| !theirs.contains(what)).collect();
            assert!(ours.is_empty(), "{flavour}, seed {seed}: {ours:?}");
        }
    }
}
