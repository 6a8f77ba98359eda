//! The sink that keeps a join's build side.
//!
//! ```text
//!   consume       chunks (kept columns, key columns) and what values keys have, in slots
//!   first round   one job for consecutive chunks: copies columns to their place; enters bits and array entries at
//!                 once, for hash tables it leaves codes or key columns
//!   second round  for hash tables: one job for consecutive rows enters them
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use eris_platform::{MemoryPool, Reservation};
use eris_storage::{Batch, Column, Value};

use super::BuildSpec;
use super::choice::{Choice, bits_words, entries_of, is_existence};
use super::codes::{Bounds, CodeSpace};
use super::enter::{Chains, Entering, enter_bits, enter_dense};
use super::external::ExternalBuild;
use super::kept::Kept;
use super::key_filter::{FilterInMaking, KeyFilter};
use super::table::{Exact, Table, sieve_of, sieve_words, tag_of};
use crate::assembly::{ColumnParts, Parts, own_texts, settled, zeros};
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::hash::{hash_rows, mix};
use crate::pipeline::{Emitting, Sink, Slots, lock};
use crate::spill::SpillingSink;

/// What the pool calls it.
const CONSUMER: &str = "join";
/// Rows of one job: a fraction of a millisecond, for which a point access may have to wait.
const JOB_ROWS: usize = 1 << 14;
/// Row numbers are kept plus one in 32 bits, and the largest says NULL.
pub(super) const ROWS_MAX: usize = u32::MAX as usize - 1;

/// A batch as it was consumed.
#[derive(Debug)]
pub(super) struct Chunk {
    pub columns: Box<[Column]>,
    pub keys: Box<[Column]>,
    pub rows: usize,
}

impl Chunk {
    pub fn bytes(&self) -> u64 {
        self.columns.iter().chain(&self.keys).map(|column| column.bytes() as u64).sum()
    }

    /// What is free when the columns were copied, and the keys, too, or became codes.
    pub fn freed_bytes(&self, keys_copied: bool) -> u64 {
        let copied = |columns: &[Column]| columns.iter().map(ColumnParts::copied_bytes).sum::<u64>();
        let keys = if keys_copied { copied(&self.keys) } else { self.keys.iter().map(|key| key.bytes() as u64).sum() };
        copied(&self.columns) + keys
    }
}

/// A chunk as it comes, and what is known besides.
pub(super) struct Whole {
    pub chunk: Chunk,
    any: bool,
    null_keys: bool,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub chunks: Vec<Chunk>,
    pub bounds: Vec<Bounds>,
    pub any: bool,
    pub null_keys: bool,
}

impl Slot {
    /// Notes what keys a chunk has.
    pub fn note(&mut self, whole: &Whole) {
        self.any |= whole.any;
        self.null_keys |= whole.null_keys;
        self.bounds.iter_mut().zip(&whole.chunk.keys).for_each(|(bounds, key)| bounds.extend(key));
    }
}

#[derive(Debug)]
enum Phase {
    Consuming,
    Filling(Box<Filling>),
    Entering(Box<Tabling>),
    Done,
}

/// The first round.
#[derive(Debug)]
struct Filling {
    jobs: Vec<Mutex<Vec<Chunk>>>,
    /// The number of each job's first chunk.
    first_chunks: Vec<usize>,
    columns: Vec<ColumnParts>,
    keys: Keys,
    filters: Vec<(usize, FilterInMaking)>,
    null_rows: Mutex<Vec<u32>>,
    bounds: Vec<usize>,
    any: bool,
    null_keys: bool,
}

/// What the first round makes of keys.
#[derive(Debug)]
enum Keys {
    None,
    Bits(CodeSpace, Box<[AtomicU64]>),
    Dense(CodeSpace, Box<[AtomicU32]>, Chains),
    Codes(CodeSpace, Parts<u64>),
    General { columns: Vec<ColumnParts>, hashes: Parts<u64> },
}

