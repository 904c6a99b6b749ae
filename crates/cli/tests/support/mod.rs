//! Shared helpers of command tests: a server that ends with its test, and commands run as processes.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where
#![allow(dead_code)] // Each test file uses a part of it.

pub(crate) mod fleet;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Time after which a command counts as hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the command, in an environment without contexts, keys or settings of the user.
pub(crate) fn headwater(arguments: &[&str]) -> Command {
    let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_headwater")));
    command.args(arguments);
    let nowhere = std::env::temp_dir().join("headwater-tests-without-contexts");
    command.env("HEADWATER_CONFIG_DIR", nowhere).current_dir(std::env::temp_dir());
    command
}

/// A command that is not told what the user told us.
pub(crate) fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("HEADWATER_") || name == "XDG_CONFIG_HOME" {
            command.env_remove(&*name);
        }
    }
    command
}

/// Runs a command to completion.
pub(crate) fn run(arguments: &[&str]) -> Output {
    headwater(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must succeed. Returns its standard output.
#[track_caller]
pub(crate) fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail. Returns the last line of its error output.
#[track_caller]
pub(crate) fn fails(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?} did not fail");
    let complaint = String::from_utf8(output.stderr).unwrap();
    complaint.lines().last().unwrap_or_default().to_owned()
}

/// Runs a command with text on its standard input.
pub(crate) fn run_with_input(arguments: &[&str], input: &str) -> Output {
    let mut child = headwater(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that fails early does not read all of it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// A child process that ends with its test.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts the command and reads its lines as they arrive.
    pub(crate) fn start(arguments: &[&str]) -> Running {
        Running::of(headwater(arguments))
    }

    /// Starts any command and reads its lines as they arrive.
    pub(crate) fn of(mut command: Command) -> Running {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        // Reading a pipe needs a thread; this one ends with the child.
        #[allow(clippy::disallowed_methods)]
        std::thread::spawn(move || pass_on(stdout, &sender)); // tidy: allow, no runtime in these tests
        Running { child, lines }
    }

    /// The next line.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("no line came in {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the command ended"),
        }
    }

    /// The next lines.
    #[track_caller]
    pub(crate) fn lines(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line()).collect()
    }

    /// Returns a line, if one arrives shortly.
    pub(crate) fn line_soon(&self) -> Option<String> {
        self.lines.recv_timeout(Duration::from_millis(300)).ok()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills the process.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn pass_on(lines: impl BufRead, to: &Sender<String>) {
    for line in lines.lines().map_while(Result::ok) {
        if to.send(line).is_err() {
            break;
        }
    }
}

/// A server.
pub(crate) struct Served {
    process: Running,
    /// `http://127.0.0.1:port`
    pub(crate) url: String,
}

impl Served {
    /// In memory.
    pub(crate) fn in_memory(more: &[&str]) -> Served {
        Served::start(&[&["--ephemeral"], more].concat(), "127.0.0.1:0")
    }

    /// On a data directory.
    pub(crate) fn on(data: &Path, address: &str) -> Served {
        Served::start(&["--data", data.to_str().unwrap()], address)
    }

    fn start(more: &[&str], address: &str) -> Served {
        let arguments = ["serve", "--http", address, "--no-https", "--ready-json"];
        let process = Running::start(&[&arguments, more].concat());
        let ready: serde_json::Value = serde_json::from_str(&process.line()).unwrap();
        let url = ready["http"].as_str().unwrap().to_owned();
        Served { process, url }
    }

    /// The address of the container the tests use.
    pub(crate) fn orders(&self) -> String {
        format!("{}/shop/orders", self.url)
    }

    /// Host and port alone.
    pub(crate) fn address(&self) -> String {
        self.url.trim_start_matches("http://").to_owned()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn kill(self) {
        self.process.kill();
    }

    /// The same, where another takes its place.
    pub(crate) fn end(&mut self) {
        self.process.end();
    }
}

/// Writes items into the container, and creates it if necessary.
#[track_caller]
pub(crate) fn import(served: &Served, items: &str) {
    let orders = served.orders();
    let arguments = ["import", &orders, "-", "--partition-key", "/customer"];
    let output = run_with_input(&arguments, items);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
}

/// Returns items with the ids of a range, spread over customers.
pub(crate) fn items(ids: std::ops::Range<u32>) -> String {
    ids.map(|id| format!("{{\"id\":\"{id}\",\"customer\":\"c{}\",\"n\":{id}.50}}\n", id % 7))
        .collect()
}

/// Returns the ids in lines of JSON, as numbers.
pub(crate) fn ids(lines: &[String]) -> Vec<u32> {
    let id = |line: &String| {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        json["id"].as_str().unwrap().parse().unwrap()
    };
    lines.iter().map(id).collect()
}

/// Reads everything from a reader as text.
pub(crate) fn text(mut reader: impl Read) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

/// Returns every file under a directory.
pub(crate) fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { dirs.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}
