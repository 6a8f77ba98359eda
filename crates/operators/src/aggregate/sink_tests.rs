//! The grouping sink against a slow reference: types x NULLs x sizes x numbers of groups x DISTINCT x FILTER.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use eris_platform::{MemoryPool, SeededRandom};
use eris_storage::{BATCH_ROWS, Batch, Comparison, ContainerDictionaries, DataType, Value};

use super::*;
use crate::aggregate::AggregateFunction;
use crate::coded_batches::{coded, coded_columns};
use crate::pipeline::{Pipeline, Sink, Step};

fn column(index: usize, data_type: DataType) -> Expression {
    Expression::Column { index, data_type }
}

/// Group columns that are packed in different ways.
fn key_shapes() -> Vec<Vec<DataType>> {
    let wide = DataType::Decimal { precision: 30, scale: 2 };
    vec![
        vec![],
        vec![DataType::Int32],
        vec![DataType::Int64],
        vec![DataType::Boolean, DataType::Int16],
        vec![DataType::Date, DataType::Float32],
        vec![DataType::Float64],
        vec![wide],
        vec![wide, DataType::Int32],
        vec![DataType::Text],
        vec![DataType::Text, DataType::Text],
        vec![DataType::Text, DataType::Int64],
        vec![DataType::Int32, DataType::Date, DataType::Int32],
    ]
}

fn key(data_type: DataType, n: u64, text_max: usize) -> Value {
    match data_type {
        DataType::Boolean => Value::Boolean(n.is_multiple_of(2)),
        DataType::Int16 => Value::Int16(n as i16 - 20),
        DataType::Int32 => Value::Int32(n as i32 * 1_001 - 30),
        DataType::Date => Value::Date(n as i32 - 3),
        DataType::Int64 | DataType::Timestamp => Value::Int64((n as i64 - 5) << 33),
        DataType::Float32 => Value::Float32(if n == 3 { f32::NAN } else { n as f32 / 2.0 }),
        DataType::Float64 => Value::Float64(if n == 3 { f64::NAN } else { n as f64 / 3.0 }),
        DataType::Decimal { scale, .. } => Value::Decimal { unscaled: (i128::from(n) - 4) << 66, scale },
        DataType::Text | DataType::Bytes => {
            let text = format!("{n}{}", "x".repeat(20));
            Value::Text(text[..(text_max.min(n as usize % 20)).max(1)].into())
        }
    }
}

/// Keys, a number, a decimal, a text.
fn rows(random: &mut SeededRandom, types: &[DataType], count: usize, keys: u64) -> Vec<Vec<Value>> {
    let nulls = random.below(2) == 0;
    let text_max = [1, 3, 7, 12, 20][random.index(5)];
    (0..count)
        .map(|_| {
            let n = random.below(keys);
            let mut row: Vec<Value> = types.iter().map(|data_type| key(*data_type, n, text_max)).collect();
            let number = random.below(50) as i64 - 25;
            row.push(Value::Int64(number));
            row.push(Value::Decimal { unscaled: i128::from(number) * 7, scale: 2 });
            row.push(Value::Text(format!("{number}{}", "y".repeat(random.index(3) * 8)).into()));
            for value in &mut row {
                if nulls && random.below(10) == 0 {
                    *value = Value::Null;
                }
            }
            row
        })
        .collect()
}

const DECIMAL: DataType = DataType::Decimal { precision: 12, scale: 2 };

fn calls(at: usize) -> Vec<GroupCall> {
    use AggregateFunction::{Average, Count, CountAll, Max, Min, Sum};
    let call = |function, input: Option<(usize, DataType)>, result| {
        let input = input.map(|(index, data_type)| column(at + index, data_type));
        AggregateCall { function, input, result }
    };
    let (number, decimal, text) = ((0, DataType::Int64), (1, DECIMAL), (2, DataType::Text));
    let sum = DataType::Decimal { precision: 38, scale: 2 };
    let plain = [
        call(CountAll, None, DataType::Int64),
        call(Count, Some(text), DataType::Int64),
        call(Sum, Some(number), DataType::Int64),
        call(Sum, Some(decimal), sum),
        call(Average, Some(decimal), DataType::Decimal { precision: 38, scale: 6 }),
        call(Min, Some(number), DataType::Int64),
        call(Max, Some(text), DataType::Text),
    ];
    let positive = Expression::Compare {
        comparison: Comparison::Greater,
        left: Box::new(column(at, DataType::Int64)),
        right: Box::new(Expression::Constant { value: Value::Int64(0), data_type: DataType::Int64 }),
    };
    let mut calls = Vec::new();
    for call in plain {
        let filtered = GroupCall { filter: Some(positive.clone()), ..GroupCall::from(call.clone()) };
        if call.function != CountAll {
            calls.push(GroupCall { distinct: true, ..GroupCall::from(call.clone()) });
            calls.push(GroupCall { distinct: true, ..filtered.clone() });
        }
        calls.push(GroupCall::from(call));
        calls.push(filtered);
    }
    calls
}

