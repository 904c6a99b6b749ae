//! Retention floors: the LSN after which every version of a hashed key is still in the log.
//!
//! Compaction drops superseded versions lane by lane, and the lanes of a merged partition hold different keys.
//! With one LSN for the whole partition, the half with the lower LSNs would lose its history, so each key range
//! has its own floor:
//!
//! ```text
//! keys     |----- low -----|----- high ----|
//! floors          900              0          after a merge: low was compacted, high never
//! reader   of low after 950: served     of high after 20: served     of both after 20: refused
//! ```
//!
//! Pure values: the log decides when to raise a floor and what to compare with it.

use headwater_model::{Epk, KeyRange, Lsn};

/// Floors by key range. Ranges may overlap: the highest floor counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floors(Vec<(KeyRange, Lsn)>);

impl Floors {
    /// The same floor for every key.
    pub(crate) fn uniform(lsn: Lsn) -> Floors {
        let mut floors = Floors::default();
        floors.raise(KeyRange::full(), lsn);
        floors
    }

    /// Raises the floor of these keys to `lsn`. Never lowers a floor.
    pub(crate) fn raise(&mut self, keys: KeyRange, lsn: Lsn) {
        let is_known =
            self.0.iter().any(|(known, floor)| *floor >= lsn && known.contains_range(&keys));
        if is_known || lsn == Lsn::ZERO {
            return;
        }
        self.0.retain(|(known, floor)| *floor > lsn || !keys.contains_range(known));
        self.0.push((keys, lsn));
    }

    /// The highest floor of these keys.
    pub(crate) fn of(&self, keys: &KeyRange) -> Lsn {
        let overlapping = self.0.iter().filter(|(known, _)| known.overlaps(keys));
        overlapping.map(|(_, floor)| *floor).max().unwrap_or(Lsn::ZERO)
    }

    /// The highest floor of any key.
    pub(crate) fn highest(&self) -> Lsn {
        self.0.iter().map(|(_, floor)| *floor).max().unwrap_or(Lsn::ZERO)
    }

    /// These keys, split where the floor changes.
    pub(crate) fn pieces(&self, keys: &KeyRange) -> Vec<(KeyRange, Lsn)> {
        cut(keys, self.0.iter().map(|(known, _)| known), |piece| self.of(piece))
    }

    /// Adds the floors of `from` for the keys that this log takes over.
    pub(crate) fn inherit(&mut self, from: &Floors, keys: &KeyRange) {
        for (known, floor) in &from.0 {
            if let Some(common) = known.intersect(keys) {
                self.raise(common, *floor);
            }
        }
    }

    /// Merges to one floor for every key, if all of these keys have the same floor.
    pub(crate) fn simplify(&mut self, keys: &[KeyRange]) {
        let floors: Vec<Lsn> =
            keys.iter().flat_map(|keys| self.pieces(keys)).map(|(_, floor)| floor).collect();
        if let Some(first) = floors.first()
            && floors.iter().all(|floor| floor == first)
        {
            *self = Floors::uniform(*first);
        }
    }

    /// Whether every key has the same floor.
    pub(crate) fn is_uniform(&self) -> bool {
        self.0.iter().all(|(known, _)| *known == KeyRange::full())
    }

    pub(crate) fn entries(&self) -> &[(KeyRange, Lsn)] {
        &self.0
    }
}

/// Splits a key range at the bounds of `others` and merges neighbours with the same result of `look`.
pub(crate) fn cut<'a, T: PartialEq>(
    keys: &KeyRange,
    others: impl Iterator<Item = &'a KeyRange>,
    look: impl Fn(&KeyRange) -> T,
) -> Vec<(KeyRange, T)> {
    let mut bounds: Vec<&Epk> = others.flat_map(|other| [other.min(), other.max()]).collect();
    bounds.retain(|bound| keys.min() < *bound && *bound < keys.max());
    bounds.sort_unstable();
    bounds.dedup();
    let mut pieces: Vec<(KeyRange, T)> = Vec::with_capacity(bounds.len() + 1);
    let mut rest = Some(keys.clone());
    for bound in bounds.into_iter().map(Some).chain([None]) {
        let Some(whole) = rest.take() else { break };
        let piece = match bound.and_then(|bound| whole.split_at(bound).ok()) {
            Some((piece, behind)) => {
                rest = Some(behind);
                piece
            }
            None => whole,
        };
        let found = look(&piece);
        match pieces.last_mut() {
            Some((last, known)) if *known == found => match last.merge(&piece) {
                Ok(merged) => *last = merged,
                Err(_) => pieces.push((piece, found)),
            },
            _ => pieces.push((piece, found)),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: &str, max: &str) -> KeyRange {
        KeyRange::new(Epk::from_hex(min).unwrap(), Epk::from_hex(max).unwrap()).unwrap()
    }

    #[test]
    fn a_floor_belongs_to_its_keys() {
        let mut floors = Floors::default();
        assert_eq!(floors.of(&KeyRange::full()), Lsn::ZERO);
        floors.raise(range("", "80"), Lsn::new(900));
        assert_eq!(floors.of(&range("80", "FF")), Lsn::ZERO);
        assert_eq!(floors.of(&range("7F", "81")), Lsn::new(900));
        assert!(!floors.is_uniform());
        let pieces = floors.pieces(&range("40", "C0"));
        let expected = [(range("40", "80"), Lsn::new(900)), (range("80", "C0"), Lsn::ZERO)];
        assert_eq!(pieces, expected);
        let mut child = Floors::default();
        child.inherit(&floors, &range("60", "FF"));
        assert_eq!(child.pieces(&range("00", "FF")).len(), 3);
        floors.raise(KeyRange::full(), Lsn::new(1000));
        assert_eq!(floors, Floors::uniform(Lsn::new(1000)));
        floors.raise(range("", "10"), Lsn::new(7));
        assert_eq!(floors, Floors::uniform(Lsn::new(1000)), "a floor never falls");
    }
}
