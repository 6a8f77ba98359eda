//! Sealed segments: immutable rows, shared with pins.

use super::zones::{Zone, may_qualify};
use crate::batch::{BATCH_ROWS, Batch, Column, ColumnBuilder, RowsOf, VALUE_BYTES_MAX, Values, view_len};
use crate::dictionary::ContainerDictionaries;
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::modules::{
    AccessPath, COLUMN, ColumnPath, HoldsPath, PathAttribute, Registry, WidenedPath, hashed_order, layout_path,
    sorted_order,
};
use crate::physical::PhysicalLayout;
use crate::predicate::Condition;
use crate::schema::{IndexKind, MIXED_MODULES, Schema};
use crate::value::Value;
use eris_platform::Arena;
use eris_platform::memory::{MemoryPool, Reservation};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// For each index the rows in key order, while the segment waits to be attached.
struct Orders {
    by_index: Vec<Box<[u32]>>,
    _memory: Reservation,
}

/// Whose rows are the same, in the same order: a segment keeps it when it gets another layout or other memory.
#[derive(Debug)]
pub struct SegmentIdentity {
    rows: u32,
}

impl SegmentIdentity {
    fn of(path: &dyn AccessPath) -> Arc<Self> {
        Arc::new(Self { rows: path.rows() })
    }

    /// How many rows they are.
    pub fn rows(&self) -> u32 {
        self.rows
    }
}

/// What a segment that is built has its rows in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildForm {
    /// The layout that the schema says.
    AsLaidOut,
    /// Plain columns where the layout has encoded ones, which takes a fraction of the time; maintenance encodes them
    /// later.
    Unencoded,
}

/// How a segment is built.
#[derive(Clone, Copy)]
pub struct BuildOptions<'a> {
    pub memory: &'a Arc<MemoryPool>,
    /// Of the container; none: the segment has texts of its own.
    pub dictionaries: Option<&'a Arc<ContainerDictionaries>>,
    /// Node-local memory, for a partition whose home is known.
    pub arena: Option<&'a Arena>,
    pub form: BuildForm,
}

/// Rows that never change, with the smallest and largest value of each attribute.
pub struct SealedSegment {
    identity: Arc<SegmentIdentity>,
    layout: PhysicalLayout,
    path: Box<dyn AccessPath>,
    zones: Arc<[Zone]>,
    /// NULLs of each attribute, while the segment waits to be attached.
    nulls: Box<[u64]>,
    orders: Mutex<Option<Orders>>,
}

/// All attributes of a schema as a path holds them.
pub(crate) fn path_attributes(schema: &Schema) -> Vec<PathAttribute> {
    let attributes = schema.attributes.iter().enumerate();
    attributes
        .map(|(position, attribute)| PathAttribute {
            id: AttributeId(position as u16),
            data_type: attribute.data_type,
            nullable: attribute.nullable,
        })
        .collect()
}

/// The key attributes of an index.
pub(crate) fn key_attributes(schema: &Schema, attributes: &[AttributeId]) -> Vec<PathAttribute> {
    let all = path_attributes(schema);
    attributes.iter().map(|attribute| all[attribute.index()]).collect()
}

/// Refuses rows that do not fit the schema.
pub(crate) fn rows_check(schema: &Schema, rows: &Batch) -> Result<(), StorageError> {
    if rows.columns.len() != schema.attributes.len() {
        let reason = format!("rows of {} columns for {} attributes", rows.columns.len(), schema.attributes.len());
        return Err(StorageError::InvalidRequest { reason });
    }
    for (position, column) in rows.columns.iter().enumerate() {
        attribute_check(schema, AttributeId(position as u16), column, rows.rows)?;
    }
    Ok(())
}

/// Refuses `rows` values that do not fit their attribute.
pub(crate) fn attribute_check(
    schema: &Schema,
    id: AttributeId,
    column: &Column,
    rows: usize,
) -> Result<(), StorageError> {
    let Some(attribute) = schema.attribute(id) else {
        return Err(StorageError::InvalidRequest { reason: format!("no attribute {id}") });
    };
    if column.data_type.physical() != attribute.data_type.physical()
        || column.values.physical() != attribute.data_type.physical()
        || column.len() != rows
    {
        let reason = format!("{} of type {} for {}", column.data_type, attribute.data_type, attribute.name);
        return Err(StorageError::InvalidRequest { reason });
    }
    if !attribute.nullable && column.null_count() > 0 {
        return Err(StorageError::NotNull { attribute: id, name: attribute.name.clone() });
    }
    if let Values::Bytes(views) = &column.values
        && let Some(bytes) = views.views.iter().map(|view| view_len(*view)).max().filter(|n| *n > VALUE_BYTES_MAX)
    {
        return Err(StorageError::RowTooLarge { bytes, bytes_max: VALUE_BYTES_MAX });
    }
    Ok(())
}

