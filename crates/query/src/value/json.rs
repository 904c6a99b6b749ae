//! Walks JSON text that somebody has checked before, without a tree.
//!
//! Skipping needs no grammar, only quotes and brackets. Given other bytes the walk finds nonsense or
//! nothing; it never panics and always ends. A name that stands twice in an object, which the store
//! refuses, is found at its first place here.

use std::borrow::Cow;

use super::{Member, Number, Value};

/// The text of a value without the space around it.
pub(super) fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

/// The value a text says. Objects and arrays stay text.
pub(super) fn read(text: Cow<'_, [u8]>) -> Value<'_> {
    match text.first() {
        Some(b'{' | b'[') => Value::Json(text),
        Some(b'"') => string(text).map_or(Value::Undefined, Value::String),
        Some(b't') => Value::Bool(true),
        Some(b'f') => Value::Bool(false),
        Some(b'n') => Value::Null,
        Some(_) => number(text).map_or(Value::Undefined, Value::Number),
        None => Value::Undefined,
    }
}

fn number(text: Cow<'_, [u8]>) -> Option<Number<'_>> {
    Number::parse(match text {
        Cow::Borrowed(text) => Cow::Borrowed(std::str::from_utf8(text).ok()?),
        Cow::Owned(text) => Cow::Owned(String::from_utf8(text).ok()?),
    })
}

/// The string a quoted text says.
fn string(text: Cow<'_, [u8]>) -> Option<Cow<'_, str>> {
    if memchr::memchr(b'\\', &text).is_some() {
        return serde_json::from_slice::<String>(&text).ok().map(Cow::Owned);
    }
    let end = text.len().checked_sub(1).filter(|end| *end >= 1)?;
    match text {
        Cow::Borrowed(text) => Some(Cow::Borrowed(std::str::from_utf8(&text[1..end]).ok()?)),
        Cow::Owned(text) => Some(Cow::Owned(std::str::from_utf8(&text[1..end]).ok()?.to_owned())),
    }
}

/// A part of `text`, borrowed if `text` is.
fn part<'a>(text: &Cow<'a, [u8]>, start: usize, end: usize) -> Cow<'a, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(start..end).unwrap_or_default()),
        Cow::Owned(text) => Cow::Owned(text.get(start..end).unwrap_or_default().to_vec()),
    }
}

/// The property of an object text, undefined if there is none.
pub(super) fn member<'a>(text: &Cow<'a, [u8]>, name: &str) -> Value<'a> {
    let mut walk = Walk::into(text, b'{');
    while let Some((name_start, name_end, start, end)) = walk.next_member() {
        if is_named(&text[name_start..name_end], name) {
            return read(part(text, start, end));
        }
    }
    Value::Undefined
}

/// The element of an array text, undefined if there is none.
pub(super) fn element<'a>(text: &Cow<'a, [u8]>, index: usize) -> Value<'a> {
    let mut walk = Walk::into(text, b'[');
    let mut at = 0;
    while let Some((start, end)) = walk.next_element() {
        if at == index {
            return read(part(text, start, end));
        }
        at += 1;
    }
    Value::Undefined
}

/// All elements of an array text.
pub(super) fn elements<'a>(text: &Cow<'a, [u8]>) -> Vec<Value<'a>> {
    let mut walk = Walk::into(text, b'[');
    std::iter::from_fn(|| walk.next_element())
        .map(|(start, end)| read(part(text, start, end)))
        .collect()
}

/// All properties of an object text.
pub(super) fn members<'a>(text: &Cow<'a, [u8]>) -> Vec<Member<'a>> {
    let mut walk = Walk::into(text, b'{');
    std::iter::from_fn(|| walk.next_member())
        .filter_map(|(name_start, name_end, start, end)| {
            let name = string(part(text, name_start - 1, name_end + 1))?;
            Some((name, read(part(text, start, end))))
        })
        .collect()
}

/// Calls `found` with the raw name (between its quotes, escapes and all) and the text of every
/// property of an object, until it says stop.
pub(crate) fn each_member<'a>(
    object: &'a [u8],
    mut found: impl FnMut(&'a [u8], &'a [u8]) -> std::ops::ControlFlow<()>,
) {
    let mut walk = Walk::into(object, b'{');
    while let Some((name_start, name_end, start, end)) = walk.next_member() {
        if found(&object[name_start..name_end], &object[start..end]).is_break() {
            return;
        }
    }
}

/// Whether the raw text between the quotes of a name says `name`.
pub(crate) fn is_named(raw: &[u8], name: &str) -> bool {
    if raw == name.as_bytes() {
        return true;
    }
    memchr::memchr(b'\\', raw).is_some() && {
        let mut quoted = Vec::with_capacity(raw.len() + 2);
        quoted.push(b'"');
        quoted.extend_from_slice(raw);
        quoted.push(b'"');
        string(Cow::Owned(quoted)).is_some_and(|said| said == name)
    }
}

