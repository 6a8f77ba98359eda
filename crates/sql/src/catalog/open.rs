//! Opening a database: what its rows say becomes the first version of the catalog.
//!
//! 1. Read all rows and make tables of them. One that cannot be understood ends it, and nothing has been changed.
//! 2. Drop what an earlier process left behind: containers of SQL that no table names, with their records, and indexes
//!    that no table names.
//! 3. Publish.
//!
//! An engine has one database at a time: step 2 would drop what an open transaction of another one has made.

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_engine::{Engine, EngineError};
use eris_storage::ContainerId;

use super::changes::add;
use super::containers;
use super::rows::{self, CATALOG, CATALOG_CONTAINER, CONTAINER, CatalogRow, TABLE};
use super::settle::settle_table;
use super::stored::{broken, catalog_definition, check_catalog, table_of};
use super::version::{Catalog, CatalogVersion};
use crate::errors::{SqlError, SqlState};
use crate::plan::engine_error;

/// The name of the catalog's own row.
const FORMAT_ROW: &str = "format";

/// What the rows say.
#[derive(Default)]
struct Known {
    version: CatalogVersion,
    /// Containers that SQL made.
    recorded: Vec<ContainerId>,
    /// Containers that a table has.
    named: BTreeSet<ContainerId>,
}

/// Fills the catalog of a database that is being opened. On a fresh engine it makes the catalog's container.
pub async fn open(engine: &Engine, catalog: &Catalog) -> Result<(), SqlError> {
    let failed = |error: EngineError| engine_error(&error, None);
    rows::open_container(engine)?;
    let mut transaction = engine.begin_internal();
    let found = rows::read_all(&mut transaction).await.map_err(failed)?;
    if found.is_empty() {
        let row = CatalogRow::new(CATALOG, FORMAT_ROW, catalog_definition());
        rows::insert(&mut transaction, row).await.map_err(failed)?;
        return transaction.commit().await.map(drop).map_err(failed);
    }
    transaction.rollback();
    let known = understand(engine, found)?;

    let mut gone = Vec::new();
    for container in known.recorded.into_iter().filter(|container| !known.named.contains(container)) {
        match engine.drop_container(container) {
            Ok(()) | Err(EngineError::NoSuchContainer(_)) => gone.push(container),
            // Others refer to it: it stays on record.
            Err(_) => {}
        }
    }
    if !gone.is_empty() {
        // Without room for that they stay on record until the database is opened again.
        let written = containers::write(engine, None, &gone).await.map_err(failed);
        if let Err(error) = written
            && error.sqlstate != SqlState::DISK_FULL
        {
            return Err(error);
        }
    }
    for table in known.version.tables() {
        settle_table(engine, table).await;
    }
    let turn = catalog.turn().await;
    catalog.publish(&turn, known.version);
    Ok(())
}

/// Each row is given back once it is understood: all of them, beside the tables made of them, would be more than the
/// database held while it ran.
fn understand(engine: &Engine, found: Vec<CatalogRow>) -> Result<Known, SqlError> {
    // First, because it says what the others may look like.
    match found.iter().find(|row| &*row.kind == CATALOG && &*row.name == FORMAT_ROW) {
        Some(row) => check_catalog(&row.kind, &row.name, &row.definition)?,
        None => return Err(broken(CATALOG, FORMAT_ROW, "It is missing")),
    }
    let mut known = Known::default();
    for CatalogRow { kind, name, definition } in found {
        match &*kind {
            CATALOG if &*name == FORMAT_ROW => {}
            CONTAINER => match name.parse() {
                Ok(id) if ContainerId(id) != CATALOG_CONTAINER => known.recorded.push(ContainerId(id)),
                _ => return Err(broken(&kind, &name, "Its name is no number of a container of SQL")),
            },
            TABLE => {
                let table = Arc::new(table_of(&name, &definition, |id| engine.container(id), engine.memory())?);
                if !known.named.insert(table.container()) {
                    let id = table.container().0;
                    return Err(broken(&kind, &name, format!("Another table has its container {id}")));
                }
                add(&mut known.version, &table).map_err(|error| broken(&kind, &name, error.message))?;
            }
            _ => return Err(broken(&kind, &name, "This version of ERIS knows nothing of that kind")),
        }
    }
    Ok(known)
}
