//! Compiles expressions over groups: what `SELECT` and `ORDER BY` may contain when rows are grouped.
//!
//! In a group, an expression listed in `GROUP BY` has one value, an aggregate has one value, and
//! everything else must be built from these. A bare property of a row has no single value there.

use super::{Compiler, Operation};
use crate::ast::{Expression, Node, Projection, Select};
use crate::error::{Problem, QueryError};
use crate::functions::{self, AggregateKind, Body};

impl Compiler<'_> {
    /// Whether the rows of this `SELECT` become groups.
    pub(super) fn is_grouped(&self, select: &Select) -> bool {
        !select.group_by.is_empty() || has_aggregates(select)
    }

    /// Compiles an expression over a group.
    pub(super) fn grouped(
        &mut self,
        expression: &Expression,
        group_by: &[Expression],
        aggregates: &mut Vec<(AggregateKind, Operation)>,
    ) -> Result<Operation, QueryError> {
        if let Some(group) = group_by.iter().position(|group| group == expression) {
            return Ok(Operation::Group(group));
        }
        match &expression.node {
            Node::Call(name, list) => {
                if let Some(kind) = aggregate_kind(name) {
                    return self.aggregate(kind, name, list, expression, aggregates);
                }
            }
            Node::Name(_) | Node::Property(..) | Node::Index(..)
                if !super::first_name(expression).is_empty()
                    && !is_part_of_key(expression, group_by) =>
            {
                let problem = format!(
                    "Property reference '{expression}' is invalid in the select list because it is \
                     not contained in either an aggregate function or the GROUP BY clause"
                );
                return Err(self.meaning(problem, expression.span));
            }
            Node::Scalar(_) | Node::ArrayOf(_) | Node::Exists(_) => {
                // A group has no current row, so a sub-query sees none of the outer names.
                let names = std::mem::take(&mut self.names);
                let operation = self.plain(expression);
                self.names = names;
                return operation;
            }
            _ => {}
        }
        self.node(expression, &mut |compiler, inner| compiler.grouped(inner, group_by, aggregates))
    }

    fn aggregate(
        &mut self,
        kind: AggregateKind,
        name: &str,
        list: &[Expression],
        expression: &Expression,
        aggregates: &mut Vec<(AggregateKind, Operation)>,
    ) -> Result<Operation, QueryError> {
        let ([argument], Some(function)) = (list, functions::find(name)) else {
            let function = functions::find(name).map_or("aggregate", |function| function.name);
            let problem = Problem::ArgumentCount { function, found: list.len() };
            return Err(self.error(problem, expression.span).expecting("one argument"));
        };
        debug_assert!(function.takes(1), "every aggregate takes one argument");
        let argument = self.plain(argument)?;
        aggregates.push((kind, argument));
        Ok(Operation::Aggregate(aggregates.len() - 1))
    }
}

/// Whether an expression is a property or an element of a `GROUP BY` expression, at any depth.
fn is_part_of_key(expression: &Expression, group_by: &[Expression]) -> bool {
    match &expression.node {
        Node::Property(of, _) | Node::Index(of, _) => {
            group_by.contains(of) || is_part_of_key(of, group_by)
        }
        _ => false,
    }
}

/// Whether the results of a query contain aggregates.
pub(crate) fn has_aggregates(select: &Select) -> bool {
    projects_aggregates(select) || orders_by_aggregates(select)
}

/// Whether all rows become one, so that sorting single rows has no effect.
pub(crate) fn is_one_row(select: &Select) -> bool {
    select.group_by.is_empty() && projects_aggregates(select) && !orders_by_aggregates(select)
}

fn projects_aggregates(select: &Select) -> bool {
    match &select.projection {
        Projection::All => false,
        Projection::Value(expression) => contains_aggregate(expression),
        Projection::List(columns) => {
            columns.iter().any(|column| contains_aggregate(&column.expression))
        }
    }
}

fn orders_by_aggregates(select: &Select) -> bool {
    select.order_by.iter().any(|item| contains_aggregate(&item.expression))
}

pub(crate) fn aggregate_kind(name: &str) -> Option<AggregateKind> {
    match functions::find(name)?.body {
        Body::Aggregate(kind) => Some(kind),
        _ => None,
    }
}

/// Whether an expression contains an aggregate outside of sub-queries, which have their own rows.
pub(crate) fn contains_aggregate(expression: &Expression) -> bool {
    let any = |list: &[Expression]| list.iter().any(contains_aggregate);
    match &expression.node {
        Node::Call(name, list) => aggregate_kind(name).is_some() || any(list),
        Node::UserCall(_, list) | Node::Array(list) | Node::And(list) | Node::Or(list) => any(list),
        Node::Property(of, _) | Node::Unary(_, of) => contains_aggregate(of),
        Node::Index(one, two) | Node::Binary(_, one, two) => {
            contains_aggregate(one) || contains_aggregate(two)
        }
        Node::Conditional(three) | Node::Between(three, _) => any(three.as_slice()),
        Node::In(of, list, _) => contains_aggregate(of) || any(list),
        Node::Like(of, pattern, ..) => contains_aggregate(of) || contains_aggregate(pattern),
        Node::Object(members) => members.iter().any(|(_, value)| contains_aggregate(value)),
        _ => false,
    }
}
