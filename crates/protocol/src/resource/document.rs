//! Builds the documents of definitions: the user's properties plus the system properties.
//!
//! The user's properties are copied from the JSON unchanged and in their order. Properties that the system
//! sets are removed from them and appended.

use headwater_model::{
    ClientEncryptionKeyRid, ContainerRid, DatabaseRid, KeyRange, Lsn, PartitionId,
    PartitionRangeRid, PermissionRid, ResourceKind, ResourceRid, UserRid,
};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;
use std::fmt;

/// The most top-level properties of a definition.
const PROPERTIES_MAX: usize = 1000;

/// A definition is not a JSON object, or has too many properties.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("definition is not a JSON object of at most {PROPERTIES_MAX} properties: {0}")]
pub struct BadDocument(String);

/// The system properties of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// `_rid`
    pub rid: String,
    /// `_self`: a path of resource ids, with a trailing slash and no leading one.
    pub self_link: String,
    /// `_etag`, including its quotes.
    pub etag: String,
    /// `_ts`: seconds since 1970.
    pub ts: u64,
}

impl System {
    /// Creates the system properties of a database.
    #[must_use]
    pub fn database(rid: DatabaseRid, etag: &str, ts: u64) -> System {
        System::new(rid, database_link(rid), etag, ts)
    }

    /// Creates the system properties of a container.
    #[must_use]
    pub fn container(rid: ContainerRid, etag: &str, ts: u64) -> System {
        System::new(rid, container_link(rid), etag, ts)
    }

    /// Creates the system properties of a user.
    #[must_use]
    pub fn user(rid: UserRid, etag: &str, ts: u64) -> System {
        System::new(rid, user_link(rid), etag, ts)
    }

    /// Creates the system properties of a permission.
    #[must_use]
    pub fn permission(rid: PermissionRid, etag: &str, ts: u64) -> System {
        let link = format!("{}permissions/{rid}/", user_link(rid.user));
        System::new(rid, link, etag, ts)
    }

    /// Creates the system properties of a client encryption key.
    #[must_use]
    pub fn client_encryption_key(rid: ClientEncryptionKeyRid, etag: &str, ts: u64) -> System {
        let link = format!("{}clientencryptionkeys/{rid}/", database_link(rid.database));
        System::new(rid, link, etag, ts)
    }

    /// Creates the system properties of a script, or of another resource directly below a container.
    #[must_use]
    pub fn below_container(rid: ResourceRid, etag: &str, ts: u64) -> System {
        let kind = match rid.kind {
            ResourceKind::Conflict => "conflicts",
            ResourceKind::PartitionKeyRange => "pkranges",
            ResourceKind::Udf => "udfs",
            ResourceKind::Trigger => "triggers",
            ResourceKind::Sproc => "sprocs",
            ResourceKind::Document => "docs",
        };
        let link = format!("{}{kind}/{rid}/", container_link(rid.container));
        System::new(rid, link, etag, ts)
    }

    fn new(rid: impl fmt::Display, self_link: String, etag: &str, ts: u64) -> System {
        System { rid: rid.to_string(), self_link, etag: etag.to_owned(), ts }
    }

    fn members(&self) -> [(&'static str, String); 4] {
        [
            ("_rid", json!(self.rid).to_string()),
            ("_self", json!(self.self_link).to_string()),
            ("_etag", json!(self.etag).to_string()),
            ("_ts", self.ts.to_string()),
        ]
    }
}

fn database_link(rid: DatabaseRid) -> String {
    format!("dbs/{rid}/")
}

fn container_link(rid: ContainerRid) -> String {
    format!("{}colls/{rid}/", database_link(rid.database()))
}

fn user_link(rid: UserRid) -> String {
    format!("{}users/{rid}/", database_link(rid.database()))
}

/// Builds the document of a database.
#[must_use]
pub fn database(id: &str, system: &System) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.member("id", &json!(id).to_string());
    writer.system(system);
    writer.member("_colls", "\"colls/\"");
    writer.member("_users", "\"users/\"");
    writer.finish()
}

