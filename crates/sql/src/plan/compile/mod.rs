//! The macro-QEP compiler: from an optimised logical plan to dataflows (004, section 3.4; DESIGN 3).
//!
//! Nodes that pass batches on become steps of a pipeline that is still open ([`Stream`]); nodes that need all their
//! rows end it with a sink, which makes it a stage, and begin another one with what the stage leaves:
//!
//! ```text
//!   Sort                     stage 2: rows of 1 ──────────────────────────> sort
//!     Aggregate              stage 1: scan orders ── filter ── probe 0 ───> group by
//!       Join                 stage 0: scan customer ──────────────────────> build
//!         customer
//!         Filter
//!           orders
//! ```
//! Every node is told which of its columns are needed above, and yields no others. Inner joins that hang together are
//! taken apart and put together again in the order that is expected to be cheapest ([`graph`], [`order`]), by what is
//! known of the tables now ([`estimate`]). A subquery that does not refer to rows outside becomes a stage whose value
//! is a parameter; groups that occur twice are computed once, and what determines a group is compared alone
//! ([`determined`]). When all stages are there, build sides pass filters to scans far away ([`sideways`]), and the
//! stages are put into an order in which each finds what it needs ([`schedule`]); debug builds look at the whole again
//! ([`verify`]).

mod determined;
mod estimate;
mod graph;
mod grouping_sets;
mod joins;
mod order;
mod pairs;
mod relational;
mod scalars;
mod scan;
mod schedule;
mod sideways;
mod stream;
mod verify;
mod windows;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::logical_expr::{Expr, LogicalPlan};
use eris_storage::Value;

use super::lower::{Lowering, NotNative};
use crate::catalog::Table;
use crate::errors::SqlError;
use crate::native::{MacroQep, Scalar, SinkPlan, Source, Stage};
use crate::statistics::Statistics;
use stream::Stream;

/// Positions in a plan's schema.
type Needed = BTreeSet<usize>;

/// Compiles a plan. The values of parameters, as far as they are known, are for estimates only.
pub fn compile(
    plan: &LogicalPlan,
    statistics: &Statistics,
    parameters: &[Value],
    parameter_count: usize,
) -> Lowering<MacroQep> {
    let mut qep = stages(plan, statistics, parameters, parameter_count)?;
    debug_assert_eq!(verify::fault(&qep), None, "as compiled");
    if sideways::pass_filters(&mut qep, statistics) {
        schedule::put_in_order(&mut qep);
        debug_assert_eq!(verify::fault(&qep), None, "with filters passed sideways");
    }
    Ok(qep)
}

/// Whether a plan can be compiled, whatever tables hold.
pub fn is_native(plan: &LogicalPlan, parameter_count: usize) -> Lowering<()> {
    stages(plan, &Statistics::default(), &[], parameter_count).map(drop)
}

/// The stages in the order in which they are found.
fn stages(
    plan: &LogicalPlan,
    statistics: &Statistics,
    parameters: &[Value],
    parameter_count: usize,
) -> Lowering<MacroQep> {
    let mut compiler = Compiler {
        repeated: relational::repeated_groups(plan)?,
        statistics,
        parameters: parameters.to_vec(),
        next_parameter: parameter_count,
        stages: Vec::new(),
        scalars: Vec::new(),
        known: Vec::new(),
        values: Vec::new(),
    };
    let needed: Needed = (0..plan.schema().fields().len()).collect();
    let stream = compiler.stream(plan, &needed)?;
    compiler.finish(stream)?;
    Ok(MacroQep { stages: compiler.stages, scalars: compiler.scalars })
}

/// The tables that a plan reads, subqueries included, each once.
pub fn tables_of(plan: &LogicalPlan) -> Result<Vec<Arc<Table>>, SqlError> {
    let mut tables: Vec<Arc<Table>> = Vec::new();
    eris_binder::visit_scans(plan, &mut |scan| {
        if let Ok(table) = super::lower::table_of(scan)
            && !tables.iter().any(|known| known.container() == table.container())
        {
            tables.push(table);
        }
        Ok(())
    })
    .map_err(|error| super::datafusion_error(&error))?;
    Ok(tables)
}

struct Compiler<'a> {
    statistics: &'a Statistics,
    parameters: Vec<Value>,
    next_parameter: usize,
    stages: Vec<Stage>,
    scalars: Vec<Scalar>,
    /// Groups that occur more than once: the first time all of their columns are made.
    repeated: Vec<LogicalPlan>,
    /// Plans that stages compute already, with what was needed of them.
    known: Vec<(LogicalPlan, Needed, Stream)>,
    /// Subqueries that stages compute already, with the parameters that are their values.
    values: Vec<(LogicalPlan, Expr)>,
}

impl Compiler<'_> {
    /// An open pipeline for a node; of its columns those that are needed.
    fn stream(&mut self, plan: &LogicalPlan, needed: &Needed) -> Lowering<Stream> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan, needed),
            LogicalPlan::Filter(filter) => self.filter(filter, needed),
            LogicalPlan::Projection(projection) => self.projection(projection, needed),
            LogicalPlan::SubqueryAlias(alias) => self.stream(&alias.input, needed),
            LogicalPlan::Join(join) => self.join(plan, join, needed),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(plan, aggregate, needed),
            LogicalPlan::Window(window) => self.window(window, needed),
            LogicalPlan::Distinct(distinct) => self.distinct(distinct),
            LogicalPlan::Sort(sort) => self.sort(sort, needed),
            LogicalPlan::Limit(limit) => self.limit(limit, needed),
            LogicalPlan::Union(union) => self.union(union, needed),
            LogicalPlan::EmptyRelation(empty) => relational::empty(empty, needed),
            LogicalPlan::Values(values) => relational::values(values, needed),
            other => Err(NotNative(super::lower::node_name(other))),
        }
    }

    /// Ends an open pipeline with a sink; the number of the stage.
    fn end(&mut self, stream: &Stream, sink: SinkPlan) -> usize {
        let expected_rows = stream.estimate.rows;
        self.stages.push(Stage { inputs: stream.inputs.clone(), sink, limit: None, expected_rows });
        self.stages.len() - 1
    }

    /// Makes an open pipeline the last stage.
    fn finish(&mut self, stream: Stream) -> Lowering<()> {
        let width = stream.columns.len();
        let in_order = stream.types.len() == width
            && stream.columns.iter().enumerate().all(|(position, column)| *column == Some(position));
        let last = self.stages.len().checked_sub(1);
        if let [input] = stream.inputs.as_slice()
            && let Source::Stage(stage) = input.source
            && input.steps.is_empty()
            && Some(stage) == last
            && in_order
        {
            return Ok(());
        }
        let positions: Vec<usize> = (0..width).collect();
        let stream = if in_order { stream } else { stream.arranged(&positions)? };
        self.end(&stream, SinkPlan::Emit);
        Ok(())
    }
}
