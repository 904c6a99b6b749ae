//! Evaluation of programs over items.
//!
//! ```text
//! run.rs        the caller's interface: items in, rows out, one budget
//! rows.rs       FROM, JOIN and WHERE: one item to many rows; sub-queries
//! portion.rs    a part of the rows of one item, and where it ends
//! collect.rs    ORDER BY, GROUP BY, DISTINCT: rows that have to wait for each other
//! aggregate.rs  COUNT, SUM and the other aggregates
//! operators.rs  the operators, undefined included
//! like.rs       LIKE
//! ```
//!
//! Nothing here reads a clock or generates random seeds: both come with the [`Context`]. Work is counted in
//! steps, rows and values in bytes (see `meter`); a query that exceeds a limit of either ends with an
//! error.

mod aggregate;
mod collect;
mod like;
mod operators;
mod portion;
mod rows;
mod run;

use std::sync::Arc;

pub(crate) use aggregate::AggregateState;
pub use collect::{OrderMark, SortedRow};
pub(crate) use like::LikePattern;
pub use portion::{Portion, Portioned, RowPosition};
pub use run::{Next, Progress, Run};

use crate::ast::BinaryOperator;
use crate::compile::{Compiled, Operation};
use crate::error::EvaluationError;
use crate::functions::{Body, Patterns};
use crate::limits::Limits;
use crate::meter::{Budget, Meter};
use crate::value::{Found, Key, Value, find_members, place_of, value_in};

/// User-defined functions of a container.
pub trait UserFunctions: Send + Sync {
    /// Calls a function; the error is a message for the user.
    fn call(&self, name: &str, arguments: &[Value<'_>]) -> Result<Value<'static>, String>;
}

/// The time, seed, functions and budget of a run.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Context {
    /// The time the query sees, in units of 100 ns since 1970-01-01.
    pub now_ticks: i64,
    /// The seed of `RAND`.
    pub seed: u64,
    /// User-defined functions; without them every call of one fails.
    pub functions: Option<Arc<dyn UserFunctions>>,
    /// The memory and time the run may take.
    pub budget: Budget,
}

impl Context {
    /// A context at this time, in units of 100 ns since 1970-01-01.
    pub fn at(now_ticks: i64) -> Context {
        Context { now_ticks, ..Context::default() }
    }

    /// Sets the seed of `RAND`.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Context {
        self.seed = seed;
        self
    }

    /// Adds user-defined functions.
    #[must_use]
    pub fn with_functions(mut self, functions: Arc<dyn UserFunctions>) -> Context {
        self.functions = Some(functions);
        self
    }

    /// Sets the budget.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Context {
        self.budget = budget;
        self
    }
}

/// The state of a whole run: the context and the remaining budget.
pub(crate) struct Environment {
    pub(crate) now_ticks: i64,
    random: u64,
    functions: Option<Arc<dyn UserFunctions>>,
    pub(crate) meter: Meter,
    pub(crate) limits: Limits,
    /// Compiled patterns of `RegexMatch`.
    pub(crate) patterns: Patterns,
}

impl Environment {
    pub(crate) fn new(context: Context, limits: &Limits) -> Environment {
        Environment {
            now_ticks: context.now_ticks,
            random: context.seed,
            functions: context.functions,
            meter: Meter::new(context.budget, limits),
            limits: limits.clone(),
            patterns: Patterns::default(),
        }
    }

    #[inline]
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), EvaluationError> {
        self.meter.step(steps)
    }

    /// Checks the size of a value against the limit for one value and the memory left to the run.
    pub(crate) fn allow(
        &mut self,
        function: &'static str,
        bytes: usize,
    ) -> Result<(), EvaluationError> {
        let limit = self.limits.value_bytes;
        if bytes > limit {
            return Err(EvaluationError::ValueTooLarge { function, limit });
        }
        self.meter.charge(bytes)
    }

    /// A number from 0 up to but not including 1 (splitmix64).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(crate) fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A wanted property of the item, as far as it was read.
#[derive(Clone)]
enum Wanted<'a> {
    /// Its text, if it exists; not parsed yet.
    Found(Option<Found<'a>>),
    Read(Value<'a>),
}

fn find_wanted<'a>(compiled: &Compiled, item: &'a [u8]) -> Vec<Wanted<'a>> {
    let wanted = &compiled.wanted;
    let found = find_members(item, wanted.len(), |raw| place_of(raw, wanted));
    found.into_iter().map(Wanted::Found).collect()
}

