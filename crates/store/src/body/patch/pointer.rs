//! JSON pointers (RFC 6901): `/a/b~1c/0` names property `a`, property `b/c`, element 0.
//!
//! The value that a segment addresses decides whether it is a property name or an index: `/0` is
//! property `0` of an object and element 0 of an array. The empty pointer, which names the whole
//! item, is rejected: a whole item is replaced, not patched.

use std::fmt;

/// A path to a value inside an item, with at least one segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pointer {
    parents: Vec<String>,
    last: String,
}

impl Pointer {
    /// Parses a pointer; the error describes the problem.
    pub(super) fn parse(text: &str) -> Result<Pointer, &'static str> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err("a path must begin with a slash, as in /address/city");
        };
        let mut parents = rest.split('/').map(unescape).collect::<Result<Vec<_>, _>>()?;
        let last = parents.pop().unwrap_or_default();
        Ok(Pointer { parents, last })
    }

    /// All segments but the last, unescaped.
    pub(super) fn parents(&self) -> &[String] {
        &self.parents
    }

    /// The last segment, unescaped.
    pub(super) fn last(&self) -> &str {
        &self.last
    }

    /// The segments, unescaped.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.parents.iter().chain([&self.last]).map(String::as_str)
    }

    /// Whether `other` addresses a value inside the value at this pointer.
    pub(super) fn contains(&self, other: &Pointer) -> bool {
        self.parents.len() < other.parents.len()
            && self.segments().zip(other.segments()).all(|(own, others)| own == others)
    }

    /// Whether a change at this pointer can change the value at a path of property names, or the
    /// other way round.
    pub(super) fn overlaps<S: AsRef<str>>(&self, path: &[S]) -> bool {
        self.segments().zip(path).all(|(segment, name)| segment == name.as_ref())
    }
}

fn unescape(segment: &str) -> Result<String, &'static str> {
    let mut text = String::with_capacity(segment.len());
    let mut parts = segment.split('~');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (character, rest) = match part.as_bytes().first() {
            Some(b'0') => ('~', &part[1..]),
            Some(b'1') => ('/', &part[1..]),
            _ => return Err("a tilde in a path must be written ~0, and a slash in a name ~1"),
        };
        text.push(character);
        text.push_str(rest);
    }
    Ok(text)
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in self.segments() {
            write!(f, "/{}", segment.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(text: &str) -> Pointer {
        Pointer::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"))
    }

    #[test]
    fn segments_and_back() {
        let cases: &[(&str, &[&str])] = &[
            ("/a", &["a"]),
            ("/", &[""]),
            ("//", &["", ""]),
            ("/a/b/0/-", &["a", "b", "0", "-"]),
            ("/a~1b/c~0d/~01", &["a/b", "c~d", "~1"]),
            ("/é \"\\", &["é \"\\"]),
        ];
        for (text, segments) in cases {
            assert_eq!(pointer(text).segments().collect::<Vec<_>>(), *segments, "{text}");
            assert_eq!(pointer(text).to_string(), *text);
        }
        for text in ["", "a", "a/b", "~", "/~", "/~2", "/a~", "/a/~é"] {
            assert!(Pointer::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn containing_and_overlapping() {
        let cases = [
            ("/a", "/a", false, true),
            ("/a", "/a/b", true, true),
            ("/a/b", "/a", false, true),
            ("/a", "/ab", false, false),
            ("/a/b", "/a/c", false, false),
            ("/a/b/c", "/a", false, true),
            ("/", "/a", false, false),
        ];
        for (one, other, contains, overlaps) in cases {
            assert_eq!(pointer(one).contains(&pointer(other)), contains, "{one} {other}");
            let path: Vec<String> = pointer(other).segments().map(str::to_owned).collect();
            assert_eq!(pointer(one).overlaps(&path), overlaps, "{one} {other}");
        }
    }
}
