//! Sends response bodies: holds their memory until the operating system has accepted the last byte, and over
//! HTTP/2 detects clients that do not read.
//!
//! Over HTTP/1.1 such a client leaves the socket full, which `socket` detects. Over HTTP/2 it can read the socket,
//! answer every ping, and still never open the window of a stream: the response then stays in memory as long as
//! the connection lives. So responses are sent in pieces that report when they are gone. A stream none of whose
//! pieces leaves for too long ends its connection.
//!
//! ```text
//! body    |piece|piece|piece|…      pulled one by one as there is room
//!            └ in the queue of HTTP/2 until the client's window admits it, then dropped
//! ```
//!
//! The head of an answer waits in that queue too while the socket is full, and an empty answer has nothing else.
//! Its memory is that of its request, which is given back when the head is written.
//!
//! A stream that has nothing to send, such as events between two changes, has no piece and is left alone.

use crate::answer::Payload;
use crate::budget::Held;
use crate::connection::{ActiveRequest, Connection, QueuedHead};
use bytes::Bytes;
use headwater_runtime::Bell;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::HeaderValue;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The number of bytes that a client must take within the time limit.
const PIECE_BYTES: usize = 64 << 10;

/// The streams of one connection that have pieces to send.
#[derive(Debug)]
pub(crate) struct Pace {
    connection: Arc<Connection>,
    streams: Mutex<Streams>,
    /// Notified when the first stream has a piece to send.
    begun: Bell,
}

#[derive(Debug, Default)]
struct Streams {
    next: u64,
    sending: HashMap<u64, StreamProgress>,
}

/// The unsent pieces of a stream, and when the last one left.
#[derive(Debug)]
struct StreamProgress {
    pieces: usize,
    since: Duration,
}

impl Streams {
    fn sent(&mut self, stream: u64, now: Duration) {
        let sending =
            self.sending.entry(stream).or_insert(StreamProgress { pieces: 0, since: now });
        sending.pieces += 1;
    }

    fn taken(&mut self, stream: u64, now: Duration) {
        if let Some(sending) = self.sending.get_mut(&stream) {
            sending.pieces -= 1;
            sending.since = now;
            if sending.pieces == 0 {
                self.sending.remove(&stream);
            }
        }
    }

    /// The time since which the slowest stream has made no progress.
    fn still_since(&self) -> Option<Duration> {
        self.sending.values().map(|sending| sending.since).min()
    }
}

impl Pace {
    pub(crate) fn new(connection: Arc<Connection>) -> Arc<Pace> {
        let (streams, begun) = (Mutex::default(), Bell::default());
        Arc::new(Pace { connection, streams, begun })
    }

    /// Wraps a response over HTTP/2 so that its pieces are watched.
    pub(crate) fn watch(
        self: &Arc<Pace>,
        answer: Response<Payload>,
        guard: ResponseGuard,
    ) -> Response<PacedBody> {
        let id = {
            let mut streams = self.streams.lock();
            streams.next += 1;
            streams.next
        };
        let stream = Arc::new(Stream { pace: self.clone(), id, _guard: guard });
        let (rest, guard) = (Bytes::new(), None);
        answer.map(|payload| PacedBody { payload, rest, stream: Some(stream), guard })
    }

    /// Completes when a client has taken nothing of a response for too long.
    pub(crate) async fn stalled(&self) {
        let mut begun = self.begun.listen();
        loop {
            let since = self.streams.lock().still_since();
            let Some(since) = since else {
                begun.rang().await;
                continue;
            };
            let runtime = &self.connection.runtime;
            let still = runtime.elapsed().saturating_sub(since);
            let patience = self.connection.send_patience();
            if still >= patience {
                return;
            }
            runtime.sleep((patience - still).min(self.connection.send_check())).await;
        }
    }
}

#[derive(Debug)]
struct Stream {
    pace: Arc<Pace>,
    id: u64,
    _guard: ResponseGuard,
}

impl Stream {
    fn piece(self: &Arc<Stream>, bytes: Bytes) -> Bytes {
        let now = self.pace.connection.runtime.elapsed();
        let is_first = {
            let mut streams = self.pace.streams.lock();
            streams.sent(self.id, now);
            streams.sending.len() == 1
        };
        if is_first {
            self.pace.begun.ring();
        }
        Bytes::from_owner(Piece { bytes, stream: self.clone() })
    }
}

/// Bytes that report when they are dropped.
struct Piece {
    bytes: Bytes,
    stream: Arc<Stream>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let pace = &self.stream.pace;
        let now = pace.connection.runtime.elapsed();
        pace.streams.lock().taken(self.stream.id, now);
    }
}

/// Resources of a response that are held until the operating system has accepted its last byte.
#[derive(Debug)]
pub(crate) struct ResponseGuard {
    _request: ActiveRequest,
    memory: Option<Held>,
}

impl ResponseGuard {
    pub(crate) fn new(request: ActiveRequest, memory: Option<Held>) -> ResponseGuard {
        ResponseGuard { _request: request, memory }
    }
}

/// Bytes that keep a value alive until they are dropped.
struct GuardedBytes<T> {
    bytes: Bytes,
    _with: T,
}

impl<T> AsRef<[u8]> for GuardedBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Wraps bytes so that their memory is counted until they are dropped.
pub(crate) fn counted(bytes: Bytes, memory: Held) -> Bytes {
    Bytes::from_owner(GuardedBytes { bytes, _with: memory })
}

