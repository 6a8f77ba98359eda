//! The last stage of a query, computed lazily: rows of the previous stage pass its pipeline as the client takes them,
//! in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use eris_engine::{CancelHandle, Engine};
use eris_operators::{Pipeline, RowStream, Spill};
use eris_platform::Reservation;
use eris_storage::Batch;

use super::parallel::{Piece, on_workers};
use super::run::{advance, lock};
use super::spilling::Rows;
use crate::errors::SqlError;
use crate::native::held::Held;
use crate::plan::operator_error;

/// Input bytes of one parallel step.
const STEP_BYTES: u64 = 4 << 20;

/// A lazily computed last stage.
pub struct ComputedRows {
    engine: Engine,
    cancel: CancelHandle,
    workers: usize,
    pipeline: Pipeline,
    source: Source,
    ready: VecDeque<Batch>,
    /// Charges the batches in `ready`.
    charged: Arc<Reservation>,
    /// Bytes of the build sides that the pipeline probes.
    builds: u64,
}

enum Source {
    Held(Held),
    Stream(Box<dyn RowStream>),
}

impl ComputedRows {
    pub(super) fn new(
        engine: &Engine,
        cancel: &CancelHandle,
        workers: usize,
        pipeline: Pipeline,
        rows: Rows,
        (spill, builds): (&Spill, u64),
    ) -> Self {
        let source = match rows {
            Rows::Held(batches, charged) => Source::Held(Held::charged_all(batches, charged)),
            Rows::Stream(stream) => Source::Stream(stream),
        };
        let (engine, cancel, charged) = (engine.clone(), cancel.clone(), Arc::new(spill.chunk().1));
        Self { engine, cancel, workers, pipeline, source, ready: VecDeque::new(), charged, builds }
    }

    /// Memory that is freed when all rows are taken.
    pub fn held_bytes(&self) -> u64 {
        let rows = match &self.source {
            Source::Held(held) => held.bytes(),
            Source::Stream(_) => 0,
        };
        rows + self.builds
    }

    /// The next rows; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Batch>, SqlError> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                self.charged.shrink(batch.bytes() as u64);
                return Ok(Some(batch));
            }
            let (mut some, mut bytes) = (Vec::new(), 0);
            while some.len() < self.workers.max(1) * 2 && bytes < STEP_BYTES {
                let batch = match &mut self.source {
                    Source::Held(held) => held.pop(),
                    Source::Stream(stream) => stream.next().await.map_err(|error| operator_error(&error))?,
                };
                let Some(batch) = batch else { break };
                bytes += batch.bytes() as u64;
                some.push(batch);
            }
            if some.is_empty() {
                return Ok(None);
            }
            let (engine, cancel) = (&self.engine, &self.cancel);
            self.ready = computed(engine, cancel, self.workers, &self.pipeline, some, &self.charged).await?.into();
        }
    }
}

/// The output of an emitting pipeline for these batches, in their order, charged to `charged`.
pub(super) async fn computed(
    engine: &Engine,
    cancel: &CancelHandle,
    workers: usize,
    pipeline: &Pipeline,
    batches: Vec<Batch>,
    charged: &Arc<Reservation>,
) -> Result<Vec<Batch>, SqlError> {
    let count = batches.len();
    let places: Vec<_> = batches.into_iter().map(|batch| Mutex::new((pipeline.start(batch), Vec::new()))).collect();
    let places = Arc::new(places);
    let (running, filled, counted) = (engine.clone(), Arc::clone(&places), Arc::clone(charged));
    let pipeline = pipeline.clone();
    let piece: Piece = Arc::new(move |at| {
        let (flow, made) = &mut *lock(&filled[at]);
        let mut emit = |batch: Batch| {
            counted.grow(batch.bytes() as u64)?;
            made.push(batch);
            Ok(())
        };
        advance(&running, &pipeline, flow, &mut emit, &|| false)
    });
    on_workers(engine, cancel, workers, count, piece).await?;
    Ok(places.iter().flat_map(|place| std::mem::take(&mut lock(place).1)).collect())
}
