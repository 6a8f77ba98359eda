//! Table locks of statements: taken before a statement runs, in the modes that PostgreSQL takes, and kept by the
//! transaction. They are those of the tables that the statement names, whether or not its plan reads them.
//!
//! ```text
//!   plan --> lock its tables --> all there: run
//!     ^                `-- one was dropped or truncated while the lock was waited for
//!     `---------------------------'
//! ```
//! A container that another one takes the place of is dropped after the new name is published and before its lock is
//! given back. So whoever gets the lock of a container that is there has planned for the one that the name means.

use std::sync::Arc;

use eris_engine::{EngineError, TableLockMode};

use super::outcome::CommandTag;
use super::session::Session;
use super::statement::Planned;
use super::states::Step;
use crate::catalog::Table;
use crate::errors::{SqlError, SqlState};
use crate::front::TableName;
use crate::plan::engine_error;

/// What a statement locks, and how.
pub(super) type TableLock = (Arc<Table>, TableLockMode);

/// How a statement about a table waits for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Locking {
    /// In this mode.
    In(TableLockMode),
    /// The same, or not at all.
    NoWait(TableLockMode),
    /// Its rows go as a whole.
    ToReplace,
}

fn read(table: &Arc<Table>) -> TableLock {
    (Arc::clone(table), TableLockMode::AccessShare)
}

/// What a query locks that names these tables.
pub(super) fn locks_of_query<'t>(named: impl IntoIterator<Item = &'t Arc<Table>>) -> Box<[TableLock]> {
    named.into_iter().map(read).collect()
}

/// What a statement locks that writes a table and names these: the table first, and once, because its lock conflicts
/// with all that a reader's does.
pub(super) fn locks_of_write(table: &Arc<Table>, named: &[Arc<Table>]) -> Box<[TableLock]> {
    let others = named.iter().filter(|other| other.container() != table.container());
    std::iter::once((Arc::clone(table), TableLockMode::RowExclusive)).chain(others.map(read)).collect()
}

fn replaced_meanwhile(table: &str) -> SqlError {
    SqlError::serialization().detail(format!("Table \"{table}\" was dropped or truncated meanwhile."))
}

impl Session {
    /// A plan whose tables are locked, made again for as long as they are replaced under it.
    pub(super) async fn locked_plan(
        &mut self,
        make: impl Fn(&mut Self) -> Result<Arc<Planned>, SqlError>,
    ) -> Result<Arc<Planned>, SqlError> {
        let mut planned = make(self)?;
        while let Some(gone) = self.lock_tables(&planned.locks).await? {
            planned = make(self)?;
            // A transaction whose own names contradict those of others goes on seeing what it saw.
            if planned.locks.iter().any(|(table, _)| table.container() == gone.container()) {
                return Err(replaced_meanwhile(&gone.name));
            }
        }
        Ok(planned)
    }

    /// Locks tables for a statement that begins; the one that is gone, if one is.
    async fn lock_tables(&mut self, locks: &[TableLock]) -> Result<Option<Arc<Table>>, SqlError> {
        if locks.is_empty() {
            return Ok(None);
        }
        let transaction = self.transaction_for_locks();
        for (table, mode) in locks {
            match transaction.lock_table(table.container(), *mode).await {
                Ok(()) => {}
                Err(EngineError::NoSuchContainer(_)) => return Ok(Some(Arc::clone(table))),
                Err(error) => return Err(engine_error(&error, Some(table))),
            }
        }
        Ok(None)
    }

    /// Locks a table by its name; the version that the name means then.
    pub(super) async fn lock_named(
        &mut self,
        name: &TableName,
        if_exists: bool,
        locking: Locking,
    ) -> Result<Option<Arc<Table>>, SqlError> {
        let mut gone = None;
        while let Some(table) = self.table_named(name, if_exists)? {
            let container = table.container();
            if gone == Some(container) {
                return Err(replaced_meanwhile(&table.name));
            }
            let transaction = self.transaction_for_locks();
            let locked = match locking {
                Locking::In(mode) => transaction.lock_table(container, mode).await,
                Locking::NoWait(mode) => transaction.lock_table_now(container, mode),
                Locking::ToReplace => transaction.lock_to_replace(container).await,
            };
            match locked {
                Ok(()) => {
                    // It may have another index by now.
                    let now = self.table_named(name, if_exists)?;
                    if now.as_ref().is_some_and(|now| now.container() == container) {
                        return Ok(now);
                    }
                }
                Err(EngineError::NoSuchContainer(_)) => gone = Some(container),
                Err(error) => return Err(engine_error(&error, Some(&table))),
            }
        }
        Ok(None)
    }

    /// LOCK TABLE.
    pub(super) async fn lock_tables_named(
        &mut self,
        names: &[TableName],
        locking: Locking,
        step: Step,
    ) -> Result<CommandTag, SqlError> {
        if step == Step::Alone {
            let reason = "LOCK TABLE can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, reason));
        }
        for name in names {
            self.lock_named(name, false, locking).await?;
        }
        Ok(CommandTag::Done("LOCK TABLE"))
    }
}
