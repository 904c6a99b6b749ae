//! Converts JSON strings to text and back.
//!
//! Reading expects the inside of a string that a scan has accepted. Writing escapes only what
//! RFC 8259 requires. Values that are stored or returned never pass through here: they keep their
//! bytes.

use std::borrow::Cow;

/// Unescapes the inside of a string (without its quotes); borrows it if it contains no escape.
pub(super) fn unescape(inside: &[u8]) -> Cow<'_, str> {
    // Never lossy for scanned bytes, which are valid UTF-8. Without `unsafe`, this is the conversion
    // that needs no error path.
    if !inside.contains(&b'\\') {
        return String::from_utf8_lossy(inside);
    }
    let mut text = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        text.extend_from_slice(&rest[..at]);
        let (character, length) = escape(&rest[at + 1..]);
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = rest.get(at + 1 + length..).unwrap_or_default();
    }
    text.extend_from_slice(rest);
    Cow::Owned(match String::from_utf8(text) {
        Ok(text) => text,
        Err(invalid) => String::from_utf8_lossy(invalid.as_bytes()).into_owned(),
    })
}

/// The character that an escape encodes and the length of the escape without its backslash.
fn escape(rest: &[u8]) -> (char, usize) {
    let character = match rest.first() {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(rest),
        Some(&other) => char::from(other),
        None => char::REPLACEMENT_CHARACTER,
    };
    (character, 1)
}

fn unicode_escape(rest: &[u8]) -> (char, usize) {
    let unit = hex4(rest, 1).unwrap_or(0xfffd);
    if !(0xd800..0xdc00).contains(&unit) {
        return (char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER), 5);
    }
    let low = hex4(rest, 7).unwrap_or(0xdc00);
    let scalar = 0x10000 + ((unit - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff);
    (char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER), 11)
}

/// The inside of the string whose first character is at `at`, up to its closing quote.
pub(super) fn inside(body: &[u8], at: usize) -> &[u8] {
    let rest = body.get(at..).unwrap_or_default();
    let mut escaped = false;
    let end = rest.iter().position(|&byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    });
    &rest[..end.unwrap_or(rest.len())]
}

/// Four hexadecimal digits from `at` on.
pub(super) fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..)?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |number, &digit| Some(number << 4 | char::from(digit).to_digit(16)?))
}

/// Appends the text as a JSON string, quotes included.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    push_escaped(out, text);
    out.push(b'"');
}

/// Appends the text as the inside of a JSON string.
pub(super) fn push_escaped(out: &mut Vec<u8>, text: &str) {
    let needs_escape = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // Etags and rids never need one. No early exit: the loop without one is compiled to vectors.
    if !text.bytes().fold(false, |found, byte| found | needs_escape(byte)) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut copied = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !needs_escape(byte) {
            continue;
        }
        out.extend_from_slice(&text.as_bytes()[copied..at]);
        copied = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble & 15)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
            }
        }
    }
    out.extend_from_slice(&text.as_bytes()[copied..]);
}

/// Appends a whole number in decimal.
pub(super) fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        first -= 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescaping() {
        let cases = [
            ("", ""),
            ("plain é 😀", "plain é 😀"),
            (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r"a\u0041\u00e9\u20acz", "aAé€z"),
            (r"\ud83d\ude00", "😀"),
            (r"x\uD83D\uDE00y", "x😀y"),
            (r"\u0000", "\0"),
        ];
        for (inside, expected) in cases {
            let text = unescape(inside.as_bytes());
            assert_eq!(text, expected, "{inside}");
            assert_eq!(matches!(text, Cow::Borrowed(_)), !inside.contains('\\'), "{inside}");
        }
    }

    #[test]
    fn unescaping_what_no_scan_accepts_does_not_panic() {
        for inside in [r"\", r"\u", r"\u12", r"\ud800", r"\ud800\u0041", r"\udc00", "\\\u{e9}"] {
            let _ = unescape(inside.as_bytes());
        }
        let _ = unescape(b"\xff\\n\xfe");
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in ["", "a\"b\\c/", "\0\u{1f}\n\r\t\u{8}\u{7f}", "é😀", "\\u0041"] {
            let mut out = Vec::new();
            push_string(&mut out, text);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
            assert_eq!(unescape(&out[1..out.len() - 1]), text);
        }
    }

    #[test]
    fn the_inside_ends_at_the_first_quote_that_is_not_escaped() {
        for (body, expected) in [
            (r#"a":1"#, "a"),
            (r#"":1"#, ""),
            (r#"a\"b":1"#, r#"a\"b"#),
            (r#"a\\":1"#, r"a\\"),
            ("open", "open"),
        ] {
            assert_eq!(inside(body.as_bytes(), 0), expected.as_bytes(), "{body}");
        }
    }

    #[test]
    fn decimals() {
        for number in [0, 1, 9, 10, 1_700_000_000, u64::from(u32::MAX), u64::MAX] {
            let mut out = b"n=".to_vec();
            push_decimal(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), format!("n={number}"));
        }
    }
}
