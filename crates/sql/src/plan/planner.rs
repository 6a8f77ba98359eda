//! The planner: DataFusion's rules and functions, set up once for a database.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::catalog::TableProvider;
use datafusion::execution::SessionStateDefaults;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, ScalarUDF};
use datafusion::optimizer::Optimizer;
use eris_durability::RecoveryReport;
use eris_engine::Engine;
use eris_storage::BATCH_ROWS;

use super::aggregates::exact_aggregates;
use super::analyze::{analyzer_rules, date_part, refused};
use super::arithmetic::Arithmetic;
use super::bind::SessionValues;
use super::checked::checked_modulo;
use super::errors::datafusion_error;
use super::letter_case::by_letter;
use super::partial_functions::checked;
use super::rules::{optimizer_rules, physical_rules, rules_again};
use super::text_growth::{Planning, TextCalls, bounded};
use super::window_functions::window_functions;
use crate::activity::Activities;
use crate::catalog::{CatalogVersion, Table};
use crate::errors::SqlError;
use crate::fallback::PaddedSides;
use crate::front::TableName;
use crate::views::{Named, system_view};

/// Rows of a batch in the fallback lane: what DataFusion's operators are tuned for, a multiple of ours.
pub const FALLBACK_BATCH_ROWS: usize = 4 * BATCH_ROWS;

/// Functions that mean something else in PostgreSQL: their formats are not those of `strftime`.
const OTHER_MEANING: [&str; 3] = ["to_char", "to_date", "to_timestamp"];

/// DataFusion's functions but for those of arrays, some of them also under PostgreSQL's names.
fn scalar_functions(memory: &Arc<dyn MemoryPool>) -> Vec<Arc<ScalarUDF>> {
    let mut functions: Vec<Arc<ScalarUDF>> = datafusion::functions::all_default_functions()
        .into_iter()
        .filter(|function| !OTHER_MEANING.iter().any(|name| function.name().starts_with(name)))
        .map(|function| match function.name() {
            "signum" => Arc::new(ScalarUDF::clone(&function).with_aliases(["sign"])),
            "date_part" => date_part(),
            "lower" | "upper" => bounded(by_letter(function), memory),
            _ => bounded(checked(function), memory),
        })
        .collect();
    functions.push(Arc::new(checked_modulo().with_aliases(["mod"])));
    functions
}

/// DataFusion's aggregates, some of them also under PostgreSQL's names.
fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    SessionStateDefaults::default_aggregate_functions()
        .into_iter()
        .map(|function| match function.name() {
            "bool_and" => Arc::new(AggregateUDF::clone(&function).with_aliases(["every"])),
            "var" => Arc::new(AggregateUDF::clone(&function).with_aliases(["variance", "var_samp", "var_sample"])),
            _ => function,
        })
        .collect()
}

/// Refuses a plan with subqueries of which no rule has made a join: none of its operators could run them.
fn check_subqueries(plan: &LogicalPlan) -> datafusion::common::Result<()> {
    let is_left = |expr: &Expr| match expr {
        Expr::InSubquery(_) | Expr::Exists(_) | Expr::OuterReferenceColumn(..) => true,
        Expr::ScalarSubquery(subquery) => !subquery.outer_ref_columns.is_empty(),
        _ => false,
    };
    eris_binder::visit_nodes(plan, &mut |node| {
        if eris_binder::node_has(node, &is_left)? {
            return Err(refused("a subquery that refers to columns outside in this way"));
        }
        Ok(())
    })
}

/// Plans statements of one database. Clones share everything.
#[derive(Clone)]
pub struct Planner {
    engine: Engine,
    /// How the database was opened, once it has files.
    recovery: Arc<OnceLock<RecoveryReport>>,
    activities: Arc<Activities>,
    state: Arc<SessionState>,
    /// The same, and functions are told that they are called while a statement is planned.
    planning: Arc<SessionState>,
    again: Arc<Optimizer>,
    expr_planners: Arc<[Arc<dyn ExprPlanner>]>,
    /// Queries planned so far, and those of them that our own binder bound.
    planned: Arc<AtomicU64>,
    bound_here: Arc<AtomicU64>,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planner")
    }
}

