//! Filters on the change feed: select changes and project their items.
//!
//! The store evaluates the filter, so only selected changes are sent. A filter never affects positions: a
//! filtered page covers every change up to its position. A reader may therefore add, change or drop the
//! filter between two pages, and neither misses nor repeats a change it selects.
//!
//! Unknown counts as selected. A delete is judged by the item before it, and a path is compared with it. If
//! that version is no longer kept, the change is returned. Latest-version mode has no version before, so
//! filters that need one are refused there.

use crate::error::FeedError;
use crate::partition::feed::Change;
use bytes::Bytes;
use headwater_model::{ChangeKind, FeedMode, Lsn, PartitionKeyPath};
use headwater_query::{Context, EvaluationError, Query, QueryError, Run, Value};
use std::borrow::Cow;

/// Paths that may be compared for each change.
const PATHS_MAX: usize = 32;
/// The property that holds the LSN of a change; always returned.
const LSN: &str = "_lsn";

/// A filter on changes and a projection of their items. The empty filter returns every change unchanged.
///
/// ```
/// use headwater_store::{ChangeKind, FeedFilter};
///
/// let filter = FeedFilter::new()
///     .matching("c.total > 100 AND c.country IN ('nz', 'au')")?
///     .showing("c.id, c.total")?
///     .only(&[ChangeKind::Create, ChangeKind::Replace])
///     .when_changed(&["/total"])?;
/// # Ok::<(), headwater_store::BadFilter>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FeedFilter {
    condition: Option<Query>,
    shape: Option<Query>,
    kinds: Option<Vec<ChangeKind>>,
    changed: Vec<PartitionKeyPath>,
}

/// Reasons to refuse a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFilter {
    /// The condition cannot be parsed.
    #[error("the condition of the filter, {0}")]
    Condition(QueryError),
    /// The projection cannot be parsed.
    #[error("the list of what the filter shows, {0}")]
    Shape(QueryError),
    /// A path to watch is not valid.
    #[error("{path:?} is not a path to watch; write /name or /name/inner")]
    Path {
        /// The path that was given.
        path: String,
    },
    /// The filter watches too many paths.
    #[error("a filter watches at most {PATHS_MAX} paths; watch a property that holds several")]
    TooManyPaths,
    /// A word is not a kind of change.
    #[error("{word:?} is not a kind of change; use create, replace or delete")]
    Kind {
        /// The word that was given.
        word: String,
    },
}

impl FeedFilter {
    /// A filter that returns every change.
    #[must_use]
    pub fn new() -> FeedFilter {
        FeedFilter::default()
    }

    /// Selects changes whose item meets a condition: the item after the change, or before it for a delete.
    /// The condition is the `WHERE` clause of a query on `c`.
    ///
    /// # Errors
    /// When it is not a condition on single items.
    pub fn matching(mut self, condition: &str) -> Result<FeedFilter, BadFilter> {
        self.condition = Some(Query::condition(condition).map_err(BadFilter::Condition)?);
        Ok(self)
    }

    /// Returns only these parts of the items: the `SELECT` list of a query on `c`. In latest-version mode
    /// `_lsn` is returned as well.
    ///
    /// # Errors
    /// When it is not a list of properties.
    pub fn showing(mut self, columns: &str) -> Result<FeedFilter, BadFilter> {
        self.shape = Some(Query::shape(columns).map_err(BadFilter::Shape)?);
        Ok(self)
    }

    /// Selects these kinds of change. In latest-version mode the kind is that of the item's newest change, so
    /// a create is an item that was never replaced.
    #[must_use]
    pub fn only(mut self, kinds: &[ChangeKind]) -> FeedFilter {
        self.kinds = Some(kinds.to_vec());
        self
    }

    /// Like [`only`](FeedFilter::only), with the kinds as words: `create,replace`.
    ///
    /// # Errors
    /// When a word is not a kind of change.
    pub fn only_named(self, words: &str) -> Result<FeedFilter, BadFilter> {
        let kinds = words.split(',').map(|word| match word.trim() {
            "create" => Ok(ChangeKind::Create),
            "replace" => Ok(ChangeKind::Replace),
            "delete" => Ok(ChangeKind::Delete),
            other => Err(BadFilter::Kind { word: other.chars().take(40).collect() }),
        });
        let kinds = kinds.collect::<Result<Vec<_>, _>>()?;
        Ok(self.only(&kinds))
    }

