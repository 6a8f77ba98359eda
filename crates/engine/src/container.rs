//! A container at run time: its schema and the versions of its partition table.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, Weak};

use eris_storage::{ContainerDictionaries, ContainerId, PartitionId, Schema, SegmentLayouts, Timestamp};

use crate::foreign_key::References;
use crate::global_index::GlobalIndex;
use crate::ids::TableVersion;
use crate::lock::{Lock, lock, read, write};
use crate::partition::Partition;
use crate::partition_table::{PartitionTable, Partitioning};
use crate::placement::Group;
use crate::serializable::AccessRegistry;
use crate::table_locks::TableLocks;
use crate::write_rules::WriteRules;

/// The id that [`crate::Engine::next_container_id`] never gives: of the container in which a layer above keeps what it
/// knows of all others, so that it is found again. Names of containers must be droppable in a full database; so its
/// memory counts, but no limit refuses it ([`eris_platform::MemoryPool::counted`]).
pub const SYSTEM_CONTAINER: ContainerId = ContainerId(1);

/// What [`crate::Engine::create_container`] needs.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    /// Schema; its container id comes from [`crate::Engine::next_container_id`].
    pub schema: Arc<Schema>,
    /// How it is cut.
    pub partitioning: Partitioning,
}

/// A table, a global index or a temporary table.
#[derive(Debug)]
pub struct Container {
    id: ContainerId,
    schema: RwLock<Arc<Schema>>,
    /// The schema that the log knows already, while partitions are moved to it.
    announced: Lock<Option<Arc<Schema>>>,
    table: RwLock<Arc<PartitionTable>>,
    /// The dictionaries of its segments.
    dictionaries: Arc<ContainerDictionaries>,
    global_indexes: RwLock<Arc<[Arc<GlobalIndex>]>>,
    references: References,
    /// Looked at before these lists, which few containers have.
    rules: WriteRules,
    /// What SERIALIZABLE transactions read and wrote here.
    accesses: Arc<AccessRegistry>,
    /// Which transactions use it.
    locks: Arc<TableLocks>,
    /// Snapshots older than this had another container in its place.
    visible_from: AtomicU64,
    /// Whether its rows are in the log: not if they follow from those of other containers.
    logged: bool,
    dropped: AtomicBool,
    /// Grows with every change of what views of it show.
    version: AtomicU64,
    /// Spreads inserts of a container without positions over its partitions.
    next_insert: AtomicUsize,
    bulk_loads: AtomicUsize,
    /// Older versions that somebody may have pinned.
    older: Lock<Vec<(TableVersion, Weak<PartitionTable>)>>,
    /// Partitions that only pass messages on, kept until nobody pins a version in which they owned rows.
    forwarders: Lock<Vec<Partition>>,
    /// Containers partitioned alike.
    group: Lock<Option<Arc<Group>>>,
    /// Keys rise: the table grows at its upper end, other partitions are left as they are.
    rising: AtomicBool,
    /// Somebody changes its schema.
    schema_changes: AtomicBool,
}

impl Container {
    pub(crate) fn new(
        schema: Arc<Schema>,
        table: PartitionTable,
        dictionaries: Arc<ContainerDictionaries>,
        logged: bool,
        workers: usize,
    ) -> Self {
        let id = schema.container;
        Self {
            id,
            schema: RwLock::new(schema),
            announced: Lock::default(),
            table: RwLock::new(Arc::new(table)),
            dictionaries,
            global_indexes: RwLock::new(Arc::from([])),
            references: References::default(),
            rules: WriteRules::default(),
            accesses: Arc::default(),
            locks: Arc::new(TableLocks::new(id, workers)),
            visible_from: AtomicU64::new(0),
            logged,
            dropped: AtomicBool::new(false),
            version: AtomicU64::new(0),
            next_insert: AtomicUsize::new(0),
            bulk_loads: AtomicUsize::new(0),
            older: Lock::default(),
            forwarders: Lock::default(),
            group: Lock::default(),
            rising: AtomicBool::new(false),
            schema_changes: AtomicBool::new(false),
        }
    }

