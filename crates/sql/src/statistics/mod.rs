//! What is known of tables when a query is compiled: how many rows, a sample of them, and from it how many different
//! values each column has.
//!
//! A sample is taken when a query needs it and the table has none, or has grown or shrunk by a fifth since; it is kept,
//! charged to the database's memory, and nothing is answered from it: it only decides the order of joins and the like.

mod distinct;
mod sample;
mod windows;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use eris_engine::{CancelHandle, Engine};
use eris_platform::Reservation;
use eris_storage::{Batch, ContainerId};

use crate::catalog::Table;
use crate::errors::SqlError;
use sample::take_sample;

pub use windows::sample_windows;

/// A table counts as another one when its rows have changed by this share, and by so many.
const CHANGED_SHARE: f64 = 0.2;
const CHANGED_ROWS: f64 = 1_000.0;
/// What the pool calls samples.
const CONSUMER: &str = "statistics";

/// What is known of a table.
#[derive(Debug)]
pub struct TableStatistics {
    /// Its rows, about.
    pub rows: f64,
    /// Some of them, all attributes.
    pub sample: Batch,
    /// How many different values each attribute has, about.
    pub distinct: Vec<f64>,
    /// What is charged for the sample.
    _reservation: Reservation,
}

impl TableStatistics {
    /// Whether a table with so many rows still is the one that was sampled. A sample that saw none of them was taken
    /// before they were committed.
    fn holds_for(&self, rows: f64) -> bool {
        let changed = (rows - self.rows).abs() > self.rows.mul_add(CHANGED_SHARE, CHANGED_ROWS);
        !changed && (self.sample.rows > 0 || rows == 0.0)
    }
}

/// What is known of the tables of one query.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    tables: BTreeMap<ContainerId, Arc<TableStatistics>>,
}

impl Statistics {
    /// Whether nothing is known of any table.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// What is known of a table, if anything is.
    pub fn of(&self, table: ContainerId) -> Option<&TableStatistics> {
        self.tables.get(&table).map(|known| &**known)
    }
}

/// The samples of a database.
#[derive(Debug, Default)]
pub struct StatisticsCache {
    tables: Mutex<BTreeMap<ContainerId, Arc<TableStatistics>>>,
}

impl StatisticsCache {
    /// What is known of these tables now. Without memory for a sample a table stays unknown.
    pub async fn of(
        &self,
        engine: &Engine,
        tables: &[Arc<Table>],
        cancel: &CancelHandle,
    ) -> Result<Statistics, SqlError> {
        let mut statistics = Statistics::default();
        for table in tables {
            let id = table.container();
            let Some(container) = engine.container(id) else { continue };
            let rows = container.rows() as f64;
            let known = self.lock().get(&id).cloned();
            let known = match known {
                Some(known) if known.holds_for(rows) && known.distinct.len() == table.columns.len() => known,
                _ => {
                    let reservation = engine.memory().reserve(CONSUMER);
                    let Some(known) = take_sample(engine, table, rows, reservation, cancel).await? else { continue };
                    let known = Arc::new(known);
                    // It may have been dropped meanwhile: then nobody would forget it.
                    if engine.container(id).is_some() {
                        self.lock().insert(id, Arc::clone(&known));
                    }
                    known
                }
            };
            statistics.tables.insert(id, known);
        }
        Ok(statistics)
    }

    /// Forgets a table that was dropped.
    pub fn forget(&self, table: ContainerId) {
        self.lock().remove(&table);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ContainerId, Arc<TableStatistics>>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
