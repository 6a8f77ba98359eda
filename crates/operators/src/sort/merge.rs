//! Runs in files, merged to one.
//!
//! Of each run a batch is in memory. A heap says whose next row is the first of all; rows are picked in that order and
//! gathered by columns. A cursor whose batch is over reads the next one.

use std::cmp::Ordering;
use std::collections::VecDeque;

use eris_storage::{BATCH_ROWS, Batch, Column, ColumnBuilder};

use super::SortKeys;
use crate::error::OperatorError;
use crate::spill::{Awaited, Lane, LaneReader, LaneWriter, RowStream, Spill, SpillFile, Turn};

/// So many runs are merged at once at least...
const RUNS_MIN: usize = 4;
/// ... and at most.
const RUNS_MAX: usize = 512;
/// Bytes of a merged batch, roughly.
const OUTPUT_BYTES: u64 = 256 << 10;
/// Rows that are picked before the clock is looked at.
const PICKS: usize = 64;

/// Sorted rows of runs, as they are asked for.
pub(super) struct MergedRuns {
    spill: Spill,
    keys: SortKeys,
    runs: VecDeque<Lane>,
    /// Made with the first rows.
    merge: Option<Merge>,
}

impl MergedRuns {
    pub fn new(spill: &Spill, keys: &SortKeys, runs: Vec<Lane>) -> Self {
        Self { spill: spill.clone(), keys: keys.clone(), runs: runs.into(), merge: None }
    }

    /// Merges runs until so few are left that they can be merged at once.
    async fn reduce(&mut self) -> Result<(), OperatorError> {
        let run_bytes = self.runs.iter().map(Lane::reader_bytes).max().unwrap_or(1);
        let most = (self.spill.spare_bytes() / run_bytes).clamp(RUNS_MIN as u64, RUNS_MAX as u64) as usize;
        let (mut file, mut merged) = (SpillFile::new(&self.spill, 1)?, 0);
        while self.runs.len() > most {
            // Those that are merged together later lie in one file.
            if merged == most {
                (file, merged) = (SpillFile::new(&self.spill, 1)?, 0);
            }
            merged += 1;
            // The first time so many that the others come to full merges.
            let count = most.min(self.runs.len() - most + 1);
            let some: Vec<Lane> = self.runs.drain(..count).collect();
            let mut merge = Merge::start(&self.spill, &self.keys, some).await?;
            let mut writer = LaneWriter::new(&file);
            while let Some(batch) = merge.next_batch().await? {
                writer.push(&batch)?;
                file.written_below_limit().await?;
            }
            let lane = writer.finish()?;
            file.written().await?;
            self.runs.push_back(lane);
        }
        Ok(())
    }
}

impl RowStream for MergedRuns {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        Box::pin(async move {
            if self.merge.is_none() {
                self.reduce().await?;
                let runs = std::mem::take(&mut self.runs).into();
                self.merge = Some(Merge::start(&self.spill, &self.keys, runs).await?);
            }
            match &mut self.merge {
                Some(merge) => merge.next_batch().await,
                None => Ok(None),
            }
        })
    }
}

/// Where a run is.
struct Cursor {
    reader: LaneReader,
    batch: Batch,
    ranks: Vec<u64>,
    exact: bool,
    row: usize,
    /// The number of the batch among those that rows are gathered of, if it is one of them.
    source: Option<u32>,
}

struct Merge {
    keys: SortKeys,
    cursors: Vec<Cursor>,
    /// Numbers of cursors that have rows: a heap whose first has the next row.
    heap: Vec<usize>,
    output_rows: usize,
    turn: Turn,
}

