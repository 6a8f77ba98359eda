//! Sinks that go on in temporary files: the task's part.
//!
//! ```text
//!   batches that a sink could not take ──> round after round of jobs on all workers: what the sink holds is written
//!                                      ──> they are given again
//! ```
//! Where batches come from waits meanwhile: partitions have no room for results, pieces of a stage end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use eris_operators::{
    JoinBuild, KeptRows, LimitedRows, OperatorError, Pipeline, ProbeParts, RowStream, Sink, Spill, SpillOptions,
    SpillingSink,
};
use eris_platform::Reservation;
use eris_storage::Batch;

use super::parallel::Piece;
use super::run::{From, Left, Run, Steps, advance, lock};
use super::{ProbePlan, Source, Stage, StepPlan};
use crate::errors::SqlError;
use crate::native::run::{RunContext, limits};
use crate::plan::operator_error;

/// Rows of a file that are in memory at once to be pushed through a stage, in bytes, where memory is not short.
const CHUNK_BYTES_MAX: u64 = 4 << 20;

/// Batches that may be begun, for each worker, in the round after one in which the sink handed some back.
const BEGUN_PER_WORKER: usize = 4;

/// Batches that a sink handed back.
#[derive(Default)]
struct Refused {
    batches: Mutex<Vec<Batch>>,
    any: AtomicBool,
}

impl Refused {
    fn add(&self, batch: Batch) {
        lock(&self.batches).push(batch);
        self.any.store(true, Ordering::Release);
    }

    fn is_there(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn take(&self) -> Vec<Batch> {
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut lock(&self.batches))
    }
}

/// The rows of a stage for one that reads them.
pub(super) enum Rows {
    /// In memory, and what is charged for them.
    Held(Vec<Batch>, Option<Reservation>),
    /// In files.
    Stream(Box<dyn RowStream>),
}

/// What a stage left in files.
pub(super) enum LeftInFiles {
    /// To be read once.
    Once(Option<Box<dyn RowStream>>),
    /// To be read several times.
    Kept(KeptRows),
}

fn nobody() -> OperatorError {
    OperatorError::Internal("a stage hands rows to nobody".to_string())
}

fn spilling(sink: &dyn Sink) -> Result<&dyn SpillingSink, OperatorError> {
    sink.spilling().ok_or_else(nobody)
}

impl RunContext<'_> {
    /// Lets the operators of the statement go on in files.
    pub(crate) fn spill_to(&mut self, files: &Arc<eris_platform::TempFiles>, options: SpillOptions) {
        let (memory, cancel) = (self.transaction.memory(), self.transaction.cancel_handle());
        self.spill = Some(Spill::new(files, memory, &cancel, options));
    }
}

