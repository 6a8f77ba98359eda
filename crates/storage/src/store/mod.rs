//! What lives inside one living partition. `docs/storage.md` draws and argues how rows come, change, move and go.

mod attach;
mod before_images;
mod cursor;
mod dying;
mod evacuate;
mod identity;
mod index_build;
mod layout;
mod link;
mod lookup;
mod maintain;
mod overwrite;
mod pin;
mod read;
mod rebuild;
mod relocate;
mod row_locks;
mod row_run;
mod scan;
mod seal;
mod split;
mod statistics;
mod transactions;
mod undo;
mod unique;
mod usage;
mod vacate;
mod validate;
mod widen;
mod write;

use crate::batch::{PackedRows, RowFormat};
use crate::dictionary::ContainerDictionaries;
use crate::error::StorageError;
use crate::ids::{AttributeId, SegmentNumber};
use crate::micro::PlanCache;
use crate::modules::{
    AccessPathScanState, HASH_INDEX, INVERTED_INDEX, IndexPath, ORDERED_INDEX, PathConfiguration, Registry,
};
use crate::schema::{IndexDefinition, IndexKind, Schema};
use crate::segment::{Segment, key_attributes};
use eris_platform::arena::Arena;
use eris_platform::memory::{MemoryPool, Mover};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

pub use attach::AttachCursor;
pub use cursor::{Gateway, ReadCursor};
pub use index_build::IndexBuildCursor;
pub use lookup::{Found, LookupCursor, LookupRequest};
pub use maintain::{Horizon, Maintained};
pub use pin::{PinnedCursor, PinnedPartition, PinnedSegment};
pub use row_locks::{LockedRows, RowLock};
pub use split::{PositionOf, SplitBoundary, SplitMoved, SplitStep};
pub use statistics::{SegmentDescription, StoreCounters, StoreStatistics};
pub use usage::{AccessHistory, AccessStatistics, AttributeStatistics};
pub use write::{Progress, Written};

/// What a store needs.
pub struct StoreOptions {
    pub schema: Arc<Schema>,
    pub memory: Arc<MemoryPool>,
    /// Of the partition's container, for the texts of sealed segments; none: each segment has its own.
    pub dictionaries: Option<Arc<ContainerDictionaries>>,
    /// Node-local memory of the partition's home, for sealed columns; none: from anywhere.
    pub arena: Option<Arena>,
    pub modules: &'static Registry,
    /// Whether updates overwrite rows where they can, instead of appending versions.
    pub updates_in_place: bool,
}

impl StoreOptions {
    /// The standard modules, memory from anywhere.
    pub fn new(schema: Arc<Schema>, memory: Arc<MemoryPool>) -> Self {
        let modules = Registry::standard();
        Self { schema, memory, dictionaries: None, arena: None, modules, updates_in_place: true }
    }
}

/// One index of the store.
struct StoreIndex {
    definition: IndexDefinition,
    path: Box<dyn IndexPath>,
}

/// Memory that calls reuse, so that a point access allocates nothing but its batch. It is the thread's: a partition
/// goes from core to core, and would take its own along.
#[derive(Default)]
struct Scratch {
    found: Vec<crate::address::RowAddress>,
    offsets: Vec<u32>,
    more: Vec<u32>,
    hidden: Vec<u8>,
    scan: AccessPathScanState,
    rows: PackedRows,
    lookup: lookup::LookupScratch,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Lends the thread's scratch memory; not while it is lent already.
fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(work)
}

/// The inside of one living partition. One worker at a time is in here; pins read beside it.
#[expect(clippy::struct_excessive_bools, reason = "independent switches and states")]
pub struct Store {
    schema: Arc<Schema>,
    /// The attributes that tell rows apart.
    identity: Box<[AttributeId]>,
    /// All attributes, and the format of rows that have them.
    all_attributes: Box<[AttributeId]>,
    row_format: Arc<RowFormat>,
    memory: Arc<MemoryPool>,
    /// Where sealed segments find texts that they have in common.
    dictionaries: Option<Arc<ContainerDictionaries>>,
    /// Where sealed columns go.
    arena: Option<Arena>,
    /// Columns on their way there.
    relocation: Option<relocate::Relocation>,
    modules: &'static Registry,
    /// The layouts that segments are to have.
    layouts: layout::TargetLayouts,
    /// By segment number; none: gone.
    segments: Vec<Option<Box<Segment>>>,
    /// The segment that takes inserts.
    tail: Option<SegmentNumber>,
    indexes: Vec<StoreIndex>,
    /// Indexes being created: maintained, not yet read.
    building: Vec<StoreIndex>,
    pending: transactions::Pending,
    /// What rows were before they were updated in place.
    before_images: before_images::BeforeImages,
    updates_in_place: bool,
    row_locks: row_locks::RowLocks,
    /// To be vacated when nobody can see them.
    dying: dying::Dying,
    /// Segments that may want to be sealed, thawed or evacuated.
    candidates: BTreeSet<SegmentNumber>,
    /// Whether sealed segments wait with being rebuilt in another layout.
    rebuilds_wait: bool,
    /// Whether the database is being opened.
    is_opening: bool,
    job: Option<maintain::Job>,
    /// There while rows of its segments move although there is no room.
    mover: Option<Mover>,
    /// Which jobs wait because they were refused memory.
    refused: maintain::Refused,
    /// Segments whose rows are still entering the indexes.
    attaching: BTreeSet<SegmentNumber>,
    /// Rows that moved to another partition and still have index entries here.
    departed: VecDeque<split::Departed>,
    split: Option<Box<split::Split>>,
    /// Whether another store hands its rows over to this one.
    absorbing: bool,
    /// One further owner per saved cursor.
    cursors: Arc<()>,
    plans: PlanCache,
    counters: StoreCounters,
    usage: usage::StoreUsage,
}

