//! Values to order-preserving bytes ("memcomparable").
//!
//! ```text
//! value     := 0xFF                       NULL: sorts last
//!            | 0x01 body                  not NULL
//! body      := boolean   1 byte
//!            | integer, date, timestamp, decimal: big endian, sign bit flipped
//!            | float     big endian of an integer ordered like the float (NaN last, -0 = 0)
//!            | text, bytes: 0x00 escaped as 0x00 0xFF, ended by 0x00 0x01
//! key       := value*
//! ```
//! Every value ends itself, so no key of a list of types is a proper prefix of another, and the key of the first
//! attributes is a byte prefix of the key of all.
//!
//! Indexes leave out the leading 0x01 of attributes that are never NULL ([`KeyPart::tagged`]), which keeps most keys
//! within 8 or 16 bytes.

use super::inline::Key;
use crate::batch::{Batch, Column, Values};
use crate::types::{DataType, Physical};
use crate::value::{Value, order_f32, order_f64};

const VALUE_TAG: u8 = 0x01;

/// How one attribute enters a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPart {
    pub data_type: DataType,
    /// Whether a tag says NULL or not; without, NULL cannot be encoded.
    pub tagged: bool,
}

impl KeyPart {
    /// Bytes of the encoding at most, if there is a bound.
    pub fn bytes_max(self) -> Option<usize> {
        let tag = usize::from(self.tagged);
        match self.data_type.physical() {
            Physical::Bytes => None,
            physical => Some(tag + physical.width()),
        }
    }
}

/// Keys up to this length are encoded without an allocation.
const ENCODER_INLINE_MAX: usize = 56;

/// Bytes that grow, the first few in place.
#[derive(Debug)]
struct Bytes {
    inline: [u8; ENCODER_INLINE_MAX],
    inline_len: usize,
    /// All bytes, once they are more than fit in place.
    spilled: Vec<u8>,
}

impl Bytes {
    #[inline]
    fn as_slice(&self) -> &[u8] {
        if self.spilled.is_empty() { &self.inline[..self.inline_len] } else { &self.spilled }
    }

    fn clear(&mut self) {
        self.inline_len = 0;
        self.spilled.clear();
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        self.extend_from_slice(&[byte]);
    }

    #[inline]
    fn extend_from_slice(&mut self, bytes: &[u8]) {
        let end = self.inline_len + bytes.len();
        if self.spilled.is_empty() && end <= ENCODER_INLINE_MAX {
            self.inline[self.inline_len..end].copy_from_slice(bytes);
            self.inline_len = end;
        } else {
            self.spill(bytes);
        }
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.inline[..self.inline_len]);
        }
        self.spilled.extend_from_slice(bytes);
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self { inline: [0; ENCODER_INLINE_MAX], inline_len: 0, spilled: Vec::new() }
    }
}

/// Collects the bytes of a key.
#[derive(Debug, Default)]
pub struct KeyEncoder {
    bytes: Bytes,
}

impl KeyEncoder {
    /// An empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets what was encoded, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The bytes so far.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// The key.
    pub fn finish(&self) -> Key {
        Key::from_bytes(self.bytes.as_slice())
    }

    /// Appends a value of `data_type`, or NULL.
    pub fn push(&mut self, value: &Value, data_type: DataType) {
        self.push_part(value, KeyPart { data_type, tagged: true });
    }

    /// Appends a value as `part` says.
    ///
    /// # Panics
    /// For NULL without a tag, and for a value of another type.
    pub fn push_part(&mut self, value: &Value, part: KeyPart) {
        if value.is_null() {
            assert!(part.tagged, "NULL in a key that has no place for it");
            self.bytes.push(Key::NULL_TAG);
            return;
        }
        self.push_tag(part);
        match (value, part.data_type.physical()) {
            (Value::Boolean(v), Physical::Boolean) => self.bytes.push(u8::from(*v)),
            (Value::Int16(v), Physical::Int16) => self.push_i16(*v),
            (Value::Int32(v) | Value::Date(v), Physical::Int32) => self.push_i32(*v),
            (Value::Int64(v) | Value::Timestamp(v), Physical::Int64) => self.push_i64(*v),
            (Value::Decimal { unscaled, .. }, Physical::Int64) => self.push_i64(saturate(*unscaled)),
            (Value::Decimal { unscaled, .. }, Physical::Int128) => self.push_i128(*unscaled),
            (Value::Float32(v), Physical::Float32) => self.push_i32(order_f32(*v)),
            (Value::Float64(v), Physical::Float64) => self.push_i64(order_f64(*v)),
            (Value::Text(v), Physical::Bytes) => self.push_bytes(v.as_bytes()),
            (Value::Bytes(v), Physical::Bytes) => self.push_bytes(v),
            (value, _) => unreachable!("{value:?} as a key of type {}", part.data_type),
        }
    }

    /// Appends the value at `row` of a column as `part` says.
    ///
    /// # Panics
    /// For NULL without a tag.
    pub fn push_row(&mut self, column: &Column, row: usize, part: KeyPart) {
        if column.is_null(row) {
            assert!(part.tagged, "NULL in a key that has no place for it");
            self.bytes.push(Key::NULL_TAG);
            return;
        }
        self.push_tag(part);
        match &column.values {
            Values::Boolean(buffer) => self.bytes.push(buffer[row]),
            Values::Int16(buffer) => self.push_i16(buffer[row]),
            Values::Int32(buffer) => self.push_i32(buffer[row]),
            Values::Int64(buffer) => self.push_i64(buffer[row]),
            Values::Int128(buffer) => self.push_i128(buffer[row]),
            Values::Float32(buffer) => self.push_i32(order_f32(buffer[row])),
            Values::Float64(buffer) => self.push_i64(order_f64(buffer[row])),
            Values::Bytes(views) => self.push_bytes(views.get(row)),
        }
    }

