//! The table locks of a transaction: taken before the first access to a container, given back when it ends.
//!
//! Accesses take them by themselves. Those that can wait do: the task sleeps, as it does for rows. `scan`,
//! `lookup_many`,
//! `pin_stream` and `bulk` begin at once; where they would have to wait they are refused, so whoever shares a container
//! with changes of the schema locks it before ([`Transaction::lock_table`]).
//!
//! Whoever gets a lock looks at the container again. It may have been dropped meanwhile, and it may have taken the
//! place of another one after the transaction's snapshot: then there would be nothing where the snapshot has rows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, future::Future, future::poll_fn};

use eris_storage::{ContainerId, StatementNumber, TransactionId};

use super::{IsolationLevel, SnapshotHandle, Transaction, TransactionHold};
use crate::container::Container;
use crate::counters::Event;
use crate::error::EngineError;
use crate::lock::{Lock, lock};
use crate::near::Near;
use crate::serializable::Tracking;
use crate::table_locks::{LockPlace, Requested, TableLockMode, TableLockModes};
use crate::timer::Sleep;
use crate::transactions::TableLockWait;

/// The table locks of a transaction. They are given back when this is dropped.
#[derive(Debug)]
pub(super) struct HeldTableLocks {
    transaction: TransactionId,
    /// Most transactions use one container in one mode.
    first: Option<Held>,
    more: Vec<Held>,
    /// Whether the transaction has looked at no table so far, so that its snapshot may be taken anew.
    is_untouched: bool,
    /// It takes none.
    passes: bool,
}

/// The table locks of a transaction that has ended, see [`Transaction::keep_locks`]. They are given back when this is
/// dropped.
#[derive(Debug)]
pub struct KeptTableLocks {
    _locks: Arc<Lock<Option<HeldTableLocks>>>,
}

struct Held {
    container: Near<Container>,
    mode: TableLockMode,
    place: LockPlace,
    /// The statement that took it.
    statement: StatementNumber,
    /// Whether rows may be read: the snapshot is not older than the container.
    fits: bool,
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of container {}", self.mode.name(), self.container.id().0)
    }
}

impl HeldTableLocks {
    pub(super) fn none(transaction: TransactionId) -> Self {
        Self { transaction, first: None, more: Vec::new(), is_untouched: true, passes: false }
    }

    fn iter(&self) -> impl Iterator<Item = &Held> {
        self.first.iter().chain(&self.more)
    }

    /// Whether rows may be used in this way without another look.
    #[inline]
    fn allow(&self, container: ContainerId, mode: TableLockMode) -> bool {
        self.passes || self.iter().any(|held| held.fits && held.container.id() == container && held.mode.covers(mode))
    }

    fn cover(&self, container: ContainerId, mode: TableLockMode) -> bool {
        self.passes || self.iter().any(|held| held.container.id() == container && held.mode.covers(mode))
    }

    fn modes_on(&self, container: ContainerId) -> TableLockModes {
        let own = self.iter().filter(|held| held.container.id() == container);
        own.fold(TableLockModes::NONE, |modes, held| modes.with(held.mode))
    }

    fn add(&mut self, held: Held) {
        match self.first {
            None => self.first = Some(held),
            Some(_) => self.more.push(held),
        }
    }

    fn set_fits(&mut self, container: ContainerId) {
        let own = self.first.iter_mut().chain(&mut self.more).filter(|held| held.container.id() == container);
        own.for_each(|held| held.fits = true);
    }

    /// Gives back what these statements took, and later ones.
    pub(super) fn release_from(&mut self, first: StatementNumber) {
        let transaction = self.transaction;
        for held in self.more.extract_if(.., |held| held.statement >= first) {
            held.release(transaction);
        }
        if let Some(held) = self.first.take_if(|held| held.statement >= first) {
            held.release(transaction);
        }
    }

