//! Filling a table part by part, and a look at how its rows are held afterwards.

use super::{Answers, CacheData, CacheTable, batch};
use eris_engine::{Engine, EngineError};
use eris_storage::{AttributeId, ContainerId, Predicate, ReadRequest};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Loads some parts of a table in a transaction; gives `answers` with what the queries find in them.
pub async fn load(
    engine: &Engine,
    container: ContainerId,
    data: CacheData,
    table: CacheTable,
    parts: Range<u64>,
    mut answers: Answers,
) -> Result<Answers, EngineError> {
    let mut transaction = engine.begin();
    let mut bulk = transaction.bulk(container)?;
    for part in parts {
        let columns = data.part(table, part);
        answers.add(table, &columns);
        bulk.append(batch(columns)).await?;
    }
    bulk.finish().await?;
    transaction.commit().await?;
    Ok(answers)
}

/// How the rows of a container are held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Held {
    pub partitions: usize,
    /// Rows in sealed segments whose attributes are all encoded, in other sealed ones, and in open ones.
    pub encoded_rows: u64,
    pub unencoded_rows: u64,
    pub open_rows: u64,
    /// Bytes of encoded values, by column and encoding.
    pub encoded_bytes: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

impl Held {
    /// Bytes of the values: as many as encodings take, 4 for each that is not encoded.
    pub fn bytes(&self, table: CacheTable) -> u64 {
        let plain = (self.unencoded_rows + self.open_rows) * 4 * table.columns().len() as u64;
        self.encoded_bytes.values().flat_map(BTreeMap::values).sum::<u64>() + plain
    }
}

/// How the container of a table is held now.
pub async fn held(engine: &Engine, container: ContainerId, table: CacheTable) -> Result<Held, EngineError> {
    let columns = table.columns();
    let request = ReadRequest { predicate: Predicate::all(), desired: Arc::new([AttributeId(0)]), order: None };
    let mut transaction = engine.begin();
    let pinned = transaction.pin(container, &request).await?;
    let open_rows = pinned.open.iter().map(|rows| rows.rows as u64).sum();
    let mut held = Held { partitions: engine.partition_ids(container).len(), open_rows, ..Held::default() };
    for segment in &pinned.segments {
        let encodings = segment.segment().encodings();
        let rows = u64::from(segment.rows());
        if encodings.len() == columns.len() {
            held.encoded_rows += rows;
        } else {
            held.unencoded_rows += rows;
        }
        for (attribute, encoding, bytes) in encodings {
            *held.encoded_bytes.entry(columns[attribute.index()]).or_default().entry(encoding).or_default() += bytes;
        }
    }
    drop(pinned);
    transaction.commit().await?;
    Ok(held)
}
