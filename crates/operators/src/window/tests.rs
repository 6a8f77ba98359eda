//! Windows of random rows, compared with a reference that looks at every row of the partition for every row.

mod large;
mod reference;

use std::sync::Arc;

use eris_platform::{MemoryPool, SeededRandom};
use eris_storage::{Batch, DataType, Value};

use super::{Frame, FrameBound, FrameUnit, WindowCall, WindowFunction, WindowSink, WindowSpec};
use crate::aggregate::AggregateFunction;
use crate::error::OperatorError;
use crate::pipeline::{Sink, finish};
use crate::sort::{SortKey, SortKeys};
use reference::expected;

/// The columns of the rows.
mod at {
    pub const PARTITION: usize = 0;
    pub const TEXT: usize = 1;
    pub const FLOAT: usize = 2;
    pub const WIDE: usize = 3;
    pub const INTEGER: usize = 4;
    pub const NARROW: usize = 5;
    pub const OFFSET: usize = 6;
    pub const COUNT: usize = 7;
    pub const DEFAULT: usize = 8;
    pub const KEY: usize = 9;
    pub const LOW: usize = 10;
    pub const HIGH: usize = 11;
    pub const ROW: usize = 12;
}

const TYPES: [DataType; 13] = [
    DataType::Int64,
    DataType::Text,
    DataType::Float64,
    DataType::Decimal { precision: 30, scale: 2 },
    DataType::Int32,
    DataType::Decimal { precision: 12, scale: 1 },
    DataType::Int32,
    DataType::Int16,
    DataType::Text,
    DataType::Int64,
    DataType::Int64,
    DataType::Int64,
    DataType::Int64,
];

/// How the rows of one test are ordered and what their frames look like.
struct Plan {
    keys: SortKeys,
    partition_keys: usize,
    /// Added to the key for the columns of bounds.
    low: i64,
    high: i64,
}

fn key(random: &mut SeededRandom, column: usize) -> SortKey {
    SortKey { column, descending: random.below(2) == 0, nulls_first: random.below(2) == 0 }
}

fn plan(random: &mut SeededRandom) -> Plan {
    let mut keys = Vec::new();
    if random.below(3) > 0 {
        keys.push(key(random, at::PARTITION));
    }
    let partition_keys = keys.len();
    let by_value = random.below(2) == 0;
    if by_value {
        keys.push(key(random, at::KEY));
    } else {
        for column in [at::TEXT, at::FLOAT, at::WIDE] {
            if random.below(2) == 0 {
                keys.push(key(random, column));
            }
        }
    }
    let (low, high) = (random.below(12) as i64 - 6, random.below(12) as i64 - 6);
    Plan { keys: SortKeys(keys.into()), partition_keys, low, high }
}

fn rows(random: &mut SeededRandom, count: usize, plan: &Plan) -> Vec<Vec<Value>> {
    let different = [2, 5, 1_000][random.index(3)];
    let partitions = [1, 3, 40][random.index(3)];
    let nulls = [0, 1, 3][random.index(3)];
    let sign = if plan.keys.0.last().is_some_and(|key| key.descending) { -1 } else { 1 };
    (0..count)
        .map(|row| {
            let n = random.below(different) as i64 - 2;
            let big = i128::from(random.below(1_000)) << (random.below(2) * 70);
            let key = random.below(different.min(30)) as i64;
            let mut values = vec![
                Value::Int64(random.below(partitions) as i64),
                Value::Text(format!("größer als vierzehn Bytes {}", n % 7).into()),
                Value::Float64(match n {
                    3 => f64::NAN,
                    n => n as f64 / 4.0,
                }),
                Value::Decimal { unscaled: big, scale: 2 },
                Value::Int32(random.below(different) as i32 - 3),
                Value::Decimal { unscaled: i128::from(n * 7), scale: 1 },
                Value::Int32(random.below(8) as i32 - 3),
                Value::Int16(random.below(5) as i16 + 1),
                Value::Text(format!("sonst {}", random.below(3)).into()),
                Value::Int64(key),
            ];
            for value in &mut values {
                if random.below(8) < nulls {
                    *value = Value::Null;
                }
            }
            for plus in [plan.low, plan.high] {
                values.push(match values[at::KEY] {
                    Value::Int64(key) => Value::Int64(key + plus * sign),
                    _ => Value::Null,
                });
            }
            values.push(Value::Int64(row as i64));
            values
        })
        .collect()
}

