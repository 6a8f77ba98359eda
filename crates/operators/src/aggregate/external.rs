//! Grouping in files: groups that do not fit into memory are written by the hash of their columns, and put together
//! part by part when they are read.
//!
//! ```text
//!   groups of a slot ── jobs ──> | part 0 | part 1 | ... | part 31 |      partial groups, values of DISTINCT calls
//!   part 0 of all slots ──> groups ──> results as they are asked for
//!          └─ too large: divided by other bits of the hash, and so on
//! ```

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Poll;

use eris_platform::MemoryPool;
use eris_storage::{BATCH_ROWS, Batch, Value};

use super::GroupCall;
use super::grouped::{CallState, Grouped};
use super::partial::{Content, content_of};
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::hash::{hash_rows, mix};
use crate::pipeline::lock;
use crate::settings::AggregationInput;
use crate::spill::{Awaited, Lane, LaneWriter, RowStream, Spill, SpillFile, Turn};

/// Parts that groups are divided into at once.
const PARTS: usize = 32;
const PARTS_BITS: u32 = PARTS.trailing_zeros();
const _: () = assert!(PARTS.is_power_of_two());
/// So often a part is divided again: then there are more parts than any disk has bytes.
const LEVELS_MAX: u32 = 8;
/// Groups of one job: a fraction of a millisecond.
const JOB_GROUPS: usize = 1 << 12;
/// Jobs of a round, where memory is not short: what is on its way to the disk at most are their groups.
const ROUND_JOBS_MAX: usize = 256;

/// What groups are made by.
#[derive(Clone, Debug)]
pub(super) struct GroupPlan {
    pub groups: Arc<[Expression]>,
    pub determining: usize,
    pub calls: Arc<[GroupCall]>,
    pub memory: Arc<MemoryPool>,
    pub input: AggregationInput,
}

impl GroupPlan {
    /// No groups yet.
    pub fn grouped(&self) -> Grouped {
        let (groups, calls) = (Arc::clone(&self.groups), Arc::clone(&self.calls));
        Grouped::new(groups, self.determining, calls, &self.memory, self.input)
    }

    /// What is written of groups, in the order in which it has to be read: the groups come first, so that each has its
    /// rows.
    fn contents(&self) -> Vec<Content> {
        let distinct = self.calls.iter().enumerate().filter(|(_, call)| call.distinct);
        std::iter::once(Content::Groups).chain(distinct.map(|(call, _)| Content::Values(call))).collect()
    }
}

/// Partial groups in files, by parts.
#[derive(Debug)]
struct Parts {
    file: Arc<SpillFile>,
    level: u32,
    /// Of each part, what is written for each content.
    writers: Vec<Vec<Mutex<LaneWriter>>>,
}

/// What belongs to one part.
#[derive(Debug)]
struct Part {
    level: u32,
    lanes: Vec<Lane>,
}

impl Parts {
    fn new(spill: &Spill, contents: usize, level: u32) -> Result<Self, OperatorError> {
        let file = SpillFile::new(spill, PARTS * contents)?;
        let lanes = |_| (0..contents).map(|_| Mutex::new(LaneWriter::new(&file))).collect();
        let writers = (0..PARTS).map(lanes).collect();
        Ok(Self { file, level, writers })
    }

    /// Writes rows that begin with so many columns by which they are divided.
    fn put(&self, content: usize, keys: usize, batch: &Batch) -> Result<(), OperatorError> {
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); PARTS];
        // Other bits on each level, and none that a table of one part depends on.
        let seed = u64::from(self.level + 1) << 48;
        for (row, hash) in hash_rows(&batch.columns[..keys], batch.rows).into_iter().enumerate() {
            rows[(mix(hash ^ seed) >> (u64::BITS - PARTS_BITS)) as usize].push(row as u32);
        }
        for (rows, writers) in rows.iter().zip(&self.writers).filter(|(rows, _)| !rows.is_empty()) {
            lock(&writers[content]).push(&batch.take(rows))?;
        }
        Ok(())
    }

    /// Those that have rows.
    fn finish(self) -> Result<Vec<Part>, OperatorError> {
        let mut parts = Vec::new();
        for writers in self.writers {
            let lanes =
                writers.into_iter().map(|writer| writer.into_inner().unwrap_or_else(PoisonError::into_inner).finish());
            let lanes = lanes.collect::<Result<Vec<Lane>, _>>()?;
            if lanes.iter().any(|lane| lane.rows() > 0) {
                parts.push(Part { level: self.level, lanes });
            }
        }
        Ok(parts)
    }
}

