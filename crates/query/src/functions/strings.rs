//! String functions: searching, cutting, joining. Positions count characters from 0.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{ANY, Body, Function, count, flag, text, whole};
use crate::error::EvaluationError;
use crate::evaluate::Environment;
use crate::value::Value;

/// The longest result of `REPLICATE`, as documented.
const REPLICATE_MAX: usize = 10_000;

pub(super) const TABLE: &[Function] = &[
    Function {
        name: "CONCAT",
        arguments: "(string, string [, …])",
        meaning: "All strings one after the other; undefined if one is not a string",
        count: (1, ANY),
        body: Body::Careful(concat),
        examples: &[("CONCAT(\"a\", \"b\", \"c\")", "\"abc\""), ("CONCAT(\"a\", 1)", "undefined")],
    },
    Function {
        name: "CONTAINS",
        arguments: "(string, part [, ignore_case])",
        meaning: "Whether the part occurs in the string",
        count: (2, 3),
        body: Body::Pure(|arguments| compare(arguments, |string, part| string.contains(part))),
        examples: &[
            ("CONTAINS(\"AdventureWorks\", \"Works\")", "true"),
            ("CONTAINS(\"AdventureWorks\", \"works\")", "false"),
            ("CONTAINS(\"AdventureWorks\", \"works\", true)", "true"),
            ("CONTAINS(\"abc\", 1)", "undefined"),
        ],
    },
    Function {
        name: "ENDSWITH",
        arguments: "(string, part [, ignore_case])",
        meaning: "Whether the string ends with the part",
        count: (2, 3),
        body: Body::Pure(|arguments| compare(arguments, |string, part| string.ends_with(part))),
        examples: &[
            ("ENDSWITH(\"abc\", \"bc\")", "true"),
            ("ENDSWITH(\"abc\", \"BC\")", "false"),
            ("ENDSWITH(\"abc\", \"BC\", true)", "true"),
            ("ENDSWITH(null, \"c\")", "undefined"),
        ],
    },
    Function {
        name: "STARTSWITH",
        arguments: "(string, part [, ignore_case])",
        meaning: "Whether the string begins with the part",
        count: (2, 3),
        body: Body::Pure(|arguments| compare(arguments, |string, part| string.starts_with(part))),
        examples: &[
            ("STARTSWITH(\"abc\", \"ab\")", "true"),
            ("STARTSWITH(\"abc\", \"AB\")", "false"),
            ("STARTSWITH(\"abc\", \"AB\", true)", "true"),
            ("STARTSWITH(\"abc\", \"ab\", 1)", "undefined"),
        ],
    },
    Function {
        name: "StringEquals",
        arguments: "(string, other [, ignore_case])",
        meaning: "Whether both strings are equal",
        count: (2, 3),
        body: Body::Pure(|arguments| compare(arguments, |string, other| string == other)),
        examples: &[
            ("StringEquals(\"abc\", \"abc\")", "true"),
            ("StringEquals(\"abc\", \"ABC\")", "false"),
            ("StringEquals(\"abc\", \"ABC\", true)", "true"),
        ],
    },
    Function {
        name: "INDEX_OF",
        arguments: "(string, part [, start])",
        meaning: "Where the part occurs first, -1 if it does not",
        count: (2, 3),
        body: Body::Pure(index_of),
        examples: &[
            ("INDEX_OF(\"abcabc\", \"c\")", "2"),
            ("INDEX_OF(\"abcabc\", \"c\", 3)", "5"),
            ("INDEX_OF(\"abc\", \"x\")", "-1"),
            ("INDEX_OF(\"größe\", \"e\")", "4"),
        ],
    },
    Function {
        name: "LASTINDEXOF",
        arguments: "(string, part [, start])",
        meaning: "Where the part occurs last, at or before the start if there is one; -1 if it does not",
        count: (2, 3),
        body: Body::Pure(last_index_of),
        examples: &[
            ("LASTINDEXOF(\"abcabc\", \"b\")", "4"),
            ("LASTINDEXOF(\"abcabc\", \"b\", 3)", "1"),
            ("LASTINDEXOF(\"abc\", \"x\")", "-1"),
        ],
    },
    Function {
        name: "LEFT",
        arguments: "(string, length)",
        meaning: "The first characters",
        count: (2, 2),
        body: Body::Pure(|arguments| {
            let length = length(arguments, 1)?;
            cut(&arguments[0], 0, length)
        }),
        examples: &[
            ("LEFT(\"abc\", 2)", "\"ab\""),
            ("LEFT(\"abc\", 9)", "\"abc\""),
            ("LEFT(\"abc\", -1)", "\"\""),
        ],
    },
    Function {
        name: "RIGHT",
        arguments: "(string, length)",
        meaning: "The last characters",
        count: (2, 2),
        body: Body::Pure(|arguments| {
            let length = length(arguments, 1)?;
            let all = text(arguments, 0)?.chars().count();
            cut(&arguments[0], all.saturating_sub(length), all)
        }),
        examples: &[("RIGHT(\"abc\", 2)", "\"bc\""), ("RIGHT(\"abc\", 9)", "\"abc\"")],
    },
    Function {
        name: "SUBSTRING",
        arguments: "(string, start, length)",
        meaning: "The given number of characters from a position on",
        count: (3, 3),
        body: Body::Pure(|arguments| {
            let start = length(arguments, 1)?;
            cut(&arguments[0], start, start.saturating_add(length(arguments, 2)?))
        }),
        examples: &[
            ("SUBSTRING(\"abcdef\", 1, 3)", "\"bcd\""),
            ("SUBSTRING(\"abc\", 5, 1)", "\"\""),
            ("SUBSTRING(\"größe\", 2, 2)", "\"öß\""),
            ("SUBSTRING(1, 0, 1)", "undefined"),
        ],
    },
    Function {
        name: "LENGTH",
        arguments: "(string)",
        meaning: "The number of characters in the string",
        count: (1, 1),
        body: Body::Pure(|arguments| Some(count(text(arguments, 0)?.chars().count()))),
        examples: &[("LENGTH(\"abc\")", "3"), ("LENGTH(\"\")", "0"), ("LENGTH(1)", "undefined")],
    },
    Function {
        name: "LOWER",
        arguments: "(string)",
        meaning: "The string in lower case",
        count: (1, 1),
        body: Body::Pure(|arguments| Some(Value::from(text(arguments, 0)?.to_lowercase()))),
        examples: &[("LOWER(\"ABc\")", "\"abc\""), ("LOWER(1)", "undefined")],
    },
    Function {
        name: "UPPER",
        arguments: "(string)",
        meaning: "The string in upper case",
        count: (1, 1),
        body: Body::Pure(|arguments| Some(Value::from(text(arguments, 0)?.to_uppercase()))),
        examples: &[("UPPER(\"aBc\")", "\"ABC\""), ("UPPER(null)", "undefined")],
    },
    Function {
        name: "TRIM",
        arguments: "(string [, characters])",
        meaning: "The string without white space, or those characters, at both ends",
        count: (1, 2),
        body: Body::Pure(|arguments| trim(arguments, true, true)),
        examples: &[
            ("TRIM(\"  a b  \")", "\"a b\""),
            ("TRIM(\"xxaxx\", \"x\")", "\"a\""),
            ("TRIM(1)", "undefined"),
        ],
    },
    Function {
        name: "LTRIM",
        arguments: "(string [, characters])",
        meaning: "The string without white space, or those characters, at its beginning",
        count: (1, 2),
        body: Body::Pure(|arguments| trim(arguments, true, false)),
        examples: &[("LTRIM(\"  a \")", "\"a \""), ("LTRIM(\"xya\", \"yx\")", "\"a\"")],
    },
    Function {
        name: "RTRIM",
        arguments: "(string [, characters])",
        meaning: "The string without white space, or those characters, at its end",
        count: (1, 2),
        body: Body::Pure(|arguments| trim(arguments, false, true)),
        examples: &[("RTRIM(\" a  \")", "\" a\""), ("RTRIM(\"axy\", \"yx\")", "\"a\"")],
    },
    Function {
        name: "REPLACE",
        arguments: "(string, part, replacement)",
        meaning: "The string with every occurrence of the part replaced",
        count: (3, 3),
        body: Body::Careful(replace),
        examples: &[
            ("REPLACE(\"a-b-c\", \"-\", \"+\")", "\"a+b+c\""),
            ("REPLACE(\"abc\", \"\", \"x\")", "\"abc\""),
            ("REPLACE(\"abc\", 1, \"x\")", "undefined"),
        ],
    },
    Function {
        name: "REPLICATE",
        arguments: "(string, times)",
        meaning: "The string repeated; undefined beyond 10 000 characters",
        count: (2, 2),
        body: Body::Pure(replicate),
        examples: &[
            ("REPLICATE(\"ab\", 3)", "\"ababab\""),
            ("REPLICATE(\"ab\", 0)", "\"\""),
            ("REPLICATE(\"ab\", -1)", "undefined"),
            ("REPLICATE(\"ab\", 5001)", "undefined"),
        ],
    },
    Function {
        name: "REVERSE",
        arguments: "(string)",
        meaning: "The characters in reverse order",
        count: (1, 1),
        body: Body::Pure(|arguments| {
            Some(Value::from(text(arguments, 0)?.chars().rev().collect::<String>()))
        }),
        examples: &[("REVERSE(\"abc\")", "\"cba\""), ("REVERSE(1)", "undefined")],
    },
];

