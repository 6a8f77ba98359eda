//! Rows that are written in parts, by the hash of their keys.
//!
//! ```text
//!   batch | columns ... | keys ... |  ── jobs ──>  | part 0 | part 1 | ... | part 31 |     a lane each
//! ```
//! The keys are the last columns: they are computed once, and what is read has them. Both sides of a join are divided
//! alike, so that rows that may meet are in parts of the same number.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Poll;

use eris_platform::Reservation;
use eris_storage::{BATCH_ROWS, Batch, Column, DataType, Values};

use crate::error::OperatorError;
use crate::hash::{hash_rows, mix};
use crate::pipeline::lock;
use crate::spill::{Awaited, Lane, LaneReader, LaneWriter, Spill, SpillFile, Turn};

/// Parts that rows are divided into at once.
const PARTS: usize = 32;
const PARTS_BITS: u32 = PARTS.trailing_zeros();
const _: () = assert!(PARTS.is_power_of_two());

/// A part that gets rows.
#[derive(Debug)]
pub(super) struct Parts {
    pub file: Arc<SpillFile>,
    level: u32,
    keys: usize,
    writers: Vec<Mutex<LaneWriter>>,
}

impl Parts {
    /// Of rows that end with so many keys; without keys there is one part.
    pub fn new(spill: &Spill, keys: usize, level: u32) -> Result<Self, OperatorError> {
        let count = if keys == 0 { 1 } else { PARTS };
        let file = SpillFile::new(spill, count)?;
        let writers = (0..count).map(|_| Mutex::new(LaneWriter::new(&file))).collect();
        Ok(Self { file, level, keys, writers })
    }

    /// Writes rows.
    pub fn put(&self, batch: &Batch) -> Result<(), OperatorError> {
        if self.keys == 0 {
            return lock(&self.writers[0]).push(batch);
        }
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); PARTS];
        let keys: Vec<Column> = batch.columns[batch.columns.len() - self.keys..].iter().map(hashed_alike).collect();
        // Other bits on each level, and none that a table of one part depends on.
        let seed = u64::from(self.level + 1) << 48;
        for (row, hash) in hash_rows(&keys, batch.rows).into_iter().enumerate() {
            rows[(mix(hash ^ seed) >> (u64::BITS - PARTS_BITS)) as usize].push(row as u32);
        }
        for (rows, writer) in rows.iter().zip(&self.writers).filter(|(rows, _)| !rows.is_empty()) {
            lock(writer).push(&batch.take(rows))?;
        }
        Ok(())
    }

    /// The parts, by number. They can be read when the file is written.
    pub fn finish(self) -> Result<Vec<Lane>, OperatorError> {
        let writers = self.writers.into_iter();
        writers.map(|writer| writer.into_inner().unwrap_or_else(PoisonError::into_inner).finish()).collect()
    }

    /// Divides all rows of a lane.
    pub async fn of_lane(
        spill: &Spill,
        keys: usize,
        level: u32,
        mut reader: LaneReader,
        turn: &mut Turn,
    ) -> Result<Vec<Lane>, OperatorError> {
        let parts = Self::new(spill, keys, level)?;
        while let Some(batch) = reader.next_batch().await? {
            parts.put(&batch)?;
            parts.file.written_below_limit().await?;
            turn.give_way().await?;
        }
        let file = Arc::clone(&parts.file);
        let lanes = parts.finish()?;
        file.written().await?;
        Ok(lanes)
    }
}

/// A key column whose hashes are those of equal values of other widths: tables by codes find them equal, too.
fn hashed_alike(key: &Column) -> Column {
    let Values::Int128(values) = &key.values else { return key.clone() };
    let word =
        |value: &i128| i64::try_from(*value).unwrap_or_else(|_| (mix((value >> 64) as u64) ^ *value as u64) as i64);
    let values = Values::Int64(values.iter().map(word).collect());
    Column { data_type: DataType::Int64, validity: key.validity.clone(), values }
}

/// A batch that waits to be written, or is being written.
#[derive(Debug)]
struct Piece {
    batch: Batch,
    bytes: u64,
    /// Rows that are written.
    done: usize,
    /// Whether it was taken whatever memory there was.
    anyway: bool,
}

