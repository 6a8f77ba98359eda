//! A sink that sorts.
//!
//! ```text
//!   consume        batches, in slots
//!   first round    a job for consecutive batches: copies columns to their place, sorts ranks with row numbers: a run
//!   second round   splitters cut all runs alike; a job for each piece merges it and gathers its rows
//!
//!   run 0  | <= s1 | <= s2 | ...        run 1  | <= s1 | <= s2 | ...        piece 1: the first of each, and so on
//! ```
//! Where memory is refused the sort goes on in files ([`super::external`]).
//! With a small limit each slot keeps its first rows only ([`Top`]), and the task sorts those.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Poll;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::{BATCH_ROWS, Batch, Column};

use super::SortKeys;
use super::external::ExternalSort;
use super::top::Top;
use crate::assembly::{ColumnParts, Parts, own_texts};
use crate::error::OperatorError;
use crate::pipeline::{Emitting, Sink, Slots, lock};
use crate::spill::{Awaited, LimitedRows, RowStream, Spill, SpillingSink};

/// What the pool calls it.
const CONSUMER: &str = "sort";
/// Rows of a run and of a piece, roughly: a millisecond or a few.
const RUN_ROWS: usize = 1 << 14;
/// Few rows are cut into more runs than one, down to this: what else there is to do waits less.
const RUN_ROWS_MIN: usize = 1 << 11;
/// So many runs of few rows at most.
const RUNS_OF_FEW: usize = 16;
/// So many runs at most: between the rounds, each piece is looked for in each run.
const RUNS_MAX: usize = 512;
/// Beyond, all rows are sorted before the limit cuts them.
const TOP_ROWS_MAX: usize = 1 << 16;

type Ranked = (u64, u32);

#[derive(Debug, Default)]
struct Slot {
    batches: Vec<Batch>,
    top: Top,
}

#[derive(Debug)]
enum Phase {
    Consuming,
    Running(Box<Running>),
    Merging(Box<Merging>),
    Done,
}

/// The first round.
#[derive(Debug)]
struct Running {
    jobs: Vec<Mutex<Vec<Batch>>>,
    first_batches: Vec<usize>,
    columns: Vec<ColumnParts>,
    ranked: Parts<Ranked>,
    bounds: Vec<usize>,
}

/// The second round.
#[derive(Debug)]
struct Merging {
    columns: Vec<Column>,
    exact: bool,
    ranked: Box<[Ranked]>,
    /// For each piece, where it begins in each run; one more for the end.
    cuts: Vec<Vec<usize>>,
    /// Rows of the pieces before each.
    starts: Vec<usize>,
}

/// How long runs and pieces of so many rows are.
fn run_rows(rows: usize) -> usize {
    (rows / RUNS_OF_FEW).clamp(RUN_ROWS_MIN, RUN_ROWS).max(rows / RUNS_MAX)
}

/// Sorts what it gets; with a limit only so many rows are kept. Rows that compare equal keep the order in which one
/// worker brought them.
#[derive(Debug)]
pub struct SortSink {
    keys: SortKeys,
    limit: Option<usize>,
    slots: Slots<Slot>,
    phase: RwLock<Phase>,
    /// By piece.
    results: Mutex<Vec<Vec<Batch>>>,
    working: Reservation,
    output: Mutex<Option<Reservation>>,
    /// How it goes on in files, if it may.
    external: Option<Box<ExternalSort>>,
}

impl SortSink {
    /// An empty one, for as many workers.
    pub fn new(keys: SortKeys, limit: Option<usize>, memory: &Arc<MemoryPool>, workers: usize) -> Self {
        Self {
            keys,
            limit,
            slots: Slots::new(workers, Slot::default),
            phase: RwLock::new(Phase::Consuming),
            results: Mutex::new(Vec::new()),
            working: memory.reserve(CONSUMER),
            output: Mutex::new(Some(memory.reserve(CONSUMER))),
            external: None,
        }
    }

    /// The same, which goes on in files when memory is refused. The few rows that a small limit leaves stay in memory.
    #[must_use]
    pub fn spilling_to(self, spill: &Spill) -> Self {
        if self.top().is_some() {
            return self;
        }
        let working = self.working.pool().reserve_spillable(CONSUMER);
        Self { working, external: Some(Box::new(ExternalSort::new(spill, &self.keys))), ..self }
    }