/// What a call gives for the rows of a group.
fn expected(call: &GroupCall, rows: &[&Vec<Value>], at: usize) -> Value {
    let passes = |row: &&&Vec<Value>| call.filter.is_none() || (!row[at].is_null() && row[at] > Value::Int64(0));
    let rows: Vec<_> = rows.iter().filter(passes).collect();
    let Some(Expression::Column { index, .. }) = &call.call.input else {
        return Value::Int64(rows.len() as i64);
    };
    let mut values: Vec<&Value> = rows.iter().map(|row| &row[*index]).filter(|value| !value.is_null()).collect();
    if call.distinct {
        values = values.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    }
    if call.call.function == AggregateFunction::Count {
        return Value::Int64(values.len() as i64);
    }
    if values.is_empty() {
        return Value::Null;
    }
    let unscaled = |value: &&Value| match value {
        Value::Int64(number) => i128::from(*number),
        Value::Decimal { unscaled, .. } => *unscaled,
        _ => 0,
    };
    let sum: i128 = values.iter().map(unscaled).sum();
    match (call.call.function, call.call.result) {
        (AggregateFunction::Min, _) => (*values.iter().min().unwrap()).clone(),
        (AggregateFunction::Max, _) => (*values.iter().max().unwrap()).clone(),
        (AggregateFunction::Sum, DataType::Int64) => Value::Int64(sum as i64),
        (AggregateFunction::Sum, _) => Value::Decimal { unscaled: sum, scale: 2 },
        _ => {
            let (scaled, count) = (sum * 10_000, values.len() as i128);
            let rounded = (scaled.abs() * 2 + count) / (count * 2);
            Value::Decimal { unscaled: scaled.signum() * rounded, scale: 6 }
        }
    }
}

fn run(sink: &GroupBy, batches: &[Batch], threads: usize) -> Result<Vec<Batch>, OperatorError> {
    let each = |work: &(dyn Fn(usize) -> Result<(), OperatorError> + Sync), count: usize| {
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|thread| scope.spawn(move || (thread..count).step_by(threads).try_for_each(work)))
                .collect();
            handles.into_iter().try_for_each(|handle| handle.join().unwrap())
        })
    };
    each(&|at| sink.consume(batches[at].clone(), &mut |_| Ok(())), batches.len())?;
    loop {
        match sink.finish_jobs()? {
            0 => break,
            jobs => each(&|job| sink.finish_job(job), jobs)?,
        }
    }
    Ok(sink.take_output()?.0)
}

fn check(seed: u64, types: &[DataType], count: usize, keys: u64) {
    check_calls(seed, types, count, keys, |_| true);
}

/// Columns of batches that had ids of texts.
static WITH_IDS: AtomicUsize = AtomicUsize::new(0);

