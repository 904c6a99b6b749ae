//! Computed properties: names a container gives to expressions, so that queries can use them.
//!
//! ```text
//! {"name": "lowerName", "query": "SELECT VALUE LOWER(c.name) FROM c"}
//! SELECT c.lowerName FROM c      is      SELECT LOWER(c.name) AS lowerName FROM c
//! ```
//!
//! They are computed for each item as it is read; nothing of them is stored, and `SELECT *` does
//! not include them. One cannot refer to another, so there are no cycles.

use crate::ast::{Expression, Node, Projection, Select};
use crate::compile::grouping::has_aggregates;
use crate::compile::{Parameters, compile};
use crate::error::{Problem, QueryError, Span};
use crate::limits::Limits;
use crate::parser::parse;

/// A named expression over an item.
#[derive(Clone, Debug)]
pub struct ComputedProperty {
    name: String,
    /// The expression's name for the item.
    item: String,
    expression: Expression,
}

impl ComputedProperty {
    /// Parses the query of a computed property. It must be `SELECT VALUE` of one expression with a `FROM` that
    /// names the item, and nothing else.
    pub fn parse(name: &str, query: &str) -> Result<ComputedProperty, QueryError> {
        let limits = Limits::default();
        let tree = parse(query, &limits)?;
        let refuse = || {
            let problem = "The query of a computed property is SELECT VALUE with one expression and \
                           FROM with the item, and nothing else";
            let span = Span { start: 0, end: query.len() };
            QueryError::new(Problem::Meaning(problem.to_owned()), span, query)
        };
        let item = item_name(&tree).ok_or_else(refuse)?.to_owned();
        compile(query, &tree, &Parameters::new(), &limits, None)?;
        let Projection::Value(expression) = tree.projection else { return Err(refuse()) };
        Ok(ComputedProperty { name: name.to_owned(), item, expression })
    }

    /// The name queries use.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn item(&self) -> &str {
        &self.item
    }

    pub(crate) fn expression(&self) -> &Expression {
        &self.expression
    }
}

/// The item's name in a query that only projects; `None` if it does more.
fn item_name(tree: &Select) -> Option<&str> {
    let only_projects = !tree.distinct
        && !has_aggregates(tree)
        && tree.top.is_none()
        && tree.filter.is_none()
        && tree.group_by.is_empty()
        && tree.order_by.is_empty()
        && tree.offset_limit.is_none()
        && !has_aggregates(tree);
    let from = tree.from.as_ref().filter(|from| only_projects && from.joins.is_empty())?;
    match &from.first.collection {
        crate::ast::Collection::Path(Expression { node: Node::Name(name), .. })
            if !from.first.each =>
        {
            Some(from.first.alias.as_deref().unwrap_or(name))
        }
        _ => None,
    }
}
