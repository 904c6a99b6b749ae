//! Runs a server on a fresh folder of its own, and restarts it on the same data and addresses.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::process;

const STOP_TIME: Duration = Duration::from_secs(30);
/// Number of partitions per container, so that every client reads several ranges.
const PARTITIONS: &str = "3";

/// A running server, which is stopped on drop.
pub(super) struct Server {
    pub(super) binary: PathBuf,
    data: PathBuf,
    child: Child,
    pub(super) http: String,
    pub(super) https: String,
}

#[derive(Deserialize)]
struct Ready {
    http: String,
    https: String,
}

impl Server {
    /// Starts a server on an empty folder and free ports.
    pub(super) fn start(binary: &Path, data: &Path) -> Result<Server> {
        if data.exists() {
            std::fs::remove_dir_all(data).context("the data of the last run cannot be removed")?;
        }
        let (child, ready) = spawn(binary, data, "127.0.0.1:0", "127.0.0.1:0")?;
        Ok(Server {
            binary: binary.to_owned(),
            data: data.to_owned(),
            child,
            http: ready.http,
            https: ready.https,
        })
    }

    /// Stops the server cleanly and restarts it with the same data and addresses.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.stop()?;
        let address = |url: &str| url.split("//").nth(1).unwrap_or_default().to_owned();
        let (http, https) = (address(&self.http), address(&self.https));
        let (child, _) = spawn(&self.binary, &self.data, &http, &https)?;
        self.child = child;
        Ok(())
    }

    /// Returns the path of the certificate that a client has to trust.
    pub(super) fn authority(&self) -> PathBuf {
        self.data.join("tls/authority.pem")
    }

    /// Returns whether the server still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn stop(&mut self) -> Result<()> {
        let id = self.child.id().to_string();
        // SIGTERM instead of `Child::kill`, so that the server shuts down cleanly.
        let asked = process::succeeds(&["kill", "-TERM", &id]);
        if !asked {
            process::end(&mut self.child);
            return Ok(());
        }
        process::wait(&mut self.child, STOP_TIME).context("the server")?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        process::end(&mut self.child);
    }
}

fn spawn(binary: &Path, data: &Path, http: &str, https: &str) -> Result<(Child, Ready)> {
    std::fs::create_dir_all(data).with_context(|| format!("cannot make {}", data.display()))?;
    let log = std::fs::File::create(data.with_extension("log")).context("the server's log")?;
    let mut child = Command::new(binary)
        .args(["serve", "--ready-json", "--durability", "os", "--partitions", PARTITIONS])
        // The programs read previous images, with and without a policy of the container.
        .arg("--previous-images")
        .args(["--http", http, "--https", https, "--data"])
        .arg(data)
        .current_dir(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .with_context(|| format!("{} cannot be started", binary.display()))?;
    match ready_line(&mut child) {
        Ok(ready) => Ok((child, ready)),
        Err(error) => {
            process::end(&mut child);
            let log = std::fs::read_to_string(data.with_extension("log")).unwrap_or_default();
            Err(error.context(format!("the server did not start: {log}")))
        }
    }
}

/// Reads the ready line of a server. A server that neither prints it nor ends runs into the suite's time limit.
fn ready_line(child: &mut Child) -> Result<Ready> {
    let output = child.stdout.take().context("the output was not piped")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).context("the ready line")?;
    serde_json::from_str(&line).with_context(|| format!("the ready line {line:?}"))
}
