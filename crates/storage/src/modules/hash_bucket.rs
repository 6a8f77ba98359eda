//! A bucket of the hash table: an open-addressing array whose entries lie in the order of their hashes.
//!
//! ```text
//! keys     .  3  7  9  .  . 20 21 21 34  .  ...  .      '.' is a gap; the last slot always is one
//! handles  .  a  b  c  .  .  d  e  f  g  .  ...  .      narrow (32 bits) while all addresses fit, else 64
//!             ^ home of 3   ^ home of 20 and 21
//! ```
//! * The home of a key is its hash scaled to the capacity, so homes rise with hashes. Every entry lies at or behind its
//!   home without a gap between, and entries are ordered by (key, handle); hence a search starts at the home and ends
//!   at the first slot that is not smaller, found or not (linear probing with the order of Robin Hood hashing).
//! * A gap has the greatest key, so the loop of a search compares once per slot.
//! * Growing copies the entries in order into a larger array: two sequential streams and no rehashing of keys that are
//!   their own hash. Splitting cuts the array in two.
//! * Keys and handles are separate arrays: a search reads keys only, and eight of them share a cache line.

use super::btree::NodeKey;

/// A key as the table stores it, ordered by its hash first.
pub(super) trait Hashed: NodeKey + Send + Sync + 'static {
    /// What stands in a gap: no key is greater.
    fn gap() -> Self;
    /// The hash, its upper bits first in use. A greater key never has a smaller hash.
    fn hash(&self) -> u64;
    /// The smallest key with a hash at or above this.
    fn lowest_of(hash: u64) -> Self;
}

macro_rules! hashed {
    ($type:ty, $hash:expr, $lowest:expr) => {
        impl Hashed for $type {
            fn gap() -> Self {
                Self::MAX
            }

            #[inline]
            fn hash(&self) -> u64 {
                $hash(*self)
            }

            fn lowest_of(hash: u64) -> Self {
                $lowest(hash)
            }
        }
    };
}

hashed!(u32, |key| u64::from(key) << 32, |hash: u64| (hash >> 32) as u32);
hashed!(u64, |key| key, |hash| hash);
hashed!(u128, |key: u128| (key >> 64) as u64, |hash| u128::from(hash) << 64);

const NARROW_GAP: u32 = u32::MAX;
const WIDE_GAP: u64 = u64::MAX;

/// A handle in 32 bits: both halves of a row address fit in 16 unless a partition has very many segments or very large
/// ones. Keeps the order of handles.
fn narrow(handle: u64) -> Option<u32> {
    let (segment, offset) = (handle >> 32, handle as u32);
    let fits = segment <= 0xFFFF && offset <= 0xFFFF;
    Some((segment as u32) << 16 | offset).filter(|narrow| fits && *narrow != NARROW_GAP)
}

fn widen(narrow: u32) -> u64 {
    u64::from(narrow >> 16) << 32 | u64::from(narrow & 0xFFFF)
}

enum Handles {
    Narrow(Box<[u32]>),
    Wide(Box<[u64]>),
}

impl Handles {
    fn new(slots: usize, wide: bool) -> Self {
        if wide { Self::Wide(vec![WIDE_GAP; slots].into()) } else { Self::Narrow(vec![NARROW_GAP; slots].into()) }
    }

    /// The handle of a slot; none: a gap.
    #[inline]
    fn get(&self, at: usize) -> Option<u64> {
        match self {
            Self::Narrow(handles) => Some(handles[at]).filter(|handle| *handle != NARROW_GAP).map(widen),
            Self::Wide(handles) => Some(handles[at]).filter(|handle| *handle != WIDE_GAP),
        }
    }

    fn set(&mut self, at: usize, handle: u64) {
        match self {
            Self::Narrow(handles) => match narrow(handle) {
                Some(narrow) => handles[at] = narrow,
                None => unreachable!("handle {handle:x} was checked to fit"),
            },
            Self::Wide(handles) => handles[at] = handle,
        }
    }

    fn clear(&mut self, at: usize) {
        match self {
            Self::Narrow(handles) => handles[at] = NARROW_GAP,
            Self::Wide(handles) => handles[at] = WIDE_GAP,
        }
    }

    fn first_gap_from(&self, at: usize) -> usize {
        let gap = match self {
            Self::Narrow(handles) => handles[at..].iter().position(|handle| *handle == NARROW_GAP),
            Self::Wide(handles) => handles[at..].iter().position(|handle| *handle == WIDE_GAP),
        };
        match gap {
            Some(distance) => at + distance,
            None => unreachable!("the last slot is a gap"),
        }
    }

