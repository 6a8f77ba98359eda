//! Modules that index rows: insert in random order, lookups one by one and in batches, memory, for keys of four and
//! eight bytes and for texts, each with one row. Then the same for keys that many rows share, inserted in the order of
//! the rows, and removal in random order.

use crate::report::{Report, number, text, time};
use crate::rows::value;
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AccessPathFactory, AddressingMode, AttributeId, Column, ColumnBuilder, DataType, IndexPath, PathAttribute,
    PathConfiguration, PathInstance, Registry, RowAddress, RowOffset, SegmentNumber,
};

/// Keys of a message in the key-value benchmark of 004.
const LOOKUPS: usize = 1_000;

fn address(row: usize) -> RowAddress {
    RowAddress::new(SegmentNumber((row >> 16) as u32), RowOffset(row as u32 & 0xFFFF))
}

fn keys(numbers: &[u64], data_type: DataType) -> [Column; 1] {
    let mut builder = ColumnBuilder::with_capacity(data_type, numbers.len());
    for number in numbers {
        builder.push(&value(*number as i64, data_type));
    }
    [builder.finish()]
}

fn one_by_one(path: &dyn IndexPath, batches: &[[Column; 1]]) -> u64 {
    let mut total = 0_u64;
    for columns in batches {
        for row in 0..LOOKUPS {
            path.equal(columns, row, &mut |address| total += u64::from(address.offset().0));
        }
    }
    total
}

fn in_batches(path: &dyn IndexPath, batches: &[[Column; 1]]) -> u64 {
    let mut total = 0_u64;
    for columns in batches {
        path.equal_many(columns, 0..LOOKUPS, &mut |_, address| total += u64::from(address.offset().0));
    }
    total
}

/// An empty index of one attribute.
fn create(module: &str, data_type: DataType) -> Option<Box<dyn IndexPath>> {
    let memory = MemoryPool::unlimited();
    let attribute = PathAttribute { id: AttributeId(0), data_type, nullable: false };
    let configuration =
        PathConfiguration { attributes: &[attribute], rows_max: 0, memory: &memory, dictionaries: None };
    match Registry::standard().module(module).unwrap().create(configuration) {
        PathInstance::Index(path) => Some(path),
        PathInstance::Rows(_) => None,
    }
}

fn measure(module: &'static str, data_type: DataType, entries: usize, report: &mut Report) {
    let Some(mut path) = create(module, data_type) else { return };
    let mut random = SeededRandom::new(2);
    let mut numbers: Vec<u64> = (0..entries as u64).collect();
    random.shuffle(&mut numbers);
    let mut insert = 0.0;
    for (batch, numbers) in numbers.chunks(LOOKUPS).enumerate() {
        let columns = keys(numbers, data_type);
        insert += time(|| {
            for row in 0..numbers.len() {
                path.insert(&columns, row, address(batch * LOOKUPS + row)).unwrap();
            }
        })
        .0;
    }
    let batches: Vec<[Column; 1]> = (0..(entries / LOOKUPS).clamp(1, 500))
        .map(|_| {
            let wanted: Vec<u64> = (0..LOOKUPS).map(|_| random.below(entries as u64)).collect();
            keys(&wanted, data_type)
        })
        .collect();
    let lookups = (batches.len() * LOOKUPS) as f64;
    let single = report.best(|| one_by_one(&*path, &batches));
    let many = report.best(|| in_batches(&*path, &batches));
    report.add(&[
        text("part", "indexes"),
        text("module", module),
        text("key", &data_type.to_string()),
        number("entries", entries as f64),
        number("insert_ns", insert / entries as f64),
        number("lookup_ns", single / lookups),
        number("batched_lookup_ns", many / lookups),
        number("memory_bytes_per_entry", path.bytes() as f64 / entries as f64),
    ]);
}

/// How keys lie in the rows.
#[derive(Clone, Copy)]
enum Spread {
    Random,
    /// One row in so many as there are keys.
    InTurns,
    Sorted,
}

/// Keys that many rows share. Times are per row that a lookup finds.
fn measure_shared(module: &'static str, keys_count: u64, entries: usize, spread: Spread, report: &mut Report) {
    let Some(mut path) = create(module, DataType::Int32) else { return };
    let mut random = SeededRandom::new(2);
    let number_of = |random: &mut SeededRandom, row: usize| match spread {
        Spread::Random => random.below(keys_count),
        Spread::InTurns => row as u64 % keys_count,
        Spread::Sorted => row as u64 * keys_count / entries as u64,
    };
    let numbers: Vec<u64> = (0..entries).map(|row| number_of(&mut random, row)).collect();
    let columns = keys(&numbers, DataType::Int32);
    let insert = time(|| {
        for row in 0..entries {
            path.insert(&columns, row, address(row)).unwrap();
        }
    })
    .0;
    let bytes = path.bytes();
    let wanted: Vec<u64> = (0..LOOKUPS).map(|_| random.below(keys_count)).collect();
    let batches = [keys(&wanted, DataType::Int32)];
    let mut found = 0_u64;
    path.equal_many(&batches[0], 0..LOOKUPS, &mut |_, _| found += 1);
    let single = report.best(|| one_by_one(&*path, &batches));
    let many = report.best(|| in_batches(&*path, &batches));
    let mut rows: Vec<usize> = (0..entries).collect();
    random.shuffle(&mut rows);
    let remove = time(|| rows.iter().for_each(|row| assert!(path.remove(&columns, *row, address(*row))))).0;
    let spread = match spread {
        Spread::Random => "random",
        Spread::InTurns => "in turns",
        Spread::Sorted => "sorted",
    };
    report.add(&[
        text("part", "indexes with shared keys"),
        text("module", module),
        text("spread", spread),
        number("keys", keys_count as f64),
        number("entries", entries as f64),
        number("insert_ns", insert / entries as f64),
        number("lookup_ns_per_row", single / found.max(1) as f64),
        number("batched_lookup_ns_per_row", many / found.max(1) as f64),
        number("remove_ns", remove / entries as f64),
        number("memory_bytes_per_entry", bytes as f64 / entries as f64),
    ]);
}

fn indexes() -> impl Iterator<Item = &'static dyn AccessPathFactory> {
    Registry::standard().iter().filter(|module| module.properties().addressing == AddressingMode::Value)
}

/// Entries up to five eighths of `elements`: ten million of sixteen.
pub fn run(elements: usize, report: &mut Report) {
    let entries = elements * 5 / 8;
    for factory in indexes() {
        for size in [entries / 256, entries / 16, entries] {
            for data_type in [DataType::Int32, DataType::Int64] {
                measure(factory.name(), data_type, size, report);
            }
        }
        measure(factory.name(), DataType::Text, entries / 4, report);
    }
}

/// Rows up to a sixteenth of `elements`: a million of sixteen.
pub fn run_shared(elements: usize, report: &mut Report) {
    let rows = elements / 16;
    for factory in indexes() {
        measure_shared(factory.name(), 1_000, rows, Spread::InTurns, report);
        measure_shared(factory.name(), 1_000, rows, Spread::Sorted, report);
        for keys_count in [2, 1_000, 100_000] {
            measure_shared(factory.name(), keys_count, rows, Spread::Random, report);
        }
    }
}
