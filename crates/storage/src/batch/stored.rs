//! Packed rows as bytes, as the log keeps them.
//!
//! ```text
//!   rows u32 | heap bytes u32 | rows, each as long as the format's stride | heap
//! ```
//! All numbers are little-endian. The format is not part of the bytes: whoever reads them knows the types of the
//! columns. What is read may be anything, so every view is looked at before somebody follows it.

use std::fmt;
use std::sync::Arc;

use super::packed::{PackedRows, RowFormat};
use super::views::{VIEW_INLINE_MAX, view_len};
use crate::types::DataType;

/// Bytes that are no packed rows of the format that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRows {
    /// What is wrong with them.
    pub reason: &'static str,
}

impl fmt::Display for NotRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for NotRows {}

/// The row count and the length of the heap.
const HEADER_BYTES: usize = 8;

impl PackedRows {
    /// Appends the rows to `out`.
    pub fn store(&self, out: &mut Vec<u8>) {
        let (fixed, heap) = self.parts();
        out.reserve(HEADER_BYTES + fixed.len() + heap.len());
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        out.extend_from_slice(&(heap.len() as u32).to_le_bytes());
        out.extend_from_slice(fixed);
        out.extend_from_slice(heap);
    }

    /// Takes rows of this format from the front of `bytes`; gives what lies behind them.
    pub fn load<'a>(format: &Arc<RowFormat>, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), NotRows> {
        let short = NotRows { reason: "the rows end before their last byte" };
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(short)?;
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
        let (rows, heap_bytes) = (number(0), number(4));
        let fixed_bytes = rows.checked_mul(format.stride()).ok_or(short)?;
        let (fixed, rest) = rest.split_at_checked(fixed_bytes).ok_or(short)?;
        let (heap, rest) = rest.split_at_checked(heap_bytes).ok_or(short)?;
        let loaded = Self::from_parts(format, fixed.to_vec(), heap.to_vec(), rows);
        loaded.check_views()?;
        Ok((loaded, rest))
    }

    /// Whether every value of variable length lies where its view says, and texts are texts.
    fn check_views(&self) -> Result<(), NotRows> {
        let (_, heap) = self.parts();
        let variable = self.format().data_types().iter().enumerate().filter(|(_, it)| it.is_variable_length());
        for (column, data_type) in variable {
            for row in (0..self.len()).filter(|row| !self.is_null(*row, column)) {
                let view = self.view(row, column);
                let (length, start) = (view_len(view), (view >> 96) as u32 as usize);
                if length > VIEW_INLINE_MAX && start.checked_add(length).is_none_or(|end| end > heap.len()) {
                    return Err(NotRows { reason: "a value lies outside of the rows" });
                }
                if *data_type == DataType::Text && std::str::from_utf8(self.bytes_of(row, column)).is_err() {
                    return Err(NotRows { reason: "a text is not UTF-8" });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::value::Value;
    use eris_platform::SeededRandom;

    const TYPES: [DataType; 4] = [DataType::Int64, DataType::Text, DataType::Boolean, DataType::Bytes];

    fn packed(rows: &[Vec<Value>]) -> PackedRows {
        let mut packed = PackedRows::default();
        packed.clear(&Arc::new(RowFormat::new(TYPES)));
        packed.extend(&Batch::from_rows(&TYPES, rows));
        packed
    }

    fn some_rows(random: &mut SeededRandom) -> PackedRows {
        let row = |random: &mut SeededRandom| {
            let length = random.index(40);
            let text: String = "aé漢🦀".chars().cycle().skip(random.index(4)).take(length).collect();
            let bytes: Vec<u8> = (0..random.index(40)).map(|_| random.next_u32() as u8).collect();
            let values = [
                Value::Int64(random.next_u64() as i64),
                Value::Text(text.into()),
                Value::Boolean(random.index(2) == 0),
            ];
            let values = values.into_iter().chain([Value::Bytes(bytes.into())]);
            values.map(|value| if random.index(4) == 0 { Value::Null } else { value }).collect()
        };
        let rows: Vec<Vec<Value>> = (0..random.index(8)).map(|_| row(random)).collect();
        packed(&rows)
    }

    #[test]
    fn rows_are_loaded_as_they_were_stored() {
        let mut random = SeededRandom::new(1);
        for _ in 0..1_000 {
            let packed = some_rows(&mut random);
            let mut bytes = vec![7];
            packed.store(&mut bytes);
            bytes.extend_from_slice(&[8, 9]);
            let (loaded, rest) = PackedRows::load(packed.format(), &bytes[1..]).unwrap();
            assert_eq!((loaded.to_batch(), rest), (packed.to_batch(), &[8_u8, 9][..]));
        }
    }

    #[test]
    fn broken_bytes_are_refused_or_are_rows_all_of_whose_values_can_be_read() {
        let mut random = SeededRandom::new(2);
        let mut refused = 0;
        for _ in 0..20_000 {
            let packed = some_rows(&mut random);
            let mut bytes = Vec::new();
            packed.store(&mut bytes);
            for _ in 0..random.index(4) {
                let place = random.index(bytes.len());
                bytes[place] = random.next_u32() as u8;
            }
            bytes.truncate(bytes.len() - random.index(4).saturating_sub(2));
            match PackedRows::load(packed.format(), &bytes) {
                Ok((loaded, _)) => assert_eq!(loaded.to_batch().rows, loaded.len()),
                Err(_) => refused += 1,
            }
        }
        assert!((1_000..19_000).contains(&refused), "{refused} of 20,000 are refused");
    }

    #[test]
    fn says_what_is_wrong() {
        let long = "more than twelve bytes of text";
        let packed = packed(&[vec![Value::Int64(1), Value::Text(long.into()), Value::Boolean(true), Value::Null]]);
        let mut bytes = Vec::new();
        packed.store(&mut bytes);
        let reason = |bytes: &[u8]| PackedRows::load(packed.format(), bytes).unwrap_err().reason;
        assert_eq!(reason(&bytes[..bytes.len() - 1]), "the rows end before their last byte");
        let text = bytes.len() - long.len();
        let mut broken = bytes.clone();
        broken[text] = 0xFF;
        assert_eq!(reason(&broken), "a text is not UTF-8");
        // One byte less of heap, and all else as it was.
        let mut broken = bytes.clone();
        broken[4] -= 1;
        assert_eq!(reason(&broken), "a value lies outside of the rows");
    }
}
