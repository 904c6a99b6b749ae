//! Budgets: limits on what all clients together, and each address alone, may use at a time.
//!
//! ```text
//! requests         being processed
//! waiting readers  long polls and event streams that wait for a change
//! receiving        memory of heads and bodies, until the request is answered
//! sending          memory of responses, until the operating system has accepted the last byte
//! filters          memory of feed filters, while their reader waits
//! ```
//!
//! One address gets at most a share of each and of the connections (`Limits::address_share_percent`), so it
//! cannot starve the others. Memory is counted in units of 1 KiB. Small requests and responses over HTTP/1.1
//! are not counted: their connection is, and it has one of them at a time.
//!
//! Knows neither HTTP nor sockets.

use crate::config::Limits;
use headwater_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of a head, a body or a response over HTTP/1.1 that are not counted.
pub(crate) const UNCOUNTED_BYTES: usize = 8 << 10;
/// The unit in which memory is counted.
const UNIT_BYTES: usize = 1 << 10;

/// A limited resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Requests,
    WaitingReaders,
    /// In bytes.
    Receiving,
    /// In bytes.
    Sending,
    /// In bytes.
    Filters,
}

impl Resource {
    const COUNT: usize = 5;

    fn unit(self) -> usize {
        match self {
            Resource::Requests | Resource::WaitingReaders => 1,
            Resource::Receiving | Resource::Sending | Resource::Filters => UNIT_BYTES,
        }
    }
}

/// A budget is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub(crate) struct Exceeded {
    pub(crate) resource: Resource,
    /// Whether the share of one address is exhausted, rather than the budget of the server.
    pub(crate) is_share: bool,
}

impl Exceeded {
    fn sentence(&self) -> String {
        let place = if self.is_share { "from this address" } else { "on this server" };
        match self.resource {
            Resource::Requests => format!("too many requests are under way {place}; retry later"),
            Resource::WaitingReaders => format!(
                "too many readers {place} wait for changes; read without waiting, or retry later"
            ),
            Resource::Receiving => format!(
                "requests being received {place} use all memory reserved for them; send fewer or \
                 smaller ones at a time, and retry later"
            ),
            Resource::Sending => format!(
                "responses {place} that clients have not read use all memory reserved for them; \
                 read them, and retry later"
            ),
            Resource::Filters => format!(
                "filters of readers {place} use all memory reserved for them; use shorter filters \
                 or fewer readers, and retry later"
            ),
        }
    }

    /// How long to wait before a retry.
    pub(crate) fn retry_after(&self) -> Duration {
        match self.resource {
            Resource::Requests => Duration::from_millis(100),
            _ => Duration::from_secs(1),
        }
    }
}

/// The total and the free units of every resource.
#[derive(Debug)]
struct Pool {
    sizes: [usize; Resource::COUNT],
    free: [Semaphore; Resource::COUNT],
}

impl Pool {
    fn new(sizes: [usize; Resource::COUNT]) -> Pool {
        Pool { sizes, free: sizes.map(Semaphore::new) }
    }

    fn free(&self, resource: Resource) -> &Semaphore {
        &self.free[resource as usize]
    }

    fn size(&self, resource: Resource) -> usize {
        self.sizes[resource as usize]
    }

    fn used(&self, resource: Resource) -> usize {
        self.size(resource).saturating_sub(self.free(resource).available_permits())
    }

    /// Whether less than a quarter is free.
    fn is_scarce(&self, resource: Resource) -> bool {
        self.free(resource).available_permits() < self.size(resource) / 4
    }
}

/// The budgets of a server.
#[derive(Debug)]
pub(crate) struct Budgets {
    all: Pool,
    share: [usize; Resource::COUNT],
    connections_each: usize,
    connections: AtomicUsize,
    /// The addresses with at least one connection.
    peers: Mutex<HashMap<IpAddr, Arc<Peer>>>,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Arc<Budgets> {
        let share = |size: usize| (size * limits.address_share_percent / 100).max(1);
        let sizes = [
            limits.requests,
            limits.waiting_readers,
            limits.receiving_bytes / UNIT_BYTES,
            limits.sending_bytes / UNIT_BYTES,
            limits.filter_bytes / UNIT_BYTES,
        ];
        Arc::new(Budgets {
            all: Pool::new(sizes),
            share: sizes.map(share),
            connections_each: share(limits.connections),
            connections: AtomicUsize::new(0),
            peers: Mutex::default(),
        })
    }

    /// Counts a connection.
    ///
    /// # Errors
    /// With the address, if it has as many connections as it may have.
    pub(crate) fn connect(
        self: &Arc<Budgets>,
        address: IpAddr,
    ) -> Result<CountedConnection, Arc<Peer>> {
        let address = owner_of(address);
        let mut peers = self.peers.lock();
        let peer = peers.entry(address).or_insert_with(|| {
            let (budgets, own) = (self.clone(), Pool::new(self.share));
            Arc::new(Peer { budgets, address, own, connections: AtomicUsize::new(0) })
        });
        if peer.connections.load(Ordering::Relaxed) >= self.connections_each {
            return Err(peer.clone());
        }
        peer.connections.fetch_add(1, Ordering::Relaxed);
        self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(CountedConnection(peer.clone()))
    }

