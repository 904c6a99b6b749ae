//! Rows that have to wait for each other: groups, distinct rows, sorted rows.
//!
//! Items may be pushed in any order, and the answer is the same: what has no order of its own is in the order
//! of the ordinals, a group or a distinct row at that of the first item it comes from.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::ControlFlow;

use super::rows::Flow;
use super::{AggregateState, Machine};
use crate::compile::{Operation, Program};
use crate::error::EvaluationError;
use crate::meter::Meter;
use crate::value::{Key, Value};

/// Rows beyond twice the number that can matter are let go in lots of this size.
const SLACK: usize = 1024;
/// Rows of short keys that are sorted between two looks at the clock; fewer if their keys are long.
const PIECE_STEPS: usize = 32 << 10;
/// Cost of comparing two large keys, relative to reading them once.
const COMPARED_PER_SCAN: usize = 8;
/// About what one entry of a hash table takes beyond its key's bytes.
const ENTRY_BYTES: usize = 64;

/// Rows on their way to an answer. `'r` is how long they live: as long as the item for a sub-query,
/// for ever for the query itself.
pub(super) struct Collector<'r> {
    rows: Vec<Row<'r>>,
    /// Distinct rows, and where they are as long as nothing is let go.
    seen: HashMap<Key, usize>,
    groups: HashMap<Key, usize>,
    group_list: Vec<Group>,
    memory: usize,
    /// With so many rows there is nothing left to look for.
    enough: Option<u64>,
    /// Rows up to here were answered before.
    after: Option<OrderMark>,
    /// How many rows equal to that mark have been passed over.
    passed: u64,
    /// How many sorted rows matter now; otherwise as many as the program says.
    page: Option<usize>,
}

/// A place in sorted rows: behind so many rows with these sort keys of this item.
#[derive(Clone, Debug)]
pub struct OrderMark {
    /// The sort keys.
    pub keys: Vec<Value<'static>>,
    /// What decides between rows that are equal in every key.
    pub ordinal: u64,
    /// An item can have several rows that are equal in both.
    pub repeats: u64,
}

/// A row of a sorted answer.
#[derive(Clone, Debug)]
pub struct SortedRow {
    /// The row.
    pub json: Vec<u8>,
    /// The place behind it.
    pub mark: OrderMark,
}

struct Row<'r> {
    keys: Vec<Value<'r>>,
    /// Decides between rows that are equal in every key.
    ordinal: u64,
    output: Value<'r>,
}

struct Group {
    /// The lowest of its items.
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

    /// Sorted rows behind a mark, of which only the first `page` matter.
    pub(super) fn for_page(mut self, after: Option<OrderMark>, page: usize) -> Collector<'r> {
        self.after = after;
        self.page = Some(page);
        self
    }

    pub(super) fn rows_kept(&self) -> usize {
        self.rows.len()
    }

    /// Takes the row whose names are in place in `machine`.
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
                    // Equal values may be written differently, such as 3 and 3.0.
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

    /// Whether a row lies before the mark.
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

    /// Drops sorted rows that cannot be among the first.
    fn prune(
        &mut self,
        machine: &mut Machine<'_, '_>,
        program: &Program,
    ) -> Result<(), EvaluationError> {
        let by_program = || program.reach().and_then(|reach| usize::try_from(reach).ok());
        // One more than the page, to know that there is one.
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

    /// Sorts the rows, in pieces between which the clock is looked at.
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
        // Steps of a comparison: both keys are taken apart. A piece is about as much work whatever they are.
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

    /// The rows of a page in order, each with its mark, and whether there are more behind them.
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

    /// Takes so many rows for the only group of a program that only counts them.
    pub(super) fn count(&mut self, program: &Program, rows: u64) {
        if self.group_list.is_empty() {
            let aggregates = states(program);
            self.group_list.push(Group { ordinal: 0, keys: Vec::new(), aggregates });
        }
        let Some(group) = self.group_list.first_mut() else { return };
        for (state, (_, argument)) in group.aggregates.iter_mut().zip(&program.aggregates) {
            match argument {
                Operation::Constant(value) => state.add_alike(value, rows),
                // An item is there, and is an object.
                _ => state.add_alike(&Value::Null, rows),
            }
        }
    }

    /// The place of the group a row belongs to.
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

    /// The rows of the answer, in order, and how many bytes are still counted as kept for them.
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

    /// Groups become rows, and these may be distinct and sorted again.
    fn finish_groups<'a>(
        mut self,
        machine: &mut Machine<'a, '_>,
        program: &'a Program,
    ) -> Result<(Vec<Value<'a>>, usize), EvaluationError> {
        let mut groups = std::mem::take(&mut self.group_list);
        if groups.is_empty() && program.groups.is_empty() {
            // Aggregates over no rows still have an answer.
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

/// The order of two rows by their sort keys, then by their ordinals.
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

/// Bytes a row takes. Text it borrows from the item is not its own.
fn weight(row: &Row<'_>) -> usize {
    let keys = row.keys.iter().map(Value::held_bytes).sum::<usize>();
    row.output.held_bytes() + keys + size_of::<Row<'_>>()
}

/// Rows of which every `sorted` are in order, with every two times as many in order. Stable.
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
