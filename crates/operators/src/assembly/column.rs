//! A column that jobs fill part by part.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use eris_storage::{
    Bitmap, Buffer, Column, ColumnBuilder, DataType, DictionaryTexts, Physical, VIEW_INLINE_MAX, Values, Views,
};

use super::parts::{Parts, zeros};

/// Texts are copied out of shared data when they are less than this share of it.
const SHARED_DATA_FACTOR: usize = 4;
/// Shared data of less is not worth a look.
const SHARED_DATA_BYTES_MIN: usize = 4 << 10;

#[derive(Debug)]
enum ValueParts {
    Boolean(Parts<u8>),
    Int16(Parts<i16>),
    Int32(Parts<i32>),
    Int64(Parts<i64>),
    Int128(Parts<i128>),
    Float32(Parts<f32>),
    Float64(Parts<f64>),
    /// Ids in the dictionary that all chunks come from.
    Ids {
        texts: Arc<DictionaryTexts>,
        ids: Parts<u16>,
    },
    /// The data of all chunks, and the number of each chunk's first buffer among them.
    Bytes {
        views: Parts<u128>,
        data: Vec<Buffer<u8>>,
        bases: Vec<u32>,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ColumnParts {
    data_type: DataType,
    values: ValueParts,
    /// One bit a row, if a chunk has NULLs.
    validity: Option<Box<[AtomicU8]>>,
}

impl ColumnParts {
    /// Bytes that [`Self::new`] takes for so many rows.
    pub fn bytes(data_type: DataType, rows: usize) -> u64 {
        // Texts may have ids besides.
        let ids = if data_type.physical() == Physical::Bytes { size_of::<u16>() } else { 0 };
        (rows * (data_type.physical().width() + ids) + rows.div_ceil(8)) as u64
    }

    /// Bytes of a chunk that are free when it was copied: all but its texts, which the column shares, and ids.
    pub fn copied_bytes(chunk: &Column) -> u64 {
        let validity = if chunk.validity.is_some() { chunk.len().div_ceil(8) } else { 0 };
        (chunk.len() * chunk.data_type.physical().width() + validity) as u64
    }

    /// Room for `chunks`, in parts that begin at the rows `bounds`.
    #[expect(clippy::needless_pass_by_value, reason = "an iterator is cloned where it is needed twice")]
    pub fn new<'a>(data_type: DataType, bounds: &[usize], chunks: impl Iterator<Item = &'a Column> + Clone) -> Self {
        let values = match data_type.physical() {
            Physical::Boolean => ValueParts::Boolean(Parts::new(bounds)),
            Physical::Int16 => ValueParts::Int16(Parts::new(bounds)),
            Physical::Int32 => ValueParts::Int32(Parts::new(bounds)),
            Physical::Int64 => ValueParts::Int64(Parts::new(bounds)),
            Physical::Int128 => ValueParts::Int128(Parts::new(bounds)),
            Physical::Float32 => ValueParts::Float32(Parts::new(bounds)),
            Physical::Float64 => ValueParts::Float64(Parts::new(bounds)),
            Physical::Bytes => {
                if let Some(texts) = shared_dictionary(chunks.clone()) {
                    ValueParts::Ids { texts, ids: Parts::new(bounds) }
                } else {
                    let (data, bases) = shared_data(chunks.clone());
                    ValueParts::Bytes { views: Parts::new(bounds), data, bases }
                }
            }
        };
        let rows = bounds[bounds.len() - 1];
        let nullable = chunks.clone().any(|chunk| chunk.null_count() > 0);
        Self { data_type, values, validity: nullable.then(|| zeros(rows.div_ceil(8))) }
    }

    /// Fills a part with its chunks, of which `first` is the number of the first among all.
    pub fn fill<'a>(&self, part: usize, first: usize, chunks: impl Iterator<Item = &'a Column> + Clone) {
        macro_rules! copy {
            ($variant:ident, $parts:expr) => {{
                let mut rest = $parts.take(part);
                for chunk in chunks.clone() {
                    let Values::$variant(values) = &chunk.values else { wrong(chunk, self.data_type) };
                    let (own, behind) = rest.split_at_mut(values.len());
                    own.copy_from_slice(values);
                    rest = behind;
                }
                $parts.range(part).start
            }};
        }
        let start = match &self.values {
            ValueParts::Boolean(parts) => copy!(Boolean, parts),
            ValueParts::Int16(parts) => copy!(Int16, parts),
            ValueParts::Int32(parts) => copy!(Int32, parts),
            ValueParts::Int64(parts) => copy!(Int64, parts),
            ValueParts::Int128(parts) => copy!(Int128, parts),
            ValueParts::Float32(parts) => copy!(Float32, parts),
            ValueParts::Float64(parts) => copy!(Float64, parts),
            ValueParts::Ids { ids: parts, .. } => {
                let mut rest = parts.take(part);
                for chunk in chunks.clone() {
                    let Some(coded) = chunk.coded() else { wrong(chunk, self.data_type) };
                    let (own, behind) = rest.split_at_mut(coded.ids.len());
                    own.copy_from_slice(coded.ids);
                    rest = behind;
                }
                parts.range(part).start
            }
            ValueParts::Bytes { views: parts, bases, .. } => {
                let mut rest = parts.take(part);
                for (chunk, base) in chunks.clone().zip(&bases[first..]) {
                    let Values::Bytes(views) = &chunk.values else { wrong(chunk, self.data_type) };
                    let (own, behind) = rest.split_at_mut(views.len());
                    for (target, view) in own.iter_mut().zip(views.views.iter()) {
                        let long = *view as u32 as usize > VIEW_INLINE_MAX;
                        *target = *view + if long { u128::from(*base) << 64 } else { 0 };
                    }
                    rest = behind;
                }
                parts.range(part).start
            }
        };
        if let Some(bits) = &self.validity {
            let mut row = start;
            for chunk in chunks {
                set_valid(bits, row, chunk);
                row += chunk.len();
            }
        }
    }

