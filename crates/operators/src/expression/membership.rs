//! IN with a list of constants.
//!
//! Values become keys that are equal when the values are: integers as they are, floats as ordered integers, decimals at
//! the scale of the column, short texts as their views. Keys that lie close together are a bitmap, few of them are
//! compared one by one, others are searched for.

use eris_platform::DeterministicSet;
use eris_storage::{Column, DataType, Value, Values, Views};

use super::compare::{ordered_f32, ordered_f64, test};
use super::instructions::Level;
use super::texts;
use crate::arithmetic::power;
use crate::error::OperatorError;

/// Up to so many keys are compared one after the other.
const FEW: usize = 8;
/// Bits of a bitmap of keys at most: 4 KB stay in the nearest cache.
const BITS_MAX: u128 = 32_768;

/// Constants of one type, and whether NULL is among them.
#[derive(Clone, Debug)]
pub struct ValueSet {
    values: Box<[Value]>,
    has_null: bool,
    keys: Keys,
}

#[derive(Clone, Debug)]
enum Keys {
    Numbers(Numbers),
    /// Decimals beyond 64 bits may be asked for, and be in the list.
    Decimals {
        narrow: Numbers,
        wide: Box<[i128]>,
    },
    Texts(Texts),
}

#[derive(Clone, Debug)]
enum Numbers {
    Bits { low: i64, words: Box<[u64]> },
    Few([i64; FEW]),
    Sorted(Box<[i64]>),
}

#[derive(Clone, Debug)]
enum Texts {
    /// Lengths and bytes of texts of up to four: the lower half of their views.
    Tiny(Box<[u64]>),
    /// Sorted views of texts that lie in them.
    Inline(Box<[u128]>),
    Any(DeterministicSet<Box<[u8]>>),
}

impl Numbers {
    fn new(mut keys: Vec<i64>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        let (Some(low), Some(high)) = (keys.first().copied(), keys.last().copied()) else {
            return Self::Sorted(Box::default());
        };
        let span = (i128::from(high) - i128::from(low)).unsigned_abs() + 1;
        if span <= BITS_MAX {
            let mut words = vec![0_u64; span.div_ceil(64) as usize];
            for key in keys {
                let bit = (key - low) as usize;
                words[bit / 64] |= 1 << (bit % 64);
            }
            return Self::Bits { low, words: words.into() };
        }
        if keys.len() <= FEW {
            let mut few = [low; FEW];
            few[..keys.len()].copy_from_slice(&keys);
            return Self::Few(few);
        }
        Self::Sorted(keys.into())
    }

    fn test<T: Copy>(&self, values: &[T], key: impl Fn(T) -> i64) -> Vec<u8> {
        let level = Level::for_rows(values.len());
        match self {
            Self::Bits { low, words } => match &**words {
                [word] => test(level, values, |value| {
                    let bit = key(value).wrapping_sub(*low) as u64;
                    bit < 64 && word >> bit & 1 != 0
                }),
                words => test(level, values, |value| {
                    let bit = key(value).wrapping_sub(*low) as u64;
                    words.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 != 0)
                }),
            },
            Self::Few(few) => test(level, values, |value| {
                let key = key(value);
                few.iter().fold(0, |found, known| found | u8::from(*known == key)) != 0
            }),
            Self::Sorted(sorted) => test(level, values, |value| sorted.binary_search(&key(value)).is_ok()),
        }
    }
}

impl Texts {
    fn new(texts: Vec<&[u8]>) -> Self {
        match texts.iter().map(|text| texts::inline_view(text)).collect::<Option<Vec<u128>>>() {
            Some(mut views) => {
                views.sort_unstable();
                views.dedup();
                match views.iter().map(|view| u64::try_from(*view).ok()).collect::<Option<Box<[u64]>>>() {
                    Some(tiny) if tiny.len() <= FEW => Self::Tiny(tiny),
                    _ => Self::Inline(views.into()),
                }
            }
            None => Self::Any(texts.into_iter().map(Box::from).collect()),
        }
    }

    fn test(&self, views: &Views) -> Vec<u8> {
        if let Some(known) = texts::by_dictionary(views, |texts| self.test(texts)) {
            return known;
        }
        let level = Level::for_rows(views.len());
        match self {
            // The lower half has the length, too, so the upper one need not be looked at.
            Self::Tiny(known) => test(level, &views.views, |view: u128| {
                known.iter().fold(0, |found, known| found | u8::from(*known == view as u64)) != 0
            }),
            Self::Inline(few) if few.len() <= FEW => test(level, &views.views, |view: u128| {
                few.iter().fold(0, |found, known| found | u8::from(*known == view)) != 0
            }),
            Self::Inline(many) => test(level, &views.views, |view| many.binary_search(&view).is_ok()),
            Self::Any(known) => texts::test_distinct(views, |text| known.contains(text)),
        }
    }
}

