//! One connection: whose it is, and whether it receives a head, works on requests or is idle.
//!
//! ```text
//! opened ──head──► requests under way ──last answer sent──► idle ──head──► …
//!   └ head_time                                              └ idle_time
//! ```
//!
//! The socket reports what it reads, `frames` the heads over HTTP/2, requests their beginning and end, and
//! [`Connection::expired`] completes when the connection has taken longer than it may. A request costs a few
//! atomics and one look at the clock; the timer is armed once per deadline, not once per request.
//!
//! An address that has all its connections gets a new one at the expense of those that have been longest in a
//! head or body ([`Connections::make_room`]): stalled senders do not lock out the other programs of their machine.

use crate::budget::{Connected, Exceeded, Held, Peer, Resource};
use crate::config::Limits;
use headwater_runtime::{Bell, Runtime};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The memory of a head is counted in steps of this many bytes.
const HEAD_STEP_BYTES: usize = 16 << 10;
/// Bytes read for a head before they are counted. hyper reads up to this much at first, a part of the body
/// included: with less, a large request of moderate head would be refused while memory is scarce instead of
/// waiting for its body's share.
const HEAD_UNCOUNTED_BYTES: usize = 16 << 10;
/// Heads of answers over HTTP/2 that wait for the socket without memory of their own.
const UNCOUNTED_HEADS_MAX: usize = 8;
/// Of the connections of an address, one in this many ends when it has too many. A search looks at all connections
/// of the server, so that one search serves several new ones.
const SHARE_ENDED: usize = 64;
/// The time after a search that did not find as many as it should.
const SEARCH_PAUSE: Duration = Duration::from_millis(2);
/// Not a moment.
const NEVER: u64 = u64::MAX;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: Arc<Peer>,
    pub(crate) scheme: &'static str,
    pub(crate) runtime: Runtime,
    limits: Limits,
    opened: Duration,
    /// Requests whose answer has not been sent yet.
    requests: AtomicUsize,
    /// Requests that began.
    request_count: AtomicU64,
    is_http2: AtomicBool,
    /// Bytes read over HTTP/1 while no request was under way: of the next head.
    head_bytes: AtomicUsize,
    head_memory: Mutex<Option<Held>>,
    /// In milliseconds since the runtime began.
    head_since: AtomicU64,
    idle_since: AtomicU64,
    /// Rung when a deadline became earlier.
    head_begun: Bell,
    body_waits: Mutex<BodyWaits>,
    uncounted_heads: AtomicUsize,
    /// Its place among the connections of its address, until it ends or another one gets it.
    place: Mutex<Option<Connected>>,
    is_closed: AtomicBool,
    /// Rung when it is closed.
    closing: Bell,
}

/// Bodies whose senders are waited for.
#[derive(Debug, Default)]
struct BodyWaits {
    count: usize,
    /// Since when there is one, or when the last one ended.
    since: Duration,
}

impl Connection {
    pub(crate) fn new(
        peer: Arc<Peer>,
        scheme: &'static str,
        runtime: Runtime,
        limits: Limits,
    ) -> Arc<Connection> {
        let opened = runtime.elapsed();
        Arc::new(Connection {
            peer,
            scheme,
            runtime,
            limits,
            opened,
            requests: AtomicUsize::new(0),
            request_count: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
            head_bytes: AtomicUsize::new(0),
            head_memory: Mutex::default(),
            head_since: AtomicU64::new(NEVER),
            idle_since: AtomicU64::new(NEVER),
            head_begun: Bell::default(),
            body_waits: Mutex::default(),
            uncounted_heads: AtomicUsize::new(0),
            place: Mutex::default(),
            is_closed: AtomicBool::new(false),
            closing: Bell::default(),
        })
    }

    /// Takes the place that was counted for it.
    pub(crate) fn keep_place(&self, place: Connected) {
        *self.place.lock() = Some(place);
    }

