//! What all workers share: nodes, registries, and the few verbs that move things between them.

mod stores;
mod survey;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, RwLock, Weak};
use std::task::{Wake, Waker};

use eris_platform::{DeterministicMap, Env, MemoryPool, Nanos, NodeId, ReactorHandle, Reservation, ThreadHandle};
use eris_storage::{ContainerId, PartitionId};

use crate::admission::Admission;
use crate::assignments::Urgency;
use crate::commit_log::{CommitLog, LogSlot};
use crate::container::{Container, SYSTEM_CONTAINER};
use crate::counters::{Counters, Event};
use crate::dataflow::Dataflow;
use crate::error::EngineError;
use crate::ids::DataflowId;
use crate::lock::{Lock, lock, read, write};
use crate::memory::MachineMemory;
use crate::message::{Class, Message};
use crate::near::{ContainerView, Near, Nearby};
use crate::node::{Lanes, Node};
use crate::old_versions::OldVersions;
use crate::options::{EngineOptions, MAINTENANCE_RETRY};
use crate::partition::{LivingPartition, Partition};
use crate::placement::Helpers;
use crate::scatter::Scatter;
use crate::sequence::Sequences;
use crate::task::WaitingTasks;
use crate::traffic::Traffic;
use crate::transactions::TransactionManager;

/// Shards of the dataflow registry.
const DATAFLOW_SHARDS: usize = 16;

pub(crate) struct Runtime {
    pub env: Arc<dyn Env>,
    pub options: EngineOptions,
    pub memory: Arc<MemoryPool>,
    /// Pools in `memory`: of the system container and its writers, never refused; and of all short statements.
    pub system_memory: Arc<MemoryPool>,
    pub short_memory: Arc<MemoryPool>,
    pub machine: MachineMemory,
    pub old_versions: OldVersions,
    pub transactions: Arc<TransactionManager>,
    log: LogSlot,
    /// Of what transactions wrote and the log does not have yet.
    pub redo_memory: Reservation,
    pub nodes: Box<[Node]>,
    /// Of the workers, if they have any.
    pub threads: Lock<Vec<Box<dyn ThreadHandle>>>,
    pub counters: Counters,
    pub traffic: Traffic,
    pub admission: Admission,
    pub sequences: Sequences,
    containers: RwLock<std::collections::BTreeMap<ContainerId, Arc<Container>>>,
    /// Held while the log is told of a change of definitions and the change takes effect.
    defining: Lock<()>,
    /// By id. Weak: partition tables own the partitions, and running dataflows own their tables.
    partitions: RwLock<Vec<Weak<LivingPartition>>>,
    dataflows: [Lock<DeterministicMap<u64, Arc<Dataflow>>>; DATAFLOW_SHARDS],
    next_container: AtomicU32,
    pub waiting: WaitingTasks,
    next_dataflow: AtomicU64,
    next_node: AtomicU64,
    halt: AtomicBool,
    pub helpers: Helpers,
    /// Partitions whose maintenance waits for transactions to end; nothing keeps those of dropped containers for it.
    blocked: Lock<Vec<Weak<LivingPartition>>>,
    blocked_count: AtomicU64,
    retry_scheduled: AtomicBool,
    /// Those who fill the engine with a database.
    opening: AtomicU64,
    /// Statements that wait until memory of ended ones is given back.
    pub memory_waits: AtomicU64,
}

thread_local! {
    /// The buffer of the worker that runs on this thread right now, and its node.
    static OUTBOX: RefCell<Option<Outbox>> = const { RefCell::new(None) };
}

/// A worker's local message buffer.
pub(crate) struct Outbox {
    pub node: NodeId,
    pub messages: Lanes<Vec<u8>>,
    /// The buffer is flushed at this length: beyond what the last flush had to leave in it.
    flush_at: usize,
    scatter: Scatter,
    /// Pieces of work that this worker is about to do itself, so that nobody is woken for them.
    pub keep: u32,
    nearby: Option<Box<Nearby>>,
}

impl Outbox {
    pub fn new(node: NodeId) -> Self {
        Self { node, messages: Lanes::empty(), flush_at: 0, scatter: Scatter::default(), keep: 0, nearby: None }
    }

    /// The buffer of a worker, with what it has at hand.
    pub fn of_worker(node: NodeId, runtime: &Near<Runtime>) -> Self {
        Self { nearby: Some(Box::new(Nearby::new(runtime))), ..Self::new(node) }
    }

