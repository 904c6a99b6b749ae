//! The load generator: connections that stay open, one request at a time on each, answers read whole.
//!
//! It never looks into a body, and whatever can send bytes and tell where an answer ends can be put
//! under the same load ([`Channel`]): other servers are measured by the very loop that measures ours.

use anyhow::{Context, Result, bail, ensure};
use headwater_protocol::auth::{self, EMULATOR_KEY, Key, Signable, format_http_date};
use headwater_protocol::route;
use headwater_runtime::Runtime;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Makes the bytes of the next request of a connection.
pub(in crate::commands::bench) type Requests = Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// What a signature needs.
#[derive(Clone)]
pub(in crate::commands::bench) struct Signer {
    key: Key,
    date: String,
}

impl Signer {
    pub(in crate::commands::bench) fn new(clock: &Runtime) -> Result<Signer> {
        let key = Key::from_base64(EMULATOR_KEY)?;
        Ok(Signer { key, date: format_http_date(clock.unix_millis() / 1000) })
    }

    /// The bytes of a signed request.
    pub(in crate::commands::bench) fn request(
        &self,
        verb: &str,
        path: &str,
        head: &str,
        body: &[u8],
    ) -> Vec<u8> {
        let date = Some(self.date.as_str());
        let authorization = route::parse(path).map(|route| {
            let links = route.links_for(path);
            let links = links.candidates();
            let resource_type = route.resource_type();
            let signable =
                Signable { verb, resource_type, links: &links, x_ms_date: date, date: None };
            auth::sign(&self.key, &signable)
        });
        let mut bytes = format!(
            "{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-ms-version: 2020-07-15\r\n\
             x-ms-date: {}\r\nauthorization: {}\r\n{head}Content-Length: {}\r\n\r\n",
            self.date,
            authorization.unwrap_or_default(),
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }
}

/// Whom to talk to.
#[derive(Clone, Debug)]
pub(in crate::commands::bench) struct Target {
    pub(in crate::commands::bench) address: SocketAddr,
    /// For those who ask for one when a connection begins.
    pub(in crate::commands::bench) password: String,
}

impl Target {
    pub(in crate::commands::bench) fn at(address: SocketAddr) -> Target {
        Target { address, password: String::new() }
    }
}

/// A connection that answers one request at a time.
pub(in crate::commands::bench) trait Channel:
    Send + Sized + 'static
{
    fn open(target: &Target) -> impl Future<Output = Result<Self>> + Send;
    /// Sends a request and reads its answer whole; an error unless the answer is what was asked for.
    fn exchange(&mut self, request: &[u8]) -> impl Future<Output = Result<()>> + Send;
}

/// One connection of HTTP/1.1.
pub(in crate::commands::bench) struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    /// The server said that it closes after its answer; the next request needs a new connection.
    closing: bool,
}

/// What matters of an answer.
#[derive(Clone, Debug)]
pub(in crate::commands::bench) struct Got {
    pub(in crate::commands::bench) status: u16,
    pub(in crate::commands::bench) etag: Option<String>,
    /// Items on a page of a feed.
    pub(in crate::commands::bench) items: u64,
    /// Where a query goes on.
    pub(in crate::commands::bench) continuation: Option<String>,
    /// How far the indexes of a container are, in percent.
    pub(in crate::commands::bench) indexed: Option<u64>,
}

/// What matters of the head of an answer. Read in one go: what a client spends on each header it does
/// not want would count against whoever sends more of them.
#[derive(Debug, Default)]
struct Head {
    status: u16,
    etag: Option<String>,
    items: u64,
    chunked: bool,
    closing: bool,
    length: Option<usize>,
    continuation: Option<String>,
    indexed: Option<u64>,
}