    /// Gives its place up at once and ends the task that serves it.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let place = self.place.lock().take();
        drop(place);
        self.closing.ring();
    }

    /// Completes when the connection was closed.
    pub(crate) async fn closed(&self) {
        let mut closing = self.closing.listen();
        if !self.is_closed.load(Ordering::Acquire) {
            closing.rang().await;
        }
    }

    /// Since when it has been in the same head or body.
    fn unfinished_since(&self) -> Option<Duration> {
        if self.request_count() == 0 {
            return Some(self.opened);
        }
        let head = match self.head_since.load(Ordering::Relaxed) {
            NEVER => None,
            since => Some(Duration::from_millis(since)),
        };
        let bodies = self.body_waits.lock();
        let body = (bodies.count > 0).then_some(bodies.since);
        head.into_iter().chain(body).min()
    }

    /// Keeps the memory of an answer's head until the head is with the socket. A client that leaves several
    /// heads without memory unread is closed.
    pub(crate) fn queue_head(self: &Arc<Connection>, memory: Option<Held>) -> QueuedHead {
        let is_uncounted = memory.is_none();
        if is_uncounted
            && self.uncounted_heads.fetch_add(1, Ordering::Relaxed) >= UNCOUNTED_HEADS_MAX
        {
            self.close();
        }
        QueuedHead { connection: self.clone(), _memory: memory, is_uncounted }
    }

    /// Notes that the sender of a body is waited for until the returned value is dropped.
    pub(crate) fn body_waits(&self) -> BodyWait<'_> {
        let now = self.runtime.elapsed();
        let mut bodies = self.body_waits.lock();
        if bodies.count == 0 {
            bodies.since = now;
        }
        bodies.count += 1;
        BodyWait(self)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts bytes that were read.
    pub(crate) fn received(&self, bytes: usize) -> Result<(), Exceeded> {
        if self.is_busy() || self.is_http2.load(Ordering::Relaxed) {
            return Ok(());
        }
        let total = self.head_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total <= HEAD_UNCOUNTED_BYTES {
            return Ok(());
        }
        self.hold_head(total.next_multiple_of(HEAD_STEP_BYTES))
    }

    /// Counts the memory of a head that is not complete.
    pub(crate) fn hold_head(&self, bytes: usize) -> Result<(), Exceeded> {
        let mut memory = self.head_memory.lock();
        match memory.as_mut() {
            Some(memory) => memory.resize(bytes),
            None => self.peer.take(Resource::Receiving, bytes).map(|held| *memory = Some(held)),
        }
    }

    /// Notes that the client speaks HTTP/2: what was read so far is no head.
    pub(crate) fn speaks_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
        self.head_bytes.store(0, Ordering::Relaxed);
        self.head_ended();
    }

    /// Notes that a head has begun, and that the rest of it is not there yet.
    pub(crate) fn head_waits(&self) {
        self.head_since.store(millis(self.runtime.elapsed()), Ordering::Relaxed);
        self.head_begun.ring();
    }

    /// Notes that a head over HTTP/2 is complete.
    pub(crate) fn head_ended(&self) {
        self.head_since.store(NEVER, Ordering::Relaxed);
        *self.head_memory.lock() = None;
    }

    /// How many requests began.
    pub(crate) fn request_count(&self) -> u64 {
        self.request_count.load(Ordering::Relaxed)
    }

    /// Notes that there is nothing to read right now.
    pub(crate) fn paused(&self) {
        let is_inside_a_head = self.head_bytes.load(Ordering::Relaxed) > 0
            && self.head_since.load(Ordering::Relaxed) == NEVER;
        if is_inside_a_head && !self.is_busy() && !self.is_http2.load(Ordering::Relaxed) {
            self.head_waits();
        }
    }

    /// Notes that a request is under way until the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Connection>) -> UnderWay {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.request_count.fetch_add(1, Ordering::Relaxed);
        if self.is_http2.load(Ordering::Relaxed) {
            // Its head ended when its last frame was read, and the next one may have begun.
            return UnderWay { connection: self.clone(), _head: None };
        }
        self.head_since.store(NEVER, Ordering::Relaxed);
        let head_bytes = self.head_bytes.swap(0, Ordering::Relaxed);
        // The head lies where it was read until the request ends.
        let head = match head_bytes > HEAD_UNCOUNTED_BYTES {
            true => self.head_memory.lock().take(),
            false => None,
        };
        UnderWay { connection: self.clone(), _head: head }
    }

    /// How long the client may read nothing of an answer.
    pub(crate) fn send_patience(&self) -> Duration {
        match self.peer.is_scarce(Resource::Sending) {
            true => self.limits.scarce_send_time.min(self.limits.send_time),
            false => self.limits.send_time,
        }
    }

    /// After what time [`Connection::send_patience`] is worth another look.
    pub(crate) fn send_check(&self) -> Duration {
        self.limits.scarce_send_time.min(self.limits.send_time)
    }

    fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Completes when a head took too long, or when the connection was idle for too long.
    pub(crate) async fn expired(&self) {
        loop {
            let mut head_begun = self.head_begun.listen();
            let now = self.runtime.elapsed();
            let deadline = self.deadline(now);
            if deadline <= now {
                return;
            }
            tokio::select! {
                () = self.runtime.sleep(deadline - now) => {}
                () = head_begun.rang() => {}
            }
        }
    }

    fn deadline(&self, now: Duration) -> Duration {
        let limits = &self.limits;
        if self.request_count() == 0 {
            return self.opened + limits.head_time;
        }
        let head_since = self.head_since.load(Ordering::Relaxed);
        if head_since != NEVER {
            return Duration::from_millis(head_since) + limits.head_time;
        }
        if self.is_busy() {
            return now + limits.idle_time.min(limits.head_time).max(Duration::from_millis(1));
        }
        match self.idle_since.load(Ordering::Relaxed) {
            NEVER => now + limits.idle_time,
            since => Duration::from_millis(since) + limits.idle_time,
        }
    }
}

