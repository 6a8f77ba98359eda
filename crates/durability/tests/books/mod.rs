//! What clients know, and whether a recovered bank agrees with it.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};

use eris_engine::{EngineError, LogError, SequenceError};
use eris_storage::{Timestamp, Value};

use crate::bank::{
    ACCOUNTS, CHILD_HOME, MOVERS, OF_ACCOUNT, OF_CHILD, OF_MOVER, OF_NOTE, OF_PARENT, OF_TOKEN, START, TOKENS,
    account_note, child_note, entry_text, parent_note,
};

/// A row: its numbers but NULLs, and its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub numbers: Vec<i64>,
    pub text: Option<Box<str>>,
}

impl Row {
    pub fn of(values: Vec<Value>) -> Self {
        let mut row = Self { numbers: Vec::new(), text: None };
        for value in values {
            match value {
                Value::Int64(number) => row.numbers.push(number),
                Value::Text(text) => row.text = Some(text),
                Value::Null => {}
                other => panic!("a bank has numbers and texts, not {other}"),
            }
        }
        row
    }

    fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

/// The rows of a bank.
#[derive(Debug)]
pub struct Tables {
    pub journal: Vec<Row>,
    pub entries: Vec<Row>,
    pub accounts: Vec<Row>,
    pub movers: Vec<Row>,
    pub tokens: Vec<Row>,
    pub parents: Vec<Row>,
    pub children: Vec<Row>,
}

impl Tables {
    /// The transactions that are there.
    pub fn transactions(&self) -> BTreeSet<i64> {
        self.journal.iter().map(|row| row.numbers[0]).collect()
    }

    /// The children that refer to no parent with this number of theirs; one that is NULL refers to nothing.
    pub fn orphans(&self, number: usize) -> Vec<&Row> {
        let parents: BTreeSet<i64> = self.parents.iter().map(|row| row.numbers[0]).collect();
        let is_orphan = |row: &&Row| row.numbers.get(number).is_some_and(|parent| !parents.contains(parent));
        self.children.iter().filter(is_orphan).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Its commit was not asked for.
    Begun,
    /// Its commit was asked for, and nobody heard of its end.
    Committing,
    /// It was told to be committed; durable, if it was to be synchronous.
    Committed {
        timestamp: Timestamp,
        synchronous: bool,
    },
    RolledBack,
    /// It was there after a crash.
    Survived,
    /// It was not.
    Lost,
}

/// What an error says of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is rolled back, and the next one may do better.
    RolledBack,
    /// It is rolled back, and so will be the next ones: no room.
    Full,
    /// The same: no value of a sequence.
    NoValue,
    /// Nothing: the log failed.
    Nothing,
}

impl Told {
    /// # Panics
    /// If no client expects it.
    pub fn by(error: &EngineError) -> Self {
        match error {
            EngineError::Log(LogError::Failed { .. }) => Self::Nothing,
            EngineError::Log(LogError::Full { .. }) => Self::Full,
            EngineError::Sequence(_) => Self::NoValue,
            error if error.is_retryable() || matches!(error, EngineError::LockTimeout) => Self::RolledBack,
            other => panic!("a client did not expect: {other}"),
        }
    }
}

/// Whether the log had no room for it: nothing was done, and it may be tried again.
pub fn is_full(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Log(LogError::Full { .. }) | EngineError::Sequence(SequenceError::Log(LogError::Full { .. }))
    )
}

/// All transactions ever begun.
#[derive(Debug, Default)]
pub struct Books {
    transactions: BTreeMap<i64, Known>,
    highest_ticket: i64,
    pub unknown: u64,
    pub unknown_survived: u64,
    pub asynchronous_lost: u64,
}

impl Books {
    pub fn begin(&mut self, client: i64) -> i64 {
        let txn = (self.transactions.len() as i64 + 1) * 100 + client;
        self.transactions.insert(txn, Known::Begun);
        txn
    }

    /// How many there were so far.
    pub fn begun(&self) -> u64 {
        self.transactions.len() as u64
    }

