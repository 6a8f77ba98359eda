//! Whether what is stored is what it must be: for whoever opens a database to look at it.
//!
//! ```text
//!   container   bounds of its partitions meet, and each partition has those that the table says
//!   partition   each index leads to its rows, and each row is in it; unique keys are; each row belongs here; no NULL
//!               where none may be
//!   global      each row has its entry, and there are no others
//!   foreign     each child has its parent
//!   sequences   they are within their bounds
//! ```

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use eris_storage::{AttributeId, Batch, LookupRequest, Predicate, ReadRequest};

use crate::container::Container;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::foreign_key::Side;
use crate::global_index::GlobalIndex;
use crate::lookup::{Coalescing, Lookup};
use crate::partition::Partition;
use crate::partition_table::PartitionTable;
use crate::transaction::{Read, found_positions};

/// How often a partition is asked whether its transactions are settled, ...
const QUIET_TRIES: u32 = 100_000;
/// ... and how long it is left alone in between.
const QUIET_PAUSE: Duration = Duration::from_millis(1);

/// What was found wrong so far.
struct Findings {
    wrong: Vec<String>,
    wrong_max: usize,
}

impl Findings {
    fn add(&mut self, wrong: String) {
        if !self.is_full() {
            self.wrong.push(wrong);
        }
    }

    fn is_full(&self) -> bool {
        self.wrong.len() >= self.wrong_max
    }
}

impl Engine {
    /// Says what is wrong with what is stored, up to so many findings. For an engine that nobody else uses: whatever
    /// changes meanwhile may be found wrong. A task of the engine; its workers are busy with it.
    ///
    /// # Errors
    /// Of reading: no memory, as a rule.
    pub async fn check_integrity(&self, wrong_max: usize) -> Result<Vec<String>, EngineError> {
        let mut findings = Findings { wrong: Vec::new(), wrong_max };
        let containers = self.runtime().containers();
        for container in &containers {
            self.check_partitions(container, &mut findings).await;
            let like = container.group().and_then(|group| group.members().into_iter().next());
            if like.is_some_and(|like| !self.are_partitioned_alike(&like, container)) {
                findings.add(format!("container {} is not cut as its group is", container.id().0));
            }
            if findings.is_full() {
                return Ok(findings.wrong);
            }
        }
        for container in &containers {
            for index in container.global_indexes().iter().flat_map(|indexes| indexes.iter()) {
                self.check_global_index(container, index, &mut findings).await?;
            }
            for key in container.foreign_keys(Side::Child) {
                match self.check_children(&key).await {
                    Err(violation @ EngineError::ForeignKeyViolation(_)) => findings.add(violation.to_string()),
                    other => other?,
                }
            }
        }
        self.runtime().sequences.check_bounds().into_iter().for_each(|wrong| findings.add(wrong));
        Ok(findings.wrong)
    }

