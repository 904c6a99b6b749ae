//! The single pass over a body: checks RFC 8259 and our stricter rules, and locates wanted values.
//!
//! A recursive descent parser that builds no tree. Each function takes the offset where its piece
//! starts and returns the offset just past it. The nesting limit is reached before the stack
//! overflows, so a hostile body of brackets ends as an error. Bytes past the end read as zero, which
//! no rule accepts, so the functions need no separate test for the end of the body.
//!
//! Nothing is unescaped, parsed or copied here, except a key that contains an escape and a number
//! that might be too large.

use super::error::{Fault, Problem};
use super::inline::Inline;
use super::keys::Keys;
use super::number;
use super::span::{ValueKind, ValueSpan};
use super::text;
use super::wanted::{Node, ROOT, Role, SYSTEM, Wanted};
use super::words::{self, Offset, byte, slice};

/// The values that a pass located at the top level and at the wanted paths.
#[derive(Clone, Debug)]
pub(super) struct LocatedValues {
    pub(super) id: Option<ValueSpan>,
    pub(super) ttl: Option<ValueSpan>,
    /// One per wanted path. Eight cover a partition key and a few unique keys without allocating.
    pub(super) values: Inline<Option<ValueSpan>, 8>,
    /// The regions of the system properties, in the order of the body. More than six of them would
    /// be duplicates.
    pub(super) system: Inline<Region, { SYSTEM.len() }>,
}

/// A member of the top-level object with the whitespace around it: from just past the brace or
/// comma before it to the comma or brace after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) start: Offset,
    pub(super) end: Offset,
}

impl LocatedValues {
    /// An empty result with room for the values of `paths` paths.
    pub(super) fn nothing(paths: usize) -> LocatedValues {
        LocatedValues {
            id: None,
            ttl: None,
            values: Inline::of_length(paths),
            system: Inline::new(),
        }
    }
}

/// One pass over one body.
pub(super) struct Scanner<'b, 'w, 'f> {
    body: &'b [u8],
    wanted: Option<&'w Wanted>,
    nesting_max: usize,
    keys: Keys,
    /// Filled in place: moving it was the largest cost of scanning `{}`.
    found: &'f mut LocatedValues,
}

/// A key that has been read.
struct Key {
    /// Offset of its closing quote.
    end: Offset,
    hash: u32,
}

impl<'b, 'w, 'f> Scanner<'b, 'w, 'f> {
    #[inline]
    pub(super) fn new(
        body: &'b [u8],
        wanted: Option<&'w Wanted>,
        nesting_max: usize,
        found: &'f mut LocatedValues,
    ) -> Self {
        Scanner { body, wanted, nesting_max, keys: Keys::new(), found }
    }

    /// Reads a whole item: one object and nothing else. Returns its span.
    pub(super) fn item(&mut self) -> Result<ValueSpan, Fault> {
        let start = space(self.body, 0);
        match ValueKind::starting_with(byte(self.body, start)) {
            Some(ValueKind::Object) => {}
            Some(_) => return Err(Problem::NotAnObject.at(start)),
            None => return Err(Problem::NoValue.at(start)),
        }
        let root = self.wanted.and_then(|wanted| wanted.node(ROOT));
        let end = self.object(start, 1, root)?;
        self.nothing_after(end)?;
        let object = ValueSpan { kind: ValueKind::Object, start, end };
        if let Some(root) = root {
            self.note_wanted(root, object);
        }
        Ok(object)
    }

    /// Reads one value of any kind and nothing else. Returns its span.
    pub(super) fn any_value(&mut self) -> Result<ValueSpan, Fault> {
        let start = space(self.body, 0);
        let end = self.value(start, 0, None)?;
        self.nothing_after(end)?;
        match ValueKind::starting_with(byte(self.body, start)) {
            Some(kind) => Ok(ValueSpan { kind, start, end }),
            None => Err(Problem::NoValue.at(start)),
        }
    }

    fn nothing_after(&self, end: Offset) -> Result<(), Fault> {
        let rest = space(self.body, end);
        let is_end = rest as usize >= self.body.len();
        if is_end { Ok(()) } else { Err(Problem::BytesAfterEnd.at(rest)) }
    }

