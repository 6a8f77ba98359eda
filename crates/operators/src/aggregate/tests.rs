//! Grouping and aggregates against a slow reference over random rows.

use std::collections::BTreeMap;

use eris_platform::SeededRandom;
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
    }
}

/// Runs each part as a partition of its own, then merges.
fn run(plan: &Aggregate, parts: &[Batch]) -> Result<Batch, OperatorError> {
    let mut merge = AggregateMerge::new(plan);
    for part in parts {
        let mut state = Aggregating {
            plan: plan.clone(),
            groups: Groups::new(plan.groups.iter().map(Expression::data_type).collect()),
            accumulators: plan.calls.iter().map(|call| Accumulator::new(call.function, call.input_type())).collect(),
        };
        for start in (0..part.rows).step_by(7) {
            state.update(part.slice(start, 7.min(part.rows - start)))?;
        }
        let rows = state.groups.len();
        let mut columns = state.groups.take_columns();
        for accumulator in &mut state.accumulators {
            accumulator.grow(rows);
            accumulator.states(&mut columns);
        }
        merge.merge(&Batch::new(columns, rows))?;
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
