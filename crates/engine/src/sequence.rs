//! Sequences: numbers that are given once.
//!
//! ```text
//!   worker 0   6 7 8 . .     its part of the cache   ┐
//!   worker 1   1 2 . . .                             ├─ took these one after another from ── state: last = 10,
//!   others     . . . . .     threads without a worker┘                                       generation
//! ```
//! - A value is given at once and to one caller, whatever becomes of the caller's transaction: a rollback takes nothing
//!   back, so there are gaps.
//! - With `cache` 1 values are given in order. With more, each worker takes so many at a time: values are different,
//!   but their order is that of each worker, and what is left in a part when the engine stops is never given.
//! - [`Sequence::set`] and [`Sequence::restart`] begin a new *generation*: parts of an older one are given no more.
//! - A log is told ahead which values may be given, so that none is given again after a crash; those that were not
//!   given by then are lost, as PostgreSQL loses them.
//!
//! PostgreSQL is the model of bounds, cycles and errors.

mod error;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use eris_platform::{MemoryPool, Reservation};

use crate::commit_log::LogSlot;
use crate::counters::own_slot;
use crate::definition::Definition;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::lock::{Lock, lock, read, write};

pub use error::SequenceError;

/// Values that the log is told of ahead, as PostgreSQL does: a record for each would cost more than a lost value.
const LOGGED_AHEAD: u64 = 32;

/// A sequence of an engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SequenceId(pub u32);

/// What [`Engine::create_sequence`] needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequenceSpec {
    /// What errors call it.
    pub name: Box<str>,
    /// From one value to the next; negative for descending sequences, never 0.
    pub increment: i64,
    /// The smallest value.
    pub minimum: i64,
    /// The largest value.
    pub maximum: i64,
    /// The first value.
    pub start: i64,
    /// How many values a worker takes at a time; at least 1.
    pub cache: u64,
    /// Whether it goes on at the other bound when it has passed one.
    pub cycle: bool,
}

impl SequenceSpec {
    /// 1, 2, 3 and so on.
    pub fn new(name: &str) -> Self {
        let (increment, minimum, maximum, start) = (1, 1, i64::MAX, 1);
        Self { name: name.into(), increment, minimum, maximum, start, cache: 1, cycle: false }
    }

    fn check(&self) -> Result<(), SequenceError> {
        let Self { increment, minimum, maximum, start, cache, .. } = self;
        let reason = if *increment == 0 {
            "INCREMENT must not be zero".to_owned()
        } else if minimum >= maximum {
            format!("MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})")
        } else if start < minimum {
            format!("START value ({start}) cannot be less than MINVALUE ({minimum})")
        } else if start > maximum {
            format!("START value ({start}) cannot be greater than MAXVALUE ({maximum})")
        } else if *cache == 0 {
            format!("CACHE ({cache}) must be greater than zero")
        } else {
            return Ok(());
        };
        Err(SequenceError::Invalid(reason))
    }

    fn contains(&self, value: i64) -> bool {
        (self.minimum..=self.maximum).contains(&value)
    }

    /// The value behind one; none if it lies beyond the bound.
    fn behind(&self, value: i64) -> Option<i64> {
        value.checked_add(self.increment).filter(|value| self.contains(*value))
    }

    /// How many values follow one within the bounds.
    fn following(&self, value: i64) -> u64 {
        let room = if self.increment > 0 { self.maximum.abs_diff(value) } else { value.abs_diff(self.minimum) };
        room / self.increment.unsigned_abs()
    }
}

/// Where a sequence is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceState {
    /// The last value that was taken, by a caller or into a worker's part of the cache; the next one before that.
    pub last: i64,
    /// Whether `last` was taken.
    pub is_called: bool,
}

#[derive(Debug)]
struct Shared {
    state: SequenceState,
    /// Where it goes on after a crash, and how many values are left until there.
    logged: SequenceState,
    ahead: u64,
    dropped: bool,
}

/// Values that a worker has taken.
#[derive(Debug, Default)]
struct Part {
    generation: u64,
    next: i64,
    left: u64,
}

/// On a line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Lock<Part>);

/// A sequence. See the module's documentation.
#[derive(Debug)]
pub struct Sequence {
    id: SequenceId,
    spec: SequenceSpec,
    shared: Lock<Shared>,
    /// Changed under the lock; parts of another generation are empty.
    generation: AtomicU64,
    /// One for each worker, and one for all other threads.
    slots: Box<[Slot]>,
    log: LogSlot,
    _memory: Reservation,
}

impl Sequence {
    fn new(
        id: SequenceId,
        spec: &SequenceSpec,
        state: SequenceState,
        workers: usize,
        memory: &Arc<MemoryPool>,
        log: LogSlot,
    ) -> Result<Self, EngineError> {
        spec.check()?;
        let parts = if spec.cache > 1 { workers + 1 } else { 0 };
        let memory = memory.reserve("sequences");
        memory.grow((size_of::<Self>() + parts * size_of::<Slot>() + spec.name.len()) as u64)?;
        Ok(Self {
            id,
            spec: spec.clone(),
            shared: Lock::new(Shared { state, logged: state, ahead: 0, dropped: false }),
            // Parts begin with generation 0, and empty.
            generation: AtomicU64::new(1),
            slots: (0..parts).map(|_| Slot::default()).collect(),
            log,
            _memory: memory,
        })
    }

