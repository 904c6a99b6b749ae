//! Whether a client takes what it is sent over HTTP/2.
//!
//! Over HTTP/1.1 a client that does not read leaves the socket full, and `peers` sees that. Over HTTP/2 it
//! can read the socket, answer every ping, and still never open the window of a stream: the answer then lies
//! in memory for as long as the connection lives. So answers go out in pieces that say when they are gone.
//! A stream none of whose pieces goes for too long ends its connection.
//!
//! ```text
//! body    |piece|piece|piece|…      pulled one by one as there is room
//!            └ in the queue of HTTP/2 until the client's window lets it out, then dropped
//! ```
//!
//! A stream that has nothing to send, such as events between two changes, has no piece and is left alone.

use crate::answer::Payload;
use bytes::Bytes;
use headwater_runtime::{Bell, Runtime};
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
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
    runtime: Runtime,
    still_max: Duration,
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
    pub(crate) fn new(runtime: Runtime, still_max: Duration) -> Arc<Pace> {
        let (streams, begun) = (Mutex::default(), Bell::default());
        Arc::new(Pace { runtime, still_max, streams, begun })
    }

    /// The answer on a stream of HTTP/2, in pieces that are watched.
    pub(crate) fn watch(self: &Arc<Pace>, answer: Response<Payload>) -> Response<Paced> {
        let id = {
            let mut streams = self.streams.lock();
            streams.next += 1;
            streams.next
        };
        let stream = Arc::new(Stream { pace: self.clone(), id });
        answer.map(|payload| Paced { payload, rest: Bytes::new(), stream: Some(stream) })
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
            let still = self.runtime.elapsed().saturating_sub(since);
            if still >= self.still_max {
                return;
            }
            self.runtime.sleep(self.still_max - still).await;
        }
    }
}

#[derive(Debug)]
struct Stream {
    pace: Arc<Pace>,
    id: u64,
}

impl Stream {
    fn piece(self: &Arc<Stream>, bytes: Bytes) -> Bytes {
        let now = self.pace.runtime.elapsed();
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
        let now = pace.runtime.elapsed();
        pace.streams.lock().taken(self.stream.id, now);
    }
}

/// The body of an answer, watched or, where the socket tells enough, as it is.
#[derive(Debug)]
pub(crate) struct Paced {
    payload: Payload,
    rest: Bytes,
    stream: Option<Arc<Stream>>,
}

impl From<Payload> for Paced {
    fn from(payload: Payload) -> Paced {
        Paced { payload, rest: Bytes::new(), stream: None }
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
            return Pin::new(&mut paced.payload).poll_frame(context);
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
        let pace = Pace::new(Runtime::system(), SECOND);
        let answer = Response::new(Payload::Whole(whole.clone()));
        let mut body = pace.watch(answer).into_body();
        assert_eq!(body.size_hint().exact(), Some(200_000));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), PIECE_BYTES);
        assert_eq!(body.size_hint().exact(), Some(200_000 - PIECE_BYTES as u64));
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!([first, rest].concat(), whole);
        assert_eq!(pace.streams.lock().still_since(), None);
    }
}
