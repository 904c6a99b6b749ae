//! Compares the answers that writers received with what feeds showed. Deterministic: no server, clock or randomness.
//!
//! Every version of an item has unique contents, so their fingerprint names the version. A [`Write`] is a write with
//! its answer: the version it made, and the one it replaced. A feed shows [`Seen`]s. The rules:
//!
//! ```text
//! truth     all versions, read at the end from the beginning: per item a chain in which every link is a
//!           write that was asked for, replaces what its writer meant to replace, and occurs once; every
//!           acknowledged write is a link; of a batch all links have one LSN, or there is none
//! all       a reader of all versions saw, per partition key, exactly the truth (or its end, if it began
//!           in the middle), in order, each once, and no transaction on two pages
//! latest    a reader of latest versions saw, per partition key and in order, only versions of the truth,
//!           each once, and the newest version of everything that exists
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

/// A fingerprint of the contents of one version.
pub(crate) type Print = u64;

/// An item: its partition key and its id.
pub(crate) type Item = (String, String);

/// The effect of a write on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Create,
    Replace,
    Delete,
}

/// A write and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) item: Item,
    pub(crate) kind: Kind,
    /// The previous version, as the writer knew it.
    pub(crate) after: Option<Print>,
    /// The version it made; none for a delete.
    pub(crate) made: Option<Print>,
    /// The etag in the answer.
    pub(crate) etag: Option<String>,
    /// The number of its batch; writes with the same number were one batch.
    pub(crate) batch: Option<u64>,
    /// Whether it was acknowledged; otherwise its outcome is unknown.
    pub(crate) acknowledged: bool,
}

/// One change as a reader saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) item: Item,
    /// Unknown in the latest-version mode.
    pub(crate) kind: Option<Kind>,
    pub(crate) lsn: u64,
    pub(crate) made: Option<Print>,
    pub(crate) etag: Option<String>,
    /// The image before the change, if it was shown.
    pub(crate) previous: Option<Print>,
    /// The number of the reader's page.
    pub(crate) page: u64,
}

/// The truth per partition key, in order.
#[derive(Debug)]
pub(crate) struct Truth(BTreeMap<String, Vec<Seen>>);

/// The part of the history that a reader must have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything.
    Whole,
    /// Everything from some moment onwards.
    End,
}

pub(crate) type Verdict = Result<(), String>;

