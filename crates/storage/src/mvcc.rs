//! Versions: who wrote a row, who ended it, and who may see it.
//!
//! Every row of an open segment has a *begin* and an *end* word. A word is a timestamp or a lock:
//!
//! ```text
//!   63  62                                             0
//!  +---+------------------------------------------------+
//!  | 0 |                commit timestamp                |
//!  +---+------------------------------------------------+
//!   63  62                  21   20   19                0
//!  +---+----------------------+-----+-------------------+
//!  | 1 | transaction (42 bits)| key | statement (20 b.) |
//!  +---+----------------------+-----+-------------------+
//! ```
//! `key` is set in the end word of an update that leaves the key as it is: whoever wants the key to stay need not wait
//! for it (see `store/row_locks.rs`).
//!
//! Because locks have the top bit, a comparison of the raw words answers for timestamps and says "not yet" for locks:
//! a locked begin is above every snapshot (not visible), a locked end as well (not ended). Only words with the top bit
//! need the slow path, which asks for the transaction's outcome.
//!
//! `NEVER` is the largest timestamp. As an end it means: not ended. As a begin it means: never existed (an aborted
//! insert, or a row that moved to another partition).
//!
//! A snapshot sees what committed at or before `visible`, and its own transaction's writes of *earlier* statements: a
//! statement does not see its own writes (the Halloween problem), so the comparison of statement numbers is strict.

use std::fmt;

/// A transaction; at most [`TransactionId::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u64);

/// A statement of its transaction; at most [`StatementNumber::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatementNumber(pub u32);

/// A commit timestamp: a sequence number, not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

const STATEMENT_BITS: u32 = 20;
const KEY_BITS: u32 = 1;
const TRANSACTION_BITS: u32 = 42;
const TRANSACTION_SHIFT: u32 = STATEMENT_BITS + KEY_BITS;
const KEEPS_KEY_BIT: u64 = 1 << STATEMENT_BITS;
const LOCK_BIT: u64 = 1 << 63;
const _: () = assert!(1 + TRANSACTION_BITS + TRANSACTION_SHIFT == 64, "a lock word is full");

impl TransactionId {
    /// The largest: a million transactions a second for fifty days.
    pub const MAX: u64 = (1 << TRANSACTION_BITS) - 1;
}

impl StatementNumber {
    /// The largest.
    pub const MAX: u32 = (1 << STATEMENT_BITS) - 1;
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A begin or end word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Word(u64);

const _: () = assert!(size_of::<Word>() == 8, "two words per open row");

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordKind {
    Timestamp(Timestamp),
    Lock { transaction: TransactionId, statement: StatementNumber },
}

impl Word {
    /// An end that has not come; a begin that never was.
    pub const NEVER: Self = Self(LOCK_BIT - 1);
    /// Before every snapshot: as an end it hides the row from everyone.
    pub const ALWAYS: Self = Self(0);

    /// The word of a commit.
    pub fn timestamp(timestamp: Timestamp) -> Self {
        assert!(timestamp.0 < LOCK_BIT, "timestamp {timestamp} does not fit");
        Self(timestamp.0)
    }

    /// The word of a write by an undecided transaction.
    pub fn lock(transaction: TransactionId, statement: StatementNumber) -> Self {
        assert!(transaction.0 <= TransactionId::MAX, "transaction {transaction} does not fit");
        assert!(statement.0 <= StatementNumber::MAX, "statement {} does not fit", statement.0);
        Self(LOCK_BIT | transaction.0 << TRANSACTION_SHIFT | u64::from(statement.0))
    }

    /// Whether it is a lock.
    pub fn is_lock(self) -> bool {
        self.0 & LOCK_BIT != 0
    }

    /// The lock of an end whose new version has the same key.
    #[must_use]
    pub fn keeping_key(self) -> Self {
        assert!(self.is_lock(), "only locks say what becomes of the key");
        Self(self.0 | KEEPS_KEY_BIT)
    }

    /// Whether it is the lock of an end whose new version has the same key.
    pub fn keeps_key(self) -> bool {
        self.is_lock() && self.0 & KEEPS_KEY_BIT != 0
    }

    /// Takes it apart.
    pub fn kind(self) -> WordKind {
        if self.is_lock() {
            WordKind::Lock {
                transaction: TransactionId((self.0 & !LOCK_BIT) >> TRANSACTION_SHIFT),
                statement: StatementNumber((self.0 & u64::from(StatementNumber::MAX)) as u32),
            }
        } else {
            WordKind::Timestamp(Timestamp(self.0))
        }
    }

    /// The transaction of a lock.
    pub fn transaction(self) -> Option<TransactionId> {
        match self.kind() {
            WordKind::Lock { transaction, .. } => Some(transaction),
            WordKind::Timestamp(_) => None,
        }
    }

    /// Whether it is a timestamp at or before `horizon`.
    pub fn is_at_or_before(self, horizon: Timestamp) -> bool {
        self.0 <= horizon.0
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            WordKind::Timestamp(_) if *self == Self::NEVER => f.write_str("never"),
            WordKind::Timestamp(timestamp) => write!(f, "@{timestamp}"),
            WordKind::Lock { transaction, statement } => write!(f, "lock {transaction}.{}", statement.0),
        }
    }
}

