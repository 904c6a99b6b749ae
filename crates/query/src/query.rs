//! A parsed query, with the values of its parameters.

use std::fmt;
use std::sync::Arc;

use headwater_model::PartitionKeyDefinition;

use crate::ast::{Collection, Expression, From, Node, Projection, Select, Source};
use crate::compile::{Compiled, Parameters, compile};
use crate::computed::ComputedProperty;
use crate::error::{Problem, QueryError, Span};
use crate::evaluate::{Context, Progress, Run};
use crate::index_key::IndexPath;
use crate::lexer;
use crate::limits::Limits;
use crate::order_key::Ordering;
use crate::parser::{parse, parse_expression, parse_projection};
use crate::plan::{
    Candidate, PlanDocument, Restriction, candidates, order_paths, plan, plan_of_one_key,
    plan_over_all_keys, restrictions,
};
use crate::value::Value;

/// The name of the item in a condition and a shape.
const ITEM_NAME: &str = "c";

/// A parsed query text, without values for its parameters. Parsing is most of the cost of a small query, so
/// callers that run the same text repeatedly should keep this (a plan cache).
#[derive(Clone)]
pub struct Parsed {
    text: Arc<str>,
    tree: Arc<Select>,
}

impl Parsed {
    /// Parses a text.
    ///
    /// # Errors
    /// When the text is not a query, or exceeds a limit.
    pub fn parse(text: &str) -> Result<Parsed, QueryError> {
        let tree = parse(text, &Limits::default())?;
        Ok(Parsed { text: text.into(), tree: Arc::new(tree) })
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Binds the parameter values, for a container with these computed properties.
    ///
    /// # Errors
    /// When the query is not valid with these values.
    pub fn with(
        &self,
        parameters: &[(String, Value<'static>)],
        computed: &[ComputedProperty],
    ) -> Result<Query, QueryError> {
        let parameters = parameters.iter().cloned().collect();
        Query::of_parsed(self.clone(), parameters, &Limits::default(), computed)
    }
}

impl fmt::Debug for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parsed").field("text", &self.text).finish_non_exhaustive()
    }
}

/// A query that is ready to run any number of times.
#[derive(Clone)]
pub struct Query {
    text: Arc<str>,
    tree: Arc<Select>,
    parameters: Arc<Parameters>,
    compiled: Arc<Compiled>,
    /// Names of computed properties, which stand for expressions and not for stored properties.
    computed: Arc<[String]>,
}

impl Query {
    /// Parses a query. Parameter names include their `@`.
    pub fn parse(text: &str, parameters: &[(String, Value<'static>)]) -> Result<Query, QueryError> {
        Query::parse_within(text, parameters, &Limits::default())
    }

    /// Parses a query with other limits.
    pub fn parse_within(
        text: &str,
        parameters: &[(String, Value<'static>)],
        limits: &Limits,
    ) -> Result<Query, QueryError> {
        Query::understand(text, parameters, limits, &[])
    }

    /// Parses a query over a container with these computed properties.
    pub fn parse_over(
        text: &str,
        parameters: &[(String, Value<'static>)],
        computed: &[ComputedProperty],
    ) -> Result<Query, QueryError> {
        Query::understand(text, parameters, &Limits::default(), computed)
    }

    /// The names of the parameters in a text, each once; empty if it is not a query.
    #[must_use]
    pub fn parameters_in(text: &str) -> Vec<&str> {
        match text.len() <= Limits::default().text_bytes {
            true => lexer::parameters(text),
            false => Vec::new(),
        }
    }

    fn understand(
        text: &str,
        parameters: &[(String, Value<'static>)],
        limits: &Limits,
        computed: &[ComputedProperty],
    ) -> Result<Query, QueryError> {
        let tree = parse(text, limits)?;
        Query::of_tree(text, tree, parameters.iter().cloned().collect(), limits, computed)
    }

    /// Parses a condition on single items, which it calls `c`, such as `c.total > 100`. The query
    /// returns one row for an item that satisfies it and none for any other.
    pub fn condition(text: &str) -> Result<Query, QueryError> {
        let limits = Limits::default();
        let filter = parse_expression(text, &limits)?;
        let one = Expression::new(Node::Literal(Value::Bool(true)), Span::default());
        let tree = of_items(Projection::Value(one), Some(filter));
        Query::of_tree(text, tree, Parameters::new(), &limits, &[])?.item_by_item(text)
    }

    /// Parses a projection of single items, which it calls `c`, such as `c.id, c.total * 2 AS n`.
    /// The query returns one object for each item.
    pub fn shape(text: &str) -> Result<Query, QueryError> {
        let limits = Limits::default();
        let projection = parse_projection(text, &limits)?;
        if let Projection::Value(expression) = &projection {
            let problem = "'VALUE' makes no object; list what to show, as in 'c.id, c.total'";
            let problem = Problem::Meaning(problem.to_owned());
            return Err(QueryError::new(problem, expression.span, text));
        }
        let tree = of_items(projection, None);
        Query::of_tree(text, tree, Parameters::new(), &limits, &[])?.item_by_item(text)
    }

    /// The names of the properties of its rows, if the query lists them.
    pub fn column_names(&self) -> Vec<String> {
        match &self.tree.projection {
            Projection::List(columns) => crate::compile::column_names(columns),
            Projection::All | Projection::Value(_) => Vec::new(),
        }
    }

    /// Rejects a query that cannot be answered for each item on its own.
    fn item_by_item(self, text: &str) -> Result<Query, QueryError> {
        let problem = if !self.is_streaming() {
            Problem::Meaning("An aggregate needs all items, and here there is one".to_owned())
        } else if let Some(name) = self.user_functions().first() {
            Problem::NotSupported(format!("The user-defined function '{name}' here"))
        } else {
            return Ok(self);
        };
        Err(QueryError::new(problem, Span { start: 0, end: text.len() }, text))
    }

    fn of_tree(
        text: &str,
        tree: Select,
        parameters: Parameters,
        limits: &Limits,
        computed: &[ComputedProperty],
    ) -> Result<Query, QueryError> {
        let parsed = Parsed { text: text.into(), tree: Arc::new(tree) };
        Query::of_parsed(parsed, parameters, limits, computed)
    }

    fn of_parsed(
        Parsed { text, tree }: Parsed,
        parameters: Parameters,
        limits: &Limits,
        computed: &[ComputedProperty],
    ) -> Result<Query, QueryError> {
        let compiled = compile(&text, &tree, &parameters, limits, Some(computed))?;
        Ok(Query {
            text,
            tree,
            parameters: Arc::new(parameters),
            compiled: Arc::new(compiled),
            computed: computed.iter().map(|one| one.name().to_owned()).collect(),
        })
    }

    /// The query text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A string that identifies the query: text and parameters. It contains parameter values, so never log it.
    pub fn identity(&self) -> String {
        let mut parameters: Vec<_> = self.parameters.iter().collect();
        parameters.sort_by_key(|(name, _)| *name);
        let mut identity = self.text.to_string();
        for (name, value) in parameters {
            identity.push('\n');
            identity.push_str(name);
            identity.push('=');
            identity.push_str(&String::from_utf8_lossy(&value.to_json()));
        }
        identity
    }

    /// The syntax tree.
    pub fn tree(&self) -> &Select {
        &self.tree
    }

    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Starts an execution.
    pub fn start(&self, context: Context) -> Run {
        self.resume(context, Progress::default())
    }

    /// Starts an execution where an earlier one of a streaming query stopped.
    pub fn resume(&self, context: Context, progress: Progress) -> Run {
        Run::new(Arc::clone(&self.compiled), context, progress)
    }

    /// Whether the query returns rows while items are pushed. Otherwise every item must be pushed before the
    /// first row is known.
    pub fn is_streaming(&self) -> bool {
        match self.compiled.stages.as_slice() {
            [only] => only.is_streaming() && !only.sources.is_empty(),
            _ => false,
        }
    }

    /// Whether only its order keeps the query from streaming, so that a page can resume after the last row of
    /// the previous one: see [`Run::for_page`].
    pub fn is_sorted_only(&self) -> bool {
        match self.compiled.stages.as_slice() {
            [only] => {
                !only.grouped
                    && !only.distinct
                    && !only.order.is_empty()
                    && !only.sources.is_empty()
                    && only.reach() != Some(0)
            }
            _ => false,
        }
    }

    /// Whether an item may have no row: the query has a filter, iterates over parts of items, or selects a single
    /// value, which may be undefined.
    pub fn may_pass_over(&self) -> bool {
        let is_item = |from: &From| {
            let whole = match &from.first.collection {
                Collection::Path(path) => matches!(path.node, Node::Name(_)),
                Collection::Query(_) => false,
            };
            whole && !from.first.each && from.joins.is_empty()
        };
        let is_object = !matches!(self.tree.projection, Projection::Value(_));
        let of_items = self.tree.from.as_ref().is_some_and(is_item);
        !(is_object && of_items && self.tree.filter.is_none())
    }

    /// How many rows to skip, and the most rows to return after that.
    pub fn window(&self) -> (u64, Option<u64>) {
        self.compiled.stages.last().map_or((0, None), |last| (last.skip, last.take))
    }

    /// Whether the query reads items; `SELECT VALUE 1` does not.
    pub fn reads_items(&self) -> bool {
        self.compiled.stages.first().is_some_and(|stage| !stage.sources.is_empty())
    }

    /// Whether the query only counts items, so that a caller that knows the number need not push any: see
    /// [`Run::count`].
    pub fn only_counts(&self) -> bool {
        self.compiled.only_counts()
    }

    /// Whether a sub-query must read the whole container first.
    pub(crate) fn has_stages(&self) -> bool {
        self.compiled.stages.len() > 1
    }

    /// Whether the rows of several ranges must be merged: sorted, grouped or counted.
    pub fn needs_plan(&self) -> bool {
        let stages = &self.compiled.stages;
        stages.len() > 1 || stages.iter().any(|one| !one.is_streaming() || one.take.is_some())
    }

    /// The plan that an SDK needs to run the query over the ranges of a container with this partition key.
    pub fn plan(&self, definition: &PartitionKeyDefinition) -> Result<PlanDocument, QueryError> {
        plan(self, definition)
    }

    /// The plan over all ranges, for a filter with parameters whose values are not known yet.
    pub fn plan_over_all_keys(&self) -> Result<PlanDocument, QueryError> {
        plan_over_all_keys(self)
    }

    /// The plan for a client that queries one partition key: a single range returns the whole result.
    pub fn plan_of_one_key(&self) -> PlanDocument {
        plan_of_one_key(self)
    }

    /// The values that an item must have at these paths to match, one entry for each possible
    /// combination; `None` in an entry where any value is possible.
    ///
    /// `None` as a whole means that every item must be read, an empty list that none need be.
    /// A path is the property names from the item down, such as `["address", "city"]`. Items that
    /// fit no candidate never match; those that fit one may or may not.
    pub fn candidates(&self, paths: &[Vec<&str>]) -> Option<Vec<Candidate>> {
        if self.has_stages() || paths.iter().any(|path| self.is_computed(path.first().copied())) {
            return None;
        }
        candidates(&self.tree, &self.parameters, paths)
    }

    /// Whether a search for bytes shows that an item has no row. `item` is its JSON, which may lack its last
    /// brace.
    pub fn rules_out(&self, item: &[u8]) -> bool {
        self.compiled.rules_out(item)
    }

    /// The restrictions that the filter puts on values at single paths. Every matching item satisfies all of
    /// them, so it is enough to read the items that satisfy any one.
    pub fn restrictions(&self) -> Vec<Restriction> {
        if self.has_stages() {
            return Vec::new();
        }
        let mut restrictions = restrictions(&self.tree, &self.parameters);
        restrictions.retain(|one| !self.is_computed(one.path.first_name()));
        restrictions
    }

    /// The index order that returns items in the order of the rows. The query must [sort](Query::is_sorted_only)
    /// by single paths and restrict other paths to single values only. Restrictions on paths for which `may_know`
    /// is false are left to the filter. `fixed` are values that all candidate items have.
    pub fn ordering(
        &self,
        fixed: &[(IndexPath, Value<'static>)],
        may_know: impl Fn(&IndexPath) -> bool,
    ) -> Option<Ordering> {
        if !self.is_sorted_only() {
            return None;
        }
        let order = order_paths(&self.tree, &self.parameters)?;
        if order.iter().any(|one| self.is_computed(one.path.first_name())) {
            return None;
        }
        let mut restrictions = self.restrictions();
        restrictions.retain(|one| may_know(&one.path));
        Ordering::new(order, fixed, &restrictions)
    }

    /// Whether a name is a computed property, which no index covers.
    fn is_computed(&self, name: Option<&str>) -> bool {
        name.is_some_and(|name| self.computed.iter().any(|computed| computed == name))
    }

    /// The names of the user-defined functions it calls.
    pub fn user_functions(&self) -> &[String] {
        &self.compiled.user_functions
    }
}

/// `SELECT … FROM c WHERE …`.
fn of_items(projection: Projection, filter: Option<Expression>) -> Select {
    let span = Span::default();
    let path = Expression::new(Node::Name(ITEM_NAME.to_owned()), span);
    let first = Source { collection: Collection::Path(path), alias: None, each: false, span };
    Select {
        distinct: false,
        top: None,
        projection,
        from: Some(From { first, joins: Vec::new() }),
        filter,
        group_by: Vec::new(),
        order_by: Vec::new(),
        offset_limit: None,
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parameter values may be secret, and debug output ends up in logs.
        f.debug_struct("Query").field("text", &self.text).finish_non_exhaustive()
    }
}
