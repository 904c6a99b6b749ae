//! Runs queries over items and definitions, and plans those that clients run range by range.

use super::query_metrics::{self, Measurements};
use super::{Outcome, changes, items, list, scripts};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::{Gateway, Target};
use crate::names;
use crate::request::{Call, Scope};
use bytes::Bytes;
use headwater_model::{PageLimit, PartitionKeyDefinition, PartitionKeyPath};
use headwater_protocol::charge::Charge;
use headwater_protocol::error::Code;
use headwater_protocol::headers;
use headwater_protocol::resource::FeedWriter;
use headwater_store::query::{
    EvaluationError, ParameterReader, Query, QueryError, QueryFailure, QueryPage, ResumePoint,
    Value, condition,
};
use headwater_store::{Condition, Container, Patch};
use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

/// User agents of clients that first send a query unplanned, and plan it when the server requires it. Other
/// clients plan without being asked, or cannot.
const MERGING_CLIENTS: [&str; 2] = ["azsdk-python-cosmos", "azure-cosmos-js"];

/// The execution info of every query: all read forwards.
static FORWARDS: HeaderValue =
    HeaderValue::from_static(r#"{"reverseRidEnabled":false,"reverseIndexScan":false}"#);

/// The continuation after the last row, which leads to an empty page.
const LAST_PAGE: &str = "end";

/// The body of a query request.
#[derive(Deserialize)]
struct Body<'a> {
    query: String,
    #[serde(borrow, default)]
    parameters: Vec<Parameter<'a>>,
    /// Where a sorted query resumes on one range. Only .NET sends it; other clients put it into the text.
    #[serde(rename = "resumeFilter", borrow, default)]
    resume_filter: Option<ResumeFilter<'a>>,
}

#[derive(Deserialize)]
struct ResumeFilter<'a> {
    #[serde(borrow)]
    value: Vec<&'a RawValue>,
    #[serde(default)]
    exclude: bool,
}

impl ResumeFilter<'_> {
    fn point(&self) -> Result<ResumePoint, Failure> {
        let mut reader = ParameterReader::default();
        let value = |text: &&RawValue| {
            reader
                .read(text.get().as_bytes())
                .map_err(|error| Failure::bad_request(format!("the resume filter: {error}")))
        };
        let values = self.value.iter().map(value).collect::<Result<_, _>>()?;
        Ok(ResumePoint { values, is_exclusive: self.exclude })
    }
}

#[derive(Deserialize)]
struct Parameter<'a> {
    name: String,
    /// `None` for an undefined value; null is a value like any other.
    #[serde(borrow, default, deserialize_with = "given")]
    value: Option<&'a RawValue>,
}

/// Deserialises a member that is present, including null.
fn given<'de: 'a, 'a, D: Deserializer<'de>>(text: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(text).map(Some)
}

/// Handles `POST …/docs` with a query.
pub(super) async fn items(gateway: &Gateway, call: &Call, target: &Target) -> Outcome {
    let container = &target.container;
    let arrived = gateway.runtime.elapsed();
    let query = parse(call, Some(container))?;
    let compiling = gateway.runtime.elapsed().saturating_sub(arrived);
    let scope = call.scope()?;
    items::check_session(call, container)?;
    check_crossing(call, container, &scope, Some(&query))?;
    leave_to_client(call, container, &scope, &query)?;
    let wanted = list::scan_scope(container, &scope)?;
    let started = gateway.runtime.elapsed();
    let functions = scripts::functions_of(gateway, container, &query);
    let after = call.continuation().map(position_in).transpose()?.flatten();
    let limit = call.query_page_limit()?;
    let mut page = match after.as_deref() {
        Some(LAST_PAGE) => QueryPage::default(),
        after => container.query_with(&query, &wanted, after, limit, &functions).await?,
    };
    let passes_through = || !merges(call) || container.ranges().len() == 1;
    let is_last = page.next.is_none();
    if is_last
        && has_empty_end(&query, container, &scope, page.rows.len(), limit)
        && passes_through()
    {
        page.next = Some(LAST_PAGE.to_owned());
    }
    let running = gateway.runtime.elapsed().saturating_sub(started);
    let rid = container.rid().to_string();
    let (body, rows) = body_of("Documents", &rid, std::mem::take(&mut page.rows));
    let measured = Measurements { compiling, running, rows, bytes: body.len() };
    let answer = Answer::json(StatusCode::OK, body)
        .charged(Charge::query(page.items_read, page.bytes_read))
        .number(&names::ITEM_COUNT, rows as u64)
        .ready(&names::QUERY_EXECUTION_INFO, &FORWARDS)
        .header_if(headers::QUERY_METRICS, query_metrics::figures(call, &page, &measured))
        .header_if(
            headers::INDEX_UTILIZATION,
            query_metrics::indexes(call, container, &scope, &page.index),
        )
        .header_if(headers::CONTINUATION, page.next.map(|next| continuation(&scope, next)));
    Ok(changes::served(container, &scope, answer))
}

