//! Secrets that a program gives: a password manager, a vault. Nothing is kept and nothing is printed.

use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// What a shell command prints, without the white space around it. It may ask the user on the terminal.
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
