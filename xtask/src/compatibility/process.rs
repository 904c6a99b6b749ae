//! Runs child processes with a time limit. Stops them by their id when the limit is exceeded.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How much of the end of a command's output is kept.
const OUTPUT_BYTES_MAX: usize = 20_000;
const POLL: Duration = Duration::from_millis(50);

/// Returns whether a command without side effects succeeds, which shows that its program is installed.
pub(crate) fn succeeds(probe: &[&str]) -> bool {
    let Some((program, args)) = probe.split_first() else {
        return false;
    };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command up to a time limit. Returns its status and the end of its output.
pub(crate) fn run(command: &mut Command, at_most: Duration) -> Result<(ExitStatus, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
    let output = [drain(child.stdout.take()), drain(child.stderr.take())];
    let status = wait(&mut child, at_most).with_context(|| name)?;
    let said = output.map(|end| end.recv_timeout(Duration::from_secs(5)).unwrap_or_default());
    Ok((status, said.join("\n")))
}

/// Waits for a child. Kills it after the limit and returns an error.
pub(super) fn wait(child: &mut Child, at_most: Duration) -> Result<ExitStatus> {
    let mut waited = Duration::ZERO;
    while waited < at_most {
        if let Some(status) = child.try_wait().context("the end of a process is unknown")? {
            return Ok(status);
        }
        #[expect(clippy::disallowed_methods, reason = "this program has no runtime")]
        std::thread::sleep(POLL); // tidy: allow this program has no runtime
        waited += POLL;
    }
    end(child);
    bail!("did not end within {} s", at_most.as_secs())
}

/// Kills a child that this program started.
pub(crate) fn end(child: &mut Child) {
    // The child may already have ended; the errors are harmless.
    let _ = child.kill();
    let _ = child.wait();
}

/// Reads a pipe on a thread, so that a full pipe never blocks the child.
pub(super) fn drain(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let mut kept = Vec::new();
        let mut chunk = [0; 4096];
        if let Some(mut pipe) = pipe {
            while let Ok(read) = pipe.read(&mut chunk) {
                if read == 0 {
                    break;
                }
                kept.extend_from_slice(&chunk[..read]);
                let extra = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
                kept.drain(..extra);
            }
        }
        // The receiver may already be gone.
        let _ = sender.send(String::from_utf8_lossy(&kept).into_owned());
    };
    #[expect(clippy::disallowed_methods, reason = "ends with the pipe it reads")]
    std::thread::spawn(read); // tidy: allow ends with the pipe it reads
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bash(script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_ends_with_its_output() {
        let (status, said) =
            run(&mut bash("echo out; echo err >&2; exit 3"), Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(said.contains("out") && said.contains("err"), "{said}");
    }

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let error = run(&mut bash("exec sleep 60"), Duration::from_millis(100)).unwrap_err();
        assert!(format!("{error:#}").contains("did not end"), "{error:#}");
    }
}
