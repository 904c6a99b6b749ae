//! Finds out whether an object names a property twice.
//!
//! All objects that are open at one moment share a stack of key hashes. When an object closes, its
//! part of the stack is compared pairwise, which for a handful of keys is a few vector instructions.
//! Only equal hashes, or more keys than pairs are good for, lead to the slow path:
//!
//! ```text
//! {"a":1,"b":{"c":2,"d":3}}
//!                        ^ stack: a b | c d    compare c d, drop them
//!                         ^ stack: a b         compare a b
//! ```
//!
//! The slow path sorts, so an object of 100 000 keys costs n log n however their hashes fall: a
//! sender who knows our hash can make it collide and gains nothing. It compares keys without their
//! escapes (`"a"` is `"\u0061"`).

use super::error::{Fault, Problem};
use super::inline::Inline;
use super::text;
use super::words::Offset;

/// Up to this many keys in one object are compared pairwise. 64 keys are 2016 comparisons, four at
/// a time; past that sorting wins.
const PAIRWISE_MAX: usize = 64;

/// The keys of the objects that are open, outermost first.
pub(super) struct Keys {
    /// The hash in the upper half, the offset of the key's first character in the lower one. That
    /// fits: bodies are shorter than 4 GiB, see `Limits`.
    open: Inline<u64, PAIRWISE_MAX>,
}

/// One object that is open.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// How many keys came before its own.
    first: usize,
    /// One bit per key, by hash. While no bit is hit twice the keys are certainly distinct.
    bits: u64,
    hit_twice: bool,
}

impl Keys {
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
        if keys.len() <= PAIRWISE_MAX && !has_equal_pair(keys) { Ok(()) } else { verify(body, keys) }
    }
}

#[cold]
fn verify(body: &[u8], keys: &[u64]) -> Result<(), Fault> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    // Of several duplicates the first in the body is reported, as a reader would expect.
    let same_hash = keys.chunk_by(|a, b| a >> 32 == b >> 32);
    match same_hash.filter_map(|keys| duplicate(body, keys)).min() {
        Some(start) => Err(Problem::DuplicateKey.at(start)),
        None => Ok(()),
    }
}

/// Whether two hashes are equal. No early exit: the loop without one is compiled to vectors.
fn has_equal_pair(keys: &[u64]) -> bool {
    let mut hashes = [0; PAIRWISE_MAX];
    for (hash, key) in hashes.iter_mut().zip(keys) {
        *hash = (key >> 32) as u32;
    }
    let hashes = &hashes[..keys.len().min(PAIRWISE_MAX)];
    let mut equal = false;
    for (index, hash) in hashes.iter().enumerate() {
        for other in &hashes[index + 1..] {
            equal |= hash == other;
        }
    }
    equal
}

/// Among keys of one hash, the earliest that repeats another one.
fn duplicate(body: &[u8], same_hash: &[u64]) -> Option<Offset> {
    if same_hash.len() < 2 {
        return None;
    }
    let mut keys: Vec<_> = same_hash
        .iter()
        .map(|&key| (key & u64::from(Offset::MAX)) as Offset)
        .map(|start| (text::unescape(text::inside(body, start as usize)), start))
        .collect();
    keys.sort_unstable();
    keys.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::words;

    /// Closes an object of these keys, all with the same hash if `collide`.
    fn close(names: &[&str], collide: bool) -> Result<(), Fault> {
        let mut body = Vec::new();
        let mut keys = Keys::new();
        keys.push(&mut keys.open(), 7, 0);
        let mut mark = keys.open();
        for name in names {
            body.push(b'"');
            let unescaped = text::unescape(name.as_bytes());
            let hash = if collide { 1 } else { words::hash(unescaped.as_bytes()) };
            keys.push(&mut mark, hash, Offset::try_from(body.len()).unwrap());
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(b"\":1,");
        }
        let closed = keys.close(&body, mark);
        if closed.is_ok() {
            assert_eq!(keys.open().first, mark.first, "a closed object leaves nothing behind");
        }
        closed
    }

    #[test]
    fn duplicates_are_found_whatever_the_hashes() {
        let cases: &[(&[&str], Option<Offset>)] = &[
            (&[], None),
            (&["a"], None),
            (&["a", "b", "ab", "ba", ""], None),
            (&["a", "a"], Some(6)),
            (&["a", r"\u0061"], Some(6)),
            (&["", "b", ""], Some(10)),
            (&[r"\n", r"\u000a"], Some(7)),
            (&["a", "b", "b", "a"], Some(11)),
            (&["A", "a"], None),
        ];
        for (names, place) in cases {
            let expected = place.map_or(Ok(()), |at| Err(Problem::DuplicateKey.at(at)));
            assert_eq!(close(names, false), expected, "{names:?}");
            assert_eq!(close(names, true), expected, "{names:?} with equal hashes");
        }
    }

    #[test]
    fn wide_objects_are_checked_on_both_sides_of_the_pairwise_limit() {
        for width in [PAIRWISE_MAX - 2, PAIRWISE_MAX - 1, PAIRWISE_MAX, PAIRWISE_MAX + 1, 5_000] {
            let mut names: Vec<String> = (0..width).map(|number| format!("k{number}")).collect();
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            assert_eq!(close(&all, false), Ok(()), "{width} keys");
            assert_eq!(close(&all, true), Ok(()), "{width} keys of one hash");
            names.push("k1".to_owned());
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            assert!(close(&all, false).is_err() && close(&all, true).is_err(), "{width} keys");
        }
    }
}
