//! A sink that groups.

use std::sync::Arc;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::{BATCH_ROWS, Batch, Value};

use super::{Aggregate, AggregateCall, AggregateMerge, Aggregating, Grouped};
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::pipeline::{Emitting, Sink, Slots};

/// One aggregate of a grouping.
#[derive(Clone, Debug)]
pub struct GroupCall {
    /// What is computed.
    pub call: AggregateCall,
    /// Of different values only.
    pub distinct: bool,
    /// Of the rows for which this is true; `None`: all.
    pub filter: Option<Expression>,
}

impl From<AggregateCall> for GroupCall {
    fn from(call: AggregateCall) -> Self {
        Self { call, distinct: false, filter: None }
    }
}

/// Groups rows. Without group expressions there is exactly one group.
pub struct GroupBy {
    plan: Aggregate,
    slots: Slots<Aggregating>,
}

impl std::fmt::Debug for GroupBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GroupBy({:?})", self.plan.groups)
    }
}

impl GroupBy {
    /// No groups yet, for as many workers.
    pub fn new(
        groups: Arc<[Expression]>,
        calls: Arc<[AggregateCall]>,
        parameters: Arc<[Value]>,
        memory: &Arc<MemoryPool>,
        workers: usize,
    ) -> Self {
        let plan = Aggregate { filter: None, projection: None, groups, calls, parameters, memory: Arc::clone(memory) };
        let slots = Slots::new(workers, || Aggregating { plan: plan.clone(), grouped: Grouped::new(&plan) });
        Self { plan, slots }
    }

    /// The same with DISTINCT and FILTER.
    pub fn with_calls(
        groups: Arc<[Expression]>,
        calls: Arc<[GroupCall]>,
        parameters: Arc<[Value]>,
        memory: &Arc<MemoryPool>,
        workers: usize,
    ) -> Self {
        let plain = calls.iter().map(|call| call.call.clone()).collect();
        Self::new(groups, plain, parameters, memory, workers)
    }
}

impl Sink for GroupBy {
    fn consume(&self, batch: Batch, _emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        self.slots.any().update(batch)
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        Ok(0)
    }

    fn finish_job(&self, job: usize) -> Result<(), OperatorError> {
        unreachable!("job {job} of a sink without jobs")
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        let mut merge = AggregateMerge::new(&self.plan);
        for mut slot in self.slots.iter() {
            if let Some(partial) = slot.partial() {
                merge.merge(&partial)?;
            }
        }
        let all = merge.finish()?;
        let starts = (0..all.rows).step_by(BATCH_ROWS);
        let batches = starts.map(|start| all.slice(start, BATCH_ROWS.min(all.rows - start))).collect();
        Ok((batches, None))
    }
}
