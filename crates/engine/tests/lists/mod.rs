//! The table of lists and what clients do to it: the workload of the checker that knows nothing of the engine.
//!
//! A row holds a list as text, its length, and a code that no other row has (a global index). Every append adds an
//! element and one to the length, so a command that runs twice or half is seen in the row itself.

mod client;

use std::sync::Arc;

use eris_engine::{Change, EngineError, Read, RowChange};
use eris_storage::{
    Attribute, AttributeId, Batch, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, IndexOrder, Layout,
    Predicate, ReadRequest, Schema, SchemaVersion, Value,
};

use crate::elle::Element;

pub use client::{Lists, run_list_client};

pub const KEY: AttributeId = AttributeId(0);
pub const LIST: AttributeId = AttributeId(1);
pub const LENGTH: AttributeId = AttributeId(2);
pub const CODE: AttributeId = AttributeId(3);

/// The index that comes and goes.
pub const BY_LENGTH: IndexId = IndexId(3);
const BY_KEY: IndexId = IndexId(1);

fn index(id: IndexId, name: &str, attribute: AttributeId, unique: bool, kind: IndexKind) -> IndexDefinition {
    let (name, attributes) = (name.into(), Box::new([attribute]));
    IndexDefinition { id, name, attributes, unique, primary: unique, kind }
}

pub fn by_length() -> IndexDefinition {
    index(BY_LENGTH, "lists_length", LENGTH, false, IndexKind::Ordered)
}

pub fn schema(container: ContainerId, layout: Layout, segment_rows: u32) -> Schema {
    let attribute = |name: &str, data_type| Attribute { name: name.into(), data_type, nullable: false };
    Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([
            attribute("key", DataType::Int64),
            attribute("list", DataType::Text),
            attribute("length", DataType::Int64),
            attribute("code", DataType::Int64),
        ]),
        indexes: Box::new([
            index(BY_KEY, "lists_pkey", KEY, true, IndexKind::Ordered),
            index(IndexId(2), "lists_code", CODE, false, IndexKind::Hash),
        ]),
        layout,
        physical: None,
        segment_rows,
    }
}

/// The same table with the index over lengths, or without, as another version.
pub fn with_index(schema: &Schema, indexed: bool) -> Schema {
    let kept = schema.indexes.iter().filter(|index| index.id != BY_LENGTH).cloned();
    let indexes = kept.chain(indexed.then(by_length)).collect();
    Schema { version: SchemaVersion(schema.version.0 + 1), indexes, ..schema.clone() }
}

pub fn row(key: i64, element: Element, code: i64) -> Batch {
    Batch::from_rows(
        &[DataType::Int64, DataType::Text, DataType::Int64, DataType::Int64],
        &[vec![Value::Int64(key), Value::Text(element.to_string().into()), Value::Int64(1), Value::Int64(code)]],
    )
}

/// What a list is read with.
fn request(predicate: Predicate) -> ReadRequest {
    ReadRequest { predicate, desired: Arc::new([KEY, LIST, LENGTH]), order: None }
}

fn by(container: ContainerId, attribute: AttributeId, value: i64) -> Read {
    Read { container, request: request(Predicate::equal(attribute, Value::Int64(value))) }
}

/// All lists, in no order.
pub fn every_list(container: ContainerId) -> Read {
    Read { container, request: request(Predicate::all()) }
}

/// All lists by key.
fn lists_in_order(container: ContainerId) -> Read {
    let order = Some(IndexOrder { index: BY_KEY, descending: false });
    Read { container, request: ReadRequest { order, ..request(Predicate::all()) } }
}

/// All lists by length: of two schemas, one has the index for it.
fn lists_by_length(container: ContainerId) -> Read {
    let order = Some(IndexOrder { index: BY_LENGTH, descending: true });
    Read { container, request: ReadRequest { order, ..request(Predicate::all()) } }
}

/// All keys with their codes.
pub fn codes(container: ContainerId) -> Read {
    let request = ReadRequest { desired: Arc::new([KEY, CODE]), ..request(Predicate::all()) };
    Read { container, request }
}

/// Keys with their lists.
pub fn lists_of(batches: &[Batch]) -> Vec<(i64, Vec<Element>)> {
    let mut lists = Vec::new();
    for batch in batches {
        for row in 0..batch.rows {
            let (Value::Int64(key), Value::Text(text), Value::Int64(length)) =
                (batch.value(row, 0), batch.value(row, 1), batch.value(row, 2))
            else {
                panic!("a list has a key, a text and a length")
            };
            let list: Vec<Element> =
                text.split(',').map(|element| element.parse().expect("an element is a number")).collect();
            assert_eq!(list.len() as i64, length, "list {key} is {text}: each append counts once");
            lists.push((key, list));
        }
    }
    lists
}

/// Appends an element and counts it.
pub struct Append(pub Element);

impl RowChange for Append {
    fn inputs(&self) -> usize {
        3
    }

    fn attributes(&self) -> &[AttributeId] {
        &[LIST, LENGTH]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows: Vec<Vec<Value>> = (0..batch.rows)
            .map(|row| {
                let (Value::Text(list), Value::Int64(length)) = (batch.value(row, 1), batch.value(row, 2)) else {
                    panic!("a list has a text and a length")
                };
                vec![Value::Text(format!("{list},{}", self.0).into()), Value::Int64(length + 1)]
            })
            .collect();
        let values = Batch::from_rows(&[DataType::Text, DataType::Int64], &rows);
        Ok(Change { rows: None, attributes: Box::new([LIST, LENGTH]), values })
    }
}

/// Gives a list another code.
struct SetCode(i64);

impl RowChange for SetCode {
    fn inputs(&self) -> usize {
        3
    }

    fn attributes(&self) -> &[AttributeId] {
        &[CODE]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(|_| vec![Value::Int64(self.0)]).collect();
        Ok(Change { rows: None, attributes: Box::new([CODE]), values: Batch::from_rows(&[DataType::Int64], &rows) })
    }
}