    /// Selects changes that changed the value at one of these paths, such as `/address/city`. Before a create
    /// and after a delete no path has a value. All-versions mode only.
    ///
    /// # Errors
    /// When a path is not valid, or there are too many.
    pub fn when_changed(mut self, paths: &[impl AsRef<str>]) -> Result<FeedFilter, BadFilter> {
        if paths.len() > PATHS_MAX {
            return Err(BadFilter::TooManyPaths);
        }
        let parsed = paths.iter().map(|path| {
            let path = path.as_ref().trim();
            PartitionKeyPath::parse(path)
                .map_err(|_| BadFilter::Path { path: path.chars().take(80).collect() })
        });
        self.changed = parsed.collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Whether the filter returns every change unchanged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.condition.is_none()
            && self.shape.is_none()
            && self.kinds.is_none()
            && self.changed.is_empty()
    }

    /// Checks that a mode can answer the filter.
    ///
    /// # Errors
    /// When the filter needs information that latest versions do not contain.
    pub fn check(&self, mode: FeedMode) -> Result<(), FeedError> {
        if mode == FeedMode::AllVersionsAndDeletes {
            return Ok(());
        }
        if !self.changed.is_empty() {
            return Err(FeedError::FilterNeedsAllVersions("which paths were changed"));
        }
        if self.kinds.as_ref().is_some_and(|kinds| kinds.contains(&ChangeKind::Delete)) {
            return Err(FeedError::FilterNeedsAllVersions("deletes"));
        }
        Ok(())
    }

    /// Starts the filter for one page.
    pub(crate) fn start(&self, context: &Context) -> FilterRun<'_> {
        let run = |query: &Option<Query>| query.as_ref().map(|query| query.start(context.clone()));
        let adds_lsn = !self.shape.as_ref().is_some_and(|shape| {
            shape.column_names().iter().any(|name| name == LSN)
                || matches!(shape.tree().projection, headwater_query::Projection::All)
        });
        FilterRun {
            filter: self,
            condition: run(&self.condition),
            shape: run(&self.shape),
            adds_lsn,
        }
    }
}

/// A running filter, with one budget for the whole page.
pub(crate) struct FilterRun<'f> {
    filter: &'f FeedFilter,
    condition: Option<Run>,
    shape: Option<Run>,
    adds_lsn: bool,
}

impl FilterRun<'_> {
    /// Whether a change may be selected, judged without the version before it.
    pub(crate) fn may_want(&mut self, change: &Change) -> Result<bool, EvaluationError> {
        let kind = change.kind();
        if self.filter.kinds.as_ref().is_some_and(|kinds| !kinds.contains(&kind)) {
            return Ok(false);
        }
        if kind == ChangeKind::Delete { Ok(true) } else { self.meets(&change.body()) }
    }

    /// Whether a change is selected, after [`may_want`](FilterRun::may_want). The version before it is set if
    /// it is kept.
    pub(crate) fn wants(&mut self, change: &Change) -> Result<bool, EvaluationError> {
        let kind = change.kind();
        let before = change.previous().map(|item| item.feed_bytes().clone());
        if before.is_none() && kind != ChangeKind::Create {
            return Ok(true);
        }
        if kind == ChangeKind::Delete
            && let Some(before) = &before
            && !self.meets(before)?
        {
            return Ok(false);
        }
        let paths = &self.filter.changed;
        if paths.is_empty() {
            return Ok(true);
        }
        let after = (kind != ChangeKind::Delete).then(|| change.body());
        Ok(paths.iter().any(|path| differs(path, before.as_deref(), after.as_deref())))
    }

    fn meets(&mut self, item: &Bytes) -> Result<bool, EvaluationError> {
        let Some(condition) = &mut self.condition else {
            return Ok(true);
        };
        let mut rows = Vec::new();
        condition.push(item, 0, &mut rows)?;
        Ok(!rows.is_empty())
    }

    pub(crate) fn has_shape(&self) -> bool {
        self.shape.is_some()
    }

    /// The projection of a version of an item, with `_lsn` if it is given.
    pub(crate) fn shown(
        &mut self,
        item: &[u8],
        lsn: Option<Lsn>,
    ) -> Result<Bytes, EvaluationError> {
        let mut rows: Vec<Cow<'_, [u8]>> = Vec::new();
        if let Some(shape) = &mut self.shape {
            shape.push(item, 0, &mut rows)?;
        }
        let mut row = rows.pop().map_or_else(|| b"{}".to_vec(), Cow::into_owned);
        if let Some(lsn) = lsn
            && row.pop() == Some(b'}')
        {
            let comma = if row.len() > 1 { "," } else { "" };
            row.extend_from_slice(format!("{comma}\"{LSN}\":{lsn}}}").as_bytes());
        }
        Ok(Bytes::from(row))
    }

    /// Whether `_lsn` is added to the projection.
    pub(crate) fn adds_lsn(&self) -> bool {
        self.adds_lsn
    }

    /// Evaluation steps of the page so far.
    pub(crate) fn steps(&self) -> u64 {
        [&self.condition, &self.shape].into_iter().flatten().map(Run::steps).sum()
    }
}

