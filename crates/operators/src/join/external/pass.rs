//! Rows of a lane that are looked up in a part of the build side that is in memory.

use std::sync::Arc;

use eris_storage::{Batch, Column, Value, Values};

use crate::error::OperatorError;
use crate::join::{JoinKind, Probe, Probed, Probing, Walked};
use crate::spill::{Lane, LaneReader, Turn};

/// One look-up of all rows of a lane.
pub(super) struct Pass {
    probe: Arc<Probe>,
    reader: LaneReader,
    /// What is left of a batch.
    walking: Option<Box<Probing>>,
    parameters: Arc<[Value]>,
}

impl Pass {
    pub fn new(probe: Arc<Probe>, lane: &Lane, parameters: &Arc<[Value]>) -> Self {
        Self { probe, reader: lane.reader(), walking: None, parameters: Arc::clone(parameters) }
    }

    pub fn probe(&self) -> &Arc<Probe> {
        &self.probe
    }

    /// The next rows, maybe none; `None` after the last.
    pub async fn next(&mut self, turn: &mut Turn) -> Result<Option<Batch>, OperatorError> {
        turn.give_way().await?;
        if let Some(walking) = &mut self.walking {
            return Ok(Some(match walking.next(&self.parameters)? {
                Walked::Piece(batch) => batch,
                Walked::Last(batch) => {
                    self.walking = None;
                    batch
                }
            }));
        }
        let Some(batch) = self.reader.next_batch().await? else { return Ok(None) };
        let (batch, keys) = without_keys(batch, self.probe.keys.len());
        match self.probe.start_keyed(batch, keys)? {
            Probed::Batch(batch) => Ok(Some(batch)),
            Probed::Pairs(walking) => {
                self.walking = Some(walking);
                Ok(Some(Batch::new([], 0)))
            }
        }
    }
}

/// Which rows of a lane have a partner.
pub(super) struct MarkPass {
    probe: Arc<Probe>,
    reader: LaneReader,
    parameters: Arc<[Value]>,
}

/// Rows of a lane, with their keys: the positions of those that have a partner, and of the others.
pub(super) struct Marked {
    pub batch: Batch,
    pub with: Vec<u32>,
    pub without: Vec<u32>,
}

impl MarkPass {
    pub fn new(probe: &Probe, lane: &Lane, parameters: &Arc<[Value]>) -> Self {
        let kind = JoinKind::Mark { null_aware: false };
        let none: Arc<[usize]> = Arc::default();
        let probe = Probe { kind, probe_columns: Arc::clone(&none), build_columns: none, ..probe.clone() };
        Self { probe: Arc::new(probe), reader: lane.reader(), parameters: Arc::clone(parameters) }
    }

    /// The next rows; `None` after the last.
    pub async fn next(&mut self, turn: &mut Turn) -> Result<Option<Marked>, OperatorError> {
        let Some(batch) = self.reader.next_batch().await? else { return Ok(None) };
        let (columns, keys) = without_keys(batch.clone(), self.probe.keys.len());
        let marks = match self.probe.start_keyed(columns, keys)? {
            Probed::Batch(marks) => marks,
            Probed::Pairs(mut walking) => loop {
                turn.give_way().await?;
                if let Walked::Last(marks) = walking.next(&self.parameters)? {
                    break marks;
                }
            },
        };
        turn.give_way().await?;
        let [Column { values: Values::Boolean(marks), .. }] = &*marks.columns else {
            return Err(OperatorError::Internal("marks of a join that are none".to_string()));
        };
        let (with, without) = (0..batch.rows as u32).partition(|row| marks[*row as usize] != 0);
        Ok(Some(Marked { batch, with, without }))
    }
}

/// The columns of a batch, and the keys that follow them.
pub(super) fn without_keys(batch: Batch, keys: usize) -> (Batch, Vec<Column>) {
    let rows = batch.rows;
    let mut columns = batch.columns.into_vec();
    let keys = columns.split_off(columns.len() - keys);
    (Batch::new(columns, rows), keys)
}
