//! Partition key definitions: which are valid, which keys fit them, and how they divide the key space.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use headwater_model::{
    BadPartitionKeyDefinition, BadPartitionKeyPath, Epk, KeyRange, PartitionKey,
    PartitionKeyDefinition, PartitionKeyError, PartitionKeyKind, PartitionKeyValue,
    PartitionKeyVersion,
};

fn from_json(json: &str) -> PartitionKeyDefinition {
    PartitionKeyDefinition::from_json(json).unwrap()
}

/// Version 1 of `/pk`.
fn version_1() -> PartitionKeyDefinition {
    from_json(r#"{"paths":["/pk"]}"#)
}

fn hash() -> PartitionKeyDefinition {
    PartitionKeyDefinition::hash("/pk").unwrap()
}

fn hierarchy() -> PartitionKeyDefinition {
    PartitionKeyDefinition::multi_hash(&["/tenant", "/user", "/session"]).unwrap()
}

#[test]
fn accepted_json() {
    for (json, written) in [
        (r#"{"paths":["/pk"]}"#, r#"{"paths":["/pk"],"kind":"Hash","version":1}"#),
        (
            r#"{"kind":"Hash","paths":["/pk"],"version":2}"#,
            r#"{"paths":["/pk"],"kind":"Hash","version":2}"#,
        ),
        (
            r#"{"paths":["/pk"],"kind":null,"version":null,"systemKey":false,"other":1}"#,
            r#"{"paths":["/pk"],"kind":"Hash","version":1}"#,
        ),
        (
            r#"{"paths":["/\"a b\"/c"],"kind":"Range","version":1}"#,
            r#"{"paths":["/\"a b\"/c"],"kind":"Range","version":1}"#,
        ),
        (
            r#"{"paths":["/_partitionKey"],"kind":"Hash","version":2,"systemKey":true}"#,
            r#"{"paths":["/_partitionKey"],"kind":"Hash","version":2,"systemKey":true}"#,
        ),
        (
            r#"{"paths":["/a","/b","/c"],"kind":"MultiHash","version":2}"#,
            r#"{"paths":["/a","/b","/c"],"kind":"MultiHash","version":2}"#,
        ),
        (
            r#"{"paths":["/a"],"kind":"MultiHash","version":2}"#,
            r#"{"paths":["/a"],"kind":"MultiHash","version":2}"#,
        ),
    ] {
        let definition = from_json(json);
        assert_eq!(serde_json::to_string(&definition).unwrap(), written);
        assert_eq!(serde_json::from_str::<PartitionKeyDefinition>(written).unwrap(), definition);
    }
}

#[test]
fn refused_json() {
    use BadPartitionKeyDefinition::*;
    let check = |json: &str, expected: BadPartitionKeyDefinition| {
        assert_eq!(PartitionKeyDefinition::from_json(json), Err(expected), "{json}");
    };
    let path = |path: &str, problem| Path { path: path.to_owned(), problem };
    check(r#"{"paths":["pk"]}"#, path("pk", BadPartitionKeyPath::NoLeadingSlash));
    check(r#"{"paths":["/pk/"]}"#, path("/pk/", BadPartitionKeyPath::EmptySegment));
    check(r#"{"paths":[]}"#, NotOnePath { kind: PartitionKeyKind::Hash, paths: 0 });
    check(
        r#"{"paths":["/a","/b"],"kind":"Range"}"#,
        NotOnePath { kind: PartitionKeyKind::Range, paths: 2 },
    );
    check(r#"{"paths":[],"kind":"MultiHash","version":2}"#, LevelCount { paths: 0 });
    check(
        r#"{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}"#,
        LevelCount { paths: 4 },
    );
    check(
        r#"{"paths":["/a","/b","/\"a\""],"kind":"MultiHash","version":2}"#,
        DuplicatePath("/\"a\"".parse().unwrap()),
    );
    check(r#"{"paths":["/a"],"kind":"hash"}"#, UnknownKind("hash".to_owned()));
    check(r#"{"paths":["/a"],"version":0}"#, UnknownVersion(0));
    check(r#"{"paths":["/a"],"version":3}"#, UnknownVersion(3));
    check(r#"{"paths":["/a"],"kind":"MultiHash"}"#, MultiHashVersion);
    check(r#"{"paths":["/a","/b"],"kind":"MultiHash","version":1}"#, MultiHashVersion);
    for json in ["", "[]", "{}", r#"{"paths":"/a"}"#, r#"{"paths":["/a"],"version":"2"}"#] {
        assert!(matches!(PartitionKeyDefinition::from_json(json), Err(NotJson(_))), "{json}");
    }
    let error = serde_json::from_str::<PartitionKeyDefinition>(r#"{"paths":["/a"],"version":3}"#);
    assert!(error.unwrap_err().to_string().contains("version 3 does not exist"));
}

#[test]
fn keys_that_do_not_fit() {
    use PartitionKeyError::*;
    let check = |definition: PartitionKeyDefinition, key: PartitionKey, expected| {
        assert_eq!(definition.epk(&key), Err(expected), "{key}");
    };
    check(hash(), PartitionKey::empty(), ComponentCount { expected: 1, actual: 0 });
    check(hash(), ["a", "b"].into(), ComponentCount { expected: 1, actual: 2 });
    check(hierarchy(), "a".into(), ComponentCount { expected: 3, actual: 1 });
    check(hierarchy(), PartitionKey::empty(), ComponentCount { expected: 3, actual: 0 });
    for definition in [hash(), version_1()] {
        check(definition.clone(), "a".repeat(2049).into(), ValueTooLong { index: 0, bytes: 2049 });
        check(definition.clone(), "é".repeat(1025).into(), ValueTooLong { index: 0, bytes: 2050 });
        check(definition.clone(), f64::NAN.into(), NotFinite { index: 0 });
        assert!(definition.epk(&"a".repeat(2048).into()).is_ok());
        assert!(definition.epk(&"é".repeat(1024).into()).is_ok());
    }
    let long = "a".repeat(2049);
    check(hierarchy(), ("a", "b", long).into(), ValueTooLong { index: 2, bytes: 2049 });
}

/// The empty key, a missing property and `null` are three different keys.
#[test]
fn missing_null_and_empty() {
    let system = hash().with_system_key();
    let missing = PartitionKey::from(PartitionKeyValue::Undefined);
    let keys = [PartitionKey::empty(), missing, PartitionKey::from(())];
    let epks = keys.map(|key| system.epk(&key).unwrap().to_hex());
    let missing = "11622DAA78F835834610ABE56EFF5CB5";
    let null = "378867E4430E67857ACE5C908374FE16";
    assert_eq!(epks, ["", missing, null]);
    assert_eq!(system.prefix_range(&PartitionKey::empty()), Ok(KeyRange::point(&Epk::min())));
}

#[test]
fn prefixes() {
    let epk = |key: PartitionKey| hierarchy().epk(&key).unwrap();
    let range = |key: PartitionKey| hierarchy().prefix_range(&key);
    let (tenant, user, session) = ("tenant1", "user1", "session1");

    let of_tenant = range(tenant.into()).unwrap();
    let prefix = "0DAE0B8467B011E957BC0B8B0DEB5ACA";
    assert_eq!(of_tenant.to_string(), format!("{prefix}..{prefix}FF"));
    let of_user = range((tenant, user).into()).unwrap();
    let full = epk((tenant, user, session).into());
    assert!(of_tenant.contains_range(&of_user));
    assert!(of_user.contains(full.as_bytes()));
    assert!(!of_user.contains(epk((tenant, "user2", session).into()).as_bytes()));
    assert_eq!(range((tenant, user, session).into()), Ok(KeyRange::point(&full)));

    let refused = |actual| Err(PartitionKeyError::PrefixLength { max: 3, actual });
    assert_eq!(range(PartitionKey::empty()), refused(0));
    assert_eq!(range(["a", "b", "c", "d"].into()), refused(4));
    let long = PartitionKeyError::ValueTooLong { index: 0, bytes: 2049 };
    assert_eq!(range("a".repeat(2049).into()), Err(long));
    assert_eq!(
        hash().prefix_range(&"a".into()),
        hash().epk(&"a".into()).map(|e| KeyRange::point(&e))
    );
}

#[track_caller]
fn check_boundaries(definition: &PartitionKeyDefinition, partitions: u32, expected: &[&str]) {
    let ranges = definition.default_ranges(partitions);
    let boundaries: Vec<_> = ranges[1..].iter().map(|range| range.min().to_hex()).collect();
    assert_eq!(boundaries, expected, "{partitions} partitions");
}

#[test]
fn default_boundaries() {
    for definition in [hash(), hierarchy()] {
        check_boundaries(&definition, 0, &[]);
        check_boundaries(&definition, 1, &[]);
        check_boundaries(&definition, 2, &["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"]);
        check_boundaries(
            &definition,
            3,
            &["15555555555555555555555555555555", "2AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"],
        );
        check_boundaries(
            &definition,
            4,
            &[
                "0FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
                "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFE",
                "2FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFD",
            ],
        );
    }
    check_boundaries(&version_1(), 1, &[]);
    // 2^31 - 1, 2^32 / 3 and 2^33 / 3 as sortable doubles.
    check_boundaries(&version_1(), 2, &["05C1DFFFFFFFFC"]);
    check_boundaries(&version_1(), 3, &["05C1D5AB55AB54", "05C1E5AB55AB54"]);
}

#[test]
fn default_ranges_cover_the_space_without_gaps() {
    for definition in [hash(), hierarchy(), version_1()] {
        for partitions in [1, 2, 3, 5, 7, 16, 100, 1000] {
            let ranges = definition.default_ranges(partitions);
            assert_eq!(ranges.len(), partitions as usize);
            assert_eq!(ranges[0].min(), &Epk::min());
            assert_eq!(ranges[ranges.len() - 1].max(), &Epk::max());
            assert!(ranges.windows(2).all(|pair| pair[0].max() == pair[1].min()));
        }
    }
}

/// The reason for the boundaries: dividing `00..FF` would put all keys into a quarter of the ranges
/// in version 2, and into one in version 1.
#[test]
fn default_ranges_share_the_keys_evenly() {
    const KEYS: usize = 16_000;
    let kinds = [
        (hash(), PartitionKeyVersion::V2),
        (hierarchy(), PartitionKeyVersion::V2),
        (version_1(), PartitionKeyVersion::V1),
    ];
    for (definition, version) in kinds {
        assert_eq!(definition.version, version);
        let ranges = definition.default_ranges(16);
        let mut counts = [0; 16];
        for number in 0..KEYS {
            let name = format!("customer-{number}");
            let key = vec![PartitionKeyValue::from(name); definition.paths.len()];
            let epk = definition.epk(&PartitionKey::from_values(key)).unwrap();
            let owner = ranges.iter().position(|range| range.contains(epk.as_bytes())).unwrap();
            counts[owner] += 1;
        }
        let fair = KEYS / 16;
        let even = counts.iter().all(|count| (fair * 8 / 10..fair * 12 / 10).contains(count));
        assert!(even, "{:?} {version:?}: {counts:?}", definition.kind);
    }
}
