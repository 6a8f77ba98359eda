//! Groupings that go on in files give what they would have given in memory.

use std::collections::BTreeMap;

use eris_platform::{MemoryPool, SeededRandom};
use eris_storage::{Batch, DataType, Value};

use super::{AggregateCall, AggregateFunction, GroupBy, GroupCall};
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::pipeline::spilled::{Disk, fail_each_operation};
use crate::spill::SpillOptions;

const TYPES: [DataType; 4] =
    [DataType::Int64, DataType::Text, DataType::Int32, DataType::Decimal { precision: 30, scale: 2 }];

fn column(column: usize) -> Expression {
    Expression::Column { index: column, data_type: TYPES[column] }
}

fn call(function: AggregateFunction, input: Option<usize>, result: DataType, distinct: bool) -> GroupCall {
    GroupCall { call: AggregateCall { function, input: input.map(column), result }, distinct, filter: None }
}

fn calls(with_distinct: bool) -> Vec<GroupCall> {
    let mut calls = vec![
        call(AggregateFunction::CountAll, None, DataType::Int64, false),
        call(AggregateFunction::Count, Some(2), DataType::Int64, false),
        call(AggregateFunction::Sum, Some(2), DataType::Int64, false),
        call(AggregateFunction::Min, Some(1), DataType::Text, false),
        call(AggregateFunction::Max, Some(3), TYPES[3], false),
        call(AggregateFunction::Average, Some(2), DataType::Decimal { precision: 38, scale: 6 }, false),
    ];
    if with_distinct {
        calls.push(call(AggregateFunction::Count, Some(2), DataType::Int64, true));
        calls.push(call(AggregateFunction::Sum, Some(3), TYPES[3], true));
    }
    calls
}

fn batches(random: &mut SeededRandom, count: usize, groups: u64) -> Vec<Batch> {
    let row = |random: &mut SeededRandom| {
        let n = random.below(groups) as i64;
        let values = vec![
            Value::Int64(n),
            Value::Text(format!("{}, a text that is long", n % 1_000).into()),
            Value::Int32(random.below(50) as i32),
            Value::Decimal { unscaled: i128::from(random.below(9)) << 40, scale: 2 },
        ];
        values.into_iter().map(|value| if random.below(15) == 0 { Value::Null } else { value }).collect()
    };
    let batch =
        |random: &mut SeededRandom| Batch::from_rows(&TYPES, &(0..2_000).map(|_| row(random)).collect::<Vec<_>>());
    (0..count).map(|_| batch(random)).collect()
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

fn check(seed: u64, memory: u64, options: SpillOptions, is_required: bool) {
    let mut random = SeededRandom::new(seed);
    let batches = batches(&mut random, 30, [40, 5_000, 1 << 40][seed as usize % 3]);
    let keys: Vec<Expression> =
        [vec![0], vec![1], vec![0, 1], vec![1, 2, 3]][seed as usize % 4].iter().map(|at| column(*at)).collect();
    let calls = calls(seed.is_multiple_of(2));
    let make = |pool| GroupBy::with_calls(keys.clone().into(), calls.clone().into(), [].into(), pool, 2);
    let unlimited = MemoryPool::unlimited();
    let expected = Disk::new(seed).run(&make(&unlimited), &batches, 2).unwrap().0;
    let (disk, pool) = (Disk::new(seed), MemoryPool::new(memory));
    let spill = disk.spill(&pool, options);
    let sink = make(&pool).spilling_to(&spill);
    let (found, from_files) = disk.run(&sink, &batches, 2).unwrap();
    assert!(from_files && spill.written_bytes() > 0 || !is_required, "seed {seed}");
    assert_eq!(rows(&found), rows(&expected), "seed {seed}");
    drop(sink);
    disk.settle();
    assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
}

#[test]
fn groups_that_do_not_fit_are_put_together_part_by_part() {
    // Those with few groups fit.
    (0..12).for_each(|seed| check(seed, 3 << 20, SpillOptions::default(), seed % 3 == 2 && seed % 4 != 1));
}

/// Every batch is written, every part is divided once more.
#[test]
fn parts_that_are_too_large_are_divided_again() {
    let options = SpillOptions { held_bytes_max: Some(1), file_bytes_max: None };
    (20..32).for_each(|seed| check(seed, u64::MAX, options, true));
}

#[test]
fn a_grouping_fails_by_itself_when_the_disk_does() {
    let mut random = SeededRandom::new(3);
    let batches = batches(&mut random, 8, 1 << 40);
    fail_each_operation(20, |disk, pool| {
        let spill = disk.spill(pool, SpillOptions { held_bytes_max: Some(300_000), file_bytes_max: None });
        let keys: Vec<Expression> = vec![column(0)];
        let sink = GroupBy::with_calls(keys.into(), calls(true).into(), [].into(), pool, 2).spilling_to(&spill);
        disk.run(&sink, &batches, 2).map(drop)
    });
}

/// Dividing does not help where the texts of one group are refused.
#[test]
fn groups_whose_texts_are_larger_than_memory_are_refused() {
    let row = |n: i64| vec![Value::Int64(n % 2), Value::Text(n.to_string().repeat(3 << 20).into())];
    let batches: Vec<Batch> = (0..8).map(|n| Batch::from_rows(&[DataType::Int64, DataType::Text], &[row(n)])).collect();
    let largest = call(AggregateFunction::Max, Some(1), DataType::Text, false);
    let (disk, pool) = (Disk::new(1), MemoryPool::new(1 << 20));
    let spill = disk.spill(&pool, SpillOptions::default());
    let sink = GroupBy::with_calls([column(0)].into(), [largest].into(), [].into(), &pool, 1).spilling_to(&spill);
    let refused = disk.run(&sink, &batches, 1).err();
    assert!(matches!(refused, Some(OperatorError::Memory(_))), "{refused:?}");
    drop(sink);
    disk.settle();
    assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
}
