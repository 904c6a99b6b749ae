//! The offset table of a segment: the file offset of each record's entry, and time marks.
//!
//! One row per record, in order, so a row's number is also the number of the record's dead bit. The table of a
//! sealed segment is stored in a file next to it. It is derived data: it can always be rebuilt from the segment.

use crate::codec::{Reader, checked_content, seal_with_crc};
use headwater_model::{Lsn, Timestamp};

const MAGIC: &[u8; 8] = b"HWTAB\0\0\x01";
/// Bytes of one row on disk.
const ROW_BYTES: usize = 12;
/// Bytes of one time mark on disk.
const MARK_BYTES: usize = 16;

/// The location of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// LSN of its entry, counted from the segment's first.
    pub(crate) lsn_delta: u32,
    /// The offset of its entry in the file.
    pub(crate) offset: u32,
    /// Its ordinal in the entry.
    pub(crate) ordinal: u16,
    /// The number of records of its entry.
    pub(crate) siblings: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    base: u64,
    rows: Vec<Row>,
    /// The first entry of each second in which something was written.
    marks: Vec<(u64, u64)>,
    /// End of the last entry in the file.
    end: u32,
}

impl Table {
    pub(crate) fn new(first_lsn: Lsn, header_bytes: u32) -> Table {
        Table { base: first_lsn.get(), end: header_bytes, ..Table::default() }
    }

    /// Adds an entry after all others. `ordinals` are those of its records.
    pub(crate) fn push(
        &mut self,
        lsn: Lsn,
        timestamp: Timestamp,
        length: u32,
        ordinals: impl ExactSizeIterator<Item = u16>,
    ) {
        let lsn_delta = u32::try_from(lsn.get() - self.base).expect("a segment is far smaller");
        let siblings = u16::try_from(ordinals.len()).expect("an entry has at most 65 535 records");
        let offset = self.end;
        self.rows.extend(ordinals.map(|ordinal| Row { lsn_delta, offset, ordinal, siblings }));
        let second = timestamp.as_seconds();
        if self.marks.last().is_none_or(|(last, _)| *last < second) {
            self.marks.push((second, lsn.get()));
        }
        self.end += length;
    }