    /// Appends raw bytes (the beginning of a text, for prefix searches): escaped, not ended.
    pub(crate) fn push_text_prefix(&mut self, prefix: &[u8], part: KeyPart) {
        self.push_tag(part);
        self.push_escaped(prefix);
    }

    /// Appends what every non-NULL value of the part begins with.
    pub(crate) fn push_tag(&mut self, part: KeyPart) {
        if part.tagged {
            self.bytes.push(VALUE_TAG);
        }
    }

    /// Appends bytes that are already encoded.
    pub(crate) fn push_raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn push_i16(&mut self, value: i16) {
        self.bytes.extend_from_slice(&(value as u16 ^ 1 << 15).to_be_bytes());
    }

    fn push_i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&(value as u32 ^ 1 << 31).to_be_bytes());
    }

    fn push_i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&(value as u64 ^ 1 << 63).to_be_bytes());
    }

    fn push_i128(&mut self, value: i128) {
        self.bytes.extend_from_slice(&(value as u128 ^ 1 << 127).to_be_bytes());
    }

    fn push_bytes(&mut self, value: &[u8]) {
        self.push_escaped(value);
        self.bytes.extend_from_slice(&[0x00, 0x01]);
    }

    fn push_escaped(&mut self, value: &[u8]) {
        if value.contains(&0) {
            for byte in value {
                self.bytes.push(*byte);
                if *byte == 0 {
                    self.bytes.push(0xFF);
                }
            }
        } else {
            self.bytes.extend_from_slice(value);
        }
    }
}

/// A constant beyond a 64-bit decimal is above (below) all of its values; the nearest of them keeps that order.
fn saturate(unscaled: i128) -> i64 {
    i64::try_from(unscaled).unwrap_or(if unscaled < 0 { i64::MIN } else { i64::MAX })
}

/// The key of values.
pub fn key_of_values(values: &[(&Value, DataType)]) -> Key {
    let mut encoder = KeyEncoder::new();
    for (value, data_type) in values {
        encoder.push(value, *data_type);
    }
    encoder.finish()
}

/// The key of some columns of a row.
pub fn key_of_row(batch: &Batch, row: usize, columns: &[usize]) -> Key {
    let mut encoder = KeyEncoder::new();
    for column in columns {
        let column = &batch.columns[*column];
        encoder.push_row(column, row, KeyPart { data_type: column.data_type, tagged: true });
    }
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::SeededRandom;
    use std::cmp::Ordering;

    const TYPES: [DataType; 12] = [
        DataType::Boolean,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal { precision: 12, scale: 2 },
        DataType::Decimal { precision: 38, scale: 4 },
        DataType::Date,
        DataType::Timestamp,
        DataType::Text,
        DataType::Bytes,
    ];

    fn random_value(random: &mut SeededRandom, data_type: DataType) -> Value {
        let word = random.next_u64();
        let small = random.below(5) as i64 - 2;
        let number = if random.below(2) == 0 { small } else { word as i64 };
        match data_type {
            DataType::Boolean => Value::Boolean(number & 1 == 1),
            DataType::Int16 => Value::Int16(number as i16),
            DataType::Int32 => Value::Int32(number as i32),
            DataType::Int64 => Value::Int64(number),
            DataType::Float32 => Value::Float32(f32::from_bits(word as u32)),
            DataType::Float64 => {
                [f64::from_bits(word), f64::NAN, 0.0, -0.0, small as f64][random.below(5) as usize].into()
            }
            DataType::Decimal { precision, scale } if precision <= 18 => {
                Value::Decimal { unscaled: i128::from(number), scale }
            }
            DataType::Decimal { scale, .. } => {
                Value::Decimal { unscaled: i128::from(number) * i128::from(word >> 3), scale }
            }
            DataType::Date => Value::Date(number as i32),
            DataType::Timestamp => Value::Timestamp(number),
            DataType::Text => {
                let text: String =
                    (0..random.below(4)).map(|_| ['\0', '\u{1}', 'a', 'é'][random.below(4) as usize]).collect();
                Value::Text(text.into())
            }
            DataType::Bytes => {
                Value::Bytes((0..random.below(4)).map(|_| [0, 1, 0xFF][random.below(3) as usize]).collect())
            }
        }
    }

    impl From<f64> for Value {
        fn from(value: f64) -> Self {
            Self::Float64(value)
        }
    }

    #[test]
    fn order_of_bytes_is_order_of_values() {
        let mut random = SeededRandom::new(11);
        for round in 0..20_000 {
            let types: Vec<DataType> = (0..=random.below(2)).map(|_| TYPES[random.below(12) as usize]).collect();
            let mut row = || -> Vec<Value> {
                let null = |random: &mut SeededRandom| random.below(8) == 0;
                types
                    .iter()
                    .map(|t| if null(&mut random) { Value::Null } else { random_value(&mut random, *t) })
                    .collect()
            };
            let (left, right) = (row(), row());
            let key = |row: &[Value]| key_of_values(&row.iter().zip(types.iter().copied()).collect::<Vec<_>>());
            let expected =
                left.iter().zip(&right).map(|(l, r)| l.cmp(r)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
            assert_eq!(key(&left).cmp(&key(&right)), expected, "round {round}: {types:?} {left:?} {right:?}");
            let batch = Batch::from_rows(&types, &[left.clone(), right]);
            assert_eq!(key_of_row(&batch, 0, &(0..types.len()).collect::<Vec<_>>()), key(&left));
            let prefix = key_of_row(&batch, 0, &[0]);
            assert!(key(&left).as_bytes().starts_with(prefix.as_bytes()));
        }
    }
}