/// What one job writes.
#[derive(Debug)]
struct Piece {
    slot: usize,
    content: usize,
    rows: Range<usize>,
}

/// Groups that are written, in windows of some jobs.
#[derive(Debug, Default)]
struct Round {
    slots: Vec<Grouped>,
    pieces: Vec<Piece>,
    begin: usize,
    end: usize,
}

/// Groups that go to files.
#[derive(Debug)]
pub(super) struct ExternalGroups {
    pub spill: Spill,
    plan: GroupPlan,
    contents: Vec<Content>,
    parts: Mutex<Option<Arc<Parts>>>,
    round: RwLock<Round>,
    /// Of batches that were taken whatever memory there was.
    anyway: Mutex<Vec<Grouped>>,
}

impl ExternalGroups {
    pub fn new(spill: &Spill, plan: GroupPlan) -> Self {
        Self {
            spill: spill.clone(),
            contents: plan.contents(),
            plan,
            parts: Mutex::new(None),
            round: RwLock::default(),
            anyway: Mutex::default(),
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
            None => Arc::new(Parts::new(&self.spill, self.contents.len(), 0)?),
        };
        *parts = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Groups a batch that the next round writes.
    pub fn take_anyway(&self, batch: &Batch, parameters: &[Value]) -> Result<(), OperatorError> {
        let plan = GroupPlan { memory: Arc::clone(self.spill.counted()), ..self.plan.clone() };
        let mut grouped = plan.grouped();
        grouped.update(batch, parameters)?;
        lock(&self.anyway).push(grouped);
        Ok(())
    }

    /// The jobs of the next round: of what is being written, else of what waits and what `more` gives.
    pub fn plan(&self, more: impl FnOnce() -> Vec<Grouped>) -> Result<usize, OperatorError> {
        let mut round = self.round.write().unwrap_or_else(PoisonError::into_inner);
        if !round.pieces.is_empty() && round.end == round.pieces.len() {
            *round = Round::default();
            return Ok(0);
        }
        if round.pieces.is_empty() {
            self.parts()?;
            let mut slots = std::mem::take(&mut *lock(&self.anyway));
            slots.extend(more());
            round.pieces = self.pieces(&slots);
            round.slots = slots;
        }
        round.begin = round.end;
        round.end = (round.begin + self.round_jobs(&round)).min(round.pieces.len());
        Ok(round.end - round.begin)
    }

    fn round_jobs(&self, round: &Round) -> usize {
        let row_bytes = |slot: &Grouped| slot.room.group_bytes() as usize + slot.result_bytes();
        let job_bytes = JOB_GROUPS * round.slots.iter().map(row_bytes).max().unwrap_or(0);
        (self.spill.in_flight_bytes() as usize / 2 / job_bytes.max(1)).clamp(1, ROUND_JOBS_MAX)
    }

    fn pieces(&self, slots: &[Grouped]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (slot, grouped) in slots.iter().enumerate() {
            for (content, what) in self.contents.iter().enumerate() {
                let rows = rows_of(grouped, *what);
                let ranges = (0..rows).step_by(JOB_GROUPS).map(|start| start..(start + JOB_GROUPS).min(rows));
                pieces.extend(ranges.map(|rows| Piece { slot, content, rows }));
            }
        }
        pieces
    }

    pub fn run(&self, job: usize) -> Result<Poll<()>, OperatorError> {
        let round = self.round.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Piece { slot, content, rows }) = round.pieces.get(round.begin + job) else {
            return Err(OperatorError::Internal(format!("a grouping has no job {job} to write")));
        };
        let batch = content_of(&round.slots[*slot], self.contents[*content], rows.clone());
        self.parts()?.put(*content, self.plan.determining, &batch)?;
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

    /// The results.
    pub fn stream(&self) -> Result<Box<dyn RowStream>, OperatorError> {
        let parts = lock(&self.parts).take().and_then(Arc::into_inner);
        let Some(parts) = parts else { return Err(OperatorError::Internal("groups are still written".to_string())) };
        Ok(Box::new(GroupStream {
            spill: self.spill.clone(),
            plan: self.plan.clone(),
            contents: self.contents.clone(),
            file: Arc::clone(&parts.file),
            parts: parts.finish()?,
            current: None,
            turn: self.spill.turn(),
        }))
    }
}

/// Rows that are written of groups.
fn rows_of(grouped: &Grouped, content: Content) -> usize {
    match content {
        Content::Groups => grouped.whole(),
        Content::Values(call) => match &grouped.states[call] {
            CallState::Distinct(distinct) => distinct.len(),
            CallState::Plain(_) => 0,
        },
    }
}

/// Results of parts, one after the other.
struct GroupStream {
    spill: Spill,
    plan: GroupPlan,
    contents: Vec<Content>,
    /// Of the parts that nobody divided again: to be written before they are read.
    file: Arc<SpillFile>,
    parts: Vec<Part>,
    /// The groups of a part, and how many results were given.
    current: Option<(Grouped, usize)>,
    turn: Turn,
}

impl GroupStream {
    /// Puts the groups of a part together; or divides it, if it is too large.
    async fn load(&mut self, part: Part) -> Result<(), OperatorError> {
        let mut grouped = self.plan.grouped().spilling();
        let mut divided: Option<Parts> = None;
        for (content, lane) in part.lanes.iter().enumerate() {
            let mut reader = lane.reader();
            while let Some(batch) = reader.next_batch().await? {
                self.turn.give_way().await?;
                // A part of few groups with long texts is not divided for ever.
                let mut refused = grouped.refused();
                if divided.is_none() && !self.is_enough(&grouped, part.level) {
                    match self.merge(&mut grouped, content, &batch) {
                        Ok(()) => continue,
                        Err(OperatorError::Memory(error)) => refused = Some(error),
                        Err(other) => return Err(other),
                    }
                }
                let parts = match divided.take() {
                    Some(parts) => parts,
                    None => {
                        self.divide(std::mem::replace(&mut grouped, self.plan.grouped()), part.level, refused).await?
                    }
                };
                parts.put(content, self.plan.determining, &batch)?;
                parts.file.written_below_limit().await?;
                divided = Some(parts);
            }
        }
        if divided.is_none() {
            match grouped.complete() {
                Ok(()) => self.current = Some((grouped, 0)),
                Err(OperatorError::Memory(error)) => {
                    divided = Some(self.divide(grouped, part.level, Some(error)).await?);
                }
                Err(other) => return Err(other),
            }
        }
        if let Some(parts) = divided {
            let file = Arc::clone(&parts.file);
            self.parts.extend(parts.finish()?);
            file.written().await?;
        }
        Ok(())
    }

