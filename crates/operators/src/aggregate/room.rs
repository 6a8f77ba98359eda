//! The memory of one aggregation, reserved before it is taken.
//!
//! Whatever has one entry a group (words, group columns, states) grows together, so that a growth is one reservation
//! and rows of known groups never come here. It doubles while there is memory for that, then takes an eighth more each
//! time, so that most of the memory can be used. Texts differ in length: they are counted at the end of a
//! batch, and are at most one batch ahead of their reservation.

use std::sync::Arc;

use eris_platform::{MemoryExceeded, MemoryPool, Reservation};

/// What the pool calls it.
const CONSUMER: &str = "aggregate";
/// The first growth; most groupings stay below.
const GROUPS_MIN: usize = 16;
/// Where doubling is refused, it asks for an eighth more.
const SMALL_GROWTH_SHARE: usize = 8;
/// Texts are reserved in steps of this size.
const TEXT_STEP_BYTES: u64 = 4 << 10;

#[derive(Debug)]
pub(super) struct Room {
    reservation: Reservation,
    /// Bytes of everything that has one entry a group.
    group_bytes: u64,
    groups: usize,
    texts: u64,
    /// Its groups can be written to files: it is refused earlier than others, and texts of a batch that was taken are
    /// kept, whatever they take.
    spills: bool,
    is_full: bool,
    /// Why, if memory was refused.
    refused: Option<MemoryExceeded>,
}

impl Room {
    pub fn new(memory: &Arc<MemoryPool>, group_bytes: usize) -> Self {
        Self {
            reservation: memory.reserve(CONSUMER),
            group_bytes: group_bytes as u64,
            groups: 0,
            texts: 0,
            spills: false,
            is_full: false,
            refused: None,
        }
    }

    /// The same, empty, for groups that can be written to files.
    pub fn spilling(&self) -> Self {
        let reservation = self.reservation.pool().reserve_spillable(CONSUMER);
        let group_bytes = self.group_bytes;
        Self { reservation, group_bytes, groups: 0, texts: 0, spills: true, is_full: false, refused: None }
    }

    /// Whether no more rows should be taken.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// What was refused to texts that it has all the same.
    pub fn refused(&self) -> Option<&MemoryExceeded> {
        self.refused.as_ref()
    }

    /// No more rows are to be taken.
    pub fn close(&mut self) {
        self.is_full = true;
    }

    /// Groups that have room.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Makes room for at least one group more.
    pub fn grow(&mut self) -> Result<(), MemoryExceeded> {
        let more = self.groups.max(GROUPS_MIN);
        let grow = |more: usize| self.reservation.grow(more as u64 * self.group_bytes).map(|()| more);
        self.groups += grow(more).or_else(|_| grow((more / SMALL_GROWTH_SHARE).max(GROUPS_MIN)))?;
        Ok(())
    }

    /// Each group takes other bytes for its key than before.
    pub fn widen_groups(&mut self, before: usize, now: usize) -> Result<(), MemoryExceeded> {
        let (before, now) = (before as u64, now as u64);
        if now > before {
            self.reservation.grow((now - before) * self.groups as u64)?;
        } else {
            self.reservation.shrink((before - now) * self.groups as u64);
        }
        self.group_bytes = self.group_bytes + now - before;
        Ok(())
    }

    /// Bytes of a group.
    pub fn group_bytes(&self) -> u64 {
        self.group_bytes
    }

    /// Reserves what is neither an entry of a group nor text.
    pub fn add(&mut self, bytes: usize) -> Result<(), MemoryExceeded> {
        self.reservation.grow(bytes as u64)
    }

    /// Gives back what was [added](Self::add).
    pub fn give_back(&mut self, bytes: usize) {
        self.reservation.shrink(bytes as u64);
    }

    /// Reserves for texts of so many bytes in all.
    pub fn texts(&mut self, bytes: u64) -> Result<(), MemoryExceeded> {
        if bytes > self.texts {
            let wanted = bytes.next_multiple_of(TEXT_STEP_BYTES);
            match self.reservation.grow(wanted - self.texts) {
                Ok(()) => self.texts = wanted,
                // They are there, and go to files next.
                Err(refused) if self.spills => (self.is_full, self.refused) = (true, Some(refused)),
                Err(refused) => return Err(refused),
            }
        }
        Ok(())
    }

    /// What is reserved.
    pub fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }
}
