//! A run: items in, rows out; the caller owns the iteration.
//!
//! The caller may push items in any order. A streaming query returns rows at once;
//! any other query collects rows and returns them at the end. Rows are JSON text; an item that is selected
//! as a whole is returned byte for byte.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::collect::{Collector, OrderMark, SortedRow};
use super::portion::{Cursor, Portion, Portioned, RowPosition};
use super::{Context, Environment, Machine};
use crate::compile::{Compiled, Operation, Program};
use crate::error::EvaluationError;
use crate::meter::MemoryLease;
use crate::value::Value;

/// Bytes of an item searched for the cost of a step.
const BYTES_SEARCHED_PER_STEP: usize = 4096;

/// Whether another item can change the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Push the next item.
    More,
    /// The answer is complete; further items are ignored.
    Enough,
}

/// How far a streaming run got, for a continuation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of rows that passed the filter, skipped ones included.
    pub rows: u64,
}

/// One execution of a query.
pub struct Run {
    compiled: Arc<Compiled>,
    environment: Environment,
    /// One for each stage that cannot stream.
    collectors: Vec<Collector<'static>>,
    progress: Progress,
    /// The number of items with at least one row to keep.
    items_matched: usize,
}

impl Run {
    pub(crate) fn new(compiled: Arc<Compiled>, context: Context, progress: Progress) -> Run {
        let environment = Environment::new(context, &compiled.limits);
        let collectors = compiled
            .stages
            .iter()
            .map(|stage| Collector::new(stage.is_streaming().then(|| stage.reach()).flatten()))
            .collect();
        Run { compiled, environment, collectors, progress, items_matched: 0 }
    }

    /// Keeps only the first `page` sorted rows after `after`, for a query that
    /// [can](crate::Query::is_sorted_only) resume from a mark. The page bounds the memory, however many rows
    /// there are.
    #[must_use]
    pub fn for_page(mut self, after: Option<OrderMark>, page: usize) -> Run {
        let collectors = std::mem::take(&mut self.collectors);
        let for_page = |one: Collector<'static>| one.for_page(after.clone(), page);
        self.collectors = collectors.into_iter().map(for_page).collect();
        self
    }

    /// Ends a run [for a page](Run::for_page): returns its rows in order, and whether more follow.
    ///
    /// # Errors
    /// When sorting them takes too long.
    pub fn finish_page(&mut self) -> Result<(Vec<SortedRow>, bool), EvaluationError> {
        let collector = std::mem::take(&mut self.collectors).into_iter().next();
        match collector.zip(self.compiled.stages.first()) {
            Some((collector, program)) => {
                collector.finish_page(program, &mut self.environment.meter)
            }
            None => Ok((Vec::new(), false)),
        }
    }

    /// Counts an item of this size that [has no row](crate::Query::rules_out); the search costs steps too.
    pub fn pass_over(&mut self, bytes: usize) -> Result<Next, EvaluationError> {
        self.environment.spend(1 + bytes / BYTES_SEARCHED_PER_STEP)?;
        Ok(Next::More)
    }

    /// Adds several items at once, for a query that [only counts](crate::Query::only_counts) them.
    pub fn count(&mut self, items: u64) -> Result<Next, EvaluationError> {
        let compiled = Arc::clone(&self.compiled);
        let (Some(stage), Some(collector)) = (compiled.stages.first(), self.collectors.first_mut())
        else {
            return Ok(Next::Enough);
        };
        debug_assert!(compiled.only_counts(), "it matters what is in the items");
        self.environment.spend(1)?;
        if items > 0 && stage.reach() != Some(0) {
            collector.count(stage, items);
            self.items_matched = usize::try_from(items).unwrap_or(usize::MAX);
        }
        Ok(Next::More)
    }

