//! The examples of the function table are its tests.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

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
