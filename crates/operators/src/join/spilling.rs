//! How a build side goes on in files: what it holds is handed to [`ExternalBuild`].

use std::sync::Arc;
use std::task::Poll;

use eris_storage::{Batch, Column, Physical};

use super::build::{Chunk, JoinBuild, ROWS_MAX};
use super::choice::Choice;
use super::codes::Bounds;
use super::external::{BuildInFiles, ExternalBuild};
use super::key_filter::{FilterInMaking, KeyFilter};
use crate::assembly::ColumnParts;
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::spill::{Awaited, RowStream, Spill, SpillingSink};

impl JoinBuild {
    /// The same, which goes on in files when memory is refused: [`Self::end_in_files`] ends it then, rows are looked up
    /// by [`ProbeParts`](super::ProbeParts). Not for a NOT IN with a residual, which asks about all rows for a NULL.
    #[must_use]
    pub fn spilling_to(self, spill: &Spill) -> Self {
        let external = Some(Box::new(ExternalBuild::new(spill, self.spec.keys.len())));
        self.leaving_room(external)
    }

    /// A part of a build side, of which something is known: whether there was a row at all, and one with a NULL key.
    pub(super) fn of_part(self, (any, null_keys): (bool, bool)) -> Self {
        let mut slot = self.slots.any();
        (slot.any, slot.null_keys) = (any, null_keys);
        drop(slot);
        self.leaving_room(None)
    }

    /// Whether the rows have to be looked up part by part.
    pub fn is_in_files(&self) -> bool {
        self.in_files().is_some()
    }

    pub(super) fn in_files(&self) -> Option<&BuildInFiles> {
        self.external.as_ref().and_then(|external| external.ended())
    }

    /// How keys lie in memory.
    pub(super) fn key_types(&self) -> impl Iterator<Item = Physical> {
        self.spec.keys.iter().map(|key| key.data_type().physical())
    }

    /// Ends a build side that [ends in files](SpillingSink::ends_in_files), when everything is written.
    pub fn end_in_files(&self) -> Result<(), OperatorError> {
        let (mut seen, mut bounds) = ((false, false), vec![Bounds::Nothing; self.spec.keys.len()]);
        for slot in self.slots.iter() {
            if !slot.chunks.is_empty() {
                return Err(OperatorError::Internal("a build side ends before everything is written".to_string()));
            }
            seen = (seen.0 | slot.any, seen.1 | slot.null_keys);
            bounds.iter_mut().zip(&slot.bounds).for_each(|(all, own)| all.join(own));
        }
        let filters = self.filtered.iter().map(|key| (*key, Arc::new(KeyFilter::within(&bounds[*key]))));
        self.external()?.end(seen, filters.collect())
    }

    /// After all probes: as [`Self::take_rows`], of rows in files.
    pub fn stream_rows(&self, met: bool) -> Result<Box<dyn RowStream>, OperatorError> {
        match self.in_files() {
            Some(files) if self.spec.keep_unmatched => Ok(files.rows(met, self.spec.columns.len())),
            _ => Err(OperatorError::Internal("a join that did not note in files which rows were met".to_string())),
        }
    }

    fn external(&self) -> Result<&ExternalBuild, OperatorError> {
        self.external.as_deref().ok_or_else(|| OperatorError::Internal("a build side that has no files".to_string()))
    }

    /// Reserves for rows; false: they are to go to files.
    pub(super) fn reserve_or_spill(&self, bytes: u64) -> Result<bool, OperatorError> {
        let Some(external) = &self.external else {
            self.reservation.grow(bytes)?;
            return Ok(true);
        };
        let held = self.reservation.bytes();
        Ok(!(held > 0 && external.dividing.spill.is_enough(held + bytes)) && self.reservation.grow(bytes).is_ok())
    }