/// Compares both strings, in lower case if case is ignored.
fn compare<'a>(arguments: &[Value<'a>], test: fn(&str, &str) -> bool) -> Option<Value<'a>> {
    let (string, part) = (text(arguments, 0)?, text(arguments, 1)?);
    Some(Value::Bool(if flag(arguments, 2)? {
        test(&string.to_lowercase(), &part.to_lowercase())
    } else {
        test(string, part)
    }))
}

/// A length or position; negative values count as 0.
fn length(arguments: &[Value<'_>], place: usize) -> Option<usize> {
    Some(usize::try_from(whole(arguments, place)?).unwrap_or(0))
}

/// The characters from `start` up to `end`, borrowed from the item if the string was.
fn cut<'a>(string: &Value<'a>, start: usize, end: usize) -> Option<Value<'a>> {
    let Value::String(string) = string else { return None };
    let byte = |position| string.char_indices().nth(position).map_or(string.len(), |(at, _)| at);
    let (start, end) = (byte(start), byte(end));
    let range = start..end.max(start);
    Some(Value::String(match string {
        Cow::Borrowed(string) => Cow::Borrowed(&string[range]),
        Cow::Owned(string) => Cow::Owned(string[range].to_owned()),
    }))
}

fn index_of<'a>(arguments: &[Value<'a>]) -> Option<Value<'a>> {
    let (string, part) = (text(arguments, 0)?, text(arguments, 1)?);
    let start = if arguments.len() > 2 { length(arguments, 2)? } else { 0 };
    let from = string.char_indices().nth(start).map_or(string.len(), |(at, _)| at);
    Some(match string[from..].find(part) {
        Some(at) => count(string[..from + at].chars().count()),
        None => Value::number(-1.0),
    })
}