    /// Reads one value. `depth` is the number of objects and arrays around it. `node` is the trie node
    /// of this value if a wanted path continues below it.
    #[inline(always)]
    fn value(
        &mut self,
        start: Offset,
        depth: usize,
        node: Option<&'w Node>,
    ) -> Result<Offset, Fault> {
        match byte(self.body, start) {
            b'"' => Ok(string(self.body, start + 1)? + 1),
            b'-' | b'0'..=b'9' => number::scan(self.body, start),
            b'{' => self.object(start, depth + 1, node),
            b'[' => self.array(start, depth + 1),
            b't' => literal(self.body, start, b"true"),
            b'f' => literal(self.body, start, b"false"),
            b'n' => literal(self.body, start, b"null"),
            _ => Err(Problem::NoValue.at(start)),
        }
    }

    fn array(&mut self, start: Offset, depth: usize) -> Result<Offset, Fault> {
        if depth > self.nesting_max {
            return Err(Problem::TooDeep.at(start));
        }
        let mut at = space(self.body, start + 1);
        if byte(self.body, at) == b']' {
            return Ok(at + 1);
        }
        loop {
            let end = self.value(at, depth, None)?;
            at = space(self.body, end);
            match byte(self.body, at) {
                b',' => at = space(self.body, at + 1),
                b']' => return Ok(at + 1),
                _ => return Err(Problem::NoCommaOrBracket.at(at)),
            }
        }
    }

    fn object(
        &mut self,
        start: Offset,
        depth: usize,
        node: Option<&'w Node>,
    ) -> Result<Offset, Fault> {
        if depth > self.nesting_max {
            return Err(Problem::TooDeep.at(start));
        }
        let mut mark = self.keys.open();
        let mut region_start = start + 1;
        let mut at = space(self.body, region_start);
        if byte(self.body, at) == b'}' {
            return Ok(at + 1);
        }
        loop {
            if byte(self.body, at) != b'"' {
                return Err(Problem::NoKey.at(at));
            }
            let key_start = at + 1;
            let key = key(self.body, key_start)?;
            self.keys.push(&mut mark, key.hash, key_start);
            let value_start = colon(self.body, key.end)?;
            let child = match node {
                Some(node) => self.step(node, key_start, &key),
                None => None,
            };
            let below = child.filter(|child| child.has_children());
            let value_end = self.value(value_start, depth, below)?;
            at = space(self.body, value_end);
            if let Some(child) = child {
                let region = Region { start: region_start, end: at };
                self.note(child, value_start, value_end, region)?;
            }
            match byte(self.body, at) {
                b',' => {
                    region_start = at + 1;
                    at = space(self.body, region_start);
                }
                b'}' => break,
                _ => return Err(Problem::NoCommaOrBrace.at(at)),
            }
        }
        self.keys.close(self.body, mark)?;
        Ok(at + 1)
    }

