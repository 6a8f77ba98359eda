//! Joins by texts of shared dictionaries: which table they get, and that what is kept keeps its ids.

use std::sync::Arc;

use eris_platform::MemoryPool;
use eris_storage::{Batch, ContainerDictionaries, DataType, Value};

use super::table::Table;
use super::*;
use crate::coded_batches::{coded, coded_columns};
use crate::pipeline::{Collector, Pipeline, Sink, Step};

const TYPES: [DataType; 2] = [DataType::Text, DataType::Int32];

fn dictionaries() -> Arc<ContainerDictionaries> {
    ContainerDictionaries::new(&MemoryPool::unlimited())
}

/// Forty texts in turn, each with its number.
fn batch(rows: std::ops::Range<i32>) -> Batch {
    let row = |n: i32| vec![Value::Text(format!("text number {}", n % 40).into()), Value::Int32(n % 40)];
    Batch::from_rows(&TYPES, &rows.map(row).collect::<Vec<_>>())
}

/// Some of them, many times.
fn repeated(texts: std::ops::Range<i32>) -> Batch {
    let rows: Vec<Vec<Value>> = std::iter::repeat_n(batch(texts), 30)
        .flat_map(|batch| (0..batch.rows).map(|row| batch.row(row)).collect::<Vec<_>>())
        .collect();
    Batch::from_rows(&TYPES, &rows)
}

fn finish(sink: &dyn Sink) {
    loop {
        match sink.finish_jobs().unwrap() {
            0 => return,
            jobs => (0..jobs).for_each(|job| sink.finish_job(job).unwrap()),
        }
    }
}

/// A build side by the columns `keys`.
fn build(keys: &[usize], existence: bool, batches: &[Batch], pool: &Arc<MemoryPool>) -> Arc<JoinBuild> {
    let column = |at: &usize| Expression::Column { index: *at, data_type: TYPES[*at] };
    let columns: Arc<[usize]> = if existence { Arc::default() } else { [0].into() };
    let spec = BuildSpec {
        keys: keys.iter().map(column).collect(),
        types: columns.iter().map(|at| TYPES[*at]).collect(),
        columns,
        keep_unmatched: false,
        existence,
        null_equal: false,
    };
    let build = Arc::new(JoinBuild::new(spec, pool, 1));
    for batch in batches {
        build.consume(batch.clone(), &mut |_| Ok(())).unwrap();
    }
    finish(&*build);
    build
}

#[test]
fn texts_of_one_dictionary_lead_to_rows_by_an_array() {
    let pool = MemoryPool::unlimited();
    let (one, other) = (dictionaries(), dictionaries());
    // Texts that come once have no ids unless they are known; the dictionary grows between the two.
    let batches = [coded(&repeated(0..20), &one), coded(&repeated(15..40), &one)];
    let array = build(&[0], false, &batches, &pool);
    assert!(matches!(array.kept().unwrap().table, Table::Dense(..)));
    assert!(matches!(build(&[0, 1], false, &batches, &pool).kept().unwrap().table, Table::Dense(..)));
    assert!(matches!(build(&[0], true, &batches, &pool).kept().unwrap().table, Table::Bits(..)));
    let mixed = [batches[0].clone(), coded(&repeated(0..40), &other)];
    assert!(matches!(build(&[0], false, &mixed, &pool).kept().unwrap().table, Table::General { .. }));
    let plain = [batches[0].clone(), batch(0..40)];
    assert!(matches!(build(&[0], false, &plain, &pool).kept().unwrap().table, Table::General { .. }));
    drop(array);
    assert_eq!(pool.used(), 0);
}

#[test]
fn kept_texts_keep_their_ids() {
    let pool = MemoryPool::unlimited();
    let (one, other) = (dictionaries(), dictionaries());
    let _known = [&one, &other].map(|dictionaries| coded(&repeated(0..40), dictionaries));
    let build = build(&[0], false, &[coded(&batch(0..40), &one)], &pool);
    for probed in [coded(&batch(30..110), &one), coded(&batch(30..110), &other), batch(30..110)] {
        let probe = Probe {
            build: build.clone(),
            kind: JoinKind::Inner,
            keys: [Expression::Column { index: 0, data_type: DataType::Text }].into(),
            residual: None,
            probe_columns: [1].into(),
            build_columns: [0].into(),
        };
        let collector = Arc::new(Collector::new(&pool));
        let pipeline = Pipeline::new([Step::Probe(Arc::new(probe))], collector.clone(), []);
        pipeline.push(probed.clone(), &mut |_| Ok(())).unwrap();
        let (joined, charged) = collector.take_output().unwrap();
        let [joined] = joined.as_slice() else { panic!("{} batches", joined.len()) };
        assert_eq!((joined.rows, coded_columns(joined)), (probed.rows, 1));
        for row in 0..joined.rows {
            assert_eq!((joined.value(row, 0), joined.value(row, 1)), (probed.value(row, 1), probed.value(row, 0)));
        }
        drop(charged);
    }
    drop(build);
    assert_eq!(pool.used(), 0);
}
