//! Values of variable length: Arrow's view layout.
//!
//! ```text
//! length <= 12:  | length u32 | bytes, padded with zeros to 12            |
//! longer:        | length u32 | first 4 bytes | buffer u32 | offset u32    |
//! ```
//! A view is one little-endian `u128`. Long values lie in data buffers, which are shared between batches.

use super::buffer::Buffer;
use super::coded::{CodedTexts, ViewBuffer};
use super::run::Run;
use super::view::BytesView;
use std::sync::Arc;

/// The longest value that lies in its view.
pub const VIEW_INLINE_MAX: usize = 12;

/// The longest single value: data buffers stay below 2^31 bytes (Arrow's offsets are signed).
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 30;

/// A data buffer is closed when it passes this.
const DATA_BUFFER_BYTES_MAX: usize = 1 << 30;

const _: () =
    assert!(DATA_BUFFER_BYTES_MAX + VALUE_BYTES_MAX <= 1 << 31, "offsets must fit in a signed 32-bit integer");

/// Views and the buffers they point into.
#[derive(Clone)]
pub struct Views {
    pub views: ViewBuffer,
    pub data: Arc<[Buffer<u8>]>,
}

/// The view of a value of at most 12 bytes.
#[inline]
pub(crate) fn inline_view(bytes: &[u8]) -> u128 {
    debug_assert!(bytes.len() <= VIEW_INLINE_MAX, "{} bytes do not fit in a view", bytes.len());
    let mut view = [0; 16];
    view[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    view[4..4 + bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(view)
}

/// The view of a longer value at `offset` of data buffer `buffer`.
#[inline]
pub(crate) fn data_view(bytes: &[u8], buffer: u32, offset: u32) -> u128 {
    let prefix = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.len() as u128 | u128::from(prefix) << 32 | u128::from(buffer) << 64 | u128::from(offset) << 96
}

/// The length a view says.
#[inline]
pub(crate) fn view_len(view: u128) -> usize {
    view as u32 as usize
}

/// How a value begins, as a number that is ordered as the values are: the first four bytes, zeros behind shorter
/// values.
#[inline]
pub(crate) fn view_prefix(view: u128) -> u32 {
    ((view >> 32) as u32).swap_bytes()
}

impl Views {
    /// How many.
    pub fn len(&self) -> usize {
        self.views.count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of value `row`.
    #[inline]
    pub fn get(&self, row: usize) -> &[u8] {
        let view = &self.views[row];
        let len = view_len(*view);
        if len <= VIEW_INLINE_MAX {
            // SAFETY: a u128 is 16 readable bytes, and on a little-endian machine (asserted below) bytes 4.. are the
            // inline value, of at most 12 bytes.
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(view).cast::<u8>().add(4), len) }
        } else {
            let (buffer, offset) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
            &self.data[buffer][offset..offset + len]
        }
    }

    /// The values at `rows`, sharing the data.
    pub(crate) fn take(&self, rows: &[u32]) -> Self {
        Self { views: self.views.take(rows), data: Arc::clone(&self.data) }
    }

    /// The texts by their ids in a dictionary, if they come from one.
    pub fn coded(&self) -> Option<CodedTexts<'_>> {
        self.views.coded()
    }

    /// The same views without ids.
    pub(super) fn looked_up(self) -> Self {
        let views: Buffer<u128> = (*self.views).clone();
        Self { views: views.into(), data: self.data }
    }

    /// Bytes of the views and of the data they use.
    pub(crate) fn bytes(&self) -> usize {
        self.views.bytes()
    }
}

const _: () = assert!(cfg!(target_endian = "little"), "views are read in place as little-endian words");

/// Grows views value by value.
#[derive(Debug)]
pub(crate) struct ViewsBuilder {
    views: Run<u128>,
    data: Vec<Buffer<u8>>,
    current: Vec<u8>,
}

impl ViewsBuilder {
    pub(crate) fn with_capacity(rows: usize) -> Self {
        Self::over(Run::with_capacity(rows))
    }

