//! Generates random items and questions, and prints a question as a query.

use serde_json::{Map, Value, json};
use std::fmt;

/// Random numbers from a seed (SplitMix64).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        &list[usize::try_from(self.below(list.len() as u64)).unwrap()]
    }
}

/// Names at the top level of an item, of scalars (mostly), objects and arrays.
const NAMES: &[&str] = &["a", "b", "name of it", "größe", "o", "list"];
const INNER: &[&str] = &["a", "x", "quantity"];
const TEXTS: &[&str] =
    &["", "a", "b", "x", "quantity", "say \"a\"", "back\\slash", "größe", "日本", "/", "tab\t"];

fn scalar(chance: &mut Chance) -> Value {
    match chance.below(8) {
        0 => Value::Null,
        1 => json!(chance.below(2) == 0),
        2..=4 => json!(i64::try_from(chance.below(7)).unwrap() - 2),
        _ => json!(chance.pick(TEXTS)),
    }
}

fn value(chance: &mut Chance, depth: u32) -> Value {
    match chance.below(if depth == 0 { 6 } else { 9 }) {
        0..=5 => scalar(chance),
        6 => (0..chance.below(4)).map(|_| value(chance, depth - 1)).collect(),
        _ => {
            let mut members = Map::new();
            for _ in 0..chance.below(4) {
                members.insert((*chance.pick(INNER)).to_owned(), value(chance, depth - 1));
            }
            Value::Object(members)
        }
    }
}

/// Generates a few items; each lacks some names and has values of any type under the others.
pub(crate) fn items(chance: &mut Chance) -> Vec<Value> {
    let item = |chance: &mut Chance| {
        let mut members = Map::new();
        for name in NAMES {
            match (*name, chance.below(5)) {
                (_, 0) => {}
                ("o", 1..=3) => {
                    let inner = (*chance.pick(INNER)).to_owned();
                    members.insert((*name).to_owned(), json!({ inner: value(chance, 1) }));
                }
                ("list", 1..=3) => {
                    let list: Vec<Value> = (0..chance.below(5)).map(|_| value(chance, 1)).collect();
                    members.insert((*name).to_owned(), list.into());
                }
                _ => {
                    members.insert((*name).to_owned(), value(chance, 2));
                }
            }
        }
        // Never an array or object, so that items can be sorted by it.
        members.insert("s".to_owned(), scalar(chance));
        Value::Object(members)
    };
    (0..1 + chance.below(12)).map(|_| item(chance)).collect()
}

/// The same value with redundant spaces and escapes.
pub(crate) fn written_oddly(value: &Value, chance: &mut Chance) -> String {
    let space = |chance: &mut Chance| *chance.pick(&["", "", " ", "\n\t "]);
    let list =
        |parts: Vec<String>, open: char, close: char| format!("{open}{}{close}", parts.join(","));
    let written = match value {
        Value::String(text) => escaped(text, chance),
        Value::Array(elements) => {
            let parts = elements.iter().map(|one| written_oddly(one, chance)).collect();
            list(parts, '[', ']')
        }
        Value::Object(members) => {
            let mut parts = Vec::new();
            for (name, one) in members {
                let before = space(chance);
                let name = escaped(name, chance);
                parts.push(format!(
                    "{before}{name}{}:{}",
                    space(chance),
                    written_oddly(one, chance)
                ));
            }
            list(parts, '{', '}')
        }
        other => other.to_string(),
    };
    format!("{}{written}{}", space(chance), space(chance))
}

fn escaped(text: &str, chance: &mut Chance) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        let must = matches!(character, '"' | '\\') || character < ' ';
        if must || chance.below(6) == 0 {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    out + "\""
}

