//! Paths to a partition key value in an item: `/tenant`, `/address/city`, `/"odd name"/x`.
//!
//! A segment in double or single quotes may hold any text; a backslash escapes a quote or a backslash in it.
//! Segments without quotes have no escapes.
//!
//! The text is kept as the client wrote it, because clients compare the definition they read back with the one
//! they sent. This file never reads items.

use std::fmt;
use std::iter::Peekable;
use std::str::{Chars, FromStr};

use crate::text::serde_as_text;

/// The longest path accepted.
const TEXT_BYTES_MAX: usize = 1024;

/// One path of a partition key definition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKeyPath {
    text: String,
    segments: Vec<String>,
}

/// Why a text is not a partition key path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPartitionKeyPath {
    /// No leading slash, or an empty text.
    #[error("partition key path does not start with a slash; write /name")]
    NoLeadingSlash,
    /// Two slashes in a row, or one at the end.
    #[error("partition key path has an empty segment; write a property name after each slash")]
    EmptySegment,
    /// White space or a wildcard outside of quotes.
    #[error(
        "put a name with {0:?} in quotes. Partition key paths must contain only valid characters and \
         not contain a trailing slash or wildcard character"
    )]
    Character(char),
    /// A quoted segment without its end.
    #[error(
        "partition key path has an opening quote without a closing one; close it or write \\\" inside"
    )]
    UnclosedQuote,
    /// Text between a closing quote and the next slash.
    #[error("partition key path goes on after a closing quote; put a slash there")]
    TextAfterQuote,
    /// A text longer than the limit.
    #[error("partition key path is {bytes} bytes; use at most {TEXT_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl PartitionKeyPath {
    /// Reads a path.
    pub fn parse(text: &str) -> Result<PartitionKeyPath, BadPartitionKeyPath> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BadPartitionKeyPath::TooLong { bytes: text.len() });
        }
        let mut rest = text.chars().peekable();
        if rest.next() != Some('/') {
            return Err(BadPartitionKeyPath::NoLeadingSlash);
        }
        let mut segments = Vec::new();
        loop {
            let segment = match rest.next_if(|&c| c == '"' || c == '\'') {
                Some(quote) => quoted(&mut rest, quote)?,
                None => plain(&mut rest),
            };
            if segment.is_empty() {
                return Err(BadPartitionKeyPath::EmptySegment);
            }
            segments.push(segment);
            match rest.next() {
                None => {
                    return Ok(PartitionKeyPath { text: text.to_owned(), segments });
                }
                Some('/') => {}
                Some(_) => return Err(BadPartitionKeyPath::TextAfterQuote),
            }
        }
    }

    /// Checks that a new container may use this path: Azure requires quotes around white space and wildcards.
    ///
    /// Containers created before this check keep their paths.
    pub fn check_new(&self) -> Result<(), BadPartitionKeyPath> {
        let mut rest = self.text.chars().peekable();
        while rest.next().is_some() {
            if let Some(quote) = rest.next_if(|&c| c == '"' || c == '\'') {
                quoted(&mut rest, quote)?;
            } else if let Some(found) = plain(&mut rest).chars().find(|c| is_special(*c)) {
                return Err(BadPartitionKeyPath::Character(found));
            }
        }
        Ok(())
    }

    /// The property names from the root of the item downwards, without quotes; at least one.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn plain(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut segment = String::new();
    while let Some(character) = rest.next_if(|&c| c != '/') {
        segment.push(character);
    }
    segment
}

fn is_special(character: char) -> bool {
    character.is_whitespace() || character == '*'
}

/// Reads up to the closing quote; the opening one has been taken.
fn quoted(rest: &mut Peekable<Chars<'_>>, quote: char) -> Result<String, BadPartitionKeyPath> {
    let mut segment = String::new();
    loop {
        match rest.next().ok_or(BadPartitionKeyPath::UnclosedQuote)? {
            '\\' => {
                let escaped = rest.next_if(|&c| c == quote || c == '\\');
                segment.push(escaped.unwrap_or('\\'));
            }
            character if character == quote => return Ok(segment),
            character => segment.push(character),
        }
    }
}

impl FromStr for PartitionKeyPath {
    type Err = BadPartitionKeyPath;

    fn from_str(text: &str) -> Result<PartitionKeyPath, BadPartitionKeyPath> {
        PartitionKeyPath::parse(text)
    }
}

impl fmt::Display for PartitionKeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_text!(PartitionKeyPath);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&[&str], BadPartitionKeyPath>) {
        let path = PartitionKeyPath::parse(text);
        if let Ok(path) = &path {
            assert_eq!(path.to_string(), text);
        }
        let segments = path.map(|path| path.segments);
        assert_eq!(segments, expected.map(|names| names.iter().map(|&n| n.to_owned()).collect()));
    }

    #[test]
    fn readable_paths() {
        check("/pk", Ok(&["pk"]));
        check("/a/b/c", Ok(&["a", "b", "c"]));
        check("/_partitionKey", Ok(&["_partitionKey"]));
        check("/odd name/é", Ok(&["odd name", "é"]));
        check(r#"/"odd name"/x"#, Ok(&["odd name", "x"]));
        check(r#"/"a/b""#, Ok(&["a/b"]));
        check(r#"/'a"b'/c"#, Ok(&["a\"b", "c"]));
        check(r#"/"a\"b\\c\d""#, Ok(&["a\"b\\c\\d"]));
        check(r#"/a"b"#, Ok(&["a\"b"]));
    }

    #[test]
    fn new_paths_have_special_characters_in_quotes() {
        for (text, expected) in [
            ("/pk/a-b", Ok(())),
            (r#"/"odd name"/'*'/x"#, Ok(())),
            ("/odd name", Err(BadPartitionKeyPath::Character(' '))),
            (r#"/"quoted"/a*"#, Err(BadPartitionKeyPath::Character('*'))),
        ] {
            assert_eq!(PartitionKeyPath::parse(text).unwrap().check_new(), expected, "{text}");
        }
    }

    #[test]
    fn refused_paths() {
        use BadPartitionKeyPath::*;
        check("", Err(NoLeadingSlash));
        check("pk", Err(NoLeadingSlash));
        check("/", Err(EmptySegment));
        check("//a", Err(EmptySegment));
        check("/a/", Err(EmptySegment));
        check("/a//b", Err(EmptySegment));
        check(r#"/"""#, Err(EmptySegment));
        check(r#"/"a"#, Err(UnclosedQuote));
        check(r#"/"a\""#, Err(UnclosedQuote));
        check("/'a\"", Err(UnclosedQuote));
        check(r#"/"a"b"#, Err(TextAfterQuote));
        check(&format!("/{}", "a".repeat(1024)), Err(TooLong { bytes: 1025 }));
    }
}
