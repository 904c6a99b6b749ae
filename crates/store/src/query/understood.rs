//! A cache of parsed queries by their text (a plan cache).
//!
//! Programs send the same few texts again and again with different parameters. The cache is bounded because clients
//! are not trusted to do so: long texts are not cached, and the total length of cached texts has a limit. Only speed
//! depends on this cache.

use headwater_query::{Parsed, QueryError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum length of a cached text.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Maximum length of all cached texts together. A parsed query takes about fifty times the memory of its text.
const BYTES_MAX: usize = 128 << 10;

/// The cache of parsed queries.
#[derive(Debug, Default)]
pub(crate) struct Understood(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_text: HashMap<Arc<str>, (Parsed, u64)>,
    bytes: usize,
    /// Counts lookups and insertions, to know which texts were used last.
    uses: u64,
}

impl Understood {
    /// Parses a text, or returns the cached result.
    pub(crate) fn parse(&self, text: &str) -> Result<Parsed, QueryError> {
        if text.len() > TEXT_BYTES_MAX {
            return Parsed::parse(text);
        }
        if let Some(known) = self.0.lock().find(text) {
            return Ok(known);
        }
        let parsed = Parsed::parse(text)?;
        self.0.lock().keep(parsed.clone());
        Ok(parsed)
    }
}

impl Entries {
    fn find(&mut self, text: &str) -> Option<Parsed> {
        self.uses += 1;
        let (parsed, used) = self.by_text.get_mut(text)?;
        *used = self.uses;
        Some(parsed.clone())
    }

    fn keep(&mut self, parsed: Parsed) {
        let text = parsed.text().clone();
        let bytes = text.len();
        if self.bytes + bytes > BYTES_MAX {
            self.forget_half();
        }
        self.uses += 1;
        if self.by_text.insert(text, (parsed, self.uses)).is_none() {
            self.bytes += bytes;
        }
    }

    /// Evicts the least recently used half, so that the cost is spread over many insertions.
    fn forget_half(&mut self) {
        let mut uses: Vec<u64> = self.by_text.values().map(|(_, used)| *used).collect();
        let middle = uses.len() / 2;
        let (_, middle, _) = uses.select_nth_unstable(middle);
        let middle = *middle;
        self.by_text.retain(|_, (_, used)| *used > middle);
        self.bytes = self.by_text.keys().map(|text| text.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(understood: &Understood) -> (usize, usize) {
        let kept = understood.0.lock();
        let bytes: usize = kept.by_text.keys().map(|text| text.len()).sum();
        assert_eq!(kept.bytes, bytes);
        (kept.by_text.len(), bytes)
    }

    #[test]
    fn no_stream_of_texts_takes_more_than_its_share() {
        let understood = Understood::default();
        let often = "SELECT * FROM c WHERE c.often = @a";
        for number in 0..5_000 {
            let long = "1,".repeat(number % 1_000);
            let text = format!("SELECT * FROM c WHERE c.n IN ({long}{number})");
            assert!(understood.parse(&text).is_ok());
            assert!(understood.parse(often).is_ok());
            assert!(kept(&understood).1 <= BYTES_MAX);
        }
        assert!(kept(&understood).0 > 1);
        let last_used = understood.0.lock().by_text.contains_key(often);
        assert!(last_used, "a text that is used often stays cached");
    }

    #[test]
    fn what_is_long_or_no_query_is_not_kept() {
        let understood = Understood::default();
        let long = format!("SELECT * FROM c WHERE c.a = '{}'", "x".repeat(TEXT_BYTES_MAX));
        assert!(understood.parse(&long).is_ok());
        assert!(understood.parse("SELCT * FROM c").is_err());
        assert_eq!(kept(&understood), (0, 0));
    }

    #[test]
    fn a_kept_text_is_the_same_query_with_other_values() {
        let understood = Understood::default();
        for value in ["1", "2"] {
            let parsed = understood.parse("SELECT VALUE @a").expect("it is a query");
            let value = headwater_query::Value::from_json(value.as_bytes()).expect("it is JSON");
            let parameters = [("@a".to_owned(), value.clone())];
            let mut run =
                parsed.with(&parameters, &[]).expect("it has its value").start(Default::default());
            assert_eq!(run.finish().expect("it ends"), [value.to_json()]);
            assert!(parsed.with(&[], &[]).is_err(), "the value is missing");
        }
        assert_eq!(kept(&understood).0, 1);
    }
}
