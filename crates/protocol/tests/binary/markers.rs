//! One case per marker of the format, with its text or the error that refuses it.

use crate::values::{ROOM, hex};
use headwater_protocol::binary::{BinaryError, Limits, decode, encode, is_binary};

/// Decodes `body`, given without its preamble.
fn text_of(body: &str) -> Result<String, BinaryError> {
    let mut bytes = vec![0x80];
    bytes.extend(hex(body));
    decode(&bytes, ROOM).map(|text| String::from_utf8(text).expect("text is utf-8"))
}

#[track_caller]
fn reads(cases: &[(&str, &str)]) {
    for (body, expected) in cases {
        assert_eq!(text_of(body).as_deref(), Ok(*expected), "body {body}");
    }
}

#[track_caller]
fn refuses(cases: &[(&str, BinaryError)]) {
    for (body, expected) in cases {
        assert_eq!(text_of(body).as_ref(), Err(expected), "body {body}");
    }
}

#[test]
fn the_first_byte_tells_binary_from_text() {
    assert!(is_binary(&[0x80]));
    assert!(!is_binary(b"{}"));
    assert!(!is_binary(b""));
    assert_eq!(decode(b"{}", ROOM), Err(BinaryError::NotBinary));
    assert_eq!(decode(b"", ROOM), Err(BinaryError::NotBinary));
}

#[test]
fn words_and_numbers_of_every_width() {
    reads(&[
        ("d0", "null"),
        ("d1", "false"),
        ("d2", "true"),
        ("00", "0"),
        ("1f", "31"),
        ("c8 ff", "255"),
        ("c9 00 80", "-32768"),
        ("ca ff ff ff 7f", "2147483647"),
        ("cb 00 00 00 00 00 00 00 80", "-9223372036854775808"),
        ("c7 ff ff ff ff ff ff ff ff", "18446744073709551615"),
        ("cc 9a 99 99 99 99 99 b9 3f", "0.1"),
        ("cd 00 00 c0 3f", "1.5"),
        ("ce 00 00 00 00 00 00 02 c0", "-2.25"),
        ("d7 c8", "200"),
        ("d8 80", "-128"),
        ("d9 ff ff", "-1"),
        ("da 00 00 00 80", "-2147483648"),
        ("db ff ff ff ff ff ff ff 7f", "9223372036854775807"),
        ("dc ff ff ff ff", "4294967295"),
    ]);
}

#[test]
fn half_precision_floats_are_exact() {
    reads(&[
        ("cf 00 00", "0"),
        ("cf 00 80", "-0.0"),
        ("cf 00 3c", "1"),
        ("cf 00 be", "-1.5"),
        ("cf ff 7b", "65504"),
        ("cf 00 04", "0.00006103515625"),
        ("cf 01 00", "5.960464477539063e-8"),
        ("cf 55 35", "0.333251953125"),
    ]);
}

#[test]
fn integral_doubles_are_integers_where_digits_keep_them() {
    reads(&[
        ("cc 00 00 00 00 00 00 08 40", "3"),
        ("cc 00 00 00 00 00 00 f0 c3", "-1.8446744073709552e+19"),
        ("cc 00 00 00 00 00 00 e0 c3", "-9223372036854775808"),
        ("cc ff ff ff ff ff ff ef 43", "18446744073709549568"),
        ("cc 00 00 00 00 00 00 f0 43", "1.8446744073709552e+19"),
        ("cc 00 00 00 00 00 00 00 80", "-0.0"),
        ("cc ff ff ff ff ff ff ef 7f", "1.7976931348623157e+308"),
        ("cc 01 00 00 00 00 00 00 00", "5e-324"),
    ]);
}

#[test]
fn numbers_that_json_lacks_are_refused() {
    let not_finite = BinaryError::NotFinite { at: 1 };
    refuses(&[
        ("cc 00 00 00 00 00 00 f0 7f", not_finite.clone()),
        ("ce 00 00 00 00 00 00 f8 7f", not_finite.clone()),
        ("cd 00 00 80 ff", not_finite.clone()),
        ("cf 00 7c", not_finite.clone()),
        ("f0 cd 01 00 00 80 ff", not_finite),
    ]);
}

