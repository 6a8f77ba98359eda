//! Storage modules: the ways in which values can be held, behind one interface (004, section 5.2.4).
//!
//! A module is a factory with properties (Table 5.3) that makes access paths. In the direct and indirect worlds a path
//! holds attributes of one segment's rows and is addressed by offset ([`AccessPath`]); in the value world it is an
//! index of a whole partition and is addressed by key ([`IndexPath`]). To add a module: its file, a line in
//! `registry.rs`; the conformance suite iterates over the registry.

mod btree;
mod column;
mod column_group;
mod composite;
mod encoded;
mod filter;
mod hash_bucket;
mod hash_index;
mod hash_table;
mod inverted_index;
mod ordered_index;
mod registry;
mod row_dynamic;
mod row_sparse;
mod row_static;
mod widened;

use crate::address::RowAddress;
use crate::batch::{Batch, Column, ColumnBuilder, FixedValue, PackedRows};
use crate::dictionary::ContainerDictionaries;
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::key::{Key, KeyPart};
use crate::predicate::{Condition, Test};
use crate::types::DataType;
use eris_platform::memory::MemoryPool;
use eris_platform::{Arena, MemoryExceeded, NodeId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

pub use column::COLUMN_SEGMENTS;
pub(crate) use column::ColumnPath;
pub use composite::COMPOSITE;
pub(crate) use composite::layout_path;
pub(crate) use hash_index::hashed_order;
pub(crate) use ordered_index::sorted_order;
pub use ordered_index::{IndexScanState, Inserted};
pub use registry::{
    COLUMN, COLUMN_GROUP, ENCODED, HASH_INDEX, INVERTED_INDEX, ORDERED_INDEX, ROW_DYNAMIC, ROW_SPARSE, ROW_STATIC,
    Registry,
};
pub(crate) use widened::{HoldsPath, WidenedPath};

/// How partial records of an access path are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressingMode {
    /// By row offset, in insertion order.
    Direct,
    /// By an own handle (here: a page and a slot derived from the offset, long values out of line).
    Indirect,
    /// By key.
    Value,
}

/// How many attributes or keys a module can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    None,
    AtMost(u16),
    Any,
}

/// What a module can do (Table 5.3 of 004).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "Table 5.3 asks independent questions")]
pub struct Properties {
    pub addressing: AddressingMode,
    pub attributes: Count,
    pub keys: Count,
    /// Whether an index hands out its entries in the order of their keys.
    pub key_order: bool,
    pub nulls: bool,
    /// Whether rows may lack attributes altogether ([`AccessPath::is_undefined`]).
    pub undefined: bool,
    pub variable_length: bool,
    /// Whether a run of rows can be handed out as a column once the path is frozen ([`AccessPath::shared`]).
    pub shares_frozen_columns: bool,
    /// Whether values of fixed width can be overwritten where they lie ([`AccessPath::exchange`]).
    pub updates_in_place: bool,
}

/// One attribute as an access path is to hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAttribute {
    pub id: AttributeId,
    pub data_type: DataType,
    pub nullable: bool,
}

impl PathAttribute {
    /// How it enters an index key.
    pub fn key_part(self) -> KeyPart {
        KeyPart { data_type: self.data_type, tagged: self.nullable }
    }
}

/// How a new access path is to be set up.
#[derive(Clone, Copy, Debug)]
pub struct PathConfiguration<'a> {
    /// Held attributes, or key attributes of an index.
    pub attributes: &'a [PathAttribute],
    /// Rows the path will hold at most (indexes: ignored).
    pub rows_max: u32,
    pub memory: &'a Arc<MemoryPool>,
    /// Of the container, if its segments share dictionaries.
    pub dictionaries: Option<&'a Arc<ContainerDictionaries>>,
}

/// What a module makes.
pub enum PathInstance {
    Rows(Box<dyn AccessPath>),
    Index(Box<dyn IndexPath>),
}

/// A storage module.
pub trait AccessPathFactory: Send + Sync {
    fn name(&self) -> &'static str;
    fn properties(&self) -> Properties;
    fn create(&self, configuration: PathConfiguration<'_>) -> PathInstance;
}

/// The part of a predicate that is pushed down: the conditions of `conditions` that `selected` lists.
#[derive(Clone, Copy, Debug)]
pub struct PathFilter<'a> {
    pub conditions: &'a [Condition],
    pub selected: &'a [u16],
}

impl<'a> PathFilter<'a> {
    /// Whether every row qualifies.
    pub fn is_empty(self) -> bool {
        self.selected.is_empty()
    }

