//! Reads: opening a cursor, and the execution of micro-QEPs batch by batch.

use super::cursor::{Gateway, Position, ReadCursor, ScanPosition};
use super::{Scratch, Store, with_scratch};
use crate::address::RowAddress;
use crate::batch::{BATCH_ROWS, Batch, Column, ColumnBuilder, PackedRows};
use crate::error::StorageError;
use crate::ids::{AttributeId, RowOffset, SegmentNumber};
use crate::micro::{
    Access, Bound, IndexUse, KeyRange, MicroPlan, MicroPlanDescription, UsedModules, bind, compile, describe,
};
use crate::modules::{IndexPath, IndexScanState, PathFilter};
use crate::mvcc::Snapshot;
use crate::predicate::ReadRequest;
use std::sync::Arc;

/// A row found through an index costs about as much as this many scanned ones.
const INDEX_ROW_COST: f64 = 32.0;

/// Ranges up to this many rows are read through an index whatever the size of the partition.
const INDEX_ROWS_ALWAYS: usize = 64;

impl Store {
    /// The place of a request's plan among the cached ones.
    fn plan(&mut self, request: &ReadRequest) -> Result<usize, StorageError> {
        if let Some(place) = self.plans.find(request) {
            self.counters.micro_qep_hits += 1;
            return Ok(place);
        }
        self.counters.micro_qep_misses += 1;
        let plan = Arc::new(compile(&self.schema, request, &self.access_totals())?);
        Ok(self.plans.add(request, plan))
    }

    fn shared_plan(&mut self, request: &ReadRequest) -> Result<Arc<MicroPlan>, StorageError> {
        let place = self.plan(request)?;
        Ok(Arc::clone(self.plans.at(place)))
    }

    /// Opens a cursor over the rows a request asks for.
    pub fn open_cursor(&mut self, request: &ReadRequest) -> Result<ReadCursor, StorageError> {
        let plan = self.shared_plan(request)?;
        let position = self.bind_plan(request, &plan)?;
        Ok(self.cursor(request, plan, position))
    }

    /// Opens a cursor over the rows of the segments that are open now: together with a pin taken under the same latch
    /// it delivers every row once.
    pub fn open_cursor_unsealed(&mut self, request: &ReadRequest) -> Result<ReadCursor, StorageError> {
        let plan = self.shared_plan(request)?;
        if request.order.is_some() {
            let reason = "rows of open segments have no order".to_owned();
            return Err(StorageError::InvalidRequest { reason });
        }
        // Checks the constants; an index is of no use here.
        let position = match self.bind_plan(request, &plan)? {
            Position::Done => Position::Done,
            Position::Scan(_) | Position::Index { .. } => {
                let open = self.live_segments().filter(|segment| segment.is_open()).map(|segment| segment.number);
                let only = Some(open.collect());
                self.scan_from_start(only)
            }
        };
        Ok(self.cursor(request, plan, position))
    }

    fn cursor(&self, request: &ReadRequest, plan: Arc<MicroPlan>, position: Position) -> ReadCursor {
        plan.usage.opened(matches!(position, Position::Scan(_)));
        ReadCursor {
            request: request.clone(),
            plan,
            schema: self.schema.version,
            position,
            with_addresses: true,
            counts: false,
            _hold: Arc::clone(&self.cursors),
        }
    }

    /// Lets rows move again.
    pub fn close_cursor(&mut self, cursor: ReadCursor) {
        drop(cursor);
    }

    fn scan_from_start(&self, only: Option<Vec<SegmentNumber>>) -> Position {
        let Some(last) = self.segments.iter().rposition(Option::is_some) else { return Position::Done };
        let rows = self.segments[last].as_ref().map_or(0, |segment| segment.rows());
        let end = (SegmentNumber(last as u32), rows);
        Position::Scan(ScanPosition { segment: SegmentNumber(0), offset: 0, end, only })
    }

    fn bind_plan(&self, request: &ReadRequest, plan: &MicroPlan) -> Result<Position, StorageError> {
        let parts = match &plan.access {
            Access::Scan => &[],
            Access::Index(found) => self.indexes[found.index].path.parts(),
        };
        match (bind(&self.schema, request, plan, parts)?, &plan.access) {
            (Bound::Nothing, _) => Ok(Position::Done),
            (Bound::Ranges { first, mut rest }, Access::Index(found)) if self.prefers_index(found, &first, &rest) => {
                let descending = found.descending;
                rest.reverse();
                let scan = IndexScanState::new(first.0, first.1, descending);
                Ok(Position::Index { index: found.index, scan, rest, descending })
            }
            (Bound::Scan | Bound::Ranges { .. }, _) => Ok(self.scan_from_start(None)),
        }
    }

