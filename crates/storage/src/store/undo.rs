//! Taking back a write that met somebody undecided, so that it can be tried again as if it had never begun.
//!
//! Only the words are restored. What was noted beside them stays: the transaction's list of locks names words that are
//! no longer its own (settling passes them over, as it does when a lock was taken over), and rows that were appended
//! are like those of an aborted insert (never there, ended for everyone, soon vacated with their index entries).

use super::Store;
use crate::address::RowAddress;
use crate::error::StorageError;
use crate::ids::RowOffset;
use crate::mvcc::{Snapshot, Timestamp, Word};
use crate::store::row_locks::RowLock;

/// Where appended rows are: runs of consecutive addresses. The last run is apart, because there is rarely another.
#[derive(Debug, Default)]
pub(super) struct Appended {
    full: Vec<(RowAddress, u32)>,
    last: Option<(RowAddress, u32)>,
}

impl Appended {
    pub(super) fn push(&mut self, first: RowAddress, rows: u32) {
        if let Some(run) = self.last.replace((first, rows)) {
            self.full.push(run);
        }
    }

    /// The rows, in the order they were appended.
    pub(super) fn addresses(&self) -> impl Iterator<Item = RowAddress> + '_ {
        self.full.iter().chain(self.last.as_ref()).flat_map(|(first, rows)| {
            let offset = first.offset().0;
            (offset..offset + rows).map(|offset| RowAddress::new(first.segment(), RowOffset(offset)))
        })
    }
}

impl Store {
    /// Takes the end words of rows; gives the positions of those that this statement had not taken before. If somebody
    /// undecided holds one of them, none is taken.
    pub(super) fn lock_ends(
        &mut self,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        mode: RowLock,
    ) -> Result<Vec<u32>, StorageError> {
        let mut taken = Vec::with_capacity(addresses.len());
        for (row, address) in addresses.iter().enumerate() {
            match self.lock_end(snapshot, *address, mode) {
                Ok(true) => taken.push(row as u32),
                Ok(false) => {}
                Err(error) => {
                    if error.undecided().is_some() {
                        for row in taken {
                            self.unlock_end(snapshot, addresses[row as usize]);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Gives back an end word that this statement took.
    pub(super) fn unlock_end(&mut self, snapshot: &Snapshot<'_>, address: RowAddress) {
        let offset = address.offset().0;
        let Some(segment) = self.segment_mut(address.segment()) else {
            unreachable!("a row whose end is locked stays in its segment");
        };
        let end = segment.end(offset);
        assert!(
            end == snapshot.lock() || end == snapshot.lock().keeping_key(),
            "row {address:?} was locked by this statement"
        );
        // Whatever was there before counted as not ended: nothing, or the lock of somebody who was rolled back.
        if segment.set_end(offset, Word::NEVER).is_err() {
            unreachable!("removing an end word needs no memory");
        }
        self.note_change(address);
    }

    /// Makes rows that this statement appended ones that never were.
    pub(super) fn undo_appended(&mut self, appended: &Appended) -> Result<(), StorageError> {
        for address in appended.addresses() {
            let Some(segment) = self.segment_mut(address.segment()) else { continue };
            segment.set_begin(address.offset().0, Word::NEVER);
            segment.set_end(address.offset().0, Word::ALWAYS)?;
            self.dying.add(Timestamp(0), address);
            self.note_change(address);
        }
        Ok(())
    }

    /// Deletes rows that a read of the same statement delivered; gives the positions of those that this statement had
    /// not changed before. The engine sends these elsewhere.
    pub fn take_rows_out(
        &mut self,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
    ) -> Result<Vec<u32>, StorageError> {
        self.pending.enter(snapshot.transaction);
        self.usage.wrote();
        let taken = self.lock_ends(snapshot, addresses, RowLock::Update)?;
        self.counters.deleted += taken.len() as u64;
        Ok(taken)
    }

    /// Takes back a deletion that this statement just made.
    pub fn put_rows_back(&mut self, snapshot: &Snapshot<'_>, addresses: &[RowAddress]) {
        for address in addresses {
            self.unlock_end(snapshot, *address);
        }
        self.counters.deleted -= addresses.len() as u64;
    }
}
