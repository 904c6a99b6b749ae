//! The syntax tree of a query, before names are resolved.
//!
//! `Display` prints a tree as a query again; parsing that gives the same tree. Printed operands are
//! in parentheses unless they are simple, so that precedence is always explicit.

use crate::error::Span;
use crate::value::Value;

/// A whole query or a sub-query.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Select {
    /// Whether equal rows appear once.
    pub distinct: bool,
    /// The most rows (`TOP`).
    pub top: Option<Expression>,
    /// The projection of a row.
    pub projection: Projection,
    /// The sources of rows. Without `FROM` there is one row.
    pub from: Option<From>,
    /// The filter of rows.
    pub filter: Option<Expression>,
    /// The expressions that define groups.
    pub group_by: Vec<Expression>,
    /// The sort keys, the most important first.
    pub order_by: Vec<OrderItem>,
    /// How many rows to skip and how many to take.
    pub offset_limit: Option<(Expression, Expression)>,
}

/// The projection of a row: `SELECT` without its other clauses.
#[derive(Clone, Debug, PartialEq)]
pub enum Projection {
    /// `*`: the row itself.
    All,
    /// `VALUE e`: a bare value.
    Value(Expression),
    /// An object with one property for each expression.
    List(Vec<Column>),
}

/// One property of a projected object.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its value.
    pub expression: Expression,
    /// The name given with `AS`.
    pub alias: Option<String>,
}

/// The sources of rows: a first one, and others joined to it.
#[derive(Clone, Debug, PartialEq)]
pub struct From {
    /// The first source.
    pub first: Source,
    /// The joined sources, each of which sees the names before it.
    pub joins: Vec<Source>,
}

/// One source of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// What it reads.
    pub collection: Collection,
    /// The name of its rows.
    pub alias: Option<String>,
    /// Whether it is `alias IN collection`: one row for each element.
    pub each: bool,
    /// Its position in the text.
    pub span: Span,
}

/// What a source reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Collection {
    /// A name and a path from it.
    Path(Expression),
    /// The rows of a sub-query.
    Query(Box<Select>),
}

/// One level of sorting.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderItem {
    /// The sort key.
    pub expression: Expression,
    /// Whether large values come first.
    pub descending: bool,
    /// Whether the text names the direction: `ASC` or `DESC`.
    pub has_direction: bool,
}

/// An expression and its position in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    /// The expression itself.
    pub node: Node,
    /// Its position in the text.
    pub span: Span,
    /// The nesting depth, this expression included; stored so that it need not be computed.
    pub(crate) depth: usize,
}

/// The kind of an expression, with its operands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Node {
    /// `undefined`, `null`, a boolean, number or string.
    Literal(Value<'static>),
    /// `@name`, with the `@`.
    Parameter(String),
    /// A name from `FROM`.
    Name(String),
    /// `e.name` or `e["name"]`.
    Property(Box<Expression>, String),
    /// `e[e]` with anything but a literal string.
    Index(Box<Expression>, Box<Expression>),
    /// An operator before its operand.
    Unary(UnaryOperator, Box<Expression>),
    /// An operator between its operands.
    Binary(BinaryOperator, Box<Expression>, Box<Expression>),
    /// `e AND e AND …`, flat because clients send thousands.
    And(Vec<Expression>),
    /// `e OR e OR …`, likewise.
    Or(Vec<Expression>),
    /// `e ? e : e`.
    Conditional(Box<[Expression; 3]>),
    /// `e [NOT] IN (e, …)`.
    In(Box<Expression>, Vec<Expression>, bool),
    /// `e [NOT] BETWEEN e AND e`.
    Between(Box<[Expression; 3]>, bool),
    /// `e [NOT] LIKE e [ESCAPE e]`.
    Like(Box<Expression>, Box<Expression>, Option<Box<Expression>>, bool),
    /// `name(e, …)`, the name in capitals.
    Call(String, Vec<Expression>),
    /// `udf.name(e, …)`.
    UserCall(String, Vec<Expression>),
    /// `[e, …]`.
    Array(Vec<Expression>),
    /// `{name: e, …}`.
    Object(Vec<(String, Expression)>),
    /// `(SELECT …)`: the first row's value.
    Scalar(Box<Select>),
    /// `ARRAY(SELECT …)`: all rows.
    ArrayOf(Box<Select>),
    /// `EXISTS(SELECT …)`: whether there is a row.
    Exists(Box<Select>),
    /// The placeholder for a client's resume filter; true until it is replaced.
    OrderByFilter,
}

/// Operators with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    /// `NOT`.
    Not,
    /// `-`.
    Minus,
    /// `+`.
    Plus,
    /// `~`.
    BitNot,
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    /// `??`.
    Coalesce,
    /// `=`.
    Equal,
    /// `!=` or `<>`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `||`.
    Concatenate,
    /// `|`.
    BitOr,
    /// `^`.
    BitXor,
    /// `&`.
    BitAnd,
    /// `<<`.
    ShiftLeft,
    /// `>>`.
    ShiftRight,
    /// `>>>`.
    ShiftRightZero,
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// `%`.
    Modulo,
}

