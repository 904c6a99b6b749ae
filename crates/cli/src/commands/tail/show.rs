//! Formats one line per change: JSON for programs, readable text for people.

use crate::output;
use crate::transfer::Object;
use anstyle::{AnsiColor, Style as Colour};
use anyhow::Result;
use clap::ValueEnum;
use headwater_model::{FeedMode, Lsn, PartitionId, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::{self, IsTerminal, StdoutLock, Write};

/// Length limit of an item in readable text.
const SHOWN_CHARS: usize = 160;

/// For whom lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// One line of JSON per change
    Json,
    /// Readable, with colours on a terminal
    Text,
}

/// A change, parsed as far as printing needs.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    bytes: &'a [u8],
    seen: Seen<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Seen<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(rename = "_lsn")]
    lsn: Option<u64>,
    #[serde(rename = "_ts")]
    time: Option<u64>,
    #[serde(borrow, default)]
    current: Option<&'a RawValue>,
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    lsn: Option<u64>,
    crts: Option<u64>,
    #[serde(borrow)]
    operation_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
}

impl<'a> Change<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Change<'a> {
        Change { bytes, seen: serde_json::from_slice(bytes).unwrap_or_default() }
    }

    /// Returns the LSN. All changes of one transaction have the same LSN.
    pub(crate) fn lsn(&self) -> Option<Lsn> {
        let of_envelope = self.seen.metadata.as_ref().and_then(|metadata| metadata.lsn);
        of_envelope.or(self.seen.lsn).map(Lsn::new)
    }

    fn seconds(&self) -> Option<u64> {
        let of_envelope = self.seen.metadata.as_ref().and_then(|metadata| metadata.crts);
        of_envelope.or(self.seen.time)
    }

    fn kind(&self) -> &str {
        let metadata = self.seen.metadata.as_ref();
        metadata.and_then(|metadata| metadata.operation_type.as_deref()).unwrap_or("change")
    }

    /// Returns the item in the change, and its id.
    fn item(&self, mode: FeedMode) -> (&[u8], Option<Cow<'_, str>>) {
        match (mode, self.seen.current) {
            (FeedMode::AllVersionsAndDeletes, Some(current)) => {
                let inner: Seen<'_> = serde_json::from_str(current.get()).unwrap_or_default();
                let of_delete = self.seen.metadata.as_ref().and_then(|data| data.id.clone());
                (current.get().as_bytes(), inner.id.or(of_delete))
            }
            _ => (self.bytes, self.seen.id.clone()),
        }
    }
}

/// Prints changes to standard output.
pub(crate) struct Printer {
    out: io::BufWriter<StdoutLock<'static>>,
    style: Style,
    mode: FeedMode,
    coloured: bool,
}

impl Printer {
    pub(crate) fn new(style: Option<Style>, mode: FeedMode) -> Printer {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let style = style.unwrap_or(if terminal { Style::Text } else { Style::Json });
        let coloured = output::is_coloured(terminal);
        Printer { out: io::BufWriter::new(stdout.lock()), style, mode, coloured }
    }

    /// Prints a change. Returns false if the output was closed, which is not a failure.
    pub(crate) fn print(&mut self, range: PartitionId, change: &Change<'_>) -> Result<bool> {
        let written = match self.style {
            Style::Json => self.out.write_all(&one_line(change.bytes)),
            Style::Text => self.out.write_all(self.text(range, change).as_bytes()),
        };
        match written.and_then(|()| self.out.write_all(b"\n")) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        match self.out.flush() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn text(&self, range: PartitionId, change: &Change<'_>) -> String {
        let paint = |colour: AnsiColor, text: &str| match self.coloured {
            true => {
                let style = Colour::new().fg_color(Some(colour.into()));
                format!("{}{text}{}", style.render(), style.render_reset())
            }
            false => text.to_owned(),
        };
        let time = change.seconds().map(|seconds| Timestamp::from_seconds(seconds).to_string());
        let time = time.as_deref().and_then(|time| time.get(11..19)).unwrap_or("--:--:--");
        let lsn = change.lsn().map_or_else(|| "-".to_owned(), |lsn| lsn.to_string());
        let kind = change.kind();
        let kind = match kind {
            "create" => paint(AnsiColor::Green, kind),
            "delete" => paint(AnsiColor::Red, kind),
            _ => paint(AnsiColor::Yellow, kind),
        };
        let (item, id) = change.item(self.mode);
        let id = paint(AnsiColor::Cyan, id.as_deref().unwrap_or("?"));
        let range = paint(AnsiColor::BrightBlack, &format!("{range}:{lsn}"));
        format!("{time}  {range:<8}  {kind}  {id}  {}", abridged(item))
    }
}

/// Returns the item without system properties, shortened to one or two lines.
fn abridged(item: &[u8]) -> String {
    let item = Object::parse(item).unwrap_or_default().without_system();
    let others = item.properties.iter().filter(|(name, _)| name != "id");
    let shown = others.map(|(name, value)| format!("{name}={value}"));
    let text = shown.collect::<Vec<_>>().join(" ").replace(['\n', '\r'], " ");
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Puts JSON on one line. Line breaks occur only between tokens, because strings have theirs escaped.
pub(crate) fn one_line(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Cow::Borrowed(bytes);
    }
    let flat = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
    Cow::Owned(bytes.iter().map(flat).collect())
}
