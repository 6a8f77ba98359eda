//! Bounded memory: who holds how much, and a limit over all.
//!
//! A consumer reserves bytes *before* it allocates them. A [`Reservation`] belongs to one consumer (a name such as
//! `"hash join"`), grows and shrinks, and gives everything back when it is dropped. The pool keeps one counter for all
//! and one for each consumer; a grow costs an addition on both. What is counted is what consumers say; reconciling it
//! with what the operating system sees is the business of a [controller](crate::memory_controller) above.
//!
//! ```text
//! database   limit as configured, tightened by the controller     <- segments, indexes, arenas
//!   |
//!   +-- child   limit of one statement                            <- its results, joins, sorts
//! ```
//! What is reserved in a [child](MemoryPool::child) counts in all pools above it, and the first that has no more
//! refuses: a statement fails at its own limit before it takes what others need. One kind of child only counts
//! ([`MemoryPool::counted`]): for the little without which nothing could be given back.
//!
//! A small part of the limit is kept for what gives memory back: a full database could otherwise not even be emptied,
//! since whoever deletes a row notes that first ([`MemoryPool::reserve_for_release`]).

mod moving;
mod shares;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::memory_faults::MemoryFaults;
pub use moving::{FewRows, Mover, Moving};
use shares::{SPILL_FLOOR_BYTES, first_of, floor_of, kept_of, room_of, short_of};

/// The memory of one database, or of one statement in it.
#[derive(Debug)]
pub struct MemoryPool {
    /// What its bytes count in, too; none: a database.
    parent: Option<Arc<MemoryPool>>,
    kind: PoolKind,
    /// As set.
    configured: AtomicU64,
    /// As it is in force: the one set, or less.
    limit: AtomicU64,
    /// For what gives memory back: as set, also while less is in force because of unaccounted memory.
    release_limit: AtomicU64,
    /// When so much more was reserved, whatever was given back meanwhile, the controller looks.
    until_look: AtomicI64,
    /// Set while a few rows are changed in a store whose pool this is, or the database whose pool it is, is opened.
    takes_what_is_kept: AtomicBool,
    /// Set while what gives memory back is moved in a store whose pool this is.
    gives_back: AtomicBool,
    /// Of a database: whether one of its stores has a [`Mover`].
    has_mover: AtomicBool,
    /// How many of them moved rows, or sealed them, and are gone.
    moves: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
    /// Of a child: none, its consumers are those of the database.
    consumers: Mutex<Vec<Arc<Consumer>>>,
    /// Of the simulated machine.
    faults: OnceLock<Arc<MemoryFaults>>,
    /// Who tightens the limit.
    relief: Mutex<Option<Weak<dyn Relief>>>,
}

/// Whose memory a pool is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PoolKind {
    /// Of a database, or of a part with a limit of its own.
    Limited,
    /// No limit refuses it.
    OnlyCounts,
    /// Of what a statement works with, which leaves room for short transactions.
    Working,
    /// Of what short statements work with.
    Short,
    /// Of a store.
    Store,
}

/// Tightens the limit of a pool, and may loosen it again for one that is to be refused because of that.
pub(crate) trait Relief: fmt::Debug + Send + Sync {
    /// Finds more room, if it can; `missing` bytes of it are needed. They are asked for once more.
    fn relieve(&self, missing: u64);

    /// So much is used that the limit is to be decided anew before there is more.
    fn look_again(&self);
}

#[derive(Debug)]
struct Consumer {
    name: &'static str,
    used: AtomicU64,
}

/// The limit would have been exceeded, or the operating system had nothing left; nothing was reserved.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("out of memory: {consumer} asked for {asked} bytes, {used} of {limit} bytes are in use; {refused_by}")]
pub struct MemoryExceeded {
    pub consumer: &'static str,
    pub asked: u64,
    pub used: u64,
    /// For this consumer: without what is kept for others.
    pub limit: u64,
    pub refused_by: RefusedBy,
}

/// Who had no more memory to give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefusedBy {
    /// The pool: the setting can be raised.
    Limit,
    /// The limit of the statement.
    Statement,
    /// The pool, because the process holds memory that nobody accounted for.
    Unaccounted,
    /// The operating system, below the limit: the setting promises more than there is.
    System,
}

