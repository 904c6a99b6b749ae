//! The verdict of `serde_json` on a body, with the facts that our stricter rules need.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Facts about a body that is JSON by RFC 8259, with finite numbers and whole characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) is_object: bool,
    pub(super) has_duplicates: bool,
    pub(super) is_string: bool,
    /// The top-level `id` exists and is not a string.
    pub(super) has_bad_id: bool,
}

impl Verdict {
    /// `None` if the body is not JSON.
    pub(super) fn of(body: &[u8]) -> Option<Verdict> {
        serde_json::from_slice(body).ok()
    }

    pub(super) fn is_item(&self) -> bool {
        self.is_object && !self.has_duplicates && !self.has_bad_id
    }
}

impl<'de> Deserialize<'de> for Verdict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Verdict, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Verdict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any json")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Verdict, E> {
        Ok(Verdict::default())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Verdict, E> {
        Ok(Verdict::default())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Verdict, E> {
        Ok(Verdict::default())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Verdict, E> {
        Ok(Verdict::default())
    }

    fn visit_unit<E: Error>(self) -> Result<Verdict, E> {
        Ok(Verdict::default())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Verdict, E> {
        Ok(Verdict { is_string: true, ..Verdict::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Verdict, A::Error> {
        let mut verdict = Verdict::default();
        while let Some(element) = array.next_element::<Verdict>()? {
            verdict.has_duplicates |= element.has_duplicates;
        }
        Ok(verdict)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Verdict, A::Error> {
        let mut verdict = Verdict { is_object: true, ..Verdict::default() };
        let mut names = HashSet::new();
        while let Some((name, value)) = object.next_entry::<String, Verdict>()? {
            verdict.has_bad_id |= name == "id" && !value.is_string;
            verdict.has_duplicates |= value.has_duplicates || !names.insert(name);
        }
        Ok(verdict)
    }
}
