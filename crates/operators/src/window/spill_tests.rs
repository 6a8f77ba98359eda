//! Windows over rows that go on in files have the results that they would have had in memory.

use std::collections::BTreeMap;

use eris_platform::{MemoryPool, SeededRandom};
use eris_storage::{Batch, DataType, Value};

use super::{Frame, WindowCall, WindowFunction, WindowSink, WindowSpec};
use crate::aggregate::AggregateFunction;
use crate::error::OperatorError;
use crate::pipeline::spilled::{Disk, fail_each_operation};
use crate::sort::{SortKey, SortKeys};
use crate::spill::SpillOptions;

const TYPES: [DataType; 4] = [DataType::Text, DataType::Int32, DataType::Int64, DataType::Text];

/// A partition, a number, a unique number, a filling.
fn batches(random: &mut SeededRandom, count: i64, partitions: u64) -> Vec<Batch> {
    let row = |n: i64| {
        let partition = match random.below(partitions) {
            0 => Value::Null,
            partition => Value::Text(format!("partition {partition}").into()),
        };
        let number = if random.below(9) == 0 { Value::Null } else { Value::Int32(random.below(50) as i32) };
        vec![partition, number, Value::Int64(n), Value::Text("x".repeat(40).into())]
    };
    let rows: Vec<Vec<Value>> = (0..count).map(row).collect();
    rows.chunks(1_500).map(|rows| Batch::from_rows(&TYPES, rows)).collect()
}

fn spec(partition_keys: usize) -> WindowSpec {
    let key = |column| SortKey { column, descending: column == 1, nulls_first: false };
    let keys = SortKeys([&[0][..partition_keys], &[1, 2]].concat().into_iter().map(key).collect());
    let call = |function, result| WindowCall { function, frame: Frame::PARTITION, result };
    let sum = WindowFunction::Aggregate { function: AggregateFunction::Sum, input: Some(1) };
    let shift = WindowFunction::Shift { value: 2, offset: None, default: None, ahead: false };
    let calls = [
        call(WindowFunction::RowNumber, DataType::Int64),
        call(WindowFunction::Rank, DataType::Int64),
        call(shift, DataType::Int64),
        call(sum, DataType::Int64),
    ];
    WindowSpec { keys, partition_keys, kept: [0, 2, 3].into(), calls: calls.into() }
}

fn rows(batches: &[Batch]) -> BTreeMap<String, usize> {
    let mut rows = BTreeMap::new();
    for batch in batches {
        for row in 0..batch.rows {
            *rows.entry(format!("{:?}", batch.row(row))).or_insert(0) += 1;
        }
    }
    rows
}

#[test]
fn windows_that_do_not_fit_are_computed_partition_by_partition() {
    let always = SpillOptions { held_bytes_max: Some(1), file_bytes_max: None };
    let cases = [(0, 60, u64::MAX, always, 0), (9_000, 1, u64::MAX, always, 0), (9_000, 7, u64::MAX, always, 1)];
    let tight = [(60_000, 300, 4 << 20, SpillOptions::default(), 1), (60_000, 30_000, 4 << 20, always, 1)];
    for (seed, (count, partitions, memory, options, partition_keys)) in cases.into_iter().chain(tight).enumerate() {
        let batches = batches(&mut SeededRandom::new(seed as u64), count, partitions);
        let (disk, pool) = (Disk::new(seed as u64), MemoryPool::new(memory));
        let unlimited = MemoryPool::unlimited();
        let expected = disk.run(&WindowSink::new(spec(partition_keys), &unlimited, 2), &batches, 2).unwrap().0;
        let sink = WindowSink::new(spec(partition_keys), &pool, 2).spilling_to(&disk.spill(&pool, options));
        let (found, from_files) = disk.run(&sink, &batches, 2).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(from_files, count > 0, "seed {seed}");
        assert_eq!(rows(&found), rows(&expected), "seed {seed}");
        drop(sink);
        disk.settle();
        assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
    }
}

/// What windows look at fits, what goes on with their results does not.
#[test]
fn rows_of_one_large_partition_wait_in_a_file_for_their_results() {
    for (partition_keys, kept) in [(0, vec![0, 2, 3]), (1, vec![0, 2, 3]), (1, vec![])] {
        let batches = batches(&mut SeededRandom::new(1), 60_000, 1);
        let spec = WindowSpec { kept: kept.into(), ..spec(partition_keys) };
        let (disk, pool) = (Disk::new(1), MemoryPool::new(8 << 20));
        let held: usize = batches.iter().map(Batch::bytes).sum();
        assert!(held > 4 << 20, "{held} bytes, and their results");
        let unlimited = MemoryPool::unlimited();
        let expected = disk.run(&WindowSink::new(spec.clone(), &unlimited, 2), &batches, 2).unwrap().0;
        let sink = WindowSink::new(spec, &pool, 2).spilling_to(&disk.spill(&pool, SpillOptions::default()));
        let (found, from_files) = disk.run(&sink, &batches, 2).unwrap();
        assert!(from_files && rows(&found) == rows(&expected));
        drop((sink, found));
        disk.settle();
        assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
    }
}

#[test]
fn a_partition_of_which_windows_see_more_than_memory_is_refused() {
    let batches = batches(&mut SeededRandom::new(1), 60_000, 1);
    let (disk, pool) = (Disk::new(1), MemoryPool::new(2 << 20));
    let sink = WindowSink::new(spec(1), &pool, 2).spilling_to(&disk.spill(&pool, SpillOptions::default()));
    let refused = disk.run(&sink, &batches, 2).err();
    assert!(matches!(refused, Some(OperatorError::Memory(_))), "{refused:?}");
    drop(sink);
    disk.settle();
    assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
}

#[test]
fn windows_fail_by_themselves_when_the_disk_does() {
    let batches = batches(&mut SeededRandom::new(3), 9_000, 20);
    fail_each_operation(10, |disk, pool| {
        let options = SpillOptions { held_bytes_max: Some(200_000), file_bytes_max: None };
        let sink = WindowSink::new(spec(1), pool, 1).spilling_to(&disk.spill(pool, options));
        disk.run(&sink, &batches, 1).map(drop)
    });
}
