//! Splits query text into tokens.
//!
//! Does not distinguish keywords from names: `value` is a keyword in one place and a
//! property in another, and only the parser knows the place. Strings are returned unescaped.

use std::borrow::Cow;

use crate::error::{Problem, QueryError, Span};

/// The placeholder in the per-range text of an ordered query that clients replace with their resume filter.
pub(crate) const ORDER_BY_FILTER: &str = "{documentdb-formattableorderbyquery-filter}";

/// A token of the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'t> {
    Word(&'t str),
    /// A parameter, including its `@`.
    Parameter(&'t str),
    Number(Cow<'t, str>),
    String(String),
    /// Punctuation and operators.
    Symbol(&'static str),
    OrderByFilter,
    End,
}

/// Longest first, so that the first match is the right one.
const SYMBOLS: &[&str] = &[
    ">>>", "<<", ">>", "<=", ">=", "!=", "<>", "||", "??", "(", ")", "[", "]", "{", "}", ",", ".",
    ":", "?", "+", "-", "*", "/", "%", "=", "<", ">", "|", "&", "^", "~",
];

/// All tokens with their positions; the last one is `End`.
pub(crate) fn tokens(text: &str) -> Result<Vec<(Token<'_>, Span)>, QueryError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space()?;
        let start = lexer.at;
        let token = lexer.token()?;
        let end = token == Token::End;
        tokens.push((token, Span { start, end: lexer.at }));
        if end {
            return Ok(tokens);
        }
    }
}

/// The parameters in a text, each once; empty if the text has no valid tokens.
pub(crate) fn parameters(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (token, _) in tokens(text).unwrap_or_default() {
        if let Token::Parameter(name) = token {
            names.push(name);
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Skips white space and both kinds of comments.
    fn skip_space(&mut self) -> Result<(), QueryError> {
        loop {
            self.take_while(|c| c.is_whitespace() || c == '\u{feff}');
            if self.rest().starts_with("--") {
                self.take_while(|c| c != '\n');
            } else if self.rest().starts_with("/*") {
                let end = self.rest().find("*/").ok_or_else(|| {
                    self.error("/*", self.at, self.at + 2).expecting("'*/' to end the comment")
                })?;
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Token<'t>, QueryError> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if is_word_start(first) {
            return Ok(Token::Word(self.take_while(is_word_part)));
        }
        let second_is_digit = rest[first.len_utf8()..].starts_with(|c: char| c.is_ascii_digit());
        if first.is_ascii_digit() || (first == '.' && second_is_digit) {
            return self.number();
        }
        match first {
            '@' => {
                let start = self.at;
                self.at += 1;
                self.take_while(is_word_part);
                if self.at == start + 1 {
                    return Err(self.error("@", start, self.at).expecting("a parameter name"));
                }
                return Ok(Token::Parameter(&self.text[start..self.at]));
            }
            '\'' | '"' => return self.string(first),
            _ => {}
        }
        if rest.starts_with(ORDER_BY_FILTER) {
            self.at += ORDER_BY_FILTER.len();
            return Ok(Token::OrderByFilter);
        }
        match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(Token::Symbol(symbol))
            }
            None => Err(self.unknown(first)),
        }
    }

    fn unknown(&self, first: char) -> QueryError {
        let error = self.error(&first.to_string(), self.at, self.at + first.len_utf8());
        match first {
            '!' => error.suggesting(Some("'NOT' or '!='")),
            '`' => error.suggesting(Some("a name in brackets, as in c[\"name\"]")),
            ';' => error.expecting("one query without a semicolon"),
            _ => error,
        }
    }

    fn number(&mut self) -> Result<Token<'t>, QueryError> {
        let start = self.at;
        let rest = self.rest();
        if rest.starts_with("0x") || rest.starts_with("0X") {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            return match u64::from_str_radix(digits, 16) {
                Ok(value) => Ok(Token::Number(Cow::Owned(value.to_string()))),
                Err(_) => Err(self
                    .error(&self.text[start..self.at], start, self.at)
                    .expecting("one to sixteen hexadecimal digits")),
            };
        }
        self.take_while(|c| c.is_ascii_digit());
        if self.rest().starts_with('.') {
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.rest().starts_with(['e', 'E']) {
            let sign = self.rest()[1..].starts_with(['+', '-']);
            let digits = &self.rest()[1 + usize::from(sign)..];
            if digits.starts_with(|c: char| c.is_ascii_digit()) {
                self.at += 1 + usize::from(sign);
                self.take_while(|c| c.is_ascii_digit());
            }
        }
        let text = &self.text[start..self.at];
        if self.rest().starts_with(is_word_part) {
            let tail = self.take_while(is_word_part);
            let near = format!("{text}{tail}");
            return Err(self.error(&near, start, self.at).expecting("a number or a name"));
        }
        Ok(Token::Number(json_number(text)))
    }

    fn string(&mut self, quote: char) -> Result<Token<'t>, QueryError> {
        let start = self.at;
        let mut said = String::new();
        let mut chars = self.rest()[1..].char_indices();
        while let Some((offset, c)) = chars.next() {
            if c == quote {
                self.at = start + 1 + offset + 1;
                return Ok(Token::String(said));
            }
            if c != '\\' {
                said.push(c);
                continue;
            }
            let at = start + 1 + offset;
            let bad = |lexer: &Lexer<'_>| {
                lexer
                    .error("\\", at, at + 2)
                    .expecting("an escape of \\b \\f \\n \\r \\t \\\\ \\/ \\' \\\" or \\uXXXX")
            };
            match chars.next().map(|(_, c)| c) {
                Some('b') => said.push('\u{8}'),
                Some('f') => said.push('\u{c}'),
                Some('n') => said.push('\n'),
                Some('r') => said.push('\r'),
                Some('t') => said.push('\t'),
                Some(c @ ('\\' | '/' | '\'' | '"')) => said.push(c),
                Some('u') => {
                    let unit = hex4(&mut chars).ok_or_else(|| bad(self))?;
                    said.push(self.scalar(unit, &mut chars).ok_or_else(|| bad(self))?);
                }
                _ => return Err(bad(self)),
            }
        }
        let near = quote.to_string();
        Err(self.error(&near, start, start + 1).expecting(format!("{quote} to end the string")))
    }

    /// The character of a `\u` escape; reads the second half of a surrogate pair.
    fn scalar(&self, unit: u16, chars: &mut std::str::CharIndices<'_>) -> Option<char> {
        if !(0xD800..0xDC00).contains(&unit) {
            return char::from_u32(u32::from(unit));
        }
        let (_, backslash) = chars.next()?;
        let (_, letter) = chars.next()?;
        let low = hex4(chars)?;
        if (backslash, letter) != ('\\', 'u') {
            return None;
        }
        char::decode_utf16([unit, low]).next()?.ok()
    }

    fn error(&self, near: &str, start: usize, end: usize) -> QueryError {
        QueryError::new(Problem::Syntax(near.to_owned()), Span { start, end }, self.text)
    }
}

fn hex4(chars: &mut std::str::CharIndices<'_>) -> Option<u16> {
    let mut unit = 0_u32;
    for _ in 0..4 {
        unit = unit * 16 + chars.next()?.1.to_digit(16)?;
    }
    u16::try_from(unit).ok()
}

/// The number in JSON form: digits on both sides of the point, no leading zeros.
fn json_number(text: &str) -> Cow<'_, str> {
    let trimmed = text.trim_start_matches('0');
    let text = match trimmed.chars().next() {
        Some(first) if first.is_ascii_digit() => Cow::Borrowed(trimmed),
        _ => Cow::Owned(format!("0{trimmed}")),
    };
    let text =
        if let Some(whole) = text.strip_suffix('.') { Cow::Owned(whole.to_owned()) } else { text };
    if text.contains(".e") || text.contains(".E") {
        return Cow::Owned(text.replace(".e", ".0e").replace(".E", ".0E"));
    }
    text
}

