//! The states of a session's transaction, as a table that knows nothing of plans or data.
//!
//! ```text
//!              BEGIN                    error
//!   Idle ----------------> Open ------------------> Failed
//!    ^  ^                   |  COMMIT, ROLLBACK       | COMMIT, ROLLBACK (both roll back)
//!    |  +-------------------+                         |
//!    +------------------------------------------------+
//!   Idle -- first of several statements of one text --> Implicit -- the last one, or an error --> Idle
//!                                                          | BEGIN: becomes Open
//! ```
//!
//! Statements of the extended protocol belong together from one Sync to the next: each is placed as one of many
//! ([`Place::PIPELINED`]), so that the first begins an implicit transaction and Sync ends it.

use crate::errors::{SqlError, SqlState};

/// What clients are told after each statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// Not in a transaction block.
    Idle,
    /// In a transaction block.
    InTransaction,
    /// In a block that failed and waits for its end.
    Failed,
}

/// Where a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Block {
    /// No transaction; statements commit by themselves.
    #[default]
    Idle,
    /// Between the statements of one text, or of the messages before one Sync.
    Implicit,
    /// In a block.
    Open,
    /// In a block that failed.
    Failed,
}

/// A statement's place in its text: the `index`-th of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0.
    pub index: usize,
    /// Statements of the text.
    pub count: usize,
}

impl Place {
    /// A statement on its own.
    pub const ALONE: Place = Place { index: 0, count: 1 };

    /// A statement that more may follow: nobody knows how many.
    pub const PIPELINED: Place = Place { index: 0, count: usize::MAX };

    fn is_last(self) -> bool {
        self.index + 1 >= self.count
    }
}

/// What a statement does to transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// BEGIN
    Begin,
    /// COMMIT
    Commit,
    /// ROLLBACK
    Rollback,
    /// Everything else.
    Ordinary,
}

/// What is to be done for a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begin a block.
    Begin,
    /// A transaction that is already open becomes a block, or is one.
    Adopt,
    /// Commit.
    Commit,
    /// Roll back.
    Rollback,
    /// There is nothing to end.
    Nothing,
    /// Run in a transaction of its own.
    Alone,
    /// Run in the open transaction, beginning one if there is none; commit afterwards if `ends`.
    Inside {
        /// The last statement of an implicit transaction.
        ends: bool,
    },
}

impl Block {
    /// What to do for a statement, or why it is refused.
    pub fn step(self, kind: StatementKind, place: Place) -> Result<Step, SqlError> {
        use StatementKind::{Begin, Commit, Ordinary, Rollback};
        Ok(match (self, kind) {
            (Self::Failed, Commit | Rollback) => Step::Rollback,
            (Self::Failed, Begin | Ordinary) => return Err(SqlError::failed_transaction()),
            (Self::Idle, Begin) => Step::Begin,
            (Self::Implicit | Self::Open, Begin) => Step::Adopt,
            (Self::Idle, Commit | Rollback) => Step::Nothing,
            (Self::Implicit | Self::Open, Commit) => Step::Commit,
            (Self::Implicit | Self::Open, Rollback) => Step::Rollback,
            (Self::Open, Ordinary) => Step::Inside { ends: false },
            (Self::Idle, Ordinary) if place.is_last() => Step::Alone,
            (Self::Idle | Self::Implicit, Ordinary) => Step::Inside { ends: place.is_last() },
        })
    }

    /// Where the session is after the step succeeded.
    #[must_use]
    pub fn after(self, step: Step) -> Self {
        match step {
            Step::Begin | Step::Adopt => Self::Open,
            Step::Commit | Step::Rollback | Step::Nothing | Step::Alone => Self::Idle,
            Step::Inside { ends: true } => Self::Idle,
            Step::Inside { ends: false } if self == Self::Open => Self::Open,
            Step::Inside { ends: false } => Self::Implicit,
        }
    }

    /// Where the session is after a statement failed.
    #[must_use]
    pub fn after_error(self) -> Self {
        match self {
            Self::Idle | Self::Implicit => Self::Idle,
            Self::Open | Self::Failed => Self::Failed,
        }
    }

    /// What clients are told.
    pub fn status(self) -> TransactionStatus {
        match self {
            Self::Idle | Self::Implicit => TransactionStatus::Idle,
            Self::Open => TransactionStatus::InTransaction,
            Self::Failed => TransactionStatus::Failed,
        }
    }

    /// Refuses a statement that cannot run inside a block.
    pub fn refuse_inside(self, what: &str) -> Result<(), SqlError> {
        match self {
            Self::Open | Self::Implicit => Err(SqlError::new(
                SqlState::ACTIVE_TRANSACTION,
                format!("{what} cannot run inside a transaction block"),
            )),
            Self::Idle | Self::Failed => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second machine, written from the manual: is there a transaction, is it a block, has it failed.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Model {
        open: bool,
        block: bool,
        failed: bool,
    }

    #[test]
    fn agrees_with_a_model_over_random_statements() {
        use StatementKind::{Begin, Commit, Ordinary, Rollback};
        for seed in 0..2_000_u64 {
            let mut random = eris_platform::SeededRandom::new(seed);
            let mut state = Block::Idle;
            let mut model = Model { open: false, block: false, failed: false };
            for _ in 0..40 {
                let count = 1 + random.below(3) as usize;
                for index in 0..count {
                    let kind = [Begin, Commit, Rollback, Ordinary, Ordinary][random.below(5) as usize];
                    let place = Place { index, count };
                    let fails = kind == Ordinary && random.below(4) == 0;
                    let step = state.step(kind, place);
                    if model.failed && !matches!(kind, Commit | Rollback) {
                        assert_eq!(step.unwrap_err().sqlstate.as_str(), "25P02");
                        state = state.after_error();
                        break;
                    }
                    let step = step.unwrap();
                    let commits = match kind {
                        Begin => {
                            model = Model { open: true, block: true, failed: false };
                            false
                        }
                        Commit | Rollback => {
                            let commits = kind == Commit && model.open && !model.failed;
                            model = Model { open: false, block: false, failed: false };
                            commits
                        }
                        Ordinary if fails => {
                            model = Model { open: model.block, block: model.block, failed: model.block };
                            false
                        }
                        Ordinary => {
                            let ends = !model.block && index + 1 == count;
                            model.open = !ends;
                            ends
                        }
                    };
                    if fails {
                        state = state.after_error();
                        assert_eq!(state == Block::Failed, model.failed, "seed {seed}");
                        break;
                    }
                    let says_commit = matches!(step, Step::Commit | Step::Alone | Step::Inside { ends: true });
                    assert_eq!(says_commit, commits, "seed {seed}: {state:?} {kind:?} {place:?}");
                    state = state.after(step);
                    assert_eq!(state != Block::Idle, model.open, "seed {seed}");
                }
                assert_ne!(state, Block::Implicit, "an implicit transaction ends with its text");
            }
        }
    }
}
