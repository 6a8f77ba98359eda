//! The engine from outside: start, stop, tasks, containers, transactions.

use std::fmt;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::sync::{Arc, mpsc};

use eris_platform::limits;
use eris_platform::{Env, MemoryPool, Nanos, NodeId, ReactorHandle, Topology, WorkerPlan};
use eris_storage::{ContainerId, Key, Registry, StorageError, Store};

use crate::admission::{Admit, StatementClass};
use crate::commit_log::CommitLog;
use crate::container::{Container, ContainerSpec};
use crate::definition::Definition;
use crate::error::EngineError;
use crate::global_index::{GlobalIndex, GlobalIndexSpec};
use crate::ids::TableVersion;
use crate::lock::lock;
use crate::lookup::invalid;
use crate::memory::MachineMemory;
use crate::near::Near;
use crate::node::Node;
use crate::options::EngineOptions;
use crate::partition::{Bounds, LivingPartition};
use crate::partition_table::{Entry, PartitionTable, Partitioning};
use crate::runtime::{Runtime, current_node};
use crate::table_locks::TableLockDescription;
use crate::task::{Task, give_up_all};
use crate::timer::Sleep;
use crate::transaction::{IsolationLevel, Transaction, until_visible};
use crate::worker::Worker;

/// A running engine. Clones share it; a worker's clone costs no line that others write.
pub struct Engine {
    runtime: Near<Runtime>,
}

impl Clone for Engine {
    fn clone(&self) -> Self {
        Self { runtime: self.runtime.nearest() }
    }
}

/// See [`Engine::begin_opening`].
#[derive(Debug)]
pub struct Opening {
    engine: Engine,
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.engine.runtime.end_opening();
    }
}

impl Engine {
    /// Starts the workers as threads.
    pub fn start(env: Arc<dyn Env>, options: EngineOptions) -> Result<Self, EngineError> {
        let start_error = |error: &dyn fmt::Display| EngineError::Start(error.to_string());
        let root = Path::new("/");
        let topology = Topology::read(root);
        let limits = limits::cpus(root);
        let plan = WorkerPlan::new(options.workers, options.nodes, options.pinning, &topology, &limits)
            .map_err(|error| start_error(&error))?;
        let (runtime, workers) = assemble(env, options, &plan, Some(root))?;
        for (number, worker) in workers.into_iter().enumerate() {
            let pin = plan.placements()[number].cpu;
            let handle = runtime
                .env
                .spawn(&format!("eris-worker-{number}"), pin, Box::new(move || worker.run()))
                .map_err(|error| start_error(&error))?;
            lock(&runtime.threads).push(handle);
        }
        Ok(Self { runtime: Near::new(runtime) })
    }

    /// An engine whose workers somebody else steps.
    pub(crate) fn assemble_stepped(
        env: Arc<dyn Env>,
        options: EngineOptions,
        plan: &WorkerPlan,
    ) -> Result<(Self, Vec<Worker>), EngineError> {
        let (runtime, workers) = assemble(env, options, plan, None)?;
        Ok((Self { runtime: Near::new(runtime) }, workers))
    }

    /// Stops the workers and waits for them. Transactions that still run are rolled back with their tasks.
    pub fn shutdown(&self) {
        self.runtime.halt();
        for thread in lock(&self.runtime.threads).drain(..) {
            // A worker that panicked has said so itself.
            let _ = thread.join();
        }
        // Nobody will poll them again: whoever waits for them is told by their end.
        give_up_all(&self.runtime);
        self.runtime.abandon_partitions();
    }