pub(crate) fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

pub(crate) fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[Token<'_>]) {
        let found: Vec<_> = tokens(text).unwrap().into_iter().map(|(token, _)| token).collect();
        assert_eq!(found[..found.len() - 1], *expected, "{text}");
    }

    #[test]
    fn text_falls_into_tokens() {
        use Token::{Number, OrderByFilter, Parameter, String, Symbol, Word};
        let number = |text| Number(Cow::Borrowed(text));
        check("SELECT *", &[Word("SELECT"), Symbol("*")]);
        check("c.a1_b", &[Word("c"), Symbol("."), Word("a1_b")]);
        check("@p>=1", &[Parameter("@p"), Symbol(">="), number("1")]);
        check(
            "1.5 .5 2. 1e3 1.e2 007",
            &[
                number("1.5"),
                number("0.5"),
                number("2"),
                number("1e3"),
                number("1.0e2"),
                number("7"),
            ],
        );
        check("0xFF 0", &[number("255"), number("0")]);
        check(r#"'it''s'"#, &[String("it".into()), String("s".into())]);
        check(
            r#"'a\'b' "c\"d\\\n\u0041\ud83d\ude00""#,
            &[String("a'b".into()), String("c\"d\\\nA😀".into())],
        );
        check("a -- rest\n/* more\n */ b", &[Word("a"), Word("b")]);
        check(
            "a>>>b<>c??d",
            &[
                Word("a"),
                Symbol(">>>"),
                Word("b"),
                Symbol("<>"),
                Word("c"),
                Symbol("??"),
                Word("d"),
            ],
        );
        check(ORDER_BY_FILTER, &[OrderByFilter]);
        check("größe", &[Word("größe")]);
    }

    #[test]
    fn text_that_is_no_token_is_refused() {
        for text in [
            "'a",
            "\"",
            "'\\",
            "'\\x'",
            "'\\u12'",
            "'\\ud800'",
            "/* a",
            "@",
            "#",
            "1a",
            "0x",
            "`a`",
            "a ! b",
        ] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parameters_are_named_once_and_only_outside_of_texts() {
        let text = "SELECT @b, '@c', @a /* @d */ FROM c WHERE c.x = @b -- @e";
        assert_eq!(parameters(text), ["@a", "@b"]);
        assert_eq!(parameters("SELECT @"), Vec::<&str>::new());
    }
}