fn bound(random: &mut SeededRandom, plan: &Plan, column: usize) -> FrameBound {
    match random.below(6) {
        0 => FrameBound::Unbounded,
        1 => FrameBound::Current,
        2 => FrameBound::Preceding(random.below(6)),
        3 => FrameBound::Following(random.below(6)),
        _ => match plan.keys.0[plan.partition_keys..] {
            [key] if key.column == at::KEY => FrameBound::Value { key, bound: column },
            _ => FrameBound::Preceding(random.below(40)),
        },
    }
}

fn calls(random: &mut SeededRandom, plan: &Plan) -> Vec<WindowCall> {
    let value = |random: &mut SeededRandom| [at::TEXT, at::FLOAT, at::WIDE, at::INTEGER][random.index(4)];
    let mut calls = Vec::new();
    for _ in 0..=random.below(5) {
        let function = match random.below(12) {
            0 => WindowFunction::RowNumber,
            1 => WindowFunction::Rank,
            2 => WindowFunction::DenseRank,
            3 => WindowFunction::PercentRank,
            4 => WindowFunction::CumeDist,
            5 => WindowFunction::Ntile { buckets: at::COUNT },
            6 => WindowFunction::Shift {
                value: at::TEXT,
                offset: (random.below(3) > 0).then_some(at::OFFSET),
                default: (random.below(2) > 0).then_some(at::DEFAULT),
                ahead: random.below(2) > 0,
            },
            7 => WindowFunction::FirstValue { value: value(random) },
            8 => WindowFunction::LastValue { value: value(random) },
            9 => WindowFunction::NthValue { value: value(random), number: at::COUNT },
            _ => aggregate(random),
        };
        let unit = if random.below(2) == 0 { FrameUnit::Rows } else { FrameUnit::Groups };
        let frame = Frame { unit, start: bound(random, plan, at::LOW), end: bound(random, plan, at::HIGH) };
        calls.push(WindowCall { function, frame, result: result_of(function) });
    }
    calls
}

fn aggregate(random: &mut SeededRandom) -> WindowFunction {
    let numbers = [at::INTEGER, at::NARROW, at::WIDE, at::FLOAT];
    let (function, input) = match random.below(7) {
        0 => (AggregateFunction::CountAll, None),
        1 => (AggregateFunction::Count, Some(at::TEXT)),
        2 | 3 => (AggregateFunction::Sum, Some(numbers[random.index(4)])),
        4 => (AggregateFunction::Average, Some(numbers[random.index(4)])),
        5 => (AggregateFunction::Min, Some([at::TEXT, at::FLOAT, at::WIDE, at::KEY][random.index(4)])),
        _ => (AggregateFunction::Max, Some([at::TEXT, at::FLOAT, at::WIDE, at::KEY][random.index(4)])),
    };
    WindowFunction::Aggregate { function, input }
}

