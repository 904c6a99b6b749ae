//! Bytes that an item must have to pass a filter, so that most items need not be looked into.
//!
//! ```text
//! c.address.postcode = "10115"     an item that passes has the bytes  "10115"  with their quotes
//! c.rank > 7                       an item that passes has the bytes  "rank"
//! ```
//!
//! A search for bytes is many times quicker than a walk over an item. It only ever rules out: an item that has
//! the bytes may have them elsewhere, and is looked into like any other. JSON can also say the same string
//! with escapes, so an item with a backslash in it is never ruled out.

use super::{Compiled, Operation};
use crate::ast::BinaryOperator;
use crate::value::Value;
use memchr::memmem::Finder;

/// Bytes without which no row of an item passes; see the head of this file.
#[derive(Debug)]
pub(crate) struct Needle(Finder<'static>);

impl Needle {
    /// The most telling bytes a filter asks for, if it asks for any.
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
        self.0.find(item).is_none() && memchr::memchr(b'\\', item).is_none()
    }
}

impl Compiled {
    /// Whether an item cannot have a row, as far as that can be seen without looking into it.
    pub(crate) fn rules_out(&self, item: &[u8]) -> bool {
        self.needle.as_ref().is_some_and(|needle| needle.rules_out(item))
    }
}

/// The string a property of the item must be equal to.
fn string_compared(condition: &Operation) -> Option<&str> {
    let Operation::Binary(BinaryOperator::Equal, one, two) = condition else { return None };
    let text = match (&**one, &**two) {
        (path, Operation::Constant(Value::String(text))) if is_of_item(path) => text,
        (Operation::Constant(Value::String(text)), path) if is_of_item(path) => text,
        _ => return None,
    };
    is_plain(text).then_some(&**text)
}

/// A property without which a comparison is undefined.
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

/// Whether JSON without escapes can say a text in one way only, which is as it is.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use crate::{Query, Value};

    fn rules_out(filter: &str, item: &str) -> bool {
        let parameters = [("@p".to_owned(), Value::from("x".to_owned()))];
        let query = Query::parse(&format!("SELECT * FROM c WHERE {filter}"), &parameters);
        query
            .unwrap_or_else(|error| panic!("{filter}: {error}"))
            .compiled()
            .rules_out(item.as_bytes())
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
    }
}
