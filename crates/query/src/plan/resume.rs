//! Resumes a sorted query on one range: turns the `resumeFilter` that the .NET SDK sends with a
//! rewritten query into a condition of the query.
//!
//! Other SDKs write the same condition into the text themselves. A row counts if its sort keys come
//! after the values of the last row that was read, or, unless they are excluded, are equal to them. The
//! SDK itself drops equal rows that it has seen.

use crate::ast::{Expression, Node, OrderItem, Select};
use crate::error::{Problem, QueryError, Span};
use crate::limits::Limits;
use crate::parser::{parse, parse_expression};
use crate::value::{Kind, Value};

/// The sort keys of the last row that a client has read.
#[derive(Clone, Debug)]
pub struct ResumePoint {
    /// One value for each sort key. An empty array stands for undefined.
    pub values: Vec<Value<'static>>,
    /// Whether rows with equal sort keys are left out.
    pub is_exclusive: bool,
}

/// Types of values in the order of `ORDER BY`, as conditions on an expression.
const SORTS: [(&str, &str); 8] = [
    ("NOT IS_DEFINED(", ")"),
    ("IS_NULL(", ")"),
    ("(", " = false)"),
    ("(", " = true)"),
    ("IS_NUMBER(", ")"),
    ("IS_STRING(", ")"),
    ("IS_ARRAY(", ")"),
    ("IS_OBJECT(", ")"),
];

impl ResumePoint {
    /// The text of the query that starts at this point.
    ///
    /// # Errors
    /// When the text is not a query, or does not sort by as many keys as there are values.
    pub fn resumed(&self, text: &str) -> Result<String, QueryError> {
        let limits = Limits::default();
        let tree = parse(text, &limits)?;
        let refuse = |problem: String| {
            let span = Span { start: 0, end: text.len() };
            QueryError::new(Problem::Meaning(problem), span, text)
        };
        let (keys, values) = (tree.order_by.len(), self.values.len());
        if keys != values || values == 0 {
            let problem = format!("The resume filter has {values} values for {keys} sort keys");
            return Err(refuse(problem));
        }
        let levels = tree.order_by.iter().zip(&self.values).map(|(key, value)| level(key, value));
        let levels: Option<Vec<Level>> = levels.collect();
        let Some(levels) = levels else {
            let problem = "A resume filter cannot start at an array or an object; start the query \
                           from its beginning";
            return Err(refuse(problem.to_owned()));
        };
        let condition = parse_expression(&self.condition(&levels), &limits)?;
        let filter = match tree.filter {
            Some(filter) => Expression::new(Node::And(vec![filter, condition]), Span::default()),
            None => condition,
        };
        Ok(Select { filter: Some(filter), ..tree }.to_string())
    }

    /// After the first key, or equal to it and after the second, and so on.
    fn condition(&self, levels: &[Level]) -> String {
        let mut ways = Vec::with_capacity(levels.len() + 1);
        let mut equal: Vec<&str> = Vec::with_capacity(levels.len() + 1);
        for level in levels {
            equal.push(&level.after);
            ways.push(format!("({})", equal.join(" AND ")));
            equal.pop();
            equal.push(&level.equal);
        }
        if !self.is_exclusive {
            ways.push(format!("({})", equal.join(" AND ")));
        }
        format!("({})", ways.join(" OR "))
    }
}

/// Two conditions on a sort key: equal to a value, and after it.
struct Level {
    equal: String,
    after: String,
}

fn level(key: &OrderItem, value: &Value<'static>) -> Option<Level> {
    let key_text = key.expression.to_string();
    let is_sort = |sort: usize| format!("{}{key_text}{}", SORTS[sort].0, SORTS[sort].1);
    let sort = match value.kind() {
        Kind::Undefined => 0,
        Kind::Array if value.to_json().as_slice() == b"[]" => 0,
        Kind::Null => 1,
        Kind::Bool => 2 + usize::from(matches!(value, Value::Bool(true))),
        Kind::Number => 4,
        Kind::String => 5,
        Kind::Array | Kind::Object => return None,
    };
    let literal = String::from_utf8_lossy(&value.to_json()).into_owned();
    let others = if key.descending { 0..sort } else { sort + 1..SORTS.len() };
    let mut after: Vec<String> = others.map(is_sort).collect();
    let mut equal = is_sort(sort);
    if sort >= 4 {
        let operator = if key.descending { '<' } else { '>' };
        after.push(format!("({key_text} {operator} {literal})"));
        equal = format!("({key_text} = {literal})");
    }
    if after.is_empty() {
        after.push("false".to_owned());
    }
    Some(Level { equal, after: format!("({})", after.join(" OR ")) })
}
