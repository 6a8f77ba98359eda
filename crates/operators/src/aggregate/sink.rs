//! A sink that groups.
//!
//! Each slot groups what it gets. If only one was used, jobs compute results of consecutive groups. Else the groups of
//! all slots are divided by the hash of their group columns, and each part is merged by a job of its own:
//!
//! ```text
//!   first round    slot 0: groups 0..65536   -> | part 0 | part 1 | ... |      slot 1: ...
//!   second round   part 0 of all -> groups -> results          part 1 of all -> groups -> results    ...
//! ```
//! Groups that arrays find in all slots need the second round only ([`super::ranges`]).

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Poll;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::{BATCH_ROWS, Batch, Value};

use super::chosen::Chosen;
use super::external::{ExternalGroups, GroupPlan};
use super::grouped::{CallState, Grouped, only_counts};
use super::partial::{Content, Divided};
use super::ranges::{Part, Ranges};
use super::{AggregateCall, GroupCall};
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::pipeline::{Emitting, Sink, Slots, lock};
use crate::settings::AggregationInput;
use crate::spill::{Awaited, RowStream, Spill, SpillingSink};

/// What the pool calls the results.
const CONSUMER: &str = "aggregate";
/// Groups of one job: a fraction of a millisecond.
const JOB_GROUPS: usize = 1 << 13;
/// Groups of a part, roughly: a millisecond, and their table stays in a core's cache.
const PART_GROUPS: usize = 1 << 14;
const PARTS_MAX: usize = 256;

#[derive(Debug)]
enum Phase {
    Consuming,
    /// The one slot that was used.
    Alone(Box<Grouped>),
    /// Ranges of values whose groups arrays find.
    Ranges(Box<Ranges>),
    /// Ranges of groups and values that are to be divided.
    Dividing(Box<Dividing>),
    Merging {
        divided: Vec<Divided>,
        parts: usize,
        _charged: Reservation,
    },
    Done,
}

#[derive(Debug)]
struct Dividing {
    slots: Vec<Grouped>,
    jobs: Vec<Piece>,
    parts: usize,
    /// With the number of the job that made it.
    divided: Mutex<Vec<(usize, Divided)>>,
    charged: Reservation,
}

/// What one job divides.
#[derive(Debug)]
struct Piece {
    slot: usize,
    content: Content,
    rows: Range<usize>,
}

/// Groups rows. Without group expressions there is exactly one group.
#[derive(Debug)]
pub struct GroupBy {
    groups: Arc<[Expression]>,
    /// So many of the first group columns determine the others.
    determining: usize,
    calls: Arc<[GroupCall]>,
    parameters: Arc<[Value]>,
    memory: Arc<MemoryPool>,
    input: AggregationInput,
    slots: Slots<Option<Grouped>>,
    phase: RwLock<Phase>,
    /// By job of the last round.
    results: Mutex<Vec<Vec<Batch>>>,
    reservation: Mutex<Option<Reservation>>,
    /// How it goes on in files, if it may.
    external: Option<Box<ExternalGroups>>,
}

impl GroupBy {
    /// No groups yet, for as many workers.
    #[expect(clippy::needless_pass_by_value, reason = "all that a grouping is made of is given to it")]
    pub fn new(
        groups: Arc<[Expression]>,
        calls: Arc<[AggregateCall]>,
        parameters: Arc<[Value]>,
        memory: &Arc<MemoryPool>,
        workers: usize,
    ) -> Self {
        let calls = calls.iter().map(|call| GroupCall::from(call.clone())).collect();
        Self::with_calls(groups, calls, parameters, memory, workers)
    }

    /// The same with DISTINCT and FILTER.
    pub fn with_calls(
        groups: Arc<[Expression]>,
        calls: Arc<[GroupCall]>,
        parameters: Arc<[Value]>,
        memory: &Arc<MemoryPool>,
        workers: usize,
    ) -> Self {
        Self {
            determining: groups.len(),
            groups,
            calls,
            parameters,
            memory: Arc::clone(memory),
            input: AggregationInput::default(),
            slots: Slots::new(workers, || None),
            phase: RwLock::new(Phase::Consuming),
            results: Mutex::new(Vec::new()),
            reservation: Mutex::new(Some(memory.reserve(CONSUMER))),
            external: None,
        }
    }

