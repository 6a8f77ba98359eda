//! Integer keys as one number, and texts of one dictionary, which are integers there ([`Merging`]).
//!
//! The build input says between which values each key column lies. A row's code counts through that box:
//!
//! ```text
//!   code = (k1 - low1) * spans behind + (k2 - low2) * ... + (kn - lown)          0 <= code < domain
//! ```
//!
//! so that keys of several columns are one 64-bit number, and a small domain is an array index. A probe value outside
//! the box has no partner: its code is `miss`. A NULL is one value more where NULLs are equal, else a miss.

use std::sync::Arc;

use eris_storage::{Column, DataType, DictionaryTexts, Values};

use super::merging::Merging;

/// Which values a key column has, as far as seen.
#[derive(Clone, Debug)]
pub(super) enum Bounds {
    /// None but NULL.
    Nothing,
    /// Integers of 64 bits, between these.
    Integers { low: i64, high: i64 },
    /// Texts of one dictionary, in the longest state that was seen.
    Texts(Arc<DictionaryTexts>),
    /// Anything.
    Any,
}

impl Bounds {
    /// Takes the values of a column.
    pub fn extend(&mut self, column: &Column) {
        macro_rules! extremes {
            ($values:expr) => {{
                if column.validity.is_none() {
                    let low = $values.iter().min().map_or(i64::MAX, |value| i64::from(*value));
                    let high = $values.iter().max().map_or(i64::MIN, |value| i64::from(*value));
                    self.add(low, high);
                } else {
                    for (row, value) in $values.iter().enumerate() {
                        if !column.is_null(row) {
                            self.add(i64::from(*value), i64::from(*value));
                        }
                    }
                }
            }};
        }
        match &column.values {
            Values::Boolean(values) => extremes!(values),
            Values::Int16(values) => extremes!(values),
            Values::Int32(values) => extremes!(values),
            Values::Int64(values) => extremes!(values),
            Values::Int128(values) => {
                for (row, value) in values.iter().enumerate() {
                    match i64::try_from(*value) {
                        _ if column.is_null(row) => {}
                        Ok(value) => self.add(value, value),
                        Err(_) => *self = Self::Any,
                    }
                }
            }
            Values::Bytes(views) if column.null_count() < column.len() => {
                let texts = views.coded().map(|coded| Self::Texts(Arc::clone(coded.texts)));
                self.join(&texts.unwrap_or(Self::Any));
            }
            Values::Bytes(_) => {}
            Values::Float32(_) | Values::Float64(_) => *self = Self::Any,
        }
    }

    #[inline]
    fn add(&mut self, low: i64, high: i64) {
        match self {
            Self::Integers { low: least, high: most } => (*least, *most) = (low.min(*least), high.max(*most)),
            Self::Nothing if low <= high => *self = Self::Integers { low, high },
            Self::Nothing | Self::Any => {}
            Self::Texts(_) => *self = Self::Any,
        }
    }

    pub fn join(&mut self, other: &Self) {
        match (&mut *self, other) {
            (_, Self::Nothing) => {}
            (Self::Nothing, _) => *self = other.clone(),
            (_, Self::Integers { low, high }) => self.add(*low, *high),
            (Self::Texts(own), Self::Texts(texts)) => {
                *self = own.longer(texts).map_or(Self::Any, |longer| Self::Texts(Arc::clone(longer)));
            }
            (_, Self::Texts(_) | Self::Any) => *self = Self::Any,
        }
    }

    /// The least and the largest value, if there are values and all of them are integers of 64 bits.
    pub fn of_integers(&self) -> Option<(i64, i64)> {
        match self {
            Self::Integers { low, high } => Some((*low, *high)),
            Self::Nothing | Self::Texts(_) | Self::Any => None,
        }
    }
}

#[derive(Debug)]
struct Dimension {
    low: i64,
    /// Values, without NULL.
    span: u64,
    factor: u64,
    /// Texts are the numbers that it says.
    texts: Option<Merging>,
}

impl Dimension {
    /// A key column, with numbers in place of texts.
    fn numbered(&self, key: &Column) -> Column {
        let Some(texts) = &self.texts else { return key.clone() };
        let values = Values::Int64(texts.numbers(key).into());
        Column { data_type: DataType::Int64, validity: key.validity.clone(), values }
    }
}

