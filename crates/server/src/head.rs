//! The headers of a request, with a fast check for absent ones.
//!
//! An operation reads some twenty headers, of which a request has three or four, and each lookup in a map hashes
//! a name. Names differ mostly in length, so a bit set of lengths answers most lookups.

use hyper::header::{AsHeaderName, HeaderMap, HeaderValue};

/// A header map with a bit set of the lengths of its names.
#[derive(Debug)]
pub(crate) struct Head {
    headers: HeaderMap,
    /// A bit per length of a name; the last bit is for all longer names.
    lengths: u128,
}

impl Head {
    /// Returns a header by name.
    #[inline]
    pub(crate) fn get(&self, name: impl AsHeaderName + AsRef<str>) -> Option<&HeaderValue> {
        match self.lengths & bit_of(name.as_ref()) {
            0 => None,
            _ => self.headers.get(name),
        }
    }

    /// Returns a header as text. One that is not visible ASCII counts as absent.
    #[inline]
    pub(crate) fn text(&self, name: impl AsHeaderName + AsRef<str>) -> Option<&str> {
        self.get(name).and_then(|value| value.to_str().ok())
    }

    #[inline]
    pub(crate) fn contains(&self, name: impl AsHeaderName + AsRef<str>) -> bool {
        self.get(name).is_some()
    }
}

impl From<HeaderMap> for Head {
    fn from(headers: HeaderMap) -> Head {
        let lengths = headers.keys().fold(0, |lengths, name| lengths | bit_of(name.as_str()));
        Head { headers, lengths }
    }
}

fn bit_of(name: &str) -> u128 {
    1 << name.len().min(127)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{CONTENT_TYPE, HeaderName, IF_MATCH};

    #[test]
    fn what_is_there_is_found_and_nothing_else() {
        let names = [1, 4, 126, 127, 128, 300].map(|length| "x".repeat(length));
        let mut headers = HeaderMap::new();
        for name in &names {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.insert(name, HeaderValue::from_static("v"));
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("t"));
        let head = Head::from(headers);
        assert!(names.iter().all(|name| head.get(name.as_str()).is_some_and(|value| value == "v")));
        assert_eq!(head.get(CONTENT_TYPE).unwrap(), "t");
        assert!(head.contains("content-type") && !head.contains(IF_MATCH));
        for other in ["y", "yyyy", "", "xx", &"y".repeat(127), &"x".repeat(129)] {
            assert!(!head.contains(other), "{other}");
        }
    }
}