/// The second round.
#[derive(Debug)]
struct Tabling {
    kept: Kept,
    hashed: Hashed,
    entries: Box<[AtomicU64]>,
    chains: Option<Chains>,
}

#[derive(Debug)]
enum Hashed {
    Codes(CodeSpace, Box<[u64]>),
    General(Vec<Column>, Box<[u64]>),
}

/// A join's build side. See the module.
#[derive(Debug)]
pub struct JoinBuild {
    pub(super) spec: BuildSpec,
    parameters: Arc<[Value]>,
    /// Keys of which filters are made.
    pub(super) filtered: Arc<[usize]>,
    pub(super) reservation: Reservation,
    pub(super) slots: Slots<Slot>,
    phase: RwLock<Phase>,
    kept: OnceLock<Kept>,
    /// How it goes on in files, if it may.
    pub(super) external: Option<Box<ExternalBuild>>,
}

impl JoinBuild {
    /// An empty build side, for as many workers.
    pub fn new(spec: BuildSpec, memory: &Arc<MemoryPool>, workers: usize) -> Self {
        let slot = || Slot {
            chunks: Vec::new(),
            bounds: vec![Bounds::Nothing; spec.keys.len()],
            any: false,
            null_keys: false,
        };
        let slots = Slots::new(workers, slot);
        Self {
            spec,
            parameters: Arc::default(),
            filtered: Arc::default(),
            reservation: memory.reserve(CONSUMER),
            slots,
            phase: RwLock::new(Phase::Consuming),
            kept: OnceLock::new(),
            external: None,
        }
    }

    /// With the statement's parameters, for keys that refer to them.
    #[must_use]
    pub fn with_parameters(self, parameters: Arc<[Value]>) -> Self {
        Self { parameters, ..self }
    }

    /// Makes filters of these keys, by number, for scans of rows that will be looked up later.
    #[must_use]
    pub fn with_filters(self, filtered: Arc<[usize]>) -> Self {
        assert!(filtered.iter().all(|key| *key < self.spec.keys.len()), "a filter of a key that is not there");
        Self { filtered, ..self }
    }

    /// The same, refused while there is room left to go on in files.
    pub(super) fn leaving_room(self, external: Option<Box<ExternalBuild>>) -> Self {
        Self { reservation: self.reservation.pool().reserve_spillable(CONSUMER), external, ..self }
    }

    /// Memory that it holds.
    pub fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    /// The filter of a key that one was asked for, when all rows are there.
    pub fn filter(&self, key: usize) -> Result<&Arc<KeyFilter>, OperatorError> {
        let filters = if let Some(files) = self.in_files() { &files.filters } else { &self.kept()?.filters };
        let made = filters.iter().find(|(of, _)| *of == key);
        made.map(|(_, filter)| filter).ok_or_else(|| OperatorError::Internal(format!("key {key} has no filter")))
    }

    /// What can be probed.
    pub(super) fn kept(&self) -> Result<&Kept, OperatorError> {
        self.kept.get().ok_or_else(|| OperatorError::Internal("a join is probed before it was built".to_string()))
    }

    pub(super) fn reserve(&self, consumer: &'static str) -> Reservation {
        self.reservation.pool().reserve(consumer)
    }

    /// Rows whose keys are NULL meet nobody: they are kept only for who asks for unmatched rows.
    fn keeps_null_keys(&self) -> bool {
        self.spec.null_equal || self.spec.keep_unmatched
    }

