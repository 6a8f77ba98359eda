//! The task API: what a task does to data, as a transaction.
//!
//! Every access is a dataflow of one or two micro-operators. A command that one idle partition of this node can answer
//! runs in place instead, without a message (see [`in_place`]).

mod begin;
mod bulk;
mod commit;
mod foreign_keys;
mod in_place;
mod lookup;
mod memory;
mod pin;
mod savepoint;
mod serializable;
mod table_locks;
mod through_index;
mod wait;
mod write;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use eris_platform::MemoryPool;
use eris_storage::{
    Batch, ContainerId, IndexDefinition, Key, PackedRows, ReadRequest, RowFormat, Schema, SegmentLayouts,
    StatementNumber, Timestamp, TransactionId,
};

use crate::cancel::CancelHandle;
use crate::commit_log::Durability;
use crate::container::Container;
use crate::dataflow::{Dataflow, Operator, Work};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::ids::OperatorIndex;
use crate::lock::Lock;
use crate::message::{Header, Message, Primitive};
use crate::near::Near;
use crate::operator::{Collect, MicroOperator};
use crate::partition::Partition;
use crate::partition_table::PartitionTable;
use crate::results::Results;
use crate::runtime::{Runtime, current_node};
use crate::table_locks::TableLockMode;
use crate::transactions::{SnapshotHandle, StreamGuard, TransactionHold, TransactionObject};

pub use bulk::BulkLoad;
use foreign_keys::Checks;
pub(crate) use foreign_keys::{distinct_keys, found_positions};
use in_place::{InPlace, Patience};
pub use lookup::{ProbeReport, Probes};
pub use memory::MemoryUse;
pub use pin::{PinStream, PinnedScan};
pub use savepoint::Savepoint;
use table_locks::HeldTableLocks;
pub use table_locks::KeptTableLocks;
use through_index::Resolved;
pub(crate) use wait::until_visible;
pub use write::LockWait;

/// Longer positions are not sent along, so that every message fits into a buffer: their partition finds the rows by the
/// predicate.
const POSITION_BYTES_MAX: usize = 4_096;
/// Fewer partitions are sent a message each, which by direct append needs no coordinator on their own node; more get
/// one message, which goes to each of their nodes once and is multiplied there.
const MULTICAST_PARTITIONS_MIN: usize = 4;

/// A read of one container.
#[derive(Clone, Debug)]
pub struct Read {
    /// The container.
    pub container: ContainerId,
    /// Which rows, which attributes, in which order.
    pub request: ReadRequest,
}

/// What the statements of a transaction see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IsolationLevel {
    /// Each statement sees what committed before it began. A write that meets a newer version begins its statement
    /// again.
    ReadCommitted,
    /// All statements see what committed before the transaction began (snapshot isolation). A write that meets a newer
    /// version fails: the first updater wins.
    #[default]
    RepeatableRead,
    /// The same, and the SERIALIZABLE transactions that commit did so as if one after another. One that might be in the
    /// way of that fails: at any access, or when it commits.
    Serializable,
}

/// A running transaction. Dropping it rolls it back.
pub struct Transaction {
    runtime: Near<Runtime>,
    hold: TransactionHold,
    level: IsolationLevel,
    statement: StatementNumber,
    /// Of the current statement; withdrawn when the transaction ends.
    snapshot: Option<Arc<SnapshotHandle>>,
    /// What the current statement did so far.
    operations: u32,
    /// Whether there are no numbers for further statements: nothing but its end is left to the transaction.
    exhausted: bool,
    /// The first statements behind the savepoints, ascending.
    savepoints: Vec<StatementNumber>,
    locks: HeldTableLocks,
    /// Where they go when it ends, if they are to be kept.
    kept_locks: Option<Arc<Lock<Option<HeldTableLocks>>>>,
    /// Foreign keys that are not checked yet.
    checks: Checks,
    lock_timeout: Option<Duration>,
    /// How many partitions a statement reads at the same time; none: all.
    parallelism: Option<usize>,
    /// Made for the first who asks.
    cancel: OnceLock<CancelHandle>,
    /// Where its statements reserve, if that was said for all of them.
    bounded_memory: Option<Arc<MemoryPool>>,
    /// Where the present kind of statement reserves; none: the memory of the database.
    statement_memory: Option<Arc<MemoryPool>>,
    /// When its commit is told.
    durability: Durability,
    /// Its record is in the log, which decides.
    logged: bool,
    ended: bool,
}

