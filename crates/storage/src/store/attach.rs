//! Bulk load: a segment built outside of the partition is registered, and its rows enter the indexes in quanta. Until
//! the transaction commits, the one begin word of the segment hides all of it.

use super::Store;
use super::transactions::{Locked, Locks};
use super::write::{Progress, Written};
use crate::address::RowAddress;
use crate::batch::{Column, ColumnBuilder};
use crate::error::StorageError;
use crate::ids::{RowOffset, SegmentNumber};
use crate::mvcc::{Snapshot, Word};
use crate::segment::{DeleteMap, SealedSegment, Segment, State};
use std::sync::Arc;

/// How far an attach is.
#[derive(Debug, Default)]
pub struct AttachCursor {
    started: Option<Started>,
}

#[derive(Debug)]
struct Started {
    number: SegmentNumber,
    written: Written,
    /// For each index the rows in key order; none: as they lie.
    orders: Option<Vec<Box<[u32]>>>,
    index: usize,
    row: usize,
}

/// Rows entered into an index in one go.
const ENTER_ROWS: usize = 512;

impl Store {
    /// Registers a sealed segment; call until done, with the same cursor. If it fails, the statement must be rolled
    /// back, or the attach be abandoned ([`Store::abandon_attach`]).
    pub fn attach(
        &mut self,
        snapshot: &Snapshot<'_>,
        segment: &Arc<SealedSegment>,
        cursor: &mut AttachCursor,
        rows_budget: usize,
    ) -> Result<Progress<Written>, StorageError> {
        let started = match &mut cursor.started {
            Some(started) => started,
            none @ None => none.insert(self.start_attach(snapshot, segment)?),
        };
        let rows = segment.rows() as usize;
        let mut budget = rows_budget;
        while started.index < self.index_count() {
            while started.row < rows {
                if budget == 0 {
                    return Ok(Progress::More);
                }
                let until = rows.min(started.row + ENTER_ROWS.min(budget));
                let order = started.orders.as_ref().and_then(|orders| orders.get(started.index));
                let offsets: Vec<u32> = match order {
                    Some(order) => order[started.row..until].to_vec(),
                    None => (started.row as u32..until as u32).collect(),
                };
                self.enter_attached(snapshot, segment, started.number, started.index, &offsets)?;
                budget -= until - started.row;
                started.row = until;
            }
            started.index += 1;
            started.row = 0;
        }
        self.attaching.remove(&started.number);
        self.counters.attached += 1;
        Ok(Progress::Done(started.written))
    }

    /// Takes an attach back that met somebody undecided: its rows never were, and the segment is dropped when their
    /// index entries are gone. The same rows may be attached again, in another segment.
    pub fn abandon_attach(&mut self, cursor: &AttachCursor) {
        let Some(number) = cursor.started.as_ref().map(|started| started.number) else { return };
        self.attaching.remove(&number);
        let Some(slot) = self.segment_mut(number) else { return };
        let rows = slot.rows();
        let State::Sealed { begin, .. } = &mut slot.state else {
            unreachable!("an attached segment stays sealed until its attach is decided");
        };
        *begin = Word::NEVER;
        self.void_segment(number, rows);
        self.candidates.insert(number);
        self.note_segment_change(number);
    }

    fn start_attach(&mut self, snapshot: &Snapshot<'_>, segment: &Arc<SealedSegment>) -> Result<Started, StorageError> {
        self.check_attributes(segment)?;
        let directory = Segment::directory(&self.memory, self.schema.attributes.len())?;
        self.pending.reserve(1)?;
        let first_of_transaction = self.pending.enter(snapshot.transaction);
        let number = self.next_number();
        let state = State::Sealed {
            segment: Arc::clone(segment),
            begin: snapshot.lock(),
            deletes: Arc::new(DeleteMap::new(&self.memory, segment.rows())),
        };
        let mut slot = Segment::new(number, state, segment.rows(), directory);
        slot.locks = 1;
        self.add_segment(slot);
        self.attaching.insert(number);
        self.usage.attached(segment);
        let first = RowAddress::new(number, RowOffset(0));
        self.pending.add(snapshot.transaction, Locks::of(first, Locked::Segment));
        let written = Written { rows: u64::from(segment.rows()), first_of_transaction };
        Ok(Started { number, written, orders: segment.take_orders(), index: 0, row: 0 })
    }

    fn enter_attached(
        &mut self,
        snapshot: &Snapshot<'_>,
        segment: &SealedSegment,
        number: SegmentNumber,
        position: usize,
        offsets: &[u32],
    ) -> Result<(), StorageError> {
        let definition = &self.index_at(position).definition;
        let unique = definition.unique;
        let columns = definition.attributes.iter().map(|id| {
            let mut out = ColumnBuilder::with_capacity(self.schema.attributes[id.index()].data_type, offsets.len());
            segment.path().link(*id, offsets, &mut out);
            out.finish()
        });
        let columns: Vec<Column> = columns.collect();
        for (row, offset) in offsets.iter().enumerate() {
            let address = RowAddress::new(number, RowOffset(*offset));
            let inserted = self.index_at_mut(position).path.insert(&columns, row, address)?;
            if unique && inserted.key_shared {
                self.check_unique(snapshot, position, &columns, row, address)?;
            }
        }
        Ok(())
    }
}