    /// Its number.
    pub fn id(&self) -> SequenceId {
        self.id
    }

    /// How it was made.
    pub fn spec(&self) -> &SequenceSpec {
        &self.spec
    }

    /// The next value, which nobody else gets, unless the sequence cycles or is set back.
    ///
    /// # Errors
    /// [`SequenceError::Exhausted`] (2200H) beyond its bound; [`SequenceError::NoSuchSequence`] once it is dropped.
    pub fn next(&self) -> Result<i64, SequenceError> {
        if self.slots.is_empty() {
            return Ok(self.take(1)?.next);
        }
        let slot = own_slot(self.slots.len());
        let mut part = lock(&self.slots[slot].0);
        // Under the slot's lock: whoever sets the sequence meanwhile does so after this value was given.
        if part.left == 0 || part.generation != self.generation.load(Ordering::Acquire) {
            *part = self.take(self.spec.cache)?;
        }
        let value = part.next;
        part.left -= 1;
        if part.left > 0 {
            part.next += self.spec.increment;
        }
        assert!(self.spec.contains(value), "a value lies within the bounds");
        Ok(value)
    }

    /// The next values, up to so many: fewer in front of a bound.
    fn take(&self, count: u64) -> Result<Part, SequenceError> {
        let mut shared = lock(&self.shared);
        if shared.dropped {
            return Err(SequenceError::NoSuchSequence(self.id));
        }
        let spec = &self.spec;
        let SequenceState { last, is_called } = shared.state;
        let ascending = spec.increment > 0;
        let (first_of_all, bound) = if ascending { (spec.minimum, spec.maximum) } else { (spec.maximum, spec.minimum) };
        let next = if is_called { spec.behind(last).or(spec.cycle.then_some(first_of_all)) } else { Some(last) };
        let next = next.ok_or_else(|| SequenceError::Exhausted { name: spec.name.clone(), limit: bound, ascending })?;
        let further = (count - 1).min(spec.following(next));
        // Within the bounds, so it is an i64; in between it may not be.
        let last = i128::from(next) + i128::from(further) * i128::from(spec.increment);
        let state = SequenceState { last: last as i64, is_called: true };
        assert!(spec.contains(state.last), "the last value lies within the bounds");
        if shared.ahead > further {
            shared.ahead -= further + 1;
        } else {
            self.log_ahead(&mut shared, state)?;
        }
        shared.state = state;
        Ok(Part { generation: self.generation.load(Ordering::Acquire), next, left: further + 1 })
    }

    /// Tells the log that values behind `state` may be given, too.
    fn log_ahead(&self, shared: &mut Shared, state: SequenceState) -> Result<(), SequenceError> {
        if self.log.get().is_none() {
            return Ok(());
        }
        let ahead = LOGGED_AHEAD.min(self.spec.following(state.last));
        let last = i128::from(state.last) + i128::from(ahead) * i128::from(self.spec.increment);
        self.log_state(SequenceState { last: last as i64, is_called: true })?;
        shared.logged = SequenceState { last: last as i64, is_called: true };
        shared.ahead = ahead;
        Ok(())
    }

    fn log_state(&self, state: SequenceState) -> Result<(), SequenceError> {
        match self.log.get() {
            Some(log) => Ok(log.define(&Definition::Sequence(self.id, self.spec.clone(), state))?),
            None => Ok(()),
        }
    }

    /// Where it goes on after a crash; none if the log knows that it is gone.
    fn definition(&self) -> Option<Definition> {
        let shared = lock(&self.shared);
        if shared.dropped {
            return None;
        }
        // Planted: a checkpoint is not told what may be given without a further word to the log.
        let has_ahead = shared.ahead > 0 && !cfg!(feature = "bug_checkpoint_sequence_without_ahead");
        let state = if has_ahead { shared.logged } else { shared.state };
        Some(Definition::Sequence(self.id, self.spec.clone(), state))
    }

    /// Where it is. What lies in workers' parts counts as taken.
    pub fn state(&self) -> SequenceState {
        lock(&self.shared).state
    }

    /// Goes on behind `value`, or with it unless `is_called`. What workers have in their parts is not given any more.
    ///
    /// # Errors
    /// [`SequenceError::OutOfBounds`] (22003).
    pub fn set(&self, value: i64, is_called: bool) -> Result<(), SequenceError> {
        let SequenceSpec { name, minimum, maximum, .. } = &self.spec;
        if !self.spec.contains(value) {
            let (name, minimum, maximum) = (name.clone(), *minimum, *maximum);
            return Err(SequenceError::OutOfBounds { name, value, minimum, maximum });
        }
        self.begin_generation(SequenceState { last: value, is_called })
    }