impl Transaction {
    /// Its number.
    pub fn id(&self) -> TransactionId {
        self.hold.object().id
    }

    pub(crate) fn engine(&self) -> Engine {
        Engine::of(&self.runtime)
    }

    /// What its statements see.
    pub fn isolation_level(&self) -> IsolationLevel {
        self.level
    }

    /// The newest version of a container's schema.
    pub fn schema_of(&self, container: ContainerId) -> Result<Arc<Schema>, EngineError> {
        Ok(self.runtime.container(container)?.schema())
    }

    /// Commits up to this timestamp are visible to the current statement.
    pub fn snapshot_timestamp(&self) -> Timestamp {
        self.snapshot().visible()
    }

    /// Starts the next statement: own earlier writes become visible, those of this statement do not. Under READ
    /// COMMITTED it sees what is committed by now. After [`StatementNumber::MAX`] of them every operation is refused.
    pub fn next_statement(&mut self) {
        if self.statement.0 == StatementNumber::MAX {
            self.exhausted = true;
            return;
        }
        self.statement = StatementNumber(self.statement.0 + 1);
        // Planted: after a statement that did nothing (the place of a savepoint), the next one has the same snapshot.
        let renews = !cfg!(feature = "bug_idle_statement_keeps_snapshot") || self.operations > 0;
        self.operations = 0;
        match self.level {
            IsolationLevel::ReadCommitted if renews => self.renew_snapshot(),
            IsolationLevel::ReadCommitted | IsolationLevel::RepeatableRead | IsolationLevel::Serializable => {
                let statement = self.statement;
                match self.snapshot.as_mut().and_then(Arc::get_mut) {
                    Some(snapshot) => snapshot.set_statement(statement),
                    None => self.snapshot = Some(Arc::new(self.snapshot().share(statement))),
                }
            }
        }
    }

    /// Starts the next statement in a new snapshot, whatever the level: it and those that follow see what is committed
    /// by now. For rows that a transaction writes last and has not read, while nobody else may write them.
    pub fn next_statement_now(&mut self) {
        self.next_statement();
        self.renew_snapshot();
    }

    /// Reads of the statements to come are under way in so many partitions at the same time at most, so that no more
    /// workers are busy with them; `None`: in all.
    pub fn limit_parallelism(&mut self, partitions: Option<usize>) {
        self.parallelism = partitions;
    }

    fn renew_snapshot(&mut self) {
        let hold = TransactionHold::new(self.hold.manager(), self.hold.object());
        self.snapshot = Some(Arc::new(SnapshotHandle::publish(hold, self.statement)));
    }

    /// The snapshot of the current statement, for readers on other threads.
    pub fn snapshot_handle(&self) -> Arc<SnapshotHandle> {
        Arc::clone(self.snapshot())
    }

    fn snapshot(&self) -> &Arc<SnapshotHandle> {
        self.snapshot.as_ref().unwrap_or_else(|| unreachable!("a transaction has a snapshot until it ends"))
    }

