//! The rows of a join whose build side is in files: part after part, as they are asked for.
//!
//! ```text
//!   part of the build side ── fits ──> built in memory, the probe rows of the part are looked up in it
//!                          └─ is too large ──> both sides are divided by other bits of the hash, and so on
//!                                          └─ few keys: joined in blocks
//! ```

use std::sync::Arc;

use eris_platform::MemoryExceeded;
use eris_storage::{Batch, Value};

use super::blocks::Blocks;
use super::divide::Parts;
use super::part::{BuildInFiles, Held, Part};
use super::pass::Pass;
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::join::{BuildSpec, JoinBuild, Probe};
use crate::pipeline::Sink;
use crate::spill::{Awaited, Lane, RowStream, SpillFile, Turn};

/// What a row takes besides its columns when it is built, roughly: its place in a table, its key, its copy.
const ROW_BYTES: u64 = 32;

/// How parts are built and probed.
pub(super) struct Joining {
    pub build: Arc<JoinBuild>,
    pub probe: Arc<Probe>,
    pub parameters: Arc<[Value]>,
    pub turn: Turn,
}

/// A part of the build side in memory; or why there is none.
pub(super) enum Built {
    Ready(Arc<Probe>),
    Refused(MemoryExceeded),
}

impl Joining {
    pub fn files(&self) -> Result<&BuildInFiles, OperatorError> {
        self.build.in_files().ok_or_else(|| OperatorError::Internal("a build side that is not in files".to_string()))
    }

    /// How a part is built: rows that are read have their keys after their columns.
    fn part_spec(&self) -> BuildSpec {
        let spec = &self.build.spec;
        let columns = spec.columns.len();
        let key =
            |(at, key): (usize, &Expression)| Expression::Column { index: columns + at, data_type: key.data_type() };
        BuildSpec {
            keys: spec.keys.iter().enumerate().map(key).collect(),
            columns: (0..columns).collect(),
            ..spec.clone()
        }
    }

    /// Nothing yet of a part.
    fn empty(&self) -> Result<JoinBuild, OperatorError> {
        let files = self.files()?;
        Ok(JoinBuild::new(self.part_spec(), files.spill.memory(), 1).of_part(files.seen))
    }

    async fn finished(&mut self, build: JoinBuild) -> Result<Arc<Probe>, OperatorError> {
        loop {
            let jobs = build.finish_jobs()?;
            if jobs == 0 {
                return Ok(Arc::new(Probe { build: Arc::new(build), ..Probe::clone(&self.probe) }));
            }
            for job in 0..jobs {
                build.finish_job(job)?;
                self.turn.give_way().await?;
            }
        }
    }

    /// Builds rows that are in memory.
    pub async fn built(&mut self, batches: &[Batch]) -> Result<Built, OperatorError> {
        let build = self.empty()?;
        for batch in batches {
            match build.consume(batch.clone(), &mut |_| Ok(())) {
                Err(OperatorError::Memory(refused)) => return Ok(Built::Refused(refused)),
                consumed => consumed?,
            }
            self.turn.give_way().await?;
        }
        self.ready(build).await
    }

    async fn ready(&mut self, build: JoinBuild) -> Result<Built, OperatorError> {
        match self.finished(build).await {
            Ok(probe) => Ok(Built::Ready(probe)),
            Err(OperatorError::Memory(refused)) => Ok(Built::Refused(refused)),
            Err(other) => Err(other),
        }
    }

    /// Builds all rows of a lane, if they fit.
    async fn built_whole(&mut self, lane: &Lane) -> Result<Option<Arc<Probe>>, OperatorError> {
        if !self.files()?.spill.memory_has(lane.bytes() + lane.rows() * ROW_BYTES) {
            return Ok(None);
        }
        let build = self.empty()?;
        let mut reader = lane.reader();
        while let Some(batch) = reader.next_batch().await? {
            match build.consume(batch, &mut |_| Ok(())) {
                Err(OperatorError::Memory(_)) => return Ok(None),
                consumed => consumed?,
            }
            self.turn.give_way().await?;
        }
        drop(reader);
        Ok(match self.ready(build).await? {
            Built::Ready(probe) => Some(probe),
            Built::Refused(_) => None,
        })
    }
}

enum Now {
    /// The next part.
    Nothing,
    Whole(Arc<Part>, Pass),
    Blocks(Box<Blocks>),
}

/// See the module.
pub(super) struct JoinedRows {
    joining: Joining,
    /// Parts of the build side with the probe rows that belong to them.
    rest: Vec<(Arc<Part>, Lane)>,
    /// The probe rows: to be written before they are read.
    file: Arc<SpillFile>,
    now: Now,
}

impl JoinedRows {
    /// Of all parts of the build side, with the probe rows of each.
    pub fn new(joining: Joining, lanes: Vec<Lane>, file: Arc<SpillFile>) -> Result<Self, OperatorError> {
        let parts = joining.files()?.parts.clone();
        assert_eq!(parts.len(), lanes.len(), "both sides of a join are divided alike");
        Ok(Self { joining, rest: with_rows(&parts, lanes), file, now: Now::Nothing })
    }

    /// Begins a part.
    async fn begin(&mut self, part: Arc<Part>, lane: Lane) -> Result<Now, OperatorError> {
        let spill = self.joining.files()?.spill.clone();
        let keys = self.joining.probe.keys.len();
        let parts = match part.held() {
            Held::Parts(parts) => parts,
            Held::Rows(build) => {
                // Divided once more where an operator is told to hold little; that is all that can be done then.
                let may_divide = part.may_divide();
                let is_enough = (part.level() == 0 || !part.is_dividable) && spill.is_enough(build.bytes());
                if !is_enough && let Some(probe) = self.joining.built_whole(&build).await? {
                    let pass = Pass::new(probe, &lane, &self.joining.parameters);
                    return Ok(Now::Whole(part, pass));
                }
                if !may_divide {
                    return Ok(Now::Blocks(Box::new(Blocks::new(&part, &build, &lane))));
                }
                part.divide(&spill, keys, &mut self.joining.turn).await?
            }
        };
        let level = part.level() + 1;
        let lanes = Parts::of_lane(&spill, keys, level, lane.reader(), &mut self.joining.turn).await?;
        self.rest.extend(with_rows(&parts, lanes));
        Ok(Now::Nothing)
    }
}

/// Parts that have probe rows. Without them there is nothing to give, whatever the kind of the join.
fn with_rows(parts: &[Arc<Part>], lanes: Vec<Lane>) -> Vec<(Arc<Part>, Lane)> {
    parts.iter().cloned().zip(lanes).filter(|(_, lane)| lane.rows() > 0).collect()
}

impl RowStream for JoinedRows {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        Box::pin(async move {
            self.joining.files()?.file.written().await?;
            self.file.written().await?;
            loop {
                let batch = match &mut self.now {
                    Now::Nothing => {
                        let Some((part, lane)) = self.rest.pop() else { return Ok(None) };
                        self.now = self.begin(part, lane).await?;
                        continue;
                    }
                    Now::Whole(part, pass) => {
                        let batch = pass.next(&mut self.joining.turn).await?;
                        if batch.is_none() && self.joining.build.spec.keep_unmatched {
                            part.note_met(0, &pass.probe().build, &self.joining.files()?.spill)?;
                        }
                        batch
                    }
                    Now::Blocks(blocks) => blocks.next(&mut self.joining).await?,
                };
                match batch {
                    None => self.now = Now::Nothing,
                    Some(batch) if batch.rows > 0 => return Ok(Some(batch)),
                    Some(_) => {}
                }
            }
        })
    }
}
