//! Bytes that were read from a connection and not yet looked at. Nothing here knows a protocol.

use anyhow::{Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More than any answer here has.
const BYTES_MAX: usize = 256 << 20;

/// A connection with a buffer in front.
pub(super) struct Stream {
    socket: TcpStream,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
}

impl Stream {
    pub(super) fn new(socket: TcpStream) -> Stream {
        Stream { socket, buffer: vec![0; 256 << 10], at: 0, filled: 0 }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.socket.write_all(bytes).await?)
    }

    /// What has arrived and was not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.at..self.filled]
    }

    /// Waits until so many bytes are there.
    pub(super) async fn need(&mut self, count: usize) -> Result<()> {
        ensure!(count <= BYTES_MAX, "an answer of {count} bytes is more than is believed");
        while self.filled - self.at < count {
            self.fill().await?;
        }
        Ok(())
    }

    /// Waits for anything more.
    pub(super) async fn fill(&mut self) -> Result<()> {
        if self.at == self.filled {
            (self.at, self.filled) = (0, 0);
        }
        if self.filled == self.buffer.len() {
            if self.at > 0 {
                self.buffer.copy_within(self.at..self.filled, 0);
                self.filled -= self.at;
                self.at = 0;
            } else {
                ensure!(self.buffer.len() < BYTES_MAX, "an answer never ends");
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        match self.socket.read(&mut self.buffer[self.filled..]).await? {
            0 => bail!("the server closed the connection"),
            count => self.filled += count,
        }
        Ok(())
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.at = (self.at + count).min(self.filled);
    }
}
