//! Errors of encoding and decoding binary JSON.
//!
//! Messages name offsets and marker bytes, never values: bodies are confidential, and errors are logged.

/// Why a body was refused. Except for the two limits, the sender's encoder is at fault. Sending the
/// same bytes again never helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BinaryError {
    /// The first byte is not the preamble.
    #[error("body does not start with 0x80; read it as json text")]
    NotBinary,
    /// The bytes end inside a value.
    #[error("binary json ends inside the value at byte {at}; send the whole body")]
    Truncated {
        /// Offset of the incomplete value.
        at: usize,
    },
    /// The format does not define this marker, or not at this place.
    #[error(
        "marker {marker:#04x} at byte {at} is not allowed here; use an official encoder or text"
    )]
    BadMarker {
        /// The marker byte.
        marker: u8,
        /// Offset of the marker.
        at: usize,
    },
    /// A string refers to a user dictionary, which the body does not contain.
    #[error("string at byte {at} is entry {id} of a user dictionary; send strings in full")]
    UserString {
        /// Offset of the marker.
        at: usize,
        /// The entry it refers to.
        id: usize,
    },
    /// A reference does not point to an earlier string.
    #[error(
        "reference at byte {at} leads to {target}, where no earlier string starts; repeat the string"
    )]
    BadReference {
        /// Offset of the reference.
        at: usize,
        /// The offset it points to.
        target: usize,
    },
    /// The bytes of a value contradict each other.
    #[error("value at byte {at} is malformed: {problem}")]
    Malformed {
        /// Offset of the value.
        at: usize,
        /// The contradiction.
        problem: &'static str,
    },
    /// A string contains bytes that are not UTF-8.
    #[error("string at byte {at} is not utf-8; encode it as utf-8")]
    NotUtf8 {
        /// Offset of the string.
        at: usize,
    },
    /// A number is infinite or NaN, which JSON cannot express.
    #[error("number at byte {at} is infinite or not a number; send null or leave it out")]
    NotFinite {
        /// Offset of the number, or of the array that contains it.
        at: usize,
    },
    /// Bytes follow the end of the value.
    #[error("binary json ends at byte {at}, but {bytes} bytes follow; send one value per body")]
    Trailing {
        /// Offset of the first extra byte.
        at: usize,
        /// Number of extra bytes.
        bytes: usize,
    },
    /// Arrays and objects are nested deeper than the limit.
    #[error("json is nested deeper than {limit} levels; flatten it")]
    TooDeep {
        /// The limit in force.
        limit: usize,
    },
    /// The result would be larger than the limit.
    #[error("body would become more than {limit} bytes; split it or store large parts elsewhere")]
    TooLarge {
        /// The limit in force.
        limit: usize,
    },
    /// The text to encode is not JSON.
    #[error("json text is malformed at line {line}, column {column}; send valid json")]
    BadText {
        /// Line of the first error, from 1.
        line: usize,
        /// Column of the first error, from 1.
        column: usize,
    },
}
