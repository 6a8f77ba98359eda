//! A small picture of the values that one key of a build side has: it says of most others that they are not there.
//!
//! Whoever scans rows that will be looked up in the build side later takes those out at once whose value is not in the
//! picture. It has no false negatives; a few values that are not there may pass, because the join itself comes later.
//!
//! | values | picture |
//! |---|---|
//! | whole numbers and dates, in a range not much larger than their number | a bit for each value of the range: exact |
//! | anything else | a blocked Bloom filter: four bits of one 64-bit word for each hash |
//! | none | nothing passes |
//! | those of rows that went to files | anything passes that is not NULL |
//!
//! A NULL is equal to nothing and does not pass.
//!
//! The blocks are those of Putze, Sanders and Singler, *Cache-, Hash- and Space-Efficient Bloom Filters* (2007), as
//! small as a word, so that a look-up is one load. With 16 to 32 bits a value at most 1 value in 50 passes wrongly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use eris_storage::{Column, Values};

use super::codes::Bounds;
use super::table::slot_of;
use crate::assembly::{settled, zeros};
use crate::expression::by_dictionary;
use crate::hash::hash_rows;
use crate::pipeline::lock;

/// A range may have this many values for each that is there...
const RANGE_FACTOR: u64 = 256;
/// ... or as many as half of a second cache has bits.
const RANGE_MIN: u64 = 1 << 22;
/// Words of a Bloom filter: one for each 4 values, rounded up to a power of two.
const VALUES_OF_WORD: usize = 4;
/// Sets of up to this many rows also remember which values they are.
const FEW_ROWS: usize = 1_024;

/// What the words mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Nothing,
    /// Rows that went to files are in no picture.
    Anything,
    /// Bit `value - low`; the range has `span` values.
    Range {
        low: i64,
        span: u64,
    },
    Bloom,
}

/// Which values a key has. See the module.
#[derive(Debug)]
pub struct KeyFilter {
    shape: Shape,
    words: Box<[u64]>,
    bounds: Option<(i64, i64)>,
    few: Option<Box<[i64]>>,
}

/// A filter that jobs fill.
#[derive(Debug)]
pub(super) struct FilterInMaking {
    shape: Shape,
    words: Box<[AtomicU64]>,
    bounds: Option<(i64, i64)>,
    few: Option<Mutex<Vec<i64>>>,
}

impl FilterInMaking {
    /// How many words a filter of so many rows has, and what they mean.
    fn plan(bounds: &Bounds, rows: usize) -> (Shape, usize) {
        if rows == 0 {
            return (Shape::Nothing, 0);
        }
        if let Some((low, high)) = bounds.of_integers() {
            let span = (high.wrapping_sub(low) as u64).saturating_add(1);
            if span <= (rows as u64).saturating_mul(RANGE_FACTOR).max(RANGE_MIN) {
                return (Shape::Range { low, span }, span.div_ceil(64) as usize);
            }
        }
        (Shape::Bloom, rows.div_ceil(VALUES_OF_WORD).next_power_of_two())
    }

    /// Bytes that a filter takes.
    pub fn bytes(bounds: &Bounds, rows: usize) -> u64 {
        (Self::plan(bounds, rows).1 * size_of::<u64>() + rows.min(FEW_ROWS) * size_of::<i64>()) as u64
    }

    /// For a key of so many rows, between these bounds.
    pub fn new(bounds: &Bounds, rows: usize) -> Self {
        let (shape, words) = Self::plan(bounds, rows);
        let bounds = bounds.of_integers();
        let few = (bounds.is_some() && rows <= FEW_ROWS).then(|| Mutex::new(Vec::with_capacity(rows)));
        Self { shape, words: zeros(words), bounds, few }
    }

    /// Enters a key column's values, from any job.
    pub fn enter(&self, key: &Column) {
        if let Some(few) = &self.few {
            let mut few = lock(few);
            each_integer(key, |row, value| {
                if !key.is_null(row) {
                    few.push(value);
                }
            });
        }
        let set = |word: usize, bits: u64| {
            let word = &self.words[word];
            if word.load(Ordering::Relaxed) & bits != bits {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        };
        match self.shape {
            Shape::Nothing | Shape::Anything => {}
            Shape::Range { low, .. } => each_integer(key, |row, value| {
                if !key.is_null(row) {
                    let offset = value.wrapping_sub(low) as u64;
                    set((offset >> 6) as usize, 1 << (offset & 63));
                }
            }),
            Shape::Bloom => {
                for (row, hash) in hash_rows(std::slice::from_ref(key), key.len()).into_iter().enumerate() {
                    if !key.is_null(row) {
                        set(slot_of(hash, self.words.len()), bits_of(hash));
                    }
                }
            }
        }
    }

    /// When all values are entered.
    pub fn finish(self) -> KeyFilter {
        let few = self.few.map(|few| {
            let mut few = few.into_inner().unwrap_or_else(PoisonError::into_inner);
            few.sort_unstable();
            few.dedup();
            few.into()
        });
        KeyFilter { shape: self.shape, words: settled(self.words), bounds: self.bounds, few }
    }
}

impl KeyFilter {
    /// Of values of which only is known where they lie.
    pub(super) fn within(bounds: &Bounds) -> Self {
        let shape = if let Bounds::Nothing = bounds { Shape::Nothing } else { Shape::Anything };
        Self { shape, words: Box::default(), bounds: bounds.of_integers(), few: None }
    }

