//! The account document, the answer to `GET /` and the first thing every client reads.
//!
//! Clients move on to the endpoint it names, so that must be one they can reach. What it leaves out
//! matters as much: without locations for a thin client, none is tried.

use crate::headers::ConsistencyLevel;
use serde_json::{Value, json};

/// What the query planner inside some SDKs wants to know, as a JSON text inside the JSON.
const QUERY_ENGINE: &[(&str, QueryLimit)] = &[
    ("maxSqlQueryInputLength", QueryLimit::Number(524_288)),
    ("maxJoinsPerSqlQuery", QueryLimit::Number(10)),
    ("maxLogicalAndPerSqlQuery", QueryLimit::Number(2000)),
    ("maxLogicalOrPerSqlQuery", QueryLimit::Number(2000)),
    ("maxUdfRefPerSqlQuery", QueryLimit::Number(10)),
    ("maxInExpressionItemsCount", QueryLimit::Number(16_000)),
    ("queryMaxInMemorySortDocumentCount", QueryLimit::Number(500)),
    ("maxQueryRequestTimeoutFraction", QueryLimit::Fraction(0.9)),
    ("sqlAllowNonFiniteNumbers", QueryLimit::Allowed(false)),
    ("sqlAllowAggregateFunctions", QueryLimit::Allowed(true)),
    ("sqlAllowSubQuery", QueryLimit::Allowed(true)),
    ("sqlAllowScalarSubQuery", QueryLimit::Allowed(true)),
    ("allowNewKeywords", QueryLimit::Allowed(true)),
    ("sqlAllowLike", QueryLimit::Allowed(true)),
    ("sqlAllowGroupByClause", QueryLimit::Allowed(true)),
    ("maxSpatialQueryCells", QueryLimit::Number(12)),
    ("spatialMaxGeometryPointCount", QueryLimit::Number(256)),
    ("sqlDisableOptimizationFlags", QueryLimit::Number(0)),
    ("enableSpatialIndexing", QueryLimit::Allowed(true)),
    ("sqlAllowTop", QueryLimit::Allowed(true)),
];

enum QueryLimit {
    Number(u32),
    Fraction(f64),
    Allowed(bool),
}

/// A region and where to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// As users name it in their lists of preferred regions.
    pub name: String,
    /// A URL clients can reach.
    pub endpoint: String,
}

/// What clients are told about the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name. Never `localhost`: one SDK would read the account twice before every operation.
    pub id: String,
    /// Where writes go: one region, or all of them.
    pub writable: Vec<Location>,
    /// Where reads go.
    pub readable: Vec<Location>,
    /// What reads promise unless they ask for less.
    pub consistency: ConsistencyLevel,
}

impl Account {
    /// The name of an account that has none of its own.
    pub const DEFAULT_ID: &str = "headwater";

    /// An account in one region.
    #[must_use]
    pub fn single(id: &str, endpoint: &str, region: &str) -> Account {
        let location = Location { name: region.to_owned(), endpoint: endpoint.to_owned() };
        Account {
            id: id.to_owned(),
            writable: vec![location.clone()],
            readable: vec![location],
            consistency: ConsistencyLevel::Session,
        }
    }

    /// The body of the answer.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let id = if self.id.eq_ignore_ascii_case("localhost") || self.id.is_empty() {
            Account::DEFAULT_ID
        } else {
            &self.id
        };
        let document = json!({
            "_self": "",
            "id": id,
            "_rid": format!("{id}.sql.cosmos.azure.com"),
            "media": "//media/",
            "addresses": "//addresses/",
            "_dbs": "//dbs/",
            "writableLocations": locations(&self.writable),
            "readableLocations": locations(&self.readable),
            "enableMultipleWriteLocations": self.writable.len() > 1,
            "continuousBackupEnabled": false,
            "enableNRegionSynchronousCommit": false,
            "enablePerPartitionFailoverBehavior": false,
            "disableCrossRegionalHedging": false,
            "userReplicationPolicy": {
                "asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4,
            },
            "userConsistencyPolicy": self.consistency_policy(),
            "systemReplicationPolicy": { "minReplicaSetSize": 1, "maxReplicasetSize": 4 },
            "readPolicy": { "primaryReadCoefficient": 1, "secondaryReadCoefficient": 1 },
            "queryEngineConfiguration": query_engine(),
        });
        document.to_string().into_bytes()
    }

    fn consistency_policy(&self) -> Value {
        let level = self.consistency.as_str();
        match self.consistency {
            ConsistencyLevel::BoundedStaleness => json!({
                "defaultConsistencyLevel": level,
                "maxIntervalInSeconds": 5,
                "maxStalenessPrefix": 100,
            }),
            _ => json!({ "defaultConsistencyLevel": level }),
        }
    }
}

fn locations(locations: &[Location]) -> Vec<Value> {
    let location = |location: &Location| {
        let endpoint = location.endpoint.trim_end_matches('/');
        json!({ "name": location.name, "databaseAccountEndpoint": format!("{endpoint}/") })
    };
    locations.iter().map(location).collect()
}

fn query_engine() -> String {
    let limit = |(name, limit): &(&str, QueryLimit)| {
        let value = match limit {
            QueryLimit::Number(number) => json!(number),
            QueryLimit::Fraction(fraction) => json!(fraction),
            QueryLimit::Allowed(allowed) => json!(allowed),
        };
        ((*name).to_owned(), value)
    };
    Value::Object(QUERY_ENGINE.iter().map(limit).collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(account: &Account) -> Value {
        serde_json::from_slice(&account.to_json()).unwrap()
    }

    #[test]
    fn clients_are_sent_to_the_endpoint() {
        for endpoint in ["https://db.example:8081", "https://db.example:8081/"] {
            let document = read(&Account::single("shop", endpoint, "South Central US"));
            for list in ["writableLocations", "readableLocations"] {
                let expected = json!([{
                    "name": "South Central US",
                    "databaseAccountEndpoint": "https://db.example:8081/",
                }]);
                assert_eq!(document[list], expected);
            }
            assert_eq!(document["id"], "shop");
            assert_eq!(document["enableMultipleWriteLocations"], false);
        }
    }

    #[test]
    fn an_account_is_never_called_localhost() {
        for id in ["localhost", "LOCALHOST", ""] {
            let document = read(&Account::single(id, "http://localhost:8081", "here"));
            assert_eq!(document["id"], "headwater");
        }
    }

    #[test]
    fn the_query_engine_is_configured_by_a_text() {
        let document = read(&Account::single("shop", "http://a", "here"));
        let text = document["queryEngineConfiguration"].as_str().unwrap();
        let configuration: Value = serde_json::from_str(text).unwrap();
        assert_eq!(configuration["maxSqlQueryInputLength"], 524_288);
        assert_eq!(configuration["maxQueryRequestTimeoutFraction"], 0.9);
    }

    #[test]
    fn what_would_lead_clients_elsewhere_is_left_out() {
        let document = read(&Account::single("shop", "http://a", "here"));
        for absent in ["thinClientReadableLocations", "thinClientWritableLocations", "_etag"] {
            assert!(document.get(absent).is_none(), "{absent}");
        }
    }
}