    /// The column, when all parts are filled.
    pub fn finish(self) -> Column {
        let rows;
        macro_rules! values {
            ($variant:ident, $parts:expr) => {{
                let values: Buffer<_> = $parts.finish().into_vec().into();
                rows = values.len();
                Values::$variant(values)
            }};
        }
        let values = match self.values {
            ValueParts::Boolean(parts) => values!(Boolean, parts),
            ValueParts::Int16(parts) => values!(Int16, parts),
            ValueParts::Int32(parts) => values!(Int32, parts),
            ValueParts::Int64(parts) => values!(Int64, parts),
            ValueParts::Int128(parts) => values!(Int128, parts),
            ValueParts::Float32(parts) => values!(Float32, parts),
            ValueParts::Float64(parts) => values!(Float64, parts),
            ValueParts::Ids { texts, ids } => {
                let ids: Buffer<u16> = ids.finish().into_vec().into();
                rows = ids.len();
                Values::Bytes(Views::of_ids(&texts, ids))
            }
            ValueParts::Bytes { views, data, .. } => {
                let views: Buffer<u128> = views.finish().into_vec().into();
                rows = views.len();
                Values::Bytes(Views { views: views.into(), data: data.into() })
            }
        };
        let validity = self.validity.map(|bits| {
            let bytes: Vec<u8> = bits.into_iter().map(AtomicU8::into_inner).collect();
            Bitmap::new(bytes.into(), 0, rows)
        });
        Column { data_type: self.data_type, validity, values }
    }
}

fn wrong(chunk: &Column, data_type: DataType) -> ! {
    unreachable!("a chunk of {} in a column of {data_type}", chunk.data_type)
}

fn shared_data<'a>(chunks: impl Iterator<Item = &'a Column>) -> (Vec<Buffer<u8>>, Vec<u32>) {
    let (mut all, mut bases) = (Vec::new(), Vec::new());
    let mut last: Option<(&Arc<[Buffer<u8>]>, u32)> = None;
    for chunk in chunks {
        let Values::Bytes(Views { data, .. }) = &chunk.values else { wrong(chunk, DataType::Text) };
        let base = match last {
            Some((before, base)) if Arc::ptr_eq(before, data) => base,
            _ => {
                let base = all.len() as u32;
                all.extend(data.iter().cloned());
                base
            }
        };
        last = Some((data, base));
        bases.push(base);
    }
    (all, bases)
}

/// Rows of two chunks may share a byte, so bytes at their ends are changed atomically.
fn set_valid(bits: &[AtomicU8], start: usize, chunk: &Column) {
    let end = start + chunk.len();
    let valid = |row: usize| !chunk.is_null(row - start);
    for (byte, target) in bits.iter().enumerate().take(end.div_ceil(8)).skip(start / 8) {
        let rows = (byte * 8).max(start)..(byte * 8 + 8).min(end);
        let value = rows.fold(0, |value, row| value | u8::from(valid(row)) << (row & 7));
        target.fetch_or(value, Ordering::Relaxed);
    }
}

