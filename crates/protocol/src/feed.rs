//! The change feed on the wire: parses the request headers and writes all-versions changes.
//!
//! The same `GET …/docs` is a listing or a feed read, depending on `A-IM`. The conditions say where the
//! feed starts:
//!
//! | start | headers |
//! |---|---|
//! | beginning | none, or an empty `If-None-Match` |
//! | now | `If-None-Match: *` |
//! | a time | `If-Modified-Since`, unless `If-None-Match` has a value |
//! | a reader's position | `If-None-Match: <etag of its last page>` |
//! | the oldest retained version | `x-headwater-feed-start: oldest`, all versions only; not in the service |
//!
//! The first response to a start by time depends on the client's age. The documentation of 2017 promises
//! an empty response with only the etag. Later SDKs expect documents at once, and some lose documents
//! otherwise. The API version of the request decides, unless the server is configured otherwise.
//!
//! The store reads the feed and fills the pages; nothing here does.

use crate::error::Code;
use crate::headers::ApiVersion;
use headwater_model::{
    BadContinuation, BadTimestamp, ChangeKind, Continuation, FeedMode, FeedStart, Lsn,
    PartitionKey, PartitionKeyPath, PartitionKeyValue, Timestamp,
};
use std::borrow::Cow;
use std::io::Write as _;

/// The headers that select the feed and its start, as sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct FeedHeaders<'a> {
    /// `A-IM`
    pub a_im: Option<&'a str>,
    /// `If-None-Match`
    pub if_none_match: Option<&'a str>,
    /// `If-Modified-Since`
    pub if_modified_since: Option<&'a str>,
    /// `x-ms-version`
    pub version: Option<&'a str>,
    /// `x-headwater-feed-start`
    pub start: Option<&'a str>,
}

/// The content of the first response to a start by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeStart {
    /// Depends on `x-ms-version`, which serves both kinds of client.
    #[default]
    ByVersion,
    /// No changes, only the position: 304 with an etag.
    PositionFirst,
    /// Changes from the first response on.
    ChangesAtOnce,
}

/// A parsed request for one page of the change feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRequest {
    /// Latest versions, or all versions and deletes.
    pub mode: FeedMode,
    /// Where to start.
    pub start: FeedStart,
    /// Respond with 304 and the position of the start, without changes. Set only for a start by time.
    pub position_only: bool,
}

/// Why the headers are not a valid feed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFeedRequest {
    /// `A-IM` names an unknown feed.
    #[error("A-IM is neither `Incremental Feed` nor `Full-Fidelity Feed`; send one of them")]
    Mode,
    /// `If-None-Match` is not the etag of a feed page.
    #[error("If-None-Match: {0}")]
    Continuation(#[from] BadContinuation),
    /// `If-Modified-Since` is not a date.
    #[error("If-Modified-Since: {0}")]
    Time(#[from] BadTimestamp),
    /// All versions are retained for a limited time, so the service starts them only now or after a position.
    #[error(
        "You must read the change feed from within the retention period. All versions and deletes \
         can be read from now (`If-None-Match: *`), from an etag, or from the oldest change that is \
         kept (`x-headwater-feed-start: oldest`), not from the beginning or a time"
    )]
    AllVersionsStart,
    /// `x-headwater-feed-start` names an unknown start.
    #[error("x-headwater-feed-start is not `oldest`; send that or leave it out")]
    Start,
}

impl BadFeedRequest {
    /// The status code of the response.
    #[must_use]
    pub fn code(&self) -> Code {
        Code::BadRequest
    }
}

impl FeedRequest {
    /// Parses the headers; `None` if they request a listing.
    ///
    /// # Errors
    /// When a header is malformed, or the mode does not support the requested start.
    pub fn parse(
        headers: &FeedHeaders<'_>,
        time_start: TimeStart,
    ) -> Result<Option<FeedRequest>, BadFeedRequest> {
        let Some(mode) = mode(headers.a_im)? else {
            return Ok(None);
        };
        let start = start(headers)?;
        if mode == FeedMode::AllVersionsAndDeletes {
            match start {
                FeedStart::Beginning if headers.asks_for_oldest()? => {}
                FeedStart::Beginning | FeedStart::Time(_) => {
                    return Err(BadFeedRequest::AllVersionsStart);
                }
                FeedStart::Now | FeedStart::After(_) => {}
            }
        }
        let position_only = matches!(start, FeedStart::Time(_))
            && match time_start {
                TimeStart::PositionFirst => true,
                TimeStart::ChangesAtOnce => false,
                TimeStart::ByVersion => ApiVersion::of(headers.version) < ApiVersion::V2018_12_31,
            };
        Ok(Some(FeedRequest { mode, start, position_only }))
    }
}

