//! Walks valid JSON text without building a tree.
//!
//! Skipping needs no grammar, only quotes and brackets. For invalid JSON the result is unspecified,
//! but the walk never panics and always ends. Of a repeated name in an object, which the store
//! refuses, the walk finds the first one.

use std::borrow::Cow;

use super::{Member, Number, Value};

/// The text of a value without surrounding white space.
pub(super) fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

/// Reads a value. Objects and arrays stay text.
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

/// The string in a quoted text.
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

/// The property of an object text; undefined if there is none.
pub(super) fn member<'a>(text: &Cow<'a, [u8]>, name: &str) -> Value<'a> {
    let mut walk = Walk::into(text, b'{');
    while let Some((name_start, name_end, start, end)) = walk.next_member() {
        if is_named(&text[name_start..name_end], name) {
            return read(part(text, start, end));
        }
    }
    Value::Undefined
}

/// The element of an array text; undefined if there is none.
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

/// Iterates over the elements of an array text.
pub(crate) struct Elements<'a>(Walk<'a>);

impl<'a> Elements<'a> {
    pub(crate) fn of(array: &'a [u8]) -> Elements<'a> {
        Elements(Walk::into(array, b'['))
    }

    /// The next element. The texts of its properties with these names are put into `parts`, which has a place for
    /// each, on the way to its end.
    pub(crate) fn next(
        &mut self,
        names: &[String],
        parts: &mut [Option<&'a [u8]>],
    ) -> Option<Value<'a>> {
        let (start, end) = self.0.next_element_with(names, parts)?;
        Some(value_in(self.0.text.get(start..end).unwrap_or_default()))
    }
}

/// Reads a value from the text of an item.
pub(crate) fn value_in(text: &[u8]) -> Value<'_> {
    read(Cow::Borrowed(text))
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

/// The text of a property, read as far as needed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// The value.
    Whole(&'a [u8]),
    /// The value and everything after it in the object.
    Open(&'a [u8]),
}

impl<'a> Found<'a> {
    /// The text of the value alone; finds its end if that is not known.
    pub(crate) fn whole(self) -> &'a [u8] {
        match self {
            Found::Whole(text) => text,
            Found::Open(text) => {
                let walk = Walk { text, at: 0 };
                walk.value_end(0).and_then(|end| text.get(..end)).unwrap_or_default()
            }
        }
    }

    /// The text of the array, if the value is one. Does not look for its end.
    pub(crate) fn array(self) -> Option<&'a [u8]> {
        let (Found::Whole(text) | Found::Open(text)) = self;
        (text.first() == Some(&b'[')).then_some(text)
    }
}

/// The properties of an object for which `place` returns a place, by raw name (between the quotes, with
/// escapes). Reads no further than the start of the last one.
pub(crate) fn find_members<'a>(
    object: &'a [u8],
    count: usize,
    place: impl Fn(&[u8]) -> Option<usize>,
) -> Vec<Option<Found<'a>>> {
    let mut found = vec![None; count];
    let mut missing = count;
    let mut walk = Walk::into(object, b'{');
    while missing > 0 {
        let Some((name_start, name_end, start)) = walk.next_name() else { break };
        let place = place(&object[name_start..name_end]);
        let wanted = place.and_then(|place| found.get_mut(place)).filter(|one| one.is_none());
        if missing == 1
            && let Some(wanted) = wanted
        {
            *wanted = Some(Found::Open(&object[start..]));
            break;
        }
        let Some(end) = walk.value_end(start) else { break };
        if let Some(wanted) = wanted {
            *wanted = Some(Found::Whole(&object[start..end]));
            missing -= 1;
        }
        walk.step_over(end);
    }
    found
}

/// The place of a raw name (the text between its quotes) in these names.
pub(crate) fn place_of(raw: &[u8], names: &[String]) -> Option<usize> {
    let exact = names.iter().position(|name| raw == name.as_bytes());
    // Few names have escapes; only those need the slower comparison.
    exact.or_else(|| match raw.contains(&b'\\') {
        true => names.iter().position(|name| is_named(raw, name)),
        false => None,
    })
}

/// Whether the raw text between the quotes of a name means `name`.
fn is_named(raw: &[u8], name: &str) -> bool {
    if raw == name.as_bytes() {
        return true;
    }
    raw.contains(&b'\\') && {
        let mut quoted = Vec::with_capacity(raw.len() + 2);
        quoted.push(b'"');
        quoted.extend_from_slice(raw);
        quoted.push(b'"');
        string(Cow::Owned(quoted)).is_some_and(|said| said == name)
    }
}

/// Words of eight bytes checked before a vector search is worth its start-up cost.
const WORDS_NEAR: usize = 4;
const LOW_BITS: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);

