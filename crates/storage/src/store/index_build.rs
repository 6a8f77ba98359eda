//! Creating an index on a partition with rows, in quanta. Writers maintain it from the first quantum; entering a row
//! twice and removing an absent one change nothing, so walk and writers may meet in any order.

use super::write::Progress;
use super::{Store, new_index};
use crate::address::RowAddress;
use crate::error::StorageError;
use crate::ids::{IndexId, RowOffset, SegmentNumber};
use crate::mvcc::{Outcome, Snapshot, Word, WordKind};
use crate::schema::IndexDefinition;

/// How far the creation of an index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexBuildCursor {
    started: bool,
    segment: u32,
    offset: u32,
}

/// Rows entered in one go.
const ENTER_ROWS: u32 = 512;

impl Store {
    /// Enters up to `rows_budget` rows into a new index. When done, a schema that defines it adopts it
    /// ([`Store::set_schema`]). A unique index fails on the first key with two live versions; undecided ones are a
    /// conflict. After a failure the unfinished index is dropped by [`Store::abandon_index`].
    pub fn create_index_step(
        &mut self,
        snapshot: &Snapshot<'_>,
        definition: &IndexDefinition,
        cursor: &mut IndexBuildCursor,
        rows_budget: usize,
    ) -> Result<Progress<()>, StorageError> {
        if self.is_splitting() {
            return Err(StorageError::Busy { reason: "the partition is being split" });
        }
        if !cursor.started {
            // Somebody may walk through the same rows for the same index already.
            if !self.building.iter().any(|index| index.definition == *definition) {
                self.abandon_index(definition.id);
                self.building.push(new_index(&self.schema, self.modules, &self.memory, definition));
            }
            cursor.started = true;
        }
        let Some(position) = self.building.iter().position(|index| index.definition.id == definition.id) else {
            let reason = format!("index {} is not being built", definition.name);
            return Err(StorageError::InvalidRequest { reason });
        };
        if !self.before_images.is_empty() {
            // The versions of a row may have different keys here, so each needs an address of its own. None is
            // overwritten while an index is built.
            if self.images_await_cursors() {
                return Ok(Progress::More);
            }
            self.spill_images()?;
        }
        let mut budget = rows_budget as u32;
        while (cursor.segment as usize) < self.segments.len() {
            let number = SegmentNumber(cursor.segment);
            let rows = self.segment(number).map_or(0, crate::segment::Segment::rows);
            if cursor.offset >= rows {
                cursor.segment += 1;
                cursor.offset = 0;
                continue;
            }
            if budget == 0 {
                return Ok(Progress::More);
            }
            let until = rows.min(cursor.offset + ENTER_ROWS.min(budget));
            budget -= until - cursor.offset;
            self.enter_existing(snapshot, self.indexes.len() + position, number, cursor.offset..until)?;
            cursor.offset = until;
        }
        Ok(Progress::Done(()))
    }

    /// Drops an index that is being built.
    pub fn abandon_index(&mut self, index: IndexId) {
        self.building.retain(|building| building.definition.id != index);
    }

    fn enter_existing(
        &mut self,
        snapshot: &Snapshot<'_>,
        position: usize,
        number: SegmentNumber,
        window: std::ops::Range<u32>,
    ) -> Result<(), StorageError> {
        let Some(segment) = self.segment(number) else { return Ok(()) };
        let rows: Vec<RowAddress> = window
            .filter(|offset| !segment.is_vacated(*offset))
            .map(|offset| RowAddress::new(number, RowOffset(offset)))
            .collect();
        let definition = self.index_at(position).definition.clone();
        let columns = self.link_attributes(&definition.attributes, &rows);
        for (row, address) in rows.iter().enumerate() {
            let inserted = self.index_at_mut(position).path.insert(&columns, row, *address)?;
            if definition.unique && inserted.key_shared && self.may_live(snapshot, *address) {
                let checked = self.check_unique(snapshot, position, &columns, row, *address);
                // Its writer may have been rolled back between the two looks: then it stands in nobody's way.
                if checked.is_err() && self.may_live(snapshot, *address) {
                    return checked;
                }
            }
        }
        Ok(())
    }

    fn may_live(&self, snapshot: &Snapshot<'_>, row: RowAddress) -> bool {
        let (segment, offset) = (self.segment(row.segment()), row.offset().0);
        segment.is_some_and(|segment| may_live(snapshot, segment.begin(offset), segment.end(offset)))
    }
}

/// Whether a version is live or may become so.
fn may_live(snapshot: &Snapshot<'_>, begin: Word, end: Word) -> bool {
    let never_was = match begin.kind() {
        WordKind::Timestamp(_) => begin == Word::NEVER,
        WordKind::Lock { transaction, statement } => {
            snapshot.outcomes.outcome(transaction, statement) == Outcome::Aborted
        }
    };
    let ended = match end.kind() {
        WordKind::Timestamp(_) => end != Word::NEVER,
        WordKind::Lock { transaction, statement } => {
            matches!(snapshot.outcomes.outcome(transaction, statement), Outcome::Committed(_))
        }
    };
    !never_was && !ended
}
