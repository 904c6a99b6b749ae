//! Half-open ranges of effective partition keys: the keys a partition owns, or the part of a container that a
//! reader requests.
//!
//! ```text
//! full            [ ................................ )      "" .. FF
//! after a split   [ ............. )[ ............... )      "" .. 1F…   1F… .. FF
//! one key               [)                                   k .. k00
//! ```
//!
//! A range is never empty, so adjacent ranges share no key and an intersection is a range or `None`. This file
//! does not check whether ranges cover a whole container.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Epk;

/// The keys from `min` up to, and not including, `max`.
///
/// Not `Ord`: overlapping ranges have no order worth relying on. Sort by [`KeyRange::min`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bounds")]
pub struct KeyRange {
    min: Epk,
    max: Epk,
}

/// The bounds read from JSON, before they are checked.
#[derive(Deserialize)]
struct Bounds {
    min: Epk,
    max: Epk,
}

impl TryFrom<Bounds> for KeyRange {
    type Error = KeyRangeError;

    fn try_from(bounds: Bounds) -> Result<KeyRange, KeyRangeError> {
        KeyRange::new(bounds.min, bounds.max)
    }
}

impl KeyRange {
    /// The range from `min` up to `max`, which must be higher.
    pub fn new(min: Epk, max: Epk) -> Result<KeyRange, KeyRangeError> {
        if min < max { Ok(KeyRange { min, max }) } else { Err(KeyRangeError::Empty { min, max }) }
    }

    /// Every key a container can hold.
    pub fn full() -> KeyRange {
        KeyRange { min: Epk::min(), max: Epk::max() }
    }

    /// Exactly this one key.
    ///
    /// The SDKs request one key with `[key, key + 1)` instead. That range is wider: it also contains every
    /// longer key that starts with this one. So bounds from a client are used unchanged and never turned into
    /// a point.
    pub fn point(key: &Epk) -> KeyRange {
        KeyRange { min: key.clone(), max: key.followed_by(0x00) }
    }

    /// Every key that starts with `prefix`: `[prefix, prefix FF)`.
    pub(crate) fn starting_with(prefix: &Epk) -> KeyRange {
        KeyRange { min: prefix.clone(), max: prefix.followed_by(0xFF) }
    }

    /// The lowest key inside.
    pub fn min(&self) -> &Epk {
        &self.min
    }

    /// The lowest key above the range.
    pub fn max(&self) -> &Epk {
        &self.max
    }

    /// Whether a key with these bytes is inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.min.as_bytes() <= key && key < self.max.as_bytes()
    }

    /// Whether all of `other` is inside.
    pub fn contains_range(&self, other: &KeyRange) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// Whether any key is in both.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        self.min < other.max && other.min < self.max
    }

    /// The keys in both, if there are any.
    pub fn intersect(&self, other: &KeyRange) -> Option<KeyRange> {
        let min = (&self.min).max(&other.min);
        let max = (&self.max).min(&other.max);
        (min < max).then(|| KeyRange { min: min.clone(), max: max.clone() })
    }

    /// Cuts the range in two; `key` becomes the first key of the upper part.
    pub fn split_at(&self, key: &Epk) -> Result<(KeyRange, KeyRange), KeyRangeError> {
        if *key <= self.min || *key >= self.max {
            return Err(KeyRangeError::NotInside { key: key.clone(), range: self.clone() });
        }
        let lower = KeyRange { min: self.min.clone(), max: key.clone() };
        let upper = KeyRange { min: key.clone(), max: self.max.clone() };
        Ok((lower, upper))
    }

    /// Joins two ranges that touch, in either order.
    pub fn merge(&self, other: &KeyRange) -> Result<KeyRange, KeyRangeError> {
        if self.max == other.min {
            Ok(KeyRange { min: self.min.clone(), max: other.max.clone() })
        } else if other.max == self.min {
            Ok(KeyRange { min: other.min.clone(), max: self.max.clone() })
        } else {
            Err(KeyRangeError::NotAdjacent { one: self.clone(), other: other.clone() })
        }
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.min, self.max)
    }
}

