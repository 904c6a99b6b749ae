//! Queries over the items of a container, one page at a time.
//!
//! * A streaming query returns rows item by item: in order of creation, or in the order of a scan if there
//!   are too many items to sort and no index. Later pages continue in the same order, through restarts and
//!   splits.
//! * A sorted query continues after the sort keys of its last row. With an index in its order it reads only
//!   the items of its page.
//! * Any other query needs every item before its first row. Each page runs it again and skips the rows that
//!   were returned.
//!
//! Rows found beyond a page are cached for the next one, so a page usually costs only its own rows. The meaning
//! of a query is defined by the crate `headwater-query`; the items to read are chosen in `source`. Nothing here
//! parses SQL.

mod continuation;
mod lanes;
mod leftovers;
mod source;
mod stream;
mod sweep;
mod understood;
mod walk;
mod watch;

use crate::account::{Account, Shared};
use crate::container::Container;
use crate::error::{ItemReadError, StorageError};
use crate::keys;
use crate::scan::ScanScope;
use crate::script::{Script, UserScripts};
use crate::secondary::Indexed;
use bytes::Bytes;
use continuation::Place;
use headwater_model::{KeyRange, PageLimit, PartitionKey, PartitionKeyValue};
use headwater_query::{Budget, Context, Kind, Limits, MemoryLease, Next, OrderMark, Run};
use std::sync::Arc;

pub use headwater_query::{
    ComputedProperty, EvaluationError, ParameterReader, Problem, Query, QueryError, ResumePoint,
    Value,
};
pub(crate) use lanes::Lanes;
pub(crate) use leftovers::Leftovers;
use leftovers::{Owner, Rows};
pub use source::IndexUsage;
use source::Source;
use std::time::Duration;
use sweep::Swept;
pub(crate) use understood::Understood;
pub use watch::QueryLimits;
pub(crate) use watch::QueryWatch;

/// Items read for one page. A page that ends at this limit may be empty although there are more rows.
const ITEMS_READ_MAX: usize = 20_000;
/// Time limit of a sweep, which finds the rows of many pages at once.
const SWEEP_TIME_MAX: Duration = Duration::from_secs(15);
/// Rows that a sorted query finds beyond its page.
const ROWS_AHEAD: usize = 1_000;
/// Items that a query that needs all items may read.
const ITEMS_COLLECTED_MAX: usize = 10_000_000;
/// Items read from the index at once.
const SCAN_ITEMS: u32 = 256;
const SCAN_BYTES: u32 = 4 << 20;
/// Limit of evaluation steps of a patch's condition. The partition's writer may evaluate it while other writes wait.
const CONDITION_STEPS_MAX: u64 = 20_000;
/// Memory limit of a patch's condition, in bytes.
const CONDITION_BYTES_MAX: usize = 8 << 20;
/// Units of 100 ns in a millisecond.
const TICKS_PER_MILLISECOND: u64 = 10_000;

/// A page of query results.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueryPage {
    /// The rows, as JSON.
    pub rows: Vec<Bytes>,
    /// The continuation token; `None` at the end.
    pub next: Option<String>,
    /// Items read for the page.
    pub items_read: usize,
    /// Bytes of these items.
    pub bytes_read: usize,
    /// Evaluation steps of the page.
    pub steps: u64,
    /// Indexes that were used, or could have been.
    pub index: IndexUsage,
    /// The memory accounted to the rows, until the page is dropped.
    memory: Arc<MemoryLease>,
}

/// Errors of a query.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryFailure {
    /// The query cannot be evaluated.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// The items cannot be read.
    #[error(transparent)]
    Read(#[from] ItemReadError),
    /// The continuation token was not returned by a page of this query.
    #[error("Invalid Continuation Token: it is not one of this query's; start again without it")]
    BadContinuation,
    /// Too many scripts are running, and the query calls user-defined functions.
    #[error("too many scripts are running; try again in a moment")]
    Busy,
    /// A query that needs all items has too many.
    #[error("the query needs more than {ITEMS_COLLECTED_MAX} items; narrow it by partition key")]
    TooManyItems,
}

impl From<StorageError> for QueryFailure {
    fn from(error: StorageError) -> QueryFailure {
        QueryFailure::Read(error.into())
    }
}

