//! Sorting in files: runs are sorted in memory and written, and merged when they are read.
//!
//! ```text
//!   batches ── a job for some tens of thousands of rows ──> run 0, run 1, ...   each a lane, in order
//!   runs    ── if there are too many to have a piece of each in memory, some are merged to one, until there are not
//!           ── merged as they are asked for ──> sorted rows
//! ```

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Poll;

use eris_platform::Reservation;
use eris_storage::{BATCH_ROWS, Batch, Column};

use super::SortKeys;
use super::merge::MergedRuns;
use crate::error::OperatorError;
use crate::pipeline::lock;
use crate::spill::{Awaited, Lane, LaneWriter, RowStream, Spill, SpillFile};

/// Rows of a run at most...
const RUN_ROWS: usize = 1 << 16;
/// ... and their bytes, roughly.
const RUN_BYTES_MAX: u64 = 8 << 20;
/// Rows that are sorted at once: a millisecond or two.
const PART_ROWS: usize = 1 << 14;

/// The runs of a sort, and what becomes of them.
#[derive(Debug)]
pub(super) struct ExternalSort {
    pub spill: Spill,
    keys: SortKeys,
    file: Mutex<Option<Arc<SpillFile>>>,
    /// Batches that wait for the next round, and whether they were taken whatever memory there was.
    waiting: Mutex<Vec<(Batch, bool)>>,
    /// The jobs of the round.
    round: RwLock<Vec<Mutex<RunJob>>>,
    runs: Mutex<Vec<Lane>>,
    /// Batches that were taken whatever memory there was.
    anyway: Reservation,
    /// Copies that jobs work on.
    copies: Reservation,
}

impl ExternalSort {
    pub fn new(spill: &Spill, keys: &SortKeys) -> Self {
        Self {
            spill: spill.clone(),
            keys: keys.clone(),
            file: Mutex::new(None),
            waiting: Mutex::new(Vec::new()),
            round: RwLock::new(Vec::new()),
            runs: Mutex::new(Vec::new()),
            anyway: spill.reserve_counted(),
            copies: spill.reserve_counted(),
        }
    }

    /// Whether anything is in files.
    pub fn is_used(&self) -> bool {
        lock(&self.file).is_some()
    }

    fn file(&self) -> Result<Arc<SpillFile>, OperatorError> {
        let mut file = lock(&self.file);
        if file.is_none() {
            *file = Some(SpillFile::new(&self.spill, 1)?);
        }
        file.clone().ok_or_else(|| OperatorError::Internal("a sort without its file".to_string()))
    }

    /// Takes a batch that the next round writes.
    pub fn take_anyway(&self, batch: Batch) -> Result<(), OperatorError> {
        self.anyway.grow(batch.bytes() as u64)?;
        lock(&self.waiting).push((batch, true));
        Ok(())
    }

    /// Plans a round for what waits and what `more` gives, if nothing waits; how many jobs it has.
    pub fn plan(&self, more: impl FnOnce() -> Vec<Batch>) -> Result<usize, OperatorError> {
        let file = self.file()?;
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() || self.anyway.bytes() > 0 {
            waiting.extend(more().into_iter().map(|batch| (batch, false)));
        }
        // Half for the copies that are sorted, half for what is on its way to the disk.
        let round_bytes = self.spill.in_flight_bytes() / 2;
        let run_bytes = (round_bytes / 2).min(RUN_BYTES_MAX);
        let (mut jobs, mut all_bytes) = (Vec::new(), 0);
        let mut rest = std::mem::take(&mut *waiting).into_iter();
        while all_bytes < round_bytes {
            let (mut batches, mut rows, mut bytes, mut anyway_bytes) = (Vec::new(), 0, 0, 0);
            while rows < RUN_ROWS && bytes < run_bytes {
                let Some((batch, is_anyway)) = rest.next() else { break };
                rows += batch.rows;
                bytes += batch.bytes() as u64;
                anyway_bytes += if is_anyway { batch.bytes() as u64 } else { 0 };
                batches.push(batch);
            }
            if batches.is_empty() {
                break;
            }
            all_bytes += bytes;
            jobs.push(Mutex::new(RunJob::new(batches, anyway_bytes, &file)));
        }
        waiting.extend(rest);
        let count = jobs.len();
        *self.round.write().unwrap_or_else(PoisonError::into_inner) = jobs;
        Ok(count)
    }

    /// A piece of a job; `working` is what the batches are charged to that were not taken anyway.
    pub fn run(&self, job: usize, working: &Reservation) -> Result<Poll<()>, OperatorError> {
        let round = self.round.read().unwrap_or_else(PoisonError::into_inner);
        let job = round.get(job).ok_or_else(|| OperatorError::Internal(format!("a sort has no run {job}")))?;
        let job = &mut *lock(job);
        match job.step(&self.keys, &self.copies)? {
            Step::Goes => Ok(Poll::Pending),
            Step::Joined(bytes) => {
                self.anyway.shrink(job.anyway_bytes);
                working.shrink(bytes - job.anyway_bytes);
                Ok(Poll::Pending)
            }
            Step::Done(lane) => {
                lock(&self.runs).push(lane);
                Ok(Poll::Ready(()))
            }
        }
    }

