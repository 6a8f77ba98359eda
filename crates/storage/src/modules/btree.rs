//! A B+ tree of (key, handle) pairs, ordered by both; pairs are unique, keys need not be.
//!
//! ```text
//! inner:  s0 s1 s2        separators: child i+1 holds pairs >= s_i
//!        c0 c1 c2 c3
//! leaf:   keys k k k | handles h h h     prev <-> next
//! ```
//! * Keys and handles of a node are separate arrays: a search touches keys only. A node is one piece of memory whose
//!   keys are fetched together, so that the steps of the search do not wait for memory one after the other.
//! * Many searches at once descend level by level together: while one waits for its node the others search theirs.
//! * A full leaf that gets its new pair at the very end is not halved: the pair opens a new leaf, so ascending runs
//!   (bulk loads, rising keys) fill leaves completely. One that belongs between other pairs has the leaf cut where it
//!   is, not at the half, and then fills leaves in the same way.
//! * A leaf that such a run fills and leaves behind is packed if its keys are numbers of one width (`packed.rs`): two
//!   or three bytes a pair instead of twenty. An insert unpacks it; a removal does not. Leaves that got the new
//!   addresses of moved rows are packed when these are all there, however full: few inserts follow.
//! * The last leaf is remembered with the range of pairs that belong to it: the next pair of a sorted run goes there
//!   without a descent.
//! * A leaf is freed when it is empty; siblings are not merged. Deletes here are of dead versions whose keys live on,
//!   so leaves rarely stay sparse, and the code is a third of the size.
//!
//! Memory is reserved before a node is made; an insert that may split reserves for the whole path first, so that it
//! cannot fail half-way.

mod moved;
mod node;
mod packed;
#[cfg(test)]
mod tests;

use eris_platform::memory::{MemoryExceeded, Reservation};
use std::borrow::Cow;

use node::{Inner, Leaf, LeafRef, NODE_MAX, NONE, Node, lower_bound, prefetch, prefetch_all};
pub(super) use packed::NodeKey;
use packed::Packed;

/// Searches that run interleaved: more than a processor has cache misses under way at once, few enough that what was
/// fetched for one is still there when its turn comes (16 leaves are 8 KiB of keys).
pub(super) const SEEKS_MAX: usize = 16;

/// So many inserts in a row, each directly after the previous one, are a run of ascending pairs.
const RUN_MIN: usize = 8;

/// The leaf of the last insert, and which pairs belong there.
struct Hint<K> {
    leaf: u32,
    lower: Option<(K, u64)>,
    upper: Option<(K, u64)>,
}

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Whether the pair is new.
    pub new: bool,
    /// Whether another pair has the same key.
    pub key_shared: bool,
}

/// Where a pair is: a leaf and a position in it (which may be one past its end).
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    leaf: u32,
    at: usize,
}

/// See the module's documentation.
pub(super) struct Tree<K> {
    nodes: Vec<Node<K>>,
    free: Vec<u32>,
    root: u32,
    /// Inner levels above the leaves.
    height: usize,
    len: u64,
    hint: Option<Hint<K>>,
    /// Leaf and position of the last insert, ...
    last: (u32, usize),
    /// ... and how many inserts before it were each directly after the previous one.
    run: usize,
    /// While rows move: the leaves that pairs were put in.
    moved: Option<Vec<u32>>,
    memory: Reservation,
    /// Nodes reserved but not yet made.
    spare: usize,
}

/// The steps of a descent: inner node and which child.
type Path = Vec<(u32, usize)>;

/// The number of separators at or below (key, handle): which child.
fn child_of<K: Ord + Default>(inner: &Inner<K>, key: &K, handle: u64) -> usize {
    let at = lower_bound(inner.keys(), inner.handles(), key, handle);
    let equal = inner.keys().get(at).is_some_and(|other| other == key) && inner.handles[at] == handle;
    at + usize::from(equal)
}

impl<K: NodeKey> Tree<K> {
    pub(super) fn new(memory: Reservation) -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NONE,
            height: 0,
            len: 0,
            hint: None,
            last: (NONE, 0),
            run: 0,
            moved: None,
            memory,
            spare: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn memory(&self) -> &Reservation {
        &self.memory
    }

    fn node_bytes() -> u64 {
        (size_of::<Leaf<K>>().max(size_of::<Inner<K>>()) + size_of::<Node<K>>()) as u64
    }

