//! Table entries of the aggregates; `evaluate/aggregate.rs` computes them.

use super::{AggregateKind, Body, Function};

macro_rules! aggregate {
    ($name:literal, $arguments:literal, $kind:ident, $meaning:literal, $examples:expr) => {
        Function {
            name: $name,
            arguments: $arguments,
            meaning: $meaning,
            count: (1, 1),
            body: Body::Aggregate(AggregateKind::$kind),
            examples: $examples,
        }
    };
}

pub(super) const TABLE: &[Function] = &[
    aggregate!(
        "AVG",
        "(number)",
        Average,
        "The mean of all numbers; undefined if there are none or one value is not a number",
        &[
            ("(SELECT VALUE AVG(x) FROM x IN (SELECT VALUE [1, 2, 6]))", "3"),
            ("(SELECT VALUE AVG(x) FROM x IN (SELECT VALUE [1, \"2\"]))", "undefined"),
            ("(SELECT VALUE AVG(x) FROM x IN (SELECT VALUE []))", "undefined"),
        ]
    ),
    aggregate!(
        "COUNT",
        "(value)",
        Count,
        "The number of defined values",
        &[
            ("(SELECT VALUE COUNT(1) FROM x IN (SELECT VALUE [1, 2, 6]))", "3"),
            ("(SELECT VALUE COUNT(x.a) FROM x IN (SELECT VALUE [{a: 1}, {b: 1}, {a: null}]))", "2"),
            ("(SELECT VALUE COUNT(1) FROM x IN (SELECT VALUE []))", "0"),
        ]
    ),
    aggregate!(
        "COUNTIF",
        "(boolean)",
        CountIf,
        "The number of true values",
        &[("(SELECT VALUE COUNTIF(x > 1) FROM x IN (SELECT VALUE [1, 2, 6, \"a\"]))", "2")]
    ),
    aggregate!(
        "MAKELIST",
        "(value)",
        MakeList,
        "All values in one array",
        &[("(SELECT VALUE MAKELIST(x.a) FROM x IN (SELECT VALUE [{a: 1}, {}, {a: 1}]))", "[1,1]")]
    ),
    aggregate!(
        "MAKESET",
        "(value)",
        MakeSet,
        "All values in one array, equal ones once",
        &[("(SELECT VALUE MAKESET(x) FROM x IN (SELECT VALUE [1, 2, 1.0]))", "[1,2]")]
    ),
    aggregate!(
        "MAX",
        "(value)",
        Max,
        "The greatest value in the order of ORDER BY; undefined if one is an array or object",
        &[
            ("(SELECT VALUE MAX(x) FROM x IN (SELECT VALUE [1, 6, 2]))", "6"),
            ("(SELECT VALUE MAX(x) FROM x IN (SELECT VALUE [1, \"a\", null]))", "\"a\""),
            ("(SELECT VALUE MAX(x) FROM x IN (SELECT VALUE [1, {}]))", "undefined"),
        ]
    ),
    aggregate!(
        "MIN",
        "(value)",
        Min,
        "The least value in the order of ORDER BY; undefined if one is an array or object",
        &[
            ("(SELECT VALUE MIN(x) FROM x IN (SELECT VALUE [3, 1, 2]))", "1"),
            ("(SELECT VALUE MIN(x) FROM x IN (SELECT VALUE []))", "undefined"),
        ]
    ),
    aggregate!(
        "SUM",
        "(number)",
        Sum,
        "The sum of all numbers; undefined if one value is not a number",
        &[
            ("(SELECT VALUE SUM(x) FROM x IN (SELECT VALUE [1, 2, 6]))", "9"),
            ("(SELECT VALUE SUM(x) FROM x IN (SELECT VALUE [1, null]))", "undefined"),
            ("(SELECT VALUE SUM(x) FROM x IN (SELECT VALUE []))", "0"),
        ]
    ),
];