    fn plan(&self) -> Result<Phase, OperatorError> {
        let mut chunks = Vec::new();
        let mut bounds = vec![Bounds::Nothing; self.spec.keys.len()];
        let (mut any, mut null_keys) = (false, false);
        for mut slot in self.slots.iter() {
            chunks.append(&mut slot.chunks);
            bounds.iter_mut().zip(&slot.bounds).for_each(|(all, own)| all.join(own));
            any |= slot.any;
            null_keys |= slot.null_keys;
        }
        let (first_chunks, parts) = divide(&chunks);
        let rows = parts[parts.len() - 1];
        if rows > ROWS_MAX {
            return Err(OperatorError::Internal(format!("a join's build side has {rows} rows, at most {ROWS_MAX}")));
        }
        self.reservation.grow(self.spec.types.iter().map(|data_type| ColumnParts::bytes(*data_type, rows)).sum())?;
        let columns = self.spec.types.iter().enumerate();
        let columns = columns
            .map(|(at, data_type)| ColumnParts::new(*data_type, &parts, chunks.iter().map(|chunk| &chunk.columns[at])))
            .collect();
        let keys = self.plan_keys(&chunks, &bounds, &parts, rows)?;
        let filters = self.plan_filters(&bounds, rows)?;
        let mut rest = chunks.into_iter();
        let jobs = first_chunks.windows(2).map(|pair| Mutex::new(rest.by_ref().take(pair[1] - pair[0]).collect()));
        let jobs = jobs.collect();
        let null_rows = Mutex::new(Vec::new());
        let filling = Filling { jobs, first_chunks, columns, keys, filters, null_rows, bounds: parts, any, null_keys };
        Ok(Phase::Filling(Box::new(filling)))
    }

    fn plan_filters(&self, bounds: &[Bounds], rows: usize) -> Result<Vec<(usize, FilterInMaking)>, OperatorError> {
        self.reservation.grow(self.filtered.iter().map(|key| FilterInMaking::bytes(&bounds[*key], rows)).sum())?;
        Ok(self.filtered.iter().map(|key| (*key, FilterInMaking::new(&bounds[*key], rows))).collect())
    }

    fn plan_keys(
        &self,
        chunks: &[Chunk],
        bounds: &[Bounds],
        parts: &[usize],
        rows: usize,
    ) -> Result<Keys, OperatorError> {
        let choice = Choice::new(&self.spec, bounds, rows);
        self.reservation.grow(choice.first_bytes(&self.spec, rows))?;
        Ok(match choice {
            Choice::None => Keys::None,
            Choice::Bits(space) => {
                let words = bits_words(&space);
                Keys::Bits(space, zeros(words))
            }
            Choice::Dense(space) => {
                let places = space.domain as usize + 1;
                Keys::Dense(space, zeros(places), Chains { next: zeros(rows), duplicates: AtomicBool::new(false) })
            }
            Choice::Codes(space) => Keys::Codes(space, Parts::new(parts)),
            Choice::General => {
                let types = self.spec.keys.iter().map(Expression::data_type).enumerate();
                let columns = types.map(|(at, data_type)| {
                    ColumnParts::new(data_type, parts, chunks.iter().map(|chunk| &chunk.keys[at]))
                });
                Keys::General { columns: columns.collect(), hashes: Parts::new(parts) }
            }
        })
    }

