//! A posting list: the addresses of the rows that have one key, ascending.
//!
//! ```text
//! blocks   [ packed ] [ packed ] [ packed ]            [ packed ]
//! open                                       a b c ..
//! ```
//! * New addresses gather in the open part, which lies between two blocks or, as a rule, behind the last. When it is
//!   full, or an address belongs into another gap, it is folded in: packed with the block before it, or on its own if
//!   that is full.
//! * An address that lies within a block is entered there: the block is written anew, or as two of half the size.
//! * A removal writes one block anew; a block that becomes small is put together with a neighbour. Neither ever needs
//!   memory: see `block.rs`.
//!
//! So no change touches more than two blocks, and the heads behind them if one comes or goes.

use super::block::{BLOCK_MAX, Block, Plan, Unpacked};
use eris_platform::memory::{MemoryExceeded, Reservation};

/// Addresses of the open part at most. Many keys have an open part each, and it takes eight bytes an address; a small
/// one is folded in more often, which packs up to a whole block.
const OPEN_MAX: usize = 16;

/// Blocks are put together if they have no more addresses than this: then many may be added or removed before a block
/// is full or small again.
const JOINED_MAX: usize = BLOCK_MAX / 2;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct List {
    blocks: Vec<Block>,
    open: Vec<u64>,
    /// Blocks before the open part; of an empty one it says nothing.
    open_at: usize,
    len: u64,
}

/// Room for one more in an array that grows by an eighth, and starts with `first`.
fn reserve_one<T>(array: &mut Vec<T>, first: usize, memory: &Reservation) -> Result<(), MemoryExceeded> {
    if array.len() == array.capacity() {
        let more = if array.is_empty() { first } else { (array.len() / 8).max(first) };
        memory.grow((more * size_of::<T>()) as u64)?;
        array.reserve_exact(more);
    }
    Ok(())
}

/// Some bytes for those that were held before.
fn exchange(before: u64, after: u64, memory: &Reservation) -> Result<(), MemoryExceeded> {
    memory.grow(after.saturating_sub(before))?;
    memory.shrink(before.saturating_sub(after));
    Ok(())
}

impl List {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of its arrays and of itself.
    pub(super) fn bytes(&self) -> u64 {
        let arrays = self.blocks.capacity() * size_of::<Block>() + self.open.capacity() * size_of::<u64>();
        let packed: u64 = self.blocks.iter().map(Block::bytes).sum();
        (size_of::<Self>() + arrays) as u64 + packed
    }

    /// Blocks that begin at or before an address.
    fn blocks_until(&self, address: u64) -> usize {
        self.blocks.partition_point(|block| block.first() <= address)
    }

    /// Adds an address; false if it was there.
    pub(super) fn insert(&mut self, address: u64, memory: &Reservation) -> Result<bool, MemoryExceeded> {
        let appends = self.open_at == self.blocks.len() && self.open.last().is_some_and(|last| *last < address);
        if !appends {
            let until = self.blocks_until(address);
            let is_behind = |at: usize| {
                let begins_open = at == self.open_at && self.open.first().is_some_and(|first| *first <= address);
                at == 0 || begins_open || self.blocks[at - 1].last() < address
            };
            if !is_behind(until) {
                return self.insert_within(until - 1, address, memory);
            }
            if until != self.open_at {
                self.fold(memory)?;
                // What was folded in may have become a block of its own.
                self.open_at = self.blocks_until(address);
            }
        }
        let Err(at) = self.open.binary_search(&address) else { return Ok(false) };
        if self.open.len() == OPEN_MAX {
            self.fold(memory)?;
            return self.insert(address, memory);
        }
        reserve_one(&mut self.open, 4, memory)?;
        self.open.insert(at, address);
        self.len += 1;
        Ok(true)
    }

    /// Packs the open part.
    fn fold(&mut self, memory: &Reservation) -> Result<(), MemoryExceeded> {
        if self.open.is_empty() {
            return Ok(());
        }
        let has_room = |at: &usize| self.blocks[*at].len() + self.open.len() <= BLOCK_MAX;
        let before = self.open_at.checked_sub(1).filter(has_room);
        let mut unpacked = Unpacked::default();
        if let Some(before) = before {
            self.blocks[before].unpack(&mut unpacked);
        }
        unpacked.extend(&self.open);
        match before {
            Some(before) => self.write(before, unpacked.as_slice(), memory)?,
            None => self.add_block(self.open_at, unpacked.as_slice(), memory)?,
        }
        self.open.clear();
        Ok(())
    }

