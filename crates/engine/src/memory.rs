//! The memory of the machine under an engine: an arena on each node, and the watch over the process.
//!
//! ```text
//! pool (limit of the database)
//!   +-- arena of node 0 ... n     sealed columns of the partitions at home there
//!   +-- child of a transaction    results, joins, sorts of its statements
//! ```
//! Arenas are made where memory has a place: on machines with several NUMA nodes. Elsewhere columns stay where they
//! were built, and nothing is copied. The watch looks when a worker has time anyway: while there is work, at most ten
//! times a second, and once more before a worker sleeps. An engine without work looks at nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eris_platform::arena::Arena;
use eris_platform::{
    ArenaOptions, Location, MemoryController, MemoryPool, MemoryReport, Nanos, NodeId, WorkerPlan, allocator,
};
use eris_storage::COLUMN_SEGMENTS;

use crate::engine::Engine;
use crate::options::EngineOptions;
use crate::runtime::Runtime;

/// The least time between two times that all are asked to give memory back: for a while after it all pages are fresh.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether sealed columns lie in arenas of their partition's home.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LocalMemory {
    /// If the nodes' memory is on more than one NUMA node.
    #[default]
    Auto,
    On,
    Off,
}

/// See the [module](self).
pub(crate) struct MachineMemory {
    /// By node; none: memory from anywhere.
    arenas: Vec<Option<Arena>>,
    /// By node, the NUMA node of the operating system.
    memory_nodes: Vec<NodeId>,
    controller: Option<Arc<MemoryController>>,
    /// The earliest time of the next request to workers to return memory because it is scarce.
    next_ask: AtomicU64,
    /// The same for requests because a statement waits for memory.
    next_wanted: AtomicU64,
}

impl MachineMemory {
    /// Arenas as the options and the plan want them; a watch over the process if `root` says where its files are.
    pub fn new(pool: &Arc<MemoryPool>, options: &EngineOptions, plan: &WorkerPlan, root: Option<&Path>) -> Self {
        let memory_nodes: Vec<NodeId> = (0..plan.nodes()).map(|node| plan.memory_node(NodeId(node as u16))).collect();
        let local = match options.local_memory {
            LocalMemory::Auto => memory_nodes.iter().any(|node| *node != memory_nodes[0]),
            LocalMemory::On => true,
            LocalMemory::Off => false,
        };
        let arena = |(node, memory_node): (usize, &NodeId)| {
            let options =
                ArenaOptions { memory_node: Some(*memory_node), huge_pages: false, consumer: COLUMN_SEGMENTS };
            local.then(|| Arena::with_options(NodeId(node as u16), pool, options))
        };
        let arenas = memory_nodes.iter().enumerate().map(arena).collect();
        let controller = root.filter(|_| options.memory_watched).map(|root| MemoryController::new(pool, root));
        Self { arenas, memory_nodes, controller, next_ask: AtomicU64::new(0), next_wanted: AtomicU64::new(0) }
    }

