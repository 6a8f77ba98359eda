//! Encoded attributes beside plain columns: memory, decoding a run, comparing codes, and rows at random, for integers
//! of some widths and strings with few and with many different values.

use crate::report::{Report, number, text, time};
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AccessPath, AccessPathScanState, AttributeId, Batch, COLUMN, Column, ColumnBuilder, Comparison, Condition,
    ContainerDictionaries, DICTIONARIES, DataType, ENCODED, PackedRows, PathAttribute, PathConfiguration, PathFilter,
    PathInstance, Registry, RowFormat, Test, Value, Values,
};
use std::sync::Arc;

/// Rows of a segment, and of a batch.
const SEGMENT_ROWS: usize = 1 << 16;
const BATCH_ROWS: usize = 2_048;
const ATTRIBUTE: AttributeId = AttributeId(0);

/// Values: a type, how many different ones, and how far apart they are.
struct Case {
    name: &'static str,
    data_type: DataType,
    different: u64,
    step: i64,
}

const CASES: [Case; 12] = [
    Case { name: "4 bits", data_type: DataType::Int32, different: 1 << 4, step: 1 },
    Case { name: "8 bits", data_type: DataType::Int32, different: 1 << 8, step: 1 },
    Case { name: "12 bits", data_type: DataType::Int32, different: 1 << 12, step: 1 },
    Case { name: "20 bits", data_type: DataType::Int32, different: 1 << 20, step: 1 },
    Case { name: "8 bits", data_type: DataType::Int64, different: 1 << 8, step: 1 },
    Case { name: "20 bits", data_type: DataType::Int64, different: 1 << 20, step: 1 },
    Case { name: "40 bits", data_type: DataType::Int64, different: 1 << 40, step: 1 },
    Case { name: "50 values", data_type: DataType::Int64, different: 50, step: 1_000_000_007 },
    Case { name: "7 values", data_type: DataType::Text, different: 7, step: 1 },
    Case { name: "1,000 values", data_type: DataType::Text, different: 1_000, step: 1 },
    Case { name: "5,000 values", data_type: DataType::Text, different: 5_000, step: 1 },
    Case { name: "comments", data_type: DataType::Text, different: u64::MAX, step: 1 },
];

const WORDS: [&str; 16] = [
    "carefully",
    "furiously",
    "regular",
    "deposits",
    "accounts",
    "packages",
    "sleep",
    "the",
    "quickly",
    "blithely",
    "final",
    "requests",
    "above",
    "ironic",
    "pending",
    "foxes",
];

fn value(case: &Case, random: &mut SeededRandom) -> Value {
    if case.different == u64::MAX {
        let words: Vec<&str> = (0..3 + random.index(4)).map(|_| WORDS[random.index(WORDS.len())]).collect();
        return Value::Text(words.join(" ").into());
    }
    let number = random.below(case.different) as i64 * case.step;
    match case.data_type {
        DataType::Int32 => Value::Int32(number as i32),
        DataType::Int64 => Value::Int64(number),
        _ => Value::Text(format!("value number {number:>6}").into()),
    }
}

/// Looks at every value a little.
fn sum(column: &Column) -> u64 {
    match &column.values {
        Values::Int32(values) => values.iter().map(|value| i64::from(*value)).sum::<i64>() as u64,
        Values::Int64(values) => values.iter().fold(0, |sum, value| sum.wrapping_add(*value as u64)),
        Values::Bytes(views) => views.views.iter().fold(0, |sum, view| sum.wrapping_add(*view as u64)),
        other => unreachable!("the benchmark holds no {:?}", other.physical()),
    }
}

fn windows() -> impl Iterator<Item = std::ops::Range<u32>> {
    (0..SEGMENT_ROWS as u32).step_by(BATCH_ROWS).map(|start| start..start + BATCH_ROWS as u32)
}

fn decode(path: &dyn AccessPath) -> u64 {
    windows().fold(0, |total, window| {
        let column = path.shared(ATTRIBUTE, window).unwrap();
        total.wrapping_add(column.len() as u64 + sum(&column.slice(0, 1)))
    })
}

fn decode_and_sum(path: &dyn AccessPath) -> u64 {
    windows().fold(0, |total, window| total.wrapping_add(sum(&path.shared(ATTRIBUTE, window).unwrap())))
}

fn filter(path: &dyn AccessPath, test: &Test, state: &mut AccessPathScanState, found: &mut Vec<u32>) -> u64 {
    let conditions = [Condition { attribute: ATTRIBUTE, test: test.clone() }];
    let filter = PathFilter { conditions: &conditions, selected: &[0] };
    windows().fold(0, |total, window| {
        found.clear();
        path.scan(state, filter, window, found).unwrap();
        total + found.len() as u64
    })
}

fn link(path: &dyn AccessPath, data_type: DataType, offsets: &[u32]) -> u64 {
    offsets.chunks(BATCH_ROWS).fold(0, |total, offsets| {
        let column = path.gather(ATTRIBUTE, offsets).unwrap_or_else(|| {
            let mut builder = ColumnBuilder::with_capacity(data_type, offsets.len());
            path.link(ATTRIBUTE, offsets, &mut builder);
            builder.finish()
        });
        total.wrapping_add(sum(&column))
    })
}