impl FeedHeaders<'_> {
    fn asks_for_oldest(&self) -> Result<bool, BadFeedRequest> {
        match self.start.map(str::trim) {
            None | Some("") => Ok(false),
            Some(text) if text.eq_ignore_ascii_case("oldest") => Ok(true),
            Some(_) => Err(BadFeedRequest::Start),
        }
    }
}

fn mode(a_im: Option<&str>) -> Result<Option<FeedMode>, BadFeedRequest> {
    match a_im.map(str::trim) {
        None | Some("") => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("incremental feed") => {
            Ok(Some(FeedMode::LatestVersion))
        }
        Some(text) if text.eq_ignore_ascii_case("full-fidelity feed") => {
            Ok(Some(FeedMode::AllVersionsAndDeletes))
        }
        Some(_) => Err(BadFeedRequest::Mode),
    }
}

fn start(headers: &FeedHeaders<'_>) -> Result<FeedStart, BadFeedRequest> {
    match headers.if_none_match.map(str::trim).filter(|text| !text.is_empty()) {
        Some("*") => return Ok(FeedStart::Now),
        Some(etag) => return Ok(FeedStart::After(etag.parse::<Continuation>()?)),
        None => {}
    }
    match headers.if_modified_since.map(str::trim).filter(|text| !text.is_empty()) {
        None => Ok(FeedStart::Beginning),
        Some(text) => match Timestamp::from_rfc1123(&with_gmt(text)) {
            // Some SDKs send the first day of their calendar to mean the beginning.
            Err(BadTimestamp::BeforeEpoch) => Ok(FeedStart::Time(Timestamp::from_seconds(0))),
            time => Ok(FeedStart::Time(time?)),
        },
    }
}

/// Replaces the zone `UTC`, which the Go client writes in HTTP dates, by `GMT`.
fn with_gmt(text: &str) -> Cow<'_, str> {
    match text.strip_suffix(" UTC") {
        Some(date) => Cow::Owned(format!("{date} GMT")),
        None => Cow::Borrowed(text),
    }
}

/// Appends a latest-version change for clients that name a wire format: the item, wrapped with its LSN
/// and timestamp but without an operation type. The Java client's processor reads only this form.
pub fn write_wrapped(item: &[u8], lsn: Lsn, seconds: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"current\":");
    out.extend_from_slice(item);
    // Writing to a `Vec` does not fail.
    let _ = write!(out, ",\"metadata\":{{\"lsn\":{lsn},\"crts\":{}}}}}", seconds.max(1));
}

/// One change of the all-versions feed, ready to be written.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// The operation type.
    pub kind: ChangeKind,
    /// The LSN of the change.
    pub lsn: Lsn,
    /// Timestamp in seconds since 1970. Written as at least 1, because clients refuse 0.
    pub crts: u64,
    /// The item after the change, as JSON; `None` after a delete.
    pub current: Option<&'a [u8]>,
    /// The item before the change, as JSON, if it is still retained.
    pub previous: Option<&'a [u8]>,
    /// The LSN of the item's previous version.
    pub previous_lsn: Option<Lsn>,
    /// Whether a delete was caused by an expired TTL.
    pub ttl_expired: bool,
    /// The id of the item.
    pub id: &'a str,
    /// The item's partition key.
    pub partition_key: &'a PartitionKey,
    /// The container's partition key paths, one per component of the key.
    pub paths: &'a [PartitionKeyPath],
}