    /// The number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The used amount of a resource, memory in bytes.
    pub(crate) fn used(&self, resource: Resource) -> usize {
        self.all.used(resource) * resource.unit()
    }
}

/// A counted connection of an address. Dropping it ends the count.
#[derive(Debug)]
pub(crate) struct CountedConnection(Arc<Peer>);

impl CountedConnection {
    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.0
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let (peer, budgets) = (&self.0, &self.0.budgets);
        let mut peers = budgets.peers.lock();
        budgets.connections.fetch_sub(1, Ordering::Relaxed);
        if peer.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            peers.remove(&peer.address);
        }
    }
}

/// The address that is limited: IPv6 clients are counted per /64 network, which has one owner.
fn owner_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(network.into())
        }
        address => address,
    }
}

/// An address and its use of every resource.
#[derive(Debug)]
pub(crate) struct Peer {
    budgets: Arc<Budgets>,
    address: IpAddr,
    own: Pool,
    /// Changes only while `Budgets::peers` is locked.
    connections: AtomicUsize,
}

impl Peer {
    /// Connections that are open.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Takes the place of one request.
    pub(crate) fn take_request(
        &self,
    ) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>), Exceeded> {
        self.try_take(Resource::Requests, 1)
    }

    /// Takes an amount of a resource, memory in bytes; fails if there is not enough.
    pub(crate) fn take(
        self: &Arc<Peer>,
        resource: Resource,
        amount: usize,
    ) -> Result<Held, Exceeded> {
        let units = self.units(resource, amount);
        let (own, all) = self.try_take(resource, units)?;
        own.forget();
        all.forget();
        Ok(Held { peer: self.clone(), resource, units })
    }

    /// Takes an amount of a resource, in order of arrival; fails if there is not enough within `patience`.
    pub(crate) async fn take_when_free(
        self: &Arc<Peer>,
        resource: Resource,
        amount: usize,
        runtime: &Runtime,
        patience: Duration,
    ) -> Result<Held, Exceeded> {
        let exceeded = match self.take(resource, amount) {
            Ok(held) => return Ok(held),
            Err(exceeded) => exceeded,
        };
        let units = self.units(resource, amount);
        let taken = async {
            let count = u32::try_from(units).ok()?;
            let own = self.own.free(resource).acquire_many(count).await.ok()?;
            let all = self.budgets.all.free(resource).acquire_many(count).await.ok()?;
            own.forget();
            all.forget();
            Some(Held { peer: self.clone(), resource, units })
        };
        runtime.timeout(patience, taken).await.flatten().ok_or(exceeded)
    }

    /// Whether a resource is scarce, for this address or for all.
    pub(crate) fn is_scarce(&self, resource: Resource) -> bool {
        self.own.is_scarce(resource) || self.budgets.all.is_scarce(resource)
    }

    fn try_take(
        &self,
        resource: Resource,
        units: usize,
    ) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>), Exceeded> {
        let count = u32::try_from(units).unwrap_or(u32::MAX);
        let exceeded = |is_share| move |_| Exceeded { resource, is_share };
        let own = self.own.free(resource).try_acquire_many(count).map_err(exceeded(true))?;
        let all =
            self.budgets.all.free(resource).try_acquire_many(count).map_err(exceeded(false))?;
        Ok((own, all))
    }

    /// Converts an amount to units. An amount larger than the whole share counts as the whole share; otherwise
    /// it could never be taken.
    fn units(&self, resource: Resource, amount: usize) -> usize {
        amount.div_ceil(resource.unit()).min(self.own.size(resource))
    }

    /// The address's use of a resource, memory in bytes.
    #[cfg(test)]
    pub(crate) fn used(&self, resource: Resource) -> usize {
        self.own.used(resource) * resource.unit()
    }

    /// A peer with default limits, which tests do not reach.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Peer> {
        let connected = Budgets::new(&Limits::default()).connect(IpAddr::from([127, 0, 0, 1]));
        connected.unwrap().peer().clone()
    }
}

/// An amount taken of a resource, returned on drop.
#[derive(Debug)]
pub(crate) struct Held {
    peer: Arc<Peer>,
    resource: Resource,
    units: usize,
}

impl Held {
    /// Changes the amount. Shrinking always succeeds.
    pub(crate) fn resize(&mut self, amount: usize) -> Result<(), Exceeded> {
        let units = self.peer.units(self.resource, amount);
        if units > self.units {
            let (own, all) = self.peer.try_take(self.resource, units - self.units)?;
            own.forget();
            all.forget();
        } else {
            self.give_back(self.units - units);
        }
        self.units = units;
        Ok(())
    }

    /// Grows to an amount when there is enough. What it holds stays taken meanwhile.
    pub(crate) async fn grow_when_free(
        &mut self,
        amount: usize,
        runtime: &Runtime,
        patience: Duration,
    ) -> Result<(), Exceeded> {
        let units = self.peer.units(self.resource, amount);
        let missing = units.saturating_sub(self.units) * self.resource.unit();
        let mut more = self.peer.take_when_free(self.resource, missing, runtime, patience).await?;
        self.units += std::mem::take(&mut more.units);
        Ok(())
    }

