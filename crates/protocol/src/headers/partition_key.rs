//! Parses the partition key header, in JSON or in Go's string notation.
//!
//! The Go client quotes strings in its language's notation, which agrees with JSON except for a few
//! escapes: `\a`, `\v`, `\x7f` and `\U0001f600`. JSON is always tried first. Go's notation is tried only
//! for text that is not JSON, so it cannot change the meaning of another client's header.

use headwater_model::{BadPartitionKey, PartitionKey};

/// Parses the value of `x-ms-documentdb-partitionkey`.
///
/// # Errors
/// When the value is neither JSON nor Go's notation; the error describes the JSON.
pub fn partition_key(text: &str) -> Result<PartitionKey, BadPartitionKey> {
    PartitionKey::parse(text).or_else(|error| {
        let json = json_of_go(text).ok_or(error.clone())?;
        PartitionKey::parse(&json).map_err(|_| error)
    })
}

/// Rewrites Go's escapes in JSON; `None` if there are none, or if one is broken.
fn json_of_go(text: &str) -> Option<String> {
    let mut json = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some((before, after)) = rest.split_once('\\') {
        json.push_str(before);
        let kind = after.chars().next()?;
        let digits = match kind {
            'U' => 8,
            'x' => 2,
            _ => 0,
        };
        let code = match kind {
            'a' => 0x07,
            'v' => 0x0b,
            'U' | 'x' => u32::from_str_radix(after.get(1..1 + digits)?, 16).ok()?,
            other => {
                json.push('\\');
                json.push(other);
                rest = &after[other.len_utf8()..];
                continue;
            }
        };
        // Beyond ASCII, `\x` is a byte of a string that is not UTF-8.
        if kind == 'x' && code >= 0x80 {
            return None;
        }
        found = true;
        push_escaped(&mut json, char::from_u32(code)?);
        rest = &after[1 + digits..];
    }
    json.push_str(rest);
    found.then_some(json)
}

fn push_escaped(json: &mut String, character: char) {
    let mut units = [0; 2];
    for unit in character.encode_utf16(&mut units) {
        json.push_str(&format!("\\u{unit:04x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: Option<&str>) {
        let expected = expected.map(|json| PartitionKey::parse(json).unwrap());
        assert_eq!(partition_key(header).ok(), expected, "{header}");
    }

    #[test]
    fn json_and_the_notation_of_go_are_read() {
        check(r#"["a",1,null]"#, Some(r#"["a",1,null]"#));
        check(r#"["\U0001f600"]"#, Some("[\"\u{1f600}\"]"));
        check(
            r#"["tab\t \a\v\x7f \\U0001f600"]"#,
            Some(r#"["tab\t \u0007\u000b\u007f \\U0001f600"]"#),
        );
        check(r#"["\u00e4 \U0001f600"]"#, Some("[\"ä \u{1f600}\"]"));
    }

    #[test]
    fn broken_escapes_are_refused() {
        for broken in [
            r#"["\U1f600"]"#,
            r#"["\U00110000"]"#,
            r#"["\U0000d800"]"#,
            r#"["\xff"]"#,
            r#"["\x"]"#,
            r#"["\Uääääääää"]"#,
            "[\"\\",
        ] {
            check(broken, None);
        }
    }
}
