//! Extracts the two numbers a processor needs from a change: its LSN and its time.
//!
//! ```text
//! {"id":"1", …, "_attachments":"attachments/","_ts":9,"_lsn":5}
//!                                            ◄──────┴─────────  parsed backwards while properties are numbers
//! ```
//!
//! Services write both at the end of an item. Parsing the whole item for them would cost more than everything else
//! a processor does with it. An item that does not end this way is parsed from its beginning. Never checks that a
//! change is valid JSON: the code that cut the page into changes did.

use headwater_model::FeedMode;
use serde::Deserialize;

/// The most digits a 64-bit number has.
const DIGITS_MAX: usize = 20;

/// The LSN and the seconds since 1970 of a change, where it contains them.
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

/// Returns both marks if they are among the numeric properties at the end of an item.
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

/// Splits off the last property of an object without its braces, if its value is a number: (rest, name, number).
///
/// A quote after a comma begins a name. Inside a string it would be escaped, that is, follow a backslash; a quote
/// that ends a string is not followed by a name.
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
    fn malformed_marks_are_absent() {
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
