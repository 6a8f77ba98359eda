//! One attribute's values of a batch.

use super::bitmap::Bitmap;
use super::buffer::Buffer;
use super::builder::ColumnBuilder;
use super::coded::CodedTexts;
use super::view::{BytesView, ColumnView, ValidityView, ValuesView};
use super::views::{VIEW_INLINE_MAX, Views};
use crate::types::{DataType, Physical};
use crate::value::Value;
use eris_platform::{Arena, MemoryExceeded};
use std::sync::Arc;

/// The values, by their physical type.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// 0 or 1 each.
    Boolean(Buffer<u8>),
    Int16(Buffer<i16>),
    Int32(Buffer<i32>),
    Int64(Buffer<i64>),
    Int128(Buffer<i128>),
    Float32(Buffer<f32>),
    Float64(Buffer<f64>),
    Bytes(Views),
}

/// Values, and which of them are not NULL (no bitmap: all of them).
#[derive(Clone, Debug)]
pub struct Column {
    pub data_type: DataType,
    pub validity: Option<Bitmap>,
    pub values: Values,
}

/// Runs the same expression on whichever buffer a `Values` holds.
macro_rules! each_buffer {
    ($values:expr, $buffer:ident => $fixed:expr, $views:ident => $variable:expr) => {
        match $values {
            Values::Boolean($buffer) => $fixed,
            Values::Int16($buffer) => $fixed,
            Values::Int32($buffer) => $fixed,
            Values::Int64($buffer) => $fixed,
            Values::Int128($buffer) => $fixed,
            Values::Float32($buffer) => $fixed,
            Values::Float64($buffer) => $fixed,
            Values::Bytes($views) => $variable,
        }
    };
}

fn take_buffer<T: Copy + Send + Sync + 'static>(buffer: &Buffer<T>, rows: &[u32]) -> Buffer<T> {
    rows.iter().map(|row| buffer[*row as usize]).collect()
}

