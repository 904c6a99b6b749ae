//! A server in this process, and a client that sends exact bytes.

#![allow(dead_code)] // every test program uses another part

use headwater_protocol::auth::{self, Key, Signable, format_http_date};
use headwater_protocol::route;
use headwater_runtime::Runtime;
use headwater_server::{Config, Server};
use headwater_store::{Account, Options};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The time limit for a response; nothing in these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) account: Account,
    pub(crate) runtime: Runtime,
    key: Key,
}

/// A parsed response.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) head: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn substatus(&self) -> Option<u32> {
        self.header("x-ms-substatus").map(|text| text.parse().unwrap())
    }
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> World {
        World::with_options(Options::default(), change).await
    }

    pub(crate) async fn with_options(options: Options, change: impl FnOnce(&mut Config)) -> World {
        World::over(Account::ephemeral_with(options).await.unwrap(), change).await
    }

    /// Starts a server in front of this account.
    pub(crate) async fn over(account: Account, change: impl FnOnce(&mut Config)) -> World {
        let mut config = Config::emulator().unwrap();
        config.http = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.https = None;
        change(&mut config);
        let runtime = Runtime::system();
        let key = config.keys.primary.clone();
        let server = Server::start(config, account.clone(), runtime.clone()).await.unwrap();
        World { server, account, runtime, key }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.http().unwrap()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    pub(crate) fn date(&self) -> String {
        format_http_date(self.runtime.unix_millis() / 1000)
    }

    /// The value of `authorization` for a request.
    pub(crate) fn signature(&self, verb: &str, path: &str, date: &str) -> String {
        let route = route::parse(path).unwrap();
        let links = route.links_for(path);
        let links = links.candidates();
        let resource_type = route.resource_type();
        let x_ms_date = Some(date);
        let signable = Signable { verb, resource_type, links: &links, x_ms_date, date: None };
        auth::sign(&self.key, &signable)
    }

    /// The bytes of a signed request.
    pub(crate) fn request(
        &self,
        verb: &str,
        path: &str,
        head: &[(&str, &str)],
        body: &[u8],
    ) -> Vec<u8> {
        let date = self.date();
        let authorization = self.signature(verb, path, &date);
        let mut text = format!(
            "{verb} {path} HTTP/1.1\r\nHost: {}\r\nx-ms-date: {date}\r\n\
             authorization: {authorization}\r\nContent-Length: {}\r\n",
            self.address(),
            body.len()
        );
        if !head.iter().any(|(name, _)| name.eq_ignore_ascii_case("x-ms-version")) {
            text.push_str("x-ms-version: 2020-07-15\r\n");
        }
        for (name, value) in head {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    /// Sends a signed request on a new connection.
    pub(crate) async fn send(
        &self,
        verb: &str,
        path: &str,
        head: &[(&str, &str)],
        body: &str,
    ) -> Got {
        let request = self.request(verb, path, head, body.as_bytes());
        self.send_raw(&request).await
    }

    /// Sends arbitrary bytes on a new connection and reads the response.
    pub(crate) async fn send_raw(&self, bytes: &[u8]) -> Got {
        let mut stream = self.connect().await;
        // A server that refuses early may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let answer = read_answer(&mut stream).await;
        answer.unwrap_or_else(|what| panic!("no answer: {what}"))
    }

    /// Creates a database `db` with a container `c`, partitioned by `/pk`.
    pub(crate) async fn with_container(self) -> World {
        let created = self.send("POST", "/dbs", &[], r#"{"id":"db"}"#).await;
        assert_eq!(created.status, 201, "{created:?}");
        let definition = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        let created = self.send("POST", "/dbs/db/colls", &[], definition).await;
        assert_eq!(created.status, 201, "{created:?}");
        self
    }

    pub(crate) async fn stop(self) {
        self.server.stop().await;
        self.account.close().await.unwrap();
    }
}

/// Reads one response; the error says what arrived instead.
pub(crate) async fn read_answer(stream: &mut TcpStream) -> Result<Got, String> {
    let reading = async {
        let mut bytes = Vec::new();
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(got) = parse_answer(&bytes) {
                return Ok(got);
            }
            match stream.read(&mut buffer).await {
                Ok(0) => return Err(format!("closed after {:?}", String::from_utf8_lossy(&bytes))),
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    Runtime::system().timeout(PATIENCE, reading).await.unwrap_or(Err("nothing in time".into()))
}

fn parse_answer(bytes: &[u8]) -> Option<Got> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = text.split("\r\n");
    let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let head: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = head.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    let body = bytes.get(end + 4..end + 4 + length)?.to_vec();
    Some(Got { status, head, body })
}