    /// Moves `len` handles from `from` to `to`.
    fn shift(&mut self, from: usize, to: usize, len: usize) {
        match self {
            Self::Narrow(handles) => handles.copy_within(from..from + len, to),
            Self::Wide(handles) => handles.copy_within(from..from + len, to),
        }
    }
}

/// Slots behind the last home, where entries of the last homes may lie.
fn slack(capacity: usize) -> usize {
    8 + capacity / 64
}

/// Entries a bucket takes before it has to grow: beyond seven of eight, runs get long quickly.
fn entries_max(capacity: usize) -> usize {
    capacity / 8 * 7
}

/// The capacity for a number of entries: three of four in use, so that a few more fit.
fn capacity_for(entries: usize) -> usize {
    (entries * 4).div_ceil(3).next_multiple_of(8).max(8)
}

/// Slots of a new bucket, as it must be reserved before.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    capacity: usize,
    slots: usize,
    wide: bool,
}

impl Plan {
    pub(super) fn bytes<K>(self) -> u64 {
        (self.slots * (size_of::<K>() + if self.wide { 8 } else { 4 })) as u64
    }
}

/// See the module's documentation.
pub(super) struct Bucket<K> {
    keys: Box<[K]>,
    handles: Handles,
    /// Homes.
    capacity: u32,
    len: u32,
    /// Leading bits of the hash that all entries have in common.
    pub depth: u8,
    /// Whether the table holds entries of this bucket elsewhere.
    pub spilled: bool,
}

/// Where a pair is or belongs.
pub(super) struct Place {
    pub at: usize,
    pub present: bool,
    /// Other entries with the key.
    pub others: usize,
}

impl<K: Hashed> Bucket<K> {
    /// The plan of a first bucket.
    pub(super) fn first_plan(wide: bool) -> Plan {
        Plan { capacity: 8, slots: 8 + slack(8), wide }
    }

    pub(super) fn new(plan: Plan, depth: u8) -> Self {
        let keys = (0..plan.slots).map(|_| K::gap()).collect();
        let handles = Handles::new(plan.slots, plan.wide);
        Self { keys, handles, capacity: plan.capacity as u32, len: 0, depth, spilled: false }
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn slots(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity as usize
    }

    pub(super) fn is_wide(&self) -> bool {
        matches!(self.handles, Handles::Wide(_))
    }

    pub(super) fn bytes(&self) -> u64 {
        Plan { capacity: self.capacity(), slots: self.slots(), wide: self.is_wide() }.bytes::<K>()
    }

    /// Whether a handle can be stored as handles are now.
    pub(super) fn fits(&self, handle: u64) -> bool {
        self.is_wide() || narrow(handle).is_some()
    }

    /// Whether there are so few entries that a smaller array would do.
    pub(super) fn is_sparse(&self) -> bool {
        self.capacity() > 8 && self.len() < self.capacity() / 8 * 3
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        home(hash, self.depth, self.capacity as usize)
    }

    /// Asks for the memory a search for this hash will read.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let home = self.home(hash);
        prefetch(&raw const self.keys[home]);
        // Entries lie a few slots behind their home; often that is the same line.
        prefetch(&raw const self.keys[home + 4]);
        match &self.handles {
            Handles::Narrow(handles) => prefetch(&raw const handles[home + 2]),
            Handles::Wide(handles) => prefetch(&raw const handles[home + 2]),
        }
    }

    /// The entry of a slot, if it is no gap.
    #[inline]
    pub(super) fn entry(&self, at: usize) -> Option<(&K, u64)> {
        self.handles.get(at).map(|handle| (&self.keys[at], handle))
    }

    /// The first slot whose key is not below `key`, or a gap before it.
    #[inline]
    pub(super) fn lower_bound(&self, key: &K) -> usize {
        let mut at = self.home(key.hash());
        while self.keys[at] < *key {
            at += 1;
        }
        at
    }

    /// Calls `visit` with the handles of a key, ascending.
    #[inline]
    pub(super) fn equal(&self, key: &K, mut visit: impl FnMut(u64)) {
        let mut at = self.lower_bound(key);
        while self.keys[at] == *key
            && let Some(handle) = self.handles.get(at)
        {
            visit(handle);
            at += 1;
        }
    }

