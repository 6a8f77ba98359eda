//! Puts a column together from results for disjoint sets of its rows.

use std::sync::Arc;

use eris_storage::{Buffer, Column, DataType, Physical, VIEW_INLINE_MAX, Value, Values, Views};

use super::Datum;
use super::bits;
use super::texts;
use crate::arithmetic::decimals::in_full_width;
use crate::arithmetic::rescale;
use crate::error::OperatorError;

/// A result for some rows: a value for each of them, in their order, or one for all.
#[derive(Debug)]
pub(super) struct Piece {
    pub rows: Vec<u32>,
    pub result: Datum,
}

/// Something with a slot in `Values`.
pub(super) trait Fixed: Copy + Default + Send + Sync + 'static {
    /// A column's values.
    fn values(values: &Values) -> Option<&[Self]>;
    /// The number that a value is in a column of this type.
    fn value(value: &Value, data_type: DataType) -> Option<Self>;
    /// As a column's values.
    fn wrap(values: Vec<Self>) -> Values;
}

macro_rules! fixed {
    ($($native:ty, $variant:ident, $value:ident, $data_type:ident => $of_value:expr;)*) => {$(
        impl Fixed for $native {
            fn values(values: &Values) -> Option<&[Self]> {
                match values {
                    Values::$variant(values) => Some(values),
                    _ => None,
                }
            }
            fn value($value: &Value, $data_type: DataType) -> Option<Self> {
                $of_value
            }
            fn wrap(values: Vec<Self>) -> Values {
                Values::$variant(values.into())
            }
        }
    )*};
}

fixed! {
    u8, Boolean, value, _data_type => match value {
        Value::Boolean(value) => Some(u8::from(*value)),
        _ => None,
    };
    i16, Int16, value, _data_type => match value {
        Value::Int16(value) => Some(*value),
        _ => None,
    };
    i32, Int32, value, _data_type => match value {
        Value::Int32(value) | Value::Date(value) => Some(*value),
        _ => None,
    };
    i64, Int64, value, data_type => match value {
        Value::Int64(value) | Value::Timestamp(value) => Some(*value),
        other => unscaled(other, data_type).and_then(|value| i64::try_from(value).ok()),
    };
    i128, Int128, value, data_type => unscaled(value, data_type);
    f32, Float32, value, _data_type => match value {
        Value::Float32(value) => Some(*value),
        _ => None,
    };
    f64, Float64, value, _data_type => match value {
        Value::Float64(value) => Some(*value),
        _ => None,
    };
}

/// A decimal at the scale of a type.
fn unscaled(value: &Value, data_type: DataType) -> Option<i128> {
    match (value, data_type) {
        (Value::Decimal { unscaled, scale }, DataType::Decimal { scale: wanted, .. }) => {
            rescale(*unscaled, *scale, wanted)
        }
        _ => None,
    }
}

/// Whether 64 bits hold all decimals of the pieces.
fn fits_64_bits(pieces: &[Piece], data_type: DataType) -> bool {
    pieces.iter().all(|piece| match &piece.result {
        Datum::Column(column) => matches!(column.values, Values::Int64(_)),
        Datum::Constant(value) => value.is_null() || <i64 as Fixed>::value(value, data_type).is_some(),
    })
}

/// The physical type that the pieces of a type are merged in: decimals stay narrow if all are.
pub(super) fn physical_of(pieces: &[Piece], data_type: DataType) -> Physical {
    match data_type.physical() {
        Physical::Int128 if fits_64_bits(pieces, data_type) => Physical::Int64,
        other => other,
    }
}

