//! A query: a text that was understood, with the values of its parameters.

use std::fmt;
use std::sync::Arc;

use headwater_model::PartitionKeyDefinition;

use crate::ast::Select;
use crate::compile::{Compiled, Parameters, compile};
use crate::computed::ComputedProperty;
use crate::error::QueryError;
use crate::evaluate::{Context, Progress, Run};
use crate::limits::Limits;
use crate::parser::parse;
use crate::plan::{Candidate, PlanDocument, candidates, plan};
use crate::value::Value;

/// A query that is ready to run, as often as wanted.
#[derive(Clone)]
pub struct Query {
    text: Arc<str>,
    tree: Arc<Select>,
    parameters: Arc<Parameters>,
    compiled: Arc<Compiled>,
    /// Names that stand for expressions and not for what items hold.
    computed: Arc<[String]>,
}

impl Query {
    /// Understands a query. Parameter names carry their `@`.
    pub fn parse(text: &str, parameters: &[(String, Value<'static>)]) -> Result<Query, QueryError> {
        Query::parse_within(text, parameters, &Limits::default())
    }

    /// The same with other limits.
    pub fn parse_within(
        text: &str,
        parameters: &[(String, Value<'static>)],
        limits: &Limits,
    ) -> Result<Query, QueryError> {
        Query::understand(text, parameters, limits, &[])
    }

    /// The same over a container with these computed properties.
    pub fn parse_over(
        text: &str,
        parameters: &[(String, Value<'static>)],
        computed: &[ComputedProperty],
    ) -> Result<Query, QueryError> {
        Query::understand(text, parameters, &Limits::default(), computed)
    }

    fn understand(
        text: &str,
        parameters: &[(String, Value<'static>)],
        limits: &Limits,
        computed: &[ComputedProperty],
    ) -> Result<Query, QueryError> {
        let tree = parse(text, limits)?;
        let parameters: Parameters = parameters.iter().cloned().collect();
        let compiled = compile(text, &tree, &parameters, limits, Some(computed))?;
        Ok(Query {
            text: text.into(),
            tree: Arc::new(tree),
            parameters: Arc::new(parameters),
            compiled: Arc::new(compiled),
            computed: computed.iter().map(|one| one.name().to_owned()).collect(),
        })
    }

    /// The text as it was sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tree of the text.
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

    /// Starts an execution where an earlier one of a streaming query has stopped.
    pub fn resume(&self, context: Context, progress: Progress) -> Run {
        Run::new(Arc::clone(&self.compiled), context, progress)
    }

    /// Whether rows come out while items go in. Otherwise every item must be pushed before the
    /// first row is known.
    pub fn is_streaming(&self) -> bool {
        match self.compiled.stages.as_slice() {
            [only] => only.is_streaming() && !only.sources.is_empty(),
            _ => false,
        }
    }

    /// Whether items matter at all; `SELECT VALUE 1` needs none.
    pub fn reads_items(&self) -> bool {
        self.compiled.stages.first().is_some_and(|stage| !stage.sources.is_empty())
    }

    /// Whether a sub-query has to see the whole container first.
    pub(crate) fn has_stages(&self) -> bool {
        self.compiled.stages.len() > 1
    }

    /// Whether the rows of several ranges have to be merged by someone: sorted, grouped, counted.
    pub fn needs_plan(&self) -> bool {
        let stages = &self.compiled.stages;
        stages.len() > 1 || stages.iter().any(|one| !one.is_streaming() || one.take.is_some())
    }

    /// What an SDK needs to run it over the ranges of a container with this partition key.
    pub fn plan(&self, definition: &PartitionKeyDefinition) -> Result<PlanDocument, QueryError> {
        plan(self, definition)
    }

    /// The values of these paths that an item must have to match, one entry for each possible
    /// combination; `None` where any value is possible.
    ///
    /// `None` as a whole means that every item must be looked at, an empty list that none need be.
    /// A path is the property names from the item down, such as `["address", "city"]`. Items that
    /// fit no candidate never match; those that fit one may or may not.
    pub fn candidates(&self, paths: &[Vec<&str>]) -> Option<Vec<Candidate>> {
        let is_computed = |path: &Vec<&str>| {
            path.first().is_some_and(|first| self.computed.iter().any(|name| name == first))
        };
        if self.has_stages() || paths.iter().any(is_computed) {
            return None;
        }
        candidates(&self.tree, &self.parameters, paths)
    }

    /// The names of the user-defined functions it calls.
    pub fn user_functions(&self) -> &[String] {
        &self.compiled.user_functions
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parameter values are the users' secrets, and debug output ends up in logs.
        f.debug_struct("Query").field("text", &self.text).finish_non_exhaustive()
    }
}