/// Whether two versions of an item differ at a path. A missing value equals only a missing value.
fn differs(path: &PartitionKeyPath, before: Option<&[u8]>, after: Option<&[u8]>) -> bool {
    let (before, after) = (value_at(path, before), value_at(path, after));
    before.order(&after).is_ne()
}

fn value_at<'a>(path: &PartitionKeyPath, item: Option<&'a [u8]>) -> Value<'a> {
    let root = item.map_or(Value::Undefined, Value::of_item);
    path.segments().iter().fold(root, |value, name| value.member(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_differs_by_value_and_not_by_spelling() {
        let path = PartitionKeyPath::parse("/a/b").unwrap();
        for (before, after, expected) in [
            (Some(r#"{"a":{"b":1}}"#), Some(r#"{"a":{"b":1.0}}"#), false),
            (Some(r#"{"a":{"b":1}}"#), Some(r#"{"a":{"b":2}}"#), true),
            (Some(r#"{"a":{"b":{"x":1,"y":2}}}"#), Some(r#"{"a":{"b":{"y":2,"x":1}}}"#), false),
            (Some(r#"{"a":{"b":[1,2]}}"#), Some(r#"{"a":{"b":[2,1]}}"#), true),
            (Some(r#"{"a":{"b":null}}"#), Some(r#"{"a":{}}"#), true),
            (Some(r#"{"a":5}"#), Some(r#"{"x":1}"#), false),
            (None, Some(r#"{"a":{"b":1}}"#), true),
            (None, Some(r#"{"a":{}}"#), false),
            (Some(r#"{"a":{"b":1}}"#), None, true),
        ] {
            let bytes = |text: Option<&'static str>| text.map(str::as_bytes);
            assert_eq!(differs(&path, bytes(before), bytes(after)), expected, "{before:?}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused_with_its_place() {
        let filter = FeedFilter::new;
        for bad in ["", "c.", "c.a = 1 ORDER BY c.a", "COUNT(1) > 1", "d.a", "udf.f(c)", "@p = 1"] {
            assert!(matches!(filter().matching(bad), Err(BadFilter::Condition(_))), "{bad}");
        }
        for bad in ["", "VALUE c.a", "c.a FROM c", "SUM(c.a) AS s", "udf.f(c) AS f", "x.y"] {
            assert!(matches!(filter().showing(bad), Err(BadFilter::Shape(_))), "{bad}");
        }
        for bad in ["", "a", "//", "/a/"] {
            assert!(matches!(filter().when_changed(&[bad]), Err(BadFilter::Path { .. })), "{bad}");
        }
        for bad in ["", "creates", "create;delete", "Create"] {
            assert!(matches!(filter().only_named(bad), Err(BadFilter::Kind { .. })), "{bad}");
        }
        let Err(BadFilter::Condition(error)) = filter().matching("c.a > 1 ADN c.b") else {
            panic!("not a condition");
        };
        assert_eq!((error.position(), error.suggestion()), ((1, 9), Some("'AND'")));
        assert!(filter().is_empty() && !filter().only(&[]).is_empty());
    }
}
