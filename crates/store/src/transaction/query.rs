//! Queries inside a transaction, own writes included.
//!
//! A position is the id behind which to go on, or a number of rows for a query that must see every item
//! first. Both stay good from one call of a script to the next.

use super::{Seen, Transaction, Trouble};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use headwater_query::{Context, EvaluationError, Next, Progress, Query};
use std::borrow::Cow;

/// Items taken at once.
const ITEMS_AT_ONCE: usize = 256;
/// Bytes of rows on a page; what a script gets must fit into its memory several times.
const PAGE_BYTES: usize = 4 << 20;

/// Why a query inside a transaction has no answer.
#[derive(Debug)]
pub(crate) enum QueryTrouble {
    Evaluation(EvaluationError),
    /// A position that no page has returned.
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

/// Rows as JSON, and where to go on.
pub(crate) type Rows = (Vec<Bytes>, Option<String>);

impl Transaction {
    /// A page of all items, or of what a query makes of them.
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
        let mut after = after.map(|text| read_position(text, "a")).transpose()?.map(|(_, id)| id);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        loop {
            let wanted = (most - rows.len()).min(ITEMS_AT_ONCE);
            let page = self.looked_at(after.as_deref(), wanted)?;
            let ended = page.is_empty();
            for (id, seen) in page {
                bytes += seen.json.len();
                rows.push(seen.json);
                after = Some(id);
                if bytes >= PAGE_BYTES {
                    break;
                }
            }
            if ended {
                return Ok((rows, None));
            }
            if rows.len() >= most || bytes >= PAGE_BYTES {
                let next = self.is_more(after.as_deref())?;
                let position = after.filter(|_| next).map(|id| write_position("a", 0, &id));
                return Ok((rows, position));
            }
        }
    }

    fn stream(
        &mut self,
        query: &Query,
        context: Context,
        after: Option<&str>,
        most: usize,
    ) -> Result<Rows, QueryTrouble> {
        let start = after.map(|text| read_position(text, "s")).transpose()?;
        let progress = Progress { rows: start.as_ref().map_or(0, |(rows, _)| *rows) };
        let mut after = start.map(|(_, id)| id);
        let mut run = query.resume(context, progress);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        loop {
            let page = self.looked_at(after.as_deref(), ITEMS_AT_ONCE.min(most))?;
            if page.is_empty() {
                return Ok((rows, None));
            }
            for (id, seen) in page {
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
                    return Ok((rows, None));
                }
                after = Some(id);
                if rows.len() >= most || bytes >= PAGE_BYTES {
                    let more = self.is_more(after.as_deref())?;
                    let shown = run.progress().rows;
                    let position = after.filter(|_| more).map(|id| write_position("s", shown, &id));
                    return Ok((rows, position));
                }
            }
        }
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
        let mut last: Option<String> = None;
        'items: while query.reads_items() {
            let page = self.looked_at(last.as_deref(), ITEMS_AT_ONCE)?;
            if page.is_empty() {
                break;
            }
            for (id, seen) in page {
                if run.push(&seen.json, seen.number, &mut Vec::new())? == Next::Enough {
                    break 'items;
                }
                last = Some(id);
            }
        }
        let found = run.finish()?;
        let total = found.len();
        let rows: Vec<Bytes> = found.into_iter().skip(shown).take(most).map(Bytes::from).collect();
        let next = shown.saturating_add(rows.len());
        let position = (next < total && !rows.is_empty()).then(|| format!("o.{next}"));
        Ok((rows, position))
    }

    fn looked_at(
        &mut self,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, Seen)>, Trouble> {
        let page = self.page(after, most)?;
        for (id, seen) in &page {
            self.items_read += 1;
            self.bytes_read += seen.json.len();
            self.remember(id, seen.number);
        }
        Ok(page)
    }

    fn is_more(&mut self, after: Option<&str>) -> Result<bool, Trouble> {
        Ok(!self.page(after, 1)?.is_empty())
    }
}

fn write_position(kind: &str, rows: u64, id: &str) -> String {
    format!("{kind}.{rows}.{}", URL_SAFE_NO_PAD.encode(id))
}

fn read_position(text: &str, kind: &str) -> Result<(u64, String), QueryTrouble> {
    let parts = || -> Option<(u64, String)> {
        let rest = text.strip_prefix(kind)?.strip_prefix('.')?;
        let (rows, id) = rest.split_once('.')?;
        let id = String::from_utf8(URL_SAFE_NO_PAD.decode(id).ok()?).ok()?;
        Some((rows.parse().ok()?, id))
    };
    parts().ok_or(QueryTrouble::BadContinuation)
}
