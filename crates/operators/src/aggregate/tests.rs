//! Grouping and aggregates against a slow reference over random rows.

use std::collections::BTreeMap;

use eris_platform::{MemoryPool, SeededRandom};
use eris_storage::{Batch, DataType, Value};

use super::*;

fn column(index: usize, data_type: DataType) -> Expression {
    Expression::Column { index, data_type }
}

fn plan(groups: Vec<Expression>, input: DataType, sum: DataType, average: DataType) -> Aggregate {
    let call = |function, result| AggregateCall {
        function,
        input: (function != AggregateFunction::CountAll).then(|| column(1, input)),
        result,
    };
    Aggregate {
        filter: None,
        projection: None,
        groups: groups.into(),
        calls: [
            call(AggregateFunction::CountAll, DataType::Int64),
            call(AggregateFunction::Count, DataType::Int64),
            call(AggregateFunction::Sum, sum),
            call(AggregateFunction::Min, input),
            call(AggregateFunction::Max, input),
            call(AggregateFunction::Average, average),
        ]
        .into(),
        parameters: [].into(),
        memory: MemoryPool::unlimited(),
        input: AggregationInput::default(),
    }
}

/// Runs each part as a partition of its own, then merges.
fn run(plan: &Aggregate, parts: &[Batch]) -> Result<Batch, OperatorError> {
    let mut merge = AggregateMerge::new(plan);
    for part in parts {
        let mut state = Aggregating { plan: plan.clone(), grouped: Grouped::of(plan) };
        for start in (0..part.rows).step_by(7) {
            state.update(part.slice(start, 7.min(part.rows - start)))?;
        }
        if let Some(partial) = state.partial() {
            merge.merge(&partial)?;
        }
    }
    merge.finish()
}

#[test]
fn agrees_with_a_reference() {
    let average = DataType::Decimal { precision: 38, scale: 16 };
    for seed in 0..200 {
        let mut random = SeededRandom::new(seed);
        let mut reference: BTreeMap<String, Vec<Option<i64>>> = BTreeMap::new();
        let mut parts = Vec::new();
        for _ in 0..=random.below(3) {
            let mut rows = Vec::new();
            for _ in 0..random.below(60) {
                let group = match random.below(6) {
                    0 => Value::Null,
                    n if n < 4 => Value::Text(format!("g{n}").into()),
                    n => Value::Text(format!("a group with a long name {}", n % 2).into()),
                };
                let value = (random.below(5) > 0).then(|| random.below(2_000) as i64 - 1_000);
                reference.entry(group.to_string()).or_default().push(value);
                rows.push(vec![group, value.map_or(Value::Null, Value::Int64)]);
            }
            parts.push(Batch::from_rows(&[DataType::Text, DataType::Int64], &rows));
        }
        let plan = plan(vec![column(0, DataType::Text)], DataType::Int64, DataType::Int64, average);
        let result = run(&plan, &parts).unwrap();
        assert_eq!(result.rows, reference.len(), "seed {seed}");
        for row in 0..result.rows {
            let values = &reference[&result.value(row, 0).to_string()];
            let present: Vec<i64> = values.iter().flatten().copied().collect();
            let integer = |value: Option<i64>| value.map_or(Value::Null, Value::Int64);
            assert_eq!(result.value(row, 1), Value::Int64(values.len() as i64));
            assert_eq!(result.value(row, 2), Value::Int64(present.len() as i64));
            assert_eq!(result.value(row, 3), integer((!present.is_empty()).then(|| present.iter().sum())));
            assert_eq!(result.value(row, 4), integer(present.iter().min().copied()));
            assert_eq!(result.value(row, 5), integer(present.iter().max().copied()));
            let average = match present.len() as i128 {
                0 => Value::Null,
                n => {
                    let sum = present.iter().map(|v| i128::from(*v)).sum::<i128>() * 10_i128.pow(16);
                    Value::Decimal { unscaled: divide(sum, n), scale: 16 }
                }
            };
            assert_eq!(result.value(row, 6), average, "seed {seed}");
        }
    }
}

fn divide(a: i128, b: i128) -> i128 {
    let twice = 2 * (a.abs() % b);
    a.signum() * (a.abs() / b + i128::from(twice >= b))
}

#[test]
fn no_rows_are_one_group_without_keys_and_none_with() {
    let plan = |groups| plan(groups, DataType::Int64, DataType::Int64, DataType::Float64);
    let result = run(&plan(vec![]), &[]).unwrap();
    assert_eq!((result.rows, result.value(0, 0), result.value(0, 2)), (1, Value::Int64(0), Value::Null));
    assert_eq!(run(&plan(vec![column(0, DataType::Text)]), &[]).unwrap().rows, 0);
}

#[test]
fn sums_are_checked() {
    let rows = [Value::Int64(i64::MAX), Value::Int64(1)].map(|value| vec![Value::Null, value]);
    let batch = Batch::from_rows(&[DataType::Text, DataType::Int64], &rows);
    let plan = plan(vec![], DataType::Int64, DataType::Int64, DataType::Float64);
    assert!(matches!(run(&plan, &[batch]), Err(OperatorError::Overflow { type_name: "bigint" })));
}

/// `rows` rows of two columns, with `groups` different texts of `length` bytes.
fn texts(rows: usize, groups: usize, length: usize) -> Batch {
    let text = |row: usize| format!("{:0length$}", row % groups);
    let rows: Vec<Vec<Value>> =
        (0..rows).map(|row| vec![Value::Text(text(row).into()), Value::Text(text(row * 7).into())]).collect();
    Batch::from_rows(&[DataType::Text, DataType::Text], &rows)
}

