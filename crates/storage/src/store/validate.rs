//! Whether indexes agree with rows, by a walk over both: for tests and for whoever doubts.
//!
//! ```text
//!   entry  -> a row that is there and has the entry's key; twice nowhere
//!   row    -> an entry in every index, if the row is live
//!   unique -> of all live rows with a key (no part NULL) there is one
//! ```
//! Whoever has the partition may ask at any time. A load that still enters its rows, and rows that left for another
//! partition and whose entries go one by one, are passed over.

#[cfg(test)]
mod tests;

use super::{Store, StoreIndex};
use crate::address::RowAddress;
use crate::batch::{Batch, Column};
use crate::ids::{AttributeId, RowOffset};
use crate::key::{Key, KeyEncoder};
use crate::modules::IndexScanState;
use crate::mvcc::{Word, WordKind};
use crate::segment::Segment;
use std::collections::BTreeMap;

/// Entries fetched in one go.
const ENTRIES: usize = 1_024;
/// Rows looked at in one go.
const ROWS: usize = 1_024;

/// The key whose entries a scan is at, and all rows that a search for it finds.
#[derive(Default)]
struct EntriesOfKey {
    key: Option<Box<[u8]>>,
    /// Ascending.
    rows: Vec<u64>,
}

impl Store {
    /// Says what is wrong with an index, if anything is.
    pub fn check_indexes(&self) -> Result<(), String> {
        for index in &self.indexes {
            self.check_index(index).map_err(|wrong| format!("index {}: {wrong}", index.definition.name))?;
        }
        Ok(())
    }

    /// Says what transactions and readers left behind, if they left anything: for a store that nobody uses and whose
    /// maintenance had its time.
    pub fn check_quiet(&self) -> Result<(), String> {
        let remains = [
            ("words of transactions", !self.pending.is_empty()),
            ("row locks", !self.row_locks.is_empty()),
            ("a handover", self.split.is_some()),
            ("rows of another store", self.absorbing),
            ("an unfinished load", !self.attaching.is_empty()),
            ("an unfinished index", !self.building.is_empty()),
            ("rows that left", !self.departed.is_empty()),
            ("saved cursors", self.has_saved_cursors()),
            ("bytes for words of transactions", self.pending.reserved_bytes() > 0),
            ("bytes for row locks", self.row_locks.reserved_bytes() > 0),
        ];
        match remains.iter().find(|(_, remains)| *remains) {
            None => Ok(()),
            Some((what, _)) => Err(format!("{what} remain")),
        }
    }

    /// Hands out all live rows with all attributes, until somebody finds something wrong with them.
    pub fn check_rows(&self, mut check: impl FnMut(&Batch) -> Result<(), String>) -> Result<(), String> {
        let attributes: Vec<AttributeId> = (0..self.schema.attributes.len() as u16).map(AttributeId).collect();
        let mut rows = self.live_rows();
        loop {
            let some: Vec<RowAddress> = rows.by_ref().take(ROWS).collect();
            if some.is_empty() {
                return Ok(());
            }
            check(&Batch { columns: self.link_attributes(&attributes, &some).into(), rows: some.len() })?;
        }
    }

    /// The newest versions of rows that were committed.
    fn live_rows(&self) -> impl Iterator<Item = RowAddress> {
        let segments = self.live_segments().filter(|segment| !self.attaching.contains(&segment.number));
        segments.flat_map(move |segment| {
            let live = move |offset: &u32| self.is_live(segment, *offset);
            let rows = (0..segment.rows()).filter(live);
            rows.map(|offset| RowAddress::new(segment.number, RowOffset(offset)))
        })
    }

    fn is_live(&self, segment: &Segment, offset: u32) -> bool {
        let begun = matches!(segment.begin(offset).kind(), WordKind::Timestamp(_));
        let live = begun && segment.begin(offset) != Word::NEVER && segment.end(offset) == Word::NEVER;
        live && !segment.is_vacated(offset) && !self.is_leaving(RowAddress::new(segment.number, RowOffset(offset)))
    }

