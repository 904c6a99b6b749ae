//! Errors of queries: what is wrong, where, what was expected and what may have been meant.
//!
//! An error is shown in two ways. A client gets the service's message in the service's format
//! ([`QueryError::service_message`]); a terminal gets the line with a caret under it
//! ([`QueryError::with_caret`]). Neither quotes parameter values.

use std::fmt;

use serde_json::json;

/// A range of the query text, in bytes.
///
/// All spans compare equal, so that trees are equal whatever their position in the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl PartialEq for Span {
    fn eq(&self, _: &Span) -> bool {
        true
    }
}

impl Eq for Span {}

impl Span {
    pub(crate) fn to(self, end: Span) -> Span {
        Span { start: self.start, end: end.end }
    }
}

/// Why a text is not a query that can run.
///
/// Boxed to keep the parser's results, and with them its stack frames, small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError(Box<Details>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Details {
    problem: Problem,
    span: (usize, usize),
    line: usize,
    column: usize,
    expected: Option<String>,
    suggestion: Option<String>,
}

/// The kind of a query error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A syntax error at this word; the word is empty at the end of the text.
    Syntax(String),
    /// No clause defines this name.
    UnknownName(String),
    /// The function does not exist.
    UnknownFunction(String),
    /// The function takes another number of arguments.
    ArgumentCount {
        /// The function's name as documented.
        function: &'static str,
        /// The number of arguments in the query.
        found: usize,
    },
    /// The query uses a parameter that was not sent.
    MissingParameter(String),
    /// The syntax is valid but the parts do not fit together; the text says how to correct it.
    Meaning(String),
    /// The query exceeds a limit; the text names it.
    TooLarge(String),
    /// The query needs a feature that is not supported yet.
    NotSupported(String),
}

impl QueryError {
    pub(crate) fn new(problem: Problem, span: Span, text: &str) -> QueryError {
        let start = floor_char(text, span.start.min(text.len()));
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        QueryError(Box::new(Details {
            problem,
            span: (start, span.end.clamp(start, text.len())),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            expected: None,
            suggestion: None,
        }))
    }

    pub(crate) fn expecting(mut self, expected: impl Into<String>) -> QueryError {
        self.0.expected = Some(expected.into());
        self
    }

    pub(crate) fn suggesting(mut self, suggestion: Option<impl Into<String>>) -> QueryError {
        self.0.suggestion = suggestion.map(Into::into);
        self
    }

    /// The kind of the error.
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// The range of the text, in bytes: the first and one past the last.
    pub fn span(&self) -> (usize, usize) {
        self.0.span
    }

    /// Line and column, both counted from 1, columns in characters.
    pub fn position(&self) -> (usize, usize) {
        (self.0.line, self.0.column)
    }

    /// What is valid at this position.
    pub fn expected(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }

    /// A name or keyword that may have been meant.
    pub fn suggestion(&self) -> Option<&str> {
        self.0.suggestion.as_deref()
    }

    /// The service's code for this kind of error.
    pub fn code(&self) -> &'static str {
        match self.0.problem {
            Problem::Syntax(_) => "SC1001",
            Problem::UnknownName(_) => "SC2001",
            Problem::UnknownFunction(_) => "SC2005",
            Problem::ArgumentCount { .. } => "SC2006",
            Problem::MissingParameter(_) => "SC2011",
            Problem::Meaning(_) => "SC2103",
            Problem::TooLarge(_) => "SC3016",
            Problem::NotSupported(_) => "SC2106",
        }
    }

    /// The JSON in the message of the service's 400 response.
    pub fn service_message(&self) -> String {
        json!({"errors": [{
            "severity": "Error",
            "location": {"start": self.0.span.0, "end": self.0.span.1},
            "code": self.code(),
            "message": self.sentence(),
        }]})
        .to_string()
    }

    /// Several lines for a terminal: the message, the affected line of `text`, and a caret under it.
    pub fn with_caret(&self, text: &str) -> String {
        let line = text.lines().nth(self.0.line - 1).unwrap_or_default();
        let width = text.get(self.0.span.0..self.0.span.1).map_or(1, |found| found.chars().count());
        let width = width.clamp(1, line.chars().count().saturating_sub(self.0.column - 1).max(1));
        let shown: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let margin = " ".repeat(self.0.line.to_string().len());
        format!(
            "error: {self}\n{margin} |\n{} | {shown}\n{margin} | {}{}",
            self.0.line,
            " ".repeat(self.0.column - 1),
            "^".repeat(width),
        )
    }

    /// The service's sentence, followed by what was expected and a suggestion if known.
    fn sentence(&self) -> String {
        let mut sentence = match &self.0.problem {
            Problem::Syntax(near) if near.is_empty() => {
                "Syntax error, unexpected end of the query.".to_owned()
            }
            Problem::Syntax(near) => format!("Syntax error, incorrect syntax near '{near}'."),
            Problem::UnknownName(name) => format!("Identifier '{name}' could not be resolved."),
            Problem::UnknownFunction(name) => {
                format!("'{name}' is not a recognized built-in function name.")
            }
            Problem::ArgumentCount { function, found } => {
                format!("The {function} function cannot be called with {found} argument(s).")
            }
            Problem::MissingParameter(name) => {
                format!("The query uses parameter '{name}' which was not sent.")
            }
            Problem::Meaning(text) | Problem::TooLarge(text) => format!("{text}."),
            Problem::NotSupported(what) => format!("{what} is not supported yet."),
        };
        if let Some(expected) = &self.0.expected {
            sentence += &format!(" Expected {expected}.");
        }
        if let Some(suggestion) = &self.0.suggestion {
            sentence += &format!(" Did you mean {suggestion}?");
        }
        sentence
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.0.line, self.0.column, self.sentence())
    }
}

