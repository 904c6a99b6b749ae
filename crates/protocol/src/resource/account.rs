//! The account document: the response to `GET /`, which every client reads first.
//!
//! Clients switch to the endpoint that it names, so clients must be able to reach that endpoint. What it
//! omits matters too: without locations for a thin client, SDKs do not try one.

use crate::headers::ConsistencyLevel;
use serde_json::{Value, json};

/// The settings of the query planner inside some SDKs, sent as JSON text inside the JSON.
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

/// A region and its endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The region's name, as in lists of preferred regions.
    pub name: String,
    /// A URL that clients can reach.
    pub endpoint: String,
}

/// The account as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The name. Never `localhost`, with which one SDK would read the account twice before every operation.
    pub id: String,
    /// The regions that accept writes: one, or all of them.
    pub writable: Vec<Location>,
    /// The regions that accept reads.
    pub readable: Vec<Location>,
    /// The default consistency level of reads.
    pub consistency: ConsistencyLevel,
}

impl Account {
    /// The name of an account without a configured name.
    pub const DEFAULT_ID: &str = "headwater";

    /// Creates an account in one region.
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

    /// Returns the body of the response.
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