impl fmt::Display for RefusedBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusedBy::Limit => {
                write!(formatter, "raise the setting {MEMORY_LIMIT_SETTING} or let other work finish")
            }
            RefusedBy::Statement => formatter.write_str("this is the limit of one statement"),
            RefusedBy::Unaccounted => {
                write!(
                    formatter,
                    "the process holds more than is accounted, so less than the setting {MEMORY_LIMIT_SETTING} is given"
                )
            }
            RefusedBy::System => {
                write!(formatter, "the system has no more, although the setting {MEMORY_LIMIT_SETTING} would allow it")
            }
        }
    }
}

/// How far a reservation may go. The later may go further.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum MayTake {
    /// For what can be written to files instead: leaves some room for that, and for others.
    LeavingRoom,
    /// What a long statement works with.
    NotWhatIsShort,
    /// Rows, and what a short one works with.
    NotWhatIsKept,
    /// Changes of a few rows: what they replace goes soon.
    WhatIsKept,
    /// What gives memory back, whatever is unaccounted.
    Release,
    Everything,
}

/// The setting that bounds the pool.
pub const MEMORY_LIMIT_SETTING: &str = "memory_limit";

impl MemoryExceeded {
    /// The name of the setting a user may change.
    pub fn setting(&self) -> &'static str {
        MEMORY_LIMIT_SETTING
    }
}

impl MemoryPool {
    pub fn new(limit_bytes: u64) -> Arc<MemoryPool> {
        MemoryPool::with_parent(None, PoolKind::Limited, limit_bytes)
    }

    /// A pool within this one, with a limit of its own: for a statement or a task. Its bytes count here, too; both
    /// limits hold. It may outlive what it was made for, as long as somebody holds a reservation of it.
    pub fn child(self: &Arc<Self>, limit_bytes: u64) -> Arc<MemoryPool> {
        MemoryPool::with_parent(Some(Arc::clone(self)), PoolKind::Limited, limit_bytes)
    }

    /// A pool within this one for what a long statement works with. It leaves a part to short transactions, so that
    /// none of them is refused because of what joins, sorts and groups hold. Its first bytes are refused by no limit:
    /// the rows of a full database are still counted.
    pub fn working(self: &Arc<Self>) -> Arc<MemoryPool> {
        MemoryPool::with_parent(Some(Arc::clone(self)), PoolKind::Working, u64::MAX)
    }

    /// A pool within this one for what all short statements work with. A little of it, as much as working memory leaves
    /// to them, is refused by no limit: a row is found in a full database, and beside whatever is on its way to files.
    pub fn short(self: &Arc<Self>) -> Arc<MemoryPool> {
        MemoryPool::with_parent(Some(Arc::clone(self)), PoolKind::Short, u64::MAX)
    }

    /// A pool within this one for the rows of one store, see [`MemoryPool::change_few_rows`].
    pub fn of_store(self: &Arc<Self>) -> Arc<MemoryPool> {
        MemoryPool::with_parent(Some(Arc::clone(self)), PoolKind::Store, u64::MAX)
    }

    /// From now on everything may also take what is kept for what gives memory back, or no longer: while a database is
    /// opened its rows have to go in again, which were changed with that.
    pub fn take_what_is_kept(&self, takes: bool) {
        self.takes_what_is_kept.store(takes, Ordering::Relaxed);
    }

    pub(crate) fn may_take_what_is_kept(&self) -> bool {
        self.takes_what_is_kept.load(Ordering::Relaxed)
    }

    /// A pool within this one whose bytes count here, but are refused by no limit; only the system may have no more.
    /// For what stays small, and what a full database needs to become emptier.
    pub fn counted(self: &Arc<Self>) -> Arc<MemoryPool> {
        MemoryPool::with_parent(Some(Arc::clone(self)), PoolKind::OnlyCounts, u64::MAX)
    }

