//! A sink that sorts rows and computes windows over them.
//!
//! ```text
//!   consume, rounds of the sort
//!   assembling    a job for consecutive batches: copies the columns that windows look at to one piece each
//!   marking       a job for a chunk of rows: where partitions and groups begin in it, its part of the trees
//!   computing     a job for consecutive batches: the result columns beside those that go on
//! ```

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Poll;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::{Batch, Column};

use super::edges::{Edges, Starts};
use super::external::WindowRows;
use super::fold::{Lengths, are_short, folding};
use super::frame::Frames;
use super::numbers::{Number, Numbers};
use super::picks::{Pick, Picks};
use super::tree::{CHUNK_ROWS, Folding};
use super::{Runner, WindowCall, WindowFunction, WindowSpec};
use crate::assembly::ColumnParts;
use crate::error::OperatorError;
use crate::pipeline::{Emitting, Sink, lock};
use crate::sort::SortSink;
use crate::spill::{Awaited, RowStream, Spill, SpillingSink};

/// What the pool calls it.
pub(super) const CONSUMER: &str = "window";
/// What trees take for a row, roughly.
const FOLDED_BYTES: u64 = 16;
/// Rows of the batches of a job, roughly.
const JOB_ROWS: usize = 1 << 14;

#[derive(Debug)]
enum Phase {
    Sorting,
    /// The rows, and what is charged for them.
    Sorted(Vec<Batch>, Option<Reservation>),
    Assembling(Box<Assembling>),
    Marking(Box<Marking>),
    Computing(Box<Computing>),
    Done,
}

/// Sorted batches, divided into jobs.
#[derive(Debug)]
struct Jobs {
    /// Where each job's batches begin, and the end of the last.
    batches: Vec<usize>,
    /// The same for their rows.
    rows: Vec<usize>,
}

#[derive(Debug)]
struct Assembling {
    batches: Vec<Batch>,
    jobs: Jobs,
    /// By position in the input, those that windows look at.
    columns: Vec<Option<ColumnParts>>,
}

#[derive(Debug)]
struct Marking {
    batches: Vec<Batch>,
    jobs: Jobs,
    columns: Vec<Option<Column>>,
    /// One for each call that folds frames.
    trees: Vec<Option<Box<dyn Folding>>>,
    /// With the number of the chunk.
    starts: Mutex<Vec<(usize, Starts)>>,
}

#[derive(Debug)]
struct Computing {
    /// The batches of each job.
    batches: Vec<Mutex<Vec<Batch>>>,
    rows: Vec<usize>,
    columns: Vec<Option<Column>>,
    trees: Vec<Option<Box<dyn Folding>>>,
    edges: Edges,
}

/// Sorts what it gets and adds a column for each window function. Rows come out in the order of the keys.
#[derive(Debug)]
pub struct WindowSink {
    spec: WindowSpec,
    sort: SortSink,
    phase: RwLock<Phase>,
    /// By job.
    results: Mutex<Vec<Vec<Batch>>>,
    working: Reservation,
    /// What the sorted rows are charged to, and the results then.
    output: Mutex<Option<Reservation>>,
    /// Where it goes on when memory is refused, if it may.
    spill: Option<Spill>,
}

impl WindowSink {
    /// An empty one, for as many workers.
    pub fn new(spec: WindowSpec, memory: &Arc<MemoryPool>, workers: usize) -> Self {
        let sort = SortSink::new(spec.keys.clone(), None, memory, workers);
        Self {
            spec,
            sort,
            phase: RwLock::new(Phase::Sorting),
            results: Mutex::new(Vec::new()),
            working: memory.reserve(CONSUMER),
            output: Mutex::new(None),
            spill: None,
        }
    }

    /// One of rows that are there, in the order of the keys, and charged: only to be finished.
    pub(super) fn of_sorted(spec: WindowSpec, batches: Vec<Batch>, charged: Reservation) -> Self {
        let sink = Self::new(spec, charged.pool(), 1);
        Self { phase: RwLock::new(Phase::Sorted(batches, Some(charged))), ..sink }
    }

    /// The same, which goes on in files when memory is refused. What windows look at has to fit, for one partition.
    #[must_use]
    pub fn spilling_to(self, spill: &Spill) -> Self {
        Self { sort: self.sort.spilling_to(spill), spill: Some(spill.clone()), ..self }
    }

