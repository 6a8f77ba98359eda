//! Batches that a task holds, charged to the database's memory.

use std::collections::VecDeque;
use std::sync::Arc;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::Batch;

use crate::errors::SqlError;

/// What the pool calls them.
const CONSUMER: &str = "query rows";
/// So much is not charged: most results are a few rows, and a new reservation takes a lock.
const FREE_BYTES: u64 = 64 << 10;

/// Batches in order. They are charged until they are taken.
#[derive(Debug, Default)]
pub struct Held {
    batches: VecDeque<Batch>,
    bytes: u64,
    reservation: Option<Reservation>,
}

impl Held {
    /// All of these.
    pub fn all(batches: Vec<Batch>, memory: &Arc<MemoryPool>) -> Result<Self, SqlError> {
        let mut held = Self::default();
        batches.into_iter().try_for_each(|batch| held.push(batch, memory))?;
        Ok(held)
    }

    /// A few rows that say something about a statement; they are not charged.
    pub fn few(batches: Vec<Batch>) -> Self {
        Self { batches: batches.into(), ..Self::default() }
    }

    /// A batch that is already charged.
    pub fn charged(batch: Batch, reservation: Reservation) -> Self {
        Self { bytes: batch.bytes() as u64, batches: [batch].into(), reservation: Some(reservation) }
    }

    /// Batches that are already charged.
    pub fn charged_all(batches: Vec<Batch>, reservation: Option<Reservation>) -> Self {
        let bytes = batches.iter().map(|batch| batch.bytes() as u64).sum();
        Self { batches: batches.into(), bytes, reservation }
    }

    /// Takes another batch; without memory for it the statement fails.
    pub fn push(&mut self, batch: Batch, memory: &Arc<MemoryPool>) -> Result<(), SqlError> {
        self.bytes += batch.bytes() as u64;
        if self.bytes > FREE_BYTES {
            let reservation = self.reservation.get_or_insert_with(|| memory.reserve(CONSUMER));
            reservation.resize(self.bytes).map_err(SqlError::out_of_memory)?;
        }
        self.batches.push_back(batch);
        Ok(())
    }

    /// The next batch, no longer charged here.
    pub fn pop(&mut self) -> Option<Batch> {
        let batch = self.batches.pop_front()?;
        self.bytes = self.bytes.saturating_sub(batch.bytes() as u64);
        if let Some(reservation) = &self.reservation {
            let more = reservation.bytes().saturating_sub(self.bytes);
            reservation.shrink(more);
        }
        Some(batch)
    }

    /// The batches in place.
    pub fn batches(&mut self) -> &[Batch] {
        self.batches.make_contiguous()
    }

    /// What they take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use eris_storage::{DataType, Value};

    use super::*;

    #[test]
    fn batches_are_charged_until_they_are_taken() {
        let memory = MemoryPool::new(1 << 20);
        let rows: Vec<Vec<Value>> = (0..6_000).map(|n| vec![Value::Int64(n)]).collect();
        let batch = Batch::from_rows(&[DataType::Int64], &rows);
        let bytes = batch.bytes() as u64;
        let mut held = Held::default();
        held.push(batch.clone(), &memory).unwrap();
        assert_eq!(memory.used(), 0, "{bytes} bytes are few");
        held.push(batch.clone(), &memory).unwrap();
        assert_eq!(memory.used(), 2 * bytes);
        assert_eq!(held.pop().map(|batch| batch.rows), Some(6_000));
        assert_eq!(memory.used(), bytes);
        let error = (0..100).find_map(|_| held.push(batch.clone(), &memory).err()).unwrap();
        assert_eq!(error.sqlstate.as_str(), "53200");
        drop(held);
        assert_eq!(memory.used(), 0);
        let reservation = memory.reserve("test");
        reservation.grow(bytes).unwrap();
        let mut held = Held::charged(batch, reservation);
        assert!(held.pop().is_some() && held.pop().is_none());
        assert_eq!(memory.used(), 0);
    }
}
