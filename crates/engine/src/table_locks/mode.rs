//! The eight modes, and which of them conflict.

/// How a transaction uses a table, from the weakest to the strongest, as in PostgreSQL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TableLockMode {
    /// Reads.
    AccessShare,
    /// Locks rows.
    RowShare,
    /// Writes rows.
    RowExclusive,
    /// Keeps changes of the schema out.
    ShareUpdateExclusive,
    /// Keeps writers out: CREATE INDEX.
    Share,
    /// The same, one at a time.
    ShareRowExclusive,
    /// Lets only readers in.
    Exclusive,
    /// Lets nobody in: TRUNCATE, DROP.
    AccessExclusive,
}

use TableLockMode as Mode;

/// A set of modes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableLockModes(u8);

impl TableLockModes {
    pub const NONE: Self = Self(0);

    const fn of(modes: &[Mode]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < modes.len() {
            set |= 1 << modes[at] as u8;
            at += 1;
        }
        Self(set)
    }

    #[must_use]
    pub const fn with(self, mode: Mode) -> Self {
        Self(self.0 | (1 << mode as u8))
    }

    #[must_use]
    pub const fn without(self, mode: Mode) -> Self {
        Self(self.0 & !(1 << mode as u8))
    }

    pub const fn has(self, mode: Mode) -> bool {
        self.0 & (1 << mode as u8) != 0
    }

    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Mode> {
        Mode::ALL.into_iter().filter(move |mode| self.has(*mode))
    }
}

/// By mode: which others nobody else may have meanwhile.
const CONFLICTS: [TableLockModes; 8] = {
    use Mode::{
        AccessExclusive, AccessShare, Exclusive, RowExclusive, RowShare, Share, ShareRowExclusive, ShareUpdateExclusive,
    };
    let access_share = TableLockModes::of(&[AccessExclusive]);
    let row_share = access_share.with(Exclusive);
    let row_exclusive = row_share.with(Share).with(ShareRowExclusive);
    let share_update_exclusive = row_exclusive.with(ShareUpdateExclusive);
    let share_row_exclusive = share_update_exclusive.with(RowExclusive);
    let share = share_row_exclusive.without(Share);
    let exclusive = share_row_exclusive.with(RowShare);
    let access_exclusive = exclusive.with(AccessShare);
    [
        access_share,
        row_share,
        row_exclusive,
        share_update_exclusive,
        share,
        share_row_exclusive,
        exclusive,
        access_exclusive,
    ]
};

impl TableLockMode {
    /// All modes, from the weakest to the strongest.
    pub const ALL: [Self; 8] = [
        Self::AccessShare,
        Self::RowShare,
        Self::RowExclusive,
        Self::ShareUpdateExclusive,
        Self::Share,
        Self::ShareRowExclusive,
        Self::Exclusive,
        Self::AccessExclusive,
    ];

    /// Its name in LOCK TABLE.
    pub fn name(self) -> &'static str {
        match self {
            Self::AccessShare => "ACCESS SHARE",
            Self::RowShare => "ROW SHARE",
            Self::RowExclusive => "ROW EXCLUSIVE",
            Self::ShareUpdateExclusive => "SHARE UPDATE EXCLUSIVE",
            Self::Share => "SHARE",
            Self::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
            Self::Exclusive => "EXCLUSIVE",
            Self::AccessExclusive => "ACCESS EXCLUSIVE",
        }
    }

    pub(crate) fn conflicts(self) -> TableLockModes {
        CONFLICTS[self as usize]
    }

    /// Whether two transactions may not have these at the same time.
    pub fn conflicts_with(self, other: Self) -> bool {
        self.conflicts().has(other)
    }

    /// Whether it keeps out everybody whom `other` keeps out.
    pub(crate) fn covers(self, other: Self) -> bool {
        other.conflicts().0 & !self.conflicts().0 == 0
    }

    /// One of the three that all go together.
    pub(crate) fn is_weak(self) -> bool {
        self <= Self::RowExclusive
    }

    /// One of the four that keep a weak one out.
    pub(crate) fn is_strong(self) -> bool {
        self >= Self::Share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the manual of PostgreSQL has it, in the order of the modes.
    const MATRIX: [&str; 8] = [
        ".......x", // ACCESS SHARE
        "......xx", // ROW SHARE
        "....xxxx", // ROW EXCLUSIVE
        "...xxxxx", // SHARE UPDATE EXCLUSIVE
        "..xx.xxx", // SHARE
        "..xxxxxx", // SHARE ROW EXCLUSIVE
        ".xxxxxxx", // EXCLUSIVE
        "xxxxxxxx", // ACCESS EXCLUSIVE
    ];

    #[test]
    fn modes_conflict_as_in_postgresql() {
        for (mode, line) in Mode::ALL.into_iter().zip(MATRIX) {
            let own: String =
                Mode::ALL.map(|other| if mode.conflicts_with(other) { 'x' } else { '.' }).iter().collect();
            assert_eq!(own, line, "{}", mode.name());
        }
    }

    #[test]
    fn only_strong_modes_conflict_with_weak_ones() {
        for mode in Mode::ALL {
            let meets_weak = Mode::ALL.into_iter().any(|other| other.is_weak() && mode.conflicts_with(other));
            assert_eq!(meets_weak, mode.is_strong(), "{}", mode.name());
        }
    }
}
