//! What one file holds: for readers, on the disk, and on the way there.
//!
//! ```text
//!    durable           what the last sync left on the disk
//!  + unsynced          writes and new lengths since, in order
//!  = current           what readers see, unless a sync failed and lost some of it
//! ```
//!
//! A power loss leaves of each sector one of its states: as it was durable, or as it was after one of the unsynced
//! writes to it. (The kernel writes whole sectors of its page cache, so a later write never reaches the disk without
//! what an earlier one put in the same sector; sectors are independent of each other.) A torn sector is the beginning
//! of one state and the rest of an older one.
//!
//! The length and truncations belong to the file system's journal, which keeps their order: there is a point up to
//! which they survive. A sector that a surviving truncation cut is not as it was before, one that a lost truncation
//! would have cut is not as it was after. What is behind the length is gone; what is before it and on no surviving
//! sector is zeros.

use std::collections::BTreeMap;

use super::disk_faults::{DiskFaults, FailedSync, Unsynced};
use crate::random::SeededRandom;

/// What a disk writes in one piece, or at least in order from its beginning.
const SECTOR_BYTES: usize = 512;

#[derive(Default)]
pub(super) struct Inode {
    current: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    /// Open handles; the file lives as long as there is one, even without a name.
    pub(super) handles: usize,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLength(usize),
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if contents.len() < end {
                    contents.resize(end, 0);
                }
                contents[*offset..end].copy_from_slice(bytes);
            }
            Change::SetLength(length) => contents.resize(*length, 0),
        }
    }

    fn length_after(&self, before: usize) -> usize {
        match self {
            Change::Write { offset, bytes } => before.max(offset + bytes.len()),
            Change::SetLength(length) => *length,
        }
    }

    /// The bytes that it changes in a file of length `before`.
    fn range(&self, before: usize) -> (usize, usize) {
        match self {
            Change::Write { offset, bytes } => (*offset, offset + bytes.len()),
            Change::SetLength(length) => (*length, before.max(*length)),
        }
    }
}

impl Inode {
    /// A file whose contents are durable.
    pub(super) fn durable(bytes: Vec<u8>) -> Inode {
        Inode { current: bytes.clone(), durable: bytes, ..Inode::default() }
    }

    pub(super) fn contents(&self) -> &[u8] {
        &self.current
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        // The kernel does not extend a file for no bytes.
        if !bytes.is_empty() {
            self.change(Change::Write { offset, bytes: bytes.to_vec() });
        }
    }

    pub(super) fn set_length(&mut self, length: usize) {
        if length != self.current.len() {
            self.change(Change::SetLength(length));
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    pub(super) fn fail_sync(&mut self, failed_sync: FailedSync) {
        match failed_sync {
            FailedSync::LosesWrites => self.unsynced.clear(),
            FailedSync::KeepsWrites => {}
        }
    }

    pub(super) fn lose_power(&mut self, faults: &DiskFaults, random: &mut SeededRandom) {
        match faults.unsynced {
            Unsynced::Kept => self.sync(),
            Unsynced::Lost => self.unsynced.clear(),
            Unsynced::Random { .. } => self.durable = self.surviving(faults.unsynced, random),
        }
        self.unsynced.clear();
        self.current.clone_from(&self.durable);
    }

    fn surviving(&self, unsynced: Unsynced, random: &mut SeededRandom) -> Vec<u8> {
        let mut lengths = vec![self.durable.len()];
        let mut sectors = BTreeMap::<usize, Vec<usize>>::new();
        for (index, change) in self.unsynced.iter().enumerate() {
            let before = lengths[index];
            lengths.push(change.length_after(before));
            let (start, end) = change.range(before);
            // Extending changes no sector.
            if start < end {
                for sector in start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
                    sectors.entry(sector).or_default().push(index);
                }
            }
        }
        // Lengths and truncations of the changes before this one survive, those from it on do not.
        let journaled = unsynced.survivor(0, self.unsynced.len(), random);
        let mut image = self.durable.clone();
        for (sector, changes) in sectors {
            let bytes = self.surviving_sector(sector, &changes, journaled, unsynced, random);
            let start = sector * SECTOR_BYTES;
            if image.len() < start + SECTOR_BYTES {
                image.resize(start + SECTOR_BYTES, 0);
            }
            image[start..start + SECTOR_BYTES].copy_from_slice(&bytes);
        }
        image.resize(self.surviving_length(&lengths, journaled, random), 0);
        image
    }

    fn surviving_sector(
        &self,
        sector: usize,
        changes: &[usize],
        journaled: usize,
        unsynced: Unsynced,
        random: &mut SeededRandom,
    ) -> [u8; SECTOR_BYTES] {
        // State `n` is the one after the first `n` of the changes.
        let truncates = |index: &usize| matches!(self.unsynced[*index], Change::SetLength(_));
        let survived = changes.partition_point(|index| *index < journaled);
        let oldest = changes[..survived].iter().rposition(truncates).map_or(0, |position| position + 1);
        let newest =
            changes[survived..].iter().position(truncates).map_or(changes.len(), |position| survived + position);
        let state = |count: usize| self.sector_after(sector, &changes[..count]);
        let Some((newer, older)) = unsynced.tear(oldest, newest, random) else {
            return state(unsynced.survivor(oldest, newest, random));
        };
        let (newer, mut torn) = (state(newer), state(older));
        let differs = |position: &usize| newer[*position] != torn[*position];
        let (first, last) = ((0..SECTOR_BYTES).find(differs), (0..SECTOR_BYTES).rfind(differs));
        // Where both states agree, or differ in one byte only, no cut shows.
        if let (Some(first), Some(last)) = (first, last)
            && first < last
        {
            let cut = first + 1 + random.index(last - first);
            torn[..cut].copy_from_slice(&newer[..cut]);
        }
        torn
    }

    /// A sector after the given changes, all of which touch it.
    fn sector_after(&self, sector: usize, changes: &[usize]) -> [u8; SECTOR_BYTES] {
        let start = sector * SECTOR_BYTES;
        let mut state = [0; SECTOR_BYTES];
        overlay(&mut state, start, 0, &self.durable);
        for index in changes {
            match &self.unsynced[*index] {
                Change::Write { offset, bytes } => overlay(&mut state, start, *offset, bytes),
                Change::SetLength(length) => state[length.saturating_sub(start).min(SECTOR_BYTES)..].fill(0),
            }
        }
        state
    }

    /// The journaled length, or a part of the write that would have extended it next: the kernel writes a long write
    /// in pieces, and lets the length follow.
    fn surviving_length(&self, lengths: &[usize], journaled: usize, random: &mut SeededRandom) -> usize {
        let length = lengths[journaled];
        let extending = matches!(self.unsynced.get(journaled), Some(Change::Write { .. }));
        if !extending || random.below(2) == 0 {
            return length;
        }
        let first = length / SECTOR_BYTES + 1;
        let sectors = lengths[journaled + 1].saturating_sub(1) / SECTOR_BYTES;
        if sectors < first { length } else { (first + random.index(sectors + 1 - first)) * SECTOR_BYTES }
    }
}

/// Puts the part of `bytes`, which begin at `offset` of the file, into the sector that begins at `start`.
fn overlay(sector: &mut [u8; SECTOR_BYTES], start: usize, offset: usize, bytes: &[u8]) {
    let from = start.max(offset);
    let until = (start + SECTOR_BYTES).min(offset + bytes.len());
    if from < until {
        sector[from - start..until - start].copy_from_slice(&bytes[from - offset..until - offset]);
    }
}
