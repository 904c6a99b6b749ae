//! `import` and `export` lose nothing, and name each failed item.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use support::{Served, fails, headwater, ok, run_with_input};

/// Values that conversions easily change: digits, quotes, line breaks, texts that look like other types.
const ITEMS: &[&str] = &[
    r#"{"id":"1","customer":"ann","n":1.50,"big":123456789012345678901234567890,"e":1E-7}"#,
    r#"{"id":"2","customer":"bo","t":"a,\"b\"\nc","empty":"","looks":"1.50","no":null,"yes":true}"#,
    r#"{"id":"3","customer":"é","deep":{"a":[1.0,{"b":"x,y"}]},"space":" x ","quote":"\"q\""}"#,
];

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn export_of_an_import_is_the_same_in_every_format() {
    let served = Served::in_memory(&["--partitions", "2"]);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let original = ITEMS.join("\n");
    std::fs::write(path("start.ndjson"), &original).unwrap();
    let container = |name: &str| format!("{}/shop/{name}", served.url);
    ok(&["import", &container("first"), &path("start.ndjson"), "--partition-key", "/customer"]);
    for extension in ["ndjson", "json", "csv"] {
        let file = path(&format!("copy.{extension}"));
        let next = container(extension);
        ok(&["export", &container("first"), &file]);
        ok(&["import", &next, &file, "--partition-key", "/customer"]);
        let back = ok(&["export", &next, "-"]);
        let (mut back, mut expected) = (sorted(&back), sorted(&original));
        if extension == "csv" {
            // A table has the same order of columns for all rows.
            back = back.iter().map(|line| by_name(line)).collect();
            expected = expected.iter().map(|line| by_name(line)).collect();
        }
        assert_eq!(back, expected, "{extension}");
    }
}

/// Returns the properties of an item sorted by name, with unchanged values.
fn by_name(line: &str) -> String {
    let parsed: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
        serde_json::from_str(line).unwrap();
    format!("{parsed:?}")
}

#[test]
fn tables_quote_what_needs_quotes() {
    let served = Served::in_memory(&[]);
    let container = format!("{}/shop/table", served.url);
    let table = "id,customer,text,number,code\n1,ann,\"a, \"\"b\"\"\nc\",1.50,007\n2,bo,,,\n";
    let arguments = ["import", &container, "-", "--format", "csv", "--partition-key", "/customer"];
    let output = run_with_input(&arguments, table);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let items = sorted(&ok(&["export", &container, "-"]));
    assert_eq!(
        items,
        [
            r#"{"id":"1","customer":"ann","text":"a, \"b\"\nc","number":1.50,"code":"007"}"#,
            r#"{"id":"2","customer":"bo"}"#
        ]
    );
}

#[test]
fn what_fails_is_shown_with_its_line_and_the_rest_is_written() {
    let served = Served::in_memory(&[]);
    let container = format!("{}/shop/orders", served.url);
    let input = "{\"id\":\"1\",\"customer\":\"a\"}\nnonsense\n{\"customer\":\"a\"}\n\
                 {\"id\":\"4\",\"customer\":[1]}\n{\"id\":7,\"customer\":\"a\"}\n\
                 {\"id\":\"6\",\"customer\":\"a\"}\n";
    let arguments = ["import", &container, "-", "--partition-key", "/customer"];
    let output = run_with_input(&arguments, input);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    for place in ["line 2: it is not a JSON object", "line 3: the item has no id", "line 5: "] {
        assert!(said.contains(place), "{place}: {said}");
    }
    assert!(said.contains("3 items written, 3 failed"), "{said}");
    assert_eq!(ok(&["export", &container, "-"]).lines().count(), 3);
}

#[test]
fn the_last_of_several_versions_wins() {
    let served = Served::in_memory(&[]);
    let container = format!("{}/shop/orders", served.url);
    let input: String = (0..500)
        .map(|n| format!("{{\"id\":\"{}\",\"customer\":\"a\",\"n\":{n}}}\n", n % 5))
        .collect();
    let arguments = ["import", &container, "-", "--partition-key", "/customer"];
    assert!(run_with_input(&arguments, &input).status.success());
    let items = sorted(&ok(&["export", &container, "-"]));
    assert_eq!(items[4], r#"{"id":"4","customer":"a","n":499}"#);
    assert_eq!(items[0], r#"{"id":"0","customer":"a","n":495}"#);
}

#[test]
fn what_cannot_be_moved_is_said_in_one_clear_line() {
    let served = Served::in_memory(&[]);
    let container = format!("{}/shop/orders", served.url);
    let import = |file: &str| fails(&["import", &container, file]);
    assert!(import("a.txt").contains("give --format"));
    assert!(import("missing.ndjson").contains("cannot read missing.ndjson"));
    let refused = run_with_input(&["import", &container, "-"], "{}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("--partition-key /path makes it"), "{said}");
    let far = "http://127.0.0.1:1/shop/orders";
    let output = headwater(&["export", far, "-"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot reach http://127.0.0.1:1"), "{said}");
}

#[test]
fn import_gives_up_when_everything_fails() {
    let served = Served::in_memory(&[]);
    let container = format!("{}/shop/orders", served.url);
    // An id is a text, so each of these is refused.
    let input: String =
        (0..5000).map(|n| format!("{{\"id\":{n},\"customer\":\"{n}\"}}\n")).collect();
    let arguments =
        ["import", &container, "-", "--partition-key", "/customer", "--max-failures", "10"];
    let output = run_with_input(&arguments, &input);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("gave up after"), "{said}");
    assert!(said.lines().count() < 60, "only some failures are shown");
}
