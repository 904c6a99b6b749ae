//! Parses tokens to a tree by recursive descent; `expression.rs` parses operators.
//!
//! The parser checks syntax only: whether a name exists or a function takes
//! two arguments is decided in `compile`. Both its recursion and the depth of the
//! trees it builds stay within the limit, so later walks of a tree are safe too.

mod expression;

use crate::ast::{
    Collection, Column, Expression, From, Node, OrderItem, Projection, Select, Source,
};
use crate::error::{Problem, QueryError, Span, closest};
use crate::lexer::{Token, tokens};
use crate::limits::Limits;

/// Words that cannot be names unless they follow a dot or `AS`.
const RESERVED: &[&str] = &[
    "AND",
    "ARRAY",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "DESC",
    "DISTINCT",
    "ESCAPE",
    "EXISTS",
    "FALSE",
    "FROM",
    "GROUP",
    "IN",
    "JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "OR",
    "ORDER",
    "SELECT",
    "TOP",
    "TRUE",
    "UNDEFINED",
    "VALUE",
    "WHERE",
];

pub(crate) fn is_reserved(word: &str) -> bool {
    word.len() <= 9 && RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// Parses a query text.
pub(crate) fn parse(text: &str, limits: &Limits) -> Result<Select, QueryError> {
    whole(text, limits, Parser::select)
}

/// Parses a stand-alone expression, as after `WHERE`.
pub(crate) fn parse_expression(text: &str, limits: &Limits) -> Result<Expression, QueryError> {
    whole(text, limits, Parser::expression)
}

/// Parses a stand-alone projection, as after `SELECT`.
pub(crate) fn parse_projection(text: &str, limits: &Limits) -> Result<Projection, QueryError> {
    whole(text, limits, Parser::projection)
}

/// Runs `one` over a text, and requires it to consume all tokens.
fn whole<'t, T>(
    text: &'t str,
    limits: &'t Limits,
    one: impl FnOnce(&mut Parser<'t>) -> Result<T, QueryError>,
) -> Result<T, QueryError> {
    if text.len() > limits.text_bytes {
        let problem = format!(
            "The query is {} bytes; the limit is {}, so send values as parameters or split it",
            text.len(),
            limits.text_bytes
        );
        return Err(QueryError::new(Problem::TooLarge(problem), Span::default(), text));
    }
    let mut parser = Parser { text, tokens: tokens(text)?, at: 0, limits, depth: 0, subqueries: 0 };
    let parsed = one(&mut parser)?;
    parser.end()?;
    Ok(parsed)
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token<'t>, Span)>,
    at: usize,
    limits: &'t Limits,
    depth: usize,
    subqueries: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> &Token<'t> {
        self.peek_after(0)
    }

    fn peek_after(&self, tokens: usize) -> &Token<'t> {
        self.tokens.get(self.at + tokens).map_or(&Token::End, |(token, _)| token)
    }

    fn span(&self) -> Span {
        let last = self.tokens.last().map(|(_, span)| *span).unwrap_or_default();
        self.tokens.get(self.at).map_or(last, |(_, span)| *span)
    }

    /// The position of the previous token.
    fn span_before(&self) -> Span {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(self.span(), |one| one.1)
    }

    fn advance(&mut self) {
        self.at += 1;
    }

    fn is_keyword(&self, keyword: &str) -> bool {
        self.is_keyword_after(0, keyword)
    }

    fn is_keyword_after(&self, tokens: usize, keyword: &str) -> bool {
        matches!(self.peek_after(tokens), Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let found = self.is_keyword(keyword);
        self.at += usize::from(found);
        found
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Token::Symbol(found) if *found == symbol);
        self.at += usize::from(found);
        found
    }

    fn want_keyword(&mut self, keyword: &'static str) -> Result<(), QueryError> {
        if self.take_keyword(keyword) {
            return Ok(());
        }
        Err(self.unexpected(&format!("'{keyword}'"), &[keyword]))
    }

    fn want_symbol(&mut self, symbol: &'static str) -> Result<(), QueryError> {
        if self.take_symbol(symbol) {
            return Ok(());
        }
        Err(self.unexpected(&format!("'{symbol}'"), &[]))
    }

    /// The error for an unexpected token; `words` are those that would be valid.
    fn unexpected(&self, expected: &str, words: &[&str]) -> QueryError {
        let span = self.span();
        let near = self.text.get(span.start..span.end).unwrap_or_default();
        let suggestion = match self.peek() {
            Token::Word(word) => closest(word, words.iter().copied()),
            _ => None,
        };
        let shown: String = near.chars().take(60).collect();
        QueryError::new(Problem::Syntax(shown), span, self.text)
            .expecting(expected)
            .suggesting(suggestion.map(|word| format!("'{word}'")))
    }

    fn too_large(&self, problem: String, span: Span) -> QueryError {
        QueryError::new(Problem::TooLarge(problem), span, self.text)
    }

    /// Runs `parse` one level deeper.
    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        // Twice, because a printed tree has parentheses where the original needed none.
        if self.depth >= self.limits.depth.saturating_mul(2) {
            return Err(self.too_deep(self.span()));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn too_deep(&self, span: Span) -> QueryError {
        let problem =
            format!("The query nests deeper than {} levels; flatten it", self.limits.depth);
        self.too_large(problem, span)
    }

    /// Creates a node, if the tree under it is not too deep.
    fn build(&self, node: Node, span: Span) -> Result<Expression, QueryError> {
        let expression = Expression::new(node, span);
        if expression.depth > self.limits.depth {
            return Err(self.too_deep(span));
        }
        Ok(expression)
    }

    fn end(&self) -> Result<(), QueryError> {
        match self.peek() {
            Token::End => Ok(()),
            _ => Err(self.unexpected(
                "the end of the query",
                &[
                    "FROM", "WHERE", "GROUP", "ORDER", "OFFSET", "LIMIT", "JOIN", "AND", "OR",
                    "ASC", "DESC",
                ],
            )),
        }
    }

    fn select(&mut self) -> Result<Select, QueryError> {
        self.deeper(Self::select_here)
    }

    fn select_here(&mut self) -> Result<Select, QueryError> {
        self.want_keyword("SELECT")?;
        let distinct = self.take_keyword("DISTINCT");
        let top = if self.take_keyword("TOP") { Some(self.count()?) } else { None };
        let projection = self.projection()?;
        let from = if self.take_keyword("FROM") { Some(self.from()?) } else { None };
        let filter = if self.take_keyword("WHERE") { Some(self.expression()?) } else { None };
        let group_by = if self.take_keyword("GROUP") {
            self.want_keyword("BY")?;
            self.list("GROUP BY", Self::expression)?
        } else {
            Vec::new()
        };
        let order_by = if self.take_keyword("ORDER") {
            self.want_keyword("BY")?;
            self.order_by()?
        } else {
            Vec::new()
        };
        let offset_limit = if self.take_keyword("OFFSET") {
            let offset = self.count()?;
            self.want_keyword("LIMIT")?;
            Some((offset, self.count()?))
        } else {
            None
        };
        Ok(Select { distinct, top, projection, from, filter, group_by, order_by, offset_limit })
    }

    /// Parses the number after `TOP`, `OFFSET` and `LIMIT`: a literal or a parameter.
    fn count(&mut self) -> Result<Expression, QueryError> {
        match self.peek() {
            Token::Number(_) | Token::Parameter(_) => self.primary(),
            _ => Err(self.unexpected("a number or a parameter", &[])),
        }
    }

    fn projection(&mut self) -> Result<Projection, QueryError> {
        if self.take_symbol("*") {
            return Ok(Projection::All);
        }
        if self.take_keyword("VALUE") {
            return Ok(Projection::Value(self.expression()?));
        }
        Ok(Projection::List(self.list("SELECT", Self::column)?))
    }

    fn column(&mut self) -> Result<Column, QueryError> {
        let expression = self.expression()?;
        Ok(Column { expression, alias: self.alias()? })
    }

    /// Parses `AS word`, or a bare word that is not reserved.
    fn alias(&mut self) -> Result<Option<String>, QueryError> {
        let explicit = self.take_keyword("AS");
        match self.peek() {
            Token::Word(word) if explicit || !is_reserved(word) => {
                let alias = (*word).to_owned();
                if !explicit && self.is_misspelt_clause() {
                    return Err(self.unexpected("a clause", CLAUSES));
                }
                self.advance();
                Ok(Some(alias))
            }
            _ if explicit => Err(self.unexpected("a name", &[])),
            _ => Ok(None),
        }
    }

    /// Whether a bare word looks like a misspelt clause: `FORM c`, `WERE c.x`. A word that the grammar accepts as
    /// an alias is one only if the text can continue after it.
    fn is_misspelt_clause(&self) -> bool {
        let Token::Word(word) = self.peek() else { return false };
        let goes_on = match self.peek_after(1) {
            Token::End | Token::Symbol(_) => true,
            Token::Word(next) => is_reserved(next),
            _ => false,
        };
        !goes_on && closest(word, CLAUSES.iter().copied()).is_some()
    }

    fn from(&mut self) -> Result<From, QueryError> {
        let first = self.source()?;
        let mut joins = Vec::new();
        while self.take_keyword("JOIN") {
            if joins.len() >= self.limits.joins {
                let problem = format!("There are more than {} JOINs", self.limits.joins);
                return Err(self.too_large(problem, self.span_before()));
            }
            joins.push(self.source()?);
        }
        Ok(From { first, joins })
    }

    fn source(&mut self) -> Result<Source, QueryError> {
        let start = self.span();
        if let Token::Word(word) = self.peek()
            && !is_reserved(word)
            && self.is_keyword_after(1, "IN")
        {
            let alias = Some((*word).to_owned());
            self.advance();
            self.advance();
            let collection = self.collection()?;
            return Ok(Source {
                collection,
                alias,
                each: true,
                span: start.to(self.span_before()),
            });
        }
        let collection = self.collection()?;
        let alias = self.alias()?;
        Ok(Source { collection, alias, each: false, span: start.to(self.span_before()) })
    }

    fn collection(&mut self) -> Result<Collection, QueryError> {
        if self.take_symbol("(") {
            let select = self.subquery()?;
            self.want_symbol(")")?;
            return Ok(Collection::Query(Box::new(select)));
        }
        match self.peek() {
            Token::Word(word) if !is_reserved(word) => Ok(Collection::Path(self.path()?)),
            _ => Err(self.unexpected("a name or a sub-query in parentheses", &[])),
        }
    }

    fn subquery(&mut self) -> Result<Select, QueryError> {
        self.subqueries += 1;
        if self.subqueries > self.limits.subqueries {
            let problem = format!("There are more than {} sub-queries", self.limits.subqueries);
            return Err(self.too_large(problem, self.span()));
        }
        self.select()
    }

    fn order_by(&mut self) -> Result<Vec<OrderItem>, QueryError> {
        if self.is_keyword("RANK") && !matches!(self.peek_after(1), Token::Symbol("." | ",")) {
            let problem = Problem::NotSupported("ORDER BY RANK (hybrid search)".to_owned());
            return Err(QueryError::new(problem, self.span(), self.text));
        }
        self.list("ORDER BY", Self::order_item)
    }

    fn order_item(&mut self) -> Result<OrderItem, QueryError> {
        let expression = self.expression()?;
        let descending = self.take_keyword("DESC");
        let has_direction = descending || self.take_keyword("ASC");
        Ok(OrderItem { expression, descending, has_direction })
    }

    /// Parses one or more entries with commas between them.
    fn list<T>(
        &mut self,
        place: &str,
        one: impl Fn(&mut Self) -> Result<T, QueryError>,
    ) -> Result<Vec<T>, QueryError> {
        let mut list = vec![one(self)?];
        while self.take_symbol(",") {
            if list.len() >= self.limits.list_items {
                let limit = self.limits.list_items;
                let problem =
                    format!("{place} lists more than {limit} values; ask in several queries");
                return Err(self.too_large(problem, self.span()));
            }
            list.push(one(self)?);
        }
        Ok(list)
    }
}

/// The keywords that can follow a column or a source.
const CLAUSES: &[&str] = &["FROM", "WHERE", "GROUP", "ORDER", "OFFSET", "JOIN", "LIMIT"];