/// Why there is no such range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyRangeError {
    /// The bounds enclose no key.
    #[error("range {min}..{max} is empty; its end must be higher than its start")]
    Empty {
        /// The requested start.
        min: Epk,
        /// The requested end.
        max: Epk,
    },
    /// A split point on a bound or outside would leave one side empty.
    #[error("{key} does not divide range {range}; choose a key inside it and above its start")]
    NotInside {
        /// The requested split point.
        key: Epk,
        /// The range to be split.
        range: KeyRange,
    },
    /// Ranges with a gap between them or with an overlap cannot be merged.
    #[error("ranges {one} and {other} do not touch; merge only neighbours")]
    NotAdjacent {
        /// The range that was asked.
        one: KeyRange,
        /// The range to be joined to it.
        other: KeyRange,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epk(text: &str) -> Epk {
        Epk::from_hex(text).unwrap()
    }

    fn range(text: &str) -> KeyRange {
        let (min, max) = text.split_once("..").unwrap();
        KeyRange::new(epk(min), epk(max)).unwrap()
    }

    #[test]
    fn ranges_enclose_something() {
        for (min, max) in [("", ""), ("20", "20"), ("20", "10"), ("FF", ""), ("2000", "20")] {
            let refused = KeyRangeError::Empty { min: epk(min), max: epk(max) };
            assert_eq!(KeyRange::new(epk(min), epk(max)), Err(refused));
        }
        assert_eq!(range("..FF"), KeyRange::full());
    }

    #[test]
    fn contained_keys() {
        for (text, key, inside) in [
            ("..FF", "", true),
            ("..FF", "FE", true),
            ("..FF", "FF", false),
            ("10..20", "10", true),
            ("10..20", "1000", true),
            ("10..20", "1FFFFF", true),
            ("10..20", "20", false),
            ("10..20", "0FFF", false),
        ] {
            assert_eq!(range(text).contains(epk(key).as_bytes()), inside, "{key} in {text}");
        }
    }

    #[test]
    fn a_point_holds_one_key() {
        let point = KeyRange::point(&epk("3A53"));
        assert_eq!(point, range("3A53..3A5300"));
        assert!(point.contains(&[0x3A, 0x53]));
        assert!(!point.contains(&[0x3A, 0x53, 0x00]));
        assert!(!point.contains(&[0x3A, 0x52, 0xFF]));
        assert_eq!(KeyRange::point(&Epk::min()), range("..00"));
    }

    #[track_caller]
    fn check_pair(one: &str, other: &str, common: Option<&str>, merged: Option<&str>) {
        let (one, other) = (range(one), range(other));
        for (a, b) in [(&one, &other), (&other, &one)] {
            assert_eq!(a.intersect(b), common.map(range), "{a} and {b}");
            assert_eq!(a.overlaps(b), common.is_some(), "{a} and {b}");
            let not_adjacent = KeyRangeError::NotAdjacent { one: a.clone(), other: b.clone() };
            assert_eq!(a.merge(b), merged.map(range).ok_or(not_adjacent), "{a} and {b}");
        }
    }

    #[test]
    fn pairs() {
        check_pair("..FF", "10..20", Some("10..20"), None);
        check_pair("10..20", "10..20", Some("10..20"), None);
        check_pair("10..20", "18..28", Some("18..20"), None);
        check_pair("10..20", "20..30", None, Some("10..30"));
        check_pair("10..20", "2000..30", None, None);
        check_pair("10..20", "30..40", None, None);
        check_pair("..20", "20..FF", None, Some("..FF"));
    }

    #[test]
    fn containment_of_ranges() {
        for (outer, inner, expected) in [
            ("..FF", "..FF", true),
            ("10..20", "10..20", true),
            ("10..20", "10..18", true),
            ("10..20", "18..20", true),
            ("10..20", "0F..18", false),
            ("10..20", "18..21", false),
            ("10..20", "30..40", false),
        ] {
            assert_eq!(range(outer).contains_range(&range(inner)), expected, "{inner} in {outer}");
        }
    }

    #[test]
    fn splits() {
        let whole = range("10..30");
        assert_eq!(whole.split_at(&epk("20")), Ok((range("10..20"), range("20..30"))));
        assert_eq!(whole.split_at(&epk("1000")), Ok((range("10..1000"), range("1000..30"))));
        for outside in ["10", "30", "0F", "3000", ""] {
            let refused = KeyRangeError::NotInside { key: epk(outside), range: whole.clone() };
            assert_eq!(whole.split_at(&epk(outside)), Err(refused));
        }
    }

    #[test]
    fn text_and_json() {
        assert_eq!(KeyRange::full().to_string(), "..FF");
        assert_eq!(range("10..20").to_string(), "10..20");
        let json = r#"{"min":"10","max":"20"}"#;
        assert_eq!(serde_json::to_string(&range("10..20")).unwrap(), json);
        assert_eq!(serde_json::from_str::<KeyRange>(json).unwrap(), range("10..20"));
        let error = serde_json::from_str::<KeyRange>(r#"{"min":"20","max":"10"}"#).unwrap_err();
        assert!(error.to_string().starts_with("range 20..10 is empty"), "{error}");
    }
}