    fn fill(&self, filling: &Filling, job: usize) {
        let chunks = std::mem::take(&mut *lock(&filling.jobs[job]));
        let first = filling.first_chunks[job];
        for (at, column) in filling.columns.iter().enumerate() {
            column.fill(job, first, chunks.iter().map(|chunk| &chunk.columns[at]));
        }
        let (start, end) = (filling.bounds[job], filling.bounds[job + 1]);
        let alone = filling.jobs.len() == 1 || self.slots.len() == 1;
        let mut codes = Vec::new();
        let mut own;
        let codes = match &filling.keys {
            Keys::None | Keys::General { .. } => &mut codes[..],
            Keys::Codes(_, parts) => parts.take(job),
            Keys::Bits(..) | Keys::Dense(..) => {
                own = vec![0; end - start];
                &mut own[..]
            }
        };
        match &filling.keys {
            Keys::None => {}
            Keys::Bits(space, bits) => {
                code_chunks(space, &chunks, codes);
                enter_bits(bits, codes, space.miss, alone);
            }
            Keys::Dense(space, heads, chains) => {
                code_chunks(space, &chunks, codes);
                enter_dense(heads, codes, start, chains, space.miss, alone);
            }
            Keys::Codes(space, _) => code_chunks(space, &chunks, codes),
            Keys::General { columns, hashes } => {
                for (at, column) in columns.iter().enumerate() {
                    column.fill(job, first, chunks.iter().map(|chunk| &chunk.keys[at]));
                }
                let mut rest = hashes.take(job);
                for chunk in &chunks {
                    let (own, behind) = rest.split_at_mut(chunk.rows);
                    own.copy_from_slice(&hash_rows(&chunk.keys, chunk.rows));
                    rest = behind;
                }
            }
        }
        for (key, filter) in &filling.filters {
            for chunk in &chunks {
                filter.enter(&chunk.keys[*key]);
            }
        }
        if filling.null_keys && self.keeps_null_keys() {
            note_null_rows(&chunks, start, &mut lock(&filling.null_rows));
        }
        let keys_copied = matches!(filling.keys, Keys::General { .. });
        self.reservation.shrink(chunks.iter().map(|chunk| chunk.freed_bytes(keys_copied)).sum());
    }

    /// Behind the first round: the table is ready, or a second round enters the rows.
    fn filled(&self, filling: Filling) -> Result<Phase, OperatorError> {
        let Filling { columns, keys, filters, null_rows, bounds, any, null_keys, .. } = filling;
        let rows = bounds[bounds.len() - 1];
        let mut null_rows = null_rows.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        null_rows.sort_unstable();
        self.reservation.grow((null_rows.len() * size_of::<u32>()) as u64)?;
        let met = if self.spec.keep_unmatched {
            self.reservation.grow(rows as u64)?;
            zeros(rows)
        } else {
            Box::default()
        };
        let mut kept = Kept {
            columns: columns.into_iter().map(ColumnParts::finish).collect(),
            rows,
            any,
            null_keys,
            table: Table::Empty,
            next: Box::default(),
            null_rows,
            met,
            filters: filters.into_iter().map(|(key, filter)| (key, Arc::new(filter.finish()))).collect(),
        };
        let hashed = match keys {
            Keys::None => return Ok(self.done(kept, Table::Empty, None)),
            Keys::Bits(space, bits) => return Ok(self.done(kept, Table::Bits(space, settled(bits)), None)),
            Keys::Dense(space, heads, chains) => {
                return Ok(self.done(kept, Table::Dense(space, settled(heads)), Some(chains)));
            }
            Keys::Codes(space, codes) => Hashed::Codes(space, codes.finish()),
            Keys::General { columns, hashes } => {
                Hashed::General(columns.into_iter().map(ColumnParts::finish).collect(), hashes.finish())
            }
        };
        kept.table = Table::Empty;
        let entries = entries_of(rows);
        self.reservation.grow((entries * size_of::<u64>()) as u64)?;
        // Where only existence matters, equal keys are entered once.
        let chains = if is_existence(&self.spec) {
            None
        } else {
            self.reservation.grow((rows * size_of::<u32>()) as u64)?;
            Some(Chains { next: zeros(rows), duplicates: AtomicBool::new(false) })
        };
        Ok(Phase::Entering(Box::new(Tabling { kept, hashed, entries: zeros(entries), chains })))
    }