impl SealedSegment {
    /// A segment of these rows, as a bulk load makes it outside of any partition. Needs no latch; the indexes' key
    /// orders are prepared here, too.
    pub fn build(schema: &Schema, rows: &Batch, memory: &Arc<MemoryPool>) -> Result<Arc<Self>, StorageError> {
        let options = BuildOptions { memory, dictionaries: None, arena: None, form: BuildForm::AsLaidOut };
        Self::build_in(schema, rows, &options)
    }

    /// The same with all that a partition of a container has.
    pub fn build_in(schema: &Schema, rows: &Batch, options: &BuildOptions<'_>) -> Result<Arc<Self>, StorageError> {
        let BuildOptions { memory, arena, form, .. } = *options;
        rows_check(schema, rows)?;
        let modules = Registry::standard();
        let attributes = path_attributes(schema);
        let laid_out = match (&schema.physical, schema.layout.modules()) {
            (Some(physical), _) => {
                physical.sealed.check(&schema.attributes, modules)?;
                physical.sealed.clone()
            }
            (None, Some(named)) => PhysicalLayout::single(named.sealed, attributes.len()),
            // The number the segment will get is not known yet: the parity of its first values decides.
            (None, None) => PhysicalLayout::single(MIXED_MODULES[first_value_parity(rows)], attributes.len()),
        };
        let layout = match form {
            BuildForm::AsLaidOut => laid_out.clone(),
            BuildForm::Unencoded => laid_out.unencoded(),
        };
        let mut path = path_of(&layout, &attributes, rows, options)?;
        // What will be rebuilt need not move before.
        if let Some(arena) = arena.filter(|_| layout == laid_out) {
            while path.place(arena) {}
        }
        let mut zones = vec![Zone::default(); attributes.len()];
        for (zone, column) in zones.iter_mut().zip(&rows.columns) {
            zone.add(&column.view(), &RowsOf::Run(0..rows.rows));
        }
        let held = memory.reserve("bulk load");
        held.grow((rows.rows * schema.indexes.len() * size_of::<u32>()) as u64)?;
        let by_index = schema.indexes.iter().map(|index| {
            let columns: Vec<Column> = index.attributes.iter().map(|id| rows.columns[id.index()].clone()).collect();
            let attributes = key_attributes(schema, &index.attributes);
            match index.kind {
                IndexKind::Ordered | IndexKind::Inverted => sorted_order(&attributes, &columns, rows.rows),
                IndexKind::Hash => hashed_order(&attributes, &columns, rows.rows),
            }
        });
        let orders = Orders { by_index: by_index.collect(), _memory: held };
        let nulls = rows.columns.iter().map(|column| column.null_count() as u64).collect();
        let (identity, zones) = (SegmentIdentity::of(&*path), zones.into());
        Ok(Arc::new(Self { identity, layout, path, zones, nulls, orders: Mutex::new(Some(orders)) }))
    }

    /// The same rows in another layout. The path holds all of them, in their order.
    pub(crate) fn rebuilt(&self, layout: PhysicalLayout, mut path: Box<dyn AccessPath>) -> Arc<Self> {
        assert!(path.rows() == self.rows(), "rebuilt {} of {} rows", path.rows(), self.rows());
        path.freeze();
        let (identity, zones) = (Arc::clone(&self.identity), Arc::clone(&self.zones));
        Arc::new(Self { identity, layout, path, zones, nulls: Box::default(), orders: Mutex::new(None) })
    }

    /// Says of two segments whether they have the same rows.
    pub fn identity(&self) -> &Arc<SegmentIdentity> {
        &self.identity
    }

    /// Rows.
    pub fn rows(&self) -> u32 {
        self.path.rows()
    }

    /// Which modules hold which attributes.
    pub fn layout(&self) -> &PhysicalLayout {
        &self.layout
    }

