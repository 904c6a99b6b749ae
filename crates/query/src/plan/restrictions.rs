//! How a filter restricts the values of single paths, for the choice of an index.
//!
//! `c.age > 30 AND STARTSWITH(c.name, "A") AND EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 1)`
//! gives three restrictions: on `/age`, on `/name` and on `/tags/[]`. Each holds for every item that
//! matches, so reading the items of any one of them is enough. Like `candidates`, this may allow more
//! than the filter does, never less.

use super::candidates::fixed_value;
use crate::ast::{BinaryOperator, Collection, Expression, Node, Select, Source};
use crate::compile::Parameters;
use crate::compile::grouping::has_aggregates;
use crate::index_key::{IndexPath, KeyInterval, PathStep};
use crate::order_key::OrderPath;
use crate::value::Value;

/// The most intervals of a restriction.
const INTERVALS_MAX: usize = 2_000;

/// A condition that every matching item satisfies: a value at the path has a key in one of the intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restriction {
    /// The path.
    pub path: IndexPath,
    /// The intervals, sorted and disjoint; without any, nothing matches.
    pub intervals: Vec<KeyInterval>,
}

/// The restrictions of a query on its items, in the order of the text.
pub(crate) fn restrictions(tree: &Select, parameters: &Parameters) -> Vec<Restriction> {
    let mut names = Names { parameters, known: Vec::new() };
    names.introduce(tree, true);
    let Some(filter) = &tree.filter else { return Vec::new() };
    let mut all: Vec<Restriction> = Vec::new();
    for one in conjuncts(filter) {
        let Some(found) = names.restriction(one) else { continue };
        // Two restrictions of one single value combine: `c.n > 3 AND c.n < 5`. In an array, different
        // elements may satisfy them.
        let single = !found.path.0.contains(&PathStep::Element);
        match all.iter_mut().find(|known| single && known.path == found.path) {
            Some(known) => known.intervals = intersect(&known.intervals, &found.intervals),
            None => all.push(found),
        }
    }
    all
}

/// The paths that a query sorts by, if it sorts by nothing else and none leads into an array.
pub(crate) fn order_paths(tree: &Select, parameters: &Parameters) -> Option<Vec<OrderPath>> {
    let mut names = Names { parameters, known: Vec::new() };
    names.introduce(tree, true);
    let order = tree.order_by.iter().map(|item| {
        let path = names.path(&item.expression)?;
        let single = !path.0.contains(&PathStep::Element);
        single.then_some(OrderPath { path, descending: item.descending })
    });
    order.collect()
}

fn conjuncts(filter: &Expression) -> &[Expression] {
    match &filter.node {
        Node::And(list) => list,
        _ => std::slice::from_ref(filter),
    }
}

fn intersect(one: &[KeyInterval], two: &[KeyInterval]) -> Vec<KeyInterval> {
    let all = one.iter().flat_map(|one| two.iter().filter_map(|two| one.intersect(two)));
    all.take(INTERVALS_MAX).collect()
}

/// The names of a query, as paths from the item.
struct Names<'q> {
    parameters: &'q Parameters,
    /// The innermost name last; `None` for names that stand for a computed value.
    known: Vec<(&'q str, Option<IndexPath>)>,
}

impl<'q> Names<'q> {
    /// Adds the names of a `FROM`.
    fn introduce(&mut self, select: &'q Select, outermost: bool) {
        let Some(from) = &select.from else { return };
        for (place, source) in std::iter::once(&from.first).chain(&from.joins).enumerate() {
            let path = self.path_of_source(source, outermost && place == 0);
            let name = match (&source.alias, &source.collection) {
                (Some(alias), _) => Some(alias.as_str()),
                (None, Collection::Path(path)) => {
                    path.path().and_then(|names| names.last().copied())
                }
                (None, Collection::Query(_)) => None,
            };
            if let Some(name) = name {
                self.known.push((name, path));
            }
        }
    }

    fn path_of_source(&self, source: &'q Source, names_container: bool) -> Option<IndexPath> {
        let Collection::Path(path) = &source.collection else { return None };
        let names = path.path()?;
        let (first, rest) = names.split_first()?;
        let mut steps = match self.known.iter().rev().find(|(known, _)| known == first) {
            Some((_, path)) => path.clone()?,
            None if names_container => IndexPath::default(),
            None => return None,
        };
        steps.0.extend(rest.iter().map(|name| PathStep::Name((*name).to_owned())));
        if source.each {
            steps.0.push(PathStep::Element);
        }
        Some(steps)
    }

    fn path(&self, expression: &Expression) -> Option<IndexPath> {
        let names = expression.path()?;
        let (first, rest) = names.split_first()?;
        let (_, path) = self.known.iter().rev().find(|(known, _)| known == first)?;
        let mut path = path.clone()?;
        path.0.extend(rest.iter().map(|name| PathStep::Name((*name).to_owned())));
        (!path.0.is_empty()).then_some(path)
    }