    fn enter(&self, tabling: &Tabling, rows: Range<usize>) {
        let Tabling { hashed, entries, chains, .. } = tabling;
        let chains = chains.as_ref();
        match hashed {
            Hashed::Codes(space, codes) if space.is_short() => {
                let hash_and_tag = |row: usize| {
                    let code: u64 = codes[row];
                    (code != space.miss).then(|| (mix(code), code << 32))
                };
                Entering { entries, chains, equal: |_, _| true }.enter(rows, hash_and_tag);
            }
            Hashed::Codes(space, codes) => {
                let hash_and_tag = |row: usize| {
                    let hash = mix(codes[row]);
                    (codes[row] != space.miss).then(|| (hash, tag_of(hash)))
                };
                let equal = |one: usize, other: usize| codes[one] == codes[other];
                Entering { entries, chains, equal }.enter(rows, hash_and_tag);
            }
            Hashed::General(keys, hashes) => {
                let hash_and_tag = |row: usize| {
                    let enters = self.spec.null_equal || !keys.iter().any(|key| key.is_null(row));
                    enters.then(|| (hashes[row], tag_of(hashes[row])))
                };
                let equal = |one: usize, other: usize| crate::hash::rows_equal(keys, one, keys, other);
                Entering { entries, chains, equal }.enter(rows, hash_and_tag);
            }
        }
    }

    fn entered(&self, tabling: Tabling) -> Phase {
        let Tabling { kept, hashed, entries, chains } = tabling;
        let entries = settled(entries);
        let row_bytes = (kept.rows * size_of::<u64>()) as u64;
        let table = match hashed {
            Hashed::Codes(space, codes) => {
                let exact = if space.is_short() {
                    let words = sieve_words(&space, codes.len());
                    // Without memory for it, rows are searched for at once.
                    let has_room = words > 0 && self.reservation.grow((words * size_of::<u64>()) as u64).is_ok();
                    let sieve = has_room.then(|| sieve_of(&space, &codes, words));
                    drop(codes);
                    self.reservation.shrink(row_bytes);
                    Exact::Tag { sieve }
                } else {
                    Exact::Codes(codes)
                };
                Table::Codes { space, entries, exact }
            }
            Hashed::General(keys, hashes) => {
                drop(hashes);
                self.reservation.shrink(row_bytes);
                Table::General { keys, entries }
            }
        };
        self.done(kept, table, chains)
    }

    fn done(&self, mut kept: Kept, table: Table, chains: Option<Chains>) -> Phase {
        kept.table = table;
        if let Some(Chains { next, duplicates }) = chains {
            if duplicates.into_inner() {
                kept.next = settled(next);
            } else {
                self.reservation.shrink((next.len() * size_of::<u32>()) as u64);
            }
        }
        assert!(self.kept.set(kept).is_ok(), "a join is built once");
        Phase::Done
    }

    /// The keys and kept columns of a batch.
    pub(super) fn chunk_of(&self, batch: &Batch) -> Result<Whole, OperatorError> {
        let keys = self.spec.keys.iter().map(|key| key.column(batch, &self.parameters));
        let keys = keys.collect::<Result<Vec<Column>, _>>()?;
        let (any, key_count) = (batch.rows > 0, self.spec.keys.len());
        let columns: Vec<Column> = keys.into_iter().chain(batch.project(&self.spec.columns).columns).collect();
        let mut batch = Batch::new(columns, batch.rows);
        let null_keys = batch.columns[..key_count].iter().any(|key| key.null_count() > 0);
        if null_keys && !self.keeps_null_keys() {
            let complete = |row: &u32| !batch.columns[..key_count].iter().any(|key| key.is_null(*row as usize));
            let rows: Vec<u32> = (0..batch.rows as u32).filter(complete).collect();
            batch = batch.take(&rows);
        }
        let mut columns: Vec<Column> = batch.columns.into_vec().into_iter().map(own_texts).collect();
        let columns_kept: Box<[Column]> = columns.split_off(key_count).into();
        Ok(Whole { chunk: Chunk { columns: columns_kept, keys: columns.into(), rows: batch.rows }, any, null_keys })
    }

    /// Behind all probes: the kept columns of the build rows that were met, or of those that were not.
    pub fn take_rows(&self, met: bool) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        super::output::rows_met(self, met)
    }
}

