//! The change feed on the wire: what a request asks for, and how an all-versions change looks.
//!
//! The same `GET …/docs` is a listing or a feed; `A-IM` tells. Where it starts is in the conditions:
//!
//! | start | headers |
//! |---|---|
//! | beginning | none, or an empty `If-None-Match` |
//! | now | `If-None-Match: *` |
//! | a time | `If-Modified-Since`, unless `If-None-Match` has a value |
//! | where a reader was | `If-None-Match: <etag of its last page>` |
//! | the oldest version kept | `x-headwater-feed-start: oldest`, all versions only; not in the service |
//!
//! A start by time has two histories. The articles of 2017 promise an empty first answer with only the
//! etag; SDKs since expect documents at once, and some lose documents otherwise. Each gets what it was
//! written for, by the API version it names, unless the server is told otherwise.
//!
//! Reading the feed is the store's business, and so is filling a page.

use crate::error::Code;
use crate::headers::ApiVersion;
use headwater_model::{
    BadContinuation, BadTimestamp, ChangeKind, Continuation, FeedMode, FeedStart, Lsn,
    PartitionKey, PartitionKeyPath, PartitionKeyValue, Timestamp,
};
use std::borrow::Cow;
use std::io::Write as _;

/// The headers that decide, as they were sent.
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

/// What the first answer to a start by time holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeStart {
    /// Decided by `x-ms-version`, which serves both kinds of client.
    #[default]
    ByVersion,
    /// No changes, only the position: 304 with an etag.
    PositionFirst,
    /// Changes at once.
    ChangesAtOnce,
}

/// A request for one page of the change feed, with its headers understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRequest {
    /// Which changes.
    pub mode: FeedMode,
    /// From where.
    pub start: FeedStart,
    /// Answer 304 with the position of the start and no changes. Only ever with a start by time.
    pub position_only: bool,
}

/// Why the headers make no feed request. Each is a bad request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFeedRequest {
    /// A kind of feed there is not.
    #[error("A-IM is neither `Incremental Feed` nor `Full-Fidelity Feed`; send one of them")]
    Mode,
    /// The etag of something else.
    #[error("If-None-Match: {0}")]
    Continuation(#[from] BadContinuation),
    /// Not a date.
    #[error("If-Modified-Since: {0}")]
    Time(#[from] BadTimestamp),
    /// All versions are kept for a while only, so the service starts them now or after a position.
    #[error(
        "You must read the change feed from within the retention period. All versions and deletes \
         can be read from now (`If-None-Match: *`), from an etag, or from the oldest change that is \
         kept (`x-headwater-feed-start: oldest`), not from the beginning or a time"
    )]
    AllVersionsStart,
    /// A start there is not.
    #[error("x-headwater-feed-start is not `oldest`; send that or leave it out")]
    Start,
}

impl BadFeedRequest {
    /// The status it is answered with.
    #[must_use]
    pub fn code(&self) -> Code {
        Code::BadRequest
    }
}

impl FeedRequest {
    /// Understands the headers; nothing when they ask for a listing.
    ///
    /// # Errors
    /// When a header is malformed, or asks for a start its mode does not have.
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
            // Some SDKs send the first day of their calendar for the beginning.
            Err(BadTimestamp::BeforeEpoch) => Ok(FeedStart::Time(Timestamp::from_seconds(0))),
            time => Ok(FeedStart::Time(time?)),
        },
    }
}

/// The Go client calls the zone of HTTP dates by its newer name.
fn with_gmt(text: &str) -> Cow<'_, str> {
    match text.strip_suffix(" UTC") {
        Some(date) => Cow::Owned(format!("{date} GMT")),
        None => Cow::Borrowed(text),
    }
}

/// Appends an item of the latest-version feed as clients get it that name a wire format: wrapped, with
/// where and when it was written, but not how. The Java client's processor reads nothing else.
pub fn write_wrapped(item: &[u8], lsn: Lsn, seconds: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"current\":");
    out.extend_from_slice(item);
    // Writing into a vector does not fail.
    let _ = write!(out, ",\"metadata\":{{\"lsn\":{lsn},\"crts\":{}}}}}", seconds.max(1));
}

/// One change of the all-versions feed.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// What happened.
    pub kind: ChangeKind,
    /// Where in the log.
    pub lsn: Lsn,
    /// When, in seconds since 1970. Clients refuse 0, so it is sent as at least 1.
    pub crts: u64,
    /// The item after the change, as JSON; nothing after a delete.
    pub current: Option<&'a [u8]>,
    /// The item before the change, as JSON, if it is still kept.
    pub previous: Option<&'a [u8]>,
    /// Where in the log the item was written before.
    pub previous_lsn: Option<Lsn>,
    /// A delete because its time was over.
    pub ttl_expired: bool,
    /// The id of the item.
    pub id: &'a str,
    /// Its partition key.
    pub partition_key: &'a PartitionKey,
    /// The paths of that key in the container, one per component.
    pub paths: &'a [PartitionKeyPath],
}

impl Envelope<'_> {
    /// Appends the change. Items are copied as they are.
    pub fn write_into(&self, out: &mut Vec<u8>) {
        // A delete has a `current` too, without anything in it: some clients demand the property.
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
        // Writing into a vector does not fail.
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

    /// An object by property name. A component the item does not have is not in it either.
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
            // A key of one component is that component in brackets.
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
            (Some("\"1\""), Some("not a date"), after(1)), // ignored beside an etag
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
            // Only ever with a start by time.
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