    /// Whether no value passes.
    pub fn is_empty(&self) -> bool {
        self.shape == Shape::Nothing || self.shape != Shape::Anything && self.words.iter().all(|word| *word == 0)
    }

    /// The least and the largest value, of whole numbers, dates and decimals as they lie in memory.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        self.bounds
    }

    /// All values, ascending, if they are few and whole numbers or dates.
    pub fn few_values(&self) -> Option<&[i64]> {
        self.few.as_deref()
    }

    /// The rows of a column, ascending, that pass. Its type is that of the key.
    #[expect(clippy::needless_bitwise_bool, reason = "without a branch that nobody can foresee")]
    pub fn passing(&self, column: &Column) -> Vec<u32> {
        let mut rows = match self.shape {
            Shape::Nothing => return Vec::new(),
            Shape::Anything => (0..column.len() as u32).collect(),
            Shape::Range { low, span } => {
                let mut rows = Rows::of(column.len());
                each_integer(column, |row, value| {
                    let offset = value.wrapping_sub(low) as u64;
                    // Behind the range nothing is read: the word is that of its first values, and the bit is not used.
                    let inside = offset < span;
                    let word = self.words[if inside { offset >> 6 } else { 0 } as usize];
                    rows.push_if(row, inside & (word >> (offset & 63) & 1 != 0));
                });
                rows.finish()
            }
            Shape::Bloom => {
                let mut rows = Rows::of(column.len());
                let known = match &column.values {
                    Values::Bytes(views) => by_dictionary(views, |texts| {
                        let (data_type, values) = (column.data_type, Values::Bytes(texts.clone()));
                        self.may_be_there(&Column { data_type, validity: None, values }).map(u8::from).collect()
                    }),
                    _ => None,
                };
                match known {
                    Some(known) => known.into_iter().enumerate().for_each(|(row, is)| rows.push_if(row, is != 0)),
                    None => self.may_be_there(column).enumerate().for_each(|(row, is)| rows.push_if(row, is)),
                }
                rows.finish()
            }
        };
        if column.validity.is_some() {
            rows.retain(|row| !column.is_null(*row as usize));
        }
        rows
    }
}

impl KeyFilter {
    /// Whether each value passes a Bloom filter.
    fn may_be_there(&self, column: &Column) -> impl Iterator<Item = bool> {
        hash_rows(std::slice::from_ref(column), column.len()).into_iter().map(|hash| {
            let bits = bits_of(hash);
            self.words[slot_of(hash, self.words.len())] & bits == bits
        })
    }
}

/// A list of rows that is written without branches.
struct Rows {
    rows: Vec<u32>,
    count: usize,
}

impl Rows {
    fn of(len: usize) -> Self {
        Self { rows: vec![0; len], count: 0 }
    }

    #[inline]
    fn push_if(&mut self, row: usize, passes: bool) {
        self.rows[self.count] = row as u32;
        self.count += usize::from(passes);
    }

    fn finish(mut self) -> Vec<u32> {
        self.rows.truncate(self.count);
        self.rows
    }
}

/// Four bits of a word, by the lower half of a hash: the upper half says which word.
#[inline]
fn bits_of(hash: u64) -> u64 {
    let bit = |from: u32| 1 << (hash >> from & 63);
    bit(0) | bit(6) | bit(12) | bit(18)
}

/// Calls with each row and value; what is no number of 64 bits is a value of no range.
#[inline]
fn each_integer(column: &Column, mut with: impl FnMut(usize, i64)) {
    macro_rules! each {
        ($values:expr) => {
            for (row, value) in $values.iter().enumerate() {
                with(row, i64::from(*value));
            }
        };
    }
    match &column.values {
        Values::Boolean(values) => each!(values),
        Values::Int16(values) => each!(values),
        Values::Int32(values) => each!(values),
        Values::Int64(values) => each!(values),
        Values::Int128(values) => {
            for (row, value) in values.iter().enumerate() {
                if let Ok(value) = i64::try_from(*value) {
                    with(row, value);
                }
            }
        }
        Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => {
            unreachable!("a range of values that are no integers")
        }
    }
}

#[cfg(test)]
mod tests {
    use eris_platform::{MemoryPool, SeededRandom};
    use eris_storage::{Batch, ContainerDictionaries, DataType, Value};

    use super::*;
    use crate::coded_batches::{coded, coded_columns};