    /// What sorting and computing take in memory besides the rows, roughly.
    fn bytes_to_finish(&self) -> u64 {
        let (rows, bytes) = self.sort.held();
        let call = |call: &WindowCall| {
            let is_folded = matches!(call.function, WindowFunction::Aggregate { input: Some(_), .. });
            call.result.physical().width() as u64 + 1 + if is_folded { FOLDED_BYTES } else { 0 }
        };
        // A copy of what is looked at, and where partitions and groups begin, twice.
        self.sort.bytes_to_finish() + bytes + rows * self.spec.calls.iter().map(call).sum::<u64>() + rows * 16
    }

    fn plan_assembling(&self, batches: Vec<Batch>, charged: Option<Reservation>) -> Result<Phase, OperatorError> {
        *lock(&self.output) = charged;
        let Some(first) = batches.first() else { return Ok(Phase::Done) };
        let mut jobs = Jobs { batches: vec![0], rows: vec![0] };
        let mut rows = 0;
        for (at, batch) in batches.iter().enumerate() {
            rows += batch.rows;
            if rows - jobs.rows[jobs.rows.len() - 1] >= JOB_ROWS || at + 1 == batches.len() {
                jobs.batches.push(at + 1);
                jobs.rows.push(rows);
            }
        }
        let types = first.data_types();
        let all_looked_at = self.spec.looked_at();
        let mut columns = Vec::with_capacity(types.len());
        for (column, data_type) in types.iter().enumerate() {
            let looked_at = all_looked_at.contains(&column);
            if looked_at {
                self.working.grow(ColumnParts::bytes(*data_type, rows))?;
            }
            let chunks = batches.iter().map(|batch| &batch.columns[column]);
            columns.push(looked_at.then(|| ColumnParts::new(*data_type, &jobs.rows, chunks)));
        }
        Ok(Phase::Assembling(Box::new(Assembling { batches, jobs, columns })))
    }

    fn plan_marking(&self, assembling: Assembling) -> Result<Phase, OperatorError> {
        let Assembling { mut batches, jobs, columns } = assembling;
        if self.spec.kept.is_empty() {
            // They are copied, and nothing else of them goes on.
            for batch in &mut batches {
                let bytes = batch.bytes() as u64;
                *batch = Batch::new(Vec::new(), batch.rows);
                lock(&self.output).as_ref().inspect(|output| output.shrink(bytes));
            }
        }
        let columns: Vec<Option<Column>> =
            columns.into_iter().map(|column| column.map(|parts| parts.finish().without_idle_validity())).collect();
        let rows = jobs.rows[jobs.rows.len() - 1];
        let tree = |call: &WindowCall| match call.function {
            WindowFunction::Aggregate { function, input: Some(input) } => {
                let column = whole(&columns, input)?.clone();
                folding(function, column, rows).map(Some)
            }
            _ => Ok(None),
        };
        let trees = self.spec.calls.iter().map(tree).collect::<Result<_, _>>()?;
        Ok(Phase::Marking(Box::new(Marking { batches, jobs, columns, trees, starts: Mutex::default() })))
    }

    fn mark(&self, marking: &Marking, chunk: usize) -> Result<(), OperatorError> {
        let end = marking.jobs.rows[marking.jobs.rows.len() - 1];
        let rows = chunk * CHUNK_ROWS..((chunk + 1) * CHUNK_ROWS).min(end);
        let keys: Vec<&Column> =
            self.spec.keys.0.iter().map(|key| whole(&marking.columns, key.column)).collect::<Result<_, _>>()?;
        // A mark for each row while they are looked for.
        let marks = rows.len() as u64;
        self.working.grow(marks)?;
        let starts = Starts::among(rows, &keys, self.spec.partition_keys);
        self.working.shrink(marks);
        // Twice: here, and put together.
        self.working.grow(2 * starts.bytes())?;
        lock(&marking.starts).push((chunk, starts));
        for (tree, call) in marking.trees.iter().zip(&*self.spec.calls) {
            if let Some(tree) = tree.as_ref().filter(|_| !are_short(&call.frame)) {
                tree.build(chunk, &self.working)?;
            }
        }
        Ok(())
    }

