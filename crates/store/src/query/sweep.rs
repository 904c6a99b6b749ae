//! Sequential read of all items of a partition in log order, for queries that read every item anyway.
//!
//! A scan walks the keys and looks each item up. The log stores items one after another, so reading it
//! sequentially is many times faster. But an item that is written during the sweep moves to the end of the log:
//!
//! ```text
//! log      5:a  6:b  7:c  8:d | 9:b'  10:a'        bound 8, the end of the log when the sweep started
//! sweep    a    -    c    d                        b was replaced before the sweep read 6, a after it read 5
//! after    9 replaces 6, which was not read: look b up.  10 replaces 5, which was read: nothing to do
//! ```
//!
//! So a sweep stops at the bound and then looks up the items that were replaced before it read them. It visits every
//! item that exists during the whole sweep exactly once, like a scan. An item that is created or deleted meanwhile
//! may be visited or not. If compaction has removed entries that the second step needs, the sweep gives up and the
//! caller scans.

use super::QueryFailure;
use crate::container::Container;
use crate::error::StorageError;
use crate::item::Meta;
use crate::keys::{self, Key};
use crate::partition::Partition;
use headwater_log::{Position, ReadError, ReadRequest, Record, RecordKind, Which};
use headwater_model::{ContainerRid, Lsn, PartitionId};
use headwater_query::{EvaluationError, Next, Portion, Portioned, Query, Run};
use std::borrow::Cow;
use std::collections::HashMap;

const RECORDS_AT_ONCE: usize = 1_024;
const BYTES_AT_ONCE: usize = 2 << 20;
/// Maximum number of waits for the last entries to be applied.
const WAITS_MAX: u32 = 100;
/// Maximum number of entries written during the sweep that are read afterwards. With more, the sweep gives up.
const BEHIND_MAX: u64 = 1_000_000;

/// How a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swept {
    /// Every item was visited.
    All,
    /// The visitor needs no more items.
    Enough,
    /// Some items may not have been visited.
    GivenUp,
}

/// An item that a sweep visits.
pub(super) struct Seen<'a> {
    /// The item as JSON; without its closing brace if `has_none` is set.
    pub(super) text: &'a [u8],
    /// Whether the item is known to have no row in the result.
    pub(super) has_none: bool,
    /// See [`Item::number`](crate::Item::number).
    pub(super) number: u64,
    of: ItemIdentity<'a>,
}

/// The identity of an item: the parts of its key, or the key.
#[derive(Clone, Copy)]
enum ItemIdentity<'a> {
    Parts { container: ContainerRid, epk: &'a [u8], tail: &'a [u8] },
    Key(&'a Key),
}

impl Seen<'_> {
    /// Pushes the item to a run; an item without rows is only counted.
    pub(super) fn push(&self, run: &mut Run) -> Result<Next, EvaluationError> {
        match self.has_none {
            true => run.pass_over(self.text.len()),
            false => run.push(self.text, self.number, &mut Vec::new()),
        }
    }

    /// Pushes a portion of the item's rows; an item without rows is only counted.
    pub(super) fn push_portion<'s>(
        &'s self,
        run: &mut Run,
        portion: &Portion,
        rows: &mut Vec<Cow<'s, [u8]>>,
    ) -> Result<Portioned, EvaluationError> {
        match self.has_none {
            true => run.pass_over(self.text.len()).map(Portioned::Whole),
            false => run.push_portion(self.text, self.number, portion, rows),
        }
    }

    /// The key of the item. Building it allocates.
    pub(super) fn key(&self) -> Key {
        match self.of {
            ItemIdentity::Parts { container, epk, tail } => keys::item(container, epk, tail),
            ItemIdentity::Key(key) => key.clone(),
        }
    }
}

/// A visitor of items; returns false to end the sweep.
pub(super) type Look<'l> = dyn FnMut(Seen<'_>) -> Result<bool, QueryFailure> + Send + 'l;

impl Container {
    /// Whether all of a partition lies between two keys and it is large enough to be worth a sweep.
    pub(super) fn may_sweep(&self, partition: &Partition, from: &Key, to: &Key) -> bool {
        let (first, behind) = keys::items_in(self.rid(), &partition.range);
        let worth_it = self.state().shared.options.sweep_after_items as u64;
        // One entry may hold many items.
        let items = partition.visible().get().max(partition.population.known().unwrap_or(0));
        *from <= first && behind <= *to && items >= worth_it
    }

