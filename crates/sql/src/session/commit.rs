//! The end of a transaction: data, names and settings together, see [`crate::catalog::commit_names`] for the order.

use eris_engine::{CancelHandle, KeptTableLocks, Transaction};
use eris_storage::Timestamp;
use tokio::sync::oneshot;

use super::observer::EndedTransaction;
use super::session::Session;
use crate::catalog::{CatalogChange, IndexClaim, commit_names, settle_indexes};
use crate::database::Database;
use crate::errors::SqlError;
use crate::plan::engine_error;

impl Session {
    /// Commits data, names and settings, or takes all of them back.
    pub(super) async fn commit(&mut self) -> Result<(), SqlError> {
        self.read_only = None;
        self.level = None;
        let committed = if self.overlay.is_empty() { self.commit_data().await } else { self.commit_with_names().await };
        match committed {
            Ok(()) => {
                if let Some((_, committed)) = self.saved_settings.take() {
                    self.settings = committed;
                    self.tell_name();
                }
            }
            Err(_) => self.roll_back(),
        }
        committed
    }

    async fn commit_data(&mut self) -> Result<(), SqlError> {
        let mut committed = Ok(());
        if let Some(mut transaction) = self.transaction.take() {
            let locks = self.locks_until_settled(&mut transaction);
            let snapshot = transaction.snapshot_timestamp();
            transaction.set_durability(self.settings.durability());
            // A cancel that comes too late for the last statement does not hit the commit behind it.
            transaction.set_cancel(CancelHandle::default());
            let ended = transaction.commit().await;
            self.tell_end(snapshot, ended.as_ref().ok().copied());
            committed = ended.map(drop).map_err(|error| engine_error(&error, None));
            self.begin_to_settle(locks);
        }
        self.settle().await;
        committed
    }

    async fn commit_with_names(&mut self) -> Result<(), SqlError> {
        let engine = self.database.engine().clone();
        let mut transaction = self.transaction.take().unwrap_or_else(|| engine.begin());
        transaction.set_durability(self.settings.durability());
        let snapshot = transaction.snapshot_timestamp();
        let names = Names {
            database: self.database.clone(),
            changes: self.overlay.take(),
            claims: std::mem::take(&mut self.claims),
        };
        let (sender, receiver) = oneshot::channel();
        // A task of its own: if the session ceased to wait in the middle, names could be committed and not published.
        engine.spawn(async move {
            let _ = sender.send(names.commit(transaction).await);
        });
        let lost = |_| Err(engine_error(&eris_engine::EngineError::ShuttingDown, None));
        let committed = receiver.await.unwrap_or_else(lost);
        self.tell_end(snapshot, committed.as_ref().ok().copied());
        committed.map(drop)
    }

    /// Of data; names and settings may follow.
    fn tell_end(&self, snapshot: Timestamp, committed: Option<Timestamp>) {
        self.activity.clear_transaction();
        if let Some(observer) = self.database.observer() {
            observer.transaction_ended(&EndedTransaction { session: &self.options, snapshot, committed });
        }
    }

    /// Takes data, names and settings back.
    pub(super) fn roll_back(&mut self) {
        self.read_only = None;
        self.level = None;
        if let Some((before, _)) = self.saved_settings.take() {
            self.settings = before;
            self.tell_name();
        }
        let mut locks = None;
        if let Some(mut transaction) = self.transaction.take() {
            locks = self.locks_until_settled(&mut transaction);
            let snapshot = transaction.snapshot_timestamp();
            transaction.rollback();
            self.tell_end(snapshot, None);
        }
        let changes = self.overlay.take();
        drop_containers(&self.database, changes.iter().filter_map(CatalogChange::made));
        self.begin_to_settle(locks);
    }

    /// The table locks of a transaction that changes indexes: others use the tables when the partitions have no index
    /// that the tables do not name.
    fn locks_until_settled(&self, transaction: &mut Transaction) -> Option<KeptTableLocks> {
        (!self.claims.is_empty()).then(|| transaction.keep_locks())
    }

    /// Has the partitions drop what the transaction that has ended had built and did not commit, or dropped. Then its
    /// locks are given back. A task of its own does it, as the session may have nothing else to do.
    fn begin_to_settle(&mut self, locks: Option<KeptTableLocks>) {
        if self.claims.is_empty() {
            return;
        }
        let (database, claims) = (self.database.clone(), std::mem::take(&mut self.claims));
        let (sender, receiver) = oneshot::channel();
        self.database.engine().spawn(async move {
            settle_indexes(database.engine(), database.catalog(), claims).await;
            drop(locks);
            let _ = sender.send(());
        });
        self.settling = Some(receiver);
    }

    /// Returns when that is done.
    pub(super) async fn settle(&mut self) {
        if let Some(settled) = self.settling.take() {
            // It is dropped when the engine shuts down.
            let _ = settled.await;
        }
    }
}

/// What a transaction changes beside data.
struct Names {
    database: Database,
    changes: Vec<CatalogChange>,
    claims: Vec<IndexClaim>,
}

impl Names {
    /// Commits, then drops what nobody names any more.
    async fn commit(self, mut transaction: Transaction) -> Result<Timestamp, SqlError> {
        let Self { database, changes, claims } = self;
        // Transactions that wait for the tables see the published names.
        let _locks = transaction.keep_locks();
        let committed = commit_names(database.engine(), database.catalog(), transaction, &changes).await;
        let unnamed = if committed.is_ok() { CatalogChange::replaced } else { CatalogChange::made };
        drop_containers(&database, changes.iter().filter_map(unnamed));
        settle_indexes(database.engine(), database.catalog(), claims).await;
        committed
    }
}

fn drop_containers(database: &Database, containers: impl Iterator<Item = eris_storage::ContainerId>) {
    for container in containers {
        database.catalog().containers().drop(database.engine(), container);
        database.statistics().forget(container);
    }
}
