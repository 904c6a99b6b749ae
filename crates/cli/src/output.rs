//! Output of commands: results to standard output, progress to standard error.

use std::fmt::Arguments;
use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Returns a progress counter without a known total. Hidden unless standard error is a terminal.
pub(crate) fn counter(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let template = format!("{{spinner}} {{human_pos}} {what}  {{per_sec}}  {{elapsed}}");
    let style = ProgressStyle::with_template(&template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// Returns a progress bar for a file of known length. Hidden unless standard error is a terminal.
pub(crate) fn bytes(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes}  {msg}  {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Prints a line of a result. A closed pipe (`| head`) is not a failure.
pub(crate) fn say(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_fmt(line).and_then(|()| out.write_all(b"\n"));
}

/// Returns whether output has colours: on a terminal, unless `NO_COLOR` is set and not empty.
pub(crate) fn is_coloured(is_terminal: bool) -> bool {
    is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns whether a command failed only because its output pipe was closed.
pub(crate) fn is_unread(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