/// Whether an empty page follows the last full one. It does where a gateway visits all ranges itself, and
/// clients count pages (`TestCrossPartitionQuery` of the Go SDK). Within one range or key the last full page
/// is the last. So it is for clients that would visit several ranges themselves (the JavaScript SDK counts
/// pages either way).
fn has_empty_end(
    query: &Query,
    container: &Container,
    scope: &Scope,
    rows: usize,
    limit: PageLimit,
) -> bool {
    let is_plain = query.is_streaming() && query.window() == (0, None);
    let is_full = rows >= limit.items as usize;
    !is_scoped(scope)
        && is_plain
        && is_full
        && !names_one_key(query, container.definition().partition_key())
}

/// Whether a call is limited to a key, a range or an interval of hashes.
fn is_scoped(scope: &Scope) -> bool {
    let has_key = scope.key.as_ref().is_some_and(|key| !key.components().is_empty());
    has_key || scope.range.is_some() || scope.hashes.is_some()
}

/// The continuation of a query over the whole container, in the JSON form of the service's gateway: the
/// position, and the remaining range of keys.
#[derive(Deserialize, Serialize)]
struct GatewayContinuation<'a> {
    #[serde(borrow)]
    token: Option<Cow<'a, str>>,
    range: ContinuationRange<'a>,
}

#[derive(Deserialize, Serialize)]
struct ContinuationRange<'a> {
    #[serde(borrow)]
    min: Cow<'a, str>,
    #[serde(borrow)]
    max: Cow<'a, str>,
}

/// Encodes a position as a continuation: unchanged within a key or a range, else as a JSON object.
fn continuation(scope: &Scope, position: String) -> String {
    if is_scoped(scope) {
        return position;
    }
    let range = ContinuationRange { min: Cow::Borrowed(""), max: Cow::Borrowed("FF") };
    let written = GatewayContinuation { token: Some(Cow::Borrowed(&position)), range };
    serde_json::to_string(&written).unwrap_or(position)
}

/// Returns the position in a continuation of either form; `None` for one that Azure wrote.
fn position_in(continuation: &str) -> Result<Option<Cow<'_, str>>, Failure> {
    let position = if continuation.starts_with('{') {
        let read: Result<GatewayContinuation<'_>, _> = serde_json::from_str(continuation);
        read.map_err(|_| Failure::from(QueryFailure::BadContinuation))?.token
    } else {
        Some(Cow::Borrowed(continuation))
    };
    Ok(position.filter(|position| !is_of_azure(position)))
}

/// Whether a continuation was written by Azure. Its position has no meaning here, so the query starts from the
/// beginning and misses nothing.
fn is_of_azure(continuation: &str) -> bool {
    continuation.starts_with("-RID:") || continuation.starts_with("+RID:")
}

/// Requires the cross-partition header for a query over more than one partition key, even in a container with a
/// single partition, which may split later.
pub(super) fn check_crossing(
    call: &Call,
    container: &Container,
    scope: &Scope,
    query: Option<&Query>,
) -> Result<(), Failure> {
    let has_key = scope.key.as_ref().is_some_and(|key| !key.components().is_empty());
    let scoped = has_key || scope.range.is_some() || scope.hashes.is_some();
    if scoped || call.flag(headers::ENABLE_CROSS_PARTITION) {
        return Ok(());
    }
    let definition = container.definition();
    let key = definition.partition_key();
    // A container without a key definition has only the empty key.
    if key.system_key || query.is_some_and(|query| names_one_key(query, key)) {
        return Ok(());
    }
    let message = "Cross partition query is required but disabled. Please set \
                   x-ms-documentdb-query-enablecrosspartition to true, specify \
                   x-ms-documentdb-partitionkey, or revise your query.";
    Err(Failure::bad_request(message))
}

