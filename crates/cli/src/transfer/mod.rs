//! Reads and writes items in files: JSON, NDJSON and CSV. Numbers keep all their digits.
//!
//! Items are never parsed into a tree. An object is a list of names with the text of their values, so
//! it is written as it was read, in the same order and with the same digits.

mod csv;
mod object;
mod read;
mod write;

pub(crate) use object::Object;
pub(crate) use read::{Found, read_items};
pub(crate) use write::Writer;

use anyhow::{Result, bail};
use clap::ValueEnum;
use std::path::Path;

/// How items stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One array of items
    Json,
    /// One item per line
    Ndjson,
    /// A table: one item per row, one property per column
    Csv,
}

impl Format {
    /// Returns the requested format, or the one that the file name implies.
    pub(crate) fn of(given: Option<Format>, file: &str) -> Result<Format> {
        if let Some(format) = given {
            return Ok(format);
        }
        if file == "-" {
            return Ok(Format::Ndjson);
        }
        let extension = Path::new(file).extension().and_then(|text| text.to_str());
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("json") => Ok(Format::Json),
            Some("ndjson" | "jsonl") => Ok(Format::Ndjson),
            Some("csv") => Ok(Format::Csv),
            _ => bail!("{file:?} does not end in .json, .ndjson or .csv; give --format"),
        }
    }
}
