//! What is held, what is asked for, who has to wait, and what comes of it.
//!
//! A duet has rows 0 and 1 with keys and codes of the same number, and one more that only restarts need. Number 2 is
//! free as a key and as a code.

use eris_platform::SeededRandom;
use eris_storage::RowLock;

use super::super::{Row, Write};

/// The row that makes a statement lose.
pub const EXTRA: i64 = 9;
/// Keys and codes that are looked at afterwards.
pub const PLACES: i64 = 10;
/// Keys and codes of an asker that nobody else has begin here.
pub const OWN: i64 = 20;

/// What the holder does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    Touch { noted: bool },
    Recode,
    Rename,
    Both,
    Delete,
    DeleteAll,
    Replace,
    Insert,
    InsertCode,
    Load,
    Lock(RowLock),
    LockAll(RowLock),
}

pub const TAKES: [Take; 18] = [
    Take::Touch { noted: false },
    Take::Touch { noted: true },
    Take::Recode,
    Take::Rename,
    Take::Both,
    Take::Delete,
    Take::DeleteAll,
    Take::Replace,
    Take::Insert,
    Take::InsertCode,
    Take::Load,
    Take::Lock(RowLock::KeyShare),
    Take::Lock(RowLock::Share),
    Take::Lock(RowLock::NoKeyUpdate),
    Take::Lock(RowLock::Update),
    Take::LockAll(RowLock::Share),
    Take::LockAll(RowLock::KeyShare),
    Take::LockAll(RowLock::Update),
];

/// What an asker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Of row 0.
    Touch,
    Recode,
    Rename,
    Delete,
    Lock(RowLock),
    /// The same, found by the code.
    LockByCode(RowLock),
    /// A key or code that somebody may have.
    InsertKey(i64),
    InsertCode(i64),
    LoadKey(i64),
    /// Row 1 gets number 2.
    RenameOther,
    RecodeOther,
    TouchAll,
    LockAll(RowLock),
}

pub const ASKS: [Ask; 23] = [
    Ask::Touch,
    Ask::Recode,
    Ask::Rename,
    Ask::Delete,
    Ask::Lock(RowLock::KeyShare),
    Ask::Lock(RowLock::Share),
    Ask::Lock(RowLock::NoKeyUpdate),
    Ask::Lock(RowLock::Update),
    Ask::LockByCode(RowLock::Share),
    Ask::LockByCode(RowLock::Update),
    Ask::InsertKey(2),
    Ask::InsertKey(0),
    Ask::InsertKey(1),
    Ask::InsertCode(2),
    Ask::InsertCode(0),
    Ask::InsertCode(1),
    Ask::LoadKey(2),
    Ask::LoadKey(0),
    Ask::RenameOther,
    Ask::RecodeOther,
    Ask::TouchAll,
    Ask::LockAll(RowLock::Share),
    Ask::LockAll(RowLock::Update),
];

/// A lock that others may have at the same time.
pub fn shared(random: &mut SeededRandom) -> Ask {
    Ask::Lock([RowLock::KeyShare, RowLock::Share][random.index(2)])
}

/// Whether an asker waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Must {
    /// It gets through before anything is given back.
    Pass,
    /// It does not.
    Wait,
    /// Both are right.
    Either,
}

/// How a row is held or wanted.
type Mode = RowLock;

fn conflict(held: Mode, wanted: Mode) -> bool {
    // From key share to update; the table of docs/transactions.md.
    let rank =
        |mode: Mode| [Mode::KeyShare, Mode::Share, Mode::NoKeyUpdate, Mode::Update].iter().position(|m| *m == mode);
    rank(held).zip(rank(wanted)).is_some_and(|(held, wanted)| held + wanted >= 3)
}

impl Take {
    /// One statement that leaves the extra row alone.
    pub fn may_restart(self) -> bool {
        !matches!(self, Self::Replace | Self::DeleteAll | Self::LockAll(_))
    }

    /// The mode in which a row is held, at least and at most.
    fn mode(self, row: i64) -> Option<(Mode, Mode)> {
        match self {
            Self::Touch { .. } => (row == 0).then_some((Mode::NoKeyUpdate, Mode::NoKeyUpdate)),
            // No local index is unique over codes.
            Self::Recode => (row == 0).then_some((Mode::NoKeyUpdate, Mode::Update)),
            Self::Rename | Self::Both | Self::Delete | Self::Replace => {
                (row == 0).then_some((Mode::Update, Mode::Update))
            }
            Self::DeleteAll => Some((Mode::Update, Mode::Update)),
            Self::Insert | Self::InsertCode | Self::Load => None,
            Self::Lock(lock) => (row == 0).then_some((lock, lock)),
            Self::LockAll(lock) => Some((lock, lock)),
        }
    }

