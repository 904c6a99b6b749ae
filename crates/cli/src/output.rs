//! What commands show while they work. All of it goes to standard error.

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
