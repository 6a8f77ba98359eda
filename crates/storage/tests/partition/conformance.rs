//! Every storage module of the registry against the same reference: inserts, pushed-down filters, links, sharing,
//! index scans in both directions, removal, memory.

use crate::history::generate;
use eris_platform::memory::MemoryPool;
use eris_platform::{Arena, NodeId, SeededRandom};
use eris_storage::{
    AccessPath, AccessPathFactory, AccessPathScanState, AddressingMode, AttributeId, Batch, Column, ColumnBuilder,
    Count, DataType, IndexPath, IndexScanState, Key, KeyEncoder, KeyPart, PathAttribute, PathConfiguration, PathFilter,
    PathInstance, Predicate, Registry, RowAddress, RowOffset, Schema, SegmentNumber, StorageError, Value,
};
use std::sync::Arc;

fn attributes(schema: &Schema) -> Vec<PathAttribute> {
    let attributes = schema.attributes.iter().enumerate();
    attributes
        .map(|(position, attribute)| PathAttribute {
            id: AttributeId(position as u16),
            data_type: attribute.data_type,
            nullable: attribute.nullable,
        })
        .collect()
}

fn create(
    factory: &dyn AccessPathFactory,
    attributes: &[PathAttribute],
    rows_max: u32,
    memory: &Arc<MemoryPool>,
) -> PathInstance {
    factory.create(PathConfiguration { attributes, rows_max, memory })
}

#[test]
fn properties_say_what_a_module_makes() {
    let memory = MemoryPool::unlimited();
    let schema = generate::schema(&mut SeededRandom::new(1), false);
    for factory in Registry::standard().iter() {
        let properties = factory.properties();
        assert_eq!(Registry::standard().module(factory.name()).unwrap().name(), factory.name());
        match create(factory, &attributes(&schema), 10, &memory) {
            PathInstance::Rows(path) => {
                assert_eq!(path.module(), factory.name());
                assert_ne!(properties.addressing, AddressingMode::Value);
                assert_eq!((properties.attributes, properties.keys), (Count::Any, Count::None));
            }
            PathInstance::Index(path) => {
                assert_eq!(path.module(), factory.name());
                assert_eq!(properties.addressing, AddressingMode::Value);
                assert_eq!((properties.attributes, properties.keys), (Count::None, Count::Any));
            }
        }
    }
    assert!(Registry::standard().module("no such module").is_none());
}

fn check_rows(path: &dyn AccessPath, schema: &Schema, rows: &[Vec<Value>], predicate: &Predicate, seed: u64) {
    let mut random = SeededRandom::new(seed + 1_000_000);
    let selected: Vec<u16> = (0..predicate.conditions.len() as u16).collect();
    let filter = PathFilter { conditions: &predicate.conditions, selected: &selected };
    let mut state = AccessPathScanState::default();
    let first = random.below(rows.len() as u64 + 1) as u32;
    let window = first..random.between(i64::from(first), rows.len() as i64) as u32;
    let qualifies = |offset: &u32| predicate.accepts(&rows[*offset as usize]);
    let mut found = vec![u32::MAX];
    path.scan(&mut state, filter, window.clone(), &mut found).unwrap();
    let expected: Vec<u32> = window.clone().filter(qualifies).collect();
    assert_eq!(found[1..], expected, "seed {seed} {} {predicate:?}", path.module());

    let mut listed: Vec<u32> = (0..rows.len() as u32).collect();
    random.shuffle(&mut listed);
    listed.truncate(random.index(rows.len()) + 1);
    let expected: Vec<u32> = listed.iter().copied().filter(qualifies).collect();
    let all = listed.clone();
    path.retain(&mut state, filter, &mut listed).unwrap();
    assert_eq!(listed, expected, "seed {seed} {} {predicate:?}", path.module());

    for (position, attribute) in schema.attributes.iter().enumerate() {
        let id = AttributeId(position as u16);
        let mut out = ColumnBuilder::with_capacity(attribute.data_type, all.len());
        path.link(id, &all, &mut out);
        let column = out.finish();
        let values: Vec<Value> = (0..column.len()).map(|row| column.value(row)).collect();
        let expected: Vec<Value> = all.iter().map(|row| rows[*row as usize][position].clone()).collect();
        assert_eq!(values, expected, "seed {seed} {} {}", path.module(), attribute.name);
        if let Some(shared) = path.shared(id, window.clone()) {
            let values: Vec<Value> = (0..shared.len()).map(|row| shared.value(row)).collect();
            let expected: Vec<Value> = window.clone().map(|row| rows[row as usize][position].clone()).collect();
            assert_eq!(values, expected, "seed {seed} {} {}", path.module(), attribute.name);
        }
    }
}

