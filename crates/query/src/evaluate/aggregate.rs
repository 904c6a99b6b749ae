//! Aggregates over the values of many rows.
//!
//! Undefined values do not count. A value that an aggregate cannot use, such as a string in `SUM`,
//! makes the whole result undefined, however many valid values there are: that is the service's rule.

use std::collections::HashSet;

use crate::error::EvaluationError;
use crate::functions::AggregateKind;
use crate::meter::Meter;
use crate::value::{Key, Kind, Value};

/// The state of one aggregate.
#[derive(Debug)]
pub(crate) struct AggregateState {
    kind: AggregateKind,
    count: u64,
    total: f64,
    /// Whether a value came that this aggregate cannot use.
    spoiled: bool,
    best: Option<Value<'static>>,
    /// The largest size of `best` so far, in bytes.
    best_bytes: usize,
    list: Vec<Value<'static>>,
    seen: HashSet<Key>,
}

impl AggregateState {
    pub(crate) fn new(kind: AggregateKind) -> AggregateState {
        AggregateState {
            kind,
            count: 0,
            total: 0.0,
            spoiled: false,
            best: None,
            best_bytes: 0,
            list: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// Adds a value, charged by its size, and returns how many bytes it keeps because of it.
    pub(crate) fn add(
        &mut self,
        value: &Value<'_>,
        meter: &mut Meter,
    ) -> Result<usize, EvaluationError> {
        if value.is_undefined() {
            return Ok(0);
        }
        match self.kind {
            AggregateKind::Count => self.count += 1,
            AggregateKind::CountIf => self.count += u64::from(value.is_true()),
            AggregateKind::Sum | AggregateKind::Average => match value.as_number() {
                Some(number) => {
                    self.count += 1;
                    self.total += number;
                }
                None => self.spoiled = true,
            },
            AggregateKind::Min | AggregateKind::Max => {
                meter.step(value.scan_cost())?;
                return Ok(self.compare(value));
            }
            AggregateKind::MakeList => {
                meter.step(value.copy_cost())?;
                return Ok(self.keep(value));
            }
            AggregateKind::MakeSet => {
                let key = Key::charged(value, meter)?;
                let bytes = key.len() + size_of::<Key>();
                if self.seen.insert(key) {
                    meter.step(value.copy_cost())?;
                    return Ok(bytes + self.keep(value));
                }
            }
        }
        Ok(0)
    }

    /// Adds the same value once for each of `rows` rows. Only counts do not depend on the rows themselves.
    pub(crate) fn add_alike(&mut self, value: &Value<'_>, rows: u64) {
        let counts = match self.kind {
            AggregateKind::Count => !value.is_undefined(),
            AggregateKind::CountIf => value.is_true(),
            _ => false,
        };
        self.count += if counts { rows } else { 0 };
    }

    fn keep(&mut self, value: &Value<'_>) -> usize {
        let value = value.clone().into_owned();
        let bytes = value.weight();
        self.list.push(value);
        bytes
    }

    fn compare(&mut self, value: &Value<'_>) -> usize {
        if value.kind() >= Kind::Array {
            self.spoiled = true;
        }
        let better = self.best.as_ref().is_none_or(|best| {
            let order = value.order(best);
            if self.kind == AggregateKind::Min { order.is_lt() } else { order.is_gt() }
        });
        if better && !self.spoiled {
            let best = value.clone().into_owned();
            let grown = best.owned_bytes().saturating_sub(self.best_bytes);
            self.best = Some(best);
            self.best_bytes += grown;
            return grown;
        }
        0
    }

    #[expect(clippy::cast_precision_loss, reason = "row counts stay below 2^53")]
    pub(crate) fn finish(self) -> Value<'static> {
        if self.spoiled {
            return Value::Undefined;
        }
        match self.kind {
            AggregateKind::Count | AggregateKind::CountIf => Value::number(self.count as f64),
            AggregateKind::Sum => Value::number(self.total),
            AggregateKind::Average => Value::number(self.total / self.count as f64),
            AggregateKind::Min | AggregateKind::Max => self.best.unwrap_or_default(),
            AggregateKind::MakeList | AggregateKind::MakeSet => Value::array(self.list),
        }
    }
}
