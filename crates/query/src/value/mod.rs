//! Values of the query language: results of expressions and parts of items.
//!
//! A value borrows from its item for as long as possible. Objects and arrays inside an
//! item stay JSON text ([`Value::Json`]) until their parts are read, so a query that uses two
//! paths of a large item parses only those paths, and unchanged parts are copied byte by byte.
//!
//! ```text
//! json.rs    scans item bytes without a tree
//! number.rs  how numbers read and print
//! order.rs   equality, comparison, order across types, keys for grouping
//! write.rs   values → JSON text
//! ```
//!
//! `undefined` is a value here and is never written: an undefined property is left out.

mod build;
mod json;
mod number;
mod order;
mod write;

use std::borrow::Cow;
use std::sync::Arc;

pub use build::{BadValue, ParameterReader};
pub(crate) use json::{Elements, Found, find_members, place_of, value_in};
pub use number::Number;
pub(crate) use order::{Charge, Key};
pub(crate) use write::write_text;

/// Bytes of text read for the cost of a step.
const SCANNED_PER_STEP: usize = 256;
/// Elements or properties of a made value visited for the cost of a step.
const PARTS_VISITED_PER_STEP: usize = 8;
/// Bytes of text copied for the cost of a step.
const COPIED_PER_STEP: usize = 4096;
/// Bytes of a made value written as text for the cost of a step.
const WRITTEN_PER_STEP: usize = 1024;

