//! The newest entries of a partition in memory: a caught-up reader costs no system call.

use bytes::Bytes;
use headwater_model::Lsn;
use std::collections::VecDeque;

/// A bounded queue of encoded entries with consecutive LSNs.
#[derive(Debug)]
pub(crate) struct Ring {
    entries: VecDeque<(Lsn, Bytes)>,
    bytes: usize,
    bytes_max: usize,
}

impl Ring {
    pub(crate) fn new(bytes_max: usize) -> Ring {
        Ring { entries: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(crate) fn push(&mut self, lsn: Lsn, entry: Bytes) {
        self.bytes += entry.len();
        self.entries.push_back((lsn, entry));
        while self.bytes > self.bytes_max {
            let Some((_, dropped)) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= dropped.len();
        }
    }

    /// Total bytes of its entries.
    pub(crate) fn byte_count(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, lsn: Lsn) -> Option<Bytes> {
        let (first, _) = self.entries.front()?;
        let index = usize::try_from(lsn.get().checked_sub(first.get())?).ok()?;
        self.entries.get(index).map(|(_, entry)| entry.clone())
    }

    /// At most `count` entries after `lsn`, oldest first; `None` if the ring does not reach back that far.
    pub(crate) fn after(&self, lsn: Lsn, count: usize) -> Option<Vec<Bytes>> {
        let (first, _) = self.entries.front()?;
        if *first > lsn.next() {
            return None;
        }
        let skip = usize::try_from(lsn.next().get() - first.get()).ok()?;
        let newer = self.entries.iter().skip(skip).take(count);
        Some(newer.map(|(_, entry)| entry.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_newest() {
        let mut ring = Ring::new(30);
        for lsn in 1..=5_u8 {
            ring.push(Lsn::new(lsn.into()), Bytes::from(vec![lsn; 10]));
        }
        assert!(ring.get(Lsn::new(2)).is_none());
        assert!(ring.get(Lsn::new(3)).is_some());
        assert!(ring.after(Lsn::new(1), 9).is_none());
        let newest: Vec<u8> =
            ring.after(Lsn::new(3), 9).unwrap().iter().map(|entry| entry[0]).collect();
        assert_eq!(newest, [4, 5]);
        assert_eq!(ring.after(Lsn::new(2), 2).unwrap().len(), 2);
        assert_eq!(ring.after(Lsn::new(5), 9).unwrap().len(), 0);
    }
}