    /// Whether there is memory for the rounds.
    fn has_room_to_finish(&self, spill: &Spill) -> bool {
        let (first, all) = self.bytes_to_finish();
        // What the first round frees is only looked at, row by row, if it matters.
        spill.has_room(all) || spill.has_room(first.max(all.saturating_sub(self.bytes_freed())))
    }

    /// What the first round takes in memory besides the rows, and all of them, if the first one frees nothing.
    fn bytes_to_finish(&self) -> (u64, u64) {
        let (mut rows, mut null_keys) = (0, false);
        let mut bounds = vec![Bounds::Nothing; self.spec.keys.len()];
        for slot in self.slots.iter() {
            rows += slot.chunks.iter().map(|chunk| chunk.rows).sum::<usize>();
            bounds.iter_mut().zip(&slot.bounds).for_each(|(all, own)| all.join(own));
            null_keys |= slot.null_keys;
        }
        match rows {
            0 => return (0, 0),
            1..=ROWS_MAX => {}
            _ => return (u64::MAX, u64::MAX),
        }
        let choice = Choice::new(&self.spec, &bounds, rows);
        let columns: u64 = self.spec.types.iter().map(|data_type| ColumnParts::bytes(*data_type, rows)).sum();
        let filters: u64 = self.filtered.iter().map(|key| FilterInMaking::bytes(&bounds[*key], rows)).sum();
        let first = columns + filters + choice.first_bytes(&self.spec, rows);
        let notes = usize::from(self.spec.keep_unmatched) + if null_keys { size_of::<u32>() } else { 0 };
        let second = (rows * notes) as u64 + choice.second_bytes(&self.spec, rows);
        // A copy of the rows that were met, or were not, comes last.
        let later = if self.spec.keep_unmatched { columns + (rows * size_of::<u32>()) as u64 } else { 0 };
        (first, first + second + later)
    }

    /// What is free at least when columns were copied.
    fn bytes_freed(&self) -> u64 {
        let freed = |slot: &[Chunk]| slot.iter().map(|chunk| chunk.freed_bytes(true)).sum::<u64>();
        self.slots.iter().map(|slot| freed(&slot.chunks)).sum()
    }

    /// A chunk as it is written: its columns, then its keys.
    fn written_rows(&self, chunk: Chunk) -> (Batch, u64) {
        let bytes = chunk.bytes();
        let types = self.spec.types.iter().copied().chain(self.spec.keys.iter().map(Expression::data_type));
        let columns = chunk.columns.into_iter().chain(chunk.keys).zip(types);
        let columns: Vec<Column> = columns.map(|(column, data_type)| Column { data_type, ..column }).collect();
        (Batch::new(columns, chunk.rows), bytes)
    }
}

impl SpillingSink for JoinBuild {
    fn spill_jobs(&self) -> Result<usize, OperatorError> {
        let held = || {
            let chunks = self.slots.free().flat_map(|mut slot| std::mem::take(&mut slot.chunks));
            chunks.map(|chunk| self.written_rows(chunk)).collect()
        };
        self.external()?.dividing.plan(held)
    }

    fn spill_job(&self, job: usize) -> Result<Poll<()>, OperatorError> {
        self.external()?.dividing.run(job, &self.reservation)
    }

    fn written(&self) -> Awaited<'_, ()> {
        match &self.external {
            Some(external) => external.dividing.written(),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn consume_anyway(&self, batch: Batch) -> Result<(), OperatorError> {
        let whole = self.chunk_of(&batch)?;
        self.slots.any().note(&whole);
        if whole.chunk.rows == 0 {
            return Ok(());
        }
        self.external()?.dividing.take_anyway(self.written_rows(whole.chunk).0)
    }

    fn ends_in_files(&self) -> bool {
        let Some(external) = &self.external else { return false };
        external.dividing.is_used() || !self.has_room_to_finish(&external.dividing.spill)
    }

    fn take_stream(&self) -> Result<Box<dyn RowStream>, OperatorError> {
        Err(OperatorError::Internal("a build side is probed, not read".to_string()))
    }
}
