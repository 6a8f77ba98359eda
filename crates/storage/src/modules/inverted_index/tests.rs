//! The module against sets of addresses by key, scans among changes, and what it says about shares and samples.

use super::*;
use crate::batch::{Batch, ColumnBuilder};
use crate::ids::{AttributeId, RowOffset, SegmentNumber};
use crate::key::KeyEncoder;
use crate::modules::{PathAttribute, Registry};
use crate::types::DataType;
use crate::value::Value;
use eris_platform::{SeededRandom, test_load};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

fn address(row: u64) -> RowAddress {
    RowAddress::new(SegmentNumber((row >> 16) as u32), RowOffset(row as u32 & 0xFFFF))
}

fn create(data_type: DataType, nullable: bool, memory: &Arc<MemoryPool>) -> Box<dyn IndexPath> {
    let attribute = PathAttribute { id: AttributeId(0), data_type, nullable };
    let configuration = PathConfiguration { attributes: &[attribute], rows_max: 0, memory, dictionaries: None };
    Registry::standard().create_index(INVERTED_INDEX, configuration)
}

fn integers(numbers: impl Iterator<Item = i32>) -> Vec<Column> {
    let mut builder = ColumnBuilder::with_capacity(DataType::Int32, 0);
    numbers.for_each(|number| builder.push(&Value::Int32(number)));
    vec![builder.finish()]
}

/// Keys of one of the three widths in which the index packs them, in a column, and encoded.
fn keys(width: usize, count: usize) -> (DataType, bool, Vec<Column>, Vec<Key>) {
    let (data_type, nullable) = [(DataType::Int32, false), (DataType::Int64, true), (DataType::Text, true)][width];
    let value = |number: usize| match data_type {
        _ if nullable && number == 0 => Value::Null,
        DataType::Int32 => Value::Int32(number as i32 * 7 - 100),
        DataType::Int64 => Value::Int64((number as i64 - 5) << 40),
        _ if number.is_multiple_of(2) => Value::Text(format!("{number}").into()),
        _ => Value::Text(format!("a key that is too long to lie inline {number}").into()),
    };
    let rows: Vec<Vec<Value>> = (0..count).map(|number| vec![value(number)]).collect();
    let columns = Batch::from_rows(&[data_type], &rows).columns.to_vec();
    let part = crate::key::KeyPart { data_type, tagged: nullable };
    let encode = |row| {
        let mut encoder = KeyEncoder::new();
        encoder.push_row(&columns[0], row, part);
        encoder.finish()
    };
    let encoded = (0..count).map(encode).collect();
    (data_type, nullable, columns, encoded)
}

type Reference = BTreeMap<Key, BTreeSet<RowAddress>>;

/// A scan, and what it should be at.
struct Scan {
    state: IndexScanState,
    lower: Key,
    upper: Option<Key>,
    descending: bool,
    last: Option<(Key, RowAddress)>,
}

impl Scan {
    fn new(random: &mut SeededRandom, keys: &[Key]) -> Self {
        let mut bound = || keys[random.index(keys.len())].clone();
        let (lower, upper) = (bound(), bound());
        let lower = if random.chance(0.5) { Key::lowest() } else { lower };
        let upper = Some(upper).filter(|_| random.chance(0.5));
        let descending = random.chance(0.5);
        let state = IndexScanState::new(lower.clone(), upper.clone(), descending);
        Self { state, lower, upper, descending, last: None }
    }

    /// The pairs behind the last one that are there now.
    fn rest(&self, reference: &Reference) -> Vec<(Key, RowAddress)> {
        let within = |key: &Key| *key >= self.lower && self.upper.as_ref().is_none_or(|upper| key < upper);
        let all = reference.iter().filter(|(key, _)| within(key));
        let pairs = all.flat_map(|(key, rows)| rows.iter().map(move |row| (key.clone(), *row)));
        let mut rest: Vec<(Key, RowAddress)> = match &self.last {
            Some(last) if self.descending => pairs.filter(|pair| pair < last).collect(),
            Some(last) => pairs.filter(|pair| pair > last).collect(),
            None => pairs.collect(),
        };
        if self.descending {
            rest.reverse();
        }
        rest
    }

