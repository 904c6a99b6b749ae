//! Errors of a scan: why bytes are not an item.
//!
//! The scan itself returns a `Fault`, two small numbers that fit in registers. A failed scan turns
//! the fault into a `BodyError` with names and words. A message never quotes values, only property
//! names: bodies may be secret, and errors end up in logs.

use super::span::ValueKind;
use super::text;
use super::words::{Offset, byte};

/// Why a body was rejected. The sender must change the body; a retry with the same bytes fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is longer than the limit.
    #[error(
        "item is {bytes} bytes; the limit is {limit}, so split it or store large parts elsewhere"
    )]
    TooLarge {
        /// Length of what was sent, system properties not counted.
        bytes: usize,
        /// The limit in force.
        limit: usize,
    },
    /// Objects and arrays are nested deeper than the limit.
    #[error("json at byte {at} is nested deeper than {limit} levels; flatten it")]
    TooDeep {
        /// Offset of the brace or bracket that exceeds the limit.
        at: usize,
        /// The limit in force.
        limit: usize,
    },
    /// The top-level value is not an object. Found by its first byte, so the rest may be malformed.
    #[error("item is {found}; an item must be a json object, so wrap it in one")]
    NotAnObject {
        /// Kind of the value that was sent.
        found: ValueKind,
    },
    /// The bytes end before the JSON is complete; also the error of an empty body.
    #[error("json stops short after {bytes} bytes; send the whole text")]
    Truncated {
        /// Number of bytes that were sent.
        bytes: usize,
    },
    /// The bytes break the grammar of RFC 8259.
    #[error("json is malformed at byte {at}: {problem}")]
    Malformed {
        /// Offset of the first byte that does not fit.
        at: usize,
        /// What the grammar expects there.
        problem: &'static str,
    },
    /// A string holds bytes that are not UTF-8.
    #[error("string at byte {at} is not utf-8; encode the body as utf-8")]
    NotUtf8 {
        /// Offset of the first offending byte.
        at: usize,
    },
    /// A `\u` escape names half of a surrogate pair.
    #[error("escape at byte {at} is half of a surrogate pair; send both halves or neither")]
    LoneSurrogate {
        /// Offset of the backslash.
        at: usize,
    },
    /// One object has the same property twice, compared without escapes.
    #[error("property {key:?} at byte {at} occurs twice in one object; keep one of them")]
    DuplicateKey {
        /// The property's name.
        key: String,
        /// Offset of its second name.
        at: usize,
    },
    /// A number is too large for an IEEE double.
    #[error("number at byte {at} is beyond the range of a double; send it as a string")]
    NotFinite {
        /// Offset of the number.
        at: usize,
    },
    /// The top-level `id` exists but is not a string.
    #[error("property \"id\" is {found}; it must be a string")]
    IdNotAString {
        /// Kind of the value it has.
        found: ValueKind,
    },
}

/// A reason to stop scanning, kept small so that it is returned in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    at: Offset,
    problem: Problem,
}

/// The rule that the bytes break at the offset of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    NoValue,
    NoKey,
    NoColon,
    NoCommaOrBrace,
    NoCommaOrBracket,
    BytesAfterEnd,
    NoDigit,
    BadLiteral,
    BadEscape,
    ControlCharacter,
    NotUtf8,
    LoneSurrogate,
    DuplicateKey,
    NotFinite,
    TooDeep,
    NotAnObject,
    IdNotAString,
}

impl Problem {
    /// A fault of this kind at `at`.
    #[cold]
    pub(super) fn at(self, at: Offset) -> Fault {
        Fault { at, problem: self }
    }
}

impl Fault {
    /// The error to report, given the bytes that were scanned and the nesting limit in force.
    #[cold]
    pub(super) fn explain(self, body: &[u8], nesting_max: usize) -> BodyError {
        let at = self.at as usize;
        let found = ValueKind::starting_with(byte(body, self.at)).unwrap_or(ValueKind::Null);
        let problem = match self.problem {
            Problem::NotUtf8 => return BodyError::NotUtf8 { at },
            Problem::LoneSurrogate => return BodyError::LoneSurrogate { at },
            Problem::NotFinite => return BodyError::NotFinite { at },
            Problem::TooDeep => {
                return BodyError::TooDeep { at, limit: nesting_max };
            }
            Problem::NotAnObject => return BodyError::NotAnObject { found },
            Problem::IdNotAString => return BodyError::IdNotAString { found },
            Problem::DuplicateKey => {
                let key = text::unescape(text::inside(body, at)).into_owned();
                return BodyError::DuplicateKey { key, at };
            }
            _ if at >= body.len() => return BodyError::Truncated { bytes: body.len() },
            Problem::NoValue => "expected a value",
            Problem::NoKey => "expected a property name in double quotes",
            Problem::NoColon => "expected a colon after the property name",
            Problem::NoCommaOrBrace => "expected a comma or a closing brace",
            Problem::NoCommaOrBracket => "expected a comma or a closing bracket",
            Problem::BytesAfterEnd => "expected nothing after the value",
            Problem::NoDigit => "expected a digit",
            Problem::BadLiteral => "expected true, false or null in full",
            Problem::BadEscape => "expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX",
            Problem::ControlCharacter => "a control character in a string must be escaped",
        };
        BodyError::Malformed { at, problem }
    }
}
