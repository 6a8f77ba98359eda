//! Row locks: rows that a transaction wants to stay as they are, without changing them.
//!
//! Writers lock rows in their end words. A lock without a write cannot go there: several may share it, and a reader
//! would have to tell it from an end. So row locks stand beside the rows, by address, and writers look here only while
//! there are any. What conflicts with what is PostgreSQL's table (its manual, section 13.3.2):
//!
//! ```text
//!                  key share   share   no key update   update
//!   key share          -         -           -            x
//!   share              -         -           x            x
//!   no key update      -         x           x            x
//!   update             x         x           x            x
//! ```
//! An update that leaves the key as it is takes *no key update*, one that changes it takes *update*, and so does a
//! delete; the end word says which of the two it was.
//!
//! A lock ends with its holder: the word of the holding statement is resolved as every other word is, so that commit,
//! abort and the rollback of a part of a transaction release locks without visiting them. What is left is removed when
//! the holder is settled. A lock goes where its row goes (compaction, split), and to the new version that an update
//! makes of it.

use super::Store;
use super::before_images::Newer;
use super::overwrite::OVERWRITE_LOCK;
use super::split::Split;
use super::undo::Appended;
use crate::address::RowAddress;
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::mvcc::{Holder, Outcome, Snapshot, TransactionId, Word, WordKind};
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How much of a row is locked, from the weakest to the strongest: each conflicts with all that a weaker one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowLock {
    /// The row is not deleted and keeps its key (what a foreign key needs).
    KeyShare,
    /// The row stays as it is.
    Share,
    /// Nobody else changes the row or shares all of it; its key may be shared.
    NoKeyUpdate,
    /// Nobody else locks the row at all.
    Update,
}

impl RowLock {
    /// Whether two transactions cannot hold these at once.
    pub fn conflicts_with(self, other: Self) -> bool {
        let stronger = self.max(other);
        match self.min(other) {
            Self::KeyShare => stronger == Self::Update,
            Self::Share => stronger >= Self::NoKeyUpdate,
            Self::NoKeyUpdate | Self::Update => true,
        }
    }

    /// What the writer of an end word has locked.
    fn of_end(end: Word) -> Self {
        if end.keeps_key() { Self::NoKeyUpdate } else { Self::Update }
    }

    /// The lock word of a write in this mode.
    pub(super) fn word(self, snapshot: &Snapshot<'_>) -> Word {
        match self {
            Self::NoKeyUpdate => snapshot.lock().keeping_key(),
            Self::KeyShare | Self::Share | Self::Update => snapshot.lock(),
        }
    }
}

/// What a request for row locks got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockedRows {
    /// Positions of the rows that are locked now, in order.
    pub rows: Vec<u32>,
    /// Whether the transaction had nothing pending here before.
    pub first_of_transaction: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    holder: Holder,
    mode: RowLock,
}

/// What one lock costs in both maps, about.
const LOCK_BYTES: u64 = 96;

/// See the module's documentation.
pub(super) struct RowLocks {
    by_row: BTreeMap<RowAddress, Vec<Held>>,
    by_transaction: BTreeMap<TransactionId, BTreeSet<RowAddress>>,
    memory: Reservation,
}

impl RowLocks {
    pub(super) fn new(memory: &Arc<MemoryPool>) -> Self {
        Self { by_row: BTreeMap::new(), by_transaction: BTreeMap::new(), memory: memory.reserve("row locks") }
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.by_row.is_empty()
    }

    /// Somebody else whose lock on the row stands against this one.
    pub(super) fn conflict(&self, snapshot: &Snapshot<'_>, row: RowAddress, mode: RowLock) -> Option<Holder> {
        let held = self.by_row.get(&row)?.iter();
        let mut others = held.filter(|held| held.holder.transaction != snapshot.transaction);
        others
            .find(|held| held.mode.conflicts_with(mode) && is_undecided(snapshot, held.holder))
            .map(|held| held.holder)
    }

    /// Notes a lock unless the transaction has one that is as strong.
    fn add(&mut self, snapshot: &Snapshot<'_>, row: RowAddress, mode: RowLock) -> Result<(), StorageError> {
        let holder = Holder { transaction: snapshot.transaction, statement: snapshot.statement };
        let covers = |held: &Held| {
            // Planted: a lock that was rolled back with its statement counts as one that the transaction has.
            let holds = cfg!(feature = "bug_row_lock_of_void_statement") || is_undecided(snapshot, held.holder);
            // A lock of a later statement may be rolled back before this one is.
            let lasts = held.holder.statement <= holder.statement;
            held.holder.transaction == holder.transaction && lasts && held.mode >= mode && holds
        };
        if self.by_row.get(&row).is_some_and(|list| list.iter().any(covers)) {
            return Ok(());
        }
        self.memory.grow(LOCK_BYTES)?;
        self.put(row, Held { holder, mode });
        Ok(())
    }