    fn step(&self, node: &'w Node, key_start: Offset, key: &Key) -> Option<&'w Node> {
        let child = node.step(key.hash, slice(self.body, key_start, key.end))?;
        self.wanted?.node(child)
    }

    /// Records the value of a wanted or well-known property.
    fn note(
        &mut self,
        node: &'w Node,
        start: Offset,
        end: Offset,
        region: Region,
    ) -> Result<(), Fault> {
        let Some(kind) = ValueKind::starting_with(byte(self.body, start)) else {
            return Err(Problem::NoValue.at(start));
        };
        let value = ValueSpan { kind, start, end };
        match node.role {
            Role::User => {}
            Role::Id if kind != ValueKind::String => return Err(Problem::IdNotAString.at(start)),
            Role::Id => self.found.id = Some(value),
            Role::Ttl => self.found.ttl = Some(value),
            Role::System => self.found.system.push(region),
        }
        self.note_wanted(node, value);
        Ok(())
    }

    fn note_wanted(&mut self, node: &Node, value: ValueSpan) {
        for &path in &node.ends {
            if let Some(found) = self.found.values.as_mut_slice().get_mut(path) {
                *found = Some(value);
            }
        }
    }
}

/// Skips whitespace.
#[inline(always)]
fn space(body: &[u8], at: Offset) -> Offset {
    // Compact bodies have no whitespace, so the loop is kept out of line.
    if byte(body, at) > b' ' { at } else { some_space(body, at) }
}

#[inline(never)]
fn some_space(body: &[u8], mut at: Offset) -> Offset {
    while matches!(byte(body, at), b' ' | b'\n' | b'\r' | b'\t') {
        at += 1;
    }
    at
}

/// Reads the colon that follows the closing quote of a key; returns the offset of the value.
#[inline(always)]
fn colon(body: &[u8], quote: Offset) -> Result<Offset, Fault> {
    let at = space(body, quote + 1);
    if byte(body, at) == b':' { Ok(space(body, at + 1)) } else { Err(Problem::NoColon.at(at)) }
}

#[inline]
fn literal(body: &[u8], start: Offset, word: &[u8]) -> Result<Offset, Fault> {
    let mut at = start;
    for &letter in word {
        if byte(body, at) != letter {
            return Err(Problem::BadLiteral.at(at));
        }
        at += 1;
    }
    Ok(at)
}

/// Reads a string from its first character on; returns the offset of its closing quote.
#[inline(always)]
fn string(body: &[u8], start: Offset) -> Result<Offset, Fault> {
    // Only plain ASCII is handled here, so that the loop stays small enough to be inlined.
    let mut at = start;
    loop {
        let word = words::word(body, at);
        let marks = words::specials_or_beyond_ascii(word);
        if marks == 0 {
            at += 8;
            continue;
        }
        at += words::bytes_before(marks);
        return if byte(body, at) == b'"' { Ok(at) } else { odd_string(body, start, at) };
    }
}

/// The rest of a string, from an `at` on where it is no longer plain ASCII.
#[inline(never)]
fn odd_string(body: &[u8], start: Offset, mut at: Offset) -> Result<Offset, Fault> {
    let mut seen = 0;
    loop {
        let word = words::word(body, at);
        let marks = words::specials(word);
        if marks == 0 {
            seen |= word;
            at += 8;
            continue;
        }
        seen |= words::lowest(word, words::bits_before(marks));
        at += words::bytes_before(marks);
        match byte(body, at) {
            b'"' => break,
            b'\\' => at = escape(body, at)?,
            _ => return Err(Problem::ControlCharacter.at(at)),
        }
    }
    if words::beyond_ascii(seen) {
        utf8(body, start, at)?;
    }
    Ok(at)
}

/// Reads a key from its first character on, hashing it on the way.
#[inline(always)]
fn key(body: &[u8], start: Offset) -> Result<Key, Fault> {
    let mut at = start;
    let mut hash = 0;
    loop {
        let word = words::word(body, at);
        let marks = words::specials_or_beyond_ascii(word);
        if marks == 0 {
            hash = words::mix(hash, word);
            at += 8;
            continue;
        }
        hash = words::mix(hash, words::lowest(word, words::bits_before(marks)));
        at += words::bytes_before(marks);
        return if byte(body, at) == b'"' {
            Ok(Key { end: at, hash: words::fold(hash) })
        } else {
            odd_key(body, start)
        };
    }
}

#[inline(never)]
fn odd_key(body: &[u8], start: Offset) -> Result<Key, Fault> {
    let end = odd_string(body, start, start)?;
    let name = text::unescape(slice(body, start, end));
    Ok(Key { end, hash: words::hash(name.as_bytes()) })
}

/// Checks a string that has bytes beyond ASCII. A character never reaches past its string, since
/// the quote that ends it is ASCII: strings can be checked one by one.
fn utf8(body: &[u8], start: Offset, end: Offset) -> Result<(), Fault> {
    let string = slice(body, start, end);
    // The check of `std` is the fastest without `unsafe`. Only the message needs the offset.
    match std::str::from_utf8(string) {
        Ok(_) => Ok(()),
        Err(error) => {
            let valid = Offset::try_from(error.valid_up_to()).unwrap_or_default();
            Err(Problem::NotUtf8.at(start + valid))
        }
    }
}

/// Reads the escape whose backslash is at `at`.
fn escape(body: &[u8], at: Offset) -> Result<Offset, Fault> {
    match byte(body, at + 1) {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(at + 2),
        b'u' => unicode_escape(body, at),
        _ => Err(Problem::BadEscape.at(at + 1)),
    }
}

fn unicode_escape(body: &[u8], at: Offset) -> Result<Offset, Fault> {
    for digit in at + 2..at + 6 {
        if !byte(body, digit).is_ascii_hexdigit() {
            return Err(Problem::BadEscape.at(digit));
        }
    }
    let unit = |at: Offset| text::hex4(body, at as usize).unwrap_or_default();
    match unit(at + 2) {
        0xd800..0xdc00 => {
            let paired = byte(body, at + 6) == b'\\'
                && byte(body, at + 7) == b'u'
                && (0xdc00..0xe000).contains(&unit(at + 8));
            if paired { Ok(at + 12) } else { Err(Problem::LoneSurrogate.at(at)) }
        }
        0xdc00..0xe000 => Err(Problem::LoneSurrogate.at(at)),
        _ => Ok(at + 6),
    }
}