    /// NULLs of each attribute, of a segment that was built to be attached.
    pub(crate) fn nulls(&self) -> &[u64] {
        &self.nulls
    }

    /// All rows, columns in schema order.
    pub fn to_rows(&self, schema: &Schema) -> Batch {
        link_window(schema, self.path(), 0..self.rows())
    }

    /// The same by somebody who must not keep the processor for long: `pause` is called behind some
    /// thousands of values, and behind each column that is decoded as a whole.
    pub(crate) fn to_rows_with_pauses(&self, schema: &Schema, pause: &mut dyn FnMut()) -> Batch {
        link_columns(schema, self.path(), 0..self.rows(), pause)
    }

    /// The module that holds the rows.
    pub fn module(&self) -> &'static str {
        self.path.module()
    }

    /// The encoding of each attribute that is encoded, and the bytes its values take.
    pub fn encodings(&self) -> Vec<(AttributeId, &'static str, u64)> {
        let mut encodings = Vec::new();
        self.path.encodings(&mut |attribute, encoding, bytes| encodings.push((attribute, encoding, bytes)));
        encodings
    }

    /// Bytes reserved for the rows.
    pub fn bytes(&self) -> u64 {
        self.path.bytes()
    }

    /// Smallest and largest value of an attribute, if there are any that are not NULL.
    pub fn bounds(&self, attribute: AttributeId) -> Option<(&Value, &Value)> {
        self.zones.get(attribute.index())?.bounds.as_ref().map(|(low, high)| (low, high))
    }

    /// Whether any row may satisfy all conditions.
    pub fn may_qualify(&self, conditions: &[Condition]) -> bool {
        may_qualify(&self.zones, conditions)
    }

    pub(crate) fn path(&self) -> &dyn AccessPath {
        &*self.path
    }

    /// The same rows, held by a path with the same values.
    pub(crate) fn with_path(&self, path: Box<dyn AccessPath>) -> Arc<Self> {
        assert!(path.rows() == self.rows(), "{} rows for {}", path.rows(), self.rows());
        let (identity, layout, zones) = (Arc::clone(&self.identity), self.layout.clone(), Arc::clone(&self.zones));
        Arc::new(Self { identity, layout, path, zones, nulls: Box::default(), orders: Mutex::new(None) })
    }

    /// Attributes of its rows.
    pub(crate) fn attributes(&self) -> usize {
        self.zones.len()
    }

    /// The same rows with `attributes` attributes, of which those from `known` on are UNDEFINED.
    pub(crate) fn widened(segment: Arc<Self>, known: AttributeId, attributes: usize) -> Arc<Self> {
        // The added attributes have no path: the layout is the one of the others.
        let layout = segment.layout.clone();
        let mut zones = segment.zones.to_vec();
        zones.resize(attributes, Zone { bounds: None, nulls: true });
        let path = Box::new(WidenedPath::new(segment, known));
        let (identity, zones) = (SegmentIdentity::of(&*path), zones.into());
        Arc::new(Self { identity, layout, path, zones, nulls: Box::default(), orders: Mutex::new(None) })
    }

    /// The rows in the order of each index, once.
    pub(crate) fn take_orders(&self) -> Option<Vec<Box<[u32]>>> {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner).take();
        orders.map(|orders| orders.by_index)
    }
}

/// A frozen path of the rows.
fn path_of(
    layout: &PhysicalLayout,
    attributes: &[PathAttribute],
    rows: &Batch,
    options: &BuildOptions<'_>,
) -> Result<Box<dyn AccessPath>, StorageError> {
    let BuildOptions { memory, dictionaries, form, .. } = *options;
    let is_plain = form == BuildForm::Unencoded && *layout == PhysicalLayout::single(COLUMN, attributes.len());
    if is_plain && let Some(path) = ColumnPath::sharing(attributes, rows, memory)? {
        return Ok(Box::new(path));
    }
    let mut path = layout_path(layout, attributes, rows.rows as u32, Registry::standard(), memory, dictionaries);
    path.insert(rows, 0..rows.rows)?;
    path.freeze();
    Ok(path)
}

fn first_value_parity(rows: &Batch) -> usize {
    if rows.rows == 0 || rows.columns.is_empty() {
        return 0;
    }
    rows.value(0, 0).to_string().bytes().fold(0, |sum, byte| sum ^ usize::from(byte)) & 1
}