    pub fn written(&self) -> Awaited<'_, ()> {
        let file = lock(&self.file).clone();
        Box::pin(async move {
            match file {
                Some(file) => file.written().await,
                None => Ok(()),
            }
        })
    }

    /// The sorted rows.
    pub fn stream(&self) -> Box<dyn RowStream> {
        Box::new(MergedRuns::new(&self.spill, &self.keys, std::mem::take(&mut *lock(&self.runs))))
    }
}

enum Step {
    Goes,
    /// The batches, of so many bytes, are copied and gone.
    Joined(u64),
    Done(Lane),
}

/// Makes a run of batches, in pieces.
#[derive(Debug)]
struct RunJob {
    batches: Vec<Batch>,
    /// Of them, bytes of those that were taken whatever memory there was.
    anyway_bytes: u64,
    /// All columns whose rows are joined so far.
    columns: Vec<Column>,
    rows: usize,
    /// Ranks and row numbers, when the columns are there.
    ranked: Option<Vec<(u64, u32)>>,
    exact: bool,
    /// Rows that are sorted, in parts.
    sorted: usize,
    order: Vec<u32>,
    /// Rows that are written.
    done: usize,
    frame_rows: usize,
    copied: u64,
    writer: Option<LaneWriter>,
}

impl RunJob {
    fn new(batches: Vec<Batch>, anyway_bytes: u64, file: &Arc<SpillFile>) -> Self {
        Self {
            anyway_bytes,
            rows: batches.iter().map(|batch| batch.rows).sum(),
            batches,
            columns: Vec::new(),
            ranked: None,
            exact: false,
            sorted: 0,
            order: Vec::new(),
            done: 0,
            frame_rows: 1,
            copied: 0,
            writer: Some(LaneWriter::new(file)),
        }
    }

    fn step(&mut self, keys: &SortKeys, copies: &Reservation) -> Result<Step, OperatorError> {
        if let Some(first) = self.batches.first() {
            let width = first.columns.len();
            if self.columns.len() < width {
                let at = self.columns.len();
                let parts: Vec<Column> = self.batches.iter().map(|batch| batch.columns[at].clone()).collect();
                let column = Column::concat(&parts);
                let bytes = column.bytes() as u64;
                copies.grow(bytes)?;
                self.copied += bytes;
                self.columns.push(column);
                return Ok(Step::Goes);
            }
            let bytes = self.batches.iter().map(|batch| batch.bytes() as u64).sum();
            self.batches = Vec::new();
            return Ok(Step::Joined(bytes));
        }
        let columns = &self.columns;
        let Some(ranked) = &mut self.ranked else {
            self.exact = keys.ranks_are_exact(columns);
            self.ranked = Some(keys.ranks(columns, self.rows).into_iter().zip(0..).collect());
            return Ok(Step::Goes);
        };
        let compare = |a: &(u64, u32), b: &(u64, u32)| keys.compare_ranked(columns, self.exact, a, b);
        if self.sorted < self.rows {
            let end = (self.sorted + PART_ROWS).min(self.rows);
            ranked[self.sorted..end].sort_unstable_by(compare);
            self.sorted = end;
            return Ok(Step::Goes);
        }
        if self.order.is_empty() && self.rows > 0 {
            // Finds the parts that are in order, and merges them.
            ranked.sort_by(compare);
            self.order = ranked.iter().map(|(_, row)| *row).collect();
            *ranked = Vec::new();
            let bytes = columns.iter().map(Column::bytes).sum::<usize>().max(1);
            self.frame_rows = (FRAME_BYTES * self.rows / bytes).clamp(1, BATCH_ROWS);
            return Ok(Step::Goes);
        }
        let Some(writer) = &mut self.writer else {
            return Err(OperatorError::Internal("a run ends twice".to_string()));
        };
        if self.done < self.rows {
            let end = (self.done + self.frame_rows).min(self.rows);
            let rows = &self.order[self.done..end];
            let taken: Vec<Column> = columns.iter().map(|column| column.take(rows)).collect();
            writer.push(&Batch::new(taken, rows.len()))?;
            self.done = end;
            return Ok(Step::Goes);
        }
        self.columns = Vec::new();
        copies.shrink(self.copied);
        self.copied = 0;
        let lane = self.writer.take().map(LaneWriter::finish).transpose()?;
        lane.map(Step::Done).ok_or_else(|| OperatorError::Internal("a run without its lane".to_string()))
    }
}

/// Plain bytes of what is written at once.
const FRAME_BYTES: usize = 64 << 10;

impl SortKeys {
    /// The order of a row of some columns and one of others.
    pub(super) fn compare_rows(&self, a: (&[Column], usize), b: (&[Column], usize)) -> Ordering {
        let mut each = self.0.iter().map(|key| {
            let (one, other) = (&a.0[key.column], &b.0[key.column]);
            match (one.is_null(a.1), other.is_null(b.1)) {
                (true, true) => Ordering::Equal,
                (true, false) if key.nulls_first => Ordering::Less,
                (true, false) => Ordering::Greater,
                (false, true) if key.nulls_first => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => super::compare_between(*key, one, a.1, other, b.1),
            }
        });
        each.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
    }
}