    /// Cancels the running statement from outside.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel().clone()
    }

    fn cancel(&self) -> &CancelHandle {
        self.cancel.get_or_init(CancelHandle::default)
    }

    /// Uses this handle from now on.
    pub fn set_cancel(&mut self, cancel: CancelHandle) {
        self.cancel = OnceLock::from(cancel);
    }

    /// Reads a small result: point and range accesses.
    pub async fn read(&mut self, read: &Read) -> Result<Vec<Batch>, EngineError> {
        let container = self.runtime.view(read.container)?.container.clone();
        self.use_table(&container, TableLockMode::AccessShare).await?;
        self.begin_operation()?;
        self.track_read(&container, &read.request.predicate)?;
        match self.resolve(&container, &read.request).await? {
            Resolved::AsItIs => self.read_from(&container, &read.request).await,
            Resolved::Nothing => Ok(Vec::new()),
            Resolved::Narrowed(request) => self.read_from(&container, &request).await,
        }
    }

    /// Reads a small result row-wise: what a point access costs least in. `rows` is emptied first; keep it for the next
    /// read.
    pub async fn read_rows(&mut self, read: &Read, rows: &mut PackedRows) -> Result<(), EngineError> {
        let container = self.runtime.view(read.container)?.container.clone();
        self.use_table(&container, TableLockMode::AccessShare).await?;
        self.begin_operation()?;
        self.track_read(&container, &read.request.predicate)?;
        match self.resolve(&container, &read.request).await? {
            Resolved::AsItIs => self.read_rows_from(&container, &read.request, rows).await,
            Resolved::Nothing => {
                rows.clear(&row_format(&container, &read.request));
                Ok(())
            }
            Resolved::Narrowed(request) => self.read_rows_from(&container, &request, rows).await,
        }
    }

    async fn read_rows_from(
        &mut self,
        container: &Arc<Container>,
        request: &ReadRequest,
        rows: &mut PackedRows,
    ) -> Result<(), EngineError> {
        let mut patience = Patience::new();
        loop {
            match self.read_rows_in_place(container, request, rows)? {
                InPlace::Done(()) => return Ok(()),
                InPlace::Busy if patience.wait().await => {}
                InPlace::Busy | InPlace::Send => break,
            }
        }
        rows.clear(&row_format(container, request));
        for batch in Box::pin(self.send_for(container, request)).await? {
            rows.extend(&batch);
        }
        Ok(())
    }

    async fn read_from(
        &mut self,
        container: &Arc<Container>,
        request: &ReadRequest,
    ) -> Result<Vec<Batch>, EngineError> {
        let mut patience = Patience::new();
        loop {
            match self.read_in_place(container, request)? {
                InPlace::Done(batches) => return Ok(batches),
                InPlace::Busy if patience.wait().await => {}
                InPlace::Busy | InPlace::Send => return Box::pin(self.send_for(container, request)).await,
            }
        }
    }

    /// Reads by messages.
    async fn send_for(&mut self, container: &Arc<Container>, request: &ReadRequest) -> Result<Vec<Batch>, EngineError> {
        self.start_scan(container, request, None)?.collect().await
    }

    /// Streams the qualifying rows of all partitions, or what `operator` makes of them inside each partition.
    pub fn scan(&mut self, read: Read, operator: Option<Arc<dyn MicroOperator>>) -> Result<Results, EngineError> {
        let Read { container, request } = read;
        let container = self.runtime.view(container)?.container.clone();
        self.use_table_now(&container, TableLockMode::AccessShare)?;
        self.track_read(&container, &request.predicate)?;
        self.start_scan(&container, &request, operator)
    }

    fn start_scan(
        &mut self,
        container: &Arc<Container>,
        request: &ReadRequest,
        operator: Option<Arc<dyn MicroOperator>>,
    ) -> Result<Results, EngineError> {
        self.begin_operation()?;
        let table = container.table();
        let operator = operator.unwrap_or_else(|| Arc::new(Collect));
        let primitive = if request.order.is_some() { Primitive::OrderedScan } else { Primitive::UnorderedScan };
        let work = Work::Read { request: request.clone(), operator };
        let operator = Self::operator(container, &table, work, Some(request));
        let dataflow = self.dataflow(vec![operator]);
        let messages = self.messages(&dataflow, primitive);
        Ok(self.start(dataflow, messages))
    }

    /// Has every partition build an index that its schema does not have yet.
    pub(crate) async fn build_index(
        &mut self,
        container: &Arc<Container>,
        definition: IndexDefinition,
    ) -> Result<(), EngineError> {
        self.control(container, Primitive::BuildIndex, Work::BuildIndex { definition }).await
    }

    /// Moves every partition to another version of the schema.
    pub(crate) async fn alter(&mut self, container: &Arc<Container>, schema: Arc<Schema>) -> Result<(), EngineError> {
        self.control(container, Primitive::Alter, Work::Alter { schema }).await
    }

    /// Tells partitions their layouts: one of them, or all in this version of the table.
    pub(crate) async fn set_layouts(
        &mut self,
        container: &Arc<Container>,
        table: &Arc<PartitionTable>,
        target: Option<&Partition>,
        layouts: Option<Arc<SegmentLayouts>>,
    ) -> Result<(), EngineError> {
        let operator = Self::operator(container, table, Work::SetLayout { layouts }, None);
        let dataflow = self.dataflow(vec![operator]);
        let header = self.header(&dataflow, Primitive::SetLayout, target);
        self.start(dataflow, vec![Message::new(header, &[])]).finish().await.map(drop)
    }

    async fn control(
        &mut self,
        container: &Arc<Container>,
        primitive: Primitive,
        work: Work,
    ) -> Result<(), EngineError> {
        let table = container.table();
        let operator = Self::operator(container, &table, work, None);
        let dataflow = self.dataflow(vec![operator]);
        let header = self.header(&dataflow, primitive, None);
        self.start(dataflow, vec![Message::new(header, &[])]).finish().await.map(drop)
    }

    /// A bulk load into a container: sealed segments, built outside of the partitions.
    pub fn bulk(&mut self, container: ContainerId) -> Result<BulkLoad<'_>, EngineError> {
        let near = self.runtime.view(container)?.container.clone();
        self.use_table_now(&near, TableLockMode::RowExclusive)?;
        self.begin_operation()?;
        self.check_may_write()?;
        BulkLoad::new(self, container)
    }

    /// Takes everything back. Its words are void from this moment on.
    pub fn rollback(mut self) {
        self.roll_back();
    }

    fn roll_back(&mut self) {
        self.hold.manager().abort(self.hold.object());
        if let Some(log) = self.runtime.log()
            && self.hold.object().redo().has_parts
        {
            log.rolled_back(self.id());
        }
        self.end();
    }

    /// Withdraws the snapshot and hands the written partitions to maintenance.
    fn end(&mut self) {
        self.ended = true;
        self.snapshot = None;
        self.end_locks();
        hand_to_maintenance(&self.runtime, self.hold.object());
    }

    // ---- building dataflows

    fn operator(
        container: &Arc<Container>,
        table: &Arc<PartitionTable>,
        work: Work,
        request: Option<&ReadRequest>,
    ) -> Operator {
        let schema = container.schema();
        let (left, position) = match request {
            Some(request) => table.prune(&schema, &request.predicate),
            None => (0..table.entries().len(), None),
        };
        let (container, table) = (Arc::clone(container), Arc::clone(table));
        Operator { container, table, work, schema_version: schema.version, left, position }
    }

    fn dataflow(&self, operators: Vec<Operator>) -> Arc<Dataflow> {
        self.dataflow_of(operators, Arc::clone(self.snapshot()))
    }

    /// A dataflow that reads in another snapshot than the statement's.
    fn dataflow_of(&self, operators: Vec<Operator>, snapshot: Arc<SnapshotHandle>) -> Arc<Dataflow> {
        let dataflow = Dataflow::new(
            self.runtime.next_dataflow_id(),
            TransactionHold::new(self.hold.manager(), self.hold.object()),
            snapshot,
            operators,
            self.cancel().clone(),
            self.memory(),
            &self.runtime.options,
        );
        Arc::new(match self.parallelism {
            None => dataflow,
            Some(partitions) => dataflow.with_parallelism(partitions),
        })
    }

    /// The first messages of a dataflow whose root operator reads: to the one partition that its predicate names, to a
    /// few that it leaves, or one that the nodes divide among themselves.
    fn messages(&self, dataflow: &Dataflow, primitive: Primitive) -> Vec<Message> {
        let operator = dataflow.operator(OperatorIndex(0));
        let receivers = operator.receivers();
        if let Some(position) = &operator.position
            && position.as_bytes().len() <= POSITION_BYTES_MAX
        {
            // Control messages and ordered scans keep their primitive; their partition forwards them to all siblings.
            let (primitive, payload): (_, &[&[u8]]) = match primitive {
                Primitive::UnorderedScan => (Primitive::Lookup, &[position.as_bytes()]),
                other => (other, &[]),
            };
            let header = self.header(dataflow, primitive, Some(&receivers[0].partition));
            return vec![Message::new(header, payload)];
        }
        let message = |target: Option<&Partition>| Message::new(self.header(dataflow, primitive, target), &[]);
        if receivers.len() < MULTICAST_PARTITIONS_MIN {
            receivers.iter().map(|entry| message(Some(&entry.partition))).collect()
        } else {
            vec![message(None)]
        }
    }

    fn header(&self, dataflow: &Dataflow, primitive: Primitive, target: Option<&Partition>) -> Header {
        let operator = dataflow.operator(OperatorIndex(0));
        Header {
            primitive,
            operator: OperatorIndex(0),
            target: target.map(|partition| partition.id),
            container: operator.container.id(),
            schema_version: operator.schema_version,
            table_version: operator.table.version,
            dataflow: dataflow.id,
            transaction: self.id(),
            statement: self.statement,
            source: current_node().unwrap_or(self.runtime.nodes[0].id),
            forwarded: false,
            range: None,
        }
    }

    /// Counts the messages, then publishes them. The extra count keeps the dataflow alive until all are sent.
    fn start(&self, dataflow: Arc<Dataflow>, messages: Vec<Message>) -> Results {
        dataflow.count_sends(1);
        self.runtime.add_dataflow(Arc::clone(&dataflow));
        for message in messages {
            let receivers = match message.header.target {
                Some(_) => 1,
                None => dataflow.operator(message.header.operator).receivers().len(),
            };
            dataflow.count_sends(receivers);
            self.runtime.send(&message);
        }
        self.runtime.finish_commands(&dataflow, 1);
        Results::new(&self.runtime, dataflow, self.cancel().clone(), StreamGuard::new(self.hold.object()))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.logged && !self.ended {
            self.leave_to_log();
        } else if !self.hold.object().is_decided() {
            self.roll_back();
        } else if !self.ended {
            // The task was dropped while its commit became visible.
            self.end();
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.snapshot.as_ref().map(|snapshot| snapshot.visible().0);
        write!(formatter, "Transaction({}, snapshot {snapshot:?})", self.id().0)
    }
}