    /// Writes a block anew.
    fn write(&mut self, at: usize, addresses: &[u64], memory: &Reservation) -> Result<(), MemoryExceeded> {
        let plan = Plan::of(addresses);
        exchange(self.blocks[at].bytes(), plan.bytes(), memory)?;
        self.blocks[at] = Block::new(addresses, plan);
        Ok(())
    }

    fn add_block(&mut self, at: usize, addresses: &[u64], memory: &Reservation) -> Result<(), MemoryExceeded> {
        reserve_one(&mut self.blocks, 1, memory)?;
        let plan = Plan::of(addresses);
        memory.grow(plan.bytes())?;
        self.blocks.insert(at, Block::new(addresses, plan));
        Ok(())
    }

    /// Adds an address between the first and the last of a block.
    fn insert_within(&mut self, at: usize, address: u64, memory: &Reservation) -> Result<bool, MemoryExceeded> {
        let mut unpacked = Unpacked::default();
        self.blocks[at].unpack(&mut unpacked);
        let Err(place) = unpacked.as_slice().binary_search(&address) else { return Ok(false) };
        unpacked.insert(place, address);
        let addresses = unpacked.as_slice();
        if addresses.len() <= BLOCK_MAX {
            self.write(at, addresses, memory)?;
        } else {
            let (left, right) = addresses.split_at(addresses.len() / 2);
            let plans = (Plan::of(left), Plan::of(right));
            reserve_one(&mut self.blocks, 1, memory)?;
            exchange(self.blocks[at].bytes(), plans.0.bytes() + plans.1.bytes(), memory)?;
            self.blocks[at] = Block::new(left, plans.0);
            self.blocks.insert(at + 1, Block::new(right, plans.1));
            self.open_at += usize::from(at < self.open_at);
        }
        self.len += 1;
        Ok(true)
    }

    fn take_block(&mut self, at: usize, memory: &Reservation) {
        memory.shrink(self.blocks[at].bytes());
        self.take_head(at, memory);
    }

    /// Takes a block out of the array, whose memory goes back when most of it is not in use.
    fn take_head(&mut self, at: usize, memory: &Reservation) {
        self.blocks.remove(at);
        self.open_at -= usize::from(at < self.open_at);
        let (len, capacity) = (self.blocks.len(), self.blocks.capacity());
        if len * 4 <= capacity {
            self.blocks.shrink_to(len * 2);
            memory.shrink(((capacity - self.blocks.capacity()) * size_of::<Block>()) as u64);
        }
    }

    /// Removes an address; false if it was not there.
    pub(super) fn remove(&mut self, address: u64, memory: &Reservation) -> bool {
        let within = |open: &[u64]| open.first().zip(open.last()).is_some_and(|(l, h)| (*l..=*h).contains(&address));
        if within(&self.open) {
            let Ok(at) = self.open.binary_search(&address) else { return false };
            self.open.remove(at);
            self.len -= 1;
            return true;
        }
        let Some(at) = self.blocks_until(address).checked_sub(1) else { return false };
        let mut unpacked = Unpacked::default();
        self.blocks[at].unpack(&mut unpacked);
        let Ok(place) = unpacked.as_slice().binary_search(&address) else { return false };
        unpacked.remove(place);
        self.len -= 1;
        if unpacked.as_slice().is_empty() {
            self.take_block(at, memory);
            return true;
        }
        let block = &mut self.blocks[at];
        let plan = block.plan_rest(unpacked.as_slice());
        let before = block.bytes();
        *block = Block::new(unpacked.as_slice(), plan);
        memory.shrink(before - plan.bytes());
        let _ = self.join(at, memory) || at > 0 && self.join(at - 1, memory);
        true
    }

    /// Makes one block of two neighbours with few addresses if that takes no more room.
    fn join(&mut self, left: usize, memory: &Reservation) -> bool {
        let is_apart = left + 1 == self.open_at && !self.open.is_empty();
        let Some([first, second]) = self.blocks.get(left..left + 2) else { return false };
        if is_apart || first.len() + second.len() > JOINED_MAX {
            return false;
        }
        let mut unpacked = Unpacked::default();
        first.unpack(&mut unpacked);
        second.unpack(&mut unpacked);
        let plan = Plan::of(unpacked.as_slice());
        let before = first.bytes() + second.bytes();
        if plan.bytes() > before {
            return false;
        }
        self.blocks[left] = Block::new(unpacked.as_slice(), plan);
        memory.shrink(before - plan.bytes());
        self.take_head(left + 1, memory);
        true
    }