impl Container {
    /// Reads a page of a query.
    ///
    /// # Errors
    /// When the query cannot be evaluated, the continuation belongs to another query, or the store fails.
    pub async fn query(
        &self,
        query: &Query,
        scope: &ScanScope,
        after: Option<&str>,
        limit: PageLimit,
    ) -> Result<QueryPage, QueryFailure> {
        self.query_with(query, scope, after, limit, &[]).await
    }

    /// Reads a page of a query that may call these user-defined functions.
    ///
    /// # Errors
    /// Those of [`query`](Container::query); also when a function fails or takes too long.
    pub async fn query_with(
        &self,
        query: &Query,
        scope: &ScanScope,
        after: Option<&str>,
        limit: PageLimit,
        functions: &[Script],
    ) -> Result<QueryPage, QueryFailure> {
        // With a key in the scope, the filter need not be examined.
        let only_key = match scope {
            ScanScope::Key(_) => None,
            _ => self.only_key(query),
        };
        let names_key = only_key.is_some();
        let scope = match self.narrowed(query, only_key, scope)? {
            Some(scope) => scope,
            None => return Ok(QueryPage::default()),
        };
        let shared = &self.state().shared;
        let limits = &shared.options.scripts;
        let watch = QueryWatch::new(&shared.runtime, shared.options.queries.time);
        let watch = Arc::new(watch.in_turns(&shared.query_lanes));
        let (_place, functions) = if functions.is_empty() {
            (None, None)
        } else {
            let place = shared.runtime.timeout(limits.time, shared.turns.place()).await;
            let place = place.flatten().ok_or(QueryFailure::Busy)?;
            let functions = UserScripts::new(functions, shared);
            (Some(place), Some(Arc::new(functions)))
        };
        let context = self.query_context(functions, watch.clone());
        let mut page = if query.is_streaming() {
            self.stream_query(query, context, &watch, &scope, after, limit).await?
        } else {
            self.collect_query(query, context, &scope, after, limit).await?
        };
        self.check_served(&scope)?;
        if names_key {
            // Items are stored in the order of their partition keys, which counts as an index too.
            let settings = self.settings();
            let paths = settings.definition.partition_key().paths.iter();
            page.index.used.extend(paths.map(|path| format!("{}/?", path.as_str())));
        }
        Ok(page)
    }

