//! Compiles expressions outside of groups.

use std::collections::{HashMap, HashSet};

use super::{Binding, Compiler, Operation, Part};
use crate::ast::{Expression, Node};
use crate::error::{Problem, QueryError, Span, closest};
use crate::evaluate::LikePattern;
use crate::functions::{self, Body, Function};
use crate::value::{Key, Value};

/// The most names searched in one walk over an item or an element. The walk compares each property with each
/// name and cannot be interrupted; further names take a walk of their own, which is charged.
const LISTED_NAMES_MAX: usize = 256;

impl Compiler<'_> {
    /// Compiles an expression over one row.
    pub(super) fn plain(&mut self, expression: &Expression) -> Result<Operation, QueryError> {
        self.node(expression, &mut |compiler, inner| compiler.plain(inner))
    }

    pub(super) fn plain_list(&mut self, list: &[Expression]) -> Result<Vec<Operation>, QueryError> {
        list.iter().map(|one| self.plain(one)).collect()
    }

    /// Compiles one node. `inner` compiles its operands, so that grouping can check them first.
    pub(super) fn node(
        &mut self,
        expression: &Expression,
        inner: &mut dyn FnMut(&mut Self, &Expression) -> Result<Operation, QueryError>,
    ) -> Result<Operation, QueryError> {
        let span = expression.span;
        Ok(match &expression.node {
            Node::Literal(value) => Operation::Constant(value.clone()),
            Node::OrderByFilter => Operation::Constant(Value::Bool(true)),
            Node::Parameter(name) => {
                let value = self.parameters.get(name).ok_or_else(|| self.missing(expression))?;
                // Each use of a parameter copies its value.
                let left = self.parameter_bytes_left.checked_sub(value.owned_bytes());
                self.parameter_bytes_left = left.ok_or_else(|| {
                    let problem = format!(
                        "The query mentions parameter {name} too often for its length: all mentions together stand \
                         for more bytes than a query may hold; mention it once, in a sub-query"
                    );
                    self.error(Problem::TooLarge(problem), span)
                })?;
                Operation::Constant(value.clone())
            }
            Node::Name(name) => match self.resolve(name, span)? {
                Binding::Root => Operation::Root,
                Binding::Slot(slot) => Operation::Slot(slot),
            },
            Node::Property(of, name) => match inner(self, of)? {
                Operation::Root => self.item_property(name)?,
                of => self.member(of, name),
            },
            Node::Index(of, index) => match (inner(self, of)?, inner(self, index)?) {
                (Operation::Root, Operation::Constant(Value::String(name))) => {
                    self.item_property(&name)?
                }
                (of, Operation::Constant(Value::String(name))) => self.member(of, &name),
                (of, index) => Operation::Index(Box::new(of), Box::new(index)),
            },
            Node::Unary(operator, of) => Operation::Unary(*operator, Box::new(inner(self, of)?)),
            Node::Binary(operator, one, two) => {
                let (one, two) = (inner(self, one)?, inner(self, two)?);
                Operation::Binary(*operator, Box::new(one), Box::new(two))
            }
            Node::And(list) => Operation::And(self.each(list, inner)?),
            Node::Or(list) => Operation::Or(self.each(list, inner)?),
            Node::Conditional(three) => Operation::Conditional(self.three(three, inner)?),
            Node::In(of, list, negated) => {
                let of = Box::new(inner(self, of)?);
                negate(in_list(of, self.each(list, inner)?), *negated)
            }
            Node::Between(three, negated) => {
                negate(Operation::Between(self.three(three, inner)?), *negated)
            }
            Node::Like(of, pattern, escape, negated) => {
                let of = Box::new(inner(self, of)?);
                let pattern = inner(self, pattern)?;
                let escape = escape.as_ref().map(|escape| inner(self, escape)).transpose()?;
                negate(like(of, pattern, escape), *negated)
            }
            Node::Call(name, list) => self.call(name, list, span, inner)?,
            Node::UserCall(..) | Node::Scalar(_) | Node::ArrayOf(_) | Node::Exists(_)
                if self.computed.is_none() =>
            {
                let problem =
                    "A computed property cannot use sub-queries or user-defined functions";
                return Err(self.meaning(problem, span));
            }
            Node::UserCall(name, list) => {
                if !self.user_functions.contains(name) {
                    self.user_functions.push(name.clone());
                }
                Operation::UserCall(name.clone(), self.each(list, inner)?)
            }
            Node::Array(list) => array(self.each(list, inner)?),
            Node::Object(members) => {
                let mut compiled = Vec::with_capacity(members.len());
                for (name, value) in members {
                    compiled.push((name.clone(), inner(self, value)?));
                }
                object(compiled)
            }
            Node::Scalar(select) => Operation::Scalar(Box::new(self.select(select, false)?)),
            Node::ArrayOf(select) => Operation::ArrayOf(Box::new(self.select(select, false)?)),
            Node::Exists(select) => Operation::Exists(Box::new(self.select(select, false)?)),
        })
    }

    fn each(
        &mut self,
        list: &[Expression],
        inner: &mut dyn FnMut(&mut Self, &Expression) -> Result<Operation, QueryError>,
    ) -> Result<Vec<Operation>, QueryError> {
        list.iter().map(|one| inner(self, one)).collect()
    }

    fn three(
        &mut self,
        [one, two, three]: &[Expression; 3],
        inner: &mut dyn FnMut(&mut Self, &Expression) -> Result<Operation, QueryError>,
    ) -> Result<Box<[Operation; 3]>, QueryError> {
        Ok(Box::new([inner(self, one)?, inner(self, two)?, inner(self, three)?]))
    }

    /// Compiles a property of the item: a stored one, or a computed property of the container.
    fn item_property(&mut self, name: &str) -> Result<Operation, QueryError> {
        let all = self.computed.unwrap_or_default();
        let Some(property) = all.iter().find(|one| one.name() == name) else {
            return Ok(match place_in(&mut self.wanted, name) {
                Some(place) => Operation::Wanted(place),
                None => Operation::Member(Box::new(Operation::Root), name.to_owned()),
            });
        };
        let names =
            std::mem::replace(&mut self.names, vec![(property.item().into(), Binding::Root)]);
        let computed = self.computed.take();
        let operation = self.plain(property.expression());
        self.names = names;
        self.computed = computed;
        operation
    }

    /// Compiles a property of a value.
    fn member(&mut self, of: Operation, name: &str) -> Operation {
        if let Operation::Slot(slot) = of
            && let Some(parts) = self.parts_of.get(slot).and_then(|at| self.parts.get_mut(*at))
            && let Some(place) = place_in(parts, name)
        {
            return Operation::Part(Box::new(Part { slot, place, name: name.to_owned() }));
        }
        Operation::Member(Box::new(of), name.to_owned())
    }

    fn call(
        &mut self,
        name: &str,
        list: &[Expression],
        span: Span,
        inner: &mut dyn FnMut(&mut Self, &Expression) -> Result<Operation, QueryError>,
    ) -> Result<Operation, QueryError> {
        let Some(function) = functions::find(name) else {
            let known = functions::all().map(|function| function.name);
            let suggestion = closest(name, known).map(|name| format!("'{name}'"));
            let problem = Problem::UnknownFunction(name.to_owned());
            return Err(self.error(problem, span).suggesting(suggestion));
        };
        if !function.takes(list.len()) {
            let problem = Problem::ArgumentCount { function: function.name, found: list.len() };
            let shape = format!("{}{}", function.name, function.arguments);
            return Err(self.error(problem, span).expecting(shape));
        }
        match function.body {
            Body::NotYet => Err(self.error(Problem::NotSupported(function.name.to_owned()), span)),
            Body::Aggregate(_) => {
                let problem = format!(
                    "The aggregate {} can stand only in SELECT or ORDER BY, and not inside another",
                    function.name
                );
                Err(self.meaning(problem, span))
            }
            _ => Ok(membership(function, self.each(list, inner)?)),
        }
    }
}