fn check_calls(seed: u64, types: &[DataType], count: usize, keys: u64, is_asked: impl Fn(&GroupCall) -> bool) {
    let mut random = SeededRandom::new(seed);
    let mut rows = rows(&mut random, types, count, keys);
    let at = types.len();
    // Of some, the first keys determine the others.
    let determining = if at > 1 && random.chance(0.5) { 1 + random.index(at - 1) } else { at };
    let mut determined: BTreeMap<Vec<Value>, Vec<Value>> = BTreeMap::new();
    for row in &mut rows {
        let (compared, carried) = row[..at].split_at_mut(determining);
        carried.clone_from_slice(determined.entry(compared.to_vec()).or_insert_with(|| carried.to_vec()));
    }
    let mut all = types.to_vec();
    all.extend([DataType::Int64, DECIMAL, DataType::Text]);
    let whole = Batch::from_rows(&all, &rows);
    let dictionaries = [0, 1].map(|_| ContainerDictionaries::new(&MemoryPool::unlimited()));
    let mut batches = Vec::new();
    let mut start = 0;
    while start < count {
        let most = if random.below(2) == 0 { 10 } else { 2_048 };
        let length = (1 + random.index(most)).min(count - start);
        let batch = whole.slice(start, length);
        // As rows come, or out of segments of one or another container.
        batches.push(match random.index(4) {
            0 => batch,
            1 => coded(&batch, &dictionaries[0]),
            _ => coded(&batch, &dictionaries[1]),
        });
        WITH_IDS.fetch_add(batches.last().map_or(0, coded_columns), Ordering::Relaxed);
        start += length;
    }
    let groups: Vec<Expression> = types.iter().enumerate().map(|(at, data_type)| column(at, *data_type)).collect();
    let calls: Vec<GroupCall> = calls(at).into_iter().filter(is_asked).collect();
    let pool = MemoryPool::unlimited();
    let threads = 1 + random.index(3);
    let input = [AggregationInput::Codes, AggregationInput::Values][random.index(2)];
    let sink = GroupBy::with_calls(groups.into(), calls.clone().into(), [].into(), &pool, 2);
    let sink = sink.determined_by(determining).taking(input);
    let found = run(&sink, &batches, threads).unwrap();
    drop(sink);
    assert_eq!(pool.used(), 0);
    let mut reference: BTreeMap<Vec<Value>, Vec<&Vec<Value>>> = BTreeMap::new();
    if types.is_empty() {
        reference.insert(Vec::new(), Vec::new());
    }
    for row in &rows {
        reference.entry(row[..at].to_vec()).or_default().push(row);
    }
    assert_eq!(found.iter().map(|batch| batch.rows).sum::<usize>(), reference.len(), "seed {seed} {types:?}");
    for batch in &found {
        assert!(batch.rows <= BATCH_ROWS && batch.rows > 0);
        for row in 0..batch.rows {
            let values = batch.row(row);
            let members = reference.remove(&values[..at]).unwrap_or_else(|| panic!("seed {seed}: {:?}", &values[..at]));
            for (call, value) in calls.iter().zip(&values[at..]) {
                assert_eq!(*value, expected(call, &members, at), "seed {seed} {types:?} {:?}: {call:?}", &values[..at]);
            }
        }
    }
}

#[test]
fn groups_agree_with_a_reference() {
    let mut seed = 0;
    for types in key_shapes() {
        for (count, keys) in [(0, 1), (1, 1), (7, 3), (300, 2), (300, 40), (2_048, 4), (5_000, 30_000)] {
            for _ in 0..3 {
                seed += 1;
                check(seed, &types, count, keys);
            }
        }
    }
    let with_ids = WITH_IDS.load(Ordering::Relaxed);
    assert!(with_ids > 100, "only {with_ids} columns had ids");
}

/// So many that parts are merged by themselves.
#[test]
fn many_groups_are_merged_in_parts() {
    check(1, &[DataType::Int64], 60_000, 40_000);
    check(2, &[DataType::Text, DataType::Int32], 60_000, 40_000);
    (3..7).for_each(|seed| check(seed, &[DataType::Date], 60_000, 30_000));
    // Dense ones, in ranges.
    (7..11).for_each(|seed| check_calls(seed, &[DataType::Date], 60_000, 30_000, |call| !call.distinct));
}

#[test]
fn a_grouping_fails_within_its_memory_and_gives_everything_back() {
    let types = [DataType::Int64, DataType::Text];
    let rows: Vec<Vec<Value>> =
        (0..20_000).map(|n| vec![Value::Int64(n), Value::Text(format!("a long text {n}").into())]).collect();
    let whole = Batch::from_rows(&types, &rows);
    let batches: Vec<Batch> = (0..10).map(|n| whole.slice(n * 2_000, 2_000)).collect();
    let sink = |pool: &Arc<MemoryPool>| {
        let call = AggregateCall {
            function: AggregateFunction::Max,
            input: Some(column(1, DataType::Text)),
            result: DataType::Text,
        };
        GroupBy::new([column(0, DataType::Int64)].into(), [call].into(), [].into(), pool, 2)
    };
    let pool = MemoryPool::unlimited();
    assert_eq!(run(&sink(&pool), &batches, 2).unwrap().iter().map(|batch| batch.rows).sum::<usize>(), 20_000);
    let peak = pool.peak();
    assert!(pool.used() == 0 && peak > 20_000 * 80, "{peak}");
    for limit in [0, 1_000, peak / 20, peak / 3] {
        let pool = MemoryPool::new(limit);
        assert!(matches!(run(&sink(&pool), &batches, 2), Err(OperatorError::Memory(_))), "{limit} of {peak}");
        assert_eq!(pool.used(), 0);
    }
}

