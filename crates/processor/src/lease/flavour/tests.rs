//! Leases of the .NET and Java libraries, parsed and written back: known and unknown properties survive.

use super::*;
use serde_json::Value;

const NOW: Timestamp = Timestamp::from_millis(1_593_861_634_771);
const V2: &str = r#"{"id":"NS..0","partitionKey":"g","PartitionId":"0","Owner":"host-a",
    "ContinuationToken":"\"28535\"","properties":{"mine":"1"},"timestamp":"2020-07-04T11:20:34.7713366Z",
    "surprise":[1.50],"_etag":"e","_ts":1593861634}"#;
const V3: &str = r#"{"id":"NS..0","version":0,"_etag":"e","LeaseToken":"0","PartitionId":"0",
    "FeedRange":{"Range":{"min":"","max":"05C1CFFFFFFFF8"}},"Owner":null,"ContinuationToken":null,
    "properties":{},"timestamp":"2020-07-04T11:20:34.7713366Z","Mode":"Full-Fidelity Feed","_ts":1}"#;
const JAVA_PK: &str = r#"{"id":"NS..0","_etag":"e","LeaseToken":"0","ContinuationToken":"\"7\"",
    "timestamp":"2020-07-04T11:20:34.771Z[UTC]","Owner":"j"}"#;

fn java_epk() -> String {
    let range = KeyRange::full();
    let position = Position::new("\"28535\"").unwrap();
    let token = java::encode(None, &position, "qYcAAPEvJBQ=", &range, FeedMode::LatestVersion);
    format!(
        r#"{{"id":"NS..-FF","version":1,"_etag":"e","LeaseToken":"-FF","ContinuationToken":"{token}",
        "timestamp":"2020-07-04T11:20:34.771Z","Owner":"j","feedRange":{{"Range":{{"min":"","max":"FF"}}}}}}"#
    )
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Parses a lease and writes it back; only its time may change.
#[track_caller]
fn round_trip(text: &str, flavour: Flavour) -> Lease {
    let lease = Lease::parse(text.as_bytes()).unwrap();
    assert_eq!(lease.flavour(), flavour);
    let written = lease.to_bytes(NOW, "qYcAAPEvJBQ=");
    let (mut before, mut after) = (json(text.as_bytes()), json(&written));
    for one in [&mut before, &mut after] {
        let object = one.as_object_mut().unwrap();
        object.retain(|name, _| !name.starts_with('_') && name != "timestamp");
    }
    assert_eq!(before, after, "{flavour}");
    assert_eq!(Lease::parse(&written).unwrap(), lease, "{flavour}");
    lease
}

