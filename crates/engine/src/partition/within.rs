//! Reading only a range of positions: after a merge a partition holds rows that an older message does not concern,
//! because another message of the same dataflow does.
//!
//! The partitioning attributes are read along and decide; what leaves has the columns that were asked for. Only
//! messages that were addressed before the merge pay for it.

use std::sync::Arc;

use eris_storage::{AttributeId, Batch, Found, Gateway, LookupRequest, ReadRequest, RowAddress};

use super::Bounds;
use crate::partition_table::Partitioning;

/// A range that a read keeps to.
pub(crate) struct Within {
    bounds: Bounds,
    partitioning: Arc<Partitioning>,
    /// Columns that the request asked for.
    columns: usize,
}

impl Within {
    /// The same request with the partitioning attributes behind its own, and what keeps its rows to `bounds`.
    pub fn extend(request: &ReadRequest, bounds: Bounds, partitioning: &Arc<Partitioning>) -> (ReadRequest, Self) {
        let mut extended = request.clone();
        let within = Self::behind(&mut extended.desired, bounds, partitioning);
        (extended, within)
    }

    /// The same for lookups.
    pub fn extend_lookup(
        request: &LookupRequest,
        bounds: Bounds,
        partitioning: &Arc<Partitioning>,
    ) -> (LookupRequest, Self) {
        let mut extended = request.clone();
        let within = Self::behind(&mut extended.desired, bounds, partitioning);
        (extended, within)
    }

    fn behind(desired: &mut Arc<[AttributeId]>, bounds: Bounds, partitioning: &Arc<Partitioning>) -> Self {
        let columns = desired.len();
        *desired = desired.iter().chain(partitioning.attributes()).copied().collect();
        Self { bounds, partitioning: Arc::clone(partitioning), columns }
    }

    /// Drops the rows outside and the columns that were read along.
    pub fn keep(&self, gateway: Gateway) -> Gateway {
        let Gateway { batch, addresses } = gateway;
        let (batch, kept) = self.keep_rows(&batch);
        let Some(kept) = kept else { return Gateway { batch, addresses } };
        Gateway { batch, addresses: kept_addresses(addresses, &kept) }
    }

    /// The same for what a lookup found.
    pub fn keep_found(&self, found: Found) -> Found {
        let Found { keys, batch, addresses } = found;
        let (batch, kept) = self.keep_rows(&batch);
        let Some(kept) = kept else { return Found { keys, batch, addresses } };
        let addresses = kept_addresses(addresses, &kept);
        Found { keys: kept.iter().map(|row| keys[*row as usize]).collect(), batch, addresses }
    }

    /// The rows inside, with the columns that were asked for, and which they are; none: all.
    fn keep_rows(&self, batch: &Batch) -> (Batch, Option<Vec<u32>>) {
        let inside = |row: &u32| {
            let position = self.partitioning.position_of_key_columns(batch, *row as usize, self.columns);
            self.bounds.contains(&position)
        };
        let kept: Vec<u32> = (0..batch.rows as u32).filter(inside).collect();
        let asked = Batch { columns: batch.columns[..self.columns].into(), rows: batch.rows };
        if kept.len() == batch.rows {
            return (asked, None);
        }
        (asked.take(&kept), Some(kept))
    }
}

/// The addresses of the rows that were kept, if there are addresses.
fn kept_addresses(addresses: Box<[RowAddress]>, kept: &[u32]) -> Box<[RowAddress]> {
    if addresses.is_empty() { addresses } else { kept.iter().map(|row| addresses[*row as usize]).collect() }
}