    /// Narrows the scope to one partition key, if the filter fixes one. `None` if that key is outside the scope.
    fn narrowed(
        &self,
        query: &Query,
        only_key: Option<PartitionKey>,
        scope: &ScanScope,
    ) -> Result<Option<ScanScope>, QueryFailure> {
        let Some(key) = only_key else {
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
        let settings = self.settings();
        match settings.definition.partition_key().epk(&key) {
            Ok(epk) if bounds.contains(epk.as_bytes()) => Ok(Some(ScanScope::Key(key))),
            Ok(_) if query.is_streaming() => Ok(None),
            // An aggregate over no items still has a row. A key that cannot be hashed matches nothing.
            _ => Ok(Some(scope.clone())),
        }
    }

    /// The partition key that every matching item must have, if the filter fixes one.
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

    pub(crate) fn query_context(
        &self,
        functions: Option<Arc<UserScripts>>,
        watch: Arc<QueryWatch>,
    ) -> Context {
        let context = query_context(&self.state().shared, watch);
        match functions {
            Some(functions) => context.with_functions(functions),
            None => context,
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
        let (shown, leftovers, mark) = match after.map(Place::parse).transpose()? {
            None => (0, 0, None),
            Some(Place::Rows { shown, leftovers }) => (shown, leftovers, None),
            Some(Place::Sorted { shown, leftovers, mark }) if query.is_sorted_only() => {
                (shown, leftovers, Some(mark))
            }
            Some(_) => return Err(QueryFailure::BadContinuation),
        };
        let shared = &self.state().shared;
        let owner = self.owner_of(query, scope);
        let mut page = QueryPage::default();
        let kept = shared.leftovers.take(leftovers, &owner, shared.runtime.elapsed());
        let mut rows = match kept {
            Some(rows) => rows,
            None if query.is_sorted_only() => {
                self.sorted_rows(query, context, scope, (shown, mark), limit, &mut page).await?
            }
            None => self.other_rows(query, context, scope, shown, &mut page).await?,
        };
        let mut bytes = 0;
        let mut last = None;
        while page.rows.len() < limit.items as usize && bytes < limit.bytes as usize {
            let Some((row, mark)) = rows.rows.pop_front() else { break };
            bytes += row.len();
            page.rows.push(row);
            last = mark;
        }
        let shown = shown + page.rows.len() as u64;
        let is_more = (rows.is_more || !rows.rows.is_empty()) && !page.rows.is_empty();
        if is_more {
            let id = if rows.rows.is_empty() { 0 } else { shared.runtime.random() };
            let leftovers = shared.leftovers.keep(id, owner, rows, shared.runtime.elapsed());
            let place = match last {
                Some(mark) => Place::Sorted { shown, leftovers, mark },
                None => Place::Rows { shown, leftovers },
            };
            page.next = Some(place.write());
        }
        Ok(page)
    }

    /// The owner of cached rows: only the same query and scope of the container may read them.
    fn owner_of(&self, query: &Query, scope: &ScanScope) -> Owner {
        Owner { container: self.rid(), what: format!("{scope:?} {}", query.identity()) }
    }

    /// The next rows of a sorted query: those of a page and some more.
    async fn sorted_rows(
        &self,
        query: &Query,
        context: Context,
        scope: &ScanScope,
        (shown, mark): (u64, Option<OrderMark>),
        limit: PageLimit,
        page: &mut QueryPage,
    ) -> Result<Rows, QueryFailure> {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (skip, take) = query.window();
        // Without a mark, the position counts from the first row.
        let skip = if mark.is_some() { 0 } else { count(skip.saturating_add(shown)) };
        let left = take.map_or(usize::MAX, |take| count(take.saturating_sub(shown)));
        let wanted = (limit.items as usize).saturating_add(ROWS_AHEAD).min(left);
        let ordering = self.ordering(query, scope);
        let walk = ordering.as_ref().map(|ordering| self.walk(ordering, scope)).transpose()?;
        if let Some(walk) = walk.flatten() {
            // With an index the next page costs no more than this one, so find nothing beyond it.
            let wanted = (limit.items as usize).min(left);
            let reach = skip.saturating_add(wanted);
            let run = query.start(context.clone()).for_page(mark.clone(), reach);
            let run = self.push_in_order(&walk, run, mark.as_ref(), reach, page).await?;
            if let Some(run) = run {
                page.steps = run.steps();
                page.index.note_used(&walk.index.of);
                return sorted_page(run, skip, left, wanted, page);
            }
        }
        let reach = skip.saturating_add(wanted);
        let start = || query.start(context.clone()).for_page(mark.clone(), reach);
        let (run, source) = self.push_all(query, scope, start, page).await?;
        match ordering {
            Some(ordering) => {
                let of = Indexed::Order(ordering.paths);
                page.index.note_potential(&of);
                source.learn_order(of, page.items_read, limit.items as usize)?;
            }
            None => source.learn(page.items_read, run.items_matched())?,
        }
        sorted_page(run, skip, left, wanted, page)
    }

    /// The rows of a query that is neither streaming nor only sorted, after those that were returned.
    async fn other_rows(
        &self,
        query: &Query,
        context: Context,
        scope: &ScanScope,
        shown: u64,
        page: &mut QueryPage,
    ) -> Result<Rows, QueryFailure> {
        let mut run = query.start(context.clone());
        if query.only_counts() {
            run.count(self.count_items(scope)?)?;
            page.steps = run.steps();
        } else if query.reads_items() {
            let start = || query.start(context.clone());
            let (pushed, source) = self.push_all(query, scope, start, page).await?;
            source.learn(page.items_read, pushed.items_matched())?;
            run = pushed;
        }
        let shown = usize::try_from(shown).unwrap_or(usize::MAX);
        let rows = run.finish()?.into_iter().skip(shown);
        page.memory = Arc::new(run.take_lease());
        let rows = rows.map(|row| (Bytes::from(row), None)).collect();
        Ok(Rows { rows, ..Rows::default() })
    }

    /// Starts a run and pushes every candidate item. Also returns their source.
    async fn push_all(
        &self,
        query: &Query,
        scope: &ScanScope,
        start: impl Fn() -> Run,
        page: &mut QueryPage,
    ) -> Result<(Run, Source<'_>), QueryFailure> {
        let mut source = Source::new(self, query, scope, None)?;
        source.settle()?;
        let mut run = start();
        if source.is_scan() && !self.push_swept(query, &mut source, &mut run, page).await? {
            run = start();
            source = Source::new(self, query, scope, None)?;
            source.settle()?;
            (page.items_read, page.bytes_read) = (0, 0);
        }
        let batch = PageLimit::new(SCAN_ITEMS, SCAN_BYTES).unwrap_or_default();
        let mut done = false;
        while !done && !source.is_done() {
            for item in source.next(batch).await? {
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
        }
        page.steps = run.steps();
        page.index = source.take_usage();
        Ok((run, source))
    }

    /// Pushes whole partitions in log order, from the start of a scan on, and advances the scan past them.
    /// False if items may be missing, so that everything must be pushed again.
    async fn push_swept(
        &self,
        query: &Query,
        source: &mut Source<'_>,
        run: &mut Run,
        page: &mut QueryPage,
    ) -> Result<bool, QueryFailure> {
        let topology = self.state().topology();
        for partition in &topology.partitions {
            let Some((from, to)) = source.left() else { return Ok(true) };
            let (first, behind) = keys::items_in(self.rid(), &partition.range);
            if behind <= from {
                continue;
            }
            if first < from || !self.may_sweep(partition, &from, &to) {
                return Ok(true);
            }
            let mut look = |seen: sweep::Seen<'_>| {
                page.items_read += 1;
                page.bytes_read += seen.text.len();
                if page.items_read > ITEMS_COLLECTED_MAX {
                    return Err(QueryFailure::TooManyItems);
                }
                Ok(seen.push(run)? != Next::Enough)
            };
            match self.sweep(partition, query, &mut look).await {
                Ok(Swept::All) => source.move_to(behind),
                Ok(Swept::Enough) => {
                    source.end();
                    return Ok(true);
                }
                // The partition may be split or dropped during the sweep. A scan then follows its items, and
                // meets any other error again.
                Ok(Swept::GivenUp) | Err(QueryFailure::Read(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Progress of secondary indexes under construction, in percent; 100 if there are none.
    #[must_use]
    pub fn index_percent(&self) -> u64 {
        self.state().secondary.percent(self.state())
    }
}

/// The rows of a run for a page: skips the first `skip` and takes at most `left`.
fn sorted_page(
    mut run: Run,
    skip: usize,
    left: usize,
    wanted: usize,
    page: &mut QueryPage,
) -> Result<Rows, QueryFailure> {
    let (found, is_more) = run.finish_page()?;
    page.memory = Arc::new(run.take_lease());
    let rows = found.into_iter().skip(skip).take(left);
    let rows = rows.map(|row| (Bytes::from(row.json), Some(row.mark))).collect();
    Ok(Rows { rows, is_more: is_more && wanted < left, ..Rows::default() })
}

/// The context of an evaluation: time, random seed and budget.
pub(crate) fn query_context(shared: &Shared, watch: Arc<QueryWatch>) -> Context {
    let ticks = shared.runtime.unix_millis().saturating_mul(TICKS_PER_MILLISECOND);
    let memory_bytes = shared.options.queries.memory_bytes;
    let budget = Budget::within(shared.query_memory.clone(), memory_bytes).watched(watch);
    Context::at(i64::try_from(ticks).unwrap_or(i64::MAX))
        .with_seed(shared.runtime.random())
        .with_budget(budget)
}

impl Account {
    /// Evaluates a query over documents in memory.
    ///
    /// # Errors
    /// When the query cannot be evaluated.
    pub fn query_documents(
        &self,
        query: &Query,
        documents: &[Bytes],
    ) -> Result<Vec<Bytes>, EvaluationError> {
        let shared = &self.0.shared;
        let watch = QueryWatch::new(&shared.runtime, shared.options.queries.page_time);
        let watch = Arc::new(watch.in_turns(&shared.query_lanes));
        let mut run = query.start(query_context(shared, watch));
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
}

/// Compiles the condition of a patch: the `from … where …` of a query, which a single item matches or not.
///
/// # Errors
/// When the condition is not valid.
pub fn condition(text: &str) -> Result<crate::item::Condition, QueryError> {
    let mut limits = Limits::default();
    (limits.steps, limits.memory_bytes) = (CONDITION_STEPS_MAX, CONDITION_BYTES_MAX);
    let query = Query::parse_within(&format!("SELECT VALUE 1 {text}"), &[], &limits)?;
    Ok(Arc::new(move |item: &[u8]| {
        let mut run = query.start(Context::default());
        let mut rows = Vec::new();
        run.push(item, 0, &mut rows).map_err(|error| error.to_string())?;
        Ok(!rows.is_empty())
    }))
}

/// The partition key of these values; `None` if a value is not fixed or cannot be part of a key.
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
