//! The nodes of the tree: arrays in one piece of memory, so that all of a node can be fetched at once.

use super::packed::{NodeKey, Packed};
use std::borrow::Cow;

/// Pairs of a leaf, and children of an inner node, at most. 64 eight-byte keys are eight cache lines: few enough to be
/// fetched at once, many enough that the inner levels stay in the cache.
pub(super) const NODE_MAX: usize = 64;
/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// Pairs, of which the first `len` places are in use; the keys behind are default.
pub(super) struct Leaf<K> {
    pub(super) len: usize,
    pub(super) next: u32,
    pub(super) previous: u32,
    pub(super) keys: [K; NODE_MAX],
    pub(super) handles: [u64; NODE_MAX],
}

impl<K: Default> Leaf<K> {
    pub(super) fn new(next: u32, previous: u32) -> Box<Self> {
        let keys = std::array::from_fn(|_| K::default());
        Box::new(Self { len: 0, next, previous, keys, handles: [0; NODE_MAX] })
    }

    pub(super) fn keys(&self) -> &[K] {
        &self.keys[..self.len]
    }

    pub(super) fn handles(&self) -> &[u64] {
        &self.handles[..self.len]
    }

    pub(super) fn insert(&mut self, at: usize, key: K, handle: u64) {
        self.keys[at..=self.len].rotate_right(1);
        self.keys[at] = key;
        self.handles.copy_within(at..self.len, at + 1);
        self.handles[at] = handle;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.keys[at..self.len].rotate_left(1);
        self.handles.copy_within(at + 1..self.len, at);
        self.len -= 1;
        self.keys[self.len] = K::default();
    }

    /// Moves the pairs from `at` on to the empty leaf `right`.
    pub(super) fn split_into(&mut self, at: usize, right: &mut Self) {
        for (from, to) in (at..self.len).zip(&mut right.keys) {
            *to = std::mem::take(&mut self.keys[from]);
        }
        right.len = self.len - at;
        right.handles[..right.len].copy_from_slice(&self.handles[at..self.len]);
        self.len = at;
    }

    /// Asks for all keys at once: a search that finds out line by line which one it needs would wait for each.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_all(&self.keys);
    }
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

/// Asks for all cache lines of some values.
#[inline]
pub(super) fn prefetch_all<T>(values: &[T]) {
    const LINE_BYTES: usize = 64;
    let start = values.as_ptr().cast::<u8>();
    for line in (0..size_of_val(values)).step_by(LINE_BYTES) {
        prefetch(start.wrapping_add(line));
    }
}

/// Children, of which the first `len` places are in use, and between each two of them the separator: the first pair of
/// the right one.
pub(super) struct Inner<K> {
    pub(super) len: usize,
    pub(super) keys: [K; NODE_MAX],
    pub(super) children: [u32; NODE_MAX],
    pub(super) handles: [u64; NODE_MAX],
}

impl<K: Default> Inner<K> {
    /// A node of two children.
    pub(super) fn new(left: u32, key: K, handle: u64, right: u32) -> Box<Self> {
        let mut inner = Self::empty();
        (inner.keys[0], inner.handles[0]) = (key, handle);
        (inner.children[0], inner.children[1]) = (left, right);
        inner.len = 2;
        inner
    }

    pub(super) fn empty() -> Box<Self> {
        let keys = std::array::from_fn(|_| K::default());
        Box::new(Self { len: 0, keys, children: [NONE; NODE_MAX], handles: [0; NODE_MAX] })
    }

    pub(super) fn children(&self) -> &[u32] {
        &self.children[..self.len]
    }

    pub(super) fn keys(&self) -> &[K] {
        &self.keys[..self.len - 1]
    }

    pub(super) fn handles(&self) -> &[u64] {
        &self.handles[..self.len - 1]
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == NODE_MAX
    }

    /// Adds the right sibling of the child at `child`, and the separator between them. There is room.
    pub(super) fn insert(&mut self, child: usize, key: K, handle: u64, right: u32) {
        let last = self.len - 1;
        self.keys[child..=last].rotate_right(1);
        self.keys[child] = key;
        self.handles.copy_within(child..last, child + 1);
        self.handles[child] = handle;
        self.children.copy_within(child + 1..self.len, child + 2);
        self.children[child + 1] = right;
        self.len += 1;
    }

