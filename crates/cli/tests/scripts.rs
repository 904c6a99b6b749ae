//! A server runs scripts in separate processes: none can stop the server, and each ends in time.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_runtime::Runtime;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;
use support::{PATIENCE, headwater};

/// The time limit of a script, plus the documented tolerance and an allowance for a busy machine. Without a limit,
/// these scripts would take ten times as long.
const LATEST: Duration = Duration::from_secs(5 + 10);

/// A server that ends with its test.
struct Served {
    child: Child,
    address: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn start() -> Served {
        let mut child = headwater(&["serve", "--ephemeral", "--http", "127.0.0.1:0", "--no-https"])
            .args(["--no-auth", "--ready-json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        let address = ready["http"].as_str().unwrap().trim_start_matches("http://").to_owned();
        let served = Served { child, address };
        served.post("/dbs", "", &json!({"id": "d"}));
        let key = json!({"paths": ["/pk"], "kind": "Hash", "version": 2});
        served.post("/dbs/d/colls", "", &json!({"id": "c", "partitionKey": key}));
        served
    }

    fn post(&self, path: &str, head: &str, body: &Value) -> (String, String) {
        self.send("POST", path, head, &body.to_string())
    }

    /// Returns the status and the body of an answer.
    fn send(&self, verb: &str, path: &str, head: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nx-ms-version: 2020-07-15\r\n\
             x-ms-documentdb-partitionkey: [\"p\"]\r\nContent-Length: {length}\r\n{head}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].to_owned(), body.to_owned())
    }

    fn procedure(&self, id: &str, source: &str) -> (String, String) {
        let made = self.post("/dbs/d/colls/c/sprocs", "", &json!({"id": id, "body": source}));
        assert_eq!(made.0, "201", "{}", made.1);
        self.post(&format!("/dbs/d/colls/c/sprocs/{id}"), "", &json!([]))
    }

    /// Returns the child processes of the server.
    fn workers(&self) -> Vec<i32> {
        let id = self.child.id();
        let list = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let all = std::fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
        let lists =
            all.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let lists: Vec<String> = lists.chain(list).collect();
        let mut ids: Vec<i32> = lists
            .iter()
            .flat_map(|list| list.split_whitespace())
            .filter_map(|id| id.parse().ok())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

const SHARED: &str =
    "var a = {}; for (var i = 0; i < 24; i++) a = [a, a]; for (i = 0; i < 300; i++) a = [a];";

#[test]
fn a_script_that_cannot_be_interrupted_is_killed_and_leaves_nothing() {
    let served = Served::start();
    let clock = Runtime::system();
    let create = "__.createDocument(__.getSelfLink(), { id: 'written', pk: 'p' });";
    let began = clock.elapsed();
    let (status, body) = served
        .procedure("json", &format!("function f() {{ {SHARED} {create} JSON.stringify(a) }}"));
    let took = clock.elapsed() - began;
    assert_eq!(status, "408", "{body}");
    assert!(body.contains("did not end within 5000 ms"), "{body}");
    assert!(took < LATEST, "{took:?}");
    // Its writes were rolled back, and the id is free.
    let (status, _) = served.send("GET", "/dbs/d/colls/c/docs/written", "", "");
    assert_eq!(status, "404");
    let item = json!({"id": "written", "pk": "p"});
    assert_eq!(served.post("/dbs/d/colls/c/docs", "", &item).0, "201");
    let (status, body) = served.procedure("next", "function f() { __.response.setBody(7) }");
    assert_eq!((status.as_str(), body.as_str()), ("200", "7"));
}

/// Only Linux lists the children of a process.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_that_ends_fails_its_script_and_not_the_server() {
    let served = Served::start();
    let (status, _) = served.procedure("first", "function f() { __.response.setBody(1) }");
    assert_eq!(status, "200");
    let worker = served.workers();
    assert_eq!(worker.len(), 1, "an idle worker is kept: {worker:?}");
    let environment = std::fs::read(format!("/proc/{}/environ", worker[0])).unwrap();
    assert!(environment.is_empty(), "a worker has nothing of the server's environment");
    // Kills the worker while a script runs, like an abort of the engine.
    let source =
        "function f() { __.createDocument(__.getSelfLink(), { id: 'w', pk: 'p' }); for (;;) {} }";
    let (status, body) = std::thread::scope(|scope| {
        let running = scope.spawn(|| served.procedure("endless", source));
        let worker = rustix::process::Pid::from_raw(worker[0]).unwrap();
        // The worker has used a tenth of a second of CPU time: the script runs.
        let busy = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.as_raw_nonzero()));
            let stat = stat.unwrap_or_default();
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
            fields
                .get(11)
                .and_then(|ticks| ticks.parse::<u32>().ok())
                .is_some_and(|ticks| ticks >= 10)
        };
        while !busy() && !running.is_finished() {
            std::thread::yield_now();
        }
        let _ = rustix::process::kill_process(worker, rustix::process::Signal::ABORT);
        running.join().unwrap()
    });
    assert_eq!(status, "500", "{body}");
    assert!(body.contains("its process ended while the script ran (signal: 6"), "{body}");
    assert_eq!(served.send("GET", "/dbs/d/colls/c/docs/w", "", "").0, "404");
    let (status, body) = served.procedure("next", "function f() { __.response.setBody(7) }");
    assert_eq!((status.as_str(), body.as_str()), ("200", "7"));
}
