//! A container split into ranges gives the same result: each range runs the rewritten query, the
//! rows are merged as the SDKs merge them, and the result equals that of the query run directly.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use std::cmp::Ordering;

use headwater_model::PartitionKeyDefinition;
use headwater_query::{Query, QueryInfo, Value};
use proptest::prelude::*;

const QUERIES: &[&str] = &[
    "SELECT * FROM c",
    "SELECT VALUE c.a FROM c WHERE c.b > 1",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT VALUE COUNT(c.a) FROM c",
    "SELECT VALUE SUM(c.b) FROM c",
    "SELECT VALUE AVG(c.b) FROM c",
    "SELECT VALUE MAX(c.b) FROM c ORDER BY c.a",
    "SELECT VALUE MIN(c.a) FROM c",
    "SELECT VALUE MAX(c.a) FROM c WHERE c.b != 2",
    "SELECT VALUE COUNTIF(c.b = 1) FROM c",
    "SELECT COUNT(1) AS n, AVG(c.b) AS m, MAX(c.b) AS x FROM c WHERE c.id > 3",
    "SELECT DISTINCT VALUE c.a FROM c",
    "SELECT DISTINCT c.b FROM c",
    "SELECT c.id FROM c ORDER BY c.a, c.id",
    "SELECT * FROM c WHERE c.b < 3 ORDER BY c.b DESC, c.id DESC",
    "SELECT TOP 3 VALUE c.id FROM c ORDER BY c.a DESC, c.id",
    "SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 2 LIMIT 3",
    "SELECT DISTINCT VALUE c.a FROM c ORDER BY c.a",
    "SELECT DISTINCT TOP 3 VALUE c.a FROM c ORDER BY c.a",
    "SELECT DISTINCT VALUE c.b FROM c ORDER BY c.b OFFSET 1 LIMIT 2",
    "SELECT c.a, COUNT(1) AS n, MIN(c.id) AS first FROM c GROUP BY c.a",
    "SELECT c.a, c.b, SUM(c.id) AS s, AVG(c.b) AS m FROM c GROUP BY c.a, c.b",
    "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.a FROM c)",
];

/// A partial aggregate: the rewritten queries call its fields `item` and `item2`.
#[derive(Clone, Default)]
struct Piece {
    count: f64,
    total: f64,
    best: Option<Value<'static>>,
    spoiled: bool,
}

impl Piece {
    fn add(&mut self, kind: &str, item: &Value<'static>) {
        let value = item.member("item");
        match kind {
            "Average" => {
                self.count += value.member("count").as_number().unwrap_or(0.0);
                match value.member("sum").as_number() {
                    Some(sum) => self.total += sum,
                    None => self.spoiled = true,
                }
            }
            "Min" | "Max" => {
                let count = item.member("item2").member("count").as_number().unwrap_or(0.0);
                if count > 0.0 {
                    let wanted = if kind == "Min" { Ordering::Less } else { Ordering::Greater };
                    let best = self.best.get_or_insert(value.clone());
                    if value.order(best) == wanted {
                        *best = value.clone();
                    }
                    self.spoiled |= value.is_undefined();
                }
            }
            _ => match value.as_number() {
                Some(number) => self.total += number,
                None => self.spoiled = true,
            },
        }
    }

    fn finish(&self, kind: &str) -> Value<'static> {
        match kind {
            _ if self.spoiled => Value::Undefined,
            "Average" => Value::number(self.total / self.count),
            "Min" | "Max" => self.best.clone().unwrap_or_default(),
            _ => Value::number(self.total),
        }
    }
}

fn run(items: &[String], text: &str) -> Vec<Value<'static>> {
    let rows = common::run(items, text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let rows = Value::from_json(rows.as_bytes()).unwrap();
    rows.elements().unwrap().into_owned()
}

