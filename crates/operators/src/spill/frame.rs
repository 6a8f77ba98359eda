//! Batches as bytes in temporary files.
//!
//! ```text
//! frame    | bytes u32 | plain bytes u32 | CRC-32C of the rest u32 | LZ4 block, or plain if that is not shorter |
//! plain    | rows u32 | columns u32 | column | ... |
//! column   | physical type u8 | has NULLs u8 | validity: a bit a row | values |
//! values   fixed size: as in memory, little-endian       texts: a length u32 a row, then all bytes
//! ```
//! What the types mean is known to the reader. A frame is read by the process that wrote it: there are no versions.

use eris_storage::{Batch, Bitmap, Buffer, Column, DataType, VIEW_INLINE_MAX, Values, Views};

/// Before the block.
const HEADER_BYTES: usize = 12;

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NotAFrame {
    #[error("a checksum does not agree")]
    Checksum,
    #[error("a frame is cut off")]
    CutOff,
    #[error("a frame holds something else than rows of its types")]
    Contents,
}

/// The number of each physical type; texts have the last.
fn tag_of(values: &Values) -> u8 {
    match values {
        Values::Boolean(_) => 0,
        Values::Int16(_) => 1,
        Values::Int32(_) => 2,
        Values::Int64(_) => 3,
        Values::Int128(_) => 4,
        Values::Float32(_) => 5,
        Values::Float64(_) => 6,
        Values::Bytes(_) => 7,
    }
}

macro_rules! put_fixed {
    ($values:expr, $out:expr) => {{
        for value in $values.iter() {
            $out.extend_from_slice(&value.to_le_bytes());
        }
    }};
}

fn put_column(column: &Column, out: &mut Vec<u8>) {
    out.push(tag_of(&column.values));
    let validity = column.validity.as_ref().filter(|validity| validity.count_zeros() > 0);
    out.push(u8::from(validity.is_some()));
    if let Some(validity) = validity {
        let start = out.len();
        out.resize(start + validity.len().div_ceil(8), 0);
        for (row, valid) in validity.iter().enumerate() {
            out[start + row / 8] |= u8::from(valid) << (row % 8);
        }
    }
    match &column.values {
        Values::Boolean(values) => out.extend_from_slice(values),
        Values::Int16(values) => put_fixed!(values, out),
        Values::Int32(values) => put_fixed!(values, out),
        Values::Int64(values) => put_fixed!(values, out),
        Values::Int128(values) => put_fixed!(values, out),
        Values::Float32(values) => put_fixed!(values, out),
        Values::Float64(values) => put_fixed!(values, out),
        Values::Bytes(views) => {
            // What lies under a NULL need not be readable.
            let text = |row: usize| if column.is_null(row) { &[][..] } else { views.get(row) };
            for row in 0..views.len() {
                out.extend_from_slice(&(text(row).len() as u32).to_le_bytes());
            }
            (0..views.len()).for_each(|row| out.extend_from_slice(text(row)));
        }
    }
}

/// Appends a batch as a frame; gives the bytes that it has when it is read.
///
/// # Panics
/// If it has 4 GiB or more; batches are cut long before.
pub(super) fn put_frame(batch: &Batch, out: &mut Vec<u8>) -> usize {
    let mut plain = Vec::with_capacity(batch.bytes() + batch.columns.len() * 2 + 8);
    plain.extend_from_slice(&(batch.rows as u32).to_le_bytes());
    plain.extend_from_slice(&(batch.columns.len() as u32).to_le_bytes());
    batch.columns.iter().for_each(|column| put_column(column, &mut plain));
    let plain_bytes = u32::try_from(plain.len()).unwrap_or_else(|_| panic!("a frame of {} bytes", plain.len()));
    let start = out.len();
    out.resize(start + HEADER_BYTES + lz4_flex::block::get_maximum_output_size(plain.len()), 0);
    let compressed = lz4_flex::block::compress_into(&plain, &mut out[start + HEADER_BYTES..]);
    let bytes = match compressed {
        Ok(bytes) if bytes < plain.len() => bytes,
        _ => {
            out[start + HEADER_BYTES..][..plain.len()].copy_from_slice(&plain);
            plain.len()
        }
    };
    out.truncate(start + HEADER_BYTES + bytes);
    out[start..start + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&plain_bytes.to_le_bytes());
    let checksum = checksum_of(plain_bytes, &out[start + HEADER_BYTES..]);
    out[start + 8..start + HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    plain.len()
}

fn checksum_of(plain_bytes: u32, block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&plain_bytes.to_le_bytes()), block)
}

