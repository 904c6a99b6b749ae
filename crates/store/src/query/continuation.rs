//! Continuation tokens of queries: text that names where the next page starts.
//!
//! ```text
//! s.ROWS.POSITION   a streaming query, after ROWS rows, from a scan position; .ID follows if rows are cached,
//!                   .ID.PLACE if it resumes at a place within the item there
//! k.ROWS.ID.MARK    a sorted query, after the row with these sort keys
//! o.ROWS.ID         any other query, after ROWS rows
//! ```
//!
//! ID names cached rows that were found with the previous page (see `leftovers`). If they are gone, the rest of
//! the token is enough to find them again. A forged token is rejected or returns wrong rows of the same scope;
//! it can do no other harm.

use super::QueryFailure;
use crate::scan::ScanPosition;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use headwater_query::{OrderMark, Progress, RowPosition, Value};

/// Maximum size of an encoded mark, since the token travels in a header. A longer mark is replaced by the
/// number of rows.
const MARK_BYTES_MAX: usize = 700;

/// A parsed continuation token; the formats are in the module documentation.
#[derive(Debug)]
pub(super) enum Place {
    Scan { progress: Progress, position: ScanPosition, leftovers: u64, within: RowPosition },
    Sorted { shown: u64, leftovers: u64, mark: OrderMark },
    Rows { shown: u64, leftovers: u64 },
}

impl Place {
    pub(super) fn parse(text: &str) -> Result<Place, QueryFailure> {
        read(text).ok_or(QueryFailure::BadContinuation)
    }

    pub(super) fn write(&self) -> String {
        match self {
            Place::Scan { progress, position, leftovers, within } => {
                let start = format!("s.{}.{position}", progress.rows);
                match (within.is_start(), leftovers) {
                    (true, 0) => start,
                    (true, leftovers) => format!("{start}.{leftovers:x}"),
                    (false, leftovers) => format!("{start}.{leftovers:x}.{within}"),
                }
            }
            Place::Sorted { shown, leftovers, mark } => match encode(mark) {
                Some(mark) => format!("k.{shown}.{leftovers:x}.{mark}"),
                None => format!("o.{shown}.{leftovers:x}"),
            },
            Place::Rows { shown, leftovers } => format!("o.{shown}.{leftovers:x}"),
        }
    }
}

fn read(text: &str) -> Option<Place> {
    let (kind, rest) = text.split_once('.')?;
    let (rows, rest) = rest.split_once('.').unwrap_or((rest, ""));
    let shown = rows.parse().ok()?;
    match kind {
        "s" => {
            let (position, id) = rest.split_once('.').unwrap_or((rest, "0"));
            let (id, within) = id.split_once('.').unwrap_or((id, ""));
            let leftovers = u64::from_str_radix(id, 16).ok()?;
            let position = ScanPosition::from_text(position);
            let within = RowPosition::parse(within)?;
            Some(Place::Scan { progress: Progress { rows: shown }, position, leftovers, within })
        }
        "k" => {
            let (id, mark) = rest.split_once('.')?;
            let leftovers = u64::from_str_radix(id, 16).ok()?;
            Some(Place::Sorted { shown, leftovers, mark: decode(mark)? })
        }
        "o" => {
            let leftovers = u64::from_str_radix(rest, 16).unwrap_or(0);
            Some(Place::Rows { shown, leftovers })
        }
        _ => None,
    }
}

/// Encodes ordinal, repeats, and each key in brackets; the brackets of an undefined key are empty. `None` if the
/// mark is too long.
fn encode(mark: &OrderMark) -> Option<String> {
    let mut json = format!("[{},{}", mark.ordinal, mark.repeats).into_bytes();
    for key in &mark.keys {
        json.extend_from_slice(b",[");
        if !key.is_undefined() {
            json.extend_from_slice(&key.to_json());
        }
        json.push(b']');
        if json.len() > MARK_BYTES_MAX {
            return None;
        }
    }
    json.push(b']');
    Some(URL_SAFE_NO_PAD.encode(json))
}

fn decode(text: &str) -> Option<OrderMark> {
    let json = URL_SAFE_NO_PAD.decode(text).ok().filter(|json| json.len() <= MARK_BYTES_MAX * 2)?;
    let all = Value::from_json(&json).ok()?;
    let all = all.elements()?;
    let [ordinal, repeats, keys @ ..] = &all[..] else { return None };
    let number = |value: &Value<'_>| std::str::from_utf8(&value.to_json()).ok()?.parse().ok();
    let keys = keys.iter().map(|key| Some(key.elements()?.first().cloned().unwrap_or_default()));
    let keys = keys.map(|key| key.map(Value::into_owned)).collect::<Option<Vec<_>>>()?;
    Some(OrderMark { keys, ordinal: number(ordinal)?, repeats: number(repeats)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_their_text() {
        let keys = vec![Value::Undefined, Value::Null, Value::text("é\"\n"), Value::number(-1.5)];
        let mark = OrderMark { keys, ordinal: u64::MAX - 1, repeats: 3 };
        let text = Place::Sorted { shown: 9, leftovers: 255, mark: mark.clone() }.write();
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()) && text.len() < 1_000, "{text}");
        let Ok(Place::Sorted { shown: 9, leftovers: 255, mark: read }) = Place::parse(&text) else {
            panic!("{text}");
        };
        assert_eq!((read.ordinal, read.repeats), (mark.ordinal, mark.repeats));
        assert_eq!(read.keys.len(), mark.keys.len());
        assert!(read.keys.iter().zip(&mark.keys).all(|(one, two)| one.order(two).is_eq()));
        let long = OrderMark { keys: vec![Value::text("x".repeat(5_000))], ordinal: 1, repeats: 1 };
        let text = Place::Sorted { shown: 9, leftovers: 0, mark: long }.write();
        assert_eq!(text, "o.9.0");
    }

    #[test]
    fn positions_of_scans_survive_their_text() {
        for text in ["s.9.pos", "s.9.pos.ff", "s.9.pos.0.3-0-12", "s.9.pos.ff.3"] {
            assert_eq!(Place::parse(text).unwrap().write(), text);
        }
    }

    #[test]
    fn what_is_no_continuation_is_refused() {
        for text in [
            "",
            "x",
            "s",
            "s.x.y",
            "s.1.y.z",
            "s.1.y.0.x",
            "s.1.y.0.1-",
            "k.1.2",
            "k.1.zz.W10",
            "k.1.2.W10",
            "k.1.2.!",
            "o.",
            "o.-1",
            "z.1.2",
        ] {
            assert!(Place::parse(text).is_err(), "{text}");
        }
    }
}
