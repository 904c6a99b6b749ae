//! Property tests: every value survives a round trip, and no input makes a parser panic.
//!
//! Parser inputs are random bytes, and random bytes in the form of valid input, since purely random bytes rarely
//! pass the first check.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use headwater_model::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn partition_key_value() -> impl Strategy<Value = PartitionKeyValue> {
    prop_oneof![
        Just(PartitionKeyValue::Undefined),
        Just(PartitionKeyValue::Null),
        any::<bool>().prop_map(PartitionKeyValue::from),
        any::<i64>().prop_map(PartitionKeyValue::from),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(PartitionKeyValue::from),
        any::<String>().prop_map(PartitionKeyValue::from),
        "[\\x00-\\x02a]{0,6}".prop_map(PartitionKeyValue::from),
        "[a-z]{90,110}".prop_map(PartitionKeyValue::from),
    ]
}

fn partition_key() -> impl Strategy<Value = PartitionKey> {
    vec(partition_key_value(), 0..=8).prop_map(PartitionKey::from_values)
}

fn epk() -> impl Strategy<Value = Epk> + Clone {
    vec(any::<u8>(), 0..40).prop_map(|bytes| Epk::from_bytes(&bytes))
}

/// Short keys from few byte values, so that equal and adjacent keys occur.
fn small_epk() -> impl Strategy<Value = Epk> + Clone {
    vec(0u8..3, 0..3).prop_map(|bytes| Epk::from_bytes(&bytes))
}

fn key_range(key: impl Strategy<Value = Epk> + Clone) -> impl Strategy<Value = KeyRange> {
    (key.clone(), key).prop_filter_map("not empty", |(a, b)| {
        let (min, max) = if a < b { (a, b) } else { (b, a) };
        KeyRange::new(min, max).ok()
    })
}

fn lsn() -> impl Strategy<Value = Lsn> {
    (0..u64::MAX).prop_map(Lsn::new)
}

fn container_rid() -> impl Strategy<Value = ContainerRid> {
    (any::<u32>(), 0u32..1 << 31).prop_map(|(db, number)| ContainerRid::new(db, number))
}

fn continuation() -> impl Strategy<Value = Continuation> {
    let composite = (container_rid(), vec((epk(), lsn()), 2..20)).prop_filter_map(
        "some ranges",
        |(container, mut bounds)| {
            bounds.sort();
            bounds.dedup_by(|one, other| one.0 == other.0);
            let positions = bounds.windows(2).enumerate().filter(|(index, _)| index % 4 != 3);
            let positions = positions.map(|(_, pair)| RangePosition {
                range: KeyRange::new(pair[0].0.clone(), pair[1].0.clone()).unwrap(),
                after: pair[0].1,
            });
            Continuation::composite(container, positions.collect()).ok()
        },
    );
    prop_oneof![lsn().prop_map(Continuation::Single), composite]
}

fn resource_id() -> impl Strategy<Value = ResourceId> {
    let kind = proptest::sample::select(vec![
        ResourceKind::Document,
        ResourceKind::Conflict,
        ResourceKind::PartitionKeyRange,
        ResourceKind::Udf,
        ResourceKind::Trigger,
        ResourceKind::Sproc,
    ]);
    // There is no user 0: the id space of its permissions holds client encryption keys.
    let user = (any::<u32>(), 1u32..1 << 31).prop_map(|(db, number)| UserRid::new(db, number));
    let number = 0u64..1 << 60;
    let item = (container_rid(), number.clone()).prop_map(|(c, n)| ItemRid::new(c, n));
    prop_oneof![
        (0u32..1 << 24).prop_map(|n| ResourceId::Offer(OfferRid::new(n))),
        any::<u32>().prop_map(|n| ResourceId::Database(DatabaseRid::new(n))),
        user.clone().prop_map(ResourceId::User),
        container_rid().prop_map(ResourceId::Container),
        (user, any::<u64>()).prop_map(|(u, n)| ResourceId::Permission(PermissionRid::new(u, n))),
        (any::<u32>(), any::<u32>()).prop_map(|(db, n)| {
            ResourceId::ClientEncryptionKey(ClientEncryptionKeyRid::new(DatabaseRid::new(db), n))
        }),
        (container_rid(), kind, number)
            .prop_map(|(c, k, n)| ResourceId::Resource(ResourceRid::new(c, k, n))),
        (item, any::<u32>()).prop_map(|(i, n)| ResourceId::Attachment(AttachmentRid::new(i, n))),
    ]
}

