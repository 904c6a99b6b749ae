//! Lists and queries, page by page; every entry is the bytes that the server sent.

use crate::client::Client;
use crate::connection::Answer;
use crate::container::Container;
use crate::error::ClientError;
use crate::request::Request;
use bytes::Bytes;
use headwater_model::{PartitionId, PartitionKey};
use headwater_protocol::headers;
use headwater_protocol::route::Route;
use hyper::Method;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Which page of a list to read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageRequest {
    /// The continuation of the previous page.
    pub continuation: Option<String>,
    /// The most entries of the page; the server may return fewer.
    pub items: Option<u32>,
    /// Only items of this partition key.
    pub partition_key: Option<PartitionKey>,
    /// Only items of this range.
    pub range: Option<PartitionId>,
}

impl PageRequest {
    pub(crate) fn apply(&self, request: Request) -> Request {
        let size = self.items.map_or_else(|| "-1".to_owned(), |items| items.to_string());
        request
            .header(headers::MAX_ITEM_COUNT, size)
            .header_if(headers::CONTINUATION, self.continuation.as_deref())
            .header_if(headers::PARTITION_KEY, self.partition_key.as_ref())
            .header_if(headers::PARTITION_KEY_RANGE_ID, self.range)
    }
}

/// A page of a list or of query results.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// Documents, or the values that a query selects, as JSON.
    pub entries: Vec<Bytes>,
    /// Continues at the next page; `None` on the last.
    pub continuation: Option<String>,
    /// The request charge.
    pub charge: f64,
    /// The time of the response by the server's clock, in seconds since 1970.
    pub date: Option<u64>,
}

/// A query with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    text: String,
    parameters: Vec<(String, serde_json::Value)>,
}

impl Query {
    /// Creates a query in the SQL of Cosmos DB.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Query {
        Query { text: text.into(), parameters: Vec::new() }
    }

    /// Adds a parameter; its name starts with `@`.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: impl Into<serde_json::Value>) -> Query {
        self.parameters.push((name.to_owned(), value.into()));
        self
    }

    fn to_json(&self) -> String {
        let parameters = self.parameters.iter();
        let parameters = parameters
            .map(|(name, value)| serde_json::json!({ "name": name, "value": value }))
            .collect::<Vec<_>>();
        serde_json::json!({ "query": self.text, "parameters": parameters }).to_string()
    }
}

impl Container {
    /// Reads a page of all items, in a stable order.
    ///
    /// # Errors
    /// [`Reason::RangeGone`](crate::Reason) when the requested range was split or merged.
    pub async fn list(&self, page: &PageRequest) -> Result<Page, ClientError> {
        let request = page.apply(Request::new(Method::GET, &self.items_route()));
        let request = self.with_session(request);
        let answer = self.send(request).await?;
        crate::list::page(self.client(), answer)
    }

    /// Reads a page of query results. Without a partition key or range it covers all partitions.
    ///
    /// # Errors
    /// [`Reason::QueryNeedsPlan`](crate::Reason) when the client must merge the results; query range by range
    /// then.
    pub async fn query(&self, query: &Query, page: &PageRequest) -> Result<Page, ClientError> {
        let mut request = Request::new(Method::POST, &self.items_route());
        request.reads = true;
        request.body = query.to_json().into();
        let across = page.partition_key.is_none();
        let request = page
            .apply(request)
            .header(headers::CONTENT_TYPE, headers::QUERY_JSON)
            .header(headers::IS_QUERY, "True")
            .header(headers::ENABLE_CROSS_PARTITION, if across { "True" } else { "False" });
        let answer = self.send(self.with_session(request)).await?;
        crate::list::page(self.client(), answer)
    }

    pub(crate) fn items_route(&self) -> Route {
        Route::Items { db: self.database().to_owned(), coll: self.id().to_owned() }
    }
}

pub(crate) fn page(client: &Client, answer: Answer) -> Result<Page, ClientError> {
    Ok(Page {
        entries: entries(&answer.body).map_err(|error| client.bad_answer(error))?,
        continuation: answer.header(headers::CONTINUATION).map(str::to_owned),
        charge: answer.charge(),
        date: answer.date(),
    })
}

/// The entries of a list, each a slice of the body: found in the first property not named `_…`.
pub(crate) fn entries(body: &Bytes) -> Result<Vec<Bytes>, String> {
    let list: List<'_> =
        serde_json::from_slice(body).map_err(|error| format!("the list is malformed ({error})"))?;
    Ok(list.0.iter().map(|entry| body.slice_ref(entry.get().as_bytes())).collect())
}

struct List<'a>(Vec<&'a RawValue>);

/// The name of the property with the entries depends on their type. All others begin with `_` or follow it.
impl<'de> Deserialize<'de> for List<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<'de>, D::Error> {
        struct Properties;

        impl<'de> Visitor<'de> for Properties {
            type Value = List<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a list")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<List<'de>, A::Error> {
                let mut found = None;
                while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    if name.starts_with('_') || found.is_some() {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        found = Some(map.next_value::<Vec<&'de RawValue>>()?);
                    }
                }
                found.map(List).ok_or_else(|| serde::de::Error::custom("there is no list in it"))
            }
        }

        deserializer.deserialize_map(Properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_the_bytes_that_came() {
        let body = br#"{"_rid":"x","Documents":[{"a":1.50},"t" ,[1, 2],1e3],"_count":4}"#;
        let found = entries(&Bytes::from_static(body)).unwrap();
        assert_eq!(found, [&br#"{"a":1.50}"#[..], br#""t""#, b"[1, 2]", b"1e3"]);
        assert!(found[0].as_ptr() > body.as_ptr(), "no copy was made");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for body in ["", "[]", "{}", r#"{"_rid":"x"}"#, r#"{"Documents":1}"#, r#"{"Documents":["#] {
            assert!(entries(&Bytes::from(body)).is_err(), "{body}");
        }
    }

    #[test]
    fn a_query_carries_its_parameters() {
        let query = Query::new("SELECT * FROM c WHERE c.a = @a").parameter("@a", 1);
        let json: serde_json::Value = serde_json::from_str(&query.to_json()).unwrap();
        assert_eq!(json["parameters"][0]["name"], "@a");
        assert_eq!(json["parameters"][0]["value"], 1);
    }
}