    fn give_back(&self, units: usize) {
        self.peer.own.free(self.resource).add_permits(units);
        self.peer.budgets.all.free(self.resource).add_permits(units);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back(self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budgets(change: impl FnOnce(&mut Limits)) -> Arc<Budgets> {
        let mut limits = Limits { address_share_percent: 80, ..Limits::default() };
        change(&mut limits);
        Budgets::new(&limits)
    }

    fn connect(budgets: &Arc<Budgets>, text: &str) -> Option<CountedConnection> {
        budgets.connect(text.parse().unwrap()).ok()
    }

    #[test]
    fn an_address_has_its_share_of_the_connections_and_gets_it_back() {
        let budgets = budgets(|limits| limits.connections = 3);
        let one = connect(&budgets, "10.0.0.1").unwrap();
        let two = connect(&budgets, "::ffff:10.0.0.1").unwrap();
        assert!(connect(&budgets, "10.0.0.1").is_none(), "both forms of one address are one");
        let other = connect(&budgets, "10.0.0.2");
        assert!(other.is_some());
        assert_eq!(budgets.connections(), 3);
        drop(two);
        let again = connect(&budgets, "10.0.0.1");
        assert!(again.is_some());
        drop((one, other, again));
        assert!(
            budgets.peers.lock().is_empty(),
            "nothing is kept of addresses without connections"
        );
        assert_eq!(budgets.connections(), 0);
    }

    #[test]
    fn neighbours_of_one_network_share() {
        let budgets = budgets(|limits| limits.connections = 1);
        let one = connect(&budgets, "2001:db8::1");
        assert!(one.is_some());
        assert!(connect(&budgets, "2001:db8::ffff:1").is_none());
        assert!(connect(&budgets, "2001:db8:0:1::1").is_some());
    }

    #[test]
    fn one_address_uses_its_share_of_the_memory_and_all_of_them_no_more_than_there_is() {
        let budgets = budgets(|limits| limits.sending_bytes = 100 << 10);
        let one = connect(&budgets, "10.0.0.1").unwrap();
        let two = connect(&budgets, "10.0.0.2").unwrap();
        let sending = Resource::Sending;
        let first = one.peer().take(sending, 79 << 10).unwrap();
        let exceeded = one.peer().take(sending, 2 << 10).unwrap_err();
        assert_eq!(exceeded, Exceeded { resource: sending, is_share: true });
        assert!(one.peer().is_scarce(sending));
        let second = two.peer().take(sending, 21 << 10).unwrap();
        let exceeded = two.peer().take(sending, 1).unwrap_err();
        assert_eq!(exceeded, Exceeded { resource: sending, is_share: false });
        assert!(exceeded.to_string().contains("on this server"), "{exceeded}");
        assert_eq!(budgets.used(sending), 100 << 10);
        drop(first);
        assert_eq!(budgets.used(sending), 21 << 10);
        drop(second);
        // An amount larger than a share takes the whole share.
        let whole = one.peer().take(sending, 1 << 30).unwrap();
        assert_eq!(budgets.used(sending), 80 << 10);
        drop(whole);
        assert_eq!(budgets.used(sending), 0);
    }

    #[test]
    fn an_amount_can_shrink_and_grow_as_far_as_there_is_room() {
        let budgets = budgets(|limits| limits.receiving_bytes = 10 << 10);
        let one = connect(&budgets, "10.0.0.1").unwrap();
        let mut held = one.peer().take(Resource::Receiving, 4 << 10).unwrap();
        held.resize(8 << 10).unwrap();
        assert_eq!(budgets.used(Resource::Receiving), 8 << 10);
        let other = connect(&budgets, "10.0.0.2").unwrap();
        let _rest = other.peer().take(Resource::Receiving, 2 << 10).unwrap();
        held.resize(100).unwrap();
        assert_eq!(budgets.used(Resource::Receiving), 3 << 10);
        drop(held);
        assert_eq!(budgets.used(Resource::Receiving), 2 << 10);
    }

    #[tokio::test]
    async fn a_waiting_request_gets_what_is_released_or_is_refused_in_time() {
        let budgets = budgets(|limits| limits.sending_bytes = 10 << 10);
        let one = connect(&budgets, "10.0.0.1").unwrap();
        let (peer, runtime) = (one.peer().clone(), Runtime::system());
        let held = peer.take(Resource::Sending, 8 << 10).unwrap();
        let wait = |millis| {
            let patience = Duration::from_millis(millis);
            peer.take_when_free(Resource::Sending, 4 << 10, &runtime, patience)
        };
        assert!(wait(10).await.unwrap_err().is_share);
        let (got, ()) = tokio::join!(wait(60_000), async { drop(held) });
        assert_eq!(got.unwrap().units, 4);
        assert_eq!(budgets.used(Resource::Sending), 0);
    }
}