impl Planner {
    /// A planner whose fallback plans run with this many partitions, batches of this many rows at most, and account
    /// memory with this environment.
    pub fn new(
        engine: Engine,
        activities: Arc<Activities>,
        partitions: usize,
        batch_rows: usize,
        runtime: Arc<RuntimeEnv>,
    ) -> Self {
        let mut expr_planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(Arithmetic::new())];
        expr_planners.extend(SessionStateDefaults::default_expr_planners());
        let mut config = SessionConfig::new()
            .with_target_partitions(partitions.max(1))
            .with_batch_size(FALLBACK_BATCH_ROWS.min(batch_rows))
            .with_information_schema(false)
            .with_create_default_catalog_and_schema(false)
            .with_collect_statistics(true)
            // Scans hand out their morsels to whoever asks; cutting them again costs a copy.
            .with_round_robin_repartition(false);
        config.options_mut().execution.time_zone = None;
        // What a second pass has to do, few of the rules do.
        config.options_mut().optimizer.max_passes = 1;
        // Whether a column can be NULL is said differently of `x IS TRUE` in logical and in physical plans.
        config.options_mut().execution.skip_physical_aggregate_schema_check = true;
        let aggregates = aggregate_functions().into_iter().chain(exact_aggregates());
        let memory = Arc::clone(&runtime.memory_pool);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_expr_planners(expr_planners.clone())
            .with_analyzer_rules(analyzer_rules(TextCalls::new(&memory)))
            .with_optimizer_rules(optimizer_rules())
            .with_physical_optimizer_rules(physical_rules(PaddedSides::Outer))
            .with_scalar_functions(scalar_functions(&memory))
            .with_aggregate_functions(aggregates.collect())
            .with_window_functions(window_functions())
            .build();
        let mut planning = state.clone();
        planning.config_mut().options_mut().extensions.insert(Planning);
        Self {
            engine,
            recovery: Arc::default(),
            activities,
            state: Arc::new(state),
            planning: Arc::new(planning),
            again: Arc::new(rules_again()),
            expr_planners: expr_planners.into(),
            planned: Arc::default(),
            bound_here: Arc::default(),
        }
    }

    /// How many queries were planned so far: what a cached plan saves.
    pub fn planned(&self) -> u64 {
        self.planned.load(Ordering::Relaxed)
    }

    /// How many of them our own binder bound.
    pub fn bound_here(&self) -> u64 {
        self.bound_here.load(Ordering::Relaxed)
    }

    pub(crate) fn note_bound_here(&self) {
        self.planned.fetch_add(1, Ordering::Relaxed);
        self.bound_here.fetch_add(1, Ordering::Relaxed);
    }

    /// DataFusion's state: functions, rules, configuration.
    pub fn state(&self) -> &Arc<SessionState> {
        &self.state
    }

    /// How the database was opened, for the view of it. Once.
    pub fn tell_recovery(&self, report: RecoveryReport) {
        let first = self.recovery.set(report).is_ok();
        assert!(first, "a database is opened once");
    }

    /// The engine plans run on.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expr_planners
    }

    pub(super) fn activities(&self) -> &Arc<Activities> {
        &self.activities
    }

    pub(super) fn rows_of(&self, table: &Table) -> u64 {
        self.engine.container(table.container()).map_or(0, |container| container.rows())
    }

    pub(super) fn system_view(
        &self,
        name: &TableName,
        catalog: &CatalogVersion,
        values: &SessionValues,
    ) -> Option<Arc<dyn TableProvider>> {
        let Self { engine, activities, .. } = self;
        let recovery = self.recovery.get();
        let (user, database) = (&values.user, &values.database);
        let known = Named { engine, recovery, activities, catalog, user, database };
        system_view(name, &known)
    }

    /// Analyses a plan: its columns have their types then.
    pub(super) fn analyze(&self, plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
        let analyzed = self.state.analyzer().execute_and_check(plan, self.state.config_options(), |_, _| ());
        analyzed.map_err(|error| datafusion_error(&error))
    }

    /// Analyses and optimises a plan. A momentary one gets the time of now; others must not depend on it.
    pub fn optimize(&self, plan: &LogicalPlan, momentary: bool) -> Result<LogicalPlan, SqlError> {
        self.planned.fetch_add(1, Ordering::Relaxed);
        let of_now = momentary.then(|| {
            let mut state = SessionState::clone(&self.planning);
            self.set_time(&mut state);
            state
        });
        let state = of_now.as_ref().unwrap_or(&self.planning);
        self.optimize_in(state, plan).map_err(|error| datafusion_error(&error))
    }

    fn optimize_in(&self, state: &SessionState, plan: &LogicalPlan) -> datafusion::common::Result<LogicalPlan> {
        let mut plan = state.optimize(plan)?;
        if check_subqueries(&plan).is_err() {
            // A subquery within another one, of which the first pass has made a join no more than halfway.
            plan = state.optimizer().optimize(plan, state, |_, _| ())?;
        }
        let plan = self.again.optimize(plan, state, |_, _| ())?;
        check_subqueries(&plan).map(|()| plan)
    }

    /// Fixes the time that `now()` answers.
    pub fn set_time(&self, state: &mut SessionState) {
        let micros = self.engine.env().unix_micros();
        state.execution_props_mut().query_execution_start_time =
            timestamp_us_to_datetime(micros).map(|time| time.and_utc());
    }
}
