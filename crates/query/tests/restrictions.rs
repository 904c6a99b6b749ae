//! The restrictions of filters on single paths, as readable text.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_query::{Query, Value, index_keys};

/// The restrictions of a filter as `path:intervals`, an interval being `=` for one value and `~` for many.
fn restrictions(filter: &str) -> Vec<String> {
    let list = Value::from_json(b"[1,2]").unwrap();
    let text = format!("SELECT VALUE c FROM c JOIN t IN c.tags WHERE {filter}");
    let query = Query::parse(&text, &[("@list".to_owned(), list)]).unwrap();
    let shown = query.restrictions().into_iter().map(|one| {
        let intervals = one.intervals.iter().map(|each| if each.is_point { '=' } else { '~' });
        format!("{}:{}", one.path, intervals.collect::<String>())
    });
    shown.collect()
}

#[test]
fn filters_restrict_the_paths_they_name() {
    for (filter, expected) in [
        ("c.a = 1", vec!["/a:="]),
        ("1 = c.a", vec!["/a:="]),
        ("c.a = 1 AND c.b > 2", vec!["/a:=", "/b:~"]),
        ("c.a > 1 AND c.a < 5", vec!["/a:~"]),
        ("c.a > 5 AND c.a < 1", vec!["/a:"]),
        ("c.a = undefined", vec!["/a:"]),
        ("c.a IN (1, 2, 'x')", vec!["/a:==="]),
        ("c.a IN (1, c.b)", vec![]),
        ("c.a BETWEEN 1 AND 2", vec!["/a:~"]),
        ("c.a BETWEEN 1 AND 'x'", vec!["/a:"]),
        ("c.a NOT IN (1)", vec![]),
        ("c.a != 1", vec![]),
        ("c.a = c.b", vec![]),
        ("c.a + 1 = 2", vec![]),
        ("c.a['b c'].d = 1", vec!["/a/b c/d:="]),
        ("c.a[0] = 1", vec![]),
        ("c.a", vec!["/a:="]),
        ("STARTSWITH(c.a, 'x')", vec!["/a:~"]),
        ("STARTSWITH(c.a, 'x', false)", vec!["/a:~"]),
        ("STARTSWITH(c.a, 'x', true)", vec![]),
        ("STARTSWITH(c.a, '')", vec![]),
        ("c.a LIKE 'x%y'", vec!["/a:~"]),
        ("c.a LIKE '%y'", vec![]),
        ("ARRAY_CONTAINS(c.a, 1)", vec!["/a/[]:=="]),
        ("ARRAY_CONTAINS(c.a, {'k': 1}, true)", vec![]),
        ("ARRAY_CONTAINS(@list, c.a)", vec!["/a:=="]),
        ("t = 1", vec!["/tags/[]:=="]),
        ("t.k = 1", vec!["/tags/[]/k:=="]),
        ("EXISTS(SELECT VALUE x FROM x IN c.a WHERE x.b = 1)", vec!["/a/[]/b:=="]),
        ("EXISTS(SELECT VALUE x FROM x IN t.more WHERE x = 1)", vec!["/tags/[]/more/[]:=="]),
        ("EXISTS(SELECT VALUE COUNT(1) FROM x IN c.a WHERE x = 1)", vec![]),
        ("EXISTS(SELECT VALUE x FROM x IN c.a)", vec![]),
        ("c.a = 1 OR c.a = 2", vec!["/a:=="]),
        ("c.a = 1 OR c.b = 2", vec![]),
        ("(c.a = 1 AND c.b = 2) OR c.a = 3", vec!["/a:=="]),
        ("NOT c.a = 1", vec![]),
    ] {
        assert_eq!(restrictions(filter), expected, "{filter}");
    }
}

#[test]
fn every_item_that_matches_meets_every_restriction() {
    let values =
        ["1", "2.5", "-3", "null", "true", "false", "\"a\"", "\"ab\"", "\"\"", "[1]", "{}"];
    let filters = [
        "c.a = 1",
        "c.a > 1",
        "c.a >= 'a'",
        "c.a < 'b'",
        "c.a <= true",
        "c.a >= null",
        "c.a IN (1, 'a')",
        "c.a BETWEEN -5 AND 2",
        "STARTSWITH(c.a, 'a')",
        "c.a LIKE 'a_'",
        "c.a = [1]",
        "c.a = {}",
        "c.a",
        "ARRAY_CONTAINS(c.a, 1)",
        "c.a = 1 OR c.a = 'ab'",
        "EXISTS(SELECT VALUE x FROM x IN c.a WHERE x < 2)",
    ];
    let mut matched = 0;
    for filter in filters {
        let query = Query::parse(&format!("SELECT * FROM c WHERE {filter}"), &[]).unwrap();
        for value in values {
            let item = format!(r#"{{"a":{value}}}"#);
            let mut rows = Vec::new();
            let mut run = query.start(headwater_query::Context::default());
            run.push(item.as_bytes(), 0, &mut rows).unwrap();
            if rows.is_empty() {
                continue;
            }
            matched += 1;
            for restriction in query.restrictions() {
                let keys = index_keys(item.as_bytes(), &restriction.path);
                let meets = keys.iter().any(|key| {
                    restriction.intervals.iter().any(|one| one.from <= *key && *key < one.to)
                });
                assert!(meets, "{filter} matches {item}, which an index would not propose");
            }
        }
    }
    assert!(matched > filters.len(), "every filter matches something");
}
