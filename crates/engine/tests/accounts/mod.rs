//! The table that the tests use: accounts with a key, an amount and a note, and the accesses to them.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use eris_engine::{Change, Coalescing, EngineError, Lookup, Read, RowChange};
use eris_platform::SeededRandom;
use eris_storage::{
    Attribute, AttributeId, Batch, COLUMN, COLUMN_GROUP, Comparison, Condition, ContainerId, DataType, IndexDefinition,
    IndexId, IndexKind, Layout, LayoutMember, LookupRequest, PhysicalLayout, Predicate, ROW_DYNAMIC, ROW_SPARSE,
    ROW_STATIC, ReadRequest, Schema, SchemaVersion, SegmentLayouts, Test, Value,
};

pub const KEY: AttributeId = AttributeId(0);
pub const AMOUNT: AttributeId = AttributeId(1);

pub fn schema(container: ContainerId, layout: Layout, segment_rows: u32) -> Schema {
    let attribute = |name: &str, data_type, nullable| Attribute { name: name.into(), data_type, nullable };
    Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([
            attribute("key", DataType::Int64, false),
            attribute("amount", DataType::Int64, false),
            attribute("note", DataType::Text, true),
        ]),
        indexes: Box::new([IndexDefinition {
            id: IndexId(1),
            name: "accounts_pkey".into(),
            attributes: Box::new([KEY]),
            unique: true,
            primary: true,
            kind: IndexKind::Ordered,
        }]),
        layout,
        physical: None,
        segment_rows,
    }
}

/// Layouts for open and sealed segments: one path or two or three, the amount in several of them.
pub fn layouts(random: &mut SeededRandom) -> SegmentLayouts {
    let mut layout = || {
        let layouts: [&[(&str, &[u16])]; 6] = [
            &[(ROW_STATIC, &[0, 1, 2])],
            &[(COLUMN, &[1]), (ROW_STATIC, &[0, 1, 2])],
            &[(COLUMN, &[0]), (COLUMN, &[1]), (ROW_SPARSE, &[2])],
            &[(ROW_SPARSE, &[2, 1]), (COLUMN, &[0, 1])],
            &[(COLUMN_GROUP, &[0, 1]), (ROW_DYNAMIC, &[2])],
            &[(ROW_DYNAMIC, &[0, 1, 2])],
        ];
        let member = |(module, ids): &(&str, &[u16])| LayoutMember {
            module: (*module).into(),
            attributes: ids.iter().map(|id| AttributeId(*id)).collect(),
        };
        PhysicalLayout::new(layouts[random.index(6)].iter().map(member).collect::<Vec<_>>())
    };
    SegmentLayouts { open: layout(), sealed: layout() }
}

pub fn row(key: i64, amount: i64, note: Option<&str>) -> Batch {
    let note = note.map_or(Value::Null, |note| Value::Text(note.into()));
    Batch::from_rows(
        &[DataType::Int64, DataType::Int64, DataType::Text],
        &[vec![Value::Int64(key), Value::Int64(amount), note]],
    )
}

pub fn by_key(container: ContainerId, key: i64) -> Read {
    let condition = Condition { attribute: KEY, test: Test::Compare(Comparison::Equal, Value::Int64(key)) };
    let request = ReadRequest {
        predicate: Predicate { conditions: Arc::new([condition]) },
        desired: Arc::new([KEY, AMOUNT]),
        order: None,
    };
    Read { container, request }
}

/// The rows with keys from `low` to `high`, both included.
pub fn between(container: ContainerId, low: i64, high: i64) -> Read {
    let condition =
        |comparison, value| Condition { attribute: KEY, test: Test::Compare(comparison, Value::Int64(value)) };
    let conditions = Arc::new([condition(Comparison::GreaterOrEqual, low), condition(Comparison::LessOrEqual, high)]);
    let mut read = everything(container);
    read.request.predicate = Predicate { conditions };
    read
}

pub fn everything(container: ContainerId) -> Read {
    let request = ReadRequest {
        predicate: Predicate { conditions: Arc::new([]) },
        desired: Arc::new([KEY, AMOUNT]),
        order: None,
    };
    Read { container, request }
}

/// A lookup of key and amount by one attribute.
pub fn lookup(container: ContainerId, attribute: AttributeId, coalescing: Coalescing) -> Lookup {
    let request = LookupRequest { attributes: Arc::new([attribute]), desired: Arc::new([KEY, AMOUNT]) };
    Lookup { container, request, coalescing }
}

/// Keys of a lookup.
pub fn integers(values: &[i64]) -> Batch {
    let rows: Vec<Vec<Value>> = values.iter().map(|value| vec![Value::Int64(*value)]).collect();
    Batch::from_rows(&[DataType::Int64], &rows)
}

/// What a lookup found for each of its `keys`: key and amount.
pub fn by_position(keys: usize, batches: &[Batch]) -> Vec<Vec<(i64, i64)>> {
    let mut found = vec![Vec::new(); keys];
    for batch in batches {
        let values = pairs(&[batch.project(&[1, 2])]);
        for (row, pair) in values.into_iter().enumerate() {
            let Value::Int32(position) = batch.value(row, 0) else { panic!("positions are integers") };
            found[position as usize].push(pair);
        }
    }
    found
}

pub struct SetAmount(pub i64);

impl RowChange for SetAmount {
    fn inputs(&self) -> usize {
        2
    }

    fn attributes(&self) -> &[AttributeId] {
        &[AMOUNT]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(|_| vec![Value::Int64(self.0)]).collect();
        Ok(Change { rows: None, attributes: Box::new([AMOUNT]), values: Batch::from_rows(&[DataType::Int64], &rows) })
    }
}

/// Gives a row another key, so that it may move to another partition.
pub struct SetKey(pub i64);

impl RowChange for SetKey {
    fn inputs(&self) -> usize {
        2
    }

    fn attributes(&self) -> &[AttributeId] {
        &[KEY]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(|_| vec![Value::Int64(self.0)]).collect();
        Ok(Change { rows: None, attributes: Box::new([KEY]), values: Batch::from_rows(&[DataType::Int64], &rows) })
    }
}

pub fn pairs(batches: &[Batch]) -> Vec<(i64, i64)> {
    let mut pairs = Vec::new();
    for batch in batches {
        for row in 0..batch.rows {
            match (batch.value(row, 0), batch.value(row, 1)) {
                (Value::Int64(key), Value::Int64(amount)) => pairs.push((key, amount)),
                other => panic!("both attributes are integers that are not null: {other:?}"),
            }
        }
    }
    pairs
}
