//! Who waits for whom.
//!
//! A transaction does one thing at a time: it waits for one statement of another one, or for one table lock, that is
//! for all who have a lock in its way and for all who want one and came before. A cycle is found by following edges
//! from the wait that is about to begin. Whoever would close it is refused; all others go on once it has rolled back.
//!
//! An edge counts only while there is something to wait for: somebody who was released and has not run yet is no part
//! of a cycle. So whom a table lock waits for is looked up anew each time. That misses no cycle: whoever comes between
//! a waiter and its lock later had it in its way before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll};

use eris_storage::{Outcome, StatementNumber, TransactionId};

use super::manager::TransactionManager;
use super::object::TransactionObject;
use crate::lock::{Lock, lock};
use crate::table_locks::{TableLockMode, TableLocks};

/// What a transaction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Another one that changed a row.
    Transaction,
    /// The lock of a table.
    TableLock,
}

/// The waits-for graph.
#[derive(Debug, Default)]
pub(super) struct WaitsFor {
    waits: Lock<BTreeMap<TransactionId, Edges>>,
}

/// What a transaction waits for.
#[derive(Debug)]
enum Edges {
    Statement { holder: Arc<TransactionObject>, statement: StatementNumber },
    TableLock { locks: Arc<TableLocks>, mode: TableLockMode, ticket: u64 },
}

impl Edges {
    /// Whom it waits for by now.
    fn heads(&self) -> Vec<TransactionId> {
        match self {
            Self::Statement { holder, statement } => {
                let is_undecided = holder.outcome(*statement) == Outcome::Active;
                is_undecided.then_some(holder.id).into_iter().collect()
            }
            Self::TableLock { locks, ticket, .. } => locks.blockers(*ticket),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Statement { holder, statement } => {
                format!("statement {statement:?} of {}: {:?}", holder.id, holder.outcome(*statement))
            }
            Self::TableLock { locks, mode, ticket } => {
                let (mode, container) = (mode.name(), locks.container().0);
                format!("{mode} of container {container}, held or wanted by {:?}", locks.blockers(*ticket))
            }
        }
    }
}

impl WaitsFor {
    /// Adds a wait; false if it would close a cycle.
    fn add(&self, waiter: TransactionId, edges: Edges) -> bool {
        let mut waits = lock(&self.waits);
        let mut met = BTreeSet::new();
        let mut heads = edges.heads();
        while let Some(head) = heads.pop() {
            if head == waiter {
                return false;
            }
            if met.insert(head) {
                heads.extend(waits.get(&head).into_iter().flat_map(Edges::heads));
            }
        }
        let before = waits.insert(waiter, edges);
        assert!(before.is_none(), "a transaction waits for one thing at a time");
        true
    }

    fn remove(&self, waiter: TransactionId) {
        lock(&self.waits).remove(&waiter);
    }

    /// What a transaction waits for, unless that was released.
    pub(super) fn reason(&self, waiter: TransactionId) -> Option<WaitReason> {
        let waits = lock(&self.waits);
        let edges = waits.get(&waiter).filter(|edges| !edges.heads().is_empty())?;
        Some(match edges {
            Edges::Statement { .. } => WaitReason::Transaction,
            Edges::TableLock { .. } => WaitReason::TableLock,
        })
    }

    /// Each wait in words.
    pub(super) fn describe(&self) -> Vec<String> {
        let waits = lock(&self.waits);
        waits.iter().map(|(waiter, edges)| format!("transaction {waiter} waits for {}", edges.describe())).collect()
    }

    /// Transactions that wait.
    pub(super) fn count(&self) -> u64 {
        lock(&self.waits).len() as u64
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
        let edges = Edges::Statement { holder: Arc::clone(&holder), statement };
        manager.waits.add(waiter, edges).then(|| Self {
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

/// One transaction waiting for a table lock. Dropping it takes the request back.
#[derive(Debug)]
pub(crate) struct TableLockWait {
    manager: Arc<TransactionManager>,
    waiter: TransactionId,
    locks: Arc<TableLocks>,
    mode: TableLockMode,
    ticket: u64,
    is_over: bool,
}

impl TableLockWait {
    /// For a request that stands in the queue. None, and it is taken back: the wait would be for ever.
    pub fn begin(
        manager: &Arc<TransactionManager>,
        waiter: TransactionId,
        locks: &Arc<TableLocks>,
        mode: TableLockMode,
        ticket: u64,
    ) -> Option<Self> {
        let edges = Edges::TableLock { locks: Arc::clone(locks), mode, ticket };
        if !manager.waits.add(waiter, edges) {
            locks.give_up(waiter, mode, ticket);
            return None;
        }
        let (manager, locks) = (Arc::clone(manager), Arc::clone(locks));
        Some(Self { manager, waiter, locks, mode, ticket, is_over: false })
    }

    /// Ready when the lock is the transaction's, which gives it back from then on.
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let polled = self.locks.poll(self.ticket, context);
        self.is_over = polled.is_ready();
        polled
    }
}

impl Drop for TableLockWait {
    fn drop(&mut self) {
        self.manager.waits.remove(self.waiter);
        if !self.is_over {
            self.locks.give_up(self.waiter, self.mode, self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> [Arc<TransactionObject>; 4] {
        [1, 2, 3, 4].map(|id| Arc::new(TransactionObject::new(TransactionId(id))))
    }

    fn edge(holder: &Arc<TransactionObject>) -> Edges {
        Edges::Statement { holder: Arc::clone(holder), statement: StatementNumber(1) }
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

    #[test]
    fn a_cycle_goes_through_rows_and_tables() {
        let [one, two, three, _] = objects();
        let waits = WaitsFor::default();
        let locks = Arc::new(TableLocks::new(eris_storage::ContainerId(1), 1));
        let free = |requested| matches!(requested, crate::table_locks::Requested::Granted(_));
        let ask = |object: &TransactionObject| {
            locks.request(object.id, crate::table_locks::TableLockModes::NONE, TableLockMode::AccessExclusive, true)
        };
        assert!(free(ask(&three)));
        let crate::table_locks::Requested::Waits(ticket) = ask(&one) else { panic!("three has it") };
        let table = Edges::TableLock { locks: Arc::clone(&locks), mode: TableLockMode::AccessExclusive, ticket };
        assert!(waits.add(one.id, table) && waits.add(two.id, edge(&one)));
        assert!(!waits.add(three.id, edge(&two)), "three, two by a row, one by a row, three by its table lock");
    }
}
