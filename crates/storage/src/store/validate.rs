//! Whether indexes agree with rows, by a walk over both: for tests and for whoever doubts.
//!
//! ```text
//!   entry  -> a row that is there and has the entry's key; twice nowhere
//!   row    -> an entry in every index, if the row is live
//!   unique -> of all live rows with a key (no part NULL) there is one
//! ```
//! Whoever has the partition may ask at any time. A load that still enters its rows, and rows that left for another
//! partition and whose entries go one by one, are passed over.

use super::{Store, StoreIndex};
use crate::address::RowAddress;
use crate::batch::Batch;
use crate::ids::{AttributeId, RowOffset};
use crate::key::{Key, KeyEncoder};
use crate::modules::IndexScanState;
use crate::mvcc::{Word, WordKind};
use std::collections::{BTreeMap, BTreeSet};

/// Entries fetched in one go.
const ENTRIES: usize = 1_024;
/// Rows looked at in one go.
const ROWS: usize = 1_024;

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
            (0..segment.rows()).filter_map(move |offset| {
                let row = RowAddress::new(segment.number, RowOffset(offset));
                let begun = matches!(segment.begin(offset).kind(), WordKind::Timestamp(_));
                let live = begun && segment.begin(offset) != Word::NEVER && segment.end(offset) == Word::NEVER;
                (live && !segment.is_vacated(offset) && !self.is_leaving(row)).then_some(row)
            })
        })
    }

    fn check_index(&self, index: &StoreIndex) -> Result<(), String> {
        let mut entries = BTreeSet::new();
        let mut scan = IndexScanState::new(Key::lowest(), None, false);
        let mut more = true;
        while more {
            let mut found = Vec::new();
            more = index.path.scan(&mut scan, ENTRIES, &mut found);
            for row in found {
                if !entries.insert(row.to_bits()) {
                    return Err(format!("two entries for {row:?}"));
                }
                if !self.is_leaving(row) {
                    self.check_entry(index, row)?;
                }
            }
        }
        if entries.len() as u64 != index.path.entries() {
            return Err(format!("{} entries are counted, a scan finds {}", index.path.entries(), entries.len()));
        }
        self.check_live_rows(index, &entries)
    }

    /// A row's entry leads to it by its key.
    fn check_entry(&self, index: &StoreIndex, row: RowAddress) -> Result<(), String> {
        let segment =
            self.segment(row.segment()).ok_or_else(|| format!("an entry for {row:?}, whose segment is gone"))?;
        if row.offset().0 >= segment.rows() || segment.is_vacated(row.offset().0) {
            return Err(format!("an entry for {row:?}, which is not there"));
        }
        let columns = self.link_attributes(&index.definition.attributes, &[row]);
        let mut found = false;
        index.path.equal(&columns, 0, &mut |other| found |= other == row);
        if found { Ok(()) } else { Err(format!("the entry for {row:?} has another key")) }
    }

    fn check_live_rows(&self, index: &StoreIndex, entries: &BTreeSet<u64>) -> Result<(), String> {
        let mut keys: BTreeMap<Key, RowAddress> = BTreeMap::new();
        for row in self.live_rows() {
            if !entries.contains(&row.to_bits()) {
                return Err(format!("{row:?} is live and has no entry"));
            }
            let columns = self.link_attributes(&index.definition.attributes, &[row]);
            if !index.definition.unique || columns.iter().any(|column| column.is_null(0)) {
                continue;
            }
            let mut encoder = KeyEncoder::new();
            for (column, part) in columns.iter().zip(index.path.parts()) {
                encoder.push_row(column, 0, *part);
            }
            if let Some(other) = keys.insert(encoder.finish(), row) {
                return Err(format!("{other:?} and {row:?} are live and have one key"));
            }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::{ContainerId, IndexId, SchemaVersion};
    use crate::mvcc::{Outcome, Outcomes, Snapshot, StatementNumber, Timestamp, TransactionId};
    use crate::schema::{Attribute, IndexDefinition, IndexKind, Layout, Schema};
    use crate::store::{Horizon, StoreOptions};
    use crate::types::DataType;
    use crate::value::Value;
    use eris_platform::memory::MemoryPool;

    /// Everything committed at once.
    struct Committed;

    impl Outcomes for Committed {
        fn outcome(&self, _transaction: TransactionId, _statement: StatementNumber) -> Outcome {
            Outcome::Committed(Timestamp(1))
        }
    }

    /// Rows with keys 0 to 9 and a number that three of them share each.
    fn filled(kind: IndexKind) -> Store {
        let attribute = |name: &str| Attribute { name: name.into(), data_type: DataType::Int64, nullable: false };
        let index = |id, name: &str, unique| IndexDefinition {
            id: IndexId(id),
            name: name.into(),
            attributes: Box::new([AttributeId(id as u16)]),
            unique,
            primary: unique,
            kind,
        };
        let schema = Schema {
            container: ContainerId(1),
            version: SchemaVersion(1),
            attributes: Box::new([attribute("key"), attribute("number")]),
            indexes: Box::new([index(0, "by_key", true), index(1, "by_number", false)]),
            layout: Layout::Row,
            physical: None,
            segment_rows: 4,
        };
        let mut store = Store::new(StoreOptions::new(Arc::new(schema), MemoryPool::unlimited()));
        let (transaction, statement) = (TransactionId(7), StatementNumber(1));
        let snapshot = Snapshot { visible: Timestamp(0), transaction, statement, outcomes: &Committed };
        for key in 0..10 {
            let row = vec![Value::Int64(key), Value::Int64(key / 3)];
            store.insert(&snapshot, &Batch::from_rows(&[DataType::Int64; 2], &[row])).unwrap();
        }
        store.maintain(&Horizon { oldest: Timestamp(1), outcomes: &Committed }, 1_000);
        store
    }

    fn wrong(store: &Store) -> String {
        store.check_indexes().expect_err("an index disagrees with the rows")
    }

    #[test]
    fn indexes_that_agree_with_the_rows_pass() {
        for kind in [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted] {
            let store = filled(kind);
            assert_eq!((store.check_indexes(), store.check_quiet()), (Ok(()), Ok(())));
        }
    }

    #[test]
    fn a_row_without_an_entry_is_found() {
        for kind in [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted] {
            let mut store = filled(kind);
            let row = RowAddress::new(crate::ids::SegmentNumber(1), RowOffset(2));
            let columns = store.link_attributes(&[AttributeId(1)], &[row]);
            assert!(store.index_at_mut(1).path.remove(&columns, 0, row));
            assert!(wrong(&store).contains("is live and has no entry"), "{}", wrong(&store));
        }
    }

    #[test]
    fn an_entry_under_another_key_is_found() {
        for kind in [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted] {
            let mut store = filled(kind);
            let row = RowAddress::new(crate::ids::SegmentNumber(0), RowOffset(0));
            let other = RowAddress::new(crate::ids::SegmentNumber(2), RowOffset(0));
            let columns = store.link_attributes(&[AttributeId(1)], &[row, other]);
            let path = &mut store.index_at_mut(1).path;
            assert!(path.remove(&columns, 0, row));
            path.insert(&columns, 1, row).unwrap();
            assert!(wrong(&store).contains("has another key"), "{}", wrong(&store));
        }
    }

    #[test]
    fn an_entry_for_a_row_that_is_gone_is_found() {
        let mut store = filled(IndexKind::Ordered);
        let row = RowAddress::new(crate::ids::SegmentNumber(1), RowOffset(2));
        store.segment_mut(row.segment()).unwrap().vacate(2);
        assert!(wrong(&store).contains("which is not there"), "{}", wrong(&store));
    }

    #[test]
    fn a_key_of_two_rows_is_found() {
        let mut store = filled(IndexKind::Ordered);
        let rows = Batch::from_rows(&[DataType::Int64; 2], &[vec![Value::Int64(3), Value::Int64(1)]]);
        // As a copy from another store, which nobody checks.
        let words = [(Word::timestamp(Timestamp(1)), Word::NEVER)];
        store.take_rows(&rows, &words).unwrap();
        assert!(wrong(&store).contains("are live and have one key"), "{}", wrong(&store));
    }

    #[test]
    fn what_a_transaction_left_behind_is_found() {
        let mut store = filled(IndexKind::Ordered);
        store.pending.enter(TransactionId(9));
        assert_eq!(store.check_quiet(), Err("words of transactions remain".to_owned()));
    }

    #[test]
    fn a_schema_whose_index_was_not_built_changes_nothing() {
        let mut store = filled(IndexKind::Ordered);
        let before = Arc::clone(store.schema());
        let mut indexes = before.indexes.to_vec();
        indexes.push(IndexDefinition { id: IndexId(2), name: "new".into(), ..indexes[1].clone() });
        let next = Schema { version: SchemaVersion(2), indexes: indexes.into(), ..(*before).clone() };
        assert!(store.set_schema(Arc::new(next)).is_err());
        assert_eq!((store.schema().version, store.indexes.len()), (SchemaVersion(1), 2));
        assert_eq!(store.check_indexes(), Ok(()));
    }
}
