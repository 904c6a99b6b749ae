//! Builds the stored bytes of an item from the bytes the user sent.
//!
//! The user's members are copied unchanged, without system properties and without whitespace around
//! and at the end of the object. The server's system properties follow in a fixed order. Those that
//! only the partition writer knows come last:
//!
//! ```text
//! { "id":"1", "_ts":3, "n":1.50 }                                     what was sent
//!   "id":"1", "n":1.50                                                its members
//! { "id":"1", "n":1.50,"_rid":"…","_self":"…"                         the head
//!   ,"_etag":"\"…\"","_attachments":"attachments/","_ts":9,"_lsn":5}  what finishes it
//!                                                         ^ lsn_at
//! ```
//!
//! A point read returns the bytes before `lsn_at` and a brace; the change feed returns all of them.
//!
//! A caller that knows all properties calls `compose`. Otherwise the work is split between two
//! tasks. If the writer assigns the rid, the request's task calls `members` and the writer `stamp`.
//! If the rid is known before, they call `compose_head` and `finish`.
//!
//! This module never looks inside the user's values and cannot fail: a `Scanned` is always valid.

use std::ops::Range;

use bytes::Bytes;

use super::scan::Scanned;
use super::text::{push_decimal, push_escaped, push_string};

/// Bytes to reserve after the members, for an etag of 36 characters and without the rid and the link.
/// With this room `finish` never reallocates the item.
const OURS_BYTES_MAX: usize = 192;

/// The properties the server gives to an item.
#[derive(Clone, Copy, Debug)]
pub struct SystemProperties<'a> {
    /// `_rid`
    pub rid: &'a str,
    /// `_self`
    pub self_link: &'a str,
    /// `_etag`, without quotes.
    pub etag: &'a str,
    /// `_ts`, in seconds.
    pub ts: u64,
    /// `_lsn`
    pub lsn: u64,
}

/// System properties that do not depend on the position in the log.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// `_rid`
    pub rid: &'a str,
    /// `_self`
    pub self_link: &'a str,
}

/// System properties that depend on the position in the log.
#[derive(Clone, Copy, Debug)]
pub struct Tail<'a> {
    /// `_etag`, without quotes.
    pub etag: &'a str,
    /// `_ts`, in seconds.
    pub ts: u64,
    /// `_lsn`
    pub lsn: u64,
}

/// Offsets of parts of a composed item, counted from the start of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Composed {
    /// Offset of the first character of the etag, inside both pairs of quotes.
    pub etag_at: usize,
    /// Offset of `,"_lsn":`. The bytes before it and a brace are the item without its LSN.
    pub lsn_at: usize,
}

/// Appends the whole stored item to `out`. `generated_id` is used only if the item has no id.
pub fn compose(
    scanned: &Scanned<'_>,
    properties: &SystemProperties<'_>,
    generated_id: Option<&str>,
    out: &mut Vec<u8>,
) -> Composed {
    compose_head(scanned, &properties.head(), generated_id, out);
    finish(out, &properties.tail())
}

/// Appends everything except the properties that only the writer knows; `finish` appends those.
pub fn compose_head(
    scanned: &Scanned<'_>,
    head: &Head<'_>,
    generated_id: Option<&str>,
    out: &mut Vec<u8>,
) {
    let id_bytes = generated_id.map_or(0, str::len);
    out.reserve(scanned.body().len() + id_bytes + head.room());
    out.push(b'{');
    let first = out.len();
    push_members(scanned, generated_id, out);
    head.push(first, out);
}

/// Appends the properties that only the writer knows and closes the object.
pub fn finish(head: &mut Vec<u8>, tail: &Tail<'_>) -> Composed {
    head.extend_from_slice(b",\"_etag\":\"\\\"");
    let etag_at = head.len();
    push_escaped(head, tail.etag);
    head.extend_from_slice(b"\\\"\",\"_attachments\":\"attachments/\",\"_ts\":");
    push_decimal(head, tail.ts);
    let lsn_at = head.len();
    head.extend_from_slice(b",\"_lsn\":");
    push_decimal(head, tail.lsn);
    head.push(b'}');
    Composed { etag_at, lsn_at }
}