    /// All partitions of one version of the table. They may still be dividing what was loaded.
    async fn check_partitions(&self, container: &Container, findings: &mut Findings) {
        'versions: loop {
            let table = container.table();
            let mut wrong = Vec::new();
            for (place, partition) in table.partitions().enumerate() {
                let mut tries = 0;
                let checked = loop {
                    if container.table().version != table.version {
                        continue 'versions;
                    }
                    match check_quiet_partition(container, &table, partition) {
                        Some(checked) => break checked,
                        None if tries == QUIET_TRIES => break Err("it does not come to rest".to_owned()),
                        None => tries += 1,
                    }
                    self.sleep_until(self.env().now() + QUIET_PAUSE).await;
                };
                let told = |what: String| format!("partition {place} of container {}: {what}", container.id().0);
                wrong.extend(checked.err().map(told));
            }
            return wrong.into_iter().for_each(|wrong| findings.add(wrong));
        }
    }

    /// Each row that has a key has an entry, which leads to its partition; and there are as many entries as such rows.
    async fn check_global_index(
        &self,
        container: &Container,
        index: &GlobalIndex,
        findings: &mut Findings,
    ) -> Result<(), EngineError> {
        let mut transaction = self.begin();
        transaction.pass_table_locks();
        let hidden = index.container().id();
        let told = |wrong: &str| format!("global index {} of container {}: {wrong}", hidden.0, container.id().0);
        let all = |attributes: Arc<[AttributeId]>| ReadRequest {
            predicate: Predicate::all(),
            desired: attributes,
            order: None,
        };
        let (key_length, entry_length) = (index.key().len() as u16, index.entry().len() as u16);
        let attributes = |range: std::ops::Range<u16>| range.map(AttributeId).collect::<Arc<[_]>>();
        let request = LookupRequest { attributes: attributes(0..key_length), desired: attributes(0..entry_length) };
        let read = Read { container: container.id(), request: all(index.entry().into()) };
        let mut rows = transaction.scan(read, None)?;
        let mut keyed = 0;
        while let Some(batch) = rows.next().await? {
            let entries = index.without_null_keys(batch);
            keyed += entries.rows as u64;
            let keys = entries.project(&(0..usize::from(key_length)).collect::<Vec<_>>());
            let lookup = Lookup { container: hidden, request: request.clone(), coalescing: Coalescing::default() };
            let found = transaction.lookup_many(lookup, &keys, None)?.collect().await?;
            if found_positions(&found).len() < entries.rows {
                findings.add(told("a row has no entry"));
            }
            if found.iter().any(|found| !agree(found, &entries)) {
                findings.add(told("an entry leads to another partition than that of its row"));
            }
            if findings.is_full() {
                return Ok(());
            }
        }
        drop(rows);
        let read = Read { container: hidden, request: all(Arc::from([AttributeId(0)])) };
        let there = transaction.scan(read, None)?.collect().await?.iter().map(|batch| batch.rows as u64).sum::<u64>();
        if there != keyed {
            findings.add(told(&format!("it has {there} entries for {keyed} rows")));
        }
        Ok(())
    }
}

/// Whether entries are those that were looked up: a position in `entries`, then the entry.
fn agree(found: &Batch, entries: &Batch) -> bool {
    let position = |row| match found.value(row, 0) {
        eris_storage::Value::Int32(position) => position as usize,
        other => unreachable!("positions are integers, {other} is not"),
    };
    (0..found.rows).all(|row| {
        let expected = position(row);
        (0..entries.columns.len()).all(|column| found.value(row, column + 1) == entries.value(expected, column))
    })
}

/// None: it is not at rest yet.
fn check_quiet_partition(
    container: &Container,
    table: &PartitionTable,
    partition: &Partition,
) -> Option<Result<(), String>> {
    let state = partition.try_latch()?;
    state.store.check_quiet().ok().filter(|()| !state.is_changing())?;
    // Tables are published while the partitions that they change are latched.
    if container.table().version != table.version {
        return None;
    }
    if table.bounds_of(partition.id).is_none_or(|bounds| bounds != state.bounds) {
        return Some(Err("it has other bounds than the partition table says".to_owned()));
    }
    let schema = container.schema();
    let of_rows = state.store.check_rows(|rows| {
        for (column, attribute) in rows.columns.iter().zip(&schema.attributes) {
            if !attribute.nullable && column.null_count() > 0 {
                return Err(format!("a row has NULL in attribute \"{}\", which may not be NULL", attribute.name));
            }
        }
        let has_positions = table.partitioning.has_positions();
        let strays =
            |row| has_positions && table.find(&table.partitioning.position_of_row(rows, row)).id != partition.id;
        match (0..rows.rows).find(|row| strays(*row)) {
            Some(_) => Err("a row of it belongs to another partition".to_owned()),
            None => Ok(()),
        }
    });
    Some(of_rows.and_then(|()| state.store.check_indexes()))
}
