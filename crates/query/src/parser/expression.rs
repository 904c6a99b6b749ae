//! Parses expressions by precedence climbing, from the loosest operators to the tightest.
//!
//! ```text
//! 1 ?:   2 ??   3 OR   4 AND   5 NOT   6 = < IN BETWEEN LIKE   7 ||   8 |   9 ^   10 &
//! 11 << >> >>>   12 + -   13 * / %   14 - + ~   15 .name [index]
//! ```

use super::{Parser, is_reserved};
use crate::ast::{BinaryOperator, Expression, Node, UnaryOperator};
use crate::error::{QueryError, closest};
use crate::lexer::Token;
use crate::value::{Number, Value};

const CONDITIONAL: u8 = 1;
const COALESCE: u8 = 2;
const OR: u8 = 3;
const AND: u8 = 4;
const NOT: u8 = 5;
const COMPARISON: u8 = 6;
const UNARY: u8 = 14;

/// Keywords that may follow an expression.
const FOLLOWING: &[&str] = &["AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "FROM", "WHERE", "ORDER"];

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Result<Expression, QueryError> {
        self.climb(0)
    }

    /// Parses an expression whose operators all bind at least as tightly as `least`.
    fn climb(&mut self, least: u8) -> Result<Expression, QueryError> {
        self.deeper(|parser| {
            let mut left = parser.prefix()?;
            while let Some(more) = parser.infix(&mut left, least)? {
                left = more;
            }
            Ok(left)
        })
    }

    fn prefix(&mut self) -> Result<Expression, QueryError> {
        let start = self.span();
        let (operator, operand) = if self.take_keyword("NOT") {
            (UnaryOperator::Not, self.climb(NOT)?)
        } else if self.take_symbol("-") {
            (UnaryOperator::Minus, self.climb(UNARY)?)
        } else if self.take_symbol("+") {
            (UnaryOperator::Plus, self.climb(UNARY)?)
        } else if self.take_symbol("~") {
            (UnaryOperator::BitNot, self.climb(UNARY)?)
        } else {
            let primary = self.primary()?;
            return self.postfix(primary);
        };
        let span = start.to(operand.span);
        self.build(Node::Unary(operator, Box::new(operand)), span)
    }

    /// Combines `left` with the operator after it; `None` if that binds too loosely. Takes `left` only if the
    /// result is not `None`.
    fn infix(
        &mut self,
        left: &mut Expression,
        least: u8,
    ) -> Result<Option<Expression>, QueryError> {
        let take = |left: &mut Expression| {
            std::mem::replace(left, Expression::new(Node::OrderByFilter, left.span))
        };
        if let Token::Symbol(symbol) = *self.peek() {
            if symbol == "?" && least <= CONDITIONAL {
                return self.conditional(take(left)).map(Some);
            }
            let known = BinaryOperator::ALL.iter().find(|(sign, ..)| *sign == symbol);
            let Some((_, operator, power)) = known else { return Ok(None) };
            if *power < least {
                return Ok(None);
            }
            self.advance();
            // `a ?? b ?? c` groups to the right, so that the first defined value is found first.
            let right = self.climb(if *power == COALESCE { *power } else { power + 1 })?;
            let span = left.span.to(right.span);
            let node = Node::Binary(*operator, Box::new(take(left)), Box::new(right));
            return self.build(node, span).map(Some);
        }
        if self.is_keyword("AND") && least <= AND {
            return self.chain("AND", AND, take(left), Node::And).map(Some);
        }
        if self.is_keyword("OR") && least <= OR {
            return self.chain("OR", OR, take(left), Node::Or).map(Some);
        }
        if least > COMPARISON {
            return Ok(None);
        }
        let negated = usize::from(self.is_keyword("NOT"));
        for (word, parse) in [
            (
                "IN",
                Self::in_list as fn(&mut Self, Expression, bool) -> Result<Expression, QueryError>,
            ),
            ("BETWEEN", Self::between),
            ("LIKE", Self::like),
        ] {
            if self.is_keyword_after(negated, word) {
                self.at += negated + 1;
                return parse(self, take(left), negated == 1).map(Some);
            }
        }
        Ok(None)
    }

    fn conditional(&mut self, condition: Expression) -> Result<Expression, QueryError> {
        self.want_symbol("?")?;
        let yes = self.climb(CONDITIONAL)?;
        self.want_symbol(":")?;
        let no = self.climb(CONDITIONAL)?;
        let span = condition.span.to(no.span);
        self.build(Node::Conditional(Box::new([condition, yes, no])), span)
    }

    /// Parses `a AND b AND c` as one node, and `(a AND b) AND c` as well: clients send thousands, some of
    /// them nested in each other, and the depth is limited.
    fn chain(
        &mut self,
        word: &str,
        power: u8,
        first: Expression,
        node: fn(Vec<Expression>) -> Node,
    ) -> Result<Expression, QueryError> {
        let start = first.span;
        let mut list = Vec::new();
        flatten(&mut list, first, power);
        while self.take_keyword(word) {
            if list.len() >= self.limits.list_items {
                let problem = format!("More than {} conditions are joined", self.limits.list_items);
                return Err(self.too_large(problem, self.span()));
            }
            let next = self.climb(power + 1)?;
            flatten(&mut list, next, power);
        }
        self.build(node(list), start.to(self.span_before()))
    }

    fn in_list(&mut self, of: Expression, negated: bool) -> Result<Expression, QueryError> {
        self.want_symbol("(")?;
        let list = if self.is_keyword("SELECT") {
            return Err(self
                .unexpected("a list of values", &[])
                .suggesting(Some("'EXISTS(SELECT …)' or 'ARRAY_CONTAINS(ARRAY(SELECT …), …)'")));
        } else {
            self.list("IN", Self::expression)?
        };
        self.want_symbol(")")?;
        let span = of.span.to(self.span_before());
        self.build(Node::In(Box::new(of), list, negated), span)
    }

    fn between(&mut self, of: Expression, negated: bool) -> Result<Expression, QueryError> {
        let low = self.climb(COMPARISON + 1)?;
        self.want_keyword("AND")?;
        let high = self.climb(COMPARISON + 1)?;
        let span = of.span.to(high.span);
        self.build(Node::Between(Box::new([of, low, high]), negated), span)
    }

    fn like(&mut self, of: Expression, negated: bool) -> Result<Expression, QueryError> {
        let pattern = self.climb(COMPARISON + 1)?;
        let escape = if self.take_keyword("ESCAPE") {
            Some(Box::new(self.climb(COMPARISON + 1)?))
        } else {
            None
        };
        let span = of.span.to(self.span_before());
        self.build(Node::Like(Box::new(of), Box::new(pattern), escape, negated), span)
    }

    /// Parses `.name` and `[index]` after an expression.
    fn postfix(&mut self, mut of: Expression) -> Result<Expression, QueryError> {
        loop {
            let node = if self.take_symbol(".") {
                let Token::Word(name) = *self.peek() else {
                    return Err(self.unexpected("a property name", &[]));
                };
                self.advance();
                Node::Property(Box::new(of), name.to_owned())
            } else if self.take_symbol("[") {
                let index = self.expression()?;
                self.want_symbol("]")?;
                match index.node {
                    Node::Literal(Value::String(name)) => {
                        Node::Property(Box::new(of), name.into_owned())
                    }
                    _ => Node::Index(Box::new(of), Box::new(index)),
                }
            } else {
                return Ok(of);
            };
            let start = match &node {
                Node::Property(of, _) | Node::Index(of, _) => of.span,
                _ => self.span(),
            };
            of = self.build(node, start.to(self.span_before()))?;
        }
    }

    /// Parses a name and a path from it, as in `FROM`.
    pub(super) fn path(&mut self) -> Result<Expression, QueryError> {
        let name = self.primary()?;
        self.postfix(name)
    }

    pub(super) fn primary(&mut self) -> Result<Expression, QueryError> {
        let start = self.span();
        let node = match self.peek().clone() {
            Token::Number(text) => {
                let number = Number::parse(text.into_owned().into());
                let Some(number) = number.filter(|number| number.value().is_finite()) else {
                    return Err(self.unexpected("a number up to about 1.8e308", &[]));
                };
                self.advance();
                Node::Literal(Value::Number(number))
            }
            Token::String(text) => {
                self.advance();
                Node::Literal(Value::String(text.into()))
            }
            Token::Parameter(name) => {
                self.advance();
                Node::Parameter(name.to_owned())
            }
            Token::OrderByFilter => {
                self.advance();
                Node::OrderByFilter
            }
            Token::Symbol("(") => return self.parenthesised(),
            Token::Symbol("[") => self.array()?,
            Token::Symbol("{") => self.object()?,
            Token::Word(word) => self.word(word)?,
            Token::Symbol("*") => {
                return Err(self.unexpected("an expression", &[]).suggesting(Some("'COUNT(1)'")));
            }
            _ => return Err(self.unexpected("an expression", &[])),
        };
        self.build(node, start.to(self.span_before()))
    }

    fn parenthesised(&mut self) -> Result<Expression, QueryError> {
        let start = self.span();
        self.want_symbol("(")?;
        if self.is_keyword("SELECT") {
            let select = self.subquery()?;
            self.want_symbol(")")?;
            return self.build(Node::Scalar(Box::new(select)), start.to(self.span_before()));
        }
        let inner = self.expression()?;
        if !self.take_symbol(")") {
            return Err(self.unexpected("')'", FOLLOWING));
        }
        Ok(inner)
    }

    fn array(&mut self) -> Result<Node, QueryError> {
        self.want_symbol("[")?;
        Ok(Node::Array(self.listed_until("]", Self::expression)?))
    }

    fn object(&mut self) -> Result<Node, QueryError> {
        self.want_symbol("{")?;
        Ok(Node::Object(self.listed_until("}", |parser| {
            let name = match parser.peek().clone() {
                Token::Word(word) => word.to_owned(),
                Token::String(text) => text,
                _ => return Err(parser.unexpected("a property name", &[])),
            };
            parser.advance();
            parser.want_symbol(":")?;
            Ok((name, parser.expression()?))
        })?))
    }

    /// Parses a list, possibly empty, up to and including `end`.
    fn listed_until<T>(
        &mut self,
        end: &'static str,
        one: impl Fn(&mut Self) -> Result<T, QueryError>,
    ) -> Result<Vec<T>, QueryError> {
        if self.take_symbol(end) {
            return Ok(Vec::new());
        }
        let list = self.list("A literal or call", one)?;
        self.want_symbol(end)?;
        Ok(list)
    }

    fn word(&mut self, word: &str) -> Result<Node, QueryError> {
        let upper = word.to_ascii_uppercase();
        let literal = match upper.as_str() {
            "NULL" => Some(Value::Null),
            "TRUE" => Some(Value::Bool(true)),
            "FALSE" => Some(Value::Bool(false)),
            "UNDEFINED" => Some(Value::Undefined),
            _ => None,
        };
        if let Some(value) = literal {
            self.advance();
            return Ok(Node::Literal(value));
        }
        let is_call = matches!(self.peek_after(1), Token::Symbol("("));
        match upper.as_str() {
            "EXISTS" | "ARRAY" if is_call => {
                self.advance();
                self.advance();
                let select = Box::new(self.subquery()?);
                self.want_symbol(")")?;
                Ok(if upper == "ARRAY" { Node::ArrayOf(select) } else { Node::Exists(select) })
            }
            "UDF" if matches!(self.peek_after(1), Token::Symbol(".")) => self.user_call(),
            _ if is_call && (!is_reserved(word) || matches!(upper.as_str(), "LEFT" | "RIGHT")) => {
                self.advance();
                self.advance();
                Ok(Node::Call(upper, self.listed_until(")", Self::expression)?))
            }
            _ if is_reserved(word) => Err(self.unexpected("an expression", &[])),
            _ => {
                self.advance();
                // `valeu` is a valid name, so the mistake shows only in what follows: no alias continues so.
                if matches!(self.peek(), Token::Word(next) if !is_reserved(next))
                    && matches!(self.peek_after(1), Token::Symbol("." | "[" | "("))
                    && closest(word, ["DISTINCT", "VALUE", "EXISTS"]).is_some()
                {
                    self.at -= 1;
                    return Err(self.unexpected("an expression", &["DISTINCT", "VALUE", "EXISTS"]));
                }
                Ok(Node::Name(word.to_owned()))
            }
        }
    }

    fn user_call(&mut self) -> Result<Node, QueryError> {
        self.advance();
        self.want_symbol(".")?;
        let Token::Word(name) = *self.peek() else {
            return Err(self.unexpected("the name of a user-defined function", &[]));
        };
        self.advance();
        self.want_symbol("(")?;
        Ok(Node::UserCall(name.to_owned(), self.listed_until(")", Self::expression)?))
    }
}

/// Adds an operand, or its operands if it is a chain of the same operator.
fn flatten(list: &mut Vec<Expression>, operand: Expression, power: u8) {
    match operand.node {
        Node::And(inner) if power == AND => list.extend(inner),
        Node::Or(inner) if power == OR => list.extend(inner),
        _ => list.push(operand),
    }
}
