//! What is more about a SERIALIZABLE transaction: its reads are entered before they run, and it commits if it may.

use eris_storage::{Batch, Predicate, StorageError};

use super::Transaction;
use crate::container::Container;
use crate::counters::Event;
use crate::error::EngineError;
use crate::foreign_key::KeySide;
use crate::global_index::GlobalIndex;
use crate::lookup::Lookup;
use crate::serializable::{TrackedTransaction, Tracking, predicates_of_keys};

impl Transaction {
    /// Says that the transaction will write nothing, before it does anything else. Writes are refused then, and at
    /// SERIALIZABLE it is less often in the way of others. Of no consequence at other levels.
    pub fn declare_read_only(&mut self) {
        if let Some(tracked) = self.hold.object().tracked() {
            tracked.declare_read_only();
            self.hold.manager().serializable.declare_read_only(tracked.id);
        }
    }

    /// Enters a read, which is about to run.
    #[inline]
    pub(super) fn track_read(&self, container: &Container, predicate: &Predicate) -> Result<(), EngineError> {
        let Some(tracking) = Tracking::of(&self.runtime, container, self.hold.object()) else { return Ok(()) };
        tracking.read(predicate);
        self.check_serializable()
    }

    /// Enters the keys of a lookup.
    #[inline]
    pub(super) fn track_lookup(&self, lookup: &Lookup, keys: &Batch) -> Result<(), EngineError> {
        if self.hold.object().tracked().is_none() { Ok(()) } else { self.track_keys(lookup, keys) }
    }

    #[cold]
    fn track_keys(&self, lookup: &Lookup, keys: &Batch) -> Result<(), EngineError> {
        let container = self.runtime.container(lookup.container)?;
        let Some(tracking) = Tracking::of(&self.runtime, &container, self.hold.object()) else { return Ok(()) };
        for predicate in predicates_of_keys(&lookup.request.attributes, keys) {
            tracking.read(&predicate);
        }
        self.check_serializable()
    }

    /// A global index of the container refused an entry.
    #[cold]
    pub(super) fn track_refused_entry(&self, container: &Container, index: &GlobalIndex, error: &EngineError) {
        let EngineError::Storage(StorageError::DuplicateKey { key, .. }) = error else { return };
        if let Some(tracking) = Tracking::of(&self.runtime, container, self.hold.object()) {
            tracking.refused_key(index.key(), key);
        }
    }

    /// A check of a foreign key looks at a newer state than the snapshot. It must have found there what the snapshot
    /// has, or the transaction would be behind somebody of whom it saw nothing else. What it found is kept by locks,
    /// unless it is `forgotten`: refused, or behind a savepoint.
    #[inline]
    pub(super) fn check_keys_are_old(&self, side: &KeySide, keys: &Batch, forgotten: bool) -> Result<(), EngineError> {
        match self.hold.object().tracked() {
            None => Ok(()),
            Some(tracked) => self.check_keys(side, keys, forgotten || tracked.may_go_back()),
        }
    }

    #[cold]
    fn check_keys(&self, side: &KeySide, keys: &Batch, forgotten: bool) -> Result<(), EngineError> {
        let container = self.runtime.container(side.container)?;
        let Some(tracking) = Tracking::of(&self.runtime, &container, self.hold.object()) else { return Ok(()) };
        if forgotten {
            tracking.learned(&side.attributes, keys);
        } else {
            tracking.must_not_have_missed(&side.attributes, keys);
        }
        self.check_serializable()
    }

    /// Whether it may go on.
    #[inline]
    pub(super) fn check_serializable(&self) -> Result<(), EngineError> {
        match self.hold.object().tracked().and_then(|tracked| tracked.doomed()) {
            None => Ok(()),
            Some(doom) => Err(EngineError::Unserializable { reason: doom.reason() }),
        }
    }

    /// Whether it may go on, and write.
    #[inline]
    pub(super) fn check_may_write(&self) -> Result<(), EngineError> {
        match self.hold.object().tracked() {
            None => Ok(()),
            Some(tracked) if tracked.is_declared_read_only() => Err(EngineError::ReadOnly),
            Some(_) => self.check_serializable(),
        }
    }

    /// Before the commit: from now on it is nobody's victim.
    #[inline]
    pub(super) fn prepare_serializable(&self) -> Result<(), EngineError> {
        self.hold.object().tracked().map_or(Ok(()), |tracked| self.prepare(tracked))
    }

    #[cold]
    fn prepare(&self, tracked: &TrackedTransaction) -> Result<(), EngineError> {
        self.hold.manager().serializable.prepare(tracked.id).count(&self.runtime);
        self.check_serializable()
    }

    /// Behind the commit.
    #[inline]
    pub(super) fn count_serializable(&self) {
        if self.hold.object().tracked().is_some() {
            self.runtime.counters.add(Event::SerializableCommits, 1);
        }
    }
}
