//! Every encoding that can hold some values, against the values: types x NULL x kinds of values x sizes.

use super::*;
use crate::batch::{Batch, Bitmap, Column, PackedRows, RowFormat};
use crate::dictionary::SharedDictionary;
use crate::predicate::{Comparison, Condition};
use crate::types::DataType;
use crate::value::Value;
use eris_platform::{MemoryPool, NodeId, SeededRandom, test_load};

const TYPES: [DataType; 12] = [
    DataType::Boolean,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Float32,
    DataType::Float64,
    DataType::Decimal { precision: 10, scale: 2 },
    DataType::Decimal { precision: 30, scale: 2 },
    DataType::Date,
    DataType::Timestamp,
    DataType::Text,
    DataType::Bytes,
];

/// How the values of an attribute are spread.
#[derive(Clone, Copy, Debug)]
enum Spread {
    One,
    Few,
    Near,
    Rising,
    Runs,
    Any,
}

const SPREADS: [Spread; 6] = [Spread::One, Spread::Few, Spread::Near, Spread::Rising, Spread::Runs, Spread::Any];

fn number(spread: Spread, row: usize, random: &mut SeededRandom) -> i64 {
    match spread {
        Spread::One => 77,
        Spread::Few => [i64::MIN, -5, 0, 12, i64::MAX, 1 << 40][random.index(6)],
        Spread::Near => 1_000 + random.between(-300, 300),
        Spread::Rising => row as i64 * 3,
        Spread::Runs => (row as i64 / 40).wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64),
        Spread::Any => random.next_u64() as i64,
    }
}

fn value(data_type: DataType, number: i64) -> Value {
    let text = || match number % 3 {
        0 => format!("{number}"),
        1 => format!("a longer text about the number {number} {number}"),
        _ => String::new(),
    };
    match data_type {
        DataType::Boolean => Value::Boolean(number % 2 == 0),
        DataType::Int16 => Value::Int16(number as i16),
        DataType::Int32 => Value::Int32(number as i32),
        DataType::Int64 => Value::Int64(number),
        DataType::Float32 => Value::Float32([number as f32 / 4.0, 0.0, -0.0, f32::NAN][(number & 3) as usize]),
        DataType::Float64 => Value::Float64([number as f64 / 4.0, 0.0, -0.0, f64::NAN][(number & 3) as usize]),
        DataType::Decimal { precision: 10, scale } => Value::Decimal { unscaled: i128::from(number), scale },
        DataType::Decimal { scale, .. } => {
            let wide = if number % 5 == 0 { i128::from(number) << 60 } else { i128::from(number) };
            Value::Decimal { unscaled: wide, scale }
        }
        DataType::Date => Value::Date(number as i32),
        DataType::Timestamp => Value::Timestamp(number),
        DataType::Text => Value::Text(text().into()),
        DataType::Bytes => Value::Bytes(text().into_bytes().into()),
    }
}

/// The bits of a value: 0 and -0 are equal, and must come back as they were.
fn bits(value: &Value) -> String {
    match value {
        Value::Float32(value) => format!("{:x}", value.to_bits()),
        Value::Float64(value) => format!("{:x}", value.to_bits()),
        other => format!("{other:?}"),
    }
}

fn with_validity(data_type: DataType, validity: Option<Bitmap>, values: Values) -> Column {
    Column { data_type, validity, values }
}

fn tests(random: &mut SeededRandom, values: &[Value], data_type: DataType) -> Vec<Test> {
    let any = |random: &mut SeededRandom| match random.index(3) {
        0 => value(data_type, random.between(-2_000, 2_000)),
        1 => value(data_type, random.next_u64() as i64),
        _ => values[random.index(values.len())].clone(),
    };
    let comparisons = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];
    let mut tests: Vec<Test> = comparisons.iter().map(|comparison| Test::Compare(*comparison, any(random))).collect();
    tests.push(Test::Compare(comparisons[random.index(6)], Value::Null));
    for len in [0, 1, 3, 12, 40] {
        tests.push(Test::In((0..len).map(|_| any(random)).chain([Value::Null]).collect()));
    }
    if data_type == DataType::Text {
        tests.extend(["a longer", "", "1", "-"].map(|prefix| Test::StartsWith(prefix.into())));
    }
    tests
}