    /// Costs n log n of the entries, however often a key repeats: a scan gives the entries of one key one after the
    /// other, so each key is searched once, and what is found is compared with all of its entries. An entry under
    /// another key than its row's stands between entries of that other key; it is refused where it stands, so that no
    /// key is searched a second time.
    fn check_index(&self, index: &StoreIndex) -> Result<(), String> {
        let mut entries = Vec::new();
        let mut scan = IndexScanState::new(Key::lowest(), None, false);
        let mut more = true;
        let mut of_key = EntriesOfKey::default();
        while more {
            let mut found = Vec::new();
            more = index.path.scan(&mut scan, ENTRIES, &mut found);
            entries.extend(found.iter().map(|row| row.to_bits()));
            found.retain(|row| !self.is_leaving(*row));
            self.check_entries(index, &found, &mut of_key)?;
        }
        entries.sort_unstable();
        if let Some(twice) = entries.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two entries for {:?}", RowAddress::from_bits(twice[0])));
        }
        if entries.len() as u64 != index.path.entries() {
            return Err(format!("{} entries are counted, a scan finds {}", index.path.entries(), entries.len()));
        }
        match self.live_rows().find(|row| entries.binary_search(&row.to_bits()).is_err()) {
            Some(row) => Err(format!("{row:?} is live and has no entry")),
            None => self.check_keys_differ(index),
        }
    }

    /// Each row's entry leads to it by its key.
    fn check_entries(&self, index: &StoreIndex, rows: &[RowAddress], of_key: &mut EntriesOfKey) -> Result<(), String> {
        for row in rows {
            let segment =
                self.segment(row.segment()).ok_or_else(|| format!("an entry for {row:?}, whose segment is gone"))?;
            if row.offset().0 >= segment.rows() || segment.is_vacated(row.offset().0) {
                return Err(format!("an entry for {row:?}, which is not there"));
            }
        }
        self.for_each_key(index, rows, |row, columns, place, key| {
            if of_key.key.as_deref() != Some(key) {
                of_key.key = Some(key.into());
                of_key.rows.clear();
                index.path.equal(columns, place, &mut |other| of_key.rows.push(other.to_bits()));
                of_key.rows.sort_unstable();
            }
            match of_key.rows.binary_search(&row.to_bits()) {
                Ok(_) => Ok(()),
                Err(_) => Err(format!("the entry for {row:?} has another key")),
            }
        })
    }

    /// Of the live rows of a unique index no two have one key, unless a part of it is NULL.
    fn check_keys_differ(&self, index: &StoreIndex) -> Result<(), String> {
        if !index.definition.unique {
            return Ok(());
        }
        let mut keys: BTreeMap<Box<[u8]>, RowAddress> = BTreeMap::new();
        let mut rows = self.live_rows();
        loop {
            let some: Vec<RowAddress> = rows.by_ref().take(ROWS).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.for_each_key(index, &some, |row, columns, place, key| {
                if columns.iter().any(|column| column.is_null(place)) {
                    return Ok(());
                }
                match keys.insert(key.into(), row) {
                    Some(other) => Err(format!("{other:?} and {row:?} are live and have one key")),
                    None => Ok(()),
                }
            })?;
        }
    }

    /// Calls `visit` with each of the rows, the index's attributes of some of them and the row's place there, and its
    /// key's bytes. The attributes are read in the order of addresses, which is much faster than in that of keys.
    fn for_each_key(
        &self,
        index: &StoreIndex,
        rows: &[RowAddress],
        mut visit: impl FnMut(RowAddress, &[Column], usize, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut places: Vec<usize> = (0..rows.len()).collect();
        places.sort_unstable_by_key(|place| rows[*place].to_bits());
        let by_address: Vec<RowAddress> = places.iter().map(|place| rows[*place]).collect();
        let columns = self.link_attributes(&index.definition.attributes, &by_address);
        let mut place_of = vec![0; rows.len()];
        for (at, place) in places.into_iter().enumerate() {
            place_of[place] = at;
        }
        let mut encoder = KeyEncoder::new();
        for (row, place) in rows.iter().zip(place_of) {
            encoder.clear();
            for (column, part) in columns.iter().zip(index.path.parts()) {
                encoder.push_row(column, place, *part);
            }
            visit(*row, &columns, place, encoder.as_bytes())?;
        }
        Ok(())
    }

    /// Whether the row left for another store and its entries here are being removed.
    fn is_leaving(&self, row: RowAddress) -> bool {
        self.departed.iter().any(|departed| {
            departed.number == row.segment() && departed.moved.as_ref().is_none_or(|moved| moved.has(row.offset().0))
        })
    }
}