impl Run<'_> {
    /// Has a sink write everything it holds.
    async fn write_out(&self, sink: &Arc<dyn Sink>, context: &RunContext<'_>) -> Result<(), SqlError> {
        loop {
            let jobs = spilling(&**sink).and_then(SpillingSink::spill_jobs).map_err(|error| operator_error(&error))?;
            if jobs == 0 {
                return Ok(());
            }
            let working = Arc::clone(sink);
            let piece: Piece = Arc::new(move |job| spilling(&*working)?.spill_job(job));
            self.run_pieces(jobs, piece, context).await?;
            let written = spilling(&**sink).map_err(|error| operator_error(&error))?.written().await;
            written.map_err(|error| operator_error(&error))?;
        }
    }

    /// Makes room in a sink and gives it the batches again that it could not take.
    pub(super) async fn take_refused(
        &self,
        sink: &Arc<dyn Sink>,
        batches: Vec<Batch>,
        context: &RunContext<'_>,
    ) -> Result<(), SqlError> {
        for batch in batches {
            context.check_cancelled()?;
            // There may be room since.
            let Some(batch) = consumed(&**sink, batch)? else { continue };
            self.write_out(sink, context).await?;
            let Some(batch) = consumed(&**sink, batch)? else { continue };
            // Others have the memory: it goes to the files by itself.
            let taken = spilling(&**sink).and_then(|sink| sink.consume_anyway(batch));
            taken.map_err(|error| operator_error(&error))?;
        }
        Ok(())
    }

    /// What a sink leaves that ends in files; none: it finishes in memory.
    pub(super) async fn finish_in_files(
        &self,
        number: usize,
        stage: &Stage,
        sink: &Arc<dyn Sink>,
        built: Option<&Arc<JoinBuild>>,
        context: &RunContext<'_>,
    ) -> Result<Option<Left>, SqlError> {
        let Some(spill) = &context.spill else { return Ok(None) };
        if !sink.spilling().is_some_and(SpillingSink::ends_in_files) {
            return Ok(None);
        }
        self.write_out(sink, context).await?;
        if let Some(built) = built {
            built.end_in_files().map_err(|error| operator_error(&error))?;
            return Ok(Some(Left::Built(Arc::clone(built))));
        }
        let stream = spilling(&**sink).and_then(SpillingSink::take_stream);
        let mut stream = stream.map_err(|error| operator_error(&error))?;
        if let Some(limit) = &stage.limit {
            let (skip, fetch) = limits(limit.skip.as_ref(), limit.fetch.as_ref(), &self.parameters)?;
            stream = Box::new(LimitedRows::new(stream, skip, fetch));
        }
        let uses = self.qep.uses(number);
        let rows = if uses <= 1 {
            LeftInFiles::Once(Some(stream))
        } else {
            let kept = KeptRows::write(spill, &mut *stream).await;
            LeftInFiles::Kept(kept.map_err(|error| operator_error(&error))?)
        };
        Ok(Some(Left::InFiles { rows, uses }))
    }

    /// The first of some steps that looks rows up in a build side in files.
    pub(super) fn probe_of_files(&self, steps: &[StepPlan]) -> Option<usize> {
        let is_in_files = |step: &StepPlan| match step {
            StepPlan::Probe(probe) => self.built(probe.stage).is_ok_and(|built| built.is_in_files()),
            StepPlan::Filter(_) | StepPlan::Project(_) | StepPlan::Expand(_) | StepPlan::Passed(_) => false,
        };
        steps.iter().position(is_in_files)
    }

    /// Whether rows of a stage come from a join in files, or from what such a one has left: then they may be many.
    pub(super) fn joins_in_files(&self, stage: &Stage) -> bool {
        stage.inputs.iter().any(|input| {
            let is_left = match input.source {
                Source::Built { stage, .. } => self.built(stage).is_ok_and(|built| built.is_in_files()),
                Source::Scan(_) | Source::Stage(_) | Source::Values { .. } => false,
            };
            is_left || self.probe_of_files(&input.steps).is_some()
        })
    }

    /// Sends rows through steps to files, divided as the build side is that they are looked up in next; gives the rows
    /// of the join.
    pub(super) async fn joined_in_files(
        &mut self,
        from: From<'_>,
        steps: Steps<'_>,
        probe: &ProbePlan,
        context: &mut RunContext<'_>,
    ) -> Result<Box<dyn RowStream>, SqlError> {
        let (probe, parameters) = (self.probe(probe)?, self.parameters.as_slice().into());
        let parts = ProbeParts::new(probe, parameters, context.memory(), context.workers);
        let parts: Arc<dyn Sink> = Arc::new(parts.map_err(|error| operator_error(&error))?);
        self.feed(from, steps, &parts, false, context).await?;
        self.write_out(&parts, context).await?;
        spilling(&*parts).and_then(SpillingSink::take_stream).map_err(|error| operator_error(&error))
    }

    /// Pushes batches through a pipeline into a sink, on all workers.
    pub(super) async fn push(
        &self,
        batches: Vec<Batch>,
        pipeline: &Pipeline,
        sink: &Arc<dyn Sink>,
        context: &RunContext<'_>,
    ) -> Result<(), SqlError> {
        let flows: Arc<[_]> = batches.into_iter().map(|batch| Mutex::new(pipeline.start(batch))).collect();
        let refused: Arc<Refused> = Arc::default();
        // The first that is not over, and how many from there on a round may begin.
        let (mut first, mut begun) = (0, flows.len());
        while first < flows.len() {
            let next = flows.len().min(first.saturating_add(begun));
            let (engine, pipeline) = (self.engine.clone(), pipeline.clone());
            let (flows_there, handed_back) = (Arc::clone(&flows), Arc::clone(&refused));
            let piece: Piece = Arc::new(move |at| {
                // What was handed back comes first.
                if handed_back.is_there() {
                    return Ok(Poll::Ready(()));
                }
                let mut emit = |batch| {
                    handed_back.add(batch);
                    Ok(())
                };
                let stops = || handed_back.is_there();
                let advanced = advance(&engine, &pipeline, &mut lock(&flows_there[first + at]), &mut emit, &stops)?;
                Ok(if handed_back.is_there() { Poll::Ready(()) } else { advanced })
            });
            self.run_pieces(next - first, piece, context).await?;
            let batches = refused.take();
            if batches.is_empty() {
                (first, begun) = (next, begun.saturating_mul(2));
                continue;
            }
            self.take_refused(sink, batches, context).await?;
            // A round visits every batch it may begin, even after one was handed back. For a sink that takes none,
            // rounds over all batches would have quadratic cost.
            begun = context.workers * BEGUN_PER_WORKER;
            while first < next && lock(&flows[first]).is_over() {
                first += 1;
            }
        }
        Ok(())
    }

    /// The same with rows that are read from files; `in_order`: what comes of them stays in their order.
    pub(super) async fn push_stream(
        &self,
        mut stream: Box<dyn RowStream>,
        pipeline: &Pipeline,
        sink: &Arc<dyn Sink>,
        in_order: bool,
        context: &RunContext<'_>,
    ) -> Result<(), SqlError> {
        let Some(spill) = &context.spill else { return Err(SqlError::internal("rows of files without files")) };
        loop {
            let (mut chunk, mut bytes) = (Vec::new(), 0);
            let (most, charged) = spill.chunk();
            while chunk.is_empty() || bytes < most.min(CHUNK_BYTES_MAX) {
                let Some(batch) = stream.next().await.map_err(|error| operator_error(&error))? else { break };
                bytes += batch.bytes() as u64;
                charged.grow(batch.bytes() as u64).map_err(SqlError::out_of_memory)?;
                chunk.push(batch);
            }
            if chunk.is_empty() {
                return Ok(());
            }
            if in_order {
                self.push_in_order(chunk, pipeline, sink, context).await?;
            } else {
                self.push(chunk, pipeline, sink, context).await?;
            }
        }
    }
}

/// Gives a sink a batch; gives back what it cannot take.
pub(super) fn consumed(sink: &dyn Sink, batch: Batch) -> Result<Option<Batch>, SqlError> {
    let mut refused = None;
    let taken = sink.consume(batch, &mut |batch| {
        refused = Some(batch);
        Ok(())
    });
    taken.map_err(|error| operator_error(&error))?;
    Ok(refused)
}