    /// Rows that are held, and their bytes.
    pub(crate) fn held(&self) -> (u64, u64) {
        let of = |batch: &Batch| (batch.rows as u64, batch.bytes() as u64);
        let slots = self.slots.iter().map(|slot| slot.batches.iter().map(of).collect::<Vec<_>>());
        slots.flatten().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// What both rounds take in memory besides the batches, and the result.
    pub(crate) fn bytes_to_finish(&self) -> u64 {
        let (mut rows, mut bytes, mut widths) = (0, 0, 0);
        for slot in self.slots.iter() {
            for batch in &slot.batches {
                rows += batch.rows as u64;
                bytes += batch.bytes() as u64;
                widths = batch.columns.iter().map(|column| ColumnParts::bytes(column.data_type, 8)).sum();
            }
        }
        rows * widths / 8 + 2 * rows * size_of::<Ranked>() as u64 + bytes
    }

    fn top(&self) -> Option<usize> {
        self.limit.filter(|limit| *limit <= TOP_ROWS_MAX)
    }

    fn charge_output(&self, bytes: u64) -> Result<(), OperatorError> {
        match &*lock(&self.output) {
            Some(output) => Ok(output.grow(bytes)?),
            None => Err(OperatorError::Internal("the sorted rows are taken already".to_string())),
        }
    }

    /// Joins what the slots have kept of the first rows.
    fn finish_top(&self, limit: usize) -> Result<(), OperatorError> {
        let mut all = Top::default();
        for mut slot in self.slots.iter() {
            if all.is_empty() {
                all = std::mem::take(&mut slot.top);
            } else {
                for batch in slot.top.take() {
                    let bytes = batch.bytes() as u64;
                    all.add(batch, &self.keys, limit, &self.working)?;
                    self.working.shrink(bytes);
                }
            }
        }
        all.choose(&self.keys, limit, &self.working)?;
        let chosen = all.take();
        self.charge_output(chosen.iter().map(|batch| batch.bytes() as u64).sum())?;
        self.working.shrink(self.working.bytes());
        let pieces = chosen.iter().flat_map(|batch| {
            let starts = (0..batch.rows).step_by(BATCH_ROWS);
            starts.map(|start| batch.slice(start, BATCH_ROWS.min(batch.rows - start)))
        });
        *lock(&self.results) = vec![pieces.collect()];
        Ok(())
    }

    /// Reserves for a batch; without an error in the refusal it is to go to files.
    fn reserve(&self, bytes: u64) -> Result<(), Option<OperatorError>> {
        let Some(external) = &self.external else {
            return self.working.grow(bytes).map_err(|error| Some(error.into()));
        };
        let held = self.working.bytes();
        if held > 0 && external.spill.is_enough(held + bytes) || self.working.grow(bytes).is_err() {
            return Err(None);
        }
        Ok(())
    }

    fn external(&self) -> Result<&ExternalSort, OperatorError> {
        self.external.as_deref().ok_or_else(|| OperatorError::Internal("a sort that has no files".to_string()))
    }

    fn plan_runs(&self) -> Result<Phase, OperatorError> {
        let batches: Vec<Batch> = self.slots.iter().flat_map(|mut slot| std::mem::take(&mut slot.batches)).collect();
        let Some(first) = batches.first() else { return Ok(Phase::Done) };
        let types = first.data_types();
        let run_rows = run_rows(batches.iter().map(|batch| batch.rows).sum());
        let (mut first_batches, mut bounds, mut rows) = (vec![0], vec![0], 0);
        for (at, batch) in batches.iter().enumerate() {
            rows += batch.rows;
            if rows - bounds[bounds.len() - 1] >= run_rows || at + 1 == batches.len() {
                first_batches.push(at + 1);
                bounds.push(rows);
            }
        }
        if u32::try_from(rows).is_err() {
            return Err(OperatorError::Internal(format!("{rows} rows are too many for a sort")));
        }
        let columns_bytes: u64 = types.iter().map(|data_type| ColumnParts::bytes(*data_type, rows)).sum();
        self.working.grow(columns_bytes + (rows * size_of::<Ranked>()) as u64)?;
        let column = |at: usize| ColumnParts::new(types[at], &bounds, batches.iter().map(|batch| &batch.columns[at]));
        let columns = (0..types.len()).map(column).collect();
        let ranked = Parts::new(&bounds);
        let mut rest = batches.into_iter();
        let jobs = first_batches.windows(2).map(|pair| Mutex::new(rest.by_ref().take(pair[1] - pair[0]).collect()));
        let jobs = jobs.collect();
        Ok(Phase::Running(Box::new(Running { jobs, first_batches, columns, ranked, bounds })))
    }

    fn sort_run(&self, running: &Running, job: usize) {
        let batches = std::mem::take(&mut *lock(&running.jobs[job]));
        let first = running.first_batches[job];
        for (at, column) in running.columns.iter().enumerate() {
            column.fill(job, first, batches.iter().map(|batch| &batch.columns[at]));
        }
        let run = running.ranked.take(job);
        let start = running.bounds[job];
        // The keys of this run only, for rows whose ranks are equal.
        let keys: Vec<Column> = (self.keys.0.iter())
            .map(|key| {
                Column::concat(&batches.iter().map(|batch| batch.columns[key.column].clone()).collect::<Vec<_>>())
            })
            .collect();
        let own = self.keys.renumbered();
        let ranks = own.ranks(&keys, run.len());
        for (row, (entry, rank)) in run.iter_mut().zip(ranks).enumerate() {
            *entry = (rank, row as u32);
        }
        let exact = own.ranks_are_exact(&keys);
        run.sort_unstable_by(|a, b| own.compare_ranked(&keys, exact, a, b));
        for entry in run {
            entry.1 += start as u32;
        }
        let copied = batches.iter().flat_map(|batch| batch.columns.iter()).map(ColumnParts::copied_bytes);
        self.working.shrink(copied.sum());
    }

    /// Cuts the runs into pieces.
    fn plan_pieces(&self, running: Running) -> Result<Phase, OperatorError> {
        let Running { columns, ranked, bounds, .. } = running;
        let columns: Vec<Column> = columns.into_iter().map(ColumnParts::finish).collect();
        let ranked = ranked.finish();
        let exact = self.keys.ranks_are_exact(&columns);
        let compare = |a: &Ranked, b: &Ranked| self.keys.compare_ranked(&columns, exact, a, b);
        let pieces = ranked.len().div_ceil(run_rows(ranked.len())).max(1);
        // As many samples of each run as there are pieces, evenly apart.
        let mut samples: Vec<Ranked> = bounds
            .windows(2)
            .flat_map(|run| (0..pieces).map(|at| run[0] + (run[1] - run[0]) * at / pieces))
            .map(|at| ranked[at])
            .collect();
        samples.sort_unstable_by(compare);
        let mut cuts = vec![bounds[..bounds.len() - 1].to_vec()];
        for piece in 1..pieces {
            let splitter = &samples[samples.len() * piece / pieces];
            let cut = bounds.windows(2).map(|run| {
                let rows = &ranked[run[0]..run[1]];
                run[0] + rows.partition_point(|row| compare(row, splitter) == Ordering::Less)
            });
            cuts.push(cut.collect());
        }
        cuts.push(bounds[1..].to_vec());
        let before = |cut: &Vec<usize>| cut.iter().zip(&bounds).map(|(at, start)| at - start).sum();
        let starts = cuts.iter().map(before).collect();
        // Each piece is copied once to be merged.
        self.working.grow((ranked.len() * size_of::<Ranked>()) as u64)?;
        *lock(&self.results) = vec![Vec::new(); pieces];
        Ok(Phase::Merging(Box::new(Merging { columns, exact, ranked, cuts, starts })))
    }

    fn merge_piece(&self, merging: &Merging, piece: usize) -> Result<(), OperatorError> {
        let Merging { columns, exact, ranked, cuts, starts } = merging;
        let left = self.limit.unwrap_or(usize::MAX).saturating_sub(starts[piece]);
        if left == 0 {
            return Ok(());
        }
        let runs = cuts[piece].iter().zip(&cuts[piece + 1]);
        let mut rows: Vec<Ranked> = runs.flat_map(|(start, end)| ranked[*start..*end].iter().copied()).collect();
        // The standard library's stable sort finds runs that are in order, and merges them.
        rows.sort_by(|a, b| self.keys.compare_ranked(columns, *exact, a, b));
        rows.truncate(left);
        let row_bytes: u64 = columns.iter().map(|column| column.data_type.physical().width() as u64 + 1).sum();
        let mut batches = Vec::with_capacity(rows.len().div_ceil(BATCH_ROWS));
        for rows in rows.chunks(BATCH_ROWS) {
            let estimated = rows.len() as u64 * row_bytes;
            self.charge_output(estimated)?;
            let numbers: Vec<u32> = rows.iter().map(|(_, row)| *row).collect();
            let taken: Vec<Column> = columns.iter().map(|column| column.take(&numbers)).collect();
            let batch = Batch::new(taken, rows.len());
            let bytes = batch.bytes() as u64;
            self.charge_output(bytes.saturating_sub(estimated))?;
            if let Some(output) = &*lock(&self.output) {
                output.shrink(estimated.saturating_sub(bytes));
            }
            batches.push(batch);
        }
        lock(&self.results)[piece] = batches;
        Ok(())
    }
}

impl SortKeys {
    /// The same keys over columns that are the key columns, in order.
    fn renumbered(&self) -> Self {
        let keys = self.0.iter().enumerate().map(|(column, key)| super::SortKey { column, ..*key });
        Self(keys.collect())
    }
}

impl Sink for SortSink {
    fn consume(&self, batch: Batch, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        let mut slot = self.slots.any();
        if let Some(limit) = self.top() {
            return if limit == 0 { Ok(()) } else { slot.top.add(batch, &self.keys, limit, &self.working) };
        }
        for start in (0..batch.rows).step_by(RUN_ROWS) {
            let rows = RUN_ROWS.min(batch.rows - start);
            let piece = if rows == batch.rows { batch.clone() } else { batch.slice(start, rows) };
            let columns: Vec<Column> = piece.columns.into_vec().into_iter().map(own_texts).collect();
            let piece = Batch::new(columns, rows);
            if let Err(refused) = self.reserve(piece.bytes() as u64) {
                drop(slot);
                let Some(refused) = refused else { return emit(batch.slice(start, batch.rows - start)) };
                return Err(refused);
            }
            slot.batches.push(piece);
        }
        Ok(())
    }

