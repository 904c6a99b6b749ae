//! Values of the query language: what an expression yields and what an item holds.
//!
//! A value borrows from the item it was found in for as long as it can. Objects and arrays inside an
//! item stay JSON text ([`Value::Json`]) until somebody looks into them, so a query that touches two
//! paths of a large item pays for two paths, and what is projected unchanged is copied byte by byte.
//!
//! ```text
//! json.rs    scans item bytes without a tree
//! number.rs  how numbers read and print
//! order.rs   equality, comparison, order across types, keys for grouping
//! write.rs   values → JSON text
//! ```
//!
//! `undefined` is a value here and is never written: a property that is undefined is left out.

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

/// Bytes of text that are read for the cost of a step.
const SCANNED_PER_STEP: usize = 256;
/// Elements or properties of a made value that are visited for the cost of a step.
const PARTS_VISITED_PER_STEP: usize = 8;
/// Bytes of text that are copied for the cost of a step.
const COPIED_PER_STEP: usize = 4096;
/// Bytes of a made value that are written as text for the cost of a step.
const WRITTEN_PER_STEP: usize = 1024;

/// A value of the query language.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Value<'a> {
    /// Nothing is there: a missing property, or an operation that makes no sense for its operands.
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
    /// An array an expression has made.
    Array(Arc<[Value<'a>]>),
    /// An object an expression has made, in the order it was written, each name once.
    Object(Arc<[Member<'a>]>),
    /// An array or object inside an item, as text that nobody has looked into yet.
    Json(Cow<'a, [u8]>),
}

/// A property of an object.
pub type Member<'a> = (Cow<'a, str>, Value<'a>);

/// What sort of value something is, in the order the language sorts sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing.
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
    /// The number, or undefined if it is not finite: JSON has no infinity.
    pub fn number(value: f64) -> Value<'a> {
        if value.is_finite() { Value::Number(Number::new(value)) } else { Value::Undefined }
    }

    /// A string.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Value<'a> {
        Value::String(text.into())
    }

    /// An array; undefined elements are left out, as in JSON there is nothing to write for them.
    pub fn array(elements: impl IntoIterator<Item = Value<'a>>) -> Value<'a> {
        Value::Array(elements.into_iter().filter(|element| !element.is_undefined()).collect())
    }

    /// What sort of value this is.
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

    /// Whether there is nothing.
    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined)
    }

    /// Whether this is `true` itself; everything else, undefined included, is not.
    pub fn is_true(&self) -> bool {
        matches!(self, Value::Bool(true))
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(number.value()),
            _ => None,
        }
    }

    /// The number as an integer, if it is one that a double holds exactly.
    pub fn as_integer(&self) -> Option<i64> {
        number::to_integer(self.as_number()?)
    }

    /// The string, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if it is an array.
    pub fn elements(&self) -> Option<Cow<'_, [Value<'a>]>> {
        match self {
            Value::Array(elements) => Some(Cow::Borrowed(elements)),
            Value::Json(text) if self.kind() == Kind::Array => {
                Some(Cow::Owned(json::elements(text)))
            }
            _ => None,
        }
    }

    /// The properties, if it is an object.
    pub fn members(&self) -> Option<Cow<'_, [Member<'a>]>> {
        match self {
            Value::Object(members) => Some(Cow::Borrowed(members)),
            Value::Json(text) if self.kind() == Kind::Object => {
                Some(Cow::Owned(json::members(text)))
            }
            _ => None,
        }
    }

    /// The property of an object; undefined if there is none or this is no object.
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

    /// The element of an array, counted from 0; undefined if there is none or this is no array.
    pub fn element(&self, index: usize) -> Value<'a> {
        match self {
            Value::Array(elements) => elements.get(index).cloned().unwrap_or_default(),
            Value::Json(text) => json::element(text, index),
            _ => Value::Undefined,
        }
    }

    /// The same value without a tie to the item it was found in.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Undefined => Value::Undefined,
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(value),
            Value::Number(number) => Value::Number(number.into_owned()),
            Value::String(text) => Value::String(Cow::Owned(text.into_owned())),
            // One text is smaller than a tree of strings, and all that is left to do is to print it.
            made @ (Value::Array(_) | Value::Object(_)) => Value::Json(Cow::Owned(made.to_json())),
            Value::Json(text) => Value::Json(Cow::Owned(text.into_owned())),
        }
    }

    /// The same value, tied to this one instead of copied.
    pub(crate) fn borrowed(&'a self) -> Value<'a> {
        match self {
            Value::Number(number) => Value::Number(number.borrowed()),
            Value::String(text) => Value::String(Cow::Borrowed(text)),
            Value::Json(text) => Value::Json(Cow::Borrowed(text)),
            other => other.clone(),
        }
    }

    /// The value in these bytes of an item, which somebody has checked to be JSON. What is not
    /// JSON after all gives a wrong value or undefined.
    pub fn of_item(bytes: &'a [u8]) -> Value<'a> {
        json::read(Cow::Borrowed(json::trimmed(bytes)))
    }

    /// About how many bytes it is when written, or `None` beyond a limit.
    ///
    /// Parts that are shared count as often as they occur, for that is how often they are written;
    /// the limit keeps the count itself from taking long.
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

    /// About how many bytes of memory it holds.
    pub(crate) fn weight(&self) -> usize {
        self.weight_within(usize::MAX).unwrap_or(usize::MAX)
    }

    /// Bytes of text that belong to this value alone: what a copy of it allocates.
    #[inline]
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Value::String(Cow::Owned(text)) => text.len(),
            Value::Json(Cow::Owned(text)) => text.len(),
            _ => 0,
        }
    }

    /// At most how many bytes it takes to list the elements or properties of an array or object that is
    /// still text, all the way down. Counts commas, so it is far quicker than listing them.
    pub(crate) fn opened_bytes(&self) -> usize {
        let Value::Json(text) = self else { return 0 };
        let parts = 1 + text.iter().filter(|byte| **byte == b',').count();
        let each = match self.kind() {
            Kind::Array => size_of::<Value<'_>>(),
            _ => size_of::<Member<'_>>(),
        };
        // A list that grows doubles, and parts of an owned text are copies.
        parts.saturating_mul(2 * each).saturating_add(self.owned_bytes())
    }

    /// About how many bytes of memory it holds. Text that is borrowed from an item is not its own; parts
    /// that are shared count as often as they occur.
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

    /// How much work it is to visit each of its own parts once, in steps.
    pub(crate) fn visit_cost(&self) -> usize {
        match self {
            Value::Array(elements) => elements.len() / PARTS_VISITED_PER_STEP,
            Value::Object(members) => members.len() / PARTS_VISITED_PER_STEP,
            other => other.scan_cost(),
        }
    }

    /// How much work it is to copy or write it, in steps.
    pub(crate) fn copy_cost(&self) -> usize {
        match self {
            Value::Json(text) => text.len() / COPIED_PER_STEP,
            Value::String(text) => text.len() / COPIED_PER_STEP,
            Value::Array(_) | Value::Object(_) => self.weight() / WRITTEN_PER_STEP,
            _ => 0,
        }
    }

    /// How much work it is to look into it, in steps.
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