/// Writes what a sink holds in parts, by rounds of jobs.
#[derive(Debug)]
pub(in crate::join) struct Dividing {
    pub spill: Spill,
    keys: usize,
    parts: Mutex<Option<Arc<Parts>>>,
    waiting: Mutex<Vec<Piece>>,
    /// The jobs of the round.
    round: RwLock<Vec<Mutex<Piece>>>,
    /// Batches that were taken whatever memory there was.
    anyway: Reservation,
}

impl Dividing {
    /// Of rows that end with so many keys.
    pub fn new(spill: &Spill, keys: usize) -> Self {
        Self {
            spill: spill.clone(),
            keys,
            parts: Mutex::new(None),
            waiting: Mutex::default(),
            round: RwLock::default(),
            anyway: spill.reserve_counted(),
        }
    }

    /// Whether anything is in files.
    pub fn is_used(&self) -> bool {
        lock(&self.parts).is_some()
    }

    fn parts(&self) -> Result<Arc<Parts>, OperatorError> {
        let mut parts = lock(&self.parts);
        let made = match &*parts {
            Some(parts) => Arc::clone(parts),
            None => Arc::new(Parts::new(&self.spill, self.keys, 0)?),
        };
        *parts = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Takes a batch that the next round writes.
    pub fn take_anyway(&self, batch: Batch) -> Result<(), OperatorError> {
        let bytes = batch.bytes() as u64;
        self.anyway.grow(bytes)?;
        lock(&self.waiting).push(Piece { batch, bytes, done: 0, anyway: true });
        Ok(())
    }

    /// Plans a round for what waits and what `more` gives, with the bytes that are charged for it; how many jobs it
    /// has.
    pub fn plan(&self, more: impl FnOnce() -> Vec<(Batch, u64)>) -> Result<usize, OperatorError> {
        self.parts()?;
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() || self.anyway.bytes() > 0 {
            let held = more().into_iter();
            waiting.extend(held.map(|(batch, bytes)| Piece { batch, bytes, done: 0, anyway: false }));
        }
        // What they become is on its way to the disk then.
        let round_bytes = self.spill.in_flight_bytes() / 2;
        let (mut count, mut bytes) = (0, 0);
        while count < waiting.len() && (count == 0 || bytes < round_bytes) {
            bytes += waiting[count].bytes;
            count += 1;
        }
        let jobs: Vec<Mutex<Piece>> = waiting.drain(..count).map(Mutex::new).collect();
        *self.round.write().unwrap_or_else(PoisonError::into_inner) = jobs;
        Ok(count)
    }

    /// A piece of a job; `working` is what the batches are charged to that were not taken anyway.
    pub fn run(&self, job: usize, working: &Reservation) -> Result<Poll<()>, OperatorError> {
        let round = self.round.read().unwrap_or_else(PoisonError::into_inner);
        let piece = round.get(job).ok_or_else(|| OperatorError::Internal(format!("nothing to divide in job {job}")))?;
        let piece = &mut *lock(piece);
        let rows = BATCH_ROWS.min(piece.batch.rows - piece.done);
        self.parts()?.put(&piece.batch.slice(piece.done, rows))?;
        piece.done += rows;
        if piece.done < piece.batch.rows {
            return Ok(Poll::Pending);
        }
        piece.batch = Batch::new([], 0);
        piece.done = 0;
        let charged = if piece.anyway { &self.anyway } else { working };
        charged.shrink(std::mem::take(&mut piece.bytes));
        Ok(Poll::Ready(()))
    }

    pub fn written(&self) -> Awaited<'_, ()> {
        let parts = lock(&self.parts).clone();
        Box::pin(async move {
            match parts {
                Some(parts) => parts.file.written().await,
                None => Ok(()),
            }
        })
    }

    /// The parts, by number, and the file: what was gathered last is still on its way to it. Once, when all rounds are
    /// over.
    pub fn finish(&self) -> Result<(Vec<Lane>, Arc<SpillFile>), OperatorError> {
        self.parts()?;
        let parts = lock(&self.parts).take().and_then(Arc::into_inner);
        let Some(parts) = parts else { return Err(OperatorError::Internal("rows are still divided".to_string())) };
        let file = Arc::clone(&parts.file);
        Ok((parts.finish()?, file))
    }
}