    fn plan_computing(&self, marking: Marking) -> Result<Phase, OperatorError> {
        let Marking { batches, jobs, columns, mut trees, starts } = marking;
        let mut starts = starts.into_inner().unwrap_or_else(PoisonError::into_inner);
        starts.sort_unstable_by_key(|(chunk, _)| *chunk);
        let rows = jobs.rows[jobs.rows.len() - 1];
        let edges = Edges::new(starts.into_iter().map(|(_, starts)| starts).collect(), rows);
        for (tree, call) in trees.iter_mut().zip(&*self.spec.calls) {
            if let Some(tree) = tree.as_mut().filter(|_| !are_short(&call.frame)) {
                tree.complete(&self.working)?;
            }
        }
        let mut rest = batches.into_iter();
        let own = jobs.batches.windows(2).map(|pair| rest.by_ref().take(pair[1] - pair[0]).collect());
        let batches: Vec<_> = own.map(Mutex::new).collect();
        *lock(&self.results) = vec![Vec::new(); batches.len()];
        Ok(Phase::Computing(Box::new(Computing { batches, rows: jobs.rows, columns, trees, edges })))
    }

    fn compute(&self, computing: &Computing, job: usize) -> Result<(), OperatorError> {
        let batches = std::mem::take(&mut *lock(&computing.batches[job]));
        let mut runners: Vec<Box<dyn Runner + '_>> = Vec::with_capacity(self.spec.calls.len());
        for (call, tree) in self.spec.calls.iter().zip(&computing.trees) {
            runners.push(computing.runner(call, tree.as_deref())?);
        }
        let mut start = computing.rows[job];
        let mut done = Vec::with_capacity(batches.len());
        for batch in batches {
            let rows = start..start + batch.rows;
            start = rows.end;
            let before = batch.bytes() as u64;
            let mut kept = batch.project(&self.spec.kept).columns.into_vec();
            drop(batch);
            let width: usize = self.spec.calls.iter().map(|call| call.result.physical().width() + 1).sum();
            let estimated = (rows.len() * width) as u64;
            self.charge(estimated)?;
            for runner in &mut runners {
                kept.push(runner.column(rows.clone())?);
            }
            let batch = Batch::new(kept, rows.len());
            let (reserved, bytes) = (before + estimated, batch.bytes() as u64);
            self.charge(bytes.saturating_sub(reserved))?;
            if let Some(output) = &*lock(&self.output) {
                output.shrink(reserved.saturating_sub(bytes));
            }
            done.push(batch);
        }
        lock(&self.results)[job] = done;
        Ok(())
    }

    fn charge(&self, bytes: u64) -> Result<(), OperatorError> {
        match &*lock(&self.output) {
            Some(output) => Ok(output.grow(bytes)?),
            None => Err(OperatorError::Internal("the rows of windows are taken already".to_string())),
        }
    }
}

/// A column that was put together.
fn whole(columns: &[Option<Column>], column: usize) -> Result<&Column, OperatorError> {
    let found = columns.get(column).and_then(Option::as_ref);
    found.ok_or_else(|| OperatorError::Internal(format!("column {column} was not put together for a window")))
}

impl Computing {
    /// What computes a call; `tree` is there if it folds a column.
    fn runner<'a>(
        &'a self,
        call: &WindowCall,
        tree: Option<&'a dyn Folding>,
    ) -> Result<Box<dyn Runner + 'a>, OperatorError> {
        let column = |position: usize| whole(&self.columns, position);
        let frames = || Frames::new(&call.frame, &self.edges, column);
        let number = |number| -> Result<Box<dyn Runner + 'a>, OperatorError> {
            Ok(Box::new(Numbers::new(number, &self.edges, call.result)))
        };
        let picks = |pick, value| -> Result<Box<dyn Runner + 'a>, OperatorError> {
            Ok(Box::new(Picks { pick, values: column(value)?, frames: frames()? }))
        };
        match call.function {
            WindowFunction::RowNumber => number(Number::Row),
            WindowFunction::Rank => number(Number::Rank),
            WindowFunction::DenseRank => number(Number::DenseRank),
            WindowFunction::PercentRank => number(Number::PercentRank),
            WindowFunction::CumeDist => number(Number::CumeDist),
            WindowFunction::Ntile { buckets } => number(Number::Ntile(column(buckets)?)),
            WindowFunction::Shift { value, offset, default, ahead } => {
                let (offset, default) = (offset.map(column).transpose()?, default.map(column).transpose()?);
                // A shift looks at no frame, so its bounds need no columns.
                let frames = Frames::new(&super::Frame::PARTITION, &self.edges, column)?;
                Ok(Box::new(Picks { pick: Pick::Shift { offset, default, ahead }, values: column(value)?, frames }))
            }
            WindowFunction::FirstValue { value } => picks(Pick::First, value),
            WindowFunction::LastValue { value } => picks(Pick::Last, value),
            WindowFunction::NthValue { value, number } => picks(Pick::Nth(column(number)?), value),
            WindowFunction::Aggregate { .. } => Ok(match tree {
                Some(tree) => tree.runner(frames()?, call.result),
                None => Box::new(Lengths(frames()?)),
            }),
        }
    }
}