    /// The same, which goes on in files when memory is refused. To be said last. The one group that there is without
    /// group columns stays in memory.
    #[must_use]
    pub fn spilling_to(self, spill: &Spill) -> Self {
        if self.groups.is_empty() {
            return self;
        }
        let external = Some(Box::new(ExternalGroups::new(spill, self.plan())));
        Self { external, ..self }
    }

    fn plan(&self) -> GroupPlan {
        GroupPlan {
            groups: Arc::clone(&self.groups),
            determining: self.determining,
            calls: Arc::clone(&self.calls),
            memory: Arc::clone(&self.memory),
            input: self.input,
        }
    }

    fn external(&self) -> Result<&ExternalGroups, OperatorError> {
        self.external.as_deref().ok_or_else(|| OperatorError::Internal("a grouping that has no files".to_string()))
    }

    /// What the rounds take in memory besides the groups of the slots: the results, and if groups are divided, a copy
    /// of all of them and the tables of the parts that are merged at the same time, which grow by doubling.
    fn bytes_to_finish(&self) -> u64 {
        let (mut used, mut held, mut copied, mut results, mut largest, mut most_values) = (0, 0, 0, 0, 0, 0);
        let mut workers = 0;
        for slot in self.slots.iter() {
            workers += 1;
            if let Some(grouped) = &*slot {
                used += 1;
                held += grouped.bytes();
                copied += pieces_of(grouped).map(|(_, rows)| copied_bytes(grouped, rows)).sum::<u64>();
                results += (grouped.len() * grouped.result_bytes()) as u64;
                largest += grouped.len().max(values_of(grouped));
                most_values = most_values.max(values_of(grouped));
            }
        }
        if used <= 1 && most_values <= JOB_GROUPS {
            return results;
        }
        let parts = self.parts_of(largest) as u64;
        results + copied.max(held) + 3 * held.div_ceil(parts) * parts.min(workers)
    }

    /// Parts that so many groups or values are divided into.
    fn parts_of(&self, largest: usize) -> usize {
        if self.groups.is_empty() { 1 } else { largest.div_ceil(PART_GROUPS).clamp(1, PARTS_MAX) }
    }

    /// The same, of codes or of values.
    #[must_use]
    pub fn taking(self, input: AggregationInput) -> Self {
        Self { input, ..self }
    }

    /// The same, where the first group columns determine the others: rows that agree in those agree in all.
    ///
    /// # Panics
    /// If there are fewer group columns, or none of several determines the others.
    #[must_use]
    pub fn determined_by(self, determining: usize) -> Self {
        assert!(
            determining <= self.groups.len() && (determining > 0 || self.groups.is_empty()),
            "{determining} columns"
        );
        Self { determining, ..self }
    }

    fn grouped(&self) -> Grouped {
        self.plan().grouped()
    }

    /// The first round.
    fn collected(&self) -> Result<Phase, OperatorError> {
        let mut slots: Vec<Grouped> = self.slots.iter().filter_map(|mut slot| slot.take()).collect();
        let largest = slots.iter().map(|slot| slot.len().max(values_of(slot))).sum::<usize>();
        if slots.len() <= 1 && slots.iter().all(|slot| values_of(slot) <= JOB_GROUPS) {
            let mut alone = slots.pop().unwrap_or_else(|| self.grouped());
            alone.complete()?;
            return Ok(Phase::Alone(Box::new(alone)));
        }
        let parts = self.parts_of(largest);
        let slots = match Ranges::of(slots, parts) {
            Ok(ranges) => return Ok(Phase::Ranges(Box::new(ranges))),
            Err(slots) => slots,
        };
        let mut jobs = Vec::new();
        for (slot, grouped) in slots.iter().enumerate() {
            for (content, rows) in pieces_of(grouped) {
                let ranges = (0..rows).step_by(JOB_GROUPS).map(|start| start..(start + JOB_GROUPS).min(rows));
                jobs.extend(ranges.map(|rows| Piece { slot, content, rows }));
            }
        }
        let charged = self.memory.reserve(CONSUMER);
        let divided = Mutex::new(Vec::new());
        Ok(Phase::Dividing(Box::new(Dividing { slots, jobs, parts, divided, charged })))
    }

