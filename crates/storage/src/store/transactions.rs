//! The local transaction manager: where undecided transactions have their lock words, and stamping them when decided.

use super::Store;
use super::row_run::RowRun;
use crate::address::RowAddress;
use crate::error::StorageError;
use crate::ids::SegmentNumber;
use crate::mvcc::{Outcome, Outcomes, StatementNumber, Timestamp, TransactionId, Word, WordKind};
use crate::segment::State;
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which word of a row is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locked {
    Begin,
    End,
    /// The begin of a whole segment (attach).
    Segment,
}

/// Rows with the same word locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locks {
    pub rows: RowRun,
    pub locked: Locked,
}

impl Locks {
    /// A lock of one row, or of the segment that it is the first of.
    pub(super) fn of(row: RowAddress, locked: Locked) -> Self {
        Self { rows: RowRun::new(row, 1), locked }
    }

    /// Takes in rows that lie close after these, with the same word locked; false if they do not.
    fn append(&mut self, next: &Locks) -> bool {
        self.locked != Locked::Segment && self.locked == next.locked && self.rows.append(next.rows)
    }
}

/// See the module's documentation.
pub(super) struct Pending {
    transactions: BTreeMap<TransactionId, Vec<Locks>>,
    memory: Reservation,
}

/// No statement has this number, so it is decided with its transaction and not before.
const NO_STATEMENT: StatementNumber = StatementNumber(0);

/// The statement that placed a lock, if this transaction did.
pub(super) fn statement_of(word: Word, transaction: TransactionId) -> Option<StatementNumber> {
    match word.kind() {
        WordKind::Lock { transaction: holder, statement } if holder == transaction => Some(statement),
        WordKind::Lock { .. } | WordKind::Timestamp(_) => None,
    }
}

const LOCKS_BYTES: u64 = size_of::<Locks>() as u64;
const _: () = assert!(LOCKS_BYTES == 24, "a transaction that locks many rows has many");

impl Pending {
    pub(super) fn new(memory: &Arc<MemoryPool>) -> Self {
        Self { transactions: BTreeMap::new(), memory: memory.reserve_for_release("transaction locks") }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Reserves for `more` entries, so that `add` cannot fail.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), StorageError> {
        Ok(self.memory.grow(more as u64 * LOCKS_BYTES)?)
    }

    /// Gives back what `reserve` took and `add` did not use.
    pub(super) fn unreserve(&mut self, unused: usize) {
        self.memory.shrink(unused as u64 * LOCKS_BYTES);
    }

    /// Makes the transaction known here; true if it was not.
    pub(super) fn enter(&mut self, transaction: TransactionId) -> bool {
        let mut new = false;
        self.transactions.entry(transaction).or_insert_with(|| {
            new = true;
            Vec::new()
        });
        new
    }

    /// Notes locks of a transaction that was entered and whose memory was reserved. Rows that lie close after the last
    /// ones are one run with them.
    pub(super) fn add(&mut self, transaction: TransactionId, locks: Locks) {
        let Some(list) = self.transactions.get_mut(&transaction) else {
            unreachable!("transaction {transaction} was entered");
        };
        if !list.last_mut().is_some_and(|last| last.append(&locks)) {
            list.push(locks);
            return;
        }
        // Planted: what was reserved for an entry of its own stays reserved.
        if !cfg!(feature = "bug_lock_run_keeps_bytes") {
            self.memory.shrink(LOCKS_BYTES);
        }
    }

    /// The transactions and their locks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TransactionId, &[Locks])> {
        self.transactions.iter().map(|(transaction, locks)| (*transaction, locks.as_slice()))
    }
}

impl Store {
    /// Whether lock words of the transaction may be here: it will be reported as settled.
    pub fn has_pending(&self, transaction: TransactionId) -> bool {
        self.pending.transactions.contains_key(&transaction)
    }

    /// The transactions that have words here.
    pub fn pending_transactions(&self) -> impl Iterator<Item = TransactionId> {
        self.pending.transactions.keys().copied()
    }

