//! A batch as bytes, as checkpoints keep rows: column by column, without pointers.
//!
//! ```text
//!   batch    rows u32 | columns u16 | 0 u16 | column ...
//!   column   bytes u64 | physical type u8 | has NULLs u8 | 0 x 6 | validity, if it has NULLs | values
//!   values   of fixed width: one after the other        of variable length: lengths, u32 each | all bytes
//! ```
//! All numbers are little-endian, `bytes` counts what lies behind the 16 bytes in front of each column, and a set bit
//! of the validity says that there is a value, as Arrow has it. What is read may be anything and is looked at.

use super::bitmap::Bitmap;
use super::buffer::Buffer;
use super::column::{Column, Values};
use super::rows::Batch;
use super::stored::NotRows;
use super::view::ValidityView;
use super::views::{VALUE_BYTES_MAX, Views, ViewsBuilder};
use crate::types::{DataType, Physical};

const BATCH_HEADER_BYTES: usize = 8;
const COLUMN_HEADER_BYTES: usize = 16;
/// Who stores rows may pause behind so many values, or bytes of them: some microseconds.
const VALUES_PER_PAUSE: usize = 4096;
const BYTES_PER_PAUSE: usize = 64 << 10;

fn number_of(physical: Physical) -> u8 {
    match physical {
        Physical::Boolean => 1,
        Physical::Int16 => 2,
        Physical::Int32 => 3,
        Physical::Int64 => 4,
        Physical::Int128 => 5,
        Physical::Float32 => 6,
        Physical::Float64 => 7,
        Physical::Bytes => 8,
    }
}

/// A type whose values are stored as they lie in memory.
trait Fixed: Copy + Send + Sync + 'static {
    const WIDTH: usize;
    fn store(self, out: &mut Vec<u8>);
    fn load(bytes: &[u8]) -> Self;
}

macro_rules! fixed {
    ($($type:ty),*) => {
        $(impl Fixed for $type {
            const WIDTH: usize = size_of::<$type>();

            fn store(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn load(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<$type>()];
                value.copy_from_slice(bytes);
                Self::from_le_bytes(value)
            }
        })*
    };
}

fixed!(u8, i16, i32, i64, i128, f32, f64);

fn store_fixed<T: Fixed>(values: &Buffer<T>, out: &mut Vec<u8>, pause: &mut dyn FnMut()) {
    out.reserve(values.len() * T::WIDTH);
    for values in values.chunks(VALUES_PER_PAUSE) {
        for value in values {
            value.store(out);
        }
        pause();
    }
}

fn load_fixed<T: Fixed>(bytes: &[u8], rows: usize) -> Result<Buffer<T>, NotRows> {
    if bytes.len() != rows * T::WIDTH {
        return Err(NotRows { reason: "a column has another length than its rows" });
    }
    Ok(bytes.chunks_exact(T::WIDTH).map(T::load).collect())
}

fn store_views(column: &Column, views: &Views, out: &mut Vec<u8>, pause: &mut dyn FnMut()) {
    let value = |row: usize| if column.is_null(row) { &[][..] } else { views.get(row) };
    let runs = || (0..views.len()).step_by(VALUES_PER_PAUSE);
    let run = |begin: usize| begin..views.len().min(begin + VALUES_PER_PAUSE);
    let mut bytes = 0;
    for begin in runs() {
        for row in run(begin) {
            out.extend_from_slice(&(value(row).len() as u32).to_le_bytes());
            bytes += value(row).len();
        }
        pause();
    }
    out.reserve(bytes);
    let mut unpaused = 0;
    for begin in runs() {
        for row in run(begin) {
            for bytes in value(row).chunks(BYTES_PER_PAUSE) {
                out.extend_from_slice(bytes);
                unpaused += bytes.len();
                if unpaused >= BYTES_PER_PAUSE {
                    pause();
                    unpaused = 0;
                }
            }
        }
        pause();
    }
}

fn load_views(data_type: DataType, bytes: &[u8], rows: usize) -> Result<Views, NotRows> {
    let short = NotRows { reason: "a column ends before its last value" };
    let (lengths, mut data) = bytes.split_at_checked(4 * rows).ok_or(short)?;
    // A piece of a text that is valid as a whole is valid if it begins and ends between characters.
    let all = data;
    let text = match data_type {
        DataType::Text => Some(std::str::from_utf8(all).map_err(|_| NotRows { reason: "a text is not UTF-8" })?),
        _ => None,
    };
    let mut views = ViewsBuilder::with_capacity(rows);
    for length in lengths.chunks_exact(4) {
        let length = u32::load(length) as usize;
        if length > VALUE_BYTES_MAX {
            return Err(NotRows { reason: "a value is longer than values are" });
        }
        let (value, rest) = data.split_at_checked(length).ok_or(short)?;
        if text.is_some_and(|text| !text.is_char_boundary(all.len() - rest.len())) {
            return Err(NotRows { reason: "a text is not UTF-8" });
        }
        views.push(value);
        data = rest;
    }
    if data.is_empty() { Ok(views.finish()) } else { Err(NotRows { reason: "there are bytes behind the last value" }) }
}