    /// Gives back those of a container that is gone.
    fn release_of(&mut self, container: ContainerId) {
        let transaction = self.transaction;
        for held in self.more.extract_if(.., |held| held.container.id() == container) {
            held.release(transaction);
        }
        if let Some(held) = self.first.take_if(|held| held.container.id() == container) {
            held.release(transaction);
        }
    }

    /// Takes them out.
    pub(super) fn take(&mut self) -> Self {
        Self {
            transaction: self.transaction,
            first: self.first.take(),
            more: std::mem::take(&mut self.more),
            is_untouched: self.is_untouched,
            passes: self.passes,
        }
    }

    /// A container that was written to and that others dropped since, at once.
    fn lost(&self) -> Option<ContainerId> {
        let is_lost = |held: &&Held| {
            held.mode == TableLockMode::RowExclusive
                && held.container.is_dropped()
                && !self.cover(held.container.id(), TableLockMode::AccessExclusive)
        };
        self.iter().find(is_lost).map(|held| held.container.id())
    }
}

impl Held {
    fn release(&self, transaction: TransactionId) {
        self.container.locks().release(transaction, self.mode, self.place);
    }
}

impl Drop for HeldTableLocks {
    #[inline]
    fn drop(&mut self) {
        let transaction = self.transaction;
        self.first.iter().chain(&self.more).for_each(|held| held.release(transaction));
    }
}

impl Transaction {
    /// Locks a container until the transaction ends, or rolls back to a savepoint before this statement. Waits for
    /// those who have a lock in the way, and for those who want one and came before.
    ///
    /// # Errors
    /// [`EngineError::NoSuchContainer`] if it was dropped, also while this waited; [`EngineError::Deadlock`],
    /// [`EngineError::LockTimeout`], [`EngineError::Cancelled`]; [`EngineError::ContainerReplaced`] for a weak mode of
    /// a container that is newer than the snapshot.
    pub async fn lock_table(&mut self, container: ContainerId, mode: TableLockMode) -> Result<(), EngineError> {
        let container = self.runtime.view(container)?.container.clone();
        if mode.is_weak() {
            return if self.note_use(&container, mode) {
                Ok(())
            } else {
                Box::pin(self.lock_use(&container, mode)).await
            };
        }
        Box::pin(self.take_lock(&container, mode)).await
    }

    /// The same without a wait.
    ///
    /// # Errors
    /// As above, and [`EngineError::TableLockNotAvailable`].
    pub fn lock_table_now(&mut self, container: ContainerId, mode: TableLockMode) -> Result<(), EngineError> {
        let container = self.runtime.view(container)?.container.clone();
        match self.ask_for_lock(&container, mode, false) {
            Requested::Granted(place) => self.add_lock(&container, mode, place),
            Requested::Waits(_) | Requested::Refused => Err(EngineError::TableLockNotAvailable(container.id())),
        }
    }

    /// Locks a container that another one takes the place of, or nothing, when the transaction commits. At SERIALIZABLE
    /// that is a write of every row, and it fails if somebody wrote one that the snapshot does not see.
    ///
    /// # Errors
    /// As [`Self::lock_table`]; [`EngineError::Unserializable`].
    pub async fn lock_to_replace(&mut self, container: ContainerId) -> Result<(), EngineError> {
        self.lock_table(container, TableLockMode::AccessExclusive).await?;
        self.check_may_write()?;
        let container = self.runtime.container(container)?;
        if let Some(tracking) = Tracking::of(&self.runtime, &container, self.hold.object()) {
            if !container.is_visible_at(self.snapshot().visible()) {
                return Err(EngineError::ContainerReplaced(container.id()));
            }
            // Other transactions may conflict with these entries, so the snapshot must not be renewed.
            self.locks.is_untouched = false;
            tracking.replaced();
        }
        self.check_serializable()
    }

