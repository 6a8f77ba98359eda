//! A macro-QEP: the dataflows of one query with barriers between them.
//!
//! ```text
//!   stage 0   scan nation ── filter ─────────────────────────────────────> build
//!   stage 1   scan supplier ── probe 0 ──────────────────────────────────> build
//!   stage 2   scan lineitem ── filter ── probe 1 ── project ─────────────> group by
//!   output    rows of stage 2 ── project ────────────────────────────────> sort
//! ```
//! A stage is one pipeline: inputs that go through steps into one sink. Scans run their steps inside the partitions;
//! rows that a former stage left are pushed by tasks on all workers. When the last input has ended the sink is finished
//! by jobs on all workers, and the next stage begins. The plan says how data moves and which access primitives run; how
//! a join finds its partners is decided when its build side is there, and how rows are read is each partition's choice.
//!
//! A plan is made for one execution, because what tables hold decides the order of joins; it is cheap to make.

mod actuals;
mod computed;
mod describe;
mod narrow;
mod parallel;
mod run;
mod spilling;

use std::sync::Arc;

use eris_operators::{BuildSpec, Expression, GroupCall, JoinKind, SortKeys, WindowSpec};
use eris_storage::{DataType, Value};

use super::access::Access;
use super::conditions::Slot;

pub use actuals::Actuals;
pub use computed::ComputedRows;
pub use describe::describe_dataflows;
pub use run::start_dataflows;

/// The dataflows of one query.
#[derive(Clone, Debug)]
pub struct MacroQep {
    /// In the order in which they run; the last one's rows are the result.
    pub stages: Vec<Stage>,
    /// Values that stages give to later ones: parameters behind those of the statement.
    pub scalars: Vec<Scalar>,
}

/// One pipeline.
#[derive(Clone, Debug)]
pub struct Stage {
    /// One after the other.
    pub inputs: Vec<Input>,
    /// Where all rows end.
    pub sink: SinkPlan,
    /// A part of the rows.
    pub limit: Option<LimitPlan>,
    /// How many rows the plan expects of it.
    pub expected_rows: f64,
}

/// Where rows come from and what they pass through.
#[derive(Clone, Debug)]
pub struct Input {
    /// Their origin.
    pub source: Source,
    /// In order.
    pub steps: Vec<StepPlan>,
    /// How many rows the plan expects of the source.
    pub expected_rows: f64,
}

/// Where rows come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Rows of a table: the steps run in its partitions.
    Scan(Access),
    /// What a stage left.
    Stage(usize),
    /// Rows that a stage built for a join and that a probe has met, or has not.
    Built {
        /// The stage.
        stage: usize,
        /// Those that were met.
        met: bool,
    },
    /// Rows of constant expressions.
    Values {
        /// One expression per column and row.
        rows: Arc<[Arc<[Expression]>]>,
        /// The types of the columns.
        types: Arc<[DataType]>,
    },
}

/// What is done to batches on their way.
#[derive(Clone, Debug)]
pub enum StepPlan {
    /// Rows for which a condition is true.
    Filter(Arc<Expression>),
    /// Computed columns.
    Project(Arc<[Expression]>),
    /// Each row once for each list of computed columns.
    Expand(Arc<[Arc<[Expression]>]>),
    /// Rows that a join further on would drop are dropped here.
    Passed(PassedFilterPlan),
    /// Partners from a join's build side.
    Probe(ProbePlan),
}

/// A filter that the build side of a join further on passed sideways: rows whose value is not among its keys.
#[derive(Clone, Debug)]
pub struct PassedFilterPlan {
    /// The stage that builds.
    pub stage: usize,
    /// Which of its keys, by number.
    pub key: usize,
    /// Which column has to be among them.
    pub column: usize,
    /// The share of rows that is expected to pass.
    pub expected_share: f64,
    /// Between which values the column lies, as far as is known, if it is an attribute with an order: a filter that
    /// covers less lets whole segments be left out.
    pub spread: Option<(i64, i64)>,
}

/// One side of a join that goes through a pipeline.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    /// The stage that built the other side.
    pub stage: usize,
    /// What becomes of rows with and without partners.
    pub kind: JoinKind,
    /// The keys of this side.
    pub keys: Arc<[Expression]>,
    /// A condition on columns of this side and then of the kept ones of the other.
    pub residual: Option<Arc<Expression>>,
    /// Columns of this side that go on.
    pub probe_columns: Arc<[usize]>,
    /// Kept columns of the other side that go on.
    pub build_columns: Arc<[usize]>,
    /// Of each key's values on this side, the share that is expected to be on the other.
    pub expected_shares: Arc<[f64]>,
}