    pub(super) fn over(views: Run<u128>) -> Self {
        Self { views, data: Vec::new(), current: Vec::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if bytes.len() <= VIEW_INLINE_MAX {
            self.views.push(inline_view(bytes));
        } else {
            self.push_long(bytes);
        }
    }

    /// A view whose value is inline, as it stands.
    #[inline]
    pub(crate) fn push_inline(&mut self, view: u128) {
        debug_assert!(view_len(view) <= VIEW_INLINE_MAX, "only inline views stand for themselves");
        self.views.push(view);
    }

    fn push_long(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= VALUE_BYTES_MAX, "a value of {} bytes must be refused earlier", bytes.len());
        if self.current.len() + bytes.len() > DATA_BUFFER_BYTES_MAX && !self.current.is_empty() {
            self.data.push(std::mem::take(&mut self.current).into());
        }
        self.views.push(data_view(bytes, self.data.len() as u32, self.current.len() as u32));
        self.current.extend_from_slice(bytes);
    }

    pub(crate) fn len(&self) -> usize {
        self.views.len()
    }

    pub(crate) fn view(&self) -> BytesView<'_> {
        BytesView { views: self.views.as_slice(), data: &self.data, current: &self.current }
    }

    /// Room for `rows` more views and `data_bytes` more bytes of long values.
    pub(crate) fn reserve_exact(&mut self, rows: usize, data_bytes: usize) {
        self.views.reserve_exact(rows);
        self.current.reserve_exact(data_bytes);
    }

    /// Only the first `rows` stay, in no more memory than they need; gives the bytes of long values that went.
    pub(crate) fn truncate(&mut self, rows: usize) -> usize {
        self.views.truncate(rows);
        // Long values lie in the order of their rows. Buffers that are full stay with the column.
        let last = self.views.as_slice().iter().rev().find(|view| view_len(**view) > VIEW_INLINE_MAX);
        let is_current = |view: &&u128| (**view >> 64) as u32 as usize == self.data.len();
        let used = last.filter(is_current).map_or(0, |view| (*view >> 96) as u32 as usize + view_len(*view));
        let gone = self.current.len() - used;
        self.current.truncate(used);
        self.current.shrink_to_fit();
        gone
    }

    /// Gives back the room that no value has taken.
    pub(super) fn shrink_to_fit(&mut self) {
        self.views.shrink_to_fit();
        self.current.shrink_to_fit();
    }

    pub(crate) fn finish(mut self) -> Views {
        let data: Arc<[Buffer<u8>]> = match (self.data.is_empty(), self.current.is_empty()) {
            (true, true) => Arc::default(),
            (true, false) => Arc::new([self.current.into()]),
            (false, true) => self.data.into(),
            (false, false) => {
                self.data.push(self.current.into());
                self.data.into()
            }
        };
        Views { views: self.views.finish().into(), data }
    }
}

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..self.len()).map(|row| String::from_utf8_lossy(self.get(row)))).finish()
    }
}

impl PartialEq for Views {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && (0..self.len()).all(|row| self.get(row) == other.get(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_short_and_long_values() {
        let values: Vec<Vec<u8>> = (0..40).map(|n| (0..n).map(|b| b as u8 ^ 0x5A).collect()).collect();
        let mut builder = ViewsBuilder::with_capacity(0);
        for value in &values {
            builder.push(value);
        }
        let views = builder.finish();
        for (row, value) in values.iter().enumerate() {
            assert_eq!(views.get(row), value);
        }
        let taken = views.take(&[39, 0, 13]);
        assert_eq!((taken.get(0), taken.get(1), taken.get(2)), (&*values[39], &*values[0], &*values[13]));
        // The layout other readers of Arrow's format rely on.
        assert_eq!(&views.views[13].to_le_bytes()[..8], &[13, 0, 0, 0, 0x5A, 0x5B, 0x58, 0x59]);
    }
}
