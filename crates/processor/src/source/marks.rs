//! The two numbers a processor wants of a change: its transaction, and when it was made.
//!
//! ```text
//! {"id":"1", …, "_attachments":"attachments/","_ts":9,"_lsn":5}
//!                                            ◄──────┴─────────  read backwards, as far as there are numbers
//! ```
//!
//! Services write them at the end of an item, and reading a whole item for two numbers would cost more than
//! everything else a processor does with it. What does not end so is read from its beginning. Nothing here
//! checks that a change is JSON: whoever cut the page into changes did.

use headwater_model::FeedMode;
use serde::Deserialize;

/// No number of 64 bits has more digits.
const DIGITS_MAX: usize = 20;

/// Transaction and seconds since 1970, where a change names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) lsn: Option<u64>,
    pub(super) seconds: Option<u64>,
}

impl Marks {
    pub(super) fn of(body: &[u8], mode: FeedMode) -> Marks {
        match mode {
            FeedMode::LatestVersion => at_the_end(body).unwrap_or_else(|| anywhere(body)),
            FeedMode::AllVersionsAndDeletes => in_metadata(body),
        }
    }
}

#[derive(Default, Deserialize)]
struct Item {
    #[serde(rename = "_lsn")]
    lsn: Option<u64>,
    #[serde(rename = "_ts")]
    seconds: Option<u64>,
}

fn anywhere(body: &[u8]) -> Marks {
    let Item { lsn, seconds } = serde_json::from_slice(body).unwrap_or_default();
    Marks { lsn, seconds }
}

#[derive(Default, Deserialize)]
struct Envelope {
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    lsn: Option<u64>,
    crts: Option<u64>,
}

fn in_metadata(body: &[u8]) -> Marks {
    let envelope: Envelope = serde_json::from_slice(body).unwrap_or_default();
    let Metadata { lsn, crts } = envelope.metadata.unwrap_or_default();
    Marks { lsn, seconds: crts }
}

/// Both marks, if an item ends with properties that are numbers and they are among them.
fn at_the_end(body: &[u8]) -> Option<Marks> {
    let mut rest = body.strip_prefix(b"{")?.strip_suffix(b"}")?;
    let mut marks = Marks::default();
    while marks.lsn.is_none() || marks.seconds.is_none() {
        let (before, name, number) = last_number(rest)?;
        match name {
            b"_lsn" => marks.lsn = Some(number),
            b"_ts" => marks.seconds = Some(number),
            _ => {}
        }
        rest = before;
    }
    Some(marks)
}

/// The last property of an object without its braces, if it is a number, and what stands before it.
///
/// A quote behind a comma begins a name: inside of a text it would be escaped and stand behind a backslash,
/// and one that ends a text is not followed by a name.
fn last_number(properties: &[u8]) -> Option<(&[u8], &[u8], u64)> {
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let count = properties.iter().rev().take(DIGITS_MAX).take_while(is_digit).count();
    let (before, digits) = properties.split_at(properties.len() - count);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let before = before.strip_suffix(b"\":")?;
    let quote = before.iter().rposition(|byte| *byte == b'"')?;
    let (before, name) = before.split_at(quote);
    let before = match before {
        [] => before,
        _ => before.strip_suffix(b",")?,
    };
    Some((before, &name[1..], number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn latest(body: &str) -> (Option<u64>, Option<u64>) {
        let marks = Marks::of(body.as_bytes(), FeedMode::LatestVersion);
        (marks.lsn, marks.seconds)
    }

    #[test]
    fn marks_are_found_wherever_a_service_writes_them() {
        let item = r#"{"id":"1","_etag":"e","_ts":9,"_lsn":5}"#;
        assert!(at_the_end(item.as_bytes()).is_some(), "as services write it: from the end");
        for body in [
            item,
            r#"{"_lsn":5,"_ts":9}"#,
            r#"{"_ts":9,"n":1,"_lsn":5,"m":3}"#,
            r#"{"_lsn":5,"id":"1","_ts":9}"#,
            r#"{ "_ts" : 9 , "_lsn" : 5 }"#,
            r#"{"_ts":9,"_lsn":5,"a":{"_ts":1,"_lsn":2}}"#,
            r#"{"_ts":9,"_lsn":5,"a":"\"_ts\":1,\"_lsn\":2"}"#,
            r#"{"_ts":9,"x,\"_lsn":7,"_lsn":5}"#,
            r#"{"_lsn":5,"x,\"_lsn":7,"_ts":9}"#,
        ] {
            assert_eq!(latest(body), (Some(5), Some(9)), "{body}");
        }
    }

    #[test]
    fn what_is_no_mark_is_none() {
        for body in ["", "{", "{}", "[]", "nonsense", "5}", r#"{"_lsn":-1}"#, r#"{"_lsn":1.5}"#] {
            assert_eq!(latest(body), (None, None), "{body}");
        }
        assert_eq!(latest(r#"{"_lsn":5}"#), (Some(5), None));
        let large = r#"{"_ts":9,"_lsn":18446744073709551615}"#;
        assert_eq!(latest(large), (Some(u64::MAX), Some(9)));
        assert_eq!(latest(r#"{"_ts":9,"_lsn":118446744073709551615}"#).0, None);
    }

    proptest! {
        #[test]
        fn from_the_end_or_from_the_beginning_it_is_the_same(
            names in prop::collection::vec(r#"[_a,\\":{}]{0,4}|_ts|_lsn"#, 0..5),
            values in prop::collection::vec(
                prop_oneof![
                    any::<u64>().prop_map(serde_json::Value::from),
                    any::<i8>().prop_map(serde_json::Value::from),
                    r#"[_a,\\":{}0-9]{0,6}"#.prop_map(serde_json::Value::from),
                    Just(serde_json::json!({ "_lsn": 1, "_ts": 2 })),
                ],
                5,
            ),
        ) {
            let item: serde_json::Map<_, _> = names.into_iter().zip(values).collect();
            let body = serde_json::to_string(&item).unwrap();
            let ended = at_the_end(body.as_bytes());
            prop_assert!(ended.is_none_or(|marks| marks == anywhere(body.as_bytes())), "{body}");
        }
    }
}