fn last_index_of<'a>(arguments: &[Value<'a>]) -> Option<Value<'a>> {
    let (string, part) = (text(arguments, 0)?, text(arguments, 1)?);
    let to = if arguments.len() > 2 {
        let end = length(arguments, 2)?.saturating_add(part.chars().count());
        string.char_indices().nth(end).map_or(string.len(), |(at, _)| at)
    } else {
        string.len()
    };
    Some(match string[..to].rfind(part) {
        Some(at) => count(string[..at].chars().count()),
        None => Value::number(-1.0),
    })
}

fn trim<'a>(arguments: &[Value<'a>], front: bool, back: bool) -> Option<Value<'a>> {
    let mut string = text(arguments, 0)?;
    // A set, because each character of the string is looked up.
    let characters: Option<HashSet<char>> =
        if arguments.len() > 1 { Some(text(arguments, 1)?.chars().collect()) } else { None };
    let out = |c: char| {
        characters.as_ref().map_or(c.is_whitespace(), |characters| characters.contains(&c))
    };
    if front {
        string = string.trim_start_matches(out);
    }
    if back {
        string = string.trim_end_matches(out);
    }
    Some(Value::from(string.to_owned()))
}

fn replicate<'a>(arguments: &[Value<'a>]) -> Option<Value<'a>> {
    let string = text(arguments, 0)?;
    let times = usize::try_from(whole(arguments, 1)?).ok()?;
    if string.chars().count().saturating_mul(times) > REPLICATE_MAX {
        return None;
    }
    Some(Value::from(if string.is_empty() { String::new() } else { string.repeat(times) }))
}

fn concat<'a>(
    arguments: &[Value<'a>],
    environment: &mut Environment,
) -> Result<Option<Value<'a>>, EvaluationError> {
    let Some(parts) = arguments.iter().map(Value::as_text).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    environment.allow("CONCAT", parts.iter().map(|part| part.len()).sum())?;
    Ok(Some(Value::from(parts.concat())))
}

fn replace<'a>(
    arguments: &[Value<'a>],
    environment: &mut Environment,
) -> Result<Option<Value<'a>>, EvaluationError> {
    let (Some(string), Some(part), Some(replacement)) =
        (text(arguments, 0), text(arguments, 1), text(arguments, 2))
    else {
        return Ok(None);
    };
    if part.is_empty() {
        return Ok(Some(arguments[0].clone()));
    }
    let times = string.matches(part).count();
    environment.spend(times)?;
    environment.allow("REPLACE", string.len() + times.saturating_mul(replacement.len()))?;
    Ok(Some(Value::from(string.replace(part, replacement))))
}
