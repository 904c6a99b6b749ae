//! Property tests of patching against the reference model.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::generate::{damage, damaged, object};
use super::model::{self, Refusal};
use crate::body::*;

/// Small items with few names, so that most paths exist.
fn item() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "-3",
        "1.5",
        "0.25",
        "9223372036854775807",
        "1e308",
        "\"s\"",
        "null",
        "true",
        "1.50e1",
        "\"\\u00e9,]}\"",
    ])
    .prop_map(String::from);
    let nested = leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|elements| format!("[ {} ]", elements.join(" , "))),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{\"a\":{a},\"b\" : {b}}}")),
            inner.prop_map(|a| format!("{{ \"\\u0061\":{a} }}")),
            Just("{}".to_owned()),
        ]
    });
    (nested.clone(), nested.clone(), nested).prop_map(|(a, b, c)| {
        format!("{{\"id\":\"1\",\n \"a\": {a} ,\"b\":{b},\"c~/\":{c}, \"_ts\":7}}")
    })
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        12 => prop::sample::select(vec!["a", "b", "0", "1", "c~0~1"]),
        4 => prop::sample::select(vec!["2", "3", "-", "x"]),
        1 => prop::sample::select(vec!["id", "_ts", "01", ""]),
    ];
    vec(segment, 1..4).prop_map(|segments| format!("/{}", segments.join("/")))
}

fn operation() -> impl Strategy<Value = String> {
    let json =
        prop::sample::select(vec!["7", "[1, 2]", "{\"a\":{\"b\":[]}}", "\"new\"", "null", "2.50"]);
    let by = prop::sample::select(vec!["1", "-2", "0.5", "9223372036854775807", "1e308", "0"]);
    prop_oneof![
        (prop::sample::select(vec!["add", "set", "replace"]), path(), json).prop_map(
            |(op, path, value)| { format!(r#"{{"op":"{op}","path":"{path}","value":{value}}}"#) }
        ),
        path().prop_map(|path| format!(r#"{{"op":"remove","path":"{path}"}}"#)),
        (path(), by)
            .prop_map(|(path, by)| format!(r#"{{"op":"incr","path":"{path}","value":{by}}}"#)),
        (path(), path())
            .prop_map(|(from, path)| format!(r#"{{"op":"move","from":"{from}","path":"{path}"}}"#)),
    ]
}

/// Whether two values are equal apart from the notation of numbers: `2` equals `2.0`.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, value)| other.get(name).is_some_and(|found| same(value, found)))
        }
        _ => one == other,
    }
}

fn apply(item: &[u8], of: &Patch) -> Result<Vec<u8>, PatchError> {
    patch::<[&str; 1], _>(item, of, &[])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn one_operation_does_what_the_model_does(item in item(), operation in operation()) {
        agrees_with_model(&item, &[operation])?;
    }

    #[test]
    fn several_operations_do_what_the_model_does(
        item in item(),
        operations in vec(operation(), 2..6),
    ) {
        agrees_with_model(&item, &operations)?;
    }

    #[test]
    fn patching_bytes_that_are_no_item_does_not_panic(
        item in object(),
        damages in damage(),
        operations in vec(operation(), 1..4),
    ) {
        let parsed = Patch::parse(format!("[{}]", operations.join(",")).as_bytes()).unwrap();
        if let Ok(patched) = apply(&damaged(&item, &damages), &parsed) {
            prop_assert!(validate(&patched).is_ok());
        }
    }

    #[test]
    fn damaged_requests_do_not_panic(operations in vec(operation(), 0..4), damages in damage()) {
        let list = operations.join(",");
        let request = format!(r#"{{"operations":[{list}],"condition":"from c"}}"#);
        let _ = Patch::parse(&damaged(&request, &damages));
    }
}

fn agrees_with_model(item: &str, operations: &[String]) -> Result<(), TestCaseError> {
    let parsed = Patch::parse(format!("[{}]", operations.join(",")).as_bytes()).unwrap();
    let mut tree: Value = serde_json::from_str(item).unwrap();
    let mut refused = None;
    for (index, operation) in parsed.operations.iter().enumerate() {
        if let Err(refusal) = model::apply(&mut tree, operation) {
            refused = Some((index, refusal));
            break;
        }
    }
    match (apply(item.as_bytes(), &parsed), refused) {
        (Ok(patched), None) => {
            let found: Value = serde_json::from_slice(&patched).unwrap();
            prop_assert!(
                same(&found, &tree),
                "{:?} on {}: {} but {}",
                operations,
                item,
                found,
                tree
            );
            untouched_bytes_stay(item, &patched, &parsed)?;
        }
        (Err(PatchError::Operation { operation, problem, .. }), Some(expected)) => {
            prop_assert_eq!(
                (operation, Refusal::of(&problem)),
                expected,
                "{:?} on {}",
                operations,
                item
            );
        }
        (found, expected) => {
            prop_assert!(false, "{:?} on {}: {:?} but {:?}", operations, item, found, expected);
        }
    }
    Ok(())
}

/// Asserts that top-level properties no operation touches keep their bytes.
fn untouched_bytes_stay(item: &str, patched: &[u8], of: &Patch) -> Result<(), TestCaseError> {
    for name in ["id", "a", "b", "c~/", "_ts"] {
        let touched = of.operations.iter().any(|operation| {
            let from = match operation {
                Operation::Move { from, .. } => from.segments().next(),
                _ => None,
            };
            operation.path().segments().next() == Some(name) || from == Some(name)
        });
        if !touched {
            let before = get(item.as_bytes(), &[name]).unwrap().text(item.as_bytes());
            prop_assert_eq!(get(patched, &[name]).unwrap().text(patched), before, "{}", name);
        }
    }
    Ok(())
}
