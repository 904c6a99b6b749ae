//! Walks bytes that were validated before: members, elements, a value by its path.
//!
//! Skipping a value needs only quotes and brackets, not the grammar, so a walk is shorter and faster
//! than a scan. On bytes that were not validated a walk returns a wrong value or none. It always
//! ends and never panics.

use super::span::{ValueKind, ValueSpan};
use super::wanted::names;
use super::words::{self, BODY_BYTES_MAX, Offset, byte, slice};

/// The value at a path of property names, from the top level down; `None` if there is none.
///
/// Expects bytes that were scanned before; for other bytes the result is wrong or `None`. Paths do
/// not go through arrays. The empty path is the item itself.
#[must_use]
pub fn get<S: AsRef<str>>(body: &[u8], path: &[S]) -> Option<ValueSpan> {
    path.iter().try_fold(root(body)?, |parent, name| member(body, parent, name.as_ref()))
}

/// A property of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Offset of its opening quote.
    pub(super) start: Offset,
    /// Offset of the quote that closes its name.
    name_end: Offset,
    pub(super) value: ValueSpan,
}

impl Member {
    pub(super) fn is_named(&self, body: &[u8], name: &str) -> bool {
        names(slice(body, self.start + 1, self.name_end), name)
    }
}

/// The outermost value.
pub(super) fn root(body: &[u8]) -> Option<ValueSpan> {
    if body.len() > BODY_BYTES_MAX { None } else { value(body, space(body, 0)) }
}

/// The value of one property of an object.
pub(super) fn member(body: &[u8], object: ValueSpan, name: &str) -> Option<ValueSpan> {
    members(body, object).find(|member| member.is_named(body, name)).map(|member| member.value)
}

/// The properties of an object, in order; none if the value is something else.
pub(super) fn members(body: &[u8], object: ValueSpan) -> impl Iterator<Item = Member> {
    let mut next = first(body, object, ValueKind::Object);
    std::iter::from_fn(move || {
        let start = next.take()?;
        if byte(body, start) != b'"' {
            return None;
        }
        let name_end = string_end(body, start + 1)?;
        let colon = space(body, name_end + 1);
        let value = value(body, space(body, colon + 1))?;
        next = following(body, value);
        Some(Member { start, name_end, value })
    })
}

/// The elements of an array, in order; none if the value is something else.
pub(super) fn elements(body: &[u8], array: ValueSpan) -> impl Iterator<Item = ValueSpan> {
    let mut next = first(body, array, ValueKind::Array);
    std::iter::from_fn(move || {
        let element = value(body, next.take()?)?;
        next = following(body, element);
        Some(element)
    })
}

/// Offset of the first member or element. In an empty object or array this is the closing bracket,
/// which starts no value.
fn first(body: &[u8], container: ValueSpan, kind: ValueKind) -> Option<Offset> {
    (container.kind == kind).then(|| space(body, container.start + 1))
}

/// Offset of the member or element after the one that ends with `value`.
fn following(body: &[u8], value: ValueSpan) -> Option<Offset> {
    let at = space(body, value.end);
    (byte(body, at) == b',').then(|| space(body, at + 1))
}

/// The value that starts at `start`.
fn value(body: &[u8], start: Offset) -> Option<ValueSpan> {
    let kind = ValueKind::starting_with(byte(body, start))?;
    let end = match kind {
        ValueKind::String => string_end(body, start + 1)? + 1,
        ValueKind::Object | ValueKind::Array => container_end(body, start)?,
        _ => scalar_end(body, start),
    };
    Some(ValueSpan { kind, start, end })
}

fn space(body: &[u8], mut at: Offset) -> Offset {
    while matches!(byte(body, at), b' ' | b'\n' | b'\r' | b'\t') {
        at += 1;
    }
    at
}

/// The closing quote of the string whose first character is at `at`.
fn string_end(body: &[u8], mut at: Offset) -> Option<Offset> {
    loop {
        let marks = words::specials(words::word(body, at));
        if marks == 0 {
            at += 8;
            continue;
        }
        at += words::bytes_before(marks);
        match byte(body, at) {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => return None,
        }
    }
}

fn container_end(body: &[u8], start: Offset) -> Option<Offset> {
    let mut at = start;
    let mut open = 0_u32;
    loop {
        match byte(body, at) {
            b'{' | b'[' => open += 1,
            b'}' | b']' => open -= 1,
            b'"' => at = string_end(body, at + 1)?,
            0 => return None,
            _ => {}
        }
        at += 1;
        if open == 0 {
            return Some(at);
        }
    }
}

/// The end of a number, `true`, `false` or `null`.
fn scalar_end(body: &[u8], mut at: Offset) -> Offset {
    while !matches!(byte(body, at), 0..=b' ' | b',' | b'}' | b']') {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_follows_property_names() {
        let body = r#" { "a" : 1 , "b":{"c":[1,{"d":2}],"e\"":"x,}]\\"},
            "":null,"b2":{},"\u0066":-1.5e3 } "#;
        let cases: &[(&[&str], Option<&str>)] = &[
            (&["a"], Some("1")),
            (&["b", "c"], Some(r#"[1,{"d":2}]"#)),
            (&["b", "e\""], Some(r#""x,}]\\""#)),
            (&[""], Some("null")),
            (&["b2"], Some("{}")),
            (&["f"], Some("-1.5e3")),
            (&["A"], None),
            (&["b2", "x"], None),
            (&["a", "x"], None),
            (&["b", "c", "0"], None),
            (&["b", "c", "d"], None),
        ];
        for (path, expected) in cases {
            let span = get(body.as_bytes(), path);
            let text = span.map(|span| std::str::from_utf8(span.text(body.as_bytes())).unwrap());
            assert_eq!(text, *expected, "{path:?}");
        }
        assert_eq!(
            get::<&str>(body.as_bytes(), &[]).unwrap().text(body.as_bytes()),
            body.trim().as_bytes()
        );
    }

    #[test]
    fn elements_come_in_order() {
        let cases: &[(&str, &[&str])] = &[
            ("[]", &[]),
            ("[ ]", &[]),
            ("[1]", &["1"]),
            (
                r#"[ "a,]" , [2,[3]], {"x":[]} ,true]"#,
                &[r#""a,]""#, "[2,[3]]", r#"{"x":[]}"#, "true"],
            ),
        ];
        for (body, expected) in cases {
            let array = root(body.as_bytes()).unwrap();
            let found: Vec<_> = elements(body.as_bytes(), array)
                .map(|span| std::str::from_utf8(span.text(body.as_bytes())).unwrap())
                .collect();
            assert_eq!(found, *expected, "{body}");
        }
        assert_eq!(elements(b"{}", root(b"{}").unwrap()).count(), 0);
        assert_eq!(members(b"[1]", root(b"[1]").unwrap()).count(), 0);
    }

    #[test]
    fn bytes_that_were_never_checked_end_the_walk() {
        let broken = [
            "",
            " ",
            "{",
            "[",
            "{\"",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "[1",
            "[1,",
            "\"",
            "\"\\",
            "{a:1}",
            "{,}",
            "[,]",
            "{\"a\" 1}",
            "}",
            "]",
            "{]",
            "[}",
            "{\"a\":}",
            "\u{0}",
        ];
        for body in broken {
            let body = body.as_bytes();
            let _ = get(body, &["a"]);
            if let Some(root) = root(body) {
                assert!(members(body, root).count() <= 1 && elements(body, root).count() <= 1);
            }
        }
    }
}
