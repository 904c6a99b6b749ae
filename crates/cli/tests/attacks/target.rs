//! The server as a process: its memory, requests to it, and the traffic sent.

use crate::support::Running;
use headwater_runtime::Runtime;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

pub(crate) const DOCS: &str = "/dbs/d/colls/c/docs";
pub(crate) const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["p"]"#);
/// Time limit of a request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Size limit of an answer, which is at most a page.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Numbers in the array of the item that queries multiply.
const NUMBERS: usize = 300;

/// A server process with a container.
pub(crate) struct Server {
    pub(crate) target: Target,
    process: Running,
    _data: tempfile::TempDir,
}

impl Server {
    pub(crate) async fn start(runtime: &Runtime) -> Server {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().to_str().unwrap();
        let process = Running::start(&[
            "serve",
            "--data",
            path,
            "--http",
            "127.0.0.1:0",
            "--no-https",
            "--no-auth",
            "--ready-json",
        ]);
        let ready: serde_json::Value = serde_json::from_str(&process.line()).unwrap();
        let address = ready["http"].as_str().unwrap().trim_start_matches("http://");
        let address = address.parse().unwrap();
        let target = Target { runtime: runtime.clone(), address, sent: Arc::default() };
        target.fill().await;
        Server { target, process, _data: data }
    }

    /// Resets the peak memory.
    pub(crate) fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.process.pid()), "5").unwrap();
    }

    /// Returns the peak memory of the process.
    pub(crate) fn peak_mib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid());
        let text = std::fs::read_to_string(path).expect("the server still runs");
        let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }
}

/// The address of the server.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) runtime: Runtime,
    pub(crate) address: SocketAddr,
    sent: Arc<Sent>,
}

/// The traffic that the clients of a target have sent.
#[derive(Default)]
pub(crate) struct Sent {
    connections: AtomicU64,
    bytes: AtomicU64,
}

impl Sent {
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Bytes that the system has accepted for sending.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A connection that counts the bytes sent.
pub(crate) struct Connection {
    stream: TcpStream,
    sent: Arc<Sent>,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.sent.bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Target {
    /// The same server for other clients, whose sending is counted apart.
    pub(crate) fn for_attackers(&self) -> (Target, Arc<Sent>) {
        let sent: Arc<Sent> = Arc::default();
        (Target { sent: sent.clone(), ..self.clone() }, sent)
    }

    async fn fill(&self) {
        let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        let numbers: Vec<String> = (0..NUMBERS).map(|number| number.to_string()).collect();
        let numbers = numbers.join(",");
        let text = "x".repeat(10_000);
        let rich = format!(r#"{{"id":"rich","pk":"p","a":[{numbers}],"s":"{text}"}}"#);
        let script = r#"{"id":"endless","body":"function f() { for (;;) {} }"}"#;
        let scripts = "/dbs/d/colls/c/sprocs";
        let mut requests = vec![
            ("/dbs", r#"{"id":"d"}"#.to_owned()),
            ("/dbs/d/colls", container.to_owned()),
            (DOCS, rich),
            (scripts, script.to_owned()),
        ];
        // A page of the feed has almost four MiB.
        let large = |number: usize| {
            let text = "x".repeat(950 << 10);
            format!(r#"{{"id":"large{number}","pk":"p","text":"{text}"}}"#)
        };
        requests.extend((0..4).map(|number| (DOCS, large(number))));
        for (path, body) in requests {
            let status = self.ask("127.0.0.2", &request("POST", path, &[KEY], &body)).await;
            assert_eq!(status.unwrap(), 201, "{path}");
        }
    }

    /// Connects from an address of this machine. The window is small, so that a client that does not
    /// read has an effect soon.
    pub(crate) async fn connect(&self, from: &str) -> io::Result<Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(format!("{from}:0").parse().unwrap())?;
        socket.set_recv_buffer_size(16 << 10)?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        self.sent.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Connection { stream, sent: self.sent.clone() })
    }

    /// Sends a request on a new connection, and returns the status.
    pub(crate) async fn ask(&self, from: &str, request: &str) -> io::Result<u16> {
        let mut stream = self.connect(from).await?;
        ask_on(&mut stream, request).await
    }
}

pub(crate) fn request(verb: &str, path: &str, head: &[(&str, &str)], body: &str) -> String {
    let head: String = head.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!(
        "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nx-ms-version: 2020-07-15\r\n{head}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A query within the one partition key.
pub(crate) fn query(text: &str) -> String {
    let head = [
        KEY,
        ("x-ms-documentdb-isquery", "True"),
        ("Content-Type", "application/query+json"),
        ("x-ms-max-item-count", "100"),
    ];
    let body = serde_json::json!({ "query": text }).to_string();
    request("POST", DOCS, &head, &body)
}

pub(crate) async fn ask_on(stream: &mut Connection, request: &str) -> io::Result<u16> {
    stream.write_all(request.as_bytes()).await?;
    read_answer(stream).await
}

/// Reads an answer with a content length, and returns its status.
async fn read_answer(stream: &mut Connection) -> io::Result<u16> {
    let broken = |what: &str| io::Error::other(what.to_owned());
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await? == 0 || bytes.len() > ANSWER_BYTES_MAX {
            return Err(broken("the connection ended before an answer"));
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).to_ascii_lowercase();
    let status = head.get(9..12).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| broken("no status"))?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.map_or(Ok(0), |length| length.trim().parse::<usize>());
    let length = length.map_err(|_| broken("a bad length"))?.min(ANSWER_BYTES_MAX);
    while bytes.len() < head_end + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(broken("the connection ended within an answer"));
        }
    }
    Ok(status)
}