    /// Where a pair is or belongs.
    pub(super) fn place(&self, key: &K, handle: u64) -> Place {
        let first = self.lower_bound(key);
        let (mut at, mut end, mut present) = (first, first, false);
        while self.keys[end] == *key
            && let Some(other) = self.handles.get(end)
        {
            at += usize::from(other < handle);
            present |= other == handle;
            end += 1;
        }
        Place { at, present, others: end - first - usize::from(present) }
    }

    /// Adds a pair where it belongs; false if there is no room.
    pub(super) fn insert(&mut self, at: usize, key: &K, handle: u64) -> bool {
        if self.len() >= entries_max(self.capacity()) {
            return false;
        }
        let gap = self.handles.first_gap_from(at);
        if gap + 1 == self.slots() {
            return false;
        }
        self.keys[at..=gap].rotate_right(1);
        self.keys[at] = key.clone();
        self.handles.shift(at, at + 1, gap - at);
        self.handles.set(at, handle);
        self.len += 1;
        true
    }

    /// Takes the entry of a slot out; those behind it that are not at home close up.
    pub(super) fn remove(&mut self, at: usize) {
        let mut end = at + 1;
        while self.handles.get(end).is_some() && self.home(self.keys[end].hash()) < end {
            end += 1;
        }
        self.keys[at..end].rotate_left(1);
        self.keys[end - 1] = K::gap();
        self.handles.shift(at + 1, at, end - at - 1);
        self.handles.clear(end - 1);
        self.len -= 1;
    }

    /// A plan for the same entries in a larger array.
    pub(super) fn plan_larger(&self, capacity_max: usize) -> Plan {
        let capacity = (self.capacity() + self.capacity() / 4).next_multiple_of(8).min(capacity_max);
        self.plan(0..self.slots(), capacity, self.depth, self.is_wide())
    }

    /// A plan for the same entries in as much as they need.
    pub(super) fn plan_fitting(&self, wide: bool) -> Plan {
        self.plan(0..self.slots(), capacity_for(self.len()), self.depth, wide)
    }

    /// Where the entries begin that have the bit behind the common ones set, and plans for those before and behind.
    pub(super) fn plan_split(&self) -> (usize, Plan, Plan) {
        let bit = 1_u64 << (63 - self.depth);
        let is_upper = |at: &usize| self.entry(*at).is_some_and(|(key, _)| key.hash() & bit != 0);
        let cut = (0..self.slots()).find(is_upper).unwrap_or(self.slots());
        let half = |slots: std::ops::Range<usize>| {
            let entries = slots.clone().filter(|at| self.handles.get(*at).is_some()).count();
            self.plan(slots, capacity_for(entries), self.depth + 1, self.is_wide())
        };
        (cut, half(0..cut), half(cut..self.slots()))
    }

    fn plan(&self, slots: std::ops::Range<usize>, capacity: usize, depth: u8, wide: bool) -> Plan {
        let mut next = 0;
        for (key, _) in slots.filter_map(|at| self.entry(at)) {
            next = next.max(home(key.hash(), depth, capacity)) + 1;
        }
        Plan { capacity, slots: (capacity + slack(capacity)).max(next + slack(capacity)), wide }
    }

    /// Moves the entries of some slots into a bucket made by a plan for them.
    pub(super) fn move_to(&mut self, slots: std::ops::Range<usize>, plan: Plan, depth: u8) -> Self {
        let mut new = Self::new(plan, depth);
        let mut next = 0;
        for at in slots {
            let Some(handle) = self.handles.get(at) else { continue };
            let key = std::mem::replace(&mut self.keys[at], K::gap());
            self.handles.clear(at);
            self.len -= 1;
            next = next.max(home(key.hash(), depth, plan.capacity));
            new.keys[next] = key;
            new.handles.set(next, handle);
            new.len += 1;
            next += 1;
        }
        new
    }
}

/// The slot where a search for a hash starts: the bits behind the common ones, scaled.
#[inline]
fn home(hash: u64, depth: u8, capacity: usize) -> usize {
    ((u128::from(hash << depth) * capacity as u128) >> 64) as usize
}

/// Asks for the cache line of a value that is read soon.
#[inline]
pub(super) fn prefetch<T>(value: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is no access, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(value.cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_narrow_while_they_fit() {
        for handle in [0, 1, 0xFFFF, 0x1_0000_0000, 0xFFFF_0000_FFFE] {
            assert_eq!(narrow(handle).map(widen), Some(handle));
        }
        for handle in [0x1_0000, 0x1_0000_0000_0000, 0xFFFF_0000_FFFF] {
            assert_eq!(narrow(handle), None);
        }
        assert!(narrow(0x1_0000_0000) > narrow(0xFFFF));
    }
}
