//! Which containers SQL made: an engine may have others, made by tasks, and those are nobody's business here.
//!
//! A container exists from its CREATE TABLE on, its name from the COMMIT on. If the process ends in between, recovery
//! finds a container without a name, and so it does if the process ends between the COMMIT of a DROP TABLE and the end
//! of the container. When a database is opened such containers are dropped. That must not hit the container of a task,
//! so SQL puts its own on record *before* it makes them, in a transaction of its own that no rollback takes back:
//!
//! ```text
//!   record 17 (commits) --> make 17 --> COMMIT: a table names 17 --> DROP: 17 goes --> record 17 goes, some time later
//!          `-- end: no such container,      `-- ROLLBACK or end: no table names 17, it goes; then its record
//!              the record goes
//! ```
//! Records whose containers are gone are taken away with the next record that is written, or at the next opening.

use std::sync::{Mutex, MutexGuard, PoisonError};

use eris_engine::{Engine, EngineError};
use eris_storage::ContainerId;

use super::rows::{self, CONTAINER, CatalogRow};
use crate::errors::SqlError;
use crate::plan::engine_error;

/// The containers that SQL made.
#[derive(Debug, Default)]
pub struct OwnContainers {
    /// On record, but gone.
    gone: Mutex<Vec<ContainerId>>,
}

impl OwnContainers {
    /// Puts a container on record that is about to be made.
    pub async fn record(&self, engine: &Engine, container: ContainerId) -> Result<(), SqlError> {
        let gone = std::mem::take(&mut *self.gone());
        let recorded = write(engine, Some(container), &gone).await;
        if recorded.is_err() {
            self.gone().extend(gone);
        }
        recorded.map_err(|error| engine_error(&error, None))
    }

    /// Drops a container of SQL. One that is gone already is as good; one that others refer to stays, and is tried
    /// again when the database is opened.
    pub fn drop(&self, engine: &Engine, container: ContainerId) {
        match engine.drop_container(container) {
            Ok(()) | Err(EngineError::NoSuchContainer(_)) => self.gone().push(container),
            Err(_) => {}
        }
    }

    fn gone(&self) -> MutexGuard<'_, Vec<ContainerId>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records one container and forgets others, in one transaction.
pub(super) async fn write(engine: &Engine, made: Option<ContainerId>, gone: &[ContainerId]) -> Result<(), EngineError> {
    let mut transaction = engine.begin_internal();
    transaction.use_system_memory();
    if let Some(container) = made {
        rows::insert(&mut transaction, CatalogRow::new(CONTAINER, container.0.to_string(), "{}")).await?;
    }
    for container in gone {
        // One that was never recorded, because the statement failed before, has no row.
        rows::delete(&mut transaction, CONTAINER, &container.0.to_string()).await?;
    }
    transaction.commit().await.map(drop)
}
