//! A filter on the change feed: which changes a reader wants, and what it wants to see of them.
//!
//! Filtering happens where the changes are, so that only wanted ones travel. It never touches positions:
//! a filtered page has looked at everything up to its position, so a reader may add, change or drop the
//! filter between any two pages and neither misses nor repeats a change that it wants.
//!
//! Whatever cannot be known counts as wanted. A delete is judged by the item before it, and "was changed"
//! compares with it; where that version is no longer kept, the change is shown. In latest-version mode
//! there is no version before at all, so what depends on one is refused there.

use crate::error::FeedError;
use crate::partition::feed::Change;
use bytes::Bytes;
use headwater_model::{ChangeKind, FeedMode, Lsn, PartitionKeyPath};
use headwater_query::{Context, EvaluationError, Query, QueryError, Run, Value};
use std::borrow::Cow;

/// How many paths may be compared for each change.
const PATHS_MAX: usize = 32;
/// Where a change says its position; always shown.
const LSN: &str = "_lsn";

/// Which changes to read, and what of them. The empty filter lets everything through as it is.
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

/// Why something is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFilter {
    /// The condition cannot be understood.
    #[error("the condition of the filter, {0}")]
    Condition(QueryError),
    /// What to show cannot be understood.
    #[error("the list of what the filter shows, {0}")]
    Shape(QueryError),
    /// Not a path.
    #[error("{path:?} is not a path to watch; write /name or /name/inner")]
    Path {
        /// As it was given.
        path: String,
    },
    /// Too many paths.
    #[error("a filter watches at most {PATHS_MAX} paths; watch a property that holds several")]
    TooManyPaths,
    /// Not a kind of change.
    #[error("{word:?} is not a kind of change; use create, replace or delete")]
    Kind {
        /// As it was given.
        word: String,
    },
}

impl FeedFilter {
    /// A filter that lets everything through.
    #[must_use]
    pub fn new() -> FeedFilter {
        FeedFilter::default()
    }

    /// Only changes of items that meet a condition as they are after the change, or before it if it is a
    /// delete. The condition is what stands behind `WHERE` in a query; the item is `c`.
    ///
    /// # Errors
    /// When it is not a condition on single items.
    pub fn matching(mut self, condition: &str) -> Result<FeedFilter, BadFilter> {
        self.condition = Some(Query::condition(condition).map_err(BadFilter::Condition)?);
        Ok(self)
    }

    /// Only these parts of the items: what stands behind `SELECT` in a query, the item being `c`. In
    /// latest-version mode `_lsn` is there as well, whatever is listed.
    ///
    /// # Errors
    /// When it is not a list of properties.
    pub fn showing(mut self, columns: &str) -> Result<FeedFilter, BadFilter> {
        self.shape = Some(Query::shape(columns).map_err(BadFilter::Shape)?);
        Ok(self)
    }

    /// Only these kinds of change. In latest-version mode an item's kind is that of its newest change, so
    /// a create there is an item that was never replaced.
    #[must_use]
    pub fn only(mut self, kinds: &[ChangeKind]) -> FeedFilter {
        self.kinds = Some(kinds.to_vec());
        self
    }

    /// The same by their words: `create,replace`.
    ///
    /// # Errors
    /// When a word is not one of a change.
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

    /// Only changes that changed the value at one of these paths, such as `/address/city`. Before a
    /// create and after a delete there is no value anywhere. All-versions mode only.
    ///
    /// # Errors
    /// When one is not a path, or there are too many.
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

    /// Whether it lets everything through as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.condition.is_none()
            && self.shape.is_none()
            && self.kinds.is_none()
            && self.changed.is_empty()
    }

    /// Refuses what a mode cannot answer.
    ///
    /// # Errors
    /// When latest versions do not tell what the filter goes by.
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

    /// Begins a page.
    pub(crate) fn start(&self, context: &Context) -> Filtering<'_> {
        let run = |query: &Option<Query>| query.as_ref().map(|query| query.start(context.clone()));
        let adds_lsn = !self.shape.as_ref().is_some_and(|shape| {
            shape.column_names().iter().any(|name| name == LSN)
                || matches!(shape.tree().projection, headwater_query::Projection::All)
        });
        Filtering {
            filter: self,
            condition: run(&self.condition),
            shape: run(&self.shape),
            adds_lsn,
        }
    }
}

/// A filter at work on one page, with one budget for all of it.
pub(crate) struct Filtering<'f> {
    filter: &'f FeedFilter,
    condition: Option<Run>,
    shape: Option<Run>,
    adds_lsn: bool,
}

impl Filtering<'_> {
    /// Whether a change may be wanted, as far as can be told without the version before it.
    pub(crate) fn may_want(&mut self, change: &Change) -> Result<bool, EvaluationError> {
        let kind = change.kind();
        if self.filter.kinds.as_ref().is_some_and(|kinds| !kinds.contains(&kind)) {
            return Ok(false);
        }
        if kind == ChangeKind::Delete { Ok(true) } else { self.meets(&change.body()) }
    }

    /// Whether a change that may be wanted is wanted, now that the version before it is known if kept.
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

    /// What a reader sees of a version of an item, with its position if that is given.
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

    /// Whether the position has to be added to what is shown of an item.
    pub(crate) fn adds_lsn(&self) -> bool {
        self.adds_lsn
    }

    /// How much work the page has been so far.
    pub(crate) fn steps(&self) -> u64 {
        [&self.condition, &self.shape].into_iter().flatten().map(Run::steps).sum()
    }
}

/// Whether two versions of an item differ at a path. No value is a value too.
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