    fn put(&mut self, row: RowAddress, held: Held) {
        self.by_row.entry(row).or_default().push(held);
        self.by_transaction.entry(held.holder.transaction).or_default().insert(row);
    }

    /// Removes all locks of a row.
    fn take(&mut self, row: RowAddress) -> Vec<Held> {
        let list = self.by_row.remove(&row).unwrap_or_default();
        for held in &list {
            self.forget(held.holder.transaction, row);
        }
        self.memory.shrink((list.len() as u64 * LOCK_BYTES).min(self.memory.bytes()));
        list
    }

    fn forget(&mut self, transaction: TransactionId, row: RowAddress) {
        if let Some(rows) = self.by_transaction.get_mut(&transaction) {
            rows.remove(&row);
            if rows.is_empty() {
                self.by_transaction.remove(&transaction);
            }
        }
    }

    /// The row has another address now.
    pub(super) fn moved(&mut self, from: RowAddress, to: RowAddress) {
        if self.is_empty() {
            return;
        }
        let list = self.take(from);
        // Given back a moment ago. A lock must not get lost for lack of memory.
        let _ = self.memory.grow(list.len() as u64 * LOCK_BYTES);
        for held in list {
            self.put(to, held);
        }
    }

    /// An earlier version of the row has an address of its own now: what holds the row holds it, too.
    pub(super) fn copy(&mut self, from: RowAddress, to: RowAddress) {
        for held in self.by_row.get(&from).cloned().unwrap_or_default() {
            // As in `moved`.
            let _ = self.memory.grow(LOCK_BYTES);
            self.put(to, held);
        }
    }

    /// Removes the locks of a decided transaction; false if the budget did not last.
    pub(super) fn release(&mut self, transaction: TransactionId, budget: &mut usize) -> bool {
        while let Some(row) = self.by_transaction.get(&transaction).and_then(|rows| rows.first()).copied() {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.forget(transaction, row);
            let Some(list) = self.by_row.get_mut(&row) else { continue };
            let before = list.len();
            list.retain(|held| held.holder.transaction != transaction);
            let released = (before - list.len()) as u64;
            if list.is_empty() {
                self.by_row.remove(&row);
            }
            self.memory.shrink((released * LOCK_BYTES).min(self.memory.bytes()));
        }
        true
    }
}

fn is_undecided(snapshot: &Snapshot<'_>, holder: Holder) -> bool {
    snapshot.outcomes.outcome(holder.transaction, holder.statement) == Outcome::Active
}

