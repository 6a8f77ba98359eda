//! Values of every type, to the last bit, through everything that files keep rows in: records of single rows, of
//! changes and of loads, and a checkpoint's blocks of open and of sealed segments.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::sync::Arc;

use eris_durability::DurabilityOptions;
use eris_engine::{Change, ContainerSpec, EngineError, Partitioning, Read, RowChange};
use eris_platform::SimulatedEnv;
use eris_storage::{AttributeId, Batch, Comparison, Condition, DataType, Predicate, ReadRequest, Test, Value};
use schemas::{attribute, schema};
use shelf::{Shelf, TABLE, options, try_open};

/// A few more than two segments.
const ROWS: usize = 130;
const SEGMENT_ROWS: u32 = 64;

/// Each type, with values at its ends and where its form changes; NULL comes besides.
fn types() -> Vec<(DataType, Vec<Value>)> {
    let decimal = |precision: u8, scale: u8| {
        let largest = 10_i128.pow(u32::from(precision)) - 1;
        let values = [0, 1, -1, largest, -largest].map(|unscaled| Value::Decimal { unscaled, scale });
        (DataType::Decimal { precision, scale }, values.to_vec())
    };
    let texts =
        [String::new(), "\0".to_owned(), "twelve bytes".to_owned(), "thirteen of b".to_owned(), "漢🦀".repeat(5_000)];
    let bytes: [Vec<u8>; 5] = [vec![], vec![0], vec![0xff; 12], vec![0xfe; 13], vec![0x80; 50_000]];
    vec![
        (DataType::Boolean, [false, true].map(Value::Boolean).to_vec()),
        (DataType::Int16, [0, 1, -1, i16::MIN, i16::MAX].map(Value::Int16).to_vec()),
        (DataType::Int32, [0, 1, -1, i32::MIN, i32::MAX].map(Value::Int32).to_vec()),
        (DataType::Int64, [0, 1, -1, i64::MIN, i64::MAX].map(Value::Int64).to_vec()),
        (
            DataType::Float32,
            [0.0, -0.0, 0.1, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN, f32::MAX, f32::from_bits(1)]
                .map(Value::Float32)
                .to_vec(),
        ),
        (
            DataType::Float64,
            [0.0, -0.0, 0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN, f64::MAX, f64::from_bits(1)]
                .map(Value::Float64)
                .to_vec(),
        ),
        decimal(1, 0),
        decimal(18, 18),
        decimal(19, 2),
        decimal(38, 9),
        (DataType::Date, [0, 1, -1, i32::MIN, i32::MAX].map(Value::Date).to_vec()),
        (DataType::Timestamp, [0, 1, -1, i64::MIN, i64::MAX].map(Value::Timestamp).to_vec()),
        (DataType::Text, texts.map(|text| Value::Text(text.into())).to_vec()),
        (DataType::Bytes, bytes.map(|bytes| Value::Bytes(bytes.into())).to_vec()),
    ]
}

fn data_types() -> Vec<DataType> {
    std::iter::once(DataType::Int64).chain(types().into_iter().map(|(data_type, _)| data_type)).collect()
}

/// The rows, by their keys. In each row every type has another of its values, or NULL.
fn all_rows() -> Vec<Vec<Value>> {
    let types = types();
    let row = |number: usize| {
        let value = |(place, (_, values)): (usize, &(DataType, Vec<Value>))| {
            let choice = (number + place) % (values.len() + 1);
            values.get(choice).cloned().unwrap_or(Value::Null)
        };
        std::iter::once(Value::Int64(number as i64)).chain(types.iter().enumerate().map(value)).collect()
    };
    (0..ROWS).map(row).collect()
}

fn opened(env: &SimulatedEnv) -> Shelf {
    let opened = try_open(env, &DurabilityOptions { log_file_bytes: 1 << 20, ..options() });
    opened.unwrap_or_else(|error| panic!("the database opens: {error}"))
}

fn create(shelf: &Shelf, keyed: bool) {
    let engine = shelf.engine();
    let id = engine.next_container_id();
    assert_eq!(id, TABLE);
    let attributes: Vec<_> = data_types()
        .into_iter()
        .enumerate()
        .map(|(place, data_type)| attribute(&format!("a{place}"), data_type, place > 0))
        .collect();
    let partitioning =
        if keyed { Partitioning::Range(Box::new([AttributeId(0)])) } else { Partitioning::Size { partitions: 1 } };
    let schema = schema(id, &attributes, keyed, SEGMENT_ROWS);
    engine.create_container(ContainerSpec { schema, partitioning }).expect("creates");
}

fn insert(shelf: &mut Shelf, rows: &[Vec<Value>]) {
    let (engine, rows) = (shelf.engine(), rows.to_vec());
    let inserted = async move {
        for row in rows {
            let mut transaction = engine.begin();
            transaction.insert(TABLE, Batch::from_rows(&data_types(), &[row])).await?;
            transaction.commit().await?;
        }
        Ok::<(), EngineError>(())
    };
    shelf.simulation.block_on(inserted).expect("ends").expect("inserts");
}

