//! Which values of some paths a filter allows.
//!
//! `c.id = @a AND c.pk IN (1, 2)` gives two candidates for the paths `/id` and `/pk`. The result
//! is conservative: it may allow more than the filter does, never less.

use std::borrow::Cow;

use crate::ast::{BinaryOperator, Collection, Expression, Node, Select, UnaryOperator};
use crate::compile::Parameters;
use crate::evaluate::LikePattern;
use crate::value::Value;

/// One possible combination: for each path its value, or `None` where any value is possible.
pub type Candidate = Vec<Option<Value<'static>>>;

/// The most combinations; beyond it a scan is cheaper.
const CANDIDATES_MAX: usize = 20_000;

/// The combinations a query can match; `None` if it can match anything, an empty list if nothing.
pub(crate) fn candidates(
    tree: &Select,
    parameters: &Parameters,
    paths: &[Vec<&str>],
) -> Option<Vec<Candidate>> {
    let root = root_alias(tree)?;
    let filter = tree.filter.as_ref()?;
    let possible = Search { root, parameters, paths }.possible(filter);
    let is_open = possible.iter().any(|candidate| candidate.iter().all(Option::is_none));
    (!is_open).then_some(possible)
}

/// The name of the item itself, if `FROM` defines one.
pub(super) fn root_alias(tree: &Select) -> Option<&str> {
    let first = &tree.from.as_ref()?.first;
    match &first.collection {
        Collection::Path(Expression { node: Node::Name(name), .. }) if !first.each => {
            Some(first.alias.as_deref().unwrap_or(name))
        }
        _ => None,
    }
}

/// The value of a literal or parameter; `None` for a parameter that was not sent. Anything else is
/// undefined.
pub(crate) fn constant(expression: &Expression, parameters: &Parameters) -> Option<Value<'static>> {
    match &expression.node {
        Node::Literal(value) => Some(value.clone()),
        Node::Parameter(name) => parameters.get(name).cloned(),
        _ => Some(Value::Undefined),
    }
}

/// The constant value of an expression: a literal, a parameter or a negative number.
pub(super) fn fixed_value(
    expression: &Expression,
    parameters: &Parameters,
) -> Option<Value<'static>> {
    match &expression.node {
        Node::Literal(_) | Node::Parameter(_) => constant(expression, parameters),
        Node::Unary(UnaryOperator::Minus, of) => match &of.node {
            Node::Literal(value) => value.as_number().map(|number| Value::number(-number)),
            _ => None,
        },
        _ => None,
    }
}

struct Search<'s> {
    root: &'s str,
    parameters: &'s Parameters,
    paths: &'s [Vec<&'s str>],
}