    fn reserve_spare(&mut self, nodes: usize) -> Result<(), MemoryExceeded> {
        if self.spare < nodes {
            self.memory.grow((nodes - self.spare) as u64 * Self::node_bytes())?;
            self.spare = nodes;
        }
        Ok(())
    }

    fn make(&mut self, node: Node<K>) -> u32 {
        assert!(self.spare > 0, "a node is made only after its memory was reserved");
        self.spare -= 1;
        if let Some(free) = self.free.pop() {
            self.nodes[free as usize] = node;
            return free;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    fn free(&mut self, node: u32) {
        let bytes = match std::mem::replace(&mut self.nodes[node as usize], Node::Free) {
            Node::Packed(packed) => Self::packed_bytes(&packed),
            Node::Leaf(_) | Node::Inner(_) | Node::Free => Self::node_bytes(),
        };
        self.free.push(node);
        self.memory.shrink(bytes);
    }

    fn packed_bytes(packed: &Packed) -> u64 {
        packed.bytes() + size_of::<Node<K>>() as u64
    }

    /// Packs a leaf if that is worth it.
    fn pack(&mut self, node: u32) {
        let Some(packed) = Packed::of(self.leaf_mut(node)) else { return };
        self.memory.shrink(Self::node_bytes() - Self::packed_bytes(&packed));
        self.nodes[node as usize] = Node::Packed(packed);
    }

    /// Makes a leaf one that takes pairs.
    fn unpack(&mut self, node: u32) -> Result<(), MemoryExceeded> {
        if let Node::Packed(packed) = &self.nodes[node as usize] {
            self.memory.grow(Self::node_bytes() - Self::packed_bytes(packed))?;
            self.nodes[node as usize] = Node::Leaf(packed.unpack());
        }
        Ok(())
    }

    #[inline]
    fn leaf(&self, node: u32) -> LeafRef<'_, K> {
        match &self.nodes[node as usize] {
            Node::Leaf(leaf) => LeafRef::Open(leaf),
            Node::Packed(packed) => LeafRef::Packed(packed),
            Node::Inner(_) | Node::Free => unreachable!("node {node} is a leaf"),
        }
    }

    fn set_previous(&mut self, node: u32, previous: u32) {
        match &mut self.nodes[node as usize] {
            Node::Leaf(leaf) => leaf.previous = previous,
            Node::Packed(packed) => packed.set_previous(previous),
            Node::Inner(_) | Node::Free => unreachable!("node {node} is a leaf"),
        }
    }

    fn set_next(&mut self, node: u32, next: u32) {
        match &mut self.nodes[node as usize] {
            Node::Leaf(leaf) => leaf.next = next,
            Node::Packed(packed) => packed.set_next(next),
            Node::Inner(_) | Node::Free => unreachable!("node {node} is a leaf"),
        }
    }

    fn leaf_mut(&mut self, node: u32) -> &mut Leaf<K> {
        match &mut self.nodes[node as usize] {
            Node::Leaf(leaf) => leaf,
            Node::Packed(_) | Node::Inner(_) | Node::Free => unreachable!("node {node} is a leaf that takes pairs"),
        }
    }

    fn inner(&self, node: u32) -> &Inner<K> {
        match &self.nodes[node as usize] {
            Node::Inner(inner) => inner,
            Node::Leaf(_) | Node::Packed(_) | Node::Free => unreachable!("node {node} is an inner node"),
        }
    }

    fn inner_mut(&mut self, node: u32) -> &mut Inner<K> {
        match &mut self.nodes[node as usize] {
            Node::Inner(inner) => inner,
            Node::Leaf(_) | Node::Packed(_) | Node::Free => unreachable!("node {node} is an inner node"),
        }
    }

    /// The leaf for a pair.
    fn find_leaf(&self, key: &K, handle: u64) -> u32 {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = self.inner(node);
            node = inner.children[child_of(inner, key, handle)];
        }
        node
    }