/// The head of an answer over HTTP/2 that may still wait for the socket.
#[derive(Debug)]
pub(crate) struct QueuedHead {
    connection: Arc<Connection>,
    _memory: Option<Held>,
    is_uncounted: bool,
}

impl Drop for QueuedHead {
    fn drop(&mut self) {
        if self.is_uncounted {
            self.connection.uncounted_heads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A body whose sender is waited for.
#[derive(Debug)]
pub(crate) struct BodyWait<'a>(&'a Connection);

impl Drop for BodyWait<'_> {
    fn drop(&mut self) {
        let now = self.0.runtime.elapsed();
        let mut bodies = self.0.body_waits.lock();
        bodies.count -= 1;
        bodies.since = now;
    }
}

/// The open connections of a server, to tell how many are in which state and to find slow ones. Requests do not
/// touch it.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<Vec<Weak<Connection>>>,
    /// When the next search for slow ones may begin.
    next_search: Mutex<Duration>,
}

impl Connections {
    /// Adds a connection until it is dropped.
    pub(crate) fn add(&self, connection: &Arc<Connection>) {
        let mut open = self.open.lock();
        // Dropped ones are removed when the list is full, so that adding takes constant time on average.
        if open.len() == open.capacity() {
            open.retain(|connection| connection.strong_count() > 0);
            let count = open.len();
            open.reserve(count + 1);
        }
        open.push(Arc::downgrade(connection));
    }

    /// Closes the connections of an address that have been longest in the same head or body. Those that wait for
    /// an answer or between two requests stay.
    pub(crate) fn make_room(&self, peer: &Arc<Peer>, now: Duration) {
        let mut next_search = self.next_search.lock();
        if now < *next_search {
            return;
        }
        let wanted = (peer.connections() / SHARE_ENDED).max(1);
        let mut slow: Vec<(Duration, Arc<Connection>)> = {
            let open = self.open.lock();
            let of_peer = open.iter().filter_map(Weak::upgrade).filter(|connection| {
                Arc::ptr_eq(&connection.peer, peer) && !connection.is_closed.load(Ordering::Relaxed)
            });
            of_peer.filter_map(|one| Some((one.unfinished_since()?, one))).collect()
        };
        if slow.len() < wanted {
            *next_search = now + SEARCH_PAUSE;
        }
        slow.sort_unstable_by_key(|(since, _)| *since);
        slow.iter().take(wanted).for_each(|(_, connection)| connection.close());
    }

    /// How many connections have sent no request yet, have one under way, and wait for the next one.
    pub(crate) fn states(&self) -> [(&'static str, u64); 3] {
        let mut open = self.open.lock();
        open.retain(|connection| connection.strong_count() > 0);
        let (mut opening, mut busy, mut idle) = (0, 0, 0);
        for connection in open.iter().filter_map(Weak::upgrade) {
            let state = match connection.request_count() {
                _ if connection.is_busy() => &mut busy,
                0 => &mut opening,
                _ => &mut idle,
            };
            *state += 1;
        }
        [("opening", opening), ("busy", busy), ("idle", idle)]
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER - 1)
}

/// A request of a connection, until its answer has been sent.
#[derive(Debug)]
pub(crate) struct UnderWay {
    connection: Arc<Connection>,
    _head: Option<Held>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.idle_since.store(millis(connection.runtime.elapsed()), Ordering::Relaxed);
        connection.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budgets;
    use headwater_runtime::Simulation;
    use std::net::IpAddr;

    /// Runs a connection of a simulated server: heads may take 20 s, idle connections stay 120 s. Returns
    /// after how many seconds it expired.
    fn expires_after<F>(story: impl FnOnce(Runtime, Arc<Connection>) -> F + Send + 'static) -> u64
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let simulation = Simulation::new(1);
        let runtime = simulation.node().runtime();
        simulation.run(async move {
            let connection =
                Connection::new(Peer::for_tests(), "http", runtime.clone(), Limits::default());
            runtime.spawn("client", story(runtime.clone(), connection.clone()));
            connection.expired().await;
            runtime.elapsed().as_secs()
        })
    }

    async fn seconds(runtime: &Runtime, count: u64) {
        runtime.sleep(Duration::from_secs(count)).await;
    }

