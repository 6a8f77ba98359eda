//! Parts of a build side in files.

use std::sync::{Arc, Mutex};

use eris_platform::Reservation;
use eris_storage::Batch;

use super::divide::Parts;
use crate::error::OperatorError;
use crate::join::JoinBuild;
use crate::join::key_filter::KeyFilter;
use crate::pipeline::lock;
use crate::spill::{Awaited, Lane, LaneReader, RowStream, Spill, SpillFile, Turn};

/// So often a part is divided again at most.
const LEVELS_MAX: u32 = 8;
/// A part that has more than so many eighths of the rows that it was divided from is one of few keys: to divide it
/// again would not help.
const DIVIDED_EIGHTHS: u64 = 7;

/// Which rows of a part were met by probes.
#[derive(Debug)]
struct Met {
    bits: Box<[u64]>,
    _charged: Reservation,
}

#[derive(Debug)]
enum State {
    Rows { lane: Lane, met: Option<Met> },
    Divided(Arc<[Arc<Part>]>),
}

/// What a part holds.
pub(super) enum Held {
    Rows(Lane),
    /// It was divided again.
    Parts(Arc<[Arc<Part>]>),
}

/// A part of a build side. It may be divided while it is joined, and stays so for other probes of the same build side.
#[derive(Debug)]
pub(super) struct Part {
    level: u32,
    /// Whether to divide it again might help.
    pub is_dividable: bool,
    state: Mutex<State>,
}

impl Part {
    pub fn new(lane: Lane, level: u32, is_dividable: bool) -> Arc<Self> {
        Arc::new(Self { level, is_dividable, state: Mutex::new(State::Rows { lane, met: None }) })
    }

    pub fn level(&self) -> u32 {
        self.level
    }

    pub fn held(&self) -> Held {
        match &*lock(&self.state) {
            State::Rows { lane, .. } => Held::Rows(lane.clone()),
            State::Divided(parts) => Held::Parts(Arc::clone(parts)),
        }
    }

    /// Whether it can be divided now: rows that were noted as met stay where they are.
    pub fn may_divide(&self) -> bool {
        self.is_dividable && matches!(&*lock(&self.state), State::Rows { met: None, .. })
    }

    /// Divides its rows, which end with so many keys.
    pub async fn divide(&self, spill: &Spill, keys: usize, turn: &mut Turn) -> Result<Arc<[Arc<Part>]>, OperatorError> {
        let lane = match self.held() {
            Held::Rows(lane) => lane,
            Held::Parts(parts) => return Ok(parts),
        };
        let (rows, level) = (lane.rows(), self.level + 1);
        let lanes = Parts::of_lane(spill, keys, level, lane.reader(), turn).await?;
        let parts = lanes.into_iter().map(|lane| {
            let is_dividable = level < LEVELS_MAX && lane.rows() * 8 <= rows * DIVIDED_EIGHTHS;
            Self::new(lane, level, is_dividable)
        });
        let parts: Arc<[Arc<Self>]> = parts.collect();
        *lock(&self.state) = State::Divided(Arc::clone(&parts));
        Ok(parts)
    }

    /// Notes which rows a built part met, whose rows are this part's from `start` on.
    pub fn note_met(&self, start: usize, build: &JoinBuild, spill: &Spill) -> Result<(), OperatorError> {
        let kept = build.kept()?;
        let State::Rows { lane, met } = &mut *lock(&self.state) else {
            return Err(OperatorError::Internal("rows of a part that was divided are met".to_string()));
        };
        let met = if let Some(met) = met {
            met
        } else {
            let words = lane.rows().div_ceil(64) as usize;
            let charged = spill.memory().reserve("join");
            charged.grow((words * size_of::<u64>()) as u64)?;
            met.insert(Met { bits: vec![0; words].into(), _charged: charged })
        };
        for row in (0..kept.rows).filter(|row| kept.is_met(*row as u32)) {
            met.bits[(start + row) / 64] |= 1 << ((start + row) % 64);
        }
        Ok(())
    }

    fn is_met(&self, row: u64) -> bool {
        match &*lock(&self.state) {
            State::Rows { met: Some(met), .. } => met.bits[(row / 64) as usize] >> (row % 64) & 1 != 0,
            State::Rows { met: None, .. } | State::Divided(_) => false,
        }
    }
}

/// A build side in files.
#[derive(Debug)]
pub(in crate::join) struct BuildInFiles {
    pub(super) parts: Vec<Arc<Part>>,
    /// To be written before parts are read.
    pub(super) file: Arc<SpillFile>,
    pub(super) spill: Spill,
    /// Whether there was a row at all, and one with a NULL key.
    pub seen: (bool, bool),
    /// For the keys that were asked for.
    pub filters: Vec<(usize, Arc<KeyFilter>)>,
}

impl BuildInFiles {
    /// The rows that were met, or those that were not: their first columns, so many.
    pub fn rows(&self, met: bool, columns: usize) -> Box<dyn RowStream> {
        Box::new(RowsMet {
            met,
            columns: (0..columns).collect(),
            file: Arc::clone(&self.file),
            rest: self.parts.iter().rev().cloned().collect(),
            reading: None,
            turn: self.spill.turn(),
        })
    }
}

/// Rows that were met, or were not, part after part.
struct RowsMet {
    met: bool,
    columns: Vec<usize>,
    file: Arc<SpillFile>,
    rest: Vec<Arc<Part>>,
    /// The part that is read, and the row that comes next.
    reading: Option<(Arc<Part>, LaneReader, u64)>,
    turn: Turn,
}

impl RowStream for RowsMet {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        Box::pin(async move {
            self.file.written().await?;
            loop {
                self.turn.give_way().await?;
                let Some((part, reader, start)) = &mut self.reading else {
                    let Some(part) = self.rest.pop() else { return Ok(None) };
                    match part.held() {
                        Held::Rows(lane) => self.reading = Some((part, lane.reader(), 0)),
                        Held::Parts(parts) => self.rest.extend(parts.iter().rev().cloned()),
                    }
                    continue;
                };
                let Some(batch) = reader.next_batch().await? else {
                    self.reading = None;
                    continue;
                };
                let wanted = |row: &u32| part.is_met(*start + u64::from(*row)) == self.met;
                let rows: Vec<u32> = (0..batch.rows as u32).filter(wanted).collect();
                *start += batch.rows as u64;
                if !rows.is_empty() {
                    return Ok(Some(batch.project(&self.columns).take(&rows)));
                }
            }
        })
    }
}
