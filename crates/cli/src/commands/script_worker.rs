//! `headwater script-worker`: a sandbox process in which a server runs scripts. Only servers start it.
//!
//! It inherits neither the environment of the server nor its files, so its memory holds no keys.

use anyhow::{Context, Result};
use headwater_runtime::Runtime;
use headwater_store::{ScriptWorkers, serve_script_worker};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The name of the command.
pub(crate) const NAME: &str = "script-worker";

/// The executable of this process, valid even after an upgrade replaced the file.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Serves scripts until the server closes standard input.
pub(crate) fn run() -> Result<()> {
    let runtime = Runtime::system();
    let served = serve_script_worker(&(Arc::new(move || runtime.elapsed()) as _));
    served.context("a script worker is started by a server; run headwater serve")
}

/// Returns a pool of workers that run this executable.
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
