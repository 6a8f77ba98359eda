//! Sealed segments: immutable rows, shared with pins.

use super::zones::{Zone, may_qualify};
use crate::batch::{BATCH_ROWS, Batch, Column, ColumnBuilder, RowsOf, VALUE_BYTES_MAX, Values, view_len};
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::modules::{
    AccessPath, COLUMN, PathAttribute, PathConfiguration, ROW_STATIC, Registry, hashed_order, sorted_order,
};
use crate::modules::{HoldsPath, WidenedPath};
use crate::predicate::Condition;
use crate::schema::{IndexKind, Layout, Schema};
use crate::value::Value;
use eris_platform::memory::{MemoryPool, Reservation};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// For each index the rows in key order, while the segment waits to be attached.
struct Orders {
    by_index: Vec<Box<[u32]>>,
    _memory: Reservation,
}

/// Rows that never change, with the smallest and largest value of each attribute.
pub struct SealedSegment {
    path: Box<dyn AccessPath>,
    zones: Box<[Zone]>,
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
    for (position, (column, attribute)) in rows.columns.iter().zip(&schema.attributes).enumerate() {
        if column.data_type.physical() != attribute.data_type.physical()
            || column.values.physical() != attribute.data_type.physical()
            || column.len() != rows.rows
        {
            let reason = format!("{} of type {} for {}", column.data_type, attribute.data_type, attribute.name);
            return Err(StorageError::InvalidRequest { reason });
        }
        if !attribute.nullable && column.null_count() > 0 {
            let attribute_id = AttributeId(position as u16);
            return Err(StorageError::NotNull { attribute: attribute_id, name: attribute.name.clone() });
        }
        if let Values::Bytes(views) = &column.values
            && let Some(bytes) = views.views.iter().map(|view| view_len(*view)).max().filter(|n| *n > VALUE_BYTES_MAX)
        {
            return Err(StorageError::RowTooLarge { bytes, bytes_max: VALUE_BYTES_MAX });
        }
    }
    Ok(())
}

impl SealedSegment {
    /// A segment of these rows, as a bulk load makes it outside of any partition. Needs no latch; the indexes' key
    /// orders are prepared here, too.
    pub fn build(schema: &Schema, rows: &Batch, memory: &Arc<MemoryPool>) -> Result<Arc<Self>, StorageError> {
        rows_check(schema, rows)?;
        let module = match schema.layout {
            Layout::Row => ROW_STATIC,
            Layout::Column | Layout::Default => COLUMN,
            // The number the segment will get is not known yet: the parity of its first values decides.
            Layout::Mixed => [ROW_STATIC, COLUMN][first_value_parity(rows)],
        };
        let attributes = path_attributes(schema);
        let configuration = PathConfiguration { attributes: &attributes, rows_max: rows.rows as u32, memory };
        let mut path = Registry::standard().create_rows(module, configuration);
        path.insert(rows, 0..rows.rows)?;
        path.freeze();
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
                IndexKind::Ordered => sorted_order(&attributes, &columns, rows.rows),
                IndexKind::Hash => hashed_order(&attributes, &columns, rows.rows),
            }
        });
        let orders = Orders { by_index: by_index.collect(), _memory: held };
        Ok(Arc::new(Self { path, zones: zones.into(), orders: Mutex::new(Some(orders)) }))
    }

    /// Rows.
    pub fn rows(&self) -> u32 {
        self.path.rows()
    }

    /// The module that holds the rows.
    pub fn module(&self) -> &'static str {
        self.path.module()
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

    /// Attributes of its rows.
    pub(crate) fn attributes(&self) -> usize {
        self.zones.len()
    }

    /// The same rows with `attributes` attributes, of which those from `known` on are UNDEFINED.
    pub(crate) fn widened(segment: Arc<Self>, known: AttributeId, attributes: usize) -> Arc<Self> {
        let mut zones = segment.zones.to_vec();
        zones.resize(attributes, Zone { bounds: None, nulls: true });
        let path = Box::new(WidenedPath::new(segment, known));
        Arc::new(Self { path, zones: zones.into(), orders: Mutex::new(None) })
    }

    /// The rows in the order of each index, once.
    pub(crate) fn take_orders(&self) -> Option<Vec<Box<[u32]>>> {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner).take();
        orders.map(|orders| orders.by_index)
    }
}

fn first_value_parity(rows: &Batch) -> usize {
    if rows.rows == 0 || rows.columns.is_empty() {
        return 0;
    }
    rows.value(0, 0).to_string().bytes().fold(0, |sum, byte| sum ^ usize::from(byte)) & 1
}

/// Seals an open segment's rows window by window.
pub(crate) struct SealedBuilder {
    /// The new path; none if the rows stay where they are.
    path: Option<Box<dyn AccessPath>>,
    zones: Vec<Zone>,
    next: u32,
    rows: u32,
}

impl SealedBuilder {
    /// Prepares sealing `rows` rows, copied into `path` if there is one.
    pub(crate) fn new(path: Option<Box<dyn AccessPath>>, attributes: usize, rows: u32) -> Self {
        Self { path, zones: vec![Zone::default(); attributes], next: 0, rows }
    }

    /// Whether every row was visited.
    pub(crate) fn is_complete(&self) -> bool {
        self.next == self.rows
    }

    /// Visits up to one batch of rows; gives how many.
    pub(crate) fn step(&mut self, schema: &Schema, source: &dyn AccessPath) -> Result<u32, StorageError> {
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

    /// The sealed segment; `source` is the open path, which is used if nothing was copied.
    pub(crate) fn finish(self, source: Box<dyn AccessPath>) -> Arc<SealedSegment> {
        assert!(self.next == self.rows, "sealed {} of {} rows", self.next, self.rows);
        let mut path = self.path.unwrap_or(source);
        path.freeze();
        Arc::new(SealedSegment { path, zones: self.zones.into(), orders: Mutex::new(None) })
    }
}

/// All attributes of a run of rows.
pub(crate) fn link_window(schema: &Schema, path: &dyn AccessPath, window: Range<u32>) -> Batch {
    let offsets: Vec<u32> = window.clone().collect();
    let columns = schema.attributes.iter().enumerate().map(|(position, attribute)| {
        let id = AttributeId(position as u16);
        path.shared(id, window.clone()).unwrap_or_else(|| {
            let mut builder = ColumnBuilder::with_capacity(attribute.data_type, offsets.len());
            path.link(id, &offsets, &mut builder);
            builder.finish()
        })
    });
    Batch { columns: columns.collect(), rows: offsets.len() }
}

impl HoldsPath for Arc<SealedSegment> {
    fn held(&self) -> &dyn AccessPath {
        self.path()
    }

    fn freeze(&mut self) {}
}