fn encoded(key: &PartitionKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode_into(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn partition_keys_come_back_from_text(key in partition_key()) {
        let text = key.to_json();
        prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{}", text);
        if text.len() <= 8 * 1024 {
            prop_assert_eq!(PartitionKey::parse(&text).unwrap(), key);
        }
    }

    #[test]
    fn partition_keys_come_back_from_bytes(key in partition_key(), more in vec(any::<u8>(), 0..9)) {
        let mut bytes = encoded(&key);
        prop_assert_eq!(PartitionKey::decode(&bytes).unwrap(), key.clone());
        let length = bytes.len();
        bytes.extend(more);
        prop_assert_eq!(PartitionKey::decode_prefix(&bytes).unwrap(), (key, length));
    }

    #[test]
    fn partition_key_bytes_sort_like_the_keys(one in partition_key(), other in partition_key()) {
        prop_assert_eq!(encoded(&one).cmp(&encoded(&other)), one.cmp(&other));
    }

    #[test]
    fn every_key_has_a_place_in_exactly_one_range(
        values in vec(partition_key_value(), 3),
        partitions in 1u32..50,
    ) {
        let version_1 = PartitionKeyDefinition::from_json(r#"{"paths":["/a"]}"#).unwrap();
        let hash = PartitionKeyDefinition::hash("/a").unwrap();
        let hierarchy = PartitionKeyDefinition::multi_hash(&["/a", "/b", "/c"]).unwrap();
        for definition in [version_1, hash, hierarchy] {
            let key = PartitionKey::from_values(values[..definition.paths.len()].to_vec());
            let epk = definition.epk(&key).unwrap();
            let ranges = definition.default_ranges(partitions);
            let owners = ranges.iter().filter(|range| range.contains(epk.as_bytes())).count();
            prop_assert_eq!(owners, 1);
            for length in 1..definition.paths.len() {
                let prefix = PartitionKey::from_values(values[..length].to_vec());
                let range = definition.prefix_range(&prefix).unwrap();
                prop_assert!(range.contains(epk.as_bytes()));
            }
        }
    }

    #[test]
    fn epks_come_back(key in epk()) {
        prop_assert_eq!(Epk::from_hex(&key.to_hex()).unwrap(), key.clone());
        prop_assert_eq!(Epk::from_hex(&key.to_hex().to_lowercase()).unwrap(), key);
    }

    #[test]
    fn epks_sort_like_their_hex(one in small_epk(), other in small_epk()) {
        prop_assert_eq!(one.cmp(&other), one.to_hex().cmp(&other.to_hex()));
    }

    #[test]
    fn range_operations_agree_with_membership(
        one in key_range(small_epk()),
        other in key_range(small_epk()),
        key in small_epk(),
    ) {
        let (in_one, in_other) = (one.contains(key.as_bytes()), other.contains(key.as_bytes()));
        let in_both = one.intersect(&other).is_some_and(|common| common.contains(key.as_bytes()));
        prop_assert_eq!(in_both, in_one && in_other);
        prop_assert_eq!(one.overlaps(&other), one.intersect(&other).is_some());
        prop_assert_eq!(one.contains_range(&other), one.intersect(&other) == Some(other.clone()));
        if let Ok(merged) = one.merge(&other) {
            prop_assert!(!one.overlaps(&other));
            prop_assert_eq!(merged.contains(key.as_bytes()), in_one || in_other);
        }
        if let Ok((lower, upper)) = one.split_at(&key) {
            prop_assert_eq!(lower.merge(&upper), Ok(one.clone()));
            prop_assert!(upper.contains(key.as_bytes()) && !lower.contains(key.as_bytes()));
        }
        prop_assert_eq!(KeyRange::point(&key).contains(key.as_bytes()), true);
        prop_assert_eq!(one.overlaps(&KeyRange::point(&key)), in_one);
    }

    #[test]
    fn ranges_come_back_from_json(range in key_range(epk())) {
        let json = serde_json::to_string(&range).unwrap();
        prop_assert_eq!(serde_json::from_str::<KeyRange>(&json).unwrap(), range);
    }

    #[test]
    fn resource_ids_come_back(rid in resource_id()) {
        let text = rid.to_string();
        prop_assert_eq!(ResourceId::parse(&text).unwrap(), rid);
        prop_assert_eq!(ResourceId::from_bytes(rid.to_bytes().as_ref()).unwrap(), rid);
        let json = serde_json::to_string(&rid).unwrap();
        prop_assert_eq!(serde_json::from_str::<ResourceId>(&json).unwrap(), rid);
    }

    #[test]
    fn etags_come_back_and_differ(a in any::<(u32, u64, u16)>(), b in any::<(u32, u64, u16)>()) {
        let etag = |(p, l, o)| Etag::new(PartitionId::new(p), Lsn::new(l), o);
        let (one, other) = (etag(a), etag(b));
        prop_assert_eq!(one.to_string().parse::<Etag>().unwrap(), one);
        prop_assert!(one.matches(&one.to_string()));
        prop_assert_eq!(one.matches(&other.to_string()), a == b);
    }

    #[test]
    fn timestamps_come_back(seconds in 0u64..253_402_300_800) {
        let moment = Timestamp::from_seconds(seconds);
        prop_assert_eq!(Timestamp::from_rfc1123(&moment.to_rfc1123()).unwrap(), moment);
    }

    #[test]
    fn later_timestamps_read_later(a in 0u64..253_402_300_800_000, b in 0u64..253_402_300_800_000) {
        let (one, other) = (Timestamp::from_millis(a), Timestamp::from_millis(b));
        prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
    }

    #[test]
    fn continuations_come_back(continuation in continuation()) {
        let text = continuation.to_string();
        prop_assert!(text.is_ascii() && text.starts_with('"') && text.ends_with('"'));
        prop_assert_eq!(text.parse::<Continuation>().unwrap(), continuation);
    }

    #[test]
    fn positions_never_skip_what_was_not_read(
        bounds in vec((small_epk(), 0u64..5), 2..6),
        asked in key_range(small_epk()),
        key in small_epk(),
    ) {
        let mut bounds = bounds;
        bounds.sort();
        bounds.dedup_by(|one, other| one.0 == other.0);
        prop_assume!(bounds.len() > 1);
        let positions: Vec<_> = bounds.windows(2).map(|pair| RangePosition {
            range: KeyRange::new(pair[0].0.clone(), pair[1].0.clone()).unwrap(),
            after: Lsn::new(pair[0].1),
        }).collect();
        let read_to = positions.iter().find(|p| p.range.contains(key.as_bytes())).map(|p| p.after);
        let continuation = Continuation::composite(ContainerRid::new(1, 1), positions).unwrap();
        if let Some(position) = continuation.position_for(&asked)
            && asked.contains(key.as_bytes())
        {
            prop_assert!(read_to.is_some_and(|after| position <= after));
        }
    }
}

/// Passes one text to every text parser.
fn read_text(text: &str) {
    let _ = text.parse::<Lsn>();
    let _ = text.parse::<PartitionId>();
    let _ = text.parse::<Etag>();
    let _ = text.parse::<Continuation>();
    let _ = Epk::from_hex(text);
    let _ = PartitionKey::parse(text);
    let _ = PartitionKeyValue::from_property_json(text);
    let _ = PartitionKeyPath::parse(text);
    let _ = PartitionKeyDefinition::from_json(text);
    let _ = PartitionKeyDefinition::hash(text);
    let _ = serde_json::from_str::<KeyRange>(text);
    let _ = ResourceId::parse(text);
    let _ = ItemRid::parse(text);
    let _ = ContainerRid::parse(text);
    let _ = DatabaseId::new(text);
    let _ = ContainerId::new(text);
    let _ = ItemId::new(text);
    let _ = Timestamp::from_rfc1123(text);
    let _ = Etag::new(PartitionId::new(1), Lsn::FIRST, 0).matches(text);
}

/// Passes bytes to every decoder. Accepted bytes must encode to the same bytes again.
fn read_bytes(bytes: &[u8]) {
    if let Ok((key, length)) = PartitionKey::decode_prefix(bytes) {
        assert_eq!(encoded(&key), bytes[..length]);
    }
    if let Ok(rid) = ResourceId::from_bytes(bytes) {
        assert_eq!(rid.to_bytes().as_ref(), bytes);
    }
    let _ = PartitionKey::decode(bytes);
    let _ = ItemRid::from_bytes(bytes);
    let _ = PartitionRangeRid::from_bytes(bytes);
    let _ = ContainerRid::from_bytes(bytes);
    let _ = PermissionRid::from_bytes(bytes);
    let _ = AttachmentRid::from_bytes(bytes);
    let _ = murmur3::x86_32(bytes, 0);
    let _ = murmur3::x64_128(bytes, 0);
}

/// Changes one character of a valid text.
fn damaged(text: String) -> impl Strategy<Value = String> {
    (any::<proptest::sample::Index>(), any::<char>(), Just(text)).prop_map(|(index, new, text)| {
        let mut characters: Vec<char> = text.chars().collect();
        let index = index.index(characters.len());
        characters[index] = new;
        characters.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn noise_never_panics(text in any::<String>()) {
        read_text(&text);
    }

    #[test]
    fn shaped_noise_never_panics(
        text in r#"["\[{]?[-0-9A-Za-z+/=_., :"\\{}\[\]é😀]{0,40}["\]}]?"#,
    ) {
        read_text(&text);
    }

    #[test]
    fn dates_of_noise_never_panic(
        text in "(Mon|Tue|Sat), [0-9]{1,2} (Jan|Feb|Dec) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
    ) {
        read_text(&text);
    }

    #[test]
    fn damaged_continuations_never_panic(
        text in continuation().prop_flat_map(|continuation| damaged(continuation.to_string())),
    ) {
        read_text(&text);
    }

    #[test]
    fn damaged_partition_keys_never_panic(
        text in partition_key().prop_flat_map(|key| damaged(key.to_json())),
    ) {
        read_text(&text);
    }

    #[test]
    fn bytes_never_panic(bytes in vec(any::<u8>(), 0..64)) {
        read_bytes(&bytes);
    }

    #[test]
    fn resource_bytes_never_panic(bytes in vec(any::<u8>(), 16)) {
        read_bytes(&bytes);
    }

    /// Mostly bytes with a meaning in an encoded key.
    #[test]
    fn partition_key_bytes_never_panic(
        bytes in vec(prop_oneof![8 => 0u8..10, 1 => Just(0xFF), 1 => any::<u8>()], 0..40),
    ) {
        read_bytes(&bytes);
    }
}
