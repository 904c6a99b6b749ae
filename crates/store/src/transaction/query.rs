//! Queries inside a transaction, which include its own writes.
//!
//! A continuation names the item after which to continue (see `look`). For a query that reads every item first, it
//! names a number of rows. Both stay valid from one call of a script to the next.

use super::look::{ItemCursor, ResumePoint};
use super::provisional::is_provisional;
use super::{Transaction, Trouble};
use crate::scan::ScanScope;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use headwater_model::ItemRid;
use headwater_query::{Context, EvaluationError, Next, Progress, Query};
use std::borrow::Cow;

/// First character of a position by number; no base 64 text contains it.
const NUMBER: char = '~';
/// Maximum bytes of rows on a page. A page must fit into the memory of a script several times.
const PAGE_BYTES: usize = 4 << 20;

/// Why a query inside a transaction failed.
#[derive(Debug)]
pub(crate) enum QueryTrouble {
    Evaluation(EvaluationError),
    /// The continuation is malformed or belongs to another kind of query.
    BadContinuation,
    Other(Trouble),
}

impl From<Trouble> for QueryTrouble {
    fn from(trouble: Trouble) -> QueryTrouble {
        QueryTrouble::Other(trouble)
    }
}

impl From<EvaluationError> for QueryTrouble {
    fn from(error: EvaluationError) -> QueryTrouble {
        QueryTrouble::Evaluation(error)
    }
}

/// Rows as JSON, and the continuation of the next page.
pub(crate) type Rows = (Vec<Bytes>, Option<String>);

impl Transaction {
    /// Reads a page of all items, or of the rows of a query.
    pub(crate) fn query(
        &mut self,
        query: Option<(&Query, Context)>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Rows, QueryTrouble> {
        match query {
            None => self.all(after, most),
            Some((query, context)) if query.is_streaming() => {
                self.stream(query, context, after, most)
            }
            Some((query, context)) => self.collect(query, context, after, most),
        }
    }

    fn all(&mut self, after: Option<&str>, most: usize) -> Result<Rows, QueryTrouble> {
        let behind = after.map(|text| self.read_position(text, "a")).transpose()?;
        let mut cursor = self.look(behind.map(|(_, behind)| behind))?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(seen) = self.next_item(&mut cursor)? {
            bytes += seen.json.len();
            rows.push(seen.json);
            if rows.len() >= most || bytes >= PAGE_BYTES {
                let next = self.pause_page(cursor, after.is_none())?;
                return Ok((rows, next.map(|next| self.write_position("a", 0, &next))));
            }
        }
        Ok((rows, None))
    }

    fn stream(
        &mut self,
        query: &Query,
        context: Context,
        after: Option<&str>,
        most: usize,
    ) -> Result<Rows, QueryTrouble> {
        let (shown, behind) = match after {
            None => (0, None),
            Some(text) => {
                let (shown, behind) = self.read_position(text, "s")?;
                (shown, Some(behind))
            }
        };
        let mut run = query.resume(context, Progress { rows: shown });
        let mut cursor = self.look(behind)?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(seen) = self.next_item(&mut cursor)? {
            let mut made = Vec::new();
            let next = run.push(&seen.json, seen.number, &mut made)?;
            for row in made {
                let row = match row {
                    Cow::Borrowed(row) => seen.json.slice_ref(row),
                    Cow::Owned(row) => Bytes::from(row),
                };
                bytes += row.len();
                rows.push(row);
            }
            if next == Next::Enough {
                break;
            }
            if rows.len() >= most || bytes >= PAGE_BYTES {
                let next = self.pause_page(cursor, after.is_none())?;
                let shown = run.progress().rows;
                return Ok((rows, next.map(|next| self.write_position("s", shown, &next))));
            }
        }
        Ok((rows, None))
    }

    /// Pauses after a full page; records a missing index of creation order if it is the first page.
    fn pause_page(
        &mut self,
        cursor: ItemCursor,
        is_first: bool,
    ) -> Result<Option<ResumePoint>, QueryTrouble> {
        let is_by_number = cursor.is_by_number();
        let behind = self.pause(cursor)?;
        if is_first && behind.is_some() && !is_by_number {
            let scope = ScanScope::Key(self.partition_key());
            self.container.miss_listing(&scope).map_err(Trouble::from)?;
        }
        Ok(behind)
    }

    fn collect(
        &mut self,
        query: &Query,
        context: Context,
        after: Option<&str>,
        most: usize,
    ) -> Result<Rows, QueryTrouble> {
        let shown = after.map(|text| text.strip_prefix("o.").and_then(|text| text.parse().ok()));
        let shown: usize = match shown {
            None => 0,
            Some(shown) => shown.ok_or(QueryTrouble::BadContinuation)?,
        };
        let mut run = query.start(context);
        if query.reads_items() {
            let mut cursor = self.look(None)?;
            while let Some(seen) = self.next_item(&mut cursor)? {
                if run.push(&seen.json, seen.number, &mut Vec::new())? == Next::Enough {
                    break;
                }
            }
        }
        let found = run.finish()?;
        let total = found.len();
        let rows: Vec<Bytes> = found.into_iter().skip(shown).take(most).map(Bytes::from).collect();
        let next = shown.saturating_add(rows.len());
        let position = (next < total && !rows.is_empty()).then(|| format!("o.{next}"));
        Ok((rows, position))
    }

    fn write_position(&self, kind: &str, rows: u64, behind: &ResumePoint) -> String {
        match behind {
            // Written as a resource id, so that a provisional one is replaced by the real one at commit.
            ResumePoint::Number(number) => {
                format!("{kind}.{rows}.{NUMBER}{}", ItemRid::new(self.rid(), *number))
            }
            ResumePoint::Id(id) => format!("{kind}.{rows}.{}", URL_SAFE_NO_PAD.encode(id)),
        }
    }

    fn read_position(&self, text: &str, kind: &str) -> Result<(u64, ResumePoint), QueryTrouble> {
        let parts = || -> Option<(u64, ResumePoint)> {
            let rest = text.strip_prefix(kind)?.strip_prefix('.')?;
            let (rows, behind) = rest.split_once('.')?;
            let behind = match behind.strip_prefix(NUMBER) {
                Some(rid) => {
                    let rid = ItemRid::parse(rid).ok()?;
                    let is_ours = rid.container == self.rid()
                        && (!is_provisional(rid.number) || self.provisional.owns(rid.number));
                    is_ours.then_some(ResumePoint::Number(rid.number))?
                }
                None => {
                    ResumePoint::Id(String::from_utf8(URL_SAFE_NO_PAD.decode(behind).ok()?).ok()?)
                }
            };
            Some((rows.parse().ok()?, behind))
        };
        parts().ok_or(QueryTrouble::BadContinuation)
    }
}