    /// Takes up to `count` more; false when it is at its end.
    fn advance(&mut self, index: &dyn IndexPath, reference: &Reference, count: usize) -> bool {
        let mut found = Vec::new();
        let more = index.scan(&mut self.state, count, &mut found);
        let rest = self.rest(reference);
        let expected: Vec<RowAddress> = rest.iter().take(count).map(|(_, row)| *row).collect();
        assert_eq!((more, found), (rest.len() > count, expected));
        self.last = rest.get(count.min(rest.len()).wrapping_sub(1)).cloned().or(self.last.take());
        more
    }
}

fn check(seed: u64, rounds: u64) {
    let mut random = SeededRandom::new(seed);
    let key_count = [3, 40, 2_000][(seed / 3) as usize % 3];
    let (data_type, nullable, columns, keys) = keys(seed as usize % 3, key_count);
    let memory = MemoryPool::unlimited();
    let mut index = create(data_type, nullable, &memory);
    let mut reference = Reference::new();
    let mut scans: Vec<Scan> = Vec::new();
    let mut entries = 0;
    for round in 0..rounds {
        let number = random.index(key_count);
        let (key, rows) = (&keys[number], reference.get(&keys[number]));
        if random.chance(if (round / (rounds / 4)).is_multiple_of(2) { 0.8 } else { 0.2 }) {
            // In the order of rows, as a rule.
            let row = address(if random.chance(0.8) { round * 3 } else { random.below(rounds * 3) });
            let inserted = index.insert(&columns, number, row).unwrap();
            let shared = rows.is_some();
            assert_eq!(inserted.key_shared, shared, "seed {seed} round {round}");
            entries += u64::from(reference.entry(key.clone()).or_default().insert(row));
        } else if let Some(row) = rows.and_then(|rows| rows.range(address(random.below(round * 3 + 1))..).next()) {
            let row = *row;
            assert!(index.remove(&columns, number, row), "seed {seed} round {round}");
            assert!(!index.remove(&columns, number, row), "seed {seed} round {round}");
            let rows = reference.get_mut(key).unwrap();
            rows.remove(&row);
            if rows.is_empty() {
                reference.remove(key);
            }
            entries -= 1;
        }
        assert_eq!((index.entries(), index.bytes()), (entries, memory.used()), "seed {seed} round {round}");
        if random.chance(0.02) {
            scans.push(Scan::new(&mut random, &keys));
        }
        if random.chance(0.05) && !scans.is_empty() {
            let scan = random.index(scans.len());
            let count = [1, 7, 100, 1_000][random.index(4)];
            if !scans[scan].advance(&*index, &reference, count) {
                scans.swap_remove(scan);
            }
        }
        if random.chance(0.02) {
            let mut found = Vec::new();
            index.equal(&columns, number, &mut |row| found.push(row));
            let expected = reference.get(key).into_iter().flatten().copied().collect::<Vec<_>>();
            assert_eq!(found, expected, "seed {seed} round {round}");
            let (lower, upper) = (&keys[random.index(key_count)], Some(&keys[random.index(key_count)]));
            let upper = upper.filter(|_| random.chance(0.8));
            let bounds = (Bound::Included(lower), upper.map_or(Bound::Unbounded, Bound::Excluded));
            let sound = upper.is_none_or(|upper| lower <= upper);
            let within: usize =
                if sound { reference.range::<Key, _>(bounds).map(|(_, rows)| rows.len()).sum() } else { 0 };
            let limit = random.index(300);
            assert_eq!(index.count_up_to(lower, upper, limit), within.min(limit), "seed {seed} round {round}");
            let share = index.share(lower, upper) * entries as f64;
            assert!((share - within as f64).abs() < 0.01, "seed {seed} round {round}: {share} of {within}");
        }
    }
    for scan in &mut scans {
        while scan.advance(&*index, &reference, 50) {}
    }
    let all = (0..key_count).filter_map(|number| reference.get(&keys[number]).map(|rows| (number, rows)));
    for (number, rows) in all {
        for row in rows {
            assert!(index.remove(&columns, number, *row), "seed {seed}");
        }
    }
    assert_eq!((index.entries(), index.bytes(), memory.used()), (0, 0, 0), "seed {seed}");
}

