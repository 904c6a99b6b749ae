//! Our documents that are not leases: members, the control document, and the marker.

use crate::lease::{Document, DocumentKey, HostId, Lease, Start};
use headwater_model::{Epk, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How many lease expirations the document of a silent host is kept.
const EXPIRATIONS_KEPT: u64 = 10;
/// The shortest time to live of a member document.
const KEPT_SECONDS_MIN: u64 = 60;

/// The time to live of the member document of a host with this lease expiration.
pub(crate) fn time_to_live_seconds(expiration: Duration) -> u64 {
    expiration.as_secs().saturating_mul(EXPIRATIONS_KEPT).max(KEPT_SECONDS_MIN)
}

/// How old a member document may be before its host has lost its leases: at least the lease expiration of that
/// host. Nothing if the document has no time to live.
pub(crate) fn silence_max(body: &[u8]) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Kept {
        ttl: u64,
    }
    let kept: Kept = serde_json::from_slice(body).ok()?;
    Some(Duration::from_secs(kept.ttl / EXPIRATIONS_KEPT))
}

/// A host that takes part, as it describes itself. Its heartbeat keeps all its leases alive.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its identity.
    pub host: HostId,
    /// Grows with every heartbeat.
    pub heartbeat: u64,
    /// Whether it is stopping, so that it receives no leases.
    pub draining: bool,
    /// Its capacity, relative to other hosts.
    pub weight: f64,
    /// Hosts with a higher priority are filled first.
    pub priority: i32,
    /// The minimum and maximum number of leases; zero means no limit.
    pub bounds: Bounds,
    /// Number of leases it owns.
    pub owned: usize,
    /// The generation of the control document it has applied.
    pub generation: u64,
}

/// The minimum and maximum number of leases of a host; zero means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// `MinPartitionCount`
    pub min: usize,
    /// `MaxPartitionCount`
    pub max: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    name: String,
    sid: String,
    hb: u64,
    #[serde(default)]
    draining: bool,
    #[serde(default = "one")]
    weight: f64,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    bounds: Bounds,
    #[serde(default)]
    owned: usize,
    #[serde(default)]
    gen_: u64,
}

fn one() -> f64 {
    1.0
}

impl Member {
    /// Parses a member document; `None` if it is not one.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Member> {
        let fields: Fields = serde_json::from_slice(body).ok()?;
        Some(Member {
            host: HostId { name: fields.name, session: fields.sid },
            heartbeat: fields.hb,
            draining: fields.draining,
            weight: if fields.weight.is_finite() { fields.weight.max(0.0) } else { 1.0 },
            priority: fields.priority,
            bounds: fields.bounds,
            owned: fields.owned,
            generation: fields.gen_,
        })
    }

    /// Serializes the document. The service deletes it if it is not written for `ttl_seconds`.
    #[must_use]
    pub fn to_bytes(&self, key: &DocumentKey, ttl_seconds: u64) -> Vec<u8> {
        let fields = Fields {
            name: self.host.name.clone(),
            sid: self.host.session.clone(),
            hb: self.heartbeat,
            draining: self.draining,
            weight: self.weight,
            priority: self.priority,
            bounds: self.bounds,
            owned: self.owned,
            gen_: self.generation,
        };
        let mut document = with_key(key);
        document.set("ttl", &ttl_seconds);
        merge(&mut document, &fields);
        document.to_bytes()
    }
}

/// What operators request of the whole unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Grows by one with every request.
    pub generation: u64,
    /// Whether all hosts must pause.
    pub paused: bool,
}

#[derive(Serialize, Deserialize)]
struct ControlFields {
    #[serde(rename = "gen")]
    generation: u64,
    state: String,
}

impl Control {
    /// The value for an unreadable document: its author may have requested a pause.
    pub const UNREADABLE: Control = Control { generation: 0, paused: true };

    /// Parses the control document; `None` if it is not one.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Control> {
        let fields: ControlFields = serde_json::from_slice(body).ok()?;
        let paused = match fields.state.as_str() {
            "paused" => true,
            "running" => false,
            _ => return None,
        };
        Some(Control { generation: fields.generation, paused })
    }

    /// Serializes the document.
    #[must_use]
    pub fn to_bytes(&self, key: &DocumentKey) -> Vec<u8> {
        let state = if self.paused { "paused" } else { "running" };
        let fields = ControlFields { generation: self.generation, state: state.to_owned() };
        let mut document = with_key(key);
        merge(&mut document, &fields);
        document.to_bytes()
    }
}

/// The marker that records which leases were created.
///
/// It is written with every lease that fills a gap, atomically or before it. A host that decided on an older
/// version of the marker therefore creates nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Marker {
    /// The start of ranges without a known position. Other libraries do not store it.
    pub(crate) start: Option<Start>,
    /// Leases were created for all keys below this one; for all keys if absent.
    pub(crate) made_to: Option<Epk>,
    /// Promised leases, which may not all exist yet.
    pub(crate) makes: Vec<Lease>,
}

