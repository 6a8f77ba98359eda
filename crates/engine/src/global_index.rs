//! Global indexes: unique keys of a container that do not name a partition.
//!
//! A unique key that contains the partitioning attributes is enforced by a local index. Any other is a hidden container
//! of its own, partitioned by that key, with one row per row of the base container:
//!
//! ```text
//!   base, by s_id:        s_id | sub_nbr | ...        hidden, by hash of sub_nbr:   sub_nbr | s_id
//!                           17 | "0017"  | ...                                      "0017"  | 17
//!                              `------------- entry: the key, then the locator ------------'
//! ```
//!
//! - The *locator* is what the base container is partitioned by: a read by the key finds it here first and then goes
//!   to one partition, instead of to all.
//! - Entries are written by the same transaction and statement as the rows, so every snapshot sees both or neither, and
//!   inserting an entry reserves the key: uniqueness is that of the hidden container's primary key.
//! - A key with a NULL in it is a duplicate of nothing and has no entry.

use std::sync::Arc;

use eris_storage::{
    Attribute, AttributeId, Batch, Comparison, Condition, ContainerId, IndexDefinition, IndexId, IndexKind, Layout,
    PackedRows, Predicate, ReadRequest, SEGMENT_ROWS_DEFAULT, Schema, SchemaVersion, StorageError, Test, Value,
};

use crate::container::Container;
use crate::error::EngineError;
use crate::partition_table::Partitioning;

/// What [`crate::Engine::create_global_index`] needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GlobalIndexSpec {
    /// The container whose rows it is over.
    pub container: ContainerId,
    /// The constraint's name, for errors.
    pub name: Box<str>,
    /// The unique key.
    pub attributes: Box<[AttributeId]>,
    /// Partitions of the index to start with.
    pub partitions: usize,
}

impl GlobalIndexSpec {
    /// Schema and partitioning of the hidden container.
    pub(crate) fn hidden_container(
        &self,
        base: &Container,
        id: ContainerId,
    ) -> Result<(Schema, Partitioning), EngineError> {
        let schema = base.schema();
        let partitioning = base.partitioning();
        let invalid = |reason: String| EngineError::from(StorageError::InvalidRequest { reason });
        if self.attributes.is_empty() {
            return Err(invalid(format!("global index {} has no attributes", self.name)));
        }
        if !partitioning.has_positions() {
            return Err(invalid(format!("global index {}: rows of its container have no position", self.name)));
        }
        let entry = entry_attributes(&self.attributes, partitioning.attributes());
        let mut attributes = Vec::with_capacity(entry.len());
        for (place, id) in entry.iter().enumerate() {
            let attribute = schema.attribute(*id);
            let attribute =
                attribute.ok_or_else(|| invalid(format!("global index {}: no attribute {id}", self.name)))?;
            let nullable = attribute.nullable && place >= self.attributes.len();
            attributes.push(Attribute { nullable, ..attribute.clone() });
        }
        let key: Box<[AttributeId]> = (0..self.attributes.len() as u16).map(AttributeId).collect();
        let primary = IndexDefinition {
            id: IndexId(0),
            name: self.name.clone(),
            attributes: key.clone(),
            unique: true,
            primary: true,
            kind: IndexKind::Hash,
        };
        let schema = Schema {
            container: id,
            version: SchemaVersion(1),
            attributes: attributes.into(),
            indexes: Box::new([primary]),
            layout: Layout::Default,
            physical: None,
            segment_rows: SEGMENT_ROWS_DEFAULT,
        };
        Ok((schema, Partitioning::Hash { attributes: key, partitions: self.partitions }))
    }
}

/// The attributes of an entry: the key, then what of the locator is not in it.
fn entry_attributes(key: &[AttributeId], locator: &[AttributeId]) -> Box<[AttributeId]> {
    key.iter().chain(locator.iter().filter(|id| !key.contains(id))).copied().collect()
}

/// A global index of a container.
#[derive(Debug)]
pub(crate) struct GlobalIndex {
    container: Arc<Container>,
    /// The base container's attributes that an entry has, the key first.
    entry: Box<[AttributeId]>,
    key_length: usize,
    /// For each partitioning attribute of the base container its place in the entry.
    locator: Arc<[AttributeId]>,
    /// The partitioning attributes of the base container.
    located_by: Box<[AttributeId]>,
}