/// Builds the document of a container: its definition, defaults for missing policies, and the system
/// properties.
///
/// # Errors
/// When the definition is not a JSON object.
pub fn container(definition: &str, system: &System) -> Result<Vec<u8>, BadDocument> {
    let defaults = [
        (
            "indexingPolicy",
            r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#,
        ),
        (
            "conflictResolutionPolicy",
            r#"{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""}"#,
        ),
        ("geospatialConfig", r#"{"type":"Geography"}"#),
    ];
    let own = [
        ("_docs", "\"docs/\""),
        ("_sprocs", "\"sprocs/\""),
        ("_triggers", "\"triggers/\""),
        ("_udfs", "\"udfs/\""),
        ("_conflicts", "\"conflicts/\""),
    ];
    compose(definition, &defaults, system, &own)
}

/// Builds the document of a user.
///
/// # Errors
/// When the definition is not a JSON object.
pub fn user(definition: &str, system: &System) -> Result<Vec<u8>, BadDocument> {
    compose(definition, &[], system, &[("_permissions", "\"permissions/\"")])
}

/// Builds the document of a permission, with the token minted for this response.
///
/// # Errors
/// When the definition is not a JSON object.
pub fn permission(definition: &str, token: &str, system: &System) -> Result<Vec<u8>, BadDocument> {
    compose(definition, &[], system, &[("_token", &json!(token).to_string())])
}

/// Builds the document of a stored procedure, trigger, user-defined function or client encryption key:
/// the definition with only the common system properties.
///
/// # Errors
/// When the definition is not a JSON object.
pub fn script(definition: &str, system: &System) -> Result<Vec<u8>, BadDocument> {
    compose(definition, &[], system, &[])
}

/// One physical partition, as `pkranges` lists it.
#[derive(Clone, Copy, Debug)]
pub struct PkRange<'a> {
    /// The partition's id, which is never reused.
    pub id: PartitionId,
    /// The partition's resource id.
    pub rid: PartitionRangeRid,
    /// The partition's range of hashed keys.
    pub range: &'a KeyRange,
    /// All ancestors by splits and merges, oldest first.
    pub parents: &'a [PartitionId],
    /// The partition's share of the throughput.
    pub throughput_fraction: f64,
    /// The LSN of the container when the range was created.
    pub lsn: Lsn,
    /// The etag, including its quotes.
    pub etag: &'a str,
    /// Timestamp in seconds since 1970.
    pub ts: u64,
}

/// Builds the document of a physical partition.
#[must_use]
pub fn pk_range(range: &PkRange<'_>) -> Vec<u8> {
    let rid = ResourceRid::from(range.rid);
    let system = System::below_container(rid, range.etag, range.ts);
    let parents: Vec<String> = range.parents.iter().map(PartitionId::to_string).collect();
    let mut writer = Writer::new();
    writer.member("id", &format!("\"{}\"", range.id));
    writer.member("minInclusive", &format!("\"{}\"", range.range.min().to_hex()));
    writer.member("maxExclusive", &format!("\"{}\"", range.range.max().to_hex()));
    writer.member("ridPrefix", &range.id.to_string());
    writer.member("throughputFraction", &json!(range.throughput_fraction).to_string());
    writer.member("status", "\"online\"");
    writer.member("parents", &json!(parents).to_string());
    writer.member("ownedArchivalPKRangeIds", "[]");
    writer.system(&system);
    writer.member("_lsn", &range.lsn.to_string());
    writer.finish()
}

/// Writes the user's properties, then defaults for missing ones, then the system's and `own` properties.
fn compose(
    definition: &str,
    defaults: &[(&str, &str)],
    system: &System,
    own: &[(&str, &str)],
) -> Result<Vec<u8>, BadDocument> {
    let members: Members<'_> =
        serde_json::from_str(definition).map_err(|error| BadDocument(error.to_string()))?;
    let system_members = system.members();
    let ours = |name: &str| {
        system_members.iter().any(|(known, _)| *known == name)
            || own.iter().any(|(known, _)| *known == name)
    };
    let mut writer = Writer::new();
    for (name, value) in &members.0 {
        if !ours(name) {
            writer.member(name, value.get());
        }
    }
    for (name, value) in defaults {
        if !members.0.iter().any(|(known, _)| known == name) {
            writer.member(name, value);
        }
    }
    writer.system(system);
    own.iter().for_each(|(name, value)| writer.member(name, value));
    Ok(writer.finish())
}

/// The members of an object in order, with values as unparsed JSON.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'a>, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            if members.len() >= PROPERTIES_MAX {
                return Err(A::Error::custom("it has more"));
            }
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// Writes an object member by member.
struct Writer(Vec<u8>);

impl Writer {
    fn new() -> Writer {
        Writer(b"{".to_vec())
    }

    /// Appends a member whose value is `json`.
    fn member(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        // Writing to a `Vec` does not fail.
        let _ = serde_json::to_writer(&mut self.0, name);
        self.0.push(b':');
        self.0.extend_from_slice(json.as_bytes());
    }

