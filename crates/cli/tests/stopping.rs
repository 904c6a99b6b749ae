//! A signal ends a server within its grace period, even during queries, scripts and stalled requests.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;
use support::headwater;

/// The grace period: ten seconds for open requests and five to close the store.
const GRACE: Duration = Duration::from_secs(15);
/// Allowance for a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn request(verb: &str, path: &str, head: &str, body: &str) -> String {
    format!(
        "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nx-ms-version: 2020-07-15\r\nContent-Length: {}\r\n{head}\r\n{body}",
        body.len()
    )
}

/// Sends a request and leaves its answer unread.
fn send(address: &str, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

fn status(address: &str, text: &str) -> String {
    let mut stream = send(address, text);
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    String::from_utf8_lossy(&head[9..]).into_owned()
}

#[test]
fn a_signal_ends_a_server_within_its_grace_whatever_runs() {
    let arguments = [
        "serve",
        "--ephemeral",
        "--http",
        "127.0.0.1:0",
        "--no-https",
        "--no-auth",
        "--ready-json",
    ];
    let mut child = headwater(&arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let address = ready["http"].as_str().unwrap().trim_start_matches("http://").to_owned();

    let post =
        |path: &str, head: &str, body: &str| status(&address, &request("POST", path, head, body));
    assert_eq!(post("/dbs", "", r#"{"id":"d"}"#), "201");
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    assert_eq!(post("/dbs/d/colls", "", container), "201");
    let numbers: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let item = format!(r#"{{"id":"1","pk":"p","a":[{}]}}"#, numbers.join(","));
    let key = "x-ms-documentdb-partitionkey: [\"p\"]\r\n";
    assert_eq!(post("/dbs/d/colls/c/docs", key, &item), "201");
    let script = r#"{"id":"s","body":"function f() { for (;;) {} }"}"#;
    assert_eq!(post("/dbs/d/colls/c/sprocs", "", script), "201");

    // Each of these would run for a minute, and there are more of them than threads.
    let query = r#"{"query":"SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN w IN c.a"}"#;
    let head =
        format!("{key}x-ms-documentdb-isquery: True\r\nContent-Type: application/query+json\r\n");
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(send(&address, &request("POST", "/dbs/d/colls/c/docs", &head, query)));
        held.push(send(&address, &request("POST", "/dbs/d/colls/c/sprocs/s", key, "[]")));
    }
    // Half a head, half a body, and answers that are never read.
    held.push(send(&address, "GET /dbs HTTP/1.1\r\nHost"));
    held.push(send(
        &address,
        "POST /dbs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
    ));
    held.push(send(&address, &request("GET", "/dbs/d/colls/c/docs", "", "").repeat(200)));

    // Waits until they run. The server still answers other requests.
    let clock = headwater_runtime::Runtime::system();
    let sent = clock.elapsed();
    while clock.elapsed() - sent < Duration::from_millis(500) {
        assert_eq!(status(&address, &request("GET", "/health/live", "", "")), "200");
    }

    let (ended, ending) = std::sync::mpsc::channel();
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    // Waiting for a child needs a thread; this one ends with the child.
    #[allow(clippy::disallowed_methods)]
    std::thread::spawn(move || ended.send(child.wait())); // tidy: allow, no runtime in these tests
    let ended = ending.recv_timeout(GRACE + SLACK);
    if ended.is_err() {
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    }
    let status = ended.expect("the server ends within its grace").unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
    drop(held);
}
