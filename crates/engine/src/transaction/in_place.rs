//! Commands in place: a task that has nothing in flight runs a command synchronously on a partition of its own node,
//! when it gets the latch and nothing as urgent waits there. (DESIGN 4.8 asks for an empty inbox; scans and loads may
//! be overtaken, as messages for point accesses overtake them.)
//!
//! A message costs several point accesses. So a task that finds somebody at the partition lets others of its worker go
//! first, a few times, before it sends one; and one that finds messages of others there serves those first, for a
//! quantum. Otherwise all would have to be sent while one is in the inbox, and a load that is easily served in place
//! would never get out of a backlog that some pause has left.

use std::sync::Arc;

use eris_storage::{Batch, Gateway, Key, PackedRows, ReadCursor, ReadRequest, RowAddress, RowLock, SchemaVersion};
use eris_sync::Guard;

use super::{Transaction, group_by_partition};
use crate::cancel::CancelHandle;
use crate::container::Container;
use crate::counters::Event;
use crate::error::EngineError;
use crate::near::ContainerView;
use crate::operator::{RowChange, RowFilter};
use crate::partition::{
    LivingPartition, Missed, Partition, PartitionState, Quantum, contain_panic, is_own_position, write_registered,
};
use crate::partition_table::Partitioning;
use crate::redo::Noting;
use crate::runtime::current_node;
use crate::task::yield_now;
use crate::visit::serve_waiting;

/// More rows than this are sent, so that a task keeps a partition about as long as a message would.
const INSERT_ROWS_MAX: usize = 128;
/// More rows than this are no point access: they are read as batches.
const READ_ROWS_MAX: usize = 64;

/// How often a task lets others go first before it sends a message.
const PATIENCE: u32 = 8;

/// What became of a command in place.
pub(super) enum InPlace<T> {
    Done(T),
    /// Somebody is at the partition.
    Busy,
    /// A message has to be sent.
    Send,
}

/// How often a command still tries before it is sent.
pub(super) struct Patience(u32);

impl Patience {
    pub(super) fn new() -> Self {
        Self(PATIENCE)
    }

    /// Lets other tasks go first; false if that was done often enough.
    pub(super) async fn wait(&mut self) -> bool {
        if self.0 == 0 {
            return false;
        }
        self.0 -= 1;
        yield_now().await;
        true
    }
}

