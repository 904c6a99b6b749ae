//! A socket that reports what it reads to its [`Connection`], and fails when its peer reads nothing for too
//! long. It yields after each [`TURN_BYTES`], so that copying megabytes does not block the other connections of
//! its thread. Knows nothing of HTTP.

use crate::connection::Connection;
use headwater_runtime::BoxFuture;
use smallvec::SmallVec;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The largest write whose slices are joined.
const JOINED_MAX: usize = 4096;
/// The bytes of a turn. It ends once this much is read or written, and no write is longer, so a turn moves less
/// than twice as much. A page of 1,000 changes is slightly larger and is sent in one turn.
const TURN_BYTES: usize = 1 << 20;

/// A stream with fair turns and a time limit for stalled writes.
pub(crate) struct Socket<S> {
    stream: S,
    connection: Arc<Connection>,
    /// Bytes left in this turn.
    turn_left: usize,
    /// Set while the peer reads nothing.
    stall: Option<Stall>,
}

/// A period in which the peer reads nothing.
struct Stall {
    since: Duration,
    next_check: BoxFuture<()>,
}

impl<S> Socket<S> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> Socket<S> {
        Socket { stream, connection, turn_left: TURN_BYTES, stall: None }
    }

    /// Returns pending at the end of a turn; the next one starts when the task is polled again.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.turn_left == 0 {
            self.turn_left = TURN_BYTES;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn moved(&mut self, bytes: usize) {
        self.turn_left = self.turn_left.saturating_sub(bytes);
    }

    /// Passes on the result of a write, or fails when writes have been pending for too long.
    fn check(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            self.stall = None;
            self.moved(*written.as_ref().unwrap_or(&0));
            return Poll::Ready(written);
        }
        self.turn_left = TURN_BYTES;
        let connection = &self.connection;
        let runtime = &connection.runtime;
        let stall = self.stall.get_or_insert_with(|| Stall {
            since: runtime.elapsed(),
            next_check: runtime.sleep(connection.send_check()),
        });
        loop {
            ready!(stall.next_check.as_mut().poll(context));
            if runtime.elapsed().saturating_sub(stall.since) >= connection.send_patience() {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)));
            }
            stall.next_check = runtime.sleep(connection.send_check());
        }
    }
}

impl<S> fmt::Debug for Socket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("is_stalled", &self.stall.is_some()).finish_non_exhaustive()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_turn(context));
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match &read {
            Poll::Ready(Ok(())) => {
                let count = buffer.filled().len() - before;
                self.moved(count);
                self.connection.received(count).map_err(io::Error::other)?;
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                self.turn_left = TURN_BYTES;
                self.connection.paused();
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context));
        let bytes = bytes.get(..TURN_BYTES).unwrap_or(bytes);
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context));
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let stream = Pin::new(&mut self.stream);
        let written = match joined(slices, length) {
            Some(bytes) => stream.poll_write(context, &bytes),
            None if length > TURN_BYTES => {
                stream.poll_write_vectored(context, &first_of(slices, TURN_BYTES))
            }
            None => stream.poll_write_vectored(context, slices),
        };
        self.check(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Joins a head and a short body, which the operating system sends faster than two slices.
fn joined(slices: &[IoSlice<'_>], length: usize) -> Option<SmallVec<[u8; JOINED_MAX]>> {
    if slices.len() < 2 || length > JOINED_MAX {
        return None;
    }
    let mut bytes = SmallVec::new();
    slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
    Some(bytes)
}

/// Returns the first `left` bytes of some slices.
fn first_of<'s>(slices: &'s [IoSlice<'_>], mut left: usize) -> SmallVec<[IoSlice<'s>; 8]> {
    let mut first = SmallVec::new();
    for slice in slices {
        let taken = slice.len().min(left);
        first.push(IoSlice::new(&slice[..taken]));
        left -= taken;
        if left == 0 {
            break;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Peer;
    use crate::config::Limits;
    use headwater_runtime::Runtime;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Moves a large response while another task runs on the same thread.
    #[tokio::test(flavor = "current_thread")]
    async fn a_connection_that_moves_megabytes_lets_others_have_their_turn() {
        let socket = |stream| {
            let limits = Limits::default();
            let connection = Connection::new(Peer::for_tests(), "http", Runtime::system(), limits);
            Socket::new(stream, connection)
        };
        let sent: Vec<u8> = (0..=255).cycle().take(10 * TURN_BYTES + 7).collect();
        // The other end takes everything at once, so only the socket itself can end a turn.
        let (near, mut far) = tokio::io::duplex(2 * sent.len());
        let mut near = socket(near);
        assert!(turns_during(near.write_all(&sent)).await >= 10);
        let mut received = vec![0; sent.len()];
        far.read_exact(&mut received).await.unwrap();
        assert!(received == sent, "the bytes are as they were sent");
        let halves = [IoSlice::new(&sent[..9]), IoSlice::new(&sent[9..])];
        let written = near.write_vectored(&halves).await.unwrap();
        assert!(written <= TURN_BYTES);
        far.read_exact(&mut received[..written]).await.unwrap();
        assert!(received[..written] == sent[..written], "pieces are cut in their order");
        far.write_all(&sent).await.unwrap();
        let read = async {
            for piece in received.chunks_mut(TURN_BYTES / 4) {
                near.read_exact(piece).await?;
            }
            Ok(())
        };
        assert!(turns_during(read).await >= 10);
    }

    /// Counts the turns of another task until some work is done.
    async fn turns_during<T>(work: impl Future<Output = io::Result<T>>) -> usize {
        let mut turns = 0;
        let others = async {
            loop {
                turns += 1;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            done = work => drop(done.unwrap()),
            () = others => {}
        }
        turns
    }

    #[test]
    fn short_pieces_are_sent_as_one_and_long_ones_as_they_are() {
        let join = |lengths: &[usize]| {
            let pieces: Vec<Vec<u8>> = (1..).zip(lengths).map(|(n, &len)| vec![n; len]).collect();
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            joined(&slices, lengths.iter().sum())
                .map(|bytes| assert_eq!(bytes[..], pieces.concat()[..]))
        };
        assert!(join(&[3, 5]).is_some() && join(&[0, JOINED_MAX]).is_some());
        assert!(join(&[1, 2, 3]).is_some());
        assert!(join(&[1, JOINED_MAX]).is_none(), "copying it would take longer");
        assert!(join(&[]).is_none() && join(&[5]).is_none(), "there is nothing to join");
    }
}