    /// Takes out a child and a separator beside it.
    pub(super) fn remove(&mut self, child: usize) {
        self.children.copy_within(child + 1..self.len, child);
        self.len -= 1;
        if self.len > 0 {
            let separator = child.saturating_sub(1);
            self.keys[separator..self.len].rotate_left(1);
            self.handles.copy_within(separator + 1..self.len, separator);
            self.keys[self.len - 1] = K::default();
        }
    }

    /// Moves the upper half to a new right sibling; gives the separator between the two.
    pub(super) fn split(&mut self) -> (K, u64, Box<Self>) {
        let half = self.len / 2;
        let mut right = Self::empty();
        right.len = self.len - half;
        right.children[..right.len].copy_from_slice(&self.children[half..self.len]);
        for (from, to) in (half..self.len - 1).zip(&mut right.keys) {
            *to = std::mem::take(&mut self.keys[from]);
        }
        right.handles[..right.len - 1].copy_from_slice(&self.handles[half..self.len - 1]);
        self.len = half;
        (std::mem::take(&mut self.keys[half - 1]), self.handles[half - 1], right)
    }
}

pub(super) enum Node<K> {
    Leaf(Box<Leaf<K>>),
    Packed(Packed),
    Inner(Box<Inner<K>>),
    Free,
}

/// A leaf of either form. Positions of a packed one include pairs that were removed.
pub(super) enum LeafRef<'a, K> {
    Open(&'a Leaf<K>),
    Packed(&'a Packed),
}

impl<'a, K: NodeKey> LeafRef<'a, K> {
    /// Positions.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Open(leaf) => leaf.len,
            Self::Packed(_) => NODE_MAX,
        }
    }

    pub(super) fn previous(&self) -> u32 {
        match self {
            Self::Open(leaf) => leaf.previous,
            Self::Packed(packed) => packed.previous(),
        }
    }

    pub(super) fn next(&self) -> u32 {
        match self {
            Self::Open(leaf) => leaf.next,
            Self::Packed(packed) => packed.next(),
        }
    }

    /// The pair at a position; none if it was removed.
    #[inline]
    pub(super) fn pair(&self, at: usize) -> Option<(Cow<'a, K>, u64)> {
        match self {
            Self::Open(leaf) => Some((Cow::Borrowed(&leaf.keys[at]), leaf.handles[at])),
            Self::Packed(packed) => packed.has(at).then(|| (Cow::Owned(packed.key(at)), packed.handle(at))),
        }
    }

    pub(super) fn first(&self) -> Option<(Cow<'a, K>, u64)> {
        (0..self.len()).find_map(|at| self.pair(at))
    }

    pub(super) fn last(&self) -> Option<(Cow<'a, K>, u64)> {
        (0..self.len()).rev().find_map(|at| self.pair(at))
    }

    /// The first position whose key is not below this one.
    #[inline]
    pub(super) fn first_at_or_above(&self, key: &K) -> usize {
        match self {
            Self::Open(leaf) => leaf.keys().partition_point(|other| other < key),
            Self::Packed(packed) => packed.first_at_or_above(key),
        }
    }

    /// The first position whose pair is not below (key, handle).
    #[inline]
    pub(super) fn lower_bound(&self, key: &K, handle: u64) -> usize {
        match self {
            Self::Open(leaf) => lower_bound(leaf.keys(), leaf.handles(), key, handle),
            Self::Packed(packed) => {
                let first = packed.first_at_or_above(key);
                let below = |at: &usize| packed.handle(*at) < handle && packed.key::<K>(*at) == *key;
                first + (first..NODE_MAX).take_while(below).count()
            }
        }
    }

    /// Asks for what a search in it needs.
    #[inline]
    pub(super) fn prefetch(&self) {
        match self {
            Self::Open(leaf) => leaf.prefetch(),
            Self::Packed(packed) => packed.prefetch(),
        }
    }
}

/// The first position whose pair is not below (key, handle).
pub(super) fn lower_bound<K: Ord>(keys: &[K], handles: &[u64], key: &K, handle: u64) -> usize {
    let first = keys.partition_point(|other| other < key);
    if first == keys.len() || keys[first] != *key || handles[first] >= handle {
        return first;
    }
    let run = keys[first..].partition_point(|other| other == key);
    first + handles[first..first + run].partition_point(|other| *other < handle)
}