    /// Takes one item and appends the rows that are ready.
    ///
    /// `item` is valid JSON (not checked again); `ordinal` orders items that are equal in every sort
    /// key, ascending (in a container: the item's number in its `_rid`).
    pub fn push<'i>(
        &mut self,
        item: &'i [u8],
        ordinal: u64,
        rows: &mut Vec<Cow<'i, [u8]>>,
    ) -> Result<Next, EvaluationError> {
        match self.take(item, ordinal, None, rows)? {
            Portioned::Whole(next) => Ok(next),
            Portioned::Part(_) => Ok(Next::More),
        }
    }

    /// Takes a portion of the rows of one item, for a query that [streams](crate::Query::is_streaming). If time or
    /// steps run out after its first row, the portion ends there without an error.
    pub fn push_portion<'i>(
        &mut self,
        item: &'i [u8],
        ordinal: u64,
        portion: &Portion,
        rows: &mut Vec<Cow<'i, [u8]>>,
    ) -> Result<Portioned, EvaluationError> {
        self.take(item, ordinal, Some(portion), rows)
    }

    /// Evaluates all rows of an item, or a portion of them.
    fn take<'i>(
        &mut self,
        item: &'i [u8],
        ordinal: u64,
        portion: Option<&Portion>,
        rows: &mut Vec<Cow<'i, [u8]>>,
    ) -> Result<Portioned, EvaluationError> {
        let compiled = Arc::clone(&self.compiled);
        let enough = Ok(Portioned::Whole(Next::Enough));
        let Some(first) = compiled.stages.first() else { return enough };
        if first.reach() == Some(0) || first.sources.is_empty() {
            return enough;
        }
        let collects = compiled.stages.len() > 1 || !first.is_streaming();
        let window = Window { skip: first.skip, reach: first.reach() };
        if !collects && window.is_done(self.progress.rows) {
            return enough;
        }
        let next = self.pass_over(item.len())?;
        if compiled.rules_out(item) {
            return Ok(Portioned::Whole(next));
        }
        if collects {
            return self.collect(&compiled, item, ordinal).map(Portioned::Whole);
        }
        let (progress, answered) = (self.progress, rows.len());
        let (flow, stop) = self.stream(&compiled, first, window, item, portion, rows);
        match (flow, stop) {
            (Ok(_), Stop::Full(position)) => Ok(Portioned::Part(position)),
            (Ok(flow), _) => {
                Ok(Portioned::Whole(if flow.is_break() { Next::Enough } else { Next::More }))
            }
            (
                Err(EvaluationError::OutOfTime | EvaluationError::TooManySteps { .. }),
                Stop::Behind(position),
            ) => Ok(Portioned::Part(position)),
            (Err(error), _) => {
                // Discards this item's rows, so that it can be pushed again.
                self.progress = progress;
                rows.truncate(answered);
                Err(error)
            }
        }
    }

    fn stream<'i>(
        &mut self,
        compiled: &Compiled,
        first: &Program,
        window: Window,
        item: &'i [u8],
        portion: Option<&Portion>,
        rows: &mut Vec<Cow<'i, [u8]>>,
    ) -> (Result<ControlFlow<()>, EvaluationError>, Stop) {
        let progress = &mut self.progress;
        let (answered, mut bytes, mut is_full) = (rows.len(), 0, false);
        let whole = matches!(first.projection, Operation::Root);
        let mut machine = Machine::new(compiled, Some(item), &mut self.environment);
        machine.cursor = portion.map(|portion| Cursor::new(&portion.from));
        let flow = machine.each_row(first, None, &mut |machine| {
            is_full = portion.is_some_and(|portion| {
                rows.len() - answered >= portion.rows || bytes >= portion.bytes
            });
            if is_full {
                return Ok(ControlFlow::Break(()));
            }
            let row = if whole {
                Cow::Borrowed(item)
            } else {
                match machine.evaluate(&first.projection)? {
                    Value::Undefined => return Ok(ControlFlow::Continue(())),
                    value => {
                        machine.environment.spend(value.copy_cost())?;
                        Cow::Owned(value.to_json())
                    }
                }
            };
            progress.rows += 1;
            if progress.rows > window.skip {
                let own = if let Cow::Owned(row) = &row { row.len() } else { 0 };
                machine.environment.meter.keep(own + size_of::<Cow<'_, [u8]>>())?;
                bytes += row.len();
                rows.push(row);
            }
            Ok(window.flow(progress.rows))
        });
        let stop = match (portion, machine.cursor.take().map(Cursor::position)) {
            (Some(_), Some(position)) if is_full => Stop::Full(position),
            (Some(portion), Some(position)) if position > portion.from => Stop::Behind(position),
            _ => Stop::AtStart,
        };
        (flow, stop)
    }

    fn collect(
        &mut self,
        compiled: &Compiled,
        item: &[u8],
        ordinal: u64,
    ) -> Result<Next, EvaluationError> {
        let (Some(stage), Some(collector)) = (compiled.stages.first(), self.collectors.first_mut())
        else {
            return Ok(Next::Enough);
        };
        let mut machine = Machine::new(compiled, Some(item), &mut self.environment);
        let mut is_matched = false;
        let flow = machine.each_row(stage, None, &mut |machine| {
            is_matched = true;
            collector.add(machine, stage, ordinal, Value::into_owned)
        })?;
        self.items_matched += usize::from(is_matched);
        Ok(if flow.is_break() { Next::Enough } else { Next::More })
    }

    /// Ends the run and returns the collected rows.
    pub fn finish(&mut self) -> Result<Vec<Vec<u8>>, EvaluationError> {
        let compiled = Arc::clone(&self.compiled);
        let Some(first) = compiled.stages.first() else { return Ok(Vec::new()) };
        let streams = compiled.stages.len() == 1 && first.is_streaming();
        if streams && !first.sources.is_empty() {
            return Ok(Vec::new());
        }
        let mut fed: Option<Vec<Value<'static>>> = None;
        for (stage, mut collector) in
            compiled.stages.iter().zip(std::mem::take(&mut self.collectors))
        {
            let mut machine = Machine::new(&compiled, None, &mut self.environment);
            let is_closed = stage.sources.is_empty() && stage.reach() != Some(0);
            let inputs: Vec<Option<Value<'static>>> = match fed.take() {
                Some(rows) => rows.into_iter().map(Some).collect(),
                None if is_closed => vec![None],
                None => Vec::new(),
            };
            for (ordinal, input) in inputs.into_iter().enumerate() {
                let flow = machine.each_row(stage, input, &mut |machine| {
                    collector.add(machine, stage, ordinal as u64, Value::into_owned)
                })?;
                if flow.is_break() {
                    break;
                }
            }
            let (rows, _) = collector.finish(&mut machine, stage)?;
            fed = Some(rows.into_iter().map(Value::into_owned).collect());
        }
        let mut rows = Vec::new();
        for row in fed.unwrap_or_default() {
            self.environment.spend(1 + row.copy_cost())?;
            rows.push(row.into_json());
        }
        Ok(rows)
    }

    /// How far a streaming run got.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The number of rows kept for sorting; those that cannot be among the first may already be dropped.
    pub fn rows_kept(&self) -> usize {
        self.collectors.first().map_or(0, Collector::rows_kept)
    }

    /// The number of items that passed the filter, for a query that does not stream.
    pub fn items_matched(&self) -> usize {
        self.items_matched
    }

    /// The steps of work done, for metrics and charges.
    pub fn steps(&self) -> u64 {
        self.environment.meter.steps_used()
    }

    /// The most bytes the run has held at a time, rounded up.
    pub fn peak_bytes(&self) -> usize {
        self.environment.meter.peak_bytes()
    }

    /// Takes the lease on the pool's memory, for the caller that keeps the rows after the run.
    pub fn take_lease(&mut self) -> MemoryLease {
        self.environment.meter.take_lease()
    }
}

/// Where the evaluation of a portion stopped.
enum Stop {
    /// At a row that does not fit.
    Full(RowPosition),
    /// After the first row of the portion.
    Behind(RowPosition),
    /// At the first row, or the run has no portion.
    AtStart,
}

/// The range of rows to return, of all that pass.
#[derive(Clone, Copy)]
struct Window {
    skip: u64,
    reach: Option<u64>,
}

impl Window {
    fn is_done(self, rows: u64) -> bool {
        self.reach.is_some_and(|reach| rows >= reach)
    }

    fn flow(self, rows: u64) -> ControlFlow<()> {
        if self.is_done(rows) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