    /// The LSN that rows count from: the first of the segment.
    pub(crate) fn base(&self) -> Lsn {
        Lsn::new(self.base)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    pub(crate) fn row(&self, number: usize) -> Option<Row> {
        self.rows.get(number).copied()
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn lsn(&self, row: Row) -> Lsn {
        Lsn::new(self.base + u64::from(row.lsn_delta))
    }

    /// Number of the first row with an LSN above `lsn`.
    pub(crate) fn first_after(&self, lsn: Lsn) -> usize {
        let Some(delta) = lsn.get().checked_sub(self.base) else {
            return 0;
        };
        // Fast path: without gaps and with one record per entry, the row number follows from the LSN.
        let guess = usize::try_from(delta).unwrap_or(usize::MAX).saturating_add(1);
        let fits = |number: usize| {
            self.rows.get(number).is_none_or(|row| u64::from(row.lsn_delta) > delta)
                && (number == 0
                    || self
                        .rows
                        .get(number - 1)
                        .is_some_and(|row| u64::from(row.lsn_delta) <= delta))
        };
        if fits(guess) {
            return guess;
        }
        self.rows.partition_point(|row| u64::from(row.lsn_delta) <= delta)
    }

    /// Number of the row of one record.
    pub(crate) fn find(&self, lsn: Lsn, ordinal: u16) -> Option<usize> {
        let delta = u32::try_from(lsn.get().checked_sub(self.base)?).ok()?;
        let first = self.first_after(lsn.previous());
        let rows = self.rows.get(first..)?;
        rows.iter()
            .take_while(|row| row.lsn_delta == delta)
            .position(|row| row.ordinal == ordinal)
            .map(|index| first + index)
    }

    /// The end offset of the entry that contains row `number`.
    pub(crate) fn entry_end(&self, number: usize) -> u32 {
        let Some(row) = self.rows.get(number) else {
            return self.end;
        };
        let next = self.rows[number..].iter().find(|next| next.offset != row.offset);
        next.map_or(self.end, |next| next.offset)
    }

    /// The first entry written at or after `second`.
    pub(crate) fn first_at(&self, second: u64) -> Option<Lsn> {
        let mark = self.marks.partition_point(|(marked, _)| *marked < second);
        self.marks.get(mark).map(|(_, lsn)| Lsn::new(*lsn))
    }

    /// The second in which the first entry after `lsn` was written.
    pub(crate) fn second_after(&self, lsn: Lsn) -> Option<u64> {
        let first = self.lsn(self.row(self.first_after(lsn))?);
        let behind = self.marks.partition_point(|(_, marked)| *marked <= first.get());
        self.marks.get(behind.checked_sub(1)?).map(|(second, _)| *second)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(64 + self.rows.len() * ROW_BYTES + self.marks.len() * MARK_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.base.to_le_bytes());
        out.extend_from_slice(&self.end.to_le_bytes());
        out.extend_from_slice(&(self.rows.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.marks.len() as u64).to_le_bytes());
        for row in &self.rows {
            out.extend_from_slice(&row.lsn_delta.to_le_bytes());
            out.extend_from_slice(&row.offset.to_le_bytes());
            out.extend_from_slice(&row.ordinal.to_le_bytes());
            out.extend_from_slice(&row.siblings.to_le_bytes());
        }
        for (second, lsn) in &self.marks {
            out.extend_from_slice(&second.to_le_bytes());
            out.extend_from_slice(&lsn.to_le_bytes());
        }
        seal_with_crc(&mut out);
        out
    }

    /// Decodes a table; `None` when the bytes are damaged or something else.
    ///
    /// The rows of the result are always in order, even if the checksum was forged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Table> {
        let mut reader = Reader::new(checked_content(bytes)?);
        if reader.take(MAGIC.len()).ok()? != MAGIC {
            return None;
        }
        let (base, end) = (reader.u64().ok()?, reader.u32().ok()?);
        let (row_count, mark_count) = (reader.u64().ok()?, reader.u64().ok()?);
        let row_bytes = usize::try_from(row_count).ok()?.checked_mul(ROW_BYTES)?;
        let mark_bytes = usize::try_from(mark_count).ok()?.checked_mul(MARK_BYTES)?;
        let rows = reader.take(row_bytes).ok()?.chunks_exact(ROW_BYTES).map(|row| Row {
            lsn_delta: u32::from_le_bytes([row[0], row[1], row[2], row[3]]),
            offset: u32::from_le_bytes([row[4], row[5], row[6], row[7]]),
            ordinal: u16::from_le_bytes([row[8], row[9]]),
            siblings: u16::from_le_bytes([row[10], row[11]]),
        });
        let rows: Vec<Row> = rows.collect();
        let mut mark_reader = Reader::new(reader.take(mark_bytes).ok()?);
        let mut marks = Vec::with_capacity(mark_bytes / MARK_BYTES);
        while !mark_reader.is_empty() {
            marks.push((mark_reader.u64().ok()?, mark_reader.u64().ok()?));
        }
        let table = Table { base, rows, marks, end };
        (reader.is_empty() && table.is_consistent()).then_some(table)
    }

    /// Whether rows and marks are in order and each entry has the number of rows that they name.
    fn is_consistent(&self) -> bool {
        let last_delta = self.rows.last().map_or(0, |row| u64::from(row.lsn_delta));
        let in_range =
            self.base > 0 && self.base.checked_add(last_delta).is_some_and(|last| last < u64::MAX);
        let same_entry = |one: &Row, other: &Row| {
            (one.lsn_delta, one.offset, one.siblings)
                == (other.lsn_delta, other.offset, other.siblings)
        };
        let mut before: Option<&Row> = None;
        for entry in self.rows.chunk_by(same_entry) {
            let first = &entry[0];
            let moved_on = before.is_none_or(|before| {
                before.offset < first.offset && before.lsn_delta < first.lsn_delta
            });
            let ordered = entry.windows(2).all(|pair| pair[0].ordinal < pair[1].ordinal);
            let whole = entry.len() == usize::from(first.siblings);
            if !(moved_on && ordered && whole && first.offset < self.end) {
                return false;
            }
            before = Some(first);
        }
        let marks_rise = self.marks.windows(2).all(|pair| pair[0] < pair[1]);
        in_range && marks_rise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(Lsn::new(10), 64);
        for (lsn, seconds, length, records) in [(10, 5, 100, 1), (11, 5, 50, 3), (14, 7, 20, 1)] {
            table.push(
                Lsn::new(lsn),
                Timestamp::from_seconds(seconds),
                length,
                (0..records).collect::<Vec<u16>>().into_iter(),
            );
        }
        table
    }

    #[test]
    fn rows_are_found_by_lsn() {
        let table = sample();
        let cases = [(0, 0), (9, 0), (10, 1), (11, 4), (12, 4), (13, 4), (14, 5), (99, 5)];
        for (lsn, expected) in cases {
            assert_eq!(table.first_after(Lsn::new(lsn)), expected, "after {lsn}");
        }
        assert_eq!(table.find(Lsn::new(11), 2), Some(3));
        assert_eq!(table.find(Lsn::new(11), 3), None);
        assert_eq!(table.find(Lsn::new(12), 0), None);
        assert_eq!(table.find(Lsn::new(9), 0), None);
        assert_eq!((table.entry_end(0), table.entry_end(1), table.entry_end(4)), (164, 214, 234));
    }

    #[test]
    fn times_are_found_by_second() {
        let table = sample();
        assert_eq!(table.first_at(0), Some(Lsn::new(10)));
        assert_eq!(table.first_at(5), Some(Lsn::new(10)));
        assert_eq!(table.first_at(6), Some(Lsn::new(14)));
        assert_eq!(table.first_at(8), None);
        let seconds = [(0, Some(5)), (10, Some(5)), (11, Some(7)), (14, None)];
        for (lsn, expected) in seconds {
            assert_eq!(table.second_after(Lsn::new(lsn)), expected, "after {lsn}");
        }
    }

    #[test]
    fn a_table_survives_its_file_and_damage_does_not() {
        let bytes = sample().encode();
        assert_eq!(Table::decode(&bytes), Some(sample()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Table::decode(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn a_forged_table_that_contradicts_itself_is_refused() {
        let change = |change: fn(&mut Table)| {
            let mut table = sample();
            change(&mut table);
            table.encode()
        };
        let forged = [
            ("offset goes back", change(|table| table.rows[4].offset = 70)),
            ("offset behind the end", change(|table| table.end = 214)),
            ("a sibling is missing", change(|table| table.rows.truncate(3))),
            ("an entry without records", change(|table| table.rows[0].siblings = 0)),
            ("an ordinal twice", change(|table| table.rows[2].ordinal = 0)),
            ("an LSN twice", change(|table| table.rows[4].lsn_delta = 1)),
            ("beyond all numbers", change(|table| table.base = u64::MAX - 2)),
            ("time goes back", change(|table| table.marks[1].0 = 4)),
        ];
        for (what, bytes) in forged {
            assert_eq!(Table::decode(&bytes), None, "{what}");
        }
    }
}
