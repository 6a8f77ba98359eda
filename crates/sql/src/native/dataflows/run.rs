//! Running a macro-QEP: stage after stage, each on all workers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use eris_engine::Engine;
use eris_operators::{
    BuildSpec, Collector, Emit, Flow, GroupBy, JoinBuild, OperatorError, PassedFilter, Pipeline, Probe, RowStream,
    Sink, SortSink, SpillingCollector, Step, WindowSink,
};
use eris_platform::Reservation;
use eris_storage::{Batch, Value};

use super::computed::{ComputedRows, computed};
use super::narrow::narrowed;
use super::parallel::{Piece, on_workers};
use super::spilling::{LeftInFiles, Rows, consumed};
use super::{Actuals, Input, MacroQep, ProbePlan, SinkPlan, Source, Stage, StepPlan};
use crate::errors::{SqlError, SqlState};
use crate::native::access::{Access, Bound};
use crate::native::held::Held;
use crate::native::rows::NativeRows;
use crate::native::run::{RunContext, limits, values};
use crate::plan::{engine_error, operator_error};

/// What the pool calls rows that wait for those in front of them.
const CONSUMER: &str = "ordered result";

/// How long a batch goes on before others have a turn: as long as in a partition.
const TURN: Duration = Duration::from_micros(200);
/// The same in pieces, for clocks that stand still.
const TURN_PIECES_MAX: usize = 1_000;

/// What a stage left.
pub(super) enum Left {
    /// Batches, and what is charged for them. Who is the last to want them takes them.
    Rows { batches: Vec<Batch>, reservation: Option<Reservation>, uses: usize },
    /// Rows that are read from files.
    InFiles { rows: LeftInFiles, uses: usize },
    /// A join's build side.
    Built(Arc<JoinBuild>),
    /// Nothing that anyone asks for.
    Nothing,
}

/// Where rows come from that are sent through steps.
pub(super) enum From<'p> {
    Source(&'p Source),
    /// They were joined in files.
    Files(Box<dyn RowStream>),
}

/// Some steps of an input of a stage.
#[derive(Clone, Copy)]
pub(super) struct Steps<'p> {
    pub stage: usize,
    pub input: usize,
    /// The number of the first among all steps of the input.
    pub first: usize,
    pub plans: &'p [StepPlan],
}

pub(super) struct Run<'q> {
    pub(super) qep: &'q MacroQep,
    pub(super) engine: Engine,
    pub(super) parameters: Vec<Value>,
    left: Vec<Left>,
    /// What happens is noted here, if anyone wants to know.
    actuals: Option<&'q Actuals>,
    batch_rows: usize,
}

/// Runs all stages and gives the rows of the last one as they come, if its sink hands them on, or all together.
/// `actuals`: where to note what happens.
pub async fn start_dataflows(
    qep: &MacroQep,
    engine: &Engine,
    context: &mut RunContext<'_>,
    actuals: Option<&Actuals>,
) -> Result<NativeRows, SqlError> {
    let parameters = qep.parameters(&context.parameters);
    let batch_rows = context.batch_rows;
    let mut run = Run { qep, engine: engine.clone(), parameters, left: Vec::new(), actuals, batch_rows };
    for (number, stage) in qep.stages.iter().enumerate() {
        let is_last = number + 1 == qep.stages.len();
        if is_last
            && let SinkPlan::Emit = stage.sink
            && let [Input { source: Source::Scan(access), steps, .. }] = stage.inputs.as_slice()
            && run.probe_of_files(steps).is_none()
        {
            let pipeline = run.pipeline(Steps { stage: number, input: 0, first: 0, plans: steps }, Arc::new(Emit))?;
            let (skip, fetch) = match &stage.limit {
                None => (0, None),
                Some(limit) => limits(limit.skip.as_ref(), limit.fetch.as_ref(), &run.parameters)?,
            };
            let Bound::Read(read) = narrowed(access.bind(&run.parameters)?, access, &pipeline, steps) else {
                return Ok(NativeRows::ready(Held::default()));
            };
            let results = context.transaction.scan(read, Some(Arc::new(pipeline)));
            let results = results.map_err(|error| engine_error(&error, Some(&access.table)))?;
            let rows = NativeRows::streaming(results, Arc::clone(&access.table), run.bytes_of_builds(steps));
            return Ok(rows.limited(skip, fetch).spilling_to(context.spill.as_ref()));
        }
        if is_last && let Some(rows) = run.computed_in_order(number, stage, context)? {
            return Ok(rows);
        }
        let left = run.stage(number, stage, context).await?;
        run.left.push(left);
        run.give_back_builds(number);
        run.take_scalars(number).await?;
    }
    match run.left.pop() {
        Some(Left::Rows { batches, reservation, .. }) => {
            let rows = NativeRows::ready(Held::charged_all(batches, reservation));
            Ok(rows.spilling_to(context.spill.as_ref()))
        }
        Some(Left::InFiles { rows: LeftInFiles::Once(Some(stream)), .. }) => Ok(NativeRows::in_files(stream)),
        _ => Err(SqlError::internal("the last stage of a query gives rows")),
    }
}