/// A value of the query language.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Value<'a> {
    /// No value: a missing property, or an operation that does not apply to its operands.
    #[default]
    Undefined,
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number<'a>),
    /// A string.
    String(Cow<'a, str>),
    /// An array made by an expression.
    Array(Arc<[Value<'a>]>),
    /// An object made by an expression, in the order it was written, each name once.
    Object(Arc<[Member<'a>]>),
    /// An array or object inside an item, as unparsed text.
    Json(Cow<'a, [u8]>),
}

/// A property of an object.
pub type Member<'a> = (Cow<'a, str>, Value<'a>);

/// The type of a value, in the sort order of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// No value.
    Undefined,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl<'a> Value<'a> {
    /// A number; undefined if it is not finite, since JSON has no infinity.
    pub fn number(value: f64) -> Value<'a> {
        if value.is_finite() { Value::Number(Number::new(value)) } else { Value::Undefined }
    }

    /// Creates a string.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Value<'a> {
        Value::String(text.into())
    }

    /// Creates an array. Undefined elements are left out, since JSON cannot express them.
    pub fn array(elements: impl IntoIterator<Item = Value<'a>>) -> Value<'a> {
        Value::Array(elements.into_iter().filter(|element| !element.is_undefined()).collect())
    }

    /// The type of the value.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Undefined => Kind::Undefined,
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Number(_) => Kind::Number,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
            Value::Json(text) if text.first() == Some(&b'[') => Kind::Array,
            Value::Json(_) => Kind::Object,
        }
    }

    /// Whether the value is undefined.
    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined)
    }

    /// Whether the value is `true`; every other value, undefined included, is not.
    pub fn is_true(&self) -> bool {
        matches!(self, Value::Bool(true))
    }

    /// The boolean, if the value is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if the value is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(number.value()),
            _ => None,
        }
    }

    /// The number as an integer, if a double represents it exactly.
    pub fn as_integer(&self) -> Option<i64> {
        number::to_integer(self.as_number()?)
    }

    /// The string, if the value is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if the value is an array.
    pub fn elements(&self) -> Option<Cow<'_, [Value<'a>]>> {
        match self {
            Value::Array(elements) => Some(Cow::Borrowed(elements)),
            Value::Json(text) if self.kind() == Kind::Array => {
                Some(Cow::Owned(json::elements(text)))
            }
            _ => None,
        }
    }

    /// The properties, if the value is an object.
    pub fn members(&self) -> Option<Cow<'_, [Member<'a>]>> {
        match self {
            Value::Object(members) => Some(Cow::Borrowed(members)),
            Value::Json(text) if self.kind() == Kind::Object => {
                Some(Cow::Owned(json::members(text)))
            }
            _ => None,
        }
    }

    /// A property of an object; undefined if it is missing or the value is not an object.
    pub fn member(&self, name: &str) -> Value<'a> {
        match self {
            Value::Object(members) => members
                .iter()
                .find(|(known, _)| known == name)
                .map_or(Value::Undefined, |(_, value)| value.clone()),
            Value::Json(text) => json::member(text, name),
            _ => Value::Undefined,
        }
    }

    /// An element of an array, counted from 0; undefined if it is missing or the value is not an array.
    pub fn element(&self, index: usize) -> Value<'a> {
        match self {
            Value::Array(elements) => elements.get(index).cloned().unwrap_or_default(),
            Value::Json(text) => json::element(text, index),
            _ => Value::Undefined,
        }
    }

    /// Copies the value so that it no longer borrows from its item.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Undefined => Value::Undefined,
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(value),
            Value::Number(number) => Value::Number(number.into_owned()),
            Value::String(text) => Value::String(Cow::Owned(text.into_owned())),
            // One text is smaller than a tree of strings, and the value will only be printed.
            made @ (Value::Array(_) | Value::Object(_)) => Value::Json(Cow::Owned(made.to_json())),
            Value::Json(text) => Value::Json(Cow::Owned(text.into_owned())),
        }
    }

    /// The same value, borrowed from this one instead of copied.
    pub(crate) fn borrowed(&'a self) -> Value<'a> {
        match self {
            Value::Number(number) => Value::Number(number.borrowed()),
            Value::String(text) => Value::String(Cow::Borrowed(text)),
            Value::Json(text) => Value::Json(Cow::Borrowed(text)),
            other => other.clone(),
        }
    }

    /// The value in these bytes of an item, which must be valid JSON. For other bytes the result is
    /// a wrong value or undefined.
    pub fn of_item(bytes: &'a [u8]) -> Value<'a> {
        json::read(Cow::Borrowed(json::trimmed(bytes)))
    }

    /// The approximate size as JSON text, or `None` beyond a limit.
    ///
    /// Shared parts count once for each use, since they are written each time;
    /// the limit bounds the time of counting.
    pub(crate) fn weight_within(&self, limit: usize) -> Option<usize> {
        let mut left = limit;
        self.take_weight(&mut left)?;
        Some(limit - left)
    }

    fn take_weight(&self, left: &mut usize) -> Option<()> {
        let own = match self {
            Value::String(text) => text.len(),
            Value::Json(text) => text.len(),
            _ => 0,
        };
        *left = left.checked_sub(own + size_of::<Value<'_>>())?;
        match self {
            Value::Array(elements) => elements.iter().try_for_each(|one| one.take_weight(left)),
            Value::Object(members) => members.iter().try_for_each(|(name, value)| {
                *left = left.checked_sub(name.len())?;
                value.take_weight(left)
            }),
            _ => Some(()),
        }
    }

    /// The approximate size as JSON text, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight_within(usize::MAX).unwrap_or(usize::MAX)
    }

    /// Bytes of text that the value owns: what a copy of it allocates.
    #[inline]
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Value::String(Cow::Owned(text)) => text.len(),
            Value::Json(Cow::Owned(text)) => text.len(),
            _ => 0,
        }
    }

    /// An upper bound of the bytes for listing all elements or properties of an unparsed array or object, at every
    /// depth. Counts commas, which is far faster than listing them.
    pub(crate) fn opened_bytes(&self) -> usize {
        let Value::Json(text) = self else { return 0 };
        let parts = 1 + text.iter().filter(|byte| **byte == b',').count();
        let each = match self.kind() {
            Kind::Array => size_of::<Value<'_>>(),
            _ => size_of::<Member<'_>>(),
        };
        // A growing list doubles, and parts of an owned text are copies.
        parts.saturating_mul(2 * each).saturating_add(self.owned_bytes())
    }

    /// The approximate memory of the value in bytes, without text borrowed from an item. Shared parts count
    /// once for each use.
    pub(crate) fn held_bytes(&self) -> usize {
        let inner = match self {
            Value::Array(elements) => elements.iter().map(Value::held_bytes).sum(),
            Value::Object(members) => {
                let member = |(name, value): &Member<'_>| {
                    let own = if let Cow::Owned(name) = name { name.len() } else { 0 };
                    own + size_of::<Cow<'_, str>>() + value.held_bytes()
                };
                members.iter().map(member).sum()
            }
            _ => 0,
        };
        size_of::<Value<'_>>() + self.owned_bytes() + inner
    }

    /// The steps to visit each of its direct parts once.
    pub(crate) fn visit_cost(&self) -> usize {
        match self {
            Value::Array(elements) => elements.len() / PARTS_VISITED_PER_STEP,
            Value::Object(members) => members.len() / PARTS_VISITED_PER_STEP,
            other => other.scan_cost(),
        }
    }

    /// The steps to copy or write it.
    pub(crate) fn copy_cost(&self) -> usize {
        match self {
            Value::Json(text) => text.len() / COPIED_PER_STEP,
            Value::String(text) => text.len() / COPIED_PER_STEP,
            Value::Array(_) | Value::Object(_) => self.weight() / WRITTEN_PER_STEP,
            _ => 0,
        }
    }

    /// The steps to read its text.
    pub(crate) fn scan_cost(&self) -> usize {
        match self {
            Value::Json(text) => text.len() / SCANNED_PER_STEP,
            Value::String(text) => text.len() / SCANNED_PER_STEP,
            _ => 0,
        }
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Value::number(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Value::String(Cow::Borrowed(value))
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        Value::String(Cow::Owned(value))
    }
}