fn pack(path: &dyn AccessPath, format: &Arc<RowFormat>, offsets: &[u32], rows: &mut PackedRows) -> u64 {
    offsets.iter().fold(0, |total, offset| {
        rows.clear(format);
        rows.push_row();
        path.pack(&[ATTRIBUTE], *offset, rows);
        total + rows.bytes() as u64
    })
}

/// Whether segments share a dictionary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Texts {
    Own,
    Shared,
}

fn measure(case: &Case, module: &'static str, texts: Texts, segments: usize, report: &mut Report) {
    let attribute = PathAttribute { id: ATTRIBUTE, data_type: case.data_type, nullable: false };
    let memory = MemoryPool::unlimited();
    let rows_max = SEGMENT_ROWS as u32;
    let dictionaries = ContainerDictionaries::new(&memory);
    let dictionaries = (texts == Texts::Shared).then_some(&dictionaries);
    let configuration = PathConfiguration { attributes: &[attribute], rows_max, memory: &memory, dictionaries };
    let factory = Registry::standard().module(module).unwrap();
    let mut random = SeededRandom::new(1);
    let (mut paths, mut freeze) = (Vec::new(), 0.0);
    for _ in 0..segments {
        let PathInstance::Rows(mut path) = factory.create(configuration) else { return };
        let mut builder = ColumnBuilder::with_capacity(case.data_type, SEGMENT_ROWS);
        (0..SEGMENT_ROWS).for_each(|_| builder.push(&value(case, &mut random)));
        path.insert(&Batch::new(vec![builder.finish()], SEGMENT_ROWS), 0..SEGMENT_ROWS).unwrap();
        freeze += time(|| path.freeze()).0;
        paths.push(path);
    }
    let mut encoding = "-";
    paths[0].encodings(&mut |_, name, _| encoding = name);
    let mut sorted: Vec<Value> = {
        let column = paths[0].shared(ATTRIBUTE, 0..BATCH_ROWS as u32).unwrap();
        (0..BATCH_ROWS).map(|row| column.value(row)).collect()
    };
    sorted.sort();
    let below = |share: usize| Test::Compare(Comparison::Less, sorted[BATCH_ROWS * share / 100].clone());
    let few = Test::In([1, 5, 9, 14, 20, 33, 48, 77, 90, 99].map(|at| sorted[BATCH_ROWS * at / 100].clone()).into());
    let like = Test::StartsWith("value number     1".into());
    let equal = Test::Compare(Comparison::Equal, sorted[BATCH_ROWS / 2].clone());
    let offsets: Vec<u32> = (0..SEGMENT_ROWS).map(|_| random.below(SEGMENT_ROWS as u64) as u32).collect();
    let rows = (segments * SEGMENT_ROWS) as f64;
    let each = |run: &mut dyn FnMut(&dyn AccessPath) -> u64| {
        paths.iter().fold(0_u64, |sum, path| sum.wrapping_add(run(&**path)))
    };
    let (mut state, mut found) = (AccessPathScanState::default(), Vec::new());
    let decode = report.best(|| each(&mut decode)) / rows;
    let decode_and_sum = report.best(|| each(&mut decode_and_sum)) / rows;
    let mut filtered = |test: &Test, report: &mut Report| {
        report.best(|| each(&mut |path| filter(path, test, &mut state, &mut found))) / rows
    };
    let (less_1, less_50) = (filtered(&below(1), report), filtered(&below(50), report));
    let (equal, few) = (filtered(&equal, report), filtered(&few, report));
    let like = if case.data_type == DataType::Text { filtered(&like, report) } else { 0.0 };
    let link = report.best(|| each(&mut |path| link(path, case.data_type, &offsets))) / rows;
    let format = Arc::new(RowFormat::new([case.data_type]));
    let mut row = PackedRows::default();
    let pack = report.best(|| each(&mut |path| pack(path, &format, &offsets, &mut row))) / rows;
    let shared = memory.by_consumer().into_iter().find(|(consumer, _)| *consumer == DICTIONARIES);
    let bytes = paths.iter().map(|path| path.bytes()).sum::<u64>() + shared.map_or(0, |(_, bytes)| bytes);
    report.add(&[
        text("part", "encodings"),
        text("type", &case.data_type.to_string()),
        text("values", case.name),
        text("module", module),
        text("encoding", encoding),
        number("segments", segments as f64),
        number("bytes_per_value", bytes as f64 / rows),
        number("freeze_ns", freeze / rows),
        number("decode_ns", decode),
        number("decode_and_sum_ns", decode_and_sum),
        number("less_1_percent_ns", less_1),
        number("less_50_percent_ns", less_50),
        number("equal_ns", equal),
        number("in_10_ns", few),
        number("like_ns", like),
        number("link_ns", link),
        number("row_ns", pack),
    ]);
}

/// One segment, which stays in a second-level cache, and as many as hold `elements`.
pub fn run(elements: usize, report: &mut Report) {
    for case in &CASES {
        for segments in [1, elements / SEGMENT_ROWS / 4] {
            for (module, texts) in [(COLUMN, Texts::Own), (ENCODED, Texts::Own), (ENCODED, Texts::Shared)] {
                if texts == Texts::Own || case.data_type == DataType::Text {
                    measure(case, module, texts, segments.max(1), report);
                }
            }
        }
    }
}