type Evaluated<'a> = Result<Value<'a>, EvaluationError>;

/// The binding of a `FROM` name in one row.
struct Slot<'a> {
    value: Value<'a>,
    /// The first of its parts, if they were found along with it.
    parts: Option<usize>,
}

/// One item under evaluation.
pub(crate) struct Machine<'a, 'e> {
    compiled: &'a Compiled,
    item: Option<&'a [u8]>,
    /// The wanted properties of the item, found at the first use of one.
    members: Option<Vec<Wanted<'a>>>,
    slots: Vec<Slot<'a>>,
    /// Texts of properties of elements in slots.
    parts: Vec<Option<&'a [u8]>>,
    group_keys: Vec<Value<'a>>,
    aggregates: Vec<Value<'a>>,
    /// The position among the item's rows, if only a portion of them is wanted.
    cursor: Option<portion::Cursor>,
    pub(crate) environment: &'e mut Environment,
}

impl<'a, 'e> Machine<'a, 'e> {
    pub(crate) fn new(
        compiled: &'a Compiled,
        item: Option<&'a [u8]>,
        environment: &'e mut Environment,
    ) -> Machine<'a, 'e> {
        Machine {
            compiled,
            item,
            members: None,
            slots: Vec::new(),
            parts: Vec::new(),
            group_keys: Vec::new(),
            aggregates: Vec::new(),
            cursor: None,
            environment,
        }
    }

