//! Commands in place: a task that has nothing in flight runs a command synchronously on a partition of its own node,
//! when it gets the latch at once and nothing waits in the inbox (DESIGN 4.8). `None` or false means:
//! send a message instead.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use eris_storage::{Batch, Gateway, Key, PackedRows, ReadCursor, ReadRequest, RowAddress, RowLock};
use eris_sync::Guard;

use super::{Transaction, group_by_partition};
use crate::container::Container;
use crate::counters::Event;
use crate::error::EngineError;
use crate::operator::{RowChange, RowFilter};
use crate::partition::{
    LivingPartition, Partition, PartitionState, Quantum, contain_panic, is_own_position, write_registered,
};
use crate::partition_table::Partitioning;
use crate::runtime::current_node;

/// More rows than this are sent, so that a task keeps a partition about as long as a message would.
const INSERT_ROWS_MAX: usize = 128;
/// More rows than this are no point access: they are read as batches.
const READ_ROWS_MAX: usize = 64;

impl Transaction {
    /// The latch of a partition that a command may run on right here.
    fn latch_in_place<'p>(
        &self,
        partition: &'p LivingPartition,
        position: Option<&Key>,
    ) -> Option<Guard<'p, PartitionState>> {
        if !self.runtime.options.in_place
            || self.streams.load(Ordering::Relaxed) > 0
            || current_node() != Some(partition.home())
        {
            return None;
        }
        let state = partition.try_in_place()?;
        // It may have split since the table was read.
        position.is_none_or(|position| state.bounds.contains(position)).then_some(state)
    }

    fn check_cancelled(&self) -> Result<(), EngineError> {
        if self.cancel.is_cancelled() { Err(EngineError::Cancelled) } else { Ok(()) }
    }

    pub(super) fn insert_in_place(&self, container: &Container, rows: &Batch) -> Result<bool, EngineError> {
        self.check_cancelled()?;
        if rows.rows == 0 {
            return Ok(true);
        }
        if rows.rows > INSERT_ROWS_MAX {
            return Ok(false);
        }
        let table = container.table();
        let mut groups = group_by_partition(container, &table, rows.clone());
        if groups.len() != 1 {
            return Ok(false);
        }
        let Some((partition, rows)) = groups.pop() else { unreachable!("one group") };
        let position = table.partitioning.has_positions().then(|| table.partitioning.position_of_row(&rows, 0));
        let Some(mut state) = self.latch_in_place(&partition, position.as_ref()) else { return Ok(false) };
        if rows.rows > 1 && !all_own(&table.partitioning, &state, &rows) {
            return Ok(false);
        }
        let snapshot = Arc::clone(&self.snapshot);
        write_registered(&self.runtime, &partition, &mut state, self.hold.object(), |state| {
            state.store.insert(&snapshot.snapshot(), &rows)
        })?;
        self.runtime.counters.add(Event::InPlace, 1);
        Ok(true)
    }

    pub(super) fn read_in_place(
        &self,
        container: &Container,
        request: &ReadRequest,
    ) -> Result<Option<Vec<Batch>>, EngineError> {
        self.check_cancelled()?;
        let Some((partition, position)) = Self::target(container, request) else { return Ok(None) };
        let Some(mut state) = self.latch_in_place(&partition, Some(&position)) else { return Ok(None) };
        let mut batches = Vec::new();
        let complete = self.each_batch(&mut state, request, |gateway| batches.push(gateway.batch))?;
        // A read that takes longer than a quantum starts again as a message, which saves its cursor.
        Ok(complete.then(|| {
            self.runtime.counters.add(Event::InPlace, 1);
            batches
        }))
    }

    /// Reads a few rows row-wise; false if they have to be sent for.
    pub(super) fn read_rows_in_place(
        &self,
        container: &Container,
        request: &ReadRequest,
        rows: &mut PackedRows,
    ) -> Result<bool, EngineError> {
        self.check_cancelled()?;
        let Some((partition, position)) = Self::target(container, request) else { return Ok(false) };
        let Some(mut state) = self.latch_in_place(&partition, Some(&position)) else { return Ok(false) };
        let snapshot = self.snapshot.snapshot();
        let read = contain_panic(|| Ok(state.store.read_rows(&snapshot, request, READ_ROWS_MAX, rows)?))?;
        if read {
            self.runtime.counters.add(Event::InPlace, 1);
        }
        Ok(read)
    }

    pub(super) fn update_in_place(
        &self,
        container: &Container,
        request: &ReadRequest,
        change: &dyn RowChange,
        written: &mut u64,
    ) -> Result<bool, EngineError> {
        self.change_in_place(container, request, |partition, state, gateway| {
            let new = contain_panic(|| change.apply(&gateway.batch))?;
            let addresses = chosen_addresses(gateway, new.rows.as_deref());
            if !addresses.is_empty() {
                let update = write_registered(&self.runtime, partition, state, self.hold.object(), |state| {
                    state.store.update(&self.snapshot.snapshot(), &addresses, &new.attributes, &new.values)
                })?;
                *written += update.rows;
            }
            Ok(())
        })
    }

    pub(super) fn delete_in_place(
        &self,
        container: &Container,
        request: &ReadRequest,
        filter: Option<&dyn RowFilter>,
        written: &mut u64,
    ) -> Result<bool, EngineError> {
        self.change_in_place(container, request, |partition, state, gateway| {
            let rows = filter.map(|filter| contain_panic(|| filter.select(&gateway.batch))).transpose()?;
            let addresses = chosen_addresses(gateway, rows.as_deref());
            if !addresses.is_empty() {
                let delete = write_registered(&self.runtime, partition, state, self.hold.object(), |state| {
                    state.store.delete(&self.snapshot.snapshot(), &addresses)
                })?;
                *written += delete.rows;
            }
            Ok(())
        })
    }

    pub(super) fn lock_in_place(
        &self,
        container: &Container,
        request: &ReadRequest,
        lock: RowLock,
        skip_locked: bool,
        batches: &mut Vec<Batch>,
    ) -> Result<bool, EngineError> {
        self.change_in_place(container, request, |partition, state, gateway| {
            let locked = write_registered(&self.runtime, partition, state, self.hold.object(), |state| {
                state.store.lock_rows(&self.snapshot.snapshot(), &gateway.addresses, lock, skip_locked)
            })?;
            batches.push(gateway.batch.take(&locked.rows));
            Ok(())
        })
    }

    /// Finds the rows of a change first, so that giving up for lack of time is possible until the first write; false if
    /// the command has to be sent.
    fn change_in_place(
        &self,
        container: &Container,
        request: &ReadRequest,
        mut change: impl FnMut(&LivingPartition, &mut PartitionState, &Gateway) -> Result<(), EngineError>,
    ) -> Result<bool, EngineError> {
        self.check_cancelled()?;
        let Some((partition, position)) = Self::target(container, request) else { return Ok(false) };
        let Some(mut state) = self.latch_in_place(&partition, Some(&position)) else { return Ok(false) };
        let mut found = Vec::new();
        let complete = self.each_batch(&mut state, request, |gateway| found.push(gateway))?;
        if !complete {
            return Ok(false);
        }
        for gateway in &found {
            change(&partition, &mut state, gateway)?;
        }
        self.runtime.counters.add(Event::InPlace, 1);
        Ok(true)
    }

    /// The one partition that the predicate names.
    fn target(container: &Container, request: &ReadRequest) -> Option<(Partition, Key)> {
        let table = container.table();
        let position = table.partitioning.position_of_predicate(&container.schema(), &request.predicate)?;
        Some((Arc::clone(table.find(&position)), position))
    }

    /// Visits the batches of a request; false if it took longer than a quantum.
    fn each_batch(
        &self,
        state: &mut PartitionState,
        request: &ReadRequest,
        mut take: impl FnMut(Gateway),
    ) -> Result<bool, EngineError> {
        let quantum = Quantum::start(&self.runtime);
        let mut cursor: ReadCursor = state.store.open_cursor(request)?;
        let snapshot = self.snapshot.snapshot();
        let result = loop {
            let next = contain_panic(|| Ok(state.store.next_batch(&snapshot, &mut cursor)?));
            match next {
                Ok(Some(gateway)) if gateway.batch.rows == 0 => {}
                Ok(Some(gateway)) => take(gateway),
                Ok(None) => break Ok(true),
                Err(error) => break Err(error),
            }
            if quantum.is_over() {
                break Ok(false);
            }
        };
        state.store.close_cursor(cursor);
        result
    }
}

fn chosen_addresses(gateway: &Gateway, rows: Option<&[u32]>) -> Vec<RowAddress> {
    match rows {
        None => gateway.addresses.to_vec(),
        Some(rows) => rows.iter().map(|row| gateway.addresses[*row as usize]).collect(),
    }
}

fn all_own(partitioning: &Partitioning, state: &PartitionState, rows: &Batch) -> bool {
    !partitioning.has_positions()
        || (0..rows.rows).all(|row| is_own_position(state, &partitioning.position_of_row(rows, row)))
}
