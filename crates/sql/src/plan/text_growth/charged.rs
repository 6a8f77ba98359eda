//! Texts that keep what they take reserved as long as they are there.

use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, GenericByteArray, GenericByteViewArray, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, DataType as ArrowType, LargeBinaryType, LargeUtf8Type,
    StringViewType, Utf8Type,
};
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};

use super::reserve;

/// Results of at least so many bytes stay reserved. Smaller ones are accounted for by the operator that holds them, as
/// every batch is. It accounts for larger ones, too, which then count twice.
const CHARGED_BYTES_MIN: usize = 1 << 20;

/// The memory of a buffer and what is reserved for it. Arrow asks for unwind safety because it drops owners anywhere;
/// an owner here is immutable memory, which a panic cannot leave half-changed.
struct Owner {
    _memory: AssertUnwindSafe<Buffer>,
    _charge: AssertUnwindSafe<Arc<MemoryReservation>>,
}

fn owning(buffer: &Buffer, charge: &Arc<MemoryReservation>) -> Buffer {
    if buffer.is_empty() {
        return buffer.clone();
    }
    let start = NonNull::from(&buffer[0]);
    let owner = Owner { _memory: AssertUnwindSafe(buffer.clone()), _charge: AssertUnwindSafe(Arc::clone(charge)) };
    // SAFETY: `start` is the first of the buffer's `len` bytes, which the buffer in the owner keeps alive and nobody
    // writes; the owner lives as long as the new buffer.
    unsafe { Buffer::from_custom_allocation(start, buffer.len(), Arc::new(owner)) }
}

fn with_views<T: ByteViewType>(array: &GenericByteViewArray<T>, charge: &Arc<MemoryReservation>) -> ArrayRef {
    let (views, buffers, nulls) = array.clone().into_parts();
    let buffers: Vec<Buffer> = buffers.iter().map(|buffer| owning(buffer, charge)).collect();
    // SAFETY: the same views over the same bytes.
    Arc::new(unsafe { GenericByteViewArray::<T>::new_unchecked(views, buffers, nulls) })
}

fn with_offsets<T: ByteArrayType>(array: &GenericByteArray<T>, charge: &Arc<MemoryReservation>) -> ArrayRef {
    let (offsets, values, nulls) = array.clone().into_parts();
    // SAFETY: the same offsets over the same bytes.
    Arc::new(unsafe { GenericByteArray::<T>::new_unchecked(offsets, owning(&values, charge), nulls) })
}

/// What the texts of an array take.
pub(super) fn data_bytes(array: &ArrayRef) -> usize {
    match array.data_type() {
        ArrowType::Utf8View => array.as_string_view().data_buffers().iter().map(Buffer::len).sum(),
        ArrowType::BinaryView => array.as_binary_view().data_buffers().iter().map(Buffer::len).sum(),
        ArrowType::Utf8 => array.as_bytes::<Utf8Type>().values().len(),
        ArrowType::LargeUtf8 => array.as_bytes::<LargeUtf8Type>().values().len(),
        ArrowType::Binary => array.as_bytes::<BinaryType>().values().len(),
        ArrowType::LargeBinary => array.as_bytes::<LargeBinaryType>().values().len(),
        _ => 0,
    }
}

/// An array that was just made, with what is reserved for it; a small one gives that back.
pub(super) fn charged(array: ArrayRef, reservation: MemoryReservation) -> ArrayRef {
    let bytes = data_bytes(&array);
    if bytes < CHARGED_BYTES_MIN {
        return array;
    }
    // What it takes more than was told is there already.
    reservation.resize(bytes);
    let charge = Arc::new(reservation);
    match array.data_type() {
        ArrowType::Utf8View => with_views::<StringViewType>(array.as_string_view(), &charge),
        ArrowType::BinaryView => with_views::<BinaryViewType>(array.as_binary_view(), &charge),
        ArrowType::Utf8 => with_offsets::<Utf8Type>(array.as_bytes(), &charge),
        ArrowType::LargeUtf8 => with_offsets::<LargeUtf8Type>(array.as_bytes(), &charge),
        ArrowType::Binary => with_offsets::<BinaryType>(array.as_bytes(), &charge),
        ArrowType::LargeBinary => with_offsets::<LargeBinaryType>(array.as_bytes(), &charge),
        _ => array,
    }
}

/// One text for all rows: it is there once, and stays reserved if it is large.
pub(crate) fn constant_texts(text: String, rows: usize, memory: &Arc<dyn MemoryPool>) -> Result<StringViewArray> {
    let length = text.len() as u32;
    let mut block = Buffer::from_vec(text.into_bytes());
    if block.len() >= CHARGED_BYTES_MIN {
        block = owning(&block, &Arc::new(reserve(memory, "a text", block.len() as u64)?));
    }
    let mut texts = StringViewBuilder::with_capacity(rows);
    let block = texts.append_block(block);
    for _ in 0..rows {
        texts.try_append_view(block, 0, length)?;
    }
    Ok(texts.finish())
}