fn check(encoded: &dyn Encoded, values: &[Value], column: &Column, random: &mut SeededRandom, about: &str) {
    let (rows, data_type) = (values.len(), column.data_type);
    let validity = column.view().validity;
    let start = random.index(rows + 1);
    let window = start..start + random.index(rows - start + 1);
    let listed: Vec<u32> = (0..random.index(100)).map(|_| random.index(rows) as u32).collect();

    let run = with_validity(
        data_type,
        column.validity.as_ref().map(|bits| bits.slice(start, window.len())),
        encoded.run(window.clone()),
    );
    assert_eq!(run.len(), window.len(), "{about}");
    for row in window.clone() {
        assert_eq!(bits(&run.value(row - start)), bits(&values[row]), "{about} row {row}");
    }
    let mut out = ColumnBuilder::with_capacity(data_type, 0);
    out.push(&values[0]);
    encoded.link(&listed, validity, &mut out);
    let linked = out.finish();
    let mut packed = PackedRows::default();
    packed.clear(&Arc::new(RowFormat::new([data_type])));
    for (position, row) in listed.iter().enumerate() {
        let expected = bits(&values[*row as usize]);
        assert_eq!(bits(&linked.value(position + 1)), expected, "{about} row {row}");
        if !column.is_null(*row as usize) {
            packed.push_row();
            encoded.pack(*row as usize, 0, &mut packed.last_row());
            assert_eq!(bits(&packed.value(packed.len() - 1, 0)), expected, "{about} row {row}");
        }
    }
    if let Some(gathered) = encoded.gather(&listed) {
        let validity = column.validity.as_ref().map(|bits| listed.iter().map(|row| bits.get(*row as usize)).collect());
        assert_eq!(with_validity(data_type, validity, gathered), linked.slice(1, listed.len()), "{about}");
    }

    for test in tests(random, values, data_type) {
        let condition = Condition { attribute: crate::ids::AttributeId(0), test: test.clone() };
        let accepts = |row: usize| condition.accepts(|_| values[row].clone());
        let mut mask = vec![1; listed.len()];
        encoded.test_listed(&test, &listed, &mut mask).unwrap();
        let check_listed = |mask: &[u8]| {
            for (row, keep) in listed.iter().zip(mask).filter(|(row, _)| !column.is_null(**row as usize)) {
                assert_eq!(*keep == 1, accepts(*row as usize), "{about} {test:?} row {row}");
            }
        };
        check_listed(&mask);
        let Some(codes) = encoded.translate(&test).unwrap() else { continue };
        let mut mask = vec![1; listed.len()];
        encoded.select_listed(&codes, &listed, &mut mask);
        check_listed(&mask);
        let mut selection = Selection::default();
        selection.begin(window.clone());
        encoded.select(&codes, &mut selection);
        selection.keep_valid(validity, true);
        let mut found = Vec::new();
        selection.list(&mut found);
        let expected: Vec<u32> = window.clone().filter(|row| accepts(*row)).map(|row| row as u32).collect();
        assert_eq!(found, expected, "{about} {test:?} {codes:?}");
    }
}