/// A projection in front of groups hands decimals on in 64 bits while they fit: as keys and for minima they are wide
/// again, and the answers are those of whole numbers.
#[test]
fn decimals_that_a_projection_narrows() {
    let wide = DataType::Decimal { precision: 30, scale: 2 };
    for shift in [0, 70] {
        let rows: Vec<Vec<Value>> = (0..5_000_i128)
            .map(|n| vec![Value::Decimal { unscaled: (n % 7 - 3) << shift, scale: 2 }, Value::Int64(n as i64 % 3)])
            .collect();
        let project: Arc<[Expression]> = [column(0, wide), column(1, DataType::Int64)].into();
        let call = |function, input: Expression, result| AggregateCall { function, input: Some(input), result };
        let calls: Arc<[AggregateCall]> =
            [call(AggregateFunction::Sum, column(0, wide), wide), call(AggregateFunction::Min, column(0, wide), wide)]
                .into();
        let pool = MemoryPool::unlimited();
        let groups: Arc<[Expression]> = [column(0, wide), column(1, DataType::Int64)].into();
        let sink = Arc::new(GroupBy::new(groups, calls, Arc::from([]), &pool, 1));
        let steps: Arc<[Step]> = [Step::Project(project)].into();
        let pipeline = Pipeline::new(steps, Arc::clone(&sink) as Arc<dyn Sink>, []);
        for part in rows.chunks(BATCH_ROWS) {
            pipeline.push(Batch::from_rows(&[wide, DataType::Int64], part), &mut |_| Ok(())).unwrap();
        }
        loop {
            let jobs = sink.finish_jobs().unwrap();
            if jobs == 0 {
                break;
            }
            (0..jobs).for_each(|job| sink.finish_job(job).unwrap());
        }
        let (batches, _charged) = sink.take_output().unwrap();
        let mut expected: BTreeMap<(i128, i64), i128> = BTreeMap::new();
        for n in 0..5_000_i128 {
            let value = (n % 7 - 3) << shift;
            *expected.entry((value, n as i64 % 3)).or_default() += value;
        }
        let found: BTreeMap<(i128, i64), i128> = batches
            .iter()
            .flat_map(|batch| (0..batch.rows).map(|row| batch.row(row)))
            .map(|row| match row.as_slice() {
                [
                    Value::Decimal { unscaled: key, .. },
                    Value::Int64(third),
                    Value::Decimal { unscaled: sum, .. },
                    least,
                ] => {
                    assert_eq!(*least, Value::Decimal { unscaled: *key, scale: 2 });
                    ((*key, *third), *sum)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, expected, "shifted by {shift}");
    }
}

#[test]
fn values_are_looked_up_first_where_that_is_asked_for() {
    let pool = MemoryPool::unlimited();
    let rows: Vec<Vec<Value>> = (0..500).map(|row| vec![Value::Text(format!("text {}", row % 7).into())]).collect();
    let batch = coded(&Batch::from_rows(&[DataType::Text], &rows), &ContainerDictionaries::new(&pool));
    let mut results = Vec::new();
    for (input, by_ids) in [(AggregationInput::Codes, true), (AggregationInput::Values, false)] {
        let mut grouped = Grouped::new([column(0, DataType::Text)].into(), 1, [].into(), &pool, input);
        grouped.update(&batch, &[]).unwrap();
        assert_eq!(grouped.groups.are_found_by_ids(), by_ids, "{input:?}");
        results.push(grouped.results(&(0..grouped.len()).into()).unwrap());
    }
    assert_eq!((results[0].rows, &results[0]), (7, &results[1]));
}
