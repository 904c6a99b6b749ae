//! Converts items to table cells and back without loss.
//!
//! | cell | value |
//! |---|---|
//! | empty | the property is absent |
//! | JSON: `1.50`, `true`, `null`, `{"a":1}`, `[1]`, `"text"` | that value |
//! | anything else | a text |
//!
//! A text that would parse as JSON, or is empty, is written with its quotes. The id is always a text.

use super::object::{Object, quoted};

/// Returns the cell of a value.
pub(crate) fn cell(name: &str, value: &str) -> String {
    let Ok(text) = serde_json::from_str::<String>(value) else {
        return value.to_owned();
    };
    let ambiguous = text.is_empty() || is_json(&text);
    if name != "id" && ambiguous { quoted(&text) } else { text }
}

/// Returns the value of a cell; none if the cell is empty.
fn value(name: &str, cell: &str, only_texts: bool) -> Option<String> {
    if cell.is_empty() {
        return None;
    }
    if name == "id" || only_texts || !is_json(cell) {
        return Some(quoted(cell));
    }
    Some(cell.to_owned())
}

/// Returns the item of a row.
pub(crate) fn item(header: &[String], row: &csv::StringRecord, only_texts: bool) -> Object {
    let cells = header.iter().zip(row.iter());
    let properties = cells
        .filter_map(|(name, cell)| Some((name.clone(), value(name, cell, only_texts)?)))
        .collect();
    Object { properties }
}

fn is_json(text: &str) -> bool {
    // A cell with surrounding white space is a text, because JSON would lose it.
    text.trim() == text && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_its_cell() {
        for value in [
            "1.50",
            "1e400",
            "true",
            "null",
            "\"\"",
            "\"a\"",
            "\"1.50\"",
            "\"true\"",
            "\"\\\"q\\\"\"",
            "\"a,b\\nc\"",
            "{\"a\":[1]}",
            "\" 1\"",
            "\"{\"",
            "\"01\"",
            "\"null\"",
        ] {
            let row = csv::StringRecord::from(vec![cell("x", value)]);
            let item = item(&["x".to_owned()], &row, false);
            assert_eq!(item.get("x"), Some(value));
        }
    }

    #[test]
    fn ids_are_texts_and_empty_cells_are_absent() {
        let header = ["id", "zip", "n", "gone"].map(str::to_owned);
        let row = csv::StringRecord::from(vec!["7", "01234", "5", ""]);
        assert_eq!(item(&header, &row, false).to_json(), r#"{"id":"7","zip":"01234","n":5}"#);
        assert_eq!(item(&header, &row, true).to_json(), r#"{"id":"7","zip":"01234","n":"5"}"#);
        assert_eq!(cell("id", "\"7\""), "7");
    }
}
