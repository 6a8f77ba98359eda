//! A borrowed look at a column, finished or growing: what filters and gathers read.

use super::buffer::Buffer;
use super::views::{VIEW_INLINE_MAX, view_len};
use crate::types::{DataType, Physical};
use std::ops::Range;

/// Which rows of a column are not NULL.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValidityView<'a> {
    /// All of them.
    All,
    /// One bit per row, the first one `offset` bits into the bytes.
    Bits { bytes: &'a [u8], offset: usize },
}

impl ValidityView<'_> {
    #[inline]
    pub(crate) fn get(self, row: usize) -> bool {
        match self {
            Self::All => true,
            Self::Bits { bytes, offset } => {
                let bit = offset + row;
                bytes[bit >> 3] >> (bit & 7) & 1 != 0
            }
        }
    }
}

/// Views with their data, of which the last part may still grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesView<'a> {
    pub views: &'a [u128],
    pub data: &'a [Buffer<u8>],
    pub current: &'a [u8],
}

impl<'a> BytesView<'a> {
    #[inline]
    pub(crate) fn get(&self, row: usize) -> &'a [u8] {
        let view = &self.views[row];
        let len = view_len(*view);
        if len <= VIEW_INLINE_MAX {
            // SAFETY: a u128 is 16 readable bytes that live as long as `views`; on a little-endian machine bytes 4..
            // are the inline value of at most 12 bytes.
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(view).cast::<u8>().add(4), len) }
        } else {
            let (buffer, offset) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
            let data: &'a [u8] = self.data.get(buffer).map_or(self.current, |buffer| buffer);
            &data[offset..offset + len]
        }
    }
}

/// The values, by physical type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValuesView<'a> {
    Boolean(&'a [u8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Int128(&'a [i128]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Bytes(BytesView<'a>),
}

impl ValuesView<'_> {
    pub(crate) fn physical(&self) -> Physical {
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
}

/// A borrowed column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnView<'a> {
    pub data_type: DataType,
    pub validity: ValidityView<'a>,
    pub values: ValuesView<'a>,
}

/// Rows of a column: a run, or a list.
#[derive(Clone, Debug)]
pub(crate) enum RowsOf<'a> {
    Run(Range<usize>),
    List(&'a [u32]),
}

impl RowsOf<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Run(range) => range.len(),
            Self::List(list) => list.len(),
        }
    }
}
