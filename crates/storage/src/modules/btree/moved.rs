//! Pairs of rows that move: the leaves that their new addresses were put in are packed when all are there.

use super::node::Node;
use super::{NodeKey, Tree};

impl<K: NodeKey> Tree<K> {
    /// From now on pairs are those of rows that move.
    pub(in crate::modules) fn begin_moving(&mut self) {
        self.moved = Some(Vec::new());
    }

    /// The rows have moved, and the pairs of their old places are gone.
    pub(in crate::modules) fn end_moving(&mut self) {
        self.hint = None;
        for node in self.moved.take().into_iter().flatten() {
            // It may have been freed, and be anything now.
            if matches!(self.nodes[node as usize], Node::Leaf(_)) {
                self.pack(node);
            }
        }
    }

    /// A pair was put in a leaf.
    pub(super) fn note_moved(&mut self, leaf: u32) {
        if let Some(moved) = self.moved.as_mut().filter(|moved| moved.last() != Some(&leaf)) {
            moved.push(leaf);
        }
    }
}
