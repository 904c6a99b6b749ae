//! Tracks the state of one connection: receiving a head, processing requests, or idle.
//!
//! ```text
//! opened ──head──► requests in progress ──last response sent──► idle ──head──► …
//!   └ head_time                                                  └ idle_time
//! ```
//!
//! The socket reports the bytes it reads, `frames` reports heads over HTTP/2, and requests report their start
//! and end. [`Connection::expired`] completes when a time limit is exceeded. A request costs a few atomic
//! operations and one clock read; the timer is armed once per deadline, not once per request.

use crate::budget::{Exceeded, Held, Peer, Resource};
use crate::config::Limits;
use headwater_runtime::{Bell, Runtime};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The step in which the memory of a head is counted.
const HEAD_STEP_BYTES: usize = 16 << 10;
/// Bytes read for a head before they are counted. hyper's first reads are up to this large and may include part
/// of the body. With a smaller value, a large request with a moderate head would be refused when memory is
/// scarce, instead of waiting for its body's memory.
const HEAD_UNCOUNTED_BYTES: usize = 16 << 10;
/// The time of an event that has not happened.
const NEVER: u64 = u64::MAX;

/// The state, limits and memory of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: Arc<Peer>,
    pub(crate) scheme: &'static str,
    pub(crate) runtime: Runtime,
    limits: Limits,
    opened: Duration,
    /// Requests whose response has not been sent completely.
    requests: AtomicUsize,
    /// Requests started so far.
    request_count: AtomicU64,
    is_http2: AtomicBool,
    /// Bytes read over HTTP/1 outside of requests, which belong to the next head.
    head_bytes: AtomicUsize,
    head_memory: Mutex<Option<Held>>,
    /// Milliseconds since the runtime started, or [`NEVER`]; likewise below.
    head_since: AtomicU64,
    idle_since: AtomicU64,
    /// Notified when a deadline moves forward, so that [`Connection::expired`] checks it again.
    head_begun: Bell,
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
        })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts bytes that were read from the socket.
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

    /// Reserves the memory of an incomplete head.
    pub(crate) fn hold_head(&self, bytes: usize) -> Result<(), Exceeded> {
        let mut memory = self.head_memory.lock();
        match memory.as_mut() {
            Some(memory) => memory.resize(bytes),
            None => self.peer.take(Resource::Receiving, bytes).map(|held| *memory = Some(held)),
        }
    }

    /// Records that the client speaks HTTP/2, so the bytes read so far are not a head.
    pub(crate) fn speaks_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
        self.head_bytes.store(0, Ordering::Relaxed);
        self.head_ended();
    }

    /// Records that a head has begun but is incomplete.
    pub(crate) fn head_waits(&self) {
        self.head_since.store(millis(self.runtime.elapsed()), Ordering::Relaxed);
        self.head_begun.ring();
    }

    /// Records that a head over HTTP/2 is complete.
    pub(crate) fn head_ended(&self) {
        self.head_since.store(NEVER, Ordering::Relaxed);
        *self.head_memory.lock() = None;
    }

    /// The number of requests started so far.
    pub(crate) fn request_count(&self) -> u64 {
        self.request_count.load(Ordering::Relaxed)
    }

    /// Records that the socket has nothing to read.
    pub(crate) fn paused(&self) {
        let is_inside_a_head = self.head_bytes.load(Ordering::Relaxed) > 0
            && self.head_since.load(Ordering::Relaxed) == NEVER;
        if is_inside_a_head && !self.is_busy() && !self.is_http2.load(Ordering::Relaxed) {
            self.head_waits();
        }
    }

    /// Records a request, which lasts until the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Connection>) -> ActiveRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.request_count.fetch_add(1, Ordering::Relaxed);
        if self.is_http2.load(Ordering::Relaxed) {
            // An HTTP/2 head ended with its last frame, and the next one may have begun already.
            return ActiveRequest { connection: self.clone(), _head: None };
        }
        self.head_since.store(NEVER, Ordering::Relaxed);
        let head_bytes = self.head_bytes.swap(0, Ordering::Relaxed);
        // The request keeps the head's buffer until it ends.
        let head = match head_bytes > HEAD_UNCOUNTED_BYTES {
            true => self.head_memory.lock().take(),
            false => None,
        };
        ActiveRequest { connection: self.clone(), _head: head }
    }

    /// How long the client may read nothing of a response.
    pub(crate) fn send_patience(&self) -> Duration {
        match self.peer.is_scarce(Resource::Sending) {
            true => self.limits.scarce_send_time.min(self.limits.send_time),
            false => self.limits.send_time,
        }
    }

    /// The interval at which to check [`Connection::send_patience`] again.
    pub(crate) fn send_check(&self) -> Duration {
        self.limits.scarce_send_time.min(self.limits.send_time)
    }

    fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Completes when a head takes too long, or the connection is idle for too long.
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

/// The open connections of a server, for counting their states. Requests do not access it.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Vec<Weak<Connection>>>);

impl Connections {
    /// Adds a connection, which counts until it is dropped.
    pub(crate) fn add(&self, connection: &Arc<Connection>) {
        let mut open = self.0.lock();
        // Dropped ones are removed when the list is full, so adding takes amortised constant time.
        if open.len() == open.capacity() {
            open.retain(|connection| connection.strong_count() > 0);
            let count = open.len();
            open.reserve(count + 1);
        }
        open.push(Arc::downgrade(connection));
    }

    /// Counts connections without a request so far, with one in progress, and between requests.
    pub(crate) fn states(&self) -> [(&'static str, u64); 3] {
        let mut open = self.0.lock();
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

/// A request in progress, until its response has been sent.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    connection: Arc<Connection>,
    _head: Option<Held>,
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.idle_since.store(millis(connection.runtime.elapsed()), Ordering::Relaxed);
        connection.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_runtime::Simulation;

    /// Runs `story` on a connection of a simulated server, with limits of 20 s for heads and 120 s of idle time.
    /// Returns the seconds until the connection expired.
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
        assert!(connections.0.lock().capacity() < 100, "closed ones are forgotten");
        assert_eq!(states(), [0, 0, 1]);
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
