//! Indexes that partitions have and no table names: of a transaction that did not commit, or dropped and committed.

use eris_engine::Engine;
use eris_storage::{IndexDefinition, Schema, SchemaVersion};

use super::claims::IndexClaim;
use super::table::Table;
use super::version::Catalog;

/// Has the partitions of the claimed containers drop every index that the published tables do not name. The claims are
/// given back after that.
pub async fn settle_indexes(engine: &Engine, catalog: &Catalog, claims: Vec<IndexClaim>) {
    for claim in claims {
        let published = catalog.current();
        let Some(table) = published.tables().find(|table| table.container() == claim.container()) else { continue };
        settle_table(engine, table).await;
    }
}

/// The same for one table, whose indexes nobody else changes.
pub(super) async fn settle_table(engine: &Engine, table: &Table) {
    let Some(container) = engine.container(table.container()) else { return };
    let stored = container.schema();
    let named = |index: &&IndexDefinition| table.schema.indexes.iter().any(|known| known.id == index.id);
    let kept: Box<[IndexDefinition]> = stored.indexes.iter().filter(named).cloned().collect();
    if kept.len() < stored.indexes.len() {
        let version = SchemaVersion(stored.version.0 + 1);
        let schema = Schema { version, indexes: kept, ..Schema::clone(&stored) };
        // It fails only when the engine shuts down or the table was dropped: then there is nothing to settle.
        let _ = engine.drop_index(schema.into()).await;
    }
}