    /// Visits all items of a partition.
    pub(super) async fn sweep(
        &self,
        partition: &Partition,
        query: &Query,
        look: &mut Look<'_>,
    ) -> Result<Swept, QueryFailure> {
        let runtime = &self.state().shared.runtime;
        let bound = partition.visible();
        let mut seen = Positions::default();
        let swept =
            runtime.blocking(|| self.sweep_until(partition, query, bound, &mut seen, look))?;
        if swept != Swept::All {
            return Ok(swept);
        }
        // Every entry that replaced an item before the sweep read it lies before this end.
        let end = partition.log()?.local_tail().lsn;
        for _ in 0..WAITS_MAX {
            if partition.visible() >= end {
                break;
            }
            partition.until_applied().await;
        }
        if partition.visible() < end || end.get() - bound.get() > BEHIND_MAX {
            return Ok(Swept::GivenUp);
        }
        let Some(missed) = self.missed(partition, (bound, end), &seen)? else {
            return Ok(Swept::GivenUp);
        };
        for key in missed {
            let Some(item) = self.read_row(&key).await? else { continue };
            let (text, number) = (item.to_bytes(), item.number());
            if !look(Seen { text: &text, has_none: false, number, of: ItemIdentity::Key(&key) })? {
                return Ok(Swept::Enough);
            }
        }
        Ok(Swept::All)
    }

    /// Visits all live items up to a bound.
    fn sweep_until(
        &self,
        partition: &Partition,
        query: &Query,
        bound: Lsn,
        seen: &mut Positions,
        look: &mut Look<'_>,
    ) -> Result<Swept, QueryFailure> {
        let (settings, now) = (partition.current_settings(), partition.now());
        let may_expire = settings.definition.default_ttl().is_some();
        let mut room = Vec::new();
        let mut after = Lsn::ZERO;
        while after < bound {
            let batch = read(partition, after, bound, Which::Live)?;
            for record in &batch.0 {
                let Some(meta) = item_in(record) else { continue };
                seen.insert(record.position);
                let written = record.timestamp.as_seconds();
                if may_expire && settings.is_expired(written, meta.ttl, now) {
                    continue;
                }
                let body = record.body();
                let body = body.get(..meta.lsn_at as usize).unwrap_or(body);
                let has_none = query.rules_out(body);
                // A selective filter rules out most items, which then need no copy.
                let text = if has_none { body } else { ended(body, &mut room) };
                let of = ItemIdentity::Parts {
                    container: self.rid(),
                    epk: record.epk(),
                    tail: meta.tail,
                };
                if !look(Seen { text, has_none, number: meta.rid, of })? {
                    return Ok(Swept::Enough);
                }
            }
            after = batch.1;
        }
        Ok(Swept::All)
    }

    /// The keys of items that were replaced before the sweep read them. `None` if compaction has removed entries
    /// that are needed to know them.
    fn missed(
        &self,
        partition: &Partition,
        (bound, end): (Lsn, Lsn),
        seen: &Positions,
    ) -> Result<Option<Vec<Key>>, QueryFailure> {
        let mut missed = Vec::new();
        let mut after = bound;
        while after < end {
            let batch = read(partition, after, end, Which::Everything)?;
            for record in &batch.0 {
                let prior = record.supersedes.filter(|prior| prior.lsn <= bound);
                let unseen = prior.is_some_and(|prior| !seen.contains(prior));
                if let Some(meta) = item_in(record).filter(|_| unseen) {
                    missed.push(keys::item(self.rid(), record.epk(), meta.tail));
                }
            }
            after = batch.1;
        }
        // Checked last, so that it includes what compaction removed during this loop.
        let log = partition.log()?;
        let is_whole = log.complete_after().max(log.start()) <= bound;
        Ok(is_whole.then_some(missed))
    }
}

/// Completes a body that was cut before its `_lsn` with a closing brace.
fn ended<'r>(body: &[u8], room: &'r mut Vec<u8>) -> &'r [u8] {
    room.clear();
    room.extend_from_slice(body);
    room.push(b'}');
    room
}

