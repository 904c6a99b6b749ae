//! The pool of workers: starts one when a script needs it, keeps idle ones, kills those past their deadline.

use super::channel::{Channel, Kind, Message};
use crate::error::ScriptError;
use crate::limits::Clock;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The most idle workers: as many as scripts run at a time.
const IDLE_MAX: usize = 8;

/// The time limit for a new worker to become ready.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// The time limit for a worker to read a message.
const WRITE_TIME_MAX: Duration = Duration::from_secs(5);

/// How long past the deadline of its script a worker may be silent. The engine ends most scripts itself within
/// a few milliseconds, with a better error.
const GRACE: Duration = Duration::from_millis(100);

/// How often the deadline of a silent worker is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A pool of processes that run scripts, started by a command of the caller.
///
/// The command must call [`serve_worker`](crate::serve_worker) on its standard input.
pub struct Workers {
    command: Box<dyn Fn() -> Command + Send + Sync>,
    clock: Clock,
    /// The longest idle first: the others may still be freeing the memory of their last script.
    idle: Mutex<VecDeque<Worker>>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("idle", &self.idle.lock().len()).finish_non_exhaustive()
    }
}

impl Workers {
    /// Creates an empty pool; `clock` bounds the time a worker may take to start.
    pub fn new(command: impl Fn() -> Command + Send + Sync + 'static, clock: Clock) -> Workers {
        Workers { command: Box::new(command), clock, idle: Mutex::default() }
    }

    /// Takes an idle worker, or starts one.
    pub(super) fn take(&self) -> std::result::Result<Worker, ScriptError> {
        loop {
            let idle = self.idle.lock().pop_front();
            let is_new = idle.is_none();
            let cannot_start = |error: std::io::Error| ScriptError::NoWorker(error.to_string());
            let mut worker = match idle {
                Some(worker) => worker,
                None => Worker::start((self.command)()).map_err(cannot_start)?,
            };
            let time = if is_new { START_TIME_MAX } else { Duration::ZERO };
            match worker.receive(&Deadline::new(time, &self.clock)) {
                Ok(message) if message.kind == Kind::Ready => return Ok(worker),
                // It has exited, or takes too long to free the memory of its last script.
                _ if !is_new => {}
                Ok(_) => return Err(cannot_start(ErrorKind::InvalidData.into())),
                Err(error) => return Err(cannot_start(error)),
            }
        }
    }

    /// Returns a worker to the pool for the next script.
    pub(super) fn give_back(&self, worker: Worker) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push_back(worker);
        } else {
            drop(idle);
            drop(worker);
        }
    }
}

/// The time at which a silent worker is killed.
pub(super) struct Deadline {
    clock: Clock,
    started: Duration,
    time: Duration,
}

impl Deadline {
    pub(super) fn new(time: Duration, clock: &Clock) -> Deadline {
        Deadline { clock: clock.clone(), started: clock(), time }
    }

    /// The time limit of the script.
    pub(super) fn time(&self) -> Duration {
        self.time
    }

    fn is_past(&self) -> bool {
        (self.clock)().saturating_sub(self.started) > self.time.saturating_add(GRACE)
    }
}

/// A process that runs scripts. Dropping it kills the process.
pub(super) struct Worker {
    child: Child,
    channel: Channel,
}

impl Worker {
    fn start(mut command: Command) -> Result<Worker> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(CHECK_INTERVAL))?;
        // A healthy worker reads messages at once.
        ours.set_write_timeout(Some(WRITE_TIME_MAX))?;
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the server only, which lets its scripts finish.
            .process_group(0)
            .spawn()?;
        Ok(Worker { child, channel: Channel::new(ours) })
    }

    pub(super) fn send(&mut self, kind: Kind, texts: &[Option<&str>]) -> Result<()> {
        self.channel.send(kind, texts)
    }

    pub(super) fn receive(&mut self, deadline: &Deadline) -> Result<Message> {
        self.channel.receive(|| !deadline.is_past())
    }

    /// Converts a failure of the worker into the script's error.
    pub(super) fn failed(mut self, error: &std::io::Error, deadline: &Deadline) -> ScriptError {
        if error.kind() == ErrorKind::TimedOut {
            return ScriptError::Time(deadline.time());
        }
        if error.kind() == ErrorKind::InvalidData {
            return ScriptError::Engine(error.to_string());
        }
        // The worker's end of the socket is closed, so it has exited or is about to.
        let _ = self.child.kill();
        let ended =
            self.child.wait().map_or_else(|error| error.to_string(), |ended| ended.to_string());
        ScriptError::Engine(format!(
            "its process ended while the script ran ({ended}); change the script, nothing was written"
        ))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both calls do nothing if the process was already waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
