//! A tracked transaction's own part: whether it is doomed, where it has entries, the memory for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use eris_platform::{MemoryPool, Reservation};
use eris_storage::{ContainerId, Predicate, Schema, TransactionId};

use super::access::RowWrite;
use super::registry::{AccessRegistry, Bounds, Met};
use crate::lock::{Lock, lock};

/// What keeps account of entries.
const CONSUMER: &str = "serializable transactions";
/// What the graph keeps of a transaction, with a few edges.
const NODE_BYTES: u64 = 512;

/// Why a transaction may not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doom {
    /// It is in the middle of a dangerous structure.
    Pivot = 1,
    /// It read what a pivot wrote that can no longer fail.
    Reader = 2,
    /// It was about to commit, and the pivot can no longer fail.
    Committer = 3,
}

impl Doom {
    /// As PostgreSQL puts it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Pivot => "Reason code: Canceled on identification as a pivot.",
            Self::Reader => "Reason code: Canceled on conflict out to pivot.",
            Self::Committer => "Reason code: Canceled on commit attempt with conflict in from prepared pivot.",
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct TrackedTransaction {
    pub id: TransactionId,
    /// A [`Doom`], or 0. Never taken back: a rollback to a savepoint does not help.
    doom: AtomicU8,
    has_written: AtomicBool,
    is_declared_read_only: AtomicBool,
    may_go_back: AtomicBool,
    /// None once it is forgotten: what still runs for it enters nothing.
    entered: Lock<Option<Entered>>,
}

#[derive(Debug)]
struct Entered {
    memory: Reservation,
    registries: BTreeMap<ContainerId, Arc<AccessRegistry>>,
}

impl Entered {
    fn registry(&mut self, container: ContainerId, registry: &Arc<AccessRegistry>) -> &AccessRegistry {
        self.registries.entry(container).or_insert_with(|| Arc::clone(registry))
    }
}

impl TrackedTransaction {
    pub fn new(id: TransactionId, memory: &Arc<MemoryPool>) -> Self {
        let memory = memory.reserve(CONSUMER);
        // It begins all the same: where memory is short, what it does fails for that.
        let _ = memory.grow(NODE_BYTES);
        let entered = Entered { memory, registries: BTreeMap::new() };
        let (has_written, is_declared_read_only, may_go_back) = Default::default();
        let entered = Lock::new(Some(entered));
        Self { id, doom: AtomicU8::new(0), has_written, is_declared_read_only, may_go_back, entered }
    }

    /// It may not commit; false if that is known.
    pub fn doom(&self, why: Doom) -> bool {
        self.doom.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether and why it may not commit.
    pub fn doomed(&self) -> Option<Doom> {
        match self.doom.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Doom::Pivot),
            2 => Some(Doom::Reader),
            _ => Some(Doom::Committer),
        }
    }

    pub fn is_doomed(&self) -> bool {
        self.doomed().is_some()
    }

    /// It says that it will write nothing.
    pub fn declare_read_only(&self) {
        self.is_declared_read_only.store(true, Ordering::Relaxed);
    }

    pub fn is_declared_read_only(&self) -> bool {
        self.is_declared_read_only.load(Ordering::Relaxed)
    }

    /// It has a savepoint: what it writes from now on may be taken back, and what it learned by that stays.
    pub fn mark_savepoint(&self) {
        self.may_go_back.store(true, Ordering::Relaxed);
    }

    pub fn may_go_back(&self) -> bool {
        self.may_go_back.load(Ordering::Relaxed)
    }

    /// Whether it wrote a row, rolled back or not.
    pub fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Acquire)
    }

    /// Enters a read of a container.
    pub fn read(
        &self,
        registry: &Arc<AccessRegistry>,
        schema: &Schema,
        predicate: &Predicate,
        entries_max: usize,
    ) -> Met {
        let entered = &mut *lock(&self.entered);
        let Some(entered) = entered else { return Met::default() };
        entered.registry(schema.container, registry);
        let bounds = Bounds { entries_max, memory: &entered.memory };
        registry.read(self.id, predicate, schema, bounds)
    }

    /// Enters rows that it wrote; none: some.
    pub fn write(
        &self,
        registry: &Arc<AccessRegistry>,
        container: ContainerId,
        writes: Option<Vec<RowWrite>>,
        entries_max: usize,
    ) -> Met {
        self.has_written.store(true, Ordering::Release);
        let entered = &mut *lock(&self.entered);
        let Some(entered) = entered else { return Met::default() };
        entered.registry(container, registry);
        let bounds = Bounds { entries_max, memory: &entered.memory };
        match writes {
            Some(writes) => registry.write(self.id, writes, bounds),
            None => registry.write_some(self.id, bounds),
        }
    }

    /// Takes out all it entered, and gives the memory back.
    pub fn forget(&self) {
        let Some(entered) = lock(&self.entered).take() else { return };
        for registry in entered.registries.values() {
            registry.forget(self.id);
        }
    }

    /// Takes out what it read. Planted: it matters after the commit.
    #[cfg(feature = "bug_ssi_forgets_committed_reader")]
    pub fn forget_reads(&self) {
        for registry in lock(&self.entered).iter().flat_map(|entered| entered.registries.values()) {
            registry.forget_reads(self.id);
        }
    }
}