/// Marks the bytes of a word that equal `byte`. Marks above the lowest one may be wrong.
const fn marks(word: u64, byte: u8) -> u64 {
    let differences = word ^ (LOW_BITS * byte as u64);
    differences.wrapping_sub(LOW_BITS) & !differences & HIGH_BITS
}

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
    /// Starts before the first part, or at the end if the text does not begin with `open`.
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

    /// The next property: its name without quotes, and the start of its value.
    fn next_name(&self) -> Option<(usize, usize, usize)> {
        let quote = self.space(self.at);
        if self.byte(quote) != b'"' {
            return None;
        }
        let name_end = self.string_end(quote + 1)?;
        let colon = self.space(name_end + 1);
        let start = self.space(colon + 1);
        (start < self.text.len()).then_some((quote + 1, name_end, start))
    }

    /// The next property: its name without quotes, and its value.
    fn next_member(&mut self) -> Option<(usize, usize, usize, usize)> {
        let (name_start, name_end, start) = self.next_name()?;
        let end = self.value_end(start)?;
        self.step_over(end);
        Some((name_start, name_end, start, end))
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

    /// The next element, with some properties of an object found on the way to its end, each at its first place.
    fn next_element_with(
        &mut self,
        names: &[String],
        parts: &mut [Option<&'t [u8]>],
    ) -> Option<(usize, usize)> {
        let start = self.space(self.at);
        if names.is_empty() || self.byte(start) != b'{' {
            return self.next_element();
        }
        let mut inside = Walk { text: self.text, at: start + 1 };
        while let Some((name_start, name_end, value)) = inside.next_name() {
            let end = inside.value_end(value)?;
            let place = place_of(&self.text[name_start..name_end], names);
            if let Some(part) = place.and_then(|place| parts.get_mut(place)) {
                part.get_or_insert(&self.text[value..end]);
            }
            inside.at = self.space(end);
            if self.byte(inside.at) != b',' {
                break;
            }
            inside.at += 1;
        }
        let close = self.space(inside.at);
        if self.byte(close) != b'}' {
            return None;
        }
        self.step_over(close + 1);
        Some((start, close + 1))
    }

    /// Moves past the comma after a part, or to the end if there is none.
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
        // Most strings are short: for those, checking a few words takes less time than starting a vector search.
        for _ in 0..WORDS_NEAR {
            let Some(word) = self.text.get(at..).and_then(<[u8]>::first_chunk) else { break };
            let word = u64::from_le_bytes(*word);
            let found = marks(word, b'"') | marks(word, b'\\');
            if found == 0 {
                at += size_of::<u64>();
                continue;
            }
            at += found.trailing_zeros() as usize / 8;
            if self.byte(at) == b'"' {
                return Some(at);
            }
            at += 2;
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
    fn elements_show_their_parts_and_end_where_they_end() {
        let array = r#" [ {"a":1,"b":{"a":2,"c":"]}"},"\u0062":3} , 7,{}, [{"a":9}],{"c":"x" , "a":"\"}"},"a"]"#;
        let names = ["b".to_owned(), "a".to_owned()];
        let expected = [
            (r#"{"a":1,"b":{"a":2,"c":"]}"},"\u0062":3}"#, Some(r#"{"a":2,"c":"]}"}"#), Some("1")),
            ("7", None, None),
            ("{}", None, None),
            (r#"[{"a":9}]"#, None, None),
            (r#"{"c":"x" , "a":"\"}"}"#, None, Some(r#""\"}""#)),
            (r#""a""#, None, None),
        ];
        let mut elements = Elements::of(array.as_bytes());
        for (element, b, a) in expected {
            let mut parts = [None; 2];
            let found = elements.next(&names, &mut parts).unwrap();
            assert_eq!(found.to_string(), element);
            let parts = parts.map(|part| part.map(|part| std::str::from_utf8(part).unwrap()));
            assert_eq!(parts, [b, a], "{element}");
        }
        assert!(elements.next(&names, &mut [None; 2]).is_none());
    }

    #[test]
    fn a_string_ends_at_its_quote_wherever_that_lies() {
        // Escapes at every place of a word and around the end of the near search, and bytes that differ by one
        // from a quote and a backslash.
        for length in 0..80 {
            for escape in 0..=length {
                let mut text = "[]!#{,".repeat(20)[..length].to_owned();
                text.insert_str(escape, "\\\"");
                let item = format!("{{\"a\":\"{text}\",\"b\":[\"{text}\",{{\"c\":1}}],\"d\":2}}");
                let item = Value::of_item(item.as_bytes());
                assert_eq!(item.member("a").to_string(), format!("\"{text}\""));
                assert_eq!(item.member("b").element(1).to_string(), "{\"c\":1}");
                assert_eq!(item.member("d").to_string(), "2");
            }
        }
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
            "[{",
            "[{\"a\":",
            "[{\"a\":1",
            "[{\"a\":1,",
            "[{\"a\":1]",
        ];
        for text in broken {
            let value = Value::of_item(text.as_bytes());
            let _ = (value.member("a"), value.element(0), value.to_string());
            let _ = (value.members(), value.elements(), value.clone().into_owned());
            let mut elements = Elements::of(text.as_bytes());
            while elements.next(&["a".to_owned()], &mut [None]).is_some() {}
        }
    }
}