    /// Wide ranges are scanned: the index finds rows in an order that memory does not like. Narrow ones are counted,
    /// which costs less than to estimate them.
    fn prefers_index(&self, found: &IndexUse, first: &KeyRange, rest: &[KeyRange]) -> bool {
        let path = &self.indexes[found.index].path;
        if found.ordered || (found.unique && rest.len() < INDEX_ROWS_ALWAYS) {
            return true;
        }
        let ranges = || std::iter::once(first).chain(rest);
        let mut left = INDEX_ROWS_ALWAYS;
        let narrow = ranges().all(|(lower, upper)| {
            let count = path.count_up_to(lower, upper.as_ref(), left + 1);
            let fits = count <= left;
            left = left.saturating_sub(count);
            fits
        });
        narrow || {
            let share: f64 = ranges().map(|(lower, upper)| path.share(lower, upper.as_ref())).sum();
            share * INDEX_ROW_COST < 1.0
        }
    }

    /// Reads a few rows through an index, row-wise. False if the read is not of that kind, or there are more than
    /// `rows_max`: it wants a cursor. `rows` then holds nothing of use.
    pub fn read_rows(
        &mut self,
        snapshot: &Snapshot<'_>,
        request: &ReadRequest,
        rows_max: usize,
        rows: &mut PackedRows,
    ) -> Result<bool, StorageError> {
        let place = self.plan(request)?;
        let plan = &**self.plans.at(place);
        rows.clear(&plan.format);
        let (index, mut scan) = match self.bind_plan(request, plan)? {
            Position::Done => return Ok(true),
            Position::Index { index, scan, rest, .. } if rest.is_empty() => (index, scan),
            Position::Index { .. } | Position::Scan(_) => return Ok(false),
        };
        with_scratch(|scratch| {
            scratch.found.clear();
            let more = scan.advance(&*self.indexes[index].path, rows_max, &mut scratch.found);
            if more { Ok(false) } else { self.pack_found(snapshot, request, plan, scratch, rows) }
        })
    }

    fn pack_found(
        &self,
        snapshot: &Snapshot<'_>,
        request: &ReadRequest,
        plan: &MicroPlan,
        scratch: &mut Scratch,
        rows: &mut PackedRows,
    ) -> Result<bool, StorageError> {
        scratch.found.retain(|address| self.sees_row(snapshot, *address));
        let tested = scratch.found.len();
        if !plan.residual.is_empty() {
            self.retain_qualifying(snapshot, request, &plan.residual, scratch)?;
        }
        plan.usage.opened(false);
        plan.usage.looked_up(tested, scratch.found.len());
        for address in &scratch.found {
            let Some(segment) = self.segment(address.segment()) else { continue };
            rows.push_row();
            segment.path().pack(&request.desired, address.offset().0, rows);
            if let Some(before) = self.before(snapshot, *address) {
                before.write_over(&request.desired, rows);
            }
        }
        Ok(true)
    }

    /// The next rows of a read; none at its end. A batch may be empty before that. Work is bounded: at most one batch
    /// of rows found through an index, or a few windows scanned.
    pub fn next_batch(
        &mut self,
        snapshot: &Snapshot<'_>,
        cursor: &mut ReadCursor,
    ) -> Result<Option<Gateway>, StorageError> {
        if cursor.schema != self.schema.version {
            return Err(StorageError::SchemaMoved);
        }
        with_scratch(|scratch| match &cursor.position {
            Position::Done => Ok(None),
            Position::Index { .. } => self.next_through_index(snapshot, cursor, scratch),
            Position::Scan(_) if cursor.counts => self.next_count(snapshot, cursor, scratch),
            Position::Scan(_) => self.next_of_scan(snapshot, cursor, scratch),
        })
    }

