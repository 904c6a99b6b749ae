//! The function reference of the guide matches the table of functions.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_query::{Function, functions};
use std::fmt::Write as _;
use std::path::Path;

const PAGE: &str = "docs/guide/functions.md";
/// When this variable is set, the test writes the page instead of comparing it.
const WRITE: &str = "HEADWATER_WRITE_PAGES";
const HEAD: &str = "\
# Query functions

For developers who write queries.

```sql
SELECT VALUE UPPER(c.name) FROM c WHERE STARTSWITH(c.name, 'a')
```

A function that cannot use its arguments returns undefined and does not fail the query. Names may be written in any
case. Arguments in brackets may be left out. [Query items](queries.md) explains the language around them.

Made from the table in `crates/query/src/functions` by
`HEADWATER_WRITE_PAGES=1 cargo test -p headwater-query --test function_reference`; do not edit.

| function | result | example | prints |
|---|---|---|---|
";

#[test]
fn the_page_of_functions_is_the_table_of_functions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let expected = page();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{PAGE} is not the table; run this test with {WRITE}=1");
}

fn page() -> String {
    let mut all: Vec<&Function> = functions().collect();
    all.sort_by_key(|function| function.name.to_ascii_uppercase());
    let mut page = HEAD.to_owned();
    for function in all.iter().filter(|function| function.is_supported()) {
        let (expression, result) = function.examples.first().unwrap();
        writeln!(
            page,
            "| {} | {} | {} | {} |",
            code(&format!("{}{}", function.name, function.arguments)),
            cell(function.meaning),
            code(expression),
            code(result)
        )
        .unwrap();
    }
    page.push_str(
        "\n## Functions that are not supported yet\n\n| function | result |\n|---|---|\n",
    );
    for function in all.iter().filter(|function| !function.is_supported()) {
        let call = code(&format!("{}{}", function.name, function.arguments));
        writeln!(page, "| {call} | {} |", cell(function.meaning)).unwrap();
    }
    page
}

/// A code span in a table. Backticks inside need a longer fence.
fn code(text: &str) -> String {
    let text = cell(text);
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

/// Text in a table, where a bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