/// Returns the plan, as an error, to clients that can merge the results of several ranges.
///
/// The server could merge, and does so for all other clients. But users of these SDKs can observe the merging:
/// the pages, the refusals, the value of an aggregate over nothing. A first split must not change them, so a
/// single range is merged like many.
fn leave_to_client(
    call: &Call,
    container: &Container,
    scope: &Scope,
    query: &Query,
) -> Result<(), Failure> {
    let scoped = scope.key.is_some() || scope.range.is_some() || scope.hashes.is_some();
    if scoped || !merges(call) {
        return Ok(());
    }
    let definition = container.definition();
    let plan = query.plan(definition.partition_key());
    let plan = plan.map_err(|error| Failure::bad_request(error.service_message()))?;
    let features = plan.features();
    // Some clients cannot handle a named aggregate and refuse it whatever the filter.
    let is_named =
        features.contains(&"NonValueAggregate") && call.flag(headers::ENABLE_CROSS_PARTITION);
    let is_ours = !is_named && names_one_key(query, definition.partition_key());
    if features.is_empty() || is_ours || plan.groups_bare_aggregates() {
        return Ok(());
    }
    let message = "The provided cross partition query can not be directly served by the gateway. \
                   Ask for its plan and run that on each range.";
    let failure = Failure::new(Code::CrossPartitionQueryNotServable, message);
    Err(Failure { info: serde_json::to_string(&plan).ok(), ..failure })
}

/// Whether the client can merge the results of several ranges.
fn merges(call: &Call) -> bool {
    let agent = call.header("user-agent").unwrap_or_default();
    MERGING_CLIENTS.iter().any(|name| agent.contains(name))
}

/// Whether the filter matches at most one partition key.
fn names_one_key(query: &Query, definition: &PartitionKeyDefinition) -> bool {
    let segments = |path: &PartitionKeyPath| path.segments().to_vec();
    let paths: Vec<Vec<String>> = definition.paths.iter().map(segments).collect();
    let paths: Vec<Vec<&str>> =
        paths.iter().map(|path| path.iter().map(String::as_str).collect()).collect();
    let candidates = query.candidates(&paths);
    candidates.is_some_and(|all| all.len() <= 1 && all.iter().flatten().all(Option::is_some))
}

/// Runs a query over documents that are all in memory.
pub(super) fn documents(
    gateway: &Gateway,
    call: &Call,
    key: &str,
    rid: &str,
    all: &[Bytes],
) -> Outcome {
    let query = parse(call, None)?;
    let rows = gateway.account.query_documents(&query, all);
    let rows = rows.map_err(|error| Failure::from(QueryFailure::from(error)))?;
    list::documents(call, key, rid, &rows)
}

/// Plans a query for a client that runs it range by range.
///
/// The client may request a plan without parameters and send them with the query. The plan is the same for all
/// of their values, except for the keys that they could narrow it to.
pub(super) fn plan(call: &Call, target: &Target) -> Outcome {
    let mut request = QueryRequest::parse(call)?;
    let is_known = !request.add_missing_parameters();
    let compiled = request.compile(Some(&target.container));
    let query = compiled.map_err(|error| Failure::bad_request(error.service_message()))?;
    let definition = target.container.definition();
    let planned = match is_known {
        true => query.plan(definition.partition_key()),
        false => query.plan_over_all_keys(),
    };
    let plan = match planned {
        // A query within one key needs no merging.
        Err(_) if is_for_one_key(call, definition.partition_key())? => query.plan_of_one_key(),
        plan => plan.map_err(|error| Failure::bad_request(error.service_message()))?,
    };
    let known = call.header(headers::SUPPORTED_QUERY_FEATURES).unwrap_or_default();
    let is_known =
        |feature: &str| headers::names_in(known).any(|one| one.eq_ignore_ascii_case(feature));
    let lacking: Vec<&str> =
        plan.features().into_iter().filter(|feature| !is_known(feature)).collect();
    if !lacking.is_empty() {
        let message = format!(
            "Query contains the following features, which the calling client does not support: {}",
            lacking.join(", ")
        );
        return Err(Failure::new(Code::CrossPartitionQueryNotServable, message));
    }
    let body = serde_json::to_vec(&plan).map_err(|error| {
        Failure::new(Code::InternalServerError, format!("the plan cannot be written: {error}"))
    })?;
    Ok(Answer::json(StatusCode::OK, body).charged(Charge::ONE))
}