impl Head {
    fn of(text: &str) -> Result<Head> {
        let status = text.get(9..12).unwrap_or_default().parse()?;
        let mut head = Head { status, ..Head::default() };
        let mut rest = text;
        while let Some(end) = memchr::memchr(b'\n', rest.as_bytes()) {
            let (line, behind) = rest.split_at(end + 1);
            rest = behind;
            // The lengths of the names tell most of them apart.
            let colon = memchr::memchr(b':', line.as_bytes());
            if let Some(at) = colon.filter(|at| matches!(at, 4 | 10 | 14 | 15 | 17 | 56)) {
                head.note(&line[..at], line[at + 1..].trim())?;
            }
        }
        Ok(head)
    }

    fn note(&mut self, name: &str, value: &str) -> Result<()> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("etag") {
            self.etag = Some(value.to_owned());
        } else if is("content-length") {
            self.length = Some(value.parse()?);
        } else if is("x-ms-item-count") {
            self.items = value.parse().unwrap_or(0);
        } else if is("transfer-encoding") {
            self.chunked = value.eq_ignore_ascii_case("chunked");
        } else if is("x-ms-continuation") {
            self.continuation = Some(value.to_owned());
        } else if is("x-ms-documentdb-collection-index-transformation-progress") {
            self.indexed = value.parse().ok();
        } else if is("connection") {
            self.closing = value.eq_ignore_ascii_case("close");
        }
        Ok(())
    }
}

impl Connection {
    pub(in crate::commands::bench) async fn open(address: SocketAddr) -> Result<Connection> {
        let stream = connect(address).await?;
        Ok(Connection { address, stream, buffer: vec![0; 64 << 10], filled: 0, closing: false })
    }

    pub(in crate::commands::bench) async fn ask(&mut self, request: &[u8]) -> Result<Got> {
        if self.closing {
            self.stream = connect(self.address).await?;
            self.closing = false;
        }
        self.stream.write_all(request).await?;
        self.filled = 0;
        let head_end = loop {
            self.fill().await?;
            if let Some(at) = memchr::memmem::find(&self.buffer[..self.filled], b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = Head::of(std::str::from_utf8(&self.buffer[..head_end])?)?;
        self.closing = head.closing;
        let Head { status, etag, items, chunked, length, continuation, indexed, .. } = head;
        let total = match length {
            Some(bytes) => self.read_to(head_end + bytes).await?,
            None if chunked => self.read_chunks(head_end).await?,
            None => head_end,
        };
        ensure!(self.filled == total, "more bytes than the answer has");
        Ok(Got { status, etag, items, continuation, indexed })
    }

    /// The last answer, byte by byte.
    pub(in crate::commands::bench) fn last_answer(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    async fn read_to(&mut self, total: usize) -> Result<usize> {
        if total > self.buffer.len() {
            self.buffer.resize(total, 0);
        }
        while self.filled < total {
            self.fill().await?;
        }
        Ok(total)
    }

    async fn read_chunks(&mut self, mut at: usize) -> Result<usize> {
        loop {
            let Some((end, last)) = chunk_end(&self.buffer[..self.filled], at)? else {
                self.fill().await?;
                continue;
            };
            at = self.read_to(end).await?;
            if last {
                return Ok(at);
            }
        }
    }

    async fn fill(&mut self) -> Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let count = self.stream.read(&mut self.buffer[self.filled..]).await?;
        if count == 0 {
            bail!("the server closed the connection");
        }
        self.filled += count;
        Ok(())
    }
}

impl Channel for Connection {
    async fn open(target: &Target) -> Result<Connection> {
        Connection::open(target.address).await
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        let got = self.ask(request).await?;
        ensure!(got.status < 300, "answered with status {}", got.status);
        Ok(())
    }
}

pub(in crate::commands::bench) async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Where the chunk that begins at `at` ends, and whether it is the last; nothing while its size has
/// not arrived. Trailers are not understood, nobody here sends any.
fn chunk_end(bytes: &[u8], at: usize) -> Result<Option<(usize, bool)>> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else {
        ensure!(rest.len() < 100, "an answer in chunks has no size where one must be");
        return Ok(None);
    };
    let text = std::str::from_utf8(&rest[..line])?;
    let size = text.split(';').next().unwrap_or_default().trim();
    let size = usize::from_str_radix(size, 16).context("a chunk has no size")?;
    ensure!(size < 1 << 30, "a chunk of more than 1 GiB");
    Ok(Some((at + line + 2 + size + 2, size == 0)))
}

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands::bench) enum Until {
    Elapsed(Duration),
    /// So many requests were answered, not one more.
    Answered(u64),
}