/// Smallest and largest text of each group.
fn extremes(memory: &Arc<MemoryPool>) -> Aggregate {
    let call = |function| AggregateCall { function, input: Some(column(1, DataType::Text)), result: DataType::Text };
    Aggregate {
        filter: None,
        projection: None,
        groups: [column(0, DataType::Text)].into(),
        calls: [call(AggregateFunction::Min), call(AggregateFunction::Max)].into(),
        parameters: [].into(),
        memory: Arc::clone(memory),
        input: AggregationInput::default(),
    }
}

#[test]
fn what_groups_and_states_take_is_reserved() {
    for (groups, length) in [(1, 5), (17, 5), (5_000, 5), (1, 300), (3_000, 300)] {
        let memory = MemoryPool::unlimited();
        let plan = extremes(&memory);
        let mut state = Aggregating { plan: plan.clone(), grouped: Grouped::of(&plan) };
        let input = texts(10_000, groups, length);
        for start in (0..input.rows).step_by(1_000) {
            state.update(input.slice(start, 1_000)).unwrap();
            let (allocated, texts) = state.grouped.allocated();
            let (allocated, room) = (allocated as u64 + texts, &state.grouped.room);
            assert!(room.bytes() >= allocated, "{} reserved, {allocated} allocated", room.bytes());
            assert!(room.bytes() <= allocated * 2 + (16 << 10), "{} reserved, {allocated} allocated", room.bytes());
        }
        let partial = state.partial().unwrap();
        assert_eq!(partial.rows, groups);
        let mut merge = AggregateMerge::new(&plan);
        merge.merge(&partial).unwrap();
        drop(state);
        assert!(memory.used() >= partial.bytes() as u64, "the merge holds what it was given");
        assert_eq!(merge.finish().unwrap().rows, groups);
        assert_eq!(memory.used(), 0);
    }
}

#[test]
fn beyond_the_limit_an_aggregate_fails_and_gives_everything_back() {
    let input = texts(4_000, 4_000, 40);
    let whole = MemoryPool::unlimited();
    assert_eq!(run(&extremes(&whole), std::slice::from_ref(&input)).unwrap().rows, 4_000);
    let peak = whole.peak();
    assert!(peak > 4_000 * 3 * 40);
    for limit in [0, 100, 10_000, peak / 3] {
        let memory = MemoryPool::new(limit);
        let failed = run(&extremes(&memory), std::slice::from_ref(&input)).unwrap_err();
        assert!(matches!(&failed, OperatorError::Memory(error) if error.consumer == "aggregate"), "{failed}");
        assert_eq!(memory.used(), 0);
    }
    // A sixteenth of the limit is kept for what gives memory back.
    assert!(run(&extremes(&MemoryPool::new(peak + peak / 15 + 1)), &[input]).is_ok());
    // Few groups need little, however many rows there are.
    assert_eq!(run(&extremes(&MemoryPool::new(32 << 10)), &[texts(20_000, 12, 5)]).unwrap().rows, 12);
}

/// The key of a row, of its number and a number that is spread over all.
type KeyOfRow = fn(i64, i64) -> Vec<Value>;

#[test]
fn groups_use_most_of_the_memory_there_is() {
    let count = AggregateCall { function: AggregateFunction::CountAll, input: None, result: DataType::Int64 };
    // Texts, pairs of integers that have a word of two, integers that a table finds.
    let multiplied = |row: i64| row.wrapping_mul(0x5851_F42D_4C95_7F2D);
    let keys: [(Vec<DataType>, KeyOfRow); 3] = [
        (vec![DataType::Text], |row, _| vec![Value::Text(format!("{row:020}").into())]),
        (vec![DataType::Int64; 2], |row, spread| vec![Value::Int64(spread), Value::Int64(row)]),
        (vec![DataType::Int64], |_, spread| vec![Value::Int64(spread)]),
    ];
    for (types, values) in keys {
        // Limits between two powers of two, each of which is refused the last doubling somewhere else.
        for limit in [1_u64 << 20, 1_300_000, 1_700_000, 1_999_999] {
            let memory = MemoryPool::new(limit);
            let plan = Aggregate {
                groups: types.iter().enumerate().map(|(at, data_type)| column(at, *data_type)).collect(),
                calls: [count.clone()].into(),
                ..extremes(&memory)
            };
            let mut grouped = Grouped::of(&plan);
            let refused = (0..).step_by(100).find(|first| {
                let first = *first;
                let rows: Vec<Vec<Value>> = (first..first + 100).map(|row| values(row, multiplied(row))).collect();
                let before = grouped.len();
                let taken = grouped.update(&Batch::from_rows(&types, &rows), &[]);
                assert!(taken.is_err() || grouped.len() == before + 100, "groups are found again");
                taken.is_err()
            });
            let used = memory.used() * 100 / (limit - limit / 16);
            assert!(used >= 80, "{used} % are used of {limit}, with {refused:?} groups of {types:?}");
            // Refused again and again, the table stays as full as it is.
            for first in (1_i64 << 40..).step_by(100).take(1_000) {
                let rows: Vec<Vec<Value>> = (first..first + 100).map(|row| values(row, multiplied(row))).collect();
                assert!(grouped.update(&Batch::from_rows(&types, &rows), &[]).is_err());
            }
            // All are still found.
            let rows: Vec<Vec<Value>> = (0..50).map(|row| values(row, multiplied(row))).collect();
            let found = grouped.assign(&Batch::from_rows(&types, &rows).columns, 50).unwrap();
            assert!(found.into_iter().eq(0..50));
        }
    }
}
