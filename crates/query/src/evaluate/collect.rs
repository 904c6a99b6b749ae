//! Collects rows that cannot stream: groups, distinct rows, sorted rows.
//!
//! The order of pushed items does not affect the answer. Rows without a sort order are in the order of the
//! ordinals; a group or a distinct row has the ordinal of its first item.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::ControlFlow;

use super::rows::Flow;
use super::{AggregateState, Machine};
use crate::compile::{Operation, Program};
use crate::error::EvaluationError;
use crate::meter::Meter;
use crate::value::{Key, Value};

/// The size of the batches in which rows beyond twice the needed number are dropped.
const SLACK: usize = 1024;
/// Rows with short keys sorted between two checks of the clock; fewer if their keys are long.
const PIECE_STEPS: usize = 32 << 10;
/// Cost of comparing two large keys, relative to reading them once.
const COMPARED_PER_SCAN: usize = 8;
/// The approximate size of a hash table entry without its key's bytes.
const ENTRY_BYTES: usize = 64;

/// Collects rows for an answer. `'r` is the lifetime of the rows: that of the item for a sub-query, `'static`
/// for the query itself.
pub(super) struct Collector<'r> {
    rows: Vec<Row<'r>>,
    /// Distinct rows and their places, valid until rows are dropped.
    seen: HashMap<Key, usize>,
    groups: HashMap<Key, usize>,
    group_list: Vec<Group>,
    memory: usize,
    /// The number of rows after which no further one can matter.
    enough: Option<u64>,
    /// Rows up to this mark were returned before.
    after: Option<OrderMark>,
    /// The number of rows equal to that mark that were skipped.
    passed: u64,
    /// The number of sorted rows on a page; `None` leaves the number to the program.
    page: Option<usize>,
}

/// A position in sorted rows: after `repeats` rows with these sort keys and this ordinal.
#[derive(Clone, Debug)]
pub struct OrderMark {
    /// The sort keys.
    pub keys: Vec<Value<'static>>,
    /// The tie-breaker of rows whose keys are all equal.
    pub ordinal: u64,
    /// The number of rows with these keys and this ordinal: an item can have several.
    pub repeats: u64,
}

/// A row of a sorted answer.
#[derive(Clone, Debug)]
pub struct SortedRow {
    /// The row.
    pub json: Vec<u8>,
    /// The position after the row.
    pub mark: OrderMark,
}

struct Row<'r> {
    keys: Vec<Value<'r>>,
    /// The tie-breaker of rows whose keys are all equal.
    ordinal: u64,
    output: Value<'r>,
}

struct Group {
    /// The lowest ordinal of its items.
    ordinal: u64,
    keys: Vec<Value<'static>>,
    aggregates: Vec<AggregateState>,
}

