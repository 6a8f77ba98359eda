//! Commands that change rows under a cursor: update, delete, row locks.
//!
//! A batch is found, then written; a batch that meets somebody undecided leaves nothing behind, and the dataflow tells
//! its task for whom to wait. Rows that a statement has changed before, in an earlier attempt, are passed over.

use std::sync::Arc;

use eris_storage::{AttributeId, Batch, Gateway, PartitionId, RowAddress, RowLock};

use super::command::Progress;
use super::execute::{Place, Quantum, Step, kept};
use super::forward::is_own_position;
use super::panics::contain_panic;
use crate::counters::Event;
use crate::dataflow::{Attachment, Work};
use crate::error::EngineError;
use crate::ids::OperatorIndex;
use crate::message::{Header, Message, Primitive};
use crate::operator::{RowChange, RowFilter};

/// What an update asks for.
#[derive(Clone, Copy)]
struct Update<'a> {
    change: &'a dyn RowChange,
    moved_rows: OperatorIndex,
    returning: Option<&'a [AttributeId]>,
}

impl Place<'_> {
    pub(super) fn change(&mut self, progress: Progress, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        let Progress::Changing { mut cursor, within } = progress else { unreachable!("a change changes") };
        let dataflow = Arc::clone(&self.dataflow);
        let snapshot = dataflow.snapshot();
        let result = loop {
            if dataflow.is_over() {
                break Ok(None);
            }
            let work = &dataflow.operator(self.header.operator).work;
            if matches!(work, Work::Lock { .. }) && !dataflow.has_room(self.partition.id) {
                return Ok(Step::NoRoom(Progress::Changing { cursor, within }));
            }
            // While a change of bounds waits for saved cursors the rows that are on the way may wait for that change.
            if matches!(work, Work::Update { .. }) && !dataflow.has_credit() && !self.state.is_draining() {
                self.runtime.counters.add(Event::CreditWaits, 1);
                return Ok(Step::Waits(Progress::Changing { cursor, within }));
            }
            // The log is slower than this change: what was noted for it waits in memory.
            if dataflow.waits_for_log(self.runtime) {
                return Ok(Step::Waits(Progress::Changing { cursor, within }));
            }
            let next = match self.state.store.next_batch(&snapshot, &mut cursor) {
                Ok(next) => next,
                Err(error) => break Err(error.into()),
            };
            let Some(gateway) = kept(next, within.as_ref()) else { break Ok(None) };
            let changed = match work {
                Work::Update { change, moved_rows, returning, .. } => {
                    let update = Update { change: &**change, moved_rows: *moved_rows, returning: returning.as_deref() };
                    self.update_rows(&update, &gateway.batch, &gateway.addresses)
                }
                Work::Delete { filter, inputs, .. } => {
                    self.delete_rows(filter.as_deref(), *inputs, &gateway.batch, &gateway.addresses)
                }
                Work::Lock { lock, skip_locked, .. } => self.lock_rows(*lock, *skip_locked, &gateway),
                Work::Read { .. }
                | Work::Lookup { .. }
                | Work::LockKeys { .. }
                | Work::Probe
                | Work::Insert
                | Work::Attach
                | Work::Pin { .. }
                | Work::BuildIndex { .. }
                | Work::Alter { .. }
                | Work::SetLayout { .. } => unreachable!("only updates, deletes and row locks go by a change's cursor"),
            };
            match changed {
                Ok(rows) => dataflow.add_rows_affected(rows),
                Err(error) => match error.undecided() {
                    Some(holder) => {
                        dataflow.block(holder);
                        break Ok(None);
                    }
                    None => break Err(error),
                },
            }
            if quantum.is_over() {
                break Ok(Some(()));
            }
        };
        match result {
            Ok(Some(())) => Ok(Step::Again(Progress::Changing { cursor, within })),
            Ok(None) => {
                self.state.store.close_cursor(cursor);
                Ok(Step::Done)
            }
            Err(error) => {
                self.state.store.close_cursor(cursor);
                Err(error)
            }
        }
    }

    fn delete_rows(
        &mut self,
        filter: Option<&dyn RowFilter>,
        inputs: usize,
        batch: &Batch,
        addresses: &[RowAddress],
    ) -> Result<u64, EngineError> {
        let rows: Vec<u32> = match filter {
            None => (0..batch.rows as u32).collect(),
            Some(filter) => {
                let seen = Batch { columns: batch.columns[..inputs].into(), rows: batch.rows };
                contain_panic(|| filter.select(&seen))?
            }
        };
        if rows.is_empty() {
            return Ok(0);
        }
        let chosen: Vec<RowAddress> = rows.iter().map(|row| addresses[*row as usize]).collect();
        let dataflow = Arc::clone(&self.dataflow);
        self.state.resized = true;
        let noting = dataflow.noting(self.runtime, &self.header);
        let deleted = self.write(|state| noting.delete(&mut state.store, &dataflow.snapshot(), &chosen))?;
        if batch.columns.len() > inputs {
            let rows: Vec<u32> = deleted.iter().map(|row| rows[*row as usize]).collect();
            let told = batch.columns[inputs..].iter().map(|column| column.take(&rows));
            dataflow.emit(Batch { columns: told.collect(), rows: rows.len() })?;
        }
        Ok(deleted.len() as u64)
    }

    fn lock_rows(&mut self, lock: RowLock, skip: bool, gateway: &Gateway) -> Result<u64, EngineError> {
        if gateway.addresses.is_empty() {
            return Ok(0);
        }
        let dataflow = Arc::clone(&self.dataflow);
        let locked = self.write(|state| state.store.lock_rows(&dataflow.snapshot(), &gateway.addresses, lock, skip))?;
        dataflow.emit(gateway.batch.take(&locked.rows))?;
        Ok(locked.rows.len() as u64)
    }

    /// Writes new versions. Rows whose new position lies elsewhere are deleted here and sent there.
    fn update_rows(
        &mut self,
        update: &Update<'_>,
        batch: &Batch,
        addresses: &[RowAddress],
    ) -> Result<u64, EngineError> {
        let Update { change, moved_rows, returning } = *update;
        // A request that may move rows is extended by all attributes behind those that the change asked for.
        let schema = Arc::clone(self.state.store.schema());
        let attribute_count = schema.attributes.len();
        let inputs = change.inputs();
        let moving = batch.columns.len() > inputs;
        if moving && batch.columns.len() != inputs + attribute_count {
            // The request was made when a row had fewer attributes.
            return Err(EngineError::SchemaMoved);
        }
        let seen = Batch { columns: batch.columns[..inputs].into(), rows: batch.rows };
        let new = contain_panic(|| change.apply(&seen))?;
        let chosen: Vec<u32> = new.rows.unwrap_or_else(|| (0..batch.rows as u32).collect());
        assert_eq!(chosen.len(), new.values.rows, "a change has one row of values a changed row");
        if chosen.is_empty() {
            return Ok(0);
        }
        let addresses: Vec<RowAddress> = chosen.iter().map(|row| addresses[*row as usize]).collect();
        let dataflow = Arc::clone(&self.dataflow);
        let mut staying: Vec<u32> = Vec::new();
        let mut leaving: Vec<u32> = Vec::new();
        let mut full_rows = Batch::empty(&[]);
        if moving {
            let mut columns: Vec<_> = batch.columns[inputs..].iter().map(|column| column.take(&chosen)).collect();
            for (attribute, column) in new.attributes.iter().zip(&new.values.columns) {
                columns[attribute.0 as usize] = column.clone();
            }
            full_rows = Batch { columns: columns.into(), rows: chosen.len() };
            let partitioning = &dataflow.operator(self.header.operator).table.partitioning;
            for row in 0..chosen.len() {
                let position = partitioning.position_of_row(&full_rows, row);
                let list = if is_own_position(self.state, &position) { &mut staying } else { &mut leaving };
                list.push(row as u32);
            }
        } else {
            staying.extend(0..chosen.len() as u32);
        }
        let pick = |rows: &[u32]| rows.iter().map(|row| addresses[*row as usize]).collect::<Vec<_>>();
        let values = if leaving.is_empty() { new.values } else { new.values.take(&staying) };
        self.state.resized = true;
        let noting = dataflow.noting(self.runtime, &self.header);
        let (taken, stayed) = self.write(|state| {
            let taken = match &leaving[..] {
                [] => Vec::new(),
                leaving => noting.delete(&mut state.store, &dataflow.snapshot(), &pick(leaving))?,
            };
            // What this statement sent away before is sent once.
            let taken: Vec<u32> = taken.iter().map(|row| leaving[*row as usize]).collect();
            if staying.is_empty() {
                return Ok((taken, Vec::new()));
            }
            match noting.update(&mut state.store, &dataflow.snapshot(), &pick(&staying), &new.attributes, &values) {
                Ok(stayed) => Ok((taken, stayed.iter().map(|row| staying[*row as usize]).collect::<Vec<_>>())),
                Err(error) => {
                    if error.undecided().is_some() && !taken.is_empty() {
                        state.store.put_rows_back(&dataflow.snapshot(), &pick(&taken));
                        let back: Vec<u32> = taken.iter().map(|row| chosen[*row as usize]).collect();
                        let columns = batch.columns[inputs..].iter().map(|column| column.take(&back)).collect();
                        let back = Batch { columns, rows: back.len() };
                        noting.inserted(state.store.schema(), &dataflow.snapshot(), &back)?;
                    }
                    Err(error)
                }
            }
        })?;
        let written = (stayed.len() + taken.len()) as u64;
        if let Some(returning) = returning {
            // Positions among the chosen rows, and where these are in the batch.
            let told: Vec<u32> = stayed.iter().chain(&taken).copied().collect();
            let source: Vec<u32> = told.iter().map(|row| chosen[*row as usize]).collect();
            let old = returning.iter().map(|id| batch.columns[inputs + id.index()].take(&source));
            let new = returning.iter().map(|id| full_rows.columns[id.index()].take(&told));
            dataflow.emit(Batch { columns: old.chain(new).collect(), rows: told.len() })?;
        }
        self.send_moved_rows(moved_rows, &full_rows, &taken)?;
        Ok(written)
    }

    /// Rows go to the partitions that own their new positions, all rows of one in one message.
    fn send_moved_rows(&self, operator: OperatorIndex, rows: &Batch, taken: &[u32]) -> Result<(), EngineError> {
        let table = &self.dataflow.operator(operator).table;
        let mut targets: Vec<(PartitionId, Vec<u32>)> = Vec::new();
        for row in taken {
            let owner = table.find(&table.partitioning.position_of_row(rows, *row as usize)).id;
            match targets.iter_mut().find(|(target, _)| *target == owner) {
                Some((_, rows)) => rows.push(*row),
                None => targets.push((owner, vec![*row])),
            }
        }
        for (target, leaving) in targets {
            let attachment = self.dataflow.attach(Attachment::Rows(rows.take(&leaving)))?;
            let header = Header {
                primitive: Primitive::Insert,
                operator,
                target: Some(target),
                table_version: table.version,
                forwarded: false,
                range: None,
                ..self.header
            };
            self.dataflow.count_sends(1);
            self.runtime.send(&Message::new(header, &[&attachment.to_le_bytes()]));
        }
        Ok(())
    }
}
