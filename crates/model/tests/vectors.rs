//! Compares hashes, headers and resource ids with test vectors of the official SDKs.
//!
//! The files in `vectors/` were made by running the SDKs; `source` names the SDK of each case. Where SDKs
//! disagree (version 1 hashes), `expected` is the value of Azure's own algorithm, and `sdk_divergence` lists the
//! SDKs that differ, for information only.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use headwater_model::{
    ContainerRid, DatabaseRid, PartitionKey, PartitionKeyDefinition, PartitionKeyKind,
    PartitionKeyValue, PartitionKeyVersion, ResourceId, ResourceKind, effective_partition_key,
};
use serde_json::Value;

fn cases(json: &str, expected: usize) -> Vec<Value> {
    let cases: Vec<Value> = serde_json::from_str(json).unwrap();
    assert_eq!(cases.len(), expected, "vectors were added or lost");
    cases
}

fn partition_key(values: &Value) -> PartitionKey {
    let value = |value: &Value| match value {
        Value::Object(marker) if marker.contains_key("$undefined") => PartitionKeyValue::Undefined,
        other => PartitionKeyValue::from_property_json(&other.to_string()).unwrap(),
    };
    PartitionKey::from_values(values.as_array().unwrap().iter().map(value))
}

#[track_caller]
fn check_hashes(json: &str, count: usize) {
    for case in cases(json, count) {
        let kind = match case["input"]["kind"].as_str().unwrap() {
            "Hash" => PartitionKeyKind::Hash,
            "MultiHash" => PartitionKeyKind::MultiHash,
            other => panic!("kind {other}"),
        };
        let version = match case["input"]["version"].as_u64().unwrap() {
            1 => PartitionKeyVersion::V1,
            2 => PartitionKeyVersion::V2,
            other => panic!("version {other}"),
        };
        let key = partition_key(&case["input"]["values"]);
        let epk = effective_partition_key(kind, version, key.components());
        assert_eq!(epk.to_hex(), case["expected"].as_str().unwrap(), "{kind:?} {version:?} {key}");

        // If a container can have such a key, its definition must give the same result.
        let paths = &["/a", "/b", "/c"][..key.components().len().min(3)];
        let paths = paths.iter().map(|path| path.parse().unwrap()).collect();
        if let Ok(definition) = PartitionKeyDefinition::new(paths, kind, version)
            && definition.paths.len() == key.components().len()
        {
            assert_eq!(definition.epk(&key).as_ref(), Ok(&epk), "{key}");
            let point = definition.prefix_range(&key).unwrap();
            assert!(point.contains(epk.as_bytes()));
        }
    }
}

#[test]
fn hashes_of_version_2() {
    check_hashes(include_str!("vectors/epk_hash_v2.json"), 91);
}

#[test]
fn hashes_of_version_2_over_several_values() {
    check_hashes(include_str!("vectors/epk_hash_v2_multi_component.json"), 15);
}

#[test]
fn hashes_of_hierarchical_keys() {
    check_hashes(include_str!("vectors/epk_multihash_v2.json"), 35);
}

#[test]
fn hashes_of_version_1() {
    check_hashes(include_str!("vectors/epk_hash_v1.json"), 91);
}

#[test]
fn partition_key_headers() {
    for case in cases(include_str!("vectors/partition_key_header.json"), 5) {
        let key = partition_key(&case["input"]["partitionKeyValues"]);
        let header = case["expected"]["value"].as_str().unwrap();
        assert_eq!(key.to_json(), header);
        assert_eq!(PartitionKey::parse(header).unwrap(), key);
    }
}

#[test]
fn resource_ids() {
    for case in cases(include_str!("vectors/rid.json"), 33) {
        let (bytes, expected) = (bytes_of(&case["input"]["bytesHex"]), &case["expected"]);
        let text = expected["rid"].as_str().unwrap();
        let rid = ResourceId::parse(text).unwrap();
        assert_eq!(ResourceId::from_bytes(&bytes).unwrap(), rid, "{text}");
        assert_eq!(rid.to_bytes().as_ref(), bytes, "{text}");
        assert_eq!(rid.to_string(), text);
        let mut written = Vec::new();
        rid.write_base64(&mut written);
        assert_eq!(written, text.as_bytes());
        check_parts(rid, expected);
    }
}

fn bytes_of(hex: &Value) -> Vec<u8> {
    headwater_model::Epk::from_hex(hex.as_str().unwrap()).unwrap().as_bytes().to_vec()
}

fn check_parts(rid: ResourceId, expected: &Value) {
    let number = |name: &str| expected[name].as_u64().unwrap_or_else(|| panic!("{name}"));
    let check_database = |database: DatabaseRid| {
        assert_eq!(u64::from(database.get()), number("database"));
    };
    let check_container = |container: ContainerRid| {
        check_database(container.database());
        assert_eq!(u64::from(container.container()), number("container"));
    };
    let kind = match rid {
        ResourceId::Offer(rid) => {
            assert_eq!(u64::from(rid.get()), number("offer"));
            "offer"
        }
        ResourceId::Database(rid) => {
            check_database(rid);
            "database"
        }
        ResourceId::User(rid) => {
            check_database(rid.database());
            assert_eq!(u64::from(rid.user()), number("user"));
            "user"
        }
        ResourceId::Container(rid) => {
            check_container(rid);
            "container"
        }
        ResourceId::Permission(rid) => {
            check_database(rid.user.database());
            assert_eq!(u64::from(rid.user.user()), number("user"));
            assert_eq!(rid.number, number("permission"));
            "permission"
        }
        ResourceId::ClientEncryptionKey(rid) => {
            check_database(rid.database);
            "client encryption key"
        }
        ResourceId::Resource(rid) => {
            check_container(rid.container);
            assert_eq!(rid.number, number("ordinal"));
            assert_eq!(u64::from(rid.kind.nibble()), number("childNibble"));
            match rid.kind {
                ResourceKind::Document => "document",
                ResourceKind::Conflict => "conflict",
                ResourceKind::PartitionKeyRange => "pkrange",
                ResourceKind::Udf => "udf",
                ResourceKind::Trigger => "trigger",
                ResourceKind::Sproc => "sproc",
            }
        }
        ResourceId::Attachment(rid) => {
            check_container(rid.item.container);
            assert_eq!(rid.item.number, number("ordinal"));
            assert_eq!(u64::from(rid.number), number("attachment"));
            "attachment"
        }
    };
    assert_eq!(kind, expected["type"].as_str().unwrap());
}
