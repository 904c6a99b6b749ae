//! Encodes JSON text as binary JSON, in one pass over the text.
//!
//! A container's header holds its length, which is known only at the container's end, and the header's
//! own width depends on that length. So the encoder writes bodies without headers, records each header
//! with its offset, and merges both in a last pass. That copies each byte twice at any depth; shifting
//! a body to make room for its header would copy it once per level.
//!
//! The encoder writes system strings, short and prefixed strings, the narrowest integers, doubles, and
//! containers with length and count. References, packed strings and uniform arrays would be smaller,
//! but cost a search per string, and no client needs them.

use super::error::BinaryError;
use super::{NESTING_MAX, marker};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Encodes JSON text as a binary body with the same members in the same order.
///
/// A number keeps its kind: `1` is an integer, `1.0` a double. An integer beyond 64 bits becomes the
/// nearest double, as in every client.
///
/// # Errors
///
/// When the text is not JSON, is nested deeper than [`NESTING_MAX`], or needs lengths beyond 32 bits.
pub fn encode(json_text: &[u8]) -> Result<Vec<u8>, BinaryError> {
    let mut encoder = Encoder::new(json_text.len());
    let mut text = serde_json::Deserializer::from_slice(json_text);
    // serde_json stops at 128 levels, but items may be deeper. `Encoder::open` enforces our limit.
    text.disable_recursion_limit();
    let read = Value(&mut encoder).deserialize(&mut text).and_then(|()| text.end());
    match (read, encoder.fault.take()) {
        (_, Some(fault)) => Err(fault),
        (Ok(()), None) => Ok(encoder.finish()),
        (Err(error), None) => {
            Err(BinaryError::BadText { line: error.line(), column: error.column() })
        }
    }
}

struct Encoder {
    /// Everything except the preamble and the headers of containers.
    body: Vec<u8>,
    /// Headers in the order in which their containers were opened.
    headers: Vec<Header>,
    /// Total header bytes of the containers closed so far.
    header_bytes: usize,
    nesting: usize,
    /// The encoder's own error, if one stopped the parser. serde_json's errors carry only text.
    fault: Option<BinaryError>,
}

/// The header of a non-empty container.
#[derive(Clone, Copy)]
struct Header {
    /// Its offset in the body.
    at: usize,
    kind: &'static Markers,
    length: u32,
    count: u32,
}

/// The markers of one kind of container.
struct Markers {
    empty: u8,
    single: u8,
    narrow: u8,
    middle: u8,
    wide: u8,
}

const ARRAY: Markers = Markers {
    empty: marker::ARRAY_0,
    single: marker::ARRAY_1,
    narrow: marker::ARRAY_LC1,
    middle: marker::ARRAY_LC2,
    wide: marker::ARRAY_LC4,
};

const OBJECT: Markers = Markers {
    empty: marker::OBJECT_0,
    single: marker::OBJECT_1,
    narrow: marker::OBJECT_LC1,
    middle: marker::OBJECT_LC2,
    wide: marker::OBJECT_LC4,
};

/// A container whose elements are being written.
struct Open {
    header: usize,
    body_before: usize,
    header_bytes_before: usize,
}

impl Header {
    fn write(&self, out: &mut Vec<u8>) {
        let narrow = (u8::try_from(self.length), u8::try_from(self.count));
        let middle = (u16::try_from(self.length), u16::try_from(self.count));
        match (self.count, narrow, middle) {
            (1, _, _) => out.push(self.kind.single),
            (_, (Ok(length), Ok(count)), _) => out.extend([self.kind.narrow, length, count]),
            (_, _, (Ok(length), Ok(count))) => {
                out.push(self.kind.middle);
                out.extend(length.to_le_bytes());
                out.extend(count.to_le_bytes());
            }
            _ => {
                out.push(self.kind.wide);
                out.extend(self.length.to_le_bytes());
                out.extend(self.count.to_le_bytes());
            }
        }
    }

    /// The number of bytes that `write` appends.
    fn width(&self) -> usize {
        // The count never exceeds the length, because an element takes at least one byte.
        match (self.count, self.length) {
            (1, _) => 1,
            (_, ..=0xFF) => 3,
            (_, ..=0xFFFF) => 5,
            _ => 9,
        }
    }
}

impl Encoder {
    fn new(expected: usize) -> Encoder {
        let body = Vec::with_capacity(expected);
        Encoder { body, headers: Vec::new(), header_bytes: 0, nesting: 0, fault: None }
    }

    fn open(&mut self, kind: &'static Markers) -> Result<Open, BinaryError> {
        if self.nesting == NESTING_MAX {
            return Err(BinaryError::TooDeep { limit: NESTING_MAX });
        }
        self.nesting += 1;
        let body_before = self.body.len();
        self.headers.push(Header { at: body_before, kind, length: 0, count: 0 });
        let header = self.headers.len() - 1;
        Ok(Open { header, body_before, header_bytes_before: self.header_bytes })
    }