impl<'r> Collector<'r> {
    pub(super) fn new(enough: Option<u64>) -> Collector<'r> {
        Collector {
            rows: Vec::new(),
            seen: HashMap::new(),
            groups: HashMap::new(),
            group_list: Vec::new(),
            memory: 0,
            enough,
            after: None,
            passed: 0,
            page: None,
        }
    }

    /// Keeps only the first `page` sorted rows after a mark.
    pub(super) fn for_page(mut self, after: Option<OrderMark>, page: usize) -> Collector<'r> {
        self.after = after;
        self.page = Some(page);
        self
    }

    pub(super) fn rows_kept(&self) -> usize {
        self.rows.len()
    }

    /// Adds the row whose names are bound in `machine`.
    pub(super) fn add<'a>(
        &mut self,
        machine: &mut Machine<'a, '_>,
        program: &'a Program,
        ordinal: u64,
        keep: impl Fn(Value<'a>) -> Value<'r>,
    ) -> Flow {
        if program.grouped {
            self.add_to_group(machine, program, ordinal)?;
            return Ok(ControlFlow::Continue(()));
        }
        let output = machine.evaluate(&program.projection)?;
        machine.environment.spend(output.copy_cost())?;
        let mut keys = Vec::with_capacity(program.order.len());
        for (key, _) in &program.order {
            let key = machine.evaluate(key)?;
            machine.environment.spend(key.copy_cost())?;
            keys.push(keep(key));
        }
        self.add_row(machine, program, Row { keys, ordinal, output: keep(output) })
    }

    fn add_row(&mut self, machine: &mut Machine<'_, '_>, program: &Program, row: Row<'r>) -> Flow {
        if row.output.is_undefined() {
            return Ok(ControlFlow::Continue(()));
        }
        if self.was_answered(program, &row, &mut machine.environment.meter)? {
            return Ok(ControlFlow::Continue(()));
        }
        if program.distinct {
            let key = Key::charged(&row.output, &mut machine.environment.meter)?;
            if let Some(place) = self.seen.get(&key) {
                let first = self.rows.get_mut(*place).filter(|_| program.order.is_empty());
                if let Some(first) = first.filter(|first| row.ordinal < first.ordinal) {
                    // Equal values may have different text, such as 3 and 3.0.
                    let (old, new) = (weight(first), weight(&row));
                    *first = row;
                    self.release(machine, old);
                    self.spend(machine, new)?;
                }
                return Ok(ControlFlow::Continue(()));
            }
            self.spend(machine, key.len() + ENTRY_BYTES)?;
            self.seen.insert(key, self.rows.len());
        }
        self.spend(machine, weight(&row))?;
        self.rows.push(row);
        self.prune(machine, program)?;
        let enough = self.enough.is_some_and(|enough| self.rows.len() as u64 >= enough);
        Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Whether a row is at or before the mark.
    fn was_answered(
        &mut self,
        program: &Program,
        row: &Row<'_>,
        meter: &mut Meter,
    ) -> Result<bool, EvaluationError> {
        let Some(after) = &self.after else { return Ok(false) };
        meter.step(compare_cost(&row.keys, &after.keys))?;
        let order = order_of(program, (&row.keys, row.ordinal), (&after.keys, after.ordinal));
        let repeated = order.is_eq() && self.passed < after.repeats;
        self.passed += u64::from(repeated);
        Ok(order.is_lt() || repeated)
    }

    fn spend(
        &mut self,
        machine: &mut Machine<'_, '_>,
        bytes: usize,
    ) -> Result<(), EvaluationError> {
        self.memory += bytes;
        machine.environment.meter.keep(bytes)
    }

    fn release(&mut self, machine: &mut Machine<'_, '_>, bytes: usize) {
        self.memory -= bytes;
        machine.environment.meter.release(bytes);
    }

    /// Drops sorted rows that cannot be among the first ones.
    fn prune(
        &mut self,
        machine: &mut Machine<'_, '_>,
        program: &Program,
    ) -> Result<(), EvaluationError> {
        let by_program = || program.reach().and_then(|reach| usize::try_from(reach).ok());
        // One more than the page, to know whether a further row exists.
        let by_page = self.page.map(|page| page.saturating_add(1));
        let Some(reach) = by_page.or_else(by_program) else { return Ok(()) };
        if program.order.is_empty()
            || self.rows.len() < reach.saturating_mul(2).saturating_add(SLACK)
        {
            return Ok(());
        }
        self.sort(program, &mut machine.environment.meter)?;
        let dropped = self.rows.drain(reach..).map(|row| weight(&row)).sum();
        self.release(machine, dropped);
        Ok(())
    }

    /// Sorts the rows in pieces and checks the clock between them.
    fn sort(&mut self, program: &Program, meter: &mut Meter) -> Result<(), EvaluationError> {
        let is_done = |one: &Row<'_>, two: &Row<'_>| one.ordinal <= two.ordinal;
        if program.order.is_empty() && self.rows.is_sorted_by(is_done) {
            return Ok(());
        }
        let cost = |row: &Row<'_>| row.keys.iter().map(Value::scan_cost).sum::<usize>();
        let opened = |row: &Row<'_>| row.keys.iter().map(Value::opened_bytes).sum::<usize>();
        let mark = meter.mark();
        let (mut costs, mut largest) = (0, 0);
        for row in &self.rows {
            costs += cost(row);
            largest = largest.max(opened(row));
        }
        meter.charge(largest.saturating_mul(2))?;
        // A comparison parses both keys. The piece size keeps the work per piece about constant.
        let each = 1 + COMPARED_PER_SCAN * costs / self.rows.len().max(1);
        let piece = (PIECE_STEPS / each).max(2);
        let order = |one: &Row<'_>, two: &Row<'_>| {
            order_of(program, (&one.keys, one.ordinal), (&two.keys, two.ordinal))
        };
        for piece in self.rows.chunks_mut(piece) {
            piece.sort_by(order);
            let depth = 1 + piece.len().ilog2() as usize;
            meter.step(piece.len().saturating_mul(each).saturating_mul(depth))?;
        }
        let mut sorted = piece;
        while sorted < self.rows.len() {
            let rows = std::mem::take(&mut self.rows);
            self.rows = merged(rows, sorted, order, || meter.step(each))?;
            sorted = sorted.saturating_mul(2);
        }
        meter.release_to(mark);
        Ok(())
    }

    /// The rows of a page in order, each with its mark, and whether more rows follow.
    pub(super) fn finish_page(
        mut self,
        program: &Program,
        meter: &mut Meter,
    ) -> Result<(Vec<SortedRow>, bool), EvaluationError> {
        self.sort(program, meter)?;
        let page = self.page.unwrap_or(usize::MAX);
        let is_more = self.rows.len() > page;
        let mut rows: Vec<SortedRow> = Vec::with_capacity(self.rows.len().min(page));
        for row in self.rows.into_iter().take(page) {
            let before = rows.last().map(|row| &row.mark).or(self.after.as_ref());
            meter.step(before.map_or(0, |before| compare_cost(&before.keys, &row.keys)))?;
            let same = before.filter(|before| {
                let before = (&before.keys[..], before.ordinal);
                order_of(program, before, (&row.keys, row.ordinal)).is_eq()
            });
            let repeats = same.map_or(0, |same| same.repeats) + 1;
            let keys = row.keys.into_iter().map(Value::into_owned).collect();
            let mark = OrderMark { keys, ordinal: row.ordinal, repeats };
            meter.step(1 + row.output.scan_cost())?;
            rows.push(SortedRow { json: row.output.into_json(), mark });
        }
        Ok((rows, is_more))
    }

    fn add_to_group<'a>(
        &mut self,
        machine: &mut Machine<'a, '_>,
        program: &'a Program,
        ordinal: u64,
    ) -> Result<(), EvaluationError> {
        let index = self.group_of(machine, program, ordinal)?;
        for (number, (_, argument)) in program.aggregates.iter().enumerate() {
            let value = machine.evaluate(argument)?;
            let state = self.group_list.get_mut(index).and_then(|g| g.aggregates.get_mut(number));
            let meter = &mut machine.environment.meter;
            let bytes = state.map_or(Ok(0), |state| state.add(&value, meter))?;
            self.spend(machine, bytes)?;
        }
        Ok(())
    }

    /// Adds rows to the only group of a program that only counts them.
    pub(super) fn count(&mut self, program: &Program, rows: u64) {
        if self.group_list.is_empty() {
            let aggregates = states(program);
            self.group_list.push(Group { ordinal: 0, keys: Vec::new(), aggregates });
        }
        let Some(group) = self.group_list.first_mut() else { return };
        for (state, (_, argument)) in group.aggregates.iter_mut().zip(&program.aggregates) {
            match argument {
                Operation::Constant(value) => state.add_alike(value, rows),
                // The item exists and is an object; any value that counts will do.
                _ => state.add_alike(&Value::Null, rows),
            }
        }
    }

    /// The place of a row's group.
    fn group_of<'a>(
        &mut self,
        machine: &mut Machine<'a, '_>,
        program: &'a Program,
        ordinal: u64,
    ) -> Result<usize, EvaluationError> {
        if program.groups.is_empty()
            && let Some(only) = self.group_list.first_mut()
        {
            only.ordinal = only.ordinal.min(ordinal);
            return Ok(0);
        }
        let mut keys = Vec::with_capacity(program.groups.len());
        let mut key = Key::default();
        for group in &program.groups {
            let value = machine.evaluate(group)?;
            key.push(&value, &mut machine.environment.meter)?;
            machine.environment.spend(value.copy_cost())?;
            keys.push(value);
        }
        Ok(match self.groups.get(&key) {
            Some(index) => {
                let group = self.group_list.get_mut(*index);
                if let Some(group) = group.filter(|group| ordinal < group.ordinal) {
                    group.ordinal = ordinal;
                    group.keys = keys.into_iter().map(Value::into_owned).collect();
                }
                *index
            }
            None => {
                let keys: Vec<_> = keys.into_iter().map(Value::into_owned).collect();
                let bytes = keys.iter().map(Value::weight).sum::<usize>()
                    + key.len()
                    + ENTRY_BYTES
                    + size_of::<Group>()
                    + program.aggregates.len() * size_of::<AggregateState>();
                self.spend(machine, bytes)?;
                self.groups.insert(key, self.group_list.len());
                self.group_list.push(Group { ordinal, keys, aggregates: states(program) });
                self.group_list.len() - 1
            }
        })
    }

    /// Returns the rows of the answer in order, and how many bytes are still counted as kept for them.
    pub(super) fn finish<'a>(
        mut self,
        machine: &mut Machine<'a, '_>,
        program: &'a Program,
    ) -> Result<(Vec<Value<'a>>, usize), EvaluationError>
    where
        'r: 'a,
    {
        if program.grouped {
            return self.finish_groups(machine, program);
        }
        self.sort(program, &mut machine.environment.meter)?;
        Ok((window(program, self.rows), self.memory))
    }

    /// Turns groups into rows, which may again be distinct and sorted.
    fn finish_groups<'a>(
        mut self,
        machine: &mut Machine<'a, '_>,
        program: &'a Program,
    ) -> Result<(Vec<Value<'a>>, usize), EvaluationError> {
        let mut groups = std::mem::take(&mut self.group_list);
        if groups.is_empty() && program.groups.is_empty() {
            // Aggregates over no rows still have a result.
            groups.push(Group { ordinal: 0, keys: Vec::new(), aggregates: states(program) });
        }
        groups.sort_by_key(|group| group.ordinal);
        let mut rows: Collector<'a> = Collector::new(None);
        for (number, group) in groups.into_iter().enumerate() {
            let mark = machine.environment.meter.mark();
            machine.group_keys = group.keys;
            machine.aggregates.clear();
            for state in group.aggregates {
                let value = machine.fitting("an aggregate", state.finish())?;
                machine.aggregates.push(value);
            }
            let output = machine.evaluate(&program.projection)?;
            let mut keys = Vec::with_capacity(program.order.len());
            for (key, _) in &program.order {
                keys.push(machine.evaluate(key)?);
            }
            let _ = rows.add_row(machine, program, Row { keys, ordinal: number as u64, output })?;
            machine.environment.meter.release_to(mark);
        }
        if !program.order.is_empty() {
            rows.sort(program, &mut machine.environment.meter)?;
        }
        Ok((window(program, rows.rows), self.memory + rows.memory))
    }
}