/// The user's members: the body without its braces and without system properties. The generated id
/// comes first if the body has none. Shares the bytes of `body` if the members are contiguous and
/// `body` is the scanned body; otherwise it copies them.
#[must_use]
pub fn members(body: &Bytes, scanned: &Scanned<'_>, generated_id: Option<&str>) -> Bytes {
    let mut runs = runs(scanned);
    let (run, another) = (runs.next().unwrap_or_default(), runs.next());
    let needs_id = generated_id.is_some() && scanned.id_span().is_none();
    let is_same_body = body.as_ptr_range() == scanned.body().as_ptr_range();
    if another.is_none() && !needs_id && is_same_body {
        return body.slice(run);
    }
    let id_bytes = generated_id.map_or(0, str::len);
    let mut members = Vec::with_capacity(scanned.body().len() + id_bytes + 16);
    push_members(scanned, generated_id, &mut members);
    members.into()
}

/// Appends the whole stored item to `out`, given its `members`.
pub fn stamp(members: &[u8], properties: &SystemProperties<'_>, out: &mut Vec<u8>) -> Composed {
    let head = properties.head();
    out.reserve(members.len() + head.room());
    out.push(b'{');
    let first = out.len();
    out.extend_from_slice(members);
    head.push(first, out);
    finish(out, &properties.tail())
}

impl<'a> SystemProperties<'a> {
    fn head(&self) -> Head<'a> {
        Head { rid: self.rid, self_link: self.self_link }
    }

    fn tail(&self) -> Tail<'a> {
        Tail { etag: self.etag, ts: self.ts, lsn: self.lsn }
    }
}

impl Head<'_> {
    /// Bytes to reserve for all system properties.
    fn room(&self) -> usize {
        self.rid.len() + self.self_link.len() + OURS_BYTES_MAX
    }

    /// Appends the properties to an object whose first member is at `first`, if it has any.
    fn push(&self, first: usize, out: &mut Vec<u8>) {
        if out.len() > first {
            out.push(b',');
        }
        out.extend_from_slice(b"\"_rid\":");
        push_string(out, self.rid);
        out.extend_from_slice(b",\"_self\":");
        push_string(out, self.self_link);
    }
}

/// Appends the user's members, preceded by the generated id if the body has none.
fn push_members(scanned: &Scanned<'_>, generated_id: Option<&str>, out: &mut Vec<u8>) {
    let first = out.len();
    if scanned.id_span().is_none()
        && let Some(id) = generated_id
    {
        out.extend_from_slice(b"\"id\":");
        push_string(out, id);
    }
    for run in runs(scanned) {
        if out.len() > first {
            out.push(b',');
        }
        out.extend_from_slice(scanned.body().get(run).unwrap_or_default());
    }
}