    /// Begins again, at `with` or where it started first.
    ///
    /// # Errors
    /// [`SequenceError::Invalid`] (22023) if `with` is out of bounds.
    pub fn restart(&self, with: Option<i64>) -> Result<(), SequenceError> {
        let SequenceSpec { minimum, maximum, start, .. } = &self.spec;
        let value = with.unwrap_or(*start);
        if value < *minimum {
            let reason = format!("RESTART value ({value}) cannot be less than MINVALUE ({minimum})");
            return Err(SequenceError::Invalid(reason));
        }
        if value > *maximum {
            let reason = format!("RESTART value ({value}) cannot be greater than MAXVALUE ({maximum})");
            return Err(SequenceError::Invalid(reason));
        }
        self.begin_generation(SequenceState { last: value, is_called: false })
    }

    fn begin_generation(&self, state: SequenceState) -> Result<(), SequenceError> {
        let mut shared = lock(&self.shared);
        if shared.dropped {
            return Err(SequenceError::NoSuchSequence(self.id));
        }
        self.log_state(state)?;
        (shared.state, shared.logged, shared.ahead) = (state, state, 0);
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn mark_dropped(&self) {
        lock(&self.shared).dropped = true;
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// No more values, once the log knows: nothing of it comes behind that.
    fn end(&self) -> Result<(), SequenceError> {
        let mut shared = lock(&self.shared);
        if shared.dropped {
            return Err(SequenceError::NoSuchSequence(self.id));
        }
        if let Some(log) = self.log.get() {
            log.define(&Definition::SequenceDropped(self.id))?;
        }
        shared.dropped = true;
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

impl Sequences {
    /// Says which of them are not within their bounds.
    pub fn check_bounds(&self) -> Vec<String> {
        let known = read(&self.known);
        let strays = known.values().filter(|sequence| !sequence.spec.contains(sequence.state().last));
        strays.map(|sequence| format!("sequence \"{}\" is beyond its bounds", sequence.spec.name)).collect()
    }

    pub fn definitions(&self) -> Vec<Definition> {
        read(&self.known).values().filter_map(|sequence| sequence.definition()).collect()
    }
}

/// The sequences of an engine.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    known: RwLock<BTreeMap<SequenceId, Arc<Sequence>>>,
    last_id: AtomicU32,
}

impl Engine {
    /// Creates a sequence.
    ///
    /// # Errors
    /// [`SequenceError::Invalid`] (22023) if it cannot be; memory.
    pub fn create_sequence(&self, spec: &SequenceSpec) -> Result<Arc<Sequence>, EngineError> {
        let sequences = &self.runtime().sequences;
        let id = SequenceId(sequences.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let state = SequenceState { last: spec.start, is_called: false };
        let sequence = self.restore_sequence(id, spec, state)?;
        if let Err(refused) = sequence.log_state(state) {
            sequence.mark_dropped();
            write(&sequences.known).remove(&id);
            return Err(refused.into());
        }
        Ok(sequence)
    }

    /// Creates a sequence with an id of before that goes on at `state`, or sets it there.
    pub(crate) fn restore_sequence(
        &self,
        id: SequenceId,
        spec: &SequenceSpec,
        state: SequenceState,
    ) -> Result<Arc<Sequence>, EngineError> {
        let runtime = self.runtime();
        let log = runtime.log_slot();
        let sequence = Arc::new(Sequence::new(id, spec, state, self.worker_count(), self.memory(), log)?);
        write(&runtime.sequences.known).insert(id, Arc::clone(&sequence));
        runtime.sequences.last_id.fetch_max(id.0, Ordering::Relaxed);
        Ok(sequence)
    }

    /// A sequence by id.
    pub fn sequence(&self, id: SequenceId) -> Option<Arc<Sequence>> {
        read(&self.runtime().sequences.known).get(&id).cloned()
    }

    /// Drops a sequence. Who has it still gets no more values.
    pub fn drop_sequence(&self, id: SequenceId) -> Result<(), SequenceError> {
        let sequence = self.sequence(id).ok_or(SequenceError::NoSuchSequence(id))?;
        sequence.end()?;
        write(&self.runtime().sequences.known).remove(&id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_do_not_pass_the_ends_of_integers() {
        let mut spec = SequenceSpec::new("s");
        spec.minimum = i64::MIN;
        assert_eq!((spec.behind(i64::MAX), spec.behind(i64::MIN)), (None, Some(i64::MIN + 1)));
        assert_eq!((spec.following(i64::MIN), spec.following(i64::MAX)), (u64::MAX, 0));
        spec.increment = i64::MIN;
        assert_eq!((spec.behind(-1), spec.behind(0), spec.behind(i64::MAX)), (None, Some(i64::MIN), Some(-1)));
        assert_eq!((spec.following(-1), spec.following(0), spec.following(i64::MAX)), (0, 1, 1));
    }
}
