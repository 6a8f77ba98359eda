//! What opening does when its memory is short: it makes room and tries again.
//!
//! The rows of a database were in the memory that it had before, so they find a place in as much. While it is opened
//! they come faster than maintenance encodes them, and what is on its way takes some memory, too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use eris_engine::Engine;

/// How long partitions are given to vacate and encode what they can.
const RECLAIM_MAX: Duration = Duration::from_mins(1);
/// Between two looks whether it is a piece's turn.
const TURN_STEP: Duration = Duration::from_millis(1);
/// Fruitless tries in a row before giving up; several, because reclaiming is slow on a busy machine.
const TRIES_IN_VAIN: u32 = 40;

/// Pieces of work that are done side by side.
#[derive(Default)]
pub(crate) struct Pieces {
    done: AtomicU64,
    /// Whether one of them has its turn.
    is_taken: AtomicBool,
}

impl Pieces {
    /// Counts a piece, or a part of one, that was done.
    pub fn note_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until no other piece that was refused memory is tried again: two that have half of what they need refuse
    /// each other the rest.
    pub async fn turn<'p>(&'p self, engine: &Engine) -> Turn<'p> {
        while self.is_taken.swap(true, Ordering::AcqRel) {
            engine.sleep_until(engine.env().now() + TURN_STEP).await;
        }
        Turn(self)
    }

    /// Tries of one of them.
    pub fn tries<'e>(&'e self, engine: &'e Engine) -> Tries<'e> {
        Tries { engine, pieces: self, used: u64::MAX, done: self.done.load(Ordering::Relaxed), in_vain: 0 }
    }
}

/// The right to try again, until it is dropped.
pub(crate) struct Turn<'p>(&'p Pieces);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

/// Tries of one piece of work.
pub(crate) struct Tries<'e> {
    engine: &'e Engine,
    pieces: &'e Pieces,
    /// What was used at the end of the last one, without what the work itself had taken, ...
    used: u64,
    /// ... and how many other pieces were done.
    done: u64,
    in_vain: u32,
}

impl Tries<'_> {
    /// The work was refused memory, and nothing is left of it: makes room. False if another try is in vain: there was
    /// no room to make several times, nor did another piece find some.
    pub async fn again(&mut self) -> bool {
        let memory = self.engine.memory();
        self.engine.reclaim_memory(RECLAIM_MAX).await;
        let (used, done) = (memory.used(), self.pieces.done.load(Ordering::Relaxed));
        if used < self.used || done > self.done {
            (self.used, self.done, self.in_vain) = (used, done, 0);
        } else {
            self.in_vain += 1;
            memory.take_what_is_kept(true);
        }
        self.in_vain < TRIES_IN_VAIN
    }
}

/// What follows cannot be tried again, and may take all there is.
pub(crate) async fn make_room(engine: &Engine) {
    let memory = engine.memory();
    if memory.used() > memory.limit() / 2 {
        engine.reclaim_memory(RECLAIM_MAX).await;
    }
    memory.take_what_is_kept(true);
}

/// Sessions come next. If they would find no room, what deletes left is vacated before.
pub(crate) async fn vacate_for_sessions(engine: &Engine) {
    let memory = engine.memory();
    if memory.used() + memory.kept() > memory.limit() {
        engine.reclaim_memory(RECLAIM_MAX).await;
    }
}