/// Reads a frame from the beginning of `bytes`; gives the batch and the bytes that the frame took.
pub(super) fn take_frame(bytes: &[u8], types: &[DataType]) -> Result<(Batch, usize), NotAFrame> {
    let mut header = Bytes(bytes);
    let (length, plain_bytes, checksum) = (header.u32()? as usize, header.u32()?, header.u32()?);
    let block = header.take(length)?;
    // Before anything is made of it: what the checksum agrees with is what we wrote.
    if checksum_of(plain_bytes, block) != checksum {
        return Err(NotAFrame::Checksum);
    }
    let plain_bytes = plain_bytes as usize;
    let plain = if length == plain_bytes {
        block.to_vec()
    } else {
        let mut plain = vec![0; plain_bytes];
        match lz4_flex::block::decompress_into(block, &mut plain) {
            Ok(bytes) if bytes == plain_bytes => plain,
            _ => return Err(NotAFrame::Contents),
        }
    };
    let plain: Buffer<u8> = plain.into();
    let mut rest = Bytes(&plain);
    let (rows, columns) = (rest.u32()? as usize, rest.u32()? as usize);
    if columns != types.len() {
        return Err(NotAFrame::Contents);
    }
    let columns = types.iter().map(|data_type| take_column(&mut rest, *data_type, rows, &plain));
    let columns = columns.collect::<Result<Vec<Column>, _>>()?;
    if !rest.0.is_empty() {
        return Err(NotAFrame::Contents);
    }
    Ok((Batch::new(columns, rows), HEADER_BYTES + length))
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], NotAFrame> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(NotAFrame::CutOff)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, NotAFrame> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, NotAFrame> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

fn take_column(
    rest: &mut Bytes<'_>,
    data_type: DataType,
    rows: usize,
    plain: &Buffer<u8>,
) -> Result<Column, NotAFrame> {
    let tag = rest.u8()?;
    let validity = match rest.u8()? {
        0 => None,
        1 => Some(Bitmap::new(rest.take(rows.div_ceil(8))?.to_vec().into(), 0, rows)),
        _ => return Err(NotAFrame::Contents),
    };
    macro_rules! fixed {
        ($variant:ident, $type:ty) => {{
            const WIDTH: usize = size_of::<$type>();
            let (values, _) = rest.take(rows.checked_mul(WIDTH).ok_or(NotAFrame::Contents)?)?.as_chunks::<WIDTH>();
            Values::$variant(values.iter().map(|bytes| <$type>::from_le_bytes(*bytes)).collect())
        }};
    }
    let values = match tag {
        0 => Values::Boolean(rest.take(rows)?.to_vec().into()),
        1 => fixed!(Int16, i16),
        2 => fixed!(Int32, i32),
        3 => fixed!(Int64, i64),
        4 => fixed!(Int128, i128),
        5 => fixed!(Float32, f32),
        6 => fixed!(Float64, f64),
        7 => Values::Bytes(take_texts(rest, rows, plain)?),
        _ => return Err(NotAFrame::Contents),
    };
    Ok(Column { data_type, validity, values })
}