impl Sink for WindowSink {
    fn consume(&self, batch: Batch, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        self.sort.consume(batch, emit)
    }

    fn spilling(&self) -> Option<&dyn SpillingSink> {
        self.spill.as_ref().map(|_| self as &dyn SpillingSink)
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        let next = match std::mem::replace(&mut *phase, Phase::Done) {
            Phase::Sorting => {
                let jobs = self.sort.finish_jobs()?;
                if jobs > 0 {
                    *phase = Phase::Sorting;
                    return Ok(jobs);
                }
                let (batches, charged) = self.sort.take_output()?;
                self.plan_assembling(batches, charged)?
            }
            Phase::Sorted(batches, charged) => self.plan_assembling(batches, charged)?,
            Phase::Assembling(assembling) => self.plan_marking(*assembling)?,
            Phase::Marking(marking) => self.plan_computing(*marking)?,
            Phase::Computing(computing) => {
                drop(computing);
                self.working.shrink(self.working.bytes());
                Phase::Done
            }
            Phase::Done => Phase::Done,
        };
        let jobs = match &next {
            Phase::Sorting | Phase::Sorted(..) | Phase::Done => 0,
            Phase::Assembling(assembling) => assembling.jobs.rows.len() - 1,
            Phase::Marking(marking) => marking.jobs.rows[marking.jobs.rows.len() - 1].div_ceil(CHUNK_ROWS),
            Phase::Computing(computing) => computing.batches.len(),
        };
        *phase = next;
        Ok(jobs)
    }

    fn finish_job(&self, job: usize) -> Result<(), OperatorError> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Sorting => self.sort.finish_job(job),
            Phase::Assembling(assembling) => {
                let Jobs { batches: first, .. } = &assembling.jobs;
                let batches = &assembling.batches[first[job]..first[job + 1]];
                for (at, column) in assembling.columns.iter().enumerate() {
                    if let Some(parts) = column {
                        parts.fill(job, first[job], batches.iter().map(|batch| &batch.columns[at]));
                    }
                }
                Ok(())
            }
            Phase::Marking(marking) => self.mark(marking, job),
            Phase::Computing(computing) => self.compute(computing, job),
            Phase::Sorted(..) | Phase::Done => Err(OperatorError::Internal(format!("windows have no job {job} now"))),
        }
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        let batches = std::mem::take(&mut *lock(&self.results)).into_iter().flatten().collect();
        Ok((batches, lock(&self.output).take()))
    }
}

impl SpillingSink for WindowSink {
    fn spill_jobs(&self) -> Result<usize, OperatorError> {
        self.sort.spill_jobs()
    }

    fn spill_job(&self, job: usize) -> Result<Poll<()>, OperatorError> {
        self.sort.spill_job(job)
    }

    fn written(&self) -> Awaited<'_, ()> {
        self.sort.written()
    }

    fn consume_anyway(&self, batch: Batch) -> Result<(), OperatorError> {
        self.sort.consume_anyway(batch)
    }

    fn ends_in_files(&self) -> bool {
        let Some(spill) = &self.spill else { return false };
        self.sort.ends_in_files() || !spill.has_room(self.bytes_to_finish())
    }

    fn take_stream(&self) -> Result<Box<dyn RowStream>, OperatorError> {
        let Some(spill) = &self.spill else { return Err(OperatorError::Internal("windows without files".to_string())) };
        Ok(Box::new(WindowRows::new(&self.spec, self.working.pool(), self.sort.take_stream()?, spill)))
    }
}
