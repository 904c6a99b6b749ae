//! Limits on the size and cost of a query that a client sends.

/// Limits of one query. The defaults are those of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest query text, in bytes.
    pub text_bytes: usize,
    /// The deepest nesting of expressions and sub-queries; redundant parentheses may double it.
    pub depth: usize,
    /// The most `JOIN`s of one `FROM`.
    pub joins: usize,
    /// The most sub-queries in all.
    pub subqueries: usize,
    /// The most values in one `IN`, call, array or object.
    pub list_items: usize,
    /// The most values in all parameters, counting each element and property.
    pub parameter_values: usize,
    /// The most string bytes of all parameter uses: a parameter counts at each place where the text uses it.
    pub parameter_bytes: usize,
    /// The most expressions that one run evaluates.
    pub steps: u64,
    /// The most bytes that one run holds at a time: rows, groups, distinct values and intermediate values.
    pub memory_bytes: usize,
    /// The longest string or array that a function may return, in bytes.
    pub value_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            text_bytes: 512 * 1024,
            depth: 100,
            joins: 10,
            subqueries: 32,
            list_items: 20_000,
            parameter_values: 100_000,
            parameter_bytes: 32 * 1024 * 1024,
            steps: 200_000_000,
            memory_bytes: 256 * 1024 * 1024,
            value_bytes: 8 * 1024 * 1024,
        }
    }
}
