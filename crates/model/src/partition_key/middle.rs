//! Computes the split point of a range that gives both halves the same number of hashes.
//!
//! Hashes are uniform, but do not fill the key space: those of version 2 are below `40`, those of version 1 are
//! order-preserving numbers between `0580` and `05C1F0`. The middle of the bytes would leave one half empty.

use super::hash::boundary_v1;
use super::{PartitionKeyDefinition, PartitionKeyKind, PartitionKeyVersion};
use crate::{Epk, KeyRange};

/// The highest hash of version 2. Azure divides this value, so we do as well.
const V2_HIGHEST: [u8; 16] = (u128::MAX >> 2).to_be_bytes();

impl PartitionKeyDefinition {
    /// The key in the middle of a range, weighted by the distribution of this definition's hashes.
    ///
    /// It lies inside the range unless there is no key between its bounds.
    #[must_use]
    pub fn middle_of(&self, range: &KeyRange) -> Epk {
        let is_v1 =
            self.version == PartitionKeyVersion::V1 && self.kind != PartitionKeyKind::MultiHash;
        let middle = if is_v1 { middle_v1(range) } else { None };
        middle.unwrap_or_else(|| middle_of_bytes(range.min(), range.max()))
    }
}

/// The middle hash of version 1; `None` if no hash boundary lies inside the range.
fn middle_v1(range: &KeyRange) -> Option<Epk> {
    let (low, high) = (first_hash_from(range.min()), first_hash_from(range.max()));
    let high = high.min(u64::from(u32::MAX)).max(low);
    let middle = boundary_v1(u32::try_from(low + (high - low) / 2).ok()?);
    (*range.min() < middle && middle < *range.max()).then_some(middle)
}

/// The lowest hash whose keys are all at or above a bound; one more than the highest if there is none.
fn first_hash_from(bound: &Epk) -> u64 {
    let (mut low, mut high) = (0, 1 << 32);
    while low < high {
        let middle = (low + high) / 2;
        let is_before = u32::try_from(middle).is_ok_and(|hash| boundary_v1(hash) < *bound);
        if is_before {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The middle of two keys as if their bytes were digits.
fn middle_of_bytes(min: &Epk, max: &Epk) -> Epk {
    let width = min.as_bytes().len().max(max.as_bytes().len()).clamp(16, 48);
    let number = |epk: &Epk, open_end: bool| -> Vec<u16> {
        let bytes: &[u8] =
            if open_end && epk == &Epk::max() { &V2_HIGHEST } else { epk.as_bytes() };
        (0..width).map(|index| u16::from(bytes.get(index).copied().unwrap_or(0))).collect()
    };
    let (low, high) = (number(min, false), number(max, true));
    let mut sum = vec![0u16; width];
    let mut carry = 0;
    for index in (0..width).rev() {
        let total = low[index] + high[index] + carry;
        sum[index] = total & 0xFF;
        carry = total >> 8;
    }
    let mut middle = Vec::with_capacity(width);
    let mut rest = carry;
    for digit in sum {
        let total = (rest << 8) | digit;
        middle.push(u8::try_from(total >> 1).unwrap_or(u8::MAX));
        rest = total & 1;
    }
    Epk::from_bytes(&middle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PartitionKey;

    fn range(min: &str, max: &str) -> KeyRange {
        KeyRange::new(Epk::from_hex(min).unwrap(), Epk::from_hex(max).unwrap()).unwrap()
    }

    fn definition(version: u8) -> PartitionKeyDefinition {
        let json = format!(r#"{{"paths":["/pk"],"kind":"Hash","version":{version}}}"#);
        PartitionKeyDefinition::from_json(&json).unwrap()
    }

    #[test]
    fn the_middle_is_between() {
        let v2 = definition(2);
        let middle = v2.middle_of(&KeyRange::full());
        assert_eq!(middle.to_hex(), format!("1F{}", "FF".repeat(15)));
        assert_eq!(definition(1).middle_of(&KeyRange::full()).to_hex(), "05C1DFFFFFFFFC");
        for version in [1, 2] {
            let definition = definition(version);
            for (min, max) in [
                ("", "20"),
                ("20", "FF"),
                ("3F00", "FF"),
                ("05C1", "05C1CF"),
                ("", "058000"),
                ("05C1CFFFFFFFF8", "05C1CFFFFFFFF9"),
            ] {
                let range = range(min, max);
                assert!(range.split_at(&definition.middle_of(&range)).is_ok(), "{min} {max}");
            }
        }
    }

    /// Regression: a version 1 container was split into one full and one empty half.
    #[test]
    fn each_split_gives_both_halves_their_share_of_keys() {
        for version in [1, 2] {
            let definition = definition(version);
            let mut ranges = vec![KeyRange::full()];
            for _ in 0..3 {
                let halves = |range: &KeyRange| {
                    let (low, high) = range.split_at(&definition.middle_of(range)).unwrap();
                    [low, high]
                };
                ranges = ranges.iter().flat_map(halves).collect();
            }
            let mut counts = vec![0; ranges.len()];
            for number in 0..4000 {
                let epk = definition.epk(&PartitionKey::from(format!("key {number}"))).unwrap();
                counts[ranges.iter().position(|range| range.contains(epk.as_bytes())).unwrap()] +=
                    1;
            }
            assert!(counts.iter().all(|count| (400..600).contains(count)), "{version}: {counts:?}");
        }
    }
}
