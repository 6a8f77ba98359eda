//! Bounded memory: who holds how much, and a limit over all.
//!
//! A consumer reserves bytes *before* it allocates them. A [`Reservation`] belongs to one consumer (a name such as
//! `"hash join"`), grows and shrinks, and gives everything back when it is dropped. The pool keeps one counter for all
//! and one for each consumer; a grow costs an addition on both. What is counted is what consumers say; reconciling it
//! with what the operating system sees is the business of a controller above.
//!
//! A small part of the limit is kept for what gives memory back: a full database could otherwise not even be emptied,
//! since whoever deletes a row notes that first ([`MemoryPool::reserve_for_release`]).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The memory of one database.
#[derive(Debug)]
pub struct MemoryPool {
    limit: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
    consumers: Mutex<Vec<Arc<Consumer>>>,
}

#[derive(Debug)]
struct Consumer {
    name: &'static str,
    used: AtomicU64,
}

/// The limit would have been exceeded, or the operating system had nothing left; nothing was reserved.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("out of memory: {consumer} asked for {asked} bytes, {used} of {limit} bytes are in use; {refused_by}")]
pub struct MemoryExceeded {
    pub consumer: &'static str,
    pub asked: u64,
    pub used: u64,
    /// For this consumer: without what is kept for others.
    pub limit: u64,
    pub refused_by: RefusedBy,
}

/// Who had no more memory to give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefusedBy {
    /// The pool: the setting can be raised.
    Limit,
    /// The operating system, below the limit: the setting promises more than there is.
    System,
}

impl fmt::Display for RefusedBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusedBy::Limit => {
                write!(formatter, "raise the setting {MEMORY_LIMIT_SETTING} or let other work finish")
            }
            RefusedBy::System => {
                write!(formatter, "the system has no more, although the setting {MEMORY_LIMIT_SETTING} would allow it")
            }
        }
    }
}

/// Of the limit, one part in so many is kept for what gives memory back. A deleted row costs up to forty bytes until
/// its transaction ends, so this is enough to delete many rows at a time.
const KEPT_SHARE: u64 = 16;
/// What is kept at most: enough for six million rows.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// A limit below this keeps nothing: no database runs in so little.
const KEPT_FROM_BYTES: u64 = 1 << 20;

/// The setting that bounds the pool.
pub const MEMORY_LIMIT_SETTING: &str = "memory_limit";

impl MemoryExceeded {
    /// The name of the setting a user may change.
    pub fn setting(&self) -> &'static str {
        MEMORY_LIMIT_SETTING
    }
}

impl MemoryPool {
    pub fn new(limit_bytes: u64) -> Arc<MemoryPool> {
        Arc::new(MemoryPool {
            limit: AtomicU64::new(limit_bytes),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            consumers: Mutex::default(),
        })
    }

    /// A pool that never refuses, for tests and tools.
    pub fn unlimited() -> Arc<MemoryPool> {
        MemoryPool::new(u64::MAX)
    }

    /// An empty reservation of `consumer`. Reservations of one name are added up in [`by_consumer`](Self::by_consumer).
    pub fn reserve(self: &Arc<Self>, consumer: &'static str) -> Reservation {
        self.reservation(consumer, false)
    }

    /// The same for what is needed to give memory back: it may also take what is kept for that.
    pub fn reserve_for_release(self: &Arc<Self>, consumer: &'static str) -> Reservation {
        self.reservation(consumer, true)
    }

    fn reservation(self: &Arc<Self>, consumer: &'static str, releases: bool) -> Reservation {
        let mut consumers = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = consumers.iter().find(|known| known.name == consumer).cloned();
        let consumer = known.unwrap_or_else(|| {
            let new = Arc::new(Consumer { name: consumer, used: AtomicU64::new(0) });
            consumers.push(Arc::clone(&new));
            new
        });
        Reservation { pool: Arc::clone(self), consumer, bytes: AtomicU64::new(0), releases }
    }

    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes of the limit that only what gives memory back may take.
    pub fn kept(&self) -> u64 {
        kept_of(self.limit())
    }

    /// Changes the limit. Below what is used, only new reservations are refused.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.limit.store(limit_bytes, Ordering::Relaxed);
    }

    /// The most that was ever reserved at once.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Bytes of every consumer that ever reserved, in the order of their names.
    pub fn by_consumer(&self) -> Vec<(&'static str, u64)> {
        let consumers = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> =
            consumers.iter().map(|consumer| (consumer.name, consumer.used.load(Ordering::Relaxed))).collect();
        list.sort_unstable();
        list
    }
}

fn kept_of(limit: u64) -> u64 {
    if limit < KEPT_FROM_BYTES { 0 } else { (limit / KEPT_SHARE).min(KEPT_BYTES_MAX) }
}

/// Bytes held by one consumer; given back when dropped. May be shared between threads.
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<MemoryPool>,
    consumer: Arc<Consumer>,
    bytes: AtomicU64,
    /// May take what is kept.
    releases: bool,
}

