//! Partitions of several chunks, whose frames are put together of nodes of all levels.

use eris_platform::{MemoryPool, SeededRandom};
use eris_storage::Value;

use super::{
    AggregateFunction, Frame, FrameBound, FrameUnit, WindowCall, WindowFunction, WindowSink, at, call, consume, finish,
    in_order, numbered, rows_of,
};

/// More than two chunks, and not whole nodes.
const ROWS: usize = 140_003;

#[test]
fn large_frames_are_put_together_of_parts() {
    let mut random = SeededRandom::new(7);
    let numbers: Vec<Option<i64>> =
        (0..ROWS).map(|_| (random.below(9) > 0).then(|| random.below(1 << 20) as i64 - (1 << 19))).collect();
    let rows = numbered(ROWS, |row, values| {
        if let Some(number) = numbers[row] {
            values[at::INTEGER] = Value::Int32(number as i32);
            values[at::FLOAT] = Value::Float64(number as f64 / 8.0);
            values[at::KEY] = Value::Int64(number);
        }
    });
    let frames = [
        (FrameBound::Unbounded, FrameBound::Current),
        (FrameBound::Unbounded, FrameBound::Unbounded),
        (FrameBound::Current, FrameBound::Unbounded),
        (FrameBound::Preceding(70_000), FrameBound::Preceding(3)),
        (FrameBound::Preceding(200), FrameBound::Following(31)),
        (FrameBound::Following(5), FrameBound::Following(66_000)),
    ];
    let functions = [
        (AggregateFunction::Sum, at::INTEGER),
        (AggregateFunction::Count, at::INTEGER),
        (AggregateFunction::Sum, at::FLOAT),
        (AggregateFunction::Min, at::KEY),
        (AggregateFunction::Max, at::KEY),
    ];
    let mut calls: Vec<WindowCall> = Vec::new();
    for (start, end) in frames {
        for (function, input) in functions {
            let function = WindowFunction::Aggregate { function, input: Some(input) };
            calls.push(call(function, Frame { unit: FrameUnit::Rows, start, end }));
        }
    }
    let pool = MemoryPool::unlimited();
    let sink = WindowSink::new(in_order(calls), &pool, 2);
    consume(&sink, &rows, &mut random).unwrap();
    let found = rows_of(&finish(&sink, 2).unwrap());
    assert_eq!(found.len(), ROWS);
    for row in (0..ROWS).step_by(691).chain([ROWS - 1]) {
        for (frame, results) in frames.iter().zip(found[row][1..].chunks(functions.len())) {
            let place = |bound: FrameBound, end: i64| match bound {
                FrameBound::Unbounded => end,
                FrameBound::Current => row as i64,
                FrameBound::Preceding(count) => row as i64 - count as i64,
                FrameBound::Following(count) => row as i64 + count as i64,
                FrameBound::Value { .. } => panic!("a frame of rows"),
            };
            let start = place(frame.0, 0).clamp(0, ROWS as i64) as usize;
            let end = (place(frame.1, ROWS as i64 - 1) + 1).clamp(start as i64, ROWS as i64) as usize;
            let values: Vec<i64> = numbers[start..end].iter().flatten().copied().collect();
            let sum: i64 = values.iter().sum();
            let or_null = |value: Option<Value>| value.unwrap_or(Value::Null);
            let any = (!values.is_empty()).then_some(());
            // Eighths below 2^53 are added exactly in any order.
            let expected = [
                or_null(any.map(|()| Value::Int64(sum))),
                Value::Int64(values.len() as i64),
                or_null(any.map(|()| Value::Float64(sum as f64 / 8.0))),
                or_null(values.iter().min().map(|value| Value::Int64(*value))),
                or_null(values.iter().max().map(|value| Value::Int64(*value))),
            ];
            assert_eq!(results, expected, "row {row}, {frame:?}");
        }
    }
    drop(sink);
    assert_eq!(pool.used(), 0);
}

#[test]
fn partitions_and_peers_across_chunks() {
    // Partitions of 50,000 rows and a rest; peers in tens.
    let rows = numbered(ROWS, |row, values| {
        values[at::PARTITION] = Value::Int64(row as i64 / 50_000);
        values[at::KEY] = Value::Int64(row as i64 / 10);
    });
    let key = |column| crate::sort::SortKey { column, descending: false, nulls_first: false };
    let groups = Frame { unit: FrameUnit::Groups, start: FrameBound::Unbounded, end: FrameBound::Current };
    let calls = vec![
        call(WindowFunction::RowNumber, Frame::PARTITION),
        call(WindowFunction::Rank, Frame::PARTITION),
        call(WindowFunction::DenseRank, Frame::PARTITION),
        call(WindowFunction::Aggregate { function: AggregateFunction::CountAll, input: None }, groups),
        call(WindowFunction::Aggregate { function: AggregateFunction::Max, input: Some(at::ROW) }, groups),
    ];
    let spec = crate::window::WindowSpec {
        keys: crate::sort::SortKeys([key(at::PARTITION), key(at::KEY)].into()),
        partition_keys: 1,
        kept: [at::ROW].into(),
        calls: calls.into(),
    };
    let sink = WindowSink::new(spec, &MemoryPool::unlimited(), 2);
    consume(&sink, &rows, &mut SeededRandom::new(3)).unwrap();
    let found = rows_of(&finish(&sink, 2).unwrap());
    for (row, found) in found.iter().enumerate() {
        let (start, in_partition) = (row / 50_000 * 50_000, row % 50_000);
        let last = (in_partition / 10 * 10 + 10).min(ROWS - start);
        let expected =
            [row, in_partition + 1, in_partition / 10 * 10 + 1, in_partition / 10 + 1, last, start + last - 1];
        assert_eq!(*found, expected.map(|number| Value::Int64(number as i64)), "row {row}");
    }
}
