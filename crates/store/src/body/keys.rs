//! Detects duplicate property names in an object.
//!
//! All open objects share one stack of key hashes. Per object, a bloom filter of 64 bits shows for
//! most small objects that all keys differ. If two keys hit the same bit, the hashes are compared
//! when the object closes. Only equal hashes, or more than 64 keys, lead to the slow path:
//!
//! ```text
//! {"a":1,"b":{"c":2,"d":3}}
//!                        ^ stack: a b | c d    compare c d, drop them
//!                         ^ stack: a b         compare a b
//! ```
//!
//! The slow path sorts, so an object of 100 000 keys costs n log n whatever its hashes are. A sender
//! who provokes hash collisions gains nothing. Keys are compared without escapes (`"a"` equals
//! `"\u0061"`).

use super::error::{Fault, Problem};
use super::inline::Inline;
use super::text;
use super::words::Offset;

/// Up to this many keys of one object go through a table on the stack, filling a quarter of it.
const TABLE_KEYS_MAX: usize = 64;

/// The keys of the objects that are open, outermost first.
pub(super) struct Keys {
    /// The hash in the upper half, the offset of the key's first character in the lower one. That
    /// fits: bodies are shorter than 4 GiB, see `Limits`.
    open: Inline<u64, TABLE_KEYS_MAX>,
}

/// One object that is open.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// Number of keys on the stack before its own.
    first: usize,
    /// One bit per key, by hash. While no bit is hit twice the keys are certainly distinct.
    bits: u64,
    hit_twice: bool,
}

impl Keys {
    #[inline]
    pub(super) fn new() -> Keys {
        Keys { open: Inline::new() }
    }

    /// Opens an object: the mark to add its keys and to close it with.
    #[inline]
    pub(super) fn open(&self) -> Mark {
        Mark { first: self.open.len(), bits: 0, hit_twice: false }
    }

    /// Adds a key to the innermost object.
    #[inline]
    pub(super) fn push(&mut self, mark: &mut Mark, hash: u32, start: Offset) {
        let bit = 1 << (hash & 63);
        mark.hit_twice |= mark.bits & bit != 0;
        mark.bits |= bit;
        self.open.push(u64::from(hash) << 32 | u64::from(start));
    }

    /// Closes the object opened with `mark`: fails if two of its keys are the same.
    #[inline]
    pub(super) fn close(&mut self, body: &[u8], mark: Mark) -> Result<(), Fault> {
        if mark.hit_twice {
            self.compare(body, mark)?;
        }
        self.open.truncate(mark.first);
        Ok(())
    }

    fn compare(&self, body: &[u8], mark: Mark) -> Result<(), Fault> {
        let keys = self.open.as_slice().get(mark.first..).unwrap_or_default();
        if keys.len() <= TABLE_KEYS_MAX && !has_equal_hashes(keys) {
            Ok(())
        } else {
            verify(body, keys)
        }
    }
}

#[cold]
fn verify(body: &[u8], keys: &[u64]) -> Result<(), Fault> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    // Of several duplicates, the first in the body is reported.
    let same_hash = keys.chunk_by(|a, b| a >> 32 == b >> 32);
    match same_hash.filter_map(|keys| duplicate(body, keys)).min() {
        Some(start) => Err(Problem::DuplicateKey.at(start)),
        None => Ok(()),
    }
}

/// Whether two of at most `TABLE_KEYS_MAX` keys have equal hashes.
fn has_equal_hashes(keys: &[u64]) -> bool {
    // A hash table: 1 + the index of a key, or 0 for a free place.
    let mut table = [0_u8; 256];
    for (key, number) in keys.iter().zip(1..) {
        let mut place = (key >> 56) as u8;
        loop {
            let other = table[usize::from(place)];
            if other == 0 {
                table[usize::from(place)] = number;
                break;
            }
            if keys[usize::from(other) - 1] >> 32 == key >> 32 {
                return true;
            }
            place = place.wrapping_add(1);
        }
    }
    false
}

/// Among keys of one hash, the earliest that repeats another one.
fn duplicate(body: &[u8], same_hash: &[u64]) -> Option<Offset> {
    if same_hash.len() < 2 {
        return None;
    }
    let mut keys: Vec<_> = same_hash
        .iter()
        .map(|&key| (key & 0xffff_ffff) as Offset)
        .map(|start| (text::unescape(text::inside(body, start as usize)), start))
        .collect();
    keys.sort_unstable();
    keys.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::words;

    /// Closes an object of these keys, all with the same hash if `collide`. The index of the key
    /// that was reported, if one was.
    fn reported(names: &[&str], collide: bool) -> Option<usize> {
        let mut body = Vec::new();
        let mut starts = Vec::new();
        let mut keys = Keys::new();
        keys.push(&mut keys.open(), 7, 0);
        let mut mark = keys.open();
        for name in names {
            body.push(b'"');
            let start = Offset::try_from(body.len()).unwrap();
            let unescaped = text::unescape(name.as_bytes());
            let hash = if collide { 1 } else { words::hash(unescaped.as_bytes()) };
            keys.push(&mut mark, hash, start);
            starts.push(Problem::DuplicateKey.at(start));
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(b"\":1,");
        }
        match keys.close(&body, mark) {
            Ok(()) => {
                assert_eq!(keys.open().first, mark.first, "a closed object leaves nothing behind");
                None
            }
            Err(fault) => starts.iter().position(|start| *start == fault),
        }
    }

    #[test]
    fn duplicates_are_found_whatever_the_hashes() {
        let cases: &[(&[&str], Option<usize>)] = &[
            (&[], None),
            (&["a"], None),
            (&["a", "b", "ab", "ba", ""], None),
            (&["a", "a"], Some(1)),
            (&["a", r"\u0061"], Some(1)),
            (&["", "b", ""], Some(2)),
            (&[r"\n", r"\u000a"], Some(1)),
            (&["a", "b", "b", "a"], Some(2)),
            (&["a", "a", "a"], Some(1)),
            (&["A", "a"], None),
        ];
        for (names, place) in cases {
            assert_eq!(reported(names, false), *place, "{names:?}");
            assert_eq!(reported(names, true), *place, "{names:?} with equal hashes");
        }
    }

    #[test]
    fn wide_objects_are_checked_on_both_sides_of_the_limit() {
        for width in [TABLE_KEYS_MAX - 2, TABLE_KEYS_MAX - 1, TABLE_KEYS_MAX, 5_000] {
            let mut names: Vec<String> = (0..width).map(|number| format!("k{number}")).collect();
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            assert_eq!(reported(&all, false), None, "{width} keys");
            assert_eq!(reported(&all, true), None, "{width} keys of one hash");
            names.push("k1".to_owned());
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            assert_eq!(reported(&all, false), Some(width), "{width} keys and one more");
            assert_eq!(reported(&all, true), Some(width), "{width} keys of one hash and one more");
        }
    }
}
