//! Keeps what is constant on one side of an outer join, or equal to something there, from being taken for it behind the
//! join, where rows without a partner have NULL instead; and the same with keys of grouping sets, which are NULL where
//! a set does not have them.
//!
//! DataFusion hands all that it knows of both sides on, sorts and groups by such a column no more, and gives rows in
//! the wrong order or a group twice. The side that is padded gets an operator that tells nothing but its columns.
//!
//! What it knows of a side it also forgets too late: a sort by a constant is pushed below a join of any kind, dropped
//! there, and asked for again above the join. Plans that fail so are made once more with the operator on all sides.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{ReplaceChildrenOptions, replace_children_if_necessary};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// Puts the operator below joins and grouping sets.
#[derive(Clone, Copy, Debug)]
pub enum PaddedSides {
    /// Below outer joins and grouping sets, where rows are padded.
    Outer,
    /// Below all joins and grouping sets.
    All,
}

impl PhysicalOptimizerRule for PaddedSides {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(padded) = self.padded(node.as_ref()) else { return Ok(Transformed::no(node)) };
            let sides = node.children().into_iter().zip(padded);
            let knows = |(side, is_padded): (&Arc<dyn ExecutionPlan>, bool)| is_padded && has_equals(side.as_ref());
            if !sides.clone().any(knows) {
                return Ok(Transformed::no(node));
            }
            let children =
                sides.map(
                    |(side, is_padded)| {
                        if knows((side, is_padded)) { PaddedSide::over(Arc::clone(side)) } else { Arc::clone(side) }
                    },
                );
            let children = children.collect();
            replace_children_if_necessary(node, children).map(Transformed::yes)
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "padded_sides"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl PaddedSides {
    /// Which sides of a join get the operator, or the only input of grouping sets.
    fn padded(self, node: &dyn ExecutionPlan) -> Option<[bool; 2]> {
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            return (!aggregate.group_expr().is_single()).then_some([true, false]);
        }
        let join_type = if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            *join.join_type()
        } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            *join.join_type()
        } else if node.is::<CrossJoinExec>() {
            JoinType::Inner
        } else {
            node.downcast_ref::<SortMergeJoinExec>()?.join_type()
        };
        match (self, join_type) {
            (Self::All, _) | (Self::Outer, JoinType::Full) => Some([true, true]),
            (Self::Outer, JoinType::Left) => Some([false, true]),
            (Self::Outer, JoinType::Right) => Some([true, false]),
            (Self::Outer, _) => None,
        }
    }
}

/// Whether columns are known to be equal to something.
fn has_equals(side: &dyn ExecutionPlan) -> bool {
    !side.properties().equivalence_properties().eq_group().is_empty()
}

/// Hands rows on as they are.
#[derive(Debug)]
struct PaddedSide {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl PaddedSide {
    fn over(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let known = input.properties();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            known.output_partitioning().clone(),
            known.emission_type,
            known.boundedness,
        );
        Arc::new(Self { input, properties: Arc::new(properties) })
    }

    fn over_another(&self, children: Vec<Arc<dyn ExecutionPlan>>) -> Arc<dyn ExecutionPlan> {
        Self::over(children.into_iter().next().unwrap_or_else(|| Arc::clone(&self.input)))
    }
}

impl DisplayAs for PaddedSide {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PaddedSide")
    }
}

impl ExecutionPlan for PaddedSide {
    fn name(&self) -> &'static str {
        "PaddedSide"
    }

    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.over_another(children))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.over_another(children))
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(input_stats.first().map_or_else(|| Arc::new(Statistics::new_unknown(&self.schema())), Arc::clone))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