    /// The address of a list that has one.
    pub(super) fn only(&self) -> u64 {
        assert!(self.len == 1, "{} addresses are not one", self.len);
        self.open.first().copied().unwrap_or_else(|| self.blocks[0].first())
    }

    /// Calls `visit` with all addresses, ascending.
    pub(super) fn visit(&self, mut visit: impl FnMut(u64)) {
        for number in 0..=self.blocks.len() {
            self.piece(number, &mut Unpacked::default()).iter().for_each(|address| visit(*address));
        }
    }

    /// Calls `visit` with addresses above `after` (none: all), ascending, until it gives false. False if it did.
    pub(super) fn visit_up(&self, after: Option<u64>, mut visit: impl FnMut(u64) -> bool) -> bool {
        let until = after.map_or(0, |after| self.blocks_until(after));
        // The open part is looked at unless a block behind it begins in time.
        let first = if until > self.open_at { until } else { until.saturating_sub(1) };
        (first..=self.blocks.len()).all(|number| {
            let mut unpacked = Unpacked::default();
            let piece = self.piece(number, &mut unpacked);
            let start = after.map_or(0, |after| piece.partition_point(|address| *address <= after));
            piece[start..].iter().all(|address| visit(*address))
        })
    }

    /// Calls `visit` with addresses below `before` (none: all), descending, until it gives false. False if it did.
    pub(super) fn visit_down(&self, before: Option<u64>, mut visit: impl FnMut(u64) -> bool) -> bool {
        let until = before.map_or(self.blocks.len(), |before| self.blocks_until(before));
        let end = until + usize::from(until >= self.open_at);
        (0..end).rev().all(|number| {
            let mut unpacked = Unpacked::default();
            let piece = self.piece(number, &mut unpacked);
            let end = before.map_or(piece.len(), |before| piece.partition_point(|address| *address < before));
            piece[..end].iter().rev().all(|address| visit(*address))
        })
    }

