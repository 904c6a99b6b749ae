//! How much a query may ask for. A client is never trusted to be modest.

/// The bounds of one query. The defaults are what the server uses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest text, in bytes.
    pub text_bytes: usize,
    /// How deep expressions and sub-queries nest; parentheses that add nothing may double it.
    pub depth: usize,
    /// How many `JOIN`s one `FROM` has.
    pub joins: usize,
    /// How many sub-queries there are in all.
    pub subqueries: usize,
    /// How many values one `IN`, call, array or object lists.
    pub list_items: usize,
    /// How many values all parameters hold, counting each element and property.
    pub parameter_values: usize,
    /// How many bytes of strings all mentions of parameters in the text stand for.
    pub parameter_bytes: usize,
    /// How many expressions one run evaluates before it gives up.
    pub steps: u64,
    /// How many bytes one run holds at a time: rows, groups, distinct values and the values in flight.
    pub memory_bytes: usize,
    /// The longest string or array a function may make, in bytes.
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
