//! SIGNATURES ONLY, so that the crates above can be checked while the store is being written. Delete this file (and its
//! two lines in lib.rs) when `store`, `segment` and `micro` provide these names with exactly these signatures; the
//! addendum at the end of STORAGE_API.md explains the ones that are new since its first version.
#![allow(clippy::unimplemented, unused_variables, clippy::needless_pass_by_value, clippy::unused_self)]

use std::fmt;
use std::sync::Arc;

use eris_platform::MemoryPool;

use crate::{
    AttributeId, Batch, IndexDefinition, Outcomes, ReadRequest, RowAddress, Schema, SegmentNumber, Snapshot,
    StorageError, Timestamp, TransactionId,
};

#[derive(Debug)]
pub struct StoreOptions;
impl StoreOptions {
    pub fn new(schema: Arc<Schema>, memory: Arc<MemoryPool>) -> Self {
        unimplemented!()
    }
}
#[derive(Debug)]
pub enum Progress<T> {
    Done(T),
    More,
}
#[derive(Debug)]
pub struct Written {
    pub rows: u64,
    pub first_of_transaction: bool,
}
#[derive(Debug, Default)]
pub struct AttachCursor;
#[derive(Debug)]
pub struct IndexBuildCursor;
#[derive(Debug)]
pub struct SplitCursor;
#[derive(Debug)]
pub struct ReadCursor;
#[derive(Debug)]
pub struct Gateway {
    pub batch: Batch,
    pub addresses: Box<[RowAddress]>,
}
pub struct Horizon<'a> {
    pub oldest: Timestamp,
    pub outcomes: &'a dyn Outcomes,
}
#[derive(Debug)]
pub struct Maintained {
    pub settled: Vec<TransactionId>,
    pub more: bool,
    pub blocked_by_cursors: bool,
}
#[derive(Debug)]
pub struct PinnedPartition {
    pub segments: Vec<Arc<PinnedSegment>>,
}
#[derive(Debug)]
pub struct PinnedSegment;
/// Position of a reader in a pinned segment.
#[derive(Debug, Default, Clone)]
pub struct PinnedCursor;
impl PinnedSegment {
    /// Rows before filtering.
    pub fn rows(&self) -> usize {
        unimplemented!()
    }
    pub fn scan(
        &self,
        snapshot: &Snapshot<'_>,
        request: &ReadRequest,
        cursor: &mut PinnedCursor,
        max_rows: usize,
    ) -> Result<Option<Batch>, StorageError> {
        unimplemented!()
    }
}
#[derive(Debug)]
pub struct SealedSegment;
impl SealedSegment {
    pub fn build(schema: &Schema, rows: &Batch, memory: &Arc<MemoryPool>) -> Result<Arc<SealedSegment>, StorageError> {
        unimplemented!()
    }
}
#[derive(Debug, Clone, Default)]
pub struct StoreCounters {
    pub sealed: u64,
    pub thawed: u64,
    pub compacted: u64,
    pub micro_qep_hits: u64,
    pub micro_qep_misses: u64,
}
impl StoreCounters {
    pub fn add(&mut self, other: &StoreCounters) {
        unimplemented!()
    }
}
#[derive(Debug, Clone, Default)]
pub struct StoreStatistics {
    pub rows_live_estimate: u64,
    pub rows_total: u64,
    pub bytes: u64,
    pub open_segments: u64,
    pub sealed_segments: u64,
    pub row_segments: u64,
    pub column_segments: u64,
    pub index_entries: u64,
    pub dead_rows: u64,
    pub counters: StoreCounters,
}
#[derive(Debug, Clone)]
pub struct SegmentDescription {
    pub number: SegmentNumber,
    pub state: &'static str,
    pub module: &'static str,
    pub rows: u64,
    pub dead_rows: u64,
    pub bytes: u64,
}
/// Display prints the steps.
#[derive(Debug, Clone)]
pub struct MicroPlanDescription;
impl fmt::Display for MicroPlanDescription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}
#[derive(Debug)]
pub struct Store;
impl Store {
    pub fn new(options: StoreOptions) -> Store {
        unimplemented!()
    }
    pub fn schema(&self) -> &Arc<Schema> {
        unimplemented!()
    }
    pub fn set_schema(&mut self, schema: Arc<Schema>) {
        unimplemented!()
    }
    pub fn has_pending(&self, transaction: TransactionId) -> bool {
        unimplemented!()
    }
    pub fn insert(&mut self, snapshot: &Snapshot<'_>, rows: &Batch) -> Result<Written, StorageError> {
        unimplemented!()
    }
    pub fn delete(&mut self, snapshot: &Snapshot<'_>, addresses: &[RowAddress]) -> Result<Written, StorageError> {
        unimplemented!()
    }
    pub fn update(
        &mut self,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        attributes: &[AttributeId],
        new: &Batch,
    ) -> Result<Written, StorageError> {
        unimplemented!()
    }
    pub fn attach(
        &mut self,
        snapshot: &Snapshot<'_>,
        segment: &Arc<SealedSegment>,
        cursor: &mut AttachCursor,
        rows_budget: usize,
    ) -> Result<Progress<Written>, StorageError> {
        unimplemented!()
    }
    pub fn abandon_attach(&mut self, cursor: AttachCursor) {
        unimplemented!()
    }
    pub fn open_cursor(&mut self, request: &ReadRequest) -> Result<ReadCursor, StorageError> {
        unimplemented!()
    }
    pub fn open_cursor_unsealed(&mut self, request: &ReadRequest) -> Result<ReadCursor, StorageError> {
        unimplemented!()
    }
    pub fn next_batch(
        &mut self,
        snapshot: &Snapshot<'_>,
        cursor: &mut ReadCursor,
    ) -> Result<Option<Gateway>, StorageError> {
        unimplemented!()
    }
    pub fn close_cursor(&mut self, cursor: ReadCursor) {
        unimplemented!()
    }
    pub fn explain(&self, request: &ReadRequest) -> MicroPlanDescription {
        unimplemented!()
    }
    pub fn pin(&mut self, snapshot: &Snapshot<'_>) -> PinnedPartition {
        unimplemented!()
    }
    pub fn wants_maintenance(&self) -> bool {
        unimplemented!()
    }
    pub fn maintain(&mut self, horizon: &Horizon<'_>, rows_budget: usize) -> Maintained {
        unimplemented!()
    }
    pub fn begin_index_build(&mut self, definition: &IndexDefinition) -> Result<IndexBuildCursor, StorageError> {
        unimplemented!()
    }
    pub fn build_index_step(
        &mut self,
        horizon: &Horizon<'_>,
        cursor: &mut IndexBuildCursor,
        rows_budget: usize,
    ) -> Result<Progress<()>, StorageError> {
        unimplemented!()
    }
    pub fn abandon_index_build(&mut self, cursor: IndexBuildCursor) {
        unimplemented!()
    }
    pub fn sample_rows(&self, rows: usize) -> Result<Batch, StorageError> {
        unimplemented!()
    }
    pub fn begin_split(&mut self) -> Result<SplitCursor, StorageError> {
        unimplemented!()
    }
    pub fn split_step(
        &mut self,
        cursor: &mut SplitCursor,
        target: &mut Store,
        leaves: &dyn Fn(&Batch, usize) -> bool,
        rows_budget: usize,
    ) -> Result<Progress<Vec<TransactionId>>, StorageError> {
        unimplemented!()
    }
    pub fn statistics(&self) -> StoreStatistics {
        unimplemented!()
    }
    pub fn segments(&self) -> Vec<SegmentDescription> {
        unimplemented!()
    }
}