    /// Where time, randomness, files and sockets come from.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.runtime.env
    }

    /// The account of all memory.
    pub fn memory(&self) -> &Arc<MemoryPool> {
        &self.runtime.memory
    }

    /// The part of it with which short statements work, all together; see [`MemoryPool::short`].
    pub fn short_memory(&self) -> &Arc<MemoryPool> {
        &self.runtime.short_memory
    }

    /// What it was started with.
    pub fn options(&self) -> &EngineOptions {
        &self.runtime.options
    }

    /// Workers over all nodes.
    pub fn worker_count(&self) -> usize {
        self.runtime.options.workers
    }

    /// Nodes, real or virtual.
    pub fn node_count(&self) -> usize {
        self.runtime.nodes.len()
    }

    /// The reactor of a worker, for sockets that it shall poll.
    pub fn reactor(&self, worker: usize) -> ReactorHandle {
        let (node, index) = self.worker_place(worker);
        self.runtime.node(node).reactors[index].clone()
    }

    /// The node of a worker, for tasks that belong beside its sockets.
    pub fn worker_node(&self, worker: usize) -> NodeId {
        self.worker_place(worker).0
    }

    fn worker_place(&self, worker: usize) -> (NodeId, usize) {
        for node in &self.runtime.nodes {
            if let Some(index) = node.workers.iter().position(|number| *number == worker) {
                return (node.id, index);
            }
        }
        unreachable!("workers are numbered from 0 to {}", self.worker_count() - 1)
    }

    /// Runs a task on the current worker's node, or on the nodes in turn.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let node = current_node().unwrap_or_else(|| self.runtime.next_node());
        self.spawn_on(node, future);
    }

    /// Runs a task on a node.
    pub fn spawn_on(&self, node: NodeId, future: impl Future<Output = ()> + Send + 'static) {
        Task::start(&self.runtime, node, Box::pin(future));
    }

    /// Runs a task and waits for its value. For threads that are not workers.
    pub fn block_on<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, EngineError> {
        assert!(current_node().is_none(), "a worker that waits for a task would wait for itself");
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(async move {
            // The receiver waits below; it is gone only if this thread is.
            let _ = sender.send(future.await);
        });
        receiver.recv().map_err(|_| {
            if self.runtime.is_halted() {
                EngineError::ShuttingDown
            } else {
                EngineError::OperatorPanicked("the task ended without a result".to_owned())
            }
        })
    }

    /// Resolves at the deadline.
    pub fn sleep_until(&self, deadline: Nanos) -> impl Future<Output = ()> + Send + 'static {
        Sleep::until(&self.runtime, deadline)
    }

    /// A place among the running statements of a class: at once, after a wait in the order of arrival, or never
    /// because too many wait or the wait takes too long. Without a limit in the options, at once.
    pub fn admit(&self, class: StatementClass) -> Admit {
        self.runtime.admission.admit(&self.runtime, class)
    }

    /// Statements of a class with a limit that run, and that wait.
    pub fn admitted(&self, class: StatementClass) -> (usize, usize) {
        self.runtime.admission.counts(class)
    }

    /// A fresh container id, for its schema; never that of the [system container](crate::SYSTEM_CONTAINER).
    pub fn next_container_id(&self) -> ContainerId {
        self.runtime.next_container_id()
    }

    /// Creates an empty container.
    pub fn create_container(&self, spec: ContainerSpec) -> Result<Arc<Container>, EngineError> {
        let bounds = spec.partitioning.initial_bounds();
        let homes = bounds.iter().map(|_| self.runtime.next_node()).collect::<Vec<_>>();
        self.create_cut_container(spec, &bounds, &homes, true)
    }

    pub(crate) fn create_hidden_container(&self, spec: ContainerSpec) -> Result<Arc<Container>, EngineError> {
        let bounds = spec.partitioning.initial_bounds();
        let homes = bounds.iter().map(|_| self.runtime.next_node()).collect::<Vec<_>>();
        self.create_cut_container(spec, &bounds, &homes, false)
    }

    /// Creates an empty container that is cut into ranges from the start: `cuts` are the lower bounds of all partitions
    /// but the first, as encoded keys of the partitioning attributes. Neighbouring ranges are on the same node.
    ///
    /// # Errors
    /// If the container is not partitioned by ranges, or the cuts do not ascend.
    pub fn create_range_container(&self, spec: ContainerSpec, cuts: &[Key]) -> Result<Arc<Container>, EngineError> {
        if !matches!(spec.partitioning, Partitioning::Range(_)) || !cuts.is_sorted_by(|left, right| left < right) {
            return Err(invalid("only ranges are cut, at ascending keys".to_owned()));
        }
        let bounds: Vec<Option<Key>> = std::iter::once(None).chain(cuts.iter().cloned().map(Some)).collect();
        let nodes: Vec<_> = self.runtime.nodes.iter().filter(|node| !node.is_given_up()).collect();
        let homes: Vec<NodeId> = (0..bounds.len()).map(|index| nodes[index * nodes.len() / bounds.len()].id).collect();
        self.create_cut_container(spec, &bounds, &homes, true)
    }

    fn create_cut_container(
        &self,
        spec: ContainerSpec,
        bounds: &[Option<Key>],
        homes: &[NodeId],
        logged: bool,
    ) -> Result<Arc<Container>, EngineError> {
        let runtime = &self.runtime;
        if let Some(layouts) = &spec.schema.physical {
            layouts.check(&spec.schema.attributes, Registry::standard())?;
        }
        let dictionaries = runtime.dictionaries(spec.schema.container);
        let mut entries = Vec::with_capacity(bounds.len());
        for (index, (lower, home)) in bounds.iter().zip(homes).enumerate() {
            let upper = bounds.get(index + 1).cloned().flatten();
            let store = Store::new(runtime.store_options(&spec.schema, &dictionaries));
            let id = runtime.next_partition_id();
            let bounds = Bounds::new(lower.clone(), upper);
            let partition = Arc::new(LivingPartition::new(id, spec.schema.container, *home, store, bounds));
            runtime.add_partition(&partition);
            entries.push(Entry::new(lower.clone(), partition));
        }
        let table = PartitionTable::new(TableVersion(1), Arc::new(spec.partitioning), entries);
        let container = Arc::new(Container::new(spec.schema, table, dictionaries, logged, runtime.options.workers));
        let definitions = self.begin_definition();
        if logged {
            definitions.note(|| Definition::of_container(&container, None))?;
        }
        runtime.add_container(Arc::clone(&container));
        drop(definitions);
        Ok(container)
    }

    /// Drops a container, its global indexes and its foreign keys, at once: whoever is to wait for the transactions
    /// that use it takes [`AccessExclusive`](crate::TableLockMode::AccessExclusive) first, and drops it before the lock
    /// is given back. Statements that run on it finish on what they pinned; a transaction of others that wrote to it
    /// fails when it commits.
    ///
    /// # Errors
    /// [`EngineError::ForeignKey`] if others refer to it.
    pub fn drop_container(&self, id: ContainerId) -> Result<(), EngineError> {
        let definitions = self.begin_definition();
        let container = self.runtime.container(id)?;
        Self::check_unreferenced(&container)?;
        // Before its foreign keys cease to be enforced: commits that they would have refused are behind it in the log.
        definitions.note(|| Definition::ContainerDropped(id))?;
        self.release_references(&container);
        self.runtime.remove_container(id)?;
        for index in container.global_indexes().iter().flat_map(|indexes| indexes.iter()) {
            self.runtime.remove_container(index.container().id())?;
        }
        Ok(())
    }

    /// Creates a global index of a container that has no rows yet, and that nobody inserts into meanwhile: rows of a
    /// statement that began before have no entries. Returns the hidden container that holds it.
    pub fn create_global_index(&self, spec: &GlobalIndexSpec) -> Result<ContainerId, EngineError> {
        let container = self.runtime.container(spec.container)?;
        if container.rows() > 0 {
            let reason = format!("container {} has rows; create its global indexes before", container.id().0);
            return Err(StorageError::InvalidRequest { reason }.into());
        }
        let (schema, partitioning) = spec.hidden_container(&container, self.next_container_id())?;
        let hidden = self.create_hidden_container(ContainerSpec { schema: Arc::new(schema), partitioning })?;
        let id = hidden.id();
        let definitions = self.begin_definition();
        definitions.note(|| Definition::GlobalIndex(spec.clone(), id))?;
        container.add_global_index(Arc::new(GlobalIndex::new(&container, &spec.attributes, hidden)));
        Ok(id)
    }

    /// A container by id.
    pub fn container(&self, id: ContainerId) -> Option<Arc<Container>> {
        self.runtime.container(id).ok()
    }

    /// All table locks that are held or waited for.
    pub fn table_locks(&self) -> Vec<TableLockDescription> {
        let mut locks = Vec::new();
        self.runtime.containers().iter().for_each(|container| container.locks().describe(&mut locks));
        locks.sort_unstable();
        locks
    }

    /// Begins a transaction with one snapshot for all its statements, and publishes it.
    pub fn begin(&self) -> Transaction {
        self.begin_with(IsolationLevel::default())
    }

    /// Begins a transaction of this level and publishes the snapshot of its first statement.
    pub fn begin_with(&self, level: IsolationLevel) -> Transaction {
        Transaction::begin(&self.runtime, level)
    }

    /// From now on commits and definitions go into this log. Once, before anybody relies on it.
    ///
    /// # Panics
    /// If there is a log.
    pub fn attach_log(&self, log: Arc<dyn CommitLog>) {
        self.runtime.attach_log(log);
    }

    /// The engine is filled with a database until this is dropped: maintenance leaves for later what is not needed to
    /// have the rows, such as encoding them.
    #[must_use]
    pub fn begin_opening(&self) -> Opening {
        self.runtime.begin_opening();
        Opening { engine: self.clone() }
    }

    /// Returns when everything that is in the log by now is durable; at once without a log.
    pub async fn sync_log(&self) -> Result<(), EngineError> {
        let Some(log) = self.runtime.log() else { return Ok(()) };
        let mut ticket = None;
        Ok(poll_fn(|context| log.poll_durable(context, &mut ticket)).await?)
    }

    /// Begins a transaction whose snapshot has every commit that is in the log by now.
    pub async fn begin_behind_log(&self) -> Transaction {
        let transactions = &self.runtime.transactions;
        until_visible(transactions, transactions.last_taken()).await;
        self.begin_internal()
    }

    /// Begins a transaction whose snapshots are not revoked, however much is kept for them: for what a database does by
    /// itself.
    pub fn begin_internal(&self) -> Transaction {
        Transaction::begin_internal(&self.runtime)
    }

    /// The engine of a transaction.
    pub(crate) fn of(runtime: &Near<Runtime>) -> Self {
        Self { runtime: runtime.clone() }
    }

    pub(crate) fn of_runtime(runtime: &Arc<Runtime>) -> Self {
        Self { runtime: runtime.near().0 }
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Engine({} workers, {} nodes)", self.worker_count(), self.node_count())
    }
}