/// Contiguous ranges of the body that hold the user's members, without the commas between ranges.
fn runs(scanned: &Scanned<'_>) -> impl Iterator<Item = Range<usize>> {
    let body = scanned.body();
    let object = scanned.object().range();
    let last = object.end - 1;
    let dropped = scanned.system().iter().map(|region| region.start as usize..region.end as usize);
    let mut at = object.start + 1;
    dropped.chain(std::iter::once(last..last)).filter_map(move |next| {
        // A range before a dropped member ends with a comma. A range before the closing brace may end
        // with whitespace.
        let is_last = next.start == last;
        let run = at..if is_last { next.start } else { next.start - 1 };
        at = next.end + 1;
        // Between two adjacent dropped members the range would end before it starts: `get` is `None`.
        let text = body.get(run.clone())?;
        let blank_bytes = if is_last { text.len() - text.trim_ascii_end().len() } else { 0 };
        let run = run.start..run.end - blank_bytes;
        (!run.is_empty()).then_some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{Wanted, scan};

    const ETAG: &str = "0000d826-0000-0700-0000-62a8a2b00000";
    const OURS: &str = concat!(
        r#""_rid":"r==","_self":"dbs/d/colls/c/docs/r==/","#,
        r#""_etag":"\"0000d826-0000-0700-0000-62a8a2b00000\"","#,
        r#""_attachments":"attachments/","_ts":1700000000"#,
    );

    const PROPERTIES: SystemProperties<'_> = SystemProperties {
        rid: "r==",
        self_link: "dbs/d/colls/c/docs/r==/",
        etag: ETAG,
        ts: 1_700_000_000,
        lsn: 5,
    };

    /// Composes through every public path; all results must be equal.
    #[track_caller]
    fn composed(body: &str, generated_id: Option<&str>) -> (String, Composed) {
        let bytes = Bytes::copy_from_slice(body.as_bytes());
        let scanned = scan(&bytes, &Wanted::default()).unwrap();
        let mut out = Vec::new();
        let places = compose(&scanned, &PROPERTIES, generated_id, &mut out);
        assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok(), "{body}");

        let mut stepwise = Vec::new();
        compose_head(&scanned, &PROPERTIES.head(), generated_id, &mut stepwise);
        assert_eq!(finish(&mut stepwise, &PROPERTIES.tail()), places, "{body}");
        assert_eq!(stepwise, out, "{body}");

        let mut stamped = Vec::new();
        let members = members(&bytes, &scanned, generated_id);
        assert_eq!(stamp(&members, &PROPERTIES, &mut stamped), places, "{body}");
        assert_eq!(stamped, out, "{body}");
        (String::from_utf8(out).unwrap(), places)
    }

    /// Composes with the id `new` for bodies without one; `user` is what should be left of a body.
    #[track_caller]
    fn check(body: &str, user: &str) {
        let separator = if user.is_empty() { "" } else { "," };
        let (stored, places) = composed(body, Some("new"));
        assert_eq!(stored, format!("{{{user}{separator}{OURS},\"_lsn\":5}}"), "{body}");
        assert_eq!(&stored[places.lsn_at..], ",\"_lsn\":5}", "{body}");
        assert_eq!(&stored[places.etag_at..places.etag_at + 36], ETAG, "{body}");
    }

    #[test]
    fn bytes_of_the_user_are_kept_as_they_are() {
        check(r#"{"id":"1"}"#, r#""id":"1""#);
        check(r#"{"id":"1","n":1.50e0,"s":"\u0041"}"#, r#""id":"1","n":1.50e0,"s":"\u0041""#);
        check(
            " {\r\n \"id\" : \"1\" ,\t\"a\":[ 1 , 2 ]\n}\n",
            "\r\n \"id\" : \"1\" ,\t\"a\":[ 1 , 2 ]",
        );
        check(r#"{"id":"1","_ts2":1,"__rid":2,"_":3}"#, r#""id":"1","_ts2":1,"__rid":2,"_":3"#);
        check(r#"{"id":"1","a":{"_ts":1,"_rid":{}}}"#, r#""id":"1","a":{"_ts":1,"_rid":{}}"#);
    }

    #[test]
    fn system_properties_of_the_user_are_dropped() {
        let id = r#""id":"1""#;
        check(r#"{"_ts":1,"id":"1"}"#, id);
        check(r#"{"id":"1","_ts":1}"#, id);
        check(r#"{"_rid":1,"_ts":2,"id":"1"}"#, id);
        check(r#"{"id":"1","_rid":1,"_ts":2}"#, id);
        check(r#"{"_rid":"x","id":"1","_self":[",}"]}"#, id);
        check(r#"{"id":"1","_etag":"\"","a":1}"#, r#""id":"1","a":1"#);
        check(
            r#"{"a":1,"_lsn":1,"id":"1","_ts":{"a":[]},"_attachments":null,"b":2}"#,
            r#""a":1,"id":"1","b":2"#,
        );
        check("{ \"id\":\"1\" ,\n \"_ts\" : 1 }", " \"id\":\"1\" ");
        check("{ \"_ts\" : 1 ,\n \"id\":\"1\" }", "\n \"id\":\"1\"");
        check("{ \"a\":1 , \"_ts\" : 1 , \"id\":\"1\" }", " \"a\":1 , \"id\":\"1\"");
        check(r#"{"\u005fts":1,"id":"1"}"#, id);
    }

    #[test]
    fn an_id_is_made_up_only_when_there_is_none() {
        let id = r#""id":"new""#;
        check("{}", id);
        check(" { } ", id);
        check(r#"{"_ts":1}"#, id);
        check(r#"{ "_ts":1 , "_rid":2 }"#, id);
        check(r#"{"a":1}"#, r#""id":"new","a":1"#);
        check(r#"{"_ts":1,"a":1}"#, r#""id":"new","a":1"#);
        check(r#"{"a":{"id":"inner"}}"#, r#""id":"new","a":{"id":"inner"}"#);
        check(r#"{"\u0069d":"1"}"#, r#""\u0069d":"1""#);

        let without = |body| composed(body, None).0;
        assert_eq!(without("{}"), format!("{{{OURS},\"_lsn\":5}}"));
        assert_eq!(without(r#"{"_ts":1}"#), format!("{{{OURS},\"_lsn\":5}}"));
        assert_eq!(
            composed("{}", Some("a\"b\\\n")).0,
            format!("{{\"id\":\"a\\\"b\\\\\\n\",{OURS},\"_lsn\":5}}")
        );
    }

    #[test]
    fn finishing_fits_in_what_the_head_reserved() {
        let scanned = scan(br#"{"id":"1","_ts":3,"n":1}"#, &Wanted::default()).unwrap();
        let mut out = Vec::new();
        compose_head(&scanned, &PROPERTIES.head(), None, &mut out);
        let capacity = out.capacity();
        let tail = Tail { ts: u64::MAX, lsn: u64::MAX, ..PROPERTIES.tail() };
        let _ = finish(&mut out, &tail);
        assert_eq!(out.capacity(), capacity);
    }

    #[test]
    fn composing_appends_and_counts_from_the_start_of_the_buffer() {
        let scanned = scan(b"{\"id\":\"1\"}", &Wanted::default()).unwrap();
        let mut out = b"before".to_vec();
        let places = compose(&scanned, &PROPERTIES, None, &mut out);
        assert!(out.starts_with(b"before{\"id\""));
        assert_eq!(&out[places.lsn_at..], b",\"_lsn\":5}");
    }

    #[test]
    fn members_in_one_piece_are_not_copied() {
        let cases = [
            (r#"{"id":"1","n":1}"#, None, true),
            (r#"{"id":"1"}"#, Some("new"), true),
            (r#" { "id":"1","_rid":1,"_ts":2 } "#, None, true),
            (r#"{"_ts":2,"id":"1"}"#, None, true),
            (r#"{"id":"1","_ts":2,"n":1}"#, None, false),
            (r#"{"n":1}"#, Some("new"), false),
        ];
        for (body, generated_id, is_shared) in cases {
            let bytes = Bytes::copy_from_slice(body.as_bytes());
            let scanned = scan(&bytes, &Wanted::default()).unwrap();
            let members = members(&bytes, &scanned, generated_id);
            let place = bytes.as_ptr_range();
            assert_eq!(place.contains(&members.as_ptr()), is_shared, "{body}");
        }
        let scanned = scan(br#"{"a":1}"#, &Wanted::default()).unwrap();
        let stranger = Bytes::from_static(b"{}");
        assert_eq!(members(&stranger, &scanned, None), &b"\"a\":1"[..], "the scanned body counts");
    }

    #[test]
    fn what_was_stored_can_be_sent_back() {
        let (stored, places) = composed(r#"{"id":"1","n":1.0}"#, None);
        let read = format!("{}}}", &stored[..places.lsn_at]);
        assert_eq!(composed(&read, None).0, stored, "a read item written back");
        assert_eq!(composed(&stored, None).0, stored, "a feed item written back");
    }
}
