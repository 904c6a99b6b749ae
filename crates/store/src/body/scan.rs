//! The public face of a scan: from untrusted bytes to a checked body with its landmarks.
//!
//! A `Scanned` can only come from here, so whoever holds one holds bytes that are an item. It
//! borrows the body and remembers offsets into it; it never holds a copy of a value.

use std::borrow::Cow;

use super::error::BodyError;
use super::grammar::{Found, Region, Scanner};
use super::span::{ValueKind, ValueSpan};
use super::wanted::Wanted;
use super::words::{BODY_BYTES_MAX, Offset};

/// How many bytes of system properties a body may bring beyond the size limit. They are dropped on
/// write; without this, an item of the full size could be read but not written back.
const SYSTEM_BYTES_MAX: usize = 1024;

/// What a body may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of an item as the user sends it, system properties not counted. No body can exceed
    /// 4 GiB, whatever this says.
    pub item_bytes_max: usize,
    /// How deep objects and arrays nest, the item itself being the first level. A byte, because
    /// each level takes stack.
    pub nesting_max: u8,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { item_bytes_max: 2_097_152, nesting_max: 128 }
    }
}

/// What an item says about its time to live. Which of these are allowed is for the caller to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// There is no `ttl`.
    Absent,
    /// It is `null`.
    Null,
    /// It is a whole number, however written: `10`, `10.0` and `1e1` are the same number.
    Integer(i64),
    /// It is anything else.
    Other,
}

/// A body that has been checked, and where its landmarks are.
#[derive(Clone, Debug)]
pub struct Scanned<'b> {
    body: &'b [u8],
    object: ValueSpan,
    found: Found,
}

/// Checks a body by every rule and finds its `id`, its `ttl`, the wanted values and the system
/// properties, in one pass.
pub fn scan<'b>(body: &'b [u8], wanted: &Wanted) -> Result<Scanned<'b>, BodyError> {
    let limits = wanted.limits();
    check_size(body.len(), limits, SYSTEM_BYTES_MAX)?;
    let nesting_max = usize::from(limits.nesting_max);
    let object = ValueSpan { kind: ValueKind::Object, start: 0, end: 0 };
    let mut scanned = Scanned { body, object, found: Found::nothing(wanted.paths()) };
    scanned.object = Scanner::new(body, Some(wanted), nesting_max, &mut scanned.found)
        .item()
        .map_err(|fault| fault.explain(body, nesting_max))?;
    // Each with its comma.
    let system_bytes: Offset =
        scanned.system().iter().map(|region| region.end - region.start + 1).sum();
    check_size(body.len() - system_bytes as usize, limits, 0)?;
    Ok(scanned)
}

/// Checks that untrusted bytes are a JSON object within the default limits. What its properties are
/// called and hold is not looked at: `{"id":1}` passes.
pub fn validate(body: &[u8]) -> Result<(), BodyError> {
    validate_object(body, Limits::default())
}

/// `validate` within other limits.
pub(super) fn validate_object(body: &[u8], limits: Limits) -> Result<(), BodyError> {
    check_size(body.len(), limits, 0)?;
    let nesting_max = usize::from(limits.nesting_max);
    match Scanner::new(body, None, nesting_max, &mut Found::nothing(0)).item() {
        Ok(_) => Ok(()),
        Err(fault) => Err(fault.explain(body, nesting_max)),
    }
}

/// Checks that untrusted bytes are one JSON value of any kind; returns where it stands, without the
/// whitespace around it.
pub fn validate_value(text: &[u8], limits: Limits) -> Result<ValueSpan, BodyError> {
    check_size(text.len(), limits, 0)?;
    let nesting_max = usize::from(limits.nesting_max);
    Scanner::new(text, None, nesting_max, &mut Found::nothing(0))
        .any_value()
        .map_err(|fault| fault.explain(text, nesting_max))
}

fn check_size(bytes: usize, limits: Limits, allowance: usize) -> Result<(), BodyError> {
    let limit = limits.item_bytes_max.min(BODY_BYTES_MAX - SYSTEM_BYTES_MAX);
    if bytes > limit + allowance { Err(BodyError::TooLarge { bytes, limit }) } else { Ok(()) }
}