    fn next_through_index(
        &self,
        snapshot: &Snapshot<'_>,
        cursor: &mut ReadCursor,
        scratch: &mut Scratch,
    ) -> Result<Option<Gateway>, StorageError> {
        let Position::Index { index, scan, rest, descending } = &mut cursor.position else {
            unreachable!("called for index cursors");
        };
        let index: &dyn IndexPath = &*self.indexes[*index].path;
        scratch.found.clear();
        let mut done = false;
        while !done && scratch.found.len() < BATCH_ROWS {
            let room = BATCH_ROWS - scratch.found.len();
            if !scan.advance(index, room, &mut scratch.found) {
                match rest.pop() {
                    Some((lower, upper)) => *scan = IndexScanState::new(lower, upper, *descending),
                    None => done = true,
                }
            }
        }
        if done {
            cursor.position = Position::Done;
        }
        scratch.found.retain(|address| self.sees_row(snapshot, *address));
        let tested = scratch.found.len();
        if !cursor.plan.residual.is_empty() {
            self.retain_qualifying(snapshot, &cursor.request, &cursor.plan.residual, scratch)?;
        }
        cursor.plan.usage.looked_up(tested, scratch.found.len());
        if scratch.found.is_empty() && done {
            return Ok(None);
        }
        let columns = self.link_found(snapshot, &cursor.request.desired, &scratch.found, &mut scratch.offsets);
        let batch = Batch { columns, rows: scratch.found.len() };
        let addresses = if cursor.with_addresses { scratch.found.as_slice().into() } else { Box::default() };
        Ok(Some(Gateway { batch, addresses }))
    }

    fn link_found(
        &self,
        snapshot: &Snapshot<'_>,
        desired: &[AttributeId],
        found: &[RowAddress],
        offsets: &mut Vec<u32>,
    ) -> Box<[Column]> {
        let types = desired.iter().map(|id| self.schema.attributes[id.index()].data_type);
        let mut builders = ColumnBuilder::for_batch(types, found.len());
        for (run, before) in self.runs(snapshot, found) {
            let Some(segment) = self.segment(run[0].segment()) else { continue };
            let path = segment.path();
            if let Some(before) = before {
                for (id, builder) in desired.iter().zip(&mut builders) {
                    before.link(path, *id, run[0].offset().0, builder);
                }
                continue;
            }
            offsets.clear();
            offsets.extend(run.iter().map(|address| address.offset().0));
            for (id, builder) in desired.iter().zip(&mut builders) {
                path.link(*id, offsets, builder);
            }
        }
        builders.into_iter().map(ColumnBuilder::finish).collect()
    }

    /// Keeps those of the found rows that satisfy the conditions the index has not answered.
    fn retain_qualifying(
        &self,
        snapshot: &Snapshot<'_>,
        request: &ReadRequest,
        residual: &[u16],
        scratch: &mut Scratch,
    ) -> Result<(), StorageError> {
        let filter = PathFilter { conditions: &request.predicate.conditions, selected: residual };
        let found = std::mem::take(&mut scratch.found);
        let mut kept = Vec::with_capacity(found.len());
        for (run, before) in self.runs(snapshot, &found) {
            let number = run[0].segment();
            let Some(segment) = self.segment(number) else { continue };
            if let Some(before) = before {
                if before.qualifies(segment.path(), run[0].offset().0, filter, &self.schema) {
                    kept.push(run[0]);
                }
                continue;
            }
            scratch.offsets.clear();
            scratch.offsets.extend(run.iter().map(|address| address.offset().0));
            segment.path().retain(&mut scratch.scan, filter, &mut scratch.offsets)?;
            kept.extend(scratch.offsets.iter().map(|offset| RowAddress::new(number, RowOffset(*offset))));
        }
        scratch.found = kept;
        Ok(())
    }

    /// How a request would be carried out now.
    pub fn explain(&self, request: &ReadRequest) -> Result<MicroPlanDescription, StorageError> {
        let plan = compile(&self.schema, request, &self.access_totals())?;
        let scans = matches!(self.bind_plan(request, &plan)?, Position::Scan(_));
        let selected = if scans { &plan.all } else { &plan.residual };
        let filter = PathFilter { conditions: &request.predicate.conditions, selected };
        let rows = if scans { BATCH_ROWS } else { 1 };
        let mut modules = UsedModules::default();
        for segment in self.live_segments() {
            segment.path().filter_modules(filter, scans, &mut modules.filter);
            segment.path().link_modules(&request.desired, rows, &mut modules.link);
        }
        Ok(describe(&self.schema, request, &plan, &modules, scans))
    }
}