/// Views into the plain bytes themselves.
fn take_texts(rest: &mut Bytes<'_>, rows: usize, plain: &Buffer<u8>) -> Result<Views, NotAFrame> {
    let (lengths, _) = rest.take(rows.checked_mul(4).ok_or(NotAFrame::Contents)?)?.as_chunks::<4>();
    let mut views: Vec<u128> = Vec::with_capacity(rows);
    let mut any_long = false;
    for length in lengths {
        let length = u32::from_le_bytes(*length);
        let offset = plain.len() - rest.0.len();
        let text = rest.take(length as usize)?;
        views.push(if text.len() <= VIEW_INLINE_MAX {
            let mut view = [0; 16];
            view[..4].copy_from_slice(&length.to_le_bytes());
            view[4..4 + text.len()].copy_from_slice(text);
            u128::from_le_bytes(view)
        } else {
            any_long = true;
            // Buffer 0 is the only one.
            let prefix = u32::from_le_bytes([text[0], text[1], text[2], text[3]]);
            u128::from(length) | u128::from(prefix) << 32 | (offset as u128) << 96
        });
    }
    let views: Buffer<u128> = views.into();
    let data = if any_long { vec![plain.clone()] } else { Vec::new() };
    Ok(Views { views: views.into(), data: data.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::SeededRandom;
    use eris_storage::Value;

    const TYPES: [DataType; 9] = [
        DataType::Boolean,
        DataType::Int16,
        DataType::Date,
        DataType::Int64,
        DataType::Decimal { precision: 30, scale: 2 },
        DataType::Float32,
        DataType::Float64,
        DataType::Text,
        DataType::Bytes,
    ];

    fn batch(random: &mut SeededRandom, rows: usize) -> Batch {
        let nulls = random.below(3);
        let row = |random: &mut SeededRandom| {
            let n = random.below(1 << 40) as i64 - (1 << 39);
            let length = [0, 3, 12, 13, 40][random.index(5)];
            let values = vec![
                Value::Boolean(n % 2 == 0),
                Value::Int16(n as i16),
                Value::Date(n as i32),
                Value::Int64(n),
                Value::Decimal { unscaled: i128::from(n) << 50, scale: 2 },
                Value::Float32(n as f32),
                Value::Float64(if n % 5 == 0 { f64::NAN } else { n as f64 / 7.0 }),
                Value::Text(format!("{n:>length$}").into()),
                Value::Bytes((0..length).map(|at| (n >> at) as u8).collect()),
            ];
            values.into_iter().map(|value| if random.below(4) < nulls { Value::Null } else { value }).collect()
        };
        let rows: Vec<Vec<Value>> = (0..rows).map(|_| row(random)).collect();
        Batch::from_rows(&TYPES, &rows)
    }

    fn texts_of(batch: &Batch) -> Vec<String> {
        (0..batch.rows).map(|row| format!("{:?}", batch.row(row))).collect()
    }

    #[test]
    fn batches_of_all_types_come_back() {
        for seed in 0..60 {
            let mut random = SeededRandom::new(seed);
            let sizes = [0, 1, 7, 8, 500];
            let batches: Vec<Batch> = (0..4).map(|_| batch(&mut random, sizes[seed as usize % 5])).collect();
            let mut bytes = Vec::new();
            // Slices begin within bytes of validity, too.
            let parts: Vec<Batch> =
                batches.iter().map(|batch| batch.slice(batch.rows / 3, batch.rows - batch.rows / 3)).collect();
            for batch in &parts {
                put_frame(batch, &mut bytes);
            }
            let mut rest = &bytes[..];
            for expected in &parts {
                let (found, taken) = take_frame(rest, &TYPES).unwrap();
                assert_eq!(texts_of(&found), texts_of(expected), "seed {seed}");
                rest = &rest[taken..];
            }
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn decimals_of_64_bits_stay_what_they_are() {
        let data_type = DataType::Decimal { precision: 30, scale: 2 };
        let column = Column { data_type, validity: None, values: Values::Int64(vec![5, -7].into()) };
        let mut bytes = Vec::new();
        put_frame(&Batch::new([column], 2), &mut bytes);
        let (found, _) = take_frame(&bytes, &[data_type]).unwrap();
        assert!(matches!(&found.columns[0].values, Values::Int64(values) if **values == [5, -7]));
    }

    #[test]
    fn what_is_damaged_or_cut_off_is_no_frame() {
        let mut random = SeededRandom::new(7);
        let mut bytes = Vec::new();
        put_frame(&batch(&mut random, 300), &mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(take_frame(&bytes[..length], &TYPES).err(), Some(NotAFrame::CutOff), "{length} bytes");
        }
        for _ in 0..2_000 {
            let mut damaged = bytes.clone();
            damaged[random.index(bytes.len())] ^= 1 << random.below(8);
            assert!(take_frame(&damaged, &TYPES).is_err());
        }
        assert_eq!(take_frame(&bytes, &TYPES[1..]).err(), Some(NotAFrame::Contents));
    }
}