    /// The addresses of a block or of the open part, by their order.
    fn piece<'a>(&'a self, number: usize, unpacked: &'a mut Unpacked) -> &'a [u64] {
        if number == self.open_at {
            return &self.open;
        }
        self.blocks[number - usize::from(number > self.open_at)].unpack(unpacked);
        unpacked.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::memory::MemoryPool;
    use eris_platform::{SeededRandom, test_load};
    use std::collections::BTreeSet;

    fn all(list: &List) -> Vec<u64> {
        let mut found = Vec::new();
        list.visit(|address| found.push(address));
        found
    }

    /// Up to `count` addresses from somewhere, in either direction.
    fn check_part(list: &List, reference: &BTreeSet<u64>, from: u64, count: usize) {
        let mut found = Vec::new();
        let mut take = |address| {
            let goes_on = found.len() < count;
            found.extend(goes_on.then_some(address));
            goes_on
        };
        let ended = list.visit_up(Some(from), &mut take);
        let above: Vec<u64> = reference.range(from..).filter(|address| **address != from).copied().collect();
        assert_eq!((ended, &found[..]), (above.len() <= count, &above[..count.min(above.len())]));
        let mut found = Vec::new();
        let mut take = |address| {
            let goes_on = found.len() < count;
            found.extend(goes_on.then_some(address));
            goes_on
        };
        let ended = list.visit_down(Some(from), &mut take);
        let below: Vec<u64> = reference.range(..from).rev().copied().collect();
        assert_eq!((ended, &found[..]), (below.len() <= count, &below[..count.min(below.len())]));
    }

    /// The next address of a history: behind the last as rows come, in front of what is there as an index is built, or
    /// anywhere.
    fn next_address(random: &mut SeededRandom, kind: u64, round: u64) -> u64 {
        let row = match kind {
            0 => round * 7 + random.below(7),
            1 if random.chance(0.5) => 1_000_000 + round * 3,
            1 => round * 5,
            2 => random.below(3_000),
            _ => random.below(40_000_000),
        };
        row >> 16 << 32 | row & 0xFFFF
    }

    #[test]
    fn agrees_with_a_sorted_set() {
        let mut blocks = 0;
        for seed in 0..test_load(24) {
            let mut random = SeededRandom::new(seed);
            let pool = MemoryPool::unlimited();
            let memory = pool.reserve("indexes");
            memory.grow(size_of::<List>() as u64).unwrap();
            let (mut list, mut reference) = (List::default(), BTreeSet::new());
            for round in 0..6_000 {
                let address = next_address(&mut random, seed % 4, round);
                if random.chance(if round / 1_500 % 2 == 0 { 0.9 } else { 0.3 }) {
                    assert_eq!(list.insert(address, &memory), Ok(reference.insert(address)), "seed {seed} {round}");
                    assert_eq!(list.insert(address, &memory), Ok(false), "seed {seed} {round}");
                } else {
                    let there = reference.range(address..).next().copied();
                    let gone = there.filter(|_| random.chance(0.9)).unwrap_or(address);
                    assert_eq!(list.remove(gone, &memory), reference.remove(&gone), "seed {seed} {round}");
                    assert!(!list.remove(gone, &memory));
                }
                assert_eq!(list.len(), reference.len() as u64);
                if round % 50 == 0 {
                    assert_eq!((list.bytes(), memory.bytes()), (pool.used(), pool.used()), "seed {seed} {round}");
                    check_part(&list, &reference, address, random.index(400));
                }
                if round % 500 == 0 {
                    assert_eq!(all(&list), reference.iter().copied().collect::<Vec<_>>(), "seed {seed} {round}");
                    let mut backwards = Vec::new();
                    assert!(list.visit_down(None, |address| {
                        backwards.push(address);
                        true
                    }));
                    assert!(backwards.iter().eq(reference.iter().rev()), "seed {seed} {round}");
                }
            }
            blocks += list.blocks.len();
            let mut left: Vec<u64> = reference.into_iter().collect();
            random.shuffle(&mut left);
            for (gone, address) in left.iter().enumerate() {
                assert!(list.remove(*address, &memory));
                if gone + 2 == left.len() {
                    assert_eq!(list.only(), left[gone + 1]);
                }
            }
            let rest = (size_of::<List>() + list.open.capacity() * 8) as u64;
            assert_eq!((list.len(), list.bytes(), memory.bytes()), (0, rest, rest), "seed {seed}");
        }
        assert!(blocks > 100, "{blocks} blocks were left");
    }

    /// What is refused changes nothing, and what was taken can be removed without memory.
    #[test]
    fn takes_and_gives_memory_exactly() {
        for limit in (100..6_000).step_by(6_000 / test_load(60) as usize) {
            let pool = MemoryPool::new(limit);
            let memory = pool.reserve("indexes");
            memory.grow(size_of::<List>() as u64).unwrap();
            let mut random = SeededRandom::new(limit);
            let (mut list, mut reference) = (List::default(), BTreeSet::new());
            for round in 0..20_000 {
                let address = next_address(&mut random, limit / 100 % 4, round);
                match list.insert(address, &memory) {
                    Ok(new) => assert_eq!(new, reference.insert(address)),
                    Err(_) => break,
                }
            }
            assert_eq!(all(&list), reference.iter().copied().collect::<Vec<_>>(), "limit {limit}");
            assert_eq!(list.bytes(), pool.used());
            let other = pool.reserve("others");
            other.grow(limit - pool.used()).unwrap();
            while let Some(address) = reference.pop_first() {
                assert!(list.remove(address, &memory), "limit {limit}");
                assert_eq!(list.bytes(), memory.bytes());
            }
        }
    }

    #[test]
    fn a_list_with_gaps_closes_up() {
        let memory = MemoryPool::unlimited().reserve("indexes");
        memory.grow(size_of::<List>() as u64).unwrap();
        let mut list = List::default();
        (0..65_536).for_each(|address| assert_eq!(list.insert(address, &memory), Ok(true)));
        assert!(list.blocks.len() <= 65_536 / BLOCK_MAX && list.bytes() < 20_000, "{} bytes", list.bytes());
        let full = list.bytes();
        (0..65_536).filter(|address| address % 64 > 0).for_each(|address| assert!(list.remove(address, &memory)));
        assert_eq!(list.len(), 1_024);
        assert!(list.blocks.len() <= 1_024 / (JOINED_MAX / 2) + 1, "{} blocks", list.blocks.len());
        assert!(list.bytes() * 4 < full, "{} of {full} bytes", list.bytes());
    }
}