/// The merged result of all ranges.
fn merged(ranges: &[Vec<String>], text: &str, info: &QueryInfo) -> Vec<Value<'static>> {
    let per_range =
        if info.rewritten_query.is_empty() { text } else { info.rewritten_query.as_str() };
    let mut rows: Vec<_> = ranges.iter().flat_map(|items| run(items, per_range)).collect();
    if !info.group_by_aliases.is_empty() {
        rows = groups(&rows, info);
    } else if let Some(kind) = info.aggregates.first() {
        let mut piece = Piece::default();
        rows.iter().for_each(|row| piece.add(kind, &row.element(0)));
        rows = vec![piece.finish(kind)];
        rows.retain(|row| !row.is_undefined());
    }
    if !info.order_by.is_empty() {
        rows.sort_by(|one, two| by_keys(one, two, info));
        rows = rows
            .iter()
            .map(|row| row.member("payload"))
            .filter(|row| !row.is_undefined())
            .collect();
    }
    if info.distinct_type != "None" {
        let mut seen: Vec<Value<'static>> = Vec::new();
        for row in rows {
            if !seen.iter().any(|known| known.order(&row).is_eq()) {
                seen.push(row);
            }
        }
        rows = seen;
    }
    if info.d_count_info.is_some() {
        return vec![Value::number(rows.len() as f64)];
    }
    let take = info.top.or(info.limit).unwrap_or(u64::MAX);
    let skip = usize::try_from(info.offset.unwrap_or(0)).unwrap();
    rows.into_iter().skip(skip).take(usize::try_from(take).unwrap_or(usize::MAX)).collect()
}

fn by_keys(one: &Value<'_>, two: &Value<'_>, info: &QueryInfo) -> Ordering {
    for (place, direction) in info.order_by.iter().enumerate() {
        let key =
            |row: &Value<'_>| row.member("orderByItems").element(place).member("item").into_owned();
        let order = key(one).order(&key(two));
        if order.is_ne() {
            return if *direction == "Descending" { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

fn groups(rows: &[Value<'static>], info: &QueryInfo) -> Vec<Value<'static>> {
    let mut groups: Vec<(Value<'static>, Vec<Value<'static>>)> = Vec::new();
    for row in rows {
        let key = row.member("groupByItems");
        match groups.iter_mut().find(|(known, _)| known.order(&key).is_eq()) {
            Some((_, rows)) => rows.push(row.member("payload")),
            None => groups.push((key, vec![row.member("payload")])),
        }
    }
    let aggregate = |payloads: &[Value<'static>]| {
        Value::object(info.group_by_aliases.iter().map(|alias| {
            let value = match info.group_by_alias_to_aggregate_type[alias] {
                None => payloads[0].member(alias),
                Some(kind) => {
                    let mut piece = Piece::default();
                    payloads.iter().for_each(|payload| piece.add(kind, &payload.member(alias)));
                    piece.finish(kind)
                }
            };
            (alias.clone().into(), value)
        }))
    };
    groups.iter().map(|(_, payloads)| aggregate(payloads)).collect()
}

fn item() -> impl Strategy<Value = String> {
    let a = prop::sample::select(vec![
        "",
        r#","a":1"#,
        r#","a":2"#,
        r#","a":"x""#,
        r#","a":null"#,
        r#","a":true"#,
        r#","a":"y""#,
    ]);
    (a, 0..4_u8).prop_map(|(a, b)| format!(r#"{a},"b":{b}"#))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_into_ranges_gives_the_same_answer(
        parts in prop::collection::vec((item(), 0..3_usize), 0..25),
    ) {
        let definition = PartitionKeyDefinition::hash("/pk").unwrap();
        let mut ranges = vec![Vec::new(); 3];
        let mut all = Vec::new();
        for (id, (rest, range)) in parts.iter().enumerate() {
            let item = format!(r#"{{"_rid":"r{id}","id":{id}{rest}}}"#);
            ranges[*range].push(item.clone());
            all.push(item);
        }
        for text in QUERIES {
            let query = Query::parse(text, &[]).unwrap();
            let info = query.plan(&definition).unwrap().query_info;
            let (mut direct, mut merged) = (run(&all, text), merged(&ranges, text, &info));
            if info.order_by.is_empty() {
                direct.sort_by(Value::order);
                merged.sort_by(Value::order);
            }
            let show = |rows: &[Value<'_>]| rows.iter().map(Value::to_string).collect::<Vec<_>>();
            prop_assert_eq!(show(&direct), show(&merged), "{}\n{:?}", text, ranges);
        }
    }
}