impl Store {
    /// An empty partition.
    pub fn new(options: StoreOptions) -> Self {
        let StoreOptions { schema, memory, dictionaries, arena, modules, updates_in_place } = options;
        let indexes =
            schema.indexes.iter().map(|definition| new_index(&schema, modules, &memory, definition)).collect();
        Self {
            pending: transactions::Pending::new(&memory),
            before_images: before_images::BeforeImages::new(&memory),
            updates_in_place,
            row_locks: row_locks::RowLocks::new(&memory),
            dying: dying::Dying::new(&memory),
            identity: schema.row_identity(),
            all_attributes: (0..schema.attributes.len() as u16).map(AttributeId).collect(),
            row_format: Arc::new(RowFormat::new(schema.attributes.iter().map(|attribute| attribute.data_type))),
            layouts: layout::TargetLayouts::new(&schema, modules),
            usage: usage::StoreUsage::new(schema.attributes.len()),
            schema,
            memory,
            dictionaries,
            arena,
            relocation: None,
            modules,
            segments: Vec::new(),
            tail: None,
            indexes,
            building: Vec::new(),
            candidates: BTreeSet::new(),
            rebuilds_wait: false,
            is_opening: false,
            job: None,
            mover: None,
            refused: maintain::Refused::default(),
            attaching: BTreeSet::new(),
            departed: VecDeque::new(),
            split: None,
            absorbing: false,
            cursors: Arc::new(()),
            plans: PlanCache::default(),
            counters: StoreCounters::default(),
        }
    }

    /// The version of the schema the store is at.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The dictionaries that it shares with the other partitions of its container.
    pub fn dictionaries(&self) -> Option<&Arc<ContainerDictionaries>> {
        self.dictionaries.as_ref()
    }

    /// Moves to another version of the schema: the same attributes and further ones that may be NULL, other indexes.
    /// Those that were built by [`Store::create_index_step`] are adopted, those no longer defined are dropped. Rows
    /// that are there have added attributes UNDEFINED ([`Store::is_undefined`]). Layouts stay as they were set; those
    /// set by hand get added attributes in their catch-all.
    pub fn set_schema(&mut self, schema: Arc<Schema>) -> Result<(), StorageError> {
        self.check_built(&schema)?;
        self.widen(&schema)?;
        let mut built: Vec<StoreIndex> = self.indexes.drain(..).chain(self.building.drain(..)).collect();
        let mut indexes = Vec::with_capacity(schema.indexes.len());
        for definition in &schema.indexes {
            // An id may have been used before, by a schema that nobody moved to in the end.
            match built.iter().position(|index| index.definition.is_alike(definition)) {
                Some(position) => {
                    let definition = definition.clone();
                    indexes.push(StoreIndex { definition, ..built.swap_remove(position) });
                }
                None => indexes.push(new_index(&schema, self.modules, &self.memory, definition)),
            }
        }
        self.indexes = indexes;
        self.identity = schema.row_identity();
        self.schema = schema;
        self.plans.clear();
        Ok(())
    }

    /// Whether every index of a schema is here, before anything is changed. One of no rows need not be built.
    fn check_built(&self, schema: &Schema) -> Result<(), StorageError> {
        let here = self.indexes.iter().chain(&self.building);
        let missing =
            schema.indexes.iter().find(|definition| !here.clone().any(|index| index.definition.is_alike(definition)));
        match missing {
            Some(definition) if self.segments.iter().any(Option::is_some) => {
                let reason = format!("index {} was not built", definition.name);
                Err(StorageError::InvalidRequest { reason })
            }
            _ => Ok(()),
        }
    }

    /// Whether an index is being created.
    pub fn is_indexing(&self) -> bool {
        !self.building.is_empty()
    }

    /// Whether cursors are saved: rows must not move.
    fn has_saved_cursors(&self) -> bool {
        Arc::strong_count(&self.cursors) > 1
    }

    fn segment(&self, number: SegmentNumber) -> Option<&Segment> {
        self.segments.get(number.0 as usize)?.as_deref()
    }

    fn segment_mut(&mut self, number: SegmentNumber) -> Option<&mut Segment> {
        self.segments.get_mut(number.0 as usize)?.as_deref_mut()
    }

    fn live_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter_map(Option::as_deref)
    }
}

fn new_index(
    schema: &Schema,
    modules: &Registry,
    memory: &Arc<MemoryPool>,
    definition: &IndexDefinition,
) -> StoreIndex {
    let attributes = key_attributes(schema, &definition.attributes);
    let configuration = PathConfiguration { attributes: &attributes, rows_max: 0, memory, dictionaries: None };
    let module = match definition.kind {
        IndexKind::Ordered => ORDERED_INDEX,
        IndexKind::Hash => HASH_INDEX,
        IndexKind::Inverted => INVERTED_INDEX,
    };
    StoreIndex { definition: definition.clone(), path: modules.create_index(module, configuration) }
}
