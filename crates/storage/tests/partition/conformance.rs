//! Every storage module of the registry against the same reference: inserts, pushed-down filters, links, sharing,
//! index scans in both directions, removal, memory.

use crate::history::generate;
use eris_platform::memory::MemoryPool;
use eris_platform::{Arena, NodeId, SeededRandom, test_load};
use eris_storage::{
    AccessPath, AccessPathFactory, AccessPathScanState, AddressingMode, AttributeId, Batch, Column, ColumnBuilder,
    Condition, ContainerDictionaries, Count, DataType, FixedValue, IndexPath, IndexScanState, Key, KeyEncoder, KeyPart,
    PackedRows, PathAttribute, PathConfiguration, PathFilter, PathInstance, Predicate, Properties, Registry,
    RowAddress, RowFormat, RowOffset, Schema, SegmentNumber, StorageError, Test, Value,
};
use std::sync::Arc;

/// The attributes of a schema that a module can hold, or index.
fn attributes(schema: &Schema, properties: Properties) -> Vec<PathAttribute> {
    let attributes = schema.attributes.iter().enumerate();
    attributes
        .map(|(position, attribute)| PathAttribute {
            id: AttributeId(position as u16),
            data_type: attribute.data_type,
            nullable: attribute.nullable,
        })
        .filter(|attribute| properties.variable_length || !attribute.data_type.is_variable_length())
        .filter(|attribute| properties.nulls || !attribute.nullable)
        .collect()
}

fn create(
    factory: &dyn AccessPathFactory,
    attributes: &[PathAttribute],
    rows_max: u32,
    memory: &Arc<MemoryPool>,
) -> PathInstance {
    // What is shared is no path's.
    let dictionaries = ContainerDictionaries::new(&MemoryPool::unlimited());
    factory.create(PathConfiguration { attributes, rows_max, memory, dictionaries: Some(&dictionaries) })
}