#[test]
fn every_system_string() {
    let table = "$s $t $v _attachments _etag _rid _self _ts attachments/ coordinates geometry \
        GeometryCollection id url Value label LineString link MultiLineString MultiPoint \
        MultiPolygon name Name Type Point Polygon properties type value Feature FeatureCollection \
        _id";
    for (marker, string) in (0x20_u8..0x40).zip(table.split_whitespace()) {
        assert_eq!(decode(&[0x80, marker], ROOM), Ok(format!("\"{string}\"").into_bytes()));
        assert_eq!(encode(format!("\"{string}\"").as_bytes()), Ok(vec![0x80, marker]));
    }
    assert_eq!(table.split_whitespace().count(), 32);
}

#[test]
fn plain_strings_of_every_length_form() {
    reads(&[
        ("80", r#""""#),
        ("82 68 69", r#""hi""#),
        ("c0 02 68 69", r#""hi""#),
        ("c1 02 00 68 69", r#""hi""#),
        ("c2 02 00 00 00 68 69", r#""hi""#),
        ("83 e2 82 ac", "\"\u{20ac}\""),
        ("89 22 5c 0a 0d 09 08 0c 1f 2f", r#""\"\\\n\r\t\b\f\u001f/""#),
    ]);
    let longest_short = format!("bf {}", "61".repeat(63));
    assert_eq!(text_of(&longest_short), Ok(format!("\"{}\"", "a".repeat(63))));
}

#[test]
fn references_repeat_an_earlier_string() {
    reads(&[
        // Preamble, array marker and length take three bytes, so the first element is at offset 3.
        ("e2 05 82 68 69 c3 03", r#"["hi","hi"]"#),
        ("e2 06 82 68 69 c4 03 00", r#"["hi","hi"]"#),
        ("e2 07 82 68 69 c5 03 00 00", r#"["hi","hi"]"#),
        ("e2 08 82 68 69 c6 03 00 00 00", r#"["hi","hi"]"#),
        ("ea 05 82 68 69 c3 03", r#"{"hi":"hi"}"#),
        ("e2 03 2c c3 03", r#"["id","id"]"#),
    ]);
    let bad = |at, target| BinaryError::BadReference { at, target };
    refuses(&[
        ("c3 00", bad(1, 0)),
        ("c3 01", bad(1, 1)),
        ("c3 ff", bad(1, 255)),
        ("c6 ff ff ff ff", bad(1, 0xFFFF_FFFF)),
        ("e2 03 00 c3 03", bad(4, 3)),
        ("e2 05 c3 05 81 61 c3", BinaryError::BadReference { at: 3, target: 5 }),
        ("e2 06 81 61 c3 03 c3 05", bad(7, 5)),
    ]);
}

#[test]
fn strings_from_a_user_dictionary_are_refused_by_name() {
    refuses(&[
        ("40", BinaryError::UserString { at: 1, id: 0 }),
        ("5f", BinaryError::UserString { at: 1, id: 31 }),
        ("60 00", BinaryError::UserString { at: 1, id: 32 }),
        ("67 ff", BinaryError::UserString { at: 1, id: 32 + 7 * 256 + 255 }),
        ("e9 41 00", BinaryError::UserString { at: 2, id: 1 }),
    ]);
}

#[test]
fn guid_strings_and_guids() {
    reads(&[
        (
            "75 00 00 84 21 00 00 20 00 00 00 a6 f7 9a a8 00 00",
            r#""00004812-0000-0200-0000-6a7fa98a0000""#,
        ),
        (
            "76 00 00 84 21 00 00 20 00 00 00 a6 f7 9a a8 00 00",
            r#""00004812-0000-0200-0000-6A7FA98A0000""#,
        ),
        (
            "77 00 00 84 21 00 00 20 00 00 00 a6 f7 9a a8 00 00",
            r#""\"00004812-0000-0200-0000-6a7fa98a0000\"""#,
        ),
        (
            "d3 33 22 11 00 55 44 77 66 88 99 aa bb cc dd ee ff",
            r#""00112233-4455-6677-8899-aabbccddeeff""#,
        ),
    ]);
}

#[test]
fn base64_strings_with_padding_kept_or_left_out() {
    reads(&[
        ("71 01 00 fb ff fe", r#""+//+""#),
        ("72 01 00 00 fb ff fe", r#""+//+""#),
        ("73 01 00 fb ff fe", r#""-__-""#),
        ("74 01 00 00 fb ff fe", r#""-__-""#),
        ("71 01 01 68 69", r#""aGk=""#),
        ("71 01 02 68", r#""aA==""#),
        ("71 01 fe 68 69", r#""aGk""#),
        ("71 01 fd 68", r#""aA""#),
        ("71 01 ff 68 69 6a", r#""aGlq""#),
        ("71 00 00", r#""""#),
    ]);
    let problem = "a base64 string has at most two characters of padding";
    refuses(&[
        ("71 00 01", BinaryError::Malformed { at: 1, problem }),
        ("71 01 03 68", BinaryError::Malformed { at: 1, problem }),
    ]);
}

#[test]
fn packed_strings() {
    reads(&[
        ("78 04 0f 2a", r#""f0a2""#),
        ("78 03 0f 0a", r#""f0a""#),
        ("79 04 0f 2a", r#""F0A2""#),
        ("7a 04 c0 fd", r#"" -.Z""#),
        ("7a 16 13 73 1c c2 32 1e b4 51 1b d6 f7", r#""2026-01-12T03:04:05.6Z""#),
        // Values 0, 1, 2, 3 above the base character.
        ("7b 04 61 10 32", r#""abcd""#),
        ("7c 04 61 20 88 01", r#""abcd""#),
        ("7d 04 41 40 20 0c", r#""ABCD""#),
        ("7e 02 e8 34", r#""hi""#),
        ("7f 02 00 e8 34", r#""hi""#),
        ("7e 08 61 f1 98 5c 36 9f d1", r#""abcdefgh""#),
        ("7e 00", r#""""#),
    ]);
    refuses(&[
        ("78 01 1f", malformed("the unused half of a packed string is not zero")),
        ("7b 01 7f 01", malformed("a packed string holds more than ascii")),
        ("7d 01 ff 3f", malformed("a packed string holds more than ascii")),
    ]);
}

fn malformed(problem: &'static str) -> BinaryError {
    BinaryError::Malformed { at: 1, problem }
}

#[test]
fn bytes_become_base64() {
    reads(&[
        ("dd 02 68 69", r#""aGk=""#),
        ("de 02 00 68 69", r#""aGk=""#),
        ("df 02 00 00 00 68 69", r#""aGk=""#),
    ]);
}

#[test]
fn arrays_and_objects_of_every_form() {
    reads(&[
        ("e0", "[]"),
        ("e1 d2", "[true]"),
        ("e2 02 01 02", "[1,2]"),
        ("e3 02 00 01 02", "[1,2]"),
        ("e4 02 00 00 00 01 02", "[1,2]"),
        ("e5 02 02 01 02", "[1,2]"),
        ("e6 02 00 02 00 01 02", "[1,2]"),
        ("e7 02 00 00 00 02 00 00 00 01 02", "[1,2]"),
        ("e2 00", "[]"),
        ("e8", "{}"),
        ("e9 2c 01", r#"{"id":1}"#),
        ("ea 05 2c 01 81 62 02", r#"{"id":1,"b":2}"#),
        ("eb 05 00 2c 01 81 62 02", r#"{"id":1,"b":2}"#),
        ("ec 05 00 00 00 2c 01 81 62 02", r#"{"id":1,"b":2}"#),
        ("ed 05 02 2c 01 81 62 02", r#"{"id":1,"b":2}"#),
        ("ee 05 00 02 00 2c 01 81 62 02", r#"{"id":1,"b":2}"#),
        ("ef 05 00 00 00 02 00 00 00 2c 01 81 62 02", r#"{"id":1,"b":2}"#),
        ("e1 e9 2c e1 e0", r#"[{"id":[[]]}]"#),
        ("e2 06 e1 e1 00 e8 e0 d0", "[[[0]],{},[],null]"),
    ]);
}

#[test]
fn containers_that_contradict_themselves_are_refused() {
    let count = "the count differs from the number of elements";
    let past = "an element runs past the end of its container";
    let around = "a container runs past the end of the one around it";
    refuses(&[
        ("e5 02 03 01 02", malformed(count)),
        ("e5 02 01 01 02", malformed(count)),
        ("e5 00 01", malformed(count)),
        ("e2 01 c9 01 00", malformed(past)),
        ("e2 03 e2 02 01 02", BinaryError::Malformed { at: 3, problem: around }),
        ("e2 05 01", BinaryError::Truncated { at: 1 }),
        ("ea 01 2c 01", malformed(past)),
        ("e9 00 01", BinaryError::BadMarker { marker: 0x00, at: 2 }),
        ("e9 d3 01", BinaryError::BadMarker { marker: 0xD3, at: 2 }),
        ("e1", BinaryError::Truncated { at: 2 }),
        ("e0 00", BinaryError::Trailing { at: 2, bytes: 1 }),
        ("", BinaryError::Truncated { at: 1 }),
    ]);
}

#[test]
fn uniform_arrays() {
    reads(&[
        ("f0 d7 02 01 ff", "[1,255]"),
        ("f0 d8 02 01 ff", "[1,-1]"),
        ("f0 d9 01 00 80", "[-32768]"),
        ("f0 da 01 01 00 00 00", "[1]"),
        ("f0 db 01 01 00 00 00 00 00 00 00", "[1]"),
        ("f0 dc 01 ff ff ff ff", "[4294967295]"),
        ("f0 cd 01 00 00 c0 3f", "[1.5]"),
        ("f0 ce 01 00 00 00 00 00 00 02 c0", "[-2.25]"),
        ("f0 cf 01 00 3c", "[1]"),
        ("f0 d7 00", "[]"),
        ("f1 d7 02 00 01 ff", "[1,255]"),
        ("f2 f0 d7 02 02 01 02 03 04", "[[1,2],[3,4]]"),
        ("f3 f1 d7 02 00 01 00 01 02", "[[1,2]]"),
        ("f2 f0 d7 00 03", "[[],[],[]]"),
    ]);
    refuses(&[
        ("f0 d0 01 00", BinaryError::BadMarker { marker: 0xD0, at: 1 }),
        ("f0 c8 01 00", BinaryError::BadMarker { marker: 0xC8, at: 1 }),
        ("f2 f1 d7 00 01", BinaryError::BadMarker { marker: 0xF1, at: 1 }),
        ("f3 f0 d7 00 00 01 00", BinaryError::BadMarker { marker: 0xF0, at: 1 }),
        ("f0 da 02 01 00 00 00", BinaryError::Truncated { at: 1 }),
    ]);
}

#[test]
fn bytes_without_a_meaning_are_refused() {
    let undefined = (0x68..=0x70).chain(0xD4..=0xD6).chain(0xF4..=0xFF);
    for marker in undefined {
        let body = [0x80, marker, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(decode(&body, ROOM), Err(BinaryError::BadMarker { marker, at: 1 }));
    }
}

#[test]
fn strings_that_are_not_utf8_are_refused() {
    let not_utf8 = BinaryError::NotUtf8 { at: 1 };
    refuses(&[("81 ff", not_utf8.clone()), ("c0 02 c3 28", not_utf8)]);
}

#[test]
fn every_value_with_a_payload_can_be_cut_short() {
    let whole = [
        "82 68 69",
        "c0 02 68 69",
        "c1 02 00 68 69",
        "c2 02 00 00 00 68 69",
        "c8 01",
        "c9 01 00",
        "ca 01 00 00 00",
        "cb 01 00 00 00 00 00 00 00",
        "cc 01 00 00 00 00 00 00 00",
        "cd 01 00 00 00",
        "cf 01 00",
        "71 01 00 68 69 6a",
        "78 04 00 00",
        "7b 04 61 10 32",
        "7f 02 00 e8 34",
        "dd 02 68 69",
        "e1 00",
        "e2 01 00",
        "e5 01 01 00",
        "e9 2c 00",
        "f0 d7 01 00",
        "f2 f0 d7 01 01 00",
        "75 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    ];
    for body in whole.map(hex) {
        let whole: Vec<u8> = [0x80].into_iter().chain(body).collect();
        decode(&whole, ROOM).expect("the whole value is fine");
        for length in 1..whole.len() {
            let cut = decode(&whole[..length], ROOM);
            assert!(matches!(cut, Err(BinaryError::Truncated { .. })), "{whole:02x?} to {length}");
        }
    }
}

#[test]
fn encoding_takes_the_narrowest_plain_form() {
    let cases = [
        ("null", "80 d0"),
        ("false", "80 d1"),
        (" true ", "80 d2"),
        ("0", "80 00"),
        ("31", "80 1f"),
        ("32", "80 c8 20"),
        ("256", "80 c9 00 01"),
        ("-1", "80 c9 ff ff"),
        ("-32769", "80 ca ff 7f ff ff"),
        ("2147483648", "80 cb 00 00 00 80 00 00 00 00"),
        ("18446744073709551615", "80 c7 ff ff ff ff ff ff ff ff"),
        ("1.0", "80 cc 00 00 00 00 00 00 f0 3f"),
        ("1e300", "80 cc 9c 75 00 88 3c e4 37 7e"),
        ("-0", "80 cc 00 00 00 00 00 00 00 80"),
        (r#""""#, "80 80"),
        (r#""\u0041\n""#, "80 82 41 0a"),
        (r#""id""#, "80 2c"),
        ("[]", "80 e0"),
        ("[[]]", "80 e1 e0"),
        ("{}", "80 e8"),
        (r#"{"id":{}}"#, "80 e9 2c e8"),
        ("[1,[2,3],[[4]]]", "80 e5 09 03 01 e5 02 02 02 03 e1 e1 04"),
        (r#"{"id":"a","n":[1,300]}"#, "80 ed 0c 02 2c 81 61 81 6e e5 04 02 01 c9 2c 01"),
        (r#"{"b":1,"a":2,"b":3}"#, "80 ed 09 03 81 62 01 81 61 02 81 62 03"),
    ];
    for (text, expected) in cases {
        assert_eq!(encode(text.as_bytes()), Ok(hex(expected)), "text {text}");
    }
}

#[test]
fn lengths_move_to_a_wider_form_when_they_must() {
    // The number 1 takes one byte, 99 takes two.
    let starts = [
        ("1", 255, "e5 ff ff"),
        ("1", 256, "e6 00 01 00 01"),
        ("1", 65_535, "e6 ff ff ff ff"),
        ("1", 65_536, "e7 00 00 01 00 00 00 01 00"),
        ("99", 127, "e5 fe 7f"),
        ("99", 128, "e6 00 01 80 00"),
        ("99", 32_768, "e7 00 00 01 00 00 80 00 00"),
    ];
    for (element, count, header) in starts {
        let text = format!("[{}]", vec![element; count].join(","));
        let body = encode(text.as_bytes()).unwrap();
        assert!(
            body[1..].starts_with(&hex(header)),
            "{count} times {element}: {:02x?}",
            &body[..9]
        );
        // Inside another array, whose own length includes the header.
        let around = format!("[{text},{{\"a\":{text},\"b\":0}}]");
        let body = encode(around.as_bytes()).unwrap();
        assert_eq!(decode(&body, ROOM), Ok(around.into_bytes()), "{count} times {element}");
    }
}

#[test]
fn text_that_is_not_json_is_refused_with_its_place() {
    for text in
        ["", "{", "[1,]", "nul", "1 2", r#"{"a" 1}"#, "{1:2}", r#""\ud800""#, "\"\u{1}\"", "1e999"]
    {
        let refused = encode(text.as_bytes());
        assert!(matches!(refused, Err(BinaryError::BadText { .. })), "{text}: {refused:?}");
    }
    assert_eq!(encode(b"[1,\n 2,]"), Err(BinaryError::BadText { line: 2, column: 4 }));
}

#[test]
fn limits_of_text_are_exact() {
    for (body, text) in [("82 68 69", r#""hi""#), ("c9 2c 01", "300"), ("e9 2c 01", r#"{"id":1}"#)]
    {
        let body: Vec<u8> = [0x80].into_iter().chain(hex(body)).collect();
        let enough = Limits::of_text_bytes(text.len());
        assert_eq!(decode(&body, enough), Ok(text.as_bytes().to_vec()));
        let limit = text.len() - 1;
        let refused = decode(&body, Limits::of_text_bytes(limit));
        assert_eq!(refused, Err(BinaryError::TooLarge { limit }));
    }
}