/// A column of `rows` rows; those in no piece are NULL.
pub(super) fn merge(mut pieces: Vec<Piece>, data_type: DataType, rows: usize) -> Result<Column, OperatorError> {
    let physical = physical_of(&pieces, data_type);
    if physical == Physical::Int128 {
        for piece in &mut pieces {
            if let Datum::Column(column) = &mut piece.result {
                *column = in_full_width(column.clone());
            }
        }
    }
    let mut valid = vec![0; rows];
    let values = match physical {
        Physical::Boolean => scatter::<u8>(&pieces, data_type, &mut valid)?,
        Physical::Int16 => scatter::<i16>(&pieces, data_type, &mut valid)?,
        Physical::Int32 => scatter::<i32>(&pieces, data_type, &mut valid)?,
        Physical::Int64 => scatter::<i64>(&pieces, data_type, &mut valid)?,
        Physical::Int128 => scatter::<i128>(&pieces, data_type, &mut valid)?,
        Physical::Float32 => scatter::<f32>(&pieces, data_type, &mut valid)?,
        Physical::Float64 => scatter::<f64>(&pieces, data_type, &mut valid)?,
        Physical::Bytes => scatter_texts(pieces, data_type, &mut valid)?,
    };
    let validity = valid.contains(&0).then(|| bits::bitmap_of(&valid));
    Ok(Column { data_type, validity, values })
}

fn wrong(piece: &Piece, data_type: DataType) -> OperatorError {
    OperatorError::Internal(format!("{:?} among values of {data_type}", piece.result))
}

/// Notes which rows of a piece have a value.
fn note_valid(piece: &Piece, column: &Column, valid: &mut [u8]) {
    for (at, row) in piece.rows.iter().enumerate() {
        valid[*row as usize] = u8::from(!column.is_null(at));
    }
}

fn scatter<T: Fixed>(pieces: &[Piece], data_type: DataType, valid: &mut [u8]) -> Result<Values, OperatorError> {
    let mut out = vec![T::default(); valid.len()];
    for piece in pieces {
        match &piece.result {
            Datum::Constant(Value::Null) => {}
            Datum::Constant(value) => {
                let value = T::value(value, data_type).ok_or_else(|| wrong(piece, data_type))?;
                for row in &piece.rows {
                    out[*row as usize] = value;
                    valid[*row as usize] = 1;
                }
            }
            Datum::Column(column) => {
                let values = T::values(&column.values).ok_or_else(|| wrong(piece, data_type))?;
                for (row, value) in piece.rows.iter().zip(values) {
                    out[*row as usize] = *value;
                }
                note_valid(piece, column, valid);
            }
        }
    }
    Ok(T::wrap(out))
}

/// Texts keep their data; views are told where it is now.
fn scatter_texts(pieces: Vec<Piece>, data_type: DataType, valid: &mut [u8]) -> Result<Values, OperatorError> {
    let mut out = vec![0_u128; valid.len()];
    let mut data: Vec<Buffer<u8>> = Vec::new();
    let mut last: Option<(Arc<[Buffer<u8>]>, u128)> = None;
    for mut piece in pieces {
        let constant = match &piece.result {
            Datum::Constant(Value::Null) => continue,
            Datum::Constant(value) => {
                let column = Column::constant(data_type, value, 1);
                piece.result = Datum::Column(column);
                true
            }
            Datum::Column(_) => false,
        };
        let Datum::Column(column) = &piece.result else { return Err(wrong(&piece, data_type)) };
        let Values::Bytes(views) = &column.values else { return Err(wrong(&piece, data_type)) };
        let base = match &last {
            Some((known, base)) if Arc::ptr_eq(known, &views.data) => *base,
            _ => {
                let base = data.len() as u128;
                data.extend(views.data.iter().cloned());
                last = Some((Arc::clone(&views.data), base));
                base
            }
        };
        let moved = |view: u128| if texts::len_of(view) <= VIEW_INLINE_MAX { view } else { view + (base << 64) };
        for (at, row) in piece.rows.iter().enumerate() {
            out[*row as usize] = moved(views.views[if constant { 0 } else { at }]);
        }
        if constant {
            piece.rows.iter().for_each(|row| valid[*row as usize] = 1);
        } else {
            note_valid(&piece, column, valid);
        }
    }
    Ok(Values::Bytes(Views { views: out.into(), data: data.into() }))
}