/// Requests per second that so many connections get answered.
pub(in crate::commands::bench) async fn rate(
    clock: &Runtime,
    address: SocketAddr,
    connections: u64,
    window: Duration,
    requests: Requests,
) -> Result<f64> {
    let target = Target::at(address);
    run::<Connection>(clock, &target, connections, Until::Elapsed(window), requests).await
}

/// The same over any kind of connection. The first that fails ends all of them.
pub(in crate::commands::bench) async fn run<C: Channel>(
    clock: &Runtime,
    target: &Target,
    connections: u64,
    until: Until,
    requests: Requests,
) -> Result<f64> {
    let (sender, mut results) = mpsc::channel(64);
    let (numbers, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    // To connect is no part of what is measured: some start a process for every connection.
    let mut channels = Vec::new();
    for _ in 0..connections {
        channels.push(C::open(target).await?);
    }
    let started = clock.elapsed();
    for mut channel in channels {
        let (sender, requests, numbers) = (sender.clone(), requests.clone(), numbers.clone());
        let (inside, failed) = (clock.clone(), failed.clone());
        clock.spawn("load", async move {
            let work = async {
                let mut answered = 0;
                while !failed.load(Ordering::Relaxed) {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let over = match until {
                        Until::Elapsed(window) => inside.elapsed() - started >= window,
                        Until::Answered(count) => number >= count,
                    };
                    if over {
                        break;
                    }
                    channel.exchange(&requests(number)).await?;
                    answered += 1;
                }
                Ok::<u64, anyhow::Error>(answered)
            };
            let outcome = work.await;
            failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            let _ = sender.send(outcome).await;
        });
    }
    drop(sender);
    let mut outcomes = Vec::new();
    while let Some(answered) = results.recv().await {
        outcomes.push(answered);
    }
    let took = clock.elapsed() - started;
    let answered: Vec<u64> = outcomes.into_iter().collect::<Result<_>>()?;
    let total: u64 = answered.iter().sum();
    Ok(total as f64 / took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &str, at: usize, expected: Option<(usize, bool)>) {
        assert_eq!(chunk_end(bytes.as_bytes(), at).unwrap(), expected, "{bytes:?}");
    }

    #[test]
    fn the_end_of_a_chunk_is_known_as_soon_as_its_size_is() {
        check("", 0, None);
        check("1", 0, None);
        check("1a\r", 0, None);
        check("1a\r\n", 0, Some((32, false)));
        check("head1a;x=y\r\n", 4, Some((40, false)));
        check("0\r\n", 0, Some((5, true)));
        // The chunk before has not arrived whole.
        check("5\r\nab", 10, None);
    }

    #[test]
    fn a_head_says_how_an_answer_goes_on() {
        let head = Head::of(
            "HTTP/1.1 206 Odd\r\nX-MS-Item-Count:7\r\nx-ms-item-counter: 9\r\nETAG: \"a:b\"\r\n\
             content-length: 12\r\nConnection: Close\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .unwrap();
        assert_eq!((head.status, head.items, head.length), (206, 7, Some(12)));
        assert_eq!(head.etag.as_deref(), Some("\"a:b\""));
        assert!(head.closing && head.chunked);
        assert!(Head::of("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n").is_err());
        assert!(Head::of("SSH-2.0\r\n\r\n").is_err());
    }

    #[test]
    fn a_chunk_without_a_size_or_with_an_absurd_one_is_an_error() {
        assert!(chunk_end(b"xyz\r\n", 0).is_err());
        assert!(chunk_end(b"ffffffffff\r\n", 0).is_err());
        assert!(chunk_end(&[b'1'; 200], 0).is_err());
    }
}
