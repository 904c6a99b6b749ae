//! Coverage: whether leases cover every key exactly once, and which ranges succeed one that is gone.
//!
//! Leases must tile the whole space of hashed keys. Keys in no lease are never processed; keys in two leases are
//! processed twice. Both occur: after crashes during a split, after manual deletes, after restores. All functions
//! are pure functions of listings; callers read again before they act.

use crate::position::Position;
use headwater_model::{Epk, KeyRange, PartitionId};

/// A physical range of a container, as the service reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalRange {
    /// Its id.
    pub id: PartitionId,
    /// The keys in it.
    pub keys: KeyRange,
    /// The ids of the ranges it came from.
    pub parents: Vec<PartitionId>,
}

/// The part of a lease that matters for coverage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// Its document id and partition; two documents may cover the same range.
    pub document: String,
    /// Its keys.
    pub range: KeyRange,
    /// Its position.
    pub position: Option<Position>,
}

/// A defect in the coverage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// No lease covers these keys.
    Gap(KeyRange),
    /// Narrower leases cover all of this one: a parent that a split left behind.
    Superseded {
        /// The document to remove.
        document: String,
    },
    /// Two documents cover the same keys; this one is more advanced.
    Duplicate {
        /// The document to remove.
        document: String,
    },
    /// Two leases share keys and neither contains the other. An operator must decide.
    Overlap {
        /// One document.
        one: String,
        /// The other.
        other: String,
    },
}

/// Returns the defects in the leases of a unit that should cover `scope`.
#[must_use]
pub fn audit(leases: &[Covered], scope: &KeyRange) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut kept: Vec<&Covered> = Vec::new();
    for lease in leases {
        match kept.iter().position(|other| other.range == lease.range) {
            None => kept.push(lease),
            Some(index) => {
                // Keep the lower position: the other one would skip the changes between them.
                let lower = is_lower(lease.position.as_ref(), kept[index].position.as_ref());
                let surplus =
                    if lower { std::mem::replace(&mut kept[index], lease) } else { lease };
                findings.push(Finding::Duplicate { document: surplus.document.clone() });
            }
        }
    }
    let mut tiles: Vec<&Covered> = Vec::new();
    for lease in &kept {
        let inside = kept.iter().filter(|other| is_narrower(&other.range, &lease.range));
        if is_tiled(&lease.range, inside.map(|other| &other.range)) {
            findings.push(Finding::Superseded { document: lease.document.clone() });
        } else {
            tiles.push(lease);
        }
    }
    tiles.sort_by(|one, other| one.range.min().cmp(other.range.min()));
    for (index, one) in tiles.iter().enumerate() {
        for other in &tiles[index + 1..] {
            if one.range.overlaps(&other.range) {
                let (one, other) = (one.document.clone(), other.document.clone());
                findings.push(Finding::Overlap { one, other });
            }
        }
    }
    findings.extend(gaps(scope, tiles.iter().map(|tile| &tile.range)).map(Finding::Gap));
    findings
}

/// Whether reading from the first position delivers everything that reading from the second does, and more.
pub(crate) fn is_lower(one: Option<&Position>, other: Option<&Position>) -> bool {
    match (one, other) {
        (None, Some(_)) => true,
        (Some(one), Some(other)) => one.is_before(other) == Some(true),
        (_, None) => false,
    }
}

fn is_narrower(one: &KeyRange, other: &KeyRange) -> bool {
    other.contains_range(one) && one != other
}

fn is_tiled<'a>(range: &KeyRange, parts: impl Iterator<Item = &'a KeyRange>) -> bool {
    gaps(range, parts).next().is_none()
}

/// Returns the parts of `scope` that no range covers, in ascending order.
pub fn gaps<'a>(
    scope: &KeyRange,
    ranges: impl Iterator<Item = &'a KeyRange>,
) -> std::vec::IntoIter<KeyRange> {
    let mut sorted: Vec<&KeyRange> = ranges.collect();
    sorted.sort_by(|one, other| one.min().cmp(other.min()));
    let mut found = Vec::new();
    let mut covered_to = scope.min().clone();
    for range in sorted {
        if *range.min() > covered_to {
            let end = range.min().min(scope.max()).clone();
            found.extend(KeyRange::new(covered_to.clone(), end));
        }
        covered_to = covered_to.max(range.max().clone());
    }
    found.extend(KeyRange::new(covered_to, scope.max().clone()));
    found.into_iter()
}

/// Returns where the keys of `range` are now: one piece per overlapping physical range.
#[must_use]
pub fn successors(range: &KeyRange, ranges: &[PhysicalRange]) -> Vec<(PartitionId, KeyRange)> {
    let piece = |now: &PhysicalRange| Some((now.id, now.keys.intersect(range)?));
    let mut pieces: Vec<_> = ranges.iter().filter_map(piece).collect();
    pieces.sort_by(|(_, one), (_, other)| one.min().cmp(other.min()));
    pieces
}

/// Returns the keys of a range that is known only by its id, also if it was split since.
///
/// Returns `None` if it was merged, because it can no longer be told from the other part.
#[must_use]
pub fn keys_of(id: PartitionId, ranges: &[PhysicalRange]) -> Option<KeyRange> {
    if let Some(range) = ranges.iter().find(|range| range.id == id) {
        return Some(range.keys.clone());
    }
    let children: Vec<_> = ranges.iter().filter(|range| range.parents.contains(&id)).collect();
    let (first, others) = children.split_first().filter(|(_, others)| !others.is_empty())?;
    others.iter().try_fold(first.keys.clone(), |all, child| all.merge(&child.keys).ok())
}