/// How rows get their codes.
#[derive(Debug)]
pub(super) struct CodeSpace {
    dimensions: Box<[Dimension]>,
    null_equal: bool,
    /// All codes are smaller.
    pub domain: u64,
    /// The code of rows without partner.
    pub miss: u64,
}

impl CodeSpace {
    /// `None` if keys are neither integers nor texts of one dictionary, or have too many combinations.
    pub fn new(bounds: &[Bounds], null_equal: bool) -> Option<Self> {
        let mut dimensions = Vec::with_capacity(bounds.len());
        let mut domain = 1_u128;
        for bounds in bounds.iter().rev() {
            let (low, span, texts) = match bounds {
                Bounds::Nothing => (0, 0, None),
                Bounds::Integers { low, high } => (*low, u128::from(high.wrapping_sub(*low) as u64) + 1, None),
                Bounds::Texts(texts) => (0, texts.len() as u128, Some(Merging::new(Arc::clone(texts)))),
                Bounds::Any => return None,
            };
            dimensions.push(Dimension { low, span: u64::try_from(span).ok()?, factor: domain as u64, texts });
            domain *= (span + u128::from(null_equal)).max(1);
            if domain >= u128::from(u64::MAX) {
                return None;
            }
        }
        dimensions.reverse();
        Some(Self { dimensions: dimensions.into(), null_equal, domain: domain as u64, miss: u64::MAX })
    }

    /// With the number behind the last code for rows without partner, so that codes are indexes of arrays.
    pub fn dense(self) -> Self {
        Self { miss: self.domain, ..self }
    }

    /// Whether a key is a text.
    #[cfg(test)]
    pub fn has_texts(&self) -> bool {
        self.dimensions.iter().any(|dimension| dimension.texts.is_some())
    }

    /// Bytes that are taken at most besides, for texts.
    pub fn bytes(&self) -> u64 {
        self.dimensions.iter().filter_map(|dimension| dimension.texts.as_ref()).map(Merging::bytes).sum()
    }

    /// Whether codes have at most 32 bits.
    pub fn is_short(&self) -> bool {
        self.domain <= 1 << 32
    }

    /// The least value, and how many there are from it on, if that is all there is to a code: it counts from there.
    pub fn range(&self) -> Option<(i64, u64)> {
        match &*self.dimensions {
            [only] if only.texts.is_none() => Some((only.low, only.span)),
            _ => None,
        }
    }

    pub fn has_null(&self) -> bool {
        self.null_equal
    }

    /// Whether key columns have values of the right kinds.
    pub fn accepts(&self, keys: &[Column]) -> bool {
        let is_text = |key: &Column| matches!(key.values, Values::Bytes(_));
        let fits = |(key, dimension): (&Column, &Dimension)| dimension.texts.is_none() || is_text(key);
        keys.len() == self.dimensions.len() && keys.iter().zip(&self.dimensions).all(fits)
    }

    /// Codes of the rows of key columns, into `codes`.
    pub fn codes(&self, keys: &[Column], codes: &mut [u64]) {
        let numbered: Vec<Column>;
        let keys = if self.dimensions.iter().any(|dimension| dimension.texts.is_some()) {
            numbered = keys.iter().zip(&self.dimensions).map(|(key, dimension)| dimension.numbered(key)).collect();
            &numbered
        } else {
            keys
        };
        codes.fill(0);
        for (at, (key, dimension)) in keys.iter().zip(&self.dimensions).enumerate() {
            macro_rules! add {
                ($values:expr) => {
                    self.add(at == 0, dimension, codes, $values.iter().map(|value| i64::from(*value)))
                };
            }
            match &key.values {
                Values::Boolean(values) => add!(values),
                Values::Int16(values) => add!(values),
                Values::Int32(values) => add!(values),
                Values::Int64(values) => add!(values),
                Values::Int128(values) => {
                    for (value, code) in values.iter().zip(codes.iter_mut()) {
                        *code = match i64::try_from(*value) {
                            Ok(value) => self.next(dimension, *code, value),
                            Err(_) => self.miss,
                        };
                    }
                }
                Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => codes.fill(self.miss),
            }
            if let Some(valid) = &key.validity {
                // What lies under a NULL has spoilt the code: it is made again from the columns before.
                for row in (0..codes.len()).filter(|row| !valid.get(*row)) {
                    codes[row] = self.code_with_null(keys, at, row);
                }
            }
        }
    }

    #[inline]
    fn next(&self, dimension: &Dimension, code: u64, value: i64) -> u64 {
        let offset = value.wrapping_sub(dimension.low) as u64;
        if offset < dimension.span && code != self.miss { code + offset * dimension.factor } else { self.miss }
    }

