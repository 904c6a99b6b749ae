//! `FROM`, `JOIN` and `WHERE`: evaluates one item to its rows, and whole sub-queries.

use std::ops::ControlFlow;

use super::collect::Collector;
use super::portion::Cursor;
use super::{Machine, Slot};
use crate::compile::{Program, SourcePlan};
use crate::error::EvaluationError;
use crate::value::{Elements, Value};

/// Up to this size, the rows of a sub-query are not measured again.
const FEW_BYTES: usize = 4096;

/// Whether more rows are wanted.
pub(super) type Flow = Result<ControlFlow<()>, EvaluationError>;

impl<'a, 'e> Machine<'a, 'e> {
    /// Calls `found` for each row of one item that passes the filter, with its names bound.
    pub(super) fn each_row(
        &mut self,
        program: &'a Program,
        fed: Option<Value<'a>>,
        found: &mut dyn FnMut(&mut Self) -> Flow,
    ) -> Flow {
        let slots = self.slots.len();
        if let Some(fed) = fed {
            self.slots.push(Slot { value: fed, parts: None });
        }
        let flow = self.each_row_of(program, &program.sources, found);
        self.slots.truncate(slots);
        flow
    }

    /// The rows of one more source, and the filter after the last one. Releases its charges after each row.
    fn each_row_of(
        &mut self,
        program: &'a Program,
        sources: &'a [SourcePlan],
        found: &mut dyn FnMut(&mut Self) -> Flow,
    ) -> Flow {
        let mark = self.environment.meter.mark();
        let flow = self.each_row_from(program, sources, found);
        self.environment.meter.release_to(mark);
        flow
    }

    fn each_row_from(
        &mut self,
        program: &'a Program,
        sources: &'a [SourcePlan],
        found: &mut dyn FnMut(&mut Self) -> Flow,
    ) -> Flow {
        let Some((source, rest)) = sources.split_first() else {
            if let Some(filter) = &program.filter
                && !self.evaluate(filter)?.is_true()
            {
                return Ok(ControlFlow::Continue(()));
            }
            return found(self);
        };
        let mut with_parts = |machine: &mut Self, value: Value<'a>, parts: Option<usize>| {
            machine.environment.spend(1)?;
            machine.slots.push(Slot { value, parts });
            let flow = machine.each_row_of(program, rest, found);
            machine.slots.pop();
            flow
        };
        let mut with = |machine: &mut Self, value: Value<'a>| with_parts(machine, value, None);
        match source {
            SourcePlan::Root | SourcePlan::Fed => return self.each_row_of(program, rest, found),
            SourcePlan::One(operation) => {
                let value = self.evaluate(operation)?;
                if !value.is_undefined() {
                    return with(self, value);
                }
            }
            SourcePlan::Each(operation, names) => {
                // Iterates over an array of the item in place.
                if let Some(text) = self.array_text(operation) {
                    let names = self.compiled.parts.get(*names).map_or(&[][..], Vec::as_slice);
                    let mut elements = Elements::of(text);
                    let first = self.parts.len();
                    let mut skip = self.enter_source();
                    loop {
                        self.parts.resize(first + names.len(), None);
                        let Some(element) = elements.next(names, &mut self.parts[first..]) else {
                            break;
                        };
                        self.environment.spend(element.scan_cost())?;
                        if skip > 0 {
                            skip -= 1;
                            self.parts.truncate(first);
                            continue;
                        }
                        let flow = with_parts(self, element, Some(first))?;
                        self.parts.truncate(first);
                        if flow.is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                        self.end_element();
                    }
                    self.parts.truncate(first);
                    self.leave_source();
                    return Ok(ControlFlow::Continue(()));
                }
                let value = self.evaluate(operation)?;
                self.environment.spend(value.scan_cost())?;
                self.environment.meter.charge(value.opened_bytes())?;
                let skip = self.enter_source();
                for element in value.elements().unwrap_or_default().iter().skip(skip) {
                    if with(self, element.clone())?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    self.end_element();
                }
                self.leave_source();
            }
            SourcePlan::EachOfRows(inner) => {
                let rows = self.select(inner, None)?;
                let mut skip = self.enter_source();
                for row in rows {
                    self.environment.spend(1 + row.scan_cost())?;
                    self.environment.meter.charge(row.opened_bytes())?;
                    let elements = row.elements().unwrap_or_default();
                    for element in elements.iter().skip(skip) {
                        if with(self, element.clone())?.is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                        self.end_element();
                    }
                    skip = skip.saturating_sub(elements.len());
                }
                self.leave_source();
            }
            SourcePlan::Rows(inner) => {
                let rows = self.select(inner, None)?;
                let skip = self.enter_source();
                for row in rows.into_iter().skip(skip) {
                    if with(self, row)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    self.end_element();
                }
                self.leave_source();
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Enters a source of several elements, and returns how many of them to skip.
    fn enter_source(&mut self) -> usize {
        let skip = self.cursor.as_mut().map_or(0, Cursor::enter);
        usize::try_from(skip).unwrap_or(usize::MAX)
    }

    fn end_element(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.advance();
        }
    }

    fn leave_source(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.leave();
        }
    }

    /// All rows of a sub-query, or the first few if no more are needed.
    pub(super) fn select(
        &mut self,
        program: &'a Program,
        wanted: Option<u64>,
    ) -> Result<Vec<Value<'a>>, EvaluationError> {
        let keys = std::mem::take(&mut self.group_keys);
        let aggregates = std::mem::take(&mut self.aggregates);
        let cursor = self.cursor.take();
        let rows = self.select_here(program, wanted);
        self.cursor = cursor;
        self.group_keys = keys;
        self.aggregates = aggregates;
        rows
    }

    fn select_here(
        &mut self,
        program: &'a Program,
        wanted: Option<u64>,
    ) -> Result<Vec<Value<'a>>, EvaluationError> {
        let reach = match (program.reach(), wanted) {
            (Some(reach), Some(wanted)) => Some(reach.min(program.skip.saturating_add(wanted))),
            (None, Some(wanted)) => Some(program.skip.saturating_add(wanted)),
            (reach, None) => reach,
        };
        let mut collector = Collector::new(program.is_streaming().then_some(reach).flatten());
        let mark = self.environment.meter.mark();
        if reach != Some(0) {
            let _ = self.each_row(program, None, &mut |machine| {
                collector.add(machine, program, 0, |value| value)
            })?;
        }
        let (rows, kept) = collector.finish(self, program)?;
        // From here on the rows are values of the row around the sub-query.
        let meter = &mut self.environment.meter;
        meter.release(kept);
        meter.release_to(mark);
        let few = kept <= FEW_BYTES;
        meter.charge(if few { kept } else { rows.iter().map(Value::held_bytes).sum() })?;
        Ok(rows)
    }
}