/// The metadata of the item in a record; `None` if the record holds no item.
fn item_in(record: &Record) -> Option<Meta<'_>> {
    if record.kind != RecordKind::Put {
        return None;
    }
    Meta::decode(record.meta())
}

/// Reads records after a position; also returns the position up to which the log was read.
fn read(
    partition: &Partition,
    after: Lsn,
    upto: Lsn,
    which: Which,
) -> Result<(Vec<Record>, Lsn), StorageError> {
    let batch = partition.log()?.read(&ReadRequest {
        after,
        upto,
        which,
        range: Some(&partition.range),
        records_max: RECORDS_AT_ONCE,
        bytes_max: BYTES_AT_ONCE,
    })?;
    // Visible entries were acknowledged by the log, so the read must make progress.
    if batch.scanned <= after {
        return Err(ReadError::Unavailable.into());
    }
    Ok((batch.records, batch.scanned))
}

/// A set of positions as a sparse bitmap: blocks of one bit per position.
#[derive(Default)]
struct Positions {
    blocks: Vec<[u64; WORDS]>,
    places: HashMap<(PartitionId, u16, u64), usize>,
    last: Option<((PartitionId, u16, u64), usize)>,
}

const WORDS: usize = 64;
const BLOCK_BITS: u64 = 64 * WORDS as u64;

impl Positions {
    fn insert(&mut self, position: Position) {
        let (key, word, bit) = split(position);
        let place = match self.last {
            Some((last, place)) if last == key => place,
            _ => {
                let blocks = &mut self.blocks;
                *self.places.entry(key).or_insert_with(|| {
                    blocks.push([0; WORDS]);
                    blocks.len() - 1
                })
            }
        };
        self.last = Some((key, place));
        self.blocks[place][word] |= bit;
    }

    fn contains(&self, position: Position) -> bool {
        let (key, word, bit) = split(position);
        self.places.get(&key).is_some_and(|place| self.blocks[*place][word] & bit != 0)
    }
}

/// Splits a position into its block, the word in the block and the bit in the word.
fn split(position: Position) -> ((PartitionId, u16, u64), usize, u64) {
    let lsn = position.lsn.get();
    let within = lsn % BLOCK_BITS;
    let word = usize::try_from(within / 64).unwrap_or(0);
    ((position.origin, position.ordinal, lsn / BLOCK_BITS), word, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_log_is_long_enough_by_its_items_and_not_only_by_its_entries() {
        let options = crate::Options { sweep_after_items: 50, ..crate::Options::default() };
        let account = crate::Account::ephemeral_with(options).await.unwrap();
        let database = account.create_database("db").await.unwrap();
        let definition = crate::ContainerDefinition::new("c", "/pk").unwrap();
        let container = database.create_container(definition).await.unwrap();
        let (from, to) = container.bounds(&crate::ScanScope::Container).unwrap();
        let partition = container.state().topology().partitions[0].clone();
        for (batch, is_worth_it) in [(0, false), (1, true)] {
            let create = |number| {
                let item = format!(r#"{{"id":"{batch}-{number}","pk":"a"}}"#);
                crate::ItemWrite::create(item)
            };
            container.batch("a", (0..30).map(create).collect()).await.unwrap();
            assert_eq!(container.may_sweep(&partition, &from, &to), is_worth_it);
        }
        account.close().await.unwrap();
    }

    #[test]
    fn a_set_holds_what_was_put_into_it_and_nothing_else() {
        let at = |origin, lsn, ordinal| Position {
            origin: PartitionId::new(origin),
            lsn: Lsn::new(lsn),
            ordinal,
        };
        let put = [at(0, 1, 0), at(0, 4_096, 0), at(1, 2, 0), at(0, 3, 7), at(0, u64::MAX, 1)];
        let mut set = Positions::default();
        put.into_iter().for_each(|position| set.insert(position));
        assert!(put.into_iter().all(|position| set.contains(position)));
        for other in [at(0, 2, 0), at(1, 1, 0), at(0, 3, 0), at(0, 4_097, 0), at(0, u64::MAX, 0)] {
            assert!(!set.contains(other), "{other:?}");
        }
    }
}