impl<'b> Scanned<'b> {
    /// The bytes that were scanned.
    #[must_use]
    pub fn body(&self) -> &'b [u8] {
        self.body
    }

    /// The `id`, unescaped; `None` if the body has none.
    #[must_use]
    pub fn id(&self) -> Option<Cow<'b, str>> {
        self.found.id?.as_str(self.body)
    }

    /// Where the `id` stands.
    #[must_use]
    pub fn id_span(&self) -> Option<ValueSpan> {
        self.found.id
    }

    /// What the top-level `ttl` says.
    #[must_use]
    pub fn ttl(&self) -> Ttl {
        let Some(span) = self.found.ttl else {
            return Ttl::Absent;
        };
        match span.kind {
            ValueKind::Null => Ttl::Null,
            ValueKind::Number => whole_number(self.body, span).map_or(Ttl::Other, Ttl::Integer),
            _ => Ttl::Other,
        }
    }

    /// The value at the wanted path of this index; `None` if the body has nothing there.
    #[must_use]
    pub fn value(&self, path: usize) -> Option<ValueSpan> {
        self.values().get(path).copied().flatten()
    }

    /// One entry per wanted path, in the order the paths were given.
    #[must_use]
    pub fn values(&self) -> &[Option<ValueSpan>] {
        self.found.values.as_slice()
    }

    /// Whether the body brought system properties, which will be dropped.
    #[must_use]
    pub fn has_system_properties(&self) -> bool {
        !self.system().is_empty()
    }

    /// The top-level object, without the whitespace around it.
    pub(super) fn object(&self) -> ValueSpan {
        self.object
    }

    pub(super) fn system(&self) -> &[Region] {
        self.found.system.as_slice()
    }
}

fn whole_number(body: &[u8], span: ValueSpan) -> Option<i64> {
    let text = std::str::from_utf8(span.text(body)).ok()?;
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    // Up to 2^53 a double holds whole numbers exactly; through text, because `as` would round
    // anything else silently.
    let number: f64 = text.parse().ok()?;
    if number.abs() > 9_007_199_254_740_992.0 {
        return None;
    }
    format!("{number}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(body: impl AsRef<[u8]>, expected: BodyError) {
        let body = body.as_ref();
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!(scan(body, &Wanted::default()).err(), Some(expected), "{shown}");
    }

    /// `body` is malformed at its first `⌁`, which stands for nothing.
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
        malformed(
            "\u{feff}⌁{}".trim_start_matches('\u{feff}').replace("{}", "\u{feff}{}").as_str(),
            "expected a value",
        );
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
        malformed(r#"{"a":[1⌁ 2]}"#.replace("⌁ ", " ⌁").as_str(), "closing bracket");
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
        malformed("{\u{a0}}".replace('\u{a0}', "⌁\u{a0}").as_str(), "property name");
        malformed("{\u{b}}".replace('\u{b}', "⌁\u{b}").as_str(), "property name");
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
        for bytes in
            [&b"\xff"[..], b"\xc3", b"\xe2\x82", b"\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
        {
            let mut body = b"{\"a\":\"x".to_vec();
            body.extend_from_slice(bytes);
            body.extend_from_slice(b"\"}");
            refused(&body, BodyError::NotUtf8 { at });
        }
        refused(b"{\"\xc3(\":1}", BodyError::NotUtf8 { at: 2 });
        for string in [
            r"\ud800",
            r"\udc00",
            r"\ud800\ud800",
            r"\ud800x",
            r"\ud800\n",
            r"\uDFFF",
            r"\ud83d\u0041",
        ] {
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
            if levels % 2 == 0 { format!("{open}{close}") } else { format!("{open}{{}}{close}") }
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
        let wanted =
            Wanted::default().with_limits(Limits { item_bytes_max: 20, ..Limits::default() });
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
        assert_eq!(
            (full.len(), scan(full.as_bytes(), &Wanted::default()).is_ok()),
            (2_097_152, true)
        );
        refused(full + " ", BodyError::TooLarge { bytes: 2_097_153, limit: 2_097_152 });
    }

    #[test]
    fn the_id_is_a_string_if_it_is_there() {
        let id = |body: &'static str| {
            scan(body.as_bytes(), &Wanted::default()).map(|scanned| scanned.id())
        };
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
            assert_eq!(
                scan(body.as_bytes(), &Wanted::default()).unwrap().ttl(),
                expected,
                "{body}"
            );
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
        let body =
            r#" {"a":"s","b":{"x":1,"c":[2,{"c":3}]},"id":"i","_ts":4,"d":[{"0":1}],"c":5} "#;
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
}