    fn spilling(&self) -> Option<&dyn SpillingSink> {
        self.external.as_ref().map(|_| self as &dyn SpillingSink)
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        let next = match (std::mem::replace(&mut *phase, Phase::Done), self.top()) {
            (Phase::Consuming, Some(limit)) => {
                self.finish_top(limit)?;
                Phase::Done
            }
            (Phase::Consuming, None) => self.plan_runs()?,
            (Phase::Running(running), _) => self.plan_pieces(*running)?,
            (Phase::Merging(merging), _) => {
                drop(merging);
                self.working.shrink(self.working.bytes());
                Phase::Done
            }
            (Phase::Done, _) => Phase::Done,
        };
        *phase = next;
        Ok(match &*phase {
            Phase::Consuming | Phase::Done => 0,
            Phase::Running(running) => running.jobs.len(),
            Phase::Merging(merging) => merging.starts.len() - 1,
        })
    }

    fn finish_job(&self, job: usize) -> Result<(), OperatorError> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Running(running) => {
                self.sort_run(running, job);
                Ok(())
            }
            Phase::Merging(merging) => self.merge_piece(merging, job),
            Phase::Consuming | Phase::Done => Err(OperatorError::Internal(format!("a sort has no job {job} now"))),
        }
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        let batches = std::mem::take(&mut *lock(&self.results)).into_iter().flatten().collect();
        Ok((batches, lock(&self.output).take()))
    }
}

