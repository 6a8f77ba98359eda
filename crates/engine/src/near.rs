//! Counted references that workers do not share, and views of containers made of them.
//!
//! Cloning an `Arc` writes its count. If all workers clone the same one for every access, the line of the count travels
//! between their cores each time, which costs more than the access. A [`Near`] is counted in a cell of its own worker:
//! ```text
//!  worker 0: Near, Near, Near ──> count 3 ─┐
//!                                          ├──> count 2, value
//!  worker 1: Near, Near ────────> count 2 ─┘
//! ```
//! A worker also keeps a [`ContainerView`] of each container it used last: the newest schema and partition table,
//! without a lock. Views pin partition tables, so a worker drops old ones every few steps, and all of them before it
//! sleeps.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use eris_storage::{ContainerId, Schema};

use crate::container::Container;
use crate::error::EngineError;
use crate::global_index::GlobalIndex;
use crate::partition_table::PartitionTable;
use crate::runtime::{Runtime, with_nearby};
use crate::transactions::TransactionManager;
use crate::write_rules::KnownRules;

/// Containers that a worker keeps a view of.
const VIEWS: usize = 64;

/// A counted reference whose count is its worker's own. It may go anywhere.
#[derive(Debug)]
pub(crate) struct Near<T: ?Sized>(Arc<Arc<T>>);

impl<T: ?Sized> Near<T> {
    pub fn new(shared: Arc<T>) -> Self {
        Self(Arc::new(shared))
    }
}

impl<T: ?Sized> Clone for Near<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Deref for Near<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl Near<Runtime> {
    /// Another reference, counted by the worker of this thread if it is one of this runtime's.
    pub fn nearest(&self) -> Self {
        with_nearby(self, |nearby| nearby.runtime.clone()).unwrap_or_else(|| self.clone())
    }
}

/// Refers to a runtime without keeping it.
pub(crate) enum WeakRuntime {
    /// Made by a worker: counted by it, and leads to the runtime for as long as that worker is there, until the engine
    /// halts.
    Near(Weak<Arc<Runtime>>),
    /// Made by anybody else.
    Shared(Weak<Runtime>),
}

impl WeakRuntime {
    pub fn new(runtime: &Arc<Runtime>) -> Self {
        let near = with_nearby(runtime, |nearby| Arc::downgrade(&nearby.runtime.0));
        near.map_or_else(|| Self::Shared(Arc::downgrade(runtime)), Self::Near)
    }

    /// Does something with the runtime, if it is still there.
    pub fn with(&self, act: impl FnOnce(&Runtime)) {
        match self {
            Self::Near(runtime) => runtime.upgrade().map(|runtime| act(&runtime)),
            Self::Shared(runtime) => runtime.upgrade().map(|runtime| act(&runtime)),
        };
    }
}

/// A container as one access sees it.
#[derive(Debug)]
pub(crate) struct ContainerView {
    pub container: Near<Container>,
    pub schema: Arc<Schema>,
    pub table: Arc<PartitionTable>,
    pub global_indexes: Option<Near<[Arc<GlobalIndex>]>>,
    pub rules: KnownRules,
    version: u64,
}

impl ContainerView {
    pub fn of(container: Arc<Container>) -> Self {
        // First: what changes meanwhile makes the view an old one.
        let version = container.version();
        Self {
            schema: container.schema(),
            table: container.table(),
            rules: container.rules().known(),
            global_indexes: container.global_indexes().map(Near::new),
            container: Near::new(container),
            version,
        }
    }

    fn is_current(&self) -> bool {
        self.container.version() == self.version
    }
}

/// What a worker has at hand.
pub(crate) struct Nearby {
    pub runtime: Near<Runtime>,
    pub transactions: Near<TransactionManager>,
    views: [Option<Arc<ContainerView>>; VIEWS],
}

impl Nearby {
    /// `runtime`: of the worker, which keeps it for as long as it is there.
    pub fn new(runtime: &Near<Runtime>) -> Self {
        Self {
            runtime: runtime.clone(),
            transactions: Near::new(Arc::clone(&runtime.transactions)),
            views: std::array::from_fn(|_| None),
        }
    }

    /// The newest view of a container, and the one that it replaces: to be dropped by the caller, because with the last
    /// pin of a partition table go its partitions.
    pub fn view(&mut self, id: ContainerId) -> (Result<Arc<ContainerView>, EngineError>, Option<Arc<ContainerView>>) {
        let slot = &mut self.views[id.0 as usize % VIEWS];
        if let Some(view) = slot
            && view.container.id() == id
            && view.is_current()
        {
            return (Ok(Arc::clone(view)), None);
        }
        match self.runtime.container(id) {
            Ok(container) => {
                let view = Arc::new(ContainerView::of(container));
                (Ok(Arc::clone(&view)), slot.replace(view))
            }
            Err(error) => (Err(error), slot.take_if(|view| view.container.id() == id)),
        }
    }

    /// Takes out the views that are old, or all of them.
    pub fn take_views(&mut self, all: bool) -> Vec<Arc<ContainerView>> {
        self.views.iter_mut().filter_map(|slot| slot.take_if(|view| all || !view.is_current())).collect()
    }
}