    pub fn committing(&mut self, txn: i64) {
        self.transactions.insert(txn, Known::Committing);
    }

    pub fn committed(&mut self, txn: i64, timestamp: Timestamp, synchronous: bool) {
        self.transactions.insert(txn, Known::Committed { timestamp, synchronous });
    }

    pub fn rolled_back(&mut self, txn: i64) {
        self.transactions.insert(txn, Known::RolledBack);
    }

    /// Committed and rolled back.
    pub fn counts(&self) -> (u64, u64) {
        let count = |is: fn(&Known) -> bool| self.transactions.values().filter(|known| is(known)).count() as u64;
        (
            count(|known| matches!(known, Known::Committed { .. } | Known::Survived)),
            count(|known| matches!(known, Known::RolledBack | Known::Lost)),
        )
    }

    /// Compares the journal with what is known, and keeps what it says.
    pub fn recovered(&mut self, tables: &Tables) {
        let (journal, present) = (&tables.journal, tables.transactions());
        assert_eq!(present.len(), journal.len(), "a transaction is in the journal twice");
        for txn in &present {
            let known = self.transactions.get(txn);
            let may_be_there = matches!(known, Some(Known::Committing | Known::Committed { .. } | Known::Survived));
            assert!(may_be_there, "transaction {txn} is there, which is {known:?}");
        }
        let mut first_lost: Option<Timestamp> = None;
        let mut last_present: Option<Timestamp> = None;
        for (txn, known) in &mut self.transactions {
            let is_present = present.contains(txn);
            match known {
                Known::Committed { timestamp, synchronous } => {
                    assert!(is_present || !*synchronous, "transaction {txn} was durable at {timestamp:?} and is gone");
                    if is_present {
                        last_present = last_present.max(Some(*timestamp));
                    } else {
                        first_lost = Some(first_lost.map_or(*timestamp, |first| first.min(*timestamp)));
                        self.asynchronous_lost += 1;
                    }
                }
                Known::Survived => assert!(is_present, "transaction {txn} survived a crash and is gone now"),
                Known::Committing => {
                    self.unknown += 1;
                    self.unknown_survived += u64::from(is_present);
                }
                Known::Begun | Known::RolledBack | Known::Lost => {}
            }
            match known {
                Known::RolledBack => {}
                known => *known = if is_present { Known::Survived } else { Known::Lost },
            }
        }
        if let (Some(lost), Some(present)) = (first_lost, last_present) {
            assert!(present < lost, "the commit of {lost:?} is lost and that of {present:?} is there");
        }
        let mut tickets: Vec<i64> = journal.iter().map(|row| row.numbers[2]).collect();
        assert!(tickets.iter().all(|ticket| *ticket > 0), "tickets are positive");
        tickets.sort_unstable();
        let before = tickets.len();
        tickets.dedup();
        assert_eq!(tickets.len(), before, "a ticket was given twice");
        self.highest_ticket = self.highest_ticket.max(tickets.last().copied().unwrap_or(0));
    }

    /// Compares the journal of a copy that has every commit up to a timestamp, and no other, with what is known. Nobody
    /// waits for an end.
    pub fn check_copy(&self, tables: &Tables, copied: Timestamp) {
        let present = tables.transactions();
        assert_eq!(present.len(), tables.journal.len(), "a transaction is in the journal twice");
        for (txn, known) in &self.transactions {
            let expected = match known {
                Known::Committed { timestamp, .. } => *timestamp <= copied,
                Known::Begun | Known::RolledBack => false,
                other => panic!("transaction {txn} is {other:?}"),
            };
            assert_eq!(present.contains(txn), expected, "transaction {txn} in a copy of {copied:?}: {known:?}");
        }
        assert!(present.iter().all(|txn| self.transactions.contains_key(txn)), "a transaction that nobody began");
    }