/// Strings up to this length are searched byte by byte.
const SHORT: usize = 16;

/// The bytes that matter for finding the end of an object or array.
const STRUCTURAL: [bool; 256] = {
    let mut table = [false; 256];
    table[b'{' as usize] = true;
    table[b'}' as usize] = true;
    table[b'[' as usize] = true;
    table[b']' as usize] = true;
    table[b'"' as usize] = true;
    table
};

/// A position between the parts of one object or array.
struct Walk<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Walk<'t> {
    /// Stands before the first part; at the end if the text does not begin with `open`.
    fn into(text: &'t [u8], open: u8) -> Walk<'t> {
        let start = text.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
        let at = if text.get(start) == Some(&open) { start + 1 } else { text.len() };
        Walk { text, at }
    }

    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn space(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), b' ' | b'\n' | b'\r' | b'\t') {
            at += 1;
        }
        at
    }

    /// Where the next property's name and value are; the name without its quotes.
    fn next_member(&mut self) -> Option<(usize, usize, usize, usize)> {
        let quote = self.space(self.at);
        if self.byte(quote) != b'"' {
            return None;
        }
        let name_end = self.string_end(quote + 1)?;
        let colon = self.space(name_end + 1);
        let start = self.space(colon + 1);
        let end = self.value_end(start)?;
        self.step_over(end);
        Some((quote + 1, name_end, start, end))
    }

    fn next_element(&mut self) -> Option<(usize, usize)> {
        let start = self.space(self.at);
        if matches!(self.byte(start), 0 | b']' | b'}' | b',') {
            return None;
        }
        let end = self.value_end(start)?;
        self.step_over(end);
        Some((start, end))
    }

    /// Past the comma after a part, or to the end if there is none.
    fn step_over(&mut self, end: usize) {
        let at = self.space(end);
        self.at = if self.byte(at) == b',' { at + 1 } else { self.text.len() };
    }

    fn value_end(&self, start: usize) -> Option<usize> {
        match self.byte(start) {
            b'"' => Some(self.string_end(start + 1)? + 1),
            b'{' | b'[' => self.container_end(start),
            0 => None,
            _ => Some(self.scalar_end(start)).filter(|end| *end > start),
        }
    }

    /// The closing quote of the string whose first character is at `at`.
    fn string_end(&self, mut at: usize) -> Option<usize> {
        // Most strings are short, and for those a loop is over before a vector search has begun.
        let near = self.text.get(at..)?;
        for (offset, byte) in near.iter().take(SHORT).enumerate() {
            match byte {
                b'"' => return Some(at + offset),
                b'\\' => break,
                _ => {}
            }
        }
        loop {
            at += memchr::memchr2(b'"', b'\\', self.text.get(at..)?)?;
            if self.byte(at) == b'"' {
                return Some(at);
            }
            at += 2;
        }
    }

    fn container_end(&self, start: usize) -> Option<usize> {
        let mut at = start;
        let mut open = 0_u32;
        loop {
            at += self.text.get(at..)?.iter().position(|byte| STRUCTURAL[usize::from(*byte)])?;
            match self.text[at] {
                b'{' | b'[' => open += 1,
                b'"' => at = self.string_end(at + 1)?,
                _ => open -= 1,
            }
            at += 1;
            if open == 0 {
                return Some(at);
            }
        }
    }

    fn scalar_end(&self, mut at: usize) -> usize {
        while !matches!(self.byte(at), 0..=b' ' | b',' | b'}' | b']') {
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_without_a_tree() {
        let item =
            r#" { "a" : 1 , "b":{"c":[1,{"d":2}],"e\"":"x,}]\\"}, "":null,"\u0066":-1.5e3 } "#;
        let item = Value::of_item(item.as_bytes());
        let cases: &[(&[&str], &str)] = &[
            (&["a"], "1"),
            (&["b", "c"], r#"[1,{"d":2}]"#),
            (&["b", "e\""], r#""x,}]\\""#),
            (&[""], "null"),
            (&["f"], "-1.5e3"),
            (&["A"], "undefined"),
            (&["a", "x"], "undefined"),
            (&["b", "c", "d"], "undefined"),
        ];
        for (path, expected) in cases {
            let found = path.iter().fold(item.clone(), |value, name| value.member(name));
            assert_eq!(found.to_string(), *expected, "{path:?}");
        }
        assert_eq!(item.member("b").member("c").element(1).to_string(), r#"{"d":2}"#);
        assert_eq!(item.member("b").member("c").element(2).to_string(), "undefined");
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
            "\"\\u12\"",
            "-",
            "[\u{0}",
            "{\"a\":[}",
        ];
        for text in broken {
            let value = Value::of_item(text.as_bytes());
            let _ = (value.member("a"), value.element(0), value.to_string());
            let _ = (value.members(), value.elements(), value.clone().into_owned());
        }
    }
}
