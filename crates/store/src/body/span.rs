//! Location and kind of a value in a body.
//!
//! A span is two offsets and a kind. It borrows nothing, so it can be stored next to its bytes.
//! Reading a span against other bytes gives a wrong value but never panics. Numbers stay text until
//! `as_f64` parses them.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::text;

/// Kinds of JSON values; `true` and `false` are separate kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// `null`
    Null,
    /// `false`
    False,
    /// `true`
    True,
    /// A number, finite as an IEEE double.
    Number,
    /// A string.
    String,
    /// An object.
    Object,
    /// An array.
    Array,
}

impl ValueKind {
    /// The kind of value that starts with this byte; `None` if none does.
    pub(super) fn starting_with(byte: u8) -> Option<ValueKind> {
        Some(match byte {
            b'n' => ValueKind::Null,
            b'f' => ValueKind::False,
            b't' => ValueKind::True,
            b'-' | b'0'..=b'9' => ValueKind::Number,
            b'"' => ValueKind::String,
            b'{' => ValueKind::Object,
            b'[' => ValueKind::Array,
            _ => return None,
        })
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueKind::Null => "null",
            ValueKind::False => "false",
            ValueKind::True => "true",
            ValueKind::Number => "a number",
            ValueKind::String => "a string",
            ValueKind::Object => "an object",
            ValueKind::Array => "an array",
        })
    }
}

/// Location of one value in the bytes it was found in, quotes, braces and brackets included.
///
/// Offsets are `u32` because a scan holds several spans and bodies are shorter than 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueSpan {
    /// Kind of the value.
    pub kind: ValueKind,
    /// Offset of its first byte.
    pub start: u32,
    /// Offset just past its last byte.
    pub end: u32,
}

impl ValueSpan {
    /// The offsets as a range of the body.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The value as it was written.
    #[must_use]
    pub fn text<'b>(&self, body: &'b [u8]) -> &'b [u8] {
        body.get(self.range()).unwrap_or_default()
    }

    /// The number as a double; `None` if the value is not a number.
    #[must_use]
    pub fn as_f64(&self, body: &[u8]) -> Option<f64> {
        if self.kind != ValueKind::Number {
            return None;
        }
        std::str::from_utf8(self.text(body)).ok()?.parse().ok()
    }

    /// The string without quotes and escapes, borrowed if it contains no escape; `None` if the value
    /// is not a string.
    #[must_use]
    pub fn as_str<'b>(&self, body: &'b [u8]) -> Option<Cow<'b, str>> {
        if self.kind != ValueKind::String {
            return None;
        }
        let Range { start, end } = self.range();
        let inside = body.get(start + 1..end.saturating_sub(1));
        Some(text::unescape(inside.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(body: &str) -> ValueSpan {
        let kind = ValueKind::starting_with(body.as_bytes()[0]).unwrap();
        ValueSpan { kind, start: 0, end: u32::try_from(body.len()).unwrap() }
    }

    #[test]
    fn a_span_reads_as_its_own_kind_only() {
        let cases = [
            ("1", Some(1.0), None),
            ("-0.5e3", Some(-500.0), None),
            ("9007199254740993", Some(9_007_199_254_740_992.0), None),
            (r#""1""#, None, Some("1")),
            (r#""""#, None, Some("")),
            (r#""a\u00e9\n""#, None, Some("aé\n")),
            ("null", None, None),
            ("true", None, None),
            ("[1]", None, None),
        ];
        for (body, number, string) in cases {
            let span = whole(body);
            assert_eq!(span.as_f64(body.as_bytes()), number, "{body}");
            assert_eq!(span.as_str(body.as_bytes()).as_deref(), string, "{body}");
        }
    }

    #[test]
    fn a_span_of_other_bytes_does_not_panic() {
        let lost = ValueSpan { kind: ValueKind::String, start: 7, end: 3 };
        for body in [&b""[..], b"\"", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            for kind in [ValueKind::String, ValueKind::Number] {
                let span = ValueSpan { kind, ..lost };
                assert!(span.as_f64(body).is_none());
                assert!(span.as_str(body).is_none_or(|text| text.is_empty()));
            }
        }
    }
}