/// Where a stage's rows end.
#[derive(Clone, Debug)]
pub enum SinkPlan {
    /// With the task, as they come.
    Emit,
    /// Kept for later stages.
    Collect,
    /// Nowhere: only what probes have noted counts.
    Nothing,
    /// A join's build side.
    Build(BuildSpec),
    /// Groups.
    Group {
        /// The keys; none: one group.
        groups: Arc<[Expression]>,
        /// So many of the first keys determine the others.
        determining: usize,
        /// What is computed of each.
        calls: Arc<[GroupCall]>,
    },
    /// In order.
    Sort {
        /// By what.
        keys: SortKeys,
        /// At most so many rows are kept.
        limit: Option<usize>,
    },
    /// In order, with the results of window functions.
    Window(WindowSpec),
}

/// OFFSET and LIMIT.
#[derive(Clone, Debug)]
pub struct LimitPlan {
    /// Rows left out first.
    pub skip: Option<Slot>,
    /// Rows that follow; `None`: all.
    pub fetch: Option<Slot>,
}

/// A value that a stage gives: the only column of its only row, NULL without a row.
#[derive(Clone, Copy, Debug)]
pub struct Scalar {
    /// The stage.
    pub stage: usize,
    /// Its number among the parameters.
    pub parameter: usize,
}

impl LimitPlan {
    /// How many rows at most, if the plan says so.
    pub fn fetch_constant(&self) -> Option<u64> {
        match &self.fetch {
            Some(Slot::Constant(Value::Int64(rows))) => u64::try_from(*rows).ok(),
            _ => None,
        }
    }
}

impl Input {
    /// The stages whose rows it takes, whose build sides it probes, and whose filters it was passed.
    fn reads(&self) -> impl Iterator<Item = usize> {
        let source = match self.source {
            Source::Stage(stage) | Source::Built { stage, .. } => Some(stage),
            Source::Scan(_) | Source::Values { .. } => None,
        };
        source.into_iter().chain(self.steps.iter().filter_map(|step| match step {
            StepPlan::Probe(probe) => Some(probe.stage),
            StepPlan::Passed(passed) => Some(passed.stage),
            StepPlan::Filter(_) | StepPlan::Project(_) | StepPlan::Expand(_) => None,
        }))
    }
}

impl Stage {
    /// The stages of which it needs what they left; a stage may come more than once.
    pub fn reads(&self) -> impl Iterator<Item = usize> {
        self.inputs.iter().flat_map(Input::reads)
    }
}

impl MacroQep {
    /// The stages that nobody reads any more when this one has ended, of those that it read.
    fn read_last_by(&self, number: usize) -> impl Iterator<Item = usize> {
        let later = &self.stages[number + 1..];
        self.stages[number].reads().filter(move |read| !later.iter().flat_map(Stage::reads).any(|other| other == *read))
    }

    /// The parameters of an execution, with room for what stages give.
    fn parameters(&self, own: &[Value]) -> Vec<Value> {
        let needed = self.scalars.iter().map(|scalar| scalar.parameter + 1).max().unwrap_or(0);
        let mut parameters = own.to_vec();
        parameters.resize(needed.max(own.len()), Value::Null);
        parameters
    }

    /// The keys of a build side of which filters are passed on.
    fn filtered_keys(&self, stage: usize) -> Arc<[usize]> {
        let steps = self.stages.iter().flat_map(|stage| &stage.inputs).flat_map(|input| &input.steps);
        let keys = steps.filter_map(|step| match step {
            StepPlan::Passed(passed) if passed.stage == stage => Some(passed.key),
            _ => None,
        });
        keys.collect::<std::collections::BTreeSet<usize>>().into_iter().collect()
    }

    /// Whether a probe of a build side is a NOT IN with a residual: for a NULL it has to see all rows.
    fn asks_all_for_null(&self, built: usize) -> bool {
        let mut steps = self.stages.iter().flat_map(|stage| &stage.inputs).flat_map(|input| &input.steps);
        let is_one = |step: &StepPlan| match step {
            StepPlan::Probe(probe) => {
                let null_aware = matches!(probe.kind, JoinKind::NullAwareAnti | JoinKind::Mark { null_aware: true });
                probe.stage == built && null_aware && probe.residual.is_some()
            }
            StepPlan::Filter(_) | StepPlan::Project(_) | StepPlan::Expand(_) | StepPlan::Passed(_) => false,
        };
        steps.any(is_one)
    }

    /// How often the rows of a stage are asked for.
    pub fn uses(&self, stage: usize) -> usize {
        let inputs = self.stages.iter().flat_map(|stage| &stage.inputs);
        inputs.filter(|input| matches!(&input.source, Source::Stage(used) if *used == stage)).count()
            + self.scalars.iter().filter(|scalar| scalar.stage == stage).count()
    }
}
