//! What is more about a SERIALIZABLE transaction: its reads are entered before they run, and it commits if it may.

use std::sync::Arc;

use eris_storage::{Batch, Predicate, StatementNumber};

use super::Transaction;
use crate::container::Container;
use crate::counters::Event;
use crate::error::EngineError;
use crate::foreign_key::KeySide;
use crate::lookup::Lookup;
use crate::near::Near;
use crate::runtime::Runtime;
use crate::serializable::{Tracking, predicates_of_keys};
use crate::transactions::{SnapshotHandle, TransactionHold, TransactionManager, TransactionObject};

/// A transaction that is tracked from its snapshot on.
#[cold]
pub(super) fn begin(
    runtime: &Runtime,
    transactions: &Near<TransactionManager>,
    statement: StatementNumber,
) -> (Arc<TransactionObject>, SnapshotHandle) {
    let object = transactions.begin_tracked(&runtime.memory);
    let Some(tracked) = object.tracked() else { unreachable!("it was made so") };
    let publish = || SnapshotHandle::publish(TransactionHold::new(transactions, &object), statement);
    let snapshot = transactions.serializable.begin(tracked, publish, SnapshotHandle::visible);
    (object, snapshot)
}

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

    /// A check of a foreign key looks at a newer state than the snapshot. It must have found there what the snapshot
    /// has, or the transaction would be behind somebody of whom it saw nothing else.
    #[inline]
    pub(super) fn check_keys_are_old(&self, side: &KeySide, keys: &Batch) -> Result<(), EngineError> {
        if self.hold.object().tracked().is_none() { Ok(()) } else { self.check_keys(side, keys) }
    }

    #[cold]
    fn check_keys(&self, side: &KeySide, keys: &Batch) -> Result<(), EngineError> {
        let container = self.runtime.container(side.container)?;
        let Some(tracking) = Tracking::of(&self.runtime, &container, self.hold.object()) else { return Ok(()) };
        tracking.must_not_have_missed(&side.attributes, keys);
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
    pub(super) fn prepare_serializable(&self) -> Result<(), EngineError> {
        let Some(tracked) = self.hold.object().tracked() else { return Ok(()) };
        self.hold.manager().serializable.prepare(tracked.id).count(&self.runtime);
        self.check_serializable()
    }

    /// Behind the commit.
    pub(super) fn count_serializable(&self) {
        if self.hold.object().tracked().is_some() {
            self.runtime.counters.add(Event::SerializableCommits, 1);
        }
    }
}