#[test]
fn values_come_back_and_are_tested_right_in_every_encoding() {
    let mut random = SeededRandom::new(1);
    let pool = MemoryPool::unlimited();
    let arena = Arena::new(NodeId(0), &pool);
    let mut met = std::collections::BTreeMap::new();
    for (data_type, spread) in TYPES.into_iter().flat_map(|data_type| SPREADS.map(|spread| (data_type, spread))) {
        let dictionary = SharedDictionary::new(&pool);
        let dictionary = data_type.is_variable_length().then_some(&dictionary);
        for size in [1, 60, 700, 5_000].into_iter().take(2 + test_load(2) as usize) {
            let rows = random.index(size) + 1;
            let nulls = [0.0, 0.2, 1.0][random.index(3)];
            let values: Vec<Value> = (0..rows)
                .map(|row| {
                    let number = number(spread, row, &mut random);
                    if random.chance(nulls) { Value::Null } else { value(data_type, number) }
                })
                .collect();
            let list: Vec<Vec<Value>> = values.iter().map(|value| vec![value.clone()]).collect();
            let column = Batch::from_rows(&[data_type], &list).columns[0].clone().without_idle_validity();
            let source = Source::new(&column, random.chance(0.5), dictionary);
            for encoding in ENCODINGS.iter().copied() {
                let Some(bytes) = encoding.measure(&source) else { continue };
                let about = format!("{} of {data_type} {spread:?} {rows} rows", encoding.name());
                let encoded = encode(encoding, bytes, &source).unwrap();
                *met.entry(encoding.name()).or_insert(0) += 1;
                check(&*encoded, &values, &column, &mut random, &about);
                let (placed, taken) = encoded.placed(&arena).unwrap();
                assert_eq!(taken, arena.allocated_bytes(), "{about}");
                assert_eq!((placed.encoding(), placed.bytes()), (encoding.name(), bytes));
                check(&*placed, &values, &column, &mut random, &about);
            }
        }
    }
    assert_eq!(met.len(), ENCODINGS.len(), "each encoding holds something: {met:?}");
    assert!(met.values().all(|count| *count >= 3), "{met:?}");
    assert_eq!(pool.used(), 0);
}

fn chosen(column: &Column) -> (&'static str, u64) {
    chosen_with(column, None)
}

fn chosen_with(column: &Column, dictionary: Option<&SharedDictionary>) -> (&'static str, u64) {
    let (encoding, bytes) = choose(&Source::new(column, true, dictionary));
    (encoding.name(), bytes)
}

fn column_of(data_type: DataType, values: impl Iterator<Item = Value>) -> Column {
    let mut builder = ColumnBuilder::with_capacity(data_type, 0);
    values.for_each(|value| builder.push(&value));
    builder.finish()
}

#[test]
fn each_encoding_wins_where_it_is_smallest() {
    const ROWS: usize = 1 << 16;
    let mut random = SeededRandom::new(1);
    let mut integers = |data_type, make: &mut dyn FnMut(usize, &mut SeededRandom) -> i64| {
        chosen(&column_of(data_type, (0..ROWS).map(|row| value(data_type, make(row, &mut random)))))
    };
    let padding = 64;
    assert_eq!(integers(DataType::Int64, &mut |_, _| 5), ("constant", 8));
    let twenty_bits = &mut |_: usize, random: &mut SeededRandom| random.below(1 << 20) as i64;
    assert_eq!(integers(DataType::Int64, twenty_bits), ("frame of reference", (ROWS * 20 / 8 + padding) as u64));
    let any = &mut |_: usize, random: &mut SeededRandom| random.next_u64() as i64;
    assert_eq!(integers(DataType::Int64, any), ("plain", (ROWS * 8) as u64));
    let few = &mut |_: usize, random: &mut SeededRandom| random.below(16) as i64 * 1_000_000_007;
    assert_eq!(integers(DataType::Int64, few), ("dictionary", (ROWS / 2 + padding + 16 * 8) as u64));
    let runs = &mut |row: usize, _: &mut SeededRandom| row as i64 / 1_000 * 77;
    assert_eq!(integers(DataType::Int64, runs).0, "run length");
    assert_eq!(integers(DataType::Float64, few).0, "dictionary");
    assert_eq!(integers(DataType::Text, few).0, "dictionary");
    assert_eq!(integers(DataType::Text, any).0, "symbol table");
    let mut float = || Value::Float64(f64::from_bits(random.next_u64() >> 2));
    let floats = column_of(DataType::Float64, (0..ROWS).map(|_| float()));
    assert_eq!(chosen(&floats), ("plain", (ROWS * 8) as u64));
}

#[test]
fn a_null_costs_a_bit() {
    let values = (0..1_000).map(|row| if row % 3 == 0 { Value::Null } else { Value::Int64(1_000_000 + row % 4) });
    let column = column_of(DataType::Int64, values);
    assert_eq!(chosen(&column), ("frame of reference", 1_024 * 2 / 8 + 64));
    let nothing = column_of(DataType::Text, (0..1_000).map(|_| Value::Null));
    assert_eq!(chosen(&nothing), ("constant", 16));
}