#[test]
fn agrees_with_sets_by_key_while_scans_go_on() {
    for seed in 0..test_load(27) {
        check(seed, 8_000);
    }
}

#[test]
fn a_row_of_a_frequent_key_takes_few_bytes() {
    let memory = MemoryPool::unlimited();
    let mut index = create(DataType::Int32, false, &memory);
    let mut random = SeededRandom::new(1);
    let rows = 200_000;
    let columns = integers((0..rows).map(|_| random.below(200) as i32));
    for row in 0..rows {
        index.insert(&columns, row as usize, address(row as u64)).unwrap();
    }
    let each = index.bytes() as f64 / f64::from(rows);
    assert!(each < 1.7, "{each} bytes an entry");
    // Sorted rows: a bit for each, and an eighth of a byte for the head of its block.
    let columns = integers((0..rows).map(|row| row / 1_000));
    let memory = MemoryPool::unlimited();
    let mut index = create(DataType::Int32, false, &memory);
    for row in 0..rows {
        index.insert(&columns, row as usize, address(row as u64)).unwrap();
    }
    let each = index.bytes() as f64 / f64::from(rows);
    assert!(each < 0.7, "{each} bytes an entry");
}

#[test]
fn codes_of_keys_that_went_are_used_again() {
    let memory = MemoryPool::unlimited();
    let mut index = create(DataType::Int32, false, &memory);
    let columns = integers(0..20_000);
    index.insert(&columns, 0, address(0)).unwrap();
    for row in 1..20_000 {
        index.insert(&columns, row, address(row as u64)).unwrap();
        assert!(index.remove(&columns, row, address(row as u64)));
    }
    assert!(index.bytes() < 4_096, "{} bytes for one key", index.bytes());
}

#[test]
fn shares_of_more_keys_than_are_counted_are_close() {
    let memory = MemoryPool::unlimited();
    let mut index = create(DataType::Int32, false, &memory);
    let keys = 40_000;
    let columns = integers((0..keys).chain((0..10_000).map(|row| row % 10)));
    for row in 0..columns[0].len() {
        index.insert(&columns, row, address(row as u64)).unwrap();
    }
    let key = |number: i32| {
        let mut encoder = KeyEncoder::new();
        encoder.push_part(&Value::Int32(number), index.parts()[0]);
        encoder.finish()
    };
    // The ten frequent keys have a fifth of all entries.
    assert!((index.share(&key(0), Some(&key(10))) - 0.2002).abs() < 0.0001);
    assert!((index.share(&key(10), Some(&key(20_000))) - 0.4).abs() < 0.15);
    assert!((index.share(&key(0), None) - 1.0).abs() < 0.05);
    assert!((index.share(&key(30_000), None) - 0.2).abs() < 0.05);
    let sample = index.sample(10);
    let frequent = sample.iter().filter(|sampled| **sampled < key(10)).count();
    assert_eq!((sample.len(), frequent), (10, 3), "a fifth of the entries, and the first of all");
    assert!(sample.is_sorted());
}

#[test]
fn batched_searches_find_what_single_ones_find() {
    for width in 0..3 {
        let (data_type, nullable, columns, _) = keys(width, 3_000);
        let memory = MemoryPool::unlimited();
        let mut index = create(data_type, nullable, &memory);
        let mut many = Vec::new();
        index.equal_many(&columns, 0..100, &mut |row, address| many.push((row, address)));
        assert_eq!(many, []);
        assert!(!index.may_reach(&Key::lowest()));
        for row in 0..9_000 {
            let number = if row % 3 == 0 { row % 50 } else { row % 2_500 };
            index.insert(&columns, number, address(row as u64)).unwrap();
        }
        let mut single = Vec::new();
        for number in 17..3_000 {
            index.equal(&columns, number, &mut |address| single.push((number, address)));
        }
        index.equal_many(&columns, 17..3_000, &mut |row, address| many.push((row, address)));
        assert_eq!(many, single);
        assert!(single.len() > 6_000);
    }
}
