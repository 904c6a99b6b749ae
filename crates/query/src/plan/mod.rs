//! Plans.
use crate::ast::{Expression, Node};
use crate::compile::Parameters;
use crate::value::Value;

/// The value of a literal or parameter; `None` for a parameter that was not sent.
pub(crate) fn constant(expression: &Expression, parameters: &Parameters) -> Option<Value<'static>> {
    match &expression.node {
        Node::Literal(value) => Some(value.clone()),
        Node::Parameter(name) => parameters.get(name).cloned(),
        _ => Some(Value::Undefined),
    }
}