    /// Takes no table locks: for whoever looks at a database as a whole (checkpoints, verification, statistics) and
    /// puts up with containers that are dropped meanwhile, and for what a statement does on the side in a transaction
    /// of its own, under its locks.
    pub fn pass_table_locks(&mut self) {
        self.locks.passes = true;
    }

    /// Makes the table locks outlast the transaction, however it ends: they are released when the returned value is
    /// dropped. For work that must be done before other transactions use the containers.
    pub fn keep_locks(&mut self) -> KeptTableLocks {
        KeptTableLocks { _locks: Arc::clone(self.kept_locks.get_or_insert_default()) }
    }

    /// Releases the table locks, or hands them to [`KeptTableLocks`] if there is one.
    pub(super) fn end_locks(&mut self) {
        let locks = self.locks.take();
        match self.kept_locks.take() {
            Some(kept) => *lock(&kept) = Some(locks),
            None => drop(locks),
        }
    }

    /// Before an access that may wait.
    #[inline]
    pub(super) async fn use_table(
        &mut self,
        container: &Near<Container>,
        mode: TableLockMode,
    ) -> Result<(), EngineError> {
        if !self.note_use(container, mode) {
            Box::pin(self.lock_use(container, mode)).await?;
        }
        self.locks.is_untouched = false;
        Ok(())
    }

    /// Before an access that begins at once.
    #[inline]
    pub(super) fn use_table_now(
        &mut self,
        container: &Near<Container>,
        mode: TableLockMode,
    ) -> Result<(), EngineError> {
        if !self.note_use(container, mode) {
            self.lock_table_now(container.id(), mode)?;
            self.check_fits(container)?;
        }
        self.locks.is_untouched = false;
        Ok(())
    }

    /// Whether the access may begin: its lock is there, or could be noted, and the container is as it should be.
    #[inline]
    fn note_use(&mut self, container: &Near<Container>, mode: TableLockMode) -> bool {
        if self.locks.allow(container.id(), mode) {
            return true;
        }
        if self.locks.cover(container.id(), mode) {
            return false;
        }
        let Some(place) = container.locks().note(self.id(), mode) else { return false };
        let fits = !container.is_dropped() && container.is_visible_at(self.snapshot().visible());
        self.locks.add(Held { container: container.clone(), mode, place, statement: self.statement, fits });
        fits
    }

    #[cold]
    async fn lock_use(&mut self, container: &Near<Container>, mode: TableLockMode) -> Result<(), EngineError> {
        self.take_lock(container, mode).await?;
        self.check_fits(container)
    }

    async fn take_lock(&mut self, container: &Near<Container>, mode: TableLockMode) -> Result<(), EngineError> {
        let may_wait = self.lock_timeout.is_none_or(|timeout| !timeout.is_zero());
        let place = match self.ask_for_lock(container, mode, may_wait) {
            Requested::Granted(place) => {
                if place != LockPlace::Covered {
                    // Others may have committed between the snapshot and the lock.
                    self.renew_if_untouched();
                }
                place
            }
            Requested::Refused => {
                self.runtime.counters.add(Event::LockTimeouts, 1);
                return Err(EngineError::LockTimeout);
            }
            Requested::Waits(ticket) => {
                self.wait_for_lock(container, mode, ticket).await?;
                LockPlace::Queue
            }
        };
        self.add_lock(container, mode, place)
    }

    fn ask_for_lock(&self, container: &Near<Container>, mode: TableLockMode, may_wait: bool) -> Requested {
        let (locks, own) = (container.locks(), self.locks.modes_on(container.id()));
        if self.locks.cover(container.id(), mode) {
            // What it has does already: there is nothing to be given back.
            return Requested::Granted(LockPlace::Covered);
        }
        let noted = if mode.is_weak() { locks.note(self.id(), mode) } else { None };
        noted.map_or_else(|| locks.request(self.id(), own, mode, may_wait), Requested::Granted)
    }

