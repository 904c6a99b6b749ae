//! Queries over the items of a container, a page at a time.
//!
//! A query that answers item by item goes on from where its last page ended, through restarts and
//! splits, like a scan. One that needs every item before its first row is run again for every page, and
//! the rows that were shown are left out.
//!
//! What a query means is not decided here; see the crate `headwater-query`.

use crate::container::Container;
use crate::error::{ItemReadError, StorageError};
use crate::scan::{ScanPosition, ScanScope};
use crate::script::{Script, UserScripts};
use bytes::Bytes;
use headwater_model::{KeyRange, PageLimit, PartitionKey, PartitionKeyValue};
use headwater_query::{Context, EvaluationError, Kind, Next, Progress};
use std::borrow::Cow;
use std::sync::Arc;

pub use headwater_query::{ComputedProperty, Problem, Query, QueryError, Value};

/// Items read for one page; a page that ends for that reason may be empty and goes on.
const ITEMS_READ_MAX: usize = 20_000;
/// Items a query that needs all of them may read.
const ITEMS_COLLECTED_MAX: usize = 10_000_000;
/// Items taken from the index at once.
const SCAN_ITEMS: u32 = 256;
const SCAN_BYTES: u32 = 4 << 20;
/// Units of 100 ns in a millisecond.
const TICKS_PER_MILLISECOND: u64 = 10_000;

