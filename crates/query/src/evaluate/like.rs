//! `LIKE`: `%` any text, `_` one character, `[a-c]` and `[^a-c]` one character of a set.
//!
//! A match backtracks to the last `%` only, so its cost is bounded by the product of the two lengths. The cost
//! is charged during the match, so that a long match can be interrupted.

use crate::value::{Charge, Value};

/// Character comparisons for the cost of a step.
const COMPARED_PER_STEP: usize = 16;

/// A parsed pattern.
#[derive(Debug)]
pub(crate) struct LikePattern {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    AnyText,
    AnyChar,
    Char(char),
    Set { ranges: Vec<(char, char)>, negated: bool },
}

impl Part {
    /// The number of comparisons for one character.
    fn cost(&self) -> usize {
        match self {
            Part::Set { ranges, .. } => 1 + ranges.len(),
            _ => 1,
        }
    }

    fn takes(&self, c: char) -> bool {
        match self {
            Part::AnyText | Part::AnyChar => true,
            Part::Char(own) => *own == c,
            Part::Set { ranges, negated } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

impl LikePattern {
    /// The only text that matches, if the pattern has no wildcards.
    pub(crate) fn only_text(&self) -> Option<String> {
        let char_of = |part: &Part| match part {
            Part::Char(c) => Some(*c),
            Part::AnyText | Part::AnyChar | Part::Set { .. } => None,
        };
        self.parts.iter().map(char_of).collect()
    }

    /// Parses a pattern; `None` if it is not a string or the escape is not one character.
    pub(crate) fn new(pattern: &Value<'_>, escape: Option<&Value<'_>>) -> Option<LikePattern> {
        let escape = match escape {
            Some(escape) => {
                let mut chars = escape.as_text()?.chars();
                let only = chars.next()?;
                if chars.next().is_some() {
                    return None;
                }
                Some(only)
            }
            None => None,
        };
        let chars: Vec<char> = pattern.as_text()?.chars().collect();
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            at += 1;
            parts.push(match c {
                c if Some(c) == escape => {
                    let escaped = chars.get(at).copied().unwrap_or(c);
                    at += 1;
                    Part::Char(escaped)
                }
                '%' => Part::AnyText,
                '_' => Part::AnyChar,
                '[' => match set(&chars[at..]) {
                    Some((part, length)) => {
                        at += length;
                        part
                    }
                    None => Part::Char('['),
                },
                c => Part::Char(c),
            });
        }
        Some(LikePattern { parts })
    }

    /// Whether the whole text matches. Charges each comparison of a character, also when a retry repeats it.
    pub(crate) fn matches<C: Charge>(
        &self,
        text: &str,
        charge: &mut C,
    ) -> Result<bool, C::Refusal> {
        let mut compared = 0;
        let mut rest = text;
        let mut part = 0;
        // Where to retry after the last `%` if the parts after it do not match here.
        let mut retry: Option<(usize, &str)> = None;
        loop {
            compared += self.parts.get(part).map_or(1, Part::cost);
            if compared >= COMPARED_PER_STEP {
                charge.walked(compared / COMPARED_PER_STEP)?;
                compared %= COMPARED_PER_STEP;
            }
            match (self.parts.get(part), rest.chars().next()) {
                (Some(Part::AnyText), _) => {
                    part += 1;
                    retry = Some((part, rest));
                    continue;
                }
                (None, None) => return Ok(true),
                (Some(own), Some(c)) if own.takes(c) => {
                    part += 1;
                    rest = &rest[c.len_utf8()..];
                    continue;
                }
                _ => {}
            }
            let Some((after, from)) = retry else { return Ok(false) };
            let Some(skipped) = from.chars().next() else { return Ok(false) };
            let from = &from[skipped.len_utf8()..];
            retry = Some((after, from));
            part = after;
            rest = from;
        }
    }
}

/// Parses a set; returns it with the number of characters after its bracket, `None` if it is not closed.
fn set(chars: &[char]) -> Option<(Part, usize)> {
    let end = chars.iter().position(|c| *c == ']')?;
    let negated = chars.first() == Some(&'^');
    let mut inside = &chars[usize::from(negated)..end];
    let mut ranges = Vec::new();
    while let [first, rest @ ..] = inside {
        if let ['-', last, rest @ ..] = rest {
            ranges.push((*first, *last));
            inside = rest;
        } else {
            ranges.push((*first, *first));
            inside = rest;
        }
    }
    Some((Part::Set { ranges, negated }, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::meter::{Budget, Meter};

    #[test]
    fn patterns_match_whole_texts() {
        let cases = [
            ("abc", "abc", None, true),
            ("abc", "ab", None, false),
            ("abc", "a%", None, true),
            ("abc", "%c", None, true),
            ("abc", "%b%", None, true),
            ("abc", "%d%", None, false),
            ("abc", "a_c", None, true),
            ("abc", "a__c", None, false),
            ("aXbXc", "a%X%c", None, true),
            ("", "%", None, true),
            ("", "", None, true),
            ("", "_", None, false),
            ("abc", "[a-c]bc", None, true),
            ("abc", "[^a-c]bc", None, false),
            ("xbc", "[^a-c]bc", None, true),
            ("100%", "100!%", Some("!"), true),
            ("100x", "100!%", Some("!"), false),
            ("a_b", "a\\_b", Some("\\"), true),
            ("a[b", "a[b", None, true),
            ("größe", "gr__e", None, true),
            ("ABC", "abc", None, false),
            ("aaaaaaaaaaab", "%a%a%a%c", None, false),
        ];
        for (text, pattern, escape, expected) in cases {
            let escape = escape.map(Value::from);
            let compiled = LikePattern::new(&Value::from(pattern), escape.as_ref()).unwrap();
            let mut meter = Meter::new(Budget::default(), &Limits::default());
            assert_eq!(compiled.matches(text, &mut meter), Ok(expected), "{text} LIKE {pattern}");
        }
    }
}