    /// Whether workers may be asked now to return memory for waiting statements: at most once in
    /// [`AWAIT_ASK_INTERVAL`], however many statements wait.
    pub fn may_ask(&self, now: Nanos) -> bool {
        let next = self.next_wanted.load(Ordering::Relaxed);
        let later = (now + AWAIT_ASK_INTERVAL).0;
        next <= now.0 && self.next_wanted.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Where columns of partitions at home on `node` go.
    pub fn arena(&self, node: NodeId) -> Option<&Arena> {
        self.arenas.get(node.index())?.as_ref()
    }

    /// A worker has time to look at the process. True if memory is scarce that the allocator keeps, once in a while.
    pub fn watch(&self, now: impl FnOnce() -> Nanos) -> bool {
        let Some(controller) = &self.controller else { return false };
        let now = now();
        let scarce = controller.look_if_due(now).is_some_and(|report| report.is_scarce());
        let asks = scarce && self.next_ask.load(Ordering::Relaxed) <= now.0;
        if asks {
            self.next_ask.store((now + ASK_INTERVAL).0, Ordering::Relaxed);
        }
        asks
    }
}

impl MachineMemory {
    /// The last look at the process, if somebody watches it.
    pub fn last_report(&self) -> Option<MemoryReport> {
        self.controller.as_ref().and_then(|controller| controller.last())
    }
}

/// The memory of one node.
#[derive(Clone, Debug)]
pub struct NodeMemory {
    pub node: NodeId,
    /// The NUMA node of the operating system that shall hold it.
    pub memory_node: NodeId,
    /// Bytes of sealed columns in its arena; none: columns lie anywhere.
    pub column_bytes: Option<u64>,
    /// Where the arena's pages lie.
    pub location: Option<Location>,
    /// What a user should know.
    pub remark: Option<String>,
}

/// See [`Runtime::write_ahead_bytes`].
const WRITE_AHEAD_SHARE: u64 = 64;
/// How often a statement that waits for memory looks.
const AWAIT_STEP: Duration = Duration::from_millis(1);
/// So many looks in a row find nothing to do before it is believed.
const AWAIT_LOOKS: u32 = 200;
/// The interval between requests to workers to return memory for waiting statements, as each interrupts all workers.
const AWAIT_ASK_INTERVAL: Duration = Duration::from_millis(200);
/// Busy partitions always want maintenance: if nothing was freed for so long, what was to be freed is.
const AWAIT_STILL: Duration = Duration::from_secs(1);

/// See [`Runtime::await_memory`].
pub(crate) struct MemoryAwaited(Arc<Runtime>);

impl Drop for MemoryAwaited {
    fn drop(&mut self) {
        self.0.memory_waits.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Runtime {
    /// Looks at the memory of the process, if that is due. Where it is scarce all workers give back what they can,
    /// those that sleep, too.
    pub fn watch_memory(&self) {
        if self.machine.watch(|| self.env.now()) {
            allocator::ask();
            self.unpark_all();
        }
    }

    /// Whether maintenance goes first, because a statement waits for the memory that it frees.
    #[inline]
    pub fn memory_is_awaited(&self) -> bool {
        self.memory_waits.load(Ordering::Relaxed) > 0
    }

    /// What a transaction wrote goes into the log ahead of its commit when it is so much: a small part of what is kept
    /// for those that give memory back.
    pub fn write_ahead_bytes(&self) -> usize {
        let share = usize::try_from(self.memory.configured_limit() / WRITE_AHEAD_SHARE).unwrap_or(usize::MAX);
        self.options.write_ahead_bytes.min(share)
    }

    /// Whether rows of so many bytes may be there as plain columns, which maintenance encodes afterwards.
    pub fn has_room_for_plain_columns(&self, bytes: u64) -> bool {
        self.memory.used().saturating_add(bytes) <= self.memory.limit() / 2
    }

    /// Maintenance goes first until what is returned is dropped.
    pub fn await_memory(self: &Arc<Self>) -> MemoryAwaited {
        self.memory_waits.fetch_add(1, Ordering::Relaxed);
        self.unpark_all();
        MemoryAwaited(Arc::clone(self))
    }

    /// Asks workers to return memory that the allocator keeps, for a waiting statement; see [`MachineMemory::may_ask`].
    pub fn ask_for_memory(&self) {
        if self.machine.may_ask(self.env.now()) {
            allocator::ask();
            self.unpark_all();
        }
    }
}

impl Engine {
    /// Has partitions vacate what ended statements left, in front of other work, and workers give back what the
    /// allocator keeps; ends when nothing of it is left, or nothing comes any more, or after `wait_max`. A statement
    /// that was refused memory calls it before it is tried again.
    pub async fn reclaim_memory(&self, wait_max: Duration) {
        let runtime = self.runtime();
        let _awaited = runtime.await_memory();
        // What had no memory to go on may have some now.
        runtime.unblock_maintenance();
        let now = || runtime.env.now();
        let (end, mut least, mut still_until) = (now() + wait_max, u64::MAX, now() + AWAIT_STILL);
        // A partition that is being maintained right now is not marked.
        let (mut before, mut looks_in_vain) = (0, 0);
        loop {
            runtime.ask_for_memory();
            self.sleep_until(now() + AWAIT_STEP).await;
            let used = self.memory().used();
            if used < least {
                (least, still_until) = (used, now() + AWAIT_STILL);
            }
            let goes_on = used < before || runtime.has_maintenance();
            (before, looks_in_vain) = (used, if goes_on { 0 } else { looks_in_vain + 1 });
            if now() >= end || now() >= still_until || looks_in_vain >= AWAIT_LOOKS {
                break;
            }
        }
        // What was found is in force for the next reservation.
        self.memory_report();
    }

    /// The same while the caller goes on, unless it is being done.
    pub fn reclaim_memory_soon(&self, wait_max: Duration) {
        if !self.runtime().memory_is_awaited() {
            let engine = self.clone();
            self.spawn(async move { engine.reclaim_memory(wait_max).await });
        }
    }

    /// What is accounted, what the process holds, and which limit is in force, as of now; none if nobody watches
    /// (a simulated machine, or as configured).
    pub fn memory_report(&self) -> Option<MemoryReport> {
        self.runtime().machine.controller.as_ref().map(|controller| controller.look())
    }

    /// Where the columns of each node lie. Asks the kernel about every page.
    pub fn node_memory(&self) -> Vec<NodeMemory> {
        let machine = &self.runtime().machine;
        let describe = |(arena, (node, memory_node)): (&Option<Arena>, (usize, &NodeId))| NodeMemory {
            node: NodeId(node as u16),
            memory_node: *memory_node,
            column_bytes: arena.as_ref().map(Arena::allocated_bytes),
            location: arena.as_ref().map(Arena::location),
            remark: arena.as_ref().and_then(Arena::remark),
        };
        machine.arenas.iter().zip(machine.memory_nodes.iter().enumerate()).map(describe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_asked_once_in_a_while_however_many_statements_wait() {
        let machine = MachineMemory {
            arenas: Vec::new(),
            memory_nodes: Vec::new(),
            controller: None,
            next_ask: AtomicU64::new(0),
            next_wanted: AtomicU64::new(0),
        };
        let asked = (0..1_000_000_000_u64).step_by(100_000).filter(|at| machine.may_ask(Nanos(*at))).count();
        assert_eq!(asked, 5, "ten thousand times in a second");
    }
}