#[test]
fn row_paths_hold_what_they_were_given() {
    for seed in 0..150 {
        for factory in Registry::standard().iter() {
            let mut random = SeededRandom::new(seed);
            let memory = MemoryPool::unlimited();
            let schema = generate::schema(&mut random, false);
            let rows_max = random.between(1, 3_000) as u32;
            let PathInstance::Rows(mut path) = create(factory, &attributes(&schema), rows_max, &memory) else {
                continue;
            };
            let mut rows: Vec<Vec<Value>> = Vec::new();
            while rows.len() < rows_max as usize && random.chance(0.9) {
                let count = random.index((rows_max as usize - rows.len()).min(400)) + 1;
                let new: Vec<Vec<Value>> = (0..count).map(|n| generate::row(&mut random, &schema, n as i64)).collect();
                let batch = Batch::from_rows(&schema.data_types(), &new);
                let from = random.index(count);
                path.insert(&batch, from..count).unwrap();
                rows.extend_from_slice(&new[from..]);
                assert_eq!(path.rows() as usize, rows.len());
                assert_eq!(path.bytes(), memory.used());
                check_rows(&*path, &schema, &rows, &generate::predicate(&mut random), seed);
            }
            if rows.is_empty() {
                continue;
            }
            path.freeze();
            for _ in 0..5 {
                check_rows(&*path, &schema, &rows, &generate::predicate(&mut random), seed);
            }
            // Moved to node-local memory, or left where it was: the same rows, and every byte accounted for.
            let arena = Arena::new(NodeId(0), &memory);
            while path.place(&arena) {}
            assert_eq!(path.bytes(), memory.used(), "{} counts what lies in the arena", factory.name());
            for _ in 0..5 {
                check_rows(&*path, &schema, &rows, &generate::predicate(&mut random), seed);
            }
            let shares = path.shared(AttributeId(0), 0..1).is_some();
            assert_eq!(shares, factory.properties().shares_frozen_columns, "{}", factory.name());
            drop(path);
            assert_eq!(memory.used(), 0);
        }
    }
}

#[test]
fn row_paths_refuse_what_does_not_fit_in_memory_and_stay_whole() {
    for factory in Registry::standard().iter() {
        for limit in (0..200_000).step_by(7_777) {
            let mut random = SeededRandom::new(limit);
            let memory = MemoryPool::new(limit);
            let schema = generate::schema(&mut random, false);
            let PathInstance::Rows(mut path) = create(factory, &attributes(&schema), 5_000, &memory) else { continue };
            let mut rows: Vec<Vec<Value>> = Vec::new();
            loop {
                let new: Vec<Vec<Value>> = (0..50).map(|n| generate::row(&mut random, &schema, n)).collect();
                match path.insert(&Batch::from_rows(&schema.data_types(), &new), 0..50) {
                    Ok(()) => rows.extend(new),
                    Err(StorageError::Memory(_)) => break,
                    Err(error) => panic!("{error}"),
                }
                if rows.len() == 5_000 {
                    break;
                }
            }
            assert!(memory.used() <= limit);
            assert_eq!(path.rows() as usize, rows.len());
            if !rows.is_empty() {
                check_rows(&*path, &schema, &rows, &generate::predicate(&mut random), limit);
            }
        }
    }
}

/// Key attributes that make keys of each width, tagged and not.
const KEYS: [&[u16]; 6] = [&[1], &[0], &[7, 8], &[3, 6, 5], &[2, 1], &[4]];

fn address(row: usize) -> RowAddress {
    RowAddress::new(SegmentNumber(row as u32 / 100), RowOffset(row as u32 % 100))
}

fn collect(path: &dyn IndexPath, mut state: IndexScanState, step: usize) -> Vec<RowAddress> {
    let mut found = Vec::new();
    while path.scan(&mut state, step, &mut found) {}
    found
}