impl Envelope<'_> {
    /// Appends the change as JSON. Items are copied unchanged.
    pub fn write_into(&self, out: &mut Vec<u8>) {
        // A delete gets an empty `current`, because some clients require the property.
        let current = self.current.filter(|_| self.kind != ChangeKind::Delete).unwrap_or(b"{}");
        out.extend_from_slice(b"{\"current\":");
        out.extend_from_slice(current);
        if let Some(previous) = self.previous.filter(|_| self.kind != ChangeKind::Create) {
            out.extend_from_slice(b",\"previous\":");
            out.extend_from_slice(previous);
        }
        self.write_metadata(out);
        out.push(b'}');
    }

    fn write_metadata(&self, out: &mut Vec<u8>) {
        // Writing to a `Vec` does not fail.
        let _ = write!(
            out,
            ",\"metadata\":{{\"lsn\":{},\"crts\":{},\"operationType\":\"{}\"",
            self.lsn,
            self.crts.max(1),
            self.kind
        );
        if let Some(lsn) = self.previous_lsn.filter(|_| self.kind != ChangeKind::Create) {
            let _ = write!(out, ",\"previousImageLSN\":{lsn}");
        }
        if self.kind == ChangeKind::Delete {
            let _ = write!(out, ",\"timeToLiveExpired\":{},\"id\":", self.ttl_expired);
            let _ = serde_json::to_writer(&mut *out, self.id);
            self.write_partition_key(out);
        }
        out.push(b'}');
    }

    /// Writes the key as an object by property name, without undefined components.
    fn write_partition_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"partitionKey\":{");
        let mut first = true;
        for (path, value) in self.paths.iter().zip(self.partition_key.components()) {
            if matches!(value, PartitionKeyValue::Undefined) {
                continue;
            }
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            let _ = serde_json::to_writer(&mut *out, &path.segments().join("/"));
            out.push(b':');
            // The JSON of a key with one component is that component in brackets.
            let json = PartitionKey::from_values([value.clone()]).to_json();
            let json = json.strip_prefix('[').and_then(|json| json.strip_suffix(']'));
            out.extend_from_slice(json.unwrap_or("null").as_bytes());
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "Tue, 14 Nov 2023 22:13:20 GMT";

    fn parse(lines: &[(&str, &'static str)]) -> Result<Option<FeedRequest>, BadFeedRequest> {
        let value = |name| lines.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let headers = FeedHeaders {
            a_im: value("a-im"),
            if_none_match: value("if-none-match"),
            if_modified_since: value("if-modified-since"),
            version: value("x-ms-version"),
            start: value("x-headwater-feed-start"),
        };
        FeedRequest::parse(&headers, TimeStart::ByVersion)
    }

    #[test]
    fn a_wrapped_item_says_where_and_when() {
        let mut out = Vec::new();
        write_wrapped(br#"{"id":"1"}"#, Lsn::new(7), 0, &mut out);
        let expected = r#"{"current":{"id":"1"},"metadata":{"lsn":7,"crts":1}}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn starts() {
        let after = |lsn| FeedStart::After(Continuation::Single(Lsn::new(lsn)));
        let time = FeedStart::Time(Timestamp::from_seconds(1_700_000_000));
        for (condition, since, expected) in [
            (None, None, FeedStart::Beginning),
            (Some(""), None, FeedStart::Beginning),
            (Some("*"), None, FeedStart::Now),
            (Some("\"28535\""), None, after(28535)),
            (Some("28535"), None, after(28535)),
            (None, Some(TIME), time.clone()),
            (None, Some("Tue, 14 Nov 2023 22:13:20 UTC"), time.clone()),
            (Some(""), Some(TIME), time),
            (Some("\"1\""), Some(TIME), after(1)),
            (Some("\"1\""), Some("not a date"), after(1)), // ignored next to an etag
            (Some("*"), Some(TIME), FeedStart::Now),
            (
                None,
                Some("Mon, 01 Jan 0001 00:00:00 GMT"),
                FeedStart::Time(Timestamp::from_seconds(0)),
            ),
        ] {
            for a_im in ["Incremental feed", "Incremental Feed", "INCREMENTAL FEED"] {
                let mut lines = vec![("a-im", a_im), ("x-ms-version", "2020-07-15")];
                lines.extend(condition.map(|value| ("if-none-match", value)));
                lines.extend(since.map(|value| ("if-modified-since", value)));
                let parsed = parse(&lines).unwrap().unwrap();
                assert_eq!(parsed.start, expected, "{lines:?}");
                assert_eq!(parsed.mode, FeedMode::LatestVersion);
                assert!(!parsed.position_only);
            }
        }
    }

    #[test]
    fn without_a_im_it_is_a_listing() {
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&[("a-im", ""), ("if-none-match", "x")]), Ok(None));
    }

    #[test]
    fn refusals() {
        let (latest, all) = (("a-im", "Incremental Feed"), ("a-im", "full-fidelity FEED"));
        for lines in [
            vec![("a-im", "something else")],
            vec![latest, ("if-none-match", "\"abc\"")],
            vec![latest, ("if-none-match", "\"-1\"")],
            vec![latest, ("if-modified-since", "yesterday")],
            vec![all],
            vec![all, ("if-none-match", "")],
            vec![all, ("if-modified-since", TIME)],
            vec![all, ("x-headwater-feed-start", "newest")],
            vec![all, ("if-modified-since", TIME), ("x-headwater-feed-start", "oldest")],
        ] {
            assert!(parse(&lines).is_err(), "{lines:?}");
        }
        assert!(parse(&[all, ("if-none-match", "*")]).is_ok());
        let oldest = parse(&[all, ("x-headwater-feed-start", "oldest")]).unwrap().unwrap();
        assert_eq!(oldest.start, FeedStart::Beginning);
        assert!(parse(&[all, ("if-none-match", "\"0\"")]).is_ok());
        assert!(parse(&[all, ("if-none-match", "\"0\""), ("if-modified-since", TIME)]).is_ok());
    }

    #[test]
    fn the_api_version_decides_what_a_start_by_time_gets_first() {
        for (version, position_only) in [
            (None, true),
            (Some("2016-07-11"), true),
            (Some("2017-11-15"), true),
            (Some("2018-12-30"), true),
            (Some("nonsense"), true),
            (Some("2018-12-31"), false),
            (Some("2020-07-15"), false),
        ] {
            let headers = FeedHeaders {
                a_im: Some("Incremental feed"),
                if_modified_since: Some(TIME),
                version,
                ..FeedHeaders::default()
            };
            for (policy, expected) in [
                (TimeStart::ByVersion, position_only),
                (TimeStart::PositionFirst, true),
                (TimeStart::ChangesAtOnce, false),
            ] {
                let parsed = FeedRequest::parse(&headers, policy).unwrap().unwrap();
                assert_eq!(parsed.position_only, expected, "{version:?} {policy:?}");
            }
            // `position_only` applies only to a start by time.
            let resumed = FeedHeaders { if_none_match: Some("1"), ..headers };
            let parsed = FeedRequest::parse(&resumed, TimeStart::PositionFirst).unwrap().unwrap();
            assert!(!parsed.position_only);
        }
    }

    fn written(envelope: &Envelope<'_>) -> serde_json::Value {
        let mut out = Vec::new();
        envelope.write_into(&mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn envelopes() {
        let paths = ["/tenant", "/user/id"].map(|path| PartitionKeyPath::parse(path).unwrap());
        let partition_key = PartitionKey::parse("[\"]a[\",1]").unwrap();
        let create = Envelope {
            kind: ChangeKind::Create,
            lsn: Lsn::new(21),
            crts: 0,
            current: Some(b"{\"id\":\"1\",\"n\":1.50}"),
            previous: None,
            previous_lsn: None,
            ttl_expired: false,
            id: "1\"",
            partition_key: &partition_key,
            paths: &paths,
        };
        let previous: Option<&[u8]> = Some(b"{\"id\":\"1\"}");
        let replace = Envelope {
            kind: ChangeKind::Replace,
            previous,
            previous_lsn: Some(Lsn::new(20)),
            crts: 5,
            ..create
        };
        let delete =
            Envelope { kind: ChangeKind::Delete, current: None, ttl_expired: true, ..replace };
        for (envelope, expected) in [
            (
                create,
                r#"{"current":{"id":"1","n":1.50},"metadata":{"lsn":21,"crts":1,"operationType":"create"}}"#,
            ),
            (
                replace,
                r#"{"current":{"id":"1","n":1.50},"previous":{"id":"1"},
                    "metadata":{"lsn":21,"crts":5,"operationType":"replace","previousImageLSN":20}}"#,
            ),
            (
                delete,
                r#"{"current":{},"previous":{"id":"1"},"metadata":{"lsn":21,"crts":5,
                    "operationType":"delete","previousImageLSN":20,"timeToLiveExpired":true,
                    "id":"1\"","partitionKey":{"tenant":"]a[","user/id":1}}}"#,
            ),
        ] {
            let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
            assert_eq!(written(&envelope), expected);
        }
        let undefined = PartitionKey::parse("[{},null]").unwrap();
        let delete = Envelope { partition_key: &undefined, ..delete };
        let expected = serde_json::json!({ "user/id": null });
        assert_eq!(written(&delete)["metadata"]["partitionKey"], expected);
    }

    #[test]
    fn items_are_copied_as_they_are() {
        let key = PartitionKey::empty();
        let mut out = Vec::new();
        Envelope {
            kind: ChangeKind::Create,
            lsn: Lsn::FIRST,
            crts: 1,
            current: Some(b"{ \"n\": 1.50e0 }"),
            previous: None,
            previous_lsn: None,
            ttl_expired: false,
            id: "1",
            partition_key: &key,
            paths: &[],
        }
        .write_into(&mut out);
        assert!(out.starts_with(b"{\"current\":{ \"n\": 1.50e0 },"));
    }
}