    /// Stamps words of decided transactions, up to `budget` rows; those with no words left are returned.
    pub(super) fn settle(
        &mut self,
        outcomes: &dyn Outcomes,
        budget: &mut usize,
    ) -> Result<Vec<TransactionId>, StorageError> {
        let mut settled = Vec::new();
        let transactions: Vec<TransactionId> = self.pending.transactions.keys().copied().collect();
        for transaction in transactions {
            // Statements that were rolled back before stay as they are until their transaction is decided: no word of a
            // transaction is written before its last one was.
            if outcomes.outcome(transaction, NO_STATEMENT) == Outcome::Active {
                continue;
            }
            if !self.row_locks.release(transaction, budget) {
                return Ok(settled);
            }
            while let Some(locks) = self.pending.transactions.get(&transaction).and_then(|list| list.last()).copied() {
                if *budget == 0 {
                    return Ok(settled);
                }
                let rows = locks.rows.rows().min((*budget).try_into().unwrap_or(u32::MAX));
                self.settle_locks(transaction, locks, outcomes, rows)?;
                *budget -= rows as usize;
                let Some(list) = self.pending.transactions.get_mut(&transaction) else { break };
                if let Some(left) = locks.rows.without_last(rows)
                    && let Some(last) = list.last_mut()
                {
                    last.rows = left;
                } else {
                    list.pop();
                    self.pending.memory.shrink(LOCKS_BYTES);
                }
            }
            self.pending.transactions.remove(&transaction);
            settled.push(transaction);
            self.counters.settled += 1;
        }
        Ok(settled)
    }

    /// Stamps the last `rows` rows of a run.
    fn settle_locks(
        &mut self,
        transaction: TransactionId,
        locks: Locks,
        outcomes: &dyn Outcomes,
        rows: u32,
    ) -> Result<(), StorageError> {
        let number = locks.rows.first().segment();
        if locks.locked == Locked::Segment {
            self.settle_segment(transaction, number, outcomes);
            return Ok(());
        }
        for address in locks.rows.addresses().rev().take(rows as usize) {
            match locks.locked {
                Locked::Begin => self.settle_begin(transaction, address, outcomes)?,
                Locked::End => self.settle_end(transaction, address, outcomes)?,
                Locked::Segment => unreachable!("handled above"),
            }
            if let Some(segment) = self.segment_mut(number) {
                segment.locks -= 1;
            }
        }
        if self.segment(number).is_some_and(|segment| segment.locks == 0) && self.tail != Some(number) {
            self.candidates.insert(number);
        }
        Ok(())
    }

    fn settle_begin(
        &mut self,
        transaction: TransactionId,
        address: RowAddress,
        outcomes: &dyn Outcomes,
    ) -> Result<(), StorageError> {
        self.settle_images(transaction, address, outcomes);
        let offset = address.offset().0;
        let Some(segment) = self.segment_mut(address.segment()) else { return Ok(()) };
        let Some(statement) = statement_of(segment.begin(offset), transaction) else { return Ok(()) };
        match outcomes.outcome(transaction, statement) {
            Outcome::Committed(timestamp) => {
                segment.set_begin(offset, Word::timestamp(timestamp));
                segment.newest_begin = segment.newest_begin.max(timestamp.0);
            }
            Outcome::Aborted => {
                segment.set_begin(offset, Word::NEVER);
                segment.set_end(offset, Word::ALWAYS)?;
                self.dying.add(Timestamp(0), address);
            }
            Outcome::Active => unreachable!("only decided transactions are settled"),
        }
        self.note_change(address);
        Ok(())
    }

    fn settle_end(
        &mut self,
        transaction: TransactionId,
        address: RowAddress,
        outcomes: &dyn Outcomes,
    ) -> Result<(), StorageError> {
        let offset = address.offset().0;
        let Some(segment) = self.segment_mut(address.segment()) else { return Ok(()) };
        // An aborted transaction's lock may have been taken over, and an aborted insert's row is ended for everyone.
        if segment.is_vacated(offset) {
            return Ok(());
        }
        let Some(statement) = statement_of(segment.end(offset), transaction) else { return Ok(()) };
        match outcomes.outcome(transaction, statement) {
            Outcome::Committed(timestamp) => {
                segment.set_end(offset, Word::timestamp(timestamp))?;
                self.dying.add(timestamp, address);
            }
            Outcome::Aborted => segment.set_end(offset, Word::NEVER)?,
            Outcome::Active => unreachable!("only decided transactions are settled"),
        }
        self.note_change(address);
        Ok(())
    }

    fn settle_segment(&mut self, transaction: TransactionId, number: SegmentNumber, outcomes: &dyn Outcomes) {
        self.attaching.remove(&number);
        let Some(segment) = self.segment_mut(number) else { return };
        segment.locks -= 1;
        let rows = segment.rows();
        let State::Sealed { begin, .. } = &mut segment.state else {
            unreachable!("an attached segment stays sealed until its attach is decided");
        };
        let Some(statement) = statement_of(*begin, transaction) else {
            assert!(*begin == Word::NEVER, "nobody else writes the begin of a segment, unless it was abandoned");
            return;
        };
        match outcomes.outcome(transaction, statement) {
            Outcome::Committed(timestamp) => *begin = Word::timestamp(timestamp),
            Outcome::Aborted => {
                *begin = Word::NEVER;
                self.void_segment(number, rows);
            }
            Outcome::Active => unreachable!("only decided transactions are settled"),
        }
        self.candidates.insert(number);
        self.note_segment_change(number);
    }
}