/// An expression.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    Literal(Value),
    /// A path from an alias; the alias is `c` or `j`.
    Path(&'static str, Vec<&'static str>),
    Compare(&'static str, Box<[Term; 2]>),
    Arithmetic(char, Box<[Term; 2]>),
    Concatenate(Box<[Term; 2]>),
    Coalesce(Box<[Term; 2]>),
    And(Vec<Term>),
    Or(Vec<Term>),
    Not(Box<Term>),
    Choice(Box<[Term; 3]>),
    In(Box<Term>, Vec<Term>),
    Between(Box<[Term; 3]>),
    IsDefined(Box<Term>),
    Array(Vec<Term>),
    /// Whether an element of an array, called `j`, satisfies a condition.
    Exists(Vec<&'static str>, Box<Term>),
}

/// A query over items called `c`, as a tree.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) shape: Shape,
    /// An array of the item whose elements are called `j`.
    pub(crate) join: Option<Vec<&'static str>>,
    pub(crate) filter: Option<Term>,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Values {
        distinct: bool,
        of: Term,
    },
    /// In the order of `c.s`, then of the items.
    Sorted {
        of: Term,
        descending: bool,
        window: Option<(u64, u64)>,
    },
    /// `COUNT`, `SUM`, `MIN` and `MAX` of a term, by another or over all.
    Grouped {
        by: Option<Term>,
        of: Term,
    },
}

const COMPARISONS: &[&str] = &["=", "!=", "<", "<=", ">", ">="];

fn path(chance: &mut Chance, joined: bool) -> Term {
    if joined && chance.below(2) == 0 {
        let names = if chance.below(3) == 0 { vec![] } else { vec![*chance.pick(INNER)] };
        return Term::Path("j", names);
    }
    let mut names = vec![*chance.pick(NAMES)];
    if names[0] == "o" || chance.below(6) == 0 {
        names.push(*chance.pick(INNER));
    }
    Term::Path("c", names)
}

fn term(chance: &mut Chance, joined: bool, depth: u32) -> Term {
    if depth == 0 {
        return if chance.below(3) == 0 {
            Term::Literal(scalar(chance))
        } else {
            path(chance, joined)
        };
    }
    let part = |chance: &mut Chance| term(chance, joined, depth - 1);
    match chance.below(13) {
        0 | 1 => condition(chance, joined, depth),
        2 => {
            Term::Arithmetic(*chance.pick(&['+', '-', '*']), Box::new([part(chance), part(chance)]))
        }
        3 => Term::Concatenate(Box::new([part(chance), part(chance)])),
        4 => Term::Coalesce(Box::new([part(chance), part(chance)])),
        5 => Term::Choice(Box::new([
            condition(chance, joined, depth - 1),
            part(chance),
            part(chance),
        ])),
        6 => Term::Array((0..chance.below(4)).map(|_| part(chance)).collect()),
        7 => Term::IsDefined(Box::new(path(chance, joined))),
        _ => path(chance, joined),
    }
}

fn condition(chance: &mut Chance, joined: bool, depth: u32) -> Term {
    let left = if chance.below(3) == 0 && depth > 0 {
        term(chance, joined, depth - 1)
    } else {
        path(chance, joined)
    };
    match chance.below(if depth == 0 { 4 } else { 11 }) {
        0..=2 => {
            let right = if chance.below(4) == 0 {
                path(chance, joined)
            } else {
                Term::Literal(scalar(chance))
            };
            let sides = if chance.below(4) == 0 { [right, left] } else { [left, right] };
            Term::Compare(
                if chance.below(2) == 0 { "=" } else { chance.pick::<&str>(COMPARISONS) },
                Box::new(sides),
            )
        }
        3 => Term::IsDefined(Box::new(path(chance, joined))),
        4 | 5 => Term::And(
            (0..2 + chance.below(2)).map(|_| condition(chance, joined, depth - 1)).collect(),
        ),
        6 => Term::Or(
            (0..2 + chance.below(2)).map(|_| condition(chance, joined, depth - 1)).collect(),
        ),
        7 => Term::Not(Box::new(condition(chance, joined, depth - 1))),
        8 => Term::In(
            Box::new(left),
            (0..1 + chance.below(3)).map(|_| Term::Literal(scalar(chance))).collect(),
        ),
        9 => Term::Between(Box::new([
            left,
            Term::Literal(scalar(chance)),
            Term::Literal(scalar(chance)),
        ])),
        _ => Term::Exists(vec!["list"], Box::new(condition(chance, true, depth - 1))),
    }
}