impl SpillingSink for SortSink {
    fn spill_jobs(&self) -> Result<usize, OperatorError> {
        let held = || self.slots.free().flat_map(|mut slot| std::mem::take(&mut slot.batches)).collect();
        self.external()?.plan(held)
    }

    fn spill_job(&self, job: usize) -> Result<Poll<()>, OperatorError> {
        self.external()?.run(job, &self.working)
    }

    fn written(&self) -> Awaited<'_, ()> {
        match &self.external {
            Some(external) => external.written(),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn consume_anyway(&self, batch: Batch) -> Result<(), OperatorError> {
        self.external()?.take_anyway(batch)
    }

    fn ends_in_files(&self) -> bool {
        let Some(external) = &self.external else { return false };
        external.is_used() || !external.spill.has_room(self.bytes_to_finish())
    }

    fn take_stream(&self) -> Result<Box<dyn RowStream>, OperatorError> {
        let stream = self.external()?.stream();
        Ok(match self.limit {
            Some(limit) => Box::new(LimitedRows::new(stream, 0, Some(limit as u64))),
            None => stream,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::finish;
    use crate::sort::SortKey;
    use eris_platform::SeededRandom;
    use eris_storage::{DataType, Value};

    const TYPES: [DataType; 5] = [
        DataType::Int64,
        DataType::Text,
        DataType::Float64,
        DataType::Decimal { precision: 30, scale: 0 },
        DataType::Int32,
    ];

    fn rows(random: &mut SeededRandom, count: usize) -> Vec<Vec<Value>> {
        let different = [3, 50, 1 << 40][random.index(3)];
        let nulls = random.below(2) == 0;
        (0..count)
            .map(|row| {
                let n = random.below(different) as i64 - 20;
                let mut values = vec![
                    Value::Int64(n),
                    Value::Text(format!("a common beginning {}", n % 60).into()),
                    Value::Float64(if n == 1 { f64::NAN } else { n as f64 / 3.0 }),
                    Value::Decimal { unscaled: i128::from(n) << (n.unsigned_abs() % 2 * 60), scale: 0 },
                ];
                for value in &mut values {
                    if nulls && random.below(6) == 0 {
                        *value = Value::Null;
                    }
                }
                values.push(Value::Int32(row as i32));
                values
            })
            .collect()
    }

    fn reference(rows: &[Vec<Value>], keys: &SortKeys, limit: Option<usize>) -> Vec<Vec<Value>> {
        let mut sorted = rows.to_vec();
        sorted.sort_by(|a, b| {
            let each = keys.0.iter().map(|key| {
                let (a, b) = (&a[key.column], &b[key.column]);
                match (a.is_null(), b.is_null()) {
                    (false, false) if key.descending => b.cmp(a),
                    (false, false) => a.cmp(b),
                    (one, other) if key.nulls_first => other.cmp(&one),
                    (one, other) => one.cmp(&other),
                }
            });
            each.fold(Ordering::Equal, Ordering::then)
        });
        sorted.truncate(limit.unwrap_or(usize::MAX));
        sorted
    }

    fn check(seed: u64, count: usize, limit: Option<usize>) {
        let mut random = SeededRandom::new(seed);
        let rows = rows(&mut random, count);
        let key = |random: &mut SeededRandom| SortKey {
            column: random.index(4),
            descending: random.below(2) == 0,
            nulls_first: random.below(2) == 0,
        };
        let keys = SortKeys((0..random.below(4)).map(|_| key(&mut random)).collect());
        let pool = MemoryPool::unlimited();
        let sink = SortSink::new(keys.clone(), limit, &pool, 2);
        let whole = Batch::from_rows(&TYPES, &rows);
        let mut start = 0;
        while start < count {
            let length = (1 + random.index(3_000)).min(count - start);
            sink.consume(whole.slice(start, length), &mut |_| Ok(())).unwrap();
            start += length;
        }
        let found = finish(&sink, 1 + random.index(2)).unwrap();
        assert!(found.iter().all(|batch| batch.rows > 0 && batch.rows <= BATCH_ROWS));
        let found: Vec<Vec<Value>> = found.iter().flat_map(|batch| (0..batch.rows).map(|row| batch.row(row))).collect();
        assert!(found == reference(&rows, &keys, limit), "seed {seed}: {count} rows, {limit:?}, {keys:?}");
        drop(sink);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn rows_come_in_order() {
        let mut seed = 0;
        for count in [0, 1, 7, 2_048, 5_000] {
            for limit in [None, Some(0), Some(1), Some(10), Some(3_000), Some(100_000)] {
                for _ in 0..4 {
                    seed += 1;
                    check(seed, count, limit);
                }
            }
        }
    }

    #[test]
    fn several_runs_are_merged_in_pieces() {
        for seed in 0..6 {
            check(seed, 90_000, [None, Some(70_000), Some(100)][seed as usize % 3]);
        }
    }

    #[test]
    fn first_rows_need_little_memory_and_a_sort_fails_within_its_limit() {
        let rows: Vec<Vec<Value>> = (0..50_000).map(|n| vec![Value::Int64(n * 7_919 % 50_000)]).collect();
        let whole = Batch::from_rows(&[DataType::Int64], &rows);
        let run = |limit, pool: &Arc<MemoryPool>| {
            let keys = SortKeys([SortKey { column: 0, descending: true, nulls_first: false }].into());
            let sink = SortSink::new(keys, limit, pool, 1);
            for start in (0..50_000).step_by(2_000) {
                sink.consume(whole.slice(start, 2_000), &mut |_| Ok(()))?;
            }
            finish(&sink, 1)
        };
        let pool = MemoryPool::new(600 << 10);
        assert_eq!(run(Some(3), &pool).unwrap()[0].value(0, 0), Value::Int64(49_999));
        assert!(matches!(run(None, &pool), Err(OperatorError::Memory(_))));
        assert_eq!(pool.used(), 0);
    }
}