/// Seals an open segment's rows window by window.
pub(crate) struct SealedBuilder {
    layout: PhysicalLayout,
    /// The new path; none if the rows stay where they are.
    path: Option<Box<dyn AccessPath>>,
    zones: Vec<Zone>,
    next: u32,
    rows: u32,
    /// Whether the path is in the form it keeps.
    frozen: bool,
    /// Whether the new path's values are where they shall be, or there is no new path.
    placed: bool,
}

impl SealedBuilder {
    /// Prepares sealing `rows` rows in this layout, copied into `path` if there is one.
    pub(crate) fn new(layout: PhysicalLayout, path: Option<Box<dyn AccessPath>>, attributes: usize, rows: u32) -> Self {
        let zones = vec![Zone::default(); attributes];
        Self { layout, frozen: path.is_none(), placed: path.is_none(), path, zones, next: 0, rows }
    }

    /// Whether every row was visited, and what was copied is in place.
    pub(crate) fn is_complete(&self) -> bool {
        self.next == self.rows && self.frozen && self.placed
    }

    /// Visits up to one batch of rows, or brings one attribute into its final form or to the memory of `arena`; gives
    /// the rows' worth of work. Values for whose encoding there is no memory may be refused, or stay as they are.
    pub(crate) fn step(
        &mut self,
        schema: &Schema,
        source: &dyn AccessPath,
        arena: Option<&Arena>,
        may_stay_plain: bool,
    ) -> Result<u32, StorageError> {
        if self.next == self.rows {
            if let Some(path) = &mut self.path {
                if !self.frozen {
                    self.frozen = !path.freeze_step();
                    if let Some(refused) = path.refused_encoding().filter(|_| !may_stay_plain) {
                        return Err(refused.clone().into());
                    }
                    return Ok(self.rows.max(BATCH_ROWS as u32));
                }
                self.placed = !arena.is_some_and(|arena| path.place(arena));
            }
            return Ok(BATCH_ROWS as u32);
        }
        let window = self.next..self.rows.min(self.next + BATCH_ROWS as u32);
        let batch = link_window(schema, source, window.clone());
        for (zone, column) in self.zones.iter_mut().zip(&batch.columns) {
            zone.add(&column.view(), &RowsOf::Run(0..batch.rows));
        }
        if let Some(path) = &mut self.path {
            path.insert(&batch, 0..batch.rows)?;
        }
        self.next = window.end;
        Ok(window.len() as u32)
    }

    /// The sealed segment; `source` is the open path, which is used if nothing was copied. Its values stay where they
    /// grew, on the node of those who wrote them.
    pub(crate) fn finish(self, source: Box<dyn AccessPath>) -> Arc<SealedSegment> {
        assert!(self.next == self.rows, "sealed {} of {} rows", self.next, self.rows);
        let mut path = self.path.unwrap_or(source);
        path.freeze();
        Arc::new(SealedSegment {
            identity: SegmentIdentity::of(&*path),
            layout: self.layout,
            path,
            zones: self.zones.into(),
            nulls: Box::default(),
            orders: Mutex::new(None),
        })
    }
}

/// All attributes of a run of rows.
pub(crate) fn link_window(schema: &Schema, path: &dyn AccessPath, window: Range<u32>) -> Batch {
    link_columns(schema, path, window, &mut || {})
}

/// Who links columns may pause behind so many rows.
const ROWS_PER_PAUSE: usize = 4096;

fn link_columns(schema: &Schema, path: &dyn AccessPath, window: Range<u32>, pause: &mut dyn FnMut()) -> Batch {
    let offsets: Vec<u32> = window.clone().collect();
    let columns = schema.attributes.iter().enumerate().map(|(position, attribute)| {
        let id = AttributeId(position as u16);
        let column = path.shared(id, window.clone()).unwrap_or_else(|| {
            let mut builder = ColumnBuilder::with_capacity(attribute.data_type, offsets.len());
            for offsets in offsets.chunks(ROWS_PER_PAUSE) {
                path.link(id, offsets, &mut builder);
                pause();
            }
            builder.finish()
        });
        pause();
        column
    });
    Batch { columns: columns.collect(), rows: offsets.len() }
}

impl HoldsPath for Arc<SealedSegment> {
    fn held(&self) -> &dyn AccessPath {
        self.path()
    }

    fn held_mut(&mut self) -> Option<&mut dyn AccessPath> {
        None
    }

    fn freeze(&mut self) {}
}
