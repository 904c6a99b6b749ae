//! Tests of every rule for a body and of every value that a scan locates.

use super::*;

#[track_caller]
fn refused(body: impl AsRef<[u8]>, expected: BodyError) {
    let body = body.as_ref();
    let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
    assert_eq!(scan(body, &Wanted::default()).err(), Some(expected), "{shown}");
}

/// Asserts that `body`, without its `⌁`, is malformed at the place of the first `⌁`.
#[track_caller]
fn malformed(body: &str, expected: &str) {
    let at = body.find('⌁').expect("the case says where");
    let body = body.replace('⌁', "");
    match scan(body.as_bytes(), &Wanted::default()) {
        Err(BodyError::Malformed { at: found, problem }) => {
            assert_eq!(found, at, "{body}: {problem}");
            assert!(problem.contains(expected), "{body}: {problem}");
        }
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn grammar() {
    malformed("⌁x", "expected a value");
    malformed("⌁\u{feff}{}", "expected a value");
    malformed("{⌁,}", "property name");
    malformed("{⌁a:1}", "property name");
    malformed("{⌁'a':1}", "property name");
    malformed(r#"{"a":1,⌁}"#, "property name");
    malformed(r#"{"a"⌁1}"#, "colon");
    malformed(r#"{"a"⌁,1}"#, "colon");
    malformed(r#"{"a":⌁}"#, "expected a value");
    malformed(r#"{"a":⌁+1}"#, "expected a value");
    malformed(r#"{"a":⌁.5}"#, "expected a value");
    malformed(r#"{"a":⌁NaN}"#, "expected a value");
    malformed(r#"{"a":1⌁"b":2}"#, "closing brace");
    malformed(r#"{"a":0⌁1}"#, "closing brace");
    malformed(r#"{"a":1⌁]"#, "closing brace");
    malformed(r#"{"a":[⌁,]}"#, "expected a value");
    malformed(r#"{"a":[1,⌁]}"#, "expected a value");
    malformed(r#"{"a":[1 ⌁2]}"#, "closing bracket");
    malformed(r#"{"a":[1⌁}}"#, "closing bracket");
    malformed(r#"{"a":-⌁}"#, "digit");
    malformed(r#"{"a":1.⌁}"#, "digit");
    malformed(r#"{"a":1e⌁}"#, "digit");
    malformed(r#"{"a":tr⌁x}"#, "in full");
    malformed(r#"{"a":nul⌁}"#, "in full");
    malformed(r#"{"a":f⌁}"#, "in full");
    malformed(r#"{"a":"\⌁x"}"#, r"\uXXXX");
    malformed(r#"{"a":"\u12⌁g4"}"#, r"\uXXXX");
    malformed(r#"{"a\⌁q":1}"#, r"\uXXXX");
    malformed("{\"a\":\"x⌁\n\"}", "control character");
    malformed("{\"a⌁\u{0}\":1}", "control character");
    malformed("{\"a\":\"é⌁\u{1f}\"}", "control character");
    malformed("{}⌁{}", "nothing after");
    malformed("{} ⌁x", "nothing after");
    malformed("{}⌁\u{0}", "nothing after");
    malformed("{⌁\u{a0}}", "property name");
    malformed("{⌁\u{b}}", "property name");
}

#[test]
fn bodies_that_stop_short() {
    let whole = r#"{"a":[true,null,-1.5e3,"x\n😀é"],"b":{"c":{}}}"#;
    assert!(scan(whole.as_bytes(), &Wanted::default()).is_ok());
    for bytes in 0..whole.len() {
        let body = &whole.as_bytes()[..bytes];
        match scan(body, &Wanted::default()) {
            Err(BodyError::Truncated { bytes: found }) => assert_eq!(found, bytes),
            other => panic!("{}: {other:?}", String::from_utf8_lossy(body)),
        }
    }
    refused("  \n ", BodyError::Truncated { bytes: 4 });
}

#[test]
fn only_objects_are_items() {
    for (body, found) in [
        ("[]", ValueKind::Array),
        (" \"x\"", ValueKind::String),
        ("1", ValueKind::Number),
        ("null", ValueKind::Null),
        ("true", ValueKind::True),
        ("false", ValueKind::False),
    ] {
        refused(body, BodyError::NotAnObject { found });
        assert_eq!(validate(body.as_bytes()), Err(BodyError::NotAnObject { found }), "{body}");
        assert_eq!(validate_value(body.as_bytes(), Limits::default()).unwrap().kind, found);
    }
}

#[test]
fn strings_are_utf8_and_whole_characters() {
    let at = 7;
    for bytes in [&b"\xff"[..], b"\xc3", b"\xe2\x82", b"\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
    {
        let mut body = b"{\"a\":\"x".to_vec();
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\"}");
        refused(&body, BodyError::NotUtf8 { at });
    }
    refused(b"{\"\xc3(\":1}", BodyError::NotUtf8 { at: 2 });
    for string in
        [r"\ud800", r"\udc00", r"\ud800\ud800", r"\ud800x", r"\ud800\n", r"\uDFFF", r"\ud83d\u0041"]
    {
        refused(format!(r#"{{"a":"x{string}"}}"#), BodyError::LoneSurrogate { at });
    }
    for string in
        [r"\ud83d\ude00", r"\uD800\uDC00", r"\udbff\udfff", r"\ud7ff\ue000", "\u{10ffff}é"]
    {
        let body = format!(r#"{{"a":"x{string}","{string}":1}}"#);
        assert!(scan(body.as_bytes(), &Wanted::default()).is_ok(), "{body}");
    }
}

#[test]
fn keys_occur_once_in_an_object() {
    let twice = |key: &str, at| BodyError::DuplicateKey { key: key.to_owned(), at };
    refused(r#"{"a":1,"a":2}"#, twice("a", 8));
    refused(r#"{"a":1,"\u0061":2}"#, twice("a", 8));
    refused(r#"{"x":{"a":1,"b":2,"a":3}}"#, twice("a", 19));
    refused(r#"{"x":[1,{"é":1,"\u00e9":3}]}"#, twice("é", 17));
    refused(r#"{"":1,"":2}"#, twice("", 7));
    refused(r#"{"id":"a","id":"a"}"#, twice("id", 11));
    let long = "k".repeat(100);
    refused(format!(r#"{{"{long}":1,"{long}":2}}"#), twice(&long, 107));
    for body in
        [r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#, r#"{"a":[{"b":1},{"b":2}]}"#, r#"{"a":1,"A":2}"#]
    {
        assert!(scan(body.as_bytes(), &Wanted::default()).is_ok(), "{body}");
    }
}

#[test]
fn a_very_wide_object_is_not_quadratic() {
    let members: Vec<String> = (0..100_000).map(|number| format!(r#""{number}":0"#)).collect();
    let body = format!("{{{}}}", members.join(","));
    assert!(scan(body.as_bytes(), &Wanted::default()).is_ok());
    refused(
        format!("{},\"5\":0}}", &body[..body.len() - 1]),
        BodyError::DuplicateKey { key: "5".to_owned(), at: body.len() + 1 },
    );
}

#[test]
fn numbers_fit_a_double() {
    refused(r#"{"a":1e999}"#, BodyError::NotFinite { at: 5 });
    refused(r#"{"a":[0,-1e309]}"#, BodyError::NotFinite { at: 8 });
    assert!(
        scan(br#"{"a":[1e308,-0,1e-999,123456789012345678901234567890]}"#, &Wanted::default())
            .is_ok()
    );
}

#[test]
fn nesting_has_a_limit() {
    let nested = |levels: usize| {
        let (open, close) = ("{\"a\":[".repeat(levels / 2), "]}".repeat(levels / 2));
        if levels.is_multiple_of(2) {
            format!("{open}{close}")
        } else {
            format!("{open}{{}}{close}")
        }
    };
    for levels in [1, 2, 127, 128] {
        assert!(scan(nested(levels).as_bytes(), &Wanted::default()).is_ok(), "{levels} levels");
    }
    refused(nested(129), BodyError::TooDeep { at: 64 * 6, limit: 128 });
    refused(nested(100_000), BodyError::TooDeep { at: 64 * 6, limit: 128 });
    refused(
        "{\"a\":".to_owned() + &"[".repeat(1_000_000),
        BodyError::TooDeep { at: 132, limit: 128 },
    );

    let shallow = Wanted::default().with_limits(Limits { nesting_max: 2, ..Limits::default() });
    assert!(scan(nested(2).as_bytes(), &shallow).is_ok());
    assert!(matches!(
        scan(nested(3).as_bytes(), &shallow),
        Err(BodyError::TooDeep { limit: 2, .. })
    ));
    let deep = Wanted::default().with_limits(Limits { nesting_max: 255, ..Limits::default() });
    assert!(scan(nested(255).as_bytes(), &deep).is_ok());
}

#[test]
fn size_has_a_limit_which_system_properties_do_not_count_for() {
    let wanted = Wanted::default().with_limits(Limits { item_bytes_max: 20, ..Limits::default() });
    let check = |body: &str, expected: Option<usize>| {
        let expected = expected.map(|bytes| BodyError::TooLarge { bytes, limit: 20 });
        assert_eq!(scan(body.as_bytes(), &wanted).err(), expected, "{body}");
    };
    check(r#"{"id":"123456789012"}"#, Some(21));
    check(r#"{"id":"12345678901"}"#, None);
    check(r#"{"id":"1234567890","_rid":"x","_ts":1700000000}"#, None);
    check(r#"{"id":"123456789012345","_ts":1}"#, Some(24));
    check(&" ".repeat(2000), Some(2000));

    let full = format!(r#"{{"id":"{}"}}"#, "x".repeat(2_097_152 - 9));
    assert_eq!((full.len(), scan(full.as_bytes(), &Wanted::default()).is_ok()), (2_097_152, true));
    refused(full + " ", BodyError::TooLarge { bytes: 2_097_153, limit: 2_097_152 });
}

#[test]
fn the_id_is_a_string_if_it_is_there() {
    let id =
        |body: &'static str| scan(body.as_bytes(), &Wanted::default()).map(|scanned| scanned.id());
    assert_eq!(id("{}"), Ok(None));
    assert_eq!(id(r#"{"a":{"id":1}}"#), Ok(None));
    assert_eq!(id(r#"{"id":""}"#), Ok(Some("".into())));
    assert_eq!(id(r#"{"a":1, "id" : "x y" }"#), Ok(Some("x y".into())));
    assert_eq!(id(r#"{"\u0069d":"\u00e9\"\\"}"#), Ok(Some("é\"\\".into())));
    assert!(matches!(id(r#"{"id":"plain"}"#), Ok(Some(Cow::Borrowed("plain")))));
    for (value, found) in
        [("1", ValueKind::Number), ("null", ValueKind::Null), ("[]", ValueKind::Array)]
    {
        refused(format!(r#"{{"id":{value}}}"#), BodyError::IdNotAString { found });
    }
}

#[test]
fn ttl_is_classified() {
    for (body, expected) in [
        ("{}", Ttl::Absent),
        (r#"{"a":{"ttl":1}}"#, Ttl::Absent),
        (r#"{"ttl":null}"#, Ttl::Null),
        (r#"{"ttl":10}"#, Ttl::Integer(10)),
        (r#"{"ttl":-1}"#, Ttl::Integer(-1)),
        (r#"{"ttl":0}"#, Ttl::Integer(0)),
        (r#"{"ttl":10.0}"#, Ttl::Integer(10)),
        (r#"{"ttl":1e1}"#, Ttl::Integer(10)),
        (r#"{"ttl":-0.0}"#, Ttl::Integer(0)),
        (r#"{"ttl":9223372036854775807}"#, Ttl::Integer(i64::MAX)),
        (r#"{"ttl":9223372036854775808}"#, Ttl::Other),
        (r#"{"ttl":1.5}"#, Ttl::Other),
        (r#"{"ttl":1e300}"#, Ttl::Other),
        (r#"{"ttl":"10"}"#, Ttl::Other),
        (r#"{"ttl":true}"#, Ttl::Other),
        (r#"{"ttl":[]}"#, Ttl::Other),
        (r#"{"\u0074tl":5}"#, Ttl::Integer(5)),
    ] {
        assert_eq!(scan(body.as_bytes(), &Wanted::default()).unwrap().ttl(), expected, "{body}");
    }
}

#[test]
fn wanted_values_come_back_in_the_order_they_were_asked_for() {
    let paths: &[&[&str]] = &[
        &["b", "c"],
        &["a"],
        &["b"],
        &["b", "c"],
        &["x"],
        &["a", "y"],
        &["id"],
        &["_ts"],
        &[],
        &["d", "0"],
    ];
    let wanted = Wanted::new(paths);
    let body = r#" {"a":"s","b":{"x":1,"c":[2,{"c":3}]},"id":"i","_ts":4,"d":[{"0":1}],"c":5} "#;
    let scanned = scan(body.as_bytes(), &wanted).unwrap();
    let texts: Vec<Option<&str>> = scanned
        .values()
        .iter()
        .map(|span| span.map(|span| std::str::from_utf8(span.text(body.as_bytes())).unwrap()))
        .collect();
    let list = Some(r#"[2,{"c":3}]"#);
    let object = Some(r#"{"x":1,"c":[2,{"c":3}]}"#);
    let expected = [
        list,
        Some("\"s\""),
        object,
        list,
        None,
        None,
        Some("\"i\""),
        Some("4"),
        Some(body.trim()),
        None,
    ];
    assert_eq!(texts, expected);
    assert_eq!(scanned.value(0).map(|span| span.kind), Some(ValueKind::Array));
    assert_eq!((scanned.value(4), scanned.value(99)), (None, None));
    assert!(scanned.has_system_properties());
}