/// A value of an answer's head that is dropped when the head is written. HTTP/2 would keep a value for later
/// answers, unless it is called sensitive.
pub(crate) fn counted_value(value: &HeaderValue, head: QueuedHead) -> HeaderValue {
    let bytes = Bytes::copy_from_slice(value.as_bytes());
    let kept =
        HeaderValue::from_maybe_shared(Bytes::from_owner(GuardedBytes { bytes, _with: head }));
    // The bytes are those of a value.
    let mut kept = kept.unwrap_or_else(|_| value.clone());
    kept.set_sensitive(true);
    kept
}

/// The body of an answer, watched or, where the socket tells enough, as it is.
#[derive(Debug)]
pub(crate) struct PacedBody {
    payload: Payload,
    rest: Bytes,
    stream: Option<Arc<Stream>>,
    guard: Option<ResponseGuard>,
}

impl PacedBody {
    /// Wraps a response over HTTP/1.1.
    pub(crate) fn unwatched(
        answer: Response<Payload>,
        guard: ResponseGuard,
    ) -> Response<PacedBody> {
        let guard = Some(guard);
        answer.map(|payload| PacedBody { payload, rest: Bytes::new(), stream: None, guard })
    }

    /// Attaches the held resources to the last piece of a counted response. A small response needs none: the
    /// operating system accepts it at once.
    fn keep_with_last(&mut self, piece: Bytes) -> Bytes {
        let is_counted = |guard: &&ResponseGuard| guard.memory.is_some();
        match self.guard.as_ref().filter(is_counted) {
            Some(_) if self.payload.is_end_stream() => {
                Bytes::from_owner(GuardedBytes { bytes: piece, _with: self.guard.take() })
            }
            _ => piece,
        }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        let Some(stream) = &body.stream else {
            let frame = ready!(Pin::new(&mut body.payload).poll_frame(context));
            return Poll::Ready(frame.map(|frame| {
                frame.map(|frame| frame.map_data(|piece| body.keep_with_last(piece)))
            }));
        };
        if body.rest.is_empty() {
            match ready!(Pin::new(&mut body.payload).poll_frame(context)) {
                Some(Ok(frame)) => body.rest = frame.into_data().unwrap_or_default(),
                end => return Poll::Ready(end),
            }
        }
        let piece = body.rest.split_to(body.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(stream.piece(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.payload.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.payload.size_hint();
        match hint.exact() {
            Some(bytes) => SizeHint::with_exact(bytes + self.rest.len() as u64),
            None => hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Peer, Resource};
    use crate::config::Limits;
    use headwater_runtime::Runtime;
    use http_body_util::BodyExt;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_stream_is_still_since_it_last_took_something() {
        let mut streams = Streams::default();
        assert_eq!(streams.still_since(), None);
        streams.sent(1, SECOND);
        streams.sent(1, SECOND * 2);
        streams.sent(2, SECOND * 3);
        assert_eq!(streams.still_since(), Some(SECOND));
        streams.taken(1, SECOND * 5);
        assert_eq!(streams.still_since(), Some(SECOND * 3), "another one took nothing since");
        streams.taken(2, SECOND * 6);
        assert_eq!(streams.still_since(), Some(SECOND * 5));
        streams.taken(1, SECOND * 7);
        assert_eq!(streams.still_since(), None, "a stream that has taken everything cannot stall");
    }

    #[tokio::test]
    async fn an_answer_is_the_same_in_pieces() {
        let whole: Bytes = (0..200_000u32).map(|number| number.to_le_bytes()[0]).collect();
        let (peer, limits) = (Peer::for_tests(), Limits::default());
        let connection = Connection::new(peer.clone(), "http", Runtime::system(), limits);
        let pace = Pace::new(connection.clone());
        let answer = Response::new(Payload::Whole(whole.clone()));
        let guard = ResponseGuard::new(connection.begin(), None);
        let mut body = pace.watch(answer, guard).into_body();
        assert_eq!(body.size_hint().exact(), Some(200_000));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), PIECE_BYTES);
        assert_eq!(body.size_hint().exact(), Some(200_000 - PIECE_BYTES as u64));
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!([first, rest].concat(), whole);
        assert_eq!(pace.streams.lock().still_since(), None);
    }

    #[tokio::test]
    async fn the_memory_of_an_answer_is_counted_until_its_last_byte_is_dropped() {
        let limits = Limits::default();
        for is_http2 in [false, true] {
            let peer = Peer::for_tests();
            let connection = Connection::new(peer.clone(), "http", Runtime::system(), limits);
            let pieces = [150_000, 50_000].map(|length| Bytes::from(vec![7; length])).to_vec();
            let answer = Response::new(Payload::Pieces(pieces));
            let memory = peer.take(Resource::Sending, 200_000).unwrap();
            let guard = ResponseGuard::new(connection.begin(), Some(memory));
            let mut body = match is_http2 {
                true => Pace::new(connection.clone()).watch(answer, guard).into_body(),
                false => PacedBody::unwatched(answer, guard).into_body(),
            };
            let mut pieces = Vec::new();
            while let Some(frame) = body.frame().await {
                pieces.push(frame.unwrap().into_data().unwrap());
            }
            assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), 200_000);
            drop(body);
            let last = pieces.pop().unwrap();
            drop(pieces);
            assert!(peer.used(Resource::Sending) >= 200_000, "{is_http2}");
            drop(last);
            assert_eq!(peer.used(Resource::Sending), 0, "{is_http2}");
        }
    }
}
