//! Tests of header parsers, with values that clients send and with malformed ones.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

#[test]
fn names_are_lower_case_and_different() {
    let different: HashSet<_> = names::ALL.iter().collect();
    assert_eq!(different.len(), names::ALL.len());
    for name in names::ALL {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!(name.bytes().all(plain), "{name}");
    }
}

#[test]
fn yes_in_any_case() {
    for (value, expected) in [
        ("True", true),
        ("true", true),
        ("TRUE", true),
        (" true ", true),
        ("False", false),
        ("", false),
        ("1", false),
        ("truee", false),
    ] {
        assert_eq!(bool_of(value), expected, "{value}");
    }
    assert!(!flag(None));
}

#[test]
fn page_sizes() {
    for (value, expected) in [
        ("-1", Some(None)),
        ("1", Some(Some(1))),
        (" 100 ", Some(Some(100))),
        ("2147483647", Some(Some(2_147_483_647))),
        ("0", None),
        ("-2", None),
        ("+1", None),
        ("1.5", None),
        ("", None),
        ("ten", None),
        ("99999999999", None),
    ] {
        assert_eq!(max_item_count(value).ok(), expected, "{value}");
    }
}

#[test]
fn ranges_by_id_with_or_without_their_container() {
    let scope = |container, id: Option<u32>| {
        Some(PkRangeScope { container, partition: id.map(PartitionId::new) })
    };
    for (value, expected) in [
        ("3", scope(None, Some(3))),
        ("AAAAAYAAAAE=,3", scope(Some("AAAAAYAAAAE="), Some(3))),
        ("a,b,3", scope(Some("a,b"), Some(3))),
        ("x", scope(None, None)), // names no range there is: gone, not malformed
        ("4294967296", scope(None, None)),
        ("", None),
        ("AAAAAYAAAAE=,", None),
    ] {
        assert_eq!(partition_key_range_id(value).ok(), expected, "{value}");
    }
}

#[test]
fn bounds_of_effective_partition_keys() {
    let range = |min, max| {
        Ok(Some(KeyRange::new(Epk::from_hex(min).unwrap(), Epk::from_hex(max).unwrap()).unwrap()))
    };
    for (start, end, expected) in [
        (None, None, Ok(None)), // `x-ms-read-key-type` alone is no filter
        (Some("20"), Some("30"), range("20", "30")),
        (Some(""), Some("FF"), range("", "FF")),
        (Some("20"), None, range("20", "FF")),
        (None, Some("20"), range("", "20")),
        (Some("30"), Some("20"), Err(END_EPK)),
        (Some("xy"), None, Err(START_EPK)),
        (None, Some("xy"), Err(END_EPK)),
    ] {
        assert_eq!(epk_range(start, end).map_err(|bad| bad.name), expected, "{start:?} {end:?}");
    }
}

#[test]
fn consistency_levels() {
    for (value, expected) in [
        ("Strong", Some(ConsistencyLevel::Strong)),
        ("Bounded", Some(ConsistencyLevel::BoundedStaleness)),
        ("BoundedStaleness", Some(ConsistencyLevel::BoundedStaleness)),
        ("session", Some(ConsistencyLevel::Session)),
        ("ConsistentPrefix", Some(ConsistencyLevel::ConsistentPrefix)),
        ("Eventual", Some(ConsistencyLevel::Eventual)),
        ("Weak", None),
        ("", None),
    ] {
        assert_eq!(ConsistencyLevel::parse(value).ok(), expected, "{value}");
    }
    assert!(ConsistencyLevel::Strong < ConsistencyLevel::Eventual);
}

#[test]
fn preferences() {
    let prefer = |minimal, wait_seconds| Prefer { minimal, wait_seconds };
    for (value, expected) in [
        ("return=minimal", prefer(true, None)),
        ("return=representation", prefer(false, None)),
        ("Return = \"minimal\"", prefer(true, None)),
        ("respond-async, wait=10", prefer(false, Some(10))),
        ("wait=30;return=minimal", prefer(true, Some(30))),
        ("wait=-1", prefer(false, None)),
        ("wait=soon", prefer(false, None)),
        ("", prefer(false, None)),
    ] {
        assert_eq!(Prefer::parse(value), expected, "{value}");
    }
}

#[test]
fn versions_are_ordered_by_date() {
    let of = |text| ApiVersion::of(Some(text));
    assert!(of("2017-11-15") < ApiVersion::V2018_12_31);
    assert!(of("2020-07-15") > ApiVersion::V2018_12_31);
    for text in ["", "x", "2020/07/15", "2020-07-1x", "9999-99-999"] {
        assert_eq!(of(text), ApiVersion::OLDEST, "{text}");
    }
    assert_eq!(ApiVersion::of(None), ApiVersion::OLDEST);
}

#[test]
fn lists_and_ids() {
    assert_eq!(names_in(" a,b ,,c").collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(is_activity_id("0b0c0d0e-0000-4000-8000-00000000000F"));
    for text in ["", "0b0c0d0e", "0b0c0d0e-0000-4000-8000-00000000000g", &"-".repeat(36)] {
        assert!(!is_activity_id(text), "{text}");
    }
    assert_eq!(expiry_seconds("18000"), Ok(18_000));
    for text in ["9", "18001", "-1", "x", ""] {
        assert!(expiry_seconds(text).is_err(), "{text}");
    }
}

#[test]
fn refused_values_are_not_repeated_at_length() {
    let refused = max_item_count(&"é".repeat(10_000)).unwrap_err();
    assert!(refused.to_string().len() < 400);
}

proptest! {
    #[test]
    fn no_value_makes_a_parser_panic(value in "\\PC{0,60}") {
        let _ = max_item_count(&value);
        let _ = partition_key_range_id(&value);
        let _ = epk_range(Some(&value), Some(&value));
        let _ = ConsistencyLevel::parse(&value);
        let _ = Prefer::parse(&value);
        let _ = ApiVersion::of(Some(&value));
        let _ = expiry_seconds(&value);
        let _ = names_in(&value).count();
        let _ = is_activity_id(&value);
    }
}
