//! The head of a request: its headers, and quickly that one of them is not there.
//!
//! An operation asks for some twenty headers of which a request has three or four, and each look into a map of
//! them hashes a name. Names mostly differ in their lengths, so a set of lengths answers most of these questions.

use hyper::header::{AsHeaderName, HeaderMap, HeaderValue};

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Head {
    headers: HeaderMap,
    /// A bit for each length that a name has; the last one for all that are longer.
    lengths: u128,
}

impl Head {
    /// A header by its name.
    #[inline]
    pub(crate) fn get(&self, name: impl AsHeaderName + AsRef<str>) -> Option<&HeaderValue> {
        match self.lengths & bit_of(name.as_ref()) {
            0 => None,
            _ => self.headers.get(name),
        }
    }

    /// A header as text; one that is not text counts as absent.
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
