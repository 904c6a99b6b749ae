//! Tests of each operation: the bytes it changes and the requests it rejects.

use super::*;
use crate::body::ValueKind;

const KEY: [[&str; 2]; 1] = [["key", "zip"]];

fn run(item: &str, request: &str) -> Result<String, PatchError> {
    let parsed = Patch::parse(request.as_bytes())?;
    patch(item.as_bytes(), &parsed, &KEY).map(|bytes| String::from_utf8(bytes).unwrap())
}

/// Applies operations, given without the brackets of the list.
#[track_caller]
fn check(item: &str, operations: &str, expected: &str) {
    assert_eq!(run(item, &format!("[{operations}]")).as_deref(), Ok(expected), "{operations}");
}

/// Applies operations and asserts that they are rejected on `path`.
#[track_caller]
fn refused(item: &str, operations: &str, path: &str, problem: OperationProblem) {
    match run(item, &format!("[{operations}]")) {
        Err(PatchError::Operation { path: found, problem: given, .. }) => {
            assert_eq!((found.to_string().as_str(), given), (path, problem), "{operations}");
        }
        other => panic!("{operations} on {item}: {other:?}"),
    }
}

fn out_of_range(length: usize) -> OperationProblem {
    OperationProblem::IndexOutOfRange { length }
}