/// Whether the request has a complete partition key.
fn is_for_one_key(call: &Call, definition: &PartitionKeyDefinition) -> Result<bool, Failure> {
    let key = call.partition_key()?;
    Ok(key.is_some_and(|key| key.components().len() == definition.paths.len()))
}

/// Compiles the condition of a patch, if it has one.
pub(super) fn condition_of(patch: &Patch) -> Result<Option<Condition>, Failure> {
    match &patch.condition {
        None => Ok(None),
        Some(text) => match condition(text) {
            Ok(condition) => Ok(Some(condition)),
            Err(error) => Err(Failure::bad_request(error.service_message())),
        },
    }
}

/// Parses the query of a request, over the items of a container or over documents.
fn parse(call: &Call, container: Option<&Container>) -> Result<Query, Failure> {
    let compiled = QueryRequest::parse(call)?.compile(container);
    compiled.map_err(|error| Failure::bad_request(error.service_message()))
}

/// The query of a request, before it is compiled.
struct QueryRequest {
    text: String,
    parameters: Vec<(String, Value<'static>)>,
    resume: Option<ResumePoint>,
}

impl QueryRequest {
    fn parse(call: &Call) -> Result<QueryRequest, Failure> {
        let kind = call.header(headers::CONTENT_TYPE).unwrap_or_default();
        if headers::has_media_type(kind, "application/sql") {
            let text = call.text()?.to_owned();
            return Ok(QueryRequest { text, parameters: Vec::new(), resume: None });
        }
        let body: Body<'_> = serde_json::from_slice(&call.body).map_err(|error| {
            Failure::bad_request(format!(
                "the body is not a query, {{\"query\":\"SELECT …\"}}: {error}"
            ))
        })?;
        let mut reader = ParameterReader::default();
        let mut parameters = Vec::with_capacity(body.parameters.len());
        for parameter in body.parameters {
            let text = parameter.value.map_or("null", RawValue::get);
            let value = match parameter.value {
                None => Value::Undefined,
                Some(_) => reader.read(text.as_bytes()).map_err(|error| {
                    Failure::bad_request(format!("parameter {}: {error}", parameter.name))
                })?,
            };
            parameters.push((parameter.name, value));
        }
        let resume = body.resume_filter.map(|filter| filter.point()).transpose()?;
        Ok(QueryRequest { text: body.query, parameters, resume })
    }

    /// Adds missing parameters as undefined values. Returns whether there are any.
    fn add_missing_parameters(&mut self) -> bool {
        let given: HashSet<&str> = self.parameters.iter().map(|(name, _)| name.as_str()).collect();
        let missing: Vec<String> = Query::parameters_in(&self.text)
            .into_iter()
            .filter(|name| !given.contains(name))
            .map(str::to_owned)
            .collect();
        let is_open = !missing.is_empty();
        self.parameters.extend(missing.into_iter().map(|name| (name, Value::Undefined)));
        is_open
    }

    fn compile(&self, container: Option<&Container>) -> Result<Query, QueryError> {
        let text = match &self.resume {
            Some(point) => Cow::Owned(point.resumed(&self.text)?),
            None => Cow::Borrowed(self.text.as_str()),
        };
        match container {
            Some(container) => container.parse_query(&text, &self.parameters),
            None => Query::parse(&text, &self.parameters),
        }
    }
}

/// Builds the body of a page. Each row is dropped once it is copied, so that the page is not in memory twice.
fn body_of(key: &str, rid: &str, rows: Vec<Bytes>) -> (Vec<u8>, usize) {
    let size: usize = rows.iter().map(|row| row.len() + 1).sum();
    let mut body = Vec::with_capacity(size + 128);
    let mut writer = FeedWriter::new(&mut body, rid, key);
    for row in rows {
        writer.push(&row);
    }
    let count = writer.finish();
    (body, count)
}

impl From<QueryFailure> for Failure {
    fn from(error: QueryFailure) -> Failure {
        match error {
            QueryFailure::Read(error) => error.into(),
            QueryFailure::TooManyItems => {
                Failure::new(Code::RequestTimeout, QueryFailure::TooManyItems.to_string())
            }
            QueryFailure::Busy
            | QueryFailure::Evaluation(EvaluationError::PoolExhausted { .. }) => {
                Failure::busy(error.to_string())
            }
            QueryFailure::Evaluation(EvaluationError::OutOfTime | EvaluationError::Abandoned) => {
                Failure::new(Code::RequestTimeout, error.to_string())
            }
            other => Failure::bad_request(other.to_string()),
        }
    }
}