    #[test]
    fn a_connection_is_opening_then_busy_then_idle_and_then_gone() {
        let runtime = Simulation::new(1).node().runtime();
        let connections = Connections::default();
        let states = || connections.states().map(|(_, count)| count);
        let open = || {
            let limits = Limits::default();
            let opened = Connection::new(Peer::for_tests(), "http", runtime.clone(), limits);
            connections.add(&opened);
            opened
        };
        let mut kept: Vec<_> = (0..10).map(|_| open()).collect();
        assert_eq!(states(), [10, 0, 0]);
        let request = kept[0].begin();
        let other = kept[0].begin();
        assert_eq!(states(), [9, 1, 0]);
        drop(request);
        assert_eq!(states(), [9, 1, 0]);
        drop(other);
        assert_eq!(states(), [9, 0, 1]);
        kept.truncate(1);
        for _ in 0..1_000 {
            drop(open());
        }
        assert!(connections.open.lock().capacity() < 100, "closed ones are forgotten");
        assert_eq!(states(), [0, 0, 1]);
    }

    #[test]
    fn room_is_made_by_the_connections_that_have_been_longest_in_a_head_or_body() {
        let simulation = Simulation::new(1);
        let runtime = simulation.node().runtime();
        simulation.run(async move {
            let limits = Limits { connections: 6, address_share_percent: 100, ..Limits::default() };
            let budgets = Budgets::new(&limits);
            let connections = Connections::default();
            let open = || {
                let place = budgets.connect(IpAddr::from([127, 0, 0, 1])).ok()?;
                let opened = Connection::new(place.peer().clone(), "http", runtime.clone(), limits);
                opened.keep_place(place);
                connections.add(&opened);
                Some(opened)
            };
            let idle = open().unwrap();
            drop(idle.begin());
            let busy = open().unwrap();
            let _request = busy.begin();
            let silent = open().unwrap();
            seconds(&runtime, 1).await;
            let uploads = open().unwrap();
            let (_upload, _body) = (uploads.begin(), uploads.body_waits());
            seconds(&runtime, 1).await;
            let in_head = open().unwrap();
            drop(in_head.begin());
            in_head.head_waits();
            // One body after another, the last one a moment ago.
            let works = open().unwrap();
            let (_first, second) = (works.begin(), works.body_waits());
            let third = works.body_waits();
            seconds(&runtime, 1).await;
            drop(second);
            assert!(open().is_none());
            let is_closed = |one: &Connection| one.is_closed.load(Ordering::Relaxed);
            for expected in [&silent, &uploads, &in_head, &works] {
                assert!(!is_closed(expected));
                connections.make_room(&busy.peer, runtime.elapsed());
                assert!(is_closed(expected));
                expected.closed().await;
            }
            drop(third);
            connections.make_room(&busy.peer, runtime.elapsed());
            assert!(!is_closed(&idle) && !is_closed(&busy));
            assert_eq!(budgets.connections(), 2);
            assert!(open().is_some());
        });
    }

    #[test]
    fn a_connection_that_sends_nothing_has_the_time_of_a_head() {
        assert_eq!(expires_after(|_, _| async {}), 20);
    }

    #[test]
    fn an_idle_connection_has_its_own_time_since_its_last_answer() {
        let expired = expires_after(|runtime, connection| async move {
            for _ in 0..3 {
                let request = connection.begin();
                seconds(&runtime, 100).await;
                drop(request);
                seconds(&runtime, 100).await;
            }
        });
        assert_eq!(expired, 500 + 120, "longest idle after the third request");
    }

    #[test]
    fn a_head_that_was_begun_has_the_time_of_a_head() {
        let expired = expires_after(|runtime, connection| async move {
            drop(connection.begin());
            seconds(&runtime, 50).await;
            connection.received(10).unwrap();
            connection.paused();
            seconds(&runtime, 15).await;
            connection.received(10).unwrap();
            connection.paused();
        });
        assert_eq!(expired, 70, "a byte from time to time is not more time");
    }

    #[test]
    fn a_head_over_http2_has_its_time_also_while_requests_are_under_way() {
        let expired = expires_after(|runtime, connection| async move {
            connection.speaks_http2();
            let _long = connection.begin();
            seconds(&runtime, 50).await;
            connection.head_waits();
            seconds(&runtime, 19).await;
            connection.head_ended();
            drop(connection.begin());
            seconds(&runtime, 50).await;
            connection.head_waits();
            drop(connection.begin());
            seconds(&runtime, 100).await;
        });
        assert_eq!(expired, 50 + 19 + 50 + 20, "the second one was not complete in time");
    }

    #[test]
    fn bytes_between_requests_over_http2_are_no_head() {
        let expired = expires_after(|runtime, connection| async move {
            connection.speaks_http2();
            drop(connection.begin());
            seconds(&runtime, 50).await;
            connection.received(17).unwrap();
            connection.paused();
        });
        assert_eq!(expired, 120);
    }
}