fn load(shelf: &mut Shelf, rows: &[Vec<Value>]) {
    let (engine, batch) = (shelf.engine(), Batch::from_rows(&data_types(), rows));
    let loaded = async move {
        let mut transaction = engine.begin();
        let mut load = transaction.bulk(TABLE)?;
        load.append(batch).await?;
        load.finish().await?;
        transaction.commit().await
    };
    shelf.simulation.block_on(loaded).expect("ends").expect("loads");
}

fn with_key(key: usize) -> Read {
    let test = Test::Compare(Comparison::Equal, Value::Int64(key as i64));
    let conditions = Arc::new([Condition { attribute: AttributeId(0), test }]);
    let request = ReadRequest { predicate: Predicate { conditions }, desired: Arc::from([]), order: None };
    Read { container: TABLE, request }
}

/// Other values for everything but the key.
struct Replace {
    attributes: Box<[AttributeId]>,
    row: Vec<Value>,
}

impl RowChange for Replace {
    fn inputs(&self) -> usize {
        0
    }

    fn attributes(&self) -> &[AttributeId] {
        &self.attributes
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let values = Batch::from_rows(&data_types()[1..], &vec![self.row.clone(); batch.rows]);
        Ok(Change { rows: None, attributes: self.attributes.clone(), values })
    }
}

/// Each row gets the values of another one, or goes.
fn change(shelf: &mut Shelf, rows: &mut Vec<Vec<Value>>) {
    let before = rows.clone();
    for (key, row) in rows.iter_mut().enumerate() {
        let other = before[(key + 1) % before.len()][1..].to_vec();
        row.truncate(1);
        row.extend(other);
    }
    let gone = |key: usize| key % 10 == 3;
    let (engine, changed) = (shelf.engine(), rows.clone());
    let done = async move {
        for (key, row) in changed.into_iter().enumerate() {
            let mut transaction = engine.begin();
            let attributes = (1..row.len() as u16).map(AttributeId).collect();
            let done = if gone(key) {
                transaction.delete(&with_key(key), None).await?
            } else {
                let change = Replace { attributes, row: row[1..].to_vec() };
                transaction.update(&with_key(key), Arc::new(change)).await?
            };
            assert_eq!(done, 1, "row {key} is there");
            transaction.commit().await?;
        }
        Ok::<(), EngineError>(())
    };
    shelf.simulation.block_on(done).expect("ends").expect("changes");
    let mut key = 0;
    rows.retain(|_| {
        key += 1;
        !gone(key - 1)
    });
}

/// That these rows are there and no other: bits, not what comparisons make of them.
fn check(shelf: &mut Shelf, rows: &[Vec<Value>], what: &str) {
    let engine = shelf.engine();
    let desired = (0..data_types().len() as u16).map(AttributeId).collect();
    let request = ReadRequest { predicate: Predicate::all(), desired, order: None };
    let read = async move { engine.begin().scan(Read { container: TABLE, request }, None)?.collect().await };
    let batches = shelf.simulation.block_on(read).expect("ends").expect("reads");
    let mut found: Vec<Vec<Value>> = Vec::new();
    for batch in batches {
        let columns = 0..batch.columns.len();
        found.extend((0..batch.rows).map(|row| columns.clone().map(|column| batch.value(row, column)).collect()));
    }
    found.sort_by(|one, other| one[0].cmp(&other[0]));
    let keys = |rows: &[Vec<Value>]| rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    assert_eq!(keys(&found), keys(rows), "{what}");
    for (place, data_type) in data_types().into_iter().enumerate() {
        for (found, expected) in found.iter().zip(rows) {
            let (key, texts) = (&expected[0], [found, expected].map(|row| format!("{:?}", row[place])));
            let shown = texts.each_ref().map(|text| text.chars().take(60).collect::<String>());
            assert!(texts[0] == texts[1], "{what}, row {key}, {data_type:?}: {} instead of {}", shown[0], shown[1]);
        }
    }
}

fn restarted(shelf: Shelf, env: &SimulatedEnv) -> Shelf {
    drop(shelf);
    env.lose_power();
    opened(env)
}

#[test]
fn values_of_every_type_survive_to_the_bit() {
    for (keyed, at_once) in [(true, false), (true, true), (false, false), (false, true)] {
        for checkpoint in [false, true] {
            let env = SimulatedEnv::new(1);
            let mut shelf = opened(&env);
            create(&shelf, keyed);
            let mut rows = all_rows();
            let write = if at_once { load } else { insert };
            write(&mut shelf, &rows);
            let what = format!("keyed {keyed}, at once {at_once}, checkpoint {checkpoint}");
            check(&mut shelf, &rows, &format!("{what}, before"));
            if checkpoint {
                shelf.checkpoint();
            }
            shelf = restarted(shelf, &env);
            check(&mut shelf, &rows, &what);
            // Encoded by now, or gathered.
            shelf.simulation.run_until_idle().expect("maintenance ends");
            check(&mut shelf, &rows, &format!("{what}, later"));
            change(&mut shelf, &mut rows);
            check(&mut shelf, &rows, &format!("{what}, changed"));
            if checkpoint {
                shelf.checkpoint();
            }
            shelf = restarted(shelf, &env);
            check(&mut shelf, &rows, &format!("{what}, changed and restarted"));
        }
    }
}
