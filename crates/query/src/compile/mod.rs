//! Compiles a tree to a program: resolves names to slots and functions to code, and evaluates constants.
//!
//! Unknown names, wrong numbers of arguments and misplaced aggregates are errors here, with their position in
//! the text, so that evaluation has nothing left to check.
//!
//! ```text
//! SELECT VALUE t.n FROM c JOIN t IN c.tags WHERE c.on
//!   sources     Root (c), Each(c.tags) → slot 0 (t)
//!   filter      Wanted(on)
//!   projection  Part(slot 0, n)
//! ```

mod expression;
pub(crate) mod grouping;
mod needle;

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{Collection, Expression, Projection, Select, Source};
use crate::computed::ComputedProperty;
use crate::error::{Problem, QueryError, Span, closest};
use crate::evaluate::LikePattern;
use crate::functions::{AggregateKind, Function};
use crate::limits::Limits;
use crate::value::{Key, Value};
use needle::Needle;

/// A compiled query.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The first stage takes items; each later one takes the rows of the previous one.
    pub(crate) stages: Vec<Program>,
    /// Properties of the item that some expression uses.
    pub(crate) wanted: Vec<String>,
    /// For each name of a `FROM`, the properties of it that some expression uses.
    pub(crate) parts: Vec<Vec<String>>,
    /// The user-defined functions that some expression calls.
    pub(crate) user_functions: Vec<String>,
    pub(crate) limits: Limits,
    needle: Option<Needle>,
}

/// A compiled `SELECT`.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) sources: Vec<SourcePlan>,
    pub(crate) filter: Option<Operation>,
    pub(crate) projection: Operation,
    /// Whether rows are grouped.
    pub(crate) grouped: bool,
    pub(crate) groups: Vec<Operation>,
    pub(crate) aggregates: Vec<(AggregateKind, Operation)>,
    pub(crate) order: Vec<(Operation, bool)>,
    pub(crate) distinct: bool,
    pub(crate) skip: u64,
    pub(crate) take: Option<u64>,
}

impl Program {
    /// Whether each row can be returned as soon as it is found.
    pub(crate) fn is_streaming(&self) -> bool {
        !self.grouped && self.order.is_empty() && !self.distinct
    }

    /// The most rows that matter: those skipped and those taken.
    pub(crate) fn reach(&self) -> Option<u64> {
        self.take.map(|take| take.saturating_add(self.skip))
    }
}

impl Compiled {
    /// Whether the first stage only counts items, so that their contents do not matter.
    pub(crate) fn only_counts(&self) -> bool {
        let Some(first) = self.stages.first() else { return false };
        let of_items = matches!(first.sources.as_slice(), [SourcePlan::Root]);
        let passes_all = match &first.filter {
            None => true,
            Some(Operation::Constant(value)) => value.is_true(),
            Some(_) => false,
        };
        let is_count = |(kind, of): &(AggregateKind, Operation)| {
            matches!(kind, AggregateKind::Count | AggregateKind::CountIf)
                && matches!(of, Operation::Constant(_) | Operation::Root)
        };
        of_items
            && passes_all
            && first.grouped
            && first.groups.is_empty()
            && !first.aggregates.is_empty()
            && first.aggregates.iter().all(is_count)
    }
}

/// A compiled source of rows.
#[derive(Debug)]
pub(crate) enum SourcePlan {
    /// The item; needs no slot.
    Root,
    /// The rows of the previous stage; the caller fills their slot.
    Fed,
    /// One row with this value; none if it is undefined.
    One(Operation),
    /// A row for each element; the place in `Compiled::parts` lists the properties wanted of it.
    Each(Operation, usize),
    /// A row for each row of a sub-query.
    Rows(Box<Program>),
    /// A row for each element of each array that a sub-query returns.
    EachOfRows(Box<Program>),
}

