//! Reads secrets from a program such as a password manager. It neither stores nor prints them.

use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// Returns the trimmed output of a shell command, which may prompt the user on the terminal.
pub(crate) fn of_command(command: &str) -> Result<String> {
    let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let said = Command::new(shell)
        .args([flag, command])
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {command:?} for the key"))?;
    ensure!(said.status.success(), "{command:?} should print the key, but failed: {}", said.status);
    let text = String::from_utf8(said.stdout).ok();
    let text = text.with_context(|| format!("what {command:?} prints is no text"))?;
    Ok(text.trim().to_owned())
}
