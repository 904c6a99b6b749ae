//! Why a body could not be turned from one form into the other.
//!
//! Messages name places and marker bytes, never values: bodies are the users' secrets, and errors end
//! up in logs.

/// Why a body was refused. Every case but the two limits means that the sender's encoder is at
/// fault; sending the same bytes again is futile in all of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BinaryError {
    /// The first byte is not the preamble.
    #[error("body does not start with 0x80; read it as json text")]
    NotBinary,
    /// The bytes end inside a value.
    #[error("binary json stops short in the value at byte {at}; send the whole body")]
    Truncated {
        /// Where the value starts that is not all there.
        at: usize,
    },
    /// A marker the format does not define, or not in this place.
    #[error(
        "marker {marker:#04x} at byte {at} means nothing here; use an official encoder or text"
    )]
    BadMarker {
        /// The byte that stands there.
        marker: u8,
        /// Where it stands.
        at: usize,
    },
    /// A string from a dictionary that is not in the body.
    #[error("string at byte {at} is entry {id} of a user dictionary; send strings in full")]
    UserString {
        /// Where the marker stands.
        at: usize,
        /// The entry it asks for.
        id: usize,
    },
    /// A reference that does not lead to an earlier string.
    #[error(
        "reference at byte {at} leads to {target}, where no earlier string starts; repeat the string"
    )]
    BadReference {
        /// Where the reference stands.
        at: usize,
        /// The offset it names.
        target: usize,
    },
    /// The bytes of a value contradict each other.
    #[error("value at byte {at} is malformed: {problem}")]
    Malformed {
        /// Where the value starts.
        at: usize,
        /// What does not fit.
        problem: &'static str,
    },
    /// A string holds bytes that are not UTF-8.
    #[error("string at byte {at} is not utf-8; encode it as utf-8")]
    NotUtf8 {
        /// Where the string starts.
        at: usize,
    },
    /// A number that JSON cannot express.
    #[error("number at byte {at} is infinite or not a number; send null or leave it out")]
    NotFinite {
        /// Where the number, or the array it is in, starts.
        at: usize,
    },
    /// Bytes after the end of the only value.
    #[error("binary json ends at byte {at}, but {bytes} bytes follow; send one value per body")]
    Trailing {
        /// Where the first byte too many stands.
        at: usize,
        /// How many there are.
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
    /// The JSON text to encode is not JSON.
    #[error("json text is malformed at line {line}, column {column}; send valid json")]
    BadText {
        /// Line of the first fault, from 1.
        line: usize,
        /// Column of the first fault, from 1.
        column: usize,
    },
}