impl Question {
    pub(crate) fn made(chance: &mut Chance) -> Question {
        let join = (chance.below(3) == 0).then(|| match chance.below(3) {
            0 => vec!["o", *chance.pick(INNER)],
            _ => vec!["list"],
        });
        let joined = join.is_some();
        let of = term(chance, joined, 2);
        let shape = match chance.below(6) {
            0..=2 => Shape::Values { distinct: chance.below(4) == 0, of },
            3 => {
                let window = (chance.below(2) == 0).then(|| (chance.below(4), chance.below(6)));
                Shape::Sorted { of, descending: chance.below(2) == 0, window }
            }
            _ => Shape::Grouped {
                by: (chance.below(3) > 0).then(|| path(chance, joined)),
                of: path(chance, joined),
            },
        };
        let filter = (chance.below(4) > 0).then(|| condition(chance, joined, 2));
        Question { shape, join, filter }
    }
}

fn member(names: &[&str]) -> String {
    names.iter().map(|name| format!("[\"{name}\"]")).collect()
}

fn list(terms: &[Term], between: &str) -> String {
    terms.iter().map(Term::to_string).collect::<Vec<_>>().join(between)
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Literal(value) => write!(f, "{value}"),
            Term::Path(alias, names) => write!(f, "{alias}{}", member(names)),
            Term::Compare(operator, two) => write!(f, "({} {operator} {})", two[0], two[1]),
            Term::Arithmetic(operator, two) => write!(f, "({} {operator} {})", two[0], two[1]),
            Term::Concatenate(two) => write!(f, "({} || {})", two[0], two[1]),
            Term::Coalesce(two) => write!(f, "({} ?? {})", two[0], two[1]),
            Term::And(all) => write!(f, "({})", list(all, " AND ")),
            Term::Or(all) => write!(f, "({})", list(all, " OR ")),
            Term::Not(of) => write!(f, "(NOT {of})"),
            Term::Choice(three) => write!(f, "({} ? {} : {})", three[0], three[1], three[2]),
            Term::In(of, all) => write!(f, "({of} IN ({}))", list(all, ", ")),
            Term::Between(three) => {
                write!(f, "({} BETWEEN {} AND {})", three[0], three[1], three[2])
            }
            Term::IsDefined(of) => write!(f, "IS_DEFINED({of})"),
            Term::Array(all) => write!(f, "[{}]", list(all, ", ")),
            Term::Exists(names, of) => {
                write!(f, "EXISTS(SELECT VALUE j FROM j IN c{} WHERE {of})", member(names))
            }
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Shape::Values { distinct: true, of } => write!(f, "SELECT DISTINCT VALUE {of}")?,
            Shape::Values { of, .. } | Shape::Sorted { of, .. } => write!(f, "SELECT VALUE {of}")?,
            Shape::Grouped { by, of } => {
                f.write_str("SELECT ")?;
                if let Some(by) = by {
                    write!(f, "{by} AS k, ")?;
                }
                write!(f, "COUNT({of}) AS n, SUM({of}) AS t, MIN({of}) AS l, MAX({of}) AS m")?;
            }
        }
        f.write_str(" FROM c")?;
        if let Some(names) = &self.join {
            write!(f, " JOIN j IN c{}", member(names))?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        match &self.shape {
            Shape::Grouped { by: Some(by), .. } => write!(f, " GROUP BY {by}"),
            Shape::Sorted { descending, window, .. } => {
                write!(f, " ORDER BY c.s {}", if *descending { "DESC" } else { "ASC" })?;
                match window {
                    Some((skip, take)) => write!(f, " OFFSET {skip} LIMIT {take}"),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
