//! The examples of the function table are its tests.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use headwater_query::{Query, functions};

#[test]
fn every_example_of_the_function_table_holds() {
    let item = common::families();
    let mut wrong = Vec::new();
    for function in functions() {
        for (expression, expected) in function.examples {
            let query = format!("SELECT VALUE [{expression}]");
            let got = common::run(&item, &query);
            let expected = if *expected == "undefined" {
                "[[]]".to_owned()
            } else {
                format!("[[{expected}]]")
            };
            if got.as_deref() != Ok(&expected) {
                wrong.push(format!("{expression}\n   expected {expected}\n   got      {got:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} examples are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_function_is_explained_and_shown() {
    let mut names = std::collections::HashSet::new();
    for function in functions() {
        let name = function.name;
        assert!(names.insert(name.to_ascii_uppercase()), "{name} stands twice");
        assert!(!function.meaning.is_empty(), "{name} has no meaning");
        assert!(function.arguments.starts_with('('), "{name}{}", function.arguments);
        assert!(!function.examples.is_empty() || !function.is_supported(), "{name}: no example");
        for (expression, _) in function.examples {
            let upper = expression.to_ascii_uppercase();
            assert!(upper.contains(&name.to_ascii_uppercase()), "{name}: {expression}");
        }
    }
    assert!(names.len() >= 130, "only {} functions", names.len());
}

#[test]
fn functions_that_are_not_here_yet_say_so() {
    for function in functions().filter(|function| !function.is_supported()) {
        let arguments = ["c.a", "c.b", "c.c"].join(", ");
        let query = format!("SELECT VALUE {}({arguments}) FROM c", function.name);
        let error = Query::parse(&query, &[]).unwrap_err();
        assert!(error.to_string().contains("not supported yet"), "{error}");
    }
}

/// The functions in the documentation of the language, by its sections.
const DOCUMENTED: &[&str] = &[
    // Aggregates
    "AVG COUNT COUNTIF MAKELIST MAKESET MAX MIN SUM",
    // Arrays
    "ARRAY_AVG ARRAY_CONCAT ARRAY_CONTAINS ARRAY_CONTAINS_ALL ARRAY_CONTAINS_ANY ARRAY_LENGTH ARRAY_MAX",
    "ARRAY_MEDIAN ARRAY_MIN ARRAY_SLICE ARRAY_SUM CHOOSE OBJECTTOARRAY SETDIFFERENCE SETEQUAL",
    "SETINTERSECT SETUNION",
    // Conditions and items
    "IIF DOCUMENTID",
    // Dates and times
    "AGO DATETIMEADD DATETIMEBIN DATETIMEDIFF DATETIMEFORMAT DATETIMEFROMPARTS DATETIMEPART",
    "DATETIMETOTICKS DATETIMETOTIMESTAMP DAY GETCURRENTDATETIME GETCURRENTDATETIMESTATIC",
    "GETCURRENTTICKS GETCURRENTTICKSSTATIC GETCURRENTTIMESTAMP GETCURRENTTIMESTAMPSTATIC MONTH NOW",
    "TICKSTODATETIME TIMESTAMPTODATETIME YEAR",
    // Mathematics
    "ABS ACOS ASIN ATAN ATN2 CEILING COS COT DEGREES EXP FLOOR INTADD INTBITAND INTBITLEFTSHIFT",
    "INTBITNOT INTBITOR INTBITRIGHTSHIFT INTBITXOR INTDIV INTMOD INTMUL INTSUB LOG LOG10 NUMBERBIN PI",
    "POWER RADIANS RAND ROUND SIGN SIN SQRT SQUARE TAN TRUNC",
    // Space
    "ST_AREA ST_DISTANCE ST_INTERSECTS ST_ISVALID ST_ISVALIDDETAILED ST_WITHIN",
    // Strings
    "CONCAT CONTAINS CONTAINS_ALL_CI CONTAINS_ALL_CS CONTAINS_ANY_CI CONTAINS_ANY_CS ENDSWITH INDEX_OF",
    "LASTINDEXOF LEFT LENGTH LOWER LTRIM REGEXMATCH REPLACE REPLICATE REVERSE RIGHT RTRIM STARTSWITH",
    "STRINGEQUALS STRINGJOIN STRINGSPLIT STRINGTOARRAY STRINGTOBOOLEAN STRINGTONULL STRINGTONUMBER",
    "STRINGTOOBJECT SUBSTRING TOSTRING TRIM UPPER",
    // Types
    "IS_ARRAY IS_BOOL IS_DEFINED IS_FINITE_NUMBER IS_INTEGER IS_NULL IS_NUMBER IS_OBJECT",
    "IS_PRIMITIVE IS_STRING",
];

/// Documented functions that are not supported.
const DOCUMENTED_AND_LATER: &str =
    "FULLTEXTCONTAINS FULLTEXTCONTAINSALL FULLTEXTCONTAINSANY FULLTEXTSCORE RRF VECTORDISTANCE";

#[test]
fn every_documented_function_is_there() {
    let has = |wanted: &str, is_supported: bool| {
        let mut named = functions().filter(|one| one.name.eq_ignore_ascii_case(wanted));
        named.any(|one| one.is_supported() == is_supported)
    };
    for name in DOCUMENTED.iter().flat_map(|names| names.split(' ')) {
        assert!(has(name, true), "{name} is missing");
    }
    for name in DOCUMENTED_AND_LATER.split(' ') {
        assert!(has(name, false), "{name} is not refused");
    }
}
