//! Writes values as JSON text.

use std::borrow::Cow;
use std::fmt;

use super::Value;

impl Value<'_> {
    /// Appends the JSON text. Undefined appends nothing, so callers check before writing a member or element.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Value::Undefined => {}
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Number(number) => number.write(out),
            Value::String(text) => write_text(text, out),
            Value::Array(elements) => {
                out.push(b'[');
                separated(elements.iter().filter(|one| !one.is_undefined()), out, |one, out| {
                    one.write_json(out);
                });
                out.push(b']');
            }
            Value::Object(members) => {
                out.push(b'{');
                let defined = members.iter().filter(|(_, value)| !value.is_undefined());
                separated(defined, out, |(name, value), out| {
                    write_text(name, out);
                    out.push(b':');
                    value.write_json(out);
                });
                out.push(b'}');
            }
            Value::Json(text) => out.extend_from_slice(text),
        }
    }

    /// The JSON text; empty for undefined.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_json(&mut out);
        out
    }

    /// The JSON text of a value that is no longer needed; reuses its own text if possible.
    pub(crate) fn into_json(self) -> Vec<u8> {
        match self {
            Value::Json(Cow::Owned(text)) => text,
            other => other.to_json(),
        }
    }
}

fn separated<T>(
    parts: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    for (index, part) in parts.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(part, out);
    }
}

/// Appends a string with its quotes and escapes.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=0x1F => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// The JSON text, or the word `undefined`, for messages and tests.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Undefined => f.write_str("undefined"),
            value => f.write_str(&String::from_utf8_lossy(&value.to_json())),
        }
    }
}
