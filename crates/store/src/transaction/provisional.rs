//! Provisional etags and resource ids: placeholders for those that the writer assigns at commit.
//!
//! They contain a random mark. So they can be found and replaced in any response of a script, and no other text is
//! mistaken for one of them.

use headwater_model::{ContainerRid, Etag, ItemRid};
use std::collections::HashMap;

/// Item numbers have 60 bits; partitions never assign one from the upper half.
const NUMBER_BITS: u32 = 60;
/// The bits of a provisional number that hold the index of its operation.
const OPERATION_BITS: u64 = 0xF_FFFF;

pub(super) struct Provisional {
    mark: [u8; 16],
}

impl Provisional {
    pub(super) fn new(random: u128) -> Provisional {
        Provisional { mark: random.to_be_bytes() }
    }

    /// The provisional etag of the version that an operation writes.
    pub(super) fn etag(&self, operation: usize) -> Etag {
        let mut bytes = self.mark;
        bytes[12..].copy_from_slice(&u32::try_from(operation).unwrap_or(u32::MAX).to_be_bytes());
        Etag::from_bytes(bytes)
    }

    /// The provisional number of the item that an operation creates.
    pub(super) fn number(&self, operation: usize) -> u64 {
        let [a, b, c, d, ..] = self.mark;
        let mark = u64::from(u32::from_be_bytes([a, b, c, d]));
        let upper = (1 << (NUMBER_BITS - 1)) | ((mark << 20) & ((1 << (NUMBER_BITS - 1)) - 1));
        upper | (operation as u64 & OPERATION_BITS)
    }

    /// Whether this is the number of an item that this transaction creates.
    pub(super) fn owns(&self, number: u64) -> bool {
        number & !OPERATION_BITS == self.number(0)
    }
}

/// Whether this number is provisional, of any transaction.
pub(super) fn is_provisional(number: u64) -> bool {
    number >> (NUMBER_BITS - 1) != 0
}

/// Replaces provisional etags and resource ids by final ones anywhere in a text.
pub(super) struct Replacements {
    etags: HashMap<Vec<u8>, Vec<u8>>,
    rids: HashMap<Vec<u8>, Vec<u8>>,
    etag_start: Vec<u8>,
    rid_start: Vec<u8>,
}

/// Length of the prefix that all provisional etags of a transaction share.
const ETAG_START: usize = 23;
const ETAG_LENGTH: usize = 36;
/// Length of the prefix that the resource ids of all items of a container share.
const RID_START: usize = 10;
const RID_LENGTH: usize = 24;

impl Replacements {
    pub(super) fn new(provisional: &Provisional, container: ContainerRid) -> Replacements {
        let etag_start = etag_text(provisional.etag(0))[..ETAG_START].to_vec();
        let rid_start = ItemRid::new(container, 1).to_string().into_bytes()[..RID_START].to_vec();
        Replacements { etags: HashMap::new(), rids: HashMap::new(), etag_start, rid_start }
    }

    pub(super) fn etag(&mut self, provisional: Etag, real: Etag) {
        self.etags.insert(etag_text(provisional), etag_text(real));
    }

    pub(super) fn rid(&mut self, provisional: ItemRid, real: ItemRid) {
        let bytes = |rid: ItemRid| rid.to_string().into_bytes();
        self.rids.insert(bytes(provisional), bytes(real));
    }

    /// The text with final values.
    pub(super) fn apply(&self, text: &str) -> String {
        if self.etags.is_empty() && self.rids.is_empty() {
            return text.to_owned();
        }
        let bytes = text.as_bytes();
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let found = look_up(&self.etags, rest, &self.etag_start, ETAG_LENGTH)
                .or_else(|| look_up(&self.rids, rest, &self.rid_start, RID_LENGTH));
            match found {
                Some(real) => {
                    out.extend_from_slice(real);
                    at += real.len();
                }
                None => {
                    out.push(rest[0]);
                    at += 1;
                }
            }
        }
        // Only ASCII text was exchanged for ASCII text of the same length, so this is still UTF-8.
        String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
    }
}

fn look_up<'a>(
    map: &'a HashMap<Vec<u8>, Vec<u8>>,
    rest: &[u8],
    start: &[u8],
    length: usize,
) -> Option<&'a Vec<u8>> {
    if !rest.starts_with(start) { None } else { map.get(rest.get(..length)?) }
}

fn etag_text(etag: Etag) -> Vec<u8> {
    let mut text = Vec::new();
    etag.write_into(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_model::{Lsn, PartitionId};

    #[test]
    fn provisional_values_are_replaced_wherever_they_stand_and_nothing_else_is() {
        let container = ContainerRid::new(7, 9);
        let provisional = Provisional::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let (etag, real) = (provisional.etag(3), Etag::new(PartitionId::new(1), Lsn::new(5), 2));
        let rid = ItemRid::new(container, provisional.number(3));
        let real_rid = ItemRid::new(container, 44);
        let mut replacements = Replacements::new(&provisional, container);
        replacements.etag(etag, real);
        replacements.rid(rid, real_rid);
        let other = provisional.etag(4);
        let text =
            format!("{{\"é\":{etag},\"x\":\"docs/{rid}/\",\"y\":{other},\"z\":\"{real_rid}\"}}");
        let expected = format!(
            "{{\"é\":{real},\"x\":\"docs/{real_rid}/\",\"y\":{other},\"z\":\"{real_rid}\"}}"
        );
        assert_eq!(replacements.apply(&text), expected);
    }

    #[test]
    fn provisional_numbers_are_distinct_and_fit_into_a_resource_id() {
        let provisional = Provisional::new(u128::MAX);
        let numbers: Vec<u64> = (0..5_000).map(|place| provisional.number(place)).collect();
        assert!(numbers.iter().all(|number| number >> NUMBER_BITS == 0));
        assert!(numbers.windows(2).all(|two| two[0] < two[1]));
    }
}
