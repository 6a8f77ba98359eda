//! Reads and writes of a container, found by the values of some attributes.

use std::collections::BTreeMap;
use std::sync::Arc;

use eris_storage::{AttributeId, DataType, Key, KeyEncoder, Predicate, TransactionId, Value};

use super::access::RowWrite;

/// Reads and writes by the values of some attributes.
#[derive(Debug)]
pub(super) struct KeySet {
    /// Ascending.
    pub attributes: Box<[AttributeId]>,
    pub types: Box<[DataType]>,
    pub reads: BTreeMap<Key, Vec<KeyedRead>>,
    pub writes: BTreeMap<Key, Vec<Arc<RowWrite>>>,
}

/// A read under a key.
#[derive(Debug)]
pub(super) struct KeyedRead {
    pub transaction: TransactionId,
    /// The whole predicate, if it says more than the key.
    pub rest: Option<Predicate>,
}

impl KeySet {
    /// With nothing in it.
    pub fn new(attributes: Box<[AttributeId]>, types: Box<[DataType]>) -> Self {
        Self { attributes, types, reads: BTreeMap::new(), writes: BTreeMap::new() }
    }

    /// Whose reads a write concerns.
    pub fn readers_of(&self, write: &RowWrite) -> impl Iterator<Item = TransactionId> {
        let reads: Vec<&KeyedRead> = match self.keys_of(write) {
            Some(keys) => keys.iter().filter_map(|key| self.reads.get(key)).flatten().collect(),
            // A row that lacks one of the attributes.
            None => self.reads.values().flatten().collect(),
        };
        let concerns = |read: &&KeyedRead| read.rest.as_ref().is_none_or(|rest| write.concerns(rest));
        reads.into_iter().filter(concerns).map(|read| read.transaction)
    }

    /// Takes out a transaction's reads of a key.
    pub fn take_out_reads(&mut self, reader: TransactionId, key: &Key) {
        // The first of several takes them all.
        let Some(list) = self.reads.get_mut(key) else { return };
        list.retain(|read| read.transaction != reader);
        if list.is_empty() {
            self.reads.remove(key);
        }
    }

    /// Takes out a transaction's writes of the row of one of them.
    pub fn take_out_writes(&mut self, write: &RowWrite) {
        for key in self.keys_of(write).into_iter().flatten() {
            let Some(list) = self.writes.get_mut(&key) else { continue };
            list.retain(|known| known.transaction != write.transaction);
            if list.is_empty() {
                self.writes.remove(&key);
            }
        }
    }

    /// The keys of a row before and after; none if it lacks one of the attributes.
    fn keys_of(&self, write: &RowWrite) -> Option<Vec<Key>> {
        if !write.has_all(&self.attributes) {
            return None;
        }
        let mut keys: Vec<Key> = write.images().map(|row| key_of(row, &self.attributes, &self.types)).collect();
        keys.dedup();
        Some(keys)
    }

    /// Enters a row that has all attributes.
    pub fn add_write(&mut self, write: &Arc<RowWrite>) {
        for key in self.keys_of(write).into_iter().flatten() {
            self.writes.entry(key).or_default().push(Arc::clone(write));
        }
    }
}

/// The key of a row that has these attributes.
pub(super) fn key_of(row: &[Value], attributes: &[AttributeId], types: &[DataType]) -> Key {
    let mut encoder = KeyEncoder::new();
    for (id, data_type) in attributes.iter().zip(types) {
        encoder.push(&row[id.index()], *data_type);
    }
    encoder.finish()
}

/// Whether a constant can stand in a key in place of an attribute's value: equal values have equal bytes.
pub(super) fn is_of_type(value: &Value, data_type: DataType) -> bool {
    match (value, data_type) {
        (Value::Boolean(_), DataType::Boolean)
        | (Value::Int16(_), DataType::Int16)
        | (Value::Int32(_), DataType::Int32)
        | (Value::Int64(_), DataType::Int64)
        | (Value::Float32(_), DataType::Float32)
        | (Value::Float64(_), DataType::Float64)
        | (Value::Date(_), DataType::Date)
        | (Value::Timestamp(_), DataType::Timestamp)
        | (Value::Text(_), DataType::Text)
        | (Value::Bytes(_), DataType::Bytes) => true,
        (Value::Decimal { scale: has, .. }, DataType::Decimal { scale, .. }) => *has == scale,
        _ => false,
    }
}
