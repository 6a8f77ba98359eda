//! How a transaction begins: with a number and a published snapshot.

use std::sync::{Arc, OnceLock};

use eris_storage::StatementNumber;

use super::foreign_keys::Checks;
use super::table_locks::HeldTableLocks;
use super::{IsolationLevel, Transaction};
use crate::commit_log::Durability;
use crate::near::Near;
use crate::runtime::Runtime;
use crate::transactions::{SnapshotHandle, TransactionHold, TransactionManager, TransactionObject};

impl Transaction {
    pub(crate) fn begin(runtime: &Arc<Runtime>, level: IsolationLevel) -> Self {
        let (runtime, transactions) = runtime.near();
        let object = match level {
            IsolationLevel::ReadCommitted | IsolationLevel::RepeatableRead => transactions.begin(),
            IsolationLevel::Serializable => transactions.begin_tracked(&runtime.memory),
        };
        Self::of(runtime, &transactions, &object, level)
    }

    /// One whose snapshots are not revoked.
    pub(crate) fn begin_internal(runtime: &Arc<Runtime>) -> Self {
        let (runtime, transactions) = runtime.near();
        let object = transactions.begin_internal();
        Self::of(runtime, &transactions, &object, IsolationLevel::RepeatableRead)
    }

    fn of(
        runtime: Near<Runtime>,
        transactions: &Near<TransactionManager>,
        object: &Arc<TransactionObject>,
        level: IsolationLevel,
    ) -> Self {
        let statement = StatementNumber(1);
        let publish = || SnapshotHandle::publish(TransactionHold::new(transactions, object), statement);
        let snapshot = match object.tracked() {
            None => publish(),
            Some(tracked) => transactions.serializable.begin(tracked, publish, SnapshotHandle::visible),
        };
        Self {
            runtime,
            hold: TransactionHold::new(transactions, object),
            level,
            statement,
            snapshot: Some(Arc::new(snapshot)),
            operations: 0,
            exhausted: false,
            savepoints: Vec::new(),
            locks: HeldTableLocks::none(object.id),
            kept_locks: None,
            checks: Checks::default(),
            lock_timeout: None,
            parallelism: None,
            cancel: OnceLock::new(),
            bounded_memory: None,
            statement_memory: None,
            durability: Durability::default(),
            logged: false,
            ended: false,
        }
    }
}
