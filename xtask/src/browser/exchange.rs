//! Exchanges single HTTP/1.1 messages over blocking sockets, one per connection. It supports only a browser and a
//! Headwater server on loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Read timeout of a request: browsers open connections in advance and send nothing on them.
const SILENCE_MAX: Duration = Duration::from_millis(500);
/// Read timeout of an answer: an event stream never ends, and its start is enough.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const BYTES_MAX: usize = 1 << 20;

/// A request of the browser.
pub(super) struct Request {
    /// The request line, such as `GET /page HTTP/1.1`.
    line: String,
    head: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// Reads a request. `None` if the connection sends none in time.
    pub(super) fn read(stream: &mut TcpStream) -> Option<Request> {
        stream.set_read_timeout(Some(SILENCE_MAX)).ok()?;
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            if let Some(request) = Request::parse(&bytes) {
                return Some(request);
            }
            match stream.read(&mut chunk) {
                Ok(count) if count > 0 && bytes.len() < BYTES_MAX => {
                    bytes.extend_from_slice(&chunk[..count]);
                }
                _ => return None,
            }
        }
    }

    fn parse(bytes: &[u8]) -> Option<Request> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = text.lines();
        let line = lines.next()?.to_owned();
        let head: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length = head.iter().find(|(name, _)| name == "content-length");
        let length: usize = length.map_or(Some(0), |(_, value)| value.parse().ok())?;
        let body = bytes.get(end + 4..)?.get(..length)?.to_vec();
        Some(Request { line, head, body })
    }

    pub(super) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the host in the request, without its port.
    pub(super) fn host(&self) -> &str {
        let host = self.head.iter().find(|(name, _)| name == "host");
        host.and_then(|(_, value)| value.split(':').next()).unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Forwards the request with all its headers except `Connection`, and returns the answer to the browser.
    pub(super) fn pass_on(&self, server: SocketAddr, browser: &mut TcpStream) -> Result<()> {
        let mut bytes = format!("{}\r\n", self.line).into_bytes();
        for (name, value) in self.head.iter().filter(|(name, _)| name != "connection") {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"connection: close\r\n\r\n");
        bytes.extend_from_slice(&self.body);
        browser.write_all(&exchange(server, &bytes)?).context("the browser does not listen")
    }
}

/// Answers the browser.
pub(super) fn answer(browser: &mut TcpStream, status: &str, kind: &str, body: &str) {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\ncache-control: no-store\r\n\
         connection: close\r\n\r\n{body}"
    );
    // An error is harmless: the browser has closed the connection.
    let _ = browser.write_all(answer.as_bytes());
}

/// Sends a request and returns the body of the answer.
pub(super) fn send(server: SocketAddr, line: &str, more: &str, body: &str) -> Result<String> {
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: {server}\r\nx-ms-version: 2020-07-15\r\n{more}content-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    let answer = String::from_utf8_lossy(&exchange(server, request.as_bytes())?).into_owned();
    let status = answer.split(' ').nth(1).unwrap_or_default();
    ensure!(status.starts_with('2'), "{line} was answered with {answer:?}");
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// Sends a request and returns the bytes received within the limits.
fn exchange(server: SocketAddr, request: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).context("the server does not answer")?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count) = stream.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..count]);
        if count == 0 || bytes.len() > BYTES_MAX {
            break;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_when_all_of_it_is_there() {
        let whole = b"POST /report HTTP/1.1\r\nHost: evil.test:80\r\nContent-Length: 2\r\n\r\nok";
        assert!(Request::parse(&whole[..whole.len() - 1]).is_none());
        let request = Request::parse(whole).unwrap();
        assert_eq!(
            (request.path(), request.host(), request.text().as_str()),
            ("/report", "evil.test", "ok")
        );
    }
}