fn result_of(function: WindowFunction) -> DataType {
    match function {
        WindowFunction::RowNumber | WindowFunction::Rank | WindowFunction::DenseRank => DataType::Int64,
        WindowFunction::Ntile { .. } => DataType::Int32,
        WindowFunction::PercentRank | WindowFunction::CumeDist => DataType::Float64,
        WindowFunction::Shift { value, .. }
        | WindowFunction::FirstValue { value }
        | WindowFunction::LastValue { value }
        | WindowFunction::NthValue { value, .. } => TYPES[value],
        WindowFunction::Aggregate { function, input } => match (function, input.map(|input| TYPES[input])) {
            (AggregateFunction::Min | AggregateFunction::Max, Some(data_type)) => data_type,
            (AggregateFunction::Sum | AggregateFunction::Average, Some(DataType::Float64)) => DataType::Float64,
            (AggregateFunction::Sum, Some(DataType::Int32)) => DataType::Int64,
            (AggregateFunction::Sum, Some(DataType::Decimal { precision, scale })) => {
                DataType::Decimal { precision: precision + 8, scale }
            }
            (AggregateFunction::Average, Some(DataType::Decimal { scale, .. })) => {
                DataType::Decimal { precision: 38, scale: scale + 6 }
            }
            (AggregateFunction::Average, _) => DataType::Decimal { precision: 38, scale: 6 },
            _ => DataType::Int64,
        },
    }
}

fn consume(sink: &WindowSink, rows: &[Vec<Value>], random: &mut SeededRandom) -> Result<(), OperatorError> {
    let whole = Batch::from_rows(&TYPES, rows);
    let mut start = 0;
    while start < rows.len() {
        let length = (1 + random.index(3_000)).min(rows.len() - start);
        sink.consume(whole.slice(start, length), &mut |_| Ok(()))?;
        start += length;
    }
    Ok(())
}

fn rows_of(batches: &[Batch]) -> Vec<Vec<Value>> {
    batches.iter().flat_map(|batch| (0..batch.rows).map(|row| batch.row(row))).collect()
}

/// Whether two results are the same, up to the rounding of sums in another order.
fn alike(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Float64(a), Value::Float64(b)) if a.is_finite() => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
        _ => found == expected,
    }
}

fn check(seed: u64, count: usize) {
    let mut random = SeededRandom::new(seed);
    let plan = plan(&mut random);
    let rows = rows(&mut random, count, &plan);
    let calls = calls(&mut random, &plan);
    let kept = [at::ROW, at::TEXT];
    let spec = WindowSpec {
        keys: plan.keys.clone(),
        partition_keys: plan.partition_keys,
        kept: kept.into(),
        calls: calls.clone().into(),
    };
    let pool = MemoryPool::unlimited();
    let sink = WindowSink::new(spec, &pool, 2);
    consume(&sink, &rows, &mut random).unwrap();
    let found = finish(&sink, 1 + random.index(2)).unwrap();
    for batch in &found {
        let types: Vec<DataType> = kept.iter().map(|at| TYPES[*at]).chain(calls.iter().map(|c| c.result)).collect();
        assert_eq!(batch.data_types(), types);
    }
    let expected = expected(&rows, &plan.keys, plan.partition_keys, &kept, &calls);
    let found = rows_of(&found);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        let same = found.iter().zip(expected).all(|(found, expected)| alike(found, expected));
        assert!(same, "seed {seed}: {found:?} instead of {expected:?}\n{:?}\n{calls:?}", plan.keys);
    }
    drop(sink);
    assert_eq!(pool.used(), 0);
}

#[test]
fn windows_are_those_of_the_reference() {
    for seed in 0..300 {
        check(seed, [0, 1, 2, 5, 30, 200][seed as usize % 6]);
    }
    for seed in 1_000..1_010 {
        check(seed, 2_500);
    }
}

fn call(function: WindowFunction, frame: Frame) -> WindowCall {
    WindowCall { function, frame, result: result_of(function) }
}

/// One partition in the order of the rows.
fn in_order(calls: Vec<WindowCall>) -> WindowSpec {
    let keys = SortKeys([SortKey { column: at::ROW, descending: false, nulls_first: false }].into());
    WindowSpec { keys, partition_keys: 0, kept: [at::ROW].into(), calls: calls.into() }
}

