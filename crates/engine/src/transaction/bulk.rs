//! Bulk load: rows are gathered per partition, sealed outside of any latch, and attached under the transaction.
//!
//! Old state stays visible until the transaction commits; the segments carry its lock word until then. A partition that
//! split while rows were gathered divides what it gets (see `partition::forward`).

use std::collections::VecDeque;
use std::sync::Arc;

use eris_platform::Reservation;
use eris_storage::{Batch, ContainerId, SealedSegment};

use super::{Transaction, group_by_partition};
use crate::container::Container;
use crate::dataflow::{Attachment, Work};
use crate::error::EngineError;
use crate::message::{Message, Primitive};
use crate::partition::Partition;
use crate::partition_table::PartitionTable;
use crate::results::Results;

/// Segments under way per worker before the load waits for the oldest.
const IN_FLIGHT_PER_WORKER: usize = 2;
/// Fewer rows than this are inserted as rows: a segment of them would be compacted soon anyway.
const SEAL_ROWS_MIN: usize = 1_024;

/// A bulk load within a transaction.
pub struct BulkLoad<'t> {
    transaction: &'t mut Transaction,
    container: Arc<Container>,
    table: Arc<PartitionTable>,
    gathered: Vec<Gathered>,
    gathered_bytes: Reservation,
    in_flight: VecDeque<Results>,
    rows: u64,
}

struct Gathered {
    partition: Partition,
    batches: Vec<Batch>,
    rows: usize,
}

impl<'t> BulkLoad<'t> {
    pub(super) fn new(transaction: &'t mut Transaction, container: ContainerId) -> Result<Self, EngineError> {
        let container = transaction.runtime.container(container)?;
        let table = container.table();
        let gathered_bytes = transaction.runtime.memory.reserve("bulk load");
        Ok(Self {
            transaction,
            container,
            table,
            gathered: Vec::new(),
            gathered_bytes,
            in_flight: VecDeque::new(),
            rows: 0,
        })
    }

    /// Adds rows, columns in schema order.
    pub async fn append(&mut self, rows: Batch) -> Result<(), EngineError> {
        if self.transaction.cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        self.rows += rows.rows as u64;
        self.refresh_table();
        self.gather(rows)?;
        let segment_rows = self.container.schema().segment_rows as usize;
        while let Some(index) = self.gathered.iter().position(|gathered| gathered.rows >= segment_rows) {
            let gathered = self.gathered.swap_remove(index);
            self.seal(gathered, segment_rows, false).await?;
        }
        Ok(())
    }

    /// Attaches what is left and waits for everything; returns the number of rows.
    pub async fn finish(mut self) -> Result<u64, EngineError> {
        self.refresh_table();
        let segment_rows = self.container.schema().segment_rows as usize;
        for gathered in std::mem::take(&mut self.gathered) {
            self.seal(gathered, segment_rows, true).await?;
        }
        while let Some(oldest) = self.in_flight.pop_front() {
            oldest.finish().await?;
        }
        Ok(self.rows)
    }

    /// After a split, what was gathered under the old bounds is divided anew.
    fn refresh_table(&mut self) {
        let table = self.container.table();
        if table.version == self.table.version {
            return;
        }
        self.table = table;
        if !self.table.partitioning.has_positions() {
            return;
        }
        for gathered in std::mem::take(&mut self.gathered) {
            for batch in gathered.batches {
                self.distribute(batch);
            }
        }
    }

    fn gather(&mut self, rows: Batch) -> Result<(), EngineError> {
        self.gathered_bytes.grow(rows.bytes() as u64)?;
        self.distribute(rows);
        Ok(())
    }

    fn distribute(&mut self, rows: Batch) {
        if !self.table.partitioning.has_positions() && !self.gathered.is_empty() {
            // One partition at a time gets whole segments.
            self.gathered[0].rows += rows.rows;
            self.gathered[0].batches.push(rows);
            return;
        }
        for (partition, rows) in group_by_partition(&self.container, &self.table, rows) {
            match self.gathered.iter_mut().find(|gathered| gathered.partition.id == partition.id) {
                Some(gathered) => {
                    gathered.rows += rows.rows;
                    gathered.batches.push(rows);
                }
                None => self.gathered.push(Gathered { partition, rows: rows.rows, batches: vec![rows] }),
            }
        }
    }

    /// Seals whole segments of what was gathered; the remainder too if `all`, else it is gathered further.
    async fn seal(&mut self, gathered: Gathered, segment_rows: usize, all: bool) -> Result<(), EngineError> {
        let rows = Batch::concat(&gathered.batches);
        drop(gathered.batches);
        let mut at = 0;
        while rows.rows - at >= segment_rows || (all && at < rows.rows) {
            let length = segment_rows.min(rows.rows - at);
            let part = if length == rows.rows { rows.clone() } else { rows.slice(at, length) };
            at += length;
            self.attach(&gathered.partition, part, segment_rows).await?;
        }
        let left = rows.slice(at, rows.rows - at);
        self.gathered_bytes.shrink(self.gathered_bytes.bytes());
        if left.rows > 0 {
            self.gathered.push(Gathered { partition: gathered.partition, rows: left.rows, batches: vec![left] });
        }
        let kept: u64 = self.gathered.iter().flat_map(|gathered| &gathered.batches).map(|b| b.bytes() as u64).sum();
        self.gathered_bytes.grow(kept)?;
        Ok(())
    }

    async fn attach(&mut self, partition: &Partition, rows: Batch, segment_rows: usize) -> Result<(), EngineError> {
        let limit = IN_FLIGHT_PER_WORKER * self.transaction.runtime.options.workers;
        while self.in_flight.len() >= limit {
            if let Some(oldest) = self.in_flight.pop_front() {
                oldest.finish().await?;
            }
        }
        let as_rows = rows.rows < SEAL_ROWS_MIN.min(segment_rows);
        let transaction = &*self.transaction;
        let (work, primitive) =
            if as_rows { (Work::Insert, Primitive::Insert) } else { (Work::Attach, Primitive::Attach) };
        let operator = Transaction::operator(&self.container, &self.table, work, None);
        let dataflow = transaction.dataflow(vec![operator]);
        let attachment = if as_rows {
            Attachment::Rows(rows)
        } else {
            let segment = SealedSegment::build(&self.container.schema(), &rows, &transaction.runtime.memory)?;
            Attachment::Segment { segment, rows }
        };
        let attachment = dataflow.attach(attachment);
        let header = transaction.header(&dataflow, primitive, Some(partition));
        let message = Message::new(header, &[&attachment.to_le_bytes()]);
        self.in_flight.push_back(transaction.start(dataflow, vec![message]));
        Ok(())
    }
}