    /// The first conditions that follow each other and concern the values of one attribute alone, or a comparison of
    /// two attributes; and the others.
    pub(crate) fn split_group(self) -> Option<(AttributeId, Self, Self)> {
        let condition = |position: &u16| &self.conditions[usize::from(*position)];
        let concerns_two = |position: &u16| matches!(condition(position).test, Test::CompareAttribute(..));
        let first = self.selected.first()?;
        let attribute = condition(first).attribute;
        let alike = |position: &&u16| condition(position).attribute == attribute && !concerns_two(position);
        let len = if concerns_two(first) { 1 } else { self.selected.iter().take_while(alike).count() };
        let (group, others) = self.selected.split_at(len);
        Some((attribute, Self { selected: group, ..self }, Self { selected: others, ..self }))
    }

    /// The conditions.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a Condition> {
        self.selected.iter().map(move |position| &self.conditions[usize::from(*position)])
    }
}

/// What scans and links of one request keep between calls: scratch memory.
#[derive(Debug, Default)]
pub struct AccessPathScanState {
    /// One byte per examined row: 1 while it qualifies.
    pub(crate) mask: Vec<u8>,
    /// Of several paths together.
    composite: composite::CompositeScratch,
    /// Of encoded attributes.
    encoded: encoded::EncodedScratch,
}