/// Divides a range into `count` parts of about the same size; fewer if it is too narrow.
#[must_use]
pub fn parts(range: &KeyRange, count: usize) -> Vec<KeyRange> {
    let (low, high) = (number(range.min()), number(range.max()));
    let count = u128::try_from(count.clamp(1, 1024)).unwrap_or(1);
    let mut rest = range.clone();
    let mut found = Vec::new();
    for part in 1..count {
        let cut = low + (high.saturating_sub(low) / count) * part;
        let hex = format!("{cut:030X}");
        let Ok((lower, upper)) =
            Epk::from_hex(&hex).map_or_else(|_| Err(()), |cut| rest.split_at(&cut).map_err(|_| ()))
        else {
            continue;
        };
        found.push(lower);
        rest = upper;
    }
    found.push(rest);
    found
}

/// Returns the first fifteen bytes as a number; keys of the service have at most sixteen bytes.
fn number(key: &Epk) -> u128 {
    let mut bytes = [0_u8; 16];
    for (into, byte) in bytes[1..].iter_mut().zip(key.as_bytes()) {
        *into = *byte;
    }
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: &str, max: &str) -> KeyRange {
        KeyRange::new(Epk::from_hex(min).unwrap(), Epk::from_hex(max).unwrap()).unwrap()
    }

    fn lease(document: &str, min: &str, max: &str, lsn: Option<u64>) -> Covered {
        let position = lsn.and_then(|lsn| Position::new(format!("\"{lsn}\"")));
        Covered { document: document.to_owned(), range: range(min, max), position }
    }

    fn physical(id: u32, min: &str, max: &str, parents: &[u32]) -> PhysicalRange {
        let parents = parents.iter().map(|id| PartitionId::new(*id)).collect();
        PhysicalRange { id: PartitionId::new(id), keys: range(min, max), parents }
    }

    #[track_caller]
    fn check(leases: &[Covered], expected: &[Finding]) {
        assert_eq!(audit(leases, &KeyRange::full()), expected);
    }

    #[test]
    fn leases_that_tile_everything_are_fine() {
        check(&[lease("a", "", "FF", None)], &[]);
        check(&[lease("b", "30", "FF", None), lease("a", "", "30", Some(1))], &[]);
    }

    #[test]
    fn gaps_are_found_wherever_they_are() {
        check(&[], &[Finding::Gap(KeyRange::full())]);
        check(
            &[lease("a", "10", "20", None)],
            &[Finding::Gap(range("", "10")), Finding::Gap(range("20", "FF"))],
        );
        check(
            &[lease("a", "", "10", None), lease("b", "20", "FF", None)],
            &[Finding::Gap(range("10", "20"))],
        );
    }

    #[test]
    fn a_parent_left_over_by_a_split_goes_and_a_half_made_split_stays() {
        let superseded = |document: &str| Finding::Superseded { document: document.to_owned() };
        check(
            &[lease("p", "", "FF", None), lease("a", "", "30", None), lease("b", "30", "FF", None)],
            &[superseded("p")],
        );
        let overlap = Finding::Overlap { one: "p".to_owned(), other: "a".to_owned() };
        check(&[lease("p", "", "FF", None), lease("a", "", "30", None)], &[overlap]);
    }

    #[test]
    fn of_two_documents_for_one_range_the_lower_position_stays() {
        let duplicate = |document: &str| Finding::Duplicate { document: document.to_owned() };
        check(&[lease("a", "", "FF", Some(5)), lease("b", "", "FF", Some(9))], &[duplicate("b")]);
        check(&[lease("a", "", "FF", Some(9)), lease("b", "", "FF", Some(5))], &[duplicate("a")]);
        check(&[lease("a", "", "FF", Some(9)), lease("b", "", "FF", None)], &[duplicate("a")]);
    }

    #[test]
    fn successors_and_ancestors() {
        let ranges = [physical(1, "", "30", &[0]), physical(2, "30", "FF", &[0])];
        let pieces = successors(&range("20", "40"), &ranges);
        assert_eq!(
            pieces,
            [(PartitionId::new(1), range("20", "30")), (PartitionId::new(2), range("30", "40"))]
        );
        assert_eq!(keys_of(PartitionId::new(2), &ranges), Some(range("30", "FF")));
        assert_eq!(keys_of(PartitionId::new(0), &ranges), Some(KeyRange::full()));
        assert_eq!(keys_of(PartitionId::new(9), &ranges), None);
        let merged = [physical(3, "", "FF", &[0, 1, 2])];
        assert_eq!(keys_of(PartitionId::new(1), &merged), None, "half of it, but which half?");
    }

    #[test]
    fn parts_tile_the_range() {
        for (whole, count) in
            [(KeyRange::full(), 4), (range("05", "05C1CFFFFFFFF8"), 7), (range("", "00"), 3)]
        {
            let cut = parts(&whole, count);
            assert!(cut.len() <= count && !cut.is_empty());
            assert!(gaps(&whole, cut.iter()).next().is_none(), "{cut:?}");
            let touching = cut.windows(2).all(|pair| pair[0].max() == pair[1].min());
            assert!(touching && cut[0].min() == whole.min(), "{cut:?}");
        }
        assert_eq!(parts(&KeyRange::full(), 4).len(), 4);
    }
}
