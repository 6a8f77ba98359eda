//! COMMIT of a transaction that changed names: rows of the catalog, the engine's commit, the published version.
//!
//! ```text
//!   1. turn        one such commit at a time
//!   2. check       the changes are applied to what is published now: a name that was taken meanwhile fails here
//!   3. rows        the catalog's rows are written by the session's own transaction
//!   4. commit      of the engine: rows of tables and of the catalog, in one step
//!   5. publish     the version that was made in step 2
//!   6. turn ends   then containers and indexes that nobody names any more are dropped
//! ```
//! *What is published is committed*, because 5 follows 4. *What fails is not published*: an error in 2, 3 or 4 (a name,
//! a conflict, the log) rolls the transaction back, and nobody has seen its names. Between 4 and 5 the names are
//! committed and not yet visible; no client can tell, since the COMMIT is acknowledged after 5, and a process that ends
//! there finds them when it comes up.
//!
//! **Rows are written at the COMMIT, not by each statement.** Until then the names of a transaction are in its
//! [`Overlay`](super::Overlay) only, and ROLLBACK has nothing to take back here. Rows written earlier would be locked
//! for as long as the transaction is open: two blocks that create tables in opposite orders would wait for each other,
//! and a block that takes a name late would wait for one that may never end, where the conflict is found at the COMMIT
//! now.
//!
//! **Nobody waits for rows.** Only step 3 writes rows of tables, and the turn lasts until they are visible, so they
//! have no second writer. The transaction's snapshot may be older than the last turn; rows are therefore written in a
//! new one ([`eris_engine::Transaction::next_statement_now`]), as names are no part of a snapshot. Who has the turn
//! waits for nothing that another turn could hold: for partitions, and for the engine's commit. (Foreign keys that are
//! checked at the commit would wait for other transactions; SQL has none. They would have to be checked before step 1.)
//!
//! Steps 1 to 6 run in a task of their own, which goes on if the session ceases to wait.

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_engine::{CancelHandle, Engine, EngineError, Transaction};
use eris_storage::Timestamp;

use super::changes::CatalogChange;
use super::rows::{self, CatalogRow, TABLE};
use super::stored::definition_of;
use super::table::Table;
use super::version::{Catalog, CatalogVersion};
use crate::errors::SqlError;
use crate::plan::engine_error;

/// Commits a transaction and these changes of names: steps 1 to 5. On an error neither has happened. The table locks
/// are to be kept through step 6.
pub async fn commit_names(
    engine: &Engine,
    catalog: &Catalog,
    mut transaction: Transaction,
    changes: &[CatalogChange],
) -> Result<Timestamp, SqlError> {
    let turn = catalog.turn().await;
    let current = catalog.current();
    let mut next = CatalogVersion::clone(&current);
    changes.iter().try_for_each(|change| change.apply(&mut next))?;
    // A cancel that came late was meant for the last statement.
    transaction.set_cancel(CancelHandle::default());
    transaction.use_system_memory();
    transaction.next_statement_now();
    for write in writes(&current, &next, changes) {
        write.run(&mut transaction).await?;
    }
    let committed = transaction.commit().await.map_err(|error| engine_error(&error, None))?;
    let names_taken = |change: &CatalogChange| change.takes_place(&current);
    for container in changes.iter().filter(|change| names_taken(change)).filter_map(CatalogChange::made) {
        engine.container(container).iter().for_each(|container| container.set_visible_from(committed));
    }
    catalog.publish(&turn, next);
    Ok(committed)
}

/// What becomes of a table's row.
enum Write<'a> {
    Insert(&'a Arc<Table>),
    Update(&'a Arc<Table>),
    Delete(&'a Arc<Table>),
}

/// The difference between two versions, in the tables that the changes name. A name may be dropped and taken again.
fn writes<'a>(
    current: &'a CatalogVersion,
    next: &'a CatalogVersion,
    changes: &'a [CatalogChange],
) -> impl Iterator<Item = Write<'a>> {
    let names: BTreeSet<&str> = changes.iter().flat_map(CatalogChange::names).collect();
    names.into_iter().filter_map(|name| match (current.find(name), next.find(name)) {
        (None, None) => None,
        (None, Some(new)) => Some(Write::Insert(new)),
        (Some(old), None) => Some(Write::Delete(old)),
        (Some(old), Some(new)) => (!Arc::ptr_eq(old, new)).then_some(Write::Update(new)),
    })
}

impl Write<'_> {
    async fn run(self, transaction: &mut Transaction) -> Result<(), SqlError> {
        let failed = |error: EngineError| engine_error(&error, None);
        let row = |table: &Table| CatalogRow::new(TABLE, table.name.as_str(), definition_of(table));
        let (found, table) = match self {
            Self::Insert(table) => (rows::insert(transaction, row(table)).await.map(|()| true), table),
            Self::Update(table) => (rows::update(transaction, row(table)).await, table),
            Self::Delete(table) => (rows::delete(transaction, TABLE, &table.name).await, table),
        };
        if found.map_err(failed)? {
            return Ok(());
        }
        Err(SqlError::internal(format!("the catalog has no row of table \"{}\"", table.name)))
    }
}
