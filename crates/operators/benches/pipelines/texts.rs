//! Grouping and joining by texts with few different values, read from sealed segments: each segment with a dictionary
//! of its own, or one for all, by ids or with every value looked up first. Reading the texts is part of what is
//! measured.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use eris_operators::{
    AggregateFunction, AggregationInput, BuildSpec, Expression, GroupBy, JoinBuild, JoinKind, Probe, Sink, Step,
};
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AccessPath, AttributeId, BATCH_ROWS, Batch, ColumnBuilder, ContainerDictionaries, DataType, ENCODED, PathAttribute,
    PathConfiguration, PathInstance, Registry, Value,
};

use super::{Counting, call, feed_rows, integers, report};

/// Rows of a segment.
const SEGMENT_ROWS: usize = 1 << 16;

/// What texts are grouped by: a name, and how many different texts of how many bytes each column has.
const CASES: [(&str, &[(usize, usize)]); 6] = [
    ("7 texts of 8 bytes", &[(7, 8)]),
    ("25 texts of 20 bytes", &[(25, 20)]),
    ("1,000 texts of 20 bytes", &[(1_000, 20)]),
    ("3 x 2 texts of 1 byte", &[(3, 1), (2, 1)]),
    ("7 x 5 texts of 8 and 12 bytes", &[(7, 8), (5, 12)]),
    ("25 x 150 texts of 10 and 20 bytes", &[(25, 10), (150, 20)]),
];

fn text(number: usize, bytes: usize) -> Value {
    let digits = format!("{number}");
    let padded = if bytes == 1 { char::from(b'A' + number as u8).to_string() } else { format!("{digits:x>bytes$}") };
    Value::Text(padded.into())
}

/// Segments of texts and a number.
fn segments(
    columns: &[(usize, usize)],
    rows: usize,
    shared: bool,
    memory: &Arc<MemoryPool>,
) -> Vec<Box<dyn AccessPath>> {
    let attribute = |(at, data_type)| PathAttribute { id: AttributeId(at as u16), data_type, nullable: false };
    let types = columns.iter().map(|_| DataType::Text).chain([DataType::Int64]);
    let attributes: Vec<PathAttribute> = types.enumerate().map(attribute).collect();
    let dictionaries = ContainerDictionaries::new(memory);
    let mut random = SeededRandom::new(1);
    let segment = |first: usize| {
        let rows = SEGMENT_ROWS.min(rows - first);
        let mut built: Vec<_> = columns
            .iter()
            .map(|(different, bytes)| {
                let mut builder = ColumnBuilder::with_capacity(DataType::Text, rows);
                (0..rows).for_each(|_| builder.push(&text(random.index(*different), *bytes)));
                builder.finish()
            })
            .collect();
        built.push(integers((0..rows).map(|row| row as i64 % 1_000)));
        let configuration = PathConfiguration {
            attributes: &attributes,
            rows_max: rows as u32,
            memory,
            dictionaries: shared.then_some(&dictionaries),
        };
        let module = Registry::standard().module(ENCODED).unwrap();
        let PathInstance::Rows(mut path) = module.create(configuration) else { unreachable!("a module of rows") };
        path.insert(&Batch::new(built, rows), 0..rows).unwrap();
        path.freeze();
        path
    };
    (0..rows).step_by(SEGMENT_ROWS).map(segment).collect()
}

/// The batches of segments: keys, then the number.
fn batches(paths: &[Box<dyn AccessPath>], keys: usize) -> impl Iterator<Item = Batch> {
    paths.iter().flat_map(move |path| {
        (0..path.rows()).step_by(BATCH_ROWS).map(move |start| {
            let window = start..path.rows().min(start + BATCH_ROWS as u32);
            let rows = window.len();
            let read = |at: usize| path.shared(AttributeId(at as u16), window.clone()).unwrap();
            Batch::new((0..=keys).map(read).collect::<Vec<_>>(), rows)
        })
    })
}

/// Reads segments batch by batch into a grouping.
fn grouped(paths: &[Box<dyn AccessPath>], keys: usize, input: AggregationInput, memory: &Arc<MemoryPool>) -> u64 {
    let text = |index| Expression::Column { index, data_type: DataType::Text };
    let groups: Vec<Expression> = (0..keys).map(text).collect();
    let calls = [call(AggregateFunction::Sum, keys)];
    let sink = Arc::new(GroupBy::new(groups.into(), calls.into(), [].into(), memory, 1).taking(input));
    feed_rows(sink.clone(), &[], batches(paths, keys));
    sink.take_output().unwrap().0.iter().map(|batch| batch.rows as u64).sum()
}

/// Rows of segments that have a partner by their text in a small table of other segments.
fn joined(paths: &[Box<dyn AccessPath>], small: &[Box<dyn AccessPath>], memory: &Arc<MemoryPool>) -> u64 {
    let key: Arc<[Expression]> = [Expression::Column { index: 0, data_type: DataType::Text }].into();
    let spec = BuildSpec {
        keys: key.clone(),
        columns: [].into(),
        types: [].into(),
        keep_unmatched: false,
        existence: true,
        null_equal: false,
    };
    let build = Arc::new(JoinBuild::new(spec, memory, 1));
    feed_rows(build.clone(), &[], batches(small, 1));
    let probe = Probe {
        build,
        kind: JoinKind::Semi,
        keys: key,
        residual: None,
        probe_columns: [1].into(),
        build_columns: [].into(),
    };
    let counting = Arc::new(Counting::default());
    feed_rows(counting.clone(), &[Step::Probe(Arc::new(probe))], batches(paths, 1));
    counting.rows.load(Ordering::Relaxed)
}

/// All cases, with `rows` rows each.
pub fn run(rows: usize) {
    for (name, columns) in CASES {
        let memory = MemoryPool::unlimited();
        let [own, one] = [false, true].map(|shared| segments(columns, rows, shared, &memory));
        let ways = [
            ("own dictionaries", &own, AggregationInput::Codes),
            ("shared, values", &one, AggregationInput::Values),
            ("shared, codes", &one, AggregationInput::Codes),
        ];
        for (way, paths, input) in ways {
            let run = || grouped(paths, columns.len(), input, &memory);
            report(&format!("{name}: {way}"), 1, rows, run(), run);
        }
    }
    for (name, columns) in &CASES[..3] {
        let memory = MemoryPool::unlimited();
        let [own, one] = [false, true].map(|shared| segments(columns, rows, shared, &memory));
        // Each text a few times: as many rows as another table's segment needs for a dictionary of its own.
        let [small_own, small] = [false, true].map(|shared| segments(columns, columns[0].0 * 4, shared, &memory));
        let ways = [("own dictionaries", &own, &small_own), ("merged", &one, &small), ("shared to own", &own, &small)];
        for (way, paths, small) in ways {
            let run = || joined(paths, small, &memory);
            report(&format!("semi join by {name}: {way}"), 1, rows, run(), run);
        }
    }
}