    fn with_parent(parent: Option<Arc<MemoryPool>>, kind: PoolKind, limit_bytes: u64) -> Arc<MemoryPool> {
        Arc::new(MemoryPool {
            parent,
            kind,
            configured: AtomicU64::new(limit_bytes),
            limit: AtomicU64::new(limit_bytes),
            release_limit: AtomicU64::new(limit_bytes),
            until_look: AtomicI64::new(i64::MAX),
            takes_what_is_kept: AtomicBool::new(false),
            gives_back: AtomicBool::new(false),
            has_mover: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            consumers: Mutex::default(),
            faults: OnceLock::new(),
            relief: Mutex::default(),
        })
    }

    /// A pool that never refuses, for tests and tools.
    pub fn unlimited() -> Arc<MemoryPool> {
        MemoryPool::new(u64::MAX)
    }

    /// From now on these faults may refuse any reservation of the database.
    ///
    /// # Panics
    /// If the pool has faults already.
    pub fn inject_faults(&self, faults: &Arc<MemoryFaults>) {
        let injected = self.root().faults.set(Arc::clone(faults));
        assert!(injected.is_ok(), "a pool has one source of faults");
    }

    /// An empty reservation of `consumer`. Reservations of one name are added up in [`by_consumer`](Self::by_consumer).
    pub fn reserve(self: &Arc<Self>, consumer: &'static str) -> Reservation {
        self.reservation(consumer, MayTake::NotWhatIsKept)
    }

    /// The same for what is needed to give memory back: it may also take what is kept for that.
    pub fn reserve_for_release(self: &Arc<Self>, consumer: &'static str) -> Reservation {
        self.reservation(consumer, MayTake::Release)
    }

    /// The same for what its consumer writes to temporary files when it is refused. It is refused earlier than others,
    /// while there is room left to do so.
    pub fn reserve_spillable(self: &Arc<Self>, consumer: &'static str) -> Reservation {
        self.reservation(consumer, MayTake::LeavingRoom)
    }

    fn reservation(self: &Arc<Self>, consumer: &'static str, may_take: MayTake) -> Reservation {
        let mut consumers = self.root().consumers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = consumers.iter().find(|known| known.name == consumer).cloned();
        let consumer = known.unwrap_or_else(|| {
            let new = Arc::new(Consumer { name: consumer, used: AtomicU64::new(0) });
            consumers.push(Arc::clone(&new));
            new
        });
        Reservation { pool: Arc::clone(self), consumer, bytes: AtomicU64::new(0), may_take }
    }

    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit in force: of a child the smaller of its own and what the pools above give at most. It may change
    /// between two calls.
    pub fn limit(&self) -> u64 {
        let own = self.limit.load(Ordering::Relaxed);
        match &self.parent {
            Some(parent) if self.kind == PoolKind::Working => {
                let (limit, kept) = (parent.limit(), parent.kept());
                own.min(limit.saturating_sub(kept + short_of(limit)))
            }
            Some(parent) if self.kind != PoolKind::OnlyCounts => own.min(parent.limit().saturating_sub(parent.kept())),
            _ => own,
        }
    }

    /// What a long statement reserves before it starts: enough to go on in files, if it is refused everything else.
    pub fn floor_of_statement(&self) -> u64 {
        floor_of(self.root().limit())
    }

    /// Bytes that a long statement may still reserve here, and in all pools above.
    pub fn free(&self) -> u64 {
        let own = self.limit.load(Ordering::Relaxed);
        let given = if self.parent.is_none() { own - kept_of(own) - short_of(own) } else { own };
        let free = given.saturating_sub(self.used());
        self.parent.as_ref().map_or(free, |parent| free.min(parent.free()))
    }

    /// The limit as it was set, which a controller may have tightened.
    pub fn configured_limit(&self) -> u64 {
        self.configured.load(Ordering::Relaxed)
    }

    /// The same of the database of which this is a part.
    pub fn database_limit(&self) -> u64 {
        self.root().configured_limit()
    }

    /// Bytes of the limit that only what gives memory back may take.
    pub fn kept(&self) -> u64 {
        if self.parent.is_some() { 0 } else { kept_of(self.limit()) }
    }