    /// Takes out the views of containers that are old, or all of them.
    pub fn take_views(&mut self, all: bool) -> Vec<Arc<ContainerView>> {
        self.nearby.as_mut().map(|nearby| nearby.take_views(all)).unwrap_or_default()
    }
}

/// How much of what becomes ready from here on the current worker does itself.
pub(crate) fn keep_work(pieces: u32) {
    OUTBOX.with(|slot| {
        if let Some(outbox) = slot.borrow_mut().as_mut() {
            outbox.keep = pieces;
        }
    });
}

/// Whether the current worker does a piece of work of this node itself that is ready now.
pub(crate) fn keeps_work(node: NodeId) -> bool {
    OUTBOX.with(|slot| match slot.borrow_mut().as_mut() {
        Some(outbox) if outbox.node == node && outbox.keep > 0 => {
            outbox.keep -= 1;
            true
        }
        _ => false,
    })
}

/// Makes `outbox` the current thread's; returns the one before.
pub(crate) fn swap_outbox(outbox: Option<Outbox>) -> Option<Outbox> {
    OUTBOX.with(|slot| slot.replace(outbox))
}

/// The node of the worker that runs on this thread, if one does.
pub(crate) fn current_node() -> Option<NodeId> {
    OUTBOX.with(|slot| slot.borrow().as_ref().map(|outbox| outbox.node))
}

/// What the worker of this thread has at hand of `runtime`, if it is one of its workers.
pub(crate) fn with_nearby<T>(runtime: &Arc<Runtime>, look: impl FnOnce(&mut Nearby) -> T) -> Option<T> {
    OUTBOX.with(|slot| {
        let mut slot = slot.borrow_mut();
        let nearby = slot.as_mut()?.nearby.as_mut()?;
        Arc::ptr_eq(&nearby.runtime, runtime).then(|| look(nearby))
    })
}

