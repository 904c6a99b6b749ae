//! Writes items to a file or a pipe.
//!
//! A table needs all its columns before its first row, so its items are buffered in a temporary file until
//! all columns are known.

use super::{Format, Object, csv as table};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, BufWriter, Seek, Write};

/// Writes items in one format.
pub(crate) struct Writer<W: Write> {
    out: BufWriter<W>,
    format: Format,
    written: u64,
    waiting: Option<Waiting>,
}

/// Buffered rows of a table whose columns are not all known yet.
struct Waiting {
    rows: BufWriter<std::fs::File>,
    columns: Vec<String>,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W, format: Format) -> Result<Writer<W>> {
        let waiting = match format {
            Format::Csv => {
                let file = tempfile::tempfile().context("cannot make a temporary file")?;
                Some(Waiting { rows: BufWriter::new(file), columns: Vec::new() })
            }
            _ => None,
        };
        Ok(Writer { out: BufWriter::new(out), format, written: 0, waiting })
    }

    pub(crate) fn write(&mut self, item: &Object) -> Result<()> {
        let json = item.to_json();
        self.written += 1;
        if let Some(waiting) = &mut self.waiting {
            for (name, _) in &item.properties {
                if !waiting.columns.contains(name) {
                    waiting.columns.push(name.clone());
                }
            }
            writeln!(waiting.rows, "{json}")?;
            return Ok(());
        }
        let before = match (self.format, self.written) {
            (Format::Json, 1) => "[\n",
            (Format::Json, _) => ",\n",
            _ => "",
        };
        let after = if self.format == Format::Json { "" } else { "\n" };
        write!(self.out, "{before}{json}{after}")?;
        Ok(())
    }

    /// Writes the remaining data and flushes it.
    pub(crate) fn finish(mut self) -> Result<()> {
        if let Some(waiting) = self.waiting.take() {
            write_table(waiting, &mut self.out)?;
        }
        if self.format == Format::Json {
            self.out.write_all(if self.written == 0 { b"[]\n" } else { b"\n]\n" })?;
        }
        self.out.flush()?;
        Ok(())
    }
}

fn write_table(waiting: Waiting, out: &mut impl Write) -> Result<()> {
    let mut rows = waiting.rows.into_inner().map_err(|error| error.into_error())?;
    rows.rewind()?;
    let mut table = csv::Writer::from_writer(out);
    if waiting.columns.is_empty() {
        return Ok(());
    }
    table.write_record(&waiting.columns)?;
    for line in BufReader::new(rows).lines() {
        let item = Object::parse(line?.as_bytes())?;
        let cells = waiting.columns.iter().map(|name| match item.get(name) {
            Some(value) => table::cell(name, value),
            None => String::new(),
        });
        table.write_record(cells)?;
    }
    table.flush()?;
    Ok(())
}