/// The place of a name in a list; a new name is added, `None` if the list is full.
fn place_in(names: &mut Vec<String>, name: &str) -> Option<usize> {
    names.iter().position(|known| known == name).or_else(|| {
        let place = names.len();
        (place < LISTED_NAMES_MAX).then(|| names.push(name.to_owned())).map(|()| place)
    })
}

/// Compiles `ARRAY_CONTAINS` of a constant array as `IN`: clients send long arrays.
fn membership(function: &'static Function, mut list: Vec<Operation>) -> Operation {
    if function.name != "ARRAY_CONTAINS" || list.len() != 2 {
        return Operation::Call(function, list);
    }
    let set = match &list[0] {
        Operation::Constant(array) => array.elements().map(|all| all.iter().map(Key::of).collect()),
        _ => None,
    };
    match (set, list.pop()) {
        (Some(set), Some(wanted)) => Operation::InSet(Box::new(wanted), set),
        (_, wanted) => {
            list.extend(wanted);
            Operation::Call(function, list)
        }
    }
}

fn negate(operation: Operation, negated: bool) -> Operation {
    if negated { Operation::Not(Box::new(operation)) } else { operation }
}

/// Compiles `IN`. With constants only it uses a hash set, whatever the length of the list.
fn in_list(of: Box<Operation>, list: Vec<Operation>) -> Operation {
    let mut set = HashSet::with_capacity(list.len());
    for one in &list {
        match one {
            Operation::Constant(value) if !value.is_undefined() => set.insert(Key::of(value)),
            _ => return Operation::In(of, list),
        };
    }
    Operation::InSet(of, set)
}

