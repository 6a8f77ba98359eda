//! DataFusion's memory pool over ours.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use eris_platform::{MemoryPool as ErisPool, Reservation};

/// Everything DataFusion's operators hold, as one consumer of the database's memory.
pub struct AccountedMemory {
    pool: Arc<ErisPool>,
    reservation: Reservation,
    /// What operators took that cannot be refused and did not fit: they report it after the fact.
    overdraft: AtomicU64,
}

impl AccountedMemory {
    /// A pool within the database's limit.
    pub fn new(pool: &Arc<ErisPool>) -> Self {
        Self { pool: Arc::clone(pool), reservation: pool.reserve("fallback"), overdraft: AtomicU64::new(0) }
    }
}

impl fmt::Debug for AccountedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccountedMemory({} bytes)", self.reservation.bytes())
    }
}

impl fmt::Display for AccountedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl MemoryPool for AccountedMemory {
    fn name(&self) -> &'static str {
        "eris"
    }

    fn grow(&self, _reservation: &MemoryReservation, additional: usize) {
        if self.reservation.grow(additional as u64).is_err() {
            self.overdraft.fetch_add(additional as u64, Ordering::Relaxed);
        }
    }

    fn shrink(&self, _reservation: &MemoryReservation, shrink: usize) {
        let shrink = shrink as u64;
        let from_overdraft = self
            .overdraft
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |over| Some(over - over.min(shrink)))
            .map_or(0, |over| over.min(shrink));
        self.reservation.shrink(shrink - from_overdraft);
    }

    fn try_grow(&self, _reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.reservation.grow(additional as u64).map_err(|error| DataFusionError::ResourcesExhausted(error.to_string()))
    }

    fn reserved(&self) -> usize {
        (self.reservation.bytes() + self.overdraft.load(Ordering::Relaxed)) as usize
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(usize::try_from(self.pool.limit().saturating_sub(self.pool.kept())).unwrap_or(usize::MAX))
    }
}