    /// Whether all tables say what the entries say, and these what the journal says.
    pub fn check(tables: &Tables) {
        let Tables { journal, entries, accounts, movers, tokens, .. } = tables;
        let mut of_transaction: BTreeMap<i64, i64> =
            journal.iter().map(|row| (row.numbers[0], row.numbers[3])).collect();
        let mut sums: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        let mut notes: BTreeSet<(i64, i64)> = BTreeSet::new();
        for entry in entries {
            let [txn, kind, subject, delta] = entry.numbers[..] else { panic!("an entry has four numbers: {entry:?}") };
            let left = of_transaction.get_mut(&txn);
            let left = left.unwrap_or_else(|| panic!("an entry of transaction {txn}, which is not in the journal"));
            *left -= 1;
            *sums.entry((kind, subject)).or_default() += delta;
            assert_eq!(entry.text(), entry_text(txn, kind, subject, delta).as_deref(), "the text of {entry:?}");
            if kind == OF_NOTE {
                notes.insert((subject, txn));
            }
        }
        for (txn, left) in of_transaction {
            assert_eq!(left, 0, "entries of transaction {txn} are missing, or there are too many");
        }
        let sum = |kind, subject| sums.get(&(kind, subject)).copied().unwrap_or(0);
        let expected: Vec<Vec<i64>> = (0..ACCOUNTS).map(|id| vec![id, START + sum(OF_ACCOUNT, id)]).collect();
        assert_eq!(numbers(accounts), expected, "accounts and entries disagree");
        check_notes(accounts, &notes);
        let mut expected: Vec<Vec<i64>> = (0..MOVERS).map(|mover| vec![mover + sum(OF_MOVER, mover), mover]).collect();
        expected.sort_unstable();
        assert_eq!(numbers(movers), expected, "movers and entries disagree");
        for value in 0..TOKENS {
            let count = tokens.iter().filter(|row| row.numbers[0] == value).count() as i64;
            assert_eq!(count, sum(OF_TOKEN, value), "tokens of {value} and entries disagree");
        }
        tables.check_kin(&sums);
    }
}

impl Tables {
    /// Whether parents and children are those of the entries, and whether none is an orphan.
    fn check_kin(&self, sums: &BTreeMap<(i64, i64), i64>) {
        for (rows, kind) in [(&self.parents, OF_PARENT), (&self.children, OF_CHILD)] {
            let there: Vec<i64> = rows.iter().map(|row| row.numbers[0]).collect();
            let expected = sums.iter().filter(|((of, _), sum)| *of == kind && **sum != 0);
            let expected: Vec<(i64, i64)> = expected.map(|((_, key), sum)| (*key, *sum)).collect();
            let there: Vec<(i64, i64)> = there.into_iter().map(|key| (key, 1)).collect();
            assert_eq!(there, expected, "kin of kind {kind} and entries disagree");
        }
        for parent in &self.parents {
            assert_eq!(parent.text(), Some(&*parent_note(parent.numbers[0])), "the note of {parent:?}");
        }
        for child in &self.children {
            let note = child_note(child.numbers[0], child.numbers[CHILD_HOME]);
            assert_eq!(child.text(), Some(&*note), "the note of {child:?}");
        }
        assert_eq!(self.orphans(CHILD_HOME), Vec::<&Row>::new(), "children without their parents");
    }
}

fn numbers(rows: &[Row]) -> Vec<Vec<i64>> {
    rows.iter().map(|row| row.numbers.clone()).collect()
}

/// Each account has the note of a transaction that wrote one, or none if nobody did.
fn check_notes(accounts: &[Row], notes: &BTreeSet<(i64, i64)>) {
    for account in accounts {
        let id = account.numbers[0];
        let mut possible = notes.range((id, i64::MIN)..=(id, i64::MAX)).map(|(id, txn)| account_note(*id, *txn));
        match account.text() {
            None => assert_eq!(possible.next(), None, "account {id} has no note"),
            Some(note) => assert!(possible.any(|possible| possible == note), "account {id} has the note {note:?}"),
        }
    }
}
