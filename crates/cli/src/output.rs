//! What commands say: results to standard output, progress to standard error.

use std::fmt::Arguments;
use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts things whose number is not known before. Silent where nobody looks.
pub(crate) fn counter(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let template = format!("{{spinner}} {{human_pos}} {what}  {{per_sec}}  {{elapsed}}");
    let style = ProgressStyle::with_template(&template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// Shows how much of a file of known length was read. Silent where nobody looks.
pub(crate) fn bytes(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes}  {msg}  {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Prints a line of a result. When nobody reads it any more (`| head`), that is no failure.
pub(crate) fn say(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_fmt(line).and_then(|()| out.write_all(b"\n"));
}

/// Whether output has colours: on a terminal, unless `NO_COLOR` is set to anything but an empty text.
pub(crate) fn is_coloured(is_terminal: bool) -> bool {
    is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether a command failed only because nobody reads its output any more.
pub(crate) fn is_unread(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