fixed!(u32, u64);

impl Column {
    fn store(&self, out: &mut Vec<u8>, pause: &mut dyn FnMut()) {
        let start = out.len();
        let has_nulls = self.null_count() > 0;
        out.extend_from_slice(&[0; COLUMN_HEADER_BYTES]);
        if has_nulls {
            store_validity(self.view().validity, self.len(), out, pause);
        }
        match &self.values {
            Values::Boolean(values) => store_fixed(values, out, pause),
            Values::Int16(values) => store_fixed(values, out, pause),
            Values::Int32(values) => store_fixed(values, out, pause),
            Values::Int64(values) => store_fixed(values, out, pause),
            Values::Int128(values) => store_fixed(values, out, pause),
            Values::Float32(values) => store_fixed(values, out, pause),
            Values::Float64(values) => store_fixed(values, out, pause),
            Values::Bytes(views) => store_views(self, views, out, pause),
        }
        let bytes = (out.len() - start - COLUMN_HEADER_BYTES) as u64;
        out[start..start + 8].copy_from_slice(&bytes.to_le_bytes());
        out[start + 8] = number_of(self.values.physical());
        out[start + 9] = u8::from(has_nulls);
    }

    fn load(data_type: DataType, bytes: &[u8], rows: usize) -> Result<(Self, &[u8]), NotRows> {
        let short = NotRows { reason: "the columns end before the last one" };
        let (header, rest) = bytes.split_at_checked(COLUMN_HEADER_BYTES).ok_or(short)?;
        let length = usize::try_from(u64::load(&header[..8])).map_err(|_| short)?;
        let (body, rest) = rest.split_at_checked(length).ok_or(short)?;
        let physical = data_type.physical();
        if header[8] != number_of(physical) {
            return Err(NotRows { reason: "a column is of another type" });
        }
        let (validity, body) = if header[9] == 0 {
            (None, body)
        } else {
            let (bits, body) = body.split_at_checked(rows.div_ceil(8)).ok_or(short)?;
            (Some(Bitmap::new(bits.iter().copied().collect(), 0, rows)), body)
        };
        let values = match physical {
            Physical::Boolean => Values::Boolean(load_fixed(body, rows)?),
            Physical::Int16 => Values::Int16(load_fixed(body, rows)?),
            Physical::Int32 => Values::Int32(load_fixed(body, rows)?),
            Physical::Int64 => Values::Int64(load_fixed(body, rows)?),
            Physical::Int128 => Values::Int128(load_fixed(body, rows)?),
            Physical::Float32 => Values::Float32(load_fixed(body, rows)?),
            Physical::Float64 => Values::Float64(load_fixed(body, rows)?),
            Physical::Bytes => Values::Bytes(load_views(data_type, body, rows)?),
        };
        Ok((Self { data_type, validity, values }, rest))
    }
}

fn store_validity(validity: ValidityView<'_>, rows: usize, out: &mut Vec<u8>, pause: &mut dyn FnMut()) {
    let start = out.len();
    out.resize(start + rows.div_ceil(8), 0);
    for begin in (0..rows).step_by(VALUES_PER_PAUSE) {
        for row in begin..rows.min(begin + VALUES_PER_PAUSE) {
            out[start + row / 8] |= u8::from(validity.get(row)) << (row % 8);
        }
        pause();
    }
}

impl Batch {
    /// Appends the rows to `out`.
    pub fn store(&self, out: &mut Vec<u8>) {
        self.store_with_pauses(out, &mut || {});
    }

