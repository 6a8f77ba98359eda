//! The incoming double buffer: many threads append messages, one owner takes them, nobody waits.
//!
//! Two halves of equal size; one is *active* and takes appends, the other is *retired* and being emptied. One 64-bit
//! descriptor tells everything an append needs:
//! ```text
//!   63        62 .. 32                    31 .. 0
//! +--------+---------------------------+---------------------------+
//! | active | writers that entered      | offset in 8-byte words    |
//! +--------+---------------------------+---------------------------+
//! ```
//! **Append.** One atomic addition to the descriptor reserves a region of the active half (its old value names half and
//! offset) and counts the writer in. The writer copies its bytes and then adds one to the half's own counter of
//! writers that *left*.
//!
//! **Drain.** The owner exchanges the descriptor for an empty one of the other half. The old value says how many
//! writers entered the retired half; when as many have left, its bytes are complete and are handed over as one slice,
//! in the order of reservation. Until then the owner does not wait: it returns and looks again next time. Meanwhile the
//! other half takes appends. There is never more than one retired half, so a writer in it sees at most one exchange,
//! and the active bit tells it whether there was one.
//!
//! **Overflow.** A reservation beyond the capacity fails, and so does every later one, because the offset stays beyond.
//! If nothing followed, the writer restores the descriptor as if it had never come. Else it notes where the valid
//! bytes end, if it was the first to fail, and leaves; the half is full until the next exchange. Either way no
//! other writer's region is touched. An append that sees in advance that it does not fit does not try, which bounds how
//! far the offset can run.
//!
//! The source (004, section 3.3.2) has the descriptor in each buffer and decrements the writers there, by
//! compare-and-swap; here the addition cannot fail, and the count of those who left has its own cache line.

use std::sync::atomic::Ordering;

use crate::line::Line;
use crate::primitives::{Arc, AtomicU64};
use crate::words::{WORD_BYTES, Words};

/// Sees that the owner has emptied the half before it is written again.
const RESERVE: Ordering = if cfg!(loom_weak = "double_buffer_reserve") { Ordering::Relaxed } else { Ordering::Acquire };
/// Publishes the bytes of an append to the owner.
const LEAVE: Ordering = if cfg!(loom_weak = "double_buffer_leave") { Ordering::Relaxed } else { Ordering::Release };
/// Publishes to writers that the newly active half has been emptied.
const RETIRE: Ordering = if cfg!(loom_weak = "double_buffer_retire") { Ordering::Relaxed } else { Ordering::Release };
/// Sees the bytes of the writers that left.
const COLLECT: Ordering = if cfg!(loom_weak = "double_buffer_collect") { Ordering::Relaxed } else { Ordering::Acquire };

const OFFSET_BITS: u32 = 32;
const WRITER: u64 = 1 << OFFSET_BITS;
const WRITERS_MASK: u64 = (1 << 31) - 1;
const ACTIVE: u64 = 1 << 63;

/// The largest capacity of a half. Every thread may overshoot once by up to a capacity before it sees that the half is
/// full; the offset's 32 bits of words (32 GiB) hold that for 2,048 threads.
pub const CAPACITY_MAX_BYTES: usize = 16 << 20;
const _: () = assert!((CAPACITY_MAX_BYTES / WORD_BYTES) as u64 * 2048 <= 1 << OFFSET_BITS);

/// Constructor of the pair of handles. See the [module](self).
pub struct DoubleBuffer;

struct Shared {
    descriptor: Line<AtomicU64>,
    halves: [Half; 2],
    capacity_words: u64,
}

struct Half {
    /// Writers that entered since the half became active, and left.
    left: Line<AtomicU64>,
    /// Where the valid bytes end, in words, if the offset ran beyond the capacity. Written by the first writer that
    /// failed; published by its leaving.
    end_words: AtomicU64,
    words: Words,
}

/// Appends; cheap to clone, used by any thread.
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
}

/// Takes what was appended; there is one.
pub struct Consumer {
    shared: Arc<Shared>,
    retired: Option<Retired>,
}

/// The half whose bytes are awaited or being handed over.
struct Retired {
    half: usize,
    writers: u64,
    offset_words: u64,
}

/// The append does not fit now. It does after the next drain, unless it is larger than the capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    pub asked_bytes: usize,
    pub capacity_bytes: usize,
}

impl Full {
    /// The append can never succeed.
    pub fn is_too_large(&self) -> bool {
        self.asked_bytes > self.capacity_bytes
    }
}

impl std::fmt::Display for Full {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes do not fit into a buffer of {} bytes", self.asked_bytes, self.capacity_bytes)
    }
}

impl std::error::Error for Full {}

/// What a drain found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// Nothing was appended.
    Empty,
    /// Something was appended, and some writer is not done with it: try again at the next step.
    WritersRemain,
    /// This many bytes were handed over (padding included, so a multiple of 8).
    Drained(usize),
}

fn offset_of(descriptor: u64) -> u64 {
    descriptor & (WRITER - 1)
}

fn writers_of(descriptor: u64) -> u64 {
    (descriptor >> OFFSET_BITS) & WRITERS_MASK
}

fn half_of(descriptor: u64) -> usize {
    usize::from(descriptor & ACTIVE != 0)
}

