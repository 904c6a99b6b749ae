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

/// A place on the terminal where a text is drawn anew again and again, and stays at the end.
pub(crate) struct Screen(ProgressBar);

impl Screen {
    /// Nothing where standard output is no terminal.
    pub(crate) fn new() -> Option<Screen> {
        let target = ProgressDrawTarget::stdout_with_hz(20);
        let style = ProgressStyle::with_template("{msg}").ok()?;
        let shown = !target.is_hidden();
        shown.then(|| Screen(ProgressBar::with_draw_target(None, target).with_style(style)))
    }

    /// How many lines and columns it has.
    pub(crate) fn size(&self) -> (usize, usize) {
        let (lines, columns) = console::Term::stdout().size();
        (lines.into(), columns.into())
    }

    /// Draws this instead of what is there. What is below the last line of the terminal is left out, and said.
    pub(crate) fn draw(&self, mut lines: Vec<String>) {
        // One for the cursor, and one to say it.
        let room = self.size().0.saturating_sub(2).max(1);
        if let Some(left) = lines.len().checked_sub(room).filter(|left| *left > 0) {
            lines.truncate(room);
            lines.push(format!("… {left} lines more than the terminal has"));
        }
        self.0.set_message(lines.join("\n"));
    }
}

/// Prints a line of a result. When nobody reads it any more (`| head`), that is no failure.
pub(crate) fn say(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_fmt(line).and_then(|()| out.write_all(b"\n"));
}

/// Whether a command failed only because nobody reads its output any more.
pub(crate) fn is_unread(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
