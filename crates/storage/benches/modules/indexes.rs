//! Modules that index rows: insert in random order, lookups one by one and in batches, memory, for keys of four and
//! eight bytes and for texts.

use crate::report::{Report, number, text, time};
use crate::rows::value;
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AddressingMode, AttributeId, Column, ColumnBuilder, DataType, IndexPath, PathAttribute, PathConfiguration,
    PathInstance, Registry, RowAddress, RowOffset, SegmentNumber,
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

fn measure(module: &'static str, data_type: DataType, entries: usize, report: &mut Report) {
    let memory = MemoryPool::unlimited();
    let attribute = PathAttribute { id: AttributeId(0), data_type, nullable: false };
    let configuration =
        PathConfiguration { attributes: &[attribute], rows_max: 0, memory: &memory, dictionaries: None };
    let factory = Registry::standard().module(module).unwrap();
    let PathInstance::Index(mut path) = factory.create(configuration) else { return };
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

/// Entries up to five eighths of `elements`: ten million of sixteen.
pub fn run(elements: usize, report: &mut Report) {
    let entries = elements * 5 / 8;
    let indexes = Registry::standard().iter().filter(|module| module.properties().addressing == AddressingMode::Value);
    for factory in indexes {
        for size in [entries / 256, entries / 16, entries] {
            for data_type in [DataType::Int32, DataType::Int64] {
                measure(factory.name(), data_type, size, report);
            }
        }
        measure(factory.name(), DataType::Text, entries / 4, report);
    }
}