    /// A wanted property. The first call finds all of them in one walk over the item.
    fn wanted(&mut self, index: usize) -> Value<'a> {
        let Some(member) = self.find_wanted(index) else { return Value::Undefined };
        let found = match member {
            Wanted::Read(value) => return value.clone(),
            Wanted::Found(found) => *found,
        };
        let value = found.map_or(Value::Undefined, |found| Value::of_item(found.whole()));
        *member = Wanted::Read(value.clone());
        value
    }

    /// The unparsed text of an array of the item; it may continue after the array's end.
    fn array_text(&mut self, operation: &Operation) -> Option<&'a [u8]> {
        match operation {
            Operation::Wanted(index) => match self.find_wanted(*index)? {
                Wanted::Found(found) => (*found)?.array(),
                Wanted::Read(_) => None,
            },
            Operation::Part(part) => {
                let first = self.slots.get(part.slot)?.parts?;
                let text = self.parts.get(first + part.place).copied().flatten();
                text.filter(|text| text.first() == Some(&b'['))
            }
            _ => None,
        }
    }

    fn find_wanted(&mut self, index: usize) -> Option<&mut Wanted<'a>> {
        let (compiled, item) = (self.compiled, self.item.unwrap_or_default());
        self.members.get_or_insert_with(|| find_wanted(compiled, item)).get_mut(index)
    }

    /// Evaluates an expression.
    pub(crate) fn evaluate(&mut self, operation: &'a Operation) -> Evaluated<'a> {
        self.environment.spend(1)?;
        let value = match operation {
            Operation::Constant(value) => value.borrowed(),
            Operation::Root => self.item.map_or(Value::Undefined, Value::of_item),
            Operation::Wanted(index) => self.wanted(*index),
            Operation::Slot(slot) => {
                self.slots.get(*slot).map_or(Value::Undefined, |slot| slot.value.clone())
            }
            Operation::Part(part) => {
                let Some(slot) = self.slots.get(part.slot) else { return Ok(Value::Undefined) };
                self.environment.spend(1 + slot.value.scan_cost())?;
                match slot.parts {
                    Some(first) => {
                        let found = self.parts.get(first + part.place).copied().flatten();
                        found.map_or(Value::Undefined, value_in)
                    }
                    None => slot.value.member(&part.name),
                }
            }
            Operation::Member(of, name) => {
                let of = self.evaluate(of)?;
                self.environment.spend(of.scan_cost())?;
                of.member(name)
            }
            Operation::Index(of, index) => {
                let of = self.evaluate(of)?;
                self.environment.spend(of.scan_cost())?;
                let index = self.evaluate(index)?;
                operators::index(&of, &index)
            }
            Operation::Unary(operator, of) => operators::unary(*operator, &self.evaluate(of)?),
            Operation::Binary(operator, one, two) => return self.binary(*operator, one, two),
            Operation::And(list) => return self.and(list),
            Operation::Or(list) => return self.or(list),
            Operation::Not(of) => operators::not(&self.evaluate(of)?),
            Operation::Conditional(three) => {
                let [condition, yes, no] = three.as_ref();
                let chosen = if self.evaluate(condition)?.is_true() { yes } else { no };
                return self.evaluate(chosen);
            }
            Operation::In(of, list) => return self.in_list(of, list),
            Operation::InSet(of, set) => match self.evaluate(of)? {
                Value::Undefined => Value::Undefined,
                value => {
                    let key = Key::charged(&value, &mut self.environment.meter)?;
                    Value::Bool(set.contains(&key))
                }
            },
            Operation::Between(three) => return self.between(three),
            Operation::Like(of, pattern) => {
                let of = self.evaluate(of)?;
                return self.like(&of, pattern);
            }
            Operation::LikeDynamic(of, pattern, escape) => {
                return self.like_dynamic(of, pattern, escape.as_deref());
            }
            Operation::Call(function, list) => return self.call(function, list),
            Operation::UserCall(name, list) => return self.user_call(name, list),
            Operation::Array(list) => {
                let made = Value::array(self.list(list)?);
                return self.fitting("an array", made);
            }
            Operation::Object(members) => return self.object(members),
            Operation::Scalar(program) => {
                let first = self.select(program, Some(1))?.into_iter().next();
                // Already charged by the sub-query.
                return Ok(first.unwrap_or_default());
            }
            Operation::ArrayOf(program) => {
                let made = Value::array(self.select(program, None)?);
                return self.fitting("ARRAY", made);
            }
            Operation::Exists(program) => {
                let mark = self.environment.meter.mark();
                let exists = !self.select(program, Some(1))?.is_empty();
                self.environment.meter.release_to(mark);
                Value::Bool(exists)
            }
            Operation::Group(index) => self.group_keys.get(*index).cloned().unwrap_or_default(),
            Operation::Aggregate(index) => self.aggregates.get(*index).cloned().unwrap_or_default(),
        };
        let owned = value.owned_bytes();
        if owned > 0 {
            self.environment.spend(value.copy_cost())?;
            self.environment.meter.charge(owned)?;
        }
        Ok(value)
    }

    fn list(&mut self, list: &'a [Operation]) -> Result<Vec<Value<'a>>, EvaluationError> {
        list.iter().map(|one| self.evaluate(one)).collect()
    }

    fn object(&mut self, members: &'a [(String, Operation)]) -> Evaluated<'a> {
        let mut made = Vec::with_capacity(members.len());
        for (name, value) in members {
            made.push((name.as_str().into(), self.evaluate(value)?));
        }
        self.fitting("an object", Value::object_of_unique(made))
    }

    /// Checks the size of a made value. Parts can be shared, so a short query could otherwise produce a value
    /// larger than any memory.
    fn fitting(&mut self, maker: &'static str, made: Value<'a>) -> Evaluated<'a> {
        if !matches!(made, Value::Array(_) | Value::Object(_)) {
            self.environment.meter.charge(made.owned_bytes())?;
            return Ok(made);
        }
        let limit = self.environment.limits.value_bytes;
        match made.weight_within(limit) {
            Some(weight) => {
                self.environment.spend(weight / 1024)?;
                self.environment.meter.charge(weight)?;
                Ok(made)
            }
            None => Err(EvaluationError::ValueTooLarge { function: maker, limit }),
        }
    }

    fn binary(
        &mut self,
        operator: BinaryOperator,
        one: &'a Operation,
        two: &'a Operation,
    ) -> Evaluated<'a> {
        let one = self.evaluate(one)?;
        if operator == BinaryOperator::Coalesce {
            return if one.is_undefined() { self.evaluate(two) } else { Ok(one) };
        }
        let two = self.evaluate(two)?;
        if matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual) {
            let equal = self.equal(&one, &two)?;
            let is_wanted = operator == BinaryOperator::Equal;
            return Ok(equal.map_or(Value::Undefined, |equal| Value::Bool(equal == is_wanted)));
        }
        self.environment.spend(one.scan_cost() + two.scan_cost())?;
        if operator == BinaryOperator::Concatenate {
            let bytes = one.as_text().map_or(0, str::len) + two.as_text().map_or(0, str::len);
            self.environment.allow("||", bytes)?;
        }
        Ok(operators::binary(operator, &one, &two))
    }

    /// The language's `=`, charged for the steps and memory of comparing the values.
    fn equal(&mut self, one: &Value<'_>, two: &Value<'_>) -> Result<Option<bool>, EvaluationError> {
        let meter = &mut self.environment.meter;
        let mark = meter.mark();
        meter.charge(one.opened_bytes().saturating_add(two.opened_bytes()))?;
        let equal = one.equals_charged(two, meter)?;
        meter.release_to(mark);
        Ok(equal)
    }

    /// False as soon as one is false; undefined if one is not a boolean and none is false.
    fn and(&mut self, list: &'a [Operation]) -> Evaluated<'a> {
        let mut result = Value::Bool(true);
        for one in list {
            match self.evaluate(one)?.as_bool() {
                Some(true) => {}
                Some(false) => return Ok(Value::Bool(false)),
                None => result = Value::Undefined,
            }
        }
        Ok(result)
    }

    /// True as soon as one is true; undefined if one is not a boolean and none is true.
    fn or(&mut self, list: &'a [Operation]) -> Evaluated<'a> {
        let mut result = Value::Bool(false);
        for one in list {
            match self.evaluate(one)?.as_bool() {
                Some(true) => return Ok(Value::Bool(true)),
                Some(false) => {}
                None => result = Value::Undefined,
            }
        }
        Ok(result)
    }

    fn in_list(&mut self, of: &'a Operation, list: &'a [Operation]) -> Evaluated<'a> {
        let of = self.evaluate(of)?;
        let mut result = Value::Bool(false);
        for one in list {
            let one = self.evaluate(one)?;
            match self.equal(&of, &one)? {
                Some(true) => return Ok(Value::Bool(true)),
                Some(false) => {}
                None => result = Value::Undefined,
            }
        }
        Ok(result)
    }

    fn between(&mut self, three: &'a [Operation; 3]) -> Evaluated<'a> {
        let [of, low, high] = three;
        let of = self.evaluate(of)?;
        let (low, high) = (self.evaluate(low)?, self.evaluate(high)?);
        self.environment.spend(of.scan_cost() + low.scan_cost() + high.scan_cost())?;
        let above = of.compare(&low).map(std::cmp::Ordering::is_ge);
        let below = of.compare(&high).map(std::cmp::Ordering::is_le);
        Ok(match (above, below) {
            (Some(false), _) | (_, Some(false)) => Value::Bool(false),
            (Some(true), Some(true)) => Value::Bool(true),
            _ => Value::Undefined,
        })
    }

    fn like(&mut self, of: &Value<'a>, pattern: &LikePattern) -> Evaluated<'a> {
        let Some(text) = of.as_text() else { return Ok(Value::Undefined) };
        pattern.matches(text, &mut self.environment.meter).map(Value::Bool)
    }

    fn like_dynamic(
        &mut self,
        of: &'a Operation,
        pattern: &'a Operation,
        escape: Option<&'a Operation>,
    ) -> Evaluated<'a> {
        let of = self.evaluate(of)?;
        let pattern = self.evaluate(pattern)?;
        let escape = escape.map(|escape| self.evaluate(escape)).transpose()?;
        self.environment.spend(pattern.as_text().map_or(0, |text| text.len() / 16))?;
        match LikePattern::new(&pattern, escape.as_ref()) {
            Some(pattern) => self.like(&of, &pattern),
            None => Ok(Value::Undefined),
        }
    }

    fn call(
        &mut self,
        function: &'static crate::functions::Function,
        list: &'a [Operation],
    ) -> Evaluated<'a> {
        let arguments = self.list(list)?;
        self.environment.spend(arguments.iter().map(Value::visit_cost).sum())?;
        // Releases what the function needs while it runs, and charges its result.
        let mark = self.environment.meter.mark();
        for argument in &arguments {
            self.environment.meter.charge(argument.opened_bytes())?;
        }
        let made = match function.body {
            Body::Pure(body) => body(&arguments).unwrap_or_default(),
            Body::Careful(body) => body(&arguments, self.environment)?.unwrap_or_default(),
            Body::Aggregate(_) | Body::NotYet => Value::Undefined,
        };
        self.environment.meter.release_to(mark);
        self.fitting(function.name, made)
    }

    fn user_call(&mut self, name: &'a str, list: &'a [Operation]) -> Evaluated<'a> {
        let arguments = self.list(list)?;
        let failed =
            |problem: String| EvaluationError::UserFunction { name: name.to_owned(), problem };
        let Some(functions) = self.environment.functions.clone() else {
            return Err(failed("there is no such function here; create it first".to_owned()));
        };
        let made = functions.call(name, &arguments).map_err(failed)?;
        self.fitting("a user-defined function", made)
    }
}