fn like(of: Box<Operation>, pattern: Operation, escape: Option<Operation>) -> Operation {
    match (pattern, escape) {
        (Operation::Constant(pattern), None) => match LikePattern::new(&pattern, None) {
            Some(pattern) => Operation::Like(of, Box::new(pattern)),
            None => Operation::Constant(Value::Undefined),
        },
        (Operation::Constant(pattern), Some(Operation::Constant(escape))) => {
            match LikePattern::new(&pattern, Some(&escape)) {
                Some(pattern) => Operation::Like(of, Box::new(pattern)),
                None => Operation::Constant(Value::Undefined),
            }
        }
        (pattern, escape) => Operation::LikeDynamic(of, Box::new(pattern), escape.map(Box::new)),
    }
}

fn array(list: Vec<Operation>) -> Operation {
    match list.iter().map(constant).collect::<Option<Vec<_>>>() {
        Some(values) => Operation::Constant(Value::array(values)),
        None => Operation::Array(list),
    }
}

/// Compiles an object. Of a repeated name the last value counts, at the first place.
pub(super) fn object(members: Vec<(String, Operation)>) -> Operation {
    let mut places = HashMap::new();
    let mut unique: Vec<(String, Operation)> = Vec::with_capacity(members.len());
    for (name, value) in members {
        match places.get(&name) {
            Some(place) => unique[*place] = (name, value),
            None => {
                places.insert(name.clone(), unique.len());
                unique.push((name, value));
            }
        }
    }
    let members = unique;
    let values = members
        .iter()
        .map(|(name, value)| Some((name.clone().into(), constant(value)?)))
        .collect::<Option<Vec<_>>>();
    match values {
        Some(values) => Operation::Constant(Value::object(values)),
        None => Operation::Object(members),
    }
}

fn constant(operation: &Operation) -> Option<Value<'static>> {
    match operation {
        Operation::Constant(value) => Some(value.clone()),
        _ => None,
    }
}
