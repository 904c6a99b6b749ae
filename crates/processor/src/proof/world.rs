//! A simulated world: a feed, a lease store, a writer, and hosts on separate machines.

use super::network::{Counts, FarFeed, FarLeases, Network, Weather};
use super::oracle::{Broken, Given, Oracle};
use crate::dead_letter::DeadLetter;
use crate::handler::{Ack, Batch, Handler, HandlerFactory, LeaseContext};
use crate::lease::Lease;
use crate::lease_store::{Layout, LeaseStore, MemoryLeases};
use crate::source::{FeedSource, MemoryFeed};
use crate::{Event, HandlerError, Options, Processor, Running, Start};
use headwater_model::{KeyRange, PartitionId};
use headwater_runtime::{BoxFuture, Node, Random, Runtime, Simulation};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The parameters of a world.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) ranges: u32,
    pub(crate) options: Options,
    pub(crate) weather: Weather,
    /// Longest duration of a handler call in milliseconds.
    pub(crate) handler_ms: u64,
    /// Percentage of handler calls that fail.
    pub(crate) handler_fails: u64,
    /// Ids of items whose handling always fails.
    pub(crate) poison: Vec<String>,
    /// The layout of the lease store.
    pub(crate) layout: Layout,
}

impl Setup {
    pub(crate) fn native() -> Setup {
        let mut options = Options::native("p");
        options.start = Start::Beginning;
        options.items_max = Some(5);
        Setup {
            ranges: 4,
            options,
            weather: Weather { latency_ms: 20, ..Weather::default() },
            handler_ms: 100,
            handler_fails: 0,
            poison: Vec::new(),
            layout: Layout::PartitionKey,
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Setup)) -> Setup {
        change(&mut self);
        self
    }
}

/// The simulated world; see the module documentation. Clones share its state.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) simulation: Simulation,
    /// The machine of the feed, the leases and the writers.
    machine: Node,
    pub(crate) runtime: Runtime,
    pub(crate) feed: MemoryFeed,
    pub(crate) leases: MemoryLeases,
    pub(crate) oracle: Oracle,
    pub(crate) setup: Setup,
    pub(crate) random: Arc<Mutex<Random>>,
    hosts: Arc<Mutex<Vec<Host>>>,
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
    written: Arc<Mutex<u64>>,
    /// Longest duration of a handler call from now on, in milliseconds.
    handler_ms: Arc<AtomicU64>,
    /// Whether writing dead letters fails.
    pub(crate) letters_down: Arc<AtomicBool>,
    tenures: Arc<Mutex<u64>>,
}

pub(crate) struct Host {
    pub(crate) node: Node,
    pub(crate) network: Network,
    running: Arc<Mutex<Option<Running>>>,
    alive: bool,
}

impl World {
    pub(crate) fn new(seed: u64, setup: Setup) -> World {
        let simulation = Simulation::new(seed);
        let machine = simulation.node();
        let server = machine.runtime();
        World {
            machine,
            feed: MemoryFeed::new(server.clone(), setup.ranges),
            leases: MemoryLeases::with_layout(server.clone(), setup.layout),
            runtime: server,
            oracle: Oracle::default(),
            random: Arc::new(Mutex::new(simulation.random())),
            simulation,
            handler_ms: Arc::new(AtomicU64::new(setup.handler_ms)),
            setup,
            hosts: Arc::default(),
            events: Arc::default(),
            written: Arc::default(),
            letters_down: Arc::default(),
            tenures: Arc::default(),
        }
    }

    /// Runs a script to its end. Returns the broken invariants.
    pub(crate) fn play(self, script: impl FnOnce(World) -> BoxFuture<()>) -> Vec<(Broken, String)> {
        let simulation = self.simulation.clone();
        let world = self.clone();
        simulation.run(script(world));
        let broken = self.oracle.broken();
        // Tasks and the world reference each other: kill all machines, or the memory is never freed.
        let hosts = std::mem::take(&mut *self.hosts.lock());
        hosts.iter().for_each(|host| host.node.kill());
        self.machine.kill();
        broken
    }

    /// Starts a host. Returns its number.
    pub(crate) fn start(&self, name: &str) -> usize {
        self.start_with(name, |_| {}, |_| {})
    }