/// Compares two rows by their sort keys, then by their ordinals.
fn order_of(
    program: &Program,
    (one, one_ordinal): (&[Value<'_>], u64),
    (two, two_ordinal): (&[Value<'_>], u64),
) -> Ordering {
    for ((one, two), (_, descending)) in one.iter().zip(two).zip(&program.order) {
        let order = one.order(two);
        if order.is_ne() {
            return if *descending { order.reverse() } else { order };
        }
    }
    one_ordinal.cmp(&two_ordinal)
}

/// The steps of one comparison of sort keys.
fn compare_cost(one: &[Value<'_>], two: &[Value<'_>]) -> usize {
    let scanned = one.iter().chain(two).map(Value::scan_cost).sum::<usize>();
    COMPARED_PER_SCAN.saturating_mul(scanned)
}

fn states(program: &Program) -> Vec<AggregateState> {
    program.aggregates.iter().map(|(kind, _)| AggregateState::new(*kind)).collect()
}

/// The size of a row in bytes, without the text that it borrows from the item.
fn weight(row: &Row<'_>) -> usize {
    let keys = row.keys.iter().map(Value::held_bytes).sum::<usize>();
    row.output.held_bytes() + keys + size_of::<Row<'_>>()
}

/// Merges sorted runs of `sorted` rows into runs of twice the length. Stable.
fn merged<'r>(
    rows: Vec<Row<'r>>,
    sorted: usize,
    order: impl Fn(&Row<'_>, &Row<'_>) -> Ordering,
    mut compared: impl FnMut() -> Result<(), EvaluationError>,
) -> Result<Vec<Row<'r>>, EvaluationError> {
    let mut merged = Vec::with_capacity(rows.len());
    let mut rows = rows.into_iter();
    while merged.len() < merged.capacity() {
        let mut one = rows.by_ref().take(sorted).collect::<Vec<_>>().into_iter().peekable();
        let mut two = rows.by_ref().take(sorted).collect::<Vec<_>>().into_iter().peekable();
        if one.len() == 0 {
            break;
        }
        while let (Some(first), Some(second)) = (one.peek(), two.peek()) {
            compared()?;
            let next = if order(first, second).is_le() { one.next() } else { two.next() };
            merged.extend(next);
        }
        merged.extend(one);
        merged.extend(two);
    }
    Ok(merged)
}

fn window<'r>(program: &Program, rows: Vec<Row<'r>>) -> Vec<Value<'r>> {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    rows.into_iter()
        .map(|row| row.output)
        .skip(count(program.skip))
        .take(program.take.map_or(usize::MAX, count))
        .collect()
}