    fn divide(&self, dividing: &Dividing, job: usize) -> Result<(), OperatorError> {
        let Piece { slot, content, rows } = &dividing.jobs[job];
        let grouped = &dividing.slots[*slot];
        let estimated = copied_bytes(grouped, rows.len());
        dividing.charged.grow(estimated)?;
        let part = Divided::new(grouped, *content, rows.clone(), self.determining, dividing.parts);
        dividing.charged.grow(part.bytes().saturating_sub(estimated))?;
        dividing.charged.shrink(estimated.saturating_sub(part.bytes()));
        lock(&dividing.divided).push((job, part));
        Ok(())
    }

    fn merge(&self, divided: &[Divided], part: usize) -> Result<Grouped, OperatorError> {
        let mut grouped = self.grouped();
        for divided in divided {
            divided.merge_into(&mut grouped, part, BATCH_ROWS)?;
        }
        grouped.complete()?;
        Ok(grouped)
    }

    fn range_results(&self, ranges: &Ranges, job: usize) -> Result<(), OperatorError> {
        let Part { alone, shared } = ranges.part(job);
        let mut merged = self.grouped();
        for (slot, groups) in ranges.slots.iter().zip(&shared) {
            for groups in groups.chunks(BATCH_ROWS) {
                merged.merge(&slot.partial(&groups.into()))?;
            }
        }
        for (slot, groups) in ranges.slots.iter().zip(&alone) {
            self.add_results(job, slot, &groups[..].into())?;
        }
        self.add_results(job, &merged, &(0..merged.len()).into())
    }

    fn add_results(&self, job: usize, grouped: &Grouped, groups: &Chosen<'_>) -> Result<(), OperatorError> {
        let mut batches = Vec::with_capacity(groups.len().div_ceil(BATCH_ROWS));
        for groups in groups.chunks(BATCH_ROWS) {
            let estimated = (groups.len() * grouped.result_bytes()) as u64;
            self.charge(estimated)?;
            let batch = grouped.results(&groups)?;
            let bytes = batch.bytes() as u64;
            self.charge(bytes.saturating_sub(estimated))?;
            if let Some(reservation) = &*lock(&self.reservation) {
                reservation.shrink(estimated.saturating_sub(bytes));
            }
            batches.push(batch);
        }
        lock(&self.results)[job].extend(batches);
        Ok(())
    }

    fn charge(&self, bytes: u64) -> Result<(), OperatorError> {
        match &*lock(&self.reservation) {
            Some(reservation) => Ok(reservation.grow(bytes)?),
            None => Err(OperatorError::Internal("the groups are taken already".to_string())),
        }
    }
}

/// What is divided of a slot, and its rows.
fn pieces_of(slot: &Grouped) -> impl Iterator<Item = (Content, usize)> {
    let values = slot.states.iter().enumerate().filter_map(|(call, state)| match state {
        CallState::Plain(_) => None,
        CallState::Distinct(distinct) => Some((Content::Values(call), distinct.len())),
    });
    std::iter::once((Content::Groups, slot.len())).chain(values)
}

/// What a copy of so many groups or values takes, roughly.
fn copied_bytes(slot: &Grouped, rows: usize) -> u64 {
    rows as u64 * (slot.room.group_bytes() + slot.result_bytes() as u64)
}

/// Values of the DISTINCT call that has most.
fn values_of(slot: &Grouped) -> usize {
    pieces_of(slot).skip(1).map(|(_, rows)| rows).max().unwrap_or(0)
}

