//! Rings: rows whose keys go round, so that a half of anything is seen by whoever looks, in any way.
//!
//! ```text
//!   ring 2, three rows        key   code   ring  id   turns  touches  note
//!   identity stays            33    32     2     0    1      4        touched 3 times
//!   keys go round by one      34    33     2     1    1      0        NULL
//!   codes do not              32    34     2     2    1      0        NULL
//! ```
//! `key` is the primary key and says where a row lies, `code` is unique by a global index, `ring` and `turns` have
//! local indexes. A turn gives all rows of a ring other keys, other codes, or both, each to the next, and counts in
//! each row; a touch counts in one row or all and may leave a note. Whatever a ring has been through, it is there as a
//! whole or not at all, and its rows are what the committed turns and touches make of it ([`history`]).
//!
//! The same table has rows of [`duets`]: those who wait for each other.

mod client;
mod duets;
mod history;
mod look;

use std::sync::{Arc, Mutex};

use eris_engine::{Change, Engine, EngineError, Read, RowChange};
use eris_platform::SeededRandom;
use eris_storage::{
    Attribute, AttributeId, Batch, COLUMN, COLUMN_GROUP, Comparison, Condition, ContainerId, DataType, IndexDefinition,
    IndexId, IndexKind, Layout, LayoutMember, PhysicalLayout, Predicate, ROW_DYNAMIC, ROW_SPARSE, ROW_STATIC,
    ReadRequest, Schema, SchemaVersion, SegmentLayouts, Test, Value,
};

use crate::chaos::Chaos;

pub use client::{change_all, fill, run_ring_client};
pub use duets::{TRANSACTIONS_OF_A_ROUND, run_duet};
pub use history::RingHistory;
pub use look::look;

pub const KEY: AttributeId = AttributeId(0);
pub const CODE: AttributeId = AttributeId(1);
pub const RING: AttributeId = AttributeId(2);
const ID: AttributeId = AttributeId(3);
const TURNS: AttributeId = AttributeId(4);
const TOUCHES: AttributeId = AttributeId(5);
const NOTE: AttributeId = AttributeId(6);
/// What every read asks for; a change finds its columns here.
const ALL: [AttributeId; 7] = [KEY, CODE, RING, ID, TURNS, TOUCHES, NOTE];

const BY_KEY: IndexId = IndexId(1);
/// Local indexes: every live row has an entry in each.
pub const INDEXES: u64 = 3;

/// Keys and codes of a ring begin at this multiple.
const SPAN: i64 = 16;
/// Rings from here on are those of duets.
const DUETS: i64 = 10_000;

/// What clients of one table of rings share.
#[derive(Clone)]
pub struct Rings {
    pub engine: Engine,
    pub container: ContainerId,
    pub count: i64,
    /// Rows of a ring.
    pub size: i64,
    pub chaos: Arc<Chaos>,
    pub history: Arc<Mutex<RingHistory>>,
}

/// A row as it is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    pub ring: i64,
    pub id: i64,
    pub key: i64,
    pub code: i64,
    pub turns: i64,
    pub touches: i64,
    /// The touches that the note tells of; 0 for none.
    pub noted: i64,
}

pub fn schema(container: ContainerId, layout: Layout, segment_rows: u32, hashed: bool) -> Schema {
    let attribute = |name: &str, data_type, nullable| Attribute { name: name.into(), data_type, nullable };
    let index = |id, name: &str, attribute, unique, kind| IndexDefinition {
        id,
        name: name.into(),
        attributes: Box::new([attribute]),
        unique,
        primary: unique,
        kind,
    };
    let kind = if hashed { IndexKind::Hash } else { IndexKind::Ordered };
    Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([
            attribute("key", DataType::Int64, false),
            attribute("code", DataType::Int64, false),
            attribute("ring", DataType::Int64, false),
            attribute("id", DataType::Int64, false),
            attribute("turns", DataType::Int64, false),
            attribute("touches", DataType::Int64, false),
            attribute("note", DataType::Text, true),
        ]),
        indexes: Box::new([
            index(BY_KEY, "rings_pkey", KEY, true, IndexKind::Ordered),
            index(IndexId(2), "rings_ring", RING, false, kind),
            index(IndexId(3), "rings_turns", TURNS, false, IndexKind::Ordered),
        ]),
        layout,
        physical: None,
        segment_rows,
    }
}

/// Layouts for open and sealed segments: rows, columns, and both.
pub fn layouts(random: &mut SeededRandom) -> SegmentLayouts {
    let mut layout = || {
        let layouts: [&[(&str, &[u16])]; 6] = [
            &[(ROW_STATIC, &[0, 1, 2, 3, 4, 5, 6])],
            &[(COLUMN, &[5]), (ROW_STATIC, &[0, 1, 2, 3, 4, 5, 6])],
            &[(COLUMN, &[0, 1, 2]), (COLUMN, &[3]), (COLUMN, &[4, 5]), (ROW_SPARSE, &[6])],
            &[(ROW_SPARSE, &[6, 5]), (COLUMN, &[0, 1]), (ROW_STATIC, &[2, 3, 4])],
            &[(COLUMN_GROUP, &[0, 1, 2, 4]), (COLUMN, &[3]), (ROW_DYNAMIC, &[6, 5])],
            &[(ROW_DYNAMIC, &[0, 1, 2, 3, 4, 5, 6]), (COLUMN_GROUP, &[3, 5])],
        ];
        let member = |(module, ids): &(&str, &[u16])| LayoutMember {
            module: (*module).into(),
            attributes: ids.iter().map(|id| AttributeId(*id)).collect(),
        };
        PhysicalLayout::new(layouts[random.index(6)].iter().map(member).collect::<Vec<_>>())
    };
    SegmentLayouts { open: layout(), sealed: layout() }
}

