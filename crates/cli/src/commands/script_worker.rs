//! `headwater script-worker`: a process in which a server runs scripts. Servers start it, people do not.
//!
//! It has neither the environment of the server nor its files: keys are not in its memory.

use anyhow::{Context, Result};
use headwater_runtime::Runtime;
use headwater_store::{ScriptWorkers, serve_script_worker};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The name of the command.
pub(crate) const NAME: &str = "script-worker";

/// The program of this process, also after its file was replaced by a newer version.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Serves scripts until the server closes standard input.
pub(crate) fn run() -> Result<()> {
    let runtime = Runtime::system();
    let served = serve_script_worker(&(Arc::new(move || runtime.elapsed()) as _));
    served.context("a script worker is started by a server; run headwater serve")
}

/// Workers that run this program.
pub(crate) fn workers() -> Result<Arc<ScriptWorkers>> {
    let program = match Path::new(OWN_PROGRAM).exists() {
        true => PathBuf::from(OWN_PROGRAM),
        false => std::env::current_exe().context("cannot find the path of this program")?,
    };
    let command = move || {
        let mut command = Command::new(&program);
        command.arg(NAME).env_clear();
        command
    };
    let runtime = Runtime::system();
    let clock = Arc::new(move || runtime.elapsed());
    Ok(Arc::new(ScriptWorkers::new(command, clock)))
}
