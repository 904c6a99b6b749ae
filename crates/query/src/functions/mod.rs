//! The functions of the language: one table, each entry with its meaning and its examples.
//!
//! The examples are the tests: every left side is evaluated and must print as its right side. Each
//! entry is next to the code it names, one file for each family; [`all`] is the whole table.
//!
//! A function whose arguments have the wrong type returns undefined and never fails. Only limits on work
//! and memory can end a query, so functions that may use much of either are `Careful`.

mod aggregates;
mod arrays;
mod calendar;
mod dates;
mod integers;
mod items;
mod later;
mod mathematics;
mod patterns;
mod sets;
mod spatial;
mod strings;
mod texts;
mod types;

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use patterns::Patterns;

use crate::error::EvaluationError;
use crate::evaluate::Environment;
use crate::value::Value;

/// One function of the language.
#[derive(Debug)]
#[non_exhaustive]
pub struct Function {
    /// Its name as documented; calls may use any case.
    pub name: &'static str,
    /// Its arguments, with optional ones in brackets.
    pub arguments: &'static str,
    /// What it returns.
    pub meaning: &'static str,
    /// The fewest and the most arguments.
    pub(crate) count: (usize, usize),
    pub(crate) body: Body,
    /// Example expressions and their printed results.
    pub examples: &'static [(&'static str, &'static str)],
}

/// The implementation of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// Takes little time and memory.
    Pure(for<'a> fn(&[Value<'a>]) -> Option<Value<'a>>),
    /// Needs the context, or may take much time or memory.
    Careful(
        for<'a> fn(&[Value<'a>], &mut Environment) -> Result<Option<Value<'a>>, EvaluationError>,
    ),
    /// Takes the values of many rows.
    Aggregate(AggregateKind),
    /// Known, but not supported yet.
    NotYet,
}

/// The aggregates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    Average,
    Count,
    CountIf,
    MakeList,
    MakeSet,
    Max,
    Min,
    Sum,
}

/// Doubles below this fit a 64-bit integer once their fraction is cut off.
const INTEGER_MAX: f64 = 9.223_372_036_854_775e18;

/// Any number of arguments.
const ANY: usize = usize::MAX;

impl Function {
    /// Whether it accepts this number of arguments.
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        (self.count.0..=self.count.1).contains(&arguments)
    }

    /// Whether it combines the values of many rows.
    pub fn is_aggregate(&self) -> bool {
        matches!(self.body, Body::Aggregate(_))
    }

    /// Whether it is supported.
    pub fn is_supported(&self) -> bool {
        !matches!(self.body, Body::NotYet)
    }
}

/// Every function.
pub fn all() -> impl Iterator<Item = &'static Function> {
    [
        aggregates::TABLE,
        arrays::TABLE,
        dates::TABLE,
        integers::TABLE,
        items::TABLE,
        later::TABLE,
        mathematics::TABLE,
        sets::TABLE,
        spatial::TABLE,
        strings::TABLE,
        texts::TABLE,
        types::TABLE,
    ]
    .into_iter()
    .flatten()
}

static BY_NAME: LazyLock<HashMap<String, &'static Function>> =
    LazyLock::new(|| all().map(|one| (one.name.to_ascii_uppercase(), one)).collect());

/// The function with this name, in capitals.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    BY_NAME.get(name).copied()
}

/// The argument at this place as a string.
fn text<'v>(arguments: &'v [Value<'_>], place: usize) -> Option<&'v str> {
    arguments.get(place)?.as_text()
}

/// The argument at this place as a number.
fn number(arguments: &[Value<'_>], place: usize) -> Option<f64> {
    arguments.get(place)?.as_number()
}

/// The argument at this place as an integer, its fraction cut off.
#[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
fn whole(arguments: &[Value<'_>], place: usize) -> Option<i64> {
    let number = number(arguments, place)?.trunc();
    (number.abs() < INTEGER_MAX).then_some(number as i64)
}

/// The optional boolean at this place, false if it is omitted. `None` if it is not a boolean.
fn flag(arguments: &[Value<'_>], place: usize) -> Option<bool> {
    arguments.get(place).map_or(Some(false), Value::as_bool)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn count<'a>(number: usize) -> Value<'a> {
    Value::number(number as f64)
}