impl Runtime {
    pub fn new(
        env: Arc<dyn Env>,
        options: EngineOptions,
        memory: Arc<MemoryPool>,
        machine: MachineMemory,
        nodes: Vec<Node>,
    ) -> Self {
        let workers = options.workers;
        Self {
            env,
            counters: Counters::new(workers),
            admission: Admission::new(&options.admission),
            sequences: Sequences::default(),
            old_versions: OldVersions::new(&options),
            helpers: Helpers::new(nodes.len()),
            traffic: Traffic::new(nodes.len()),
            options,
            redo_memory: memory.reserve_for_release("redo of transactions"),
            log: LogSlot::default(),
            system_memory: memory.counted(),
            short_memory: memory.short(),
            memory,
            machine,
            transactions: Arc::new(TransactionManager::new(workers)),
            nodes: nodes.into_boxed_slice(),
            threads: Lock::default(),
            containers: RwLock::default(),
            defining: Lock::default(),
            partitions: RwLock::default(),
            dataflows: std::array::from_fn(|_| Lock::default()),
            next_container: AtomicU32::new(SYSTEM_CONTAINER.0 + 1),
            waiting: WaitingTasks::default(),
            next_dataflow: AtomicU64::new(1),
            next_node: AtomicU64::new(0),
            halt: AtomicBool::new(false),
            blocked: Lock::default(),
            blocked_count: AtomicU64::new(0),
            retry_scheduled: AtomicBool::new(false),
            opening: AtomicU64::new(0),
            memory_waits: AtomicU64::new(0),
        }
    }

    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.0 as usize]
    }

    pub fn next_container_id(&self) -> ContainerId {
        ContainerId(self.next_container.fetch_add(1, Ordering::Relaxed))
    }

    /// A container has this id, which is not given to others.
    pub fn keep_container_id(&self, id: ContainerId) {
        self.next_container.fetch_max(id.0 + 1, Ordering::Relaxed);
    }

    pub fn next_dataflow_id(&self) -> DataflowId {
        DataflowId(self.next_dataflow.fetch_add(1, Ordering::Relaxed))
    }

    /// Nodes in turn, for new tasks and partitions.
    pub fn next_node(&self) -> NodeId {
        loop {
            let node = &self.nodes[self.next_node.fetch_add(1, Ordering::Relaxed) as usize % self.nodes.len()];
            // One node is never given up.
            if !node.is_given_up() {
                return node.id;
            }
        }
    }

    pub fn given_up_nodes(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|node| node.is_given_up()).map(|node| node.id).collect()
    }

    pub fn halt(&self) {
        self.halt.store(true, Ordering::Release);
        self.unpark_all();
    }

    pub fn unpark_all(&self) {
        self.nodes.iter().flat_map(|node| &node.reactors).for_each(ReactorHandle::unpark);
    }

    pub fn attach_log(&self, log: Arc<dyn CommitLog>) {
        self.transactions.expect_waits();
        let first = self.log.set(log).is_ok();
        assert!(first, "an engine has one log");
    }

    /// Where there will be a log, perhaps.
    pub fn log_slot(&self) -> LogSlot {
        self.log.clone()
    }

    /// Where commits go, if they go anywhere.
    #[inline]
    pub fn log(&self) -> Option<&Arc<dyn CommitLog>> {
        self.log.get()
    }

    /// While it is held definitions are what the log knows. Nobody waits for anything else who has it.
    pub fn hold_definitions(&self) -> MutexGuard<'_, ()> {
        lock(&self.defining)
    }

    pub fn is_halted(&self) -> bool {
        self.halt.load(Ordering::Acquire)
    }

    // ---- registries

    pub fn container(&self, id: ContainerId) -> Result<Arc<Container>, EngineError> {
        read(&self.containers).get(&id).cloned().ok_or(EngineError::NoSuchContainer(id))
    }

    /// A container as an access sees it.
    pub fn view(self: &Arc<Self>, id: ContainerId) -> Result<Arc<ContainerView>, EngineError> {
        match with_nearby(self, |nearby| nearby.view(id)) {
            Some((view, _old)) => view,
            None => Ok(Arc::new(ContainerView::of(self.container(id)?))),
        }
    }

    /// The same for a container that is at hand, though it may be dropped by now.
    pub fn view_of(self: &Arc<Self>, container: &Arc<Container>) -> Arc<ContainerView> {
        self.view(container.id()).unwrap_or_else(|_| Arc::new(ContainerView::of(Arc::clone(container))))
    }

    /// Counted references to this and to the transactions.
    pub fn near(self: &Arc<Self>) -> (Near<Self>, Near<TransactionManager>) {
        let nearby = with_nearby(self, |nearby| (nearby.runtime.clone(), nearby.transactions.clone()));
        nearby.unwrap_or_else(|| (Near::new(Arc::clone(self)), Near::new(Arc::clone(&self.transactions))))
    }

    pub fn containers(&self) -> Vec<Arc<Container>> {
        read(&self.containers).values().cloned().collect()
    }

    pub fn add_container(&self, container: Arc<Container>) {
        let before = write(&self.containers).insert(container.id(), container);
        assert!(before.is_none(), "container ids are given once");
    }

    pub fn remove_container(&self, id: ContainerId) -> Result<Arc<Container>, EngineError> {
        let container = write(&self.containers).remove(&id).ok_or(EngineError::NoSuchContainer(id))?;
        container.mark_dropped();
        Ok(container)
    }

    /// Reserves an id; [`Self::add_partition`] fills it.
    pub fn next_partition_id(&self) -> PartitionId {
        let mut partitions = write(&self.partitions);
        partitions.push(Weak::new());
        PartitionId(partitions.len() as u64 - 1)
    }

    pub fn add_partition(&self, partition: &Partition) {
        partition.register(&self.transactions);
        let mut partitions = write(&self.partitions);
        let slot = &mut partitions[partition.id.0 as usize];
        assert!(slot.strong_count() == 0, "partition ids are given once");
        *slot = Arc::downgrade(partition);
    }

    /// A partition that a message names. Dataflows keep their partitions alive, so it exists.
    pub fn partition(&self, id: PartitionId) -> Partition {
        self.find_partition(id).unwrap_or_else(|| unreachable!("a message names a partition that exists"))
    }

    pub fn find_partition(&self, id: PartitionId) -> Option<Partition> {
        read(&self.partitions).get(id.0 as usize)?.upgrade()
    }

    /// Nobody will go on with what partitions are at.
    pub fn abandon_partitions(&self) {
        let partitions = self.all_partitions();
        for partition in &partitions {
            let at = partition.try_latch().map(|mut state| state.take_work());
            drop(at);
        }
    }

    pub fn add_dataflow(&self, dataflow: Arc<Dataflow>) {
        lock(self.dataflow_shard(dataflow.id)).insert(dataflow.id.0, dataflow);
    }

    pub fn dataflow(&self, id: DataflowId) -> Arc<Dataflow> {
        let dataflow = lock(self.dataflow_shard(id)).get(&id.0).cloned();
        dataflow.unwrap_or_else(|| unreachable!("{id} has messages under way, so it is registered"))
    }

    /// Counts finished commands and forgets the dataflow with its last one.
    pub fn finish_commands(&self, dataflow: &Dataflow, commands: usize) {
        if dataflow.count_finished(commands) {
            lock(self.dataflow_shard(dataflow.id)).remove(&dataflow.id.0);
        }
    }

    fn dataflow_shard(&self, id: DataflowId) -> &Lock<DeterministicMap<u64, Arc<Dataflow>>> {
        &self.dataflows[id.0 as usize % DATAFLOW_SHARDS]
    }

    // ---- verbs

    /// Puts a message into the worker's buffer; it leaves at the end of the step, or when the buffer is full.
    pub fn send(&self, message: &Message) {
        self.send_with(message.header.primitive.class(), |buffer| message.encode(buffer));
    }

    /// The same for whole messages of one class that `write` appends.
    pub fn send_with(&self, class: Class, write: impl FnOnce(&mut Vec<u8>)) {
        let full = OUTBOX.with(|slot| {
            let mut slot = slot.borrow_mut();
            let Some(outbox) = slot.as_mut() else { unreachable!("only tasks and micro-operators send, on workers") };
            write(if class == Class::Control { &mut outbox.messages.control } else { &mut outbox.messages.ordinary });
            let full = outbox.messages.ordinary.len() >= outbox.flush_at.max(self.options.worker_buffer_bytes);
            full.then(|| std::mem::replace(outbox, Outbox { keep: outbox.keep, ..Outbox::new(outbox.node) }))
        });
        // Flushing wakes workers, which looks at the outbox in its slot.
        if let Some(mut outbox) = full {
            self.flush(&mut outbox);
            OUTBOX.with(|slot| {
                if let Some(current) = slot.borrow_mut().as_mut() {
                    outbox.keep = current.keep;
                    *current = outbox;
                }
            });
        }
    }

    /// Moves a worker's messages to their partitions or to its node's incoming buffer, as many as fit; the rest waits
    /// with the sender.
    pub fn flush(&self, outbox: &mut Outbox) -> bool {
        if outbox.messages.is_empty() {
            return false;
        }
        let mut moved = false;
        if self.options.direct_append {
            let Outbox { node, messages, scatter, .. } = outbox;
            let own = std::mem::take(&mut messages.ordinary);
            // What is not for partitions of this node is for the coordinator.
            let mut rest = Vec::new();
            scatter.add_all(self, &own, |_, broadcast| rest.extend_from_slice(broadcast));
            let delivered = scatter.deliver(self, *node, |_, bytes, _| rest.extend_from_slice(bytes));
            self.counters.add(Event::LocalMessages, delivered as u64);
            moved = delivered > 0;
            if rest.is_empty() {
                // The usual case; keeps the memory.
                rest = own;
                rest.clear();
            }
            messages.ordinary = rest;
        }
        moved |= self.node(outbox.node).flush_local(&mut outbox.messages);
        if !outbox.messages.is_empty() {
            self.counters.add(Event::BufferFull, 1);
        }
        outbox.flush_at = outbox.messages.ordinary.len() + self.options.worker_buffer_bytes;
        moved
    }

    /// Has a worker look at the partition.
    pub fn visit(&self, partition: &Partition, urgency: Urgency) {
        if partition.mark_queued(urgency) {
            let node = self.acting_node(partition.home());
            node.assignments.push(Arc::clone(partition), urgency);
            self.wake_node(node.id);
        }
    }

    /// Has workers look at partitions whose commands may go on.
    pub fn visit_all(&self, partitions: &[PartitionId]) {
        for id in partitions {
            if let Some(partition) = self.find_partition(*id) {
                self.visit(&partition, Urgency::Later);
            }
        }
    }

    pub fn queue_maintenance(&self, partition: &Partition) {
        if let Some(node) = self.push_maintenance(partition) {
            self.wake_node(node);
        }
    }

    /// The same for what is little and not urgent: a worker of the node finds it before it sleeps, and nobody is woken
    /// for it.
    pub fn queue_small_maintenance(&self, partition: &Partition) {
        if let Some(node) = self.push_maintenance(partition)
            && current_node() != Some(node)
        {
            self.wake_node(node);
        }
    }

    /// Gives the node that was not told yet.
    fn push_maintenance(&self, partition: &Partition) -> Option<NodeId> {
        partition.mark_maintenance().then(|| {
            let node = self.acting_node(partition.carer());
            node.maintenance.push(Arc::clone(partition));
            node.id
        })
    }

    /// Queues maintenance at a later time.
    pub fn queue_maintenance_at(self: &Arc<Self>, partition: &Partition, time: Nanos) {
        self.queue_later(partition, None, time);
    }

    /// The same for a partition that drives a change: it must see to its guests even if nobody else keeps it.
    pub fn queue_change_at(self: &Arc<Self>, partition: &Partition, time: Nanos) {
        self.queue_later(partition, Some(Arc::clone(partition)), time);
    }

    fn queue_later(self: &Arc<Self>, partition: &Partition, kept: Option<Partition>, time: Nanos) {
        let later =
            LaterMaintenance { runtime: Arc::downgrade(self), partition: Arc::downgrade(partition), _kept: kept };
        let node = self.acting_node(partition.carer());
        node.timers.add(time, Waker::from(Arc::new(later)));
        self.wake_for_timer(node.id);
    }

    /// Parks maintenance that can do nothing before some transaction ends.
    pub fn block_maintenance(&self, partition: &Partition) {
        let mut blocked = lock(&self.blocked);
        if !blocked.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(partition))) {
            blocked.push(Arc::downgrade(partition));
        }
        self.blocked_count.store(blocked.len() as u64, Ordering::SeqCst);
    }

    /// Whether the engine is being filled with a database.
    pub fn is_opening(&self) -> bool {
        self.opening.load(Ordering::Acquire) > 0
    }

    pub fn begin_opening(&self) {
        self.opening.fetch_add(1, Ordering::AcqRel);
    }

    /// What maintenance left for later comes now.
    pub fn end_opening(self: &Arc<Self>) {
        if self.opening.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.memory.take_what_is_kept(false);
        }
        self.retry_blocked_maintenance();
    }

    /// A transaction ended: after a short while, so that many ends cost one look, blocked maintenance goes on.
    pub fn retry_blocked_maintenance(self: &Arc<Self>) {
        if self.blocked_count.load(Ordering::SeqCst) == 0 || self.retry_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let deadline = self.env.now() + MAINTENANCE_RETRY;
        let node = self.acting_node(self.nodes[0].id);
        node.timers.add(deadline, Waker::from(Arc::new(RetryMaintenance { runtime: Arc::downgrade(self) })));
        self.wake_for_timer(node.id);
    }

    /// Maintenance that waited for a transaction to end goes on.
    pub fn unblock_maintenance(&self) {
        self.retry_scheduled.store(false, Ordering::Release);
        let blocked = {
            let mut blocked = lock(&self.blocked);
            self.blocked_count.store(0, Ordering::Release);
            std::mem::take(&mut *blocked)
        };
        for partition in blocked.iter().filter_map(Weak::upgrade) {
            self.queue_maintenance(&partition);
        }
    }

    /// Forgets a timer that began on a node, wherever it is now.
    pub fn remove_timer(&self, node: NodeId, timer: u64) {
        let node = self.node(node);
        node.timers.remove(timer);
        if node.is_given_up() {
            // Its timers moved to a successor, perhaps more than once.
            self.nodes.iter().for_each(|other| other.timers.remove(timer));
        }
    }

    /// When the node's next timer is due.
    pub fn next_deadline(&self, node: NodeId) -> Option<Nanos> {
        self.node(node).timers.next()
    }
}

struct LaterMaintenance {
    runtime: Weak<Runtime>,
    partition: Weak<LivingPartition>,
    _kept: Option<Partition>,
}

impl Wake for LaterMaintenance {
    fn wake(self: Arc<Self>) {
        if let (Some(runtime), Some(partition)) = (self.runtime.upgrade(), self.partition.upgrade()) {
            runtime.queue_maintenance(&partition);
        }
    }
}

struct RetryMaintenance {
    runtime: Weak<Runtime>,
}

impl Wake for RetryMaintenance {
    fn wake(self: Arc<Self>) {
        if let Some(runtime) = self.runtime.upgrade() {
            runtime.unblock_maintenance();
        }
    }
}
