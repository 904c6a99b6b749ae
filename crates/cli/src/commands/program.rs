//! The user's program that handles changes: located before anything starts, run once per batch, killed when its batch
//! is cancelled.

use anyhow::{Result, ensure};
use headwater_processor::{Ack, Batch, HandlerError};
use headwater_runtime::Runtime;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Intervals of polling for the end of a program: it starts at the minimum and backs off to the maximum.
const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(20);

/// A program that reads changes from standard input and exits with 0 when it has handled them.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    /// Checks that the program can be started, so that a misspelt name does not become failed changes.
    pub(crate) fn find(path: PathBuf, arguments: Vec<String>) -> Result<Program> {
        let is_bare_name = path.components().count() == 1 && !path.has_root();
        let found = match is_bare_name {
            true => std::env::var_os("PATH").is_some_and(|directories| {
                std::env::split_paths(&directories).any(|dir| is_executable(&dir.join(&path)))
            }),
            false => is_executable(&path),
        };
        let place = if is_bare_name { " on the PATH" } else { "" };
        ensure!(
            found,
            "cannot run {}: there is no such executable file{place}; give --exec the path of a program",
            path.display()
        );
        Ok(Program { path, arguments })
    }

    /// Runs the program on a batch.
    pub(crate) async fn handle(&self, batch: &Batch) -> Result<Ack, HandlerError> {
        let mut lines = Vec::new();
        for change in batch.changes.iter() {
            // A line break inside a JSON text is white space, so one change stays one line.
            lines
                .extend(change.body().iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
            lines.push(b'\n');
        }
        let lease = batch.context.lease();
        let about = [
            ("HEADWATER_LEASE", lease.lease.clone()),
            ("HEADWATER_EPOCH", lease.epoch.to_string()),
            ("HEADWATER_ATTEMPT", batch.context.delivery_attempt().to_string()),
        ];
        self.feed(&lines, &about).await.map_err(HandlerError::new)?;
        Ok(Ack::Done)
    }

    /// Runs the program with this input and environment. Dropping the future kills the program.
    pub(crate) async fn feed(&self, input: &[u8], about: &[(&str, String)]) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.path.display());
        // A file instead of a pipe: a program that does not read cannot block the writer.
        let mut file = tempfile::tempfile().map_err(failed)?;
        file.write_all(input).and_then(|()| file.rewind()).map_err(failed)?;
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .envs(about.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(file))
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.path.display()))?;
        let mut child = KilledOnDrop(child);
        let runtime = Runtime::system();
        let mut pause = POLL_MIN;
        loop {
            if let Some(ended) = child.0.try_wait().map_err(failed)? {
                return match ended.success() {
                    true => Ok(()),
                    false => Err(format!("{} ended with {ended}", self.path.display())),
                };
            }
            runtime.sleep(pause).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    }
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file() || path.with_extension("exe").is_file()
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Both calls have no effect on a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