    fn system(&mut self, system: &System) {
        for (name, json) in system.members() {
            self.member(name, &json);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const ETAG: &str = "\"00000000-0000-0000-0000-000000000001\"";

    fn read(document: &[u8]) -> Value {
        serde_json::from_slice(document).unwrap()
    }

    fn container_rid() -> ContainerRid {
        ContainerRid::new(1, 1)
    }

    #[test]
    fn databases() {
        let rid = DatabaseRid::new(1);
        let document = read(&database("a\"b", &System::database(rid, ETAG, 7)));
        let expected = json!({
            "id": "a\"b", "_rid": "AAAAAQ==", "_self": "dbs/AAAAAQ==/", "_etag": ETAG, "_ts": 7,
            "_colls": "colls/", "_users": "users/",
        });
        assert_eq!(document, expected);
    }

    #[test]
    fn containers_keep_every_policy_as_it_was_given() {
        let definition = r#"{ "zeta": {"a" : 1.50}, "id": "c", "_ts": 1, "_docs": 2, "indexingPolicy":
            {"indexingMode":"none"}, "partitionKey":{"paths":["/pk"],"kind":"Hash","version":2} }"#;
        let system = System::container(container_rid(), ETAG, 7);
        let document = container(definition, &system).unwrap();
        let text = std::str::from_utf8(&document).unwrap();
        assert!(text.starts_with(r#"{"zeta":{"a" : 1.50},"id":"c","indexingPolicy":{"#), "{text}");
        let document = read(&document);
        assert_eq!(document["_ts"], 7);
        assert_eq!(document["_docs"], "docs/");
        assert_eq!(document["_rid"], "AAAAAYAAAAE=");
        assert_eq!(document["_self"], "dbs/AAAAAQ==/colls/AAAAAYAAAAE=/");
        assert_eq!(document["indexingPolicy"], json!({ "indexingMode": "none" }));
        assert_eq!(document["geospatialConfig"], json!({ "type": "Geography" }));
        assert_eq!(document["conflictResolutionPolicy"]["conflictResolutionPath"], "/_ts");
        assert_eq!(document["partitionKey"]["version"], 2);
    }

    #[test]
    fn users_permissions_and_scripts() {
        let user_rid = UserRid::new(1, 2);
        let document = read(&user(r#"{"id":"u"}"#, &System::user(user_rid, ETAG, 7)).unwrap());
        assert_eq!(document["_permissions"], "permissions/");
        let user_link = document["_self"].as_str().unwrap();
        assert_eq!(user_link, format!("dbs/AAAAAQ==/users/{user_rid}/"));

        let rid = PermissionRid::new(user_rid, 3);
        let system = System::permission(rid, ETAG, 7);
        let definition =
            r#"{"id":"p","permissionMode":"Read","resource":"dbs/a","_token":"forged"}"#;
        let document = read(&permission(definition, "type=resource", &system).unwrap());
        assert_eq!(document["_token"], "type=resource");
        assert_eq!(document["_self"], format!("{user_link}permissions/{rid}/"));

        let rid = ResourceRid::new(container_rid(), ResourceKind::Sproc, 1);
        let system = System::below_container(rid, ETAG, 7);
        let document = read(&script(r#"{"id":"s","body":"function(){}"}"#, &system).unwrap());
        assert_eq!(document["body"], "function(){}");
        let expected = format!("dbs/AAAAAQ==/colls/AAAAAYAAAAE=/sprocs/{rid}/");
        assert_eq!(document["_self"], expected);
    }

    #[test]
    fn ranges() {
        let range = PkRange {
            id: PartitionId::new(3),
            rid: PartitionRangeRid::new(container_rid(), 3),
            range: &KeyRange::full(),
            parents: &[PartitionId::new(0), PartitionId::new(1)],
            throughput_fraction: 0.5,
            lsn: Lsn::new(9),
            etag: ETAG,
            ts: 7,
        };
        let document = read(&pk_range(&range));
        assert_eq!(document["id"], "3");
        assert_eq!(document["minInclusive"], "");
        assert_eq!(document["maxExclusive"], "FF");
        assert_eq!(document["parents"], json!(["0", "1"]));
        assert_eq!(document["throughputFraction"], 0.5);
        assert_eq!(document["_lsn"], 9);
        assert!(document["_self"].as_str().unwrap().contains("/pkranges/"));
    }

    #[test]
    fn refused_definitions() {
        let system = System::container(container_rid(), ETAG, 7);
        let many: Vec<String> = (0..1001).map(|index| format!("\"p{index}\":1")).collect();
        for definition in ["", "[]", "1", "{", "{}x", &format!("{{{}}}", many.join(","))] {
            assert!(container(definition, &system).is_err(), "{definition}");
        }
    }
}
