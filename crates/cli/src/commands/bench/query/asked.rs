//! What is asked, in three dialects, and the items it is asked of.
//!
//! Items are those of every other benchmark with one number more: `rank`, which ten items share, so that
//! an equality finds a few and a range has an order. The three texts of a question mean the same, and a run
//! checks that they find as many rows.

use crate::commands::bench::workload::{BODY_BYTES, Key, Workload};
use anyhow::{Context, Result};

/// Items with the same rank.
const PER_RANK: u64 = 10;
/// The lowest rank; all have as many digits.
const RANK_MIN: u64 = 10_000_000;
/// What a rank takes at the beginning of an item: `"rank":12345678,`.
const RANK_BYTES: usize = 16;
/// How an item ends.
const END: &[u8] = b"\"}";
/// A prime, to visit numbers in no order.
const STRIDE: u64 = 7919;

/// A value that a question is asked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u64),
}

impl Value {
    /// As JSON.
    pub(super) fn json(&self) -> String {
        match self {
            Value::Text(text) => format!("\"{text}\""),
            Value::Number(number) => number.to_string(),
        }
    }

    /// As text without quotes.
    pub(super) fn plain(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Number(number) => number.to_string(),
        }
    }
}

/// The items of a run.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    workload: Workload,
    items: u64,
    /// One of the 64 that there are, so that one item in 64 has it.
    postcode: String,
}

impl Orders {
    pub(super) fn new(items: u64) -> Result<Orders> {
        let workload = Workload::new();
        let first: serde_json::Value = serde_json::from_slice(&workload.body(0, 0))?;
        let postcode = first["address"]["postcode"].as_str().context("no postcode")?.to_owned();
        Ok(Orders { workload, items, postcode })
    }

    /// An item, as long as any other.
    pub(super) fn body(&self, number: u64) -> Vec<u8> {
        let plain = self.workload.body(number, 0);
        let mut body = Vec::with_capacity(BODY_BYTES);
        body.extend_from_slice(format!("{{\"rank\":{},", self.rank(number)).as_bytes());
        body.extend_from_slice(&plain[1..BODY_BYTES - RANK_BYTES - END.len()]);
        body.extend_from_slice(END);
        body
    }

    fn rank(&self, number: u64) -> u64 {
        RANK_MIN + number.wrapping_mul(STRIDE) % self.ranks()
    }

    fn ranks(&self) -> u64 {
        (self.items / PER_RANK).max(1)
    }

    /// What the question of a number is asked with.
    pub(super) fn values(&self, asked: Asked, number: u64) -> Vec<Value> {
        let item = number.wrapping_mul(STRIDE) % self.items;
        match asked {
            Asked::Point => {
                let key = Key::of(item);
                vec![Value::Text(key.customer), Value::Text(key.id)]
            }
            Asked::Equality | Asked::Range => vec![Value::Number(self.rank(item))],
            Asked::Scan => vec![Value::Text(self.postcode.clone())],
            Asked::Aggregate | Asked::Group | Asked::Join => Vec::new(),
        }
    }
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Asked {
    Point,
    Equality,
    Range,
    Scan,
    Aggregate,
    Group,
    Join,
}

impl Asked {
    pub(super) const ALL: [Asked; 7] = [
        Asked::Point,
        Asked::Equality,
        Asked::Range,
        Asked::Scan,
        Asked::Aggregate,
        Asked::Group,
        Asked::Join,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Asked::Point => "point",
            Asked::Equality => "equality",
            Asked::Range => "range",
            Asked::Scan => "scan",
            Asked::Aggregate => "aggregate",
            Asked::Group => "group",
            Asked::Join => "join",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Asked> {
        Asked::ALL.into_iter().find(|asked| asked.name() == name)
    }

    /// The question as a row has it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Asked::Point => "queries by id and key",
            Asked::Equality => "queries by equality, indexed, 10 rows",
            Asked::Range => "queries by range in order, indexed, 100 rows",
            Asked::Scan => "filter on an unindexed field",
            Asked::Aggregate => "count, sum and maximum of all",
            Asked::Group => "count and average by group",
            Asked::Join => "count over a nested array",
        }
    }

    /// Whether it looks at every item, so that items per second of CPU are counted instead of answers.
    pub(super) fn reads_all(self) -> bool {
        matches!(self, Asked::Scan | Asked::Aggregate | Asked::Group | Asked::Join)
    }

    /// How many values it is asked with.
    pub(super) fn parameters(self) -> usize {
        match self {
            Asked::Point => 2,
            Asked::Equality | Asked::Range | Asked::Scan => 1,
            Asked::Aggregate | Asked::Group | Asked::Join => 0,
        }
    }