fn encoded_with(column: &Column, dictionary: &SharedDictionary) -> Arc<dyn Encoded> {
    let source = Source::new(column, true, Some(dictionary));
    let (encoding, bytes) = choose(&source);
    encode(encoding, bytes, &source).unwrap()
}

fn ids(values: &Values) -> Option<Vec<u16>> {
    let Values::Bytes(views) = values else { return None };
    views.coded().map(|coded| coded.ids.to_vec())
}

#[test]
fn segments_of_a_container_share_ids() {
    const ROWS: usize = 1 << 12;
    let dictionary = SharedDictionary::new(&MemoryPool::unlimited());
    let of = |names: &'static [&'static str]| {
        column_of(DataType::Text, (0..ROWS).map(|row| Value::Text(names[row * 7 % names.len()].into())))
    };
    let first = encoded_with(&of(&["RAIL", "AIR", "a mode with a long name"]), &dictionary);
    assert_eq!((first.encoding(), first.bytes()), ("shared dictionary", (ROWS * 2 / 8 + 64) as u64));
    // In their order: AIR, RAIL, a mode.
    assert_eq!(ids(&first.run(0..4)), Some(vec![1, 0, 2, 1]));
    let second = encoded_with(&of(&["BARGE", "RAIL"]), &dictionary);
    assert_eq!((second.encoding(), ids(&second.run(0..4))), ("shared dictionary", Some(vec![3, 1, 3, 1])));
    assert_eq!(ids(&second.gather(&[5, 8]).unwrap()), Some(vec![1, 3]));
    // One text has an id, too, for no more than the padding; runs have the ids of their values.
    let only = encoded_with(&of(&["BARGE"]), &dictionary);
    assert_eq!((only.encoding(), only.bytes(), ids(&only.run(9..11))), ("shared dictionary", 64, Some(vec![3, 3])));
    let sorted = (0..ROWS).map(|row| Value::Text(["AIR", "BARGE", "RAIL", "AIR"][row / (ROWS / 4)].into()));
    let runs = encoded_with(&column_of(DataType::Text, sorted), &dictionary);
    assert_eq!((runs.encoding(), ids(&runs.run(ROWS / 2 - 1..ROWS / 2 + 1))), ("run length", Some(vec![3, 1])));
    // What is not in the dictionary's order becomes a set or ranges of codes.
    let below = Test::Compare(Comparison::Less, Value::Text("R".into()));
    let codes = |encoded: &dyn Encoded| encoded.translate(&below).unwrap().unwrap();
    let up_to = |low, span| CodeTest::Range(crate::modules::encoded::kernels::CodeRange { low, span, negated: false });
    assert_eq!((codes(&*first), codes(&*second)), (up_to(0, 0), up_to(2, 0)));
    assert_eq!(codes(&*only), CodeTest::Everything);
}

#[test]
fn a_dictionary_without_room_leaves_segments_their_own() {
    use crate::dictionary::DICTIONARY_TEXTS_MAX;
    let dictionary = SharedDictionary::new(&MemoryPool::unlimited());
    let of = |from: usize, texts: usize| {
        column_of(DataType::Text, (0..1 << 16).map(move |row| Value::Text(format!("{}", from + row % texts).into())))
    };
    let full = DICTIONARY_TEXTS_MAX - 100;
    assert_eq!(encoded_with(&of(0, full), &dictionary).encoding(), "shared dictionary");
    assert_eq!(chosen_with(&of(full, 101), Some(&dictionary)).0, "dictionary");
    assert_eq!(chosen_with(&of(full, 100), Some(&dictionary)).0, "shared dictionary");
    assert_eq!(encoded_with(&of(700, 10), &dictionary).encoding(), "shared dictionary");
    // Ids of 12 bits for ten texts that are far apart: they are better off without.
    let far = |row: usize| Value::Text(format!("{}", row % 10 * 399).into());
    assert_eq!(chosen_with(&column_of(DataType::Text, (0..1 << 16).map(far)), Some(&dictionary)).0, "dictionary");
    assert_eq!(dictionary.texts().len(), full);
}
