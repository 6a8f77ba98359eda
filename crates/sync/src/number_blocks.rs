//! Unique numbers, without a line that all who ask write.
//!
//! Each slot takes a block of numbers at a time; slots belong to workers. Numbers of one slot ascend, those of several
//! do not follow one another in time.
//! ```text
//!  next block: 256
//!  slot 0:  next 67 of 64..128      slot 1:  next 192: its block 128..192 is used up
//! ```

use std::sync::atomic::Ordering;

use crate::line::Line;
use crate::primitives::AtomicU64;

/// Numbers in a block: enough that blocks are seldom taken, few enough that it does not matter how many are never used.
const BLOCK: u64 = 64;

/// See the [module](self).
pub struct NumberBlocks {
    next_block: AtomicU64,
    /// The next number of each slot; a multiple of the block's size: it has none left.
    next: Box<[Line<AtomicU64>]>,
}

impl NumberBlocks {
    pub fn new(slots: usize) -> NumberBlocks {
        // No number is 0.
        NumberBlocks { next_block: AtomicU64::new(BLOCK), next: (0..slots).map(|_| Line(AtomicU64::new(0))).collect() }
    }

    /// A number that nobody got before. Any number of callers per slot, best is one.
    pub fn next(&self, slot: usize) -> u64 {
        let slot = &self.next[slot];
        let mut next = slot.load(Ordering::Relaxed);
        loop {
            let used_up = next.is_multiple_of(BLOCK);
            // Whoever loses the slot to another after this has a block that nobody will use.
            let number = if used_up { self.next_block.fetch_add(BLOCK, Ordering::Relaxed) } else { next };
            match slot.compare_exchange_weak(next, number + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return number,
                Err(seen) => next = seen,
            }
        }
    }

    pub fn slots(&self) -> usize {
        self.next.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_slots_differ_and_ascend() {
        let numbers = NumberBlocks::new(2);
        let mut all: Vec<u64> = Vec::new();
        for slot in [0, 1] {
            let mine: Vec<u64> = (0..3 * BLOCK).map(|_| numbers.next(slot)).collect();
            assert!(mine.is_sorted() && mine[0] > 0);
            all.extend(mine);
        }
        all.push(numbers.next(0));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len() as u64, 6 * BLOCK + 1);
    }
}
