//! Sorts that go on in files give what they would have given in memory, and say what the disk did.

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_platform::simulated::FileFault;
use eris_platform::{MemoryPool, SeededRandom, TempFileError};
use eris_storage::{Batch, DataType, Value};

use super::{SortKey, SortKeys, SortSink};
use crate::error::OperatorError;
use crate::pipeline::Sink;
use crate::pipeline::spilled::{Disk, FAULTS, failures_min, tells};
use crate::spill::SpillOptions;

const TYPES: [DataType; 4] = [DataType::Int64, DataType::Text, DataType::Float64, DataType::Int32];

fn batches(random: &mut SeededRandom, count: usize, rows: usize) -> Vec<Batch> {
    let different = [3, 500, 1 << 40][random.index(3)];
    let mut number = 0;
    let mut row = |random: &mut SeededRandom| {
        let n = random.below(different) as i64 - 20;
        let mut values = vec![
            Value::Int64(n),
            Value::Text(format!("a common beginning {}", n % 60).into()),
            Value::Float64(if n == 1 { f64::NAN } else { n as f64 / 3.0 }),
        ];
        for value in &mut values {
            if random.below(6) == 0 {
                *value = Value::Null;
            }
        }
        values.push(Value::Int32(number));
        number += 1;
        values
    };
    let mut batch = |random: &mut SeededRandom| {
        Batch::from_rows(&TYPES, &(0..=random.index(rows)).map(|_| row(random)).collect::<Vec<_>>())
    };
    (0..count).map(|_| batch(random)).collect()
}

fn keys(random: &mut SeededRandom) -> SortKeys {
    let key = |random: &mut SeededRandom| SortKey {
        column: random.index(4),
        descending: random.below(2) == 0,
        nulls_first: random.below(2) == 0,
    };
    SortKeys((0..=random.index(3)).map(|_| key(random)).collect())
}

/// The rows in order, with those that compare equal sorted by their texts.
fn sorted_texts(batches: &[Batch], keys: &SortKeys) -> Vec<Vec<String>> {
    let rows: Vec<(&Batch, usize)> =
        batches.iter().flat_map(|batch| (0..batch.rows).map(move |row| (batch, row))).collect();
    let equal = |a: &(&Batch, usize), b: &(&Batch, usize)| {
        let ordering = keys.compare_rows((&a.0.columns, a.1), (&b.0.columns, b.1));
        assert!(ordering.is_le(), "rows are not in order");
        ordering.is_eq()
    };
    let texts = |rows: &[(&Batch, usize)]| {
        let mut texts: Vec<String> = rows.iter().map(|(batch, row)| format!("{:?}", batch.row(*row))).collect();
        texts.sort_unstable();
        texts
    };
    rows.chunk_by(equal).map(texts).collect()
}

fn check(seed: u64, count: usize, memory: u64, options: SpillOptions) {
    let mut random = SeededRandom::new(seed);
    let (batches, keys) = (batches(&mut random, count, 3_000), keys(&mut random));
    let unlimited = MemoryPool::unlimited();
    let expected = Disk::new(seed).run(&SortSink::new(keys.clone(), None, &unlimited, 2), &batches, 2).unwrap().0;
    let (disk, pool) = (Disk::new(seed), MemoryPool::new(memory));
    let spill = disk.spill(&pool, options);
    let sink = SortSink::new(keys.clone(), None, &pool, 2).spilling_to(&spill);
    let (found, from_files) = disk.run(&sink, &batches, 2).unwrap();
    assert!(from_files && spill.written_bytes() > 0, "seed {seed}");
    assert_eq!(sorted_texts(&found, &keys), sorted_texts(&expected, &keys), "seed {seed}");
    drop(sink);
    disk.settle();
    assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
}

#[test]
fn what_does_not_fit_is_sorted_in_files() {
    (0..12).for_each(|seed| check(seed, 40, 1_500_000, SpillOptions::default()));
}

/// Each batch is a run, and few are merged at once: several levels.
#[test]
fn many_runs_are_merged_in_several_steps() {
    let options = SpillOptions { held_bytes_max: Some(1), file_bytes_max: None };
    (20..26).for_each(|seed| check(seed, 30, u64::MAX, options));
}