impl Store {
    /// Locks rows that a read of the same statement delivered. With `skip`, rows that somebody undecided holds are left
    /// out; otherwise they are a conflict. Locks obtained before stay: asking again gives them again.
    pub fn lock_rows(
        &mut self,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        mode: RowLock,
        skip: bool,
    ) -> Result<LockedRows, StorageError> {
        let first_of_transaction = self.pending.enter(snapshot.transaction);
        let mut rows = Vec::with_capacity(addresses.len());
        for (row, address) in addresses.iter().enumerate() {
            match self.lock_row(snapshot, *address, mode) {
                Ok(()) => rows.push(row as u32),
                Err(error) if skip && error.undecided().is_some() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(LockedRows { rows, first_of_transaction })
    }

    fn lock_row(&mut self, snapshot: &Snapshot<'_>, address: RowAddress, mode: RowLock) -> Result<(), StorageError> {
        self.restore_void(snapshot.outcomes, address);
        let offset = address.offset().0;
        let gone = StorageError::Conflict { with: None };
        let Some(segment) = self.segment(address.segment()) else { return Err(gone) };
        if offset >= segment.rows() || segment.is_vacated(offset) {
            return Err(gone);
        }
        match self.newer_version(snapshot, address) {
            None => {}
            // Changed by this statement already: nobody else can change it.
            Some(Newer::Own) => return Ok(()),
            Some(Newer::Committed) => return Err(gone),
            Some(Newer::Undecided(holder)) if mode.conflicts_with(OVERWRITE_LOCK) => {
                return Err(StorageError::Conflict { with: Some(holder) });
            }
            // The lock is on all versions, since all are at this address.
            Some(Newer::Undecided(_)) => {}
        }
        let end = segment.end(offset);
        let mut successors = Vec::new();
        match end.kind() {
            WordKind::Timestamp(_) if end == Word::NEVER => {}
            WordKind::Timestamp(_) => return Err(gone),
            WordKind::Lock { transaction, statement } => match snapshot.outcomes.outcome(transaction, statement) {
                Outcome::Aborted => {}
                Outcome::Committed(_) => return Err(gone),
                // Changed by this statement already: nobody else can change it.
                Outcome::Active if transaction == snapshot.transaction => return Ok(()),
                Outcome::Active => {
                    let holder = Holder { transaction, statement };
                    if mode.conflicts_with(RowLock::of_end(end)) {
                        return Err(StorageError::Conflict { with: Some(holder) });
                    }
                    // The key stays whether the update commits or not: the lock is on both versions.
                    successors = self.versions_by(holder, address);
                    let ends = |row: &RowAddress| self.ends_with_key(snapshot, *row);
                    if successors.is_empty() || successors.iter().any(ends) {
                        return Err(StorageError::Conflict { with: Some(holder) });
                    }
                }
            },
        }
        successors.push(address);
        // Whoever changed the row may have locked what came of it.
        if let Some(holder) = successors.iter().find_map(|row| self.row_locks.conflict(snapshot, *row, mode)) {
            return Err(StorageError::Conflict { with: Some(holder) });
        }
        for row in successors {
            self.row_locks.add(snapshot, row, mode)?;
        }
        Ok(())
    }

    /// The versions that an undecided update made of a row: same key, begun by the updater. None if no key finds them.
    fn versions_by(&self, updater: Holder, row: RowAddress) -> Vec<RowAddress> {
        let mut versions = Vec::new();
        for index in self.indexes.iter().filter(|index| index.definition.unique) {
            let columns = self.link_attributes(&index.definition.attributes, &[row]);
            if columns.iter().any(|column| column.is_null(0)) {
                continue;
            }
            index.path.equal(&columns, 0, &mut |other| {
                let begin = self.segment(other.segment()).map(|segment| segment.begin(other.offset().0));
                if other != row && begin.and_then(Word::transaction) == Some(updater.transaction) {
                    versions.push(other);
                }
            });
            break;
        }
        versions
    }

    /// Whether the key of a row that somebody undecided began will end with it: a later statement of theirs deleted it,
    /// or gave it another key.
    fn ends_with_key(&self, snapshot: &Snapshot<'_>, row: RowAddress) -> bool {
        let Some(end) = self.segment(row.segment()).map(|segment| segment.end(row.offset().0)) else { return false };
        match end.kind() {
            WordKind::Timestamp(_) => false,
            WordKind::Lock { transaction, statement } => {
                !end.keeps_key() && snapshot.outcomes.outcome(transaction, statement) != Outcome::Aborted
            }
        }
    }

    /// Other transactions' locks on updated rows are on their new versions, too.
    pub(super) fn pass_locks_on(
        &mut self,
        snapshot: &Snapshot<'_>,
        old: &[RowAddress],
        new: &Appended,
    ) -> Result<(), StorageError> {
        if self.row_locks.is_empty() {
            return Ok(());
        }
        for (old, new) in old.iter().zip(new.addresses()) {
            let Some(list) = self.row_locks.by_row.get(old) else { continue };
            let others = list
                .iter()
                .copied()
                .filter(|held| held.holder.transaction != snapshot.transaction && is_undecided(snapshot, held.holder));
            for held in others.collect::<Vec<_>>() {
                self.row_locks.memory.grow(LOCK_BYTES)?;
                self.row_locks.put(new, held);
            }
        }
        Ok(())
    }

    /// The locks of rows that were handed over go with them; their holders are registered in the target.
    pub(super) fn hand_locks_over(&mut self, split: &Split, target: &mut Self, entered: &mut Vec<TransactionId>) {
        let rows: Vec<RowAddress> = self.row_locks.by_row.keys().copied().collect();
        for row in rows {
            let moved = split.moved.get(&row.segment());
            let Some(to) = moved.and_then(|moved| moved.target(row.offset().0)) else { continue };
            for held in self.row_locks.take(row) {
                if target.pending.enter(held.holder.transaction) {
                    entered.push(held.holder.transaction);
                }
                let _ = target.row_locks.memory.grow(LOCK_BYTES);
                target.row_locks.put(to, held);
            }
        }
    }

    /// The mode in which an update of these attributes locks a row.
    pub(super) fn update_mode(&self, attributes: &[AttributeId]) -> RowLock {
        let unique = self.indexes.iter().chain(&self.building).filter(|index| index.definition.unique);
        let mut keys = unique.flat_map(|index| index.definition.attributes.iter());
        if keys.any(|key| attributes.contains(key)) { RowLock::Update } else { RowLock::NoKeyUpdate }
    }
}

#[cfg(test)]
mod tests {
    use super::RowLock::{KeyShare, NoKeyUpdate, Share, Update};

    #[test]
    fn row_locks_conflict_as_in_postgresql() {
        let modes = [KeyShare, Share, NoKeyUpdate, Update];
        let table = ["---x", "--xx", "-xxx", "xxxx"];
        for (row, expected) in modes.iter().zip(table) {
            let found: String =
                modes.iter().map(|column| if row.conflicts_with(*column) { 'x' } else { '-' }).collect();
            assert_eq!(found, expected, "{row:?}");
        }
    }
}
