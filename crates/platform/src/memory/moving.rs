//! What a store may take so that there is more room after it: while it changes a few rows, while it is maintained, and
//! while rows of its segments move.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{MemoryPool, PoolKind};

impl MemoryPool {
    /// Until what is returned is dropped, the store that this pool [is of](MemoryPool::of_store) may also take what is
    /// kept for what gives memory back: a changed row replaces another, which goes soon. One thread at a time works on
    /// a store.
    pub fn change_few_rows(self: &Arc<Self>) -> Option<FewRows> {
        self.is_of_store().then(|| {
            self.takes_what_is_kept.store(true, Ordering::Relaxed);
            FewRows(Arc::clone(self))
        })
    }

    /// Whether this pool [is of a store](MemoryPool::of_store), which may ask for the right to move rows without room.
    pub fn is_of_store(&self) -> bool {
        self.kind == PoolKind::Store
    }

    /// The right to move rows of the store that this pool [is of](MemoryPool::of_store) although there is no room for
    /// them: what they leave is worth more. One store of a database has it at a time, so that little is on its way.
    /// None if another one has it.
    pub fn move_without_room(self: &Arc<Self>) -> Option<Mover> {
        let may = self.is_of_store() && !self.root().has_mover.swap(true, Ordering::AcqRel);
        may.then(|| Mover { pool: Arc::clone(self), has_moved: false })
    }

    /// How often rows were moved without room, up to the end: when it grows, another store may try.
    pub fn moves(&self) -> u64 {
        self.root().moves.load(Ordering::SeqCst)
    }
}

/// A store changes a few rows: see [`MemoryPool::change_few_rows`].
#[derive(Debug)]
pub struct FewRows(Arc<MemoryPool>);

impl Drop for FewRows {
    fn drop(&mut self) {
        self.0.takes_what_is_kept.store(false, Ordering::Relaxed);
    }
}

/// A store may move rows without room: see [`MemoryPool::move_without_room`]. Another one may when it is dropped.
#[derive(Debug)]
pub struct Mover {
    pool: Arc<MemoryPool>,
    has_moved: bool,
}

impl Mover {
    /// Until what is returned is dropped, the store takes memory as what gives memory back may.
    pub fn moving(&self) -> Moving {
        self.pool.gives_back.store(true, Ordering::Relaxed);
        Moving(Arc::clone(&self.pool))
    }

    /// Rows were moved or sealed: others are told of it when this is dropped.
    pub fn note_moved(&mut self) {
        self.has_moved = true;
    }

    /// Whether rows were moved or sealed.
    pub fn has_moved(&self) -> bool {
        self.has_moved
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        let root = self.pool.root();
        root.has_mover.store(false, Ordering::Release);
        // Sequentially consistent, like the parking of refused maintenance, which reads this counter afterwards: one of
        // the two sees the other.
        root.moves.fetch_add(u64::from(self.has_moved), Ordering::SeqCst);
    }
}

/// Rows are being moved: see [`Mover::moving`].
#[derive(Debug)]
pub struct Moving(Arc<MemoryPool>);

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.gives_back.store(false, Ordering::Relaxed);
    }
}