/// `root`: where the process's memory is described, if it is to be watched.
fn assemble(
    env: Arc<dyn Env>,
    options: EngineOptions,
    plan: &WorkerPlan,
    root: Option<&Path>,
) -> Result<(Arc<Runtime>, Vec<Worker>), EngineError> {
    let memory = MemoryPool::new(options.memory_limit_bytes);
    let machine = MachineMemory::new(&memory, &options, plan, root);
    let mut reactors = Vec::new();
    for _ in 0..options.workers {
        reactors.push(env.reactor().map_err(|error| EngineError::Start(error.to_string()))?);
    }
    let nodes = (0..options.nodes)
        .map(|node| {
            let id = NodeId(node as u16);
            let workers: Vec<usize> =
                (0..options.workers).filter(|worker| plan.placements()[*worker].node == id).collect();
            let handles = workers.iter().map(|worker| reactors[*worker].handle()).collect();
            Node::new(id, workers, handles, options.nodes, options.incoming_buffer_bytes)
        })
        .collect();
    let runtime = Arc::new(Runtime::new(env, options, memory, machine, nodes));
    let mut workers = Vec::new();
    for (number, reactor) in reactors.into_iter().enumerate() {
        let node = plan.placements()[number].node;
        let Some(index) = runtime.node(node).workers.iter().position(|known| *known == number) else {
            unreachable!("every worker belongs to a node")
        };
        workers.push(Worker::new(&runtime, number, index, node, reactor));
    }
    Ok((runtime, workers))
}
