//! The worker's side: the main loop of a worker process.

use super::channel::{Channel, Kind, Message, malformed};
use crate::collection::Answerer;
use crate::engine::Sandbox;
use crate::error::ScriptError;
use crate::limits::{Clock, Limits};
use crate::run;
use crate::run::{Call, Outcome, Script, execute};
use crate::udf::Loaded;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::io::{ErrorKind, Result};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The resident memory above which a process exits instead of serving another script, to return it to the system.
const RESIDENT_BYTES_MAX: usize = 48 << 20;

/// CPU time of a worker beyond the time limit of a script. It matters only when the server is gone and cannot
/// kill the worker.
const SPARE_CPU_TIME: Duration = Duration::from_secs(3);

/// Serves scripts over the socket on standard input until it is closed. Call it only in a worker process: a
/// script that exceeds its limits ends the process.
///
/// # Errors
/// When standard input is not a socket, or a message is malformed.
pub fn serve_worker(clock: &Clock) -> Result<()> {
    // An aborted engine would write a core file each time.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut channel = Channel::new(UnixStream::from(socket));
    loop {
        channel.send(Kind::Ready, &[])?;
        let mut message = match channel.receive(|| true) {
            Ok(message) => message,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let limits: Limits = serde_json::from_str(&message.needed_text()?)?;
        limit_cpu_time(limits.time);
        let may_continue = match message.kind {
            Kind::Run => {
                let ran = run_script(channel, message, &limits, clock)?;
                channel = ran.0;
                ran.1
            }
            Kind::Open => serve_functions(&mut channel, &limits, clock)?,
            _ => return Err(malformed("it is out of order")),
        };
        if !may_continue || resident_bytes() > RESIDENT_BYTES_MAX {
            return Ok(());
        }
    }
}

/// The script's collection, at the other end of the channel.
struct Asking(Channel);

impl Answerer for Asking {
    fn answer(&mut self, operation: &str, options: &str, body: Option<&str>) -> String {
        let sent = self.0.send(Kind::Ask, &[Some(operation), Some(options), body]);
        let answer = sent.and_then(|()| self.0.receive(|| true)).and_then(|mut message| {
            match message.kind {
                Kind::Answer => message.needed_text(),
                _ => Err(malformed("it is out of order")),
            }
        });
        // The server is gone, so there is nothing left to do.
        answer.unwrap_or_else(|_| std::process::exit(1))
    }
}

/// Runs one script. Returns the channel and whether the worker may serve another.
fn run_script(
    channel: Channel,
    mut message: Message,
    limits: &Limits,
    clock: &Clock,
) -> Result<(Channel, bool)> {
    let script = Script { name: message.needed_text()?, source: message.needed_text()? };
    let links = (message.needed_text()?, message.needed_text()?);
    let kind = run::Kind::from_name(&message.needed_text()?);
    let (arguments, operation) = (message.needed_text()?, message.needed_text()?);
    let (request_body, response_body) = (message.text(), message.text());
    let call = Call {
        kind: kind.ok_or_else(|| malformed("it has no kind of script"))?,
        arguments: &arguments,
        operation: &operation,
        request_body: request_body.as_deref(),
        response_body: response_body.as_deref(),
    };
    let mut channel = Some(channel);
    let sandbox = Sandbox::new(limits, clock);
    let outcome = sandbox.as_ref().map_err(Clone::clone).and_then(|sandbox| {
        let gone = || ScriptError::Engine("the channel is in use".to_owned());
        let asking = Asking(channel.take().ok_or_else(gone)?);
        let (asking, outcome) = execute(sandbox, &script, &call, &links, asking);
        channel = asking.map(|asking| asking.0);
        outcome
    });
    let mut channel = channel.ok_or(ErrorKind::BrokenPipe)?;
    let ended = match &outcome {
        Ok(Outcome { response, request, log }) => {
            let texts = [response.as_deref(), request.as_deref(), Some(log.as_str())];
            channel.send(Kind::Done, &texts)
        }
        Err(error) => channel.send(Kind::Failed, &[Some(&error_text(error))]),
    };
    match ended {
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            let error = error_text(&ScriptError::Response(limits.response_bytes));
            channel.send(Kind::Failed, &[Some(&error)])?;
        }
        ended => ended?,
    }
    let may_continue = !outcome.as_ref().is_err_and(ScriptError::ends_worker);
    if !may_continue {
        // Skips freeing the sandbox: the engine may not be able to.
        std::process::exit(0);
    }
    drop(sandbox);
    Ok((channel, may_continue))
}

/// Serves calls of user-defined functions until the server closes them. Returns whether the worker may serve
/// another script.
fn serve_functions(channel: &mut Channel, limits: &Limits, clock: &Clock) -> Result<bool> {
    let mut loaded = Loaded::new(limits, clock);
    let mut scripts: HashMap<String, Script> = HashMap::new();
    loop {
        let mut message = channel.receive(|| true)?;
        match message.kind {
            Kind::Call => {}
            Kind::Close => return Ok(loaded.is_ok()),
            _ => return Err(malformed("it is out of order")),
        }
        let name = message.needed_text()?;
        if let Some(source) = message.text() {
            scripts.insert(name.clone(), Script { name: name.clone(), source });
        }
        let script = scripts.get(&name).ok_or_else(|| malformed("it names no function"))?;
        let called = loaded.as_mut().map_err(|error| error.clone());
        match called.and_then(|loaded| loaded.call(script, &message.rest())) {
            Ok(value) => channel.send(Kind::Value, &[value.as_deref()])?,
            Err(error) => {
                channel.send(Kind::Failed, &[Some(&error_text(&error))])?;
                if error.ends_worker() {
                    std::process::exit(0);
                }
            }
        }
    }
}

fn error_text(error: &ScriptError) -> String {
    serde_json::to_string(error).unwrap_or_default()
}

/// Sets a CPU limit, so that the system kills this process when a script far exceeds its time.
fn limit_cpu_time(time: Duration) {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let used = u64::try_from(used.tv_sec).unwrap_or(0);
    let limit = used.saturating_add((time + SPARE_CPU_TIME).as_secs());
    let maximum = getrlimit(Resource::Cpu).maximum;
    let limit = maximum.map_or(limit, |maximum| limit.min(maximum));
    // Without this limit, the server still kills its workers.
    let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(limit), maximum });
}

/// Resident memory of this process, in bytes; 0 if the system does not report it.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
    kibibytes.unwrap_or(0).saturating_mul(1024)
}
