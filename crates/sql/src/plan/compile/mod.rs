//! The macro-QEP compiler: from an optimised query to dataflows (004, section 3.4; DESIGN 3).
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

use eris_query::{ColumnId, Fingerprint, Query, Relation};
use eris_storage::Value;

use super::access::{Split, table_of};
use super::typed::{Lowering, TypedPlan};
use crate::catalog::Table;
use crate::native::{self, MacroQep, SinkPlan, Source, Stage};
use crate::statistics::Statistics;
use stream::Stream;

/// Columns that are needed above.
type Needed = BTreeSet<ColumnId>;

/// Compiles a plan. The values of parameters, as far as they are known, are for estimates only.
pub fn compile(plan: &TypedPlan, statistics: &Statistics, parameters: &[Value]) -> Lowering<MacroQep> {
    let mut qep = stages(plan, statistics, parameters)?;
    debug_assert_eq!(verify::fault(&qep), None, "as compiled");
    if sideways::pass_filters(&mut qep, statistics) {
        schedule::put_in_order(&mut qep);
        debug_assert_eq!(verify::fault(&qep), None, "with filters passed sideways");
    }
    Ok(qep)
}

/// Whether a plan can be compiled, whatever tables hold.
pub fn is_native(plan: &TypedPlan) -> Lowering<()> {
    stages(plan, &Statistics::default(), &[]).map(drop)
}

/// The stages in the order in which they are found.
fn stages(plan: &TypedPlan, statistics: &Statistics, parameters: &[Value]) -> Lowering<MacroQep> {
    let query = &plan.query;
    let mut compiler = Compiler {
        query,
        tables: &plan.tables,
        repeated: relational::repeated_groups(query),
        statistics,
        parameters: parameters.to_vec(),
        stages: Vec::new(),
        scalars: Vec::new(),
        known: Vec::new(),
        ready: BTreeSet::new(),
    };
    let needed: Needed = query.output.iter().copied().collect();
    let stream = compiler.stream(&query.relation, &needed)?;
    compiler.finish(stream)?;
    Ok(MacroQep { stages: compiler.stages, scalars: compiler.scalars })
}

/// Groups that stages compute already.
struct Known {
    groups: Fingerprint,
    /// What was needed of them.
    columns: Needed,
    stream: Stream,
}

struct Compiler<'a> {
    query: &'a Query,
    tables: &'a [Arc<Table>],
    statistics: &'a Statistics,
    parameters: Vec<Value>,
    stages: Vec<Stage>,
    scalars: Vec<native::Scalar>,
    /// Groups that occur more than once: the first time all of their columns are made.
    repeated: Vec<Fingerprint>,
    /// Those among them that were met.
    known: Vec<Known>,
    /// The parameters that are subqueries which stages compute already.
    ready: BTreeSet<usize>,
}

impl Compiler<'_> {
    /// An open pipeline for a relation; of its columns those that are needed.
    fn stream(&mut self, relation: &Relation, needed: &Needed) -> Lowering<Stream> {
        match relation {
            Relation::OneRow => Ok(relational::values(&[], &[Vec::new()], needed)?),
            Relation::Values { columns, rows } => relational::values(columns, rows, needed),
            Relation::Scan { table, columns } => self.scan(*table, columns, Vec::new(), needed),
            Relation::Filter { input, condition } => self.filter(input, condition, needed),
            Relation::Project { input, items } => self.projection(input, items, needed),
            Relation::Join(join) => self.join(relation, join, needed),
            Relation::Aggregate(aggregate) => self.aggregate(relation, aggregate, needed),
            Relation::Window { input, windows } => self.window(input, windows, needed),
            Relation::Distinct { input, columns } => self.distinct(input, columns),
            Relation::Sort { input, keys, fetch } => self.sort(input, keys, *fetch, needed),
            Relation::Limit { input, skip, fetch } => self.limit(input, skip.as_ref(), fetch.as_ref(), needed),
            Relation::Union { inputs, columns } => self.union(inputs, columns, needed),
        }
    }

    /// A filter; of one directly above a scan storage evaluates what it can.
    fn filter(&mut self, input: &Relation, condition: &eris_query::Scalar, needed: &Needed) -> Lowering<Stream> {
        self.ready([condition])?;
        let Relation::Scan { table, columns } = input else {
            let mut wanted = eris_query::columns_of([condition]);
            wanted.extend(needed);
            let stream = self.stream(input, &wanted)?;
            return self.filtered(stream, &condition.conjuncts().iter().collect::<Vec<_>>());
        };
        let split = Split::of(condition, columns, table_of(self.tables, *table)?)?;
        let mut wanted = eris_query::columns_of(split.outside.iter().copied());
        wanted.extend(needed);
        let stream = self.scan(*table, columns, split.inside, &wanted)?;
        self.filtered(stream, &split.outside)
    }

    /// Ends an open pipeline with a sink; the number of the stage.
    fn end(&mut self, stream: &Stream, sink: SinkPlan) -> usize {
        let expected_rows = stream.estimate.rows;
        self.stages.push(Stage { inputs: stream.inputs.clone(), sink, limit: None, expected_rows });
        self.stages.len() - 1
    }

    /// Makes an open pipeline the last stage.
    fn finish(&mut self, stream: Stream) -> Lowering<()> {
        let output = &self.query.output;
        let in_order = stream.is_arranged(output);
        let last = self.stages.len().checked_sub(1);
        if let [input] = stream.inputs.as_slice()
            && let Source::Stage(stage) = input.source
            && input.steps.is_empty()
            && Some(stage) == last
            && in_order
        {
            return Ok(());
        }
        let stream = if in_order { stream } else { stream.arranged(output)? };
        self.end(&stream, SinkPlan::Emit);
        Ok(())
    }
}