    /// Its id.
    pub fn id(&self) -> ContainerId {
        self.id
    }

    /// The newest version of its schema.
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&read(&self.schema))
    }

    /// The dictionaries that its partitions share.
    pub fn dictionaries(&self) -> &Arc<ContainerDictionaries> {
        &self.dictionaries
    }

    /// What SERIALIZABLE transactions read and wrote here.
    pub(crate) fn accesses(&self) -> &Arc<AccessRegistry> {
        &self.accesses
    }

    /// Which transactions use it.
    #[inline]
    pub(crate) fn locks(&self) -> &Arc<TableLocks> {
        &self.locks
    }

    /// It took the place of another container when the transaction of this timestamp committed: a transaction whose
    /// snapshot is older would find nothing here where that one had rows, so it fails instead. To be said before others
    /// learn of the container.
    pub fn set_visible_from(&self, timestamp: Timestamp) {
        self.visible_from.store(timestamp.0, Ordering::Release);
    }

    /// Whether a snapshot is not older than the container.
    #[inline]
    pub(crate) fn is_visible_at(&self, snapshot: Timestamp) -> bool {
        self.visible_from.load(Ordering::Acquire) <= snapshot.0
    }

    /// Whether what is written to it is in the log.
    pub(crate) fn is_logged(&self) -> bool {
        self.logged
    }

    /// How it is cut.
    pub fn partitioning(&self) -> Arc<Partitioning> {
        Arc::clone(&self.table().partitioning)
    }

    /// Partitions in the newest version.
    pub fn partition_count(&self) -> usize {
        self.table().entries().len()
    }

    /// Rows over all partitions, as of their last visits: committed or not.
    pub fn rows(&self) -> u64 {
        self.table().partitions().map(|partition| partition.rows()).sum()
    }

    /// Bytes over all partitions, as of their last visits.
    pub fn bytes(&self) -> u64 {
        self.table().partitions().map(|partition| partition.bytes()).sum()
    }

    /// Layouts stay as they are: they may have been set since the version was made.
    pub(crate) fn set_schema(&self, schema: Arc<Schema>) {
        {
            let mut current = write(&self.schema);
            *current = with_layouts(schema, current.physical.clone());
            *lock(&self.announced) = None;
        }
        self.count_change();
    }

    /// From now on this is its schema as far as the log is concerned; [`Self::set_schema`] follows.
    pub(crate) fn announce_schema(&self, schema: Arc<Schema>) {
        *lock(&self.announced) = Some(schema);
    }

    /// The version of its schema that the log knows.
    pub(crate) fn defined_schema(&self) -> Arc<Schema> {
        let current = read(&self.schema);
        match &*lock(&self.announced) {
            Some(announced) => with_layouts(Arc::clone(announced), current.physical.clone()),
            None => Arc::clone(&current),
        }
    }

    /// Whether nobody else changes the schema; then nobody does until the end.
    pub(crate) fn begin_schema_change(&self) -> bool {
        !self.schema_changes.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_schema_change(&self) {
        self.schema_changes.store(false, Ordering::Release);
    }

    /// The layouts of partitions and bulk loads to come.
    pub(crate) fn set_layouts(&self, layouts: Option<Arc<SegmentLayouts>>) {
        {
            let mut current = write(&self.schema);
            *current = with_layouts(Arc::clone(&current), layouts);
        }
        self.count_change();
    }

    pub(crate) fn table(&self) -> Arc<PartitionTable> {
        Arc::clone(&read(&self.table))
    }

    /// Publishes the next version; `next` gets the newest one under the lock.
    pub(crate) fn publish_table(&self, next: impl FnOnce(&PartitionTable) -> PartitionTable) -> Arc<PartitionTable> {
        let mut table = write(&self.table);
        let new = Arc::new(next(&table));
        assert!(new.version > table.version, "partition-table versions grow");
        let mut older = lock(&self.older);
        older.retain(|(_, pins)| pins.strong_count() > 0);
        older.push((table.version, Arc::downgrade(&table)));
        drop(older);
        *table = Arc::clone(&new);
        self.count_change();
        new
    }

    /// Its global indexes, if it has any.
    pub(crate) fn global_indexes(&self) -> Option<Arc<[Arc<GlobalIndex>]>> {
        self.rules.known().has_global_indexes().then(|| Arc::clone(&read(&self.global_indexes)))
    }

    pub(crate) fn add_global_index(&self, index: Arc<GlobalIndex>) {
        let mut indexes = write(&self.global_indexes);
        *indexes = indexes.iter().cloned().chain([index]).collect();
        self.rules.set_indexed();
        self.count_change();
    }

    /// Its foreign keys, on either side.
    pub(crate) fn references(&self) -> &References {
        &self.references
    }

    /// There is a foreign key more.
    pub(crate) fn count_reference(&self) {
        self.rules.add_reference();
        self.count_change();
    }

    /// There is a foreign key less.
    pub(crate) fn discount_reference(&self) {
        self.rules.remove_reference();
        self.count_change();
    }

    /// What a write to it owes besides its rows.
    #[inline]
    pub(crate) fn rules(&self) -> &WriteRules {
        &self.rules
    }

    /// The oldest version that a dataflow, a load or a reader of the table holds. Every message under way names it or a
    /// younger one.
    pub(crate) fn oldest_pinned(&self) -> TableVersion {
        let newest = read(&self.table).version;
        let mut older = lock(&self.older);
        older.retain(|(_, pins)| pins.strong_count() > 0);
        older.iter().map(|(version, _)| *version).min().unwrap_or(newest)
    }

    pub(crate) fn add_forwarder(&self, partition: &Partition) {
        lock(&self.forwarders).push(Arc::clone(partition));
    }

    /// False if it went before.
    pub(crate) fn remove_forwarder(&self, partition: PartitionId) -> bool {
        let mut forwarders = lock(&self.forwarders);
        let place = forwarders.iter().position(|known| known.id == partition);
        place.map(|place| forwarders.swap_remove(place)).is_some()
    }

    pub(crate) fn forwarders(&self) -> Vec<Partition> {
        lock(&self.forwarders).clone()
    }

    pub(crate) fn group(&self) -> Option<Arc<Group>> {
        lock(&self.group).clone()
    }

    /// The group, made by the first who asks.
    pub(crate) fn group_or_new(self: &Arc<Self>) -> Arc<Group> {
        Arc::clone(lock(&self.group).get_or_insert_with(|| Group::of(self)))
    }

    pub(crate) fn set_group(&self, group: Arc<Group>) {
        *lock(&self.group) = Some(group);
    }

    pub(crate) fn set_rising(&self, rising: bool) {
        self.rising.store(rising, Ordering::Relaxed);
    }

    pub(crate) fn is_rising(&self) -> bool {
        self.rising.load(Ordering::Relaxed)
    }

    pub(crate) fn next_insert(&self) -> usize {
        self.next_insert.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn begin_bulk_load(&self) {
        self.bulk_loads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_bulk_load(&self) {
        self.bulk_loads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Bulk loads under way.
    pub(crate) fn bulk_loads(&self) -> usize {
        self.bulk_loads.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
        self.count_change();
    }

    /// A view of the container is as new as the version that was read before it was made.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn count_change(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}

fn with_layouts(schema: Arc<Schema>, physical: Option<Arc<SegmentLayouts>>) -> Arc<Schema> {
    if schema.physical == physical { schema } else { Arc::new(Schema { physical, ..Schema::clone(&schema) }) }
}