/// A transaction is decided: its words can be settled.
fn hand_to_maintenance(runtime: &Arc<Runtime>, object: &TransactionObject) {
    // Nobody will ask for what it wrote.
    object.redo().take(&runtime.redo_memory);
    for id in object.touched() {
        if let Some(partition) = runtime.find_partition(id) {
            runtime.queue_small_maintenance(&partition);
        }
    }
    runtime.retry_blocked_maintenance();
}

/// The format of what a request asks for.
fn row_format(container: &Container, request: &ReadRequest) -> Arc<RowFormat> {
    let schema = container.schema();
    Arc::new(RowFormat::new(request.desired.iter().map(|id| schema.attributes[id.index()].data_type)))
}

/// Divides rows among the partitions that own them; rows without positions go to the smallest one. `take` copies the
/// rows of one partition if there are several.
pub(crate) fn group_by_partition(
    container: &Container,
    table: &PartitionTable,
    rows: Batch,
    take: impl Fn(&Batch, &[u32]) -> Batch,
) -> Vec<(Partition, Batch)> {
    if !table.partitioning.has_positions() {
        // The smallest one, in turn among equals, so that a fresh table fills evenly.
        let entries = table.entries();
        let first = container.next_insert();
        let chosen = (0..entries.len())
            .map(|offset| &entries[(first + offset) % entries.len()].partition)
            .min_by_key(|partition| partition.rows())
            .unwrap_or_else(|| unreachable!("a partition table has an entry"));
        return vec![(Arc::clone(chosen), rows)];
    }
    if table.entries().len() == 1 {
        return vec![(Arc::clone(&table.entries()[0].partition), rows)];
    }
    if let Some(ends) = table.partitioning.ends_of_rows(&rows) {
        let entry = |row| table.index_of(&table.partitioning.position_of_row(&rows, row));
        let lowest = entry(ends.lowest);
        if lowest == entry(ends.highest) {
            return vec![(Arc::clone(&table.entries()[lowest].partition), rows)];
        }
    }
    let mut groups: Vec<(&Partition, Vec<u32>)> = Vec::new();
    let mut last: Option<(usize, Key)> = None;
    for row in 0..rows.rows {
        let position = table.partitioning.position_of_row(&rows, row);
        let group = match &last {
            Some((group, known)) if *known == position => *group,
            _ => {
                let partition = table.find(&position);
                groups.iter().position(|(known, _)| known.id == partition.id).unwrap_or_else(|| {
                    groups.push((partition, Vec::new()));
                    groups.len() - 1
                })
            }
        };
        groups[group].1.push(row as u32);
        last = Some((group, position));
    }
    if groups.len() == 1 {
        return vec![(Arc::clone(groups[0].0), rows)];
    }
    groups.into_iter().map(|(partition, list)| (Arc::clone(partition), take(&rows, &list))).collect()
}