#[test]
fn add() {
    let op = |path: &str, value: &str| format!(r#"{{"op":"add","path":"{path}","value":{value}}}"#);
    check("{}", &op("/a", "1"), r#"{"a":1}"#);
    check("{ }", &op("/a", "1"), r#"{"a":1 }"#);
    check(r#"{"x": 1.0 }"#, &op("/a", "1"), r#"{"x": 1.0,"a":1 }"#);
    check(r#"{"a" : 1.0, "b":2}"#, &op("/a", r#"{"c":[]}"#), r#"{"a" : {"c":[]}, "b":2}"#);
    check(r#"{"a":{"b":{}}}"#, &op("/a/b/c", "null"), r#"{"a":{"b":{"c":null}}}"#);
    check(r#"{"a":[1, 2]}"#, &op("/a/0", "0"), r#"{"a":[0,1, 2]}"#);
    check(r#"{"a":[1, 2]}"#, &op("/a/1", "0"), r#"{"a":[1, 0,2]}"#);
    check(r#"{"a":[1, 2 ]}"#, &op("/a/2", "0"), r#"{"a":[1, 2,0 ]}"#);
    check(r#"{"a":[1]}"#, &op("/a/-", "0"), r#"{"a":[1,0]}"#);
    check(r#"{"a":[ ]}"#, &op("/a/-", "0"), r#"{"a":[0 ]}"#);
    check(r#"{"a":[[1],{"b":[]}]}"#, &op("/a/1/b/0", "0"), r#"{"a":[[1],{"b":[0]}]}"#);
    check(r#"{}"#, &op("/~0x~1\\\"\\n", "1"), r#"{"~x/\"\n":1}"#);
    check(r#"{"\u0061":1}"#, &op("/a", "2"), r#"{"\u0061":2}"#);
    check(r#"{"0":1}"#, &op("/0", "2"), r#"{"0":2}"#);
    check(r#"{}"#, &op("/a", " [ 1.0 , 2e5 ] "), r#"{"a":[ 1.0 , 2e5 ]}"#);
    check(r#"{}"#, &op("/", "1"), r#"{"":1}"#);
    check(r#"{"-":1}"#, &op("/-", "2"), r#"{"-":2}"#);

    refused("{}", &op("/a/b", "1"), "/a/b", OperationProblem::PathNotFound);
    refused(r#"{"a":1}"#, &op("/a/b", "1"), "/a/b", OperationProblem::PathNotFound);
    refused(r#"{"a":[1]}"#, &op("/a/2", "0"), "/a/2", out_of_range(1));
    refused(
        r#"{"a":[1]}"#,
        &op("/a/99999999999999999999", "0"),
        "/a/99999999999999999999",
        not_an_index("99999999999999999999"),
    );
    refused(r#"{"a":[1]}"#, &op("/a/1/b", "0"), "/a/1/b", out_of_range(1));
    refused(r#"{"a":[1]}"#, &op("/a/-/b", "0"), "/a/-/b", out_of_range(1));
    for segment in ["01", "x", "", "-1", "+1", "1e0", " 1", "٣"] {
        let path = format!("/a/{segment}");
        refused(r#"{"a":[1]}"#, &op(&path, "0"), &path, not_an_index(segment));
    }
}

fn not_an_index(segment: &str) -> OperationProblem {
    OperationProblem::NotAnIndex { segment: segment.to_owned() }
}

#[test]
fn set() {
    let op = |path: &str, value: &str| format!(r#"{{"op":"set","path":"{path}","value":{value}}}"#);
    check("{}", &op("/a", "1"), r#"{"a":1}"#);
    check(r#"{"a":{"b":1.0}}"#, &op("/a/b", "2"), r#"{"a":{"b":2}}"#);
    check(r#"{"a":[1, 2]}"#, &op("/a/0", "0"), r#"{"a":[0, 2]}"#);
    check(r#"{"a":[1, 2]}"#, &op("/a/1", "0"), r#"{"a":[1, 0]}"#);
    check(r#"{"a":[1, 2]}"#, &op("/a/2", "0"), r#"{"a":[1, 2,0]}"#);
    check(r#"{"a":[]}"#, &op("/a/-", "0"), r#"{"a":[0]}"#);
    refused(r#"{"a":[1]}"#, &op("/a/2", "0"), "/a/2", out_of_range(1));
    refused("{}", &op("/a/b", "1"), "/a/b", OperationProblem::PathNotFound);
}

#[test]
fn replace() {
    let op = |path: &str| format!(r#"{{"op":"replace","path":"{path}","value":"new"}}"#);
    check(r#"{"a" : 1 , "b":2}"#, &op("/a"), r#"{"a" : "new" , "b":2}"#);
    check(r#"{"a":[1,{}]}"#, &op("/a/1"), r#"{"a":[1,"new"]}"#);
    refused(r#"{"a":1}"#, &op("/b"), "/b", OperationProblem::PathNotFound);
    refused(r#"{"a":[1]}"#, &op("/a/1"), "/a/1", out_of_range(1));
    refused(r#"{"a":[1]}"#, &op("/a/-"), "/a/-", out_of_range(1));
}

#[test]
fn remove() {
    let op = |path: &str| format!(r#"{{"op":"remove","path":"{path}"}}"#);
    check(r#"{"a":1}"#, &op("/a"), "{}");
    check(r#"{ "a":1 }"#, &op("/a"), "{  }");
    check(r#"{"a":1,"b":2,"c":3}"#, &op("/a"), r#"{"b":2,"c":3}"#);
    check(r#"{"a":1,"b":2,"c":3}"#, &op("/b"), r#"{"a":1,"c":3}"#);
    check(r#"{"a":1,"b":2,"c":3}"#, &op("/c"), r#"{"a":1,"b":2}"#);
    check("{\n  \"a\": 1,\n  \"b\": 2\n}", &op("/a"), "{\n  \"b\": 2\n}");
    check("{\n  \"a\": 1,\n  \"b\": 2\n}", &op("/b"), "{\n  \"a\": 1\n}");
    check(r#"{"a":[1 , 2 , 3]}"#, &op("/a/0"), r#"{"a":[2 , 3]}"#);
    check(r#"{"a":[1 , 2 , 3]}"#, &op("/a/1"), r#"{"a":[1 , 3]}"#);
    check(r#"{"a":[1 , 2 , 3]}"#, &op("/a/2"), r#"{"a":[1 , 2]}"#);
    check(r#"{"a":[[]]}"#, &op("/a/0"), r#"{"a":[]}"#);
    refused("{}", &op("/a"), "/a", OperationProblem::PathNotFound);
    refused(r#"{"a":[]}"#, &op("/a/0"), "/a/0", out_of_range(0));
    refused(r#"{"a":[1]}"#, &op("/a/-"), "/a/-", out_of_range(1));
}

#[test]
fn increment() {
    let op = |path: &str, by: &str| format!(r#"{{"op":"incr","path":"{path}","value":{by}}}"#);
    check(r#"{"n":1}"#, &op("/n", "2"), r#"{"n":3}"#);
    check(r#"{"n":1}"#, &op("/n", "2").replace("incr", "increment"), r#"{"n":3}"#);
    check(r#"{"n": 9007199254740993 }"#, &op("/n", "-1"), r#"{"n": 9007199254740992 }"#);
    check(r#"{"n":1.25}"#, &op("/n", "1"), r#"{"n":2.25}"#);
    check(r#"{"n":9223372036854775807}"#, &op("/n", "1"), r#"{"n":9223372036854776000}"#);
    check(r#"{"n":[1,2]}"#, &op("/n/1", "5"), r#"{"n":[1,7]}"#);
    check("{}", &op("/n", "1.50"), r#"{"n":1.50}"#);
    check(r#"{"a":{}}"#, &op("/a/n", "-3"), r#"{"a":{"n":-3}}"#);
    refused(r#"{"n":1e308}"#, &op("/n", "1e308"), "/n", OperationProblem::NotFinite);
    refused(r#"{"n":[1]}"#, &op("/n/1", "1"), "/n/1", out_of_range(1));
    refused(r#"{"n":[1]}"#, &op("/n/-", "1"), "/n/-", out_of_range(1));
    refused("{}", &op("/a/n", "1"), "/a/n", OperationProblem::PathNotFound);
    for (value, found) in [
        ("\"1\"", ValueKind::String),
        ("null", ValueKind::Null),
        ("true", ValueKind::True),
        ("{}", ValueKind::Object),
        ("[1]", ValueKind::Array),
    ] {
        let item = format!(r#"{{"n":{value}}}"#);
        refused(&item, &op("/n", "1"), "/n", OperationProblem::NotANumber { found });
    }
}

#[test]
fn move_value() {
    let op = |from: &str, path: &str| format!(r#"{{"op":"move","from":"{from}","path":"{path}"}}"#);
    check(r#"{"a": 1.0 ,"b":2}"#, &op("/a", "/c"), r#"{"b":2,"c":1.0}"#);
    check(r#"{"a":1.0,"b":2}"#, &op("/a", "/b"), r#"{"b":1.0}"#);
    check(r#"{"a":{"b":{"c":1}},"d":{}}"#, &op("/a/b", "/d/e"), r#"{"a":{},"d":{"e":{"c":1}}}"#);
    check(r#"{"a":{"b":1}}"#, &op("/a/b", "/a"), r#"{"a":1}"#);
    check(r#"{"a":[1,2,3]}"#, &op("/a/0", "/a/2"), r#"{"a":[2,3,1]}"#);
    check(r#"{"a":[1,2,3]}"#, &op("/a/2", "/a/0"), r#"{"a":[3,1,2]}"#);
    check(r#"{"a":[1,2,3]}"#, &op("/a/1", "/a/-"), r#"{"a":[1,3,2]}"#);
    check(r#"{"a":1, "b":2}"#, &op("/a", "/a"), r#"{"a":1, "b":2}"#);
    check(r#"{"a":1,"ab":{}}"#, &op("/a", "/ab/c"), r#"{"ab":{"c":1}}"#);

    let inside = |from| OperationProblem::MoveIntoSelf { from: Pointer::parse(from).unwrap() };
    refused(r#"{"a":{"b":{}}}"#, &op("/a", "/a/b"), "/a/b", inside("/a"));
    refused(r#"{"a":{"b":{}}}"#, &op("/a", "/a/b/c"), "/a/b/c", inside("/a"));
    refused("{}", &op("/a", "/b"), "/a", OperationProblem::PathNotFound);
    refused("{}", &op("/a", "/a"), "/a", OperationProblem::PathNotFound);
    refused(r#"{"a":1}"#, &op("/a", "/b/c"), "/b/c", OperationProblem::PathNotFound);
    refused(r#"{"a":[1,2]}"#, &op("/a/0", "/a/2"), "/a/2", out_of_range(1));
    refused(r#"{"a":1}"#, &op("/a", "/id"), "/id", OperationProblem::Protected);
    refused(r#"{"a":1,"_ts":2}"#, &op("/_ts", "/a"), "/_ts", OperationProblem::Protected);
}

#[test]
fn protected_paths() {
    let item = r#"{"id":"1","key":{"zip":"2","x":3},"_ts":4,"_rid":{},"_own":5}"#;
    let operations = [
        r#"{"op":"add","path":"PATH","value":1}"#,
        r#"{"op":"set","path":"PATH","value":1}"#,
        r#"{"op":"replace","path":"PATH","value":1}"#,
        r#"{"op":"remove","path":"PATH"}"#,
        r#"{"op":"incr","path":"PATH","value":1}"#,
        r#"{"op":"move","path":"PATH","from":"/_own"}"#,
    ];
    let paths = [
        "/id",
        "/id/x",
        "/key",
        "/key/zip",
        "/key/zip/x",
        "/_ts",
        "/_rid/x",
        "/_self",
        "/_etag",
        "/_attachments",
        "/_lsn",
    ];
    for operation in operations {
        for path in paths {
            refused(item, &operation.replace("PATH", path), path, OperationProblem::Protected);
        }
    }
    check(item, r#"{"op":"incr","path":"/key/x","value":1}"#, &item.replace("\"x\":3", "\"x\":4"));
    check(item, r#"{"op":"incr","path":"/_own","value":1}"#, &item.replace("5}", "6}"));
}

#[test]
fn operations_see_the_ones_before_them_and_all_count() {
    check(
        r#"{"id":"1","a":[]}"#,
        r#"{"op":"add","path":"/a/-","value":{}},{"op":"set","path":"/a/0/n","value":1},
           {"op":"incr","path":"/a/0/n","value":2},{"op":"move","from":"/a/0","path":"/b"},
           {"op":"remove","path":"/a"}"#,
        r#"{"id":"1","b":{"n":3}}"#,
    );
    let item = r#"{"id":"1","a":1}"#;
    let patch_of = Patch::new().set("/a", "2").unwrap().remove("/b").unwrap();
    let refused = patch::<[&str; 1], _>(item.as_bytes(), &patch_of, &[]).unwrap_err();
    assert!(matches!(refused, PatchError::Operation { operation: 1, .. }), "{refused}");
    assert_eq!(
        refused.to_string(),
        "operations[1] on /b: path does not exist; create it with add or set, parents first"
    );
    let patch_of = Patch::new().set("/none/child", "2").unwrap();
    let refused = patch::<[&str; 1], _>(item.as_bytes(), &patch_of, &[]).unwrap_err();
    assert!(refused.to_string().ends_with("; no path found beyond: 'none'"), "{refused}");
}

#[test]
fn requests() {
    let one = r#"{"op":"remove","path":"/a"}"#;
    let parse = |request: &str| Patch::parse(request.as_bytes());
    let plain = Patch::new().remove("/a").unwrap();
    assert_eq!(parse(&format!("[{one}]")), Ok(plain.clone()));
    assert_eq!(parse(&format!(r#" {{ "operations" : [ {one} ] }} "#)), Ok(plain.clone()));
    assert_eq!(
        parse(&format!(r#"{{"operations":[{one}],"condition":null,"x":1}}"#)),
        Ok(plain.clone())
    );
    assert_eq!(
        parse(&format!(r#"{{"condition":"from c where c.a = \"x\"","operations":[{one}]}}"#)),
        Ok(plain.when("from c where c.a = \"x\""))
    );

    let ten = [one; 10].join(",");
    assert_eq!(parse(&format!("[{ten}]")).map(|patch| patch.operations.len()), Ok(10));
    let too_many = |count| Err(PatchError::TooManyOperations { count, limit: 10 });
    assert_eq!(parse(&format!("[{ten},{one}]")), too_many(11));
    assert_eq!(parse(&format!("[{}]", vec!["0"; 100_000].join(","))), too_many(100_000));

    for request in [
        "1",
        "\"x\"",
        "{}",
        "[]",
        r#"{"operations":{}}"#,
        r#"{"operations":[]}"#,
        r#"{"operations":[],"condition":"x"}"#,
    ] {
        assert!(matches!(parse(request), Err(PatchError::Malformed { .. })), "{request}");
    }
    let bad_condition = format!(r#"{{"operations":[{one}],"condition":1}}"#);
    assert!(matches!(parse(&bad_condition), Err(PatchError::Malformed { .. })));
    for request in [
        "",
        "{",
        "[1,]",
        r#"{"operations":[],"operations":[]}"#,
        r#"[{"op":"add","path":"/a","value":{"x":1,"x":2}}]"#,
    ] {
        assert!(matches!(parse(request), Err(PatchError::NotJson(_))), "{request}");
    }
    assert!(matches!(
        parse(&"[".repeat(1_000)),
        Err(PatchError::NotJson(BodyError::TooDeep { .. }))
    ));
    assert!(matches!(parse(&" ".repeat(2_097_153)), Err(PatchError::TooLarge { .. })));
}

#[test]
fn malformed_operations() {
    for operation in [
        "1",
        "{}",
        r#"{"op":"add","value":1}"#,
        r#"{"op":"add","path":"/a"}"#,
        r#"{"op":"add","path":"a","value":1}"#,
        r#"{"op":"add","path":"","value":1}"#,
        r#"{"op":"add","path":"/~2","value":1}"#,
        r#"{"op":"add","path":1,"value":1}"#,
        r#"{"op":"ADD","path":"/a","value":1}"#,
        r#"{"op":"copy","from":"/b","path":"/a"}"#,
        r#"{"op":1,"path":"/a","value":1}"#,
        r#"{"op":"incr","path":"/a"}"#,
        r#"{"op":"incr","path":"/a","value":"1"}"#,
        r#"{"op":"move","path":"/a"}"#,
        r#"{"op":"move","path":"/a","from":"b"}"#,
    ] {
        let request = format!(r#"[{{"op":"remove","path":"/x"}},{operation}]"#);
        let parsed = Patch::parse(request.as_bytes());
        assert!(
            matches!(parsed, Err(PatchError::MalformedOperation { operation: 1, .. })),
            "{operation}: {parsed:?}"
        );
    }
}

#[test]
fn patches_built_in_rust() {
    let built = Patch::new()
        .add("/a", "1")
        .and_then(|patch| patch.set("/b", b" {\"c\":[1.0]} "))
        .and_then(|patch| patch.replace("/a", serde_json::json!("x").to_string()))
        .and_then(|patch| patch.increment("/n", 1))
        .and_then(|patch| patch.increment_by_float("/n", 0.5))
        .and_then(|patch| patch.move_value("/a", "/d"))
        .and_then(|patch| patch.remove("/n"))
        .unwrap();
    let patched = patch::<[&str; 1], _>(br#"{"id":"1"}"#, &built, &[]).unwrap();
    assert_eq!(String::from_utf8(patched).unwrap(), r#"{"id":"1","b":{"c":[1.0]},"d":"x"}"#);

    let bad_value = Patch::new().set("/a", "hello");
    assert!(matches!(
        bad_value,
        Err(PatchError::Operation { problem: OperationProblem::BadValue(_), .. })
    ));
    let bad_path = Patch::new().set("a", "1");
    assert!(matches!(bad_path, Err(PatchError::MalformedOperation { operation: 0, .. })));
    let infinite = Patch::new().increment_by_float("/a", f64::INFINITY);
    assert!(matches!(
        infinite,
        Err(PatchError::Operation { problem: OperationProblem::NotFinite, .. })
    ));
    let ten = (0..10).try_fold(Patch::new(), |patch, _| patch.remove("/a")).unwrap();
    assert_eq!(
        ten.clone().remove("/a"),
        Err(PatchError::TooManyOperations { count: 11, limit: 10 })
    );
    let mut eleven = ten;
    eleven.operations.push(eleven.operations[0].clone());
    let refused = patch::<[&str; 1], _>(b"{}", &eleven, &[]);
    assert_eq!(refused, Err(PatchError::TooManyOperations { count: 11, limit: 10 }));
}

#[test]
fn the_outcome_is_an_item() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let fits = Patch::new().set("/a", deep(127)).unwrap();
    let too_deep = Patch::new().set("/a", deep(128)).unwrap();
    let apply = |item: &str, of: &Patch| patch::<[&str; 1], _>(item.as_bytes(), of, &[]);
    assert!(apply("{}", &fits).is_ok());
    assert!(matches!(apply("{}", &too_deep), Err(PatchError::Outcome(BodyError::TooDeep { .. }))));
    // A duplicate key once made the cut for a removal end before it started.
    let twice = r#"{"a":1,"b":2,"a":3}"#;
    assert!(apply(twice, &Patch::new().remove("/a").unwrap()).is_ok());
    assert!(apply(twice, &Patch::new().remove("/b").unwrap()).is_err());
    for garbage in ["", "[1]", "{", "{\"a\":1,\"a\":2}", "\u{0}"] {
        assert!(apply(garbage, &fits).is_err(), "{garbage}");
    }
}
