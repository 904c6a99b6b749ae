//! The alternate screen of a terminal: lines that are redrawn in place, and the keys that quit.
//!
//! Dropping it restores the terminal. It never prints to anything but a terminal.

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// The text of the last line.
const FOOTER: &str = "q quits";

/// A terminal in raw mode, showing its alternate screen.
pub(crate) struct Screen(());

impl Screen {
    /// Enters the screen. Returns none unless standard input and output are terminals.
    pub(crate) fn enter() -> io::Result<Option<Screen>> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Ok(None);
        }
        enable_raw_mode()?;
        // Created first, so that dropping it leaves raw mode if a later step fails.
        let screen = Screen(());
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(Some(screen))
    }

    /// Returns the width of the terminal in columns.
    pub(crate) fn columns() -> usize {
        size().map_or(80, |(columns, _)| columns.into())
    }

    /// Redraws the screen. Lines that do not fit are replaced by their count.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let rows = size().map_or(24, |(_, rows)| usize::from(rows));
        let mut out = io::stdout().lock();
        queue!(out, MoveTo(0, 0))?;
        for line in fitting(lines, rows) {
            queue!(out, Print(line), Clear(ClearType::UntilNewLine), Print("\r\n"))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), Print(FOOTER))?;
        out.flush()
    }

    /// Returns whether q, Escape or Ctrl-C was pressed. Does not wait.
    pub(crate) fn is_quit_pressed(&self) -> io::Result<bool> {
        while event::poll(Duration::ZERO)? {
            if is_quit(&event::read()?) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Errors are ignored: the process ends soon, and a closed terminal cannot be restored.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn is_quit(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return false };
    let is_control = modifiers.contains(KeyModifiers::CONTROL);
    let quits = match code {
        KeyCode::Esc => true,
        KeyCode::Char('q' | 'Q') => !is_control,
        KeyCode::Char('c') => is_control,
        _ => false,
    };
    quits && *kind != KeyEventKind::Release
}

/// Returns the lines that fit above the footer.
fn fitting(lines: &[String], rows: usize) -> Vec<String> {
    let room = rows.saturating_sub(1).max(1);
    if lines.len() <= room {
        return lines.to_vec();
    }
    let shown = room - 1;
    let mut fit = lines[..shown].to_vec();
    fit.push(format!("… {} more lines", lines.len() - shown));
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_do_not_fit_are_counted() {
        let lines: Vec<String> = (0..5).map(|n| n.to_string()).collect();
        assert_eq!(fitting(&lines, 6), lines);
        assert_eq!(fitting(&lines, 4), ["0", "1", "… 3 more lines"]);
        assert_eq!(fitting(&lines, 0), ["… 5 more lines"]);
    }

    #[test]
    fn q_escape_and_control_c_quit_and_nothing_else() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let none = KeyModifiers::NONE;
        assert!(is_quit(&key(KeyCode::Char('q'), none)));
        assert!(is_quit(&key(KeyCode::Esc, none)));
        assert!(is_quit(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!is_quit(&key(KeyCode::Char('c'), none)));
        assert!(!is_quit(&key(KeyCode::Char('q'), KeyModifiers::CONTROL)));
        assert!(!is_quit(&Event::FocusLost));
    }
}