impl Truth {
    /// Derives the truth from a read of all versions from the beginning, and checks it against the writes.
    pub(crate) fn establish(seen: Vec<Seen>, writes: &[Write]) -> Result<Truth, String> {
        check_pages(&seen)?;
        let truth = Truth(by_key(seen));
        truth.check_writes(writes)?;
        Ok(truth)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    fn check_writes(&self, writes: &[Write]) -> Verdict {
        let mut asked: HashMap<&Item, Vec<(usize, &Write)>> = HashMap::new();
        for (index, write) in writes.iter().enumerate() {
            asked.entry(&write.item).or_default().push((index, write));
        }
        let mut happened: HashMap<usize, u64> = HashMap::new();
        let mut before: HashMap<&Item, Print> = HashMap::new();
        for seen in self.0.values().flatten() {
            let there = before.get(&seen.item).copied();
            let asked = asked.get(&seen.item).map(Vec::as_slice).unwrap_or_default();
            let matching = asked.iter().find(|(_, write)| {
                seen.kind == Some(write.kind) && write.after == there && write.made == seen.made
            });
            let Some((index, write)) = matching else {
                return Err(format!("nobody asked for {seen:?} after version {there:?}"));
            };
            if happened.insert(*index, seen.lsn).is_some() {
                return Err(format!("{write:?} happened twice, at last as {seen:?}"));
            }
            if write.etag.is_some() && seen.made.is_some() && write.etag != seen.etag {
                return Err(format!("{write:?} was told another etag than {seen:?}"));
            }
            if seen.previous.is_some() && seen.previous != there {
                return Err(format!("{seen:?} shows another image than what was there: {there:?}"));
            }
            match seen.made {
                Some(made) => before.insert(&seen.item, made),
                None => before.remove(&seen.item),
            };
        }
        let lost =
            |(index, write): &(usize, &Write)| write.acknowledged && !happened.contains_key(index);
        if let Some((_, write)) = writes.iter().enumerate().find(lost) {
            return Err(format!("{write:?} was acknowledged and is not in the feed"));
        }
        check_batches(writes, &happened)
    }

    /// Returns the newest version of each existing item of these keys, with its LSN.
    fn alive(&self, keys: &[String]) -> HashMap<&Item, &Seen> {
        let mut alive = HashMap::new();
        for seen in keys.iter().filter_map(|key| self.0.get(key)).flatten() {
            match seen.made {
                Some(_) => alive.insert(&seen.item, seen),
                None => alive.remove(&seen.item),
            };
        }
        alive
    }

    /// Returns the items that exist at the end, with their versions.
    pub(crate) fn existing(&self) -> Vec<(Item, Print)> {
        let keys: Vec<String> = self.0.keys().cloned().collect();
        let alive = self.alive(&keys);
        alive.values().filter_map(|seen| Some((seen.item.clone(), seen.made?))).collect()
    }

    /// Checks a reader of all versions of these keys.
    pub(crate) fn check_all(&self, keys: &[String], seen: Vec<Seen>, extent: Extent) -> Verdict {
        check_pages(&seen)?;
        let seen = by_key(seen);
        if let Some(key) = seen.keys().find(|key| !keys.contains(*key)) {
            return Err(format!("saw changes of {key:?}, which it did not ask for"));
        }
        for key in keys {
            let truth = self.0.get(key).map(Vec::as_slice).unwrap_or_default();
            let got = seen.get(key).map(Vec::as_slice).unwrap_or_default();
            let skipped = match extent {
                Extent::Whole => 0,
                Extent::End => truth.len().saturating_sub(got.len()),
            };
            let expected = &truth[skipped..];
            let differs = expected.iter().zip(got).find(|(one, other)| !same(one, other));
            if let Some((expected, got)) = differs {
                return Err(format!("of {key:?}, expected {expected:?} and saw {got:?}"));
            }
            if expected.len() != got.len() {
                let (all, some) = (expected.len(), got.len());
                return Err(format!("of {key:?}, saw {some} changes instead of {all}"));
            }
        }
        Ok(())
    }

    /// Checks a reader of the latest versions of these keys, from the beginning.
    pub(crate) fn check_latest(&self, keys: &[String], seen: Vec<Seen>) -> Verdict {
        check_pages(&seen)?;
        let mut versions: HashMap<(&Item, u64), &Seen> = HashMap::new();
        for version in keys.iter().filter_map(|key| self.0.get(key)).flatten() {
            // Of several versions with one LSN only the last was ever visible.
            versions.insert((&version.item, version.lsn), version);
        }
        let mut shown: HashSet<(&Item, u64)> = HashSet::new();
        for got in &seen {
            let known = versions.get(&(&got.item, got.lsn));
            let known = known.ok_or_else(|| format!("{got:?} is no version there ever was"))?;
            if known.made != got.made || known.etag != got.etag {
                return Err(format!("saw {got:?} in the place of {known:?}"));
            }
            if !shown.insert((&got.item, got.lsn)) {
                return Err(format!("saw {got:?} twice"));
            }
        }
        let missed = self.alive(keys).into_values().find(|newest| {
            let at = (&newest.item, newest.lsn);
            !shown.contains(&at)
        });
        match missed {
            Some(newest) => Err(format!("never saw {newest:?}, which is the newest version")),
            None => Ok(()),
        }
    }

    /// Checks a reader that started at the end: it saw every existing item once.
    pub(crate) fn check_existing(&self, keys: &[String], seen: Vec<Seen>) -> Verdict {
        let (got, expected) = (seen.len(), self.alive(keys).len());
        self.check_latest(keys, seen)?;
        match got == expected {
            true => Ok(()),
            false => Err(format!("saw {got} items, and there are {expected}")),
        }
    }
}

fn same(one: &Seen, other: &Seen) -> bool {
    (&one.item, one.kind, one.lsn, one.made, &one.etag)
        == (&other.item, other.kind, other.lsn, other.made, &other.etag)
}

fn by_key(seen: Vec<Seen>) -> BTreeMap<String, Vec<Seen>> {
    let mut by_key: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for one in seen {
        by_key.entry(one.item.0.clone()).or_default().push(one);
    }
    by_key
}

/// Checks per partition key that LSNs only rise, and that changes with one LSN are on one page.
fn check_pages(seen: &[Seen]) -> Verdict {
    let mut last: HashMap<&str, &Seen> = HashMap::new();
    for one in seen {
        let before = last.insert(&one.item.0, one);
        let Some(before) = before else { continue };
        if one.lsn < before.lsn {
            return Err(format!("saw {one:?} behind {before:?}"));
        }
        if one.lsn == before.lsn && one.page != before.page {
            return Err(format!("the transaction of {before:?} and {one:?} was cut"));
        }
    }
    Ok(())
}

/// Checks that a batch is complete at one LSN, or absent.
fn check_batches(writes: &[Write], happened: &HashMap<usize, u64>) -> Verdict {
    let mut batches: BTreeMap<u64, Vec<Option<u64>>> = BTreeMap::new();
    for (index, write) in writes.iter().enumerate() {
        if let Some(batch) = write.batch {
            batches.entry(batch).or_default().push(happened.get(&index).copied());
        }
    }
    for (batch, lsns) in batches {
        if lsns.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(format!("batch {batch} happened in parts: {lsns:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str) -> Item {
        ("k".to_owned(), id.to_owned())
    }

    fn write(id: &str, kind: Kind, after: Option<Print>, made: Option<Print>) -> Write {
        let etag = made.map(|made| format!("e{made}"));
        Write { item: item(id), kind, after, made, etag, batch: None, acknowledged: true }
    }

    fn seen(id: &str, kind: Kind, lsn: u64, made: Option<Print>) -> Seen {
        let etag = made.map(|made| format!("e{made}"));
        let kind = Some(kind);
        Seen { item: item(id), kind, lsn, made, etag, previous: None, page: lsn / 10 }
    }

    /// a is created and changed; b and c are created as a batch, b is deleted.
    fn history() -> (Vec<Write>, Vec<Seen>) {
        let batch = |write: Write| Write { batch: Some(1), ..write };
        let writes = vec![
            write("a", Kind::Create, None, Some(1)),
            write("a", Kind::Replace, Some(1), Some(2)),
            batch(write("b", Kind::Create, None, Some(3))),
            batch(write("c", Kind::Create, None, Some(4))),
            write("b", Kind::Delete, Some(3), None),
        ];
        let truth = vec![
            seen("a", Kind::Create, 1, Some(1)),
            seen("a", Kind::Replace, 2, Some(2)),
            seen("b", Kind::Create, 3, Some(3)),
            seen("c", Kind::Create, 3, Some(4)),
            seen("b", Kind::Delete, 4, None),
        ];
        (writes, truth)
    }

    fn keys() -> Vec<String> {
        vec!["k".to_owned()]
    }

    /// Derives the truth of the history, after modifying the changes seen and the writes.
    fn establish(change: impl FnOnce(&mut Vec<Write>, &mut Vec<Seen>)) -> Result<Truth, String> {
        let (mut writes, mut seen) = history();
        change(&mut writes, &mut seen);
        Truth::establish(seen, &writes)
    }

    #[track_caller]
    fn refused(verdict: Result<impl std::fmt::Debug, String>, words: &str) {
        let why = verdict.unwrap_err();
        assert!(why.contains(words), "{why}");
    }

    #[test]
    fn a_feed_that_shows_what_was_acknowledged_is_right() {
        let truth = establish(|_, _| ()).unwrap();
        assert_eq!(truth.len(), 5);
        let mut existing = truth.existing();
        existing.sort();
        assert_eq!(existing, [(item("a"), 2), (item("c"), 4)]);
        truth.check_all(&keys(), history().1, Extent::Whole).unwrap();
        truth.check_all(&keys(), history().1.split_off(2), Extent::End).unwrap();
    }

    #[test]
    fn what_nobody_knows_may_have_happened_or_not() {
        establish(|writes, _| writes[4].acknowledged = false).unwrap();
        establish(|writes, seen| {
            writes[4].acknowledged = false;
            seen.pop();
        })
        .unwrap();
        establish(|writes, seen| {
            writes.iter_mut().for_each(|write| write.acknowledged = false);
            seen.truncate(2);
        })
        .unwrap();
    }

    #[test]
    fn a_wrong_feed_is_noticed() {
        refused(establish(|_, seen| drop(seen.pop())), "acknowledged and is not in the feed");
        refused(establish(|_, seen| seen.swap(0, 1)), "behind");
        refused(establish(|writes, _| drop(writes.remove(1))), "nobody asked for");
        refused(establish(|_, seen| seen.insert(1, seen[0].clone())), "nobody asked for");
        refused(establish(|_, seen| seen[1].made = Some(9)), "nobody asked for");
        refused(establish(|_, seen| seen[1].etag = None), "another etag");
        refused(establish(|_, seen| seen[1].previous = Some(7)), "another image");
        refused(establish(|_, seen| seen[3].page = 1), "cut");
        refused(establish(|_, seen| seen[2].lsn = 2), "happened in parts");
        refused(
            establish(|writes, seen| {
                writes[3].acknowledged = false;
                seen.remove(3);
            }),
            "happened in parts",
        );
    }

    #[test]
    fn a_reader_of_all_versions_that_missed_repeated_or_mixed_up_something_is_noticed() {
        let truth = establish(|_, _| ()).unwrap();
        let check = |change: fn(&mut Vec<Seen>)| {
            let (_, mut seen) = history();
            change(&mut seen);
            truth.check_all(&keys(), seen, Extent::Whole)
        };
        refused(check(|seen| drop(seen.pop())), "saw 4 changes instead of 5");
        refused(check(|seen| drop(seen.remove(0))), "expected");
        refused(check(|seen| seen.insert(1, seen[0].clone())), "expected");
        refused(check(|seen| seen.swap(2, 3)), "expected");
        refused(check(|seen| seen[0].item.0.push('x')), "did not ask for");
        let end = truth.check_all(&keys(), history().1[1..4].to_vec(), Extent::End);
        refused(end, "expected");
    }

    #[test]
    fn a_reader_of_latest_versions_may_skip_versions_but_not_items() {
        let truth = establish(|_, _| ()).unwrap();
        let (_, all) = history();
        let pick = |places: &[usize]| -> Vec<Seen> {
            places.iter().map(|place| Seen { kind: None, ..all[*place].clone() }).collect()
        };
        truth.check_latest(&keys(), pick(&[1, 3])).unwrap();
        truth.check_latest(&keys(), pick(&[0, 1, 2, 3])).unwrap();
        truth.check_existing(&keys(), pick(&[1, 3])).unwrap();
        refused(truth.check_existing(&keys(), pick(&[0, 1, 3])), "saw 3 items");
        refused(truth.check_latest(&keys(), pick(&[0, 3])), "never saw");
        refused(truth.check_latest(&keys(), pick(&[1, 3, 3])), "twice");
        refused(truth.check_latest(&keys(), pick(&[3, 1])), "behind");
        let mut wrong = pick(&[1, 3]);
        wrong[0].made = Some(9);
        refused(truth.check_latest(&keys(), wrong), "in the place of");
        let mut nowhere = pick(&[1, 3]);
        nowhere[0].lsn = 1;
        refused(truth.check_latest(&keys(), nowhere), "in the place of");
    }
}