impl Values {
    /// How many.
    pub fn len(&self) -> usize {
        each_buffer!(self, buffer => buffer.len(), views => views.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The physical type.
    pub fn physical(&self) -> Physical {
        match self {
            Self::Boolean(_) => Physical::Boolean,
            Self::Int16(_) => Physical::Int16,
            Self::Int32(_) => Physical::Int32,
            Self::Int64(_) => Physical::Int64,
            Self::Int128(_) => Physical::Int128,
            Self::Float32(_) => Physical::Float32,
            Self::Float64(_) => Physical::Float64,
            Self::Bytes(_) => Physical::Bytes,
        }
    }

    fn slice(&self, start: usize, len: usize) -> Self {
        let range = start..start + len;
        match self {
            Self::Boolean(buffer) => Self::Boolean(buffer.slice(range)),
            Self::Int16(buffer) => Self::Int16(buffer.slice(range)),
            Self::Int32(buffer) => Self::Int32(buffer.slice(range)),
            Self::Int64(buffer) => Self::Int64(buffer.slice(range)),
            Self::Int128(buffer) => Self::Int128(buffer.slice(range)),
            Self::Float32(buffer) => Self::Float32(buffer.slice(range)),
            Self::Float64(buffer) => Self::Float64(buffer.slice(range)),
            Self::Bytes(views) => Self::Bytes(Views { views: views.views.slice(range), data: views.data.clone() }),
        }
    }

    fn take(&self, rows: &[u32]) -> Self {
        match self {
            Self::Boolean(buffer) => Self::Boolean(take_buffer(buffer, rows)),
            Self::Int16(buffer) => Self::Int16(take_buffer(buffer, rows)),
            Self::Int32(buffer) => Self::Int32(take_buffer(buffer, rows)),
            Self::Int64(buffer) => Self::Int64(take_buffer(buffer, rows)),
            Self::Int128(buffer) => Self::Int128(take_buffer(buffer, rows)),
            Self::Float32(buffer) => Self::Float32(take_buffer(buffer, rows)),
            Self::Float64(buffer) => Self::Float64(take_buffer(buffer, rows)),
            Self::Bytes(views) => Self::Bytes(views.take(rows)),
        }
    }
}

impl Values {
    /// A copy in the memory of `arena`, and the bytes it takes there.
    fn placed(&self, arena: &Arena) -> Result<(Self, u64), MemoryExceeded> {
        macro_rules! fixed {
            ($variant:ident, $buffer:expr) => {
                $buffer.placed(arena).map(|(buffer, taken)| (Self::$variant(buffer), taken))
            };
        }
        match self {
            Self::Boolean(buffer) => fixed!(Boolean, buffer),
            Self::Int16(buffer) => fixed!(Int16, buffer),
            Self::Int32(buffer) => fixed!(Int32, buffer),
            Self::Int64(buffer) => fixed!(Int64, buffer),
            Self::Int128(buffer) => fixed!(Int128, buffer),
            Self::Float32(buffer) => fixed!(Float32, buffer),
            Self::Float64(buffer) => fixed!(Float64, buffer),
            Self::Bytes(views) => {
                let (placed, mut taken) = views.views.placed(arena)?;
                let data: Vec<_> = views.data.iter().map(|data| data.placed(arena)).collect::<Result<_, _>>()?;
                taken += data.iter().map(|(_, taken)| taken).sum::<u64>();
                let data: Arc<[Buffer<u8>]> = data.into_iter().map(|(data, _)| data).collect();
                Ok((Self::Bytes(Views { views: placed.into(), data }), taken))
            }
        }
    }
}

impl Column {
    /// A copy of the column in the memory of `arena`, and the bytes it takes there; if they are refused, nothing is
    /// kept.
    pub fn placed(&self, arena: &Arena) -> Result<(Self, u64), MemoryExceeded> {
        let (values, mut taken) = self.values.placed(arena)?;
        let validity = match &self.validity {
            Some(validity) => {
                let (bytes, offset) = validity.buffer();
                let (bytes, more) = bytes.placed(arena)?;
                taken += more;
                Some(Bitmap::new(bytes, offset, validity.len()))
            }
            None => None,
        };
        Ok((Self { data_type: self.data_type, validity, values }, taken))
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the value of `row` is NULL.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.validity.as_ref().is_some_and(|validity| !validity.get(row))
    }

    /// How many values are NULL.
    pub fn null_count(&self) -> usize {
        self.validity.as_ref().map_or(0, Bitmap::count_zeros)
    }

    /// The value of `row`, copied out.
    ///
    /// # Panics
    /// If there is no such row, or the buffer is not of the type the column claims.
    pub fn value(&self, row: usize) -> Value {
        if self.is_null(row) {
            return Value::Null;
        }
        match (&self.values, self.data_type) {
            (Values::Boolean(buffer), _) => Value::Boolean(buffer[row] != 0),
            (Values::Int16(buffer), _) => Value::Int16(buffer[row]),
            (Values::Int32(buffer), DataType::Date) => Value::Date(buffer[row]),
            (Values::Int32(buffer), _) => Value::Int32(buffer[row]),
            (Values::Int64(buffer), DataType::Timestamp) => Value::Timestamp(buffer[row]),
            (Values::Int64(buffer), DataType::Decimal { scale, .. }) => {
                Value::Decimal { unscaled: i128::from(buffer[row]), scale }
            }
            (Values::Int64(buffer), _) => Value::Int64(buffer[row]),
            (Values::Int128(buffer), DataType::Decimal { scale, .. }) => {
                Value::Decimal { unscaled: buffer[row], scale }
            }
            (Values::Int128(_), other) => unreachable!("128-bit values are decimals, not {other}"),
            (Values::Float32(buffer), _) => Value::Float32(buffer[row]),
            (Values::Float64(buffer), _) => Value::Float64(buffer[row]),
            (Values::Bytes(views), DataType::Text) => {
                Value::Text(String::from_utf8_lossy(views.get(row)).into_owned().into_boxed_str())
            }
            (Values::Bytes(views), _) => Value::Bytes(views.get(row).into()),
        }
    }

    /// `len` rows from `start`, sharing the memory.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> Self {
        let validity = self.validity.as_ref().map(|validity| validity.slice(start, len));
        Self { data_type: self.data_type, validity, values: self.values.slice(start, len) }
    }

    /// The rows at `rows`, in that order, copied; the data of long values is shared.
    #[must_use]
    pub fn take(&self, rows: &[u32]) -> Self {
        let validity =
            self.validity.as_ref().map(|validity| rows.iter().map(|row| validity.get(*row as usize)).collect());
        Self { data_type: self.data_type, validity, values: self.values.take(rows) }
    }

    /// The same with the data of long values, too, which [`take`](Self::take) shares: keeps nothing of the others.
    #[must_use]
    pub fn take_alone(&self, rows: &[u32]) -> Self {
        let mut builder = ColumnBuilder::with_capacity(self.data_type, rows.len());
        builder.extend_taken(self, rows);
        builder.finish()
    }

    /// All rows of all parts, in order.
    ///
    /// # Panics
    /// If there are no parts or their types differ.
    #[must_use]
    pub fn concat(parts: &[Self]) -> Self {
        assert!(!parts.is_empty(), "concatenating no columns has no type");
        if let [only] = parts {
            return only.clone();
        }
        let rows = parts.iter().map(Self::len).sum();
        let mut builder = ColumnBuilder::with_capacity(parts[0].data_type, rows);
        for part in parts {
            builder.extend(part, 0..part.len());
        }
        builder.finish()
    }

    /// Memory of the column's values in bytes. Of data buffers only what these values use is counted: the rest belongs
    /// to those they are shared with.
    pub fn bytes(&self) -> usize {
        let validity = self.validity.as_ref().map_or(0, |validity| validity.len().div_ceil(8));
        validity + each_buffer!(&self.values, buffer => buffer.bytes(), views => views.bytes())
    }

    /// A borrowed look, the same as for a column that still grows.
    pub(crate) fn view(&self) -> ColumnView<'_> {
        let validity = self.validity.as_ref().map_or(ValidityView::All, |validity| {
            let (bytes, offset) = validity.buffer();
            ValidityView::Bits { bytes, offset }
        });
        let values = match &self.values {
            Values::Boolean(buffer) => ValuesView::Boolean(buffer),
            Values::Int16(buffer) => ValuesView::Int16(buffer),
            Values::Int32(buffer) => ValuesView::Int32(buffer),
            Values::Int64(buffer) => ValuesView::Int64(buffer),
            Values::Int128(buffer) => ValuesView::Int128(buffer),
            Values::Float32(buffer) => ValuesView::Float32(buffer),
            Values::Float64(buffer) => ValuesView::Float64(buffer),
            Values::Bytes(views) => {
                ValuesView::Bytes(BytesView { views: &views.views, data: &views.data, current: &[] })
            }
        };
        ColumnView { data_type: self.data_type, validity, values }
    }