const START: &str = "hwStart";
const MADE_TO: &str = "hwMadeTo";
const MAKES: &str = "hwMakes";

impl Marker {
    /// Parses the marker. An empty one means that all leases were created, as in the .NET and Java libraries.
    pub(crate) fn parse(body: &[u8]) -> Marker {
        let document = Document::parse(body).unwrap_or_default();
        let text = |name| document.get::<String>(name);
        let makes = document.get::<Vec<Document>>(MAKES).unwrap_or_default();
        Marker {
            start: text(START).and_then(|start| start.parse().ok()),
            made_to: text(MADE_TO).and_then(|key| Epk::from_hex(&key).ok()),
            makes: makes.iter().filter_map(|one| Lease::parse(&one.to_bytes()).ok()).collect(),
        }
    }

    /// Whether all leases were created.
    pub(crate) fn says_all(&self) -> bool {
        self.made_to.is_none() && self.makes.is_empty()
    }

    /// Serializes the document.
    pub(crate) fn to_bytes(&self, key: &DocumentKey) -> Vec<u8> {
        let mut document = with_key(key);
        if let Some(start) = &self.start {
            document.set(START, &start.to_string());
        }
        if let Some(key) = &self.made_to {
            document.set(MADE_TO, &key.to_hex());
        }
        // Leases are serialized again when they are created, so this timestamp does not matter.
        let bytes = |lease: &Lease| lease.to_bytes(Timestamp::from_millis(0), "");
        let makes: Vec<Document> =
            self.makes.iter().filter_map(|one| Document::parse(&bytes(one)).ok()).collect();
        if !makes.is_empty() {
            document.set(MAKES, &makes);
        }
        document.to_bytes()
    }
}

/// Creates a document with an id, and with a partition key if the container needs one.
pub(crate) fn with_key(key: &DocumentKey) -> Document {
    let mut document = Document::default();
    document.set("id", &key.id);
    if let Some(partition) = &key.partition {
        document.set("partitionKey", partition);
    }
    document
}

fn merge(document: &mut Document, fields: &impl Serialize) {
    let parsed = serde_json::to_vec(fields).ok().and_then(|json| Document::parse(&json).ok());
    let Some(parsed) = parsed else { return };
    for name in parsed.names() {
        if let Some(value) = parsed.get::<serde_json::Value>(name) {
            document.set(name, &value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Flavour;
    use headwater_model::{FeedMode, KeyRange};

    #[test]
    fn members_and_wishes_are_read_as_they_were_written() {
        let key = DocumentKey { id: "NS.host.a".to_owned(), partition: Some("NS".to_owned()) };
        let member = Member {
            host: HostId { name: "a".to_owned(), session: "s".to_owned() },
            heartbeat: 7,
            draining: true,
            weight: 2.5,
            priority: -1,
            bounds: Bounds { min: 1, max: 9 },
            owned: 3,
            generation: 4,
        };
        let bytes = member.to_bytes(&key, 150);
        assert_eq!(Member::parse(&bytes), Some(member));
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            (&json["id"], &json["partitionKey"], &json["ttl"]),
            (&"NS.host.a".into(), &"NS".into(), &150.into())
        );
        let control = Control { generation: 3, paused: true };
        assert_eq!(Control::parse(&control.to_bytes(&key)), Some(control));
        let range = KeyRange::full();
        let (lease, token) = (DocumentKey { id: "NS..-FF".to_owned(), ..key.clone() }, "-FF");
        let mut lease =
            Lease::new(Flavour::DotNetV3, lease, token.to_owned(), range, FeedMode::LatestVersion);
        lease.extra.start = Some(Start::Beginning);
        lease.extra.epoch = 7;
        let marker = Marker {
            start: Some(Start::Beginning),
            made_to: Some(Epk::from_hex("3F").unwrap()),
            makes: vec![lease],
        };
        assert_eq!(Marker::parse(&marker.to_bytes(&key)), marker);
        assert_eq!(Marker::parse(br#"{"id":"NS.info"}"#), Marker::default());
        let damaged = br#"{"id":"NS.info","hwMakes":[7,{"id":"x"}],"hwMadeTo":"?"}"#;
        assert_eq!(Marker::parse(damaged), Marker::default());
        assert_eq!(Member::parse(b"{}"), None);
        assert_eq!(Control::parse(b"[]"), None);
        let odd = br#"{"name":"a","sid":"s","hb":1,"weight":-3}"#;
        assert_eq!(Member::parse(odd).unwrap().weight, 0.0);
    }
}
