//! What opening does when its memory is short: it makes room and tries again.
//!
//! The rows of a database were in the memory that it had before, so they find a place in as much. While it is opened
//! they come faster than maintenance encodes them, and what is on its way takes some memory, too.

use std::time::Duration;

use eris_engine::Engine;

/// How long partitions are given to vacate and encode what they can.
const RECLAIM_MAX: Duration = Duration::from_mins(1);
/// So many tries in a row bring nothing before it is believed.
const TRIES_IN_VAIN: u32 = 3;

/// Tries of one piece of work.
pub(crate) struct Tries<'e> {
    engine: &'e Engine,
    /// What was used at the end of the last one, without what the work itself had taken.
    used: u64,
    in_vain: u32,
}

impl<'e> Tries<'e> {
    pub fn new(engine: &'e Engine) -> Self {
        Self { engine, used: u64::MAX, in_vain: 0 }
    }

    /// The work was refused memory, and nothing is left of it: makes room. False if another try is in vain.
    pub async fn again(&mut self) -> bool {
        let memory = self.engine.memory();
        self.engine.reclaim_memory(RECLAIM_MAX).await;
        let used = memory.used();
        if used < self.used {
            (self.used, self.in_vain) = (used, 0);
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
