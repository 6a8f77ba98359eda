//! What a transaction writes: insert, update, delete, row locks.
//!
//! Each runs in place or as a dataflow until it is done. When it meets somebody undecided, what it could not do comes
//! back here (see `dataflow`), the task waits (see [`super::wait`]) and goes on with that: rows still to be inserted
//! are inserted, a change runs again and passes over the rows that it has changed already, because their words carry
//! the number of its statement.
//!
//! What is rare (messages, waiting) has its own futures in boxes: those of point accesses are moved several times.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use eris_storage::{AttributeId, Batch, ContainerId, ReadRequest, RowLock};

use super::in_place::{InPlace, Patience};
use super::{Read, Transaction, group_by_partition};
use crate::container::Container;
use crate::dataflow::{Attachment, Blocked, Summary, Work};
use crate::error::EngineError;
use crate::ids::OperatorIndex;
use crate::message::{Message, Primitive};
use crate::operator::{RowChange, RowFilter};
use crate::results::Results;
use crate::table_locks::TableLockMode;

/// What a request for row locks does about rows that others have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWait {
    /// Waits, as writes do.
    Wait,
    /// Fails with [`EngineError::LockNotAvailable`].
    NoWait,
    /// Leaves them out.
    SkipLocked,
}

/// What there is to do while a change is being made.
enum Next {
    /// What it wrote is long enough to go into the log.
    WriteAhead,
    /// A batch came, or there is no more.
    Result(Option<Batch>),
}

impl Transaction {
    /// Inserts rows, columns in schema order; returns their number.
    pub async fn insert(&mut self, container: ContainerId, rows: Batch) -> Result<u64, EngineError> {
        let container = self.runtime.view(container)?.container.clone();
        self.use_table(&container, TableLockMode::RowExclusive).await?;
        let count = rows.rows as u64;
        let mut attempt = self.begin_operation()?;
        self.check_may_write()?;
        let mut rows = rows;
        loop {
            let again = attempt.may_restart(self.level).then(|| rows.clone());
            match (self.insert_with_entries(&container, rows).await, again) {
                (Ok(()), _) => {
                    self.check_serializable()?;
                    return self.write_ahead_if_long().await.map(|()| count);
                }
                (Err(error), None) => return Err(error),
                (Err(error), Some(again)) => {
                    Box::pin(self.try_again(&mut attempt, error)).await?;
                    rows = again;
                }
            }
        }
    }

    /// Writes new values into qualifying rows; returns their number.
    pub async fn update(&mut self, read: &Read, change: Arc<dyn RowChange>) -> Result<u64, EngineError> {
        let container = self.runtime.view(read.container)?.container.clone();
        assert_eq!(change.inputs(), read.request.desired.len(), "a change reads the desired attributes");
        self.use_table(&container, TableLockMode::RowExclusive).await?;
        let mut attempt = self.begin_operation()?;
        self.check_may_write()?;
        self.track_read(&container, &read.request.predicate)?;
        loop {
            match self.update_with_entries(&container, &read.request, &change).await {
                Ok(rows) => {
                    self.check_serializable()?;
                    return self.write_ahead_if_long().await.map(|()| rows);
                }
                Err(error) => Box::pin(self.try_again(&mut attempt, error)).await?,
            }
        }
    }

    /// Deletes qualifying rows, those that `filter` selects of them; returns their number.
    pub async fn delete(&mut self, read: &Read, filter: Option<Arc<dyn RowFilter>>) -> Result<u64, EngineError> {
        let container = self.runtime.view(read.container)?.container.clone();
        self.use_table(&container, TableLockMode::RowExclusive).await?;
        let mut attempt = self.begin_operation()?;
        self.check_may_write()?;
        self.track_read(&container, &read.request.predicate)?;
        loop {
            match self.delete_with_entries(&container, &read.request, filter.as_ref()).await {
                Ok(rows) => {
                    self.check_serializable()?;
                    return self.write_ahead_if_long().await.map(|()| rows);
                }
                Err(error) => Box::pin(self.try_again(&mut attempt, error)).await?,
            }
        }
    }