impl BinaryOperator {
    /// Every binary operator with its symbol and precedence; a higher number binds tighter.
    pub(crate) const ALL: &'static [(&'static str, BinaryOperator, u8)] = &[
        ("??", BinaryOperator::Coalesce, 2),
        ("=", BinaryOperator::Equal, 6),
        ("!=", BinaryOperator::NotEqual, 6),
        ("<>", BinaryOperator::NotEqual, 6),
        ("<", BinaryOperator::Less, 6),
        ("<=", BinaryOperator::LessOrEqual, 6),
        (">", BinaryOperator::Greater, 6),
        (">=", BinaryOperator::GreaterOrEqual, 6),
        ("||", BinaryOperator::Concatenate, 7),
        ("|", BinaryOperator::BitOr, 8),
        ("^", BinaryOperator::BitXor, 9),
        ("&", BinaryOperator::BitAnd, 10),
        ("<<", BinaryOperator::ShiftLeft, 11),
        (">>", BinaryOperator::ShiftRight, 11),
        (">>>", BinaryOperator::ShiftRightZero, 11),
        ("+", BinaryOperator::Add, 12),
        ("-", BinaryOperator::Subtract, 12),
        ("*", BinaryOperator::Multiply, 13),
        ("/", BinaryOperator::Divide, 13),
        ("%", BinaryOperator::Modulo, 13),
    ];

    /// The operator's symbol.
    pub fn sign(self) -> &'static str {
        Self::ALL.iter().find(|(_, operator, _)| *operator == self).map_or("", |(sign, ..)| sign)
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        use Node as N;
        match (self, other) {
            (N::Literal(a), N::Literal(b)) => a.order(b).is_eq(),
            (N::Parameter(a), N::Parameter(b)) | (N::Name(a), N::Name(b)) => a == b,
            (N::Property(a, x), N::Property(b, y)) => a == b && x == y,
            (N::Index(a, x), N::Index(b, y)) => a == b && x == y,
            (N::Unary(o, a), N::Unary(p, b)) => o == p && a == b,
            (N::Binary(o, a, x), N::Binary(p, b, y)) => o == p && a == b && x == y,
            (N::And(a), N::And(b)) | (N::Or(a), N::Or(b)) | (N::Array(a), N::Array(b)) => a == b,
            (N::Conditional(a), N::Conditional(b)) => a == b,
            (N::In(a, x, n), N::In(b, y, m)) => a == b && x == y && n == m,
            (N::Between(a, n), N::Between(b, m)) => a == b && n == m,
            (N::Like(a, x, e, n), N::Like(b, y, f, m)) => a == b && x == y && e == f && n == m,
            (N::Call(a, x), N::Call(b, y)) | (N::UserCall(a, x), N::UserCall(b, y)) => {
                a == b && x == y
            }
            (N::Object(a), N::Object(b)) => a == b,
            (N::Scalar(a), N::Scalar(b))
            | (N::ArrayOf(a), N::ArrayOf(b))
            | (N::Exists(a), N::Exists(b)) => a == b,
            (N::OrderByFilter, N::OrderByFilter) => true,
            _ => false,
        }
    }
}

impl Expression {
    pub(crate) fn new(node: Node, span: Span) -> Expression {
        let depth = 1 + node.depth_inside();
        Expression { node, span, depth }
    }

    /// The names of a path, if the expression is a name with properties: `c.a["b"]` is `c`, `a`, `b`.
    pub fn path(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        let mut at = self;
        loop {
            match &at.node {
                Node::Property(of, name) => {
                    names.push(name.as_str());
                    at = of;
                }
                Node::Name(name) => {
                    names.push(name);
                    names.reverse();
                    return Some(names);
                }
                _ => return None,
            }
        }
    }
}

impl Node {
    fn depth_inside(&self) -> usize {
        let most = |list: &[Expression]| list.iter().map(|one| one.depth).max().unwrap_or(0);
        match self {
            Node::Literal(_) | Node::Parameter(_) | Node::Name(_) | Node::OrderByFilter => 0,
            Node::Property(of, _) | Node::Unary(_, of) => of.depth,
            Node::Index(one, two) | Node::Binary(_, one, two) => one.depth.max(two.depth),
            Node::And(list) | Node::Or(list) | Node::Array(list) => most(list),
            Node::Call(_, list) | Node::UserCall(_, list) => most(list),
            Node::Conditional(three) | Node::Between(three, _) => most(three.as_slice()),
            Node::In(of, list, _) => of.depth.max(most(list)),
            Node::Like(of, pattern, escape, _) => {
                of.depth.max(pattern.depth).max(escape.as_ref().map_or(0, |escape| escape.depth))
            }
            Node::Object(list) => list.iter().map(|(_, one)| one.depth).max().unwrap_or(0),
            Node::Scalar(select) | Node::ArrayOf(select) | Node::Exists(select) => select.depth(),
        }
    }
}

impl Select {
    /// The nesting depth of its deepest expression.
    pub(crate) fn depth(&self) -> usize {
        let mut deepest = 0;
        self.each_expression(&mut |expression| deepest = deepest.max(expression.depth));
        if let Some(from) = &self.from {
            for source in std::iter::once(&from.first).chain(&from.joins) {
                if let Collection::Query(select) = &source.collection {
                    deepest = deepest.max(1 + select.depth());
                }
            }
        }
        deepest
    }

    /// Calls `found` with every expression directly in a clause.
    pub(crate) fn each_expression<'s>(&'s self, found: &mut dyn FnMut(&'s Expression)) {
        self.top.iter().for_each(&mut *found);
        match &self.projection {
            Projection::All => {}
            Projection::Value(expression) => found(expression),
            Projection::List(columns) => columns.iter().for_each(|one| found(&one.expression)),
        }
        if let Some(from) = &self.from {
            for source in std::iter::once(&from.first).chain(&from.joins) {
                if let Collection::Path(path) = &source.collection {
                    found(path);
                }
            }
        }
        self.filter.iter().for_each(&mut *found);
        self.group_by.iter().for_each(&mut *found);
        self.order_by.iter().for_each(|item| found(&item.expression));
        if let Some((offset, limit)) = &self.offset_limit {
            found(offset);
            found(limit);
        }
    }
}
