//! Random expressions over random batches, against the slow reference.

mod random;
mod reference;

use eris_platform::MemoryPool;
use eris_storage::{Batch, Column, ContainerDictionaries, DataType, Value, Values};

use super::instructions::forced::each_level;
use super::*;
use crate::coded_batches;
use random::{COLUMNS, Random};
use reference::value_of;

const SIZES: [usize; 5] = [0, 1, 7, 64, 2048];

/// A batch of random rows; one value in `nulls` is NULL (0: none).
fn batch(random: &mut Random, rows: usize, nulls: usize, small: bool) -> Batch {
    let mut value = |data_type| {
        if nulls > 0 && random.below(nulls) == 0 { Value::Null } else { random.value(data_type, small) }
    };
    let rows: Vec<Vec<Value>> = (0..rows).map(|_| COLUMNS.iter().map(|column| value(*column)).collect()).collect();
    Batch::from_rows(&COLUMNS, &rows)
}

/// Equal, also in type; floats to the last bit but for the sign of NaN and of 0.
fn same(got: &Value, expected: &Value) -> bool {
    std::mem::discriminant(got) == std::mem::discriminant(expected) && got == expected
}

fn check(expression: &Expression, batch: &Batch, parameters: &[Value]) -> bool {
    let expected: Result<Vec<Value>, _> =
        (0..batch.rows).map(|row| value_of(expression, batch, row, parameters)).collect();
    let got = expression.evaluate(batch, parameters);
    let failed = expected.is_err();
    match (got, expected) {
        (Ok(datum), Ok(expected)) => {
            let data_type = expression.data_type();
            let column = datum.into_column(data_type, batch.rows);
            assert_eq!(column.len(), batch.rows, "{expression}");
            assert_eq!(column.data_type, data_type, "{expression}");
            assert_eq!(column.values.physical(), data_type.physical(), "{expression}");
            for (row, expected) in expected.iter().enumerate() {
                let got = column.value(row);
                let of = || format!("{expression}\nof {:?}", batch.row(row));
                assert!(same(&got, expected), "{got:?} instead of {expected:?}: {}", of());
            }
            let narrowed = expression.evaluate_narrow(batch, parameters).unwrap();
            check_narrow(narrowed, data_type, &expected);
        }
        (Err(_), Err(_)) => {}
        // Constants are computed even if there is no row.
        (Err(_), Ok(expected)) if expected.is_empty() => {}
        (got, expected) => panic!("{got:?} instead of {expected:?}: {expression}"),
    }
    failed
}

fn check_narrow(narrowed: Narrowed, data_type: DataType, expected: &[Value]) {
    let Narrowed { datum, range } = narrowed;
    if let (Datum::Column(Column { values: Values::Int64(values), .. }), Some((low, high))) = (&datum, range) {
        assert!(values.iter().all(|value| (low..=high).contains(value)), "{low} to {high}");
    }
    let column = datum.into_column(data_type, expected.len());
    for (row, expected) in expected.iter().enumerate() {
        assert!(same(&column.value(row), expected), "{:?} instead of {expected:?}", column.value(row));
    }
}

#[test]
fn random_expressions_agree_with_the_reference() {
    agree(2026, 4_000);
    each_level(|| agree(7, 1_500));
}

fn agree(seed: u64, rounds: usize) {
    let mut random = Random(seed);
    let (mut failures, mut total, mut with_ids) = (0, 0, 0);
    for round in 0..rounds {
        let rows = SIZES[if round % 50 == 0 { 4 } else { random.below(4) }];
        let (nulls, small) = ([0, 3, 9][random.below(3)], random.below(4) > 0);
        let mut batch = batch(&mut random, rows, nulls, small);
        if round % 3 == 0 && rows > 0 {
            batch = coded_batches::coded(&batch, &ContainerDictionaries::new(&MemoryPool::unlimited()));
            with_ids += coded_batches::coded_columns(&batch);
        }
        let data_type = COLUMNS[random.below(COLUMNS.len())];
        let depth = 1 + random.below(4);
        let expression = random.expression(data_type, depth);
        failures += usize::from(check(&expression, &batch, &[Value::Null]));
        total += 1;
    }
    assert!(with_ids * 10 > total, "{with_ids} columns have ids");
    assert!(failures * 3 < total, "{failures} of {total} are errors");
    assert!(failures * 40 > total, "only {failures} of {total} are errors");
}

#[test]
fn narrow_columns_are_as_good_as_wide_ones() {
    let mut random = Random(7);
    for _ in 0..2_000 {
        let rows = SIZES[1 + random.below(3)];
        let wide = batch(&mut random, rows, 5, true);
        let mut narrow = wide.clone();
        for column in &mut narrow.columns {
            if let Some(values) = decimals::narrow_values(column).filter(|_| matches!(column.values, Values::Int128(_)))
            {
                column.values = Values::Int64(values);
            }
        }
        let data_type = COLUMNS[random.below(COLUMNS.len())];
        let expression = random.expression(data_type, 3);
        let of = |batch| expression.column(batch, &[Value::Null]).ok();
        assert_eq!(of(&wide), of(&narrow), "{expression}");
    }
}

#[test]
fn rows_are_selected_among_others() {
    let mut random = Random(99);
    for _ in 0..1_000 {
        let rows = SIZES[2 + random.below(2)];
        let batch = batch(&mut random, rows, 4, true);
        let condition = random.expression(DataType::Boolean, 3);
        let among: Vec<u32> = (0..rows as u32).filter(|_| random.below(3) == 0).collect();
        let is_true = |row: &u32| {
            value_of(&condition, &batch, *row as usize, &[Value::Null]).unwrap_or(Value::Null) == Value::Boolean(true)
        };
        if let Ok(all) = condition.true_rows(&batch, &[Value::Null], None) {
            let expected: Vec<u32> = (0..rows as u32).filter(is_true).collect();
            assert_eq!(all, expected, "{condition}");
            let some = condition.true_rows(&batch, &[Value::Null], Some(&among)).unwrap();
            let expected: Vec<u32> = among.iter().copied().filter(is_true).collect();
            assert_eq!(some, expected, "{condition}");
        }
    }
}

#[test]
fn expressions_say_what_they_are() {
    let text = |index| Box::new(Expression::Column { index, data_type: DataType::Text });
    let like = Expression::Like {
        input: text(0),
        pattern: Arc::new(LikePattern::new("a%", Some('\\'), true).unwrap()),
        negated: true,
    };
    let set = ValueSet::new(DataType::Text, &[Value::Text("13".into()), Value::Null]).unwrap();
    let part = Expression::Substring { input: text(1), span: Span::new(1, Some(2)).unwrap() };
    let in_list = Expression::InList { input: Box::new(part), set: Arc::new(set), negated: false };
    let year = Expression::Extract {
        part: DatePart::Year,
        input: Box::new(Expression::Column { index: 2, data_type: DataType::Date }),
    };
    let case = Expression::Case {
        branches: [(like, year.clone())].into(),
        otherwise: Some(Box::new(year.cast(DataType::Int64).unwrap())),
        data_type: DataType::Int64,
    };
    let shown = "case when #0 not ilike 'a%' then extract(year from #2) else cast(extract(year from #2) as bigint) end";
    assert_eq!(case.to_string(), shown);
    assert_eq!(in_list.to_string(), "substring(#1 from 1 for 2) in (13, NULL)");
    let truth = Expression::IsTruth { input: Box::new(in_list), truth: false, negated: true };
    assert_eq!(truth.to_string(), "(substring(#1 from 1 for 2) in (13, NULL)) is not false");
}