impl std::error::Error for QueryError {}

/// Why a run of a valid query could not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// The run has used all steps of its limit.
    #[error("query took more than {limit} steps; narrow it with a filter or ask for fewer items")]
    TooManySteps {
        /// The limit.
        limit: u64,
    },
    /// The run holds more memory than its limit: rows, groups, distinct values and intermediate values.
    #[error("query keeps more than {limit} bytes at once; narrow it with a filter, TOP or LIMIT")]
    TooMuchMemory {
        /// The limit.
        limit: usize,
    },
    /// All queries of the server together have used up the shared memory pool.
    #[error("the queries of this server hold {limit} bytes together; try again in a moment")]
    PoolExhausted {
        /// The size of the pool.
        limit: usize,
    },
    /// The time limit of the page, or of the whole query, has passed.
    #[error("query takes too long; narrow it with a filter, a partition key or fewer JOINs")]
    OutOfTime,
    /// The client that sent the query has disconnected.
    #[error("the client disconnected before the query ended")]
    Abandoned,
    /// A value exceeds the size limit for a single value.
    #[error("{function} would be a value of more than {limit} bytes; select less at once")]
    ValueTooLarge {
        /// The function or operator.
        function: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A regular expression that is invalid or too large.
    #[error("RegexMatch pattern is not usable: {0}")]
    BadPattern(String),
    /// A regular expression search that would take too long and cannot be interrupted.
    #[error(
        "RegexMatch cannot search a text of {text_bytes} bytes for this pattern: \\b on a text that is not ASCII \
         cannot be interrupted. Search at most {text_bytes_max} bytes, for example with LEFT, or write (?-u:\\b)"
    )]
    SearchTooLong {
        /// The length of the text.
        text_bytes: usize,
        /// The longest text allowed for the pattern.
        text_bytes_max: usize,
    },
    /// A shape that would take too long to check.
    #[error(
        "{function} cannot work on a shape of {positions} positions; {limit} is the most. Simplify the shape or \
         store its parts in several items"
    )]
    ShapeTooLarge {
        /// The function.
        function: &'static str,
        /// The number of positions, as far as they were counted.
        positions: usize,
        /// The most positions of such a shape.
        limit: usize,
    },
    /// Two shapes that would take too long to compare.
    #[error(
        "{function} cannot compare shapes of {one} and {two} positions: their product is more than {limit}. \
         Simplify one of them"
    )]
    ShapesTooLarge {
        /// The function.
        function: &'static str,
        /// The number of positions of the first shape.
        one: usize,
        /// The number of positions of the second shape.
        two: usize,
        /// The largest allowed product.
        limit: usize,
    },
    /// A user-defined function failed.
    #[error("user-defined function {name} failed: {problem}")]
    UserFunction {
        /// The function's name.
        name: String,
        /// The function's error message.
        problem: String,
    },
}

/// The known word closest to `word`, if it is close enough for a typing error.
pub(crate) fn closest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    if word.len() > 40 {
        return None;
    }
    let word = word.to_ascii_uppercase();
    let tolerance = match word.chars().count() {
        0..=2 => return None,
        3..=5 => 1,
        _ => 2,
    };
    known
        .into_iter()
        .map(|known| (distance(&word, &known.to_ascii_uppercase()), known))
        .filter(|(distance, _)| (1..=tolerance).contains(distance))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// The edit distance: letters to insert, delete, change or swap with their neighbour.
fn distance(one: &str, two: &str) -> usize {
    let (one, two): (Vec<char>, Vec<char>) = (one.chars().collect(), two.chars().collect());
    let mut rows = vec![vec![0_usize; two.len() + 1]; one.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=one.len() {
        for j in 1..=two.len() {
            let change = usize::from(one[i - 1] != two[j - 1]);
            let mut best =
                (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && one[i - 1] == two[j - 2] && one[i - 2] == two[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[one.len()][two.len()]
}

fn floor_char(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
        let words = ["SELECT", "FROM", "WHERE", "ORDER", "TOP"];
        for (word, expected) in [
            ("SELCT", Some("SELECT")),
            ("selcet", Some("SELECT")),
            ("FORM", Some("FROM")),
            ("WERE", Some("WHERE")),
            ("SELECT", None),
            ("c", None),
            ("BANANA", None),
        ] {
            assert_eq!(closest(word, words), expected, "{word}");
        }
    }
}