    /// Locks qualifying rows until the transaction ends, or rolls back to a savepoint before; returns the desired
    /// attributes of the rows that it has locked.
    pub async fn lock_rows(&mut self, read: &Read, lock: RowLock, wait: LockWait) -> Result<Vec<Batch>, EngineError> {
        let container = self.runtime.view(read.container)?.container.clone();
        self.use_table(&container, TableLockMode::RowShare).await?;
        let mut attempt = self.begin_operation()?;
        self.track_read(&container, &read.request.predicate)?;
        loop {
            match self.lock_all(&container, &read.request, lock, wait).await {
                Ok(batches) => return Ok(batches),
                Err(error) => Box::pin(self.try_again(&mut attempt, error)).await?,
            }
        }
    }

    /// Inserts rows; waits for whoever has one of their keys.
    pub(super) async fn insert_all(&mut self, container: &Arc<Container>, rows: Batch) -> Result<(), EngineError> {
        let mut rows = rows;
        let mut patience = Patience::new();
        loop {
            let holder = match self.insert_in_place(container, &rows) {
                Ok(InPlace::Done(())) => return Ok(()),
                Ok(InPlace::Busy) if patience.wait().await => continue,
                Ok(InPlace::Busy | InPlace::Send) => {
                    let blocked = Box::pin(self.send_rows(container, rows)).await?;
                    let Some(holder) = blocked.holder else { return Ok(()) };
                    rows = Batch::concat(&blocked.rows);
                    holder
                }
                Err(error) => error.undecided().ok_or(error)?,
            };
            Box::pin(self.wait_for(holder)).await?;
        }
    }

    /// Inserts rows by messages; tells which of them met somebody undecided.
    async fn send_rows(&mut self, container: &Arc<Container>, rows: Batch) -> Result<Blocked, EngineError> {
        let table = container.table();
        let dataflow = self.dataflow(vec![Self::operator(container, &table, Work::Insert, None)]);
        let mut messages = Vec::new();
        for (partition, rows) in group_by_partition(container, &table, rows, Batch::take) {
            let attachment = dataflow.attach(Attachment::Rows(rows))?;
            let header = self.header(&dataflow, Primitive::Insert, Some(&partition));
            messages.push(Message::new(header, &[&attachment.to_le_bytes()]));
        }
        Ok(self.start(dataflow, messages).finish().await?.blocked)
    }

    /// Updates rows; what the partitions tell about them, if they are to, is appended to `told`.
    pub(super) async fn update_all(
        &mut self,
        container: &Arc<Container>,
        mut request: ReadRequest,
        change: &Arc<dyn RowChange>,
        returning: Option<&Arc<[AttributeId]>>,
        told: &mut Vec<Batch>,
    ) -> Result<u64, EngineError> {
        let partitioning = container.partitioning();
        let moves = partitioning.attributes().iter().any(|key| change.attributes().contains(key));
        let whole = moves || returning.is_some();
        if whole {
            // A new position may lie elsewhere, so the whole row has to travel.
            let all = (0..container.schema().attributes.len()).map(|attribute| AttributeId(attribute as u16));
            request.desired = request.desired.iter().copied().chain(all).collect();
        }
        let mut written = 0;
        let mut patience = Patience::new();
        loop {
            let in_place = if whole {
                Ok(InPlace::Send)
            } else {
                self.update_in_place(container, &request, &**change, &mut written)
            };
            let holder = match in_place {
                Ok(InPlace::Done(())) => return Ok(written),
                Ok(InPlace::Busy) if patience.wait().await => continue,
                Ok(InPlace::Busy | InPlace::Send) => {
                    let work = Work::Update {
                        request: request.clone(),
                        change: Arc::clone(change),
                        moved_rows: OperatorIndex(1),
                        returning: returning.cloned(),
                    };
                    let (batches, summary) = Box::pin(self.send_change(container, &request, work)).await?;
                    #[cfg(feature = "bug_entries_of_last_attempt")]
                    told.clear(); // Planted: what an attempt told before it had to wait is forgotten.
                    told.extend(batches);
                    written += summary.rows_affected;
                    let blocked = summary.blocked;
                    if !blocked.rows.is_empty() {
                        Box::pin(self.insert_all(container, Batch::concat(&blocked.rows))).await?;
                    }
                    match blocked.holder {
                        Some(holder) if blocked.again => holder,
                        _ => return Ok(written),
                    }
                }
                Err(error) => error.undecided().ok_or(error)?,
            };
            Box::pin(self.wait_for(holder)).await?;
        }
    }