    /// Changes the limit. Below what is used, only new reservations are refused.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.configured.store(limit_bytes, Ordering::Relaxed);
        self.limit.store(limit_bytes, Ordering::Relaxed);
        self.release_limit.store(limit_bytes, Ordering::Relaxed);
    }

    /// Puts limits in force that are at most the one set: for all, and for what gives memory back. When `until_look`
    /// bytes more were reserved, they are decided anew.
    pub fn tighten(&self, limit_bytes: u64, release_bytes: u64, until_look: u64) {
        self.limit.store(limit_bytes.min(self.configured_limit()), Ordering::Relaxed);
        self.release_limit.store(release_bytes.min(self.configured_limit()), Ordering::Relaxed);
        self.until_look.store(i64::try_from(until_look).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Before this pool refuses because its limit was tightened, `relief` is asked for more.
    pub(crate) fn relieved_by(&self, relief: Weak<dyn Relief>) {
        *self.relief.lock().unwrap_or_else(PoisonError::into_inner) = Some(relief);
    }

    fn root(&self) -> &MemoryPool {
        self.parent.as_ref().map_or(self, |parent| parent.root())
    }

    /// Counts `bytes` here and in all pools above, or nowhere.
    ///
    /// What does not fit is not counted. If two grow at once and fit only one by one, the sum passes the limit for a
    /// moment and one takes back what it added, so that they cannot both slip under the limit.
    fn take(&self, consumer: &Consumer, bytes: u64, may_take: MayTake) -> Result<(), MemoryExceeded> {
        let may_take = match self.kind {
            PoolKind::Limited if self.takes_what_is_kept.load(Ordering::Relaxed) => may_take.max(MayTake::WhatIsKept),
            PoolKind::Limited => may_take,
            PoolKind::OnlyCounts => MayTake::Everything,
            // What is only counted is refused nowhere.
            PoolKind::Working if may_take == MayTake::Everything => may_take,
            PoolKind::Working if self.used().saturating_add(bytes) <= first_of(self.root().configured_limit()) => {
                MayTake::Everything
            }
            PoolKind::Working => may_take.min(MayTake::NotWhatIsShort),
            PoolKind::Short if self.used().saturating_add(bytes) <= short_of(self.root().limit()) => {
                MayTake::Everything
            }
            PoolKind::Short => may_take,
            PoolKind::Store if self.gives_back.load(Ordering::Relaxed) => may_take.max(MayTake::Release),
            PoolKind::Store if self.takes_what_is_kept.load(Ordering::Relaxed) => may_take.max(MayTake::WhatIsKept),
            PoolKind::Store => may_take,
        };
        if let Some(faults) = self.faults.get()
            && bytes > 0
            && faults.refuses(consumer.name)
        {
            let (used, limit) = (self.used(), self.limit());
            let refused_by = RefusedBy::System;
            return Err(MemoryExceeded { consumer: consumer.name, asked: bytes, used, limit, refused_by });
        }
        let in_force = self.limit.load(Ordering::Relaxed);
        let unkept = if self.parent.is_none() { in_force - kept_of(in_force) } else { in_force };
        let limit = match may_take {
            MayTake::LeavingRoom => unkept - room_of(in_force, unkept),
            MayTake::NotWhatIsShort if self.parent.is_none() => unkept - short_of(in_force),
            MayTake::NotWhatIsShort | MayTake::NotWhatIsKept => unkept,
            MayTake::WhatIsKept => in_force,
            MayTake::Release => self.release_limit.load(Ordering::Relaxed),
            MayTake::Everything => u64::MAX,
        };
        let fits = |used: u64| used.checked_add(bytes).is_some_and(|after| after <= limit);
        let exceeded = |used| {
            let refused_by = self.refused_by(in_force);
            MemoryExceeded { consumer: consumer.name, asked: bytes, used, limit, refused_by }
        };
        // Not counted even for a moment: others would be refused because of it.
        let used = self.used.load(Ordering::Relaxed);
        if !fits(used) {
            return Err(exceeded(used));
        }
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let refused = match &self.parent {
            _ if !fits(before) => Some(exceeded(before)),
            Some(parent) => parent.take(consumer, bytes, may_take).err(),
            None => None,
        };
        if let Some(refused) = refused {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(refused);
        }
        let after = before + bytes;
        if after > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(after, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The same, once more if the limit was tightened by somebody who may find more room.
    fn take_or_find(&self, consumer: &Consumer, bytes: u64, may_take: MayTake) -> Result<(), MemoryExceeded> {
        let root = self.root();
        let counted = i64::try_from(bytes).unwrap_or(i64::MAX);
        if root.until_look.load(Ordering::Relaxed) < counted
            && let Some(relief) = root.relief()
        {
            relief.look_again();
        }
        let take = || -> Result<(), MemoryExceeded> {
            self.take(consumer, bytes, may_take)?;
            root.until_look.fetch_sub(counted, Ordering::Relaxed);
            Ok(())
        };
        let refused = match take() {
            Err(refused) if refused.refused_by == RefusedBy::Unaccounted => refused,
            taken => return taken,
        };
        let Some(relief) = root.relief() else { return Err(refused) };
        relief.relieve(refused.used.saturating_add(bytes).saturating_sub(refused.limit));
        take()
    }

    fn relief(&self) -> Option<Arc<dyn Relief>> {
        self.relief.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }

    /// Why this pool refuses with this limit.
    #[cold]
    fn refused_by(&self, in_force: u64) -> RefusedBy {
        if self.parent.is_some() {
            RefusedBy::Statement
        } else if in_force < self.configured_limit() {
            RefusedBy::Unaccounted
        } else {
            RefusedBy::Limit
        }
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.give_back(bytes);
        }
    }

    /// The most that was ever reserved at once.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Bytes of every consumer of the database that ever reserved, in the order of their names.
    pub fn by_consumer(&self) -> Vec<(&'static str, u64)> {
        let consumers = self.root().consumers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> =
            consumers.iter().map(|consumer| (consumer.name, consumer.used.load(Ordering::Relaxed))).collect();
        list.sort_unstable();
        list
    }
}

/// Bytes held by one consumer; given back when dropped. May be shared between threads.
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<MemoryPool>,
    consumer: Arc<Consumer>,
    bytes: AtomicU64,
    may_take: MayTake,
}

impl Reservation {
    /// Reserves `bytes` more, or nothing at all. Before it is refused because the controller tightened the limit, the
    /// controller looks again and may have the allocator give back what it keeps: the caller waits for that.
    pub fn grow(&self, bytes: u64) -> Result<(), MemoryExceeded> {
        // Counters that all threads share are not written for nothing.
        if bytes == 0 {
            return Ok(());
        }
        let few = self.may_take == MayTake::LeavingRoom && self.bytes().saturating_add(bytes) <= SPILL_FLOOR_BYTES;
        let may_take = if few { MayTake::NotWhatIsKept } else { self.may_take };
        self.pool.take_or_find(&self.consumer, bytes, may_take)?;
        self.consumer.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives `bytes` back.
    ///
    /// # Panics
    /// If the reservation holds less.
    pub fn shrink(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{} gives back {bytes} of {before} reserved bytes", self.consumer.name);
        self.consumer.used.fetch_sub(bytes, Ordering::Relaxed);
        self.pool.give_back(bytes);
    }

    /// Grows or shrinks to `bytes`. For a reservation that only one thread changes.
    pub fn resize(&self, bytes: u64) -> Result<(), MemoryExceeded> {
        let held = self.bytes();
        if bytes > held {
            self.grow(bytes - held)
        } else {
            self.shrink(held - bytes);
            Ok(())
        }
    }

    /// Takes `bytes` out as a reservation of their own, which goes along with what they were reserved for. They are
    /// never free in between.
    ///
    /// # Panics
    /// If the reservation holds less.
    #[must_use]
    pub fn split(&self, bytes: u64) -> Reservation {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{} hands over {bytes} of {before} reserved bytes", self.consumer.name);
        let (pool, consumer) = (Arc::clone(&self.pool), Arc::clone(&self.consumer));
        Reservation { pool, consumer, bytes: AtomicU64::new(bytes), may_take: self.may_take }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn consumer(&self) -> &'static str {
        self.consumer.name
    }

    pub fn pool(&self) -> &Arc<MemoryPool> {
        &self.pool
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.bytes());
    }
}

#[cfg(test)]
mod tests;
