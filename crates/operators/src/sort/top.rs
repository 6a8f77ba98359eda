//! The first rows of many: what cannot be among them is dropped as soon as it is seen.
//!
//! Rows are kept until there are several times as many as wanted; then the first are chosen, and the last of those says
//! from then on what is worth keeping.

use eris_platform::Reservation;
use eris_storage::{BATCH_ROWS, Batch};

use super::SortKeys;
use crate::assembly::own_texts;
use crate::error::OperatorError;

/// Rows are chosen when there are this many more than wanted.
const SURPLUS_ROWS: usize = 4 * BATCH_ROWS;

/// The candidates of one slot.
#[derive(Debug, Default)]
pub(super) struct Top {
    batches: Vec<Batch>,
    rows: usize,
    bytes: u64,
    /// Rows with larger ranks cannot be among the first.
    rank_max: Option<u64>,
}

impl Top {
    /// Takes a batch; `limit` rows are wanted.
    pub fn add(
        &mut self,
        mut batch: Batch,
        keys: &SortKeys,
        limit: usize,
        reservation: &Reservation,
    ) -> Result<(), OperatorError> {
        if let Some(rank_max) = self.rank_max {
            let ranks = keys.ranks(&batch.columns, batch.rows);
            let rows: Vec<u32> = (0..batch.rows as u32).filter(|row| ranks[*row as usize] <= rank_max).collect();
            if rows.is_empty() {
                return Ok(());
            }
            if rows.len() < batch.rows {
                batch = batch.take(&rows);
            }
        }
        let rows = batch.rows;
        let columns: Vec<_> = batch.columns.into_vec().into_iter().map(own_texts).collect();
        self.keep(Batch::new(columns, rows), reservation)?;
        if self.rows >= limit.saturating_mul(2).max(limit.saturating_add(SURPLUS_ROWS)) {
            self.choose(keys, limit, reservation)?;
        }
        Ok(())
    }

    fn keep(&mut self, batch: Batch, reservation: &Reservation) -> Result<(), OperatorError> {
        let bytes = batch.bytes() as u64;
        reservation.grow(bytes)?;
        self.bytes += bytes;
        self.rows += batch.rows;
        self.batches.push(batch);
        Ok(())
    }

    /// Leaves the first rows only, in order.
    pub fn choose(&mut self, keys: &SortKeys, limit: usize, reservation: &Reservation) -> Result<(), OperatorError> {
        if self.batches.is_empty() {
            return Ok(());
        }
        let (before, rows) = (self.bytes, self.rows);
        // All joined, and a rank and a row number each.
        let working = before + (rows * size_of::<(u64, u32)>()) as u64 + (rows * size_of::<u64>()) as u64;
        reservation.grow(working)?;
        let joined = Batch::concat(&std::mem::take(&mut self.batches));
        (self.rows, self.bytes) = (0, 0);
        let exact = keys.ranks_are_exact(&joined.columns);
        let ranks = keys.ranks(&joined.columns, joined.rows);
        let mut order: Vec<(u64, u32)> = ranks.into_iter().zip(0..).collect();
        let compare = |a: &(u64, u32), b: &(u64, u32)| keys.compare_ranked(&joined.columns, exact, a, b);
        if limit < order.len() {
            order.select_nth_unstable_by(limit, compare);
            order.truncate(limit);
        }
        order.sort_unstable_by(compare);
        if order.len() == limit {
            self.rank_max = order.last().map(|(rank, _)| *rank);
        }
        let first: Vec<u32> = order.iter().map(|(_, row)| *row).collect();
        let chosen = joined.take(&first);
        drop((order, first, joined));
        reservation.shrink(working + before);
        if chosen.rows > 0 {
            let columns: Vec<_> = chosen.columns.into_vec().into_iter().map(own_texts).collect();
            self.keep(Batch::new(columns, chosen.rows), reservation)?;
        }
        Ok(())
    }

    /// What was kept.
    pub fn take(&mut self) -> Vec<Batch> {
        (self.rows, self.bytes) = (0, 0);
        std::mem::take(&mut self.batches)
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}