    fn column(data_type: DataType, values: &[Value]) -> Column {
        let rows: Vec<Vec<Value>> = values.iter().map(|value| vec![value.clone()]).collect();
        Batch::from_rows(&[data_type], &rows).columns[0].clone()
    }

    fn filter_of(keys: &[Column]) -> KeyFilter {
        let mut bounds = Bounds::Nothing;
        for key in keys {
            bounds.extend(key);
        }
        let making = FilterInMaking::new(&bounds, keys.iter().map(Column::len).sum());
        for key in keys {
            making.enter(key);
        }
        making.finish()
    }

    /// Numbers as values of a type.
    fn value(data_type: DataType, n: i64) -> Value {
        match data_type {
            DataType::Int16 => Value::Int16(n as i16),
            DataType::Int32 => Value::Int32(n as i32),
            DataType::Date => Value::Date(n as i32),
            DataType::Decimal { scale, .. } => Value::Decimal { unscaled: i128::from(n), scale },
            DataType::Float64 => Value::Float64(n as f64 / 7.0),
            DataType::Text => Value::Text(format!("a text of number {n}").into()),
            _ => Value::Int64(n.wrapping_mul(0x0123_4567_89AB_CDEF)),
        }
    }

    #[test]
    fn what_is_there_passes_and_hardly_anything_else() {
        let types = [
            (DataType::Int16, true),
            (DataType::Int32, true),
            (DataType::Date, true),
            (DataType::Decimal { precision: 12, scale: 2 }, true),
            (DataType::Decimal { precision: 30, scale: 2 }, true),
            (DataType::Int64, false),
            (DataType::Float64, false),
            (DataType::Text, false),
        ];
        let mut random = SeededRandom::new(5);
        for (data_type, is_exact) in types {
            for count in [1_usize, 3, 700, 5_000] {
                let keys: Vec<i64> = (0..count).map(|_| random.below(20_000) as i64 - 9_000).collect();
                let mut values: Vec<Value> = keys.iter().map(|key| value(data_type, *key)).collect();
                values.push(Value::Null);
                let (first, second) = values.split_at(count / 2);
                let filter = filter_of(&[column(data_type, first), column(data_type, second)]);
                let asked: Vec<i64> = (-9_100..11_100).collect();
                let mut values: Vec<Value> = asked.iter().map(|n| value(data_type, *n)).collect();
                values.push(Value::Null);
                let passing = filter.passing(&column(data_type, &values));
                if data_type == DataType::Text {
                    // As often as it takes for a dictionary: each text is asked for once.
                    let often: Vec<Value> = values.iter().take(300).cycle().take(3_000).cloned().collect();
                    let plain = Batch::new([column(data_type, &often)], often.len());
                    let with_ids = coded(&plain, &ContainerDictionaries::new(&MemoryPool::unlimited()));
                    assert_eq!(coded_columns(&with_ids), 1);
                    assert_eq!(filter.passing(&with_ids.columns[0]), filter.passing(&plain.columns[0]));
                }
                let there = |row: &u32| asked.get(*row as usize).is_some_and(|n| keys.contains(n));
                let wrong = passing.iter().filter(|row| !there(row)).count();
                let right: Vec<u32> = (0..values.len() as u32).filter(there).collect();
                assert!(right.iter().all(|row| passing.binary_search(row).is_ok()), "{data_type} {count}");
                assert!(passing.is_sorted() && passing.len() == right.len() + wrong);
                let most = if is_exact { 0 } else { values.len() / 25 };
                assert!(wrong <= most, "{data_type}, {count} keys: {wrong} pass wrongly");
            }
        }
    }

    #[test]
    fn few_values_are_known_by_themselves() {
        let filter = filter_of(&[column(DataType::Int32, &[7, -3, 7, 90].map(Value::Int32))]);
        assert_eq!((filter.bounds(), filter.few_values()), (Some((-3, 90)), Some(&[-3, 7, 90][..])));
        let far = [i64::MIN, 0, i64::MAX].map(Value::Int64);
        let filter = filter_of(&[column(DataType::Int64, &far)]);
        assert_eq!((filter.shape, filter.bounds()), (Shape::Bloom, Some((i64::MIN, i64::MAX))));
        assert_eq!(filter.few_values(), Some(&[i64::MIN, 0, i64::MAX][..]));
        assert_eq!(filter.passing(&column(DataType::Int64, &far)), [0, 1, 2]);
        let many: Vec<Value> = (0..1_025).map(Value::Int32).collect();
        assert_eq!(filter_of(&[column(DataType::Int32, &many)]).few_values(), None);
    }

    #[test]
    fn nothing_passes_where_nothing_is() {
        for keys in [vec![], vec![column(DataType::Int32, &[Value::Null, Value::Null])]] {
            let filter = filter_of(&keys);
            assert!(filter.is_empty() && filter.bounds().is_none());
            assert!(filter.passing(&column(DataType::Int32, &[Value::Int32(0), Value::Null])).is_empty());
        }
    }
}