/// A page of rows.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueryPage {
    /// The rows, as JSON.
    pub rows: Vec<Bytes>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
    /// How many items were read for it.
    pub items_read: usize,
    /// How many bytes they had.
    pub bytes_read: usize,
}

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryFailure {
    /// It cannot be evaluated.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// Items cannot be read.
    #[error(transparent)]
    Read(#[from] ItemReadError),
    /// A position that no page of this query has returned.
    #[error("Invalid Continuation Token: it is not one of this query's; start again without it")]
    BadContinuation,
    /// Too many scripts are running, and the query calls user-defined functions.
    #[error("too many scripts are running; try again in a moment")]
    Busy,
    /// More items than a query that needs all of them may read.
    #[error("the query needs more than {ITEMS_COLLECTED_MAX} items; narrow it by partition key")]
    TooManyItems,
}

impl From<StorageError> for QueryFailure {
    fn from(error: StorageError) -> QueryFailure {
        QueryFailure::Read(error.into())
    }
}

impl Container {
    /// Answers a page of a query.
    ///
    /// # Errors
    /// When the query cannot be evaluated, the continuation is not its own, or the store fails.
    pub async fn query(
        &self,
        query: &Query,
        scope: &ScanScope,
        after: Option<&str>,
        limit: PageLimit,
    ) -> Result<QueryPage, QueryFailure> {
        self.query_with(query, scope, after, limit, &[]).await
    }

    /// Answers a page of a query that may call these user-defined functions.
    ///
    /// # Errors
    /// Also when a function fails or takes too long.
    pub async fn query_with(
        &self,
        query: &Query,
        scope: &ScanScope,
        after: Option<&str>,
        limit: PageLimit,
        functions: &[Script],
    ) -> Result<QueryPage, QueryFailure> {
        let scope = match self.narrowed(query, scope)? {
            Some(scope) => scope,
            None => return Ok(QueryPage::default()),
        };
        let shared = &self.state().shared;
        let limits = &shared.options.scripts;
        let (_place, functions) = if functions.is_empty() {
            (None, None)
        } else {
            let place = shared.runtime.timeout(limits.time, shared.turns.place()).await;
            let place = place.flatten().ok_or(QueryFailure::Busy)?;
            let functions = UserScripts::new(functions, limits, &shared.runtime);
            (Some(place), Some(Arc::new(functions)))
        };
        let context = self.query_context(functions);
        if query.is_streaming() {
            self.stream_query(query, context, &scope, after, limit).await
        } else {
            self.collect_query(query, context, &scope, after, limit).await
        }
    }

    /// What of the scope can hold matching items: one partition key, if the filter names one. `None` if
    /// that key lies outside.
    fn narrowed(
        &self,
        query: &Query,
        scope: &ScanScope,
    ) -> Result<Option<ScanScope>, QueryFailure> {
        let Some(key) = self.only_key(query) else {
            return Ok(Some(scope.clone()));
        };
        let bounds = match scope {
            ScanScope::Container => KeyRange::full(),
            ScanScope::Hashes(range) => range.clone(),
            ScanScope::Range(id) => {
                let topology = self.state().topology();
                topology.partition(*id).ok_or(ItemReadError::RangeGone(*id))?.range.clone()
            }
            ScanScope::Key(_) => return Ok(Some(scope.clone())),
        };
        let definition = self.settings().definition.partition_key().clone();
        match definition.epk(&key) {
            Ok(epk) if bounds.contains(epk.as_bytes()) => Ok(Some(ScanScope::Key(key))),
            Ok(_) if query.is_streaming() => Ok(None),
            // A count of nothing is a row too, and a key we cannot hash is nobody's.
            _ => Ok(Some(scope.clone())),
        }
    }

    /// The one partition key all matching items have, if the filter says so.
    fn only_key(&self, query: &Query) -> Option<PartitionKey> {
        let settings = self.settings();
        let paths = &settings.definition.partition_key().paths;
        let names: Vec<Vec<&str>> =
            paths.iter().map(|path| path.segments().iter().map(String::as_str).collect()).collect();
        let candidates = query.candidates(&names)?;
        let mut keys = candidates.iter().map(|candidate| key_of(candidate));
        let first = keys.next()??;
        keys.all(|key| key.as_ref() == Some(&first)).then_some(first)
    }

    pub(crate) fn query_context(&self, functions: Option<Arc<UserScripts>>) -> Context {
        let runtime = &self.state().shared.runtime;
        let ticks = runtime.unix_millis().saturating_mul(TICKS_PER_MILLISECOND);
        let context =
            Context::at(i64::try_from(ticks).unwrap_or(i64::MAX)).with_seed(runtime.random());
        match functions {
            Some(functions) => context.with_functions(functions),
            None => context,
        }
    }

    async fn stream_query(
        &self,
        query: &Query,
        context: Context,
        scope: &ScanScope,
        after: Option<&str>,
        limit: PageLimit,
    ) -> Result<QueryPage, QueryFailure> {
        let (progress, mut position) = match after {
            None => (Progress::default(), None),
            Some(text) => read_position(text)?,
        };
        let mut run = query.resume(context, progress);
        let mut page = QueryPage::default();
        let mut bytes = 0;
        loop {
            let wanted = (limit.items as usize).saturating_sub(page.rows.len());
            let batch = u32::try_from(wanted).unwrap_or(SCAN_ITEMS).clamp(1, SCAN_ITEMS);
            let batch = PageLimit::new(batch, SCAN_BYTES).unwrap_or_default();
            let scanned = self.scan(scope, position.as_ref(), batch).await?;
            let mut done = false;
            for item in &scanned.items {
                let text = item.to_bytes();
                page.items_read += 1;
                page.bytes_read += text.len();
                let mut rows = Vec::new();
                done = run.push(&text, item.number(), &mut rows)? == Next::Enough;
                for row in rows {
                    let row = match row {
                        Cow::Borrowed(row) => text.slice_ref(row),
                        Cow::Owned(row) => Bytes::from(row),
                    };
                    bytes += row.len();
                    page.rows.push(row);
                }
                if done {
                    break;
                }
            }
            position = scanned.next;
            if done || position.is_none() {
                return Ok(page);
            }
            let full = page.rows.len() >= limit.items as usize || bytes >= limit.bytes as usize;
            if full || page.items_read >= ITEMS_READ_MAX {
                page.next = position.map(|position| write_position(run.progress(), &position));
                return Ok(page);
            }
        }
    }

    async fn collect_query(
        &self,
        query: &Query,
        context: Context,
        scope: &ScanScope,
        after: Option<&str>,
        limit: PageLimit,
    ) -> Result<QueryPage, QueryFailure> {
        let shown: usize = match after {
            None => 0,
            Some(text) => {
                let number = text.strip_prefix("o.").and_then(|text| text.parse().ok());
                number.ok_or(QueryFailure::BadContinuation)?
            }
        };
        let mut run = query.start(context);
        let mut page = QueryPage::default();
        let mut position = None;
        let batch = PageLimit::new(SCAN_ITEMS, SCAN_BYTES).unwrap_or_default();
        while query.reads_items() {
            let scanned = self.scan(scope, position.as_ref(), batch).await?;
            let mut done = false;
            for item in &scanned.items {
                let text = item.to_bytes();
                page.items_read += 1;
                page.bytes_read += text.len();
                done = run.push(&text, item.number(), &mut Vec::new())? == Next::Enough;
                if done {
                    break;
                }
            }
            if page.items_read > ITEMS_COLLECTED_MAX {
                return Err(QueryFailure::TooManyItems);
            }
            position = scanned.next;
            if done || position.is_none() {
                break;
            }
        }
        let rows = run.finish()?;
        let total = rows.len();
        let mut bytes = 0;
        for row in rows.into_iter().skip(shown) {
            let full = page.rows.len() >= limit.items as usize || bytes >= limit.bytes as usize;
            if full {
                break;
            }
            bytes += row.len();
            page.rows.push(Bytes::from(row));
        }
        let next = shown + page.rows.len();
        page.next = (next < total && !page.rows.is_empty()).then(|| format!("o.{next}"));
        Ok(page)
    }
}

/// Answers a query over documents that are all at hand.
///
/// # Errors
/// When it cannot be evaluated.
pub fn query_documents(
    query: &Query,
    documents: &[Bytes],
    now_millis: u64,
) -> Result<Vec<Bytes>, EvaluationError> {
    let ticks = i64::try_from(now_millis.saturating_mul(TICKS_PER_MILLISECOND));
    let mut run = query.start(Context::at(ticks.unwrap_or(i64::MAX)));
    let mut answered = Vec::new();
    for (ordinal, document) in documents.iter().enumerate() {
        let mut rows = Vec::new();
        let next = run.push(document, ordinal as u64, &mut rows)?;
        answered.extend(rows.into_iter().map(|row| Bytes::from(row.into_owned())));
        if next == Next::Enough {
            break;
        }
    }
    answered.extend(run.finish()?.into_iter().map(Bytes::from));
    Ok(answered)
}

/// The condition of a patch: a query's `from … where …` that one item passes or not.
///
/// # Errors
/// When it cannot be understood.
pub fn condition(text: &str) -> Result<crate::item::Condition, QueryError> {
    let query = Query::parse(&format!("SELECT VALUE 1 {text}"), &[])?;
    Ok(Arc::new(move |item: &[u8]| {
        let mut run = query.start(Context::default());
        let mut rows = Vec::new();
        run.push(item, 0, &mut rows).map_err(|error| error.to_string())?;
        Ok(!rows.is_empty())
    }))
}

/// The partition key with these values; `None` if one is open, or no value of a key.
fn key_of(candidate: &[Option<Value<'static>>]) -> Option<PartitionKey> {
    let values = candidate.iter().map(|value| {
        let value = value.as_ref()?;
        match value.kind() {
            Kind::Null => Some(PartitionKeyValue::Null),
            Kind::Bool => value.as_bool().map(PartitionKeyValue::from),
            Kind::Number => value.as_number().map(PartitionKeyValue::from),
            Kind::String => value.as_text().map(PartitionKeyValue::from),
            _ => None,
        }
    });
    let values: Option<Vec<PartitionKeyValue>> = values.collect();
    values.map(PartitionKey::from_values)
}

fn write_position(progress: Progress, position: &ScanPosition) -> String {
    format!("s.{}.{position}", progress.rows)
}

fn read_position(text: &str) -> Result<(Progress, Option<ScanPosition>), QueryFailure> {
    let bad = || QueryFailure::BadContinuation;
    let (rows, position) =
        text.strip_prefix("s.").and_then(|text| text.split_once('.')).ok_or_else(bad)?;
    let rows = rows.parse().map_err(|_| bad())?;
    Ok((Progress { rows }, Some(ScanPosition::from_text(position))))
}
