//! The body of an answer on its way: its memory is counted until its last byte is with the operating
//! system, and over HTTP/2 a client that does not read it is noticed.
//!
//! Over HTTP/1.1 a client that does not read leaves the socket full, and `socket` sees that. Over HTTP/2 it
//! can read the socket, answer every ping, and still never open the window of a stream: the answer then lies
//! in memory for as long as the connection lives. So answers go out in pieces that say when they are gone.
//! A stream none of whose pieces goes for too long ends its connection.
//!
//! ```text
//! body    |piece|piece|piece|…      pulled one by one as there is room
//!            └ in the queue of HTTP/2 until the client's window lets it out, then dropped
//! ```
//!
//! The head of an answer waits in that queue too while the socket is full, and an empty answer has nothing else.
//! Its memory is that of its request, which is given back when the head is written.
//!
//! A stream that has nothing to send, such as events between two changes, has no piece and is left alone.

use crate::answer::Payload;
use crate::budget::Held;
use crate::connection::{Connection, QueuedHead, UnderWay};
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

/// How much a client has to take within the time it has.
const PIECE_BYTES: usize = 64 << 10;

/// The streams of one connection that are being sent something.
#[derive(Debug)]
pub(crate) struct Pace {
    connection: Arc<Connection>,
    streams: Mutex<Streams>,
    /// Rung when there is something to watch again.
    begun: Bell,
}

#[derive(Debug, Default)]
struct Streams {
    next: u64,
    sending: HashMap<u64, Sending>,
}

/// Pieces of a stream that are under way, and when the last one went.
#[derive(Debug)]
struct Sending {
    pieces: usize,
    since: Duration,
}

impl Streams {
    fn sent(&mut self, stream: u64, now: Duration) {
        let sending = self.sending.entry(stream).or_insert(Sending { pieces: 0, since: now });
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

    /// Since when the stillest stream has been still.
    fn still_since(&self) -> Option<Duration> {
        self.sending.values().map(|sending| sending.since).min()
    }
}

impl Pace {
    pub(crate) fn new(connection: Arc<Connection>) -> Arc<Pace> {
        let (streams, begun) = (Mutex::default(), Bell::default());
        Arc::new(Pace { connection, streams, begun })
    }

    /// The answer on a stream of HTTP/2, in pieces that are watched.
    pub(crate) fn watch(
        self: &Arc<Pace>,
        answer: Response<Payload>,
        answering: Answering,
    ) -> Response<Paced> {
        let id = {
            let mut streams = self.streams.lock();
            streams.next += 1;
            streams.next
        };
        let stream = Arc::new(Stream { pace: self.clone(), id, _answering: answering });
        let (rest, answering) = (Bytes::new(), None);
        answer.map(|payload| Paced { payload, rest, stream: Some(stream), answering })
    }

    /// Completes when a client has taken nothing of an answer for too long.
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
    _answering: Answering,
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

/// Bytes that say when nobody needs them any more.
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

/// What an answer keeps until its last byte is with the operating system.
#[derive(Debug)]
pub(crate) struct Answering {
    _request: UnderWay,
    memory: Option<Held>,
}

impl Answering {
    pub(crate) fn new(request: UnderWay, memory: Option<Held>) -> Answering {
        Answering { _request: request, memory }
    }
}

/// Bytes that keep something until they are dropped.
struct Kept<T> {
    bytes: Bytes,
    _with: T,
}

impl<T> AsRef<[u8]> for Kept<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes whose memory is counted until they are dropped.
pub(crate) fn counted(bytes: Bytes, memory: Held) -> Bytes {
    Bytes::from_owner(Kept { bytes, _with: memory })
}

/// A value of an answer's head that is dropped when the head is written. HTTP/2 would keep a value for later
/// answers, unless it is called sensitive.
pub(crate) fn counted_value(value: &HeaderValue, head: QueuedHead) -> HeaderValue {
    let bytes = Bytes::copy_from_slice(value.as_bytes());
    let kept = HeaderValue::from_maybe_shared(Bytes::from_owner(Kept { bytes, _with: head }));
    // The bytes are those of a value.
    let mut kept = kept.unwrap_or_else(|_| value.clone());
    kept.set_sensitive(true);
    kept
}

/// The body of an answer, watched or, where the socket tells enough, as it is.
#[derive(Debug)]
pub(crate) struct Paced {
    payload: Payload,
    rest: Bytes,
    stream: Option<Arc<Stream>>,
    answering: Option<Answering>,
}

impl Paced {
    /// The answer over HTTP/1.1.
    pub(crate) fn unwatched(answer: Response<Payload>, answering: Answering) -> Response<Paced> {
        let answering = Some(answering);
        answer.map(|payload| Paced { payload, rest: Bytes::new(), stream: None, answering })
    }

    /// What is behind the last piece of an answer is sent too. A small answer needs no such care: the
    /// system takes it at once.
    fn keep_with_last(&mut self, piece: Bytes) -> Bytes {
        let is_counted = |answering: &&Answering| answering.memory.is_some();
        match self.answering.as_ref().filter(is_counted) {
            Some(_) if self.payload.is_end_stream() => {
                Bytes::from_owner(Kept { bytes: piece, _with: self.answering.take() })
            }
            _ => piece,
        }
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let paced = self.get_mut();
        let Some(stream) = &paced.stream else {
            let frame = ready!(Pin::new(&mut paced.payload).poll_frame(context));
            return Poll::Ready(frame.map(|frame| {
                frame.map(|frame| frame.map_data(|piece| paced.keep_with_last(piece)))
            }));
        };
        if paced.rest.is_empty() {
            match ready!(Pin::new(&mut paced.payload).poll_frame(context)) {
                Some(Ok(frame)) => paced.rest = frame.into_data().unwrap_or_default(),
                end => return Poll::Ready(end),
            }
        }
        let piece = paced.rest.split_to(paced.rest.len().min(PIECE_BYTES));
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
        assert_eq!(streams.still_since(), None, "whoever has taken everything may be still");
    }

    #[tokio::test]
    async fn an_answer_is_the_same_in_pieces() {
        let whole: Bytes = (0..200_000u32).map(|number| number.to_le_bytes()[0]).collect();
        let (peer, limits) = (Peer::for_tests(), Limits::default());
        let connection = Connection::new(peer.clone(), "http", Runtime::system(), limits);
        let pace = Pace::new(connection.clone());
        let answer = Response::new(Payload::Whole(whole.clone()));
        let answering = Answering::new(connection.begin(), None);
        let mut body = pace.watch(answer, answering).into_body();
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
            let answering = Answering::new(connection.begin(), Some(memory));
            let mut body = match is_http2 {
                true => Pace::new(connection.clone()).watch(answer, answering).into_body(),
                false => Paced::unwatched(answer, answering).into_body(),
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