    #[inline]
    fn add(&self, first: bool, dimension: &Dimension, codes: &mut [u64], values: impl Iterator<Item = i64>) {
        if first && dimension.factor == 1 {
            // The only one.
            for (code, value) in codes.iter_mut().zip(values) {
                let offset = value.wrapping_sub(dimension.low) as u64;
                *code = if offset < dimension.span { offset } else { self.miss };
            }
        } else {
            for (code, value) in codes.iter_mut().zip(values) {
                *code = self.next(dimension, *code, value);
            }
        }
    }

    /// The code of a row up to column `last`, whose value is NULL.
    fn code_with_null(&self, keys: &[Column], last: usize, row: usize) -> u64 {
        if !self.null_equal {
            return self.miss;
        }
        let mut code = 0;
        for (key, dimension) in keys[..=last].iter().zip(&self.dimensions) {
            let value = match &key.values {
                _ if key.is_null(row) => {
                    code += dimension.span * dimension.factor;
                    continue;
                }
                Values::Boolean(values) => Some(i64::from(values[row])),
                Values::Int16(values) => Some(i64::from(values[row])),
                Values::Int32(values) => Some(i64::from(values[row])),
                Values::Int64(values) => Some(values[row]),
                Values::Int128(values) => i64::try_from(values[row]).ok(),
                Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => None,
            };
            code = value.map_or(self.miss, |value| self.next(dimension, code, value));
            if code == self.miss {
                break;
            }
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_storage::{Batch, Value};

    fn codes(space: &CodeSpace, batch: &Batch) -> Vec<u64> {
        let mut codes = vec![7; batch.rows];
        space.codes(&batch.columns, &mut codes);
        codes
    }

    fn space(batch: &Batch, null_equal: bool) -> Option<CodeSpace> {
        let mut bounds = vec![Bounds::Nothing; batch.columns.len()];
        bounds.iter_mut().zip(&batch.columns).for_each(|(bounds, column)| bounds.extend(column));
        CodeSpace::new(&bounds, null_equal)
    }

    #[test]
    fn equal_codes_are_equal_keys() {
        let types = [DataType::Int32, DataType::Int16, DataType::Decimal { precision: 30, scale: 0 }];
        let mut rows = Vec::new();
        for a in [Value::Null, Value::Int32(-2), Value::Int32(3)] {
            for b in [Value::Int16(10), Value::Null, Value::Int16(11)] {
                for c in [Value::Null, Value::Decimal { unscaled: 5, scale: 0 }] {
                    rows.push(vec![a.clone(), b.clone(), c]);
                }
            }
        }
        let batch = Batch::from_rows(&types, &rows);
        let equal = space(&batch, true).unwrap();
        let mut found = codes(&equal, &batch);
        assert!(equal.domain == 7 * 3 * 2 && found.iter().all(|code| *code < equal.domain));
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), rows.len());
        let different = space(&batch, false).unwrap().dense();
        assert_eq!(different.domain, 6 * 2);
        for (row, code) in codes(&different, &batch).into_iter().enumerate() {
            assert_eq!(code == different.miss, rows[row].contains(&Value::Null), "{:?}", rows[row]);
        }
        let outside = [Value::Int32(4), Value::Int16(10), Value::Decimal { unscaled: 5, scale: 0 }];
        let huge = [Value::Int32(3), Value::Int16(10), Value::Decimal { unscaled: 1 << 90, scale: 0 }];
        let outside = Batch::from_rows(&types, &[outside.to_vec(), huge.to_vec()]);
        assert_eq!(codes(&different, &outside), [different.miss; 2]);
    }

    #[test]
    fn extreme_integers_and_too_many_combinations() {
        let both = Batch::from_rows(&[DataType::Int64], &[vec![Value::Int64(i64::MIN)], vec![Value::Int64(i64::MAX)]]);
        assert!(space(&both, false).is_none());
        let wide = [vec![Value::Int64(0), Value::Int64(0)], vec![Value::Int64(1 << 40), Value::Int64(1 << 40)]];
        assert!(space(&Batch::from_rows(&[DataType::Int64, DataType::Int64], &wide), false).is_none());
        let none = space(&Batch::empty(&[DataType::Int64]), false).unwrap().dense();
        assert_eq!(codes(&none, &both), [none.miss; 2]);
    }
}