    fn add_lock(
        &mut self,
        container: &Near<Container>,
        mode: TableLockMode,
        place: LockPlace,
    ) -> Result<(), EngineError> {
        if place != LockPlace::Covered {
            let (container, statement) = (container.clone(), self.statement);
            self.locks.add(Held { container, mode, place, statement, fits: false });
        }
        if container.is_dropped() && !self.locks.passes {
            self.locks.release_of(container.id());
            return Err(EngineError::NoSuchContainer(container.id()));
        }
        Ok(())
    }

    /// Waits until a request is granted.
    async fn wait_for_lock(
        &mut self,
        container: &Near<Container>,
        mode: TableLockMode,
        ticket: u64,
    ) -> Result<(), EngineError> {
        let runtime = self.runtime.clone();
        let wait = TableLockWait::begin(&runtime.transactions, self.id(), container.locks(), mode, ticket);
        let Some(mut wait) = wait else {
            runtime.counters.add(Event::TableDeadlocks, 1);
            return Err(EngineError::Deadlock);
        };
        runtime.counters.add(Event::TableLockWaits, 1);
        self.sleep_until_ready(|context| wait.poll(context)).await?;
        drop(wait);
        self.renew_if_untouched();
        Ok(())
    }

    /// Waits for something that others bring about, as long as the lock timeout allows, or until the statement is
    /// cancelled.
    pub(super) async fn sleep_until_ready(
        &self,
        mut is_ready: impl FnMut(&Context<'_>) -> Poll<()>,
    ) -> Result<(), EngineError> {
        let runtime = &self.runtime;
        let mut timeout = self.lock_timeout.map(|timeout| Sleep::until(runtime, runtime.env.now() + timeout));
        poll_fn(|context| {
            if is_ready(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            self.cancel().register(context.waker());
            if self.cancel().is_cancelled() {
                return Poll::Ready(Err(EngineError::Cancelled));
            }
            if let Some(sleep) = &mut timeout
                && Pin::new(sleep).poll(context).is_ready()
            {
                runtime.counters.add(Event::LockTimeouts, 1);
                return Poll::Ready(Err(EngineError::LockTimeout));
            }
            Poll::Pending
        })
        .await
    }

    /// Rows are about to be used: the container must not have come after the snapshot, unless that may be taken anew.
    fn check_fits(&mut self, container: &Near<Container>) -> Result<(), EngineError> {
        if container.is_dropped() && !self.locks.passes {
            self.locks.release_of(container.id());
            return Err(EngineError::NoSuchContainer(container.id()));
        }
        if !container.is_visible_at(self.snapshot().visible()) && !self.locks.passes {
            self.renew_if_untouched();
            if !container.is_visible_at(self.snapshot().visible()) {
                return Err(EngineError::ContainerReplaced(container.id()));
            }
        }
        self.locks.set_fits(container.id());
        Ok(())
    }

    /// A statement that has not looked at anything yet (at the other levels: a transaction) sees what is committed by
    /// now, those among it that it waited for.
    fn renew_if_untouched(&mut self) {
        let is_untouched = match self.level {
            IsolationLevel::ReadCommitted => self.operations == 0,
            IsolationLevel::RepeatableRead | IsolationLevel::Serializable => self.locks.is_untouched,
        };
        if !is_untouched {
            return;
        }
        let (manager, object) = (self.hold.manager().clone(), self.hold.object().clone());
        let statement = self.statement;
        let publish = || SnapshotHandle::publish(TransactionHold::new(&manager, &object), statement);
        let snapshot = match object.tracked() {
            None => publish(),
            Some(tracked) => manager.serializable.renew(tracked.id, publish, SnapshotHandle::visible),
        };
        self.snapshot = Some(std::sync::Arc::new(snapshot));
    }

    /// Before the commit: containers that it wrote to are still there.
    #[inline]
    pub(super) fn check_containers(&self) -> Result<(), EngineError> {
        self.locks.lost().map_or(Ok(()), |container| Err(EngineError::ContainerReplaced(container)))
    }
}