impl Merge {
    async fn start(spill: &Spill, keys: &SortKeys, runs: Vec<Lane>) -> Result<Self, OperatorError> {
        let (rows, bytes) = runs.iter().fold((0, 0), |(rows, bytes), run| (rows + run.rows(), bytes + run.bytes()));
        let output_rows = (OUTPUT_BYTES * rows / bytes.max(1)).clamp(1, BATCH_ROWS as u64) as usize;
        let mut merge =
            Self { keys: keys.clone(), cursors: Vec::new(), heap: Vec::new(), output_rows, turn: spill.turn() };
        for run in runs {
            let batch = Batch::empty(run.types());
            let mut cursor =
                Cursor { reader: run.reader(), batch, ranks: Vec::new(), exact: false, row: 0, source: None };
            if cursor.advance(keys).await? {
                merge.heap.push(merge.cursors.len());
                merge.cursors.push(cursor);
            }
            merge.turn.give_way().await?;
        }
        (0..merge.heap.len()).rev().for_each(|at| merge.sift_down(at));
        Ok(merge)
    }

    /// Whether the next row of one cursor comes before that of another.
    fn is_before(&self, a: usize, b: usize) -> bool {
        let (one, other) = (&self.cursors[a], &self.cursors[b]);
        let ordering = match one.ranks[one.row].cmp(&other.ranks[other.row]) {
            Ordering::Equal if one.exact && other.exact => Ordering::Equal,
            Ordering::Equal => self.keys.compare_rows((&one.batch.columns, one.row), (&other.batch.columns, other.row)),
            decided => decided,
        };
        ordering.then(a.cmp(&b)).is_lt()
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let first =
                if right < self.heap.len() && self.is_before(self.heap[right], self.heap[left]) { right } else { left };
            if !self.is_before(self.heap[first], self.heap[at]) {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    async fn next_batch(&mut self) -> Result<Option<Batch>, OperatorError> {
        let mut sources: Vec<Batch> = Vec::new();
        let mut picks: Vec<(u32, u32)> = Vec::with_capacity(self.output_rows);
        self.cursors.iter_mut().for_each(|cursor| cursor.source = None);
        while picks.len() < self.output_rows {
            let Some(first) = self.heap.first().copied() else { break };
            let cursor = &mut self.cursors[first];
            let source = *cursor.source.get_or_insert_with(|| {
                sources.push(cursor.batch.clone());
                sources.len() as u32 - 1
            });
            picks.push((source, cursor.row as u32));
            cursor.row += 1;
            if cursor.row == cursor.batch.rows && !cursor.advance(&self.keys).await? {
                self.heap.swap_remove(0);
            }
            self.sift_down(0);
            if picks.len().is_multiple_of(PICKS) {
                self.turn.give_way().await?;
            }
        }
        if picks.is_empty() {
            return Ok(None);
        }
        let mut columns = Vec::with_capacity(sources[0].columns.len());
        for at in 0..sources[0].columns.len() {
            columns.push(gathered(&sources, at, &picks));
            self.turn.give_way().await?;
        }
        Ok(Some(Batch::new(columns, picks.len())))
    }
}

/// One column of rows of several batches.
fn gathered(sources: &[Batch], at: usize, picks: &[(u32, u32)]) -> Column {
    let mut builder = ColumnBuilder::with_capacity(sources[0].columns[at].data_type, picks.len());
    // Rows that follow each other are copied together.
    let follows = |a: &(u32, u32), b: &(u32, u32)| a.0 == b.0 && a.1 + 1 == b.1;
    for run in picks.chunk_by(follows) {
        let (source, start) = (run[0].0 as usize, run[0].1 as usize);
        builder.extend(&sources[source].columns[at], start..start + run.len());
    }
    builder.finish()
}

impl Cursor {
    /// Goes to the first row of the next batch; false if there is none.
    async fn advance(&mut self, keys: &SortKeys) -> Result<bool, OperatorError> {
        let Some(batch) = self.reader.next_batch().await? else { return Ok(false) };
        self.ranks = keys.ranks(&batch.columns, batch.rows);
        self.exact = keys.ranks_are_exact(&batch.columns);
        (self.batch, self.row, self.source) = (batch, 0, None);
        Ok(true)
    }
}
