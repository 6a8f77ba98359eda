//! A part that does not fit and cannot be divided, because its rows have few keys or none: it is joined in blocks of
//! its rows, and for each block the probe rows are read again.
//!
//! ```text
//!   for each block   pairs with all probe rows                   inner, left, build
//!                    which rows have a partner: they are out     left, semi, anti, mark; the others are written for
//!                                                                the next block
//!   at the end       rows that are left have no partner
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use eris_platform::Reservation;
use eris_storage::{Batch, Column, DataType, Value};

use super::part::Part;
use super::pass::{MarkPass, Marked, Pass, without_keys};
use super::stream::{Built, Joining};
use crate::error::OperatorError;
use crate::join::{JoinKind, Probe};
use crate::spill::{Lane, LaneReader, LaneWriter, SpillFile};

/// Of what may be taken, the share that a block has: it is held twice while it is built.
const BLOCK_SHARE: u64 = 4;

enum Now {
    /// The next block.
    Reading,
    Pairs(Pass),
    Marks {
        pass: MarkPass,
        /// Of rows that are left.
        writer: LaneWriter,
        file: Arc<SpillFile>,
    },
    /// Rows that are left, against no rows.
    Rest(Pass),
    Over,
}

/// The state of the loop.
pub(super) struct Blocks {
    part: Arc<Part>,
    reader: LaneReader,
    /// Rows of the build side that were read, and wait for their block.
    waiting: VecDeque<Batch>,
    /// What they take.
    held: Option<Reservation>,
    /// What a block may have, once it is known.
    block_bytes: Option<u64>,
    /// The block that is joined, and the number of its first row.
    block: Option<Arc<Probe>>,
    start: usize,
    /// The first row of the next block.
    end: usize,
    all: Lane,
    /// Probe rows that have no partner so far.
    rest: Lane,
    now: Now,
}

impl Blocks {
    /// Of a part's rows and the probe rows that belong to them.
    pub fn new(part: &Arc<Part>, build: &Lane, probe: &Lane) -> Self {
        Self {
            part: Arc::clone(part),
            reader: build.reader(),
            waiting: VecDeque::new(),
            held: None,
            block_bytes: None,
            block: None,
            start: 0,
            end: 0,
            all: probe.clone(),
            rest: probe.clone(),
            now: Now::Reading,
        }
    }

    /// The next rows, maybe none; `None` after the last.
    pub async fn next(&mut self, joining: &mut Joining) -> Result<Option<Batch>, OperatorError> {
        match &mut self.now {
            Now::Reading => self.begin(joining).await?,
            Now::Pairs(pass) => {
                if let Some(batch) = pass.next(&mut joining.turn).await? {
                    return Ok(Some(batch));
                }
                if joining.build.spec.keep_unmatched {
                    self.part.note_met(self.start, &pass.probe().build, &joining.files()?.spill)?;
                }
                self.now = match joining.probe.kind {
                    JoinKind::Left => self.marks(joining)?,
                    _ => Now::Reading,
                };
            }
            Now::Marks { pass, writer, file } => {
                if let Some(marked) = pass.next(&mut joining.turn).await? {
                    if !marked.without.is_empty() {
                        writer.push(&marked.batch.take(&marked.without))?;
                        file.written_below_limit().await?;
                    }
                    return Ok(Some(found(&joining.probe, marked)));
                }
                let Now::Marks { writer, file, .. } = std::mem::replace(&mut self.now, Now::Reading) else {
                    unreachable!("it was that a line ago")
                };
                self.rest = writer.finish()?;
                file.written().await?;
            }
            Now::Rest(pass) => {
                if let Some(batch) = pass.next(&mut joining.turn).await? {
                    return Ok(Some(batch));
                }
                self.now = Now::Over;
            }
            Now::Over => return Ok(None),
        }
        Ok(Some(Batch::new([], 0)))
    }