    fn close(&mut self, open: &Open, kind: &Markers, count: usize) -> Result<(), BinaryError> {
        self.nesting -= 1;
        if count == 0 {
            // No header was added since `open`, so the last one is this container's.
            self.headers.pop();
            self.body.push(kind.empty);
            return Ok(());
        }
        let body_bytes = self.body.len() - open.body_before;
        let header_bytes = self.header_bytes - open.header_bytes_before;
        let (length, count) = (size(body_bytes + header_bytes)?, size(count)?);
        if let Some(header) = self.headers.get_mut(open.header) {
            (header.length, header.count) = (length, count);
            self.header_bytes += header.width();
        }
        Ok(())
    }

    fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + self.body.len() + self.header_bytes);
        out.push(marker::PREAMBLE);
        let mut copied = 0;
        for header in &self.headers {
            out.extend(self.body.get(copied..header.at).unwrap_or_default());
            header.write(&mut out);
            copied = header.at;
        }
        out.extend(self.body.get(copied..).unwrap_or_default());
        out
    }

    fn string(&mut self, string: &str) -> Result<(), BinaryError> {
        if let Some(marker) = marker::of_system_string(string) {
            self.body.push(marker);
            return Ok(());
        }
        let length = size(string.len())?;
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(length), _) if usize::from(length) < marker::SHORT_STRING.len() => {
                self.body.push(marker::SHORT_STRING.start + length);
            }
            (Ok(length), _) => self.body.extend([marker::STRING_L1, length]),
            (_, Ok(length)) => self.prefixed(marker::STRING_L2, length.to_le_bytes()),
            _ => self.prefixed(marker::STRING_L4, length.to_le_bytes()),
        }
        self.body.extend(string.as_bytes());
        Ok(())
    }

    fn signed(&mut self, integer: i64) {
        let small = (u8::try_from(integer), i16::try_from(integer), i32::try_from(integer));
        match small {
            (Ok(literal), ..) if marker::LITERAL.contains(&literal) => self.body.push(literal),
            (Ok(byte), ..) => self.body.extend([marker::NUMBER_UINT8, byte]),
            (_, Ok(short), _) => self.prefixed(marker::NUMBER_INT16, short.to_le_bytes()),
            (_, _, Ok(int)) => self.prefixed(marker::NUMBER_INT32, int.to_le_bytes()),
            _ => self.prefixed(marker::NUMBER_INT64, integer.to_le_bytes()),
        }
    }

    fn prefixed<const N: usize>(&mut self, marker: u8, bytes: [u8; N]) {
        self.body.push(marker);
        self.body.extend(bytes);
    }

    /// Stores the error and returns one that makes serde_json stop.
    fn keep<T, E: Error>(&mut self, result: Result<T, BinaryError>) -> Result<T, E> {
        result.map_err(|fault| {
            let error = E::custom("refused");
            self.fault = Some(fault);
            error
        })
    }
}

fn size(size: usize) -> Result<u32, BinaryError> {
    let limit = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
    u32::try_from(size).map_err(|_| BinaryError::TooLarge { limit })
}

/// Deserialises the next value into the encoder.
struct Value<'e>(&'e mut Encoder);

/// Deserialises the next property name into the encoder.
struct Name<'e>(&'e mut Encoder);

impl<'t> DeserializeSeed<'t> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'t>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'t> Visitor<'t> for Value<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a json value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.body.push(marker::NULL);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.body.push(if value { marker::TRUE } else { marker::FALSE });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.signed(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(signed) => self.0.signed(signed),
            Err(_) => self.0.prefixed(marker::NUMBER_UINT64, value.to_le_bytes()),
        }
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.prefixed(marker::NUMBER_DOUBLE, value.to_le_bytes());
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        let written = self.0.string(value);
        self.0.keep(written)
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut elements: A) -> Result<(), A::Error> {
        let opened = self.0.open(&ARRAY);
        let open = self.0.keep(opened)?;
        let mut count = 0;
        while elements.next_element_seed(Value(&mut *self.0))?.is_some() {
            count += 1;
        }
        let closed = self.0.close(&open, &ARRAY, count);
        self.0.keep(closed)
    }

    fn visit_map<A: MapAccess<'t>>(self, mut members: A) -> Result<(), A::Error> {
        let opened = self.0.open(&OBJECT);
        let open = self.0.keep(opened)?;
        let mut count = 0;
        while members.next_key_seed(Name(&mut *self.0))?.is_some() {
            members.next_value_seed(Value(&mut *self.0))?;
            count += 1;
        }
        let closed = self.0.close(&open, &OBJECT, count);
        self.0.keep(closed)
    }
}

impl<'t> DeserializeSeed<'t> for Name<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'t>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a property name")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        let written = self.0.string(value);
        self.0.keep(written)
    }
}