    /// Values are `@a` and `@b`.
    pub(super) fn ours(self) -> &'static str {
        match self {
            Asked::Point => "SELECT * FROM c WHERE c.customer = @a AND c.id = @b",
            Asked::Equality => "SELECT * FROM c WHERE c.rank = @a",
            Asked::Range => "SELECT * FROM c WHERE c.rank >= @a ORDER BY c.rank OFFSET 0 LIMIT 100",
            Asked::Scan => "SELECT c.id FROM c WHERE c.address.postcode = @a",
            Asked::Aggregate => {
                "SELECT COUNT(1) AS n, SUM(c.total) AS total, MAX(c.total) AS most FROM c"
            }
            Asked::Group => {
                "SELECT c.status, COUNT(1) AS n, AVG(c.total) AS mean FROM c GROUP BY c.status"
            }
            Asked::Join => {
                "SELECT VALUE COUNT(1) FROM c JOIN line IN c.lines WHERE line.quantity > 5"
            }
        }
    }

    /// Values are `$1` and `$2`.
    pub(super) fn postgres(self) -> &'static str {
        match self {
            Asked::Point => "SELECT body FROM items WHERE customer = $1 AND id = $2",
            Asked::Equality => "SELECT body FROM items WHERE (body->>'rank')::bigint = $1::bigint",
            Asked::Range => {
                "SELECT body FROM items WHERE (body->>'rank')::bigint >= $1::bigint \
                 ORDER BY (body->>'rank')::bigint LIMIT 100"
            }
            Asked::Scan => "SELECT id FROM items WHERE body->'address'->>'postcode' = $1",
            Asked::Aggregate => {
                "SELECT count(*), sum((body->>'total')::float8), max((body->>'total')::float8) \
                 FROM items"
            }
            Asked::Group => {
                "SELECT body->>'status', count(*), avg((body->>'total')::float8) FROM items \
                 GROUP BY 1"
            }
            Asked::Join => {
                "SELECT count(*) FROM items, jsonb_array_elements(body->'lines') AS line \
                 WHERE (line->>'quantity')::int > 5"
            }
        }
    }

    /// Values are `?1` and `?2`. Every row is one text.
    pub(super) fn sqlite(self) -> &'static str {
        match self {
            Asked::Point => "SELECT body FROM items WHERE customer = ?1 AND id = ?2",
            Asked::Equality => "SELECT body FROM items WHERE json_extract(body, '$.rank') = ?1",
            Asked::Range => {
                "SELECT body FROM items WHERE json_extract(body, '$.rank') >= ?1 \
                 ORDER BY json_extract(body, '$.rank') LIMIT 100"
            }
            Asked::Scan => {
                "SELECT json_quote(id) FROM items \
                 WHERE json_extract(body, '$.address.postcode') = ?1"
            }
            Asked::Aggregate => {
                "SELECT json_array(count(*), sum(json_extract(body, '$.total')), \
                 max(json_extract(body, '$.total'))) FROM items"
            }
            Asked::Group => {
                "SELECT json_array(json_extract(body, '$.status'), count(*), \
                 avg(json_extract(body, '$.total'))) FROM items \
                 GROUP BY json_extract(body, '$.status')"
            }
            Asked::Join => {
                "SELECT json_array(count(*)) FROM items, json_each(body, '$.lines') AS line \
                 WHERE json_extract(line.value, '$.quantity') > 5"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_1_kib_of_json_and_ten_share_a_rank() {
        let orders = Orders::new(100).unwrap();
        let mut ranks = std::collections::HashMap::<u64, u64>::new();
        for number in 0..100 {
            let body = orders.body(number);
            assert_eq!(body.len(), BODY_BYTES);
            let item: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(item["id"], Key::of(number).id);
            assert_eq!(item["lines"].as_array().unwrap().len(), 4);
            *ranks.entry(item["rank"].as_u64().unwrap()).or_default() += 1;
        }
        assert!(ranks.len() == 10 && ranks.values().all(|count| *count == 10), "{ranks:?}");
    }

    #[test]
    fn every_question_has_a_name_and_its_values() {
        let orders = Orders::new(100).unwrap();
        for asked in Asked::ALL {
            assert_eq!(Asked::of_name(asked.name()), Some(asked));
            assert_eq!(orders.values(asked, 3).len(), asked.parameters());
        }
        assert_eq!(Asked::of_name("nothing"), None);
    }
}