#[test]
fn every_flavour_is_read_and_written_property_for_property() {
    let lease = round_trip(V2, Flavour::DotNetV2);
    assert_eq!((lease.token.as_str(), lease.owner.as_deref()), ("0", Some("host-a")));
    assert_eq!(lease.position, Position::new("\"28535\""));
    let raw = String::from_utf8(lease.to_bytes(NOW, "")).unwrap();
    assert!(raw.contains(r#""surprise":[1.50]"#) && raw.contains("34.7710000Z"), "{raw}");
    let lease = round_trip(V3, Flavour::DotNetV3);
    assert_eq!(lease.mode, Some(FeedMode::AllVersionsAndDeletes));
    assert_eq!((lease.owner.clone(), lease.position.clone()), (None, None));
    assert_eq!(lease.range.unwrap().max().to_hex(), "05C1CFFFFFFFF8");
    let lease = round_trip(JAVA_PK, Flavour::JavaPk);
    let raw = String::from_utf8(lease.to_bytes(NOW, "")).unwrap();
    assert!(!raw.contains("properties") && raw.contains("34.771Z"), "{raw}");
    let lease = round_trip(&java_epk(), Flavour::JavaEpk);
    assert_eq!(lease.position, Position::new("\"28535\""));
    assert_eq!(lease.mode, Some(FeedMode::LatestVersion));
}

#[test]
fn a_changed_lease_differs_only_in_what_was_changed() {
    for text in [V2, V3, JAVA_PK, &java_epk()] {
        let mut lease = Lease::parse(text.as_bytes()).unwrap();
        lease.owner = Some("me".to_owned());
        lease.position = Position::new("\"28600\"");
        let again = Lease::parse(&lease.to_bytes(NOW, "qYcAAPEvJBQ=")).unwrap();
        assert_eq!(again, lease);
    }
}

#[test]
fn what_we_know_beyond_survives_where_there_is_a_place_for_it() {
    let extra = Extra {
        session: Some("s".to_owned()),
        epoch: 17,
        sequence: 412,
        start: Some(Start::Time(NOW)),
        parent: Some("-FF@3".to_owned()),
        reserved_for: Some("b/t".to_owned()),
        attempts: 3,
        attempts_at: Some("\"1\"".to_owned()),
        rate: 81_234,
        state: LeaseState::Halted,
        cuts: ["3F", "7F80"].map(|key| Epk::from_hex(key).unwrap()).to_vec(),
        generation: 5,
    };
    for (text, kept) in [(V2, true), (V3, true), (JAVA_PK, false)] {
        let mut lease = Lease::parse(text.as_bytes()).unwrap();
        lease.extra = extra.clone();
        let again = Lease::parse(&lease.to_bytes(NOW, "")).unwrap();
        let expected = if kept { extra.clone() } else { Extra::default() };
        assert_eq!(again.extra, expected);
    }
    let mut lease = Lease::parse(V2.as_bytes()).unwrap();
    lease.extra = extra;
    let mut cleared = Lease::parse(&lease.to_bytes(NOW, "")).unwrap();
    cleared.extra = Extra::default();
    let raw = json(&cleared.to_bytes(NOW, ""));
    assert_eq!(raw["properties"], serde_json::json!({"mine": "1"}));
}

#[test]
fn a_new_lease_has_the_form_of_its_flavour() {
    let range = KeyRange::full();
    for (flavour, token, expected) in [
        (Flavour::DotNetV2, "0", vec!["PartitionId", "properties"]),
        (Flavour::DotNetV3, "0", vec!["version", "LeaseToken", "FeedRange", "Mode", "properties"]),
        (Flavour::JavaPk, "0", vec!["LeaseToken"]),
        (Flavour::JavaEpk, "-FF", vec!["version", "LeaseToken", "feedRange"]),
    ] {
        let key = DocumentKey { id: format!("NS..{token}"), partition: None };
        let mut lease =
            Lease::new(flavour, key, token.to_owned(), range.clone(), FeedMode::LatestVersion);
        lease.position = Position::new("\"9\"");
        let bytes = lease.to_bytes(NOW, "qYcAAPEvJBQ=");
        let names: Vec<String> =
            Document::parse(&bytes).unwrap().names().map(str::to_owned).collect();
        let common = ["id", "Owner", "ContinuationToken", "timestamp"];
        assert!(expected.iter().chain(&common).all(|name| names.iter().any(|n| n == name)));
        assert_eq!(names.len(), expected.len() + common.len(), "{names:?}");
        let read = Lease::parse(&bytes).unwrap();
        assert_eq!((read.flavour(), &read.position), (flavour, &lease.position));
    }
}

#[test]
fn documents_that_are_not_leases_are_refused() {
    for text in [
        "{}",
        r#"{"id":"x"}"#,
        r#"{"LeaseToken":"0"}"#,
        r#"{"id":"x","LeaseToken":7}"#,
        r#"{"id":"x","state":"LEASED","sequenceNumber":1}"#,
        r#"{"id":"x","LeaseToken":"-FF","feedRange":{},"ContinuationToken":"not base64!"}"#,
    ] {
        assert!(Lease::parse(text.as_bytes()).is_err(), "{text}");
    }
}
