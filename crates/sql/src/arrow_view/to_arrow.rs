//! Our batches as Arrow's.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer as ArrowBuffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{ArrowNativeType, DataType as ArrowType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use eris_storage::{Batch, Bitmap, Buffer, Column, DataType, Values, Views};

/// Keeps our buffer's memory alive from inside Arrow's. Arrow asks for unwind safety because it drops owners anywhere;
/// an owner here is immutable memory, which a panic cannot leave half-changed.
struct Owner {
    _memory: AssertUnwindSafe<Arc<dyn Any + Send + Sync>>,
}

fn share<T: Copy + Send + Sync + 'static>(buffer: &Buffer<T>) -> ArrowBuffer {
    let bytes = buffer.bytes();
    if bytes == 0 {
        return ArrowBuffer::from_vec(Vec::<u8>::new());
    }
    let start = NonNull::from(&buffer[0]).cast::<u8>();
    let owner = Arc::new(Owner { _memory: AssertUnwindSafe(buffer.owner()) });
    // SAFETY: `start..start + bytes` is the buffer's run, which its owner keeps alive and nobody writes; the owner
    // lives as long as the Arrow buffer.
    unsafe { ArrowBuffer::from_custom_allocation(start, bytes, owner) }
}

/// A typed view; memory that is not aligned for Arrow is copied.
fn scalars<T: ArrowNativeType + Copy + Send + Sync>(buffer: &Buffer<T>) -> ScalarBuffer<T> {
    if buffer.is_empty() || buffer.as_ptr().align_offset(align_of::<T>()) != 0 {
        return ScalarBuffer::from(buffer.to_vec());
    }
    ScalarBuffer::new(share(buffer), 0, buffer.len())
}

fn nulls(validity: Option<&Bitmap>) -> Option<NullBuffer> {
    let bitmap = validity?;
    let (bytes, offset) = bitmap.buffer();
    Some(NullBuffer::new(BooleanBuffer::new(share(bytes), offset, bitmap.len())))
}

fn shared_views(views: &Views) -> (ScalarBuffer<u128>, Arc<[ArrowBuffer]>) {
    (scalars(&views.views), views.data.iter().map(share).collect())
}

/// One column.
pub fn column_to_arrow(column: &Column) -> ArrayRef {
    let nulls = nulls(column.validity.as_ref());
    match (&column.values, column.data_type) {
        (Values::Boolean(values), _) => {
            Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(values.len(), |row| values[row] != 0), nulls))
        }
        (Values::Int16(values), _) => Arc::new(Int16Array::new(scalars(values), nulls)),
        (Values::Int32(values), DataType::Date) => Arc::new(Date32Array::new(scalars(values), nulls)),
        (Values::Int32(values), _) => Arc::new(Int32Array::new(scalars(values), nulls)),
        (Values::Int64(values), DataType::Timestamp) => {
            Arc::new(TimestampMicrosecondArray::new(scalars(values), nulls))
        }
        (Values::Int64(values), DataType::Decimal { precision, scale }) => {
            let wide: Vec<i128> = values.iter().map(|value| i128::from(*value)).collect();
            Arc::new(decimals(wide.into(), nulls, precision, scale))
        }
        (Values::Int64(values), _) => Arc::new(Int64Array::new(scalars(values), nulls)),
        (Values::Int128(values), data_type) => {
            let (precision, scale) = match data_type {
                DataType::Decimal { precision, scale } => (precision, scale),
                _ => (38, 0),
            };
            Arc::new(decimals(scalars(values), nulls, precision, scale))
        }
        (Values::Float32(values), _) => Arc::new(Float32Array::new(scalars(values), nulls)),
        (Values::Float64(values), _) => Arc::new(Float64Array::new(scalars(values), nulls)),
        (Values::Bytes(views), DataType::Bytes) => {
            let (views, data) = shared_views(views);
            // SAFETY: our views have Arrow's layout, and every view lies within its data buffer; storage asserts both
            // when it builds them.
            Arc::new(unsafe { BinaryViewArray::new_unchecked(views, data, nulls) })
        }
        (Values::Bytes(views), _) => {
            let (views, data) = shared_views(views);
            // SAFETY: as above, and text enters a batch only from `str`.
            Arc::new(unsafe { StringViewArray::new_unchecked(views, data, nulls) })
        }
    }
}

fn decimals(values: ScalarBuffer<i128>, nulls: Option<NullBuffer>, precision: u8, scale: u8) -> Decimal128Array {
    // Only the precision and scale are checked here, not the values: storage checked those when they came in.
    let array = Decimal128Array::new(values, nulls);
    array.clone().with_precision_and_scale(precision, scale as i8).unwrap_or(array)
}

/// A column as a schema describes it: Arrow has three kinds of text, we have one; and its numbers of grouping sets have
/// no sign.
pub fn column_to_arrow_as(column: &Column, data_type: &ArrowType) -> Result<ArrayRef, ArrowError> {
    let array = column_to_arrow(column);
    match data_type {
        ArrowType::Utf8
        | ArrowType::LargeUtf8
        | ArrowType::Binary
        | ArrowType::LargeBinary
        | ArrowType::UInt8
        | ArrowType::UInt16
        | ArrowType::UInt32
        | ArrowType::UInt64 => cast(&array, data_type),
        _ => Ok(array),
    }
}

/// A whole batch under a schema with the same columns.
pub fn batch_to_arrow(batch: &Batch, schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns.iter().zip(schema.fields());
    let columns =
        columns.map(|(column, field)| column_to_arrow_as(column, field.data_type())).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
}