    pub(crate) fn start_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut Options),
        of_node: impl FnOnce(&Node),
    ) -> usize {
        let node = self.simulation.node();
        of_node(&node);
        let runtime = node.runtime();
        let network = Network::new(runtime.clone(), self.setup.weather);
        let number = self.hosts.lock().len();
        let mut options = self.setup.options.clone();
        options.host_name = Some(name.to_owned());
        change(&mut options);
        let (world, who) = (self.clone(), name.to_owned());
        options = options.on_event(move |event: &Event| {
            world.tell(|| format!("{who}: {event:?}"));
            world.events.lock().push(event.clone());
        });
        self.tell(|| format!("start {name}"));
        let letters = self.clone();
        options.dead_letters =
            Some(Arc::new(move |letter: DeadLetter| letters.dead_letter(letter)));
        let processor = Processor::builder()
            .source(FarFeed { inner: self.feed.clone(), network: network.clone() })
            .leases(FarLeases {
                inner: self.leases.clone(),
                network: network.clone(),
                oracle: self.oracle.clone(),
                lists: Arc::default(),
            })
            .handler(RecordingFactory {
                world: self.clone(),
                machine: number,
                runtime: runtime.clone(),
            })
            .options(options)
            .runtime(runtime.clone())
            .build()
            .unwrap();
        let running = Arc::new(Mutex::new(None));
        let slot = running.clone();
        runtime.clone().spawn("host", async move {
            // The network may already be faulty when the host starts.
            for _ in 0..50 {
                if let Ok(running) = processor.start().await {
                    *slot.lock() = Some(running);
                    return;
                }
                runtime.sleep(Duration::from_secs(2)).await;
            }
        });
        self.hosts.lock().push(Host { node, network, running, alive: true });
        number
    }

    /// Prints a message if a single seed is traced.
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if super::looks_at_one() {
            eprintln!("{:>10.3} {}", self.runtime.elapsed().as_secs_f64(), what());
        }
    }

    /// Returns a unique number that is never an epoch.
    pub(crate) fn next_tenure(&self) -> u64 {
        let mut tenures = self.tenures.lock();
        *tenures += 1;
        *tenures + 1_000_000
    }

    /// Returns the lease store over a network without faults.
    pub(crate) fn store_for(&self, runtime: &Runtime) -> FarLeases {
        FarLeases {
            inner: self.leases.clone(),
            network: Network::new(
                runtime.clone(),
                Weather { latency_ms: 20, ..Weather::default() },
            ),
            oracle: self.oracle.clone(),
            lists: Arc::default(),
        }
    }

    fn stands_still(&self, machine: usize) -> bool {
        let hosts = self.hosts.lock();
        hosts.get(machine).is_none_or(|host| !host.alive || host.node.is_frozen())
    }

    async fn handle(
        &self,
        machine: usize,
        tenure: u64,
        runtime: &Runtime,
        batch: Batch,
    ) -> Result<Ack, HandlerError> {
        let lease = batch.context.lease().clone();
        let items: Vec<_> = batch
            .changes
            .iter()
            .map(|change| {
                let json: serde_json::Value = change.parse().unwrap();
                let id = json["id"].as_str().unwrap().to_owned();
                (id, change.lsn().unwrap(), change.key(&[]))
            })
            .collect();
        let poisoned = items.iter().any(|(id, _, _)| self.setup.poison.contains(id));
        let given = Given {
            machine,
            tenure,
            lease: lease.lease.clone(),
            epoch: lease.epoch,
            range: lease.range.clone(),
            items,
        };
        let call = self.oracle.begin(given, |other| self.stands_still(other));
        let mut guard = Guard { oracle: self.oracle.clone(), call, handled: false };
        let most = self.handler_ms.load(Ordering::SeqCst);
        if most > 0 {
            let wait = runtime.random() % most;
            runtime.sleep(Duration::from_millis(wait)).await;
        }
        let unlucky = runtime.random() % 100 < self.setup.handler_fails;
        if poisoned || unlucky {
            return Err(HandlerError::new("simulated failure"));
        }
        guard.handled = true;
        Ok(Ack::Done)
    }

    fn dead_letter(&self, letter: DeadLetter) -> BoxFuture<Result<(), String>> {
        if self.letters_down.load(Ordering::SeqCst) {
            return Box::pin(async { Err("the dead-letter sink is down".to_owned()) });
        }
        let json: serde_json::Value = serde_json::from_slice(&letter.body()).unwrap();
        let id = json["id"].as_str().unwrap().to_owned();
        let lsn = headwater_model::Lsn::new(letter.lsn.unwrap());
        self.oracle.dead_letter(&letter.lease, letter.epoch, (id, lsn));
        Box::pin(async { Ok(()) })
    }

    /// Writes this many transactions over this many keys; some items are written repeatedly.
    pub(crate) async fn write(&self, count: u64, keys: u64, pause_ms: u64) {
        for _ in 0..count {
            let (key, id, items) = {
                let mut random = self.random.lock();
                let mut written = self.written.lock();
                *written += 1;
                (random.below(keys), random.below(keys * 6), 1 + random.below(2))
            };
            let ids: Vec<String> = (0..items).map(|n| format!("k{key}-{}", id + n)).collect();
            let text = self.written.lock().to_string();
            let batch: Vec<(&str, &str)> =
                ids.iter().map(|id| (id.as_str(), text.as_str())).collect();
            self.feed.put(&format!("k{key}"), &batch);
            if pause_ms > 0 {
                let pause = self.random.lock().below(pause_ms);
                self.runtime.sleep(Duration::from_millis(pause)).await;
            }
        }
    }

    pub(crate) async fn sleep(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }

    /// Simulates a power cut.
    pub(crate) fn kill(&self, number: usize) {
        self.tell(|| format!("kill {number}"));
        let running = {
            let mut hosts = self.hosts.lock();
            let host = &mut hosts[number];
            host.node.kill();
            host.alive = false;
            host.running.lock().take()
        };
        drop(running);
        self.oracle.machine_gone(number);
    }

    pub(crate) fn freeze(&self, number: usize, seconds: u64) {
        self.tell(|| format!("freeze {number} for {seconds} s"));
        self.hosts.lock()[number].node.freeze(Duration::from_secs(seconds));
    }

    pub(crate) fn set_handler_ms(&self, most: u64) {
        self.handler_ms.store(most, Ordering::SeqCst);
    }

    pub(crate) fn suspend(&self, number: usize, seconds: u64) {
        self.tell(|| format!("suspend {number} for {seconds} s"));
        self.hosts.lock()[number].node.suspend(Duration::from_secs(seconds));
    }

    /// Returns a counter of a host's network.
    pub(crate) fn counted<T>(&self, number: usize, what: impl Fn(&Counts) -> T) -> T {
        what(&self.hosts.lock()[number].network.counts.lock())
    }

    /// Makes the service return the current ranges from now on, or the actual ones if `remember` is false.
    pub(crate) fn remember_ranges(&self, remember: bool) {
        let ranges = now(self.feed.ranges(true)).ok().filter(|_| remember);
        for host in self.hosts.lock().iter() {
            host.network.old_ranges.lock().clone_from(&ranges);
        }
    }

    pub(crate) fn set_clock_offset(&self, number: usize, millis: i64) {
        self.hosts.lock()[number].node.set_clock_offset_millis(millis);
    }

    pub(crate) fn weather(&self, number: usize, change: impl FnOnce(&mut Weather)) {
        change(&mut self.hosts.lock()[number].network.weather.lock());
    }

    pub(crate) fn clear_skies(&self) {
        let calm = Weather { latency_ms: 10, ..Weather::default() };
        self.hosts.lock().iter().for_each(|host| *host.network.weather.lock() = calm);
    }

    /// Stops a host in order and returns its report. A host that has not started is killed.
    pub(crate) async fn stop(&self, number: usize) -> Option<crate::Report> {
        let running = self.hosts.lock()[number].running.lock().take();
        let Some(running) = running else {
            self.kill(number);
            return None;
        };
        let report = running.stop().await;
        self.hosts.lock()[number].alive = false;
        Some(report)
    }

    pub(crate) fn report(&self, number: usize) -> Option<crate::Report> {
        self.hosts.lock()[number].running.lock().as_ref().map(Running::report)
    }

    pub(crate) fn split_some(&self) -> bool {
        let ids = self.range_ids();
        let picked = *self.random.lock().pick(&ids);
        self.tell(|| format!("split {picked}"));
        self.feed.split(picked)
    }

    pub(crate) fn merge_some(&self) -> bool {
        let ids = self.range_ids();
        let picked = *self.random.lock().pick(&ids);
        self.tell(|| format!("merge {picked}"));
        self.feed.merge(picked)
    }

    fn range_ids(&self) -> Vec<PartitionId> {
        // A feed in memory answers immediately.
        let ranges = now(self.feed.ranges(true)).unwrap();
        ranges.iter().map(|range| range.id).collect()
    }

    /// Returns the leases that are not retired.
    pub(crate) fn stored(&self) -> Vec<Lease> {
        self.all_stored().filter(|lease| !lease.is_retired()).collect()
    }

    pub(crate) fn retired(&self) -> Vec<Lease> {
        self.all_stored().filter(Lease::is_retired).collect()
    }

    fn all_stored(&self) -> impl Iterator<Item = Lease> {
        let listing = now(self.leases.list("")).unwrap();
        listing.documents.into_iter().filter_map(|stored| Lease::parse(&stored.body).ok())
    }

    /// Returns the number of leases of each owner, sorted by name.
    pub(crate) fn shares(&self) -> Vec<usize> {
        let leases = self.stored();
        let owners: BTreeSet<&String> =
            leases.iter().filter_map(|lease| lease.owner.as_ref()).collect();
        let count =
            |owner: &&String| leases.iter().filter(|l| l.owner.as_ref() == Some(*owner)).count();
        owners.iter().map(count).collect()
    }

    /// Waits until everything was handled or the time is up, then checks the final invariants.
    pub(crate) async fn finish(&self, patience_seconds: u64) {
        for _ in 0..patience_seconds {
            if self.is_complete() && self.unowned().is_empty() {
                break;
            }
            self.sleep(1).await;
        }
        self.oracle.check_complete(&self.live());
        for what in self.unowned() {
            self.oracle.note(Broken::EverythingIsOwned, what);
        }
    }

    fn live(&self) -> Vec<(String, headwater_model::Lsn)> {
        self.feed.live().into_iter().map(|(_, id, lsn)| (id, lsn)).collect()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.oracle.has_all(&self.live())
    }

    /// Returns leases without a live owner, and gaps.
    fn unowned(&self) -> Vec<String> {
        let mut found = Vec::new();
        let leases = self.stored();
        let physical = now(self.feed.ranges(true)).unwrap();
        let keys = |lease: &Lease| {
            let by_id = || crate::coverage::keys_of(lease.token.parse().ok()?, &physical);
            lease.range.clone().or_else(by_id)
        };
        let ranges: Vec<KeyRange> = leases.iter().filter_map(keys).collect();
        if crate::coverage::gaps(&KeyRange::full(), ranges.iter()).next().is_some() {
            found.push("leases have gaps".to_owned());
        }
        let alive: BTreeSet<String> = {
            let hosts = self.hosts.lock();
            let running = hosts.iter().filter(|host| host.alive);
            let owned =
                running.filter_map(|host| host.running.lock().as_ref().map(Running::report));
            owned.flat_map(|report| report.owned).collect()
        };
        for lease in leases {
            if !alive.contains(&lease.token) {
                found.push(format!("no live host owns {} of {:?}", lease.token, lease.owner));
            }
        }
        found
    }
}