impl Reservation {
    /// Reserves `bytes` more, or nothing at all.
    ///
    /// The sum is raised first and taken back if it passed the limit, so that two growing at once cannot both slip
    /// under it; near the limit one may therefore be refused because of another that is being refused.
    pub fn grow(&self, bytes: u64) -> Result<(), MemoryExceeded> {
        let before = self.pool.used.fetch_add(bytes, Ordering::Relaxed);
        let limit = self.pool.limit();
        let limit = if self.releases { limit } else { limit - kept_of(limit) };
        match before.checked_add(bytes) {
            Some(after) if after <= limit => {
                if after > self.pool.peak.load(Ordering::Relaxed) {
                    self.pool.peak.fetch_max(after, Ordering::Relaxed);
                }
                self.consumer.used.fetch_add(bytes, Ordering::Relaxed);
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
            _ => {
                self.pool.used.fetch_sub(bytes, Ordering::Relaxed);
                Err(MemoryExceeded {
                    consumer: self.consumer.name,
                    asked: bytes,
                    used: before,
                    limit,
                    refused_by: RefusedBy::Limit,
                })
            }
        }
    }

    /// Gives `bytes` back.
    ///
    /// # Panics
    /// If the reservation holds less.
    pub fn shrink(&self, bytes: u64) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{} gives back {bytes} of {before} reserved bytes", self.consumer.name);
        self.consumer.used.fetch_sub(bytes, Ordering::Relaxed);
        self.pool.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Grows or shrinks to `bytes`. For a reservation that only one thread changes.
    pub fn resize(&self, bytes: u64) -> Result<(), MemoryExceeded> {
        let held = self.bytes();
        if bytes > held {
            self.grow(bytes - held)
        } else {
            self.shrink(held - bytes);
            Ok(())
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn consumer(&self) -> &'static str {
        self.consumer.name
    }

    pub fn pool(&self) -> &Arc<MemoryPool> {
        &self.pool
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    #[test]
    fn refuses_beyond_the_limit_and_says_why() {
        let pool = MemoryPool::new(1_000);
        let scan = pool.reserve("scan");
        scan.grow(700).unwrap();
        let join = pool.reserve("hash join");
        let refused = join.grow(301).unwrap_err();
        let expected = (("hash join", 301), (700, 1_000), RefusedBy::Limit);
        assert_eq!(((refused.consumer, refused.asked), (refused.used, refused.limit), refused.refused_by), expected);
        assert!(refused.to_string().contains("hash join asked for 301 bytes"), "{refused}");
        assert!(refused.to_string().contains("memory_limit"), "{refused}");
        join.grow(300).unwrap();
        assert_eq!(pool.by_consumer(), [("hash join", 300), ("scan", 700)]);
        drop(scan);
        assert_eq!((pool.used(), pool.peak()), (300, 1_000));
        assert!(join.grow(u64::MAX).is_err(), "an overflowing sum is beyond the limit");
        assert_eq!(pool.used(), 300);
        drop(join);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn a_part_is_kept_for_what_gives_memory_back() {
        let pool = MemoryPool::new(16 << 20);
        assert_eq!(pool.kept(), 1 << 20);
        let rows = pool.reserve("rows");
        rows.grow(15 << 20).unwrap();
        let refused = rows.grow(1).unwrap_err();
        assert_eq!((refused.used, refused.limit), (15 << 20, 15 << 20));
        let deletes = pool.reserve_for_release("deletes");
        deletes.grow(1 << 20).unwrap();
        assert_eq!(deletes.grow(1).unwrap_err().limit, 16 << 20);
        rows.shrink(1 << 20);
        assert!(rows.grow(1).is_err(), "what deletes took is missing elsewhere");
        drop(deletes);
        rows.grow(1 << 20).unwrap();
        pool.set_limit(1 << 40);
        assert_eq!(pool.kept(), KEPT_BYTES_MAX);
    }

    #[test]
    fn threads_never_pass_the_limit_together_and_return_to_zero() {
        let pool = MemoryPool::new(10_000);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut random = SeededRandom::new(seed);
                    let reservation = pool.reserve(if seed % 2 == 0 { "even" } else { "odd" });
                    for _ in 0..20_000 {
                        if random.chance(0.5) {
                            let _ = reservation.grow(random.below(4_000));
                        } else {
                            reservation.shrink(random.below(reservation.bytes() + 1));
                        }
                    }
                });
            }
        });
        assert_eq!(pool.used(), 0);
        assert!(pool.peak() <= 10_000, "peak {}", pool.peak());
        assert_eq!(pool.by_consumer(), [("even", 0), ("odd", 0)]);
    }

    #[test]
    #[should_panic(expected = "gives back 2 of 1")]
    fn giving_back_more_than_held_is_a_bug() {
        let pool = MemoryPool::unlimited();
        let reservation = pool.reserve("test");
        reservation.grow(1).unwrap();
        reservation.shrink(2);
    }
}
