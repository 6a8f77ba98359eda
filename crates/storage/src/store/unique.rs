//! Uniqueness: of all versions with a key at most one may be live.

use super::Store;
use crate::address::RowAddress;
use crate::batch::Column;
use crate::error::StorageError;
use crate::mvcc::{Holder, Outcome, Snapshot, Word, WordKind};

/// How a version with the key stands in the way.
enum Version {
    Free,
    Live,
    Undecided(Holder),
    /// The snapshot still sees it, though its deletion is committed: with the new row the snapshot would see the key
    /// twice.
    SeenByTheSnapshot,
}

/// `sees` says whether the snapshot sees the row.
fn judge(snapshot: &Snapshot<'_>, begin: Word, end: Word, sees: impl Fn() -> bool) -> Version {
    match begin.kind() {
        WordKind::Timestamp(_) if begin == Word::NEVER => return Version::Free,
        WordKind::Timestamp(_) => {}
        WordKind::Lock { transaction, statement } => match snapshot.outcomes.outcome(transaction, statement) {
            Outcome::Aborted => return Version::Free,
            Outcome::Active if transaction == snapshot.transaction => {}
            Outcome::Active => return Version::Undecided(Holder { transaction, statement }),
            Outcome::Committed(_) => {}
        },
    }
    match end.kind() {
        WordKind::Timestamp(_) if end == Word::NEVER => Version::Live,
        WordKind::Timestamp(_) if sees() => Version::SeenByTheSnapshot,
        WordKind::Timestamp(_) => Version::Free,
        WordKind::Lock { transaction, statement } => match snapshot.outcomes.outcome(transaction, statement) {
            // Planted: the end that was rolled back is taken for one that was not.
            Outcome::Aborted if cfg!(feature = "bug_unique_ignores_rollback") => Version::Free,
            Outcome::Aborted => Version::Live,
            Outcome::Active if transaction == snapshot.transaction => Version::Free,
            Outcome::Active => Version::Undecided(Holder { transaction, statement }),
            Outcome::Committed(_) if sees() => Version::SeenByTheSnapshot,
            Outcome::Committed(_) => Version::Free,
        },
    }
}

impl Store {
    /// Refuses the row at `address`, which is in the index already, if another version with its key is live or may be.
    pub(super) fn check_unique(
        &self,
        snapshot: &Snapshot<'_>,
        position: usize,
        columns: &[Column],
        row: usize,
        address: RowAddress,
    ) -> Result<(), StorageError> {
        if columns.iter().any(|column| column.is_null(row)) {
            return Ok(());
        }
        let index = self.index_at(position);
        let mut others = Vec::new();
        index.path.equal(columns, row, &mut |other| {
            if other != address {
                others.push(other);
            }
        });
        for other in others {
            match self.judge_row(snapshot, other) {
                Version::Free => {}
                Version::Undecided(holder) => return Err(StorageError::Conflict { with: Some(holder) }),
                Version::SeenByTheSnapshot => return Err(StorageError::Conflict { with: None }),
                Version::Live => {
                    let attributes = index.definition.attributes.iter();
                    let names = attributes.map(|id| self.schema.attributes[id.index()].name.clone());
                    return Err(StorageError::DuplicateKey {
                        index: index.definition.id,
                        index_name: index.definition.name.clone(),
                        key: names.zip(columns.iter().map(|column| column.value(row))).collect(),
                    });
                }
            }
        }
        Ok(())
    }

    /// How a row stands in the way. Its newest version may be rolled back at any moment, for which no latch is needed:
    /// then the key is free only if the version before it does not stand either.
    fn judge_row(&self, snapshot: &Snapshot<'_>, row: RowAddress) -> Version {
        let Some(segment) = self.segment(row.segment()) else { return Version::Free };
        let offset = row.offset().0;
        let mut begin = self.begin_of_key(snapshot.outcomes, segment, offset);
        loop {
            let judged = judge(snapshot, begin, segment.end(offset), || self.sees_row(snapshot, row));
            let again = self.begin_of_key(snapshot.outcomes, segment, offset);
            if !matches!(judged, Version::Free) || again == begin {
                return judged;
            }
            begin = again;
        }
    }
}
