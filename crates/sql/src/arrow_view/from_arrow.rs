//! Arrow's arrays as our columns.

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch};
use datafusion::arrow::buffer::{Buffer as ArrowBuffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    ArrowNativeType, DataType as ArrowType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimestampMicrosecondType,
};
use datafusion::arrow::util::display::FormatOptions;
use eris_storage::{Batch, Bitmap, Buffer, Column, DataType, Physical, Values, Views};

use super::types::arrow_type;
use crate::errors::SqlError;
use crate::pg_format::pack_interval;
use crate::types::SqlType;

/// What does not fit is an error, not NULL.
const CHECKED: CastOptions<'static> = CastOptions { safe: false, format_options: FormatOptions::new() };

/// Lets an Arrow buffer be the owner of ours.
struct Shared<T: ArrowNativeType>(ScalarBuffer<T>);

impl<T: ArrowNativeType> AsRef<[T]> for Shared<T> {
    fn as_ref(&self) -> &[T] {
        &self.0
    }
}

struct SharedBytes(ArrowBuffer);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn shared<T: ArrowNativeType + Copy + Send + Sync>(values: &ScalarBuffer<T>) -> Buffer<T> {
    Buffer::from_owner(Shared(values.clone()))
}

fn validity(nulls: Option<&NullBuffer>) -> Option<Bitmap> {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0)?;
    let bits = nulls.inner();
    Some(Bitmap::new(Buffer::from_owner(SharedBytes(bits.inner().clone())), bits.offset(), bits.len()))
}

fn primitive<T: ArrowPrimitiveType>(array: &dyn Array) -> Result<&PrimitiveArray<T>, SqlError> {
    array.as_primitive_opt::<T>().ok_or_else(|| SqlError::internal(format!("an array of {}", array.data_type())))
}

/// One column as a column of the SQL type's storage type. Other Arrow types are cast first; what does not fit is an
/// error.
pub fn column_from_arrow(array: &ArrayRef, sql_type: SqlType) -> Result<Column, SqlError> {
    let data_type = sql_type.data_type();
    if sql_type == SqlType::Interval {
        return intervals(array, data_type);
    }
    let wanted = arrow_type(data_type);
    let array = if *array.data_type() == wanted {
        array.clone()
    } else {
        cast_with_options(array, &wanted, &CHECKED).map_err(|error| crate::plan::arrow_error(&error))?
    };
    let validity = validity(array.nulls());
    let values = match (data_type, data_type.physical()) {
        (DataType::Boolean, _) => {
            let bits = array.as_boolean_opt().ok_or_else(|| SqlError::internal("not a boolean array"))?.values();
            Values::Boolean(bits.iter().map(u8::from).collect())
        }
        (DataType::Int16, _) => Values::Int16(shared(primitive::<Int16Type>(&array)?.values())),
        (DataType::Int32, _) => Values::Int32(shared(primitive::<Int32Type>(&array)?.values())),
        (DataType::Date, _) => Values::Int32(shared(primitive::<Date32Type>(&array)?.values())),
        (DataType::Int64, _) => Values::Int64(shared(primitive::<Int64Type>(&array)?.values())),
        (DataType::Timestamp, _) => Values::Int64(shared(primitive::<TimestampMicrosecondType>(&array)?.values())),
        (DataType::Float32, _) => Values::Float32(shared(primitive::<Float32Type>(&array)?.values())),
        (DataType::Float64, _) => Values::Float64(shared(primitive::<Float64Type>(&array)?.values())),
        (DataType::Decimal { .. }, Physical::Int64) => {
            let wide = primitive::<Decimal128Type>(&array)?;
            let mut narrow = Vec::with_capacity(wide.len());
            for (row, value) in wide.values().iter().enumerate() {
                match i64::try_from(*value) {
                    Ok(value) => narrow.push(value),
                    Err(_) if wide.is_null(row) => narrow.push(0),
                    Err(_) => return Err(SqlError::out_of_range(&sql_type.to_string())),
                }
            }
            Values::Int64(narrow.into())
        }
        (DataType::Decimal { .. }, _) => Values::Int128(shared(primitive::<Decimal128Type>(&array)?.values())),
        (DataType::Text, _) => {
            let views = array.as_string_view_opt().ok_or_else(|| SqlError::internal("not a text array"))?;
            Values::Bytes(views_of(views.views(), views.data_buffers()))
        }
        (DataType::Bytes, _) => {
            let views = array.as_binary_view_opt().ok_or_else(|| SqlError::internal("not a bytea array"))?;
            Values::Bytes(views_of(views.views(), views.data_buffers()))
        }
    };
    Ok(Column { data_type, validity, values })
}

fn views_of(views: &ScalarBuffer<u128>, data: &[ArrowBuffer]) -> Views {
    Views {
        views: shared(views).into(),
        data: data.iter().map(|buffer| Buffer::from_owner(SharedBytes(buffer.clone()))).collect(),
    }
}

fn intervals(array: &ArrayRef, data_type: DataType) -> Result<Column, SqlError> {
    let wanted = ArrowType::Interval(IntervalUnit::MonthDayNano);
    let array = if *array.data_type() == wanted {
        array.clone()
    } else {
        cast_with_options(array, &wanted, &CHECKED).map_err(|error| crate::plan::arrow_error(&error))?
    };
    let values = primitive::<IntervalMonthDayNanoType>(&array)?;
    let packed: Buffer<i128> = values
        .values()
        .iter()
        .map(|value| pack_interval(value.months, value.days, value.nanoseconds / 1_000))
        .collect();
    Ok(Column { data_type, validity: validity(array.nulls()), values: Values::Int128(packed) })
}

/// A whole batch; `types` are the SQL types of its columns.
pub fn batch_from_arrow(batch: &RecordBatch, types: &[SqlType]) -> Result<Batch, SqlError> {
    assert_eq!(batch.num_columns(), types.len(), "a result has the columns it was described with");
    let columns = batch
        .columns()
        .iter()
        .zip(types)
        .map(|(array, sql_type)| column_from_arrow(array, *sql_type))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Batch::new(columns, batch.num_rows()))
}
