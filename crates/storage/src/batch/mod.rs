//! Batches in Arrow's memory layout without the crate: what partitions hand out and take in.
//!
//! Everything is shared and immutable: cloning or slicing a batch costs a reference count per buffer.

mod bitmap;
mod buffer;
mod builder;
mod coded;
mod column;
mod fixed;
mod packed;
mod rows;
mod run;
mod stored;
mod stored_columns;
mod view;
mod views;

pub use bitmap::{Bitmap, BitmapBuilder};
pub use buffer::Buffer;
pub use builder::ColumnBuilder;
pub(crate) use coded::DictionaryIdentity;
pub use coded::{CodedTexts, DictionaryTexts, ViewBuffer};
pub use column::{Column, Values};
pub use fixed::FixedValue;
pub(crate) use packed::RowWriter;
pub use packed::{PackedRows, RowFormat};
pub use rows::Batch;
pub use stored::NotRows;
pub(crate) use view::{BytesView, ColumnView, RowsOf, ValidityView, ValuesView};
pub(crate) use views::{VALUE_BYTES_MAX, data_view, inline_view, view_len, view_prefix};
pub use views::{VIEW_INLINE_MAX, Views};

/// Rows of a batch at most. 004 (Figure 5.6) measured least overhead of the data gateway at 2,048.
pub const BATCH_ROWS: usize = 2048;
