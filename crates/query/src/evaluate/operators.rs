//! Operators. An operator that does not apply to its operands returns undefined, never an error.

use crate::ast::{BinaryOperator, UnaryOperator};
use crate::value::Value;

pub(super) fn not<'a>(value: &Value<'_>) -> Value<'a> {
    value.as_bool().map_or(Value::Undefined, |value| Value::Bool(!value))
}

pub(super) fn unary<'a>(operator: UnaryOperator, value: &Value<'a>) -> Value<'a> {
    if operator == UnaryOperator::Not {
        return not(value);
    }
    let Some(number) = value.as_number() else { return Value::Undefined };
    match operator {
        UnaryOperator::Minus => Value::number(-number),
        UnaryOperator::BitNot => Value::number(f64::from(!to_int32(number))),
        _ => value.clone(),
    }
}

pub(super) fn binary<'a>(operator: BinaryOperator, one: &Value<'a>, two: &Value<'a>) -> Value<'a> {
    use BinaryOperator as B;
    let truth = |truth: Option<bool>| truth.map_or(Value::Undefined, Value::Bool);
    match operator {
        B::Equal => truth(one.equals(two)),
        B::NotEqual => truth(one.equals(two).map(|equal| !equal)),
        B::Less => truth(one.compare(two).map(|order| order.is_lt())),
        B::LessOrEqual => truth(one.compare(two).map(|order| order.is_le())),
        B::Greater => truth(one.compare(two).map(|order| order.is_gt())),
        B::GreaterOrEqual => truth(one.compare(two).map(|order| order.is_ge())),
        B::Concatenate => match (one.as_text(), two.as_text()) {
            (Some(one), Some(two)) => Value::from(format!("{one}{two}")),
            _ => Value::Undefined,
        },
        B::Coalesce => (if one.is_undefined() { two } else { one }).clone(),
        _ => match (one.as_number(), two.as_number()) {
            (Some(one), Some(two)) => Value::number(arithmetic(operator, one, two)),
            _ => Value::Undefined,
        },
    }
}

fn arithmetic(operator: BinaryOperator, one: f64, two: f64) -> f64 {
    use BinaryOperator as B;
    let shift = u32::from_ne_bytes(to_int32(two).to_ne_bytes()) & 31;
    match operator {
        B::Add => one + two,
        B::Subtract => one - two,
        B::Multiply => one * two,
        B::Divide => one / two,
        B::Modulo => one % two,
        B::BitAnd => f64::from(to_int32(one) & to_int32(two)),
        B::BitOr => f64::from(to_int32(one) | to_int32(two)),
        B::BitXor => f64::from(to_int32(one) ^ to_int32(two)),
        B::ShiftLeft => f64::from(to_int32(one).wrapping_shl(shift)),
        B::ShiftRight => f64::from(to_int32(one).wrapping_shr(shift)),
        B::ShiftRightZero => f64::from(to_int32(one).cast_unsigned().wrapping_shr(shift)),
        _ => f64::NAN,
    }
}

/// The low 32 bits of the integer part, as in JavaScript's operators.
#[expect(clippy::cast_possible_truncation, reason = "the range is made to fit first")]
fn to_int32(number: f64) -> i32 {
    if !number.is_finite() {
        return 0;
    }
    let wrapped = number.trunc().rem_euclid(4_294_967_296.0);
    (wrapped as i64) as i32
}

pub(super) fn index<'a>(of: &Value<'a>, index: &Value<'_>) -> Value<'a> {
    if let Some(name) = index.as_text() {
        return of.member(name);
    }
    match index.as_integer().and_then(|index| usize::try_from(index).ok()) {
        Some(index) => of.element(index),
        None => Value::Undefined,
    }
}

#[cfg(test)]
mod tests {
    use super::to_int32;

    #[test]
    fn numbers_wrap_to_32_bits() {
        let cases = [
            (0.0, 0),
            (-1.0, -1),
            (1.9, 1),
            (-1.9, -1),
            (2_147_483_648.0, i32::MIN),
            (4_294_967_297.0, 1),
            (f64::INFINITY, 0),
        ];
        for (number, expected) in cases {
            assert_eq!(to_int32(number), expected, "{number}");
        }
    }
}