/// Consecutive chunks for each job: the number of each job's first chunk, then of all; where each job's rows begin.
fn divide(chunks: &[Chunk]) -> (Vec<usize>, Vec<usize>) {
    let (mut firsts, mut bounds) = (vec![0], vec![0]);
    let mut rows = 0;
    for (at, chunk) in chunks.iter().enumerate() {
        rows += chunk.rows;
        if rows - bounds[bounds.len() - 1] >= JOB_ROWS || at + 1 == chunks.len() {
            firsts.push(at + 1);
            bounds.push(rows);
        }
    }
    (firsts, bounds)
}

fn code_chunks(space: &CodeSpace, chunks: &[Chunk], mut codes: &mut [u64]) {
    for chunk in chunks {
        let (own, rest) = codes.split_at_mut(chunk.rows);
        space.codes(&chunk.keys, own);
        codes = rest;
    }
}

fn note_null_rows(chunks: &[Chunk], start: usize, null_rows: &mut Vec<u32>) {
    let mut row = start;
    for chunk in chunks {
        let nulls = (0..chunk.rows).filter(|at| chunk.keys.iter().any(|key| key.is_null(*at)));
        null_rows.extend(nulls.map(|at| (row + at) as u32));
        row += chunk.rows;
    }
}

impl Sink for JoinBuild {
    fn consume(&self, batch: Batch, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        let whole = self.chunk_of(&batch)?;
        // Bits of NULLs are counted in whole bytes: a little more for chunks that are cut.
        let cuts = whole.chunk.rows.saturating_sub(1) / JOB_ROWS * (self.spec.types.len() + self.spec.keys.len());
        let bytes = whole.chunk.bytes() + cuts as u64;
        if !self.reserve_or_spill(bytes)? {
            return emit(batch);
        }
        let mut slot = self.slots.any();
        slot.note(&whole);
        let whole = whole.chunk;
        if whole.rows <= JOB_ROWS {
            if whole.rows > 0 {
                slot.chunks.push(whole);
            }
            return Ok(());
        }
        let mut sliced = 0;
        for start in (0..whole.rows).step_by(JOB_ROWS) {
            let rows = JOB_ROWS.min(whole.rows - start);
            let slice = |columns: &[Column]| columns.iter().map(|column| column.slice(start, rows)).collect();
            let chunk = Chunk { columns: slice(&whole.columns), keys: slice(&whole.keys), rows };
            sliced += chunk.bytes();
            slot.chunks.push(chunk);
        }
        assert!(sliced <= bytes, "{sliced} bytes of chunks that were {bytes}");
        self.reservation.shrink(bytes - sliced);
        Ok(())
    }

    fn spilling(&self) -> Option<&dyn SpillingSink> {
        self.external.as_ref().map(|_| self as &dyn SpillingSink)
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        let mut phase = self.phase.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let next = match std::mem::replace(&mut *phase, Phase::Done) {
            Phase::Consuming => match self.plan()? {
                Phase::Filling(filling) if filling.jobs.is_empty() => self.filled(*filling)?,
                next => next,
            },
            Phase::Filling(filling) => self.filled(*filling)?,
            Phase::Entering(tabling) => self.entered(*tabling),
            Phase::Done => Phase::Done,
        };
        *phase = next;
        Ok(match &*phase {
            Phase::Consuming | Phase::Done => 0,
            Phase::Filling(filling) => filling.jobs.len(),
            Phase::Entering(tabling) => tabling.kept.rows.div_ceil(JOB_ROWS),
        })
    }

    fn finish_job(&self, job: usize) -> Result<(), OperatorError> {
        match &*self.phase.read().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Phase::Filling(filling) => self.fill(filling, job),
            Phase::Entering(tabling) => {
                let start = job * JOB_ROWS;
                self.enter(tabling, start..(start + JOB_ROWS).min(tabling.kept.rows));
            }
            Phase::Consuming | Phase::Done => {
                return Err(OperatorError::Internal(format!("a join has no job {job} now")));
            }
        }
        Ok(())
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        Ok((Vec::new(), None))
    }
}