impl Sink for GroupBy {
    fn consume(&self, batch: Batch, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        let mut slot = self.slots.any();
        let Some(external) = &self.external else {
            return slot.get_or_insert_with(|| self.grouped()).update(&batch, &self.parameters);
        };
        let grouped = slot.get_or_insert_with(|| self.grouped().spilling());
        let takes = !grouped.is_full() && (grouped.whole() == 0 || !external.spill.is_enough(grouped.bytes()));
        let taken = if takes { grouped.update(&batch, &self.parameters).map(|()| true) } else { Ok(false) };
        match taken {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(OperatorError::Memory(_)) => grouped.room.close(),
            Err(other) => return Err(other),
        }
        drop(slot);
        emit(batch)
    }

    fn spilling(&self) -> Option<&dyn SpillingSink> {
        self.external.as_ref().map(|_| self as &dyn SpillingSink)
    }

    fn takes_narrow(&self) -> bool {
        true
    }

    fn only_counts(&self) -> bool {
        only_counts(&self.groups, &self.calls)
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        let next = match std::mem::replace(&mut *phase, Phase::Done) {
            Phase::Consuming => self.collected()?,
            Phase::Dividing(dividing) => {
                let Dividing { parts, divided, charged, .. } = *dividing;
                let mut divided = divided.into_inner().unwrap_or_else(PoisonError::into_inner);
                // Groups come before the values of DISTINCT calls, so that each has its rows; else as in one thread.
                divided.sort_by_key(|(job, divided)| (divided.content != Content::Groups, *job));
                let divided = divided.into_iter().map(|(_, divided)| divided).collect();
                Phase::Merging { divided, parts, _charged: charged }
            }
            Phase::Alone(_) | Phase::Ranges(_) | Phase::Merging { .. } | Phase::Done => Phase::Done,
        };
        let (jobs, last) = match &next {
            Phase::Consuming | Phase::Done => (0, false),
            Phase::Alone(grouped) => (grouped.len().div_ceil(JOB_GROUPS), true),
            Phase::Ranges(ranges) => (ranges.parts(), true),
            Phase::Dividing(dividing) => (dividing.jobs.len(), false),
            Phase::Merging { parts, .. } => (*parts, true),
        };
        if last {
            *lock(&self.results) = vec![Vec::new(); jobs];
        }
        *phase = next;
        Ok(jobs)
    }

    fn finish_job(&self, job: usize) -> Result<(), OperatorError> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Alone(grouped) => {
                let start = job * JOB_GROUPS;
                self.add_results(job, grouped, &(start..(start + JOB_GROUPS).min(grouped.len())).into())
            }
            Phase::Ranges(ranges) => self.range_results(ranges, job),
            Phase::Dividing(dividing) => self.divide(dividing, job),
            Phase::Merging { divided, .. } => {
                let grouped = self.merge(divided, job)?;
                self.add_results(job, &grouped, &(0..grouped.len()).into())
            }
            Phase::Consuming | Phase::Done => Err(OperatorError::Internal(format!("a grouping has no job {job} now"))),
        }
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        let batches = std::mem::take(&mut *lock(&self.results)).into_iter().flatten().collect();
        Ok((batches, lock(&self.reservation).take()))
    }
}

impl SpillingSink for GroupBy {
    fn spill_jobs(&self) -> Result<usize, OperatorError> {
        self.external()?.plan(|| self.slots.free().filter_map(|mut slot| slot.take()).collect())
    }

    fn spill_job(&self, job: usize) -> Result<Poll<()>, OperatorError> {
        self.external()?.run(job)
    }

    fn written(&self) -> Awaited<'_, ()> {
        match &self.external {
            Some(external) => external.written(),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn consume_anyway(&self, batch: Batch) -> Result<(), OperatorError> {
        self.external()?.take_anyway(&batch, &self.parameters)
    }

    fn ends_in_files(&self) -> bool {
        let Some(external) = &self.external else { return false };
        external.is_used() || !external.spill.has_room(self.bytes_to_finish())
    }

    fn take_stream(&self) -> Result<Box<dyn RowStream>, OperatorError> {
        self.external()?.stream()
    }
}
