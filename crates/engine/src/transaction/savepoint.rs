//! Rolling back a part of a transaction.
//!
//! A savepoint is the number of the first statement behind it. Rolling back to it makes the numbers from there to the
//! current one void: their words count as aborted from that moment on, for everybody, this transaction included, and
//! whoever waits for one of them goes on. It costs the same however much was written.

use eris_storage::{StatementNumber, TransactionId};

use super::Transaction;
use crate::error::EngineError;

/// A place in a transaction to which it may be rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Savepoint {
    transaction: TransactionId,
    /// The first statement behind it: no two savepoints have the same.
    first: StatementNumber,
}

impl Transaction {
    /// Marks this place. What was written before is visible to the statements that follow.
    pub fn savepoint(&mut self) -> Savepoint {
        self.next_statement();
        // Without numbers for further statements nothing can come behind it.
        let first = StatementNumber(self.statement.0 + u32::from(self.exhausted));
        self.savepoints.push(first);
        if let Some(tracked) = self.hold.object().tracked() {
            tracked.mark_savepoint();
        }
        Savepoint { transaction: self.id(), first }
    }

    /// Takes back what was written behind the savepoint, and lets go of the rows and tables locked there. The savepoint
    /// stays, later ones are gone.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<(), EngineError> {
        let position = self.find(savepoint)?;
        self.savepoints.truncate(position + 1);
        if savepoint.first <= self.statement {
            self.hold.object().void(savepoint.first..=self.statement);
        }
        self.locks.release_from(savepoint.first);
        self.next_statement();
        Ok(())
    }

    /// Forgets the savepoint and later ones; what was written behind it stays.
    pub fn release(&mut self, savepoint: &Savepoint) -> Result<(), EngineError> {
        let position = self.find(savepoint)?;
        self.savepoints.truncate(position);
        Ok(())
    }

    fn find(&self, savepoint: &Savepoint) -> Result<usize, EngineError> {
        let own = savepoint.transaction == self.id();
        let position = self.savepoints.iter().position(|first| own && *first == savepoint.first);
        position.ok_or(EngineError::NoSuchSavepoint)
    }
}