fn numbered(count: usize, change: impl Fn(usize, &mut Vec<Value>)) -> Vec<Vec<Value>> {
    let row = |row: usize| {
        let mut values = vec![Value::Null; TYPES.len()];
        values[at::ROW] = Value::Int64(row as i64);
        change(row, &mut values);
        values
    };
    (0..count).map(row).collect()
}

#[test]
fn numbers_that_are_not_positive_are_refused() {
    let rows = numbered(3, |row, values| values[at::COUNT] = Value::Int16(1 - row as i16));
    let run = |function| {
        let sink = WindowSink::new(in_order(vec![call(function, Frame::PARTITION)]), &MemoryPool::unlimited(), 1);
        consume(&sink, &rows, &mut SeededRandom::new(1)).unwrap();
        finish(&sink, 1).map(|batches| rows_of(&batches).len())
    };
    let error = run(WindowFunction::NthValue { value: at::ROW, number: at::COUNT }).unwrap_err();
    assert_eq!(error.to_string(), "argument of nth_value must be greater than zero");
    // Only the first row of a partition that says it says how many buckets there are.
    assert_eq!(run(WindowFunction::Ntile { buckets: at::COUNT }).unwrap(), 3);
    let error = run(WindowFunction::Ntile { buckets: at::OFFSET });
    assert_eq!(error.unwrap(), 3, "of NULL buckets every row is in none");
}

#[test]
fn a_sum_beyond_its_type_fails_only_where_it_is_asked_for() {
    let huge = 10_i128.pow(27);
    let sum = WindowFunction::Aggregate { function: AggregateFunction::Sum, input: Some(at::WIDE) };
    let rows = numbered(1_000, |_, values| {
        values[at::WIDE] = Value::Decimal { unscaled: huge * 9, scale: 2 };
    });
    let run = |precision, start| {
        let frame = Frame { unit: FrameUnit::Rows, start, end: FrameBound::Current };
        let result = DataType::Decimal { precision, scale: 2 };
        let spec = in_order(vec![WindowCall { function: sum, frame, result }]);
        let sink = WindowSink::new(spec, &MemoryPool::unlimited(), 1);
        consume(&sink, &rows, &mut SeededRandom::new(1)).unwrap();
        finish(&sink, 1)
    };
    assert!(run(32, FrameBound::Unbounded).is_ok());
    assert!(matches!(run(30, FrameBound::Unbounded), Err(OperatorError::Overflow { type_name: "numeric" })));
    assert!(run(30, FrameBound::Preceding(50)).is_ok());
}

#[test]
fn what_memory_does_not_hold_fails_and_leaves_nothing_behind() {
    let rows = numbered(20_000, |row, values| values[at::INTEGER] = Value::Int32(row as i32));
    let sum = WindowFunction::Aggregate { function: AggregateFunction::Sum, input: Some(at::INTEGER) };
    let frame = Frame { unit: FrameUnit::Rows, start: FrameBound::Unbounded, end: FrameBound::Current };
    let run = |pool: &Arc<MemoryPool>| {
        let sink = WindowSink::new(in_order(vec![call(sum, frame); 3]), pool, 1);
        consume(&sink, &rows, &mut SeededRandom::new(1))?;
        let batches = finish(&sink, 1)?;
        Ok::<_, OperatorError>(batches.iter().map(Batch::bytes).sum::<usize>())
    };
    let pool = MemoryPool::unlimited();
    let bytes = run(&pool).unwrap() as u64;
    let needed = pool.peak();
    assert!(pool.used() == 0 && needed > bytes, "{needed} for {bytes}");
    for limit in (0..8).map(|part| needed * part / 8) {
        let pool = MemoryPool::new(limit);
        assert!(matches!(run(&pool), Err(OperatorError::Memory(_))), "{limit}");
        assert_eq!(pool.used(), 0);
    }
    // A part of a limit is kept back.
    assert!(run(&MemoryPool::new(needed * 9 / 8)).is_ok());
}