/// A compiled expression.
#[derive(Debug)]
pub(crate) enum Operation {
    Constant(Value<'static>),
    Root,
    /// A property of the item, by its place in `Compiled::wanted`.
    Wanted(usize),
    Slot(usize),
    /// A property of the value in a slot.
    Part(Box<Part>),
    Member(Box<Operation>, String),
    Index(Box<Operation>, Box<Operation>),
    Unary(crate::ast::UnaryOperator, Box<Operation>),
    Binary(crate::ast::BinaryOperator, Box<Operation>, Box<Operation>),
    And(Vec<Operation>),
    Or(Vec<Operation>),
    Not(Box<Operation>),
    Conditional(Box<[Operation; 3]>),
    In(Box<Operation>, Vec<Operation>),
    /// `IN` with constants only.
    InSet(Box<Operation>, std::collections::HashSet<Key>),
    Between(Box<[Operation; 3]>),
    Like(Box<Operation>, Box<LikePattern>),
    LikeDynamic(Box<Operation>, Box<Operation>, Option<Box<Operation>>),
    Call(&'static Function, Vec<Operation>),
    UserCall(String, Vec<Operation>),
    Array(Vec<Operation>),
    Object(Vec<(String, Operation)>),
    Scalar(Box<Program>),
    ArrayOf(Box<Program>),
    Exists(Box<Program>),
    /// The value of a `GROUP BY` expression.
    Group(usize),
    /// The result of an aggregate over a group.
    Aggregate(usize),
}

/// A property of the value in a slot; see [`Operation::Part`].
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) slot: usize,
    /// Its place among the wanted properties of the slot's value.
    pub(crate) place: usize,
    pub(crate) name: String,
}

/// Parameter values by name, including the `@`.
pub(crate) type Parameters = HashMap<String, Value<'static>>;

/// Compiles a tree to a program. `computed` is `None` for the query of a computed property, which may use
/// fewer features.
pub(crate) fn compile(
    text: &str,
    tree: &Select,
    parameters: &Parameters,
    limits: &Limits,
    computed: Option<&[ComputedProperty]>,
) -> Result<Compiled, QueryError> {
    let mut compiler = Compiler {
        text,
        parameters,
        computed,
        names: Vec::new(),
        from_start: 0,
        slots: 0,
        wanted: Vec::new(),
        parts: Vec::new(),
        parts_of: Vec::new(),
        user_functions: Vec::new(),
        stages: Vec::new(),
        parameter_bytes_left: limits.parameter_bytes,
    };
    let last = compiler.select(tree, true)?;
    compiler.stages.push(last);
    let filter = compiler.stages.first().and_then(|first| first.filter.as_ref());
    let needle = filter.and_then(|filter| Needle::of(filter, &compiler.wanted));
    Ok(Compiled {
        needle,
        stages: compiler.stages,
        wanted: compiler.wanted,
        parts: compiler.parts,
        user_functions: compiler.user_functions,
        limits: limits.clone(),
    })
}

/// The meaning of a name.
#[derive(Clone, Copy, Debug)]
enum Binding {
    Root,
    Slot(usize),
}

struct Compiler<'c> {
    text: &'c str,
    parameters: &'c Parameters,
    /// The computed properties; `None` while one of them is compiled.
    computed: Option<&'c [ComputedProperty]>,
    names: Vec<(Arc<str>, Binding)>,
    /// The first of the current `FROM`'s names in `names`.
    from_start: usize,
    /// The number of slots in use at this point of the query.
    slots: usize,
    wanted: Vec<String>,
    parts: Vec<Vec<String>>,
    /// For each slot in use, its place in `parts`.
    parts_of: Vec<usize>,
    user_functions: Vec<String>,
    stages: Vec<Program>,
    /// The bytes of parameters that may still be copied into the program.
    parameter_bytes_left: usize,
}