impl Run<'_> {
    async fn stage(&mut self, number: usize, stage: &Stage, context: &mut RunContext<'_>) -> Result<Left, SqlError> {
        let started = self.engine.env().now();
        let (sink, built) = self.sink(number, stage, context);
        for (place, input) in stage.inputs.iter().enumerate() {
            context.check_cancelled()?;
            // Rows of a stage may be sorted.
            let in_order =
                matches!((&input.source, &stage.sink), (Source::Stage(_), SinkPlan::Emit | SinkPlan::Collect));
            let (mut from, mut first) = (From::Source(&input.source), 0);
            // Rows that meet a build side in files go through files, too.
            while let Some(at) = self.probe_of_files(&input.steps[first..]) {
                let steps = Steps { stage: number, input: place, first, plans: &input.steps[first..first + at] };
                let StepPlan::Probe(probe) = &input.steps[first + at] else {
                    return Err(SqlError::internal("a step that looks nothing up"));
                };
                let joined = self.joined_in_files(from, steps, probe, context).await?;
                (from, first) = (From::Files(joined), first + at + 1);
            }
            let steps = Steps { stage: number, input: place, first, plans: &input.steps[first..] };
            self.feed(from, steps, &sink, in_order, context).await?;
        }
        if let Some(left) = self.finish_in_files(number, stage, &sink, built.as_ref(), context).await? {
            if let Some(actuals) = self.actuals {
                actuals.stage(number).ended(self.engine.env().now() - started);
            }
            return Ok(left);
        }
        let finishing = Arc::clone(&sink);
        let job: Piece = Arc::new(move |job| finishing.finish_job(job).map(Poll::Ready));
        loop {
            let jobs = sink.finish_jobs().map_err(|error| operator_error(&error))?;
            if jobs == 0 {
                break;
            }
            self.run_pieces(jobs, Arc::clone(&job), context).await?;
        }
        drop(job);
        if let Some(actuals) = self.actuals {
            actuals.stage(number).ended(self.engine.env().now() - started);
        }
        if let Some(built) = built {
            return Ok(Left::Built(built));
        }
        if let SinkPlan::Nothing = stage.sink {
            return Ok(Left::Nothing);
        }
        let (mut batches, reservation) = sink.take_output().map_err(|error| operator_error(&error))?;
        if let Some(limit) = &stage.limit {
            let (skip, fetch) = limits(limit.skip.as_ref(), limit.fetch.as_ref(), &self.parameters)?;
            batches = part(batches, skip, fetch);
        }
        Ok(Left::Rows { batches, reservation, uses: self.qep.uses(number) })
    }

    /// Sends rows through steps into a sink; `in_order`: those that come of them stay in their order.
    pub(super) async fn feed(
        &mut self,
        from: From<'_>,
        steps: Steps<'_>,
        sink: &Arc<dyn Sink>,
        in_order: bool,
        context: &mut RunContext<'_>,
    ) -> Result<(), SqlError> {
        let end: Arc<dyn Sink> = if in_order { Arc::new(Emit) } else { Arc::clone(sink) };
        let pipeline = self.pipeline(steps, end)?;
        match from {
            From::Source(Source::Scan(access)) => self.scan(access, steps.plans, pipeline, sink, context).await?,
            From::Source(Source::Stage(from)) => match self.take_rows(*from)? {
                Rows::Held(batches, charged) => {
                    if in_order {
                        self.push_in_order(batches, &pipeline, sink, context).await?;
                    } else {
                        self.push(batches, &pipeline, sink, context).await?;
                    }
                    drop(charged);
                }
                Rows::Stream(stream) => self.push_stream(stream, &pipeline, sink, in_order, context).await?,
            },
            From::Source(Source::Built { stage, met }) => {
                let built = self.built(*stage)?;
                if built.is_in_files() {
                    let stream = built.stream_rows(*met).map_err(|error| operator_error(&error))?;
                    self.push_stream(stream, &pipeline, sink, in_order, context).await?;
                } else {
                    let (batches, charged) = built.take_rows(*met).map_err(|error| operator_error(&error))?;
                    self.push(batches, &pipeline, sink, context).await?;
                    drop(charged);
                }
            }
            From::Source(Source::Values { rows, types }) => {
                let (batches, computed) = values(rows, types, &self.parameters, context.memory())?;
                self.push(batches, &pipeline, sink, context).await?;
                drop(computed);
            }
            From::Files(stream) => self.push_stream(stream, &pipeline, sink, in_order, context).await?,
        }
        Ok(())
    }

    fn sink(&self, number: usize, stage: &Stage, context: &RunContext<'_>) -> (Arc<dyn Sink>, Option<Arc<JoinBuild>>) {
        let (memory, workers) = (context.memory(), context.workers);
        match &stage.sink {
            // Rows that come from tasks are collected; who wants them as they come asks for a scan.
            SinkPlan::Emit | SinkPlan::Collect => match &context.spill {
                Some(spill) if !keeps_order(stage) || self.joins_in_files(stage) => {
                    (Arc::new(SpillingCollector::new(memory, workers, spill)), None)
                }
                _ => (Arc::new(Collector::new(memory)), None),
            },
            SinkPlan::Nothing => (Arc::new(Collector::new(memory)), None),
            SinkPlan::Build(spec) => {
                let parameters: Arc<[Value]> = self.parameters.as_slice().into();
                let built = JoinBuild::new(BuildSpec::clone(spec), memory, workers).with_parameters(parameters);
                let built = built.with_filters(self.qep.filtered_keys(number));
                let spill = context.spill.iter().filter(|_| !self.qep.asks_all_for_null(number));
                let built = Arc::new(spill.fold(built, JoinBuild::spilling_to));
                (Arc::clone(&built) as Arc<dyn Sink>, Some(built))
            }
            SinkPlan::Group { groups, determining, calls } => {
                let parameters: Arc<[Value]> = self.parameters.as_slice().into();
                let group = GroupBy::with_calls(Arc::clone(groups), Arc::clone(calls), parameters, memory, workers);
                let group = group.determined_by(*determining).taking(context.aggregation_input);
                (Arc::new(context.spill.iter().fold(group, GroupBy::spilling_to)), None)
            }
            SinkPlan::Window(spec) => {
                let window = WindowSink::new(spec.clone(), memory, workers);
                (Arc::new(context.spill.iter().fold(window, WindowSink::spilling_to)), None)
            }
            SinkPlan::Sort { keys, limit } => {
                let sort = SortSink::new(keys.clone(), *limit, memory, workers);
                (Arc::new(context.spill.iter().fold(sort, SortSink::spilling_to)), None)
            }
        }
    }

    fn pipeline(&self, steps: Steps<'_>, sink: Arc<dyn Sink>) -> Result<Pipeline, SqlError> {
        let Steps { stage, input, first, plans } = steps;
        let steps = plans.iter().map(|step| {
            Ok(match step {
                StepPlan::Filter(condition) => Step::Filter(Arc::clone(condition)),
                StepPlan::Project(expressions) => Step::Project(Arc::clone(expressions)),
                StepPlan::Expand(lists) => Step::Expand(Arc::clone(lists)),
                StepPlan::Passed(passed) => {
                    let built = self.built(passed.stage)?;
                    let filter = built.filter(passed.key).map_err(|error| operator_error(&error))?;
                    Step::Passed(Arc::new(PassedFilter::new(Arc::clone(filter), passed.column)))
                }
                StepPlan::Probe(probe) => Step::Probe(Arc::new(self.probe(probe)?)),
            })
        });
        let steps = steps.collect::<Result<Vec<Step>, SqlError>>()?;
        let counts = self.actuals.map(|actuals| Arc::clone(&actuals.stage(stage).inputs[input]));
        let pipeline = Pipeline::new(steps, sink, self.parameters.as_slice());
        Ok(Pipeline { counts, first_place: first, batch_rows: self.batch_rows, ..pipeline })
    }

    pub(super) fn probe(&self, plan: &ProbePlan) -> Result<Probe, SqlError> {
        Ok(Probe {
            build: self.built(plan.stage)?,
            kind: plan.kind,
            keys: Arc::clone(&plan.keys),
            residual: plan.residual.clone(),
            probe_columns: Arc::clone(&plan.probe_columns),
            build_columns: Arc::clone(&plan.build_columns),
        })
    }

    /// Build sides that only this stage and former ones asked: a chain of joins holds two at a time.
    fn give_back_builds(&mut self, number: usize) {
        for read in self.qep.read_last_by(number) {
            if let Left::Built(_) = self.left[read] {
                self.left[read] = Left::Nothing;
            }
        }
    }

    /// What steps look rows up in.
    fn bytes_of_builds(&self, steps: &[StepPlan]) -> u64 {
        let bytes = |step: &StepPlan| match step {
            StepPlan::Probe(probe) => self.built(probe.stage).map_or(0, |built| built.bytes()),
            StepPlan::Filter(_) | StepPlan::Project(_) | StepPlan::Expand(_) | StepPlan::Passed(_) => 0,
        };
        steps.iter().map(bytes).sum()
    }

    pub(super) fn built(&self, stage: usize) -> Result<Arc<JoinBuild>, SqlError> {
        match self.left.get(stage) {
            Some(Left::Built(built)) => Ok(Arc::clone(built)),
            _ => Err(SqlError::internal(format!("stage {stage} built no side of a join"))),
        }
    }

    /// The rows of a stage. Whoever asks last takes what is charged for them.
    fn take_rows(&mut self, stage: usize) -> Result<Rows, SqlError> {
        let left = self.left.get_mut(stage);
        match left {
            Some(Left::Rows { batches, reservation, uses }) => {
                *uses = uses.saturating_sub(1);
                Ok(if *uses == 0 {
                    Rows::Held(std::mem::take(batches), reservation.take())
                } else {
                    Rows::Held(batches.clone(), None)
                })
            }
            Some(Left::InFiles { rows, uses }) => {
                *uses = uses.saturating_sub(1);
                let stream = match rows {
                    LeftInFiles::Once(stream) => stream.take(),
                    LeftInFiles::Kept(kept) => Some(kept.stream()),
                };
                if *uses == 0 {
                    self.left[stage] = Left::Nothing;
                }
                stream
                    .map(Rows::Stream)
                    .ok_or_else(|| SqlError::internal(format!("the rows of stage {stage} are gone")))
            }
            _ => Err(SqlError::internal(format!("stage {stage} left no rows"))),
        }
    }

    async fn scan(
        &self,
        access: &Access,
        steps: &[StepPlan],
        pipeline: Pipeline,
        sink: &Arc<dyn Sink>,
        context: &mut RunContext<'_>,
    ) -> Result<(), SqlError> {
        let bound = narrowed(access.bind(&self.parameters)?, access, &pipeline, steps);
        let Bound::Read(read) = bound else { return Ok(()) };
        let failed = |error| engine_error(&error, Some(&access.table));
        let mut results = context.transaction.scan(read, Some(Arc::new(pipeline))).map_err(failed)?;
        // Only what the sink cannot take comes here.
        while let Some(batch) = results.next().await.map_err(failed)? {
            self.take_refused(sink, vec![batch], context).await?;
        }
        Ok(())
    }

    /// Does pieces of work, on as many workers as the statement may have.
    pub(super) async fn run_pieces(
        &self,
        count: usize,
        piece: Piece,
        context: &RunContext<'_>,
    ) -> Result<(), SqlError> {
        on_workers(&self.engine, &context.transaction.cancel_handle(), context.workers, count, piece).await
    }

    /// The rows of a last stage that only computes something of those of another one, which may be sorted.
    fn computed_in_order(
        &mut self,
        number: usize,
        stage: &Stage,
        context: &RunContext<'_>,
    ) -> Result<Option<NativeRows>, SqlError> {
        let (SinkPlan::Emit | SinkPlan::Collect, [input], Some(spill), None) =
            (&stage.sink, stage.inputs.as_slice(), &context.spill, self.actuals)
        else {
            return Ok(None);
        };
        let Source::Stage(from) = input.source else { return Ok(None) };
        if self.probe_of_files(&input.steps).is_some() {
            return Ok(None);
        }
        let (skip, fetch) = match &stage.limit {
            None => (0, None),
            Some(limit) => limits(limit.skip.as_ref(), limit.fetch.as_ref(), &self.parameters)?,
        };
        let steps = Steps { stage: number, input: 0, first: 0, plans: &input.steps };
        let pipeline = self.pipeline(steps, Arc::new(Emit))?;
        let rows = self.take_rows(from)?;
        let rows = ComputedRows::new(
            &self.engine,
            &context.transaction.cancel_handle(),
            context.workers,
            pipeline,
            rows,
            (spill, self.bytes_of_builds(&input.steps)),
        );
        Ok(Some(NativeRows::computed(rows).limited(skip, fetch).spilling_to(Some(spill))))
    }

    /// Pushes batches, which may be sorted, through a pipeline that emits, on all workers, and what comes of them into
    /// a sink in the same order.
    pub(super) async fn push_in_order(
        &self,
        batches: Vec<Batch>,
        pipeline: &Pipeline,
        sink: &Arc<dyn Sink>,
        context: &RunContext<'_>,
    ) -> Result<(), SqlError> {
        let held = Arc::new(context.memory().reserve(CONSUMER));
        let cancel = context.transaction.cancel_handle();
        for batch in computed(&self.engine, &cancel, context.workers, pipeline, batches, &held).await? {
            held.shrink(batch.bytes() as u64);
            if let Some(refused) = consumed(&**sink, batch)? {
                self.take_refused(sink, vec![refused], context).await?;
            }
        }
        Ok(())
    }

    /// Fills the parameters that a stage gives.
    async fn take_scalars(&mut self, number: usize) -> Result<(), SqlError> {
        for scalar in self.qep.scalars.iter().filter(|scalar| scalar.stage == number) {
            let (batches, _charged) = match self.take_rows(number)? {
                Rows::Held(batches, charged) => (batches, charged),
                Rows::Stream(mut stream) => {
                    let mut batches = Vec::new();
                    // Two rows are too many already.
                    while batches.len() < 2
                        && let Some(batch) = stream.next().await.map_err(|error| operator_error(&error))?
                    {
                        batches.push(batch);
                    }
                    (batches, None)
                }
            };
            let mut found = batches.iter().flat_map(|batch| (0..batch.rows).map(move |row| batch.value(row, 0)));
            let value = found.next().unwrap_or(Value::Null);
            if found.next().is_some() {
                return Err(SqlError::new(
                    SqlState::CARDINALITY_VIOLATION,
                    "more than one row returned by a subquery used as an expression",
                ));
            }
            self.parameters[scalar.parameter] = value;
        }
        Ok(())
    }
}