    /// Deletes rows, by a filter that reads the first `inputs` desired attributes; the others of the deleted rows are
    /// appended to `told`.
    pub(super) async fn delete_all(
        &mut self,
        container: &Arc<Container>,
        request: &ReadRequest,
        filter: Option<&Arc<dyn RowFilter>>,
        inputs: usize,
        told: &mut Vec<Batch>,
    ) -> Result<u64, EngineError> {
        let mut written = 0;
        let mut patience = Patience::new();
        loop {
            let in_place = if request.desired.len() > inputs {
                Ok(InPlace::Send)
            } else {
                self.delete_in_place(container, request, filter.map(|filter| &**filter), &mut written)
            };
            let holder = match in_place {
                Ok(InPlace::Done(())) => return Ok(written),
                Ok(InPlace::Busy) if patience.wait().await => continue,
                Ok(InPlace::Busy | InPlace::Send) => {
                    let work = Work::Delete { request: request.clone(), filter: filter.cloned(), inputs };
                    let (batches, summary) = Box::pin(self.send_change(container, request, work)).await?;
                    #[cfg(feature = "bug_entries_of_last_attempt")]
                    told.clear(); // Planted: what an attempt told before it had to wait is forgotten.
                    told.extend(batches);
                    written += summary.rows_affected;
                    let Some(holder) = summary.blocked.holder else { return Ok(written) };
                    holder
                }
                Err(error) => error.undecided().ok_or(error)?,
            };
            Box::pin(self.wait_for(holder)).await?;
        }
    }

    async fn lock_all(
        &mut self,
        container: &Arc<Container>,
        request: &ReadRequest,
        lock: RowLock,
        wait: LockWait,
    ) -> Result<Vec<Batch>, EngineError> {
        let skip_locked = wait == LockWait::SkipLocked;
        let mut patience = Patience::new();
        loop {
            let mut batches = Vec::new();
            let in_place = self.lock_in_place(container, request, lock, skip_locked, &mut batches);
            let holder = match in_place {
                Ok(InPlace::Done(())) => return Ok(batches),
                Ok(InPlace::Busy) if patience.wait().await => continue,
                Ok(InPlace::Busy | InPlace::Send) => {
                    let work = Work::Lock { request: request.clone(), lock, skip_locked };
                    let (batches, summary) = Box::pin(self.send_change(container, request, work)).await?;
                    // Those that are locked will be handed out again, with the others.
                    let Some(holder) = summary.blocked.holder else { return Ok(batches) };
                    holder
                }
                Err(error) => error.undecided().ok_or(error)?,
            };
            match wait {
                LockWait::Wait => Box::pin(self.wait_for(holder)).await?,
                LockWait::NoWait => return Err(EngineError::LockNotAvailable),
                LockWait::SkipLocked => unreachable!("what others have was left out"),
            }
        }
    }

    /// Changes or locks rows by messages; an update's rows that go elsewhere are inserted by the same dataflow.
    async fn send_change(
        &mut self,
        container: &Arc<Container>,
        request: &ReadRequest,
        work: Work,
    ) -> Result<(Vec<Batch>, Summary), EngineError> {
        let table = container.table();
        let inserts = matches!(work, Work::Update { .. });
        let mut operators = vec![Self::operator(container, &table, work, Some(request))];
        if inserts {
            operators.push(Self::operator(container, &table, Work::Insert, None));
        }
        let dataflow = self.dataflow(operators);
        let messages = self.messages(&dataflow, Primitive::UnorderedScan);
        let results = self.start(dataflow, messages);
        self.finish_change(results).await
    }

    /// Waits for the end of a change, and writes what it did into the log ahead while it goes on, so that the redo of a
    /// long one never waits in memory as a whole; gives its batches.
    pub(super) async fn finish_change(&self, mut results: Results) -> Result<(Vec<Batch>, Summary), EngineError> {
        let object = Arc::clone(self.hold.object());
        let _watched = object.watch_redo();
        let mut batches = Vec::new();
        loop {
            let next = poll_fn(|context| {
                if object.poll_redo_is_long(context) {
                    return Poll::Ready(Ok(Next::WriteAhead));
                }
                results.poll_next(context).map_ok(Next::Result)
            });
            match next.await? {
                Next::WriteAhead => self.write_ahead().await?,
                Next::Result(Some(batch)) => batches.push(batch),
                Next::Result(None) => return Ok((batches, results.summary())),
            }
        }
    }
}