    /// The same by somebody who must not keep the processor for long: `pause` is called every few microseconds.
    pub fn store_with_pauses(&self, out: &mut Vec<u8>, pause: &mut dyn FnMut()) {
        out.extend_from_slice(&(self.rows as u32).to_le_bytes());
        out.extend_from_slice(&(self.columns.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        self.columns.iter().for_each(|column| column.store(out, pause));
    }

    /// The rows of columns of these types that `bytes` are: the first ones, if there are fewer columns than types.
    pub fn load(types: &[DataType], bytes: &[u8]) -> Result<Self, NotRows> {
        let short = NotRows { reason: "the columns end before the last one" };
        let (header, mut rest) = bytes.split_at_checked(BATCH_HEADER_BYTES).ok_or(short)?;
        let rows = u32::load(&header[..4]) as usize;
        let columns = u16::from_le_bytes([header[4], header[5]]) as usize;
        let types = types.get(..columns).ok_or(NotRows { reason: "there are more columns than attributes" })?;
        let mut loaded = Vec::with_capacity(columns);
        for data_type in types {
            let (column, behind) = Column::load(*data_type, rest, rows)?;
            loaded.push(column);
            rest = behind;
        }
        if rest.is_empty() {
            Ok(Self { columns: loaded.into(), rows })
        } else {
            Err(NotRows { reason: "there are bytes behind the last column" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use eris_platform::SeededRandom;

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

    fn value(data_type: DataType, random: &mut SeededRandom) -> Value {
        let number = random.next_u64() as i64;
        let text: String = "aé漢🦀".chars().cycle().skip(random.index(4)).take(random.index(30)).collect();
        match data_type {
            DataType::Boolean => Value::Boolean(number % 2 == 0),
            DataType::Int16 => Value::Int16(number as i16),
            DataType::Int32 => Value::Int32(number as i32),
            DataType::Int64 => Value::Int64(number),
            DataType::Float32 => Value::Float32(number as f32),
            DataType::Float64 => Value::Float64(number as f64),
            DataType::Decimal { precision: 10, scale } => Value::Decimal { unscaled: i128::from(number as i32), scale },
            DataType::Decimal { scale, .. } => Value::Decimal { unscaled: i128::from(number) << 20, scale },
            DataType::Date => Value::Date(number as i32),
            DataType::Timestamp => Value::Timestamp(number),
            DataType::Text => Value::Text(text.into()),
            DataType::Bytes => Value::Bytes(text.bytes().rev().collect()),
        }
    }

    fn some_rows(random: &mut SeededRandom) -> Batch {
        let nulls = random.index(2) == 0;
        let rows: Vec<Vec<Value>> = (0..random.index(40))
            .map(|_| {
                let cell = |data_type: &DataType| {
                    let value = value(*data_type, random);
                    if nulls && random.index(3) == 0 { Value::Null } else { value }
                };
                TYPES.iter().map(cell).collect()
            })
            .collect();
        Batch::from_rows(&TYPES, &rows)
    }

    #[test]
    fn rows_are_loaded_as_they_were_stored() {
        let mut random = SeededRandom::new(1);
        for _ in 0..500 {
            let rows = some_rows(&mut random);
            let from = random.index(rows.rows + 1);
            let part = rows.slice(from, random.index(rows.rows - from + 1));
            let mut bytes = Vec::new();
            part.store(&mut bytes);
            assert_eq!(Batch::load(&TYPES, &bytes).unwrap(), part);
        }
    }

    #[test]
    fn who_stores_many_rows_may_pause_often_and_stores_the_same() {
        const ROWS: usize = 5 * VALUES_PER_PAUSE + 1;
        let mut random = SeededRandom::new(2);
        let rows: Vec<Vec<Value>> =
            (0..ROWS).map(|_| TYPES.iter().map(|data_type| value(*data_type, &mut random)).collect()).collect();
        let rows = Batch::from_rows(&TYPES, &rows);
        let (mut bytes, mut pauses) = (Vec::new(), 0);
        rows.store_with_pauses(&mut bytes, &mut || pauses += 1);
        // Lengths and bytes of values of variable length are gone through one after the other.
        let passes = TYPES.iter().map(|data_type| if data_type.is_variable_length() { 2 } else { 1 }).sum::<usize>();
        assert!(pauses >= passes * 6, "{pauses}");
        let mut expected = Vec::new();
        rows.store(&mut expected);
        assert!(bytes == expected);
        // Of a few large values: their bytes, and those of their validity.
        let large = Value::Text("large".repeat(BYTES_PER_PAUSE).into());
        let large = Batch::from_rows(&[DataType::Text], &[vec![large.clone()], vec![Value::Null], vec![large]]);
        let mut pauses = 0;
        large.store_with_pauses(&mut Vec::new(), &mut || pauses += 1);
        assert_eq!(pauses, 1 + 1 + 2 * 5 + 1);
    }

    #[test]
    fn a_text_that_is_cut_within_a_character_is_refused() {
        let rows =
            Batch::from_rows(&[DataType::Text], &[vec![Value::Text("aé".into())], vec![Value::Text("b".into())]]);
        let mut bytes = Vec::new();
        rows.store(&mut bytes);
        let lengths = BATCH_HEADER_BYTES + COLUMN_HEADER_BYTES;
        assert_eq!(bytes[lengths..lengths + 8], [3, 0, 0, 0, 1, 0, 0, 0]);
        assert!(Batch::load(&[DataType::Text], &bytes).is_ok());
        (bytes[lengths], bytes[lengths + 4]) = (2, 2);
        assert!(Batch::load(&[DataType::Text], &bytes).is_err());
        assert!(Batch::load(&[DataType::Bytes], &bytes).is_ok(), "bytes are cut anywhere");
    }

    #[test]
    fn broken_bytes_are_refused_or_are_rows_all_of_whose_values_can_be_read() {
        let mut random = SeededRandom::new(2);
        let mut refused = 0;
        for _ in 0..5_000 {
            let mut bytes = Vec::new();
            some_rows(&mut random).store(&mut bytes);
            for _ in 0..=random.index(3) {
                let place = random.index(bytes.len());
                bytes[place] = random.next_u32() as u8;
            }
            bytes.truncate(bytes.len() - random.index(4).saturating_sub(2));
            match Batch::load(&TYPES, &bytes) {
                Ok(rows) => (0..rows.rows).for_each(|row| assert_eq!(rows.row(row).len(), rows.columns.len())),
                Err(_) => refused += 1,
            }
        }
        assert!((500..4_500).contains(&refused), "{refused} of 5,000 are refused");
    }
}