    /// Begins a block, or the end.
    async fn begin(&mut self, joining: &mut Joining) -> Result<(), OperatorError> {
        self.block = None;
        self.start = self.end;
        let asks_for_pairs = matches!(joining.probe.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Build);
        let is_decided = !asks_for_pairs && self.rest.rows() == 0;
        let block = if is_decided { None } else { self.block(joining).await? };
        self.now = match (block, joining.probe.kind) {
            (None, JoinKind::Inner | JoinKind::Build | JoinKind::Semi) => Now::Over,
            (None, _) if self.rest.rows() == 0 => Now::Over,
            (None, _) => match joining.built(&[]).await? {
                Built::Ready(nothing) => Now::Rest(Pass::new(nothing, &self.rest, &joining.parameters)),
                Built::Refused(refused) => return Err(refused.into()),
            },
            (Some(block), JoinKind::Inner | JoinKind::Left | JoinKind::Build) => {
                let kind = match joining.probe.kind {
                    JoinKind::Left => JoinKind::Inner,
                    kind => kind,
                };
                self.block = Some(Arc::clone(&block));
                let probe = Arc::new(Probe { kind, ..Probe::clone(&block) });
                Now::Pairs(Pass::new(probe, &self.all, &joining.parameters))
            }
            (Some(block), _) => {
                self.block = Some(block);
                self.marks(joining)?
            }
        };
        Ok(())
    }

    fn marks(&self, joining: &Joining) -> Result<Now, OperatorError> {
        let Some(block) = &self.block else { return Err(OperatorError::Internal("marks of no block".to_string())) };
        let file = SpillFile::new(&joining.files()?.spill, 1)?;
        let pass = MarkPass::new(block, &self.rest, &joining.parameters);
        Ok(Now::Marks { pass, writer: LaneWriter::new(&file), file })
    }

    /// Builds the next block; `None` after the last row.
    async fn block(&mut self, joining: &mut Joining) -> Result<Option<Arc<Probe>>, OperatorError> {
        let spill = joining.files()?.spill.clone();
        let most = *self.block_bytes.get_or_insert_with(|| spill.spare_bytes() / BLOCK_SHARE);
        let held = self.held.get_or_insert_with(|| spill.reserve_counted());
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while batches.is_empty() || bytes < most {
            let batch = match self.waiting.pop_front() {
                Some(batch) => batch,
                None => match self.reader.next_batch().await? {
                    Some(batch) => {
                        held.grow(batch.bytes() as u64)?;
                        batch
                    }
                    None => break,
                },
            };
            bytes += batch.bytes() as u64;
            batches.push(batch);
        }
        if batches.is_empty() {
            return Ok(None);
        }
        loop {
            match joining.built(&batches).await? {
                Built::Ready(probe) => {
                    self.end += batches.iter().map(|batch| batch.rows).sum::<usize>();
                    held.resize(self.waiting.iter().map(|batch| batch.bytes() as u64).sum())?;
                    return Ok(Some(probe));
                }
                Built::Refused(refused) => {
                    let Some(other) = second_half(&mut batches) else { return Err(refused.into()) };
                    other.into_iter().rev().for_each(|batch| self.waiting.push_front(batch));
                    self.block_bytes = Some(batches.iter().map(|batch| batch.bytes() as u64).sum());
                }
            }
        }
    }
}

/// Leaves the first half of rows; `None` if there is one row only.
fn second_half(batches: &mut Vec<Batch>) -> Option<Vec<Batch>> {
    if batches.len() > 1 {
        return Some(batches.split_off(batches.len() / 2));
    }
    let batch = batches.pop()?;
    let half = batch.rows / 2;
    let other = (half > 0).then(|| vec![batch.slice(half, batch.rows - half)]);
    batches.push(if half > 0 { batch.slice(0, half) } else { batch });
    other
}

/// What becomes of rows that have a partner in a block, where that says all there is to say.
fn found(probe: &Probe, marked: Marked) -> Batch {
    let has_mark = match probe.kind {
        JoinKind::Semi => false,
        JoinKind::Mark { .. } => true,
        JoinKind::Inner | JoinKind::Left | JoinKind::Anti | JoinKind::NullAwareAnti | JoinKind::Build => {
            return Batch::new([], 0);
        }
    };
    if marked.with.is_empty() {
        return Batch::new([], 0);
    }
    let (batch, _) = without_keys(marked.batch, probe.keys.len());
    let batch = batch.project(&probe.probe_columns).take(&marked.with);
    let rows = batch.rows;
    let mark = has_mark.then(|| Column::constant(DataType::Boolean, &Value::Boolean(true), rows));
    Batch::new(batch.columns.into_iter().chain(mark).collect::<Vec<_>>(), rows)
}
