//! What crosses from node to node: counted where it is handed over, read by whoever wants to know what a placement
//! costs.
//!
//! ```text
//!                to node 0   1   2
//!   from node 0          .   x   x      x: messages, their bytes, appends to the other node's incoming buffer;
//!             1          x   .   x         batches that a task took whose node is not the one that made them
//!             2          x   x   .
//! ```
//! Messages inside a node are no traffic between nodes; [`crate::Event::LocalMessages`] counts them. Only the
//! coordinator of a node writes its row's message counts, so counting costs no contention.

use std::sync::atomic::{AtomicU64, Ordering};

use eris_platform::NodeId;

/// What went from one node to another so far; only pairs of different nodes have any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeTraffic {
    pub source: NodeId,
    pub target: NodeId,
    /// Messages, and their bytes with headers.
    pub messages: u64,
    pub message_bytes: u64,
    /// Appends to the target's incoming buffer: each carries all messages that waited for that node.
    pub transfers: u64,
    /// Batches of answers, and the bytes of their columns.
    pub answers: u64,
    pub answer_bytes: u64,
}

#[derive(Default)]
struct Cell {
    messages: AtomicU64,
    message_bytes: AtomicU64,
    transfers: AtomicU64,
    answers: AtomicU64,
    answer_bytes: AtomicU64,
}

/// The table.
pub(crate) struct Traffic {
    nodes: usize,
    /// Row by row.
    cells: Box<[Cell]>,
}

impl Traffic {
    pub fn new(nodes: usize) -> Self {
        Self { nodes, cells: std::iter::repeat_with(Cell::default).take(nodes * nodes).collect() }
    }

    fn cell(&self, source: NodeId, target: NodeId) -> &Cell {
        assert!((target.0 as usize) < self.nodes, "traffic goes to a node that there is");
        &self.cells[source.0 as usize * self.nodes + target.0 as usize]
    }

    pub fn sent(&self, source: NodeId, target: NodeId, messages: usize, bytes: usize) {
        let cell = self.cell(source, target);
        cell.messages.fetch_add(messages as u64, Ordering::Relaxed);
        cell.message_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn transferred(&self, source: NodeId, target: NodeId) {
        self.cell(source, target).transfers.fetch_add(1, Ordering::Relaxed);
    }

    pub fn answered(&self, source: NodeId, target: NodeId, bytes: u64) {
        let cell = self.cell(source, target);
        cell.answers.fetch_add(1, Ordering::Relaxed);
        cell.answer_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All pairs of nodes that had some, by source and target.
    pub fn read(&self) -> Vec<NodeTraffic> {
        let mut found = Vec::new();
        for (place, cell) in self.cells.iter().enumerate() {
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let traffic = NodeTraffic {
                source: NodeId((place / self.nodes) as u16),
                target: NodeId((place % self.nodes) as u16),
                messages: read(&cell.messages),
                message_bytes: read(&cell.message_bytes),
                transfers: read(&cell.transfers),
                answers: read(&cell.answers),
                answer_bytes: read(&cell.answer_bytes),
            };
            if traffic.messages + traffic.transfers + traffic.answers > 0 {
                assert!(traffic.source != traffic.target, "what stays on its node is no traffic between nodes");
                found.push(traffic);
            }
        }
        found
    }
}