    /// The texts by their ids in a dictionary, if they come from one.
    pub fn coded(&self) -> Option<CodedTexts<'_>> {
        match &self.values {
            Values::Bytes(views) => views.coded(),
            _ => None,
        }
    }

    /// The same column without ids of a dictionary: every value is looked up there.
    #[must_use]
    pub fn looked_up(self) -> Self {
        match self.values {
            Values::Bytes(views) => Self { values: Values::Bytes(views.looked_up()), ..self },
            _ => self,
        }
    }

    /// A column of one value repeated.
    pub fn constant(data_type: DataType, value: &Value, rows: usize) -> Self {
        let is_long = match value {
            Value::Text(text) => text.len() > VIEW_INLINE_MAX,
            Value::Bytes(bytes) => bytes.len() > VIEW_INLINE_MAX,
            _ => false,
        };
        if is_long && rows > 1 {
            return Self::constant(data_type, value, 1).take(&vec![0; rows]);
        }
        let mut builder = ColumnBuilder::with_capacity(data_type, rows);
        for _ in 0..rows {
            builder.push(value);
        }
        builder.finish()
    }

    /// The same column without its validity bitmap if no value is NULL.
    #[must_use]
    pub fn without_idle_validity(mut self) -> Self {
        if self.validity.as_ref().is_some_and(|validity| validity.count_zeros() == 0) {
            self.validity = None;
        }
        self
    }
}

/// Equal values; what lies under a NULL does not matter.
impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.data_type == other.data_type
            && self.len() == other.len()
            && (0..self.len()).all(|row| self.value(row) == other.value(row))
    }
}

#[cfg(test)]
mod tests {
    use super::super::views::{data_view, inline_view};
    use super::*;

    #[test]
    fn a_long_constant_is_there_once() {
        let value = Value::Text("x".repeat(1_000).into());
        let column = Column::constant(DataType::Text, &value, 5_000);
        assert_eq!((column.len(), column.value(4_999)), (5_000, value));
        let Values::Bytes(views) = &column.values else { panic!("a text") };
        assert_eq!(views.data.iter().map(|data| data.len()).sum::<usize>(), 1_000);
        assert_eq!(Column::constant(DataType::Text, &Value::Text("x".repeat(1_000).into()), 0).len(), 0);
    }

    #[test]
    fn what_lies_under_a_null_is_not_read() {
        // A long text in a buffer that is not there.
        let views: Buffer<u128> = vec![inline_view(b"a"), data_view(&[b'x'; 20], 7, 0)].into();
        let values = Values::Bytes(Views { views: views.into(), data: Arc::default() });
        let validity = Some(Bitmap::new(vec![0b01].into(), 0, 2));
        let column = Column { data_type: DataType::Text, validity, values };
        let twice = Column::concat(&[column.clone(), column]);
        let values: Vec<Value> = (0..4).map(|row| twice.value(row)).collect();
        assert_eq!(values, [Value::Text("a".into()), Value::Null, Value::Text("a".into()), Value::Null]);
    }
}
