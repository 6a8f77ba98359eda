//! Who waits for whom.
//!
//! A transaction does one thing at a time, so it waits for at most one statement of another one: the graph has at most
//! one edge out of each transaction, and a cycle is found by following edges from the one that is about to be added.
//! Whoever would close it is refused; all others go on once it has rolled back.
//!
//! An edge counts only while the statement it points to is undecided: somebody who was released and has not run yet
//! is no part of a cycle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use eris_storage::{Outcome, StatementNumber, TransactionId};

use super::manager::TransactionManager;
use super::object::TransactionObject;
use crate::lock::{Lock, lock};

/// The waits-for graph.
#[derive(Debug, Default)]
pub(super) struct WaitsFor {
    edges: Lock<BTreeMap<TransactionId, Edge>>,
}

#[derive(Debug)]
struct Edge {
    holder: Arc<TransactionObject>,
    statement: StatementNumber,
}

impl Edge {
    fn is_undecided(&self) -> bool {
        self.holder.outcome(self.statement) == Outcome::Active
    }
}

impl WaitsFor {
    /// Adds an edge; false if it would close a cycle.
    fn add(&self, waiter: TransactionId, edge: Edge) -> bool {
        let mut edges = lock(&self.edges);
        let mut at = edge.holder.id;
        while let Some(next) = edges.get(&at).filter(|next| next.is_undecided()) {
            if next.holder.id == waiter {
                return false;
            }
            at = next.holder.id;
        }
        let before = edges.insert(waiter, edge);
        assert!(before.is_none(), "a transaction waits for one other at a time");
        true
    }

    fn remove(&self, waiter: TransactionId) {
        lock(&self.edges).remove(&waiter);
    }

    /// Whom a transaction waits for.
    pub(super) fn holder(&self, waiter: TransactionId) -> Option<TransactionId> {
        lock(&self.edges).get(&waiter).map(|edge| edge.holder.id)
    }

    /// Each wait in words.
    pub(super) fn describe(&self) -> Vec<String> {
        let describe = |(waiter, edge): (&TransactionId, &Edge)| {
            let outcome = edge.holder.outcome(edge.statement);
            format!("transaction {waiter} waits for statement {:?} of {}: {outcome:?}", edge.statement, edge.holder.id)
        };
        lock(&self.edges).iter().map(describe).collect()
    }

    /// Transactions that wait.
    pub(super) fn count(&self) -> u64 {
        lock(&self.edges).len() as u64
    }
}

/// One transaction waiting for a statement of another. Dropping it ends the wait and leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Wait {
    manager: Arc<TransactionManager>,
    waiter: TransactionId,
    holder: Arc<TransactionObject>,
    statement: StatementNumber,
    ticket: Option<u64>,
}

impl Wait {
    /// None: the wait would be for ever.
    pub fn begin(
        manager: &Arc<TransactionManager>,
        waiter: TransactionId,
        holder: Arc<TransactionObject>,
        statement: StatementNumber,
    ) -> Option<Self> {
        assert!(waiter != holder.id, "nobody waits for itself");
        let edge = Edge { holder: Arc::clone(&holder), statement };
        manager.waits.add(waiter, edge).then(|| Self {
            manager: Arc::clone(manager),
            waiter,
            holder,
            statement,
            ticket: None,
        })
    }

    /// Ready when the statement is decided.
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        // Registered first, then looked: whoever decides after this look wakes the waker.
        self.ticket = Some(self.holder.add_waiter(self.ticket, context.waker()));
        if self.holder.outcome(self.statement) == Outcome::Active { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.manager.waits.remove(self.waiter);
        if let Some(ticket) = self.ticket {
            self.holder.remove_waiter(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> [Arc<TransactionObject>; 4] {
        [1, 2, 3, 4].map(|id| Arc::new(TransactionObject::new(TransactionId(id))))
    }

    fn edge(holder: &Arc<TransactionObject>) -> Edge {
        Edge { holder: Arc::clone(holder), statement: StatementNumber(1) }
    }

    #[test]
    fn the_edge_that_closes_a_cycle_is_refused() {
        let [one, two, three, four] = objects();
        let waits = WaitsFor::default();
        assert!(waits.add(one.id, edge(&two)) && waits.add(two.id, edge(&three)) && waits.add(four.id, edge(&one)));
        assert!(!waits.add(three.id, edge(&four)), "three, four, one, two, three");
        assert!(!waits.add(three.id, edge(&one)), "three, one, two, three");
        assert_eq!(waits.count(), 3, "a refused edge is not there");
    }

    #[test]
    fn a_statement_that_was_rolled_back_holds_nobody() {
        let [one, two, ..] = objects();
        let waits = WaitsFor::default();
        assert!(waits.add(one.id, edge(&two)));
        // One has not run since, but it will find its way free.
        two.void(StatementNumber(1)..=StatementNumber(1));
        assert!(waits.add(two.id, edge(&one)));
    }
}
