//! The continuation token of Java's leases by hashes: URL-safe Base64 of JSON, with one position per range.
//! There must be exactly one range.

use super::document::{BadDocument, Document};
use super::flavour::Bounds;
use crate::position::Position;
use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use headwater_model::{FeedMode, KeyRange};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Inner {
    #[serde(rename = "V")]
    version: u8,
    #[serde(rename = "Rid")]
    rid: String,
    #[serde(rename = "Continuation")]
    continuation: Vec<Part>,
    #[serde(rename = "Range", skip_serializing_if = "Option::is_none")]
    range: Option<Bounds>,
}

#[derive(Deserialize, Serialize)]
struct Part {
    token: Option<String>,
    range: Bounds,
}

fn bad(what: &str) -> BadDocument {
    BadDocument(format!("its ContinuationToken {what}"))
}

fn open(token: &str) -> Result<Document, BadDocument> {
    let engine = if token.ends_with('=') { &URL_SAFE } else { &URL_SAFE_NO_PAD };
    let bytes = engine.decode(token).map_err(|_| bad("is not Base64"))?;
    Document::parse(&bytes)
}

/// Returns the position in the token, and the feed mode it belongs to.
pub(super) fn decode(token: &str) -> Result<(Option<Position>, Option<FeedMode>), BadDocument> {
    let state = open(token)?;
    let mode = match state.get::<String>("Mode").as_deref() {
        Some("INCREMENTAL") => Some(FeedMode::LatestVersion),
        Some("FULL_FIDELITY") => Some(FeedMode::AllVersionsAndDeletes),
        _ => None,
    };
    let Some(inner) = state.get::<Inner>("Continuation") else {
        return Ok((None, mode));
    };
    match &inner.continuation[..] {
        [part] => Ok((part.token.clone().and_then(Position::new), mode)),
        parts => Err(bad(&format!("has {} positions instead of one", parts.len()))),
    }
}

/// Returns a token with this position; everything else is taken from `before`, if given.
pub(super) fn encode(
    before: Option<&str>,
    position: &Position,
    rid: &str,
    range: &KeyRange,
    mode: FeedMode,
) -> String {
    if let Some(before) = before
        && decode(before).is_ok_and(|(known, _)| known.as_ref() == Some(position))
    {
        return before.to_owned();
    }
    let known = before.and_then(|before| open(before).ok());
    let mut state = known.unwrap_or_else(|| fresh(rid, mode));
    let mut inner = state.get::<Inner>("Continuation").unwrap_or_else(|| Inner {
        version: 1,
        rid: rid.to_owned(),
        continuation: Vec::new(),
        range: Some(Bounds::of(range)),
    });
    let range = match inner.continuation.pop() {
        Some(part) => part.range,
        None => Bounds::of(range),
    };
    inner.continuation = vec![Part { token: Some(position.as_str().to_owned()), range }];
    state.set("Continuation", &inner);
    URL_SAFE.encode(state.to_bytes())
}

fn fresh(rid: &str, mode: FeedMode) -> Document {
    let mut state = Document::default();
    state.set("V", &1);
    state.set("Rid", &rid);
    let all = mode == FeedMode::AllVersionsAndDeletes;
    state.set("Mode", if all { &"FULL_FIDELITY" } else { &"INCREMENTAL" });
    state.set("StartFrom", &serde_json::json!({ "Type": "BEGINNING" }));
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token in the form Java writes: a different start, its own range, no padding.
    #[test]
    fn a_token_of_java_keeps_everything_but_its_position() {
        let json = r#"{"V":1,"Rid":"r","Mode":"FULL_FIDELITY","StartFrom":{"Type":"LEASE","x":1},"Continuation":{"V":1,"Rid":"r","Continuation":[{"token":"\"5\"","range":{"min":"","max":"3F"}}],"Range":{"min":"","max":"3F"}}}"#;
        let token = URL_SAFE_NO_PAD.encode(json);
        let (position, mode) = decode(&token).unwrap();
        assert_eq!(
            (position, mode),
            (Position::new("\"5\""), Some(FeedMode::AllVersionsAndDeletes))
        );
        let five = Position::new("\"5\"").unwrap();
        let same = encode(Some(&token), &five, "r", &KeyRange::full(), FeedMode::LatestVersion);
        assert_eq!(same, token);
        let six = Position::new("\"6\"").unwrap();
        let moved = encode(Some(&token), &six, "r", &KeyRange::full(), FeedMode::LatestVersion);
        let moved = String::from_utf8(open(&moved).unwrap().to_bytes()).unwrap();
        assert_eq!(moved, json.replace("\\\"5\\\"", "\\\"6\\\""));
    }

    #[test]
    fn a_token_of_several_ranges_is_refused() {
        let json = r#"{"V":1,"Continuation":{"V":1,"Rid":"r","Continuation":[]}}"#;
        assert!(decode(&URL_SAFE.encode(json)).is_err());
        assert_eq!(decode(&URL_SAFE.encode("{}")).unwrap(), (None, None));
    }
}
