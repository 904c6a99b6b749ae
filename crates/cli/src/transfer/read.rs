//! Reads items from a file or a pipe, one at a time, with the place of each.

use super::{Format, Object, csv as table};
use anyhow::{Context, Result, bail};
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::io::{BufRead, Read};

/// Length limit of a line. The server accepts items of up to 2 MB.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// An item and its place: a line, or its number in an array.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) place: String,
    pub(crate) item: std::result::Result<Object, String>,
}

/// Reads all items. Stops without an error when `each` returns false.
pub(crate) fn read_items(
    input: impl BufRead,
    format: Format,
    only_texts: bool,
    each: &mut dyn FnMut(Found) -> bool,
) -> Result<()> {
    match format {
        Format::Json => read_array(input, each),
        Format::Ndjson => read_lines(input, each),
        Format::Csv => read_table(input, only_texts, each),
    }
}

fn parse(place: String, json: &[u8]) -> Found {
    let item = Object::parse(json).map_err(|error| format!("it is not a JSON object: {error}"));
    Found { place, item }
}

fn read_lines(mut input: impl BufRead, each: &mut dyn FnMut(Found) -> bool) -> Result<()> {
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let read = (&mut input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
        if read.context("cannot read the items")? == 0 {
            break;
        }
        if line.len() as u64 > LINE_BYTES_MAX {
            bail!("line {number} is longer than {LINE_BYTES_MAX} bytes; is it NDJSON?");
        }
        let text = line.trim_ascii();
        if !text.is_empty() && !each(parse(format!("line {number}"), text)) {
            break;
        }
    }
    Ok(())
}

fn read_table(
    input: impl BufRead,
    only_texts: bool,
    each: &mut dyn FnMut(Found) -> bool,
) -> Result<()> {
    let mut reader = csv::Reader::from_reader(input);
    let header = reader.headers().context("cannot read the first line of the table")?;
    let header: Vec<String> = header.iter().map(str::to_owned).collect();
    for row in reader.records() {
        let found = match row {
            Ok(row) => {
                let line = row.position().map_or(0, csv::Position::line);
                let item = Ok(table::item(&header, &row, only_texts));
                Found { place: format!("line {line}"), item }
            }
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                if error.is_io_error() {
                    return Err(error).context("cannot read the items");
                }
                Found { place: format!("line {line}"), item: Err(error.to_string()) }
            }
        };
        if !each(found) {
            break;
        }
    }
    Ok(())
}

/// Reads an array, holding one item in memory at a time.
fn read_array(input: impl Read, each: &mut dyn FnMut(Found) -> bool) -> Result<()> {
    let mut json = serde_json::Deserializer::from_reader(input);
    let mut items = Items { each, stopped: false };
    let read = (&mut items).deserialize(&mut json);
    if items.stopped {
        return Ok(());
    }
    read.and_then(|()| json.end()).context("the file is not an array of items; give --format")
}

struct Items<'a> {
    each: &'a mut dyn FnMut(Found) -> bool,
    stopped: bool,
}

impl<'de> DeserializeSeed<'de> for &mut Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        let mut number = 0u64;
        while let Some(item) = array.next_element::<Box<RawValue>>()? {
            number += 1;
            if !(self.each)(parse(format!("item {number}"), item.get().as_bytes())) {
                self.stopped = true;
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: Format) -> Result<Vec<(String, std::result::Result<String, ()>)>> {
        let mut found = Vec::new();
        read_items(text.as_bytes(), format, false, &mut |item| {
            let json = item.item.map(|item| item.to_json()).map_err(drop);
            found.push((item.place, json));
            true
        })?;
        Ok(found)
    }

    #[test]
    fn all_formats_give_the_same_items() {
        let expected = [r#"{"id":"1","n":1.50}"#, r#"{"id":"2","t":"a,\"b\"\nc"}"#];
        for (text, format) in [
            (r#"[{"id":"1","n":1.50}, {"id":"2","t":"a,\"b\"\nc"}]"#, Format::Json),
            (
                "{\"id\":\"1\",\"n\":1.50}\n\n{\"id\":\"2\",\"t\":\"a,\\\"b\\\"\\nc\"}",
                Format::Ndjson,
            ),
            ("id,n,t\n1,1.50,\n2,,\"a,\"\"b\"\"\nc\"\n", Format::Csv),
        ] {
            let items = read(text, format).unwrap();
            let items: Vec<_> = items.into_iter().map(|(_, item)| item.unwrap()).collect();
            assert_eq!(items, expected, "{format:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let lines = read("{\"id\":\"1\"}\nnonsense\n[1]\n", Format::Ndjson).unwrap();
        assert!(lines[0].1.is_ok() && lines[1].1.is_err() && lines[2].1.is_err());
        assert_eq!(lines[2].0, "line 3");
        let rows = read("id,n\n1,2\n1,2,3\n", Format::Csv).unwrap();
        assert_eq!((rows[1].0.as_str(), rows[1].1.is_err()), ("line 3", true));
        assert!(read("{\"id\":\"1\"}", Format::Json).is_err());
        assert!(read("[{\"id\":\"1\"}", Format::Json).is_err());
        assert_eq!(read("[1]", Format::Json).unwrap()[0], ("item 1".to_owned(), Err(())));
    }
}