/// Whether the rows of a stage come in the order of those of others.
fn keeps_order(stage: &Stage) -> bool {
    stage.inputs.iter().any(|input| matches!(input.source, Source::Stage(_)))
}

/// One turn of a batch, which may be told to stop earlier.
pub(super) fn advance(
    engine: &Engine,
    pipeline: &Pipeline,
    flow: &mut Flow,
    emit: &mut dyn FnMut(Batch) -> Result<(), OperatorError>,
    stops: &dyn Fn() -> bool,
) -> Result<Poll<()>, OperatorError> {
    let (mut until, mut pieces) = (None, 0);
    pipeline.advance(flow, emit, &mut || {
        pieces += 1;
        // Most batches never ask.
        let now = engine.env().now();
        now >= *until.get_or_insert(now + TURN) || pieces == TURN_PIECES_MAX || stops()
    })?;
    Ok(if flow.is_over() { Poll::Ready(()) } else { Poll::Pending })
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rows behind `skip`, `fetch` of them.
fn part(batches: Vec<Batch>, skip: u64, fetch: Option<u64>) -> Vec<Batch> {
    let (mut skip, mut left) = (skip, fetch.unwrap_or(u64::MAX));
    let mut kept = Vec::new();
    for batch in batches {
        let skipped = skip.min(batch.rows as u64);
        skip -= skipped;
        let rows = (batch.rows as u64 - skipped).min(left);
        left -= rows;
        if rows > 0 {
            kept.push(batch.slice(skipped as usize, rows as usize));
        }
    }
    kept
}
