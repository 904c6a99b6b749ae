//! An idle server returns the memory of a burst to the operating system, and many containers need few
//! threads.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_runtime::Runtime;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;
use support::headwater;

const MIB: u64 = 1 << 20;
/// With more memory than this left, the memory of the burst was not returned.
const NEAR_MIB: u64 = 64;
/// Time limit for returning memory. An idle server needs less than 10 s; a busy machine may need more.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that ends with its test.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start() -> Served {
        let arguments =
            ["serve", "--ephemeral", "--http", "127.0.0.1:0", "--no-https", "--no-auth"];
        let mut child = headwater(&arguments)
            .arg("--ready-json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
        let address = ready["http"].as_str().unwrap().trim_start_matches("http://").to_owned();
        Served { child, address }
    }

    /// Sends a request and returns the status.
    fn post(&self, path: &str, head: &str, body: &str) -> u16 {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nx-ms-version: 2020-07-15\r\n\
             Content-Length: {length}\r\n{head}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        std::str::from_utf8(&head[9..]).unwrap().parse().unwrap()
    }

    fn kib_of(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Returns the resident anonymous memory. It excludes the executable's pages, of which a debug build has many.
    fn resident_mib(&self) -> u64 {
        self.kib_of("RssAnon") * 1024 / MIB
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn memory_goes_back_to_the_system_while_the_server_rests() {
    let server = Served::start();
    assert_eq!(server.post("/dbs", "", r#"{"id":"d"}"#), 201);
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    assert_eq!(server.post("/dbs/d/colls", "", container), 201);
    let key = "x-ms-documentdb-partitionkey: [\"p\"]\r\n";
    let numbers: Vec<String> = (0..3_000).map(|number| number.to_string()).collect();
    let text = "x".repeat(100_000);
    let item = format!(r#"{{"id":"1","pk":"p","a":[{}],"s":"{text}"}}"#, numbers.join(","));
    assert_eq!(server.post("/dbs/d/colls/c/docs", key, &item), 201);
    let before = server.resident_mib();

    // Holds texts of 100 kB until the memory limit of a query.
    let query = r#"{"query":"SELECT VALUE ARRAY(SELECT VALUE CONCAT(c.s, ToString(x)) FROM x IN c.a) FROM c"}"#;
    let head =
        format!("{key}x-ms-documentdb-isquery: True\r\nContent-Type: application/query+json\r\n");
    assert_eq!(server.post("/dbs/d/colls/c/docs", &head, query), 400);
    let peak = server.kib_of("VmHWM") * 1024 / MIB;
    assert!(peak > before + 200, "the query took little: {before} MiB, then {peak} MiB");

    let clock = Runtime::system();
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut resident = server.resident_mib();
    while resident > before + NEAR_MIB {
        assert!(
            clock.elapsed() < PATIENCE,
            "{resident} MiB are kept, {before} MiB were there before"
        );
        executor.block_on(async { clock.sleep(Duration::from_millis(200)).await });
        resident = server.resident_mib();
    }
}

#[test]
fn many_containers_need_few_threads() {
    let server = Served::start();
    assert_eq!(server.post("/dbs", "", r#"{"id":"d"}"#), 201);
    for number in 0..300 {
        let container = format!(
            r#"{{"id":"c{number}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#
        );
        assert_eq!(server.post("/dbs/d/colls", "", &container), 201);
    }
    // Maintenance looks at all of them each second.
    let clock = Runtime::system();
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    executor.block_on(async { clock.sleep(Duration::from_secs(3)).await });
    let threads = server.kib_of("Threads");
    assert!(threads < 40, "{threads} threads");
}
