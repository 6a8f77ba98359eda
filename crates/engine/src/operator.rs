//! Micro-operators: code that runs inside a partition on the batches an access primitive yields.
//!
//! An operator is shared by all partitions and immutable; what it accumulates lives in an [`OperatorState`] that
//! belongs to one command on one partition, travels with its saved cursor and is finished when the command is. So
//! operators need no locks: merging what several partitions emit is the task's work.

use eris_platform::Reservation;
use eris_storage::{AttributeId, Batch, Gateway};

use crate::dataflow::Dataflow;
use crate::error::EngineError;
use crate::partition::Quantum;

/// Code that runs inside a partition.
pub trait MicroOperator: Send + Sync + 'static {
    /// The state of one command on one partition.
    fn open(&self) -> Box<dyn OperatorState>;

    /// Whether it only counts the rows of requests that desire no attribute: batches may then be of any number of rows.
    fn only_counts(&self) -> bool {
        false
    }
}

/// What one command accumulates.
pub trait OperatorState: Send {
    /// Takes one batch of qualifying rows. What may take long stops when [`Output::pauses`] says so.
    fn batch(&mut self, gateway: Gateway, output: &mut Output<'_>) -> Result<(), EngineError>;

    /// Whether something is left of the last batch. No other follows before [`Self::go_on`] has done it.
    fn is_behind(&self) -> bool {
        false
    }

    /// Goes on with what is left of the last batch.
    fn go_on(&mut self, _output: &mut Output<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    /// The command has seen its last batch.
    fn finish(&mut self, output: &mut Output<'_>) -> Result<(), EngineError>;
}

/// Where an operator's results go, and how long it may take.
pub struct Output<'a> {
    pub(crate) dataflow: &'a Dataflow,
    pub(crate) quantum: &'a Quantum<'a>,
}

impl Output<'_> {
    /// Hands a batch to the waiting task. The batch is charged to the query until the task takes it.
    pub fn emit(&self, batch: Batch) -> Result<(), EngineError> {
        self.dataflow.emit(batch)
    }

    /// Hands a batch to the task that there was no memory for where it belongs: the task makes room, and gives it to
    /// the operator's sink itself. Counted, and refused by no limit.
    pub fn hand_back(&self, batch: Batch) -> Result<(), EngineError> {
        self.dataflow.hand_back(batch)
    }

    /// For what an operator keeps when it stops within a batch.
    pub fn reserve(&self, consumer: &'static str) -> Reservation {
        self.dataflow.reserve(consumer)
    }

    /// Adds to the number of rows that the statement reports.
    pub fn rows_affected(&self, rows: u64) {
        self.dataflow.add_rows_affected(rows);
    }

    /// Whether to stop for now: the time of this visit is up, there is no room for results, or the statement is over.
    /// To be asked between pieces of some thousand rows at most.
    pub fn pauses(&self) -> bool {
        self.quantum.is_over() || self.dataflow.is_full() || self.dataflow.is_over()
    }
}

/// The identity: passes batches on to the task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collect;

struct Collecting;

impl MicroOperator for Collect {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(Collecting)
    }
}

impl OperatorState for Collecting {
    fn batch(&mut self, gateway: Gateway, output: &mut Output<'_>) -> Result<(), EngineError> {
        output.emit(gateway.batch)
    }

    fn finish(&mut self, _output: &mut Output<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}

/// New values for some attributes of some rows.
#[derive(Clone, Debug)]
pub struct Change {
    /// Rows of the batch that change; `None` changes them all.
    pub rows: Option<Vec<u32>>,
    /// The attributes that get new values.
    pub attributes: Box<[AttributeId]>,
    /// The values: one column an attribute, one row a changed row.
    pub values: Batch,
}

/// Computes what an UPDATE writes.
pub trait RowChange: Send + Sync + 'static {
    /// Number of attributes that [`Self::apply`] reads: the length of the request's `desired`.
    fn inputs(&self) -> usize;

    /// The attributes that may get new values.
    fn attributes(&self) -> &[AttributeId];

    /// `batch` holds the desired attributes of the request.
    fn apply(&self, batch: &Batch) -> Result<Change, EngineError>;
}

/// A residual predicate: what storage could not evaluate itself.
pub trait RowFilter: Send + Sync + 'static {
    /// The rows of `batch` that qualify, in order.
    fn select(&self, batch: &Batch) -> Result<Vec<u32>, EngineError>;
}