impl Search<'_> {
    /// A candidate that allows any value everywhere.
    fn open(&self) -> Vec<Candidate> {
        vec![vec![None; self.paths.len()]]
    }

    fn possible(&self, filter: &Expression) -> Vec<Candidate> {
        match &filter.node {
            Node::And(list) => list.iter().fold(self.open(), |so_far, one| {
                let more = self.possible(one);
                if so_far.len().saturating_mul(more.len()) > CANDIDATES_MAX {
                    return if so_far.len() <= more.len() { so_far } else { more };
                }
                both(&so_far, &more)
            }),
            Node::Or(list) => {
                let mut all = Vec::new();
                for one in list {
                    all.extend(self.possible(one));
                    if all.len() > CANDIDATES_MAX {
                        return self.open();
                    }
                }
                all
            }
            Node::Literal(value) if !value.is_true() => Vec::new(),
            _ => self.single(filter).unwrap_or_else(|| self.open()),
        }
    }

    /// The candidates of a condition on one path; `None` if it is not one, or allows too many values.
    fn single(&self, filter: &Expression) -> Option<Vec<Candidate>> {
        match &filter.node {
            Node::Binary(BinaryOperator::Equal, one, two) => {
                self.equal(one, two).or_else(|| self.equal(two, one))
            }
            Node::In(of, list, false) => self.one_of(of, list),
            Node::Like(of, pattern, escape, false) => {
                let escape = match escape {
                    Some(escape) => Some(self.value(escape)?),
                    None => None,
                };
                let pattern = LikePattern::new(&self.value(pattern)?, escape.as_ref())?;
                self.any_of(of, [Value::text(pattern.only_text()?)])
            }
            Node::Unary(UnaryOperator::Not, of) => self.any_of(of, [Value::Bool(false)]),
            Node::Call(name, list) => match (name.as_str(), list.as_slice()) {
                ("IS_BOOL", [of]) => self.any_of(of, [Value::Bool(true), Value::Bool(false)]),
                ("IS_NULL", [of]) => self.any_of(of, [Value::Null]),
                ("ARRAY_CONTAINS", [Expression { node: Node::Array(list), .. }, of]) => {
                    self.one_of(of, list)
                }
                ("ARRAY_CONTAINS", [list, of]) => {
                    self.any_of(of, self.value(list)?.elements()?.into_owned())
                }
                _ => None,
            },
            Node::Name(_) | Node::Property(..) => self.any_of(filter, [Value::Bool(true)]),
            _ => None,
        }
    }

    fn equal(&self, path: &Expression, value: &Expression) -> Option<Vec<Candidate>> {
        if let Node::Call(name, list) = &path.node
            && let ("ABS", [of]) = (name.as_str(), list.as_slice())
        {
            let number = self.value(value)?.as_number()?;
            return self.any_of(of, [Value::number(number), Value::number(-number)]);
        }
        self.any_of(path, [self.value(value)?])
    }

    fn one_of(&self, path: &Expression, list: &[Expression]) -> Option<Vec<Candidate>> {
        self.any_of(path, list.iter().map(|one| self.value(one)).collect::<Option<Vec<_>>>()?)
    }

    /// One candidate for each of these values of a path.
    fn any_of(
        &self,
        path: &Expression,
        values: impl IntoIterator<Item = Value<'static>>,
    ) -> Option<Vec<Candidate>> {
        let place = self.place(path)?;
        let mut all = Vec::new();
        for value in values {
            if all.len() >= CANDIDATES_MAX {
                return None;
            }
            all.extend(self.with(place, value));
        }
        Some(all)
    }

    /// The candidate with this value; none if the value is undefined, which equals nothing.
    fn with(&self, place: usize, value: Value<'static>) -> Vec<Candidate> {
        if value.is_undefined() {
            return Vec::new();
        }
        let mut candidate = vec![None; self.paths.len()];
        candidate[place] = Some(value);
        vec![candidate]
    }

    /// The place of the path that an expression is.
    fn place(&self, expression: &Expression) -> Option<usize> {
        let names = expression.path()?;
        let (first, rest) = names.split_first()?;
        if *first != self.root {
            return None;
        }
        self.paths.iter().position(|path| path == rest)
    }

    /// The constant value of an expression, if it is simple to determine.
    fn value(&self, expression: &Expression) -> Option<Value<'static>> {
        match &expression.node {
            Node::Array(list) => {
                let elements = list.iter().map(|one| self.value(one));
                Some(Value::array(elements.collect::<Option<Vec<_>>>()?))
            }
            Node::Object(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| Some((Cow::Owned(name.clone()), self.value(value)?)));
                Some(Value::object(members.collect::<Option<Vec<_>>>()?))
            }
            _ => fixed_value(expression, self.parameters),
        }
    }
}

/// The combinations that both sides allow. Two different values for one path exclude each other.
fn both(one: &[Candidate], two: &[Candidate]) -> Vec<Candidate> {
    let mut all = Vec::new();
    for one in one {
        for two in two {
            let merged = one
                .iter()
                .zip(two)
                .map(|pair| match pair {
                    (Some(one), Some(two)) if one.equals(two) != Some(true) => Err(()),
                    (Some(value), _) | (None, Some(value)) => Ok(Some(value.clone())),
                    (None, None) => Ok(None),
                })
                .collect::<Result<Candidate, ()>>();
            all.extend(merged);
        }
    }
    all
}