impl Transaction {
    /// The latch of a partition that a command may run on right here.
    fn latch_in_place<'p, T>(
        &self,
        partition: &'p Partition,
        position: Option<&Key>,
    ) -> Result<Guard<'p, PartitionState>, InPlace<T>> {
        if !self.runtime.options.in_place
            || self.hold.object().has_streams()
            || current_node() != Some(partition.home())
        {
            return Err(InPlace::Send);
        }
        let state = match partition.try_in_place() {
            Err(Missed::Others) if serve_waiting(&self.runtime, partition) => partition.try_in_place(),
            tried => tried,
        };
        let state = state.map_err(|_| InPlace::Busy)?;
        // It may have split since the table was read.
        let is_own = position.is_none_or(|position| state.bounds.contains(position));
        if is_own && !state.holds_back() { Ok(state) } else { Err(InPlace::Send) }
    }

    fn noting<'a>(&'a self, container: &'a Container) -> Noting<'a> {
        Noting::new(&self.runtime, container, self.hold.object())
    }

    fn check_cancelled(&self) -> Result<(), EngineError> {
        let cancelled = self.cancel.get().is_some_and(CancelHandle::is_cancelled);
        if cancelled { Err(EngineError::Cancelled) } else { Ok(()) }
    }

    pub(super) fn insert_in_place(&self, container: &Arc<Container>, rows: &Batch) -> Result<InPlace<()>, EngineError> {
        self.check_cancelled()?;
        if rows.rows == 0 {
            return Ok(InPlace::Done(()));
        }
        if rows.rows > INSERT_ROWS_MAX {
            return Ok(InPlace::Send);
        }
        let view = self.runtime.view_of(container);
        let table = &view.table;
        let mut groups = group_by_partition(container, table, rows.clone(), Batch::take);
        if groups.len() != 1 {
            return Ok(InPlace::Send);
        }
        let Some((partition, rows)) = groups.pop() else { unreachable!("one group") };
        let position = table.partitioning.has_positions().then(|| table.partitioning.position_of_row(&rows, 0));
        let mut state = match self.latch_in_place(&partition, position.as_ref()) {
            Ok(state) => state,
            Err(miss) => return Ok(miss),
        };
        if rows.rows > 1 && !all_own(&table.partitioning, &state, &rows) {
            return Ok(InPlace::Send);
        }
        self.snapshot().check()?;
        let snapshot = self.snapshot().snapshot();
        let noting = self.noting(container);
        write_registered(&self.runtime, &partition, &mut state, self.hold.object(), |state| {
            noting.insert(&mut state.store, &snapshot, &rows)
        })
        .map_err(|error| error.for_sender(view.schema.version, state.store.schema().version))?;
        self.runtime.counters.add(Event::InPlace, 1);
        Ok(InPlace::Done(()))
    }

    pub(super) fn read_in_place(
        &self,
        container: &Arc<Container>,
        request: &ReadRequest,
    ) -> Result<InPlace<Vec<Batch>>, EngineError> {
        self.check_cancelled()?;
        let view = self.runtime.view_of(container);
        let Some((partition, position)) = target(&view, request) else { return Ok(InPlace::Send) };
        let mut state = match self.latch_in_place(partition, Some(&position)) {
            Ok(state) => state,
            Err(miss) => return Ok(miss),
        };
        let mut batches = Vec::new();
        let known = view.schema.version;
        let complete = self.each_batch(&mut state, request, known, |gateway| batches.push(gateway.batch))?;
        // A read that takes longer than a quantum starts again as a message, which saves its cursor.
        if !complete {
            return Ok(InPlace::Send);
        }
        self.runtime.counters.add(Event::InPlace, 1);
        Ok(InPlace::Done(batches))
    }

    /// Reads a few rows row-wise.
    pub(super) fn read_rows_in_place(
        &self,
        container: &Arc<Container>,
        request: &ReadRequest,
        rows: &mut PackedRows,
    ) -> Result<InPlace<()>, EngineError> {
        self.check_cancelled()?;
        let view = self.runtime.view_of(container);
        let Some((partition, position)) = target(&view, request) else { return Ok(InPlace::Send) };
        let mut state = match self.latch_in_place(partition, Some(&position)) {
            Ok(state) => state,
            Err(miss) => return Ok(miss),
        };
        self.snapshot().check()?;
        let snapshot = self.snapshot().snapshot();
        let read = contain_panic(|| Ok(state.store.read_rows(&snapshot, request, READ_ROWS_MAX, rows)?))
            .map_err(|error| error.for_sender(view.schema.version, state.store.schema().version))?;
        if !read {
            return Ok(InPlace::Send);
        }
        self.runtime.counters.add(Event::InPlace, 1);
        Ok(InPlace::Done(()))
    }

    pub(super) fn update_in_place(
        &self,
        container: &Arc<Container>,
        request: &ReadRequest,
        change: &dyn RowChange,
        written: &mut u64,
    ) -> Result<InPlace<()>, EngineError> {
        self.change_in_place(container, request, |partition, state, gateway| {
            let new = contain_panic(|| change.apply(&gateway.batch))?;
            let addresses = chosen_addresses(gateway, new.rows.as_deref());
            if !addresses.is_empty() {
                let noting = self.noting(container);
                let updated = write_registered(&self.runtime, partition, state, self.hold.object(), |state| {
                    let snapshot = self.snapshot().snapshot();
                    noting.update(&mut state.store, &snapshot, &addresses, &new.attributes, &new.values)
                })?;
                *written += updated.len() as u64;
            }
            Ok(())
        })
    }

    pub(super) fn delete_in_place(
        &self,
        container: &Arc<Container>,
        request: &ReadRequest,
        filter: Option<&dyn RowFilter>,
        written: &mut u64,
    ) -> Result<InPlace<()>, EngineError> {
        self.change_in_place(container, request, |partition, state, gateway| {
            let rows = filter.map(|filter| contain_panic(|| filter.select(&gateway.batch))).transpose()?;
            let addresses = chosen_addresses(gateway, rows.as_deref());
            if !addresses.is_empty() {
                let noting = self.noting(container);
                let deleted = write_registered(&self.runtime, partition, state, self.hold.object(), |state| {
                    noting.delete(&mut state.store, &self.snapshot().snapshot(), &addresses)
                })?;
                *written += deleted.len() as u64;
            }
            Ok(())
        })
    }

    pub(super) fn lock_in_place(
        &self,
        container: &Arc<Container>,
        request: &ReadRequest,
        lock: RowLock,
        skip_locked: bool,
        batches: &mut Vec<Batch>,
    ) -> Result<InPlace<()>, EngineError> {
        self.change_in_place(container, request, |partition, state, gateway| {
            let locked = write_registered(&self.runtime, partition, state, self.hold.object(), |state| {
                state.store.lock_rows(&self.snapshot().snapshot(), &gateway.addresses, lock, skip_locked)
            })?;
            batches.push(gateway.batch.take(&locked.rows));
            Ok(())
        })
    }

    /// Finds the rows of a change first, so that giving up for lack of time is possible until the first write.
    fn change_in_place(
        &self,
        container: &Arc<Container>,
        request: &ReadRequest,
        mut change: impl FnMut(&LivingPartition, &mut PartitionState, &Gateway) -> Result<(), EngineError>,
    ) -> Result<InPlace<()>, EngineError> {
        self.check_cancelled()?;
        let view = self.runtime.view_of(container);
        let Some((partition, position)) = target(&view, request) else { return Ok(InPlace::Send) };
        let mut state = match self.latch_in_place(partition, Some(&position)) {
            Ok(state) => state,
            Err(miss) => return Ok(miss),
        };
        let mut found = Vec::new();
        let complete = self.each_batch(&mut state, request, view.schema.version, |gateway| found.push(gateway))?;
        if !complete {
            return Ok(InPlace::Send);
        }
        for gateway in &found {
            change(partition, &mut state, gateway)?;
        }
        self.runtime.counters.add(Event::InPlace, 1);
        Ok(InPlace::Done(()))
    }

    /// Visits the batches of a request in a partition whose latch the caller has; false if it took longer than a
    /// quantum.
    fn each_batch(
        &self,
        state: &mut PartitionState,
        request: &ReadRequest,
        known: SchemaVersion,
        mut take: impl FnMut(Gateway),
    ) -> Result<bool, EngineError> {
        self.snapshot().check()?;
        let quantum = Quantum::start(&self.runtime);
        let opened = state.store.open_cursor(request).map_err(EngineError::from);
        let mut cursor: ReadCursor = opened.map_err(|error| error.for_sender(known, state.store.schema().version))?;
        let snapshot = self.snapshot().snapshot();
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

/// The one partition that the predicate names.
fn target<'v>(view: &'v ContainerView, request: &ReadRequest) -> Option<(&'v Partition, Key)> {
    let position = view.table.partitioning.position_of_predicate(&view.schema, &request.predicate)?;
    Some((view.table.find(&position), position))
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