impl Row {
    /// A row of a ring that nothing has happened to.
    fn new(ring: i64, id: i64, turns: i64) -> Self {
        let place = ring * SPAN + id;
        Self { ring, id, key: place, code: place, turns, touches: 0, noted: 0 }
    }

    fn values(&self) -> Vec<Value> {
        let integers = [self.key, self.code, self.ring, self.id, self.turns, self.touches];
        integers.into_iter().map(Value::Int64).chain([note(self.noted)]).collect()
    }
}

fn note(noted: i64) -> Value {
    if noted == 0 { Value::Null } else { Value::Text(format!("touched {noted} times, ein Vermerk").into()) }
}

const TYPES: [DataType; 7] = [
    DataType::Int64,
    DataType::Int64,
    DataType::Int64,
    DataType::Int64,
    DataType::Int64,
    DataType::Int64,
    DataType::Text,
];

fn batch(rows: &[Row]) -> Batch {
    Batch::from_rows(&TYPES, &rows.iter().map(Row::values).collect::<Vec<_>>())
}

/// The rows of batches that were read with [`ALL`], behind the first `skipped` columns; ascending.
fn rows_of(batches: &[Batch], skipped: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.rows {
            let integer = |column: usize| match batch.value(row, skipped + column) {
                Value::Int64(integer) => integer,
                other => panic!("column {column} is an integer that is not null: {other:?}"),
            };
            let noted = match batch.value(row, skipped + 6) {
                Value::Null => 0,
                Value::Text(text) => {
                    let number = text.strip_prefix("touched ").and_then(|rest| rest.split(' ').next());
                    number.and_then(|number| number.parse().ok()).expect("a note is as it was written")
                }
                other => panic!("a note is a text: {other:?}"),
            };
            let [key, code, ring, id, turns, touches] = [0, 1, 2, 3, 4, 5].map(integer);
            rows.push(Row { ring, id, key, code, turns, touches, noted });
        }
    }
    rows.sort_unstable();
    rows
}

fn request(predicate: Predicate) -> ReadRequest {
    ReadRequest { predicate, desired: Arc::new(ALL), order: None }
}

fn equal(container: ContainerId, attribute: AttributeId, value: i64) -> Read {
    Read { container, request: request(Predicate::equal(attribute, Value::Int64(value))) }
}

pub fn all(container: ContainerId) -> Read {
    Read { container, request: request(Predicate::all()) }
}

/// `from <= attribute < below`
fn between(container: ContainerId, attribute: AttributeId, from: i64, below: i64) -> Read {
    let condition = |comparison, value| Condition { attribute, test: Test::Compare(comparison, Value::Int64(value)) };
    let conditions = [condition(Comparison::GreaterOrEqual, from), condition(Comparison::Less, below)];
    Read { container, request: request(Predicate::new(conditions.to_vec())) }
}

/// What is written into rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write {
    /// Keys and codes go on by so many places of a ring of `size` rows.
    Turn { keys: i64, codes: i64, size: i64 },
    /// Counts a touch, and notes it or not.
    Touch { noted: bool },
    /// Another key, another code.
    Put { key: Option<i64>, code: Option<i64> },
}

impl Write {
    fn apply(self, row: &mut Row) {
        match self {
            Self::Turn { keys, codes, size } => {
                let base = row.ring * SPAN;
                row.key = base + (row.key - base + keys).rem_euclid(size);
                row.code = base + (row.code - base + codes).rem_euclid(size);
                row.turns += 1;
            }
            Self::Touch { noted } => {
                row.touches += 1;
                if noted {
                    row.noted = row.touches;
                }
            }
            Self::Put { key, code } => {
                row.key = key.unwrap_or(row.key);
                row.code = code.unwrap_or(row.code);
            }
        }
    }

    /// As a change of rows that are read with [`ALL`].
    fn change(self) -> Arc<dyn RowChange> {
        let attributes = match self {
            Self::Turn { keys, codes, .. } => {
                [(keys != 0).then_some(KEY), (codes != 0).then_some(CODE), Some(TURNS), None]
            }
            Self::Touch { noted } => [Some(TOUCHES), noted.then_some(NOTE), None, None],
            Self::Put { key, code } => [key.map(|_| KEY), code.map(|_| CODE), None, None],
        };
        Arc::new(Changing { write: self, attributes: attributes.into_iter().flatten().collect() })
    }
}

struct Changing {
    write: Write,
    attributes: Box<[AttributeId]>,
}

impl RowChange for Changing {
    fn inputs(&self) -> usize {
        ALL.len()
    }

    fn attributes(&self) -> &[AttributeId] {
        &self.attributes
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        // In the order of the batch, which `rows_of` would not keep.
        let rows: Vec<Vec<Value>> = (0..batch.rows)
            .map(|row| {
                let values: Vec<Value> = (0..ALL.len()).map(|column| batch.value(row, column)).collect();
                let one = Batch::from_rows(&TYPES, &[values]);
                let mut changed = rows_of(&[one], 0)[0];
                self.write.apply(&mut changed);
                let values = changed.values();
                self.attributes.iter().map(|attribute| values[usize::from(attribute.0)].clone()).collect()
            })
            .collect();
        let types: Vec<DataType> = self.attributes.iter().map(|attribute| TYPES[usize::from(attribute.0)]).collect();
        Ok(Change { rows: None, attributes: self.attributes.clone(), values: Batch::from_rows(&types, &rows) })
    }
}