/// Who holds a row or a key: a statement of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub transaction: TransactionId,
    pub statement: StatementNumber,
}

/// How a write ended, if it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Active,
    Committed(Timestamp),
    /// The transaction, or this statement of it, was rolled back.
    Aborted,
}

/// Who knows how writes ended: with their transaction, or before it, when a part of the transaction was rolled back. A
/// transaction must be known from its first write to a store until that store has reported it as settled. What was
/// decided once stays so.
pub trait Outcomes: Send + Sync {
    fn outcome(&self, transaction: TransactionId, statement: StatementNumber) -> Outcome;
}

/// What a statement sees: commits up to `visible`, and writes of earlier statements of its own transaction.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    pub visible: Timestamp,
    pub transaction: TransactionId,
    pub statement: StatementNumber,
    pub outcomes: &'a dyn Outcomes,
}

impl Snapshot<'_> {
    /// Whether the event that wrote `word` lies in this snapshot's past.
    #[inline]
    pub fn sees(&self, word: Word) -> bool {
        if word.is_lock() { self.sees_lock(word) } else { self.has_passed(Timestamp(word.bits())) }
    }

    /// Whether a row with these words is visible.
    #[inline]
    pub fn is_visible(&self, begin: Word, end: Word) -> bool {
        self.sees(begin) && !self.sees(end)
    }

    #[inline]
    fn has_passed(&self, timestamp: Timestamp) -> bool {
        if cfg!(feature = "bug_visibility") { timestamp < self.visible } else { timestamp <= self.visible }
    }

    #[cold]
    fn sees_lock(&self, word: Word) -> bool {
        let WordKind::Lock { transaction, statement } = word.kind() else {
            unreachable!("only locks take the slow path");
        };
        if transaction == self.transaction {
            let earlier = statement < self.statement;
            return earlier && self.outcomes.outcome(transaction, statement) != Outcome::Aborted;
        }
        match self.outcomes.outcome(transaction, statement) {
            Outcome::Committed(timestamp) => self.has_passed(timestamp),
            Outcome::Active | Outcome::Aborted => false,
        }
    }

    /// The lock word of a write by this statement.
    pub fn lock(&self) -> Word {
        Word::lock(self.transaction, self.statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table;

    /// A statement that was rolled back, of whatever transaction.
    const VOID: u32 = 1_000;

    impl Outcomes for Table {
        fn outcome(&self, transaction: TransactionId, statement: StatementNumber) -> Outcome {
            match transaction.0 {
                _ if statement.0 == VOID => Outcome::Aborted,
                1 => Outcome::Committed(Timestamp(10)),
                2 => Outcome::Committed(Timestamp(11)),
                3 => Outcome::Aborted,
                _ => Outcome::Active,
            }
        }
    }

    fn snapshot() -> Snapshot<'static> {
        Snapshot {
            visible: Timestamp(10),
            transaction: TransactionId(9),
            statement: StatementNumber(3),
            outcomes: &Table,
        }
    }

    #[test]
    fn words_keep_what_they_are_given() {
        let lock = Word::lock(TransactionId(TransactionId::MAX), StatementNumber(StatementNumber::MAX));
        assert_eq!(
            lock.kind(),
            WordKind::Lock {
                transaction: TransactionId(TransactionId::MAX),
                statement: StatementNumber(StatementNumber::MAX)
            }
        );
        assert_eq!(Word::timestamp(Timestamp(5)).kind(), WordKind::Timestamp(Timestamp(5)));
        assert!(lock.keeping_key().kind() == lock.kind() && lock.keeping_key().keeps_key() && !lock.keeps_key());
        assert!(!Word::NEVER.is_lock() && Word::NEVER.transaction().is_none());
    }

    #[cfg(not(feature = "bug_visibility"))]
    #[test]
    fn sees_the_past_and_own_earlier_statements() {
        let s = snapshot();
        let stamp = |t| Word::timestamp(Timestamp(t));
        let lock = |t, n| Word::lock(TransactionId(t), StatementNumber(n));
        assert!(s.sees(stamp(10)) && !s.sees(stamp(11)) && !s.sees(Word::NEVER) && s.sees(Word::ALWAYS));
        assert!(s.sees(lock(1, 0)), "committed within the snapshot");
        assert!(!s.sees(lock(2, 0)), "committed after the snapshot");
        assert!(!s.sees(lock(3, 0)) && !s.sees(lock(4, 0)), "aborted, active");
        assert!(s.sees(lock(9, 2)) && !s.sees(lock(9, 3)), "own earlier statement only");
        assert!(!s.sees(lock(1, VOID)) && s.is_visible(stamp(3), lock(1, VOID)), "rolled back, though it committed");
        let later = Snapshot { statement: StatementNumber(VOID + 1), ..s };
        assert!(later.sees(lock(9, 3)) && !later.sees(lock(9, VOID)), "own statement that was rolled back");
        assert!(s.is_visible(stamp(3), lock(4, 0)) && !s.is_visible(stamp(3), lock(9, 1)));
    }
}