/// A number of a type as a key of 64 bits, but for decimals.
fn key_of(value: &Value, data_type: DataType) -> Option<i64> {
    Some(match (value, data_type) {
        (Value::Boolean(value), DataType::Boolean) => i64::from(*value),
        (Value::Int16(value), DataType::Int16) => i64::from(*value),
        (Value::Int32(value), DataType::Int32) | (Value::Date(value), DataType::Date) => i64::from(*value),
        (Value::Int64(value), DataType::Int64) | (Value::Timestamp(value), DataType::Timestamp) => *value,
        (Value::Float32(value), DataType::Float32) => i64::from(ordered_f32(*value)),
        (Value::Float64(value), DataType::Float64) => ordered_f64(*value),
        _ => return None,
    })
}

/// The bytes of a text or of bytes, whichever the type has.
fn bytes_of(value: &Value, data_type: DataType) -> Option<&[u8]> {
    match (value, data_type) {
        (Value::Text(text), DataType::Text) => Some(text.as_bytes()),
        (Value::Bytes(bytes), DataType::Bytes) => Some(bytes),
        _ => None,
    }
}

/// A decimal at another scale, if it is one there.
fn at_scale(unscaled: i128, from: u8, to: u8) -> Option<i128> {
    if from <= to {
        return unscaled.checked_mul(power(to - from)?);
    }
    let divisor = power(from - to)?;
    (unscaled % divisor == 0).then_some(unscaled / divisor)
}

impl ValueSet {
    /// Of constants that are compared with values of a type; `None`: one of them cannot be.
    pub fn new(data_type: DataType, values: &[Value]) -> Option<Self> {
        let has_null = values.iter().any(Value::is_null);
        let known = || values.iter().filter(|value| !value.is_null());
        let keys = match data_type {
            DataType::Decimal { scale, .. } => {
                let mut wide = Vec::new();
                for value in known() {
                    let Value::Decimal { unscaled, scale: from } = value else { return None };
                    wide.extend(at_scale(*unscaled, *from, scale));
                }
                wide.sort_unstable();
                let narrow = wide.iter().filter_map(|key| i64::try_from(*key).ok()).collect();
                Keys::Decimals { narrow: Numbers::new(narrow), wide: wide.into() }
            }
            DataType::Text | DataType::Bytes => {
                let texts = known().map(|value| bytes_of(value, data_type)).collect::<Option<_>>()?;
                Keys::Texts(Texts::new(texts))
            }
            _ => {
                let keys = known().map(|value| key_of(value, data_type)).collect::<Option<_>>()?;
                Keys::Numbers(Numbers::new(keys))
            }
        };
        Some(Self { values: values.into(), has_null, keys })
    }

    /// How many constants.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether what is not found may equal the NULL in the list.
    pub(super) fn has_null(&self) -> bool {
        self.has_null
    }

    /// The constants.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// 1 for each value that equals one of the constants.
    pub(super) fn test(&self, column: &Column) -> Result<Vec<u8>, OperatorError> {
        Ok(match (&self.keys, &column.values) {
            (Keys::Numbers(numbers), Values::Boolean(values)) => numbers.test(values, i64::from),
            (Keys::Numbers(numbers), Values::Int16(values)) => numbers.test(values, i64::from),
            (Keys::Numbers(numbers), Values::Int32(values)) => numbers.test(values, i64::from),
            (Keys::Numbers(numbers), Values::Int64(values)) => numbers.test(values, |value| value),
            (Keys::Numbers(numbers), Values::Float32(values)) => {
                numbers.test(values, |value| i64::from(ordered_f32(value)))
            }
            (Keys::Numbers(numbers), Values::Float64(values)) => numbers.test(values, ordered_f64),
            (Keys::Decimals { narrow, .. }, Values::Int64(values)) => narrow.test(values, |value| value),
            (Keys::Decimals { wide, .. }, Values::Int128(values)) => {
                values.iter().map(|value| u8::from(wide.binary_search(value).is_ok())).collect()
            }
            (Keys::Texts(texts), Values::Bytes(views)) => texts.test(views),
            (_, values) => {
                return Err(OperatorError::Internal(format!("{:?} in a list of {:?}", values.physical(), self.values)));
            }
        })
    }
}
