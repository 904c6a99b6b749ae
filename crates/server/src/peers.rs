//! Who is connected: how many connections each address has, and whether a peer still reads.
//!
//! One address may not hold every connection there is, and a peer that asks and never reads its answer
//! does not keep what was made for it. Neither knows HTTP.

use headwater_runtime::Runtime;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is not longer is sent as one piece.
const JOINED_MAX: usize = 4096;

/// How many connections each address has.
#[derive(Debug)]
pub(crate) struct Addresses {
    connections: Mutex<HashMap<IpAddr, usize>>,
    each_max: usize,
}

/// One connection of an address, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Counted {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    pub(crate) fn new(each_max: usize) -> Arc<Addresses> {
        Arc::new(Addresses { connections: Mutex::default(), each_max })
    }

    /// Counts a connection; `None` if its address has as many as it may have.
    pub(crate) fn count(self: &Arc<Addresses>, peer: IpAddr) -> Option<Counted> {
        let address = owner_of(peer);
        let mut connections = self.lock();
        let count = connections.entry(address).or_default();
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        Some(Counted { addresses: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut connections = self.addresses.lock();
        if let Some(count) = connections.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.address);
            }
        }
    }
}

/// Whoever has one address of IPv6 has the 2^64 beside it.
fn owner_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(network.into())
        }
        address => address,
    }
}

/// A stream that fails when its peer takes nothing for too long.
pub(crate) struct Reading<S> {
    stream: S,
    runtime: Runtime,
    still_max: Duration,
    /// Runs while the peer takes nothing.
    still: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> Reading<S> {
    pub(crate) fn new(stream: S, runtime: Runtime, still_max: Duration) -> Reading<S> {
        Reading { stream, runtime, still_max, still: None }
    }

    /// Passes on what became of writing, unless it has been nothing for too long.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.still = None;
            return written;
        }
        let still = self.still.get_or_insert_with(|| self.runtime.sleep(self.still_max));
        match still.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S> fmt::Debug for Reading<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("still", &self.still.is_some()).finish_non_exhaustive()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Reading<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Reading<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
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
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, ended)
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
    fn an_address_has_its_share_and_gets_it_back() {
        let addresses = Addresses::new(2);
        let count = |text: &str| addresses.count(text.parse().unwrap());
        let one = count("10.0.0.1").unwrap();
        let two = count("::ffff:10.0.0.1").unwrap();
        assert!(count("10.0.0.1").is_none(), "both forms of one address are one");
        let other = count("10.0.0.2");
        assert!(other.is_some());
        drop(two);
        let again = count("10.0.0.1");
        assert!(again.is_some());
        drop((one, other, again));
        assert!(addresses.lock().is_empty(), "nothing is kept of those who have gone");
    }

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

    #[test]
    fn neighbours_of_one_network_share() {
        let addresses = Addresses::new(1);
        let count = |text: &str| addresses.count(text.parse().unwrap());
        let one = count("2001:db8::1");
        assert!(one.is_some());
        assert!(count("2001:db8::ffff:1").is_none());
        assert!(count("2001:db8:0:1::1").is_some());
    }
}