    /// What the rows come to if it stays.
    pub fn apply(self, rows: &[Row], place: impl Fn(i64) -> i64) -> Vec<Row> {
        let mut rows = rows.to_vec();
        let fresh = |key: i64, code: i64| Row { key: place(key), code: place(code), ..Row::new(rows[0].ring, 2, 0) };
        match self {
            Self::Touch { noted } => Write::Touch { noted }.apply(&mut rows[0]),
            Self::Recode => rows[0].code = place(2),
            Self::Rename => rows[0].key = place(2),
            Self::Both => (rows[0].key, rows[0].code) = (place(2), place(2)),
            Self::Delete => drop(rows.remove(0)),
            Self::DeleteAll => rows.clear(),
            Self::Replace | Self::Lock(_) | Self::LockAll(_) => {}
            Self::Insert | Self::Load => {
                let row = fresh(2, 2);
                rows.insert(2, row);
            }
            Self::InsertCode => {
                let row = fresh(3, 2);
                rows.insert(2, row);
            }
        }
        rows
    }

    /// Whether a key, or a code, is there or not is open until the holder has decided.
    fn leaves_open(self, is_code: bool, number: i64) -> bool {
        match (self, number) {
            (Self::Recode, 0 | 2) | (Self::InsertCode, 2) => is_code,
            (Self::Rename, 0 | 2) => !is_code,
            (Self::Both, 0 | 2) | (Self::Delete, 0) | (Self::DeleteAll, 0 | 1) => true,
            (Self::Insert | Self::Load, 2) => true,
            _ => false,
        }
    }

    /// Whether there is another version of a row with the key: whoever looks may wait for it or not.
    fn writes_again(self, number: i64) -> bool {
        match self {
            Self::Touch { .. } | Self::Recode | Self::Rename | Self::Both | Self::Replace => number == 0,
            _ => false,
        }
    }
}

impl Ask {
    /// The mode in which it wants a row, at least and at most.
    fn mode(self, row: i64) -> Option<(Mode, Mode)> {
        match self {
            Self::Touch => (row == 0).then_some((Mode::NoKeyUpdate, Mode::NoKeyUpdate)),
            Self::Recode => (row == 0).then_some((Mode::NoKeyUpdate, Mode::Update)),
            Self::Rename | Self::Delete => (row == 0).then_some((Mode::Update, Mode::Update)),
            Self::Lock(lock) | Self::LockByCode(lock) => (row == 0).then_some((lock, lock)),
            Self::InsertKey(_) | Self::InsertCode(_) | Self::LoadKey(_) => None,
            Self::RenameOther => (row == 1).then_some((Mode::Update, Mode::Update)),
            Self::RecodeOther => (row == 1).then_some((Mode::NoKeyUpdate, Mode::Update)),
            Self::TouchAll => Some((Mode::NoKeyUpdate, Mode::NoKeyUpdate)),
            Self::LockAll(lock) => Some((lock, lock)),
        }
    }

    /// The key or code (second) that it wants to be free.
    fn wants_free(self) -> Option<(bool, i64)> {
        match self {
            Self::InsertKey(number) | Self::LoadKey(number) => Some((false, number)),
            Self::InsertCode(number) => Some((true, number)),
            Self::RenameOther => Some((false, 2)),
            Self::RecodeOther => Some((true, 2)),
            Self::Touch
            | Self::Recode
            | Self::Rename
            | Self::Delete
            | Self::Lock(_)
            | Self::LockByCode(_)
            | Self::TouchAll
            | Self::LockAll(_) => None,
        }
    }

    pub fn is_of_several(self) -> bool {
        matches!(self, Self::TouchAll | Self::LockAll(_))
    }

    /// The rows that it concerns in a state, or that a key is taken.
    pub fn result(self, rows: &[Row], place: impl Fn(i64) -> i64) -> Result<u64, ()> {
        if let Some((is_code, number)) = self.wants_free() {
            let taken = |row: &Row| if is_code { row.code } else { row.key } == place(number);
            let own = |row: &Row| row.id == 1 && matches!(self, Self::RenameOther | Self::RecodeOther);
            let found = rows.iter().any(own) || self.mode(1).is_none();
            return match (rows.iter().any(taken), found) {
                (_, false) => Ok(0),
                (true, true) => Err(()),
                (false, true) => Ok(1),
            };
        }
        Ok(match self {
            // Found by the code that the row had.
            Self::LockByCode(_) => rows.iter().filter(|row| row.code == place(0)).count() as u64,
            Self::TouchAll | Self::LockAll(_) => rows.len() as u64,
            _ => rows.iter().filter(|row| row.key == place(0)).count() as u64,
        })
    }
}

/// Whether an asker has to wait for a holder.
pub fn must(take: Take, ask: Ask) -> Must {
    let mut either = false;
    for row in [0, 1, EXTRA] {
        let (Some(held), Some(wanted)) = (take.mode(row), ask.mode(row)) else { continue };
        if conflict(held.0, wanted.0) {
            return Must::Wait;
        }
        either |= conflict(held.1, wanted.1);
    }
    if let Some((is_code, number)) = ask.wants_free() {
        // It may find its row taken, or another key of the row, before that.
        if take.leaves_open(is_code, number) {
            return Must::Wait;
        }
        either |= take.writes_again(number);
    }
    if either { Must::Either } else { Must::Pass }
}