/// Returns the value of a future that is ready.
fn now<T>(mut future: BoxFuture<T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("memory answers at once"),
    }
}

/// Creates handlers that report their calls to the oracle.
struct RecordingFactory {
    world: World,
    machine: usize,
    runtime: Runtime,
}

struct RecordingHandler {
    world: World,
    machine: usize,
    runtime: Runtime,
    tenure: u64,
}

impl HandlerFactory for RecordingFactory {
    type Handler = RecordingHandler;

    fn create(&self, lease: &LeaseContext) -> RecordingHandler {
        let has_epochs = self.world.setup.options.flavour().has_properties();
        let tenure = match has_epochs {
            true => lease.epoch,
            false => self.world.next_tenure(),
        };
        let (world, runtime) = (self.world.clone(), self.runtime.clone());
        RecordingHandler { world, machine: self.machine, runtime, tenure }
    }
}

impl Handler for RecordingHandler {
    async fn process(&mut self, batch: Batch) -> Result<Ack, HandlerError> {
        self.world.handle(self.machine, self.tenure, &self.runtime, batch).await
    }
}

/// Reports the end of a call to the oracle, also when the call is dropped.
struct Guard {
    oracle: Oracle,
    call: u64,
    handled: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.oracle.end(self.call, self.handled);
    }
}