#[test]
fn a_limit_cuts_what_files_give() {
    let mut random = SeededRandom::new(5);
    let rows: Vec<Vec<Value>> = (0..150_000).map(|_| vec![Value::Int64(random.below(1 << 30) as i64)]).collect();
    let mut expected: Vec<Value> = rows.iter().map(|row| row[0].clone()).collect();
    expected.sort_by_key(|value| if let Value::Int64(value) = value { *value } else { 0 });
    let whole = Batch::from_rows(&[DataType::Int64], &rows);
    let batches: Vec<Batch> = (0..150).map(|at| whole.slice(at * 1_000, 1_000)).collect();
    let (disk, pool) = (Disk::new(1), MemoryPool::new(1 << 20));
    let spill = disk.spill(&pool, SpillOptions::default());
    let keys = SortKeys([SortKey { column: 0, descending: false, nulls_first: false }].into());
    let sink = SortSink::new(keys, Some(70_000), &pool, 2).spilling_to(&spill);
    let (found, from_files) = disk.run(&sink, &batches, 2).unwrap();
    let found: Vec<Value> = found.iter().flat_map(|batch| (0..batch.rows).map(|row| batch.value(row, 0))).collect();
    assert!(from_files && found == expected[..70_000]);
}

/// What a sort of the same rows says when the disk is like this; none: it did not fail.
fn failed(disk: &Disk, file_bytes_max: Option<u64>, prepare: impl Fn(&Disk)) -> Option<OperatorError> {
    let mut random = SeededRandom::new(3);
    let (batches, keys) = (batches(&mut random, 20, 3_000), keys(&mut random));
    let pool = MemoryPool::unlimited();
    let spill = disk.spill(&pool, SpillOptions { held_bytes_max: Some(100_000), file_bytes_max });
    let sink = SortSink::new(keys, None, &pool, 2).spilling_to(&spill);
    prepare(disk);
    let error = disk.run(&sink, &batches, 2).err();
    drop(sink);
    disk.settle();
    assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0), "{error:?}");
    error
}

#[test]
fn a_sort_fails_by_itself_when_the_disk_does() {
    let error = failed(&Disk::new(1), Some(100_000), |_| {});
    assert!(matches!(error, Some(OperatorError::TempFile(TempFileError::Limit { limit_bytes: 100_000 }))), "{error:?}");
    let error = failed(&Disk::new(2), None, |disk| disk.env.simulated_files().set_capacity(Some(200_000)));
    assert!(matches!(error, Some(OperatorError::TempFile(TempFileError::Full { .. }))), "{error:?}");
    // Every operation in turn, with each fault.
    for fault in FAULTS {
        let (mut failures, mut actions) = (0, BTreeSet::new());
        for operation in 0.. {
            let Some(error) = failed(&Disk::new(operation), None, |disk| disk.fail_at(operation, fault)) else { break };
            assert!(tells(fault, &error), "{fault:?} of operation {operation}: {error}");
            failures += 1;
            if let OperatorError::TempFile(TempFileError::Io { action, .. }) = error {
                actions.insert(action);
            }
        }
        assert!(failures > failures_min(fault, 5), "{failures} operations, {fault:?}");
        let all = ["write", "read", "create"].iter().all(|action| actions.contains(action));
        assert_eq!(all, fault != FileFault::NoSpace, "{fault:?}: {actions:?}");
    }
}

#[test]
fn a_small_limit_stays_in_memory() {
    let pool = MemoryPool::unlimited();
    let spill = Disk::new(1).spill(&pool, SpillOptions { held_bytes_max: Some(0), file_bytes_max: None });
    let keys = SortKeys([SortKey { column: 0, descending: false, nulls_first: false }].into());
    let sink = Arc::new(SortSink::new(keys, Some(10), &pool, 1).spilling_to(&spill));
    assert!(sink.spilling().is_none());
}

/// Rows that repeat take a small part of their bytes in files, however often they are merged.
#[test]
fn rows_that_repeat_are_compressed_in_files() {
    const TEXT: &str = "a text that is the same in each of the rows";
    let row = |n: i64| vec![Value::Int64(n % 10), Value::Text(TEXT.into())];
    let rows: Vec<Vec<Value>> = (0..2_000).map(row).collect();
    let batches = vec![Batch::from_rows(&[DataType::Int64, DataType::Text], &rows); 20];
    let (disk, pool) = (Disk::new(1), MemoryPool::unlimited());
    let spill = disk.spill(&pool, SpillOptions { held_bytes_max: Some(200_000), file_bytes_max: None });
    let keys = SortKeys([SortKey { column: 0, descending: false, nulls_first: false }].into());
    let sink = SortSink::new(keys, None, &pool, 2).spilling_to(&spill);
    let (found, from_files) = disk.run(&sink, &batches, 2).unwrap();
    assert!(from_files && found.iter().map(|batch| batch.rows).sum::<usize>() == 20 * rows.len());
    let (plain, written) = (20 * rows.len() * (size_of::<i64>() + TEXT.len()), spill.written_bytes());
    assert!(written > 0 && written * 4 < plain as u64, "{written} bytes of {plain} are in files");
}
