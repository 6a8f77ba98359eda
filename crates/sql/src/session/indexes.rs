//! CREATE INDEX and DROP INDEX.
//!
//! ```text
//!   CREATE INDEX   partitions build it now -> named in the overlay -> COMMIT publishes the name
//!                                                                  -> ROLLBACK: partitions drop it
//!   DROP INDEX     unnamed in the overlay -> COMMIT publishes, then partitions drop it
//! ```
//! Either way a transaction ends with [`crate::catalog::settle_indexes`]: whatever the partitions have beyond the
//! published table goes.

use std::sync::Arc;

use eris_engine::{Engine, TableLockMode};
use eris_storage::{ContainerId, IndexDefinition, Schema, SchemaVersion};

use super::outcome::CommandTag;
use super::session::Session;
use super::table_locks::Locking;
use crate::catalog::{CatalogChange, CatalogVersion, Table, index_of_columns, suggestions};
use crate::errors::{SqlError, SqlState};
use crate::front::{CreateIndexCommand, TableName};
use crate::plan::engine_error;

impl Session {
    /// The right to change a table's indexes until the transaction ends.
    fn claim_indexes(&mut self, container: ContainerId) -> Result<(), SqlError> {
        if self.claims.iter().any(|claim| claim.container() == container) {
            return Ok(());
        }
        match self.database.catalog().index_claims().claim(container) {
            Some(claim) => {
                self.claims.push(claim);
                Ok(())
            }
            None => Err(SqlError::serialization().detail("Another transaction is changing indexes of the table.")),
        }
    }

    pub(super) async fn create_index(&mut self, create: &CreateIndexCommand) -> Result<CommandTag, SqlError> {
        // PostgreSQL takes SHARE, so that several are built at the same time; here one after another.
        let locking = Locking::In(TableLockMode::ShareRowExclusive);
        let locked = self.lock_named(&create.table, false, locking).await?;
        let catalog = self.overlay.version(self.database.catalog())?;
        let Some(old) = locked else { return Err(SqlError::internal("a table that is locked")) };
        let named = create.name.clone().unwrap_or_else(|| free_name(create, &old, &catalog));
        if catalog.is_taken(&named) {
            if create.if_not_exists {
                self.already_exists(&named);
                return Ok(CommandTag::Done("CREATE INDEX"));
            }
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{named}\" already exists")));
        }
        self.claim_indexes(old.container())?;
        let engine = self.database.engine().clone();
        let stored = stored_schema(&engine, &old)?;
        let definition = index_of_columns(create, &old, &named, &stored)?;
        let schema = Schema {
            version: SchemaVersion(stored.version.0 + 1),
            indexes: stored.indexes.iter().chain([&definition]).cloned().collect(),
            ..Schema::clone(&stored)
        };
        let new = Arc::new(old.with_index(definition.clone(), engine.memory())?);
        let built = self.transaction().create_index(definition, Arc::new(schema)).await;
        built.map_err(|error| not_built(engine_error(&error, Some(&new)), &named))?;
        self.overlay.add(self.database.catalog(), CatalogChange::Replace { old, new })?;
        Ok(CommandTag::Done("CREATE INDEX"))
    }

    pub(super) async fn drop_index(&mut self, names: &[TableName], if_exists: bool) -> Result<CommandTag, SqlError> {
        for (at, name) in names.iter().enumerate() {
            // One that is named twice is dropped once. Where the first was skipped, so is this.
            let is_same = |other: &TableName| other.name == name.name && other.is_public() && name.is_public();
            if names[..at].iter().any(is_same) {
                continue;
            }
            let mut catalog = self.overlay.version(self.database.catalog())?;
            if let Some(table) = catalog.table_of_index(&name.name).filter(|_| name.is_public()) {
                let table = TableName { schema: None, name: table.name.clone() };
                self.lock_named(&table, true, Locking::In(TableLockMode::AccessExclusive)).await?;
                catalog = self.overlay.version(self.database.catalog())?;
            }
            let Some(old) = catalog.table_of_index(&name.name).filter(|_| name.is_public()).map(Arc::clone) else {
                if if_exists && !catalog.is_taken(&name.name) {
                    self.skipped("index", name);
                    continue;
                }
                return Err(no_such_index(name, &catalog));
            };
            let kept: Box<[IndexDefinition]> =
                old.schema.indexes.iter().filter(|index| *index.name != *name.name).cloned().collect();
            if old.constraints().any(|index| *index.name == *name.name) {
                return Err(SqlError::new(
                    SqlState::DEPENDENT_OBJECTS,
                    format!(
                        "cannot drop index {0} because constraint {0} on table {1} requires it",
                        name.name, old.name
                    ),
                )
                .hint("Constraints stay as long as their table."));
            }
            self.claim_indexes(old.container())?;
            let new = Arc::new(old.with_indexes(kept));
            self.overlay.add(self.database.catalog(), CatalogChange::Replace { old, new })?;
        }
        Ok(CommandTag::Done("DROP INDEX"))
    }
}

/// A key that is there twice, in the words for a new index.
fn not_built(mut error: SqlError, name: &str) -> SqlError {
    if error.sqlstate == SqlState::UNIQUE {
        error.message = format!("could not create unique index \"{name}\"");
        error.detail = error.detail.map(|detail| detail.replace("already exists", "is duplicated"));
    }
    error
}

/// The schema that the partitions are at.
fn stored_schema(engine: &Engine, table: &Table) -> Result<Arc<Schema>, SqlError> {
    match engine.container(table.container()) {
        Some(container) => Ok(container.schema()),
        None => Err(SqlError::serialization().detail(format!("Table \"{}\" was dropped meanwhile.", table.name))),
    }
}

/// `table_column_idx`, with a number behind it if that is taken.
fn free_name(create: &CreateIndexCommand, table: &Table, catalog: &CatalogVersion) -> String {
    let base = format!("{}_{}_idx", table.name, create.columns.join("_"));
    let mut name = base.clone();
    let mut number = 0_u64;
    while catalog.is_taken(&name) {
        number += 1;
        name = format!("{base}{number}");
    }
    name
}

fn no_such_index(name: &TableName, catalog: &CatalogVersion) -> SqlError {
    if name.is_public() && catalog.find(&name.name).is_some() {
        return SqlError::new(SqlState::WRONG_OBJECT, format!("\"{}\" is not an index", name.name))
            .hint("Use DROP TABLE to remove a table.");
    }
    let close = suggestions(&name.name, catalog.index_names());
    let error =
        SqlError::new(SqlState::NO_SUCH_OBJECT, format!("index \"{}\" does not exist", name.name)).about(&[&name.name]);
    match close.first() {
        Some(close) => error.hint(format!("Perhaps you meant \"{close}\".")),
        None => error,
    }
}