    /// Whether a part is to be divided although there is memory.
    fn is_enough(&self, grouped: &Grouped, level: u32) -> bool {
        grouped.is_full() || level == 0 && grouped.whole() > 0 && self.spill.is_enough(grouped.bytes())
    }

    fn merge(&self, grouped: &mut Grouped, content: usize, batch: &Batch) -> Result<(), OperatorError> {
        match self.contents[content] {
            Content::Groups => grouped.merge(batch),
            Content::Values(call) => grouped.merge_distinct(call, batch),
        }
    }

    /// Writes groups that turned out to be too many, in more parts.
    async fn divide(
        &mut self,
        grouped: Grouped,
        level: u32,
        refused: Option<eris_platform::MemoryExceeded>,
    ) -> Result<Parts, OperatorError> {
        if let (true, Some(error)) = (level + 1 >= LEVELS_MAX, refused) {
            return Err(error.into());
        }
        let parts = Parts::new(&self.spill, self.contents.len(), level + 1)?;
        for (content, what) in self.contents.clone().into_iter().enumerate() {
            let rows = rows_of(&grouped, what);
            for start in (0..rows).step_by(BATCH_ROWS) {
                let batch = content_of(&grouped, what, start..(start + BATCH_ROWS).min(rows));
                parts.put(content, self.plan.determining, &batch)?;
                parts.file.written_below_limit().await?;
                self.turn.give_way().await?;
            }
        }
        Ok(parts)
    }
}

impl RowStream for GroupStream {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        Box::pin(async move {
            loop {
                if let Some((grouped, at)) = &mut self.current {
                    self.turn.give_way().await?;
                    let start = *at;
                    if start < grouped.whole() {
                        *at = (start + BATCH_ROWS).min(grouped.whole());
                        return grouped.results(&(start..*at).into()).map(Some);
                    }
                    self.current = None;
                }
                // What was gathered last may still be on its way.
                self.file.written().await?;
                let Some(part) = self.parts.pop() else { return Ok(None) };
                self.load(part).await?;
            }
        })
    }
}