/// The longest state of the dictionary that all chunks come from, if they do.
fn shared_dictionary<'a>(mut chunks: impl Iterator<Item = &'a Column>) -> Option<Arc<DictionaryTexts>> {
    let mut longest = chunks.next()?.coded()?.texts;
    for chunk in chunks {
        longest = longest.longer(chunk.coded()?.texts)?;
    }
    Some(Arc::clone(longest))
}

/// The column with texts of its own, if it uses little of large data that it shares: whoever keeps a few rows of a
/// batch must not keep the texts of all others. A shared dictionary is there anyway, and small.
pub(crate) fn own_texts(column: Column) -> Column {
    let Values::Bytes(views) = &column.values else { return column };
    if column.coded().is_some() {
        return column;
    }
    let shared: usize = views.data.iter().map(Buffer::bytes).sum();
    if shared < SHARED_DATA_BYTES_MIN {
        return column;
    }
    let long = |view: &u128| (*view as u32 as usize > VIEW_INLINE_MAX).then_some(*view as u32 as usize);
    let used: usize = views.views.iter().filter_map(long).sum();
    if used == 0 {
        let values = Values::Bytes(Views { views: views.views.clone(), data: Arc::default() });
        return Column { values, ..column };
    }
    if used * SHARED_DATA_FACTOR > shared {
        return column;
    }
    let mut builder = ColumnBuilder::with_capacity(column.data_type, 0);
    builder.reserve_exact(column.len(), used);
    builder.extend(&column, 0..column.len());
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::SeededRandom;
    use eris_storage::{Batch, Value};

    #[test]
    fn chunks_are_put_together_as_concatenation_does() {
        let types = [
            DataType::Boolean,
            DataType::Int16,
            DataType::Date,
            DataType::Int64,
            DataType::Decimal { precision: 30, scale: 2 },
            DataType::Float32,
            DataType::Float64,
            DataType::Text,
        ];
        for seed in 0..60 {
            let mut random = SeededRandom::new(seed);
            let nulls = seed % 3;
            let mut row = || {
                let n = random.below(1_000) as i64 - 500;
                let text = format!("{n}{}", "é".repeat(random.index(12)));
                let mut values = vec![
                    Value::Boolean(n > 0),
                    Value::Int16(n as i16),
                    Value::Date(n as i32),
                    Value::Int64(n << 40),
                    Value::Decimal { unscaled: i128::from(n) << 70, scale: 2 },
                    Value::Float32(n as f32 / 3.0),
                    Value::Float64(n as f64 / 7.0),
                    Value::Text(text.into()),
                ];
                for value in &mut values {
                    if random.below(5) < nulls {
                        *value = Value::Null;
                    }
                }
                values
            };
            let mut length = SeededRandom::new(seed + 1_000);
            let whole: Vec<Vec<Value>> = (0..200).map(|_| row()).collect();
            let whole = Batch::from_rows(&types, &whole);
            let mut chunks = Vec::new();
            let mut at = 0;
            while at < 200 {
                let rows = length.index(40).min(200 - at);
                chunks.push(whole.slice(at, rows));
                at += rows;
            }
            // Parts of three chunks each.
            let groups: Vec<&[Batch]> = chunks.chunks(3).collect();
            let mut bounds = vec![0];
            for group in &groups {
                bounds.push(bounds[bounds.len() - 1] + group.iter().map(|chunk| chunk.rows).sum::<usize>());
            }
            for (column, data_type) in types.into_iter().enumerate() {
                let of =
                    |chunks: &[Batch]| chunks.iter().map(|chunk| chunk.columns[column].clone()).collect::<Vec<_>>();
                let parts = ColumnParts::new(data_type, &bounds, of(&chunks).iter());
                for part in (0..groups.len()).rev() {
                    parts.fill(part, part * 3, of(groups[part]).iter());
                }
                assert_eq!(parts.finish(), whole.columns[column], "seed {seed}, column {column}");
            }
        }
    }

    #[test]
    fn few_rows_do_not_keep_the_texts_of_many() {
        let rows: Vec<Vec<Value>> =
            (0..1_000).map(|n| vec![Value::Text(format!("a long text with number {n}").into())]).collect();
        let batch = Batch::from_rows(&[DataType::Text], &rows);
        let data = |column: &Column| match &column.values {
            Values::Bytes(views) => views.data.iter().map(Buffer::bytes).sum::<usize>(),
            _ => 0,
        };
        let few = own_texts(batch.take(&[3, 5]).columns[0].clone());
        assert_eq!((few.value(0), few.value(1)), (rows[3][0].clone(), rows[5][0].clone()));
        assert!(data(&few) < 100);
        let many = own_texts(batch.columns[0].clone());
        assert_eq!(data(&many), data(&batch.columns[0]), "all of it is used");
    }
}
