//! Accesses that concern global indexes: reads that go through one, and writes that keep their entries.

use std::sync::Arc;

use eris_storage::{AttributeId, Batch, PackedRows, ReadRequest};

use super::Transaction;
use crate::container::Container;
use crate::dataflow::Work;
use crate::error::EngineError;
use crate::global_index::GlobalIndex;
use crate::ids::OperatorIndex;
use crate::message::Primitive;
use crate::operator::{RowChange, RowFilter};

/// What a global index says about a request.
pub(super) enum Resolved {
    /// No index helps.
    AsItIs,
    /// No row has the key.
    Nothing,
    /// The row with the key is where this request says.
    Narrowed(ReadRequest),
}

impl Transaction {
    /// Finds the partition of a request that names a row by the key of a global index.
    pub(super) async fn resolve(
        &mut self,
        container: &Arc<Container>,
        request: &ReadRequest,
    ) -> Result<Resolved, EngineError> {
        let Some(indexes) = container.global_indexes() else { return Ok(Resolved::AsItIs) };
        let partitioning = container.partitioning();
        if request.order.is_some()
            || partitioning.position_of_predicate(&container.schema(), &request.predicate).is_some()
        {
            return Ok(Resolved::AsItIs);
        }
        let found = indexes.iter().find_map(|index| Some((index, index.request_for_locator(&request.predicate)?)));
        let Some((index, lookup)) = found else { return Ok(Resolved::AsItIs) };
        let mut locator = PackedRows::default();
        self.read_rows_from(index.container(), &lookup, &mut locator).await?;
        if locator.is_empty() {
            return Ok(Resolved::Nothing);
        }
        assert!(locator.len() == 1, "a unique key has one entry");
        Ok(Resolved::Narrowed(index.narrow(request, &locator)))
    }

    /// Enters rows that were inserted into the container's global indexes.
    pub(super) async fn insert_entries(&mut self, container: &Container, rows: &Batch) -> Result<(), EngineError> {
        let Some(indexes) = container.global_indexes() else { return Ok(()) };
        for index in indexes.iter() {
            let entries = index.entries_of_rows(rows);
            if entries.rows > 0 {
                self.insert_into(index.container(), entries).await?;
            }
        }
        Ok(())
    }

    /// The attributes that a change of `changed` (none: a deletion) must tell about its rows, old and new, because
    /// entries depend on them.
    pub(super) fn returning(container: &Container, changed: Option<&[AttributeId]>) -> Option<Arc<[AttributeId]>> {
        let indexes = container.global_indexes()?;
        let mut returned: Vec<AttributeId> = Vec::new();
        for index in indexes.iter().filter(|index| changed.is_none_or(|changed| index.depends_on(changed))) {
            returned.extend(index.entry());
        }
        (!returned.is_empty()).then(|| returned.into())
    }

    /// Updates rows whose entries may change: the partitions tell their old and new values, and the entries follow.
    pub(super) async fn update_with_entries(
        &mut self,
        container: &Arc<Container>,
        mut request: ReadRequest,
        change: Arc<dyn RowChange>,
        returning: Arc<[AttributeId]>,
    ) -> Result<u64, EngineError> {
        let table = container.table();
        request.desired = whole_rows_behind(&request.desired, container);
        let changed: Box<[AttributeId]> = change.attributes().into();
        let work = Work::Update {
            request: request.clone(),
            change,
            moved_rows: OperatorIndex(1),
            returning: Some(Arc::clone(&returning)),
        };
        let update = Self::operator(container, &table, work, Some(&request));
        let insert = Self::operator(container, &table, Work::Insert, None);
        let dataflow = self.dataflow(vec![update, insert]);
        let messages = self.messages(container, &table, &dataflow, &request, Primitive::UnorderedScan);
        let (told, summary) = self.start(dataflow, messages).finish_with_batches().await?;
        let concerned = |index: &GlobalIndex| index.depends_on(&changed);
        // All old entries first, so that keys may be permuted.
        self.remove_entries(container, &told, concerned).await?;
        let new: Vec<Batch> = told.iter().map(|batch| half(batch, 1)).collect();
        for (index, places) in places(container, concerned) {
            for batch in &new {
                let columns = batch.columns[places.clone()].into();
                let entries = index.without_null_keys(Batch { columns, rows: batch.rows });
                if entries.rows > 0 {
                    self.insert_into(index.container(), entries).await?;
                }
            }
        }
        Ok(summary.rows_affected)
    }

    /// Deletes rows and their entries.
    pub(super) async fn delete_with_entries(
        &mut self,
        container: &Arc<Container>,
        mut request: ReadRequest,
        filter: Option<Arc<dyn RowFilter>>,
        returning: Arc<[AttributeId]>,
    ) -> Result<u64, EngineError> {
        let table = container.table();
        let inputs = request.desired.len();
        request.desired = request.desired.iter().chain(returning.iter()).copied().collect();
        let work = Work::Delete { request: request.clone(), filter, inputs };
        let operator = Self::operator(container, &table, work, Some(&request));
        let dataflow = self.dataflow(vec![operator]);
        let messages = self.messages(container, &table, &dataflow, &request, Primitive::UnorderedScan);
        let (told, summary) = self.start(dataflow, messages).finish_with_batches().await?;
        self.remove_entries(container, &told, |_| true).await?;
        Ok(summary.rows_affected)
    }

    /// Removes the entries of rows; the first columns of `told` are the entries of the concerned indexes, one behind
    /// the other.
    async fn remove_entries(
        &mut self,
        container: &Container,
        told: &[Batch],
        concerned: impl Fn(&GlobalIndex) -> bool,
    ) -> Result<(), EngineError> {
        for (index, places) in places(container, concerned) {
            for batch in told {
                let columns = batch.columns[places.clone()].into();
                let entries = index.without_null_keys(Batch { columns, rows: batch.rows });
                for row in 0..entries.rows {
                    let request = index.request_for_entry(&entries, row);
                    let removed = self.delete_from(index.container(), &request, None).await?;
                    assert!(removed == 1, "a row of container {} has its entry", container.id().0);
                }
            }
        }
        Ok(())
    }
}

/// Which columns of what a change tells are whose entry.
fn places(
    container: &Container,
    concerned: impl Fn(&GlobalIndex) -> bool,
) -> Vec<(Arc<GlobalIndex>, std::ops::Range<usize>)> {
    let mut first = 0;
    let indexes = container.global_indexes();
    let concerned = indexes.iter().flat_map(|indexes| indexes.iter()).filter(|index| concerned(index));
    let place = |index: &Arc<GlobalIndex>| {
        let places = first..first + index.entry().len();
        first = places.end;
        (Arc::clone(index), places)
    };
    concerned.map(place).collect()
}

/// The old (0) or new (1) half of what an update tells.
fn half(batch: &Batch, number: usize) -> Batch {
    let columns = batch.columns.len() / 2;
    Batch { columns: batch.columns[number * columns..(number + 1) * columns].into(), rows: batch.rows }
}

/// All attributes behind those that a change reads: the whole row travels.
pub(super) fn whole_rows_behind(desired: &[AttributeId], container: &Container) -> Arc<[AttributeId]> {
    let all = (0..container.schema().attributes.len()).map(|attribute| AttributeId(attribute as u16));
    desired.iter().copied().chain(all).collect()
}
