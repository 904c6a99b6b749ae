//! Finds bytes that every matching item contains, so that most other items need not be parsed.
//!
//! ```text
//! c.address.postcode = "10115"     an item that passes has the bytes  "10115"  with their quotes
//! c.rank > 7                       an item that passes has the bytes  "rank"
//! ```
//!
//! A byte search is many times faster than a walk over an item. It only rules items out: an item that contains
//! the bytes may contain them elsewhere, and is evaluated like any other. JSON can also write the same string
//! with escapes, so an item with such an escape is never ruled out. Most escapes are none of these: `\"`
//! and `\n` stand for characters that the needle does not contain, so a string with one of them is another string.
//! That matters, because every stored item has two of them, in its `_etag`.

use super::{Compiled, Operation};
use crate::ast::BinaryOperator;
use crate::value::Value;
use memchr::memmem::Finder;

/// The bytes without which no row of an item passes the filter.
#[derive(Debug)]
pub(crate) struct Needle(Finder<'static>);

impl Needle {
    /// The most selective bytes that a filter requires, if it requires any.
    pub(super) fn of(filter: &Operation, wanted: &[String]) -> Option<Needle> {
        let conditions = match filter {
            Operation::And(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let strings = conditions.iter().filter_map(string_compared).max_by_key(|text| text.len());
        let text = match strings {
            Some(text) => text,
            None => conditions.iter().find_map(|one| name_compared(one, wanted))?,
        };
        let quoted = [b"\"", text.as_bytes(), b"\""].concat();
        Some(Needle(Finder::new(&quoted).into_owned()))
    }

    /// Whether the filter is false or undefined for every row of an item.
    pub(crate) fn rules_out(&self, item: &[u8]) -> bool {
        self.0.find(item).is_none() && !may_say_plain_text(item)
    }
}

impl Compiled {
    /// Whether the byte search shows that an item has no row.
    pub(crate) fn rules_out(&self, item: &[u8]) -> bool {
        self.needle.as_ref().is_some_and(|needle| needle.rules_out(item))
    }
}

/// The string that a property of the item must equal.
fn string_compared(condition: &Operation) -> Option<&str> {
    let Operation::Binary(BinaryOperator::Equal, one, two) = condition else { return None };
    let text = match (&**one, &**two) {
        (path, Operation::Constant(Value::String(text))) if is_of_item(path) => text,
        (Operation::Constant(Value::String(text)), path) if is_of_item(path) => text,
        _ => return None,
    };
    is_plain(text).then_some(&**text)
}

/// The property without which a comparison is undefined.
fn name_compared<'o>(condition: &'o Operation, wanted: &'o [String]) -> Option<&'o str> {
    use BinaryOperator as B;
    let Operation::Binary(operator, one, two) = condition else { return None };
    let is_strict = matches!(
        operator,
        B::Equal | B::NotEqual | B::Less | B::LessOrEqual | B::Greater | B::GreaterOrEqual
    );
    let path = [one, two].into_iter().find(|side| is_of_item(side)).filter(|_| is_strict)?;
    let name = match &**path {
        Operation::Member(_, name) => Some(name),
        Operation::Wanted(index) => wanted.get(*index),
        _ => None,
    };
    name.map(String::as_str).filter(|name| is_plain(name))
}

/// Whether an operation is a property of the item, at any depth.
fn is_of_item(operation: &Operation) -> bool {
    let mut at = operation;
    while let Operation::Member(of, _) = at {
        at = of;
    }
    matches!(at, Operation::Wanted(_))
}

/// Whether an escape in an item may stand for a character that needs no escape.
fn may_say_plain_text(item: &[u8]) -> bool {
    let mut rest = item;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        if matches!(rest.get(at + 1), Some(b'u' | b'/')) {
            return true;
        }
        // Skips the character after the backslash, which may itself be a backslash.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

/// Whether JSON without escapes can write a text in one way only: unchanged.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use crate::{Query, Value};

    fn rules_out(filter: &str, item: &str) -> bool {
        let parameters = [("@p".to_owned(), Value::from("x".to_owned()))];
        let query = Query::parse(&format!("SELECT * FROM c WHERE {filter}"), &parameters);
        query.unwrap_or_else(|error| panic!("{filter}: {error}")).rules_out(item.as_bytes())
    }

    #[test]
    fn an_item_is_ruled_out_only_by_what_it_must_say() {
        let item = r#"{"a":{"b":"x"},"n":1}"#;
        for filter in
            ["c.a.b = 'y'", "'y' = c.a.b", "c.n > 0 AND c.a.b = 'y'", "c.m > 0", "1 != c.a.m"]
        {
            assert!(rules_out(filter, item), "{filter}");
        }
        for filter in [
            "c.a.b = 'x'",
            "c.a.b = @p",
            "c.n = 'n'",
            "c.a.b = 'y' OR c.n = 1",
            "NOT (c.a.b = 'y')",
            "c.a.b != 'y'",
            "(c.m ?? 1) = 1",
            "c.a.b || '' = 'y'",
            "'y' = 'y'",
            "c.a['b'] || '' = 'y'",
            "NOT IS_DEFINED(c.m)",
        ] {
            assert!(!rules_out(filter, item), "{filter}");
        }
    }

    #[test]
    fn what_json_can_say_in_two_ways_is_looked_into() {
        assert!(!rules_out("c.a = 'y'", r#"{"a":"\u0079"}"#));
        assert!(!rules_out("c.b > 0", r#"{"\u0062":1}"#));
        assert!(!rules_out(r"c.a = 'say \'y\\\''", r#"{"a":"z"}"#), "a backslash needs an escape");
        assert!(rules_out("c.a = 'a/b'", r#"{"a":"a-b"}"#));
        assert!(!rules_out("c.a = 'a/b'", r#"{"a":"a\/b"}"#));
        assert!(!rules_out("c.a = 'y'", r#"{"b":"\\\\","a":"\u0079"}"#), "behind a backslash");
    }

    #[test]
    fn escapes_that_cannot_say_the_text_do_not_keep_an_item_from_being_ruled_out() {
        let stored = r#"{"a":"x","_etag":"\"0000d826-0000-0700-0000-62a8a2b00000\"","_ts":9}"#;
        assert!(rules_out("c.a = 'y'", stored) && !rules_out("c.a = 'x'", stored));
        assert!(rules_out("c.m > 0", stored));
        assert!(rules_out("c.a = 'y'", r#"{"a":"\n\t\b\f\r\"\\"}"#));
        assert!(rules_out("c.a = 'u0079'", r#"{"a":"\\\\u0079"}"#), "two backslashes and a word");
    }

    #[test]
    fn a_computed_property_asks_for_what_it_is_made_of() {
        let computed = |query: &str| {
            let computed = [crate::ComputedProperty::parse("p", query).expect("it is one")];
            move |filter: &str, item: &str| {
                let query =
                    Query::parse_over(&format!("SELECT * FROM c WHERE {filter}"), &[], &computed);
                query.expect("it is a query").rules_out(item.as_bytes())
            }
        };
        // The item contains neither the name nor the text of the computed value.
        let lower = computed("SELECT VALUE LOWER(x.a) FROM x");
        assert!(!lower("c.p = 'ny'", r#"{"a":"NY"}"#));
        assert!(!lower("c.p > 'a'", r#"{"a":"NY"}"#));
        // A computed property that is a path stands for that path; its own name is in no item.
        let path = computed("SELECT VALUE x.a.b FROM x");
        assert!(
            !path("c.p = 'ny'", r#"{"a":{"b":"ny"}}"#) && path("c.p = 'la'", r#"{"a":{"b":"ny"}}"#)
        );
        assert!(!path("c.p > 0", r#"{"a":{"b":1}}"#) && path("c.p > 0", r#"{"a":{"d":1}}"#));
        // The item's own property of that name is not the computed one.
        assert!(!path("c.p = 'ny'", r#"{"p":"la","a":{"b":"ny"}}"#));
    }
}
