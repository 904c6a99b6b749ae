//! Operators: precedence, results, and the effect of undefined.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

/// Checks an expression and its printed result; an empty result stands for undefined.
#[track_caller]
fn check(expression: &str, expected: &str) {
    common::check(&[], &format!("SELECT VALUE [{expression}]"), &format!("[[{expected}]]"));
}

#[test]
fn operators_bind_as_tightly_as_they_should() {
    let cases = [
        ("1 - 2 - 3", "-4"),
        ("1 - (2 - 3)", "2"),
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("2 * 3 + 1", "7"),
        ("8 / 4 / 2", "1"),
        ("7 % 4 * 2", "6"),
        ("-2 + 3", "1"),
        ("- -2", "2"),
        ("~1 + 1", "-1"),
        ("1 << 2 + 1", "8"),
        ("1 | 2 ^ 3 & 2", "1"),
        ("6 & 3 = 2", "true"),
        ("1 + 1 = 2", "true"),
        ("1 < 2 = true", "true"),
        ("'a' || 'b' = 'ab'", "true"),
        ("'a' || 'b' || 'c'", "\"abc\""),
        ("NOT 1 = 2", "true"),
        ("NOT true AND false", "false"),
        ("NOT (true AND false)", "true"),
        ("true OR false AND false", "true"),
        ("(true OR false) AND false", "false"),
        ("false AND true OR true", "true"),
        ("1 BETWEEN 0 AND 2 AND false", "false"),
        ("1 IN (1, 2) AND false", "false"),
        ("'a' LIKE 'a' AND false", "false"),
        ("undefined ?? 1 + 1", "2"),
        ("undefined ?? undefined ?? 3", "3"),
        ("undefined ?? false OR true", "true"),
        ("true ? 1 : 2 + 10", "1"),
        ("false ? 1 : true ? 2 : 3", "2"),
        ("true ? false ? 1 : 2 : 3", "2"),
        ("1 = 1 ? 'y' : 'n'", "\"y\""),
        ("{a: {b: [7]}}.a.b[0]", "7"),
        ("{\"x y\": 1}[\"x y\"]", "1"),
        ("[1, 2][1 - 1]", "1"),
        ("-[5][0]", "-5"),
        ("NOT NOT true", "true"),
        ("1 NOT IN (2)", "true"),
        ("1 NOT BETWEEN 2 AND 3", "true"),
        ("'a' NOT LIKE 'b'", "true"),
    ];
    for (expression, expected) in cases {
        check(expression, expected);
    }
}

#[test]
fn truth_has_three_values() {
    // "n" is any value that is neither true nor false: undefined, null, a number.
    for n in ["undefined", "null", "1", "\"true\"", "[]"] {
        let cases = [
            ("true AND true", "true"),
            ("true AND false", "false"),
            ("false AND n", "false"),
            ("n AND false", "false"),
            ("n AND true", ""),
            ("true AND n", ""),
            ("n AND n", ""),
            ("false AND n AND true", "false"),
            ("n AND true AND false", "false"),
            ("true OR n", "true"),
            ("n OR true", "true"),
            ("n OR false", ""),
            ("false OR n", ""),
            ("false OR n OR true", "true"),
            ("NOT n", ""),
            ("NOT (false AND n)", "true"),
            ("NOT (n OR true)", "false"),
            ("n ? 1 : 2", "2"),
        ];
        for (expression, expected) in cases {
            let expression = expression
                .split(' ')
                .map(|word| match word.trim_matches(['(', ')']) {
                    "n" => word.replace('n', n),
                    _ => word.to_owned(),
                })
                .collect::<Vec<_>>();
            check(&expression.join(" "), expected);
        }
    }
}

#[test]
fn what_makes_no_sense_is_undefined() {
    let cases = [
        ("1 + 'a'", ""),
        ("1 + null", ""),
        ("1 / 0", ""),
        ("0 / 0", ""),
        ("5 % 0", ""),
        ("1e308 * 10", ""),
        ("-'a'", ""),
        ("+'a'", ""),
        ("~'a'", ""),
        ("1 || 'a'", ""),
        ("1 < 'a'", ""),
        ("null < 1", ""),
        ("[1] < [2]", ""),
        ("{} = {}", "true"),
        ("[1, {a: 2}] = [1, {a: 2}]", "true"),
        ("1 = '1'", "false"),
        ("1 != '1'", "true"),
        ("null = null", "true"),
        ("undefined = undefined", ""),
        ("undefined != 1", ""),
        ("1 = undefined", ""),
        ("null >= null", "true"),
        ("false < true", "true"),
        ("'B' < 'a'", "true"),
        ("1 IN (undefined, 1)", "true"),
        ("1 IN (undefined, 2)", ""),
        ("undefined IN (1)", ""),
        ("null IN (null)", "true"),
        ("1 BETWEEN 'a' AND 2", ""),
        ("'b' BETWEEN 'a' AND 'c'", "true"),
        ("1 LIKE '1'", ""),
        ("'a' LIKE 1", ""),
        ("'a' LIKE 'a' ESCAPE '!!'", ""),
        ("null ?? 1", "null"),
        ("{}.a.b.c", ""),
        ("[1][1]", ""),
        ("[1][-1]", ""),
        ("[1]['0']", ""),
        ("'abc'[0]", ""),
        ("{a: 1}[0]", ""),
        ("[1, undefined, 2]", "[1,2]"),
        ("{a: undefined, b: 1}", "{\"b\":1}"),
        ("{a: 1, a: 2}", "{\"a\":2}"),
        ("(SELECT VALUE 1 WHERE false)", ""),
        ("ARRAY(SELECT VALUE 1 WHERE false)", "[]"),
        ("EXISTS(SELECT VALUE undefined)", "false"),
    ];
    for (expression, expected) in cases {
        check(expression, expected);
    }
}

#[test]
fn numbers_and_strings_are_read_in_every_form() {
    let cases = [
        ("0xFF", "255"),
        (".5", "0.5"),
        ("1e3", "1e3"),
        ("1e3 + 0", "1000"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("9007199254740993", "9007199254740993"),
        ("9007199254740993 + 0", "9007199254740992"),
        (r#"'it\'s "x" \u00e9 \n'"#, r#""it's \"x\" é \n""#),
        (r#""a\/b\\""#, r#""a/b\\""#),
        ("'😀'", "\"😀\""),
        ("-2147483648 >> 31", "-1"),
        ("-1 >>> 28", "15"),
        ("1 << 31", "-2147483648"),
        ("3000000000 | 0", "-1294967296"),
        ("5.7 & 7.9", "5"),
    ];
    for (expression, expected) in cases {
        check(expression, expected);
    }
}