/// Attributes of one segment's rows, addressed by offset.
pub trait AccessPath: Send + Sync {
    /// The module that made it.
    fn module(&self) -> &'static str;
    /// Rows held.
    fn rows(&self) -> u32;
    /// Appends rows of a batch that has the schema's columns. A path that knows UNDEFINED also takes batches that lack
    /// the last ones: rows from before these attributes were added.
    fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError>;
    /// Whether rows are addressed by handles of the path's own, as [`AccessPath::insert_with_handles`] gives them out
    /// (indirect world): every offset of the other methods then means such a handle, and several rows may share one.
    fn gives_handles(&self) -> bool {
        false
    }
    /// As `insert`; appends the handle of each row. Offsets, unless the path gives handles of its own.
    fn insert_with_handles(
        &mut self,
        rows: &Batch,
        range: Range<usize>,
        handles: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        let first = self.rows();
        self.insert(rows, range)?;
        handles.extend(first..self.rows());
        Ok(())
    }
    /// Whether the path takes no further rows before it is full, because an insert failed half-way.
    fn is_closed(&self) -> bool {
        false
    }
    /// Appends to `found` the offsets within `window` that qualify, ascending.
    fn scan(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError>;
    /// How many rows within `window` qualify.
    fn count(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Range<u32>,
    ) -> Result<usize, StorageError> {
        let mut found = Vec::new();
        self.scan(state, filter, window, &mut found)?;
        Ok(found.len())
    }
    /// Keeps those of `offsets` that qualify.
    fn retain(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
    ) -> Result<(), StorageError>;
    /// Appends an attribute's values of the rows at `offsets`.
    fn link(&self, attribute: AttributeId, offsets: &[u32], out: &mut ColumnBuilder);
    /// Whether a row was inserted without this attribute: an UNDEFINED value, which reads as NULL.
    fn is_undefined(&self, attribute: AttributeId, offset: u32) -> bool {
        let _ = (attribute, offset);
        false
    }
    /// An attribute's values of a run of rows as a column, if the path can: without copying, or decoded at once.
    fn shared(&self, attribute: AttributeId, run: Range<u32>) -> Option<Column>;
    /// An attribute's values of the rows at `offsets` by reference to the path's own data, where that is cheaper than
    /// copying them.
    fn gather(&self, attribute: AttributeId, offsets: &[u32]) -> Option<Column>;
    /// Appends rows that have the schema's columns.
    fn insert_packed(&mut self, rows: &PackedRows, range: Range<usize>) -> Result<(), StorageError> {
        self.insert(&rows.to_batch(), range)
    }
    /// Writes attributes of the row at `offset` into the columns of the last of `rows`, in order.
    fn pack(&self, attributes: &[AttributeId], offset: u32, rows: &mut PackedRows) {
        for (column, attribute) in attributes.iter().enumerate() {
            let mut value = ColumnBuilder::with_capacity(rows.format().data_type(column), 1);
            self.link(*attribute, &[offset], &mut value);
            rows.last_row().write(column, &value.view(), 0);
        }
    }
    /// Whether this attribute's values can be overwritten where they lie. Only asked of paths that may grow.
    fn updates_in_place(&self, attribute: AttributeId) -> bool {
        let _ = attribute;
        false
    }
    /// Overwrites the value of a row that is there; gives the one that was. Only for attributes that the path said can
    /// be overwritten: nobody shares their memory.
    fn exchange(&mut self, attribute: AttributeId, offset: u32, new: FixedValue) -> FixedValue {
        let _ = new;
        unreachable!("{} does not overwrite {attribute} of row {offset}", self.module())
    }
    /// Whether the path can [leave](AccessPath::truncate) its last rows now.
    fn truncates(&self) -> bool {
        false
    }
    /// Only the first `rows` stay, and the memory of the others is given back. Only for paths that said they can.
    fn truncate(&mut self, rows: u32) {
        unreachable!("{} does not leave the rows behind {rows}", self.module())
    }
    /// Adds the modules that test the conditions: of every row if it `scans`, else of a few.
    fn filter_modules(&self, filter: PathFilter<'_>, scans: bool, modules: &mut BTreeSet<&'static str>) {
        let _ = scans;
        if !filter.is_empty() {
            modules.insert(self.module());
        }
    }
    /// Adds the modules that give the attributes of so many rows at a time.
    fn link_modules(&self, attributes: &[AttributeId], rows: usize, modules: &mut BTreeSet<&'static str>) {
        let _ = (attributes, rows);
        modules.insert(self.module());
    }
    /// No insert will follow.
    fn freeze(&mut self);
    /// A part of what `freeze` does, about the work of reading one attribute of all rows; true if there is more. One at
    /// a time, because a partition waits meanwhile.
    fn freeze_step(&mut self) -> bool {
        self.freeze();
        false
    }
    /// Why values of a frozen path are held as they grew, if there was no memory to encode them.
    fn refused_encoding(&self) -> Option<&MemoryExceeded> {
        None
    }
    /// Calls `visit` with each attribute whose values are encoded, the encoding, and the bytes they take.
    fn encodings(&self, visit: &mut dyn FnMut(AttributeId, &'static str, u64)) {
        let _ = visit;
    }
    /// Copies the values of one further attribute of a frozen path into node-local memory, if the module can and the
    /// arena has room; true if there may be another. One at a time, because a partition waits meanwhile.
    fn place(&mut self, _arena: &Arena) -> bool {
        false
    }
    /// The node in whose memory all values were placed; none while any lies elsewhere.
    fn home(&self) -> Option<NodeId> {
        None
    }
    /// A further path over the same frozen values, to be placed elsewhere while this one is read; none if the module
    /// cannot place.
    fn share(&self) -> Option<Box<dyn AccessPath>> {
        None
    }
    /// Bytes reserved.
    fn bytes(&self) -> u64;
}

/// An index over a partition's rows: (key, row address) pairs, in key order if the module's properties say so. Several
/// rows may have the same key: versions share it.
pub trait IndexPath: Send + Sync {
    /// The module that made it.
    fn module(&self) -> &'static str;
    /// Adds a row; `columns` are the index's attributes. Adding it again changes nothing.
    fn insert(&mut self, columns: &[Column], row: usize, address: RowAddress) -> Result<Inserted, StorageError>;
    /// Removes a row; false if it was not there.
    fn remove(&mut self, columns: &[Column], row: usize, address: RowAddress) -> bool;
    /// Rows that are there get new addresses: what is inserted until [`end_moving`](Self::end_moving) is one of them,
    /// and their old ones are removed before that.
    fn begin_moving(&mut self) {}
    /// The rows have their new addresses, or none has.
    fn end_moving(&mut self) {}
    /// Appends the addresses of up to `rows_max` further entries of the scan; false when it is at its end. Without key
    /// order, entries come in an order of the path's own, also if the scan is descending.
    fn scan(&self, state: &mut IndexScanState, rows_max: usize, found: &mut Vec<RowAddress>) -> bool;
    /// Calls `visit` with every address that has the row's key.
    fn equal(&self, columns: &[Column], row: usize, visit: &mut dyn FnMut(RowAddress));
    /// Entries between two keys, counted up to `limit`.
    fn count_up_to(&self, lower: &Key, upper: Option<&Key>, limit: usize) -> usize {
        let mut found = Vec::new();
        self.scan(&mut IndexScanState::new(lower.clone(), upper.cloned(), false), limit, &mut found);
        found.len()
    }
    /// Calls `visit` with each of `rows` and every address that has its key. A path that can does several searches at
    /// a time, so that one does not wait for the memory of the other.
    fn equal_many(&self, columns: &[Column], rows: Range<usize>, visit: &mut dyn FnMut(usize, RowAddress)) {
        for row in rows {
            self.equal(columns, row, &mut |address| visit(row, address));
        }
    }
    /// About which share of the entries lies between two keys, 0 to 1.
    fn share(&self, lower: &Key, upper: Option<&Key>) -> f64;
    /// False if no entry has a key at or above `lower`. A path without key order may say true although none has.
    fn may_reach(&self, lower: &Key) -> bool {
        let mut found = Vec::new();
        self.scan(&mut IndexScanState::new(lower.clone(), None, false), 1, &mut found);
        !found.is_empty()
    }
    /// How the key attributes are encoded.
    fn parts(&self) -> &[KeyPart];
    /// Keys at about equal distances, at most `count` of them, ascending.
    fn sample(&self, count: usize) -> Vec<Key>;
    /// Entries.
    fn entries(&self) -> u64;
    /// Bytes reserved.
    fn bytes(&self) -> u64;
}
