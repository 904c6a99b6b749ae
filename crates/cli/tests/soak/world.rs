//! The server under test, as a process that can be killed and restarted, and its current address.
//!
//! After a restart the server has another port, because another process or one of thousands of connections
//! might take the old one. All tasks get the current address here.

use crate::support;
use headwater_client::{Client, Container, Credential, Options, RetryPolicy};
use headwater_protocol::auth::{self, EMULATOR_KEY, Key, Signable, format_http_date};
use headwater_protocol::route::Route;
use headwater_runtime::Runtime;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// The container whose feed is judged.
pub(crate) const ITEMS: &str = "items";
/// A container for valid writes of hostile clients.
pub(crate) const NOISE: &str = "noise";
pub(crate) const DATABASE: &str = "soak";
pub(crate) const PARTITION_KEYS: usize = 24;
/// Time after which a server without an answer counts as hung.
const REQUEST_TIME: Duration = Duration::from_secs(120);
const START_TIME: Duration = Duration::from_secs(120);

pub(crate) struct World {
    pub(crate) runtime: Runtime,
    dir: TempDir,
    serving: Mutex<Serving>,
    /// The problems, which are reported together at the end.
    complaints: Mutex<Vec<String>>,
    peak_kib: Mutex<u64>,
    /// Set when writing is over. Writers stop at once, readers when they have seen the end.
    over: AtomicBool,
    /// Number of non-empty pages that readers have seen.
    pages: AtomicU64,
}

struct Serving {
    process: Option<Child>,
    client: Client,
    address: SocketAddr,
    starts: u32,
}

impl World {
    /// Starts the first server and creates the containers.
    pub(crate) async fn start(runtime: Runtime) -> World {
        let dir = tempfile::tempdir().unwrap();
        let serving = launch(&runtime, dir.path(), 0).await;
        let client = serving.client.clone();
        client.create_database(DATABASE).await.unwrap();
        for name in [ITEMS, NOISE] {
            let definition = serde_json::json!({
                "id": name,
                "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
                "changeFeedPolicy": {"retentionDuration": 1440},
            });
            client.create_container(DATABASE, definition.to_string(), None).await.unwrap();
        }
        World {
            runtime,
            dir,
            serving: Mutex::new(serving),
            complaints: Mutex::default(),
            peak_kib: Mutex::default(),
            over: AtomicBool::new(false),
            pages: AtomicU64::new(0),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        lock(&self.serving).address
    }

    /// Returns the judged container on the current server.
    pub(crate) fn items(&self) -> Container {
        lock(&self.serving).client.container(DATABASE, ITEMS)
    }

    /// Kills the server, and starts another one on the same data.
    pub(crate) async fn kill_and_restart(&self) {
        let starts = {
            let mut serving = lock(&self.serving);
            self.note_memory(&serving);
            end(&mut serving);
            serving.starts
        };
        let next = launch(&self.runtime, self.dir.path(), starts).await;
        *lock(&self.serving) = next;
    }

    pub(crate) fn complain(&self, what: String) {
        let mut complaints = lock(&self.complaints);
        // Only the first problems are kept; in a long run the others would hide them.
        if complaints.len() < 20 {
            complaints.push(what);
        }
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        lock(&self.complaints).clone()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(crate) fn end_writing(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Records that a reader saw a non-empty page.
    pub(crate) fn note_page(&self) {
        self.pages.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of non-empty pages that readers have seen.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::SeqCst)
    }

    /// Returns the peak memory of all servers, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        self.note_memory(&lock(&self.serving));
        *lock(&self.peak_kib)
    }

    fn note_memory(&self, serving: &Serving) {
        let Some(process) = &serving.process else { return };
        let status = format!("/proc/{}/status", process.id());
        let text = std::fs::read_to_string(status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        let mut peak = lock(&self.peak_kib);
        *peak = (*peak).max(kib.unwrap_or(0));
    }

    /// Returns the number of servers so far.
    pub(crate) fn starts(&self) -> u32 {
        lock(&self.serving).starts
    }

    /// Stops the server. Returns the panic messages of all servers.
    pub(crate) fn finish(&self) -> Vec<String> {
        let mut serving = lock(&self.serving);
        end(&mut serving);
        let said = (0..serving.starts).map(|n| log_of(self.dir.path(), n));
        let texts = said.map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let panics = |text: String| {
            text.lines().filter(|line| line.contains("panicked")).map(str::to_owned).collect()
        };
        texts.flat_map(|text| -> Vec<String> { panics(text) }).collect()
    }

    /// Returns the authorization of a request made now, and its date.
    pub(crate) fn sign(&self, verb: &str, route: &Route) -> (String, String) {
        let key = Key::from_base64(EMULATOR_KEY).unwrap();
        let date = format_http_date(self.runtime.unix_millis() / 1000);
        let links = route.links();
        let (links, resource_type) = (links.candidates(), route.resource_type());
        let x_ms_date = Some(date.as_str());
        let signable = Signable { verb, resource_type, links: &links, x_ms_date, date: None };
        (auth::sign(&key, &signable), date)
    }

    /// Starts a task whose result is awaited later.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.runtime.spawn(name, async move {
            let _ = sender.send(work.await);
        });
        receiver
    }

    pub(crate) async fn pause(&self, millis: u64) {
        self.runtime.sleep(Duration::from_millis(millis)).await;
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(serving: &mut Serving) {
    if let Some(mut process) = serving.process.take() {
        let _ = process.kill();
        let _ = process.wait();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        end(&mut lock(&self.serving));
    }
}

fn log_of(dir: &Path, start: u32) -> PathBuf {
    dir.join(format!("server-{start}.log"))
}

async fn launch(runtime: &Runtime, dir: &Path, starts: u32) -> Serving {
    let data = dir.join("data");
    let ready = dir.join(format!("ready-{starts}.json"));
    let any = "127.0.0.1:0";
    let data = data.to_str().unwrap();
    let arguments = ["serve", "--data", data, "--http", any, "--no-https", "--ready-json"];
    let mut command = support::headwater(&arguments);
    command.args(["--partitions", "2"]);
    command.stdin(Stdio::null()).stdout(std::fs::File::create(&ready).unwrap());
    command.stderr(std::fs::File::create(log_of(dir, starts)).unwrap());
    let mut process = command.spawn().unwrap();
    let waiting = async {
        loop {
            let line = std::fs::read_to_string(&ready).unwrap();
            if line.ends_with('\n') {
                break line;
            }
            let said = process.try_wait().unwrap();
            assert!(
                said.is_none(),
                "the server ended: {:?}",
                std::fs::read_to_string(log_of(dir, starts))
            );
            runtime.sleep(Duration::from_millis(10)).await;
        }
    };
    let line = runtime.timeout(START_TIME, waiting).await.expect("the server starts in time");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let url = line["http"].as_str().unwrap();
    let address = url.trim_start_matches("http://").parse().unwrap();
    let mut options = Options::default();
    options.retry = RetryPolicy::never();
    options.request_time = REQUEST_TIME;
    let credential = Credential::emulator().unwrap();
    let client = Client::new(url.parse().unwrap(), credential, options, runtime.clone()).unwrap();
    Serving { process: Some(process), client, address, starts: starts + 1 }
}
