//! Modules that hold rows: insert, scan, lookup (a scan for one value) and link (a batch of random rows), for four-byte
//! integers, alone or several attributes together.

use crate::report::{Report, number, text, time};
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AccessPath, AccessPathScanState, AttributeId, Batch, Column, ColumnBuilder, Comparison, Condition, DataType,
    PathAttribute, PathConfiguration, PathFilter, PathInstance, Registry, Test, Value, Values,
};

/// Rows of a batch, as micro-operators get them.
const BATCH_ROWS: usize = 2_048;
/// Elements inserted at least, into one path after the other.
const INSERTED_MIN: usize = 4 << 20;
/// Attributes held together.
const ATTRIBUTES: [u16; 3] = [1, 4, 16];

fn column(rows: std::ops::Range<usize>, attribute: u16) -> Column {
    let mut builder = ColumnBuilder::with_capacity(DataType::Int32, rows.len());
    rows.for_each(|row| builder.push_i32((row as i32).wrapping_mul(0x9E37_79B1_u32 as i32) ^ i32::from(attribute)));
    builder.finish()
}

fn sum(column: &Column) -> u64 {
    let Values::Int32(values) = &column.values else { unreachable!("the benchmark holds integers") };
    values.iter().map(|value| i64::from(*value)).sum::<i64>() as u64
}

fn scan(path: &dyn AccessPath, attributes: u16, rows: usize) -> u64 {
    let mut total = 0_u64;
    let mut offsets = Vec::with_capacity(BATCH_ROWS);
    for start in (0..rows).step_by(BATCH_ROWS) {
        let window = start as u32..(start + BATCH_ROWS).min(rows) as u32;
        offsets.clear();
        offsets.extend(window.clone());
        for id in (0..attributes).map(AttributeId) {
            let column = path.shared(id, window.clone()).unwrap_or_else(|| {
                let mut builder = ColumnBuilder::with_capacity(DataType::Int32, window.len());
                path.link(id, &offsets, &mut builder);
                builder.finish()
            });
            total = total.wrapping_add(sum(&column));
        }
    }
    total
}

fn lookup(path: &dyn AccessPath, rows: usize) -> u64 {
    let wanted = column(rows / 2..rows / 2 + 1, 0).value(0);
    let test = Test::Compare(Comparison::Equal, wanted);
    let conditions = [Condition { attribute: AttributeId(0), test }];
    let filter = PathFilter { conditions: &conditions, selected: &[0] };
    let (mut state, mut found) = (AccessPathScanState::default(), Vec::new());
    for start in (0..rows).step_by(BATCH_ROWS) {
        path.scan(&mut state, filter, start as u32..(start + BATCH_ROWS).min(rows) as u32, &mut found).unwrap();
    }
    assert!(found.contains(&(rows as u32 / 2)));
    found.len() as u64
}

fn link(path: &dyn AccessPath, attributes: u16, batches: &[Vec<u32>]) -> u64 {
    let mut total = 0_u64;
    for offsets in batches {
        for id in (0..attributes).map(AttributeId) {
            let mut builder = ColumnBuilder::with_capacity(DataType::Int32, offsets.len());
            path.link(id, offsets, &mut builder);
            total = total.wrapping_add(sum(&builder.finish()));
        }
    }
    total
}

fn measure(module: &'static str, attributes: u16, elements: usize, report: &mut Report) {
    let rows = elements / usize::from(attributes);
    let held: Vec<PathAttribute> = (0..attributes)
        .map(|id| PathAttribute { id: AttributeId(id), data_type: DataType::Int32, nullable: false })
        .collect();
    let memory = MemoryPool::unlimited();
    let configuration =
        PathConfiguration { attributes: &held, rows_max: rows as u32, memory: &memory, dictionaries: None };
    let factory = Registry::standard().module(module).unwrap();
    let PathInstance::Rows(mut path) = factory.create(configuration) else { return };
    // The clock ticks every few milliseconds: small paths are filled often.
    let fillings = if report.is_tiny() { 1 } else { (INSERTED_MIN / elements).max(1) };
    let mut insert = 0.0;
    for _ in 0..fillings {
        let PathInstance::Rows(empty) = factory.create(configuration) else { return };
        path = empty;
        for start in (0..rows).step_by(BATCH_ROWS) {
            let range = start..(start + BATCH_ROWS).min(rows);
            let columns: Vec<Column> = (0..attributes).map(|id| column(range.clone(), id)).collect();
            let batch = Batch::new(columns, range.len());
            insert += time(|| path.insert(&batch, 0..batch.rows).unwrap()).0 / fillings as f64;
        }
    }
    path.freeze();
    let mut random = SeededRandom::new(1);
    let batches: Vec<Vec<u32>> = (0..(rows / BATCH_ROWS).clamp(1, 200))
        .map(|_| (0..BATCH_ROWS).map(|_| random.below(rows as u64) as u32).collect())
        .collect();
    let linked = batches.len() * BATCH_ROWS * usize::from(attributes);
    let scan = report.best(|| scan(&*path, attributes, rows));
    let lookup = report.best(|| lookup(&*path, rows));
    let link = report.best(|| link(&*path, attributes, &batches));
    let elements = rows * usize::from(attributes);
    report.add(&[
        text("part", "rows"),
        text("module", module),
        number("elements", elements as f64),
        number("attributes", f64::from(attributes)),
        number("element_bytes", 4.0),
        number("insert_ns", insert / elements as f64),
        number("scan_ns", scan / elements as f64),
        number("lookup_ns_per_row", lookup / rows as f64),
        number("link_ns", link / linked as f64),
        number("memory_bytes_per_element", path.bytes() as f64 / elements as f64),
    ]);
}

/// Sizes up to `elements`, each sixteen times the one before.
pub fn run(elements: usize, report: &mut Report) {
    let sizes: Vec<usize> = std::iter::successors(Some(elements), |size| Some(size / 16)).take(3).collect();
    for factory in Registry::standard().iter() {
        for size in sizes.iter().rev().filter(|size| **size >= 16) {
            measure(factory.name(), 1, *size, report);
        }
        for attributes in &ATTRIBUTES[1..] {
            measure(factory.name(), *attributes, elements, report);
        }
    }
}

/// A value of the type the benchmark stores.
pub fn value(number: i64, data_type: DataType) -> Value {
    match data_type {
        DataType::Int32 => Value::Int32(number as i32),
        DataType::Int64 => Value::Int64(number),
        _ => Value::Text(format!("customer {number:>20}").into()),
    }
}