    fn value(&self, expression: &Expression) -> Option<Value<'static>> {
        fixed_value(expression, self.parameters)
    }

    /// The restriction implied by a true expression; `None` if it implies none on a single path.
    fn restriction(&self, expression: &'q Expression) -> Option<Restriction> {
        let (path, intervals) = match &expression.node {
            Node::Binary(operator, one, two) => self.comparison(*operator, one, two)?,
            Node::In(of, list, false) => {
                let values: Option<Vec<_>> = list.iter().map(|one| self.value(one)).collect();
                (self.path(of)?, values?.iter().filter_map(KeyInterval::of).collect())
            }
            Node::Between(three, false) => self.between(three)?,
            Node::Like(of, pattern, None, false) => {
                let pattern = self.value(pattern)?;
                let prefix = pattern.as_text()?.split(['%', '_', '[']).next()?;
                (self.path(of)?, starting(prefix)?)
            }
            Node::Call(name, list) => self.call(name, list)?,
            Node::Exists(select) => return self.exists(select),
            Node::And(list) => return list.iter().find_map(|one| self.restriction(one)),
            Node::Or(list) => return self.either(list),
            Node::Name(_) | Node::Property(..) => {
                (self.path(expression)?, KeyInterval::of(&Value::Bool(true)).into_iter().collect())
            }
            _ => return None,
        };
        Some(finished(path, intervals)).filter(|made| made.intervals.len() <= INTERVALS_MAX)
    }

    fn comparison(
        &self,
        operator: BinaryOperator,
        one: &Expression,
        two: &Expression,
    ) -> Option<(IndexPath, Vec<KeyInterval>)> {
        let (path, value, turned) = match (self.path(one), self.path(two)) {
            (Some(path), None) => (path, self.value(two)?, false),
            (None, Some(path)) => (path, self.value(one)?, true),
            _ => return None,
        };
        let interval = match operator {
            BinaryOperator::Equal => KeyInterval::of(&value),
            BinaryOperator::Greater | BinaryOperator::GreaterOrEqual => {
                KeyInterval::on_side(&value, !turned)
            }
            BinaryOperator::Less | BinaryOperator::LessOrEqual => {
                KeyInterval::on_side(&value, turned)
            }
            _ => return None,
        };
        Some((path, interval.into_iter().collect()))
    }

    fn between(&self, three: &[Expression; 3]) -> Option<(IndexPath, Vec<KeyInterval>)> {
        let [of, low, high] = three;
        let low = KeyInterval::on_side(&self.value(low)?, true);
        let high = KeyInterval::on_side(&self.value(high)?, false);
        let both = low.zip(high).and_then(|(low, high)| low.intersect(&high));
        Some((self.path(of)?, both.into_iter().collect()))
    }

    fn call(&self, name: &str, list: &[Expression]) -> Option<(IndexPath, Vec<KeyInterval>)> {
        let (one, two, rest) = match list {
            [one, two, rest @ ..] => (one, two, rest),
            _ => return None,
        };
        // A third argument means "ignore case" or "match in part", unless it is the literal false.
        let is_plain = rest.iter().all(
            |third| matches!(&third.node, Node::Literal(value) if value.as_bool() == Some(false)),
        );
        if !is_plain {
            return None;
        }
        match name {
            "STARTSWITH" => Some((self.path(one)?, starting(self.value(two)?.as_text()?)?)),
            "ARRAY_CONTAINS" => match self.path(one) {
                Some(mut path) => {
                    path.0.push(PathStep::Element);
                    Some((path, KeyInterval::of(&self.value(two)?).into_iter().collect()))
                }
                None => {
                    let listed = self.value(one)?;
                    let elements = listed.elements()?;
                    let intervals = elements.iter().filter_map(KeyInterval::of).collect();
                    Some((self.path(two)?, intervals))
                }
            },
            _ => None,
        }
    }

    /// The restriction of `EXISTS`: a row of the sub-query must pass its filter. Its names extend the outer ones.
    fn exists(&self, select: &'q Select) -> Option<Restriction> {
        if has_aggregates(select) || !select.group_by.is_empty() {
            return None;
        }
        let mut inner = Names { parameters: self.parameters, known: self.known.clone() };
        inner.introduce(select, false);
        conjuncts(select.filter.as_ref()?).iter().find_map(|one| inner.restriction(one))
    }

    /// The union of the branches' restrictions, if every branch restricts the same path.
    fn either(&self, list: &'q [Expression]) -> Option<Restriction> {
        let mut all = list.iter().map(|one| self.restriction(one));
        let mut sum = all.next()??;
        for one in all {
            let one = one.filter(|one| one.path == sum.path)?;
            sum.intervals.extend(one.intervals);
        }
        Some(finished(sum.path, sum.intervals)).filter(|sum| sum.intervals.len() <= INTERVALS_MAX)
    }
}

/// The strings with a prefix; `None` for the empty prefix, which all strings have.
fn starting(prefix: &str) -> Option<Vec<KeyInterval>> {
    (!prefix.is_empty()).then(|| vec![KeyInterval::starting(prefix)])
}

/// Sorts and merges the intervals. Adds the key of items with too many array elements to list.
fn finished(path: IndexPath, mut intervals: Vec<KeyInterval>) -> Restriction {
    if path.0.contains(&PathStep::Element) && !intervals.is_empty() {
        intervals.push(KeyInterval::anything());
    }
    intervals.sort();
    let mut merged: Vec<KeyInterval> = Vec::with_capacity(intervals.len());
    for interval in intervals {
        match merged.last_mut().filter(|last| interval.from < last.to) {
            Some(last) => {
                last.is_point &= interval.is_point && last.to == interval.to;
                if interval.to > last.to {
                    last.to = interval.to;
                }
            }
            None => merged.push(interval),
        }
    }
    Restriction { path, intervals: merged }
}
