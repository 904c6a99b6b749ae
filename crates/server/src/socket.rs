//! A socket that reports what it reads to its [`Connection`] and fails when its peer reads nothing for too
//! long. Knows nothing of HTTP.

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

/// What is not longer is sent as one piece.
const JOINED_MAX: usize = 4096;

/// See the head of this file.
pub(crate) struct Socket<S> {
    stream: S,
    connection: Arc<Connection>,
    /// Set while the peer reads nothing.
    stall: Option<Stall>,
}

/// A time during which the peer reads nothing.
struct Stall {
    since: Duration,
    next_check: BoxFuture<()>,
}

impl<S> Socket<S> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> Socket<S> {
        Socket { stream, connection, stall: None }
    }

    /// Passes on the result of a write, unless there has been none for too long.
    fn check<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
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
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match &read {
            Poll::Ready(Ok(())) => {
                let count = buffer.filled().len() - before;
                self.connection.received(count).map_err(io::Error::other)?;
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.connection.paused(),
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
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match joined(slices) {
            Some(bytes) => Pin::new(&mut self.stream).poll_write(context, &bytes),
            None => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
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

/// A head and a short body as one piece, which the system sends quicker than two.
fn joined(slices: &[IoSlice<'_>]) -> Option<SmallVec<[u8; JOINED_MAX]>> {
    let length: usize = slices.iter().map(|slice| slice.len()).sum();
    if slices.len() < 2 || length > JOINED_MAX {
        return None;
    }
    let mut bytes = SmallVec::new();
    slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_are_sent_as_one_and_long_ones_as_they_are() {
        let join = |lengths: &[usize]| {
            let pieces: Vec<Vec<u8>> = (1..).zip(lengths).map(|(n, &len)| vec![n; len]).collect();
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            joined(&slices).map(|bytes| assert_eq!(bytes[..], pieces.concat()[..]))
        };
        assert!(join(&[3, 5]).is_some() && join(&[0, JOINED_MAX]).is_some());
        assert!(join(&[1, 2, 3]).is_some());
        assert!(join(&[1, JOINED_MAX]).is_none(), "copying it would take longer");
        assert!(join(&[]).is_none() && join(&[5]).is_none(), "there is nothing to join");
    }
}
