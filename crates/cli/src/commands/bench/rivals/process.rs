//! A server that was started: on a port of its own, with its words in a file, ended with its handle.
//!
//! What it has written is thrown away with the run, so nobody is asked to end gently.

use crate::commands::bench::harness::Harness;
use crate::commands::bench::http::load;
use crate::commands::bench::machine;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// A running server.
pub(super) struct Process {
    child: Child,
    words: PathBuf,
    ending: Signal,
}

impl Process {
    /// Starts a program; `ending` is the signal that makes it and its children go at once.
    pub(super) fn start(
        harness: &Harness,
        name: &str,
        mut command: Command,
        ending: Signal,
    ) -> Result<Process> {
        let words = harness.dir(&format!("{name}.log"));
        let file = File::create(&words).with_context(|| format!("no {}", words.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Process { child, words, ending })
    }

    /// Waits until it accepts connections.
    pub(super) fn wait_until_listening(
        &mut self,
        harness: &Harness,
        address: SocketAddr,
    ) -> Result<()> {
        let deadline = harness.clock.elapsed() + PATIENCE;
        loop {
            if harness.run(async move { Ok(load::connect(address).await.is_ok()) })? {
                return Ok(());
            }
            self.check_running()?;
            harness.check_interrupted()?;
            if harness.clock.elapsed() > deadline {
                bail!("it does not listen after {PATIENCE:?}; {}", self.last_words());
            }
            let clock = harness.clock.clone();
            harness.run(async move {
                clock.sleep(BETWEEN_TRIES).await;
                Ok(())
            })?;
        }
    }

    fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("it ended with {status}; {}", self.last_words()),
            None => Ok(()),
        }
    }

    fn last_words(&self) -> String {
        let text = std::fs::read(&self.words).unwrap_or_default();
        last_line(&String::from_utf8_lossy(&text))
    }

    /// CPU of the processes it has started and that still run.
    pub(super) fn cpu_of_children(&self) -> Result<Duration> {
        let id = self.child.id();
        let path = format!("/proc/{id}/task/{id}/children");
        let children = std::fs::read_to_string(&path).with_context(|| format!("no {path}"))?;
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        // One that has ended meanwhile no longer counts.
        Ok(children.filter_map(|child| machine::cpu_of(child).ok()).sum())
    }

    pub(super) fn resident_bytes(&self) -> Result<f64> {
        machine::resident_bytes_of(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Not when it has been waited for: the number may by now be somebody else's.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), self.ending);
            let _ = self.child.wait();
        }
    }
}

/// A port nobody has, at least for now: most of these servers cannot choose one themselves.
pub(super) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("there is no free port")?;
    Ok(listener.local_addr()?)
}

/// What a program said last, for a sentence about it.
pub(super) fn last_line(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    match line {
        Some(line) => format!("it said: {}", line.chars().take(CHARS_MAX).collect::<String>()),
        None => "it said nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_last_that_says_something() {
        assert_eq!(last_line("a\n  b c \n\n  \n"), "it said: b c");
        assert_eq!(last_line("\n \n"), "it said nothing");
        assert_eq!(last_line(&"x".repeat(1000)).len(), "it said: ".len() + 300);
    }
}
