//! What clients know, and whether a recovered bank agrees with it.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};

use eris_engine::SequenceId;
use eris_storage::Timestamp;

use crate::bank::{ACCOUNTS, Bank, MOVERS, OF_ACCOUNT, OF_MOVER, OF_TOKEN, START, TOKENS};

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

/// All transactions ever begun.
#[derive(Debug, Default)]
pub struct Books {
    /// The bank, once it was durable.
    pub made: Option<(Bank, SequenceId)>,
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
    pub fn recovered(&mut self, journal: &[Vec<i64>]) {
        let present: BTreeSet<i64> = journal.iter().map(|row| row[0]).collect();
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
        for row in journal {
            assert!(row[2] > 0, "tickets are positive");
        }
        let mut tickets: Vec<i64> = journal.iter().map(|row| row[2]).collect();
        tickets.sort_unstable();
        let before = tickets.len();
        tickets.dedup();
        assert_eq!(tickets.len(), before, "a ticket was given twice");
        self.highest_ticket = self.highest_ticket.max(tickets.last().copied().unwrap_or(0));
    }

    /// Compares the journal of a copy that has every commit up to a timestamp, and no other, with what is known. Nobody
    /// waits for an end.
    pub fn check_copy(&self, journal: &[Vec<i64>], copied: Timestamp) {
        let present: BTreeSet<i64> = journal.iter().map(|row| row[0]).collect();
        assert_eq!(present.len(), journal.len(), "a transaction is in the journal twice");
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
    pub fn check(
        journal: &[Vec<i64>],
        entries: &[Vec<i64>],
        accounts: &[Vec<i64>],
        movers: &[Vec<i64>],
        tokens: &[Vec<i64>],
    ) {
        let mut of_transaction: BTreeMap<i64, i64> = journal.iter().map(|row| (row[0], row[3])).collect();
        let mut sums: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for entry in entries {
            let [txn, kind, subject, delta] = entry[..] else { panic!("an entry has four numbers: {entry:?}") };
            let left = of_transaction.get_mut(&txn);
            let left = left.unwrap_or_else(|| panic!("an entry of transaction {txn}, which is not in the journal"));
            *left -= 1;
            *sums.entry((kind, subject)).or_default() += delta;
        }
        for (txn, left) in of_transaction {
            assert_eq!(left, 0, "entries of transaction {txn} are missing, or there are too many");
        }
        let sum = |kind, subject| sums.get(&(kind, subject)).copied().unwrap_or(0);
        let expected: Vec<Vec<i64>> = (0..ACCOUNTS).map(|id| vec![id, START + sum(OF_ACCOUNT, id)]).collect();
        assert_eq!(accounts, expected, "accounts and entries disagree");
        let mut expected: Vec<Vec<i64>> = (0..MOVERS).map(|mover| vec![mover + sum(OF_MOVER, mover), mover]).collect();
        expected.sort_unstable();
        assert_eq!(movers, expected, "movers and entries disagree");
        for value in 0..TOKENS {
            let count = tokens.iter().filter(|row| row[0] == value).count() as i64;
            assert_eq!(count, sum(OF_TOKEN, value), "tokens of {value} and entries disagree");
        }
    }
}