#[test]
fn properties_say_what_a_module_makes() {
    let memory = MemoryPool::unlimited();
    let schema = generate::schema(&mut SeededRandom::new(1), false);
    for factory in Registry::standard().iter() {
        let properties = factory.properties();
        assert_eq!(Registry::standard().module(factory.name()).unwrap().name(), factory.name());
        match create(factory, &attributes(&schema, factory.properties()), 10, &memory) {
            PathInstance::Rows(path) => {
                assert_eq!(path.module(), factory.name());
                assert_ne!(properties.addressing, AddressingMode::Value);
                assert_eq!((properties.attributes, properties.keys), (Count::Any, Count::None));
                assert!(!properties.key_order);
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

/// A predicate that tests attributes of the path only.
fn predicate_on(held: &[PathAttribute], random: &mut SeededRandom) -> Predicate {
    let holds = |id: AttributeId| held.iter().any(|attribute| attribute.id == id);
    let conditions = generate::predicate(random).conditions;
    let fits = |condition: &&Condition| {
        holds(condition.attribute)
            && match condition.test {
                Test::CompareAttribute(_, other) => holds(other),
                _ => true,
            }
    };
    Predicate::new(conditions.iter().filter(fits).cloned().collect::<Vec<_>>())
}

/// Compares a path with rows (of all attributes of the schema, of which the path may hold some).
/// No rows of these types, row-wise.
fn packed_rows(types: Vec<DataType>) -> PackedRows {
    let mut packed = PackedRows::default();
    packed.clear(&Arc::new(RowFormat::new(types)));
    packed
}

/// A row leaves row-wise as it came, whole or in part.
fn check_packed(path: &dyn AccessPath, held: &[PathAttribute], rows: &[Vec<Value>], random: &mut SeededRandom) {
    let mut chosen = held.to_vec();
    if random.chance(0.7) {
        random.shuffle(&mut chosen);
        chosen.truncate(random.index(held.len()) + 1);
    }
    let ids: Vec<AttributeId> = chosen.iter().map(|attribute| attribute.id).collect();
    let mut packed = packed_rows(chosen.iter().map(|attribute| attribute.data_type).collect());
    for position in 0..3 {
        let row = random.index(rows.len());
        packed.push_row();
        path.pack(&ids, row as u32, &mut packed);
        for (column, id) in ids.iter().enumerate() {
            assert_eq!(packed.value(position, column), rows[row][id.index()], "{} packs {id}", path.module());
        }
    }
}

fn check_rows(path: &dyn AccessPath, held: &[PathAttribute], rows: &[Vec<Value>], predicate: &Predicate, seed: u64) {
    let mut random = SeededRandom::new(seed + 1_000_000);
    // Conditions that are not selected belong to other paths.
    let selected: Vec<u16> = (0..predicate.conditions.len() as u16).filter(|_| random.chance(0.8)).collect();
    let asked =
        Predicate::new(selected.iter().map(|at| predicate.conditions[usize::from(*at)].clone()).collect::<Vec<_>>());
    let filter = PathFilter { conditions: &predicate.conditions, selected: &selected };
    let mut state = AccessPathScanState::default();
    let first = random.below(rows.len() as u64 + 1) as u32;
    let window = first..random.between(i64::from(first), rows.len() as i64) as u32;
    let qualifies = |offset: &u32| asked.accepts(&rows[*offset as usize]);
    let mut found = vec![u32::MAX];
    path.scan(&mut state, filter, window.clone(), &mut found).unwrap();
    let expected: Vec<u32> = window.clone().filter(qualifies).collect();
    assert_eq!(found[1..], expected, "seed {seed} {} {predicate:?}", path.module());

    // What a scan found is in the rows' order, and often most of them.
    for attribute in held {
        let mut out = ColumnBuilder::with_capacity(attribute.data_type, expected.len());
        path.link(attribute.id, &expected, &mut out);
        let column = out.finish();
        let value = |row: &u32| &rows[*row as usize][attribute.id.index()];
        let linked = expected.iter().enumerate().all(|(position, row)| column.value(position) == *value(row));
        assert!(linked && column.len() == expected.len(), "seed {seed} {} {}", path.module(), attribute.id);
    }

    let mut listed: Vec<u32> = (0..rows.len() as u32).collect();
    random.shuffle(&mut listed);
    listed.truncate(random.index(rows.len()) + 1);
    let expected: Vec<u32> = listed.iter().copied().filter(qualifies).collect();
    let all = listed.clone();
    path.retain(&mut state, filter, &mut listed).unwrap();
    assert_eq!(listed, expected, "seed {seed} {} {predicate:?}", path.module());

    for attribute in held {
        let (id, position) = (attribute.id, attribute.id.index());
        let mut out = ColumnBuilder::with_capacity(attribute.data_type, all.len());
        path.link(id, &all, &mut out);
        let column = out.finish();
        let values: Vec<Value> = (0..column.len()).map(|row| column.value(row)).collect();
        let expected: Vec<Value> = all.iter().map(|row| rows[*row as usize][position].clone()).collect();
        assert_eq!(values, expected, "seed {seed} {} {id}", path.module());
        if let Some(gathered) = path.gather(id, &all) {
            let values: Vec<Value> = (0..gathered.len()).map(|row| gathered.value(row)).collect();
            assert_eq!(values, expected, "seed {seed} {} {id}", path.module());
        }
        if let Some(shared) = path.shared(id, window.clone()) {
            let values: Vec<Value> = (0..shared.len()).map(|row| shared.value(row)).collect();
            let expected: Vec<Value> = window.clone().map(|row| rows[row as usize][position].clone()).collect();
            assert_eq!(values, expected, "seed {seed} {} {id}", path.module());
        }
    }
}

fn check_empty(path: &dyn AccessPath, held: &[PathAttribute]) {
    let mut found = Vec::new();
    path.scan(&mut AccessPathScanState::default(), PathFilter { conditions: &[], selected: &[] }, 0..0, &mut found)
        .unwrap();
    assert_eq!((path.rows(), found), (0, Vec::new()));
    for attribute in held {
        let mut out = ColumnBuilder::with_capacity(attribute.data_type, 0);
        path.link(attribute.id, &[], &mut out);
        assert!(out.is_empty());
    }
}

#[test]
fn row_paths_hold_what_they_were_given() {
    for seed in 0..test_load(150) {
        for factory in Registry::standard().iter() {
            let mut random = SeededRandom::new(seed);
            let memory = MemoryPool::unlimited();
            let schema = generate::schema(&mut random, false);
            let rows_max = random.between(1, 3_000) as u32;
            let held = attributes(&schema, factory.properties());
            let PathInstance::Rows(mut path) = create(factory, &held, rows_max, &memory) else { continue };
            if path.gives_handles() {
                // Offsets would be handles: tested with the linkage around it.
                continue;
            }
            check_empty(&*path, &held);
            let mut rows: Vec<Vec<Value>> = Vec::new();
            while rows.len() < rows_max as usize && random.chance(0.9) {
                let count = random.index((rows_max as usize - rows.len()).min(400)) + 1;
                let new: Vec<Vec<Value>> = (0..count).map(|n| generate::row(&mut random, &schema, n as i64)).collect();
                let batch = Batch::from_rows(&schema.data_types(), &new);
                let from = random.index(count);
                if random.chance(0.5) {
                    path.insert(&batch, from..count).unwrap();
                } else {
                    let mut packed = packed_rows(schema.data_types());
                    packed.extend(&batch);
                    path.insert_packed(&packed, from..count).unwrap();
                }
                rows.extend_from_slice(&new[from..]);
                assert_eq!(path.rows() as usize, rows.len());
                assert_eq!(path.bytes(), memory.used());
                check_packed(&*path, &held, &rows, &mut random);
                check_rows(&*path, &held, &rows, &predicate_on(&held, &mut random), seed);
                if path.truncates() && random.chance(0.3) {
                    let (before, left) = (path.bytes(), random.index(rows.len() + 1) / 2);
                    path.truncate(left as u32);
                    rows.truncate(left);
                    assert_eq!((path.rows() as usize, path.bytes()), (left, memory.used()), "{}", factory.name());
                    assert!(path.bytes() <= before && (left > 0 || path.bytes() == 0), "{}", factory.name());
                }
            }
            if rows.is_empty() {
                continue;
            }
            path.freeze();
            for _ in 0..5 {
                check_rows(&*path, &held, &rows, &predicate_on(&held, &mut random), seed);
            }
            // Moved to node-local memory, or left where it was: the same rows, and every byte accounted for.
            let arena = Arena::new(NodeId(0), &memory);
            while path.place(&arena) {}
            assert_eq!(path.bytes(), memory.used(), "{} counts what lies in the arena", factory.name());
            for _ in 0..5 {
                check_rows(&*path, &held, &rows, &predicate_on(&held, &mut random), seed);
            }
            let shares = path.shared(AttributeId(0), 0..1).is_some();
            assert_eq!(shares, factory.properties().shares_frozen_columns, "{}", factory.name());
            let defined =
                |attribute: &PathAttribute| (0..rows.len() as u32).all(|row| !path.is_undefined(attribute.id, row));
            assert!(held.iter().all(defined), "{}: NULL is not UNDEFINED", factory.name());
            drop(path);
            assert_eq!(memory.used(), 0);
        }
    }
}

/// Values of fixed width are overwritten where a module says so, and read as the new ones by every filter and link.
#[test]
fn row_paths_overwrite_what_they_say_they_can() {
    let mut overwrote = 0;
    for (seed, factory) in (0..60).flat_map(|seed| Registry::standard().iter().map(move |factory| (seed, factory))) {
        let mut random = SeededRandom::new(seed);
        let memory = MemoryPool::unlimited();
        let schema = generate::schema(&mut random, false);
        let held = attributes(&schema, factory.properties());
        let PathInstance::Rows(mut path) = create(factory, &held, 500, &memory) else { continue };
        let may = |attribute: &&PathAttribute| path.updates_in_place(attribute.id);
        let fixed: Vec<PathAttribute> = held.iter().filter(may).copied().collect();
        let all_fixed = held.iter().filter(|attribute| !attribute.data_type.is_variable_length()).count();
        let declared = factory.properties().updates_in_place;
        assert_eq!(fixed.len(), if declared { all_fixed } else { 0 }, "{}", factory.name());
        if fixed.is_empty() {
            continue;
        }
        let count = random.index(400) + 1;
        let mut rows: Vec<Vec<Value>> = (0..count).map(|n| generate::row(&mut random, &schema, n as i64)).collect();
        path.insert(&Batch::from_rows(&schema.data_types(), &rows), 0..count).unwrap();
        for _ in 0..200 {
            let (offset, attribute) = (random.index(count), fixed[random.index(fixed.len())]);
            let new = generate::row(&mut random, &schema, 1_000)[attribute.id.index()].clone();
            let value = |value: &Value| {
                let column = Batch::from_rows(&[attribute.data_type], &[vec![value.clone()]]);
                FixedValue::of(&column.columns[0], 0)
            };
            let old = path.exchange(attribute.id, offset as u32, value(&new));
            assert_eq!(old, value(&rows[offset][attribute.id.index()]), "seed {seed} {}", factory.name());
            rows[offset][attribute.id.index()] = new;
            overwrote += 1;
        }
        for _ in 0..5 {
            check_rows(&*path, &held, &rows, &predicate_on(&held, &mut random), seed);
            check_packed(&*path, &held, &rows, &mut random);
        }
        assert_eq!(path.bytes(), memory.used());
    }
    assert!(overwrote > 0, "no module overwrites");
}

#[test]
fn row_paths_refuse_what_does_not_fit_in_memory_and_stay_whole() {
    for factory in Registry::standard().iter() {
        for limit in (0..200_000).step_by(7_777) {
            let mut random = SeededRandom::new(limit);
            let memory = MemoryPool::new(limit);
            let schema = generate::schema(&mut random, false);
            let held = attributes(&schema, factory.properties());
            let PathInstance::Rows(mut path) = create(factory, &held, 5_000, &memory) else { continue };
            if path.gives_handles() {
                continue;
            }
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
                check_rows(&*path, &held, &rows, &predicate_on(&held, &mut random), limit);
                // Another form needs memory beside the first, and is done without if there is none.
                path.freeze();
                assert_eq!(path.bytes(), memory.used(), "{}", factory.name());
                check_rows(&*path, &held, &rows, &predicate_on(&held, &mut random), limit);
            }
        }
    }
}

/// Key attributes that make keys of each width, tagged and not.
const KEYS: [&[u16]; 6] = [&[1], &[0], &[7, 8], &[3, 6, 5], &[2, 1], &[4]];

/// Those of the attributes a module can hold that belong to a key: all, if it makes indexes.
fn key_of_path(all: &[PathAttribute], key: &[u16]) -> Vec<PathAttribute> {
    key.iter().filter_map(|id| all.iter().find(|attribute| attribute.id.0 == *id).copied()).collect()
}

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
    for seed in 0..test_load(60) {
        for (factory, key) in Registry::standard().iter().flat_map(|factory| KEYS.map(|key| (factory, key))) {
            let mut random = SeededRandom::new(seed);
            let memory = MemoryPool::unlimited();
            let schema = generate::schema(&mut random, false);
            let all = attributes(&schema, factory.properties());
            let held: Vec<PathAttribute> = key_of_path(&all, key);
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
            let step = random.index(70) + 1;
            let ordered = factory.properties().key_order;
            // Without key order a scan finds the same rows in an order of its own.
            let check_scan = |lower: &Key, upper: Option<&Key>, expected: &[usize]| {
                for descending in [false, true] {
                    let state = IndexScanState::new(lower.clone(), upper.cloned(), descending);
                    let mut found = collect(&*path, state, step);
                    let mut expected: Vec<RowAddress> = expected.iter().map(|row| address(*row)).collect();
                    if !ordered {
                        found.sort_unstable();
                        expected.sort_unstable();
                    } else if descending {
                        found.reverse();
                    }
                    assert_eq!(found, expected, "seed {seed} {} {key:?}", factory.name());
                }
            };
            check_scan(&Key::lowest(), None, &present);

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
            let rows_where = |accepts: &dyn Fn(&Key) -> bool| -> Vec<usize> {
                present.iter().copied().filter(|row| accepts(&encode(*row, path.parts()))).collect()
            };
            let within = rows_where(&|key| *key >= low && *key < high);
            check_scan(&low, Some(&high), &within);
            let share = path.share(&low, Some(&high)) * present.len() as f64;
            assert!((share - within.len() as f64).abs() <= 0.2 * present.len() as f64 + 3.0, "seed {seed} {key:?}");
            let only = rows_where(&|key| *key == low);
            check_scan(&low, low.successor_of_prefix().as_ref(), &only);

            let last = encode(present.last().copied().unwrap_or(0), path.parts());
            assert!(present.is_empty() || path.may_reach(&last));
            let above = random.index(count);
            let reaches = !rows_where(&|key| *key >= encode(above, path.parts())).is_empty();
            assert!(path.may_reach(&encode(above, path.parts())) || !reaches);

            let mut single = Vec::new();
            for row in probe..count {
                path.equal(&columns, row, &mut |found| single.push((row, found)));
            }
            let mut many = Vec::new();
            path.equal_many(&columns, probe..count, &mut |row, found| many.push((row, found)));
            assert_eq!(many, single, "seed {seed} {} {key:?}", factory.name());

            let wanted = random.index(20) + 1;
            let sample = path.sample(wanted);
            assert!(sample.len() <= wanted && sample.is_sorted() && sample.is_empty() == present.is_empty());
            // Sampled keys are padded to their whole width.
            let known = |key: &Key| !rows_where(&|other| key.as_bytes().starts_with(other.as_bytes())).is_empty();
            assert!(sample.iter().all(known), "seed {seed} {} {key:?}", factory.name());
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

/// Rows of every age of a growing schema, in one path: attributes that a row does not know are UNDEFINED and read as
/// NULL.
#[test]
fn rows_may_lack_attributes_where_a_module_says_so() {
    let mut checked = 0;
    for seed in 0..test_load(60) {
        for factory in Registry::standard().iter().filter(|factory| factory.properties().undefined) {
            let mut random = SeededRandom::new(seed);
            let memory = MemoryPool::unlimited();
            let schema = generate::schema(&mut random, false);
            let held = attributes(&schema, factory.properties());
            let PathInstance::Rows(mut path) = create(factory, &held, 2_000, &memory) else { continue };
            let mut rows: Vec<Vec<Value>> = Vec::new();
            let mut known: Vec<usize> = Vec::new();
            let mut columns = 1;
            while columns <= schema.attributes.len() {
                let count = random.index(60);
                let new: Vec<Vec<Value>> = (0..count).map(|n| generate::row(&mut random, &schema, n as i64)).collect();
                let cut: Vec<Vec<Value>> = new.iter().map(|row| row[..columns].to_vec()).collect();
                path.insert(&Batch::from_rows(&schema.data_types()[..columns], &cut), 0..count).unwrap();
                for mut row in new {
                    row[columns..].fill(Value::Null);
                    rows.push(row);
                    known.push(columns);
                }
                columns += random.index(3);
            }
            if rows.is_empty() {
                continue;
            }
            for _ in 0..5 {
                check_rows(&*path, &held, &rows, &predicate_on(&held, &mut random), seed);
            }
            for (row, columns) in known.iter().enumerate() {
                for attribute in &held {
                    let undefined = path.is_undefined(attribute.id, row as u32);
                    assert_eq!(undefined, attribute.id.index() >= *columns, "seed {seed} {row} {}", attribute.id);
                    checked += usize::from(undefined);
                }
            }
            drop(path);
            assert_eq!(memory.used(), 0);
        }
    }
    assert!(checked > 1_000, "some module knows UNDEFINED");
}

/// Many attributes (more than a word has bits) and values longer than a page.
#[test]
fn rows_may_be_wide_and_values_long() {
    for factory in Registry::standard().iter() {
        let memory = MemoryPool::unlimited();
        let mut random = SeededRandom::new(4);
        let types = [DataType::Int16, DataType::Text, DataType::Boolean, DataType::Float64, DataType::Date];
        let all: Vec<PathAttribute> = (0..150)
            .map(|id| PathAttribute { id: AttributeId(id), data_type: types[usize::from(id) % 5], nullable: true })
            .collect();
        let held: Vec<PathAttribute> = all
            .iter()
            .filter(|attribute| factory.properties().variable_length || !attribute.data_type.is_variable_length())
            .copied()
            .collect();
        let PathInstance::Rows(mut path) = create(factory, &held, 40, &memory) else { continue };
        let rows: Vec<Vec<Value>> = (0..40_i64)
            .map(|row| {
                let mut value = |attribute: &PathAttribute| match attribute.data_type {
                    _ if random.chance(0.3) => Value::Null,
                    DataType::Int16 => Value::Int16(row as i16),
                    DataType::Text => Value::Text("long ".repeat(random.index(200) * random.index(100)).into()),
                    DataType::Boolean => Value::Boolean(row % 2 == 0),
                    DataType::Float64 => Value::Float64(row as f64 / 3.0),
                    _ => Value::Date(row as i32),
                };
                all.iter().map(&mut value).collect()
            })
            .collect();
        let types: Vec<DataType> = all.iter().map(|attribute| attribute.data_type).collect();
        path.insert(&Batch::from_rows(&types, &rows), 0..40).unwrap();
        let conditions =
            held.iter().step_by(37).map(|attribute| Condition { attribute: attribute.id, test: Test::IsNull });
        check_rows(&*path, &held, &rows, &Predicate::new(conditions.collect::<Vec<_>>()), 1);
        path.freeze();
        check_rows(&*path, &held, &rows, &Predicate::all(), 1);
        drop(path);
        assert_eq!(memory.used(), 0);
    }
}

#[test]
fn indexes_refuse_what_does_not_fit_in_memory_and_stay_whole() {
    for (factory, key) in Registry::standard().iter().flat_map(|factory| KEYS.map(|key| (factory, key))) {
        for limit in (0..300_000).step_by(300_000 / test_load(13) as usize) {
            let mut random = SeededRandom::new(limit);
            let memory = MemoryPool::new(limit);
            let schema = generate::schema(&mut random, false);
            let all = attributes(&schema, factory.properties());
            let held: Vec<PathAttribute> = key_of_path(&all, key);
            let PathInstance::Index(mut path) = create(factory, &held, 0, &memory) else { continue };
            let rows: Vec<Vec<Value>> = (0..4_000).map(|n| generate::row(&mut random, &schema, n)).collect();
            let batch = Batch::from_rows(&schema.data_types(), &rows);
            let columns: Vec<Column> = key.iter().map(|id| batch.columns[usize::from(*id)].clone()).collect();
            let refused = (0..4_000).find(|row| path.insert(&columns, *row, address(*row)).is_err());
            let count = refused.unwrap_or(4_000);
            assert!(memory.used() <= limit);
            let mut found = collect(&*path, IndexScanState::new(Key::lowest(), None, false), 97);
            found.sort_unstable();
            assert_eq!(found, (0..count).map(address).collect::<Vec<_>>(), "{} {key:?} {limit}", factory.name());
            for row in 0..count {
                assert!(path.remove(&columns, row, address(row)));
            }
            assert_eq!(path.entries(), 0);
            drop(path);
            assert_eq!(memory.used(), 0);
        }
    }
}