impl GlobalIndex {
    pub fn new(base: &Container, key: &[AttributeId], hidden: Arc<Container>) -> Self {
        let partitioning = base.partitioning();
        let located_by: Box<[AttributeId]> = partitioning.attributes().into();
        let entry = entry_attributes(key, &located_by);
        let place = |id: &AttributeId| {
            let place = entry.iter().position(|known| known == id);
            AttributeId(place.unwrap_or_else(|| unreachable!("an entry has the locator")) as u16)
        };
        let locator = located_by.iter().map(place).collect();
        Self { container: hidden, key_length: key.len(), entry, locator, located_by }
    }

    /// What it was made of, over `base`.
    pub fn spec(&self, base: ContainerId) -> GlobalIndexSpec {
        let schema = self.container.schema();
        let name = schema.primary_key().map(|key| key.name.clone()).unwrap_or_default();
        let attributes = self.entry[..self.key_length].into();
        let partitions = self.container.partitioning().initial_partitions();
        GlobalIndexSpec { container: base, name, attributes, partitions }
    }

    /// The hidden container.
    pub fn container(&self) -> &Arc<Container> {
        &self.container
    }

    /// The base container's attributes that an entry has, the key first.
    pub fn entry(&self) -> &[AttributeId] {
        &self.entry
    }

    /// The unique key.
    pub fn key(&self) -> &[AttributeId] {
        &self.entry[..self.key_length]
    }

    /// Whether an entry changes when these attributes of its row do.
    pub fn depends_on(&self, attributes: &[AttributeId]) -> bool {
        self.entry.iter().any(|id| attributes.contains(id))
    }

    /// The entries of rows with the base container's columns.
    pub fn entries_of_rows(&self, rows: &Batch) -> Batch {
        let columns = self.entry.iter().map(|id| rows.columns[id.index()].clone());
        self.without_null_keys(Batch { columns: columns.collect(), rows: rows.rows })
    }

    /// Leaves out entries whose key has a NULL in it.
    pub fn without_null_keys(&self, entries: Batch) -> Batch {
        let keys = &entries.columns[..self.key_length];
        if keys.iter().all(|column| column.null_count() == 0) {
            return entries;
        }
        let kept: Vec<u32> =
            (0..entries.rows as u32).filter(|row| keys.iter().all(|column| !column.is_null(*row as usize))).collect();
        entries.take(&kept)
    }

    /// The request for the entry of a row of entries.
    pub fn request_for_entry(&self, entries: &Batch, row: usize) -> ReadRequest {
        let conditions = (0..self.key_length).map(|place| equal(AttributeId(place as u16), entries.value(row, place)));
        ReadRequest { predicate: Predicate { conditions: conditions.collect() }, desired: Arc::from([]), order: None }
    }

    /// The request for the locators of rows that a predicate of the base container names by the whole key.
    pub fn request_for_locator(&self, predicate: &Predicate) -> Option<ReadRequest> {
        let mut conditions = Vec::with_capacity(self.key_length);
        for (place, id) in self.entry[..self.key_length].iter().enumerate() {
            let value = predicate.conditions.iter().find_map(|condition| match &condition.test {
                Test::Compare(Comparison::Equal, value) if condition.attribute == *id => Some(value),
                _ => None,
            })?;
            conditions.push(equal(AttributeId(place as u16), value.clone()));
        }
        Some(ReadRequest {
            predicate: Predicate { conditions: conditions.into() },
            desired: Arc::clone(&self.locator),
            order: None,
        })
    }

    /// A request for the base container, with the position of the row that it can only concern.
    pub fn narrow(&self, request: &ReadRequest, locator: &PackedRows) -> ReadRequest {
        let located = self.located_by.iter().enumerate().map(|(place, id)| match locator.value(0, place) {
            Value::Null => Condition { attribute: *id, test: Test::IsNull },
            value => equal(*id, value),
        });
        let conditions = request.predicate.conditions.iter().cloned().chain(located).collect();
        ReadRequest { predicate: Predicate { conditions }, ..request.clone() }
    }
}

fn equal(attribute: AttributeId, value: Value) -> Condition {
    Condition { attribute, test: Test::Compare(Comparison::Equal, value) }
}