#[test]
fn indexes_keep_pairs_in_key_order() {
    for seed in 0..60 {
        for (factory, key) in Registry::standard().iter().flat_map(|factory| KEYS.map(|key| (factory, key))) {
            let mut random = SeededRandom::new(seed);
            let memory = MemoryPool::unlimited();
            let schema = generate::schema(&mut random, false);
            let all = attributes(&schema);
            let held: Vec<PathAttribute> = key.iter().map(|id| all[usize::from(*id)]).collect();
            let PathInstance::Index(mut path) = create(factory, &held, 0, &memory) else { continue };
            let count = random.index(600) + 1;
            let rows: Vec<Vec<Value>> = (0..count)
                .map(|_| {
                    let serial = random.between(0, 60);
                    generate::row(&mut random, &schema, serial)
                })
                .collect();
            let batch = Batch::from_rows(&schema.data_types(), &rows);
            let columns: Vec<Column> = key.iter().map(|id| batch.columns[usize::from(*id)].clone()).collect();
            let key_of =
                |row: usize| -> Vec<Value> { key.iter().map(|id| rows[row][usize::from(*id)].clone()).collect() };
            let mut present: Vec<usize> = Vec::new();
            for row in 0..count {
                let inserted = path.insert(&columns, row, address(row)).unwrap();
                assert_eq!(inserted.key_shared, present.iter().any(|other| key_of(*other) == key_of(row)));
                present.push(row);
                path.insert(&columns, row, address(row)).unwrap();
                if random.chance(0.3) {
                    let gone = present.swap_remove(random.index(present.len()));
                    assert!(path.remove(&columns, gone, address(gone)));
                    assert!(!path.remove(&columns, gone, address(gone)));
                }
            }
            assert_eq!(path.entries() as usize, present.len());
            present.sort_by_key(|row| (key_of(*row), *row));
            let expected: Vec<RowAddress> = present.iter().map(|row| address(*row)).collect();
            let step = random.index(70) + 1;
            let everything = |descending| IndexScanState::new(Key::lowest(), None, descending);
            assert_eq!(collect(&*path, everything(false), step), expected, "seed {seed} {key:?}");
            let backwards: Vec<RowAddress> = expected.iter().rev().copied().collect();
            assert_eq!(collect(&*path, everything(true), step), backwards, "seed {seed} {key:?}");

            let probe = random.index(count);
            let mut equal = Vec::new();
            path.equal(&columns, probe, &mut |found| equal.push(found));
            let same = present.iter().filter(|row| key_of(**row) == key_of(probe));
            assert_eq!(equal, same.map(|row| address(*row)).collect::<Vec<_>>());

            let encode = |row: usize, parts: &[KeyPart]| {
                let mut encoder = KeyEncoder::new();
                for (column, part) in columns.iter().zip(parts) {
                    encoder.push_row(column, row, *part);
                }
                encoder.finish()
            };
            let (low, high) = (encode(probe, path.parts()), encode(random.index(count), path.parts()));
            let within = present.iter().filter(|row| {
                let key = encode(**row, path.parts());
                key >= low && key < high
            });
            let expected: Vec<RowAddress> = within.map(|row| address(*row)).collect();
            let share = path.share(&low, Some(&high));
            let range = |descending| IndexScanState::new(low.clone(), Some(high.clone()), descending);
            assert_eq!(collect(&*path, range(false), step), expected, "seed {seed} {key:?}");
            let mut backwards = collect(&*path, range(true), step);
            backwards.reverse();
            assert_eq!(backwards, expected, "seed {seed} {key:?}");
            assert!((share * present.len() as f64 - expected.len() as f64).abs() <= 0.2 * present.len() as f64 + 3.0);
            drop(path);
            assert_eq!(memory.used(), 0);
        }
    }
}

#[test]
fn frozen_columns_move_to_an_arena_that_has_room() {
    let memory = MemoryPool::unlimited();
    let column = Registry::standard().module("column").unwrap();
    let attribute = PathAttribute { id: AttributeId(0), data_type: DataType::Int64, nullable: false };
    let rows: Vec<Vec<Value>> = (0..20_000).map(|n| vec![Value::Int64(n)]).collect();
    let frozen = || {
        let PathInstance::Rows(mut path) = create(column, &[attribute], 20_000, &memory) else { panic!("rows") };
        path.insert(&Batch::from_rows(&[DataType::Int64], &rows), 0..20_000).unwrap();
        path.freeze();
        path
    };
    let mut path = frozen();
    let arena = Arena::new(NodeId(0), &memory);
    assert_eq!(path.home(), None);
    while path.place(&arena) {}
    assert!(arena.allocated_bytes() >= 160_000 && path.bytes() == arena.allocated_bytes());
    assert_eq!(path.home(), Some(NodeId(0)));
    assert_eq!(path.shared(AttributeId(0), 7..8).unwrap().value(0), Value::Int64(7));
    drop(path);
    assert_eq!((arena.allocated_bytes(), memory.used()), (0, 0));
    // An arena at its limit: the rows stay where they are.
    let full = Arena::new(NodeId(0), &MemoryPool::new(100_000));
    let mut path = frozen();
    while path.place(&full) {}
    assert_eq!((full.allocated_bytes(), path.bytes(), path.home()), (0, memory.used(), None));
    assert_eq!(path.shared(AttributeId(0), 7..8).unwrap().value(0), Value::Int64(7));
}

#[test]
fn unfiltered_columns_are_not_copied() {
    let memory = MemoryPool::unlimited();
    let column = Registry::standard().module("column").unwrap();
    let attribute = PathAttribute { id: AttributeId(0), data_type: DataType::Int64, nullable: false };
    let PathInstance::Rows(mut path) = create(column, &[attribute], 100, &memory) else { panic!("columns hold rows") };
    let rows: Vec<Vec<Value>> = (0..100).map(|n| vec![Value::Int64(n)]).collect();
    path.insert(&Batch::from_rows(&[DataType::Int64], &rows), 0..100).unwrap();
    path.freeze();
    let pointer = |column: &Column| match &column.values {
        eris_storage::Values::Int64(buffer) => buffer.as_ptr(),
        other => panic!("{other:?}"),
    };
    let (whole, part) = (path.shared(AttributeId(0), 0..100).unwrap(), path.shared(AttributeId(0), 40..60).unwrap());
    assert_eq!(pointer(&whole).wrapping_add(40), pointer(&part));
}
