//! Prints trees as query text.

use std::fmt::{self, Display, Formatter};

use crate::ast::{
    Collection, Column, Expression, From, Node, OrderItem, Projection, Select, Source,
    UnaryOperator,
};
use crate::lexer::{ORDER_BY_FILTER, is_word_part, is_word_start};
use crate::parser::is_reserved;
use crate::value::write_text;

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        if self.distinct {
            f.write_str("DISTINCT ")?;
        }
        if let Some(top) = &self.top {
            write!(f, "TOP {top} ")?;
        }
        write!(f, "{}", self.projection)?;
        if let Some(from) = &self.from {
            write!(f, " FROM {from}")?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        if !self.group_by.is_empty() {
            write!(f, " GROUP BY {}", Separated(&self.group_by))?;
        }
        if !self.order_by.is_empty() {
            write!(f, " ORDER BY {}", Separated(&self.order_by))?;
        }
        if let Some((offset, limit)) = &self.offset_limit {
            write!(f, " OFFSET {offset} LIMIT {limit}")?;
        }
        Ok(())
    }
}

impl Display for Projection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Projection::All => f.write_str("*"),
            Projection::Value(expression) => write!(f, "VALUE {expression}"),
            Projection::List(columns) => write!(f, "{}", Separated(columns)),
        }
    }
}

impl Display for Column {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expression)?;
        match &self.alias {
            Some(alias) => write!(f, " AS {alias}"),
            None => Ok(()),
        }
    }
}

impl Display for From {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.joins.iter().try_for_each(|join| write!(f, " JOIN {join}"))
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.alias {
            Some(alias) if self.each => write!(f, "{alias} IN {}", self.collection),
            Some(alias) => write!(f, "{} AS {alias}", self.collection),
            None => write!(f, "{}", self.collection),
        }
    }
}

impl Display for Collection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Collection::Path(path) => write!(f, "{path}"),
            Collection::Query(select) => write!(f, "({select})"),
        }
    }
}

impl Display for OrderItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let direction = match (self.descending, self.has_direction) {
            (true, _) => " DESC",
            (false, true) => " ASC",
            (false, false) => "",
        };
        write!(f, "{}{direction}", self.expression)
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.node {
            Node::Literal(value) => write!(f, "{value}"),
            Node::Parameter(name) | Node::Name(name) => f.write_str(name),
            Node::Property(of, name) if is_plain(name) => write!(f, "{}.{name}", Base(of)),
            Node::Property(of, name) => write!(f, "{}[{}]", Base(of), Quoted(name)),
            Node::Index(of, index) => write!(f, "{}[{index}]", Base(of)),
            Node::Unary(operator, of) => write!(f, "{}{}", sign(*operator), Operand(of)),
            Node::Binary(operator, one, two) => {
                write!(f, "{} {} {}", Operand(one), operator.sign(), Operand(two))
            }
            Node::And(list) => joined(f, list, " AND "),
            Node::Or(list) => joined(f, list, " OR "),
            Node::Conditional(three) => {
                let [condition, yes, no] = three.as_ref();
                write!(f, "{} ? {} : {}", Operand(condition), Operand(yes), Operand(no))
            }
            Node::In(of, list, negated) => {
                write!(f, "{} {}IN ({})", Operand(of), not(*negated), Separated(list))
            }
            Node::Between(three, negated) => {
                let [of, low, high] = three.as_ref();
                let (of, low, high) = (Operand(of), Operand(low), Operand(high));
                write!(f, "{of} {}BETWEEN {low} AND {high}", not(*negated))
            }
            Node::Like(of, pattern, escape, negated) => {
                write!(f, "{} {}LIKE {}", Operand(of), not(*negated), Operand(pattern))?;
                match escape {
                    Some(escape) => write!(f, " ESCAPE {}", Operand(escape)),
                    None => Ok(()),
                }
            }
            Node::Call(name, list) => write!(f, "{name}({})", Separated(list)),
            Node::UserCall(name, list) => write!(f, "udf.{name}({})", Separated(list)),
            Node::Array(list) => write!(f, "[{}]", Separated(list)),
            Node::Object(members) => {
                f.write_str("{")?;
                for (index, (name, value)) in members.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{}: {value}", Quoted(name))?;
                }
                f.write_str("}")
            }
            Node::Scalar(select) => write!(f, "({select})"),
            Node::ArrayOf(select) => write!(f, "ARRAY({select})"),
            Node::Exists(select) => write!(f, "EXISTS({select})"),
            Node::OrderByFilter => f.write_str(ORDER_BY_FILTER),
        }
    }
}

fn sign(operator: UnaryOperator) -> &'static str {
    match operator {
        UnaryOperator::Not => "NOT ",
        UnaryOperator::Minus => "-",
        UnaryOperator::Plus => "+",
        UnaryOperator::BitNot => "~",
    }
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn joined(f: &mut Formatter<'_>, list: &[Expression], between: &str) -> fmt::Result {
    for (index, one) in list.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        write!(f, "{}", Operand(one))?;
    }
    Ok(())
}

/// Whether a property can be written after a dot.
fn is_plain(name: &str) -> bool {
    name.starts_with(is_word_start) && name.chars().all(is_word_part) && !is_reserved(name)
}

/// An operand: in parentheses unless it is unambiguous.
struct Operand<'e>(&'e Expression);

impl Display for Operand<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let compound = matches!(
            &self.0.node,
            Node::Unary(..)
                | Node::Binary(..)
                | Node::And(_)
                | Node::Or(_)
                | Node::Conditional(_)
                | Node::In(..)
                | Node::Between(..)
                | Node::Like(..)
        );
        if compound { write!(f, "({})", self.0) } else { write!(f, "{}", self.0) }
    }
}

/// The expression before a property. A bare `1.a` would read as a number.
struct Base<'e>(&'e Expression);

impl Display for Base<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0.node {
            Node::Literal(_) => write!(f, "({})", self.0),
            _ => write!(f, "{}", Operand(self.0)),
        }
    }
}

/// A name as a quoted string.
struct Quoted<'n>(&'n str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut out = Vec::new();
        write_text(self.0, &mut out);
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

/// A list separated by commas.
struct Separated<'l, T>(&'l [T]);

impl<T: Display> Display for Separated<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, one) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{one}")?;
        }
        Ok(())
    }
}
