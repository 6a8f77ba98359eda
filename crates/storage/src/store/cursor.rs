//! Where a read is between two calls, and what it hands out.

use crate::address::RowAddress;
use crate::batch::Batch;
use crate::ids::{SchemaVersion, SegmentNumber};
use crate::micro::{KeyRange, MicroPlan};
use crate::modules::IndexScanState;
use crate::predicate::ReadRequest;
use std::sync::Arc;

/// Rows handed to a micro-operator: the desired attributes of visible rows that qualify, and where the rows are (for
/// delete and update).
///
/// A gateway may be empty without the read being at its end: a call does a bounded amount of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    pub batch: Batch,
    /// One per row; none at all if the cursor was told to leave them out.
    pub addresses: Box<[RowAddress]>,
}

/// A read between two calls. It owns all it needs, so it survives whatever the partition does meanwhile; while it
/// exists, no row moves. Dropping it is as good as closing it.
#[derive(Debug)]
pub struct ReadCursor {
    pub(super) request: ReadRequest,
    pub(super) plan: Arc<MicroPlan>,
    pub(super) schema: SchemaVersion,
    pub(super) position: Position,
    pub(super) with_addresses: bool,
    pub(super) counts: bool,
    pub(super) _hold: Arc<()>,
}

#[derive(Debug)]
pub(super) enum Position {
    Scan(ScanPosition),
    Index {
        /// Position among the store's indexes.
        index: usize,
        scan: IndexScanState,
        /// Ranges still to be visited, the next one last.
        rest: Vec<KeyRange>,
        descending: bool,
    },
    Done,
}

#[derive(Debug)]
pub(super) struct ScanPosition {
    pub segment: SegmentNumber,
    pub offset: u32,
    /// Where the tail ended when the cursor was opened: segment and rows.
    pub end: (SegmentNumber, u32),
    /// Only these segments, ascending; none: all.
    pub only: Option<Vec<SegmentNumber>>,
}

impl ReadCursor {
    /// Whether nothing is left: `next_batch` will give none.
    pub fn is_done(&self) -> bool {
        matches!(self.position, Position::Done)
    }

    /// Whether rows are found by scanning segments rather than through an index.
    pub fn is_scan(&self) -> bool {
        matches!(self.position, Position::Scan(_))
    }

    /// The request the cursor was opened for.
    pub fn request(&self) -> &ReadRequest {
        &self.request
    }

    /// Positions of the predicate's conditions in the order in which a scan tests them.
    pub fn tested_order(&self) -> &[u16] {
        &self.plan.all
    }

    /// Leaves addresses out of the gateways: reads that change nothing need none.
    #[must_use]
    pub fn without_addresses(mut self) -> Self {
        self.with_addresses = false;
        self
    }

    /// Asks only how many rows there are, if the request desires no attribute: batches without columns, and of any
    /// number of rows.
    #[must_use]
    pub fn counting(mut self) -> Self {
        self.counts = self.request.desired.is_empty();
        self.without_addresses()
    }
}