impl Compiler<'_> {
    fn error(&self, problem: Problem, span: Span) -> QueryError {
        QueryError::new(problem, span, self.text)
    }

    fn meaning(&self, problem: impl Into<String>, span: Span) -> QueryError {
        self.error(Problem::Meaning(problem.into()), span)
    }

    /// Compiles a `SELECT`; `outermost` for the query itself, whose first name is the container.
    fn select(&mut self, select: &Select, outermost: bool) -> Result<Program, QueryError> {
        let (names, slots, from_start) = (self.names.len(), self.slots, self.from_start);
        self.from_start = names;
        let program = self.select_here(select, outermost);
        self.names.truncate(names);
        self.from_start = from_start;
        self.slots = slots;
        program
    }

    fn select_here(&mut self, select: &Select, outermost: bool) -> Result<Program, QueryError> {
        let sources = self.sources(select, outermost)?;
        let filter = select.filter.as_ref().map(|filter| self.plain(filter)).transpose()?;
        let grouped = self.is_grouped(select);
        let groups = self.plain_list(&select.group_by)?;
        let mut aggregates = Vec::new();
        let projection = self.projection(select, grouped, &mut aggregates)?;
        let mut order = Vec::new();
        for item in &select.order_by {
            if grouping::is_one_row(select) {
                // There is one row, so nothing to sort: any property of the rows is allowed here.
                self.plain(&item.expression)?;
                continue;
            }
            let key = if grouped {
                self.grouped(&item.expression, &select.group_by, &mut aggregates)?
            } else {
                self.plain(&item.expression)?
            };
            order.push((key, item.descending));
        }
        let (skip, take) = self.window(select)?;
        let distinct = select.distinct;
        Ok(Program {
            sources,
            filter,
            projection,
            grouped,
            groups,
            aggregates,
            order,
            distinct,
            skip,
            take,
        })
    }

    /// The numbers of rows to skip and to take.
    fn window(&self, select: &Select) -> Result<(u64, Option<u64>), QueryError> {
        let top = select.top.as_ref().map(|top| self.count(top, "TOP")).transpose()?;
        let Some((offset, limit)) = &select.offset_limit else { return Ok((0, top)) };
        let (skip, take) = (self.count(offset, "OFFSET")?, self.count(limit, "LIMIT")?);
        match top {
            Some(_) => {
                Err(self
                    .meaning("'TOP' and 'OFFSET LIMIT' exclude each other; use one", offset.span))
            }
            None => Ok((skip, Some(take))),
        }
    }

    /// The number of rows in a literal or a parameter.
    fn count(&self, expression: &Expression, word: &str) -> Result<u64, QueryError> {
        crate::plan::constant(expression, self.parameters)
            .ok_or_else(|| self.missing(expression))?
            .as_integer()
            .and_then(|count| u32::try_from(count).ok())
            .map(u64::from)
            .ok_or_else(|| {
                let problem = format!("{word} needs an integer from 0 to {}", u32::MAX);
                self.meaning(problem, expression.span)
            })
    }

    fn missing(&self, expression: &Expression) -> QueryError {
        self.error(Problem::MissingParameter(expression.to_string()), expression.span)
    }

    fn sources(&mut self, select: &Select, outermost: bool) -> Result<Vec<SourcePlan>, QueryError> {
        let Some(from) = &select.from else { return Ok(Vec::new()) };
        let mut sources = vec![self.source(&from.first, outermost, outermost)?];
        for join in &from.joins {
            sources.push(self.source(join, false, outermost)?);
        }
        Ok(sources)
    }

    fn source(
        &mut self,
        source: &Source,
        names_container: bool,
        outermost: bool,
    ) -> Result<SourcePlan, QueryError> {
        let plan = match &source.collection {
            Collection::Query(select) if names_container && outermost && !source.each => {
                return self.outer_subquery(select, source);
            }
            Collection::Query(select) if source.each => {
                SourcePlan::EachOfRows(Box::new(self.select(select, false)?))
            }
            Collection::Query(select) => SourcePlan::Rows(Box::new(self.select(select, false)?)),
            Collection::Path(path) => self.path_source(path, source.each, names_container)?,
        };
        if let SourcePlan::Root = plan {
            self.bind(source, Binding::Root)?;
            return Ok(plan);
        }
        self.bind_slot(source)?;
        Ok(plan)
    }

    /// Compiles a sub-query over the whole container. If it can be answered item by item, it is a plain
    /// source; otherwise it becomes a stage of its own whose rows are the items of this one.
    fn outer_subquery(
        &mut self,
        select: &Select,
        source: &Source,
    ) -> Result<SourcePlan, QueryError> {
        let program = self.select(select, true)?;
        let plan = if program.is_streaming() && program.take.is_none() && self.stages.is_empty() {
            SourcePlan::Rows(Box::new(program))
        } else {
            self.stages.push(program);
            SourcePlan::Fed
        };
        self.bind_slot(source)?;
        Ok(plan)
    }

    fn bind_slot(&mut self, source: &Source) -> Result<(), QueryError> {
        let slot = self.slots;
        self.slots += 1;
        self.parts_of.truncate(slot);
        self.parts_of.push(self.parts.len());
        self.parts.push(Vec::new());
        self.bind(source, Binding::Slot(slot))
    }

    fn bind(&mut self, source: &Source, binding: Binding) -> Result<(), QueryError> {
        let Some(name) = implied_alias(source) else { return Ok(()) };
        if self.names[self.from_start..].iter().any(|(known, _)| **known == *name) {
            let problem =
                format!("The input alias '{name}' is specified more than once in the FROM clause");
            return Err(self.meaning(problem, source.span));
        }
        self.names.push((name.into(), binding));
        Ok(())
    }

    fn path_source(
        &mut self,
        path: &Expression,
        each: bool,
        names_container: bool,
    ) -> Result<SourcePlan, QueryError> {
        let first = first_name(path);
        let known = self.names.iter().any(|(name, _)| **name == *first);
        let is_root = !known && (names_container || first.eq_ignore_ascii_case("root"));
        if is_root {
            // The container's name is known only while its own path is read.
            self.names.push((first.into(), Binding::Root));
        }
        let operation = self.plain(path);
        if is_root {
            self.names.pop();
        }
        Ok(match operation? {
            Operation::Root if !each => SourcePlan::Root,
            // Its slot is the next one.
            operation if each => SourcePlan::Each(operation, self.parts.len()),
            operation => SourcePlan::One(operation),
        })
    }

    fn projection(
        &mut self,
        select: &Select,
        grouped: bool,
        aggregates: &mut Vec<(AggregateKind, Operation)>,
    ) -> Result<Operation, QueryError> {
        let mut compile = |compiler: &mut Self, expression: &Expression| {
            if grouped {
                compiler.grouped(expression, &select.group_by, aggregates)
            } else {
                compiler.plain(expression)
            }
        };
        match &select.projection {
            Projection::Value(expression) => compile(self, expression),
            Projection::List(columns) => {
                let mut members = Vec::with_capacity(columns.len());
                for (name, column) in column_names(columns).into_iter().zip(columns) {
                    members.push((name, compile(self, &column.expression)?));
                }
                Ok(expression::object(members))
            }
            Projection::All => self.whole_row(select),
        }
    }

    fn whole_row(&self, select: &Select) -> Result<Operation, QueryError> {
        let Some(from) = &select.from else {
            let problem = "'SELECT *' is not valid if FROM clause is omitted";
            return Err(self.meaning(problem, Span::default()));
        };
        if let Some(join) = from.joins.first() {
            let problem = "'SELECT *' is only valid with a single input set; name what to select";
            return Err(self.meaning(problem, join.span));
        }
        if !select.group_by.is_empty() {
            let problem = "'SELECT *' is not valid with GROUP BY; name what to select";
            return Err(self.meaning(problem, select.group_by[0].span));
        }
        Ok(match self.names.get(self.from_start) {
            Some((_, Binding::Slot(slot))) => Operation::Slot(*slot),
            Some((_, Binding::Root)) => Operation::Root,
            None => Operation::Slot(self.slots.saturating_sub(1)),
        })
    }

    fn resolve(&self, name: &str, span: Span) -> Result<Binding, QueryError> {
        let found = self.names.iter().rev().find(|(known, _)| **known == *name);
        found.map(|(_, binding)| *binding).ok_or_else(|| {
            let known = || self.names.iter().map(|(known, _)| &**known);
            let suggestion = known()
                .find(|known| known.eq_ignore_ascii_case(name))
                .or_else(|| closest(name, known()))
                .or_else(|| known().next_back());
            let suggestion = suggestion.map(|known| {
                let is_near = known.eq_ignore_ascii_case(name) || closest(name, [known]).is_some();
                if is_near { format!("'{known}'") } else { format!("'{known}.{name}'") }
            });
            self.error(Problem::UnknownName(name.to_owned()), span).suggesting(suggestion)
        })
    }
}

/// The name of a source: its alias, or else the last name of its path.
fn implied_alias(source: &Source) -> Option<String> {
    if let Some(alias) = &source.alias {
        return Some(alias.clone());
    }
    match &source.collection {
        Collection::Path(path) => path.path()?.last().map(|name| (*name).to_owned()),
        Collection::Query(_) => None,
    }
}

/// The first name of a path.
fn first_name(path: &Expression) -> String {
    use crate::ast::Node;
    let mut at = path;
    loop {
        match &at.node {
            Node::Property(of, _) | Node::Index(of, _) => at = of,
            Node::Name(name) => return name.clone(),
            _ => return String::new(),
        }
    }
}

/// The property names of a list of columns: the alias, or else the last name of a path, or else `$1`, `$2` and
/// so on.
pub(crate) fn column_names(columns: &[crate::ast::Column]) -> Vec<String> {
    use crate::ast::Node;
    let mut unnamed = 0;
    columns
        .iter()
        .map(|column| match (&column.alias, &column.expression.node) {
            (Some(alias), _) => alias.clone(),
            (None, Node::Property(_, name) | Node::Name(name)) => name.clone(),
            _ => {
                unnamed += 1;
                format!("${unnamed}")
            }
        })
        .collect()
}
