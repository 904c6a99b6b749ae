//! Computed properties: names for expressions, used like properties of items.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use common::{families, run_with};
use headwater_query::{ComputedProperty, Query};

fn computed() -> Vec<ComputedProperty> {
    vec![
        ComputedProperty::parse("town", "SELECT VALUE LOWER(x.address.city) FROM x").unwrap(),
        ComputedProperty::parse("square", "SELECT VALUE c.n * c.n FROM c").unwrap(),
        // One cannot refer to another: this is the item's own property, which does not exist.
        ComputedProperty::parse("nested", "SELECT VALUE c.square FROM c").unwrap(),
    ]
}

#[test]
fn a_computed_property_is_used_like_any_other() {
    for (query, expected) in [
        ("SELECT VALUE c.town FROM c", r#"["seattle","ny"]"#),
        (r#"SELECT VALUE c["town"] FROM c WHERE c.square > 1"#, r#"["ny"]"#),
        ("SELECT VALUE f.square FROM f ORDER BY f.square DESC", "[9,4,1]"),
        (
            "SELECT c.square, COUNT(1) AS n FROM c WHERE c.n = 2 GROUP BY c.square",
            r#"[{"square":4,"n":1}]"#,
        ),
        ("SELECT VALUE SUM(c.square) FROM c", "[14]"),
        ("SELECT VALUE (SELECT VALUE c.square) FROM c WHERE c.n = 3", "[9]"),
        ("SELECT * FROM c WHERE c.square = 9", r#"[{"id":"miller","n":3,"tags":null}]"#),
        ("SELECT VALUE c.nested FROM c", "[]"),
        ("SELECT VALUE k.square FROM k IN c.children", "[]"),
    ] {
        assert_eq!(run_with(&families(), query, &computed()).as_deref(), Ok(expected), "{query}");
    }
}

#[test]
fn a_name_that_is_computed_says_nothing_about_what_items_hold() {
    let parse = |computed: &[ComputedProperty]| {
        let query = Query::parse_over("SELECT * FROM c WHERE c.town = 'ny'", &[], computed);
        query.unwrap().candidates(&[vec!["town"]])
    };
    assert!(parse(&[]).is_some());
    assert!(parse(&computed()).is_none(), "the items with that key are not those that match");
}

#[test]
fn a_computed_property_is_one_expression_over_one_item() {
    for query in [
        "SELECT c.n FROM c",
        "SELECT VALUE 1",
        "SELECT VALUE c.n FROM c WHERE c.n > 1",
        "SELECT DISTINCT VALUE c.n FROM c",
        "SELECT TOP 1 VALUE c.n FROM c",
        "SELECT VALUE c.n FROM c ORDER BY c.n",
        "SELECT VALUE k FROM c JOIN k IN c.children",
        "SELECT VALUE k FROM k IN c.children",
        "SELECT VALUE SUM(c.n) FROM c",
        "SELECT VALUE (SELECT VALUE 1) FROM c",
        "SELECT VALUE EXISTS(SELECT VALUE 1) FROM c",
        "SELECT VALUE udf.f(c.n) FROM c",
        "SELECT VALUE @n FROM c",
        "SELECT VALUE d.n FROM c",
        "SELECT VALUE",
    ] {
        assert!(ComputedProperty::parse("p", query).is_err(), "{query}");
    }
}
