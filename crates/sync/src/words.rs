//! The bytes of one half of a double buffer.
//!
//! With `std` one contiguous allocation, written and read as bytes. Under loom every 8-byte word is a cell of its own,
//! so that the model sees each access and reports a read that races with a write.

#[cfg(not(loom))]
use std::cell::UnsafeCell;

#[cfg(loom)]
use loom::cell::UnsafeCell;

/// The size of a word: regions start and end at multiples of it.
pub(crate) const WORD_BYTES: usize = 8;

/// One write in so many bytes touches every page.
#[cfg(not(loom))]
const PAGE_BYTES: usize = 4096;

pub(crate) struct Words {
    words: Box<[UnsafeCell<u64>]>,
}

// SAFETY: the double buffer sees to it that a word is written by the one writer that reserved it, and read by the owner
// after that writer has released it.
unsafe impl Sync for Words {}

impl Words {
    /// Zeros, written by the calling thread: so the operating system places the memory on its NUMA node.
    pub(crate) fn new(count: usize) -> Words {
        let words: Box<[UnsafeCell<u64>]> = (0..count).map(|_| UnsafeCell::new(0)).collect();
        // Zeros may come from the allocator without a write; this one cannot be optimised away.
        #[cfg(not(loom))]
        for word in words.iter().step_by(PAGE_BYTES / WORD_BYTES) {
            // SAFETY: nobody else knows the words yet.
            unsafe { word.get().write_volatile(0) };
        }
        Words { words }
    }
}

#[cfg(not(loom))]
impl Words {
    /// Writes `parts` one after the other from word `first` on, and zeros up to the end of the last word.
    ///
    /// # Safety
    /// The words are reserved by the caller alone, and nobody reads them.
    pub(crate) unsafe fn write(&self, first: usize, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let count = length.div_ceil(WORD_BYTES);
        let region = &self.words[first..first + count];
        if let Some(last) = region.last() {
            // SAFETY: by the caller. Padding is written first, then partly covered by the bytes.
            unsafe { last.get().write(0) };
        }
        let mut target: *mut u8 = region.as_ptr().cast::<u8>().cast_mut();
        for part in parts {
            // SAFETY: the parts together are no longer than the region, which the caller owns; cells permit writes
            // through shared references.
            unsafe {
                target.copy_from_nonoverlapping(part.as_ptr(), part.len());
                target = target.add(part.len());
            }
        }
    }

    /// Hands the bytes of the first `count` words to `f`.
    ///
    /// # Safety
    /// Nobody writes these words until `f` returns, and what was written happened before.
    pub(crate) unsafe fn read<R>(&self, count: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let region = &self.words[..count];
        // SAFETY: a cell of u64 is eight bytes without padding; by the caller nobody writes them.
        f(unsafe { std::slice::from_raw_parts(region.as_ptr().cast::<u8>(), count * WORD_BYTES) })
    }
}

#[cfg(loom)]
impl Words {
    /// As without loom, word by word.
    ///
    /// # Safety
    /// As without loom; loom checks it.
    pub(crate) unsafe fn write(&self, first: usize, parts: &[&[u8]]) {
        let bytes = parts.concat();
        for (index, chunk) in bytes.chunks(WORD_BYTES).enumerate() {
            let mut word = [0; WORD_BYTES];
            word[..chunk.len()].copy_from_slice(chunk);
            // SAFETY: loom checks that nobody else accesses the word.
            self.words[first + index].with_mut(|target| unsafe { target.write(u64::from_ne_bytes(word)) });
        }
    }

    /// As without loom, from a copy.
    ///
    /// # Safety
    /// As without loom; loom checks it.
    pub(crate) unsafe fn read<R>(&self, count: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = Vec::with_capacity(count * WORD_BYTES);
        for word in &self.words[..count] {
            // SAFETY: loom checks that nobody writes the word.
            bytes.extend_from_slice(&word.with(|source| unsafe { source.read() }).to_ne_bytes());
        }
        f(&bytes)
    }
}
