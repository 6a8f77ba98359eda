//! A container at run time: its schema and the versions of its partition table.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use eris_storage::{ContainerId, Schema, SegmentLayouts};

use crate::global_index::GlobalIndex;
use crate::lock::{read, write};
use crate::partition_table::{PartitionTable, Partitioning};

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
    table: RwLock<Arc<PartitionTable>>,
    global_indexes: RwLock<Arc<[Arc<GlobalIndex>]>>,
    /// Looked at before the list, which few containers have.
    has_global_indexes: AtomicBool,
    dropped: AtomicBool,
    /// Spreads inserts of a container without positions over its partitions.
    next_insert: AtomicUsize,
    bulk_loads: AtomicUsize,
}

impl Container {
    pub(crate) fn new(schema: Arc<Schema>, table: PartitionTable) -> Self {
        Self {
            id: schema.container,
            schema: RwLock::new(schema),
            table: RwLock::new(Arc::new(table)),
            global_indexes: RwLock::new(Arc::from([])),
            has_global_indexes: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            next_insert: AtomicUsize::new(0),
            bulk_loads: AtomicUsize::new(0),
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
        let mut current = write(&self.schema);
        *current = with_layouts(schema, current.physical.clone());
    }

    /// The layouts of partitions and bulk loads to come.
    pub(crate) fn set_layouts(&self, layouts: Option<Arc<SegmentLayouts>>) {
        let mut current = write(&self.schema);
        *current = with_layouts(Arc::clone(&current), layouts);
    }

    pub(crate) fn table(&self) -> Arc<PartitionTable> {
        Arc::clone(&read(&self.table))
    }

    /// Publishes the next version; `next` gets the newest one under the lock.
    pub(crate) fn publish_table(&self, next: impl FnOnce(&PartitionTable) -> PartitionTable) -> Arc<PartitionTable> {
        let mut table = write(&self.table);
        let new = Arc::new(next(&table));
        assert!(new.version > table.version, "partition-table versions grow");
        *table = Arc::clone(&new);
        new
    }

    /// Its global indexes, if it has any.
    pub(crate) fn global_indexes(&self) -> Option<Arc<[Arc<GlobalIndex>]>> {
        self.has_global_indexes.load(Ordering::Acquire).then(|| Arc::clone(&read(&self.global_indexes)))
    }

    pub(crate) fn add_global_index(&self, index: Arc<GlobalIndex>) {
        let mut indexes = write(&self.global_indexes);
        *indexes = indexes.iter().cloned().chain([index]).collect();
        self.has_global_indexes.store(true, Ordering::Release);
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
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}

fn with_layouts(schema: Arc<Schema>, physical: Option<Arc<SegmentLayouts>>) -> Arc<Schema> {
    if schema.physical == physical { schema } else { Arc::new(Schema { physical, ..Schema::clone(&schema) }) }
}
