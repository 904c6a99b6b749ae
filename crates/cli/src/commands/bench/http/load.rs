//! The load generator: connections that stay open, one request at a time on each, answers read whole.

use anyhow::{Context, Result, bail, ensure};
use headwater_protocol::auth::{self, EMULATOR_KEY, Key, Signable, format_http_date};
use headwater_protocol::route;
use headwater_runtime::Runtime;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Makes the bytes of the next request of a connection.
pub(super) type Requests = Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// What a signature needs.
#[derive(Clone)]
pub(super) struct Signer {
    key: Key,
    date: String,
}

impl Signer {
    pub(super) fn new(clock: &Runtime) -> Result<Signer> {
        let key = Key::from_base64(EMULATOR_KEY)?;
        Ok(Signer { key, date: format_http_date(clock.unix_millis() / 1000) })
    }

    /// The bytes of a signed request.
    pub(super) fn request(&self, verb: &str, path: &str, head: &str, body: &[u8]) -> Vec<u8> {
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

/// One connection.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// What matters of an answer.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) bytes: usize,
    pub(super) etag: Option<String>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; 64 << 10], filled: 0 })
    }

    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<Got> {
        self.stream.write_all(request).await?;
        self.filled = 0;
        let head_end = loop {
            self.fill().await?;
            let known = &self.buffer[..self.filled];
            if let Some(at) = known.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = std::str::from_utf8(&self.buffer[..head_end])?;
        let status: u16 = head.get(9..12).unwrap_or_default().parse()?;
        let header = |name: &str| {
            let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
            let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let etag = header("etag");
        let bytes: usize = header("content-length").unwrap_or_default().parse().unwrap_or(0);
        let total = head_end + bytes;
        if total > self.buffer.len() {
            self.buffer.resize(total, 0);
        }
        while self.filled < total {
            self.fill().await?;
        }
        ensure!(self.filled == total, "more bytes than the answer has");
        Ok(Got { status, bytes, etag })
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

/// Requests per second that so many connections get answered.
pub(super) async fn rate(
    clock: &Runtime,
    address: SocketAddr,
    connections: u64,
    window: Duration,
    requests: Requests,
) -> Result<f64> {
    let (sender, mut results) = mpsc::channel(64);
    let numbers = Arc::new(AtomicU64::new(0));
    let started = clock.elapsed();
    for _ in 0..connections {
        let (sender, requests, numbers) = (sender.clone(), requests.clone(), numbers.clone());
        let inside = clock.clone();
        clock.spawn("load", async move {
            let work = async {
                let mut connection = Connection::open(address).await?;
                let mut answered = 0;
                while inside.elapsed() - started < window {
                    let request = requests(numbers.fetch_add(1, Ordering::Relaxed));
                    let got = connection.ask(&request).await?;
                    ensure!(got.status < 300, "answered with status {}", got.status);
                    answered += 1;
                }
                Ok::<u64, anyhow::Error>(answered)
            };
            let _ = sender.send(work.await).await;
        });
    }
    drop(sender);
    let mut total = 0;
    while let Some(answered) = results.recv().await {
        total += answered?;
    }
    Ok(total as f64 / (clock.elapsed() - started).as_secs_f64())
}
