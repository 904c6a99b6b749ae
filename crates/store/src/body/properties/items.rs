//! Property tests of scanning and composing against the reference parser.

use proptest::prelude::*;
use serde_json::Value;

use super::generate::{damage, damaged, object, string, value, wide_object};
use super::referee::Verdict;
use crate::body::wanted::SYSTEM;
use crate::body::*;

/// Asserts that our verdict on a body follows from that of the reference parser.
fn agrees(body: &[u8]) -> Result<(), TestCaseError> {
    let shown = String::from_utf8_lossy(body).into_owned();
    let referee = Verdict::of(body);
    let scanned = scan(body, &Wanted::default());
    let expected = referee.is_some_and(|verdict| verdict.is_item());
    prop_assert_eq!(
        scanned.is_ok(),
        expected,
        "{}: {:?}, referee {:?}",
        shown,
        scanned.err(),
        referee
    );
    if let Some(verdict) = referee {
        match scanned {
            Err(BodyError::DuplicateKey { .. }) => {
                prop_assert!(verdict.has_duplicates, "{}", shown)
            }
            Err(BodyError::NotAnObject { .. }) => prop_assert!(!verdict.is_object, "{}", shown),
            Err(BodyError::IdNotAString { .. }) => prop_assert!(verdict.has_bad_id, "{}", shown),
            Err(other) => prop_assert!(false, "{}: {} is none of our stricter rules", shown, other),
            Ok(_) => {}
        }
    }
    let valid = referee.is_some_and(|verdict| verdict.is_object && !verdict.has_duplicates);
    prop_assert_eq!(validate(body).is_ok(), valid, "{}", shown);
    let valid = referee.is_some_and(|verdict| !verdict.has_duplicates);
    prop_assert_eq!(validate_value(body, Limits::default()).is_ok(), valid, "{}", shown);
    Ok(())
}

/// The expected stored item, computed with the reference parser.
fn expected(body: &[u8], generated_id: &str, properties: &SystemProperties<'_>) -> Value {
    let mut item: Value = serde_json::from_slice(body).unwrap();
    let map = item.as_object_mut().unwrap();
    for name in SYSTEM {
        map.remove(name);
    }
    map.entry("id").or_insert_with(|| generated_id.into());
    map.insert("_rid".to_owned(), properties.rid.into());
    map.insert("_self".to_owned(), properties.self_link.into());
    map.insert("_etag".to_owned(), format!("\"{}\"", properties.etag).into());
    map.insert("_attachments".to_owned(), "attachments/".into());
    map.insert("_ts".to_owned(), properties.ts.into());
    map.insert("_lsn".to_owned(), properties.lsn.into());
    item
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn odd_but_legal_bodies_are_judged_like_the_referee_does(body in object()) {
        prop_assert!(Verdict::of(body.as_bytes()).is_some(), "the generator wrote {}", body);
        agrees(body.as_bytes())?;
    }

    #[test]
    fn any_value_is_judged_like_the_referee_does(body in value()) {
        agrees(body.as_bytes())?;
    }

    #[test]
    fn damaged_bodies_are_judged_like_the_referee_does(body in object(), damages in damage()) {
        agrees(&damaged(&body, &damages))?;
    }

    #[test]
    fn wide_objects_are_judged_like_the_referee_does(body in wide_object()) {
        agrees(body.as_bytes())?;
    }

    #[test]
    fn arbitrary_bytes_are_judged_like_the_referee_does(
        body in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        agrees(&body)?;
        let _ = get(&body, &["a", "b"]);
    }

    #[test]
    fn arbitrary_json_like_bytes_are_judged_like_the_referee_does(
        body in "[{}\\[\\]\",:\\\\ua0123.eE+ \\-tfnrsl\u{e9}\u{0}]{0,40}",
    ) {
        agrees(body.as_bytes())?;
        let wrapped = format!("{{\"a\":{body}}}");
        agrees(wrapped.as_bytes())?;
        let _ = get(body.as_bytes(), &["a", "b"]);
    }

    #[test]
    fn composing_changes_the_system_properties_and_nothing_else(
        body in object(),
        generated_id in any::<String>(),
        ts in any::<u64>(),
        lsn in any::<u64>(),
    ) {
        let Ok(scanned) = scan(body.as_bytes(), &Wanted::default()) else { return Ok(()) };
        let properties = SystemProperties { rid: "r", self_link: "s/", etag: "e-1", ts, lsn };
        let mut out = Vec::new();
        let places = compose(&scanned, &properties, Some(&generated_id), &mut out);

        let item: Value = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(&item, &expected(body.as_bytes(), &generated_id, &properties), "{}", body);
        // Beyond equal values: the user's values keep their bytes.
        for name in item.as_object().unwrap().keys() {
            if SYSTEM.contains(&name.as_str()) {
                continue;
            }
            let (before, after) = (get(body.as_bytes(), &[name]), get(&out, &[name]));
            if let Some(before) = before {
                prop_assert_eq!(after.unwrap().text(&out), before.text(body.as_bytes()));
            }
        }
        // The two forms of an item: with and without its LSN.
        let end = format!(",\"_lsn\":{lsn}}}");
        prop_assert_eq!(&out[places.lsn_at..], end.as_bytes());
        prop_assert_eq!(&out[places.etag_at..places.etag_at + 3], b"e-1");
        let mut point = out[..places.lsn_at].to_vec();
        point.push(b'}');
        prop_assert!(scan(&point, &Wanted::default()).is_ok());
        // Writing back an item that was read gives the same bytes.
        for sent_back in [&out, &point] {
            let mut again = Vec::new();
            let rescanned = scan(sent_back, &Wanted::default()).unwrap();
            let _ = compose(&rescanned, &properties, Some("another"), &mut again);
            prop_assert_eq!(&again, &out);
        }
    }

    #[test]
    fn wanted_values_are_what_the_referee_finds(body in object()) {
        let paths: &[&[&str]] =
            &[&["a"], &["b", "a"], &["a", "b", "c"], &["", ""], &["_ts"], &["longer than a word"]];
        let Ok(scanned) = scan(body.as_bytes(), &Wanted::new(paths)) else { return Ok(()) };
        let item: Value = serde_json::from_str(&body).unwrap();
        for (path, span) in paths.iter().zip(scanned.values()) {
            prop_assert_eq!(*span, get(body.as_bytes(), path), "{:?} in {}", path, body);
            let expected = path.iter().try_fold(&item, |value, name| value.as_object()?.get(*name));
            let text = span.map(|span| span.text(body.as_bytes()));
            let found: Option<Value> = text.map(|text| serde_json::from_slice(text).unwrap());
            prop_assert_eq!(found.as_ref(), expected, "{:?} in {}", path, body);
            let Some(span) = span else { continue };
            prop_assert_eq!(span.as_f64(body.as_bytes()), expected.and_then(Value::as_f64));
            let text = span.as_str(body.as_bytes());
            prop_assert_eq!(text.as_deref(), expected.and_then(Value::as_str));
        }
        let id = scanned.id();
        prop_assert_eq!(id.as_deref(), item["id"].as_str());
    }

    #[test]
    fn strings_mean_what_the_referee_says(text in string()) {
        let body = format!("{{\"id\":{text}}}");
        let scanned = scan(body.as_bytes(), &Wanted::default()).unwrap();
        let expected: String = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(scanned.id().unwrap().into_owned(), expected);
    }
}