impl DoubleBuffer {
    /// Two halves of `capacity_bytes` (rounded up to words), written to by the calling thread, so that they lie on its
    /// NUMA node: called by the owner.
    ///
    /// # Panics
    /// If the capacity is 0 or above [`CAPACITY_MAX_BYTES`].
    #[expect(clippy::new_ret_no_self, reason = "the buffer is only reachable through its two handles")]
    pub fn new(capacity_bytes: usize) -> (Producer, Consumer) {
        assert!(
            (1..=CAPACITY_MAX_BYTES).contains(&capacity_bytes),
            "a double buffer of {capacity_bytes} bytes is not between 1 and {CAPACITY_MAX_BYTES}"
        );
        let words = capacity_bytes.div_ceil(WORD_BYTES);
        let half = || Half { left: Line(AtomicU64::new(0)), end_words: AtomicU64::new(0), words: Words::new(words) };
        let shared = Arc::new(Shared {
            descriptor: Line(AtomicU64::new(0)),
            halves: [half(), half()],
            capacity_words: words as u64,
        });
        (Producer { shared: Arc::clone(&shared) }, Consumer { shared, retired: None })
    }
}

impl Producer {
    /// Appends `bytes` as one contiguous region that starts at a multiple of 8 and is padded with zeros to the next.
    pub fn append(&self, bytes: &[u8]) -> Result<(), Full> {
        self.append_parts(&[bytes])
    }

    /// Appends the concatenation of `parts`, as [`append`](Self::append) does. Nothing is appended if it is empty.
    pub fn append_parts(&self, parts: &[&[u8]]) -> Result<(), Full> {
        let shared = &*self.shared;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let words = bytes.div_ceil(WORD_BYTES) as u64;
        let full = Full { asked_bytes: bytes, capacity_bytes: self.capacity_bytes() };
        if words == 0 {
            return Ok(());
        }
        // Left out of the models, which then explore more failing reservations than can happen.
        if !cfg!(loom) && offset_of(shared.descriptor.load(Ordering::Relaxed)) + words > shared.capacity_words {
            return Err(full);
        }
        let reservation = WRITER + words;
        let before = shared.descriptor.fetch_add(reservation, RESERVE);
        let half = &shared.halves[half_of(before)];
        let offset = offset_of(before);
        if offset + words <= shared.capacity_words {
            // SAFETY: the addition gave the words from `offset` on to this writer alone; the owner reads them after it
            // has left.
            unsafe { half.words.write(offset as usize, parts) };
            half.left.fetch_add(1, LEAVE);
            return Ok(());
        }
        // While this writer has not left, the owner cannot retire the other half too, so an equal descriptor is the
        // same one: nobody has entered since, or they have all undone it.
        let undone = shared.descriptor.compare_exchange(
            before.wrapping_add(reservation),
            before,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if undone.is_err() {
            if offset <= shared.capacity_words {
                half.end_words.store(offset, Ordering::Relaxed);
            }
            half.left.fetch_add(1, LEAVE);
        }
        Err(full)
    }

    pub fn capacity_bytes(&self) -> usize {
        self.shared.capacity_words as usize * WORD_BYTES
    }
}

impl Consumer {
    /// Hands everything appended before this call to `f` as one slice, or returns at once if some of it is still being
    /// written. `f` runs at most once.
    pub fn try_drain(&mut self, f: impl FnMut(&[u8])) -> Drain {
        if self.retired.is_none() && !self.retire() {
            return Drain::Empty;
        }
        let shared = &*self.shared;
        let Some(retired) = &self.retired else {
            unreachable!("a half was just retired");
        };
        let half = &shared.halves[retired.half];
        let left = half.left.load(COLLECT);
        assert!(left <= retired.writers, "{left} writers left a half that {} entered", retired.writers);
        if left < retired.writers {
            return Drain::WritersRemain;
        }
        let words = if retired.offset_words <= shared.capacity_words {
            retired.offset_words
        } else {
            half.end_words.load(Ordering::Relaxed)
        } as usize;
        // The half is nobody's now. It becomes active again only by a later call, so it can be reset before its bytes
        // are handed over, and a panic of `f` leaves nothing half done.
        half.left.store(0, Ordering::Relaxed);
        self.retired = None;
        if words == 0 {
            return Drain::Empty;
        }
        let mut f = f;
        // SAFETY: all writers have left, which `COLLECT` saw, and none enters until this call has returned.
        unsafe { half.words.read(words, &mut f) };
        Drain::Drained(words * WORD_BYTES)
    }

    /// Whether a drain may find something. Between [`Sleepers::announce`](crate::Sleepers::announce) and blocking this
    /// is the look that counts.
    pub fn has_work(&self) -> bool {
        self.retired.is_some() || self.shared.descriptor.load(Ordering::Relaxed) & !ACTIVE != 0
    }

    pub fn capacity_bytes(&self) -> usize {
        self.shared.capacity_words as usize * WORD_BYTES
    }

    /// Makes the empty half active. False if the active one is untouched.
    fn retire(&mut self) -> bool {
        let descriptor = &self.shared.descriptor;
        let seen = descriptor.load(Ordering::Relaxed);
        if seen & !ACTIVE == 0 {
            return false;
        }
        let old = descriptor.swap(!seen & ACTIVE, RETIRE);
        assert_eq!(half_of(old), half_of(seen), "only the owner exchanges halves");
        self.retired = Some(Retired { half: half_of(old), writers: writers_of(old), offset_words: offset_of(old) });
        true
    }
}