    /// The leaf for a pair, the way to it, and the range of pairs that belong there.
    fn descend(&self, key: &K, handle: u64) -> (Path, Hint<K>) {
        let mut path = Path::with_capacity(self.height);
        let (mut lower, mut upper) = (None, None);
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = self.inner(node);
            let child = child_of(inner, key, handle);
            if child > 0 {
                lower = Some((inner.keys[child - 1].clone(), inner.handles[child - 1]));
            }
            if child < inner.keys().len() {
                upper = Some((inner.keys[child].clone(), inner.handles[child]));
            }
            path.push((node, child));
            node = inner.children[child];
        }
        (path, Hint { leaf: node, lower, upper })
    }

    fn hint_covers(&self, key: &K, handle: u64) -> Option<u32> {
        let hint = self.hint.as_ref()?;
        let above = hint.lower.as_ref().is_none_or(|(k, h)| (k, *h) <= (key, handle));
        let below = hint.upper.as_ref().is_none_or(|(k, h)| (key, handle) < (k, *h));
        (above && below && self.leaf(hint.leaf).len() < NODE_MAX).then_some(hint.leaf)
    }

    /// Adds a pair.
    pub(super) fn insert(&mut self, key: &K, handle: u64) -> Result<Placed, MemoryExceeded> {
        if let Some(leaf) = self.hint_covers(key, handle) {
            return Ok(self.insert_in_leaf(leaf, key, handle));
        }
        if self.root == NONE {
            self.reserve_spare(1)?;
            self.root = self.make(Node::Leaf(Leaf::new(NONE, NONE)));
        }
        let (path, hint) = self.descend(key, handle);
        let leaf = hint.leaf;
        self.leaf(leaf).prefetch();
        let at = self.leaf(leaf).lower_bound(key, handle);
        if self.is_at(leaf, at, key, handle) {
            return Ok(Placed { new: false, key_shared: true });
        }
        self.unpack(leaf)?;
        if self.leaf(leaf).len() < NODE_MAX {
            self.hint = Some(hint);
            return Ok(self.insert_in_leaf(leaf, key, handle));
        }
        self.reserve_spare(self.height + 2)?;
        self.hint = None;
        let right = self.split_leaf(leaf, self.cut(leaf, at));
        self.note_moved(leaf);
        self.note_moved(right);
        let (right_key, right_handle) = match self.leaf(right).first() {
            Some((first, first_handle)) => (first.into_owned(), first_handle),
            None => (key.clone(), handle),
        };
        let goes_right = (key, handle) >= (&right_key, right_handle);
        self.insert_separator(path, right_key, right_handle, right);
        let placed = self.insert_in_leaf(if goes_right { right } else { leaf }, key, handle);
        if at == NODE_MAX {
            self.pack(leaf);
        }
        Ok(placed)
    }

    /// Whether the pair at a position, if there is one, is this.
    fn is_at(&self, leaf: u32, at: usize, key: &K, handle: u64) -> bool {
        let leaf = self.leaf(leaf);
        at < leaf.len() && leaf.pair(at).is_some_and(|(other, found)| *other == *key && found == handle)
    }

    fn insert_in_leaf(&mut self, node: u32, key: &K, handle: u64) -> Placed {
        let leaf = self.leaf_mut(node);
        let at = lower_bound(leaf.keys(), leaf.handles(), key, handle);
        if leaf.keys().get(at).is_some_and(|other| other == key) && leaf.handles[at] == handle {
            return Placed { new: false, key_shared: true };
        }
        leaf.insert(at, key.clone(), handle);
        self.note_moved(node);
        self.len += 1;
        self.run = if self.last.0 == node && self.last.1 + 1 == at { self.run + 1 } else { 0 };
        self.last = (node, at);
        let Node::Leaf(leaf) = &self.nodes[node as usize] else { unreachable!("a leaf that takes pairs") };
        let has_key = |pair: Option<(Cow<'_, K>, u64)>| pair.is_some_and(|(other, _)| *other == *key);
        let before = if at > 0 {
            leaf.keys[at - 1] == *key
        } else {
            leaf.previous != NONE && has_key(self.leaf(leaf.previous).last())
        };
        let after = if at + 1 < leaf.len {
            leaf.keys[at + 1] == *key
        } else {
            leaf.next != NONE && has_key(self.leaf(leaf.next).first())
        };
        Placed { new: true, key_shared: before || after }
    }

    /// Where a full leaf is cut that gets a pair at position `at`.
    fn cut(&self, node: u32, at: usize) -> usize {
        let goes_on = self.last.0 == node && self.last.1 + 1 == at && self.run >= RUN_MIN;
        if at == NODE_MAX || goes_on { at } else { NODE_MAX / 2 }
    }

    /// Cuts a full leaf; gives the new right sibling.
    fn split_leaf(&mut self, node: u32, at: usize) -> u32 {
        let leaf = self.leaf_mut(node);
        let next = leaf.next;
        let mut right = Leaf::new(next, node);
        leaf.split_into(at, &mut right);
        let right = self.make(Node::Leaf(right));
        self.leaf_mut(node).next = right;
        if next != NONE {
            self.set_previous(next, right);
        }
        right
    }

    /// Enters a new right sibling into the parents, splitting them as needed.
    fn insert_separator(&mut self, mut path: Path, mut key: K, mut handle: u64, mut right: u32) {
        while let Some((node, child)) = path.pop() {
            let inner = self.inner_mut(node);
            if !inner.is_full() {
                inner.insert(child, key, handle, right);
                return;
            }
            let (up_key, up_handle, mut upper) = inner.split();
            let half = inner.len;
            if child < half {
                inner.insert(child, key, handle, right);
            } else {
                upper.insert(child - half, key, handle, right);
            }
            (key, handle) = (up_key, up_handle);
            right = self.make(Node::Inner(upper));
        }
        self.root = self.make(Node::Inner(Inner::new(self.root, key, handle, right)));
        self.height += 1;
    }

    /// Removes a pair; false if it was not there.
    pub(super) fn remove(&mut self, key: &K, handle: u64) -> bool {
        if self.root == NONE {
            return false;
        }
        let node = self.find_leaf(key, handle);
        let leaf = self.leaf(node);
        leaf.prefetch();
        let at = leaf.lower_bound(key, handle);
        if !self.is_at(node, at, key, handle) {
            return false;
        }
        let empty = match &mut self.nodes[node as usize] {
            Node::Packed(packed) => packed.remove(at),
            Node::Leaf(_) | Node::Inner(_) | Node::Free => {
                let leaf = self.leaf_mut(node);
                leaf.remove(at);
                leaf.len == 0
            }
        };
        self.len -= 1;
        if empty {
            let (path, _) = self.descend(key, handle);
            self.free_leaf(node, path);
        }
        true
    }

    fn free_leaf(&mut self, node: u32, mut path: Path) {
        self.hint = None;
        let (next, previous) = (self.leaf(node).next(), self.leaf(node).previous());
        if next != NONE {
            self.set_previous(next, previous);
        }
        if previous != NONE {
            self.set_next(previous, next);
        }
        self.free(node);
        while let Some((parent, child)) = path.pop() {
            let inner = self.inner_mut(parent);
            inner.remove(child);
            if inner.len == 0 {
                self.free(parent);
                continue;
            }
            self.collapse_root();
            return;
        }
        self.root = NONE;
        self.height = 0;
    }

    fn collapse_root(&mut self) {
        while self.height > 0 && self.inner(self.root).len == 1 {
            let only = self.inner(self.root).children[0];
            self.free(self.root);
            self.root = only;
            self.height -= 1;
        }
    }

    /// Where the first pair at or after (key, handle) is.
    pub(super) fn seek(&self, key: &K, handle: u64) -> Option<Position> {
        if self.root == NONE {
            return None;
        }
        let leaf = self.find_leaf(key, handle);
        let node = self.leaf(leaf);
        node.prefetch();
        Some(Position { leaf, at: node.lower_bound(key, handle) })
    }

    /// Where the first pairs at or after each of up to [`SEEKS_MAX`] keys are; none if the tree is empty. All descend
    /// one level at a time together, and what each needs next is fetched while the others search.
    pub(super) fn seek_many(&self, keys: &[K]) -> Option<impl Iterator<Item = Position> + use<K>> {
        assert!(keys.len() <= SEEKS_MAX, "{} interleaved searches", keys.len());
        if self.root == NONE {
            return None;
        }
        let mut nodes = [self.root; SEEKS_MAX];
        let mut found = [0; SEEKS_MAX];
        for _ in 0..self.height {
            for (key, (node, at)) in keys.iter().zip(nodes.iter().zip(&mut found)) {
                let inner = self.inner(*node);
                *at = child_of(inner, key, 0);
                prefetch(&raw const inner.children[*at]);
            }
            for (node, at) in nodes[..keys.len()].iter_mut().zip(&found) {
                *node = self.inner(*node).children[*at];
                prefetch(&raw const self.nodes[*node as usize]);
            }
            for node in &nodes[..keys.len()] {
                match &self.nodes[*node as usize] {
                    Node::Leaf(leaf) => {
                        prefetch(&raw const leaf.len);
                        leaf.prefetch();
                    }
                    Node::Packed(packed) => packed.prefetch(),
                    Node::Inner(inner) => {
                        prefetch(&raw const inner.len);
                        prefetch_all(&inner.keys);
                    }
                    Node::Free => unreachable!("node {node} is a child"),
                }
            }
        }
        for (key, (node, at)) in keys.iter().zip(nodes.iter().zip(&mut found)) {
            let leaf = self.leaf(*node);
            *at = leaf.first_at_or_above(key);
            if let LeafRef::Open(leaf) = leaf {
                prefetch(&raw const leaf.handles[(*at).min(NODE_MAX - 1)]);
            }
        }
        let count = keys.len();
        Some(nodes.into_iter().zip(found).take(count).map(|(leaf, at)| Position { leaf, at }))
    }

    /// Where one past the last pair is.
    pub(super) fn end(&self) -> Option<Position> {
        if self.root == NONE {
            return None;
        }
        let mut node = self.root;
        for _ in 0..self.height {
            node = match self.inner(node).children().last() {
                Some(last) => *last,
                None => unreachable!("an inner node has children"),
            };
        }
        Some(Position { leaf: node, at: self.leaf(node).len() })
    }

    /// The pair at a position or the first after it; moves the position behind it.
    #[inline]
    pub(super) fn next(&self, position: &mut Position) -> Option<(Cow<'_, K>, u64)> {
        loop {
            let leaf = self.leaf(position.leaf);
            while position.at < leaf.len() {
                position.at += 1;
                if let Some(pair) = leaf.pair(position.at - 1) {
                    return Some(pair);
                }
            }
            if leaf.next() == NONE {
                return None;
            }
            *position = Position { leaf: leaf.next(), at: 0 };
        }
    }

    /// The pair before a position; moves the position to it.
    pub(super) fn previous(&self, position: &mut Position) -> Option<(Cow<'_, K>, u64)> {
        loop {
            let leaf = self.leaf(position.leaf);
            while position.at > 0 {
                position.at -= 1;
                if let Some(pair) = leaf.pair(position.at) {
                    return Some(pair);
                }
            }
            if leaf.previous() == NONE {
                return None;
            }
            *position = Position { leaf: leaf.previous(), at: self.leaf(leaf.previous()).len() };
        }
    }

    /// About which share of the pairs is below a key, 0 to 1, if nodes of a level are alike.
    pub(super) fn rank(&self, key: &K) -> f64 {
        if self.root == NONE {
            return 0.0;
        }
        let (mut rank, mut share) = (0.0, 1.0);
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = self.inner(node);
            let child = child_of(inner, key, 0);
            share /= inner.len as f64;
            rank += share * child as f64;
            node = inner.children[child];
        }
        let leaf = self.leaf(node);
        rank + share * leaf.first_at_or_above(key) as f64 / leaf.len().max(1) as f64
    }

    /// First keys of up to `count` leaves at about equal distances.
    pub(super) fn sample(&self, count: usize) -> Vec<K> {
        let leaves: Vec<LeafRef<'_, K>> = self.leaves().collect();
        if leaves.len() >= count {
            let step = leaves.len().div_ceil(count.max(1));
            return leaves.iter().step_by(step).filter_map(LeafRef::first).map(|(key, _)| key.into_owned()).collect();
        }
        let pairs = leaves.iter().flat_map(|leaf| (0..leaf.len()).filter_map(|at| leaf.pair(at)));
        let step = (self.len as usize).div_ceil(count.max(1)).max(1);
        pairs.step_by(step).map(|(key, _)| key.into_owned()).collect()
    }

    fn leaves(&self) -> impl Iterator<Item = LeafRef<'_, K>> {
        let mut node = self.root;
        if node != NONE {
            for _ in 0..self.height {
                node = self.inner(node).children[0];
            }
        }
        std::iter::from_fn(move || {
            if node == NONE {
                return None;
            }
            let leaf = self.leaf(node);
            node = leaf.next();
            Some(leaf)
        })
    }
}
